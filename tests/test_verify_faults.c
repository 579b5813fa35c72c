/* The proof of meshes (train/verify.c) finds what is wrong and points at it: faults of many kinds, each made by a row of the layout table, a node of the typed
 * graph or of a rank's program, or what a rank is given; the report must name the value, the axis or the row. The quick tier takes a sample by seed, ci
 * all of them, proof all for several seeds. Ranks as processes must say what ranks as threads say, word for word. */
#include "launch.h"
#include "train/verify.h"
#include "ops/ops.h"
#include "tiny.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct fault fault;
typedef struct scene { /* one fault with its draws, shared by the ranks */
	const fault *f;
	int layer, rank; /* drawn */
	int ranks;
	tt_layout_row rows[64];
	tt_tamper tamper;
	float *kept[8]; /* by rank */
	char name[160], gone[160]; /* of the value at fault */
} scene;

struct fault {
	const char *what;
	int size[TT_RUN_AXES];
	bool sp;
	const char *value;      /* "%L": the drawn layer */
	const char *says[4];    /* likewise */
	void (*rows)(scene *s); /* changes the table */
	tt_status (*graph)(scene *s, const char *after, const int *coord, tt_graph *g, tt_arena *a, tt_graph **out);
	tt_status (*moment)(scene *s, tt_trainer *t, tt_moment m);
	int64_t kv;             /* 0: 2 kv heads */
	bool tied, bf16;
};

/* ---- rows ------------------------------------------------------------------------------------------------------------------------------------ */

static tt_layout_row *row(scene *s, tt_place place, const char *part, const char *axis, const char *when)
{
	for (tt_layout_row *r = s->rows; r->value; r++)
		if (r->place == place && strstr(r->value, part) && !strcmp(r->axis, axis) && (when ? r->when && !strcmp(r->when, when) : true))
			return r;
	TT_ASSERT(false, "no row of %s on %s", part, axis);
	return NULL;
}

static void row_dim(scene *s) { row(s, TT_PLACE_STORE, "*.o_proj.weight", "tp", NULL)->dim = 0; }
static void row_kv(scene *s) { row(s, TT_PLACE_USE, "*.self_attn.k|", "tp_rep", NULL)->value = "nothing"; }
static void row_norm(scene *s) { row(s, TT_PLACE_STORE, "*norm.weight", "tp", "sp")->type = TT_I; }
static void row_round(scene *s) { row(s, TT_PLACE_MAKE, "*.o_proj.acc", "tp", "!sp")->value = "embedding|*.o_proj.y|*.down_proj.acc"; }
static void row_bias(scene *s) { row(s, TT_PLACE_USE, "*.o_proj.bias", "tp", NULL)->value = "nothing"; }
static void row_keys(scene *s) { row(s, TT_PLACE_MAKE, "*.self_attn.k|", "cp", "gather")->value = "nothing"; }
static void row_max(scene *s) { row(s, TT_PLACE_MAKE, "loss.*.max|", "tp", NULL)->value = "loss.*.sum_exp|loss.*.target"; }
static void row_column(scene *s) { row(s, TT_PLACE_MAKE, "*norm.y", "tp", NULL)->value = "nothing"; }

/* ---- nodes ----------------------------------------------------------------------------------------------------------------------------------- */

static bool rank_program(const char *after) { return !strcmp(after, "localise"); }

static tt_node *node_of(scene *s, tt_graph *g, const char *op)
{
	for (int64_t i = 0; i < g->nnodes; i++)
		if (!strcmp(g->nodes[i].op->name, op) && tt_glob_match(s->name, g->values[g->nodes[i].out[0]].name))
			return &g->nodes[i];
	TT_ASSERT(false, "%s: no %s makes %s", s->f->what, op, s->name);
	return NULL;
}

/* Its attributes, to be changed. */
static void *attr(tt_node *n, tt_arena *a)
{
	void *x = tt_arena_alloc(a, n->op->attr_size);
	memcpy(x, n->attr, n->op->attr_size);
	n->attr = x;
	return x;
}

static int rank_at(const int *coord, const scene *s)
{
	int tp_rep = s->f->size[TT_TP] > 2 ? s->f->size[TT_TP] / 2 : 1, tp = s->f->size[TT_TP] / tp_rep;
	return (((coord[0] * s->f->size[TT_DP_SHARD] + coord[1]) * s->f->size[TT_CP] + coord[2]) * tp + coord[3]) * tp_rep + coord[4];
}

