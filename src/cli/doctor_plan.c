/* doctor_plan.c: whether the run of a config fits this machine: its plan, compiled and not started, and what follows from it. */
#include "cli/doctor.h"

/* ---- the plan -------------------------------------------------------------------------------------------------------------------------- */

static bool has_faster(const char *op)
{
	const tt_override *o;
	for (int i = 0; (o = tt_override_at(i)); i++)
		if (!strcmp(o->op, op))
			return true;
	return false;
}

static const char *shapes(tt_arena *a, const tt_graph *g, const tt_node *n)
{
	tt_buf b = { 0 };
	tt_buf_str(&b, g->values[n->out[0]].name);
	for (int i = 0; i < TT_MIN(n->nin, 2); i++) {
		const tt_value *v = &g->values[n->in[i]];
		tt_buf_printf(&b, "%s%s[", i ? " x " : ", ", tt_dtype_name(v->dtype));
		for (int d = 0; d < v->ndim; d++)
			tt_buf_printf(&b, "%s%lld", d ? "," : "", (long long)v->dim[d].n);
		tt_buf_str(&b, "]");
	}
	const char *s = tt_arena_strdup(a, b.s);
	tt_buf_fini(&b);
	return s;
}

static bool wider_has_it(tt_arena *a, const tt_graph *g, const tt_node *n, int threads)
{
	tt_mark mark = tt_arena_push(a);
	const tt_value **io = TT_NEWN(a, const tt_value *, n->nin + n->nout);
	for (int i = 0; i < n->nin + n->nout; i++) {
		tt_v v = i < n->nin ? n->in[i] : n->out[i - n->nin];
		io[i] = v ? &g->values[v] : NULL;
	}
	tt_kernel_case c = { n->op->name, n->attr, n->nin, n->nout, io, io + n->nin, threads };
	bool found = tt_override_find(&c, TT_ISA_AVX512_BF16) != NULL;
	tt_arena_pop(a, mark);
	return found;
}

static void find_slow(tt_arena *a, const tt_exec *e, int threads, tt_doctor_plan *p)
{
	tt_exec_instr x;
	for (int seg = 0; seg < TT_NSEGS; seg++)
		for (int64_t i = 0; tt_exec_instr_at(e, (tt_segment)seg, i, &x); i++) {
			const char *op = x.node->op->name;
			if (!has_faster(op))
				continue;
			tt_doctor_slow *s = p->slow, *end = s + p->nslow;
			while (s < end && strcmp(s->op, op))
				s++;
			if (s == end) {
				TT_PUSH(a, p->slow, p->nslow, p->cap_slow, ((tt_doctor_slow){ .op = op }));
				s = &p->slow[p->nslow - 1];
			}
			s->of++;
			if (!x.fast && !s->n++) {
				s->example = shapes(a, x.graph, x.node);
				s->by_isa = wider_has_it(a, x.graph, x.node, threads);
			}
		}
	int64_t n = 0;
	for (int64_t i = 0; i < p->nslow; i++)
		if (p->slow[i].n)
			p->slow[n++] = p->slow[i];
	p->nslow = n;
}

tt_status tt_doctor_plan_make(tt_arena *a, const char *name, const tt_config *cfg, tt_doctor_plan *out)
{
	tt_run_options o;
	tt_trainer *t;
	TT_TRY(tt_run_options_from_config(a, cfg, &o));
	tt_comm *end = tt_comm_fake_create(0, (int)cfg->hardware.ranks); /* rank 0's, of the mesh that would run */
	o.mesh.comm = end;
	tt_status planned = tt_trainer_plan(&o, &t);
	if (planned)
		tt_comm_fake_destroy(end);
	TT_TRY(planned);
	const tt_exec *e = tt_trainer_exec(t);
	tt_doctor_plan p = {
		.name = name, .params = tt_trainer_params(t), .saves = cfg->checkpoint.enable && !cfg->checkpoint.load_only,
		.async = cfg->checkpoint.async_mode != TT_CFG_ASYNC_DISABLED, .adamw = !o.optim.sgd, .keeps = o.recompute.mode != TT_RECOMPUTE_FULL, .references = o.exec.kernels_ref,
		.exact = o.exec.numerics == TT_EXACT, .compute_bf16 = o.compute == TT_BF16, .checkpoint = tt_trainer_checkpoint_bytes(t),
		.keep = cfg->checkpoint.keep_latest_k, .context = o.data.context_length, .trained_context = o.model.max_position_embeddings,
		.tokens = o.tokens_per_microbatch, .ranks = cfg->hardware.ranks,
	};
	for (int i = 0; i < TT_EXEC_NREGIONS; i++)
		p.planned += p.region[i] = tt_exec_planned(e, i);
	if (p.saves && p.async) /* ranks that are processes have room each for their share, threads one for all: which they will be is not known here */
		p.staging = TT_MIN(cfg->checkpoint.staging_mib * TT_MIB * p.ranks, p.checkpoint);
	/* Pairs of one whole row: a query attends to itself and all before it. */
	double row = (double)p.context, pairs = row * (row + 1) / 2, w = (double)o.model.sliding_window;
	if (w > 0 && w < row)
		pairs = w * (w + 1) / 2 + (row - w) * w;
	p.attention = 1 - tt_llama_forward_flops(&o.model, row, 0) / tt_llama_forward_flops(&o.model, row, pairs);
	if (!p.references && !p.exact && !o.exec.f64)
		find_slow(a, e, o.exec.threads, &p);
	tt_trainer_destroy(t);
	tt_comm_fake_destroy(end);
	*out = p;
	return TT_OK;
}

