/* overlap.c: where exchanges stand, so that they run beside computation. An exchange is under way from its node to the first node that needs it
 * (exec/exec.h, tt_lane_mode): this pass moves the nodes, and makes one of several that are ready together.
 *
 *   gathers      of parameters stand one unit earlier: when a layer begins, that of the next one is started (F, B, EVAL). The head's, which B begins
 *                with, is a unit of F, its last; F's first two are one, and stand before all else, so that PREP can start them (exec.h)
 *   scatters     of gradients start when a unit's last gradient is there; the accumulates that want them stand where the next unit's start. Of the
 *                last layer the half that is there first goes alone, the other with the embedding's: one is left that nothing hides
 *   reductions   once a step all start when REDUCE begins, or in B (exec.c), and are waited for one after another; what is counted of gradients is
 *                counted in the order in which they are there. The loss's joins the norm's, or is waited for last
 *   others       that are ready together, as queries, keys and values swapped for heads, are one
 *
 * Gathers of parameters, what becomes of gradients, and the rest each have a lane (comm/comm.h): who is early does not stand before who is wanted.
 *
 * Computation keeps its order, but for what only waits for an exchange, and gradients of weights, which go behind exchanges that are wanted (defer.c).
 *
 * A unit is a layer, by the names of values ("model.layers.3"), or what lies between layers. Exchanges of a unit over the same ranks become a bucket.
 *
 * All ranks must come to the same order: nothing here looks at a dim that ranks may have different, but those of whole tensors.
 */
#include <stdlib.h>

#include "comm/comm.h"
#include "ops/ops.h"
#include "pass/internal.h"

enum { MOST = 64 }; /* operands of a bucket */

typedef enum move { STAYS, GATHER, SCATTER, SUM, JOIN } move;

/* Where a node goes: PLACE a node of the old order, and at one place first gathers (sums by level), then accumulates, then what stands there. */
enum { PLACE = 1 << 20, ACCUMULATES = 1 << 18, ITSELF = 2 << 18, BEHIND = 3 << 18 };
typedef struct item { int64_t key, node; } item;

typedef struct pass {
	const tt_graph *g;
	const tt_overlap *o;
	tt_arena *a;
	int32_t *uses;
	int64_t *reader, *first; /* [nvalues] the last node that reads it, the first; -1 none */
	tt_segment *seg; /* [nnodes] */
	move *kind;      /* [nnodes] */
	int64_t *unit;   /* [nnodes] of exchanges that move, counted from 0 in each segment and kind; of JOIN, the first of those that are one; -1 */
	int64_t *level;  /* [nnodes] of SUM: sums under it */
	int64_t *key;    /* [nnodes] */
	int64_t *head;   /* [nnodes] the node that stands for its bucket, -1: no bucket */
	int64_t *next;   /* [nnodes] of the same bucket, -1 */
	int64_t dealt;   /* lanes, if they are mixed */
} pass;

static const tt_attr_exchange *attr_of(const pass *p, int64_t i) { return p->g->nodes[i].attr; }

static bool is_exchange(const tt_node *n) { return n->op == &tt_op_exchange; }

static bool is_state(const pass *p, tt_v v) { return p->g->values[v].kind == TT_STATE; }

/* Of the whole tensor. */
static int64_t bytes_of(const pass *p, int64_t i)
{
	const tt_node *n = &p->g->nodes[i];
	const tt_value *v = &p->g->values[attr_of(p, i)->kind == TT_EX_GATHER ? n->out[0] : n->in[0]];
	return tt_value_count(v) * tt_dtype_size(v->dtype, TT_FAST, p->g->f64);
}

static bool same_group(const pass *p, int64_t x, int64_t y)
{
	const tt_attr_exchange *a = attr_of(p, x), *b = attr_of(p, y);
	return a->axes == b->axes && a->tree == b->tree && !a->edges.n == !b->edges.n;
}

