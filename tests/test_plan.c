/* titan plan: what it counts is what a run of the mesh counts; its tables, its text, its refusals. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "tiny.h"
#include "train/mesh_plan.h"

/* ---- a plan against the run ---------------------------------------------------------------------------------------------------------------- */

typedef struct ran { /* one rank's own counters of one step */
	tt_comm_count talk[1 << TT_MESH_AXES];
	tt_exchange_seconds could[1 << TT_MESH_AXES]; /* calls and bytes that could be hidden */
	double flops;
	int64_t planned[TT_EXEC_NREGIONS], used[TT_EXEC_NREGIONS];
} ran;

typedef struct mesh_run {
	const tt_run_options *o;
	ran *rank;
} mesh_run;

static void count_groups(tt_comm_axes *x, tt_comm_count *out, double sign)
{
	for (int i = 1; i < 1 << TT_MESH_AXES; i++) {
		tt_comm_count c = tt_comm_axes_count(x, (uint32_t)i);
		out[i].calls += (int64_t)sign * c.calls;
		out[i].bytes += (int64_t)sign * c.bytes;
	}
}

static tt_status run_rank(tt_comm *c, void *ctx)
{
	mesh_run *m = ctx;
	tt_run_options o = *m->o;
	ran *r = &m->rank[tt_comm_rank(c)];
	o.mesh.comm = c;
	tt_trainer *t;
	TT_TRY(tt_trainer_create(&o, &t));
	/* Groups of one name and list are one: these are the trainer's. */
	int size[TT_PLAN_AXES];
	for (int i = 0; i < TT_PLAN_AXES; i++)
		size[i] = tt_trainer_typed(t)->mesh.ax[i].size;
	tt_comm_axes axes;
	tt_status s = tt_comm_axes_open(c, TT_PLAN_AXES, size, tt_plan_axes, &axes);
	tt_step_report said;
	tt_exec *e = tt_trainer_exec(t);
	if (!s) {
		count_groups(&axes, r->talk, -1);
		r->flops = -tt_exec_flops(e);
		for (int i = 1; i < 1 << TT_MESH_AXES; i++)
			r->could[i] = tt_exec_exchange_seconds(e, i);
		s = tt_trainer_step(t, &said);
		for (int i = 1; i < 1 << TT_MESH_AXES; i++) {
			tt_exchange_seconds now = tt_exec_exchange_seconds(e, i);
			r->could[i].hideable_calls = now.hideable_calls - r->could[i].hideable_calls;
			r->could[i].hideable_bytes = now.hideable_bytes - r->could[i].hideable_bytes;
		}
		count_groups(&axes, r->talk, 1);
		r->flops += tt_exec_flops(e);
	}
	for (int i = 0; i < TT_EXEC_NREGIONS; i++) {
		r->planned[i] = tt_exec_planned(e, i);
		r->used[i] = tt_exec_used(e, i);
	}
	tt_trainer_destroy(t);
	return s;
}

static void compare_rank(tt_test *t, const char *mesh, int rank, const tt_plan_rank *p, const ran *r)
{
	tt_comm_count talk[1 << TT_MESH_AXES] = { 0 }, could[1 << TT_MESH_AXES] = { 0 };
	for (int64_t i = 0; i < p->ntalk; i++) {
		could[p->talk[i].axes].calls += p->talk[i].hideable_calls;
		could[p->talk[i].axes].bytes += p->talk[i].hideable_bytes;
		talk[p->talk[i].axes].calls += p->talk[i].calls;
		talk[p->talk[i].axes].bytes += p->talk[i].bytes;
	}
	for (int i = 1; i < 1 << TT_MESH_AXES; i++)
		TT_CHECK_MSG(t, talk[i].calls == r->talk[i].calls && talk[i].bytes == r->talk[i].bytes,
			     "%s, rank %d, axes %d: planned %lld calls and %lld bytes, ran %lld and %lld", mesh, rank, i, (long long)talk[i].calls, (long long)talk[i].bytes,
			     (long long)r->talk[i].calls, (long long)r->talk[i].bytes);
	for (int i = 1; i < 1 << TT_MESH_AXES; i++)
		TT_CHECK_MSG(t, could[i].calls == r->could[i].hideable_calls && could[i].bytes == r->could[i].hideable_bytes,
			     "%s, rank %d, axes %d: planned that %lld calls and %lld bytes could be hidden, ran %lld and %lld", mesh, rank, i, (long long)could[i].calls,
			     (long long)could[i].bytes, (long long)r->could[i].hideable_calls, (long long)r->could[i].hideable_bytes);
	TT_CHECK_MSG(t, p->flops == r->flops && p->flops > 0, "%s, rank %d: planned %.17g FLOPs, ran %.17g", mesh, rank, p->flops, r->flops);
	for (int i = 0; i < TT_EXEC_NREGIONS; i++)
		TT_CHECK_MSG(t, p->region[i] == r->planned[i] && r->used[i] <= p->region[i], "%s, rank %d, %s: planned %lld bytes, the run planned %lld and used %lld", mesh, rank,
			     tt_exec_region_name(i), (long long)p->region[i], (long long)r->planned[i], (long long)r->used[i]);
}

