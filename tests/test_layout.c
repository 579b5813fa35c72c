/* layout: the typing rule of every op is sound (LAYOUTS.md, Proof), by enumeration over one mesh axis of 2 and of 3 ranks. No ranks run:
 * each rank's part is one node on local dims, run by the reference kernel.
 *
 * A typing says what the parts held by the ranks denote together: R and I the value itself, S(d) pieces that concatenate along d, P
 * terms of a sum, M candidates of a maximum. An accepted typing must denote the result of the whole value (in double to 1e-12; in
 * `exact` bit for bit, open sums limb for limb), and its vjp, given a cotangent of the dual type, the whole gradient under the duals of the
 * input types. A rejected typing for which such types exist must match one of the reviewed patterns below.
 */
#include "shards.h"

#include "ir/internal.h"
#include "ops/ops.h"

#include <stdio.h>

/* ---- what the rule says ---------------------------------------------------------------------------------------------------------------- */

/* The node on a mesh of one axis, inputs typed; 0 if the rule rejects. The graph keeps the text. */
static tt_v typed(const shard_bench *b, const tt_axis_type *tin, tt_graph **out, tt_v *in)
{
	const tt_node *n = b->node;
	tt_mesh mesh = {1, {{"x", b->k, b->rows}}};
	tt_graph *g = *out = tt_graph_new(b->a, &mesh, !b->exact);
	for (int i = 0; i < n->nin; i++) {
		const tt_value *v = &b->g->values[n->in[i]];
		in[i] = n->in[i] ? tt_input(g, v->name, v->dtype, v->gdtype, v->ndim, v->dim) : 0;
		if (in[i])
			g->values[in[i]].format = v->format;
		tt_layout l = tt_layout_all(TT_R);
		l.ax[0] = tin[i];
		tt_value_set_layout(g, in[i], l);
	}
	return tt_node_add_n(g, b->op, n->attr, n->nin, in, n->nout, NULL);
}

/* The vjp on the typed graph. */
static bool typed_backward(const shard_bench *b, tt_graph *g, tt_v out, tt_v *din)
{
	tt_v dout[MAX_OUT] = {0};
	for (int o = 0; o < b->node->nout; o++) {
		tt_value v = g->values[tt_out(out, o)];
		bool has;
		if (v.gdtype == TT_NODTYPE)
			continue;
		dout[o] = tt_input(g, tt_arena_printf(b->a, "dout%d", o), v.gdtype, v.gdtype, v.ndim, v.dim);
		tt_layout l = tt_layout_all(TT_R);
		l.ax[0] = tt_axis_type_dual(v.layout.ax[0], &has);
		tt_value_set_layout(g, dout[o], l);
	}
	tt_node n = g->nodes[0];
	tt_vjp v = {.g = g, .node = &n, .dout = dout, .din = din};
	g->seg = TT_SEG_B;
	n.op->vjp(&v);
	return g->status == TT_OK;
}

/* The text of a rejection: input, axis, what it has, what it needs. */
static void check_text(shard_bench *b, const tt_graph *g, const tt_axis_type *tin)
{
	const tt_node *n = b->node;
	tt_buf want = {0};
	bool named = false;
	for (int i = 0; i < n->nin && !named; i++) {
		if (!n->in[i])
			continue;
		want.n = 0;
		tt_buf_printf(&want, "%s: input %d, %s, on axis x: has ", b->op->name, i, b->g->values[n->in[i]].name);
		tt_axis_type_print(tin[i], &want);
		tt_buf_str(&want, ", ");
		named = g->error && strstr(g->error, want.s) && (strstr(g->error, "needs ") || strstr(g->error, "convert"));
	}
	if (!named)
		shard_report(b, tin, "the rejection does not say input, axis, has and needs: %s", g->error ? g->error : "(none)");
	tt_buf_fini(&want);
}

/* ---- rejected although types exist: the reviewed patterns ---------------------------------------------------------------------------------- */

typedef struct pattern {
	const char *name, *reason;
	bool (*match)(const shard_bench *b, const tt_axis_type *tin);
} pattern;

static bool open_sum(const shard_bench *b, const tt_axis_type *tin)
{
	for (int i = 0; i < b->node->nin; i++)
		if (tin[i].type == TT_P && !((b->op->flags & TT_OP_ACC_LINEAR) && b->g->values[b->node->in[i]].dtype == TT_ACC))
			return true;
	return false;
}