/* A node of B that adds to a state what nobody else in B reads, but the next of its kind. */
static bool settles(const pass *p, int64_t i)
{
	const tt_node *n = i >= 0 ? &p->g->nodes[i] : NULL;
	return n && n->op == &tt_op_accumulate && n->seg == TT_SEG_B && p->uses[n->out[0]] == 1 && (p->reader[n->out[0]] < 0 || settles(p, p->reader[n->out[0]]));
}

/* Whether node i may be among those that move, and how. */
static move kind_of(const pass *p, int64_t i)
{
	const tt_graph *g = p->g;
	const tt_node *n = &g->nodes[i];
	if (!is_exchange(n))
		return STAYS;
	const tt_attr_exchange *a = n->attr;
	if (a->kind == TT_EX_GATHER && is_state(p, n->in[0]) && (n->seg == TT_SEG_F || n->seg == TT_SEG_B || n->seg == TT_SEG_EVAL)) {
		tt_v next = g->states[g->values[n->in[0]].state].next;
		return next && g->nodes[g->values[next].def].seg == n->seg ? STAYS : GATHER;
	}
	if (a->kind == TT_EX_SCATTER && n->seg == TT_SEG_B && p->uses[n->out[0]] == 1)
		return settles(p, p->reader[n->out[0]]) ? SCATTER : STAYS;
	const tt_node *d = g->values[n->in[0]].def >= 0 ? &g->nodes[g->values[n->in[0]].def] : NULL;
	if (a->kind == TT_EX_REDUCE && n->seg == TT_SEG_REDUCE && (is_state(p, n->in[0]) || (d && is_exchange(d) && kind_of(p, g->values[n->in[0]].def) == SUM)))
		return SUM;
	return STAYS;
}

static bool same_path(const char *x, const char *y)
{
	size_t n = tt_layer_path(x), m = tt_layer_path(y);
	return n == m && !memcmp(x, y, n);
}

/* Numbers units: a run of one layer's, or of none. Scatters of no layer belong to the unit after them: they are small, but for the last. */
static void find_units(pass *p, tt_segment seg, move kind)
{
	const tt_graph *g = p->g;
	const char *last = NULL;
	int64_t unit = -1;
	for (int64_t i = 0; i < g->nnodes; i++) {
		if (p->kind[i] != kind || p->seg[i] != seg)
			continue;
		const char *name = g->values[g->nodes[i].out[0]].name;
		bool joins = last && (same_path(last, name) || (kind == SCATTER && !tt_layer_path(last)));
		unit += !joins;
		last = name;
		p->unit[i] = unit;
	}
}

/* The head's gather is B's first, since its product is of the loss; F has computation to hide it. Only what F does not gather itself. */
static void advance_head(pass *p)
{
	const tt_graph *g = p->g;
	bool layers = false;
	for (int64_t i = 0; i < g->nnodes && p->o->ahead > 0 && !layers; i++) {
		if (p->kind[i] != GATHER || g->nodes[i].seg != TT_SEG_B)
			continue;
		layers = tt_layer_path(g->values[g->nodes[i].out[0]].name) > 0;
		bool again = false;
		for (int64_t k = 0; k < i; k++)
			again |= p->kind[k] == GATHER && g->nodes[k].seg == TT_SEG_F && g->nodes[k].in[0] == g->nodes[i].in[0];
		if (!layers && !again)
			p->seg[i] = TT_SEG_F;
	}
}

