/* test_bench.c: `titan bench`: what it prints, not how fast: rounds that count, fields that peers share, tables that follow from results. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "cli/bench.h"
#include "comm/comm.h"
#include "test.h"

/* ---- races ------------------------------------------------------------------------------------------------------------------------------------ */

typedef struct turns { int64_t calls; double seconds; } turns;

static void spin(void *ctx)
{
	turns *t = ctx;
	t->calls++;
	for (double end = tt_now() + t->seconds; tt_now() < end;)
		;
}

/* A machine of which others use two processors all the time. */
static tt_bench_load crowded(void) { return (tt_bench_load){ .wall = tt_now(), .busy = 2 * tt_now(), .own = 0 }; }
/* Only this process works. */
static tt_bench_load alone(void) { return (tt_bench_load){ .wall = tt_now(), .busy = tt_now(), .own = tt_now() }; }

/* A clock that goes on by a second whenever it is read. */
static double ticks(void)
{
	static double now;
	return now += 1;
}

static void race(tt_test *t)
{
	turns slow = { .seconds = 1e-3 }, fast = { .seconds = 1e-4 };
	tt_runner r[] = { { "slow", spin, &slow, 0, 0 }, { "fast", spin, &fast, 0, 0 } };
	tt_race q = { .rounds = 3, .retries = 2, .slice = 1e-3, .quiet = 0.15, .load = alone };
	tt_race_run(&q, r, 2);
	TT_CHECK(t, !q.noisy);
	TT_CHECK_MSG(t, r[0].seconds >= 1e-3 && r[1].seconds >= 1e-4, "%g and %g s", r[0].seconds, r[1].seconds);
	TT_CHECK_INT(t, slow.calls, 2 + 3 * r[0].runs); /* a cold one, one that counts, three rounds */

	slow.calls = 0;
	q.load = crowded;
	tt_race_run(&q, r, 2);
	TT_CHECK(t, q.noisy);
	TT_CHECK_MSG(t, q.others > 1.9 && q.others < 2.1, "%g", q.others);
	TT_CHECK_INT(t, slow.calls, 2 + 5 * r[0].runs); /* two rounds thrown away, then three that count all the same */

	/* Again, in quiet: the better time of the two, and the load of the second. */
	q.load = alone;
	r[1].seconds = 1e-9;
	tt_race_again(&q, r, 2);
	TT_CHECK(t, !q.noisy && r[1].seconds == 1e-9 && r[0].seconds >= 1e-3);
	q.clock = ticks;
	tt_race_run(&q, r, 2);
	TT_CHECK(t, r[0].seconds == 1 && r[1].seconds == 1);
}

static void load(tt_test *t)
{
	tt_bench_load from = { 10, 100, 50 }, to = { 12, 103, 52 }, same = { 12, 102, 52 };
	TT_CHECK_MSG(t, tt_bench_load_others(&from, &to) == 0.5, "%g", tt_bench_load_others(&from, &to));
	TT_CHECK_MSG(t, tt_bench_load_others(&from, &same) == 0, "%g", tt_bench_load_others(&from, &same));
	TT_CHECK_MSG(t, tt_bench_load_others(&from, &from) == 0, "no time has passed");
	tt_bench_load now = tt_bench_load_now();
	TT_CHECK(t, now.own > 0 && now.wall > 0);
	TT_CHECK_MSG(t, now.busy == 0 || now.busy > 0.5 * now.own, "all processes: %g s, this one: %g s", now.busy, now.own);
	double odd[] = { 3, 1, 2 }, even[] = { 4, 1, 3, 2 };
	TT_CHECK(t, tt_bench_median(odd, 3) == 2 && tt_bench_median(even, 4) == 2.5);
}

/* ---- the command -------------------------------------------------------------------------------------------------------------------------------- */

