/* differences.c: a resumed run's config against that of its checkpoint.
 *
 *   refused   the model: a changed base of the rotary frequencies fits the same shapes, and the weights are worth nothing under it
 *   refused   another optimizer, whose moments are others
 *   refused   what the data stream is made of, its seed included (tt_data_restore; the keys are only named here)
 *   told      what changes the mathematics from here on: optimizer, clipping, dtypes, numerics; each with what was and what is
 *   noted     another mesh, other rows of layouts: they change nothing that is saved
 *   silent    the rest: names and places, reports, saving, memory, the machine
 *
 * What checkpoint.exclude_from_loading leaves out is not compared.
 */
#include <stdio.h>
#include <stdlib.h>

#include "train/internal.h"

/* ---- the model ------------------------------------------------------------------------------------------------------------------------ */

typedef enum field_type { FIELD_INT, FIELD_REAL, FIELD_BOOL, FIELD_ROPE } field_type;

/* What a model computes, by the key that sets it. Left out: initial values, names, and token ids that only a tokenizer needs. shape: no weights of
 * the other value fit. */
static const struct { const char *key; field_type type; size_t at; bool shape; } fields[] = {
#define FIELD(type, key, member) { key, type, offsetof(tt_llama_config, member), false }
#define SHAPE(type, key, member) { key, type, offsetof(tt_llama_config, member), true }
	SHAPE(FIELD_INT, "vocab_size", vocab_size),
	SHAPE(FIELD_INT, "hidden_size", hidden_size),
	SHAPE(FIELD_INT, "num_hidden_layers", num_hidden_layers),
	FIELD(FIELD_INT, "num_attention_heads", num_attention_heads),
	FIELD(FIELD_INT, "num_key_value_heads", num_key_value_heads),
	FIELD(FIELD_INT, "head_dim", head_dim),
	SHAPE(FIELD_INT, "intermediate_size", intermediate_size),
	FIELD(FIELD_INT, "max_position_embeddings", max_position_embeddings),
	FIELD(FIELD_INT, "sliding_window", sliding_window),
	FIELD(FIELD_REAL, "rms_norm_eps", rms_norm_eps),
	SHAPE(FIELD_BOOL, "tie_word_embeddings", tie_word_embeddings),
	SHAPE(FIELD_BOOL, "attention_bias", attention_bias),
	SHAPE(FIELD_BOOL, "mlp_bias", mlp_bias),
	FIELD(FIELD_REAL, "rope_theta", rope_theta),
	FIELD(FIELD_ROPE, "rope_scaling", rope.kind),
	FIELD(FIELD_REAL, "rope_factor", rope.factor),
	FIELD(FIELD_INT, "rope_original_max_position_embeddings", rope.original_max_position_embeddings),
	FIELD(FIELD_REAL, "rope_low_freq_factor", rope.low_freq_factor),
	FIELD(FIELD_REAL, "rope_high_freq_factor", rope.high_freq_factor),
	FIELD(FIELD_REAL, "rope_attention_factor", rope.attention_factor),
	FIELD(FIELD_REAL, "rope_beta_fast", rope.beta_fast),
	FIELD(FIELD_REAL, "rope_beta_slow", rope.beta_slow),
	/* No keys of their own: they come with a config.json. */
	FIELD(FIELD_REAL, "hf_config: mscale", rope.mscale),
	FIELD(FIELD_REAL, "hf_config: mscale_all_dim", rope.mscale_all_dim),
	FIELD(FIELD_BOOL, "hf_config: truncate", rope.truncate),
#undef FIELD
#undef SHAPE
};

static const char *field_text(tt_arena *a, field_type type, const void *p)
{
	switch (type) {
	case FIELD_INT:
		return tt_arena_printf(a, "%lld", (long long)*(const int64_t *)p);
	case FIELD_REAL: {
		/* As few digits as say which double it is. */
		char s[32];
		for (int n = 6; n <= 17; n++) {
			snprintf(s, sizeof s, "%.*g", n, *(const double *)p);
			if (strtod(s, NULL) == *(const double *)p)
				break;
		}
		return tt_arena_strdup(a, s);
	}
	case FIELD_BOOL:
		return *(const bool *)p ? "true" : "false";
	case FIELD_ROPE:
		return tt_rope_kind_name(*(const tt_rope_kind *)p);
	}
	return "";
}

