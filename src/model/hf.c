/* config.json of the Llama family, the flavors, and what follows from both. libm is used here: this is build time. */
#include "model/hf.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

static const char *const ROPE_NAMES[] = {
	[TT_ROPE_NONE] = "default", [TT_ROPE_LINEAR] = "linear", [TT_ROPE_DYNAMIC] = "dynamic",
	[TT_ROPE_LLAMA3] = "llama3", [TT_ROPE_YARN] = "yarn",
};

const char *tt_rope_kind_name(tt_rope_kind k) { return ROPE_NAMES[k]; }

/* ---- values of a JSON object ------------------------------------------------------------------------------------ */

/* Where a value stands, for messages: path of the file, and "rope_scaling." or "". */
typedef struct place {
	const char *path, *prefix;
	const json_t *object;
} place;

/* Missing and null are one to Hugging Face: the default. */
static const json_t *value_get(const place *p, const char *key)
{
	const json_t *v = json_object_get(p->object, key);
	return json_is_null(v) ? NULL : v;
}

static tt_status value_wrong(const place *p, const char *key, const json_t *v, const char *needs)
{
	char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
	tt_error_set(TT_ERR_FORMAT, __FILE__, __LINE__, "%s: %s%s must be %s, is %.120s", p->path, p->prefix, key, needs,
		     text ? text : "?");
	free(text);
	return TT_ERR_FORMAT;
}

static tt_status int_get(const place *p, const char *key, int64_t *x)
{
	const json_t *v = value_get(p, key);
	if (!v)
		return TT_OK;
	/* Some writers put 8192.0 where a whole number is meant. */
	if (json_is_real(v) && json_real_value(v) == floor(json_real_value(v)) && fabs(json_real_value(v)) < 0x1p53)
		*x = (int64_t)json_real_value(v);
	else if (json_is_integer(v))
		*x = json_integer_value(v);
	else
		TT_TRY(value_wrong(p, key, v, "a whole number"));
	return TT_OK;
}

static tt_status real_get(const place *p, const char *key, double *x)
{
	const json_t *v = value_get(p, key);
	if (!v)
		return TT_OK;
	if (!json_is_number(v))
		TT_TRY(value_wrong(p, key, v, "a number"));
	*x = json_number_value(v);
	return TT_OK;
}

static tt_status bool_get(const place *p, const char *key, bool *x)
{
	const json_t *v = value_get(p, key);
	if (!v)
		return TT_OK;
	if (!json_is_boolean(v))
		TT_TRY(value_wrong(p, key, v, "true or false"));
	*x = json_is_true(v);
	return TT_OK;
}

static tt_status string_get(tt_arena *a, const place *p, const char *key, const char **x)
{
	const json_t *v = value_get(p, key);
	if (!v)
		return TT_OK;
	if (!json_is_string(v))
		TT_TRY(value_wrong(p, key, v, "a string"));
	*x = tt_arena_strdup(a, json_string_value(v));
	return TT_OK;
}

/* ---- config.json ------------------------------------------------------------------------------------------------ */

/* The defaults of LlamaConfig and MistralConfig in transformers. 0 heads of K/V: as many as query heads; head_dim 0:
 * hidden_size / num_attention_heads. */
static const struct family {
	const char *architecture, *model_type;
	tt_llama_config defaults;
} FAMILIES[] = {
	{"LlamaForCausalLM", "llama",
	 {.vocab_size = 32000, .hidden_size = 4096, .num_hidden_layers = 32, .num_attention_heads = 32, .intermediate_size = 11008,
	  .max_position_embeddings = 2048, .rms_norm_eps = 1e-6, .rope_theta = 10000, .initializer_range = 0.02, .bos = 1,
	  .eos = {2}, .neos = 1}},
	{"MistralForCausalLM", "mistral",
	 {.vocab_size = 32000, .hidden_size = 4096, .num_hidden_layers = 32, .num_attention_heads = 32, .num_key_value_heads = 8,
	  .intermediate_size = 14336, .max_position_embeddings = 131072, .sliding_window = 4096, .rms_norm_eps = 1e-6,
	  .rope_theta = 10000, .initializer_range = 0.02, .bos = 1, .eos = {2}, .neos = 1}},
};

