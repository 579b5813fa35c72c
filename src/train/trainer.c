/* trainer.c: one rank's run: graphs to programs, a step, a validation. */
#include <stdio.h>
#include <stdlib.h>

#include "ckpt/safetensors.h"
#include "train/internal.h"
#include "train/team.h"

enum { EMPTY_STEPS = 8 }; /* without a valid token, from the start: the run is ended */

struct tt_trainer {
	tt_arena *arena;
	tt_run_options o;
	tt_builder *model, *eval_model;
	tt_graph *typed;       /* on the mesh, before it became this rank's */
	struct { tt_graph *init, *train, *eval; } mesh; /* the same on every rank: what ranks' graphs are made of */
	tt_graph *train, *eval;
	tt_plan plan;          /* how values lie on the mesh */
	int ranks;
	tt_comm_axes axes;
	tt_team team;          /* of a led mesh */
	tt_comm_group *sharers; /* ranks that have other tokens of the step; NULL: none */
	tt_comm_group *all;     /* ranks of the mesh; NULL: one */
	int coord[TT_PLAN_AXES];
	tt_exec *exec;
	tt_hashes *hashes;     /* NULL: nothing is recorded */
	tt_trace *trace;       /* NULL: none is written */
	tt_data *data;
	tt_step *step_rows, *valid_rows;
	tt_batch *batch;
	int64_t step;          /* steps done */
	int64_t updates;       /* of them, not skipped */
	int64_t skips;         /* skipped in a row */
	int64_t empty;         /* steps without a valid token, as long as there was no other; -1 from then on */
	int *imported;         /* [nparams] tt_st_dtype, -1 */
	tt_slot *nll;          /* [loss_chunks] token losses of B */
	float *nll_values;     /* [t_max] */
	double *nll_doubles;
	tt_share *share;       /* of the batch, under context parallelism; else NULL: who holds which is order [tokens of a batch] */
	tt_dealer *dealer;
	int32_t *order;
	int64_t cell_first;    /* first token in the step of the cell at hand */
	double *rows;          /* [2, rows of a step] token losses and valid tokens of each row, of this rank */
	double *all_rows;      /* [ranks that share the step, 2, rows of a step] */
	const volatile sig_atomic_t *stop; /* NULL: nothing stops a validation */
	void (*before_update)(void *ctx);
	void *before_ctx;
	int64_t rows_per_mb;
	tt_recompute_report recompute; /* zeros in mode none */
	tt_startup startup;
};

static bool leads(const tt_trainer *t) { return t->o.mesh.led && tt_comm_rank(t->o.mesh.comm) == 0; }
static bool speaks(const tt_trainer *t) { return !t->o.mesh.comm || tt_comm_rank(t->o.mesh.comm) == 0; } /* ranks say the same: one is enough */

tt_exec *tt_trainer_exec(tt_trainer *t) { return t->exec; }
tt_data *tt_trainer_data(tt_trainer *t) { return t->data; }
const tt_graph *tt_trainer_graph(const tt_trainer *t) { return t->train; }
const tt_graph *tt_trainer_model(const tt_trainer *t) { return t->model->g; }
const tt_recompute_report *tt_trainer_recompute(const tt_trainer *t) { return &t->recompute; }
const tt_startup *tt_trainer_startup(const tt_trainer *t) { return &t->startup; }

int64_t tt_trainer_steps(const tt_trainer *t) { return t->step; }
int64_t tt_trainer_updates(const tt_trainer *t) { return t->updates; }
int64_t tt_trainer_skips(const tt_trainer *t) { return t->skips; }

void tt_trainer_set_stop(tt_trainer *t, const volatile sig_atomic_t *stop) { t->stop = stop; }

void tt_trainer_set_before_update(tt_trainer *t, void (*fn)(void *ctx), void *ctx)
{
	t->before_update = fn;
	t->before_ctx = ctx;
}

int tt_trainer_imported(const tt_trainer *t, const char *name)
{
	for (int64_t i = 0; i < t->model->nparams; i++)
		if (!strcmp(t->model->params[i].name, name))
			return t->imported[i];
	return -1;
}

tt_status tt_trainer_resume(tt_trainer *t, int64_t steps, int64_t updates, int64_t skips)
{
	if (leads(t))
		TT_TRY(tt_team_tell(&t->team, (tt_team_order){ .what = TT_TEAM_RESUME, .a = steps, .b = updates, .c = skips }));
	tt_cell cell = { .first = true };
	if (tt_exec_has(t->exec, TT_SEG_PREP))
		TT_TRY(tt_exec_run(t->exec, TT_SEG_PREP, &cell));
	t->step = steps;
	t->updates = updates;
	t->skips = skips;
	return TT_OK;
}

int64_t tt_trainer_params(const tt_trainer *t)
{
	int64_t n = 0;
	for (int64_t i = 0; i < t->model->nparams; i++)
		n += tt_value_count(tt_value_get(t->model->g, t->model->params[i].state));
	return n;
}

static void dump_after(tt_trainer *t, const char *pass, const tt_graph *g)
{
	for (int i = 0; i < t->o.dump_after.n && t->o.dump_out; i++)
		if (!strcmp(t->o.dump_after.items[i], pass)) {
			tt_buf_printf(t->o.dump_out, "# after %s\n", pass);
			tt_graph_print(g, t->o.dump_out);
		}
}

static bool many_ranks(const tt_trainer *t) { return t->ranks > 1; }

/* The passes that fit graphs to this machine and these numerics. `made`: another graph, lowered before, that makes the packed weights. */
static tt_status lower(tt_trainer *t, tt_graph *g, const tt_graph *made, tt_graph **out)
{
	const tt_exec_options *e = &t->o.exec;
	if (e->numerics == TT_FAST && !e->f64) {
		TT_TRY(tt_pass_fold_rounds(g, t->arena, &g));
		dump_after(t, "fold_rounds", g);
		if (!e->kernels_ref) {
			TT_TRY(tt_pass_formats(g, e->isa, TT_MAX(1, e->threads), made, t->arena, &g));
			dump_after(t, "formats", g);
		}
		tt_fuse_options f = { .isa = e->isa, .kernels_ref = e->kernels_ref, .threads = TT_MAX(1, e->threads), .off = t->o.fuse_off.items,
				      .noff = t->o.fuse_off.n };
		TT_TRY(tt_pass_fuse(g, &f, t->arena, &g));
		dump_after(t, "fuse", g);
	}
	if (many_ranks(t) && !t->o.overlap_off) {
		TT_TRY(tt_pass_overlap(g, &t->o.overlap, t->arena, &g));
		dump_after(t, "overlap", g);
	}
	*out = g;
	return TT_OK;
}

