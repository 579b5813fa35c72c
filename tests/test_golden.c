/* golden: whole models against what PyTorch and transformers compute in float64 (tests/golden/README.md).
 *
 * Each model is built, evaluated, differentiated and trained for ten steps in several modes (a row of MODES: dtype, numerics, kernels,
 * microbatch, loss chunks); every quantity is held against the files with the mode's limits. Errors of vectors and matrices are
 * |ours - golden| / |golden| in the Euclidean norm, of series the largest relative error of a step.
 * TITAN_TEST_VERBOSE=1 prints every error measured, without it only those over the limit appear.
 */
#define _GNU_SOURCE
#include "test.h"

#include "ckpt/safetensors.h"
#include "train/train.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- limits ------------------------------------------------------------------------------------------------------------- */

typedef struct limits { double logits, nll, loss, grad, norm, series; } limits;

/* float64. The files hold logits and gradients rounded once to float32: half an ulp is at most 6e-8 of an element, 2.5e-8 to 3e-8 of a
 * norm. The rest is stored in double; we are within 2e-15 of it where our rotary table is that of transformers. Elsewhere an inv_freq
 * that transformers computed in float32 is an ulp off ours, and TURN times the largest angle that comes of it is added to each limit:
 * in the last position, (ctx - 1) |ours - theirs|, at most 7e-7 in these models. */
static const limits F64 = { .logits = 4e-8, .nll = 1e-13, .loss = 1e-13, .grad = 4e-8, .norm = 1e-13, .series = 1e-13 };
static const double TURN = 0.5;
/* float32: what the project promises. PyTorch in float32 is within 6e-7, -, 2e-7, 2e-6, -, 1e-6. */
static const limits F32 = { .logits = 1e-5, .nll = 1e-5, .loss = 1e-6, .grad = 1e-5, .norm = 1e-5, .series = 1e-5 };
/* bfloat16: this many times the error that transformers has in bfloat16. There is no series of theirs; ours is to stay near float64's:
 * an update that did not reach the weights in use, or was made with stale ones, moves it by a tenth or more. */
static const double BF16_RATIO = 1.2, BF16_SERIES = 0.04;

typedef struct mode {
	const char *name;
	tt_dtype compute;
	tt_numerics numerics;
	bool ref;        /* reference kernels only */
	int microbatch;  /* rows; 0: all */
	int chunks, threads;
	const limits *limits; /* NULL: bfloat16, limits by what the file says */
	bool train;      /* ten steps too */
} mode;

static const mode MODES[] = {
	{ "f64", TT_F64, TT_FAST, false, 0, 1, 1, &F64, true },
	{ "f64, 1 row, 3 chunks", TT_F64, TT_FAST, false, 1, 3, 1, &F64, false },
	{ "f32", TT_F32, TT_FAST, false, 0, 1, 1, &F32, true },
	{ "f32, 1 row, 3 chunks", TT_F32, TT_FAST, false, 1, 3, 2, &F32, true },
	{ "f32 ref", TT_F32, TT_FAST, true, 0, 3, 1, &F32, true },
	{ "f32 ref, 1 row", TT_F32, TT_FAST, true, 1, 1, 1, &F32, true },
	{ "f32 exact", TT_F32, TT_EXACT, false, 1, 3, 1, &F32, true },
	{ "bf16", TT_BF16, TT_FAST, false, 0, 1, 1, NULL, true },
	{ "bf16, 1 row, 3 chunks", TT_BF16, TT_FAST, false, 1, 3, 2, NULL, true },
	{ "bf16 ref", TT_BF16, TT_FAST, true, 0, 1, 1, NULL, true },
	{ "bf16 exact", TT_BF16, TT_EXACT, false, 0, 1, 1, NULL, true },
};

/* ---- a golden model --------------------------------------------------------------------------------------------------- */

enum { MAX_PARAMS = 64, STEPS = 10 };

