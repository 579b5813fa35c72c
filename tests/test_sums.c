/* sums: an op sums what its entry says, and no order, split or merge changes a sum (EXACT.md).
 *
 * From the labels of an op follow, for every letter (a dim) of its operands:
 *   the letter is in an output     index j of the output comes from index j of the inputs alone, and permuting inputs permutes outputs;
 *   it is not, and the output is   a declared sum: in `exact` permuting the terms and adding up parts gives the same limbs;
 *     acc of an op that sums
 *   it is not, otherwise           not a sum at all: order must not show in a single bit. (Upper-case letters are whole on every rank.)
 * Terms have exponents from 2^-30 to 2^6 and cancel: what is left of a sum is smaller than its terms' rounding errors.
 *
 * Checks return what they found wrong as text, "" if nothing, so that ops and kernels broken on purpose prove that they find it.
 */
#include <math.h>

#include "ir/internal.h"
#include "kernels/exact.h"
#include "op_run.h"

enum { MAX_SAMPLES = 8, MAX_IN = 12, MAX_OUT = 4 };

/* One call of an op. */
typedef struct work {
	const tt_op *op;
	const void *attr;
	int nin, nout;
	op_tensor *in[MAX_IN], *out[MAX_OUT];
	op_env env;
} work;

static tt_status run(tt_arena *a, work *w) { return op_call(a, w->op, w->attr, w->nin, w->in, w->nout, &w->env, w->out); }

/* ---- labels -------------------------------------------------------------------------------------------------------------- */

/* Letters of an operand; dims of "*" are letters 1, 2, .. */
static tt_label letters(const tt_label *l, const op_tensor *x)
{
	tt_label out = *l;
	if (!l->any)
		return out;
	out.n = x->val.ndim;
	for (int d = 0; d < out.n; d++)
		out.c[d] = (char)(1 + d);
	return out;
}
static int find(const tt_label *l, char c)
{
	for (int d = 0; d < l->n; d++)
		if (l->c[d] == c)
			return d;
	return -1;
}
/* The dim that is letter c in input i or output k, -1 if none. */
static int in_dim(const work *w, int i, char c)
{
	if (!w->in[i])
		return -1;
	tt_labels l = tt_labels_parse(w->op);
	tt_label x = letters(tt_label_in(&l, i), w->in[i]);
	return find(&x, c);
}
static int out_dim(const work *w, int k, char c)
{
	tt_labels l = tt_labels_parse(w->op);
	tt_label x = letters(tt_label_out(&l, k), w->in[0]);
	return find(&x, c);
}

/* All letters that may be sharded or summed over: not upper-case, not "1". */
static int all_letters(const work *w, char *out)
{
	int n = 0;
	for (int c = 1; c < 128; c++) {
		if ((c >= 'A' && c <= 'Z') || c == '1')
			continue;
		bool any = false;
		for (int i = 0; i < w->nin; i++)
			any |= in_dim(w, i, (char)c) >= 0;
		if (any)
			out[n++] = (char)c;
	}
	return n;
}

static const tt_dim *dim_of(const work *w, char c)
{
	for (int i = 0; i < w->nin; i++) {
		int d = in_dim(w, i, c);
		if (d >= 0)
			return &w->in[i]->val.dim[d];
	}
	return NULL;
}

static bool is_float(const op_tensor *x) { return x->val.dtype != TT_I32 && x->val.dtype != TT_I64; }
static bool are_ids(const op_tensor *x) { return x->val.fill == TT_FILL_IDS || x->val.fill == TT_FILL_LABELS; }
static const char *letter_name(tt_arena *a, char c) { return c < 32 ? tt_arena_printf(a, "dim %d", c - 1) : tt_arena_printf(a, "'%c'", c); }

/* ---- permuting -------------------------------------------------------------------------------------------------------------- */

static uint64_t rnd(uint64_t *s)
{
	*s = tt_hash64(s, sizeof *s, 7);
	return *s;
}

/* Of n elements in units; k = 0 reverses, k = 1 rotates by one, else random. */
static int64_t *permutation(tt_arena *a, int64_t n, int64_t unit, int k, uint64_t seed)
{
	int64_t units = n / unit, *u = TT_NEWN(a, int64_t, TT_MAX(units, (int64_t)1)), *p = TT_NEWN(a, int64_t, TT_MAX(n, (int64_t)1));
	for (int64_t i = 0; i < units; i++)
		u[i] = k == 0 ? units - 1 - i : k == 1 ? (i + 1) % units : i;
	for (int64_t i = units - 1; k > 1 && i > 0; i--) {
		int64_t j = (int64_t)(rnd(&seed) % (uint64_t)(i + 1)), was = u[i];
		u[i] = u[j];
		u[j] = was;
	}
	for (int64_t i = 0; i < n; i++)
		p[i] = u[i / unit] * unit + i % unit;
	return p;
}

/* The same call with letter c permuted in every input; ids that point along it follow. */
static work permuted(tt_arena *a, const work *w, char c, const int64_t *perm)
{
	work p = *w;
	const tt_dim *d = dim_of(w, c);
	for (int i = 0; i < w->nin; i++) {
		int at = in_dim(w, i, c);
		if (at >= 0)
			p.in[i] = op_permute(a, w->in[i], at, perm);
		if (at >= 0 || !w->in[i] || d->role != TT_VOCAB || !are_ids(w->in[i]))
			continue;
		p.in[i] = op_copy(a, w->in[i]);
		for (int64_t k = 0; k < d->n; k++)
			for (int64_t t = 0; t < w->in[i]->count; t++)
				if (op_get(w->in[i], t) == (double)perm[k])
					op_set(p.in[i], t, (double)k);
	}
	return p;
}

static const char *failed(tt_arena *a, const work *w, char c, const char *what)
{
	return tt_arena_printf(a, "%s over %s, %s: %s", w->op->name, letter_name(a, c), w->env.numerics == TT_EXACT ? "exact" : "fast", what);
}

/* Indices of c in outputs follow a permutation of the inputs; outputs without c do not change, whether they are sums (`exact`) or not. Sums
 * in `fast` may. */
