/* fuse: no bit depends on fusion. Runs with every pattern on, off, and alone; what the pass makes and what it must leave alone. */
#include "op_run.h"
#include "pass/pass.h"
#include "tiny.h"

enum { STEPS = 3 };

static int npatterns(void)
{
	int n = 0;
	while (tt_fuse_pattern(n, NULL))
		n++;
	return n;
}

/* Names of all patterns but `but`. */
static tt_strings all_but(tt_arena *a, int but)
{
	int n = npatterns(), k = 0;
	const char **names = TT_NEWN(a, const char *, n);
	for (int i = 0; i < n; i++)
		if (i != but)
			names[k++] = tt_fuse_pattern(i, NULL);
	return (tt_strings){ names, k };
}

/* Whole rows and documents of uneven length, two microbatches of which the second is shorter. */
static tt_run_options options(tt_test *t, tt_dtype compute, bool odd)
{
	tt_rows rows = tiny_rows(t->arena, ROWS * STEPS, CONTEXT, odd ? VOCAB : 64, 3);
	tt_run_options o = tiny_options(tiny_model(odd ? VOCAB : 64), rows, CONTEXT, ROWS);
	o.compute = compute;
	o.tokens_per_microbatch = 3 * CONTEXT;
	o.model.tie_word_embeddings = !odd;
	o.loss_chunks = odd ? 3 : 1;
	o.optim.sgd = !odd;
	o.optim.momentum = 0.9;
	return o;
}

typedef struct setting { const char *what; bool ref; int threads; } setting;
static const setting SETTINGS[] = { { "1 thread", false, 1 }, { "2 threads", false, 2 }, { "references", true, 1 } };

static void same_bits(tt_test *t, tt_dtype compute)
{
	for (int odd = 0; odd < 2; odd++) {
		tt_run_options o = options(t, compute, odd);
		o.fuse_off = all_but(t->arena, -1);
		tiny_end want, got;
		if (!tiny_run(t, &o, STEPS, &want))
			return;
		for (int s = 0; s < TT_COUNT(SETTINGS); s++)
			for (int only = -1; only < npatterns(); only++) {
				if (only >= 0 && s != 0 && (t->tier == TT_TIER_QUICK || tiny_isa(t) == TT_ISA_REF))
					continue;
				tt_run_options p = o;
				p.exec.kernels_ref = SETTINGS[s].ref;
				p.exec.isa = SETTINGS[s].ref ? TT_ISA_REF : tiny_isa(t);
				p.exec.threads = SETTINGS[s].threads;
				p.fuse_off = only < 0 ? (tt_strings){ 0 } : all_but(t->arena, only);
				if (!tiny_run(t, &p, STEPS, &got))
					return;
				tiny_same(t, &want, &got, tt_arena_printf(t->arena, "%s, %s, %s model: %s", tt_dtype_name(compute), SETTINGS[s].what,
					odd ? "odd" : "even", only < 0 ? "all patterns" : tt_fuse_pattern(only, NULL)));
			}
		tt_run_options p = o; /* it can fail */
		p.exec.seed++;
		if (tiny_run(t, &p, STEPS, &got))
			TT_CHECK(t, tiny_differs(t->arena, &want, &got));
	}
}

static void case_f32(tt_test *t) { same_bits(t, TT_F32); }
static void case_bf16(tt_test *t) { same_bits(t, TT_BF16); }

/* Bytes of all regions of a run, and lines of its programs as text. */
typedef struct size { int64_t bytes, lines; } size;
static size size_of(tt_test *t, const tt_run_options *o)
{
	tt_trainer *tr = NULL;
	size s = { 0 };
	if (!TT_CHECK_OK(t, tt_trainer_create(o, &tr)))
		return s;
	for (int r = 0; r < TT_EXEC_NREGIONS; r++)
		s.bytes += tt_exec_planned(tt_trainer_exec(tr), r);
	tt_buf b = { 0 };
	for (int seg = 0; seg < TT_NSEGS; seg++)
		tt_exec_print_program(tt_trainer_exec(tr), (tt_segment)seg, &b);
	for (size_t i = 0; i < b.n; i++)
		s.lines += b.s[i] == '\n';
	tt_buf_fini(&b);
	tt_trainer_destroy(tr);
	return s;
}

