/* share.c: tokens of a batch dealt to the ranks of a context parallel group. */
#include "data/data.h"

/* The rank that token i of n of a row would have. */
static int wish(int64_t i, int64_t n, int parts, bool headtail)
{
	if (!headtail)
		return (int)(i * parts / n);
	int64_t piece = i * 2 * parts / n;
	return (int)TT_MIN(piece, 2 * parts - 1 - piece);
}

void tt_batch_order(const tt_batch *b, int64_t context, int parts, bool headtail, int32_t *order)
{
	int64_t at = 0; /* of the order: wishes of rank 0, then of rank 1 ... : a share that is too long runs over into its neighbour's */
	for (int r = 0; r < parts; r++)
		for (int64_t row = 0; row < b->T; row += context) {
			int64_t n = TT_MIN(context, b->T - row);
			for (int64_t i = 0; i < n; i++)
				if (wish(i, n, parts, headtail) == r)
					order[at++] = (int32_t)(row + i);
		}
	TT_ASSERT(at == b->T, "%lld of %lld tokens dealt", (long long)at, (long long)b->T);
}

tt_share *tt_share_new(tt_arena *a, int64_t max_tokens)
{
	tt_share *s = TT_NEW(a, tt_share);
	s->ids = TT_NEWN(a, int32_t, max_tokens);
	s->labels = TT_NEWN(a, int32_t, max_tokens);
	s->positions = TT_NEWN(a, int32_t, max_tokens);
	s->seq_ids = TT_NEWN(a, int32_t, max_tokens);
	s->lines = TT_NEWN(a, int32_t, max_tokens);
	return s;
}

void tt_share_fill(const tt_batch *b, const int32_t *order, int part, int parts, tt_share *out)
{
	int64_t first = tt_deal(b->T, part, parts);
	out->T = tt_deal(b->T, part + 1, parts) - first;
	for (int64_t i = 0; i < out->T; i++) {
		int32_t t = order[first + i];
		out->ids[i] = b->ids[t];
		out->labels[i] = b->labels[t];
		out->positions[i] = b->positions[t];
		out->seq_ids[i] = b->seq_ids[t];
	}
	for (int64_t i = 0; i < b->T; i++)
		out->lines[order[i]] = (int32_t)i;
}