static const char *check_permuted(tt_arena *a, work *w, char c, const int64_t *perm)
{
	work p = permuted(a, w, c, perm);
	if (run(a, &p) != TT_OK)
		return failed(a, w, c, tt_error_text());
	for (int k = 0; k < w->nout; k++) {
		int d = out_dim(w, k, c);
		bool sum = w->out[k]->val.dtype == TT_ACC && (w->op->flags & TT_OP_ACC_SUM), chain = !tt_role_splittable(dim_of(w, c)->role);
		if (d >= 0 && !op_same(p.out[k], op_permute(a, w->out[k], d, perm)))
			return failed(a, w, c, "a permutation of the inputs does not permute the output");
		if (d < 0 && !(sum && w->env.numerics == TT_FAST) && !(!sum && chain) && !op_same(p.out[k], w->out[k]))
			return failed(a, w, c, sum ? "another order gives other limbs" : "an undeclared sum: the order shows");
	}
	return "";
}

/* ---- locality ------------------------------------------------------------------------------------------------------------------ */

/* `other`: the same call with other contents. Unit j of letter c comes from it, in all inputs; no other unit of an output may notice. */
static const char *check_local(tt_arena *a, work *w, const work *other, char c, int64_t j)
{
	work m = *w;
	const int64_t unit = dim_of(w, c)->unit, n = dim_of(w, c)->n;
	for (int i = 0; i < w->nin; i++) {
		int d = in_dim(w, i, c);
		if (d < 0)
			continue;
		const op_tensor *parts[] = {op_slice(a, w->in[i], d, 0, j * unit), op_slice(a, other->in[i], d, j * unit, unit),
			op_slice(a, w->in[i], d, (j + 1) * unit, n - (j + 1) * unit)};
		m.in[i] = op_concat(a, 3, parts, d);
	}
	if (run(a, &m) != TT_OK)
		return failed(a, w, c, tt_error_text());
	for (int k = 0; k < w->nout; k++) {
		int d = out_dim(w, k, c);
		if (d < 0)
			continue;
		bool same = op_same(op_slice(a, m.out[k], d, 0, j * unit), op_slice(a, w->out[k], d, 0, j * unit)) &&
			op_same(op_slice(a, m.out[k], d, (j + 1) * unit, n - (j + 1) * unit),
				op_slice(a, w->out[k], d, (j + 1) * unit, n - (j + 1) * unit));
		if (!same)
			return failed(a, w, c, "an undeclared sum: an element of the output depends on others");
	}
	return "";
}

/* ---- splitting ----------------------------------------------------------------------------------------------------------------- */

/* An input that the op's sums are added to. */
static bool is_accumulator(const work *w, int i) { return w->in[i] && w->in[i]->val.dtype == TT_ACC && (w->op->flags & TT_OP_ACC_SUM) && w->nin > 1; }

/* Terms [first, first+n) of letter c, as shard `rank`, which has them, would be called. */
static work part(tt_arena *a, const work *w, char c, int rank, int64_t first, int64_t n)
{
	work p = *w;
	bool vocab = dim_of(w, c)->role == TT_VOCAB;
	for (int i = 0; i < w->nin; i++) {
		int d = in_dim(w, i, c);
		if (d >= 0)
			p.in[i] = op_slice(a, w->in[i], d, first, n);
		else if (i >= w->op->nin && rank > 0)
			p.in[i] = NULL; /* a bias is one term: the first shard's */
		else if (is_accumulator(w, i) && rank > 0)
			p.in[i] = op_tensor_new(a, &w->in[i]->val, &w->env); /* so is what sums are added to */
	}
	void *attr = op_attr_copy(a, w->op, w->attr);
	int64_t *at = op_attr_at(w->op, attr, "first");
	if (at && vocab)
		*at += first;
	p.attr = attr;
	return p;
}

static const char *check_split(tt_arena *a, work *w, char c, int64_t cut)
{
	work x = part(a, w, c, 0, 0, cut), y = part(a, w, c, 1, cut, dim_of(w, c)->n - cut);
	if (run(a, &x) != TT_OK || run(a, &y) != TT_OK)
		return failed(a, w, c, tt_error_text());
	for (int k = 0; k < w->nout; k++)
		if (out_dim(w, k, c) < 0 && !op_same(op_sum(a, x.out[k], y.out[k]), w->out[k]))
			return failed(a, w, c, "the parts' limbs do not add up to the whole's");
	return "";
}

/* ---- terms that cancel --------------------------------------------------------------------------------------------------------------- */

static double wide(uint64_t *s)
{
	double m = 1 + (double)(rnd(s) >> 12) * 0x1p-52;
	return ldexp(rnd(s) & 1 ? m : -m, (int)(rnd(s) % 37) - 30);
}

/* The call with 2m + 1 terms along c: m of all sizes, the same m with the first factor negated, and one small one. */
static work cancelling(tt_arena *a, const work *w, char c, int64_t m, uint64_t seed)
{
	work p = *w;
	const int64_t n = 2 * m + 1;
	bool vocab = dim_of(w, c)->role == TT_VOCAB, negated = false;
	for (int i = 0; i < w->nin; i++) {
		op_tensor *x = w->in[i];
		int d = in_dim(w, i, c);
		if (x && d < 0 && are_ids(x) && vocab) {
			p.in[i] = op_copy(a, x);
			for (int64_t t = 0; t < x->count; t++)
				if (op_get(x, t) >= 0)
					op_set(p.in[i], t, (double)(rnd(&seed) % (uint64_t)n));
		}
		if (d < 0 && is_accumulator(w, i)) { /* as small as what is left of the terms */
			p.in[i] = op_copy(a, x);
			for (int64_t k = 0; k < x->count; k++)
				op_set(p.in[i], k, op_get(x, k) * 0x1p-40);
		}
		if (d < 0)
			continue;
		tt_value type = x->val;
		type.dim[d].n = m;
		op_tensor *half = op_tensor_new(a, &type, &w->env), *twin;
		for (int64_t k = 0; k < half->count; k++)
			op_set(half, k, is_float(x) ? wide(&seed) : op_get(x, (int64_t)(rnd(&seed) % (uint64_t)x->count)));
		twin = op_copy(a, half);
		for (int64_t k = 0; is_float(x) && !negated && k < half->count; k++)
			op_set(twin, k, -op_get(half, k));
		negated |= is_float(x);
		op_tensor *last = op_slice(a, half, d, 0, 1);
		for (int64_t k = 0; is_float(x) && k < last->count; k++)
			op_set(last, k, op_get(last, k) * 0x1p-25);
		const op_tensor *parts[] = {half, twin, last};
		p.in[i] = op_concat(a, 3, parts, d);
	}
	/* the only attributes that know an extent */
	void *attr = op_attr_copy(a, w->op, w->attr);
	tt_ints *edges = op_attr_at(w->op, attr, "segments");
	int64_t *ids = op_attr_at(w->op, attr, "n");
	if (edges)
		*edges = (tt_ints){0};
	if (ids && vocab)
		*ids = n;
	p.attr = attr;
	return p;
}

