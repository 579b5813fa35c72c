/* metrics, inside: the table of a step's numbers, and the parts that metrics.c joins. */
#ifndef TT_METRICS_INTERNAL_H
#define TT_METRICS_INTERNAL_H

#include <pthread.h>

#include "metrics/metrics.h"

/* ---- the numbers of a step, one row each: JSON, event files and plots follow --------------------------------------------------------- */

typedef enum tt_field_kind { TT_FIELD_INT, TT_FIELD_FLOAT, TT_FIELD_BOOL } tt_field_kind;
typedef struct tt_field {
	const char *key;   /* in metrics.jsonl and for `titan plot --metric` */
	const char *tag;   /* in event files, as TorchTitan names it where it does; NULL: not there */
	const char *label; /* of a plot's axis */
	double scale;      /* from the JSON's unit to that of tag and label */
	tt_field_kind kind;
	bool always;       /* NaN is a value, not "unknown" */
	size_t offset;     /* in tt_metrics_step */
} tt_field;
extern const tt_field tt_metrics_fields[];
extern const int tt_metrics_nfields;
double tt_field_get(const tt_field *f, const tt_metrics_step *s, bool *known);

/* ---- files --------------------------------------------------------------------------------------------------------------------------- */

/* A file that only grows, by whole records of one write(2) each. fd -1: given up. */
typedef struct tt_sink {
	int fd;
	int64_t size; /* bytes of whole records */
	char *path;   /* heap */
} tt_sink;
void tt_sink_open(tt_sink *s, char *path); /* takes `path` */
void tt_sink_write(tt_sink *s, const void *bytes, size_t n);
void tt_sink_close(tt_sink *s);
/* Warns with `why` and gives the file up. */
void tt_sink_drop(tt_sink *s, const char *why);

/* Keeps the lines of `path` whose "step" is at most `step`, and whole ones only; revalidate: not the validation of `step`. No file is fine. */
tt_status tt_jsonl_trim(const char *path, int64_t step, bool revalidate) TT_CHECKED;
/* Of which run the lines of `path` are: it has none, none of a run's, those of a run without a name, or of the last one named. */
typedef enum tt_jsonl_owned { TT_JSONL_EMPTY, TT_JSONL_FOREIGN, TT_JSONL_UNNAMED, TT_JSONL_NAMED } tt_jsonl_owned;
enum { TT_METRICS_RUN = 40 };
tt_status tt_jsonl_owner(const char *path, tt_jsonl_owned *out, char run[TT_METRICS_RUN]) TT_CHECKED;
/* Room for `n` bytes in an empty buffer, so that a longer number at a later step allocates nothing. */
void tt_metrics_reserve(tt_buf *b, size_t n);
void tt_jsonl_number(tt_buf *b, double v, bool *nonfinite);
void tt_jsonl_string(tt_buf *b, const char *s); /* bytes that are no UTF-8 become '?' */
int tt_utf8_length(const char *s); /* bytes of the character at s; 0: there is none */

/* Event files: TFRecord frames around Event messages. */
typedef struct tt_events {
	tt_sink sink;
	tt_buf record, summary;
	uint32_t crc[256];
} tt_events;
uint32_t tt_crc32c(const uint32_t table[256], const void *bytes, size_t n);
void tt_crc32c_init(uint32_t table[256]);
void tt_events_open(tt_events *e, const char *folder, double wall, int64_t resume_step);
void tt_events_scalar(tt_events *e, const char *tag, double value);
void tt_events_flush(tt_events *e, double wall, int64_t step); /* the scalars since the last flush as one event */
void tt_events_close(tt_events *e);

/* ---- console ------------------------------------------------------------------------------------------------------------------------- */

/* Sums since the last permanent line. */
typedef struct tt_window {
	double tokens, seconds;   /* of steps whose speed is known */
	double mfu, mfu_seconds;  /* weighted by seconds */
	double total, parts[6];   /* seconds; data, forward, backward, optimizer, save, validate */
	double exposed, hidden;   /* seconds of exchanges with other ranks */
} tt_window;

typedef struct tt_show {
	tt_metrics_mode mode; /* LIVE, PLAIN or OFF */
	tt_metrics_console io;
	int64_t steps, log_freq;
	tt_window window;
	tt_metrics_step last; /* extra is not kept */
	bool due;             /* `last` has no permanent line yet */
	tt_buf text;
	/* Of the live line: */
	pthread_mutex_t lock; /* of all below: log lines come from any thread */
	tt_buf line;          /* on the screen; n 0: nothing is */
	tt_buf out;
	double drawn;         /* when; NaN: never */
	double first_time;    /* when the first step of this process ended; NaN: not yet */
	int64_t first_step;
	double fast_tokens, fast_seconds, fast_mfu; /* fading sums */
} tt_show;
void tt_show_open(tt_show *w, const tt_metrics_options *o);
void tt_show_step(tt_show *w, const tt_metrics_step *s, double now);
void tt_show_validation(tt_show *w, const tt_metrics_validation *v);
void tt_show_clear(tt_show *w);
void tt_show_close(tt_show *w);

#endif
