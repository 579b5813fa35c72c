/* mesh_plan.c: the plan of a whole mesh. Ranks whose programs are equal are a class; one program is compiled for each.
 *
 * A rank's program follows from the extents of its shards and from the rows it is dealt. The graph of the mesh says every extent for every rank
 * without any program: ranks for which all of them are the same are alike (they differ in where their shards begin). So thousands of ranks cost
 * what their few classes cost.
 */
#include "train/mesh_plan.h"

#include "train/internal.h"

/* An extent that differs from rank to rank: dim `d` of values laid out like `v`. `axis` >= 0: v is a sum over that axis; its dim 0 is dealt over the
 * axis where the sum is taken by parts. */
typedef struct extent { const tt_value *v; int d, axis; } extent;

typedef struct extents {
	tt_arena *a;
	const tt_graph *g;
	const tt_exec_options *how;
	extent *items;
	int64_t n, cap;
} extents;

static bool cut_by(const tt_value *v, int d, int ax) { return v->layout.ax[ax].type == TT_S && v->layout.ax[ax].dim == d; }

static bool same_dim(const tt_value *v, const tt_value *w, int d, int e, int naxes)
{
	const tt_dim *p = &v->dim[d], *q = &w->dim[e];
	bool same = p->n == q->n && p->unit == q->unit && p->group == q->group && p->role == q->role;
	for (int ax = 0; ax < naxes && same; ax++) {
		const tt_axis_type *x = &v->layout.ax[ax], *y = &w->layout.ax[ax];
		same = cut_by(v, d, ax) == cut_by(w, e, ax) && (!cut_by(v, d, ax) || (x->order == y->order && x->fine == y->fine));
	}
	return same;
}

static bool same_extent(const extent *x, const extent *y, int naxes)
{
	bool same = x->axis == y->axis && same_dim(x->v, y->v, x->d, y->d, naxes);
	if (x->axis >= 0) {
		same &= x->v->ndim == y->v->ndim && x->v->dtype == y->v->dtype;
		for (int d = 0; d < x->v->ndim && same; d++)
			same = same_dim(x->v, y->v, d, d, naxes);
	}
	return same;
}

static void note(extents *x, const tt_value *v, int d, int axis)
{
	extent e = { v, d, axis };
	bool varies = axis >= 0;
	for (int ax = 0; ax < x->g->mesh.naxes; ax++)
		varies |= x->g->mesh.ax[ax].size > 1 && cut_by(v, d, ax);
	for (int64_t i = 0; i < x->n && varies; i++)
		varies = !same_extent(&e, &x->items[i], x->g->mesh.naxes);
	if (varies)
		TT_PUSH(x->a, x->items, x->n, x->cap, e);
}

static void note_graph(extents *x, const tt_graph *g)
{
	x->g = g;
	for (tt_v v = 1; v < g->nvalues; v++)
		for (int d = 0; d < g->values[v].ndim; d++)
			note(x, &g->values[v], d, -1);
	for (int64_t i = 0; i < g->nnodes; i++) {
		const tt_node *n = &g->nodes[i];
		if (strcmp(n->op->name, "convert"))
			continue;
		int ax = 0;
		while (strcmp(g->mesh.ax[ax].name, ((const tt_attr_convert *)n->attr)->axis))
			ax++;
		const tt_value *y = &g->values[n->out[0]];
		int from = g->values[n->in[0]].layout.ax[ax].type, to = y->layout.ax[ax].type;
		if (y->ndim && g->mesh.ax[ax].size > 1 && (from == TT_P || from == TT_M) && (to == TT_R || to == TT_I))
			note(x, y, 0, ax);
	}
}

/* Dim d of v on the rank at `coord`, in a cell of T tokens. */
static int64_t local_extent(const tt_graph *g, const tt_value *v, int d, const int *coord, int64_t T)
{
	if (v->dim[d].role != TT_TOKENS)
		return tt_value_piece(g, v, d, coord, -1).n;
	int64_t n = TT_MIN(T, v->dim[d].n);
	for (int order = 0; order < g->mesh.naxes; order++)
		for (int ax = 0; ax < g->mesh.naxes; ax++) {
			int64_t k = g->mesh.ax[ax].size;
			if (k > 1 && !g->mesh.ax[ax].rows && cut_by(v, d, ax) && v->layout.ax[ax].order == order)
				n = tt_deal(n, coord[ax] + 1, k) - tt_deal(n, coord[ax], k);
		}
	return n;
}

