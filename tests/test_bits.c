/* The same bits, however a run is cut into microbatches, threads, kernels and instruction sets: all of it in `exact`, and in `fast` all that does
 * not change the order of a sum. And in `fast`, what one sequence gets never depends on what else is in the batch. */
#include "kernels/kernels.h"
#include "pass/pass.h"
#include "tiny.h"

#include <stdio.h>

enum { STEPS = 5 };

/* ---- exact ---------------------------------------------------------------------------------------------------------------------------- */

/* The rows of each step in another order: 5 of 5 rows, step s turned by s+1 and then its first two swapped. */
static tt_rows permuted(tt_arena *a, tt_rows r)
{
	int32_t *ids = TT_NEWN(a, int32_t, r.nrows * CONTEXT), *labels = TT_NEWN(a, int32_t, r.nrows * CONTEXT);
	int32_t *lengths = TT_NEWN(a, int32_t, r.nrows * r.max_sequences);
	for (int64_t i = 0; i < r.nrows; i++) {
		int64_t s = i / ROWS, k = i % ROWS, from = s * ROWS + ((k < 2 ? 1 - k : k) + s + 1) % ROWS;
		memcpy(ids + i * CONTEXT, r.ids + from * CONTEXT, CONTEXT * sizeof *ids);
		memcpy(labels + i * CONTEXT, r.labels + from * CONTEXT, CONTEXT * sizeof *ids);
		memcpy(lengths + i * r.max_sequences, r.lengths + from * r.max_sequences, (size_t)r.max_sequences * sizeof *ids);
	}
	r.ids = ids;
	r.labels = labels;
	r.lengths = lengths;
	return r;
}

typedef struct change {
	const char *what;
	int64_t mb; /* rows; 0: all */
	int threads, chunks;
	bool permute, fast_kernels;
	tt_isa isa;
} change;

static void exact_bits(tt_test *t, tt_dtype compute)
{
	static const change CHANGES[] = {
		{ "again", 0, 1, 3, false, false, TT_ISA_REF },
		{ "microbatches of 1 row", 1, 1, 3, false, false, TT_ISA_REF },
		{ "microbatches of 2 rows, the last of 1", 2, 1, 3, false, false, TT_ISA_REF },
		{ "microbatches of 3 rows, the last of 2", 3, 1, 3, false, false, TT_ISA_REF },
		{ "rows permuted", 0, 1, 3, true, false, TT_ISA_REF },
		{ "rows permuted, microbatches of 2", 2, 1, 3, true, false, TT_ISA_REF },
		{ "2 threads", 0, 2, 3, false, false, TT_ISA_REF },
		{ "fast kernels", 0, 1, 3, false, true, TT_ISA_REF },
		{ "avx2", 0, 1, 3, false, true, TT_ISA_AVX2 },
		{ "avx512", 0, 1, 3, false, true, TT_ISA_AVX512 },
		{ "1 loss chunk", 0, 1, 1, false, false, TT_ISA_REF },
		{ "8 loss chunks", 0, 1, 8, false, false, TT_ISA_REF },
		{ "everything", 2, 2, 8, true, true, TT_ISA_AVX512_BF16 },
	};
	tt_llama_config m = tiny_model(VOCAB);
	m.hidden_size = 32;
	m.head_dim = 8;
	m.intermediate_size = 48;
	m.attention_bias = m.mlp_bias = true;
	tt_rows rows = tiny_rows(t->arena, ROWS * STEPS, CONTEXT, VOCAB, 3), other = permuted(t->arena, rows);
	tt_run_options o = tiny_options(m, rows, CONTEXT, ROWS);
	o.compute = compute;
	o.loss_chunks = 3;
	o.exec.numerics = TT_EXACT;
	tiny_end want, got;
	if (!tiny_run(t, &o, STEPS, &want))
		return;
	for (int i = 0; i < TT_COUNT(CHANGES); i++) {
		const change *c = &CHANGES[i];
		if (c->isa > tiny_isa(t))
			continue;
		tt_run_options p = o;
		p.tokens_per_microbatch = (c->mb ? c->mb : ROWS) * CONTEXT;
		p.exec.threads = c->threads;
		p.loss_chunks = c->chunks;
		p.exec.kernels_ref = !c->fast_kernels;
		p.exec.isa = c->isa;
		if (c->permute)
			p.data.rows = other;
		if (!tiny_run(t, &p, STEPS, &got))
			return;
		tiny_same(t, &want, &got, c->what);
	}
	/* It can fail: another seed, and another label in the last step. */
	tt_run_options p = o;
	p.exec.seed++;
	if (tiny_run(t, &p, STEPS, &got))
		TT_CHECK(t, tiny_differs(t->arena, &want, &got));
	p = o;
	int32_t *labels = TT_NEWN(t->arena, int32_t, rows.nrows * CONTEXT);
	memcpy(labels, rows.labels, (size_t)(rows.nrows * CONTEXT) * sizeof *labels);
	labels[rows.nrows * CONTEXT - CONTEXT] = (labels[rows.nrows * CONTEXT - CONTEXT] + 1) % VOCAB;
	p.data.rows.labels = labels;
	if (tiny_run(t, &p, STEPS, &got))
		TT_CHECK(t, tiny_differs(t->arena, &want, &got));
	/* And in `fast` microbatching does change bits, or this test would prove nothing about `exact`. */
	tiny_end one, three;
	p = o;
	p.exec.numerics = TT_FAST;
	if (!tiny_run(t, &p, STEPS, &one))
		return;
	p.tokens_per_microbatch = 3 * CONTEXT;
	if (tiny_run(t, &p, STEPS, &three))
		TT_CHECK(t, tiny_differs(t->arena, &one, &three));
}