/* No pattern makes the plan larger, and every one is found in one of the models (norm_rope has a case of its own: none norms its queries; references read plain weights: nothing is packed for them). */
static void case_plans(tt_test *t)
{
	bool *found = TT_NEWN(t->arena, bool, npatterns());
	for (int k = 0; k < 4; k++) {
		tt_run_options o = options(t, k & 1 ? TT_BF16 : TT_F32, k & 2);
		o.exec.kernels_ref = false;
		o.exec.isa = tiny_isa(t);
		o.fuse_off = all_but(t->arena, -1);
		size off = size_of(t, &o);
		for (int i = 0; i < npatterns(); i++) {
			o.fuse_off = all_but(t->arena, i);
			size on = size_of(t, &o);
			found[i] |= on.lines < off.lines;
			TT_CHECK_MSG(t, on.bytes <= off.bytes, "%s: the plan has %lld bytes, %lld without", tt_fuse_pattern(i, NULL), (long long)on.bytes,
				(long long)off.bytes);
		}
	}
	for (int i = 0; i < npatterns(); i++)
		TT_CHECK_MSG(t, found[i] || tiny_isa(t) == TT_ISA_REF || !strcmp(tt_fuse_pattern(i, NULL), "norm_rope"), "%s is in no model: nothing was compared", tt_fuse_pattern(i, NULL));
}

/* Token losses of one batch through EVAL. */
static bool losses(tt_test *t, const tt_run_options *o, float *nll)
{
	tt_trainer *tr = NULL;
	if (!TT_CHECK_OK(t, tt_trainer_create(o, &tr)))
		return false;
	tt_step *s = tt_step_new(t->arena, ROWS, CONTEXT);
	tt_batch *b = tt_batch_new(t->arena, 3 * CONTEXT);
	double sum;
	bool ok = TT_CHECK_OK(t, tt_data_step(tt_trainer_data(tr), 0, s));
	tt_batch_fill(s, 0, 2, b);
	ok = ok && TT_CHECK_OK(t, tt_trainer_forward(tr, b, &sum));
	for (int c = 0; c < o->loss_chunks && ok; c++) {
		tt_slot slot;
		ok = TT_CHECK_OK(t, tt_exec_output(tt_trainer_exec(tr), TT_SEG_EVAL, tt_arena_printf(t->arena, "loss.%d.nll", c), &slot));
		int64_t n = ok ? TT_MAX((int64_t)0, TT_MIN(b->T - slot.dim[0].base, slot.dim[0].n)) : 0;
		ok = ok && TT_CHECK_OK(t, tt_tensor_read(tt_trainer_exec(tr), &slot, 0, nll + slot.dim[0].base, n));
	}
	tt_trainer_destroy(tr);
	return ok;
}

static void case_eval(tt_test *t)
{
	for (int k = 0; k < 4; k++) {
		tt_run_options o = options(t, k & 1 ? TT_BF16 : TT_F32, k & 2);
		float want[2 * CONTEXT], got[2 * CONTEXT];
		o.eval_tokens = 3 * CONTEXT;
		o.exec.isa = tiny_isa(t);
		o.exec.kernels_ref = false;
		o.fuse_off = all_but(t->arena, -1);
		bool ok = losses(t, &o, want);
		o.fuse_off = (tt_strings){ 0 };
		if (ok && losses(t, &o, got))
			TT_CHECK_MSG(t, !memcmp(want, got, sizeof want) && want[0] > 1, "%s, model %d: losses differ", tt_dtype_name(o.compute), k / 2);
	}
}

