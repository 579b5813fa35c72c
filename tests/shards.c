/* shards: see shards.h. */
#include "shards.h"

#include "ir/internal.h"
#include "ops/ops.h"

#include <math.h>
#include <stdio.h>

void shard_report(shard_bench *b, const tt_axis_type *tin, const char *fmt, ...)
{
	char what[256];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	tt_buf s = {0};
	tt_buf_printf(&s, "%s(", b->op->name);
	for (int i = 0; tin && i < b->node->nin; i++) {
		tt_buf_str(&s, i ? ", " : "");
		tt_axis_type_print(tin[i], &s);
	}
	tt_buf_printf(&s, ") on %d ranks%s, %s: %s", b->k, b->rows ? " (rows)" : "", b->exact ? "exact" : "f64", what);
	if (!b->failures++)
		snprintf(b->text, sizeof b->text, "%s", s.s);
	if (!b->quiet && b->failures <= 20)
		tt_test_fail(b->t, __FILE__, __LINE__, "%s", s.s);
	tt_buf_fini(&s);
}

/* ---- values ------------------------------------------------------------------------------------------------------------- */

static uint64_t next(shard_bench *b)
{
	b->seed = b->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return b->seed >> 33;
}
static double uniform(shard_bench *b) { return (double)((int64_t)(next(b) % 2048) - 1024) / 1024; } /* exact in fp32 */

static bool has_limbs(const shard_bench *b, tt_dtype dt) { return b->exact && dt == TT_ACC; }
bool shard_is_float(tt_dtype dt) { return dt != TT_I32 && dt != TT_I64 && dt != TT_NODTYPE; }

shard_tensor shard_tensor_new(const shard_bench *b, tt_dtype dt, int ndim, const int64_t *n)
{
	shard_tensor t = {.ndim = ndim, .count = 1};
	for (int d = 0; d < ndim; d++)
		t.count *= t.n[d] = n[d];
	if (has_limbs(b, dt))
		t.limb = TT_NEWN(b->a, int64_t, 3 * t.count + 1);
	else
		t.x = TT_NEWN(b->a, double, t.count + 1);
	return t;
}
shard_tensor shard_tensor_like(const shard_bench *b, const tt_value *v)
{
	int64_t n[TT_MAX_DIMS];
	for (int d = 0; d < v->ndim; d++)
		n[d] = v->dim[d].n;
	return shard_tensor_new(b, v->dtype, v->ndim, n);
}

/* Limbs 1 and 2 into [-2^39, 2^39): then the limbs are a function of the value. */
void shard_carry(int64_t *limb, int64_t count, int64_t i)
{
	for (int j = 2; j > 0; j--) {
		int64_t c = (limb[j * count + i] + ((int64_t)1 << 39)) >> 40;
		limb[j * count + i] -= c * ((int64_t)1 << 40);
		limb[(j - 1) * count + i] += c;
	}
}

void shard_fill_random(shard_bench *b, shard_tensor *t)
{
	for (int64_t i = 0; i < t->count; i++) {
		if (t->x) {
			t->x[i] = uniform(b);
			continue;
		}
		for (int j = 0; j < 3; j++)
			t->limb[j * t->count + i] = (int64_t)(next(b) % 0x7fffffff) - 0x3fffffff;
	}
}

/* Sequences: on a rows axis they end where shards of 2 and of 3 ranks do; else no shard keeps them whole. */
static int64_t sequence_of(const shard_bench *b, int64_t tokens, int64_t t, int64_t *start)
{
	static const int64_t whole[] = {0, 4, 6, 8, 12}, cut[] = {0, 5, 12}, quarters[] = {0, 3, 6, 9, 12};
	const int64_t *edge = b->quarters ? quarters : b->rows ? whole : cut;
	int64_t s = 0;
	*start = 0;
	if (tokens != SHARD_SEQ_TOKENS)
		return 0;
	while (edge[s + 1] <= t)
		s++;
	*start = edge[s];
	return s;
}

