/* metrics: the bytes of metrics.jsonl and of event files, what a terminal shows, what a resumed run keeps, failing files, plots. */
#define _GNU_SOURCE
#include "test.h"

#include "metrics/internal.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a run that is made up ---------------------------------------------------------------------------------------------- */

typedef struct fake { double now, wall; } fake;
static double fake_now(void *ctx) { return ((fake *)ctx)->now; }
static double fake_wall(void *ctx) { return ((fake *)ctx)->wall; }

static tt_metrics_options options(const char *folder, fake *f)
{
	return (tt_metrics_options){ .folder = folder, .steps = 100, .log_freq = 10, .mode = TT_METRICS_OFF, .clock = { f, fake_now, fake_wall } };
}

static tt_metrics_step step_of(int64_t step)
{
	return (tt_metrics_step){ .step = step, .loss = 2.5, .loss_max = 3.25, .grad_norm = 0.1, .lr = 1e-3, .tokens = 1000, .valid_tokens = 990,
		.tokens_seen = 1000 * step, .tokens_per_s = 2000, .flops_per_s = 1.5e9, .mfu = 40, .seconds = 0.5, .data_seconds = 0.005,
		.forward_seconds = 0.15, .backward_seconds = 0.25, .optimizer_seconds = 0.05, .save_seconds = 0, .validate_seconds = 0,
		.memory_planned = 3 * TT_GIB / 2, .memory_resident = TT_GIB };
}

static tt_metrics_step bare_step(int64_t step)
{
	return (tt_metrics_step){ .step = step, .loss = 1, .loss_max = NAN, .grad_norm = 1, .lr = 0.5, .tokens = -1, .valid_tokens = -1, .tokens_seen = -1,
		.tokens_per_s = NAN, .flops_per_s = NAN, .mfu = NAN, .seconds = NAN, .data_seconds = NAN, .forward_seconds = NAN, .backward_seconds = NAN,
		.optimizer_seconds = NAN, .save_seconds = NAN, .validate_seconds = NAN, .memory_planned = -1, .memory_resident = -1 };
}

static const char *content(tt_test *t, const char *path)
{
	char *s;
	size_t n;
	return TT_CHECK_OK(t, tt_file_read(t->arena, path, &s, &n)) ? s : "";
}

/* Log lines as one text. */
static void collect(void *ctx, tt_log_level level, const char *line)
{
	tt_buf_printf(ctx, "%s%s\n", level == TT_LOG_WARN ? "warning: " : "", line);
}

static int count(const char *text, const char *part)
{
	int n = 0;
	for (const char *p = text; p && (p = strstr(p, part)); p += strlen(part))
		n++;
	return n;
}

/* ---- metrics.jsonl ------------------------------------------------------------------------------------------------------- */

static void jsonl_lines(tt_test *t)
{
	fake f = { .wall = 1700000000.25 };
	tt_metrics_options o = options(tt_test_path(t, "runs/a"), &f);
	o.jsonl = true;
	tt_metrics *m = tt_metrics_open(&o);
	tt_metrics_log_event(m, 0, "start", "a \"quoted\"\ttext\n\xc3\xa9\xff\\", (tt_metrics_scalar[]){ { "build", 0.25 } }, 1);
	tt_metrics_step s = step_of(1);
	tt_metrics_log_step(m, &s);
	s = bare_step(2);
	s.loss = NAN;
	s.skipped = true;
	s.extra = (tt_metrics_scalar[]){ { "grad_norm/embed", 0.1 }, { "grad_norm/rest", INFINITY } };
	s.nextra = 2;
	tt_metrics_log_step(m, &s);
	s = bare_step(3);
	s.tokens_seen = INT64_C(9007199254740993); /* is no double */
	s.mfu = INFINITY;
	tt_metrics_log_step(m, &s);
	tt_metrics_log_validation(m, &(tt_metrics_validation){ .step = 3, .loss = 1.0 / 3, .bits_per_token = 0.5, .tokens = 77, .seconds = 1.5 });
	tt_metrics_close(m);
	TT_CHECK_STR(t, content(t, tt_test_path(t, "runs/a/metrics.jsonl")),
		"{\"step\":0,\"type\":\"event\",\"time\":1700000000.25,\"event\":\"start\",\"text\":\"a \\\"quoted\\\"\\u0009text\\n\xc3\xa9?\\\\\",\"extra\":{\"build\":0.25}}\n"
		"{\"step\":1,\"type\":\"step\",\"time\":1700000000.25,\"schema\":1,\"loss\":2.5,\"loss_max\":3.25,\"grad_norm\":0.1,\"lr\":0.001,\"tokens\":1000,"
		"\"valid_tokens\":990,\"tokens_seen\":1000,\"tokens_per_s\":2000,\"flops_per_s\":1500000000,\"mfu\":40,\"seconds\":0.5,\"data_seconds\":0.005,"
		"\"forward_seconds\":0.15,\"backward_seconds\":0.25,\"optimizer_seconds\":0.05,\"save_seconds\":0,\"validate_seconds\":0,"
		"\"memory_planned\":1610612736,\"memory_resident\":1073741824,\"skipped\":false}\n"
		"{\"step\":2,\"type\":\"step\",\"time\":1700000000.25,\"loss\":null,\"grad_norm\":1,\"lr\":0.5,\"skipped\":true,"
		"\"extra\":{\"grad_norm/embed\":0.1,\"grad_norm/rest\":null},\"nonfinite\":true}\n"
		"{\"step\":3,\"type\":\"step\",\"time\":1700000000.25,\"loss\":1,\"grad_norm\":1,\"lr\":0.5,\"tokens_seen\":9007199254740993,\"mfu\":null,\"skipped\":false,\"nonfinite\":true}\n"
		"{\"step\":3,\"type\":\"validation\",\"time\":1700000000.25,\"loss\":0.3333333333333333,\"bits_per_token\":0.5,\"tokens\":77,\"seconds\":1.5}\n");
}

/* Every number reads back to the bits that were written. */
static void numbers(tt_test *t)
{
	uint64_t x = t->seed | 1;
	tt_buf b = { 0 };
	int checked = 0;
	for (int i = 0; i < 20000; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		uint64_t bits = i < 10000 ? x : x >> 3;
		double v, back;
		memcpy(&v, &bits, 8);
		if (i % 3 == 0)
			v = (double)(float)v;
		if (!isfinite(v))
			continue;
		bool nonfinite = false;
		b.n = 0;
		tt_jsonl_number(&b, v, &nonfinite);
		back = strtod(b.s, NULL);
		if (memcmp(&back, &v, 8) || nonfinite)
			TT_CHECK_MSG(t, false, "%a is written as %s", v, b.s);
		checked++;
	}
	TT_CHECK(t, checked > 10000);
	tt_buf_fini(&b);
}

