/* train: schedule, optimizers, clipping, parameter groups, what is skipped and what stops a run, validation, memory. Bits are compared in the suite
 * "bits", whole models with PyTorch's in "golden", the way from a config to a run in "connect". */
#include "tiny.h"

#include <math.h>
#include <stdio.h>

/* ---- tools ---------------------------------------------------------------------------------------------------------------------------- */

typedef struct heard { int n; char last[512]; } heard;

static void log_line(void *ctx, tt_log_level level, const char *line)
{
	heard *l = ctx;
	if (level < TT_LOG_WARN)
		return;
	l->n++;
	snprintf(l->last, sizeof l->last, "%s", line);
}

static const float *read_f32(tt_test *t, tt_exec *e, const char *name, int64_t *n)
{
	tt_slot s;
	if (!TT_CHECK_OK(t, tt_exec_slot(e, name, &s)))
		return NULL;
	float *v = TT_NEWN(t->arena, float, s.count);
	*n = s.count;
	return TT_CHECK_OK(t, tt_tensor_read(e, &s, 0, v, s.count)) ? v : NULL;
}

static float scalar(tt_test *t, tt_exec *e, const char *name)
{
	int64_t n;
	const float *v = read_f32(t, e, name, &n);
	return v ? v[0] : NAN;
}

static const char *with(tt_test *t, const char *prefix, const char *name) { return tt_arena_printf(t->arena, "%s%s", prefix, name); }

static bool fill(tt_test *t, tt_exec *e, const char *name, float value)
{
	tt_slot s;
	if (!TT_CHECK_OK(t, tt_exec_slot(e, name, &s)))
		return false;
	float *v = TT_NEWN(t->arena, float, s.count);
	for (int64_t i = 0; i < s.count; i++)
		v[i] = value;
	return TT_CHECK_OK(t, tt_tensor_write(e, &s, 0, v, s.count));
}

static bool close_to(double got, double want, double rel) { return fabs(got - want) <= rel * fmax(fabs(want), 1e-30); }

/* ---- schedule ---------------------------------------------------------------------------------------------------------------------------- */

/* Warmup W, total N, decay D: stable = N + 1 - W - D; s < W: (s+1)/W; s < W + stable: 1; else p = (s+1-W-stable)/D and
 * m + (1-m) f(p), f linear 1-p, sqrt 1-sqrt(p), cosine (1 + cos(pi p))/2. */
static double factor(int64_t W, int64_t N, int64_t D, int type, double m, int64_t s)
{
	int64_t stable = N + 1 - W - D;
	if (s < W)
		return (double)(s + 1) / (double)W;
	if (s < W + stable)
		return 1;
	double p = (double)(s + 1 - W - stable) / (double)D;
	double f = type == TT_WSD_LINEAR ? 1 - p : type == TT_WSD_SQRT ? 1 - sqrt(p) : 0.5 * (1 + cos(M_PI * p));
	return m + (1 - m) * f;
}

static void case_schedule(tt_test *t)
{
	static const struct { int64_t W, N, D; } S[] = {
		{ 2, 6, 2 }, { 0, 10, 5 }, { 5, 10, 0 }, { 0, 7, 0 }, { 3, 10, 7 }, { 0, 8, 8 }, { 200, 1000, 800 }, { 1, 1, 0 } };
	for (int i = 0; i < TT_COUNT(S); i++)
		for (int type = TT_WSD_LINEAR; type <= TT_WSD_COSINE; type++)
			for (int k = 0; k < 3; k++) {
				double m = k * 0.1;
				tt_schedule c = { S[i].W, S[i].N, S[i].D, (tt_decay)type, m };
				for (int64_t s = 0; s < c.total; s++) {
					double got = tt_schedule_factor(&c, s), want = factor(c.warmup, c.total, c.decay, type, m, s);
					TT_CHECK_MSG(t, fabs(got - want) < 1e-14, "W %lld N %lld D %lld type %d m %g step %lld: got %.17g, want %.17g",
						(long long)c.warmup, (long long)c.total, (long long)c.decay, type, m, (long long)s, got, want);
				}
			}
	/* By hand: W 2, N 6, D 2. */
	static const double LINEAR[] = { 0.5, 1, 1, 1, 1, 0.5 };
	tt_schedule c = { 2, 6, 2, TT_WSD_LINEAR, 0 };
	for (int s = 0; s < 6; s++)
		TT_CHECK_MSG(t, tt_schedule_factor(&c, s) == LINEAR[s], "step %d: %g", s, tt_schedule_factor(&c, s));
	c.type = TT_WSD_COSINE;
	TT_CHECK(t, fabs(tt_schedule_factor(&c, 5) - 0.5) < 1e-15);
	c.type = TT_WSD_SQRT;
	TT_CHECK(t, fabs(tt_schedule_factor(&c, 5) - (1 - sqrt(0.5))) < 1e-15);
	/* Past its end it stays where it ended. */
	c.min_factor = 0.25;
	for (int type = TT_WSD_LINEAR; type <= TT_WSD_COSINE; type++) {
		c.type = (tt_decay)type;
		TT_CHECK(t, fabs(tt_schedule_factor(&c, 6) - 0.25) < 1e-15 && fabs(tt_schedule_factor(&c, 60) - 0.25) < 1e-15);
	}
}

/* ---- learning ---------------------------------------------------------------------------------------------------------------------------- */

