/* The fast kernels of attention against the reference, bit for bit: every instruction set, shape, order of lines and queries,
 * number of threads; operands and scratch that end at memory's end; scratch full of NaN. */
#include "attention_cases.h"

#include "kernels/attention_fast.h"

/* Head dims: whole micro tiles and vectors, and not; the widths of tiles 1 to 4; half a vector of words. */
static const struct { int64_t K, V; } dims[] = {{64, 64}, {32, 32}, {128, 128}, {16, 48}, {96, 80}, {48, 16}, {192, 128}, {80, 256}, {256, 112}};

/* Beyond the shared specs: several chunks and blocks of queries, tails, sequences beside sequences, more heads than a unit takes. */
static const spec more[] = {
	{"long", 1, 1, 0, 0, 0, 1, {450}, {0}, 0, 0, 0},
	{"long_gqa", 2, 3, 0, 0, 0, 1, {300}, {0}, 0, 0, 0},
	{"heads_9", 1, 9, 0, 0, 0, 2, {70, 49}, {0}, 0, 0, 0},
	{"long_window", 1, 2, 0, 0, 70, 1, {500}, {0}, 0, 0, 0},
	{"long_context", 1, 2, 0, 0, 0, 2, {390, 129}, {201, 64}, 0, 0, 1},
	{"long_shuffled", 1, 1, 0, 0, 0, 2, {260, 150}, {0}, 1, 0, 1},
	{"long_dropped", 2, 2, 0, 0, 100, 2, {260, 150}, {0}, 0, 1, 0},
	{"tails", 1, 2, 0, 0, 0, 8, {1, 2, 3, 47, 48, 49, 66, 130}, {0}, 0, 0, 0},
};

/* The rows that a compiled program would choose; false if the override does not take the case. */
static bool find(tt_test *t, const problem *p, const how *h, kernels *out)
{
	tt_attr_attention *at = TT_NEW(t->arena, tt_attr_attention);
	*at = attr_of(p);
	const int64_t S = p->parts ? tt_ceil_div(p->S, p->parts) : p->S; /* as planned */
	const int64_t qk = p->H * p->s.K, qv = p->H * p->s.V, gk = p->s.G * p->s.K, gv = p->s.G * p->s.V;
	const struct { tt_dtype dtype; int64_t lines, width; } of[] = {
		{h->dtype, p->T, qk}, {h->dtype, S, gk}, {h->dtype, S, gv}, {h->dtype, p->T, qv}, {TT_F32, p->T, p->H},
		{h->dtype, p->T, qv}, {TT_I32, p->T, 0}, {TT_I32, p->T, 0}, {TT_I32, p->s.nseq + 1, 0}, {TT_I32, p->S, 0},
		{TT_ACC, p->T, qk}, {TT_ACC, S, gk}, {TT_ACC, S, gv}, {TT_F32, p->T, qv}};
	const tt_value *v[TT_COUNT(of)];
	for (int i = 0; i < TT_COUNT(of); i++) {
		tt_value *x = TT_NEW(t->arena, tt_value);
		*x = (tt_value){.dtype = of[i].dtype, .ndim = of[i].width ? 2 : 1};
		x->dim[0].n = of[i].lines;
		x->dim[1].n = of[i].width;
		v[i] = x;
	}
	const tt_value *fin[] = {v[0], v[1], v[2], v[6], v[7], v[8], v[9]}, *state[] = {v[13], v[4], v[4]};
	tt_kernel_case f = {p->parts ? "attention_part" : "attention", at, 7, p->parts ? 3 : 2, fin, p->parts ? state : v + 3, h->threads}, b = {"attention_bwd", at, 10, 3, v, v + 10, h->threads};
	const tt_override *fo = tt_override_find(&f, h->isa), *bo = tt_override_find(&b, h->isa);
	if (!fo || !bo)
		return false;
	TT_CHECK(t, !fo->format && !bo->format && !fo->plan && !bo->plan);
	*out = (kernels){fo->run, bo->run, TT_MAX(fo->scratch(&f), bo->scratch(&b))};
	return true;
}

