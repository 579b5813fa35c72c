/* cp: context parallelism. Its conversions on ranks; every method, balancer and product with other axes against one rank; the forward's bits in
 * `fast`; how evenly attended keys are dealt. */
#include <math.h>

#include "data/data.h"
#include "ops/ops.h"
#include "pass/pass.h"
#include "tiny.h"
#include "train/verify.h"

/* ---- conversions on ranks -------------------------------------------------------------------------------------------------------------- */

enum { HEADS = 6, UNIT = 2, MOST_TOKENS = 12 };

typedef struct conversion {
	tt_test *t;
	tt_dtype dtype;
	tt_numerics numerics;
	tt_axis_type from, to;
	int k;
	int64_t T;
	_Atomic int wrong;
} conversion;

/* The piece of a dim of n units that rank r of k holds. */
static void piece(tt_axis_type x, int d, int r, int k, int64_t n, int64_t *lo, int64_t *hi)
{
	bool cut = x.type == TT_S && x.dim == d;
	int p = (r + x.shift) % k;
	*lo = cut ? tt_deal(n, p, k) : 0;
	*hi = cut ? tt_deal(n, p + 1, k) : n;
}

/* Element (token, column) of the whole; of limb j. */
static int64_t element(int64_t t, int64_t c, int j) { return 1000 * j + 64 * t + c + 1; }

/* Writes the piece under type x, or compares it with what is there; returns how many differ. */
static tt_status touch(const conversion *v, tt_exec *e, const char *name, tt_axis_type x, int rank, bool write, int *wrong)
{
	int64_t t0, t1, c0, c1, at = 0;
	piece(x, 0, rank, v->k, v->T, &t0, &t1);
	piece(x, 1, rank, v->k, HEADS, &c0, &c1);
	c0 *= UNIT, c1 *= UNIT;
	tt_slot s;
	if (write)
		TT_TRY(tt_exec_slot(e, name, &s));
	else
		TT_TRY(tt_exec_output(e, TT_SEG_F, name, &s));
	int planes = v->numerics == TT_EXACT ? 3 : 1;
	int64_t n = (t1 - t0) * (c1 - c0), limbs[3 * MOST_TOKENS * HEADS * UNIT];
	float real[MOST_TOKENS * HEADS * UNIT];
	for (int j = 0; j < planes; j++)
		for (int64_t t = t0; t < t1; t++)
			for (int64_t c = c0; c < c1; c++, at++) {
				limbs[at] = element(t, c, j);
				real[at % TT_COUNT(real)] = (float)element(t, c, j);
			}
	size_t size = (planes > 1 ? sizeof *limbs : sizeof *real) * (size_t)at;
	void *want = planes > 1 ? (void *)limbs : (void *)real;
	if (write)
		return tt_tensor_write(e, &s, 0, want, n);
	int64_t got[3 * MOST_TOKENS * HEADS * UNIT];
	TT_TRY(tt_tensor_read(e, &s, 0, got, n));
	*wrong += at && memcmp(got, want, size) != 0;
	return TT_OK;
}

static tt_status convert_rank(tt_comm *c, void *ctx)
{
	conversion *v = ctx;
	tt_arena *a = tt_arena_create("conversion");
	tt_mesh mesh = { 1, { { "x", v->k, false } } };
	tt_graph *g = tt_graph_new(a, &mesh, false), *local;
	tt_dim dims[] = { tt_dim_of(TT_TOKENS, MOST_TOKENS, 1), tt_dim_of(TT_HEADS, HEADS * UNIT, UNIT) };
	g->seg = TT_SEG_F;
	tt_v x = tt_input(g, "v", v->dtype, v->dtype, 2, dims), whole = tt_input(g, "whole", TT_I32, TT_NODTYPE, 1, dims);
	tt_layout l = tt_layout_all(TT_R);
	l.ax[0] = v->from;
	tt_value_set_layout(g, x, l);
	tt_v y = v->to.dim == v->from.dim ? tt_shift(g, x, "x", v->to.dim, v->to.shift) : tt_convert(g, x, "x", TT_S, v->to.dim);
	tt_graph_output(g, y);
	tt_graph_output(g, tt_convert(g, whole, "x", TT_S, 0)); /* so that the program has all tokens somewhere */
	int wrong = 0, rank = tt_comm_rank(c), size = v->k;
	static const char *const names[] = { "x" };
	tt_comm_axes axes;
	tt_exec *e = NULL;
	tt_status s = tt_graph_check(g);
	if (!s)
		s = tt_comm_axes_open(c, 1, &size, names, &axes);
	if (!s)
		s = tt_pass_localise(g, &rank, a, &local);
	tt_exec_options o = { .numerics = v->numerics, .isa = TT_ISA_REF, .kernels_ref = true, .threads = 1, .axes = &axes };
	if (!s)
		s = tt_exec_create(&o, &e);
	if (!s)
		s = tt_exec_add_graph(e, local);
	if (!s)
		s = tt_exec_plan(e);
	if (!s)
		s = tt_exec_reserve(e);
	if (!s)
		s = touch(v, e, "v", v->from, rank, true, &wrong);
	if (!s)
		s = tt_exec_run(e, TT_SEG_F, &(tt_cell){ .T = v->T, .first = true });
	if (!s)
		s = touch(v, e, tt_value_get(g, y)->name, v->to, rank, false, &wrong);
	v->wrong += wrong;
	tt_exec_destroy(e);
	tt_arena_destroy(a);
	return s;
}