typedef struct resident_run {
	const tt_run_options *o;
	int64_t resident; /* bytes of the process after a step, all ranks alive */
} resident_run;

static tt_status run_resident(tt_comm *c, void *ctx)
{
	resident_run *m = ctx;
	tt_run_options o = *m->o;
	o.mesh.comm = c;
	tt_trainer *t;
	TT_TRY(tt_trainer_create(&o, &t));
	tt_step_report said;
	tt_comm_group *all;
	tt_status s = tt_comm_group_all(c, "test", &all);
	if (!s)
		s = tt_trainer_step(t, &said);
	if (!s)
		s = tt_comm_barrier(all, "stepped");
	if (!s && tt_comm_rank(c) == 0)
		m->resident = tt_memory_resident();
	if (!s)
		s = tt_comm_barrier(all, "measured");
	tt_trainer_destroy(t);
	return s;
}

/* What ranks need, the system must have given them after a step, and little more: 5% and 50 MiB. */
static void resident(tt_test *t)
{
	tt_llama_config m = tiny_model(16384);
	m.hidden_size = 512;
	m.intermediate_size = 1024;
	m.num_attention_heads = 32;
	m.num_key_value_heads = 8;
	tt_run_options o = tiny_options(m, tiny_rows(t->arena, ROWS, 64, 16384, 3), 64, ROWS);
	o.mesh.size[TT_DP_SHARD] = o.mesh.size[TT_TP] = 2;
	o.mesh.sp = true;
	o.exec.isa = tiny_isa(t);
	o.exec.kernels_ref = false;
	o.eval_tokens = 64;
	o.tokens_per_microbatch = 3 * 64;
	tt_plan_mesh plan;
	if (!TT_CHECK_OK(t, tt_mesh_plan(t->arena, &o, &(tt_mesh_plan_options){ .name = "c" }, &plan)))
		return;
	int64_t needs = 0, before = tt_memory_resident();
	for (int64_t i = 0; i < plan.nrank; i++)
		needs += plan.rank[i].alike * plan.rank[i].memory;
	resident_run r = { .o = &o };
	if (!TT_CHECK_OK(t, tt_comm_threads(4, &(tt_comm_options){ .init_timeout_s = 60 }, run_resident, &r)))
		return;
	double grew = (double)(r.resident - before), off = grew - (double)needs, slack = 0.05 * (double)needs + 50 * (double)TT_MIB;
	TT_CHECK_MSG(t, needs > 300 * TT_MIB && off < slack && off > -slack, "planned %s on 4 ranks, the process grew by %s", tt_scale_bytes(needs).s, tt_scale_bytes((int64_t)grew).s);
}

typedef struct mesh_case { int size[TT_RUN_AXES]; bool sp; int64_t rows_per_mb; } mesh_case;

/* Rows are one sequence each: the plan takes rows as whole. */
static tt_run_options whole_rows(tt_test *t, int64_t ffn, int64_t vocab, int chunks)
{
	tt_llama_config m = tiny_model(vocab);
	m.intermediate_size = ffn;
	tt_rows rows = tiny_rows(t->arena, ROWS, CONTEXT, VOCAB, 3);
	int32_t *lengths = TT_NEWN(t->arena, int32_t, ROWS * TINY_MAX_SEQS);
	for (int i = 0; i < ROWS; i++)
		lengths[i * TINY_MAX_SEQS] = CONTEXT;
	rows.lengths = lengths;
	tt_run_options o = tiny_options(m, rows, CONTEXT, ROWS);
	o.loss_chunks = chunks;
	return o;
}