void shard_fill_input(shard_bench *b, const tt_value *v, shard_tensor *t)
{
	shard_fill_random(b, t);
	int64_t start;
	for (int64_t i = 0; i < t->count && t->x; i++) {
		switch (v->fill) {
		case TT_FILL_NORMAL:
			break;
		case TT_FILL_POSITIVE:
			t->x[i] = 1.25 + t->x[i] / 2;
			break;
		case TT_FILL_IDS:
			t->x[i] = (double)(next(b) % SHARD_VOCAB);
			break;
		case TT_FILL_LABELS:
			t->x[i] = i % 3 == 1 ? -100 : (double)(next(b) % SHARD_VOCAB);
			break;
		case TT_FILL_POSITIONS:
			sequence_of(b, t->count, i, &start);
			t->x[i] = (double)(i - start);
			break;
		case TT_FILL_SEQ_IDS:
			t->x[i] = (double)sequence_of(b, t->count, i, &start);
			break;
		case TT_FILL_SEQ_TABLE: { /* entries behind the last sequence stay at the end */
			int64_t tokens = t->count - 1, at = 0;
			for (int64_t s = 0; s < i && at < tokens; s++)
				for (int64_t id = sequence_of(b, tokens, at, &start); at < tokens && sequence_of(b, tokens, at, &start) == id;)
					at++;
			t->x[i] = (double)at;
			break;
		}
		case TT_FILL_LINES: /* whole, K/V lines may lie in any order; in shards they follow the tokens */
			t->x[i] = b->rows ? (double)i : (double)((5 * i + 3) % t->count);
			break;
		case TT_FILL_ONE_STEP:
			t->x[i] = (double[]){0.125, 0.125, 0.0625, 0}[i % 4];
			break;
		}
	}
}

/* ---- one kernel -------------------------------------------------------------------------------------------------------------- */

/* Where element i lies: panels of 64 features of the dim that is not contracted (pack.k.c), f32. */
static int64_t packed_at(const tt_value *v, int64_t i)
{
	if (v->format == TT_PLAIN)
		return i;
	int64_t o = i / v->dim[1].n, c = i % v->dim[1].n, f = v->format == TT_PACK_FWD ? o : c;
	int64_t deep = v->format == TT_PACK_FWD ? c : o, depth = v->dim[v->format == TT_PACK_FWD].n;
	return (f / 64 * depth + deep) * 64 + f % 64;
}

static void to_storage(const shard_bench *b, const tt_value *v, const shard_tensor *t, tt_arg *a, bool output)
{
	*a = (tt_arg){.dtype = v->dtype, .format = v->format, .ndim = v->ndim, .ld = 1};
	for (int d = 0; d < v->ndim; d++) {
		a->n[d] = v->dim[d].n;
		a->ld *= d ? v->dim[d].n : 1;
	}
	bool limbs = has_limbs(b, v->dtype);
	int size = limbs ? 8 : tt_dtype_size(v->dtype, TT_FAST, !b->exact);
	int64_t n = v->format == TT_PLAIN ? tt_value_count(v) : tt_format_count(v->format, v->dtype, v->dim[0].n, v->dim[1].n);
	a->plane = tt_round_up(n * size, 64);
	char *p = tt_arena_alloc(b->a, (size_t)(3 * a->plane + 64));
	a->p = (void *)(((uintptr_t)p + 63) & ~(uintptr_t)63);
	for (int64_t i = 0; !output && v->format != TT_PLAIN && i < t->count; i++)
		((float *)a->p)[packed_at(v, i)] = (float)t->x[i];
	for (int64_t i = 0; !output && v->format == TT_PLAIN && i < n; i++) {
		if (limbs)
			for (int j = 0; j < 3; j++)
				((int64_t *)(void *)((char *)a->p + j * a->plane))[i] = t->limb[j * n + i];
		else if (v->dtype == TT_I32)
			((int32_t *)a->p)[i] = (int32_t)t->x[i];
		else if (size == 8)
			((double *)a->p)[i] = t->x[i];
		else
			((float *)a->p)[i] = (float)t->x[i];
	}
}

