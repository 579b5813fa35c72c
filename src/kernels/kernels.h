/* kernels: the code that touches tensor bytes.
 *
 * Two kinds of file:
 *   NAME.k.c  the reference kernels of a family, in plain C. Compiled once per kernel set: `ref` (baseline CPU), `avx2`, `avx512`, and
 *             `f64` (TT_REAL_F64: real is double, acc is double; for gradient checks and golden files). All sets compute the same fp32 bits: every
 *             fma is explicit, every sum has a stated order, nothing is contracted or reassociated. All functions are static; the
 *             file exports one table, `const tt_kernel TT_KERNEL_TABLE[]`, ended by a NULL name.
 *   NAME.c    faster kernels of the override table (libxsmm tiles, intrinsics), each equal to its reference bit for bit.
 *
 * A kernel gets a tt_call (ir/ir.h): operands with the extents of this call, the op's attributes, scratch, the environment.
 * It must accept any extent from 0 up, and may split work over env->pool in any way that does not change a bit.
 *
 * What each op computes (in -> out; dtypes: `val` is f32 or bf16 [f64 in the f64 set], `stat` f32 [f64], `acc` see EXACT.md):
 *
 *   embedding     ids i32[T], W val[V,D]                         -> acc[T,D]   line ids[t]-first of W, zeros outside this shard
 *   embedding_dw  ids i32[T], dy val[T,D]                        -> acc[n,D]   sums over tokens in blocks of 128, ascending
 *   round         acc[..]                                        -> val        acc -> fp32 -> dtype, zero is +0
 *   cast          val                                            -> val        round to nearest even
 *   pack          val[o,k] plain                                 -> val[o,k] packed; zero padding inside the format
 *   linear        x val[T,k], w val[o,k], (b val[o])             -> y val|stat|acc[T,o]   chain over k (+ b at the end, then rounded)
 *   linear_dx     dy val[T,o], w val[o,k]                        -> val|acc[T,k]   chain over o
 *   linear_dw     dy val[T,o], x val[T,k]                        -> acc[o,k]   chain over T
 *   sum_tokens    x val[T,n]                                     -> acc[n]     blocks of 128 tokens
 *   total         x stat[T]                                      -> acc[1]     blocks of 128 tokens
 *   broadcast     s stat[1], like [T]                            -> stat[T]
 *   rms_norm      x val[T,D], w val[D]                           -> y val[T,D], rstd stat[T]    y = (x*rstd)*w; rstd = 1/sqrt(mean(x^2)+eps)
 *   rms_norm_dx   dy, x val[T,D], w val[D], rstd stat[T]         -> dx val[T,D]   u = dy*w; c = sum(u*x)*rstd^2/D (lane sum); dx = rstd*(u - x*c)
 *   rms_norm_dw   dy, x val[T,D], rstd stat[T]                   -> acc[D]     sum over tokens of dy*(x*rstd), blocks of 128
 *   rope_table    positions i32[T]                               -> stat[T,K]  cos[K/2] then sin[K/2], each * scale
 *   rope          x val[T,h], table stat[T,K]                    -> val[T,h]   per head, halves a b: (a cos - b sin, b cos + a sin); inverse: sin negated
 *   silu_mul      g, u val[T,f]                                  -> val        g*sigmoid(g)*u, one rounding
 *   silu_mul_bwd  g, u, dy val[T,f]                              -> dg, du val
 *   add           a, b                                           -> same dtype (val: fp32 sum rounded; acc: acc)
 *   attention     q val[T,h], k val[S,g], v val[S,g'], positions i32[T], seq_ids i32[T], seq_table i32[N+1], lines i32[S]
 *                                                                -> o val[T,h'], lse stat[T,H]
 *                 query t attends sequence seq_ids[t]: its position p is K/V line lines[seq_table[s]+p], p <= positions[t], and with a
 *                 window w only p > positions[t]-w. Blocks of 64 positions from the sequence's start (EXACT.md).
 *   attention_bwd q, k, v, o, lse, do, (the four tables)         -> dq acc[T,h], dk acc[S,g], dv acc[S,g']
 *   split_tokens, concat_tokens                                  views: no kernel where the planner could place them; else copies
 *   row_max       x stat[T,V]                                    -> stat[T]
 *   sum_exp       x stat[T,V], m stat[T]                         -> acc[T]     blocks of 256 counted from each of 8 segment starts, lane sums, tree
 *   pick          x stat[T,V], labels i32[T]                     -> acc[T]     x[labels[t]-first], 0 if outside the shard or ignored (-100)
 *   lse           m stat[T], s stat[T]                           -> stat[T]    m + log(s)
 *   nll           x stat[T,V], labels i32[T], lse, target stat[T] -> stat[T]   lse - target; 0 where ignored
 *   nll_dx        x stat[T,V], labels, lse stat[T], dy stat[T]   -> val[T,V]   (exp(x-lse) - onehot)*dy; 0 where ignored
 *   accumulate    state acc[..], term acc[..]                    -> acc[..]    attr.first and env.first: term; else state + term
 *   square_sum    g stat[..]                                     -> acc[1]     `fast`: lane sums over blocks of 4096, joined ascending
 *   norm_clip     acc[1] (rounded: stat[1])                      -> norm stat[1], coef stat[1]   coef = min(1, max_norm/(norm+1e-6)); max_norm 0: 1;
 *                                                                   coef = 0 when the norm is not finite (the loop skips or stops)
 *   adamw         p, m, v stat, g stat, coef stat[1], hyper stat[4] = {lr, 1-beta1^t, 1-beta2^t, update?0:1 skip} -> p, m, v (in place)
 *   sgd           p, mom stat, g stat, coef, hyper               -> p, mom (in place)
 *   fused         what their parts compute in turn, every round of them in registers (ops/fused.c names the parts):
 *   linear_dw_acc     state acc[o,k], dy, x                      -> acc[o,k]
 *   embedding_dw_acc  state acc[n,D], ids, dy, w               -> acc[n,D]
 *   linear_dx_add     dy, w, sum acc[T,k]                        -> val|acc[T,k]   sum + dy w
 *   linear_silu_mul   x, wg, wu                                  -> gate, up, act val[T,o]
 *   linear_rope       x, w, table                                -> val[T,h]
 *   add_rms_norm      a, b val[T,D], w                           -> a + b, y val[T,D], rstd
 *   rms_norm_rope     x val[T,h], w, table                       -> val[T,h], rstd
 *   rms_norm_bwd      dy, x, w, rstd, res val[T,D]               -> dx + res val[T,D], dw acc[D]
 *   cross_entropy     x stat[T,V], labels                        -> nll stat[T];  cross_entropy_bwd with dy stat[1]: dx val[T,V], nll
 *   pack_pair         val[o,k]                                   -> both packed formats
 *   round_square_sum, round_adamw, round_sgd                     the gradient comes as acc
 *   fill_normal   -                                              -> stat[..]   Philox: key seed, counter (index, 0, hash32(name "init"))
 *   fill_const    -                                              -> stat[..]   attr.mean
 *
 * Lane sums: element i goes to lane i mod 16, ascending, one chain per lane, absent elements are +0; lanes join 8, 4, 2, 1.
 */