/* A sum or maximum that is not taken: each rank goes on with its own term. All that match. */
static tt_status not_taken(scene *s, const char *after, const int *coord, tt_graph *g, tt_arena *a, tt_graph **out)
{
	(void)coord, (void)out;
	int n = 0;
	for (int64_t i = 0; rank_program(after) && i < g->nnodes; i++)
		if (g->nodes[i].op == &tt_op_exchange && tt_glob_match(s->name, g->values[g->nodes[i].out[0]].name)) {
			tt_attr_exchange *e = attr(&g->nodes[i], a);
			e->kind = TT_EX_ONCE;
			e->index = 0;
			n++;
		}
	TT_ASSERT(n || !rank_program(after), "%s: no exchange makes %s", s->f->what, s->name);
	return TT_OK;
}

/* What should be zero but on the first member is not. */
static tt_status every_member(scene *s, const char *after, const int *coord, tt_graph *g, tt_arena *a, tt_graph **out)
{
	(void)coord, (void)out;
	if (rank_program(after))
		((tt_attr_exchange *)attr(node_of(s, g, "exchange"), a))->index = 0;
	return TT_OK;
}

/* A copy of the graph in which `make` makes one node another way. */
static tt_status with_node(scene *s, tt_graph *g, tt_arena *a, tt_v (*make)(tt_graph *to, const tt_node *n, tt_v in, tt_arena *a), tt_graph **out)
{
	const tt_node *at = node_of(s, g, "exchange");
	tt_copy c = tt_copy_begin(g, a);
	for (int64_t i = 0; i < g->nnodes; i++) {
		const tt_node *n = &g->nodes[i];
		if (n != at) {
			tt_copy_node(&c, n);
			continue;
		}
		c.to->seg = n->seg;
		c.to->group = n->group;
		c.to->scope[0] = 0;
		c.map[n->out[0]] = make(c.to, n, c.map[n->in[0]], a);
	}
	tt_copy_end(&c);
	*out = c.to;
	return tt_graph_check(c.to);
}

static tt_v twice_made(tt_graph *to, const tt_node *n, tt_v in, tt_arena *a)
{
	tt_v once = tt_node_add(to, &tt_op_exchange, n->attr, 1, &in, "=once.of.that.sum");
	return tt_node_add(to, &tt_op_exchange, n->attr, 1, &once, tt_arena_printf(a, "=%s", ((const tt_attr_exchange *)n->attr)->name));
}

/* A sum taken twice. */
static tt_status twice(scene *s, const char *after, const int *coord, tt_graph *g, tt_arena *a, tt_graph **out)
{
	(void)coord;
	return rank_program(after) ? with_node(s, g, a, twice_made, out) : TT_OK;
}

/* The other of two axes that have equal sizes. */
static tt_status other_axis(scene *s, const char *after, const int *coord, tt_graph *g, tt_arena *a, tt_graph **out)
{
	(void)out;
	if (!rank_program(after))
		return TT_OK;
	tt_attr_exchange *e = attr(node_of(s, g, "exchange"), a);
	int other = -1;
	for (int i = 0; i < TT_PLAN_AXES; i++)
		if (i < TT_RUN_AXES && s->f->size[i] > 1 && !(e->axes >> i & 1))
			other = i;
	TT_ASSERT(other >= 0, "%s: no other axis", s->f->what);
	e->axes = 1 << other;
	e->index = coord[other];
	return TT_OK;
}

/* A piece's edge one element further. */
static tt_status edge(scene *s, const char *after, const int *coord, tt_graph *g, tt_arena *a, tt_graph **out)
{
	(void)coord, (void)out;
	if (!rank_program(after))
		return TT_OK;
	tt_attr_exchange *e = attr(node_of(s, g, "exchange"), a);
	int64_t *v = TT_NEWN(a, int64_t, e->edges.n);
	memcpy(v, e->edges.v, (size_t)e->edges.n * sizeof *v);
	v[1]++;
	e->edges.v = v;
	return TT_OK;
}

/* Lines that are gathered are taken for whole heads: of one head the last rank has all. */
static tt_status whole_heads(scene *s, const char *after, const int *coord, tt_graph *g, tt_arena *a, tt_graph **out)
{
	(void)coord, (void)out;
	if (!rank_program(after))
		return TT_OK;
	tt_attr_exchange *e = attr(node_of(s, g, "exchange"), a);
	int64_t *v = TT_NEWN(a, int64_t, e->edges.n);
	v[e->edges.n - 1] = e->edges.v[e->edges.n - 1];
	TT_ASSERT(e->fine && e->edges.v[1] > 0, "%s is not dealt in lines", s->name);
	e->edges.v = v;
	return TT_OK;
}

