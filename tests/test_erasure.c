/* erasure: a typed graph of 2 ranks, forward and backward, without its conversions is the graph of one rank, text for text (DESIGN 1).
 *
 * The model is a decoder with all that parallelism touches: embedding, norms, attention with rope and grouped heads, biased and
 * unbiased row products, a gated MLP, a loss in chunks of tokens. A plan says where its values lie on one mesh axis of 2 ranks; on one
 * rank it is written with the builders that models use, which know of no conversions.
 */
#include "ops/ops.h"
#include "test.h"

#include <stdio.h>

enum { T = 12, D = 8, K = 4, Q = 4, G = 2, F = 12, V = 16, LAYERS = 2, CHUNKS = 2 };

typedef enum plan { ONE_RANK, DATA, FSDP, TENSOR, SEQUENCE, CONTEXT } plan;
static const char *const kind_name[] = {"one rank", "data parallel", "fully sharded data parallel", "tensor parallel", "sequence parallel",
					"context parallel"};

typedef enum wrong {
	NONE,
	NO_I_TO_R,     /* a column product of an I value                                      */
	ROW_NOT_TAKEN, /* the P of a row product goes on                                      */
	ROW_TO_NORM,   /* the acc of a row product meets a norm                               */
	BIAS_EACH,     /* a bias on every rank beside a sharded contraction                   */
	R_FOR_I,       /* a value for different work joins the residual stream of same work    */
	ROUTER_R,      /* a weight that is R used on an I value                               */
	NORM_I,        /* a norm weight that is I under sequence parallelism                  */
	NORM_AFTER_R,  /* right forward: the gradient of the norm's output is P and not taken */
	KV_CUT,        /* K/V of this rank's tokens alone under context parallelism           */
	EXTRA_ADD,     /* another model: for the comparison                                   */
} wrong;

typedef struct model {
	tt_graph *g;
	plan kind;
	wrong fault;
	tt_dtype val; /* of activations: f32, or bf16 with weights cast for use in PREP */
	tt_v rope, ids, labels, seed, loss;
	tt_seqs seqs;
} model;

static tt_axis_type at(tt_type t, int d) { return (tt_axis_type){.type = (uint8_t)t, .dim = (int8_t)d}; }
static bool by_heads(const model *m) { return m->kind == TENSOR || m->kind == SEQUENCE; }
static bool by_tokens(const model *m) { return m->kind == DATA || m->kind == FSDP || m->kind == CONTEXT; }

/* A conversion where the plan has one: none on one rank. */
static tt_v to(const model *m, tt_v x, tt_type type, int d)
{
	return m->kind == ONE_RANK ? x : tt_convert(m->g, x, "x", type, d);
}

static tt_v placed(const model *m, tt_v v, tt_axis_type x)
{
	tt_layout l = tt_layout_all(TT_R);
	l.ax[0] = x;
	if (m->kind != ONE_RANK)
		tt_value_set_layout(m->g, v, l);
	return v;
}

/* A parameter that lies as `x` on a tensor axis; on others R, or S(0). */
static tt_v stored(const model *m, const char *name, int ndim, const tt_dim *dims, tt_axis_type x)
{
	const char *full = tt_arena_printf(m->g->arena, "%s%s%s", m->g->scope, m->g->scope[0] ? "." : "", name);
	tt_graph *g = m->g;
	tt_v w = tt_state_new(g, full, TT_REGION_PARAM, TT_F32, ndim, dims, true);
	placed(m, w, by_heads(m) ? x : m->kind == FSDP ? at(TT_S, 0) : at(TT_R, 0));
	if (m->val == TT_F32)
		return w;
	tt_v use = tt_state_derived(g, w, "bf16", TT_BF16, TT_PLAIN);
	tt_segment seg = g->seg;
	g->seg = TT_SEG_PREP;
	tt_state_set(g, use, tt_cast(g, w, TT_BF16, tt_arena_printf(g->arena, "=%s:bf16+", full)));
	g->seg = seg;
	return use;
}

/* Gathered where it is used: each use gives its gradient back for itself, so a term is added to the accumulator as on one rank. */
static tt_v used(const model *m, tt_v w) { return m->kind == FSDP ? to(m, w, TT_R, 0) : w; }

static tt_v weight(const model *m, const char *name, int ndim, const tt_dim *dims, tt_axis_type x)
{
	return used(m, stored(m, name, ndim, dims, x));
}

