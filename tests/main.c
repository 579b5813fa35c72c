/* The test runner: titan-test [--list] [--tier=quick|ci|proof] [--isa=ref|avx2|avx512] [--seed=N] [--jobs=N]
 * [--no-fork] [FILTER...]. A filter is a glob, or a part, of "suite.case". */
#define _GNU_SOURCE
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Weak, so that a build of some parts alone (make PARTS=...) links. In a full build a suite without its file is a
 * failing case. */
#define TT_SUITE(name) extern const tt_case tt_suite_##name[] __attribute__((weak));
#include "suites.def"
#undef TT_SUITE

static const struct suite {
	const char *name;
	const tt_case *cases;
} suites[] = {
#define TT_SUITE(name) {#name, tt_suite_##name},
#include "suites.def"
#undef TT_SUITE
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOWNESS = 10 };
#else
enum { SLOWNESS = 1 };
#endif

enum { MAX_FAILURES = 20, SLOWEST = 5, MAX_JOBS = 64, QUICK_SECONDS = 60, CI_SECONDS = 600 };

/* ---- inside a case ------------------------------------------------------------------------------------------------ */

/* A report is a run of records: 'F' or 'S', text, NUL. 'E' alone says that the case came to its end. */
static void report(tt_test *t, char kind, const char *text)
{
	size_t n = strlen(text);
	char *record = malloc(n + 2);
	record[0] = kind;
	memcpy(record + 1, text, n + 1);
	for (size_t done = 0; done < n + 2;) {
		ssize_t w = write(t->report, record + done, n + 2 - done);
		if (w < 0 && errno != EINTR)
			break;
		done += w > 0 ? (size_t)w : 0;
	}
	free(record);
}

void tt_test_fail(tt_test *t, const char *file, int line, const char *fmt, ...)
{
	if (++t->failures > MAX_FAILURES)
		return;
	tt_buf b = {0};
	tt_buf_printf(&b, "%s:%d: ", file, line);
	va_list args;
	va_start(args, fmt);
	char *text = NULL;
	if (vasprintf(&text, fmt, args) >= 0)
		tt_buf_str(&b, text);
	va_end(args);
	free(text);
	if (t->failures == MAX_FAILURES)
		tt_buf_str(&b, " (further failures of this case are not shown)");
	report(t, 'F', b.s);
	tt_buf_fini(&b);
}

void tt_test_skip(tt_test *t, const char *why)
{
	t->skipped = true;
	report(t, 'S', why);
}

bool tt_test_ok(tt_test *t, tt_status s, const char *file, int line, const char *expr)
{
	if (s != TT_OK)
		tt_test_fail(t, file, line, "%s: %s: %s (%s)", expr, tt_status_name(s), tt_error_text(), tt_error_trail());
	return s == TT_OK;
}

bool tt_test_fails(tt_test *t, tt_status s, tt_status want, const char *part, const char *file, int line,
	const char *expr)
{
	if (s != want)
		tt_test_fail(t, file, line, "%s: got status %s (%s), want %s", expr, tt_status_name(s),
			s == TT_OK ? "" : tt_error_text(), tt_status_name(want));
	else if (!strstr(tt_error_text(), part))
		tt_test_fail(t, file, line, "%s: the error says \"%s\", want \"%s\" in it", expr, tt_error_text(), part);
	else
		return true;
	return false;
}

bool tt_test_str(tt_test *t, const char *got, const char *want, const char *file, int line, const char *expr)
{
	if (got == want || (got && want && strcmp(got, want) == 0))
		return true;
	int at = 1;
	if (got && want)
		for (int i = 0; got[i] && got[i] == want[i]; i++)
			at += got[i] == '\n';
	if (got && want && (strchr(got, '\n') || strchr(want, '\n')))
		tt_test_fail(t, file, line, "%s differs in its line %d\n--- got\n%s\n--- want\n%s\n---", expr, at, got, want);
	else
		tt_test_fail(t, file, line, "%s: got %s%s%s, want %s%s%s", expr, got ? "\"" : "", got ? got : "NULL",
			got ? "\"" : "", want ? "\"" : "", want ? want : "NULL", want ? "\"" : "");
	return false;
}

bool tt_test_int(tt_test *t, int64_t got, int64_t want, const char *file, int line, const char *expr)
{
	if (got != want)
		tt_test_fail(t, file, line, "%s: got %lld, want %lld", expr, (long long)got, (long long)want);
	return got == want;
}

