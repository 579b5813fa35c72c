/* Meshes of ranks against one rank: the same bits after every step in `exact`. And the proof itself can fail. */
#include "train/verify.h"
#include "ops/ops.h"
#include "tiny.h"

#include <stdio.h>
#include <stdlib.h>

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
	o.overlap = (tt_overlap){ .ahead = 1, .bucket_bytes = 25 << 20 };
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

static void proven(tt_test *t, const tt_run_options *o, const tt_verify_options *v, int64_t least)
{
	tt_verify_result r;
	if (TT_CHECK_OK(t, tt_verify(t->arena, o, v, report, t, &r)))
		TT_CHECK_MSG(t, r.proven >= least && r.failed == 0, "%lld proven, %lld failed", (long long)r.proven, (long long)r.failed);
}

static void all_meshes(tt_test *t, int64_t heads, int64_t kv, bool tied, tt_dtype compute, int ranks, int steps)
{
	tt_run_options o = options(t, heads, kv, tied, compute);
	proven(t, &o, &(tt_verify_options){ .ranks = ranks, .steps = steps }, 11);
}

static void f32(tt_test *t) { all_meshes(t, 4, 2, false, TT_F32, 4, 2); }

static void bf16(tt_test *t)
{
	static const tt_verify_mesh MESHES[] = {
		{ .size = { 2, 1, 1, 2 }, .sp = true, .rows = 1 }, { .size = { 1, 2, 2, 1 }, .rows = 2, .recompute = true }, { .size = { 1, 4, 1, 1 }, .rows = 1, .gathered = TT_GATHERED_KEPT },
		{ .size = { 1, 1, 2, 2 }, .rows = 3, .in_turn = true }, { .size = { 1, 2, 1, 2 }, .sp = true, .rows = 1, .gathered = TT_GATHERED_AGAIN },
	};
	tt_run_options o = options(t, 4, 2, true, TT_BF16);
	proven(t, &o, &(tt_verify_options){ .ranks = 4, .steps = 2, .list = MESHES, .nlist = TT_COUNT(MESHES) }, TT_COUNT(MESHES));
}

/* tp of 2 and 4 over one kv head */
static void shared_kv(tt_test *t)
{
	static const tt_verify_mesh MESHES[] = {
		{ .size = { 1, 1, 1, 4 }, .rows = 2 }, { .size = { 1, 1, 1, 4 }, .sp = true, .rows = 1, .recompute = true }, { .size = { 1, 1, 2, 2 }, .sp = true, .rows = 3 },
		{ .size = { 1, 2, 1, 2 }, .rows = 1, .in_turn = true },
	};
	tt_run_options o = options(t, 4, 1, false, TT_F32);
	proven(t, &o, &(tt_verify_options){ .ranks = 4, .steps = 2, .list = MESHES, .nlist = TT_COUNT(MESHES) }, TT_COUNT(MESHES));
}

/* The model and the data as they are: one rank's step is several microbatches too, and its tokens are those of all of them. */
static void full(tt_test *t)
{
	static const tt_verify_mesh MESHES[] = { { .size = { 1, 1, 1, 2 } }, { .size = { 1, 2, 1, 1 }, .recompute = true }, { .size = { 1, 1, 2, 1 }, .in_turn = true } };
	tt_run_options o = options(t, 4, 2, true, TT_F32);
	o.tokens_per_microbatch = 2 * CONTEXT;
	proven(t, &o, &(tt_verify_options){ .ranks = 2, .steps = 1, .full = true, .fast = true, .list = MESHES, .nlist = TT_COUNT(MESHES) }, TT_COUNT(MESHES));
}

static void eight(tt_test *t)
{
	all_meshes(t, 8, 2, true, TT_F32, 8, 3);
	all_meshes(t, 6, 3, false, TT_BF16, 6, 3);
}

/* More ranks than there ever are cores. */
static void sixty_four(tt_test *t)
{
	static const tt_verify_mesh MESHES[] = { { .size = { 1, 4, 4, 4 }, .sp = true, .rows = 1 }, { .size = { 4, 2, 2, 4 }, .rows = 1, .recompute = true } };
	tt_run_options o = options(t, 8, 4, false, TT_F32);
	proven(t, &o, &(tt_verify_options){ .ranks = 64, .steps = 1, .list = MESHES, .nlist = TT_COUNT(MESHES) }, TT_COUNT(MESHES));
}