static void jsonl_resume(tt_test *t)
{
	const char *folder = tt_test_path(t, "run"), *path = tt_test_path(t, "run/metrics.jsonl");
	TT_CHECK_OK(t, tt_mkdirs(folder));
	static const char before[] = "{\"step\":1,\"type\":\"step\",\"loss\":1}\n{\"step\":2,\"type\":\"step\",\"loss\":2}\n{\"step\":3,\"type\":\"step\",\"loss\":3}\n"
				     "{\"step\":2,\"type\":\"event\",\"event\":\"save\"}\nforeign\n{\"step\":99999999999999999999,\"type\":\"step\"}\n{\"step\":30,\"type\":\"event\"}\n{\"step\":2,\"type\":\"st";
	TT_CHECK_OK(t, tt_file_write(path, before, sizeof before - 1));
	fake f = { .wall = 5 };
	tt_metrics_options o = options(folder, &f);
	o.jsonl = true;
	o.resume_step = 2;
	tt_metrics *m = tt_metrics_open(&o);
	tt_metrics_step s = bare_step(3);
	tt_metrics_log_step(m, &s);
	tt_metrics_close(m);
	static const char kept[] = "{\"step\":1,\"type\":\"step\",\"loss\":1}\n{\"step\":2,\"type\":\"step\",\"loss\":2}\n{\"step\":2,\"type\":\"event\",\"event\":\"save\"}\nforeign\n";
	static const char added[] = "{\"step\":3,\"type\":\"step\",\"time\":5,\"schema\":1,\"loss\":1,\"grad_norm\":1,\"lr\":0.5,\"skipped\":false}\n";
	const char *want = tt_arena_printf(t->arena, "%s%s", kept, added);
	TT_CHECK_STR(t, content(t, path), want);
	TT_CHECK(t, access(tt_test_path(t, "run/metrics.jsonl.part"), F_OK) != 0);
	TT_CHECK(t, access(tt_test_path(t, "run/metrics.old.jsonl"), F_OK) != 0);
	/* Nothing to cut: the same file goes on. */
	struct stat st, again;
	TT_CHECK(t, stat(path, &st) == 0);
	o.resume_step = 3;
	tt_metrics_close(tt_metrics_open(&o));
	TT_CHECK(t, stat(path, &again) == 0 && again.st_ino == st.st_ino);
	TT_CHECK_STR(t, content(t, path), want);
	/* A new run begins its own file and keeps the older one. */
	o.resume_step = 0;
	tt_metrics_close(tt_metrics_open(&o));
	TT_CHECK_STR(t, content(t, path), "");
	TT_CHECK_STR(t, content(t, tt_test_path(t, "run/metrics.1.jsonl")), want);
}

/* ---- event files ---------------------------------------------------------------------------------------------------------- */

/* RFC 3720, B.4, and the check value of the CRC catalogue. */
static void crc32c(tt_test *t)
{
	uint32_t table[256];
	uint8_t b[32];
	tt_crc32c_init(table);
	TT_CHECK_INT(t, tt_crc32c(table, "123456789", 9), 0xe3069283u);
	memset(b, 0, sizeof b);
	TT_CHECK_INT(t, tt_crc32c(table, b, 32), 0x8a9136aau);
	memset(b, 0xff, sizeof b);
	TT_CHECK_INT(t, tt_crc32c(table, b, 32), 0x62a8ab43u);
	for (int i = 0; i < 32; i++)
		b[i] = (uint8_t)i;
	TT_CHECK_INT(t, tt_crc32c(table, b, 32), 0x46dd794eu);
	TT_CHECK_INT(t, tt_crc32c(table, b, 0), 0);
}

/* The one file in FOLDER/tb whose name contains `part`; NULL: there is none. */
static const char *event_file(tt_test *t, const char *folder)
{
	const char *dir = tt_arena_printf(t->arena, "%s/tb", folder), *found = NULL;
	DIR *d = opendir(dir);
	for (struct dirent *e; d && (e = readdir(d));)
		if (strstr(e->d_name, "events.out.tfevents."))
			found = tt_arena_printf(t->arena, "%s/%s", dir, e->d_name);
	if (d)
		closedir(d);
	return found;
}

/* Made by tensorboard 2.21's RecordWriter and protobuf classes: the version, SessionLog START at step 8, and at step 300 three scalars, of
 * which one has a tag of 130 x (lengths of two bytes) and the value infinity. */
static const char golden[] =
	"1800000000000000a37f4b220900001040fc54d9411a0d627261696e2e4576656e743a32338d2fe90f000000000000006d532b090900001040fc54d9"
	"4110083a020801ed76c781d4000000000000005cf98c6a0900001040fc54d94110ac022ac5010a230a1c6c6f73735f6d6574726963732f676c6f6261"
	"6c5f6176675f6c6f737315000020400a110a0a76616c69646174696f6e15000080bf0a8a010a82017878787878787878787878787878787878787878"
	"787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
	"7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878150000807f5c9bc75e";

static void event_bytes(tt_test *t)
{
	tt_events e = { 0 };
	const char *folder = tt_test_path(t, "run");
	TT_CHECK_OK(t, tt_mkdirs(folder));
	tt_events_open(&e, folder, 1700000000.25, 7);
	char tag[131] = "";
	memset(tag, 'x', 130);
	tt_events_scalar(&e, "loss_metrics/global_avg_loss", 2.5);
	tt_events_scalar(&e, "validation", -1);
	tt_events_scalar(&e, tag, INFINITY);
	tt_events_flush(&e, 1700000000.25, 300);
	tt_events_flush(&e, 1700000000.25, 301); /* nothing in it: no record */
	tt_events_close(&e);
	const char *path = event_file(t, folder);
	char *s;
	size_t n;
	if (!TT_CHECK(t, path) || !TT_CHECK_OK(t, tt_file_read(t->arena, path, &s, &n)))
		return;
	TT_CHECK(t, strstr(path, "/events.out.tfevents.1700000000."));
	char *hex = tt_arena_alloc(t->arena, 2 * n + 1);
	for (size_t i = 0; i < n; i++)
		snprintf(hex + 2 * i, 3, "%02x", (unsigned)(uint8_t)s[i]);
	TT_CHECK_STR(t, hex, golden);
}

/* Reads a file of frames: "STEP tag=value ..." per event; checks every checksum. */
static uint64_t varint(const uint8_t **p)
{
	uint64_t v = 0;
	for (int shift = 0;; shift += 7) {
		uint8_t b = *(*p)++;
		v |= (uint64_t)(b & 127) << shift;
		if (!(b & 128) || shift > 56)
			return v;
	}
}

