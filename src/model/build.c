/* build.c: what every model's builder shares: inputs, parameters, the chunked loss, initial values. */
#include <stdio.h>

#include "model/build.h"

tt_builder *tt_builder_new(tt_arena *a, const tt_model_options *o)
{
	tt_builder *b = TT_NEW(a, tt_builder);
	b->o = *o;
	tt_mesh one = { 0 };
	tt_graph *g = b->g = tt_graph_new(a, &one, o->compute == TT_F64);
	tt_dim t = tt_dim_of(TT_TOKENS, o->t_max, 1), s = tt_dim_of(TT_SEQS, o->seqs_max + 1, 1), one_dim = tt_dim_of(TT_ONE, 1, 1);
	b->ids = tt_input(g, "ids", TT_I32, TT_NODTYPE, 1, &t);
	b->labels = tt_input(g, "labels", TT_I32, TT_NODTYPE, 1, &t);
	b->seqs.positions = tt_input(g, "positions", TT_I32, TT_NODTYPE, 1, &t);
	b->seqs.seq_ids = tt_input(g, "seq_ids", TT_I32, TT_NODTYPE, 1, &t);
	b->seqs.seq_table = tt_input(g, "seq_table", TT_I32, TT_NODTYPE, 1, &s);
	b->seqs.lines = tt_input(g, "lines", TT_I32, TT_NODTYPE, 1, &t);
	b->inv_valid = tt_input(g, "inv_valid", tt_stat_dtype(g), TT_NODTYPE, 1, &one_dim);
	return b;
}

tt_v tt_weight(tt_builder *b, const char *name, int ndim, const tt_dim *dims, const tt_attr_init *init)
{
	tt_graph *g = b->g;
	char full[320];
	snprintf(full, sizeof full, "%s%s%s", g->scope, g->scope[0] ? "." : "", name);
	tt_v w = tt_value_find(g, full);
	if (!w) {
		w = tt_state_new(g, full, TT_REGION_PARAM, tt_stat_dtype(g), ndim, dims, true);
		if (!w)
			return 0;
		tt_param p = { .name = tt_value_get(g, w)->name, .state = w, .init = *init };
		p.init.name = p.name;
		TT_PUSH(g->arena, b->params, b->nparams, b->cap_params, p);
	}
	if (b->o.compute != TT_BF16)
		return w;
	tt_v use = tt_state_derived(g, w, "bf16", TT_BF16, TT_PLAIN);
	if (use && !g->states[tt_value_get(g, use)->state].next) {
		tt_segment seg = g->seg;
		int32_t group = g->group;
		g->seg = TT_SEG_PREP;
		g->group = 0;
		tt_state_set(g, use, tt_cast(g, w, TT_BF16, tt_arena_printf(g->arena, "=%s:bf16+", full)));
		g->seg = seg;
		g->group = group;
	}
	return use;
}

void tt_loss(tt_builder *b, tt_v hidden, tt_v head_vd)
{
	tt_graph *g = b->g;
	int n = b->o.loss_chunks;
	tt_dim one = tt_dim_of(TT_ONE, 1, 1);
	tt_v x = tt_split_tokens(g, hidden, n, "loss.hidden"), labels = tt_split_tokens(g, b->labels, n, "loss.labels");
	tt_v sum = tt_state_new(g, b->o.eval ? "eval_loss_sum" : "loss_sum", TT_REGION_GRAD, TT_ACC, 1, &one, false);
	tt_v next = sum;
	for (int i = 0; i < n && x && labels; i++) {
		int scope = tt_scope_push(g, "loss.%d", i);
		g->seg = TT_SEG_B;
		g->group = 1 + i;
		tt_v logits = tt_linear_stat(g, tt_out(x, i), head_vd, "logits");
		tt_v nll = tt_token_loss(g, logits, tt_out(labels, i));
		tt_v total = tt_total(g, nll, "sum");
		tt_graph_root(g, total, b->inv_valid);
		next = tt_accumulate(g, next, total, i == 0);
		tt_graph_output(g, nll); /* rows' losses are taken from it */
		if (b->o.output_logits)
			tt_graph_output(g, logits);
		tt_scope_pop(g, scope);
	}
	tt_state_set(g, sum, next);
	g->seg = TT_SEG_F;
	g->group = 0;
}

tt_status tt_init_graph(tt_arena *a, const tt_builder *b, const tt_graph *with, tt_graph **out)
{
	tt_graph *g = tt_graph_new(a, &with->mesh, with->f64);
	g->seg = TT_SEG_INIT;
	for (int64_t i = 0; i < b->nparams; i++) {
		const tt_param *p = &b->params[i];
		const tt_value *v = tt_value_get(b->g, p->state);
		tt_v s = tt_state_new(g, p->name, TT_REGION_PARAM, v->dtype, v->ndim, v->dim, true);
		tt_value_set_layout(g, s, tt_value_get(with, tt_value_find(with, p->name))->layout);
		int scope = tt_scope_push(g, "%s", p->name);
		tt_state_set(g, s, p->init.std > 0 ? tt_fill_normal(g, s, &p->init) : tt_fill_const(g, s, p->init.mean));
		tt_scope_pop(g, scope);
	}
	for (int64_t i = 0; i < with->nstates; i++) {
		const tt_state *st = &with->states[i];
		const tt_value *v = tt_value_get(with, st->value);
		if (st->region != TT_REGION_OPTIM)
			continue;
		tt_v s = tt_state_new(g, st->name, st->region, v->dtype, v->ndim, v->dim, false);
		tt_value_set_layout(g, s, v->layout);
		int scope = tt_scope_push(g, "%s", st->name);
		tt_state_set(g, s, tt_fill_const(g, s, 0));
		tt_scope_pop(g, scope);
	}
	TT_TRY(tt_graph_verify(g, "init"));
	*out = g;
	return TT_OK;
}
