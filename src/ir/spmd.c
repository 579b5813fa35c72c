/* spmd.c: layout types of one mesh axis (LAYOUTS.md), their duals, and the rule that follows from dim labels. */
#include "ir/ir.h"

#include <stdio.h>

#include "ir/internal.h"

tt_axis_type tt_axis_type_dual(tt_axis_type t, bool *has)
{
	*has = true;
	switch ((tt_type)t.type) {
	case TT_R:
		return (tt_axis_type){ .type = TT_P };
	case TT_P:
		return (tt_axis_type){ .type = TT_R };
	case TT_I:
	case TT_V:
	case TT_S:
		return t;
	case TT_M:
		break;
	}
	*has = false;
	return t;
}

bool tt_axis_type_eq(tt_axis_type a, tt_axis_type b)
{
	return a.type == b.type && (a.type != TT_S || (a.dim == b.dim && a.order == b.order && a.fine == b.fine && a.shift == b.shift));
}

void tt_axis_type_print(tt_axis_type t, tt_buf *b)
{
	static const char *const names[] = { "R", "I", "V", "S", "P", "M" };
	tt_buf_str(b, names[t.type]);
	if (t.type == TT_S)
		tt_buf_printf(b, "(%d)%s", t.dim, t.fine ? "/1" : "");
	if (t.type == TT_S && t.shift)
		tt_buf_printf(b, "+%d", t.shift);
}

void tt_layout_print(const tt_mesh *m, const tt_layout *l, tt_buf *b)
{
	bool any = false;
	for (int i = 0; i < m->naxes; i++) {
		if (m->ax[i].size == 1)
			continue;
		tt_buf_printf(b, "%s%s=", any ? " " : "", m->ax[i].name);
		tt_axis_type_print(l->ax[i], b);
		any = true;
	}
}

int64_t tt_dim_edge(const tt_dim *dim, bool fine, int64_t n, int64_t i, int64_t k)
{
	int64_t unit = TT_MAX(dim->unit, (int64_t)1), group = unit * TT_MAX(dim->group, (int64_t)1);
	if (fine)
		return tt_deal(n, i, k);
	if (tt_ceil_div(n, group) >= k) /* units that belong together stay so where there are enough groups */
		unit = group;
	return TT_MIN(tt_deal(tt_ceil_div(n, unit), i, k) * unit, n);
}

tt_piece tt_value_piece(const tt_graph *g, const tt_value *v, int d, const int *coord, int but)
{
	const tt_dim *dim = &v->dim[d];
	tt_piece p = { 0, dim->n, dim->n, 0, 0 };
	for (int order = 0; order < g->mesh.naxes; order++)
		for (int ax = 0; ax < g->mesh.naxes; ax++) {
			const tt_axis *x = &g->mesh.ax[ax];
			tt_axis_type t = v->layout.ax[ax];
			if (ax == but || x->size == 1 || t.type != TT_S || t.dim != d || t.order != order || (x->rows && dim->role == TT_TOKENS))
				continue;
			p.part = (coord[ax] + t.shift) % x->size;
			p.parts = x->size;
			int64_t begin = tt_dim_edge(dim, t.fine, p.n, p.part, x->size), end = tt_dim_edge(dim, t.fine, p.n, p.part + 1, x->size);
			p.start += begin;
			p.n = end - begin;
		}
	return p;
}

