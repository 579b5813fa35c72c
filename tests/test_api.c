/* api: the public C API as a program meets it: what is refused and how, threads, the caller's floating point, ends and saves; at the
 * CI tier an installed tree with what is in it. */
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <titan.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/version.h"
#include "test.h"

enum { STEPS = 4, MAX_FLAGS = 24, SCORES = 100 };

static void quiet(void *ctx, titan_log_level level, const char *line) { (void)ctx, (void)level, (void)line; }

/* The status as a number, with its text where it is not the wanted one. */
static bool api_is(tt_test *t, titan_status got, titan_status want, const char *part, int line)
{
	if (got != want)
		tt_test_fail(t, __FILE__, line, "got %s (%s), want %s", titan_status_name(got), titan_error(), titan_status_name(want));
	else if (got != TITAN_OK && !strstr(titan_error(), part))
		tt_test_fail(t, __FILE__, line, "the error says \"%s\", want \"%s\" in it", titan_error(), part);
	else
		return true;
	return false;
}
#define API_OK(t, call) api_is((t), (call), TITAN_OK, "", __LINE__)
#define API_FAILS(t, call, status, part) api_is((t), (call), (status), (part), __LINE__)

/* A small run on a text of its own, in the case's folder. `more` ends with NULL. */
static titan_status open_small(tt_test *t, const char *folder, const char *const *more, titan_session **out)
{
	const char *text = tt_test_path(t, "text.txt"), *valid = tt_test_path(t, "valid.txt");
	if (access(text, F_OK)) { /* once: another session may be reading it */
		tt_buf b = { 0 };
		for (int i = 0; i < 400; i++)
			tt_buf_printf(&b, "%d: the quick brown fox jumps over %d lazy dogs\n", i * 7 % 100, i % 13);
		TT_CHECK_OK(t, tt_file_write(text, b.s, b.n));
		TT_CHECK_OK(t, tt_file_write(valid, b.s, 65));
		tt_buf_fini(&b);
	}
	const char *flags[MAX_FLAGS];
	int n = 0;
	flags[n++] = "--model.num_hidden_layers=1";
	flags[n++] = "--model.hidden_size=32";
	flags[n++] = "--model.num_attention_heads=2";
	flags[n++] = "--model.num_key_value_heads=1";
	flags[n++] = "--model.intermediate_size=64";
	flags[n++] = "--training.context_length=64";
	flags[n++] = "--training.tokens_per_step=128";
	flags[n++] = "--training.tokens_per_microbatch=64";
	flags[n++] = tt_arena_printf(t->arena, "--training.steps=%d", STEPS);
	flags[n++] = "--lr_scheduler.warmup_steps=1";
	flags[n++] = "--hardware.threads=1";
	flags[n++] = tt_arena_printf(t->arena, "--data.paths=%s", text);
	flags[n++] = tt_arena_printf(t->arena, "--validation.paths=%s", valid);
	flags[n++] = tt_arena_printf(t->arena, "--job.dump_folder=%s", tt_test_path(t, folder));
	flags[n++] = tt_arena_printf(t->arena, "--debug.isa=%s", *t->isa ? t->isa : "auto");
	for (int i = 0; more && more[i]; i++)
		flags[n++] = more[i];
	TT_ASSERT(n <= MAX_FLAGS);
	return titan_session_open("configs/debug.toml", n, flags, out);
}

/* ---- what is refused --------------------------------------------------------------------------------------------------------------- */

