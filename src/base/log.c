/* Log lines and panics: the only file outside cli/ that writes to stderr. */
#include "base/base.h"

#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LINE_BYTES = 2048, FRAMES = 48 };

static _Thread_local struct {
	bool known;
	int rank;
	const char *scope;
} self;

/* Process-wide by design: ranks are threads and share one stderr. The lock makes lines whole and keeps a sink from
 * being called after it was replaced. */
static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static void (*sink_fn)(void *ctx, tt_log_level level, const char *line);
static void *sink_ctx;
static _Atomic int sink_level = TT_LOG_INFO;

void tt_thread_set(int rank, const char *scope)
{
	self.known = true;
	self.rank = rank;
	self.scope = scope;
}

void tt_thread_get(int *rank, const char **scope)
{
	*rank = self.known ? self.rank : -1;
	*scope = self.scope;
}

void tt_log_set_sink(void (*sink)(void *ctx, tt_log_level level, const char *line), void *ctx)
{
	pthread_mutex_lock(&sink_lock);
	sink_fn = sink;
	sink_ctx = ctx;
	pthread_mutex_unlock(&sink_lock);
}

void tt_log_set_level(tt_log_level least) { atomic_store(&sink_level, (int)least); }

const char *tt_log_prefix(tt_log_level level)
{
	switch (level) {
	case TT_LOG_DEBUG: return "debug: ";
	case TT_LOG_INFO: return "";
	case TT_LOG_WARN: return "warning: ";
	case TT_LOG_ERROR: return "error: ";
	}
	return "";
}

void tt_log(tt_log_level level, const char *fmt, ...)
{
	if ((int)level < atomic_load(&sink_level))
		return;
	char line[LINE_BYTES];
	int n = 0;
	if (self.known && self.rank > 0)
		n = snprintf(line, sizeof line, "[rank %d] ", self.rank);
	va_list args;
	va_start(args, fmt);
	vsnprintf(line + n, sizeof line - (size_t)n, fmt, args);
	va_end(args);
	pthread_mutex_lock(&sink_lock);
	if (sink_fn)
		sink_fn(sink_ctx, level, line);
	else
		fprintf(stderr, "%s%s\n", tt_log_prefix(level), line);
	pthread_mutex_unlock(&sink_lock);
}

/* A panic may come from any state, also from inside malloc: nothing below allocates or takes the log's lock. */
static void panic_end(const char *file, int line, const char *cond, const char *text)
{
	char who[LINE_BYTES];
	int n = snprintf(who, sizeof who, "titan: panic at %s:%d", file, line);
	if (self.known && n < (int)sizeof who)
		n += snprintf(who + n, sizeof who - (size_t)n, " on rank %d", self.rank);
	if (self.scope && n < (int)sizeof who)
		n += snprintf(who + n, sizeof who - (size_t)n, " in %s", self.scope);
	if (cond)
		dprintf(STDERR_FILENO, "%s: assertion `%s` failed:%s\n", who, cond, text);
	else
		dprintf(STDERR_FILENO, "%s: %s\n", who, text);
	void *frames[FRAMES];
	int depth = backtrace(frames, FRAMES);
	backtrace_symbols_fd(frames, depth, STDERR_FILENO);
}

void tt_panic(const char *file, int line, const char *fmt, ...)
{
	char text[LINE_BYTES];
	va_list args;
	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	panic_end(file, line, NULL, text);
	abort();
}

void tt_assert_failed(const char *file, int line, const char *cond, const char *fmt, ...)
{
	char text[LINE_BYTES];
	va_list args;
	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	panic_end(file, line, cond, text);
	abort();
}