/* ---- findings --------------------------------------------------------------------------------------------------------------------------- */

typedef struct ctx {
	tt_arena *a;
	tt_findings *out;
} ctx;

#define SAY(...) tt_arena_printf(c->a, __VA_ARGS__)

static void add(ctx *c, tt_finding_level level, const char *key, const char *what, const char *why, const char *remedy)
{
	tt_finding f = { level, key, what, why, remedy };
	TT_PUSH(c->a, c->out->items, c->out->n, c->out->cap, f);
}

static void fine(ctx *c, const char *key, const char *what) { add(c, TT_FINDING_OK, key, what, "", ""); }

/* The keys that shrink the larger of two parts: what a microbatch needs, or what every parameter needs. */
static const char *less_memory(ctx *c, const tt_doctor_plan *p)
{
	int64_t cell = p->region[TT_REGION_FRAME] + p->region[TT_REGION_WORK] + p->region[TT_REGION_IO] + p->region[TT_REGION_SCRATCH];
	if (2 * cell > p->planned)
		return SAY("%sfewer tokens at once (training.tokens_per_microbatch = %lld or less%s): they take %s",
			p->keeps ? "activations made again (activation_checkpoint.mode = \"full\"), or " : "",
			(long long)(p->tokens > p->context ? tt_round_up(p->tokens / 2, p->context) : p->context), p->tokens > p->context ? "" : ", training.context_length",
			tt_scale_bytes(cell).s);
	return SAY("a smaller model (model.flavor, model.num_hidden_layers, model.hidden_size)%s: parameters, gradients and optimizer take %s",
		p->adamw ? ", or optimizer.name = \"SGD\", which keeps one state less" : "", tt_scale_bytes(p->planned - cell).s);
}

static void check_fit(ctx *c, const tt_doctor_facts *f)
{
	const tt_doctor_plan *p = f->plan;
	const tt_machine *m = &f->machine;
	const char *key = "plan.memory";
	bool limited = m->cgroup_memory.soft < m->ram;
	int64_t need = p->planned * TT_MAX(p->ranks, (int64_t)1) + p->staging, most = limited ? m->cgroup_memory.soft : m->ram, room = m->available;
	if (limited && m->cgroup_memory.used >= 0)
		room = TT_MIN(room, m->cgroup_memory.soft - m->cgroup_memory.used);
	const char *what = SAY("the plan takes %s%s%s, %s", tt_scale_bytes(need).s, p->ranks > 1 ? SAY(" on %lld ranks", (long long)p->ranks) : "",
		p->staging ? SAY(" (%s of it to save while training goes on)", tt_scale_bytes(p->staging).s) : "",
		limited ? SAY("the cgroup allows %s", tt_scale_bytes(most).s) : SAY("the machine has %s", tt_scale_bytes(most).s));
	if (most && need > most)
		add(c, TT_FINDING_BAD, key, what, p->planned > most ? "the run is refused at its start" : "the run is killed in its first save", less_memory(c, p));
	else if (m->ram && need > room)
		add(c, TT_FINDING_WARN, key, SAY("%s, of which %s can be had now", what, tt_scale_bytes(TT_MAX(0, room)).s), "the run swaps or is killed once it has touched all of it",
			SAY("end other processes, or %s", less_memory(c, p)));
	else
		fine(c, key, what);
}

