/* The backward of one variant (see attention_fast_tile.h); the formulas are attention_bwd.h's.
 *
 * Work is a sequence and a kv head: blocks of keys outside, the heads of the group and their blocks of queries inside, five
 * products a pair of blocks. dk and dv of the block stay with the lane, dq goes on in place. Where a few long sequences would
 * leave threads idle for longer than two more products take, dk and dv are made by blocks of keys and dq by blocks of queries. */
#ifdef AF_NAME

typedef struct AF_NAME(bwd_lane) {
	const af_bwd_job *g;
	const af_call *a;
	/* a block of keys, of sequence s and kv head `head` */
	int64_t s, head, k0, keys; /* first position; positions */
	uint64_t here;             /* which of them K and V hold */
	int64_t last;              /* queries from this position on see none of them */
	float *kt, *vt;  /* as B: K^T [K words][64], V^T [V words][64] */
	float *k;        /* as B: [64 as words][K] */
	float *dk, *dv;  /* [64][K] [64][V], in place where the lines are neighbours */
	int64_t dki, dvi; /* floats between their lines */
	float *own_dk, *own_dv;
	bool place, fresh; /* in place; nothing is there yet */
	/* a block of queries of q head h */
	int64_t q0, rows; /* first position; positions */
	bool run;         /* they are neighbouring lines, all there */
	int32_t query[AF_BLOCK];
	float *qa, *da;  /* q and dO as A: [64][K words] [64][V words] */
	float *qb, *db;  /* as B: [64 as words][K] [64 as words][V] */
	float *dq;       /* [64][K] */
	/* the pair: seen[i] the keys that query i sees */
	uint64_t seen[AF_BLOCK];
	bool masked;
	float *p;        /* P as A read down: [64 as words][64] */
	float *ds;       /* DS as A: [64][64 as words] */
	float *dsd;      /* DS as A read down: [64 as words][64] */
	float *sc, *dp;  /* scores and dP of a micro tile, [8][64] */
	/* Towards the cache while the pair is in work: a block of queries of q head ah, a block of keys of kv head bh; as = bs = -1: none. */
	int64_t as, ah, aq, bs, bh, bk;
} AF_NAME(bwd_lane);

static AF_NAME(bwd_lane) AF_NAME(bwd_lane_of)(const af_bwd_job *g, int lane)
{
	const af_call *a = &g->a;
	float *at = (float *)(void *)(a->own + (size_t)lane * a->stride);
	AF_NAME(bwd_lane) w = {.g = g, .a = a, .as = -1, .bs = -1};
	w.kt = af_take(&at, AF_BLOCK * a->K);
	w.vt = af_take(&at, AF_BLOCK * a->V);
	w.k = af_take(&at, AF_BLOCK * a->K);
	w.own_dk = af_take(&at, AF_BLOCK * a->K);
	w.own_dv = af_take(&at, AF_BLOCK * a->V);
	w.qa = af_take(&at, AF_BLOCK * a->K);
	w.da = af_take(&at, AF_BLOCK * a->V);
	w.qb = w.qa;
	w.db = w.da;
#if AF_KIND == AF_PAIRS
	w.qb = af_take(&at, AF_BLOCK * a->K);
	w.db = af_take(&at, AF_BLOCK * a->V);
#endif
	w.dq = af_take(&at, AF_BLOCK * a->K);
	w.p = af_take(&at, AF_BLOCK * AF_BLOCK);
	w.ds = w.dsd = af_take(&at, AF_BLOCK * AF_BLOCK);
#if AF_KIND == AF_PAIRS
	w.dsd = af_take(&at, AF_BLOCK * AF_BLOCK);
#endif
	w.sc = af_take(&at, 8 * AF_BLOCK);
	w.dp = af_take(&at, 8 * AF_BLOCK);
	TT_DCHECK((size_t)((uint8_t *)at - a->own) <= (size_t)(lane + 1) * a->stride);
	return w;
}