/* Rank 1 fills its shard with values from one line further; the drawn rank with those of the shard that begins the tensor. */
static tt_status next_line(scene *s, const char *after, const int *coord, tt_graph *g, tt_arena *a, tt_graph **out)
{
	(void)out;
	if (!strcmp(after, "init") && rank_at(coord, s) == 1)
		((tt_attr_init *)attr(node_of(s, g, "fill_normal"), a))->line++;
	return TT_OK;
}

static tt_status first_slice(scene *s, const char *after, const int *coord, tt_graph *g, tt_arena *a, tt_graph **out)
{
	(void)out;
	if (!strcmp(after, "init") && rank_at(coord, s) == 1)
		((tt_attr_init *)attr(node_of(s, g, "fill_normal"), a))->line = 0;
	return TT_OK;
}

static tt_status no_window(scene *s, const char *after, const int *coord, tt_graph *g, tt_arena *a, tt_graph **out)
{
	(void)coord, (void)out;
	if (rank_program(after))
		((tt_attr_attention *)attr(node_of(s, g, "attention"), a))->window = 0;
	return TT_OK;
}

static tt_status pick_offset(scene *s, const char *after, const int *coord, tt_graph *g, tt_arena *a, tt_graph **out)
{
	(void)out;
	if (rank_program(after) && rank_at(coord, s) == 1)
		((tt_attr_vocab *)attr(node_of(s, g, "pick"), a))->first++;
	return TT_OK;
}

static tt_status embedding_offset(scene *s, const char *after, const int *coord, tt_graph *g, tt_arena *a, tt_graph **out)
{
	(void)out;
	if (rank_program(after) && rank_at(coord, s) == 1)
		((tt_attr_vocab *)attr(node_of(s, g, "embedding"), a))->first++;
	return TT_OK;
}

static tt_status decay_twice(scene *s, const char *after, const int *coord, tt_graph *g, tt_arena *a, tt_graph **out)
{
	(void)out;
	if (rank_program(after) && rank_at(coord, s) == s->rank)
		((tt_attr_adamw *)attr(node_of(s, g, "adamw"), a))->weight_decay *= 2;
	return TT_OK;
}

static tt_status refused(scene *s, const char *after, const int *coord, tt_graph *g, tt_arena *a, tt_graph **out)
{
	(void)g, (void)a, (void)out;
	if (rank_program(after) && rank_at(coord, s) == s->rank)
		TT_FAIL(TT_ERR_TYPE, "a program that rank %d cannot have", s->rank);
	return TT_OK;
}

/* A chunk's sum stored where it should be added. */
static tt_status chunk_lost(scene *s, const char *after, const int *coord, tt_graph *g, tt_arena *a, tt_graph **out)
{
	(void)coord, (void)out;
	if (rank_program(after))
		((tt_attr_accumulate *)attr(node_of(s, g, "accumulate"), a))->first = true;
	return TT_OK;
}

/* A gathered weight that is the other layer's: what a prefetch into a buffer still in use leaves. */
static tt_status other_layer(scene *s, const char *after, const int *coord, tt_graph *g, tt_arena *a, tt_graph **out)
{
	(void)coord, (void)out;
	if (!rank_program(after))
		return TT_OK;
	tt_node *n = node_of(s, g, "linear");
	tt_v *in = TT_NEWN(a, tt_v, n->nin), other = tt_value_find(g, s->gone);
	TT_ASSERT(other, "no %s", s->gone);
	memcpy(in, n->in, (size_t)n->nin * sizeof *in);
	in[1] = other;
	n->in = in;
	return TT_OK;
}

/* ---- what a rank is given ------------------------------------------------------------------------------------------------------------------- */

static int rank_of(tt_trainer *t, const scene *s) { return rank_at(tt_trainer_coord(t), s); }

static tt_status scale_seed(tt_trainer *t, double by)
{
	float x;
	TT_TRY(tt_exec_read(tt_trainer_exec(t), "inv_valid", 0, &x, 1));
	x = (float)((double)x * by);
	return tt_exec_write(tt_trainer_exec(t), "inv_valid", 0, &x, 1);
}

static tt_status scaled_loss(scene *s, tt_trainer *t, tt_moment m)
{
	(void)s;
	return m == TT_BEFORE_CELL && tt_trainer_cell(t).first == tt_trainer_cell(t).first ? scale_seed(t, tt_trainer_cell(t).T ? 2 : 1) : TT_OK;
}

static int64_t mine(tt_trainer *t, const scene *s)
{
	int cp = s->f->size[TT_CP], at = tt_trainer_coord(t)[TT_CP];
	int64_t T = tt_trainer_cell(t).T;
	return tt_deal(T, at + 1, cp) - tt_deal(T, at, cp);
}

