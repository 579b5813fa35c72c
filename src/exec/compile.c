/* compile.c: graphs become programs. Storages for values, kernels for nodes, operands for kernels; offsets come later (plan.c). */
#include "exec/internal.h"
#include "ops/ops.h"

/* ---- names ---------------------------------------------------------------------------------------------------------- */

static int64_t names_at(const names *m, const char *name)
{
	uint64_t at = tt_hash64(name, strlen(name), 0);
	for (;; at++) {
		int64_t i = (int64_t)(at & (uint64_t)(m->cap - 1));
		if (!m->slot[i].name || !strcmp(m->slot[i].name, name))
			return i;
	}
}

int32_t names_find(const names *m, const char *name)
{
	if (!m->cap)
		return -1;
	int64_t i = names_at(m, name);
	return m->slot[i].name ? m->slot[i].id : -1;
}

void names_add(names *m, tt_arena *a, const char *name, int32_t id)
{
	if (2 * m->n >= m->cap) {
		names bigger = {.cap = TT_MAX(2 * m->cap, (int64_t)64)};
		bigger.slot = tt_arena_alloc(a, sizeof *bigger.slot * (size_t)bigger.cap);
		for (int64_t i = 0; i < m->cap; i++)
			if (m->slot[i].name)
				bigger.slot[names_at(&bigger, m->slot[i].name)] = m->slot[i];
		bigger.n = m->n;
		*m = bigger;
	}
	int64_t i = names_at(m, name);
	m->slot[i].name = name;
	m->slot[i].id = id;
	m->n++;
}

/* ---- storages --------------------------------------------------------------------------------------------------------- */

int32_t store_root(const tt_exec *e, int32_t s, int64_t *at)
{
	while (e->stores[s].parent >= 0) {
		if (at)
			*at += e->stores[s].at;
		s = e->stores[s].parent;
	}
	return s;
}

static bool is_dynamic(const tt_dim *d) { return d->role == TT_TOKENS || d->role == TT_SEQS; }

/* Elements, and bytes of one plane and of all, of a storage for a value of this shape. */
static tt_status measure(const tt_exec *e, const char *name, tt_dtype dt, tt_format f, int ndim, const tt_dim *dim, store *s)
{
	bool limbs = dt == TT_ACC && e->o.numerics == TT_EXACT && !e->o.f64;
	s->planes = limbs ? 3 : 1;
	s->esize = limbs ? (int)sizeof(int64_t) : tt_dtype_size(dt, e->o.numerics, e->o.f64);
	s->count = 1;
	bool over = false;
	for (int d = 0; d < ndim; d++) {
		TT_ASSERT(dim[d].n >= 0, "%s: dim %d has %lld elements", name, d, (long long)dim[d].n);
		over |= __builtin_mul_overflow(s->count, dim[d].n, &s->count);
	}
	if (!over && f != TT_PLAIN) {
		TT_ASSERT(ndim == 2, "%s: a packed matrix has 2 dims, not %d", name, ndim);
		s->count = tt_format_count(f, dt, dim[0].n, dim[1].n);
	}
	over |= __builtin_mul_overflow(s->count, (int64_t)s->esize, &s->bytes) || s->bytes > INT64_MAX / 8;
	if (over)
		TT_FAIL(TT_ERR_MEMORY, "%s: its dims multiply to more bytes than can be counted", name);
	s->plane = limbs ? tt_round_up(s->bytes, ALIGN) : s->bytes;
	s->bytes = (s->planes - 1) * s->plane + s->bytes;
	return TT_OK;
}

static tt_status new_store(tt_exec *e, const tt_value *v, store_kind kind, int region, int32_t *out)
{
	store s = {.name = v->name, .kind = kind, .parent = -1, .region = region, .first = INT64_MAX, .last = -1};
	TT_TRY(measure(e, v->name, v->dtype, v->format, v->ndim, v->dim, &s));
	*out = (int32_t)e->nstores;
	TT_PUSH(e->arena, e->stores, e->nstores, e->cap_stores, s);
	return TT_OK;
}

static tt_slot slot_of(const tt_value *v)
{
	tt_slot s = {.name = v->name, .dtype = v->dtype, .format = v->format, .ndim = v->ndim, .source = -1};
	memcpy(s.dim, v->dim, sizeof s.dim);
	return s;
}

