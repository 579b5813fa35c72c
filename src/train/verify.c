/* verify.c: runs of one rank and of meshes on the same rows, and the comparison of every parameter and optimizer state after every step. Where one
 * differs the step is run once more, and every value of it compared (witness.c). */
#define _GNU_SOURCE
#include "train/verify.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "train/internal.h"
#include "train/witness.h"

enum { MOST_RANKS = TT_VERIFY_RANKS, MORE = 2 /* steps after a resume */ };
#define WITNESS_BYTES (2LL << 30)

/* ---- the shrunk run ---------------------------------------------------------------------------------------------------------------------- */

/* The first of `least`, least + step, .. that the degrees 1 .. ranks divide as they do n; n itself if that is smaller. */
static int64_t shrunk_by(int64_t n, int64_t least, int64_t step, int ranks)
{
	for (int64_t k = least; k < n; k += step) {
		int d = 2;
		while (d <= ranks && (k % d == 0) == (n % d == 0))
			d++;
		if (d > ranks)
			return k;
	}
	return n;
}
static int64_t shrunk(int64_t n, int64_t least, int ranks) { return shrunk_by(n, least, 1, ranks); }

tt_llama_config tt_verify_small(tt_llama_config m, int ranks, bool fast)
{
	int64_t group = m.num_attention_heads / m.num_key_value_heads;
	m.num_key_value_heads = shrunk(m.num_key_value_heads, TT_MIN(m.num_key_value_heads, (int64_t)ranks + 1), ranks);
	m.num_attention_heads = m.num_key_value_heads * shrunk(group, TT_MIN(group, (int64_t)2), ranks);
	m.num_hidden_layers = TT_MIN(m.num_hidden_layers, (int64_t)2);
	m.head_dim = shrunk_by(m.head_dim, fast ? 32 : 4, fast ? 16 : 2, ranks); /* lines of heads are dealt too; other kernels run where 16 does not divide it */
	m.hidden_size = shrunk(m.hidden_size, fast ? 64 : 16, ranks);
	m.intermediate_size = shrunk(m.intermediate_size, TT_MAX(fast ? 96 : 24, ranks), ranks);
	m.vocab_size = shrunk(m.vocab_size, TT_MAX(27, ranks), ranks);
	m.sliding_window = m.sliding_window ? 7 : 0;
	return m;
}

static uint64_t next(uint64_t *s)
{
	*s += 0x9e3779b97f4a7c15u;
	return tt_mix64(*s);
}

/* Rows of uneven documents; about one label in seven is ignored, and all of one row's. */
static tt_rows uneven_rows(tt_arena *a, int64_t nrows, int64_t context, int64_t vocab)
{
	enum { DOCUMENTS = 5 };
	int32_t *ids = TT_NEWN(a, int32_t, nrows * context), *labels = TT_NEWN(a, int32_t, nrows * context), *lengths = TT_NEWN(a, int32_t, nrows * DOCUMENTS);
	uint64_t s = 1;
	for (int64_t r = 0; r < nrows; r++) {
		int64_t at = 0;
		for (int d = 0; d < DOCUMENTS && at < context; d++) {
			int64_t n = d == DOCUMENTS - 1 || r % 4 == 1 ? context - at : 1 + (int64_t)(next(&s) % (uint64_t)(context - at));
			lengths[r * DOCUMENTS + d] = (int32_t)n;
			for (int64_t i = at; i < at + n; i++) {
				ids[r * context + i] = (int32_t)(next(&s) % (uint64_t)vocab);
				bool ignored = i == at + n - 1 || r % 5 == 3 || next(&s) % 7 == 0;
				labels[r * context + i] = ignored ? TT_IGNORE : (int32_t)(next(&s) % (uint64_t)vocab);
			}
			at += n;
		}
	}
	return (tt_rows){ .ids = ids, .labels = labels, .lengths = lengths, .nrows = nrows, .max_sequences = DOCUMENTS };
}

static tt_run_options small(tt_arena *a, const tt_run_options *o, int steps, int ranks, bool fast)
{
	tt_run_options s = *o;
	s.model = tt_verify_small(o->model, ranks, fast);
	int64_t context = shrunk(o->data.context_length, TT_MAX(24, 2 * ranks), ranks), rows = TT_MAX(shrunk(o->data.tokens_per_step / o->data.context_length, 5, ranks), (int64_t)2);
	s.data = (tt_data_options){ .source = "rows", .context_length = context, .tokens_per_step = rows * context, .vocab_size = (int)s.model.vocab_size, .repeat = true,
				    .rows = uneven_rows(a, rows * steps, context, s.model.vocab_size), .seed = o->data.seed };
	s.tokens_per_microbatch = s.data.tokens_per_step;
	s.loss_chunks = TT_MIN(o->loss_chunks, 3);
	s.schedule = (tt_schedule){ .warmup = 1, .total = steps + 1, .decay = 1, .type = TT_WSD_LINEAR };
	s.weights = NULL;
	return s;
}

