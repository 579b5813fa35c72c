/* connect.c: from config keys to run options. */
#include "base/machine.h"
#include "train/train.h"

static tt_status model_config(tt_arena *a, const tt_config *cfg, tt_llama_config *m)
{
	if (cfg->model.hf_config[0]) {
		TT_TRY(tt_llama_read(a, cfg->model.hf_config, m));
	} else {
		const tt_flavor *f;
		if (strcmp(cfg->model.name, "llama3"))
			TT_FAIL(TT_ERR_USAGE, "model.name: no model is called \"%s\" (there is: llama3)", cfg->model.name);
		TT_TRY(tt_flavor_find(cfg->model.flavor, &f));
		*m = f->config;
	}
	/* Keys over it; 0 (or auto) leaves what is there. A width changed alone takes the head's width with it. */
	bool head_follows = m->head_dim * m->num_attention_heads == m->hidden_size && !cfg->model.head_dim;
#define OVER(key)                                                                                                      \
	if (cfg->model.key > 0)                                                                                        \
	m->key = cfg->model.key
	OVER(vocab_size);
	OVER(hidden_size);
	OVER(num_hidden_layers);
	OVER(num_attention_heads);
	OVER(num_key_value_heads);
	OVER(head_dim);
	OVER(intermediate_size);
	OVER(max_position_embeddings);
	OVER(rms_norm_eps);
	OVER(rope_theta);
#undef OVER
	if (head_follows && m->num_attention_heads > 0)
		m->head_dim = m->hidden_size / m->num_attention_heads;
	if (cfg->model.sliding_window >= 0)
		m->sliding_window = cfg->model.sliding_window;
	if (cfg->model.tie_word_embeddings != TT_TRI_AUTO)
		m->tie_word_embeddings = cfg->model.tie_word_embeddings == TT_TRI_TRUE;
	if (cfg->model.attention_bias != TT_TRI_AUTO)
		m->attention_bias = cfg->model.attention_bias == TT_TRI_TRUE;
	if (cfg->model.mlp_bias != TT_TRI_AUTO)
		m->mlp_bias = cfg->model.mlp_bias == TT_TRI_TRUE;
	tt_rope_scaling *r = &m->rope;
	switch (cfg->model.rope_scaling) {
	case TT_CFG_ROPE_AUTO:
		break;
	case TT_CFG_ROPE_NONE:
		*r = (tt_rope_scaling){ .kind = TT_ROPE_NONE };
		break;
	case TT_CFG_ROPE_LINEAR:
		r->kind = TT_ROPE_LINEAR;
		break;
	case TT_CFG_ROPE_DYNAMIC:
		r->kind = TT_ROPE_DYNAMIC;
		break;
	case TT_CFG_ROPE_LLAMA3:
		r->kind = TT_ROPE_LLAMA3;
		break;
	case TT_CFG_ROPE_YARN:
		r->kind = TT_ROPE_YARN;
		r->truncate = true;
		break;
	}
	if (cfg->model.rope_factor > 0)
		r->factor = cfg->model.rope_factor;
	if (cfg->model.rope_low_freq_factor > 0)
		r->low_freq_factor = cfg->model.rope_low_freq_factor;
	if (cfg->model.rope_high_freq_factor > 0)
		r->high_freq_factor = cfg->model.rope_high_freq_factor;
	if (cfg->model.rope_attention_factor > 0)
		r->attention_factor = cfg->model.rope_attention_factor;
	if (cfg->model.rope_beta_fast > 0)
		r->beta_fast = cfg->model.rope_beta_fast;
	if (cfg->model.rope_beta_slow > 0)
		r->beta_slow = cfg->model.rope_beta_slow;
	if (cfg->model.rope_original_max_position_embeddings > 0)
		r->original_max_position_embeddings = cfg->model.rope_original_max_position_embeddings;
	return tt_llama_check(m, "model");
}

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
			TT_FAIL(TT_ERR_USAGE, "model.vocab_size is %lld, tokenizer \"%s\" has %d ids (set model.vocab_size to at least that)",
				(long long)m->vocab_size, cfg->data.tokenizer, d->tok->vocab_size);
	}
	return TT_OK;
}

static tt_status record_options(tt_arena *a, const tt_config *cfg, tt_hashes_options *out)
{
	tt_hashes_options r = { 0 };
	TT_TRY(tt_hashes_parse_steps(cfg->debug.record_steps, "debug.record_steps", &r));
	for (int i = 0; i < cfg->debug.record_hashes.n; i++) {
		r.state |= !strcmp(cfg->debug.record_hashes.items[i], tt_cfg_record_word(TT_CFG_RECORD_STATE));
		r.values |= !strcmp(cfg->debug.record_hashes.items[i], tt_cfg_record_word(TT_CFG_RECORD_VALUES));
	}
	if (r.state || r.values) {
		tt_buf b = { 0 };
		tt_config_print(cfg, &b);
		r.settings = tt_arena_strdup(a, b.s ? b.s : "");
		tt_buf_fini(&b);
		r.folder = cfg->job.dump_folder;
	}
	*out = r;
	return TT_OK;
}

tt_status tt_run_options_from_config(tt_arena *a, const tt_config *cfg, tt_run_options *out)
{
	tt_run_options o = { 0 };
	TT_TRY(model_config(a, cfg, &o.model));
	TT_TRY(data_options(a, cfg, &o.model, &o.data));
	int64_t context = cfg->training.context_length, per_step = cfg->training.tokens_per_step, mb = cfg->training.tokens_per_microbatch;
	if (per_step % context)
		TT_FAIL(TT_ERR_USAGE, "training.tokens_per_step %lld is no multiple of training.context_length %lld: a step is whole rows",
			(long long)per_step, (long long)context);
	if (!mb)
		mb = per_step;
	if (mb % context || mb > per_step)
		TT_FAIL(TT_ERR_USAGE, "training.tokens_per_microbatch %lld must be a multiple of training.context_length %lld, at most tokens_per_step %lld",
			(long long)mb, (long long)context, (long long)per_step);
	bool f64 = cfg->training.dtype == TT_CFG_DTYPE_FLOAT64;
	o.compute = f64 ? TT_F64 : cfg->training.mixed_precision_param == TT_CFG_COMPUTE_BFLOAT16 ? TT_BF16 : TT_F32;
	if (o.compute == TT_BF16 && cfg->training.residual_dtype == TT_CFG_RESIDUAL_FLOAT32)
		TT_FAIL(TT_ERR_USAGE, "training.residual_dtype = \"float32\" under bfloat16 compute is not in this version (set mixed_precision_param = \"float32\")");
	o.loss_chunks = (int)TT_MIN(cfg->training.loss_chunks, (int64_t)64);
	if (cfg->training.loss_chunks > 64)
		TT_FAIL(TT_ERR_USAGE, "training.loss_chunks %lld is over the limit of 64", (long long)cfg->training.loss_chunks);
	o.tokens_per_microbatch = mb;
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
		TT_FAIL(TT_ERR_USAGE, "training.dtype = \"float64\" has no exact numerics (debug.numerics = \"fast\")");
	TT_TRY(tt_isa_parse(tt_cfg_isa_word(cfg->debug.isa), &o.exec.isa));
	o.exec.threads = cfg->hardware.threads ? (int)cfg->hardware.threads : tt_machine_threads();
	o.weights = cfg->model.hf_weights[0] ? cfg->model.hf_weights : NULL;
	o.dump_after = cfg->debug.dump_after;
	TT_TRY(record_options(a, cfg, &o.record));
	*out = o;
	return TT_OK;
}