static void case_exact_f32(tt_test *t) { exact_bits(t, TT_F32); }
static void case_exact_bf16(tt_test *t) { exact_bits(t, TT_BF16); }

/* ---- fast ----------------------------------------------------------------------------------------------------------------------------- */

static bool uses_fast_kernels(tt_trainer *tr)
{
	tt_buf b = { 0 };
	for (int s = TT_SEG_F; s <= TT_SEG_B; s++)
		tt_exec_print_program(tt_trainer_exec(tr), (tt_segment)s, &b);
	bool found = b.s && (strstr(b.s, "linear [xsmm-") || strstr(b.s, "linear [chain-")) && (strstr(b.s, "linear_dx [xsmm-") || strstr(b.s, "linear_dx [chain-")) &&
		     (strstr(b.s, "linear_dw_acc [xsmm-") || strstr(b.s, "linear_dw_acc [chain-"));
	tt_buf_fini(&b);
	return found;
}

static void fast_bits(tt_test *t, tt_dtype compute)
{
	tt_isa best = tiny_isa(t), need = compute == TT_BF16 ? TT_ISA_AVX512_BF16 : TT_ISA_AVX2;
	for (int which = 0; which < 2; which++) {
		int64_t vocab = which ? 64 : VOCAB, mb = which ? ROWS : 2;
		tt_rows rows = tiny_rows(t->arena, ROWS * STEPS, CONTEXT, vocab, 3);
		tt_run_options o = tiny_options(tiny_model(vocab), rows, CONTEXT, ROWS);
		o.model.attention_bias = o.model.mlp_bias = which == 0;
		o.model.tie_word_embeddings = which == 1;
		o.tokens_per_microbatch = mb * CONTEXT;
		o.compute = compute;
		tiny_end want, got;
		if (!tiny_run(t, &o, STEPS, &want))
			return;
		for (int isa = TT_ISA_REF; isa <= (int)best; isa++)
			for (int k = 0; k < 4; k++) {
				if (k % 2 && isa != (int)best && t->tier == TT_TIER_QUICK)
					continue;
				tt_run_options p = o;
				p.exec.isa = (tt_isa)isa;
				p.exec.threads = k ? k : 1;
				p.exec.kernels_ref = k == 0;
				if (!tiny_run(t, &p, STEPS, &got))
					return;
				tiny_same(t, &want, &got, tt_arena_printf(t->arena, "%s kernels, isa %s, %d threads, vocabulary %lld, microbatch %lld",
					k ? "fast" : "reference", tt_isa_name(p.exec.isa), p.exec.threads, (long long)vocab, (long long)mb));
			}
		tt_run_options p = o;
		p.exec.seed++;
		if (tiny_run(t, &p, STEPS, &got))
			TT_CHECK(t, tiny_differs(t->arena, &want, &got));
		p = o;
		p.exec.isa = best;
		p.exec.kernels_ref = false;
		tt_trainer *tr = NULL;
		if (TT_CHECK_OK(t, tt_trainer_create(&p, &tr))) {
			bool fast = uses_fast_kernels(tr);
			TT_CHECK_MSG(t, best < need || fast, "isa %s has no fast products: nothing was compared", tt_isa_name(best));
			tt_trainer_destroy(tr);
		}
	}
}

