/* api.c: the public C API (include/titan.h) on a run. Checks what a caller can get wrong, then calls tt_run_*. */
#define _GNU_SOURCE
#include <fenv.h>
#include <limits.h>
#include <locale.h>
#include <stdlib.h>
#include <titan.h>

#include "base/version.h"
#include "config/config.h"
#include "train/train.h"

_Static_assert(sizeof(TITAN_VERSION) == sizeof(TT_VERSION), "titan.h and version.h say the same version (a test compares the texts)");
/* One list of codes, two names. TT_ERR_STOP reaches a caller only where the text ends: nothing sets tt_run_io.stop here. */
_Static_assert((int)TITAN_OK == TT_OK && (int)TITAN_ERR_USAGE == TT_ERR_USAGE && (int)TITAN_ERR_IO == TT_ERR_IO && (int)TITAN_ERR_FORMAT == TT_ERR_FORMAT &&
		       (int)TITAN_ERR_TYPE == TT_ERR_TYPE && (int)TITAN_ERR_MEMORY == TT_ERR_MEMORY && (int)TITAN_ERR_NUMERIC == TT_ERR_NUMERIC &&
		       (int)TITAN_ERR_COMM == TT_ERR_COMM && (int)TITAN_END == TT_ERR_STOP, "statuses");
_Static_assert((int)TITAN_LOG_DEBUG == TT_LOG_DEBUG && (int)TITAN_LOG_INFO == TT_LOG_INFO && (int)TITAN_LOG_WARN == TT_LOG_WARN &&
		       (int)TITAN_LOG_ERROR == TT_LOG_ERROR, "log levels");
/* Sizes of the structs of version 0.1: the least a caller may have. Members are appended, so they never change. */
enum { STEP_INFO_0_1 = offsetof(titan_step_info, reserved) + sizeof(int32_t) };

struct titan_session {
	tt_arena *arena;
	tt_config *cfg;
	tt_run *run;
	tt_step *row;            /* titan_score's one row: arrays [context_length] */
	tt_batch *batch;         /* of that row */
	int64_t vocab, params;
	_Atomic int64_t steps_done;
	atomic_flag busy;
};

const char *titan_status_name(titan_status s)
{
	return s == TITAN_END ? "end" : tt_status_name((tt_status)s);
}

const char *titan_error(void) { return tt_error_text(); }
const char *titan_version(void) { return TT_VERSION; }

/* ---- the caller's thread ------------------------------------------------------------------------------------------------------- */

/* What a call needs of its thread: rounding to nearest and subnormals kept, or bits would depend on the caller (a program linked with
 * -ffast-math flushes subnormals); numbers with a point, not the comma of a locale. Threads made inside inherit the first. */
typedef struct thread_state { fenv_t fenv; locale_t locale, c; } thread_state;

static void thread_enter(thread_state *t)
{
	fegetenv(&t->fenv);
	fesetenv(FE_DFL_ENV);
	t->c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	t->locale = t->c ? uselocale(t->c) : (locale_t)0;
}

static void thread_leave(thread_state *t)
{
	if (t->c) {
		uselocale(t->locale);
		freelocale(t->c);
	}
	fesetenv(&t->fenv);
}

static tt_status enter(titan_session *s, const char *what, thread_state *t)
{
	if (!s)
		TT_FAIL(TT_ERR_USAGE, "%s: the session is NULL", what);
	if (atomic_flag_test_and_set(&s->busy))
		TT_FAIL(TT_ERR_USAGE, "%s: another call runs on this session (one at a time; a log sink may not call it)", what);
	thread_enter(t);
	return TT_OK;
}

static titan_status leave(titan_session *s, thread_state *t, tt_status st)
{
	thread_leave(t);
	atomic_flag_clear(&s->busy);
	return (titan_status)st;
}

/* ---- log ------------------------------------------------------------------------------------------------------------------------- */

static tt_status log_to(titan_log_fn *fn, void *ctx, titan_log_level least)
{
	if ((int)least < TITAN_LOG_DEBUG || (int)least > TITAN_LOG_ERROR)
		TT_FAIL(TT_ERR_USAGE, "titan_log_to: %d is no log level (%d to %d)", (int)least, TITAN_LOG_DEBUG, TITAN_LOG_ERROR);
	tt_log_set_level((tt_log_level)least);
	/* The two enums have the same values and size (asserted above), so the call is the same. */
	tt_log_set_sink((void (*)(void *, tt_log_level, const char *))(void (*)(void))fn, ctx);
	return TT_OK;
}