static const char *decode(tt_test *t, const char *path)
{
	uint32_t table[256];
	tt_buf out = { 0 };
	char *s;
	size_t n;
	tt_crc32c_init(table);
	if (!TT_CHECK_OK(t, tt_file_read(t->arena, path, &s, &n)))
		return "";
	for (size_t at = 0; at < n;) {
		uint64_t len;
		uint32_t sums[2];
		memcpy(&len, s + at, 8);
		if (!TT_CHECK(t, n - at >= 16 && len <= n - at - 16))
			break;
		memcpy(&sums[0], s + at + 8, 4);
		memcpy(&sums[1], s + at + 12 + len, 4);
		for (int i = 0; i < 2; i++) {
			uint32_t c = sums[i] - 0xa282ead8u;
			c = c >> 17 | c << 15;
			TT_CHECK_INT(t, c, tt_crc32c(table, s + at + (i ? 12 : 0), i ? len : 8));
		}
		const uint8_t *p = (const uint8_t *)s + at + 12, *end = p + len;
		uint64_t step = 0;
		tt_buf text = { 0 };
		while (p < end) {
			uint64_t key = varint(&p);
			if (key == (1 << 3 | 1)) {
				p += 8;
			} else if (key == (2 << 3 | 0)) {
				step = varint(&p);
			} else if (key == (5 << 3 | 2)) {
				const uint64_t bytes = varint(&p);
				for (const uint8_t *stop = p + bytes; p < stop && *p == 0x0a;) {
					p++;
					varint(&p);
					TT_CHECK_INT(t, *p++, 0x0a);
					uint64_t k = varint(&p);
					float v;
					tt_buf_printf(&text, " %.*s", (int)k, (const char *)p);
					p += k;
					TT_CHECK_INT(t, *p++, 0x15);
					memcpy(&v, p, 4);
					p += 4;
					tt_buf_printf(&text, "=%g", (double)v);
				}
			} else if ((key & 7) == 2) {
				uint64_t k = varint(&p);
				tt_buf_printf(&text, key >> 3 == 3 ? " %.*s" : " start", (int)k, (const char *)p);
				p += k;
			} else if (!TT_CHECK_MSG(t, false, "key %llu", (unsigned long long)key)) {
				break;
			}
		}
		tt_buf_printf(&out, "%llu:%s\n", (unsigned long long)step, text.s ? text.s : "");
		tt_buf_fini(&text);
		at += 16 + len;
	}
	const char *copy = tt_arena_strdup(t->arena, out.s ? out.s : "");
	tt_buf_fini(&out);
	return copy;
}

static void event_tags(tt_test *t)
{
	fake f = { .wall = 1700000000 };
	tt_metrics_options o = options(tt_test_path(t, "run"), &f);
	o.tensorboard = true;
	o.resume_step = 4;
	tt_metrics *m = tt_metrics_open(&o);
	tt_metrics_step s = step_of(5);
	s.extra = (tt_metrics_scalar[]){ { "norm/w", 7 } };
	s.nextra = 1;
	tt_metrics_log_step(m, &s);
	tt_metrics_log_validation(m, &(tt_metrics_validation){ .step = 5, .loss = 2, .bits_per_token = 3, .tokens = 1 });
	tt_metrics_log_event(m, 5, "save", "text", NULL, 0);
	s = bare_step(6);
	s.loss = NAN;
	tt_metrics_log_step(m, &s);
	tt_metrics_close(m);
	const char *path = event_file(t, o.folder);
	if (TT_CHECK(t, path))
		TT_CHECK_STR(t, decode(t, path),
			"0: brain.Event:2\n5: start\n"
			"5: loss_metrics/global_avg_loss=2.5 loss_metrics/global_max_loss=3.25 grad_norm=0.1 lr=0.001 n_tokens_seen=5000 throughput(tps)=2000"
			" tflops=0.0015 mfu(%)=40 time_metrics/end_to_end(s)=0.5 time_metrics/data_loading(s)=0.005 time_metrics/forward(s)=0.15"
			" time_metrics/backward(s)=0.25 time_metrics/optimizer(s)=0.05 time_metrics/save(s)=0 time_metrics/validate(s)=0 memory/planned(GiB)=1.5"
			" memory/resident(GiB)=1 norm/w=7\n"
			"5: validation_metrics/loss=2 validation_metrics/bits_per_token=3\n"
			"6: loss_metrics/global_avg_loss=nan grad_norm=1 lr=0.5\n");
	TT_CHECK(t, access(tt_test_path(t, "run/metrics.jsonl"), F_OK) != 0);
}

/* ---- files that fail --------------------------------------------------------------------------------------------------------- */

static void run_steps(tt_metrics *m, int64_t from, int64_t to)
{
	for (int64_t i = from; i <= to; i++) {
		tt_metrics_step s = step_of(i);
		tt_metrics_log_step(m, &s);
		tt_metrics_log_validation(m, &(tt_metrics_validation){ .step = i });
		tt_metrics_log_event(m, i, "save", "", NULL, 0);
	}
}

static void full_disk(tt_test *t)
{
	tt_buf log = { 0 };
	fake f = { 0 };
	tt_log_set_sink(collect, &log);
	tt_metrics_options o = options(tt_test_path(t, "run"), &f);
	o.jsonl = o.tensorboard = true;
	TT_CHECK_OK(t, tt_mkdirs(o.folder));
	TT_CHECK(t, symlink("/dev/full", tt_test_path(t, "run/metrics.jsonl")) == 0);
	tt_metrics *m = tt_metrics_open(&o);
	run_steps(m, 1, 3);
	tt_metrics_close(m);
	tt_log_set_sink(NULL, NULL);
	TT_CHECK_STR(t, log.s, tt_arena_printf(t->arena, "warning: metrics: %s/metrics.jsonl: cannot write: No space left on device; the run goes on without this file\n", o.folder));
	TT_CHECK_INT(t, count(decode(t, event_file(t, o.folder)), "validation_metrics/loss"), 3); /* the other file is whole */
	tt_buf_fini(&log);
}

/* A disk that fills in the middle of a line: the half line is taken back. The limit on a file's size is such a disk. */
static void half_line(tt_test *t)
{
	tt_buf log = { 0 };
	fake f = { 0 };
	tt_metrics_options o = options(tt_test_path(t, "run"), &f);
	o.jsonl = true;
	tt_metrics *m = tt_metrics_open(&o);
	tt_metrics_log_event(m, 1, "a", "", NULL, 0);
	const char *path = tt_test_path(t, "run/metrics.jsonl"), *first = content(t, path);
	struct rlimit old, limit;
	signal(SIGXFSZ, SIG_IGN);
	TT_CHECK(t, getrlimit(RLIMIT_FSIZE, &old) == 0);
	limit = old;
	limit.rlim_cur = strlen(first) + 20;
	TT_CHECK(t, setrlimit(RLIMIT_FSIZE, &limit) == 0);
	tt_log_set_sink(collect, &log);
	run_steps(m, 2, 4);
	TT_CHECK(t, setrlimit(RLIMIT_FSIZE, &old) == 0);
	run_steps(m, 5, 6);
	tt_metrics_close(m);
	tt_log_set_sink(NULL, NULL);
	TT_CHECK(t, strlen(first) > 10);
	TT_CHECK_STR(t, content(t, path), first);
	TT_CHECK_INT(t, count(log.s, "warning: "), 1);
	TT_CHECK_INT(t, count(log.s, "metrics.jsonl: cannot write"), 1);
	tt_buf_fini(&log);
}

