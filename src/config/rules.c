/* What keys mean beyond their own values: TorchTitan's spellings, keys without effect, keys that contradict. */
#include "config/keys.h"

/* ---- aliases --------------------------------------------------------------------------------------------------------
 * Spellings of TorchTitan, today's and those of its TOML days. */

#define NO_STAGES "this version has no pipeline stages; delete the key"
#define NO_EXPERTS "this version has no experts; delete the key"
#define OVERLAPS "exchanges run beside products wherever nothing waits for them (--passes=-overlap: not); delete the key"
#define RECORDS "every exchange is recorded, and an error of one tells the last of every rank; delete the key"

static const tt_alias ALIASES[] = {
	{"validator.*", "validation.*", NULL},
	{"profiler.enable_profiling", "profiling.trace", NULL},
	{"profiler.*", "profiling.*", NULL},
	{"training.num_tokens_per_train_step", "training.tokens_per_step", NULL},
	{"training.num_tokens_per_microbatch_per_dp_rank", "training.tokens_per_microbatch", NULL},
	{"training.max_context_length", "training.context_length", NULL},
	{"training.seq_len", "training.context_length", NULL},
	{"training.seed", "debug.seed", NULL},
	{"training.warmup_steps", "lr_scheduler.warmup_steps", NULL},
	{"profiling.enable_profiling", "profiling.trace", NULL},
	{"profiling.profiler_warmup", NULL, "nothing needs to warm up; delete the key"},
	{"profiling.enable_memory_snapshot", NULL, "--dump=memory prints the plan of memory, and it holds; delete the key"},
	{"profiling.save_memory_snapshot_folder", NULL, "--dump=memory prints the plan of memory, and it holds; delete the key"},
	{"training.dataset_path", "data.paths", NULL},
	{"training.data_parallel_replicate_degree", "parallelism.data_parallel_replicate_degree", NULL},
	{"training.data_parallel_shard_degree", "parallelism.data_parallel_shard_degree", NULL},
	{"training.tensor_parallel_degree", "parallelism.tensor_parallel_degree", NULL},
	{"experimental.context_parallel_degree", "parallelism.context_parallel_degree", NULL},
	{"experimental.context_parallel_rotate_method", NULL,
	 "write parallelism.context_parallel_method = \"gather\" for allgather, \"ring\" for alltoall, which passed keys and values on"},
	{"parallelism.context_parallel_rotate_method", NULL,
	 "write parallelism.context_parallel_method = \"gather\" for allgather, \"ring\" for alltoall, which passed keys and values on"},
	{"parallelism.context_parallel_ptrr_mask_key", NULL, "write parallelism.context_parallel_load_balancer = \"cost\", which needs no mask; delete the key"},
	{"experimental.pipeline_parallel_degree", "parallelism.pipeline_parallel_degree", NULL},
	{"checkpoint.enable_checkpoint", "checkpoint.enable", NULL},
	{"checkpoint.last_save_model_weights_only", "checkpoint.last_save_model_only", NULL},
	{"checkpoint.initial_load_path", "model.hf_weights", NULL},
	{"lr_scheduler.lr_min", "lr_scheduler.min_lr_factor", NULL},
	{"model.hf_assets_path", "model.hf_config", NULL},
	{"model.tokenizer_path", "data.tokenizer", NULL},
	{"training.local_batch_size", NULL,
	 "write training.tokens_per_microbatch = local_batch_size * seq_len (memory only) and "
	 "training.tokens_per_step = global_batch_size * seq_len"},
	{"training.batch_size", NULL, "write training.tokens_per_step = batch_size * data ranks * seq_len"},
	{"training.global_batch_size", NULL, "write training.tokens_per_step = global_batch_size * seq_len"},
	{"training.dataset", NULL, "name files, folders or patterns in data.paths"},
	{"training.mixed_precision_reduce", NULL, "gradients are reduced in float32 always; delete the key"},
	{"training.compile", NULL, "every program is compiled; delete the key"},
	{"training.disable_cuda_graphs", NULL, "there are no CUDA graphs; delete the key"},
	{"training.enable_cpu_offload", NULL, "everything is in the CPU's memory; delete the key"},
	{"training.gc_freq", NULL, "there is no garbage collector; delete the key"},
	{"training.deterministic", NULL, "every run is deterministic; delete the key"},
	{"debug.deterministic", NULL, "every run is deterministic; delete the key"},
	{"debug.deterministic_warn_only", NULL, "every run is deterministic; delete the key"},
	{"debug.batch_invariant", NULL, "every forward is batch-invariant; delete the key"},
	{"debug.spmd_typechecking", NULL, "every program is type-checked; delete the key"},
	{"optimizer.implementation", NULL, "there is one implementation; delete the key"},
	{"optimizer.fused", NULL, "there is one implementation; delete the key"},
	{"parallelism.spmd_backend", NULL, "there is one; delete the key"},
	{"parallelism.tp_gemm_backend", NULL, "there is one; delete the key"},
	{"parallelism.enable_fsdp_symm_mem", NULL, "ranks of one process read each other's memory as it is; delete the key"},
	{"parallelism.disable_loss_parallel", NULL, "logits are never gathered; delete the key"},
	{"parallelism.pipeline_parallel_schedule", NULL, NO_STAGES},
	{"parallelism.pipeline_parallel_schedule_csv", NULL, NO_STAGES},
	{"parallelism.pipeline_parallel_layers_per_stage", NULL, NO_STAGES},
	{"parallelism.pipeline_parallel_first_stage_less_layers", NULL, NO_STAGES},
	{"parallelism.pipeline_parallel_last_stage_less_layers", NULL, NO_STAGES},
	{"parallelism.pipeline_parallel_microbatch_size", NULL, NO_STAGES},
	{"parallelism.pipeline_parallel_split_points", NULL, NO_STAGES},
	{"parallelism.num_pp_microbatches", NULL, NO_STAGES},
	{"parallelism.module_fqns_per_model_part", NULL, NO_STAGES},
	{"parallelism.expert_tensor_parallel_degree", NULL, NO_EXPERTS},
	{"parallelism.expert_parallel_comm_backend", NULL, NO_EXPERTS},
	{"parallelism.moe_comm_backend", NULL, NO_EXPERTS},
	{"parallelism.non_blocking_capacity_factor", NULL, NO_EXPERTS},
	{"parallelism.enable_loss_parallel", NULL, "logits are never gathered; delete the key"},
	{"parallelism.enable_async_tensor_parallel", NULL, OVERLAPS},
	{"experimental.enable_async_tensor_parallel", NULL, OVERLAPS},
	{"parallelism.enable_compiled_autograd", NULL, "every program is compiled; delete the key"},
	{"comm.trace_buf_size", NULL, RECORDS},
	{"comm.save_traces_folder", NULL, RECORDS},
	{"comm.save_traces_file_prefix", NULL, RECORDS},
	{"comm.mode", NULL, "titan plan runs nothing and takes any number of ranks; delete the key"},
	{"job.print_args", "job.print_config", NULL},
	{"job.config_file", NULL, "the file is the first argument: titan train FILE [FLAGS]"},
	{"job.config_manager_module", NULL, "a config is a TOML file and flags; delete the key"},
	{"metrics.disable_color_printing", NULL, "nothing is colored; delete the key"},
	{"metrics.save_tb_folder", NULL, "event files go to job.dump_folder/tb; delete the key"},
	{"metrics.enable_wandb", NULL, "metrics go to metrics.jsonl (titan plot) and, with metrics.enable_tensorboard, to TensorBoard; delete the key"},
	{"metrics.save_for_all_ranks", NULL, "rank 0 reports for all; delete the key"},
	{"checkpoint.create_seed_checkpoint", NULL, "initial weights are the same on every mesh (debug.seed), none need to be made before; delete the key"},
	{"checkpoint.initial_load_in_hf", NULL, "model.hf_weights reads Hugging Face's files; delete the key"},
	{"checkpoint.initial_load_in_hf_quantized", NULL, "model.hf_weights reads float weights; delete the key"},
	{"checkpoint.initial_load_model_only", NULL, "model.hf_weights is the model alone always; delete the key"},
	{"checkpoint.last_save_in_hf", NULL, "checkpoints have Hugging Face's files and names always; delete the key"},
	{"model.print_after_conversion", NULL, "--dump=graph prints the model; delete the key"},
	{"model.converters", NULL, "there are no converters, float8 among them; delete the key"},
	{"optimizer.early_step_in_backward", NULL, "gradients are summed before the update always; delete the key"},
	{"validation.dataset", NULL, "name files, folders or patterns in validation.paths, or hold out a part of data.paths with validation.fraction"},
	{"validation.dataset_path", "validation.paths", NULL},
	{"float8.*", NULL, "this version has no float8; delete the section"},
	{"quantize.*", NULL, "this version has no quantized products; delete the section"},
	{"fault_tolerance.*", NULL, "a run that is started again goes on from its newest checkpoint; delete the section"},
	{"compile.*", NULL, "every program is compiled; delete the section"},
};

