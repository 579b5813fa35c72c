/* layouts: a plan that is wrong is refused by name: which value, on which axis, what it has and needs, where that comes from, and a row that would
 * do, which is put in and found to do it. Rows of a config before a model's. */
#include "ops/ops.h"
#include "config/config.h"
#include "pass/pass.h"
#include "tiny.h"
#include "train/verify.h"

#include <stdlib.h>

enum { MOST_MODEL_ROWS = 64, MOST_OWN = 8 };

/* The mesh that a case is on: degrees in the order of tt_plan_axes. */
typedef struct setting {
	int size[TT_PLAN_AXES];
	bool sp;
	const char *drop;      /* rows of the model's table with this value are not there */
	tt_place drop_place;
	const char *drop_axis; /* NULL: any */
	tt_layout_row own[MOST_OWN + 1]; /* the config's; ended by a NULL value */
} setting;

typedef struct bench {
	tt_builder *model;
	tt_plan plan;
	tt_layout_row rows[MOST_MODEL_ROWS];
	const char *where[MOST_OWN];
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

/* The rows that the text offers, as a config has them, put before all others. */
static void check_offer(tt_test *t, const char *name, const char *text, const setting *s)
{
	const char *first = strstr(text, "    [[parallelism.layouts]]"), *end = strstr(text, "\n  in the table:");
	if (!TT_CHECK_MSG(t, first && end, "%s: no row is offered", name))
		return;
	const char *toml = tt_arena_strndup(t->arena, first, (size_t)(end - first));
	tt_config *cfg;
	if (!TT_CHECK_OK(t, tt_config_load_text(t->arena, "offer.toml", toml, strlen(toml), 0, NULL, &cfg)))
		return;
	setting with = *s;
	int n = 0;
	for (; n < cfg->parallelism.layouts.n; n++) {
		const tt_layout_entry *e = &cfg->parallelism.layouts.items[n];
		tt_layout_row *r = &with.own[n];
		if (!TT_CHECK(t, n < MOST_OWN))
			return;
		*r = (tt_layout_row){ (tt_place)(e->place - TT_CFG_PLACE_STORE), e->value, e->by[0] ? e->by : NULL, tt_cfg_axis_word(e->axis), TT_R, 0, NULL };
		TT_CHECK(t, tt_layout_type_parse(tt_cfg_layout_type_word(e->type), &r->type, &r->dim));
	}
	for (int i = 0; s->own[i].value && n < MOST_OWN; i++)
		with.own[n++] = s->own[i];
	bench b;
	tt_graph *g;
	if (prepare(t, &with, &b)) {
		tt_status st = typed(t, &b, &g);
		TT_CHECK_MSG(t, st == TT_OK, "%s: what is offered does not do:\n%s\n%s", name, toml, st ? tt_error_text() : "");
	}
}

static void case_mistakes(tt_test *t)
{
	static const struct { const char *name; setting s; bool offer; const char *parts[7]; } bad[] = {
		{ "wrong dim", { TP, .sp = true, .own = { { TT_PLACE_STORE, "*.o_proj.weight", NULL, "tp", TT_S, 0, NULL } } }, true,
		  { "model.layers.0.self_attn.o_proj: linear: input 1, model.layers.0.self_attn.o_proj.weight:bf16, on axis tp: has S(0), needs S(1), as model.layers.0.self_attn.o is sharded along 'k'",
		    "o_proj.weight:bf16 is a parameter", "c.toml:3:1: store \"*.o_proj.weight\" on tp as S(0)", "without c.toml:3:1, every type is right, forward and backward",
		    "place = \"store\"\n    value = \"*.self_attn.o_proj.weight\"\n    axis = \"tp\"\n    type = \"S(1)\"", "{ TT_PLACE_STORE, \"*.self_attn.o_proj.weight\", NULL, \"tp\", TT_S, 1, NULL }," } },
		{ "sum left open", { TP, .sp = true, .drop = "o_proj.acc", .drop_place = TT_PLACE_MAKE }, true,
		  { "round: input 0, embedding, on axis tp: has P, a sum not yet taken: convert it (P to R, I or S) before round", "embedding is made by embedding",
		    "with these rows, every type is right", "{ TT_PLACE_MAKE, \"*.mlp.down_proj.acc\", NULL, \"tp\", TT_S, 0, NULL }," } },
		{ "sum left open, no sp", { TP, .drop = "o_proj.acc", .drop_place = TT_PLACE_MAKE }, true, { "has P", "{ TT_PLACE_MAKE, \"embedding\", NULL, \"tp\", TT_I, 0, NULL }," } },
		{ "I for R", { TP, .drop = "*norm.y", .drop_place = TT_PLACE_MAKE }, true,
		  { "model.layers.0.self_attn.q_proj: linear: input 0, model.layers.0.input_layernorm.y, on axis tp: has I, needs R, as it meets model.layers.0.self_attn.q_proj.weight:bf16 sharded along 'o'",
		    "model.layers.0.input_layernorm.y is made by rms_norm in model.layers.0.input_layernorm, and has I from embedding>tp.I, a conversion of embedding",
		    "of the model's table: make \"embedding|*.o_proj.acc|*.down_proj.acc\" on tp as I when !sp", "{ TT_PLACE_MAKE, \"*.input_layernorm.y\", NULL, \"tp\", TT_R, 0, NULL }," } },
		{ "S for R", { TP, .sp = true, .drop = "*norm.y", .drop_place = TT_PLACE_MAKE }, true, { "{ TT_PLACE_MAKE, \"loss.hidden.*\", NULL, \"tp\", TT_R, 0, NULL }," } },
		{ "no gather", { FSDP, .drop = "*.weight|*.bias", .drop_place = TT_PLACE_USE }, true,
		  { "embedding: input 1, model.embed_tokens.weight:bf16, on axis dp_shard: has S(0), needs R, as it meets ids sharded along 't'",
		    "of the model's table: param \"*\" on fsdp as S(0)", "with this row, every type is right", "{ TT_PLACE_USE, \"*.weight|*.bias\", NULL, \"fsdp\", TT_R, 0, NULL }," } },
		{ "different dims", { TP, .sp = true, .own = { { TT_PLACE_MAKE, "*.gate_proj.y", NULL, "tp", TT_S, 0, NULL } } }, true,
		  { "silu_mul: input 1, model.layers.0.mlp.up_proj.y, on axis tp: has S(1), needs S(0), as model.layers.0.mlp.gate_proj.y>tp.S is sharded along 't'",
		    "has S(1) from model.layers.0.mlp.up_proj.weight:bf16, a parameter", "without c.toml:3:1, every type is right" } },
		{ "order", { FSDP_TP, .sp = true, .own = { { TT_PLACE_USE, "*.q_proj.*", NULL, "dp_shard", TT_S, 0, NULL }, { TT_PLACE_USE, "*.q_proj.*", NULL, "tp", TT_R, 0, NULL } } }, false,
		  { "convert: input 0, model.layers.0.self_attn.q_proj.weight:bf16, on axis tp: has S(0), but dim 0 is sharded further along dp_shard: convert that first",
		    "the conversion is asked for by c.toml:9:1: use \"*.q_proj.*\" on tp as R", "without c.toml:3:1, it goes on, to" } },
		{ "heads not gathered", { FSDP, .own = { { TT_PLACE_USE, "*.k_proj.*", NULL, "dp_shard", TT_S, 0, NULL } } }, false,
		  { "linear: input 1, model.layers.0.self_attn.k_proj.weight:bf16, on axis dp_shard: has S(0)/1, needs R, as it meets model.layers.0.input_layernorm.y sharded along 't'",
		    "without c.toml:3:1, every type is right" } },
		{ "heads dealt of lines", { FSDP_TP, .sp = true, .own = { { TT_PLACE_STORE, "*.k_proj.*", NULL, "tp", TT_I, 0, NULL }, { TT_PLACE_USE, "*.k_proj.*", NULL, "tp", TT_S, 0, NULL } } }, false,
		  { "convert: input 0, model.layers.0.self_attn.k_proj.weight:bf16, on axis tp: has I, but dp_shard cuts the units of dim 0: convert that first",
		    "the conversion is asked for by c.toml:9:1: use \"*.k_proj.*\" on tp as S(0)" } },
		{ "bias on each", { TP, .sp = true, .drop = "o_proj.bias", .drop_place = TT_PLACE_USE }, true,
		  { "has R, needs P beside a sharded contraction (convert it: R to P), else it is added once per rank", "with this row, every type is right",
		    "{ TT_PLACE_USE, \"*.self_attn.o_proj.bias\", \"*.self_attn.o_proj.acc\", \"tp\", TT_P, 0, NULL }," } },
		{ "I beside pieces", { TP, .sp = true, .own = { { TT_PLACE_STORE, "*norm.weight", NULL, "tp", TT_I, 0, NULL } } }, false,
		  { "model.layers.0.input_layernorm: rms_norm: input 1, model.layers.0.input_layernorm.weight:bf16, on axis tp: has I, needs R, as it meets model.embed_tokens.y sharded along 't'",
		    "without c.toml:3:1, every type is right" } },
		{ "K/V cut", { CP, .drop = "self_attn.k", .drop_place = TT_PLACE_MAKE, .drop_axis = "cp" }, true,
		  { "attention: input 1, model.layers.0.self_attn.k, on axis cp: has S(0), needs R where q is sharded by tokens and its sequences are cut (gather K/V)",
		    "has S(0) from ids, an input", "with these rows, every type is right", "{ TT_PLACE_MAKE, \"*.self_attn.v_proj.y\", NULL, \"cp\", TT_R, 0, NULL }," } },
		{ "shared kv heads", { TP_REP, .drop = "self_attn.k", .drop_place = TT_PLACE_USE, .drop_axis = "tp_rep" }, true,
		  { "on axis tp_rep: has I, needs S(1) where q is sharded by heads, or R where its ranks share one kv head",
		    "of the model's table: use \"*.input_layernorm.y\" by \"*.k_proj.y|*.v_proj.y\" on tp_rep as I", "with these rows, every type is right" } },
		{ "maximum", { TP, .sp = true, .drop = "loss.*.max|", .drop_place = TT_PLACE_MAKE }, true, { "loss.0: round: input 0, loss.0.sum_exp, on axis tp: has P", "{ TT_PLACE_MAKE, \"loss.*.max\", NULL" } },
		{ "I and R in a sum", { TP, .own = { { TT_PLACE_MAKE, "*.o_proj.acc", NULL, "tp", TT_R, 0, NULL } } }, false,
		  { "model.layers.0: add: input 1, model.layers.0.self_attn.o_proj.y, on axis tp: has R, needs I (I mixes with nothing) like model.embed_tokens.y",
		    "has R from model.layers.0.self_attn.o_proj.acc>tp.R, a conversion of model.layers.0.self_attn.o_proj.acc", "c.toml:3:1: make \"*.o_proj.acc\" on tp as R",
		    "without c.toml:3:1, every type is right" } },
		{ "backward: norm of R", { TP, .sp = true, .own = { { TT_PLACE_USE, "*.y", "rms_norm", "tp", TT_R, 0, NULL } } }, false,
		  { "has P, a sum not yet taken", "forward is right, its backward is not: model.norm.y has R, so its gradient has P",
		    "model.norm.y is made by rms_norm in model.norm, and has R from model.layers.1.y>tp.R, a conversion of model.layers.1.y", "c.toml:3:1: use \"*.y\" by \"rms_norm\" on tp as R",
		    "without c.toml:3:1, every type is right, forward and backward" } },
		{ "backward: the seed", { TP, .sp = true, .own = { { TT_PLACE_STORE, "inv_valid", NULL, "tp", TT_R, 0, NULL } } }, true,
		  { "loss.0.sum on axis tp: has I, so its gradient needs I, and inv_valid has R", "forward is right, its backward is not", "without c.toml:3:1, every type is right",
		    "{ TT_PLACE_STORE, \"inv_valid\", NULL, \"tp\", TT_I, 0, NULL }," } },
	};
	for (int i = 0; i < TT_COUNT(bad); i++) {
		bench b;
		tt_graph *g;
		if (!prepare(t, &bad[i].s, &b))
			continue;
		tt_status s = typed(t, &b, &g);
		const char *text = s ? tt_arena_strdup(t->arena, tt_error_text()) : "(accepted)";
		for (int k = 0; k < TT_COUNT(bad[i].parts) && bad[i].parts[k]; k++)
			TT_CHECK_MSG(t, s == TT_ERR_TYPE && strstr(text, bad[i].parts[k]), "%s: no \"%s\" in: %s", bad[i].name, bad[i].parts[k], text);
		if (bad[i].offer)
			check_offer(t, bad[i].name, text, &bad[i].s);
	}
	/* and what is right is not refused */
	static const setting good[] = { { .size = TP, .sp = true }, { .size = TP }, { .size = FSDP }, { .size = CP }, { .size = FSDP_TP, .sp = true }, { .size = TP_REP },
					{ .size = TP_REP, .sp = true } };
	for (int i = 0; i < TT_COUNT(good); i++) {
		bench b;
		tt_graph *g;
		if (prepare(t, &good[i], &b))
			TT_CHECK_OK(t, typed(t, &b, &g));
	}
}

/* ---- rows of a config ---------------------------------------------------------------------------------------------------------------------- */

#define BASE "[model]\nnum_hidden_layers = 2\n[training]\ncontext_length = 64\ntokens_per_step = 256\n[data]\nsource = \"synthetic\"\n[hardware]\nranks = 4\n[parallelism]\n" \
	     "tensor_parallel_degree = 2\n"
#define ROW "[[parallelism.layouts]]\n"

static tt_status options(tt_test *t, const char *text, int nflags, const char *const *flags, tt_config **cfg, tt_run_options *o)
{
	TT_TRY(tt_config_load_text(t->arena, "c.toml", text, strlen(text), nflags, flags, cfg));
	return tt_run_options_from_config(t->arena, *cfg, o);
}

static void case_rows(tt_test *t)
{
	static const struct { const char *rows, *error; } bad[] = {
		{ ROW "place = \"stor\"\n", "c.toml:12:15: parallelism.layouts[0].place = \"stor\" is none of \"store\", \"param\", \"make\", \"use\"; did you mean \"store\"?" },
		{ ROW "axis = \"tpp\"\n", "parallelism.layouts[0].axis = \"tpp\" is none of \"dp_replicate\", \"dp_shard\", \"cp\", \"tp\", \"tp_rep\", \"fsdp\", \"data\"; did you mean \"tp\"?" },
		{ ROW "type = \"S(9)\"\n", "parallelism.layouts[0].type = \"S(9)\" is none of \"R\", \"I\", \"P\", \"S(0)\"" },
		{ ROW "when = \"!spp\"\n", "parallelism.layouts[0].when = \"!spp\" is none of \"sp\", \"!sp\"" },
		{ ROW "valu = \"x\"\n", "c.toml:12:15: unknown key parallelism.layouts[0].valu; did you mean value?" },
		{ ROW "place = \"store\"\nvalue = \"x\"\ntype = \"R\"\n", "c.toml:12:15: parallelism.layouts[0] lacks its axis" },
		{ ROW "place = \"store\"\naxis = \"tp\"\ntype = \"R\"\n", "parallelism.layouts[0] lacks its value" },
		{ ROW "value = \"x\"\naxis = \"tp\"\ntype = \"R\"\n", "parallelism.layouts[0] lacks its place" },
		{ ROW "place = \"store\"\nvalue = \"x\"\nby = \"linear\"\naxis = \"tp\"\ntype = \"R\"\n", "parallelism.layouts[0].by = \"linear\" is of place \"use\" alone, this is \"store\"" },
		{ ROW "place = \"store\"\nvalue = \"*norm.weight\"\naxis = \"tp\"\ntype = \"R\"\n" ROW "place = \"store\"\nvalue = \"*.q_projj.weight\"\naxis = \"tp\"\ntype = \"S(0)\"\n",
		  "c.toml:17:15: parallelism.layouts: store \"*.q_projj.weight\" on tp as S(0): no parameter, state or input is called so (near it: \"*.self_attn.q_proj.weight\", " },
		{ ROW "place = \"make\"\nvalue = \"*.q_proj.weight\"\naxis = \"tp\"\ntype = \"R\"\n", "no value that a node makes is called so (near it: " },
		{ ROW "place = \"use\"\nvalue = \"*.input_layernorm.y\"\nby = \"*.q_prj.y\"\naxis = \"tp\"\ntype = \"R\"\n",
		  "nobody of that name takes model.layers.0.input_layernorm.y; who does: linear, which makes \"*.self_attn.q_proj.y\"" },
		{ ROW "place = \"store\"\nvalue = \"*norm.weight\"\naxis = \"tp\"\ntype = \"S(1)\"\n", "model.layers.0.input_layernorm.weight has 1 dim, so S(0) is all there is" },
		{ ROW "place = \"param\"\nvalue = \"*.weight\"\naxis = \"fsdp\"\ntype = \"S(1)\"\n",
		  "c.toml:12:15: parallelism.layouts: param \"*.weight\" on fsdp as S(1): model.layers.0.input_layernorm.weight has 1 dim, so S(0) is all there is" },
		{ ROW "place = \"store\"\nvalue = \"*norm.weight\"\naxis = \"tp\"\ntype = \"P\"\n", "is f32, and only sums and counts can be stored as terms" },
		{ ROW "place = \"store\"\nvalue = \"*.o_proj.weight\"\naxis = \"tp\"\ntype = \"S(0)\"\n", "without c.toml:12:15, every type is right, forward and backward" },
	};
	tt_config *cfg;
	tt_run_options o;
	for (int i = 0; i < TT_COUNT(bad); i++) {
		tt_status s = options(t, tt_arena_printf(t->arena, BASE "%s", bad[i].rows), 0, NULL, &cfg, &o);
		TT_CHECK_MSG(t, (s == TT_ERR_USAGE || s == TT_ERR_TYPE) && strstr(tt_error_text(), bad[i].error), "no \"%s\" in: %s", bad[i].error, s ? tt_error_text() : "(accepted)");
	}
	/* Of what an earlier row speaks for, a row need not have the dim. */
	TT_CHECK_OK(t, options(t, BASE ROW "place = \"param\"\nvalue = \"*norm.weight\"\naxis = \"fsdp\"\ntype = \"R\"\n" ROW "place = \"param\"\nvalue = \"*.weight\"\naxis = \"fsdp\"\ntype = \"S(1)\"\n", 0, NULL, &cfg, &o));
	/* A flag's rows are told by number; they take the place of the file's. */
	const char *flag = "--parallelism.layouts=[{place=\"store\",value=\"*norm.weight\",axis=\"tp\",type=\"R\"},{place=\"store\",value=\"nrm\",axis=\"tp\",type=\"R\"}]";
	TT_CHECK_FAILS(t, options(t, BASE, 1, &flag, &cfg, &o), TT_ERR_USAGE, "--parallelism.layouts[1]: parallelism.layouts: store \"nrm\" on tp as R: no parameter");
	/* What is accepted is part of the config: of its hash, of its text, and so of what a checkpoint keeps. */
	const char *text = BASE ROW "place = \"store\"\nvalue = \"*.down_proj.weight\"\naxis = \"dp_shard\"\ntype = \"S(1)\"\n" ROW
			   "place = \"use\"\nvalue = \"*norm.y\"\nby = \"*.q_proj.y\"\naxis = \"cp\"\ntype = \"R\"\n" ROW "place = \"store\"\nvalue = \"*norm.weight\"\naxis = \"tp\"\ntype = \"I\"\nwhen = \"!sp\"\n" ROW
			   "place = \"store\"\nvalue = \"*.down_proj.weight\"\naxis = \"dp_shard\"\ntype = \"S(0)\"\n";
	tt_config *plain, *again;
	if (!TT_CHECK_OK(t, options(t, BASE, 0, NULL, &plain, &o)) || !TT_CHECK_OK(t, options(t, text, 0, NULL, &cfg, &o)))
		return;
	TT_CHECK(t, tt_config_hash(cfg) != tt_config_hash(plain));
	tt_buf b = { 0 };
	tt_config_print(cfg, &b);
	if (TT_CHECK_OK(t, tt_config_load_text(t->arena, "printed", b.s, b.n, 0, NULL, &again)))
		TT_CHECK(t, tt_config_hash(cfg) == tt_config_hash(again) && again->parallelism.layouts.n == 4);
	tt_buf_fini(&b);
	TT_CHECK_INT(t, o.layouts.n, 4);
	TT_CHECK_STR(t, o.layouts.where[1], "c.toml:17:15");
	/* The last three have no effect on this mesh: said once each, with why. */
	static const char *const idle[] = { "c.toml:17:15: parallelism.layouts: use \"*norm.y\" by \"*.q_proj.y\" on cp as R: has no effect: cp has one rank",
					    "on tp as I when !sp: has no effect: sequence parallelism is on", "c.toml:29:15: parallelism.layouts: store \"*.down_proj.weight\" on dp_shard as S(0): has no effect: c.toml:12:15 has said it before" };
	for (int i = 0; i < TT_COUNT(idle); i++) {
		bool said = false;
		for (int w = 0; w < o.warnings.n; w++)
			said |= strstr(o.warnings.items[w], idle[i]) != NULL;
		TT_CHECK_MSG(t, said, "no warning says \"%s\" (%d warnings, the last: %s)", idle[i], o.warnings.n, o.warnings.n ? o.warnings.items[o.warnings.n - 1] : "");
	}
}

/* A config's rows are before the model's; the run that comes of them has one rank's bits. */
static void proof(void *ctx, const tt_verify_mesh *m)
{
	tt_test *t = ctx;
	TT_CHECK_MSG(t, !m->finding && !m->illegal, "dp_shard %d, cp %d, tp %d%s: %s", m->size[1], m->size[2], m->size[3], m->sp ? ", sp" : "", m->finding ? m->finding : m->illegal);
}

static void case_own_rows_run(tt_test *t)
{
	static const tt_layout_row rows[] = {
		{ TT_PLACE_STORE, "*.down_proj.weight|*.q_proj.weight", NULL, "fsdp", TT_S, 1, NULL },         /* pieces of the other dim          */
		{ TT_PLACE_STORE, "*norm.weight", NULL, "fsdp", TT_R, 0, NULL },                               /* too small to be worth gathering  */
		{ TT_PLACE_MAKE, "*.post_attention_layernorm.y", NULL, "tp", TT_S, 0, "sp" },                  /* gathered by each product instead */
		{ TT_PLACE_USE, "*.post_attention_layernorm.y", "linear", "tp", TT_R, 0, "sp" },
	};
	static const char *const where[] = { "a", "b", "c", "d" };
	tt_run_options o = tiny_standard(t, ROWS);
	o.layouts = (tt_layouts){ rows, where, TT_COUNT(rows) };
	o.mesh.sp = true;
	static const int sizes[][TT_RUN_AXES] = { { 1, 2, 1, 2 }, { 1, 2, 2, 1 }, { 1, 1, 1, 2 }, { 1, 2, 1, 1 } };
	for (int i = 0; i < (t->tier == TT_TIER_QUICK ? 1 : TT_COUNT(sizes)); i++) {
		tt_verify_mesh mesh = { .sp = sizes[i][TT_TP] > 1, .rows = 1 };
		tt_verify_options v = { .ranks = 4, .steps = 2, .list = &mesh, .nlist = 1 };
		tt_verify_result r;
		memcpy(mesh.size, sizes[i], sizeof mesh.size);
		TT_CHECK_OK(t, tt_verify(t->arena, &o, &v, proof, t, &r));
	}
	tt_plan plan;
	memcpy(o.mesh.size, sizes[0], sizeof o.mesh.size);
	tt_run_plan(&o, &plan);
	tt_model_options m = { .compute = TT_F32, .t_max = ROWS * CONTEXT, .seqs_max = ROWS * CONTEXT, .loss_chunks = 2, .context_length = CONTEXT };
	tt_builder *b;
	tt_graph *g;
	if (!TT_CHECK_OK(t, tt_llama_build(t->arena, &o.model, &m, &b)) || !TT_CHECK_OK(t, tt_pass_partition(b->g, &plan, t->arena, &g)))
		return;
	const tt_layout *l = &tt_value_get(g, tt_value_find(g, "model.layers.1.mlp.down_proj.weight"))->layout;
	TT_CHECK(t, l->ax[TT_PLAN_DP_SHARD].type == TT_S && l->ax[TT_PLAN_DP_SHARD].dim == 1 && l->ax[TT_PLAN_DP_SHARD].order == 1 && l->ax[TT_PLAN_TP].dim == 1);
	TT_CHECK(t, tt_value_get(g, tt_value_find(g, "model.norm.weight"))->layout.ax[TT_PLAN_DP_SHARD].type == TT_R);
	TT_CHECK(t, tt_value_find(g, "model.layers.0.post_attention_layernorm.y>tp.R#2") && !tt_value_find(g, "model.layers.0.input_layernorm.y>tp.R#2"));
}

/* ---- degrees --------------------------------------------------------------------------------------------------------------------------------- */

#define DEGREES(model, ranks, parallelism) "[model]\nnum_hidden_layers = 2\n" model "[training]\ncontext_length = 64\ntokens_per_step = 256\n[data]\nsource = \"synthetic\"\n[hardware]\nranks = " ranks \
					   "\n[parallelism]\n" parallelism
/* 16 heads over 16 kv heads, 2048 ids, 768 hidden units unless said otherwise. */
static void case_degrees(tt_test *t)
{
	static const struct { const char *text, *error; } bad[] = {
		{ DEGREES("", "6", "tensor_parallel_degree = 4\n"),
		  "c.toml:9:1: hardware.ranks = 6 is no multiple of 4, the product of tensor_parallel_degree 4, so parallelism.data_parallel_shard_degree = -1 has no whole number left: --ranks=4 or 8" },
		{ DEGREES("", "2", "tensor_parallel_degree = 2\ncontext_parallel_degree = 2\n"), "is no multiple of 4, the product of context_parallel_degree 2 x tensor_parallel_degree 2" },
		{ DEGREES("", "8", "data_parallel_shard_degree = 2\ntensor_parallel_degree = 2\n"),
		  "a mesh of data_parallel_shard_degree 2 x tensor_parallel_degree 2 has 4 ranks, hardware.ranks is 8: --ranks=4, or parallelism.data_parallel_shard_degree = 4 (-1 takes what is left)" },
		{ DEGREES("", "3", "data_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 1\n"), "a mesh of data_parallel_replicate_degree 2 has 2 ranks, hardware.ranks is 3: --ranks=2" },
		{ DEGREES("", "32", "tensor_parallel_degree = 32\n"), "c.toml:11:1: parallelism.tensor_parallel_degree = 32 is more than the 16 heads (model.num_attention_heads): at most 16" },
		{ DEGREES("", "3", "tensor_parallel_degree = 3\n"), "parallelism.tensor_parallel_degree = 3 does not deal 16 kv heads (model.num_key_value_heads) in whole ones, nor each of them to "
								      "equally many ranks: 2 or 4, at most 16" },
		{ DEGREES("", "4", "tensor_parallel_degree = 3\n"), "c.toml:11:1: parallelism.tensor_parallel_degree = 3 does not deal 16 kv heads" }, /* and 4 ranks: 3 would not do either */
		{ DEGREES("num_attention_heads = 12\nnum_key_value_heads = 2\nhead_dim = 16\n", "8", "tensor_parallel_degree = 8\n"),
		  "tensor_parallel_degree = 8 does not deal 12 heads with 2 kv heads (model.num_attention_heads, model.num_key_value_heads) in whole groups: 6 or 12" },
		{ DEGREES("vocab_size = 3\n", "4", "tensor_parallel_degree = 4\n"), "tensor_parallel_degree = 4 is more than there are ids (model.vocab_size = 3): at most 2" },
		{ DEGREES("intermediate_size = 7\n", "8", "tensor_parallel_degree = 8\n"), "is more than there are hidden units (model.intermediate_size = 7): at most 4" },
		{ DEGREES("", "33", "context_parallel_degree = 33\n"), "parallelism.context_parallel_degree = 33 cuts rows of training.context_length = 64 tokens into less than two pieces a rank: at most 32, or "
									 "rows of 66 tokens" },
		{ DEGREES("", "2", "pipeline_parallel_degree = 2\n"), "parallelism.pipeline_parallel_degree = 2 is out of range: 1 only; this version has no pipeline stages" },
		{ DEGREES("", "2", "expert_parallel_degree = 2\n"), "parallelism.expert_parallel_degree = 2 is out of range: 1 only; this version has no pipeline stages and no experts" },
		{ DEGREES("", "2", "pipeline_parallel_schedule = \"1F1B\"\n"), "there is no parallelism.pipeline_parallel_schedule here: this version has no pipeline stages" },
	};
	static const struct { const char *text, *warning; } idle[] = {
		{ DEGREES("", "8", ""), "a step has 4 rows for 8 data ranks: 4 of them have none and wait for the others (training.tokens_per_step, training.context_length" },
		{ DEGREES("", "3", ""), "the 4 rows of a step are dealt to 3 data ranks, at most 2 each" },
		{ DEGREES("", "2", ""), NULL },
	};
	tt_config *cfg;
	tt_run_options o;
	for (int i = 0; i < TT_COUNT(bad); i++)
		TT_CHECK_FAILS(t, options(t, bad[i].text, 0, NULL, &cfg, &o), TT_ERR_USAGE, bad[i].error);
	for (int i = 0; i < 2; i++)
		if (TT_CHECK_OK(t, options(t, idle[i].text, 0, NULL, &cfg, &o)))
			TT_CHECK_MSG(t, o.warnings.n == 1 && strstr(o.warnings.items[0], idle[i].warning), "%d warnings: %s", o.warnings.n, o.warnings.n ? o.warnings.items[0] : "");
	/* A row of one token is whole: only context parallel cuts it. */
	const char *one[] = { "--training.context_length=1", "--parallelism.context_parallel_degree=2" };
	TT_CHECK_OK(t, options(t, idle[2].text, 1, one, &cfg, &o));
	TT_CHECK_FAILS(t, options(t, idle[2].text, 2, one, &cfg, &o), TT_ERR_USAGE, "into less than two pieces a rank: at most 1, or rows of 4 tokens");
	const char *flag = "--training.tokens_per_microbatch=256";
	if (TT_CHECK_OK(t, options(t, idle[2].text, 1, &flag, &cfg, &o)))
		TT_CHECK(t, o.warnings.n == 1 && strstr(o.warnings.items[0], "training.tokens_per_microbatch = 256 plans memory for more than the 128 tokens that a data rank has of a step"));
	/* What is left over goes to dp_shard; a microbatch is by default what a rank has of a step. */
	if (TT_CHECK_OK(t, options(t, DEGREES("num_key_value_heads = 4\n", "32", "tensor_parallel_degree = 8\ncontext_parallel_degree = 2\n"), 0, NULL, &cfg, &o))) {
		tt_plan p;
		tt_run_plan(&o, &p);
		TT_CHECK(t, o.mesh.size[TT_DP_SHARD] == 2 && o.mesh.sp && o.tokens_per_microbatch == 128);
		TT_CHECK(t, p.mesh.ax[TT_PLAN_TP].size == 4 && p.mesh.ax[TT_PLAN_TP_REP].size == 2);
	}
}

/* ---- the table as text -------------------------------------------------------------------------------------------------------------------------- */

static void case_printed(tt_test *t)
{
	const char *text = BASE "context_parallel_degree = 1\n" ROW "place = \"store\"\nvalue = \"*.down_proj.weight\"\naxis = \"dp_shard\"\ntype = \"S(1)\"\n" ROW
			   "place = \"make\"\nvalue = \"*.self_attn.q\"\naxis = \"cp\"\ntype = \"R\"\n";
	static const char *const lines[] = {
		"mesh: dp_shard 2, tp 2, sequence parallel\n",
		" own  store \"*.down_proj.weight\" on dp_shard as S(1) (c.toml:13:15)\n        2: *.mlp.down_proj.weight\n",
		" own  make \"*.self_attn.q\" on cp as R (c.toml:18:15)\n        no effect: cp has one rank\n",
		" on cp as S(1) when head_swap\n        no effect: context parallelism is by gather (parallelism.context_parallel_method)\n",
		" on tp as I when !sp\n        no effect: sequence parallelism is on (parallelism.enable_sequence_parallel)\n",
		"param \"*\" on fsdp as S(0)\n",
		"\nparameters, states and inputs, as they are stored; S(d)/1: dealt in lines, not in whole heads (heads 512/64)\n",
		"  *.self_attn.k_proj.weight x2                 dp_shard=S(0)/1 tp=S(0)                       kv_heads 256/16 x D 256\n",
		"  *.self_attn.o_proj.weight x2                 dp_shard=S(0) tp=S(1)                         D 256 x heads 256/16\n",
		"  *.mlp.down_proj.weight x2                    dp_shard=S(1) tp=S(1) ",
		"  *.mlp.gate_proj.weight x2                    dp_shard=S(0) tp=S(0) ",
		"D 256 x ffn 768\n",
		"  model.norm.weight                            dp_shard=S(0) tp=R ",
		"\nvalues, as they are made\n",
		"  model.layers.N.y x2                          dp_shard=S(0) tp=S(0) ",
		"tokens x D 256\n",
		"\nconversions\n",
		"  *.mlp.down_proj.acc x2                       tp           P to S(0)    reduce-scatter; backward all-gather, for *.mlp.down_proj.y\n",
		"  *.input_layernorm.y x2                       tp           S(0) to R    all-gather; backward reduce-scatter, for *.self_attn.q_proj.y, *.self_attn.k_proj.y, *.self_attn.v_proj.y\n",
		"  *.self_attn.q_proj.weight x2                 dp_shard     S(0)/1 to R  all-gather; backward reduce-scatter, for *.self_attn.q_proj.y\n",
	};
	tt_config *cfg;
	tt_run_options o;
	tt_buf b = { 0 };
	if (TT_CHECK_OK(t, options(t, text, 0, NULL, &cfg, &o)) && TT_CHECK_OK(t, tt_run_layouts_print(t->arena, &o, &b))) {
		tt_plan plan;
		tt_run_plan(&o, &plan);
		for (int i = plan.own.n; i < tt_plan_rows(&plan); i++) { /* with the numbers of errors */
			tt_buf line = { 0 };
			tt_layout_row_line(tt_plan_row(&plan, i), &line);
			const char *row = tt_arena_printf(t->arena, "%4d  %s\n", (int)strtol(tt_plan_where(t->arena, &plan, i) + strlen("row "), NULL, 10), line.s);
			TT_CHECK_MSG(t, strstr(b.s, row), "no \"%s\" in\n%s", row, b.s);
			tt_buf_fini(&line);
		}
		for (int i = 0; i < TT_COUNT(lines); i++)
			TT_CHECK_MSG(t, strstr(b.s, lines[i]), "no \"%s\" in\n%s", lines[i], b.s);
	}
	tt_buf_fini(&b);
	/* one rank: the rows alone */
	if (TT_CHECK_OK(t, options(t, "[data]\nsource = \"synthetic\"\n", 0, NULL, &cfg, &o)) && TT_CHECK_OK(t, tt_run_layouts_print(t->arena, &o, &b)))
		TT_CHECK(t, strstr(b.s, "0 of the config") && strstr(b.s, "mesh: one rank") && !strstr(b.s, "conversions"));
	tt_buf_fini(&b);
}

/* Rows that the page quotes by number are those of the model's table. */
static void case_documented(tt_test *t)
{
	char *text;
	size_t n;
	int rows = 0;
	while (tt_llama_layouts[rows].value)
		rows++;
	if (!TT_CHECK_OK(t, tt_file_read(t->arena, "docs/layout-types.md", &text, &n)))
		return;
	static const char OF[] = " of the model's table: ";
	int quoted = 0;
	for (const char *p = text; (p = strstr(p, OF)); p += strlen(OF)) {
		const char *digits = p, *words = p + strlen(OF);
		while (digits > text && digits[-1] >= '0' && digits[-1] <= '9')
			digits--;
		int row = (int)strtol(digits, NULL, 10);
		tt_buf line = { 0 };
		if (TT_CHECK_MSG(t, row >= 1 && row <= rows, "row %d of %d", row, rows))
			tt_layout_row_line(&tt_llama_layouts[row - 1], &line);
		const char *quote = tt_arena_strndup(t->arena, words, strcspn(words, "\n"));
		TT_CHECK_MSG(t, line.s && !strcmp(line.s, quote), "docs/layout-types.md: row %d is %s, not %s", row, line.s ? line.s : "none", quote);
		tt_buf_fini(&line);
		quoted++;
	}
	TT_CHECK(t, quoted > 0);
}

const tt_case tt_suite_layouts[] = {
	{ "mistakes", case_mistakes, TT_TIER_QUICK },
	{ "rows", case_rows, TT_TIER_QUICK },
	{ "printed", case_printed, TT_TIER_QUICK },
	{ "documented", case_documented, TT_TIER_QUICK },
	{ "degrees", case_degrees, TT_TIER_QUICK },
	{ "own_rows_run", case_own_rows_run, TT_TIER_QUICK },
	{ 0 },
};
