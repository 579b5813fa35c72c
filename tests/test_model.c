/* test_model.c: what is said about a model without running it: parameters, FLOPs, names, initial values' rules. */
#include "model/model.h"
#include "ops/ops.h"
#include "test.h"

static tt_builder *build(tt_test *t, const tt_llama_config *c, int64_t tokens, int chunks)
{
	tt_model_options o = { .compute = TT_BF16, .t_max = tokens, .seqs_max = tokens, .loss_chunks = chunks, .context_length = tokens };
	tt_builder *b = NULL;
	TT_CHECK_OK(t, tt_llama_build(t->arena, c, &o, &b));
	return b;
}

/* FLOPs of the graph's own matrix products, counted node by node: 2 for each pair of an output and a contracted element. */
static double count(const tt_graph *g, double tokens, double pairs)
{
	double flops = 0;
	for (int64_t i = 0; i < g->nnodes; i++) {
		const tt_node *n = &g->nodes[i];
		if (n->op == &tt_op_linear) {
			const tt_value *x = tt_value_get(g, n->in[0]), *w = tt_value_get(g, n->in[1]);
			flops += 2 * (double)x->dim[0].n * (double)w->dim[0].n * (double)w->dim[1].n;
		} else if (n->op == &tt_op_attention) {
			const tt_value *q = tt_value_get(g, n->in[0]), *o = tt_value_get(g, n->out[0]);
			TT_ASSERT((double)q->dim[0].n == tokens);
			flops += 2 * pairs * (double)q->dim[1].n + 2 * pairs * (double)o->dim[1].n;
		}
	}
	return flops;
}

/* What MFU is computed with equals a count over the graph, for every flavor that is quick to build; windows attend fewer pairs. */
static void flops_counted(tt_test *t)
{
	static const char *const names[] = { "debugmodel", "bytes-5m", "dense-20m", "dense-100m", "1B" };
	for (int i = 0; i < TT_COUNT(names); i++) {
		const tt_flavor *f;
		TT_CHECK_OK(t, tt_flavor_find(names[i], &f));
		tt_builder *b = build(t, &f->config, 96, i + 1);
		double pairs = 96.0 * 97 / 2;
		if (!b)
			continue;
		double got = tt_llama_forward_flops(&f->config, 96, pairs), want = count(b->g, 96, pairs);
		TT_CHECK_MSG(t, got == want, "%s: %.17g FLOPs, the graph has %.17g", names[i], got, want);
	}
}

/* The parameters of the graph are those that the config says, under Hugging Face's names, each with a gradient and a start. */
static void parameters(tt_test *t)
{
	static const char *const names[] = { "debugmodel", "bytes-5m", "dense-100m", "1B", "8B" };
	for (int i = 0; i < TT_COUNT(names); i++) {
		const tt_flavor *f;
		TT_CHECK_OK(t, tt_flavor_find(names[i], &f));
		tt_builder *b = build(t, &f->config, 8, 1);
		if (!b)
			continue;
		int64_t n = 0;
		for (int64_t p = 0; p < b->nparams; p++)
			n += tt_value_count(tt_value_get(b->g, b->params[p].state));
		TT_CHECK_INT(t, n, tt_llama_params(&f->config));
		TT_CHECK(t, (tt_value_find(b->g, "lm_head.weight") == 0) == f->config.tie_word_embeddings);
		TT_CHECK(t, tt_value_find(b->g, "model.layers.0.self_attn.q_proj.weight") != 0);
		tt_graph *bwd;
		TT_CHECK_OK(t, tt_autodiff(b->g, &tt_autodiff_builders, t->arena, &bwd));
		for (int64_t p = 0; p < b->nparams; p++)
			TT_CHECK_MSG(t, tt_value_find(bwd, tt_arena_printf(t->arena, "grad.%s", b->params[p].name)) != 0, "%s has no gradient", b->params[p].name);
	}
}

/* Segment edges of a contraction: they tile it, lie on units, and every tp of 1, 2, 4, 8 cuts at one of them. */
static void segments(tt_test *t)
{
	static const struct { int64_t heads, kv, width; } cases[] = { { 8, 4, 32 }, { 12, 4, 64 }, { 12, 3, 16 }, { 32, 8, 128 }, { 6, 1, 8 }, { 24, 2, 4 }, { 16, 16, 16 }, { 5, 5, 4 } };
	for (int i = 0; i < TT_COUNT(cases); i++) {
		int64_t heads = cases[i].heads, kv = cases[i].kv, w = cases[i].width, group = heads / kv, e[9];
		tt_dim d = tt_dim_of(TT_HEADS, heads * w, w);
		d.group = group;
		tt_segments_deal(&d, e);
		TT_CHECK(t, e[0] == 0 && e[8] == heads * w);
		for (int s = 0; s < 8; s++)
			TT_CHECK(t, e[s] <= e[s + 1] && e[s] % w == 0);
		for (int64_t tp = 1; tp <= 8; tp *= 2) {
			if (kv < tp && tp % kv)
				continue; /* no legal plan */
			for (int64_t r = 0; r <= tp; r++) {
				int64_t at; /* first head of rank r: whole kv groups, or the ranks of one kv head share its group */
				if (kv >= tp)
					at = tt_deal(kv, r, tp) * group;
				else
					at = r / (tp / kv) * group + tt_deal(group, r % (tp / kv), tp / kv);
				TT_CHECK_MSG(t, e[r * 8 / tp] == at * w, "%lld heads, %lld kv: rank %lld of %lld starts at %lld, segment at %lld", (long long)heads,
					     (long long)kv, (long long)r, (long long)tp, (long long)(at * w), (long long)e[r * 8 / tp]);
			}
		}
	}
}

const tt_case tt_suite_model[] = {
	{ "flops_counted", flops_counted, TT_TIER_QUICK },
	{ "parameters", parameters, TT_TIER_QUICK },
	{ "segments", segments, TT_TIER_QUICK },
	{ 0 },
};