titan_status titan_log_to(titan_log_fn *fn, void *ctx, titan_log_level least) { return (titan_status)log_to(fn, ctx, least); }

/* ---- open and close -------------------------------------------------------------------------------------------------------------- */

static tt_status open_session(titan_session *s, const char *config_path, int nflags, const char *const *flags)
{
	double t0 = tt_now();
	TT_TRY(tt_config_load(s->arena, config_path, nflags, flags, &s->cfg));
	tt_config_log_warnings(s->cfg);
	tt_run_io io = { .parse_seconds = tt_now() - t0 };
	tt_run_options o;
	TT_TRY(tt_run_options_from_config(s->arena, s->cfg, &o));
	s->vocab = o.model.vocab_size;
	TT_TRY(tt_run_open(s->cfg, &io, &s->run));
	s->params = tt_trainer_params(tt_run_trainer(s->run));
	atomic_store(&s->steps_done, tt_trainer_steps(tt_run_trainer(s->run)));
	s->row = tt_step_new(s->arena, 1, s->cfg->training.context_length);
	s->batch = tt_batch_new(s->arena, s->cfg->training.context_length);
	return TT_OK;
}

static void free_session(titan_session *s)
{
	tt_run_close(s->run);
	tt_arena_destroy(s->arena);
	free(s);
}

static tt_status check_open(int nflags, const char *const *flags, titan_session *const *out)
{
	if (!out)
		TT_FAIL(TT_ERR_USAGE, "titan_session_open: out is NULL");
	if (nflags < 0 || (nflags && !flags))
		TT_FAIL(TT_ERR_USAGE, "titan_session_open: %d flags%s", nflags, nflags < 0 ? "" : ", and flags is NULL");
	for (int i = 0; i < nflags; i++)
		if (!flags[i])
			TT_FAIL(TT_ERR_USAGE, "titan_session_open: flags[%d] is NULL", i);
	return TT_OK;
}

titan_status titan_session_open(const char *config_path, int nflags, const char *const *flags, titan_session **out)
{
	tt_status st = check_open(nflags, flags, out);
	if (st != TT_OK)
		return (titan_status)st;
	titan_session *s = calloc(1, sizeof *s);
	if (!s)
		return (titan_status)tt_error_set(TT_ERR_MEMORY, __FILE__, __LINE__, "titan_session_open: out of memory");
	atomic_flag_clear(&s->busy);
	s->arena = tt_arena_create("session");
	thread_state t;
	thread_enter(&t);
	st = open_session(s, config_path, nflags, flags);
	if (st != TT_OK)
		free_session(s);
	thread_leave(&t);
	if (st == TT_OK)
		*out = s;
	return (titan_status)st;
}

titan_status titan_session_close(titan_session *s)
{
	if (!s)
		return TITAN_OK;
	thread_state t;
	tt_status st = enter(s, "titan_session_close", &t);
	if (st != TT_OK)
		return (titan_status)st;
	free_session(s);
	thread_leave(&t);
	return TITAN_OK;
}

/* ---- steps ----------------------------------------------------------------------------------------------------------------------- */

static tt_status step(titan_session *s, titan_step_info *info)
{
	if (info && info->struct_size < STEP_INFO_0_1)
		TT_FAIL(TT_ERR_USAGE, "titan_step: info->struct_size is %zu, the struct has %d bytes (set it to sizeof *info)", info->struct_size, STEP_INFO_0_1);
	int64_t done = tt_trainer_steps(tt_run_trainer(s->run));
	if (done >= s->cfg->training.steps)
		TT_FAIL(TT_ERR_STOP, "all %lld steps are done (training.steps)", (long long)done);
	tt_step_report r;
	tt_status st = tt_run_step(s->run, &r);
	/* A step may be done although what was due after it (a save, a validation) failed. */
	atomic_store(&s->steps_done, tt_trainer_steps(tt_run_trainer(s->run)));
	TT_TRY(st);
	titan_step_info own = {
		.step = r.step, .loss = r.loss, .loss_max = r.loss_max, .grad_norm = r.grad_norm, .learning_rate = r.lr, .tokens = r.tokens,
		.valid_tokens = r.valid, .seconds = r.seconds, .data_seconds = r.data_seconds, .forward_seconds = r.forward_seconds,
		.backward_seconds = r.backward_seconds, .optimizer_seconds = r.optim_seconds, .skipped = r.skipped,
	};
	if (info) {
		own.struct_size = info->struct_size;
		memcpy(info, &own, TT_MIN(own.struct_size, sizeof own));
	}
	return TT_OK;
}