/* Declared sums of the call: permuted and split, in `exact`. `*changed`: permuting in `fast` changed some sum, so the terms are hard. */
static const char *check_sums(tt_arena *a, const work *w, int64_t m, uint64_t seed, int *checked, bool *changed)
{
	char all[128];
	int n = all_letters(w, all);
	const char *bad = "";
	for (int k = 0; k < n && !bad[0]; k++) {
		char c = all[k];
		bool sum = false;
		for (int o = 0; o < w->nout; o++)
			sum |= out_dim(w, o, c) < 0 && w->out[o]->val.dtype == TT_ACC && (w->op->flags & TT_OP_ACC_SUM);
		if (!sum)
			continue;
		(*checked)++;
		work x = cancelling(a, w, c, m, seed);
		for (int64_t i = 0; w->op == &tt_op_sum_exp && i < x.in[0]->count; i++)
			op_set(x.in[0], i, op_get(x.in[0], i) * 0x1p-5); /* exponents of e */
		if (w->op == &tt_op_sum_exp && op_call(a, &tt_op_row_max, NULL, 1, x.in, 1, &x.env, &x.in[1]) != TT_OK)
			return tt_error_text();
		if (run(a, &x) != TT_OK)
			return failed(a, w, c, tt_error_text());
		for (int i = 0; i < 4 && !bad[0]; i++)
			bad = check_permuted(a, &x, c, permutation(a, 2 * m + 1, 1, i, seed + (uint64_t)i));
		const int64_t cuts[] = {1, m / 2, m, m + 3, 2 * m, 0};
		for (int i = 0; i < TT_COUNT(cuts) && !bad[0]; i++)
			bad = check_split(a, &x, c, cuts[i]);
		work fast = x;
		fast.env.numerics = TT_FAST;
		if (!bad[0] && run(a, &fast) != TT_OK)
			return failed(a, &fast, c, tt_error_text());
		for (int i = 0; i < 16 && !bad[0]; i++) {
			work moved = permuted(a, &fast, c, permutation(a, 2 * m + 1, 1, 2, seed + (uint64_t)i));
			if (run(a, &moved) != TT_OK)
				return failed(a, &fast, c, tt_error_text());
			for (int o = 0; o < w->nout; o++)
				*changed |= out_dim(w, o, c) < 0 && !op_same(fast.out[o], moved.out[o]);
		}
	}
	return bad;
}

/* Every letter that is in an output, and every one that no declared sum is taken over. */
static const char *check_honest(tt_arena *a, work *w, const work *other, uint64_t seed)
{
	char all[128];
	int n = all_letters(w, all);
	const char *bad = "";
	for (int k = 0; k < n && !bad[0]; k++) {
		const tt_dim *d = dim_of(w, all[k]);
		if (d->n == 0)
			continue;
		/* random numbers are keyed by index: they belong to places, not to contents */
		for (int i = 0; i < 4 && !bad[0] && w->op != &tt_op_fill_normal; i++)
			bad = check_permuted(a, w, all[k], permutation(a, d->n, d->unit, i, seed + (uint64_t)i));
		const int64_t at[] = {0, d->n / d->unit / 2, d->n / d->unit - 1};
		for (int i = 0; i < TT_COUNT(at) && !bad[0]; i++)
			bad = check_local(a, w, other, all[k], at[i]);
	}
	return bad;
}

/* ---- the table ------------------------------------------------------------------------------------------------------------------------ */

/* The call of the op in its sample, run; nodes before it are run too. false: no such sample. */
static bool sample_work(tt_test *t, tt_arena *a, const tt_op *op, int which, op_env env, uint64_t seed, work *out)
{
	tt_graph *g = op_sample(a, op, which, false);
	if (!g)
		return false;
	op_tensor **v = op_inputs(a, g, &env, -1, seed);
	if (!TT_CHECK_OK(t, op_direct(a, g, &env, v)))
		return false;
	const tt_node *n = &g->nodes[g->nnodes - 1];
	TT_ASSERT(!strcmp(n->op->name, op->name) && n->nin <= MAX_IN && n->nout <= MAX_OUT, "sample of %s", op->name);
	*out = (work){.op = op, .attr = n->attr, .nin = n->nin, .nout = n->nout, .env = env};
	for (int i = 0; i < n->nin; i++)
		out->in[i] = n->in[i] ? v[n->in[i]] : NULL;
	for (int i = 0; i < n->nout; i++)
		out->out[i] = v[n->out[i]];
	return true;
}

/* The call with values in bf16, run; false: not an op that takes them. */
static bool in_bf16(tt_test *t, tt_arena *a, work *w)
{
	static const struct { const tt_op *op; unsigned val; } ops[] = {{&tt_op_embedding, 2}, {&tt_op_embedding_dw, 6}, {&tt_op_linear, 7},
		{&tt_op_linear_dx, 3}, {&tt_op_linear_dw, 3}, {&tt_op_sum_tokens, 1}, {&tt_op_rms_norm, 3}, {&tt_op_rms_norm_dx, 7},
		{&tt_op_rms_norm_dw, 3}, {&tt_op_rope, 1}, {&tt_op_silu_mul, 3}, {&tt_op_silu_mul_bwd, 7}};
	for (int k = 0; k < TT_COUNT(ops); k++) {
		if (w->op != ops[k].op)
			continue;
		for (int i = 0; i < w->nin; i++)
			if (ops[k].val >> i & 1)
				w->in[i] = op_convert(a, w->in[i], TT_BF16, &w->env);
		return TT_CHECK_OK(t, run(a, w));
	}
	return false;
}