/* Vectors are as stored, widened to double. T = rows*ctx tokens, V vocabulary. */
typedef struct golden {
	const char *name;
	tt_llama_config config;
	json_t *json;
	tt_st *st;
	int64_t rows, ctx, T, V, max_sequences;
	int32_t *ids, *labels, *lengths, *positions; /* [T] [T] [rows, max_sequences] [T] */
	double *logits_tv, *nll_t;
	double *f64_grad[MAX_PARAMS]; /* our own float64 gradients, for those that the file leaves out; by index of the parameter */
	double turn; /* radians, see F64 */
	const char *weights;
} golden;

static double *doubles(tt_test *t, tt_st *st, const char *name, int64_t n)
{
	const tt_st_tensor *x;
	double *v = TT_NEWN(t->arena, double, n);
	if (TT_CHECK_OK(t, tt_st_get(st, name, &x)) && TT_CHECK_INT(t, x->count, n))
		TT_CHECK_OK(t, tt_st_read_f64(x, 0, n, v));
	return v;
}

static int32_t *ints(tt_test *t, tt_st *st, const char *name, int64_t n)
{
	const tt_st_tensor *x;
	int32_t *v = TT_NEWN(t->arena, int32_t, n);
	if (TT_CHECK_OK(t, tt_st_get(st, name, &x)) && TT_CHECK_INT(t, x->count, n))
		TT_CHECK_OK(t, tt_st_read_i32(x, 0, n, v));
	return v;
}

/* The number at a path of keys separated by '/'; NaN if there is none, which no comparison passes. */
static double number(const golden *g, const char *path)
{
	char key[128];
	const json_t *j = g->json;
	while (j && *path) {
		size_t n = strcspn(path, "/");
		snprintf(key, sizeof key, "%.*s", (int)n, path);
		j = json_object_get(j, key);
		path += n + (path[n] == '/');
	}
	return json_is_number(j) ? json_number_value(j) : NAN;
}

static double element(const golden *g, const char *object, const char *array, int i)
{
	const json_t *j = json_array_get(json_object_get(json_object_get(g->json, object), array), (size_t)i);
	return json_is_number(j) ? json_number_value(j) : NAN;
}

static bool same_config(const tt_llama_config *a, const tt_llama_config *b)
{
	const tt_rope_scaling *r = &a->rope, *s = &b->rope;
	return !strcmp(a->architecture, b->architecture) && !strcmp(a->dtype, b->dtype) && a->vocab_size == b->vocab_size &&
	       a->hidden_size == b->hidden_size && a->num_hidden_layers == b->num_hidden_layers &&
	       a->num_attention_heads == b->num_attention_heads && a->num_key_value_heads == b->num_key_value_heads &&
	       a->head_dim == b->head_dim && a->intermediate_size == b->intermediate_size &&
	       a->max_position_embeddings == b->max_position_embeddings && a->sliding_window == b->sliding_window &&
	       a->rms_norm_eps == b->rms_norm_eps && a->rope_theta == b->rope_theta && a->initializer_range == b->initializer_range &&
	       a->tie_word_embeddings == b->tie_word_embeddings && a->attention_bias == b->attention_bias && a->mlp_bias == b->mlp_bias &&
	       a->bos == b->bos && a->neos == b->neos && !memcmp(a->eos, b->eos, sizeof a->eos) && r->kind == s->kind &&
	       r->factor == s->factor && r->low_freq_factor == s->low_freq_factor && r->high_freq_factor == s->high_freq_factor &&
	       r->beta_fast == s->beta_fast && r->beta_slow == s->beta_slow && r->attention_factor == s->attention_factor &&
	       r->mscale == s->mscale && r->mscale_all_dim == s->mscale_all_dim && r->truncate == s->truncate &&
	       r->original_max_position_embeddings == s->original_max_position_embeddings;
}