static void print_shape(tt_dtype dt, tt_format f, int ndim, const tt_dim *dim, tt_buf *b)
{
	tt_buf_printf(b, "%s%s%s[", tt_dtype_name(dt), f == TT_PLAIN ? "" : " ", f == TT_PLAIN ? "" : tt_format_name(f));
	for (int d = 0; d < ndim; d++)
		tt_buf_printf(b, "%s%lld", d ? "," : "", (long long)dim[d].n);
	tt_buf_str(b, "]");
}

/* Two graphs bring a state or an input of one name. Bounds of dynamic dims may differ (the larger is planned), all else may not. */
static tt_status agree(const char *what, const tt_slot *s, const tt_value *v)
{
	bool same = s->dtype == v->dtype && s->format == v->format && s->ndim == v->ndim;
	for (int d = 0; same && d < v->ndim; d++)
		same = s->dim[d].role == v->dim[d].role && (s->dim[d].n == v->dim[d].n || (d == 0 && is_dynamic(&v->dim[d])));
	if (same)
		return TT_OK;
	tt_buf had = {0}, has = {0};
	print_shape(s->dtype, s->format, s->ndim, s->dim, &had);
	print_shape(v->dtype, v->format, v->ndim, v->dim, &has);
	tt_error_set(TT_ERR_TYPE, __FILE__, __LINE__, "%s %s: an earlier graph has it as %s, this one as %s", what, s->name, had.s, has.s);
	tt_buf_fini(&had);
	tt_buf_fini(&has);
	return TT_ERR_TYPE;
}

static tt_status add_state(tt_exec *e, const tt_graph *g, const tt_state *st, int32_t *out)
{
	const tt_value *v = &g->values[st->value];
	int32_t i = names_find(&e->state_names, st->name);
	if (i >= 0) {
		TT_TRY(agree("state", &e->states[i], v));
		if (e->states[i].region != (int)st->region)
			TT_FAIL(TT_ERR_TYPE, "state %s: an earlier graph keeps it in region %s, this one in %s", st->name,
				tt_exec_region_name(e->states[i].region), tt_region_kind_name(st->region));
		*out = e->states[i].store;
		return TT_OK;
	}
	for (int d = 0; d < v->ndim; d++)
		if (is_dynamic(&v->dim[d]))
			TT_FAIL(TT_ERR_TYPE, "state %s: dim %d is %s, which a state outlives", st->name, d, tt_role_name(v->dim[d].role));
	if (st->within)
		*out = e->states[names_find(&e->state_names, g->values[st->within].name)].store;
	else
		TT_TRY(new_store(e, v, STORE_STATE, (int)st->region, out));
	tt_slot s = slot_of(v);
	s.region = (int)st->region;
	s.trainable = st->trainable;
	s.store = *out;
	names_add(&e->state_names, e->arena, st->name, (int32_t)e->nstates);
	TT_PUSH(e->arena, e->states, e->nstates, e->cap_states, s);
	return TT_OK;
}

static tt_status add_input(tt_exec *e, const tt_value *v, int32_t *out)
{
	int32_t i = names_find(&e->input_names, v->name);
	if (i >= 0) {
		tt_slot *s = &e->inputs[i];
		TT_TRY(agree("input", s, v));
		*out = e->inputs[i].store;
		if (s->ndim > 0 && v->dim[0].n > s->dim[0].n) {
			s->dim[0].n = v->dim[0].n;
			TT_TRY(measure(e, v->name, v->dtype, v->format, v->ndim, v->dim, &e->stores[*out]));
		}
		return TT_OK;
	}
	TT_TRY(new_store(e, v, STORE_INPUT, TT_REGION_IO, out));
	for (int d = 0; d < v->ndim; d++)
		e->stores[*out].per_frame |= is_dynamic(&v->dim[d]); /* a cell's own: B must find what its F was given */
	tt_slot s = slot_of(v);
	s.region = TT_REGION_IO;
	s.store = *out;
	names_add(&e->input_names, e->arena, v->name, (int32_t)e->ninputs);
	TT_PUSH(e->arena, e->inputs, e->ninputs, e->cap_inputs, s);
	return TT_OK;
}

static void add_output(tt_exec *e, const merger *m, tt_v v)
{
	const tt_value *x = &m->g->values[v];
	tt_segment seg = x->def >= 0 ? m->g->nodes[x->def].seg : TT_SEG_F;
	if (x->kind != TT_TEMP || m->skip[seg])
		return; /* found by its own name, or already there */
	tt_slot s = slot_of(x);
	s.seg = seg;
	s.store = m->store[v];
	s.at = m->at[v];
	TT_PUSH(e->arena, e->outputs, e->noutputs, e->cap_outputs, s);
}

/* ---- kernels ------------------------------------------------------------------------------------------------------------ */