static tt_status same_model(tt_arena *a, const char *dir, tt_llama_config was, tt_llama_config is)
{
	/* With what their zeros stand for. */
	was.rope = tt_llama_rope(&was);
	is.rope = tt_llama_rope(&is);
	for (int i = 0; i < TT_COUNT(fields); i++) {
		const char *before = field_text(a, fields[i].type, (const char *)&was + fields[i].at);
		const char *now = field_text(a, fields[i].type, (const char *)&is + fields[i].at);
		if (strcmp(before, now))
			TT_FAIL(TT_ERR_USAGE, "model.%s is %s, the model in %s has %s: set it back to go on with that run, or start another in a job.dump_folder of its own%s",
				fields[i].key, now, dir, before, fields[i].shape ? "" : tt_arena_printf(a, ", from its weights alone (model.hf_weights = \"%s\")", dir));
	}
	return TT_OK;
}

/* Resolved models, so that the same one said in other words is the same. Twice: the saved keys (NULL: not readable) know all of them, the
 * checkpoint's config.json also what came from a file that is now another, or gone. */
static tt_status compare_models(tt_run *r, const char *dir, const tt_config *saved)
{
	tt_llama_config was;
	if (saved && tt_model_from_config(r->arena, saved, &was) == TT_OK)
		TT_TRY(same_model(r->arena, dir, was, r->o.model));
	TT_TRY(tt_llama_read(r->arena, dir, &was));
	if (strcmp(was.architecture, "MistralForCausalLM"))
		was.sliding_window = r->o.model.sliding_window; /* the config.json of a Llama cannot say */
	TT_TRY(same_model(r->arena, dir, was, r->o.model));
	return TT_OK;
}

/* ---- the config ------------------------------------------------------------------------------------------------------------------------ */

/* Keys outside of [optimizer] that change what a step computes, and how. Not here, because they change no bit or only memory: hardware.threads,
 * debug.kernels, training.tokens_per_microbatch, loss_chunks; debug.isa, which is the machine's; debug.seed, which the data's fingerprint
 * has seen where it orders the data, and which otherwise made initial weights that are long trained; training.nonfinite, which says what to
 * do, not what to compute; lr_scheduler, which is one line of its own, since its numbers depend on each other and on training.steps. */
static const struct { const char *key, *what; unsigned part; } told[] = {
	{ "training.max_norm", "", 0 },
	{ "training.dtype", "; saved states are converted", 0 },
	/* Masters are float32 under both: nothing that was saved is lost, but losses before and after are of two roundings. */
	{ "training.mixed_precision_param", "; masters and moments go on as they are", 0 },
	{ "training.residual_dtype", "", 0 },
	/* A run that was not exact from its first step on has no bits that another mesh could repeat. */
	{ "debug.numerics", "; the run as a whole has the bits of neither", 0 },
	{ "training.tokens_per_step", "", TT_CKPT_DATALOADER },
	{ "training.context_length", "", TT_CKPT_DATALOADER },
};

/* ---- the mesh ------------------------------------------------------------------------------------------------------------------------- */

static const char *mesh_text(tt_arena *a, const tt_config *c)
{
	int64_t ranks = c->hardware.ranks, rep = c->parallelism.data_parallel_replicate_degree, cp = c->parallelism.context_parallel_degree, tp = c->parallelism.tensor_parallel_degree;
	int64_t shard = c->parallelism.data_parallel_shard_degree < 0 ? ranks / (rep * cp * tp) : c->parallelism.data_parallel_shard_degree;
	const char *text = "";
#define AXIS(n, ...)                                                                                                   \
	if ((n) > 1)                                                                                                   \
		text = tt_arena_printf(a, "%s%s%s", text, *text ? ", " : "", tt_arena_printf(a, __VA_ARGS__));
	AXIS(rep, "dp_replicate %lld", (long long)rep)
	AXIS(shard, "dp_shard %lld", (long long)shard)
	AXIS(cp, "cp %lld (%s, %s)", (long long)cp, tt_cfg_cp_method_word(c->parallelism.context_parallel_method), tt_cfg_cp_balance_word(c->parallelism.context_parallel_load_balancer))
	AXIS(tp, "tp %lld%s", (long long)tp, c->parallelism.enable_sequence_parallel ? " with sequence parallel" : "")
#undef AXIS
	return *text ? text : "one rank";
}

static bool same_row(const tt_layout_entry *x, const tt_layout_entry *y)
{
	return x->place == y->place && !strcmp(x->value, y->value) && !strcmp(x->by, y->by) && x->axis == y->axis && x->type == y->type && x->when == y->when;
}

/* How rows of layouts differ; NULL: they do not. */
static const char *rows_text(tt_arena *a, const tt_config *was, const tt_config *is)
{
	int n = was->parallelism.layouts.n, m = is->parallelism.layouts.n, k = 0;
	while (k < TT_MIN(n, m) && same_row(&was->parallelism.layouts.items[k], &is->parallelism.layouts.items[k]))
		k++;
	if (n == m && k == n)
		return NULL;
	if (k == TT_MIN(n, m))
		return tt_arena_printf(a, "%d row%s, %d from here on", n, n == 1 ? "" : "s", m);
	return tt_arena_printf(a, "row %d is another from here on%s", k + 1, n == m ? "" : tt_arena_printf(a, ", and there are %d instead of %d", m, n));
}

