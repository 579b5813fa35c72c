/* carry.c: the small files of a Hugging Face folder: config.json, made or carried; tokenizer and generation files as they are. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "ckpt/internal.h"

/* What transformers and others look for beside the weights. */
static const char *const carried[] = {
	"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
	"tokenizer.model", "vocab.json", "vocab.txt", "merges.txt", "chat_template.jinja", "chat_template.json",
};

tt_status ckpt_carry_read(tt_arena *a, const tt_fs *fs, const char *source, ckpt_small **out, int64_t *n, tt_ckpt_carried **config)
{
	if (config)
		*config = NULL;
	struct stat st;
	ckpt_small *list = TT_NEWN(a, ckpt_small, TT_COUNT(carried));
	int64_t count = 0;
	const char *folder = source;
	if (fs->stat(fs, source, &st) == 0 && !S_ISDIR(st.st_mode)) {
		const char *slash = strrchr(source, '/');
		folder = slash ? tt_arena_strndup(a, source, (size_t)(slash - source)) : ".";
	}
	for (int i = 0; i < TT_COUNT(carried); i++) {
		/* A config under another name is the config all the same. */
		const char *path = i == 0 && folder != source ? source : tt_arena_printf(a, "%s/%s", folder, carried[i]);
		if (fs->stat(fs, path, &st) || !S_ISREG(st.st_mode))
			continue;
		ckpt_small f = { .name = carried[i] };
		char *bytes;
		TT_TRY(tt_fs_read_file(a, fs, path, (size_t)(256 * TT_MIB), &bytes, &f.n));
		f.bytes = bytes;
		if (i == 0 && config) {
			*config = TT_NEW(a, tt_ckpt_carried);
			(*config)->text = bytes;
			(*config)->n = f.n;
			TT_TRY(tt_llama_read(a, path, &(*config)->config));
			continue;
		}
		list[count++] = f;
	}
	*out = list;
	*n = count;
	return TT_OK;
}

/* ---- config.json ----------------------------------------------------------------------------------------------------------- */

static void set_rope(json_t *root, const tt_llama_config *c)
{
	const tt_rope_scaling *r = &c->rope;
	json_object_set_new(root, "rope_theta", json_real(c->rope_theta));
	if (r->kind == TT_ROPE_NONE) {
		json_object_set_new(root, "rope_scaling", json_null());
		return;
	}
	json_t *o = json_object();
	json_object_set_new(o, "rope_type", json_string(tt_rope_kind_name(r->kind)));
	const struct { const char *key; double x; } reals[] = {
		{ "factor", r->factor }, { "low_freq_factor", r->low_freq_factor }, { "high_freq_factor", r->high_freq_factor },
		{ "beta_fast", r->beta_fast }, { "beta_slow", r->beta_slow }, { "attention_factor", r->attention_factor },
		{ "mscale", r->mscale }, { "mscale_all_dim", r->mscale_all_dim },
	};
	for (int i = 0; i < TT_COUNT(reals); i++)
		if (reals[i].x != 0)
			json_object_set_new(o, reals[i].key, json_real(reals[i].x));
	if (r->kind == TT_ROPE_YARN) {
		json_object_set_new(o, "truncate", json_boolean(r->truncate));
		/* Left out it means this; transformers wants it said. */
		double original = (double)(r->original_max_position_embeddings ? r->original_max_position_embeddings : c->max_position_embeddings);
		if (r->factor == 0)
			json_object_set_new(o, "factor", json_real((double)c->max_position_embeddings / original));
	}
	if (r->original_max_position_embeddings)
		json_object_set_new(o, "original_max_position_embeddings", json_integer(r->original_max_position_embeddings));
	json_object_set_new(root, "rope_scaling", o);
}

/* Every key that a tt_llama_config has a say in, but the dtype. */
static json_t *config_object(const tt_llama_config *c)
{
	bool mistral = c->architecture && !strcmp(c->architecture, "MistralForCausalLM");
	json_t *root = json_object();
	json_object_set_new(root, "architectures", json_pack("[s]", mistral ? "MistralForCausalLM" : "LlamaForCausalLM"));
	json_object_set_new(root, "model_type", json_string(mistral ? "mistral" : "llama"));
	const struct { const char *key; int64_t x; } ints[] = {
		{ "vocab_size", c->vocab_size }, { "hidden_size", c->hidden_size }, { "num_hidden_layers", c->num_hidden_layers },
		{ "num_attention_heads", c->num_attention_heads }, { "num_key_value_heads", c->num_key_value_heads }, { "head_dim", c->head_dim },
		{ "intermediate_size", c->intermediate_size }, { "max_position_embeddings", c->max_position_embeddings },
	};
	for (int i = 0; i < TT_COUNT(ints); i++)
		json_object_set_new(root, ints[i].key, json_integer(ints[i].x));
	json_object_set_new(root, "hidden_act", json_string("silu"));
	json_object_set_new(root, "rms_norm_eps", json_real(c->rms_norm_eps));
	json_object_set_new(root, "initializer_range", json_real(c->initializer_range));
	json_object_set_new(root, "tie_word_embeddings", json_boolean(c->tie_word_embeddings));
	if (mistral) {
		json_object_set_new(root, "sliding_window", c->sliding_window ? json_integer(c->sliding_window) : json_null());
	} else {
		json_object_set_new(root, "attention_bias", json_boolean(c->attention_bias));
		json_object_set_new(root, "mlp_bias", json_boolean(c->mlp_bias));
	}
	set_rope(root, c);
	json_object_set_new(root, "bos_token_id", c->bos < 0 ? json_null() : json_integer(c->bos));
	json_t *eos = c->neos == 0 ? json_null() : c->neos == 1 ? json_integer(c->eos[0]) : json_array();
	for (int i = 0; c->neos > 1 && i < c->neos; i++)
		json_array_append_new(eos, json_integer(c->eos[i]));
	json_object_set_new(root, "eos_token_id", eos);
	json_object_set_new(root, "attention_dropout", json_real(0));
	json_object_set_new(root, "use_cache", json_true());
	return root;
}

