/* Tiny models on made-up rows, for suites that train: options, the state of a run as bytes, and what differs. Everything is static: a suite
 * includes it and needs nothing else. */
#ifndef TT_TINY_H
#define TT_TINY_H

#include "test.h"
#include "train/train.h"

static inline uint64_t tiny_next(uint64_t *s)
{
	*s = *s * 6364136223846793005u + 1442695040888963407u;
	return *s >> 33;
}

/* 2 layers, 4 heads of 16 (hidden 64), 2 kv heads; all widths multiples of 16, as the fast kernels want, but the vocabulary. */
static inline tt_llama_config tiny_model(int64_t vocab)
{
	return (tt_llama_config){
		.architecture = "LlamaForCausalLM", .vocab_size = vocab, .hidden_size = 64, .num_hidden_layers = 2, .num_attention_heads = 4,
		.num_key_value_heads = 2, .head_dim = 16, .intermediate_size = 96, .max_position_embeddings = 512, .rms_norm_eps = 1e-5,
		.rope_theta = 10000, .initializer_range = 0.02, .bos = -1,
	};
}

enum { TINY_MAX_SEQS = 8 };

/* nrows rows of `context` tokens in documents of uneven length (the first row is one document), about one label in nine ignored.
 * Tokens follow each other by a rule with some noise, so that there is something to learn. */
static inline tt_rows tiny_rows(tt_arena *a, int64_t nrows, int64_t context, int64_t vocab, uint64_t seed)
{
	int32_t *ids = TT_NEWN(a, int32_t, nrows * context), *labels = TT_NEWN(a, int32_t, nrows * context);
	int32_t *lengths = TT_NEWN(a, int32_t, nrows * TINY_MAX_SEQS);
	uint64_t s = seed * 2 + 1;
	for (int64_t r = 0; r < nrows; r++) {
		int64_t left = context;
		for (int q = 0; left; q++) {
			int64_t n = q == TINY_MAX_SEQS - 1 || r == 0 ? left : 1 + (int64_t)(tiny_next(&s) % (uint64_t)left);
			lengths[r * TINY_MAX_SEQS + q] = (int32_t)n;
			for (int64_t i = context - left; i < context - left + n; i++) {
				int64_t last = i ? ids[r * context + i - 1] : 0;
				ids[r * context + i] = (int32_t)(tiny_next(&s) % 4 ? (last * 3 + 1) % vocab : (int64_t)(tiny_next(&s) % (uint64_t)vocab));
			}
			left -= n;
			for (int64_t i = context - left - n; i < context - left; i++) {
				bool ends = i == context - left - 1 || tiny_next(&s) % 9 == 0;
				labels[r * context + i] = ends ? TT_IGNORE : ids[r * context + i + 1];
			}
		}
	}
	return (tt_rows){ .ids = ids, .labels = labels, .lengths = lengths, .nrows = nrows, .max_sequences = TINY_MAX_SEQS };
}

/* AdamW on `rows`, `per_step` rows a step in one microbatch, fast numerics, reference kernels of the baseline, one thread. */
static inline tt_run_options tiny_options(tt_llama_config m, tt_rows rows, int64_t context, int64_t per_step)
{
	return (tt_run_options){
		.model = m, .compute = TT_F32, .loss_chunks = 2, .tokens_per_microbatch = per_step * context,
		.data = { .source = "rows", .context_length = context, .tokens_per_step = per_step * context, .vocab_size = (int)m.vocab_size,
			  .repeat = true, .rows = rows },
		.optim = { .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .decay_only_matrices = true, .max_norm = 1 },
		.schedule = { .warmup = 2, .total = 100, .decay = 98, .type = TT_WSD_COSINE, .min_factor = 0.1 },
		.exec = { .numerics = TT_FAST, .isa = TT_ISA_REF, .kernels_ref = true, .threads = 1, .seed = 7 },
	};
}

enum { CONTEXT = 32, ROWS = 5, VOCAB = 61 };

/* `nrows` rows, ROWS of them a step. */
static inline tt_run_options tiny_standard(tt_test *t, int64_t nrows)
{
	return tiny_options(tiny_model(VOCAB), tiny_rows(t->arena, nrows, CONTEXT, VOCAB, 3), CONTEXT, ROWS);
}

static inline const char *tiny_text(tt_test *t, const char *name, int lines, int salt)
{
	tt_buf b = { 0 };
	for (int i = 0; i < lines; i++)
		tt_buf_printf(&b, "line %d of %d: the quick brown fox jumps over the lazy dog\n", (i * 7 + salt) % 10, lines % 10);
	const char *path = tt_test_path(t, name);
	TT_CHECK_OK(t, tt_file_write(path, b.s, b.n));
	tt_buf_fini(&b);
	return path;
}

