/* pass.c: the short passes. */
#include "pass/pass.h"

#include "ops/ops.h"

tt_status tt_pass_eval(const tt_graph *g, tt_arena *a, tt_graph **out)
{
	tt_copy c = tt_copy_begin(g, a);
	for (int64_t i = 0; i < g->nnodes; i++) {
		tt_node n = g->nodes[i];
		if (n.seg == TT_SEG_F || n.seg == TT_SEG_B)
			n.seg = TT_SEG_EVAL;
		tt_copy_node(&c, &n);
	}
	tt_copy_end(&c);
	c.to->nroots = 0;
	TT_TRY(tt_graph_verify(c.to, "eval"));
	*out = c.to;
	return TT_OK;
}

/* How often each value is used as an input, as a state's next version or as an output. */
int32_t *tt_count_uses(const tt_graph *g, tt_arena *a)
{
	int32_t *uses = TT_NEWN(a, int32_t, g->nvalues);
	for (int64_t i = 0; i < g->nnodes; i++)
		for (int k = 0; k < g->nodes[i].nin; k++)
			uses[g->nodes[i].in[k]]++;
	for (int64_t i = 0; i < g->nstates; i++)
		uses[g->states[i].next]++;
	for (int64_t i = 0; i < g->noutputs; i++)
		uses[g->outputs[i]]++;
	for (int64_t i = 0; i < g->nroots; i++)
		uses[g->roots[i].value]++;
	return uses;
}

tt_status tt_pass_fold_rounds(const tt_graph *g, tt_arena *a, tt_graph **out)
{
	int32_t *uses = tt_count_uses(g, a);
	const tt_node **folded = TT_NEWN(a, const tt_node *, g->nnodes); /* [index of a product] the round it takes in */
	bool *gone = TT_NEWN(a, bool, g->nnodes);
	for (int64_t i = 0; i < g->nnodes; i++) {
		const tt_node *r = &g->nodes[i];
		if (r->op != &tt_op_round)
			continue;
		int32_t def = g->values[r->in[0]].def;
		if (def < 0 || uses[r->in[0]] != 1)
			continue;
		const tt_node *p = &g->nodes[def];
		if ((p->op == &tt_op_linear || p->op == &tt_op_linear_dx) && p->seg == r->seg) {
			folded[def] = r;
			gone[i] = true;
		}
	}
	tt_copy c = tt_copy_begin(g, a);
	for (int64_t i = 0; i < g->nnodes; i++) {
		const tt_node *p = &g->nodes[i];
		if (gone[i])
			continue;
		if (!folded[i]) {
			tt_copy_node(&c, p);
			continue;
		}
		tt_dtype to = ((const tt_attr_dtype *)folded[i]->attr)->dtype;
		tt_node n = *p;
		tt_attr_linear fwd;
		tt_attr_linear_dx dx;
		if (p->op == &tt_op_linear) {
			fwd = *(const tt_attr_linear *)p->attr;
			fwd.dtype = to;
			fwd.rounded = true;
			n.attr = &fwd;
		} else {
			dx = (tt_attr_linear_dx){ to, true };
			n.attr = &dx;
		}
		n.out = folded[i]->out; /* takes the rounded value's name and place */
		tt_copy_node(&c, &n);
	}
	tt_copy_end(&c);
	TT_TRY(tt_graph_verify(c.to, "fold_rounds"));
	*out = c.to;
	return TT_OK;
}

/* ---- formats ---------------------------------------------------------------------------------------------------------------------------- */

/* The packed form of weight `w` (a state of `c->to`) and its PREP node, made at first need; `w` itself where `made` does not pack it. */
static tt_v packed(tt_copy *c, tt_v w, tt_format f, const tt_graph *made)
{
	tt_graph *g = c->to;
	tt_value v = g->values[w];
	tt_state s = g->states[v.state];
	tt_v master = s.source >= 0 ? g->states[s.source].value : w;
	const char *suffix = f == TT_PACK_FWD ? "fwd" : "dx";
	if (made && !tt_value_find(made, tt_arena_printf(g->arena, "%s:%s", g->values[master].name, suffix)))
		return w;
	tt_v p = tt_state_derived(g, master, suffix, v.dtype, f);
	if (!p || g->states[g->values[p].state].next)
		return p;
	g->seg = TT_SEG_PREP;
	g->group = 0;
	g->scope[0] = 0;
	tt_v next = tt_pack(g, master, v.dtype, f, tt_arena_printf(g->arena, "=%s+", g->values[p].name));
	tt_state_set(g, p, next);
	return p;
}

