/* verify.c: runs of one rank and of meshes on the same rows, and the comparison of every parameter and optimizer state after every step. */
#include "train/verify.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { ALL = 840, MOST_RANKS = 64 };

/* ---- the shrunk run ---------------------------------------------------------------------------------------------------------------------- */

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

/* The least number from `least` on that the degrees 1 .. 8 divide as they do n; n itself if that is smaller. */
static int64_t shrunk(int64_t n, int64_t least)
{
	int64_t k = least;
	while (gcd(k, ALL) != gcd(n, ALL))
		k++;
	return TT_MIN(n, k);
}

static tt_llama_config shrink(tt_llama_config m)
{
	int64_t group = m.num_attention_heads / m.num_key_value_heads;
	m.num_key_value_heads = shrunk(m.num_key_value_heads, 1 + (m.num_key_value_heads > 8 ? 8 : m.num_key_value_heads - 1));
	m.num_attention_heads = m.num_key_value_heads * shrunk(group, 1);
	m.num_hidden_layers = TT_MIN(m.num_hidden_layers, (int64_t)2);
	m.head_dim = TT_MIN(m.head_dim, (int64_t)4);
	m.hidden_size = shrunk(m.hidden_size, 16);
	m.intermediate_size = shrunk(m.intermediate_size, 24);
	m.vocab_size = shrunk(m.vocab_size, 27);
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

static tt_run_options small(tt_arena *a, const tt_run_options *o, int steps)
{
	tt_run_options s = *o;
	s.model = shrink(o->model);
	int64_t context = shrunk(o->data.context_length, 24), rows = TT_MAX(shrunk(o->data.tokens_per_step / o->data.context_length, 5), (int64_t)2);
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
	tt_run_options o;   /* of all runs */
	int64_t nstates;
	const char **name;  /* [nstates] */
	whole *want;        /* [steps] */
	/* the mesh at hand */
	tt_verify_mesh *mesh;
	pthread_mutex_t lock;
	int step;           /* the first that differs, and in it the first state; nstates: the loss */
	int64_t state;
	bool differs[MOST_RANKS]; /* which ranks hold other bits of it */
	double ratio;       /* theirs over one rank's, NaN: no constant */
	char layout[128];
	char text[256];     /* of the loss */
} proof;

static bool compared(const tt_slot *s) { return s->source < 0 && (s->region == TT_REGION_PARAM || s->region == TT_REGION_OPTIM); }

static tt_status one_rank(proof *p)
{
	tt_trainer *t;
	TT_TRY(tt_trainer_create(&p->o, &t));
	tt_status s = TT_OK;
	int64_t n;
	const tt_slot *slot = tt_exec_states(tt_trainer_exec(t), &n);
	p->name = TT_NEWN(p->a, const char *, n);
	for (int i = 0; i < p->v->steps && !s; i++) {
		tt_step_report r;
		if ((s = tt_trainer_step(t, &r)))
			break;
		p->want[i] = (whole){ r.loss, r.grad_norm, TT_NEWN(p->a, float *, n) };
		p->nstates = 0;
		for (int64_t k = 0; k < n && !s; k++) {
			if (!compared(&slot[k]))
				continue;
			float *x = TT_NEWN(p->a, float, slot[k].count);
			s = tt_exec_read(tt_trainer_exec(t), slot[k].name, 0, x, slot[k].count);
			p->name[p->nstates] = tt_arena_strdup(p->a, slot[k].name);
			p->want[i].state[p->nstates++] = x;
		}
	}
	tt_trainer_destroy(t);
	return s;
}

/* This rank's piece against the same elements of the whole. *ratio: of all that differ, NaN if they do not agree on one. */
static tt_status compare(const tt_trainer *t, const tt_slot *s, tt_exec *e, const float *want, tt_arena *a, bool *differs, double *ratio)
{
	tt_piece row = tt_trainer_piece(t, s->name, 0), col = s->ndim > 1 ? tt_trainer_piece(t, s->name, 1) : (tt_piece){ 0, 1, 1 };
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
			tt_layout_print(&g->mesh, &tt_value_get(g, tt_value_find(g, s[k].name))->layout, &b);
			note(p, step, at, rank, ratio, b.s ? b.s : "", "");
			tt_buf_fini(&b);
		}
		at++;
	}
	TT_ASSERT(at == p->nstates, "%lld states, one rank has %lld", (long long)at, (long long)p->nstates);
	return TT_OK;
}

static tt_status run_steps(proof *p, tt_trainer *t, int rank)
{
	tt_arena *a = tt_arena_create("verify");
	tt_status s = TT_OK;
	for (int i = 0; i < p->v->steps && !s; i++) {
		tt_step_report r;
		s = tt_trainer_step(t, &r);
		if (!s)
			s = check_step(p, t, rank, i, &r, a);
	}
	tt_arena_destroy(a);
	return s;
}

/* The mesh's graph without its conversions must be the graph of one rank, text for text (DESIGN 1: plans add conversions and nothing else). */
static tt_status check_erased(proof *p, const tt_trainer *mesh, const tt_run_options *o)
{
	tt_run_options one = *o;
	one.mesh = (tt_run_mesh){ 0 };
	tt_trainer *t;
	TT_TRY(tt_trainer_plan(&one, &t));
	tt_arena *a = tt_arena_create("erased");
	uint64_t want = tt_graph_hash(tt_trainer_typed(t)), got = tt_graph_hash(tt_graph_erase(tt_trainer_typed(mesh), a));
	tt_arena_destroy(a);
	tt_trainer_destroy(t);
	if (want != got)
		note(p, 0, -2, 0, __builtin_nan(""), "", "the graph without its conversions is not that of one rank (debug.dump_after = [\"optimizer\"] shows both)");
	return TT_OK;
}