static tt_status family_find(const place *p, const struct family **out)
{
	const json_t *list = value_get(p, "architectures"), *type = value_get(p, "model_type");
	const json_t *one = json_is_array(list) && json_array_size(list) == 1 ? json_array_get(list, 0) : NULL;
	if (list && !json_is_string(one))
		TT_TRY(value_wrong(p, "architectures", list, "a list of one name"));
	if (!one && !json_is_string(type))
		TT_FAIL(TT_ERR_FORMAT, "%s: neither architectures nor model_type says what model this is", p->path);
	for (int i = 0; i < TT_COUNT(FAMILIES); i++)
		if (one ? strcmp(FAMILIES[i].architecture, json_string_value(one)) == 0
			: strcmp(FAMILIES[i].model_type, json_string_value(type)) == 0) {
			*out = &FAMILIES[i];
			return TT_OK;
		}
	if (one)
		TT_FAIL(TT_ERR_FORMAT, "%s: architectures: %.100s is not supported; there are LlamaForCausalLM, MistralForCausalLM",
			p->path, json_string_value(one));
	TT_FAIL(TT_ERR_FORMAT, "%s: model_type %.100s is not supported; there are llama, mistral", p->path,
		json_string_value(type));
}

static tt_status whole_rotation_check(const place *p)
{
	double part = 1;
	TT_TRY(real_get(p, "partial_rotary_factor", &part));
	if (part != 1)
		TT_FAIL(TT_ERR_FORMAT, "%s: %spartial_rotary_factor %g is not supported, only 1", p->path, p->prefix, part);
	return TT_OK;
}

/* Keys that change the math in a way nothing here computes. A key is refused unless it has the harmless value. */
static tt_status unsupported_check(const place *p)
{
	const json_t *act = value_get(p, "hidden_act");
	const char *name = json_string_value(act);
	if (act && (!name || (strcmp(name, "silu") && strcmp(name, "swish"))))
		TT_TRY(value_wrong(p, "hidden_act", act, "\"silu\", the only one supported"));
	double tp = 1, dropout = 0;
	TT_TRY(whole_rotation_check(p));
	TT_TRY(real_get(p, "pretraining_tp", &tp));
	if (tp != 1)
		TT_FAIL(TT_ERR_FORMAT, "%s: pretraining_tp %g is not supported, only 1", p->path, tp);
	const json_t *quant = value_get(p, "quantization_config");
	if (quant)
		TT_TRY(value_wrong(p, "quantization_config", quant, "absent: quantized weights are not supported"));
	TT_TRY(real_get(p, "attention_dropout", &dropout));
	if (dropout != 0)
		tt_log(TT_LOG_WARN, "%s: attention_dropout %g has no effect: there is no dropout", p->path, dropout);
	return TT_OK;
}

static tt_status rope_kind_get(const place *p, tt_rope_kind *out)
{
	const char *key = value_get(p, "rope_type") ? "rope_type" : "type";
	const json_t *v = value_get(p, key);
	if (!v) {
		*out = TT_ROPE_NONE;
		return TT_OK;
	}
	for (int i = 0; json_is_string(v) && i < TT_COUNT(ROPE_NAMES); i++)
		if (strcmp(ROPE_NAMES[i], json_string_value(v)) == 0) {
			*out = (tt_rope_kind)i;
			return TT_OK;
		}
	TT_TRY(value_wrong(p, key, v, "one of default, linear, dynamic, llama3, yarn, the supported ones"));
	return TT_OK;
}

/* transformers 4: rope_theta beside rope_scaling {type or rope_type, factor, ...}. transformers 5: both in rope_parameters. An
 * object's own rope_theta comes before the one beside it; a rope_scaling that says anything before rope_parameters. */
