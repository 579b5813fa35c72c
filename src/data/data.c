/* What all sources share: steps and microbatches from rows, and the cursor. */
#include "data/data.h"

#include "data/draw.h"

/* ---- open ------------------------------------------------------------------------------------------------------- */

static const tt_source_kind *const KINDS[] = {&tt_source_text, &tt_source_synthetic, &tt_source_rows};

static tt_status kind_find(tt_arena *a, const char *name, const tt_source_kind **out)
{
	const char *names[TT_COUNT(KINDS)];
	tt_buf all = {0};
	for (int i = 0; i < TT_COUNT(KINDS); i++) {
		if (strcmp(KINDS[i]->name, name) == 0) {
			*out = KINDS[i];
			tt_buf_fini(&all);
			return TT_OK;
		}
		names[i] = KINDS[i]->name;
		tt_buf_printf(&all, "%s%s", i ? ", " : "", names[i]);
	}
	const char *list = tt_arena_strdup(a, all.s), *near = tt_nearest(name, names, TT_COUNT(KINDS));
	tt_buf_fini(&all);
	TT_FAIL(TT_ERR_USAGE, "unknown data source \"%s\"%s%s%s; there are: %s", name, near ? ", did you mean \"" : "",
		near ? near : "", near ? "\"?" : "", list);
}

tt_status tt_data_open(tt_arena *a, const tt_data_options *o, tt_data **out)
{
	const tt_source_kind *kind;
	TT_TRY(kind_find(a, o->source, &kind));
	if (o->context_length < 1 || o->tokens_per_step < 1)
		TT_FAIL(TT_ERR_USAGE, "training.context_length %lld and training.tokens_per_step %lld must be positive",
			(long long)o->context_length, (long long)o->tokens_per_step);
	if (o->tokens_per_step % o->context_length) {
		long long up = tt_round_up(o->tokens_per_step, o->context_length);
		TT_FAIL(TT_ERR_USAGE,
			"training.tokens_per_step %lld is no multiple of training.context_length %lld; the next one is %lld",
			(long long)o->tokens_per_step, (long long)o->context_length, up);
	}
	if (o->tokens_per_step > INT32_MAX)
		TT_FAIL(TT_ERR_USAGE, "training.tokens_per_step %lld exceeds %d", (long long)o->tokens_per_step, INT32_MAX);
	if (o->vocab_size < 1)
		TT_FAIL(TT_ERR_USAGE, "model.vocab_size %d must be positive", o->vocab_size);
	tt_data *d = TT_NEW(a, tt_data);
	d->arena = a;
	d->kind = kind;
	d->o = *o;
	d->rows = INT64_MAX;
	TT_TRY(kind->open(a, o, d));
	uint64_t h = tt_data_mix(tt_hash64(kind->name, strlen(kind->name), 0), o->seed);
	h = tt_data_mix(h, (uint64_t)o->sequence << 1 | o->shuffle);
	if (o->shuffle_window > 1) {
		if (o->shuffle_window > INT32_MAX)
			TT_FAIL(TT_ERR_USAGE, "data.shuffle_window %lld exceeds %d", (long long)o->shuffle_window, INT32_MAX);
		h = tt_data_mix(h, (uint64_t)o->shuffle_window);
		d->window = TT_NEWN(a, int32_t, o->shuffle_window);
		d->window_at = -1;
	}
	d->info.fingerprint = kind->save(d, h);
	*out = d;
	return TT_OK;
}

void tt_data_close(tt_data *d)
{
	if (d && d->kind->close)
		d->kind->close(d);
}

int64_t tt_data_rows_per_step(const tt_data *d) { return d->o.tokens_per_step / d->o.context_length; }
int64_t tt_data_valid_rows(const tt_data *d) { return d->valid_rows; }
tt_data_info tt_data_describe(const tt_data *d) { return d->info; }

/* ---- steps ------------------------------------------------------------------------------------------------------ */

tt_step *tt_step_new(tt_arena *a, int64_t rows, int64_t context_length)
{
	tt_step *s = TT_NEW(a, tt_step);
	int64_t T = rows * context_length;
	s->cap_rows = rows;
	s->context_length = context_length;
	s->ids = TT_NEWN(a, int32_t, T);
	s->labels = TT_NEWN(a, int32_t, T);
	s->positions = TT_NEWN(a, int32_t, T);
	s->seq_ids = TT_NEWN(a, int32_t, T);
	s->seq_table = TT_NEWN(a, int32_t, T + 1);
	s->row_tokens = TT_NEWN(a, int64_t, rows + 1);
	s->row_seqs = TT_NEWN(a, int64_t, rows + 1);
	s->row_valid = TT_NEWN(a, int64_t, rows);
	return s;
}

