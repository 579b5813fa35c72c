/* bench_attention.c: `titan bench attention`: forward and backward, one sequence a row and eight.
 *
 * FLOPs are those of attended (query, key) pairs: two products of head_dim multiplications and additions forward (scores, output), five
 * backward (scores again, dP, dV, dQ, dK). A kernel that computes masked pairs too is paid nothing for them.
 */
#include "cli/bench.h"
#include "ops/ops.h"

enum { SEQUENCES = 8 };

/* 768 features of queries. */
static const tt_attention_shape shapes[] = {
	{ 1024, 64, 12, 12, true }, { 1024, 64, 12, 4, true }, { 1024, 128, 6, 6, false }, { 1024, 128, 6, 2, true },
	{ 2048, 64, 12, 12, false }, { 2048, 64, 12, 4, false }, { 2048, 128, 6, 6, false }, { 2048, 128, 6, 2, false },
	{ 4096, 64, 12, 12, false }, { 4096, 64, 12, 4, true }, { 4096, 128, 6, 6, false }, { 4096, 128, 6, 2, false },
	{ 0 },
};

/* One row of `tokens` in nseqs sequences of the same length. */
static tt_status write_tables(tt_exec *e, int64_t tokens, int64_t nseqs, tt_arena *a)
{
	int32_t *positions = TT_NEWN(a, int32_t, tokens), *ids = TT_NEWN(a, int32_t, tokens), *lines = TT_NEWN(a, int32_t, tokens);
	int32_t *table = TT_NEWN(a, int32_t, nseqs + 1);
	for (int64_t t = 0; t < tokens; t++) {
		ids[t] = (int32_t)(t * nseqs / tokens);
		positions[t] = (int32_t)(t % (tokens / nseqs));
		lines[t] = (int32_t)t;
	}
	for (int64_t s = 0; s <= nseqs; s++)
		table[s] = (int32_t)(s * tokens / nseqs);
	TT_TRY(tt_exec_write(e, "positions", 0, positions, tokens));
	TT_TRY(tt_exec_write(e, "seq_ids", 0, ids, tokens));
	TT_TRY(tt_exec_write(e, "lines", 0, lines, tokens));
	return tt_exec_write(e, "seq_table", 0, table, nseqs + 1);
}

/* F: attention. B: its gradients. */
static tt_status compile(tt_arena *a, const tt_attention_shape *s, int64_t nseqs, tt_dtype dt, const tt_bench_env *env, tt_exec **out)
{
	tt_mesh one = { 0 };
	tt_graph *g = tt_graph_new(a, &one, false);
	tt_attr_attention at = { .head_dim = s->head_dim, .v_head_dim = s->head_dim, .group = s->heads / s->kv_heads,
				 .scale = 1 / __builtin_sqrt((double)s->head_dim) };
	tt_dim t = tt_dim_of(TT_TOKENS, s->tokens, 1), n = tt_dim_of(TT_SEQS, nseqs + 1, 1);
	tt_dim q = tt_dim_of(TT_HEADS, s->heads * s->head_dim, s->head_dim), kv = tt_dim_of(TT_KV_HEADS, s->kv_heads * s->head_dim, s->head_dim);
	q.group = at.group;
	g->seg = TT_SEG_F;
	tt_v in[10] = { tt_input(g, "q", dt, dt, 2, (tt_dim[]){ t, q }), tt_input(g, "k", dt, dt, 2, (tt_dim[]){ t, kv }),
			tt_input(g, "v", dt, dt, 2, (tt_dim[]){ t, kv }) };
	tt_seqs seqs = { .positions = tt_input(g, "positions", TT_I32, TT_NODTYPE, 1, &t), .seq_ids = tt_input(g, "seq_ids", TT_I32, TT_NODTYPE, 1, &t),
			 .seq_table = tt_input(g, "seq_table", TT_I32, TT_NODTYPE, 1, &n), .lines = tt_input(g, "lines", TT_I32, TT_NODTYPE, 1, &t) };
	in[5] = tt_input(g, "do", dt, dt, 2, (tt_dim[]){ t, q });
	in[3] = tt_attention(g, in[0], in[1], in[2], &seqs, &at, "o");
	in[4] = tt_out(in[3], 1);
	in[6] = seqs.positions, in[7] = seqs.seq_ids, in[8] = seqs.seq_table, in[9] = seqs.lines;
	g->seg = TT_SEG_B;
	tt_v dq = tt_node_add(g, &tt_op_attention_bwd, &at, 10, in, NULL);
	for (int i = 0; i < 3; i++)
		tt_graph_output(g, tt_out(dq, i));
	tt_exec *e;
	TT_TRY(tt_bench_compile(a, g, env, s->tokens, nseqs, &e));
	tt_status status = write_tables(e, s->tokens, nseqs, a);
	if (status != TT_OK) {
		tt_exec_destroy(e);
		TT_TRY(status);
	}
	*out = e;
	return TT_OK;
}