/* The mean over this rank's own valid tokens, as if all ranks had as many. */
static tt_status own_mean(scene *s, tt_trainer *t, tt_moment m)
{
	if (m != TT_BEFORE_CELL || tt_trainer_coord(t)[TT_DP_SHARD] != 1)
		return TT_OK;
	return mine(t, s) ? scale_seed(t, 0.75) : TT_OK;
}

static tt_status change_tokens(scene *s, tt_trainer *t, const char *name, void (*change)(scene *s, tt_trainer *t, int32_t *x, int64_t n))
{
	int64_t n = mine(t, s);
	int32_t x[512];
	TT_ASSERT(n <= TT_COUNT(x), "%lld tokens", (long long)n);
	TT_TRY(tt_exec_read(tt_trainer_exec(t), name, 0, x, n));
	change(s, t, x, n);
	return tt_exec_write(tt_trainer_exec(t), name, 0, x, n);
}

/* As if this rank's tokens of each sequence came the other way round. */
static void unpermuted(scene *s, tt_trainer *t, int32_t *x, int64_t n)
{
	int32_t seq[512];
	(void)s;
	if (tt_exec_read(tt_trainer_exec(t), "seq_ids", 0, seq, n) != TT_OK)
		return;
	for (int64_t i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && seq[end] == seq[i]; end++)
			;
		for (int64_t a = i, k = end - 1; a < k; a++, k--) {
			int32_t y = x[a];
			x[a] = x[k];
			x[k] = y;
		}
	}
}

static void turned(scene *s, tt_trainer *t, int32_t *x, int64_t n)
{
	(void)s, (void)t;
	for (int64_t i = 0, k = n - 1; i < k; i++, k--) {
		int32_t y = x[i];
		x[i] = x[k];
		x[k] = y;
	}
}

static tt_status wrong_positions(scene *s, tt_trainer *t, tt_moment m)
{
	return m == TT_BEFORE_CELL ? change_tokens(s, t, "positions", unpermuted) : TT_OK;
}
/* Keys are looked for where they would lie without the permutation. */
static tt_status wrong_lines(scene *s, tt_trainer *t, tt_moment m)
{
	(void)s;
	int32_t x[512];
	int64_t n = tt_trainer_cell(t).T;
	for (int64_t i = 0; i < n; i++)
		x[i] = (int32_t)i;
	return m == TT_BEFORE_CELL ? tt_exec_write(tt_trainer_exec(t), "lines", 0, x, n) : TT_OK;
}
static tt_status wrong_labels(scene *s, tt_trainer *t, tt_moment m)
{
	return m == TT_BEFORE_CELL && rank_of(t, s) == s->rank ? change_tokens(s, t, "labels", turned) : TT_OK;
}
static tt_status wrong_ids(scene *s, tt_trainer *t, tt_moment m)
{
	return m == TT_BEFORE_CELL && rank_of(t, s) == s->rank ? change_tokens(s, t, "ids", turned) : TT_OK;
}

/* The drawn rank reads what this state was a step before. */
static tt_status stale(scene *s, tt_trainer *t, tt_moment m)
{
	if (m != TT_BEFORE_STEP || rank_of(t, s) != s->rank)
		return TT_OK;
	tt_slot x;
	TT_TRY(tt_exec_slot(tt_trainer_exec(t), s->name, &x));
	char *now = calloc((size_t)x.count, 8), **old = (char **)(void *)&s->kept[s->rank];
	tt_status st = tt_tensor_read(tt_trainer_exec(t), &x, 0, now, x.count);
	if (!st && *old && tt_trainer_steps(t)) /* 0: what an earlier run left */
		st = tt_tensor_write(tt_trainer_exec(t), &x, 0, *old, x.count);
	free(*old);
	*old = now;
	return st;
}

/* Ranks 0 and 1 have each other's shard, of a step before. */
static tt_status others_state(scene *s, tt_trainer *t, tt_moment m)
{
	int me = rank_of(t, s);
	tt_slot x;
	if (m != TT_BEFORE_STEP || me > 1)
		return TT_OK;
	TT_TRY(tt_exec_slot(tt_trainer_exec(t), s->name, &x));
	if (tt_trainer_steps(t) == 1) { /* a step lies between this and what the other reads of it */
		free(s->kept[me]);
		s->kept[me] = calloc((size_t)x.count + 64, sizeof *s->kept[me]);
		return tt_tensor_read(tt_trainer_exec(t), &x, 0, s->kept[me], x.count);
	}
	return tt_trainer_steps(t) == 2 && s->kept[!me] ? tt_tensor_write(tt_trainer_exec(t), &x, 0, s->kept[!me], x.count) : TT_OK;
}

