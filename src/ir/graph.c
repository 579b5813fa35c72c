/* graph.c: building a graph. Sticky errors, scopes, unique names, values, states, nodes. Text is in print.c, rules in spmd.c. */
#include "ir/ir.h"

#include <stdio.h>

#include "ir/internal.h"

/* Names to value ids: open addressing over a power of two, in the graph's arena. A slot keeps half of the name's hash, so that names, which
 * lie all over memory, are read only where they are most likely the one that is looked for. */
typedef struct name_slot {
	tt_v value; /* 0 = free */
	uint32_t hash;
} name_slot;
struct tt_names {
	int64_t n, cap;
	name_slot *slot;
};

static name_slot *names_slot(const tt_graph *g, const char *name, uint32_t hash)
{
	struct tt_names *m = g->names;
	for (uint64_t at = hash;; at++) {
		name_slot *s = &m->slot[at & (uint64_t)(m->cap - 1)];
		if (!s->value || (s->hash == hash && !strcmp(g->values[s->value].name, name)))
			return s;
	}
}

static uint32_t name_hash(const char *name) { return (uint32_t)tt_hash64(name, strlen(name), 0); }

/* Room for n names in all: at most half of the slots are taken. */
static void names_reserve(tt_graph *g, int64_t n)
{
	struct tt_names *m = g->names;
	int64_t had = m->cap;
	const name_slot *old = m->slot;
	if (2 * n <= had)
		return;
	m->cap = TT_MAX(had, (int64_t)64);
	while (m->cap < 2 * n)
		m->cap *= 2;
	m->slot = TT_NEWN(g->arena, name_slot, m->cap);
	for (int64_t i = 0; i < had; i++) {
		uint64_t at = old[i].hash;
		if (!old[i].value)
			continue;
		while (m->slot[at & (uint64_t)(m->cap - 1)].value)
			at++;
		m->slot[at & (uint64_t)(m->cap - 1)] = old[i];
	}
}

static void names_add(tt_graph *g, tt_v v)
{
	struct tt_names *m = g->names;
	const char *name = g->values[v].name;
	uint32_t hash = name_hash(name);
	names_reserve(g, m->n + 1);
	*names_slot(g, name, hash) = (name_slot){ v, hash };
	m->n++;
}

tt_graph *tt_graph_new(tt_arena *a, const tt_mesh *mesh, bool f64)
{
	tt_graph *g = TT_NEW(a, tt_graph);
	g->arena = a;
	if (mesh)
		g->mesh = *mesh;
	g->f64 = f64;
	g->seg = TT_SEG_F;
	g->names = TT_NEW(a, struct tt_names);
	names_reserve(g, 32);
	tt_value none = { .name = "" };
	TT_PUSH(a, g->values, g->nvalues, g->cap_values, none);
	return g;
}

tt_status tt_graph_check(const tt_graph *g)
{
	TT_TRY(tt_arena_ok(g->arena));
	if (g->status != TT_OK)
		TT_FAIL(g->status, "%s", g->error);
	return TT_OK;
}

tt_v tt_graph_fail(tt_graph *g, const char *fmt, ...)
{
	if (g->status != TT_OK)
		return 0;
	va_list ap;
	char text[1024];
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	g->status = TT_ERR_TYPE;
	g->error = g->scope[0] ? tt_arena_printf(g->arena, "%s: %s", g->scope, text) : tt_arena_strdup(g->arena, text);
	return 0;
}

int tt_scope_push(tt_graph *g, const char *fmt, ...)
{
	int len = (int)strlen(g->scope);
	int at = len;
	if (len && len + 1 < (int)sizeof g->scope)
		g->scope[at++] = '.';
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(g->scope + at, sizeof g->scope - (size_t)at, fmt, ap);
	va_end(ap);
	TT_ASSERT(n >= 0 && at + n < (int)sizeof g->scope, "scope path longer than %zu: %s", sizeof g->scope, g->scope);
	return len;
}

void tt_scope_pop(tt_graph *g, int len)
{
	g->scope[len] = 0;
}

int64_t tt_value_count(const tt_value *v)
{
	int64_t n = 1;
	for (int i = 0; i < v->ndim; i++)
		n *= v->dim[i].n;
	return n;
}

