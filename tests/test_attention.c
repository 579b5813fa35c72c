/* attention, attention_bwd: against the formulas in double, against the stated recurrence bit for bit, and invariance: of a
 * sequence to what surrounds it, of every result to threads and instruction sets, of `exact` to order and splitting. */
#include "attention_cases.h"

#include "kernels/exact.h"

/* ---- the formulas, in double --------------------------------------------------------------------------------------- */

typedef enum fault { RIGHT, SEES_NEXT, MISSES_OWN, WINDOW_WIDER, WINDOW_NARROWER, WRONG_GROUP, LINES_IN_ORDER, NO_SCALE, NO_D, NFAULTS } fault;

static results formula(const problem *p, fault f)
{
	const spec *s = &p->s;
	results r = {0};
	const int64_t lines[] = {p->T, p->T, p->T, p->S, p->S};
	const int64_t width[] = {p->H * s->V, p->H, p->H * s->K, s->G * s->K, s->G * s->V};
	for (int i = 0; i < NRESULTS; i++)
		r.r[i] = (tensor){lines[i], width[i], TT_NEWN(p->a, double, lines[i] * width[i] + 1), NULL};
	double *w = TT_NEWN(p->a, double, p->lines_n + 1);
	for (int64_t t = 0; t < p->T; t++)
		for (int64_t h = 0; h < p->H; h++) {
			const int64_t g = f == WRONG_GROUP ? h % s->G : h / s->group, seq = p->seq_ids[t];
			int64_t end = p->positions[t] + 1 + (f == SEES_NEXT) - (f == MISSES_OWN);
			end = TT_MAX(TT_MIN(end, s->len[seq]), 1);
			int64_t wide = s->window + (f == WINDOW_WIDER) - (f == WINDOW_NARROWER && s->window > 1);
			int64_t begin = s->window ? TT_MAX(0, p->positions[t] + 1 - wide) : 0;
			begin = TT_MIN(begin, end - 1);
			const double *q = p->q + (t * p->H + h) * s->K, *dout = p->dout + (t * p->H + h) * s->V;
			double m = -INFINITY, l = 0, D = 0;
#define LINE(j) (f == LINES_IN_ORDER ? p->table[seq] + (j) : p->lines[p->table[seq] + (j)])
			for (int64_t j = begin; j < end; j++) {
				const double *k = p->k + (LINE(j) * s->G + g) * s->K;
				w[j] = 0;
				for (int64_t x = 0; x < s->K; x++)
					w[j] += q[x] * k[x];
				w[j] *= f == NO_SCALE ? 1 : p->scale;
				m = fmax(m, w[j]);
			}
			for (int64_t j = begin; j < end; j++)
				l += w[j] = exp(w[j] - m);
			r.r[LSE].x[t * p->H + h] = m + log(l);
			double *o = r.r[O].x + (t * p->H + h) * s->V;
			for (int64_t j = begin; j < end; j++) {
				w[j] /= l;
				for (int64_t x = 0; x < s->V; x++)
					o[x] += w[j] * p->v[(LINE(j) * s->G + g) * s->V + x];
			}
			for (int64_t x = 0; x < s->V; x++)
				D += o[x] * dout[x];
			for (int64_t j = begin; j < end; j++) {
				const double *v = p->v + (LINE(j) * s->G + g) * s->V, *k = p->k + (LINE(j) * s->G + g) * s->K;
				double dp = 0;
				for (int64_t x = 0; x < s->V; x++) {
					dp += dout[x] * v[x];
					r.r[DV].x[(LINE(j) * s->G + g) * s->V + x] += w[j] * dout[x];
				}
				double ds = w[j] * (dp - (f == NO_D ? 0 : D)) * p->scale;
				for (int64_t x = 0; x < s->K; x++) {
					r.r[DQ].x[(t * p->H + h) * s->K + x] += ds * k[x];
					r.r[DK].x[(LINE(j) * s->G + g) * s->K + x] += ds * q[x];
				}
			}
#undef LINE
		}
	return r;
}

