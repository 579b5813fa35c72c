/* run.c: a run: the loop around the steps, its log, its metrics. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/machine.h"
#include "kernels/peak.h"
#include "train/internal.h"

static const double ln2 = 0.693147180559945309417;

tt_trainer *tt_run_trainer(tt_run *r) { return r->trainer; }

/* ---- validation ----------------------------------------------------------------------------------------------------------------------- */

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

/* The validation that is due after the last step. One that a signal ends is due again when the run is resumed: it goes into the checkpoint as such. */
static tt_status validate_step(tt_run *r)
{
	double loss;
	int64_t valid;
	bool last = tt_trainer_steps(r->trainer) >= r->cfg->training.steps;
	tt_status s = tt_run_validate(r, last && r->io.valid_whole, &loss, &valid);
	r->unvalidated = s == TT_ERR_STOP;
	if (!r->unvalidated)
		TT_TRY(s);
	return TT_OK;
}

/* ---- start ---------------------------------------------------------------------------------------------------------------------------- */

static bool in_norm_group(const tt_config *cfg, int group, const tt_slot *s)
{
	return s->trainable && s->source < 0 && tt_pattern_match(cfg->metrics.norm_groups.items[group], s->name);
}

void tt_trainer_dump(tt_trainer *t, const char *what, tt_buf *b)
{
	tt_exec *e = tt_trainer_exec(t);
	if (!strcmp(what, "graph")) {
		tt_graph_print(tt_trainer_graph(t), b);
	} else if (!strcmp(what, "program")) {
		for (int s = 0; s < TT_NSEGS; s++)
			if (tt_exec_has(e, (tt_segment)s))
				tt_exec_print_program(e, (tt_segment)s, b);
	} else {
		tt_exec_print_memory(e, b);
	}
}