static void compare(tt_test *t, const tt_run_options *base, const mesh_case *c)
{
	tt_run_options o = *base;
	int n = 1;
	for (int i = 0; i < TT_RUN_AXES; i++)
		n *= o.mesh.size[i] = c->size[i];
	o.mesh.sp = c->sp;
	o.tokens_per_microbatch = c->rows_per_mb * o.data.context_length;
	const char *name = tt_arena_printf(t->arena, "dp_replicate %d, dp_shard %d, cp %d, tp %d%s, %lld rows", c->size[0], c->size[1], c->size[2], c->size[3], c->sp ? ", sp" : "",
					   (long long)c->rows_per_mb);
	tt_plan_mesh plan;
	mesh_run m = { &o, TT_NEWN(t->arena, ran, n) };
	tt_comm_options how = { .init_timeout_s = 60 };
	tt_mesh_plan_options q = { .name = name };
	if (!TT_CHECK_OK(t, tt_mesh_plan(t->arena, &o, &q, &plan)) || !TT_CHECK_OK(t, tt_comm_threads(n, &how, run_rank, &m)))
		return;
	TT_CHECK_INT(t, plan.ranks, n);
	int64_t alike = 0;
	for (int64_t i = 0; i < plan.nrank; i++)
		alike += plan.rank[i].alike;
	TT_CHECK_INT(t, alike, n);
	for (int i = 0; i < n; i++)
		compare_rank(t, name, i, &plan.rank[plan.class_of[i]], &m.rank[i]);
}

static const mesh_case meshes[] = {
	{ { 2, 1, 1, 1 }, false, 2 }, { { 1, 3, 1, 1 }, false, 1 }, { { 2, 2, 1, 1 }, false, 5 }, { { 1, 1, 1, 2 }, false, 5 }, { { 1, 1, 1, 4 }, true, 2 }, { { 1, 1, 3, 1 }, false, 2 },
	{ { 1, 2, 1, 2 }, true, 2 }, { { 2, 1, 2, 2 }, false, 1 }, { { 1, 2, 2, 2 }, true, 2 },
};

static void counters(tt_test *t)
{
	tt_run_options o = whole_rows(t, 97, VOCAB, 3);
	for (int i = 0; i < TT_COUNT(meshes); i++)
		compare(t, &o, &meshes[i]);
	/* Fast kernels: packed weights, fused nodes, recomputation. */
	o = whole_rows(t, 128, 64, 2);
	o.compute = TT_BF16;
	o.exec.isa = tiny_isa(t);
	o.exec.kernels_ref = false;
	o.recompute.mode = TT_RECOMPUTE_FULL;
	compare(t, &o, &(mesh_case){ { 1, 2, 1, 2 }, true, 2 });
	o.overlap = (tt_overlap){ 1, 25 << 20, false };
	compare(t, &o, &(mesh_case){ { 1, 2, 1, 2 }, true, 2 });
	compare(t, &o, &(mesh_case){ { 2, 2, 1, 1 }, false, 1 });
	/* Ranks that differ in a shard alone, and in the part of a sum alone. */
	o = whole_rows(t, 97, 64, 1);
	compare(t, &o, &(mesh_case){ { 1, 1, 1, 2 }, false, 2 });
	o = whole_rows(t, 96, 70, 3);
	compare(t, &o, &(mesh_case){ { 3, 1, 1, 1 }, false, 5 });
}

/* ---- traces -------------------------------------------------------------------------------------------------------------------------------- */

typedef struct trace_run { const tt_run_options *o; int64_t instructions[8]; } trace_run;

static tt_status run_traced(tt_comm *c, void *ctx)
{
	trace_run *x = ctx;
	tt_run_options o = *x->o;
	o.mesh.comm = c;
	tt_trainer *t;
	TT_TRY(tt_trainer_create(&o, &t));
	tt_step_report said;
	tt_status s = TT_OK;
	for (int i = 0; i < 4 && !s; i++)
		s = tt_trainer_step(t, &said);
	tt_exec_instr at;
	static const tt_segment segs[] = { TT_SEG_F, TT_SEG_B, TT_SEG_REDUCE, TT_SEG_OPT, TT_SEG_PREP };
	for (int i = 0; i < TT_COUNT(segs); i++)
		for (int64_t k = 0; tt_exec_instr_at(tt_trainer_exec(t), segs[i], k, &at); k++)
			x->instructions[tt_comm_rank(c)] += segs[i] == TT_SEG_F || segs[i] == TT_SEG_B ? 3 : 1;
	tt_trainer_destroy(t);
	return s;
}

