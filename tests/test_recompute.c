/* recompute: what F keeps for B is what the mode says, what is made again is made late and once, and no mode changes a bit. */
#include "tiny.h"

#include <stdio.h>

enum { STEPS = 5, T = 64 };

static const struct { const char *what; tt_recompute r; } MODES[] = {
	{ "selective by op", { .mode = TT_RECOMPUTE_SELECTIVE } },
	{ "every second layer", { .mode = TT_RECOMPUTE_SELECTIVE, .every = 2 } },
	{ "full", { .mode = TT_RECOMPUTE_FULL } },
	{ "half of the bytes", { .mode = TT_RECOMPUTE_BUDGET, .budget = 0.5 } },
};

static tt_llama_config model_of(int layers)
{
	tt_llama_config m = tiny_model(VOCAB);
	m.num_hidden_layers = layers;
	return m;
}

/* Forward and backward, before any other pass. `change`, if given, is shown the model's graph first. */
static tt_graph *graph_of(tt_test *t, int layers, tt_dtype compute, void (*change)(tt_test *t, tt_graph *g))
{
	tt_model_options o = { .compute = compute, .t_max = T, .seqs_max = T, .loss_chunks = 2, .context_length = T };
	tt_llama_config m = model_of(layers);
	tt_builder *b;
	tt_graph *g = NULL;
	if (!TT_CHECK_OK(t, tt_llama_build(t->arena, &m, &o, &b)))
		return NULL;
	if (change)
		change(t, b->g);
	return TT_CHECK_OK(t, tt_autodiff(b->g, &tt_autodiff_builders, t->arena, &g)) ? g : NULL;
}

static tt_graph *passed(tt_test *t, const tt_graph *g, tt_recompute r, tt_recompute_report *said)
{
	tt_graph *out = NULL;
	return g && TT_CHECK_OK(t, tt_pass_recompute(g, &r, t->arena, &out, said)) ? out : NULL;
}

/* Names of the first outputs of what is made again, under `scope`, in order. */
static const char *again_under(tt_test *t, const tt_graph *g, const char *scope)
{
	tt_buf b = { 0 };
	size_t n = strlen(scope);
	for (int64_t i = 0; i < g->nnodes; i++) {
		const char *name = g->values[g->nodes[i].out[0]].name, *end = strstr(name, ".again");
		if (end && !strncmp(name, scope, n) && TT_CHECK(t, g->nodes[i].seg == TT_SEG_B))
			tt_buf_printf(&b, "%s%.*s", b.n ? " " : "", (int)(end - name - (long)n), name + n);
	}
	const char *s = tt_arena_strdup(t->arena, b.s ? b.s : "");
	tt_buf_fini(&b);
	return s;
}

/* Half as wide, for slow kernels. */
static void narrow(tt_run_options *o)
{
	o->model.hidden_size = 32;
	o->model.head_dim = 8;
	o->model.intermediate_size = 48;
}

/* ---- bits ---------------------------------------------------------------------------------------------------------------------------- */

static void same_bits(tt_test *t, tt_run_options o, const char *what)
{
	tiny_end want, got;
	o.exec.fill_nan = true;
	if (!tiny_run(t, &o, STEPS, &want))
		return;
	for (int i = 0; i < TT_COUNT(MODES); i++) {
		tt_run_options p = o;
		p.recompute = MODES[i].r;
		if (tiny_run(t, &p, STEPS, &got))
			tiny_same(t, &want, &got, tt_arena_printf(t->arena, "%s, %s, %s", what, tt_dtype_name(o.compute), MODES[i].what));
	}
	o.optim.lr *= 1.001; /* the comparison sees a difference */
	if (tiny_run(t, &o, STEPS, &got))
		TT_CHECK(t, tiny_differs(t->arena, &want, &got) != NULL);
}

static tt_run_options options(tt_test *t, tt_dtype compute)
{
	tt_run_options o = tiny_options(model_of(3), tiny_rows(t->arena, ROWS * STEPS, CONTEXT, VOCAB, 3), CONTEXT, ROWS);
	o.compute = compute;
	o.exec.isa = tiny_isa(t);
	o.tokens_per_microbatch = 3 * CONTEXT; /* two of a step, the last of two rows */
	return o;
}

