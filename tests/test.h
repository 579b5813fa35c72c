/* The test harness: what a suite needs.
 *
 * A suite NAME is a line TT_SUITE(NAME) in suites.def and a file tests/test_NAME.c that ends with
 *     const tt_case tt_suite_NAME[] = {{"case", case_fn, TT_TIER_QUICK}, ..., {0}};
 * Each case runs in a child process of its own, so that a crash or a hang is one failure with its name.
 */
#ifndef TT_TEST_H
#define TT_TEST_H

#include "base/base.h"

typedef enum tt_tier { TT_TIER_QUICK, TT_TIER_CI, TT_TIER_PROOF } tt_tier; /* a tier runs its own and all before it */

typedef struct tt_test {
	const char *name; /* "suite.case" */
	tt_arena *arena;  /* fresh per case */
	const char *isa;  /* "ref", "avx2" or "avx512"; "" for the best that this machine has */
	tt_tier tier;     /* the tier of the run: a case may sample more at a higher one */
	uint64_t seed;    /* the same in every run, unless --seed is given */
	int failures;
	bool skipped;
	const char *tmp_path; /* use tt_test_tmp */
	int report;           /* where failures are sent; the harness's */
} tt_test;

typedef void tt_case_fn(tt_test *t);
typedef struct tt_case {
	const char *name;
	tt_case_fn *fn;
	tt_tier tier;
} tt_case;

/* A folder for this case, made at the first call and removed with all that is in it after the case. */
const char *tt_test_tmp(tt_test *t);
/* path inside the folder, in the case's arena */
const char *tt_test_path(tt_test *t, const char *name);

void tt_test_fail(tt_test *t, const char *file, int line, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void tt_test_skip(tt_test *t, const char *why);
bool tt_test_ok(tt_test *t, tt_status s, const char *file, int line, const char *expr);
bool tt_test_str(tt_test *t, const char *got, const char *want, const char *file, int line, const char *expr);
bool tt_test_int(tt_test *t, int64_t got, int64_t want, const char *file, int line, const char *expr);

/* A failed check is counted and the case goes on. Each is an expression that is true if the check held, for
 * `if (!TT_CHECK(t, p)) return;`. */
#define TT_CHECK(t, cond) TT_CHECK_MSG(t, cond, "%s", #cond)
#define TT_CHECK_MSG(t, cond, ...)                                                                                     \
	({                                                                                                             \
		const bool tt_held_ = (cond);                                                                          \
		if (!tt_held_)                                                                                         \
			tt_test_fail((t), __FILE__, __LINE__, __VA_ARGS__);                                            \
		tt_held_;                                                                                              \
	})
#define TT_CHECK_STR(t, got, want) tt_test_str((t), (got), (want), __FILE__, __LINE__, #got)
#define TT_CHECK_INT(t, got, want) tt_test_int((t), (int64_t)(got), (int64_t)(want), __FILE__, __LINE__, #got)
#define TT_CHECK_OK(t, status) tt_test_ok((t), (status), __FILE__, __LINE__, #status)
/* The status must be `code` and the error's text must contain `part`. */
#define TT_CHECK_FAILS(t, status, code, part) tt_test_fails((t), (status), (code), (part), __FILE__, __LINE__, #status)
bool tt_test_fails(tt_test *t, tt_status s, tt_status want, const char *part, const char *file, int line,
	const char *expr);
/* Leaves the case, which counts as skipped unless it failed before. */
#define TT_SKIP(t, why)                                                                                                \
	do {                                                                                                           \
		tt_test_skip((t), (why));                                                                              \
		return;                                                                                                \
	} while (0)

/* Runs fn(ctx) in a child of its own and tells how it ended: true if it was killed by `signal` and what it wrote to
 * stderr contains `part`. For panics and for memory that must not be reachable. */
bool tt_test_dies(tt_test *t, void (*fn)(void *ctx), void *ctx, int signal, const char *part);

/* Calls of malloc, calloc, realloc and the aligned ones by any thread between begin and end. Not available under
 * sanitizers, which bring an allocator of their own. */
bool tt_malloc_count_available(void);
void tt_malloc_count_begin(void);
int64_t tt_malloc_count_end(void);

#endif