static void note_mesh(tt_arena *a, int64_t step, const tt_config *was, const tt_config *is)
{
	const char *before = mesh_text(a, was), *now = mesh_text(a, is);
	const char *rows = was->hardware.ranks > 1 || is->hardware.ranks > 1 ? rows_text(a, was, is) : NULL;
	bool mesh = strcmp(before, now) != 0;
	if (mesh || rows)
		tt_log(TT_LOG_INFO, "parallelism: %s%s%s", mesh ? tt_arena_printf(a, "%s up to step %lld, %s from here on", before, (long long)step, now) : "", mesh && rows ? "; " : "",
		       rows ? tt_arena_printf(a, "layouts: %s", rows) : "");
}

/* ---- all of it ------------------------------------------------------------------------------------------------------------------------ */

typedef struct comparison {
	int64_t step;
	unsigned exclude;
	tt_buf data; /* keys of the data that differ */
} comparison;

static void key_differs(void *ctx, const char *key, const char *was, const char *now)
{
	comparison *x = ctx;
	if (!strncmp(key, "data.", 5) || !strcmp(key, "validation.paths") || !strcmp(key, "validation.fraction") || !strcmp(key, "debug.seed"))
		tt_buf_printf(&x->data, "; %s is %s, was %s", key, now, was);
	if (x->exclude & TT_CKPT_TRAIN_STATE)
		return;
	if (!strncmp(key, "optimizer.", 10) && !(x->exclude & TT_CKPT_OPTIMIZER))
		tt_log(TT_LOG_WARN, "%s: %s up to step %lld, %s from here on; moments go on as they are", key, was, (long long)x->step, now);
	for (int i = 0; i < TT_COUNT(told); i++)
		/* Of a part that is loaded, another key has said it, as an error. */
		if (!strcmp(told[i].key, key) && (!told[i].part || x->exclude & told[i].part))
			tt_log(TT_LOG_WARN, "%s: %s up to step %lld, %s from here on%s", key, was, (long long)x->step, now, told[i].what);
	if (!strcmp(key, "model.hf_weights") && strcmp(now, "\"\"") && !(x->exclude & TT_CKPT_MODEL))
		tt_log(TT_LOG_WARN, "%s: %s is not read: the run goes on with the checkpoint's weights", key, now);
}

tt_status tt_run_compare(tt_run *r, const tt_ckpt *c, unsigned exclude, tt_differences *out)
{
	const tt_ckpt_state *s = tt_ckpt_get_state(c);
	tt_config *was = NULL;
	if (tt_config_load_text(r->arena, "config", s->config, strlen(s->config), 0, NULL, &was) != TT_OK)
		tt_log(TT_LOG_WARN, "%s: its config is not one of this version, and only its model is compared: %s", tt_ckpt_dir(c), tt_error_text());
	if (!(exclude & TT_CKPT_MODEL))
		TT_TRY(compare_models(r, tt_ckpt_dir(c), was));
	*out = (tt_differences){ "" };
	if (!was)
		return TT_OK;
	if (was->optimizer.name != r->cfg->optimizer.name && !(exclude & TT_CKPT_OPTIMIZER))
		TT_FAIL(TT_ERR_USAGE, "optimizer.name is %s, %s was made with %s, whose moments are others: set it back, or start with fresh moments "
				      "(checkpoint.exclude_from_loading = [\"optimizer\"])", r->o.optim.sgd ? "SGD" : "AdamW", tt_ckpt_dir(c), r->o.optim.sgd ? "AdamW" : "SGD");
	comparison x = { .step = s->step, .exclude = exclude };
	tt_config_diff(was, r->cfg, key_differs, &x);
	if (!(exclude & TT_CKPT_TRAIN_STATE))
		note_mesh(r->arena, s->step, was, r->cfg);
	/* Where no key differs, what the data was is what the config says. */
	if (!x.data.n) {
		tt_buf_str(&x.data, "; as then, data.paths is [");
		for (int i = 0; i < was->data.paths.n; i++)
			tt_buf_printf(&x.data, "%s\"%s\"", i ? ", " : "", was->data.paths.items[i]);
		tt_buf_printf(&x.data, "] and the seed %llu", (unsigned long long)r->o.data.seed);
	}
	out->data = tt_arena_strdup(r->arena, x.data.s);
	tt_buf_fini(&x.data);
	return TT_OK;
}