tt_v tt_value_find(const tt_graph *g, const char *name)
{
	return names_slot(g, name, name_hash(name))->value;
}

tt_dim tt_dim_of(tt_role role, int64_t n, int64_t unit)
{
	return (tt_dim){ .n = n, .unit = unit, .group = 1, .role = role };
}

tt_layout tt_layout_all(tt_type t)
{
	tt_layout l = { 0 };
	for (int i = 0; i < TT_MAX_AXES; i++)
		l.ax[i].type = (uint8_t)t;
	return l;
}

/* `name` made unique by "#2", "#3", ...; the name itself where it is free: it lies in the graph's arena. */
static const char *unique_name(tt_graph *g, const char *name)
{
	if (!tt_value_find(g, name))
		return name;
	for (int i = 2;; i++) {
		const char *s = tt_arena_printf(g->arena, "%s#%d", name, i);
		if (!tt_value_find(g, s))
			return s;
	}
}

tt_v tt_value_push(tt_graph *g, const tt_value *v)
{
	tt_v id = (tt_v)g->nvalues;
	TT_PUSH(g->arena, g->values, g->nvalues, g->cap_values, *v);
	names_add(g, id);
	return id;
}

static tt_v new_value(tt_graph *g, const char *name, tt_value_kind kind, tt_dtype dt, tt_dtype gdt, int ndim, const tt_dim *dims)
{
	TT_ASSERT(ndim >= 0 && ndim <= TT_MAX_DIMS, "%s: %d dims", name, ndim);
	if (tt_value_find(g, name))
		return tt_graph_fail(g, "%s: this name is taken", name);
	tt_value v = { .name = tt_arena_strdup(g->arena, name), .dtype = dt, .gdtype = gdt, .kind = kind, .ndim = ndim, .def = -1, .state = -1 };
	for (int i = 0; i < ndim; i++)
		v.dim[i] = dims[i];
	v.layout = tt_layout_all(TT_R);
	return tt_value_push(g, &v);
}

tt_v tt_input(tt_graph *g, const char *name, tt_dtype dt, tt_dtype gdtype, int ndim, const tt_dim *dims)
{
	return new_value(g, name, TT_INPUT, dt, gdtype, ndim, dims);
}

tt_v tt_state_new(tt_graph *g, const char *name, tt_region_kind region, tt_dtype dt, int ndim, const tt_dim *dims, bool trainable)
{
	tt_v v = new_value(g, name, TT_STATE, dt, trainable ? TT_ACC : TT_NODTYPE, ndim, dims);
	if (!v)
		return 0;
	g->values[v].state = (int32_t)g->nstates;
	tt_state s = { .name = g->values[v].name, .region = region, .value = v, .source = -1, .trainable = trainable };
	TT_PUSH(g->arena, g->states, g->nstates, g->cap_states, s);
	return v;
}

tt_v tt_state_derived(tt_graph *g, tt_v master, const char *suffix, tt_dtype dt, tt_format f)
{
	if (!master)
		return 0;
	tt_value m = g->values[master];
	TT_ASSERT(m.kind == TT_STATE, "%s is not a state", m.name);
	int32_t source = m.state;
	while (g->states[source].source >= 0)
		source = g->states[source].source;
	m = g->values[g->states[source].value];
	const char *name = tt_arena_printf(g->arena, "%s:%s", m.name, suffix);
	tt_v v = tt_value_find(g, name);
	if (v)
		return v;
	v = tt_state_new(g, name, TT_REGION_PARAM, dt, m.ndim, m.dim, g->states[source].trainable);
	g->values[v].format = f;
	g->values[v].layout = m.layout;
	g->states[g->values[v].state].source = source;
	return v;
}

void tt_state_set(tt_graph *g, tt_v state_value, tt_v next)
{
	if (!state_value || !next)
		return;
	const tt_value *v = &g->values[state_value];
	TT_ASSERT(v->kind == TT_STATE, "%s is not a state", v->name);
	g->states[v->state].next = next;
}

void tt_value_set_layout(tt_graph *g, tt_v v, tt_layout l)
{
	if (v) {
		TT_ASSERT(g->values[v].kind != TT_TEMP, "%s: a made value's layout follows from its node", g->values[v].name);
		g->values[v].layout = l;
	}
}

