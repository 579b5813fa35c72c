/* base: errors, arenas, text, files, regions, the worker pool, small floats. */
#define _GNU_SOURCE
#include "test.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- errors and log --------------------------------------------------------------------------------------------- */

static tt_status inner(int v)
{
	if (v < 0)
		TT_FAIL(TT_ERR_USAGE, "value %d is negative (test.value)", v);
	return TT_OK;
}

static tt_status outer(int v, int *out)
{
	TT_TRY(inner(v));
	*out = v;
	return TT_OK;
}

static tt_status wrap(int v)
{
	int x;
	tt_status s = outer(v, &x);
	if (s != TT_OK)
		TT_FAIL(s, "wrapped: %s", tt_error_text());
	return TT_OK;
}

static void *other_thread(void *arg)
{
	(void)arg;
	(void)inner(-2);
	return NULL;
}

static void error_record(tt_test *t)
{
	int out = 7;
	TT_CHECK_STR(t, tt_error_text(), "");
	TT_CHECK_OK(t, outer(3, &out));
	TT_CHECK_INT(t, out, 3);
	TT_CHECK_INT(t, outer(-1, &out), TT_ERR_USAGE);
	TT_CHECK_INT(t, out, 3);
	TT_CHECK_STR(t, tt_error_text(), "value -1 is negative (test.value)");
	int a = 0, b = 0;
	char rest[8] = "";
	TT_CHECK_MSG(t, sscanf(tt_error_trail(), "test_base.c:%d < test_base.c:%d%7s", &a, &b, rest) == 2 && b > a,
		"trail is \"%s\"", tt_error_trail());
	/* Another thread's record is its own. */
	pthread_t thread;
	pthread_create(&thread, NULL, other_thread, NULL);
	pthread_join(thread, NULL);
	TT_CHECK_STR(t, tt_error_text(), "value -1 is negative (test.value)");
	TT_CHECK_INT(t, wrap(-5), TT_ERR_USAGE);
	TT_CHECK_STR(t, tt_error_text(), "wrapped: value -5 is negative (test.value)");
	TT_CHECK(t, !strchr(tt_error_trail(), '<'));
	for (int i = 0; i < 1000; i++)
		tt_error_crumb(TT_ERR_IO, "src/some/where.c", i);
	TT_CHECK(t, strlen(tt_error_trail()) < 1024 && strstr(tt_error_trail(), "where.c:20 <"));
	char *big = tt_arena_alloc(t->arena, 5001);
	memset(big, 'x', 5000);
	TT_CHECK_INT(t, tt_error_set(TT_ERR_IO, "f.c", 1, "%s", big), TT_ERR_IO);
	TT_CHECK_INT(t, strlen(tt_error_text()), 4095);
	TT_CHECK_STR(t, tt_status_name(TT_ERR_NUMERIC), "numeric");
}

static void panic_with_scope(void *ctx)
{
	(void)ctx;
	tt_thread_set(3, "layers.2.mlp");
	TT_ASSERT(1 + 1 == 3, "the sum is %d", 2);
}

static void error_panic(tt_test *t)
{
	tt_test_dies(t, panic_with_scope, NULL, SIGABRT, "on rank 3 in layers.2.mlp: assertion `1 + 1 == 3` failed: the sum is 2");
	tt_test_dies(t, panic_with_scope, NULL, SIGABRT, "titan-test("); /* a frame of the backtrace */
}

typedef struct seen_lines {
	int n;
	tt_log_level level;
	char last[256];
} seen_lines;

static void see(void *ctx, tt_log_level level, const char *line)
{
	seen_lines *s = ctx;
	s->n++;
	s->level = level;
	snprintf(s->last, sizeof s->last, "%s", line);
}

static void log_sink(tt_test *t)
{
	seen_lines s = {0};
	tt_log_set_sink(see, &s);
	tt_log(TT_LOG_DEBUG, "below the level");
	TT_CHECK_INT(t, s.n, 0);
	tt_log(TT_LOG_WARN, "key %s has no effect", "a.b");
	TT_CHECK_STR(t, s.last, "key a.b has no effect");
	TT_CHECK_INT(t, s.level, TT_LOG_WARN);
	tt_thread_set(2, NULL);
	tt_log_set_level(TT_LOG_DEBUG);
	tt_log(TT_LOG_DEBUG, "now it is seen");
	TT_CHECK_STR(t, s.last, "[rank 2] now it is seen");
	TT_CHECK_INT(t, s.n, 2);
	tt_log_set_sink(NULL, NULL);
}

/* ---- arenas ----------------------------------------------------------------------------------------------------- */

