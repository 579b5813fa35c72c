/* exec on real ops: a step of a small model has the same bits however it is planned and run. */
#include "exec/exec.h"
#include "ops/ops.h"
#include "test.h"

typedef struct rng { uint64_t s; } rng;
static int64_t below(rng *r, int64_t n)
{
	r->s = r->s * 6364136223846793005u + 1442695040888963407u;
	return (int64_t)((r->s >> 33) % (uint64_t)n);
}

enum { M_T = 40, M_D = 32, M_F = 64, M_V = 96 };

static tt_v matrix(tt_graph *g, const char *name, tt_dim o, tt_dim k)
{
	tt_dim d[2] = {o, k};
	return tt_state_new(g, name, TT_REGION_PARAM, TT_F32, 2, d, true);
}

/* Embedding, norm, gated MLP, residual, two chunks of loss; forward, backward and an update of every weight. */
static tt_graph *model_step(tt_test *t)
{
	tt_graph *g = tt_graph_new(t->arena, &(tt_mesh){0}, false);
	tt_dim d = tt_dim_of(TT_D, M_D, 1), f = tt_dim_of(TT_FFN, M_F, 1), v = tt_dim_of(TT_VOCAB, M_V, 1), tok = tt_dim_of(TT_TOKENS, M_T, 1),
	       one = tt_dim_of(TT_ONE, 1, 1), four = tt_dim_of(TT_ONE, 4, 1);
	tt_v ids = tt_input(g, "ids", TT_I32, TT_NODTYPE, 1, &tok), labels = tt_input(g, "labels", TT_I32, TT_NODTYPE, 1, &tok);
	tt_v seed = tt_input(g, "inv_valid", TT_F32, TT_NODTYPE, 1, &one);
	tt_v h = tt_embedding(g, ids, matrix(g, "embed", v, d), "h");
	tt_v n = tt_rms_norm(g, h, tt_state_new(g, "norm", TT_REGION_PARAM, TT_F32, 1, &d, true), 1e-5, "n");
	tt_v act = tt_silu_mul(g, tt_linear(g, n, matrix(g, "gate", f, d), 0, "g"), tt_linear(g, n, matrix(g, "up", f, d), 0, "u"), "act");
	h = tt_add(g, h, tt_linear(g, act, matrix(g, "down", d, f), 0, "y"), "out");
	tt_v x = tt_split_tokens(g, h, 2, "chunk"), l = tt_split_tokens(g, labels, 2, "labels.chunk"), head = matrix(g, "head", v, d);
	tt_v loss = tt_state_new(g, "loss", TT_REGION_GRAD, TT_ACC, 1, &one, false), now = loss;
	for (int i = 0; i < 2; i++) {
		int scope = tt_scope_push(g, "loss%d", i);
		g->seg = TT_SEG_B;
		g->group = 1 + i;
		tt_v sum = tt_total(g, tt_token_loss(g, tt_linear_stat(g, tt_out(x, i), head, "logits"), tt_out(l, i)), "sum");
		tt_graph_root(g, sum, seed);
		now = tt_accumulate(g, now, sum, i == 0);
		tt_scope_pop(g, scope);
	}
	tt_state_set(g, loss, now);
	tt_graph *b = NULL;
	if (!TT_CHECK_OK(t, tt_graph_verify(g, "build")) || !TT_CHECK_OK(t, tt_autodiff(g, &tt_autodiff_builders, t->arena, &b)))
		return NULL;
	b->seg = TT_SEG_OPT;
	b->group = 0;
	tt_v hyper = tt_input(b, "hyper", TT_F32, TT_NODTYPE, 1, &four), coef = tt_input(b, "coef", TT_F32, TT_NODTYPE, 1, &one);
	int64_t nstates = b->nstates;
	for (int64_t i = 0; i < nstates; i++) {
		const tt_state st = b->states[i];
		const tt_value w = *tt_value_get(b, st.value);
		if (!st.trainable)
			continue;
		tt_v grad = tt_value_find(b, tt_arena_printf(t->arena, "grad.%s", st.name));
		tt_v mom[2];
		for (int k = 0; k < 2; k++)
			mom[k] = tt_state_new(b, tt_arena_printf(t->arena, "%s.%d", st.name, k), TT_REGION_OPTIM, TT_F32, w.ndim, w.dim, false);
		tt_attr_adamw a = {0.9, 0.95, 1e-8, 0.1, 1};
		int scope = tt_scope_push(b, "opt.%s", st.name);
		tt_v next = tt_adamw(b, st.value, mom[0], mom[1], tt_round(b, grad, TT_F32, NULL), coef, hyper, &a);
		tt_scope_pop(b, scope);
		tt_state_set(b, st.value, next);
		tt_state_set(b, mom[0], tt_out(next, 1));
		tt_state_set(b, mom[1], tt_out(next, 2));
	}
	return TT_CHECK_OK(t, tt_graph_verify(b, "optimizer")) ? b : NULL;
}

