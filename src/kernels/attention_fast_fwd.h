/* The forward of one variant (see attention_fast_tile.h); the recurrence is attention.k.c's.
 *
 * A unit is a run of neighbouring queries of one sequence and up to AF_HEADS heads of one kv head. It packs each block of 64
 * positions once, and for each head and AF_TILE queries makes the scores, row maxima, exponentials and P V of the block. The
 * parts of a block that a micro tile sees nothing of are not computed. */
#ifdef AF_NAME

typedef struct AF_NAME(unit) {
	const af_call *a;
	int64_t t0, n, R, seq, g, h0, heads, end;
	int64_t lo[192], hi[192]; /* query i sees positions [lo, hi) */
	uint64_t here;  /* of the block at hand */
	float *q;       /* [heads][n][K words] */
	float *o;       /* [heads][n][V] */
	float *m, *l;   /* [heads][R], R: n padded to AF_TILE */
	float *k, *v;   /* K^T [K words][64], V [64 as words][V] */
	float *s, *p;   /* [AF_TILE][64], words */
	float *part;    /* [AF_TILE][16] */
	float *r;       /* [AF_TILE] */
} AF_NAME(unit);

/* exp(s - m) of the row's vectors [v0, v1) to P, and their lane sums. */
AF_INLINE void AF_NAME(row)(const bool masked, const float *s, float *p, float m, int v0, int v1, uint64_t seen, float *part)
{
	vec e[4], sum = v_set(0);
	for (int v = 0; v < 4; v++)
		e[v] = v_set(0);
#pragma GCC unroll 4
	for (int v = 0; v < 4; v++) {
		if (v < v0 || v >= v1)
			continue;
		e[v] = v_exp(v_sub(v_load(s + 16 * v), v_set(m)), false);
		if (masked)
			e[v] = v_keep(v_mask(seen >> (16 * v)), e[v]);
		sum = v_add(sum, e[v]);
	}
	v_store(part, sum);
#if AF_KIND == AF_PAIRS
	_mm512_storeu_si512(p, words_along(normal_side(e[0]), normal_side(e[1])));
	_mm512_storeu_si512(p + 16, words_along(normal_side(e[2]), normal_side(e[3])));
#else
	for (int v = 0; v < 4; v++)
		v_store(p + 16 * v, AF_NAME(as_value)(e[v]));
#endif
}