/* Products run where subnormals count as the variant has it. */
AF_INLINE unsigned AF_NAME(enter)(void)
{
#if AF_KIND == AF_WIDENED
	const unsigned csr = _mm_getcsr();
	_mm_setcsr(csr | AF_FTZ_DAZ);
	return csr;
#else
	return 0;
#endif
}
AF_INLINE void AF_NAME(leave)(unsigned csr)
{
#if AF_KIND == AF_WIDENED
	_mm_setcsr(csr);
#else
	(void)csr;
#endif
}

static void AF_NAME(load_keys)(AF_NAME(bwd_lane) *w, int64_t s, int64_t kb, int64_t head, bool dq)
{
	const af_call *a = w->a;
	const uint8_t *line[AF_BLOCK];
	w->s = s;
	w->head = head;
	w->k0 = kb * AF_BLOCK;
	w->keys = TT_MIN(AF_BLOCK, af_len(a, s) - w->k0);
	w->here = af_here(a, s, w->k0, w->keys);
	if (!w->here)
		return;
	int64_t y[AF_BLOCK];
	for (int64_t j = 0; j < AF_BLOCK; j++) {
		y[j] = j < w->keys ? af_line_of(a, s, w->k0 + j) : -1;
		line[j] = y[j] >= 0 ? af_line(a, a->v, y[j], head * a->V) : AF_ZEROS;
	}
	AF_NAME(pack_side)(w->vt, line, w->keys, a->V);
	for (int64_t j = 0; j < AF_BLOCK; j++)
		line[j] = y[j] >= 0 ? af_line(a, a->k, y[j], head * a->K) : AF_ZEROS;
	AF_NAME(pack_side)(w->kt, line, w->keys, a->K);
	if (dq)
		AF_NAME(pack_down)(w->k, line, tt_round_up(w->keys, 16), a->K);
}

/* Queries of block qb, q head h; false if none sees a key of the block. */
static bool AF_NAME(load_queries)(AF_NAME(bwd_lane) *w, int64_t qb, int64_t h, bool dkv)
{
	const af_call *a = w->a;
	const int64_t len = af_len(a, w->s);
	w->q0 = qb * AF_BLOCK;
	w->rows = TT_MIN(AF_BLOCK, len - w->q0);
	const int32_t *query = w->g->query + a->table[w->s] + w->q0;
	uint64_t all = ~UINT64_C(0), any = 0;
	w->run = true;
	for (int64_t i = 0; i < AF_BLOCK; i++) {
		const int64_t p = w->q0 + i;
		w->query[i] = i < w->rows ? query[i] : -1;
		w->seen[i] = w->query[i] < 0 ? 0 : af_bits(af_first(a, p) - w->k0, p + 1 - w->k0) & af_bits(0, w->keys) & w->here;
		all &= w->seen[i];
		any |= w->seen[i];
		w->run &= i >= w->rows || (query[i] >= 0 && query[i] == query[0] + i);
	}
	if (!any)
		return false;
	w->masked = ~all != 0;
	const uint8_t *line[2][AF_BLOCK];
	for (int64_t i = 0; i < AF_BLOCK; i++) {
		line[0][i] = w->query[i] < 0 ? AF_ZEROS : af_line(a, a->q, w->query[i], h * a->K);
		line[1][i] = w->query[i] < 0 ? AF_ZEROS : af_line(a, w->g->dout, w->query[i], h * a->V);
	}
	const int64_t rows = tt_round_up(w->rows, 4);
	AF_NAME(gather)(w->qa, line[0], rows, a->K);
	AF_NAME(gather)(w->da, line[1], rows, a->V);
#if AF_KIND == AF_PAIRS
	if (dkv) {
		AF_NAME(pack_down)(w->qb, line[0], rows, a->K);
		AF_NAME(pack_down)(w->db, line[1], rows, a->V);
	}
#else
	(void)dkv;
#endif
	return true;
}