static double pairs_of(int64_t tokens, int64_t nseqs)
{
	double n = (double)(tokens / nseqs);
	return (double)nseqs * n * (n + 1) / 2;
}

static tt_status race_shape(const tt_attention_shape *s, tt_dtype dt, const tt_bench_options *o, tt_bench_peaks *peaks, json_t *rows)
{
	enum { FORWARD, BACKWARD, FORWARD_SEQS, BACKWARD_SEQS, N };
	tt_arena *a = tt_arena_create("bench");
	tt_bench_env env = { o->isa, tt_pool_threads(peaks->pool) };
	tt_bench_program p[N] = { 0 };
	tt_exec *e[2] = { 0 };
	tt_runner r[N];
	tt_status status = TT_OK;
	for (int i = 0; i < 2 && status == TT_OK; i++) {
		int64_t nseqs = i ? SEQUENCES : 1;
		status = compile(a, s, nseqs, dt, &env, &e[i]);
		for (int k = 0; k < 2; k++) {
			p[2 * i + k] = (tt_bench_program){ e[i], k ? TT_SEG_B : TT_SEG_F, { .T = s->tokens, .nseqs = nseqs, .first = true, .step = 1 } };
			r[2 * i + k] = (tt_runner){ k ? "backward" : "forward", tt_bench_program_run, &p[2 * i + k], 0, 0 };
		}
	}
	if (status == TT_OK) {
		tt_race race = tt_race_of(o->rounds ? o->rounds : 3);
		race.slice = o->slice > 0 ? o->slice : race.slice;
		tt_race_run(&race, r, N);
		tt_bench_peaks_look(peaks, dt, true, race.slice);
		double one = pairs_of(s->tokens, 1), many = pairs_of(s->tokens, SEQUENCES), flops = 4 * (double)(s->heads * s->head_dim);
		json_array_append_new(rows, json_pack(
			"{s:I, s:I, s:I, s:I, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:b}", "tokens", (json_int_t)s->tokens, "head_dim",
			(json_int_t)s->head_dim, "heads", (json_int_t)s->heads, "kv_heads", (json_int_t)s->kv_heads, "dtype", tt_dtype_name(dt), "threads",
			env.threads, "forward", flops * one / r[FORWARD].seconds / 1e9, "backward", 2.5 * flops * one / r[BACKWARD].seconds / 1e9,
			"forward_8", flops * many / r[FORWARD_SEQS].seconds / 1e9, "backward_8", 2.5 * flops * many / r[BACKWARD_SEQS].seconds / 1e9,
			"pairs_8", many / one, "forward_time_8", r[FORWARD_SEQS].seconds / r[FORWARD].seconds, "backward_time_8",
			r[BACKWARD_SEQS].seconds / r[BACKWARD].seconds, "others", race.others, "noisy", race.noisy));
	}
	for (int i = 0; i < 2; i++)
		tt_exec_destroy(e[i]);
	tt_arena_destroy(a);
	return status;
}

static tt_status race_all(const tt_bench_options *o, tt_bench_peaks *peaks, json_t *rows)
{
	for (int bf16 = 0; bf16 < 2; bf16++)
		for (const tt_attention_shape *i = o->attention ? o->attention : shapes; i->tokens; i++)
			if (!o->quick || i->quick)
				TT_TRY(race_shape(i, bf16 ? TT_BF16 : TT_F32, o, peaks, rows));
	return TT_OK;
}

tt_status tt_bench_attention(tt_arena *a, const tt_bench_options *o, json_t **out)
{
	(void)a;
	return tt_bench_rows("attention", race_all, o, out);
}
