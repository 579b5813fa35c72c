/* graph: building, errors, invariants, text and hash, the reverse walk. */
#include "ops/ops.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

enum { T = 8, D = 4, F = 6, V = 10 };

static tt_graph *graph(tt_test *t) { return tt_graph_new(t->arena, NULL, false); }
static tt_dim tokens(int64_t n) { return tt_dim_of(TT_TOKENS, n, 1); }
static tt_dim width(int64_t n) { return tt_dim_of(TT_D, n, 1); }
static tt_dim ffn(int64_t n) { return tt_dim_of(TT_FFN, n, 1); }

static tt_v matrix(tt_graph *g, const char *name, tt_dtype dt, tt_dim a, tt_dim b)
{
	return tt_input(g, name, dt, dt, 2, (tt_dim[]){a, b});
}
static tt_v line(tt_graph *g, const char *name, tt_dtype dt, tt_dim a) { return tt_input(g, name, dt, dt, 1, &a); }
static tt_v ids(tt_graph *g, const char *name, int64_t n)
{
	tt_dim d = tokens(n);
	return tt_input(g, name, TT_I32, TT_NODTYPE, 1, &d);
}
static tt_v param(tt_graph *g, const char *name, int ndim, const tt_dim *d)
{
	return tt_state_new(g, name, TT_REGION_PARAM, TT_F32, ndim, d, true);
}
static const char *name_of(const tt_graph *g, tt_v v) { return tt_value_get(g, v)->name; }

static char *text_of(tt_test *t, const tt_graph *g)
{
	tt_buf b = {0};
	tt_graph_print(g, &b);
	char *s = tt_arena_strdup(t->arena, b.s ? b.s : "");
	tt_buf_fini(&b);
	return s;
}

/* ---- building ------------------------------------------------------------------------------------------------------------- */

static void case_names(tt_test *t)
{
	tt_graph *g = graph(t);
	tt_v x = matrix(g, "x", TT_F32, tokens(T), width(D)), y = matrix(g, "y", TT_F32, tokens(T), width(D));
	TT_CHECK_STR(t, name_of(g, tt_add(g, x, y, "s")), "s");
	TT_CHECK_STR(t, name_of(g, tt_add(g, x, y, "s")), "s#2");
	TT_CHECK_STR(t, name_of(g, tt_add(g, x, y, "s")), "s#3");
	TT_CHECK_STR(t, name_of(g, tt_add(g, x, y, NULL)), "sum"); /* the op's own role */
	int outer = tt_scope_push(g, "layers.%d", 3), inner = tt_scope_push(g, "mlp");
	TT_CHECK_STR(t, g->scope, "layers.3.mlp");
	tt_v z = tt_add(g, x, y, "s");
	TT_CHECK_STR(t, name_of(g, z), "layers.3.mlp.s");
	TT_CHECK_STR(t, name_of(g, tt_add(g, x, y, "=s+")), "s+"); /* taken as it is */
	TT_CHECK_STR(t, g->nodes[tt_value_get(g, z)->def].scope, "layers.3.mlp");
	tt_scope_pop(g, inner);
	TT_CHECK_STR(t, g->scope, "layers.3");
	tt_scope_pop(g, outer);
	TT_CHECK_STR(t, g->scope, "");
	TT_CHECK(t, tt_value_find(g, "layers.3.mlp.s") == z && tt_value_find(g, "s#3") && !tt_value_find(g, "s#4"));
	/* outputs of one node are neighbours, each with its role */
	tt_v parts = tt_split_tokens(g, x, 3, "part");
	TT_CHECK_STR(t, name_of(g, tt_out(parts, 2)), "part.2");
	TT_CHECK_STR(t, name_of(g, parts), "part.0");
	/* many names: the table grows and loses none */
	for (int i = 0; i < 500; i++)
		line(g, tt_arena_printf(t->arena, "many.%d", i), TT_F32, width(D));
	for (int i = 0; i < 500; i++)
		TT_CHECK_STR(t, name_of(g, tt_value_find(g, tt_arena_printf(t->arena, "many.%d", i))), tt_arena_printf(t->arena, "many.%d", i));
	TT_CHECK_OK(t, tt_graph_verify(g, "names"));
	TT_CHECK(t, !matrix(g, "x", TT_F32, tokens(T), width(D)));
	TT_CHECK_FAILS(t, tt_graph_check(g), TT_ERR_TYPE, "x: this name is taken");
}

static void case_states(tt_test *t)
{
	tt_graph *g = graph(t);
	tt_dim d[] = {ffn(F), width(D)};
	tt_v w = param(g, "w", 2, d), use = tt_state_derived(g, w, "bf16", TT_BF16, TT_PLAIN);
	TT_CHECK(t, tt_state_derived(g, w, "bf16", TT_BF16, TT_PLAIN) == use);
	TT_CHECK_STR(t, name_of(g, use), "w:bf16");
	tt_v pack = tt_state_derived(g, use, "fwd", TT_BF16, TT_PACK_FWD); /* of the master, whatever it is asked of */
	TT_CHECK_STR(t, name_of(g, pack), "w:fwd");
	TT_CHECK_INT(t, g->states[tt_value_get(g, pack)->state].source, tt_value_get(g, w)->state);
	TT_CHECK(t, g->states[tt_value_get(g, use)->state].trainable);
	TT_CHECK_INT(t, tt_value_get(g, w)->gdtype, TT_ACC);
	TT_CHECK_OK(t, tt_graph_verify(g, "states"));
}