/* ---- what is compared ----------------------------------------------------------------------------------------------------------------------- */

typedef struct whole { /* of one rank, after one step */
	double loss, norm;
	float **state; /* [nstates] */
} whole;

typedef struct proof {
	tt_arena *a;
	const tt_verify_options *v;
	const tt_run_options *given; /* the config's: reasons why a mesh is not legal name its numbers, which degrees divide as they do the shrunk ones */
	tt_run_options o;   /* of all runs */
	int all;            /* steps: v->steps, and MORE after a resume */
	const char *folder; /* of checkpoints */
	int64_t nstates;
	const char **name;  /* [nstates] */
	whole *want;        /* [all] */
	const char *saved;  /* folder of the last whole save after v->steps steps */
	const char *saved_by;
	int saves;
	int stop;           /* v->stop of all processes, once a mesh has been run */
	/* the mesh at hand */
	tt_verify_mesh *mesh;
	const char *own;    /* folder that it saves to; NULL: it does not */
	bool searching;     /* states were compared before: the watched step is looked into, and none made after it */
	int watched;        /* number of the step whose every value is compared with `witness`'s; NULL: none */
	tt_witness *witness, *first; /* first: of step 1 */
	tt_witness_rank found[MOST_RANKS];
	int finder;         /* the rank that found a value first, -1: none */
	const char *terms;  /* of tt_witness_terms */
	pthread_mutex_t lock; /* of what follows: the one place where ranks' findings meet */
	int step;           /* the first that differs, and in it the first state; nstates: the loss */
	int64_t state;
	bool differs[MOST_RANKS]; /* which ranks hold other bits of it */
	int says;           /* the first of them: whose layout and text these are */
	double ratio;       /* theirs over one rank's, NaN: no constant */
	char layout[768];   /* and rows of the plan */
	char text[512];     /* of the loss, of the graph */
} proof;

static bool compared(const tt_slot *s) { return s->source < 0 && (s->region == TT_REGION_PARAM || s->region == TT_REGION_OPTIM); }

/* ---- checkpoints on the way ------------------------------------------------------------------------------------------------------------------- */

/* Saves what `t` has (rank 0's trainer of a led mesh, or one rank's) as a run does. */
static tt_status save(proof *p, tt_trainer *t, const char *folder, tt_arena *a)
{
	tt_saved *tensors;
	TT_TRY(tt_saved_new(a, t, &tensors));
	tt_llama_config model = p->o.model;
	model.sliding_window = 0; /* config.json, which nobody reads, would be warned of */
	tt_ckpt_options o = { .folder = folder, .model = &model, .tensors = tensors->tensors, .ntensors = tensors->n, .read = tt_saved_read, .ctx = tensors };
	tt_ckpt_writer *w;
	TT_TRY(tt_ckpt_writer_create(&o, &w));
	const tt_schedule *sc = &p->o.schedule;
	tt_ckpt_state st = { .step = tt_trainer_steps(t), .updates = tt_trainer_updates(t), .skips = tt_trainer_skips(t), .seed = p->o.exec.seed,
			     .schedule = { sc->warmup, sc->total, sc->decay, tt_decay_name(sc->type), sc->min_factor }, .config = "" };
	tt_status s = tt_ckpt_save_begin(w, &st, TT_CKPT_FULL, TT_ST_F32);
	bool done;
	tt_ckpt_result r;
	if (!s)
		s = tt_ckpt_wait(w, &done, &r);
	tt_ckpt_writer_destroy(w);
	return s;
}

/* Every number becomes another first: what a load leaves out is seen. */
static tt_status load(const char *folder, tt_trainer *t, tt_arena *a)
{
	tt_saved *tensors;
	TT_TRY(tt_saved_new(a, t, &tensors));
	for (int64_t i = 0; i < tensors->n; i++) {
		int64_t n = 1;
		for (int d = 0; d < tensors->tensors[i].ndim; d++)
			n *= tensors->tensors[i].dim[d];
		float *junk = TT_NEWN(a, float, n);
		for (int64_t k = 0; k < n; k++)
			junk[k] = 7;
		TT_TRY(tt_saved_write(tensors, i, 0, n, junk));
	}
	tt_ckpt *c;
	TT_TRY(tt_ckpt_open(a, NULL, folder, -1, &c));
	TT_ASSERT(c, "%s: no checkpoint", folder);
	TT_TRY(tt_ckpt_load(c, tensors->tensors, tensors->n, 0, tt_saved_write, tensors));
	const tt_ckpt_state *s = tt_ckpt_get_state(c);
	return tt_trainer_resume(t, s->step, s->updates, s->skips);
}

/* ---- one rank, and a rank of a mesh --------------------------------------------------------------------------------------------------------- */