/* Instructions of a lane follow each other, within the step's span; none is missing. */
static void check_trace(tt_test *t, const char *path, int rank, int64_t instructions)
{
	json_error_t why;
	json_t *root = json_load_file(path, 0, &why), *events = json_object_get(root, "traceEvents"), *e;
	if (!TT_CHECK_MSG(t, json_is_array(events), "%s: %s", path, why.text))
		return;
	double end[1 + TT_COMM_LANES] = { 0 }, first = INFINITY, last = 0, step[2] = { 0 };
	int64_t n = 0, exchanges = 0;
	size_t i;
	json_array_foreach(events, i, e) {
		const char *name = json_string_value(json_object_get(e, "name"));
		double ts = json_number_value(json_object_get(e, "ts")), dur = json_number_value(json_object_get(e, "dur"));
		int64_t tid = json_integer_value(json_object_get(e, "tid"));
		TT_CHECK_INT(t, json_integer_value(json_object_get(e, "pid")), rank);
		if (strcmp(json_string_value(json_object_get(e, "ph")), "X"))
			continue;
		if (!tid) {
			if (!strcmp(name, "step"))
				step[0] = ts, step[1] = ts + dur;
			continue;
		}
		double wait = json_number_value(json_object_get(json_object_get(e, "args"), "waits_us"));
		bool exchange = !strncmp(name, "exchange", 8);
		TT_CHECK_MSG(t, dur >= 0 && ts >= end[tid - 1] - 2e-3 && wait <= dur + 2e-3 && (exchange || wait == 0), "%s: %s on lane %lld at %.3f for %.3f, waits %.3f; the last ended at %.3f",
			     path, name, (long long)tid, ts, dur, wait, end[tid - 1]);
		end[tid - 1] = ts + dur;
		first = TT_MIN(first, ts);
		last = TT_MAX(last, ts + dur);
		exchanges += exchange;
		n++;
	}
	TT_CHECK_INT(t, n, instructions);
	TT_CHECK_INT(t, json_integer_value(json_object_get(root, "dropped")), 0);
	TT_CHECK_MSG(t, exchanges > 0 && step[0] <= first && last <= step[1] + 2e-3, "%s: the step is %.3f to %.3f, its instructions %.3f to %.3f", path, step[0], step[1], first, last);
	json_decref(root);
}

/* A rank has 3 cells a step: run_traced counts so. */
static void trace_mesh(tt_test *t, tt_run_options o, const char *folder, int ranks)
{
	o.trace = (tt_run_trace){ tt_test_path(t, folder), 2, 1 };
	trace_run x = { .o = &o };
	tt_comm_options how = { .init_timeout_s = 60 };
	if (!TT_CHECK_OK(t, tt_comm_threads(ranks, &how, run_traced, &x)))
		return;
	for (int rank = 0; rank < ranks; rank++)
		for (int step = 1; step <= 4; step++) {
			const char *path = tt_arena_printf(t->arena, "%s/iteration_%d/rank%d_trace.json", o.trace.folder, step, rank);
			if (step % 2)
				TT_CHECK_MSG(t, access(path, F_OK) != 0, "%s is there", path);
			else
				check_trace(t, path, rank, x.instructions[rank]);
		}
}

/* Both lanes write: exchanges of one program run while another computes, and while nothing does. */
static void traces(tt_test *t)
{
	tt_run_options o = whole_rows(t, 96, 64, 2);
	o.mesh.size[TT_TP] = 2;
	o.tokens_per_microbatch = 2 * CONTEXT;
	trace_mesh(t, o, "traces", 2);
	o = whole_rows(t, 96, 64, 2);
	o.mesh.size[TT_DP_REPLICATE] = o.mesh.size[TT_DP_SHARD] = 2;
	o.data.tokens_per_step = 12 * CONTEXT; /* of 4 data ranks 3 cells each */
	o.tokens_per_microbatch = CONTEXT;
	o.overlap = (tt_overlap){ 1, 25 << 20, false };
	trace_mesh(t, o, "overlapped", 4);
}

