/* axes: the typing rules on two mesh axes of 2 ranks each, numbered outermost first. A typing here is a pair of typings that the rule accepts on one
 * axis (suite layout has proven those); what is new is how the axes meet: a dim sharded by both, in either order; pieces of terms of a sum; data in
 * whole rows on one axis and cut on the other; heads that ranks of a second axis share. The parts of 4 ranks, each one node on local dims, must
 * denote the whole result and gradient under the types that the rule gives. A pair that is rejected must match a reviewed pattern.
 *
 * The quick tier takes a sample by the run's seed, the ci tier all.
 */
#include "shards.h"

#include "ops/ops.h"
#include "pass/pass.h"

#include <stdio.h>

enum { AXES = 2, SIDE = 2, ALL = SIDE * SIDE, MAX_ACCEPTED = 64 };

typedef struct grid {
	shard_bench b;
	bool rows[AXES];
	const tt_axis_type (*at)[MAX_IN]; /* [AXES] the typing at hand */
	tt_graph *typed;
	tt_v in[MAX_IN], out;
	const tt_axis_type *forced; /* [AXES] of output 0, where the rule gives none; else NULL */
	int64_t hits; /* of the reviewed pattern */
	int64_t accepted, rejected, backs;
} grid;

/* ---- parts -------------------------------------------------------------------------------------------------------------------------------- */

static void coord_of(int rank, int *c)
{
	c[0] = rank / SIDE;
	c[1] = rank % SIDE;
}

/* The axis that cuts first: of a dim that both shard, the outer. */
static int outer_of(const tt_axis_type x[AXES])
{
	bool both = x[0].type == TT_S && x[1].type == TT_S && x[0].dim == x[1].dim;
	return both && x[1].order < x[0].order;
}

static shard_tensor part(grid *w, const tt_value *v, shard_tensor *whole, const tt_axis_type x[AXES], int rank)
{
	int c[AXES], first = outer_of(x);
	tt_value now = *v;
	shard_tensor t = *whole;
	coord_of(rank, c);
	for (int i = 0; i < AXES; i++) {
		int ax = i ? 1 - first : first;
		w->b.salt = (uint64_t)(1000 * ax);
		t = shard_part_of(&w->b, &now, &t, x[ax], c[ax]);
		for (int d = 0; d < now.ndim; d++)
			now.dim[d].n = t.n[d];
	}
	w->b.salt = 0;
	return t;
}

static bool close_to(double a, double b, double largest, bool exact) { return __builtin_fabs(a - b) <= (exact ? 0 : 1e-12 * largest); }

/* What `part` [SIDE] denote together under type x: false if nothing. */
static bool combine(grid *w, const tt_value *v, const shard_tensor *p, tt_axis_type x, shard_tensor *out)
{
	const shard_bench *b = &w->b;
	int64_t n[TT_MAX_DIMS];
	memcpy(n, p[0].n, sizeof n);
	for (int d = 0; d < v->ndim; d++) {
		bool cut = x.type == TT_S && d == x.dim;
		if (cut)
			n[d] = p[0].n[d] + p[1].n[d];
		if (cut ? tt_dim_edge(&v->dim[d], x.fine, n[d], 1, SIDE) != p[0].n[d] : p[0].n[d] != p[1].n[d])
			return false;
	}
	*out = shard_tensor_new(b, v->dtype, v->ndim, n);
	int planes = out->limb ? 3 : 1;
	if (x.type == TT_S) {
		int64_t inner = 1, before = 1;
		for (int d = x.dim + 1; d < v->ndim; d++)
			inner *= n[d];
		for (int d = 0; d < x.dim; d++)
			before *= n[d];
		for (int j = 0; j < planes; j++)
			for (int64_t o = 0, at = 0; o < before; o++)
				for (int r = 0; r < SIDE; r++) {
					int64_t k = p[r].n[x.dim] * inner;
					if (k && out->limb)
						memcpy(out->limb + j * out->count + at, p[r].limb + j * p[r].count + o * k, sizeof *out->limb * (size_t)k);
					else if (k)
						memcpy(out->x + at, p[r].x + o * k, sizeof *out->x * (size_t)k);
					at += k;
				}
		return true;
	}
	double largest = 1;
	for (int64_t i = 0; !out->limb && i < out->count; i++)
		largest = __builtin_fmax(largest, __builtin_fabs(p[0].x[i]));
	for (int64_t i = 0; i < out->count; i++) {
		for (int j = 0; out->limb && j < 3; j++) {
			int64_t a = p[0].limb[j * out->count + i], c = p[1].limb[j * out->count + i];
			if (x.type != TT_P && a != c)
				return false;
			out->limb[j * out->count + i] = x.type == TT_P ? a + c : a;
		}
		if (out->limb) {
			if (x.type == TT_P)
				shard_carry(out->limb, out->count, i);
			continue;
		}
		double a = p[0].x[i], c = p[1].x[i];
		if (x.type != TT_P && x.type != TT_M && !close_to(a, c, largest, b->exact))
			return false;
		out->x[i] = x.type == TT_P ? a + c : x.type == TT_M ? __builtin_fmax(a, c) : a;
	}
	return true;
}