/* This rank's piece against the same elements of the whole. *ratio: of all that differ, NaN if they do not agree on one. */
static tt_status compare(const tt_trainer *t, const tt_slot *s, tt_exec *e, const float *want, tt_arena *a, bool *differs, double *ratio)
{
	tt_piece row = tt_trainer_piece(t, s->name, 0), col = s->ndim > 1 ? tt_trainer_piece(t, s->name, 1) : (tt_piece){ .n = 1, .whole = 1 };
	float *x = TT_NEWN(a, float, s->count);
	TT_TRY(tt_exec_read(e, s->name, 0, x, s->count));
	*differs = false;
	for (int64_t i = 0; i < s->count; i++) {
		float w = want[(row.start + i / col.n) * col.whole + col.start + i % col.n];
		if (!memcmp(&w, &x[i], sizeof w))
			continue;
		double r = (double)x[i] / (double)w;
		if (!*differs)
			*ratio = r;
		else if (!(__builtin_fabs(r - *ratio) <= 1e-3 * __builtin_fabs(*ratio)))
			*ratio = __builtin_nan("");
		*differs = true;
	}
	return TT_OK;
}

/* The earliest difference over all ranks is kept: by step, then the loss, then states in their order. */
static void note(proof *p, int step, int64_t state, int rank, double ratio, const char *layout, const char *text)
{
	pthread_mutex_lock(&p->lock);
	if (step < p->step || (step == p->step && state < p->state)) {
		p->step = step;
		p->state = state;
		memset(p->differs, 0, sizeof p->differs);
		p->ratio = ratio;
		p->says = MOST_RANKS;
	}
	if (step == p->step && state == p->state && rank < p->says) {
		p->says = rank;
		snprintf(p->layout, sizeof p->layout, "%s", layout);
		snprintf(p->text, sizeof p->text, "%s", text);
	}
	if (step == p->step && state == p->state) {
		p->differs[rank] = true;
		if (!(__builtin_fabs(ratio - p->ratio) <= 1e-3 * __builtin_fabs(p->ratio)))
			p->ratio = __builtin_nan("");
	}
	pthread_mutex_unlock(&p->lock);
}

static tt_status check_step(proof *p, tt_trainer *t, int rank, int step, const tt_step_report *r, tt_arena *a)
{
	const whole *w = &p->want[step];
	char text[256];
	if (memcmp(&r->loss, &w->loss, sizeof w->loss) || memcmp(&r->grad_norm, &w->norm, sizeof w->norm)) {
		snprintf(text, sizeof text, "loss %.9g instead of %.9g, gradient norm %.9g instead of %.9g", r->loss, w->loss, r->grad_norm, w->norm);
		note(p, step, -1, rank, __builtin_nan(""), "", text);
	}
	int64_t n, at = 0;
	const tt_slot *s = tt_exec_states(tt_trainer_exec(t), &n);
	const tt_graph *g = tt_trainer_typed(t);
	for (int64_t k = 0; k < n; k++) {
		if (!compared(&s[k]))
			continue;
		TT_ASSERT(!strcmp(s[k].name, p->name[at]), "%s stands where one rank has %s", s[k].name, p->name[at]);
		tt_mark m = tt_arena_push(a);
		bool differs;
		double ratio = __builtin_nan("");
		TT_TRY(compare(t, &s[k], tt_trainer_exec(t), w->state[at], a, &differs, &ratio));
		tt_arena_pop(a, m);
		if (differs) {
			tt_buf b = { 0 };
			tt_v v = tt_value_find(g, s[k].name);
			tt_layout_print(&g->mesh, &tt_value_get(g, v)->layout, &b);
			tt_plan_rows_print(tt_trainer_layouts(t), g, v, -1, &b);
			note(p, step, at, rank, ratio, b.s ? b.s : "", "");
			tt_buf_fini(&b);
		}
		at++;
	}
	TT_ASSERT(at == p->nstates, "%lld states, one rank has %lld", (long long)at, (long long)p->nstates);
	return TT_OK;
}

static const char *first_difference(tt_arena *a, const char *x, const char *y)
{
	for (;;) {
		size_t n = strcspn(x, "\n"), m = strcspn(y, "\n");
		if (n != m || memcmp(x, y, n))
			return tt_arena_printf(a, "\"%.*s\" instead of \"%.*s\"", (int)TT_MIN(n, (size_t)120), x, (int)TT_MIN(m, (size_t)120), y);
		if (!x[n] || !y[m])
			return "one text ends before the other";
		x += n + 1;
		y += m + 1;
	}
}

