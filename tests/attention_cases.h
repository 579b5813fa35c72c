/* What the suites of attention share: problems, running the kernels on them, comparing results. */
#ifndef TT_TESTS_ATTENTION_CASES_H
#define TT_TESTS_ATTENTION_CASES_H

#include "test.h"

#include "kernels/attention.h"
#include "kernels/math.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_SEQS = 8 };

/* ---- problems ---------------------------------------------------------------------------------------------------- */

typedef struct spec {
	const char *name;
	int64_t G, group, K, V, window;
	int nseq;
	int64_t len[MAX_SEQS];  /* positions of each sequence */
	int64_t from[MAX_SEQS]; /* the first that has a query */
	bool shuffled;          /* queries in any order */
	bool dropped;           /* about a third of the queries left out */
	bool permuted;          /* K/V lines in any order, some belonging to no sequence */
} spec;

static const spec specs[] = {
	{"one", 1, 1, 8, 8, 0, 1, {5}, {0}, 0, 0, 0},
	{"gqa", 2, 3, 8, 8, 0, 1, {70}, {0}, 0, 0, 0},
	{"mqa_many_heads", 1, 6, 4, 4, 0, 1, {33}, {0}, 0, 0, 1},
	{"odd_dims", 2, 2, 6, 5, 0, 1, {131}, {0}, 0, 0, 1},
	{"one_wide", 1, 1, 1, 17, 0, 2, {3, 66}, {0, 0}, 0, 0, 1},
	{"v_wider", 1, 2, 4, 24, 0, 2, {65, 64}, {0, 0}, 0, 0, 1},
	{"v_narrower", 2, 1, 40, 8, 0, 2, {65, 1}, {0, 0}, 0, 0, 0},
	{"packed", 2, 2, 8, 8, 0, 5, {63, 1, 64, 65, 17}, {0}, 0, 0, 1},
	{"window_1", 1, 1, 8, 8, 1, 1, {130}, {0}, 0, 0, 0},
	{"window_5", 1, 2, 8, 8, 5, 2, {200, 3}, {0}, 0, 0, 1},
	{"window_64", 1, 2, 8, 8, 64, 2, {200, 100}, {0}, 0, 0, 1},
	{"window_100", 1, 2, 6, 8, 100, 1, {300}, {0}, 0, 0, 1},
	{"decode", 2, 2, 8, 8, 0, 4, {100, 65, 64, 1}, {99, 64, 63, 0}, 0, 0, 1},
	{"context", 2, 2, 8, 8, 0, 2, {150, 90}, {70, 33}, 0, 0, 1},
	{"shuffled", 1, 2, 8, 8, 33, 3, {150, 90, 10}, {0}, 1, 1, 1},
	{"no_queries", 1, 2, 8, 8, 0, 1, {20}, {20}, 0, 0, 1},
	{"no_sequences", 1, 2, 8, 8, 0, 0, {0}, {0}, 0, 0, 0},
};

typedef struct problem {
	tt_arena *a;
	spec s;
	double scale;
	bool guarded; /* operands and scratch end where no memory is */
	double lse;   /* what the backward of a part is given */
	int parts, part; /* K and V are the part-th of `parts` shares of the lines: attention_part; 0: all */
	int64_t T, S, H, lines_n;
	int32_t *positions, *seq_ids, *table, *lines;
	double *q, *k, *v, *dout; /* [T,H*K] [S,G*K] [S,G*V] [T,H*V]; lines of k and v without a position are NaN */
} problem;

static inline uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static inline double in_bf16(double x) { return (double)tt_bf16_to_f32(tt_f32_to_bf16((float)x)); }

/* About normal, and exact in bf16, so that all dtypes compute on the same numbers. */
static inline double draw_value(uint64_t *state)
{
	double x = 0;
	for (int i = 0; i < 4; i++)
		x += (double)(draw(state) >> 11) * 0x1p-53 - 0.5;
	return in_bf16(x * 1.7);
}

static inline double *draw_values(tt_arena *a, int64_t n, uint64_t *state)
{
	double *x = TT_NEWN(a, double, n + 1);
	for (int64_t i = 0; i < n; i++)
		x[i] = draw_value(state);
	return x;
}

static inline void shuffle(int32_t *x, int64_t n, uint64_t *state)
{
	for (int64_t i = n - 1; i > 0; i--) {
		int64_t j = (int64_t)(draw(state) % (uint64_t)(i + 1));
		int32_t swap = x[i];
		x[i] = x[j];
		x[j] = swap;
	}
}

