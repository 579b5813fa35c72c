/* exec.c: the object: creation, slots, reservation, and the run of a program. */
#include "comm/comm.h"
#include "exec/internal.h"

#include <stdlib.h>

const char *tt_exec_region_name(int region)
{
	return region == TT_REGION_SCRATCH ? "scratch" : tt_region_kind_name((tt_region_kind)region);
}

tt_status tt_exec_create(const tt_exec_options *o, tt_exec **out)
{
	tt_exec *e = calloc(1, sizeof *e);
	if (!e)
		TT_FAIL(TT_ERR_MEMORY, "executor: no %zu bytes left", sizeof *e);
	e->o = *o;
	e->o.threads = TT_MAX(o->threads, 1);
	e->o.nframes = TT_MAX(o->nframes, 1);
	if (e->o.threads > 1) {
		tt_status s = tt_pool_create(e->o.threads, o->spin_us, &e->pool);
		if (s != TT_OK) {
			free(e);
			return tt_error_crumb(s, __FILE__, __LINE__);
		}
	}
	e->arena = tt_arena_create("exec");
	e->env = (tt_env){.pool = e->pool, .threads = e->o.threads, .numerics = o->numerics, .f64 = o->f64, .seed = o->seed, .axes = o->axes};
	*out = e;
	return TT_OK;
}

void tt_exec_destroy(tt_exec *e)
{
	if (!e)
		return;
	lanes_close(e);
	for (int r = 0; r < TT_EXEC_NREGIONS; r++)
		tt_region_close(&e->region[r]);
	tt_pool_destroy(e->pool);
	tt_arena_destroy(e->arena);
	free(e);
}

/* ---- reservation ------------------------------------------------------------------------------------------------------ */

static void bind_operand(tt_exec *e, program *p, tt_v v, tt_arg *a)
{
	int64_t at = p->at[v];
	const store *s = &e->stores[store_root(e, p->store[v], &at)];
	int64_t offset = s->offset + at * s->esize;
	a->plane = s->planes > 1 ? s->plane : 0;
	a->p = e->region[s->region].p + offset;
	if (s->per_frame && e->o.nframes > 1) {
		frame_ptr f = {&a->p, s->region, offset};
		TT_PUSH(e->arena, p->frame_ptrs, p->nframe_ptrs, p->cap_frame_ptrs, f);
	}
}

static int64_t scratch_at(const tt_exec *e, const instr *in) { return in->axes ? e->lane_scratch_at[in->lane] : 0; }

/* Operands get their addresses once the regions have theirs. */
static void bind_program(tt_exec *e, program *p)
{
	for (int64_t i = 0; i < p->ninstrs; i++) {
		instr *in = &p->instrs[i];
		for (int a = 0; a < in->call.nin + in->call.nout; a++) {
			tt_v v = a < in->call.nin ? in->node->in[a] : in->node->out[a - in->call.nin];
			if (v)
				bind_operand(e, p, v, &in->args[a]);
		}
		in->call.room = in->scratch;
		in->call.scratch = in->scratch ? e->region[TT_REGION_SCRATCH].p + scratch_at(e, in) : NULL;
	}
	for (int64_t i = 0; i < p->nreads; i++)
		bind_operand(e, p, p->reads[i], &p->read_args[i]);
}

/* ---- exchanges that start in the program before: sums of REDUCE in B, F's first gathers in PREP ------------------------------------------------------------------------------------------- */

static bool touches(const tt_exec *e, const program *p, const instr *in, int32_t root)
{
	for (int k = 0; k < in->call.nin + in->call.nout; k++) {
		tt_v v = k < in->call.nin ? in->node->in[k] : in->node->out[k - in->call.nin];
		if (v && store_root(e, p->store[v], NULL) == root)
			return true;
	}
	return false;
}

/* The last instruction of p, before `end`, that touches `root`; -1: none does. */
static int64_t last_touch(const tt_exec *e, const program *p, int64_t end, int32_t root)
{
	while (--end >= 0 && !touches(e, p, &p->instrs[end], root))
		;
	return end;
}

/* It may be under way when x is posted, and nothing would make x wait for it. */
static bool unordered(const instr *in, const instr *x) { return in->axes && in->lane != x->lane; }

/* The instruction of B behind which exchange r of REDUCE may start: it works on states alone, which B makes, and which nothing before it in REDUCE
 * touches but exchanges of its lane that start too. -1: it may not. */
