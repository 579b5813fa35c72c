/* mesh.c: the mesh of a run and its table of layouts: from the config's degrees and rows, and why some cannot be. Everything here is refused before
 * a rank has started or a tensor has memory. */
#include "ops/ops.h"
#include "train/internal.h"

/* ---- degrees ---------------------------------------------------------------------------------------------------------------------------- */

/* Two legal degrees around `is`, and the largest: "2 or 4, at most 16". */
static const char *nearest_degrees(tt_arena *a, int64_t is, int64_t most, bool (*legal)(const void *ctx, int64_t k), const void *ctx)
{
	int64_t below = 0, above = 0, last = 0;
	for (int64_t k = 1; k <= most; k++) {
		if (!legal(ctx, k))
			continue;
		if (k < is)
			below = k;
		else if (!above)
			above = k;
		last = k;
	}
	if (!above)
		return tt_arena_printf(a, "at most %lld", (long long)last);
	if (above == last)
		return tt_arena_printf(a, below ? "%lld or %lld" : "%lld", (long long)(below ? below : above), (long long)above);
	return tt_arena_printf(a, below ? "%lld or %lld, at most %lld" : "%lld, at most %lld", (long long)(below ? below : above), (long long)(below ? above : last), (long long)last);
}

static bool deals_heads(const void *ctx, int64_t k)
{
	const tt_llama_config *m = ctx;
	int64_t heads = m->num_attention_heads, kv = m->num_key_value_heads;
	return (kv % k == 0 || (k % kv == 0 && heads % k == 0)) && m->vocab_size >= k && m->intermediate_size >= k;
}

/* Whole heads, in whole groups of a kv head; or ranks that share a kv head have equally many of its heads. */
static const char *illegal_tp(tt_arena *a, const tt_llama_config *m, int64_t tp)
{
	int64_t heads = m->num_attention_heads, kv = m->num_key_value_heads, vocab = m->vocab_size, ffn = m->intermediate_size;
	const char *near = nearest_degrees(a, tp, TT_MIN(heads, (int64_t)4096), deals_heads, m);
	if (tp > heads)
		return tt_arena_printf(a, "parallelism.tensor_parallel_degree = %lld is more than the %lld heads (model.num_attention_heads): %s", (long long)tp, (long long)heads, near);
	if (kv % tp && tp % kv)
		return tt_arena_printf(a, "parallelism.tensor_parallel_degree = %lld does not deal %lld kv heads (model.num_key_value_heads) in whole ones, nor each of them to equally "
				       "many ranks: %s", (long long)tp, (long long)kv, near);
	if (heads % tp)
		return tt_arena_printf(a, "parallelism.tensor_parallel_degree = %lld does not deal %lld heads with %lld kv heads (model.num_attention_heads, "
				       "model.num_key_value_heads) in whole groups: %s", (long long)tp, (long long)heads, (long long)kv, near);
	if (vocab < tp || ffn < tp)
		return tt_arena_printf(a, "parallelism.tensor_parallel_degree = %lld is more than there are %s (model.%s = %lld): %s", (long long)tp,
				       vocab < tp ? "ids" : "hidden units", vocab < tp ? "vocab_size" : "intermediate_size", (long long)(vocab < tp ? vocab : ffn), near);
	return NULL;
}

const char *tt_mesh_illegal(tt_arena *a, const tt_llama_config *m, int64_t context, const int *size)
{
	const char *tp = size[TT_TP] > 1 ? illegal_tp(a, m, size[TT_TP]) : NULL;
	if (tp)
		return tp;
	if (size[TT_CP] > 1 && context < 2 * (int64_t)size[TT_CP]) /* a rank has one piece from the head of a row and one from its tail */
		return tt_arena_printf(a, "parallelism.context_parallel_degree = %d cuts rows of training.context_length = %lld tokens into less than two pieces a rank: at most %lld, or rows of "
				       "%d tokens", size[TT_CP], (long long)context, (long long)TT_MAX(context / 2, (int64_t)1), 2 * size[TT_CP]);
	return NULL;
}

