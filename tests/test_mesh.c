/* Meshes of ranks against one rank: the same bits of every parameter and optimizer state in `exact`. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tiny.h"

enum { MESH_STEPS = 3, MAX_RANKS = 8 };

typedef struct mesh_run {
	tt_test *t;
	tt_run_options o;
	int size[TT_RUN_AXES];
	pthread_mutex_t lock;
	tiny_end end;       /* hashes: sums over the shards */
	int64_t shards[TINY_STATES];
	char wrong[256];
} mesh_run;

/* Hash of a state as it lies on this rank, by place in the whole tensor. */
static tt_status shard_hash(tt_trainer *tr, const tt_slot *s, uint64_t *out)
{
	tt_piece p[2] = { tt_trainer_piece(tr, s->name, 0), s->ndim > 1 ? tt_trainer_piece(tr, s->name, 1) : (tt_piece){ 0, 1, 1 } };
	int64_t limbs = s->plane ? 3 : 1;
	*out = 0;
	int64_t *v = calloc((size_t)(s->count + 1), (size_t)(8 * limbs));
	tt_status st = tt_exec_read(tt_trainer_exec(tr), s->name, 0, v, s->count);
	for (int64_t i = 0; i < s->count && !st; i++) {
		int64_t at = (p[0].start + i / p[1].n) * p[1].whole + p[1].start + i % p[1].n;
		uint32_t bits;
		memcpy(&bits, (char *)v + 4 * i, 4);
		*out += tt_hash_element(tt_hash_index(at), bits);
	}
	free(v);
	return st;
}

static bool sharded(const tt_graph *g, const char *name, int ax)
{
	return g->mesh.ax[ax].size > 1 && tt_value_get(g, tt_value_find(g, name))->layout.ax[ax].type == TT_S;
}

static tt_status rank_steps(mesh_run *m, tt_trainer *tr, int rank)
{
	for (int i = 0; i < MESH_STEPS; i++) {
		tt_step_report r;
		TT_TRY(tt_trainer_step(tr, &r));
		pthread_mutex_lock(&m->lock);
		if (rank == 0) {
			m->end.loss[i] = r.loss;
			m->end.norm[i] = r.grad_norm;
		}
		pthread_mutex_unlock(&m->lock);
	}
	int64_t n;
	const tt_slot *s = tt_exec_states(tt_trainer_exec(tr), &n);
	const tt_graph *g = tt_trainer_typed(tr);
	int k = 0;
	for (int64_t i = 0; i < n; i++) {
		if (s[i].source >= 0 || (s[i].region != TT_REGION_PARAM && s[i].region != TT_REGION_OPTIM))
			continue;
		uint64_t h;
		TT_TRY(shard_hash(tr, &s[i], &h));
		bool owner = true; /* the first of those who hold the same */
		for (int ax = 0; ax < TT_RUN_AXES; ax++)
			owner &= sharded(g, s[i].name, ax) || tt_mesh_coord(TT_RUN_AXES, m->size, ax, rank) == 0;
		pthread_mutex_lock(&m->lock);
		m->end.state[k].name = tt_value_get(tt_trainer_model(tr), 1) ? tt_arena_strdup(m->t->arena, s[i].name) : "";
		if (owner)
			m->end.state[k].hash += h;
		m->shards[k] += s[i].count;
		pthread_mutex_unlock(&m->lock);
		k++;
	}
	pthread_mutex_lock(&m->lock);
	m->end.n = k;
	pthread_mutex_unlock(&m->lock);
	return TT_OK;
}

static tt_status rank_main(tt_comm *c, void *ctx)
{
	mesh_run *m = ctx;
	tt_run_options o = m->o;
	memcpy(o.mesh.size, m->size, sizeof m->size);
	o.mesh.comm = c;
	tt_trainer *tr;
	TT_TRY(tt_trainer_create(&o, &tr));
	tt_status s = rank_steps(m, tr, tt_comm_rank(c));
	tt_trainer_destroy(tr);
	return s;
}

static bool run_mesh(tt_test *t, const tt_run_options *o, const int *size, tiny_end *out)
{
	mesh_run m = { .t = t, .o = *o, .end.steps = MESH_STEPS, .lock = PTHREAD_MUTEX_INITIALIZER };
	memcpy(m.size, size, sizeof m.size);
	int n = 1;
	for (int i = 0; i < TT_RUN_AXES; i++)
		n *= size[i];
	if (!TT_CHECK_OK(t, tt_comm_threads(n, &(tt_comm_options){ .init_timeout_s = 60 }, rank_main, &m)))
		return false;
	*out = m.end;
	return true;
}

static const struct { int size[TT_RUN_AXES]; bool sp; } MESHES[] = {
	{ { 2, 1, 1, 1 }, false }, { { 1, 2, 1, 1 }, false }, { { 3, 1, 1, 1 }, false }, { { 1, 3, 1, 1 }, false },
	{ { 2, 2, 1, 1 }, false }, { { 1, 1, 1, 2 }, false }, { { 1, 2, 1, 2 }, false }, { { 2, 2, 1, 2 }, false },
	{ { 1, 1, 2, 1 }, false }, { { 1, 1, 3, 1 }, false }, { { 2, 1, 2, 1 }, false }, { { 1, 2, 2, 1 }, false }, { { 1, 1, 2, 2 }, true }, { { 1, 2, 2, 2 }, true },
	{ { 1, 1, 1, 2 }, true }, { { 2, 1, 1, 2 }, true }, { { 1, 2, 1, 2 }, true },
};

static void equal_bits(tt_test *t, tt_dtype compute)
{
	tt_llama_config m = tiny_model(VOCAB);
	m.hidden_size = 32;
	m.head_dim = 8;
	m.intermediate_size = 48;
	m.attention_bias = m.mlp_bias = true;
	tt_run_options o = tiny_options(m, tiny_rows(t->arena, ROWS * MESH_STEPS, CONTEXT, VOCAB, 3), CONTEXT, ROWS);
	o.compute = compute;
	o.loss_chunks = 3;
	o.exec.numerics = TT_EXACT;
	tiny_end want, got;
	if (!run_mesh(t, &o, (int[]){ 1, 1, 1, 1 }, &want))
		return;
	for (int i = 0; i < TT_COUNT(MESHES); i++) {
		o.mesh.sp = MESHES[i].sp;
		o.tokens_per_microbatch = (i % 2 ? 1 : 2) * CONTEXT;
		const int *z = MESHES[i].size;
		if (run_mesh(t, &o, z, &got))
			tiny_same(t, &want, &got, tt_arena_printf(t->arena, "dp_replicate %d, dp_shard %d, cp %d, tp %d%s", z[0], z[1], z[2], z[3], MESHES[i].sp ? ", sp" : ""));
	}
}

static void exact_f32(tt_test *t) { equal_bits(t, TT_F32); }
static void exact_bf16(tt_test *t) { equal_bits(t, TT_BF16); }

const tt_case tt_suite_mesh[] = {
	{ "exact_f32", exact_f32, TT_TIER_QUICK },
	{ "exact_bf16", exact_bf16, TT_TIER_QUICK },
	{ 0 },
};