/* ---- single steps on a mesh -------------------------------------------------------------------------------------------------------------- */

enum { MOST = 16 };

typedef struct steps {
	tt_test *t;
	tt_run_options o;
	tt_verify_mesh mesh;
	bool twice;         /* replicated squares count twice: the test must see it */
	tt_tamper tamper;
	double norm[MOST], squares[MOST]; /* the norm; what metrics.norm_groups adds up for all gradients */
	char text[MOST][512];
} steps;

/* Gradients of one before they are reduced: the ranks' terms, where they are terms of a sum, add up to one. The last has it all. */
static tt_status ones(void *ctx, tt_trainer *t, tt_moment m)
{
	(void)ctx;
	const tt_graph *g = tt_trainer_typed(t);
	int64_t n;
	const tt_slot *s = tt_exec_states(tt_trainer_exec(t), &n);
	for (int64_t k = 0; k < n && m == TT_BEFORE_REDUCE; k++) {
		if (strncmp(s[k].name, "grad.", 5))
			continue;
		const tt_layout *l = &tt_value_get(g, tt_value_find(g, s[k].name))->layout;
		bool term = true;
		for (int ax = 0; ax < g->mesh.naxes; ax++)
			term &= g->mesh.ax[ax].size == 1 || l->ax[ax].type != TT_P || tt_trainer_coord(t)[ax] == g->mesh.ax[ax].size - 1;
		int64_t *x = calloc((size_t)s[k].count + 1, 3 * sizeof *x);
		float *f = (float *)(void *)x;
		for (int64_t i = 0; i < s[k].count && term; i++)
			if (s[k].plane)
				x[i] = 1 << 26; /* of the first limb: 1 */
			else
				f[i] = 1;
		tt_status st = tt_tensor_write(tt_trainer_exec(t), &s[k], 0, x, s[k].count);
		free(x);
		TT_TRY(st);
	}
	return TT_OK;
}

static tt_status squares_twice(void *ctx, const char *after, const int *coord, tt_graph *g, tt_arena *a, tt_graph **out)
{
	(void)ctx, (void)coord;
	*out = g;
	for (int64_t i = 0; i < g->nnodes && !strcmp(after, "localise"); i++)
		if (g->nodes[i].op == &tt_op_exchange && !strncmp(g->values[g->nodes[i].out[0]].name, "square.", 7)) {
			tt_attr_exchange *e = TT_NEW(a, tt_attr_exchange);
			*e = *(const tt_attr_exchange *)g->nodes[i].attr;
			e->index = 0;
			g->nodes[i].attr = e;
		}
	return TT_OK;
}

static tt_status one_step(tt_comm *c, void *ctx)
{
	steps *x = ctx;
	tt_run_options o = x->o;
	memcpy(o.mesh.size, x->mesh.size, sizeof o.mesh.size);
	o.mesh.sp = x->mesh.sp;
	o.mesh.comm = c;
	o.tamper = &x->tamper;
	tt_trainer *t;
	tt_step_report r = { .grad_norm = -1 };
	TT_TRY(tt_trainer_create(&o, &t));
	tt_status s = tt_trainer_step(t, &r);
	int64_t n;
	const tt_slot *state = tt_exec_states(tt_trainer_exec(t), &n);
	for (int64_t i = 0; i < n && !s; i++) {
		double sum = 0;
		if (state[i].trainable && state[i].source < 0)
			s = tt_trainer_square_sum(t, state[i].name, true, &sum);
		x->squares[tt_comm_rank(c)] += sum;
	}
	x->norm[tt_comm_rank(c)] = r.grad_norm;
	snprintf(x->text[tt_comm_rank(c)], sizeof x->text[0], "%s", s ? tt_error_text() : "");
	tt_trainer_destroy(t);
	return s == TT_ERR_NUMERIC ? TT_OK : s;
}