/* The second half of the last layer's scatters goes with what stands between that layer and the end. */
static void split_last_scatters(pass *p)
{
	const tt_graph *g = p->g;
	int64_t last = -1, count = 0, bytes = 0, seen = 0, layers = 0;
	for (int64_t i = 0; i < g->nnodes; i++)
		if (p->kind[i] == SCATTER)
			last = p->unit[i];
	for (int64_t i = 0; i < g->nnodes; i++) {
		bool of_layer = p->kind[i] == SCATTER && tt_layer_path(g->values[g->nodes[i].out[0]].name);
		count += of_layer && p->unit[i] == last - 1;
		layers += of_layer && p->unit[i] == last;
	}
	if (last < 1 || layers || count < 2)
		return;
	for (int pass_ = 0; pass_ < 2; pass_++, seen = 0)
		for (int64_t i = 0; i < g->nnodes; i++) {
			if (p->kind[i] != SCATTER || p->unit[i] < last - 1)
				continue;
			bool late = p->unit[i] == last || seen++ >= (count + 1) / 2;
			bytes += late && !pass_ ? bytes_of(p, i) : 0;
			if (late && pass_ && bytes <= p->o->bucket_bytes)
				p->unit[i] = last;
		}
}

/* ---- where they go -------------------------------------------------------------------------------------------------------------------------- */

/* Gathers of unit u stand where unit u - ahead begins; of a unit before the first, or the first if it is no layer, where the program does. */
static void place_gathers(pass *p, tt_segment seg)
{
	const tt_graph *g = p->g;
	int64_t *begin = TT_NEWN(p->a, int64_t, g->nnodes), seen = 0, program = -1, end = 0;
	bool layer = false;
	for (int64_t i = 0; i < g->nnodes; i++) {
		if (g->nodes[i].seg == seg) {
			program = program < 0 ? i : program;
			end = i;
		}
		if (p->kind[i] != GATHER || p->seg[i] != seg)
			continue;
		if (p->unit[i] == seen) {
			layer = seen ? layer : tt_layer_path(g->values[g->nodes[i].out[0]].name) > 0;
			begin[seen++] = g->nodes[i].seg == seg ? i : end;
		}
		int64_t at = p->unit[i] - p->o->ahead;
		bool starts = at < 0 || (at == 0 && p->o->ahead > 0 && !layer);
		p->key[i] = PLACE * (starts ? program : begin[at]);
		if (starts && p->unit[i] == 1 && !layer)
			p->unit[i] = 0; /* both are waited for at once: one bucket */
	}
}

/* Scatters of a unit stand at its last one if they are buckets; who reads them stands before the next unit's. */
static void place_scatters(pass *p)
{
	const tt_graph *g = p->g;
	int64_t *last = TT_NEWN(p->a, int64_t, g->nnodes), n = 0, end = 0;
	for (int64_t i = 0; i < g->nnodes; i++) {
		if (g->nodes[i].seg == TT_SEG_B)
			end = i;
		if (p->kind[i] == SCATTER) {
			last[p->unit[i]] = i;
			n = p->unit[i] + 1;
		}
	}
	for (int64_t i = 0; i < g->nnodes; i++) {
		if (p->kind[i] == SCATTER && p->o->bucket_bytes)
			p->key[i] = PLACE * last[p->unit[i]] + ITSELF;
		const tt_node *r = &g->nodes[i];
		int64_t from = r->op == &tt_op_accumulate ? g->values[r->in[1]].def : -1;
		if (from < 0 || p->kind[from] != SCATTER)
			continue;
		int64_t u = p->unit[from];
		int64_t to = u + 1 < n - 1 ? PLACE * last[u + 1] + ACCUMULATES : u + 1 < n ? PLACE * last[u + 1] + BEHIND : PLACE * end + BEHIND;
		p->key[i] = TT_MAX(to, p->key[i]); /* the last two units' are waited for after both have started: nothing else is left to hide them */
	}
}

bool tt_sum_kept(const tt_graph *g, tt_v v)
{
	v = tt_exchanged_root(g, v);
	for (int64_t s = 0; s < g->nstates; s++)
		if (g->states[s].within == v)
			return true;
	return false;
}

static bool is_leaf(const pass *p, int64_t i)
{
	const tt_node *n = &p->g->nodes[i];
	bool leaf = !is_exchange(n);
	for (int k = 0; k < n->nout; k++)
		leaf &= p->reader[n->out[k]] < 0;
	return leaf;
}

