/* hide.c: which exchanges can be hidden: a fact of the program, whose computation has one order.
 *
 * An exchange's window begins where its inputs are there, and ends at the first instruction that needs what it makes. It can be hidden if computation
 * stands in its window. What memory allows bounds the window, and shows where the pass has put things:
 *
 *   gather of parameters    begins where it stands: so many layers ahead of its own, and not in the program before; but for F's first ones of a step's
 *                           first cell, which are there when PREP has made their parameters (TT_HIDES_AHEAD)
 *   scatter of gradients    ends where they are added to accumulators: one layer's are held while the next one's are computed
 *   sum that starts in B    begins there, behind the last gradient it sums
 *
 * Computation is what is neither exchange nor view, nor itself only adds up what exchanges brought: that waits for them.
 */
#include "ops/ops.h"
#include "pass/internal.h"

static bool talks(const tt_node *n) { return tt_exchange_axes(n) != 0; }

static bool is_exchange(const tt_node *n) { return n->op == &tt_op_exchange || n->op == &tt_op_exchange_bucket; }

static const tt_node *def_of(const tt_graph *g, tt_v v) { return g->values[v].def >= 0 ? &g->nodes[g->values[v].def] : NULL; }

/* Adds up what an exchange brought. */
static bool settles(const tt_graph *g, const tt_node *n)
{
	const tt_node *d = n->op == &tt_op_accumulate ? def_of(g, n->in[1]) : NULL;
	return d && talks(d);
}

static bool computes(const tt_graph *g, const tt_node *n) { return !is_exchange(n) && !(n->op->flags & (TT_OP_VIEW | TT_OP_JOIN)) && !settles(g, n); }

static bool makes(const tt_graph *g, const tt_node *n, tt_v v) { return v && g->values[v].def >= 0 && &g->nodes[g->values[v].def] == n; }

static bool reads(const tt_node *n, const bool *theirs)
{
	for (int k = 0; k < n->nin; k++)
		if (n->in[k] && theirs[n->in[k]])
			return true;
	return false;
}

/* Whether segment `seg` computes in [begin, ..) before anybody needs what is marked; what only passes it on is marked too. */
static bool computes_before_need(const tt_graph *g, tt_segment seg, int64_t begin, bool *theirs)
{
	for (int64_t i = begin; i < g->nnodes; i++) {
		const tt_node *n = &g->nodes[i];
		if (n->seg != seg)
			continue;
		bool needs = reads(n, theirs);
		if (needs && !is_exchange(n))
			return false;
		for (int k = 0; k < n->nout && needs; k++)
			theirs[n->out[k]] = true;
		if (!needs && computes(g, n))
			return true;
	}
	return false;
}

tt_v tt_exchanged_root(const tt_graph *g, tt_v v)
{
	for (const tt_node *d = def_of(g, v); d && is_exchange(d); d = def_of(g, v)) {
		int k = 0;
		while (d->out[k] != v)
			k++;
		v = d->in[k];
	}
	return v;
}

/* The first node of `seg` behind those that make new versions of x's inputs there; -1: there is none that makes one. */
static int64_t behind_inputs(const tt_graph *g, const tt_node *x, tt_segment seg)
{
	int64_t after = -1;
	for (int64_t i = 0; i < g->nnodes; i++)
		for (int k = 0; k < x->nin && g->nodes[i].seg == seg; k++) {
			int32_t s = g->values[tt_exchanged_root(g, x->in[k])].state;
			if (s >= 0 && makes(g, &g->nodes[i], g->states[s].next))
				after = i + 1;
		}
	return after;
}

static bool of_states(const tt_graph *g, const tt_node *x)
{
	bool all = true;
	for (int k = 0; k < x->nin; k++)
		all &= g->values[x->in[k]].kind == TT_STATE;
	return all;
}

/* Nothing but gathers of states stands before it. */
static bool first_of(const tt_graph *g, int64_t x, tt_segment seg)
{
	for (int64_t i = 0; i <= x; i++)
		if (g->nodes[i].seg == seg && !(talks(&g->nodes[i]) && of_states(g, &g->nodes[i])))
			return false;
	return g->nodes[x].seg == seg;
}

static bool any_behind(const tt_graph *g, tt_segment seg, int64_t begin)
{
	for (int64_t i = begin; i < g->nnodes; i++)
		if (g->nodes[i].seg == seg && computes(g, &g->nodes[i]))
			return true;
	return false;
}

static tt_hides hides(const tt_graph *g, int64_t i, bool *theirs)
{
	const tt_node *x = &g->nodes[i];
	bool states = of_states(g, x), kept = true;
	int64_t begin = 0;
	for (int k = 0; k < x->nin; k++)
		begin = TT_MAX(begin, g->values[x->in[k]].def + (int64_t)1);
	if (states)
		begin = i;
	for (int k = 0; k < x->nout; k++)
		theirs[x->out[k]] = true;
	for (int k = 0; k < x->nin; k++)
		kept &= x->seg == TT_SEG_REDUCE && tt_sum_kept(g, x->in[k]);
	if (kept) { /* it can start in B */
		int64_t after = behind_inputs(g, x, TT_SEG_B);
		if (after >= 0 && any_behind(g, TT_SEG_B, after))
			return TT_HIDES;
	}
	if (computes_before_need(g, x->seg, begin, theirs))
		return TT_HIDES;
	int64_t made = TT_MAX(behind_inputs(g, x, TT_SEG_PREP), (int64_t)0);
	return first_of(g, i, TT_SEG_F) && any_behind(g, TT_SEG_PREP, made) ? TT_HIDES_AHEAD : TT_HIDES_NOT;
}

void tt_overlap_hides(tt_graph *g, tt_arena *a)
{
	tt_mark mark = tt_arena_push(a);
	bool *theirs = TT_NEWN(a, bool, g->nvalues);
	for (int64_t i = 0; i < g->nnodes; i++) {
		const tt_node *n = &g->nodes[i];
		if (!talks(n))
			continue;
		memset(theirs, 0, (size_t)g->nvalues * sizeof *theirs);
		((tt_attr_exchange *)(uintptr_t)n->attr)->hides = hides(g, i, theirs); /* a bucket has it at the same place */
	}
	tt_arena_pop(a, mark);
}