/* P and DS of lines i and i+1, which are lines y and y+1 of the micro tile; vectors [v0, v1) of it were computed. */
AF_INLINE void AF_NAME(weights2)(const bool masked, const AF_NAME(bwd_lane) *w, int64_t i, int64_t y, int v0, int v1, const float lse[2],
				 const float D[2])
{
	const vec scale = v_set(w->a->scale);
	vec e[2][4], d[2][4];
	for (int z = 0; z < 2; z++)
#pragma GCC unroll 4
		for (int v = 0; v < 4; v++) {
			e[z][v] = d[z][v] = v_set(0);
			if (v < v0 || v >= v1)
				continue;
			const vec s = v_load(w->sc + (y + z) * AF_BLOCK + 16 * v), dp = v_load(w->dp + (y + z) * AF_BLOCK + 16 * v);
			const vec p = v_exp(v_sub(v_mul(s, scale), v_set(lse[z])), true);
			const vec t = v_mul(v_mul(p, v_sub(dp, v_set(D[z]))), scale);
			e[z][v] = masked ? v_keep(v_mask(w->seen[i + z] >> (16 * v)), p) : p;
			d[z][v] = masked ? v_keep(v_mask(w->seen[i + z] >> (16 * v)), t) : t;
#if AF_KIND == AF_PAIRS
			e[z][v] = normal_side(e[z][v]);
			d[z][v] = normal_side(d[z][v]);
#endif
		}
#if AF_KIND == AF_PAIRS
	for (int v = 0; v < 4; v++) {
		_mm512_storeu_si512(w->p + i / 2 * AF_BLOCK + 16 * v, words_across(e[0][v], e[1][v]));
		_mm512_storeu_si512(w->dsd + i / 2 * AF_BLOCK + 16 * v, words_across(d[0][v], d[1][v]));
	}
	for (int z = 0; z < 2; z++)
		for (int v = 0; v < 4; v += 2)
			_mm512_storeu_si512(w->ds + (i + z) * (AF_BLOCK / 2) + 8 * v, words_along(d[z][v], d[z][v + 1]));
#else
	for (int z = 0; z < 2; z++)
		for (int v = 0; v < 4; v++) {
			v_store(w->p + (i + z) * AF_BLOCK + 16 * v, AF_NAME(as_value)(e[z][v]));
			v_store(w->ds + (i + z) * AF_BLOCK + 16 * v, AF_NAME(as_value)(d[z][v]));
		}
#endif
}

/* Vectors of keys that lines [i, i+n) see: [*v0, *v1). */
static void AF_NAME(span)(const AF_NAME(bwd_lane) *w, int64_t i, int64_t n, int *v0, int *v1)
{
	uint64_t some = 0;
	for (int64_t y = i; y < i + n; y++)
		some |= w->seen[y];
	*v0 = some ? __builtin_ctzll(some) / 16 : 0;
	*v1 = some ? 4 - __builtin_clzll(some) / 16 : 0;
}

/* Towards the cache: of the blocks that come next a share, as lines [i, i+n) of `rows` are of this pair: what is read and what is written. */
static void AF_NAME(fetch_next)(const AF_NAME(bwd_lane) *w, int64_t i, int64_t n, int64_t rows)
{
	const af_call *a = w->a;
	const int64_t from = AF_BLOCK * i / rows, to = AF_BLOCK * (i + n) / rows;
	const tt_arg *dq = w->g->dq, *dk = w->g->dk, *dv = w->g->dv;
	for (int64_t p = w->aq + from, end = w->as < 0 ? 0 : TT_MIN(w->aq + to, af_len(a, w->as)); p < end; p++) {
		const int64_t t = w->g->query[a->table[w->as] + p];
		if (t < 0)
			continue;
		AF_NAME(fetch)(af_line(a, a->q, t, w->ah * a->K), a->K * a->esize);
		AF_NAME(fetch)(af_line(a, w->g->dout, t, w->ah * a->V), a->V * a->esize);
		AF_NAME(fetch)((const uint8_t *)((const float *)dq->p + t * dq->ld + w->ah * a->K), a->K * 4);
	}
	for (int64_t p = w->bk + from, end = w->bs < 0 ? 0 : TT_MIN(w->bk + to, af_len(a, w->bs)); p < end; p++) {
		const int64_t y = af_line_of(a, w->bs, p);
		if (y < 0)
			continue;
		AF_NAME(fetch)(af_line(a, a->k, y, w->bh * a->K), a->K * a->esize);
		AF_NAME(fetch)(af_line(a, a->v, y, w->bh * a->V), a->V * a->esize);
		AF_NAME(fetch)((const uint8_t *)((const float *)dk->p + y * dk->ld + w->bh * a->K), a->K * 4);
		AF_NAME(fetch)((const uint8_t *)((const float *)dv->p + y * dv->ld + w->bh * a->V), a->V * 4);
	}
}

