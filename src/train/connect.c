/* connect.c: from config keys to run options. */
#include <stdlib.h>

#include "base/machine.h"
#include "pass/pass.h"
#include "train/internal.h"

/* ---- the model: a flavor or a config.json, and keys over it ---------------------------------------------------------------------------- */

/* Numbers of [model] that say "from the flavor" by a value that is not positive. */
#define MODEL_NUMBERS(X)                                                                                               \
	X(vocab_size) X(hidden_size) X(num_hidden_layers) X(num_attention_heads) X(num_key_value_heads) X(head_dim)     \
	X(intermediate_size) X(max_position_embeddings) X(rms_norm_eps) X(rope_theta)
#define MODEL_FLAGS(X) X(tie_word_embeddings) X(attention_bias) X(mlp_bias)
/* Fields of tt_rope_scaling that are keys, with the kinds that read them. */
#define ON(kind) (1u << TT_ROPE_##kind)
#define ROPE_NUMBERS(X)                                                                                                \
	X(factor, ON(LINEAR) | ON(DYNAMIC) | ON(LLAMA3) | ON(YARN))                                                    \
	X(original_max_position_embeddings, ON(LLAMA3) | ON(YARN))                                                     \
	X(low_freq_factor, ON(LLAMA3)) X(high_freq_factor, ON(LLAMA3))                                                 \
	X(attention_factor, ON(YARN)) X(beta_fast, ON(YARN)) X(beta_slow, ON(YARN))

static const tt_cfg_rope_scaling rope_words[] = {
	[TT_ROPE_NONE] = TT_CFG_ROPE_NONE, [TT_ROPE_LINEAR] = TT_CFG_ROPE_LINEAR, [TT_ROPE_DYNAMIC] = TT_CFG_ROPE_DYNAMIC,
	[TT_ROPE_LLAMA3] = TT_CFG_ROPE_LLAMA3, [TT_ROPE_YARN] = TT_CFG_ROPE_YARN,
};

/* What stands under the keys. A rope_scaling that the config chooses takes along what it reads of the other's numbers; naming the kind
 * that is there changes nothing. */
static tt_status model_base(tt_arena *a, const tt_config *cfg, tt_llama_config *m)
{
	bool file = cfg->model.hf_config[0];
	const char *at = tt_config_at(a, cfg, file ? "model.hf_config" : "model.flavor", NULL);
	const tt_flavor *f = NULL;
	if (!file && strcmp(cfg->model.name, "llama3"))
		TT_FAIL(TT_ERR_USAGE, "%smodel.name: no model is called \"%s\" (there is: llama3)", tt_config_at(a, cfg, "model.name", NULL), cfg->model.name);
	tt_status s = file ? tt_llama_read(a, cfg->model.hf_config, m) : tt_flavor_find(cfg->model.flavor, &f);
	if (s != TT_OK)
		TT_FAIL(s, "%s%s", at, tt_arena_strdup(a, tt_error_text()));
	if (f)
		*m = f->config;
	tt_rope_scaling r = { 0 };
	while (rope_words[r.kind] != cfg->model.rope_scaling && r.kind < TT_ROPE_YARN)
		r.kind++;
	if (cfg->model.rope_scaling == TT_CFG_ROPE_AUTO || r.kind == m->rope.kind)
		return TT_OK;
	r.truncate = r.kind == TT_ROPE_YARN;
#define TAKE(field, kinds)                                                                                             \
	if ((kinds) >> r.kind & 1u)                                                                                    \
		r.field = m->rope.field;
	ROPE_NUMBERS(TAKE)
#undef TAKE
	m->rope = r;
	return TT_OK;
}