typedef struct choice {
	tt_kernel_fn *run;
	const char *name;
	const void *plan;
	size_t scratch;
	bool fast;
} choice;

static tt_status choose(tt_exec *e, const tt_graph *g, const tt_node *n, choice *out)
{
	const tt_value **io = TT_NEWN(e->arena, const tt_value *, n->nin + n->nout);
	for (int i = 0; i < n->nin + n->nout; i++) {
		tt_v v = i < n->nin ? n->in[i] : n->out[i - n->nin];
		io[i] = v ? &g->values[v] : NULL;
	}
	tt_kernel_case c = {n->op->name, n->attr, n->nin, n->nout, io, io + n->nin, e->o.threads};
	if (!e->o.kernels_ref && e->o.numerics == TT_FAST && !e->o.f64) {
		const tt_override *o = tt_override_lying(&c, e->o.isa);
		if (o) {
			const void *plan = NULL;
			double start = tt_now();
			if (o->plan)
				TT_TRY(o->plan(&c, e->arena, &plan));
			e->jit += tt_now() - start;
			*out = (choice){o->run, o->name, plan, o->scratch ? o->scratch(&c) : 0, true};
			return TT_OK;
		}
	}
	size_t scratch = n->op->scratch ? n->op->scratch(n->attr, n->nin, c.in, n->nout, c.out, &e->env) : 0;
	const tt_kernel *k = tt_kernel_ref(n->op->name, e->o.isa, e->o.f64);
	if (k && e->o.numerics == TT_EXACT && !e->o.f64 && k->exact)
		*out = (choice){k->exact, tt_arena_printf(e->arena, "%s exact", tt_isa_name(e->o.isa)), NULL, scratch, false};
	else if (k)
		*out = (choice){k->run, e->o.f64 ? "f64" : tt_isa_name(e->o.isa), NULL, scratch, false};
	else if (n->op->kernel)
		*out = (choice){n->op->kernel, "op", NULL, scratch, false};
	else
		TT_FAIL(TT_ERR_TYPE, "%s: op %s has no kernel: not in the families of kernels/ (%s), and none in its table entry",
			g->values[n->out[0]].name, n->op->name, e->o.f64 ? "f64" : tt_isa_name(e->o.isa));
	return TT_OK;
}

/* ---- instructions ---------------------------------------------------------------------------------------------------------- */

static tt_status add_arg(tt_exec *e, program *p, const tt_value *v, tt_arg *a)
{
	*a = (tt_arg){.dtype = v->dtype, .format = v->format, .ndim = v->ndim, .ld = 1};
	for (int d = 0; d < v->ndim; d++) {
		const tt_dim *dim = &v->dim[d];
		a->n[d] = dim->n;
		if (d > 0)
			a->ld *= dim->n;
		if (!is_dynamic(dim))
			continue;
		extent x = {&a->n[d], dim};
		TT_PUSH(e->arena, p->extents, p->nextents, p->cap_extents, x);
		bool seqs = dim->role == TT_SEQS;
		if (dim->share[0].parts)
			continue; /* of what another operand has whole */
		if (!seqs)
			p->t_max = TT_MAX(p->t_max, dim->base + dim->n);
		else
			p->seqs_max = p->seqs_max < 0 ? dim->n : TT_MIN(p->seqs_max, dim->n);
		if (!seqs && e->o.t_max && dim->base + dim->n > e->o.t_max)
			TT_FAIL(TT_ERR_TYPE, "%s: its dim %d ends at token %lld, a cell has at most %lld", v->name, d,
				(long long)(dim->base + dim->n), (long long)e->o.t_max);
		if (seqs && e->o.seqs_max && dim->n != e->o.seqs_max + 1)
			TT_FAIL(TT_ERR_TYPE, "%s: its dim %d has %lld entries, %lld sequences need %lld", v->name, d, (long long)dim->n,
				(long long)e->o.seqs_max, (long long)e->o.seqs_max + 1);
	}
	return TT_OK;
}

/* fill_const of zero into a state; that the state is its input says that no node before it wrote there. */
static bool zeroes_state(const tt_exec *e, const tt_graph *g, const program *p, const tt_node *n)
{
	if (strcmp(n->op->name, "fill_const") || g->values[n->in[0]].kind != TT_STATE)
		return false;
	double v = ((const tt_attr_init *)n->attr)->mean;
	return v == 0 && !__builtin_signbit(v) && store_root(e, p->store[n->out[0]], NULL) == store_root(e, p->store[n->in[0]], NULL);
}

