/* peak.c: loops that do nothing but arithmetic or nothing but loads and stores, their timing, and the cache of results. */
#define _GNU_SOURCE
#include "kernels/peak.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/machine.h"

/* ---- arithmetic from registers ----------------------------------------------------------------------------------------------------
 * The whole loop is one piece of assembly: no compiler, at any level, can leave out, move or spill what is to be counted. Accumulators are
 * independent chains, as many as hide an instruction's latency times its ports. They grow slowly from zero: no denormals, no
 * infinities, and mantissas that toggle as real data does. */

#define R12 "0,1,2,3,4,5,6,7,8,9,10,11"
#define R24 R12 ",12,13,14,15,16,17,18,19,20,21,22,23"
#define X8 "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7"
#define X16 X8, "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#define X32 X16, "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31"

#ifndef TT_NO_X86
/* 7 chains of products by one, 7 of sums. */
static void loop_ref(int64_t n)
{
	const float one = 1, step = 0.37f;
	__asm__ volatile(
		"movss %[one], %%xmm15\n\tshufps $0, %%xmm15, %%xmm15\n\t"
		"movss %[step], %%xmm14\n\tshufps $0, %%xmm14, %%xmm14\n\t"
		".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13\n\tmovaps %%xmm14, %%xmm\\r\n\t.endr\n"
		"1:\n\t"
		".irp r,0,1,2,3,4,5,6\n\tmulps %%xmm15, %%xmm\\r\n\t.endr\n\t"
		".irp r,7,8,9,10,11,12,13\n\taddps %%xmm14, %%xmm\\r\n\t.endr\n\t"
		"dec %[n]\n\tjnz 1b\n\t"
		: [n] "+r"(n) : [one] "m"(one), [step] "m"(step) : "cc", X16);
}

__attribute__((target("avx2,fma"))) static void loop_avx2(int64_t n)
{
	const float step = 0.37f;
	__asm__ volatile(
		"vbroadcastss %[step], %%ymm14\n\tvmovaps %%ymm14, %%ymm15\n\t"
		".irp r," R12 "\n\tvpxor %%ymm\\r, %%ymm\\r, %%ymm\\r\n\t.endr\n"
		"1:\n\t"
		".irp r," R12 "\n\tvfmadd231ps %%ymm14, %%ymm15, %%ymm\\r\n\t.endr\n\t"
		"dec %[n]\n\tjnz 1b\n\t"
		"vzeroupper\n\t"
		: [n] "+r"(n) : [step] "m"(step) : "cc", X16);
}

__attribute__((target("avx512f"))) static void loop_avx512(int64_t n)
{
	const float step = 0.37f;
	__asm__ volatile(
		"vbroadcastss %[step], %%zmm24\n\tvmovaps %%zmm24, %%zmm25\n\t"
		".irp r," R24 "\n\tvpxord %%zmm\\r, %%zmm\\r, %%zmm\\r\n\t.endr\n"
		"1:\n\t"
		".irp r," R24 "\n\tvfmadd231ps %%zmm24, %%zmm25, %%zmm\\r\n\t.endr\n\t"
		"dec %[n]\n\tjnz 1b\n\t"
		"vzeroupper\n\t"
		: [n] "+r"(n) : [step] "m"(step) : "cc", X32);
}

__attribute__((target("avx512f"))) static void loop_bf16(int64_t n)
{
	const uint32_t pair = 0x3ebd3ebdu; /* 0.369 twice */
	__asm__ volatile(
		"vpbroadcastd %[pair], %%zmm24\n\tvmovaps %%zmm24, %%zmm25\n\t"
		".irp r," R24 "\n\tvpxord %%zmm\\r, %%zmm\\r, %%zmm\\r\n\t.endr\n"
		"1:\n\t"
		".irp r," R24 "\n\tvdpbf16ps %%zmm24, %%zmm25, %%zmm\\r\n\t.endr\n\t"
		"dec %[n]\n\tjnz 1b\n\t"
		"vzeroupper\n\t"
		: [n] "+r"(n) : [pair] "m"(pair) : "cc", X32);
}
enum { REF_FLOPS = 14 * 4, AVX2_FLOPS = 12 * 8 * 2, AVX512_FLOPS = 24 * 16 * 2, BF16_FLOPS = 24 * 32 * 2 };

