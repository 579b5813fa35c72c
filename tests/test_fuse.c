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
				if (only >= 0 && s != 0 && t->tier == TT_TIER_QUICK)
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

/* Bytes of all regions, and nodes, of a run. */
typedef struct size { int64_t bytes, nodes; } size;
static size size_of(tt_test *t, const tt_run_options *o)
{
	tt_trainer *tr = NULL;
	size s = { 0 };
	if (!TT_CHECK_OK(t, tt_trainer_create(o, &tr)))
		return s;
	for (int r = 0; r < TT_EXEC_NREGIONS; r++)
		s.bytes += tt_exec_planned(tt_trainer_exec(tr), r);
	s.nodes = tt_trainer_graph(tr)->nnodes;
	tt_trainer_destroy(tr);
	return s;
}

/* No pattern makes the plan larger, and every one is found in one of the models. */
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
			found[i] |= on.nodes < off.nodes;
			TT_CHECK_MSG(t, on.bytes <= off.bytes, "%s: the plan has %lld bytes, %lld without", tt_fuse_pattern(i, NULL), (long long)on.bytes,
				(long long)off.bytes);
		}
	}
	for (int i = 0; i < npatterns(); i++)
		TT_CHECK_MSG(t, found[i], "%s is in no model: nothing was compared", tt_fuse_pattern(i, NULL));
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

/* The words of debug.passes. */
static void case_words(tt_test *t)
{
	const char *const *off, *all[] = { "-fuse" }, *one[] = { "-fuse.round_sgd" }, *typo[] = { "-fuse.round_sdg" };
	int n = 0;
	TT_CHECK_OK(t, tt_fuse_off(t->arena, all, 1, &off, &n));
	TT_CHECK(t, n == npatterns());
	TT_CHECK_OK(t, tt_fuse_off(t->arena, one, 1, &off, &n));
	TT_CHECK(t, n == 1 && !strcmp(off[0], "round_sgd"));
	TT_CHECK_FAILS(t, tt_fuse_off(t->arena, typo, 1, &off, &n), TT_ERR_USAGE, "nearest: -fuse.round_sgd");
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
	{ "dw_accumulate", case_dw_accumulate, TT_TIER_QUICK },
	{ "plans", case_plans, TT_TIER_QUICK },
	{ "words", case_words, TT_TIER_QUICK },
	{ "page", case_page, TT_TIER_QUICK },
	{ 0 },
};