static bool on_mesh(steps *x)
{
	int ranks = 1;
	for (int i = 0; i < TT_RUN_AXES; i++)
		ranks *= x->mesh.size[i];
	tt_comm_options c = { .init_timeout_s = 60 };
	return TT_CHECK_OK(x->t, tt_comm_threads(ranks, &c, one_step, x));
}

/* Gradients that are all one: the norm is the square root of the number of parameters, wherever they lie and however often. */
static void norm_of_ones(tt_test *t)
{
	static const tt_verify_mesh MESHES[] = {
		{ .size = { 2, 2, 1, 1 } }, { .size = { 1, 2, 1, 2 }, .sp = true }, { .size = { 2, 1, 1, 2 } }, { .size = { 1, 1, 2, 4 }, .sp = true }, { .size = { 1, 1, 1, 4 } },
		{ .size = { 1, 3, 2, 1 } },
	};
	for (int i = 0; i < TT_COUNT(MESHES) + 2; i++) { /* two more: in `exact`, and one that is wrong */
		int k = i < TT_COUNT(MESHES) ? i : 1;
		steps x = { .t = t, .o = options(t, 4, 2, k % 2, TT_F32), .mesh = MESHES[k], .twice = i == TT_COUNT(MESHES) + 1, .tamper = { .moment = ones } };
		x.o.exec.numerics = i == TT_COUNT(MESHES) ? TT_EXACT : TT_FAST;
		if (x.twice)
			x.tamper.graph = squares_twice;
		if (!on_mesh(&x))
			return;
		double count = (double)tt_llama_params(&x.o.model), want = (double)(float)__builtin_sqrt(count);
		TT_CHECK_MSG(t, x.squares[0] == count && x.squares[1] == count, "mesh %d: squares %.9g and %.9g, want %.9g", k, x.squares[0], x.squares[1], count);
		TT_CHECK_MSG(t, (x.norm[0] == want) == !x.twice, "mesh %d: norm %.9g, want %.9g", k, x.norm[0], want);
	}
}

static tt_status spoil(void *ctx, tt_trainer *t, tt_moment m)
{
	const char *name = ctx;
	float nan = __builtin_nanf("");
	if (m != (name[0] == 'g' ? TT_BEFORE_REDUCE : TT_BEFORE_STEP) || tt_trainer_coord(t)[TT_DP_SHARD] != 1)
		return TT_OK;
	return tt_exec_write(tt_trainer_exec(t), name, 0, &nan, 1);
}

/* All ranks say the same of what is not finite on one of them. */
static void nonfinite(tt_test *t)
{
	static const struct { const char *name, *says; } C[] = {
		{ "model.layers.1.mlp.up_proj.weight", "parameter model.layers.1.mlp.up_proj.weight is itself not finite (rank 1)" },
		{ "grad.model.layers.0.self_attn.q_proj.weight", "first in the gradient of model.layers.0.self_attn.q_proj.weight (rank 1)" },
	};
	for (int i = 0; i < TT_COUNT(C); i++) {
		steps x = { .t = t, .o = options(t, 4, 2, false, TT_F32), .mesh = { .size = { 2, 2, 1, 1 } }, .tamper = { .moment = spoil, .ctx = (void *)(uintptr_t)C[i].name } };
		if (!on_mesh(&x))
			return;
		for (int r = 0; r < 4; r++) {
			TT_CHECK_STR(t, x.text[r], x.text[0]);
			TT_CHECK_MSG(t, strstr(x.text[r], C[i].says), "rank %d: %s", r, x.text[r]);
		}
	}
}

