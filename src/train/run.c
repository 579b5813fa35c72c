/* run.c: a run: the loop around the steps, its log, its metrics, its checkpoints. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "kernels/peak.h"
#include "metrics/metrics.h"
#include "train/internal.h"
#include "train/train.h"

static const double ln2 = 0.693147180559945309417;
static const char *const decay_names[] = { [TT_WSD_LINEAR] = "linear", [TT_WSD_SQRT] = "sqrt", [TT_WSD_COSINE] = "cosine" };

struct tt_run {
	tt_arena *arena;
	const tt_config *cfg;
	tt_run_io io;
	tt_run_options o;
	tt_trainer *trainer;
	tt_metrics *metrics;
	tt_ckpt_writer *writer;   /* NULL: nothing is saved */
	tt_saved *saved;          /* the tensors of a checkpoint, bound to the program */
	int64_t tokens_seen, planned;
	int64_t last_saved;       /* step of the newest checkpoint, -1: none */
	bool last_model_only;     /* it holds the model alone */
	bool saving_model_only;   /* the save in progress */
	bool ending;              /* no step comes after the save at hand */
	double last_save_time, last_step_end;
	double save_seconds, validate_seconds; /* since the last step's record */
	double peak;                           /* FLOP/s of this machine, measured; NaN: not known (yet) */
	double started;                        /* when the first step began */
	tt_run_summary sum;
	int lock;                 /* descriptor of the folder's lock, -1: none */
};

tt_trainer *tt_run_trainer(tt_run *r) { return r->trainer; }

static bool in_norm_group(const tt_config *cfg, int group, const tt_slot *s)
{
	return s->trainable && s->source < 0 && tt_pattern_match(cfg->metrics.norm_groups.items[group], s->name);
}

/* ---- start ---------------------------------------------------------------------------------------------------------------------------- */

static void dump(tt_run *r)
{
	tt_exec *e = tt_trainer_exec(r->trainer);
	for (int i = 0; i < r->cfg->debug.dump.n; i++) {
		const char *what = r->cfg->debug.dump.items[i];
		tt_buf b = { 0 };
		if (!strcmp(what, "graph")) {
			tt_graph_print(tt_trainer_graph(r->trainer), &b);
		} else if (!strcmp(what, "program")) {
			for (int s = 0; s < TT_NSEGS; s++)
				if (tt_exec_has(e, (tt_segment)s))
					tt_exec_print_program(e, (tt_segment)s, &b);
		} else {
			tt_exec_print_memory(e, &b);
		}
		if (b.s && r->io.print)
			r->io.print(b.s);
		tt_buf_fini(&b);
	}
}

/* Groups whose norm will always be 0. */
static void warn_norm_groups(const tt_run *r)
{
	int64_t n;
	const tt_slot *states = tt_exec_states(tt_trainer_exec(r->trainer), &n);
	for (int g = 0; g < r->cfg->metrics.norm_groups.n; g++) {
		bool any = false;
		for (int64_t i = 0; i < n && !any; i++)
			any = in_norm_group(r->cfg, g, &states[i]);
		if (!any)
			tt_log(TT_LOG_WARN, "%smetrics.norm_groups[%d]: pattern \"%s\" matches no parameter (--dump=graph lists their names)",
			       tt_config_at(r->arena, r->cfg, "metrics.norm_groups", NULL), g, r->cfg->metrics.norm_groups.items[g]);
	}
}

