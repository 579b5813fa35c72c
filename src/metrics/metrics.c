/* metrics.c: a step's numbers on their way to the console and the files. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "metrics/internal.h"

#define GIB (1.0 / 1073741824.0)
#define AT(member) offsetof(tt_metrics_step, member)
const tt_field tt_metrics_fields[] = {
	/* key                 tag                              label                      scale  kind            always */
	{ "loss",              "loss_metrics/global_avg_loss",  "loss (nats per token)",   1,     TT_FIELD_FLOAT, true,  AT(loss) },
	{ "loss_max",          "loss_metrics/global_max_loss",  "loss, worst row",         1,     TT_FIELD_FLOAT, false, AT(loss_max) },
	{ "grad_norm",         "grad_norm",                     "gradient norm",           1,     TT_FIELD_FLOAT, true,  AT(grad_norm) },
	{ "lr",                "lr",                            "learning rate",           1,     TT_FIELD_FLOAT, true,  AT(lr) },
	{ "tokens",            NULL,                            "tokens per step",         1,     TT_FIELD_INT,   false, AT(tokens) },
	{ "valid_tokens",      NULL,                            "valid tokens per step",   1,     TT_FIELD_INT,   false, AT(valid_tokens) },
	{ "tokens_seen",       "n_tokens_seen",                 "tokens seen",             1,     TT_FIELD_INT,   false, AT(tokens_seen) },
	{ "tokens_per_s",      "throughput(tps)",               "tokens/s",                1,     TT_FIELD_FLOAT, false, AT(tokens_per_s) },
	{ "flops_per_s",       "tflops",                        "TFLOP/s",                 1e-12, TT_FIELD_FLOAT, false, AT(flops_per_s) },
	{ "mfu",               "mfu(%)",                        "MFU (%)",                 1,     TT_FIELD_FLOAT, false, AT(mfu) },
	{ "seconds",           "time_metrics/end_to_end(s)",    "step (s)",                1,     TT_FIELD_FLOAT, false, AT(seconds) },
	{ "data_seconds",      "time_metrics/data_loading(s)",  "data (s)",                1,     TT_FIELD_FLOAT, false, AT(data_seconds) },
	{ "forward_seconds",   "time_metrics/forward(s)",       "forward (s)",             1,     TT_FIELD_FLOAT, false, AT(forward_seconds) },
	{ "backward_seconds",  "time_metrics/backward(s)",      "backward (s)",            1,     TT_FIELD_FLOAT, false, AT(backward_seconds) },
	{ "optimizer_seconds", "time_metrics/optimizer(s)",     "optimizer (s)",           1,     TT_FIELD_FLOAT, false, AT(optimizer_seconds) },
	{ "save_seconds",      "time_metrics/save(s)",          "save (s)",                1,     TT_FIELD_FLOAT, false, AT(save_seconds) },
	{ "validate_seconds",  "time_metrics/validate(s)",      "validation (s)",          1,     TT_FIELD_FLOAT, false, AT(validate_seconds) },
	{ "memory_planned",    "memory/planned(GiB)",           "memory planned (GiB)",    GIB,   TT_FIELD_INT,   false, AT(memory_planned) },
	{ "memory_resident",   "memory/resident(GiB)",          "memory resident (GiB)",   GIB,   TT_FIELD_INT,   false, AT(memory_resident) },
	{ "skipped",           NULL,                            "skipped",                 1,     TT_FIELD_BOOL,  false, AT(skipped) },
};
const int tt_metrics_nfields = TT_COUNT(tt_metrics_fields);

struct tt_metrics {
	tt_metrics_clock clock;
	tt_sink jsonl;
	bool events_on;
	tt_events events;
	tt_show show;
	tt_buf line;
	bool schema_said, run_said;
	const char *run;
};

double tt_field_get(const tt_field *f, const tt_metrics_step *s, bool *known)
{
	const char *at = (const char *)s + f->offset;
	double v = 0;
	int64_t i;
	bool flag;
	*known = true;
	switch (f->kind) {
	case TT_FIELD_INT:
		memcpy(&i, at, sizeof i);
		*known = i >= 0;
		return (double)i;
	case TT_FIELD_FLOAT:
		memcpy(&v, at, sizeof v);
		*known = f->always || !isnan(v);
		return v;
	case TT_FIELD_BOOL:
		memcpy(&flag, at, sizeof flag);
		return flag;
	}
	return v;
}

static double system_now(void *ctx)
{
	(void)ctx;
	return tt_now();
}