static int fast_sets(tt_isa out[3])
{
	const tt_isa all[] = {TT_ISA_AVX512_BF16, TT_ISA_AVX512, TT_ISA_AVX2};
	int n = 0;
	for (int i = 0; i < 3; i++)
		if (all[i] <= tt_isa_detect())
			out[n++] = all[i];
	return n;
}

/* Results about 2^-126, where bf16 chains lose their subnormals; and sums that cancel to zero. */
static void make_tiny(problem *p, uint64_t *state)
{
	for (int64_t x = 0; x < p->S * p->s.G * p->s.V; x++)
		p->v[x] = in_bf16(x % 3 ? p->v[x] * 0x1p-126 : 0);
	for (int64_t x = 0; x < p->T * p->H * p->s.V; x++)
		p->dout[x] = in_bf16(p->dout[x] * (double)(draw(state) % 2 ? 0x1p-100f : 0x1p+100f));
	for (int64_t x = 0; x < p->T * p->H * p->s.K; x++)
		p->q[x] = in_bf16(p->q[x] * (draw(state) % 2 ? 0x1p-126 : 1));
}

/* Scores so far apart that p goes through the subnormals. */
static void make_steep(problem *p)
{
	for (int64_t x = 0; x < p->T * p->H * p->s.K; x++)
		p->q[x] = in_bf16(p->q[x] * 30);
}

/* Nearly all p within a few percent of 2^-126, some where only the rounding to bf16 makes a normal number of them; and what they
 * multiply is all that a result consists of. */
static void make_edge(problem *p)
{
	const spec *s = &p->s;
	p->scale = 1;
	for (int64_t x = 0; x < p->T * p->H * s->K; x++)
		p->q[x] = x % s->K < 2;
	for (int i = 0; i < s->nseq; i++)
		for (int64_t y = 0; y < s->len[i]; y++)
			for (int64_t g = 0; g < s->G; g++) {
				const int64_t line = p->lines[p->table[i] + y] * s->G + g;
				p->k[line * s->K] = y ? -87.5 : 0;
				p->k[line * s->K + 1] = y ? 0.125 + (double)(y % 64) / 1024 : 0;
				for (int64_t x = 0; x < s->V; x++)
					p->v[line * s->V + x] *= y ? 0x1p20 : 0;
			}
	for (int64_t x = 0; x < p->T * p->H * s->V; x++)
		p->dout[x] *= x % 2 ? 0x1p-20 : 0x1p10;
}

static void check_spec(tt_test *t, const spec *like, int which, bool guarded)
{
	static const int threads[] = {1, 2, 5};
	tt_isa isas[3];
	const int n = fast_sets(isas);
	uint64_t state = t->seed;
	tt_mark m = tt_arena_push(t->arena);
	spec s = *like;
	s.K = dims[which % TT_COUNT(dims)].K;
	s.V = dims[which % TT_COUNT(dims)].V;
	for (int bf16 = 0; bf16 < 2; bf16++)
		for (int kind = 0; kind < (guarded ? 1 : 4); kind++) {
			if (t->tier == TT_TIER_QUICK && kind && kind != 1 + (which + bf16) % 3)
				continue;
			problem p = problem_of(t, &s);
			p.guarded = guarded;
			if (kind == 1)
				make_tiny(&p, &state);
			if (kind == 2)
				make_steep(&p);
			if (kind == 3)
				make_edge(&p);
			how h = {bf16 ? TT_BF16 : TT_F32, best(t), false, 1};
			const results want = run(t, &p, h, false);
			for (int i = 0; i < n; i++) {
				h.isa = isas[i];
				h.threads = threads[(which + kind + i) % 3];
				kernels k = {0};
				if (!TT_CHECK_MSG(t, find(t, &p, &h, &k), "%s: no row for %s", s.name, how_name(t, &h)))
					continue;
				const results got = run_kernels(t, &p, h, k, false);
				check_same(t, &got, &want, tt_arena_printf(t->arena, "%s K %d V %d kind %d %s", s.name, (int)s.K,
									   (int)s.V, kind, how_name(t, &h)));
			}
		}
	tt_arena_pop(t->arena, m);
}