/* P and DS of lines [i, i+n), from the micro tile's scores and dP. A function of its own: here subnormals count. */
static __attribute__((noinline)) void AF_NAME(weigh)(const AF_NAME(bwd_lane) *w, int64_t h, int64_t i, int64_t n, int v0, int v1)
{
	const af_call *a = w->a;
	const tt_arg *lse = w->g->lse;
	for (int64_t y = 0; y < n; y += 2) {
		float l[2] = {0}, D[2] = {0};
		for (int z = 0; z < 2; z++) {
			const int32_t t = w->query[i + y + z];
			if (t < 0)
				continue;
			l[z] = ((const float *)lse->p)[t * lse->ld + h];
			D[z] = a->D[t * a->H + h];
		}
		if (w->masked)
			AF_NAME(weights2)(true, w, i + y, y, v0, v1, l, D);
		else
			AF_NAME(weights2)(false, w, i + y, y, 0, 4, l, D);
	}
}

/* P and DS of the two blocks loaded. */
static void AF_NAME(weights)(const AF_NAME(bwd_lane) *w, int64_t h)
{
	const af_call *a = w->a;
	const int64_t kw = a->K / AF_NAME(WORD), vw = a->V / AF_NAME(WORD), rows = tt_round_up(w->rows, 4);
	for (int64_t i = 0; i < rows; i += AF_MICRO) {
		const int64_t n = TT_MIN(AF_MICRO, rows - i);
		int v0 = 0, v1 = 4;
		AF_NAME(fetch_next)(w, i, n, rows);
		if (w->masked)
			AF_NAME(span)(w, i, n, &v0, &v1);
		if (v0 < v1) {
			const unsigned csr = AF_NAME(enter)();
			AF_NAME(mm_begin)(&(af_mm){.a = w->qa + i * kw, .ar = kw, .b = w->kt + 16 * v0, .ldb = AF_BLOCK,
						   .c = w->sc + 16 * v0, .ldc = AF_BLOCK, .kw = kw}, n, v1 - v0);
			AF_NAME(mm_begin)(&(af_mm){.a = w->da + i * vw, .ar = vw, .b = w->vt + 16 * v0, .ldb = AF_BLOCK,
						   .c = w->dp + 16 * v0, .ldc = AF_BLOCK, .kw = vw}, n, v1 - v0);
			AF_NAME(leave)(csr);
		}
		AF_NAME(weigh)(w, h, i, n, v0, v1);
	}
}