/* Two steps of two cells of T and T/2 tokens; hashes of all states. */
static void model_hashes(tt_test *t, const tt_graph *g, tt_exec_options o, int64_t T, uint64_t *hash, int64_t *nstates)
{
	tt_exec *e = NULL;
	if (!TT_CHECK_OK(t, tt_exec_create(&o, &e)) || !TT_CHECK_OK(t, tt_exec_add_graph(e, g)) || !TT_CHECK_OK(t, tt_exec_plan(e)) ||
		!TT_CHECK_OK(t, tt_exec_reserve(e)))
		return;
	const tt_slot *st = tt_exec_states(e, nstates);
	rng r = {7};
	for (int64_t i = 0; i < *nstates; i++)
		if (st[i].trainable) {
			float *w = TT_NEWN(t->arena, float, st[i].count);
			for (int64_t k = 0; k < st[i].count; k++)
				w[k] = (float)(below(&r, 2001) - 1000) / 4000;
			TT_CHECK_OK(t, tt_tensor_write(e, &st[i], 0, w, st[i].count));
		}
	for (int step = 1; step <= 2; step++) {
		float hyper[4] = {1e-3f, 0.1f, 0.05f, 0}, one = 1, inv = 1.0f / (float)(T + T / 2);
		TT_CHECK_OK(t, tt_exec_write(e, "hyper", 0, hyper, 4));
		TT_CHECK_OK(t, tt_exec_write(e, "coef", 0, &one, 1));
		TT_CHECK_OK(t, tt_exec_write(e, "inv_valid", 0, &inv, 1));
		for (int k = 0; k < 2; k++) {
			tt_cell c = {.T = k ? T / 2 : T, .nseqs = 1, .first = k == 0, .step = step};
			int32_t ids[M_T], labels[M_T];
			for (int i = 0; i < M_T; i++) {
				ids[i] = (int32_t)below(&r, M_V);
				labels[i] = i % 5 ? (int32_t)below(&r, M_V) : -100;
			}
			TT_CHECK_OK(t, tt_exec_write(e, "ids", 0, ids, M_T));
			TT_CHECK_OK(t, tt_exec_write(e, "labels", 0, labels, M_T));
			tt_malloc_count_begin();
			tt_status ran = tt_exec_run(e, TT_SEG_F, &c);
			if (ran == TT_OK)
				ran = tt_exec_run(e, TT_SEG_B, &c);
			if (ran == TT_OK && k == 1)
				ran = tt_exec_run(e, TT_SEG_OPT, &(tt_cell){.step = step});
			TT_CHECK_INT(t, tt_malloc_count_end(), 0);
			TT_CHECK_OK(t, ran);
		}
	}
	for (int64_t i = 0; i < *nstates; i++)
		TT_CHECK_OK(t, tt_tensor_hash(e, &st[i], 0, st[i].count, &hash[i]));
	for (int k = 0; k < TT_EXEC_NREGIONS && T == M_T; k++)
		TT_CHECK_MSG(t, tt_exec_used(e, k) == tt_exec_planned(e, k), "%s: used %lld of %lld", tt_exec_region_name(k),
			(long long)tt_exec_used(e, k), (long long)tt_exec_planned(e, k));
	tt_exec_destroy(e);
}

/* Sharing bytes, threads, reference or fast kernels, NaN in every byte not yet written: the same bits in every state. */
static void case_model(tt_test *t)
{
	tt_graph *g = model_step(t);
	tt_isa isa;
	if (!g || !TT_CHECK_OK(t, tt_isa_parse(t->isa[0] ? t->isa : "auto", &isa)))
		return;
	uint64_t other[64] = {0};
	for (int numerics = TT_FAST; numerics <= TT_EXACT; numerics++)
		for (int64_t T = 0; T <= M_T; T += 8) {
			const tt_exec_options plain = {.numerics = (tt_numerics)numerics, .isa = isa, .kernels_ref = true, .no_alias = true};
			tt_exec_options o[4] = {plain, plain, plain, plain};
			o[0].no_alias = false;
			o[1].fill_nan = true, o[1].no_alias = false, o[1].protect = true;
			o[2].threads = 2, o[2].no_alias = false;
			o[3].kernels_ref = false, o[3].no_alias = false, o[3].fill_nan = true;
			uint64_t want[64], got[64];
			int64_t n = 0, m = 0;
			model_hashes(t, g, plain, T, want, &n);
			TT_CHECK_MSG(t, want[0] != other[0], "one more row of tokens changes nothing: the hash says nothing");
			other[0] = want[0];
			for (int k = 0; k < 4 && !t->failures; k++) {
				model_hashes(t, g, o[k], T, got, &m);
				for (int64_t i = 0; i < n; i++)
					TT_CHECK_MSG(t, m == n && got[i] == want[i], "%s, T %lld, options %d: state %lld differs",
						numerics ? "exact" : "fast", (long long)T, k, (long long)i);
			}
		}
}

const tt_case tt_suite_exec_model[] = {
	{"step", case_model, TT_TIER_QUICK},
	{0},
};