/* Greatest |a - b| of a result, over its greatest |b|; where nothing is, over a small one. */
static double distance(const tensor *a, const tensor *b)
{
	double d = 0, scale = 0.1;
	for (int64_t i = 0; i < b->lines * b->width; i++) {
		double e = fabs(a->x[i] - b->x[i]);
		d = e <= d ? d : e; /* NaN is far */
		if (isnan(e))
			return INFINITY;
		scale = fmax(scale, fabs(b->x[i]));
	}
	return d / scale;
}

static double worst(const results *a, const results *b)
{
	double d = 0;
	for (int i = 0; i < NRESULTS; i++)
		d = fmax(d, distance(&a->r[i], &b->r[i]));
	return d;
}

static const struct { tt_dtype dtype; bool exact; double tolerance; } kinds[] = {
	{TT_F64, false, 1e-13}, {TT_F32, false, 2e-6}, {TT_F32, true, 2e-6}, {TT_BF16, false, 2e-2}, {TT_BF16, true, 2e-2},
};

static void formulas(tt_test *t)
{
	for (int i = 0; i < TT_COUNT(specs); i++) {
		problem p = problem_of(t, &specs[i]);
		results want = formula(&p, RIGHT);
		for (int k = 0; k < TT_COUNT(kinds); k++) {
			how h = {kinds[k].dtype, best(t), kinds[k].exact, 1};
			results got = run(t, &p, h, false);
			for (int r = 0; r < NRESULTS; r++) {
				double d = distance(&got.r[r], &want.r[r]);
				TT_CHECK_MSG(t, d <= kinds[k].tolerance, "%s %s: %s is %.3g away", p.s.name, how_name(t, &h),
					     result_names[r], d);
			}
			TT_CHECK_MSG(t, !got.flag, "%s %s: flag raised", p.s.name, how_name(t, &h));
		}
	}
}

/* The check above must see each of these. */
static void formulas_broken(tt_test *t)
{
	bool seen[NFAULTS] = {true};
	for (int i = 0; i < TT_COUNT(specs); i++) {
		problem p = problem_of(t, &specs[i]);
		if (!p.T)
			continue;
		results got = run(t, &p, (how){TT_BF16, best(t), false, 1}, false);
		for (fault f = RIGHT + 1; f < NFAULTS; f++) {
			results wrong = formula(&p, f);
			seen[f] |= worst(&got, &wrong) > 2e-2;
		}
	}
	for (int f = 0; f < NFAULTS; f++)
		TT_CHECK_MSG(t, seen[f], "fault %d is not seen", f);
}

/* dq, dk, dv against central differences of the loss sum(do*o), in double. */
static void differences(tt_test *t)
{
	static const int which[] = {1, 3, 5, 9, 13, 14};
	const double eps = 1e-5;
	for (int i = 0; i < TT_COUNT(which); i++) {
		problem p = problem_of(t, &specs[which[i]]);
		how h = {TT_F64, TT_ISA_REF, false, 1};
		results r = run(t, &p, h, false);
		double *x[] = {p.q, p.k, p.v};
		uint64_t state = t->seed;
		for (int n = 0; n < 24; n++) {
			const tensor *g = &r.r[DQ + n % 3];
			int64_t at = (int64_t)(draw(&state) % (uint64_t)(g->lines * g->width));
			double kept = x[n % 3][at], loss[2] = {0};
			if (isnan(kept)) {
				TT_CHECK_MSG(t, g->x[at] == 0, "%s: a line of no sequence has a gradient", p.s.name);
				continue;
			}
			for (int side = 0; side < 2; side++) {
				x[n % 3][at] = kept + (side ? eps : -eps);
				results f = run(t, &p, h, true);
				for (int64_t e = 0; e < p.T * p.H * p.s.V; e++)
					loss[side] += f.r[O].x[e] * p.dout[e];
			}
			x[n % 3][at] = kept;
			double want = (loss[1] - loss[0]) / (2 * eps);
			TT_CHECK_MSG(t, fabs(want - g->x[at]) <= 1e-7 * (1 + fabs(want)), "%s: %s[%lld] is %.12g, differences say %.12g",
				     p.s.name, result_names[DQ + n % 3], (long long)at, g->x[at], want);
		}
	}
}

