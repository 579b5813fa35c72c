/* checkpoint.c: the checkpoints of a run: when one is due, how one is begun and ended, and what a failed one means. */
#include <sys/stat.h>

#include "train/internal.h"

/* ---- start ---------------------------------------------------------------------------------------------------------------------------- */

static bool before_update(void *ctx)
{
	tt_ckpt_before_update(ctx);
	return tt_ckpt_saving(ctx);
}

/* Of every rank that takes part. */
static tt_status writer_options(tt_arena *a, const tt_config *cfg, tt_saved *s, tt_comm *c, const tt_llama_config *model, tt_ckpt_options *out)
{
	TT_TRY(tt_saved_share(s, c));
	*out = (tt_ckpt_options){
		.folder = tt_arena_printf(a, "%s/%s", cfg->job.dump_folder, cfg->checkpoint.folder), .keep_latest_k = cfg->checkpoint.keep_latest_k,
		.async = cfg->checkpoint.async_mode != TT_CFG_ASYNC_DISABLED, .staging = cfg->checkpoint.staging_mib * TT_MIB, .model = model,
		.tensors = s->tensors, .ntensors = s->n, .read = tt_saved_read, .ctx = s, .ranks = s->ranks.comm ? &s->ranks : NULL,
	};
	return TT_OK;
}

/* Rank 0 judges how it ended; here only the end of the world counts. */
static tt_status follow_save(void *ctx, int64_t step, int64_t kind, int64_t dtype)
{
	bool done;
	tt_ckpt_result r;
	tt_status s = tt_ckpt_wait(ctx, &done, &r); /* the one before: rank 0 has waited for it, too */
	if (s != TT_ERR_COMM)
		s = step < 0 ? tt_ckpt_try(ctx, (tt_ckpt_kind)kind, (tt_st_dtype)dtype, 0)
			     : tt_ckpt_save_begin(ctx, &(tt_ckpt_state){ .step = step }, (tt_ckpt_kind)kind, (tt_st_dtype)dtype);
	return s == TT_ERR_COMM ? s : TT_OK;
}

tt_status tt_follow_checkpoints(tt_arena *a, const tt_config *cfg, const tt_run_options *o, tt_trainer *t, tt_ckpt_writer **out)
{
	tt_comm *c = o->mesh.comm;
	*out = NULL;
	if (!cfg->checkpoint.enable || cfg->checkpoint.load_only || tt_comm_sees_memory(c) || tt_comm_size(c) == 1)
		return TT_OK;
	tt_saved *s;
	tt_ckpt_options w;
	TT_TRY(tt_saved_new(a, t, &s));
	TT_TRY(writer_options(a, cfg, s, c, &o->model, &w));
	TT_TRY(tt_ckpt_writer_create(&w, out));
	tt_trainer_set_before_update(t, before_update, *out);
	tt_trainer_set_save(t, follow_save, *out);
	return TT_OK;
}

/* Folder (or config.json) whose small files go along into checkpoints: where the model came from. NULL: nowhere. */
static const char *model_source(tt_run *r)
{
	if (r->cfg->model.hf_config[0])
		return r->cfg->model.hf_config;
	struct stat st;
	if (!r->o.weights || (stat(r->o.weights, &st) == 0 && S_ISDIR(st.st_mode)))
		return r->o.weights;
	const char *slash = strrchr(r->o.weights, '/'); /* a file of weights: the folder that it lies in */
	return !slash ? "." : slash == r->o.weights ? "/" : tt_arena_strndup(r->arena, r->o.weights, (size_t)(slash - r->o.weights));
}

tt_status tt_run_open_checkpoints(tt_run *r)
{
	const tt_config *cfg = r->cfg;
	if (!cfg->checkpoint.enable)
		return TT_OK;
	const char *folder = tt_arena_printf(r->arena, "%s/%s", cfg->job.dump_folder, cfg->checkpoint.folder);
	TT_TRY(tt_saved_new(r->arena, r->trainer, &r->saved));
	TT_TRY(tt_run_resume(r, folder));
	if (cfg->checkpoint.load_only)
		return TT_OK;
	tt_ckpt_options w;
	TT_TRY(writer_options(r->arena, cfg, r->saved, r->io.comm, &r->o.model, &w));
	w.source = model_source(r);
	TT_TRY(tt_ckpt_writer_create(&w, &r->writer));
	/* Resumed at a step of the user's choice, newer checkpoints stay until this run has one of its own. */
	if (r->last_saved >= 0 && cfg->checkpoint.load_step < 0)
		tt_ckpt_tidy(r->writer);
	tt_trainer_set_before_update(r->trainer, before_update, r->writer);
	return TT_OK;
}

/* ---- one save --------------------------------------------------------------------------------------------------------------------------- */

static tt_st_dtype dtype_of(const tt_run *r, bool model_only)
{
	return model_only && r->cfg->checkpoint.export_dtype == TT_CFG_EXPORT_BFLOAT16 ? TT_ST_BF16 : TT_ST_F32;
}

/* Ends the save in progress if it is over; `wait`: waits until it is. Its error, whatever the config says of errors. */
static tt_status collect(tt_run *r, bool wait)
{
	bool done = false;
	tt_ckpt_result res;
	TT_TRY(wait ? tt_ckpt_wait(r->writer, &done, &res) : tt_ckpt_poll(r->writer, &done, &res));
	if (!done)
		return TT_OK;
	r->last_saved = res.step;
	r->last_model_only = r->saving_model_only;
	tt_metrics_scalar x[] = { { "bytes", (double)res.bytes }, { "save_seconds", res.seconds }, { "stall_seconds", res.stall_seconds } };
	tt_log(TT_LOG_INFO, "saved step %lld: %s in %.2f s, training waited %.3f s", (long long)res.step, tt_scale_bytes(res.bytes).s, res.seconds,
	       res.stall_seconds);
	tt_metrics_log_event(r->metrics, res.step, "save", "checkpoint", x, TT_COUNT(x));
	return TT_OK;
}