/* What finds no room is counted, and nothing is written beyond it. */
static void full_ring(tt_test *t)
{
	tt_trace r = { .on = true };
	tt_trace_room(&r, t->arena, 3);
	for (int i = 0; i < 5; i++)
		tt_trace_span(&r, i < 3 ? "kept" : "lost", i, i + 1);
	r.on = false;
	tt_trace_span(&r, "off", 9, 10);
	tt_buf b = { 0 };
	tt_exec *e;
	if (!TT_CHECK_OK(t, tt_exec_create(&(tt_exec_options){ 0 }, &e)))
		return;
	tt_exec_print_trace(e, &r, 0, &b);
	TT_CHECK_MSG(t, strstr(b.s, "\"dropped\":2") && strstr(b.s, "kept") && !strstr(b.s, "lost") && !strstr(b.s, "off\""), "%s", b.s);
	tt_buf_fini(&b);
	tt_exec_destroy(e);
}

/* ---- the report -------------------------------------------------------------------------------------------------------------------------- */

static int64_t whole(json_t *o, const char *key) { return json_integer_value(json_object_get(o, key)); }

/* What a report must hold of any config. */
static json_t *planned(tt_test *t, const char *arguments)
{
	const char *path = tt_test_path(t, "plan.json");
	int bad = system(tt_arena_printf(t->arena, "build/titan plan %s --json > %s", arguments, path));
	json_error_t why;
	json_t *o = json_load_file(path, 0, &why), *c, *talk, *v;
	if (!TT_CHECK_MSG(t, !bad && o, "titan plan %s: %s", arguments, o ? "exit code" : why.text))
		return NULL;
	int64_t alike = 0;
	size_t i, k;
	const char *key;
	json_array_foreach(json_object_get(o, "classes"), i, c) {
		json_t *memory = json_object_get(c, "memory"), *estimate = json_object_get(c, "estimate");
		int64_t sum = 0;
		double in_talk = 0, in_open = 0;
		json_object_foreach(memory, key, v)
			sum += strcmp(key, "total") ? json_integer_value(v) : 0;
		TT_CHECK_INT(t, sum, whole(memory, "total"));
		alike += whole(c, "alike");
		json_array_foreach(json_object_get(c, "communication"), k, talk) {
			in_talk += json_number_value(json_object_get(talk, "seconds"));
			in_open += json_number_value(json_object_get(talk, "exposed_seconds"));
			TT_CHECK_MSG(t, whole(talk, "calls") > 0 && whole(talk, "bytes") >= 0, "%s", json_dumps(talk, 0));
		}
		double all = json_number_value(json_object_get(estimate, "seconds")), computes = json_number_value(json_object_get(estimate, "compute_seconds"));
		double talks = json_number_value(json_object_get(estimate, "communication_seconds")), open = json_number_value(json_object_get(estimate, "exposed_seconds"));
		TT_CHECK_MSG(t, all > 0 && computes > 0 && all <= (computes + talks) * (1 + 1e-9) && all >= computes * (1 - 1e-9) && all <= (computes + open) * (1 + 1e-9) && open <= talks * (1 + 1e-9) && open >= 0 &&
				     fabs(in_talk - talks) <= 1e-9 * talks + 1e-12 && fabs(in_open - open) <= 1e-9 * talks + 1e-12, "seconds %g: %g computing, %g and %g talking, %g and %g not hidden", all, computes, talks, in_talk, open, in_open);
	}
	TT_CHECK_INT(t, whole(o, "classes_all") == (int64_t)json_array_size(json_object_get(o, "classes")) ? alike : whole(o, "ranks"), whole(o, "ranks"));
	return o;
}