static void removed(tt_test *t)
{
	tt_buf log = { 0 };
	fake f = { 0 };
	tt_metrics_options o = options(tt_test_path(t, "run"), &f);
	o.jsonl = o.tensorboard = true;
	tt_log_set_sink(collect, &log);
	tt_metrics *m = tt_metrics_open(&o);
	run_steps(m, 1, 2);
	TT_CHECK(t, log.n == 0);
	TT_CHECK(t, unlink(tt_test_path(t, "run/metrics.jsonl")) == 0 && unlink(event_file(t, o.folder)) == 0);
	run_steps(m, 3, 5);
	tt_metrics_close(m);
	TT_CHECK_INT(t, count(log.s, "was removed; the run goes on without this file"), 2);
	TT_CHECK_INT(t, count(log.s, "\n"), 2);
	/* A file where the folder should be: no folder can be made. */
	log.n = 0;
	TT_CHECK_OK(t, tt_file_write(tt_test_path(t, "file"), "", 0));
	o.folder = tt_test_path(t, "file/run");
	m = tt_metrics_open(&o);
	run_steps(m, 1, 3);
	tt_metrics_close(m);
	tt_log_set_sink(NULL, NULL);
	TT_CHECK_INT(t, count(log.s, "the run goes on without metrics.jsonl"), 1);
	TT_CHECK_INT(t, count(log.s, "the run goes on without event files"), 1);
	TT_CHECK_INT(t, count(log.s, "\n"), 2);
	tt_buf_fini(&log);
}

static void no_metrics(tt_test *t)
{
	run_steps(NULL, 1, 2);
	tt_metrics_pause(NULL);
	tt_metrics_close(NULL);
	TT_CHECK(t, !tt_metrics_live(NULL));
}

/* ---- console ------------------------------------------------------------------------------------------------------------------ */

static void plain_lines(tt_test *t)
{
	tt_buf log = { 0 };
	fake f = { 0 };
	tt_metrics_options o = options("", &f);
	o.mode = TT_METRICS_AUTO;
	tt_log_set_sink(collect, &log);
	tt_metrics *m = tt_metrics_open(&o);
	TT_CHECK(t, !tt_metrics_live(m));
	for (int64_t i = 1; i <= 23; i++) {
		tt_metrics_step s = i == 1 ? bare_step(1) : step_of(i);
		if (i > 10) { /* the speed of a window is its tokens by its seconds, and MFU goes by seconds as well */
			s.tokens_per_s = i % 2 ? 1000 : 4000;
			s.mfu = i % 2 ? 10 : 40;
		}
		if (i == 20)
			s.validate_seconds = 0.25;
		s.skipped = i == 23;
		if (i == 23)
			s.loss = -NAN, s.grad_norm = INFINITY; /* a NaN has no sign on the console */
		tt_metrics_log_step(m, &s);
		if (i == 20)
			tt_metrics_log_validation(m, &(tt_metrics_validation){ .step = i, .loss = 1.25, .bits_per_token = 1.8034, .tokens = 512, .seconds = 0.25 });
	}
	tt_metrics_close(m);
	tt_log_set_sink(NULL, NULL);
	TT_CHECK_STR(t, log.s,
		"step      1  loss   1.0000  grad_norm   1.0000  lr 5.000e-01\n"
		"step     10  loss   2.5000  grad_norm   0.1000  lr 1.000e-03      2000 tokens/s  MFU 40.0%  data 1% fwd 30% bwd 50% opt 10%\n"
		"step     20  loss   2.5000  grad_norm   0.1000  lr 1.000e-03      1600 tokens/s  MFU 16.0%  data 1% fwd 30% bwd 50% opt 10% val 5%\n"
		"step     20  validation loss 1.2500  bits per token 1.8034  (512 tokens, 0.2 s)\n"
		"step     23  loss      nan  grad_norm      inf  lr 1.000e-03      1333 tokens/s  MFU 13.3%  data 1% fwd 30% bwd 50% opt 10%  skipped\n");
	tt_buf_fini(&log);
}

/* A terminal of at most 64 rows that wraps, and knows CR, LF and ESC [K. */
enum { ROWS = 64, COLUMNS = 256 };
typedef struct screen {
	int width, row, column, writes, wraps;
	bool bad; /* something that this terminal does not know */
	char cells[ROWS][COLUMNS + 1];
} screen;

static void screen_write(void *ctx, const char *p, size_t n)
{
	screen *s = ctx;
	s->writes++;
	for (size_t i = 0; i < n; i++) {
		if (p[i] == '\r') {
			s->column = 0;
		} else if (p[i] == '\n') {
			s->row++;
			s->column = 0;
		} else if (p[i] == 27 && n - i >= 3 && p[i + 1] == '[' && p[i + 2] == 'K') {
			s->cells[s->row][s->column] = 0;
			i += 2;
		} else if (p[i] < 32) {
			s->bad = true;
		} else {
			if (s->column == (s->width > 0 ? s->width : 80)) {
				s->row++;
				s->column = 0;
				s->wraps++;
			}
			char *cell = &s->cells[s->row][s->column++];
			if (!*cell)
				cell[1] = 0;
			*cell = p[i];
		}
		if (s->row >= ROWS) {
			s->bad = true;
			s->row = 0;
		}
	}
}

static int screen_width(void *ctx) { return ((screen *)ctx)->width; }

static const char *shown(tt_test *t, const screen *s)
{
	tt_buf b = { 0 };
	for (int i = 0; i < ROWS; i++)
		if (s->cells[i][0] || i == s->row)
			tt_buf_printf(&b, "%s|\n", s->cells[i]);
	const char *text = tt_arena_strdup(t->arena, b.s ? b.s : "");
	tt_buf_fini(&b);
	return text;
}