static tt_v gather_packed(tt_copy *c, const tt_node *n, tt_v w, tt_format f, const tt_graph *made);

/* What node `n` is given for `w`, gathered from shards, in format `f`: what is there already; else turned from the forward pack that is there; else pieces
 * packed in PREP and gathered as they lie; else packed from the plain whole. */
static tt_v packed_here(tt_copy *c, const tt_node *n, tt_v w, tt_format f, const tt_graph *made)
{
	tt_graph *g = c->to;
	const char *base = g->values[w].name;
	tt_dtype dt = g->values[w].dtype;
	const char *name = tt_arena_printf(g->arena, "%s:%s", base, f == TT_PACK_FWD ? "fwd" : "dx");
	tt_v there = tt_value_find(g, name), fwd = f == TT_PACK_DX ? tt_value_find(g, tt_arena_printf(g->arena, "%s:fwd", base)) : 0;
	tt_segment seg = n->seg, from = g->nodes[g->values[w].def].seg;
	if (there && (g->nodes[g->values[there].def].seg == seg || (from == TT_SEG_F && seg == TT_SEG_B)))
		return there;
	tt_segment fwd_seg = fwd ? g->nodes[g->values[fwd].def].seg : TT_NSEGS;
	bool kept = fwd_seg == seg || (fwd_seg == TT_SEG_F && seg == TT_SEG_B);
	tt_v p = kept ? 0 : gather_packed(c, n, w, f, made);
	if (p || g->status)
		return p;
	g->seg = seg;
	g->group = n->group;
	g->scope[0] = 0;
	return tt_pack(g, kept ? fwd : w, dt, f, tt_arena_printf(g->arena, "=%s", name));
}

/* 0: its pieces do not begin where panels do, or PREP does not pack them. */
static tt_v gather_packed(tt_copy *c, const tt_node *n, tt_v w, tt_format f, const tt_graph *made)
{
	tt_graph *g = c->to;
	const tt_node *d = &g->nodes[g->values[w].def];
	if (d->op != &tt_op_exchange || g->values[w].ndim != 2 || !tt_exchange_packs(d->attr, f, g->values[w].dtype))
		return 0;
	const tt_attr_exchange *attr = d->attr;
	tt_v piece = d->in[0];
	tt_v p = g->values[piece].state >= 0 ? packed(c, piece, f, made) : g->values[piece].def >= 0 ? gather_packed(c, n, piece, f, made) : 0;
	if (!p || g->values[p].format != f)
		return 0;
	g->seg = n->seg;
	g->group = n->group;
	g->scope[0] = 0;
	return tt_node_add(g, &tt_op_exchange, attr, 1, &p, tt_arena_printf(g->arena, "=%s:%s", g->values[w].name, f == TT_PACK_FWD ? "fwd" : "dx"));
}

static bool gather_of(const tt_node *n) { return n->op == &tt_op_exchange && ((const tt_attr_exchange *)n->attr)->kind == TT_EX_GATHER; }