static void conversions(tt_test *t)
{
	static const struct { tt_axis_type from, to; } of[] = {
		{ { .type = TT_S }, { .type = TT_S, .dim = 1 } }, { { .type = TT_S, .dim = 1 }, { .type = TT_S } },
		{ { .type = TT_S }, { .type = TT_S, .shift = 1 } }, { { .type = TT_S, .shift = 1 }, { .type = TT_S } },
		{ { .type = TT_S }, { .type = TT_S, .shift = 2 } }, { { .type = TT_S, .shift = 2 }, { .type = TT_S, .shift = 1 } },
		{ { .type = TT_S, .dim = 1 }, { .type = TT_S, .dim = 1, .shift = 1 } },
	};
	static const int64_t tokens[] = { 0, 1, 5, MOST_TOKENS };
	for (int i = 0; i < TT_COUNT(of); i++)
		for (int k = 2; k <= 4; k++)
			for (int n = 0; n < TT_COUNT(tokens); n++)
				for (int exact = 0; exact < 2; exact++) {
					conversion v = { .t = t, .dtype = exact ? TT_ACC : TT_F32, .numerics = exact ? TT_EXACT : TT_FAST, .from = of[i].from,
							 .to = of[i].to, .k = k, .T = tokens[n] };
					if (v.from.shift >= k || v.to.shift >= k)
						continue;
					tt_comm_options o = { .init_timeout_s = 60 };
					TT_CHECK_OK(t, tt_comm_threads(k, &o, convert_rank, &v));
					TT_CHECK_MSG(t, !v.wrong, "conversion %d on %d ranks, %lld tokens, %s: %d ranks have other elements", i, k, (long long)tokens[n],
						     exact ? "limbs" : "f32", (int)v.wrong);
				}
}

/* ---- against one rank ------------------------------------------------------------------------------------------------------------------------ */

/* Rows of documents, some short; a model whose 4 kv heads 4 ranks can share out. */
static tt_run_options options(tt_test *t, int window, tt_dtype compute, tt_cp_method method, tt_balance balance)
{
	tt_llama_config m = tiny_model(VOCAB);
	m.num_attention_heads = 8;
	m.num_key_value_heads = 4;
	m.sliding_window = window;
	tt_run_options o = tiny_options(m, tiny_rows(t->arena, ROWS, CONTEXT, VOCAB, 3), CONTEXT, ROWS);
	o.compute = compute;
	o.loss_chunks = 3;
	o.mesh.cp_method = method;
	o.mesh.cp_balance = balance;
	return o;
}

static const struct { int size[TT_RUN_AXES]; bool sp; } meshes[] = {
	{ { 1, 1, 2, 1 }, false }, { { 1, 1, 4, 1 }, false }, { { 2, 1, 2, 1 }, false }, { { 1, 2, 2, 1 }, false },
	{ { 1, 1, 2, 2 }, false }, { { 1, 1, 2, 2 }, true }, { { 1, 2, 2, 2 }, true }, { { 2, 1, 2, 2 }, false },
};

static void report(void *ctx, const tt_verify_mesh *m)
{
	tt_test *t = ctx;
	TT_CHECK_MSG(t, !m->finding && !m->illegal, "%s, %s, %s, microbatches of %lld rows%s: %s", tt_verify_mesh_name(t->arena, m), tt_cp_method_name(m->cp_method),
		     tt_balance_name(m->cp_balance), (long long)m->rows, m->recompute ? ", recomputed" : "", m->finding ? m->finding : m->illegal);
}