/* The same typing, with R and I of the inputs without a gradient made all R or all I, is accepted. */
static bool mixes_i(const shard_bench *b, const tt_axis_type *tin)
{
	tt_axis_type t[MAX_IN];
	for (int to = TT_R; to <= TT_I; to++) {
		bool changed = false;
		for (int i = 0; i < b->node->nin; i++) {
			t[i] = tin[i];
			if (!shard_float_input(b, i) || (b->op->vjp && b->g->values[b->node->in[i]].gdtype != TT_NODTYPE) || t[i].type > TT_I)
				continue;
			changed |= t[i].type != to;
			t[i].type = (uint8_t)to;
		}
		if (changed && shard_accepts(b, t))
			return true;
	}
	return false;
}

/* Sharded along D where the norm that it is the gradient of cannot be. */
static bool norm_width(const shard_bench *b, const tt_axis_type *tin)
{
	return !strcmp(b->op->name, "rms_norm_dw") && tin[0].type == TT_S && tin[0].dim == 1 && tin[1].type == TT_S && tin[1].dim == 1;
}

/* The same pieces would do as heads, or as whatever the dim's units are: no op is asked to find out which it can do without. */
static bool cut_units(const shard_bench *b, const tt_axis_type *tin)
{
	for (int i = 0; i < b->node->nin; i++)
		if (tin[i].fine)
			return true;
	return false;
}

static const pattern patterns[] = {
	{"open sum", "P exists only as acc, and every op on acc but add, move and round is refused: it must be taken first", open_sum},
	{"mixed I", "I mixes with nothing, also where no gradient tells it from R: in backward ops, beside statistics", mixes_i},
	{"norm width", "the norm itself needs D whole, so its gradient's operands are whole", norm_width},
	{"cut units", "fine pieces are for storage: what is not elementwise, or meets other pieces, takes a parameter whole", cut_units},
};

/* ---- enumeration ---------------------------------------------------------------------------------------------------------------------------- */

/* Types under which an output's parts denote the whole: bit 0 R (or I), 1 P, 2 M, 3+d S(d). */
static unsigned out_candidates(shard_bench *b, int o, const shard_part *p)
{
	const tt_value *v = &b->g->values[b->node->out[o]];
	shard_tensor parts[MAX_RANKS];
	for (int r = 0; r < b->k; r++)
		parts[r] = p[r].val[tt_out(p[r].out, o)];
	unsigned c = 0;
	bool open = v->dtype == TT_ACC || (b->op->flags & TT_OP_ACC_LINEAR);
	if (shard_denotes(b, v, &b->out[o], parts, (tt_axis_type){.type = TT_R}))
		c |= 1;
	if (open && shard_denotes(b, v, &b->out[o], parts, (tt_axis_type){.type = TT_P}))
		c |= 2;
	if (!b->exact && !strcmp(b->op->name, "row_max") && shard_denotes(b, v, &b->out[o], parts, (tt_axis_type){.type = TT_M}))
		c |= 4;
	for (int d = 0; d < v->ndim; d++)
		if (shard_able(&v->dim[d]) && shard_denotes(b, v, &b->out[o], parts, (tt_axis_type){.type = TT_S, .dim = (int8_t)d}))
			c |= 8u << d;
	return c;
}

/* The gradients' parts under the duals of the input types. -1: all right; else the input at fault, -2: nothing to run. */
static int gradient_fault(shard_bench *b, const tt_axis_type *tin, const tt_axis_type *tout)
{
	shard_part p[MAX_RANKS] = {{0}};
	for (int r = 0; r < b->k; r++)
		if (!shard_part_forward(b, r, tin, &p[r]) || !shard_part_backward(b, r, tout, &p[r]))
			return -2;
	for (int i = 0; i < b->node->nin; i++) {
		tt_value v = b->g->values[b->node->in[i]];
		if (!p[0].din[i] || v.gdtype == TT_NODTYPE || shard_is_meta(b, i))
			continue;
		bool has;
		shard_tensor parts[MAX_RANKS];
		for (int r = 0; r < b->k; r++)
			parts[r] = p[r].val[p[r].din[i]];
		v.dtype = p[0].g->values[p[0].din[i]].dtype;
		if (!shard_denotes(b, &v, &b->din[i], parts, tt_axis_type_dual(tin[i], &has)))
			return i;
	}
	return -1;
}

/* Every output's parts denote the whole in some way: cand[o], as out_candidates. */
static bool forward_types(shard_bench *b, const tt_axis_type *tin, unsigned *cand)
{
	shard_part p[MAX_RANKS] = {{0}};
	for (int r = 0; r < b->k; r++)
		if (!shard_part_forward(b, r, tin, &p[r]))
			return false;
	for (int o = 0; o < b->node->nout; o++)
		if (!(cand[o] = out_candidates(b, o, p)))
			return false;
	return true;
}

/* Some choice of output types makes the gradient right too. Where there are several outputs they have one type (moves), or only the first
 * has a gradient. */