static void case_loss_falls(tt_test *t)
{
	for (int sgd = 0; sgd < 2; sgd++)
		for (int compute = TT_F32; compute <= (sgd ? TT_F32 : TT_BF16); compute++) {
			tt_run_options o = tiny_on_text(t, 80, 20);
			o.compute = (tt_dtype)compute;
			o.exec.isa = tiny_isa(t);
			o.exec.kernels_ref = false;
			o.optim.sgd = sgd;
			o.optim.momentum = 0.9;
			o.optim.lr = sgd ? 0.05 : 1e-2;
			tt_trainer *tr = NULL;
			if (!TT_CHECK_OK(t, tt_trainer_create(&o, &tr)))
				return;
			tt_step_report r;
			double first = 0, v0 = 0, v1 = 0;
			int64_t valid = 0;
			TT_CHECK_OK(t, tt_trainer_validate(tr, 0, &v0, &valid));
			for (int i = 0; i < 30; i++) {
				if (!TT_CHECK_OK(t, tt_trainer_step(tr, &r)))
					break;
				TT_CHECK(t, r.step == i + 1 && !r.skipped && r.tokens == ROWS * CONTEXT && r.valid > 0 && r.valid <= r.tokens);
				if (i == 0)
					first = r.loss;
			}
			TT_CHECK_OK(t, tt_trainer_validate(tr, 0, &v1, &valid));
			TT_CHECK_MSG(t, first > 5 && first < 6.5, "a new model of 256 ids is about as good as guessing, %g", first);
			TT_CHECK_MSG(t, r.loss < 0.6 * first && v1 < 0.65 * v0, "%s, %s: loss %g -> %g, held out %g -> %g", sgd ? "SGD" : "AdamW",
				tt_dtype_name(o.compute), first, r.loss, v0 / (double)valid, v1 / (double)valid);
			tt_trainer_destroy(tr);
		}
}

/* Norm of the difference of all gradients of step 0 to those of one microbatch, relative to their norm. */
static double gradient_distance(tt_test *t, const tt_run_options *x, const tt_run_options *y, double *loss_x, double *loss_y)
{
	tt_trainer *a = NULL, *b = NULL;
	double diff = 0, all = 0;
	if (TT_CHECK_OK(t, tt_trainer_create(x, &a)) && TT_CHECK_OK(t, tt_trainer_create(y, &b)) &&
	    TT_CHECK_OK(t, tt_trainer_gradients(a, 0, loss_x)) && TT_CHECK_OK(t, tt_trainer_gradients(b, 0, loss_y))) {
		int64_t n, m = 0, k = 0;
		const tt_slot *s = tt_exec_states(tt_trainer_exec(a), &n);
		for (int64_t i = 0; i < n; i++) {
			if (strncmp(s[i].name, "grad.", 5))
				continue;
			const float *p = read_f32(t, tt_trainer_exec(a), s[i].name, &m), *q = read_f32(t, tt_trainer_exec(b), s[i].name, &k);
			for (int64_t j = 0; p && q && m == k && j < m; j++) {
				diff += ((double)p[j] - q[j]) * ((double)p[j] - q[j]);
				all += (double)p[j] * p[j];
			}
		}
	}
	tt_trainer_destroy(a);
	tt_trainer_destroy(b);
	return sqrt(diff / all);
}

static void case_accumulation(tt_test *t)
{
	tt_run_options one = tiny_standard(t, ROWS);
	double x, y;
	for (int mb = 1; mb <= 3; mb++) {
		tt_run_options p = one;
		p.tokens_per_microbatch = mb * CONTEXT;
		double d = gradient_distance(t, &one, &p, &x, &y);
		TT_CHECK_MSG(t, d < 2e-6 && close_to(x, y, 1e-6), "microbatches of %d rows: gradients differ by %g, losses %.9g and %.9g", mb, d, x, y);
	}
	/* It can fail: one label less. */
	tt_run_options p = one;
	int32_t *labels = TT_NEWN(t->arena, int32_t, ROWS * CONTEXT);
	memcpy(labels, one.data.rows.labels, sizeof *labels * ROWS * CONTEXT);
	for (int i = 0, done = 0; i < ROWS * CONTEXT && !done; i++)
		if (labels[i] != TT_IGNORE)
			labels[i] = TT_IGNORE, done = 1;
	p.data.rows.labels = labels;
	double d = gradient_distance(t, &one, &p, &x, &y);
	TT_CHECK_MSG(t, d > 1e-4, "%g", d);
	/* A microbatch without a valid label adds nothing, and is no fault. */
	for (int i = 2 * CONTEXT; i < 3 * CONTEXT; i++)
		labels[i] = TT_IGNORE;
	tt_run_options q = p;
	q.tokens_per_microbatch = CONTEXT;
	d = gradient_distance(t, &p, &q, &x, &y);
	TT_CHECK_MSG(t, d < 2e-6 && close_to(x, y, 1e-6), "a row without labels: %g, losses %.9g and %.9g", d, x, y);
	/* A loss is the mean over valid tokens: three more rows without labels change nothing, and evaluation sees the same sum. */
	tt_run_options more = tiny_standard(t, ROWS + 3);
	int32_t *wide = (int32_t *)more.data.rows.labels;
	for (int i = ROWS * CONTEXT; i < (ROWS + 3) * CONTEXT; i++)
		wide[i] = TT_IGNORE;
	more.tokens_per_microbatch = more.data.tokens_per_step = (ROWS + 3) * CONTEXT;
	d = gradient_distance(t, &one, &more, &x, &y);
	TT_CHECK_MSG(t, d < 2e-6 && close_to(x, y, 1e-6), "rows without labels: %g, losses %.9g and %.9g", d, x, y);
	tt_trainer *tr = NULL;
	double sum = 0, worst = 0;
	tt_step_report r[2];
	for (int mb = ROWS; mb > 0; mb -= 3) { /* the worst row, from one microbatch and from many */
		p = one;
		p.tokens_per_microbatch = mb * CONTEXT;
		if (!TT_CHECK_OK(t, tt_trainer_create(&p, &tr)))
			return;
		TT_CHECK_OK(t, tt_trainer_step(tr, &r[mb == ROWS]));
		tt_trainer_destroy(tr);
	}
	TT_CHECK_MSG(t, r[0].loss_max == r[1].loss_max && r[0].loss_max > r[0].loss, "worst rows %.9g and %.9g, loss %.9g", r[0].loss_max, r[1].loss_max,
		r[0].loss);
	if (!TT_CHECK_OK(t, tt_trainer_create(&one, &tr)))
		return;
	tt_step *s = tt_step_new(t->arena, ROWS, CONTEXT);
	tt_batch *b = tt_batch_new(t->arena, ROWS * CONTEXT);
	TT_CHECK_OK(t, tt_data_step(tt_trainer_data(tr), 0, s));
	tt_batch_fill(s, 0, ROWS, b);
	TT_CHECK_OK(t, tt_trainer_forward(tr, b, &sum));
	for (int row = 0; row < ROWS; row++) {
		double part = 0;
		tt_batch_fill(s, row, row + 1, b);
		TT_CHECK_OK(t, tt_trainer_forward(tr, b, &part));
		worst = fmax(worst, part / (double)b->nvalid);
	}
	TT_CHECK_MSG(t, close_to(r[0].loss_max, worst, 1e-6), "worst row %.9g, evaluated %.9g", r[0].loss_max, worst);
	TT_CHECK_MSG(t, close_to(sum / (double)s->nvalid, x, 1e-6) && s->nvalid < s->T, "evaluated %.9g, trained %.9g", sum / (double)s->nvalid, x);
	tt_trainer_destroy(tr);
}