static bool by_labels(const tt_op *op) { return op->labels && op->cls != TT_CLASS_MOVE && op != &tt_op_pack && op != &tt_op_pack_pair; }

static void declared(tt_test *t)
{
	for (const tt_op *const *op = tt_ops; *op; op++) {
		if (!((*op)->flags & TT_OP_ACC_SUM))
			continue;
		int checked = 0;
		bool changed = false;
		for (int which = 0; which < MAX_SAMPLES; which++) {
			tt_arena *a = tt_arena_create("sums");
			work w;
			bool is = sample_work(t, a, *op, which, (op_env){.numerics = TT_EXACT, .isa = op_isa(t)}, t->seed, &w);
			/* 41 terms, and enough for every block there is: 64, 128 and 256 */
			const int64_t sizes[] = {20, 290};
			for (int i = 0; is && i < 4; i++) {
				if (i == 2 && !in_bf16(t, a, &w))
					break;
				const char *bad = check_sums(a, &w, sizes[i % 2], t->seed + (uint64_t)i, &checked, &changed);
				TT_CHECK_MSG(t, !bad[0], "%s%s", i < 2 ? "" : "bf16: ", bad);
			}
			tt_arena_destroy(a);
			if (!is)
				break;
		}
		TT_CHECK_MSG(t, checked > 0, "%s: says that it sums, and no sample has a sum over a splittable role", (*op)->name);
		/* look-ups add zeros to one value: their order never shows */
		bool lookup = *op == &tt_op_pick || *op == &tt_op_embedding;
		TT_CHECK_MSG(t, changed != lookup, "%s: in fast, another order %s a sum", (*op)->name, lookup ? "changed" : "never changed");
	}
}

static void honest(tt_test *t)
{
	int checked = 0;
	for (const tt_op *const *op = tt_ops; *op; op++) {
		if (!(*op)->labels) {
			static const tt_op *const own[] = {&tt_op_attention, &tt_op_attention_bwd, &tt_op_rope_table, &tt_op_exchange, &tt_op_exchange_bucket, &tt_op_attention_part,
							   &tt_op_attention_merge, &tt_op_attention_max, &tt_op_attention_sum, &tt_op_attention_join};
			bool known = false;
			for (int k = 0; k < TT_COUNT(own); k++)
				known |= *op == own[k];
			TT_CHECK_MSG(t, known, "%s: has neither labels nor a test of its own in this suite", (*op)->name);
			continue;
		}
		for (int which = 0; by_labels(*op) && which < MAX_SAMPLES; which++)
			for (int exact = 0; exact < 2; exact++) {
				tt_arena *a = tt_arena_create("sums");
				const op_env env = {.numerics = exact ? TT_EXACT : TT_FAST, .isa = op_isa(t)};
				work w, other;
				if (sample_work(t, a, *op, which, env, t->seed, &w) && sample_work(t, a, *op, which, env, t->seed + 1, &other)) {
					const char *bad = check_honest(a, &w, &other, t->seed);
					TT_CHECK_MSG(t, !bad[0], "sample %d: %s", which, bad);
					checked++;
					if (in_bf16(t, a, &w) && in_bf16(t, a, &other)) {
						bad = check_honest(a, &w, &other, t->seed);
						TT_CHECK_MSG(t, !bad[0], "sample %d, bf16: %s", which, bad);
					}
				}
				tt_arena_destroy(a);
			}
	}
	TT_CHECK(t, checked > 40);
}

/* ---- attention: by its tables ----------------------------------------------------------------------------------------------------------- */

typedef struct attention {
	work fwd, bwd;
	const tt_attr_attention *attr;
} attention;

/* T tokens in three sequences, more than one block of keys where T is large; forward and backward are run. */
static bool attention_work(tt_test *t, tt_arena *a, op_env env, int64_t T, uint64_t seed, attention *out)
{
	static const tt_attr_attention attr = {.head_dim = 6, .v_head_dim = 5, .group = 2, .scale = 0.4, .window = 70};
	tt_graph *g = tt_graph_new(a, &(tt_mesh){0}, env.f64);
	const tt_dtype val = env.f64 ? TT_F64 : TT_F32;
	const struct { const char *name; tt_role role; int64_t width, unit; } x[] = {{"q", TT_HEADS, 24, 6}, {"k", TT_KV_HEADS, 12, 6},
		{"v", TT_KV_HEADS, 10, 5}, {"do", TT_HEADS, 20, 5}};
	const struct { const char *name; tt_fill fill; } m[] = {{"positions", TT_FILL_POSITIONS}, {"seq_ids", TT_FILL_SEQ_IDS},
		{"seq_table", TT_FILL_SEQ_TABLE}, {"lines", TT_FILL_LINES}};
	tt_v f[4], id[4];
	for (int i = 0; i < 4; i++) {
		tt_dim d[] = {tt_dim_of(TT_TOKENS, T, 1), tt_dim_of(x[i].role, x[i].width, x[i].unit)};
		f[i] = tt_input(g, x[i].name, val, val, 2, d);
		tt_dim n = i == 2 ? tt_dim_of(TT_SEQS, T + 1, 1) : tt_dim_of(TT_TOKENS, T, 1);
		id[i] = tt_input(g, m[i].name, TT_I32, TT_NODTYPE, 1, &n);
		tt_value_set_fill(g, id[i], m[i].fill);
	}
	tt_v o = tt_attention(g, f[0], f[1], f[2], &(tt_seqs){id[0], id[1], id[2], id[3]}, &attr, "o");
	tt_v in[] = {f[0], f[1], f[2], o, tt_out(o, 1), f[3], id[0], id[1], id[2], id[3]};
	tt_node_add(g, &tt_op_attention_bwd, &attr, 10, in, NULL);
	op_tensor **v = op_inputs(a, g, &env, T, seed);
	if (!TT_CHECK_OK(t, op_direct(a, g, &env, v)))
		return false;
	out->attr = &attr;
	for (int k = 0; k < 2; k++) {
		work *w = k ? &out->bwd : &out->fwd;
		const tt_node *n = &g->nodes[k];
		*w = (work){.op = n->op, .attr = &attr, .nin = n->nin, .nout = n->nout, .env = env};
		for (int i = 0; i < n->nin; i++)
			w->in[i] = v[n->in[i]];
		for (int i = 0; i < n->nout; i++)
			w->out[i] = v[n->out[i]];
	}
	return true;
}

