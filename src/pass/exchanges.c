/* exchanges.c: what a rank's graph exchanges, said once. Localise makes an exchange of every conversion that the plan declares, one for each reader;
 * here
 *
 *   adjacent axes   two gathers, scatters or sums in a row over neighbouring axes of the mesh become one over both ("dp_shard*cp");
 *   one gather      a parameter is gathered once in a program, not once for each reader (chunks of the loss);
 *   reshard         what F gathered is not kept for B: B gathers it again (parallelism.fsdp_reshard_after_forward);
 *   one scatter     chunks of the loss add up their gradients before one reduce-scatter, not after one each;
 *   one reduction   gradients that REDUCE sums over ranks are kept for OPT, in the bytes of the accumulator.
 *
 * In `exact` no bit depends on it. In `fast` a sum over ranks is taken in another order than without, but in one order: it does not depend on
 * whether exchanges overlap with computation.
 */
#include "ops/ops.h"
#include "pass/pass.h"

/* One exchange as it is to be: over all the axes that were joined. */
typedef struct flat {
	tt_attr_exchange attr;
	tt_v in;    /* in `from`; 0: no exchange */
	bool skip;  /* taken into another */
} flat;

/* Consecutive chunks of the loss that add to one accumulator. */
typedef struct chunks { int64_t first, last, n; tt_v sum; } chunks;

typedef struct pass {
	const tt_graph *from;
	tt_arena *a;
	tt_gathered mode;
	tt_copy c;
	int32_t *uses;   /* [from->nvalues] */
	flat *flat;      /* [from->nnodes] */
	chunks **run;    /* [from->nnodes] of an accumulate, if there is more than one in its run */
	int64_t *made;   /* exchanges of the new graph, by node */
	int64_t nmade, cap_made;
} pass;

static int lowest(int64_t bits) { return __builtin_ctzll((uint64_t)bits); }
static int highest(int64_t bits) { return 63 - __builtin_clzll((uint64_t)bits); }

static bool same_ints(tt_ints a, tt_ints b) { return a.n == b.n && (!a.n || !memcmp(a.v, b.v, (size_t)a.n * sizeof *a.v)); }

static bool same_attr(const tt_attr_exchange *a, const tt_attr_exchange *b)
{
	return a->kind == b->kind && a->axes == b->axes && a->dim == b->dim && a->members == b->members && a->index == b->index && a->tree == b->tree &&
	       a->to == b->to && a->shift == b->shift && a->fine == b->fine && same_ints(a->edges, b->edges) && same_ints(a->cuts, b->cuts) && same_ints(a->dims, b->dims);
}

/* ---- adjacent axes ------------------------------------------------------------------------------------------------------------------------- */

/* `late` takes what `early` gives: both as one, into *out. `dim`: what is cut. */
static bool join(pass *p, const tt_attr_exchange *late, const tt_attr_exchange *early, const tt_dim *dim, tt_attr_exchange *out)
{
	if (late->kind != early->kind || late->tree != early->tree || late->axes & early->axes)
		return false;
	bool late_outer = highest(late->axes) < lowest(early->axes), sums = late->kind == TT_EX_REDUCE || late->kind == TT_EX_MAX;
	const tt_attr_exchange *outer = late_outer ? late : early, *inner = late_outer ? early : late;
	if (highest(outer->axes) >= lowest(inner->axes))
		return false;
	*out = *late;
	out->axes |= early->axes;
	out->members = outer->members * inner->members;
	out->index = outer->index * inner->members + inner->index;
	out->axis = tt_arena_printf(p->a, "%s*%s", outer->axis, inner->axis);
	if (sums)
		return true;
	/* Only neighbours, so that the members' order is that of their pieces; gathers begin with the inner axis, scatters with the outer. */
	bool in_order = late->kind == TT_EX_GATHER ? late_outer : late->kind == TT_EX_SCATTER && !late_outer;
	if (!in_order || highest(outer->axes) + 1 != lowest(inner->axes) || outer->dim != inner->dim || !outer->edges.n || !inner->edges.n ||
	    __builtin_popcountll((uint64_t)inner->axes) != 1)
		return false;
	int64_t *edges = TT_NEWN(p->a, int64_t, out->members + 1), at = 0;
	for (int64_t o = 0; o < outer->members; o++) {
		int64_t begin = outer->edges.v[o], n = outer->edges.v[o + 1] - begin;
		for (int64_t i = 0; i < inner->members; i++)
			edges[at++] = begin + tt_dim_edge(dim, inner->fine, n, i, inner->members);
		if (o == outer->index) /* this rank's inner edges are known: they are dealt by the same rule */
			for (int64_t i = 0; i < inner->members; i++)
				if (edges[at - inner->members + i] != begin + inner->edges.v[i])
					return false;
	}
	edges[at] = outer->edges.v[outer->members];
	out->edges = (tt_ints){ out->members + 1, edges };
	return true;
}

static const tt_node *def_of(const tt_graph *g, tt_v v) { return g->values[v].def >= 0 ? &g->nodes[g->values[v].def] : NULL; }

static bool is_exchange(const tt_node *n) { return n && n->op == &tt_op_exchange; }