static void case_fast_f32(tt_test *t) { fast_bits(t, TT_F32); }
static void case_fast_bf16(tt_test *t) { fast_bits(t, TT_BF16); }

/* ---- passes change no bit ----------------------------------------------------------------------------------------------------------------- */

enum { FOLD = 1, FORMATS = 2, PLAIN = 4 }; /* PLAIN: formats for a graph whose weights another one left plain */

/* Two steps of two cells of the graph as it comes out of autodiff and the optimizer, with the passes in `which`. */
static bool run_passes(tt_test *t, tt_dtype compute, int which, bool threads, tiny_end *out)
{
	tt_llama_config m = tiny_model(VOCAB);
	m.attention_bias = true;
	tt_rows rows = tiny_rows(t->arena, 4, CONTEXT, VOCAB, 5);
	tt_run_options o = tiny_options(m, rows, CONTEXT, 4);
	tt_isa isa = tiny_isa(t);
	int nthreads = threads ? 2 : 1;
	tt_model_options mo = { .compute = compute, .t_max = 2 * CONTEXT, .seqs_max = 2 * CONTEXT, .loss_chunks = 3, .context_length = CONTEXT };
	tt_exec_options eo = { .isa = isa, .kernels_ref = !(which & FORMATS), .threads = nthreads, .seed = 7 };
	tt_builder *b;
	tt_graph *g, *init;
	tt_data *d;
	tt_exec *e = NULL;
	if (!TT_CHECK_OK(t, tt_llama_build(t->arena, &m, &mo, &b)) || !TT_CHECK_OK(t, tt_pass_partition(b->g, &(tt_plan){ 0 }, t->arena, &g)) ||
	    !TT_CHECK_OK(t, tt_autodiff(g, &tt_autodiff_builders, t->arena, &g)) || !TT_CHECK_OK(t, tt_optim_build(g, &o.optim, t->arena, &g)) ||
	    !TT_CHECK_OK(t, tt_init_graph(t->arena, b, g, &init)))
		return false;
	int64_t nodes = g->nnodes, states = g->nstates;
	if (which & FOLD && !TT_CHECK_OK(t, tt_pass_fold_rounds(g, t->arena, &g)))
		return false;
	TT_CHECK_MSG(t, !(which & FOLD) || g->nnodes < nodes, "no round was folded: nothing was compared");
	if (which & FORMATS && !TT_CHECK_OK(t, tt_pass_formats(g, isa, nthreads, which & PLAIN ? g : NULL, t->arena, &g)))
		return false;
	TT_CHECK(t, !(which & PLAIN) || compute == TT_BF16 || g->nstates == states);
	if (!TT_CHECK_OK(t, tt_data_open(t->arena, &o.data, &d)) || !TT_CHECK_OK(t, tt_exec_create(&eo, &e)))
		return false;
	tt_step *s = tt_step_new(t->arena, 4, CONTEXT);
	tt_batch *batch = tt_batch_new(t->arena, 2 * CONTEXT);
	bool ok = TT_CHECK_OK(t, tt_exec_add_graph(e, init)) && TT_CHECK_OK(t, tt_exec_add_graph(e, g)) && TT_CHECK_OK(t, tt_exec_plan(e)) &&
		TT_CHECK_OK(t, tt_exec_reserve(e)) && TT_CHECK_OK(t, tt_exec_run(e, TT_SEG_INIT, &(tt_cell){ .first = true }));
	for (int step = 1; step <= 2 && ok; step++) {
		float hyper[4] = { 1e-3f, step == 1 ? 0.1f : 0.19f, step == 1 ? 0.05f : 0.0975f, 0 };
		ok = TT_CHECK_OK(t, tt_data_step(d, step - 1, s)) && TT_CHECK_OK(t, tt_exec_write(e, "hyper", 0, hyper, 4)) &&
			(!tt_exec_has(e, TT_SEG_PREP) || TT_CHECK_OK(t, tt_exec_run(e, TT_SEG_PREP, &(tt_cell){ .step = step })));
		float inv = 1 / (float)s->nvalid;
		ok = ok && TT_CHECK_OK(t, tt_exec_write(e, "inv_valid", 0, &inv, 1));
		for (int c = 0; c < 2 && ok; c++) {
			tt_batch_fill(s, 2 * c, 2 * c + 2, batch);
			tt_cell cell = { .T = batch->T, .nseqs = batch->nsequences, .first = c == 0, .step = step };
			ok = TT_CHECK_OK(t, tt_exec_write(e, "ids", 0, batch->ids, batch->T)) &&
				TT_CHECK_OK(t, tt_exec_write(e, "labels", 0, batch->labels, batch->T)) &&
				TT_CHECK_OK(t, tt_exec_write(e, "positions", 0, batch->positions, batch->T)) &&
				TT_CHECK_OK(t, tt_exec_write(e, "seq_ids", 0, batch->seq_ids, batch->T)) &&
				TT_CHECK_OK(t, tt_exec_write(e, "seq_table", 0, batch->seq_table, batch->nsequences + 1)) &&
				TT_CHECK_OK(t, tt_exec_write(e, "lines", 0, batch->lines, batch->T)) && TT_CHECK_OK(t, tt_exec_run(e, TT_SEG_F, &cell)) &&
				TT_CHECK_OK(t, tt_exec_run(e, TT_SEG_B, &cell));
		}
		ok = ok && TT_CHECK_OK(t, tt_exec_run(e, TT_SEG_REDUCE, &(tt_cell){ .step = step })) &&
			TT_CHECK_OK(t, tt_exec_run(e, TT_SEG_OPT, &(tt_cell){ .step = step }));
	}
	*out = (tiny_end){ 0 };
	ok = ok && tiny_states(t, e, out);
	tt_exec_destroy(e);
	tt_data_close(d);
	return ok;
}