/* Every `stride`-th of all meshes, methods and balancers from `first` on, against one run of one rank. */
static void prove(tt_test *t, int first, int stride, int steps, int64_t kv)
{
	tt_verify_mesh list[TT_COUNT(meshes) * 9];
	int n = 0;
	for (int i = first; i < TT_COUNT(list); i += stride) {
		if (i % 3 == TT_CP_HEAD_SWAP && kv % (meshes[i / 9].size[TT_CP] * meshes[i / 9].size[TT_TP]))
			continue;
		list[n] = (tt_verify_mesh){ .sp = meshes[i / 9].sp, .cp_method = (tt_cp_method)(i % 3), .cp_balance = (tt_balance)(i / 3 % 3), .rows = 1 + n % 2, .recompute = n / 2 % 2 };
		memcpy(list[n++].size, meshes[i / 9].size, sizeof list[0].size);
	}
	tt_run_options o = options(t, first % 2 ? 9 : 0, first % 2 ? TT_BF16 : TT_F32, TT_CP_GATHER, TT_BALANCE_HEADTAIL);
	o.model.num_key_value_heads = kv;
	tt_verify_options v = { .ranks = 8, .steps = steps, .list = list, .nlist = n };
	tt_verify_result r;
	if (TT_CHECK_OK(t, tt_verify(t->arena, &o, &v, report, t, &r)))
		TT_CHECK_INT(t, r.proven, n);
}

/* Strides without a factor of 3, so that methods and balancers take turns. */
static void exact(tt_test *t)
{
	prove(t, 1, 20, 1, 4);
	prove(t, 14, 20, 1, 4);
}

static void exact_all(tt_test *t)
{
	prove(t, 0, 2, 1, 4);
	prove(t, 1, 2, 1, 4);
	prove(t, 2, 4, 1, 1); /* tp over one kv head */
}

/* The proof can fail: one rank deals tokens otherwise, so some are there twice and some nowhere. */
static void other_balance(void *ctx, tt_run_options *o)
{
	(void)ctx;
	if (tt_comm_rank(o->mesh.comm) == 1)
		o->mesh.cp_balance = TT_BALANCE_NONE;
}

static void faults(tt_test *t)
{
	for (int m = TT_CP_HEAD_SWAP; m <= TT_CP_RING; m++) {
		tt_run_options o = options(t, 0, TT_F32, (tt_cp_method)m, TT_BALANCE_HEADTAIL);
		tt_verify_mesh mesh = { .size = { 1, 1, 2, 1 }, .cp_method = (tt_cp_method)m, .rows = 1 };
		tt_verify_options v = { .ranks = 2, .steps = 1, .list = &mesh, .nlist = 1, .fault = other_balance };
		tt_verify_result r;
		if (TT_CHECK_OK(t, tt_verify(t->arena, &o, &v, NULL, NULL, &r)))
			TT_CHECK_INT(t, r.failed, 1);
	}
}

/* ---- `fast` ------------------------------------------------------------------------------------------------------------------------------------ */

typedef struct fast_run {
	tt_run_options o;
	double nll[ROWS * CONTEXT]; /* by token of the step */
	double loss, norm;
} fast_run;