static bool gradient_types(shard_bench *b, const tt_axis_type *tin, const unsigned *cand)
{
	static const tt_axis_type choice[] = {{.type = TT_R}, {.type = TT_I}, {.type = TT_P}, {.type = TT_S}, {.type = TT_S, .dim = 1}};
	static const unsigned bit[] = {1, 1, 2, 8, 16};
	if (!shard_has_gradient(b))
		return true;
	for (int c = 0; c < TT_COUNT(choice); c++) {
		tt_axis_type tout[MAX_OUT];
		for (int o = 0; o < b->node->nout; o++)
			tout[o] = choice[c];
		if ((cand[0] & bit[c]) && gradient_fault(b, tin, tout) == -1)
			return true;
	}
	return false;
}

static void check_accepted(shard_bench *b, const tt_axis_type *tin, tt_graph *g, tt_v *in, tt_v out)
{
	shard_part p[MAX_RANKS] = {{0}};
	tt_axis_type tout[MAX_OUT];
	bool open = false, i_in = false, open_cotangent = false, fine = false;
	for (int i = 0; i < b->node->nin; i++) {
		fine |= tin[i].fine;
		open |= b->node->in[i] && tin[i].type == TT_P && b->g->values[b->node->in[i]].dtype != TT_ACC;
		i_in |= tin[i].type == TT_I;
	}
	if (b->exact && open)
		return; /* rounded terms sum to the value in real numbers only */
	b->accepted++;
	b->fines += fine;
	for (int r = 0; r < b->k; r++)
		if (!shard_part_forward(b, r, tin, &p[r])) {
			shard_report(b, tin, "accepted, but rank %d has no node to run: %s", r, p[r].g->error ? p[r].g->error : "lines of K/V are missing");
			return;
		}
	for (int o = 0; o < b->node->nout; o++) {
		const tt_value *v = &b->g->values[b->node->out[o]];
		shard_tensor parts[MAX_RANKS];
		for (int r = 0; r < b->k; r++)
			parts[r] = p[r].val[tt_out(p[r].out, o)];
		tout[o] = g->values[tt_out(out, o)].layout.ax[0];
		open_cotangent |= tout[o].type == TT_R && v->gdtype != TT_NODTYPE && v->gdtype != TT_ACC;
		tt_buf s = {0};
		tt_axis_type_print(tout[o], &s);
		if (!shard_denotes(b, v, &b->out[o], parts, tout[o]))
			shard_report(b, tin, "accepted, and output %d is called %s, but its parts do not denote the result", o, s.s);
		if (tout[o].type == TT_I && !i_in)
			shard_report(b, tin, "output %d is called I, though no input is", o);
		tt_buf_fini(&s);
	}
	if (!shard_has_gradient(b))
		return;
	tt_v din[MAX_IN] = {0};
	if (!typed_backward(b, g, out, din)) {
		/* A cotangent that is P and no acc meets no op but moves: a value that needs a gradient must be I or S there. And a dim that is
		 * never contracted in shards (D, head_dim) may be sharded as long as no gradient has to cross it. */
		if (!open_cotangent && !strstr(g->error, "takes no sum over"))
			shard_report(b, tin, "forward is accepted, backward is not: %s", g->error);
		b->back_refused++;
		int wrong = open_cotangent && !b->exact ? gradient_fault(b, tin, tout) : -1;
		if (wrong != -1) /* the terms would be wrong even if they were let in */
			shard_report(b, tin, "the gradient of input %d is wrong for an open cotangent", wrong);
		return;
	}
	for (int i = 0; i < b->node->nin; i++) {
		if (!din[i] || g->values[in[i]].gdtype == TT_NODTYPE || shard_is_meta(b, i))
			continue;
		bool has;
		tt_axis_type want = tt_axis_type_dual(tin[i], &has), got = g->values[din[i]].layout.ax[0];
		if (tt_axis_type_eq(want, got))
			continue;
		tt_buf s = {0};
		tt_axis_type_print(got, &s);
		shard_report(b, tin, "the gradient of input %d is called %s, not the dual", i, s.s);
		tt_buf_fini(&s);
		return;
	}
	if (b->exact && open_cotangent)
		return;
	b->checked_back++;
	int fault = gradient_fault(b, tin, tout);
	if (fault != -1)
		shard_report(b, tin, fault == -2 ? "accepted, but no rank can run the backward" : "accepted, but the gradient of input %d is wrong", fault);
}