/* ---- the recurrence, written out ------------------------------------------------------------------------------------- */

static float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }

/* One step of a chain; bf16 chains treat subnormals as zeros. A sum that rounds up to 2^-126 is judged by what it was, rounded
 * with no bound on the exponent: the long double holds it, the two terms being within 2^40 of each other here. */
static float step(float a, float b, float c, bool bf16)
{
	if (!bf16)
		return fmaf(a, b, c);
	a = flushed(a), b = flushed(b), c = flushed(c);
	const float r = fmaf(a, b, c);
	const long double sum = (long double)a * (long double)b + (long double)c;
	return fabsf(r) == 0x1p-126f && fabsl(sum) < 0x1p-126L - 0x1p-151L ? copysignf(0, r) : flushed(r);
}

/* The order of a chain: element i of n in pairs, odd ones first; -1 where the partner is missing. */
static int64_t place(int64_t i, int64_t n, bool bf16)
{
	int64_t x = bf16 ? i ^ 1 : i;
	return x < n ? x : -1;
}

static float chain(const double *a, const double *b, int64_t n, bool bf16)
{
	float c = 0;
	for (int64_t i = 0; i < n + (n & 1); i++) {
		int64_t x = place(i, n, bf16);
		if (x >= 0)
			c = step((float)a[x], (float)b[x], c, bf16);
	}
	return c;
}

static float to_value(float x, bool bf16) { return bf16 ? tt_bf16_to_f32(tt_f32_to_bf16(x)) : x; }

static float join16(float lane[16])
{
	for (int w = 8; w; w /= 2)
		for (int i = 0; i < w; i++)
			lane[i] += lane[i + w];
	return lane[0];
}

