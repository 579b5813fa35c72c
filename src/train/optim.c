/* optim.c: what runs once a step, as ops of the same typed graph: loss, norm and clip in REDUCE, the update in OPT. */
#include "train/train.h"

/* ---- layouts of what runs once a step: REDUCE takes the sums that the backward left open -------------------------------------------- */

/* v as `like` lies: sums are taken, and what is the same on all ranks is so for the same work or for different work. */
static tt_v as(tt_graph *g, tt_v v, tt_layout like)
{
	for (int ax = 0; v && ax < g->mesh.naxes; ax++) {
		tt_axis_type has = g->values[v].layout.ax[ax], want = like.ax[ax];
		if (g->mesh.ax[ax].size > 1 && has.type != want.type && has.type != TT_S && (want.type == TT_R || want.type == TT_I))
			v = tt_convert(g, v, g->mesh.ax[ax].name, (tt_type)want.type, 0);
	}
	return v;
}

/* The square sums of shards are terms of the norm's; those of replicated values count once. */
static tt_v open_sum(tt_graph *g, tt_v v)
{
	for (int ax = 0; v && ax < g->mesh.naxes; ax++) {
		tt_type has = (tt_type)g->values[v].layout.ax[ax].type;
		if (g->mesh.ax[ax].size > 1 && has != TT_P)
			v = tt_convert(g, v, g->mesh.ax[ax].name, TT_P, 0);
	}
	return v;
}

typedef struct optim {
	tt_graph *g;
	const tt_optim_options *o;
	tt_v hyper, coef;
} optim;

static tt_v scalar_state(tt_graph *g, const char *name)
{
	tt_dim one = tt_dim_of(TT_ONE, 1, 1);
	return tt_state_new(g, name, TT_REGION_GRAD, tt_stat_dtype(g), 1, &one, false);
}

/* The accumulated gradient of a parameter, rounded: a temp of the program that uses it. */
static tt_v gradient(tt_graph *g, const tt_state *param)
{
	tt_v acc = tt_value_find(g, tt_arena_printf(g->arena, "grad.%s", param->name));
	if (!acc)
		return 0;
	acc = as(g, acc, g->values[param->value].layout);
	return tt_round(g, acc, tt_stat_dtype(g), tt_arena_printf(g->arena, "=%s.%s", g->seg == TT_SEG_OPT ? "opt" : "reduce", param->name));
}

static const tt_group *group_of(const tt_optim_options *o, const char *name)
{
	for (int i = 0; i < o->ngroups; i++)
		if (tt_pattern_match(o->groups[i].pattern, name))
			return &o->groups[i];
	return NULL;
}

static void update(optim *w, const tt_state *param)
{
	tt_graph *g = w->g;
	const tt_optim_options *o = w->o;
	const tt_value v = g->values[param->value];
	const tt_group *gr = group_of(o, param->name);
	double decay = o->decay_only_matrices && v.ndim < 2 ? 0 : o->weight_decay;
	if (gr && gr->weight_decay >= 0)
		decay = gr->weight_decay;
	double scale = gr ? gr->lr_scale : 1;
	tt_dtype stat = tt_stat_dtype(g);
	const char *name = param->name;
	tt_v p = param->value;
	if (o->sgd) {
		tt_v mom = tt_state_new(g, tt_arena_printf(g->arena, "optim.momentum.%s", name), TT_REGION_OPTIM, stat, v.ndim, v.dim, false);
		tt_value_set_layout(g, mom, v.layout);
		tt_attr_sgd a = { o->momentum, decay, scale, o->nesterov };
		tt_v out = tt_sgd(g, p, mom, gradient(g, param), as(g, w->coef, v.layout), w->hyper, &a);
		tt_state_set(g, p, out);
		tt_state_set(g, mom, tt_out(out, 1));
		return;
	}
	tt_v m = tt_state_new(g, tt_arena_printf(g->arena, "optim.exp_avg.%s", name), TT_REGION_OPTIM, stat, v.ndim, v.dim, false);
	tt_value_set_layout(g, m, v.layout);
	tt_v s = tt_state_new(g, tt_arena_printf(g->arena, "optim.exp_avg_sq.%s", name), TT_REGION_OPTIM, stat, v.ndim, v.dim, false);
	tt_value_set_layout(g, s, v.layout);
	tt_attr_adamw a = { o->beta1, o->beta2, o->eps, decay, scale };
	tt_v out = tt_adamw(g, p, m, s, gradient(g, param), as(g, w->coef, v.layout), w->hyper, &a);
	tt_state_set(g, p, out);
	tt_state_set(g, m, tt_out(out, 1));
	tt_state_set(g, s, tt_out(out, 2));
}