/* The mesh's graph without its conversions must be the graph of one rank, text for text (DESIGN 1: plans add conversions and nothing else). */
static tt_status check_erased(proof *p, const tt_trainer *mesh, const tt_run_options *o)
{
	if (o->mesh.cp_method == TT_CP_RING && o->mesh.size[TT_CP] > 1)
		return TT_OK; /* attention round a ring is another graph */
	tt_run_options one = *o;
	one.mesh = (tt_run_mesh){ 0 };
	one.tamper = NULL;
	one.exec.probe = (tt_probe){ 0 };
	tt_trainer *t;
	TT_TRY(tt_trainer_plan(&one, &t));
	tt_arena *a = tt_arena_create("erased");
	const tt_graph *bare = tt_graph_erase(tt_trainer_typed(mesh), a);
	if (tt_graph_hash(tt_trainer_typed(t)) != tt_graph_hash(bare)) {
		tt_buf x = { 0 }, y = { 0 };
		tt_graph_print(bare, &x);
		tt_graph_print(tt_trainer_typed(t), &y);
		note(p, 0, -2, 0, __builtin_nan(""), "", tt_arena_printf(a, "the graph without its conversions is not that of one rank: %s", first_difference(a, x.s, y.s)));
		tt_buf_fini(&x);
		tt_buf_fini(&y);
	}
	tt_arena_destroy(a);
	tt_trainer_destroy(t);
	return TT_OK;
}

/* Of one rank, the first time: what all others are held against. */
static tt_status remember(proof *p, tt_trainer *t, int step, const tt_step_report *r)
{
	int64_t n;
	const tt_slot *slot = tt_exec_states(tt_trainer_exec(t), &n);
	p->name = TT_NEWN(p->a, const char *, n);
	p->want[step] = (whole){ r->loss, r->grad_norm, TT_NEWN(p->a, float *, n) };
	p->nstates = 0;
	for (int64_t k = 0; k < n; k++) {
		if (!compared(&slot[k]))
			continue;
		float *x = TT_NEWN(p->a, float, slot[k].count);
		TT_TRY(tt_exec_read(tt_trainer_exec(t), slot[k].name, 0, x, slot[k].count));
		p->name[p->nstates] = tt_arena_strdup(p->a, slot[k].name);
		p->want[step].state[p->nstates++] = x;
	}
	return TT_OK;
}

static tt_status one_rank(proof *p)
{
	tt_run_options o = p->o;
	if (!p->v->full || p->v->fast) {
		p->first = tt_witness_new(p->a, o.data.tokens_per_step, WITNESS_BYTES, p->v->fast);
		o.exec.probe = tt_witness_probe(p->first);
	}
	tt_trainer *t;
	TT_TRY(tt_trainer_create(&o, &t));
	tt_status s = TT_OK;
	for (int i = 0; i < (p->v->fast ? 1 : p->all) && !s; i++) {
		tt_step_report r;
		if (p->first)
			tt_witness_keep(p->first, i ? NULL : t);
		s = tt_trainer_step(t, &r);
		if (!s)
			s = remember(p, t, i, &r);
		if (!s && i == p->v->steps - 1 && !p->v->fast) {
			p->saved = tt_arena_printf(p->a, "%s/one", p->folder);
			p->saved_by = "one rank";
			s = save(p, t, p->saved, p->a);
		}
	}
	tt_trainer_destroy(t);
	return s;
}

/* One rank goes on from the last mesh's save. */
static tt_status one_rank_resumed(proof *p, const char **finding)
{
	tt_trainer *t;
	tt_arena *a = tt_arena_create("resumed");
	TT_TRY(tt_trainer_create(&p->o, &t));
	p->step = p->all;
	tt_status s = load(p->saved, t, a);
	for (int i = p->v->steps; i < p->all && !s; i++) {
		tt_step_report r;
		s = tt_trainer_step(t, &r);
		if (!s)
			s = check_step(p, t, 0, i, &r, a);
	}
	tt_trainer_destroy(t);
	tt_arena_destroy(a);
	TT_TRY(s);
	*finding = p->step == p->all ? NULL : p->state < 0 ? p->text : p->name[p->state];
	return TT_OK;
}

/* One rank again, up to the watched step. */
static tt_status one_rank_watched(proof *p)
{
	tt_run_options o = p->o;
	o.exec.probe = tt_witness_probe(p->witness);
	tt_trainer *t;
	TT_TRY(tt_trainer_create(&o, &t));
	tt_status s = TT_OK;
	for (int i = 0; i < p->watched && !s; i++) {
		tt_step_report r;
		if (i == p->watched - 1)
			tt_witness_keep(p->witness, t);
		s = tt_trainer_step(t, &r);
	}
	tt_witness_keep(p->witness, NULL);
	tt_trainer_destroy(t);
	return s;
}

typedef struct rank_of {
	proof *p;
	int rank;
	tt_arena *a;
	tt_comm_group *all;
} rank_of;

static tt_status after_step(void *ctx, tt_trainer *t, const tt_step_report *r)
{
	rank_of *me = ctx;
	proof *p = me->p;
	tt_witness_rank *w = &p->found[me->rank];
	w->t = r->step == p->watched - 1 ? t : NULL;
	if (!p->searching && !p->v->fast)
		TT_TRY(check_step(p, t, me->rank, (int)r->step - 1, r, me->a));
	/* Rank 0 may write what it loads next where a slower rank still compares. */
	return tt_comm_barrier(me->all, "compared");
}