static void case_passes(tt_test *t)
{
	tiny_end last = { 0 };
	for (int k = 0; k < 2; k++) {
		tiny_end want, got;
		if (!run_passes(t, k ? TT_BF16 : TT_F32, 0, false, &want))
			return;
		static const int sets[] = { FOLD, FORMATS, FOLD | FORMATS, FORMATS | PLAIN };
		for (int i = 0; i < TT_COUNT(sets); i++)
			if (run_passes(t, k ? TT_BF16 : TT_F32, sets[i], sets[i] & FORMATS && !(sets[i] & FOLD), &got))
				tiny_same(t, &want, &got, tt_arena_printf(t->arena, "%s, passes %d", k ? "bf16" : "f32", sets[i]));
		TT_CHECK(t, tiny_differs(t->arena, &want, &last));
		last = want;
	}
}

/* ---- a sequence alone and in company ------------------------------------------------------------------------------------------------------- */

enum { NSEQ = 7, LONGEST = 150, FORWARD_MAX = 480 };
static const int LENGTHS[NSEQ] = { 150, 1, 33, 64, 65, 7, 128 };

typedef struct sequences {
	int32_t ids[NSEQ][LONGEST], labels[NSEQ][LONGEST];
} sequences;

typedef struct forward {
	tt_test *t;
	tt_trainer *tr;
	int64_t vocab;
	int chunks;
	tt_batch *b;
	int32_t *ids, *labels, *positions;
	float *logits, *nll; /* [T,V], [T] of the last call */
	double sum;
} forward;

static void forward_add(forward *f, const sequences *s, int which, int64_t n)
{
	tt_batch *b = f->b;
	TT_ASSERT(b->T + n <= FORWARD_MAX);
	b->seq_table[0] = 0;
	for (int64_t i = 0; i < n; i++, b->T++) {
		f->ids[b->T] = s->ids[which][i];
		f->labels[b->T] = s->labels[which][i];
		f->positions[b->T] = (int32_t)i;
		b->seq_ids[b->T] = (int32_t)b->nsequences;
		b->lines[b->T] = (int32_t)b->T;
	}
	b->seq_table[++b->nsequences] = (int32_t)b->T;
}

static bool forward_run(forward *f)
{
	tt_batch *b = f->b;
	tt_exec *e = tt_trainer_exec(f->tr);
	bool ok = TT_CHECK_OK(f->t, tt_trainer_forward(f->tr, b, &f->sum));
	for (int c = 0; c < f->chunks && ok; c++) {
		char name[64];
		tt_slot s;
		snprintf(name, sizeof name, "loss.%d.logits", c);
		ok = TT_CHECK_OK(f->t, tt_exec_output(e, TT_SEG_EVAL, name, &s));
		int64_t n = ok ? TT_MAX((int64_t)0, TT_MIN(b->T - s.dim[0].base, s.dim[0].n)) : 0;
		ok = ok && TT_CHECK_OK(f->t, tt_tensor_read(e, &s, 0, f->logits + s.dim[0].base * f->vocab, n * f->vocab));
		snprintf(name, sizeof name, "loss.%d.nll", c);
		ok = ok && TT_CHECK_OK(f->t, tt_exec_output(e, TT_SEG_EVAL, name, &s)) &&
			TT_CHECK_OK(f->t, tt_tensor_read(e, &s, 0, f->nll + s.dim[0].base, n));
	}
	b->T = b->nsequences = 0;
	return ok;
}

