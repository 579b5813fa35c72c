/* count.c: what instructions ask for: FLOPs, bytes, talk with other ranks. The same for a program that runs and for one that is only planned. */
#include "comm/comm.h"
#include "exec/internal.h"

bool tt_exec_instr_at(const tt_exec *e, tt_segment seg, int64_t i, tt_exec_instr *out)
{
	const program *p = &e->prog[seg];
	if (!p->g || i >= p->ninstrs)
		return false;
	const instr *in = &p->instrs[i];
	*out = (tt_exec_instr){.graph = p->g, .node = in->node, .kernel = in->kernel, .fast = in->fast, .run = in->run, .call = &in->call, .scratch = in->scratch,
		.in = in->call.in, .out = in->call.out, .lane = in->axes ? 1 + (int)in->lane : 0, .early = in->may_start, .posted = in->posted, .exposed = in->exposed, .waits = in->wait,
		.hides = in->hides};
	if (!in->started) { /* else it may be running now */
		out->began = in->began;
		out->ended = in->ended;
	}
	return true;
}

tt_status tt_exec_shape(tt_exec *e, tt_segment seg, const tt_cell *cell)
{
	TT_ASSERT(e->is_planned, "shapes after plan");
	TT_TRY(check_cell(e, &e->prog[seg], seg, cell));
	set_extents(&e->prog[seg], cell);
	return TT_OK;
}

static double operand_bytes(const tt_exec *e, const tt_arg *a)
{
	double n = 1;
	for (int d = 0; d < a->ndim; d++)
		n *= (double)a->n[d];
	return n * tt_dtype_size(a->dtype, e->o.numerics, e->o.f64);
}

tt_cost tt_exec_instr_cost(const tt_exec *e, const tt_exec_instr *i)
{
	enum { MOST = 24 };
	const tt_node *n = i->node;
	tt_cost cost = {0};
	if (n->op->cost) {
		TT_ASSERT(n->nin + n->nout <= MOST, "%s: too many operands", n->op->name);
		tt_value now[MOST];
		const tt_value *io[MOST];
		for (int k = 0; k < n->nin + n->nout; k++) {
			tt_v v = k < n->nin ? n->in[k] : n->out[k - n->nin];
			const tt_arg *a = k < n->nin ? &i->in[k] : &i->out[k - n->nin];
			io[k] = NULL;
			if (!v)
				continue;
			now[k] = i->graph->values[v];
			for (int d = 0; d < now[k].ndim; d++)
				now[k].dim[d].n = a->n[d];
			io[k] = &now[k];
		}
		cost = n->op->cost(n->attr, n->nin, io, n->nout, io + n->nin);
	}
	for (int k = 0; k < n->nin + n->nout && cost.bytes <= 0; k++)
		if (k < n->nin ? n->in[k] : n->out[k - n->nin])
			cost.bytes -= operand_bytes(e, k < n->nin ? &i->in[k] : &i->out[k - n->nin]); /* below 0 until all are there */
	if (cost.bytes < 0)
		cost.bytes = -cost.bytes;
	return cost;
}

/* Attributes of all exchanges begin as those of one. */
const tt_attr_exchange *exchange_of(const tt_node *n)
{
	const tt_attr_exchange *at = strncmp(n->op->name, "exchange", 8) ? NULL : n->attr;
	bool talks = at && at->kind != TT_EX_SLICE && at->kind != TT_EX_PAD && at->kind != TT_EX_ONCE;
	return talks ? at : NULL;
}

bool tt_exec_instr_talks(tt_exec *e, const tt_exec_instr *i, tt_exec_talks *out)
{
	const tt_attr_exchange *at = exchange_of(i->node);
	if (!at)
		return false;
	tt_comm_group *g = e->o.axes ? e->o.axes->group[at->lane][at->axes] : NULL;
	TT_ASSERT(g, "%s over %s without ranks", i->node->op->name, at->axis);
	tt_mark mark = tt_arena_push(e->arena);
	int n = i->node->nin + i->node->nout;
	tt_arg *io = TT_NEWN(e->arena, tt_arg, n);
	memcpy(io, i->in, sizeof *io * (size_t)n); /* outputs lie behind inputs */
	for (int k = 0; k < n; k++)
		io[k].p = (void *)(uintptr_t)(64 * (k + 1)); /* no memory: what is given and taken is only measured. All differ, so that nothing is in place */
	tt_call c = *i->call;
	c.in = io;
	c.out = io + i->node->nin;
	c.scratch = tt_arena_alloc(e->arena, i->scratch + 64);
	c.scratch = (void *)(uintptr_t)tt_round_up((int64_t)(uintptr_t)c.scratch, 64);
	tt_comm_count before = tt_comm_group_count(g);
	i->run(&c);
	tt_comm_count after = tt_comm_group_count(g);
	tt_arena_pop(e->arena, mark);
	*out = (tt_exec_talks){after.calls - before.calls, after.bytes - before.bytes};
	return true;
}

void count_run(tt_exec *e, tt_segment seg, const tt_cell *c)
{
	program *p = &e->prog[seg];
	if (p->counted_T != c->T || p->counted_seqs != c->nseqs) {
		tt_exec_instr x;
		p->flops = 0;
		for (int64_t i = 0; tt_exec_instr_at(e, seg, i, &x); i++)
			if (x.node->op->cost)
				p->flops += tt_exec_instr_cost(e, &x).flops;
		p->counted_T = c->T;
		p->counted_seqs = c->nseqs;
	}
	e->flops += p->flops;
}

double tt_exec_flops(const tt_exec *e) { return e->flops; }