/* A sum that only results read, which nobody in the step does: it joins the next one over the same ranks, or is waited for at the end. */
static void place_result(pass *p, int64_t x, int64_t end)
{
	const tt_graph *g = p->g;
	tt_v sum = g->nodes[x].out[0];
	for (int64_t i = x + 1; i <= end; i++)
		for (int k = 0; k < g->nodes[i].nin; k++)
			if (g->nodes[i].in[k] == sum && (!is_leaf(p, i) || g->nodes[i].seg != TT_SEG_REDUCE))
				return;
	for (int64_t i = x + 1; i <= end; i++)
		for (int k = 0; k < g->nodes[i].nin; k++)
			if (g->nodes[i].in[k] == sum)
				p->key[i] = PLACE * end + BEHIND;
	for (int64_t y = x + 1; y <= end && p->o->bucket_bytes; y++) {
		const tt_node *n = &g->nodes[y];
		if (!is_exchange(n) || n->seg != TT_SEG_REDUCE || p->kind[y] != STAYS || attr_of(p, y)->kind != TT_EX_REDUCE || !same_group(p, x, y))
			continue;
		p->kind[x] = p->kind[y] = JOIN;
		p->unit[x] = p->unit[y] = x;
		p->level[x] = 0;
		p->key[x] = p->key[y];
		return;
	}
}

/* Who makes one number of a gradient that is there in B takes them in the order in which they are. */
static void place_count(pass *p, int64_t i, int64_t begin, int64_t units)
{
	const tt_graph *g = p->g;
	const tt_node *n = &g->nodes[i];
	bool small = !is_exchange(n) && n->seg == TT_SEG_REDUCE;
	int64_t unit = -1;
	for (int k = 0; k < n->nout; k++)
		small &= tt_value_count(&g->values[n->out[k]]) == 1;
	for (int k = 0; k < n->nin && small; k++) {
		int64_t d = g->values[n->in[k]].def;
		if (d >= 0 && p->kind[d] == SUM && p->unit[d] > 0)
			unit = TT_MAX(unit, p->unit[d]);
		else
			small &= is_state(p, n->in[k]);
	}
	if (small && unit > 0)
		p->key[i] = PLACE * begin + ACCUMULATES + 1 + units - unit;
}

/* All before REDUCE's first node. */
static void place_sums(pass *p)
{
	const tt_graph *g = p->g;
	const char *last = NULL;
	int64_t begin = -1, end = -1, units = 0;
	for (int64_t i = 0; i < g->nnodes; i++) {
		if (g->nodes[i].seg == TT_SEG_REDUCE && begin < 0)
			begin = i;
		if (p->kind[i] != SUM)
			continue;
		int64_t d = g->values[g->nodes[i].in[0]].def;
		p->level[i] = d >= 0 ? p->level[d] + 1 : 0;
		p->unit[i] = 0;
		if (tt_sum_kept(g, g->nodes[i].in[0])) { /* it can start in B, and a layer's are there at one time */
			const char *name = g->values[g->nodes[i].in[0]].name;
			units += !last || !same_path(last, name);
			p->unit[i] = units;
			last = name;
		}
		p->key[i] = PLACE * begin + TT_MIN(p->level[i], (int64_t)ACCUMULATES);
	}
	for (int64_t i = 0; i < g->nnodes; i++)
		end = g->nodes[i].seg == TT_SEG_REDUCE ? i : end;
	for (int64_t i = 0; i <= end; i++) {
		if (p->kind[i] == SUM && p->unit[i] == 0)
			place_result(p, i, end);
		place_count(p, i, begin, units);
	}
}

/* ---- others ---------------------------------------------------------------------------------------------------------------------------------- */

static bool talks(const tt_node *n) { return is_exchange(n) && tt_exchange_axes(n) != 0; }