/* A weight gradient into an accumulator: lines past a block of open tiles, features past a panel, more tokens than one chunk has. */
static void case_dw_accumulate(tt_test *t)
{
	enum { O = 1549, K = 70 };
	for (int k = 0; k < 8; k++) {
		tt_dtype dt = k & 1 ? TT_BF16 : TT_F32;
		const int64_t T[] = { k & 1 ? 2059 : 1100, 37, 0 };
		const op_env e = { .isa = op_isa(t), .kernels_fast = true, .threads = k & 2 ? 2 : 1, .first = k & 4 };
		tt_graph *g = tt_graph_new(t->arena, &(tt_mesh){ 0 }, false);
		tt_dim n = tt_dim_of(TT_TOKENS, T[0], 1), o = tt_dim_of(TT_FFN, O, 1), d = tt_dim_of(TT_D, K, 1);
		tt_v dy = tt_input(g, "dy", dt, TT_NODTYPE, 2, (tt_dim[]){ n, o }), x = tt_input(g, "x", dt, TT_NODTYPE, 2, (tt_dim[]){ n, d });
		tt_v acc = tt_input(g, "acc", TT_ACC, TT_NODTYPE, 2, (tt_dim[]){ o, d });
		tt_attr_accumulate first = { true };
		tt_v want = tt_accumulate(g, acc, tt_node_add(g, &tt_op_linear_dw, NULL, 2, (tt_v[]){ dy, x }, NULL), true);
		tt_v got = tt_node_add(g, &tt_op_linear_dw_acc, &first, 3, (tt_v[]){ acc, dy, x }, "fused");
		for (int i = 0; i < TT_COUNT(T); i++) {
			op_tensor **v = op_inputs(t->arena, g, &e, T[i], t->seed);
			for (int64_t j = 0; j < v[acc]->count; j += 7) /* a sum with +0 is +0 */
				op_set(v[acc], j, -0.0);
			if (TT_CHECK_OK(t, op_exec(t->arena, g, &e, T[i], v)))
				TT_CHECK_MSG(t, op_same(v[want], v[got]), "%s, %d threads, %s, %lld tokens", tt_dtype_name(dt), e.threads,
					e.first ? "first" : "not first", (long long)T[i]);
		}
	}
}

static int64_t count_ops(const tt_graph *g, const tt_op *op)
{
	int64_t n = 0;
	for (int64_t i = 0; i < g->nnodes; i++)
		n += g->nodes[i].op == op;
	return n;
}

/* Normed queries and keys with rope: the bits of the two, lines wider than a buffer; found by the pass as the model writes it, not where it turns
 * back, not where the norm is read by others. */
static void case_norm_rope(tt_test *t)
{
	static const struct { int64_t width, head; } sizes[] = { { 96, 32 }, { 16, 16 }, { 1152, 64 }, { 2048, 128 } };
	static const int64_t T[] = { 77, 1, 0 };
	for (int k = 0; k < 8 * TT_COUNT(sizes); k++) {
		int64_t D = sizes[k / 8].width, K = sizes[k / 8].head;
		tt_dtype dt = k & 1 ? TT_BF16 : TT_F32;
		const op_env e = { .isa = k & 4 ? TT_ISA_REF : op_isa(t), .threads = k & 2 ? 2 : 1 };
		tt_graph *g = tt_graph_new(t->arena, &(tt_mesh){ 0 }, false);
		tt_dim n = tt_dim_of(TT_TOKENS, T[0], 1), d = tt_dim_of(TT_HEADS, D, K), w1 = tt_dim_of(TT_HEADS, D, K);
		tt_v x = tt_input(g, "x", dt, TT_NODTYPE, 2, (tt_dim[]){ n, d }), w = tt_input(g, "w", dt, TT_NODTYPE, 1, &w1);
		tt_v table = tt_input(g, "table", TT_F32, TT_NODTYPE, 2, (tt_dim[]){ n, tt_dim_of(TT_HEAD_DIM, K, 1) });
		tt_attr_norm a = { 1e-6 };
		tt_v y = tt_rms_norm(g, x, w, a.eps, "y"), want = tt_rope(g, y, table, K, "want");
		tt_v got = tt_node_add(g, &tt_op_rms_norm_rope, &a, 3, (tt_v[]){ x, w, table }, "fused");
		for (int i = 0; i < TT_COUNT(T); i++) {
			op_tensor **v = op_inputs(t->arena, g, &e, T[i], t->seed);
			if (TT_CHECK_OK(t, op_exec(t->arena, g, &e, T[i], v)))
				TT_CHECK_MSG(t, op_same(v[want], v[got]) && op_same(v[tt_out(y, 1)], v[tt_out(got, 1)]), "%s, %s, %d threads, %lld in heads of %lld, %lld tokens",
					tt_dtype_name(dt), tt_isa_name(e.isa), e.threads, (long long)D, (long long)K, (long long)T[i]);
		}
	}
	for (int kind = 0; kind < 4; kind++) { /* as it is; off; turned back; the norm is an output */
		const char *off[] = { "norm_rope" };
		tt_fuse_options o = { .isa = op_isa(t), .threads = 1, .off = off, .noff = kind == 1 };
		tt_graph *g = tt_graph_new(t->arena, &(tt_mesh){ 0 }, false), *out = NULL;
		tt_dim n = tt_dim_of(TT_TOKENS, 8, 1), d = tt_dim_of(TT_HEADS, 64, 16), k = tt_dim_of(TT_HEAD_DIM, 16, 1);
		tt_attr_rope turn = { 16, kind == 2 };
		g->seg = TT_SEG_F;
		tt_v x = tt_input(g, "x", TT_F32, TT_NODTYPE, 2, (tt_dim[]){ n, d }), w = tt_input(g, "w", TT_F32, TT_NODTYPE, 1, &d);
		tt_v y = tt_rms_norm(g, x, w, 1e-6, "y"), table = tt_input(g, "table", TT_F32, TT_NODTYPE, 2, (tt_dim[]){ n, k });
		tt_graph_output(g, tt_node_add(g, &tt_op_rope, &turn, 2, (tt_v[]){ y, table }, "z"));
		if (kind == 3)
			tt_graph_output(g, y);
		if (TT_CHECK_OK(t, tt_graph_check(g)) && TT_CHECK_OK(t, tt_pass_fuse(g, &o, t->arena, &out)))
			TT_CHECK_INT(t, count_ops(out, &tt_op_rms_norm_rope), kind == 0);
	}
}