static bool same_section(const char *full, const char *section)
{
	size_t n = strlen(section);
	return strncmp(full, section, n) == 0 && full[n] == '.';
}

const tt_alias *tt_alias_find(const char *section, const char *name)
{
	for (int i = 0; i < TT_COUNT(ALIASES); i++) {
		const char *old = ALIASES[i].old;
		if (same_section(old, section)) {
			const char *key = old + strlen(section) + 1;
			if (strcmp(key, "*") == 0 || strcmp(key, name) == 0)
				return &ALIASES[i];
		}
	}
	return NULL;
}

bool tt_alias_section(const char *section)
{
	for (int i = 0; i < TT_COUNT(ALIASES); i++)
		if (same_section(ALIASES[i].old, section))
			return true;
	return false;
}

bool tt_alias_refuses(const char *section)
{
	const tt_alias *alias = tt_alias_find(section, "*");
	return alias != NULL && alias->now == NULL && strcmp(alias->old + strlen(section) + 1, "*") == 0;
}

const tt_alias *tt_alias_list(int *n)
{
	*n = TT_COUNT(ALIASES);
	return ALIASES;
}

/* Values of TorchTitan that a key of the same name has not. */
static const struct { const char *key, *value, *advice; } VALUES[] = {
	{"checkpoint.async_mode", "async_with_pinned_mem", "write \"async\": there is no other memory to copy to"},
};