static void misuse(tt_test *t)
{
	titan_session *const untouched = (titan_session *)&t; /* what no failing open may change */
	titan_session *s = untouched;
	titan_log_to(quiet, NULL, TITAN_LOG_INFO);
	TT_CHECK_STR(t, titan_error(), "");
	API_FAILS(t, titan_session_open("configs/debug.toml", 0, NULL, NULL), TITAN_ERR_USAGE, "out is NULL");
	API_FAILS(t, titan_session_open("configs/debug.toml", 1, NULL, &s), TITAN_ERR_USAGE, "flags is NULL");
	API_FAILS(t, titan_session_open("configs/debug.toml", -1, NULL, &s), TITAN_ERR_USAGE, "-1 flags");
	const char *hole[] = { "--training.steps=1", NULL };
	API_FAILS(t, titan_session_open("configs/debug.toml", 2, hole, &s), TITAN_ERR_USAGE, "flags[1] is NULL");
	const char *typo[] = { "--training.stesp=1" }, *word[] = { "steps" }, *gone[] = { "--data.paths=/nowhere" };
	API_FAILS(t, titan_session_open("configs/debug.toml", 1, typo, &s), TITAN_ERR_USAGE, "did you mean training.steps?");
	API_FAILS(t, titan_session_open("configs/debug.toml", 1, word, &s), TITAN_ERR_USAGE, "--section.key=value");
	API_FAILS(t, titan_session_open("nowhere.toml", 0, NULL, &s), TITAN_ERR_IO, "nowhere.toml");
	API_FAILS(t, titan_session_open("LICENSE", 0, NULL, &s), TITAN_ERR_FORMAT, "LICENSE:1");
	API_FAILS(t, titan_session_open("configs/debug.toml", 1, gone, &s), TITAN_ERR_IO, "/nowhere");
	TT_CHECK(t, s == untouched);

	titan_step_info info = { .struct_size = sizeof info };
	double x;
	const int32_t ids[] = { 1, 2 };
	API_FAILS(t, titan_step(NULL, &info), TITAN_ERR_USAGE, "titan_step: the session is NULL");
	API_FAILS(t, titan_evaluate(NULL, &x, NULL), TITAN_ERR_USAGE, "NULL");
	API_FAILS(t, titan_score(NULL, 2, ids, &x), TITAN_ERR_USAGE, "NULL");
	API_FAILS(t, titan_save(NULL), TITAN_ERR_USAGE, "NULL");
	API_OK(t, titan_session_close(NULL));
	TT_CHECK_INT(t, titan_steps_done(NULL), -1);
	TT_CHECK_INT(t, titan_steps_total(NULL), -1);
	TT_CHECK_INT(t, titan_params(NULL), -1);
	API_FAILS(t, titan_log_to(quiet, NULL, (titan_log_level)17), TITAN_ERR_USAGE, "17 is no log level");
	TT_CHECK_STR(t, titan_status_name((titan_status)99), "unknown");
	TT_CHECK_STR(t, titan_status_name(TITAN_END), "end");
	TT_CHECK_STR(t, titan_version(), TITAN_VERSION);
	TT_CHECK_STR(t, titan_version(), TT_VERSION);

	if (!API_OK(t, open_small(t, "run", NULL, &s)))
		return;
	TT_CHECK(t, titan_params(s) > 10000);
	TT_CHECK_INT(t, titan_steps_total(s), STEPS);
	const int32_t bad[] = { 1, 256 }, negative[] = { -1, 3 };
	int32_t many[66] = { 0 };
	x = 42;
	API_FAILS(t, titan_score(s, 2, NULL, &x), TITAN_ERR_USAGE, "ids is NULL");
	API_FAILS(t, titan_score(s, 2, ids, NULL), TITAN_ERR_USAGE, "logprob is NULL");
	API_FAILS(t, titan_score(s, 1, ids, &x), TITAN_ERR_USAGE, "from 2 to 65");
	API_FAILS(t, titan_score(s, INT64_MIN, ids, &x), TITAN_ERR_USAGE, "from 2 to 65");
	API_FAILS(t, titan_score(s, 66, many, &x), TITAN_ERR_USAGE, "66 ids");
	API_FAILS(t, titan_score(s, 2, bad, &x), TITAN_ERR_USAGE, "ids[1] is 256");
	API_FAILS(t, titan_score(s, 2, negative, &x), TITAN_ERR_USAGE, "ids[0] is -1");
	TT_CHECK(t, x == 42);
	API_OK(t, titan_score(s, 65, many, &x));
	API_FAILS(t, titan_save(s), TITAN_ERR_USAGE, "checkpoint.enable");
	API_OK(t, titan_step(s, NULL));
	API_OK(t, titan_evaluate(s, NULL, NULL));
	API_OK(t, titan_session_close(s));
	const char *nothing[] = { "--validation.paths=", NULL };
	if (API_OK(t, open_small(t, "run", nothing, &s)))
		API_FAILS(t, titan_evaluate(s, &x, NULL), TITAN_ERR_USAGE, "nothing is held out");
	API_OK(t, titan_session_close(s));
}