static void from_storage(const shard_bench *b, const tt_value *v, const tt_arg *a, shard_tensor *t)
{
	*t = shard_tensor_like(b, v);
	for (int64_t i = 0; i < t->count; i++) {
		int64_t at = packed_at(v, i);
		if (t->limb)
			for (int j = 0; j < 3; j++)
				t->limb[j * t->count + i] = ((const int64_t *)(const void *)((const char *)a->p + j * a->plane))[at];
		else
			t->x[i] = tt_dtype_size(v->dtype, TT_FAST, !b->exact) == 8 ? ((const double *)a->p)[at] : (double)((const float *)a->p)[at];
	}
}

void shard_run_node(shard_bench *b, const tt_graph *g, const tt_node *n, shard_tensor *val)
{
	tt_arg arg[TT_MAX_IO];
	const tt_value *io[TT_MAX_IO];
	for (int i = 0; i < n->nin + n->nout; i++) {
		tt_v v = i < n->nin ? n->in[i] : n->out[i - n->nin];
		io[i] = v ? &g->values[v] : NULL;
		arg[i] = (tt_arg){0};
		if (v)
			to_storage(b, io[i], &val[v], &arg[i], i >= n->nin);
	}
	tt_env env = {.threads = 1, .numerics = b->exact ? TT_EXACT : TT_FAST, .f64 = !b->exact, .step = 2, .seed = 5}; /* not the first: no input is left unread */
	_Atomic int flag = 0;
	size_t scratch = n->op->scratch ? n->op->scratch(n->attr, n->nin, io, n->nout, io + n->nin, &env) : 0;
	char *s = tt_arena_alloc(b->a, scratch + 64);
	tt_call c = {.in = arg, .out = arg + n->nin, .nin = n->nin, .nout = n->nout, .attr = n->attr, .env = &env, .flag = &flag,
		     .scratch = (void *)(((uintptr_t)s + 63) & ~(uintptr_t)63)};
	const tt_kernel *k = tt_kernel_ref(n->op->name, TT_ISA_REF, !b->exact);
	TT_ASSERT(k || n->op->kernel, "%s has no kernel", n->op->name);
	(!k ? n->op->kernel : b->exact && k->exact ? k->exact : k->run)(&c);
	if (flag)
		shard_report(b, NULL, "%s raised its flag", n->op->name);
	for (int i = 0; i < n->nout; i++)
		from_storage(b, io[n->nin + i], &arg[n->nin + i], &val[n->out[i]]);
}

/* ---- the parts of a value ------------------------------------------------------------------------------------------------------ */

/* Rank r's piece of a dim: whole units, whole groups of them where there are enough; or lines. */
static void shard(const shard_bench *b, const tt_dim *d, bool fine, int r, int64_t *lo, int64_t *hi)
{
	int64_t piece = fine ? 1 : d->unit * (d->n / d->unit / d->group >= b->k ? d->group : 1), pieces = d->n / piece;
	*lo = tt_deal(pieces, r, b->k) * piece;
	*hi = tt_deal(pieces, r + 1, b->k) * piece;
}

bool shard_able(const tt_dim *d) { return d->role != TT_ONE && d->role != TT_SEQS; }

/* Copies [lo, hi) of dim d out of (or, back, into) the whole. */
static void copy_piece(shard_tensor *whole, shard_tensor *part, int d, int64_t lo, int64_t hi, bool back)
{
	int64_t inner = 1, outer = 1;
	for (int i = 0; i < d; i++)
		outer *= whole->n[i];
	for (int i = d + 1; i < whole->ndim; i++)
		inner *= whole->n[i];
	int64_t w = whole->n[d] * inner, p = (hi - lo) * inner;
	for (int plane = 0; plane < (whole->limb ? 3 : 1); plane++)
		for (int64_t o = 0; o < outer && p; o++) {
			size_t size = sizeof(double) * (size_t)p;
			char *pw = whole->limb ? (char *)(whole->limb + plane * whole->count) : (char *)whole->x;
			char *pp = part->limb ? (char *)(part->limb + plane * part->count) : (char *)part->x;
			pw += (o * w + lo * inner) * 8, pp += o * p * 8;
			memcpy(back ? pw : pp, back ? pp : pw, size);
		}
}

