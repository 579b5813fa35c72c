/* hf: config.json in all its spellings, flavors, rotary tables. */
#define _GNU_SOURCE
#include "test.h"

#include "ckpt/safetensors.h"
#include "model/hf.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <stdio.h>
#include <unistd.h>

static tt_status parse(tt_test *t, const char *text, tt_llama_config *c)
{
	const char *path = tt_test_path(t, "config.json");
	unlink(path); /* writing over a file makes some file systems flush it first */
	TT_CHECK_OK(t, tt_file_write(path, text, strlen(text)));
	return tt_llama_read(t->arena, path, c);
}

/* A small config with `more` (keys that begin with a comma) added. */
static const char *small(tt_test *t, const char *more)
{
	return tt_arena_printf(t->arena,
		"{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":32,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
		"\"intermediate_size\":24,\"num_hidden_layers\":2,\"vocab_size\":61,\"max_position_embeddings\":64%s}", more);
}

static void accepts(tt_test *t, const char *more, tt_llama_config *c)
{
	*c = (tt_llama_config){0};
	if (!TT_CHECK_OK(t, parse(t, small(t, more), c)))
		TT_CHECK_MSG(t, false, "with %s", more);
}

static void refuses(tt_test *t, const char *more, const char *part)
{
	tt_llama_config c = {.vocab_size = 7};
	const char *text = small(t, more);
	tt_status s = parse(t, text, &c);
	TT_CHECK_MSG(t, s == TT_ERR_FORMAT || s == TT_ERR_USAGE, "%s gives %s", more, tt_status_name(s));
	TT_CHECK_MSG(t, strstr(tt_error_text(), part) != NULL, "with %s the error is \"%s\", not \"%s\"", more, tt_error_text(), part);
	TT_CHECK_MSG(t, strstr(tt_error_text(), "config.json: ") != NULL, "\"%s\" does not name the file", tt_error_text());
	TT_CHECK_INT(t, c.vocab_size, 7);
}

/* ---- reading ---------------------------------------------------------------------------------------------------------- */

static void defaults(tt_test *t)
{
	tt_llama_config c;
	TT_CHECK_OK(t, parse(t, "{\"architectures\":[\"LlamaForCausalLM\"]}", &c));
	TT_CHECK_STR(t, c.architecture, "LlamaForCausalLM");
	TT_CHECK(t, c.vocab_size == 32000 && c.hidden_size == 4096 && c.num_hidden_layers == 32 && c.num_attention_heads == 32);
	TT_CHECK(t, c.num_key_value_heads == 32 && c.head_dim == 128 && c.intermediate_size == 11008 && c.max_position_embeddings == 2048);
	TT_CHECK(t, c.rms_norm_eps == 1e-6 && c.rope_theta == 10000 && c.initializer_range == 0.02 && c.rope.kind == TT_ROPE_NONE);
	TT_CHECK(t, !c.tie_word_embeddings && !c.attention_bias && !c.mlp_bias && c.sliding_window == 0 && c.dtype == NULL);
	TT_CHECK(t, c.bos == 1 && c.neos == 1 && c.eos[0] == 2);
	TT_CHECK_OK(t, parse(t, "{\"model_type\":\"mistral\"}", &c));
	TT_CHECK_STR(t, c.architecture, "MistralForCausalLM");
	TT_CHECK(t, c.num_key_value_heads == 8 && c.intermediate_size == 14336 && c.max_position_embeddings == 131072);
	TT_CHECK(t, c.sliding_window == 4096 && c.head_dim == 128);
	/* A null says: not this. */
	TT_CHECK_OK(t, parse(t, "{\"model_type\":\"mistral\",\"sliding_window\":null,\"num_key_value_heads\":null,\"head_dim\":null,"
				"\"eos_token_id\":null,\"bos_token_id\":null,\"rope_scaling\":null,\"rope_parameters\":null}", &c));
	TT_CHECK(t, c.sliding_window == 0 && c.num_key_value_heads == 32 && c.head_dim == 128 && c.neos == 0 && c.bos == -1);
	TT_CHECK_OK(t, tt_llama_read(t->arena, tt_test_tmp(t), &c)); /* the folder */
}