/* Do the parts [ALL], by rank, denote `whole` under the types x? The inner axis is joined first. */
static bool denotes(grid *w, const tt_value *v, const shard_tensor *whole, const shard_tensor *parts, const tt_axis_type x[AXES])
{
	int outer = outer_of(x), inner = 1 - outer;
	shard_tensor joined[SIDE], all;
	for (int o = 0; o < SIDE; o++) {
		shard_tensor p[SIDE];
		for (int i = 0; i < SIDE; i++)
			p[i] = parts[outer == 0 ? o * SIDE + i : i * SIDE + o];
		if (!combine(w, v, p, x[inner], &joined[o]))
			return false;
	}
	if (!combine(w, v, joined, x[outer], &all))
		return false;
	double largest = 1;
	for (int d = 0; d < v->ndim; d++)
		if (all.n[d] != whole->n[d])
			return false;
	for (int64_t i = 0; !all.limb && i < all.count; i++)
		largest = __builtin_fmax(largest, __builtin_fabs(whole->x[i]));
	for (int64_t i = 0; i < all.count; i++) {
		for (int j = 0; all.limb && j < 3; j++)
			if (all.limb[j * all.count + i] != whole->limb[j * all.count + i])
				return false;
		if (!all.limb && !close_to(all.x[i], whole->x[i], largest, w->b.exact))
			return false;
	}
	return true;
}

/* ---- one rank's node -------------------------------------------------------------------------------------------------------------------------- */

static void types_of(const grid *w, int i, tt_axis_type x[AXES])
{
	for (int ax = 0; ax < AXES; ax++)
		x[ax] = w->at[ax][i];
}

/* Tokens that the axes of whole rows deal to a rank. */
static void rows_of(const grid *w, const int *c, int64_t *lo, int64_t *hi)
{
	tt_dim d = tt_dim_of(TT_TOKENS, SHARD_SEQ_TOKENS, 1);
	*lo = 0;
	*hi = d.n;
	tt_axis_type x[AXES];
	types_of(w, 0, x);
	for (int i = 0; i < AXES; i++) {
		int ax = i ? 1 - outer_of(x) : outer_of(x);
		if (w->rows[ax] && w->at[ax][0].type == TT_S && w->at[ax][0].dim == 0) {
			int64_t n = *hi - *lo, from = *lo;
			*lo = from + tt_dim_edge(&d, false, n, c[ax], SIDE);
			*hi = from + tt_dim_edge(&d, false, n, c[ax] + 1, SIDE);
		}
	}
}

static const tt_piece *pieces(const grid *w, tt_v v, const int *c)
{
	tt_piece *p = TT_NEWN(w->b.a, tt_piece, TT_MAX_DIMS);
	for (int d = 0; v && d < w->typed->values[v].ndim; d++)
		p[d] = tt_value_piece(w->typed, &w->typed->values[v], d, c, -1);
	return v ? p : NULL;
}

static bool forward(grid *w, int rank, shard_part *p)
{
	shard_bench *b = &w->b;
	const tt_node *n = b->node;
	int c[AXES];
	int64_t lo, hi;
	coord_of(rank, c);
	*p = (shard_part){.g = tt_graph_new(b->a, NULL, !b->exact), .val = TT_NEWN(b->a, shard_tensor, SHARD_VALUES)};
	rows_of(w, c, &lo, &hi);
	for (int i = 0; i < n->nin; i++) {
		if (!n->in[i])
			continue;
		tt_value v = b->g->values[n->in[i]];
		tt_axis_type x[AXES];
		types_of(w, i, x);
		shard_tensor t = part(w, &v, &b->in[i], x, rank);
		for (int d = 0; d < v.ndim; d++)
			v.dim[d].n = t.n[d];
		if (hi - lo < SHARD_SEQ_TOKENS)
			shard_rebase(b, lo, hi, &v, &t);
		p->in[i] = tt_input(p->g, v.name, v.dtype, v.gdtype, v.ndim, v.dim);
		p->g->values[p->in[i]].format = v.format;
		p->val[p->in[i]] = t;
	}
	const void *attr = n->attr;
	if (attr && n->op->localise) {
		char *own = tt_arena_alloc(b->a, n->op->attr_size);
		memcpy(own, attr, n->op->attr_size);
		const tt_piece **io = TT_NEWN(b->a, const tt_piece *, n->nin + n->nout);
		for (int i = 0; i < n->nin + n->nout; i++)
			io[i] = pieces(w, i < n->nin ? w->in[i] : tt_out(w->out, i - n->nin), c);
		n->op->localise(own, b->a, io, io + n->nin);
		attr = own;
	}
	p->out = tt_node_add_n(p->g, n->op, attr, n->nin, p->in, n->nout, NULL);
	if (!p->out || !shard_lines_there(p, &p->g->nodes[0]))
		return false;
	shard_run_node(b, p->g, &p->g->nodes[0], p->val);
	return true;
}

static bool dual(const tt_axis_type x[AXES], tt_axis_type out[AXES])
{
	bool both = true, has;
	for (int ax = 0; ax < AXES; ax++) {
		out[ax] = tt_axis_type_dual(x[ax], &has);
		both &= has;
	}
	return both;
}

static void out_types(const grid *w, tt_v v, tt_axis_type x[AXES])
{
	for (int ax = 0; ax < AXES; ax++)
		x[ax] = w->forced ? w->forced[ax] : w->typed->values[v].layout.ax[ax];
}