static results recurrence(const problem *p, bool bf16)
{
	const spec *s = &p->s;
	const float scale = (float)p->scale;
	results r = {0};
	const int64_t lines[] = {p->T, p->T, p->T, p->S, p->S};
	const int64_t width[] = {p->H * s->V, p->H, p->H * s->K, s->G * s->K, s->G * s->V};
	for (int i = 0; i < NRESULTS; i++)
		r.r[i] = (tensor){lines[i], width[i], TT_NEWN(p->a, double, lines[i] * width[i] + 1), NULL};
	int64_t longest = 0;
	for (int i = 0; i < s->nseq; i++)
		longest = TT_MAX(longest, s->len[i]);
	/* of one sequence and q head: P and DS [query position][key position], and the query at each position */
	float *P = TT_NEWN(p->a, float, longest * longest + 1), *DS = TT_NEWN(p->a, float, longest * longest + 1);
	int64_t *query = TT_NEWN(p->a, int64_t, longest + 2);
	for (int seq = 0; seq < s->nseq; seq++)
		for (int64_t h = 0; h < p->H; h++) {
			const int64_t g = h / s->group, len = s->len[seq];
			memset(P, 0, (size_t)(len * len) * 4);
			memset(DS, 0, (size_t)(len * len) * 4);
			for (int64_t x = 0; x < len; x++)
				query[x] = -1;
			for (int64_t t = 0; t < p->T; t++)
				if (p->seq_ids[t] == seq)
					query[p->positions[t]] = t;
#define K_LINE(j) (p->k + (p->lines[p->table[seq] + (j)] * s->G + g) * s->K)
#define V_LINE(j) (p->v + (p->lines[p->table[seq] + (j)] * s->G + g) * s->V)
			for (int64_t at = 0; at < len; at++) {
				const int64_t t = query[at];
				if (t < 0)
					continue;
				const int64_t first = s->window && at >= s->window ? at - s->window + 1 : 0;
				const double *q = p->q + (t * p->H + h) * s->K, *dout = p->dout + (t * p->H + h) * s->V;
				float m = -INFINITY, l = 0, *o = TT_NEWN(p->a, float, s->V);
				for (int64_t b = first / 64; b <= at / 64; b++) {
					const int64_t j0 = TT_MAX(first, b * 64), j1 = TT_MIN(at + 1, b * 64 + 64);
					float e[64] = {0}, lane[16] = {0}, m1 = m;
					for (int64_t j = j0; j < j1; j++) {
						e[j - b * 64] = scale * chain(q, K_LINE(j), s->K, bf16);
						m1 = fmaxf(m1, e[j - b * 64]);
					}
					float back = exp_f32(m - m1);
					for (int64_t j = j0; j < j1; j++) {
						e[j - b * 64] = exp_f32(e[j - b * 64] - m1);
						lane[j % 16] += e[j - b * 64];
					}
					l = fmaf(l, back, join16(lane));
					for (int64_t x = 0; x < s->V; x++) {
						o[x] *= back;
						for (int64_t i = b * 64; i < b * 64 + 64; i++) {
							int64_t j = bf16 ? i ^ 1 : i;
							if (j >= j0 && j < j1)
								o[x] = step(to_value(e[j - b * 64], bf16), (float)V_LINE(j)[x], o[x], bf16);
						}
					}
					m = m1;
				}
				float lse = m + log_f32(l), lane[16] = {0};
				r.r[LSE].x[t * p->H + h] = (double)lse;
				for (int64_t x = 0; x < s->V; x++) {
					float y = to_value(o[x] / l, bf16);
					r.r[O].x[(t * p->H + h) * s->V + x] = (double)y;
					lane[x % 16] += y * (float)dout[x];
				}
				const float D = join16(lane);
				for (int64_t j = first; j <= at; j++) {
					float e = exp_f32(scale * chain(q, K_LINE(j), s->K, bf16) - lse);
					float dp = chain(dout, V_LINE(j), s->V, bf16);
					P[at * len + j] = to_value(e, bf16);
					DS[at * len + j] = to_value(e * (dp - D) * scale, bf16);
				}
				for (int64_t x = 0; x < s->K; x++) {
					float c = 0;
					for (int64_t i = 0; i < len + (len & 1); i++) {
						int64_t j = place(i, len, bf16);
						if (j >= 0 && j >= first && j <= at)
							c = step(DS[at * len + j], (float)K_LINE(j)[x], c, bf16);
					}
					r.r[DQ].x[(t * p->H + h) * s->K + x] = (double)c;
				}
			}
			/* Heads ascending outside, positions inside: dk and dv go on from the head before. */
			for (int64_t j = 0; j < len; j++)
				for (int part = 0; part < 2; part++) {
					const int64_t n = part ? s->V : s->K;
					const float *w = part ? P : DS;
					const double *by = part ? p->dout : p->q;
					double *out = r.r[part ? DV : DK].x + (p->lines[p->table[seq] + j] * s->G + g) * n;
					for (int64_t x = 0; x < n; x++) {
						float c = (float)out[x];
						for (int64_t i = 0; i < len + (len & 1); i++) {
							int64_t at = place(i, len, bf16);
							bool seen = at >= j && query[TT_MAX(at, 0)] >= 0 && (!s->window || at < j + s->window);
							if (seen)
								c = step(w[at * len + j], (float)by[(query[at] * p->H + h) * n + x], c, bf16);
						}
						out[x] = (double)c;
					}
				}
		}
	return r;
}

