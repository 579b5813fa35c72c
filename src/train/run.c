/* run.c: the loop around the steps, and what it says. */
#include <stdio.h>

#include "train/train.h"

static const double ln2 = 0.693147180559945309417;

static tt_status dump(tt_trainer *t, const tt_config *cfg, tt_train_io *io)
{
	for (int i = 0; i < cfg->debug.dump.n; i++) {
		const char *what = cfg->debug.dump.items[i];
		tt_buf b = { 0 };
		if (!strcmp(what, "graph")) {
			tt_graph_print(tt_trainer_graph(t), &b);
		} else if (!strcmp(what, "program")) {
			for (int s = 0; s < TT_NSEGS; s++)
				if (tt_exec_has(tt_trainer_exec(t), (tt_segment)s))
					tt_exec_print_program(tt_trainer_exec(t), (tt_segment)s, &b);
		} else {
			tt_exec_print_memory(tt_trainer_exec(t), &b);
		}
		if (b.s && io->print)
			io->print(b.s);
		tt_buf_fini(&b);
	}
	return TT_OK;
}

static void log_start(tt_trainer *t, const tt_run_options *o, const tt_config *cfg, const tt_train_io *io)
{
	tt_data_info d = tt_data_describe(tt_trainer_data(t));
	if (cfg->job.description[0])
		tt_log(TT_LOG_INFO, "%s", cfg->job.description);
	tt_log(TT_LOG_INFO, "model %s: %.2f M parameters, %s compute, %s numerics, %s kernels, isa %s, %d threads",
	       cfg->model.hf_config[0] ? cfg->model.hf_config : cfg->model.flavor, (double)tt_trainer_params(t) / 1e6, tt_dtype_name(o->compute),
	       o->exec.numerics == TT_EXACT ? "exact" : "fast", o->exec.kernels_ref ? "reference" : "fast", tt_isa_name(o->exec.isa), o->exec.threads);
	if (d.documents)
		tt_log(TT_LOG_INFO, "data: %lld documents, %.2f M tokens; held out: %lld documents, %.2f M tokens", (long long)d.documents, (double)d.tokens / 1e6,
		       (long long)d.valid_documents, (double)d.valid_tokens / 1e6);
	double planned = 0;
	for (int r = 0; r < TT_EXEC_NREGIONS; r++)
		planned += (double)tt_exec_planned(tt_trainer_exec(t), r);
	const tt_startup *s = tt_trainer_startup(t);
	tt_log(TT_LOG_INFO, "memory planned: %.1f MiB", planned / (double)TT_MIB);
	tt_log(TT_LOG_INFO, "start-up: parse %.1f ms, data %.1f, build %.1f, compile %.1f, JIT %.1f, allocate %.1f, touch and fill %.1f",
	       io->parse_seconds * 1e3, s->data * 1e3, s->build * 1e3, s->compile * 1e3, s->jit * 1e3, s->allocate * 1e3, s->init * 1e3);
}

static tt_status validate(tt_trainer *t, const tt_config *cfg, int64_t step, bool last, tt_train_io *io)
{
	double sum;
	int64_t valid;
	int64_t rows = cfg->validation.steps > 0 && !(last && io->valid_whole) ? cfg->validation.steps * tt_data_rows_per_step(tt_trainer_data(t)) : 0;
	double t0 = tt_now();
	TT_TRY(tt_trainer_validate(t, rows, &sum, &valid));
	if (!valid) {
		tt_log(TT_LOG_WARN, "validation has no tokens");
		return TT_OK;
	}
	io->valid_bits = sum / ln2;
	io->valid_predicted = valid;
	tt_log(TT_LOG_INFO, "step %6lld  validation loss %.4f  bits per token %.4f  (%lld tokens, %.1f s)", (long long)step, sum / (double)valid,
	       io->valid_bits / (double)valid, (long long)valid, tt_now() - t0);
	return TT_OK;
}

static tt_status loop(tt_trainer *t, const tt_config *cfg, tt_train_io *io)
{
	int64_t steps = cfg->training.steps;
	double tokens = 0, seconds = 0;
	for (int64_t s = 1; s <= steps; s++) {
		tt_step_report r;
		tt_status st = tt_trainer_step(t, &r);
		if (st == TT_ERR_STOP) {
			tt_log(TT_LOG_INFO, "the text ends after step %lld (data.repeat = false)", (long long)s - 1);
			steps = s - 1;
		} else {
			TT_TRY(st);
			tokens += (double)r.tokens;
			seconds += r.seconds;
			if (s == 1 || s == steps || s % cfg->metrics.log_freq == 0) {
				tt_log(TT_LOG_INFO, "step %6lld  loss %8.4f  grad_norm %8.4f  lr %.3e  %8.0f tokens/s", (long long)s, r.loss, r.grad_norm, r.lr,
				       tokens / seconds);
				tokens = seconds = 0;
			}
		}
		bool last = s >= steps;
		if (cfg->validation.enable && (s == 1 || last || s % cfg->validation.freq == 0))
			TT_TRY(validate(t, cfg, TT_MIN(s, steps), last, io));
		if (last)
			break;
	}
	return TT_OK;
}

tt_status tt_train_run(const tt_config *cfg, tt_train_io *io)
{
	tt_arena *a = tt_arena_create("run");
	tt_run_options o;
	tt_trainer *t = NULL;
	io->valid_bits = __builtin_nan("");
	tt_status s = tt_run_options_from_config(a, cfg, &o);
	tt_buf passes = { 0 };
	if (s == TT_OK) {
		o.dump_out = &passes;
		s = tt_trainer_create(&o, &t);
	}
	if (passes.s && io->print)
		io->print(passes.s);
	tt_buf_fini(&passes);
	if (s == TT_OK) {
		tt_data_info d = tt_data_describe(tt_trainer_data(t));
		io->valid_documents = d.valid_documents;
		io->valid_tokens = d.valid_tokens;
		log_start(t, &o, cfg, io);
		s = dump(t, cfg, io);
	}
	if (s == TT_OK)
		s = loop(t, cfg, io);
	if (s == TT_OK && cfg->profiling.enable && io->print) {
		tt_buf b = { 0 };
		tt_exec_print_profile(tt_trainer_exec(t), &b);
		io->print(b.s ? b.s : "");
		tt_buf_fini(&b);
	}
	tt_trainer_destroy(t);
	tt_arena_destroy(a);
	TT_TRY(s);
	return TT_OK;
}