static tt_status rope_read(const place *top, tt_llama_config *c)
{
	TT_TRY(real_get(top, "rope_theta", &c->rope_theta));
	const char *key = "rope_scaling";
	const json_t *o = value_get(top, key);
	if (!o || (json_is_object(o) && json_object_size(o) == 0)) {
		key = "rope_parameters";
		o = value_get(top, key);
	}
	if (!o)
		return TT_OK;
	if (!json_is_object(o))
		TT_TRY(value_wrong(top, key, o, "an object"));
	place p = {top->path, key[5] == 's' ? "rope_scaling." : "rope_parameters.", o};
	const char *name;
	const json_t *v;
	/* The iterator takes a non-const object but does not change it. */
	json_object_foreach((json_t *)o, name, v)
		if (json_is_object(v))
			TT_FAIL(TT_ERR_FORMAT, "%s: %s%.100s: rotary parameters by layer type are not supported", p.path, p.prefix, name);
	TT_TRY(whole_rotation_check(&p));
	tt_rope_scaling *r = &c->rope;
	TT_TRY(rope_kind_get(&p, &r->kind));
	TT_TRY(real_get(&p, "rope_theta", &c->rope_theta));
	if (r->kind == TT_ROPE_NONE)
		return TT_OK;
	TT_TRY(real_get(&p, "factor", &r->factor));
	if (r->factor == 0 && r->kind != TT_ROPE_YARN)
		TT_FAIL(TT_ERR_FORMAT, "%s: %sfactor is missing, rope type %s needs it", p.path, p.prefix, ROPE_NAMES[r->kind]);
	if (r->kind == TT_ROPE_LLAMA3) {
		TT_TRY(real_get(&p, "low_freq_factor", &r->low_freq_factor));
		TT_TRY(real_get(&p, "high_freq_factor", &r->high_freq_factor));
		if (r->low_freq_factor == 0 || r->high_freq_factor == 0)
			TT_FAIL(TT_ERR_FORMAT, "%s: %s%s is missing, rope type llama3 needs it", p.path, p.prefix,
				r->low_freq_factor == 0 ? "low_freq_factor" : "high_freq_factor");
	}
	if (r->kind == TT_ROPE_YARN) {
		r->truncate = true;
		TT_TRY(real_get(&p, "beta_fast", &r->beta_fast));
		TT_TRY(real_get(&p, "beta_slow", &r->beta_slow));
		TT_TRY(real_get(&p, "attention_factor", &r->attention_factor));
		TT_TRY(real_get(&p, "mscale", &r->mscale));
		TT_TRY(real_get(&p, "mscale_all_dim", &r->mscale_all_dim));
		TT_TRY(bool_get(&p, "truncate", &r->truncate));
	}
	if (r->kind == TT_ROPE_LLAMA3 || r->kind == TT_ROPE_YARN) {
		TT_TRY(int_get(&p, "original_max_position_embeddings", &r->original_max_position_embeddings));
		/* One beside the object is the stronger one. */
		TT_TRY(int_get(top, "original_max_position_embeddings", &r->original_max_position_embeddings));
	}
	return TT_OK;
}

static tt_status tokens_read(const place *p, tt_llama_config *c)
{
	/* Here null is said on purpose: there is no such token. */
	if (json_object_get(p->object, "bos_token_id"))
		c->bos = -1;
	TT_TRY(int_get(p, "bos_token_id", &c->bos));
	const json_t *eos = json_object_get(p->object, "eos_token_id");
	if (!eos)
		return TT_OK;
	c->neos = 0;
	if (json_is_null(eos))
		return TT_OK;
	if (!json_is_array(eos)) {
		c->neos = 1;
		TT_TRY(int_get(p, "eos_token_id", &c->eos[0]));
		return TT_OK;
	}
	if (json_array_size(eos) > TT_MAX_EOS)
		TT_FAIL(TT_ERR_FORMAT, "%s: eos_token_id lists %zu tokens, at most %d are supported", p->path, json_array_size(eos),
			TT_MAX_EOS);
	for (size_t i = 0; i < json_array_size(eos); i++) {
		if (!json_is_integer(json_array_get(eos, i)))
			TT_TRY(value_wrong(p, "eos_token_id", eos, "a token id or a list of them"));
		c->eos[c->neos++] = json_integer_value(json_array_get(eos, i));
	}
	return TT_OK;
}