/* ---- the mesh --------------------------------------------------------------------------------------------------------------------------- */

const tt_graph *tt_trainer_typed(const tt_trainer *t) { return t->typed; }
const int *tt_trainer_coord(const tt_trainer *t) { return t->coord; }
tt_cell_tokens tt_trainer_cell(const tt_trainer *t) { return (tt_cell_tokens){ t->cell_first, t->batch->T, t->share ? t->order : NULL }; }
const tt_plan *tt_trainer_layouts(const tt_trainer *t) { return &t->plan; }

tt_piece tt_trainer_piece(const tt_trainer *t, const char *name, int d)
{
	return tt_value_piece(t->typed, tt_value_get(t->typed, tt_value_find(t->typed, name)), d, t->coord, -1);
}

int tt_trainer_rank(const tt_trainer *t) { return t->o.mesh.comm ? tt_comm_rank(t->o.mesh.comm) : 0; }

/* Axes along which ranks have tokens of their own, and more than one of them. */
static uint32_t sharing_axes(const tt_run_mesh *m)
{
	uint32_t axes = 0;
	for (int i = 0; i < TT_TP; i++)
		axes |= (uint32_t)(m->size[i] > 1) << i;
	return axes;
}

static tt_status open_mesh(tt_trainer *t)
{
	tt_run_mesh *m = &t->o.mesh;
	tt_plan *plan = &t->plan;
	int ranks = 1, size[TT_PLAN_AXES];
	for (int i = 0; i < TT_RUN_AXES; i++) {
		m->size[i] = TT_MAX(m->size[i], 1);
		ranks *= m->size[i];
	}
	TT_ASSERT(!m->comm || ranks == tt_comm_size(m->comm), "a mesh of %d ranks, and %d of them", ranks, tt_comm_size(m->comm));
	const char *illegal = tt_run_mesh_illegal(t->arena, &t->o.model, t->o.data.context_length, m);
	if (illegal)
		TT_FAIL(TT_ERR_USAGE, "%s", illegal);
	tt_run_plan(&t->o, plan);
	if (t->o.tamper && t->o.tamper->rows)
		plan->rows = t->o.tamper->rows;
	for (int i = 0; i < TT_PLAN_AXES; i++)
		size[i] = plan->mesh.ax[i].size;
	t->ranks = ranks;
	if (!m->comm) /* one rank; or the plan of rank 0, which nobody runs */
		return TT_OK;
	TT_TRY(tt_comm_axes_open(m->comm, TT_PLAN_AXES, size, tt_plan_axes, &t->axes));
	memcpy(t->coord, t->axes.coord, sizeof t->coord);
	t->o.exec.axes = &t->axes;
	if (!t->o.overlap_off && t->o.exec.lane == TT_LANE_OFF)
		t->o.exec.lane = TT_LANE_THREAD;
	uint32_t every = 0;
	for (int i = 0; i < TT_PLAN_AXES; i++)
		every |= (uint32_t)(size[i] > 1) << i;
	t->sharers = t->axes.group[sharing_axes(m)];
	t->all = t->axes.group[every];
	return TT_OK;
}

tt_on_mesh tt_trainer_on_mesh(const tt_trainer *t) { return (tt_on_mesh){ t->typed, t->mesh.eval, t->coord, t->ranks }; }

/* Token losses and valid tokens of each row. */
static int64_t row_bytes(int64_t rows) { return 2 * rows * (int64_t)sizeof(double); }

int64_t tt_loop_talk(const tt_trainer *t, int64_t rows, uint32_t *axes)
{
	const int *size = t->o.mesh.size;
	*axes = sharing_axes(&t->o.mesh);
	return (size[TT_DP_REPLICATE] * size[TT_DP_SHARD] * size[TT_CP] - 1) * row_bytes(rows);
}

/* Which of how many data ranks this one is: rows are dealt to them. */
static int64_t data_ranks(const tt_trainer *t) { return t->o.mesh.size[TT_DP_REPLICATE] * t->o.mesh.size[TT_DP_SHARD]; }
static int64_t data_rank(const tt_trainer *t) { return t->coord[TT_DP_REPLICATE] * t->o.mesh.size[TT_DP_SHARD] + t->coord[TT_DP_SHARD]; }

/* A state by number, as orders name it. */
static int64_t state_of(tt_trainer *t, const char *name)
{
	int64_t n, i = 0;
	const tt_slot *s = tt_exec_states(t->exec, &n);
	while (i < n && strcmp(s[i].name, name))
		i++;
	return i < n ? i : -1;
}

static tt_status team_copy(tt_trainer *t, bool reads, const char *name, int64_t at, void *out, const void *in, int64_t n)
{
	int64_t i = t->team.peers ? 0 : state_of(t, name);
	if (i < 0)
		TT_FAIL(TT_ERR_USAGE, "no state is called \"%s\"", name);
	if (!t->team.peers)
		TT_TRY(tt_team_tell(&t->team, (tt_team_order){ .what = reads ? TT_TEAM_READ : TT_TEAM_WRITE, .a = i, .b = at, .c = n }));
	return tt_team_copy(&t->team, t, reads, name, at, n, out, in);
}

tt_status tt_trainer_read(tt_trainer *t, const char *name, int64_t at, void *dst, int64_t n)
{
	return t->o.mesh.led ? team_copy(t, true, name, at, dst, NULL, n) : tt_exec_read(t->exec, name, at, dst, n);
}

tt_status tt_trainer_write(tt_trainer *t, const char *name, int64_t at, const void *src, int64_t n)
{
	return t->o.mesh.led ? team_copy(t, false, name, at, NULL, src, n) : tt_exec_write(t->exec, name, at, src, n);
}

/* A graph of the mesh as this rank's. */
static tt_status localise(tt_trainer *t, tt_graph *g, tt_graph **out)
{
	*out = g;
	if (!many_ranks(t))
		return TT_OK;
	TT_TRY(tt_pass_localise(g, t->coord, t->arena, &g));
	dump_after(t, "localise", g);
	TT_TRY(tt_pass_exchanges(g, t->o.gathered, t->arena, out));
	dump_after(t, "exchanges", *out);
	return TT_OK;
}