typedef struct swap_ctx { int64_t kv, tp; } swap_ctx;
static bool swaps_heads(const void *ctx, int64_t k)
{
	const swap_ctx *c = ctx;
	return c->kv % (k * c->tp) == 0;
}

const char *tt_run_mesh_illegal(tt_arena *a, const tt_llama_config *m, int64_t context, const tt_run_mesh *mesh)
{
	const char *illegal = tt_mesh_illegal(a, m, context, mesh->size);
	swap_ctx c = { m->num_key_value_heads, TT_MAX(mesh->size[TT_TP], 1) };
	int64_t cp = mesh->size[TT_CP];
	if (illegal || cp <= 1 || mesh->cp_method != TT_CP_HEAD_SWAP || swaps_heads(&c, cp))
		return illegal;
	return tt_arena_printf(a, "parallelism.context_parallel_method = \"head_swap\" deals %lld heads with %lld kv heads (model.num_attention_heads, model.num_key_value_heads) to "
				  "context_parallel_degree %lld x tensor_parallel_degree %lld = %lld ranks, which do not divide the kv heads: context_parallel_degree %s; "
				  "\"gather\" and \"ring\" have no such limit", (long long)m->num_attention_heads, (long long)c.kv, (long long)cp, (long long)c.tp, (long long)(cp * c.tp),
			       nearest_degrees(a, cp, TT_MAX(c.kv / c.tp, (int64_t)1), swaps_heads, &c));
}

/* The degrees make as many ranks as there are. */
static tt_status degrees(tt_arena *a, const tt_config *cfg, int *size)
{
	static const char RANKS[] = "hardware.ranks", SHARD[] = "parallelism.data_parallel_shard_degree";
	static const char *const keys[] = { [TT_DP_REPLICATE] = "parallelism.data_parallel_replicate_degree", [TT_DP_SHARD] = SHARD,
					    [TT_CP] = "parallelism.context_parallel_degree", [TT_TP] = "parallelism.tensor_parallel_degree" };
	int64_t n[TT_RUN_AXES] = { [TT_DP_REPLICATE] = cfg->parallelism.data_parallel_replicate_degree, [TT_DP_SHARD] = cfg->parallelism.data_parallel_shard_degree,
				   [TT_CP] = cfg->parallelism.context_parallel_degree, [TT_TP] = cfg->parallelism.tensor_parallel_degree };
	int64_t ranks = cfg->hardware.ranks, others = n[TT_DP_REPLICATE] * n[TT_CP] * n[TT_TP];
	bool left = n[TT_DP_SHARD] < 0; /* takes what is left */
	tt_buf b = { 0 };
	for (int i = 0; i < TT_RUN_AXES; i++)
		if (n[i] > 1)
			tt_buf_printf(&b, "%s%s %lld", b.n ? " x " : "", keys[i] + sizeof "parallelism." - 1, (long long)n[i]);
	const char *product = tt_arena_strdup(a, b.s ? b.s : "all degrees 1"), *first = keys[TT_TP];
	tt_buf_fini(&b);
	for (int i = 0; i < TT_RUN_AXES; i++) /* the message stands at a key that was set */
		first = tt_config_source(cfg, keys[i]) ? keys[i] : first;
	const char *at = tt_config_at(a, cfg, RANKS, first);
	if (left) {
		if (ranks % others) {
			int64_t least = ranks / others * others, more = least + others;
			TT_FAIL(TT_ERR_USAGE, "%s%s = %lld is no multiple of %lld, the product of %s, so %s = -1 has no whole number left: --ranks=%s", at, RANKS, (long long)ranks,
				(long long)others, product, SHARD, tt_arena_printf(a, least ? "%lld or %lld" : "%lld", (long long)(least ? least : more), (long long)more));
		}
		n[TT_DP_SHARD] = ranks / others;
	} else if (others * n[TT_DP_SHARD] != ranks) {
		bool fits = ranks % others == 0;
		TT_FAIL(TT_ERR_USAGE, "%sa mesh of %s has %lld ranks, %s is %lld: --ranks=%lld%s", at, product, (long long)(others * n[TT_DP_SHARD]), RANKS, (long long)ranks,
			(long long)(others * n[TT_DP_SHARD]), fits ? tt_arena_printf(a, ", or %s = %lld (-1 takes what is left)", SHARD, (long long)(ranks / others)) : "");
	}
	for (int i = 0; i < TT_RUN_AXES; i++)
		size[i] = (int)n[i];
	return TT_OK;
}

