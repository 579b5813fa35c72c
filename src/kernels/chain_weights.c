/* chain_weights.c: linear_dw, linear_dw_acc on tiles of chain.h: dW[o,k] = dY^T[o,T] X[T,k], (+ state).
 *
 * The contraction runs over tokens. Of X a task packs panels of 64 columns; of dY, six columns at a time, [T][6]: what a tile broadcasts for one
 * token lies side by side, so a column is moved and not turned (a third of the time of a transpose). A task has its own copies: to share them
 * behind a barrier was slower.
 *
 * Up to CHUNK words of tokens a tile is made in one go and stored, or added to the accumulator, from registers. Beyond, its sum stays open in
 * the task's scratch from chunk to chunk, since the chain of linear_dw_acc is from zero.
 */
#include "kernels/chain.h"
#include "kernels/panel.h"
#include "kernels/xsmm_tile.h"

#ifndef TT_NO_X86

enum {
	CHUNK = 512,         /* words: 128 KiB of a panel */
	PANELS = 1 << 13,    /* most words of a task's panels: 2 MiB */
	COLUMNS = 192 << 10, /* most words of columns of dY at a time: 768 KiB */
	OPEN = 1536,         /* most lines of a task whose sums stay open */
};

typedef struct weights {
	int64_t o, k, panels;
	bool bf16, adds;
	int64_t pair, chunk; /* tokens of a word; words of a full chunk */
	int64_t run;         /* words between six columns and the next, [chunk][6] each */
	int64_t group;       /* most panels of a task */
	int64_t dy;          /* most lines of dW between two packings of dY, a multiple of 6 */
	int64_t most;        /* most lines of dW of a task */
	int threads;
	int64_t lane_bytes;
} weights;

typedef struct weights_job {
	const weights *f;
	tt_weights_data d;
	int64_t groups, parts; /* of panels; of lines of dW, in sixes */
} weights_job;

/* Sizes that both `scratch` and `plan` need. */
static weights weights_of(const tt_kernel_case *c)
{
	const tt_value *const *in = c->in + tt_weights_adds(c);
	weights f = {.o = in[0]->dim[1].n, .k = in[1]->dim[1].n, .bf16 = in[0]->dtype == TT_BF16, .adds = tt_weights_adds(c), .threads = TT_MAX(c->threads, 1)};
	f.pair = f.bf16 ? 2 : 1;
	f.panels = tt_ceil_div(f.k, WIDE);
	int64_t words = TT_MAX(tt_ceil_div(in[0]->dim[0].n, f.pair), (int64_t)1);
	f.chunk = tt_ceil_div(words, tt_ceil_div(words, CHUNK));
	/* Off the multiples of 4 KiB, where all runs would meet in one set of the first cache; two words are written past a run's end. */
	f.run = tt_round_up(LINES * f.chunk + 2, 16) + 16;
	f.group = TT_MIN(f.panels, TT_MAX(PANELS / f.chunk, (int64_t)1));
	int64_t lines = tt_round_up(f.o, LINES);
	f.dy = TT_MIN(lines, TT_MAX(COLUMNS / f.chunk / LINES * LINES, (int64_t)LINES));
	f.most = words > f.chunk ? TT_MIN(lines, (int64_t)OPEN) : lines;
	int64_t open = words > f.chunk ? f.group * f.most * WIDE : TT_CHAIN_TILE;
	f.lane_bytes = tt_round_up((f.group * f.chunk * WIDE + f.dy / LINES * f.run + open) * 4, 64);
	return f;
}

size_t tt_chain_weights_scratch(const tt_kernel_case *c)
{
	weights f = weights_of(c);
	return (size_t)(f.lane_bytes * f.threads);
}

tt_status tt_chain_weights_plan(const tt_kernel_case *c, tt_arena *a, const void **out)
{
	weights *f = TT_NEW(a, weights);
	*f = weights_of(c);
	*out = f;
	return TT_OK;
}

static void pack_panel(const weights *f, const void *x, int64_t n, int64_t nf, float *to)
{
	if (f->bf16)
		tt_panel_pair(x, f->k, nf, n, (tt_bf16 *)to);
	else
		tt_panel_copy(x, f->k, nf, n, to);
}

static void pack_six(const weights *f, const void *dy, int64_t n, int64_t no, float *to)
{
	if (f->bf16)
		tt_lines_six_bf16(dy, f->o, n, no, f->run, (tt_bf16 *)to);
	else
		tt_lines_six_f32(dy, f->o, n, no, f->run, to);
}

/* `width` bytes of each line from `soon` on are read after this call. */
static void fetch(tt_chain *c, const uint8_t *soon, int64_t ld, int64_t width, int64_t pair)
{
	c->soon = soon;
	c->soon_ld = ld;
	c->soon_n = tt_ceil_div(width, 64) * pair;
}