static void case_bits_fast(tt_test *t)
{
	for (int compute = TT_F32; compute <= TT_BF16; compute++) {
		tt_run_options o = options(t, (tt_dtype)compute);
		o.exec.kernels_ref = false;
		same_bits(t, o, "fast kernels");
		o.exec.kernels_ref = true;
		o.exec.threads = 2;
		narrow(&o);
		same_bits(t, o, "reference kernels, 2 threads");
	}
}

static void case_bits_models(tt_test *t)
{
	for (int compute = TT_F32; compute <= TT_BF16; compute++)
		for (int chunks = 1; chunks <= 5; chunks += 4) {
			tt_run_options o = options(t, (tt_dtype)compute);
			o.exec.kernels_ref = false;
			o.loss_chunks = chunks;
			o.model.num_hidden_layers = 2;
			o.model.tie_word_embeddings = true;
			same_bits(t, o, "tied embeddings");
			o.model.sliding_window = 7;
			o.model.attention_bias = o.model.mlp_bias = true;
			o.model.num_key_value_heads = 1;
			same_bits(t, o, "window, biases, one kv head");
		}
}

static void case_bits_exact(tt_test *t)
{
	for (int compute = TT_F32; compute <= TT_BF16; compute++) {
		tt_run_options o = options(t, (tt_dtype)compute);
		o.exec.numerics = TT_EXACT;
		o.data.tokens_per_step = 2 * CONTEXT;
		o.tokens_per_microbatch = CONTEXT;
		narrow(&o);
		same_bits(t, o, "exact");
	}
}

static void case_bits_double(tt_test *t)
{
	tt_run_options o = options(t, TT_F64);
	o.exec.f64 = true;
	narrow(&o);
	same_bits(t, o, "double");
}

/* ---- what is kept ------------------------------------------------------------------------------------------------------------------------ */

static void case_none(tt_test *t)
{
	tt_graph *g = graph_of(t, 3, TT_BF16, NULL), *out;
	tt_recompute_report r;
	if (!(out = passed(t, g, (tt_recompute){ .mode = TT_RECOMPUTE_NONE }, &r)))
		return;
	TT_CHECK(t, tt_graph_hash(out) == tt_graph_hash(g) && r.kept == r.none && r.nodes == 0 && r.again == 0 && r.none > 0);
}

static void case_full(tt_test *t)
{
	for (int compute = TT_F32; compute <= TT_BF16; compute++) {
		tt_graph *g = graph_of(t, 3, (tt_dtype)compute, NULL), *out;
		tt_recompute_report r;
		if (!(out = passed(t, g, (tt_recompute){ .mode = TT_RECOMPUTE_FULL }, &r)))
			return;
		/* The embedding, three layers' results, the normed last one, its rstd, and the rope table of heads of 16. */
		int64_t size = compute == TT_F32 ? 4 : 2;
		TT_CHECK_INT(t, r.kept, 5 * T * 64 * size + T * 4 + T * 16 * 4);
		TT_CHECK(t, r.again > 0.5 * r.forward && r.again < 0.95 * r.forward);
		/* All but the last product, whose result is the next layer's input, in the order of first need. */
		const char *want = "input_layernorm.y self_attn.q_proj.y self_attn.q self_attn.k_proj.y self_attn.k self_attn.v_proj.y self_attn.o "
				   "self_attn.o_proj.acc self_attn.o_proj.y h post_attention_layernorm.y mlp.gate_proj.y mlp.up_proj.y mlp.act";
		for (int l = 0; l < 3; l++)
			TT_CHECK_STR(t, again_under(t, out, tt_arena_printf(t->arena, "model.layers.%d.", l)), want);
		/* "every layer" is the same, "every second" makes the second of three again. */
		tt_graph *picked = passed(t, g, (tt_recompute){ .mode = TT_RECOMPUTE_SELECTIVE, .every = 1 }, NULL);
		TT_CHECK(t, picked && tt_graph_hash(picked) == tt_graph_hash(out));
		picked = passed(t, g, (tt_recompute){ .mode = TT_RECOMPUTE_SELECTIVE, .every = 2 }, NULL);
		if (picked) {
			TT_CHECK_STR(t, again_under(t, picked, "model.layers.0."), "");
			TT_CHECK_STR(t, again_under(t, picked, "model.layers.1."), want);
			TT_CHECK_STR(t, again_under(t, picked, "model.layers.2."), "");
		}
	}
}