/* Another bias correction than the other ranks'. */
static tt_status other_hyper(scene *s, tt_trainer *t, tt_moment m)
{
	if (m != TT_BEFORE_UPDATE || rank_of(t, s) != s->rank)
		return TT_OK;
	float h[4];
	TT_TRY(tt_exec_read(tt_trainer_exec(t), "hyper", 0, h, 4));
	h[1] *= 1.5f;
	return tt_exec_write(tt_trainer_exec(t), "hyper", 0, h, 4);
}

/* The first step after a resume begins with a shard of other numbers, as if it had not been loaded. */
static tt_status not_loaded(scene *s, tt_trainer *t, tt_moment m)
{
	if (m != TT_BEFORE_STEP || rank_of(t, s) != s->rank || tt_trainer_steps(t) != 2)
		return TT_OK;
	float seven[16];
	for (int i = 0; i < TT_COUNT(seven); i++)
		seven[i] = 7;
	return tt_exec_write(tt_trainer_exec(t), s->name, 0, seven, 4);
}

/* ---- the table ------------------------------------------------------------------------------------------------------------------------------ */

#define LAYER "model.layers.%L."
#define TP { 1, 1, 1, 2 }
#define FSDP { 1, 2, 1, 1 }
#define HSDP { 2, 2, 1, 1 }
#define CP { 1, 1, 2, 1 }

