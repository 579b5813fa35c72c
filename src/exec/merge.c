/* merge.c: which values of a graph lie in the same bytes.
 *
 * Four reasons, in this order:
 *   view      an output of a TT_OP_VIEW op is lines of its input;
 *   version   the new version of a state is written into the state. In place where the op may (TT_OP_INPLACE), through a chain of
 *             in-place versions where there are several (accumulation over chunks of the loss); else the node writes there directly;
 *   join      inputs of a TT_OP_JOIN op are made inside its output, if each of them is a temporary of the same program that fills a
 *             storage of its own; otherwise the op's kernel copies;
 *   in place  a result takes the place of an input that nobody reads later.
 * A version that would be overwritten before its last reader is an error here, not a wrong number later.
 */
#include "exec/internal.h"
#include "ops/ops.h"

static const tt_value *value(const merger *m, tt_v v) { return &m->g->values[v]; }

/* The root of a storage. All on the way are hung on it (path compression): results in place make chains as long as the model is deep. */
static store *root_store(const merger *m, int32_t s)
{
	store *all = m->e->stores;
	int64_t at = 0;
	int32_t root = store_root(m->e, s, &at);
	while (s != root) {
		int32_t up = all[s].parent;
		int64_t in_up = all[s].at;
		all[s].parent = root;
		all[s].at = at;
		at -= in_up;
		s = up;
	}
	return &all[root];
}

static store *root_of(const merger *m, tt_v v) { return root_store(m, m->store[v]); }

static int64_t line_width(const tt_value *v)
{
	int64_t n = 1;
	for (int d = 1; d < v->ndim; d++)
		n *= v->dim[d].n;
	return n;
}

/* First line of `part` in `whole`: by token where dim 0 is tokens, else parts follow each other (`*running` lines so far). -1 if
 * the part is not lines of the whole. */
static int64_t first_line(const tt_value *whole, const tt_value *part, int64_t *running)
{
	if (whole->format != part->format || whole->dtype != part->dtype)
		return -1;
	if (tt_value_count(whole) == tt_value_count(part) && (whole->ndim == 0 || part->ndim == 0 || whole->format != TT_PLAIN))
		return 0;
	if (whole->ndim == 0 || part->ndim == 0 || whole->format != TT_PLAIN || line_width(whole) != line_width(part))
		return -1;
	int64_t at = *running;
	if (whole->dim[0].role == TT_TOKENS && part->dim[0].role == TT_TOKENS)
		at = part->dim[0].base - whole->dim[0].base;
	*running = at + part->dim[0].n;
	return at >= 0 && at + part->dim[0].n <= whole->dim[0].n ? at : -1;
}

static tt_status place_views(merger *m)
{
	for (int64_t i = 0; i < m->g->nnodes; i++) {
		const tt_node *n = &m->g->nodes[i];
		if (!(n->op->flags & TT_OP_VIEW))
			continue;
		const tt_value *whole = value(m, n->in[0]);
		int64_t running = 0;
		for (int o = 0; o < n->nout; o++) {
			const tt_value *part = value(m, n->out[o]);
			int64_t at = first_line(whole, part, &running);
			if (at < 0)
				TT_FAIL(TT_ERR_TYPE, "%s: not lines of %s, which it should be a view of (%s)", part->name, whole->name,
					n->op->name);
			m->store[n->out[o]] = m->store[n->in[0]];
			m->at[n->out[o]] = m->at[n->in[0]] + at * line_width(whole);
			m->whole[n->out[o]] = m->whole[n->in[0]];
		}
		m->elided[i] = true;
	}
	return TT_OK;
}

static int output_index(const tt_node *n, tt_v v)
{
	for (int o = 0; o < n->nout; o++)
		if (n->out[o] == v)
			return o;
	TT_ASSERT(false, "value %d is not made by its node", (int)v);
}

static bool same_shape(const tt_value *a, const tt_value *b)
{
	bool same = a->format == b->format && a->ndim == b->ndim;
	for (int d = 0; same && d < a->ndim; d++)
		same = a->dim[d].n == b->dim[d].n && a->dim[d].base == b->dim[d].base && a->dim[d].role == b->dim[d].role;
	return same;
}

/* The input whose place an output may take: input i for output i; 0 if the op does not offer it. */
static tt_v inplace_input(const merger *m, tt_v out)
{
	const tt_node *n = &m->g->nodes[value(m, out)->def];
	int o = output_index(n, out);
	if (!(n->op->flags & TT_OP_INPLACE) || !tt_exchange_in_place(n) || o >= n->nin || !n->in[o] || !same_shape(value(m, n->in[o]), value(m, out)))
		return 0;
	return n->in[o];
}