/* A caller of an older header is refused if its struct misses members of the first version; one of a newer header keeps its own bytes. */
static void struct_size(tt_test *t)
{
	struct { titan_step_info info; unsigned char newer[16]; } x;
	titan_session *s;
	titan_log_to(quiet, NULL, TITAN_LOG_INFO);
	if (!API_OK(t, open_small(t, "run", NULL, &s)))
		return;
	memset(&x, 0xa5, sizeof x);
	for (size_t size = 0; size < sizeof x.info; size += 8) {
		x.info.struct_size = size;
		API_FAILS(t, titan_step(s, &x.info), TITAN_ERR_USAGE, "struct_size");
	}
	TT_CHECK_INT(t, titan_steps_done(s), 0);
	x.info.struct_size = sizeof x;
	API_OK(t, titan_step(s, &x.info));
	TT_CHECK_INT(t, x.info.struct_size, sizeof x);
	TT_CHECK_INT(t, x.info.step, 1);
	TT_CHECK_INT(t, x.info.tokens, 128);
	TT_CHECK_INT(t, x.info.reserved, 0);
	TT_CHECK(t, x.info.loss > 4 && x.info.loss < 8 && x.info.loss_max >= x.info.loss && x.info.seconds > 0);
	for (int i = 0; i < 16; i++)
		TT_CHECK_INT(t, x.newer[i], 0xa5);
	API_OK(t, titan_session_close(s));
}

/* ---- the end ------------------------------------------------------------------------------------------------------------------------- */

static void ends(tt_test *t)
{
	titan_session *s;
	titan_step_info info = { .struct_size = sizeof info };
	titan_log_to(quiet, NULL, TITAN_LOG_INFO);
	if (!API_OK(t, open_small(t, "run", NULL, &s)))
		return;
	for (int i = 0; i < STEPS; i++)
		API_OK(t, titan_step(s, &info));
	for (int i = 0; i < 2; i++) {
		info.step = -7;
		API_FAILS(t, titan_step(s, &info), TITAN_END, "all 4 steps are done");
		TT_CHECK_INT(t, info.step, -7);
		TT_CHECK_INT(t, titan_steps_done(s), STEPS);
	}
	API_OK(t, titan_evaluate(s, NULL, NULL));
	API_OK(t, titan_session_close(s));

	const char *path = tt_test_path(t, "short.txt");
	TT_CHECK_OK(t, tt_file_write(path, "once upon a time, then twice, then never again; the king was dead, the land was green, and nobody knew why.\n\n"
					   "once upon a time, then twice, then never again; the king was dead, the land was green, and nobody knew why.\n\n"
					   "once upon a time, then twice, then never again; the king was dead, the land was green, and nobody knew why.\n\n", 327));
	const char *once[] = { "--data.repeat=false", "--training.steps=1000", tt_arena_printf(t->arena, "--data.paths=%s", path), NULL };
	if (!API_OK(t, open_small(t, "once", once, &s)))
		return;
	titan_status st = TITAN_OK;
	while (st == TITAN_OK && titan_steps_done(s) < 1000)
		st = titan_step(s, &info);
	API_FAILS(t, st, TITAN_END, "the text ends");
	TT_CHECK(t, titan_steps_done(s) >= 1 && titan_steps_done(s) < 4);
	TT_CHECK_INT(t, titan_steps_done(s), info.step);
	API_OK(t, titan_session_close(s));
}

