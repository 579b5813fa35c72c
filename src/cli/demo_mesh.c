/* demo_mesh.c: the demo's second act: the training of the first goes on from one of its checkpoints, on 8 ranks; then every mesh is proven. */
#include <stdio.h>

#include "ckpt/ckpt.h"
#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/temp.h"
#include "metrics/metrics.h"
#include "train/verify.h"

enum { STEPS = 8, SIDE = 2 }; /* of the second act; ranks along each of three axes */

/* The newest checkpoint that the first run went on from, so that both have the steps after it; -1: there is none. */
static tt_status resume_point(tt_arena *a, const tt_config *cfg, int64_t *out)
{
	int64_t *steps, n;
	*out = -1;
	TT_TRY(tt_ckpt_list(a, NULL, tt_arena_printf(a, "%s/%s", cfg->job.dump_folder, cfg->checkpoint.folder), &steps, &n));
	for (int64_t i = 0; i < n; i++)
		if (steps[i] < cfg->training.steps)
			*out = TT_MAX(*out, steps[i]);
	return TT_OK;
}

/* The same training: what it computes is not touched, where it runs is. */
static tt_config on_a_mesh(tt_arena *a, const tt_config *cfg, int64_t from)
{
	tt_config c = *cfg;
	c.job.dump_folder = tt_arena_printf(a, "%s/on-8-ranks", cfg->job.dump_folder);
	c.job.description = "";
	c.hardware.ranks = SIDE * SIDE * SIDE;
	c.hardware.threads = 0;
	c.parallelism.data_parallel_replicate_degree = 1;
	c.parallelism.data_parallel_shard_degree = c.parallelism.context_parallel_degree = c.parallelism.tensor_parallel_degree = SIDE;
	c.checkpoint.folder = tt_arena_printf(a, "../%s", cfg->checkpoint.folder);
	c.checkpoint.load_step = from;
	c.checkpoint.load_only = true;
	c.lr_scheduler.total_steps = cfg->lr_scheduler.total_steps ? cfg->lr_scheduler.total_steps : cfg->training.steps;
	c.training.steps = TT_MIN(from + STEPS, cfg->training.steps);
	c.validation.enable = false;
	c.metrics.console = TT_CFG_CONSOLE_OFF;
	c.metrics.enable_jsonl = true;
	c.metrics.enable_tensorboard = false;
	return c;
}

/* Loss of a step of a run; NaN: it has none. */
static double loss_at(const tt_metrics_run *r, int64_t step)
{
	for (int64_t i = r->steps.n - 1; i >= 0; i--)
		if (r->steps.step[i] == (double)step)
			return r->steps.values[0][i];
	return __builtin_nan("");
}

static tt_status side_by_side(tt_arena *a, const tt_config *one, const tt_config *many, int64_t from)
{
	static const char *const loss[] = { "loss" };
	tt_metrics_run x, y;
	TT_TRY(tt_metrics_read(a, one->job.dump_folder, loss, 1, &x));
	TT_TRY(tt_metrics_read(a, many->job.dump_folder, loss, 1, &y));
	double most = 0;
	printf("\n  step   loss, 1 rank   loss, 8 ranks\n");
	for (int64_t s = from + 1; s <= many->training.steps; s++) {
		double p = loss_at(&x, s), q = loss_at(&y, s), d = __builtin_fabs(p - q);
		printf("  %4lld   %12.6f   %13.6f\n", (long long)s, p, q);
		most = d > most || d != d ? d : most;
	}
	printf("the largest difference is %.1g: `fast` sums over ranks in another order (debug.numerics = \"exact\" does not depend on it)\n", most);
	return TT_OK;
}

static void differs(void *ctx, const tt_verify_mesh *m)
{
	if (m->finding)
		printf("  %s %s: %s\n", m->error ? "FAILED " : "DIFFERS", tt_verify_mesh_name(ctx, m), m->finding);
}

static tt_status prove(tt_arena *a, const tt_config *cfg)
{
	tt_run_options o;
	tt_cli_temp saves;
	tt_verify_options v = { .ranks = SIDE * SIDE * SIDE, .steps = 2, .stop = tt_cli_stop() };
	tt_verify_result r;
	double t0 = tt_now();
	TT_TRY(tt_run_options_from_config(a, cfg, &o));
	TT_TRY(tt_cli_temp_open(a, "titan-demo", &saves));
	v.folder = saves.folder;
	tt_cli_stop_by_signal(TT_ENDS_MESH);
	printf("\nand with exact numerics, every mesh of 2 to %d ranks against one rank, the model at its smallest (titan verify):\n", v.ranks);
	fflush(stdout);
	tt_status s = tt_verify(a, &o, &v, differs, a, &r);
	tt_cli_temp_close(&saves);
	TT_TRY(s);
	if (r.stopped)
		TT_FAIL(TT_ERR_STOP, "stopped by signal %d, in the proof, after %lld of %lld meshes", r.stopped, (long long)r.n, (long long)r.listed);
	printf("  %lld meshes proven: after each step the loss, the gradient norm and all %lld numbers of %lld tensors have one rank's bits; %lld differ; %lld are not legal; %.0f s\n",
	       (long long)r.proven, (long long)r.numbers, (long long)r.states, (long long)(r.failed - r.refused - r.broken), (long long)r.illegal, tt_now() - t0);
	if (r.failed)
		TT_FAIL(TT_ERR_NUMERIC, "%lld meshes are not %s", (long long)r.failed, r.refused + r.broken ? "proven" : "one rank");
	return TT_OK;
}

tt_status tt_demo_mesh(tt_arena *a, const tt_config *cfg)
{
	tt_run_options o;
	tt_run_summary sum;
	int64_t from = -1;
	if (cfg->checkpoint.enable)
		TT_TRY(resume_point(a, cfg, &from));
	tt_config many = on_a_mesh(a, cfg, from);
	if (from < 0 || !cfg->metrics.enable_jsonl) {
		printf("\nno second act: it goes on from a checkpoint before the last step, and compares losses (checkpoint.interval, metrics.enable_jsonl)\n");
		return TT_OK;
	}
	if (cfg->hardware.ranks > 1 || tt_run_options_from_config(a, &many, &o)) {
		printf("\nno second act: %s\n", cfg->hardware.ranks > 1 ? "the first had ranks already (hardware.ranks)" : tt_error_text());
		return TT_OK;
	}
	printf("\nthe same training goes on from step %lld on 8 ranks, threads that share this machine: parameters sharded over 2, rows cut among 2, heads and hidden units among 2\n\n",
	       (long long)from);
	fflush(stdout);
	TT_TRY(tt_cli_run(&many, 0, false, &sum));
	TT_TRY(side_by_side(a, cfg, &many, from));
	return prove(a, cfg);
}