static bool backward(grid *w, int rank, shard_part *p)
{
	shard_bench *b = &w->b;
	tt_graph *g = p->g;
	tt_v dout[MAX_OUT] = {0};
	for (int o = 0; o < b->node->nout; o++) {
		tt_value v = g->values[tt_out(p->out, o)], whole = b->g->values[b->node->out[o]];
		tt_axis_type x[AXES], dx[AXES];
		if (v.gdtype == TT_NODTYPE)
			continue;
		out_types(w, tt_out(w->out, o), x);
		dual(x, dx);
		whole.dtype = whole.gdtype;
		shard_tensor t = part(w, &whole, &b->dout[o], dx, rank);
		for (int d = 0; d < v.ndim; d++)
			if (t.n[d] != v.dim[d].n)
				return false;
		dout[o] = tt_input(g, tt_arena_printf(b->a, "dout%d", o), v.gdtype, v.gdtype, v.ndim, v.dim);
		p->val[dout[o]] = t;
	}
	tt_node n = g->nodes[0];
	tt_vjp v = {.g = g, .node = &n, .dout = dout, .din = p->din};
	g->seg = TT_SEG_B;
	n.op->vjp(&v);
	for (int64_t i = 1; g->status == TT_OK && i < g->nnodes; i++)
		shard_run_node(b, g, &g->nodes[i], p->val);
	return g->status == TT_OK;
}

/* ---- a typing --------------------------------------------------------------------------------------------------------------------------------- */

static void report(grid *w, const char *what, int i)
{
	tt_buf s = {0};
	for (int ax = 0; ax < AXES; ax++) {
		tt_buf_printf(&s, "%s%s (", ax ? " x " : "", w->rows[ax] ? "rows" : "cut");
		for (int k = 0; k < w->b.node->nin; k++) {
			tt_buf_str(&s, k ? ", " : "");
			tt_axis_type_print(w->at[ax][k], &s);
			if (w->at[ax][k].type == TT_S && w->at[ax][k].order)
				tt_buf_str(&s, "'");
		}
		tt_buf_str(&s, ")");
	}
	shard_report(&w->b, NULL, "%s %d: %s", what, i, s.s);
	tt_buf_fini(&s);
}

static bool type_forward(grid *w)
{
	shard_bench *b = &w->b;
	tt_mesh mesh = {AXES, {{"y", SIDE, w->rows[0]}, {"x", SIDE, w->rows[1]}}};
	tt_graph *g = w->typed = tt_graph_new(b->a, &mesh, !b->exact);
	for (int i = 0; i < b->node->nin; i++) {
		const tt_value *v = b->node->in[i] ? &b->g->values[b->node->in[i]] : NULL;
		w->in[i] = v ? tt_input(g, v->name, v->dtype, v->gdtype, v->ndim, v->dim) : 0;
		if (!v)
			continue;
		g->values[w->in[i]].format = v->format;
		tt_layout l = tt_layout_all(TT_R);
		for (int ax = 0; ax < AXES; ax++)
			l.ax[ax] = w->at[ax][i];
		tt_value_set_layout(g, w->in[i], l);
	}
	w->out = tt_node_add_n(g, b->op, b->node->attr, b->node->nin, w->in, b->node->nout, NULL);
	return w->out != 0;
}

static bool type_backward(grid *w, tt_v *din)
{
	tt_graph *g = w->typed;
	tt_v dout[MAX_OUT] = {0};
	for (int o = 0; o < w->b.node->nout; o++) {
		tt_value v = g->values[tt_out(w->out, o)];
		tt_axis_type x[AXES], dx[AXES];
		if (v.gdtype == TT_NODTYPE)
			continue;
		out_types(w, tt_out(w->out, o), x);
		dual(x, dx);
		dout[o] = tt_input(g, tt_arena_printf(w->b.a, "dout%d", o), v.gdtype, v.gdtype, v.ndim, v.dim);
		tt_layout l = tt_layout_all(TT_R);
		for (int ax = 0; ax < AXES; ax++)
			l.ax[ax] = dx[ax];
		tt_value_set_layout(g, dout[o], l);
	}
	tt_node n = g->nodes[0];
	tt_vjp v = {.g = g, .node = &n, .dout = dout, .din = din};
	g->seg = TT_SEG_B;
	n.op->vjp(&v);
	return g->status == TT_OK;
}