static tt_dim dim_d(void) { return tt_dim_of(TT_D, D, 1); }
static tt_dim dim_f(void) { return tt_dim_of(TT_FFN, F, 1); }
static tt_dim dim_v(void) { return tt_dim_of(TT_VOCAB, V, 1); }
static tt_dim dim_kv(void) { return tt_dim_of(TT_KV_HEADS, G * K, K); }
static tt_dim dim_q(void)
{
	tt_dim d = tt_dim_of(TT_HEADS, Q * K, K);
	d.group = Q / G;
	return d;
}

static tt_v column(const model *m, const char *name, tt_v x, tt_dim out, bool bias)
{
	int scope = tt_scope_push(m->g, "%s", name);
	tt_v w = weight(m, "weight", 2, (tt_dim[]){out, dim_d()}, at(TT_S, 0)), b = bias ? weight(m, "bias", 1, &out, at(TT_S, 0)) : 0;
	tt_v y = tt_linear(m->g, x, w, b, "y");
	tt_scope_pop(m->g, scope);
	return y;
}

/* Taken from P into what the residual stream is. */
static tt_v taken(const model *m, tt_v acc)
{
	if (m->fault == ROW_NOT_TAKEN || !by_heads(m))
		return acc;
	return to(m, acc, m->kind == TENSOR ? TT_I : TT_S, 0);
}

static tt_v row(const model *m, const char *name, tt_v x, tt_dim in, bool bias)
{
	tt_graph *g = m->g;
	int scope = tt_scope_push(g, "%s", name);
	tt_dim d = dim_d();
	tt_v w = weight(m, "weight", 2, (tt_dim[]){d, in}, at(TT_S, 1)), b = 0, y;
	if (bias && by_heads(m)) { /* counted once: P, zero but on one rank */
		b = weight(m, "bias", 1, &d, at(m->kind == TENSOR ? TT_I : TT_R, 0));
		if (m->fault != BIAS_EACH)
			b = to(m, b, TT_P, 0);
	} else if (bias) {
		b = weight(m, "bias", 1, &d, at(TT_R, 0));
	}
	if (m->fault == ROW_TO_NORM)
		y = tt_rms_norm(g, tt_linear_acc(g, x, w, b, "acc"), weight(m, "norm", 1, &d, at(TT_R, 0)), 1e-5, "y");
	else
		y = m->kind == ONE_RANK ? tt_linear(g, x, w, b, "y") : tt_round(g, taken(m, tt_linear_acc(g, x, w, b, "acc")), m->val, "y");
	tt_scope_pop(g, scope);
	return y;
}

static tt_v norm(const model *m, const char *name, tt_v x)
{
	int scope = tt_scope_push(m->g, "%s", name);
	tt_dim d = dim_d();
	tt_type t = m->kind == TENSOR || m->fault == NORM_I ? TT_I : TT_R;
	if (m->fault == NORM_AFTER_R)
		t = TT_R, x = to(m, x, TT_R, 0);
	tt_v y = tt_rms_norm(m->g, x, weight(m, "weight", 1, &d, at(t, 0)), 1e-5, "y");
	tt_scope_pop(m->g, scope);
	return y;
}

/* Whole lines for a column product. */
static tt_v gathered(const model *m, tt_v x)
{
	return by_heads(m) && m->fault != NO_I_TO_R && m->fault != NORM_AFTER_R ? to(m, x, TT_R, 0) : x;
}

static tt_v attention(const model *m, tt_v x)
{
	tt_graph *g = m->g;
	int scope = tt_scope_push(g, "attn");
	x = gathered(m, x);
	tt_v q = tt_rope(g, column(m, "q", x, dim_q(), true), m->rope, K, "q"), k = tt_rope(g, column(m, "k", x, dim_kv(), true), m->rope, K, "k");
	tt_v v = column(m, "v", x, dim_kv(), false);
	if (m->kind == CONTEXT && m->fault != KV_CUT)
		k = to(m, k, TT_R, 0), v = to(m, v, TT_R, 0);
	tt_attr_attention a = {.head_dim = K, .v_head_dim = K, .group = Q / G, .scale = 0.5};
	tt_v y = row(m, "o", tt_attention(g, q, k, v, &m->seqs, &a, "o"), dim_q(), true);
	tt_scope_pop(g, scope);
	return y;
}

