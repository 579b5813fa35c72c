/* plot.c: `titan plot`: curves of runs as an SVG file. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "metrics/metrics.h"

typedef struct plot_args {
	const char **runs;
	const char *const *metrics;
	int nruns, nmetrics;
	const char *out;
	tt_plot_options plot;
} plot_args;

static const char *value_of(const char *arg, const char *flag)
{
	size_t n = strlen(flag);
	return !strncmp(arg, flag, n) && arg[n] == '=' ? arg + n + 1 : NULL;
}

static tt_status parse_flag(tt_arena *a, const char *arg, plot_args *out)
{
	static const char *const words[] = { "step", "tokens", "time" };
	const char *v;
	if (!strcmp(arg, "--log")) {
		out->plot.log = true;
	} else if ((v = value_of(arg, "--out"))) {
		if (!*v)
			TT_FAIL(TT_ERR_USAGE, "--out= names no file (--out=plot.svg, or - for the standard output)");
		out->out = v;
	} else if ((v = value_of(arg, "--x"))) {
		int i = 0;
		while (i < TT_COUNT(words) && strcmp(v, words[i]))
			i++;
		if (i == TT_COUNT(words))
			TT_FAIL(TT_ERR_USAGE, "--x=%s: step, tokens and time are known", v);
		out->plot.x = (tt_plot_x)i;
	} else if ((v = value_of(arg, "--smooth"))) {
		char *end;
		long n = strtol(v, &end, 10);
		if (end == v || *end || n < 1 || n > 1000000000)
			TT_FAIL(TT_ERR_USAGE, "--smooth=%s: a number of steps from 1 to 1000000000 is needed", v);
		out->plot.smooth = n;
	} else if ((v = value_of(arg, "--metric"))) {
		out->nmetrics = 0;
		const char **names = TT_NEWN(a, const char *, strlen(v) + 1);
		out->metrics = names;
		for (;; v++) {
			const char *end = strchrnul(v, ',');
			if (end == v)
				TT_FAIL(TT_ERR_USAGE, "%s: an empty name among the metrics", arg);
			names[out->nmetrics++] = tt_arena_strndup(a, v, (size_t)(end - v));
			v = end;
			if (!*end)
				break;
		}
	} else {
		TT_FAIL(TT_ERR_USAGE, "titan plot has no flag %s", arg);
	}
	return TT_OK;
}

/* Numbers of steps that any of the runs has, in the order of the files. */
static const char *all_names(tt_arena *a, const tt_metrics_run *runs, int nruns)
{
	const char *all = "";
	for (int r = 0; r < nruns; r++)
		for (int64_t i = 0; i < runs[r].nnames; i++) {
			const char *name = runs[r].names[i];
			bool told = !strcmp(name, "step") || !strcmp(name, "time") || !strcmp(name, "schema");
			for (int q = 0; q < r && !told; q++)
				for (int64_t k = 0; k < runs[q].nnames && !told; k++)
					told = !strcmp(runs[q].names[k], name);
			if (!told)
				all = tt_arena_printf(a, "%s%s%s", all, *all ? ", " : "", name);
		}
	for (int r = 0; r < nruns; r++)
		if (runs[r].validations.n)
			return tt_arena_printf(a, "%s%sbits_per_token", all, *all ? ", " : "");
	return *all ? all : "none";
}

static tt_status plot_runs(tt_arena *a, int argc, const char *const *argv, tt_buf *svg)
{
	static const char *const usual[] = { "loss", "tokens_per_s" };
	plot_args p = { .runs = TT_NEWN(a, const char *, argc + 1), .metrics = usual, .nmetrics = TT_COUNT(usual), .out = "plot.svg" };
	for (int i = 0; i < argc; i++)
		if (strncmp(argv[i], "--", 2))
			p.runs[p.nruns++] = argv[i];
		else
			TT_TRY(parse_flag(a, argv[i], &p));
	if (!p.nruns)
		TT_FAIL(TT_ERR_USAGE, "titan plot needs at least one run: a folder (job.dump_folder) or its metrics.jsonl");
	tt_metrics_run *runs = TT_NEWN(a, tt_metrics_run, p.nruns);
	long long points = 0;
	for (int i = 0; i < p.nruns; i++) {
		TT_TRY(tt_metrics_read(a, p.runs[i], p.metrics, p.nmetrics, &runs[i]));
		points += (long long)runs[i].steps.n;
		if (!runs[i].steps.n)
			tt_log(TT_LOG_WARN, "%s: has no steps", runs[i].path);
	}
	for (int i = 0; i < p.nmetrics; i++) {
		const char *near = NULL;
		if (!tt_metrics_known(runs, p.nruns, p.metrics[i], &near))
			TT_FAIL(TT_ERR_USAGE, "--metric: no run has %s%s%s; there are %s", p.metrics[i], near ? ": did you mean " : "", near ? tt_arena_printf(a, "%s?", near) : "",
				all_names(a, runs, p.nruns));
	}
	tt_plot_svg(runs, p.nruns, p.metrics, p.nmetrics, &p.plot, svg);
	if (!strcmp(p.out, "-")) {
		tt_cli_print(svg->s);
		return TT_OK;
	}
	TT_TRY(tt_file_write(p.out, svg->s, svg->n));
	printf("%s: %d run%s, %lld steps\n", p.out, p.nruns, p.nruns == 1 ? "" : "s", points);
	return TT_OK;
}

tt_status tt_cmd_plot(int argc, const char *const *argv)
{
	tt_arena *a = tt_arena_create("plot");
	tt_buf svg = { 0 };
	tt_status s = plot_runs(a, argc, argv, &svg);
	tt_buf_fini(&svg);
	tt_arena_destroy(a);
	return s;
}