/* `no_forward`: known, of all typings that differ only in I and R: some output's parts denote the result in no way. */
static void check_typing(shard_bench *b, const tt_axis_type *tin, bool *no_forward, int64_t *hits)
{
	if ((b->op == &tt_op_split_tokens || b->op == &tt_op_concat_tokens))
		for (int i = 0; i < b->node->nin; i++)
			if (tin[i].type == TT_S && tin[i].dim == 0)
				return; /* a chunk of a rank's own tokens: the case `chunks` */
	bool ok = shard_accepts(b, tin);
	if (!ok && b->exact && !b->only_exact)
		return;
	tt_mark m = tt_arena_push(b->a);
	tt_graph *g = NULL;
	tt_v in[MAX_IN], out = 0;
	if (ok || b->rejected % 61 == 0 || b->rejected < 200)
		out = typed(b, tin, &g, in);
	if (ok) {
		check_accepted(b, tin, g, in, out);
		tt_arena_pop(b->a, m);
		return;
	}
	if (g)
		check_text(b, g, tin);
	b->rejected++;
	for (int i = 0; i < TT_COUNT(patterns); i++)
		if (patterns[i].match(b, tin)) {
			hits[i]++;
			b->reviewed++;
			tt_arena_pop(b->a, m);
			return;
		}
	unsigned cand[MAX_OUT] = {0};
	bool whole = true; /* nothing in pieces: the same on every axis */
	for (int i = 0; i < b->node->nin; i++)
		whole &= tin[i].type <= TT_I;
	*no_forward = *no_forward || (whole && (b->k > 2 || b->rows)) || !forward_types(b, tin, cand);
	if (!*no_forward && gradient_types(b, tin, cand))
		shard_report(b, tin, "rejected although types exist, and on no reviewed list");
	tt_arena_pop(b->a, m);
}

/* All typings of all samples of `base` under the rule of `op`. */
static void enumerate(shard_bench *b, const tt_op *base, const tt_op *op, int64_t *hits)
{
	for (int config = 0; config < 10; config++) {
		b->fine = config >= 8;
		b->exact = b->fine ? config & 1 : config & 4;
		b->rows = !b->fine && config & 2;
		b->k = !b->fine ? 2 + (config & 1) : config & 1 ? 3 : 4; /* of 4 and of 6 heads some are cut */
		b->op = base;
		for (int which = 0;; which++) {
			tt_mark m = tt_arena_push(b->a);
			b->seed = 11;
			bool there = shard_prepare(b, base, which);
			b->op = op;
			tt_axis_type opt[MAX_IN][MAX_OPTIONS], tin[MAX_IN];
			int nopt[MAX_IN] = {0}, at[MAX_IN] = {0}, i = 0;
			int64_t all = 1;
			for (int k = 0; there && k < b->node->nin; k++)
				all *= nopt[k] = shard_options_of(b, k, opt[k]);
			bool *no_forward = TT_NEWN(b->a, bool, all);
			while (there && i < b->node->nin && !(b->quiet && b->failures)) {
				int64_t number = 0; /* of the typing with I read as R */
				for (int k = b->node->nin - 1; k >= 0; k--) {
					tin[k] = opt[k][at[k]];
					number = number * nopt[k] + (tin[k].type == TT_I ? 0 : at[k]);
				}
				check_typing(b, tin, &no_forward[number], hits);
				for (i = 0; i < b->node->nin && ++at[i] == nopt[i]; i++)
					at[i] = 0;
			}
			tt_arena_pop(b->a, m);
			if (b->quiet && b->failures)
				return;
			if (!there) {
				b->only_exact |= which == 0;
				break;
			}
		}
	}
}

static void case_enumerate(tt_test *t)
{
	static const tt_op *const storage[] = {&tt_op_cast, &tt_op_round, &tt_op_add, &tt_op_accumulate, &tt_op_square_sum, &tt_op_adamw, &tt_op_sgd, &tt_op_fill_normal, &tt_op_fill_const};
	int64_t hits[TT_COUNT(patterns)] = {0}, accepted = 0, backs = 0;
	for (int i = 0; tt_ops[i]; i++) {
		const tt_op *op = tt_ops[i];
		if (op == &tt_op_convert || op == &tt_op_exchange || op == &tt_op_exchange_bucket) /* suites mesh and cp run them on ranks */
			continue;
		if (op == &tt_op_attention_join) /* ten inputs: a case of its own */
			continue;
		shard_bench b = {.t = t, .a = t->arena};
		enumerate(&b, op, op, hits);
		accepted += b.accepted;
		backs += b.checked_back;
		TT_CHECK_MSG(t, b.accepted > 0, "%s: no typing is accepted", op->name);
		for (int k = 0; k < TT_COUNT(storage); k++)
			TT_CHECK_MSG(t, op != storage[k] || b.fines > 0, "%s takes no fine pieces", op->name);
	}
	for (int i = 0; i < TT_COUNT(patterns); i++)
		TT_CHECK_MSG(t, hits[i] > 0, "no typing matches the reviewed pattern %s any more", patterns[i].name);
	TT_CHECK(t, accepted > 0 && backs > 0);
}