static int64_t extent_of(const extents *x, const extent *e, const int *coord, int64_t T)
{
	int64_t n = local_extent(x->g, e->v, e->d, coord, T), k = e->axis < 0 ? 1 : x->g->mesh.ax[e->axis].size;
	double bytes = tt_dtype_size(e->v->dtype, x->how->numerics, x->how->f64);
	for (int d = 0; d < e->v->ndim && e->axis >= 0; d++)
		bytes *= (double)local_extent(x->g, e->v, d, coord, T);
	if (e->axis < 0 || bytes <= TT_EXCHANGE_WHOLE)
		return n;
	return tt_deal(n, coord[e->axis] + 1, k) - tt_deal(n, coord[e->axis], k);
}

/* ---- classes --------------------------------------------------------------------------------------------------------------------------- */

typedef struct class { uint64_t key; int rank; int64_t alike, weight, id; } class; /* rank: the first of it; weight: elements of its states */

typedef struct mesh_plan {
	tt_arena *a;
	const tt_mesh_plan_options *q;
	tt_trainer *first;
	tt_on_mesh at; /* of it */
	const tt_graph *g;
	const tt_exec_options *how;
	int64_t context;
	int size[TT_PLAN_AXES];
	tt_plan_mesh *out;
	int64_t rows, per, data_ranks;
	class *classes;
	int64_t nclasses, cap_classes;
} mesh_plan;

static int64_t data_rank_of(const mesh_plan *p, const int *coord) { return coord[TT_PLAN_DP_REPLICATE] * p->size[TT_PLAN_DP_SHARD] + coord[TT_PLAN_DP_SHARD]; }

static tt_cells cells_of(const mesh_plan *p, const int *coord) { return tt_cells_of(p->rows, p->per, data_rank_of(p, coord), p->data_ranks); }

/* Tokens of the i-th cell. */
static int64_t cell_tokens(const mesh_plan *p, const tt_cells *c, int64_t i) { return (tt_cells_row(c, i + 1) - tt_cells_row(c, i)) * p->context; }

/* Elements of states on a rank: what classes are ranked by where not all can be compiled. */
static int64_t weigh(const mesh_plan *p, const int *coord)
{
	double sum = 0;
	for (int64_t i = 0; i < p->g->nstates; i++) {
		const tt_value *v = &p->g->values[p->g->states[i].value];
		double n = 1;
		for (int d = 0; d < v->ndim; d++)
			n *= (double)tt_value_piece(p->g, v, d, coord, -1).n;
		sum += n;
	}
	return (int64_t)TT_MIN(sum, 0x1p62);
}

static void classify(mesh_plan *p)
{
	extents x = { .a = p->a, .how = p->how };
	note_graph(&x, p->at.typed);
	note_graph(&x, p->at.eval);
	p->out->class_of = TT_NEWN(p->a, int32_t, p->at.ranks);
	for (int rank = 0; rank < p->at.ranks; rank++) {
		int coord[TT_PLAN_AXES];
		for (int i = 0; i < TT_PLAN_AXES; i++)
			coord[i] = tt_mesh_coord(TT_PLAN_AXES, p->size, i, rank);
		tt_cells c = cells_of(p, coord);
		int64_t key[2] = { c.end - c.first, c.n }, full = TT_MIN(c.per, c.end - c.first) * p->context, part = 0;
		uint64_t h = tt_hash64(key, sizeof key, 0);
		for (int64_t i = c.n - 1; i >= 0 && !part; i--)
			part = cell_tokens(p, &c, i);
		for (int64_t i = 0; i < x.n; i++) {
			int64_t n[2] = { extent_of(&x, &x.items[i], coord, full), extent_of(&x, &x.items[i], coord, part) };
			h = tt_hash64(n, sizeof n, h);
		}
		int64_t k = 0;
		while (k < p->nclasses && p->classes[k].key != h)
			k++;
		if (k == p->nclasses) {
			class new = { h, rank, 0, weigh(p, coord), k };
			TT_PUSH(p->a, p->classes, p->nclasses, p->cap_classes, new);
		}
		p->classes[k].alike++;
		p->out->class_of[rank] = (int32_t)k;
	}
}

