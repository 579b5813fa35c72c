/* resume.c: going on from a checkpoint. */
#include "train/internal.h"

/* Restores the newest checkpoint (or checkpoint.load_step) if there is one. */
tt_status tt_run_resume(tt_run *r, const char *folder)
{
	const tt_config *cfg = r->cfg;
	tt_ckpt *c;
	unsigned exclude;
	TT_TRY(tt_ckpt_parts(cfg->checkpoint.exclude_from_loading.items, cfg->checkpoint.exclude_from_loading.n, &exclude));
	TT_TRY(tt_ckpt_open(r->arena, NULL, folder, cfg->checkpoint.load_step, &c));
	if (!c)
		return TT_OK;
	const tt_ckpt_state *s = tt_ckpt_get_state(c);
	if (tt_ckpt_model_only(c) && !(exclude & TT_CKPT_OPTIMIZER)) {
		/* A run that is over, started once more: by somebody who wants to see that, or by a script that was killed before it could. */
		if (s->step < cfg->training.steps || (exclude & TT_CKPT_TRAIN_STATE))
			TT_FAIL(TT_ERR_USAGE, "%s holds the model alone (checkpoint.last_save_model_only): nothing to resume from. Name an older step (checkpoint.load_step), "
					      "start with fresh moments (checkpoint.exclude_from_loading = [\"optimizer\"]), or from its weights (model.hf_weights)", tt_ckpt_dir(c));
		exclude |= TT_CKPT_OPTIMIZER;
	}
	for (int64_t i = 0; i < r->saved->n; i++)
		r->saved->tensors[i].imported = tt_ckpt_imported(c, r->saved->tensors[i].name, r->saved->tensors[i].imported);
	double t0 = tt_now();
	TT_TRY(tt_ckpt_load(c, r->saved->tensors, r->saved->n, exclude, tt_saved_write, r->saved));
	int64_t step = 0, skips = 0;
	int64_t updates = exclude & TT_CKPT_OPTIMIZER ? 0 : s->updates; /* how much the moments have seen */
	if (!(exclude & TT_CKPT_TRAIN_STATE)) {
		step = s->step;
		skips = s->skips;
		r->tokens_seen = s->tokens_seen;
		r->last_saved = step;
		r->last_model_only = tt_ckpt_model_only(c);
		if (!(exclude & TT_CKPT_DATALOADER)) {
			tt_data_cursor cur = { s->data.step, s->data.context_length, s->data.tokens_per_step, s->data.fingerprint };
			int64_t at;
			TT_TRY(tt_data_restore(tt_trainer_data(r->trainer), &cur, &at));
		}
		const tt_schedule *now = &r->o.schedule;
		if (!(exclude & TT_CKPT_LR_SCHEDULER) &&
		    (now->warmup != s->schedule.warmup || now->total != s->schedule.total || now->decay != s->schedule.decay ||
		     strcmp(tt_decay_name(now->type), s->schedule.type) || now->min_factor != s->schedule.min_factor))
			tt_log(TT_LOG_WARN, "the schedule is the config's: warmup %lld, total %lld, decay %lld steps, %s to %g; the checkpoint's was %lld, %lld, %lld, %s to %g "
			       "(lr_scheduler, training.steps)", (long long)now->warmup, (long long)now->total, (long long)now->decay, tt_decay_name(now->type),
			       now->min_factor, (long long)s->schedule.warmup, (long long)s->schedule.total, (long long)s->schedule.decay, s->schedule.type,
			       s->schedule.min_factor);
	}
	TT_TRY(tt_trainer_resume(r->trainer, step, updates, skips));
	tt_log(TT_LOG_INFO, "resumed from %s at step %lld (%.1f s)", tt_ckpt_dir(c), (long long)step, tt_now() - t0);
	if (step >= cfg->training.steps)
		tt_log(TT_LOG_INFO, "all %lld steps are done: nothing is left to do (training.steps)", (long long)cfg->training.steps);
	return TT_OK;
}