#else /* one baseline loop; the others have no kernels to be compared with */

#if defined(__aarch64__)
static void loop_ref(int64_t n)
{
	const float step = 0.37f;
	__asm__ volatile(
		"dup v24.4s, %w[step]\n\tmov v25.16b, v24.16b\n\t"
		".irp r," R24 "\n\tmovi v\\r\\().4s, #0\n\t.endr\n"
		"1:\n\t"
		".irp r," R24 "\n\tfmla v\\r\\().4s, v24.4s, v25.4s\n\t.endr\n\t"
		"subs %[n], %[n], #1\n\tb.ne 1b\n\t"
		: [n] "+r"(n) : [step] "r"((union { float f; uint32_t u; }){ step }.u)
		: "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19",
		  "v20", "v21", "v22", "v23", "v24", "v25");
}
enum { REF_FLOPS = 24 * 4 * 2 };
#else
/* The empty assembly is what the compiler must not look through. */
static void loop_ref(int64_t n)
{
	float a[8] = { 0 }, step = 0.37f;
	for (; n; n--)
		for (int i = 0; i < 8; i++) {
			a[i] = a[i] + step * step;
			__asm__ volatile("" : "+m"(a[i]));
		}
}
enum { REF_FLOPS = 8 * 2 };
#endif
enum { AVX2_FLOPS = 1, AVX512_FLOPS = 1, BF16_FLOPS = 1 };
static void loop_avx2(int64_t n) { loop_ref(n); }
static void loop_avx512(int64_t n) { loop_ref(n); }
static void loop_bf16(int64_t n) { loop_ref(n); }
#endif

/* ---- memory ------------------------------------------------------------------------------------------------------------------------------
 * Baseline code: one core's loads from memory take a tenth of what 16 byte instructions can ask for. */

typedef uint64_t lane2 __attribute__((vector_size(16)));

enum { STRIDE = 8 }; /* lane2 at a time: 8 chains of loads; n is a multiple */

static uint64_t read_words(const lane2 *p, int64_t n)
{
	lane2 s[STRIDE] = { 0 };
	for (int64_t i = 0; i < n; i += STRIDE)
		for (int j = 0; j < STRIDE; j++)
			s[j] += p[i + j];
	for (int j = 1; j < STRIDE; j++)
		s[0] += s[j];
	return s[0][0] ^ s[0][1];
}

static void triad(double *restrict a, const double *restrict b, const double *restrict c, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		a[i] = b[i] + 0.5 * c[i];
}

/* ---- rounds ------------------------------------------------------------------------------------------------------------------------------ */

enum { MAX_LANES = 1024 };

/* A round: every lane waits until all have come, then works. Its time is from the first start to the last end. */
typedef struct crew {
	tt_figure figure;
	int threads;
	int64_t n;        /* turns of a loop; unused by memory */
	double *a, *b, *c;/* [words] each; TT_PEAK_READ reads a */
	int64_t words;
	bool touch;       /* this round writes the arrays whole, so that a lane's part lies near it */
	int64_t piece, pieces; /* else it takes one piece of every lane's part; the next round the next one */
	_Atomic int come;
	double from[MAX_LANES], to[MAX_LANES];
} crew;

static void memory_part(crew *w, int lane)
{
	/* Multiples of 16 words: whole cache lines, and whole strides of read_words. */
	int64_t lo = tt_deal(w->words / 16, lane, w->threads) * 16, hi = tt_deal(w->words / 16, lane + 1, w->threads) * 16;
	if (w->touch) {
		for (int64_t i = lo; i < hi; i++) {
			w->a[i] = 1;
			if (w->b)
				w->b[i] = w->c[i] = 0.25;
		}
		return;
	}
	int64_t lines = (hi - lo) / 16, from = lo + tt_deal(lines, w->piece, w->pieces) * 16, to = lo + tt_deal(lines, w->piece + 1, w->pieces) * 16;
	if (w->figure == TT_PEAK_READ) {
		volatile uint64_t sink = read_words((const lane2 *)(const void *)(w->a + from), (to - from) / 2);
		(void)sink;
	} else {
		triad(w->a + from, w->b + from, w->c + from, to - from);
	}
}