/* Attention and the first, third.. product are kept: q, v, gate; k, o and up are made again. */
static void case_selective(tt_test *t)
{
	tt_graph *out = passed(t, graph_of(t, 2, TT_F32, NULL), (tt_recompute){ .mode = TT_RECOMPUTE_SELECTIVE }, NULL);
	const char *want = "self_attn.o_proj.acc self_attn.o_proj.y h post_attention_layernorm.y mlp.up_proj.y mlp.act self_attn.q input_layernorm.y "
			   "self_attn.k_proj.y self_attn.k";
	for (int l = 0; out && l < 2; l++)
		TT_CHECK_STR(t, again_under(t, out, tt_arena_printf(t->arena, "model.layers.%d.", l)), want);
}

/* The op of silu_mul, but of a choice that must not be made twice; and a norm weight that F writes. */
static void bind(tt_test *t, tt_graph *g)
{
	tt_op *op = TT_NEW(t->arena, tt_op);
	memcpy(op, &tt_op_silu_mul, sizeof *op);
	op->keep = TT_KEEP_ALWAYS;
	for (int64_t i = 0; i < g->nnodes; i++)
		if (g->nodes[i].op == &tt_op_silu_mul)
			g->nodes[i].op = op;
	tt_v w = tt_value_find(g, "model.layers.1.post_attention_layernorm.weight");
	g->seg = TT_SEG_F;
	tt_state_set(g, w, tt_fill_const(g, w, 0.5));
}

static void case_fixed(tt_test *t)
{
	static const tt_recompute BOTH[] = { { .mode = TT_RECOMPUTE_FULL }, { .mode = TT_RECOMPUTE_SELECTIVE } };
	for (int i = 0; i < 2; i++) {
		tt_graph *out = passed(t, graph_of(t, 2, TT_F32, bind), BOTH[i], NULL);
		if (!out)
			return;
		const char *first = again_under(t, out, "model.layers.0."), *second = again_under(t, out, "model.layers.1.");
		TT_CHECK_MSG(t, !strstr(first, "mlp.act") && strstr(first, "mlp.up_proj.y") && strstr(first, "post_attention_layernorm.y"), "%s", first);
		TT_CHECK_MSG(t, !strstr(second, "mlp.act") && strstr(second, "mlp.up_proj.y") && !strstr(second, "post_attention_layernorm.y"), "%s", second);
	}
}

/* ---- the budget ---------------------------------------------------------------------------------------------------------------------------- */

static void case_budget(tt_test *t)
{
	tt_graph *g = graph_of(t, 6, TT_BF16, NULL);
	tt_recompute_report full, selective, r, last = { 0 };
	if (!g || !TT_CHECK_OK(t, tt_recompute_measure(g, &(tt_recompute){ .mode = TT_RECOMPUTE_FULL }, t->arena, &full)) ||
	    !TT_CHECK_OK(t, tt_recompute_measure(g, &(tt_recompute){ .mode = TT_RECOMPUTE_SELECTIVE }, t->arena, &selective)))
		return;
	for (int k = 15; k <= 100; k += 5) {
		tt_recompute o = { .mode = TT_RECOMPUTE_BUDGET, .budget = k / 100.0 };
		if (!TT_CHECK_OK(t, tt_recompute_measure(g, &o, t->arena, &r)))
			continue;
		double budget = o.budget * (double)r.none;
		TT_CHECK_MSG(t, (double)r.kept <= budget && (double)r.kept > 0.95 * budget, "%d%%: %lld kept of %.0f", k, (long long)r.kept, budget);
		TT_CHECK_MSG(t, k == 15 || (r.again < last.again && r.kept > last.kept), "%d%%: made again %g, before %g", k, r.again, last.again);
		o.budget_bytes = (int64_t)budget;
		o.budget = 0;
		last = r;
		if (TT_CHECK_OK(t, tt_recompute_measure(g, &o, t->arena, &r)))
			TT_CHECK(t, r.kept == last.kept && r.again == last.again);
	}
	TT_CHECK(t, last.nodes == 0 && last.kept == last.none); /* all of it: nothing is made again */
	/* For the same bytes it does no more than the table's choice; for the least, what `full` does. */
	if (TT_CHECK_OK(t, tt_recompute_measure(g, &(tt_recompute){ .mode = TT_RECOMPUTE_BUDGET, .budget_bytes = selective.kept }, t->arena, &r)))
		TT_CHECK_MSG(t, r.again <= selective.again, "budget %g, selective %g", r.again, selective.again);
	if (TT_CHECK_OK(t, tt_recompute_measure(g, &(tt_recompute){ .mode = TT_RECOMPUTE_BUDGET, .budget_bytes = full.kept }, t->arena, &r)))
		TT_CHECK(t, r.kept == full.kept && r.again == full.again);
	r.kept = -7;
	TT_CHECK_FAILS(t, tt_recompute_measure(g, &(tt_recompute){ .mode = TT_RECOMPUTE_BUDGET, .budget_bytes = full.kept - 1 }, t->arena, &r), TT_ERR_USAGE,
		"activation_checkpoint.memory_budget_mib allows");
	TT_CHECK_FAILS(t, tt_recompute_measure(g, &(tt_recompute){ .mode = TT_RECOMPUTE_BUDGET, .budget = 0.01 }, t->arena, &r), TT_ERR_USAGE,
		tt_arena_printf(t->arena, "the least possible is %.1f MiB, that is %.3f (mode \"full\")", (double)full.kept / (double)TT_MIB,
			(double)full.kept / (double)full.none));
	TT_CHECK(t, r.kept == -7);
}

