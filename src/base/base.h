/* base: what every other part stands on. Errors, arenas, strings, regions of tensor memory, the worker pool, bf16.
 *
 * Nothing here knows what a tensor, a graph or a config is. There are no mutable globals except the thread-local
 * error record and the log sink (ranks are threads of one process).
 */
#ifndef TT_BASE_H
#define TT_BASE_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- errors -------------------------------------------------------------------------------------------------
 * The first detector writes the text with TT_FAIL; callers pass the status on with TT_TRY, which adds a breadcrumb
 * (file:line) and nothing else. Only cli/ prints the record. Outputs are written only on success. */

typedef enum tt_status {
	TT_OK = 0,
	TT_ERR_USAGE,   /* the command line or a config value is wrong                    */
	TT_ERR_IO,      /* the operating system refused a file operation                  */
	TT_ERR_FORMAT,  /* a file's content is not what its format says                   */
	TT_ERR_TYPE,    /* a layout type or shape rule rejects its inputs                 */
	TT_ERR_MEMORY,  /* a limit or the machine's memory is exhausted                   */
	TT_ERR_NUMERIC, /* a value that is not finite, or outside what `exact` can prove  */
	TT_ERR_COMM,    /* another rank is late, gone or different                        */
	TT_ERR_STOP,    /* asked to stop (a signal); not a fault                          */
} tt_status;

#define TT_CHECKED __attribute__((warn_unused_result))