static double system_wall(void *ctx)
{
	(void)ctx;
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static char *join(const char *folder, const char *name)
{
	tt_buf b = { 0 };
	tt_buf_printf(&b, "%s/%s", folder, name);
	return b.s;
}

static char *numbered(const char *folder, int n)
{
	tt_buf b = { 0 };
	tt_buf_printf(&b, "%s/metrics.%d.jsonl", folder, n);
	return b.s;
}

/* Gives the file of another run, or of none, a name of its own. */
static tt_status set_aside(const char *folder, const char *path, const char *why)
{
	enum { MOST = 100000 };
	tt_status s = TT_OK;
	for (int n = 1;; n++) {
		char *to = numbered(folder, n);
		bool there = access(to, F_OK) == 0 && n < MOST;
		if (!there && rename(path, to) != 0)
			s = tt_error_set(TT_ERR_IO, __FILE__, __LINE__, "%s: cannot rename to %s: %s", path, to, strerror(errno));
		else if (!there)
			tt_log(TT_LOG_INFO, "metrics: %s %s: it is kept as metrics.%d.jsonl", path, why, n);
		free(to);
		if (!there)
			return s;
	}
}

/* The newest file that was set aside and is of this run goes on, if there is one. */
static tt_status take_back(const tt_metrics_options *o, const char *path)
{
	int found = 0;
	for (int n = 1;; n++) {
		char *from = numbered(o->folder, n), run[TT_METRICS_RUN];
		tt_jsonl_owned owned = TT_JSONL_EMPTY;
		bool there = access(from, F_OK) == 0;
		tt_status s = there ? tt_jsonl_owner(from, &owned, run) : TT_OK;
		if (owned == TT_JSONL_NAMED && !strcmp(run, o->run))
			found = n;
		free(from);
		TT_TRY(s);
		if (!there)
			break;
	}
	if (!found)
		return TT_OK;
	char *from = numbered(o->folder, found);
	tt_status s = rename(from, path) ? tt_error_set(TT_ERR_IO, __FILE__, __LINE__, "%s: cannot rename to %s: %s", from, path, strerror(errno)) : TT_OK;
	if (s == TT_OK)
		tt_log(TT_LOG_INFO, "metrics: %s is of the run that is resumed: it is metrics.jsonl again", from);
	free(from);
	return s;
}

static tt_status prepare_jsonl(const tt_metrics_options *o, const char *path)
{
	char run[TT_METRICS_RUN];
	tt_jsonl_owned owned;
	TT_TRY(tt_mkdirs(o->folder));
	TT_TRY(tt_jsonl_owner(path, &owned, run));
	if (o->resume_step <= 0)
		return owned == TT_JSONL_EMPTY ? TT_OK : set_aside(o->folder, path, "is of an earlier run");
	bool own = owned == TT_JSONL_EMPTY || (owned == TT_JSONL_UNNAMED && (!o->run || o->run_new)) || (owned == TT_JSONL_NAMED && o->run && !strcmp(run, o->run));
	if (!own) {
		TT_TRY(set_aside(o->folder, path, owned == TT_JSONL_FOREIGN ? "has no lines of a run" : "is of another run than the checkpoint"));
		owned = TT_JSONL_EMPTY;
	}
	if (owned == TT_JSONL_EMPTY && o->run)
		TT_TRY(take_back(o, path));
	TT_TRY(tt_jsonl_trim(path, o->resume_step, o->revalidate));
	return TT_OK;
}

static void open_jsonl(tt_metrics *m, const tt_metrics_options *o)
{
	char *path = join(o->folder, "metrics.jsonl");
	if (prepare_jsonl(o, path) == TT_OK) {
		tt_sink_open(&m->jsonl, path);
		return;
	}
	tt_log(TT_LOG_WARN, "metrics: %s; the run goes on without metrics.jsonl", tt_error_text());
	free(path);
}

tt_metrics *tt_metrics_open(const tt_metrics_options *o)
{
	tt_metrics *m = calloc(1, sizeof *m);
	TT_ASSERT(m, "metrics: the machine has no %zu bytes left", sizeof *m);
	m->clock = o->clock;
	if (!m->clock.now)
		m->clock.now = system_now;
	if (!m->clock.wall)
		m->clock.wall = system_wall;
	m->jsonl.fd = m->events.sink.fd = -1;
	tt_metrics_reserve(&m->line, 4096);
	tt_show_open(&m->show, o);
	m->run = o->run;
	if (o->jsonl)
		open_jsonl(m, o);
	m->events_on = o->tensorboard;
	if (o->tensorboard)
		tt_events_open(&m->events, o->folder, m->clock.wall(m->clock.ctx), o->resume_step);
	return m;
}

void tt_metrics_close(tt_metrics *m)
{
	if (!m)
		return;
	tt_show_close(&m->show);
	tt_sink_close(&m->jsonl);
	tt_events_close(&m->events);
	tt_buf_fini(&m->line);
	free(m);
}

bool tt_metrics_live(const tt_metrics *m) { return m && m->show.mode == TT_METRICS_LIVE; }

void tt_metrics_pause(tt_metrics *m)
{
	if (m)
		tt_show_clear(&m->show);
}

/* ---- lines --------------------------------------------------------------------------------------------------------------------------- */

/* Every line begins with its step (tt_jsonl_trim relies on it), then its type and the time. */
static void line_begin(tt_metrics *m, int64_t step, const char *type, double wall)
{
	bool never = false;
	m->line.n = 0;
	tt_buf_printf(&m->line, "{\"step\":%lld,\"type\":\"%s\",\"time\":", (long long)step, type);
	tt_jsonl_number(&m->line, wall, &never);
	if (m->run && !m->run_said)
		tt_buf_printf(&m->line, ",\"run\":\"%s\"", m->run);
	m->run_said = true;
}

static void line_number(tt_metrics *m, const char *key, double v, bool *nonfinite)
{
	tt_buf_str(&m->line, ",\"");
	tt_buf_str(&m->line, key);
	tt_buf_str(&m->line, "\":");
	tt_jsonl_number(&m->line, v, nonfinite);
}

static void line_extra(tt_metrics *m, const tt_metrics_scalar *extra, int n, bool *nonfinite)
{
	for (int i = 0; i < n; i++) {
		tt_buf_str(&m->line, i ? "," : ",\"extra\":{");
		tt_jsonl_string(&m->line, extra[i].name);
		tt_buf_str(&m->line, ":");
		tt_jsonl_number(&m->line, extra[i].value, nonfinite);
	}
	if (n > 0)
		tt_buf_str(&m->line, "}");
}

static void line_end(tt_metrics *m, bool nonfinite)
{
	tt_buf_str(&m->line, nonfinite ? ",\"nonfinite\":true}\n" : "}\n");
	tt_sink_write(&m->jsonl, m->line.s, m->line.n);
}

static void write_step(tt_metrics *m, const tt_metrics_step *s, double wall)
{
	bool nonfinite = false;
	line_begin(m, s->step, "step", wall);
	if (!m->schema_said)
		tt_buf_printf(&m->line, ",\"schema\":%d", TT_METRICS_SCHEMA);
	m->schema_said = true;
	for (int i = 0; i < tt_metrics_nfields; i++) {
		const tt_field *f = &tt_metrics_fields[i];
		bool known;
		double v = tt_field_get(f, s, &known);
		if (!known)
			continue;
		if (f->kind == TT_FIELD_FLOAT) {
			line_number(m, f->key, v, &nonfinite);
		} else if (f->kind == TT_FIELD_BOOL) {
			tt_buf_printf(&m->line, ",\"%s\":%s", f->key, v != 0 ? "true" : "false");
		} else {
			int64_t n; /* not through a double, which holds 53 bits */
			memcpy(&n, (const char *)s + f->offset, sizeof n);
			tt_buf_printf(&m->line, ",\"%s\":%lld", f->key, (long long)n);
		}
	}
	line_extra(m, s->extra, s->nextra, &nonfinite);
	line_end(m, nonfinite);
}

void tt_metrics_log_step(tt_metrics *m, const tt_metrics_step *s)
{
	if (!m)
		return;
	double wall = m->clock.wall(m->clock.ctx);
	if (m->jsonl.fd >= 0)
		write_step(m, s, wall);
	if (m->events_on) {
		for (int i = 0; i < tt_metrics_nfields; i++) {
			const tt_field *f = &tt_metrics_fields[i];
			bool known;
			double v = tt_field_get(f, s, &known);
			if (known && f->tag)
				tt_events_scalar(&m->events, f->tag, v * f->scale);
		}
		for (int i = 0; i < s->nextra; i++)
			tt_events_scalar(&m->events, s->extra[i].name, s->extra[i].value);
		tt_events_flush(&m->events, wall, s->step);
	}
	tt_show_step(&m->show, s, m->clock.now(m->clock.ctx));
}

void tt_metrics_log_validation(tt_metrics *m, const tt_metrics_validation *v)
{
	if (!m)
		return;
	double wall = m->clock.wall(m->clock.ctx);
	if (m->jsonl.fd >= 0) {
		bool nonfinite = false;
		line_begin(m, v->step, "validation", wall);
		line_number(m, "loss", v->loss, &nonfinite);
		line_number(m, "bits_per_token", v->bits_per_token, &nonfinite);
		tt_buf_printf(&m->line, ",\"tokens\":%lld", (long long)v->tokens);
		if (!isnan(v->seconds))
			line_number(m, "seconds", v->seconds, &nonfinite);
		line_end(m, nonfinite);
	}
	if (m->events_on) {
		tt_events_scalar(&m->events, "validation_metrics/loss", v->loss);
		tt_events_scalar(&m->events, "validation_metrics/bits_per_token", v->bits_per_token);
		tt_events_flush(&m->events, wall, v->step);
	}
	tt_show_validation(&m->show, v);
}

void tt_metrics_log_event(tt_metrics *m, int64_t step, const char *what, const char *text, const tt_metrics_scalar *extra, int nextra)
{
	if (!m || m->jsonl.fd < 0)
		return;
	bool nonfinite = false;
	line_begin(m, step, "event", m->clock.wall(m->clock.ctx));
	tt_buf_str(&m->line, ",\"event\":");
	tt_jsonl_string(&m->line, what);
	tt_buf_str(&m->line, ",\"text\":");
	tt_jsonl_string(&m->line, text);
	line_extra(m, extra, nextra, &nonfinite);
	line_end(m, nonfinite);
}