/* Head h, queries [i0, i0+n) of the unit, n <= AF_TILE, and block b. */
static void AF_NAME(block)(const AF_NAME(unit) *u, int64_t h, int64_t i0, int64_t n, int64_t b)
{
	enum { W = AF_BLOCK / AF_NAME(WORD), PAIR = 2 * AF_NAME(WORD) };
	const af_call *a = u->a;
	const int64_t kw = a->K / AF_NAME(WORD), at = b * AF_BLOCK;
	uint64_t seen[AF_TILE], all = ~UINT64_C(0), any = 0;
	for (int64_t i = 0; i < n; i++) {
		seen[i] = af_bits(u->lo[i0 + i] - at, u->hi[i0 + i] - at) & u->here;
		all &= seen[i];
		any |= seen[i];
	}
	if (!any)
		return;
	const bool masked = ~all != 0;
	uint8_t v0[AF_TILE / AF_MICRO], v1[AF_TILE / AF_MICRO]; /* vectors of positions that a micro tile sees, */
	uint8_t p0[AF_TILE / AF_MICRO], p1[AF_TILE / AF_MICRO]; /* and the positions, out to pairs of words */
	af_mm g = {.a = u->q + (h * u->n + i0) * kw, .ar = kw, .b = u->k, .ldb = AF_BLOCK, .c = u->s, .ldc = AF_BLOCK, .kw = kw,
		   .scale = a->scale, .part = u->part};
	if (!masked) {
		AF_NAME(mm_score)(&g, n, 4);
		memset(v0, 0, sizeof v0);
		memset(v1, 4, sizeof v1);
	}
	for (int64_t i = 0; masked && i < n; i += AF_MICRO) {
		const int64_t rows = TT_MIN(AF_MICRO, n - i);
		uint64_t some = 0;
		for (int64_t y = i; y < i + rows; y++)
			some |= seen[y];
		const int first = some ? __builtin_ctzll(some) / 16 : 0, end = some ? 4 - __builtin_clzll(some) / 16 : 0;
		v0[i / AF_MICRO] = (uint8_t)first;
		v1[i / AF_MICRO] = (uint8_t)end;
		p0[i / AF_MICRO] = some ? (uint8_t)(__builtin_ctzll(some) / PAIR * PAIR) : 0;
		p1[i / AF_MICRO] = some ? (uint8_t)tt_round_up(AF_BLOCK - __builtin_clzll(some), PAIR) : 0;
		if (!some) {
			for (int64_t y = i; y < i + rows; y++)
				v_store(u->part + 16 * y, v_set(-INFINITY));
			continue;
		}
		g.a = u->q + (h * u->n + i0 + i) * kw;
		g.b = u->k + 16 * first;
		g.c = u->s + i * AF_BLOCK + 16 * first;
		g.seen = seen + i;
		g.part = u->part + 16 * i;
		g.first = 16 * first;
		AF_NAME(mm_score_seen)(&g, rows, end - first);
	}
	float *m = u->m + h * u->R + i0, *l = u->l + h * u->R + i0;
	for (int64_t i = 0; i < n; i += 16) {
		const vec old = v_load(m + i), now = v_max(v_max_rows(u->part + 16 * i), old);
		/* Equal also where a query has seen nothing yet: -inf - -inf */
		v_store(u->r + i, v_pick_equal(old, now, v_set(1), v_exp(v_sub(old, now), false)));
		v_store(m + i, now);
	}
	for (int64_t i = 0; i < n; i++) {
		const float *s = u->s + i * AF_BLOCK;
		float *p = u->p + i * W, *part = u->part + 16 * i;
		if (!masked)
			AF_NAME(row)(false, s, p, m[i], 0, 4, 0, part);
		else
			AF_NAME(row)(true, s, p, m[i], v0[i / AF_MICRO], v1[i / AF_MICRO], seen[i], part);
	}
	for (int64_t i = 0; i < n; i += 16)
		v_store(l + i, v_fma(v_load(l + i), v_load(u->r + i), v_sum_rows(u->part + 16 * i)));
	g = (af_mm){.a = u->p, .ar = W, .b = u->v, .ldb = a->V, .c = u->o + (h * u->n + i0) * a->V, .ldc = a->V, .kw = W, .r = u->r};
	if (!masked) {
		AF_NAME(mm_scale)(&g, n, a->V / 16);
		return;
	}
	for (int64_t i = 0; i < n; i += AF_MICRO) {
		const int64_t first = p0[i / AF_MICRO] / AF_NAME(WORD), end = p1[i / AF_MICRO] / AF_NAME(WORD);
		if (first == end)
			continue;
		g.a = u->p + i * W + first;
		g.b = u->v + first * a->V;
		g.c = u->o + (h * u->n + i0 + i) * a->V;
		g.kw = end - first;
		g.r = u->r + i;
		AF_NAME(mm_scale)(&g, TT_MIN(AF_MICRO, n - i), a->V / 16);
	}
}

static void AF_NAME(finish)(const AF_NAME(unit) *u, int64_t h)
{
	const af_call *a = u->a;
	const tt_arg *out = &a->call->out[0], *lse = &a->call->out[1];
	float y[192 + AF_TILE] = { 0 };
	const float *m = u->m + h * u->R, *l = u->l + h * u->R;
	for (int64_t i = 0; i < u->R; i++)
		y[i] = m[i] + log_f32(l[i]);
	for (int64_t i = 0; i < u->n; i++) {
		const float *o = u->o + (h * u->n + i) * a->V;
		uint8_t *to = (uint8_t *)out->p + ((u->t0 + i) * out->ld + (u->h0 + h) * a->V) * a->esize;
		const vec sum = v_set(l[i]);
		for (int64_t d = 0; d < a->V; d += 16) {
			vec x = v_div(v_load(o + d), sum);
#if AF_KIND != AF_F32
			x = v_round(x); /* which may make a -0 */
#endif
			AF_NAME(store_real)(to, d, v_add(x, v_set(0)));
		}
		((float *)lse->p)[(u->t0 + i) * lse->ld + u->h0 + h] = y[i];
	}
}

/* attention_part: o, m and l as they stand. */
static void AF_NAME(store_state)(const AF_NAME(unit) *u, int64_t h)
{
	const af_call *a = u->a;
	const tt_arg *out = a->call->out;
	for (int64_t i = 0; i < u->n; i++) {
		memcpy((float *)out[0].p + (u->t0 + i) * out[0].ld + (u->h0 + h) * a->V, u->o + (h * u->n + i) * a->V, (size_t)a->V * sizeof(float));
		((float *)out[1].p)[(u->t0 + i) * out[1].ld + u->h0 + h] = u->m[h * u->R + i];
		((float *)out[2].p)[(u->t0 + i) * out[2].ld + u->h0 + h] = u->l[h * u->R + i];
	}
}