const char *tt_value_advice(const char *key, const char *value)
{
	for (int i = 0; i < TT_COUNT(VALUES); i++)
		if (strcmp(VALUES[i].key, key) == 0 && strcmp(VALUES[i].value, value) == 0)
			return VALUES[i].advice;
	return NULL;
}

/* ---- keys without effect --------------------------------------------------------------------------------------------- */

/* Steps of the schedule: total N, warmup W, decay D (lr_scheduler in keys.def). */
static int64_t schedule_total(const tt_config *c)
{
	return c->lr_scheduler.total_steps > 0 ? c->lr_scheduler.total_steps : c->training.steps;
}

static int64_t schedule_decay(const tt_config *c)
{
	int64_t total = schedule_total(c);
	return c->lr_scheduler.decay_ratio >= 0 ? llround((double)total * c->lr_scheduler.decay_ratio)
						: total - c->lr_scheduler.warmup_steps;
}

/* Decay begins with step N + 1 - D: none if there is no decay, or the run ends before. */
static bool never_decays(const tt_config *c)
{
	int64_t decay = schedule_decay(c);
	return decay <= 0 || c->training.steps - 1 < schedule_total(c) + 1 - decay;
}

static bool is_adamw(const tt_config *c) { return c->optimizer.name == TT_OPT_ADAMW; }
static bool is_sgd(const tt_config *c) { return c->optimizer.name == TT_OPT_SGD; }
static bool no_momentum(const tt_config *c) { return is_sgd(c) && c->optimizer.momentum == 0; }
static bool no_decay(const tt_config *c) { return c->optimizer.weight_decay == 0 && c->optimizer.param_groups.n == 0; }
static bool no_validation(const tt_config *c) { return !c->validation.enable; }
static bool no_checkpoint(const tt_config *c) { return !c->checkpoint.enable; }
static bool not_selective(const tt_config *c) { return c->activation_checkpoint.mode != TT_AC_SELECTIVE; }
static bool no_budget(const tt_config *c) { return c->activation_checkpoint.mode != TT_AC_BUDGET; }
static bool budget_in_mib(const tt_config *c) { return c->activation_checkpoint.memory_budget_mib > 0; }
static bool stops(const tt_config *c) { return c->training.nonfinite == TT_NONFINITE_STOP; }
static bool is_float64(const tt_config *c) { return c->training.dtype == TT_CFG_DTYPE_FLOAT64; }
static bool computes_float32(const tt_config *c)
{
	return c->training.mixed_precision_param == TT_CFG_COMPUTE_FLOAT32;
}
static bool has_hf_config(const tt_config *c) { return c->model.hf_config[0] != '\0'; }
static bool ref_kernels(const tt_config *c) { return c->debug.kernels == TT_CFG_KERNELS_REF; }
static bool no_shuffle(const tt_config *c) { return !c->data.shuffle; }
static bool made_up(const tt_config *c) { return c->data.source == TT_CFG_SOURCE_SYNTHETIC; }
static bool no_trace(const tt_config *c) { return !c->profiling.trace; }
static bool no_tensor_parallel(const tt_config *c) { return c->parallelism.tensor_parallel_degree == 1; }
static bool no_context_parallel(const tt_config *c) { return c->parallelism.context_parallel_degree == 1; }
static bool one_rank(const tt_config *c) { return c->hardware.ranks == 1; }
typedef struct effect_rule {
	const char *keys;                   /* pattern over "section.key" */
	bool (*idle)(const tt_config *cfg); /* true: such a key has no effect */
	const char *because;
} effect_rule;

