/* model: models as plain math over global shapes, built with ops/ builders. No parallelism, no batch dim, no hand-written backward.
 *
 * A model's file has a function that builds its graph, and a row in `tt_models`. Parameters are declared where they are used, under
 * their Hugging Face names, with the rule of their initial values.
 */
#ifndef TT_MODEL_H
#define TT_MODEL_H

#include "model/hf.h"
#include "ops/ops.h"
#include "pass/pass.h"

typedef struct tt_model_options {
	tt_dtype compute;     /* dtype of weights in use and of activations: f32 or bf16 (f64: everything is double) */
	int64_t t_max;        /* tokens of a cell */
	int64_t seqs_max;     /* sequences of a cell */
	int loss_chunks;
	int64_t context_length;
	bool eval;            /* for an evaluation graph: its metric is "eval_loss_sum" */
	bool output_logits;   /* keep logits readable after the program, as token losses are (tests, scores) */
} tt_model_options;

/* A parameter and how it starts. */
typedef struct tt_param {
	const char *name;
	tt_v state;
	tt_attr_init init;
} tt_param;

/* A graph being built, with its inputs: ids, labels, positions.. [t] i32 and `inv_valid` stat [1] = 1 / the step's valid tokens. */
typedef struct tt_builder {
	tt_graph *g;
	tt_model_options o;
	tt_v ids, labels, inv_valid;
	tt_seqs seqs;
	tt_param *params;
	int64_t nparams, cap_params;
} tt_builder;

/* Declares (or finds) parameter scope.NAME and returns it in compute dtype: a PREP cast of the fp32 master where they differ. */
tt_v tt_weight(tt_builder *b, const char *name, int ndim, const tt_dim *dims, const tt_attr_init *init);
/* The chunked loss: head and cross-entropy of each chunk of `hidden` [t,D], summed into state "loss_sum" (acc [1]). */
void tt_loss(tt_builder *b, tt_v hidden, tt_v head_vd);

/* The whole model graph of a Llama: F ends at the normed last hidden state, loss chunks follow in B. */
tt_status tt_llama_build(tt_arena *a, const tt_llama_config *c, const tt_model_options *o, tt_builder **out) TT_CHECKED;

extern const tt_layout_row tt_llama_layouts[]; /* ends with a NULL value */

/* A graph of segment INIT that fills every parameter by its rule, and zeroes every state of region optim that `with` has. */
tt_status tt_init_graph(tt_arena *a, const tt_builder *b, const tt_graph *with, tt_graph **out) TT_CHECKED;

/* Forward matrix FLOPs per token of T tokens attending `pairs` (query, key) pairs in all: 2*N_matmul + attention. For MFU (EXACT.md). */
double tt_llama_forward_flops(const tt_llama_config *c, double tokens, double pairs);

#endif