static bool all_zero(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

static void arena_stack(tt_test *t)
{
	tt_arena *a = tt_arena_create("stack");
	TT_CHECK_INT(t, tt_arena_used(a), 0);
	/* Sizes that force new blocks, dirtied before each pop: what comes again must be zero and aligned. */
	for (int round = 0; round < 50; round++) {
		tt_mark m = tt_arena_push(a);
		size_t before = tt_arena_used(a);
		for (int i = 0; i < 40; i++) {
			size_t n = (size_t)(i * i * i) + (size_t)round;
			uint8_t *p = tt_arena_alloc(a, n);
			if (!TT_CHECK(t, (uintptr_t)p % 16 == 0) || !TT_CHECK(t, all_zero(p, n)))
				return;
			memset(p, 0xaa, n);
		}
		TT_CHECK(t, tt_arena_used(a) > before);
		if (round % 3 != 0) {
			tt_arena_pop(a, m);
			TT_CHECK_INT(t, tt_arena_used(a), before);
		}
	}
	/* What was there before a push stays, wherever the blocks end. */
	char *kept = tt_arena_printf(a, "%s-%d", "kept", 42);
	tt_mark m = tt_arena_push(a);
	TT_CHECK(t, tt_arena_alloc(a, 10 * TT_MIB) != NULL);
	tt_arena_pop(a, m);
	TT_CHECK_STR(t, kept, "kept-42");
	TT_CHECK_STR(t, tt_arena_strndup(a, "abcdef", 3), "abc");
	tt_arena_pop(a, (tt_mark){0});
	TT_CHECK_INT(t, tt_arena_used(a), 0);
	tt_arena_destroy(a);
	tt_arena_destroy(NULL);
}

static void arena_no_malloc_again(tt_test *t)
{
	if (!tt_malloc_count_available())
		TT_SKIP(t, "malloc is not counted under sanitizers");
	tt_arena *a = tt_arena_create("again");
	tt_arena_alloc(a, 16000); /* nearly the first block: every round below crosses its end */
	for (int i = 0; i < 3; i++) {
		if (i == 1)
			tt_malloc_count_begin();
		tt_mark m = tt_arena_push(a);
		tt_arena_alloc(a, 4000);
		tt_arena_pop(a, m);
	}
	TT_CHECK_INT(t, tt_malloc_count_end(), 0);
	tt_arena_destroy(a);
	/* The counter counts. */
	tt_malloc_count_begin();
	void *volatile p = malloc(10);
	void *volatile q = realloc(p, 100);
	void *volatile r = aligned_alloc(64, 64);
	TT_CHECK_INT(t, tt_malloc_count_end(), 3);
	free(q);
	free(r);
}

static void arena_limit(tt_test *t)
{
	tt_arena *a = tt_arena_create("limited");
	TT_CHECK_OK(t, tt_arena_ok(a));
	tt_arena_set_limit(a, 1000);
	tt_arena_alloc(a, 1000 - 8); /* 992 is a multiple of 16 */
	TT_CHECK_OK(t, tt_arena_ok(a));
	char *p = tt_arena_alloc(a, 9);
	TT_CHECK(t, p && p[8] == 0);
	TT_CHECK_FAILS(t, tt_arena_ok(a), TT_ERR_MEMORY, "arena limited: needs 1008 bytes or more, its limit is 1000");
	memset(p, 1, 9);
	tt_arena_pop(a, (tt_mark){0});
	TT_CHECK_INT(t, tt_arena_ok(a), TT_ERR_MEMORY); /* it stays said */
	tt_arena_destroy(a);
}

static void pop_twice(void *ctx)
{
	tt_arena *a = ctx;
	tt_mark first = tt_arena_push(a);
	tt_arena_alloc(a, 100);
	tt_mark second = tt_arena_push(a);
	tt_arena_pop(a, first);
	tt_arena_pop(a, second);
}

static void arena_misuse(tt_test *t) { tt_test_dies(t, pop_twice, t->arena, SIGABRT, "popped to a mark"); }

static void arena_push_items(tt_test *t)
{
	struct { int64_t *items; int64_t n, cap; } v = {0};
	for (int64_t i = 0; i < 10000; i++)
		TT_PUSH(t->arena, v.items, v.n, v.cap, i * i);
	TT_CHECK_INT(t, v.n, 10000);
	TT_CHECK(t, v.cap >= v.n);
	for (int64_t i = 0; i < v.n; i++)
		if (!TT_CHECK_INT(t, v.items[i], i * i))
			return;
}

/* ---- text ------------------------------------------------------------------------------------------------------- */

static void str_buf(tt_test *t)
{
	tt_buf b = {0};
	tt_buf_add(&b, NULL, 0);
	TT_CHECK_STR(t, b.s, "");
	tt_buf_str(&b, "one ");
	for (int i = 0; i < 100; i++)
		tt_buf_printf(&b, "%d,", i);
	tt_buf_add(&b, "a\0b", 3);
	TT_CHECK_INT(t, b.n, 4 + 290 + 3);
	TT_CHECK(t, memcmp(b.s + b.n - 6, "99,a\0b", 7) == 0);
	TT_CHECK_INT(t, strncmp(b.s, "one 0,1,2,", 10), 0);
	tt_buf_fini(&b);
	TT_CHECK(t, !b.s && !b.n && !b.cap);
}

/* The same distance by its recursive definition, exponential and obviously right. */
static int slow_distance(const char *a, int na, const char *b, int nb)
{
	if (na == 0 || nb == 0)
		return na + nb;
	int d = slow_distance(a, na - 1, b, nb - 1) + (a[na - 1] != b[nb - 1]);
	d = TT_MIN(d, slow_distance(a, na - 1, b, nb) + 1);
	d = TT_MIN(d, slow_distance(a, na, b, nb - 1) + 1);
	if (na > 1 && nb > 1 && a[na - 1] == b[nb - 2] && a[na - 2] == b[nb - 1])
		d = TT_MIN(d, slow_distance(a, na - 2, b, nb - 2) + 1);
	return d;
}

static void str_distance(tt_test *t)
{
	TT_CHECK_INT(t, tt_edit_distance("", ""), 0);
	TT_CHECK_INT(t, tt_edit_distance("kitten", "sitting"), 3);
	TT_CHECK_INT(t, tt_edit_distance("steps", "setps"), 1);
	TT_CHECK_INT(t, tt_edit_distance("", "abc"), 3);
	/* All pairs of words over {a, b} up to length 4. */
	char words[31][5];
	int n = 0;
	for (int len = 0; len <= 4; len++)
		for (int v = 0; v < 1 << len; v++, n++)
			for (int i = 0; i <= len; i++)
				words[n][i] = i == len ? 0 : (char)('a' + (v >> i & 1));
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++)
			if (!TT_CHECK_INT(t, tt_edit_distance(words[i], words[j]),
				    slow_distance(words[i], (int)strlen(words[i]), words[j], (int)strlen(words[j]))))
				return;
	char *big = tt_arena_alloc(t->arena, 1001);
	memset(big, 'x', 1000);
	TT_CHECK_INT(t, tt_edit_distance(big, "x"), 999);
	static const char *const keys[] = {"training.steps", "training.seed", "optimizer.lr", "lr"};
	TT_CHECK_STR(t, tt_nearest("training.setps", keys, 4), "training.steps");
	TT_CHECK_STR(t, tt_nearest("optimiser.lr", keys, 4), "optimizer.lr");
	TT_CHECK_STR(t, tt_nearest("rl", keys, 4), "lr");
	TT_CHECK_STR(t, tt_nearest("completely-else", keys, 4), NULL);
	TT_CHECK_STR(t, tt_nearest("", keys, 4), NULL);
	TT_CHECK_STR(t, tt_nearest("xr", (const char *const[]){ "lr" }, 1), "lr");
	TT_CHECK_STR(t, tt_nearest("nope", (const char *const[]){ "ops", "help" }, 2), NULL);
	TT_CHECK_STR(t, tt_nearest("x", keys, 0), NULL);
}

