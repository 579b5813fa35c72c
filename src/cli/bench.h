/* bench: what `titan bench` measures with, apart from the printing of it. bench/ at the root uses it too, to race peers in one process.
 *
 * Times are best of rounds in which all contestants of a race run in turn, so that a slow minute of the machine hits all of them. A round
 * counts only if other processes left the processors alone.
 */
#ifndef TT_CLI_BENCH_H
#define TT_CLI_BENCH_H

#include <jansson.h>

#include "exec/exec.h"
#include "kernels/peak.h"

/* ---- the machine's load (bench_race.c) ------------------------------------------------------------------------------------------------ */

/* CPU seconds that the allowed processors have spent, all processes, and those of this process and its ended children. */
typedef struct tt_bench_load { double wall, busy, own; } tt_bench_load;
tt_bench_load tt_bench_load_now(void);
/* Processors kept busy by others between the two, at least 0; 0 where the system does not say. Good to a clock tick: 0.01 s. */
double tt_bench_load_others(const tt_bench_load *from, const tt_bench_load *to);

/* ---- races (bench_race.c) --------------------------------------------------------------------------------------------------------------- */

typedef struct tt_runner {
	const char *name;
	void (*run)(void *ctx); /* once */
	void *ctx;
	double seconds; /* result: of one run, best of the rounds */
	int64_t runs;   /* in one turn; set by the first turn */
} tt_runner;

typedef struct tt_race {
	int rounds;     /* that must count, at least 1 */
	int retries;    /* rounds that may be thrown away because of others; after that all count, and the race is noisy */
	double slice;   /* seconds of a turn: a runner is repeated within it, at least once */
	double pause;   /* seconds of sleep before a turn, so that idle threads of the one before have gone to sleep */
	double quiet;   /* processors that others may use in a round */
	tt_bench_load (*load)(void); /* NULL: tt_bench_load_now */
	double (*clock)(void); /* NULL: tt_now */
	/* results */
	double others;  /* most of the rounds that counted */
	bool noisy;
} tt_race;
tt_race tt_race_of(int rounds); /* the usual: 80 ms turns, 0.15 processors */
void tt_race_run(tt_race *r, tt_runner *runners, int n);
/* Once more: the better times stay; load and noise are the second run's. */
void tt_race_again(tt_race *r, tt_runner *runners, int n);
double tt_bench_median(double *v, int64_t n); /* sorts v, n >= 1; of an even number the mean of the middle two */

/* ---- peaks (bench_race.c) --------------------------------------------------------------------------------------------------------------- */

/* Best register-only rates seen, by f32 and bf16, by one thread and all: what shares are taken of. Noise only lowers a rate. */
typedef struct tt_bench_peaks {
	tt_pool *pool;
	tt_isa isa;
	tt_peak_source source;
	double of[2][2]; /* FLOP/s; [bf16][all threads] */
} tt_bench_peaks;
tt_status tt_bench_peaks_init(int threads, tt_isa isa, tt_bench_peaks *out) TT_CHECKED;
void tt_bench_peaks_look(tt_bench_peaks *p, tt_dtype dt, bool all, double seconds);
double tt_bench_peaks_get(const tt_bench_peaks *p, tt_dtype dt, bool all);
json_t *tt_bench_peaks_json(const tt_bench_peaks *p);
void tt_bench_peaks_fini(tt_bench_peaks *p);

/* ---- programs (bench_product.c) ---------------------------------------------------------------------------------------------------------- */

typedef struct tt_bench_env { tt_isa isa; int threads; } tt_bench_env;

/* A program of one segment, run again and again as the program of a step is: after the passes, in the planner's memory, weights packed by
 * PREP before the timing. */
typedef struct tt_bench_program {
	tt_exec *exec;
	tt_segment seg;
	tt_cell cell;
} tt_bench_program;
/* Every input but the i32 ones and every weight is filled with numbers in (-1, 1); PREP is run. `g` must be verified and outlive `out`. */
tt_status tt_bench_compile(tt_arena *a, const tt_graph *g, const tt_bench_env *env, int64_t T, int64_t nseqs, tt_exec **out) TT_CHECKED;
void tt_bench_program_run(void *ctx); /* a tt_runner's; ctx: tt_bench_program */

typedef enum tt_product { TT_PRODUCT_FORWARD, TT_PRODUCT_SEGMENTS, TT_PRODUCT_DX, TT_PRODUCT_DW, TT_NPRODUCTS } tt_product;
const char *tt_product_name(tt_product p); /* "forward" one chain, "segments" forward in 8 joined K segments, "dx", "dw" */
/* Y [M,N] = X [M,K] W[N,K]^T and its gradients. dt in and out, dW in f32. */
typedef struct tt_product_shape { int64_t m, n, k; bool quick; } tt_product_shape;
extern const tt_product_shape tt_product_shapes[]; /* ended by m = 0; `quick`: those of --quick */
/* A weight's gradient over a handful of tokens is no product that anybody runs. */
bool tt_product_runs(tt_product p, const tt_product_shape *s);
tt_status tt_bench_product(tt_arena *a, tt_product p, const tt_product_shape *s, tt_dtype dt, const tt_bench_env *env,
			   tt_bench_program *out) TT_CHECKED;