static void log_start(tt_run *r)
{
	const tt_config *cfg = r->cfg;
	const tt_run_options *o = &r->o;
	tt_data_info d = tt_data_describe(tt_trainer_data(r->trainer));
	if (cfg->job.description[0])
		tt_log(TT_LOG_INFO, "%s", cfg->job.description);
	tt_log(TT_LOG_INFO, "model %s: %s parameters, %s compute, %s numerics, %s kernels, isa %s, %d threads",
	       cfg->model.hf_config[0] ? cfg->model.hf_config : cfg->model.flavor, tt_scale_count(tt_trainer_params(r->trainer)).s, tt_dtype_name(o->compute),
	       o->exec.numerics == TT_EXACT ? "exact" : "fast", o->exec.kernels_ref ? "reference" : "fast", tt_isa_name(o->exec.isa), o->exec.threads);
	if (d.documents)
		tt_log(TT_LOG_INFO, "data: %lld documents, %s tokens; held out: %lld documents, %s tokens", (long long)d.documents, tt_scale_count(d.tokens).s,
		       (long long)d.valid_documents, tt_scale_count(d.valid_tokens).s);
	for (int i = 0; i < TT_EXEC_NREGIONS; i++)
		r->planned += tt_exec_planned(tt_trainer_exec(r->trainer), i);
	const tt_startup *s = tt_trainer_startup(r->trainer);
	char *trace = tt_arena_printf(r->arena, "parse %.1f ms, data %.1f, build %.1f, compile %.1f, JIT %.1f, allocate %.1f, touch and fill %.1f",
				      r->io.parse_seconds * 1e3, s->data * 1e3, s->build * 1e3, s->compile * 1e3, s->jit * 1e3, s->allocate * 1e3, s->init * 1e3);
	tt_log(TT_LOG_INFO, "memory planned: %s", tt_scale_bytes(r->planned).s);
	tt_log(TT_LOG_INFO, "start-up: %s", trace);
	tt_metrics_scalar parts[] = { { "parse", r->io.parse_seconds }, { "data", s->data }, { "build", s->build }, { "compile", s->compile },
				      { "jit", s->jit }, { "allocate", s->allocate }, { "init", s->init } };
	tt_metrics_log_event(r->metrics, tt_trainer_steps(r->trainer), "start", trace, parts, TT_COUNT(parts));
}

/* Restores the newest checkpoint (or checkpoint.load_step) if there is one. */
static tt_status resume(tt_run *r, const char *folder)
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
		     strcmp(decay_names[now->type], s->schedule.type) || now->min_factor != s->schedule.min_factor))
			tt_log(TT_LOG_WARN, "the schedule is the config's: warmup %lld, total %lld, decay %lld steps, %s to %g; the checkpoint's was %lld, %lld, %lld, %s to %g "
			       "(lr_scheduler, training.steps)", (long long)now->warmup, (long long)now->total, (long long)now->decay, decay_names[now->type],
			       now->min_factor, (long long)s->schedule.warmup, (long long)s->schedule.total, (long long)s->schedule.decay, s->schedule.type,
			       s->schedule.min_factor);
	}
	TT_TRY(tt_trainer_resume(r->trainer, step, updates, skips));
	tt_log(TT_LOG_INFO, "resumed from %s at step %lld (%.1f s)", tt_ckpt_dir(c), (long long)step, tt_now() - t0);
	if (step >= cfg->training.steps)
		tt_log(TT_LOG_INFO, "all %lld steps are done: nothing is left to do (training.steps)", (long long)cfg->training.steps);
	return TT_OK;
}