static void live_line(tt_test *t)
{
	screen *s = tt_arena_alloc(t->arena, sizeof *s);
	fake f = { .now = 1000 };
	s->width = 160;
	tt_metrics_options o = options("", &f);
	o.mode = TT_METRICS_AUTO;
	o.console = (tt_metrics_console){ .ctx = s, .write = screen_write, .width = screen_width, .tty = true };
	tt_metrics *m = tt_metrics_open(&o);
	TT_CHECK(t, tt_metrics_live(m));
	TT_CHECK_INT(t, s->writes, 0);
	tt_metrics_step step = step_of(1);
	tt_metrics_log_step(m, &step);
#define FIRST "step      1  loss   2.5000  grad_norm   0.1000  lr 1.000e-03      2000 tokens/s  MFU 40.0%  data 1% fwd 30% bwd 50% opt 10%|\n"
	TT_CHECK_STR(t, shown(t, s), FIRST "[>                               ]  1/100 1%  loss 2.5000  2000 tokens/s  MFU 40.0%  ETA 0:50|\n");
	/* Steps of 0.5 s, told in another speed: the estimate goes by the clock. */
	for (int64_t i = 2; i <= 7; i++) {
		f.now += 10;
		step = step_of(i);
		step.loss = (double)i;
		tt_metrics_log_step(m, &step);
	}
	TT_CHECK_STR(t, shown(t, s), FIRST "[==>                             ]  7/100 7%  loss 7.0000  2000 tokens/s  MFU 40.0%  ETA 15:30|\n");
	/* A log line goes above. */
	tt_log(TT_LOG_WARN, "something");
	TT_CHECK_STR(t, shown(t, s), FIRST "warning: something|\n[==>                             ]  7/100 7%  loss 7.0000  2000 tokens/s  MFU 40.0%  ETA 15:30|\n");
	/* Also where the terminal has become narrower since: what does not fit is left out until the line is made anew. */
	s->width = 20;
	tt_log(TT_LOG_INFO, "narrow");
	TT_CHECK_STR(t, s->cells[s->row], "[==>               ");
	s->width = 160;
	/* No more than five times a second. */
	int before = s->writes;
	for (int64_t i = 8; i <= 9; i++) {
		f.now += 0.09;
		step = step_of(i);
		tt_metrics_log_step(m, &step);
	}
	TT_CHECK_INT(t, s->writes, before);
	f.now += 0.09;
	step = step_of(9);
	tt_metrics_log_step(m, &step);
	TT_CHECK_INT(t, s->writes, before + 1);
	/* A shorter line leaves nothing of the longer one; a line of log_freq is permanent. */
	f.now += 1;
	s->width = 40;
	step = step_of(11);
	step.mfu = NAN;
	tt_metrics_log_step(m, &step);
	TT_CHECK_STR(t, shown(t, s), FIRST "warning: something|\nnarrow|\n11/100 11%  loss 2.5000  ETA 9:05|\n");
	tt_metrics_pause(m);
	TT_CHECK_STR(t, shown(t, s), FIRST "warning: something|\nnarrow|\n|\n");
	s->width = 200;
	f.now += 0.01;
	step = step_of(12);
	tt_metrics_log_step(m, &step);
	TT_CHECK_STR(t, strrchr(shown(t, s), '[') ? "bar" : "none", "bar");
	/* The last step: its line, and no live one below. */
	step = step_of(100);
	tt_metrics_log_step(m, &step);
	before = s->row;
	TT_CHECK(t, strstr(s->cells[before - 1], "step    100  loss"));
	TT_CHECK_STR(t, s->cells[before], "");
	tt_metrics_close(m);
	TT_CHECK_INT(t, s->row, before);
	TT_CHECK_INT(t, s->column, 0);
	TT_CHECK(t, !s->bad && !s->wraps);
	/* The sink is the default one again. */
	before = s->writes;
	tt_log(TT_LOG_INFO, " ");
	TT_CHECK_INT(t, s->writes, before);
}

/* Whatever the width, also where it changes between lines: nothing wraps. Log lines may. */
static void live_widths(tt_test *t)
{
	screen *s = tt_arena_alloc(t->arena, sizeof *s);
	for (int width = -1; width <= 200; width++) {
		fake f = { 0 };
		*s = (screen){ .width = width };
		tt_metrics_options o = options("", &f);
		o.mode = TT_METRICS_LIVE;
		o.steps = width % 3 ? 100000 : 0;
		o.log_freq = 1000000;
		o.console = (tt_metrics_console){ .ctx = s, .write = screen_write, .width = screen_width };
		tt_metrics *m = tt_metrics_open(&o);
		s->width = COLUMNS; /* for the permanent line of the first step */
		tt_metrics_step step = step_of(2);
		tt_metrics_log_step(m, &step);
		tt_metrics_pause(m);
		for (int i = 0; i < 6; i++) {
			f.now += 3e5; /* an estimate of days */
			s->width = i % 2 ? width : TT_MAX(width / 2, 1);
			step = step_of(i == 5 ? 99999 : 12345);
			step.loss = i == 3 ? NAN : 1e9;
			step.tokens_per_s = 1e3 * pow(10, i);
			int at = s->row;
			s->cells[at][0] = 0;
			s->column = 0;
			tt_metrics_log_step(m, &step);
			int most = s->width > 0 ? s->width : 80; /* 80 where it is not known */
			int n = (int)strlen(s->cells[at]);
			TT_CHECK_MSG(t, s->row == at && n < most && (most < 50 || n > 20), "width %d: %s", s->width, s->cells[at]);
			if (s->width > 110)
				TT_CHECK_MSG(t, strstr(s->cells[at], o.steps ? "ETA" : "step ") && strstr(s->cells[at], "MFU"), "width %d: %s", s->width, s->cells[at]);
		}
		s->width = COLUMNS;
		tt_metrics_close(m);
		TT_CHECK(t, !s->bad);
	}
}

static void no_allocation(tt_test *t)
{
	if (!tt_malloc_count_available())
		TT_SKIP(t, "a sanitizer brings its own allocator");
	fake f = { .wall = 1700000000.25 };
	tt_buf log = { 0 };
	for (int i = 0; i < 4000; i++)
		tt_buf_str(&log, "                ");
	log.n = 0;
	screen *live = tt_arena_alloc(t->arena, sizeof *live);
	live->width = 150;
	tt_metrics_options o = options(tt_test_path(t, "run"), &f);
	o.jsonl = o.tensorboard = true;
	o.console = (tt_metrics_console){ .ctx = live, .write = screen_write, .width = screen_width };
	for (int k = 0; k < 2; k++) {
		o.mode = k ? TT_METRICS_LIVE : TT_METRICS_PLAIN;
		tt_log_set_sink(collect, &log);
		tt_metrics *m = tt_metrics_open(&o);
		tt_metrics_step s = step_of(1);
		tt_metrics_log_step(m, &s);
		tt_malloc_count_begin();
		for (int64_t i = 2; i <= 50; i++) {
			f.now++;
			s = step_of(i * 1000003);
			s.loss = s.seconds = s.data_seconds = s.mfu = -1e200 / (double)i; /* longer and longer */
			tt_metrics_log_step(m, &s);
		}
		TT_CHECK_INT(t, tt_malloc_count_end(), 0);
		tt_metrics_close(m);
		tt_log_set_sink(NULL, NULL);
	}
	TT_CHECK(t, live->writes > 50);
	TT_CHECK(t, count(log.s, "\n") >= 6);
	tt_buf_fini(&log);
}