/* ---- steps that teach nothing -------------------------------------------------------------------------------------------------------------- */

/* States of both that a step changes: parameters and moments. */
static bool same_weights(tt_test *t, const tiny_end *a, const tiny_end *b)
{
	int compared = 0;
	for (int64_t i = 0; i < a->n; i++)
		if (strncmp(a->state[i].name, "grad", 4) && strncmp(a->state[i].name, "loss", 4) && strcmp(a->state[i].name, "clip_coef")) {
			compared++;
			if (a->state[i].hash != b->state[i].hash)
				return false;
		}
	return TT_CHECK(t, compared > 20);
}

static void case_no_valid_token(tt_test *t)
{
	for (int numerics = TT_FAST; numerics <= TT_EXACT; numerics++) {
		tt_run_options o = tiny_standard(t, 3 * ROWS);
		o.exec.numerics = (tt_numerics)numerics;
		int32_t *labels = TT_NEWN(t->arena, int32_t, 3 * ROWS * CONTEXT);
		memcpy(labels, o.data.rows.labels, sizeof *labels * 3 * ROWS * CONTEXT);
		for (int i = ROWS * CONTEXT; i < 2 * ROWS * CONTEXT; i++)
			labels[i] = TT_IGNORE;
		o.data.rows.labels = labels;
		tt_trainer *tr = NULL;
		if (!TT_CHECK_OK(t, tt_trainer_create(&o, &tr)))
			return;
		heard l = { 0 };
		tt_log_set_sink(log_line, &l);
		tt_step_report r[3];
		tiny_end e[4];
		tiny_states(t, tt_trainer_exec(tr), &e[0]);
		for (int i = 0; i < 3; i++) {
			TT_CHECK_OK(t, tt_trainer_step(tr, &r[i]));
			tiny_states(t, tt_trainer_exec(tr), &e[i + 1]);
		}
		tt_log_set_sink(NULL, NULL);
		TT_CHECK(t, !r[0].skipped && r[1].skipped && !r[2].skipped && r[1].valid == 0 && r[1].step == 2 && r[2].step == 3);
		TT_CHECK(t, !same_weights(t, &e[0], &e[1]) && same_weights(t, &e[1], &e[2]) && !same_weights(t, &e[2], &e[3]));
		TT_CHECK_INT(t, l.n, 1);
		TT_CHECK_STR(t, l.last, "step 2 has no valid token: nothing is learnt from it");
		tt_trainer_destroy(tr);
	}
}

/* From the first step on: after some steps the run ends, since it would learn nothing for ever. One valid token, and it goes on. */
static void case_never_valid(tt_test *t)
{
	enum { PATIENCE = 8 };
	for (int with = 0; with < 2; with++) {
		tt_run_options o = tiny_standard(t, ROWS);
		int64_t n = ROWS * CONTEXT * (PATIENCE + 2);
		int32_t *labels = TT_NEWN(t->arena, int32_t, n), *ids = TT_NEWN(t->arena, int32_t, n);
		for (int64_t i = 0; i < n; i++)
			labels[i] = TT_IGNORE;
		if (with)
			labels[(PATIENCE - 1) * ROWS * CONTEXT + 3] = 1;
		o.data.rows = (tt_rows){ .ids = ids, .labels = labels, .nrows = ROWS * (PATIENCE + 2) };
		o.data.tokens_per_step = ROWS * CONTEXT;
		tt_trainer *tr = NULL;
		if (!TT_CHECK_OK(t, tt_trainer_create(&o, &tr)))
			return;
		heard l = { 0 };
		tt_step_report r;
		tt_log_set_sink(log_line, &l);
		for (int i = 0; i < PATIENCE - 1; i++)
			TT_CHECK(t, tt_trainer_step(tr, &r) == TT_OK && r.skipped && r.valid == 0);
		if (with)
			for (int i = 0; i < 2 * PATIENCE; i++)
				TT_CHECK_OK(t, tt_trainer_step(tr, &r));
		else
			TT_CHECK_FAILS(t, tt_trainer_step(tr, &r), TT_ERR_USAGE, "none of the first 8 steps, 1 to 8, has a valid token");
		tt_log_set_sink(NULL, NULL);
		tt_trainer_destroy(tr);
	}
}

/* INIT leaves fresh pages alone where it would write zeros, and only there: what anybody has written before is cleared. */
static void case_init_clears(tt_test *t)
{
	for (int written = 0; written < 3; written++) { /* by nobody, before the first INIT, after it */
		tt_run_options o = tiny_standard(t, ROWS);
		tt_trainer *tr = NULL;
		if (!TT_CHECK_OK(t, tt_trainer_plan(&o, &tr)))
			return;
		tt_exec *e = tt_trainer_exec(tr);
		tt_cell cell = { .first = true };
		int64_t n, zeroed = 0, filled = 0;
		TT_CHECK_OK(t, tt_exec_reserve(e));
		const tt_slot *states = tt_exec_states(e, &n);
		if (written == 2)
			TT_CHECK_OK(t, tt_exec_run(e, TT_SEG_INIT, &cell));
		for (int64_t i = 0; i < n && written; i++)
			TT_CHECK_OK(t, tt_tensor_write(e, &states[i], 0, &(double){ 7 }, 1));
		TT_CHECK_OK(t, tt_exec_run(e, TT_SEG_INIT, &cell));
		for (int64_t i = 0; i < n; i++) {
			float f = 7;
			if (states[i].region != TT_REGION_OPTIM && !(states[i].region == TT_REGION_PARAM && states[i].source < 0))
				continue;
			TT_CHECK_OK(t, tt_tensor_read(e, &states[i], 0, &f, 1));
			TT_CHECK_MSG(t, (f == 0) == (states[i].region == TT_REGION_OPTIM), "%s begins with %g", states[i].name, (double)f);
			zeroed += f == 0;
			filled += f != 0;
		}
		TT_CHECK(t, zeroed > 10 && filled > 10);
		tt_trainer_destroy(tr);
	}
}