void tt_value_set_fill(tt_graph *g, tt_v v, tt_fill f)
{
	if (v)
		g->values[v].fill = f;
}

void tt_graph_root(tt_graph *g, tt_v value, tt_v seed)
{
	if (value && seed) {
		tt_root r = { value, seed };
		TT_PUSH(g->arena, g->roots, g->nroots, g->cap_roots, r);
	}
}

void tt_graph_output(tt_graph *g, tt_v value)
{
	if (value)
		TT_PUSH(g->arena, g->outputs, g->noutputs, g->cap_outputs, value);
}

/* ---- labels ---------------------------------------------------------------------------------------------------------------- */

tt_labels tt_labels_parse(const tt_op *op)
{
	tt_labels l = { 0 };
	const char *s = op->labels;
	bool out = false;
	TT_ASSERT(s, "%s has no labels", op->name);
	for (;;) {
		tt_label *at = out ? &l.out[l.nout++] : &l.in[l.nin++];
		TT_ASSERT(l.nin <= TT_MAX_LABELS && l.nout <= TT_MAX_LABELS, "%s: too many labels", op->name);
		if (*s == '_') {
			at->meta = true;
			s++;
		}
		if (*s == '*') {
			at->any = true;
			s++;
		}
		while (*s && *s != ',' && *s != '-') {
			TT_ASSERT(at->n < TT_MAX_DIMS, "%s: more than %d dims in %s", op->name, TT_MAX_DIMS, op->labels);
			at->c[at->n++] = *s++;
		}
		if (*s == '-') {
			out = true;
			s += 2;
		} else if (*s == ',') {
			s++;
		} else {
			return l;
		}
		if (!*s)
			return l;
	}
}

static bool same_extents(const tt_value *a, const tt_value *b)
{
	bool same = a->ndim == b->ndim;
	for (int d = 0; same && d < a->ndim; d++)
		same = a->dim[d].n == b->dim[d].n;
	return same;
}

/* Dims of the outputs from the labels; extents that stand under one letter must agree. */
static bool infer_labels(tt_graph *g, const tt_op *op, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	tt_labels l = tt_labels_parse(op);
	const tt_dim *seen[128] = { 0 };
	const tt_value *where[128] = { 0 };
	for (int i = 0; i < nin; i++) {
		if (!in[i])
			continue;
		const tt_label *lab = tt_label_in(&l, i);
		if (lab->any && op->nin_max >= 0 && !same_extents(in[0], in[i])) { /* the parts of a variadic op differ in lines */
			tt_graph_fail(g, "%s: input %d, %s, has not the dims of %s", op->name, i, in[i]->name, in[0]->name);
			return false;
		}
		if (lab->any || (lab->meta && !lab->n))
			continue;
		if (in[i]->ndim != lab->n) {
			tt_graph_fail(g, "%s: input %d, %s, has %d dims, needs %d (%s)", op->name, i, in[i]->name, in[i]->ndim, lab->n, op->labels);
			return false;
		}
		for (int d = 0; d < lab->n; d++) {
			int c = lab->c[d];
			const tt_dim *dim = &in[i]->dim[d];
			if (c == '1') {
				if (dim->n != 1) {
					tt_graph_fail(g, "%s: %s has %lld elements, needs 1", op->name, in[i]->name, (long long)dim->n);
					return false;
				}
				continue;
			}
			if (!seen[c]) {
				seen[c] = dim;
				where[c] = in[i];
			} else if (seen[c]->n != dim->n || seen[c]->role != dim->role || seen[c]->base != dim->base ||
				   memcmp(seen[c]->share, dim->share, sizeof dim->share)) {
				tt_graph_fail(g, "%s: dim '%c' is %s %lld in %s but %s %lld in %s", op->name, c, tt_role_name(seen[c]->role),
					      (long long)seen[c]->n, where[c]->name, tt_role_name(dim->role), (long long)dim->n, in[i]->name);
				return false;
			}
		}
	}
	for (int i = 0; i < nout; i++) {
		const tt_label *lab = tt_label_out(&l, i);
		if (lab->any) {
			TT_ASSERT(in[0], "%s: no input to take dims from", op->name);
			out[i].ndim = in[0]->ndim;
			memcpy(out[i].dim, in[0]->dim, sizeof out[i].dim);
			continue;
		}
		out[i].ndim = lab->n;
		for (int d = 0; d < lab->n; d++)
			out[i].dim[d] = lab->c[d] == '1' ? tt_dim_of(TT_ONE, 1, 1) : seen[(int)lab->c[d]] ? *seen[(int)lab->c[d]] : (tt_dim){ 0 };
	}
	return true;
}