/* What `titan bench ARGUMENTS` prints, with its own folder for measured peaks. */
static char *bench(tt_test *t, const char *arguments, int code)
{
	char *line = tt_arena_printf(t->arena, "XDG_CACHE_HOME=%s build/titan bench %s 2>&1", tt_test_path(t, "cache"), arguments);
	FILE *p = popen(line, "r");
	char *text = tt_arena_alloc(t->arena, 1 << 16);
	size_t n = 0;
	if (!TT_CHECK(t, p != NULL))
		return text;
	for (size_t k; n + 1 < 1 << 16 && (k = fread(text + n, 1, (1 << 16) - 1 - n, p)) > 0;)
		n += k;
	int s = pclose(p);
	TT_CHECK_MSG(t, WIFEXITED(s) && WEXITSTATUS(s) == code, "%s: status %d, want exit code %d: %s", line, s, code, text);
	return text;
}

static json_t *parse(tt_test *t, const char *text)
{
	json_error_t e;
	json_t *j = json_loads(text, 0, &e);
	TT_CHECK_MSG(t, json_is_object(j), "no JSON object: %s: %s", e.text, text);
	return j;
}

/* Names within the tuple FIELDS of the peer's source. */
static int peer_fields(tt_test *t, const char *out[], int cap)
{
	char *text, *save = NULL;
	size_t size;
	int n = 0;
	TT_CHECK_OK(t, tt_file_read(t->arena, "bench/peers/torch_train.py", &text, &size));
	char *from = strstr(text, "\nFIELDS = ("), *to = from ? strchr(from, ')') : NULL;
	if (!TT_CHECK_MSG(t, to, "the peer has no FIELDS"))
		return 0;
	*to = 0;
	strtok_r(strchr(from, '('), "\"", &save); /* names are every second piece between quotes */
	for (char *s = strtok_r(NULL, "\"", &save); s && n < cap; strtok_r(NULL, "\"", &save), s = strtok_r(NULL, "\"", &save))
		out[n++] = s;
	return n;
}

static void train(tt_test *t)
{
	const char *fields[32];
	int n = peer_fields(t, fields, TT_COUNT(fields));
	TT_CHECK_MSG(t, n >= 14, "%d fields", n);
	for (int f32 = 0; f32 < 2; f32++) {
		/* as the peer's flags are written, and as ours are */
		json_t *j = parse(t, bench(t, f32 ? "train --preset=debug --dtype=f32 --steps=1 --threads=1 --json" : "train --preset debug --steps 2 --json", 0));
		for (int i = 0; i < n; i++)
			TT_CHECK_MSG(t, json_object_get(j, fields[i]), "the peer's %s is missing", fields[i]);
		TT_CHECK_STR(t, json_string_value(json_object_get(j, "dtype")), f32 ? "f32" : "bf16");
		TT_CHECK_INT(t, json_integer_value(json_object_get(j, "params")), 131392);
		TT_CHECK_INT(t, json_integer_value(json_object_get(j, "tokens_per_step")), 1024);
		TT_CHECK(t, json_number_value(json_object_get(j, "mfu")) > 0 && json_number_value(json_object_get(j, "first_step_s")) > 0);
		double rate = json_number_value(json_object_get(j, "tokens_per_s")), step = json_number_value(json_object_get(j, "step_s"));
		TT_CHECK_MSG(t, rate * step > 900 && rate * step < 1150, "%g tokens/s in %g s", rate, step);
		double loss = json_number_value(json_object_get(j, "loss_first"));
		TT_CHECK_MSG(t, loss > 4 && loss < 8, "%g", loss);
		json_decref(j);
	}
}

static void startup(tt_test *t)
{
	json_t *j = parse(t, bench(t, "startup --runs=1 --json", 0)), *r;
	size_t i;
	TT_CHECK_INT(t, json_array_size(json_object_get(j, "rows")), 2);
	json_array_foreach(json_object_get(j, "rows"), i, r) {
		static const char *const parts[] = { "parse", "build", "compile", "jit", "init", "first rows", "load and rest" };
		json_t *p = json_object_get(r, "parts");
		for (int k = 0; k < TT_COUNT(parts); k++)
			TT_CHECK_MSG(t, json_is_number(json_object_get(p, parts[k])), "no part %s", parts[k]);
		/* The run's own parts are within what was seen from outside. */
		double rest = json_number_value(json_object_get(p, "load and rest")), all = json_number_value(json_object_get(r, "median_s"));
		TT_CHECK_MSG(t, rest > 0 && rest < all, "%g s of %g s", rest, all);
	}
	json_decref(j);
}