static void spoil(tt_test *t, tt_trainer *tr, const char *name, float with_what)
{
	TT_CHECK_OK(t, tt_exec_write(tt_trainer_exec(tr), name, 3, &with_what, 1));
}

static void case_nonfinite_stop(tt_test *t)
{
	static const struct { const char *name; float value; } BAD[] = {
		{ "model.layers.1.mlp.down_proj.weight", INFINITY }, { "model.norm.weight", NAN }, { "model.embed_tokens.weight", -INFINITY } };
	for (int i = 0; i < TT_COUNT(BAD); i++)
		for (int numerics = TT_FAST; numerics <= TT_EXACT; numerics++) {
			tt_run_options o = tiny_standard(t, ROWS);
			o.exec.numerics = (tt_numerics)numerics;
			/* Token 0, whose line holds element 3 of the embedding, must be in the step. */
			((int32_t *)o.data.rows.ids)[0] = 0;
			tt_trainer *tr = NULL;
			tt_step_report r = { .step = -1 };
			if (!TT_CHECK_OK(t, tt_trainer_create(&o, &tr)))
				return;
			TT_CHECK_OK(t, tt_trainer_step(tr, &r));
			spoil(t, tr, BAD[i].name, BAD[i].value);
			TT_CHECK_FAILS(t, tt_trainer_step(tr, &r), TT_ERR_NUMERIC, "step 2: ");
			TT_CHECK_MSG(t, strstr(tt_error_text(), BAD[i].name), "%s: %s", BAD[i].name, tt_error_text());
			TT_CHECK_MSG(t, r.step == 1, "a report was written of the step that failed");
			tt_trainer_destroy(tr);
		}
}

static void case_nonfinite_skip(tt_test *t)
{
	for (int numerics = TT_FAST; numerics <= TT_EXACT; numerics++) {
		tt_run_options o = tiny_standard(t, 3 * ROWS);
		o.exec.numerics = (tt_numerics)numerics;
		o.skip_nonfinite = true;
		o.nonfinite_max_skips = 2;
		tt_trainer *tr = NULL;
		if (!TT_CHECK_OK(t, tt_trainer_create(&o, &tr)))
			return;
		tt_exec *e = tt_trainer_exec(tr);
		const char *bad = "model.layers.0.self_attn.q_proj.weight";
		float was;
		heard l = { 0 };
		tt_log_set_sink(log_line, &l);
		tt_step_report r;
		tiny_end before, after;
		TT_CHECK_OK(t, tt_trainer_step(tr, &r));
		TT_CHECK(t, !r.skipped);
		/* Twice two in a row with a good one between: the count is of skips in a row. */
		for (int round = 0; round < 2; round++) {
			TT_CHECK_OK(t, tt_exec_read(e, bad, 3, &was, 1));
			spoil(t, tr, bad, NAN);
			tiny_states(t, e, &before);
			for (int i = 0; i < 2; i++) {
				TT_CHECK_OK(t, tt_trainer_step(tr, &r));
				TT_CHECK(t, r.skipped);
			}
			tiny_states(t, e, &after);
			TT_CHECK(t, same_weights(t, &before, &after));
			TT_CHECK_INT(t, l.n, 2 * round + 2);
			TT_CHECK_MSG(t, strstr(l.last, "skipped") && strstr(l.last, bad), "%s", l.last);
			if (round == 1)
				break;
			TT_CHECK_OK(t, tt_exec_write(e, bad, 3, &was, 1));
			TT_CHECK_OK(t, tt_trainer_step(tr, &r));
			TT_CHECK(t, !r.skipped);
			tiny_states(t, e, &after);
			TT_CHECK(t, !same_weights(t, &before, &after));
		}
		TT_CHECK_FAILS(t, tt_trainer_step(tr, &r), TT_ERR_NUMERIC, "training.nonfinite_max_skips");
		tt_log_set_sink(NULL, NULL);
		tt_trainer_destroy(tr);
	}
}

/* ---- norm and clip -------------------------------------------------------------------------------------------------------------------------- */

static double all_grads(tt_test *t, tt_trainer *tr)
{
	int64_t n, m = 0;
	double sum = 0;
	const tt_slot *s = tt_exec_states(tt_trainer_exec(tr), &n);
	for (int64_t i = 0; i < n; i++) {
		const float *g = strncmp(s[i].name, "grad.", 5) ? NULL : read_f32(t, tt_trainer_exec(tr), s[i].name, &m);
		for (int64_t k = 0; g && k < m; k++)
			sum += (double)g[k] * g[k];
	}
	return sqrt(sum);
}

static void case_clip(tt_test *t)
{
	static const double MAX[] = { 0, 1e-3, 0.5, 100 };
	for (int i = 0; i < TT_COUNT(MAX); i++) {
		tt_run_options o = tiny_standard(t, ROWS);
		o.optim.max_norm = MAX[i];
		tt_trainer *tr = NULL;
		double loss;
		if (!TT_CHECK_OK(t, tt_trainer_create(&o, &tr)))
			return;
		TT_CHECK_OK(t, tt_trainer_gradients(tr, 0, &loss));
		double norm = all_grads(t, tr), coef = scalar(t, tt_trainer_exec(tr), "clip_coef"), said = scalar(t, tt_trainer_exec(tr), "grad_norm");
		double want = MAX[i] > 0 ? fmin(norm, MAX[i]) : norm;
		TT_CHECK_MSG(t, close_to(said, norm, 1e-6), "norm %.9g, recomputed %.9g", said, norm);
		TT_CHECK_MSG(t, close_to(coef * norm, want, 1e-5), "max_norm %g: norm %g * coef %g, want %g", MAX[i], norm, coef, want);
		TT_CHECK(t, norm > 0.5 && norm < 100); /* or neither side of the minimum was tried */
		tt_trainer_destroy(tr);
	}
}