/* ---- nodes --------------------------------------------------------------------------------------------------------------------- */

/* Copies an attribute struct; lists inside it (tt_ints, tt_reals, strings) are copied with it. */
static const void *copy_attr(tt_arena *a, const tt_op *op, const void *attr)
{
	if (!op->attr_size || !attr)
		return attr;
	char *c = tt_arena_alloc(a, op->attr_size);
	memcpy(c, attr, op->attr_size);
	for (const tt_attr *f = op->attrs; f && f->name; f++) {
		if (f->kind == TT_ATTR_INTS) {
			tt_ints *l = (tt_ints *)(void *)(c + f->offset);
			int64_t *v = TT_NEWN(a, int64_t, l->n);
			if (l->n)
				memcpy(v, l->v, (size_t)l->n * sizeof *v);
			l->v = v;
		} else if (f->kind == TT_ATTR_REALS) {
			tt_reals *l = (tt_reals *)(void *)(c + f->offset);
			double *v = TT_NEWN(a, double, l->n);
			if (l->n)
				memcpy(v, l->v, (size_t)l->n * sizeof *v);
			l->v = v;
		} else if (f->kind == TT_ATTR_STR) {
			const char **s = (const char **)(void *)(c + f->offset);
			if (*s)
				*s = tt_arena_strdup(a, *s);
		}
	}
	return c;
}

bool tt_node_type(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out, tt_rejection *r)
{
	tt_axis_type tin[TT_MAX_IO], tout[TT_MAX_IO];
	const tt_value *outs[TT_MAX_IO];
	for (int i = 0; i < nout; i++)
		outs[i] = &out[i];
	for (int ax = 0; ax < TT_MAX_AXES; ax++) {
		if (ax >= g->mesh.naxes || g->mesh.ax[ax].size == 1) {
			for (int i = 0; i < nout; i++)
				out[i].layout.ax[ax] = (tt_axis_type){ .type = TT_R };
			continue;
		}
		for (int i = 0; i < nin; i++)
			tin[i] = in[i] ? in[i]->layout.ax[ax] : (tt_axis_type){ .type = TT_R };
		for (int i = 0; i < nout; i++)
			tout[i] = (tt_axis_type){ .type = TT_R };
		char why[256] = "";
		int culprit = 0;
		tt_typing t = { .g = g, .op = op, .attr = attr, .axis = &g->mesh.ax[ax], .nin = nin, .nout = nout, .in = in, .out = outs,
				.tin = tin, .tout = tout, .why = why, .why_cap = sizeof why, .culprit = &culprit };
		if (!(op->spmd ? op->spmd(&t) : tt_spmd_by_labels(&t))) {
			tt_rejection_fill(&t, ax, r);
			return false;
		}
		for (int i = 0; i < nout; i++)
			out[i].layout.ax[ax] = tout[i];
	}
	return true;
}

bool tt_node_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	if (op->labels && !infer_labels(g, op, nin, in, nout, out))
		return false;
	return !op->infer || op->infer(g, op, attr, nin, in, nout, out);
}

/* The name of output i: `role`, else the op's own; "=NAME" is taken as it is, other roles stand under the scope. Of an op with any number
 * of outputs they are numbered. */
static const char *output_name(tt_graph *g, const tt_op *op, int i, const char *role)
{
	bool many = op->nout < 0;
	const char *r = role && (i == 0 || many) ? role : op->outs ? op->outs[many ? 0 : i] : op->name;
	const char *scope = r[0] == '=' ? "" : g->scope;
	r += r[0] == '=';
	if (many)
		return tt_arena_printf(g->arena, "%s%s%s.%d", scope, scope[0] ? "." : "", r, i);
	return tt_arena_printf(g->arena, "%s%s%s", scope, scope[0] ? "." : "", r);
}