static void check_room(ctx *c, const tt_doctor_facts *f)
{
	const tt_doctor_plan *p = f->plan;
	const char *key = "plan.disk", *one = SAY("%s", tt_scale_bytes(p->checkpoint).s);
	if (!p->saves) {
		fine(c, key, "nothing is saved (checkpoint.enable)");
		return;
	}
	if (!f->run_known)
		return; /* disk.run has said why */
	int64_t all = p->keep ? (p->keep + 1) * p->checkpoint : 0;
	const char *have = SAY("%s", tt_scale_bytes(f->run.free).s);
	if (f->run.free < p->checkpoint)
		add(c, TT_FINDING_BAD, key, SAY("a checkpoint takes %s, the run folder has %s free", one, have), "not one can be saved", "make room, job.dump_folder on another disk");
	else if (all > f->run.free)
		add(c, TT_FINDING_BAD, key, SAY("%lld checkpoints are kept and one is written: %s, the run folder has %s free", (long long)p->keep, tt_scale_bytes(all).s, have),
			"a save fails once the disk is full",
			f->run.free >= 2 * p->checkpoint ? SAY("checkpoint.keep_latest_k = %lld, or job.dump_folder on another disk", (long long)(f->run.free / p->checkpoint - 1)) :
							   "make room, or job.dump_folder on another disk");
	else if (!p->keep)
		add(c, TT_FINDING_WARN, key, SAY("every checkpoint is kept, each of %s; the run folder has %s free", one, have),
			SAY("the disk is full after %lld saves", (long long)(f->run.free / p->checkpoint)), "checkpoint.keep_latest_k");
	else
		fine(c, key, SAY("%lld checkpoints of %s are kept and one is written: %s, the run folder has %s free", (long long)p->keep, one, tt_scale_bytes(all).s, have));
}

static void check_kernels(ctx *c, const tt_doctor_facts *f)
{
	const tt_doctor_plan *p = f->plan;
	const char *key = "plan.kernels";
	if (p->references || p->exact) {
		add(c, TT_FINDING_WARN, key, p->exact ? "exact numerics" : "reference kernels only", p->exact ? "ten to thirty times slower: for proof" : "many times slower: for proof",
			p->exact ? "debug.numerics = \"fast\"" : "debug.kernels = \"fast\"");
		return;
	}
	if (!p->nslow)
		fine(c, key, "every product and every attention runs on its fast kernel");
	for (int64_t i = 0; i < p->nslow; i++) {
		const tt_doctor_slow *s = &p->slow[i];
		bool attention = !strncmp(s->op, "attention", 9);
		const char *remedy = attention ? "model.head_dim: a multiple of 16, at most 256" :
						 "model.hidden_size, model.intermediate_size, heads x head_dim, model.vocab_size: multiples of 2, better of 64";
		if (s->by_isa)
			remedy = p->compute_bf16 ? "training.mixed_precision_param = \"float32\", or a processor with AVX-512 BF16" : "a processor with AVX2 or AVX-512; debug.isa = \"auto\"";
		add(c, TT_FINDING_WARN, p->nslow == 1 ? key : SAY("%s.%s", key, s->op),
			SAY("%lld of %lld %s run on the reference kernel, the first is %s", (long long)s->n, (long long)s->of, s->op, s->example),
			s->by_isa ? SAY("instruction set %s has no faster one for them", tt_isa_name(f->isa)) : "their dims fit no faster one; each takes several times as long", remedy);
	}
}

static void check_shape(ctx *c, const tt_doctor_facts *f)
{
	enum { LEAST_LINES = 32 }; /* tokens a lane: about one tile of a product */
	const tt_doctor_plan *p = f->plan;
	if (f->threads > 1 && p->tokens < (int64_t)LEAST_LINES * f->threads)
		add(c, TT_FINDING_WARN, "plan.threads", SAY("a microbatch of %lld tokens for %d threads", (long long)p->tokens, f->threads),
			SAY("fewer than %d tokens a thread: lanes wait for work", (int)LEAST_LINES),
			SAY("training.tokens_per_microbatch (of tokens_per_step), or hardware.threads = %lld", (long long)TT_MAX((int64_t)1, p->tokens / LEAST_LINES)));
	else
		fine(c, "plan.threads", SAY("microbatches of %lld tokens for %d thread%s", (long long)p->tokens, f->threads, f->threads == 1 ? "" : "s"));
	if (p->trained_context && p->context > p->trained_context)
		add(c, TT_FINDING_WARN, "plan.context", SAY("rows of %lld tokens, positions are made for %lld", (long long)p->context, (long long)p->trained_context),
			"positions beyond that mean nothing to weights that were trained with fewer", "training.context_length, model.rope_scaling, model.max_position_embeddings");
	else if (p->attention > 0.5)
		add(c, TT_FINDING_WARN, "plan.context", SAY("%.0f %% of a step is attention, with rows of %lld tokens", 100 * p->attention, (long long)p->context),
			"its cost grows with the square of the row", "a shorter training.context_length, model.sliding_window, or data.sequence = \"document\" where documents are short");
	else
		fine(c, "plan.context", SAY("%.0f %% of a step is attention, with rows of %lld tokens", 100 * p->attention, (long long)p->context));
}

void tt_doctor_check_plan(tt_arena *a, const tt_doctor_facts *f, tt_findings *out)
{
	ctx state = { a, out }, *c = &state;
	check_fit(c, f);
	check_room(c, f);
	check_kernels(c, f);
	check_shape(c, f);
}