/* Keys over it. A width changed alone takes the head's width with it. */
static tt_status model_over(tt_arena *a, const tt_config *cfg, tt_llama_config *m)
{
	bool head_follows = m->head_dim * m->num_attention_heads == m->hidden_size && !cfg->model.head_dim;
#define OVER(key)                                                                                                      \
	if (cfg->model.key > 0)                                                                                        \
		m->key = cfg->model.key;
	MODEL_NUMBERS(OVER)
#undef OVER
	if (head_follows && m->num_attention_heads > 0)
		m->head_dim = m->hidden_size / m->num_attention_heads;
	if (cfg->model.sliding_window >= 0)
		m->sliding_window = cfg->model.sliding_window;
#define OVER(key)                                                                                                      \
	if (cfg->model.key != TT_TRI_AUTO)                                                                             \
		m->key = cfg->model.key == TT_TRI_TRUE;
	MODEL_FLAGS(OVER)
#undef OVER
#define OVER(field, kinds)                                                                                             \
	if (cfg->model.rope_##field > 0 && ((kinds) >> m->rope.kind & 1u))                                             \
		m->rope.field = cfg->model.rope_##field;
	ROPE_NUMBERS(OVER)
#undef OVER
	const char *flags = tt_config_flags(a, cfg, "model");
	return tt_llama_check(m, flags[0] ? tt_arena_printf(a, "%s: model", flags) : "model");
}

/* Puts `m` where the config leaves a value to the flavor. */
static void model_fill(const tt_llama_config *m, const tt_config *cfg, tt_config *out)
{
#define FILL(key)                                                                                                      \
	if (cfg->model.key <= 0)                                                                                       \
		out->model.key = m->key;
	MODEL_NUMBERS(FILL)
#undef FILL
	if (cfg->model.sliding_window < 0)
		out->model.sliding_window = m->sliding_window;
#define FILL(key)                                                                                                      \
	if (cfg->model.key == TT_TRI_AUTO)                                                                             \
		out->model.key = m->key ? TT_TRI_TRUE : TT_TRI_FALSE;
	MODEL_FLAGS(FILL)
#undef FILL
	if (cfg->model.rope_scaling == TT_CFG_ROPE_AUTO)
		out->model.rope_scaling = rope_words[m->rope.kind];
#define FILL(field, kinds)                                                                                             \
	if (cfg->model.rope_##field <= 0)                                                                              \
		out->model.rope_##field = m->rope.field;
	ROPE_NUMBERS(FILL)
#undef FILL
}

/* What has no effect, or a bad one, for reasons that only the whole model or the machine shows. */
static tt_strings model_warnings(tt_arena *a, const tt_config *cfg, const tt_llama_config *m)
{
	enum { MOST = 16 };
	const char **items = TT_NEWN(a, const char *, MOST);
	int n = 0;
#define UNREAD(field, kinds)                                                                                           \
	if (cfg->model.rope_##field > 0 && !((kinds) >> m->rope.kind & 1u))                                            \
		items[n++] = tt_arena_printf(a, "%smodel.rope_" #field " has no effect: model.rope_scaling is %s",       \
					     tt_config_at(a, cfg, "model.rope_" #field, NULL), tt_cfg_rope_scaling_word(rope_words[m->rope.kind]));
	ROPE_NUMBERS(UNREAD)
#undef UNREAD
	if (cfg->training.context_length > m->max_position_embeddings)
		items[n++] = tt_arena_printf(a, "%straining.context_length = %lld is more than the model's max_position_embeddings, %lld (model.max_position_embeddings, "
					     "model.rope_scaling)", tt_config_at(a, cfg, "training.context_length", "model.max_position_embeddings"),
					     (long long)cfg->training.context_length, (long long)m->max_position_embeddings);
	/* Rows of a step are dealt to the ranks that have data of their own. */
	int64_t data = cfg->hardware.ranks / (cfg->parallelism.context_parallel_degree * cfg->parallelism.tensor_parallel_degree);
	int64_t rows = cfg->training.tokens_per_step / cfg->training.context_length;
	const char *at_rows = tt_config_at(a, cfg, "training.tokens_per_step", "hardware.ranks");
	if (data > 1 && rows < data)
		items[n++] = tt_arena_printf(a, "%sa step has %lld row%s for %lld data ranks: %lld of them have none and wait for the others (training.tokens_per_step, "
					     "training.context_length; or context and tensor parallel degrees above 1, which share rows)", at_rows, (long long)rows, rows == 1 ? "" : "s", (long long)data,
					     (long long)(data - rows));
	else if (data > 1 && rows % data)
		items[n++] = tt_arena_printf(a, "%sthe %lld rows of a step are dealt to %lld data ranks, at most %lld each: some wait for others (training.tokens_per_step)",
					     at_rows, (long long)rows, (long long)data, (long long)tt_ceil_div(rows, data));
	int64_t share = tt_ceil_div(rows, TT_MAX(data, (int64_t)1)) * cfg->training.context_length;
	if (data > 1 && cfg->training.tokens_per_microbatch > share)
		items[n++] = tt_arena_printf(a, "%straining.tokens_per_microbatch = %lld plans memory for more than the %lld tokens that a data rank has of a step",
					     tt_config_at(a, cfg, "training.tokens_per_microbatch", NULL), (long long)cfg->training.tokens_per_microbatch, (long long)share);
	int usable = cfg->hardware.threads ? tt_machine_threads() : 0;
	if (cfg->hardware.threads > usable)
		items[n++] = tt_arena_printf(a, "%shardware.threads = %lld is more than the %d CPU%s this process may use: threads will wait for each other",
					     tt_config_at(a, cfg, "hardware.threads", NULL), (long long)cfg->hardware.threads, usable, usable == 1 ? "" : "s");
	TT_ASSERT(n <= MOST, "%d warnings", n);
	return (tt_strings){ items, n };
}

/* The model of the run, and the config as tt_config_resolve has it. */
static tt_status model_config(tt_arena *a, const tt_config *cfg, tt_llama_config *m, tt_config *resolved)
{
	tt_llama_config base;
	TT_TRY(model_base(a, cfg, &base));
	*m = base;
	TT_TRY(model_over(a, cfg, m));
	tt_llama_config whole = *m;
	whole.rope = tt_llama_rope(m);
	*resolved = *cfg;
	model_fill(&base, cfg, resolved);
	tt_config_note(a, resolved, cfg, cfg->model.hf_config[0] ? "from model.hf_config" : tt_arena_printf(a, "from flavor %s", cfg->model.flavor));
	tt_config of_base = *resolved;
	model_fill(&whole, cfg, resolved);
	tt_config_note(a, resolved, &of_base, "follows from other keys");
	resolved->warnings = model_warnings(a, cfg, m);
	return TT_OK;
}

tt_status tt_model_from_config(tt_arena *a, const tt_config *cfg, tt_llama_config *out)
{
	tt_config resolved;
	return model_config(a, cfg, out, &resolved);
}

tt_status tt_config_resolve(tt_arena *a, const tt_config *cfg, tt_config *out)
{
	tt_llama_config m;
	tt_config resolved;
	TT_TRY(model_config(a, cfg, &m, &resolved));
	*out = resolved;
	return TT_OK;
}

/* ---- the rest -------------------------------------------------------------------------------------------------------------------------- */

static tt_status data_options(tt_arena *a, const tt_config *cfg, const tt_llama_config *m, tt_data_options *d)
{
	*d = (tt_data_options){
		.source = cfg->data.source == TT_CFG_SOURCE_TEXT ? "text" : "synthetic",
		.context_length = cfg->training.context_length, .tokens_per_step = cfg->training.tokens_per_step, .vocab_size = (int)m->vocab_size,
		.seed = (uint64_t)(cfg->data.seed >= 0 ? cfg->data.seed : cfg->debug.seed),
		.sequence = cfg->data.sequence == TT_CFG_SEQUENCE_DOCUMENT ? TT_SEQUENCE_DOCUMENT : TT_SEQUENCE_ROW,
		.shuffle = cfg->data.shuffle, .repeat = cfg->data.repeat,
		.shuffle_window = cfg->data.shuffle && cfg->data.source == TT_CFG_SOURCE_TEXT ? cfg->data.shuffle_window : 0,
		.paths = cfg->data.paths.items, .npaths = cfg->data.paths.n, .exclude = cfg->data.exclude.items, .nexclude = cfg->data.exclude.n,
		.valid_paths = cfg->validation.paths.items, .nvalid_paths = cfg->validation.paths.n,
	};
	if (cfg->validation.fraction > 0) {
		d->valid_parts = 1000;
		d->valid_part = TT_MAX((int64_t)1, (int64_t)(cfg->validation.fraction * 1000 + 0.5));
	}
	if (cfg->data.source == TT_CFG_SOURCE_TEXT) {
		if (!d->npaths)
			TT_FAIL(TT_ERR_USAGE, "data.paths is empty: name text files, folders or patterns to train on (data.source = \"synthetic\" needs none)");
		TT_TRY(tt_tok_open(a, cfg->data.tokenizer, NULL, &d->tok));
		if (d->tok->vocab_size > m->vocab_size)
			TT_FAIL(TT_ERR_USAGE, "%smodel.vocab_size is %lld, tokenizer \"%s\" has %d ids (set model.vocab_size to at least that)",
				tt_config_at(a, cfg, "model.vocab_size", "data.tokenizer"), (long long)m->vocab_size, cfg->data.tokenizer, d->tok->vocab_size);
	}
	return TT_OK;
}

static tt_status recompute_options(tt_arena *a, const tt_config *cfg, int64_t layers, tt_recompute *out)
{
	static const char OPTION[] = "activation_checkpoint.selective_ac_option";
	const char *option = cfg->activation_checkpoint.selective_ac_option;
	tt_recompute r = { .budget = cfg->activation_checkpoint.memory_budget, .budget_bytes = cfg->activation_checkpoint.memory_budget_mib * TT_MIB };
	if (cfg->activation_checkpoint.mode == TT_AC_SELECTIVE && strcmp(option, "op")) {
		char *end;
		r.every = strtoll(option, &end, 10);
		if (*end || r.every < 1 || r.every > layers)
			TT_FAIL(TT_ERR_USAGE, "%s%s = \"%s\" is neither \"op\" nor a number of layers, \"1\" to \"%lld\"", tt_config_at(a, cfg, OPTION, NULL),
				OPTION, option, (long long)layers);
	}
	switch (cfg->activation_checkpoint.mode) {
	case TT_AC_NONE:
		r.mode = TT_RECOMPUTE_NONE;
		break;
	case TT_AC_SELECTIVE:
		r.mode = TT_RECOMPUTE_SELECTIVE;
		break;
	case TT_AC_FULL:
		r.mode = TT_RECOMPUTE_FULL;
		break;
	case TT_AC_BUDGET:
		r.mode = TT_RECOMPUTE_BUDGET;
		break;
	}
	*out = r;
	return TT_OK;
}

static tt_status record_options(const tt_config *cfg, const char *settings, tt_hashes_options *out)
{
	tt_hashes_options r = { 0 };
	TT_TRY(tt_hashes_parse_steps(cfg->debug.record_steps, "debug.record_steps", &r));
	for (int i = 0; i < cfg->debug.record_hashes.n; i++) {
		r.state |= !strcmp(cfg->debug.record_hashes.items[i], tt_cfg_record_word(TT_CFG_RECORD_STATE));
		r.values |= !strcmp(cfg->debug.record_hashes.items[i], tt_cfg_record_word(TT_CFG_RECORD_VALUES));
	}
	if (r.state || r.values) {
		r.settings = settings;
		r.folder = cfg->job.dump_folder;
	}
	*out = r;
	return TT_OK;
}

tt_status tt_run_options_from_config(tt_arena *a, const tt_config *cfg, tt_run_options *out)
{
	tt_run_options o = { 0 };
	tt_config resolved;
	TT_TRY(model_config(a, cfg, &o.model, &resolved));
	o.warnings = resolved.warnings;
	resolved.notes = NULL;
	tt_buf b = { 0 };
	tt_config_print(&resolved, &b);
	o.config = tt_arena_strdup(a, b.s);
	tt_buf_fini(&b);
	TT_TRY(data_options(a, cfg, &o.model, &o.data));
	int64_t context = cfg->training.context_length, per_step = cfg->training.tokens_per_step;
	o.tokens_per_microbatch = cfg->training.tokens_per_microbatch ? cfg->training.tokens_per_microbatch : per_step;
	TT_ASSERT(per_step % context == 0 && o.tokens_per_microbatch % context == 0 && o.tokens_per_microbatch <= per_step,
		  "%lld tokens a step, %lld a microbatch, %lld a row", (long long)per_step, (long long)o.tokens_per_microbatch, (long long)context);
	bool f64 = cfg->training.dtype == TT_CFG_DTYPE_FLOAT64;
	o.compute = f64 ? TT_F64 : cfg->training.mixed_precision_param == TT_CFG_COMPUTE_BFLOAT16 ? TT_BF16 : TT_F32;
	if (o.compute == TT_BF16 && cfg->training.residual_dtype == TT_CFG_RESIDUAL_FLOAT32)
		TT_FAIL(TT_ERR_USAGE, "%straining.residual_dtype = \"float32\" under bfloat16 compute is not in this version (set mixed_precision_param = \"float32\")",
			tt_config_at(a, cfg, "training.residual_dtype", "training.mixed_precision_param"));
	o.loss_chunks = (int)cfg->training.loss_chunks;
	TT_TRY(recompute_options(a, cfg, o.model.num_hidden_layers, &o.recompute));
	static const tt_gathered gathered[] = { [TT_RESHARD_DEFAULT] = TT_GATHERED_BY_LAYER, [TT_RESHARD_ALWAYS] = TT_GATHERED_AGAIN, [TT_RESHARD_NEVER] = TT_GATHERED_KEPT };
	o.gathered = gathered[cfg->parallelism.fsdp_reshard_after_forward];
	o.overlap = (tt_overlap){ (int)cfg->parallelism.fsdp_prefetch_layers, cfg->comm.bucket_cap_mb * TT_MIB, false };
	tt_group *groups = TT_NEWN(a, tt_group, cfg->optimizer.param_groups.n);
	for (int i = 0; i < cfg->optimizer.param_groups.n; i++) {
		const tt_param_group *p = &cfg->optimizer.param_groups.items[i];
		groups[i] = (tt_group){ p->pattern, p->lr_scale, p->weight_decay };
	}
	o.optim = (tt_optim_options){
		.sgd = cfg->optimizer.name == TT_OPT_SGD, .lr = cfg->optimizer.lr, .beta1 = cfg->optimizer.beta1, .beta2 = cfg->optimizer.beta2,
		.eps = cfg->optimizer.eps, .weight_decay = cfg->optimizer.weight_decay, .momentum = cfg->optimizer.momentum,
		.nesterov = cfg->optimizer.nesterov, .decay_only_matrices = cfg->optimizer.decay_only_matrices, .groups = groups,
		.ngroups = cfg->optimizer.param_groups.n, .max_norm = __builtin_isinf(cfg->training.max_norm) ? 0 : cfg->training.max_norm,
	};
	int64_t total = cfg->lr_scheduler.total_steps ? cfg->lr_scheduler.total_steps : cfg->training.steps;
	int64_t warmup = TT_MIN(cfg->lr_scheduler.warmup_steps, total);
	double ratio = cfg->lr_scheduler.decay_ratio;
	int64_t decay = ratio >= 0 ? (int64_t)((double)total * ratio + 0.5) : total - warmup;
	decay = TT_MIN(decay, total - warmup); /* the config's rules have warned */
	tt_decay type = cfg->lr_scheduler.decay_type == TT_DECAY_LINEAR ? TT_WSD_LINEAR : cfg->lr_scheduler.decay_type == TT_DECAY_SQRT ? TT_WSD_SQRT : TT_WSD_COSINE;
	o.schedule = (tt_schedule){ warmup, total, decay, type, cfg->lr_scheduler.min_lr_factor };
	o.skip_nonfinite = cfg->training.nonfinite == TT_NONFINITE_SKIP;
	o.nonfinite_max_skips = cfg->training.nonfinite_max_skips;
	o.exec = (tt_exec_options){
		.numerics = cfg->debug.numerics == TT_CFG_NUMERICS_EXACT ? TT_EXACT : TT_FAST, .f64 = f64, .kernels_ref = cfg->debug.kernels == TT_CFG_KERNELS_REF,
		.spin_us = 20, .seed = (uint64_t)cfg->debug.seed, .profile = cfg->profiling.enable,
	};
	if (f64 && o.exec.numerics == TT_EXACT)
		TT_FAIL(TT_ERR_USAGE, "%straining.dtype = \"float64\" has no exact numerics (debug.numerics = \"fast\")",
			tt_config_at(a, cfg, "training.dtype", "debug.numerics"));
	TT_TRY(tt_isa_parse(tt_cfg_isa_word(cfg->debug.isa), &o.exec.isa));
	TT_TRY(tt_mesh_options(a, cfg, &o));
	o.mesh.delay_us = cfg->comm.delay_us;
	int ranks = (int)cfg->hardware.ranks;
	o.exec.threads = cfg->hardware.threads ? (int)cfg->hardware.threads : TT_MAX(tt_machine_threads() / ranks, 1);
	if (ranks > tt_machine_threads())
		o.exec.spin_us = 0; /* a rank that spins keeps another from working */
	o.weights = cfg->model.hf_weights[0] ? cfg->model.hf_weights : NULL;
	TT_TRY(tt_passes_off(a, cfg->debug.passes.items, cfg->debug.passes.n, &o.fuse_off.items, &o.fuse_off.n, &o.overlap_off));
	o.dump_after = cfg->debug.dump_after;
	if (cfg->profiling.trace)
		o.trace = (tt_run_trace){ tt_arena_printf(a, "%s/%s", cfg->job.dump_folder, cfg->profiling.save_traces_folder), cfg->profiling.profile_freq, cfg->profiling.profiler_active };
	TT_TRY(record_options(cfg, o.config, &o.record));
	*out = o;
	return TT_OK;
}

/* ---- configs of which nothing is run ----------------------------------------------------------------------------------------------------- */

/* No text is named, and none is read: the model's ids are what rows would hold. */
static void without_data(tt_config *c)
{
	if (!c->data.paths.n)
		c->data.source = TT_CFG_SOURCE_SYNTHETIC;
}

tt_status tt_config_to_plan(tt_arena *a, const tt_config *cfg, tt_config *out, const char **note)
{
	enum { MOST = 1 << 20 }; /* of hardware.ranks */
	tt_config c = *cfg;
	const int64_t degree[] = { c.parallelism.data_parallel_replicate_degree, TT_MAX(c.parallelism.data_parallel_shard_degree, (int64_t)1), c.parallelism.context_parallel_degree,
				   c.parallelism.tensor_parallel_degree };
	int64_t ranks = 1;
	*note = NULL;
	without_data(&c);
	for (int i = 0; i < TT_COUNT(degree); i++) {
		if (degree[i] > MOST / ranks)
			TT_FAIL(TT_ERR_USAGE, "the degrees of [parallelism] make more than %d ranks, the most that hardware.ranks may be", (int)MOST);
		ranks *= degree[i];
	}
	if (!tt_config_source(cfg, "hardware.ranks") && ranks > 1) {
		c.hardware.ranks = ranks;
		*note = tt_arena_printf(a, "hardware.ranks is not set: %lld ranks, as many as the degrees of [parallelism] make (--ranks=N for others)", (long long)ranks);
	}
	*out = c;
	return TT_OK;
}

tt_config tt_config_to_verify(const tt_config *cfg, bool full)
{
	tt_config c = *cfg;
	if (!full)
		without_data(&c);
	c.hardware.ranks = 1;
	c.parallelism.data_parallel_replicate_degree = c.parallelism.context_parallel_degree = c.parallelism.tensor_parallel_degree = 1;
	c.parallelism.data_parallel_shard_degree = -1;
	return c;
}