static tt_v mlp(const model *m, tt_v x)
{
	tt_graph *g = m->g;
	int scope = tt_scope_push(g, "mlp");
	x = gathered(m, x);
	tt_v gate = column(m, "gate", x, dim_f(), false), up = column(m, "up", x, dim_f(), false);
	tt_v y = row(m, "down", tt_silu_mul(g, gate, up, "act"), dim_f(), false);
	tt_scope_pop(g, scope);
	return y;
}

static tt_v embedding(const model *m)
{
	tt_dim vd[] = {dim_v(), dim_d()};
	tt_v w = weight(m, "embed", 2, vd, at(TT_S, 0));
	if (m->kind == ONE_RANK)
		return tt_embedding(m->g, m->ids, w, "h");
	tt_attr_vocab a = {0, V};
	return tt_round(m->g, taken(m, tt_node_add(m->g, &tt_op_embedding, &a, 2, (tt_v[]){m->ids, w}, NULL)), m->val, "h");
}

/* tt_token_loss with its reductions over a sharded vocabulary. */
static tt_v token_loss(const model *m, tt_v logits, tt_v labels)
{
	tt_graph *g = m->g;
	if (!by_heads(m))
		return tt_token_loss(g, logits, labels);
	int64_t edges[9];
	tt_dim v = dim_v();
	tt_segments_deal(&v, edges);
	tt_attr_sum_exp se = {{9, edges}};
	tt_attr_vocab vocab = {0, V};
	tt_v max = to(m, tt_node_add(g, &tt_op_row_max, NULL, 1, &logits, NULL), TT_I, 0);
	tt_v sum = tt_node_add(g, &tt_op_sum_exp, &se, 2, (tt_v[]){logits, to(m, max, TT_R, 0)}, NULL);
	sum = tt_round(g, to(m, sum, TT_I, 0), TT_F32, "sum_exp.y");
	tt_v target = tt_node_add(g, &tt_op_pick, &vocab, 2, (tt_v[]){logits, labels}, NULL);
	target = tt_round(g, to(m, target, TT_I, 0), TT_F32, "target.y");
	tt_v lse = tt_node_add(g, &tt_op_lse, NULL, 2, (tt_v[]){max, sum}, NULL);
	return tt_node_add(g, &tt_op_nll, &vocab, 4, (tt_v[]){logits, labels, lse, target}, NULL);
}

static tt_v tokens_input(const model *m, const char *name, tt_axis_type x)
{
	tt_dim t = tt_dim_of(TT_TOKENS, T, 1);
	return placed(m, tt_input(m->g, name, TT_I32, TT_NODTYPE, 1, &t), x);
}

static tt_graph *forward(tt_test *t, plan kind, wrong fault, tt_dtype val)
{
	tt_mesh mesh = {1, {{"x", 2, kind == DATA || kind == FSDP}}};
	tt_graph *g = tt_graph_new(t->arena, kind == ONE_RANK ? NULL : &mesh, false);
	model m = {.g = g, .kind = kind, .fault = fault, .val = val};
	tt_axis_type tok = at(by_tokens(&m) ? TT_S : TT_R, 0);
	tt_dim one = tt_dim_of(TT_ONE, 1, 1), seqs = tt_dim_of(TT_SEQS, T + 1, 1);
	m.ids = tokens_input(&m, "ids", tok);
	m.labels = tokens_input(&m, "labels", tok);
	m.seqs.positions = tokens_input(&m, "positions", tok);
	m.seqs.seq_ids = tokens_input(&m, "seq_ids", tok);
	m.seqs.seq_table = tt_input(g, "seq_table", TT_I32, TT_NODTYPE, 1, &seqs);
	m.seqs.lines = tokens_input(&m, "lines", kind == CONTEXT ? at(TT_R, 0) : tok);
	/* the loss is a sum over ranks' tokens, or the same work on ranks that share the vocabulary */
	m.seed = placed(&m, tt_input(g, "inv_valid", TT_F32, TT_NODTYPE, 1, &one), at(by_heads(&m) ? TT_I : TT_R, 0));
	m.loss = placed(&m, tt_state_new(g, "loss_sum", TT_REGION_GRAD, TT_ACC, 1, &one, false), at(by_heads(&m) ? TT_I : TT_P, 0));
	const double freq[] = {1, 0.1};
	m.rope = tt_rope_table(g, m.seqs.positions, freq, 2, 1);
	tt_v x = embedding(&m);
	for (int l = 0; l < LAYERS; l++) {
		int scope = tt_scope_push(g, "layers.%d", l);
		tt_v h = attention(&m, norm(&m, "norm1", x));
		if (fault == R_FOR_I)
			h = to(&m, h, TT_R, 0);
		if (fault == ROUTER_R) {
			tt_dim dd[] = {tt_dim_of(TT_EXPERTS, 4, 1), dim_d()};
			tt_linear(g, x, weight(&m, "router", 2, dd, at(TT_R, 0)), 0, "scores");
		}
		x = tt_add(g, x, h, "h");
		x = tt_add(g, x, mlp(&m, norm(&m, "norm2", x)), "y");
		if (fault == EXTRA_ADD && l == 1)
			x = tt_add(g, x, x, "twice");
		tt_scope_pop(g, scope);
	}
	x = gathered(&m, norm(&m, "norm", x));
	tt_dim vd[] = {dim_v(), dim_d()};
	tt_v head = stored(&m, "head", 2, vd, at(TT_S, 0));
	tt_v hidden = tt_split_tokens(g, x, CHUNKS, "hidden"), labels = tt_split_tokens(g, m.labels, CHUNKS, "labels.chunk"), now = m.loss;
	for (int i = 0; i < CHUNKS && hidden && labels; i++) {
		int scope = tt_scope_push(g, "loss.%d", i);
		g->seg = TT_SEG_B;
		g->group = 1 + i;
		tt_v total = tt_total(g, token_loss(&m, tt_linear_stat(g, tt_out(hidden, i), used(&m, head), "logits"), tt_out(labels, i)), "sum");
		tt_graph_root(g, total, m.seed);
		now = tt_accumulate(g, now, total, i == 0);
		tt_scope_pop(g, scope);
	}
	tt_state_set(g, m.loss, now);
	return g;
}