static tt_status add_instr(tt_exec *e, const tt_graph *g, program *p, const tt_node *n, bool under_way)
{
	choice c = {0};
	TT_TRY(choose(e, g, n, &c));
	instr in = {.node = n, .run = c.run, .kernel = c.name, .fast = c.fast, .scratch = c.scratch, .zeroes = zeroes_state(e, g, p, n)};
	in.args = TT_NEWN(e->arena, tt_arg, n->nin + n->nout);
	for (int i = 0; i < n->nin + n->nout; i++) {
		tt_v v = i < n->nin ? n->in[i] : n->out[i - n->nin];
		if (v)
			TT_TRY(add_arg(e, p, &g->values[v], &in.args[i]));
	}
	in.call = (tt_call){.in = in.args, .out = in.args + n->nin, .nin = n->nin, .nout = n->nout, .attr = n->attr, .plan = c.plan, .env = &e->env};
	for (int k = 0; k < TT_COMM_LANES; k++)
		in.wait[k] = -1;
	if (under_way)
		in.axes = (int)tt_exchange_axes(n);
	if (exchange_of(n)) {
		in.hides = (tt_hides)exchange_of(n)->hides;
		in.lane = (tt_comm_lane)exchange_of(n)->lane;
	}
	int64_t *scratch = under_way ? &p->lane_scratch[in.lane] : &p->scratch;
	*scratch = TT_MAX(*scratch, (int64_t)c.scratch);
	TT_PUSH(e->arena, p->instrs, p->ninstrs, p->cap_instrs, in);
	return TT_OK;
}

/* What a probe is told at a program's start. */
static tt_status add_reads(tt_exec *e, program *p)
{
	bool *seen = TT_NEWN(e->arena, bool, p->g->nvalues);
	int64_t bound = 0;
	for (int64_t i = 0; i < p->nlines; i++)
		bound += p->lines[i].node->nin;
	p->reads = TT_NEWN(e->arena, tt_v, bound);
	p->read_args = TT_NEWN(e->arena, tt_arg, bound);
	for (int64_t i = 0; i < p->nlines; i++)
		for (int j = 0; j < p->lines[i].node->nin; j++) {
			tt_v v = p->lines[i].node->in[j];
			if (!v || seen[v] || p->g->values[v].kind == TT_TEMP)
				continue;
			seen[v] = true;
			p->reads[p->nreads] = v;
			TT_TRY(add_arg(e, p, &p->g->values[v], &p->read_args[p->nreads++]));
		}
	return TT_OK;
}

static tt_status compile(tt_exec *e, const merger *m, tt_segment seg)
{
	program p = {.g = m->g, .store = m->store, .at = m->at, .t_max = -1, .seqs_max = -1, .seen_T = -1, .seen_frame = -1, .counted_T = -1};
	int64_t *instr_at = TT_NEWN(e->arena, int64_t, m->g->nnodes), mine = 0;
	for (int64_t i = 0; i < m->g->nnodes; i++)
		mine += m->g->nodes[i].seg == seg;
	p.lines = TT_NEWN(e->arena, line, mine);
	p.instrs = TT_NEWN(e->arena, instr, mine);
	p.cap_lines = p.cap_instrs = mine;
	for (int64_t i = 0; i < m->g->nnodes; i++) {
		const tt_node *n = &m->g->nodes[i];
		if (n->seg != seg)
			continue;
		line l = {n, m->elided[i] ? -1 : p.ninstrs};
		TT_PUSH(e->arena, p.lines, p.nlines, p.cap_lines, l);
		if (!m->elided[i])
			TT_TRY(add_instr(e, m->g, &p, n, m->done[i] >= 0));
		instr_at[i] = m->elided[i] ? -1 : p.ninstrs - 1;
	}
	for (int64_t i = 0; i < m->g->nnodes; i++) {
		if (m->g->nodes[i].seg != seg || m->done[i] < 0 || m->done[i] == m->g->nnodes)
			continue;
		int64_t *wait = &p.instrs[instr_at[m->done[i]]].wait[p.instrs[instr_at[i]].lane];
		*wait = TT_MAX(*wait, instr_at[i]);
	}
	if (p.nlines == 0)
		return TT_OK;
	if (e->o.probe.begin)
		TT_TRY(add_reads(e, &p));
	p.flags = tt_arena_alloc(e->arena, sizeof *p.flags * (size_t)TT_MAX(p.ninstrs, (int64_t)1));
	for (int64_t i = 0; i < p.ninstrs; i++)
		p.instrs[i].call.flag = &p.flags[i];
	e->prog[seg] = p;
	return TT_OK;
}