static tt_status tamper(tt_trainer *t, const char *after, tt_graph **g)
{
	const tt_tamper *x = t->o.tamper;
	return x && x->graph ? x->graph(x->ctx, after, t->coord, *g, t->arena, g) : TT_OK;
}

static tt_status tamper_at(tt_trainer *t, tt_moment m)
{
	const tt_tamper *x = t->o.tamper;
	return x && x->moment ? x->moment(x->ctx, t, m) : TT_OK;
}

/* The graphs of the mesh. */
static tt_status build(tt_trainer *t)
{
	const tt_run_options *o = &t->o;
	TT_TRY(open_mesh(t));
	tt_model_options m = { .compute = o->compute, .t_max = o->tokens_per_microbatch, .seqs_max = o->tokens_per_microbatch,
			       .loss_chunks = o->loss_chunks, .context_length = o->data.context_length };
	TT_TRY(tt_llama_build(t->arena, &o->model, &m, &t->model));
	dump_after(t, "model", t->model->g);
	tt_graph *g;
	TT_TRY(tt_pass_partition(t->model->g, &t->plan, t->arena, &g));
	dump_after(t, "partition", g);
	TT_TRY(tt_autodiff(g, &tt_autodiff_builders, t->arena, &g));
	dump_after(t, "autodiff", g);
	TT_TRY(tt_optim_build(g, &o->optim, t->arena, &g));
	dump_after(t, "optimizer", g);
	TT_TRY(tamper(t, "optimizer", &g));
	t->typed = g;
	TT_TRY(tt_init_graph(t->arena, t->model, g, &t->mesh.init));
	if (o->recompute.mode != TT_RECOMPUTE_NONE) {
		TT_TRY(tt_pass_recompute(g, &o->recompute, t->arena, &g, &t->recompute));
		dump_after(t, "recompute", g);
	}
	t->mesh.train = g;
	m.eval = true;
	m.output_logits = o->output_logits;
	m.t_max = m.seqs_max = o->eval_tokens;
	TT_TRY(tt_llama_build(t->arena, &o->model, &m, &t->eval_model));
	TT_TRY(tt_pass_partition(t->eval_model->g, &t->plan, t->arena, &g));
	TT_TRY(tt_pass_eval(g, t->arena, &t->mesh.eval));
	return TT_OK;
}

/* This rank's graphs of them. */
static tt_status become_rank(tt_trainer *t, tt_graph **init)
{
	tt_graph *g;
	TT_TRY(localise(t, t->mesh.init, init));
	TT_TRY(tamper(t, "init", init));
	TT_TRY(localise(t, t->mesh.train, &g));
	TT_TRY(tamper(t, "localise", &g));
	TT_TRY(lower(t, g, NULL, &t->train));
	TT_TRY(localise(t, t->mesh.eval, &g));
	dump_after(t, "eval", g);
	return lower(t, g, t->train, &t->eval);
}

/* Parameters from a safetensors file or folder, by name. */
static tt_status load_weights(tt_trainer *t, const char *path)
{
	tt_st *st;
	TT_TRY(tt_st_open(t->arena, path, &st));
	tt_status s = tt_weights_check(t->model, &t->o.model, st);
	bool f64 = t->o.exec.f64;
	for (int64_t i = 0; i < t->model->nparams && s == TT_OK; i++) {
		const tt_param *p = &t->model->params[i];
		const tt_st_tensor *x = tt_st_find(st, p->name);
		t->imported[i] = (int)x->dtype;
		enum { BLOCK = 1 << 14 };
		for (int64_t at = 0; at < x->count && s == TT_OK; at += BLOCK) {
			int64_t n = TT_MIN((int64_t)BLOCK, x->count - at);
			double d[BLOCK];
			float *f = (float *)(void *)d;
			s = f64 ? tt_st_read_f64(x, at, n, d) : tt_st_read_f32(x, at, n, f);
			if (s == TT_OK)
				s = tt_team_piece(t, p->name, at, n, NULL, (const uint8_t *)(const void *)d);
		}
	}
	tt_st_close(st);
	TT_TRY(s);
	return TT_OK;
}

/* ---- hashes ----------------------------------------------------------------------------------------------------------------------------- */

static tt_status open_hashes(tt_trainer *t)
{
	const tt_run_options *o = &t->o;
	if (!o->record.folder || !speaks(t))
		return TT_OK;
	TT_TRY(tt_hashes_open(&o->record, &t->hashes));
	tt_hashes_facts(t->hashes,
		tt_arena_printf(t->arena, "model_graph = \"%016llx\"\ntraining_graph = \"%016llx\"\nnumerics = \"%s\"\ncompute = \"%s\"\nkernels = \"%s\"\n"
			"isa = \"%s\"\nthreads = %d\nseed = %llu\ndata_seed = %llu\ntokens_per_step = %lld\ntokens_per_microbatch = %lld\ncontext_length = %lld\n",
			(unsigned long long)tt_graph_hash(t->model->g), (unsigned long long)tt_graph_hash(t->train),
			o->exec.numerics == TT_EXACT ? "exact" : "fast", tt_dtype_name(o->compute), o->exec.kernels_ref ? "ref" : "fast",
			tt_isa_name(o->exec.isa), TT_MAX(o->exec.threads, 1), (unsigned long long)o->exec.seed, (unsigned long long)o->data.seed,
			(long long)o->data.tokens_per_step, (long long)o->tokens_per_microbatch, (long long)o->data.context_length));
	return TT_OK;
}

static uint64_t hash_bytes(const void *p, int64_t n) { return n ? tt_hash64(p, (size_t)n, 0) : 0; }

/* Data first, then what came of them. NULL: before the first step. */
static tt_status write_state(tt_trainer *t, const tt_step_report *r, const uint64_t *hash, const bool *kept)
{
	const tt_step *s = t->step_rows;
	tt_hashes_extra x[] = {
		{ "data.ids", r ? hash_bytes(s->ids, s->T * (int64_t)sizeof *s->ids) : 0 },
		{ "data.labels", r ? hash_bytes(s->labels, s->T * (int64_t)sizeof *s->labels) : 0 },
		{ "data.seq_table", r ? hash_bytes(s->seq_table, (s->nsequences + 1) * (int64_t)sizeof *s->seq_table) : 0 },
		{ "loop.lr", r ? hash_bytes(&r->lr, sizeof r->lr) : 0 },
		{ "loop.skipped", r ? r->skipped : 0 },
	};
	return tt_hashes_state(t->hashes, t->exec, hash, kept, x, TT_COUNT(x));
}

