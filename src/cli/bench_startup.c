/* bench_startup.c: `titan bench startup`: from fork and exec to the first instruction of step 1, in processes of their own.
 *
 * The process is `titan train`, watched from outside: its line "start-up: ..." says that everything is built, and metrics.jsonl has the parts
 * that the run itself measured, and the data of step 1, which come before the step's first instruction.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/version.h"
#include "cli/bench.h"

enum { PARTS = 16 };

/* One process: seconds of the whole, of parts by the names that the run gave them. */
typedef struct sample {
	double total;
	int n;
	struct { char name[24]; double seconds; } part[PARTS];
} sample;

/* Reads the child's standard error to its end; when "start-up:" was read, and the last of it for a message. */
static double watch(int from, char last[512])
{
	char text[8192];
	size_t n = 0;
	double at = 0;
	for (;;) {
		ssize_t r = read(from, text + n, sizeof text - 1 - n);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			break;
		double now = tt_now();
		n += (size_t)r;
		text[n] = 0;
		if (!at && strstr(text, "start-up:"))
			at = now;
		if (n > sizeof text / 2) { /* the beginning is never needed again */
			memmove(text, text + n - 512, 512);
			n = 512;
		}
	}
	text[n] = 0;
	size_t most = TT_MIN(n, (size_t)511);
	memcpy(last, text + n - most, most);
	last[most] = 0;
	return at;
}

static tt_status run_child(const char *const *argv, double *total)
{
	int p[2];
	if (pipe2(p, O_CLOEXEC))
		TT_FAIL(TT_ERR_IO, "pipe: %s", strerror(errno));
	double t0 = tt_now();
	pid_t pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);
		dup2(null, STDIN_FILENO);
		dup2(null, STDOUT_FILENO);
		dup2(p[1], STDERR_FILENO);
		execv("/proc/self/exe", (char *const *)argv);
		_exit(127);
	}
	close(p[1]);
	if (pid < 0) {
		close(p[0]);
		TT_FAIL(TT_ERR_IO, "fork: %s", strerror(errno));
	}
	char last[512];
	int status = 0;
	double at = watch(p[0], last);
	close(p[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!at || !WIFEXITED(status) || WEXITSTATUS(status))
		TT_FAIL(TT_ERR_IO, "titan train, as a process of its own, ended with status %d: %s", status, last);
	*total = at - t0;
	return TT_OK;
}

/* The parts of event "start", and the data of step 1. */
static tt_status read_parts(tt_arena *a, const char *folder, sample *s)
{
	char *text, *line, *save = NULL;
	size_t n;
	const char *path = tt_arena_printf(a, "%s/metrics.jsonl", folder);
	TT_TRY(tt_file_read(a, path, &text, &n));
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		json_t *j = json_loads(line, 0, NULL), *extra = json_object_get(j, "extra"), *v;
		const char *event = json_string_value(json_object_get(j, "event")), *key;
		if (event && !strcmp(event, "start"))
			json_object_foreach(extra, key, v)
				if (json_is_number(v) && s->n < PARTS - 1) {
					snprintf(s->part[s->n].name, sizeof s->part[0].name, "%s", key);
					s->part[s->n++].seconds = json_number_value(v);
				}
		if (json_integer_value(json_object_get(j, "step")) == 1 && (v = json_object_get(j, "data_seconds"))) {
			snprintf(s->part[s->n].name, sizeof s->part[0].name, "first rows");
			s->part[s->n++].seconds = json_number_value(v);
			s->total += json_number_value(v);
		}
		json_decref(j);
	}
	return TT_OK;
}

static tt_status measure(tt_arena *a, const tt_bench_preset *p, const tt_bench_options *o, sample *out)
{
	const char **flags;
	char *folder;
	int n, k = 0;
	TT_TRY(tt_fs_temp(a, "titan-startup", &folder));
	tt_bench_preset_flags(a, p, o->dtype, 1, o->threads, &flags, &n);
	const char **argv = TT_NEWN(a, const char *, n + o->nflags + 5);
	argv[k++] = "titan";
	argv[k++] = "train";
	for (int i = 0; i < n; i++)
		argv[k++] = flags[i];
	for (int i = 0; i < o->nflags; i++)
		argv[k++] = o->flags[i];
	argv[k++] = tt_arena_printf(a, "--job.dump_folder=%s", folder);
	argv[k++] = "--metrics.console=plain";
	sample s = { 0 };
	tt_status status = run_child(argv, &s.total);
	if (status == TT_OK)
		status = read_parts(a, folder, &s);
	tt_fs_temp_remove(folder);
	TT_TRY(status);
	*out = s;
	return TT_OK;
}

/* Median of the whole, and of each part; what no part has is loading the program and the libraries, and what lies between parts. */
static json_t *row_of(const char *preset, const sample *s, int n, bool noisy, double others)
{
	double v[TT_BENCH_RUNS], least = s[0].total;
	json_t *parts = json_object();
	double sum = 0;
	for (int k = 0; k < s[0].n; k++) {
		for (int i = 0; i < n; i++)
			v[i] = s[i].part[k].seconds;
		double m = tt_bench_median(v, n);
		sum += m;
		json_object_set_new(parts, s[0].part[k].name, json_real(m));
	}
	for (int i = 0; i < n; i++) {
		v[i] = s[i].total;
		least = TT_MIN(least, v[i]);
	}
	double total = tt_bench_median(v, n);
	json_object_set_new(parts, "load and rest", json_real(total - sum));
	return json_pack("{s:s, s:i, s:f, s:f, s:o, s:f, s:b}", "preset", preset, "processes", n, "median_s", total, "least_s", least, "parts", parts, "others",
			 others, "noisy", noisy);
}

tt_status tt_bench_startup(tt_arena *a, const tt_bench_options *o, json_t **out)
{
	static const char *const presets[] = { "dense-20m", "debug" };
	sample s[TT_BENCH_RUNS];
	int runs = o->runs ? o->runs : 10;
	TT_ASSERT(runs <= TT_BENCH_RUNS);
	json_t *rows = json_array();
	for (int i = 0; i < TT_COUNT(presets); i++) {
		const tt_bench_preset *p = NULL;
		tt_status status = tt_bench_preset_find(presets[i], &p);
		tt_bench_load from = tt_bench_load_now();
		for (int k = 0; k < runs && status == TT_OK; k++)
			status = measure(a, p, o, &s[k]);
		if (status != TT_OK) {
			json_decref(rows);
			TT_TRY(status);
		}
		tt_bench_load to = tt_bench_load_now();
		double others = tt_bench_load_others(&from, &to);
		json_array_append_new(rows, row_of(presets[i], s, runs, others > tt_race_of(1).quiet, others));
	}
	*out = json_pack("{s:s, s:s, s:o}", "bench", "startup", "peer", "titan.c " TT_VERSION, "rows", rows);
	return TT_OK;
}