static void spellings(tt_test *t)
{
	tt_llama_config c;
	accepts(t, ",\"rope_theta\":5e5,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4},\"torch_dtype\":\"bfloat16\"", &c);
	TT_CHECK(t, c.rope_theta == 500000 && c.rope.kind == TT_ROPE_LINEAR && c.rope.factor == 4);
	TT_CHECK_STR(t, c.dtype, "bfloat16");
	accepts(t, ",\"rope_theta\":7,\"rope_parameters\":{\"rope_type\":\"dynamic\",\"rope_theta\":5e5,\"factor\":2.5},\"dtype\":\"float32\","
		   "\"torch_dtype\":\"bfloat16\"", &c);
	TT_CHECK(t, c.rope_theta == 500000 && c.rope.kind == TT_ROPE_DYNAMIC && c.rope.factor == 2.5);
	TT_CHECK_STR(t, c.dtype, "float32");
	accepts(t, ",\"rope_theta\":7,\"rope_parameters\":{\"rope_type\":\"default\"}", &c);
	TT_CHECK(t, c.rope_theta == 7 && c.rope.kind == TT_ROPE_NONE);
	/* rope_type before type; rope_scaling before rope_parameters, unless it is empty. */
	accepts(t, ",\"rope_scaling\":{\"type\":\"yarn\",\"rope_type\":\"linear\",\"factor\":2}", &c);
	TT_CHECK_INT(t, c.rope.kind, TT_ROPE_LINEAR);
	accepts(t, ",\"rope_scaling\":{},\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":3}", &c);
	TT_CHECK(t, c.rope.kind == TT_ROPE_LINEAR && c.rope.factor == 3);
	accepts(t, ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":5},\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":3}", &c);
	TT_CHECK(t, c.rope.factor == 5);
	accepts(t, ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
		   "\"original_max_position_embeddings\":8192}", &c);
	TT_CHECK(t, c.rope.kind == TT_ROPE_LLAMA3 && c.rope.low_freq_factor == 1 && c.rope.high_freq_factor == 4);
	TT_CHECK_INT(t, c.rope.original_max_position_embeddings, 8192);
	accepts(t, ",\"original_max_position_embeddings\":32,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":2,\"beta_fast\":16,"
		   "\"original_max_position_embeddings\":16,\"truncate\":false,\"mscale\":1,\"mscale_all_dim\":0.5,\"attention_factor\":null}", &c);
	TT_CHECK(t, c.rope.beta_fast == 16 && c.rope.beta_slow == 0 && !c.rope.truncate && c.rope.mscale_all_dim == 0.5);
	TT_CHECK_INT(t, c.rope.original_max_position_embeddings, 32);
	accepts(t, ",\"eos_token_id\":[128001,128008,128009],\"bos_token_id\":128000,\"max_position_embeddings2\":[],\"hidden_act\":\"silu\"", &c);
	TT_CHECK(t, c.neos == 3 && c.eos[2] == 128009 && c.bos == 128000);
	accepts(t, ",\"head_dim\":6.0,\"attention_bias\":true,\"mlp_bias\":true,\"tie_word_embeddings\":true,\"sliding_window\":5", &c);
	TT_CHECK(t, c.head_dim == 6 && c.attention_bias && c.mlp_bias && c.tie_word_embeddings);
	TT_CHECK_INT(t, c.sliding_window, 0); /* says nothing to a Llama */
}

static void warned(void *ctx, tt_log_level level, const char *line)
{
	if (level == TT_LOG_WARN)
		snprintf(ctx, 256, "%s", line);
}