static bool may_join(const pass *p, int64_t x, int64_t y)
{
	const tt_node *n = &p->g->nodes[x], *m = &p->g->nodes[y];
	const tt_attr_exchange *a = n->attr, *b = m->attr;
	return p->kind[y] == STAYS && talks(m) && m->seg == n->seg && m->group == n->group && p->g->values[m->in[0]].def >= 0 && a->kind == b->kind && a->kind != TT_EX_MAX &&
	       same_group(p, x, y) && a->to == b->to && a->shift == b->shift && !a->cuts.n == !b->cuts.n;
}

enum { NEAR = 24 }; /* nodes that are looked at */

/* Those near i whose inputs are there when it starts: they stand where it does. */
static int64_t ready_with(const pass *p, int64_t i, int64_t *with)
{
	int64_t n = 0, bytes = bytes_of(p, i), end = TT_MIN(p->g->nnodes, i + NEAR);
	for (int64_t k = i + 1; k < end && n < MOST - 1; k++)
		if (may_join(p, i, k) && p->g->values[p->g->nodes[k].in[0]].def < i && bytes + bytes_of(p, k) <= p->o->bucket_bytes) {
			bytes += bytes_of(p, k);
			with[n++] = k;
		}
	return n;
}

/* The node that only converts what exchange i makes, and nobody else reads that; -1: none. */
static int64_t converter_of(const pass *p, int64_t i)
{
	tt_v v = p->g->nodes[i].out[0];
	int64_t r = p->first[v];
	return r >= 0 && p->uses[v] == 1 && p->g->nodes[r].op == &tt_op_round ? r : -1;
}

/* The first node that computes with what exchange i makes, converted or not; -1: none. */
static int64_t needed_at(const pass *p, int64_t i)
{
	int64_t converts = converter_of(p, i);
	return p->first[p->g->nodes[converts < 0 ? i : converts].out[0]];
}

/* Those that may start before anybody reads what i or one of them makes, converted or not: they stand where the last of them does. */
static int64_t waited_with(const pass *p, int64_t i, int64_t *with)
{
	const tt_graph *g = p->g;
	int64_t n = 0, bytes = bytes_of(p, i), end = TT_MIN(g->nnodes, i + NEAR);
	for (int64_t k = i; k < end && n < MOST - 1; k++) {
		if (k > i && (!may_join(p, i, k) || bytes + bytes_of(p, k) > p->o->bucket_bytes))
			continue;
		if (k > i) {
			bytes += bytes_of(p, k);
			with[n++] = k;
		}
		int64_t needed = needed_at(p, k);
		end = needed < 0 ? end : TT_MIN(end, needed);
	}
	return n;
}

static void join_others(pass *p, int64_t i)
{
	int64_t with[MOST], place = i, n = ready_with(p, i, with);
	if (!n && (n = waited_with(p, i, with)) > 0)
		place = with[n - 1];
	if (!n)
		return;
	with[n++] = i;
	for (int64_t k = 0; k < n; k++) {
		p->kind[with[k]] = JOIN;
		p->unit[with[k]] = i;
		p->key[with[k]] = PLACE * place + ITSELF;
		int64_t converts = converter_of(p, with[k]);
		if (converts >= 0 && converts < place)
			p->key[converts] = PLACE * place + BEHIND;
	}
}

/* ---- buckets ----------------------------------------------------------------------------------------------------------------------------------- */

static bool same_bucket(const pass *p, int64_t x, int64_t y)
{
	return p->kind[x] == p->kind[y] && p->seg[x] == p->seg[y] && p->unit[x] == p->unit[y] && p->level[x] == p->level[y] && p->key[x] == p->key[y] && same_group(p, x, y);
}