/* Lane i on the i-th CPU that it may use, if there are as many lanes as CPUs: two lanes that a busy system has put on one CPU would stay
 * there for longer than is measured. With fewer lanes it is left to the system, which knows what CPUs share a core. */
static bool settle(int lane, int threads, cpu_set_t *before)
{
	if (threads == 1 || sched_getaffinity(0, sizeof *before, before) || CPU_COUNT(before) != threads)
		return false;
	cpu_set_t own;
	CPU_ZERO(&own);
	for (int c = 0, k = 0; c < CPU_SETSIZE; c++)
		if (CPU_ISSET(c, before) && k++ == lane)
			CPU_SET(c, &own);
	return !sched_setaffinity(0, sizeof own, &own);
}

static void turn(void *ctx, int64_t i, int lane)
{
	(void)i;
	crew *w = ctx;
	cpu_set_t before;
	bool settled = settle(lane, w->threads, &before);
	atomic_fetch_add(&w->come, 1);
	/* Nobody takes two items: a lane that waits here leaves the others to the rest of the pool. */
	for (int k = 0; atomic_load_explicit(&w->come, memory_order_acquire) < w->threads; k++)
		if (k > 2000)
			sched_yield();
	w->from[lane] = tt_now();
	switch (w->figure) {
	case TT_PEAK_F32_REF: loop_ref(w->n); break;
	case TT_PEAK_F32_AVX2: loop_avx2(w->n); break;
	case TT_PEAK_F32_AVX512: loop_avx512(w->n); break;
	case TT_PEAK_BF16: loop_bf16(w->n); break;
	case TT_PEAK_READ:
	case TT_PEAK_TRIAD: memory_part(w, lane); break;
	case TT_PEAK_NFIGURES: break;
	}
	w->to[lane] = tt_now();
	if (settled)
		(void)sched_setaffinity(0, sizeof before, &before);
}

static double round_seconds(crew *w, tt_pool *pool)
{
	atomic_store(&w->come, 0);
	tt_pool_run(w->threads > 1 ? pool : NULL, w->threads, turn, w);
	double from = w->from[0], to = w->to[0];
	for (int i = 1; i < w->threads; i++) {
		from = TT_MIN(from, w->from[i]);
		to = TT_MAX(to, w->to[i]);
	}
	return TT_MAX(to - from, 1e-9);
}

/* work per second in the best round of `seconds`; at least three rounds. */
static double best_of(crew *w, tt_pool *pool, double work, double seconds)
{
	double best = 0, end = tt_now() + seconds;
	for (int i = 0; i < 3 || tt_now() < end; i++) {
		double rate = work / round_seconds(w, pool);
		best = TT_MAX(best, rate);
	}
	return best;
}

static double measure_flops(crew *w, tt_pool *pool, double seconds)
{
	static const int per_turn[] = { REF_FLOPS, AVX2_FLOPS, AVX512_FLOPS, BF16_FLOPS };
	/* Rounds of about a millisecond: long against the clock and the start of lanes, short against a time slice. The shortest of three tells
	 * how long a turn takes: one that was interrupted would make rounds so short that the clock is what they measure. */
	double took;
	for (w->n = 1000;; w->n *= 2) {
		took = round_seconds(w, pool);
		for (int i = 1; i < 3; i++) {
			double again = round_seconds(w, pool);
			took = TT_MIN(took, again);
		}
		if (took >= 2.5e-4)
			break;
	}
	w->n = (int64_t)((double)w->n * TT_MAX(1e-3 / took, 1.0));
	return best_of(w, pool, (double)per_turn[w->figure] * (double)w->n * w->threads, seconds);
}