/* dq goes on through the block of keys. */
static void AF_NAME(add_dq)(const AF_NAME(bwd_lane) *w, int64_t h)
{
	enum { W = AF_BLOCK / AF_NAME(WORD), PAIR = 2 * AF_NAME(WORD) };
	const af_call *a = w->a;
	const tt_arg *out = w->g->dq;
	float *dq = (float *)out->p + h * a->K;
	af_mm g = {.a = w->ds, .ar = W, .b = w->k, .ldb = a->K, .c = w->dq, .ldc = a->K, .kw = tt_round_up(w->keys, 16) / AF_NAME(WORD)};
	if (w->run) {
		g.c = dq + w->query[0] * out->ld;
		g.ldc = out->ld;
	}
	const bool begins = w->g->all_queries && w->k0 == 0;
	for (int64_t i = 0; !w->run && !begins && i < w->rows; i++) {
		if (w->query[i] >= 0)
			memcpy(w->dq + i * a->K, dq + w->query[i] * out->ld, (size_t)a->K * sizeof(float));
		else
			memset(w->dq + i * a->K, 0, (size_t)a->K * sizeof(float));
	}
	const unsigned csr = AF_NAME(enter)();
	if (!w->masked && begins)
		AF_NAME(mm_begin)(&g, w->rows, a->K / 16);
	else if (!w->masked)
		AF_NAME(mm_go_on)(&g, w->rows, a->K / 16);
	for (int64_t i = 0; w->masked && i < w->rows; i += AF_MICRO) {
		const int64_t n = TT_MIN(AF_MICRO, w->rows - i);
		uint64_t some = 0;
		for (int64_t y = i; y < i + n; y++)
			some |= w->seen[y];
		if (!some)
			continue;
		const int64_t first = __builtin_ctzll(some) / PAIR * 2, end = tt_ceil_div(AF_BLOCK - __builtin_clzll(some), PAIR) * 2; /* words */
		af_mm part = g;
		part.a += i * W + first;
		part.b += first * a->K;
		part.c += i * g.ldc;
		part.kw = end - first;
		if (begins)
			AF_NAME(mm_begin)(&part, n, a->K / 16);
		else
			AF_NAME(mm_go_on)(&part, n, a->K / 16);
	}
	AF_NAME(leave)(csr);
	for (int64_t i = 0; !w->run && i < w->rows; i++)
		if (w->query[i] >= 0)
			memcpy(dq + w->query[i] * out->ld, w->dq + i * a->K, (size_t)a->K * sizeof(float));
}

/* dk and dv of the block of keys go on through the block of queries. */
static void AF_NAME(add_dkv)(const AF_NAME(bwd_lane) *w)
{
	const af_call *a = w->a;
	const int64_t rows = tt_round_up(w->rows, 4);
	const unsigned csr = AF_NAME(enter)();
	for (int64_t j = 0; j < w->keys; j += w->masked ? AF_MICRO : AF_BLOCK) {
		const int64_t n = w->masked ? TT_MIN(AF_MICRO, w->keys - j) : w->keys;
		int64_t from = 0, to = rows;
		if (w->masked) { /* the queries that see some of the keys [j, j+n) */
			const uint64_t some = af_bits(j, j + n);
			while (from < to && !(w->seen[from] & some))
				from++;
			while (to > from && !(w->seen[to - 1] & some))
				to--;
			from = from / 4 * 4;
			to = tt_round_up(to, 4);
		}
		if (from >= to)
			continue;
		const int64_t x = from / AF_NAME(WORD), kw = (to - from) / AF_NAME(WORD);
		const af_mm dv = {.a = w->p + x * AF_BLOCK + j, .b = w->db + x * a->V, .ldb = a->V, .c = w->dv + j * w->dvi, .ldc = w->dvi, .kw = kw};
		const af_mm dk = {.a = w->dsd + x * AF_BLOCK + j, .b = w->qb + x * a->K, .ldb = a->K, .c = w->dk + j * w->dki, .ldc = w->dki, .kw = kw};
		(w->fresh ? AF_NAME(mm_down_begin) : AF_NAME(mm_down))(&dv, n, a->V / 16);
		(w->fresh ? AF_NAME(mm_down_begin) : AF_NAME(mm_down))(&dk, n, a->K / 16);
	}
	AF_NAME(leave)(csr);
}

/* Where dk and dv of the block go: in place if their lines are neighbours and every position has a query, whose first block of queries then
 * begins each of their chains; else to the lane's own. */