/* The held-out text is one document of 65 bytes: what evaluation says of it, and what the score of its ids says, are one number. */
static void score_is_loss(tt_test *t)
{
	titan_session *s;
	titan_log_to(quiet, NULL, TITAN_LOG_INFO);
	const char *plain[] = { "--training.mixed_precision_param=float32", NULL };
	if (!API_OK(t, open_small(t, "run", plain, &s)))
		return;
	API_OK(t, titan_step(s, NULL));
	double loss = 0, whole = 0, part = 0;
	int64_t tokens = 0;
	API_OK(t, titan_evaluate(s, &loss, &tokens));
	char *text;
	size_t n;
	TT_CHECK_OK(t, tt_file_read(t->arena, tt_test_path(t, "valid.txt"), &text, &n));
	int32_t ids[65];
	for (int i = 0; i < 65; i++)
		ids[i] = (unsigned char)text[i];
	TT_CHECK_INT(t, tokens, 64);
	API_OK(t, titan_score(s, 65, ids, &whole));
	TT_CHECK_MSG(t, __builtin_fabs(whole + loss * 64) < 1e-4, "score %.9g, loss %.9g times 64 is %.9g", whole, loss, loss * 64);
	API_OK(t, titan_score(s, 20, ids, &part));
	TT_CHECK(t, part < 0 && part > whole);
	double again = 0;
	API_OK(t, titan_score(s, 65, ids, &again));
	TT_CHECK(t, again == whole);
	API_OK(t, titan_session_close(s));
}

/* ---- saves --------------------------------------------------------------------------------------------------------------------------- */

static void saves(tt_test *t)
{
	titan_session *s;
	titan_step_info a = { .struct_size = sizeof a }, b = a;
	titan_log_to(quiet, NULL, TITAN_LOG_INFO);
	const char *on[] = { "--checkpoint.enable", "--checkpoint.on_error=continue", NULL };
	if (!API_OK(t, open_small(t, "run", on, &s)))
		return;
	API_OK(t, titan_step(s, NULL));
	API_OK(t, titan_step(s, NULL));
	API_OK(t, titan_save(s));
	API_OK(t, titan_step(s, &a));
	API_OK(t, titan_session_close(s)); /* saves nothing */
	if (!API_OK(t, open_small(t, "run", on, &s)))
		return;
	TT_CHECK_INT(t, titan_steps_done(s), 2);
	API_OK(t, titan_step(s, &b));
	TT_CHECK_INT(t, b.step, 3);
	TT_CHECK_MSG(t, a.loss == b.loss && a.grad_norm == b.grad_norm, "step 3: loss %.17g, resumed %.17g", a.loss, b.loss);
	/* A save that was asked for and fails is told, whatever checkpoint.on_error says of a training loop. */
	const char *folder = tt_test_path(t, "run/checkpoint");
	TT_CHECK(t, !rename(folder, tt_test_path(t, "away")));
	TT_CHECK_OK(t, tt_file_write(folder, "x", 1));
	titan_status st = titan_save(s);
	API_FAILS(t, st, TITAN_ERR_IO, "checkpoint");
	TT_CHECK(t, !unlink(folder) && !rename(tt_test_path(t, "away"), folder));
	API_OK(t, titan_save(s));
	API_OK(t, titan_session_close(s));
	if (API_OK(t, open_small(t, "run", on, &s)))
		TT_CHECK_INT(t, titan_steps_done(s), 3);
	API_OK(t, titan_session_close(s));
}

/* ---- threads ------------------------------------------------------------------------------------------------------------------------- */

typedef struct alone {
	tt_test *t;
	const char *folder, *seed;
	pthread_barrier_t *together; /* NULL: no other */
	double loss[STEPS], score;
} alone;

static void *run_alone(void *ctx)
{
	alone *x = ctx;
	titan_session *s;
	const char *more[] = { x->seed, NULL };
	int32_t ids[] = { 't', 'h', 'e', x->seed[strlen(x->seed) - 1] };
	if (x->together)
		pthread_barrier_wait(x->together);
	if (!API_OK(x->t, open_small(x->t, x->folder, more, &s)))
		return NULL;
	for (int i = 0; i < STEPS; i++) {
		titan_step_info info = { .struct_size = sizeof info };
		API_OK(x->t, titan_step(s, &info));
		x->loss[i] = info.loss;
	}
	for (int i = 0; i < SCORES; i++) {
		double one = 0;
		API_OK(x->t, titan_score(s, 4, ids, &one));
		x->score += one;
	}
	API_OK(x->t, titan_session_close(s));
	return NULL;
}