/* Puts the storage of a temporary into `into`, whose last use comes later. */
static void put_into(merger *m, int32_t s, int32_t into, int64_t at)
{
	store *c = &m->e->stores[s];
	TT_ASSERT(c->parent < 0 && c->kind == STORE_TEMP, "%s has its place already", c->name);
	c->parent = into;
	c->at = at;
	store *r = root_store(m, into);
	r->first = TT_MIN(r->first, c->first);
}

/* ---- versions of states -------------------------------------------------------------------------------------------- */

static tt_status place_version(merger *m, const tt_state *s)
{
	tt_v next = s->next, old = s->value;
	int32_t home = m->store[old];
	const tt_value *v = value(m, next);
	if (v->kind != TT_TEMP)
		TT_FAIL(TT_ERR_TYPE, "state %s: its new version %s is not made by a node", s->name, v->name);
	if (m->whole[next] != next)
		TT_FAIL(TT_ERR_TYPE, "state %s: its new version %s is a view of %s; it needs a node that writes it", s->name, v->name,
			value(m, m->whole[next])->name);
	if (v->dtype != value(m, old)->dtype || v->format != value(m, old)->format || tt_value_count(v) != tt_value_count(value(m, old)))
		TT_FAIL(TT_ERR_TYPE, "state %s: its new version %s has another dtype, format or size", s->name, v->name);
	/* Only a chain that reaches the old version is laid into the state: what else the result might be computed in place of is made
	 * while the old version is still to be read. */
	tt_v first = next;
	tt_segment seg = m->g->nodes[v->def].seg;
	for (tt_v u = next; u; u = inplace_input(m, u)) {
		const tt_value *x = value(m, u);
		if (x->kind != TT_TEMP || m->whole[u] != u || m->g->nodes[x->def].seg != seg)
			break;
		tt_v before = inplace_input(m, u);
		if (before == old || (before && value(m, before)->kind == TT_STATE && m->store[before] == home))
			first = u;
	}
	for (tt_v u = next;; u = inplace_input(m, u)) {
		const store *c = &m->e->stores[m->store[u]];
		if (c->parent >= 0)
			TT_FAIL(TT_ERR_TYPE, "state %s: its version %s is already one of state %s", s->name, c->name,
				m->e->stores[c->parent].name);
		put_into(m, m->store[u], home, 0);
		if (u == first)
			return TT_OK;
	}
}

/* Walks a segment in order and follows which version each state holds; now[storage] is 0 until the program writes it. */
static tt_status follow_versions(const merger *m, tt_segment seg, tt_v *now)
{
	const store *stores = m->e->stores;
	for (int64_t i = 0; i < m->g->nnodes; i++) {
		const tt_node *n = &m->g->nodes[i];
		if (n->seg != seg || m->elided[i])
			continue;
		for (int j = 0; j < n->nin; j++) {
			const store *r = n->in[j] ? root_of(m, n->in[j]) : NULL;
			if (!r || r->kind != STORE_STATE)
				continue;
			tt_v u = m->whole[n->in[j]], held = now[r - stores];
			if (held ? u != held : value(m, u)->kind != TT_STATE)
				TT_FAIL(TT_ERR_TYPE, "%s (%s, %s) reads %s, but state %s then holds %s: read it before that is written, or copy it",
					value(m, n->out[0])->name, n->op->name, tt_segment_name(seg), value(m, n->in[j])->name, r->name,
					held ? value(m, held)->name : "what it held before the program");
		}
		for (int o = 0; o < n->nout; o++) {
			const store *r = root_of(m, n->out[o]);
			if (r->kind != STORE_STATE)
				continue;
			for (int j = 0; j < n->nin; j++)
				if (n->in[j] && root_of(m, n->in[j]) == r && !(j == o && inplace_input(m, n->out[o])))
					TT_FAIL(TT_ERR_TYPE, "%s (%s, %s) reads state %s while it writes its next version, which the op cannot do in place",
						value(m, n->out[o])->name, n->op->name, tt_segment_name(seg), r->name);
			now[r - stores] = n->out[o];
		}
	}
	return TT_OK;
}