/* What rank 0 leads the others through: steps from the start, a save; then the save of the mesh before, and steps from there. */
static tt_status lead(proof *p, tt_trainer *t, tt_arena *a)
{
	tt_step_report r;
	if (p->v->fast)
		return tt_trainer_step(t, &r);
	int upto = p->searching ? p->watched : p->all;
	for (int i = 0; i < p->v->steps && i < upto; i++)
		TT_TRY(tt_trainer_step(t, &r));
	if (upto <= p->v->steps)
		return TT_OK;
	if (p->own)
		TT_TRY(save(p, t, p->own, a));
	TT_TRY(load(p->saved, t, a));
	for (int i = p->v->steps; i < upto; i++)
		TT_TRY(tt_trainer_step(t, &r));
	return TT_OK;
}

static tt_status rank_main(tt_comm *c, void *ctx)
{
	proof *p = ctx;
	int rank = tt_comm_rank(c);
	rank_of me = { .p = p, .rank = rank, .a = tt_arena_create("verify") };
	tt_run_options o = p->o;
	memcpy(o.mesh.size, p->mesh->size, sizeof o.mesh.size);
	o.mesh.sp = p->mesh->sp;
	o.mesh.cp_method = p->mesh->cp_method;
	o.mesh.cp_balance = p->mesh->cp_balance;
	if (p->mesh->recompute)
		o.recompute = (tt_recompute){ .mode = TT_RECOMPUTE_FULL };
	o.gathered = p->mesh->gathered;
	o.overlap_off |= p->mesh->in_turn;
	o.mesh.comm = c;
	o.mesh.led = true;
	o.exec.threads = 1;
	o.tokens_per_microbatch = p->mesh->rows * o.data.context_length;
	o.after_step = after_step;
	o.after_step_ctx = &me;
	if (p->v->fault)
		p->v->fault(p->v->fault_ctx, &o);
	p->found[rank].a = me.a; /* what was found outlives the rank */
	if (p->witness) {
		p->found[rank].w = p->witness;
		o.exec.probe = tt_witness_compare(&p->found[rank]);
	}
	tt_trainer *t = NULL;
	tt_status s = tt_comm_group_all(c, "compared", &me.all);
	if (!s)
		s = tt_trainer_create(&o, &t);
	if (!s && p->witness && p->watched == 1)
		p->found[rank].t = t;
	if (!s && rank == 0 && !p->searching)
		s = check_erased(p, t, &o);
	if (!s)
		s = rank ? tt_trainer_follow(t) : lead(p, t, me.a);
	if (s && t && !p->v->comm) /* others may wait within a step, where they do not hear that the trainer ends */
		tt_comm_abort(c, s);
	tt_trainer_destroy(t);
	return s;
}

static int asked(const proof *p) { return p->v->stop ? (int)*p->v->stop : 0; }

/* ---- what was found ------------------------------------------------------------------------------------------------------------------------- */

static void say_ranks(tt_buf *b, const bool *which, int ranks)
{
	int n = 0;
	for (int i = 0; i < ranks; i++)
		n += which[i];
	if (n == ranks) {
		tt_buf_str(b, "all ranks");
		return;
	}
	tt_buf_str(b, n == 1 ? "rank" : "ranks");
	for (int i = 0, k = 0; i < ranks; i++)
		if (which[i])
			tt_buf_printf(b, "%s %d", k++ ? "," : "", i);
}

/* What states say: the loss and norm, or the first of parameters and optimizer states. */
static void say_state(const proof *p, int ranks, tt_buf *b)
{
	if (p->state < 0) {
		tt_buf_str(b, p->text);
		return;
	}
	tt_buf_printf(b, "%s has other bits on ", p->name[p->state]);
	say_ranks(b, p->differs, ranks);
	if (p->ratio == p->ratio)
		tt_buf_printf(b, ", %.4g times those of one rank", p->ratio);
	if (p->layout[0])
		tt_buf_printf(b, "; it lies %s", p->layout);
}

/* The rank that differs first; -1: none. */
static int first_finder(const proof *p, int ranks)
{
	int finder = -1;
	for (int i = 0; i < ranks && p->witness; i++)
		if (p->found[i].at >= 0 && (finder < 0 || p->found[i].at < p->found[finder].at))
			finder = i;
	return finder;
}

/* The value that differs first over all ranks, if one does. */
static bool look(proof *p, int ranks)
{
	p->finder = first_finder(p, ranks);
	if (p->witness && !p->v->comm) /* processes have told each other */
		p->terms = tt_witness_terms(p->found, ranks, p->finder < 0 ? INT64_MAX : p->found[p->finder].at, p->a);
	return p->terms || p->finder >= 0;
}