/* The typed graph is there: its parts run. */
static void check_accepted(grid *w)
{
	shard_bench *b = &w->b;
	shard_part p[ALL] = {{0}};
	bool open_cotangent = false;
	for (int i = 0; i < b->node->nin; i++)
		for (int ax = 0; ax < AXES; ax++)
			if (b->exact && b->node->in[i] && w->at[ax][i].type == TT_P && b->g->values[b->node->in[i]].dtype != TT_ACC)
				return; /* rounded terms sum to the value in real numbers only */
	w->accepted++;
	for (int i = 0; i < b->node->nin; i++) {
		tt_axis_type x[AXES];
		types_of(w, i, x);
		if (x[0].type == TT_S && x[1].type == TT_S && x[0].dim == x[1].dim && x[0].fine != x[1].fine) {
			b->fines++; /* lines of what whole units are dealt of */
			break;
		}
	}
	for (int r = 0; r < ALL; r++)
		if (!forward(w, r, &p[r])) {
			report(w, "accepted, but has no node to run: rank", r);
			return;
		}
	for (int o = 0; o < b->node->nout; o++) {
		const tt_value *v = &b->g->values[b->node->out[o]];
		tt_axis_type x[AXES];
		shard_tensor parts[ALL];
		out_types(w, tt_out(w->out, o), x);
		for (int r = 0; r < ALL; r++)
			parts[r] = p[r].val[tt_out(p[r].out, o)];
		for (int ax = 0; ax < AXES; ax++)
			open_cotangent |= x[ax].type == TT_R && v->gdtype != TT_NODTYPE && v->gdtype != TT_ACC;
		if (!denotes(w, v, &b->out[o], parts, x))
			report(w, "accepted, but the parts do not denote the result: output", o);
	}
	if (!shard_has_gradient(b))
		return;
	tt_v din[MAX_IN] = {0};
	if (!type_backward(w, din)) {
		if (!open_cotangent && !strstr(w->typed->error, "takes no sum over"))
			report(w, tt_arena_printf(b->a, "forward is accepted, backward is not (%s): output", w->typed->error), 0);
		return;
	}
	if (b->exact && open_cotangent)
		return;
	w->backs++;
	for (int r = 0; r < ALL; r++)
		if (!backward(w, r, &p[r])) {
			report(w, "accepted, but cannot run its backward: rank", r);
			return;
		}
	for (int i = 0; i < b->node->nin; i++) {
		if (!din[i] || b->g->values[b->node->in[i]].gdtype == TT_NODTYPE || shard_is_meta(b, i))
			continue;
		tt_value v = b->g->values[b->node->in[i]];
		tt_axis_type x[AXES], want[AXES], got[AXES];
		shard_tensor parts[ALL];
		types_of(w, i, x);
		out_types(w, din[i], got);
		if (!dual(x, want))
			continue;
		for (int ax = 0; ax < AXES; ax++)
			if (!tt_axis_type_eq(want[ax], got[ax]))
				report(w, "the gradient is not of the dual type: input", i);
		for (int r = 0; r < ALL; r++)
			parts[r] = p[r].val[p[r].din[i]];
		v.dtype = p[0].g->values[p[0].din[i]].dtype;
		if (!denotes(w, &v, &b->din[i], parts, want))
			report(w, "accepted, but the gradient is wrong: input", i);
	}
}

/* ---- pairs ------------------------------------------------------------------------------------------------------------------------------------ */

typedef tt_axis_type typing[MAX_IN];

/* Typings that the rule accepts on one axis. */
static int accepted_on(grid *w, int axis, typing *list)
{
	shard_bench *b = &w->b;
	tt_axis_type opt[MAX_IN][MAX_OPTIONS];
	int nopt[MAX_IN] = {0}, at[MAX_IN] = {0}, n = 0, i = 0;
	b->rows = w->rows[axis];
	for (int k = 0; k < b->node->nin; k++)
		nopt[k] = shard_options_of(b, k, opt[k]);
	while (i < b->node->nin && n < MAX_ACCEPTED) {
		typing t;
		for (int k = 0; k < b->node->nin; k++)
			t[k] = opt[k][at[k]];
		if (shard_accepts(b, t))
			memcpy(list[n++], t, sizeof t);
		for (i = 0; i < b->node->nin && ++at[i] == nopt[i]; i++)
			at[i] = 0;
	}
	return n;
}

/* Chunks are of a rank's own tokens: suite layout has a case for them. */
static bool cuts_chunks(const grid *w, const typing t)
{
	if (w->b.node->op != &tt_op_split_tokens && w->b.node->op != &tt_op_concat_tokens)
		return false;
	for (int i = 0; i < w->b.node->nin; i++)
		if (t[i].type == TT_S && t[i].dim == 0)
			return true;
	return false;
}

/* Orders of a dim that both axes shard: the same for all inputs, or of one input turned round: then it lies otherwise than what it meets. */
static void set_order(grid *w, typing pair[AXES], int outer, int turned)
{
	for (int i = 0; i < w->b.node->nin; i++) {
		bool both = pair[0][i].type == TT_S && pair[1][i].type == TT_S && pair[0][i].dim == pair[1][i].dim;
		int first = i == turned ? 1 - outer : outer;
		for (int ax = 0; ax < AXES; ax++)
			pair[ax][i].order = (int8_t)(both && ax != first);
	}
}

static int doubly_sharded(const grid *w, typing pair[AXES])
{
	int n = 0;
	for (int i = 0; i < w->b.node->nin; i++)
		n += w->b.node->in[i] && pair[0][i].type == TT_S && pair[1][i].type == TT_S && pair[0][i].dim == pair[1][i].dim;
	return n;
}

/* The reviewed pattern: rows are dealt before sequences are cut. Attention over tokens that are cut first and dealt then has no K/V to meet. */
static bool rows_within_a_cut(const grid *w)
{
	tt_axis_type x[AXES];
	types_of(w, 0, x);
	bool attends = !strncmp(w->b.node->op->name, "attention", 9) && w->b.node->op != &tt_op_attention_merge;
	return attends && w->rows[0] && !w->rows[1] && outer_of(x) == 1 && x[0].dim == 0;
}