static char *text_of(tt_test *t, const tt_graph *g)
{
	tt_buf b = {0};
	tt_graph_print(g, &b);
	char *s = tt_arena_strdup(t->arena, b.s ? b.s : "");
	tt_buf_fini(&b);
	return s;
}

/* The first line in which two texts differ, as "a | b"; NULL if they are equal. */
static const char *difference(tt_test *t, const char *a, const char *b)
{
	for (;;) {
		size_t na = strcspn(a, "\n"), nb = strcspn(b, "\n");
		if (na != nb || memcmp(a, b, na))
			return tt_arena_printf(t->arena, "%.*s | %.*s", (int)na, a, (int)nb, b);
		if (!a[na] || !b[nb])
			return a[na] == b[nb] ? NULL : "one text ends before the other";
		a += na + 1, b += nb + 1;
	}
}

static tt_graph *trained(tt_test *t, plan k, wrong f, tt_dtype val)
{
	tt_graph *fwd = forward(t, k, f, val), *out = NULL;
	if (!TT_CHECK_OK(t, tt_graph_check(fwd)) || !TT_CHECK_OK(t, tt_autodiff(fwd, &tt_autodiff_builders, t->arena, &out)))
		return NULL;
	TT_CHECK_OK(t, tt_graph_verify(out, "erasure"));
	return out;
}

static int conversions(const tt_graph *g, tt_segment seg)
{
	int n = 0;
	for (int64_t i = 0; i < g->nnodes; i++)
		n += g->nodes[i].op == &tt_op_convert && g->nodes[i].seg == seg && g->nodes[i].group == 0;
	return n;
}

static void check_dtype(tt_test *t, plan k, tt_dtype val)
{
	tt_graph *one = trained(t, ONE_RANK, NONE, val), *two = trained(t, k, NONE, val);
	if (!one || !two)
		return;
	tt_graph *erased = tt_graph_erase(two, t->arena);
	if (!TT_CHECK_OK(t, tt_graph_verify(erased, "erase")))
		return;
	const char *want = text_of(t, one), *d = difference(t, text_of(t, erased), want);
	TT_CHECK_MSG(t, !d, "%s, conversions erased, is not the graph of one rank: %s", kind_name[k], d);
	TT_CHECK(t, tt_graph_hash(erased) == tt_graph_hash(one));
	/* something was there to erase, forward and backward; plain data parallelism has nothing but types */
	TT_CHECK(t, difference(t, text_of(t, two), want) != NULL);
	TT_CHECK((t), (k == DATA) == (conversions(two, TT_SEG_F) == 0) && (k == DATA) == (conversions(two, TT_SEG_B) == 0));
	/* gradients lie as the duals say */
	for (int64_t i = 0; i < two->nstates; i++) {
		const tt_value *w = tt_value_get(two, two->states[i].value);
		if (!two->states[i].trainable || two->states[i].source >= 0)
			continue;
		tt_v grad = tt_value_find(two, tt_arena_printf(t->arena, "grad.%s", w->name));
		bool has;
		if (TT_CHECK_MSG(t, grad != 0, "%s: no gradient", w->name))
			TT_CHECK(t, tt_axis_type_eq(tt_value_get(two, grad)->layout.ax[0], tt_axis_type_dual(w->layout.ax[0], &has)));
	}
	/* a planted difference is seen */
	tt_graph *other = trained(t, k, EXTRA_ADD, val);
	if (other)
		TT_CHECK(t, difference(t, text_of(t, tt_graph_erase(other, t->arena)), want) != NULL);
}