static void refusals(tt_test *t)
{
	refuses(t, ",\"hidden_act\":\"gelu\"", "hidden_act must be \"silu\", the only one supported, is \"gelu\"");
	refuses(t, ",\"rope_scaling\":{\"type\":\"longrope\",\"factor\":2}", "rope_scaling.type must be one of default, linear, dynamic, llama3, yarn");
	refuses(t, ",\"rope_parameters\":{\"rope_type\":\"longrope\"}", "rope_parameters.rope_type must be one of default");
	refuses(t, ",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"}}", "rope_parameters.full_attention: rotary parameters by layer type");
	refuses(t, ",\"rope_scaling\":[1]", "rope_scaling must be an object, is [1]");
	refuses(t, ",\"partial_rotary_factor\":0.5", "partial_rotary_factor 0.5 is not supported");
	refuses(t, ",\"rope_parameters\":{\"partial_rotary_factor\":0.25}", "rope_parameters.partial_rotary_factor 0.25 is not supported");
	refuses(t, ",\"pretraining_tp\":2", "pretraining_tp 2 is not supported");
	refuses(t, ",\"quantization_config\":{\"bits\":4}", "quantization_config must be absent: quantized weights are not supported, is {\"bits\":4}");
	refuses(t, ",\"rope_scaling\":{\"type\":\"linear\"}", "rope_scaling.factor is missing, rope type linear needs it");
	refuses(t, ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0.5}", "factor 0.5 of rope type linear must be from 1 to 1e+09");
	refuses(t, ",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":2,\"low_freq_factor\":1}", "rope_scaling.high_freq_factor is missing");
	refuses(t, ",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":2,\"low_freq_factor\":4,\"high_freq_factor\":1}", "low_freq_factor 4 must be positive and below high_freq_factor 1");
	refuses(t, ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"beta_fast\":1,\"beta_slow\":3}", "beta_fast 1 must not be below beta_slow 3");
	refuses(t, ",\"rope_scaling\":{\"type\":\"yarn\",\"original_max_position_embeddings\":128}",
		"rope type yarn without a factor: max_position_embeddings 64 must not be below original_max_position_embeddings 128");
	refuses(t, ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":1e300}", "factor 1e+300 of rope type dynamic must be from 1 to 1e+09");
	refuses(t, ",\"rope_scaling\":{\"type\":\"yarn\",\"mscale\":-3,\"mscale_all_dim\":1}", "mscale -3 of rope type yarn must be from 0");
	refuses(t, ",\"rope_scaling\":{\"type\":\"yarn\",\"attention_factor\":1e40}", "attention_factor 1e+40 of rope type yarn must be from 0");
	refuses(t, ",\"rope_scaling\":{\"type\":\"yarn\",\"truncate\":1}", "rope_scaling.truncate must be true or false, is 1");
	refuses(t, ",\"rope_theta\":1", "rope_theta 1 must be above 1 and finite");
	refuses(t, ",\"rms_norm_eps\":\"1e-5\"", "rms_norm_eps must be a number, is \"1e-5\"");
	refuses(t, ",\"rms_norm_eps\":0", "rms_norm_eps 0 must be between 0 and 1");
	refuses(t, ",\"head_dim\":7", "head_dim 7 is odd");
	refuses(t, ",\"head_dim\":6.5", "head_dim must be a whole number, is 6.5");
	refuses(t, ",\"head_dim\":-2", "head_dim -2 must be from 1");
	refuses(t, ",\"tie_word_embeddings\":\"yes\"", "tie_word_embeddings must be true or false");
	refuses(t, ",\"dtype\":5", "dtype must be a string");
	refuses(t, ",\"eos_token_id\":[1,2,3,4,5,6,7,8,9]", "eos_token_id lists 9 tokens, at most 8");
	refuses(t, ",\"eos_token_id\":[\"a\"]", "eos_token_id must be a token id");
	refuses(t, ",\"initializer_range\":-1", "initializer_range -1");
	refuses(t, ",\"head_dim\":4,\"head_dim\":4", "duplicate object key");
	refuses(t, ",", "config.json: line 1: ");
	tt_llama_config c = {0};
	TT_CHECK_FAILS(t, parse(t, "{\"architectures\":[\"Qwen3ForCausalLM\"]}", &c), TT_ERR_FORMAT, "Qwen3ForCausalLM is not supported");
	TT_CHECK_FAILS(t, parse(t, "{\"model_type\":\"gpt2\"}", &c), TT_ERR_FORMAT, "model_type gpt2 is not supported");
	TT_CHECK_FAILS(t, parse(t, "{}", &c), TT_ERR_FORMAT, "neither architectures nor model_type");
	TT_CHECK_FAILS(t, parse(t, "{\"architectures\":[\"LlamaForCausalLM\",\"X\"]}", &c), TT_ERR_FORMAT, "a list of one name");
	TT_CHECK_FAILS(t, parse(t, "[]", &c), TT_ERR_FORMAT, "is not a JSON object");
	TT_CHECK_FAILS(t, parse(t, "{\"model_type\":\"llama\",\"num_attention_heads\":6,\"hidden_size\":32}", &c), TT_ERR_FORMAT,
		"hidden_size 32 is no multiple of num_attention_heads 6");
	TT_CHECK_FAILS(t, parse(t, "{\"model_type\":\"llama\",\"num_attention_heads\":6,\"head_dim\":8,\"num_key_value_heads\":4}", &c), TT_ERR_USAGE,
		"num_attention_heads 6 is no multiple of num_key_value_heads 4");
	TT_CHECK_FAILS(t, parse(t, "{\"model_type\":\"llama\",\"num_attention_heads\":0}", &c), TT_ERR_USAGE, "num_attention_heads 0 must be from 1");
	TT_CHECK_FAILS(t, parse(t, "{\"model_type\":\"llama\",\"vocab_size\":2147483647,\"hidden_size\":2147483646,\"head_dim\":2,"
				   "\"num_attention_heads\":2}", &c), TT_ERR_USAGE, "parameters: num_hidden_layers 32");
	TT_CHECK_FAILS(t, tt_llama_read(t->arena, tt_test_path(t, "no.json"), &c), TT_ERR_IO, "no.json: cannot open");
	/* Dropout is a matter of training, not of the weights: said, not refused. */
	char line[256] = "";
	tt_log_set_sink(warned, line);
	accepts(t, ",\"attention_dropout\":0.1", &c);
	TT_CHECK(t, strstr(line, "attention_dropout 0.1 has no effect") != NULL);
}