enum { Q = 1, KEYS = 2 }; /* what dim 0 of an operand lies along */
static const int along_fwd[] = {Q, KEYS, KEYS, Q, Q, 0, KEYS}, along_bwd[] = {Q, KEYS, KEYS, Q, Q, Q, Q, Q, 0, KEYS};
static const int results_fwd[] = {Q, Q}, results_bwd[] = {Q, KEYS, KEYS};

/* Queries in another order, or K/V in other lines: results move along, sums do not change, in either mode. */
static const char *attention_permuted(tt_arena *a, const work *w, int what, const int64_t *perm)
{
	bool bwd = w->nout == 3;
	work p = *w;
	for (int i = 0; i < w->nin; i++) {
		if ((bwd ? along_bwd : along_fwd)[i] != what)
			continue;
		if (w->in[i]->val.fill != TT_FILL_LINES) {
			p.in[i] = op_permute(a, w->in[i], 0, perm);
			continue;
		}
		p.in[i] = op_copy(a, w->in[i]);
		for (int64_t k = 0; k < p.in[i]->count; k++)
			for (int64_t l = 0; l < p.in[i]->count; l++)
				if (op_get(w->in[i], l) == (double)perm[k])
					op_set(p.in[i], l, (double)k);
	}
	if (run(a, &p) != TT_OK)
		return tt_error_text();
	for (int k = 0; k < w->nout; k++) {
		bool moves = (bwd ? results_bwd : results_fwd)[k] == what;
		if (!op_same(p.out[k], moves ? op_permute(a, w->out[k], 0, perm) : w->out[k]))
			return tt_arena_printf(a, "%s: output %d changes when %s are permuted", w->op->name, k, what == Q ? "queries" : "K/V lines");
	}
	return "";
}

/* Queries in two calls: o, lse and dq are slices, dk and dv add up. */
static const char *attention_split(tt_arena *a, const work *w, int64_t cut)
{
	bool bwd = w->nout == 3;
	work p[2] = {*w, *w};
	for (int h = 0; h < 2; h++) {
		for (int i = 0; i < w->nin; i++)
			if ((bwd ? along_bwd : along_fwd)[i] == Q)
				p[h].in[i] = op_slice(a, w->in[i], 0, h ? cut : 0, h ? w->in[i]->val.dim[0].n - cut : cut);
		if (run(a, &p[h]) != TT_OK)
			return tt_error_text();
	}
	for (int k = 0; k < w->nout; k++) {
		const op_tensor *parts[] = {p[0].out[k], p[1].out[k]};
		bool slices = (bwd ? results_bwd : results_fwd)[k] == Q;
		if (!op_same(slices ? op_concat(a, 2, parts, 0) : op_sum(a, parts[0], parts[1]), w->out[k]))
			return tt_arena_printf(a, "%s: output %d is not what two calls make of it (cut at %lld)", w->op->name, k, (long long)cut);
	}
	return "";
}

/* q heads h, h + group, .. of x: one of each group. */
static op_tensor *one_of_group(tt_arena *a, const op_tensor *x, int64_t width, int64_t group, int64_t h)
{
	const op_tensor *parts[16];
	int n = 0;
	for (int64_t at = h * width; at < x->val.dim[1].n; at += group * width)
		parts[n++] = op_slice(a, x, 1, at, width);
	return op_concat(a, n, parts, 1);
}

/* The q heads of a group in two calls, as two ranks that share a kv head would: dk and dv add up. */
static const char *attention_heads(tt_arena *a, const attention *x)
{
	const work *w = &x->bwd;
	work p[2] = {*w, *w};
	tt_attr_attention one = *x->attr;
	one.group = 1;
	for (int h = 0; h < 2; h++) {
		const int64_t width[] = {one.head_dim, 0, 0, one.v_head_dim, 1, one.v_head_dim};
		for (int i = 0; i < 6; i++)
			if (width[i])
				p[h].in[i] = one_of_group(a, w->in[i], width[i], 2, h);
		p[h].attr = &one;
		if (run(a, &p[h]) != TT_OK)
			return tt_error_text();
		if (!op_same(p[h].out[0], one_of_group(a, w->out[0], one.head_dim, 2, h)))
			return "attention_bwd: dq of a head depends on other heads";
	}
	for (int k = 1; k < 3; k++)
		if (!op_same(op_sum(a, p[0].out[k], p[1].out[k]), w->out[k]))
			return tt_arena_printf(a, "attention_bwd: output %d is not the sum over the q heads of a group", k);
	return "";
}

/* A query sees its own sequence up to itself and nothing else: `other` has other contents in all of the tokens from `from` on. */
static const char *attention_causal(tt_arena *a, const work *w, const work *other, int64_t from)
{
	work p = *w;
	const int64_t T = w->in[0]->val.dim[0].n;
	for (int i = 0; i < 3; i++) {
		const op_tensor *parts[] = {op_slice(a, w->in[i], 0, 0, from), op_slice(a, other->in[i], 0, from, T - from)};
		p.in[i] = op_concat(a, 2, parts, 0);
	}
	if (run(a, &p) != TT_OK)
		return tt_error_text();
	for (int k = 0; k < 2; k++)
		if (!op_same(op_slice(a, p.out[k], 0, 0, from), op_slice(a, w->out[k], 0, 0, from)))
			return tt_arena_printf(a, "attention: a query sees what comes after it (from token %lld)", (long long)from);
	return "";
}