static int64_t start_of(const tt_exec *e, int64_t r)
{
	const program *b = &e->prog[TT_SEG_B], *p = &e->prog[TT_SEG_REDUCE];
	const instr *x = &p->instrs[r];
	int64_t after = -1;
	for (int k = 0; k < x->call.nin + x->call.nout; k++) {
		int32_t root = store_root(e, p->store[k < x->call.nin ? x->node->in[k] : x->node->out[k - x->call.nin]], NULL);
		int64_t last = last_touch(e, b, b->ninstrs, root);
		if (e->stores[root].kind != STORE_STATE || last < 0 || unordered(&b->instrs[last], x))
			return -1;
		after = TT_MAX(after, last);
		for (int64_t i = 0; i < r; i++) {
			if (!touches(e, p, &p->instrs[i], root))
				continue;
			if (!p->instrs[i].may_start || unordered(&p->instrs[i], x))
				return -1;
			after = TT_MAX(after, p->instrs[i].after); /* a sum of sums follows those */
		}
	}
	return after;
}

/* The same of F, in PREP: of those that F begins with, if they gather what PREP makes or leaves. What they make lies where PREP, and OPT before it, keep
 * nothing, if those have no temporaries. Nothing here looks at sizes: all ranks come to the same. */
static int64_t first_start_of(const tt_exec *e, int64_t r)
{
	const program *prep = &e->prog[TT_SEG_PREP], *p = &e->prog[TT_SEG_F];
	const instr *x = &p->instrs[r];
	int64_t after = 0;
	for (int64_t i = 0; i < r; i++)
		if (!p->instrs[i].may_start)
			return -1;
	for (int k = 0; k < x->call.nin; k++) {
		int32_t root = store_root(e, p->store[x->node->in[k]], NULL);
		int64_t last = last_touch(e, prep, prep->ninstrs, root);
		if (e->stores[root].kind != STORE_STATE || (last >= 0 && unordered(&prep->instrs[last], x)))
			return -1;
		after = TT_MAX(after, last);
	}
	for (int k = 0; k < x->call.nout; k++)
		if (e->stores[store_root(e, p->store[x->node->out[k]], NULL)].kind != STORE_TEMP)
			return -1;
	return after;
}

static bool keeps_temporaries(const program *p)
{
	for (int64_t i = 0; i < p->nlines; i++)
		for (int o = 0; o < p->lines[i].node->nout; o++) {
			bool state = false;
			for (int64_t s = 0; s < p->g->nstates && !state; s++)
				state = p->g->states[s].next == p->lines[i].node->out[o];
			if (!state)
				return true;
		}
	return false;
}

static int by_after(const void *x, const void *y)
{
	const struct start *a = x, *b = y;
	if (a->after != b->after)
		return a->after < b->after ? -1 : 1;
	return (a->in > b->in) - (a->in < b->in);
}

/* Of program `seg`, in the one before. */
static void find_starts_of(tt_exec *e, tt_segment before, tt_segment seg, int64_t (*of)(const tt_exec *e, int64_t r))
{
	program *b = &e->prog[before], *p = &e->prog[seg];
	if (!b->g || !p->g)
		return;
	for (int64_t r = 0; r < p->ninstrs; r++) {
		if (!p->instrs[r].axes)
			continue;
		struct start s = {of(e, r), &p->instrs[r]};
		p->instrs[r].after = s.after;
		p->instrs[r].may_start = s.after >= 0;
		if (s.after >= 0)
			TT_PUSH(e->arena, b->starts, b->nstarts, b->cap_starts, s);
	}
	if (b->nstarts)
		qsort(b->starts, (size_t)b->nstarts, sizeof *b->starts, by_after);
}

/* Not for a probe, which is told of a program's values when that runs. */
void find_starts(tt_exec *e)
{
	const program *prep = &e->prog[TT_SEG_PREP];
	if (e->o.probe.begin)
		return;
	find_starts_of(e, TT_SEG_B, TT_SEG_REDUCE, start_of);
	if (e->o.nframes == 1 && !e->o.fill_nan && prep->g && !keeps_temporaries(prep))
		find_starts_of(e, TT_SEG_PREP, TT_SEG_F, first_start_of);
}

