/* fit.c: what would make a plan fit that does not. Each way is planned, so the numbers said are those that the run would have. */
#include "train/internal.h"

typedef struct way {
	tt_run_options o;
	int64_t bytes;
	const char *text;
} way;

int64_t tt_fit_bytes(tt_trainer *t)
{
	int64_t n = 0;
	for (int r = 0; r < TT_EXEC_NREGIONS; r++)
		n += tt_exec_planned(tt_trainer_exec(t), r);
	return n;
}

/* Whether the plan of w->o fits; w->bytes says what it needs. */
static bool fits(way *w, int64_t limit)
{
	tt_trainer *t;
	w->bytes = INT64_MAX;
	if (tt_trainer_plan(&w->o, &t) == TT_OK) {
		w->bytes = tt_fit_bytes(t);
		tt_trainer_destroy(t);
	}
	return w->bytes <= limit;
}

static void set_rows(tt_run_options *o, int64_t rows)
{
	bool follows = o->eval_tokens == o->tokens_per_microbatch;
	o->tokens_per_microbatch = rows * o->data.context_length;
	if (follows)
		o->eval_tokens = o->tokens_per_microbatch;
}

enum { MOST_CHUNKS = 64 };

/* The three ways, cheapest first; each true if it is enough alone. More chunks cost next to nothing. */
static bool by_chunks(way *w, int64_t limit)
{
	int now = w->o.loss_chunks;
	w->o.loss_chunks = MOST_CHUNKS;
	if (now == MOST_CHUNKS || !fits(w, limit))
		return false;
	w->o.loss_chunks = now;
	do
		w->o.loss_chunks = TT_MIN(2 * w->o.loss_chunks, (int)MOST_CHUNKS);
	while (!fits(w, limit));
	return true;
}

/* Smaller microbatches: weights are read more often. */
static bool by_microbatch(way *w, int64_t limit)
{
	int64_t rows = w->o.tokens_per_microbatch / w->o.data.context_length;
	set_rows(&w->o, 1);
	if (rows == 1 || !fits(w, limit))
		return false;
	do
		set_rows(&w->o, rows /= 2);
	while (!fits(w, limit));
	return true;
}

/* Recomputation: up to a forward more a step. */
static bool by_recompute(way *w, int64_t limit)
{
	if (w->o.recompute.mode == TT_RECOMPUTE_NONE) {
		w->o.recompute = (tt_recompute){ .mode = TT_RECOMPUTE_SELECTIVE };
		if (fits(w, limit))
			return true;
	}
	if (w->o.recompute.mode == TT_RECOMPUTE_FULL)
		return false;
	w->o.recompute = (tt_recompute){ .mode = TT_RECOMPUTE_FULL };
	return fits(w, limit);
}

/* More ranks, each with less of every parameter: twice as many until one fits. The last rank is among those with most. */
static bool by_shards(way *w, int64_t limit)
{
	enum { MOST_RANKS = 16384 };
	static const double gain = 0.97; /* if it brings less, that is not sharded which needs the memory */
	tt_run_mesh *m = &w->o.mesh;
	int64_t ranks = 1, before = INT64_MAX;
	for (int i = 0; i < TT_RUN_AXES; i++)
		ranks *= TT_MAX(m->size[i], 1);
	while (ranks * 2 <= MOST_RANKS && (double)w->bytes < gain * (double)before) {
		before = w->bytes;
		m->size[TT_DP_SHARD] = TT_MAX(m->size[TT_DP_SHARD], 1) * 2;
		ranks *= 2;
		m->comm = tt_comm_fake_create((int)ranks - 1, (int)ranks);
		bool fit = fits(w, limit);
		tt_comm_fake_destroy(m->comm);
		if (fit)
			return true;
	}
	return false;
}