titan_status titan_step(titan_session *s, titan_step_info *info)
{
	thread_state t;
	tt_status st = enter(s, "titan_step", &t);
	return st == TT_OK ? leave(s, &t, step(s, info)) : (titan_status)st;
}

static tt_status evaluate(titan_session *s, double *loss, int64_t *tokens)
{
	double l;
	int64_t n;
	if (!tt_data_valid_rows(tt_trainer_data(tt_run_trainer(s->run))))
		TT_FAIL(TT_ERR_USAGE, "titan_evaluate: nothing is held out (validation.paths or validation.fraction)");
	TT_TRY(tt_run_validate(s->run, false, &l, &n));
	if (loss)
		*loss = l;
	if (tokens)
		*tokens = n;
	return TT_OK;
}

titan_status titan_evaluate(titan_session *s, double *loss, int64_t *tokens)
{
	thread_state t;
	tt_status st = enter(s, "titan_evaluate", &t);
	return st == TT_OK ? leave(s, &t, evaluate(s, loss, tokens)) : (titan_status)st;
}

static tt_status score(titan_session *s, int64_t n, const int32_t *ids, double *logprob)
{
	int64_t most = s->cfg->training.context_length + 1;
	if (!ids || !logprob)
		TT_FAIL(TT_ERR_USAGE, "titan_score: %s is NULL", ids ? "logprob" : "ids");
	if (n < 2 || n > most)
		TT_FAIL(TT_ERR_USAGE, "titan_score: %lld ids, from 2 to %lld can be scored (training.context_length + 1)", (long long)n, (long long)most);
	for (int64_t i = 0; i < n; i++)
		if (ids[i] < 0 || ids[i] >= s->vocab)
			TT_FAIL(TT_ERR_USAGE, "titan_score: ids[%lld] is %d, the vocabulary has %lld", (long long)i, ids[i], (long long)s->vocab);
	tt_step *r = s->row;
	int64_t T = n - 1; /* the last id is only predicted */
	r->nrows = r->nsequences = 1;
	r->T = r->nvalid = T;
	for (int64_t i = 0; i < T; i++) {
		r->ids[i] = ids[i];
		r->labels[i] = ids[i + 1];
		r->positions[i] = (int32_t)i;
		r->seq_ids[i] = 0;
	}
	r->seq_table[0] = 0;
	r->seq_table[1] = (int32_t)T;
	r->row_tokens[0] = r->row_seqs[0] = 0;
	r->row_tokens[1] = T;
	r->row_seqs[1] = 1;
	r->row_valid[0] = T;
	tt_batch_fill(r, 0, 1, s->batch);
	double loss_sum;
	TT_TRY(tt_trainer_forward(tt_run_trainer(s->run), s->batch, &loss_sum));
	*logprob = -loss_sum;
	return TT_OK;
}

titan_status titan_score(titan_session *s, int64_t n, const int32_t *ids, double *logprob)
{
	thread_state t;
	tt_status st = enter(s, "titan_score", &t);
	return st == TT_OK ? leave(s, &t, score(s, n, ids, logprob)) : (titan_status)st;
}

titan_status titan_save(titan_session *s)
{
	thread_state t;
	tt_status st = enter(s, "titan_save", &t);
	return st == TT_OK ? leave(s, &t, tt_run_save(s->run)) : (titan_status)st;
}

/* The config's steps and the count of parameters never change after open, and steps_done is atomic: no lock is needed. */
int64_t titan_steps_done(const titan_session *s) { return s ? atomic_load(&s->steps_done) : -1; }
int64_t titan_steps_total(const titan_session *s) { return s ? s->cfg->training.steps : -1; }
int64_t titan_params(const titan_session *s) { return s ? s->params : -1; }