/* Writes this thread's error record (dropping any older one) and returns `code`. Use TT_FAIL. */
tt_status tt_error_set(tt_status code, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Adds "file:line" to the record's trail; returns `code`. Use TT_TRY. */
tt_status tt_error_crumb(tt_status code, const char *file, int line);
const char *tt_error_text(void);   /* text of the last error on this thread; "" if none. Borrowed. */
const char *tt_error_trail(void);  /* "a.c:12 < b.c:40 ..." detector first. Borrowed. */
const char *tt_status_name(tt_status s);

/* Both return the status they hold, not the call's value, so that the compiler sees which paths leave. */
#define TT_FAIL(code, ...)                                                                                             \
	do {                                                                                                           \
		const tt_status tt_fail_ = (code);                                                                     \
		tt_error_set(tt_fail_, __FILE__, __LINE__, __VA_ARGS__);                                               \
		return tt_fail_;                                                                                       \
	} while (0)
#define TT_TRY(expr)                                                                                                   \
	do {                                                                                                           \
		const tt_status tt_try_ = (expr);                                                                      \
		if (__builtin_expect(tt_try_ != TT_OK, 0)) {                                                           \
			tt_error_crumb(tt_try_, __FILE__, __LINE__);                                                   \
			return tt_try_;                                                                                \
		}                                                                                                      \
	} while (0)

/* Broken invariants of our own: on in every build. Prints rank, scope, text and a backtrace, then aborts. */
void tt_panic(const char *file, int line, const char *fmt, ...) __attribute__((noreturn, cold, format(printf, 3, 4)));
void tt_assert_failed(const char *file, int line, const char *cond, const char *fmt, ...)
	__attribute__((noreturn, cold, format(printf, 4, 5)));
/* TT_ASSERT(cond) or TT_ASSERT(cond, "format", ...). The blank keeps an empty text from being an empty format. */
#define TT_ASSERT(cond, ...)                                                                                           \
	do {                                                                                                           \
		if (__builtin_expect(!(cond), 0))                                                                      \
			tt_assert_failed(__FILE__, __LINE__, #cond, " " __VA_ARGS__);                                  \
	} while (0)
#ifdef TT_DEBUG
#define TT_DCHECK(cond) TT_ASSERT(cond)
#else
#define TT_DCHECK(cond) ((void)0)
#endif

/* Who this thread is, for panics and log lines. `scope` is borrowed and may be NULL. */
void tt_thread_set(int rank, const char *scope);
void tt_thread_get(int *rank, const char **scope); /* rank -1 where none was set */

#define TT_COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))
#define TT_MIN(a, b) ((a) < (b) ? (a) : (b))
#define TT_MAX(a, b) ((a) > (b) ? (a) : (b))
#define TT_KIB ((int64_t)1024)
#define TT_MIB (1024 * TT_KIB)
#define TT_GIB (1024 * TT_MIB)

static inline int64_t tt_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t tt_round_up(int64_t a, int64_t b) { return tt_ceil_div(a, b) * b; }
/* First unit of part i when `units` are dealt over k parts: floor(i*units/k). Part i is [deal(i), deal(i+1)). */
static inline int64_t tt_deal(int64_t units, int64_t i, int64_t k) { return i * units / k; }

/* ---- log ----------------------------------------------------------------------------------------------------- */

typedef enum tt_log_level { TT_LOG_DEBUG, TT_LOG_INFO, TT_LOG_WARN, TT_LOG_ERROR } tt_log_level;
/* Receives one finished line without newline, one at a time. NULL restores the default (stderr). Process-wide.
 * Lines of ranks above 0 start with "[rank N] ". */
void tt_log_set_sink(void (*sink)(void *ctx, tt_log_level level, const char *line), void *ctx);
void tt_log_set_level(tt_log_level least);
const char *tt_log_prefix(tt_log_level level); /* "warning: ", "" for an info */
void tt_log(tt_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- arenas: metadata, by lifetime ----------------------------------------------------------------------------
 * Allocation never returns NULL: exhaustion of a limited arena is reported by tt_arena_ok once building ends (sticky),
 * until then allocations come from a spill block; exhaustion of the machine panics. Memory is zeroed. */

typedef struct tt_arena tt_arena;
tt_arena *tt_arena_create(const char *name); /* heap; destroy accepts NULL */
void tt_arena_destroy(tt_arena *a);
void tt_arena_set_limit(tt_arena *a, int64_t bytes); /* for fault injection; 0 = none */
tt_status tt_arena_ok(const tt_arena *a) TT_CHECKED;
void *tt_arena_alloc(tt_arena *a, size_t bytes);
size_t tt_arena_used(const tt_arena *a);
char *tt_arena_strdup(tt_arena *a, const char *s);
char *tt_arena_strndup(tt_arena *a, const char *s, size_t n);
char *tt_arena_printf(tt_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
typedef struct tt_mark { void *block; size_t used; } tt_mark;
tt_mark tt_arena_push(tt_arena *a);
void tt_arena_pop(tt_arena *a, tt_mark m); /* frees everything allocated since the push */
#define TT_NEW(arena, type) ((type *)tt_arena_alloc((arena), sizeof(type)))
#define TT_NEWN(arena, type, n) ((type *)tt_arena_alloc((arena), sizeof(type) * (size_t)(n)))

/* Growable array in an arena: TT_PUSH(arena, v.items, v.n, v.cap, item). Old storage stays in the arena. */
void *tt_arena_grow(tt_arena *a, void *items, int64_t n, int64_t *cap, size_t size);
#define TT_PUSH(arena, items, n, cap, item)                                                                            \
	do {                                                                                                           \
		if ((n) == (cap))                                                                                      \
			(items) = tt_arena_grow((arena), (items), (n), &(cap), sizeof *(items));                       \
		(items)[(n)++] = (item);                                                                               \
	} while (0)

/* ---- strings --------------------------------------------------------------------------------------------------- */

/* A growing text buffer on the heap. Start from {0}; tt_buf_fini frees. `s` is NUL-terminated once anything was added. */
typedef struct tt_buf { char *s; size_t n, cap; } tt_buf;
void tt_buf_add(tt_buf *b, const void *bytes, size_t n);
void tt_buf_str(tt_buf *b, const char *s);
void tt_buf_printf(tt_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void tt_buf_fini(tt_buf *b);

/* Sizes and counts as people read them, three digits: "17 bytes", "1.50 KiB", "26.3 MiB"; "812", "4.10 k", "26.3 M". INT64_MAX: "unlimited".
 * By value, for one call: tt_log(..., tt_scale_bytes(n).s). */
typedef struct tt_scaled { char s[24]; } tt_scaled;
tt_scaled tt_scale_bytes(int64_t bytes);
tt_scaled tt_scale_count(int64_t n);

/* For %f and %g: a NaN's sign says nothing, and printf shows it ("-nan"). */
static inline double tt_plain_nan(double v) { return v != v ? __builtin_nan("") : v; }

/* Levenshtein distance, with a swap of neighbours counting one. */
int tt_edit_distance(const char *a, const char *b);
/* The candidate nearest to `word` if it is near enough to be a typo (distance <= max(2, length/3), and half of the shorter); else NULL. */
const char *tt_nearest(const char *word, const char *const *candidates, int n);
/* Glob match with * ? [..] where '.' and '/' are ordinary characters. */
bool tt_glob_match(const char *pattern, const char *text);
/* Tensor-pattern match: alternatives split by '|', each a glob. "*norm*|*.bias". */
bool tt_pattern_match(const char *pattern, const char *name);

uint64_t tt_hash64(const void *bytes, size_t n, uint64_t seed); /* XXH3 */
/* A bijection of 64 bits (the finalizer of SplitMix64: Steele, Lea, Flood 2014). */
static inline uint64_t tt_mix64(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}
/* What element `index` of a tensor adds to the tensor's hash: tt_hash_element(tt_hash_index(i), bits). Hashes of parts add. */
static inline uint64_t tt_hash_index(int64_t index) { return tt_mix64((uint64_t)index + 1); }
static inline uint64_t tt_hash_element(uint64_t h, uint64_t bits) { return tt_mix64(h ^ bits); }
uint32_t tt_hash32(const char *s);                              /* of a name; stable across versions (XXH32, seed 0) */

/* ---- files ------------------------------------------------------------------------------------------------------ */

/* Whole file into the arena, NUL-terminated after `*n` bytes. Error names the path and the cause. A pipe is read to its end, as of `titan train <(...)`; one
 * that nobody writes to within a second, or nothing for half a minute, is an error, as are folders, sockets and devices. */
tt_status tt_file_read(tt_arena *a, const char *path, char **out, size_t *n) TT_CHECKED;
tt_status tt_file_write(const char *path, const void *bytes, size_t n) TT_CHECKED;
tt_status tt_mkdirs(const char *path) TT_CHECKED;
typedef struct tt_map { const uint8_t *p; size_t n; } tt_map; /* read-only mapping */
tt_status tt_map_open(const char *path, tt_map *out) TT_CHECKED;
void tt_map_close(tt_map *m); /* accepts a zero tt_map */

double tt_now(void); /* monotonic seconds */

/* ---- tensor memory: regions --------------------------------------------------------------------------------------
 * Reserved once, committed on touch, advised to be huge pages. */

typedef struct tt_region { uint8_t *p; size_t n; const char *name; } tt_region;
tt_status tt_region_open(const char *name, size_t bytes, tt_region *out) TT_CHECKED;
void tt_region_close(tt_region *r);
void tt_region_fill_nan(tt_region *r);                 /* test builds: every float in it reads as NaN */
tt_status tt_region_protect(tt_region *r, bool reachable) TT_CHECKED; /* PROT_NONE / read-write */
int64_t tt_memory_resident(void);                      /* bytes, of this process */
int64_t tt_memory_limit(void);                         /* bytes: the smaller of RAM and the cgroup's limit */
/* The smallest limit on the way from this process's cgroup to the root, INT64_MAX if none: `list` is a file in the
 * form of /proc/self/cgroup, `mount` the folder that cgroups are mounted under (v2 and v1 are read). */
int64_t tt_cgroup_limit(const char *list, const char *mount);

/* ---- worker pool ---------------------------------------------------------------------------------------------------
 * `threads` lanes including the caller. Workers spin at most `spin_us` before sleeping on a futex. Creating a pool
 * may allocate; running never does. */

typedef struct tt_pool tt_pool;
tt_status tt_pool_create(int threads, int spin_us, tt_pool **out) TT_CHECKED;
void tt_pool_destroy(tt_pool *p);
int tt_pool_threads(const tt_pool *p); /* NULL pool = 1 */
/* Calls fn(ctx, i, lane) once for each i in [0, n), in any order, lanes 0..threads-1; returns when all are done.
 * NULL pool runs in place. Not reentrant. Work is dealt dynamically, so fn must not let i's lane change a result. */
typedef void tt_pool_fn(void *ctx, int64_t i, int lane);
void tt_pool_run(tt_pool *p, int64_t n, tt_pool_fn *fn, void *ctx);

/* ---- small numbers --------------------------------------------------------------------------------------------------- */

typedef uint16_t tt_bf16;
static inline float tt_bf16_to_f32(tt_bf16 b)
{
	uint32_t u = (uint32_t)b << 16;
	float f;
	memcpy(&f, &u, 4);
	return f;
}
/* Round to nearest even; NaN stays NaN (quiet). */
static inline tt_bf16 tt_f32_to_bf16(float f)
{
	uint32_t u;
	memcpy(&u, &f, 4);
	if ((u & 0x7fffffffu) > 0x7f800000u)
		return (tt_bf16)((u >> 16) | 0x40u);
	return (tt_bf16)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
float tt_f16_to_f32(uint16_t h);
uint16_t tt_f32_to_f16(float f);

#endif