static void same_bits(tt_test *t)
{
	tt_isa isas[3];
	if (fast_sets(isas) == 0 || best(t) == TT_ISA_REF)
		TT_SKIP(t, "no faster kernels for this CPU");
	for (int i = 0; i < TT_COUNT(specs); i++)
		for (int d = 0; d < (t->tier == TT_TIER_QUICK ? 1 : TT_COUNT(dims)); d++)
			check_spec(t, &specs[i], i + d, false);
	for (int i = 0; i < TT_COUNT(more); i++)
		for (int d = 0; d < (t->tier == TT_TIER_QUICK ? 1 : TT_COUNT(dims)); d++)
			check_spec(t, &more[i], i + d, false);
}

static void memory_ends(tt_test *t)
{
	tt_isa isas[3];
	if (fast_sets(isas) == 0 || best(t) == TT_ISA_REF)
		TT_SKIP(t, "no faster kernels for this CPU");
	for (int i = 0; i < TT_COUNT(specs); i++)
		check_spec(t, &specs[i], i, true);
	for (int i = 0; i < TT_COUNT(more); i++)
		check_spec(t, &more[i], i + 3, true);
}

/* Scores about -200: the exponential of a score of 0, which a key that is not here would have, is infinite. */
static void make_low(problem *p)
{
	for (int64_t x = 0; x < p->T * p->H; x++)
		p->q[x * p->s.K] = -25 / p->scale;
	for (int64_t x = 0; x < p->S * p->s.G; x++)
		if (!isnan(p->k[x * p->s.K]))
			p->k[x * p->s.K] = 8;
	for (int64_t x = 0; x < p->T * p->H; x++)
		p->q[x * p->s.K] = in_bf16(p->q[x * p->s.K]);
	p->lse = -200;
}

/* Keys of one rank at a time, of shares that end within a block, and where lines lie in any order, in every block. */
static void ring(tt_test *t)
{
	tt_isa isas[3];
	const int n = fast_sets(isas);
	if (n == 0 || best(t) == TT_ISA_REF)
		TT_SKIP(t, "no faster kernels for this CPU");
	for (int i = 0; i < TT_COUNT(specs) + TT_COUNT(more); i++)
		for (int parts = 2; parts <= 3; parts++)
			for (int part = 0; part < parts; part++) {
				tt_mark m = tt_arena_push(t->arena);
				spec s = i < TT_COUNT(specs) ? specs[i] : more[i - TT_COUNT(specs)];
				s.K = dims[(i + part) % 5].K;
				s.V = dims[(i + part) % 5].V;
				problem p = problem_of(t, &s);
				p.parts = parts;
				p.part = part;
				p.lse = 2;
				if ((i + part) % 3)
					make_low(&p);
				p.guarded = (i + part) % 2;
				how h = {(i + parts) % 2 ? TT_BF16 : TT_F32, best(t), false, 1};
				const results want = run(t, &p, h, false);
				h.isa = isas[(i + part) % n];
				h.threads = 1 + (i + part + parts) % 4;
				kernels k = {0};
				if (TT_CHECK_MSG(t, find(t, &p, &h, &k), "%s: no row for %s", s.name, how_name(t, &h))) {
					const results got = run_kernels(t, &p, h, k, false);
					check_same(t, &got, &want, tt_arena_printf(t->arena, "%s part %d of %d %s", s.name, part, parts, how_name(t, &h)));
				}
				tt_arena_pop(t->arena, m);
			}
}

/* Every number of threads, among them more than there are pairs of sequence and kv head: dq in a pass of its own. */
static void threads(tt_test *t)
{
	tt_isa isas[3];
	const int n = fast_sets(isas);
	if (n == 0 || best(t) == TT_ISA_REF)
		TT_SKIP(t, "no faster kernels for this CPU");
	for (int i = 0; i < TT_COUNT(more); i++)
		for (int bf16 = 0; bf16 < 2; bf16++) {
			tt_mark m = tt_arena_push(t->arena);
			spec s = more[i];
			s.K = 32, s.V = 48;
			problem p = problem_of(t, &s);
			results want = {0};
			for (int count = 1; count <= 8; count++) {
				how h = {bf16 ? TT_BF16 : TT_F32, isas[count == 1 ? 0 : count % n], false, count};
				kernels k;
				TT_CHECK(t, find(t, &p, &h, &k));
				results got = run_kernels(t, &p, h, k, false);
				if (count == 1)
					want = got;
				else
					check_same(t, &got, &want, tt_arena_printf(t->arena, "%s %s", s.name, how_name(t, &h)));
			}
			tt_arena_pop(t->arena, m);
		}
}

