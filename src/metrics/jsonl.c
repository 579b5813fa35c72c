/* jsonl.c: files that grow by whole records, JSON numbers and strings, and what a resumed run keeps of its lines. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "metrics/internal.h"

/* ---- files --------------------------------------------------------------------------------------------------------------------------- */

void tt_sink_drop(tt_sink *s, const char *why)
{
	tt_log(TT_LOG_WARN, "metrics: %s: %s; the run goes on without this file", s->path, why);
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

void tt_sink_open(tt_sink *s, char *path)
{
	s->path = path;
	struct stat st;
	if (stat(path, &st) == 0 && S_ISFIFO(st.st_mode)) { /* to open it waits for who reads from it */
		s->fd = -1;
		tt_sink_drop(s, "is a FIFO, a file is needed");
		return;
	}
	s->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (s->fd < 0) {
		char why[256];
		snprintf(why, sizeof why, "cannot create: %s", strerror(errno));
		tt_sink_drop(s, why);
		return;
	}
	s->size = fstat(s->fd, &st) == 0 ? (int64_t)st.st_size : 0;
}

void tt_sink_write(tt_sink *s, const void *bytes, size_t n)
{
	if (s->fd < 0)
		return;
	ssize_t w;
	do
		w = write(s->fd, bytes, n);
	while (w < 0 && errno == EINTR);
	struct stat st;
	char why[256];
	if (w == (ssize_t)n) {
		s->size += w;
		/* A removed file takes writes as well as any other, and shows them to nobody. */
		if (fstat(s->fd, &st) == 0 && st.st_nlink == 0)
			tt_sink_drop(s, "was removed");
		return;
	}
	snprintf(why, sizeof why, "cannot write: %s", strerror(w < 0 ? errno : ENOSPC));
	/* Half a record would spoil the file for its readers. Where it cannot be cut off, they pass over a last line without end. */
	if (w > 0 && ftruncate(s->fd, s->size) != 0)
		snprintf(why, sizeof why, "cannot write, nor take half a record back: %s", strerror(errno));
	tt_sink_drop(s, why);
}

void tt_sink_close(tt_sink *s)
{
	if (s->fd >= 0 && close(s->fd) != 0)
		tt_log(TT_LOG_WARN, "metrics: %s: cannot close: %s", s->path, strerror(errno));
	free(s->path);
	*s = (tt_sink){ .fd = -1 };
}

void tt_metrics_reserve(tt_buf *b, size_t n)
{
	static const char zeros[256];
	for (size_t have = 0; have < n; have += sizeof zeros)
		tt_buf_add(b, zeros, sizeof zeros);
	b->n = 0;
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------------------------- */

void tt_jsonl_number(tt_buf *b, double v, bool *nonfinite)
{
	if (!isfinite(v)) {
		*nonfinite = true;
		tt_buf_str(b, "null");
		return;
	}
	/* The shortest of the texts that read back to the same bits; 17 digits always do. */
	char text[40];
	int n = 0;
	for (int digits = 15; digits <= 17; digits++) {
		n = snprintf(text, sizeof text, "%.*g", digits, v);
		if (strtod(text, NULL) == v)
			break;
	}
	/* A program that uses the library may have set a locale. */
	char *comma = memchr(text, ',', (size_t)n);
	if (comma)
		*comma = '.';
	tt_buf_add(b, text, (size_t)n);
}

/* The Unicode standard, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF. */
int tt_utf8_length(const char *s)
{
	const unsigned char *u = (const unsigned char *)s;
	if (u[0] < 0x80)
		return 1;
	int n = u[0] >= 0xc2 && u[0] <= 0xdf ? 2 : (u[0] & 0xf0) == 0xe0 ? 3 : u[0] >= 0xf0 && u[0] <= 0xf4 ? 4 : 0;
	for (int i = 1; i < n; i++) /* a NUL ends the walk too */
		if ((u[i] & 0xc0) != 0x80)
			return 0;
	if ((u[0] == 0xe0 && u[1] < 0xa0) || (u[0] == 0xed && u[1] > 0x9f) || (u[0] == 0xf0 && u[1] < 0x90) || (u[0] == 0xf4 && u[1] > 0x8f))
		return 0;
	return n;
}

void tt_jsonl_string(tt_buf *b, const char *s)
{
	tt_buf_str(b, "\"");
	for (int n; *s; s += TT_MAX(n, 1)) {
		n = tt_utf8_length(s);
		if (*s == '"' || *s == '\\')
			tt_buf_add(b, (char[]){ '\\', *s }, 2);
		else if (*s == '\n')
			tt_buf_str(b, "\\n");
		else if ((unsigned char)*s < 0x20 || *s == 0x7f)
			tt_buf_printf(b, "\\u%04x", (unsigned)(unsigned char)*s);
		else
			tt_buf_add(b, n ? s : "?", (size_t)TT_MAX(n, 1));
	}
	tt_buf_str(b, "\"");
}

/* ---- resume -------------------------------------------------------------------------------------------------------------------------- */

/* Our lines begin with {"step":N, so that this needs no parser. Lines of others stay. */
static bool keep_line(const char *p, size_t n, int64_t step, bool revalidate)
{
	static const char head[] = "{\"step\":";
	size_t at = sizeof head - 1;
	if (n <= at || memcmp(p, head, at))
		return true;
	int64_t v = 0;
	for (; at < n && p[at] >= '0' && p[at] <= '9'; at++)
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, p[at] - '0', &v))
			return false;
	static const char validation[] = ",\"type\":\"validation\"";
	bool again = revalidate && v == step && n - at >= sizeof validation - 1 && !memcmp(p + at, validation, sizeof validation - 1);
	return v <= step && !again;
}