shard_tensor shard_part_of(shard_bench *b, const tt_value *v, shard_tensor *whole, tt_axis_type x, int r)
{
	if (x.type == TT_S) {
		int64_t lo, hi, n[TT_MAX_DIMS];
		memcpy(n, whole->n, sizeof n);
		shard(b, &v->dim[x.dim], x.fine, r, &lo, &hi);
		n[x.dim] = hi - lo;
		shard_tensor t = shard_tensor_new(b, v->dtype, v->ndim, n);
		copy_piece(whole, &t, x.dim, lo, hi, false);
		return t;
	}
	if (x.type != TT_P)
		return *whole;
	uint64_t keep = b->seed;
	b->seed = 77 + (uint64_t)v->ndim + b->salt; /* every rank draws the same terms */
	shard_tensor rest = shard_tensor_new(b, v->dtype, v->ndim, whole->n), term = rest;
	if (whole->limb)
		memcpy(rest.limb, whole->limb, sizeof(int64_t) * 3 * (size_t)whole->count);
	else
		memcpy(rest.x, whole->x, sizeof(double) * (size_t)whole->count);
	for (int i = 0; i <= r; i++) {
		if (i == b->k - 1) {
			term = rest;
			break;
		}
		term = shard_tensor_new(b, v->dtype, v->ndim, whole->n);
		shard_fill_random(b, &term);
		for (int64_t e = 0; e < term.count; e++) {
			for (int j = 0; term.limb && j < 3; j++)
				rest.limb[j * term.count + e] -= term.limb[j * term.count + e];
			if (term.limb) {
				shard_carry(rest.limb, term.count, e);
				shard_carry(term.limb, term.count, e);
			} else {
				rest.x[e] -= term.x[e];
			}
		}
	}
	b->seed = keep;
	return term;
}

/* Do the parts denote `whole` under type x? */
bool shard_denotes(shard_bench *b, const tt_value *v, const shard_tensor *whole, const shard_tensor *part, tt_axis_type x)
{
	shard_tensor sum = shard_tensor_new(b, v->dtype, v->ndim, whole->n);
	double largest = 1;
	for (int64_t i = 0; !whole->limb && i < whole->count; i++)
		largest = fmax(largest, fabs(whole->x[i]));
	for (int r = 0; r < b->k; r++) {
		const shard_tensor *p = &part[r];
		int64_t lo = 0, hi = 0;
		if (x.type == TT_S)
			shard(b, &v->dim[x.dim], x.fine, r, &lo, &hi);
		for (int d = 0; d < v->ndim; d++)
			if (p->n[d] != (x.type == TT_S && d == x.dim ? hi - lo : whole->n[d]))
				return false;
		if (x.type == TT_S) {
			shard_tensor piece = *p;
			copy_piece(&sum, &piece, x.dim, lo, hi, true);
			continue;
		}
		for (int64_t i = 0; i < sum.count; i++) {
			if (x.type == TT_P && sum.limb) {
				for (int j = 0; j < 3; j++)
					sum.limb[j * sum.count + i] += p->limb[j * sum.count + i];
				if (r == b->k - 1)
					shard_carry(sum.limb, sum.count, i);
			} else if (x.type == TT_P) {
				sum.x[i] += p->x[i];
			} else if (x.type == TT_M) {
				sum.x[i] = r ? fmax(sum.x[i], p->x[i]) : p->x[i];
			} else if (sum.limb) { /* R, I: equal on every rank; differences show below */
				for (int j = 0; j < 3; j++)
					if (p->limb[j * sum.count + i] != whole->limb[j * sum.count + i])
						return false;
				memcpy(sum.limb, whole->limb, sizeof(int64_t) * 3 * (size_t)sum.count);
			} else {
				if (!(fabs(p->x[i] - whole->x[i]) <= (b->exact ? 0 : 1e-12 * largest)))
					return false;
				sum.x[i] = p->x[i];
			}
		}
	}
	for (int64_t i = 0; i < sum.count; i++) {
		for (int j = 0; sum.limb && j < 3; j++)
			if (sum.limb[j * sum.count + i] != whole->limb[j * sum.count + i])
				return false;
		if (!sum.limb && !(fabs(sum.x[i] - whole->x[i]) <= (b->exact ? 0 : 1e-12 * largest)))
			return false;
	}
	return true;
}

/* ---- one rank's part of the node --------------------------------------------------------------------------------------------------- */

