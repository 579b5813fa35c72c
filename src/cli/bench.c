/* bench.c: `titan bench`: its flags, and its results as JSON or as Markdown. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/bench.h"
#include "cli/cli.h"

typedef struct bench {
	const char *name;
	tt_status (*run)(tt_arena *a, const tt_bench_options *o, json_t **out);
	void (*md)(const json_t *j, tt_buf *b);
	bool trains; /* takes --preset, --dtype, --steps and config flags */
} bench;

static const bench benches[] = {
	{ "train", tt_bench_train, tt_bench_md_train, true },
	{ "gemm", tt_bench_gemm, tt_bench_md_gemm, false },
	{ "attention", tt_bench_attention, tt_bench_md_attention, false },
	{ "startup", tt_bench_startup, tt_bench_md_startup, false },
	{ "comm", tt_bench_comm, tt_bench_md_comm, false },
	{ "overlap", tt_bench_overlap, tt_bench_md_overlap, true },
	{ "passes", tt_bench_passes, tt_bench_md_passes, true },
};

/* "--name=value", or "--name value" as Python's argparse takes it too: then *i goes on to the value. NULL: another flag. */
static const char *value_of(const char *name, int argc, const char *const *argv, int *i)
{
	size_t n = strlen(name);
	const char *s = argv[*i];
	if (strncmp(s, name, n))
		return NULL;
	if (s[n] == '=')
		return s + n + 1;
	return !s[n] && *i + 1 < argc ? argv[++*i] : NULL;
}

static tt_status number(const char *flag, const char *text, int64_t most, int64_t *out)
{
	char *end;
	long long v = strtoll(text, &end, 10);
	if (end == text || *end || v < 1 || v > most)
		TT_FAIL(TT_ERR_USAGE, "%s=%s: a number from 1 to %lld is needed", flag, text, (long long)most);
	*out = v;
	return TT_OK;
}

static tt_status parse(tt_arena *a, const bench *b, int argc, const char *const *argv, tt_bench_options *o, bool *json)
{
	const char **flags = TT_NEWN(a, const char *, argc + 1), *v;
	o->flags = flags;
	for (int i = 0; i < argc; i++) {
		int64_t n;
		if (!strcmp(argv[i], "--json")) {
			*json = true;
		} else if (!strcmp(argv[i], "--quick") && !b->trains) {
			o->quick = true;
		} else if ((v = value_of("--threads", argc, argv, &i))) {
			TT_TRY(number("--threads", v, 4096, &n));
			o->threads = (int)n;
		} else if (b->run == tt_bench_startup && (v = value_of("--runs", argc, argv, &i))) {
			TT_TRY(number("--runs", v, TT_BENCH_RUNS, &n));
			o->runs = (int)n;
		} else if ((b->run == tt_bench_comm || b->run == tt_bench_overlap) && (v = value_of("--ranks", argc, argv, &i))) {
			TT_TRY(number("--ranks", v, 256, &n));
			o->ranks = (int)n;
		} else if (b->run == tt_bench_overlap && (v = value_of("--mesh", argc, argv, &i))) {
			o->mesh = v;
		} else if (b->run == tt_bench_overlap && (v = value_of("--delay", argc, argv, &i))) {
			TT_TRY(number("--delay", v, 10000000, &o->delay_us));
		} else if (b->trains && (v = value_of("--preset", argc, argv, &i))) {
			o->preset = v;
		} else if (b->trains && (v = value_of("--steps", argc, argv, &i))) {
			TT_TRY(number("--steps", v, 1000000, &o->steps));
		} else if (b->trains && (v = value_of("--dtype", argc, argv, &i))) {
			if (strcmp(v, "bf16") && strcmp(v, "f32"))
				TT_FAIL(TT_ERR_USAGE, "--dtype=%s: there are bf16 and f32", v);
			o->dtype = strcmp(v, "bf16") ? TT_F32 : TT_BF16;
		} else if (b->trains && (b->run == tt_bench_overlap || !strncmp(argv[i], "--", 2))) {
			flags[o->nflags++] = argv[i]; /* the config says what it thinks of it */
		} else {
			TT_FAIL(TT_ERR_USAGE, "titan bench %s does not know \"%s\" (titan bench --help)", b->name, argv[i]);
		}
	}
	return TT_OK;
}

static tt_status run(tt_arena *a, int argc, const char *const *argv)
{
	const char *names[TT_COUNT(benches) + 1], *name = argc ? argv[0] : "";
	const bench *b = NULL;
	int n = 0;
	for (; n < TT_COUNT(benches); n++) {
		names[n] = benches[n].name;
		if (!strcmp(name, names[n]))
			b = &benches[n];
	}
	names[n++] = "report";
	if (!strcmp(name, "report")) {
		if (argc != 2)
			TT_FAIL(TT_ERR_USAGE, "titan bench report needs one folder: that of results");
		TT_TRY(tt_bench_report(a, argv[1]));
		return TT_OK;
	}
	if (!b) {
		const char *near = tt_nearest(name, names, n);
		TT_FAIL(TT_ERR_USAGE, "titan bench \"%s\": there are train, gemm, attention, startup, comm, overlap, passes and report%s%s%s", name,
			near ? ": did you mean " : "", near ? near : "", near ? "?" : "");
	}
	tt_bench_options o = { .preset = "dense-20m", .dtype = TT_BF16, .steps = 8, .isa = tt_isa_detect() };
	bool json = false;
	TT_TRY(parse(a, b, argc - 1, argv + 1, &o, &json));
	json_t *j;
	TT_TRY(b->run(a, &o, &j));
	tt_buf out = { 0 };
	char *text = json && j ? json_dumps(j, JSON_REAL_PRECISION(9)) : NULL;
	if (text)
		tt_buf_printf(&out, "%s\n", text);
	else
		b->md(j, &out);
	tt_cli_print(out.s ? out.s : "");
	free(text);
	tt_buf_fini(&out);
	json_decref(j);
	return TT_OK;
}

tt_status tt_cmd_bench(int argc, const char *const *argv)
{
	tt_arena *a = tt_arena_create("bench");
	tt_status s = run(a, argc, argv);
	tt_arena_destroy(a);
	return s;
}
