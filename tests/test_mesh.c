/* Meshes of ranks against one rank: the same bits after every step in `exact`. And the proof itself can fail. */
#include "train/verify.h"
#include "tiny.h"

static tt_run_options options(tt_test *t, int64_t heads, int64_t kv, bool tied, tt_dtype compute)
{
	tt_llama_config m = tiny_model(VOCAB);
	m.num_attention_heads = heads;
	m.num_key_value_heads = kv;
	m.attention_bias = m.mlp_bias = !tied;
	m.tie_word_embeddings = tied;
	m.sliding_window = tied ? 9 : 0;
	tt_run_options o = tiny_options(m, tiny_rows(t->arena, ROWS, CONTEXT, VOCAB, 3), CONTEXT, ROWS);
	o.compute = compute;
	o.loss_chunks = 3;
	return o;
}

static void report(void *ctx, const tt_verify_mesh *m)
{
	tt_test *t = ctx;
	TT_CHECK_MSG(t, !m->finding, "dp_replicate %d, dp_shard %d, cp %d, tp %d%s, microbatches of %lld rows: %s", m->size[0], m->size[1], m->size[2], m->size[3],
		     m->sp ? ", sp" : "", (long long)m->rows, m->finding);
}

/* What `fast` promises: each token's hidden states and loss, with tp up to 8. */
static void fast(tt_test *t)
{
	static const tt_verify_mesh MESHES[] = {
		{ .size = { 1, 1, 1, 2 }, .rows = 2 }, { .size = { 1, 1, 1, 4 }, .sp = true, .rows = 3 }, { .size = { 1, 1, 1, 8 }, .rows = 1 }, { .size = { 1, 2, 2, 2 }, .sp = true, .rows = 1 },
		{ .size = { 1, 1, 3, 1 }, .rows = 1, .recompute = true }, { .size = { 3, 1, 1, 1 }, .rows = 2 },
	};
	for (int i = 0; i < 4; i++) { /* f32 and bf16, kv heads as many as ranks and one */
		tt_run_options o = options(t, 8, i & 1 ? 1 : 8, i & 1, i & 2 ? TT_BF16 : TT_F32);
		o.exec.isa = tiny_isa(t);
		o.exec.kernels_ref = t->isa[0] && !strcmp(t->isa, "ref");
		tt_verify_options v = { .ranks = 8, .steps = 1, .fast = true, .list = MESHES, .nlist = TT_COUNT(MESHES) };
		tt_verify_result r;
		if (!TT_CHECK_OK(t, tt_verify(t->arena, &o, &v, report, t, &r)))
			return;
		TT_CHECK_INT(t, r.proven, TT_COUNT(MESHES));
		for (int64_t k = 0; k < r.n; k++) /* layers' outputs and losses among them */
			TT_CHECK_MSG(t, r.meshes[k].values >= 30, "%lld values", (long long)r.meshes[k].values);
	}
}

static void proven(tt_test *t, int64_t heads, int64_t kv, bool tied, tt_dtype compute, int ranks)
{
	tt_run_options o = options(t, heads, kv, tied, compute);
	tt_verify_options v = { .ranks = ranks, .steps = 3 };
	tt_verify_result r;
	if (TT_CHECK_OK(t, tt_verify(t->arena, &o, &v, report, t, &r)))
		TT_CHECK_MSG(t, r.proven > 10 && r.failed == 0, "%lld proven, %lld failed", (long long)r.proven, (long long)r.failed);
}

static void f32(tt_test *t) { proven(t, 4, 2, false, TT_F32, 4); }
static void bf16(tt_test *t) { proven(t, 4, 2, true, TT_BF16, 4); }
static void shared_kv(tt_test *t) { proven(t, 4, 1, false, TT_F32, 4); } /* tp of 2 and 4 over one kv head */
static void eight(tt_test *t) { proven(t, 8, 2, true, TT_F32, 8); proven(t, 6, 3, false, TT_BF16, 6); }

/* ---- the proof can fail ------------------------------------------------------------------------------------------------------------------ */

static void other_data(void *ctx, tt_run_options *o)
{
	(void)ctx;
	if (tt_comm_rank(o->mesh.comm) == 1)
		o->optim.lr *= 1.0000001;
}

static void faults(tt_test *t)
{
	tt_run_options o = options(t, 4, 2, false, TT_F32);
	tt_verify_mesh m = { .size = { 1, 2, 1, 1 }, .rows = 1 };
	tt_verify_options v = { .ranks = 2, .steps = 2, .list = &m, .nlist = 1, .fault = other_data };
	tt_verify_result r;
	if (!TT_CHECK_OK(t, tt_verify(t->arena, &o, &v, NULL, NULL, &r)))
		return;
	TT_CHECK_INT(t, r.failed, 1);
	TT_CHECK_MSG(t, r.meshes[0].finding && strstr(r.meshes[0].finding, "has other bits on rank 1") && strstr(r.meshes[0].finding, "dp_shard=S(0)"), "%s",
		     r.meshes[0].finding ? r.meshes[0].finding : "(nothing found)");
}

static void illegal(tt_test *t)
{
	tt_llama_config m = tiny_model(VOCAB);
	TT_CHECK(t, !tt_mesh_illegal(t->arena, &m, 32, (int[]){ 1, 1, 16, 4 }));
	const char *why = tt_mesh_illegal(t->arena, &m, 32, (int[]){ 1, 1, 1, 3 });
	TT_CHECK_MSG(t, why && strstr(why, "tensor_parallel_degree = 3") && strstr(why, "does not deal 2 kv heads (model.num_key_value_heads)") && strstr(why, ": 2 or 4"), "%s", why ? why : "legal");
	why = tt_mesh_illegal(t->arena, &m, 32, (int[]){ 1, 1, 17, 1 });
	TT_CHECK_MSG(t, why && strstr(why, "context_parallel_degree = 17") && strstr(why, "at most 16"), "%s", why ? why : "legal");
}

const tt_case tt_suite_mesh[] = {
	{ "f32", f32, TT_TIER_QUICK },
	{ "bf16", bf16, TT_TIER_QUICK },
	{ "shared_kv", shared_kv, TT_TIER_QUICK },
	{ "fast", fast, TT_TIER_QUICK },
	{ "faults", faults, TT_TIER_QUICK },
	{ "illegal", illegal, TT_TIER_QUICK },
	{ "eight", eight, TT_TIER_CI },
	{ 0 },
};