static void dump(tt_run *r)
{
	for (int i = 0; i < r->cfg->debug.dump.n; i++) {
		tt_buf b = { 0 };
		tt_trainer_dump(r->trainer, r->cfg->debug.dump.items[i], &b);
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
	const tt_recompute_report *again = tt_trainer_recompute(r->trainer);
	if (again->none)
		tt_log(TT_LOG_INFO, "recompute: %s of %s are kept from forward to backward, %.0f%% of forward is made again", tt_scale_bytes(again->kept).s,
		       tt_scale_bytes(again->none).s, 100 * again->again / again->forward);
	const tt_run_mesh *m = &o->mesh;
	if (m->comm)
		tt_log(TT_LOG_INFO, "mesh: %d ranks, %s: dp_replicate %d, dp_shard %d, cp %d%s, tp %d%s", tt_comm_size(m->comm),
		       tt_comm_sees_memory(m->comm) ? "threads of this process" : "processes of an MPI job", m->size[TT_DP_REPLICATE],
		       m->size[TT_DP_SHARD], m->size[TT_CP],
		       m->size[TT_CP] > 1 ? tt_arena_printf(r->arena, " (%s, %s)", tt_cp_method_name(m->cp_method), tt_balance_name(m->cp_balance)) : "", m->size[TT_TP], m->sp ? " with sequence parallel" : "");
	tt_log(TT_LOG_INFO, "memory planned: %s%s", tt_scale_bytes(r->planned).s, m->comm ? ", on rank 0" : "");
	tt_log(TT_LOG_INFO, "start-up: %s", trace);
	tt_metrics_scalar parts[] = { { "parse", r->io.parse_seconds }, { "data", s->data }, { "build", s->build }, { "compile", s->compile },
				      { "jit", s->jit }, { "allocate", s->allocate }, { "init", s->init } };
	tt_metrics_log_event(r->metrics, tt_trainer_steps(r->trainer), "start", trace, parts, TT_COUNT(parts));
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

/* The options of this rank, with its part of the machine. `c`: NULL where there is one rank. */
static tt_status rank_options(tt_arena *a, const tt_config *cfg, tt_comm *c, tt_run_options *o)
{
	TT_TRY(tt_run_options_from_config(a, cfg, o));
	o->mesh.comm = c;
	o->mesh.led = c != NULL;
	o->mesh.timeout_s = (double)cfg->comm.train_timeout_seconds;
	if (!c)
		return TT_OK;
	int cores = tt_machine_threads(), ranks = tt_comm_neighbours(c);
	if (!cfg->hardware.threads)
		o->exec.threads = TT_MAX(cores / ranks, 1);
	o->exec.spin_us = ranks > cores ? 0 : o->exec.spin_us; /* a rank that spins keeps another from working */
	return TT_OK;
}

/* The same in all its starts: a resumed run takes over its checkpoint's. Made of what its numbers follow from, so that a run that was never stopped, or was on
 * another mesh, leaves the same bytes. */
static void name_run(tt_run *r)
{
	static const char *const sections[] = { "[model]", "[training]", "[optimizer]", "[lr_scheduler]", "[data]" };
	uint64_t h = tt_hash64(&r->o.exec.seed, sizeof r->o.exec.seed, 0);
	bool counts = false;
	for (const char *line = r->o.config, *end; line && *line; line = end) {
		end = line + strcspn(line, "\n");
		if (*line == '[') {
			counts = false;
			for (int i = 0; i < TT_COUNT(sections); i++)
				counts |= !strncmp(line, sections[i], strlen(sections[i]));
		}
		if (counts)
			h = tt_hash64(line, (size_t)(end - line), h);
		end += *end == '\n';
	}
	snprintf(r->run, sizeof r->run, "%016llx", (unsigned long long)h);
	r->run_new = true;
}

static tt_status open_run(tt_run *r)
{
	const tt_config *cfg = r->cfg;
	TT_TRY(rank_options(r->arena, cfg, r->io.comm, &r->o));
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
	tt_trainer_set_stop(r->trainer, r->io.stop);
	name_run(r);
	TT_TRY(tt_run_open_checkpoints(r));
	static const tt_metrics_mode modes[] = { TT_METRICS_AUTO, TT_METRICS_LIVE, TT_METRICS_PLAIN, TT_METRICS_OFF };
	tt_metrics_options m = {
		.folder = cfg->job.dump_folder, .resume_step = tt_trainer_steps(r->trainer), .revalidate = r->unvalidated, .run = r->run, .run_new = r->run_new, .steps = cfg->training.steps,
		.log_freq = cfg->metrics.log_freq, .mode = modes[cfg->metrics.console], .jsonl = cfg->metrics.enable_jsonl, .tensorboard = cfg->metrics.enable_tensorboard,
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
	TT_TRY(tt_run_try_checkpoints(r));
	if (r->unvalidated) /* the run that is resumed was stopped in this validation */
		TT_TRY(validate_step(r));
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

tt_status tt_run_follow(const tt_config *cfg, tt_comm *c)
{
	tt_arena *a = tt_arena_create("run");
	tt_run_options o;
	tt_trainer *t = NULL;
	tt_status s = rank_options(a, cfg, c, &o);
	if (s == TT_OK)
		s = tt_trainer_create(&o, &t);
	tt_ckpt_writer *w = NULL;
	if (s == TT_OK)
		s = tt_follow_checkpoints(a, cfg, &o, t, &w);
	if (s == TT_OK)
		s = tt_trainer_follow(t);
	tt_ckpt_writer_destroy(w); /* the others end a save that is in progress, too */
	tt_trainer_destroy(t);
	tt_arena_destroy(a);
	return s;
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

/* ---- steps -------------------------------------------------------------------------------------------------------------------------------- */

/* Norms of groups of gradients and parameters, on request: read back and summed in double. */
static tt_status group_norms(tt_run *r, tt_metrics_scalar *out, int cap, int *count)
{
	const tt_config *cfg = r->cfg;
	tt_exec *e = tt_trainer_exec(r->trainer);
	int64_t n;
	const tt_slot *states = tt_exec_states(e, &n);
	int k = 0;
	for (int g = 0; g < cfg->metrics.norm_groups.n && k + 2 <= cap; g++)
		for (int grad = 1; grad >= 0; grad--) {
			double sum = 0, one = 0;
			for (int64_t i = 0; i < n; i++)
				if (in_norm_group(cfg, g, &states[i])) {
					TT_TRY(tt_trainer_square_sum(r->trainer, states[i].name, grad, &one));
					sum += one;
				}
			out[k++] = (tt_metrics_scalar){ tt_arena_printf(r->arena, "norm/%s/%s", grad ? "grad" : "param", cfg->metrics.norm_groups.items[g]),
							__builtin_sqrt(sum) };
		}
	*count = k;
	return TT_OK;
}

/* Ranks that can compute at once, with as many threads as rank 0 each, on machines like its own. */
static int64_t peak_ranks(const tt_run *r)
{
	int64_t near = r->io.comm ? tt_comm_neighbours(r->io.comm) : 1;
	return r->cfg->hardware.ranks * TT_MIN(near, TT_MAX((int64_t)tt_machine_threads() / r->o.exec.threads, (int64_t)1)) / near;
}

/* The peak comes from the cache; without one it is measured once the run has shown that it is more than a try: a quarter of a second. */
static double mfu(tt_run *r, double flops_per_s, double now)
{
	enum { TRY_SECONDS = 5 };
	if (r->peak != r->peak && (!r->started || now - r->started > TRY_SECONDS)) {
		tt_peak p;
		if (tt_peak_get(NULL, tt_exec_pool(tt_trainer_exec(r->trainer)), r->o.exec.isa, r->o.compute, r->started > 0, &p))
			r->peak = p.flops * (double)peak_ranks(r);
		else if (r->started)
			r->peak = 0;
		if (r->peak == r->peak && r->peak > 0)
			tt_log(TT_LOG_INFO, "peak of this machine: %.0f GFLOP/s (%s, %s)", r->peak / 1e9, tt_figure_name(p.figure), p.cached ? "cached" : "measured now");
	}
	if (!r->started)
		r->started = now;
	return r->peak > 0 ? 100 * flops_per_s / r->peak : __builtin_nan("");
}

/* This rank's exchanges by axes: comm/AXES/calls, bytes, exposed_seconds, hidden_seconds, hideable_calls, hideable_bytes. */
static int comm_numbers(tt_run *r, const tt_step_report *s, tt_metrics_scalar *out, int cap)
{
	int n = 0;
	for (int i = 0; i < s->ncomm && n + 6 <= cap; i++) {
		const tt_step_comm *c = &s->comm[i];
		out[n++] = (tt_metrics_scalar){ tt_arena_printf(r->arena, "comm/%s/calls", c->axes), (double)c->calls };
		out[n++] = (tt_metrics_scalar){ tt_arena_printf(r->arena, "comm/%s/bytes", c->axes), (double)c->bytes };
		out[n++] = (tt_metrics_scalar){ tt_arena_printf(r->arena, "comm/%s/exposed_seconds", c->axes), c->exposed };
		out[n++] = (tt_metrics_scalar){ tt_arena_printf(r->arena, "comm/%s/hidden_seconds", c->axes), c->hidden };
		out[n++] = (tt_metrics_scalar){ tt_arena_printf(r->arena, "comm/%s/hideable_calls", c->axes), (double)c->hideable_calls };
		out[n++] = (tt_metrics_scalar){ tt_arena_printf(r->arena, "comm/%s/hideable_bytes", c->axes), (double)c->hideable_bytes };
	}
	return n;
}

static tt_status record_step(tt_run *r, const tt_step_report *s)
{
	double now = tt_now(), seconds = now - r->last_step_end;
	tt_metrics_scalar extra[64 + 6 * TT_STEP_COMMS];
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
	};
	if (logged)
		TT_TRY(group_norms(r, extra, 64, &m.nextra));
	m.nextra += comm_numbers(r, s, extra + m.nextra, TT_COUNT(extra) - m.nextra);
	for (int i = 0; i < s->ncomm; i++) {
		m.comm_exposed += s->comm[i].exposed;
		m.comm_hidden += s->comm[i].hidden;
	}
	tt_metrics_log_step(r->metrics, &m);
	tt_arena_pop(r->arena, mark);
	r->last_step_end = tt_now();
	r->save_seconds = r->validate_seconds = 0;
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
	TT_TRY(record_step(r, &s));
	TT_TRY(tt_run_poll_save(r, false));
	bool last = s.step >= cfg->training.steps;
	/* Before the save: a run that resumes from it must not miss this validation. */
	if (cfg->validation.enable && (s.step == 1 || last || s.step % cfg->validation.freq == 0))
		TT_TRY(validate_step(r));
	if (!last)
		TT_TRY(tt_run_save_due(r));
	*out = s;
	return TT_OK;
}

/* A step has failed: what a save in progress says after that is logged, the first error stays. */
static tt_status step_failed(tt_run *r, tt_status s)
{
	char *text = tt_arena_strdup(r->arena, tt_error_text());
	tt_run_drop_save(r);
	TT_FAIL(s, "%s", text);
}

/* The number of the signal that asks the run to end; 0: none. */
static int asked(const tt_run *r) { return r->io.stop ? (int)*r->io.stop : 0; }

tt_status tt_run_loop(tt_run *r, tt_run_summary *out)
{
	const tt_config *cfg = r->cfg;
	int stop = asked(r);
	bool idle = stop != 0; /* asked during start-up: nothing is new since the last checkpoint */
	while (tt_trainer_steps(r->trainer) < cfg->training.steps && !stop) {
		tt_step_report s;
		tt_status st = tt_run_step(r, &s);
		if (st == TT_ERR_STOP) {
			tt_log(TT_LOG_INFO, "the text ends after step %lld (data.repeat = false)", (long long)tt_trainer_steps(r->trainer));
			break;
		}
		if (st != TT_OK)
			return step_failed(r, st);
		stop = asked(r);
	}
	int64_t step = tt_trainer_steps(r->trainer);
	/* A run that has ended may leave the model alone; one that was stopped goes on later. */
	if (!idle)
		TT_TRY(tt_run_save_last(r, !stop && cfg->checkpoint.last_save_model_only));
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