static tt_status record_state(tt_trainer *t, const tt_step_report *r)
{
	uint64_t *hash = NULL;
	bool *kept = NULL;
	if (!t->o.record.folder)
		return TT_OK;
	tt_mark m = tt_arena_push(t->arena);
	if (t->all && t->o.record.state && tt_hashes_wants(&t->o.record, r ? r->step : 0))
		TT_TRY(tt_mesh_hashes(t, t->all, t->arena, &hash, &kept));
	tt_status done = t->hashes ? write_state(t, r, hash, kept) : TT_OK;
	tt_arena_pop(t->arena, m);
	return done;
}

/* A model whose states alone cannot fit is refused before anything is built for it. The plan says the rest later. */
static tt_status states_fit(const tt_trainer *t)
{
	const tt_run_options *o = &t->o;
	double stat = o->exec.f64 ? 8 : 4, acc = o->exec.f64 ? 8 : o->exec.numerics == TT_EXACT ? 24 : 4;
	double need = (double)tt_llama_params(&o->model) * (stat * (o->optim.sgd ? 2 : 3) + acc);
	double have = (double)(o->exec.limit ? o->exec.limit : tt_memory_limit());
	if (need > have)
		TT_FAIL(TT_ERR_MEMORY, "%s parameters with gradients and optimizer take %s before any activation, there are %s (model.flavor, "
				       "model.num_hidden_layers, model.hidden_size%s)", tt_scale_count(tt_llama_params(&o->model)).s,
			tt_scale_bytes((int64_t)TT_MIN(need, 0x1p62)).s, tt_scale_bytes((int64_t)have).s, o->optim.sgd ? "" : "; optimizer.name = \"SGD\" keeps one state less");
	return TT_OK;
}

/* Graphs to programs to a memory plan. */
static tt_status plan(tt_trainer *t)
{
	double t0 = tt_now();
	tt_graph *init;
	if (!t->mesh.train)
		TT_TRY(build(t));
	TT_TRY(become_rank(t, &init));
	double t1 = tt_now();
	TT_TRY(open_hashes(t));
	tt_exec_options with_probe = t->o.exec;
	if (t->hashes)
		with_probe.probe = tt_hashes_probe(t->hashes);
	with_probe.trace = t->trace;
	TT_TRY(tt_exec_create(&with_probe, &t->exec));
	TT_TRY(tt_exec_add_graph(t->exec, init));
	TT_TRY(tt_exec_add_graph(t->exec, t->train));
	TT_TRY(tt_exec_add_graph(t->exec, t->eval));
	TT_TRY(tt_exec_plan(t->exec));
	t->startup.build = t1 - t0;
	t->startup.jit = tt_exec_jit_seconds(t->exec);
	t->startup.compile = tt_now() - t1 - t->startup.jit;
	return TT_OK;
}

/* A plan that does not fit is refused with what would make it fit. */
static tt_status reserve(tt_trainer *t)
{
	int64_t need = tt_fit_bytes(t), limit = t->o.exec.limit ? t->o.exec.limit : tt_memory_limit();
	tt_status s = tt_exec_reserve(t->exec);
	return s == TT_ERR_MEMORY && need > limit ? tt_fit_refuse(t->arena, &t->o, limit, false) : s;
}

static tt_status setup(tt_trainer *t)
{
	const tt_run_options *o = &t->o;
	double t0 = tt_now();
	if (o->trace.folder)
		t->trace = TT_NEW(t->arena, tt_trace);
	if (o->mesh.comm)
		TT_TRY(tt_team_agree_config(o->mesh.comm, o->config));
	if (!o->mesh.comm)
		TT_TRY(states_fit(t));
	TT_TRY(tt_data_open(t->arena, &o->data, &t->data));
	int64_t context = o->data.context_length;
	t->rows_per_mb = o->tokens_per_microbatch / context;
	t->step_rows = tt_step_new(t->arena, o->data.tokens_per_step / context, context);
	t->valid_rows = tt_step_new(t->arena, TT_MAX((int64_t)1, o->eval_tokens / context), context);
	t->batch = tt_batch_new(t->arena, TT_MAX(o->tokens_per_microbatch, o->eval_tokens));
	t->startup.data = tt_now() - t0;
	TT_TRY(plan(t));
	if (t->trace)
		tt_traces_room(t->arena, t->exec, tt_cells_of(t->step_rows->cap_rows, t->rows_per_mb, 0, data_ranks(t)).n, o->trace.active, t->trace);
	if (o->mesh.comm)
		TT_TRY(tt_team_agree_programs(o->mesh.comm, tt_graph_hash(t->typed), &o->exec));
	t0 = tt_now();
	TT_TRY(reserve(t));
	t->startup.allocate = tt_now() - t0;
	t0 = tt_now();
	t->nll = TT_NEWN(t->arena, tt_slot, o->loss_chunks);
	for (int i = 0; i < o->loss_chunks; i++)
		TT_TRY(tt_exec_output(t->exec, TT_SEG_B, tt_arena_printf(t->arena, "loss.%d.nll", i), &t->nll[i]));
	t->nll_values = TT_NEWN(t->arena, float, o->tokens_per_microbatch);
	int64_t nrows = t->step_rows->cap_rows;
	t->rows = TT_NEWN(t->arena, double, 2 * nrows);
	t->all_rows = TT_NEWN(t->arena, double, 2 * nrows * data_ranks(t) * t->o.mesh.size[TT_CP]);
	if (t->o.mesh.size[TT_CP] > 1) {
		int64_t most = TT_MAX(o->tokens_per_microbatch, t->o.eval_tokens);
		t->share = tt_share_new(t->arena, most);
		t->dealer = tt_dealer_new(t->arena, most, t->o.mesh.size[TT_CP]);
		t->order = TT_NEWN(t->arena, int32_t, most);
	}
	t->nll_doubles = TT_NEWN(t->arena, double, o->tokens_per_microbatch);
	t->imported = TT_NEWN(t->arena, int, t->model->nparams);
	for (int64_t i = 0; i < t->model->nparams; i++)
		t->imported[i] = -1;
	tt_cell cell = { .first = true };
	TT_TRY(tt_exec_run(t->exec, TT_SEG_INIT, &cell));
	if (o->weights)
		TT_TRY(load_weights(t, o->weights));
	if (tt_exec_has(t->exec, TT_SEG_PREP))
		TT_TRY(tt_exec_run(t->exec, TT_SEG_PREP, &cell));
	TT_TRY(record_state(t, NULL));
	if (o->mesh.led)
		TT_TRY(tt_team_open(&t->team, t->arena, o->mesh.comm, t, o->mesh.timeout_s));
	t->startup.init = tt_now() - t0;
	return TT_OK;
}