/* A second copy without the derived states and the gathers that nothing reads, nor the nodes that make them. */
static tt_graph *drop_unread(const tt_graph *g, tt_arena *a)
{
	bool *read = TT_NEWN(a, bool, g->nvalues);
	for (int64_t i = 0; i < g->noutputs; i++)
		read[g->outputs[i]] = true;
	for (int64_t i = g->nnodes - 1; i >= 0; i--)
		for (int k = 0; k < g->nodes[i].nin; k++)
			read[g->nodes[i].in[k]] |= !gather_of(&g->nodes[i]) || read[g->nodes[i].out[0]];
	bool *dead = TT_NEWN(a, bool, g->nvalues); /* next versions of dead states */
	tt_copy c = { .from = g, .to = tt_graph_new(a, &g->mesh, g->f64), .map = TT_NEWN(a, tt_v, g->nvalues) };
	for (tt_v v = 1; v < g->nvalues; v++) {
		const tt_value *x = &g->values[v];
		const tt_state *s = x->state >= 0 ? &g->states[x->state] : NULL;
		if (x->kind == TT_TEMP)
			continue;
		if (s && s->source >= 0 && !read[v]) {
			dead[s->next] = true;
			continue;
		}
		if (s) {
			const char *suffix = strrchr(s->name, ':');
			if (s->source >= 0)
				c.map[v] = tt_state_derived(c.to, c.map[g->states[s->source].value], suffix + 1, x->dtype, x->format);
			else
				c.map[v] = tt_state_new(c.to, s->name, s->region, x->dtype, x->ndim, x->dim, s->trainable);
			tt_value_set_layout(c.to, c.map[v], x->layout);
			c.to->states[c.to->values[c.map[v]].state].within = c.map[s->within]; /* which comes before it */
			continue;
		}
		c.map[v] = tt_input(c.to, x->name, x->dtype, x->gdtype, x->ndim, x->dim);
		tt_value_set_layout(c.to, c.map[v], x->layout);
		tt_value_set_fill(c.to, c.map[v], x->fill);
	}
	for (int64_t i = 0; i < g->nnodes; i++)
		if (!dead[g->nodes[i].out[0]] && (!gather_of(&g->nodes[i]) || read[g->nodes[i].out[0]]))
			tt_copy_node(&c, &g->nodes[i]);
	for (int64_t i = 0; i < g->nstates; i++)
		if (g->states[i].next && !dead[g->states[i].next])
			tt_state_set(c.to, c.map[g->states[i].value], c.map[g->states[i].next]);
	for (int64_t i = 0; i < g->noutputs; i++)
		tt_graph_output(c.to, c.map[g->outputs[i]]);
	return c.to;
}

tt_status tt_pass_formats(const tt_graph *g, tt_isa isa, int threads, const tt_graph *made, tt_arena *a, tt_graph **out)
{
	tt_copy c = tt_copy_begin(g, a);
	for (int64_t i = 0; i < g->nnodes; i++) {
		const tt_node *n = &g->nodes[i];
		const tt_value *in[80], *res[80];
		TT_ASSERT(n->nin <= TT_COUNT(in) && n->nout <= TT_COUNT(res), "%s: too many operands", n->op->name);
		for (int k = 0; k < n->nin; k++)
			in[k] = n->in[k] ? &g->values[n->in[k]] : NULL;
		for (int k = 0; k < n->nout; k++)
			res[k] = &g->values[n->out[k]];
		tt_kernel_case kc = { .op = n->op->name, .attr = n->attr, .nin = n->nin, .nout = n->nout, .in = in, .out = res, .threads = threads };
		const tt_override *ov = tt_override_find(&kc, isa);
		tt_v saved[80];
		int32_t changed = 0;
		for (int k = 0; ov && ov->format && k < n->nin; k++) {
			tt_format f = ov->format(&kc, k);
			if (f == TT_PLAIN || !in[k] || in[k]->kind == TT_INPUT)
				continue;
			tt_v p = in[k]->state < 0 ? packed_here(&c, n, c.map[n->in[k]], f, made) : packed(&c, c.map[n->in[k]], f, made);
			TT_TRY(tt_graph_check(c.to));
			saved[changed++] = n->in[k];
			saved[changed++] = c.map[n->in[k]];
			c.map[n->in[k]] = p; /* for this node alone */
		}
		tt_copy_node(&c, n);
		while (changed) {
			tt_v at = saved[--changed];
			c.map[saved[--changed]] = at;
		}
	}
	tt_copy_end(&c);
	TT_TRY(tt_graph_check(c.to));
	tt_graph *clean = drop_unread(c.to, a);
	TT_TRY(tt_graph_verify(clean, "formats"));
	*out = clean;
	return TT_OK;
}