/* Heads side by side, `tokens` of a row. */
typedef struct tt_attention_shape { int64_t tokens, head_dim, heads, kv_heads; bool quick; } tt_attention_shape;

/* ---- the benches: results as JSON, which the caller releases ------------------------------------------------------------------------------ */

enum { TT_BENCH_RUNS = 64 }; /* processes of `startup` at most */

typedef struct tt_bench_options {
	int threads;    /* 0: as many as the machine lets run at once */
	tt_isa isa;
	bool quick;
	int rounds;     /* 0: 3 */
	double slice;   /* 0: the usual */
	const tt_product_shape *shapes; /* of gemm; NULL: tt_product_shapes */
	const tt_attention_shape *attention; /* NULL: all */
	/* train, passes */
	const char *preset;
	tt_dtype dtype;
	int64_t steps;
	int nflags;     /* config flags above the preset's: train: all together; passes: each is compared with the preset */
	const char *const *flags;
	int runs;       /* startup: processes per preset; 0: 10 */
	int ranks;      /* comm, overlap: threads; 0: 2, or (comm) as many as a launcher started */
	const char *mesh; /* overlap: "FSDP", as its rows are called; NULL: all */
	int64_t delay_us; /* overlap; 0: as computation has room for */
} tt_bench_options;

typedef struct tt_bench_preset {
	const char *name;
	int64_t dim, layers, heads, kv_heads, ffn, vocab, context, rows; /* rows of context tokens a step */
} tt_bench_preset;
extern const tt_bench_preset tt_bench_presets[]; /* ended by a NULL name */
tt_status tt_bench_preset_find(const char *name, const tt_bench_preset **out) TT_CHECKED;
/* The flags of `titan train` that make the preset: synthetic rows, no files but in job.dump_folder. */
void tt_bench_preset_flags(tt_arena *a, const tt_bench_preset *p, tt_dtype dt, int64_t steps, int threads, const char ***flags, int *n);

/* A bench of kernels: races that add rows, with the peaks that were seen beside them (bench_race.c). */
tt_status tt_bench_rows(const char *bench, tt_status (*races)(const tt_bench_options *, tt_bench_peaks *, json_t *rows), const tt_bench_options *o,
			json_t **out) TT_CHECKED;

tt_status tt_bench_train(tt_arena *a, const tt_bench_options *o, json_t **out) TT_CHECKED;
tt_status tt_bench_passes(tt_arena *a, const tt_bench_options *o, json_t **out) TT_CHECKED;
tt_status tt_bench_gemm(tt_arena *a, const tt_bench_options *o, json_t **out) TT_CHECKED;
tt_status tt_bench_attention(tt_arena *a, const tt_bench_options *o, json_t **out) TT_CHECKED;
tt_status tt_bench_startup(tt_arena *a, const tt_bench_options *o, json_t **out) TT_CHECKED;
tt_status tt_bench_comm(tt_arena *a, const tt_bench_options *o, json_t **out) TT_CHECKED; /* *out NULL on the ranks above 0 */

/* `flags` may hold a config's path: it stands for the preset. */
tt_status tt_bench_overlap(tt_arena *a, const tt_bench_options *o, json_t **out) TT_CHECKED;

/* ---- the report (bench_report.c, bench_svg.c) ---------------------------------------------------------------------------------------------- */

/* Results of one bench as Markdown. `j` is what the functions above make, or for train a list of it with the peers' between. Fields that
 * are missing show as nothing. */
void tt_bench_md_train(const json_t *j, tt_buf *b);
void tt_bench_md_passes(const json_t *j, tt_buf *b);
void tt_bench_md_gemm(const json_t *j, tt_buf *b);
void tt_bench_md_onednn(const json_t *j, tt_buf *b);
void tt_bench_md_attention(const json_t *j, tt_buf *b);
void tt_bench_md_startup(const json_t *j, tt_buf *b);
void tt_bench_md_comm(const json_t *j, tt_buf *b);
void tt_bench_md_overlap(const json_t *j, tt_buf *b);
/* Bars of the same: tokens per second beside the peers', shares of the peak. */
void tt_bench_svg(const json_t *all, tt_buf *b);
/* Joins DIR/train.jsonl and DIR/{passes,gemm,onednn,attention,startup}.json, as many as there are, into DIR/bench.{json,md,svg}. */
tt_status tt_bench_report(tt_arena *a, const char *folder) TT_CHECKED;

#endif