/* `like`: a trainer of the same mesh, whose graphs are those of this one too; NULL: they are built. */
static tt_status create(const tt_run_options *o, tt_status (*prepare)(tt_trainer *t), const tt_trainer *like, tt_trainer **out)
{
	tt_trainer *t = calloc(1, sizeof *t);
	TT_ASSERT(t, "out of memory");
	t->arena = tt_arena_create("session");
	t->o = *o;
	if (!t->o.eval_tokens)
		t->o.eval_tokens = t->o.tokens_per_microbatch;
	tt_status s = TT_OK;
	if (like) {
		t->mesh = like->mesh;
		t->typed = like->typed;
		t->model = like->model;
		t->eval_model = like->eval_model;
		t->recompute = like->recompute;
		s = open_mesh(t);
	}
	if (s == TT_OK)
		s = prepare(t);
	if (s != TT_OK) {
		tt_trainer_destroy(t);
		TT_TRY(s);
	}
	*out = t;
	return TT_OK;
}

tt_status tt_trainer_create(const tt_run_options *o, tt_trainer **out)
{
	int64_t ranks = 1;
	for (int i = 0; i < TT_RUN_AXES; i++)
		ranks *= TT_MAX(o->mesh.size[i], 1);
	if (ranks > 1 && !o->mesh.comm)
		TT_FAIL(TT_ERR_USAGE, "the config has a mesh of %lld ranks, and this runs one rank: only titan train and titan verify have more (hardware.ranks)", (long long)ranks);
	TT_TRY(create(o, setup, NULL, out));
	return TT_OK;
}

tt_status tt_trainer_plan(const tt_run_options *o, tt_trainer **out)
{
	tt_run_options unrecorded = *o;
	unrecorded.record = (tt_hashes_options){ 0 }; /* which would write files */
	TT_TRY(create(&unrecorded, plan, NULL, out));
	return TT_OK;
}

tt_status tt_trainer_plan_rank(const tt_trainer *of, tt_comm *c, tt_trainer **out)
{
	tt_run_options o = of->o;
	o.mesh.comm = c;
	o.dump_out = NULL;
	TT_TRY(create(&o, plan, of, out));
	return TT_OK;
}

void tt_trainer_destroy(tt_trainer *t)
{
	if (!t)
		return;
	if (leads(t) && t->team.n) /* after an error they have ended already */
		(void)!tt_team_tell(&t->team, (tt_team_order){ .what = TT_TEAM_END });
	if (t->o.mesh.comm && tt_comm_given_up(t->o.mesh.comm))
		return; /* another process may be reading from it until this one ends, which is soon */
	tt_team_close(&t->team);
	tt_exec_destroy(t->exec);
	tt_hashes_close(t->hashes);
	tt_data_close(t->data);
	tt_arena_destroy(t->arena);
	free(t);
}

/* ---- cells ------------------------------------------------------------------------------------------------------------------------------ */

static tt_status write_real(tt_trainer *t, const char *name, const double *v, int n)
{
	float f[8];
	for (int i = 0; i < n; i++)
		f[i] = (float)v[i];
	return tt_exec_write(t->exec, name, 0, t->o.exec.f64 ? (const void *)v : (const void *)f, n);
}

static tt_status read_real(tt_trainer *t, const char *name, double *out)
{
	float f;
	if (t->o.exec.f64)
		return tt_exec_read(t->exec, name, 0, out, 1);
	TT_TRY(tt_exec_read(t->exec, name, 0, &f, 1));
	*out = f;
	return TT_OK;
}

/* What this rank's programs read: all of it, or under context parallelism its share; where heads are swapped attention wants the place of all tokens. */
static tt_status write_batch(tt_trainer *t, const tt_batch *b)
{
	int64_t T = b->T, placed = b->T;
	const int32_t *ids = b->ids, *labels = b->labels, *positions = b->positions, *seq_ids = b->seq_ids, *lines = b->lines;
	if (t->share) {
		tt_share *s = t->share;
		tt_batch_order(b, t->o.data.context_length, t->o.model.sliding_window, t->o.mesh.cp_balance, t->dealer, t->order);
		tt_share_fill(b, t->order, t->coord[TT_CP], t->o.mesh.size[TT_CP], s);
		int64_t first = t->o.mesh.cp_method == TT_CP_HEAD_SWAP ? 0 : s->first; /* of the tokens that are placed */
		T = s->T;
		placed = t->o.mesh.cp_method == TT_CP_HEAD_SWAP ? b->T : T;
		ids = s->ids + s->first;
		labels = s->labels + s->first;
		positions = s->positions + first, seq_ids = s->seq_ids + first;
		lines = s->lines;
	}
	TT_TRY(tt_exec_write(t->exec, "ids", 0, ids, T));
	TT_TRY(tt_exec_write(t->exec, "labels", 0, labels, T));
	TT_TRY(tt_exec_write(t->exec, "positions", 0, positions, placed));
	TT_TRY(tt_exec_write(t->exec, "seq_ids", 0, seq_ids, placed));
	TT_TRY(tt_exec_write(t->exec, "seq_table", 0, b->seq_table, b->nsequences + 1));
	return tt_exec_write(t->exec, "lines", 0, lines, b->T);
}

/* (query, key) pairs of a sequence. */
static double attended(int64_t tokens, int64_t window)
{
	double n = (double)tokens, w = window > 0 && window < tokens ? (double)window : n;
	return w * (w + 1) / 2 + (n - w) * w;
}

/* An acc scalar of EVAL as a double. */
static tt_status read_acc(tt_trainer *t, const char *name, double *out)
{
	if (t->o.exec.f64 || t->o.exec.numerics == TT_FAST)
		return read_real(t, name, out);
	int64_t limb[3];
	TT_TRY(tt_exec_read(t->exec, name, 0, limb, 1));
	*out = ((double)limb[2] * 0x1p-106 + (double)limb[1] * 0x1p-66) + (double)limb[0] * 0x1p-26;
	return TT_OK;
}

