/* trainer.c: how one rank's trainer is made: graphs to programs, the mesh, weights, memory. What it then does is step.c's. */
#include <stdio.h>
#include <stdlib.h>

#include "ckpt/safetensors.h"
#include "train/trainer.h"

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

void tt_trainer_set_before_update(tt_trainer *t, bool (*fn)(void *ctx), void *ctx)
{
	t->before_update = fn;
	t->before_ctx = ctx;
}

void tt_trainer_set_save(tt_trainer *t, tt_status (*fn)(void *ctx, int64_t step, int64_t kind, int64_t dtype), void *ctx)
{
	t->save = fn;
	t->save_ctx = ctx;
}

tt_status tt_trainer_save(tt_trainer *t, int64_t step, int64_t kind, int64_t dtype)
{
	return leads(t) && !t->team.peers ? tt_team_tell(&t->team, (tt_team_order){ .what = TT_TEAM_SAVE, .a = step, .b = kind, .c = dtype }) : TT_OK;
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
	tt_cell cell = { .first = true, .last = !t->o.tamper };
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
	t->sharers = t->axes.group[TT_COMM_WANTED][sharing_axes(m)];
	t->all = t->axes.group[TT_COMM_WANTED][every];
	return TT_OK;
}

tt_on_mesh tt_trainer_on_mesh(const tt_trainer *t) { return (tt_on_mesh){ t->typed, t->mesh.eval, t->coord, t->ranks }; }

int64_t tt_loop_talk(const tt_trainer *t, int64_t rows, uint32_t *axes)
{
	const int *size = t->o.mesh.size;
	*axes = sharing_axes(&t->o.mesh);
	return (size[TT_DP_REPLICATE] * size[TT_DP_SHARD] * size[TT_CP] - 1) * row_bytes(rows);
}

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
	tt_exec_forget(t->exec);
	return t->o.mesh.led ? team_copy(t, false, name, at, NULL, src, n) : tt_exec_write(t->exec, name, at, src, n);
}