static const char *finding(proof *p, int ranks, bool value, bool state)
{
	tt_buf b = { 0 };
	int step = value ? p->watched - 1 : p->step;
	tt_buf_printf(&b, "step %d%s", step + 1, step >= p->v->steps ? tt_arena_printf(p->a, ", resumed from the save of %s", p->saved_by) : "");
	if (p->terms) {
		tt_buf_printf(&b, ", %s; ", p->terms);
	} else if (value) {
		bool which[MOST_RANKS];
		for (int i = 0; i < ranks; i++)
			which[i] = p->found[i].at == p->found[p->finder].at;
		tt_buf_str(&b, ", on ");
		say_ranks(&b, which, ranks);
		tt_buf_printf(&b, ", %s; ", p->found[p->finder].text);
	} else {
		tt_buf_str(&b, ": ");
	}
	if (value)
		tt_buf_str(&b, state ? "so after step " : p->v->fast ? "of a forward that fast numerics promise to be the same" : "rounded away: no parameter or state differs");
	if (value && state)
		tt_buf_printf(&b, "%d: ", p->step + 1);
	if (state)
		say_state(p, ranks, &b);
	const char *s = tt_arena_strdup(p->a, b.s);
	tt_buf_fini(&b);
	return s;
}

/* ---- meshes ---------------------------------------------------------------------------------------------------------------------------------- */

/* What one process tells of its rank: the first state that differs, and how many values it saw before one did. */
typedef struct told {
	int32_t step, failed;
	int64_t state, at, compared;
	double ratio;
	char layout[768], text[512];
	int32_t stop;
} told;

/* A text of the root's, NULL perhaps, on every rank. */
static tt_status told_by(tt_comm_group *g, int root, const char *mine, tt_arena *a, const char **out)
{
	bool is_root = tt_comm_group_index(g) == root;
	int64_t n = is_root && mine ? (int64_t)strlen(mine) + 1 : 0;
	TT_TRY(tt_comm_broadcast(g, "length of a finding", root, &n, sizeof n));
	char *text = TT_NEWN(a, char, n);
	if (is_root && n)
		memcpy(text, mine, (size_t)n);
	if (n)
		TT_TRY(tt_comm_broadcast(g, "finding", root, text, n));
	*out = n ? text : NULL;
	return TT_OK;
}

/* What all ranks found becomes what this process knows, as if it had run them all. */
static tt_status put_together(proof *p, int ranks, tt_comm_group *g, tt_comm_group *mesh, const told *of)
{
	int me = tt_comm_group_index(g);
	if (!p->searching)
		p->step = p->all;
	for (int i = 0; i < ranks; i++) {
		p->found[i].at = of[i].at;
		p->found[i].compared = of[i].compared;
		if (!p->searching && of[i].step < p->all)
			note(p, of[i].step, of[i].state, i, of[i].ratio, of[i].layout, of[i].text);
	}
	if (!p->witness)
		return TT_OK;
	int finder = first_finder(p, ranks);
	if (finder >= 0)
		TT_TRY(told_by(g, finder, p->found[finder].text, p->a, &p->found[finder].text));
	const char *terms = NULL;
	if (me < ranks)
		TT_TRY(tt_witness_terms_of(&p->found[me], mesh, finder < 0 ? INT64_MAX : p->found[finder].at, p->a, &terms));
	TT_TRY(told_by(g, 0, terms, p->a, &p->terms));
	return TT_OK;
}

/* Ranks as processes: each has one rank's numbers of its own, and tells the others what it found. */
static tt_status run_processes(proof *p, int ranks)
{
	tt_comm *c = p->v->comm, *part;
	tt_comm_group *g, *mesh = NULL;
	int n = tt_comm_size(c), me = tt_comm_rank(c);
	tt_status s = TT_OK;
	TT_TRY(tt_comm_group_all(c, "verify", &g));
	if (me < ranks) {
		TT_TRY(tt_comm_sub(c, ranks, &part));
		TT_TRY(tt_comm_group_all(part, "verified", &mesh));
		s = rank_main(part, p);
		if (s && (s != TT_ERR_TYPE || tt_comm_given_up(c))) /* a plan that is refused: all its ranks know, and go on */
			return s;
	}
	const tt_witness_rank *w = &p->found[me];
	told mine = { (int32_t)p->step, (int32_t)s, p->state, w->at, w->compared, p->ratio, "", "", asked(p) }, *of = TT_NEWN(p->a, told, n);
	snprintf(mine.layout, sizeof mine.layout, "%s", p->layout);
	snprintf(mine.text, sizeof mine.text, "%s", p->text);
	TT_TRY(tt_comm_all_gather(g, "findings", &mine, sizeof mine, of));
	for (int i = 0; i < n && !p->stop; i++)
		p->stop = of[i].stop;
	if (of[0].failed) {
		const char *text = tt_error_text();
		TT_TRY(told_by(g, 0, me ? NULL : tt_arena_printf(p->a, "%s%s", strncmp(text, "rank ", 5) ? "rank 0: " : "", text), p->a, &text));
		return tt_error_set((tt_status)of[0].failed, __FILE__, __LINE__, "%s", text);
	}
	return put_together(p, ranks, g, mesh, of);
}

