/* resume.c: going on from a checkpoint. */
#include <stdio.h>

#include "train/internal.h"

/* What a run that is over may still be started for: to see that, or by a script that was killed before it could. */
static tt_status check_model_only(const tt_run *r, const tt_ckpt *c, unsigned *exclude)
{
	if (!tt_ckpt_model_only(c) || *exclude & TT_CKPT_OPTIMIZER)
		return TT_OK;
	if (tt_ckpt_get_state(c)->step < r->cfg->training.steps || *exclude & TT_CKPT_TRAIN_STATE)
		TT_FAIL(TT_ERR_USAGE, "%s holds the model alone (checkpoint.last_save_model_only): nothing to resume from. Name an older step (checkpoint.load_step), "
				      "start with fresh moments (checkpoint.exclude_from_loading = [\"optimizer\"]), or from its weights (model.hf_weights)", tt_ckpt_dir(c));
	*exclude |= TT_CKPT_OPTIMIZER;
	return TT_OK;
}

static void warn_schedule(const tt_schedule *now, const tt_ckpt_state *s)
{
	if (now->warmup != s->schedule.warmup || now->total != s->schedule.total || now->decay != s->schedule.decay ||
	    strcmp(tt_decay_name(now->type), s->schedule.type) || now->min_factor != s->schedule.min_factor)
		tt_log(TT_LOG_WARN, "the schedule is the config's: warmup %lld, total %lld, decay %lld steps, %s to %g; the checkpoint's was %lld, %lld, %lld, %s to %g "
		       "(lr_scheduler, training.steps)", (long long)now->warmup, (long long)now->total, (long long)now->decay, tt_decay_name(now->type),
		       now->min_factor, (long long)s->schedule.warmup, (long long)s->schedule.total, (long long)s->schedule.decay, s->schedule.type,
		       s->schedule.min_factor);
}

static tt_status restore_data(tt_run *r, const tt_ckpt_state *s, const tt_differences *d)
{
	tt_data_cursor cur = { s->data.step, s->data.context_length, s->data.tokens_per_step, s->data.fingerprint, s->files, s->files_every, s->held, s->held_every };
	int64_t at;
	tt_status st = tt_data_restore(tt_trainer_data(r->trainer), &cur, &at);
	/* A changed length of rows or steps is all that there is to say. */
	bool shape = s->data.context_length != r->cfg->training.context_length || s->data.tokens_per_step != r->cfg->training.tokens_per_step;
	if (st == TT_ERR_USAGE)
		TT_FAIL(st, "%s%s. checkpoint.exclude_from_loading = [\"dataloader\"] goes on at step %lld of the data as it is now", tt_error_text(),
			shape ? "" : d->data, (long long)s->data.step);
	TT_TRY(st);
	return TT_OK;
}

/* Newer checkpoints are of a line of training that this run leaves: nothing is lost before it has a checkpoint of its own, but then. ckpt_prune
 * does it; here it is told. */
static tt_status warn_newer(tt_run *r, const char *folder, int64_t step)
{
	int64_t *steps, n, first = 0;
	if (r->cfg->checkpoint.load_only || step >= r->cfg->training.steps)
		return TT_OK;
	TT_TRY(tt_ckpt_list(r->arena, NULL, folder, &steps, &n));
	while (first < n && steps[first] <= step)
		first++;
	if (first == n)
		return TT_OK;
	tt_buf b = { 0 };
	for (int64_t i = first; i < n; i++)
		tt_buf_printf(&b, "%s%lld", i == first ? "" : ", ", (long long)steps[i]);
	tt_log(TT_LOG_WARN, "%s has newer checkpoints than step %lld, of steps %s: they stay until this run has saved one of its own, then its own take their "
			    "places, and they go first where checkpoint.keep_latest_k is reached (a copy of the folder keeps them)", folder, (long long)step, b.s);
	tt_buf_fini(&b);
	return TT_OK;
}

tt_status tt_run_resume(tt_run *r, const char *folder)
{
	const tt_config *cfg = r->cfg;
	tt_ckpt *c;
	unsigned exclude;
	tt_differences d;
	TT_TRY(tt_ckpt_parts(cfg->checkpoint.exclude_from_loading.items, cfg->checkpoint.exclude_from_loading.n, &exclude));
	TT_TRY(tt_ckpt_open(r->arena, NULL, folder, cfg->checkpoint.load_step, &c));
	if (!c)
		return TT_OK;
	const tt_ckpt_state *s = tt_ckpt_get_state(c);
	TT_TRY(check_model_only(r, c, &exclude));
	TT_TRY(tt_run_compare(r, c, exclude, &d));
	for (int64_t i = 0; i < r->saved->n; i++)
		r->saved->tensors[i].imported = tt_ckpt_imported(c, r->saved->tensors[i].name, r->saved->tensors[i].imported);
	double t0 = tt_now();
	bool state = !(exclude & TT_CKPT_TRAIN_STATE);
	if (state && !(exclude & TT_CKPT_DATALOADER))
		TT_TRY(restore_data(r, s, &d));
	TT_TRY(tt_ckpt_load(c, r->saved->tensors, r->saved->n, exclude, tt_saved_write, r->saved));
	int64_t step = 0, skips = 0;
	int64_t updates = exclude & TT_CKPT_OPTIMIZER ? 0 : s->updates; /* how much the moments have seen */
	if (state) {
		step = s->step;
		skips = s->skips;
		r->tokens_seen = s->tokens_seen;
		if (s->run && *s->run && strlen(s->run) < sizeof r->run && strspn(s->run, "0123456789abcdef") == strlen(s->run)) {
			snprintf(r->run, sizeof r->run, "%s", s->run);
			r->run_new = false;
		}
		r->last_saved = step;
		r->last_model_only = tt_ckpt_model_only(c);
		r->unvalidated = s->unvalidated && cfg->validation.enable;
		if (!(exclude & TT_CKPT_LR_SCHEDULER))
			warn_schedule(&r->o.schedule, s);
	}
	TT_TRY(warn_newer(r, folder, step));
	TT_TRY(tt_trainer_resume(r->trainer, step, updates, skips));
	tt_log(TT_LOG_INFO, "resumed from %s at step %lld (%.1f s)", tt_ckpt_dir(c), (long long)step, tt_now() - t0);
	if (step >= cfg->training.steps)
		tt_log(TT_LOG_INFO, "all %lld steps are done: nothing is left to do (training.steps)", (long long)cfg->training.steps);
	return TT_OK;
}
