/* recompute.c: which of F's values B finds in the frame, and which it makes again.
 *
 * A value of F that B wants is either kept, or made again by copies of the nodes that made it: of segment B, each right before the first
 * node of B that wants it. A copy has the op, attributes and inputs of its original, so its bits are the same in every mode.
 *
 * A layer is a run of F's nodes whose scope path leads through the same first number ("model.layers.3"). What is made outside of layers and what
 * leaves a layer is always kept, so a chain of copies ends at its layer's inputs, and B's work holds the values of about one layer.
 */
#include "pass/pass.h"

/* A byte that must be moved costs as much time as so many FLOPs of a product: what weighs rms_norm against linear. A core's products run
 * at about 200 GFLOP/s, its share of the memory bus is about 12 GB/s; only the order of magnitude matters. */
static const double flops_per_byte = 16;

typedef struct layer { int64_t begin, end; } layer; /* its nodes lie in [begin, end) */

typedef struct plan {
	const tt_graph *g;
	layer *layers;
	int64_t nlayers, cap_layers;
	int32_t *layer;  /* [nnodes] -1: in none, or not of F */
	bool *read;      /* [nvalues] B reads this value of F */
	bool *fixed;     /* [nnodes] its outputs are kept in every mode */
	bool *keep;      /* [nnodes] its outputs are kept, those that B wants */
	bool *wanted;    /* [nvalues] read, or an input of a node to be made again */
	bool *again;     /* [nnodes] to be made again */
} plan;

static bool made_in_f(const tt_graph *g, tt_v v)
{
	return v && g->values[v].kind == TT_TEMP && g->nodes[g->values[v].def].seg == TT_SEG_F;
}

/* The value in whose bytes `v` lies. */
static tt_v whole(const tt_graph *g, tt_v v)
{
	while (g->values[v].kind == TT_TEMP && g->nodes[g->values[v].def].op->flags & TT_OP_VIEW)
		v = g->nodes[g->values[v].def].in[0];
	return v;
}

/* As it lies in the frame. An acc is counted as in `fast`: it is never kept where there is a choice. */
static int64_t bytes_of(const tt_graph *g, tt_v v)
{
	const tt_value *x = &g->values[v];
	return tt_round_up(tt_value_count(x) * tt_dtype_size(x->dtype, TT_FAST, g->f64), 64);
}

/* In FLOPs. Ops that do not say otherwise move their operands once. */
static double cost_of(const tt_graph *g, const tt_node *n)
{
	const tt_value *in[80], *out[80];
	TT_ASSERT(n->nin <= TT_COUNT(in) && n->nout <= TT_COUNT(out), "%s: too many operands", n->op->name);
	tt_cost c = { 0 };
	if (n->op->flags & TT_OP_VIEW)
		return 0;
	for (int k = 0; k < n->nin; k++) {
		in[k] = n->in[k] ? &g->values[n->in[k]] : NULL;
		c.bytes += n->in[k] ? (double)bytes_of(g, n->in[k]) : 0;
	}
	for (int k = 0; k < n->nout; k++) {
		out[k] = &g->values[n->out[k]];
		c.bytes += (double)bytes_of(g, n->out[k]);
	}
	if (n->op->cost)
		c = n->op->cost(n->attr, n->nin, in, n->nout, out);
	return c.flops + flops_per_byte * c.bytes;
}

/* ---- layers, and what is kept in every mode ---------------------------------------------------------------------------------------------- */

/* Length of a scope path up to its first component that is a number; 0: there is none. */
size_t tt_layer_path(const char *scope)
{
	for (const char *s = scope; *s;) {
		size_t n = strcspn(s, ".");
		if (n && strspn(s, "0123456789") == n)
			return (size_t)(s - scope) + n;
		s += n + (s[n] == '.');
	}
	return 0;
}

