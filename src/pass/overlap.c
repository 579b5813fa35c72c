/* overlap.c: where exchanges stand, so that they run beside computation. An exchange is under way from its node to the first node that needs it
 * (exec/exec.h, tt_lane_mode): this pass moves the nodes, and makes one of several that are ready together.
 *
 *   gathers      of parameters stand one unit earlier: when a layer begins, that of the next one is started (F, B, EVAL)
 *   scatters     of gradients start when a unit's last gradient is there; the accumulates that want them stand where the next unit's start
 *   reductions   once a step all start when REDUCE begins, and are waited for one after another
 *
 * A unit is a layer, by the names of values ("model.layers.3"), or what lies between layers. Exchanges of a unit over the same ranks become a bucket.
 *
 * All ranks must come to the same order: nothing here looks at a dim that ranks may have different, but those of whole tensors.
 */
#include <stdlib.h>

#include "ops/ops.h"
#include "pass/pass.h"

enum { MOST = 64 }; /* operands of a bucket */

typedef enum move { STAYS, GATHER, SCATTER, SUM } move;

/* Where a node goes: PLACE a node of the old order, and at one place first gathers (sums by level), then accumulates, then what stands there. */
enum { PLACE = 16, ACCUMULATES = 4, ITSELF = 8, BEHIND = 12 };
typedef struct item { int64_t key, node; } item;

typedef struct pass {
	const tt_graph *g;
	const tt_overlap *o;
	tt_arena *a;
	int32_t *uses;
	int64_t *reader; /* [nvalues] the last node that reads it, -1 none */
	move *kind;      /* [nnodes] */
	int64_t *unit;   /* [nnodes] of exchanges that move, counted from 0 in each segment and kind; -1 */
	int64_t *level;  /* [nnodes] of SUM: sums under it */
	int64_t *key;    /* [nnodes] */
	int64_t *head;   /* [nnodes] the node that stands for its bucket, -1: no bucket */
	int64_t *next;   /* [nnodes] of the same bucket, -1 */
} pass;

static const tt_attr_exchange *attr_of(const pass *p, int64_t i) { return p->g->nodes[i].attr; }

static bool is_exchange(const tt_node *n) { return n->op == &tt_op_exchange; }

static bool is_state(const pass *p, tt_v v) { return p->g->values[v].kind == TT_STATE; }

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
		if (p->kind[i] != kind || g->nodes[i].seg != seg)
			continue;
		const char *name = g->values[g->nodes[i].out[0]].name;
		bool joins = last && (same_path(last, name) || (kind == SCATTER && !tt_layer_path(last)));
		unit += !joins;
		last = name;
		p->unit[i] = unit;
	}
}

/* ---- where they go -------------------------------------------------------------------------------------------------------------------------- */