/* How far our angles are from theirs at most. */
static double largest_turn(tt_test *t, const golden *g)
{
	int64_t half = g->config.head_dim / 2;
	double *f = TT_NEWN(t->arena, double, half), scale, worst = 0;
	tt_llama_inv_freq(&g->config, g->ctx, f, &scale);
	for (int i = 0; i < half; i++)
		worst = fmax(worst, fabs(f[i] - element(g, "rope", "inv_freq", i)));
	return worst * (double)(g->ctx - 1);
}

static void golden_close(golden *g)
{
	tt_st_close(g->st);
	json_decref(g->json);
}

static bool golden_open(tt_test *t, const char *name, golden *g)
{
	const char *dir = tt_arena_printf(t->arena, "tests/golden/%s", name);
	tt_llama_config v4;
	json_error_t why;
	int failures = t->failures;
	*g = (golden){ .name = name };
	if (!TT_CHECK_OK(t, tt_llama_read(t->arena, tt_arena_printf(t->arena, "%s/config.json", dir), &g->config)) ||
		!TT_CHECK_OK(t, tt_llama_read(t->arena, tt_arena_printf(t->arena, "%s/config_v4.json", dir), &v4)) ||
		!TT_CHECK_OK(t, tt_st_open(t->arena, tt_arena_printf(t->arena, "%s/expect.safetensors", dir), &g->st)))
		return false;
	TT_CHECK_MSG(t, same_config(&g->config, &v4), "%s: config.json and config_v4.json are read as different models", name);
	g->json = json_load_file(tt_arena_printf(t->arena, "%s/expect.json", dir), 0, &why);
	if (!TT_CHECK_MSG(t, g->json != NULL, "%s/expect.json:%d: %s", dir, why.line, why.text))
		return false;
	g->rows = (int64_t)number(g, "rows");
	g->ctx = (int64_t)number(g, "ctx");
	g->V = (int64_t)number(g, "vocab");
	g->T = g->rows * g->ctx;
	TT_CHECK_INT(t, g->V, g->config.vocab_size);
	const char *weights = json_string_value(json_object_get(g->json, "weights"));
	const tt_st_tensor *lengths;
	if (!TT_CHECK(t, weights != NULL && g->rows > 0 && g->ctx > 0) || !TT_CHECK_OK(t, tt_st_get(g->st, "sequence_lengths", &lengths)))
		return false;
	g->weights = tt_arena_printf(t->arena, "%s/%s", dir, weights);
	g->max_sequences = lengths->count / g->rows;
	g->lengths = ints(t, g->st, "sequence_lengths", lengths->count);
	g->ids = ints(t, g->st, "input_ids", g->T);
	g->labels = ints(t, g->st, "labels", g->T);
	g->positions = ints(t, g->st, "positions", g->T);
	g->logits_tv = doubles(t, g->st, "logits", g->T * g->V);
	g->nll_t = doubles(t, g->st, "nll", g->T);
	g->turn = largest_turn(t, g);
	return t->failures == failures;
}

static tt_run_options options(tt_test *t, const golden *g, const mode *m, bool sgd)
{
	tt_run_options o = {
		.model = g->config,
		.compute = m->compute,
		.loss_chunks = m->chunks,
		.tokens_per_microbatch = (m->microbatch ? m->microbatch : g->rows) * g->ctx,
		.eval_tokens = g->T,
		.output_logits = true,
		.data = { .source = "rows", .context_length = g->ctx, .tokens_per_step = g->T, .vocab_size = (int)g->V,
			  .sequence = TT_SEQUENCE_DOCUMENT, .repeat = true,
			  .rows = { g->ids, g->labels, g->lengths, g->rows, g->max_sequences } },
		.schedule = { .total = STEPS + 1 },
		.exec = { .numerics = m->numerics, .f64 = m->compute == TT_F64, .kernels_ref = m->ref, .threads = m->threads, .fill_nan = true },
		.weights = g->weights,
	};
	if (sgd)
		o.optim = (tt_optim_options){ .sgd = true, .lr = number(g, "sgd/lr"), .momentum = number(g, "sgd/momentum") };
	else
		o.optim = (tt_optim_options){
			.lr = number(g, "adamw/lr"), .beta1 = number(g, "adamw/beta1"), .beta2 = number(g, "adamw/beta2"),
			.eps = number(g, "adamw/eps"), .weight_decay = number(g, "adamw/weight_decay"), .decay_only_matrices = true,
			.max_norm = number(g, "adamw/max_norm"),
		};
	TT_CHECK_OK(t, tt_isa_parse(t->isa[0] ? t->isa : "auto", &o.exec.isa));
	return o;
}