static void case_enumerate_join(tt_test *t)
{
	int64_t hits[TT_COUNT(patterns)] = {0};
	shard_bench b = {.t = t, .a = t->arena};
	enumerate(&b, &tt_op_attention_join, &tt_op_attention_join, hits);
	TT_CHECK(t, b.accepted > 0 && b.checked_back > 0);
}

/* ---- maxima and chunks -------------------------------------------------------------------------------------------------------------------- */

/* A maximum not yet taken passes through conversions only. */
static void case_maxima(tt_test *t)
{
	for (int i = 0; tt_ops[i]; i++) {
		shard_bench b = {.t = t, .a = t->arena, .op = tt_ops[i], .k = 2, .exact = tt_ops[i] == &tt_op_pack || tt_ops[i] == &tt_op_pack_pair};
		if (tt_ops[i] == &tt_op_convert || !TT_CHECK(t, shard_prepare(&b, b.op, 0)))
			continue;
		for (int k = 0; k <= b.node->nin; k++) { /* one input, then all that have no fixed type */
			tt_axis_type tin[MAX_IN] = {{0}};
			for (int n = 0; n < b.node->nin; n++)
				if (n == k || (k == b.node->nin && !shard_is_meta(&b, n)))
					tin[n].type = TT_M;
			if (k < b.node->nin || !shard_is_meta(&b, 0))
				TT_CHECK_MSG(t, !shard_accepts(&b, tin), "%s accepts a maximum not yet taken as input %d", b.op->name, k);
		}
	}
}

/* Chunk i of a value sharded by tokens is the i-th part of each rank's own tokens: a rank's chunks are its shard, in order, and joined
 * again they are the shard. */
static void case_chunks(tt_test *t)
{
	for (int k = 2; k <= 3; k++)
		for (int d = 0; d < 2; d++) {
			shard_bench b = {.t = t, .a = t->arena, .op = &tt_op_split_tokens, .k = k, .seed = 3};
			if (!TT_CHECK(t, shard_prepare(&b, b.op, 0)))
				return;
			tt_axis_type x = {.type = TT_S, .dim = (int8_t)d}, tin[] = {x, x};
			tt_graph *g;
			tt_v in[MAX_IN];
			tt_v out = typed(&b, tin, &g, in);
			if (!TT_CHECK_OK(t, tt_graph_check(g)))
				return;
			for (int o = 0; o < 2; o++)
				TT_CHECK(t, tt_axis_type_eq(g->values[out + o].layout.ax[0], x));
			shard_tensor joined[MAX_RANKS];
			for (int r = 0; r < k; r++) {
				shard_part p = {0};
				if (!TT_CHECK(t, shard_part_forward(&b, r, tin, &p)))
					return;
				tt_v parts[] = {p.out, p.out + 1};
				tt_v again = tt_concat_tokens(p.g, 2, parts, NULL);
				if (!TT_CHECK_OK(t, tt_graph_check(p.g)))
					return;
				shard_run_node(&b, p.g, &p.g->nodes[1], p.val);
				joined[r] = p.val[again];
				for (int64_t i = 0; d == 0 && i < p.val[p.in[0]].count; i++) {
					const shard_tensor *c0 = &p.val[p.out], *c1 = &p.val[p.out + 1];
					TT_CHECK(t, p.val[p.in[0]].x[i] == (i < c0->count ? c0->x[i] : c1->x[i - c0->count]));
				}
			}
			TT_CHECK_MSG(t, shard_denotes(&b, &b.g->values[b.node->in[0]], &b.in[0], joined, x), "chunks of %d ranks joined are not the value", k);
			if (!TT_CHECK(t, shard_prepare(&b, b.op = &tt_op_concat_tokens, 0)))
				return;
			TT_CHECK(t, shard_accepts(&b, tin));
			tin[1].type = TT_R;
			TT_CHECK(t, !shard_accepts(&b, tin));
		}
}

/* What the backward of g's first node, a conversion of x, makes of a gradient that lies as `l`. */
static tt_v converted_back(tt_graph *g, tt_v x, tt_layout l)
{
	tt_v dy = tt_input(g, "dy", TT_ACC, TT_ACC, 2, g->values[x].dim), din = 0;
	tt_value_set_layout(g, dy, l);
	tt_node n = g->nodes[0];
	tt_vjp v = {.g = g, .node = &n, .dout = &dy, .din = &din};
	n.op->vjp(&v);
	return din;
}