/* From the last: an exchange takes in those before it that nobody else reads. */
static void flatten(pass *p)
{
	const tt_graph *g = p->from;
	for (int64_t i = g->nnodes - 1; i >= 0; i--) {
		const tt_node *n = &g->nodes[i];
		flat *f = &p->flat[i];
		if (!is_exchange(n) || f->skip)
			continue;
		f->attr = *(const tt_attr_exchange *)n->attr;
		f->in = n->in[0];
		for (;;) {
			const tt_node *e = def_of(g, f->in);
			if (!is_exchange(e) || e->seg != n->seg || p->uses[f->in] != 1)
				break;
			const tt_attr_exchange *ea = e->attr;
			const tt_value *whole = &g->values[f->attr.kind == TT_EX_GATHER ? n->out[0] : e->in[0]];
			tt_attr_exchange both;
			if (!join(p, &f->attr, ea, &whole->dim[f->attr.dim], &both))
				break;
			p->flat[g->values[f->in].def].skip = true;
			f->attr = both;
			f->in = e->in[0];
		}
	}
}

/* ---- chunks of the loss ---------------------------------------------------------------------------------------------------------------------- */

/* The node is one of B's chunks, and adds this rank's piece of a sum over ranks: the exchange's node, else -1. */
static int64_t scattered(const pass *p, const tt_node *n)
{
	if (n->op != &tt_op_accumulate || n->seg != TT_SEG_B || !n->group)
		return -1;
	int64_t e = p->from->values[n->in[1]].def;
	return e >= 0 && p->flat[e].in && p->flat[e].attr.kind == TT_EX_SCATTER && p->uses[n->in[1]] == 1 ? e : -1;
}

static void find_chunks(pass *p)
{
	const tt_graph *g = p->from;
	for (int64_t i = 0; i < g->nnodes; i++) {
		int64_t e = scattered(p, &g->nodes[i]), before = e >= 0 ? g->values[g->nodes[i].in[0]].def : -1;
		if (e < 0)
			continue;
		chunks *r = before >= 0 ? p->run[before] : NULL;
		if (r && r->last == before && p->uses[g->nodes[i].in[0]] == 1 &&
		    same_attr(&p->flat[e].attr, &p->flat[scattered(p, &g->nodes[before])].attr)) {
			r->last = i;
			r->n++;
		} else {
			r = TT_NEW(p->a, chunks);
			*r = (chunks){ .first = i, .last = i, .n = 1 };
		}
		p->run[i] = r;
	}
	for (int64_t i = 0; i < g->nnodes; i++) {
		if (p->run[i] && p->run[i]->n > 1)
			p->flat[scattered(p, &g->nodes[i])].skip = true;
		else
			p->run[i] = NULL;
	}
}

/* ---- the new graph ------------------------------------------------------------------------------------------------------------------------------- */

/* An exchange of `seg` that the new graph has already; 0: none. */
static tt_v there(const pass *p, tt_segment seg, tt_v in, const tt_attr_exchange *attr)
{
	for (int64_t i = 0; i < p->nmade; i++) {
		const tt_node *n = &p->c.to->nodes[p->made[i]];
		if (n->seg == seg && n->in[0] == in && same_attr(n->attr, attr))
			return n->out[0];
	}
	return 0;
}

static tt_v exchange(pass *p, const tt_node *at, const tt_attr_exchange *attr, tt_v in, const char *name)
{
	tt_graph *g = p->c.to;
	g->seg = at->seg;
	g->group = at->group;
	g->scope[0] = 0;
	TT_PUSH(p->a, p->made, p->nmade, p->cap_made, g->nnodes);
	return tt_node_add(g, &tt_op_exchange, attr, 1, &in, tt_arena_printf(p->a, "=%s", name));
}

/* A parameter's gather, from the state on. */
static bool gathers(const pass *p, tt_v v)
{
	const tt_graph *g = p->from;
	if (g->values[v].def < 0)
		return false;
	const flat *f = &p->flat[g->values[v].def];
	return f->in && f->attr.kind == TT_EX_GATHER && (g->values[f->in].kind == TT_STATE || gathers(p, f->in));
}

/* The default keeps what lies outside of layers, as users know it of FSDP: the last norm is wanted again at once. */
static bool again(const pass *p, tt_v v)
{
	const tt_graph *g = p->from;
	if (!v || !gathers(p, v) || g->nodes[g->values[v].def].seg != TT_SEG_F)
		return false;
	return p->mode == TT_GATHERED_AGAIN || (p->mode == TT_GATHERED_BY_LAYER && tt_layer_path(g->values[v].name));
}

/* B's own gather of what F gathered, before `reader`. */
static tt_v own(pass *p, tt_v v, const tt_node *reader)
{
	const tt_value *x = &p->from->values[v];
	if (x->kind == TT_STATE)
		return p->c.map[v];
	const flat *f = &p->flat[x->def];
	tt_v in = own(p, f->in, reader), e = in ? there(p, reader->seg, in, &f->attr) : 0;
	return e || !in ? e : exchange(p, reader, &f->attr, in, tt_arena_printf(p->a, "%s.again", x->name));
}