static void check_same(tt_test *t, const alone *a, const alone *b, const char *what)
{
	for (int i = 0; i < STEPS; i++)
		TT_CHECK_MSG(t, a->loss[i] == b->loss[i], "%s: loss of step %d: %.17g, alone %.17g", what, i + 1, b->loss[i], a->loss[i]);
	TT_CHECK_MSG(t, a->score == b->score, "%s: score %.17g, alone %.17g", what, b->score, a->score);
}

/* Two sessions at once, each in a thread, give the bits that each gives by itself. Their arenas and folders are their own: a tt_test
 * is not made for threads, so each has a copy, whose failures are added up. */
static void two_sessions(tt_test *t)
{
	pthread_barrier_t together;
	pthread_barrier_init(&together, NULL, 2);
	titan_log_to(quiet, NULL, TITAN_LOG_INFO);
	tt_test_tmp(t);
	alone single[2], both[2];
	tt_test copy[2] = { *t, *t };
	pthread_t thread[2];
	for (int i = 0; i < 2; i++) {
		single[i] = (alone){ .t = t, .folder = i ? "one" : "zero", .seed = i ? "--debug.seed=11" : "--debug.seed=12" };
		run_alone(&single[i]);
	}
	TT_CHECK(t, single[0].loss[0] != single[1].loss[0]); /* other seeds, or mixing them up would not be seen */
	for (int i = 0; i < 2; i++) {
		copy[i].arena = tt_arena_create("thread");
		both[i] = (alone){ .t = &copy[i], .folder = i ? "three" : "two", .seed = single[i].seed, .together = &together };
		TT_ASSERT(!pthread_create(&thread[i], NULL, run_alone, &both[i]));
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(thread[i], NULL);
		t->failures += copy[i].failures;
		tt_arena_destroy(copy[i].arena);
		check_same(t, &single[i], &both[i], i ? "second" : "first");
	}
	pthread_barrier_destroy(&together);
}

static void *fail_aside(void *ctx)
{
	char *text = ctx;
	titan_step_info info;
	snprintf(text, 100, "[%s] then ", titan_error());
	(void)titan_step(NULL, &info);
	snprintf(text + strlen(text), 100, "[%s]", titan_error());
	return NULL;
}

static void errors_per_thread(tt_test *t)
{
	char text[300];
	pthread_t thread;
	API_FAILS(t, titan_save(NULL), TITAN_ERR_USAGE, "titan_save: the session is NULL");
	TT_ASSERT(!pthread_create(&thread, NULL, fail_aside, text));
	pthread_join(thread, NULL);
	TT_CHECK_STR(t, text, "[] then [titan_step: the session is NULL]");
	TT_CHECK_STR(t, titan_error(), "titan_save: the session is NULL");
}

typedef struct reenter { tt_test *t; titan_session *s; int calls, warnings, refused; } reenter;

static void calling_sink(void *ctx, titan_log_level level, const char *line)
{
	reenter *r = ctx;
	r->calls++;
	r->warnings += level == TITAN_LOG_WARN;
	TT_CHECK(r->t, line && !strchr(line, '\n'));
	if (r->s) {
		r->refused += titan_step(r->s, NULL) == TITAN_ERR_USAGE && strstr(titan_error(), "another call runs");
		r->refused += titan_session_close(r->s) == TITAN_ERR_USAGE && titan_steps_done(r->s) >= 0;
	}
}

static void one_call_at_a_time(tt_test *t)
{
	reenter r = { .t = t };
	titan_session *s;
	const char *without_effect[] = { "--metrics.log_freq=1", "--training.steps=2", "--lr_scheduler.decay_ratio=0.8", NULL };
	TT_CHECK_INT(t, titan_log_to(calling_sink, &r, TITAN_LOG_INFO), TITAN_OK);
	if (!API_OK(t, open_small(t, "run", without_effect, &s)))
		return;
	TT_CHECK(t, r.calls > 3);
	TT_CHECK(t, r.warnings > 0); /* the config's */
	r.s = s;
	r.calls = 0;
	API_OK(t, titan_step(s, NULL));
	TT_CHECK(t, r.calls > 0);
	TT_CHECK_INT(t, r.refused, 2 * r.calls);
	TT_CHECK_INT(t, titan_steps_done(s), 1);
	r.s = NULL;
	TT_CHECK_INT(t, titan_log_to(calling_sink, &r, TITAN_LOG_ERROR), TITAN_OK);
	r.calls = 0;
	API_OK(t, titan_step(s, NULL));
	TT_CHECK_INT(t, r.calls, 0);
	API_OK(t, titan_session_close(s));
	TT_CHECK_INT(t, titan_log_to(NULL, NULL, TITAN_LOG_INFO), TITAN_OK);
}