static void check_attention(tt_test *t, int64_t T)
{
	for (int exact = 0; exact < 2; exact++) {
		tt_arena *a = tt_arena_create("attention");
		const op_env env = {.numerics = exact ? TT_EXACT : TT_FAST, .isa = op_isa(t)};
		attention x, y;
		const char *bad = "";
#define FINDS_NOTHING(call) (bad = (call), TT_CHECK_MSG(t, !bad[0], "T = %lld, %s: %s", (long long)T, exact ? "exact" : "fast", bad))
		if (!attention_work(t, a, env, T, t->seed, &x) || !attention_work(t, a, env, T, t->seed + 1, &y))
			return;
		for (int k = 0; k < 3; k++) {
			const int64_t *perm = permutation(a, T, 1, k, t->seed);
			FINDS_NOTHING(attention_permuted(a, &x.fwd, KEYS, perm));
			FINDS_NOTHING(attention_permuted(a, &x.bwd, KEYS, perm));
			FINDS_NOTHING(attention_permuted(a, &x.fwd, Q, perm));
			FINDS_NOTHING(attention_permuted(a, &x.bwd, Q, perm));
		}
		const int64_t cuts[] = {1, T / 3, T / 2, T - 1, 0};
		for (int k = 0; k < TT_COUNT(cuts); k++) {
			FINDS_NOTHING(attention_split(a, &x.fwd, cuts[k]));
			FINDS_NOTHING(attention_causal(a, &x.fwd, &y.fwd, cuts[k]));
			if (exact)
				FINDS_NOTHING(attention_split(a, &x.bwd, cuts[k]));
		}
		if (exact)
			FINDS_NOTHING(attention_heads(a, &x));
		tt_arena_destroy(a);
	}
}

static void attention_small(tt_test *t) { check_attention(t, 12); }
static void attention_blocks(tt_test *t) { check_attention(t, 300); }

/* ---- attention round a ring: keys of one rank at a time -------------------------------------------------------------------------------------- */

/* Line i of K and V of rank `part` of k. */
static op_tensor *share_of(tt_arena *a, const op_tensor *x, int part, int k)
{
	const int64_t n = x->val.dim[0].n, first = tt_deal(n, part, k);
	return op_slice(a, x, 0, first, tt_deal(n, part + 1, k) - first);
}

typedef struct ring_call {
	tt_arena *a;
	const attention *x;
	tt_attr_attention attr;
	int k;
	op_tensor *m, *o, *l; /* the state so far */
} ring_call;

static tt_status ring_op(ring_call *r, const tt_op *op, int part, int nin, op_tensor *const *in, int nout, op_tensor **out)
{
	r->attr.part = part;
	return op_call(r->a, op, &r->attr, nin, in, nout, &r->x->fwd.env, out);
}

/* One turn and merged states, or two turns and sums; then joined. The shards come in any order. */
static tt_status ring_forward(ring_call *r, bool two, int first, op_tensor **result)
{
	op_tensor *const *x = r->x->fwd.in;
	op_tensor *out[3];
	for (int turn = 0; two && turn < r->k; turn++) {
		int part = (first + turn) % r->k;
		op_tensor *in[] = {x[0], share_of(r->a, x[1], part, r->k), x[3], x[4], x[5], x[6], r->m};
		TT_TRY(ring_op(r, &tt_op_attention_max, part, turn ? 7 : 6, in, 1, &r->m));
	}
	for (int turn = 0; turn < r->k; turn++) {
		int part = (first + turn) % r->k;
		op_tensor *key = share_of(r->a, x[1], part, r->k), *val = share_of(r->a, x[2], part, r->k);
		if (two) {
			op_tensor *in[] = {x[0], key, val, r->m, x[3], x[4], x[5], x[6]};
			TT_TRY(ring_op(r, &tt_op_attention_sum, part, 8, in, 2, out));
			r->o = turn ? op_sum(r->a, r->o, out[0]) : out[0];
			r->l = turn ? op_sum(r->a, r->l, out[1]) : out[1];
			continue;
		}
		op_tensor *in[] = {x[0], key, val, x[3], x[4], x[5], x[6]};
		TT_TRY(ring_op(r, &tt_op_attention_part, part, 7, in, 3, out));
		if (turn) {
			op_tensor *both[] = {r->o, r->m, r->l, out[0], out[1], out[2]};
			TT_TRY(op_call(r->a, &tt_op_attention_merge, NULL, 6, both, 3, &r->x->fwd.env, out));
		}
		r->o = out[0], r->m = out[1], r->l = out[2];
	}
	op_tensor *all[] = {x[0], x[1], x[2], x[3], x[4], x[5], x[6], r->o, r->m, r->l};
	r->attr.parts = 0; /* all keys are in the state, whatever was the last */
	TT_TRY(ring_op(r, &tt_op_attention_join, 0, 10, all, 2, result));
	r->attr.parts = r->k;
	return TT_OK;
}

/* Results as attention has them: bits where `exact`, else to within what f64 leaves of sums in another order. */
static const char *ring_differs(tt_arena *a, const attention *x, int k, bool two, int first)
{
	ring_call r = {.a = a, .x = x, .attr = *x->attr, .k = k};
	const bool bits = x->fwd.env.numerics == TT_EXACT;
	op_tensor *got[2], *dq = NULL;
	const op_tensor *dk[2][8];
	r.attr.parts = k;
	if (ring_forward(&r, two, first, got) != TT_OK)
		return tt_error_text();
	for (int i = 0; i < 2; i++)
		if (bits ? !op_same(got[i], x->fwd.out[i]) : !(op_distance(got[i], x->fwd.out[i]) < 1e-14))
			return tt_arena_printf(a, "output %d is %g from that of attention", i, op_distance(got[i], x->fwd.out[i]));
	for (int turn = 0; turn < k; turn++) {
		int part = (first + turn) % k;
		op_tensor *in[MAX_IN], *out[3];
		memcpy(in, x->bwd.in, sizeof in);
		in[1] = share_of(a, in[1], part, k);
		in[2] = share_of(a, in[2], part, k);
		if (ring_op(&r, &tt_op_attention_bwd, part, 10, in, 3, out) != TT_OK)
			return tt_error_text();
		dq = turn ? op_sum(a, dq, out[0]) : out[0];
		dk[0][part] = out[1];
		dk[1][part] = out[2];
	}
	for (int i = 0; i < 3; i++) {
		const op_tensor *d = i ? op_concat(a, k, dk[i - 1], 0) : dq;
		if (bits ? !op_same(d, x->bwd.out[i]) : !(op_distance(d, x->bwd.out[i]) < 1e-14))
			return tt_arena_printf(a, "gradient %d is %g from that of attention", i, op_distance(d, x->bwd.out[i]));
	}
	return "";
}