static tt_status refuse(const tt_exec *e, int64_t need, int64_t limit)
{
	tt_buf text = {0};
	for (int r = 0; r < TT_EXEC_NREGIONS; r++)
		tt_buf_printf(&text, "%s%s %.1f", r ? ", " : "", tt_exec_region_name(r), (double)e->planned[r] / (double)TT_MIB);
	tt_error_set(TT_ERR_MEMORY, __FILE__, __LINE__, "the plan needs %.1f MiB, the limit is %.1f MiB (%s MiB)", (double)need / (double)TT_MIB,
		(double)limit / (double)TT_MIB, text.s);
	tt_buf_fini(&text);
	return TT_ERR_MEMORY;
}

tt_status tt_exec_reserve(tt_exec *e)
{
	TT_ASSERT(e->is_planned && !e->is_reserved, "reserve once, after plan");
	int64_t need = 0, limit = e->o.limit ? e->o.limit : tt_memory_limit();
	for (int r = 0; r < TT_EXEC_NREGIONS; r++)
		if (__builtin_add_overflow(need, e->planned[r], &need))
			need = INT64_MAX;
	if (need > limit)
		return refuse(e, need, limit);
	for (int r = 0; r < TT_EXEC_NREGIONS; r++)
		TT_TRY(tt_region_open(tt_exec_region_name(r), (size_t)e->planned[r], &e->region[r]));
	for (int s = 0; s < TT_NSEGS; s++)
		if (e->prog[s].g)
			bind_program(e, &e->prog[s]);
	TT_TRY(lanes_open(e));
	e->is_reserved = e->fresh = true;
	return e->o.protect ? regions_reach(e, false) : TT_OK;
}

/* ---- slots ------------------------------------------------------------------------------------------------------------- */

const tt_slot *tt_exec_states(const tt_exec *e, int64_t *n)
{
	*n = e->nstates;
	return e->states;
}

const tt_slot *tt_exec_inputs(const tt_exec *e, int64_t *n)
{
	*n = e->ninputs;
	return e->inputs;
}

const tt_slot *tt_exec_outputs(const tt_exec *e, int64_t *n)
{
	*n = e->noutputs;
	return e->outputs;
}

static tt_status no_such(const tt_exec *e, const char *kind, const char *name)
{
	int64_t n = e->nstates + e->ninputs + e->noutputs, at = 0;
	tt_mark mark = tt_arena_push(e->arena);
	const char **all = TT_NEWN(e->arena, const char *, n);
	for (int64_t i = 0; i < e->nstates; i++)
		all[at++] = e->states[i].name;
	for (int64_t i = 0; i < e->ninputs; i++)
		all[at++] = e->inputs[i].name;
	for (int64_t i = 0; i < e->noutputs; i++)
		all[at++] = e->outputs[i].name;
	const char *near = tt_nearest(name, all, (int)n);
	tt_arena_pop(e->arena, mark);
	if (near)
		TT_FAIL(TT_ERR_TYPE, "no %s is named %s; nearest: %s", kind, name, near);
	TT_FAIL(TT_ERR_TYPE, "no %s is named %s", kind, name);
}

tt_status tt_exec_slot(const tt_exec *e, const char *name, tt_slot *out)
{
	int32_t i = names_find(&e->state_names, name);
	if (i >= 0) {
		*out = e->states[i];
		return TT_OK;
	}
	i = names_find(&e->input_names, name);
	if (i >= 0) {
		*out = e->inputs[i];
		return TT_OK;
	}
	for (int64_t k = 0; k < e->noutputs; k++)
		if (!strcmp(e->outputs[k].name, name)) {
			*out = e->outputs[k];
			return TT_OK;
		}
	return no_such(e, "state, input or output", name);
}

tt_status tt_exec_output(const tt_exec *e, tt_segment seg, const char *name, tt_slot *out)
{
	for (int64_t k = 0; k < e->noutputs; k++)
		if (e->outputs[k].seg == seg && !strcmp(e->outputs[k].name, name)) {
			*out = e->outputs[k];
			return TT_OK;
		}
	return no_such(e, tt_arena_printf(e->arena, "output of %s", tt_segment_name(seg)), name);
}

int64_t tt_exec_planned(const tt_exec *e, int region) { return e->planned[region]; }
int64_t tt_exec_used(const tt_exec *e, int region) { return e->used[region]; }
tt_pool *tt_exec_pool(tt_exec *e)
{
	return e->pool;
}

tt_exchange_seconds tt_exec_exchange_seconds(const tt_exec *e, int axes) { return e->exchange_s[axes]; }
double tt_exec_jit_seconds(const tt_exec *e) { return e->jit; }
bool tt_exec_has(const tt_exec *e, tt_segment seg) { return e->prog[seg].g != NULL; }