/* ---- memory ---------------------------------------------------------------------------------------------------------------------------------- */

static bool planned(tt_test *t, int layers, tt_recompute r, int64_t *frame, int64_t *work)
{
	tt_run_options o = options(t, TT_BF16);
	o.model = model_of(layers);
	o.tokens_per_microbatch = ROWS * CONTEXT;
	o.recompute = r;
	tt_trainer *tr = NULL;
	if (!TT_CHECK_OK(t, tt_trainer_create(&o, &tr)))
		return false;
	*frame = tt_exec_planned(tt_trainer_exec(tr), TT_REGION_FRAME);
	*work = tt_exec_planned(tt_trainer_exec(tr), TT_REGION_WORK);
	tt_trainer_destroy(tr);
	return true;
}

static void case_memory(tt_test *t)
{
	tt_llama_config m = model_of(8);
	tt_model_options o = { .compute = TT_BF16, .t_max = ROWS * CONTEXT, .seqs_max = ROWS * CONTEXT, .loss_chunks = 2, .context_length = CONTEXT };
	tt_builder *b;
	tt_graph *g;
	if (!TT_CHECK_OK(t, tt_llama_build(t->arena, &m, &o, &b)) || !TT_CHECK_OK(t, tt_autodiff(b->g, &tt_autodiff_builders, t->arena, &g)))
		return;
	int64_t frame, work, work2, none_frame, none_work;
	if (!planned(t, 8, (tt_recompute){ .mode = TT_RECOMPUTE_NONE }, &none_frame, &none_work))
		return;
	for (int i = 0; i < TT_COUNT(MODES); i++) {
		tt_recompute_report r;
		if (!TT_CHECK_OK(t, tt_recompute_measure(g, &MODES[i].r, t->arena, &r)) || !planned(t, 8, MODES[i].r, &frame, &work))
			return;
		TT_CHECK_MSG(t, r.none == none_frame && r.kept == frame, "%s: said %lld of %lld, planned %lld of %lld", MODES[i].what, (long long)r.kept,
			(long long)r.none, (long long)frame, (long long)none_frame);
		/* What is made again lives as long as its layer's backward: the work does not grow with the layers. */
		if (planned(t, 4, MODES[i].r, &frame, &work2))
			TT_CHECK_MSG(t, work == work2 && work >= none_work, "%s: work of 8 layers %lld, of 4 %lld, %lld without", MODES[i].what, (long long)work,
				(long long)work2, (long long)none_work);
	}
	planned(t, 8, (tt_recompute){ .mode = TT_RECOMPUTE_FULL }, &frame, &work);
	TT_CHECK_MSG(t, (double)(frame + work) < 0.25 * (double)(none_frame + none_work), "full: %lld + %lld, without %lld + %lld", (long long)frame, (long long)work,
		(long long)none_frame, (long long)none_work);
}