static void dumb_terminal(tt_test *t)
{
	tt_buf log = { 0 };
	fake f = { 0 };
	screen *s = tt_arena_alloc(t->arena, sizeof *s);
	s->width = 80;
	tt_log_set_sink(collect, &log);
	tt_metrics_options o = options("", &f);
	o.console = (tt_metrics_console){ .ctx = s, .write = screen_write, .width = screen_width, .tty = true, .dumb = true };
	for (int i = 0; i < 3; i++) {
		static const tt_metrics_mode modes[] = { TT_METRICS_AUTO, TT_METRICS_LIVE, TT_METRICS_OFF };
		o.mode = modes[i];
		log.n = 0;
		tt_buf_str(&log, "");
		tt_metrics *m = tt_metrics_open(&o);
		tt_metrics_step step = step_of(1);
		tt_metrics_log_step(m, &step);
		tt_metrics_close(m);
		TT_CHECK_INT(t, count(log.s, "step      1"), i < 2);
		TT_CHECK_INT(t, count(log.s, "warning: a live console was asked for, but this terminal cannot erase a line (TERM=dumb)"), i == 1);
	}
	TT_CHECK_INT(t, s->writes, 0);
	tt_log_set_sink(NULL, NULL);
	tt_buf_fini(&log);
}

/* ---- reading -------------------------------------------------------------------------------------------------------------------- */

static const char *const two[] = { "loss", "norm/w" };

static tt_status read_text(tt_test *t, const char *text, tt_metrics_run *out)
{
	const char *path = tt_test_path(t, "metrics.jsonl");
	TT_CHECK_OK(t, tt_file_write(path, text, strlen(text)));
	return tt_metrics_read(t->arena, path, two, TT_COUNT(two), out);
}

static void reads(tt_test *t)
{
	tt_metrics_run r;
	/* Step 3 was made twice, the last line is cut, and one is of a type that a later version may write. */
	if (!TT_CHECK_OK(t, read_text(t,
		"{\"step\":1,\"type\":\"step\",\"schema\":1,\"loss\":5,\"tokens_seen\":10,\"seconds\":2,\"extra\":{\"norm/w\":0.5}}\n"
		"{\"step\":2,\"type\":\"step\",\"loss\":null,\"tokens_seen\":20,\"seconds\":1,\"nonfinite\":true}\n"
		"{\"step\":2,\"type\":\"validation\",\"loss\":4.5}\n"
		"{\"step\":2,\"type\":\"event\",\"event\":\"save\",\"text\":\"\"}\n{\"step\":2,\"type\":\"novel\",\"loss\":1}\n"
		"{\"step\":3,\"type\":\"step\",\"loss\":9,\"tokens_seen\":30,\"seconds\":1}\n{\"step\":3,\"type\":\"validation\",\"loss\":9}\n"
		"{\"step\":3,\"type\":\"step\",\"loss\":3,\"tokens_seen\":30,\"seconds\":4}\n{\"step\":4,\"type\":\"st", &r)))
		return;
	TT_CHECK_STR(t, r.name, "metrics.jsonl");
	if (!TT_CHECK_INT(t, r.steps.n, 3) || !TT_CHECK_INT(t, r.validations.n, 1))
		return;
	TT_CHECK(t, r.steps.values[0][0] == 5 && isnan(r.steps.values[0][1]) && r.steps.values[0][2] == 3);
	TT_CHECK(t, r.steps.values[1][0] == 0.5 && isnan(r.steps.values[1][1]));
	TT_CHECK(t, r.steps.step[2] == 3 && r.steps.tokens[2] == 30 && r.steps.seconds[2] == 7);
	TT_CHECK(t, r.validations.values[0][0] == 4.5 && r.validations.tokens[0] == 20 && r.validations.seconds[0] == 3);
	const char *near = NULL;
	TT_CHECK_STR(t, tt_metrics_known(&r, 1, "norm/w", &near), "norm/w");
	TT_CHECK_STR(t, tt_metrics_known(&r, 1, "mfu", &near), "mfu");
	TT_CHECK(t, !tt_metrics_known(&r, 1, "los", &near));
	TT_CHECK_STR(t, near, "loss");
	TT_CHECK(t, !tt_metrics_known(&r, 1, "norm/v", &near));
	TT_CHECK_STR(t, near, "norm/w");
	TT_CHECK_OK(t, read_text(t, "", &r));
	TT_CHECK_INT(t, r.steps.n, 0);
	/* A run that resumed and was validated before its first step. */
	TT_CHECK_OK(t, read_text(t, "{\"step\":2,\"type\":\"validation\",\"loss\":5}\n{\"step\":1,\"type\":\"validation\",\"loss\":4}\n", &r));
	TT_CHECK(t, r.validations.n == 1 && r.validations.step[0] == 1 && r.validations.values[0][0] == 4);
	TT_CHECK_OK(t, read_text(t, "{\"step\":1,\"type\":\"step\",\"loss\":5}", &r)); /* whole but for its newline */
	TT_CHECK_INT(t, r.steps.n, 1);
}

static void refuses(tt_test *t)
{
#define GOOD "{\"step\":1,\"type\":\"step\",\"loss\":5}\n"
	tt_metrics_run r = { .name = "untouched" };
	TT_CHECK_FAILS(t, read_text(t, GOOD "{\"step\":2,\n" GOOD, &r), TT_ERR_FORMAT, "metrics.jsonl:2:");
	TT_CHECK_FAILS(t, read_text(t, GOOD GOOD "[1]\n", &r), TT_ERR_FORMAT, "metrics.jsonl:3: not a JSON object");
	TT_CHECK_FAILS(t, read_text(t, GOOD "\n" GOOD, &r), TT_ERR_FORMAT, "metrics.jsonl:2:");
	TT_CHECK_FAILS(t, read_text(t, GOOD "{\"type\":\"step\"}\n", &r), TT_ERR_FORMAT, "metrics.jsonl:2: a line of type \"step\" without an integer \"step\"");
	TT_CHECK_FAILS(t, read_text(t, "{\"step\":1,\"type\":\"step\",\"schema\":2}\n", &r), TT_ERR_FORMAT, "metrics.jsonl:1: schema 2, this version reads up to 1");
	TT_CHECK_FAILS(t, tt_metrics_read(t->arena, tt_test_path(t, "none"), two, 2, &r), TT_ERR_IO, "none: cannot open");
	TT_CHECK_OK(t, tt_mkdirs(tt_test_path(t, "empty")));
	TT_CHECK_FAILS(t, tt_metrics_read(t->arena, tt_test_path(t, "empty"), two, 2, &r), TT_ERR_IO, "empty: has no metrics.jsonl");
	TT_CHECK_STR(t, r.name, "untouched");
}