/* Words of an array: all of them four times what the last caches hold, within bounds that a small container and a short measurement allow. */
static int64_t array_words(int arrays)
{
	tt_machine m;
	tt_machine_read("", &m);
	int64_t cache = tt_machine_last_cache(&m), room = TT_MIN(tt_memory_limit(), m.available ? m.available : INT64_MAX);
	if (m.cgroup_memory.soft != INT64_MAX)
		room = TT_MIN(room, m.cgroup_memory.soft - TT_MAX(0, m.cgroup_memory.used));
	int64_t total = TT_MIN(TT_MAX(4 * cache, 128 * TT_MIB), TT_GIB);
	total = TT_MAX(TT_MIN(total, room / 8), 4 * TT_MIB);
	return total / arrays / 8 / 16 * 16;
}

/* Of this round's piece. */
static double memory_bytes(const crew *w, int arrays)
{
	int64_t lines = 0;
	for (int lane = 0; lane < w->threads; lane++) {
		int64_t n = tt_deal(w->words / 16, lane + 1, w->threads) - tt_deal(w->words / 16, lane, w->threads);
		lines += tt_deal(n, w->piece + 1, w->pieces) - tt_deal(n, w->piece, w->pieces);
	}
	return (double)lines * 128 * arrays;
}

static double measure_memory(crew *w, tt_pool *pool, double seconds)
{
	int arrays = w->figure == TT_PEAK_READ ? 1 : 3;
	w->words = array_words(arrays);
	tt_region r;
	if (tt_region_open("bandwidth", (size_t)w->words * 8 * (size_t)arrays, &r) != TT_OK)
		return 0;
	w->a = (double *)(void *)r.p;
	w->b = arrays == 3 ? w->a + w->words : NULL;
	w->c = arrays == 3 ? w->b + w->words : NULL;
	w->touch = true;
	round_seconds(w, pool);
	w->touch = false;
	/* Pieces of 4 MiB of all arrays together, a fraction of a millisecond: a round as long as the arrays would be interrupted every time
	 * on a machine that others use too. A piece comes up again only after all others, when no cache holds it any more. */
	w->pieces = TT_MAX(w->words * 8 * arrays / (4 * TT_MIB * w->threads), 1);
	double best = 0, end = tt_now() + seconds;
	for (int64_t i = 0; i < w->pieces || tt_now() < end; i++) {
		w->piece = i % w->pieces;
		double rate = memory_bytes(w, arrays) / round_seconds(w, pool);
		best = TT_MAX(best, rate);
	}
	tt_region_close(&r);
	return best;
}

static double measure(void *ctx, tt_pool *pool, tt_figure f, int threads, double seconds)
{
	(void)ctx;
	TT_ASSERT(threads >= 1 && threads <= MAX_LANES && threads <= tt_pool_threads(pool), "%d lanes of a pool of %d", threads, tt_pool_threads(pool));
	crew w = { .figure = f, .threads = threads };
	return f == TT_PEAK_READ || f == TT_PEAK_TRIAD ? measure_memory(&w, pool, seconds) : measure_flops(&w, pool, seconds);
}

/* ---- figures -------------------------------------------------------------------------------------------------------------------------------- */

static const struct { const char *name; tt_isa least, most; } figures[] = {
	[TT_PEAK_F32_REF] = { "f32_ref", TT_ISA_REF, TT_ISA_REF },
	[TT_PEAK_F32_AVX2] = { "f32_avx2", TT_ISA_AVX2, TT_ISA_AVX512_BF16 },
	[TT_PEAK_F32_AVX512] = { "f32_avx512", TT_ISA_AVX512, TT_ISA_AVX512_BF16 },
	[TT_PEAK_BF16] = { "bf16_avx512", TT_ISA_AVX512_BF16, TT_ISA_AVX512_BF16 },
	[TT_PEAK_READ] = { "read", TT_ISA_REF, TT_ISA_AVX512_BF16 },
	[TT_PEAK_TRIAD] = { "triad", TT_ISA_REF, TT_ISA_AVX512_BF16 },
};

const char *tt_figure_name(tt_figure f) { return figures[f].name; }

bool tt_figure_runs(tt_figure f, tt_isa isa) { return isa >= figures[f].least && isa <= figures[f].most && figures[f].least <= tt_isa_detect(); }