static tt_status check_versions(const merger *m)
{
	tt_arena *a = m->e->arena;
	for (int seg = 0; seg < TT_NSEGS; seg++) {
		tt_mark mark = tt_arena_push(a);
		tt_status s = follow_versions(m, (tt_segment)seg, TT_NEWN(a, tt_v, m->e->nstores));
		tt_arena_pop(a, mark);
		TT_TRY(s);
	}
	return TT_OK;
}

/* ---- joins --------------------------------------------------------------------------------------------------------- */

static bool join_fits(const merger *m, int64_t index)
{
	const tt_node *n = &m->g->nodes[index];
	const tt_value *whole = value(m, n->out[0]);
	int64_t running = 0;
	if (m->e->o.no_alias || root_of(m, n->out[0])->kind != STORE_TEMP)
		return false;
	for (int i = 0; i < n->nin; i++) {
		if (!n->in[i])
			return false;
		const store *c = &m->e->stores[m->store[n->in[i]]];
		bool own = c->kind == STORE_TEMP && c->parent < 0 && c->seg == n->seg && m->whole[n->in[i]] == n->in[i];
		if (!own || first_line(whole, value(m, n->in[i]), &running) < 0)
			return false;
		for (int j = 0; j < i; j++)
			if (n->in[j] == n->in[i])
				return false;
	}
	return true;
}

static void place_joins(merger *m)
{
	/* Later joins first, so that an output that is itself joined has its place when its inputs ask. Either order is right. */
	for (int64_t i = m->g->nnodes - 1; i >= 0; i--) {
		const tt_node *n = &m->g->nodes[i];
		if (!(n->op->flags & TT_OP_JOIN) || !join_fits(m, i))
			continue;
		int64_t running = 0;
		for (int j = 0; j < n->nin; j++) {
			int64_t at = first_line(value(m, n->out[0]), value(m, n->in[j]), &running) * line_width(value(m, n->out[0]));
			put_into(m, m->store[n->in[j]], m->store[n->out[0]], at);
		}
		m->elided[i] = true;
	}
}

/* ---- exchanges under way ----------------------------------------------------------------------------------------------- */

static bool is_out(const merger *m, const tt_node *n, const store *r)
{
	for (int o = 0; o < n->nout; o++)
		if (root_of(m, n->out[o]) == r)
			return true;
	return false;
}

/* Whether `n` reads or writes what exchange `x` makes, or writes what it reads. */
static bool must_wait(const merger *m, const tt_node *n, const tt_node *x)
{
	for (int o = 0; o < x->nout; o++) {
		const store *r = root_of(m, x->out[o]);
		for (int j = 0; j < n->nin; j++)
			if (n->in[j] && root_of(m, n->in[j]) == r)
				return true;
		if (is_out(m, n, r))
			return true;
	}
	for (int j = 0; j < x->nin; j++)
		if (is_out(m, n, root_of(m, x->in[j])))
			return true;
	return false;
}

static tt_comm_lane lane_of(const tt_node *n) { return (tt_comm_lane)exchange_of(n)->lane; }

/* Of each exchange, who waits for it. Other exchanges of its lane do not: they run in order. */
static void find_waits(merger *m)
{
	const tt_graph *g = m->g;
	for (int64_t i = 0; i < g->nnodes; i++) {
		const tt_node *x = &g->nodes[i];
		m->done[i] = -1;
		if (m->e->o.lane == TT_LANE_OFF || !m->e->o.axes || !tt_exchange_axes(x))
			continue;
		m->done[i] = g->nnodes;
		for (int64_t k = i + 1; k < g->nnodes && m->done[i] == g->nnodes; k++) {
			const tt_node *n = &g->nodes[k];
			bool in_order = tt_exchange_axes(n) && lane_of(n) == lane_of(x);
			if (n->seg == x->seg && !m->elided[k] && !in_order && must_wait(m, n, x))
				m->done[i] = k;
		}
	}
	int64_t next[TT_NSEGS][TT_COMM_LANES]; /* who waits for a later one waits for those before it */
	for (int seg = 0; seg < TT_NSEGS; seg++)
		for (int k = 0; k < TT_COMM_LANES; k++)
			next[seg][k] = g->nnodes;
	for (int64_t i = g->nnodes - 1; i >= 0; i--)
		if (m->done[i] >= 0) {
			int64_t *later = &next[g->nodes[i].seg][lane_of(&g->nodes[i])];
			*later = m->done[i] = TT_MIN(m->done[i], *later);
		}
}