/* The op's own idea of its attributes on rank r. */
static const void *local_attr(const shard_bench *b, const tt_axis_type *tin, int r)
{
	const tt_node *n = b->node;
	if (!n->attr || r < 0 || !n->op->localise)
		return n->attr;
	char *c = tt_arena_alloc(b->a, n->op->attr_size);
	memcpy(c, n->attr, n->op->attr_size);
	const tt_piece **io = TT_NEWN(b->a, const tt_piece *, n->nin + n->nout);
	for (int i = 0; i < n->nin + n->nout; i++) {
		tt_v v = i < n->nin ? n->in[i] : n->out[i - n->nin];
		if (!v)
			continue;
		const tt_value *x = &b->g->values[v];
		/* what an output is comes from its node; elementwise it lies as input 0, and nobody else asks */
		tt_axis_type t = tin[i < n->nin ? i : 0];
		tt_piece *p = TT_NEWN(b->a, tt_piece, TT_MAX_DIMS);
		for (int d = 0; d < x->ndim; d++) {
			int64_t lo = 0, hi = x->dim[d].n;
			if (t.type == TT_S && t.dim == d)
				shard(b, &x->dim[d], t.fine, r, &lo, &hi);
			p[d] = (tt_piece){.start = lo, .n = hi - lo, .whole = x->dim[d].n};
		}
		io[i] = p;
	}
	n->op->localise(c, b->a, io, io + n->nin);
	return c;
}

void shard_rebase(const shard_bench *b, int64_t lo, int64_t hi, const tt_value *v, shard_tensor *t)
{
	int64_t start, first = sequence_of(b, SHARD_SEQ_TOKENS, lo, &start);
	if (v->fill == TT_FILL_SEQ_TABLE) {
		shard_tensor own = shard_tensor_new(b, TT_I32, 1, t->n);
		for (int64_t i = 0; i < t->count; i++)
			own.x[i] = TT_MIN(t->x[TT_MIN(i + first, t->count - 1)], (double)hi) - (double)lo;
		*t = own;
	}
	for (int64_t i = 0; i < t->count && t->count < SHARD_SEQ_TOKENS; i++) {
		if (v->fill == TT_FILL_SEQ_IDS)
			t->x[i] -= (double)first;
		if (v->fill == TT_FILL_LINES)
			t->x[i] -= (double)lo;
	}
}

static void rebase(const shard_bench *b, const tt_axis_type *tin, int r, const tt_value *v, shard_tensor *t)
{
	if (!b->rows || r < 0 || tin[0].type != TT_S || tin[0].dim != 0)
		return;
	int64_t lo, hi;
	tt_dim d = tt_dim_of(TT_TOKENS, SHARD_SEQ_TOKENS, 1);
	shard(b, &d, false, r, &lo, &hi);
	shard_rebase(b, lo, hi, v, t);
}

bool shard_lines_there(const shard_part *p, const tt_node *n)
{
	static const struct { const char *op; int tables; } attends[] = {
		{"attention", 3}, {"attention_bwd", 6}, {"attention_part", 3}, {"attention_max", 2}, {"attention_sum", 4}, {"attention_join", 3},
	};
	int tables = 0;
	for (int i = 0; i < TT_COUNT(attends); i++)
		tables = strcmp(n->op->name, attends[i].op) ? tables : attends[i].tables;
	if (!tables)
		return true;
	const shard_tensor *pos = &p->val[n->in[tables]], *ids = &p->val[n->in[tables + 1]], *table = &p->val[n->in[tables + 2]];
	const shard_tensor *lines = &p->val[n->in[tables + 3]], *k = &p->val[n->in[1]];
	for (int64_t t = 0; t < pos->count; t++) {
		int64_t s = (int64_t)ids->x[t], at = (int64_t)pos->x[t];
		if (s < 0 || s + 1 >= table->count || (int64_t)table->x[s + 1] - (int64_t)table->x[s] <= at)
			return false;
	}
	for (int64_t s = 0; s < table->count; s++)
		if (table->x[s] < 0 || table->x[s] > (double)lines->count)
			return false;
	for (int64_t i = 0; i < lines->count; i++)
		if (lines->x[i] < 0 || lines->x[i] >= (double)k->n[0])
			return false;
	return true;
}