/* Equal but for nothing: -0 does not occur in results, and a zero of the model may have either sign. */
static int64_t unequal(const tensor *got, const tensor *want)
{
	int64_t n = 0;
	for (int64_t i = 0; i < want->lines * want->width; i++)
		n += !(got->x[i] == want->x[i]) || (got->x[i] == 0 && signbit(got->x[i]));
	return n;
}

static void recurrences(tt_test *t)
{
	tt_isa isas[3];
	const int n = sets(isas);
	for (int i = 0; i < TT_COUNT(specs); i++)
		for (int bf16 = 0; bf16 < 2; bf16++)
			for (int tiny = 0; tiny < 2; tiny++) {
				problem p = problem_of(t, &specs[i]);
				/* Results about 2^-126, where bf16 chains lose their subnormals; and sums that cancel to zero. */
				for (int64_t x = 0; tiny && x < p.S * p.s.G * p.s.V; x++)
					p.v[x] = in_bf16(x % 3 ? p.v[x] * 0x1p-126 : 0);
				for (int64_t x = 0; tiny && x < p.T * p.H * p.s.K; x++)
					p.q[x] = in_bf16(p.q[x] * 0x1p-126);
				results want = recurrence(&p, bf16);
				for (int e = 0; e < n; e++) {
					how h = {bf16 ? TT_BF16 : TT_F32, isas[e], false, 1};
					results got = run(t, &p, h, false);
					for (int r = 0; r < NRESULTS; r++) {
						int64_t bad = unequal(&got.r[r], &want.r[r]);
						TT_CHECK_MSG(t, !bad, "%s%s %s: %lld elements of %s are not the recurrence's", p.s.name,
							     tiny ? " tiny" : "", how_name(t, &h), (long long)bad, result_names[r]);
					}
				}
			}
}

/* ---- invariance ------------------------------------------------------------------------------------------------------- */

static const how invariant[] = {
	{TT_F32, TT_ISA_REF, false, 1}, {TT_BF16, TT_ISA_REF, false, 1}, {TT_F32, TT_ISA_REF, true, 1}, {TT_BF16, TT_ISA_REF, true, 1}};

/* Instruction sets and threads, among them more threads than pairs of sequence and kv head: the other way to make dq. */
static void sets_and_threads(tt_test *t)
{
	static const spec wide = {"wide", 1, 2, 40, 72, 0, 1, {200}, {0}, 0, 0, 1};
	tt_isa isas[3];
	const int n = sets(isas);
	for (int i = -1; i < TT_COUNT(specs); i++) {
		problem p = problem_of(t, i < 0 ? &wide : &specs[i]);
		for (int k = 0; k < TT_COUNT(invariant); k++) {
			how h = invariant[k];
			results want = run(t, &p, h, false);
			for (int e = 0; e < n + 1; e++) { /* the last of the sets is `want` */
				h.isa = isas[TT_MAX(e - 2, 0)];
				h.threads = e == 0 ? 2 : e == 1 ? 5 : 1;
				results got = run(t, &p, h, false);
				check_same(t, &got, &want, tt_arena_printf(t->arena, "%s %s", p.s.name, how_name(t, &h)));
			}
		}
		results a = run(t, &p, (how){TT_F64, TT_ISA_REF, false, 1}, false);
		results b = run(t, &p, (how){TT_F64, TT_ISA_REF, false, 5}, false);
		check_same(t, &a, &b, tt_arena_printf(t->arena, "%s f64 threads", p.s.name));
	}
}

