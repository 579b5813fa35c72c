/* hf: what a Llama-family model is, under the names Hugging Face gives its parts.
 *
 * A tt_llama_config comes from a config.json (of transformers 4.x or 5.x), or from the table of flavors, and may then be
 * changed key by key; tt_llama_check says whether it can be built. What a config.json asks for and this program does not do
 * is refused by name and value; unknown keys are passed over, as every config.json has some.
 */
#ifndef TT_MODEL_HF_H
#define TT_MODEL_HF_H

#include "base/base.h"

typedef enum tt_rope_kind { TT_ROPE_NONE, TT_ROPE_LINEAR, TT_ROPE_DYNAMIC, TT_ROPE_LLAMA3, TT_ROPE_YARN } tt_rope_kind;
const char *tt_rope_kind_name(tt_rope_kind k); /* "default", "linear", ... as rope_type spells it */

/* How inverse frequencies are stretched beyond the context a model was first trained on. Fields of other kinds are 0. */
typedef struct tt_rope_scaling {
	tt_rope_kind kind;
	double factor;                            /* all kinds; yarn: 0 = max_position_embeddings / original           */
	double low_freq_factor, high_freq_factor; /* llama3                                                            */
	double beta_fast, beta_slow;              /* yarn: 0 = 32, 1                                                   */
	double attention_factor;                  /* yarn: 0 = from factor, mscale, mscale_all_dim; cos and sin times it */
	double mscale, mscale_all_dim;            /* yarn: 0 = absent                                                  */
	bool truncate;                            /* yarn: whole dims bound the ramp                                   */
	int64_t original_max_position_embeddings; /* llama3, yarn: 0 = max_position_embeddings                         */
} tt_rope_scaling;

#define TT_MAX_EOS 8

typedef struct tt_llama_config {
	const char *architecture; /* "LlamaForCausalLM", "MistralForCausalLM" */
	int64_t vocab_size, hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim, intermediate_size;
	int64_t max_position_embeddings;
	int64_t sliding_window; /* tokens a token sees, itself included; 0: all before it */
	double rms_norm_eps, rope_theta, initializer_range;
	tt_rope_scaling rope;
	bool tie_word_embeddings, attention_bias, mlp_bias;
	int64_t bos; /* token ids; -1: none */
	int64_t eos[TT_MAX_EOS];
	int neos;
	const char *dtype; /* of the stored weights: "float32", "bfloat16", "float16"; NULL: the file does not say */
} tt_llama_config;

/* Reads `path`, a config.json or a folder with one. Missing keys have the defaults of transformers. Strings live in `a`. */
tt_status tt_llama_read(tt_arena *a, const char *path, tt_llama_config *out) TT_CHECKED;
/* Whether the numbers fit together; `where` (a path, "model") begins the error's text. */
tt_status tt_llama_check(const tt_llama_config *c, const char *where) TT_CHECKED;

/* ---- flavors ---------------------------------------------------------------------------------------------------- */

typedef struct tt_flavor {
	const char *name;       /* "8B" */
	const char *doc;
	int64_t context_length; /* what it is trained with if nothing else is said */
	tt_llama_config config;
} tt_flavor;
extern const tt_flavor tt_flavors[]; /* ended by a NULL name */
/* An unknown name is answered with the nearest and the list. */
tt_status tt_flavor_find(const char *name, const tt_flavor **out) TT_CHECKED;

/* ---- what follows from it --------------------------------------------------------------------------------------- */

/* Learnt numbers, tied embeddings counted once. */
int64_t tt_llama_params(const tt_llama_config *c);
/* The scaling with what its zeros stand for, by the comments above. The config must have passed tt_llama_check. */
tt_rope_scaling tt_llama_rope(const tt_llama_config *c);
/* inv_freq: head_dim/2 values, rounded to fp32; the angle of position p is p * inv_freq[i]. cos and sin are multiplied with
 * *attention_factor. `dynamic` is computed once, for sequences of context_length: its usual form depends on the length of the
 * text so far, so that a token's number would change as the text grows. The config must have passed tt_llama_check. */
void tt_llama_inv_freq(const tt_llama_config *c, int64_t context_length, double *inv_freq, double *attention_factor);

#endif