/* An axis deals units that another has cut: no such layout is made (case conversions of suite layout). */
static bool units_of_lines(const grid *w, typing pair[AXES])
{
	for (int i = 0; i < w->b.node->nin; i++) {
		tt_axis_type x[AXES] = {pair[0][i], pair[1][i]}, outer = x[outer_of(x)], inner = x[1 - outer_of(x)];
		if (outer.fine && !inner.fine && inner.type == TT_S && inner.dim == outer.dim)
			return true;
	}
	return false;
}

static void check_pair(grid *w, typing pair[AXES], int turned)
{
	if (units_of_lines(w, pair))
		return;
	tt_mark m = tt_arena_push(w->b.a);
	w->at = (const tt_axis_type (*)[MAX_IN])pair;
	if (type_forward(w)) {
		check_accepted(w);
	} else {
		w->rejected++;
		if (turned >= 0)
			;
		else if (rows_within_a_cut(w))
			w->hits++;
		else /* rules look at one axis, so two that are right are right together */
			report(w, tt_arena_printf(w->b.a, "each axis alone is accepted, both are not (%.160s): outer axis", w->typed->error), pair[0][0].order);
	}
	tt_arena_pop(w->b.a, m);
}

static uint64_t draw(uint64_t *s)
{
	*s += 0x9e3779b97f4a7c15u;
	return tt_mix64(*s);
}

/* All pairs of a sample, or one in `one_in` of them. */
static void check_sample(grid *w, uint64_t one_in, uint64_t *seed)
{
	static typing list[AXES][MAX_ACCEPTED];
	int n[AXES];
	for (int ax = 0; ax < AXES; ax++)
		n[ax] = accepted_on(w, ax, list[ax]);
	w->b.rows = w->rows[0] || w->rows[1];
	for (int i = 0; i < n[0]; i++)
		for (int k = 0; k < n[1]; k++) {
			if (w->b.quiet && w->b.failures)
				return;
			typing pair[AXES];
			memcpy(pair[0], list[0][i], sizeof pair[0]);
			memcpy(pair[1], list[1][k], sizeof pair[1]);
			if (draw(seed) % one_in || cuts_chunks(w, pair[0]) || cuts_chunks(w, pair[1]))
				continue;
			int twice = doubly_sharded(w, pair);
			for (int outer = 0; outer < (twice ? 2 : 1); outer++) {
				set_order(w, pair, outer, -1);
				check_pair(w, pair, -1);
				if (twice < 2)
					continue;
				int turned = (int)(draw(seed) % (uint64_t)w->b.node->nin);
				set_order(w, pair, outer, turned);
				if (doubly_sharded(w, pair) && pair[0][turned].type == TT_S && pair[1][turned].type == TT_S && pair[0][turned].dim == pair[1][turned].dim)
					check_pair(w, pair, turned);
			}
		}
}

/* How two axes deal tokens: cut both, rows on the outer, rows on both. */
static void set_rows(grid *w, int kind)
{
	w->rows[0] = kind > 0;
	w->rows[1] = w->b.quarters = kind > 1;
	w->b.rows = kind > 0;
}

static void check_op(grid *w, const tt_op *base, const tt_op *op, uint64_t one_in, uint64_t *seed)
{
	w->b.k = SIDE;
	for (int config = 0; config < 8 && !(w->b.quiet && w->b.failures); config++) {
		w->b.exact = config & 1;
		w->b.fine = config >= 6;
		set_rows(w, w->b.fine ? 0 : config / 2);
		for (int which = 0;; which++) {
			tt_mark m = tt_arena_push(w->b.a);
			w->b.seed = 11;
			w->b.op = base;
			bool there = shard_prepare(&w->b, base, which);
			w->b.op = op;
			if (there)
				check_sample(w, one_in, seed);
			tt_arena_pop(w->b.a, m);
			if (!there)
				break;
		}
	}
}

static void check_counts(tt_test *t, const grid *w, int64_t accepted, int64_t rejected)
{
	TT_CHECK_MSG(t, w->accepted > accepted && w->rejected > rejected && w->backs > accepted / 8, "%lld accepted, %lld rejected, %lld backwards", (long long)w->accepted,
		     (long long)w->rejected, (long long)w->backs);
}

static void pairs(tt_test *t, uint64_t one_in)
{
	uint64_t seed = t->seed;
	grid all = {0};
	for (int i = 0; tt_ops[i]; i++) {
		const tt_op *op = tt_ops[i];
		if (op == &tt_op_convert || op == &tt_op_exchange || op == &tt_op_exchange_bucket)
			continue;
		grid w = {.b = {.t = t, .a = t->arena}, .hits = all.hits};
		check_op(&w, op, op, one_in, &seed);
		all.accepted += w.accepted;
		all.b.fines += w.b.fines;
		all.rejected += w.rejected;
		all.backs += w.backs;
		all.hits = w.hits;
	}
	check_counts(t, &all, 200, 20);
	TT_CHECK_MSG(t, all.b.fines > (one_in == 1 ? 50 : 0), "%lld typings deal lines of units", (long long)all.b.fines);
	if (one_in == 1)
		TT_CHECK_MSG(t, all.hits, "no pair matches the reviewed pattern any more");
}

static void case_pairs(tt_test *t) { pairs(t, 16); }
static void case_all_pairs(tt_test *t) { pairs(t, 1); }