static void find_layers(plan *p, tt_arena *a)
{
	const char *last = "";
	size_t last_n = 0;
	for (int64_t i = 0; i < p->g->nnodes; i++) {
		const tt_node *n = &p->g->nodes[i];
		p->layer[i] = -1;
		if (n->seg != TT_SEG_F)
			continue;
		size_t len = tt_layer_path(n->scope);
		if (len && (len != last_n || memcmp(n->scope, last, len) != 0)) {
			layer l = { .begin = i };
			TT_PUSH(a, p->layers, p->nlayers, p->cap_layers, l);
		}
		last = n->scope;
		last_n = len;
		if (!len)
			continue;
		p->layer[i] = (int32_t)p->nlayers - 1;
		p->layers[p->nlayers - 1].end = i + 1;
	}
}

static void fix(plan *p, tt_v v)
{
	if (made_in_f(p->g, v))
		p->fixed[p->g->values[v].def] = true;
}

/* Beside what lies outside of layers: what leaves its layer, what the caller or a state takes, what must not be made twice. */
static void find_fixed(plan *p, tt_arena *a)
{
	const tt_graph *g = p->g;
	bool *changes = TT_NEWN(a, bool, g->nvalues); /* states that F or B writes: a copy would read another version */
	for (int64_t i = 0; i < g->nstates; i++) {
		tt_v next = g->states[i].next;
		int32_t def = next ? g->values[next].def : -1;
		changes[g->states[i].value] = def >= 0 && (g->nodes[def].seg == TT_SEG_F || g->nodes[def].seg == TT_SEG_B);
		fix(p, next);
	}
	for (int64_t i = 0; i < g->noutputs; i++)
		fix(p, g->outputs[i]);
	for (int64_t i = 0; i < g->nroots; i++)
		fix(p, g->roots[i].value);
	for (int64_t i = 0; i < g->nnodes; i++) {
		const tt_node *n = &g->nodes[i];
		if (n->seg != TT_SEG_F)
			continue;
		p->fixed[i] |= p->layer[i] < 0 || n->op->keep == TT_KEEP_ALWAYS;
		for (int k = 0; k < n->nin; k++) {
			p->fixed[i] |= changes[n->in[k]];
			if (made_in_f(g, n->in[k]) && p->layer[g->values[n->in[k]].def] != p->layer[i])
				fix(p, n->in[k]);
		}
	}
}

static plan plan_new(const tt_graph *g, tt_arena *a)
{
	plan p = { .g = g, .layer = TT_NEWN(a, int32_t, g->nnodes), .read = TT_NEWN(a, bool, g->nvalues), .fixed = TT_NEWN(a, bool, g->nnodes),
		   .keep = TT_NEWN(a, bool, g->nnodes), .wanted = TT_NEWN(a, bool, g->nvalues), .again = TT_NEWN(a, bool, g->nnodes) };
	find_layers(&p, a);
	find_fixed(&p, a);
	for (int64_t i = 0; i < g->nnodes; i++)
		for (int k = 0; g->nodes[i].seg == TT_SEG_B && k < g->nodes[i].nin; k++)
			p.read[g->nodes[i].in[k]] |= made_in_f(g, g->nodes[i].in[k]);
	return p;
}

/* ---- what follows from what is kept -------------------------------------------------------------------------------------------------------- */

/* Finds what B wants and what is to be made again among nodes [begin, end). */
static void follow(plan *p, int64_t begin, int64_t end)
{
	const tt_graph *g = p->g;
	for (int64_t i = begin; i < end; i++)
		for (int k = 0; g->nodes[i].seg == TT_SEG_F && k < g->nodes[i].nout; k++)
			p->wanted[g->nodes[i].out[k]] = p->read[g->nodes[i].out[k]];
	for (int64_t i = end - 1; i >= begin; i--) {
		const tt_node *n = &g->nodes[i];
		bool any = false;
		for (int k = 0; k < n->nout; k++)
			any |= p->wanted[n->out[k]];
		p->again[i] = n->seg == TT_SEG_F && any && !p->keep[i];
		for (int k = 0; p->again[i] && k < n->nin; k++)
			p->wanted[n->in[k]] |= made_in_f(g, n->in[k]);
	}
}