/* Positions below n of sequence `seq` alone, K/V in order; queries only from position `from` on. */
static problem alone(const problem *p, int seq, int64_t from, int64_t n)
{
	problem o = *p;
	const int64_t qk = p->H * p->s.K, qv = p->H * p->s.V, gk = p->s.G * p->s.K, gv = p->s.G * p->s.V;
	o.s.nseq = 1;
	o.s.len[0] = n;
	o.S = o.lines_n = n;
	o.table = TT_NEWN(p->a, int32_t, 2);
	o.table[1] = (int32_t)n;
	o.lines = TT_NEWN(p->a, int32_t, n);
	o.k = TT_NEWN(p->a, double, n * gk);
	o.v = TT_NEWN(p->a, double, n * gv);
	o.positions = TT_NEWN(p->a, int32_t, n);
	o.seq_ids = TT_NEWN(p->a, int32_t, n);
	o.q = TT_NEWN(p->a, double, n * qk);
	o.dout = TT_NEWN(p->a, double, n * qv);
	o.T = 0;
	for (int64_t x = 0; x < n; x++) {
		const int64_t line = p->lines[p->table[seq] + x];
		o.lines[x] = (int32_t)x;
		memcpy(o.k + x * gk, p->k + line * gk, (size_t)gk * 8);
		memcpy(o.v + x * gv, p->v + line * gv, (size_t)gv * 8);
		for (int64_t t = 0; t < p->T; t++)
			if (x >= from && p->seq_ids[t] == seq && p->positions[t] == x) {
				o.positions[o.T] = (int32_t)x;
				memcpy(o.q + o.T * qk, p->q + t * qk, (size_t)qk * 8);
				memcpy(o.dout + o.T * qv, p->dout + t * qv, (size_t)qv * 8);
				o.T++;
			}
	}
	return o;
}

/* Lines that differ between a part of sequence `seq` and the whole call; K/V lines too if `all`. */
static int64_t part_differs(const problem *whole, const results *w, int seq, const problem *part, const results *r, bool all)
{
	int64_t bad = 0;
	for (int64_t i = 0; i < part->T; i++)
		for (int64_t t = 0; t < whole->T; t++)
			if (whole->seq_ids[t] == seq && whole->positions[t] == part->positions[i])
				for (int e = O; e <= (all ? DQ : LSE); e++)
					bad += differing(&r->r[e], i, &w->r[e], t, 1) != 0;
	for (int64_t x = 0; all && x < part->s.len[0]; x++)
		for (int e = DK; e <= DV; e++)
			bad += differing(&r->r[e], x, &w->r[e], whole->lines[whole->table[seq] + x], 1) != 0;
	return bad;
}

/* A sequence alone against among others; every prefix; every query on its own. */
static void sequences_alone(tt_test *t)
{
	for (int i = 0; i < TT_COUNT(specs); i++)
		for (int k = 0; k < TT_COUNT(invariant); k++) {
			how h = invariant[k];
			h.isa = best(t);
			problem p = problem_of(t, &specs[i]);
			results whole = run(t, &p, h, false);
			for (int seq = 0; seq < p.s.nseq; seq++) {
				const int64_t len = p.s.len[seq];
				problem one = alone(&p, seq, 0, len);
				results r = run(t, &one, h, false);
				int64_t bad = part_differs(&p, &whole, seq, &one, &r, true);
				TT_CHECK_MSG(t, !bad, "%s %s: sequence %d alone: %lld lines differ", p.s.name, how_name(t, &h), seq,
					     (long long)bad);
				for (int64_t n = 1; n <= len; n += n < 70 ? 1 : 7) {
					tt_mark m = tt_arena_push(t->arena);
					problem prefix = alone(&p, seq, 0, n), last = alone(&p, seq, n - 1, n);
					r = run(t, &prefix, h, true);
					bad = part_differs(&p, &whole, seq, &prefix, &r, false);
					r = run(t, &last, h, true);
					bad += part_differs(&p, &whole, seq, &last, &r, false);
					TT_CHECK_MSG(t, !bad, "%s %s: prefix %lld of sequence %d: %lld lines differ", p.s.name,
						     how_name(t, &h), (long long)n, seq, (long long)bad);
					tt_arena_pop(t->arena, m);
				}
			}
		}
	/* The comparison sees a sequence that reaches one position too far or too few. */
	problem p = problem_of(t, &specs[7]), q = p;
	how h = {TT_F32, best(t), false, 1};
	q.positions = TT_NEWN(t->arena, int32_t, p.T);
	for (int64_t i = 0; i < p.T; i++)
		q.positions[i] = TT_MAX(p.positions[i] - 1, 0);
	results whole = run(t, &q, h, true);
	problem one = alone(&p, 2, 0, p.s.len[2]);
	results r = run(t, &one, h, true);
	TT_CHECK(t, part_differs(&p, &whole, 2, &one, &r, false) > p.s.len[2] / 2);
}