/* `names`, if given, are the outputs' names as they are (copies), in the graph's arena; `own`: so is attr. */
static tt_v add_node(tt_graph *g, const tt_op *op, const void *attr, bool own, int nin, const tt_v *in, int nout, const char *role, const char *const *names)
{
	if (g->status != TT_OK)
		return 0;
	TT_ASSERT(nin <= TT_MAX_IO && nout <= TT_MAX_IO && nout > 0, "%s: %d inputs, %d outputs", op->name, nin, nout);
	while (nin > op->nin && op->nin_max >= 0 && !in[nin - 1])
		nin--; /* absent optional inputs at the end are not written down */
	TT_ASSERT(nin >= op->nin && (op->nin_max < 0 || nin <= TT_MAX(op->nin, op->nin_max)), "%s: takes %d inputs, got %d", op->name, op->nin, nin);
	const tt_value *vin[TT_MAX_IO];
	tt_value vout[TT_MAX_IO];
	memset(vout, 0, sizeof *vout * (size_t)nout);
	for (int i = 0; i < nin; i++) {
		if (!in[i] && (i < op->nin || op->nin_max < 0))
			return tt_graph_fail(g, "%s: input %d is missing", op->name, i);
		TT_ASSERT(in[i] >= 0 && in[i] < g->nvalues, "%s: input %d is no value of this graph", op->name, i);
		vin[i] = in[i] ? &g->values[in[i]] : NULL;
	}
	if (!own)
		attr = copy_attr(g->arena, op, attr);
	tt_rejection rejection;
	if (!tt_node_infer(g, op, attr, nin, vin, nout, vout))
		return 0;
	if (!tt_node_type(g, op, attr, nin, vin, nout, vout, &rejection)) {
		rejection.makes = names ? names[0] : output_name(g, op, 0, role);
		tt_reject(g, &rejection);
		return 0;
	}
	/* Most nodes stand in the scope of the one before. */
	const char *last = g->nnodes ? g->nodes[g->nnodes - 1].scope : "";
	tt_node n = { .op = op, .attr = attr, .scope = strcmp(last, g->scope) ? tt_arena_strdup(g->arena, g->scope) : last, .seg = g->seg, .group = g->group, .nin = nin, .nout = nout };
	tt_v *ids = TT_NEWN(g->arena, tt_v, nin + nout);
	for (int i = 0; i < nin; i++)
		ids[i] = in[i];
	n.in = ids;
	n.out = ids + nin;
	for (int i = 0; i < nout; i++) {
		vout[i].name = unique_name(g, names ? names[i] : output_name(g, op, i, role));
		vout[i].kind = TT_TEMP;
		vout[i].def = (int32_t)g->nnodes;
		vout[i].state = -1;
		n.out[i] = tt_value_push(g, &vout[i]);
	}
	TT_PUSH(g->arena, g->nodes, g->nnodes, g->cap_nodes, n);
	return n.out[0];
}

tt_v tt_node_add_n(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_v *in, int nout, const char *role)
{
	return add_node(g, op, attr, false, nin, in, nout, role, NULL);
}

tt_v tt_node_add(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_v *in, const char *role)
{
	TT_ASSERT(op->nout > 0, "%s: the builder says how many outputs", op->name);
	return tt_node_add_n(g, op, attr, nin, in, op->nout, role);
}

/* ---- copies ---------------------------------------------------------------------------------------------------------------------- */

/* Room for what a copy will have: often more than the old graph. Memory that is not touched costs nothing, growing copies all. */
static void reserve(tt_graph *g, int64_t nvalues, int64_t nnodes)
{
	enum { MORE = 4 };
	names_reserve(g, nvalues);
	nvalues *= MORE;
	nnodes *= MORE;
	tt_value *values = TT_NEWN(g->arena, tt_value, nvalues);
	memcpy(values, g->values, sizeof *values * (size_t)g->nvalues);
	g->values = values;
	g->cap_values = nvalues;
	g->nodes = TT_NEWN(g->arena, tt_node, nnodes);
	g->cap_nodes = nnodes;
}