static void attention_ring(tt_test *t)
{
	static const struct { int64_t T; int k, first; } of[] = {{12, 2, 0}, {12, 5, 3}, {200, 2, 1}, {300, 3, 2}, {300, 8, 7}};
	for (int i = 0; i < TT_COUNT(of); i++)
		for (int mode = 0; mode < 3; mode++) { /* exact takes two turns; double checks both kinds */
			tt_arena *a = tt_arena_create("ring");
			const op_env env = {.numerics = mode ? TT_FAST : TT_EXACT, .f64 = mode != 0, .isa = mode ? TT_ISA_REF : op_isa(t)};
			attention x;
			if (attention_work(t, a, env, of[i].T, t->seed, &x)) {
				const char *bad = ring_differs(a, &x, of[i].k, mode != 2, of[i].first);
				TT_CHECK_MSG(t, !bad[0], "T = %lld, %d ranks, %s, %s: %s", (long long)of[i].T, of[i].k, mode ? "f64" : "exact", mode != 2 ? "two turns" : "one turn", bad);
			}
			tt_arena_destroy(a);
		}
}

/* Angles belong to positions. */
static void rope_table(tt_test *t)
{
	work w, p;
	const op_env env = {.isa = op_isa(t)};
	if (!sample_work(t, t->arena, &tt_op_rope_table, 0, env, t->seed, &w))
		return;
	const int64_t *perm = permutation(t->arena, w.in[0]->count, 1, 2, t->seed);
	p = w;
	p.in[0] = op_permute(t->arena, w.in[0], 0, perm);
	TT_CHECK_OK(t, run(t->arena, &p));
	TT_CHECK(t, op_same(p.out[0], op_permute(t->arena, w.out[0], 0, perm)));
}

/* ---- can fail ------------------------------------------------------------------------------------------------------------------------------- */

/* x[t,o] -> sum over t, and other things. */
static double column(const tt_call *c, int64_t o)
{
	double sum = 0;
	for (int64_t t = 0; t < c->in[0].n[0]; t++)
		sum += (double)((const float *)c->in[0].p)[t * c->in[0].ld + o];
	return sum;
}
static void put(const tt_call *c, int64_t o, const exact_sum *s)
{
	if (c->env->numerics == TT_EXACT)
		exact_store(&c->out[0], 0, o, s);
	else
		((float *)c->out[0].p)[o] = exact_round(s);
}

/* Limbs of a sum that was kept in one double: right to 2^-53 of its largest part. */
static void sum_in_double(const tt_call *c)
{
	for (int64_t o = 0; o < c->out[0].n[0]; o++) {
		exact_sum s = {{0}};
		exact_add_term(&s, column(c, o));
		put(c, o, &s);
	}
}
/* The right trick, with the three sums kept in doubles. */
static void sum_in_three_doubles(const tt_call *c)
{
	for (int64_t o = 0; o < c->out[0].n[0]; o++) {
		double k[3] = {0};
		for (int64_t t = 0; t < c->in[0].n[0]; t++) {
			double x = (double)((const float *)c->in[0].p)[t * c->in[0].ld + o];
			double hi = (x + EXACT_C0) - EXACT_C0, mid = ((x - hi) + EXACT_C1) - EXACT_C1;
			k[0] += hi;
			k[1] += mid;
			k[2] += x - hi - mid;
			double carry = k[0] + k[1]; /* renormalised, or the parts would not be three limbs of one sum */
			k[1] -= carry - k[0];
			k[0] = carry;
		}
		exact_sum s = {{0}};
		for (int j = 0; j < 3; j++)
			exact_add_term(&s, k[j]);
		put(c, o, &s);
	}
}
static void sum_right(const tt_call *c)
{
	for (int64_t o = 0; o < c->out[0].n[0]; o++) {
		exact_sum s = {{0}};
		for (int64_t t = 0; t < c->in[0].n[0]; t++)
			exact_add_term(&s, (double)((const float *)c->in[0].p)[t * c->in[0].ld + o]);
		put(c, o, &s);
	}
}
/* A constant, once per call: no order shows it. */
static void sum_and_one(const tt_call *c)
{
	sum_right(c);
	for (int64_t o = 0; o < c->out[0].n[0] && c->env->numerics == TT_EXACT; o++) {
		exact_sum s = exact_load(&c->out[0], 0, o);
		exact_add_term(&s, 1);
		put(c, o, &s);
	}
}
static void sum_as_value(const tt_call *c)
{
	for (int64_t o = 0; o < c->out[0].n[0]; o++) {
		float sum = 0;
		for (int64_t t = 0; t < c->in[0].n[0]; t++)
			sum += ((const float *)c->in[0].p)[t * c->in[0].ld + o];
		((float *)c->out[0].p)[o] = sum;
	}
}
/* x minus its mean over tokens: looks elementwise. */
static void centered(const tt_call *c)
{
	for (int64_t t = 0; t < c->in[0].n[0]; t++)
		for (int64_t o = 0; o < c->in[0].ld; o++)
			((float *)c->out[0].p)[t * c->in[0].ld + o] =
				((const float *)c->in[0].p)[t * c->in[0].ld + o] - (float)(column(c, o) / (double)c->in[0].n[0]);
}
/* Each line plus the line before it. */
static void shifted(const tt_call *c)
{
	for (int64_t t = 0; t < c->in[0].n[0]; t++)
		for (int64_t o = 0; o < c->in[0].ld; o++)
			((float *)c->out[0].p)[t * c->in[0].ld + o] = ((const float *)c->in[0].p)[t * c->in[0].ld + o] +
				(t ? ((const float *)c->in[0].p)[(t - 1) * c->in[0].ld + o] : 0);
}