/* ---- sub-axes: more ranks of tp than kv heads ---------------------------------------------------------------------------------------------------- */

/* 4 q heads over 2 kv heads: on two axes a rank has at most one kv head. */
static bool shared_heads(shard_bench *b)
{
	static const tt_attr_attention attr = {.head_dim = 2, .v_head_dim = 3, .group = 2, .scale = 0.5};
	tt_graph *g = tt_graph_new(b->a, NULL, !b->exact);
	tt_dtype dt = b->exact ? TT_F32 : TT_F64;
	tt_dim t = tt_dim_of(TT_TOKENS, SHARD_SEQ_TOKENS, 1), s = tt_dim_of(TT_SEQS, SHARD_SEQ_TOKENS + 1, 1);
	tt_dim q = tt_dim_of(TT_HEADS, 4 * attr.head_dim, attr.head_dim);
	q.group = attr.group;
	tt_v x[] = {tt_input(g, "q", dt, dt, 2, (tt_dim[]){t, q}), tt_input(g, "k", dt, dt, 2, (tt_dim[]){t, tt_dim_of(TT_KV_HEADS, 2 * attr.head_dim, attr.head_dim)}),
		    tt_input(g, "v", dt, dt, 2, (tt_dim[]){t, tt_dim_of(TT_KV_HEADS, 2 * attr.v_head_dim, attr.v_head_dim)})};
	tt_seqs seqs = {tt_input(g, "positions", TT_I32, TT_NODTYPE, 1, &t), tt_input(g, "seq_ids", TT_I32, TT_NODTYPE, 1, &t), tt_input(g, "seq_table", TT_I32, TT_NODTYPE, 1, &s),
			tt_input(g, "lines", TT_I32, TT_NODTYPE, 1, &t)};
	tt_value_set_fill(g, seqs.positions, TT_FILL_POSITIONS);
	tt_value_set_fill(g, seqs.seq_ids, TT_FILL_SEQ_IDS);
	tt_value_set_fill(g, seqs.seq_table, TT_FILL_SEQ_TABLE);
	tt_value_set_fill(g, seqs.lines, TT_FILL_LINES);
	tt_attention(g, x[0], x[1], x[2], &seqs, &attr, NULL);
	return shard_prepare_graph(b, g, &tt_op_attention);
}

/* Some types of the outputs make result and gradient right, though the rule knows none. */
static bool types_exist(grid *w)
{
	static const tt_axis_type type[] = {{.type = TT_R}, {.type = TT_I}, {.type = TT_S}, {.type = TT_S, .dim = 1}};
	const shard_bench *b = &w->b;
	shard_part p[ALL] = {{0}};
	shard_tensor parts[ALL];
	for (int r = 0; r < ALL; r++)
		if (!forward(w, r, &p[r]))
			return false;
	for (int r = 0; r < ALL; r++)
		parts[r] = p[r].val[p[r].out];
	for (int i = 0; i < TT_COUNT(type); i++)
		for (int k = 0; k < TT_COUNT(type); k++) {
			tt_axis_type out[AXES] = {type[i], type[k]};
			out[1].order = out[0].type == TT_S && out[1].type == TT_S && out[0].dim == out[1].dim;
			if (!denotes(w, &b->g->values[b->node->out[0]], &b->out[0], parts, out))
				continue;
			bool right = true;
			w->forced = out;
			for (int r = 0; r < ALL && right; r++)
				right = forward(w, r, &p[r]) && backward(w, r, &p[r]);
			for (int n = 0; n < 3 && right; n++) {
				tt_axis_type x[AXES], dx[AXES];
				tt_value v = b->g->values[b->node->in[n]];
				shard_tensor din[ALL];
				for (int r = 0; r < ALL; r++)
					din[r] = p[r].val[p[r].din[n]];
				v.dtype = p[0].g->values[p[0].din[n]].dtype;
				types_of(w, n, x);
				right = dual(x, dx) && denotes(w, &v, &b->din[n], din, dx);
			}
			w->forced = NULL;
			if (right)
				return true;
		}
	return false;
}

/* q, k and v of every type on both axes; what places tokens lies as q's tokens do. `keep`: one in so many of what is rejected is run. */
static void check_shared(grid *w, const tt_op *op, uint64_t keep, uint64_t *seed)
{
	static const tt_axis_type type[] = {{.type = TT_R}, {.type = TT_I}, {.type = TT_S}, {.type = TT_S, .dim = 1}};
	enum { TYPES = TT_COUNT(type), ONE = TYPES * TYPES * TYPES };
	w->b.k = SIDE;
	w->b.seed = 11;
	w->b.op = &tt_op_attention;
	if (!TT_CHECK(w->b.t, shared_heads(&w->b)))
		return;
	w->b.op = op;
	for (int n = 0; n < ONE * ONE && !(w->b.quiet && w->b.failures); n++) {
		typing pair[AXES] = {{{0}}};
		for (int ax = 0; ax < AXES; ax++) {
			int at = ax ? n % ONE : n / ONE;
			for (int i = 0; i < 3; i++, at /= TYPES)
				pair[ax][i] = type[at % TYPES];
			bool tokens = pair[ax][0].type == TT_S && pair[ax][0].dim == 0;
			for (int i = 3; i < 7; i++)
				pair[ax][i] = type[tokens && (i < 5 || (i == 6 && w->rows[ax])) ? 2 : 0];
		}
		set_order(w, pair, 0, -1);
		tt_mark m = tt_arena_push(w->b.a);
		w->at = (const tt_axis_type (*)[MAX_IN])pair;
		if (type_forward(w)) {
			check_accepted(w);
		} else if (!w->b.exact && draw(seed) % keep == 0) { /* the same rule, and open sums in full */
			w->rejected++;
			if (types_exist(w))
				report(w, "rejected although types exist", 0);
		}
		tt_arena_pop(w->b.a, m);
	}
}