static bool forward_open(tt_test *t, forward *f, const tt_run_options *o)
{
	*f = (forward){ .t = t, .vocab = o->model.vocab_size, .chunks = o->loss_chunks, .b = tt_batch_new(t->arena, FORWARD_MAX),
			.ids = TT_NEWN(t->arena, int32_t, FORWARD_MAX), .labels = TT_NEWN(t->arena, int32_t, FORWARD_MAX),
			.positions = TT_NEWN(t->arena, int32_t, FORWARD_MAX), .nll = TT_NEWN(t->arena, float, FORWARD_MAX),
			.logits = TT_NEWN(t->arena, float, FORWARD_MAX * o->model.vocab_size) };
	f->b->ids = f->ids;
	f->b->labels = f->labels;
	f->b->positions = f->positions;
	return TT_CHECK_OK(t, tt_trainer_create(o, &f->tr));
}

typedef struct alone { float *logits[NSEQ], *nll[NSEQ]; } alone;

/* Tokens [at, at+n) of the last call against the first n of sequence `which` alone. */
static bool same_as_alone(const forward *f, const alone *a, int which, int64_t at, int64_t n)
{
	return !memcmp(f->logits + at * f->vocab, a->logits[which], (size_t)(n * f->vocab) * sizeof(float)) &&
		!memcmp(f->nll + at, a->nll[which], (size_t)n * sizeof(float));
}

static void check_company(forward *f, const sequences *s, const alone *a, const char *what)
{
	static const int ORDERS[][4] = { { 0, 1, 3, -1 }, { 1, 0, 2, 3 }, { 5, 5, 0, 0 }, { 6, 4, 2, 5 }, { 3, 6, 1, 4 }, { 2, 1, 5, 4 } };
	tt_test *t = f->t;
	for (int k = 0; k < TT_COUNT(ORDERS); k++) {
		for (int i = 0; i < 4 && ORDERS[k][i] >= 0; i++)
			forward_add(f, s, ORDERS[k][i], LENGTHS[ORDERS[k][i]]);
		if (!forward_run(f))
			return;
		int64_t at = 0;
		for (int i = 0; i < 4 && ORDERS[k][i] >= 0; at += LENGTHS[ORDERS[k][i]], i++)
			TT_CHECK_MSG(t, same_as_alone(f, a, ORDERS[k][i], at, LENGTHS[ORDERS[k][i]]), "%s: sequence %d from token %lld of batch %d", what,
				ORDERS[k][i], (long long)at, k);
	}
	static const int64_t PREFIXES[] = { 1, 2, 15, 16, 17, 63, 64, 65, 100, 127, 128, 129, 149 };
	for (int k = 0; k < TT_COUNT(PREFIXES); k++) {
		int64_t n = PREFIXES[k];
		forward_add(f, s, 0, n);
		if (!forward_run(f))
			return;
		TT_CHECK_MSG(t, same_as_alone(f, a, 0, 0, n), "%s: the first %lld tokens alone", what, (long long)n);
		forward_add(f, s, 2, LENGTHS[2]);
		forward_add(f, s, 0, n);
		forward_add(f, s, 5, LENGTHS[5]);
		if (!forward_run(f))
			return;
		TT_CHECK_MSG(t, same_as_alone(f, a, 0, LENGTHS[2], n), "%s: the first %lld tokens in a batch", what, (long long)n);
	}
}

static bool tokens_alone(tt_test *t, const tt_run_options *o, const sequences *s, alone *a)
{
	forward f;
	bool ok = forward_open(t, &f, o);
	for (int i = 0; i < NSEQ && ok; i++) {
		forward_add(&f, s, i, LENGTHS[i]);
		ok = forward_run(&f);
		size_t n = (size_t)LENGTHS[i];
		a->logits[i] = TT_NEWN(t->arena, float, LENGTHS[i] * f.vocab);
		a->nll[i] = TT_NEWN(t->arena, float, LENGTHS[i]);
		memcpy(a->logits[i], f.logits, n * (size_t)f.vocab * sizeof(float));
		memcpy(a->nll[i], f.nll, n * sizeof(float));
	}
	tt_trainer_destroy(f.tr);
	return ok;
}