static void AF_NAME(place_keys)(AF_NAME(bwd_lane) *w)
{
	const af_call *a = w->a;
	const tt_arg *dk = w->g->dk, *dv = w->g->dv;
	const int32_t *y = a->lines + a->table[w->s] + w->k0;
	w->place = w->fresh = w->g->all_queries;
	for (int64_t j = 1; j < w->keys; j++)
		w->place &= y[j] == y[0] + j;
	w->fresh = w->place;
	if (w->place) {
		w->dk = (float *)dk->p + y[0] * dk->ld + w->head * a->K;
		w->dv = (float *)dv->p + y[0] * dv->ld + w->head * a->V;
		w->dki = dk->ld;
		w->dvi = dv->ld;
		return;
	}
	w->dk = w->own_dk;
	w->dv = w->own_dv;
	w->dki = a->K;
	w->dvi = a->V;
	memset(w->dk, 0, (size_t)(AF_BLOCK * a->K) * sizeof(float));
	memset(w->dv, 0, (size_t)(AF_BLOCK * a->V) * sizeof(float));
}

static void AF_NAME(store_keys)(const AF_NAME(bwd_lane) *w)
{
	const af_call *a = w->a;
	for (int64_t j = 0; j < w->keys && !w->place; j++) {
		const int64_t line = af_line_of(a, w->s, w->k0 + j);
		if (line < 0)
			continue;
		memcpy((float *)w->g->dk->p + line * w->g->dk->ld + w->head * a->K, w->dk + j * a->K, (size_t)a->K * sizeof(float));
		memcpy((float *)w->g->dv->p + line * w->g->dv->ld + w->head * a->V, w->dv + j * a->V, (size_t)a->V * sizeof(float));
	}
}

/* dk and dv of one block of keys; dq continued if `dq`. Block `nk` of sequence ns and kv head nh comes next; ns = -1: none. */
static void AF_NAME(key_block)(AF_NAME(bwd_lane) *w, int64_t s, int64_t kb, int64_t head, bool dq, int64_t ns, int64_t nk, int64_t nh)
{
	const af_call *a = w->a;
	const int64_t len = af_len(a, s), end = (head + 1) * a->group;
	AF_NAME(load_keys)(w, s, kb, head, dq);
	if (!w->here)
		return;
	AF_NAME(place_keys)(w);
	/* The last query that sees a key of the block is at position kb*64+63 + window-1. */
	w->last = a->window ? TT_MIN(len, w->k0 + AF_BLOCK - 1 + a->window) : len;
	for (int64_t h = head * a->group; h < end; h++)
		for (int64_t qb = kb; qb * AF_BLOCK < w->last; qb++) {
			const bool more = (qb + 1) * AF_BLOCK < w->last, over = !more && h + 1 == end;
			w->as = over ? ns : s;
			w->ah = over ? nh * a->group : more ? h : h + 1;
			w->aq = (over ? nk : more ? qb + 1 : kb) * AF_BLOCK;
			w->bs = over ? ns : -1;
			w->bh = nh;
			w->bk = nk * AF_BLOCK;
			if (!AF_NAME(load_queries)(w, qb, h, true))
				continue;
			AF_NAME(weights)(w, h);
			AF_NAME(add_dkv)(w);
			if (dq)
				AF_NAME(add_dq)(w, h);
			w->fresh = false;
		}
	AF_NAME(store_keys)(w);
}

static void AF_NAME(keys_only)(void *ctx, int64_t index, int lane)
{
	const af_bwd_job *g = ctx;
	const int64_t G = g->a.G, then = (index + 1) / G;
	const int32_t *block = g->blocks + 2 * (index / G), *next = then < g->nblocks ? g->blocks + 2 * then : NULL;
	AF_NAME(bwd_lane) w = AF_NAME(bwd_lane_of)(g, lane);
	AF_NAME(key_block)(&w, block[0], block[1], index % G, false, next ? next[0] : -1, next ? next[1] : 0, (index + 1) % G);
}