/* Rounding upwards and flushing subnormals, as in a program linked with -ffast-math, change no bit, and are there again after. */
static void callers_floating_point(tt_test *t)
{
	alone plain = { .t = t, .folder = "plain", .seed = "--debug.seed=3" }, odd = { .t = t, .folder = "odd", .seed = plain.seed };
	titan_log_to(quiet, NULL, TITAN_LOG_INFO);
	run_alone(&plain);
	fesetround(FE_UPWARD);
#if defined(__x86_64__)
	_mm_setcsr(_mm_getcsr() | 0x8040); /* FTZ, DAZ */
	unsigned before = _mm_getcsr() & 0xffc0;
#endif
	run_alone(&odd);
	TT_CHECK_INT(t, fegetround(), FE_UPWARD);
#if defined(__x86_64__)
	TT_CHECK_INT(t, _mm_getcsr() & 0xffc0, before);
#endif
	fesetenv(FE_DFL_ENV);
	check_same(t, &plain, &odd, "rounding upwards");
}

/* A locale that the caller's thread uses is there again after every call, also after one that failed. */
static void callers_locale(tt_test *t)
{
	locale_t mine = newlocale(LC_ALL_MASK, "C.UTF-8", (locale_t)0);
	titan_session *s;
	if (!mine)
		TT_SKIP(t, "no locale C.UTF-8 here");
	titan_log_to(quiet, NULL, TITAN_LOG_INFO);
	uselocale(mine);
	API_FAILS(t, titan_session_open("nowhere.toml", 0, NULL, &s), TITAN_ERR_IO, "nowhere");
	TT_CHECK(t, uselocale((locale_t)0) == mine);
	if (API_OK(t, open_small(t, "run", NULL, &s))) {
		API_OK(t, titan_step(s, NULL));
		TT_CHECK(t, uselocale((locale_t)0) == mine);
		API_OK(t, titan_session_close(s));
	}
	TT_CHECK(t, uselocale((locale_t)0) == mine);
	uselocale(LC_GLOBAL_LOCALE);
	freelocale(mine);
}

/* ---- an installed tree ----------------------------------------------------------------------------------------------------------------- */

static void installed(tt_test *t)
{
	tt_buf b = { 0 };
	FILE *p = popen(tt_arena_printf(t->arena, "tests/install_test.sh '%s' 2>&1", tt_test_tmp(t)), "r");
	if (!TT_CHECK(t, p != NULL))
		return;
	char line[4096];
	for (size_t n; (n = fread(line, 1, sizeof line, p)) > 0;)
		tt_buf_add(&b, line, n);
	tt_buf_add(&b, "", 0);
	int s = pclose(p);
	TT_CHECK_MSG(t, WIFEXITED(s) && !WEXITSTATUS(s), "tests/install_test.sh: %s", b.s ? b.s : "");
	tt_buf_fini(&b);
}

const tt_case tt_suite_api[] = {
	{ "misuse", misuse, TT_TIER_QUICK },
	{ "struct_size", struct_size, TT_TIER_QUICK },
	{ "ends", ends, TT_TIER_QUICK },
	{ "score_is_loss", score_is_loss, TT_TIER_QUICK },
	{ "saves", saves, TT_TIER_QUICK },
	{ "two_sessions", two_sessions, TT_TIER_QUICK },
	{ "errors_per_thread", errors_per_thread, TT_TIER_QUICK },
	{ "one_call_at_a_time", one_call_at_a_time, TT_TIER_QUICK },
	{ "callers_floating_point", callers_floating_point, TT_TIER_QUICK },
	{ "callers_locale", callers_locale, TT_TIER_QUICK },
	{ "installed", installed, TT_TIER_CI },
	{ 0 },
};