static void str_glob(tt_test *t)
{
	static const struct { const char *glob, *text; bool want; } rows[] = {
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "a.b/c", true}, {"a*c", "abc", true},
		{"a*c", "ac", true}, {"a*c", "abcd", false}, {"?", "", false}, {"?", "/", true}, {"a?c", "a.c", true},
		{"[abc]x", "bx", true}, {"[!abc]x", "bx", false}, {"[^a-c]x", "dx", true}, {"[a-c]", "b", true},
		{"[a-c]", "-", false}, {"[]x]", "]", true}, {"[a", "[a", true}, {"[a", "a", false}, {"*.weight", "a.weight.x", false},
		{"layers.*.q_proj.*", "layers.10.q_proj.weight", true}, {"*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
		{"a**b", "axxb", true}, {"*ab", "aab", true}, {"*[0-9]", "x42", true}, {"[a-]", "-", true}, {"a", "A", false},
	};
	for (int i = 0; i < TT_COUNT(rows); i++)
		TT_CHECK_MSG(t, tt_glob_match(rows[i].glob, rows[i].text) == rows[i].want, "glob \"%s\" on \"%s\": want %d",
			rows[i].glob, rows[i].text, rows[i].want);
	TT_CHECK(t, tt_pattern_match("*norm*|*.bias", "model.norm.weight"));
	TT_CHECK(t, tt_pattern_match("*norm*|*.bias", "q_proj.bias"));
	TT_CHECK(t, !tt_pattern_match("*norm*|*.bias", "q_proj.bias.x"));
	TT_CHECK(t, !tt_pattern_match("a|b", "a|b"));
	TT_CHECK(t, tt_pattern_match("a|", ""));
}