/* Ranks of a process share its memory: each fits alone, all together do not. And what no rank could hold is refused before any graph is built. */
static void memory(tt_test *t)
{
	steps x = { .t = t, .o = options(t, 4, 2, false, TT_F32), .mesh = { .size = { 2, 1, 1, 1 } } };
	tt_run_options o = x.o;
	tt_comm_options c = { .init_timeout_s = 60 };
	tt_trainer *tr;
	int64_t need = 0;
	memcpy(o.mesh.size, x.mesh.size, sizeof o.mesh.size);
	o.mesh.comm = tt_comm_fake_create(0, 2);
	if (!TT_CHECK_OK(t, tt_trainer_plan(&o, &tr)))
		return;
	for (int r = 0; r < TT_EXEC_NREGIONS; r++)
		need += tt_exec_planned(tt_trainer_exec(tr), r);
	tt_trainer_destroy(tr);
	tt_comm_fake_destroy(o.mesh.comm);
	x.o.exec.limit = 2 * need - 1;
	TT_CHECK_FAILS(t, tt_comm_threads(2, &c, one_step, &x), TT_ERR_MEMORY, "the plans of the 2 ranks of this process need ");
	x.o.exec.limit = 2 * need;
	TT_CHECK_OK(t, tt_comm_threads(2, &c, one_step, &x));
	x.o.exec.limit = 32 * tt_llama_params(&x.o.model) - 1; /* two copies */
	TT_CHECK_FAILS(t, tt_comm_threads(2, &c, one_step, &x), TT_ERR_MEMORY, " on the 2 ranks of this process before any activation, there are ");
}

/* Hashes of a mesh's states are those of one rank: its shards' add. */
static void hashes(tt_test *t)
{
	static const tt_verify_mesh MESHES[] = { { .size = { 2, 2, 1, 1 } }, { .size = { 1, 1, 2, 2 }, .sp = true }, { .size = { 1, 1, 1, 4 } } };
	tt_run_options one = options(t, 4, 2, false, TT_F32);
	one.exec.numerics = TT_EXACT;
	one.record = (tt_hashes_options){ .folder = tt_test_path(t, "one"), .state = true };
	tt_trainer *tr;
	tt_step_report r;
	if (!TT_CHECK_OK(t, tt_trainer_create(&one, &tr)) || !TT_CHECK_OK(t, tt_trainer_step(tr, &r)))
		return;
	tt_trainer_destroy(tr);
	tt_hashes_file want, got;
	if (!TT_CHECK_OK(t, tt_hashes_read(t->arena, tt_test_path(t, "one/hashes.bin"), &want)))
		return;
	for (int i = 0; i < TT_COUNT(MESHES); i++) {
		const char *folder = tt_arena_printf(t->arena, "m%d", i);
		steps x = { .t = t, .o = one, .mesh = MESHES[i] };
		x.o.record.folder = tt_test_path(t, folder);
		if (!on_mesh(&x) || !TT_CHECK_OK(t, tt_hashes_read(t->arena, tt_test_path(t, tt_arena_printf(t->arena, "%s/hashes.bin", folder)), &got)))
			return;
		TT_CHECK(t, got.ncells == 2 && want.ncells == 2);
		for (int64_t c = 0; c < 2; c++) {
			const tt_hashes_cell *a = &want.cells[c], *b = &got.cells[c];
			TT_CHECK(t, b->program->nvalues > 60 && a->head.step == b->head.step);
			for (int64_t k = 0; k < b->program->nvalues; k++) {
				const char *name = b->program->values[k].name;
				int64_t at = tt_hashes_find(a->program, name);
				TT_CHECK_MSG(t, at >= 0 && a->hash[at] == b->hash[k], "mesh %d, step %lld: %s", i, (long long)b->head.step, name);
			}
		}
		tt_hashes_file_close(&got);
	}
	tt_hashes_file_close(&want);
}

/* ---- the proof can fail ------------------------------------------------------------------------------------------------------------------ */

static void other_data(void *ctx, tt_run_options *o)
{
	(void)ctx;
	if (tt_comm_rank(o->mesh.comm) == 1)
		o->optim.lr *= 1.0000001;
}

/* A rank that is long at comparing: meanwhile nobody changes what it compares, as rank 0 would that saves and then loads. */
typedef struct slow {
	tt_status (*then)(void *ctx, tt_trainer *t, const tt_step_report *r);
	void *ctx;
	int changed;
} slow;

static tt_status long_after(void *ctx, tt_trainer *t, const tt_step_report *r)
{
	slow *x = ctx;
	float was, is;
	TT_TRY(tt_exec_read(tt_trainer_exec(t), "model.norm.weight", 0, &was, 1));
	for (double t0 = tt_now(); r->step == 1 && tt_now() < t0 + 0.4;) {
		TT_TRY(tt_exec_read(tt_trainer_exec(t), "model.norm.weight", 0, &is, 1));
		x->changed += memcmp(&was, &is, sizeof is) != 0;
	}
	return x->then(x->ctx, t, r);
}