static void check_plan(tt_test *t, plan k)
{
	check_dtype(t, k, TT_F32);
	check_dtype(t, k, TT_BF16);
}

static void case_data(tt_test *t) { check_plan(t, DATA); }
static void case_fsdp(tt_test *t) { check_plan(t, FSDP); }
static void case_tensor(tt_test *t) { check_plan(t, TENSOR); }
static void case_sequence(tt_test *t) { check_plan(t, SEQUENCE); }
static void case_context(tt_test *t) { check_plan(t, CONTEXT); }

/* A graph that is wrong is refused before anything runs, and says where and what would do. */
static void case_refused(tt_test *t)
{
	static const struct { plan kind; wrong fault; bool backward; const char *part; } bad[] = {
		{TENSOR, NO_I_TO_R, false, "layers.0.attn.q: linear: input 0, layers.0.norm1.y, on axis x: has I, needs R, as it meets layers.0.attn.q.weight "
					   "sharded along 'o'"},
		{TENSOR, ROW_NOT_TAKEN, false, "embedding, on axis x: has P, a sum not yet taken: convert it (P to R, I or S) before round"},
		{TENSOR, ROW_TO_NORM, false, "layers.0.attn.o: rms_norm: layers.0.attn.o.acc is acc, needs f32, bf16 or f64 (round it first)"},
		{SEQUENCE, BIAS_EACH, false, "layers.0.attn.o: linear: input 2, layers.0.attn.o.bias, on axis x: has R, needs P beside a sharded contraction "
					     "(convert it: R to P), else it is added once per rank"},
		{TENSOR, BIAS_EACH, false, "layers.0.attn.o: linear: input 2, layers.0.attn.o.bias, on axis x: has I, needs P beside a sharded contraction"},
		{TENSOR, R_FOR_I, false, "layers.0: add: input 1, layers.0.attn.o.y>x.R, on axis x: has R, needs I"},
		{TENSOR, ROUTER_R, false, "layers.0: linear: input 1, layers.0.router, on axis x: has R, needs I (I mixes with nothing) like h"},
		{SEQUENCE, NORM_I, false, "layers.0.norm1: rms_norm: input 1, layers.0.norm1.weight, on axis x: has I, needs R, as it meets h sharded along 't'"},
		{CONTEXT, KV_CUT, false, "layers.0.attn: attention: input 1, layers.0.attn.k, on axis x: has S(0), needs R where q is sharded by tokens and its "
					 "sequences are cut (gather K/V)"},
		{TENSOR, NORM_AFTER_R, true, "a sum not yet taken: convert it"},
	};
	for (int i = 0; i < TT_COUNT(bad); i++) {
		tt_graph *g = forward(t, bad[i].kind, bad[i].fault, TT_F32), *out;
		tt_status s = tt_graph_check(g);
		if (bad[i].backward) {
			if (TT_CHECK_OK(t, s))
				TT_CHECK_FAILS(t, tt_autodiff(g, &tt_autodiff_builders, t->arena, &out), TT_ERR_TYPE, bad[i].part);
		} else {
			TT_CHECK_FAILS(t, s, TT_ERR_TYPE, bad[i].part);
		}
	}
}

const tt_case tt_suite_erasure[] = {
	{"data_parallel", case_data, TT_TIER_QUICK},
	{"fsdp", case_fsdp, TT_TIER_QUICK},
	{"tensor_parallel", case_tensor, TT_TIER_QUICK},
	{"sequence_parallel", case_sequence, TT_TIER_QUICK},
	{"context_parallel", case_context, TT_TIER_QUICK},
	{"wrong_graphs_are_refused", case_refused, TT_TIER_QUICK},
	{0},
};