/* The settings of `to` that `o` does not have: "training.loss_chunks = 64 and ..."; "": it has them all. */
static const char *settings(tt_arena *a, const tt_run_options *o, const tt_run_options *to)
{
	const char *all[3], *s = "";
	int n = 0;
	if (o->loss_chunks != to->loss_chunks)
		all[n++] = tt_arena_printf(a, "training.loss_chunks = %d", to->loss_chunks);
	if (o->tokens_per_microbatch != to->tokens_per_microbatch)
		all[n++] = tt_arena_printf(a, "training.tokens_per_microbatch = %lld", (long long)to->tokens_per_microbatch);
	if (o->recompute.mode != to->recompute.mode)
		all[n++] = "activation_checkpoint.mode = \"full\"";
	for (int i = 0; i < n; i++)
		s = tt_arena_printf(a, "%s%s%s", s, !i ? "" : i < n - 1 ? ", " : " and ", all[i]);
	return s;
}

tt_status tt_fit_refuse(tt_arena *a, const tt_run_options *o, int64_t limit, bool more_ranks)
{
	const char *said = tt_arena_strdup(a, tt_error_text());
	tt_run_options quiet = *o;
	quiet.dump_out = NULL;
	way chunks = { quiet, 0, NULL }, rows = { quiet, 0, NULL }, again = { quiet, 0, NULL }, all = { quiet, 0, NULL };
	const way *found[3];
	int n = 0;
	if (by_chunks(&chunks, limit)) {
		chunks.text = tt_arena_printf(a, "training.loss_chunks = %d", chunks.o.loss_chunks);
		found[n++] = &chunks;
	}
	if (by_microbatch(&rows, limit)) {
		rows.text = tt_arena_printf(a, "training.tokens_per_microbatch = %lld", (long long)rows.o.tokens_per_microbatch);
		found[n++] = &rows;
	}
	if (by_recompute(&again, limit)) {
		again.text = tt_arena_printf(a, "activation_checkpoint.mode = \"%s\"", again.o.recompute.mode == TT_RECOMPUTE_FULL ? "full" : "selective");
		found[n++] = &again;
	}
	if (n) {
		const char *ways = "";
		for (int i = 0; i < n; i++)
			ways = tt_arena_printf(a, "%s%s%s (%s)", ways, i ? ", or with " : "", found[i]->text, tt_scale_bytes(found[i]->bytes).s);
		TT_FAIL(TT_ERR_MEMORY, "%s; it fits with %s", said, ways);
	}
	set_rows(&all.o, 1);
	all.o.loss_chunks = MOST_CHUNKS;
	all.o.recompute = (tt_recompute){ .mode = TT_RECOMPUTE_FULL };
	const char *with = settings(a, o, &all.o);
	if (fits(&all, limit))
		TT_FAIL(TT_ERR_MEMORY, "%s; it fits with %s together (%s)", said, with, tt_scale_bytes(all.bytes).s);
	int64_t alone = all.bytes, ranks = 1;
	if (more_ranks && by_shards(&all, limit)) {
		for (int i = 0; i < TT_RUN_AXES; i++)
			ranks *= TT_MAX(all.o.mesh.size[i], 1);
		/* Where ranks are enough the settings may stay. */
		way ranks_alone = { quiet, 0, NULL };
		ranks_alone.o.mesh.size[TT_DP_SHARD] = all.o.mesh.size[TT_DP_SHARD];
		ranks_alone.o.mesh.comm = tt_comm_fake_create((int)ranks - 1, (int)ranks);
		bool enough = fits(&ranks_alone, limit);
		tt_comm_fake_destroy(ranks_alone.o.mesh.comm);
		const char *where = tt_arena_printf(a, "%lld ranks, parallelism.data_parallel_shard_degree = %d or -1 (%s)", (long long)ranks, all.o.mesh.size[TT_DP_SHARD],
						    tt_scale_bytes(enough ? ranks_alone.bytes : all.bytes).s);
		if (enough)
			TT_FAIL(TT_ERR_MEMORY, "%s; it fits on %s", said, where);
		TT_FAIL(TT_ERR_MEMORY, "%s; with %s it still needs %s, and fits with them on %s", said, with, tt_scale_bytes(alone).s, where);
	}
	if (!*with)
		TT_FAIL(TT_ERR_MEMORY, "%s; microbatches are of one row and all is recomputed already: a smaller model fits (model.flavor, model.num_hidden_layers, model.hidden_size)", said);
	TT_FAIL(TT_ERR_MEMORY, "%s; with %s it still needs %s: a smaller model fits (model.flavor, "
		"model.num_hidden_layers, model.hidden_size)", said, with, tt_scale_bytes(alone).s);
}