/* ---- exact -------------------------------------------------------------------------------------------------------------- */

/* Every second query. */
static problem half_of(const problem *p, int which)
{
	problem o = *p;
	const int64_t qk = p->H * p->s.K, qv = p->H * p->s.V;
	o.T = 0;
	o.q = TT_NEWN(p->a, double, p->T * qk + 1);
	o.dout = TT_NEWN(p->a, double, p->T * qv + 1);
	o.positions = TT_NEWN(p->a, int32_t, p->T + 1);
	o.seq_ids = TT_NEWN(p->a, int32_t, p->T + 1);
	for (int64_t t = which; t < p->T; t += 2) {
		o.positions[o.T] = p->positions[t];
		o.seq_ids[o.T] = p->seq_ids[t];
		memcpy(o.q + o.T * qk, p->q + t * qk, (size_t)qk * 8);
		memcpy(o.dout + o.T * qv, p->dout + t * qv, (size_t)qv * 8);
		o.T++;
	}
	return o;
}

/* Elements of the whole call that are not the sums of the halves. */
static int64_t not_sums(const tensor *whole, const tensor *a, const tensor *b, bool exact)
{
	int64_t n = 0;
	for (int64_t i = 0; i < whole->lines * whole->width; i++) {
		exact_sum x, y;
		memcpy(&x, a->raw[i], sizeof x);
		memcpy(&y, b->raw[i], sizeof y);
		exact_add_sum(&x, &y);
		n += exact ? memcmp(&x, whole->raw[i], sizeof x) != 0 : (float)a->x[i] + (float)b->x[i] != (float)whole->x[i];
	}
	return n;
}

static void exact_split(tt_test *t)
{
	int64_t fast_differs = 0;
	for (int i = 0; i < TT_COUNT(specs); i++)
		for (int bf16 = 0; bf16 < 2; bf16++)
			for (int exact = 0; exact < 2; exact++) {
				problem p = problem_of(t, &specs[i]), a = half_of(&p, 0), b = half_of(&p, 1);
				how h = {bf16 ? TT_BF16 : TT_F32, best(t), exact, 1};
				results w = run(t, &p, h, false), x = run(t, &a, h, false), y = run(t, &b, h, false);
				for (int e = DK; e <= DV; e++) {
					int64_t n = not_sums(&w.r[e], &x.r[e], &y.r[e], exact);
					if (exact)
						TT_CHECK_MSG(t, !n, "%s %s: %lld sums of %s differ", p.s.name, how_name(t, &h),
							     (long long)n, result_names[e]);
					else
						fast_differs += n;
				}
				for (int64_t q = 0; q < p.T; q++)
					for (int e = O; e <= DQ; e++)
						TT_CHECK(t, !differing(&(q % 2 ? &y : &x)->r[e], q / 2, &w.r[e], q, 1));
			}
	TT_CHECK_MSG(t, fast_differs > 100, "the fast sums should depend on the split: the check is blind");
}