static void weights_task(void *ctx, int64_t task, int lane)
{
	const weights_job *g = ctx;
	const weights *f = g->f;
	int64_t sixes = tt_ceil_div(f->o, LINES), part = task % g->parts, group = task / g->parts;
	int64_t p0 = tt_deal(f->panels, group, g->groups), p1 = tt_deal(f->panels, group + 1, g->groups);
	int64_t o0 = tt_deal(sixes, part, g->parts) * LINES, o1 = TT_MIN(f->o, tt_deal(sixes, part + 1, g->parts) * LINES);
	int64_t chunk = f->chunk * f->pair, esize = f->bf16 ? 2 : 4;
	float *panels = (float *)(void *)(g->d.scratch + lane * f->lane_bytes), *six = panels + f->group * f->chunk * WIDE;
	float *open = six + f->dy / LINES * f->run;
	TT_ASSERT(p1 - p0 <= f->group && o1 - o0 <= f->most, "a task of %lld panels, %lld lines", (long long)(p1 - p0), (long long)(o1 - o0));
	bool many = g->d.tokens > chunk;
	for (int64_t t0 = 0; t0 < g->d.tokens; t0 += chunk) {
		int64_t n = TT_MIN(chunk, g->d.tokens - t0), words = tt_ceil_div(n, f->pair);
		tt_chain_step step = {.n = words, .goes_on = t0 > 0};
		tt_chain c = {.step = &step, .nsteps = 1, .ldx = f->run * 4, .across = true, .part_step = many ? TT_CHAIN_TILE : 0, .depth = t0 > 0,
			      .open = t0 + n < g->d.tokens, .lds = f->k, .ldy = f->k * 4, .plain_ld = f->k * esize};
		/* Panels are packed by the tiles that read them first, if those are whole: an odd token has no pair to be read with. Columns are not:
		 * of a line of dY such a tile would want 24 bytes, and the next one other 24. */
		bool whole = n % f->pair == 0 && o1 - o0 >= LINES;
		for (int64_t o = o0; o < o1; o += f->dy) {
			int64_t no = TT_MIN(f->dy, o1 - o);
			const uint8_t *dy = g->d.dy + (t0 * f->o + o) * esize;
			pack_six(f, dy, n, no, six);
			for (int64_t p = p0; p < p1; p++) {
				int64_t at = o * f->k + p * WIDE;
				float *xp = panels + (p - p0) * f->chunk * WIDE;
				const uint8_t *x = g->d.x + (t0 * f->k + p * WIDE) * esize;
				c.features = TT_MIN(WIDE, f->k - p * WIDE);
				c.plain = o == o0 && whole && c.features == WIDE ? x : NULL;
				if (o == o0 && !c.plain)
					pack_panel(f, x, n, c.features, xp);
				c.w = xp;
				c.part = open + (many ? ((p - p0) * f->most + o - o0) * WIDE : 0);
				c.state = g->d.state ? g->d.state + at : NULL;
				c.y = g->d.dw + at;
				c.soon_n = 0;
				if (p + 1 < p1 && o == o0)
					fetch(&c, x + WIDE * esize, c.plain_ld, WIDE * esize, f->pair);
				else if (p + 1 == p1 && o + f->dy < o1)
					fetch(&c, dy + f->dy * esize, f->o * esize, TT_MIN(f->dy, o1 - o - f->dy) * esize, f->pair);
				else if (p + 1 == p1 && t0 + 2 * chunk <= g->d.tokens)
					fetch(&c, g->d.dy + ((t0 + chunk) * f->o + o0) * esize, f->o * esize, TT_MIN(f->dy, o1 - o0) * esize, f->pair);
				(f->bf16 ? tt_chain_bf16 : tt_chain_f32)(&c, six, no);
			}
		}
	}
}

/* Every task packs its panels and its columns anew, so cuts cost; uneven cuts leave threads idle. In the time of a tile, a panel takes about
 * half of one, six columns a tenth. */
static void deal_weights(weights_job *g, int threads)
{
	const weights *f = g->f;
	int64_t sixes = tt_ceil_div(f->o, LINES), least = tt_ceil_div(f->panels, f->group), parts = tt_ceil_div(f->o, f->most);
	int64_t best = INT64_MAX;
	for (int64_t i = least; i < least + 2 * threads && i <= f->panels; i++)
		for (int64_t j = parts; j < parts + 2 * threads && j <= sixes; j++) {
			int64_t p = tt_ceil_div(f->panels, i), l = tt_ceil_div(sixes, j), cost = tt_ceil_div(i * j, threads) * (10 * p * l + 5 * p + l);
			if (cost >= best || l * LINES > f->most)
				continue;
			best = cost;
			g->groups = i;
			g->parts = j;
		}
}

void tt_chain_weights_run(const tt_call *c)
{
	const weights *f = c->plan;
	int threads = tt_pool_threads(c->env->pool);
	weights_job g = {.f = f};
	if (!tt_weights_begin(c, f->adds, f->threads, f->o, f->k, &g.d))
		return;
	deal_weights(&g, threads);
	tt_pool_run(c->env->pool, g.groups * g.parts, weights_task, &g);
}

#endif