/* ---- comparing -------------------------------------------------------------------------------------------------------- */

enum { MAX_WATCHED = 4 };

/* What a run is held against. `broken` names what was made wrong on purpose: then being over a limit is no failure, and is wanted of the
 * quantities watched. */
typedef struct check {
	tt_test *t;
	golden *g;
	const mode *m;
	const char *broken;
	const char *const *watched; /* [MAX_WATCHED], NULL after the last */
	int over[MAX_WATCHED];      /* times that each was over its limit */
} check;

/* A quantity's error against its limit. NaN is over every limit. */
static void hold(check *c, const char *what, double error, double limit)
{
	if (c->m->compute == TT_F64)
		limit += TURN * c->g->turn;
	bool within = error <= limit;
	if (getenv("TITAN_TEST_VERBOSE"))
		fprintf(stderr, "golden\t%s\t%s%s%s\t%s\t%.3g\t%.3g%s\n", c->g->name, c->m->name, c->broken ? ", broken: " : "",
			c->broken ? c->broken : "", what, error, limit, within ? "" : "\tOVER");
	if (!c->broken)
		TT_CHECK_MSG(c->t, within, "%s (%s): %s has error %.3g, the limit is %.3g", c->g->name, c->m->name, what, error, limit);
	else
		for (int i = 0; i < MAX_WATCHED && c->watched[i]; i++)
			c->over[i] += !within && !strcmp(what, c->watched[i]);
}

/* NaN if either is, unlike fmax. */
static double larger(double a, double b) { return a >= b || isnan(a) ? a : b; }
static double relative(double got, double want) { return fabs(got - want) / fabs(want); }

/* |a - b|^2 and |b|^2, added to what is there */
static void distance(const double *a, const double *b, int64_t n, double *diff, double *norm)
{
	for (int64_t i = 0; i < n; i++) {
		*diff += (a[i] - b[i]) * (a[i] - b[i]);
		*norm += b[i] * b[i];
	}
}

static double error_of(const double *got, const double *want, int64_t n)
{
	double diff = 0, norm = 0;
	distance(got, want, n, &diff, &norm);
	return sqrt(diff / norm);
}

/* n numbers of a slot, whatever it is stored as; limbs as EXACT.md has them, on grids 2^-26, 2^-66, 2^-106. */
static double *read_slot(check *c, tt_trainer *tr, const tt_slot *s, int64_t n)
{
	double *v = TT_NEWN(c->t->arena, double, n);
	tt_exec *e = tt_trainer_exec(tr);
	TT_CHECK_MSG(c->t, s->format == TT_PLAIN, "%s is not plain", s->name);
	bool limbs = s->dtype == TT_ACC && c->m->numerics == TT_EXACT;
	void *raw = tt_arena_alloc(c->t->arena, sizeof(int64_t) * 3 * (size_t)n);
	if (!TT_CHECK_OK(c->t, tt_tensor_read(e, s, 0, raw, n)))
		return v;
	const int64_t *limb = raw;
	const double *d = raw;
	const float *f = raw;
	for (int64_t i = 0; i < n; i++)
		v[i] = limbs ? ((double)limb[2 * n + i] * 0x1p-106 + (double)limb[n + i] * 0x1p-66) + (double)limb[i] * 0x1p-26
		     : c->m->compute == TT_F64 ? d[i] : (double)f[i];
	return v;
}