/* The first error stays, with the scope where it happened; builders after it do nothing. */
static void case_sticky(tt_test *t)
{
	tt_graph *g = graph(t);
	tt_v x = matrix(g, "x", TT_F32, tokens(T), width(D)), w = matrix(g, "w", TT_F32, ffn(F), width(D + 1));
	int a = tt_scope_push(g, "model.layers.%d", 0), b = tt_scope_push(g, "mlp");
	int64_t nodes = g->nnodes;
	tt_v y = tt_linear(g, x, w, 0, "y");
	TT_CHECK_INT(t, y, 0);
	tt_scope_pop(g, b);
	TT_CHECK_INT(t, tt_silu_mul(g, y, y, "act"), 0);
	TT_CHECK_INT(t, tt_add(g, x, x, "sound"), 0);
	TT_CHECK_INT(t, tt_linear(g, tt_rms_norm(g, y, w, 1e-5, NULL), w, 0, NULL), 0);
	tt_scope_pop(g, a);
	TT_CHECK_INT(t, tt_graph_fail(g, "another error"), 0);
	tt_state_set(g, 0, x);
	tt_graph_root(g, 0, x);
	tt_graph_output(g, 0);
	TT_CHECK_INT(t, g->nnodes, nodes);
	TT_CHECK_FAILS(t, tt_graph_check(g), TT_ERR_TYPE, "model.layers.0.mlp: linear: dim 'k' is D 4 in x but D 5 in w");
	TT_CHECK_FAILS(t, tt_graph_verify(g, "pass"), TT_ERR_TYPE, "model.layers.0.mlp: linear: dim 'k'");
	tt_graph *out;
	TT_CHECK_FAILS(t, tt_autodiff(g, &tt_autodiff_builders, t->arena, &out), TT_ERR_TYPE, "model.layers.0.mlp: linear: dim 'k'");
}

static void check_error(tt_test *t, const tt_graph *g, const char *want)
{
	TT_CHECK_STR(t, g->status == TT_OK ? "no error" : g->error, want);
}

static void case_infer(tt_test *t)
{
	tt_graph *g = graph(t);
	tt_v x = matrix(g, "x", TT_F32, tokens(T), width(D));
	tt_v bad_role = matrix(g, "w", TT_F32, ffn(F), ffn(D));
	tt_linear(g, x, bad_role, 0, NULL);
	check_error(t, g, "linear: dim 'k' is D 4 in x but ffn 4 in w");

	g = graph(t), x = matrix(g, "x", TT_F32, tokens(T), width(D));
	tt_linear(g, x, line(g, "w", TT_F32, width(D)), 0, NULL);
	check_error(t, g, "linear: input 1, w, has 1 dims, needs 2 (tk,ok,o->to)");

	g = graph(t), x = matrix(g, "x", TT_F32, tokens(T), width(D));
	tt_linear(g, x, matrix(g, "w", TT_BF16, ffn(F), width(D)), 0, NULL);
	check_error(t, g, "linear: x x is f32, weight w is bf16");

	g = graph(t), x = matrix(g, "x", TT_F32, tokens(T), width(D));
	tt_linear(g, x, matrix(g, "w", TT_F32, ffn(F), width(D)), line(g, "b", TT_F32, ffn(F + 1)), NULL);
	check_error(t, g, "linear: dim 'o' is ffn 6 in w but ffn 7 in b");

	g = graph(t), x = matrix(g, "x", TT_F32, tokens(T), ffn(F));
	tt_linear_stat(g, x, matrix(g, "w", TT_F32, width(D), ffn(F)), NULL);
	check_error(t, g, "linear: a contraction over ffn yields acc");

	g = graph(t), x = matrix(g, "x", TT_F32, tokens(T), width(D));
	tt_linear_acc(g, x, matrix(g, "w", TT_F32, ffn(F), width(D)), 0, NULL);
	check_error(t, g, "linear: a contraction over D yields a value, not acc");

	g = graph(t), x = matrix(g, "x", TT_F32, tokens(T), width(D));
	tt_add(g, x, matrix(g, "y", TT_BF16, tokens(T), width(D)), NULL);
	check_error(t, g, "add: x and y differ in shape or dtype (f32, bf16)");

	g = graph(t), x = matrix(g, "x", TT_F32, tokens(T), width(D));
	tt_add(g, x, matrix(g, "y", TT_F32, tokens(D), width(T)), NULL); /* as many elements */
	check_error(t, g, "add: input 1, y, has not the dims of x");

	g = graph(t), x = matrix(g, "x", TT_F32, tokens(T), width(D));
	tt_round(g, x, TT_BF16, NULL);
	check_error(t, g, "round: x is f32, needs acc");

	g = graph(t);
	tt_v acc = matrix(g, "a", TT_ACC, tokens(T), width(D));
	tt_rms_norm(g, acc, line(g, "w", TT_F32, width(D)), 1e-5, NULL);
	check_error(t, g, "rms_norm: a is acc, needs f32, bf16 or f64 (round it first)");

	g = graph(t);
	tt_norm_clip(g, line(g, "s", TT_F32, tt_dim_of(TT_ONE, 3, 1)), 1);
	check_error(t, g, "norm_clip: s has 3 elements, needs 1");

	g = graph(t), x = matrix(g, "x", TT_F32, tokens(T), width(D));
	tt_v parts = tt_split_tokens(g, x, 2, NULL), back[] = {tt_out(parts, 1), parts};
	tt_concat_tokens(g, 2, back, NULL);
	check_error(t, g, "concat_tokens: chunk.1 does not follow the chunk before it");

	g = graph(t);
	tt_v w = matrix(g, "w", TT_F32, ffn(F), width(D));
	tt_split_tokens(g, w, 2, NULL);
	check_error(t, g, "split_tokens: w does not begin with all tokens of the cell");

	g = graph(t), x = matrix(g, "x", TT_F32, tokens(T), width(D));
	tt_v both[] = {x, 0};
	tt_node_add(g, &tt_op_add, NULL, 2, both, NULL);
	check_error(t, g, "add: input 1 is missing");

	for (int bad = 0; bad < 2; bad++) {
		g = graph(t);
		tt_dim seqs = tt_dim_of(TT_SEQS, 3, 1), h = tt_dim_of(TT_HEADS, 4, 2);
		tt_seqs s = {ids(g, "positions", bad ? T : T - 1), ids(g, "seq_ids", T), tt_input(g, "seq_table", TT_I32, TT_NODTYPE, 1, &seqs),
			     ids(g, "lines", T + bad)};
		tt_attr_attention a = {.head_dim = 2, .v_head_dim = 2, .group = 1, .scale = 1};
		tt_v q = matrix(g, "q", TT_F32, tokens(T), h), k = matrix(g, "k", TT_F32, tokens(T), h);
		tt_attention(g, q, k, k, &s, &a, NULL);
		check_error(t, g, bad ? "attention: lines does not have an entry for each of the 8 tokens of k"
				      : "attention: positions does not have an entry for each of the 8 tokens of q");
	}

	tt_mesh mesh = {1, {{"tp", 2, false}}};
	g = tt_graph_new(t->arena, &mesh, false), x = matrix(g, "x", TT_F32, tokens(T), width(D));
	tt_convert(g, x, "tp", TT_S, 2);
	check_error(t, g, "convert: x has no dim 2");
}