/* Every gradient one: the norm is the root of the number of parameters, so each is counted once. */
static void case_norm_counts(tt_test *t)
{
	for (int tied = 0; tied < 2; tied++)
		for (int numerics = TT_FAST; numerics <= TT_EXACT; numerics++) {
			tt_run_options o = tiny_standard(t, ROWS);
			o.model.tie_word_embeddings = tied;
			o.model.attention_bias = true;
			o.exec.numerics = (tt_numerics)numerics;
			tt_trainer *tr = NULL;
			if (!TT_CHECK_OK(t, tt_trainer_create(&o, &tr)))
				return;
			tt_exec *e = tt_trainer_exec(tr);
			int64_t n, ngrads = 0;
			const tt_slot *s = tt_exec_states(e, &n);
			for (int64_t i = 0; i < n; i++) {
				if (strncmp(s[i].name, "grad.", 5))
					continue;
				ngrads++;
				int64_t *limbs = TT_NEWN(t->arena, int64_t, 3 * s[i].count);
				for (int64_t k = 0; k < s[i].count; k++)
					limbs[k] = (int64_t)1 << 26;
				if (numerics == TT_FAST)
					fill(t, e, s[i].name, 1);
				else
					TT_CHECK_OK(t, tt_tensor_write(e, &s[i], 0, limbs, s[i].count));
			}
			float zero[3 * 2] = { 0 };
			TT_CHECK_OK(t, tt_exec_write(e, "loss_sum", 0, zero, 1));
			TT_CHECK_OK(t, tt_exec_run(e, TT_SEG_REDUCE, &(tt_cell){ .step = 1 }));
			double want = sqrt((double)tt_trainer_params(tr)), got = scalar(t, e, "grad_norm");
			TT_CHECK_MSG(t, close_to(got, want, 1e-7), "%s: %.9g, want %.9g", tied ? "tied" : "untied", got, want);
			TT_CHECK_INT(t, tt_trainer_params(tr), tt_llama_params(&o.model));
			TT_CHECK(t, ngrads > 20);
			tt_trainer_destroy(tr);
		}
}

/* ---- updates ------------------------------------------------------------------------------------------------------------------------------------ */

typedef struct moments { double *p, *m, *v; int64_t n; } moments;

/* Scalar model of one update in double. `scale`, `decay`: as the groups say for this parameter. */
static void model_update(const tt_optim_options *o, moments *x, const float *g, double coef, double lr, int64_t step, double decay)
{
	double c1 = 1 - pow(o->beta1, (double)step), c2 = 1 - pow(o->beta2, (double)step);
	for (int64_t i = 0; i < x->n; i++) {
		double gi = g[i] * coef, *p = &x->p[i], *m = &x->m[i], *v = &x->v[i];
		if (o->sgd) {
			gi += decay * *p;
			*m = step == 1 ? gi : o->momentum * *m + gi;
			*p -= lr * (o->nesterov ? gi + o->momentum * *m : *m);
			continue;
		}
		*p -= lr * decay * *p;
		*m = o->beta1 * *m + (1 - o->beta1) * gi;
		*v = o->beta2 * *v + (1 - o->beta2) * gi * gi;
		*p -= lr * (*m / c1) / (sqrt(*v / c2) + o->eps);
	}
}

typedef struct expect { const char *part; double scale, decay; } expect; /* the first whose part is in the name */

/* Four steps against the scalar model, which counts updates: a skipped step corrects no bias. `want` ends with a NULL part: the rest. */
static void check_updates(tt_test *t, const tt_run_options *o, const expect *want, const char *what)
{
	tt_trainer *tr = NULL;
	if (!TT_CHECK_OK(t, tt_trainer_create(o, &tr)))
		return;
	tt_exec *e = tt_trainer_exec(tr);
	int64_t n;
	const tt_slot *s = tt_exec_states(e, &n);
	moments *x = TT_NEWN(t->arena, moments, n);
	for (int64_t i = 0; i < n; i++) {
		if (!s[i].trainable || s[i].source >= 0)
			continue;
		const float *p = read_f32(t, e, s[i].name, &x[i].n);
		x[i] = (moments){ TT_NEWN(t->arena, double, s[i].count), TT_NEWN(t->arena, double, s[i].count), TT_NEWN(t->arena, double, s[i].count), s[i].count };
		for (int64_t k = 0; p && k < x[i].n; k++)
			x[i].p[k] = p[k];
	}
	for (int64_t step = 1, updates = 1; step <= 4; step++) {
		tt_step_report r;
		if (!TT_CHECK_OK(t, tt_trainer_step(tr, &r)))
			break;
		if (r.skipped)
			continue;
		TT_CHECK_INT(t, tt_trainer_updates(tr), updates);
		double lr = o->optim.lr * factor(o->schedule.warmup, o->schedule.total, o->schedule.decay, o->schedule.type, o->schedule.min_factor, step - 1);
		TT_CHECK_MSG(t, close_to(r.lr, lr, 1e-12), "%s: lr %g, want %g", what, r.lr, lr);
		double coef = scalar(t, e, "clip_coef"), worst = 0;
		const char *where = "";
		for (int64_t i = 0; i < n; i++) {
			if (!x[i].n)
				continue;
			const expect *w = want;
			while (w->part && !strstr(s[i].name, w->part))
				w++;
			double decay = w->decay >= 0 ? w->decay : o->optim.decay_only_matrices && s[i].ndim < 2 ? 0 : o->optim.weight_decay;
			int64_t m;
			const float *g = read_f32(t, e, with(t, "grad.", s[i].name), &m), *p = read_f32(t, e, s[i].name, &m);
			model_update(&o->optim, &x[i], g, coef, lr * w->scale, updates, decay);
			for (int64_t k = 0; k < m; k++) {
				/* Beside fp32 rounding of p: where |g| is of eps' size or m cancels, m/sqrt(v) keeps fewer digits, of a step of lr. */
				double d = fabs(p[k] - x[i].p[k]) / (fabs(x[i].p[k]) + 10 * lr * w->scale + 1e-30);
				if (d > worst) {
					worst = d;
					where = s[i].name;
				}
				x[i].p[k] = p[k]; /* each step is checked alone */
			}
		}
		TT_CHECK_MSG(t, worst < 4e-7, "%s, step %lld: %s is off by %g", what, (long long)step, where, worst);
		updates++;
	}
	tt_trainer_destroy(tr);
}

