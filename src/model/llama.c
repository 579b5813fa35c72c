/* llama.c: Llama (Touvron 2023, Llama 3 report 2024) and Mistral: pre-norm decoder, grouped-query attention with rotary positions,
 * SwiGLU. Names are Hugging Face's. The config is read in hf.c. Not here: parallelism, recomputation, caches: passes bring them.
 *
 * T tokens, D model, H heads, G kv heads, K head dim, F hidden, V vocabulary.
 */
#include <stdio.h>

#include "model/build.h"

typedef struct llama {
	const tt_llama_config *c;
	tt_builder *b;
	tt_graph *g;
	tt_dim d, q, kv, f, v;
	tt_v rope;
} llama;

/* Initial values as TorchTitan's llama3: 0.02, deeper layers' residual outputs smaller; embedding 1; head D^-0.5 cut at 3. */
static tt_attr_init normal(double std, double cut)
{
	return (tt_attr_init){ .std = std, .cut = cut };
}

static tt_v linear(llama *m, const char *name, tt_v x, tt_dim out, tt_dim in, double std, bool bias)
{
	int scope = tt_scope_push(m->g, "%s", name);
	tt_attr_init w_init = normal(std, 0), b_init = { 0 };
	tt_v w = tt_weight(m->b, "weight", 2, (tt_dim[]){ out, in }, &w_init);
	tt_v b = bias ? tt_weight(m->b, "bias", 1, &out, &b_init) : 0;
	tt_v y = tt_linear(m->g, x, w, b, "y");
	tt_scope_pop(m->g, scope);
	return y;
}

static tt_v norm(llama *m, const char *name, tt_v x)
{
	int scope = tt_scope_push(m->g, "%s", name);
	tt_attr_init ones = { .mean = 1 };
	tt_v y = tt_rms_norm(m->g, x, tt_weight(m->b, "weight", 1, &m->d, &ones), m->c->rms_norm_eps, "y");
	tt_scope_pop(m->g, scope);
	return y;
}

static tt_v attention(llama *m, tt_v x, double out_std)
{
	const tt_llama_config *c = m->c;
	int scope = tt_scope_push(m->g, "self_attn");
	tt_v q = tt_rope(m->g, linear(m, "q_proj", x, m->q, m->d, 0.02, c->attention_bias), m->rope, c->head_dim, "q");
	tt_v k = tt_rope(m->g, linear(m, "k_proj", x, m->kv, m->d, 0.02, c->attention_bias), m->rope, c->head_dim, "k");
	tt_v v = linear(m, "v_proj", x, m->kv, m->d, 0.02, c->attention_bias);
	tt_attr_attention a = { .head_dim = c->head_dim, .v_head_dim = c->head_dim, .group = c->num_attention_heads / c->num_key_value_heads,
				.scale = 1 / __builtin_sqrt((double)c->head_dim), .window = c->sliding_window };
	tt_v y = linear(m, "o_proj", tt_attention(m->g, q, k, v, &m->b->seqs, &a, "o"), m->d, m->q, out_std, c->attention_bias);
	tt_scope_pop(m->g, scope);
	return y;
}

static tt_v mlp(llama *m, tt_v x, double out_std)
{
	int scope = tt_scope_push(m->g, "mlp");
	tt_v gate = linear(m, "gate_proj", x, m->f, m->d, 0.02, m->c->mlp_bias);
	tt_v up = linear(m, "up_proj", x, m->f, m->d, out_std, m->c->mlp_bias);
	tt_v y = linear(m, "down_proj", tt_silu_mul(m->g, gate, up, "act"), m->d, m->f, out_std, m->c->mlp_bias);
	tt_scope_pop(m->g, scope);
	return y;
}

tt_status tt_llama_build(tt_arena *a, const tt_llama_config *c, const tt_model_options *o, tt_builder **out)
{
	TT_TRY(tt_llama_check(c, "model"));
	int64_t K = c->head_dim, H = c->num_attention_heads, G = c->num_key_value_heads;
	llama m = { .c = c, .b = tt_builder_new(a, o), .d = tt_dim_of(TT_D, c->hidden_size, 1), .q = tt_dim_of(TT_HEADS, H * K, K),
		    .kv = tt_dim_of(TT_KV_HEADS, G * K, K), .f = tt_dim_of(TT_FFN, c->intermediate_size, 1), .v = tt_dim_of(TT_VOCAB, c->vocab_size, 1) };
	m.q.group = H / G;
	tt_graph *g = m.g = m.b->g;
	double *inv_freq = TT_NEWN(a, double, K / 2), scale;
	tt_llama_inv_freq(c, o->context_length, inv_freq, &scale);
	m.rope = tt_rope_table(g, m.b->seqs.positions, inv_freq, K / 2, scale);

	tt_attr_init head_init = normal(1 / __builtin_sqrt((double)c->hidden_size), 3), embed_init = normal(1, 0);
	tt_dim vd[] = { m.v, m.d };
	tt_v embed = tt_weight(m.b, "model.embed_tokens.weight", 2, vd, c->tie_word_embeddings ? &head_init : &embed_init);
	tt_v x = tt_embedding(g, m.b->ids, embed, "model.embed_tokens.y");
	for (int64_t l = 0; l < c->num_hidden_layers; l++) {
		int scope = tt_scope_push(g, "model.layers.%d", (int)l);
		double std = 0.02 / __builtin_sqrt(2.0 * (double)(l + 1));
		x = tt_add(g, x, attention(&m, norm(&m, "input_layernorm", x), std), "h");
		x = tt_add(g, x, mlp(&m, norm(&m, "post_attention_layernorm", x), std), "y");
		tt_scope_pop(g, scope);
	}
	x = norm(&m, "model.norm", x);
	tt_loss(m.b, x, c->tie_word_embeddings ? embed : tt_weight(m.b, "lm_head.weight", 2, vd, &head_init));
	TT_TRY(tt_graph_verify(g, "model"));
	*out = m.b;
	return TT_OK;
}