/* Adds the token losses of the microbatch just run to those of their rows, in order of tokens, in double. `first`: its first row. */
static tt_status add_rows(tt_trainer *t, const tt_batch *b, int64_t first)
{
	int64_t context = t->o.data.context_length, at0 = t->share ? t->share->first : 0;
	int64_t T = t->share ? t->share->T : b->T;
	double *loss = t->rows, *valid = loss + t->step_rows->nrows;
	for (int i = 0; i < t->o.loss_chunks; i++) {
		int64_t at = t->nll[i].dim[0].base, n = TT_MIN(t->nll[i].dim[0].n, T - at);
		if (n > 0)
			TT_TRY(tt_tensor_read(t->exec, &t->nll[i], 0, t->o.exec.f64 ? (void *)(t->nll_doubles + at) : (void *)(t->nll_values + at), n));
	}
	for (int64_t k = 0; k < T; k++) {
		int64_t token = t->share ? t->order[at0 + k] : k, row = first + token / context;
		if (b->labels[token] == TT_IGNORE)
			continue;
		loss[row] += t->o.exec.f64 ? t->nll_doubles[k] : (double)t->nll_values[k];
		valid[row]++;
	}
	return TT_OK;
}

/* The worst mean loss of a row, and all attended pairs: what the loop counts of this rank's tokens, over all ranks that share the step. */
static tt_status share_counts(tt_trainer *t, tt_step_report *r)
{
	int64_t n = t->step_rows->nrows, ranks = 1;
	const double *all = t->rows;
	if (t->sharers) {
		ranks = tt_comm_group_size(t->sharers);
		TT_TRY(tt_comm_all_gather(t->sharers, "losses of rows", t->rows, row_bytes(n), t->all_rows));
		all = t->all_rows;
	}
	for (int64_t row = 0; row < n; row++) {
		double loss = 0, valid = 0;
		for (int64_t i = 0; i < ranks; i++) {
			loss += all[2 * n * i + row];
			valid += all[2 * n * i + n + row];
		}
		if (valid > 0 && !(loss / valid <= r->loss_max))
			r->loss_max = loss / valid;
	}
	return TT_OK;
}

/* Forward and backward of every microbatch of step `index` (from 0), then REDUCE. Zero valid tokens: nothing is run. */
static tt_status accumulate_step(tt_trainer *t, int64_t index, tt_step_report *r)
{
	double t0 = tt_now();
	tt_step *s = t->step_rows;
	TT_TRY(tt_data_step(t->data, index, s));
	r->tokens = s->T;
	r->valid = s->nvalid;
	r->loss_max = __builtin_nan("");
	r->data_seconds = tt_now() - t0;
	if (!s->nvalid)
		return TT_OK;
	double inv = 1 / (double)s->nvalid;
	TT_TRY(write_real(t, "inv_valid", &inv, 1));
	memset(t->rows, 0, sizeof *t->rows * 2 * (size_t)s->nrows);
	for (int64_t k = 0; k < s->nsequences; k++)
		r->pairs += attended(s->seq_table[k + 1] - s->seq_table[k], t->o.model.sliding_window);
	tt_cells deal = tt_cells_of(s->nrows, t->rows_per_mb, data_rank(t), data_ranks(t));
	for (int64_t cell_at = 0; cell_at < deal.n; cell_at++) {
		int64_t row = tt_cells_row(&deal, cell_at);
		t0 = tt_now();
		tt_batch_fill(s, row, tt_cells_row(&deal, cell_at + 1), t->batch);
		TT_TRY(write_batch(t, t->batch));
		t->cell_first = row * t->o.data.context_length;
		TT_TRY(tamper_at(t, TT_BEFORE_CELL));
		tt_cell cell = { .T = t->batch->T, .nseqs = t->batch->nsequences, .first = cell_at == 0, .step = index + 1,
				 .last = cell_at == deal.n - 1 && !t->o.tamper }; /* who tampers may look at sums before they are taken */
		double t1 = tt_now();
		TT_TRY(tt_exec_run(t->exec, TT_SEG_F, &cell));
		double t2 = tt_now();
		TT_TRY(tt_exec_run(t->exec, TT_SEG_B, &cell));
		double t3 = tt_now();
		TT_TRY(add_rows(t, t->batch, row));
		tt_trace_span(t->trace, "data", t0, t1);
		tt_trace_span(t->trace, "forward", t1, t2);
		tt_trace_span(t->trace, "backward", t2, t3);
		r->data_seconds += t1 - t0;
		r->forward_seconds += t2 - t1;
		r->backward_seconds += t3 - t2;
	}
	TT_TRY(tamper_at(t, TT_BEFORE_REDUCE));
	t0 = tt_now();
	tt_cell cell = { .step = index + 1 };
	TT_TRY(tt_exec_run(t->exec, TT_SEG_REDUCE, &cell)); /* its sums may be under way: nothing is exchanged before it */
	TT_TRY(share_counts(t, r));
	TT_TRY(read_real(t, "loss", &r->loss));
	r->loss *= inv;
	TT_TRY(read_real(t, "grad_norm", &r->grad_norm));
	r->optim_seconds = tt_now() - t0;
	tt_trace_span(t->trace, "reduce", t0, tt_now());
	return TT_OK;
}

/* Whether a state of `n` numbers holds one that is not finite. */
static bool holds_nonfinite(tt_trainer *t, const char *name, int64_t n)
{
	enum { BLOCK = 4096 };
	double d[BLOCK];
	const float *f = (const float *)(const void *)d;
	for (int64_t at = 0; at < n; at += BLOCK) {
		int64_t c = TT_MIN((int64_t)BLOCK, n - at);
		if (tt_exec_read(t->exec, name, at, d, c) != TT_OK)
			return false;
		for (int64_t k = 0; k < c; k++)
			if (!__builtin_isfinite(t->o.exec.f64 ? d[k] : (double)f[k]))
				return true;
	}
	return false;
}