/* An error in bfloat16 as a multiple of that of transformers. */
static void hold_ratio(check *c, const char *what, const char *key, double error)
{
	double theirs = number(c->g, tt_arena_printf(c->t->arena, "bf16/against_given_weights/%s", key));
	hold(c, what, error / theirs, BF16_RATIO);
}

/* One evaluation of all rows; its mean loss. */
static double evaluate(check *c, tt_trainer *tr)
{
	const golden *g = c->g;
	tt_step *s = tt_step_new(c->t->arena, g->rows, g->ctx);
	tt_batch *b = tt_batch_new(c->t->arena, g->T);
	double sum;
	if (!TT_CHECK_OK(c->t, tt_data_step(tt_trainer_data(tr), 0, s)))
		return NAN;
	tt_batch_fill(s, 0, s->nrows, b);
	int64_t differ = 0;
	for (int64_t i = 0; i < g->T; i++)
		differ += b->positions[i] != g->positions[i];
	hold(c, "positions", (double)differ, 0);
	if (!TT_CHECK_OK(c->t, tt_trainer_forward(tr, b, &sum)))
		return NAN;
	return sum / (double)b->nvalid;
}

/* An output of all chunks, one after the other: n numbers for each token. */
static double *chunks(check *c, tt_trainer *tr, const char *name, int64_t n)
{
	int64_t T = c->g->T, chunk = (T + c->m->chunks - 1) / c->m->chunks, at = 0;
	double *all = TT_NEWN(c->t->arena, double, T * n);
	for (int i = 0; i < c->m->chunks; i++, at += chunk) {
		int64_t count = TT_MIN(chunk, T - at) * n;
		tt_slot slot;
		if (TT_CHECK_OK(c->t, tt_exec_output(tt_trainer_exec(tr), TT_SEG_EVAL, tt_arena_printf(c->t->arena, "loss.%d.%s", i, name), &slot)))
			memcpy(all + at * n, read_slot(c, tr, &slot, count), sizeof(double) * (size_t)count);
	}
	return all;
}

static void forward(check *c, tt_trainer *tr)
{
	const golden *g = c->g;
	double loss = evaluate(c, tr);
	double logits = error_of(chunks(c, tr, "logits", g->V), g->logits_tv, g->T * g->V);
	double nll = error_of(chunks(c, tr, "nll", 1), g->nll_t, g->T);
	if (c->m->limits) {
		hold(c, "logits", logits, c->m->limits->logits);
		hold(c, "nll", nll, c->m->limits->nll);
		hold(c, "eval loss", relative(loss, number(g, "loss")), c->m->limits->loss);
	} else {
		hold_ratio(c, "logits ratio", "logits_rel_err", logits);
		hold_ratio(c, "nll ratio", "nll_rel_err", nll);
	}
}