/* ---- a decoder of one layer ---------------------------------------------------------------------------------------------------- */

static tt_graph *decoder(tt_test *t, int chunks)
{
	tt_graph *g = graph(t);
	tt_dim d = width(D), vd[] = {tt_dim_of(TT_VOCAB, V, 1), d}, seqs = tt_dim_of(TT_SEQS, 3, 1), one = tt_dim_of(TT_ONE, 1, 1);
	tt_dim q = tt_dim_of(TT_HEADS, 4, 2), kv = tt_dim_of(TT_KV_HEADS, 2, 2);
	q.group = 2;
	tt_v id = ids(g, "ids", T), labels = ids(g, "labels", T);
	tt_seqs s = {ids(g, "positions", T), ids(g, "seq_ids", T), tt_input(g, "seq_table", TT_I32, TT_NODTYPE, 1, &seqs), ids(g, "lines", T)};
	tt_v seed = tt_input(g, "inv_valid", TT_F32, TT_NODTYPE, 1, &one);
	tt_v embed = param(g, "embed", 2, vd), rope = tt_rope_table(g, s.positions, (double[]){1}, 1, 1);
	tt_v h = tt_embedding(g, id, embed, "h");
	int scope = tt_scope_push(g, "layers.0");
	tt_v n = tt_rms_norm(g, h, param(g, "layers.0.norm1", 1, &d), 1e-5, "n1");
	tt_v qy = tt_rope(g, tt_linear(g, n, param(g, "layers.0.wq", 2, (tt_dim[]){q, d}), 0, "q.y"), rope, 2, "q.r");
	tt_v ky = tt_rope(g, tt_linear(g, n, param(g, "layers.0.wk", 2, (tt_dim[]){kv, d}), 0, "k.y"), rope, 2, "k.r");
	tt_v vy = tt_linear(g, n, param(g, "layers.0.wv", 2, (tt_dim[]){kv, d}), 0, "v.y");
	tt_attr_attention a = {.head_dim = 2, .v_head_dim = 2, .group = 2, .scale = 0.5};
	tt_v o = tt_attention(g, qy, ky, vy, &s, &a, "o");
	h = tt_add(g, h, tt_linear(g, o, param(g, "layers.0.wo", 2, (tt_dim[]){d, q}), 0, "o.y"), "h1");
	n = tt_rms_norm(g, h, param(g, "layers.0.norm2", 1, &d), 1e-5, "n2");
	tt_v gate = tt_linear(g, n, param(g, "layers.0.gate", 2, (tt_dim[]){ffn(F), d}), 0, "gate.y");
	tt_v up = tt_linear(g, n, param(g, "layers.0.up", 2, (tt_dim[]){ffn(F), d}), 0, "up.y");
	tt_v y = tt_linear(g, tt_silu_mul(g, gate, up, "act"), param(g, "layers.0.down", 2, (tt_dim[]){d, ffn(F)}), 0, "down.y");
	h = tt_add(g, h, y, "h2");
	tt_scope_pop(g, scope);
	tt_v x = tt_split_tokens(g, h, chunks, "hidden"), l = tt_split_tokens(g, labels, chunks, "labels.chunk");
	tt_v sum = tt_state_new(g, "loss_sum", TT_REGION_GRAD, TT_ACC, 1, &one, false), now = sum;
	for (int i = 0; i < chunks && x && l; i++) { /* tied: the head is the embedding */
		scope = tt_scope_push(g, "loss.%d", i);
		g->seg = TT_SEG_B;
		g->group = 1 + i;
		tt_v total = tt_total(g, tt_token_loss(g, tt_linear_stat(g, tt_out(x, i), embed, "logits"), tt_out(l, i)), "sum");
		tt_graph_root(g, total, seed);
		now = tt_accumulate(g, now, total, i == 0);
		tt_scope_pop(g, scope);
	}
	tt_state_set(g, sum, now);
	TT_CHECK_OK(t, tt_graph_verify(g, "build"));
	return g;
}