/* The embedding's gradient into an accumulator: ids met again within a block of tokens and over several, ids of another shard, lines without
 * tokens whose state is -0. */
static void case_embedding_accumulate(tt_test *t)
{
	enum { V = 60, SHARD = 40, FIRST = 7, D = 70 };
	static const int64_t T[] = { 300, 128, 5, 0 };
	for (int k = 0; k < 16; k++) {
		tt_dtype dt = k & 1 ? TT_BF16 : TT_F32;
		const op_env e = { .isa = k & 8 ? TT_ISA_REF : op_isa(t), .threads = k & 2 ? 2 : 1, .first = k & 4 };
		tt_graph *g = tt_graph_new(t->arena, &(tt_mesh){ 0 }, false);
		tt_dim n = tt_dim_of(TT_TOKENS, T[0], 1), v = tt_dim_of(TT_VOCAB, SHARD, 1), d = tt_dim_of(TT_D, D, 1);
		tt_v ids = tt_input(g, "ids", TT_I32, TT_NODTYPE, 1, &n), dy = tt_input(g, "dy", dt, TT_NODTYPE, 2, (tt_dim[]){ n, d });
		tt_v w = tt_input(g, "w", dt, TT_NODTYPE, 2, (tt_dim[]){ v, d }), acc = tt_input(g, "acc", TT_ACC, TT_NODTYPE, 2, (tt_dim[]){ v, d });
		tt_attr_embedding_acc a = { { FIRST, SHARD }, true };
		tt_v dw = tt_node_add(g, &tt_op_embedding_dw, &a.vocab, 3, (tt_v[]){ ids, dy, w }, NULL);
		tt_v want = tt_accumulate(g, acc, dw, true), got = tt_node_add(g, &tt_op_embedding_dw_acc, &a, 4, (tt_v[]){ acc, ids, dy, w }, "fused");
		for (int i = 0; i < TT_COUNT(T); i++) {
			op_tensor **x = op_inputs(t->arena, g, &e, T[i], t->seed);
			for (int64_t j = 0; j < x[ids]->count; j++)
				op_set(x[ids], j, (double)((j * j + 3 * j) % V));
			for (int64_t j = 0; j < x[acc]->count; j += 3)
				op_set(x[acc], j, -0.0);
			if (TT_CHECK_OK(t, op_exec(t->arena, g, &e, T[i], x)))
				TT_CHECK_MSG(t, op_same(x[want], x[got]), "%s, %s, %d threads, %s, %lld tokens", tt_dtype_name(dt), tt_isa_name(e.isa),
					e.threads, e.first ? "first" : "not first", (long long)T[i]);
		}
	}
}