/* What metrics.c writes near the start of a line that is the first of a process. */
static const char run_key[] = ",\"run\":\"";

/* Copies the run's name from a line; false: it has none. */
static bool line_run(const char *p, size_t n, char *out, size_t cap)
{
	enum { NEAR = 160 };
	const char *at = memmem(p, TT_MIN(n, (size_t)NEAR), run_key, sizeof run_key - 1), *end = p + n;
	if (!at)
		return false;
	size_t k = 0;
	for (at += sizeof run_key - 1; at < end && *at != '"' && k + 1 < cap; at++)
		out[k++] = *at;
	out[k] = 0;
	return true;
}

tt_status tt_jsonl_owner(const char *path, tt_jsonl_owned *out, char run[TT_METRICS_RUN])
{
	static const char head[] = "{\"step\":";
	tt_jsonl_owned owned = TT_JSONL_EMPTY;
	struct stat st;
	run[0] = 0;
	if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
		tt_map map = { 0 };
		TT_TRY(tt_map_open(path, &map));
		const char *end = (const char *)map.p + map.n;
		owned = TT_JSONL_FOREIGN;
		for (const char *line = (const char *)map.p, *stop; line < end && (stop = memchr(line, '\n', (size_t)(end - line))); line = stop + 1) {
			size_t n = (size_t)(stop - line);
			if (n < sizeof head - 1 || memcmp(line, head, sizeof head - 1))
				continue;
			owned = owned == TT_JSONL_NAMED || line_run(line, n, run, TT_METRICS_RUN) ? TT_JSONL_NAMED : TT_JSONL_UNNAMED;
			if (owned == TT_JSONL_NAMED)
				(void)line_run(line, n, run, TT_METRICS_RUN); /* the last one counts */
		}
		tt_map_close(&map);
	}
	*out = owned;
	return TT_OK;
}

tt_status tt_jsonl_trim(const char *path, int64_t step, bool revalidate)
{
	struct stat st;
	if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
		return TT_OK;
	tt_map map = { 0 };
	TT_TRY(tt_map_open(path, &map));
	const char *p = (const char *)map.p, *end = p + map.n;
	tt_buf kept = { 0 }, temp = { 0 };
	for (const char *line = p; line < end;) {
		const char *stop = memchr(line, '\n', (size_t)(end - line));
		if (!stop)
			break;
		if (keep_line(line, (size_t)(stop - line), step, revalidate))
			tt_buf_add(&kept, line, (size_t)(stop + 1 - line));
		line = stop + 1;
	}
	tt_status s = TT_OK;
	if (kept.n != map.n) {
		tt_buf_printf(&temp, "%s.part", path);
		s = tt_file_write(temp.s, kept.s ? kept.s : "", kept.n);
		if (s == TT_OK && rename(temp.s, path) != 0)
			s = tt_error_set(TT_ERR_IO, __FILE__, __LINE__, "%s: cannot rename to %s: %s", temp.s, path, strerror(errno));
		if (s != TT_OK)
			unlink(temp.s);
	}
	tt_map_close(&map);
	tt_buf_fini(&kept);
	tt_buf_fini(&temp);
	TT_TRY(s);
	return TT_OK;
}