static void case_updates(tt_test *t)
{
	static const tt_group GROUPS[] = { { "*q_proj.weight|*norm.weight", 0.5, 0.3 }, { "*proj*", 1, -1 }, { "lm_head*", 2, 0 }, { "*q_proj*", 7, 7 } };
	static const expect PLAIN[] = { { NULL, 1, -1 } };
	static const expect GROUPED[] = { { "q_proj.weight", 0.5, 0.3 }, { "norm.weight", 0.5, 0.3 }, { "proj", 1, -1 }, { "lm_head", 2, 0 }, { NULL, 1, -1 } };
	tt_run_options o = tiny_standard(t, 4 * ROWS);
	o.model.attention_bias = true;
	check_updates(t, &o, PLAIN, "AdamW");
	for (int i = ROWS * CONTEXT; i < 2 * ROWS * CONTEXT; i++)
		((int32_t *)o.data.rows.labels)[i] = TT_IGNORE;
	heard l = { 0 };
	tt_log_set_sink(log_line, &l);
	check_updates(t, &o, PLAIN, "AdamW, step 2 has no label");
	o.optim.decay_only_matrices = false;
	check_updates(t, &o, PLAIN, "AdamW, decay on everything");
	/* A pattern that every earlier one has taken from still matches parameters: no error. */
	o.optim.groups = GROUPS;
	o.optim.ngroups = TT_COUNT(GROUPS);
	check_updates(t, &o, GROUPED, "AdamW, groups");
	o.optim.decay_only_matrices = true;
	o.optim.sgd = true;
	o.optim.momentum = 0.9;
	check_updates(t, &o, GROUPED, "SGD, groups");
	o.optim.nesterov = true;
	o.optim.ngroups = 0;
	o.optim.max_norm = 0;
	check_updates(t, &o, PLAIN, "SGD, Nesterov");
	o.optim.momentum = 0;
	o.optim.nesterov = false;
	check_updates(t, &o, PLAIN, "SGD without momentum");
	tt_log_set_sink(NULL, NULL);
	TT_CHECK_INT(t, l.n, 6);
}

/* p 1, g 0.5, lr 0.1, decay 0.1: after step 1 the bias corrections make m/c1 = g, sqrt(v/c2) = |g|, so p = 1 - 0.01 - 0.1 = 0.89, and 0.9
 * without decay. */
static void case_known_numbers(tt_test *t)
{
	tt_run_options o = tiny_standard(t, ROWS);
	o.optim.max_norm = 0;
	tt_trainer *tr = NULL;
	double loss;
	if (!TT_CHECK_OK(t, tt_trainer_create(&o, &tr)))
		return;
	tt_exec *e = tt_trainer_exec(tr);
	TT_CHECK_OK(t, tt_trainer_gradients(tr, 0, &loss));
	int64_t n, m = 0, matrices = 0;
	const tt_slot *s = tt_exec_states(e, &n);
	for (int64_t i = 0; i < n; i++)
		if (s[i].trainable && s[i].source < 0) {
			fill(t, e, s[i].name, 1);
			fill(t, e, with(t, "grad.", s[i].name), 0.5f);
		}
	float hyper[4] = { 0.1f, 1 - 0.9f, 1 - 0.95f, 0 };
	TT_CHECK_OK(t, tt_exec_write(e, "hyper", 0, hyper, 4));
	TT_CHECK_OK(t, tt_exec_run(e, TT_SEG_REDUCE, &(tt_cell){ .step = 1 }));
	TT_CHECK_OK(t, tt_exec_run(e, TT_SEG_OPT, &(tt_cell){ .step = 1 }));
	for (int64_t i = 0; i < n; i++) {
		if (!s[i].trainable || s[i].source >= 0)
			continue;
		const float *p = read_f32(t, e, s[i].name, &m), *m1 = read_f32(t, e, with(t, "optim.exp_avg.", s[i].name), &m),
			    *m2 = read_f32(t, e, with(t, "optim.exp_avg_sq.", s[i].name), &m);
		double want = s[i].ndim >= 2 ? 0.89 : 0.9;
		matrices += s[i].ndim >= 2;
		for (int64_t k = 0; k < m; k++)
			if (!TT_CHECK_MSG(t, close_to(p[k], want, 3e-7) && close_to(m1[k], 0.05, 3e-7) && close_to(m2[k], 0.0125, 3e-7),
				    "%s[%lld]: p %.9g, want %.9g; m %.9g, v %.9g", s[i].name, (long long)k, p[k], want, m1[k], m2[k]))
				break;
	}
	TT_CHECK(t, matrices > 10);
	tt_trainer_destroy(tr);
}

static void case_groups(tt_test *t)
{
	tt_run_options o = tiny_standard(t, ROWS);
	tt_group frozen[] = { { "model.layers.0.*", 0, -1 } }, none[] = { { "*norm*", 1, 0 }, { "*.qproj.*", 1, 0 } };
	o.optim.groups = frozen;
	o.optim.ngroups = 1;
	tt_trainer *tr = NULL;
	tt_step_report r;
	if (!TT_CHECK_OK(t, tt_trainer_create(&o, &tr)))
		return;
	tiny_end a, b;
	tiny_states(t, tt_trainer_exec(tr), &a);
	TT_CHECK_OK(t, tt_trainer_step(tr, &r));
	tiny_states(t, tt_trainer_exec(tr), &b);
	int moved = 0, held = 0;
	for (int64_t i = 0; i < a.n; i++) {
		const char *name = a.state[i].name;
		if (strncmp(name, "model.", 6) && strncmp(name, "lm_head", 7))
			continue;
		bool freeze = strstr(name, "layers.0.") != NULL, same = a.state[i].hash == b.state[i].hash;
		TT_CHECK_MSG(t, freeze == same, "%s %s", name, same ? "has not moved" : "has moved");
		*(freeze ? &held : &moved) += 1;
	}
	TT_CHECK(t, moved > 8 && held == 9);
	tt_trainer_destroy(tr);
	o.optim.groups = none;
	o.optim.ngroups = 2;
	TT_CHECK_FAILS(t, tt_trainer_create(&o, &tr), TT_ERR_USAGE,
		"optimizer.param_groups[1]: pattern \"*.qproj.*\" matches no parameter (titan train --dump=graph lists their names)");
}