/* What a unit is of, by its index. The last come first: in a sequence they see the most. */
static AF_NAME(unit) AF_NAME(unit_at)(const af_fwd_job *job, int64_t index)
{
	const af_call *a = &job->a;
	const int64_t unit = job->units - 1 - index, part = unit % job->parts, chunk = unit / job->parts / a->G;
	AF_NAME(unit) u = {.a = a, .g = unit / job->parts % a->G, .heads = TT_MIN(AF_HEADS, a->group - part * AF_HEADS), .t0 = a->ints[chunk]};
	u.h0 = u.g * a->group + part * AF_HEADS;
	u.n = a->ints[chunk + 1] - u.t0;
	u.R = tt_round_up(u.n, AF_TILE);
	u.seq = a->seq_ids[u.t0];
	return u;
}

/* K and V of position p, towards the cache. */
AF_INLINE void AF_NAME(fetch_keys)(const AF_NAME(unit) *u, int64_t p)
{
	const af_call *a = u->a;
	const int64_t line = af_line_of(a, u->seq, p);
	if (line < 0)
		return;
	AF_NAME(fetch)(af_line(a, a->k, line, u->g * a->K), a->K * a->esize);
	AF_NAME(fetch)(af_line(a, a->v, line, u->g * a->V), a->V * a->esize);
}

/* What comes to the cache while a unit is in work, a share of it with each tile: the lines that its output goes to, then what the next
 * unit begins with: queries, and the first block that it sees. */
typedef struct AF_NAME(ahead) {
	const AF_NAME(unit) *u, *then; /* then: NULL, there is none */
	int64_t p0, p1;                /* the positions of that block */
	int64_t at, all, share;
} AF_NAME(ahead);

static AF_NAME(ahead) AF_NAME(ahead_of)(const AF_NAME(unit) *u, const AF_NAME(unit) *then, int64_t tiles)
{
	AF_NAME(ahead) f = {.u = u, .then = then, .all = u->heads * u->n};
	if (then) {
		const af_call *a = u->a;
		const int64_t p = a->positions[then->t0];
		f.p0 = af_first(a, p) / AF_BLOCK * AF_BLOCK;
		f.p1 = TT_MIN(f.p0 + AF_BLOCK, TT_MIN(af_len(a, then->seq), TT_MAX(p, f.p0) + then->n));
		f.all += then->heads * then->n + TT_MAX(f.p1 - f.p0, 0);
	}
	f.share = tt_ceil_div(f.all, TT_MAX(tiles, 1));
	return f;
}
static void AF_NAME(fetch_ahead)(AF_NAME(ahead) *f)
{
	const af_call *a = f->u->a;
	const tt_arg *out = &a->call->out[0];
	const int64_t mine = f->u->heads * f->u->n, next = f->then ? f->then->heads * f->then->n : 0;
	for (const int64_t end = TT_MIN(f->all, f->at + f->share); f->at < end; f->at++) {
		const int64_t i = f->at - mine;
		if (i < 0)
			AF_NAME(fetch)(af_line(a, out, f->u->t0 + f->at % f->u->n, (f->u->h0 + f->at / f->u->n) * a->V), a->V * a->esize);
		else if (i < next)
			AF_NAME(fetch)(af_line(a, a->q, f->then->t0 + i % f->then->n, (f->then->h0 + i / f->then->n) * a->K), a->K * a->esize);
		else
			AF_NAME(fetch_keys)(f->then, f->p0 + i - next);
	}
}