/* Truncated and damaged files: an error with the file's name, or a config that passes its own check. */
static void damaged(tt_test *t)
{
	const char *text = small(t, ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"mscale\":1.5},\"eos_token_id\":[1,2],\"dtype\":\"float32\"");
	size_t n = strlen(text);
	uint64_t r = t->seed + 1;
	tt_log_set_sink(warned, (char[256]){0});
	for (size_t i = 0; i < n + 4000; i++) {
		tt_mark m = tt_arena_push(t->arena);
		char *copy = tt_arena_strdup(t->arena, text);
		if (i < n)
			copy[i] = 0;
		for (size_t k = 0; i >= n && k < 1 + i % 3; k++) {
			r = r * 6364136223846793005u + 1442695040888963407u;
			copy[(r >> 33) % n] = "0123456789[]{},:\"-e.\\n "[(r >> 20) % 23];
		}
		tt_llama_config c;
		if (parse(t, copy, &c) != TT_OK)
			TT_CHECK_MSG(t, strstr(tt_error_text(), "config.json: ") != NULL, "error is \"%s\"", tt_error_text());
		else {
			TT_CHECK(t, tt_llama_params(&c) > 0 && i >= n);
			double scale, *f = TT_NEWN(t->arena, double, TT_MIN(c.head_dim, (int64_t)1 << 16) / 2);
			if (c.head_dim <= 1 << 16)
				tt_llama_inv_freq(&c, 64, f, &scale);
		}
		tt_arena_pop(t->arena, m);
	}
}

/* ---- flavors ------------------------------------------------------------------------------------------------------------ */

static void flavors(tt_test *t)
{
	static const struct { const char *name; int64_t params; } want[] = {
		/* 1B to 405B: what the models' own pages count. */
		{"debugmodel", 6163712}, {"1B", 1235814400}, {"3B", 3212749824}, {"8B", 8030261248}, {"70B", 70553706496},
		{"405B", 405853388800}, {"dense-20m", 10490112}, {"dense-100m", 125848320}, {"bytes-5m", 4852992},
	};
	int n = 0;
	for (const tt_flavor *f = tt_flavors; f->name; f++, n++) {
		TT_CHECK_OK(t, tt_llama_check(&f->config, f->name));
		TT_CHECK_MSG(t, f->config.hidden_size % f->config.num_attention_heads == 0, "%s", f->name);
		TT_CHECK_MSG(t, f->context_length <= f->config.max_position_embeddings, "%s", f->name);
	}
	TT_CHECK_INT(t, n, TT_COUNT(want));
	const tt_flavor *f = NULL;
	for (int i = 0; i < TT_COUNT(want); i++)
		if (TT_CHECK_OK(t, tt_flavor_find(want[i].name, &f)))
			TT_CHECK_MSG(t, tt_llama_params(&f->config) == want[i].params, "%s has %lld", want[i].name, (long long)tt_llama_params(&f->config));
	TT_CHECK_FAILS(t, tt_flavor_find("70b", &f), TT_ERR_USAGE, "unknown model.flavor \"70b\", did you mean \"70B\"?; there are: debugmodel, 1B");
}