static tt_status config_read(tt_arena *a, const char *path, const json_t *root, tt_llama_config *out)
{
	place p = {path, "", root};
	if (!json_is_object(root))
		TT_FAIL(TT_ERR_FORMAT, "%s: is not a JSON object", path);
	const struct family *f;
	TT_TRY(family_find(&p, &f));
	TT_TRY(unsupported_check(&p));
	tt_llama_config c = f->defaults;
	c.architecture = f->architecture;
	bool mistral = f != FAMILIES;
	const struct { const char *key; int64_t *x; } ints[] = {
		{"vocab_size", &c.vocab_size}, {"hidden_size", &c.hidden_size}, {"num_hidden_layers", &c.num_hidden_layers},
		{"num_attention_heads", &c.num_attention_heads}, {"num_key_value_heads", &c.num_key_value_heads},
		{"head_dim", &c.head_dim}, {"intermediate_size", &c.intermediate_size},
		{"max_position_embeddings", &c.max_position_embeddings},
	};
	/* null means "as many as query heads", also where the default is another number */
	if (json_is_null(json_object_get(root, "num_key_value_heads")))
		c.num_key_value_heads = 0;
	for (int i = 0; i < TT_COUNT(ints); i++)
		TT_TRY(int_get(&p, ints[i].key, ints[i].x));
	TT_TRY(real_get(&p, "rms_norm_eps", &c.rms_norm_eps));
	TT_TRY(real_get(&p, "initializer_range", &c.initializer_range));
	TT_TRY(bool_get(&p, "tie_word_embeddings", &c.tie_word_embeddings));
	/* Keys of one family say nothing in the other. */
	if (mistral) {
		if (json_is_null(json_object_get(root, "sliding_window")))
			c.sliding_window = 0;
		TT_TRY(int_get(&p, "sliding_window", &c.sliding_window));
	} else {
		TT_TRY(bool_get(&p, "attention_bias", &c.attention_bias));
		TT_TRY(bool_get(&p, "mlp_bias", &c.mlp_bias));
	}
	TT_TRY(string_get(a, &p, "torch_dtype", &c.dtype));
	TT_TRY(string_get(a, &p, "dtype", &c.dtype));
	TT_TRY(tokens_read(&p, &c));
	TT_TRY(rope_read(&p, &c));
	if (c.num_key_value_heads == 0)
		c.num_key_value_heads = c.num_attention_heads;
	if (c.head_dim == 0 && c.num_attention_heads > 0) {
		if (c.hidden_size % c.num_attention_heads)
			TT_FAIL(TT_ERR_FORMAT, "%s: hidden_size %lld is no multiple of num_attention_heads %lld (or give head_dim)", path,
				(long long)c.hidden_size, (long long)c.num_attention_heads);
		c.head_dim = c.hidden_size / c.num_attention_heads;
	}
	TT_TRY(tt_llama_check(&c, path));
	*out = c;
	return TT_OK;
}

tt_status tt_llama_read(tt_arena *a, const char *path, tt_llama_config *out)
{
	struct stat st;
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		path = tt_arena_printf(a, "%s/config.json", path);
	char *text;
	size_t n;
	TT_TRY(tt_file_read(a, path, &text, &n));
	json_error_t why;
	json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
	if (!root)
		TT_FAIL(TT_ERR_FORMAT, "%s: line %d: %s", path, why.line, why.text);
	tt_status s = config_read(a, path, root, out);
	json_decref(root);
	TT_TRY(s);
	return TT_OK;
}

/* ---- checks ----------------------------------------------------------------------------------------------------- */