/* Every gradient before clipping, the norms of those that the file has only the norm of, and all as one vector. */
static void gradients(check *c, tt_trainer *tr)
{
	golden *g = c->g;
	tt_test *t = c->t;
	double loss, diff = 0, norm = 0;
	if (!TT_CHECK_OK(t, tt_trainer_gradients(tr, 0, &loss)))
		return;
	if (c->m->limits)
		hold(c, "loss", relative(loss, number(g, "loss")), c->m->limits->loss);
	int64_t nstates, k = 0;
	const tt_slot *states = tt_exec_states(tt_trainer_exec(tr), &nstates);
	for (int64_t i = 0; i < nstates; i++) {
		tt_slot slot;
		if (!states[i].trainable || states[i].source >= 0)
			continue;
		const char *name = states[i].name, *grad = tt_arena_printf(t->arena, "grad.%s", name);
		int64_t n = states[i].count;
		if (!TT_CHECK_OK(t, tt_exec_slot(tt_trainer_exec(tr), grad, &slot)) || !TT_CHECK_INT(t, slot.count, n) || !TT_CHECK(t, k < MAX_PARAMS))
			return;
		double *got = read_slot(c, tr, &slot, n);
		bool stored = tt_st_find(g->st, grad) != NULL;
		const double *want = stored ? doubles(t, g->st, grad, n) : g->f64_grad[k];
		double length = 0;
		for (int64_t e = 0; e < n; e++)
			length += got[e] * got[e];
		if (c->m->limits) {
			/* In bfloat16 only all of them together have a reference that is not luck. */
			if (want)
				hold(c, grad, error_of(got, want, n), c->m->limits->grad);
			double said = number(g, tt_arena_printf(t->arena, "grad_norms/%s", name));
			hold(c, tt_arena_printf(t->arena, "norm of %s", grad), relative(sqrt(length), said), c->m->limits->norm);
		} else if (TT_CHECK_MSG(t, want != NULL, "%s: no float64 gradient", name)) {
			distance(got, want, n, &diff, &norm);
		}
		if (c->m->compute == TT_F64 && !c->broken)
			g->f64_grad[k] = got;
		k++;
	}
	TT_CHECK_INT(t, k, json_object_size(json_object_get(g->json, "grad_norms")));
	if (!c->m->limits)
		hold_ratio(c, "gradients ratio", "all_grads_rel_err", sqrt(diff / norm));
}

/* Ten steps; the loss before each and after the last, in training and in evaluation, and the norm before clipping. */
static void steps(check *c, tt_trainer *tr, const char *optimizer)
{
	double losses = 0, norms = 0, limit = c->m->limits ? c->m->limits->series : BF16_SERIES;
	bool has_norms = json_object_get(json_object_get(c->g->json, optimizer), "grad_norms") != NULL;
	for (int i = 0; i <= STEPS; i++) {
		tt_step_report r = { 0 };
		if (!TT_CHECK_OK(c->t, i < STEPS ? tt_trainer_step(tr, &r) : tt_trainer_gradients(tr, i, &r.loss)))
			return;
		losses = larger(losses, relative(r.loss, element(c->g, optimizer, "losses", i)));
		if (has_norms && i < STEPS)
			norms = larger(norms, relative(r.grad_norm, element(c->g, optimizer, "grad_norms", i)));
	}
	losses = larger(losses, relative(evaluate(c, tr), element(c->g, optimizer, "losses", STEPS)));
	hold(c, tt_arena_printf(c->t->arena, "%s losses", optimizer), losses, limit);
	if (has_norms)
		hold(c, tt_arena_printf(c->t->arena, "%s norms", optimizer), norms, limit);
}

/* One model in one mode. `change` breaks the trainer before it is used. */
static void run(check *c, tt_run_options *o, void (*change)(check *, tt_trainer *))
{
	tt_trainer *tr;
	if (!TT_CHECK_OK(c->t, tt_trainer_create(o, &tr)))
		return;
	if (change)
		change(c, tr);
	if (!o->optim.sgd) {
		forward(c, tr);
		gradients(c, tr);
	}
	if (c->m->train)
		steps(c, tr, o->optim.sgd ? "sgd" : "adamw");
	tt_trainer_destroy(tr);
}

static void one_model(tt_test *t)
{
	const char *name = strchr(t->name, '.') + 1;
	golden g;
	if (!golden_open(t, name, &g))
		return;
	for (int i = 0; i < TT_COUNT(MODES); i++) {
		check c = { .t = t, .g = &g, .m = &MODES[i] };
		tt_run_options o = options(t, &g, c.m, false);
		if ((!c.m->limits && !json_object_get(g.json, "bf16")) || (c.m->ref && o.exec.isa == TT_ISA_REF))
			continue; /* no errors of theirs; or the kernels that a mode without `ref` has already used */
		run(&c, &o, NULL);
		if (c.m->train && c.m->limits && json_object_get(g.json, "sgd")) {
			o = options(t, &g, c.m, true);
			run(&c, &o, NULL);
		}
	}
	golden_close(&g);
}

