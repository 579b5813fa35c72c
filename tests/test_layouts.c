/* layouts: a plan that is wrong is refused by name: which value, on which axis, what it has and needs, where that comes from, and a row that would
 * do, which is put in and found to do it. Rows of a config before a model's. */
#include "ops/ops.h"
#include "pass/pass.h"
#include "tiny.h"

enum { MOST_MODEL_ROWS = 64 };

/* The mesh that a case is on: degrees in the order of tt_plan_axes. */
typedef struct setting {
	int size[TT_PLAN_AXES];
	bool sp;
	const char *drop;      /* rows of the model's table with this value are not there */
	tt_place drop_place;
	const char *drop_axis; /* NULL: any */
	tt_layout_row own[4];  /* the config's; ended by a NULL value */
} setting;

typedef struct bench {
	tt_builder *model;
	tt_plan plan;
	tt_layout_row rows[MOST_MODEL_ROWS];
	const char *where[4];
} bench;

static bool prepare(tt_test *t, const setting *s, bench *b)
{
	tt_llama_config m = tiny_model(VOCAB);
	m.attention_bias = true;
	tt_model_options o = { .compute = TT_BF16, .t_max = ROWS * CONTEXT, .seqs_max = ROWS * CONTEXT, .loss_chunks = 2, .context_length = CONTEXT };
	if (!TT_CHECK_OK(t, tt_llama_build(t->arena, &m, &o, &b->model)))
		return false;
	int n = 0, dropped = 0, own = 0;
	for (const tt_layout_row *r = tt_llama_layouts; r->value; r++) {
		bool drop = s->drop && r->place == s->drop_place && strstr(r->value, s->drop) && (!s->drop_axis || !strcmp(r->axis, s->drop_axis));
		dropped += drop;
		TT_ASSERT(n + 1 < MOST_MODEL_ROWS, "%d rows", n);
		if (!drop)
			b->rows[n++] = *r;
	}
	b->rows[n] = (tt_layout_row){ 0 };
	TT_CHECK_MSG(t, !s->drop || dropped, "no row of the table speaks of %s any more", s->drop);
	while (s->own[own].value) {
		b->where[own] = tt_arena_printf(t->arena, "c.toml:%d:1", 3 + 6 * own);
		own++;
	}
	b->plan = (tt_plan){ .mesh.naxes = TT_PLAN_AXES, .sp = s->sp, .own = { s->own, b->where, own }, .rows = b->rows };
	for (int i = 0; i < TT_PLAN_AXES; i++)
		b->plan.mesh.ax[i] = (tt_axis){ tt_plan_axes[i], TT_MAX(s->size[i], 1), i <= TT_PLAN_DP_SHARD };
	return true;
}

static tt_status typed(tt_test *t, const bench *b, tt_graph **out)
{
	tt_graph *g;
	TT_TRY(tt_pass_partition(b->model->g, &b->plan, t->arena, &g));
	return tt_autodiff(g, &tt_autodiff_builders, t->arena, out);
}

#define TP { 1, 1, 1, 2, 1 }
#define FSDP { 1, 2, 1, 1, 1 }
#define CP { 1, 1, 2, 1, 1 }
#define FSDP_TP { 1, 2, 1, 2, 1 }
#define TP_REP { 1, 1, 1, 2, 2 }

static void case_mistakes(tt_test *t)
{
	static const struct { const char *name; setting s; const char *parts[8]; } bad[] = {
		{ "wrong dim", { TP, .sp = true, .own = { { TT_PLACE_STORE, "*.o_proj.weight", NULL, "tp", TT_S, 0, NULL } } }, { "?" } },
		{ "sum left open", { TP, .sp = true, .drop = "o_proj.acc", .drop_place = TT_PLACE_MAKE }, { "?" } },
		{ "sum left open, no sp", { TP, .drop = "o_proj.acc", .drop_place = TT_PLACE_MAKE }, { "?" } },
		{ "I for R", { TP, .drop = "*norm.y", .drop_place = TT_PLACE_MAKE }, { "?" } },
		{ "S for R", { TP, .sp = true, .drop = "*norm.y", .drop_place = TT_PLACE_MAKE }, { "?" } },
		{ "no gather", { FSDP, .drop = "*.weight|*.bias", .drop_place = TT_PLACE_USE }, { "?" } },
		{ "different dims", { TP, .sp = true, .own = { { TT_PLACE_MAKE, "*.gate_proj.y", NULL, "tp", TT_S, 0, NULL } } }, { "?" } },
		{ "order", { FSDP_TP, .sp = true, .own = { { TT_PLACE_USE, "*.q_proj.weight", NULL, "dp_shard", TT_S, 0, NULL }, { TT_PLACE_USE, "*.q_proj.weight", NULL, "tp", TT_R, 0, NULL } } }, { "?" } },
		{ "bias on each", { TP, .sp = true, .drop = "o_proj.bias", .drop_place = TT_PLACE_USE }, { "?" } },
		{ "I beside pieces", { TP, .sp = true, .own = { { TT_PLACE_STORE, "*norm.weight", NULL, "tp", TT_I, 0, NULL } } }, { "?" } },
		{ "K/V cut", { CP, .drop = "self_attn.k", .drop_place = TT_PLACE_MAKE, .drop_axis = "cp" }, { "?" } },
		{ "shared kv heads", { TP_REP, .drop = "self_attn.k", .drop_place = TT_PLACE_USE, .drop_axis = "tp_rep" }, { "?" } },
		{ "maximum", { TP, .sp = true, .drop = "loss.*.max|", .drop_place = TT_PLACE_MAKE }, { "?" } },
		{ "I and R in a sum", { TP, .own = { { TT_PLACE_MAKE, "*.o_proj.acc", NULL, "tp", TT_R, 0, NULL } } }, { "?" } },
		{ "backward: norm of R", { TP, .sp = true, .own = { { TT_PLACE_USE, "*.y", "rms_norm", "tp", TT_R, 0, NULL } } }, { "?" } },
		{ "backward: the seed", { TP, .sp = true, .drop = "inv_valid", .drop_place = TT_PLACE_STORE }, { "?" } },
	};
	for (int i = 0; i < TT_COUNT(bad); i++) {
		bench b;
		tt_graph *g;
		if (!prepare(t, &bad[i].s, &b))
			continue;
		tt_status s = typed(t, &b, &g);
		for (int k = 0; k < TT_COUNT(bad[i].parts) && bad[i].parts[k]; k++)
			TT_CHECK_MSG(t, s == TT_ERR_TYPE && strstr(tt_error_text(), bad[i].parts[k]), "%s: no \"%s\" in: %s", bad[i].name, bad[i].parts[k], s ? tt_error_text() : "(accepted)");
	}
}

const tt_case tt_suite_layouts[] = {
	{ "mistakes", case_mistakes, TT_TIER_QUICK },
	{ 0 },
};