static void before_update(void *ctx)
{
	tt_ckpt_before_update(ctx);
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

static tt_status open_checkpoints(tt_run *r)
{
	const tt_config *cfg = r->cfg;
	if (!cfg->checkpoint.enable)
		return TT_OK;
	const char *folder = tt_arena_printf(r->arena, "%s/%s", cfg->job.dump_folder, cfg->checkpoint.folder);
	TT_TRY(tt_saved_new(r->arena, r->trainer, &r->saved));
	TT_TRY(resume(r, folder));
	if (cfg->checkpoint.load_only)
		return TT_OK;
	tt_ckpt_options w = {
		.folder = folder, .keep_latest_k = cfg->checkpoint.keep_latest_k, .async = cfg->checkpoint.async_mode != TT_CFG_ASYNC_DISABLED,
		.staging = cfg->checkpoint.staging_mib * TT_MIB, .model = &r->o.model, .source = model_source(r),
		.tensors = r->saved->tensors, .ntensors = r->saved->n, .read = tt_saved_read, .ctx = r->saved,
	};
	TT_TRY(tt_ckpt_writer_create(&w, &r->writer));
	if (r->last_saved >= 0 && cfg->checkpoint.load_step < 0)
		tt_ckpt_tidy(r->writer);
	tt_trainer_set_before_update(r->trainer, before_update, r->writer);
	return TT_OK;
}

/* One run at a time writes a folder: two would mix their checkpoints. The lock goes with the process that holds it. */
static tt_status lock_folder(tt_run *r)
{
	const char *folder = r->cfg->job.dump_folder;
	if (!folder[0])
		TT_FAIL(TT_ERR_USAGE, "job.dump_folder is empty: name a folder for what the run writes");
	TT_TRY(tt_mkdirs(folder));
	const char *path = tt_arena_printf(r->arena, "%s/.lock", folder);
	r->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (r->lock < 0)
		TT_FAIL(TT_ERR_IO, "%s: cannot be written: %s (job.dump_folder)", path, strerror(errno));
	if (flock(r->lock, LOCK_EX | LOCK_NB))
		TT_FAIL(TT_ERR_IO, "%s: another run is writing this folder (job.dump_folder: give each run its own)", folder);
	return TT_OK;
}

static tt_status open_run(tt_run *r)
{
	const tt_config *cfg = r->cfg;
	TT_TRY(tt_run_options_from_config(r->arena, cfg, &r->o));
	for (int i = 0; i < r->o.warnings.n; i++)
		tt_log(TT_LOG_WARN, "%s", r->o.warnings.items[i]);
	TT_TRY(lock_folder(r));
	tt_buf passes = { 0 };
	r->o.dump_out = &passes;
	tt_status s = tt_trainer_create(&r->o, &r->trainer);
	if (passes.s && r->io.print)
		r->io.print(passes.s);
	tt_buf_fini(&passes);
	TT_TRY(s);
	TT_TRY(open_checkpoints(r));
	static const tt_metrics_mode modes[] = { TT_METRICS_AUTO, TT_METRICS_LIVE, TT_METRICS_PLAIN, TT_METRICS_OFF };
	tt_metrics_options m = {
		.folder = cfg->job.dump_folder, .resume_step = tt_trainer_steps(r->trainer), .steps = cfg->training.steps, .log_freq = cfg->metrics.log_freq,
		.mode = modes[cfg->metrics.console], .jsonl = cfg->metrics.enable_jsonl, .tensorboard = cfg->metrics.enable_tensorboard,
	};
	if (r->io.console)
		m.console = *r->io.console;
	r->metrics = tt_metrics_open(&m);
	tt_data_info d = tt_data_describe(tt_trainer_data(r->trainer));
	r->sum.valid_documents = d.valid_documents;
	r->sum.valid_tokens = d.valid_tokens;
	warn_norm_groups(r);
	log_start(r);
	dump(r);
	r->last_save_time = r->last_step_end = tt_now();
	return TT_OK;
}

tt_status tt_run_open(const tt_config *cfg, const tt_run_io *io, tt_run **out)
{
	tt_run *r = calloc(1, sizeof *r);
	TT_ASSERT(r, "out of memory");
	r->arena = tt_arena_create("run");
	r->cfg = cfg;
	r->io = *io;
	r->last_saved = r->lock = -1;
	r->sum.valid_bits = r->peak = __builtin_nan("");
	tt_status s = open_run(r);
	if (s != TT_OK) {
		tt_run_close(r);
		TT_TRY(s);
	}
	*out = r;
	return TT_OK;
}

void tt_run_close(tt_run *r)
{
	if (!r)
		return;
	tt_ckpt_writer_destroy(r->writer);
	tt_metrics_close(r->metrics);
	tt_trainer_destroy(r->trainer);
	if (r->lock >= 0)
		close(r->lock);
	tt_arena_destroy(r->arena);
	free(r);
}

/* ---- saving ----------------------------------------------------------------------------------------------------------------------------- */

/* What a finished save has to say; a failed one stops the run if the config says so, or if there is nothing to go on to. */
static tt_status save_result(tt_run *r, tt_status s, bool done, const tt_ckpt_result *res)
{
	if (s != TT_OK) {
		bool stop = r->cfg->checkpoint.on_error == TT_CFG_ON_ERROR_STOP;
		if (stop || r->ending)
			TT_FAIL(s, "%s; after step %lld, %s%s", tt_error_text(), (long long)tt_trainer_steps(r->trainer),
				r->last_saved < 0 ? "with no checkpoint" : tt_arena_printf(r->arena, "with step %lld as the last checkpoint", (long long)r->last_saved),
				r->ending ? "" : " (checkpoint.on_error = \"continue\" goes on without)");
		tt_log(TT_LOG_WARN, "save failed: %s; training goes on without it (checkpoint.on_error)", tt_error_text());
		tt_metrics_log_event(r->metrics, tt_trainer_steps(r->trainer), "save_failed", tt_error_text(), NULL, 0);
		return TT_OK;
	}
	if (!done)
		return TT_OK;
	r->last_saved = res->step;
	r->last_model_only = r->saving_model_only;
	tt_metrics_scalar x[] = { { "bytes", (double)res->bytes }, { "save_seconds", res->seconds }, { "stall_seconds", res->stall_seconds } };
	tt_log(TT_LOG_INFO, "saved step %lld: %s in %.2f s, training waited %.3f s", (long long)res->step, tt_scale_bytes(res->bytes).s, res->seconds,
	       res->stall_seconds);
	tt_metrics_log_event(r->metrics, res->step, "save", "checkpoint", x, TT_COUNT(x));
	return TT_OK;
}

static tt_status poll_save(tt_run *r, bool wait)
{
	if (!r->writer)
		return TT_OK;
	bool done = false;
	tt_ckpt_result res;
	tt_status s = wait ? tt_ckpt_wait(r->writer, &done, &res) : tt_ckpt_poll(r->writer, &done, &res);
	return save_result(r, s, done, &res);
}

static tt_status begin_save(tt_run *r, bool model_only)
{
	double t0 = tt_now();
	TT_TRY(poll_save(r, true)); /* one at a time */
	const tt_schedule *sc = &r->o.schedule;
	tt_data_cursor cur = tt_data_save(tt_trainer_data(r->trainer), tt_trainer_steps(r->trainer));
	tt_ckpt_state st = {
		.step = tt_trainer_steps(r->trainer), .updates = tt_trainer_updates(r->trainer), .tokens_seen = r->tokens_seen,
		.skips = tt_trainer_skips(r->trainer), .seed = r->o.exec.seed,
		.data = { cur.step, cur.context_length, cur.tokens_per_step, cur.fingerprint },
		.schedule = { sc->warmup, sc->total, sc->decay, decay_names[sc->type], sc->min_factor }, .config = r->o.config,
	};
	tt_st_dtype dtype = model_only && r->cfg->checkpoint.export_dtype == TT_CFG_EXPORT_BFLOAT16 ? TT_ST_BF16 : TT_ST_F32;
	r->saving_model_only = model_only;
	tt_status s = tt_ckpt_save_begin(r->writer, &st, model_only ? TT_CKPT_MODEL_ONLY : TT_CKPT_FULL, dtype);
	r->last_save_time = tt_now();
	r->save_seconds += r->last_save_time - t0;
	return save_result(r, s, false, NULL);
}

/* After step `step`: is a save due by count, by time, as the first? */
static bool save_due(const tt_run *r, int64_t step)
{
	const tt_config *cfg = r->cfg;
	if (!r->writer)
		return false;
	if (step % cfg->checkpoint.interval == 0 || (step == 1 && cfg->checkpoint.enable_first_step_checkpoint))
		return true;
	return cfg->checkpoint.interval_minutes > 0 && tt_now() - r->last_save_time >= 60 * cfg->checkpoint.interval_minutes;
}

tt_status tt_run_save(tt_run *r)
{
	if (!r->writer)
		TT_FAIL(TT_ERR_USAGE, "nothing is saved: checkpoint.enable is false, or checkpoint.load_only true");
	TT_TRY(begin_save(r, false));
	return poll_save(r, true);
}

/* ---- steps -------------------------------------------------------------------------------------------------------------------------------- */

/* Norms of groups of gradients and parameters, on request: read back and summed in double. */
static int group_norms(tt_run *r, tt_metrics_scalar *out, int cap)
{
	const tt_config *cfg = r->cfg;
	tt_exec *e = tt_trainer_exec(r->trainer);
	int64_t n;
	const tt_slot *states = tt_exec_states(e, &n);
	int k = 0;
	for (int g = 0; g < cfg->metrics.norm_groups.n && k + 2 <= cap; g++)
		for (int grad = 1; grad >= 0; grad--) {
			double sum = 0;
			for (int64_t i = 0; i < n; i++)
				if (in_norm_group(cfg, g, &states[i]))
					sum += tt_state_square_sum(r->trainer, states[i].name, grad);
			out[k++] = (tt_metrics_scalar){ tt_arena_printf(r->arena, "norm/%s/%s", grad ? "grad" : "param", cfg->metrics.norm_groups.items[g]),
							__builtin_sqrt(sum) };
		}
	return k;
}

/* The peak comes from the cache; without one it is measured once the run has shown that it is more than a try: a quarter of a second. */
static double mfu(tt_run *r, double flops_per_s, double now)
{
	enum { TRY_SECONDS = 5 };
	if (r->peak != r->peak && (!r->started || now - r->started > TRY_SECONDS)) {
		tt_peak p;
		if (tt_peak_get(NULL, tt_exec_pool(tt_trainer_exec(r->trainer)), r->o.exec.isa, r->o.compute, r->started > 0, &p))
			r->peak = p.flops;
		else if (r->started)
			r->peak = 0;
		if (r->peak == r->peak && r->peak > 0)
			tt_log(TT_LOG_INFO, "peak of this machine: %.0f GFLOP/s (%s, %s)", r->peak / 1e9, tt_figure_name(p.figure), p.cached ? "cached" : "measured now");
	}
	if (!r->started)
		r->started = now;
	return r->peak > 0 ? 100 * flops_per_s / r->peak : __builtin_nan("");
}

static void record_step(tt_run *r, const tt_step_report *s)
{
	double now = tt_now(), seconds = now - r->last_step_end;
	tt_metrics_scalar extra[64];
	tt_mark mark = tt_arena_push(r->arena);
	bool logged = s->step == 1 || s->step == r->cfg->training.steps || s->step % r->cfg->metrics.log_freq == 0;
	/* Of a step without a valid token nothing was run. */
	double flops = s->valid ? 3 * tt_llama_forward_flops(&r->o.model, (double)s->tokens, s->pairs) : 0, trained = s->valid ? (double)s->tokens : 0;
	tt_metrics_step m = {
		.step = s->step, .loss = s->loss, .loss_max = s->loss_max, .grad_norm = s->grad_norm, .lr = s->lr, .tokens = s->tokens,
		.valid_tokens = s->valid, .tokens_seen = r->tokens_seen, .tokens_per_s = trained / s->seconds, .flops_per_s = flops / s->seconds,
		.mfu = mfu(r, flops / s->seconds, now), .seconds = seconds, .data_seconds = s->data_seconds,
		.forward_seconds = s->forward_seconds, .backward_seconds = s->backward_seconds, .optimizer_seconds = s->optim_seconds,
		.save_seconds = r->save_seconds, .validate_seconds = r->validate_seconds, .memory_planned = r->planned,
		.memory_resident = tt_memory_resident(), .skipped = s->skipped, .extra = extra,
		.nextra = logged ? group_norms(r, extra, TT_COUNT(extra)) : 0,
	};
	tt_metrics_log_step(r->metrics, &m);
	tt_arena_pop(r->arena, mark);
	r->last_step_end = tt_now();
	r->save_seconds = r->validate_seconds = 0;
}

tt_status tt_run_validate(tt_run *r, bool whole, double *loss, int64_t *valid)
{
	const tt_config *cfg = r->cfg;
	int64_t rows = cfg->validation.steps > 0 && !whole ? cfg->validation.steps * tt_data_rows_per_step(tt_trainer_data(r->trainer)) : 0;
	double t0 = tt_now(), sum;
	TT_TRY(tt_trainer_validate(r->trainer, rows, &sum, valid));
	*loss = *valid ? sum / (double)*valid : __builtin_nan("");
	r->validate_seconds += tt_now() - t0;
	if (!*valid) {
		tt_log(TT_LOG_WARN, "validation has no tokens");
		return TT_OK;
	}
	r->sum.valid_bits = sum / ln2;
	r->sum.valid_predicted = *valid;
	tt_metrics_validation v = { .step = tt_trainer_steps(r->trainer), .loss = *loss, .bits_per_token = *loss / ln2, .tokens = *valid, .seconds = tt_now() - t0 };
	tt_metrics_log_validation(r->metrics, &v);
	return TT_OK;
}

tt_status tt_run_step(tt_run *r, tt_step_report *out)
{
	const tt_config *cfg = r->cfg;
	tt_step_report s;
	TT_TRY(tt_trainer_step(r->trainer, &s));
	r->tokens_seen += s.tokens;
	r->sum.steps = s.step;
	r->sum.tokens = r->tokens_seen;
	r->sum.loss = s.loss;
	record_step(r, &s);
	TT_TRY(poll_save(r, false));
	bool last = s.step >= cfg->training.steps;
	/* Before the save: a run that resumes from it must not miss this validation. */
	if (cfg->validation.enable && (s.step == 1 || last || s.step % cfg->validation.freq == 0)) {
		double loss;
		int64_t valid;
		TT_TRY(tt_run_validate(r, last && r->io.valid_whole, &loss, &valid));
	}
	if (!last && save_due(r, s.step))
		TT_TRY(begin_save(r, false));
	*out = s;
	return TT_OK;
}

/* A step has failed: what a save in progress says after that is logged, the first error stays. */
static tt_status step_failed(tt_run *r, tt_status s)
{
	char *text = tt_arena_strdup(r->arena, tt_error_text());
	bool done = false;
	tt_ckpt_result res;
	if (r->writer && tt_ckpt_wait(r->writer, &done, &res) != TT_OK)
		tt_log(TT_LOG_WARN, "save failed: %s", tt_error_text());
	else if (done)
		tt_log(TT_LOG_INFO, "saved step %lld", (long long)res.step);
	TT_FAIL(s, "%s", text);
}

/* The checkpoint after the last step. A run that has ended may leave the model alone; one that was stopped goes on later. */
static tt_status save_last(tt_run *r, bool model_only)
{
	TT_TRY(poll_save(r, true));
	r->ending = true;
	if (r->last_saved != tt_trainer_steps(r->trainer) || (model_only && !r->last_model_only))
		TT_TRY(begin_save(r, model_only));
	return poll_save(r, true);
}

tt_status tt_run_loop(tt_run *r, tt_run_summary *out)
{
	const tt_config *cfg = r->cfg;
	int stop = r->io.stop ? (int)*r->io.stop : 0; /* asked during start-up: nothing is new since the last checkpoint */
	bool idle = stop != 0;
	while (tt_trainer_steps(r->trainer) < cfg->training.steps && !stop) {
		tt_step_report s;
		tt_status st = tt_run_step(r, &s);
		if (st == TT_ERR_STOP) {
			tt_log(TT_LOG_INFO, "the text ends after step %lld (data.repeat = false)", (long long)tt_trainer_steps(r->trainer));
			break;
		}
		if (st != TT_OK)
			return step_failed(r, st);
		stop = r->io.stop ? (int)*r->io.stop : 0;
	}
	int64_t step = tt_trainer_steps(r->trainer);
	if (r->writer && !idle)
		TT_TRY(save_last(r, !stop && cfg->checkpoint.last_save_model_only));
	if (cfg->profiling.enable && r->io.print) {
		tt_buf b = { 0 };
		tt_metrics_pause(r->metrics);
		tt_exec_print_profile(tt_trainer_exec(r->trainer), &b);
		r->io.print(b.s ? b.s : "");
		tt_buf_fini(&b);
	}
	*out = r->sum;
	if (stop)
		TT_FAIL(TT_ERR_STOP, "stopped by signal %d after step %lld%s", stop, (long long)step,
			!r->writer ? "; nothing is saved (checkpoint.enable)" : idle ? "; nothing new to save" : ", saved");
	return TT_OK;
}