/* Appends one row of the stream to the step. */
static tt_status row_add(tt_data *d, bool valid, int64_t row, tt_step *s)
{
	/* The source writes lengths where the table's entries will stand, one place on; there is room, since every sequence so
	 * far has a token. Then they are summed in place. */
	int64_t T = s->T, N = s->nsequences;
	tt_row r = {.ids = s->ids + T, .labels = s->labels + T, .lengths = s->seq_table + N + 1};
	s->seq_table[N] = (int32_t)T;
	TT_TRY(d->kind->next(d, valid, row, &r));
	int64_t t = T;
	for (int64_t i = 0; i < r.nsequences; i++) {
		for (int32_t p = 0, n = r.lengths[i]; p < n; p++, t++) {
			s->positions[t] = p;
			s->seq_ids[t] = (int32_t)(N + i);
		}
		s->seq_table[N + i + 1] = (int32_t)t;
	}
	TT_ASSERT(t - T == r.n && r.n <= s->context_length, "%s: row of %lld tokens in sequences of %lld", d->kind->name,
		  (long long)r.n, (long long)(t - T));
	int64_t nvalid = 0;
	for (int64_t i = T; i < t; i++)
		nvalid += s->labels[i] != TT_IGNORE;
	s->row_valid[s->nrows] = nvalid;
	s->nvalid += nvalid;
	s->nsequences += r.nsequences;
	s->T = t;
	s->nrows++;
	s->row_tokens[s->nrows] = t;
	s->row_seqs[s->nrows] = s->nsequences;
	return TT_OK;
}

/* Training row `row` of the run in the order of the stream's rows: within windows of shuffle_window rows the order is random (Fisher-Yates; draw
 * i of a window depends on seed, window and i alone), so that the rows of a step are not one document's. The last, short window of a
 * stream that ends is taken in order. */
static int64_t shuffled_row(tt_data *d, int64_t row)
{
	int64_t w = d->o.shuffle_window;
	if (!d->window || (row / w + 1) * w > d->rows)
		return row;
	if (d->window_at != row / w) {
		random_stream draws = random_stream_of(d->o.seed, 0, "rows", "shuffle");
		d->window_at = row / w;
		for (int64_t i = 0; i < w; i++)
			d->window[i] = (int32_t)i;
		for (int64_t i = w - 1; i > 0; i--) {
			int64_t k = (int64_t)tt_data_below(&draws, (uint64_t)(d->window_at * w + i), (uint64_t)i + 1);
			int32_t other = d->window[k];
			d->window[k] = d->window[i];
			d->window[i] = other;
		}
	}
	return row / w * w + d->window[row % w];
}

static tt_status rows_add(tt_data *d, bool valid, int64_t first, int64_t n, tt_step *out)
{
	TT_ASSERT(n <= out->cap_rows && out->context_length == d->o.context_length,
		  "room for %lld rows of %lld, needed %lld of %lld", (long long)out->cap_rows, (long long)out->context_length,
		  (long long)n, (long long)d->o.context_length);
	out->nrows = out->T = out->nsequences = out->nvalid = 0;
	out->row_tokens[0] = out->row_seqs[0] = 0;
	out->seq_table[0] = 0;
	for (int64_t i = 0; i < n; i++)
		TT_TRY(row_add(d, valid, valid ? first + i : shuffled_row(d, first + i), out));
	return TT_OK;
}

tt_status tt_data_step(tt_data *d, int64_t step, tt_step *out)
{
	int64_t n = tt_data_rows_per_step(d), last;
	TT_ASSERT(step >= 0 && !__builtin_mul_overflow(step + 1, d->o.tokens_per_step, &last), "step %lld", (long long)step);
	if ((step + 1) * n > d->rows)
		TT_FAIL(TT_ERR_STOP, "the text ends after %lld steps: %lld tokens in %lld documents (data.repeat = false)",
			(long long)(d->rows / n), (long long)d->info.tokens, (long long)d->info.documents);
	TT_TRY(rows_add(d, false, step * n, n, out));
	return TT_OK;
}

tt_status tt_data_valid(tt_data *d, int64_t first, tt_step *out)
{
	TT_ASSERT(first >= 0 && first <= d->valid_rows, "row %lld of %lld", (long long)first, (long long)d->valid_rows);
	TT_TRY(rows_add(d, true, first, TT_MIN(out->cap_rows, d->valid_rows - first), out));
	return TT_OK;
}

/* ---- microbatches ----------------------------------------------------------------------------------------------- */