tt_status tt_optim_build(const tt_graph *from, const tt_optim_options *o, tt_arena *a, tt_graph **out)
{
	tt_copy c = tt_copy_begin(from, a);
	for (int64_t i = 0; i < from->nnodes; i++)
		tt_copy_node(&c, &from->nodes[i]);
	tt_copy_end(&c);
	tt_graph *g = c.to;
	TT_TRY(tt_graph_check(g));
	for (int i = 0; i < o->ngroups; i++) {
		bool any = false;
		for (int64_t k = 0; k < g->nstates; k++)
			any |= g->states[k].trainable && g->states[k].source < 0 && tt_pattern_match(o->groups[i].pattern, g->states[k].name);
		if (!any)
			TT_FAIL(TT_ERR_USAGE, "optimizer.param_groups[%d]: pattern \"%s\" matches no parameter (titan train --dump=graph lists their names)", i,
				o->groups[i].pattern);
	}
	int64_t nstates = g->nstates;
	tt_dtype stat = tt_stat_dtype(g);
	g->group = 0;
	g->seg = TT_SEG_REDUCE;
	tt_v loss_sum = tt_value_find(g, "loss_sum"), loss = scalar_state(g, "loss");
	tt_layout whole = tt_layout_all(TT_R);
	tt_state_set(g, loss, tt_round(g, as(g, loss_sum, whole), stat, "=loss+"));
	tt_v sum = 0;
	for (int64_t i = 0; i < nstates; i++) {
		tt_state p = g->states[i];
		if (!p.trainable || p.source >= 0)
			continue;
		tt_v gr = gradient(g, &p);
		if (!gr && g->status == TT_OK)
			TT_FAIL(TT_ERR_TYPE, "%s: no gradient reaches this parameter", p.name);
		tt_v sq = open_sum(g, tt_square_sum(g, gr, tt_arena_printf(a, "=square.%s", p.name)));
		sum = sum ? tt_add(g, sum, sq, tt_arena_printf(a, "=squares.%s", p.name)) : sq;
	}
	tt_v norm = tt_norm_clip(g, tt_round(g, as(g, sum, whole), stat, "=sumsq"), o->max_norm);
	tt_v norm_state = scalar_state(g, "grad_norm"), coef = scalar_state(g, "clip_coef");
	tt_state_set(g, norm_state, norm);
	tt_state_set(g, coef, tt_out(norm, 1));

	g->seg = TT_SEG_OPT;
	tt_dim four = tt_dim_of(TT_ONE, 4, 1);
	optim w = { .g = g, .o = o, .coef = coef, .hyper = tt_input(g, "hyper", stat, TT_NODTYPE, 1, &four) };
	for (int64_t i = 0; i < nstates; i++) {
		tt_state p = g->states[i];
		if (!p.trainable || p.source >= 0)
			continue;
		int scope = tt_scope_push(g, "opt.%s", p.name);
		update(&w, &p);
		tt_scope_pop(g, scope);
	}
	TT_TRY(tt_graph_verify(g, "optimizer"));
	*out = g;
	return TT_OK;
}