static void str_hash(tt_test *t)
{
	/* Known values of XXH32 and XXH3-64 (of the empty input, seed 0), and that all bytes and the seed count. */
	TT_CHECK_INT(t, tt_hash32(""), 0x02cc5d05);
	TT_CHECK_INT(t, tt_hash64("", 0, 0), (int64_t)0x2d06800538d394c2ull);
	TT_CHECK(t, tt_hash64("abc", 3, 0) != tt_hash64("abd", 3, 0) && tt_hash64("abc", 3, 0) != tt_hash64("abc", 3, 1));
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

enum { FED = 30000 };

/* fd: of the writing end, which is closed. */
static void *feed_pipe(void *fd)
{
	FILE *f = fdopen((int)(intptr_t)fd, "w");
	for (int i = 0; f && i < FED; i++)
		fwrite(&i, 4, 1, f);
	if (f)
		fclose(f);
	return NULL;
}

static void file_round_trip(tt_test *t)
{
	static const size_t sizes[] = {0, 1, 4094, 4095, 4096, 4097, 100000};
	for (int k = 0; k < TT_COUNT(sizes); k++) {
		size_t n = sizes[k], got = 99;
		const char *path = tt_test_path(t, "data");
		uint8_t *bytes = tt_arena_alloc(t->arena, n);
		for (size_t i = 0; i < n; i++)
			bytes[i] = (uint8_t)(i * 7 + 3);
		char *back;
		if (!TT_CHECK_OK(t, tt_file_write(path, bytes, n)) || !TT_CHECK_OK(t, tt_file_read(t->arena, path, &back, &got)))
			return;
		TT_CHECK_INT(t, got, n);
		TT_CHECK(t, memcmp(back, bytes, n) == 0 && back[n] == 0);
		tt_map m;
		if (!TT_CHECK_OK(t, tt_map_open(path, &m)))
			return;
		TT_CHECK(t, m.n == n && m.p && memcmp(m.p, bytes, n) == 0);
		tt_map_close(&m);
		TT_CHECK(t, !m.p && !m.n);
		tt_map_close(&m);
	}
	/* Files that do not know their size. */
	char *text;
	size_t n;
	TT_CHECK_OK(t, tt_file_read(t->arena, "/proc/self/status", &text, &n));
	TT_CHECK(t, n == strlen(text) && strstr(text, "VmRSS"));
	const char *pipe_path = tt_test_path(t, "pipe");
	pthread_t thread;
	if (!TT_CHECK(t, mkfifo(pipe_path, 0600) == 0))
		return;
	pthread_create(&thread, NULL, feed_pipe, (void *)(intptr_t)open(pipe_path, O_RDWR | O_CLOEXEC)); /* there from the start: a reader does not wait long for one */
	TT_CHECK_OK(t, tt_file_read(t->arena, pipe_path, &text, &n));
	pthread_join(thread, NULL);
	TT_CHECK_INT(t, n, FED * 4);
	for (int i = 0; i < FED; i++)
		if (!TT_CHECK(t, memcmp(text + 4 * i, &i, 4) == 0))
			return;
}

static void file_errors(tt_test *t)
{
	char *out = (char *)"untouched";
	size_t n = 5;
	tt_map m = {0};
	const char *missing = tt_test_path(t, "missing.toml"), *file = tt_test_path(t, "file");
	TT_CHECK_FAILS(t, tt_file_read(t->arena, missing, &out, &n), TT_ERR_IO, "missing.toml: cannot open: No such file");
	TT_CHECK_FAILS(t, tt_file_read(t->arena, tt_test_tmp(t), &out, &n), TT_ERR_IO, ": is a folder, a file is needed");
	TT_CHECK_OK(t, tt_file_write(file, "x", 1));
	const char *under = tt_arena_printf(t->arena, "%s/below", file);
	TT_CHECK_FAILS(t, tt_file_read(t->arena, under, &out, &n), TT_ERR_IO, "file/below: cannot open: Not a directory");
	TT_CHECK_FAILS(t, tt_file_write(under, "x", 1), TT_ERR_IO, "file/below: cannot create: Not a directory");
	TT_CHECK_FAILS(t, tt_map_open(missing, &m), TT_ERR_IO, "missing.toml: cannot open");
	TT_CHECK_FAILS(t, tt_map_open("/dev/zero", &m), TT_ERR_IO, "/dev/zero: is a device, a file is needed");
	TT_CHECK_STR(t, out, "untouched");
	TT_CHECK(t, n == 5 && !m.p);
	if (access("/dev/full", W_OK) == 0)
		TT_CHECK_FAILS(t, tt_file_write("/dev/full", "xyz", 3), TT_ERR_IO, "cannot write (0 of 3 bytes done): No space left");
	/* Reading fails after opening went well. */
	TT_CHECK_FAILS(t, tt_file_read(t->arena, "/proc/self/mem", &out, &n), TT_ERR_IO, "/proc/self/mem: cannot read: ");
	if (geteuid() != 0) {
		chmod(file, 0);
		TT_CHECK_FAILS(t, tt_file_read(t->arena, file, &out, &n), TT_ERR_IO, "file: cannot open: Permission denied");
	}
}

static void file_mkdirs(tt_test *t)
{
	const char *deep = tt_test_path(t, "a/b//c/");
	struct stat st;
	TT_CHECK_OK(t, tt_mkdirs(deep));
	TT_CHECK(t, stat(deep, &st) == 0 && S_ISDIR(st.st_mode));
	TT_CHECK_OK(t, tt_mkdirs(deep));
	TT_CHECK_OK(t, tt_file_write(tt_test_path(t, "a/f"), "", 0));
	TT_CHECK_FAILS(t, tt_mkdirs(tt_test_path(t, "a/f/g")), TT_ERR_IO, "a/f is a file");
	TT_CHECK(t, symlink("nowhere", tt_test_path(t, "a/l")) == 0);
	TT_CHECK_FAILS(t, tt_mkdirs(tt_test_path(t, "a/l/g")), TT_ERR_IO, "a/l is a link to what is not there");
	TT_CHECK_FAILS(t, tt_mkdirs("/proc/no/such"), TT_ERR_IO, "/proc/no/such: cannot create folder /proc/no: ");
	TT_CHECK_FAILS(t, tt_mkdirs(""), TT_ERR_IO, "its name is empty");
	char *big = tt_arena_alloc(t->arena, 9001);
	memset(big, 'x', 9000);
	TT_CHECK_FAILS(t, tt_mkdirs(big), TT_ERR_IO, "its name has 9000 bytes");
}

/* ---- regions ---------------------------------------------------------------------------------------------------- */

static void touch_region(void *ctx) { *(volatile uint8_t *)((tt_region *)ctx)->p = 1; }

static void region_memory(tt_test *t)
{
	static const size_t sizes[] = {0, 1, 4096, 100001, 5 * 1024 * 1024 + 3};
	for (int k = 0; k < TT_COUNT(sizes); k++) {
		tt_region r;
		if (!TT_CHECK_OK(t, tt_region_open("test", sizes[k], &r)))
			return;
		TT_CHECK_INT(t, r.n, sizes[k]);
		if (r.n >= 2 * 1024 * 1024)
			TT_CHECK_INT(t, (uintptr_t)r.p % (2 * 1024 * 1024), 0);
		TT_CHECK(t, all_zero(r.p, r.n));
		tt_region_fill_nan(&r);
		float f;
		for (size_t i = 0; i + 4 <= r.n; i += 4) {
			memcpy(&f, r.p + i, 4);
			if (!TT_CHECK(t, isnan(f)))
				return;
		}
		TT_CHECK_OK(t, tt_region_protect(&r, false));
		if (r.n)
			tt_test_dies(t, touch_region, &r, SIGSEGV, NULL);
		TT_CHECK_OK(t, tt_region_protect(&r, true));
		if (r.n) {
			touch_region(&r);
			TT_CHECK(t, r.p[0] == 1 && (r.n == 1 || r.p[r.n - 1] == 0xff));
		}
		tt_region_close(&r);
		TT_CHECK(t, !r.p && !r.n);
	}
	tt_region r;
	TT_CHECK_FAILS(t, tt_region_open("frame", (size_t)1 << 62, &r), TT_ERR_MEMORY, "region frame: ");
	TT_CHECK_FAILS(t, tt_region_open("frame", (size_t)1 << 50, &r), TT_ERR_MEMORY, "region frame: ");
}

static void region_on_touch(tt_test *t)
{
	int64_t before = tt_memory_resident();
	TT_CHECK(t, before > 100 * TT_KIB && tt_memory_limit() > before);
	tt_region r;
	if (!TT_CHECK_OK(t, tt_region_open("lazy", (size_t)(64 * TT_MIB), &r)))
		return;
	TT_CHECK_MSG(t, tt_memory_resident() - before < 8 * TT_MIB, "%lld bytes resident before any touch",
		(long long)(tt_memory_resident() - before));
	memset(r.p, 1, (size_t)(16 * TT_MIB));
	int64_t grown = tt_memory_resident() - before;
	/* Sanitizers keep a shadow of several times the size. */
	int64_t most = (tt_malloc_count_available() ? 32 : 160) * TT_MIB;
	TT_CHECK_MSG(t, grown > 14 * TT_MIB && grown < most, "%lld bytes resident after 16 MiB were touched",
		(long long)grown);
	tt_region_close(&r);
}

static void region_cgroup(tt_test *t)
{
	const char *list = tt_test_path(t, "list"), *mount = tt_test_tmp(t);
#define PUT(name, text) TT_CHECK_OK(t, tt_file_write(tt_test_path(t, name), text, strlen(text)))
	TT_CHECK(t, tt_cgroup_limit(tt_test_path(t, "none"), mount) == INT64_MAX);
	PUT("list", "0::/user/job\n");
	TT_CHECK(t, tt_cgroup_limit(list, mount) == INT64_MAX);
	TT_CHECK_OK(t, tt_mkdirs(tt_test_path(t, "user/job")));
	PUT("user/job/memory.max", "max\n");
	TT_CHECK(t, tt_cgroup_limit(list, mount) == INT64_MAX);
	PUT("user/memory.max", "5000\n");
	TT_CHECK_INT(t, tt_cgroup_limit(list, mount), 5000);
	PUT("user/job/memory.max", "7000\n");
	TT_CHECK_INT(t, tt_cgroup_limit(list, mount), 5000);
	PUT("memory.max", "4000\n");
	TT_CHECK_INT(t, tt_cgroup_limit(list, mount), 4000);
	/* v1, among other controllers, with a path that is not there in this mount. */
	PUT("list", "5:cpu,cpuacct:/x\n4:pids,memory:/docker/abc\n");
	TT_CHECK(t, tt_cgroup_limit(list, mount) == INT64_MAX);
	TT_CHECK_OK(t, tt_mkdirs(tt_test_path(t, "memory")));
	PUT("memory/memory.limit_in_bytes", "3000\n");
	TT_CHECK_INT(t, tt_cgroup_limit(list, mount), 3000);
	PUT("list", "garbage\n7:memory_:/\n8:mem:/\n");
	TT_CHECK(t, tt_cgroup_limit(list, mount) == INT64_MAX);
#undef PUT
}

/* ---- pool ------------------------------------------------------------------------------------------------------- */

enum { MOST = 1000, LANES = 8 };

typedef struct pool_job {
	uint8_t hits[MOST]; /* not atomic: each i belongs to one lane, and TSan sees it if not */
	int64_t by_lane[LANES];
	_Atomic int bad;
	int threads;
	int64_t slow; /* this index waits, so that others must go on meanwhile */
} pool_job;

static void pool_hit(void *ctx, int64_t i, int lane)
{
	pool_job *j = ctx;
	if (lane < 0 || lane >= j->threads || i < 0 || i >= MOST) {
		atomic_fetch_add(&j->bad, 1);
		return;
	}
	if (i == j->slow)
		usleep(2000);
	j->hits[i]++;
	j->by_lane[lane]++;
}

static void pool_every_index_once(tt_test *t)
{
	static const int64_t sizes[] = {0, 1, 2, 7, 64, MOST};
	static const int spins[] = {0, 20};
	for (int threads = 1; threads <= LANES; threads++)
		for (int s = 0; s < TT_COUNT(spins); s++) {
			tt_pool *p;
			if (!TT_CHECK_OK(t, tt_pool_create(threads, spins[s], &p)))
				return;
			TT_CHECK_INT(t, tt_pool_threads(p), threads);
			for (int round = 0; round < 60; round++) {
				int64_t n = sizes[round % TT_COUNT(sizes)];
				pool_job j = {.threads = threads, .slow = round % 7 == 0 ? n / 2 : -1};
				tt_pool_run(p, n, pool_hit, &j);
				int64_t lanes = 0;
				for (int i = 0; i < LANES; i++)
					lanes += j.by_lane[i];
				TT_CHECK(t, j.bad == 0 && lanes == n);
				for (int64_t i = 0; i < MOST; i++)
					if (!TT_CHECK_MSG(t, j.hits[i] == (i < n), "%d threads, n %lld: index %lld ran %d times", threads,
						    (long long)n, (long long)i, j.hits[i]))
						return;
				/* Sometimes long enough for the workers to fall asleep. */
				if (round % 10 == 9)
					usleep(300);
			}
			tt_pool_destroy(p);
		}
	pool_job j = {.threads = 1, .slow = -1};
	tt_pool_run(NULL, 10, pool_hit, &j);
	TT_CHECK_INT(t, j.by_lane[0], 10);
	TT_CHECK_INT(t, tt_pool_threads(NULL), 1);
	tt_pool_destroy(NULL);
}

/* Many short runs: lost wake-ups show as a hang, late workers as a wrong sum. */
static void pool_add(void *ctx, int64_t i, int lane)
{
	(void)lane;
	((int64_t *)ctx)[i]++;
}

static void pool_short_runs(tt_test *t)
{
	for (int spin = 0; spin <= 20; spin += 20) {
		tt_pool *p;
		if (!TT_CHECK_OK(t, tt_pool_create(3, spin, &p)))
			return;
		int64_t sum[4] = {0};
		enum { RUNS = 5000 };
		for (int r = 0; r < RUNS; r++)
			tt_pool_run(p, 4, pool_add, sum);
		for (int i = 0; i < 4; i++)
			TT_CHECK_INT(t, sum[i], RUNS);
		tt_pool_destroy(p);
	}
}

/* Two lanes meet: proof that the workers do run beside the caller, also after they slept. */
static void pool_meet(void *ctx, int64_t i, int lane)
{
	(void)i, (void)lane;
	_Atomic int *there = ctx;
	atomic_fetch_add(there, 1);
	while (atomic_load(there) < 2)
		usleep(100);
}

static void pool_parallel(tt_test *t)
{
	tt_pool *p;
	if (!TT_CHECK_OK(t, tt_pool_create(2, 20, &p)))
		return;
	for (int r = 0; r < 5; r++) {
		_Atomic int there = 0;
		tt_pool_run(p, 2, pool_meet, (void *)&there);
		TT_CHECK_INT(t, there, 2);
		usleep(1000);
	}
	tt_pool_destroy(p);
}

static void pool_no_malloc(tt_test *t)
{
	if (!tt_malloc_count_available())
		TT_SKIP(t, "malloc is not counted under sanitizers");
	tt_pool *p;
	if (!TT_CHECK_OK(t, tt_pool_create(2, 20, &p)))
		return;
	int64_t sum[4] = {0};
	tt_pool_run(p, 4, pool_add, sum);
	tt_malloc_count_begin();
	for (int r = 0; r < 100; r++)
		tt_pool_run(p, 4, pool_add, sum);
	TT_CHECK_INT(t, tt_malloc_count_end(), 0);
	tt_pool_destroy(p);
}

static void pool_again(void *ctx, int64_t i, int lane)
{
	(void)i, (void)lane;
	int64_t sum[4] = {0};
	tt_pool_run(ctx, 4, pool_add, sum);
}

static void pool_reenter(void *ctx)
{
	(void)ctx;
	tt_pool *p;
	if (tt_pool_create(2, 0, &p) == TT_OK)
		tt_pool_run(p, 4, pool_again, p);
}

static void pool_misuse(tt_test *t)
{
	tt_pool *p = NULL;
	TT_CHECK_FAILS(t, tt_pool_create(0, 0, &p), TT_ERR_USAGE, "0 threads asked for");
	TT_CHECK_FAILS(t, tt_pool_create(5000, 0, &p), TT_ERR_USAGE, "5000 threads asked for, 1 to 1024");
	TT_CHECK(t, !p);
	tt_test_dies(t, pool_reenter, NULL, SIGABRT, "runs one job at a time");
}

static void pool_identity(void *ctx, int64_t i, int lane)
{
	int rank;
	const char *scope;
	tt_thread_get(&rank, &scope);
	if (rank != 5 || !scope || strcmp(scope, "norm"))
		atomic_fetch_add((_Atomic int *)ctx, 1);
	(void)i, (void)lane;
	usleep(50);
}

static void pool_carries_scope(tt_test *t)
{
	tt_pool *p;
	_Atomic int bad = 0;
	tt_thread_set(5, "norm");
	if (!TT_CHECK_OK(t, tt_pool_create(3, 0, &p)))
		return;
	for (int r = 0; r < 20; r++)
		tt_pool_run(p, 12, pool_identity, (void *)&bad);
	TT_CHECK_INT(t, bad, 0);
	tt_pool_destroy(p);
}

/* ---- small floats ----------------------------------------------------------------------------------------------- */

static uint32_t bits(float f)
{
	uint32_t u;
	memcpy(&u, &f, 4);
	return u;
}

static float from_bits(uint32_t u)
{
	float f;
	memcpy(&f, &u, 4);
	return f;
}

/* Rounds |x| to a format with `mant` stored mantissa bits, least exponent `emin` and largest finite value `top`, by
 * arithmetic on doubles: x is a multiple of the format's unit there, or between two, the nearer and then the even. */
static double round_to(double x, int mant, int emin, double top)
{
	if (x == 0 || isinf(x))
		return x;
	int e;
	frexp(x, &e); /* x = f * 2^e, f in [0.5, 1) */
	int unit = TT_MAX(e - 1, emin) - mant;
	double r = ldexp(rint(ldexp(x, -unit)), unit);
	return fabs(r) > top ? copysign(INFINITY, x) : r;
}

static void small_bf16(tt_test *t)
{
	for (uint32_t b = 0; b < 65536; b++) {
		float f = tt_bf16_to_f32((tt_bf16)b);
		if (isnan(f))
			TT_CHECK(t, tt_f32_to_bf16(f) == (b | 0x40u));
		else if (!TT_CHECK_MSG(t, tt_f32_to_bf16(f) == b, "bf16 %04x does not come back", b))
			return;
	}
	/* Around every value: exact ties, one unit below and above, and a spread of other patterns. */
	for (uint32_t hi = 0; hi < 65536; hi++) {
		static const uint32_t low[] = {0, 1, 0x1234, 0x7fff, 0x8000, 0x8001, 0xc0de, 0xffff};
		for (int k = 0; k < TT_COUNT(low); k++) {
			float f = from_bits(hi << 16 | low[k]);
			tt_bf16 got = tt_f32_to_bf16(f);
			if (isnan(f) ? !isnan(tt_bf16_to_f32(got)) :
				       (double)tt_bf16_to_f32(got) != round_to((double)f, 7, -126, 0x1.fep127)) {
				TT_CHECK_MSG(t, false, "%a (%08x) became bf16 %04x", (double)f, bits(f), got);
				return;
			}
		}
	}
	TT_CHECK_INT(t, tt_f32_to_bf16(-0.0f), 0x8000);
}

static void small_f16(tt_test *t)
{
	for (uint32_t h = 0; h < 65536; h++) {
		float f = tt_f16_to_f32((uint16_t)h);
		int e = (int)(h >> 10 & 31), m = (int)(h & 1023);
		double want = e == 31 ? (m ? (double)NAN : (double)INFINITY) :
			      e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
		want = h & 0x8000 ? -want : want;
		if (!TT_CHECK_MSG(t, isnan(want) ? isnan(f) : (double)f == want && !signbit(f) == !signbit(want),
			    "f16 %04x is %a, want %a", h, (double)f, want))
			return;
		if (isnan(f) && !TT_CHECK_MSG(t, bits(f) == ((h & 0x8000u) << 16 | 0x7fc00000u | (h & 0x3ffu) << 13), "NaN %04x", h))
			return;
		uint16_t back = tt_f32_to_f16(f);
		if (!TT_CHECK_MSG(t, back == (isnan(want) ? (h | 0x200u) : h), "f16 %04x comes back as %04x", h, back))
			return;
	}
	/* Every 16-bit head of an fp32 with ties and neighbours of ties for each place the cut can be. */
	for (uint32_t hi = 0; hi < 65536; hi++)
		for (int k = 0; k <= 16; k++)
			for (int d = -1; d <= 1; d++) {
				float f = from_bits((hi << 16) + (k < 16 ? 1u << k : 0u) + (uint32_t)d);
				uint16_t got = tt_f32_to_f16(f);
				if (isnan(f) ? !isnan(tt_f16_to_f32(got)) :
					       (double)tt_f16_to_f32(got) != round_to((double)f, 10, -14, 65504.0)) {
					TT_CHECK_MSG(t, false, "%a (%08x) became f16 %04x", (double)f, bits(f), got);
					return;
				}
			}
	TT_CHECK_INT(t, tt_f32_to_f16(-0.0f), 0x8000);
	TT_CHECK_INT(t, tt_f32_to_f16(65519.99f), 0x7bff);
	TT_CHECK_INT(t, tt_f32_to_f16(65520.0f), 0x7c00);
}

#if defined(__x86_64__)
/* All 2^32 floats against the CPU's conversion. */
__attribute__((target("avx,f16c"))) static void small_f16_all(tt_test *t)
{
	if (!__builtin_cpu_supports("avx2")) /* clang 14 cannot ask for F16C, which all of these have */
		TT_SKIP(t, "this CPU has no AVX2");
	for (uint64_t u = 0; u < (uint64_t)1 << 32; u++) {
		float f = from_bits((uint32_t)u);
		uint16_t want = _cvtss_sh(f, 0), got = tt_f32_to_f16(f);
		if (got != want) {
			TT_CHECK_MSG(t, false, "%08x became %04x, want %04x", (uint32_t)u, got, want);
			return;
		}
	}
}
#else
static void small_f16_all(tt_test *t) { TT_SKIP(t, "only x86 has a conversion to compare with"); }
#endif

static void deal(tt_test *t)
{
	for (int64_t units = 0; units < 40; units++)
		for (int64_t k = 1; k < 12; k++) {
			int64_t least = INT64_MAX, most = 0;
			for (int64_t i = 0; i < k; i++) {
				int64_t n = tt_deal(units, i + 1, k) - tt_deal(units, i, k);
				least = TT_MIN(least, n);
				most = TT_MAX(most, n);
			}
			TT_CHECK(t, tt_deal(units, 0, k) == 0 && tt_deal(units, k, k) == units && most - least <= 1);
		}
	TT_CHECK_INT(t, tt_round_up(17, 8), 24);
	TT_CHECK_INT(t, tt_ceil_div(16, 8), 2);
}

static void str_scaled(tt_test *t)
{
	static const struct { int64_t n; const char *bytes, *count; } C[] = {
		{0, "0 bytes", "0"}, {1, "1 byte", "1"}, {999, "999 bytes", "999"}, {1000, "0.98 KiB", "1.00 k"}, {1024, "1.00 KiB", "1.02 k"},
		{1536, "1.50 KiB", "1.54 k"}, {9994, "9.76 KiB", "9.99 k"}, {9996, "9.76 KiB", "10.0 k"}, {99960, "97.6 KiB", "100 k"},
		{999499, "976 KiB", "999 k"}, {999500, "976 KiB", "1.00 M"}, {1 << 20, "1.00 MiB", "1.05 M"}, {10500000, "10.0 MiB", "10.5 M"},
		{INT64_C(1) << 34, "16.0 GiB", "17.2 G"}, {INT64_C(1) << 40, "1.00 TiB", "1.10 T"}, {INT64_C(1) << 62, "4096 PiB", "4612 P"},
		{-2048, "-2.00 KiB", "-2.05 k"}, {INT64_MAX, "unlimited", "unlimited"},
	};
	for (int i = 0; i < TT_COUNT(C); i++) {
		TT_CHECK_STR(t, tt_scale_bytes(C[i].n).s, C[i].bytes);
		TT_CHECK_STR(t, tt_scale_count(C[i].n).s, C[i].count);
	}
	char text[64];
	snprintf(text, sizeof text, "%.2f %g %g %g", tt_plain_nan(-__builtin_nan("")), tt_plain_nan(__builtin_nan("")), tt_plain_nan(-__builtin_inf()), tt_plain_nan(-0.5));
	TT_CHECK_STR(t, text, "nan nan -inf -0.5");
}

const tt_case tt_suite_base[] = {
	{"error_record", error_record, TT_TIER_QUICK},
	{"error_panic", error_panic, TT_TIER_QUICK},
	{"log_sink", log_sink, TT_TIER_QUICK},
	{"arena_stack", arena_stack, TT_TIER_QUICK},
	{"arena_no_malloc_again", arena_no_malloc_again, TT_TIER_QUICK},
	{"arena_limit", arena_limit, TT_TIER_QUICK},
	{"arena_misuse", arena_misuse, TT_TIER_QUICK},
	{"arena_push_items", arena_push_items, TT_TIER_QUICK},
	{"str_buf", str_buf, TT_TIER_QUICK},
	{"str_scaled", str_scaled, TT_TIER_QUICK},
	{"str_distance", str_distance, TT_TIER_QUICK},
	{"str_glob", str_glob, TT_TIER_QUICK},
	{"str_hash", str_hash, TT_TIER_QUICK},
	{"file_round_trip", file_round_trip, TT_TIER_QUICK},
	{"file_errors", file_errors, TT_TIER_QUICK},
	{"file_mkdirs", file_mkdirs, TT_TIER_QUICK},
	{"region_memory", region_memory, TT_TIER_QUICK},
	{"region_on_touch", region_on_touch, TT_TIER_QUICK},
	{"region_cgroup", region_cgroup, TT_TIER_QUICK},
	{"pool_every_index_once", pool_every_index_once, TT_TIER_QUICK},
	{"pool_short_runs", pool_short_runs, TT_TIER_QUICK},
	{"pool_parallel", pool_parallel, TT_TIER_QUICK},
	{"pool_no_malloc", pool_no_malloc, TT_TIER_QUICK},
	{"pool_misuse", pool_misuse, TT_TIER_QUICK},
	{"pool_carries_scope", pool_carries_scope, TT_TIER_QUICK},
	{"small_bf16", small_bf16, TT_TIER_QUICK},
	{"small_f16", small_f16, TT_TIER_QUICK},
	{"small_f16_all", small_f16_all, TT_TIER_PROOF},
	{"deal", deal, TT_TIER_QUICK},
	{0},
};