static tt_status run_mesh(proof *p, int ranks)
{
	tt_comm_options c = { .init_timeout_s = 300 };
	if (p->v->comm)
		return run_processes(p, ranks);
	return tt_comm_threads(ranks, &c, rank_main, p);
}

static void forget(proof *p)
{
	for (int i = 0; i < MOST_RANKS; i++)
		tt_arena_destroy(p->found[i].a);
	memset(p->found, 0, sizeof p->found);
}

/* The step that went wrong once more, with every value looked at. */
static tt_status search(proof *p, int ranks)
{
	forget(p);
	p->searching = true;
	p->terms = NULL;
	p->watched = p->step + 1;
	p->own = NULL;
	p->witness = tt_witness_new(p->a, p->o.data.tokens_per_step, WITNESS_BYTES, p->v->fast);
	tt_status s = one_rank_watched(p);
	if (!s)
		s = run_mesh(p, ranks);
	if (s) /* what was found before stands */
		p->witness = NULL;
	return s;
}

static tt_status verify_mesh(proof *p)
{
	tt_verify_mesh *m = p->mesh;
	tt_run_mesh mesh = { .sp = m->sp, .cp_method = m->cp_method, .cp_balance = m->cp_balance };
	memcpy(mesh.size, m->size, sizeof mesh.size);
	m->illegal = tt_run_mesh_illegal(p->a, &p->given->model, p->given->data.context_length, &mesh);
	if (!m->illegal && p->v->fast && (m->size[TT_TP] & (m->size[TT_TP] - 1) || m->size[TT_TP] > 8))
		m->illegal = tt_arena_printf(p->a, "fast numerics promise the same forward for tp 1, 2, 4 and 8, not for %d (debug.numerics = \"exact\" does)", m->size[TT_TP]);
	if (!m->illegal && p->v->fast && m->size[TT_CP] > 1 && m->cp_method == TT_CP_RING)
		m->illegal = "fast numerics promise no bits of attention round a ring (debug.numerics = \"exact\" does)";
	if (m->illegal)
		return TT_OK;
	int ranks = 1;
	for (int i = 0; i < TT_RUN_AXES; i++)
		ranks *= m->size[i];
	p->step = p->all;
	p->witness = p->first;
	p->watched = 1;
	p->searching = false;
	p->terms = NULL;
	const char *own = p->own = tt_arena_printf(p->a, "%s/%d", p->folder, p->saves++);
	double t0 = tt_now();
	tt_status s = run_mesh(p, ranks);
	if (s) {
		m->finding = tt_arena_strdup(p->a, tt_error_text());
		m->error = s;
	} else {
		bool value = look(p, ranks), state = p->step < p->all;
		m->values = p->found[0].compared;
		if (state && !value && p->state > -2) {
			s = search(p, ranks);
			value = !s && look(p, ranks);
		}
		if (value || state)
			m->finding = finding(p, ranks, value, state);
	}
	m->seconds = tt_now() - t0;
	forget(p);
	if (s == TT_ERR_STOP || (s && p->v->comm && s != TT_ERR_TYPE)) /* a world of processes ends with an error that is not all ranks' */
		TT_TRY(s);
	if (!m->finding && !p->v->fast) {
		tt_fs_temp_remove(p->saved);
		p->saved = own;
		p->saved_by = tt_verify_mesh_name(p->a, m);
	} else {
		tt_fs_temp_remove(own); /* on a disk that is full others have room again */
	}
	return TT_OK;
}

const char *tt_verify_mesh_name(tt_arena *a, const tt_verify_mesh *m)
{
	static const char *const short_names[TT_RUN_AXES] = { "dp_replicate", "dp_shard", "cp", "tp" };
	tt_buf b = { 0 };
	for (int i = 0; i < TT_RUN_AXES; i++)
		if (m->size[i] > 1)
			tt_buf_printf(&b, "%s%s %d", b.n ? ", " : "", short_names[i], m->size[i]);
	if (m->sp)
		tt_buf_str(&b, ", sp");
	if (m->size[TT_CP] > 1 && m->cp_method != TT_CP_GATHER)
		tt_buf_printf(&b, ", %s", tt_cp_method_name(m->cp_method));
	if (m->size[TT_CP] > 1 && m->cp_balance != TT_BALANCE_HEADTAIL)
		tt_buf_printf(&b, ", %s", tt_balance_name(m->cp_balance));
	const char *s = tt_arena_strdup(a, b.n ? b.s : "one rank");
	tt_buf_fini(&b);
	return s;
}

/* Every way to write `ranks` as a product of the axes; sequence parallel with and without where there is tensor parallel; context parallel by every
 * method, where that is asked for, with one balancer or another. */