static void one_is_slow(void *ctx, tt_run_options *o)
{
	slow *x = ctx;
	if (tt_comm_rank(o->mesh.comm) != 1)
		return;
	x->then = o->after_step;
	x->ctx = o->after_step_ctx;
	o->after_step = long_after;
	o->after_step_ctx = x;
}

static void slow_rank(tt_test *t)
{
	static const tt_verify_mesh TWO = { .size = { 1, 2, 1, 1 }, .rows = 2 };
	slow x = { .changed = 0 };
	tt_run_options o = options(t, 4, 2, false, TT_F32);
	proven(t, &o, &(tt_verify_options){ .ranks = 2, .steps = 1, .list = &TWO, .nlist = 1, .fault = one_is_slow, .fault_ctx = &x }, 1);
	TT_CHECK_INT(t, x.changed, 0);
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

/* A run that ends with an error is no difference, nor is a plan that is refused; others are proven all the same. */
static tt_status disk_full(void *ctx, struct tt_trainer *t, tt_moment m)
{
	(void)ctx;
	if (m == TT_BEFORE_STEP && tt_trainer_rank(t) == 0)
		TT_FAIL(TT_ERR_IO, "step-1/model.safetensors: No space left on device");
	return TT_OK;
}

static void no_space(void *ctx, tt_run_options *o)
{
	static const tt_tamper t = { .moment = disk_full };
	(void)ctx;
	o->tamper = o->mesh.size[TT_DP_SHARD] > 1 ? &t : NULL;
}

static void errors(tt_test *t)
{
	static const tt_layout_row row = { TT_PLACE_STORE, "*.o_proj.weight", NULL, "tp", TT_S, 0, NULL };
	static const char *const where = "c.toml:9:15";
	tt_run_options o = options(t, 4, 2, false, TT_F32);
	o.layouts = (tt_layouts){ &row, &where, 1 };
	tt_verify_mesh m[] = { { .size = { 1, 2, 1, 1 }, .rows = 1 }, { .size = { 1, 1, 1, 2 }, .rows = 1 }, { .size = { 2, 1, 1, 1 }, .rows = 1 } };
	tt_verify_options v = { .ranks = 2, .steps = 1, .list = m, .nlist = TT_COUNT(m), .fault = no_space };
	tt_verify_result r;
	if (!TT_CHECK_OK(t, tt_verify(t->arena, &o, &v, NULL, NULL, &r)))
		return;
	TT_CHECK(t, r.proven == 1 && r.failed == 2 && r.broken == 1 && r.refused == 1);
	TT_CHECK(t, r.meshes[0].error == TT_ERR_IO && strstr(r.meshes[0].finding, "No space left"));
	TT_CHECK(t, r.meshes[1].error == TT_ERR_TYPE && tt_verify_refused(&r.meshes[1]) && strstr(r.meshes[1].finding, where));
	TT_CHECK(t, !r.meshes[2].error && !r.meshes[2].finding);
}

/* The small model stands for the config's: the same meshes of it are legal, and degrees divide its dims as they do the config's. */
static void small_models(tt_test *t)
{
	static const struct { int64_t heads, kv, hidden, ffn, vocab; } M[] = {
		{ 32, 8, 4096, 14336, 128256 }, { 64, 8, 8192, 28672, 128256 }, { 32, 32, 4096, 11008, 32000 }, { 14, 2, 896, 4864, 151936 }, { 9, 3, 576, 1536, 49152 }, { 40, 10, 5120, 17920, 100352 },
		{ 8, 1, 2048, 16384, 256000 }, { 12, 12, 768, 3072, 50257 }, { 40, 8, 5120, 13824, 152064 },
	};
	static const int64_t HEAD_DIMS[] = { 64, 128, 80, 96, 6 };
	for (int k = 0; k < 2 * TT_COUNT(M); k++) {
		int i = k / 2, ranks = k % 2 ? 8 : 4;
		int64_t head_dim = HEAD_DIMS[i % TT_COUNT(HEAD_DIMS)];
		tt_llama_config big = { .vocab_size = M[i].vocab, .hidden_size = M[i].hidden, .num_hidden_layers = 16, .num_attention_heads = M[i].heads,
					.num_key_value_heads = M[i].kv, .head_dim = head_dim, .intermediate_size = M[i].ffn };
		tt_llama_config m = tt_verify_small(big, ranks, false);
		const int64_t of[] = { M[i].heads, M[i].kv, M[i].hidden, M[i].ffn, M[i].vocab, head_dim };
		const int64_t is[] = { m.num_attention_heads, m.num_key_value_heads, m.hidden_size, m.intermediate_size, m.vocab_size, m.head_dim };
		int64_t fast_dim = tt_verify_small(big, ranks, true).head_dim; /* kernels of 16 stay such */
		TT_CHECK_MSG(t, (fast_dim % 16 == 0) == (head_dim % 16 == 0) && fast_dim <= head_dim, "heads of %lld became %lld", (long long)head_dim, (long long)fast_dim);
		TT_CHECK_MSG(t, (of[0] > of[1]) == (is[0] > is[1]), "model %d, %d ranks: %lld heads over %lld became %lld over %lld", i, ranks, (long long)of[0], (long long)of[1],
			     (long long)is[0], (long long)is[1]);
		for (int d = 2; d <= ranks; d++) {
			for (int n = 0; n < TT_COUNT(of); n++)
				TT_CHECK_MSG(t, (of[n] % d == 0) == (is[n] % d == 0), "model %d, degree %d: %lld became %lld", i, d, (long long)of[n], (long long)is[n]);
			int size[] = { 1, 1, 1, d };
			TT_CHECK_MSG(t, !tt_mesh_illegal(t->arena, &big, 4096, size) == !tt_mesh_illegal(t->arena, &m, 4096, size), "model %d, tp %d", i, d);
			TT_CHECK_MSG(t, (of[1] < d) == (is[1] < d), "model %d: %lld kv heads became %lld", i, (long long)of[1], (long long)is[1]);
			for (int tp = 1; tp * d <= ranks && of[1] % tp == 0; tp++) /* lines of the kv heads that a rank of tp has */
				TT_CHECK_MSG(t, (of[1] / tp * head_dim % d == 0) == (is[1] / tp * m.head_dim % d == 0), "model %d, tp %d x %d: kv heads of %lld became such of %lld", i, tp, d,
					     (long long)head_dim, (long long)m.head_dim);
		}
		TT_CHECK_MSG(t, tt_llama_params(&m) < 300000, "model %d: %lld parameters are not small", i, (long long)tt_llama_params(&m));
	}
}

static void illegal(tt_test *t)
{
	/* Of a model made small, the reason is the config's. */
	static const tt_verify_mesh TP = { .size = { 1, 1, 1, 2 }, .rows = 1 };
	tt_run_options o = options(t, 13, 1, false, TT_F32);
	tt_verify_result r;
	if (TT_CHECK_OK(t, tt_verify(t->arena, &o, &(tt_verify_options){ .ranks = 4, .steps = 1, .list = &TP, .nlist = 1 }, NULL, NULL, &r)))
		TT_CHECK_MSG(t, r.illegal == 1 && strstr(r.meshes[0].illegal, "= 2 does not deal 13 heads with 1 kv heads"), "%s", r.illegal ? r.meshes[0].illegal : "legal");
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
	{ "full", full, TT_TIER_QUICK },
	{ "norm_of_ones", norm_of_ones, TT_TIER_QUICK },
	{ "nonfinite", nonfinite, TT_TIER_QUICK },
	{ "memory", memory, TT_TIER_QUICK },
	{ "hashes", hashes, TT_TIER_QUICK },
	{ "slow_rank", slow_rank, TT_TIER_QUICK },
	{ "faults", faults, TT_TIER_QUICK },
	{ "errors", errors, TT_TIER_QUICK },
	{ "illegal", illegal, TT_TIER_QUICK },
	{ "small_models", small_models, TT_TIER_QUICK },
	{ "eight", eight, TT_TIER_PROOF },
	{ "sixty_four", sixty_four, TT_TIER_CI },
	{ 0 },
};