/* The first rule that holds for a key speaks. Only of a value that is not the default: a config printed in full and
 * loaded again is quiet. */
static const effect_rule EFFECTS[] = {
	{"optimizer.momentum|optimizer.nesterov", is_adamw, "optimizer.name is AdamW"},
	{"optimizer.beta1|optimizer.beta2|optimizer.eps", is_sgd, "optimizer.name is SGD"},
	{"optimizer.nesterov", no_momentum, "optimizer.momentum is 0"},
	{"optimizer.decay_only_matrices", no_decay, "optimizer.weight_decay is 0"},
	{"lr_scheduler.decay_type|lr_scheduler.min_lr_factor", never_decays, "the run ends before any decay"},
	{"validation.freq|validation.steps", no_validation, "validation.enable is false"},
	{"checkpoint.[!e]*|checkpoint.enable_first*|checkpoint.ex*", no_checkpoint, "checkpoint.enable is false"},
	{"activation_checkpoint.selective_ac_option", not_selective, "activation_checkpoint.mode is not selective"},
	{"activation_checkpoint.memory_budget*", no_budget, "activation_checkpoint.mode is not budget"},
	{"activation_checkpoint.memory_budget", budget_in_mib, "activation_checkpoint.memory_budget_mib stands for it"},
	{"training.nonfinite_max_skips", stops, "training.nonfinite is stop"},
	{"training.mixed_precision_param|training.residual_dtype", is_float64,
	 "training.dtype is float64 and everything is computed in it"},
	{"training.residual_dtype", computes_float32, "training.mixed_precision_param is float32"},
	{"model.flavor", has_hf_config, "model.hf_config stands for it"},
	{"debug.isa", ref_kernels, "debug.kernels is ref"},
	{"data.paths|data.exclude|data.tokenizer|data.shuffle|data.repeat|validation.paths|validation.fraction", made_up,
	 "data.source is synthetic"},
	{"data.seed|data.shuffle_window", no_shuffle, "data.shuffle is false"},
	{"parallelism.enable_sequence_parallel", no_tensor_parallel, "parallelism.tensor_parallel_degree is 1"},
	{"parallelism.context_parallel_method|parallelism.context_parallel_load_balancer", no_context_parallel, "parallelism.context_parallel_degree is 1"},
	{"profiling.save_traces_folder|profiling.profile_freq|profiling.profiler_active", no_trace, "profiling.trace is false"},
	{"parallelism.fsdp_reshard_after_forward|parallelism.fsdp_prefetch_layers", one_rank, "there is one rank"},
	{"comm.*", one_rank, "there is one rank"},
	{"parallelism.layouts", one_rank, "there is one rank"},
};