static tt_status rope_check(const tt_llama_config *c, const char *where)
{
	const tt_rope_scaling *r = &c->rope;
	const char *kind = ROPE_NAMES[r->kind];
	if (!(c->rope_theta > 1) || !isfinite(c->rope_theta))
		TT_FAIL(TT_ERR_USAGE, "%s: rope_theta %g must be above 1 and finite", where, c->rope_theta);
	if (r->kind == TT_ROPE_NONE)
		return TT_OK;
	bool yarn = r->kind == TT_ROPE_YARN;
	int64_t original = r->original_max_position_embeddings;
	if (original < 0 || original > INT32_MAX)
		TT_FAIL(TT_ERR_USAGE, "%s: original_max_position_embeddings %lld must be from 1 to %d", where, (long long)original, INT32_MAX);
	if (yarn && r->factor == 0 && original > c->max_position_embeddings)
		TT_FAIL(TT_ERR_USAGE, "%s: rope type yarn without a factor: max_position_embeddings %lld must not be below original_max_position_embeddings %lld",
			where, (long long)c->max_position_embeddings, (long long)original);
	/* Far from what anybody writes, and near enough that all that follows stays finite, in fp32 too. */
	const double most = 1e9;
	const struct { const char *key; double x, least; } bounded[] = {
		{"factor", r->factor, yarn && r->factor == 0 ? 0 : 1}, {"attention_factor", r->attention_factor, 0}, {"mscale", r->mscale, 0},
		{"mscale_all_dim", r->mscale_all_dim, 0},
	};
	for (int i = 0; i < TT_COUNT(bounded); i++)
		if (!(bounded[i].x >= bounded[i].least && bounded[i].x <= most))
			TT_FAIL(TT_ERR_USAGE, "%s: %s %g of rope type %s must be from %g to %g", where, bounded[i].key, bounded[i].x, kind,
				bounded[i].least, most);
	if (r->kind == TT_ROPE_DYNAMIC && c->head_dim <= 2)
		TT_FAIL(TT_ERR_USAGE, "%s: rope type dynamic needs a head_dim above 2, it is %lld", where, (long long)c->head_dim);
	if (r->kind == TT_ROPE_LLAMA3 && !(r->low_freq_factor > 0 && r->high_freq_factor > r->low_freq_factor))
		TT_FAIL(TT_ERR_USAGE, "%s: low_freq_factor %g must be positive and below high_freq_factor %g", where,
			r->low_freq_factor, r->high_freq_factor);
	if (yarn && (r->beta_fast < 0 || r->beta_slow < 0))
		TT_FAIL(TT_ERR_USAGE, "%s: beta_fast %g and beta_slow %g must not be negative", where, r->beta_fast, r->beta_slow);
	double fast = r->beta_fast ? r->beta_fast : 32, slow = r->beta_slow ? r->beta_slow : 1;
	if (yarn && fast < slow)
		TT_FAIL(TT_ERR_USAGE, "%s: beta_fast %g must not be below beta_slow %g", where, fast, slow);
	return TT_OK;
}

tt_status tt_llama_check(const tt_llama_config *c, const char *where)
{
	/* The bounds of config/keys.def: what a config.json says must be printable as a config. */
	const struct { const char *key; int64_t x, most; } positive[] = {
		{"vocab_size", c->vocab_size, INT32_MAX}, {"hidden_size", c->hidden_size, INT32_MAX},
		{"num_hidden_layers", c->num_hidden_layers, 100000}, {"num_attention_heads", c->num_attention_heads, 65536},
		{"num_key_value_heads", c->num_key_value_heads, 65536}, {"head_dim", c->head_dim, 65536},
		{"intermediate_size", c->intermediate_size, INT32_MAX}, {"max_position_embeddings", c->max_position_embeddings, INT32_MAX},
	};
	for (int i = 0; i < TT_COUNT(positive); i++)
		if (positive[i].x < 1 || positive[i].x > positive[i].most)
			TT_FAIL(TT_ERR_USAGE, "%s: %s %lld must be from 1 to %lld", where, positive[i].key, (long long)positive[i].x,
				(long long)positive[i].most);
	if (c->num_attention_heads % c->num_key_value_heads)
		TT_FAIL(TT_ERR_USAGE, "%s: num_attention_heads %lld is no multiple of num_key_value_heads %lld", where,
			(long long)c->num_attention_heads, (long long)c->num_key_value_heads);
	if (c->head_dim % 2)
		TT_FAIL(TT_ERR_USAGE, "%s: head_dim %lld is odd, rotary embeddings turn pairs", where, (long long)c->head_dim);
	if (c->num_attention_heads * c->head_dim > INT32_MAX)
		TT_FAIL(TT_ERR_USAGE, "%s: num_attention_heads %lld times head_dim %lld exceeds %d", where,
			(long long)c->num_attention_heads, (long long)c->head_dim, INT32_MAX);
	if (c->sliding_window < 0 || c->sliding_window > INT32_MAX)
		TT_FAIL(TT_ERR_USAGE, "%s: sliding_window %lld must be from 0 to %d", where, (long long)c->sliding_window, INT32_MAX);
	if (!(c->rms_norm_eps > 0 && c->rms_norm_eps < 1))
		TT_FAIL(TT_ERR_USAGE, "%s: rms_norm_eps %g must be between 0 and 1", where, c->rms_norm_eps);
	if (!(c->initializer_range >= 0 && c->initializer_range <= 1))
		TT_FAIL(TT_ERR_USAGE, "%s: initializer_range %g must be from 0 to 1", where, c->initializer_range);
	/* Above this, sizes in bytes and parameter counts would leave 64 bits. */
	double D = (double)c->hidden_size, F = (double)c->intermediate_size;
	double heads = (double)(c->num_attention_heads * c->head_dim);
	double params = (double)c->num_hidden_layers * (4 * D * heads + 3 * D * F) + 2 * (double)c->vocab_size * D;
	if (params > 1e15)
		TT_FAIL(TT_ERR_USAGE, "%s: a model of %.2g parameters: num_hidden_layers %lld, hidden_size %lld, vocab_size %lld", where,
			params, (long long)c->num_hidden_layers, (long long)c->hidden_size, (long long)c->vocab_size);
	TT_TRY(rope_check(c, where));
	return TT_OK;
}