static tt_status rank_main(tt_comm *c, void *ctx)
{
	proof *p = ctx;
	tt_run_options o = p->o;
	memcpy(o.mesh.size, p->mesh->size, sizeof o.mesh.size);
	o.mesh.sp = p->mesh->sp;
	if (p->mesh->recompute)
		o.recompute = (tt_recompute){ .mode = TT_RECOMPUTE_FULL };
	o.mesh.comm = c;
	o.exec.threads = 1;
	o.tokens_per_microbatch = p->mesh->rows * o.data.context_length;
	if (p->v->fault)
		p->v->fault(p->v->fault_ctx, &o);
	tt_trainer *t;
	TT_TRY(tt_trainer_create(&o, &t));
	tt_status s = tt_comm_rank(c) == 0 ? check_erased(p, t, &o) : TT_OK;
	if (!s)
		s = run_steps(p, t, tt_comm_rank(c));
	tt_trainer_destroy(t);
	return s;
}

static const char *finding(const proof *p, int ranks)
{
	tt_buf b = { 0 };
	tt_buf_printf(&b, "step %d: ", p->step + 1);
	if (p->state < 0) {
		tt_buf_str(&b, p->text);
	} else {
		tt_buf_printf(&b, "%s has other bits on rank", p->name[p->state]);
		int n = 0;
		for (int i = 0; i < ranks; i++)
			if (p->differs[i])
				tt_buf_printf(&b, "%s %d", n++ ? "," : "", i);
		if (p->ratio == p->ratio)
			tt_buf_printf(&b, ", %.4g times those of one rank", p->ratio);
		if (p->layout[0])
			tt_buf_printf(&b, "; it lies %s", p->layout);
	}
	const char *s = tt_arena_strdup(p->a, b.s);
	tt_buf_fini(&b);
	return s;
}

/* ---- meshes ---------------------------------------------------------------------------------------------------------------------------------- */

static tt_status verify_mesh(proof *p)
{
	tt_verify_mesh *m = p->mesh;
	m->illegal = tt_mesh_illegal(p->a, &p->o.model, p->o.data.context_length, m->size);
	if (m->illegal)
		return TT_OK;
	int ranks = 1;
	for (int i = 0; i < TT_RUN_AXES; i++)
		ranks *= m->size[i];
	p->step = p->v->steps;
	double t0 = tt_now();
	tt_comm_options c = { .init_timeout_s = 300 };
	tt_status s = tt_comm_threads(ranks, &c, rank_main, p);
	m->seconds = tt_now() - t0;
	if (s == TT_ERR_STOP || s == TT_ERR_MEMORY)
		TT_TRY(s);
	if (s)
		m->finding = tt_arena_strdup(p->a, tt_error_text());
	else if (p->step < p->v->steps)
		m->finding = finding(p, ranks);
	return TT_OK;
}

/* Every way to write `ranks` as a product of the axes; sequence parallel with and without where there is tensor parallel. */
static void list_meshes(tt_arena *a, const tt_verify_options *v, tt_verify_result *r)
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
						tt_verify_mesh m = { .size = { dr, ds, cp, tp }, .sp = sp, .rows = 1 + r->n % 3, .recompute = r->n % 2 };
						TT_PUSH(a, r->meshes, r->n, cap, m);
					}
				}
}

tt_status tt_verify(tt_arena *a, const tt_run_options *o, const tt_verify_options *v, void (*seen)(void *ctx, const tt_verify_mesh *m), void *ctx,
	tt_verify_result *out)
{
	TT_ASSERT(v->ranks >= 1 && v->ranks <= MOST_RANKS && v->steps >= 1, "%d ranks, %d steps", v->ranks, v->steps);
	proof p = { .a = a, .v = v, .o = v->full ? *o : small(a, o, v->steps), .lock = PTHREAD_MUTEX_INITIALIZER };
	p.o.exec.numerics = TT_EXACT;
	p.o.mesh = (tt_run_mesh){ 0 };
	p.o.record = (tt_hashes_options){ 0 };
	p.want = TT_NEWN(a, whole, v->steps);
	tt_verify_result r = { .model = p.o.model };
	if (p.o.exec.f64)
		TT_FAIL(TT_ERR_USAGE, "training.dtype = \"float64\" has no exact numerics to verify in");
	TT_TRY(one_rank(&p));
	r.states = p.nstates;
	r.numbers = 3 * tt_llama_params(&p.o.model);
	bool one = v->size[0] > 0;
	if (one) {
		r.meshes = TT_NEW(a, tt_verify_mesh);
		*r.meshes = (tt_verify_mesh){ .sp = o->mesh.sp && v->size[TT_TP] > 1, .rows = 1 };
		memcpy(r.meshes->size, v->size, sizeof v->size);
		r.n = 1;
	} else {
		list_meshes(a, v, &r);
	}
	int64_t rows = p.o.data.tokens_per_step / p.o.data.context_length;
	for (int64_t i = 0; i < r.n; i++) {
		r.meshes[i].rows = v->full ? o->tokens_per_microbatch / p.o.data.context_length : TT_MIN(r.meshes[i].rows, rows);
		p.mesh = &r.meshes[i];
		TT_TRY(verify_mesh(&p));
		r.illegal += p.mesh->illegal != NULL;
		r.failed += p.mesh->finding != NULL;
		r.proven += !p.mesh->illegal && !p.mesh->finding;
		if (seen)
			seen(ctx, p.mesh);
	}
	*out = r;
	return TT_OK;
}