/* Bytes of two files, the second held out. */
static inline tt_run_options tiny_on_text(tt_test *t, int train_lines, int valid_lines)
{
	tt_run_options o = tiny_standard(t, ROWS);
	const char **paths = TT_NEWN(t->arena, const char *, 2);
	paths[0] = tiny_text(t, "train.txt", train_lines, 0);
	paths[1] = tiny_text(t, "valid.txt", valid_lines, 5);
	o.model.vocab_size = 256;
	o.data = (tt_data_options){ .source = "text", .context_length = CONTEXT, .tokens_per_step = ROWS * CONTEXT, .vocab_size = 256, .repeat = true,
				    .paths = paths, .npaths = 1, .valid_paths = paths + 1, .nvalid_paths = 1 };
	TT_CHECK_OK(t, tt_tok_open(t->arena, "bytes", NULL, &o.data.tok));
	return o;
}

/* ---- what a run leaves behind ------------------------------------------------------------------------------------------------------ */

enum { TINY_STEPS = 8, TINY_STATES = 160 };

typedef struct tiny_end {
	int64_t steps, n;
	double loss[TINY_STEPS], norm[TINY_STEPS];
	struct { const char *name; uint64_t hash; } state[TINY_STATES]; /* parameters, optimizer states, gradients: not what is derived */
} tiny_end;

static inline bool tiny_states(tt_test *t, tt_exec *e, tiny_end *out)
{
	int64_t n;
	const tt_slot *s = tt_exec_states(e, &n);
	out->n = 0;
	for (int64_t i = 0; i < n; i++) {
		if (s[i].source >= 0 || !strcmp(s[i].name, "eval_loss_sum"))
			continue;
		if (!TT_CHECK(t, out->n < TINY_STATES))
			return false;
		out->state[out->n].name = tt_arena_strdup(t->arena, s[i].name);
		if (!TT_CHECK_OK(t, tt_tensor_hash(e, &s[i], 0, s[i].count, &out->state[out->n].hash)))
			return false;
		out->n++;
	}
	return true;
}

/* `steps` steps of a new run. False after a failed check. */
static inline bool tiny_run(tt_test *t, const tt_run_options *o, int steps, tiny_end *out)
{
	tt_trainer *tr = NULL;
	*out = (tiny_end){ .steps = steps };
	if (!TT_CHECK(t, steps <= TINY_STEPS) || !TT_CHECK_OK(t, tt_trainer_create(o, &tr)))
		return false;
	bool ok = true;
	for (int i = 0; i < steps && ok; i++) {
		tt_step_report r;
		ok = TT_CHECK_OK(t, tt_trainer_step(tr, &r));
		if (ok) {
			out->loss[i] = r.loss;
			out->norm[i] = r.grad_norm;
		}
	}
	ok = ok && tiny_states(t, tt_trainer_exec(tr), out);
	tt_trainer_destroy(tr);
	return ok;
}

static inline const char *tiny_differs(tt_arena *a, const tiny_end *x, const tiny_end *y)
{
	if (x->n != y->n || x->steps != y->steps)
		return tt_arena_printf(a, "%lld and %lld states", (long long)x->n, (long long)y->n);
	for (int64_t i = 0; i < x->steps; i++) {
		if (x->loss[i] != y->loss[i])
			return tt_arena_printf(a, "loss of step %lld: %.17g and %.17g", (long long)i + 1, x->loss[i], y->loss[i]);
		if (x->norm[i] != y->norm[i])
			return tt_arena_printf(a, "norm of step %lld: %.17g and %.17g", (long long)i + 1, x->norm[i], y->norm[i]);
	}
	for (int64_t i = 0; i < x->n; i++)
		if (strcmp(x->state[i].name, y->state[i].name) || x->state[i].hash != y->state[i].hash)
			return tt_arena_printf(a, "bits of %s", x->state[i].name);
	return NULL;
}

/* Both runs must have left the same bits. */
static inline bool tiny_same(tt_test *t, const tiny_end *x, const tiny_end *y, const char *what)
{
	const char *d = tiny_differs(t->arena, x, y);
	return TT_CHECK_MSG(t, !d, "%s: %s", what, d);
}

/* Best instruction set of this run: --isa, or the machine's. */
static inline tt_isa tiny_isa(tt_test *t)
{
	tt_isa isa = TT_ISA_REF;
	TT_CHECK_OK(t, tt_isa_parse(t->isa[0] ? t->isa : "auto", &isa));
	return isa;
}

#endif