static inline problem problem_of(tt_test *t, const spec *s)
{
	uint64_t state = t->seed + 77;
	problem p = {.a = t->arena, .s = *s, .H = s->G * s->group, .scale = 1 / sqrt((double)s->K) * 1.1};
	p.table = TT_NEWN(p.a, int32_t, s->nseq + 1);
	for (int i = 0; i < s->nseq; i++)
		p.table[i + 1] = p.table[i] + (int32_t)s->len[i];
	p.lines_n = p.table[s->nseq];
	p.S = p.lines_n + (s->permuted ? 7 : 0);
	int32_t *all = TT_NEWN(p.a, int32_t, p.S + 1);
	for (int64_t i = 0; i < p.S; i++)
		all[i] = (int32_t)i;
	if (s->permuted)
		shuffle(all, p.S, &state);
	p.lines = all; /* those beyond lines_n belong to no position */
	int32_t *tokens = TT_NEWN(p.a, int32_t, p.lines_n + 1);
	for (int i = 0; i < s->nseq; i++)
		for (int64_t x = s->from[i]; x < s->len[i]; x++)
			if (!s->dropped || draw(&state) % 3)
				tokens[p.T++] = p.table[i] + (int32_t)x;
	if (s->shuffled)
		shuffle(tokens, p.T, &state);
	p.positions = TT_NEWN(p.a, int32_t, p.T + 1);
	p.seq_ids = TT_NEWN(p.a, int32_t, p.T + 1);
	for (int64_t i = 0; i < p.T; i++) {
		int seq = 0;
		while (tokens[i] >= p.table[seq + 1])
			seq++;
		p.seq_ids[i] = seq;
		p.positions[i] = tokens[i] - p.table[seq];
	}
	p.q = draw_values(p.a, p.T * p.H * s->K, &state);
	p.k = draw_values(p.a, p.S * s->G * s->K, &state);
	p.v = draw_values(p.a, p.S * s->G * s->V, &state);
	p.dout = draw_values(p.a, p.T * p.H * s->V, &state);
	for (int64_t i = p.lines_n; i < p.S; i++) {
		for (int64_t x = 0; x < s->G * s->K; x++)
			p.k[p.lines[i] * s->G * s->K + x] = NAN;
		for (int64_t x = 0; x < s->G * s->V; x++)
			p.v[p.lines[i] * s->G * s->V + x] = NAN;
	}
	return p;
}

/* ---- running the kernels ------------------------------------------------------------------------------------------- */

typedef struct how {
	tt_dtype dtype;
	tt_isa isa;
	bool exact;
	int threads;
} how;

typedef struct kernels {
	tt_kernel_fn *fwd, *bwd;
	size_t scratch;
} kernels;

enum { O, LSE, DQ, DK, DV, NRESULTS, SUM = NRESULTS, SLOTS }; /* of attention_part, LSE is the maximum and SUM the sum */
static const char *const result_names[SLOTS] = {"o", "lse", "dq", "dk", "dv", "l"};

/* Contiguous; `raw` holds each element's bytes as stored: limbs for acc in `exact`. */
typedef struct tensor {
	int64_t lines, width;
	double *x;
	uint64_t (*raw)[3];
} tensor;
typedef struct results {
	tensor r[SLOTS];
	int flag;
} results;