static void AF_NAME(fwd_unit)(void *ctx, int64_t index, int lane)
{
	const af_fwd_job *job = ctx;
	const af_call *a = &job->a;
	AF_NAME(unit) u = AF_NAME(unit_at)(job, index), then;
	int64_t lo = INT64_MAX;
	for (int64_t i = 0; i < u.n; i++) {
		const int64_t p = a->positions[u.t0 + i];
		u.lo[i] = af_first(a, p);
		u.hi[i] = p + 1;
		lo = TT_MIN(lo, u.lo[i]);
		u.end = TT_MAX(u.end, p + 1);
	}
	TT_ASSERT(u.end <= af_len(a, u.seq), "query at position %lld of sequence %lld, which has %lld", (long long)u.end - 1,
		  (long long)u.seq, (long long)af_len(a, u.seq));
	float *at = (float *)(void *)(a->own + (size_t)lane * a->stride);
	u.q = af_take(&at, u.heads * u.n * (a->K / AF_NAME(WORD)));
	u.o = af_take(&at, u.heads * u.n * a->V);
	u.m = af_take(&at, u.heads * u.R);
	u.l = af_take(&at, u.heads * u.R);
	u.k = af_take(&at, AF_BLOCK * a->K);
	u.v = af_take(&at, AF_BLOCK * a->V);
	u.s = af_take(&at, AF_TILE * AF_BLOCK);
	u.p = af_take(&at, AF_TILE * AF_BLOCK);
	u.part = af_take(&at, AF_TILE * 16);
	u.r = af_take(&at, AF_TILE);
	TT_DCHECK((size_t)((uint8_t *)at - a->own) <= (size_t)(lane + 1) * a->stride);
	memset(u.o, 0, (size_t)(u.heads * u.n * a->V) * sizeof(float));
	memset(u.l, 0, (size_t)(u.heads * u.R) * sizeof(float));
	memset(u.part, 0, AF_TILE * 16 * sizeof(float));
	for (int64_t i = 0; i < u.heads * u.R; i++)
		u.m[i] = -INFINITY;
	const int64_t tiles = tt_ceil_div(u.n, AF_TILE) * u.heads, step = tt_ceil_div(AF_BLOCK, tiles);
	if (index + 1 < job->units)
		then = AF_NAME(unit_at)(job, index + 1);
	AF_NAME(ahead) ahead = AF_NAME(ahead_of)(&u, index + 1 < job->units ? &then : NULL, tiles * (tt_ceil_div(u.end, AF_BLOCK) - lo / AF_BLOCK));
	const uint8_t *line[2][AF_BLOCK];
	for (int64_t h = 0; h < u.heads; h++)
		for (int64_t i = 0; i < u.n; i += AF_BLOCK) {
			const int64_t n = TT_MIN(AF_BLOCK, u.n - i);
			for (int64_t y = 0; y < n; y++)
				line[0][y] = af_line(a, a->q, u.t0 + i + y, (u.h0 + h) * a->K);
			AF_NAME(gather)(u.q + (h * u.n + i) * (a->K / AF_NAME(WORD)), line[0], n, a->K);
		}
	for (int64_t b = lo / AF_BLOCK; b * AF_BLOCK < u.end; b++) {
		const int64_t keys = TT_MIN(AF_BLOCK, u.end - b * AF_BLOCK);
		u.here = af_here(a, u.seq, b * AF_BLOCK, keys);
		if (!u.here)
			continue;
		for (int64_t j = 0; j < AF_BLOCK; j++) {
			const int64_t y = j < keys ? af_line_of(a, u.seq, b * AF_BLOCK + j) : -1;
			line[0][j] = y >= 0 ? af_line(a, a->k, y, u.g * a->K) : AF_ZEROS;
			line[1][j] = y >= 0 ? af_line(a, a->v, y, u.g * a->V) : AF_ZEROS;
		}
		AF_NAME(pack_side)(u.k, line[0], keys, a->K);
		AF_NAME(pack_down)(u.v, line[1], tt_round_up(keys, 16), a->V);
		/* Meanwhile the next block comes to the cache, a part for each tile. */
		int64_t next = (b + 1) * AF_BLOCK;
		for (int64_t h = 0; h < u.heads; h++)
			for (int64_t i = 0; i < u.n; i += AF_TILE) {
				for (int64_t j = 0; j < step && next < TT_MIN(u.end, (b + 2) * AF_BLOCK); j++, next++)
					AF_NAME(fetch_keys)(&u, next);
				AF_NAME(fetch_ahead)(&ahead);
				AF_NAME(block)(&u, h, i, TT_MIN(AF_TILE, u.n - i), b);
			}
	}
	for (int64_t h = 0; h < u.heads; h++)
		(job->state ? AF_NAME(store_state) : AF_NAME(finish))(&u, h);
}

static void AF_NAME(fwd)(const tt_call *c)
{
	af_fwd_job job = af_fwd_job_of(c);
	tt_pool_run(c->env->pool, job.units, AF_NAME(fwd_unit), &job);
}

static void AF_NAME(part)(const tt_call *c)
{
	af_fwd_job job = af_fwd_job_of(c);
	job.state = true;
	tt_pool_run(c->env->pool, job.units, AF_NAME(fwd_unit), &job);
}

#endif