static void report(tt_test *t)
{
	json_t *o = planned(t, "configs/debug.toml --ranks=4 --parallelism.tensor_parallel_degree=2 --hardware.table=h200 --model.num_key_value_heads=4");
	if (!o)
		return;
	TT_CHECK_INT(t, whole(o, "ranks"), 4);
	TT_CHECK_INT(t, whole(json_object_get(o, "mesh"), "tp"), 2);
	TT_CHECK_INT(t, whole(json_object_get(o, "mesh"), "dp_shard"), 2);
	TT_CHECK_INT(t, whole(o, "rows"), 8);
	TT_CHECK_INT(t, whole(o, "microbatches"), 1); /* 4 rows of a data rank, 512 tokens */
	TT_CHECK_INT(t, whole(o, "classes_all"), 1);
	TT_CHECK(t, json_is_true(json_object_get(o, "fits")));
	json_decref(o);
}

/* Thousands of ranks cost their few classes; every sum is a whole number. */
static void large(tt_test *t)
{
	json_t *o = planned(t, "configs/llama3-405b.toml"); /* it fits, as its head says */
	if (!o)
		return;
	TT_CHECK_INT(t, whole(o, "parameters"), 405853388800);
	TT_CHECK_INT(t, whole(o, "ranks"), 128);
	TT_CHECK_INT(t, whole(o, "classes_all"), 1); /* a rank of tp has one kv head: each of 16 that share it has 8 of its lines */
	/* 3 x forward: 6 FLOPs a parameter but the embedding's and a token, and 12 a width of queries, a pair and a layer */
	double tokens = 524288, pairs = 64 * 8192.0 * 8193 / 2, model = 6 * tokens * (405853388800.0 - 128256.0 * 16384 - 253.0 * 16384) + 12 * 126 * pairs * 16384;
	double said = json_number_value(json_object_get(o, "model_flops"));
	TT_CHECK_MSG(t, fabs(said - model) <= 1e-12 * model, "model FLOPs %.17g, want %.17g", said, model);
	/* Full recomputation: a forward more of all but the head, whose products are of the loss. */
	double all = 0;
	json_t *c;
	size_t i;
	json_array_foreach(json_object_get(o, "classes"), i, c)
		all += (double)whole(c, "alike") * json_number_value(json_object_get(c, "flops"));
	TT_CHECK_MSG(t, all >= model * (1 - 1e-9) && all <= model * 4 / 3, "FLOPs of all ranks %.4g, of the model %.4g", all, model);
	json_decref(o);
}

static void thousands(tt_test *t)
{
	json_t *o = planned(t, "configs/llama3-405b.toml --memory=1000 --ranks=4096 --training.tokens_per_step=16777216 --parallelism.data_parallel_replicate_degree=8");
	if (!o)
		return;
	TT_CHECK_INT(t, whole(json_object_get(o, "mesh"), "dp_shard"), 64);
	json_decref(o);
}

static void text(tt_test *t)
{
	tt_run_options o = whole_rows(t, 96, 64, 2);
	o.mesh.size[TT_DP_SHARD] = 9;
	o.mesh.size[TT_TP] = 4;
	o.tokens_per_microbatch = CONTEXT;
	tt_hardware h;
	tt_plan_mesh m;
	if (!TT_CHECK_OK(t, tt_hardware_find("h100", &h)) || !TT_CHECK_OK(t, tt_mesh_plan(t->arena, &o, &(tt_mesh_plan_options){ .name = "c.toml", .hardware = &h, .limit = TT_GIB }, &m)))
		return;
	tt_buf b = { 0 };
	tt_plan_print(t->arena, &m, &b);
	static const char *const parts[] = {
		"plan of c.toml: 70.0 k parameters on 36 ranks: dp_shard 9 tp 2 tp_rep 2\nstep: 5 rows of 32 tokens on 9 data ranks, 1 microbatch each\n",
		"  axis            size  stride  ranks of rank 0's group\n"
		"  dp_shard           9       4  0, 4, 8, 12, 16, 20, ... 32\n"
		"  tp                 2       2  0, 2\n"
		"  tp_rep             2       1  0, 1\n",
		"\nmemory of rank ", "\ncommunication of rank ", "  dp_shard       reduce-scatter ", "  dp_shard       losses of rows          1 ", "a first guess, no measurement",
	};
	for (int i = 0; i < TT_COUNT(parts); i++)
		TT_CHECK_MSG(t, strstr(b.s, parts[i]), "no \"%s\" in\n%s", parts[i], b.s);
	tt_buf_fini(&b);
}

/* ---- time ---------------------------------------------------------------------------------------------------------------------------------- */