/* ---- verify ---------------------------------------------------------------------------------------------------------------------- */

/* A copy that may be corrupted: names and arrays its own. */
static tt_graph *copied(tt_test *t, const tt_graph *g)
{
	tt_copy c = tt_copy_begin(g, t->arena);
	for (int64_t i = 0; i < g->nnodes; i++)
		tt_copy_node(&c, &g->nodes[i]);
	tt_copy_end(&c);
	TT_CHECK_OK(t, tt_graph_verify(c.to, "copy"));
	return c.to;
}

static int64_t def_of(const tt_graph *g, const char *name) { return g->values[tt_value_find(g, name)].def; }

static void case_verify(tt_test *t)
{
	tt_graph *g = decoder(t, 1);
#define BROKEN(part, ...)                                                                                              \
	do {                                                                                                           \
		tt_graph *c = copied(t, g);                                                                            \
		__VA_ARGS__;                                                                                           \
		TT_CHECK_FAILS(t, tt_graph_verify(c, "surgery"), TT_ERR_TYPE, part);                                   \
	} while (0)
#define INPUT(node, i) (((tt_v *)(uintptr_t)c->nodes[def_of(c, node)].in)[i])
	BROKEN("after surgery: layers.0.n1: reads layers.0.h2 before it is made", INPUT("layers.0.n1", 0) = tt_value_find(c, "layers.0.h2"));
	BROKEN("after surgery: layers.0.n1: reads layers.0.n1 before it is made", INPUT("layers.0.n1", 0) = tt_value_find(c, "layers.0.n1"));
	BROKEN("after surgery: layers.0.n1: input 0 is no value", INPUT("layers.0.n1", 0) = (tt_v)c->nvalues);
	BROKEN("after surgery: layers.0.act: in F, reads layers.0.gate.y made in B: only state crosses there",
	       c->nodes[def_of(c, "layers.0.gate.y")].seg = TT_SEG_B);
	BROKEN("after surgery: layers.0.h2: in OPT, reads layers.0.h1 made in F: only state crosses there", c->nodes[def_of(c, "layers.0.h2")].seg = TT_SEG_OPT);
	BROKEN("after surgery: rms_norm: dim 'D' is D 4 in h but D 5 in layers.0.norm1", c->values[tt_value_find(c, "layers.0.norm1")].dim[0].n++);
	BROKEN("after surgery: layers.0.n1: dims or dtype are not what rms_norm infers", c->values[tt_value_find(c, "layers.0.n1")].dim[1].n++);
	BROKEN("after surgery: layers.0.act: dims or dtype are not what silu_mul infers", c->values[tt_value_find(c, "layers.0.act")].dim[1].role = TT_D);
	BROKEN("after surgery: layers.0.act: dims or dtype are not what silu_mul infers", c->values[tt_value_find(c, "layers.0.act")].dim[0].base = 1);
	BROKEN("after surgery: layers.0.act: dims or dtype are not what silu_mul infers", c->values[tt_value_find(c, "layers.0.act")].dtype = TT_BF16);
	BROKEN("after surgery: layers.0.act: dims or dtype are not what silu_mul infers", c->values[tt_value_find(c, "layers.0.act")].gdtype = TT_NODTYPE);
	BROKEN("after surgery: layers.0.act: dims or dtype are not what silu_mul infers", c->values[tt_value_find(c, "layers.0.act")].format = TT_PACK_FWD);
	BROKEN("after surgery: two values are named layers.0.q.y", c->values[tt_value_find(c, "layers.0.k.y")].name = name_of(c, tt_value_find(c, "layers.0.q.y")));
	BROKEN("after surgery: layers.0.act: is not made by the node that lists it", c->values[tt_value_find(c, "layers.0.act")].def--);
	BROKEN("after surgery: layers.0.act: silu_mul has 1 inputs, takes 2", c->nodes[def_of(c, "layers.0.act")].nin = 1);
	BROKEN("after surgery: state loss_sum: its new version layers.0.act has another shape or dtype", c->states[c->nstates - 1].next = tt_value_find(c, "layers.0.act"));
	BROKEN("after surgery: state loss_sum: its new version loss.0.nll has another shape or dtype", c->states[c->nstates - 1].next = tt_value_find(c, "loss.0.nll"));
	BROKEN("after surgery: state loss_sum: its new version inv_valid has another shape or dtype", c->states[c->nstates - 1].next = tt_value_find(c, "inv_valid"));
	BROKEN("after surgery: state embed: its value is not a state", c->states[0].value = tt_value_find(c, "h"));
#undef INPUT
#undef BROKEN
	/* layouts */
	tt_mesh mesh = {1, {{"tp", 2, false}}};
	tt_graph *m = tt_graph_new(t->arena, &mesh, false);
	tt_v x = matrix(m, "x", TT_F32, tokens(T), ffn(F));
	tt_layout s = tt_layout_all(TT_R);
	s.ax[0] = (tt_axis_type){.type = TT_S, .dim = 1};
	tt_value_set_layout(m, x, s);
	tt_v y = tt_silu_mul(m, x, x, "y"), w = tt_state_new(m, "w", TT_REGION_WORK, TT_F32, 2, tt_value_get(m, x)->dim, false);
	TT_CHECK_OK(t, tt_graph_verify(m, "build"));
	tt_state_set(m, w, y);
	TT_CHECK_FAILS(t, tt_graph_verify(m, "build"), TT_ERR_TYPE, "after build: state w: its new version y has another layout on axis tp");
	tt_value_set_layout(m, w, s);
	TT_CHECK_OK(t, tt_graph_verify(m, "build"));
	m->values[y].layout = tt_layout_all(TT_R);
	TT_CHECK_FAILS(t, tt_graph_verify(m, "build"), TT_ERR_TYPE, "after build: y: layout on axis tp is not what the rule of silu_mul says");
	m->values[y].layout = s;
	m->values[x].layout.ax[0].type = TT_P;
	TT_CHECK_FAILS(t, tt_graph_verify(m, "build"), TT_ERR_TYPE, "silu_mul: input 0, x, on axis tp: has P, a sum not yet taken");
	/* verify itself leaves no error behind */
	m->values[x].layout = s;
	TT_CHECK_OK(t, tt_graph_verify(m, "build"));
}