/* Other places for the K/V lines. */
static void permuted_lines(tt_test *t)
{
	uint64_t state = t->seed;
	for (int i = 0; i < TT_COUNT(specs); i++)
		for (int k = 0; k < TT_COUNT(invariant); k++) {
			how h = invariant[k];
			h.isa = best(t);
			problem p = problem_of(t, &specs[i]), q = p;
			const int64_t gk = p.s.G * p.s.K, gv = p.s.G * p.s.V;
			q.lines = TT_NEWN(t->arena, int32_t, p.S + 1);
			memcpy(q.lines, p.lines, (size_t)p.S * 4);
			shuffle(q.lines, p.S, &state);
			q.k = TT_NEWN(t->arena, double, p.S * gk + 1);
			q.v = TT_NEWN(t->arena, double, p.S * gv + 1);
			for (int64_t x = 0; x < p.S; x++) {
				memcpy(q.k + q.lines[x] * gk, p.k + p.lines[x] * gk, (size_t)gk * 8);
				memcpy(q.v + q.lines[x] * gv, p.v + p.lines[x] * gv, (size_t)gv * 8);
			}
			results a = run(t, &p, h, false), b = run(t, &q, h, false);
			int64_t bad = 0;
			for (int e = O; e <= DQ; e++)
				bad += differing(&a.r[e], 0, &b.r[e], 0, p.T);
			for (int64_t x = 0; x < p.S; x++)
				for (int e = DK; e <= DV; e++)
					bad += differing(&a.r[e], p.lines[x], &b.r[e], q.lines[x], 1);
			TT_CHECK_MSG(t, !bad, "%s %s: %lld elements differ", p.s.name, how_name(t, &h), (long long)bad);
		}
}

/* What exact cannot prove raises the flag. */
static void exact_flags(tt_test *t)
{
	static const struct { char operand; double value; bool raised, forward; } cases[] = {
		{'v', 0x1p24, false, true}, {'v', 0x1p26, true, true},       {'v', (double)NAN, true, true},
		{'k', (double)NAN, true, true}, {'q', (double)INFINITY, true, true}, {'k', (double)-INFINITY, true, true},
		{'d', 0x1p20, false, false}, {'d', 0x1p40, true, false},     {'d', (double)NAN, true, false},
		{'v', -0x1p26, true, true},  {'v', 1, false, false},         {'m', (double)-INFINITY, true, true},
	};
	for (int i = 0; i < TT_COUNT(cases); i++)
		for (int bf16 = 0; bf16 < 2; bf16++) {
			problem p = problem_of(t, &specs[1]);
			double *x = cases[i].operand == 'q' ? p.q : cases[i].operand == 'k' ? p.k : cases[i].operand == 'v' ? p.v : p.dout;
			if (cases[i].operand == 'm') {
				/* A key that nobody attends to: all that shows is the operand itself. */
				for (int64_t j = 3; j < p.T * p.H * p.s.K; j += p.s.K)
					p.q[j] = fabs(p.q[j]) + 0.125;
				for (int64_t g = 0; g < p.s.G; g++)
					p.k[(p.s.G + g) * p.s.K + 3] = cases[i].value;
			} else {
				x[3] = cases[i].value;
			}
			how h = {bf16 ? TT_BF16 : TT_F32, best(t), true, 1};
			results r = run(t, &p, h, cases[i].forward);
			TT_CHECK_MSG(t, r.flag == cases[i].raised, "%c = %g: flag is %d", cases[i].operand, cases[i].value, r.flag);
		}
}

const tt_case tt_suite_attention[] = {
	{"formulas", formulas, TT_TIER_QUICK},
	{"formulas_broken", formulas_broken, TT_TIER_QUICK},
	{"differences", differences, TT_TIER_QUICK},
	{"recurrences", recurrences, TT_TIER_QUICK},
	{"sets_and_threads", sets_and_threads, TT_TIER_QUICK},
	{"sequences_alone", sequences_alone, TT_TIER_QUICK},
	{"exact_split", exact_split, TT_TIER_QUICK},
	{"permuted_lines", permuted_lines, TT_TIER_QUICK},
	{"exact_flags", exact_flags, TT_TIER_QUICK},
	{0},
};