static tt_status golden_config(tt_test *t, const char *name, const char *file, tt_llama_config *c)
{
	return tt_llama_read(t->arena, tt_arena_printf(t->arena, "tests/golden/%s/%s", name, file), c);
}

static const char *const CASES[] = {"base", "gqa", "tied", "rope_linear", "rope_dynamic", "rope_llama3", "rope_yarn", "attention_bias",
				    "mlp_bias", "mistral", "packed", "bf16"};

static bool same_configs(const tt_llama_config *a, const tt_llama_config *b)
{
	tt_llama_config x = *a, y = *b;
	bool text = strcmp(x.architecture, y.architecture) == 0 && x.dtype && y.dtype && strcmp(x.dtype, y.dtype) == 0;
	x.architecture = y.architecture = x.dtype = y.dtype = NULL;
	return text && memcmp(&x, &y, sizeof x) == 0;
}

/* ---- rotary tables -------------------------------------------------------------------------------------------------------- */

/* Theirs is float32 all the way, each value up to `stated` from the same formula in float64; ours is that, rounded once. */
static void check_rope(tt_test *t, const char *name, const tt_llama_config *c, const json_t *rope)
{
	const json_t *want = json_object_get(rope, "inv_freq");
	double stated = json_number_value(json_object_get(rope, "inv_freq_max_rel_diff")), scale = 0, worst = 0;
	double *f = TT_NEWN(t->arena, double, c->head_dim / 2);
	tt_llama_inv_freq(c, json_integer_value(json_object_get(rope, "seq_len")), f, &scale);
	if (!TT_CHECK_INT(t, json_array_size(want), c->head_dim / 2))
		return;
	for (int64_t i = 0; i < c->head_dim / 2; i++) {
		double w = json_number_value(json_array_get(want, (size_t)i));
		worst = fmax(worst, fabs(f[i] - w) / w);
		TT_CHECK(t, f[i] == (double)(float)f[i]);
	}
	TT_CHECK_MSG(t, worst <= stated + 0x1p-24, "%s: inv_freq differs by %g, %g is stated", name, worst, stated);
	double s = json_number_value(json_object_get(rope, "attention_scaling"));
	TT_CHECK_MSG(t, fabs(scale - s) <= 1e-15 * s, "%s: attention factor %.17g, not %.17g", name, scale, s);
}