/* In order of nodes, up to the cap. A scatter's bucket is its last member, whose inputs are all there; others are their first. */
static void find_buckets(pass *p)
{
	int64_t n = p->g->nnodes;
	for (int64_t i = 0; i < n; i++) {
		if (p->kind[i] == STAYS || p->head[i] >= 0)
			continue;
		int64_t bytes = bytes_of(p, i), last = i, count = 1, end = TT_MIN(n, i + 4096);
		p->head[i] = i;
		for (int64_t k = i + 1; k < end && count < MOST; k++) {
			if (p->kind[k] == STAYS || p->head[k] >= 0 || !same_bucket(p, i, k))
				continue;
			bytes += bytes_of(p, k);
			if (bytes > p->o->bucket_bytes)
				break;
			p->next[last] = k;
			last = k;
			p->head[k] = i;
			count++;
		}
	}
}

static tt_comm_lane lane_of(pass *p, int64_t i)
{
	if (p->o->mixed)
		return (tt_comm_lane)(p->dealt++ % TT_COMM_LANES);
	switch (p->kind[i]) {
	case GATHER: return TT_COMM_PARAMS;
	case SCATTER:
	case SUM: return TT_COMM_GRADS;
	case STAYS:
	case JOIN: break;
	}
	return TT_COMM_WANTED;
}

static void add_bucket(pass *p, tt_copy *c, int64_t head)
{
	const tt_graph *g = p->g;
	const tt_attr_exchange *first = attr_of(p, head);
	tt_v in[MOST], out[MOST];
	int64_t dim[MOST], ndim[MOST], dims[MOST * TT_MAX_DIMS] = { 0 }, n = 0;
	int64_t *edges = TT_NEWN(p->a, int64_t, MOST * (first->members + 1)), *cuts = TT_NEWN(p->a, int64_t, MOST * (first->members + 1));
	for (int64_t i = head; i >= 0; i = p->next[i], n++) {
		const tt_attr_exchange *a = attr_of(p, i);
		in[n] = g->nodes[i].in[0];
		out[n] = g->nodes[i].out[0];
		dim[n] = a->dim;
		ndim[n] = a->dims.n;
		memcpy(dims + n * TT_MAX_DIMS, a->dims.v, (size_t)a->dims.n * sizeof *dims);
		if (a->edges.n)
			memcpy(edges + n * (a->members + 1), a->edges.v, (size_t)a->edges.n * sizeof *edges);
		if (a->cuts.n)
			memcpy(cuts + n * (a->members + 1), a->cuts.v, (size_t)a->cuts.n * sizeof *cuts);
	}
	tt_attr_bucket b = { .kind = first->kind, .axis = first->axis, .name = first->name, .axes = first->axes, .members = first->members, .index = first->index, .lane = lane_of(p, head),
			     .dim = { n, dim }, .ndim = { n, ndim }, .edges = { first->edges.n ? n * (first->members + 1) : 0, edges },
			     .cuts = { first->cuts.n ? n * (first->members + 1) : 0, cuts }, .dims = { n * TT_MAX_DIMS, dims }, .to = first->to, .shift = first->shift,
			     .tree = first->tree };
	tt_node node = g->nodes[head];
	node.group = node.seg == p->seg[head] ? node.group : 0;
	node.seg = p->seg[head];
	node.op = &tt_op_exchange_bucket;
	node.attr = &b;
	node.nin = node.nout = (int32_t)n;
	node.in = in;
	node.out = out;
	tt_copy_node(c, &node);
}

static void copy_alone(pass *p, tt_copy *c, int64_t i)
{
	tt_node node = p->g->nodes[i];
	tt_attr_exchange at;
	node.group = node.seg == p->seg[i] ? node.group : 0;
	node.seg = p->seg[i];
	if (is_exchange(&node)) {
		at = *attr_of(p, i);
		at.lane = lane_of(p, i);
		node.attr = &at;
	}
	tt_copy_node(c, &node);
}

/* ---- the pass ----------------------------------------------------------------------------------------------------------------------------------- */

static int by_key(const void *x, const void *y)
{
	const item *a = x, *b = y;
	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	return (a->node > b->node) - (a->node < b->node);
}