/* ---- keys that contradict ------------------------------------------------------------------------------------------- */

/* "f.toml:3:1: ", or nothing for a default: opens a message about a key. */
static const char *at(tt_arena *a, const tt_config *cfg, const char *key)
{
	return tt_config_at(a, cfg, key, NULL);
}

/* `whole`'s value must be a multiple of `part`'s. */
static tt_status check_multiple(tt_arena *a, const tt_config *c, const char *whole, int64_t n, const char *part, int64_t k)
{
	if (n % k == 0)
		return TT_OK;
	int64_t below = n / k * k, most = INT64_MAX;
	for (int i = 0; i < tt_keys_n; i++)
		if (!strcmp(tt_keys[i].full, whole))
			most = tt_keys[i].i_most;
	bool above = k <= most - below; /* else the key does not take it */
	TT_FAIL(TT_ERR_USAGE, "%s%s = %lld is no multiple of %s = %lld (%s)", tt_config_at(a, c, part, whole), whole, (long long)n, part, (long long)k,
		tt_arena_printf(a, below && above ? "%lld or %lld would be" : "%lld would be", (long long)(below ? below : k), (long long)(below + k)));
}

/* Steps and microbatches are whole rows of context_length tokens; the last microbatch of a step may be smaller. */
static tt_status check_batch(tt_arena *a, const tt_config *c)
{
	static const char STEP[] = "training.tokens_per_step", MICRO[] = "training.tokens_per_microbatch",
			  CONTEXT[] = "training.context_length";
	int64_t step = c->training.tokens_per_step, micro = c->training.tokens_per_microbatch;
	TT_TRY(check_multiple(a, c, STEP, step, CONTEXT, c->training.context_length));
	if (micro == 0)
		return TT_OK;
	if (micro > step)
		TT_FAIL(TT_ERR_USAGE, "%s%s = %lld is more than %s = %lld", tt_config_at(a, c, MICRO, STEP), MICRO,
			(long long)micro, STEP, (long long)step);
	return check_multiple(a, c, MICRO, micro, CONTEXT, c->training.context_length);
}

static tt_status check_schedule(tt_arena *a, tt_config *c, void (*warn)(void *ctx, const char *text), void *ctx)
{
	int64_t total = schedule_total(c), warmup = c->lr_scheduler.warmup_steps;
	if (warmup > total) { /* as TorchTitan: a run cut short is all warmup */
		warn(ctx, tt_arena_printf(a, "%slr_scheduler.warmup_steps is %lld%s; the schedule has %lld steps, so all of them warm up",
					  at(a, c, "lr_scheduler.warmup_steps"), (long long)warmup,
					  tt_config_source(c, "lr_scheduler.warmup_steps") ? "" : " by default", (long long)total));
		warmup = c->lr_scheduler.warmup_steps = total;
	}
	int64_t decay = schedule_decay(c);
	if (warmup + decay > total) /* as TorchTitan: a run cut short keeps its warmup */
		warn(ctx, tt_arena_printf(a, "%slr_scheduler.decay_ratio = %g makes %lld of %lld steps decay, and "
					     "lr_scheduler.warmup_steps = %lld warm up: only the last %lld decay",
					  at(a, c, "lr_scheduler.decay_ratio"), c->lr_scheduler.decay_ratio, (long long)decay,
					  (long long)total, (long long)warmup, (long long)(total - warmup)));
	return TT_OK;
}

/* A checkpoint goes into the run's folder, or to a place of its own that is named whole. */
static tt_status check_folder(tt_arena *a, const tt_config *c)
{
	const char *f = c->checkpoint.folder;
	bool up = false;
	for (const char *p = f; p && *p; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL)
		up |= !strncmp(p, "..", 2) && (!p[2] || p[2] == '/');
	if (up)
		TT_FAIL(TT_ERR_USAGE, "%scheckpoint.folder = \"%s\" leads out of job.dump_folder, within which it lies", at(a, c, "checkpoint.folder"), f);
	return TT_OK;
}