/* ---- running -------------------------------------------------------------------------------------------------------------- */

tt_status check_cell(const tt_exec *e, const program *p, tt_segment seg, const tt_cell *c)
{
	if (!p->g)
		TT_FAIL(TT_ERR_TYPE, "no graph brought a program %s", tt_segment_name(seg));
	if (p->t_max >= 0 && (c->T < 0 || c->T > p->t_max))
		TT_FAIL(TT_ERR_TYPE, "%s: %lld tokens in one cell, compiled for at most %lld (training.tokens_per_microbatch)", tt_segment_name(seg),
			(long long)c->T, (long long)p->t_max);
	if (p->seqs_max >= 0 && (c->nseqs < 0 || c->nseqs >= p->seqs_max))
		TT_FAIL(TT_ERR_TYPE, "%s: %lld sequences in one cell, compiled for at most %lld", tt_segment_name(seg), (long long)c->nseqs,
			(long long)p->seqs_max - 1);
	if (c->frame < 0 || c->frame >= e->o.nframes)
		TT_FAIL(TT_ERR_TYPE, "%s: frame %d of %d", tt_segment_name(seg), c->frame, e->o.nframes);
	return TT_OK;
}

void set_extents(program *p, const tt_cell *c)
{
	for (int64_t i = 0; i < p->nextents; i++) {
		const extent *x = &p->extents[i];
		const tt_dim *d = x->dim;
		*x->n = d->role == TT_SEQS ? c->nseqs + 1 : TT_MAX((int64_t)0, TT_MIN(tt_dim_tokens(d, c->T) - d->base, d->n));
	}
}

static void set_cell(tt_exec *e, program *p, const tt_cell *c)
{
	set_extents(p, c);
	for (int64_t i = 0; i < p->nframe_ptrs; i++) {
		const frame_ptr *f = &p->frame_ptrs[i];
		*f->p = e->region[f->region].p + f->offset + c->frame * e->frame_stride[f->region];
	}
	for (int64_t i = 0; i < p->ninstrs; i++)
		if (!p->instrs[i].started)
			atomic_store_explicit(&p->flags[i], 0, memory_order_relaxed);
	e->env.first = c->first;
	e->env.step = c->step;
	e->env.flags = p->flags;
}

static void fill(tt_exec *e, int region, int64_t offset, int64_t bytes)
{
	tt_region part = {e->region[region].p + offset, (size_t)bytes, e->region[region].name};
	tt_region_fill_nan(&part);
}

/* What nothing has written yet in this cell reads as NaN. */
static void fill_cell(tt_exec *e, tt_segment seg, const program *p, const tt_cell *c)
{
	fill(e, TT_REGION_WORK, 0, p->work);
	for (int64_t i = 0; i < e->nstores; i++) {
		const store *s = &e->stores[i];
		bool mine = s->kind == STORE_TEMP && s->parent < 0 && !s->dead && s->seg == seg && s->last >= s->first;
		if (mine && (s->region == TT_REGION_IO || s->region == TT_REGION_FRAME))
			fill(e, s->region, s->offset + (s->per_frame ? c->frame * e->frame_stride[s->region] : 0), s->bytes);
	}
}

/* Elements of an operand in this cell. */
static int64_t operand_count(const tt_exec *e, const program *p, tt_v v, const tt_arg *a)
{
	if (a->format != TT_PLAIN)
		return e->stores[store_root(e, p->store[v], NULL)].count;
	return a->ndim > 0 ? a->n[0] * a->ld : 1;
}

static void probe_operand(const tt_exec *e, const program *p, tt_v v, const tt_arg *a, int64_t instr_index)
{
	const instr *in = instr_index >= 0 ? &p->instrs[instr_index] : NULL;
	const store *s = &e->stores[store_root(e, p->store[v], NULL)];
	tt_probe_value x = {.value = v, .instr = instr_index, .arg = a};
	if (in) {
		x.op = in->node->op->name;
		x.kernel = in->kernel;
	}
	bool stale = !in && e->env.first && s->kind == STORE_STATE && s->region == TT_REGION_GRAD;
	if (!stale) {
		x.count = operand_count(e, p, v, a);
		x.hash = e->o.probe.no_hash ? 0 : operand_hash(e, a, x.count);
	}
	e->o.probe.value(e->o.probe.ctx, &x);
}