static tt_recompute_report report(plan *p, tt_arena *a)
{
	const tt_graph *g = p->g;
	tt_recompute_report r = { 0 };
	bool *none = TT_NEWN(a, bool, g->nvalues), *kept = TT_NEWN(a, bool, g->nvalues);
	follow(p, 0, g->nnodes);
	for (tt_v v = 1; v < g->nvalues; v++) {
		if (!made_in_f(g, v) || !made_in_f(g, whole(g, v)))
			continue;
		none[whole(g, v)] |= p->read[v];
		kept[whole(g, v)] |= p->wanted[v] && p->keep[g->values[v].def];
	}
	for (tt_v v = 1; v < g->nvalues; v++) {
		r.none += none[v] ? bytes_of(g, v) : 0;
		r.kept += kept[v] ? bytes_of(g, v) : 0;
	}
	for (int64_t i = 0; i < g->nnodes; i++) {
		double c = g->nodes[i].seg == TT_SEG_F ? cost_of(g, &g->nodes[i]) : 0;
		r.forward += c;
		r.again += p->again[i] ? c : 0;
		r.nodes += p->again[i];
	}
	return r;
}

/* ---- the modes ------------------------------------------------------------------------------------------------------------------------------ */

/* By the op table. What is said of a product that yields acc holds for the value that the acc is rounded to; then nobody wants the acc. */
static void keep_by_op(plan *p, tt_arena *a)
{
	const tt_graph *g = p->g;
	bool *chosen = TT_NEWN(a, bool, g->nnodes);
	int64_t *count = TT_NEWN(a, int64_t, p->nlayers);
	for (int64_t i = 0; i < g->nnodes; i++) {
		const tt_node *n = &g->nodes[i];
		if (p->layer[i] < 0)
			continue;
		if (n->nin && made_in_f(g, n->in[0]) && g->values[n->in[0]].dtype == TT_ACC)
			chosen[i] = chosen[g->values[n->in[0]].def];
		else if (n->op->keep == TT_KEEP_SECOND)
			chosen[i] = count[p->layer[i]]++ % 2 == 0;
		else
			chosen[i] = n->op->keep == TT_KEEP_YES;
		p->keep[i] |= chosen[i];
	}
}

/* All but the n-th, 2n-th.. layer. */
static void keep_but_every(plan *p, int64_t every)
{
	for (int64_t i = 0; i < p->g->nnodes; i++)
		p->keep[i] |= p->layer[i] >= 0 && (p->layer[i] + 1) % every != 0;
}

typedef struct offer { bool open; double saves; int64_t bytes; } offer; /* a node that may be kept: FLOPs saved, bytes it adds to the frame */

/* Cost of what is made again in a layer, and bytes kept of it by choice. */
static double weigh(plan *p, const layer *l, int64_t *bytes)
{
	const tt_graph *g = p->g;
	double cost = 0;
	*bytes = 0;
	follow(p, l->begin, l->end);
	for (int64_t i = l->begin; i < l->end; i++) {
		const tt_node *n = &g->nodes[i];
		cost += p->again[i] ? cost_of(g, n) : 0;
		for (int k = 0; p->keep[i] && !p->fixed[i] && k < n->nout; k++)
			*bytes += p->wanted[n->out[k]] ? bytes_of(g, n->out[k]) : 0;
	}
	return cost;
}

static void weigh_offers(plan *p, const layer *l, offer *offers)
{
	int64_t before, after;
	double cost = weigh(p, l, &before);
	for (int64_t i = l->begin; i < l->end; i++) {
		if (!offers[i].open)
			continue;
		p->keep[i] = true;
		offers[i].saves = cost - weigh(p, l, &after);
		offers[i].bytes = TT_MAX(after - before, (int64_t)1);
		p->keep[i] = false;
	}
}

/* Spends up to `left` bytes on what none keeps, always on the node that saves most per byte among those that still fit. Layers are independent,
 * and the last small values fill what the large ones leave. */