static tt_status read_losses(fast_run *f, tt_trainer *t, int rank, tt_arena *a)
{
	const tt_run_mesh *m = &f->o.mesh;
	int cp = m->size[TT_CP], data = m->size[TT_DP_REPLICATE] * m->size[TT_DP_SHARD], at = rank / m->size[TT_TP] % cp, d = rank / m->size[TT_TP] / cp;
	int64_t context = f->o.data.context_length, rows = f->o.data.tokens_per_step / context, r0 = tt_deal(rows, d, data), r1 = tt_deal(rows, d + 1, data);
	tt_step *s = tt_step_new(a, rows, context);
	tt_batch *b = tt_batch_new(a, rows * context);
	TT_TRY(tt_data_step(tt_trainer_data(t), 0, s));
	tt_batch_fill(s, r0, r1, b);
	int32_t *order = TT_NEWN(a, int32_t, rows * context);
	for (int64_t i = 0; i < b->T; i++)
		order[i] = (int32_t)i;
	if (cp > 1)
		tt_batch_order(b, context, f->o.model.sliding_window, m->cp_balance, tt_dealer_new(a, rows * context, cp), order);
	int64_t first = tt_deal(b->T, at, cp), T = tt_deal(b->T, at + 1, cp) - first;
	for (int i = 0; i < f->o.loss_chunks; i++) {
		tt_slot x;
		double got[ROWS * CONTEXT];
		float half[ROWS * CONTEXT];
		TT_TRY(tt_exec_output(tt_trainer_exec(t), TT_SEG_B, tt_arena_printf(a, "loss.%d.nll", i), &x));
		int64_t base = x.dim[0].base, n = TT_MIN(x.dim[0].n, T - base);
		if (n <= 0)
			continue;
		TT_TRY(tt_tensor_read(tt_trainer_exec(t), &x, 0, f->o.exec.f64 ? (void *)got : (void *)half, n));
		for (int64_t k = 0; k < n; k++)
			f->nll[r0 * context + order[first + base + k]] = f->o.exec.f64 ? got[k] : (double)half[k];
	}
	return TT_OK;
}

static tt_status fast_rank(tt_comm *c, void *ctx)
{
	fast_run *f = ctx;
	tt_run_options o = f->o;
	o.mesh.comm = c;
	tt_trainer *t;
	tt_step_report r;
	TT_TRY(tt_trainer_create(&o, &t));
	tt_arena *a = tt_arena_create("losses");
	tt_status s = tt_trainer_step(t, &r);
	if (!s)
		s = read_losses(f, t, tt_comm_rank(c), a);
	if (!s && tt_comm_rank(c) == 0) {
		f->loss = r.loss;
		f->norm = r.grad_norm;
	}
	tt_arena_destroy(a);
	tt_trainer_destroy(t);
	return s;
}

static bool fast_step(tt_test *t, const tt_run_options *o, const int *size, fast_run *out)
{
	*out = (fast_run){ .o = *o };
	int ranks = 1;
	for (int i = 0; i < TT_RUN_AXES; i++)
		ranks *= out->o.mesh.size[i] = size[i];
	tt_comm_options c = { .init_timeout_s = 60 };
	return TT_CHECK_OK(t, tt_comm_threads(ranks, &c, fast_rank, out));
}

static const int alone[TT_RUN_AXES] = { 1, 1, 1, 1 };

/* A token's forward is that of one rank, bit for bit, where keys are gathered or heads swapped. */
static void fast_forward(tt_test *t)
{
	static const int sizes[][TT_RUN_AXES] = { { 1, 1, 2, 1 }, { 1, 1, 4, 1 }, { 1, 2, 2, 1 } };
	for (int bf16 = 0; bf16 < 2; bf16++)
		for (int fast = 0; fast < 2; fast++) {
			fast_run one, many;
			tt_run_options o = options(t, bf16 ? 9 : 0, bf16 ? TT_BF16 : TT_F32, TT_CP_GATHER, TT_BALANCE_HEADTAIL);
			o.exec.kernels_ref = !fast;
			o.exec.isa = tiny_isa(t);
			if (!fast_step(t, &o, alone, &one))
				return;
			for (int m = TT_CP_GATHER; m <= TT_CP_HEAD_SWAP; m++)
				for (int b = TT_BALANCE_HEADTAIL; b <= TT_BALANCE_NONE; b++) {
					int which = (m + b + bf16) % TT_COUNT(sizes);
					o.mesh.cp_method = (tt_cp_method)m;
					o.mesh.cp_balance = (tt_balance)b;
					if (!fast_step(t, &o, sizes[which], &many))
						return;
					int differ = 0;
					for (int i = 0; i < TT_COUNT(one.nll); i++)
						differ += one.nll[i] != many.nll[i];
					TT_CHECK_MSG(t, !differ, "%s, %s, mesh %d, %s kernels: %d of %d token losses differ", tt_cp_method_name((tt_cp_method)m), tt_balance_name((tt_balance)b),
						     which, fast ? "fast" : "reference", differ, TT_COUNT(one.nll));
				}
		}
}