/* ---- flavors ---------------------------------------------------------------------------------------------------- */

/* theta, then the scaling of Llama 3.1 as TorchTitan gives it to every size. */
#define LLAMA3_ROPE                                                                                                    \
	.rope_theta = 500000, .rope = {.kind = TT_ROPE_LLAMA3, .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4,    \
				       .original_max_position_embeddings = 8192}
#define FLAVOR(name_, doc_, context, V, D, L, H, G, F, positions, tied, ...)                                              \
	{                                                                                                              \
		.name = (name_), .doc = (doc_), .context_length = (context), .config = {                               \
			.architecture = "LlamaForCausalLM", .vocab_size = (V), .hidden_size = (D), .num_hidden_layers = (L), \
			.num_attention_heads = (H), .num_key_value_heads = (G), .head_dim = (D) / (H),                 \
			.intermediate_size = (F), .max_position_embeddings = (positions), .tie_word_embeddings = (tied), \
			.rms_norm_eps = 1e-5, .initializer_range = 0.02, .bos = -1, __VA_ARGS__                        \
		}                                                                                                      \
	}

const tt_flavor tt_flavors[] = {
	/* name, what it is, context, V, D, L, H, G, F, max positions, tied, rope */
	FLAVOR("debugmodel", "llama3, 6.2M, for tests", 2048, 2048, 256, 6, 16, 16, 768, 131072, false, LLAMA3_ROPE),
	FLAVOR("1B", "llama3, 1.2B", 8192, 128256, 2048, 16, 32, 8, 8192, 131072, true, LLAMA3_ROPE),
	FLAVOR("3B", "llama3, 3.2B", 8192, 128256, 3072, 28, 24, 8, 8192, 131072, true, LLAMA3_ROPE),
	FLAVOR("8B", "llama3, 8.0B", 8192, 128256, 4096, 32, 32, 8, 14336, 131072, false, LLAMA3_ROPE),
	FLAVOR("70B", "llama3, 70.6B", 8192, 128256, 8192, 80, 64, 8, 28672, 131072, false, LLAMA3_ROPE),
	FLAVOR("405B", "llama3, 405.9B", 8192, 128256, 16384, 126, 128, 8, 53248, 131072, false, LLAMA3_ROPE),
	FLAVOR("bytes-5m", "4.9M, for the bytes of a few MB of text", 512, 256, 256, 6, 8, 4, 768, 2048, false, .rope_theta = 10000),
	FLAVOR("dense-20m", "10.5M and 8,192 ids, for benches", 256, 8192, 256, 8, 8, 4, 768, 2048, false, .rope_theta = 500000),
	FLAVOR("dense-100m", "125M, for benches", 512, 32768, 768, 12, 12, 4, 2048, 2048, false, .rope_theta = 500000),
	{0},
};

tt_status tt_flavor_find(const char *name, const tt_flavor **out)
{
	const char *names[TT_COUNT(tt_flavors)];
	char list[256] = "";
	int n = 0;
	for (const tt_flavor *f = tt_flavors; f->name; f++) {
		if (strcmp(f->name, name) == 0) {
			*out = f;
			return TT_OK;
		}
		strncat(list, n ? ", " : "", sizeof list - strlen(list) - 1);
		strncat(list, f->name, sizeof list - strlen(list) - 1);
		names[n++] = f->name;
	}
	const char *near = tt_nearest(name, names, n);
	TT_FAIL(TT_ERR_USAGE, "unknown model.flavor \"%s\"%s%s%s; there are: %s", name, near ? ", did you mean \"" : "",
		near ? near : "", near ? "\"?" : "", list);
}

/* ---- what follows ----------------------------------------------------------------------------------------------- */