const char *tt_test_tmp(tt_test *t)
{
	if (mkdir(t->tmp_path, 0700) != 0 && errno != EEXIST)
		tt_test_fail(t, __FILE__, __LINE__, "%s: cannot create: %m", t->tmp_path);
	return t->tmp_path;
}

const char *tt_test_path(tt_test *t, const char *name) { return tt_arena_printf(t->arena, "%s/%s", tt_test_tmp(t), name); }

bool tt_test_dies(tt_test *t, void (*fn)(void *ctx), void *ctx, int sig, const char *part)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC) != 0)
		return TT_CHECK_MSG(t, false, "pipe: %m");
	fflush(NULL);
	pid_t pid = fork();
	if (pid < 0)
		return TT_CHECK_MSG(t, false, "fork: %m");
	if (pid == 0) {
		dup2(ends[1], STDERR_FILENO);
		/* The sanitizers would turn the signal into an exit. */
		signal(sig, SIG_DFL);
		alarm(20 * SLOWNESS);
		fn(ctx);
		_exit(0);
	}
	close(ends[1]);
	tt_buf said = {0};
	char chunk[1024];
	for (ssize_t n; (n = read(ends[0], chunk, sizeof chunk)) > 0;)
		tt_buf_add(&said, chunk, (size_t)n);
	close(ends[0]);
	int status = 0;
	waitpid(pid, &status, 0);
	bool ok = true;
	if (!WIFSIGNALED(status) || WTERMSIG(status) != sig)
		ok = TT_CHECK_MSG(t, false, "the child ended with status %#x, not by signal %d; it said: %s", status, sig,
			said.s ? said.s : "");
	else if (part && !(said.s && strstr(said.s, part)))
		ok = TT_CHECK_MSG(t, false, "the child died but did not say \"%s\"; it said: %s", part, said.s ? said.s : "");
	tt_buf_fini(&said);
	return ok;
}

/* ---- running ------------------------------------------------------------------------------------------------------ */

typedef struct job {
	const char *name;
	const tt_case *c; /* NULL: the suite has no file */
	double seconds;
	pid_t pid;
	int fd;
	double started;
	tt_buf said;
	char tmp[256];
} job;

typedef struct options {
	tt_tier tier;
	const char *isa;
	uint64_t seed;
	int jobs;
	bool fork, list;
} options;

typedef struct tally {
	int passed, failed, skipped;
} tally;

static const char *const tier_names[] = {"quick", "ci", "proof"};

static void run_case(const job *j, const options *o, int fd)
{
	tt_test t = {
		.name = j->name,
		.arena = tt_arena_create(j->name),
		.isa = o->isa,
		.tier = o->tier,
		.seed = tt_hash64(j->name, strlen(j->name), o->seed),
		.tmp_path = j->tmp,
		.report = fd,
	};
	j->c->fn(&t);
	tt_arena_destroy(t.arena);
	report(&t, 'E', "");
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static void job_start(job *j, const options *o, int index)
{
	const char *base = getenv("TMPDIR");
	snprintf(j->tmp, sizeof j->tmp, "%.180s/titan-test-%d-%d", base && *base ? base : "/tmp", (int)getpid(), index);
	int ends[2];
	if (pipe2(ends, O_CLOEXEC) != 0)
		tt_panic(__FILE__, __LINE__, "pipe: %m");
	j->fd = ends[0];
	j->started = tt_now();
	fflush(NULL);
	j->pid = fork();
	if (j->pid < 0)
		tt_panic(__FILE__, __LINE__, "fork: %m");
	if (j->pid == 0) {
		/* A group of its own, so that whatever the case started can be ended with it; and never longer than the
		 * runner, should that be interrupted. */
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ends[0]);
		tt_tier tier = TT_MAX(j->c->tier, o->tier); /* in a larger tier a case does more */
		if (tier != TT_TIER_PROOF)
			alarm((tier == TT_TIER_QUICK ? QUICK_SECONDS : CI_SECONDS) * SLOWNESS);
		run_case(j, o, ends[1]);
		/* Not exit(0): a sanitizer's report at exit (leaks) must count. */
		fflush(NULL);
		exit(0);
	}
	setpgid(j->pid, j->pid);
	close(ends[1]);
}