static void golden(tt_test *t)
{
	if (access("tests/golden/base/config.json", R_OK) != 0)
		TT_SKIP(t, "tests/golden/base/config.json is not here");
	int stored = 0;
	for (int i = 0; i < TT_COUNT(CASES); i++) {
		tt_llama_config c, old;
		if (!TT_CHECK_OK(t, golden_config(t, CASES[i], "config.json", &c)) || !TT_CHECK_OK(t, golden_config(t, CASES[i], "config_v4.json", &old)))
			continue;
		TT_CHECK_MSG(t, same_configs(&c, &old), "%s: config.json and config_v4.json differ", CASES[i]);
		json_error_t why;
		json_t *expect = json_load_file(tt_arena_printf(t->arena, "tests/golden/%s/expect.json", CASES[i]), 0, &why);
		if (!TT_CHECK_MSG(t, expect, "%s: expect.json: %s", CASES[i], why.text))
			continue;
		check_rope(t, CASES[i], &c, json_object_get(expect, "rope"));
		TT_CHECK_INT(t, c.vocab_size, json_integer_value(json_object_get(expect, "vocab")));
		/* One gradient norm per parameter tensor. */
		int64_t tensors = 2 + !c.tie_word_embeddings + c.num_hidden_layers * (9 + 4 * c.attention_bias + 3 * c.mlp_bias);
		TT_CHECK_MSG(t, (int64_t)json_object_size(json_object_get(expect, "grad_norms")) == tensors, "%s: not %lld tensors", CASES[i],
			(long long)tensors);
		json_decref(expect);
		/* As many numbers as the weights that were stored with it. */
		tt_st *st = NULL;
		const char *weights = tt_arena_printf(t->arena, "tests/golden/%s/model.safetensors", CASES[i]);
		if (access(weights, R_OK) == 0 && TT_CHECK_OK(t, tt_st_open(t->arena, weights, &st))) {
			int64_t n = 0;
			for (int64_t k = 0; k < tt_st_count(st); k++)
				n += tt_st_at(st, k)->count;
			TT_CHECK_MSG(t, tt_llama_params(&c) == n, "%s: %lld parameters, %lld stored", CASES[i], (long long)tt_llama_params(&c),
				(long long)n);
			stored++;
		}
		tt_st_close(st);
	}
	TT_CHECK_INT(t, stored, 6);
	tt_llama_config c;
	TT_CHECK_OK(t, golden_config(t, "mistral", "config.json", &c));
	TT_CHECK_INT(t, c.sliding_window, 8);
	TT_CHECK_OK(t, golden_config(t, "gqa", "config.json", &c));
	TT_CHECK(t, c.num_attention_heads == 8 && c.num_key_value_heads == 2 && c.head_dim == 8 && c.rope_theta == 500000 && c.rms_norm_eps == 1e-6);
}

static void rope_tables(tt_test *t)
{
	json_error_t why;
	json_t *root = json_load_file("tests/golden/rope_tables.json", 0, &why);
	if (!root)
		TT_SKIP(t, "tests/golden/rope_tables.json is not here");
	const char *name;
	json_t *rope;
	json_object_foreach(json_object_get(root, "tables"), name, rope) {
		/* Through a config.json, as a user would have it. */
		char *p = json_dumps(json_object_get(rope, "parameters"), 0);
		tt_llama_config c;
		const char *more = tt_arena_printf(t->arena, "{\"model_type\":\"llama\",\"head_dim\":%lld,\"max_position_embeddings\":%lld,\"rope_parameters\":%s}",
			(long long)json_integer_value(json_object_get(rope, "head_dim")),
			(long long)json_integer_value(json_object_get(rope, "max_position_embeddings")), p);
		if (TT_CHECK_OK(t, parse(t, more, &c)))
			check_rope(t, name, &c, rope);
		free(p);
	}
	json_decref(root);
	/* yarn without a factor: the ratio of the two lengths. */
	tt_llama_config a, b;
	double fa[4], fb[4], sa, sb;
	accepts(t, ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":16}", &a);
	accepts(t, ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":null,\"original_max_position_embeddings\":16}", &b);
	tt_llama_inv_freq(&a, 64, fa, &sa);
	tt_llama_inv_freq(&b, 64, fb, &sb);
	TT_CHECK(t, sa == sb && sa > 1 && memcmp(fa, fb, sizeof fa) == 0);
	/* Original length so long that the ramp, from dim 2 to 5, ends beyond the last pair (values of transformers 5.24). */
	accepts(t, ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"original_max_position_embeddings\":131072}", &a);
	tt_llama_inv_freq(&a, 64, fa, &sa);
	static const double want[4] = {1, 0.10000000149011612, 0.009999999776482582, 0.0008333333535119891};
	for (int i = 0; i < 4; i++)
		TT_CHECK_MSG(t, fabs(fa[i] - want[i]) <= 0x1p-23 * want[i], "inv_freq %d is %.9g, not %.9g", i, fa[i], want[i]);
}

const tt_case tt_suite_hf[] = {
	{"defaults", defaults, TT_TIER_QUICK},
	{"spellings", spellings, TT_TIER_QUICK},
	{"refusals", refusals, TT_TIER_QUICK},
	{"damaged", damaged, TT_TIER_QUICK},
	{"flavors", flavors, TT_TIER_QUICK},
	{"golden", golden, TT_TIER_QUICK},
	{"rope_tables", rope_tables, TT_TIER_QUICK},
	{0},
};