int64_t tt_llama_params(const tt_llama_config *c)
{
	int64_t D = c->hidden_size, F = c->intermediate_size;
	int64_t h = c->num_attention_heads * c->head_dim, g = c->num_key_value_heads * c->head_dim;
	int64_t layer = 2 * D * h + 2 * D * g + 3 * D * F + 2 * D;
	if (c->attention_bias)
		layer += h + 2 * g + D;
	if (c->mlp_bias)
		layer += 2 * F + D;
	return c->num_hidden_layers * layer + D + (c->tie_word_embeddings ? 1 : 2) * c->vocab_size * D;
}

/* YaRN (Peng et al., arXiv:2309.00071), section 3.4: 0.1 ln(s) + 1, with DeepSeek's weight before the logarithm. */
static double yarn_scale(double factor, double weight) { return factor <= 1 ? 1 : 0.1 * weight * log(factor) + 1; }

tt_rope_scaling tt_llama_rope(const tt_llama_config *c)
{
	tt_rope_scaling r = c->rope;
	if (r.kind != TT_ROPE_LLAMA3 && r.kind != TT_ROPE_YARN)
		return r;
	if (!r.original_max_position_embeddings)
		r.original_max_position_embeddings = c->max_position_embeddings;
	if (r.kind == TT_ROPE_LLAMA3)
		return r;
	if (r.factor == 0)
		r.factor = (double)c->max_position_embeddings / (double)r.original_max_position_embeddings;
	if (r.beta_fast == 0)
		r.beta_fast = 32;
	if (r.beta_slow == 0)
		r.beta_slow = 1;
	if (r.attention_factor == 0 && r.mscale && r.mscale_all_dim)
		r.attention_factor = yarn_scale(r.factor, r.mscale) / yarn_scale(r.factor, r.mscale_all_dim);
	else if (r.attention_factor == 0)
		r.attention_factor = yarn_scale(r.factor, 1);
	return r;
}

void tt_llama_inv_freq(const tt_llama_config *c, int64_t context_length, double *inv_freq, double *attention_factor)
{
	const tt_rope_scaling resolved = tt_llama_rope(c), *r = &resolved;
	const double dim = (double)c->head_dim, positions = (double)c->max_position_embeddings;
	const double original = (double)r->original_max_position_embeddings, factor = r->factor;
	const int64_t half = c->head_dim / 2;
	double theta = c->rope_theta;
	/* NTK-aware scaling with the factor of the present length: theta' = theta (f n/L - (f - 1))^(K / (K - 2)), n >= L. */
	if (r->kind == TT_ROPE_DYNAMIC) {
		double n = TT_MAX((double)context_length, positions);
		theta *= pow(factor * n / positions - (factor - 1), dim / (dim - 2));
	}
	/* YaRN, equations 17 to 22: dims below `low` turn often enough over the original length to be kept, those above `high`
	 * are interpolated, a line between. */
	double low = 0, high = 0;
	if (r->kind == TT_ROPE_YARN) {
		low = dim * log(original / (r->beta_fast * 2 * M_PI)) / (2 * log(theta));
		high = dim * log(original / (r->beta_slow * 2 * M_PI)) / (2 * log(theta));
		if (r->truncate) {
			low = floor(low);
			high = ceil(high);
		}
		low = fmax(low, 0);
		high = fmin(high, dim - 1);
		if (low == high)
			high += 0.001;
	}
	for (int64_t i = 0; i < half; i++) {
		double f = 1 / pow(theta, (double)(2 * i) / dim);
		switch (r->kind) {
		case TT_ROPE_NONE:
		case TT_ROPE_DYNAMIC:
			break;
		case TT_ROPE_LINEAR:
			f /= factor;
			break;
		case TT_ROPE_LLAMA3: {
			/* Llama 3.1: wavelengths below original/high are kept, above original/low divided, a line in their inverse between. */
			double turns = original * f / (2 * M_PI);
			double keep = (turns - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
			keep = fmin(fmax(keep, 0), 1);
			f = (1 - keep) * f / factor + keep * f;
			break;
		}
		case TT_ROPE_YARN: {
			double spread = fmin(fmax(((double)i - low) / (high - low), 0), 1);
			f = f / factor * spread + f * (1 - spread);
			break;
		}
		}
		inv_freq[i] = (float)f;
	}
	*attention_factor = r->kind == TT_ROPE_YARN ? r->attention_factor : 1;
}