static void AF_NAME(queries_only)(void *ctx, int64_t index, int lane)
{
	const af_bwd_job *g = ctx;
	const af_call *a = &g->a;
	const int32_t *block = g->blocks + 2 * (g->nblocks - 1 - index / a->G); /* the last see the most */
	const int64_t head = index % a->G;
	AF_NAME(bwd_lane) w = AF_NAME(bwd_lane_of)(g, lane);
	for (int64_t kb = af_first(a, (int64_t)block[1] * AF_BLOCK) / AF_BLOCK; kb <= block[1]; kb++) {
		AF_NAME(load_keys)(&w, block[0], kb, head, true);
		if (!w.here)
			continue;
		for (int64_t h = head * a->group; h < (head + 1) * a->group; h++)
			if (AF_NAME(load_queries)(&w, block[1], h, false)) {
				AF_NAME(weights)(&w, h);
				AF_NAME(add_dq)(&w, h);
			}
	}
}

static void AF_NAME(whole_sequence)(void *ctx, int64_t index, int lane)
{
	const af_bwd_job *g = ctx;
	const int64_t s = g->longest[index / g->a.G], head = index % g->a.G;
	AF_NAME(bwd_lane) w = AF_NAME(bwd_lane_of)(g, lane);
	const int64_t len = af_len(&g->a, s), then = (index + 1) / g->a.G;
	for (int64_t kb = 0; kb * AF_BLOCK < len; kb++) {
		const bool last = (kb + 1) * AF_BLOCK >= len;
		AF_NAME(key_block)(&w, s, kb, head, true, !last ? s : then < g->nlongest ? g->longest[then] : -1, last ? 0 : kb + 1,
				   last ? (index + 1) % g->a.G : head);
	}
}

/* D of AF_CLEAR queries, and zeros where lines of dq, dk and dv may not be written, or go on at once. */
static void AF_NAME(before)(void *ctx, int64_t index, int lane)
{
	(void)lane;
	const af_bwd_job *g = ctx;
	const af_call *a = &g->a;
	const tt_arg *out[3] = {g->dq, g->dk, g->dv};
	for (int e = g->all_queries ? 1 : 0; e < (g->all_lines ? 1 : 3); e++)
		for (int64_t t = index * AF_CLEAR; t < TT_MIN((index + 1) * AF_CLEAR, out[e]->n[0]); t++)
			memset((float *)out[e]->p + t * out[e]->ld, 0, (size_t)out[e]->n[1] * sizeof(float));
	for (int64_t t = index * AF_CLEAR; t < TT_MIN((index + 1) * AF_CLEAR, a->T); t++)
		for (int64_t h = 0; h < a->H; h++) {
			const uint8_t *o = af_line(a, g->o, t, h * a->V), *dout = af_line(a, g->dout, t, h * a->V);
			vec sum = v_set(0);
			for (int64_t x = 0; x < a->V; x += 16)
				sum = v_add(sum, v_mul(AF_NAME(load_real)(dout, x), AF_NAME(load_real)(o, x)));
			a->D[t * a->H + h] = v_sum(sum);
		}
}

static void AF_NAME(bwd)(const tt_call *c)
{
	af_bwd_job g = af_bwd_job_of(c);
	tt_pool *pool = c->env->pool;
	const int64_t lines = TT_MAX(TT_MAX(g.dq->n[0], g.a.T), TT_MAX(g.dk->n[0], g.dv->n[0]));
	tt_pool_run(pool, tt_ceil_div(lines, AF_CLEAR), AF_NAME(before), &g);
	if (!g.split) {
		tt_pool_run(pool, g.nlongest * g.a.G, AF_NAME(whole_sequence), &g);
		return;
	}
	tt_pool_run(pool, g.nblocks * g.a.G, AF_NAME(keys_only), &g);
	tt_pool_run(pool, g.nblocks * g.a.G, AF_NAME(queries_only), &g);
}

#endif