/* A value of REDUCE as OPT finds it: kept in a state, which lies in that which the sum was made of where nobody reads that any more. */
static tt_v kept(pass *p, tt_v sum)
{
	tt_graph *g = p->c.to;
	tt_v root = sum;
	while (is_exchange(def_of(g, root)) && g->values[root].kind == TT_TEMP)
		root = def_of(g, root)->in[0];
	TT_ASSERT(g->values[root].kind == TT_STATE, "%s is no sum of a state", g->values[sum].name);
	const char *name = tt_arena_printf(p->a, "reduced.%s", g->values[root].name);
	tt_v s = tt_value_find(g, name);
	if (s)
		return s;
	const tt_value v = g->values[sum];
	s = tt_state_new(g, name, TT_REGION_GRAD, v.dtype, v.ndim, v.dim, false);
	tt_state_set(g, s, sum);
	bool alone = g->values[root].dtype == v.dtype && tt_value_count(&g->values[root]) == tt_value_count(&v);
	for (int64_t i = 0; i < p->from->nnodes && alone; i++) {
		const tt_node *n = &p->from->nodes[i];
		for (int k = 0; k < n->nin && (n->seg == TT_SEG_REDUCE || n->seg == TT_SEG_OPT); k++)
			alone &= is_exchange(n) || p->c.map[n->in[k]] != root;
	}
	if (alone)
		g->states[g->values[s].state].within = root;
	return s;
}

static void copy_exchange(pass *p, const tt_node *n, const flat *f)
{
	tt_v in = p->c.map[f->in], e = 0;
	bool reduces = f->attr.kind == TT_EX_REDUCE || f->attr.kind == TT_EX_SCATTER;
	if (gathers(p, n->out[0]))
		e = there(p, n->seg, in, &f->attr);
	else if (n->seg == TT_SEG_OPT && reduces)
		e = there(p, TT_SEG_REDUCE, in, &f->attr);
	const tt_node *d = in ? def_of(p->c.to, in) : NULL;
	if (!e && d && n->seg == TT_SEG_OPT && d->seg == TT_SEG_REDUCE)
		in = kept(p, in);
	p->c.map[n->out[0]] = e ? e : exchange(p, n, &f->attr, in, p->from->values[n->out[0]].name);
}

static void copy_chunk(pass *p, const tt_node *n, int64_t i)
{
	const tt_graph *from = p->from;
	chunks *r = p->run[i];
	int64_t e = from->values[n->in[1]].def;
	tt_v term = p->c.map[p->flat[e].in];
	tt_graph *g = p->c.to;
	g->seg = n->seg;
	g->group = n->group;
	g->scope[0] = 0;
	r->sum = i == r->first ? term : tt_accumulate(g, r->sum, term, false);
	if (i != r->last)
		return;
	tt_v in[] = { p->c.map[from->nodes[r->first].in[0]], exchange(p, n, &p->flat[e].attr, r->sum, from->values[n->in[1]].name) };
	p->c.map[n->out[0]] = tt_node_add(g, n->op, from->nodes[r->first].attr, 2, in, tt_arena_printf(p->a, "=%s", from->values[n->out[0]].name));
}

static void copy_other(pass *p, const tt_node *n)
{
	tt_v saved[80];
	TT_ASSERT(n->nin <= TT_COUNT(saved), "%s: too many inputs", n->op->name);
	for (int k = 0; k < n->nin; k++) {
		saved[k] = p->c.map[n->in[k]];
		const tt_node *d = saved[k] ? def_of(p->c.to, saved[k]) : NULL;
		if (n->seg == TT_SEG_B && again(p, n->in[k]))
			p->c.map[n->in[k]] = own(p, n->in[k], n);
		else if (n->seg == TT_SEG_OPT && d && d->seg == TT_SEG_REDUCE)
			p->c.map[n->in[k]] = kept(p, saved[k]);
	}
	tt_copy_node(&p->c, n);
	for (int k = n->nin - 1; k >= 0; k--)
		p->c.map[n->in[k]] = saved[k];
}

tt_status tt_pass_exchanges(const tt_graph *g, tt_gathered mode, tt_arena *a, tt_graph **out)
{
	pass p = { .from = g, .a = a, .mode = mode, .c = tt_copy_begin(g, a), .uses = tt_count_uses(g, a), .flat = TT_NEWN(a, flat, g->nnodes),
		   .run = TT_NEWN(a, chunks *, g->nnodes) };
	flatten(&p);
	find_chunks(&p);
	for (int64_t i = 0; i < g->nnodes && p.c.to->status == TT_OK; i++) {
		const tt_node *n = &g->nodes[i];
		if (p.flat[i].skip)
			continue;
		if (p.flat[i].in)
			copy_exchange(&p, n, &p.flat[i]);
		else if (p.run[i])
			copy_chunk(&p, n, i);
		else
			copy_other(&p, n);
	}
	TT_TRY(tt_graph_check(p.c.to));
	tt_copy_end(&p.c);
	TT_TRY(tt_graph_verify(p.c.to, "exchanges"));
	*out = p.c.to;
	return TT_OK;
}