static tt_status check_trace(tt_arena *a, const tt_config *c, void (*warn)(void *ctx, const char *text), void *ctx)
{
	if (c->profiling.trace && c->training.steps < c->profiling.profile_freq)
		warn(ctx, tt_arena_printf(a, "%sprofiling.trace: the first trace is written after step %lld (profiling.profile_freq), the run has %lld", at(a, c, "profiling.trace"),
					  (long long)c->profiling.profile_freq, (long long)c->training.steps));
	if (c->profiling.profiler_active > c->profiling.profile_freq)
		TT_FAIL(TT_ERR_USAGE, "%sprofiling.profiler_active = %lld is more than profiling.profile_freq = %lld", tt_config_at(a, c, "profiling.profiler_active", "profiling.profile_freq"),
			(long long)c->profiling.profiler_active, (long long)c->profiling.profile_freq);
	const char *f = c->profiling.save_traces_folder;
	if (c->profiling.trace && (!*f || !strncmp(f, "..", 2) || strstr(f, "/..")))
		TT_FAIL(TT_ERR_USAGE, "%sprofiling.save_traces_folder = \"%s\" is no folder within job.dump_folder", at(a, c, "profiling.save_traces_folder"), f);
	return TT_OK;
}

static tt_status check_groups(tt_arena *a, const tt_config *c)
{
	for (int i = 0; i < c->optimizer.param_groups.n; i++)
		if (c->optimizer.param_groups.items[i].pattern[0] == '\0')
			TT_FAIL(TT_ERR_USAGE, "%soptimizer.param_groups[%d].pattern is missing",
				at(a, c, "optimizer.param_groups"), i);
	return TT_OK;
}

static tt_status check_layouts(const tt_config *c)
{
	for (int i = 0; i < c->parallelism.layouts.n; i++) {
		const tt_layout_entry *e = &c->parallelism.layouts.items[i];
		const char *missing = !e->place ? "place: \"store\", \"param\", \"make\" or \"use\"" : !e->value[0] ? "value: a pattern of names" : !e->axis ? "axis: of the mesh, \"tp\"" :
				      !e->type ? "type: \"R\", \"I\", \"P\" or \"S(0)\"" : NULL;
		if (missing)
			TT_FAIL(TT_ERR_USAGE, "%s: parallelism.layouts[%d] lacks its %s", e->where, i, missing);
		if (e->by[0] && e->place != TT_CFG_PLACE_USE)
			TT_FAIL(TT_ERR_USAGE, "%s: parallelism.layouts[%d].by = \"%s\" is of place \"use\" alone, this is \"%s\"", e->where, i, e->by,
				tt_cfg_place_word(e->place));
	}
	return TT_OK;
}

static tt_status check_validation(tt_arena *a, const tt_config *c)
{
	if (c->validation.enable && c->validation.paths.n == 0 && c->validation.fraction == 0)
		TT_FAIL(TT_ERR_USAGE, "%svalidation.enable is true, but neither validation.paths nor validation.fraction holds "
				      "out a file",
			at(a, c, "validation.enable"));
	return TT_OK;
}

tt_status tt_config_check(tt_arena *a, tt_config *cfg, void (*warn)(void *ctx, const char *text), void *ctx)
{
	TT_TRY(check_batch(a, cfg));
	TT_TRY(check_schedule(a, cfg, warn, ctx));
	TT_TRY(check_groups(a, cfg));
	TT_TRY(check_folder(a, cfg));
	TT_TRY(check_trace(a, cfg, warn, ctx));
	TT_TRY(check_validation(a, cfg));
	TT_TRY(check_layouts(cfg));
	tt_config *defaults = TT_NEW(a, tt_config);
	for (int i = 0; i < tt_keys_n; i++) {
		const char *key = tt_keys[i].full;
		tt_key_set_default(&tt_keys[i], defaults);
		bool spoken_of = cfg->sources[i] != NULL && !tt_key_same(&tt_keys[i], cfg, defaults);
		for (int r = 0; r < TT_COUNT(EFFECTS) && spoken_of; r++) {
			if (tt_pattern_match(EFFECTS[r].keys, key) && EFFECTS[r].idle(cfg)) {
				warn(ctx, tt_arena_printf(a, "%s: %s has no effect: %s", cfg->sources[i], key,
							  EFFECTS[r].because));
				break;
			}
		}
	}
	return TT_OK;
}