/* A name of the old graph for the new one: the same text where both live in one arena. */
static const char *copy_name(const tt_copy *c, const char *name)
{
	return c->from->arena == c->to->arena ? name : tt_arena_strdup(c->to->arena, name);
}

tt_copy tt_copy_begin(const tt_graph *from, tt_arena *a)
{
	tt_copy c = { .from = from, .to = tt_graph_new(a, &from->mesh, from->f64) };
	c.to->explain = from->explain;
	c.to->explain_ctx = from->explain_ctx;
	c.map = TT_NEWN(a, tt_v, from->nvalues);
	reserve(c.to, from->nvalues, from->nnodes);
	for (tt_v v = 1; v < from->nvalues; v++) {
		tt_value x = from->values[v];
		if (x.kind == TT_TEMP)
			continue;
		x.name = copy_name(&c, x.name);
		c.map[v] = tt_value_push(c.to, &x);
	}
	for (int64_t i = 0; i < from->nstates; i++) {
		tt_state s = from->states[i];
		s.value = c.map[s.value];
		s.name = c.to->values[s.value].name;
		s.next = 0;
		s.within = c.map[s.within];
		TT_PUSH(a, c.to->states, c.to->nstates, c.to->cap_states, s);
	}
	return c;
}

void tt_copy_node(tt_copy *c, const tt_node *n)
{
	tt_v in[TT_MAX_IO];
	for (int i = 0; i < n->nin; i++) {
		in[i] = c->map[n->in[i]];
		TT_ASSERT(in[i] || !n->in[i] || c->to->status != TT_OK, "%s: input %s was not copied", n->op->name, c->from->values[n->in[i]].name);
	}
	tt_graph *g = c->to;
	g->seg = n->seg;
	g->group = n->group;
	memcpy(g->scope, n->scope, strlen(n->scope) + 1);
	/* Names are taken over, whatever made them. */
	int64_t first = g->nvalues;
	const char *names[TT_MAX_IO];
	for (int i = 0; i < n->nout; i++)
		names[i] = c->suffix ? tt_arena_printf(g->arena, "%s%s", c->from->values[n->out[i]].name, c->suffix)
				     : copy_name(c, c->from->values[n->out[i]].name);
	/* Attributes of a node that is not changed are as long-lived as the copy: edges of shards over thousands of ranks are many bytes. */
	int32_t def = c->from->values[n->out[0]].def;
	bool own = c->from->arena == g->arena && def >= 0 && c->from->nodes[def].attr == n->attr;
	tt_v out = add_node(g, n->op, n->attr, own, n->nin, in, n->nout, NULL, names);
	for (int i = 0; i < n->nout; i++)
		c->map[n->out[i]] = tt_out(out, i);
	TT_ASSERT(!out || out == first, "copied outputs are consecutive");
	g->scope[0] = 0;
}

void tt_copy_end(tt_copy *c)
{
	const tt_graph *f = c->from;
	for (int64_t i = 0; i < f->nstates; i++)
		if (f->states[i].next && !c->to->states[i].next)
			c->to->states[i].next = c->map[f->states[i].next];
	for (int64_t i = 0; i < f->noutputs; i++)
		tt_graph_output(c->to, c->map[f->outputs[i]]);
	if (!c->to->nroots)
		for (int64_t i = 0; i < f->nroots; i++)
			tt_graph_root(c->to, c->map[f->roots[i].value], c->map[f->roots[i].seed]);
}

tt_graph *tt_graph_erase(const tt_graph *g, tt_arena *a)
{
	tt_copy c = tt_copy_begin(g, a);
	for (int i = 0; i < c.to->mesh.naxes; i++)
		c.to->mesh.ax[i].size = 1;
	for (tt_v v = 1; v < c.to->nvalues; v++)
		c.to->values[v].layout = tt_layout_all(TT_R);
	for (int64_t i = 0; i < g->nnodes; i++) {
		const tt_node *n = &g->nodes[i];
		if (!strcmp(n->op->name, "convert"))
			c.map[n->out[0]] = c.map[n->in[0]];
		else
			tt_copy_node(&c, n);
	}
	tt_copy_end(&c);
	return c.to;
}