/* ---- validation ----------------------------------------------------------------------------------------------------------------------------------- */

static bool validated(tt_test *t, const tt_run_options *o, int64_t rows, double *sum, int64_t *valid)
{
	tt_trainer *tr = NULL;
	bool ok = TT_CHECK_OK(t, tt_trainer_create(o, &tr)) && TT_CHECK_OK(t, tt_trainer_validate(tr, rows, sum, valid));
	tt_trainer_destroy(tr);
	return ok;
}

/* Training and validation share weights, whatever format each would ask for alone: many lines want them plain, few packed. */
static void case_formats(tt_test *t)
{
	static const struct { int64_t train, eval; } ROWS_OF[] = { { 32, 2 }, { 2, 32 }, { 32, 32 } };
	for (int i = 0; i < TT_COUNT(ROWS_OF); i++) {
		tt_run_options o = tiny_on_text(t, 40, 40);
		o.data.tokens_per_step = 32 * CONTEXT;
		o.tokens_per_microbatch = ROWS_OF[i].train * CONTEXT;
		o.eval_tokens = ROWS_OF[i].eval * CONTEXT;
		double want[2] = { 0 }, norm[2] = { 0 };
		for (int fast = 0; fast < 2; fast++) {
			tt_trainer *tr = NULL;
			tt_step_report r;
			int64_t n;
			o.exec.isa = tiny_isa(t);
			o.exec.kernels_ref = !fast;
			if (!TT_CHECK_OK(t, tt_trainer_create(&o, &tr)))
				return;
			int64_t nstates, packed = 0;
			const tt_slot *s = tt_exec_states(tt_trainer_exec(tr), &nstates);
			for (int64_t k = 0; k < nstates; k++)
				packed += s[k].format != TT_PLAIN;
			/* The loss's chunks are short in any case: the head's two. Two layers of 7 weights, each twice. */
			if (fast && o.exec.isa >= TT_ISA_AVX2) {
				TT_CHECK_INT(t, packed, ROWS_OF[i].train == 32 ? 2 : 2 + 28);
				tt_buf b = { 0 };
				tt_exec_print_program(tt_trainer_exec(tr), TT_SEG_EVAL, &b);
				TT_CHECK(t, (strstr(b.s, "linear [xsmm-") || strstr(b.s, "linear [chain-")) && !strstr(b.s, "linear [avx"));
				tt_buf_fini(&b);
			}
			TT_CHECK_OK(t, tt_trainer_step(tr, &r));
			TT_CHECK_OK(t, tt_trainer_validate(tr, 0, &want[fast], &n));
			norm[fast] = r.grad_norm;
			tt_trainer_destroy(tr);
		}
		TT_CHECK_MSG(t, want[0] == want[1] && norm[0] == norm[1], "cells of %lld and %lld rows: %.17g, %.17g", (long long)ROWS_OF[i].train,
			(long long)ROWS_OF[i].eval, want[0], want[1]);
	}
}

static void case_validation(tt_test *t)
{
	for (int numerics = TT_FAST; numerics <= TT_EXACT; numerics++) {
		tt_run_options o = tiny_on_text(t, 40, 11); /* an uneven last row, and more rows than any cell */
		o.exec.numerics = (tt_numerics)numerics;
		double want, got;
		int64_t valid, n;
		if (!validated(t, &o, 0, &want, &valid))
			return;
		TT_CHECK(t, valid > 500 && want / (double)valid > 5);
		static const struct { int64_t eval, mb; int chunks; } CELLS[] = { { 1, 5, 2 }, { 2, 5, 2 }, { 7, 5, 1 }, { 100, 1, 5 }, { 3, 2, 8 }, { 0, 3, 3 } };
		for (int i = 0; i < TT_COUNT(CELLS); i++) {
			tt_run_options p = o;
			p.eval_tokens = CELLS[i].eval * CONTEXT;
			p.tokens_per_microbatch = CELLS[i].mb * CONTEXT;
			p.loss_chunks = CELLS[i].chunks;
			if (!validated(t, &p, 0, &got, &n))
				return;
			TT_CHECK_INT(t, n, valid);
			TT_CHECK_MSG(t, numerics == TT_EXACT ? got == want : close_to(got, want, 1e-6), "%s, cells of %lld rows: %.17g, want %.17g",
				numerics ? "exact" : "fast", (long long)CELLS[i].eval, got, want);
		}
		/* A part of it: fewer tokens, and another sum. */
		if (validated(t, &o, 3, &got, &n))
			TT_CHECK(t, n > 0 && n <= 3 * CONTEXT && got < want);
		tiny_end alone, checked;
		if (!tiny_run(t, &o, 4, &alone))
			return;
		tt_trainer *tr = NULL;
		tt_step_report r;
		checked = (tiny_end){ .steps = 4 };
		if (!TT_CHECK_OK(t, tt_trainer_create(&o, &tr)))
			return;
		double before = 0;
		for (int i = 0; i < 4; i++) {
			TT_CHECK_OK(t, tt_trainer_validate(tr, i, &got, &n));
			TT_CHECK_OK(t, tt_trainer_step(tr, &r));
			checked.loss[i] = r.loss;
			checked.norm[i] = r.grad_norm;
			if (i == 0)
				before = got;
		}
		TT_CHECK_OK(t, tt_trainer_validate(tr, 0, &got, &n));
		TT_CHECK(t, got < before); /* it sees the weights of now */
		if (tiny_states(t, tt_trainer_exec(tr), &checked))
			tiny_same(t, &alone, &checked, "a run with validations");
		tt_trainer_destroy(tr);
	}
}

/* ---- memory ------------------------------------------------------------------------------------------------------------------------------------------ */