static bool reject(const tt_typing *t, int i, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static bool reject(const tt_typing *t, int i, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(t->why, t->why_cap, fmt, ap);
	va_end(ap);
	*t->culprit = i;
	return false;
}

bool tt_typing_coarse(const tt_typing *t, int i)
{
	return !t->tin[i].fine || reject(t, i, "but its units are cut, %s needs them whole: convert it to R", t->op->name);
}

static int letter_at(const tt_label *l, char c)
{
	for (int d = 0; d < l->n; d++)
		if (l->c[d] == c)
			return d;
	return -1;
}

/* Elementwise, and input i lies otherwise than input k. */
static bool unlike(const tt_typing *t, int i, int k)
{
	bool order = t->tin[i].type == TT_S && t->tin[i].dim == t->tin[k].dim && t->tin[i].order != t->tin[k].order;
	tt_buf b = { 0 };
	tt_axis_type_print(t->tin[k], &b);
	reject(t, i, order ? "needs its axes in the order of %s of %s" : "needs %s like %s", b.s, t->in[k]->name);
	tt_buf_fini(&b);
	return false;
}

/* One operand is sharded along `c`: every operand with that letter must be sharded there, the others must be R. */
static bool sharded(const tt_typing *t, const tt_labels *l, int first, char c)
{
	if (c >= 'A' && c <= 'Z')
		return reject(t, first, "but %s needs dim '%c' whole: convert it to R", t->op->name, c);
	for (int i = 0; i < t->nin; i++) {
		if (!t->in[i])
			continue;
		const tt_label *lab = tt_label_in(l, i);
		tt_axis_type x = t->tin[i];
		int d = letter_at(lab, c);
		if (lab->meta && x.type == TT_R && d < 0)
			continue;
		if (d >= 0) {
			if (x.type != TT_S || x.dim != d || x.shift != t->tin[first].shift)
				return reject(t, i, "needs S(%d), as %s is sharded along '%c'", d, t->in[first]->name, c);
			if (!tt_typing_coarse(t, i)) /* heads are more than their elements */
				return false;
			if (x.order != t->tin[first].order)
				return reject(t, i, "needs its axes in the order of %s: they cut dim %c one within the other", t->in[first]->name, c);
		} else if (x.type != TT_R) {
			return reject(t, i, "needs R, as it meets %s sharded along '%c'", t->in[first]->name, c);
		}
	}
	for (int i = 0; i < t->nout; i++) {
		const tt_label *lab = tt_label_out(l, i);
		int d = letter_at(lab, c);
		if (d >= 0)
			t->tout[i] = (tt_axis_type){ .type = TT_S, .dim = (int8_t)d, .order = t->tin[first].order, .shift = t->tin[first].shift };
		else if ((t->op->flags & TT_OP_ACC_SUM) && t->out[i]->dtype == TT_ACC)
			t->tout[i] = (tt_axis_type){ .type = TT_P };
		else
			return reject(t, first, "but %s takes no sum over '%c' that could be left open: convert it to R", t->op->name, c);
	}
	return true;
}

bool tt_spmd_by_labels(const tt_typing *t)
{
	tt_labels l = tt_labels_parse(t->op);
	int at[6] = { -1, -1, -1, -1, -1, -1 }; /* an operand of each type */
	for (int i = 0; i < t->nin; i++) {
		const tt_label *lab = tt_label_in(&l, i);
		if (!t->in[i] || (lab->meta && t->tin[i].type == TT_R))
			continue;
		if (at[t->tin[i].type] < 0)
			at[t->tin[i].type] = i;
	}
	if (at[TT_M] >= 0)
		return reject(t, at[TT_M], "a maximum not yet taken: convert it to R or I");
	if (at[TT_S] >= 0) {
		const tt_label *lab = tt_label_in(&l, at[TT_S]);
		if (lab->any) { /* elementwise over any dims: all sharded alike */
			for (int i = 0; i < t->nin; i++)
				if (t->in[i] && tt_label_in(&l, i)->any && !tt_axis_type_eq(t->tin[i], t->tin[at[TT_S]]))
					return unlike(t, i, at[TT_S]);
				else if (t->in[i] && !tt_label_in(&l, i)->any && t->tin[i].type != TT_R)
					return reject(t, i, "needs R, as it meets %s in pieces", t->in[at[TT_S]]->name);
			for (int i = 0; i < t->nout; i++) {
				if (tt_label_out(&l, i)->any)
					t->tout[i] = t->tin[at[TT_S]];
				else if ((t->op->flags & TT_OP_ACC_SUM) && t->out[i]->dtype == TT_ACC)
					t->tout[i] = (tt_axis_type){ .type = TT_P };
				else
					return reject(t, at[TT_S], "but %s needs it whole: convert it to R", t->op->name);
			}
			return true;
		}
		return sharded(t, &l, at[TT_S], lab->c[t->tin[at[TT_S]].dim]);
	}
	tt_type type = at[TT_V] >= 0 ? TT_V : at[TT_P] >= 0 ? TT_P : at[TT_I] >= 0 ? TT_I : TT_R;
	if (type == TT_P && !(t->op->flags & TT_OP_ACC_LINEAR))
		return reject(t, at[TT_P], "a sum not yet taken: convert it (P to R, I or S) before %s", t->op->name);
	for (int i = 0; i < t->nin; i++) {
		const tt_label *lab = tt_label_in(&l, i);
		if (!t->in[i] || (lab->meta && t->tin[i].type == TT_R))
			continue;
		tt_type x = (tt_type)t->tin[i].type;
		if (x != type && !(type == TT_V && x == TT_R))
			return reject(t, i, "needs %s like %s", type == TT_P ? "P" : type == TT_I ? "I (I mixes with nothing)" : "V or R",
				      t->in[at[type]]->name);
	}
	for (int i = 0; i < t->nout; i++)
		t->tout[i] = (tt_axis_type){ .type = (uint8_t)type };
	return true;
}