/* A delay is slept, so a step has at least that of each exchange of a lane, one after the other; without overlap there is one lane. */
static void overlap(tt_test *t)
{
	static const struct { const char *arguments; int rows; } runs[] = {
		{ "overlap --preset=debug --ranks=2 --steps=1 --delay=1000 --json", 6 }, { "overlap configs/debug.toml --ranks=4 --mesh=hsdp --steps=1 --delay=2000 --json", 1 },
	};
	for (int i = 0; i < TT_COUNT(runs); i++) {
		json_t *j = parse(t, bench(t, runs[i].arguments, 0)), *r;
		size_t k;
		TT_CHECK_INT(t, json_array_size(json_object_get(j, "rows")), runs[i].rows);
		json_array_foreach(json_object_get(j, "rows"), k, r) {
#define REAL(key) json_number_value(json_object_get(r, key))
			double delay = REAL("delay_s"), calls = REAL("calls"), without = REAL("calls_without");
			TT_CHECK_MSG(t, delay == (i ? 2e-3 : 1e-3) && calls > 0 && calls < without && REAL("hideable") > 0 && REAL("hideable") < calls && REAL("step_delayed_s") >= calls * delay / TT_COMM_LANES &&
					     REAL("step_delayed_without_s") >= without * delay && REAL("step_s") > 0 && REAL("step_without_s") > 0,
				     "%s", json_dumps(r, 0));
#undef REAL
		}
		json_decref(j);
	}
	TT_CHECK(t, strstr(bench(t, "overlap --preset=debug --mesh=fdsp --steps=1", 2), "there are FSDP, HSDP"));
	TT_CHECK(t, strstr(bench(t, "overlap --preset=debug --ranks=1", 2), "two ranks at least"));
	TT_CHECK(t, strstr(bench(t, "overlap --preset=debug --mesh=fsdp --steps=1", 0), "| FSDP | "));
}

static void messages(tt_test *t)
{
	static const struct { const char *arguments, *part; } cases[] = {
		{ "trian", "did you mean train?" }, { "", "there are train, gemm" }, { "train --preset=dense-200m", "did you mean dense-20m?" },
		{ "train --dtype=f16", "bf16 and f32" }, { "train --steps=0", "a number from 1" }, { "train --training.stepz=3", "did you mean" },
		{ "gemm --steps=3", "does not know" }, { "startup extra", "does not know" }, { "report", "one folder" },
		{ "report src", "holds no results" },
	};
	for (int i = 0; i < TT_COUNT(cases); i++) {
		const char *text = bench(t, cases[i].arguments, 2);
		TT_CHECK_MSG(t, strstr(text, cases[i].part), "bench %s: no \"%s\" in: %s", cases[i].arguments, cases[i].part, text);
	}
	TT_CHECK(t, strstr(bench(t, "train --preset=debug --steps=1", 0), "| debug | bf16 | titan.c"));
	TT_CHECK(t, strstr(bench(t, "passes --preset=debug --steps=1", 0), "planned memory"));
	const char *text = bench(t, "passes --preset=debug --steps=1 --training.loss_chunks=2 --training.tokens_per_microbatch=512", 0);
	TT_CHECK_MSG(t, strstr(text, "| `--training.loss_chunks=2` |") && strstr(text, "| `--training.tokens_per_microbatch=512` |"), "%s", text);
}

/* ---- in this process: a shape, a length ------------------------------------------------------------------------------------------------------------ */