double tt_llama_forward_flops(const tt_llama_config *c, double tokens, double pairs)
{
	double D = (double)c->hidden_size, q = (double)(c->num_attention_heads * c->head_dim), kv = (double)(c->num_key_value_heads * c->head_dim);
	double layer = 2 * tokens * (2 * D * q + 2 * D * kv + 3 * D * (double)c->intermediate_size) + 4 * pairs * q;
	return (double)c->num_hidden_layers * layer + 2 * tokens * D * (double)c->vocab_size;
}

/* ---- layouts ------------------------------------------------------------------------------------------------------------------------------- */

#define COLUMNS "*.q_proj.*|*.k_proj.*|*.v_proj.*|*.gate_proj.*|*.up_proj.*|model.embed_tokens.weight|lm_head.weight"
#define ROWS "*.o_proj.weight|*.down_proj.weight"
#define ROW_BIASES "*.o_proj.bias|*.down_proj.bias"

const tt_layout_row tt_llama_layouts[] = {
	/* heads swapped for tokens: attention asks for the place of every token, which the loader brings; rope for that of this rank's */
	{ TT_PLACE_STORE, "positions|seq_ids", NULL, "cp", TT_R, 0, "head_swap" },
	{ TT_PLACE_USE, "positions", "rope_table", "cp", TT_S, 0, "head_swap" },
	{ TT_PLACE_MAKE, "*.self_attn.q|*.self_attn.k|*.self_attn.v_proj.y", NULL, "cp", TT_S, 1, "head_swap" },
	{ TT_PLACE_MAKE, "*.self_attn.o", NULL, "cp", TT_S, 0, "head_swap" },
	/* data: rows of the stream; parameters lie in pieces and are gathered where they are used */
	{ TT_PLACE_STORE, "ids|labels|positions|seq_ids", NULL, "data", TT_S, 0, NULL },
	{ TT_PLACE_STORE, "lines", NULL, "dp_replicate", TT_S, 0, NULL },
	{ TT_PLACE_STORE, "lines", NULL, "dp_shard", TT_S, 0, NULL },
	{ TT_PLACE_STORE, "loss_sum|eval_loss_sum", NULL, "data", TT_P, 0, NULL },
	{ TT_PLACE_PARAM, "*", NULL, "fsdp", TT_S, 0, NULL },
	{ TT_PLACE_USE, "*.weight|*.bias", NULL, "fsdp", TT_R, 0, NULL },
	/* context parallel: a rank's queries meet the keys and values of all */
	{ TT_PLACE_MAKE, "*.self_attn.k|*.self_attn.v_proj.y", NULL, "cp", TT_R, 0, "gather" },
	/* more ranks of tp than kv heads: those that share one do the same work up to attention */
	{ TT_PLACE_STORE, "*.k_proj.*|*.v_proj.*", NULL, "tp_rep", TT_I, 0, NULL },
	{ TT_PLACE_USE, "*.input_layernorm.y", "*.k_proj.y|*.v_proj.y", "tp_rep", TT_I, 0, NULL },
	{ TT_PLACE_USE, "*.self_attn.k|*.self_attn.v_proj.y", "attention", "tp_rep", TT_R, 0, NULL },
	/* tensor parallel: column products, row products, the residual stream */
	{ TT_PLACE_STORE, COLUMNS, NULL, "tp", TT_S, 0, NULL },
	{ TT_PLACE_STORE, ROWS, NULL, "tp", TT_S, 1, NULL },
	{ TT_PLACE_STORE, ROW_BIASES "|*norm.weight", NULL, "tp", TT_R, 0, "sp" },
	{ TT_PLACE_STORE, ROW_BIASES "|*norm.weight", NULL, "tp", TT_I, 0, "!sp" },
	{ TT_PLACE_USE, ROW_BIASES, "linear", "tp", TT_P, 0, NULL },
	{ TT_PLACE_MAKE, "embedding|*.o_proj.acc|*.down_proj.acc", NULL, "tp", TT_S, 0, "sp" },
	{ TT_PLACE_MAKE, "embedding|*.o_proj.acc|*.down_proj.acc", NULL, "tp", TT_I, 0, "!sp" },
	{ TT_PLACE_MAKE, "*norm.y", NULL, "tp", TT_R, 0, NULL },
	/* the loss over a sharded vocabulary is the same work on every rank of tp */
	{ TT_PLACE_STORE, "inv_valid|loss_sum|eval_loss_sum", NULL, "tp", TT_I, 0, NULL },
	{ TT_PLACE_MAKE, "loss.*.max|loss.*.sum_exp|loss.*.target", NULL, "tp", TT_I, 0, NULL },
	{ TT_PLACE_USE, "loss.*.max", "sum_exp", "tp", TT_R, 0, NULL },
	{ 0 },
};
