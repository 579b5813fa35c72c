/* print.c: names of things and the stable text of a graph. Values are written by name, so that two graphs compare as text. */
#include "ir/ir.h"

int tt_dtype_size(tt_dtype dt, tt_numerics n, bool f64)
{
	switch (dt) {
	case TT_NODTYPE:
		return 0;
	case TT_BF16:
		return 2;
	case TT_F32:
	case TT_I32:
		return 4;
	case TT_F64:
	case TT_I64:
		return 8;
	case TT_ACC:
		return f64 ? 8 : n == TT_EXACT ? 24 : 4;
	}
	return 0;
}

const char *tt_dtype_name(tt_dtype dt)
{
	static const char *const s[] = { "none", "f32", "bf16", "f64", "i32", "i64", "acc" };
	return s[dt];
}

const char *tt_format_name(tt_format f)
{
	static const char *const s[] = { "plain", "pack_fwd", "pack_dx" };
	return s[f];
}

const char *tt_role_name(tt_role r)
{
	static const char *const s[] = { "one", "tokens", "seqs", "D", "heads", "kv_heads", "head_dim", "ffn", "vocab", "experts" };
	return s[r];
}

bool tt_role_splittable(tt_role r)
{
	switch (r) {
	case TT_TOKENS:
	case TT_HEADS:
	case TT_KV_HEADS:
	case TT_FFN:
	case TT_VOCAB:
	case TT_EXPERTS:
		return true;
	case TT_ONE:
	case TT_SEQS:
	case TT_D:
	case TT_HEAD_DIM:
		return false;
	}
	return false;
}

const char *tt_segment_name(tt_segment s)
{
	static const char *const n[] = { "INIT", "PREP", "F", "B", "REDUCE", "OPT", "EVAL" };
	return n[s];
}

const char *tt_region_kind_name(tt_region_kind r)
{
	static const char *const s[] = { "param", "grad", "optim", "io", "frame", "work" };
	return s[r];
}

const char *tt_class_name(tt_class c)
{
	static const char *const s[] = { "forward", "backward", "fused", "move", "state", "meta" };
	return s[c];
}

static void print_attr(const tt_node *n, tt_buf *b)
{
	for (const tt_attr *f = n->op->attrs; f && f->name && n->attr; f++) {
		const char *p = (const char *)n->attr + f->offset;
		switch (f->kind) {
		case TT_ATTR_INT: {
			int64_t v;
			memcpy(&v, p, sizeof v);
			tt_buf_printf(b, " %s=%lld", f->name, (long long)v);
			break;
		}
		case TT_ATTR_BOOL:
			tt_buf_printf(b, " %s=%s", f->name, *(const bool *)p ? "true" : "false");
			break;
		case TT_ATTR_REAL: {
			double v;
			memcpy(&v, p, sizeof v);
			tt_buf_printf(b, " %s=%.9g", f->name, v);
			break;
		}
		case TT_ATTR_DTYPE: {
			tt_dtype v;
			memcpy(&v, p, sizeof v);
			tt_buf_printf(b, " %s=%s", f->name, tt_dtype_name(v));
			break;
		}
		case TT_ATTR_INTS: {
			const tt_ints *l = (const tt_ints *)(const void *)p;
			tt_buf_printf(b, " %s=[", f->name);
			for (int64_t i = 0; i < l->n; i++)
				tt_buf_printf(b, "%s%lld", i ? "," : "", (long long)l->v[i]);
			tt_buf_str(b, "]");
			break;
		}
		case TT_ATTR_REALS: {
			const tt_reals *l = (const tt_reals *)(const void *)p;
			tt_buf_printf(b, " %s=[", f->name);
			for (int64_t i = 0; i < l->n; i++)
				tt_buf_printf(b, "%s%.9g", i ? "," : "", l->v[i]);
			tt_buf_str(b, "]");
			break;
		}
		case TT_ATTR_STR: {
			const char *s;
			memcpy(&s, p, sizeof s);
			tt_buf_printf(b, " %s=\"%s\"", f->name, s ? s : "");
			break;
		}
		}
	}
}

static void print_value(const tt_graph *g, const tt_value *v, tt_buf *b)
{
	tt_buf_printf(b, "%s: %s[", v->name, tt_dtype_name(v->dtype));
	for (int i = 0; i < v->ndim; i++) {
		const tt_dim *d = &v->dim[i];
		tt_buf_printf(b, "%s%s:%lld", i ? " " : "", tt_role_name(d->role), (long long)d->n);
		if (d->base)
			tt_buf_printf(b, "@%lld", (long long)d->base);
		if (d->unit > 1)
			tt_buf_printf(b, "/%lld", (long long)d->unit);
	}
	tt_buf_str(b, "]");
	if (v->format != TT_PLAIN)
		tt_buf_printf(b, " %s", tt_format_name(v->format));
	if (v->gdtype != TT_NODTYPE && v->gdtype != v->dtype)
		tt_buf_printf(b, " d=%s", tt_dtype_name(v->gdtype));
	tt_buf layout = { 0 };
	tt_layout_print(&g->mesh, &v->layout, &layout);
	if (layout.n)
		tt_buf_printf(b, " {%s}", layout.s);
	tt_buf_fini(&layout);
}

void tt_graph_print(const tt_graph *g, tt_buf *b)
{
	for (int64_t i = 0; i < g->nstates; i++) {
		const tt_state *s = &g->states[i];
		tt_buf_printf(b, "state  %s ", tt_region_kind_name(s->region));
		print_value(g, &g->values[s->value], b);
		if (s->source >= 0)
			tt_buf_printf(b, " from %s", g->states[s->source].name);
		if (s->within)
			tt_buf_printf(b, " in %s", g->values[s->within].name);
		if (s->next)
			tt_buf_printf(b, " <- %s", g->values[s->next].name);
		tt_buf_str(b, "\n");
	}
	for (tt_v v = 1; v < g->nvalues; v++)
		if (g->values[v].kind == TT_INPUT) {
			tt_buf_str(b, "input  ");
			print_value(g, &g->values[v], b);
			tt_buf_str(b, "\n");
		}
	for (int64_t i = 0; i < g->nnodes; i++) {
		const tt_node *n = &g->nodes[i];
		tt_buf_printf(b, "%-6s ", tt_segment_name(n->seg));
		for (int o = 0; o < n->nout; o++) {
			tt_buf_str(b, o ? ", " : "");
			print_value(g, &g->values[n->out[o]], b);
		}
		tt_buf_printf(b, " = %s(", n->op->name);
		for (int k = 0; k < n->nin; k++)
			tt_buf_printf(b, "%s%s", k ? ", " : "", n->in[k] ? g->values[n->in[k]].name : "-");
		tt_buf_str(b, ")");
		print_attr(n, b);
		tt_buf_str(b, "\n");
	}
	for (int64_t i = 0; i < g->nroots; i++)
		tt_buf_printf(b, "root   %s seed %s\n", g->values[g->roots[i].value].name, g->values[g->roots[i].seed].name);
	for (int64_t i = 0; i < g->noutputs; i++)
		tt_buf_printf(b, "output %s\n", g->values[g->outputs[i]].name);
}

uint64_t tt_graph_hash(const tt_graph *g)
{
	tt_buf b = { 0 };
	tt_graph_print(g, &b);
	uint64_t h = tt_hash64(b.s ? b.s : "", b.n, 0);
	tt_buf_fini(&b);
	return h;
}
