/* hf_config.c: a config.json. What is read must pass its check, give finite rotations, and come back the same from the file that export
 * would write of it. */
#include "fuzz.h"

#include "ckpt/ckpt.h"

#include <math.h>
#include <stdlib.h>

enum { HEAD_DIM = 8192 }; /* beyond it only the table of frequencies grows */

static void check_rotations(const tt_llama_config *c, int64_t context)
{
	double *f = malloc((size_t)c->head_dim / 2 * sizeof *f), scale;
	tt_llama_inv_freq(c, context, f, &scale);
	FUZZ_CHECK(isfinite(scale) && scale > 0, "attention factor %g", scale);
	for (int64_t i = 0; i < c->head_dim / 2; i++)
		FUZZ_CHECK(isfinite(f[i]) && f[i] >= 0 && f[i] <= 1, "frequency %lld of %lld is %g", (long long)i, (long long)c->head_dim / 2, f[i]);
	free(f);
}

static bool same(const tt_llama_config *a, const tt_llama_config *b)
{
	const tt_rope_scaling *r = &a->rope, *s = &b->rope;
	bool rope = r->kind == s->kind && r->low_freq_factor == s->low_freq_factor && r->high_freq_factor == s->high_freq_factor &&
		    r->beta_fast == s->beta_fast && r->beta_slow == s->beta_slow && r->attention_factor == s->attention_factor && r->mscale == s->mscale &&
		    r->mscale_all_dim == s->mscale_all_dim && r->truncate == s->truncate &&
		    r->original_max_position_embeddings == s->original_max_position_embeddings;
	return rope && !strcmp(a->architecture, b->architecture) && a->vocab_size == b->vocab_size && a->hidden_size == b->hidden_size &&
	       a->num_hidden_layers == b->num_hidden_layers && a->num_attention_heads == b->num_attention_heads &&
	       a->num_key_value_heads == b->num_key_value_heads && a->head_dim == b->head_dim && a->intermediate_size == b->intermediate_size &&
	       a->max_position_embeddings == b->max_position_embeddings && a->sliding_window == b->sliding_window && a->rms_norm_eps == b->rms_norm_eps &&
	       a->rope_theta == b->rope_theta && a->initializer_range == b->initializer_range && a->tie_word_embeddings == b->tie_word_embeddings &&
	       a->attention_bias == b->attention_bias && a->mlp_bias == b->mlp_bias && a->bos == b->bos && a->neos == b->neos &&
	       !memcmp(a->eos, b->eos, sizeof *a->eos * (size_t)a->neos);
}

static void check_written(tt_arena *a, const tt_llama_config *c, const tt_ckpt_carried *source)
{
	tt_buf b = { 0 };
	tt_llama_config again;
	FUZZ_CHECK(tt_ckpt_config_json(c, "float32", source, &b) == TT_OK, "%s", tt_error_text());
	FUZZ_CHECK(tt_llama_read(a, fuzz_file(1, b.s, b.n), &again) == TT_OK, "%s\n%s", tt_error_text(), b.s);
	/* yarn: a factor that was left out is written as what it means */
	if (c->rope.kind == TT_ROPE_YARN && !c->rope.factor)
		again.rope.factor = 0;
	FUZZ_CHECK(c->rope.factor == again.rope.factor && same(c, &again), "%s another model after writing and reading:\n%s",
		   source ? "as it was carried," : "", b.s);
	tt_buf_fini(&b);
}

void fuzz_one(const uint8_t *p, size_t n)
{
	tt_arena *a = tt_arena_create("fuzz");
	tt_llama_config c;
	if (tt_llama_read(a, fuzz_file(0, p, n), &c) == TT_OK) {
		FUZZ_CHECK(tt_llama_check(&c, "f") == TT_OK, "read, yet %s", tt_error_text());
		FUZZ_CHECK(tt_llama_params(&c) > 0, "%lld parameters", (long long)tt_llama_params(&c));
		if (c.head_dim <= HEAD_DIM) {
			check_rotations(&c, 1);
			check_rotations(&c, 2048);
			check_rotations(&c, 1 << 30);
		}
		tt_ckpt_carried carried = { (const char *)p, n, c };
		check_written(a, &c, &carried);
		check_written(a, &c, NULL);
	} else {
		FUZZ_CHECK(*tt_error_text(), "an error without a text");
	}
	tt_arena_destroy(a);
}

void fuzz_seeds(void)
{
	static const char *const words[] = {
		"\"architectures\":[\"LlamaForCausalLM\"]", "\"MistralForCausalLM\"", "\"model_type\":", "\"llama\"", "\"mistral\"", "\"vocab_size\":",
		"\"hidden_size\":", "\"num_hidden_layers\":", "\"num_attention_heads\":", "\"num_key_value_heads\":", "\"head_dim\":",
		"\"intermediate_size\":", "\"max_position_embeddings\":", "\"sliding_window\":", "\"rms_norm_eps\":", "\"rope_theta\":",
		"\"initializer_range\":", "\"tie_word_embeddings\":", "\"attention_bias\":", "\"mlp_bias\":", "\"bos_token_id\":", "\"eos_token_id\":",
		"\"dtype\":", "\"torch_dtype\":", "\"rope_scaling\":{", "\"rope_parameters\":{", "\"rope_type\":", "\"type\":", "\"factor\":",
		"\"low_freq_factor\":", "\"high_freq_factor\":", "\"beta_fast\":", "\"beta_slow\":", "\"attention_factor\":", "\"mscale\":",
		"\"mscale_all_dim\":", "\"truncate\":", "\"original_max_position_embeddings\":", "\"default\"", "\"linear\"", "\"dynamic\"", "\"llama3\"",
		"\"yarn\"", "\"hidden_act\":\"silu\"", "\"pretraining_tp\":1", "\"partial_rotary_factor\":", "\"quantization_config\":", "null", "true",
		"false", "1e308", "1e-308", "-1", "2147483647", "9223372036854775807", "8192.0", "[1,2]", "{}", "0",
	};
	for (int i = 0; i < TT_COUNT(words); i++)
		fuzz_word(words[i]);
	fuzz_seed_files("", "tests/golden/*/config*.json", 4096);
	fuzz_seed_text("{\"model_type\":\"llama\"}");
	fuzz_seed_text("{\"model_type\":\"llama\",\"head_dim\":2,\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}");
	fuzz_seed_text("{\"model_type\":\"llama\",\"head_dim\":4,\"rope_theta\":1e308,\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":1e300}}");
	fuzz_seed_text("{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4}}");
	fuzz_seed_text("{\"architectures\":[\"MistralForCausalLM\"],\"sliding_window\":null,\"eos_token_id\":[2,3],\"bos_token_id\":null}");
	fuzz_seed_text("{\"model_type\":\"llama\",\"rope_scaling\":{\"rope_type\":\"yarn\",\"beta_fast\":32,\"beta_slow\":1,\"mscale\":1,\"mscale_all_dim\":0.5,"
		       "\"original_max_position_embeddings\":1024,\"truncate\":false}}");
}