tt_batch *tt_batch_new(tt_arena *a, int64_t max_tokens)
{
	tt_batch *b = TT_NEW(a, tt_batch);
	b->seq_ids = TT_NEWN(a, int32_t, max_tokens);
	b->seq_table = TT_NEWN(a, int32_t, max_tokens + 1);
	b->lines = TT_NEWN(a, int32_t, max_tokens);
	return b;
}

void tt_batch_fill(const tt_step *s, int64_t r0, int64_t r1, tt_batch *out)
{
	TT_ASSERT(0 <= r0 && r0 <= r1 && r1 <= s->nrows, "rows %lld to %lld of %lld", (long long)r0, (long long)r1,
		  (long long)s->nrows);
	int64_t t0 = s->row_tokens[r0], q0 = s->row_seqs[r0];
	out->T = s->row_tokens[r1] - t0;
	out->nsequences = s->row_seqs[r1] - q0;
	out->first = t0;
	out->ids = s->ids + t0;
	out->labels = s->labels + t0;
	out->positions = s->positions + t0;
	out->nvalid = 0;
	for (int64_t r = r0; r < r1; r++)
		out->nvalid += s->row_valid[r];
	for (int64_t t = 0; t < out->T; t++) {
		out->seq_ids[t] = s->seq_ids[t0 + t] - (int32_t)q0;
		out->lines[t] = (int32_t)t;
	}
	for (int64_t q = 0; q <= out->nsequences; q++)
		out->seq_table[q] = s->seq_table[q0 + q] - (int32_t)t0;
}

/* ---- the cursor ------------------------------------------------------------------------------------------------- */

tt_data_cursor tt_data_save(tt_data *d, int64_t step)
{
	if (!d->files && d->kind->evidence)
		d->files = d->kind->evidence(d, false, &d->every);
	if (!d->held && d->kind->evidence)
		d->held = d->kind->evidence(d, true, &d->held_every);
	return (tt_data_cursor){step, d->o.context_length, d->o.tokens_per_step, d->info.fingerprint, d->files, d->every, d->held, d->held_every};
}

/* The stream is another: says in what. The fingerprint sees options, names and sizes, the evidence names a file and sees what is in it. */
static tt_status stream_match(tt_data *d, const tt_data_cursor *c)
{
	tt_buf why = {0};
	if (c->files && d->kind->evidence) {
		d->every = c->every;
		d->files = d->kind->evidence(d, false, &d->every);
		d->kind->difference(d, false, d->files, c->files, &why);
	}
	const bool options = c->fingerprint != d->info.fingerprint;
	if (options)
		tt_error_set(TT_ERR_USAGE, __FILE__, __LINE__, "the data is not that of the run to be resumed (fingerprint %016llx, was %016llx): %s",
			     (unsigned long long)d->info.fingerprint, (unsigned long long)c->fingerprint,
			     why.n ? why.s : c->files ? "a key of [data] differs" : "files came, went or changed size, or a key of [data] differs");
	else if (why.n)
		tt_error_set(TT_ERR_USAGE, __FILE__, __LINE__, "the data is not that of the run to be resumed: %s", why.s);
	const bool same = !options && !why.n;
	tt_buf_fini(&why);
	return same ? TT_OK : TT_ERR_USAGE;
}

/* Losses of other texts are no curve, but nothing that was trained is wrong. A run without held-out files has nothing to compare. */
static void warn_held(tt_data *d, const tt_data_cursor *c)
{
	if (!c->held || !d->kind->evidence)
		return;
	d->held_every = c->held_every;
	d->held = d->kind->evidence(d, true, &d->held_every);
	tt_buf why = {0};
	if (d->held)
		d->kind->difference(d, true, d->held, c->held, &why);
	if (why.n)
		tt_log(TT_LOG_WARN, "validation: the held-out files are not those of the run so far: %s. Losses before and after this are of other texts", why.s);
	tt_buf_fini(&why);
}

tt_status tt_data_restore(tt_data *d, const tt_data_cursor *c, int64_t *step)
{
	if (c->step < 0)
		TT_FAIL(TT_ERR_FORMAT, "the saved position of the data, step %lld, is negative", (long long)c->step);
	if (c->context_length != d->o.context_length)
		TT_FAIL(TT_ERR_USAGE, "training.context_length is %lld, the run to be resumed had %lld",
			(long long)d->o.context_length, (long long)c->context_length);
	if (c->tokens_per_step != d->o.tokens_per_step)
		TT_FAIL(TT_ERR_USAGE, "training.tokens_per_step is %lld, the run to be resumed had %lld",
			(long long)d->o.tokens_per_step, (long long)c->tokens_per_step);
	TT_TRY(stream_match(d, c));
	warn_held(d, c);
	*step = c->step;
	return TT_OK;
}