/* Round a ring they differ in their last bits, and in double by no more than its sums' order makes; whatever the threads, they are the same. */
static void fast_ring(tt_test *t)
{
	static const int sizes[][TT_RUN_AXES] = { { 1, 1, 2, 1 }, { 1, 1, 4, 1 }, { 1, 2, 2, 1 } };
	for (int b = TT_BALANCE_HEADTAIL; b <= TT_BALANCE_COST; b++) {
		fast_run one, many, threads;
		tt_run_options o = options(t, b == TT_BALANCE_COST ? 9 : 0, TT_F64, TT_CP_RING, (tt_balance)b);
		o.exec.f64 = true;
		if (!fast_step(t, &o, alone, &one) || !fast_step(t, &o, sizes[b], &many))
			return;
		double worst = 0;
		for (int i = 0; i < TT_COUNT(one.nll); i++)
			worst = fmax(worst, fabs(one.nll[i] - many.nll[i]));
		TT_CHECK_MSG(t, worst < 1e-13 && fabs(one.loss - many.loss) < 1e-13 && fabs(one.norm / many.norm - 1) < 1e-13,
			     "%s: token losses differ by %g, losses by %g, norms by %g", tt_balance_name((tt_balance)b), worst, one.loss - many.loss, one.norm / many.norm - 1);
		o = options(t, 0, TT_BF16, TT_CP_RING, (tt_balance)b);
		o.exec.kernels_ref = false;
		o.exec.isa = tiny_isa(t);
		if (b != TT_BALANCE_HEADTAIL)
			continue;
		if (!fast_step(t, &o, sizes[b], &many))
			return;
		o.exec.threads = 2;
		if (!fast_step(t, &o, sizes[b], &threads))
			return;
		TT_CHECK_MSG(t, !memcmp(many.nll, threads.nll, sizeof many.nll) && many.norm == threads.norm, "%s: with 2 threads a ring has other bits", tt_balance_name((tt_balance)b));
	}
}

/* ---- who attends how much ---------------------------------------------------------------------------------------------------------------------- */

/* A batch of sequences of these lengths, and one of every length from `low` to `high` in a mixed order where high is given. */
static tt_batch *batch_of(tt_arena *a, const int32_t *lengths, int n, int64_t total, int low, int high)
{
	tt_batch *b = tt_batch_new(a, total);
	int32_t *positions = TT_NEWN(a, int32_t, total);
	uint64_t s = (uint64_t)low * 77 + (uint64_t)high;
	b->seq_table[0] = 0;
	for (int i = 0; b->T < total; i++) {
		int64_t len = high ? low + (int64_t)(tiny_next(&s) % (uint64_t)(1 + (tiny_next(&s) % 3 ? (high - low) / 9 : high - low))) : lengths[i % n];
		len = TT_MIN(len, total - b->T);
		for (int64_t p = 0; p < len; p++, b->T++) {
			positions[b->T] = (int32_t)p;
			b->seq_ids[b->T] = i;
		}
		b->seq_table[++b->nsequences] = (int32_t)b->T;
	}
	b->ids = b->labels = b->positions = positions;
	return b;
}

/* Most attended keys of a rank over least. Every token is dealt once, to ranks of about as many, which have theirs in the stream's order. */
static double ratio_of(tt_test *t, const tt_batch *b, int64_t context, int64_t window, tt_balance balance, int parts)
{
	int32_t *order = TT_NEWN(t->arena, int32_t, b->T);
	bool *seen = TT_NEWN(t->arena, bool, b->T);
	tt_batch_order(b, context, window, balance, tt_dealer_new(t->arena, b->T, parts), order);
	double most = 0, least = INFINITY;
	for (int r = 0; r < parts; r++) {
		double keys = 0;
		int64_t first = tt_deal(b->T, r, parts), end = tt_deal(b->T, r + 1, parts);
		for (int64_t i = first; i < end; i++) {
			int64_t p = b->positions[order[i]] + 1;
			TT_CHECK(t, !seen[order[i]] && (balance != TT_BALANCE_COST || i == first || order[i] > order[i - 1]));
			seen[order[i]] = true;
			keys += (double)(window && p > window ? window : p);
		}
		most = fmax(most, keys);
		least = fmin(least, keys);
	}
	return most / least;
}