static void list_meshes(tt_arena *a, const tt_verify_options *v, const tt_run_mesh *like, tt_verify_result *r)
{
	int64_t cap = 0;
	for (int n = 2; n <= v->ranks; n++)
		for (int dr = 1; dr <= n; dr++)
			for (int ds = 1; ds <= n / dr; ds++)
				for (int cp = 1; cp <= n / dr / ds; cp++) {
					int tp = n / dr / ds / cp;
					if (dr * ds * cp * tp != n)
						continue;
					for (int sp = 0; sp < (tp > 1 ? 2 : 1); sp++) {
						tt_verify_mesh m = { .size = { dr, ds, cp, tp }, .sp = sp, .cp_method = like->cp_method, .cp_balance = like->cp_balance };
						bool all = v->methods && cp > 1;
						for (int method = all ? TT_CP_GATHER : (int)like->cp_method; method <= (all ? TT_CP_RING : (int)like->cp_method); method++) {
							m.cp_method = (tt_cp_method)method;
							m.cp_balance = all ? (tt_balance)(r->n / 6 % 3) : like->cp_balance;
							m.rows = 1 + r->n % 3;
							m.recompute = r->n % 2;
							m.gathered = (tt_gathered)(r->n / 2 % 3);
							m.in_turn = r->n % 5 > 2;
							TT_PUSH(a, r->meshes, r->n, cap, m);
						}
					}
				}
}

static tt_status verify(proof *p, const tt_run_options *o, void (*seen)(void *ctx, const tt_verify_mesh *m), void *ctx, tt_verify_result *out)
{
	const tt_verify_options *v = p->v;
	tt_verify_result r = { .model = p->o.model, .resumed = MORE };
	TT_TRY(one_rank(p));
	if (!v->comm)
		p->stop = asked(p);
	r.states = p->nstates;
	r.numbers = (p->o.optim.sgd ? 2 : 3) * tt_llama_params(&p->o.model);
	if (v->list) {
		r.meshes = TT_NEWN(p->a, tt_verify_mesh, v->nlist);
		memcpy(r.meshes, v->list, (size_t)v->nlist * sizeof *r.meshes);
		r.n = v->nlist;
	} else {
		list_meshes(p->a, v, &o->mesh, &r);
	}
	int64_t rows = p->o.data.tokens_per_step / p->o.data.context_length;
	r.listed = r.n;
	r.n = 0;
	while (!p->stop && r.n < r.listed) {
		int64_t i = r.n++;
		int64_t given = TT_MAX(r.meshes[i].rows, (int64_t)1);
		r.meshes[i].rows = v->full ? o->tokens_per_microbatch / p->o.data.context_length : TT_MIN(given, rows);
		p->mesh = &r.meshes[i];
		tt_status s = verify_mesh(p);
		if (s && s != TT_ERR_STOP && p->mesh->finding && seen)
			seen(ctx, p->mesh);
		TT_TRY(s);
		r.illegal += p->mesh->illegal != NULL;
		r.failed += p->mesh->finding != NULL;
		r.refused += tt_verify_refused(p->mesh);
		r.broken += p->mesh->error && !tt_verify_refused(p->mesh);
		r.proven += !p->mesh->illegal && !p->mesh->finding;
		if (seen)
			seen(ctx, p->mesh);
		if (!v->comm)
			p->stop = asked(p);
	}
	r.stopped = p->stop;
	if (r.proven && !p->stop && !v->fast && (!v->comm || tt_comm_rank(v->comm) == 0)) { /* who has the save */
		const char *differs;
		TT_TRY(one_rank_resumed(p, &differs));
		if (differs)
			TT_FAIL(TT_ERR_NUMERIC, "one rank that goes on from the save of %s is not one rank: %s", p->saved_by, differs);
	}
	*out = r;
	return TT_OK;
}

tt_status tt_verify(tt_arena *a, const tt_run_options *o, const tt_verify_options *v, void (*seen)(void *ctx, const tt_verify_mesh *m), void *ctx,
	tt_verify_result *out)
{
	TT_ASSERT(v->ranks >= 1 && v->ranks <= MOST_RANKS && v->steps >= 1, "%d ranks, %d steps", v->ranks, v->steps);
	if (o->exec.f64)
		TT_FAIL(TT_ERR_USAGE, "training.dtype = \"float64\" has no exact numerics to verify in");
	proof p = { .a = a, .v = v, .given = o, .all = v->steps + MORE, .lock = PTHREAD_MUTEX_INITIALIZER };
	p.o = v->full ? *o : small(a, o, p.all, v->ranks, v->fast);
	p.o.exec.numerics = v->fast ? TT_FAST : TT_EXACT;
	p.o.mesh = (tt_run_mesh){ 0 };
	p.o.record = (tt_hashes_options){ 0 };
	p.want = TT_NEWN(a, whole, p.all);
	char *own = NULL;
	if (!v->folder)
		TT_TRY(tt_fs_temp(a, "titan-verify", &own));
	p.folder = own ? own : v->folder;
	tt_status s = verify(&p, o, seen, ctx, out);
	if (own)
		tt_fs_temp_remove(own);
	return s;
}