/* The node on rank r (-1: whole): false if the parts cannot be put together into a node. */
bool shard_part_forward(shard_bench *b, int r, const tt_axis_type *tin, shard_part *p)
{
	const tt_node *n = b->node;
	*p = (shard_part){.g = tt_graph_new(b->a, NULL, !b->exact), .val = TT_NEWN(b->a, shard_tensor, SHARD_VALUES)};
	for (int i = 0; i < n->nin; i++) {
		if (!n->in[i])
			continue;
		tt_value v = b->g->values[n->in[i]];
		shard_tensor t = r < 0 ? b->in[i] : shard_part_of(b, &v, &b->in[i], tin[i], r);
		for (int d = 0; d < v.ndim; d++)
			v.dim[d].n = t.n[d];
		rebase(b, tin, r, &v, &t);
		p->in[i] = tt_input(p->g, v.name, v.dtype, v.gdtype, v.ndim, v.dim);
		p->g->values[p->in[i]].format = v.format;
		p->val[p->in[i]] = t;
	}
	p->out = tt_node_add_n(p->g, n->op, local_attr(b, tin, r), n->nin, p->in, n->nout, NULL);
	if (!p->out)
		return false;
	const tt_node *mine = &p->g->nodes[0];
	if (!shard_lines_there(p, mine))
		return false;
	shard_run_node(b, p->g, mine, p->val);
	return true;
}

/* Adds the cotangents of type dual(tout) and runs the vjp's nodes. */
bool shard_part_backward(shard_bench *b, int r, const tt_axis_type *tout, shard_part *p)
{
	tt_graph *g = p->g;
	tt_v dout[MAX_OUT] = {0};
	bool any = false, has;
	for (int o = 0; o < b->node->nout; o++) {
		tt_value v = g->values[tt_out(p->out, o)];
		if (v.gdtype == TT_NODTYPE)
			continue;
		tt_value w = b->g->values[b->node->out[o]];
		w.dtype = w.gdtype;
		shard_tensor t = r < 0 ? b->dout[o] : shard_part_of(b, &w, &b->dout[o], tt_axis_type_dual(tout[o], &has), r);
		for (int d = 0; d < v.ndim; d++)
			if (t.n[d] != v.dim[d].n)
				return false;
		dout[o] = tt_input(g, tt_arena_printf(b->a, "dout%d", o), v.gdtype, v.gdtype, v.ndim, v.dim);
		p->val[dout[o]] = t;
		any = true;
	}
	if (!any)
		return false;
	tt_node n = g->nodes[0];
	tt_vjp v = {.g = g, .node = &n, .dout = dout, .din = p->din};
	g->seg = TT_SEG_B;
	n.op->vjp(&v);
	if (g->status != TT_OK)
		return false;
	for (int64_t i = 1; i < g->nnodes; i++)
		shard_run_node(b, g, &g->nodes[i], p->val);
	return true;
}

/* ---- a sample, and what a rule says of it ------------------------------------------------------------------------------------------------- */

bool shard_float_input(const shard_bench *b, int i)
{
	return b->node->in[i] && shard_is_float(b->g->values[b->node->in[i]].dtype);
}

bool shard_accepts(const shard_bench *b, const tt_axis_type *tin)
{
	tt_axis_type tout[MAX_OUT] = {{0}};
	const tt_value *in[MAX_IN], *out[MAX_OUT];
	char why[256];
	int culprit = 0;
	for (int i = 0; i < b->node->nin; i++)
		in[i] = b->node->in[i] ? &b->g->values[b->node->in[i]] : NULL;
	for (int o = 0; o < b->node->nout; o++)
		out[o] = &b->g->values[b->node->out[o]];
	tt_axis axis = {"x", b->k, b->rows};
	tt_typing t = {.g = b->g, .op = b->op, .attr = b->node->attr, .axis = &axis, .nin = b->node->nin, .nout = b->node->nout, .in = in, .out = out,
		       .tin = tin, .tout = tout, .why = why, .why_cap = sizeof why, .culprit = &culprit};
	return b->op->spmd ? b->op->spmd(&t) : tt_spmd_by_labels(&t);
}