static void shared_kv(tt_test *t, uint64_t keep)
{
	uint64_t seed = t->seed;
	int64_t shared = 0;
	for (int config = 0; config < 4; config++) {
		grid w = {.b = {.t = t, .a = t->arena, .exact = config & 1}};
		set_rows(&w, config / 2);
		check_shared(&w, &tt_op_attention, keep, &seed);
		check_counts(t, &w, 4, config & 1 ? -1 : 10);
		shared += w.accepted;
	}
	TT_CHECK_MSG(t, shared > 40, "%lld typings accepted", (long long)shared);
}

static void case_shared_heads(tt_test *t) { shared_kv(t, 64); }
static void case_all_shared_heads(tt_test *t) { shared_kv(t, 1); }

/* ---- flattened axes ----------------------------------------------------------------------------------------------------------------------------- */

/* A dim that neighbouring axes cut one within the other is one cut by both together: pieces tile the dim in the order of the ranks, and the gather of
 * both axes is one exchange whose edges are those of the pieces. `tp` ranks have cut it before in its units; `fine`: behind them lines are dealt. */
static void check_flat(tt_test *t, int outer, int inner, int tp, tt_dim d, bool fine)
{
	tt_mesh mesh = {3, {{"dp_shard", outer, false}, {"cp", inner, false}, {"tp", tp, false}}};
	tt_graph *g = tt_graph_new(t->arena, &mesh, false);
	tt_v w = tt_state_new(g, "w", TT_REGION_PARAM, TT_F32, 2, (tt_dim[]){d, tt_dim_of(TT_D, 4, 1)}, true);
	tt_layout l = tt_layout_all(TT_R);
	l.ax[2] = (tt_axis_type){.type = tp > 1 ? TT_S : TT_R};
	l.ax[0] = (tt_axis_type){.type = TT_S, .order = tp > 1, .fine = fine};
	l.ax[1] = (tt_axis_type){.type = TT_S, .order = 1 + (tp > 1), .fine = fine};
	tt_value_set_layout(g, w, l);
	tt_v whole = tt_convert(g, tt_convert(g, w, "cp", TT_R, 0), "dp_shard", TT_R, 0);
	tt_graph_output(g, tt_cast(g, whole, TT_F32, "y"));
	if (!TT_CHECK_OK(t, tt_graph_check(g)))
		return;
	int64_t at = 0;
	for (int r = 0; r < tp * outer * inner; r++) {
		int c[] = {r % (outer * inner) / inner, r % inner, r / (outer * inner)};
		tt_piece p = tt_value_piece(g, &g->values[w], 0, c, -1), of_tp = tt_value_piece(g, &g->values[whole], 0, c, -1);
		TT_CHECK_MSG(t, p.start == at, "%d x %d x %d over %lld: rank %d begins at %lld, the one before ends at %lld", tp, outer, inner, (long long)d.n, r, (long long)p.start, (long long)at);
		int64_t share = tt_ceil_div(of_tp.n, (int64_t)outer), least = of_tp.n / outer / inner;
		TT_CHECK_MSG(t, !fine || (p.n >= least && p.n <= tt_ceil_div(share, (int64_t)inner)), "rank %d has %lld of %lld lines", r, (long long)p.n, (long long)of_tp.n);
		TT_CHECK(t, tp == 1 || (of_tp.start % d.unit == 0 && of_tp.n % d.unit == 0)); /* whole heads */
		at = p.start + p.n;
		tt_graph *local, *joined;
		int exchanges = 0;
		if (!TT_CHECK_OK(t, tt_pass_localise(g, c, t->arena, &local)) || !TT_CHECK_OK(t, tt_pass_exchanges(local, TT_GATHERED_KEPT, t->arena, &joined)))
			return;
		for (int64_t i = 0; i < joined->nnodes; i++) {
			const tt_attr_exchange *x = joined->nodes[i].attr;
			if (joined->nodes[i].op != &tt_op_exchange)
				continue;
			exchanges++;
			if (!TT_CHECK(t, x->axes == 3 && x->members == outer * inner && x->index == r % (outer * inner) && x->edges.n == outer * inner + 1))
				continue;
			for (int k = 0; k < outer * inner; k++) {
				tt_piece q = tt_value_piece(g, &g->values[w], 0, (int[]){k / inner, k % inner, c[2]}, -1);
				TT_CHECK(t, of_tp.start + x->edges.v[k] == q.start && of_tp.start + x->edges.v[k + 1] == q.start + q.n);
			}
		}
		TT_CHECK_MSG(t, exchanges == 1, "%d exchanges gather both axes", exchanges);
	}
	TT_CHECK_INT(t, at, d.n);
}