/* Index of the first parameter, or of the first whose gradient, is not finite on this rank; their number if all are. */
static int64_t first_nonfinite(tt_trainer *t, bool grads)
{
	const tt_builder *m = t->model;
	for (int64_t i = 0; i < m->nparams; i++) {
		tt_slot s;
		char name[320];
		snprintf(name, sizeof name, "%s%s", grads ? "grad." : "", m->params[i].name);
		if (tt_exec_slot(t->exec, name, &s) == TT_OK && holds_nonfinite(t, name, s.count))
			return i;
	}
	return m->nparams;
}

/* The least over all ranks, and the lowest rank that has it: they say the same. */
static tt_status least_of_all(tt_trainer *t, int64_t *x, int *rank)
{
	*rank = 0;
	if (!t->all)
		return TT_OK;
	int n = tt_comm_group_size(t->all);
	int64_t *all = calloc((size_t)n, sizeof *all);
	TT_ASSERT(all, "out of memory");
	tt_status s = tt_comm_all_gather(t->all, "what is not finite", x, sizeof *x, all);
	for (int i = 0; i < n && !s; i++)
		if (i == 0 || all[i] < *x) {
			*x = all[i];
			*rank = i;
		}
	free(all);
	return s;
}

/* Why a step cannot be learnt from: a slow scan, on the way to an error or a skipped step. A parameter that is itself not finite spoils the
 * gradients of all, so parameters are looked at first. `beyond`: what `exact`, whose gradients are integers, has said; else NULL. */
static tt_status name_nonfinite(tt_trainer *t, const char *beyond, char *out, size_t cap)
{
	const tt_builder *m = t->model;
	for (int grads = 0; grads < 2; grads++) {
		int rank;
		int64_t i = grads && t->o.exec.numerics != TT_FAST ? m->nparams : first_nonfinite(t, grads);
		TT_TRY(least_of_all(t, &i, &rank));
		const char *where = i < m->nparams && t->all ? tt_arena_printf(t->arena, " (rank %d)", rank) : "";
		if (i < m->nparams) {
			snprintf(out, cap, grads ? "first in the gradient of %s%s" : "parameter %s is itself not finite%s", m->params[i].name, where);
			return TT_OK;
		}
		if (beyond) {
			snprintf(out, cap, "%s", beyond);
			return TT_OK;
		}
	}
	snprintf(out, cap, "in no single gradient: the loss or the norm itself overflows");
	return TT_OK;
}

static double power(double x, int64_t n)
{
	double r = 1;
	for (; n; n >>= 1, x *= x)
		if (n & 1)
			r *= x;
	return r;
}

/* What exchanges have cost so far, by axes. */
typedef struct comm_counts { tt_comm_count count[1 << TT_MESH_AXES]; tt_exchange_seconds seconds[1 << TT_MESH_AXES]; } comm_counts;

static void count_comm(const tt_trainer *t, comm_counts *c)
{
	for (int i = 0; i < 1 << TT_MESH_AXES; i++)
		if (t->axes.group[i]) {
			c->count[i] = tt_comm_group_count(t->axes.group[i]);
			c->seconds[i] = tt_exec_exchange_seconds(t->exec, i);
		}
}

/* Since `from`. What was not on a lane was waited for. */
static void report_comm(const tt_trainer *t, const comm_counts *from, tt_step_report *r)
{
	comm_counts now;
	count_comm(t, &now);
	for (int i = 0; i < 1 << TT_MESH_AXES && r->ncomm < TT_STEP_COMMS; i++) {
		if (!t->axes.group[i] || now.count[i].calls == from->count[i].calls)
			continue;
		const tt_comm_count *a = &from->count[i], *b = &now.count[i];
		double all = b->wait_s + b->use_s - a->wait_s - a->use_s, hidden = now.seconds[i].hidden - from->seconds[i].hidden;
		r->comm[r->ncomm++] = (tt_step_comm){ tt_comm_group_name(t->axes.group[i]), b->calls - a->calls, b->bytes - a->bytes,
						      TT_MAX(all - hidden, 0.0), hidden };
	}
}

tt_status tt_trainer_step(tt_trainer *t, tt_step_report *out)
{
	if (leads(t))
		TT_TRY(tt_team_tell(&t->team, (tt_team_order){ .what = TT_TEAM_STEP }));
	tt_step_report r = { .step = t->step + 1 };
	comm_counts before;
	count_comm(t, &before);
	double t0 = tt_now();
	TT_TRY(tamper_at(t, TT_BEFORE_STEP));
	if (t->trace)
		t->trace->on = tt_traces_due(&t->o.trace, t->step);
	const tt_optim_options *o = &t->o.optim;
	r.lr = o->lr * tt_schedule_factor(&t->o.schedule, t->step);
	if (t->hashes)
		TT_TRY(tt_hashes_begin_step(t->hashes, r.step));
	char beyond[512] = "", why[512];
	tt_status ran = accumulate_step(t, t->step, &r);
	if (ran == TT_ERR_NUMERIC && !many_ranks(t)) { /* `exact` met operands that it cannot sum: there is no loss and no gradient */
		snprintf(beyond, sizeof beyond, "%s", tt_error_text());
		r.loss = r.grad_norm = __builtin_nan("");
	} else {
		TT_TRY(ran);
	}
	if (r.valid)
		t->empty = -1;
	if (!r.valid) {
		if (t->empty >= 0 && ++t->empty == EMPTY_STEPS)
			TT_FAIL(TT_ERR_USAGE, "none of the first %d steps, %lld to %lld, has a valid token: nothing can be learnt from these data (data.paths, or the labels)",
				EMPTY_STEPS, (long long)(r.step - EMPTY_STEPS + 1), (long long)r.step);
		if (speaks(t))
			tt_log(TT_LOG_WARN, "step %lld has no valid token: nothing is learnt from it", (long long)r.step);
		r.skipped = true;
	} else if (!__builtin_isfinite(r.grad_norm) || !__builtin_isfinite(r.loss)) {
		TT_TRY(name_nonfinite(t, beyond[0] ? beyond : NULL, why, sizeof why));
		if (!t->o.skip_nonfinite)
			TT_FAIL(TT_ERR_NUMERIC, "step %lld: loss %g, gradient norm %g: %s (training.nonfinite = \"skip\" goes on)", (long long)r.step, tt_plain_nan(r.loss),
				tt_plain_nan(r.grad_norm), why);
		if (++t->skips > t->o.nonfinite_max_skips)
			TT_FAIL(TT_ERR_NUMERIC, "step %lld: skip %lld in a row, of a loss or gradient that is not finite: %s (training.nonfinite_max_skips)",
				(long long)r.step, (long long)t->skips, why);
		if (speaks(t))
			tt_log(TT_LOG_WARN, "step %lld skipped: loss %g, gradient norm %g: %s", (long long)r.step, tt_plain_nan(r.loss), tt_plain_nan(r.grad_norm), why);
		r.skipped = true;
	} else {
		t->skips = 0;
		double t1 = tt_now();
		t->updates++;
		double hyper[4] = { r.lr, 1 - power(o->beta1, t->updates), 1 - power(o->beta2, t->updates), 0 };
		TT_TRY(write_real(t, "hyper", hyper, 4));
		TT_TRY(tamper_at(t, TT_BEFORE_UPDATE));
		if (t->before_update)
			t->before_update(t->before_ctx);
		if (t->o.mesh.led) /* a save that rank 0 has begun reads from all */
			TT_TRY(tt_comm_barrier(t->team.all, "before the update"));
		tt_cell cell = { .step = t->updates };
		TT_TRY(tt_exec_run(t->exec, TT_SEG_OPT, &cell));
		if (tt_exec_has(t->exec, TT_SEG_PREP))
			TT_TRY(tt_exec_run(t->exec, TT_SEG_PREP, &cell));
		r.optim_seconds += tt_now() - t1;
		tt_trace_span(t->trace, "update", t1, tt_now());
	}
	TT_TRY(record_state(t, &r));
	if (t->o.mesh.led) /* what rank 0 reads after the step, as a save does, is of this step on every rank */
		TT_TRY(tt_comm_barrier(t->team.all, "after the step"));
	t->step++;
	r.seconds = tt_now() - t0;
	report_comm(t, &before, &r);
	if (t->trace && t->trace->on) {
		tt_trace_span(t->trace, "step", t0, tt_now());
		t->trace->on = false; /* validation is not of a step */
		if (t->step % t->o.trace.freq == 0)
			TT_TRY(tt_traces_write(t->arena, t->exec, &t->o.trace, t->step, t->o.mesh.comm ? tt_comm_rank(t->o.mesh.comm) : 0, t->trace));
	}
	if (t->o.after_step)
		TT_TRY(t->o.after_step(t->o.after_step_ctx, t, &r));
	*out = r;
	return TT_OK;
}

