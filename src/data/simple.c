/* Sources without files: "synthetic", ids drawn by hash, for benches; "rows", ids given in memory, for tests. */
#include "data/data.h"
#include "data/draw.h"

/* ---- synthetic -------------------------------------------------------------------------------------------------- */

static tt_status synthetic_open(tt_arena *a, const tt_data_options *o, tt_data *d)
{
	(void)a;
	(void)o;
	(void)d;
	return TT_OK;
}

/* Token p of row r: draw r * 2^32 + p of the seed's stream, below the vocabulary's size. A row is one sequence; its last label is token p = n. */
static tt_status synthetic_next(tt_data *d, bool valid, int64_t row, tt_row *out)
{
	(void)valid;
	int64_t n = d->o.context_length;
	random_stream draws = random_stream_of(d->o.seed, 0, "synthetic", "ids");
	for (int64_t p = 0; p <= n; p++) {
		int32_t id = (int32_t)tt_data_below(&draws, (uint64_t)row << 32 | (uint64_t)p, (uint64_t)d->o.vocab_size);
		if (p < n)
			out->ids[p] = id;
		if (p > 0)
			out->labels[p - 1] = id;
	}
	out->n = n;
	out->nsequences = 1;
	out->lengths[0] = (int32_t)n;
	return TT_OK;
}

static uint64_t synthetic_save(const tt_data *d, uint64_t h) { return tt_data_mix(h, (uint64_t)d->o.vocab_size); }

const tt_source_kind tt_source_synthetic = {
	.name = "synthetic",
	.doc = "random ids, one sequence a row",
	.open = synthetic_open,
	.next = synthetic_next,
	.save = synthetic_save,
};

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static tt_status rows_open(tt_arena *a, const tt_data_options *o, tt_data *d)
{
	(void)a;
	const tt_rows *r = &o->rows;
	if (!r->ids || r->nrows < 1)
		TT_FAIL(TT_ERR_USAGE, "data source \"rows\" has no rows");
	int64_t C = o->context_length;
	for (int64_t i = 0; i < r->nrows * C; i++) {
		int32_t id = r->ids[i], label = r->labels ? r->labels[i] : 0;
		if (id < 0 || id >= o->vocab_size)
			TT_FAIL(TT_ERR_USAGE, "row %lld, token %lld: id %d is outside model.vocab_size %d", (long long)(i / C),
				(long long)(i % C), id, o->vocab_size);
		if (label != TT_IGNORE && (label < 0 || label >= o->vocab_size))
			TT_FAIL(TT_ERR_USAGE, "row %lld, token %lld: label %d is neither %d nor within model.vocab_size %d",
				(long long)(i / C), (long long)(i % C), label, TT_IGNORE, o->vocab_size);
	}
	for (int64_t row = 0; r->lengths && row < r->nrows; row++) {
		const int32_t *len = r->lengths + row * r->max_sequences;
		int64_t sum = 0;
		bool ended = false, broken = false;
		for (int64_t i = 0; i < r->max_sequences; i++) {
			broken |= len[i] < 0 || (ended && len[i]);
			ended |= len[i] == 0;
			sum += len[i];
		}
		if (broken || sum != C)
			TT_FAIL(TT_ERR_USAGE, "row %lld: its sequences must have positive lengths, then zeros, of sum %lld; the sum is %lld",
				(long long)row, (long long)C, (long long)sum);
	}
	d->info.documents = r->nrows;
	d->info.tokens = r->nrows * C;
	if (!o->repeat)
		d->rows = r->nrows;
	return TT_OK;
}

static tt_status rows_next(tt_data *d, bool valid, int64_t row, tt_row *out)
{
	(void)valid;
	const tt_rows *r = &d->o.rows;
	int64_t C = d->o.context_length, at = row % r->nrows;
	memcpy(out->ids, r->ids + at * C, sizeof *out->ids * (size_t)C);
	out->n = C;
	out->nsequences = 0;
	if (r->lengths)
		while (out->nsequences < r->max_sequences && r->lengths[at * r->max_sequences + out->nsequences]) {
			out->lengths[out->nsequences] = r->lengths[at * r->max_sequences + out->nsequences];
			out->nsequences++;
		}
	else
		out->lengths[out->nsequences++] = (int32_t)C;
	if (r->labels) {
		memcpy(out->labels, r->labels + at * C, sizeof *out->labels * (size_t)C);
		return TT_OK;
	}
	int64_t t = 0;
	for (int64_t i = 0; i < out->nsequences; i++)
		for (int32_t p = 1; p <= out->lengths[i]; p++, t++)
			out->labels[t] = p < out->lengths[i] ? out->ids[t + 1] : TT_IGNORE;
	return TT_OK;
}

static uint64_t rows_save(const tt_data *d, uint64_t h)
{
	const tt_rows *r = &d->o.rows;
	size_t n = sizeof(int32_t) * (size_t)(r->nrows * d->o.context_length);
	h = tt_hash64(r->ids, n, h);
	if (r->labels)
		h = tt_hash64(r->labels, n, h);
	if (r->lengths)
		h = tt_hash64(r->lengths, sizeof(int32_t) * (size_t)(r->nrows * r->max_sequences), h);
	return h;
}

const tt_source_kind tt_source_rows = {
	.name = "rows",
	.doc = "ids given in memory, again and again",
	.open = rows_open,
	.next = rows_next,
	.save = rows_save,
};