/* ---- text ----------------------------------------------------------------------------------------------------------------------------- */

static const char golden[] =
	"state  param embed: f32[vocab:10 D:4] d=acc\n"
	"state  param layers.0.norm1: f32[D:4] d=acc\n"
	"state  param layers.0.wq: f32[heads:4/2 D:4] d=acc\n"
	"state  param layers.0.wk: f32[kv_heads:2/2 D:4] d=acc\n"
	"state  param layers.0.wv: f32[kv_heads:2/2 D:4] d=acc\n"
	"state  param layers.0.wo: f32[D:4 heads:4/2] d=acc\n"
	"state  param layers.0.norm2: f32[D:4] d=acc\n"
	"state  param layers.0.gate: f32[ffn:6 D:4] d=acc\n"
	"state  param layers.0.up: f32[ffn:6 D:4] d=acc\n"
	"state  param layers.0.down: f32[D:4 ffn:6] d=acc\n"
	"state  grad loss_sum: acc[one:1] <- loss_sum+\n"
	"input  ids: i32[tokens:8]\n"
	"input  labels: i32[tokens:8]\n"
	"input  positions: i32[tokens:8]\n"
	"input  seq_ids: i32[tokens:8]\n"
	"input  seq_table: i32[seqs:3]\n"
	"input  lines: i32[tokens:8]\n"
	"input  inv_valid: f32[one:1]\n"
	"F      rope: f32[tokens:8 head_dim:2] = rope_table(positions) inv_freq=[1] scale=1\n"
	"F      embedding: acc[tokens:8 D:4] d=f32 = embedding(ids, embed) first=0 n=10\n"
	"F      h: f32[tokens:8 D:4] = round(embedding) dtype=f32\n"
	"F      layers.0.n1: f32[tokens:8 D:4], layers.0.rstd: f32[tokens:8] = rms_norm(h, layers.0.norm1) eps=1e-05\n"
	"F      layers.0.q.y: f32[tokens:8 heads:4/2]"
	" = linear(layers.0.n1, layers.0.wq) dtype=f32 segments=[] rounded=false\n"
	"F      layers.0.q.r: f32[tokens:8 heads:4/2] = rope(layers.0.q.y, rope) head_dim=2 inverse=false\n"
	"F      layers.0.k.y: f32[tokens:8 kv_heads:2/2]"
	" = linear(layers.0.n1, layers.0.wk) dtype=f32 segments=[] rounded=false\n"
	"F      layers.0.k.r: f32[tokens:8 kv_heads:2/2] = rope(layers.0.k.y, rope) head_dim=2 inverse=false\n"
	"F      layers.0.v.y: f32[tokens:8 kv_heads:2/2]"
	" = linear(layers.0.n1, layers.0.wv) dtype=f32 segments=[] rounded=false\n"
	"F      layers.0.o: f32[tokens:8 heads:4/2], layers.0.lse: f32[tokens:8 heads:2]"
	" = attention(layers.0.q.r, layers.0.k.r, layers.0.v.y, positions, seq_ids, seq_table, lines)"
	" head_dim=2 v_head_dim=2 group=2 scale=0.5 window=0\n"
	"F      layers.0.acc: acc[tokens:8 D:4] d=f32"
	" = linear(layers.0.o, layers.0.wo) dtype=acc segments=[0,0,0,0,2,2,2,2,4] rounded=false\n"
	"F      layers.0.o.y: f32[tokens:8 D:4] = round(layers.0.acc) dtype=f32\n"
	"F      layers.0.h1: f32[tokens:8 D:4] = add(h, layers.0.o.y)\n"
	"F      layers.0.n2: f32[tokens:8 D:4], layers.0.rstd#2: f32[tokens:8]"
	" = rms_norm(layers.0.h1, layers.0.norm2) eps=1e-05\n"
	"F      layers.0.gate.y: f32[tokens:8 ffn:6]"
	" = linear(layers.0.n2, layers.0.gate) dtype=f32 segments=[] rounded=false\n"
	"F      layers.0.up.y: f32[tokens:8 ffn:6]"
	" = linear(layers.0.n2, layers.0.up) dtype=f32 segments=[] rounded=false\n"
	"F      layers.0.act: f32[tokens:8 ffn:6] = silu_mul(layers.0.gate.y, layers.0.up.y)\n"
	"F      layers.0.acc#2: acc[tokens:8 D:4] d=f32"
	" = linear(layers.0.act, layers.0.down) dtype=acc segments=[0,0,1,2,3,3,4,5,6] rounded=false\n"
	"F      layers.0.down.y: f32[tokens:8 D:4] = round(layers.0.acc#2) dtype=f32\n"
	"F      layers.0.h2: f32[tokens:8 D:4] = add(layers.0.h1, layers.0.down.y)\n"
	"F      hidden.0: f32[tokens:8 D:4] = split_tokens(layers.0.h2)\n"
	"F      labels.chunk.0: i32[tokens:8] = split_tokens(labels)\n"
	"B      loss.0.logits: f32[tokens:8 vocab:10] = linear(hidden.0, embed) dtype=f32 segments=[] rounded=false\n"
	"B      loss.0.max: f32[tokens:8] = row_max(loss.0.logits)\n"
	"B      loss.0.sum_exp: acc[tokens:8] = sum_exp(loss.0.logits, loss.0.max) segments=[0,1,2,3,5,6,7,8,10]\n"
	"B      loss.0.sum_exp.y: f32[tokens:8] = round(loss.0.sum_exp) dtype=f32\n"
	"B      loss.0.target: acc[tokens:8] = pick(loss.0.logits, labels.chunk.0) first=0 n=10\n"
	"B      loss.0.target.y: f32[tokens:8] = round(loss.0.target) dtype=f32\n"
	"B      loss.0.lse: f32[tokens:8] = lse(loss.0.max, loss.0.sum_exp.y)\n"
	"B      loss.0.nll: f32[tokens:8]"
	" = nll(loss.0.logits, labels.chunk.0, loss.0.lse, loss.0.target.y) first=0 n=10\n"
	"B      loss.0.sum: acc[one:1] d=f32 = total(loss.0.nll)\n"
	"B      loss_sum+: acc[one:1] = accumulate(loss_sum, loss.0.sum) first=true\n"
	"root   loss.0.sum seed inv_valid\n";