static const fault FAULTS[] = {
	/* rows of the table */
	{ "wrong shard dim", TP, .says = { "o_proj" }, .rows = row_dim },
	{ "keys and values of shared kv heads not I to R", { 1, 1, 1, 4 }, .says = { "attention", "tp_rep", "I" }, .rows = row_kv, .kv = 2 },
	{ "norm weights the same work under sp", TP, true, .says = { "layernorm", "axis tp", "I" }, .rows = row_norm },
	{ "rounded before the sum", TP, .says = { "o_proj", "tp", "P" }, .rows = row_round },
	{ "a row bias beside an open sum", TP, .says = { "o_proj", "tp", "bias" }, .rows = row_bias },
	{ "keys of this rank's tokens alone", CP, .says = { "attention", "axis cp" }, .rows = row_keys },
	{ "a maximum of this rank's ids alone", TP, .says = { "loss.0", "axis tp", "M" }, .rows = row_max },
	{ "column products of what is the same work", TP, .says = { "q_proj", "axis tp" }, .rows = row_column },
	/* exchanges */
	{ "a sum not taken", TP, .value = LAYER "mlp.down_proj.acc>tp.I", .says = { "%V, the conversion P to I on axis tp", "row: make \"embedding|*.o_proj.acc|*.down_proj.acc\" on tp as I" }, .graph = not_taken },
	{ "a sum taken twice", TP, .value = LAYER "self_attn.o_proj.acc>tp.I", .says = { "%V, the conversion P to I on axis tp", "2 times one rank's: summed once too often over tp" },
	  .graph = twice },
	{ "a backward sum not taken", TP, .value = "d(" LAYER "post_attention_layernorm.y)*>tp.I", .says = { "d(" LAYER "post_attention_layernorm.y)", "P to I on axis tp" },
	  .graph = not_taken },
	{ "norm weights' gradient not summed under sp", TP, true, .value = "grad." LAYER "input_layernorm.weight>tp.R*",
	  .says = { "grad." LAYER "input_layernorm.weight>tp.R, the conversion P to R on axis tp", "row: store", "*norm.weight" }, .graph = not_taken },
	{ "gradients of replicas not summed", HSDP, .value = "grad." LAYER "mlp.up_proj.weight>dp_replicate.R*",
	  .says = { "grad." LAYER "mlp.up_proj.weight>dp_replicate.R, the conversion P to R on axis dp_replicate" }, .graph = not_taken },
	{ "a norm of this rank's shards alone", FSDP, .value = "squares.*>dp_shard.R", .says = { "squares.", "P to R on axis dp_shard" }, .graph = not_taken },
	{ "a maximum not taken", TP, .value = "loss.0.max>tp.I", .says = { "loss.0.max>tp.I, the conversion M to I on axis tp" }, .graph = not_taken },
	{ "keys gathered in another order", CP, .says = { "model.layers.0.self_attn.o, attention of", "self_attn.k>cp.R", "lines" }, .moment = wrong_lines },
	{ "gathered over another axis", { 1, 2, 1, 2 }, .value = LAYER "mlp.gate_proj.weight>dp_shard.R", .says = { LAYER "mlp.gate_proj.weight>dp_shard.R" }, .graph = other_axis },
	{ "the edge of an uneven shard", FSDP, .value = "lm_head.weight>dp_shard.R", .says = { "lm_head.weight>dp_shard.R" }, .graph = edge },
	{ "lines of a kv head taken for heads", { 1, 2, 1, 2 }, .value = LAYER "self_attn.k_proj.weight>dp_shard.R",
	  .says = { "all-gather", "of dp_shard", "\"" LAYER "self_attn.k_proj.weight>dp_shard.R\": ", "lines of 64 bytes, it expects" }, .graph = whole_heads },
	{ "a replicated value twice in the norm", TP, true, .value = "square.model.norm.weight>tp.P",
	  .says = { "%V", "R to P on axis tp", "2 times" }, .graph = every_member },
	{ "a bias added by every rank", TP, .value = LAYER "self_attn.o_proj.bias>tp.P", .says = { "%V", "I to P on axis tp", "2 times" }, .graph = every_member },
	/* ops */
	{ "a mask lost under cp", CP, .value = LAYER "self_attn.o", .says = { "%V, attention of", "on all ranks" }, .graph = no_window, .tied = true },
	{ "labels' ids off by one", TP, .value = "loss.0.target", .says = { "loss.0.target, pick of", "the ranks' terms together" }, .graph = pick_offset },
	{ "tokens' ids off by one", TP, .value = "embedding", .says = { "embedding, embedding of ids", "the ranks' terms together" }, .graph = embedding_offset },
	{ "weight decay twice on a shard", FSDP, .value = "opt." LAYER "mlp.up_proj.weight.p", .says = { "%V, adamw", "on rank %R" }, .graph = decay_twice },
	{ "a chunk's loss lost", FSDP, .value = "loss_sum+#2", .says = { "loss_sum, as the program finds it", "the ranks' terms together", "dp_shard=P" }, .graph = chunk_lost },
	{ "a program that one rank refuses", FSDP, .says = { "rank %R: a program that rank %R cannot have" }, .graph = refused },
	{ "another layer's weight in the buffer", FSDP, .value = "model.layers.1.mlp.gate_proj.y",
	  .says = { "%V, linear of", "(the program takes model.layers.0.mlp.gate_proj.weight>dp_shard.R for" }, .graph = other_layer },
	/* initial values */
	{ "a shard's values from the next line", FSDP, .value = "lm_head.weight*", .says = { "lm_head.weight, as the program finds it", "on rank 1", "dp_shard=S(0)" }, .graph = next_line },
	{ "another rank's slice", TP, .value = "model.embed_tokens.weight*", .says = { "model.embed_tokens.weight, as the program finds it", "on rank 1", "tp=S(0)" }, .graph = first_slice },
	/* what is given */
	{ "a loss scaled by dp", FSDP, .says = { "inv_valid, as the loader gives it", "2 times one rank's" }, .moment = scaled_loss },
	{ "a mean of means", FSDP, .says = { "inv_valid, as the loader gives it", "rank 1", "0.75 times" }, .moment = own_mean },
	{ "positions not permuted under cp", CP, .says = { "positions, as the loader gives it" }, .moment = wrong_positions },
	{ "labels of another token", FSDP, .says = { "labels, as the loader gives it", "on rank %R" }, .moment = wrong_labels },
	{ "ids of another token", CP, .says = { "ids, as the loader gives it", "on rank %R" }, .moment = wrong_ids },
	{ "a weight of the step before", FSDP, .value = LAYER "mlp.gate_proj.weight:bf16", .says = { "step 2", "%V, as the program finds it", "on rank %R" }, .moment = stale, .bf16 = true },
	{ "optimizer state of another shard", FSDP, .value = "optim.exp_avg." LAYER "self_attn.v_proj.weight", .says = { "%V, as the program finds it", "ranks" }, .moment = others_state },
	{ "another bias correction", FSDP, .says = { "hyper, as the loader gives it", "on rank %R" }, .moment = other_hyper },
	{ "a shard that a resume leaves out", FSDP, .value = "optim.exp_avg_sq." LAYER "mlp.down_proj.weight",
	  .says = { "step 3, resumed from the save of one rank", "%V, as the program finds it", "on rank %R" }, .moment = not_loaded },
};