/* Gathers of unit u stand where unit u - ahead begins. */
static void place_gathers(pass *p, tt_segment seg)
{
	int64_t *begin = TT_NEWN(p->a, int64_t, p->g->nnodes), seen = 0;
	for (int64_t i = 0; i < p->g->nnodes; i++) {
		if (p->kind[i] != GATHER || p->g->nodes[i].seg != seg)
			continue;
		if (p->unit[i] == seen)
			begin[seen++] = i;
		p->key[i] = PLACE * begin[TT_MAX(p->unit[i] - p->o->ahead, (int64_t)0)];
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

/* A sum that is a state's new version. */
static bool keeps(const pass *p, int64_t i)
{
	for (int64_t s = 0; s < p->g->nstates; s++)
		if (p->g->states[s].next == p->g->nodes[i].out[0])
			return p->g->states[s].within != 0;
	return false;
}

/* All before REDUCE's first node. */
static void place_sums(pass *p)
{
	const tt_graph *g = p->g;
	int64_t begin = -1;
	for (int64_t i = 0; i < g->nnodes; i++) {
		if (g->nodes[i].seg == TT_SEG_REDUCE && begin < 0)
			begin = i;
		if (p->kind[i] != SUM)
			continue;
		int64_t d = g->values[g->nodes[i].in[0]].def;
		p->level[i] = d >= 0 ? p->level[d] + 1 : 0;
		p->unit[i] = keeps(p, i); /* those can start in B (exec.c): no bucket with others */
		p->key[i] = PLACE * begin + TT_MIN(p->level[i], (int64_t)ACCUMULATES);
	}
}

/* ---- buckets ----------------------------------------------------------------------------------------------------------------------------------- */

static bool same_bucket(const pass *p, int64_t x, int64_t y)
{
	const tt_attr_exchange *a = attr_of(p, x), *b = attr_of(p, y);
	return p->kind[x] == p->kind[y] && p->g->nodes[x].seg == p->g->nodes[y].seg && p->unit[x] == p->unit[y] && p->level[x] == p->level[y] &&
	       p->key[x] == p->key[y] && a->axes == b->axes && a->tree == b->tree && !a->edges.n == !b->edges.n;
}

/* Of the whole tensor. */
static int64_t bytes_of(const pass *p, int64_t i)
{
	const tt_node *n = &p->g->nodes[i];
	const tt_value *v = &p->g->values[p->kind[i] == GATHER ? n->out[0] : n->in[0]];
	return tt_value_count(v) * tt_dtype_size(v->dtype, TT_FAST, p->g->f64);
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

static void add_bucket(pass *p, tt_copy *c, int64_t head)
{
	const tt_graph *g = p->g;
	const tt_attr_exchange *first = attr_of(p, head);
	tt_v in[MOST], out[MOST];
	int64_t dim[MOST], ndim[MOST], dims[MOST * TT_MAX_DIMS] = { 0 }, n = 0;
	int64_t *edges = TT_NEWN(p->a, int64_t, MOST * (first->members + 1));
	for (int64_t i = head; i >= 0; i = p->next[i], n++) {
		const tt_attr_exchange *a = attr_of(p, i);
		in[n] = g->nodes[i].in[0];
		out[n] = g->nodes[i].out[0];
		dim[n] = a->dim;
		ndim[n] = a->dims.n;
		memcpy(dims + n * TT_MAX_DIMS, a->dims.v, (size_t)a->dims.n * sizeof *dims);
		if (a->edges.n)
			memcpy(edges + n * (a->members + 1), a->edges.v, (size_t)a->edges.n * sizeof *edges);
	}
	tt_attr_bucket b = { .kind = first->kind, .axis = first->axis, .name = first->name, .axes = first->axes, .members = first->members, .index = first->index,
			     .dim = { n, dim }, .ndim = { n, ndim }, .edges = { first->edges.n ? n * (first->members + 1) : 0, edges },
			     .dims = { n * TT_MAX_DIMS, dims }, .tree = first->tree };
	tt_node node = g->nodes[head];
	node.op = &tt_op_exchange_bucket;
	node.attr = &b;
	node.nin = node.nout = (int32_t)n;
	node.in = in;
	node.out = out;
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

tt_status tt_pass_overlap(const tt_graph *g, const tt_overlap *o, tt_arena *a, tt_graph **out)
{
	int64_t n = g->nnodes;
	pass p = { .g = g, .o = o, .a = a, .uses = tt_count_uses(g, a), .reader = TT_NEWN(a, int64_t, g->nvalues), .kind = TT_NEWN(a, move, n), .unit = TT_NEWN(a, int64_t, n),
		   .level = TT_NEWN(a, int64_t, n), .key = TT_NEWN(a, int64_t, n), .head = TT_NEWN(a, int64_t, n), .next = TT_NEWN(a, int64_t, n) };
	for (tt_v v = 0; v < g->nvalues; v++)
		p.reader[v] = -1;
	for (int64_t i = 0; i < n; i++)
		for (int k = 0; k < g->nodes[i].nin; k++)
			p.reader[g->nodes[i].in[k]] = i;
	for (int64_t i = 0; i < n; i++) {
		p.kind[i] = kind_of(&p, i);
		p.key[i] = PLACE * i + ITSELF;
		p.unit[i] = p.head[i] = p.next[i] = -1;
	}
	for (tt_segment seg = 0; seg < TT_NSEGS; seg++) {
		find_units(&p, seg, GATHER);
		place_gathers(&p, seg);
	}
	find_units(&p, TT_SEG_B, SCATTER);
	place_scatters(&p);
	place_sums(&p);
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
			tt_copy_node(&c, &g->nodes[i]);
	}
	TT_TRY(tt_graph_check(c.to));
	tt_copy_end(&c);
	TT_TRY(tt_graph_verify(c.to, "overlap"));
	*out = c.to;
	return TT_OK;
}