/* Twice the link, half the time of what goes over it alone; a slower network where groups leave the node. */
static void links(tt_test *t)
{
	tt_run_options o = whole_rows(t, 96, 64, 2);
	o.mesh.size[TT_DP_SHARD] = 4;
	tt_hardware h = { .name = "x", .title = "x", .bf16 = 1e30, .f32 = 1e30, .bandwidth = 1e30, .link = 1e6, .network = 1e5, .product_share = 1, .memory_share = 1, .link_share = 1 };
	double s[3];
	for (int i = 0; i < 3; i++) {
		tt_plan_mesh m;
		h.link = i ? 2e6 : 1e6;
		h.node = i == 2 ? 2 : 0;
		if (!TT_CHECK_OK(t, tt_mesh_plan(t->arena, &o, &(tt_mesh_plan_options){ .name = "c", .hardware = &h }, &m)))
			return;
		s[i] = m.rank[0].seconds;
	}
	TT_CHECK_MSG(t, fabs(s[0] / s[1] - 2) < 1e-6, "%g s, with twice the link %g s", s[0], s[1]);
	/* 2 of 3 others are in another node: bytes 2/3 over 1e5 against all over 2e6 */
	TT_CHECK_MSG(t, fabs(s[2] / s[1] - 2e6 / 1e5 * 2 / 3) < 1e-3, "%g s in one node, %g s in nodes of 2", s[1], s[2]);
}

static double fake_peak(void *ctx, tt_pool *pool, tt_figure f, int threads, double seconds)
{
	(void)ctx, (void)pool, (void)seconds;
	return (f == TT_PEAK_TRIAD ? 1e10 : 1e11) * threads;
}

static int64_t fake_clock(void *ctx)
{
	(void)ctx;
	return 1000;
}

static void hardware(tt_test *t)
{
	tt_hardware h;
	for (const tt_hardware *x = tt_hardware_tables; x->name; x++) {
		TT_CHECK_OK(t, tt_hardware_find(x->name, &h));
		TT_CHECK_MSG(t, h.bf16 > h.f32 && h.memory > 0 && h.bandwidth > h.link && h.link > h.network && strstr(h.source, "data sheet"), "%s", x->name);
	}
	TT_CHECK_FAILS(t, tt_hardware_find("h10", &h), TT_ERR_USAGE, "nearest: h100");
	tt_peak_source s = { .measure = fake_peak, .clock = fake_clock, .seconds = 0.001 };
	tt_hardware one, four;
	if (TT_CHECK_OK(t, tt_hardware_this(&s, TT_ISA_REF, 1, &one)) && TT_CHECK_OK(t, tt_hardware_this(&s, TT_ISA_REF, 4, &four)))
		TT_CHECK_MSG(t, one.f32 == 4 * four.f32 && one.bandwidth == 4 * four.bandwidth && one.f32 >= 1e11 && one.bandwidth >= 1e10, "%g and %g FLOP/s", one.f32, four.f32);
}

/* ---- what does not fit ------------------------------------------------------------------------------------------------------------------------ */

static void refusals(tt_test *t)
{
	tt_run_options o = whole_rows(t, 96, 64, 2);
	o.mesh.size[TT_DP_SHARD] = 2;
	tt_hardware h;
	tt_plan_mesh m;
	TT_CHECK_OK(t, tt_hardware_find("h100", &h));
	if (!TT_CHECK_OK(t, tt_mesh_plan(t->arena, &o, &(tt_mesh_plan_options){ .name = "c", .hardware = &h, .limit = TT_GIB }, &m)))
		return;
	TT_CHECK_OK(t, tt_mesh_plan_fits(t->arena, &o, &m));
	int64_t needs = m.rank[m.worst].memory;
	m.limit = needs;
	TT_CHECK_OK(t, tt_mesh_plan_fits(t->arena, &o, &m));
	m.limit = needs - 1;
	TT_CHECK_FAILS(t, tt_mesh_plan_fits(t->arena, &o, &m), TT_ERR_MEMORY, "it fits with ");
	m.limit = needs * 2 / 5;
	TT_CHECK_FAILS(t, tt_mesh_plan_fits(t->arena, &o, &m), TT_ERR_MEMORY, "and fits with them on ");
	m.hardware.name = "this"; /* more ranks share what there is */
	TT_CHECK_FAILS(t, tt_mesh_plan_fits(t->arena, &o, &m), TT_ERR_MEMORY, "a smaller model fits");
	/* More than can be counted. */
	o = whole_rows(t, 96, 64, 2);
	o.model.vocab_size = INT32_MAX;
	o.data.context_length = o.data.tokens_per_step = o.tokens_per_microbatch = 1LL << 30;
	TT_CHECK_FAILS(t, tt_mesh_plan(t->arena, &o, &(tt_mesh_plan_options){ .name = "c" }, &m), TT_ERR_MEMORY, "more bytes than can be counted");
}

