/* read.c: metrics.jsonl as columns. */
#include <jansson.h>
#include <math.h>
#include <sys/stat.h>

#include "metrics/internal.h"

typedef struct reader {
	tt_arena *a;
	const char *const *metrics;
	int nmetrics;
	tt_metrics_run *run;
	int64_t line;
	double seconds; /* sum of the steps' */
} reader;

static const char *last_part(tt_arena *a, const char *path)
{
	size_t n = strlen(path);
	while (n > 1 && path[n - 1] == '/')
		n--;
	size_t at = n;
	while (at > 0 && path[at - 1] != '/')
		at--;
	return at < n ? tt_arena_strndup(a, path + at, n - at) : path;
}

static double number_of(const json_t *line, const char *key)
{
	const json_t *v = json_object_get(line, key);
	if (!v)
		v = json_object_get(json_object_get(line, "extra"), key);
	return json_is_number(v) ? json_number_value(v) : json_is_boolean(v) ? json_is_true(v) : NAN;
}

/* Arrays of one capacity, so that they grow together. */
static void points_push(reader *r, tt_metrics_points *p, const json_t *line, double step, double tokens, double seconds)
{
	if (p->n == p->cap) {
		double **const columns[] = { &p->step, &p->tokens, &p->seconds };
		int64_t cap = p->cap;
		for (int i = 0; i < TT_COUNT(columns) + r->nmetrics; i++) {
			double **c = i < TT_COUNT(columns) ? columns[i] : &p->values[i - TT_COUNT(columns)];
			cap = p->cap;
			*c = tt_arena_grow(r->a, *c, p->n, &cap, sizeof **c);
		}
		p->cap = cap;
	}
	p->step[p->n] = step;
	p->tokens[p->n] = tokens;
	p->seconds[p->n] = seconds;
	for (int i = 0; i < r->nmetrics; i++)
		p->values[i][p->n] = number_of(line, r->metrics[i]);
	p->n++;
}

static void add_names(reader *r, const json_t *object)
{
	const char *key;
	json_t *v;
	json_object_foreach((json_t *)(uintptr_t)object, key, v) {
		bool seen = !json_is_number(v);
		for (int64_t i = 0; i < r->run->nnames && !seen; i++)
			seen = !strcmp(r->run->names[i], key);
		if (!seen) {
			const char *name = tt_arena_strdup(r->a, key);
			TT_PUSH(r->a, r->run->names, r->run->nnames, r->run->cap_names, name);
		}
	}
}

static tt_status add_line(reader *r, const json_t *line)
{
	tt_metrics_run *run = r->run;
	const char *type = json_string_value(json_object_get(line, "type"));
	bool is_step = type && !strcmp(type, "step");
	const json_t *schema = json_object_get(line, "schema"), *step_value = json_object_get(line, "step");
	if (schema && (!json_is_integer(schema) || json_integer_value(schema) > TT_METRICS_SCHEMA || json_integer_value(schema) < 1))
		TT_FAIL(TT_ERR_FORMAT, "%s:%lld: schema %s%lld, this version reads up to %d", run->path, (long long)r->line,
			json_is_integer(schema) ? "" : "is no integer: ", (long long)json_integer_value(schema), TT_METRICS_SCHEMA);
	if (!is_step && !(type && !strcmp(type, "validation")))
		return TT_OK;
	if (!json_is_integer(step_value))
		TT_FAIL(TT_ERR_FORMAT, "%s:%lld: a line of type \"%s\" without an integer \"step\"", run->path, (long long)r->line, type);
	double step = (double)json_integer_value(step_value);
	/* A file that was not cut when its run resumed tells some steps twice. */
	tt_metrics_points *s = &run->steps, *v = &run->validations;
	if (is_step) {
		while (s->n && s->step[s->n - 1] >= step)
			s->n--;
		while (v->n && v->step[v->n - 1] >= step)
			v->n--;
		double tokens = number_of(line, "tokens_seen"), spent = number_of(line, "seconds");
		double before = s->n ? s->seconds[s->n - 1] : 0;
		points_push(r, s, line, step, tokens, before + (isfinite(spent) ? spent : 0));
		if (s->n == 1 || json_object_get(line, "extra")) {
			add_names(r, line);
			add_names(r, json_object_get(line, "extra"));
		}
	} else {
		while (v->n && v->step[v->n - 1] >= step)
			v->n--;
		points_push(r, v, line, step, s->n ? s->tokens[s->n - 1] : 0, s->n ? s->seconds[s->n - 1] : 0);
	}
	return TT_OK;
}

static tt_status read_lines(reader *r, const char *p, size_t n)
{
	for (const char *end = p + n; p < end; r->line++) {
		const char *stop = memchr(p, '\n', (size_t)(end - p));
		json_error_t e;
		json_t *line = json_loadb(p, (size_t)((stop ? stop : end) - p), JSON_REJECT_DUPLICATES, &e);
		if (!json_is_object(line)) {
			bool parsed = line;
			json_decref(line);
			if (!stop)
				return TT_OK; /* the run was killed here */
			if (parsed)
				TT_FAIL(TT_ERR_FORMAT, "%s:%lld: not a JSON object", r->run->path, (long long)r->line);
			TT_FAIL(TT_ERR_FORMAT, "%s:%lld:%d: broken JSON: %s (delete the line to plot the rest)", r->run->path, (long long)r->line,
				e.column, e.text);
		}
		tt_status s = add_line(r, line);
		json_decref(line);
		TT_TRY(s);
		p = stop ? stop + 1 : end;
	}
	return TT_OK;
}

tt_status tt_metrics_read(tt_arena *a, const char *path, const char *const *metrics, int nmetrics, tt_metrics_run *out)
{
	tt_metrics_run run = { .name = last_part(a, path), .path = path };
	struct stat st;
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		run.path = tt_arena_printf(a, "%s%smetrics.jsonl", path, path[0] && path[strlen(path) - 1] == '/' ? "" : "/");
		if (stat(run.path, &st) != 0)
			TT_FAIL(TT_ERR_IO, "%s: has no metrics.jsonl (a run's folder is its job.dump_folder; the file is written with metrics.enable_jsonl = true)",
				path);
	}
	run.steps.values = TT_NEWN(a, double *, nmetrics + 1);
	run.validations.values = TT_NEWN(a, double *, nmetrics + 1);
	tt_map map;
	TT_TRY(tt_map_open(run.path, &map));
	reader r = { .a = a, .metrics = metrics, .nmetrics = nmetrics, .run = &run, .line = 1 };
	tt_status s = read_lines(&r, (const char *)map.p, map.n);
	tt_map_close(&map);
	TT_TRY(s);
	*out = run;
	return TT_OK;
}

const char *tt_metrics_known(const tt_metrics_run *runs, int nruns, const char *metric, const char **near)
{
	const char *names[64];
	int n = 0;
	for (int i = 0; i < tt_metrics_nfields; i++) {
		names[n++] = tt_metrics_fields[i].key;
		if (!strcmp(metric, tt_metrics_fields[i].key))
			return tt_metrics_fields[i].key;
	}
	names[n++] = "bits_per_token"; /* of validations */
	if (!strcmp(metric, "bits_per_token"))
		return "bits_per_token";
	*near = tt_nearest(metric, names, n);
	for (int r = 0; r < nruns; r++) {
		for (int64_t i = 0; i < runs[r].nnames; i++)
			if (!strcmp(metric, runs[r].names[i]))
				return runs[r].names[i];
		const char *close = tt_nearest(metric, runs[r].names, (int)runs[r].nnames);
		if (!*near)
			*near = close;
	}
	return NULL;
}
