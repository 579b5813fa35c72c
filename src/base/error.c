/* The error record: one per thread, written by the first detector, extended by a file:line per caller. */
#include "base/base.h"

#include <stdio.h>

/* Texts longer than this are cut; a trail that is full keeps its beginning, which is where the detector is. */
enum { TEXT_BYTES = 4096, TRAIL_BYTES = 1024 };

static _Thread_local struct {
	char text[TEXT_BYTES];
	char trail[TRAIL_BYTES];
	size_t trail_n;
} record;

static void trail_add(const char *file, int line)
{
	size_t room = TRAIL_BYTES - record.trail_n;
	const char *slash = strrchr(file, '/');
	int n = snprintf(record.trail + record.trail_n, room, "%s%s:%d", record.trail_n ? " < " : "",
		slash ? slash + 1 : file, line);
	if (n < 0 || (size_t)n >= room)
		record.trail[record.trail_n] = 0;
	else
		record.trail_n += (size_t)n;
}

tt_status tt_error_set(tt_status code, const char *file, int line, const char *fmt, ...)
{
	/* Formatted aside first: an argument may be tt_error_text() itself, when a caller wraps a text. */
	char text[TEXT_BYTES];
	va_list args;
	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	memcpy(record.text, text, sizeof text);
	record.text[TEXT_BYTES - 1] = 0;
	record.trail_n = 0;
	trail_add(file, line);
	return code;
}

tt_status tt_error_crumb(tt_status code, const char *file, int line)
{
	trail_add(file, line);
	return code;
}

const char *tt_error_text(void) { return record.text; }
const char *tt_error_trail(void) { return record.trail; }

const char *tt_status_name(tt_status s)
{
	switch (s) {
	case TT_OK: return "ok";
	case TT_ERR_USAGE: return "usage";
	case TT_ERR_IO: return "io";
	case TT_ERR_FORMAT: return "format";
	case TT_ERR_TYPE: return "type";
	case TT_ERR_MEMORY: return "memory";
	case TT_ERR_NUMERIC: return "numeric";
	case TT_ERR_COMM: return "comm";
	case TT_ERR_STOP: return "stop";
	}
	return "unknown";
}
