/* bench_product.c: `titan bench gemm`: matrix products as a step runs them. Y [M,N] = X [M,K] W[N,K]^T, dX = dY W, dW = dY^T X. */
#include <math.h>

#include "cli/bench.h"
#include "model/model.h"
#include "pass/pass.h"

/* ---- programs ------------------------------------------------------------------------------------------------------------------------------ */

/* Numbers in (-1, 1) with mantissas as those of real data; written again and again, a block at a time. */
static tt_status fill(tt_exec *e, const tt_slot *s)
{
	enum { BLOCK = 1 << 13 };
	float f[BLOCK];
	tt_bf16 h[BLOCK];
	uint64_t at = tt_hash32(s->name);
	for (int i = 0; i < BLOCK; i++) {
		f[i] = (float)((double)(tt_mix64(at + (uint64_t)i) >> 40) * 0x1p-23 - 1);
		h[i] = tt_f32_to_bf16(f[i]);
	}
	for (int64_t i = 0; i < s->count; i += BLOCK)
		TT_TRY(tt_tensor_write(e, s, i, s->dtype == TT_BF16 ? (const void *)h : f, TT_MIN((int64_t)BLOCK, s->count - i)));
	return TT_OK;
}

static tt_status fill_all(tt_exec *e)
{
	int64_t nstates, ninputs;
	const tt_slot *states = tt_exec_states(e, &nstates), *inputs = tt_exec_inputs(e, &ninputs);
	for (int64_t i = 0; i < nstates; i++)
		if (states[i].source < 0)
			TT_TRY(fill(e, &states[i]));
	for (int64_t i = 0; i < ninputs; i++)
		if (inputs[i].dtype != TT_I32)
			TT_TRY(fill(e, &inputs[i]));
	return TT_OK;
}

tt_status tt_bench_compile(tt_arena *a, const tt_graph *g, const tt_bench_env *env, int64_t T, int64_t nseqs, tt_exec **out)
{
	tt_graph *low;
	TT_TRY(tt_graph_check(g));
	TT_TRY(tt_pass_fold_rounds(g, a, &low));
	TT_TRY(tt_pass_formats(low, env->isa, env->threads, NULL, a, &low));
	tt_exec_options o = { .numerics = TT_FAST, .isa = env->isa, .threads = env->threads, .spin_us = 20, .t_max = T, .seqs_max = nseqs };
	tt_exec *e;
	TT_TRY(tt_exec_create(&o, &e));
	tt_status s = tt_exec_add_graph(e, low);
	if (s == TT_OK)
		s = tt_exec_plan(e);
	if (s == TT_OK)
		s = tt_exec_reserve(e);
	if (s == TT_OK)
		s = fill_all(e);
	if (s == TT_OK && tt_exec_has(e, TT_SEG_PREP))
		s = tt_exec_run(e, TT_SEG_PREP, &(tt_cell){ .first = true });
	if (s != TT_OK) {
		tt_exec_destroy(e);
		TT_TRY(s);
	}
	*out = e;
	return TT_OK;
}

void tt_bench_program_run(void *ctx)
{
	tt_bench_program *p = ctx;
	tt_status s = tt_exec_run(p->exec, p->seg, &p->cell);
	TT_ASSERT(s == TT_OK, "%s", tt_error_text());
}

/* ---- products ------------------------------------------------------------------------------------------------------------------------------ */

/* Widths of small and middle models and back (o_proj and down_proj, whose contraction is in segments), a vocabulary, one chunk of a loss, and the
 * few rows of generation. */
const tt_product_shape tt_product_shapes[] = {
	{ 2048, 256, 256, true }, { 2048, 768, 256, false }, { 2048, 256, 768, false }, { 2048, 768, 768, true }, { 2048, 2048, 768, true },
	{ 2048, 768, 2048, true }, { 2048, 32768, 768, false }, { 512, 8192, 256, false }, { 4096, 4096, 1024, false }, { 1, 2048, 2048, true },
	{ 4, 2048, 2048, false }, { 16, 2048, 2048, true }, { 0 },
};

const char *tt_product_name(tt_product p)
{
	switch (p) {
	case TT_PRODUCT_FORWARD: return "forward";
	case TT_PRODUCT_SEGMENTS: return "segments";
	case TT_PRODUCT_DX: return "dx";
	case TT_PRODUCT_DW: return "dw";
	case TT_NPRODUCTS: break;
	}
	return "?";
}

bool tt_product_runs(tt_product p, const tt_product_shape *s) { return p != TT_PRODUCT_DW || s->m >= 64; }