static void fill_in(const scene *s, const char *text, char *out, size_t cap)
{
	size_t n = 0;
	for (const char *p = text; *p && n + 1 < cap;) {
		if (p[0] == '%' && (p[1] == 'L' || p[1] == 'R')) {
			n += (size_t)snprintf(out + n, cap - n, "%d", p[1] == 'L' ? s->layer : s->rank);
			p += 2;
		} else if (p[0] == '%' && p[1] == 'V') {
			n += (size_t)snprintf(out + n, cap - n, "%s", s->name);
			p += 2;
		} else {
			out[n++] = *p++;
		}
	}
	out[n] = 0;
}

static tt_status graph_hook(void *ctx, const char *after, const int *coord, tt_graph *g, tt_arena *a, tt_graph **out)
{
	scene *s = ctx;
	*out = g;
	return s->f->graph(s, after, coord, g, a, out);
}

static tt_status moment_hook(void *ctx, tt_trainer *t, tt_moment m)
{
	scene *s = ctx;
	return s->f->moment(s, t, m);
}

static void at_rank(void *ctx, tt_run_options *o) { o->tamper = &((scene *)ctx)->tamper; }

/* `c`: this process's rank of a world that has enough; NULL: ranks are threads. What was said, in the test's arena; NULL: nothing. */
static const char *one_fault(tt_test *t, const fault *f, uint64_t *seed, tt_comm *c)
{
	scene s = { .f = f, .ranks = 1 };
	for (int i = 0; i < TT_RUN_AXES; i++)
		s.ranks *= f->size[i];
	s.layer = (int)(tiny_next(seed) % 2);
	s.rank = (int)(tiny_next(seed) % (uint64_t)s.ranks);
	int n = 0;
	while (tt_llama_layouts[n].value)
		n++;
	TT_ASSERT(n < TT_COUNT(s.rows), "%d rows", n);
	memcpy(s.rows, tt_llama_layouts, (size_t)(n + 1) * sizeof *s.rows);
	fill_in(&s, f->value ? f->value : "", s.name, sizeof s.name);
	snprintf(s.gone, sizeof s.gone, "model.layers.0.mlp.gate_proj.weight>dp_shard.R");
	if (f->rows)
		f->rows(&s);
	s.tamper = (tt_tamper){ .rows = s.rows, .graph = f->graph ? graph_hook : NULL, .moment = f->moment ? moment_hook : NULL, .ctx = &s };
	tt_llama_config m = tiny_model(VOCAB);
	m.num_hidden_layers = 2;
	m.num_key_value_heads = f->kv ? f->kv : 2;
	m.attention_bias = m.mlp_bias = !f->tied;
	m.tie_word_embeddings = f->tied;
	m.sliding_window = f->tied ? 9 : 0;
	tt_run_options o = tiny_options(m, tiny_rows(t->arena, ROWS, CONTEXT, VOCAB, 3), CONTEXT, ROWS);
	o.compute = f->bf16 ? TT_BF16 : TT_F32;
	tt_verify_mesh mesh = { .sp = f->sp, .rows = 1 };
	memcpy(mesh.size, f->size, sizeof mesh.size);
	tt_verify_options v = { .ranks = 8, .steps = 2, .fault = at_rank, .fault_ctx = &s, .list = &mesh, .nlist = 1 };
	v.comm = c;
	tt_verify_result r;
	tt_arena *a = tt_arena_create("fault");
	char *said = NULL;
	if (TT_CHECK_OK(t, tt_verify(a, &o, &v, NULL, NULL, &r))) {
		said = r.meshes[0].finding ? tt_arena_strdup(t->arena, r.meshes[0].finding) : NULL;
		TT_CHECK_MSG(t, said, "%s: not caught", f->what);
		for (int i = 0; said && i < TT_COUNT(f->says) && f->says[i]; i++) {
			char want[256];
			fill_in(&s, f->says[i], want, sizeof want);
			TT_CHECK_MSG(t, strstr(said, want), "%s: want \"%s\" in: %s", f->what, want, said);
		}
		if (t->tier == TT_TIER_PROOF)
			printf("%s: %.*s\n", f->what, said ? (int)strcspn(said, "\n") : 10, said ? said : "not caught");
	}
	tt_arena_destroy(a);
	for (int i = 0; i < TT_COUNT(s.kept); i++)
		free(s.kept[i]);
	return said;
}

static void sample(tt_test *t)
{
	enum { SOME = 5 };
	uint64_t seed = t->seed;
	for (int i = 0; i < SOME; i++)
		(void)one_fault(t, &FAULTS[tiny_next(&seed) % TT_COUNT(FAULTS)], &seed, NULL);
}