/* n bytes that end at a page that cannot be reached; kept until the case ends. */
static inline void *guarded_alloc(int64_t n)
{
	const int64_t page = sysconf(_SC_PAGESIZE), all = tt_round_up(n, page) + page;
	uint8_t *p = mmap(NULL, (size_t)all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	TT_ASSERT(p != MAP_FAILED && mprotect(p + all - page, (size_t)page, PROT_NONE) == 0);
	return p + all - page - n;
}

/* Lines lie 3 elements further apart than they are wide, and memory between them is NaN. */
static inline tt_arg arg_new(const problem *p, tt_dtype stored, const how *h, int64_t lines, int64_t width)
{
	const bool f64 = h->dtype == TT_F64;
	tt_arg g = {.dtype = stored, .ndim = 2, .n = {lines, width}, .ld = width + 3};
	int64_t bytes = stored == TT_BF16 ? 2 : f64 || (stored == TT_ACC && h->exact) ? 8 : 4;
	g.plane = (lines * g.ld * bytes + 64) / 64 * 64;
	size_t n = (size_t)g.plane * (stored == TT_ACC && h->exact ? 3 : 1);
	if (p->guarded)
		n = lines ? (size_t)((lines - 1) * g.ld + width) * (size_t)bytes : 0;
	g.p = p->guarded ? guarded_alloc((int64_t)n) : tt_arena_alloc(p->a, n);
	memset(g.p, 0xff, n);
	return g;
}

static inline void arg_put(tt_arg *g, const double *x)
{
	for (int64_t i = 0; i < g->n[0]; i++)
		for (int64_t j = 0; j < g->n[1]; j++) {
			double v = x[i * g->n[1] + j];
			int64_t at = i * g->ld + j;
			if (g->dtype == TT_BF16)
				((tt_bf16 *)g->p)[at] = tt_f32_to_bf16((float)v);
			else if (g->dtype == TT_F64)
				((double *)g->p)[at] = v;
			else
				((float *)g->p)[at] = (float)v;
		}
}

static inline double limbs_value(const uint64_t k[3])
{
	return (double)(int64_t)k[0] * 0x1p-26 + (double)(int64_t)k[1] * 0x1p-66 + (double)(int64_t)k[2] * 0x1p-106;
}

static inline tensor arg_get(tt_arena *a, const tt_arg *g, const how *h)
{
	tensor t = {g->n[0], g->n[1], TT_NEWN(a, double, g->n[0] * g->n[1] + 1), tt_arena_alloc(a, (size_t)(g->n[0] * g->n[1] + 1) * 24)};
	for (int64_t i = 0; i < t.lines; i++)
		for (int64_t j = 0; j < t.width; j++) {
			int64_t at = i * g->ld + j, to = i * t.width + j;
			if (g->dtype == TT_ACC && h->exact) {
				for (int l = 0; l < 3; l++)
					t.raw[to][l] = ((uint64_t *)(void *)((char *)g->p + l * g->plane))[at];
				t.x[to] = limbs_value(t.raw[to]);
			} else if (g->dtype == TT_BF16) {
				t.raw[to][0] = ((tt_bf16 *)g->p)[at];
				t.x[to] = (double)tt_bf16_to_f32(((tt_bf16 *)g->p)[at]);
			} else if (h->dtype == TT_F64) {
				memcpy(&t.raw[to][0], (double *)g->p + at, 8);
				t.x[to] = ((double *)g->p)[at];
			} else {
				memcpy(&t.raw[to][0], (float *)g->p + at, 4);
				t.x[to] = (double)((float *)g->p)[at];
			}
		}
	return t;
}

static inline tt_arg ints_of(int32_t *p, int64_t n) { return (tt_arg){.p = p, .dtype = TT_I32, .ndim = 1, .n = {n}, .ld = 1}; }

static inline tt_attr_attention attr_of(const problem *p)
{
	return (tt_attr_attention){.head_dim = p->s.K, .v_head_dim = p->s.V, .group = p->s.group, .scale = p->scale, .window = p->s.window,
				   .parts = p->parts, .part = p->part};
}

/* Forward, and backward unless `forward_only`. Backward reads o and lse as forward stored them; of a part, which makes none, dO and p->lse. */
static inline results run_kernels(tt_test *t, const problem *p, how h, kernels k, bool forward_only)
{
	const spec *s = &p->s;
	const bool f64 = h.dtype == TT_F64;
	tt_attr_attention at = attr_of(p);
	const int64_t first = p->parts ? tt_deal(p->S, p->part, p->parts) : 0, S = p->parts ? tt_deal(p->S, p->part + 1, p->parts) - first : p->S;
	tt_pool *pool = NULL;
	if (h.threads > 1)
		TT_ASSERT(tt_pool_create(h.threads, 0, &pool) == TT_OK);
	_Atomic int flag = 0;
	tt_env env = {.pool = pool, .threads = h.threads, .numerics = h.exact ? TT_EXACT : TT_FAST, .f64 = f64};
	const tt_dtype stat = f64 ? TT_F64 : TT_F32;
	const size_t scratch = k.scratch, guard = p->guarded ? 0 : 64;
	uint8_t *mem = p->guarded ? guarded_alloc(tt_round_up((int64_t)scratch, 64)) : tt_arena_alloc(p->a, scratch + 64 + guard);
	mem += -(uintptr_t)mem & 63;
	memset(mem, 0xff, scratch + guard);
	tt_arg in[10] = {arg_new(p, h.dtype, &h, p->T, p->H * s->K), arg_new(p, h.dtype, &h, S, s->G * s->K),
			 arg_new(p, h.dtype, &h, S, s->G * s->V)};
	arg_put(&in[0], p->q);
	arg_put(&in[1], p->k + first * s->G * s->K);
	arg_put(&in[2], p->v + first * s->G * s->V);
	tt_arg tables[4] = {ints_of(p->positions, p->T), ints_of(p->seq_ids, p->T), ints_of(p->table, s->nseq + 1), ints_of(p->lines, p->S)};
	tt_arg o = arg_new(p, p->parts ? stat : h.dtype, &h, p->T, p->H * s->V), lse = arg_new(p, stat, &h, p->T, p->H), sum = arg_new(p, stat, &h, p->T, p->H);
	memcpy(in + 3, tables, sizeof tables);
	tt_arg out[3] = {o, lse, sum};
	tt_call c = {.in = in, .out = out, .nin = 7, .nout = p->parts ? 3 : 2, .attr = &at, .scratch = mem, .env = &env, .flag = &flag};
	k.fwd(&c);
	results r = {0};
	r.r[O] = arg_get(p->a, &o, &h);
	r.r[LSE] = arg_get(p->a, &lse, &h);
	if (p->parts) {
		r.r[SUM] = arg_get(p->a, &sum, &h);
		double *all = TT_NEWN(p->a, double, p->T * p->H + 1);
		for (int64_t i = 0; i < p->T * p->H; i++)
			all[i] = p->lse;
		o = arg_new(p, h.dtype, &h, p->T, p->H * s->V);
		arg_put(&o, p->dout);
		arg_put(&lse, all);
	}
	if (!forward_only) {
		in[3] = o;
		in[4] = lse;
		in[5] = arg_new(p, h.dtype, &h, p->T, p->H * s->V);
		arg_put(&in[5], p->dout);
		memcpy(in + 6, tables, sizeof tables);
		out[0] = arg_new(p, TT_ACC, &h, p->T, p->H * s->K);
		out[1] = arg_new(p, TT_ACC, &h, S, s->G * s->K);
		out[2] = arg_new(p, TT_ACC, &h, S, s->G * s->V);
		c.nin = 10;
		c.nout = 3;
		memset(mem, 0xff, scratch);
		k.bwd(&c);
		for (int i = 0; i < 3; i++)
			r.r[DQ + i] = arg_get(p->a, &out[i], &h);
	}
	for (size_t i = 0; i < guard; i++)
		TT_CHECK_MSG(t, mem[scratch + i] == 0xff, "%s: scratch overrun at +%d", s->name, (int)i);
	r.flag = flag;
	tt_pool_destroy(pool);
	return r;
}

/* The reference kernels. */
static inline results run(tt_test *t, const problem *p, how h, bool forward_only)
{
	const bool f64 = h.dtype == TT_F64;
	const tt_kernel *fwd = tt_kernel_ref(p->parts ? "attention_part" : "attention", h.isa, f64), *bwd = tt_kernel_ref("attention_bwd", h.isa, f64);
	TT_ASSERT(fwd && bwd);
	tt_attr_attention at = attr_of(p);
	kernels k = {h.exact && fwd->exact ? fwd->exact : fwd->run, h.exact && bwd->exact ? bwd->exact : bwd->run,
		     tt_attention_scratch(&at, p->T, p->S, h.threads)};
	return run_kernels(t, p, h, k, forward_only);
}

static inline const char *how_name(tt_test *t, const how *h)
{
	return tt_arena_printf(t->arena, "%s%s %s %d threads", tt_dtype_name(h->dtype), h->exact ? " exact" : "", tt_isa_name(h->isa),
			       h->threads);
}

/* How many elements of a and b differ in a bit; lines of b from `line` on. */
static inline int64_t differing(const tensor *a, int64_t al, const tensor *b, int64_t bl, int64_t lines)
{
	int64_t n = 0;
	for (int64_t i = 0; i < lines * a->width; i++)
		n += memcmp(a->raw[al * a->width + i], b->raw[bl * b->width + i], 24) != 0;
	return n;
}

static inline void check_same(tt_test *t, const results *a, const results *b, const char *what)
{
	for (int i = 0; i < SLOTS; i++)
		if (a->r[i].x && b->r[i].x) {
			int64_t n = a->r[i].lines == b->r[i].lines ? differing(&a->r[i], 0, &b->r[i], 0, a->r[i].lines) : -1;
			TT_CHECK_MSG(t, n == 0, "%s: %lld elements of %s differ", what, (long long)n, result_names[i]);
		}
}

/* Every instruction set this machine runs, best first. */
static inline int sets(tt_isa out[3])
{
	int n = 0;
	tt_isa have = tt_isa_detect();
	if (have >= TT_ISA_AVX512)
		out[n++] = TT_ISA_AVX512;
	if (have >= TT_ISA_AVX2)
		out[n++] = TT_ISA_AVX2;
	out[n++] = TT_ISA_REF;
	return n;
}
static inline tt_isa best(tt_test *t)
{
	tt_isa all[3], isa;
	sets(all);
	isa = all[0];
	if (*t->isa)
		TT_ASSERT(tt_isa_parse(t->isa, &isa) == TT_OK);
	return isa;
}

#endif