#ifndef TT_KERNELS_H
#define TT_KERNELS_H

#include "kernels/attrs.h"

typedef struct tt_kernel {
	const char *op;
	tt_kernel_fn *run;   /* `fast`, and `exact` where `exact` is NULL */
	tt_kernel_fn *exact;
} tt_kernel;

typedef enum tt_isa { TT_ISA_REF, TT_ISA_AVX2, TT_ISA_AVX512, TT_ISA_AVX512_BF16 } tt_isa;
const char *tt_isa_name(tt_isa i);
tt_isa tt_isa_detect(void);
/* "auto", "ref", "avx2", "avx512"; asking for more than the CPU has is an error that says so. */
tt_status tt_isa_parse(const char *s, tt_isa *out) TT_CHECKED;

/* What reference kernels were compiled for: "ref, f64, avx2, avx512". */
const char *tt_kernel_sets(void);
/* The reference kernel of `op` compiled for `isa` (or for double); NULL if the families have none. */
const tt_kernel *tt_kernel_ref(const char *op, tt_isa isa, bool f64);

/* What a faster kernel is asked to do, at compile time: static facts of one node. Arrays as in the node. */
typedef struct tt_kernel_case {
	const char *op;
	const void *attr;
	int nin, nout;
	const tt_value *const *in; /* in[i] NULL: optional input absent */
	const tt_value *const *out;
	int threads;
} tt_kernel_case;

/* A row of the override table: faster than the reference, same bits, `fast` numerics only. First row that accepts wins. */
typedef struct tt_override {
	const char *op;
	const char *name; /* shown by --dump=program */
	tt_isa isa;       /* the least that it needs */
	bool (*accepts)(const tt_kernel_case *c);
	/* The format it wants input `i` in (TT_PLAIN if it takes it as it is). NULL: all plain. */
	tt_format (*format)(const tt_kernel_case *c, int i);
	size_t (*scratch)(const tt_kernel_case *c);
	tt_status (*plan)(const tt_kernel_case *c, tt_arena *a, const void **out); /* JIT, blocking; NULL: none */
	tt_kernel_fn *run;
} tt_override;
const tt_override *tt_override_find(const tt_kernel_case *c, tt_isa isa);
const tt_override *tt_override_at(int i); /* row i in the order of search; NULL: there are no more */
/* The first row that accepts and finds every input lying as it wants it: a pass packs for an override, but nobody has to. */
const tt_override *tt_override_lying(const tt_kernel_case *c, tt_isa isa);

/* Elements of a packed matrix [o,k], padding included. */
int64_t tt_format_count(tt_format f, tt_dtype dt, int64_t o, int64_t k);

#endif