/* ---- the proof that it can fail --------------------------------------------------------------------------------------- */

/* One element of one parameter, a thousandth larger. */
static void nudge(check *c, tt_trainer *tr, const char *name)
{
	tt_exec *e = tt_trainer_exec(tr);
	tt_cell cell = { .first = true };
	double d = 0;
	float f = 0;
	bool f64 = c->m->compute == TT_F64;
	TT_CHECK_OK(c->t, tt_exec_read(e, name, 1, f64 ? (void *)&d : (void *)&f, 1));
	d *= 1.001;
	f *= 1.001f;
	TT_CHECK_OK(c->t, tt_exec_write(e, name, 1, f64 ? (void *)&d : (void *)&f, 1));
	if (tt_exec_has(e, TT_SEG_PREP))
		TT_CHECK_OK(c->t, tt_exec_run(e, TT_SEG_PREP, &cell));
}
static void nudge_norm(check *c, tt_trainer *tr) { nudge(c, tr, "model.norm.weight"); }
static void nudge_query(check *c, tt_trainer *tr) { nudge(c, tr, "model.layers.0.self_attn.q_proj.weight"); }

static void break_theta(tt_run_options *o) { o->model.rope_theta *= 1.01; }
static void break_theta_more(tt_run_options *o) { o->model.rope_theta *= 1.5; }
static void break_factor(tt_run_options *o) { o->model.rope.factor *= 1.01; }
static void break_low_factor(tt_run_options *o) { o->model.rope.low_freq_factor *= 1.01; }
static void break_ramp(tt_run_options *o) { o->model.rope.beta_slow = 1.5; o->model.rope.truncate = false; }
static void break_window(tt_run_options *o) { o->model.sliding_window++; }
static void break_eps(tt_run_options *o) { o->model.rms_norm_eps *= 1.1; }
static void break_documents(tt_run_options *o) { o->data.rows.lengths = NULL; }
static void break_labels(tt_run_options *o) { o->data.rows.labels = NULL; }
/* Not a little: every step is clipped to about the same norm, and AdamW does not see a common factor of all gradients. */
static void break_clip(tt_run_options *o) { o->optim.max_norm = 0; }
static void break_decay(tt_run_options *o) { o->optim.decay_only_matrices = false; }
static void break_beta2(tt_run_options *o) { o->optim.beta2 = 0.951; }
static void break_momentum(tt_run_options *o) { o->optim.momentum *= 1.001; }
static void break_warmup(tt_run_options *o) { o->schedule.warmup = 2; }