/* ---- a rank ------------------------------------------------------------------------------------------------------------------------------ */

/* The programs of a step in their order; cells that follow each other and are alike are one entry. */
static int step_runs(const mesh_plan *p, const int *coord, tt_plan_run *out)
{
	tt_cells c = cells_of(p, coord);
	int64_t full = (c.end - c.first) / c.per, partial = c.end - c.first - full * c.per;
	int64_t times[] = { full, partial > 0, c.n - full - (partial > 0) }, rows[] = { c.per, partial, 0 };
	int n = 0;
	for (int i = 0; i < 3; i++)
		for (int seg = TT_SEG_F; seg <= TT_SEG_B && times[i] > 0; seg++)
			out[n++] = (tt_plan_run){ (tt_segment)seg, rows[i] * p->context, rows[i], times[i] };
	static const tt_segment once[] = { TT_SEG_REDUCE, TT_SEG_OPT, TT_SEG_PREP };
	for (int i = 0; i < TT_COUNT(once); i++)
		out[n++] = (tt_plan_run){ once[i], 0, 0, 1 };
	return n;
}

static tt_status plan_class(mesh_plan *p, const class *c, tt_trainer *t)
{
	tt_plan_run runs[16];
	const tt_hardware *h = &p->out->hardware;
	tt_plan_asked q = { .hardware = h->name ? h : NULL, .naxes = TT_PLAN_AXES, .size = p->size, .rank = c->rank, .runs = runs, .nruns = step_runs(p, tt_trainer_on_mesh(t).coord, runs),
			    .spans = p->q->spans };
	tt_plan_rank *r = &p->out->rank[p->out->nrank];
	*r = (tt_plan_rank){ .rank = c->rank, .alike = c->alike };
	TT_TRY(tt_plan_count(p->a, tt_trainer_exec(t), &q, r));
	uint32_t axes;
	int64_t bytes = tt_loop_talk(t, p->rows, &axes);
	for (int64_t i = 0; i < r->nspan; i++) /* which lies in the trainer's graphs */
		r->span[i].axis = r->span[i].axis ? tt_arena_strdup(p->a, r->span[i].axis) : NULL;
	if (axes)
		tt_plan_talk_add(p->a, r, axes, "losses of rows", 1, bytes);
	p->out->nrank++;
	return TT_OK;
}

static int heavier(const class *x, const class *y) { return x->weight != y->weight ? x->weight > y->weight : x->rank < y->rank; }

static tt_status plan_classes(mesh_plan *p)
{
	int64_t most = p->q->classes ? p->q->classes : p->nclasses;
	/* The heaviest behind rank 0's own, which is there already. */
	for (int64_t i = 1; i < p->nclasses; i++)
		for (int64_t k = i; k > 1 && heavier(&p->classes[k], &p->classes[k - 1]); k--) {
			class moved = p->classes[k];
			p->classes[k] = p->classes[k - 1];
			p->classes[k - 1] = moved;
		}
	int32_t *place = TT_NEWN(p->a, int32_t, p->nclasses);
	for (int64_t i = 0; i < p->nclasses; i++)
		place[p->classes[i].id] = (int32_t)i;
	for (int rank = 0; rank < p->at.ranks; rank++)
		p->out->class_of[rank] = place[p->out->class_of[rank]];
	p->out->nclasses = p->nclasses;
	p->out->rank = TT_NEWN(p->a, tt_plan_rank, TT_MIN(most, p->nclasses));
	for (int64_t i = 0; i < TT_MIN(most, p->nclasses); i++) {
		tt_trainer *other = NULL;
		tt_comm *c = i ? tt_comm_fake_create(p->classes[i].rank, p->at.ranks) : NULL;
		tt_status s = i ? tt_trainer_plan_rank(p->first, c, &other) : TT_OK;
		if (!s)
			s = plan_class(p, &p->classes[i], i ? other : p->first);
		tt_trainer_destroy(other);
		tt_comm_fake_destroy(c);
		TT_TRY(s);
	}
	for (int64_t i = 1; i < p->out->nrank; i++) {
		const tt_plan_rank *r = p->out->rank;
		p->out->worst = r[i].memory > r[p->out->worst].memory ? i : p->out->worst;
		p->out->slowest = r[i].seconds > r[p->out->slowest].seconds ? i : p->out->slowest;
	}
	return TT_OK;
}