static bool toy_infer_acc(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)g, (void)op, (void)attr, (void)nin, (void)nout, (void)in;
	out[0].dtype = TT_ACC;
	return true;
}
static bool toy_infer_val(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)g, (void)op, (void)attr, (void)nin, (void)nout, (void)in;
	out[0].dtype = TT_F32;
	return true;
}

/* An op of one kernel on the sample input of sum_tokens. */
static const char *toy(tt_test *t, tt_kernel_fn *kernel, const char *labels, bool acc)
{
	tt_arena *a = t->arena;
	tt_op *op = TT_NEW(a, tt_op);
	*op = (tt_op){.name = "toy", .nin = 1, .nout = 1, .labels = labels, .kernel = kernel, .flags = acc ? TT_OP_ACC_SUM : 0,
		.infer = acc ? toy_infer_acc : toy_infer_val};
	const op_env env = {.numerics = TT_EXACT};
	work w, other;
	if (!sample_work(t, a, &tt_op_sum_tokens, 0, env, t->seed, &w) || !sample_work(t, a, &tt_op_sum_tokens, 0, env, t->seed + 1, &other))
		return "no sample";
	w.op = other.op = op;
	if (run(a, &w) != TT_OK)
		return tt_error_text();
	int checked = 0;
	bool changed;
	if (!acc)
		return check_honest(a, &w, &other, t->seed);
	const char *bad = check_sums(a, &w, 50, t->seed, &checked, &changed);
	return checked ? bad : "not checked";
}

/* Each fault is found, and by the check that is there for it. */
static void can_fail(tt_test *t)
{
	TT_CHECK_STR(t, toy(t, sum_right, "to->o", true), "");
	TT_CHECK(t, strstr(toy(t, sum_in_double, "to->o", true), "another order gives other limbs"));
	TT_CHECK(t, strstr(toy(t, sum_in_three_doubles, "to->o", true), "another order gives other limbs"));
	TT_CHECK(t, strstr(toy(t, sum_and_one, "to->o", true), "do not add up"));
	TT_CHECK(t, strstr(toy(t, sum_as_value, "to->o", false), "an undeclared sum: the order shows"));
	TT_CHECK(t, strstr(toy(t, centered, "to->to", false), "an undeclared sum"));
	TT_CHECK(t, strstr(toy(t, shifted, "to->to", false), "does not permute the output"));
}

/* 4,096 sums kept in three doubles: nearly all differ in their low part when permuted, while all of those in limbs are the same. The
 * reason why limbs are compared and not rounded results: those agree even so. */
static void doubles_are_not_exact(tt_test *t)
{
	enum { N = 4096, TERMS = 200 };
	tt_arena *a = t->arena;
	tt_kernel_fn *const kernels[] = {sum_right, sum_in_three_doubles};
	int differ[2] = {0};
	for (int k = 0; k < 2; k++) {
		tt_op op = {.name = "toy", .nin = 1, .nout = 1, .labels = "to->o", .kernel = kernels[k], .flags = TT_OP_ACC_SUM, .infer = toy_infer_acc};
		work w = {.op = &op, .nin = 1, .nout = 1, .env = {.numerics = TT_EXACT}};
		tt_value type = {.name = "x", .dtype = TT_F32, .ndim = 2, .dim = {tt_dim_of(TT_TOKENS, TERMS, 1), tt_dim_of(TT_D, N, 1)}};
		w.in[0] = op_tensor_new(a, &type, &w.env);
		uint64_t seed = t->seed;
		for (int64_t i = 0; i < w.in[0]->count; i++)
			op_set(w.in[0], i, wide(&seed));
		work p = permuted(a, &w, 't', permutation(a, TERMS, 1, 2, t->seed));
		if (!TT_CHECK_OK(t, run(a, &w)) || !TT_CHECK_OK(t, run(a, &p)))
			return;
		for (int64_t i = 0; i < N; i++)
			differ[k] += !op_same(op_slice(a, w.out[0], 0, i, 1), op_slice(a, p.out[0], 0, i, 1));
	}
	TT_CHECK_INT(t, differ[0], 0);
	TT_CHECK_MSG(t, differ[1] > N / 2, "only %d of %d", differ[1], N);
}

/* An entry that does not declare its sum, or calls it elementwise. */
static void entries_can_fail(tt_test *t)
{
	tt_arena *a = t->arena;
	const op_env env = {.numerics = TT_FAST};
	work w, other;
	if (!sample_work(t, a, &tt_op_linear_dx, 0, env, t->seed, &w) || !sample_work(t, a, &tt_op_linear_dx, 0, env, t->seed + 1, &other))
		return;
	tt_op op = tt_op_linear_dx;
	op.flags = 0;
	w.op = other.op = &op;
	TT_CHECK(t, strstr(check_honest(a, &w, &other, t->seed), "an undeclared sum: the order shows"));
	if (!sample_work(t, a, &tt_op_rms_norm, 0, env, t->seed, &w) || !sample_work(t, a, &tt_op_rms_norm, 0, env, t->seed + 1, &other))
		return;
	op = tt_op_rms_norm;
	op.labels = "td,d->td,t"; /* for D, which it needs whole */
	w.op = other.op = &op;
	TT_CHECK(t, check_honest(a, &w, &other, t->seed)[0]);
}

const tt_case tt_suite_sums[] = {
	{"declared", declared, TT_TIER_QUICK},
	{"honest", honest, TT_TIER_QUICK},
	{"attention_small", attention_small, TT_TIER_QUICK},
	{"attention_blocks", attention_blocks, TT_TIER_QUICK},
	{"attention_ring", attention_ring, TT_TIER_QUICK},
	{"rope_table", rope_table, TT_TIER_QUICK},
	{"can_fail", can_fail, TT_TIER_QUICK},
	{"doubles_are_not_exact", doubles_are_not_exact, TT_TIER_QUICK},
	{"entries_can_fail", entries_can_fail, TT_TIER_QUICK},
	{0},
};