tt_status tt_bench_product(tt_arena *a, tt_product p, const tt_product_shape *s, tt_dtype dt, const tt_bench_env *env, tt_bench_program *out)
{
	tt_mesh one = { 0 };
	tt_graph *g = tt_graph_new(a, &one, false);
	tt_builder b = { .g = g, .o = { .compute = dt } };
	/* Which of the two is contracted in segments follows from its role: features that tensor parallelism may cut are. */
	bool cut = p == TT_PRODUCT_SEGMENTS;
	tt_dim t = tt_dim_of(TT_TOKENS, s->m, 1), n = tt_dim_of(TT_D, s->n, 1), k = tt_dim_of(cut ? TT_FFN : TT_D, s->k, 1);
	tt_attr_init init = { 0 };
	g->seg = TT_SEG_F;
	tt_v x = p == TT_PRODUCT_DX ? 0 : tt_input(g, "x", dt, dt, 2, (tt_dim[]){ t, k });
	tt_v dy = p == TT_PRODUCT_DX || p == TT_PRODUCT_DW ? tt_input(g, "dy", dt, dt, 2, (tt_dim[]){ t, n }) : 0;
	tt_v w = p == TT_PRODUCT_DW ? 0 : tt_weight(&b, "w", 2, (tt_dim[]){ n, k }, &init), y = 0;
	tt_attr_linear_dx dx = { .dtype = dt };
	switch (p) {
	case TT_PRODUCT_FORWARD:
	case TT_PRODUCT_SEGMENTS:
		y = tt_linear(g, x, w, 0, "y");
		break;
	case TT_PRODUCT_DX:
		y = tt_node_add(g, &tt_op_linear_dx, &dx, 2, (tt_v[]){ dy, w }, NULL);
		break;
	case TT_PRODUCT_DW:
		y = tt_node_add(g, &tt_op_linear_dw, NULL, 2, (tt_v[]){ dy, x }, NULL);
		break;
	case TT_NPRODUCTS:
		break;
	}
	tt_graph_output(g, y);
	tt_bench_program r = { .seg = TT_SEG_F, .cell = { .T = s->m, .first = true, .step = 1 } };
	TT_TRY(tt_bench_compile(a, g, env, s->m, 1, &r.exec));
	*out = r;
	return TT_OK;
}

/* ---- the bench ------------------------------------------------------------------------------------------------------------------------------ */

/* All products of one shape in one race: a row of the result. */
static tt_status race_shape(const tt_product_shape *s, tt_dtype dt, bool all, const tt_bench_options *o, tt_bench_peaks *peaks, json_t *rows)
{
	tt_arena *a = tt_arena_create("bench");
	tt_bench_env env = { o->isa, all ? tt_pool_threads(peaks->pool) : 1 };
	tt_bench_program p[TT_NPRODUCTS] = { 0 };
	tt_runner r[TT_NPRODUCTS];
	int n = 0;
	tt_status status = TT_OK;
	for (int i = 0; i < TT_NPRODUCTS && status == TT_OK; i++)
		if (tt_product_runs((tt_product)i, s)) {
			status = tt_bench_product(a, (tt_product)i, s, dt, &env, &p[i]);
			r[n++] = (tt_runner){ tt_product_name((tt_product)i), tt_bench_program_run, &p[i], 0, 0 };
		}
	if (status == TT_OK) {
		tt_race race = tt_race_of(o->rounds ? o->rounds : 3);
		race.slice = o->slice > 0 ? o->slice : race.slice;
		tt_race_run(&race, r, n);
		if (race.noisy)
			tt_race_again(&race, r, n);
		tt_bench_peaks_look(peaks, dt, all, race.slice);
		json_t *row = json_pack("{s:I, s:I, s:I, s:s, s:i}", "m", (json_int_t)s->m, "n", (json_int_t)s->n, "k", (json_int_t)s->k, "dtype",
					tt_dtype_name(dt), "threads", env.threads);
		for (int i = 0; i < n; i++)
			json_object_set_new(row, r[i].name, json_real(2 * (double)s->m * (double)s->n * (double)s->k / r[i].seconds / 1e9));
		json_object_set_new(row, "others", json_real(race.others));
		json_object_set_new(row, "noisy", json_boolean(race.noisy));
		json_array_append_new(rows, row);
	}
	for (int i = 0; i < TT_NPRODUCTS; i++)
		tt_exec_destroy(p[i].exec);
	tt_arena_destroy(a);
	return status;
}

static tt_status race_all(const tt_bench_options *o, tt_bench_peaks *peaks, json_t *rows)
{
	const tt_product_shape *shapes = o->shapes ? o->shapes : tt_product_shapes;
	for (int bf16 = 0; bf16 < 2; bf16++)
		for (int all = 0; all < 2; all++)
			for (const tt_product_shape *s = shapes; s->m; s++)
				if ((!o->quick || s->quick) && (!all || tt_pool_threads(peaks->pool) > 1))
					TT_TRY(race_shape(s, bf16 ? TT_BF16 : TT_F32, all, o, peaks, rows));
	return TT_OK;
}

tt_status tt_bench_gemm(tt_arena *a, const tt_bench_options *o, json_t **out)
{
	(void)a;
	return tt_bench_rows("gemm", race_all, o, out);
}