/* What must stay with the reference. */
static void refused(tt_test *t)
{
	static const struct { int64_t K, V; tt_dtype dtype; tt_isa isa; bool taken; } of[] = {
		{64, 64, TT_F32, TT_ISA_AVX2, true}, {64, 64, TT_BF16, TT_ISA_AVX2, true}, {256, 256, TT_F32, TT_ISA_AVX2, true},
		{8, 64, TT_F32, TT_ISA_AVX2, false}, {64, 40, TT_F32, TT_ISA_AVX2, false}, {100, 100, TT_BF16, TT_ISA_AVX2, false},
		{272, 64, TT_F32, TT_ISA_AVX2, false}, {64, 64, TT_F64, TT_ISA_AVX2, false}, {64, 64, TT_F32, TT_ISA_REF, false}};
	if (tt_isa_detect() < TT_ISA_AVX2)
		TT_SKIP(t, "no faster kernels for this CPU");
	for (int i = 0; i < TT_COUNT(of); i++) {
		spec s = specs[1];
		s.K = of[i].K, s.V = of[i].V;
		problem p = problem_of(t, &s);
		kernels k;
		TT_CHECK_MSG(t, find(t, &p, &(how){of[i].dtype, of[i].isa, false, 1}, &k) == of[i].taken, "case %d", i);
	}
}

/* Broken on purpose. Each must be seen in every result that it concerns. */
static tt_kernel_fn *right[2];
static void with_attr(const tt_call *c, bool bwd, double scale, int64_t window)
{
	tt_attr_attention at = *(const tt_attr_attention *)c->attr;
	at.scale *= scale;
	at.window += window;
	tt_call d = *c;
	d.attr = &at;
	right[bwd](&d);
}
static void scale_off_fwd(const tt_call *c) { with_attr(c, false, 1 + 0x1p-23, 0); }
static void scale_off_bwd(const tt_call *c) { with_attr(c, true, 1 + 0x1p-23, 0); }
static void window_off_fwd(const tt_call *c) { with_attr(c, false, 1, 1); }
static void window_off_bwd(const tt_call *c) { with_attr(c, true, 1, 1); }

static void broken(tt_test *t)
{
	tt_isa isas[3];
	if (fast_sets(isas) == 0 || best(t) == TT_ISA_REF)
		TT_SKIP(t, "no faster kernels for this CPU");
	for (int fault = 0; fault < 2; fault++) {
		spec s = more[3];
		s.K = 64, s.V = 64;
		problem p = problem_of(t, &s);
		how h = {TT_F32, isas[0], false, 1};
		kernels k;
		TT_CHECK(t, find(t, &p, &h, &k));
		const results want = run_kernels(t, &p, h, k, false);
		right[0] = k.fwd, right[1] = k.bwd;
		k.fwd = fault ? window_off_fwd : scale_off_fwd;
		k.bwd = fault ? window_off_bwd : scale_off_bwd;
		const results got = run_kernels(t, &p, h, k, false);
		for (int i = 0; i < NRESULTS; i++)
			TT_CHECK_MSG(t, differing(&got.r[i], 0, &want.r[i], 0, want.r[i].lines) > 0, "fault %d does not show in %s", fault,
				     result_names[i]);
	}
}

const tt_case tt_suite_attention_fast[] = {
	{"same_bits", same_bits, TT_TIER_QUICK},
	{"memory_ends", memory_ends, TT_TIER_QUICK},
	{"ring", ring, TT_TIER_QUICK},
	{"threads", threads, TT_TIER_QUICK},
	{"refused", refused, TT_TIER_QUICK},
	{"broken", broken, TT_TIER_QUICK},
	{0},
};