/* ---- a plan that does not fit ---------------------------------------------------------------------------------------------------------------- */

static int64_t need_of(tt_test *t, const tt_run_options *o)
{
	tt_trainer *tr = NULL;
	int64_t n = 0;
	if (!TT_CHECK_OK(t, tt_trainer_create(o, &tr)))
		return 0;
	for (int r = 0; r < TT_EXEC_NREGIONS; r++)
		n += tt_exec_planned(tt_trainer_exec(tr), r);
	tt_trainer_destroy(tr);
	return n;
}

static void refused(tt_test *t, tt_run_options o, int64_t limit, const char *text)
{
	tt_trainer *tr = NULL;
	o.exec.limit = limit;
	TT_CHECK_FAILS(t, tt_trainer_create(&o, &tr), TT_ERR_MEMORY, text);
	TT_CHECK(t, !tr);
}

static const char *said(tt_test *t, const char *key, int64_t bytes)
{
	return tt_arena_printf(t->arena, "%s (%s)", key, tt_scale_bytes(bytes).s);
}

/* Each way that is named is enough, with the numbers that the run would have. */
static void case_remedies(tt_test *t)
{
	tt_run_options o = options(t, TT_F32), half, selective, full, all;
	o.model = model_of(6);
	o.tokens_per_microbatch = 4 * CONTEXT;
	full = half = selective = o;
	half.tokens_per_microbatch = 2 * CONTEXT;
	selective.recompute.mode = TT_RECOMPUTE_SELECTIVE;
	full.recompute.mode = TT_RECOMPUTE_FULL;
	all = full;
	all.tokens_per_microbatch = CONTEXT;
	all.loss_chunks = 64;
	int64_t need = need_of(t, &o), h = need_of(t, &half), s = need_of(t, &selective), f = need_of(t, &full), least = need_of(t, &all);
	if (!TT_CHECK(t, least < h && h < need && f < h && h < s))
		return;
	refused(t, o, s, tt_arena_printf(t->arena, "; it fits with %s, or with %s", said(t, "training.tokens_per_microbatch = 64", h),
		said(t, "activation_checkpoint.mode = \"selective\"", s)));
	refused(t, o, h, tt_arena_printf(t->arena, "; it fits with %s, or with %s", said(t, "training.tokens_per_microbatch = 64", h),
		said(t, "activation_checkpoint.mode = \"full\"", f)));
	refused(t, o, least, tt_arena_printf(t->arena, "; it fits with training.loss_chunks = 64, training.tokens_per_microbatch = 32 and "
		"activation_checkpoint.mode = \"full\" together (%s)", tt_scale_bytes(least).s));
	refused(t, o, least - 1, "with training.loss_chunks = 64, training.tokens_per_microbatch = 32 and activation_checkpoint.mode = \"full\" it still needs");
	/* What is so already is not offered. */
	refused(t, all, least - 1, "; microbatches are of one row and all is recomputed already: a smaller model fits (");
	all.loss_chunks = o.loss_chunks;
	refused(t, all, TT_MIN(need_of(t, &all), least) - 1, "; with training.loss_chunks = 64 it still needs ");
	/* A wide vocabulary in one piece: more pieces are enough. */
	o.model.vocab_size = o.data.vocab_size = 2048;
	o.loss_chunks = 1;
	half = o;
	half.loss_chunks = 2;
	h = need_of(t, &half);
	refused(t, o, h, said(t, "; it fits with training.loss_chunks = 2", h));
}

const tt_case tt_suite_recompute[] = {
	{ "none", case_none, TT_TIER_QUICK },
	{ "full", case_full, TT_TIER_QUICK },
	{ "selective", case_selective, TT_TIER_QUICK },
	{ "fixed", case_fixed, TT_TIER_QUICK },
	{ "budget", case_budget, TT_TIER_QUICK },
	{ "memory", case_memory, TT_TIER_QUICK },
	{ "remedies", case_remedies, TT_TIER_QUICK },
	{ "bits_fast", case_bits_fast, TT_TIER_QUICK },
	{ "bits_models", case_bits_models, TT_TIER_CI },
	{ "bits_exact", case_bits_exact, TT_TIER_QUICK },
	{ "bits_double", case_bits_double, TT_TIER_CI },
	{ 0 },
};