/* What is written is read. */
static void round_trip(tt_test *t)
{
	fake f = { .wall = 3 };
	tt_metrics_options o = options(tt_test_path(t, "run"), &f);
	o.jsonl = true;
	tt_metrics *m = tt_metrics_open(&o);
	for (int64_t i = 1; i <= 500; i++) {
		tt_metrics_step s = step_of(i);
		s.loss = 1 / (double)i;
		s.extra = &(tt_metrics_scalar){ "norm/w", sqrt((double)i) };
		s.nextra = 1;
		tt_metrics_log_step(m, &s);
	}
	tt_metrics_close(m);
	tt_metrics_run r;
	if (!TT_CHECK_OK(t, tt_metrics_read(t->arena, tt_arena_printf(t->arena, "%s/", o.folder), two, 2, &r)) || !TT_CHECK_INT(t, r.steps.n, 500))
		return;
	TT_CHECK_STR(t, r.name, "run");
	int wrong = 0;
	for (int i = 0; i < 500; i++)
		wrong += r.steps.values[0][i] != 1 / (double)(i + 1) || r.steps.values[1][i] != sqrt(i + 1.0);
	TT_CHECK_INT(t, wrong, 0);
}

/* ---- drawing --------------------------------------------------------------------------------------------------------------------- */

/* Tags must nest, attributes be quoted, and no bare & or < be left: what an XML reader would refuse. NULL: well formed. */
static const char *xml_fault(tt_test *t, const char *s)
{
	const char *open[32];
	size_t length[32];
	int depth = 0, roots = 0;
	for (const char *p = s; *p; p++) {
		if (*p == '&') {
			if (strncmp(p, "&amp;", 5) && strncmp(p, "&lt;", 4) && strncmp(p, "&gt;", 4) && strncmp(p, "&quot;", 6))
				return tt_arena_printf(t->arena, "bare & at byte %td", p - s);
			continue;
		}
		if ((unsigned char)*p < 32 && *p != '\n')
			return "control character";
		if (!tt_utf8_length(p) && ((unsigned char)*p & 0xc0) != 0x80)
			return "not UTF-8";
		if (*p != '<')
			continue;
		bool closes = p[1] == '/';
		const char *name = p + 1 + closes;
		size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz");
		const char *end = name + n;
		for (bool quoted = false; *end && (quoted || *end != '>'); end++) {
			quoted ^= *end == '"';
			if (*end == '<')
				return tt_arena_printf(t->arena, "< in a tag at byte %td", end - s);
		}
		if (!n || !*end)
			return tt_arena_printf(t->arena, "a tag without name or end at byte %td", p - s);
		if (closes) {
			if (!depth || length[depth - 1] != n || strncmp(open[depth - 1], name, n))
				return tt_arena_printf(t->arena, "%.*s closes what is not open", (int)n, name);
			depth--;
		} else if (end[-1] != '/') {
			if (depth == 32)
				return "too deep";
			roots += depth == 0;
			open[depth] = name;
			length[depth++] = n;
		}
		p = end;
	}
	return depth ? "a tag is not closed" : roots == 1 ? NULL : "not one root";
}

static tt_metrics_run made_up(tt_test *t, const char *name, int64_t n, double (*fn)(int64_t i))
{
	tt_metrics_run r = { .name = name, .path = name };
	tt_metrics_points *s = &r.steps;
	s->n = n;
	s->step = TT_NEWN(t->arena, double, n + 1);
	s->tokens = TT_NEWN(t->arena, double, n + 1);
	s->seconds = TT_NEWN(t->arena, double, n + 1);
	s->values = TT_NEWN(t->arena, double *, 2);
	r.validations.values = TT_NEWN(t->arena, double *, 2);
	for (int k = 0; k < 2; k++)
		s->values[k] = TT_NEWN(t->arena, double, n + 1);
	for (int64_t i = 0; i < n; i++) {
		s->step[i] = (double)i + 1;
		s->tokens[i] = 512 * s->step[i];
		s->seconds[i] = 3 * s->step[i];
		s->values[0][i] = fn(i);
		s->values[1][i] = NAN;
	}
	return r;
}

static double falling(int64_t i) { return 10 / (double)(i + 1); }
static double with_gaps(int64_t i) { return i % 10 == 3 || i % 10 == 5 ? NAN : (double)i; }
static double constant(int64_t i)
{
	(void)i;
	return 4;
}
static double huge(int64_t i) { return i == 2 ? 1e308 : i == 3 ? -1e308 : i == 4 ? INFINITY : i % 2 ? 1e140 : 4e-324; }
static double edge(int64_t i)
{
	(void)i;
	return 1e150; /* the largest that is drawn: marks above it are not */
}
static double spike(int64_t i) { return i == 50000 ? 1000 : i == 70000 ? -1000 : 1; }

static const char *draw(tt_test *t, const tt_metrics_run *runs, int n, const char *const *metrics, int nmetrics, tt_plot_options o)
{
	tt_buf b = { 0 };
	tt_plot_svg(runs, n, metrics, nmetrics, &o, &b);
	const char *svg = tt_arena_strdup(t->arena, b.s);
	tt_buf_fini(&b);
	const char *fault = xml_fault(t, svg);
	TT_CHECK_MSG(t, !fault, "%s", fault);
	TT_CHECK_INT(t, count(svg, "nan"), 0);
	TT_CHECK_INT(t, count(svg, "inf"), 0);
	return svg;
}

/* Points of all lines of a class. */
static int points_of(const char *svg, const char *class)
{
	int n = 0;
	char head[64];
	snprintf(head, sizeof head, "<polyline class=\"%s", class);
	for (const char *p = svg; (p = strstr(p, head)); p++) {
		const char *q = strstr(p, "points=\"") + 8;
		for (; *q != '"'; q++)
			n += *q == ',';
	}
	return n;
}