static void case_no_malloc(tt_test *t)
{
	if (!tt_malloc_count_available())
		TT_SKIP(t, "the sanitizers bring their own malloc");
	for (int k = 0; k < 4; k++) {
		tt_run_options o = k & 1 ? tiny_on_text(t, 40, 11) : tiny_standard(t, 3 * ROWS);
		o.tokens_per_microbatch = 2 * CONTEXT;
		o.exec.isa = tiny_isa(t);
		o.exec.kernels_ref = false;
		o.exec.threads = 2;
		o.compute = k & 2 ? TT_BF16 : TT_F32;
		tt_trainer *tr = NULL;
		tt_step_report r;
		double sum;
		int64_t n;
		if (!TT_CHECK_OK(t, tt_trainer_create(&o, &tr)))
			return;
		TT_CHECK_OK(t, tt_trainer_step(tr, &r));
		tt_malloc_count_begin();
		tt_status s = TT_OK;
		for (int i = 0; i < 4 && s == TT_OK; i++)
			s = tt_trainer_step(tr, &r);
		if (s == TT_OK)
			s = tt_trainer_validate(tr, 0, &sum, &n);
		int64_t calls = tt_malloc_count_end();
		TT_CHECK_OK(t, s);
		TT_CHECK_MSG(t, calls == 0, "%s, %s: %lld allocations in four steps and a validation", o.data.source, tt_dtype_name(o.compute), (long long)calls);
		tt_trainer_destroy(tr);
	}
	tt_malloc_count_begin();
	tt_arena_destroy(tt_arena_create("one"));
	TT_CHECK(t, tt_malloc_count_end() > 0);
}

/* Rows of sequences of one token, so that a cell has as many sequences as are planned for. */
static void case_memory(tt_test *t)
{
	for (int k = 0; k < 8; k++) {
		tt_run_options o = tiny_standard(t, ROWS);
		int32_t *lengths = TT_NEWN(t->arena, int32_t, ROWS * CONTEXT);
		for (int i = 0; i < ROWS * CONTEXT; i++)
			lengths[i] = 1;
		o.data.rows.lengths = lengths;
		o.data.rows.max_sequences = CONTEXT;
		o.compute = k & 1 ? TT_BF16 : TT_F32;
		o.exec.numerics = k & 2 ? TT_EXACT : TT_FAST;
		o.exec.isa = tiny_isa(t);
		o.exec.kernels_ref = k & 4;
		o.exec.threads = k & 4 ? 1 : 2;
		o.eval_tokens = (k & 4 ? 2 : 7) * CONTEXT;
		o.output_logits = k & 1;
		tt_trainer *tr = NULL;
		tt_step_report r;
		double sum;
		if (!TT_CHECK_OK(t, tt_trainer_create(&o, &tr)))
			return;
		TT_CHECK_OK(t, tt_trainer_step(tr, &r));
		tt_exec *e = tt_trainer_exec(tr);
		if (k == 0) /* it can fail: not everything has run */
			TT_CHECK(t, tt_exec_used(e, TT_REGION_IO) < tt_exec_planned(e, TT_REGION_IO));
		tt_step *s = tt_step_new(t->arena, 7, CONTEXT);
		tt_batch *b = tt_batch_new(t->arena, 7 * CONTEXT);
		for (s->T = 0; s->T < o.eval_tokens; s->T++)
			s->seq_table[s->T + 1] = (int32_t)s->T + 1;
		for (int64_t i = 0; i < s->T; i++) {
			b->seq_ids[i] = b->lines[i] = (int32_t)i;
			b->seq_table[i + 1] = (int32_t)i + 1;
		}
		b->ids = b->labels = b->positions = s->ids;
		b->T = b->nsequences = s->T;
		TT_CHECK_OK(t, tt_trainer_forward(tr, b, &sum));
		for (int region = 0; region < TT_EXEC_NREGIONS; region++)
			TT_CHECK_MSG(t, tt_exec_used(e, region) == tt_exec_planned(e, region), "options %d, %s: %lld of %lld planned bytes are used", k,
				tt_exec_region_name(region), (long long)tt_exec_used(e, region), (long long)tt_exec_planned(e, region));
		tt_trainer_destroy(tr);
	}
}

/* Memory that is reachable only while kernels run, NaN in all that is not yet written, nothing shared: the same bits. */
static void case_guards(tt_test *t)
{
	for (int numerics = TT_FAST; numerics <= TT_EXACT; numerics++)
		for (int compute = TT_F32; compute <= TT_BF16; compute++) {
			tt_run_options o = tiny_standard(t, 3 * ROWS), p;
			o.compute = (tt_dtype)compute;
			o.exec.numerics = (tt_numerics)numerics;
			o.exec.isa = tiny_isa(t);
			o.exec.kernels_ref = false;
			o.tokens_per_microbatch = 2 * CONTEXT;
			o.output_logits = true;
			tiny_end want, got;
			if (!tiny_run(t, &o, 3, &want))
				return;
			p = o;
			p.exec.protect = true;
			if (tiny_run(t, &p, 3, &got))
				tiny_same(t, &want, &got, "protect");
			p.exec.fill_nan = true;
			if (tiny_run(t, &p, 3, &got))
				tiny_same(t, &want, &got, "protect, fill_nan");
			p.exec.no_alias = true;
			if (tiny_run(t, &p, 3, &got))
				tiny_same(t, &want, &got, "protect, fill_nan, no_alias");
		}
}

const tt_case tt_suite_train[] = {
	{ "schedule", case_schedule, TT_TIER_QUICK },
	{ "loss_falls", case_loss_falls, TT_TIER_QUICK },
	{ "accumulation", case_accumulation, TT_TIER_QUICK },
	{ "no_valid_token", case_no_valid_token, TT_TIER_QUICK },
	{ "init_clears", case_init_clears, TT_TIER_QUICK },
	{ "never_valid", case_never_valid, TT_TIER_QUICK },
	{ "nonfinite_stop", case_nonfinite_stop, TT_TIER_QUICK },
	{ "nonfinite_skip", case_nonfinite_skip, TT_TIER_QUICK },
	{ "clip", case_clip, TT_TIER_QUICK },
	{ "norm_counts", case_norm_counts, TT_TIER_QUICK },
	{ "updates", case_updates, TT_TIER_QUICK },
	{ "known_numbers", case_known_numbers, TT_TIER_QUICK },
	{ "groups", case_groups, TT_TIER_QUICK },
	{ "validation", case_validation, TT_TIER_QUICK },
	{ "formats", case_formats, TT_TIER_QUICK },
	{ "no_malloc", case_no_malloc, TT_TIER_QUICK },
	{ "memory", case_memory, TT_TIER_QUICK },
	{ "guards", case_guards, TT_TIER_QUICK },
	{ 0 },
};