static void forward_invariance(tt_test *t, tt_dtype compute, int V, int64_t window, tt_numerics numerics)
{
	enum { C = 16 };
	static sequences s;
	uint64_t r = 11;
	for (int i = 0; i < NSEQ; i++)
		for (int k = 0; k < LENGTHS[i]; k++) {
			s.ids[i][k] = (int32_t)(tiny_next(&r) % (uint64_t)V);
			s.labels[i][k] = tiny_next(&r) % 7 ? (int32_t)(tiny_next(&r) % (uint64_t)V) : TT_IGNORE;
		}
	tt_rows rows = tiny_rows(t->arena, 1, C, V, 1);
	tt_run_options o = tiny_options(tiny_model(V), rows, C, 1);
	o.compute = compute;
	o.model.sliding_window = window;
	o.model.attention_bias = true;
	o.output_logits = true;
	o.eval_tokens = LONGEST;
	o.loss_chunks = 1;
	o.exec.numerics = numerics;
	alone a;
	if (!tokens_alone(t, &o, &s, &a))
		return;
	for (int k = 0; k < 4; k++) {
		static const struct { int64_t tokens; int chunks; bool fast; int threads; } SIZES[] = {
			{ 480, 3, false, 1 }, { 467, 8, true, 1 }, { 480, 1, true, 2 }, { 471, 5, true, 3 } };
		tt_run_options p = o;
		p.eval_tokens = SIZES[k].tokens;
		p.loss_chunks = SIZES[k].chunks;
		p.exec.kernels_ref = !SIZES[k].fast;
		p.exec.isa = SIZES[k].fast ? tiny_isa(t) : TT_ISA_REF;
		p.exec.threads = SIZES[k].threads;
		forward f;
		if (forward_open(t, &f, &p))
			check_company(&f, &s, &a, tt_arena_printf(t->arena, "%s, window %lld, cell of %lld in %d chunks, %s kernels", tt_dtype_name(compute),
				(long long)window, (long long)SIZES[k].tokens, SIZES[k].chunks, SIZES[k].fast ? "fast" : "reference"));
		/* It can fail: the last token seen has changed, so that only what comes before it is the same. */
		if (k == 0 && f.tr) {
			enum { AT = 40 };
			s.ids[0][AT] = (s.ids[0][AT] + 1) % V;
			forward_add(&f, &s, 0, LENGTHS[0]);
			if (forward_run(&f)) {
				TT_CHECK(t, same_as_alone(&f, &a, 0, 0, AT));
				TT_CHECK(t, !same_as_alone(&f, &a, 0, 0, AT + 1));
				TT_CHECK(t, memcmp(f.logits + 149 * V, a.logits[0] + 149 * V, (size_t)V * sizeof(float)) != 0 || window);
			}
			s.ids[0][AT] = (s.ids[0][AT] + V - 1) % V;
		}
		tt_trainer_destroy(f.tr);
	}
}

static void case_forward_f32(tt_test *t) { forward_invariance(t, TT_F32, VOCAB, 0, TT_FAST); }
static void case_forward_bf16(tt_test *t) { forward_invariance(t, TT_BF16, VOCAB, 0, TT_FAST); }
static void case_forward_window(tt_test *t)
{
	forward_invariance(t, TT_F32, 64, 20, TT_FAST);
	forward_invariance(t, TT_BF16, 64, 70, TT_FAST);
}
static void case_forward_exact(tt_test *t) { forward_invariance(t, TT_F32, VOCAB, 70, TT_EXACT); }

const tt_case tt_suite_bits[] = {
	{ "exact_f32", case_exact_f32, TT_TIER_QUICK },
	{ "exact_bf16", case_exact_bf16, TT_TIER_QUICK },
	{ "fast_f32", case_fast_f32, TT_TIER_QUICK },
	{ "fast_bf16", case_fast_bf16, TT_TIER_QUICK },
	{ "passes", case_passes, TT_TIER_QUICK },
	{ "forward_f32", case_forward_f32, TT_TIER_QUICK },
	{ "forward_bf16", case_forward_bf16, TT_TIER_QUICK },
	{ "forward_window", case_forward_window, TT_TIER_QUICK },
	{ "forward_exact", case_forward_exact, TT_TIER_CI },
	{ 0 },
};