tt_figure tt_figure_of(tt_isa isa, tt_dtype compute)
{
	switch (isa) {
	case TT_ISA_REF: return TT_PEAK_F32_REF;
	case TT_ISA_AVX2: return TT_PEAK_F32_AVX2;
	case TT_ISA_AVX512: return TT_PEAK_F32_AVX512;
	case TT_ISA_AVX512_BF16: return compute == TT_BF16 ? TT_PEAK_BF16 : TT_PEAK_F32_AVX512;
	}
	return TT_PEAK_F32_REF;
}

/* ---- the cache --------------------------------------------------------------------------------------------------------------------------------
 * A text file:
 *     titan peaks 1
 *     AuthenticAMD 25/17/1 0xa101148 AMD EPYC, share 2      the key
 *     threads 2
 *     f32_avx512 211200000000 421900000000 1764500000       one thread, all, when
 *     ...
 *     sum 1f0c...                                           XXH3 of all before
 * Its name is a hash of the key and the threads; the key within is what decides. */

static int64_t wall(void *ctx)
{
	(void)ctx;
	return (int64_t)time(NULL);
}

void tt_peak_source_init(tt_peak_source *s)
{
	*s = (tt_peak_source){ .measure = measure, .clock = wall, .seconds = 0.25 };
	/* As the XDG rules say, a path that is not absolute is ignored. */
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int n = 0;
	if (cache && *cache == '/')
		n = snprintf(s->folder, sizeof s->folder, "%s/titan", cache);
	else if (home && *home == '/')
		n = snprintf(s->folder, sizeof s->folder, "%s/.cache/titan", home);
	if (n >= (int)sizeof s->folder)
		s->folder[0] = 0;
	tt_machine m;
	char cpu[256];
	tt_machine_read("", &m);
	tt_machine_signature(&m, cpu, sizeof cpu);
	snprintf(s->key, sizeof s->key, "%s, share %d", cpu, m.threads);
}

static bool path_of(const tt_peak_source *s, int threads, char *out, size_t n)
{
	if (!s->folder[0])
		return false;
	uint64_t h = tt_hash64(s->key, strlen(s->key), (uint64_t)threads);
	return snprintf(out, n, "%s/peaks-%016llx.txt", s->folder, (unsigned long long)h) < (int)n;
}

/* The next line of *at, which ends with a newline, without it; NULL at the end. */
static char *next_line(char **at)
{
	char *s = *at, *end = strchr(s, '\n');
	if (!end)
		return NULL;
	*end = 0;
	*at = end + 1;
	return s;
}

static bool parse(char *text, const char *key, int threads, tt_peaks *out)
{
	static const char head[] = "titan peaks 1";
	char *sum = NULL;
	for (char *s = text; (s = strstr(s, "\nsum ")); s++)
		sum = s + 1;
	if (!sum || strtoull(sum + 4, NULL, 16) != tt_hash64(text, (size_t)(sum - text), 0))
		return false;
	*sum = 0;
	char *line = next_line(&text);
	if (!line || strcmp(line, head))
		return false;
	line = next_line(&text);
	if (!line || strcmp(line, key))
		return false;
	line = next_line(&text);
	if (!line || strncmp(line, "threads ", 8) || strtol(line + 8, NULL, 10) != threads)
		return false;
	tt_peaks p = { .threads = threads };
	while ((line = next_line(&text))) {
		char *name = line, *at = strchr(line, ' ');
		if (!at)
			return false;
		*at++ = 0;
		/* A figure that this version does not know is another version's. */
		for (int f = 0; f < TT_PEAK_NFIGURES; f++)
			if (!strcmp(name, figures[f].name)) {
				double one = strtod(at, &at), all = strtod(at, &at);
				long long when = strtoll(at, &at, 10);
				if (*at || !(one >= 0 && one < 1e18 && all >= 0 && all < 1e18))
					return false;
				p.of[f].one = one;
				p.of[f].all = all;
				p.of[f].at = when;
			}
	}
	*out = p;
	return true;
}