static tt_status probe_reads(tt_exec *e, const program *p)
{
	if (e->o.protect)
		TT_TRY(regions_reach(e, true));
	for (int64_t i = 0; i < p->nreads; i++)
		probe_operand(e, p, p->reads[i], &p->read_args[i], -1);
	return e->o.protect ? regions_reach(e, false) : TT_OK;
}

/* Fills of fresh memory are left to the system, which makes the zeros at the first touch: 1 s/GiB, 3-5 s/GiB in small pages, before step 1
 * for memory that step 1 needs. */
static void run_instr(const tt_exec *e, const instr *in)
{
	if (!(e->fresh && in->zeroes))
		in->run(&in->call);
}

/* An instruction that waits; an exchange is started, unless B has done so. `upto`: each lane's highest ticket of the program's exchanges so far. */
static void wait_for_others(tt_exec *e, const program *p, const instr *in)
{
	for (tt_comm_lane k = 0; k < TT_COMM_LANES; k++)
		if (in->wait[k] >= 0)
			lane_wait(e, k, p->instrs[in->wait[k]].upto);
}

static void start_exchange(tt_exec *e, program *p, int64_t i, uint32_t *upto)
{
	instr *in = &p->instrs[i];
	if (!in->started) {
		in->ahead = false;
		lane_post(e, in, i + 1 < p->ninstrs && p->instrs[i + 1].wait[in->lane] == i);
	}
	in->started = false;
	uint32_t *most = &upto[in->lane];
	if (*most == 0 || (int32_t)(in->ticket - *most) > 0)
		*most = in->ticket;
	in->upto = *most;
}

/* What of the next program may start behind instruction i. */
static void start_early(tt_exec *e, const program *p, int64_t i, int64_t *next)
{
	for (; *next < p->nstarts && p->starts[*next].after == i; ++*next) {
		instr *in = p->starts[*next].in;
		atomic_store_explicit(in->call.flag, 0, memory_order_relaxed);
		in->ahead = true;
		lane_post(e, in, false);
		in->started = true;
	}
}

/* The same loop with what tests, profiles and a probe want around each instruction. */
static tt_status run_watched(tt_exec *e, tt_segment seg, program *p, bool probed, int64_t starts, uint32_t *upto)
{
	bool timed = e->o.profile || (e->o.trace && e->o.trace->on);
	if (probed)
		TT_TRY(probe_reads(e, p));
	for (int64_t i = 0; i < p->ninstrs; i++) {
		instr *in = &p->instrs[i];
		if (e->o.protect)
			TT_TRY(regions_reach(e, true));
		if (e->o.fill_nan && !in->axes)
			fill(e, TT_REGION_SCRATCH, 0, (int64_t)in->scratch);
		wait_for_others(e, p, in);
		if (in->axes) {
			start_exchange(e, p, i, upto);
		} else {
			if (timed && !(e->fresh && in->zeroes))
				run_timed(e, seg, p, in);
			else
				run_instr(e, in);
			in->calls++;
		}
		start_early(e, p, i, &starts);
		for (int o = 0; probed && o < in->call.nout; o++)
			if (in->node->out[o])
				probe_operand(e, p, in->node->out[o], &in->call.out[o], i);
		if (e->o.protect)
			TT_TRY(regions_reach(e, false));
	}
	return TT_OK;
}

static void run_instrs(tt_exec *e, program *p, int64_t starts, uint32_t *upto)
{
	for (int64_t i = 0; i < p->ninstrs; i++) {
		instr *in = &p->instrs[i];
		wait_for_others(e, p, in);
		if (in->axes)
			start_exchange(e, p, i, upto);
		else
			run_instr(e, in);
		start_early(e, p, i, &starts);
	}
}

/* Waits for this program's exchanges, and for all after an error. */
static tt_status end_exchanges(tt_exec *e, const uint32_t *upto, tt_status s)
{
	for (tt_comm_lane k = 0; k < TT_COMM_LANES; k++)
		if (upto[k])
			lane_wait(e, k, upto[k]);
	tt_status talked = lanes_status(e);
	if (s || talked)
		lanes_drain(e);
	for (int k = 0; k < TT_COMM_LANES && e->o.axes && !talked; k++)
		talked = e->lane[k] ? TT_OK : e->o.axes->status[k]; /* of an exchange on the compute lane; the lane's may be written now */
	return s ? s : talked;
}

/* The next program does not run: what `seg` has started for it has ended. */
static void forget_starts_of(tt_exec *e, tt_segment seg)
{
	for (int64_t i = 0; i < e->prog[seg].nstarts; i++)
		e->prog[seg].starts[i].in->started = false;
}