static tt_status text_parse(const char *text, size_t n, json_t **out)
{
	json_error_t why;
	json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
	if (!root)
		TT_FAIL(TT_ERR_FORMAT, "config.json: line %d: %s", why.line, why.text);
	if (!json_is_object(root)) {
		json_decref(root);
		TT_FAIL(TT_ERR_FORMAT, "config.json: is not a JSON object");
	}
	*out = root;
	return TT_OK;
}

/* transformers 5 says dtype, 4 torch_dtype; each reads the other's. */
static void set_dtype(json_t *root, const char *dtype)
{
	json_object_set_new(root, json_object_get(root, "dtype") ? "dtype" : "torch_dtype", json_string(dtype));
}

/* Does this text say what root says? */
static bool says(const char *text, size_t n, const json_t *root)
{
	json_t *x = json_loadb(text, n, 0, NULL);
	bool same = x && json_equal(x, root);
	json_decref(x);
	return same;
}

/* The text with another dtype in it and all else as its author spelled it; only if that is what root says. */
static bool dtype_patch(const json_t *root, const char *source, size_t n, tt_buf *out)
{
	const char *key = json_object_get(root, "dtype") ? "dtype" : "torch_dtype";
	const char *dtype = json_string_value(json_object_get(root, key));
	tt_buf quoted = { 0 }, b = { 0 };
	tt_buf_printf(&quoted, "\"%s\"", key);
	const char *at = memmem(source, n, quoted.s, quoted.n), *end = source + n;
	bool same = false;
	if (at && dtype) {
		for (at += quoted.n; at < end && *at != '"' && *at != ',' && *at != '}'; at++)
			;
		const char *close = at < end && *at == '"' ? memchr(at + 1, '"', (size_t)(end - at - 1)) : NULL;
		if (close) {
			tt_buf_add(&b, source, (size_t)(at + 1 - source));
			tt_buf_str(&b, dtype);
			tt_buf_add(&b, close, (size_t)(end - close));
			same = says(b.s, b.n, root);
		}
	}
	if (same)
		tt_buf_add(out, b.s, b.n);
	tt_buf_fini(&quoted);
	tt_buf_fini(&b);
	return same;
}

/* Takes root. What need not change in the text it came from stays as it is, byte for byte. */
static void text_print(json_t *root, const char *source, size_t n, tt_buf *out)
{
	if (source && says(source, n, root)) {
		tt_buf_add(out, source, n);
	} else if (!source || !dtype_patch(root, source, n, out)) {
		/* As few digits as bring every number back. */
		bool exact = false;
		for (size_t digits = 15; !exact && digits <= 17; digits++) {
			char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(digits));
			TT_ASSERT(text, "config.json: out of memory");
			exact = digits == 17 || says(text, strlen(text), root);
			if (exact)
				tt_buf_printf(out, "%s\n", text);
			free(text);
		}
	}
	json_decref(root);
}

tt_status ckpt_config_dtype(const char *text, size_t n, const char *dtype, tt_buf *out)
{
	json_t *root;
	TT_TRY(text_parse(text, n, &root));
	set_dtype(root, dtype);
	text_print(root, text, n, out);
	return TT_OK;
}

/* Whether transformers computes what we do from config.json; a window is something only its Mistral knows. */
static tt_status expressible(const tt_llama_config *c)
{
	bool mistral = c->architecture && !strcmp(c->architecture, "MistralForCausalLM");
	if (!mistral && c->sliding_window)
		tt_log(TT_LOG_WARN, "config.json: LlamaForCausalLM has no sliding_window; other programs will attend to all tokens (model.sliding_window = %lld)",
		       (long long)c->sliding_window);
	if (mistral && (c->attention_bias || c->mlp_bias))
		TT_FAIL(TT_ERR_USAGE, "config.json: MistralForCausalLM has no biases (model.attention_bias, model.mlp_bias)");
	return TT_OK;
}

/* What `c` says otherwise than `was` replaces what stands in `root`. */
static void replace(json_t *root, const tt_llama_config *c, const tt_llama_config *was)
{
	json_t *now = config_object(c), *old = config_object(was);
	const char *key;
	json_t *v;
	bool rope = false;
	json_object_foreach(now, key, v) {
		if (json_equal(v, json_object_get(old, key)))
			continue;
		rope |= !strncmp(key, "rope_", 5);
		json_object_set(root, key, v);
	}
	if (rope) { /* both together, in the older spelling, which every version reads */
		json_object_del(root, "rope_parameters");
		json_object_set(root, "rope_theta", json_object_get(now, "rope_theta"));
		json_object_set(root, "rope_scaling", json_object_get(now, "rope_scaling"));
	}
	json_decref(now);
	json_decref(old);
}

tt_status tt_ckpt_config_json(const tt_llama_config *c, const char *dtype, const tt_ckpt_carried *source, tt_buf *out)
{
	TT_TRY(expressible(c));
	json_t *root;
	if (source) {
		TT_TRY(text_parse(source->text, source->n, &root));
		replace(root, c, &source->config);
	} else {
		root = config_object(c);
	}
	set_dtype(root, dtype);
	text_print(root, source ? source->text : NULL, source ? source->n : 0, out);
	return TT_OK;
}