/* ---- graphs -------------------------------------------------------------------------------------------------------------- */

/* INIT and PREP come once: the program that is there must make every state that the dropped one would. */
static tt_status check_dropped(tt_exec *e, const tt_graph *g, tt_segment seg)
{
	const program *p = &e->prog[seg];
	names made = {0}; /* by the program that is there */
	for (int64_t i = 0; i < p->g->nstates; i++) {
		tt_v next = p->g->states[i].next;
		if (next && p->g->values[next].def >= 0 && p->g->nodes[p->g->values[next].def].seg == seg)
			names_add(&made, e->arena, p->g->states[i].name, (int32_t)i);
	}
	for (int64_t i = 0; i < g->nstates; i++) {
		tt_v next = g->states[i].next;
		if (!next || g->values[next].def < 0 || g->nodes[g->values[next].def].seg != seg)
			continue;
		if (names_find(&made, g->states[i].name) < 0)
			TT_FAIL(TT_ERR_TYPE, "state %s: %s of an earlier graph does not make it, and is compiled once: add the graph that does first",
				g->states[i].name, tt_segment_name(seg));
	}
	return TT_OK;
}

static tt_status drop_repeats(tt_exec *e, merger *m)
{
	for (int64_t i = 0; i < m->g->nnodes; i++) {
		tt_segment seg = m->g->nodes[i].seg;
		if (!e->prog[seg].g || m->skip[seg])
			continue;
		if (seg != TT_SEG_INIT && seg != TT_SEG_PREP)
			TT_FAIL(TT_ERR_TYPE, "an earlier graph has brought a program %s already", tt_segment_name(seg));
		TT_TRY(check_dropped(e, m->g, seg));
		m->skip[seg] = true;
	}
	return TT_OK;
}

tt_status tt_exec_add_graph(tt_exec *e, const tt_graph *g)
{
	TT_ASSERT(!e->is_planned, "add graphs before plan");
	TT_TRY(tt_graph_check(g));
	if (g->f64 != e->o.f64)
		TT_FAIL(TT_ERR_TYPE, "the graph is built for %s, the executor for %s", g->f64 ? "double" : "float", e->o.f64 ? "double" : "float");
	merger m = {.e = e, .g = g};
	TT_TRY(drop_repeats(e, &m));
	if (e->nstores + g->nvalues > e->cap_stores) { /* at once: growing by halves would copy it many times */
		e->cap_stores = e->nstores + g->nvalues;
		store *all = TT_NEWN(e->arena, store, e->cap_stores);
		if (e->nstores)
			memcpy(all, e->stores, sizeof *all * (size_t)e->nstores);
		e->stores = all;
	}
	m.store = TT_NEWN(e->arena, int32_t, g->nvalues);
	m.at = TT_NEWN(e->arena, int64_t, g->nvalues);
	m.whole = TT_NEWN(e->arena, tt_v, g->nvalues);
	m.elided = TT_NEWN(e->arena, bool, g->nnodes);
	m.done = TT_NEWN(e->arena, int64_t, g->nnodes);
	for (tt_v v = 0; v < g->nvalues; v++) {
		m.store[v] = -1;
		m.whole[v] = v;
	}
	for (int64_t i = 0; i < g->nstates; i++)
		TT_TRY(add_state(e, g, &g->states[i], &m.store[g->states[i].value]));
	for (int64_t i = 0; i < g->nstates; i++) {
		int32_t k = names_find(&e->state_names, g->states[i].name);
		if (g->states[i].source >= 0)
			e->states[k].source = names_find(&e->state_names, g->states[g->states[i].source].name);
	}
	for (tt_v v = 1; v < g->nvalues; v++) {
		const tt_value *x = &g->values[v];
		if (x->kind == TT_INPUT)
			TT_TRY(add_input(e, x, &m.store[v]));
		if (x->kind != TT_TEMP)
			continue;
		TT_TRY(new_store(e, x, STORE_TEMP, TT_REGION_WORK, &m.store[v]));
		e->stores[m.store[v]].seg = g->nodes[x->def].seg;
		e->stores[m.store[v]].dead = m.skip[g->nodes[x->def].seg];
	}
	TT_TRY(merge_storages(&m));
	for (int64_t i = 0; i < g->noutputs; i++)
		add_output(e, &m, g->outputs[i]);
	for (int seg = 0; seg < TT_NSEGS; seg++)
		if (!m.skip[seg])
			TT_TRY(compile(e, &m, (tt_segment)seg));
	return tt_arena_ok(e->arena);
}