static void case_text(tt_test *t)
{
	tt_graph *g = decoder(t, 1);
	TT_CHECK_STR(t, text_of(t, g), golden);
	TT_CHECK_STR(t, text_of(t, decoder(t, 1)), golden);
	TT_CHECK(t, tt_graph_hash(g) == tt_graph_hash(decoder(t, 1)));
	TT_CHECK(t, tt_graph_hash(g) != tt_graph_hash(decoder(t, 2)));
	TT_CHECK_STR(t, text_of(t, copied(t, g)), golden);
	TT_CHECK_STR(t, text_of(t, tt_graph_erase(g, t->arena)), golden);
}

/* Every sample of every op: a copy has its text, and any change of any attribute changes text and hash. */
static void case_attrs(tt_test *t)
{
	static const int64_t zero = 0;
	int changed = 0;
	for (int i = 0; tt_ops[i]; i++)
		for (int which = 0; which < 16; which++) {
			tt_mesh mesh = {1, {{"tp", 1, false}}};
			tt_graph *g = tt_graph_new(t->arena, &mesh, false);
			if (!tt_ops[i]->sample(g, which))
				break;
			if (!TT_CHECK_OK(t, tt_graph_verify(g, "sample")))
				continue;
			TT_CHECK_STR(t, text_of(t, copied(t, g)), text_of(t, g));
			tt_node *n = &g->nodes[g->nnodes - 1];
			uint64_t hash = tt_graph_hash(g);
			const void *attr = n->attr;
			for (const tt_attr *f = n->op->attrs; f && f->name; f++) {
				char *c = tt_arena_alloc(t->arena, n->op->attr_size);
				memcpy(c, attr, n->op->attr_size);
				void *p = c + f->offset;
				tt_ints *ints = p;
				tt_reals *reals = p;
				switch (f->kind) {
				case TT_ATTR_INT:
					++*(int64_t *)p;
					break;
				case TT_ATTR_BOOL:
					*(bool *)p = !*(bool *)p;
					break;
				case TT_ATTR_REAL:
					*(double *)p = *(double *)p * (1 + 1e-8) + 1e-9;
					break;
				case TT_ATTR_DTYPE:
					*(tt_dtype *)p = *(tt_dtype *)p == TT_F64 ? TT_BF16 : TT_F64;
					break;
				case TT_ATTR_INTS:
					*ints = ints->n ? (tt_ints){ints->n - 1, ints->v} : (tt_ints){1, &zero};
					break;
				case TT_ATTR_REALS:
					reals->n--;
					break;
				case TT_ATTR_STR:
					*(const char **)p = "other";
					break;
				}
				n->attr = c;
				TT_CHECK_MSG(t, tt_graph_hash(g) != hash, "%s: the hash does not see attribute %s", n->op->name, f->name);
				n->attr = attr;
				changed++;
			}
			TT_CHECK(t, tt_graph_hash(g) == hash);
		}
	TT_CHECK(t, changed > 30);
}