static void kernels(tt_test *t)
{
	static const tt_product_shape one[] = { { 70, 96, 64, false }, { 3, 64, 96, false }, { 0 } };
	static const tt_attention_shape row[] = { { 256, 16, 4, 2, false }, { 0 } };
	tt_bench_options o = { .threads = 2, .isa = tt_isa_detect(), .rounds = 1, .slice = 1e-4, .shapes = one, .attention = row };
	json_t *j;
	if (!TT_CHECK_OK(t, tt_bench_gemm(t->arena, &o, &j)))
		return;
	json_t *rows = json_object_get(j, "rows"), *r;
	size_t i;
	TT_CHECK_INT(t, json_array_size(rows), 2 * 2 * 2); /* shapes, dtypes, one thread and all */
	json_array_foreach(rows, i, r) {
		TT_CHECK(t, json_number_value(json_object_get(r, "forward")) > 0 && json_number_value(json_object_get(r, "segments")) > 0);
		TT_CHECK(t, json_number_value(json_object_get(r, "dx")) > 0);
		TT_CHECK_INT(t, json_object_get(r, "dw") != NULL, json_integer_value(json_object_get(r, "m")) >= 64);
	}
	TT_CHECK(t, json_number_value(json_object_get(json_object_get(j, "peak_gflops"), "f32_one")) > 0);
	json_decref(j);
	if (!TT_CHECK_OK(t, tt_bench_attention(t->arena, &o, &j)))
		return;
	rows = json_object_get(j, "rows");
	TT_CHECK_INT(t, json_array_size(rows), 2);
	json_array_foreach(rows, i, r) {
		TT_CHECK(t, json_number_value(json_object_get(r, "forward")) > 0 && json_number_value(json_object_get(r, "backward")) > 0);
		double pairs = json_number_value(json_object_get(r, "pairs_8"));
		TT_CHECK_MSG(t, pairs == 8.0 * 32 * 33 / (256.0 * 257), "%g of the pairs", pairs);
	}
	json_decref(j);
}

/* ---- the report -------------------------------------------------------------------------------------------------------------------------------------- */

static void put(tt_test *t, const char *folder, const char *name, const char *text)
{
	TT_CHECK_OK(t, tt_file_write(tt_arena_printf(t->arena, "%s/%s", folder, name), text, strlen(text)));
}

static const char *get(tt_test *t, const char *folder, const char *name)
{
	char *text = "";
	size_t n;
	TT_CHECK_OK(t, tt_file_read(t->arena, tt_arena_printf(t->arena, "%s/%s", folder, name), &text, &n));
	return text;
}

static void has(tt_test *t, const char *text, const char *part) { TT_CHECK_MSG(t, strstr(text, part), "no \"%s\" in: %s", part, text); }