static void balance(tt_test *t)
{
	static const struct { const char *name; int32_t lengths[6]; int n; int64_t total, window; int low, high; } mixes[] = {
		{ "one of 4096", { 4096 }, 1, 4096, 0, 0, 0 },
		{ "4096 and 4s", { 4096, 4, 4, 4, 4, 4 }, 6, 8192, 0, 0, 0 },
		{ "all of 4", { 4 }, 1, 4096, 0, 0, 0 },
		{ "all of 4, few", { 4 }, 1, 64, 0, 0, 0 },
		{ "all of 7", { 7 }, 1, 1000, 0, 0, 0 },
		{ "one short row", { 32 }, 1, 32, 0, 0, 0 },
		{ "halves", { 2048, 1024, 512, 256, 128, 128 }, 6, 4096, 0, 0, 0 },
		{ "a tail of one long", { 64, 64, 64, 64, 64, 3776 }, 6, 4096, 0, 0, 0 },
		{ "mixed", { 0 }, 0, 16384, 0, 4, 4096 },
		{ "mixed short", { 0 }, 0, 4096, 0, 4, 300 },
		{ "mixed, window", { 0 }, 0, 16384, 512, 4, 4096 },
		{ "long, window", { 4096 }, 1, 8192, 128, 0, 0 },
	};
	double worst[3] = { 0 };
	for (int i = 0; i < TT_COUNT(mixes); i++)
		for (int parts = 2; parts <= 16; parts *= 2) {
			tt_mark m = tt_arena_push(t->arena);
			tt_batch *b = batch_of(t->arena, mixes[i].lengths, mixes[i].n, mixes[i].total, mixes[i].low, mixes[i].high);
			if (b->T < 4 * parts) { /* that few tokens cannot be dealt evenly */
				tt_arena_pop(t->arena, m);
				continue;
			}
			for (int k = TT_BALANCE_HEADTAIL; k <= TT_BALANCE_NONE; k++) {
				double r = ratio_of(t, b, TT_MIN(b->T, (int64_t)4096), mixes[i].window, (tt_balance)k, parts);
				worst[k] = fmax(worst[k], r);
				if (k == TT_BALANCE_COST)
					TT_CHECK_MSG(t, r < 1.2, "%s, %d ranks: one attends %.3f times the keys of another", mixes[i].name, parts, r);
			}
			tt_arena_pop(t->arena, m);
		}
	/* the measure sees what is uneven */
	TT_CHECK_MSG(t, worst[TT_BALANCE_HEADTAIL] > 1.2 && worst[TT_BALANCE_NONE] > 1.2, "headtail %.3f, cost %.3f, none %.3f", worst[0], worst[1], worst[2]);
}

/* ---- what is refused ------------------------------------------------------------------------------------------------------------------------------ */

static void illegal(tt_test *t)
{
	tt_llama_config m = tiny_model(VOCAB);
	m.num_attention_heads = 12;
	m.num_key_value_heads = 6;
	tt_run_mesh mesh = { .size = { 1, 1, 3, 2 }, .cp_method = TT_CP_HEAD_SWAP };
	TT_CHECK(t, !tt_run_mesh_illegal(t->arena, &m, 32, &mesh));
	mesh.size[TT_CP] = 2;
	const char *why = tt_run_mesh_illegal(t->arena, &m, 32, &mesh);
	TT_CHECK_MSG(t, why && strstr(why, "context_parallel_degree 2 x tensor_parallel_degree 2 = 4 ranks") && strstr(why, "12 heads with 6 kv heads") &&
			     strstr(why, ": context_parallel_degree 1 or 3;"), "%s", why ? why : "legal");
	mesh.cp_method = TT_CP_RING;
	TT_CHECK(t, !tt_run_mesh_illegal(t->arena, &m, 32, &mesh));
	mesh.cp_method = TT_CP_GATHER;
	TT_CHECK(t, !tt_run_mesh_illegal(t->arena, &m, 32, &mesh));
	mesh.cp_method = TT_CP_HEAD_SWAP;
	mesh.size[TT_CP] = 1;
	TT_CHECK(t, !tt_run_mesh_illegal(t->arena, &m, 32, &mesh));
}

const tt_case tt_suite_cp[] = {
	{ "conversions", conversions, TT_TIER_QUICK },
	{ "exact", exact, TT_TIER_QUICK },
	{ "faults", faults, TT_TIER_QUICK },
	{ "fast_forward", fast_forward, TT_TIER_QUICK },
	{ "fast_ring", fast_ring, TT_TIER_QUICK },
	{ "balance", balance, TT_TIER_QUICK },
	{ "illegal", illegal, TT_TIER_QUICK },
	{ "exact_all", exact_all, TT_TIER_CI },
	{ 0 },
};