static void plots(tt_test *t)
{
	static const char *const metrics[] = { "loss", "mfu" };
	tt_metrics_run runs[] = { made_up(t, "a", 40, falling), made_up(t, "<b> & \"c\"\xff\x01", 20, with_gaps), made_up(t, "single", 1, constant), made_up(t, "none", 0, constant) };
	double at[] = { 10, 20 }, loss[] = { 2, NAN }, none[] = { NAN, NAN }, *values[] = { loss, none };
	runs[0].validations = (tt_metrics_points){ .n = 2, .step = at, .tokens = at, .seconds = at, .values = values };
	for (int x = 0; x < 3; x++) {
		const char *svg = draw(t, runs, 4, metrics, 2, (tt_plot_options){ .x = (tt_plot_x)x });
		TT_CHECK_INT(t, points_of(svg, "l s0"), 40);
		/* 0..2, (4), 6..12, (14), 16..19: lines of 3, 7 and 4 points, and two that stand alone. */
		TT_CHECK_INT(t, points_of(svg, "l s1"), 14);
		TT_CHECK_INT(t, count(svg, "<circle class=\"p c1\""), 2);
		TT_CHECK_INT(t, count(svg, "<circle class=\"p c2\""), 1);
		TT_CHECK_INT(t, count(svg, "<circle class=\"v s0\""), 1);
		TT_CHECK_INT(t, count(svg, "&lt;b&gt; &amp; &quot;c&quot;??"), 1);
		TT_CHECK_INT(t, count(svg, "no run has values"), 1);
	}
	const char *svg = draw(t, runs, 1, metrics, 1, (tt_plot_options){ .smooth = 5, .log = true });
	TT_CHECK_INT(t, points_of(svg, "l s0"), 40);
	TT_CHECK_INT(t, points_of(svg, "r s0"), 40);
	TT_CHECK_INT(t, count(draw(t, runs + 2, 1, metrics, 1, (tt_plot_options){ .log = true, .smooth = 1000 }), "<circle class=\"p c0\""), 1);
	draw(t, runs + 3, 1, metrics, 2, (tt_plot_options){ .x = TT_PLOT_TIME });
	/* Nothing overflows. */
	runs[0] = made_up(t, "huge", 9, huge);
	svg = draw(t, runs, 1, metrics, 1, (tt_plot_options){ .smooth = 3 });
	TT_CHECK_INT(t, points_of(svg, "r s0"), 6);
	draw(t, runs, 1, metrics, 1, (tt_plot_options){ .log = true });
	runs[0] = made_up(t, "edge", 9, edge);
	draw(t, runs, 1, metrics, 1, (tt_plot_options){ .log = true });
	/* 100,000 points: few are drawn, and what stands out is among them. */
	runs[0] = made_up(t, "long", 100000, spike);
	svg = draw(t, runs, 1, metrics, 1, (tt_plot_options){ 0 });
	int n = points_of(svg, "l s0");
	TT_CHECK_MSG(t, n > 800 && n < 4000, "%d points", n);
	/* The panel is 270 high; its values are widened by a twentieth at both ends. */
	const char *top = tt_arena_printf(t->arena, ",%.1f ", 44 + 20 + 44 + 270 * (0.05 / 1.1)), *bottom = tt_arena_printf(t->arena, ",%.1f ", 44 + 20 + 44 + 270 * (1.05 / 1.1));
	TT_CHECK_INT(t, count(svg, top), 1);
	TT_CHECK_INT(t, count(svg, bottom), 1);
}

/* Curve points of a smoothed line, read back from the drawing. */
static double mixed(int64_t i) { return i == 6 ? 1e30 : i == 9 ? NAN : (double)(i % 4); }

static void smoothing(tt_test *t)
{
	static const char *const metrics[] = { "loss" };
	tt_metrics_run run = made_up(t, "a", 30, mixed);
	for (int64_t width = 2; width < 40; width += 3) {
		/* By definition, over the finite ones. */
		double want[30];
		for (int64_t i = 0; i < 30; i++) {
			double sum = 0, n = 0;
			for (int64_t k = TT_MAX((int64_t)0, i - TT_MIN(width, (int64_t)30) + 1); k <= i; k++)
				if (isfinite(mixed(k)))
					sum += mixed(k), n++;
			want[i] = isfinite(mixed(i)) ? sum / n : NAN;
		}
		/* 1e30 would flatten the rest: logarithms show it. */
		const char *got = draw(t, &run, 1, metrics, 1, (tt_plot_options){ .smooth = width, .log = true });
		const char *line = strstr(got, "<polyline class=\"l");
		if (!TT_CHECK(t, line))
			return;
		/* The axis is that of the raw values. */
		double lo = NAN, hi = NAN;
		for (int64_t i = 0; i < 30; i++)
			if (mixed(i) > 0) {
				lo = isnan(lo) || log10(mixed(i)) < lo ? log10(mixed(i)) : lo;
				hi = isnan(hi) || log10(mixed(i)) > hi ? log10(mixed(i)) : hi;
			}
		double range = hi - lo;
		lo -= range * 0.05;
		hi += range * 0.05;
		int wrong = 0;
		for (int64_t i = 0; i < 30; i++) {
			double v = want[i];
			if (!(v > 0))
				continue;
			double x = 84 + (double)(i + 1) / 30 * (960 - 84 - 28), y = 44 + 20 + 44 + 270 - (log10(v) - lo) / (hi - lo) * 270;
			const char *point = tt_arena_printf(t->arena, "%.1f,%.1f", x, y);
			wrong += !strstr(line, point);
		}
		TT_CHECK_MSG(t, wrong == 0, "width %lld: %d points are not where they belong", (long long)width, wrong);
	}
}

const tt_case tt_suite_metrics[] = {
	{ "jsonl_lines", jsonl_lines, TT_TIER_QUICK },
	{ "numbers", numbers, TT_TIER_QUICK },
	{ "jsonl_resume", jsonl_resume, TT_TIER_QUICK },
	{ "crc32c", crc32c, TT_TIER_QUICK },
	{ "event_bytes", event_bytes, TT_TIER_QUICK },
	{ "event_tags", event_tags, TT_TIER_QUICK },
	{ "full_disk", full_disk, TT_TIER_QUICK },
	{ "half_line", half_line, TT_TIER_QUICK },
	{ "removed", removed, TT_TIER_QUICK },
	{ "no_metrics", no_metrics, TT_TIER_QUICK },
	{ "no_allocation", no_allocation, TT_TIER_QUICK },
	{ "plain_lines", plain_lines, TT_TIER_QUICK },
	{ "live_line", live_line, TT_TIER_QUICK },
	{ "live_widths", live_widths, TT_TIER_QUICK },
	{ "dumb_terminal", dumb_terminal, TT_TIER_QUICK },
	{ "reads", reads, TT_TIER_QUICK },
	{ "refuses", refuses, TT_TIER_QUICK },
	{ "round_trip", round_trip, TT_TIER_QUICK },
	{ "plots", plots, TT_TIER_QUICK },
	{ "smoothing", smoothing, TT_TIER_QUICK },
	{ 0 },
};