static void all(tt_test *t)
{
	uint64_t seed = t->seed;
	TT_CHECK(t, TT_COUNT(FAULTS) >= 20);
	for (int k = 0; k < (t->tier == TT_TIER_PROOF ? 3 : 1); k++)
		for (int i = 0; i < TT_COUNT(FAULTS); i++)
			(void)one_fault(t, &FAULTS[i], &seed, NULL);
}

/* Every value of a step has one rank's bits where nothing is wrong: the search finds nothing. */
static void nothing(tt_test *t)
{
	static const tt_verify_mesh MESHES[] = { { .size = { 2, 2, 1, 1 }, .rows = 2 }, { .size = { 1, 1, 2, 2 }, .sp = true, .rows = 1 },
						 { .size = { 1, 2, 1, 4 }, .rows = 1, .recompute = true } };
	for (int i = 0; i < TT_COUNT(MESHES); i++) {
		tt_llama_config m = tiny_model(VOCAB);
		m.attention_bias = m.mlp_bias = i != 1;
		m.tie_word_embeddings = i == 1;
		tt_run_options o = tiny_options(m, tiny_rows(t->arena, ROWS, CONTEXT, VOCAB, 3), CONTEXT, ROWS);
		o.compute = i == 2 ? TT_BF16 : TT_F32;
		tt_verify_options v = { .ranks = 8, .steps = 1, .list = &MESHES[i], .nlist = 1 };
		tt_verify_result r;
		if (TT_CHECK_OK(t, tt_verify(t->arena, &o, &v, NULL, NULL, &r)))
			TT_CHECK_MSG(t, !r.meshes[0].finding && r.meshes[0].values > 100, "%d: %lld values, %s", i, (long long)r.meshes[0].values, r.meshes[0].finding);
	}
}

/* ---- ranks as processes ----------------------------------------------------------------------------------------------------------------------- */

/* Which rank has an error first is chance where it is all ranks'. */
static const char *without_rank(const char *said)
{
	size_t n = strncmp(said, "rank ", 5) ? 0 : 5 + strspn(said + 5, "0123456789");
	return n > 5 && !strncmp(said + n, ": ", 2) ? said + n + 2 : said;
}

/* One that ends a world of processes, and one that reads another rank's memory. */
static bool of_threads(const fault *f) { return f->graph == edge || f->graph == whole_heads || f->moment == others_state; }

typedef struct processes { tt_test *t; bool few; } processes;

static tt_status as_processes(tt_comm *c, void *ctx)
{
	static const char *const few[] = { "a program that one rank refuses", "labels' ids off by one", "weight decay twice on a shard" };
	const processes *p = ctx;
	uint64_t seed = p->t->seed;
	for (int i = 0; i < TT_COUNT(FAULTS); i++) {
		bool wanted = !p->few;
		for (int k = 0; k < TT_COUNT(few); k++)
			wanted |= !strcmp(few[k], FAULTS[i].what);
		if (!wanted || of_threads(&FAULTS[i]))
			continue;
		uint64_t again = seed;
		const char *want = tt_comm_rank(c) ? NULL : one_fault(p->t, &FAULTS[i], &again, NULL), *said = one_fault(p->t, &FAULTS[i], &seed, c);
		if (want)
			TT_CHECK_MSG(p->t, said && !strcmp(without_rank(said), without_rank(want)), "%s: processes say: %s\nthreads: %s", FAULTS[i].what, said, want);
	}
	return TT_OK;
}

static void over_mpi(tt_test *t, int m, const char *name, bool few)
{
	processes p = { t, few };
	char *said;
	if (as_rank(t, as_processes, &p, 0))
		return;
	NEEDS(t, m);
	int status = launch(t, m, few ? 2 : 4, "", tt_arena_printf(t->arena, "%s --seed=%llu", self(t, name), (unsigned long long)t->seed), &said);
	TT_CHECK_MSG(t, status == 0 && strstr(said, "1 passed"), "%s: status %x\n%s", mpis[m].exec, (unsigned)status, said);
}

static void processes_few(tt_test *t) { over_mpi(t, 0, "verify_faults.processes", true); }
static void all_openmpi(tt_test *t) { over_mpi(t, 0, "verify_faults.every_openmpi", false); }
static void all_mpich(tt_test *t) { over_mpi(t, 1, "verify_faults.every_mpich", false); }

const tt_case tt_suite_verify_faults[] = {
	{ "sample", sample, TT_TIER_QUICK },
	{ "nothing", nothing, TT_TIER_QUICK },
	{ "processes", processes_few, TT_TIER_QUICK },
	{ "all", all, TT_TIER_CI },
	{ "every_openmpi", all_openmpi, TT_TIER_PROOF },
	{ "every_mpich", all_mpich, TT_TIER_PROOF },
	{ 0 },
};