/* Every conversion that is accepted has a backward, and that gives the dual of what it converts; what LAYOUTS.md does not list is refused. */
static void case_conversions(tt_test *t)
{
	static const tt_axis_type types[] = {{.type = TT_R}, {.type = TT_I}, {.type = TT_S}, {.type = TT_S, .dim = 1}, {.type = TT_S, .shift = 1}, {.type = TT_P}, {.type = TT_M}};
	static const bool can[7][7] = {
		/*         R      I      S0     S1     S0+1   P      M   */
		/* R    */ {false, true, true, true, false, true, false},   /* I    */ {true, false, true, true, false, true, false},
		/* S0   */ {true, true, false, true, true, true, false},    /* S1   */ {true, true, true, false, false, true, false},
		/* S0+1 */ {false, false, true, false, false, false, false}, /* P    */ {true, true, true, true, false, false, false},
		/* M    */ {true, true, false, false, false, false, false},
	};
	for (int from = 0; from < 7; from++)
		for (int to = 0; to < 7; to++) {
			tt_mesh mesh = {2, {{"y", 2, false}, {"x", 2, false}}};
			tt_graph *g = tt_graph_new(t->arena, &mesh, false);
			tt_v x = tt_input(g, "v", TT_ACC, TT_ACC, 2, (tt_dim[]){tt_dim_of(TT_TOKENS, 6, 1), tt_dim_of(TT_D, 4, 1)});
			tt_layout l = tt_layout_all(TT_R);
			l.ax[1] = types[from];
			tt_value_set_layout(g, x, l);
			tt_v y = types[to].shift ? tt_shift(g, x, "x", types[to].dim, types[to].shift) : tt_convert(g, x, "x", (tt_type)types[to].type, types[to].dim);
			if (!TT_CHECK_MSG(t, (y != 0) == can[from][to], "from type %d to type %d: %s", from, to, y ? "accepted" : g->error) || !y)
				continue;
			TT_CHECK(t, tt_axis_type_eq(g->values[y].layout.ax[1], types[to]) && g->values[y].layout.ax[0].type == TT_R);
			bool has, had;
			tt_axis_type want = tt_axis_type_dual(types[from], &had);
			l.ax[0].type = TT_P;
			l.ax[1] = tt_axis_type_dual(types[to], &has);
			if (!had || !has)
				continue;
			tt_v din = converted_back(g, x, l);
			if (TT_CHECK_OK(t, tt_graph_check(g)) && TT_CHECK(t, din != 0))
				TT_CHECK_MSG(t, tt_axis_type_eq(g->values[din].layout.ax[1], want) && g->values[din].layout.ax[0].type == TT_P,
					     "the backward of type %d to type %d is not of the dual type", from, to);
		}
}

/* A graph with [heads 8/4, D 4], typed on axes y and x. */
static tt_v heads_as(tt_test *t, tt_axis_type y, tt_axis_type x, tt_graph **out)
{
	tt_mesh mesh = {2, {{"y", 2, false}, {"x", 2, false}}};
	tt_graph *g = *out = tt_graph_new(t->arena, &mesh, false);
	tt_v v = tt_input(g, "v", TT_ACC, TT_ACC, 2, (tt_dim[]){tt_dim_of(TT_HEADS, 8, 4), tt_dim_of(TT_D, 4, 1)});
	tt_layout l = tt_layout_all(TT_R);
	l.ax[0] = y;
	l.ax[1] = x;
	tt_value_set_layout(g, v, l);
	return v;
}