/* ---- the plan ----------------------------------------------------------------------------------------------------------------------------- */

void tt_run_plan(const tt_run_options *o, tt_plan *out)
{
	int size[TT_PLAN_AXES];
	for (int i = 0; i < TT_RUN_AXES; i++)
		size[i] = TT_MAX(o->mesh.size[i], 1);
	int tp = size[TT_TP];
	size[TT_PLAN_TP] = TT_MIN(tp, (int)o->model.num_key_value_heads);
	size[TT_PLAN_TP_REP] = tp / size[TT_PLAN_TP];
	*out = (tt_plan){ .mesh.naxes = TT_PLAN_AXES, .sp = o->mesh.sp, .cp_method = o->mesh.cp_method, .exact = o->exec.numerics == TT_EXACT, .own = o->layouts,
			  .rows = tt_llama_layouts };
	for (int i = 0; i < TT_PLAN_AXES; i++)
		out->mesh.ax[i] = (tt_axis){ tt_plan_axes[i], size[i], i == TT_PLAN_DP_REPLICATE || i == TT_PLAN_DP_SHARD };
}

static tt_layouts own_rows(tt_arena *a, const tt_config *cfg)
{
	static const tt_place places[] = { [TT_CFG_PLACE_STORE] = TT_PLACE_STORE, [TT_CFG_PLACE_PARAM] = TT_PLACE_PARAM, [TT_CFG_PLACE_MAKE] = TT_PLACE_MAKE,
					   [TT_CFG_PLACE_USE] = TT_PLACE_USE };
	int n = cfg->parallelism.layouts.n;
	tt_layout_row *rows = TT_NEWN(a, tt_layout_row, n + 1);
	const char **where = TT_NEWN(a, const char *, n + 1);
	for (int i = 0; i < n; i++) {
		const tt_layout_entry *e = &cfg->parallelism.layouts.items[i];
		tt_type type = TT_R;
		int dim;
		TT_ASSERT(tt_layout_type_parse(tt_cfg_layout_type_word(e->type), &type, &dim), "layout type %d", (int)e->type);
		rows[i] = (tt_layout_row){ places[e->place], e->value, e->by[0] ? e->by : NULL, tt_cfg_axis_word(e->axis), type, dim,
					   e->when ? tt_cfg_when_word(e->when) : NULL };
		where[i] = e->where;
	}
	return (tt_layouts){ rows, where, n };
}

/* Own rows against the names of the model's graphs; then what comes of them is typed, forward and backward: here nothing has started yet. */
static tt_status check_rows(tt_arena *a, const tt_run_options *o, tt_strings *warnings)
{
	tt_plan plan;
	tt_run_plan(o, &plan);
	tt_model_options mo = { .compute = o->compute, .t_max = 2 * o->data.context_length, .seqs_max = 2, .loss_chunks = 2, .context_length = o->data.context_length };
	tt_builder *train, *eval;
	TT_TRY(tt_llama_build(a, &o->model, &mo, &train));
	mo.eval = true;
	TT_TRY(tt_llama_build(a, &o->model, &mo, &eval));
	const char *const *items;
	const tt_graph *graphs[] = { train->g, eval->g };
	TT_TRY(tt_plan_check(a, &plan, graphs, TT_COUNT(graphs), &items, &warnings->n));
	warnings->items = items;
	tt_graph *g;
	TT_TRY(tt_pass_partition(train->g, &plan, a, &g));
	TT_TRY(tt_autodiff(g, &tt_autodiff_builders, a, &g));
	TT_TRY(tt_optim_build(g, &o->optim, a, &g));
	return TT_OK;
}