static void case_flattened(tt_test *t)
{
	for (int outer = 2; outer <= 3; outer++)
		for (int inner = 2; inner <= 3; inner++)
			for (int64_t n = 4; n <= 13; n++) { /* uneven, and fewer than ranks */
				check_flat(t, outer, inner, 1, tt_dim_of(TT_FFN, n, 1), false);
				tt_dim heads = tt_dim_of(TT_HEADS, 4 * n, 4);
				check_flat(t, outer, inner, 1, heads, true);
				for (int tp = 2; tp <= 5 && n < 8; tp++) /* 5 over 4 heads: one rank of tp has none */
					check_flat(t, outer, inner, tp, heads, true);
				heads.group = 2;
				if (n % 2)
					continue;
				check_flat(t, outer, inner, 1, heads, false);
				check_flat(t, outer, inner, 3, heads, true);
			}
}

/* ---- the test can fail: broken rules, one a family ------------------------------------------------------------------------------------------------ */

static bool real_rule(const tt_typing *t)
{
	tt_typing u = *t;
	u.op = tt_op_find(t->op->name);
	return u.op->spmd ? u.op->spmd(&u) : tt_spmd_by_labels(&u);
}

static bool broken_p_is_r(const tt_typing *t) /* a sum over shards is called taken */
{
	bool ok = real_rule(t);
	for (int o = 0; o < t->nout; o++)
		if (t->tout[o].type == TT_P || t->tout[o].type == TT_M)
			t->tout[o].type = TT_R;
	return ok;
}

static bool broken_order(const tt_typing *t) /* two axes cut a dim in any order */
{
	tt_axis_type in[MAX_IN];
	tt_typing u = *t;
	for (int i = 0; i < t->nin; i++) {
		in[i] = t->tin[i];
		in[i].order = 0;
	}
	u.tin = in;
	bool ok = real_rule(&u);
	for (int o = 0; o < t->nout; o++)
		if (t->tout[o].type == TT_S)
			t->tout[o].order = t->tin[0].order;
	return ok;
}

static bool broken_second(const tt_typing *t) /* right on the outer axis; on the inner one pieces are called the whole */
{
	bool ok = real_rule(t);
	for (int o = 0; o < t->nout && t->axis != &t->g->mesh.ax[0]; o++)
		if (t->tout[o].type == TT_S)
			t->tout[o] = (tt_axis_type){.type = TT_R};
	return ok;
}

static bool broken_share(const tt_typing *t) /* whole K/V beside some of the q heads, however many kv heads there are */
{
	if (t->tin[0].type == TT_S && t->tin[0].dim == 1 && t->tin[1].type == TT_R && t->tin[2].type == TT_R) {
		for (int o = 0; o < t->nout; o++)
			t->tout[o] = t->tin[0];
		return true;
	}
	return real_rule(t);
}

static void case_broken(tt_test *t)
{
	static const struct { const tt_op *op; bool (*rule)(const tt_typing *); } broken[] = {
		{&tt_op_embedding, broken_p_is_r}, {&tt_op_linear, broken_p_is_r},   {&tt_op_linear_dw, broken_order},  {&tt_op_rms_norm, broken_second},
		{&tt_op_rope, broken_order},	   {&tt_op_silu_mul, broken_order},  {&tt_op_add, broken_order},	{&tt_op_round, broken_second},
		{&tt_op_nll_dx, broken_order},	   {&tt_op_row_max, broken_p_is_r},  {&tt_op_accumulate, broken_order}, {&tt_op_square_sum, broken_p_is_r},
		{&tt_op_adamw, broken_order},	   {&tt_op_split_tokens, broken_second}, {&tt_op_add_rms_norm, broken_order},
	};
	uint64_t seed = t->seed;
	for (int i = 0; i < TT_COUNT(broken); i++) {
		tt_op op = *broken[i].op;
		op.spmd = broken[i].rule;
		grid w = {.b = {.t = t, .a = t->arena, .quiet = true}};
		check_op(&w, broken[i].op, &op, 1, &seed);
		TT_CHECK_MSG(t, w.b.failures > 0, "a broken rule of %s is not found (row %d)", op.name, i);
	}
	tt_op op = tt_op_attention;
	op.spmd = broken_share;
	grid w = {.b = {.t = t, .a = t->arena, .quiet = true}};
	check_shared(&w, &op, 1u << 30, &seed);
	TT_CHECK_MSG(t, w.b.failures > 0, "attention that shares any kv heads is not found");
	/* and types that are refused though they exist */
	op.spmd = NULL; /* by labels: there are none */
	op.labels = "TH,TG,TK,_*,_*,_*,_*->TH,TH";
	grid strict = {.b = {.t = t, .a = t->arena, .quiet = true}};
	check_shared(&strict, &op, 1, &seed);
	TT_CHECK_MSG(t, strict.b.failures > 0 && strstr(strict.b.text, "rejected although types exist"), "a rule that is too strict is not found");
}

const tt_case tt_suite_axes[] = {
	{"pairs", case_pairs, TT_TIER_QUICK},
	{"flattened", case_flattened, TT_TIER_QUICK},
	{"shared_heads", case_shared_heads, TT_TIER_QUICK},
	{"broken_rules_are_found", case_broken, TT_TIER_QUICK},
	{"all_pairs", case_all_pairs, TT_TIER_CI},
	{"all_shared_heads", case_all_shared_heads, TT_TIER_CI},
	{0},
};