/* Fine pieces become whole, or others; the gradient's become fine again. Nothing deals units of them. */
static void case_fine(tt_test *t)
{
	static const tt_axis_type R = {.type = TT_R}, S0 = {.type = TT_S}, S1 = {.type = TT_S, .dim = 1}, FINE = {.type = TT_S, .fine = true},
				  TO[] = {{.type = TT_R}, {.type = TT_I}, {.type = TT_P}, {.type = TT_S, .dim = 1}, {.type = TT_S, .fine = true, .shift = 1}};
	static const tt_axis_type INNER = {.type = TT_S, .order = 1}, INNER_FINE = {.type = TT_S, .order = 1, .fine = true};
	tt_graph *g;
	for (int i = 0; i < TT_COUNT(TO); i++)
		for (int behind = 0; behind < 2; behind++) { /* of units that y has dealt */
			tt_v x = heads_as(t, behind ? S0 : R, behind ? INNER_FINE : FINE, &g), y = TO[i].shift ? tt_shift(g, x, "x", 0, TO[i].shift) : tt_convert(g, x, "x", (tt_type)TO[i].type, TO[i].dim);
			tt_axis_type to = TO[i];
			to.order = (int8_t)(behind && to.fine);
			if (!TT_CHECK_OK(t, tt_graph_check(g)) || !TT_CHECK(t, tt_axis_type_eq(g->values[y].layout.ax[1], to)))
				continue;
			bool has;
			tt_layout l = g->values[y].layout;
			for (int ax = 0; ax < 2; ax++)
				l.ax[ax] = tt_axis_type_dual(l.ax[ax], &has);
			tt_v din = converted_back(g, x, l);
			if (TT_CHECK_OK(t, tt_graph_check(g)) && TT_CHECK(t, din != 0))
				TT_CHECK(t, tt_axis_type_eq(g->values[din].layout.ax[1], behind ? INNER_FINE : FINE) && TT_CHECK_OK(t, tt_graph_verify(g, "fine")));
		}
	static const struct { tt_axis_type y, x; const char *axis; tt_type to; const char *error; } bad[] = {
		{{.type = TT_R}, {.type = TT_S, .fine = true}, "x", TT_S, "on axis x: has S(0)/1, there is no such conversion"},
		{{.type = TT_S, .fine = true}, {.type = TT_R}, "x", TT_S, "on axis x: has R, but y cuts the units of dim 0: convert that first"},
		{{.type = TT_S, .fine = true}, {.type = TT_S, .dim = 1}, "x", TT_S, "on axis x: has S(1), but y cuts the units of dim 0: convert that first"},
		{{.type = TT_S}, {.type = TT_S, .order = 1, .fine = true}, "y", TT_R, "on axis y: has S(0), but dim 0 is sharded further along x: convert that first"},
	};
	for (int i = 0; i < TT_COUNT(bad); i++) {
		tt_v x = heads_as(t, bad[i].y, bad[i].x, &g);
		TT_CHECK_MSG(t, !tt_convert(g, x, bad[i].axis, bad[i].to, 0) && strstr(g->error, bad[i].error), "%d: %s", i, g->error ? g->error : "accepted");
	}
	heads_as(t, FINE, INNER, &g);
	TT_CHECK_FAILS(t, tt_graph_verify(g, "it"), TT_ERR_TYPE, "after it: v: axis x deals units that axis y has cut");
	heads_as(t, (tt_axis_type){.type = TT_S, .dim = 1, .fine = true}, S1, &g);
	TT_CHECK_FAILS(t, tt_graph_verify(g, "it"), TT_ERR_TYPE, "after it: v: axis y deals elements where it cuts no units");
}

/* ---- the test can fail: broken rules -------------------------------------------------------------------------------------------------------- */

/* The rule of the real op, its result or its demands changed. */
static bool real_rule(const tt_typing *t)
{
	tt_typing u = *t;
	u.op = tt_op_find(t->op->name);
	return u.op->spmd ? u.op->spmd(&u) : tt_spmd_by_labels(&u);
}
static bool is_s(const tt_typing *t, int i, int d) { return t->tin[i].type == TT_S && t->tin[i].dim == d; }

static bool broken_p_is_r(const tt_typing *t) /* a sum over shards is called taken */
{
	bool ok = real_rule(t);
	for (int o = 0; o < t->nout; o++)
		if (t->tout[o].type == TT_P || t->tout[o].type == TT_M)
			t->tout[o].type = TT_R;
	return ok;
}
static bool broken_s_is_p(const tt_typing *t) /* pieces are called terms */
{
	bool ok = real_rule(t);
	for (int o = 0; o < t->nout; o++)
		if (t->tout[o].type == TT_S)
			t->tout[o] = (tt_axis_type){.type = TT_P};
	return ok;
}
static bool broken_i_column(const tt_typing *t) /* I beside a column shard: no I to R before, so no sum of the gradient */
{
	if (t->tin[0].type == TT_I && is_s(t, 1, 0) && t->nin == 2) {
		t->tout[0] = (tt_axis_type){.type = TT_S, .dim = 1};
		return true;
	}
	return real_rule(t);
}
static bool broken_bias(const tt_typing *t) /* a bias on every rank beside a sharded contraction */
{
	if (is_s(t, 0, 1) && is_s(t, 1, 1) && t->nin == 3 && t->tin[2].type == TT_R) {
		t->tout[0] = (tt_axis_type){.type = TT_P};
		return true;
	}
	return real_rule(t);
}
static bool broken_norm(const tt_typing *t) /* D in shards, each with statistics of its own */
{
	if (is_s(t, 0, 1) && is_s(t, 1, 0)) {
		t->tout[0] = t->tin[0];
		t->tout[1] = (tt_axis_type){.type = TT_R};
		return true;
	}
	return real_rule(t);
}
static bool broken_i_norm(const tt_typing *t) /* a weight that is I beside tokens in shards */
{
	if (is_s(t, 0, 0) && t->tin[1].type == TT_I) {
		t->tout[0] = t->tout[1] = t->tin[0];
		return true;
	}
	return real_rule(t);
}
static bool broken_kv(const tt_typing *t) /* K/V of this rank's tokens alone where sequences are cut */
{
	if (is_s(t, 0, 0) && is_s(t, 1, 0) && is_s(t, 2, 0) && is_s(t, 3, 0) && is_s(t, 4, 0) && is_s(t, 6, 0)) {
		t->tout[0] = t->tout[1] = t->tin[0];
		return true;
	}
	return real_rule(t);
}
static bool broken_table(const tt_typing *t) /* positions of all tokens beside q of some */
{
	if (is_s(t, 0, 0) && t->tin[1].type == TT_R) {
		t->tout[0] = t->tin[0];
		return true;
	}
	return real_rule(t);
}
static bool broken_add(const tt_typing *t) /* P + R is counted once per rank */
{
	if (t->tin[0].type == TT_P && t->tin[1].type == TT_R) {
		t->tout[0] = t->tin[0];
		return true;
	}
	return real_rule(t);
}
static bool broken_round(const tt_typing *t) /* terms rounded before they are summed */
{
	t->tout[0] = t->tin[0];
	return t->tin[0].type == TT_P || real_rule(t);
}
static bool broken_nll(const tt_typing *t) /* a loss that every rank calls its own, from shards of logits */
{
	if (is_s(t, 0, 1) && t->tin[1].type == TT_R && t->tin[2].type == TT_R && t->tin[3].type == TT_R) {
		t->tout[0] = (tt_axis_type){.type = TT_R};
		return true;
	}
	return real_rule(t);
}
static bool broken_fine(const tt_typing *t) /* pieces of heads are called heads */
{
	tt_axis_type in[MAX_IN];
	tt_typing u = *t;
	for (int i = 0; i < t->nin; i++) {
		in[i] = t->tin[i];
		in[i].fine = false;
	}
	u.tin = in;
	return real_rule(&u);
}
static bool broken_strict(const tt_typing *t) /* refuses what is right, in words that help nobody */
{
	for (int i = 0; i < t->nin; i++)
		if (t->tin[i].type == TT_S)
			return false;
	return real_rule(t);
}