static pass look_at(const tt_graph *g, const tt_overlap *o, tt_arena *a)
{
	int64_t n = g->nnodes;
	pass p = { .g = g, .o = o, .a = a, .uses = tt_count_uses(g, a), .reader = TT_NEWN(a, int64_t, g->nvalues), .kind = TT_NEWN(a, move, n), .unit = TT_NEWN(a, int64_t, n),
		   .first = TT_NEWN(a, int64_t, g->nvalues), .seg = TT_NEWN(a, tt_segment, n), .level = TT_NEWN(a, int64_t, n), .key = TT_NEWN(a, int64_t, n), .head = TT_NEWN(a, int64_t, n), .next = TT_NEWN(a, int64_t, n) };
	for (tt_v v = 0; v < g->nvalues; v++)
		p.reader[v] = p.first[v] = -1;
	for (int64_t i = 0; i < n; i++)
		for (int k = 0; k < g->nodes[i].nin; k++) {
			tt_v v = g->nodes[i].in[k];
			p.reader[v] = i;
			p.first[v] = p.first[v] < 0 ? i : p.first[v];
		}
	for (int64_t i = 0; i < n; i++) {
		p.kind[i] = kind_of(&p, i);
		p.key[i] = PLACE * i + ITSELF;
		p.unit[i] = p.head[i] = p.next[i] = -1;
		p.seg[i] = g->nodes[i].seg;
	}
	return p;
}

tt_status tt_pass_overlap(const tt_graph *g, const tt_overlap *o, tt_arena *a, tt_graph **out)
{
	pass p = look_at(g, o, a);
	int64_t n = g->nnodes;
	bool *wanted = TT_NEWN(a, bool, n), any = false;
	int64_t *needed = TT_NEWN(a, int64_t, n);
	for (int64_t i = 0; i < n; i++) {
		wanted[i] = p.kind[i] == STAYS && talks(&g->nodes[i]) && g->nodes[i].seg == TT_SEG_B && !g->nodes[i].group;
		needed[i] = wanted[i] ? needed_at(&p, i) : -1;
		any |= wanted[i];
	}
	if (any) {
		tt_graph *deferred;
		TT_TRY(tt_overlap_defer(g, wanted, needed, a, &deferred));
		g = deferred;
		p = look_at(g, o, a);
	}
	advance_head(&p);
	for (tt_segment seg = 0; seg < TT_NSEGS; seg++) {
		find_units(&p, seg, GATHER);
		place_gathers(&p, seg);
	}
	find_units(&p, TT_SEG_B, SCATTER);
	split_last_scatters(&p);
	place_scatters(&p);
	place_sums(&p);
	for (int64_t i = 0; i < n && o->bucket_bytes; i++) {
		tt_segment seg = g->nodes[i].seg;
		if (p.kind[i] == STAYS && talks(&g->nodes[i]) && (seg == TT_SEG_F || seg == TT_SEG_B || seg == TT_SEG_EVAL) && may_join(&p, i, i))
			join_others(&p, i);
	}
	if (o->bucket_bytes)
		find_buckets(&p);
	item *items = TT_NEWN(a, item, n);
	for (int64_t i = 0; i < n; i++)
		items[i] = (item){ p.key[i], i };
	qsort(items, (size_t)n, sizeof *items, by_key);
	tt_copy c = tt_copy_begin(g, a);
	for (int64_t k = 0; k < n; k++) {
		int64_t i = items[k].node;
		if (p.head[i] >= 0 && p.head[i] != i)
			continue;
		if (p.next[i] >= 0)
			add_bucket(&p, &c, i);
		else
			copy_alone(&p, &c, i);
	}
	TT_TRY(tt_graph_check(c.to));
	tt_copy_end(&c);
	tt_overlap_hides(c.to, a);
	TT_TRY(tt_graph_verify(c.to, "overlap"));
	*out = c.to;
	return TT_OK;
}