static void forget_starts(tt_exec *e)
{
	forget_starts_of(e, TT_SEG_B);
	forget_starts_of(e, TT_SEG_PREP);
}

void tt_exec_forget(tt_exec *e)
{
	forget_starts_of(e, TT_SEG_PREP);
}

/* Highest byte that the operands of this cell reach, by region. */
static void note_used(tt_exec *e, program *p, const tt_cell *c)
{
	if (c->T <= p->seen_T && c->frame <= p->seen_frame)
		return;
	p->seen_T = TT_MAX(p->seen_T, c->T);
	p->seen_frame = TT_MAX(p->seen_frame, c->frame);
	for (int64_t i = 0; i < p->ninstrs; i++) {
		const instr *in = &p->instrs[i];
		for (int a = 0; a < in->call.nin + in->call.nout; a++) {
			tt_v v = a < in->call.nin ? in->node->in[a] : in->node->out[a - in->call.nin];
			if (!v)
				continue;
			int64_t at = p->at[v];
			const store *s = &e->stores[store_root(e, p->store[v], &at)];
			const tt_arg *arg = &in->args[a];
			int64_t n = arg->format == TT_PLAIN ? arg->ld : s->count;
			if (arg->format == TT_PLAIN && arg->ndim > 0)
				n *= arg->n[0];
			if (n == 0)
				continue;
			int64_t end = s->offset + (s->planes - 1) * s->plane + (at + n) * s->esize;
			end += s->per_frame ? c->frame * e->frame_stride[s->region] : 0;
			e->used[s->region] = TT_MAX(e->used[s->region], end);
		}
		e->used[TT_REGION_SCRATCH] = TT_MAX(e->used[TT_REGION_SCRATCH], (int64_t)in->scratch + scratch_at(e, in));
	}
}

tt_status tt_exec_run(tt_exec *e, tt_segment seg, const tt_cell *cell)
{
	program *p = &e->prog[seg];
	TT_ASSERT(e->is_reserved, "run after reserve");
	TT_TRY(check_cell(e, p, seg, cell));
	if (seg != TT_SEG_F)
		tt_exec_forget(e); /* which work in the same memory */
	set_cell(e, p, cell);
	count_run(e, seg, cell);
	if (e->o.fill_nan) {
		if (e->o.protect)
			TT_TRY(regions_reach(e, true));
		fill_cell(e, seg, p, cell);
		if (e->o.protect)
			TT_TRY(regions_reach(e, false));
	}
	bool probed = e->o.probe.begin && e->o.probe.begin(e->o.probe.ctx, seg, p->g, cell);
	/* A probe looks at what an exchange has made right after it; memory out of reach is so for the lane too. */
	e->lane_now = probed || (e->o.protect && e->o.lane == TT_LANE_THREAD) ? TT_LANE_EARLY : e->o.lane;
	tt_status s = TT_OK;
	int64_t starts = cell->last ? 0 : p->nstarts;
	uint32_t upto[TT_COMM_LANES] = { 0 };
	if (probed || e->o.fill_nan || e->o.protect || e->o.profile || (e->o.trace && e->o.trace->on))
		s = run_watched(e, seg, p, probed, starts, upto);
	else
		run_instrs(e, p, starts, upto);
	if (!s && e->o.protect)
		s = regions_reach(e, true);
	s = end_exchanges(e, upto, s);
	if (!s && seg == TT_SEG_PREP && p->nstarts) { /* nothing is under way between steps */
		lanes_drain(e);
		s = lanes_status(e);
	}
	if (!s && e->o.protect)
		s = regions_reach(e, false);
	e->fresh = false;
	if (s)
		forget_starts(e);
	TT_TRY(s);
	if (probed)
		e->o.probe.end(e->o.probe.ctx);
	note_used(e, p, cell);
	for (int64_t i = 0; i < p->ninstrs; i++)
		if (atomic_load_explicit(&p->flags[i], memory_order_relaxed)) {
			lanes_drain(e);
			forget_starts(e);
			TT_FAIL(TT_ERR_NUMERIC,
				"%s (%s, %s): operands outside of what debug.numerics = \"exact\" can sum: |term| < 2^25, |sum| < 2^37, all finite",
				p->g->values[p->instrs[i].node->out[0]].name, p->instrs[i].node->op->name, tt_segment_name(seg));
		}
	return TT_OK;
}