/* What the hash sees of values: name, dtype, dims, roles, units, format, layout. */
static void case_hash(tt_test *t)
{
	tt_mesh mesh = {1, {{"tp", 2, false}}};
	tt_graph *g = tt_graph_new(t->arena, &mesh, false);
	tt_v x = matrix(g, "x", TT_F32, tokens(T), width(D));
	tt_value keep = g->values[x];
	uint64_t hash = tt_graph_hash(g);
#define SEEN(...)                                                                                                      \
	do {                                                                                                           \
		tt_value *v = &g->values[x];                                                                           \
		__VA_ARGS__;                                                                                           \
		TT_CHECK_MSG(t, tt_graph_hash(g) != hash, "the hash does not see %s", #__VA_ARGS__);                   \
		*v = keep;                                                                                             \
	} while (0)
	SEEN(v->name = "y");
	SEEN(v->dtype = TT_BF16);
	SEEN(v->gdtype = TT_ACC);
	SEEN(v->format = TT_PACK_DX);
	SEEN(v->dim[0].n++);
	SEEN(v->dim[0].base++);
	SEEN(v->dim[1].unit = 2);
	SEEN(v->dim[1].role = TT_FFN);
	SEEN(v->ndim = 1);
	SEEN(v->layout.ax[0].type = TT_I);
	SEEN(v->layout.ax[0] = (tt_axis_type){.type = TT_S, .dim = 1});
#undef SEEN
	TT_CHECK(t, tt_graph_hash(g) == hash);
}

/* ---- the reverse walk ------------------------------------------------------------------------------------------------------------------- */

/* Lines of a graph's text that make a value whose name begins with `prefix`, without the shapes. */
static const char *makers(tt_test *t, const tt_graph *g, const char *prefix)
{
	tt_buf b = {0};
	for (int64_t i = 0; i < g->nnodes; i++) {
		const tt_node *n = &g->nodes[i];
		if (strncmp(name_of(g, n->out[0]), prefix, strlen(prefix)))
			continue;
		tt_buf_printf(&b, "%s = %s(", name_of(g, n->out[0]), n->op->name);
		for (int k = 0; k < n->nin; k++)
			tt_buf_printf(&b, "%s%s", k ? ", " : "", name_of(g, n->in[k]));
		tt_buf_str(&b, ")\n");
	}
	char *s = tt_arena_strdup(t->arena, b.s ? b.s : "");
	tt_buf_fini(&b);
	return s;
}

static tt_graph *differentiated(tt_test *t, const tt_graph *g)
{
	tt_graph *out = NULL;
	TT_CHECK_OK(t, tt_autodiff(g, &tt_autodiff_builders, t->arena, &out));
	return out;
}

/* A value with three products and two plain uses, written in an order in which they do not arrive: acc terms are added first, ascending by
 * consumer, and rounded once; then come the rounded terms, ascending. */
static void case_terms(tt_test *t)
{
	tt_graph *g = graph(t);
	tt_dim d = width(D), one = tt_dim_of(TT_ONE, 1, 1), fd[] = {ffn(F), d};
	tt_v x0 = matrix(g, "x0", TT_F32, tokens(T), d), seed = tt_input(g, "seed", TT_F32, TT_NODTYPE, 1, &one);
	tt_v x = tt_rms_norm(g, x0, param(g, "w0", 1, &d), 1e-5, "x");
	tt_v a = tt_linear(g, x, param(g, "wa", 2, fd), 0, "a");
	tt_v n1 = tt_rms_norm(g, x, param(g, "wn1", 1, &d), 1e-5, "n1");
	tt_v b = tt_linear(g, x, param(g, "wb", 2, fd), 0, "b");
	tt_v n2 = tt_rms_norm(g, x, param(g, "wn2", 1, &d), 1e-5, "n2");
	tt_v c = tt_linear(g, x, param(g, "wc", 2, fd), 0, "c");
	tt_v y = tt_linear(g, tt_silu_mul(g, tt_add(g, b, c, "bc"), a, "act"), param(g, "wy", 2, (tt_dim[]){d, ffn(F)}), 0, "y");
	tt_v all = tt_add(g, tt_add(g, n2, n1, "n"), y, "all");
	tt_v labels = ids(g, "labels", T);
	tt_v logits = tt_linear_stat(g, all, param(g, "head", 2, (tt_dim[]){tt_dim_of(TT_VOCAB, V, 1), d}), "logits");
	tt_graph_root(g, tt_total(g, tt_token_loss(g, logits, labels), "loss"), seed);
	tt_graph *o = differentiated(t, g);
	if (!o)
		return;
	/* names of consumers' results are theirs, whatever order the backward made them in */
	const char *dx[5];
	int ndx = 0;
	for (int64_t i = 0; i < o->nnodes; i++) { /* consumers of x in the forward, in order, and the dx that each has */
		const tt_node *n = &o->nodes[i];
		if (n->seg != TT_SEG_F || n->nin < 1 || n->in[0] != tt_value_find(o, "x"))
			continue;
		for (int64_t k = i + 1; k < o->nnodes; k++) {
			const tt_node *m = &o->nodes[k];
			bool product = n->op == &tt_op_linear && m->op == &tt_op_linear_dx && m->in[1] == n->in[1];
			if (product || (n->op == &tt_op_rms_norm && m->op == &tt_op_rms_norm_dx && m->in[2] == n->in[1]))
				dx[ndx++] = name_of(o, m->out[0]);
		}
	}
	if (!TT_CHECK_INT(t, ndx, 5))
		return;
	const char *want = tt_arena_printf(t->arena,
		"d(x).sum = add(%s, %s)\n"
		"d(x).sum#2 = add(d(x).sum, %s)\n"
		"d(x) = round(d(x).sum#2)\n"
		"d(x).sum#3 = add(d(x), %s)\n"
		"d(x).sum#4 = add(d(x).sum#3, %s)\n", dx[0], dx[2], dx[4], dx[1], dx[3]);
	TT_CHECK_STR(t, makers(t, o, "d(x)"), want);
	TT_CHECK_INT(t, tt_value_get(o, tt_value_find(o, "d(x).sum#2"))->dtype, TT_ACC);
	TT_CHECK_INT(t, tt_value_get(o, tt_value_find(o, "d(x)"))->dtype, TT_F32);
	/* x0 needs no gradient: nothing is computed for it */
	TT_CHECK_STR(t, makers(t, o, "d(x0)"), "");
	/* a gradient of each parameter, acc, in the state of its name */
	for (int64_t i = 0; i < g->nstates; i++) {
		tt_v s = tt_value_find(o, tt_arena_printf(t->arena, "grad.%s", g->states[i].name));
		if (TT_CHECK_MSG(t, s, "no gradient of %s", g->states[i].name)) {
			TT_CHECK_INT(t, tt_value_get(o, s)->dtype, TT_ACC);
			TT_CHECK_INT(t, o->states[tt_value_get(o, s)->state].region, TT_REGION_GRAD);
			TT_CHECK(t, o->states[tt_value_get(o, s)->state].next != 0);
		}
	}
}

/* Chunks: forward, then at once its backward, then the next; the rest of the backward after the last. */
static void case_chunks(tt_test *t)
{
	enum { N = 3 };
	tt_graph *g = decoder(t, N), *o = differentiated(t, g);
	if (!o)
		return;
	int32_t group = 0;
	bool backward[N + 1] = {false}, rest = false;
	for (int64_t i = 0; i < o->nnodes; i++) {
		const tt_node *n = &o->nodes[i];
		if (n->seg == TT_SEG_F) {
			TT_CHECK(t, group == 0 && n->group == 0);
			continue;
		}
		TT_CHECK_INT(t, n->seg, TT_SEG_B);
		if (!n->group) {
			rest = true;
			continue;
		}
		TT_CHECK_MSG(t, !rest && n->group >= group, "%s of chunk %d stands behind chunk %d", name_of(o, n->out[0]), n->group - 1, group - 1);
		group = n->group;
		backward[group] |= n->op->cls == TT_CLASS_BACKWARD;
		if (n->op->cls == TT_CLASS_FORWARD)
			TT_CHECK_MSG(t, !backward[group], "%s stands in the backward", name_of(o, n->out[0]));
	}
	TT_CHECK(t, group == N && backward[1] && backward[N] && rest);
	/* one chain per accumulator; only its first link may store. The tied table: every chunk's head, then the look-up */
	int firsts = 0, links = 0;
	for (int64_t i = 0; i < o->nnodes; i++) {
		const tt_node *n = &o->nodes[i];
		if (n->op != &tt_op_accumulate)
			continue;
		bool first = ((const tt_attr_accumulate *)n->attr)->first;
		TT_CHECK_MSG(t, first == (tt_value_get(o, n->in[0])->kind == TT_STATE), "%s", name_of(o, n->out[0]));
		firsts += first;
		links++;
	}
	TT_CHECK_INT(t, firsts, 11);        /* ten parameters and the loss */
	TT_CHECK_INT(t, links, 11 + 2 + 3); /* two more chunks of the loss; two more chunks and the look-up of the table */
	TT_CHECK_STR(t, makers(t, o, "grad.embed+"),
		     "grad.embed+ = accumulate(grad.embed, loss.0.dw)\n"
		     "grad.embed+#2 = accumulate(grad.embed+, loss.1.dw)\n"
		     "grad.embed+#3 = accumulate(grad.embed+#2, loss.2.dw)\n"
		     "grad.embed+#4 = accumulate(grad.embed+#3, dw)\n");
	tt_v s = tt_value_find(o, "grad.embed");
	TT_CHECK_STR(t, name_of(o, o->states[tt_value_get(o, s)->state].next), "grad.embed+#4");
	/* the hidden state's gradient: acc of each chunk joined, rounded once where it is one value again */
	TT_CHECK_STR(t, makers(t, o, "d(layers.0.h2)"), "d(layers.0.h2) = round(concat)\n");
	TT_CHECK_STR(t, text_of(t, copied(t, o)), text_of(t, o));
	TT_CHECK_STR(t, text_of(t, differentiated(t, g)), text_of(t, o));
}

/* What the walk refuses: a chunk's value that no gradient can enter, a gradient that is no acc. */
static void case_refused(tt_test *t)
{
	tt_graph *g = graph(t), *o = NULL;
	tt_dim d = width(D), one = tt_dim_of(TT_ONE, 1, 1);
	tt_v seed = tt_input(g, "seed", TT_F32, TT_NODTYPE, 1, &one);
	tt_v p = param(g, "p", 2, (tt_dim[]){tokens(T), d}), q = param(g, "q", 2, (tt_dim[]){tokens(T), d});
	tt_v s = tt_silu_mul(g, p, q, "s"); /* its gradient is elementwise, and so no sum that an accumulator could take */
	tt_v w = param(g, "w", 2, (tt_dim[]){tt_dim_of(TT_VOCAB, V, 1), d});
	tt_graph_root(g, tt_total(g, tt_token_loss(g, tt_linear_stat(g, s, w, "logits"), ids(g, "labels", T)), "loss"), seed);
	TT_CHECK_FAILS(t, tt_autodiff(g, &tt_autodiff_builders, t->arena, &o), TT_ERR_TYPE, "p: gradient term dgate is f32, needs acc");
	TT_CHECK(t, o == NULL);
}

const tt_case tt_suite_graph[] = {
	{"names", case_names, TT_TIER_QUICK},
	{"states", case_states, TT_TIER_QUICK},
	{"sticky", case_sticky, TT_TIER_QUICK},
	{"infer", case_infer, TT_TIER_QUICK},
	{"verify", case_verify, TT_TIER_QUICK},
	{"text", case_text, TT_TIER_QUICK},
	{"attributes", case_attrs, TT_TIER_QUICK},
	{"hash", case_hash, TT_TIER_QUICK},
	{"terms", case_terms, TT_TIER_QUICK},
	{"chunks", case_chunks, TT_TIER_QUICK},
	{"refused", case_refused, TT_TIER_QUICK},
	{0},
};
