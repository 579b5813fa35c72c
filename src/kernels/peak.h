/* peak: what this machine can do at best, measured: floating point from registers alone, memory beyond the caches. The 100% that
 * a run's model FLOP/s are compared with.
 *
 * A figure is the best of many short rounds: noise only ever lowers it. All values are FLOP/s or bytes/s, 0: not known.
 * Results are kept in a file per processor and thread count (`tt_peak_source.folder`), so that a machine is measured once. A cache that
 * cannot be read, is damaged, or belongs to another machine is as good as none; one that cannot be written is no error.
 */
#ifndef TT_KERNELS_PEAK_H
#define TT_KERNELS_PEAK_H

#include "kernels/kernels.h"

typedef enum tt_figure {
	TT_PEAK_F32_REF,    /* baseline instructions: on x86 mulps and addps side by side, there being no fma */
	TT_PEAK_F32_AVX2,   /* vfmadd231ps ymm, 12 accumulators: 16 registers hold no more that matter */
	TT_PEAK_F32_AVX512, /* vfmadd231ps zmm, 24 accumulators */
	TT_PEAK_BF16,       /* vdpbf16ps zmm, 24 accumulators; 12 do not cover its latency. A product and its addition are 2 FLOP */
	TT_PEAK_READ,       /* bytes/s read */
	TT_PEAK_TRIAD,      /* a = b + s c: 3 arrays; as STREAM counts, without what a store reads first */
	TT_PEAK_NFIGURES,
} tt_figure;
const char *tt_figure_name(tt_figure f);       /* "f32_avx512" */
bool tt_figure_runs(tt_figure f, tt_isa isa);  /* is it of use for, and can it run on, this instruction set? */
/* The figure that bounds matrix products of a dtype, f32 or bf16. Without bf16 instructions products are computed in f32. */
tt_figure tt_figure_of(tt_isa isa, tt_dtype compute);

typedef struct tt_peaks {
	int threads;
	struct {
		double one, all; /* one thread; all `threads` */
		int64_t at;      /* when, seconds since 1970 */
	} of[TT_PEAK_NFIGURES];
} tt_peaks;

/* Where figures come from; a test may put its own in. */
typedef struct tt_peak_source {
	char folder[512]; /* of the cache; empty: none */
	char key[320];    /* the processor, and the share of it that this process has */
	void *ctx;
	/* Lanes 0..threads-1 of the pool; seconds to spend. */
	double (*measure)(void *ctx, tt_pool *pool, tt_figure f, int threads, double seconds);
	int64_t (*clock)(void *ctx);
	double seconds;   /* spent on each figure, one and all threads each */
} tt_peak_source;
/* This machine, $XDG_CACHE_HOME/titan or ~/.cache/titan, 0.25 s a figure and count of threads. */
void tt_peak_source_init(tt_peak_source *s);

/* False, with nothing known, if the cache has no file for this machine and `threads`, or a damaged one. */
bool tt_peak_load(const tt_peak_source *s, int threads, tt_peaks *out);
/* False if it could not be written. Replaces the file at once: a reader sees the old or the new one. */
bool tt_peak_store(const tt_peak_source *s, const tt_peaks *p);
/* Measures every figure that runs on `isa`, or of those only what `io` does not know. Less than 4 s for all. */
void tt_peak_measure(const tt_peak_source *s, tt_pool *pool, tt_isa isa, bool missing_only, tt_peaks *io);

typedef struct tt_peak {
	tt_figure figure;
	double flops;    /* FLOP/s of all threads of the pool */
	bool cached;     /* else measured now */
	int64_t age;     /* seconds since it was measured */
} tt_peak;
/* The peak to compare a run with: from the cache, or, if it may, measured now (`s->seconds`) and put into the cache. False if it is not
 * known. Runs the pool: not while a step runs. `s` NULL: tt_peak_source_init's. */
bool tt_peak_get(const tt_peak_source *s, tt_pool *pool, tt_isa isa, tt_dtype compute, bool may_measure, tt_peak *out);

#endif