static void add_warnings(tt_arena *a, tt_strings *to, const char *const *more, int n)
{
	const char **items = TT_NEWN(a, const char *, to->n + n);
	for (int i = 0; i < to->n + n; i++)
		items[i] = i < to->n ? to->items[i] : more[i - to->n];
	*to = (tt_strings){ items, to->n + n };
}

tt_status tt_mesh_options(tt_arena *a, const tt_config *cfg, tt_run_options *o)
{
	static const tt_cp_method methods[] = { [TT_CFG_CP_GATHER] = TT_CP_GATHER, [TT_CFG_CP_HEAD_SWAP] = TT_CP_HEAD_SWAP, [TT_CFG_CP_RING] = TT_CP_RING };
	static const tt_balance balances[] = { [TT_CFG_CP_HEADTAIL] = TT_BALANCE_HEADTAIL, [TT_CFG_CP_COST] = TT_BALANCE_COST, [TT_CFG_CP_NONE] = TT_BALANCE_NONE };
	tt_run_mesh mesh = { .size = { 1, 1, (int)cfg->parallelism.context_parallel_degree, (int)cfg->parallelism.tensor_parallel_degree },
			     .cp_method = methods[cfg->parallelism.context_parallel_method], .cp_balance = balances[cfg->parallelism.context_parallel_load_balancer] };
	/* The model's limits come first: ranks that would do for the degrees help nobody if the model does not take them. */
	const char *why = tt_run_mesh_illegal(a, &o->model, cfg->training.context_length, &mesh);
	if (why) {
		const char *key = !strncmp(why, "parallelism.context", 19) ? "parallelism.context_parallel_degree" : "parallelism.tensor_parallel_degree";
		TT_FAIL(TT_ERR_USAGE, "%s%s", tt_config_at(a, cfg, key, NULL), why);
	}
	TT_TRY(degrees(a, cfg, mesh.size));
	mesh.sp = cfg->parallelism.enable_sequence_parallel && mesh.size[TT_TP] > 1;
	const int *size = mesh.size;
	o->mesh = mesh;
	if (!cfg->training.tokens_per_microbatch) { /* a rank's whole share */
		int64_t rows = cfg->training.tokens_per_step / cfg->training.context_length;
		o->tokens_per_microbatch = tt_ceil_div(rows, (int64_t)size[TT_DP_REPLICATE] * size[TT_DP_SHARD]) * cfg->training.context_length;
	}
	bool values = false;
	for (int i = 0; i < cfg->debug.record_hashes.n; i++)
		values |= !strcmp(cfg->debug.record_hashes.items[i], tt_cfg_record_word(TT_CFG_RECORD_VALUES));
	if (cfg->hardware.ranks > 1 && values)
		TT_FAIL(TT_ERR_USAGE, "%sdebug.record_hashes: \"values\" are of one rank's programs, hardware.ranks = %lld: \"state\" is recorded of meshes (titan verify compares "
				      "their values)", tt_config_at(a, cfg, "hardware.ranks", "debug.record_hashes"), (long long)cfg->hardware.ranks);
	o->layouts = own_rows(a, cfg);
	if (o->layouts.n) {
		tt_strings w;
		TT_TRY(check_rows(a, o, &w));
		if (cfg->hardware.ranks > 1) /* else the key has no effect at all, and that was said */
			add_warnings(a, &o->warnings, w.items, w.n);
	}
	return TT_OK;
}

tt_status tt_run_layouts_print(tt_arena *a, const tt_run_options *o, tt_buf *b)
{
	tt_plan plan;
	tt_builder *model;
	tt_graph *typed;
	tt_model_options m = { .compute = o->compute, .t_max = o->tokens_per_microbatch, .seqs_max = o->tokens_per_microbatch, .loss_chunks = o->loss_chunks,
			       .context_length = o->data.context_length };
	tt_run_plan(o, &plan);
	TT_TRY(tt_llama_build(a, &o->model, &m, &model));
	TT_TRY(tt_pass_partition(model->g, &plan, a, &typed));
	tt_plan_layouts_print(&plan, model->g, typed, b);
	return TT_OK;
}