static const struct {
	const char *name, *model, *mode;
	void (*options)(tt_run_options *);
	void (*change)(check *, tt_trainer *);
	bool sgd;
	const char *watched[MAX_WATCHED]; /* each has to be over its limit */
} BROKEN[] = {
	{ "a norm's weight", "base", "f32", NULL, nudge_norm, false, { "logits", "nll", "adamw losses" } },
	{ "a norm's weight", "base", "f32 exact", NULL, nudge_norm, false, { "loss", "eval loss", "grad.lm_head.weight" } },
	{ "a query's weight", "base", "f64, 1 row, 3 chunks", NULL, nudge_query, false, { "logits", "nll", "grad.lm_head.weight" } },
	{ "theta", "bf16", "f32", break_theta, NULL, false, { "logits", "norm of grad.model.layers.3.mlp.up_proj.weight" } },
	{ "theta", "base", "f32", break_theta, NULL, false,
		{ "logits", "grad.model.layers.0.mlp.up_proj.weight", "norm of grad.model.layers.1.self_attn.k_proj.weight" } },
	{ "factor", "rope_linear", "f32", break_factor, NULL, false, { "logits" } },
	{ "factor", "rope_dynamic", "f32", break_factor, NULL, false, { "logits" } },
	{ "factor", "rope_llama3", "f32", break_factor, NULL, false, { "logits" } },
	{ "low_freq_factor", "rope_llama3", "f32", break_low_factor, NULL, false, { "logits" } },
	{ "factor", "rope_yarn", "f32", break_factor, NULL, false, { "logits" } },
	{ "ramp", "rope_yarn", "f32", break_ramp, NULL, false, { "logits" } },
	{ "window", "mistral", "f32", break_window, NULL, false, { "logits" } },
	{ "eps", "attention_bias", "f32", break_eps, NULL, false, { "logits" } },
	{ "documents", "packed", "f32", break_documents, NULL, false, { "logits", "positions" } },
	{ "labels", "base", "f32", break_labels, NULL, false, { "loss", "nll" } },
	{ "clipping", "base", "f32", break_clip, NULL, false, { "adamw losses" } },
	{ "decay of vectors", "base", "f32", break_decay, NULL, false, { "adamw losses" } },
	{ "beta2", "base", "f32", break_beta2, NULL, false, { "adamw losses" } },
	{ "warmup", "base", "f32", break_warmup, NULL, false, { "adamw losses", "adamw norms" } },
	{ "momentum", "base", "f32", break_momentum, NULL, true, { "sgd losses" } },
	{ "theta", "gqa", "bf16", break_theta_more, NULL, false, { "logits ratio", "nll ratio", "gradients ratio" } },
	{ "warmup", "gqa", "bf16", break_warmup, NULL, false, { "adamw losses" } },
};

static void can_fail(tt_test *t)
{
	/* What is not a number is over every limit. */
	golden none = { .name = "none" };
	check nan = { .t = t, .g = &none, .m = &MODES[0], .broken = "a number", .watched = (const char *const[MAX_WATCHED]){ "x" } };
	hold(&nan, "x", NAN, 1e30);
	hold(&nan, "x", larger(larger(0, NAN), 0), 1e30);
	TT_CHECK_INT(t, nan.over[0], 2);
	for (int i = 0; i < TT_COUNT(BROKEN); i++) {
		golden g;
		const mode *m = MODES;
		while (m < MODES + TT_COUNT(MODES) - 1 && strcmp(m->name, BROKEN[i].mode))
			m++;
		if (!TT_CHECK_STR(t, m->name, BROKEN[i].mode) || !golden_open(t, BROKEN[i].model, &g))
			return;
		check c = { .t = t, .g = &g, .m = m, .broken = BROKEN[i].name, .watched = BROKEN[i].watched };
		tt_run_options o = options(t, &g, m, BROKEN[i].sgd);
		if (BROKEN[i].options)
			BROKEN[i].options(&o);
		run(&c, &o, BROKEN[i].change);
		for (int k = 0; k < MAX_WATCHED && c.watched[k]; k++)
			TT_CHECK_MSG(t, c.over[k] > 0, "%s (%s) with %s made wrong: %s stays within its limit", g.name, m->name, c.broken,
				c.watched[k]);
		golden_close(&g);
	}
}

const tt_case tt_suite_golden[] = {
	{ "base", one_model, TT_TIER_QUICK },
	{ "gqa", one_model, TT_TIER_QUICK },
	{ "tied", one_model, TT_TIER_QUICK },
	{ "rope_linear", one_model, TT_TIER_QUICK },
	{ "rope_dynamic", one_model, TT_TIER_QUICK },
	{ "rope_llama3", one_model, TT_TIER_QUICK },
	{ "rope_yarn", one_model, TT_TIER_QUICK },
	{ "attention_bias", one_model, TT_TIER_QUICK },
	{ "mlp_bias", one_model, TT_TIER_QUICK },
	{ "mistral", one_model, TT_TIER_QUICK },
	{ "packed", one_model, TT_TIER_QUICK },
	{ "bf16", one_model, TT_TIER_QUICK },
	{ "can_fail", can_fail, TT_TIER_QUICK },
	{ 0 },
};