tt_status tt_trainer_square_sum(tt_trainer *t, const char *param, bool grad, double *out)
{
	if (leads(t))
		TT_TRY(tt_team_tell(&t->team, (tt_team_order){ .what = TT_TEAM_SQUARES, .a = state_of(t, param), .b = grad }));
	double mine;
	TT_TRY(tt_team_squares(t, param, grad, &mine));
	*out = mine;
	if (!many_ranks(t))
		return TT_OK;
	tt_mark mark = tt_arena_push(t->arena);
	double *every = TT_NEWN(t->arena, double, t->ranks);
	tt_status s = tt_comm_all_gather(t->all, "squares", &mine, sizeof mine, every);
	*out = 0;
	for (int i = 0; i < t->ranks; i++)
		*out += every[i];
	tt_arena_pop(t->arena, mark);
	return s;
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

tt_status tt_trainer_tamper_at(tt_trainer *t, tt_moment m)
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

tt_status tt_trainer_record_state(tt_trainer *t, const tt_step_report *r)
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

/* Ranks that live in this process's memory. */
static int sharers(const tt_trainer *t) { return t->o.mesh.comm && tt_comm_sees_memory(t->o.mesh.comm) ? tt_comm_size(t->o.mesh.comm) : 1; }

/* A model whose states alone cannot fit is refused before anything is built for it, on 64 ranks 64 times. The plan says the rest later. */
static tt_status states_fit(const tt_trainer *t)
{
	const tt_run_options *o = &t->o;
	int ranks = sharers(t);
	const int *size = o->mesh.size;
	double stat = o->exec.f64 ? 8 : 4, acc = o->exec.f64 ? 8 : o->exec.numerics == TT_EXACT ? 24 : 4;
	double shards = o->mesh.comm ? (double)TT_MAX(size[TT_DP_SHARD], 1) * TT_MAX(size[TT_CP], 1) * TT_MAX(size[TT_TP], 1) : 1; /* at most so many: rows may say less */
	double need = (double)tt_llama_params(&o->model) * (stat * (o->optim.sgd ? 2 : 3) + acc) / shards * ranks;
	double have = (double)(o->exec.limit ? o->exec.limit : tt_memory_limit());
	if (need > have)
		TT_FAIL(TT_ERR_MEMORY, "%s parameters with gradients and optimizer take %s%s before any activation, there are %s (model.flavor, "
				       "model.num_hidden_layers, model.hidden_size%s%s)", tt_scale_count(tt_llama_params(&o->model)).s,
			tt_scale_bytes((int64_t)TT_MIN(need, 0x1p62)).s, ranks > 1 ? tt_arena_printf(t->arena, " on the %d ranks of this process", ranks) : "",
			tt_scale_bytes((int64_t)have).s, o->optim.sgd ? "" : "; optimizer.name = \"SGD\" keeps one state less",
			o->mesh.comm && size[TT_DP_REPLICATE] > 1 ? "; parallelism.data_parallel_replicate_degree keeps as many copies" : "");
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

/* Ranks of one machine share its memory: what they all plan must fit. The first of those for whom it does not looks for what would make it fit, the others wait
 * for what it says. */
static tt_status fits_together(tt_trainer *t, int64_t need, int64_t limit)
{
	tt_comm *c = t->o.mesh.comm;
	int n = tt_comm_size(c), me = tt_comm_rank(c), here = 0, first = n;
	int64_t *all = TT_NEWN(t->arena, int64_t, n);
	double sum = 0;
	tt_comm_group *g;
	TT_TRY(tt_comm_group_all(c, "memory", &g));
	TT_TRY(tt_comm_all_gather(g, "planned memory", &need, sizeof need, all));
	for (int i = 0; i < n; i++)
		if (tt_comm_machine(c, i) == tt_comm_machine(c, me)) {
			sum += (double)all[i];
			first = TT_MIN(first, i);
			here++;
		}
	if (sum > (double)limit && first == me) {
		tt_error_set(TT_ERR_MEMORY, __FILE__, __LINE__, "the plans of the %d ranks of this %s need %s, there are %s", here, tt_comm_sees_memory(c) ? "process" : "machine",
			     tt_scale_bytes((int64_t)sum).s, tt_scale_bytes(limit).s);
		return tt_fit_refuse(t->arena, &t->o, (int64_t)((double)limit * (double)need / sum), false);
	}
	return tt_comm_barrier(g, "plans that fit");
}

/* A plan that does not fit is refused with what would make it fit. */
static tt_status reserve(tt_trainer *t)
{
	int64_t need = tt_fit_bytes(t), limit = t->o.exec.limit ? t->o.exec.limit : tt_memory_limit();
	if (many_ranks(t) && t->o.mesh.comm)
		TT_TRY(fits_together(t, need, limit));
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
	TT_TRY(states_fit(t));
	TT_TRY(tt_data_open(t->arena, &o->data, &t->data));
	int64_t context = o->data.context_length;
	t->rows_per_mb = o->tokens_per_microbatch / context;
	t->step_rows = tt_step_new(t->arena, o->data.tokens_per_step / context, context);
	t->valid_rows = tt_step_new(t->arena, TT_MAX((int64_t)1, o->eval_tokens / context), context);
	t->batch = tt_batch_new(t->arena, TT_MAX(o->tokens_per_microbatch, o->eval_tokens));
	t->startup.data = tt_now() - t0;
	tt_status made = plan(t);
	if (o->mesh.comm)
		made = tt_team_agree_programs(o->mesh.comm, made, made ? 0 : tt_graph_hash(t->typed), &o->exec);
	TT_TRY(made);
	if (t->trace)
		tt_traces_room(t->arena, t->exec, tt_cells_of(t->step_rows->cap_rows, t->rows_per_mb, 0, data_ranks(t)).n, o->trace.active, t->trace);
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
	tt_cell cell = { .first = true, .last = !o->tamper };
	TT_TRY(tt_exec_run(t->exec, TT_SEG_INIT, &cell));
	if (o->weights)
		TT_TRY(load_weights(t, o->weights));
	if (tt_exec_has(t->exec, TT_SEG_PREP))
		TT_TRY(tt_exec_run(t->exec, TT_SEG_PREP, &cell));
	TT_TRY(tt_trainer_record_state(t, NULL));
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