bool tt_peak_load(const tt_peak_source *s, int threads, tt_peaks *out)
{
	char path[1024], text[4096];
	*out = (tt_peaks){ .threads = threads };
	if (!path_of(s, threads, path, sizeof path))
		return false;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	size_t n = 0;
	for (ssize_t r; n < sizeof text - 1; n += (size_t)r) {
		r = read(fd, text + n, sizeof text - 1 - n);
		if (r < 0 && errno == EINTR) {
			r = 0;
			continue;
		}
		if (r <= 0)
			break;
	}
	close(fd);
	text[n] = 0;
	return parse(text, s->key, threads, out);
}

bool tt_peak_store(const tt_peak_source *s, const tt_peaks *p)
{
	char path[1024], temp[1100];
	if (!path_of(s, p->threads, path, sizeof path) || tt_fs_mkdirs(&tt_fs_posix, s->folder) != TT_OK)
		return false;
	tt_buf b = { 0 };
	tt_buf_printf(&b, "titan peaks 1\n%s\nthreads %d\n", s->key, p->threads);
	for (int f = 0; f < TT_PEAK_NFIGURES; f++)
		if (p->of[f].one > 0 || p->of[f].all > 0)
			tt_buf_printf(&b, "%s %.0f %.0f %lld\n", figures[f].name, p->of[f].one, p->of[f].all, (long long)p->of[f].at);
	tt_buf_printf(&b, "sum %016llx\n", (unsigned long long)tt_hash64(b.s, b.n, 0));
	/* Ranks are threads: a thread's own name, so that two that store at the same time do not meet. */
	snprintf(temp, sizeof temp, "%s.%ld-%ld", path, (long)getpid(), (long)syscall(SYS_gettid));
	(void)unlink(temp);
	bool done = tt_fs_write_file(&tt_fs_posix, temp, b.s, b.n) == TT_OK && tt_fs_rename(&tt_fs_posix, temp, path) == TT_OK;
	if (!done)
		(void)unlink(temp);
	tt_buf_fini(&b);
	return done;
}

/* ---- together ------------------------------------------------------------------------------------------------------------------------------------ */

void tt_peak_measure(const tt_peak_source *s, tt_pool *pool, tt_isa isa, bool missing_only, tt_peaks *io)
{
	int threads = tt_pool_threads(pool);
	if (io->threads != threads)
		*io = (tt_peaks){ .threads = threads };
	for (int f = 0; f < TT_PEAK_NFIGURES; f++) {
		if (!tt_figure_runs((tt_figure)f, isa))
			continue;
		bool one = !missing_only || io->of[f].one <= 0, all = !missing_only || io->of[f].all <= 0;
		if (!one && !all)
			continue;
		if (one)
			io->of[f].one = s->measure(s->ctx, pool, (tt_figure)f, 1, s->seconds);
		if (all)
			io->of[f].all = threads > 1 ? s->measure(s->ctx, pool, (tt_figure)f, threads, s->seconds) : io->of[f].one;
		io->of[f].at = s->clock(s->ctx);
	}
}

bool tt_peak_get(const tt_peak_source *s, tt_pool *pool, tt_isa isa, tt_dtype compute, bool may_measure, tt_peak *out)
{
	tt_peak_source own;
	if (!s) {
		tt_peak_source_init(&own);
		s = &own;
	}
	tt_peaks p;
	tt_figure f = tt_figure_of(isa, compute);
	(void)tt_peak_load(s, tt_pool_threads(pool), &p);
	bool cached = p.of[f].all > 0;
	if (!cached) {
		if (!may_measure || !tt_figure_runs(f, isa))
			return false;
		p.of[f].all = s->measure(s->ctx, pool, f, p.threads, s->seconds);
		p.of[f].at = s->clock(s->ctx);
		if (p.of[f].all <= 0)
			return false;
		(void)tt_peak_store(s, &p);
	}
	*out = (tt_peak){ .figure = f, .flops = p.of[f].all, .cached = cached, .age = TT_MAX(0, s->clock(s->ctx) - p.of[f].at) };
	return true;
}