tt_status tt_mesh_plan(tt_arena *a, const tt_run_options *o, const tt_mesh_plan_options *q, tt_plan_mesh *out)
{
	double t0 = tt_now();
	tt_plan_mesh m = { .name = q->name, .limit = q->limit };
	mesh_plan p = { .a = a, .q = q, .out = &m };
	tt_run_options alone = *o;
	int ranks = 1;
	for (int i = 0; i < TT_RUN_AXES; i++)
		ranks *= TT_MAX(o->mesh.size[i], 1);
	alone.mesh.comm = tt_comm_fake_create(0, ranks);
	alone.mesh.led = false;
	if (q->hardware)
		m.hardware = *q->hardware;
	tt_status s = tt_trainer_plan(&alone, &p.first);
	if (s) {
		tt_comm_fake_destroy(alone.mesh.comm);
		TT_TRY(s);
	}
	p.at = tt_trainer_on_mesh(p.first);
	p.g = p.at.typed;
	p.context = o->data.context_length;
	p.how = &o->exec;
	p.rows = o->data.tokens_per_step / o->data.context_length;
	p.per = o->tokens_per_microbatch / o->data.context_length;
	m.naxes = TT_PLAN_AXES;
	for (int i = 0; i < TT_PLAN_AXES; i++)
		m.size[i] = p.size[i] = p.g->mesh.ax[i].size;
	p.data_ranks = (int64_t)p.size[TT_PLAN_DP_REPLICATE] * p.size[TT_PLAN_DP_SHARD];
	for (int i = 0; i < q->dump.n && q->dump_out; i++)
		tt_trainer_dump(p.first, q->dump.items[i], q->dump_out);
	classify(&p);
	s = plan_classes(&p);
	m.ranks = p.at.ranks;
	m.params = tt_trainer_params(p.first);
	m.sp = o->mesh.sp;
	m.rows = p.rows;
	m.tokens = (double)o->data.tokens_per_step;
	m.data_ranks = p.data_ranks;
	m.cells = cells_of(&p, p.at.coord).n;
	double row = (double)o->data.context_length, w = (double)o->model.sliding_window;
	w = w > 0 && w < row ? w : row;
	m.model_flops = 3 * tt_llama_forward_flops(&o->model, row * (double)p.rows, (double)p.rows * (w * (w + 1) / 2 + (row - w) * w));
	m.plan_seconds = tt_now() - t0;
	tt_trainer_destroy(p.first);
	tt_comm_fake_destroy(alone.mesh.comm);
	TT_TRY(s);
	*out = m;
	return TT_OK;
}

tt_status tt_mesh_plan_fits(tt_arena *a, const tt_run_options *o, const tt_plan_mesh *m)
{
	const tt_plan_rank *r = &m->rank[m->worst];
	if (r->memory <= m->limit)
		return TT_OK;
	tt_error_set(TT_ERR_MEMORY, __FILE__, __LINE__, "the plan needs %s on rank %d, a rank may have %s (hardware.table, --memory)", tt_scale_bytes(r->memory).s, r->rank,
		     tt_scale_bytes(m->limit).s);
	tt_run_options there = *o;
	there.mesh.comm = tt_comm_fake_create(r->rank, (int)m->ranks);
	there.mesh.led = false;
	tt_status s = tt_fit_refuse(a, &there, m->limit, m->hardware.name && strcmp(m->hardware.name, "this"));
	tt_comm_fake_destroy(there.mesh.comm);
	return s;
}