/* Without a fork a pipe would fill up: the report goes through a file that has no name. */
static void job_in_place(job *j, const options *o)
{
	snprintf(j->tmp, sizeof j->tmp, "/tmp/titan-test-%d", (int)getpid());
	FILE *f = tmpfile();
	if (!f)
		tt_panic(__FILE__, __LINE__, "tmpfile: %m");
	fprintf(stderr, "run   %s\n", j->name);
	j->started = tt_now();
	run_case(j, o, fileno(f));
	j->seconds = tt_now() - j->started;
	rewind(f);
	char chunk[4096];
	for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;)
		tt_buf_add(&j->said, chunk, n);
	fclose(f);
}

/* Prints what the case reported and counts it. `status` is wait's; 0 without a fork. */
static void job_end(job *j, int status, tally *sum)
{
	if (j->started && !j->seconds)
		j->seconds = tt_now() - j->started;
	tt_buf failures = {0};
	const char *skip = NULL;
	bool ended = false;
	for (const char *p = j->said.s, *end = p + j->said.n; p && p < end; p += strlen(p) + 1) {
		if (*p == 'F')
			tt_buf_printf(&failures, "      %s\n", p + 1);
		else if (*p == 'S')
			skip = p + 1;
		else
			ended = true;
	}
	if (j->c && WIFSIGNALED(status))
		tt_buf_printf(&failures, "      killed by signal %d (%s) after %.1f s\n", WTERMSIG(status),
			WTERMSIG(status) == SIGALRM ? "it took too long" : strsignal(WTERMSIG(status)), j->seconds);
	else if (j->c && (!ended || WEXITSTATUS(status)))
		tt_buf_printf(&failures, "      ended with exit code %d%s\n", WEXITSTATUS(status),
			ended ? "" : " before its end");
	if (!j->c)
		tt_buf_printf(&failures, "      tests/suites.def names this suite, no file defines it\n");
	if (failures.n) {
		printf("FAIL  %s\n%s", j->name, failures.s);
		sum->failed++;
	} else if (skip) {
		printf("skip  %s: %s\n", j->name, skip);
		sum->skipped++;
	} else {
		sum->passed++;
	}
	fflush(stdout);
	tt_buf_fini(&failures);
	tt_buf_fini(&j->said);
	if (*j->tmp)
		nftw(j->tmp, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Runs all jobs, o->jobs at a time. A job is over when its process is gone; its end of the pipe may be held open
 * longer by what it left running, which is then ended. */
static void run_all(job *jobs, int n, const options *o, tally *sum)
{
	job *running[MAX_JOBS];
	int busy = 0, next = 0;
	while (next < n || busy) {
		while (next < n && busy < o->jobs) {
			job *j = &jobs[next++];
			if (!j->c) {
				job_end(j, 0, sum);
			} else if (!o->fork) {
				job_in_place(j, o);
				job_end(j, 0, sum);
			} else {
				job_start(j, o, next);
				running[busy++] = j;
			}
		}
		struct pollfd fds[MAX_JOBS];
		for (int i = 0; i < busy; i++)
			fds[i] = (struct pollfd){.fd = running[i]->fd, .events = POLLIN};
		poll(fds, (nfds_t)busy, 200);
		for (int i = busy - 1; i >= 0; i--) {
			job *j = running[i];
			char chunk[4096];
			bool eof = false;
			if (fds[i].revents) {
				ssize_t got = read(j->fd, chunk, sizeof chunk);
				eof = got == 0;
				if (got > 0) {
					tt_buf_add(&j->said, chunk, (size_t)got);
					continue;
				}
			}
			int status = 0;
			if (waitpid(j->pid, &status, eof ? 0 : WNOHANG) != j->pid)
				continue;
			kill(-j->pid, SIGKILL);
			for (ssize_t got; !eof && (got = read(j->fd, chunk, sizeof chunk)) > 0;)
				tt_buf_add(&j->said, chunk, (size_t)got);
			close(j->fd);
			job_end(j, status, sum);
			running[i] = running[--busy];
		}
	}
}

static int by_seconds(const void *a, const void *b)
{
	double x = ((const job *)a)->seconds, y = ((const job *)b)->seconds;
	return (x < y) - (x > y);
}

/* ---- command line ------------------------------------------------------------------------------------------------- */

/* In one of the filters, if there are any, and in none that is behind a "-". */
static bool filtered(const char *name, char **filters, int n)
{
	bool in = false, any = false;
	for (int i = 0; i < n; i++) {
		bool out = filters[i][0] == '-';
		const char *f = filters[i] + out;
		bool hit = tt_glob_match(f, name) || strstr(name, f);
		if (out && hit)
			return false;
		any |= !out;
		in |= !out && hit;
	}
	return in || !any;
}

static bool cpu_has(const char *isa)
{
	if (strcmp(isa, "ref") == 0)
		return true;
#if defined(__x86_64__)
	if (strcmp(isa, "avx2") == 0)
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	if (strcmp(isa, "avx512") == 0)
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
			__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
	return false;
}

static int usage(const char *text, const char *arg)
{
	fprintf(stderr,
		"titan-test: %s: %s\n"
		"usage: titan-test [--list] [--tier=quick|ci|proof] [--isa=ref|avx2|avx512] [--seed=N] [--jobs=N] [--no-fork]\n"
		"                  [FILTER...]   a filter is a glob, or a part, of suite.case; behind a -, what to leave out\n",
		arg, text);
	return 2;
}

static const char *option(const char *arg, const char *name)
{
	size_t n = strlen(name);
	return strncmp(arg, name, n) == 0 ? arg + n : NULL;
}

int main(int argc, char **argv)
{
	options o = {.tier = TT_TIER_QUICK, .isa = "", .jobs = 1, .fork = true};
	char **filters = argv + 1; /* moved to the front, behind the reader */
	int filters_n = 0;
	for (int i = 1; i < argc; i++) {
		const char *v;
		if ((v = option(argv[i], "--tier="))) {
			int k = 0;
			while (k < TT_COUNT(tier_names) && strcmp(v, tier_names[k]))
				k++;
			if (k == TT_COUNT(tier_names))
				return usage("there are the tiers quick, ci and proof", argv[i]);
			o.tier = (tt_tier)k;
		} else if ((v = option(argv[i], "--isa="))) {
			if (strcmp(v, "ref") && strcmp(v, "avx2") && strcmp(v, "avx512"))
				return usage("there are the sets ref, avx2 and avx512", argv[i]);
			if (!cpu_has(v))
				return usage("this CPU does not have it", argv[i]);
			o.isa = v;
		} else if ((v = option(argv[i], "--seed="))) {
			o.seed = strtoull(v, NULL, 0);
		} else if ((v = option(argv[i], "--jobs="))) {
			o.jobs = (int)strtol(v, NULL, 10);
			if (o.jobs < 1 || o.jobs > MAX_JOBS)
				return usage("1 to 64 jobs", argv[i]);
		} else if (strcmp(argv[i], "--no-fork") == 0) {
			o.fork = false;
		} else if (strcmp(argv[i], "--list") == 0) {
			o.list = true;
		} else if (!strncmp(argv[i], "--", 2) || !strcmp(argv[i], "-")) {
			return usage("unknown option", argv[i]);
		} else {
			filters[filters_n++] = argv[i];
		}
	}

	tt_arena *arena = tt_arena_create("tests");
	job *jobs = NULL;
	int64_t n = 0, cap = 0;
	for (int s = 0; s < TT_COUNT(suites); s++) {
		if (!suites[s].cases) {
#ifndef TT_PART
			const char *name = tt_arena_printf(arena, "%s.missing", suites[s].name);
			if (filtered(name, filters, filters_n))
				TT_PUSH(arena, jobs, n, cap, ((job){.name = name}));
#endif
			continue;
		}
		for (const tt_case *c = suites[s].cases; c->name; c++) {
			const char *name = tt_arena_printf(arena, "%s.%s", suites[s].name, c->name);
			if (c->tier <= o.tier && filtered(name, filters, filters_n))
				TT_PUSH(arena, jobs, n, cap, ((job){.name = name, .c = c}));
		}
	}
	if (o.list) {
		for (int64_t i = 0; i < n; i++)
			printf("%s\n", jobs[i].name);
		tt_arena_destroy(arena);
		return 0;
	}
	if (n == 0) {
		fprintf(stderr, "titan-test: no case matches the filter in tier %s\n", tier_names[o.tier]);
		return 2;
	}

	tally sum = {0};
	double start = tt_now();
	run_all(jobs, (int)n, &o, &sum);
	double seconds = tt_now() - start;
	qsort(jobs, (size_t)n, sizeof *jobs, by_seconds);
	printf("%lld cases in %.1f s; slowest:", (long long)n, seconds);
	for (int i = 0; i < TT_MIN(SLOWEST, (int)n); i++)
		printf("%s %s %.2f s", i ? "," : "", jobs[i].name, jobs[i].seconds);
	printf("\n%d passed, %d failed", sum.passed, sum.failed);
	if (sum.skipped)
		printf(", %d skipped", sum.skipped);
	printf("\n");
	tt_arena_destroy(arena);
	return sum.failed ? 1 : 0;
}