/* What an exchange reads and makes is kept until it has ended. */
static void keep_under_way(merger *m)
{
	const tt_graph *g = m->g;
	int64_t end[TT_NSEGS] = {0};
	for (int64_t i = 0; i < g->nnodes; i++)
		end[g->nodes[i].seg] = i;
	for (int64_t i = 0; i < g->nnodes; i++) {
		const tt_node *x = &g->nodes[i];
		if (m->done[i] < 0)
			continue;
		int64_t until = TT_MIN(m->done[i], end[x->seg]);
		for (int k = 0; k < x->nin + x->nout; k++) {
			store *r = root_of(m, k < x->nin ? x->in[k] : x->out[k - x->nin]);
			if (r->kind != STORE_TEMP || r->seg != x->seg)
				continue;
			r->last = TT_MAX(r->last, until);
			r->lanes |= 1u << lane_of(x);
		}
	}
}

/* ---- lifetimes, and results in place -------------------------------------------------------------------------------- */

static tt_status find_lifetimes(merger *m)
{
	const tt_graph *g = m->g;
	for (int64_t i = 0; i < g->nnodes; i++) {
		const tt_node *n = &g->nodes[i];
		if (m->elided[i])
			continue;
		for (int o = 0; o < n->nout; o++) {
			store *r = root_of(m, n->out[o]);
			if (r->kind != STORE_TEMP)
				continue;
			r->first = TT_MIN(r->first, i);
			r->last = TT_MAX(r->last, i);
		}
		for (int j = 0; j < n->nin; j++) {
			if (!n->in[j])
				continue;
			store *r = root_of(m, n->in[j]);
			if (r->kind != STORE_TEMP)
				continue;
			if (r->seg == n->seg) {
				r->last = TT_MAX(r->last, i);
			} else if (r->seg == TT_SEG_F && n->seg == TT_SEG_B) {
				r->region = TT_REGION_FRAME;
				r->per_frame = true;
				r->pinned = true;
			} else {
				TT_FAIL(TT_ERR_TYPE, "%s is made in %s and read in %s (%s): only state crosses there", value(m, n->in[j])->name,
					tt_segment_name(r->seg), tt_segment_name(n->seg), n->op->name);
			}
		}
	}
	for (int64_t s = 0; s < m->e->nstores; s++)
		m->e->stores[s].use = m->e->stores[s].last;
	if (!m->e->o.short_lives)
		keep_under_way(m);
	for (int64_t i = 0; i < g->noutputs; i++) {
		store *r = root_of(m, g->outputs[i]);
		r->pinned = true;
		if (r->region == TT_REGION_WORK)
			r->region = TT_REGION_IO;
	}
	return TT_OK;
}

static void place_results(merger *m)
{
	if (m->e->o.no_alias)
		return;
	for (int64_t i = 0; i < m->g->nnodes; i++) {
		const tt_node *n = &m->g->nodes[i];
		if (!(n->op->flags & TT_OP_INPLACE) || m->elided[i])
			continue;
		for (int o = 0; o < n->nout; o++) {
			tt_v in = inplace_input(m, n->out[o]);
			if (!in || root_of(m, n->out[o])->kind != STORE_TEMP)
				continue;
			int32_t s = m->store[in];
			const store *c = &m->e->stores[s], *mine = &m->e->stores[m->store[n->out[o]]];
			/* An exchange may take the place of what it reads: those of its lane under way before it have ended when it begins. */
			bool ended = m->done[i] >= 0 && c->lanes == 1u << lane_of(n);
			bool own = c->kind == STORE_TEMP && c->parent < 0 && !c->pinned && c->seg == n->seg && (ended ? c->use : c->last) == i;
			bool same = own && m->at[in] == 0 && c->count == mine->count && c->esize == mine->esize && c->planes == mine->planes;
			for (int j = 0; j < n->nin && same; j++)
				same = j == o || !n->in[j] || root_of(m, n->in[j]) != c;
			for (int j = 0; j < n->nout && same; j++)
				same = root_of(m, n->out[j]) != c;
			if (same)
				put_into(m, s, m->store[n->out[o]], 0);
		}
	}
}

tt_status merge_storages(merger *m)
{
	TT_TRY(place_views(m));
	for (int64_t i = 0; i < m->g->nstates; i++) {
		const tt_state *s = &m->g->states[i];
		if (s->next && s->next != s->value)
			TT_TRY(place_version(m, s));
	}
	place_joins(m);
	find_waits(m);
	TT_TRY(find_lifetimes(m));
	place_results(m);
	TT_TRY(check_versions(m));
	for (int64_t s = 0; s < m->e->nstores; s++)
		root_store(m, (int32_t)s);
	return TT_OK;
}