static void report(tt_test *t)
{
	const char *folder = tt_test_path(t, "results");
	TT_CHECK_OK(t, tt_mkdirs(folder));
	/* Ours twice: the faster counts. The peers' faster one is the slower in memory. */
	put(t, folder, "train.jsonl",
	    "{\"peer\":\"titan.c 1\",\"preset\":\"p\",\"dtype\":\"bf16\",\"threads\":2,\"tokens_per_s\":900,\"mfu\":50,\"peak_rss_mib\":100}\n"
	    "{\"peer\":\"torch <eager>\",\"preset\":\"p\",\"dtype\":\"bf16\",\"threads\":2,\"tokens_per_s\":400,\"peak_rss_mib\":200}\n"
	    "{\"peer\":\"torch compile\",\"preset\":\"p\",\"dtype\":\"bf16\",\"threads\":2,\"tokens_per_s\":500,\"peak_rss_mib\":400}\n"
	    "{\"peer\":\"titan.c 1\",\"preset\":\"p\",\"dtype\":\"bf16\",\"threads\":2,\"tokens_per_s\":1000,\"mfu\":55,\"peak_rss_mib\":100}\n");
	put(t, folder, "gemm.json",
	    "{\"peer\":\"titan.c 1\",\"threads\":2,\"peak_gflops\":{\"f32_one\":100,\"f32_all\":200},\"rows\":["
	    "{\"m\":2048,\"n\":8,\"k\":8,\"dtype\":\"f32\",\"threads\":1,\"forward\":80,\"segments\":60,\"dx\":90,\"dw\":70},"
	    "{\"m\":2048,\"n\":9,\"k\":8,\"dtype\":\"f32\",\"threads\":1,\"forward\":20,\"segments\":20,\"dx\":90,\"dw\":70,\"noisy\":true,\"others\":0.5},"
	    "{\"m\":1,\"n\":8,\"k\":8,\"dtype\":\"f32\",\"threads\":2,\"forward\":10,\"segments\":8,\"dx\":5}]}");
	put(t, folder, "onednn.json",
	    "{\"peer\":\"titan.c 1\",\"other\":\"oneDNN 2\",\"threads\":2,\"rows\":[{\"m\":1,\"n\":8,\"k\":8,\"dtype\":\"f32\",\"threads\":1,\"forward\":60,"
	    "\"segments\":45,\"forward_any\":50,\"forward_plain\":20,\"dx\":10,\"dx_any\":10,\"dx_plain\":40}]}");
	put(t, folder, "startup.json", "{\"rows\":[{\"preset\":\"p\",\"median_s\":0.125,\"least_s\":0.1,\"parts\":{\"build\":0.0625}}]}");
	if (!TT_CHECK_OK(t, tt_bench_report(t->arena, folder)))
		return;
	const char *md = get(t, folder, "bench.md");
	has(t, md, "| p | bf16 | 1000 | torch compile, 500 | 2.00 | 0.50 |");
	has(t, md, "| 2048, 8, 8 | f32 | 1 | 80 | 80 | 60 | 0.750 | 90 | 90 | 70 | 70 | |");
	has(t, md, "| noisy: others used 0.50 cores |");
	has(t, md, "| 1, 8, 8 | f32 | 2 | 10 | 5 | 8 | 0.800 | 5 | 2 |  |  | |"); /* of the peak of two threads; no dW */
	has(t, md, "| f32 | 1 | 40.0 | 20.0 | 90.0 | 90.0 | 70.0 | 70.0 | 0.866 | 0.750 |"); /* 80 and 20: 40; the row of one token is left out */
	has(t, md, "| 60 | 50 | 1.20 | 10 | 40 | 0.25 |  |  |  | 45 | 0.90 | 3.00 | 0.25 | |");
	has(t, md, "| f32 | 1 | 1.200 | 1.200 | 0.250 | 0.250 |  |  | 0.900 | 0.900 | 0.548 | 0.250 |"); /* all: of 1.2 and 0.25 */
	has(t, md, "| 1 to 4 | f32 | 1 | 3.00 | 3.00 |");
	has(t, md, "| p | 125.0 | 100.0 | 62.5 | |");
	TT_CHECK(t, !strstr(md, "## Attention"));
	const char *svg = get(t, folder, "bench.svg");
	has(t, svg, "torch ?eager?");
	has(t, svg, "x=\"300\" y=\"92\" width=\"420.0\" height=\"18\"/><text x=\"726.0\" y=\"105\">1000</text>");
	TT_CHECK(t, !strstr(svg, ">900<"));
	json_t *all = parse(t, get(t, folder, "bench.json"));
	TT_CHECK_INT(t, json_array_size(json_object_get(all, "train")), 4);
	json_decref(all);
	put(t, folder, "gemm.json", "{\"rows\":");
	TT_CHECK_FAILS(t, tt_bench_report(t->arena, folder), TT_ERR_FORMAT, "gemm.json:1: no JSON object");
	put(t, folder, "gemm.json", "{}");
	put(t, folder, "attention.json", "{\"rows\":[7,{\"tokens\":\"many\"},null]}");
	TT_CHECK_OK(t, tt_bench_report(t->arena, folder)); /* what is not there shows as nothing */
}

const tt_case tt_suite_bench[] = {
	{ "race", race, TT_TIER_QUICK },
	{ "load", load, TT_TIER_QUICK },
	{ "train", train, TT_TIER_QUICK },
	{ "startup", startup, TT_TIER_QUICK },
	{ "overlap", overlap, TT_TIER_QUICK },
	{ "messages", messages, TT_TIER_QUICK },
	{ "kernels", kernels, TT_TIER_QUICK },
	{ "report", report, TT_TIER_QUICK },
	{ 0 },
};