/* In place, as a run has it: a line without tokens is state + 0 too. */
static void case_embedding_in_place(tt_test *t)
{
	enum { V = 3, D = 20, T = 2 };
	float state[V * D], dy[T * D];
	int32_t ids[T] = { 1, 1 }, scratch[V + 2 + T];
	for (int i = 0; i < V * D; i++)
		state[i] = i % 3 ? (float)i : -0.0f;
	for (int i = 0; i < T * D; i++)
		dy[i] = 1;
	tt_attr_embedding_acc a = { { 0, V }, false };
	tt_arg acc = { .p = state, .dtype = TT_ACC, .ndim = 2, .n = { V, D }, .ld = D };
	tt_arg in[] = { acc, { .p = ids, .dtype = TT_I32, .ndim = 1, .n = { T }, .ld = 1 }, { .p = dy, .dtype = TT_F32, .ndim = 2, .n = { T, D }, .ld = D }, acc };
	tt_env env = { .threads = 1 };
	tt_call c = { .in = in, .out = &acc, .nin = 4, .nout = 1, .attr = &a, .scratch = scratch, .env = &env };
	tt_kernel_ref("embedding_dw_acc", op_isa(t), false)->run(&c);
	for (int i = 0; i < V * D; i++) {
		float want = (i % 3 ? (float)i : 0.0f) + (i / D == 1 ? 2 : 0);
		TT_CHECK_MSG(t, !memcmp(&state[i], &want, sizeof want), "element %d is %g, not %g", i, (double)state[i], (double)want);
	}
}

/* Products and their rests on packed weights against the references of their parts: features past a panel, heads
 * smaller than a panel, of one, of two; blocks of lines, few lines, none; more of the contraction than one call takes. */
static void case_linear_tails(tt_test *t)
{
	static const struct { int64_t d, f, heads, head; } sizes[] = { { 70, 200, 5, 16 }, { 262, 64, 2, 64 }, { 2050, 130, 3, 128 }, { 34, 30, 3, 64 } };
	static const int64_t T[] = { 1161, 37, 1, 0 };
	for (int k = 0; k < 4 * TT_COUNT(sizes); k++) {
		int64_t D = sizes[k / 4].d, F = sizes[k / 4].f, K = sizes[k / 4].head, H = sizes[k / 4].heads * K;
		tt_dtype dt = k & 1 ? TT_BF16 : TT_F32;
		const op_env e = { .isa = op_isa(t), .kernels_fast = true, .threads = k & 2 ? 2 : 1 };
		bool packed = e.isa != TT_ISA_REF;
		tt_graph *g = tt_graph_new(t->arena, &(tt_mesh){ 0 }, false);
		tt_dim n = tt_dim_of(TT_TOKENS, T[0], 1), d = tt_dim_of(TT_D, D, 1), f = tt_dim_of(TT_FFN, F, 1), h = tt_dim_of(TT_HEADS, H, K);
		tt_v x = tt_input(g, "x", dt, TT_NODTYPE, 2, (tt_dim[]){ n, d }), w[3], fwd[3];
		tt_v table = tt_input(g, "table", TT_F32, TT_NODTYPE, 2, (tt_dim[]){ n, tt_dim_of(TT_ONE, K, 1) });
		for (int i = 0; i < 3; i++) {
			w[i] = tt_input(g, tt_arena_printf(t->arena, "w%d", i), dt, TT_NODTYPE, 2, (tt_dim[]){ i < 2 ? f : h, d });
			fwd[i] = packed ? tt_pack(g, w[i], dt, TT_PACK_FWD, tt_arena_printf(t->arena, "fwd%d", i)) : w[i];
		}
		tt_v gate = tt_linear(g, x, w[0], 0, "gate"), up = tt_linear(g, x, w[1], 0, "up"), act = tt_silu_mul(g, gate, up, "act");
		tt_v q = tt_rope(g, tt_linear(g, x, w[2], 0, "y"), table, K, "q");
		tt_attr_dtype a = { dt };
		tt_attr_linear_rope r = { { K, false }, dt };
		tt_v got = tt_node_add(g, &tt_op_linear_silu_mul, &a, 3, (tt_v[]){ x, fwd[0], fwd[1] }, "fused");
		tt_v got_q = tt_node_add(g, &tt_op_linear_rope, &r, 3, (tt_v[]){ x, fwd[2], table }, "fused_q");
		for (int i = 0; i < TT_COUNT(T); i++) {
			op_tensor **v = op_inputs(t->arena, g, &e, T[i], t->seed);
			if (TT_CHECK_OK(t, op_exec(t->arena, g, &e, T[i], v)))
				TT_CHECK_MSG(t, op_same(v[gate], v[got]) && op_same(v[up], v[tt_out(got, 1)]) && op_same(v[act], v[tt_out(got, 2)]) &&
					op_same(v[q], v[got_q]), "%s, %d threads, %lldx%lld, heads of %lld, %lld tokens", tt_dtype_name(dt),
					e.threads, (long long)F, (long long)D, (long long)K, (long long)T[i]);
		}
	}
}