static void case_broken(tt_test *t)
{
	static const struct { const tt_op *op; bool (*rule)(const tt_typing *); const char *text; } broken[] = {
		{&tt_op_embedding, broken_p_is_r, "denote the result"},	   {&tt_op_embedding_dw, broken_p_is_r, "denote the result"},
		{&tt_op_linear, broken_p_is_r, "denote the result"},	   {&tt_op_linear, broken_i_column, "backward is not"},
		{&tt_op_linear, broken_bias, "denote the result"},	   {&tt_op_linear_dw, broken_p_is_r, "denote the result"},
		{&tt_op_rms_norm, broken_norm, "denote the result"},	   {&tt_op_rms_norm, broken_i_norm, "backward is not"},
		{&tt_op_attention, broken_kv, "lines of K/V are missing"}, {&tt_op_rope, broken_table, "no node to run"},
		{&tt_op_silu_mul, broken_s_is_p, "denote the result"},	   {&tt_op_add, broken_add, "denote the result"},
		{&tt_op_round, broken_round, "denote the result"},	   {&tt_op_split_tokens, broken_s_is_p, "denote the result"},
		{&tt_op_row_max, broken_p_is_r, "denote the result"},	   {&tt_op_sum_exp, broken_p_is_r, "denote the result"},
		{&tt_op_nll, broken_nll, "gradient of input 0"},				   {&tt_op_total, broken_p_is_r, "denote the result"},
		{&tt_op_accumulate, broken_add, "denote the result"},	   {&tt_op_square_sum, broken_p_is_r, "denote the result"},
		{&tt_op_linear, broken_fine, "denote the result"},	   {&tt_op_linear_dw, broken_fine, "denote the result"},
		{&tt_op_rope, broken_fine, "no node to run"},		   {&tt_op_attention_merge, broken_fine, "denote the result"},
		{&tt_op_add, broken_fine, "no node to run"},
		{&tt_op_silu_mul, broken_strict, "does not say"},
	};
	for (int i = 0; i < TT_COUNT(broken); i++) {
		int64_t hits[TT_COUNT(patterns)] = {0};
		tt_op op = *broken[i].op;
		op.spmd = broken[i].rule;
		shard_bench b = {.t = t, .a = t->arena, .quiet = true};
		enumerate(&b, broken[i].op, &op, hits);
		TT_CHECK_MSG(t, b.failures > 0 && strstr(b.text, broken[i].text), "a broken rule of %s is not found for what it is (row %d): %s", op.name, i,
			     b.failures ? b.text : "nothing found");
	}
}

const tt_case tt_suite_layout[] = {
	{"enumerate", case_enumerate, TT_TIER_QUICK},
	{"enumerate_join", case_enumerate_join, TT_TIER_CI},
	{"maxima", case_maxima, TT_TIER_QUICK},
	{"chunks", case_chunks, TT_TIER_QUICK},
	{"conversions", case_conversions, TT_TIER_QUICK},
	{"fine", case_fine, TT_TIER_QUICK},
	{"broken_rules_are_found", case_broken, TT_TIER_QUICK},
	{0},
};