bool shard_is_meta(const shard_bench *b, int i)
{
	if (!shard_float_input(b, i))
		return true;
	if (!b->op->labels)
		return false;
	tt_labels l = tt_labels_parse(b->op);
	return tt_label_in(&l, i)->meta;
}

int shard_options_of(const shard_bench *b, int i, tt_axis_type *opt)
{
	int n = 0;
	opt[n++] = (tt_axis_type){.type = TT_R};
	const tt_value *v = &b->g->values[b->node->in[i]];
	bool meta = shard_is_meta(b, i);
	if (!meta) {
		opt[n++] = (tt_axis_type){.type = TT_I};
		opt[n++] = (tt_axis_type){.type = TT_P};
	}
	bool few = b->node->nin <= 3; /* of other ops an input is fine wherever it can be: one that takes such pieces takes none with others */
	for (int d = 0; b->node->in[i] && d < (meta ? 1 : v->ndim); d++) {
		bool fine = b->fine && !meta && tt_dim_coarse(&v->dim[d]);
		if (shard_able(&v->dim[d]) && (!fine || few))
			opt[n++] = (tt_axis_type){.type = TT_S, .dim = (int8_t)d};
		if (shard_able(&v->dim[d]) && fine)
			opt[n++] = (tt_axis_type){.type = TT_S, .dim = (int8_t)d, .fine = true};
	}
	return b->node->in[i] ? n : 1;
}

bool shard_has_gradient(const shard_bench *b)
{
	bool out = false;
	for (int o = 0; o < b->node->nout; o++)
		out |= b->g->values[b->node->out[o]].gdtype != TT_NODTYPE;
	return out && b->op->vjp;
}

bool shard_prepare(shard_bench *b, const tt_op *base, int which)
{
	tt_graph *g = tt_graph_new(b->a, NULL, !b->exact);
	return base->sample(g, which) && shard_prepare_graph(b, g, base);
}

bool shard_prepare_graph(shard_bench *b, tt_graph *g, const tt_op *base)
{
	if (!TT_CHECK_OK(b->t, tt_graph_check(g)))
		return false;
	shard_tensor *val = TT_NEWN(b->a, shard_tensor, g->nvalues);
	for (tt_v v = 1; b->fine && v < g->nvalues; v++) /* elements in pairs */
		for (int d = 0; d < g->values[v].ndim; d++) {
			tt_dim *x = &g->values[v].dim[d];
			if (shard_able(x) && x->role != TT_TOKENS && x->n % 2 == 0 && !tt_dim_coarse(x))
				x->unit = 2;
		}
	b->g = g;
	b->node = NULL;
	for (tt_v v = 1; v < g->nvalues; v++)
		if (g->values[v].kind == TT_INPUT) {
			val[v] = shard_tensor_like(b, &g->values[v]);
			shard_fill_input(b, &g->values[v], &val[v]);
		}
	for (int64_t i = 0; i < g->nnodes; i++) {
		shard_run_node(b, g, &g->nodes[i], val);
		if (g->nodes[i].op == base)
			b->node = &g->nodes[i];
	}
	TT_ASSERT(b->node && b->node->nin <= MAX_IN && b->node->nout <= MAX_OUT, "%s", base->name);
	static const tt_axis_type all_r[MAX_IN] = {{0}};
	for (int i = 0; i < b->node->nin; i++)
		b->in[i] = val[b->node->in[i]];
	for (int o = 0; o < b->node->nout; o++) {
		tt_value v = g->values[b->node->out[o]];
		b->out[o] = val[b->node->out[o]];
		v.dtype = v.gdtype;
		b->dout[o] = shard_tensor_like(b, &v);
		shard_fill_random(b, &b->dout[o]);
	}
	shard_part p = {0};
	if (shard_has_gradient(b)) {
		TT_ASSERT(shard_part_forward(b, -1, all_r, &p) && shard_part_backward(b, -1, all_r, &p), "%s: the sample's own gradient", base->name);
		for (int i = 0; i < b->node->nin; i++)
			if (p.din[i])
				b->din[i] = p.val[p.din[i]];
	}
	return true;
}