/* Bytes that one more layer keeps from forward to backward. */
static int64_t kept_by_layer(tt_test *t, int tp, bool sp)
{
	int64_t frame[2] = { 0 };
	for (int i = 0; i < 2; i++) {
		tt_run_options o = whole_rows(t, 96, 64, 2);
		o.model.num_hidden_layers = 2 + 4 * i;
		o.recompute.mode = TT_RECOMPUTE_FULL;
		o.mesh.size[TT_TP] = tp;
		o.mesh.sp = sp;
		o.tokens_per_microbatch = 4 * CONTEXT;
		tt_plan_mesh m;
		if (!TT_CHECK_OK(t, tt_mesh_plan(t->arena, &o, &(tt_mesh_plan_options){ .name = "c" }, &m)))
			return 0;
		frame[i] = m.rank[0].region[TT_REGION_FRAME];
	}
	return (frame[1] - frame[0]) / 4;
}

/* Full recomputation keeps a layer's input alone, what came from other ranks included; under sequence parallel a rank's share of it. */
static void kept(tt_test *t)
{
	int64_t input = 4 * CONTEXT * 64 * 4;
	TT_CHECK_INT(t, kept_by_layer(t, 1, false), input);
	TT_CHECK_INT(t, kept_by_layer(t, 2, false), input);
	TT_CHECK_INT(t, kept_by_layer(t, 2, true), input / 2);
	TT_CHECK_INT(t, kept_by_layer(t, 4, true), input / 4);
}

static void drawing(tt_test *t)
{
	tt_run_options o = whole_rows(t, 96, 64, 2);
	o.mesh.size[TT_TP] = 2;
	tt_hardware h;
	tt_plan_mesh m;
	TT_CHECK_OK(t, tt_hardware_find("b200", &h));
	if (!TT_CHECK_OK(t, tt_mesh_plan(t->arena, &o, &(tt_mesh_plan_options){ .name = "a<b&c.toml", .hardware = &h, .spans = true }, &m)))
		return;
	const tt_plan_rank *r = &m.rank[0];
	double lane[16][TT_LANES] = { 0 };
	for (int64_t i = 0; i < r->nspan; i++) {
		const tt_plan_span *s = &r->span[i];
		TT_CHECK_MSG(t, s->begin >= lane[s->run][s->lane] && s->end > s->begin, "%s of %s from %g to %g, the lane is taken until %g", s->op, s->name, s->begin, s->end,
			     lane[s->run][s->lane]);
		lane[s->run][s->lane] = s->end;
	}
	tt_buf b = { 0 };
	tt_plan_svg(&m, &b);
	TT_CHECK(t, strstr(b.s, "a&lt;b&amp;c.toml") && strstr(b.s, "NVIDIA B200") && strstr(b.s, ">F, ") && strstr(b.s, ">OPT, ") && strstr(b.s, "</svg>\n"));
	tt_buf_fini(&b);
}

const tt_case tt_suite_plan[] = {
	{ "counters", counters, TT_TIER_QUICK },
	{ "resident", resident, TT_TIER_CI },
	{ "traces", traces, TT_TIER_QUICK },
	{ "full_ring", full_ring, TT_TIER_QUICK },
	{ "report", report, TT_TIER_QUICK },
	{ "large", large, TT_TIER_QUICK },
	{ "thousands", thousands, TT_TIER_CI },
	{ "text", text, TT_TIER_QUICK },
	{ "links", links, TT_TIER_QUICK },
	{ "hardware", hardware, TT_TIER_QUICK },
	{ "refusals", refusals, TT_TIER_QUICK },
	{ "kept", kept, TT_TIER_QUICK },
	{ "drawing", drawing, TT_TIER_QUICK },
	{ 0 },
};