static void keep_by_budget(plan *p, int64_t left, tt_arena *a)
{
	const tt_graph *g = p->g;
	offer *offers = TT_NEWN(a, offer, g->nnodes);
	for (tt_v v = 1; v < g->nvalues; v++) {
		tt_v w = p->read[v] ? whole(g, v) : 0;
		if (made_in_f(g, w) && !p->keep[g->values[w].def])
			offers[g->values[w].def].open = true;
	}
	for (int64_t i = 0; i < p->nlayers; i++)
		weigh_offers(p, &p->layers[i], offers);
	for (;;) {
		int64_t best = -1;
		for (int64_t i = 0; i < g->nnodes; i++) {
			const offer *o = &offers[i];
			if (o->open && o->saves > 0 && o->bytes <= left &&
			    (best < 0 || o->saves * (double)offers[best].bytes > offers[best].saves * (double)o->bytes))
				best = i;
		}
		if (best < 0)
			return;
		left -= offers[best].bytes;
		offers[best].open = false;
		p->keep[best] = true;
		weigh_offers(p, &p->layers[p->layer[best]], offers);
	}
}

static tt_status choose(plan *p, const tt_recompute *o, tt_arena *a, tt_recompute_report *out)
{
	memcpy(p->keep, p->fixed, (size_t)p->g->nnodes * sizeof *p->keep);
	switch (o->mode) {
	case TT_RECOMPUTE_NONE:
		keep_but_every(p, INT64_MAX);
		break;
	case TT_RECOMPUTE_SELECTIVE:
		if (o->every)
			keep_but_every(p, o->every);
		else
			keep_by_op(p, a);
		break;
	case TT_RECOMPUTE_FULL:
		break;
	case TT_RECOMPUTE_BUDGET: {
		tt_recompute_report least = report(p, a);
		int64_t budget = o->budget_bytes ? o->budget_bytes : (int64_t)(o->budget * (double)least.none);
		if (budget < least.kept)
			TT_FAIL(TT_ERR_USAGE, "activation_checkpoint.memory_budget%s allows %.1f of the %.1f MiB that are kept from forward to backward without "
				"recomputation; the least possible is %.1f MiB, that is %.3f (mode \"full\")", o->budget_bytes ? "_mib" : "",
				(double)budget / (double)TT_MIB, (double)least.none / (double)TT_MIB, (double)least.kept / (double)TT_MIB,
				(double)least.kept / (double)least.none);
		keep_by_budget(p, budget - least.kept, a);
		break;
	}
	}
	*out = report(p, a);
	return TT_OK;
}

/* ---- the new graph ---------------------------------------------------------------------------------------------------------------------------- */

/* `v` as a node of B reads it: made again first, if that is its lot. Depth: the longest chain within a layer. */
static void make_again(plan *p, tt_copy *c, tt_v v, int32_t group)
{
	int32_t def = p->g->values[v].def;
	if (!made_in_f(p->g, v) || !p->again[def])
		return;
	p->again[def] = false;
	tt_node n = p->g->nodes[def];
	for (int k = 0; k < n.nin; k++)
		make_again(p, c, n.in[k], group);
	n.seg = TT_SEG_B;
	n.group = group;
	c->suffix = ".again";
	tt_copy_node(c, &n);
	c->suffix = NULL;
}

tt_status tt_recompute_measure(const tt_graph *g, const tt_recompute *o, tt_arena *a, tt_recompute_report *out)
{
	plan p = plan_new(g, a);
	return choose(&p, o, a, out);
}

tt_status tt_pass_recompute(const tt_graph *g, const tt_recompute *o, tt_arena *a, tt_graph **out, tt_recompute_report *said)
{
	plan p = plan_new(g, a);
	tt_recompute_report r;
	TT_TRY(choose(&p, o, a, &r));
	tt_copy c = tt_copy_begin(g, a);
	bool backward = false;
	for (int64_t i = 0; i < g->nnodes; i++) {
		const tt_node *n = &g->nodes[i];
		backward |= n->seg == TT_SEG_B;
		TT_ASSERT(!backward || n->seg != TT_SEG_F, "recompute: F ends before B begins: a copy stands for its original from there on");
		for (int k = 0; n->seg == TT_SEG_B && k < n->nin; k++)
			make_again(&p, &c, n->in[k], n->group);
		tt_copy_node(&c, n);
	}
	tt_copy_end(&c);
	TT_TRY(tt_graph_verify(c.to, "recompute"));
	*out = c.to;
	if (said)
		*said = r;
	return TT_OK;
}
