/* defer.c: what a layer's backward computes while it exchanges. On tensor parallelism and context parallelism the next instruction needs what a layer exchanges;
 * gradients of weights need not be made before it, nor does anybody in the backward need them. Those made since the layer's last such exchange go behind the
 * start of the next one. Where two follow one another with nothing between them that takes long (a reduce-scatter, the norm's backward, a gather) each gets half.
 *
 * What they read lives a little longer: not past the norm where a block of a layer begins, unless the exchange that they are for stands behind that; and not
 * at all where the block exchanges nothing.
 *
 * Each gradient stays one chain, and what is added to a state stays in its order: no bit changes. Nothing here looks at a dim: ranks come to one order.
 */
#include <string.h>

#include "ops/ops.h"
#include "pass/internal.h"

typedef struct pass {
	const tt_graph *g;
	const bool *wanted;
	const int64_t *needed;
	bool *late;           /* [nvalues] what waits makes it */
	int64_t *waiting;     /* nodes, in their order */
	int64_t nwaiting, weights; /* of them gradients of weights, each with what reads it */
	bool held;            /* for an exchange behind the next norm */
	tt_copy c;
} pass;

static bool is_weight_gradient(const tt_node *n) { return n->seg == TT_SEG_B && !n->group && (n->op == &tt_op_linear_dw || n->op == &tt_op_linear_dw_acc); }

static bool starts(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

static bool takes_long(const tt_node *n) { return starts(n->op->name, "linear") || starts(n->op->name, "attention"); }

static bool is_norm(const tt_node *n) { return n->op == &tt_op_rms_norm_bwd || n->op == &tt_op_rms_norm_dx; }

static bool reads_late(const pass *p, const tt_node *n)
{
	for (int k = 0; k < n->nin; k++)
		if (n->in[k] && p->late[n->in[k]])
			return true;
	return false;
}

static void mark(pass *p, const tt_node *n, bool late)
{
	for (int k = 0; k < n->nout; k++)
		if (n->out[k])
			p->late[n->out[k]] = late;
}

static void put_off(pass *p, int64_t i)
{
	p->waiting[p->nwaiting++] = i;
	p->weights += is_weight_gradient(&p->g->nodes[i]);
	mark(p, &p->g->nodes[i], true);
}

/* The first `count` gradients of weights, and what needs no others that wait. */
static void release(pass *p, int64_t count)
{
	int64_t left = 0;
	for (int64_t k = 0; k < p->nwaiting; k++) {
		const tt_node *n = &p->g->nodes[p->waiting[k]];
		if (reads_late(p, n) || (is_weight_gradient(n) && count-- <= 0)) {
			p->waiting[left++] = p->waiting[k];
			continue;
		}
		p->weights -= is_weight_gradient(n);
		mark(p, n, false);
		tt_copy_node(&p->c, n);
	}
	p->nwaiting = left;
}

/* Another wanted exchange before anything that takes long, or, if none, -1; *apart: it needs what exchange i makes. */
static int64_t close_by(const pass *p, int64_t i, bool *apart)
{
	const tt_graph *g = p->g;
	*apart = false;
	for (int64_t k = i + 1; k < g->nnodes && g->nodes[k].seg == TT_SEG_B; k++) {
		const tt_node *n = &g->nodes[k];
		*apart |= k == p->needed[i];
		if (p->wanted[k])
			return k;
		if (takes_long(n) && !is_weight_gradient(n))
			return -1;
	}
	return -1;
}

static void behind(pass *p, int64_t i)
{
	bool apart;
	int64_t next = close_by(p, i, &apart);
	if (next < 0)
		release(p, p->weights);
	else if (apart)
		release(p, (p->weights + 1) / 2);
	p->held = next >= 0; /* those that start together are to be one: behind the last of them */
}

/* Nodes of B behind which a wanted exchange stands before the next norm. */
static bool *find_served(const tt_graph *g, const bool *wanted, tt_arena *a)
{
	bool *served = TT_NEWN(a, bool, g->nnodes), serves = false;
	for (int64_t i = g->nnodes - 1; i >= 0; i--) {
		served[i] = serves;
		serves = wanted[i] || (serves && g->nodes[i].seg == TT_SEG_B && !is_norm(&g->nodes[i]));
	}
	return served;
}

tt_status tt_overlap_defer(const tt_graph *g, const bool *wanted, const int64_t *needed, tt_arena *a, tt_graph **out)
{
	pass p = { .g = g, .wanted = wanted, .needed = needed, .late = TT_NEWN(a, bool, g->nvalues), .waiting = TT_NEWN(a, int64_t, g->nnodes), .c = tt_copy_begin(g, a) };
	const bool *served = find_served(g, wanted, a);
	for (int64_t i = 0; i < g->nnodes; i++) {
		const tt_node *n = &g->nodes[i];
		if (n->seg != TT_SEG_B || (is_norm(n) && !p.held))
			release(&p, p.weights);
		if ((is_weight_gradient(n) && served[i]) || reads_late(&p, n)) {
			put_off(&p, i);
			continue;
		}
		tt_copy_node(&p.c, n);
		if (wanted[i])
			behind(&p, i);
	}
	release(&p, p.weights);
	tt_copy_end(&p.c);
	TT_TRY(tt_graph_check(p.c.to));
	*out = p.c.to;
	return TT_OK;
}