/* Both packs of weights of all edges, between all dtypes, are those that two packs make. */
static void case_pack_pair(tt_test *t)
{
	static const int64_t sizes[][2] = { { 70, 9 }, { 5, 131 }, { 128, 192 }, { 64, 1 }, { 193, 66 } };
	for (int k = 0; k < 4; k++)
		for (int i = 0; i < TT_COUNT(sizes); i++) {
			tt_dtype from = k & 1 ? TT_BF16 : TT_F32, to = k & 2 ? TT_BF16 : TT_F32;
			tt_graph *g = tt_graph_new(t->arena, &(tt_mesh){ 0 }, false);
			tt_v w = tt_input(g, "w", from, TT_NODTYPE, 2, (tt_dim[]){ tt_dim_of(TT_FFN, sizes[i][0], 1), tt_dim_of(TT_D, sizes[i][1], 1) });
			tt_v fwd = tt_pack(g, w, to, TT_PACK_FWD, "fwd"), dx = tt_pack(g, w, to, TT_PACK_DX, "dx");
			tt_attr_dtype a = { to };
			tt_v pair = tt_node_add(g, &tt_op_pack_pair, &a, 1, &w, "pair");
			for (int s = 0; s < 2; s++) {
				const op_env e = { .isa = s ? op_isa(t) : TT_ISA_REF, .threads = 1 + s };
				op_tensor **v = op_inputs(t->arena, g, &e, -1, t->seed);
				if (TT_CHECK_OK(t, op_exec(t->arena, g, &e, -1, v)))
					TT_CHECK_MSG(t, op_same(v[fwd], v[pair]) && op_same(v[dx], v[tt_out(pair, 1)]), "%s to %s, %lldx%lld, %s",
						tt_dtype_name(from), tt_dtype_name(to), (long long)sizes[i][0], (long long)sizes[i][1], tt_isa_name(e.isa));
			}
		}
}

/* The words of debug.passes. */
static void case_words(tt_test *t)
{
	const char *const *off, *all[] = { "-fuse" }, *one[] = { "-fuse.round_sgd" }, *typo[] = { "-fuse.round_sdg" }, *overlap[] = { "-overlap" };
	int n = 0;
	bool overlap_off = true;
	TT_CHECK_OK(t, tt_passes_off(t->arena, all, 1, &off, &n, &overlap_off));
	TT_CHECK(t, n == npatterns() && !overlap_off);
	TT_CHECK_OK(t, tt_passes_off(t->arena, one, 1, &off, &n, &overlap_off));
	TT_CHECK(t, n == 1 && !strcmp(off[0], "round_sgd"));
	TT_CHECK_FAILS(t, tt_passes_off(t->arena, typo, 1, &off, &n, &overlap_off), TT_ERR_USAGE, "nearest: -fuse.round_sgd");
	TT_CHECK_OK(t, tt_passes_off(t->arena, overlap, 1, &off, &n, &overlap_off));
	TT_CHECK(t, n == 0 && overlap_off);
}

/* docs/passes.md has every pattern with its line. */
static void case_page(tt_test *t)
{
	char *text;
	size_t n;
	const char *doc, *name;
	if (!TT_CHECK_OK(t, tt_file_read(t->arena, "docs/passes.md", &text, &n)))
		return;
	for (int i = 0; (name = tt_fuse_pattern(i, &doc)); i++)
		TT_CHECK_MSG(t, strstr(text, tt_arena_printf(t->arena, "| `%s` | %s |", name, doc)), "docs/passes.md: no line for %s", name);
}

const tt_case tt_suite_fuse[] = {
	{ "f32", case_f32, TT_TIER_QUICK },
	{ "bf16", case_bf16, TT_TIER_QUICK },
	{ "eval", case_eval, TT_TIER_QUICK },
	{ "dw_accumulate", case_dw_accumulate, TT_TIER_QUICK },
	{ "embedding_accumulate", case_embedding_accumulate, TT_TIER_QUICK },
	{ "embedding_in_place", case_embedding_in_place, TT_TIER_QUICK },
	{ "norm_rope", case_norm_rope, TT_TIER_QUICK },
	{ "linear_tails", case_linear_tails, TT_TIER_QUICK },
	{ "pack_pair", case_pack_pair, TT_TIER_QUICK },
	{ "plans", case_plans, TT_TIER_QUICK },
	{ "words", case_words, TT_TIER_QUICK },
	{ "page", case_page, TT_TIER_QUICK },
	{ 0 },
};