/* Begins a save, with none in progress. */
static tt_status begin(tt_run *r, bool model_only)
{
	double t0 = tt_now();
	const tt_schedule *sc = &r->o.schedule;
	tt_data_cursor cur = tt_data_save(tt_trainer_data(r->trainer), tt_trainer_steps(r->trainer));
	tt_ckpt_state st = {
		.step = tt_trainer_steps(r->trainer), .updates = tt_trainer_updates(r->trainer), .tokens_seen = r->tokens_seen, .run = r->run,
		.skips = tt_trainer_skips(r->trainer), .seed = r->o.exec.seed,
		.data = { cur.step, cur.context_length, cur.tokens_per_step, cur.fingerprint }, .files = cur.files, .files_every = cur.every, .held = cur.held, .held_every = cur.held_every,
		.unvalidated = r->unvalidated,
		.schedule = { sc->warmup, sc->total, sc->decay, tt_decay_name(sc->type), sc->min_factor }, .config = r->o.config,
	};
	r->saving_model_only = model_only;
	tt_ckpt_kind kind = model_only ? TT_CKPT_MODEL_ONLY : TT_CKPT_FULL;
	tt_status s = tt_trainer_save(r->trainer, st.step, kind, dtype_of(r, model_only));
	if (s == TT_OK)
		s = tt_ckpt_save_begin(r->writer, &st, kind, dtype_of(r, model_only));
	r->last_save_time = tt_now();
	r->save_seconds += r->last_save_time - t0;
	TT_TRY(s);
	return TT_OK;
}

/* What a failed save means: the end, if the config says so or if there is nothing to go on to. */
static tt_status judge(tt_run *r, tt_status s)
{
	if (s == TT_OK || s == TT_ERR_COMM) /* of ranks that are gone there is nothing to go on with */
		return s;
	if (r->cfg->checkpoint.on_error == TT_CFG_ON_ERROR_STOP || r->ending)
		TT_FAIL(s, "%s; after step %lld, %s%s", tt_error_text(), (long long)tt_trainer_steps(r->trainer),
			r->last_saved < 0 ? "with no checkpoint" : tt_arena_printf(r->arena, "with step %lld as the last checkpoint", (long long)r->last_saved),
			r->ending ? "" : " (checkpoint.on_error = \"continue\" goes on without)");
	tt_log(TT_LOG_WARN, "save failed: %s; training goes on without it (checkpoint.on_error)", tt_error_text());
	tt_metrics_log_event(r->metrics, tt_trainer_steps(r->trainer), "save_failed", tt_error_text(), NULL, 0);
	return TT_OK;
}

tt_status tt_run_try_checkpoints(tt_run *r)
{
	const tt_config *cfg = r->cfg;
	int64_t left = cfg->training.steps - tt_trainer_steps(r->trainer);
	if (!r->writer || left <= 0)
		return TT_OK;
	/* Saves by the clock are not counted: how many there will be is not known. */
	int64_t saves = tt_ceil_div(left, cfg->checkpoint.interval);
	bool model_only = saves == 1 && cfg->checkpoint.last_save_model_only && !cfg->checkpoint.enable_first_step_checkpoint;
	tt_ckpt_kind kind = model_only ? TT_CKPT_MODEL_ONLY : TT_CKPT_FULL;
	TT_TRY(tt_trainer_save(r->trainer, -1, kind, dtype_of(r, model_only)));
	return judge(r, tt_ckpt_try(r->writer, kind, dtype_of(r, model_only), saves));
}

/* ---- the run's side ---------------------------------------------------------------------------------------------------------------------- */

tt_status tt_run_poll_save(tt_run *r, bool wait)
{
	return r->writer ? judge(r, collect(r, wait)) : TT_OK;
}

tt_status tt_run_save_due(tt_run *r)
{
	const tt_config *cfg = r->cfg;
	int64_t step = tt_trainer_steps(r->trainer);
	if (!r->writer)
		return TT_OK;
	bool by_time = cfg->checkpoint.interval_minutes > 0 && tt_now() - r->last_save_time >= 60 * cfg->checkpoint.interval_minutes;
	if (step % cfg->checkpoint.interval && !(step == 1 && cfg->checkpoint.enable_first_step_checkpoint) && !by_time)
		return TT_OK;
	TT_TRY(tt_run_poll_save(r, true)); /* one at a time */
	return judge(r, begin(r, false));
}

tt_status tt_run_save_last(tt_run *r, bool model_only)
{
	if (!r->writer)
		return TT_OK;
	TT_TRY(tt_run_poll_save(r, true));
	r->ending = true;
	if (r->last_saved != tt_trainer_steps(r->trainer) || (model_only && !r->last_model_only))
		TT_TRY(judge(r, begin(r, model_only)));
	return tt_run_poll_save(r, true);
}

void tt_run_drop_save(tt_run *r)
{
	if (r->writer && collect(r, true) != TT_OK && !(r->io.comm && tt_comm_given_up(r->io.comm))) /* that is said already */
		tt_log(TT_LOG_WARN, "save failed: %s", tt_error_text());
}

tt_status tt_run_save(tt_run *r)
{
	if (!r->writer)
		TT_FAIL(TT_ERR_USAGE, "nothing is saved: checkpoint.enable is false, or checkpoint.load_only true");
	TT_TRY(tt_run_poll_save(r, true)); /* an earlier one's failure is checkpoint.on_error's to judge, this one's the caller's */
	TT_TRY(begin(r, false));
	return collect(r, true);
}