tt_status tt_trainer_gradients(tt_trainer *t, int64_t step, double *loss)
{
	tt_step_report r = { .step = step + 1 };
	TT_TRY(accumulate_step(t, step, &r));
	*loss = r.loss;
	return TT_OK;
}

tt_status tt_trainer_forward(tt_trainer *t, const tt_batch *b, double *loss_sum)
{
	TT_TRY(write_batch(t, b));
	tt_cell cell = { .T = b->T, .nseqs = b->nsequences, .first = true };
	TT_TRY(tt_exec_run(t->exec, TT_SEG_EVAL, &cell));
	return read_acc(t, "eval_loss_sum", loss_sum);
}

/* The sum of one number of each rank that has tokens of its own. */
static tt_status sum_over_sharers(tt_trainer *t, double *x)
{
	if (!t->sharers)
		return TT_OK;
	TT_TRY(tt_comm_all_gather(t->sharers, "loss of a validation", x, sizeof *x, t->all_rows));
	*x = 0;
	for (int i = 0; i < tt_comm_group_size(t->sharers); i++)
		*x += t->all_rows[i];
	return TT_OK;
}

tt_status tt_trainer_follow(tt_trainer *t)
{
	for (;;) {
		tt_team_order o;
		tt_status s = TT_OK;
		tt_step_report r;
		double loss;
		int64_t valid;
		int64_t states;
		const tt_slot *state = tt_exec_states(t->exec, &states);
		TT_TRY(tt_team_hear(&t->team, &o));
		switch ((tt_team_what)o.what) {
		case TT_TEAM_END:
			return TT_OK;
		case TT_TEAM_STEP:
			s = tt_trainer_step(t, &r);
			break;
		case TT_TEAM_VALIDATE:
			s = tt_trainer_validate(t, o.a, &loss, &valid);
			break;
		case TT_TEAM_RESUME:
			s = tt_trainer_resume(t, o.a, o.b, o.c);
			break;
		case TT_TEAM_READ:
		case TT_TEAM_WRITE:
			TT_ASSERT(o.a >= 0 && o.a < states, "state %lld of %lld", (long long)o.a, (long long)states);
			s = tt_team_copy(&t->team, t, o.what == TT_TEAM_READ, state[o.a].name, o.b, o.c, NULL, NULL);
			break;
		}
		if (s != TT_ERR_STOP) /* the text has ended: rank 0 sees it too, and what it does then is its own affair */
			TT_TRY(s);
	}
}

tt_status tt_trainer_validate(tt_trainer *t, int64_t max_rows, double *loss_sum, int64_t *valid)
{
	if (leads(t))
		TT_TRY(tt_team_tell(&t->team, (tt_team_order){ .what = TT_TEAM_VALIDATE, .a = max_rows }));
	double sum = 0;
	int64_t count = 0, rows = tt_data_valid_rows(t->data), ranks = data_ranks(t), me = data_rank(t);
	if (max_rows)
		rows = TT_MIN(rows, max_rows);
	/* Data ranks take turns at batches of rows; all run as many cells. */
	for (int64_t r = 0; r < rows; r += ranks * t->valid_rows->cap_rows) {
		if (t->stop && *t->stop && !t->o.mesh.led)
			TT_FAIL(TT_ERR_STOP, "signal %d in a validation", (int)*t->stop);
		for (int64_t i = 1; i <= ranks; i++) { /* its own last: the batch is a view of the rows */
			int64_t first = r + (me + i) % ranks * t->valid_rows->cap_rows, n = TT_MIN(t->valid_rows->cap_rows, rows - first);
			if (n > 0)
				TT_TRY(tt_data_valid(t->data, first, t->valid_rows));
			for (int64_t k = 0; k < n; k++)
				count += t->valid_rows->row_valid[k];
			tt_batch_fill(t->valid_rows, 0, TT_MAX(n, (int64_t)0), t->batch);
		}
		double one;
		TT_TRY(tt_trainer_forward(t, t->batch, &one));
		sum += one;
	}
	TT_TRY(sum_over_sharers(t, &sum));
	*loss_sum = sum;
	*valid = count;
	return TT_OK;
}
