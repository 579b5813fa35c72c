/* share.c: tokens of a batch dealt to the ranks of a context parallel group. */
#include "data/data.h"

const char *tt_balance_name(tt_balance b)
{
	static const char *const names[] = { "headtail", "cost", "none" };
	return names[b];
}

/* ---- by place in the row ------------------------------------------------------------------------------------------------------------ */

/* The rank that token i of n of a row would have. */
static int wish(int64_t i, int64_t n, int parts, bool headtail)
{
	if (!headtail)
		return (int)(i * parts / n);
	int64_t piece = i * 2 * parts / n;
	return (int)TT_MIN(piece, 2 * parts - 1 - piece);
}

static void by_place(const tt_batch *b, int64_t context, int parts, bool headtail, int32_t *order)
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

/* ---- by attended keys --------------------------------------------------------------------------------------------------------------- */

/* Neighbouring tokens of one sequence that are dealt together, as far as there is room. */
typedef struct piece {
	int32_t first, n;
	int64_t last; /* keys that its last token attends */
} piece;

struct tt_dealer {
	piece *pieces;  /* [max_tokens] */
	int32_t *owner; /* [max_tokens] */
	int64_t *cost, *room; /* [parts] keys attended so far, and tokens that there is room for */
	int parts;
};

tt_dealer *tt_dealer_new(tt_arena *a, int64_t max_tokens, int parts)
{
	tt_dealer *d = TT_NEW(a, tt_dealer);
	*d = (tt_dealer){ .pieces = TT_NEWN(a, piece, max_tokens), .owner = TT_NEWN(a, int32_t, max_tokens), .cost = TT_NEWN(a, int64_t, parts),
			  .room = TT_NEWN(a, int64_t, parts), .parts = parts };
	return d;
}

static int64_t keys(int64_t position, int64_t window) { return window > 0 && position >= window ? window : position + 1; }

/* Keys that positions [p, p + n) of a sequence attend. */
static int64_t keys_of(int64_t p, int64_t n, int64_t window)
{
	int64_t rising = window > 0 ? TT_MIN(TT_MAX(window - p, 0), n) : n;
	return rising * p + rising * (rising + 1) / 2 + (n - rising) * window;
}

/* The dearer token first, then the earlier one: a total order. */
static bool before(const piece *x, const piece *y) { return x->last != y->last ? x->last > y->last : x->first < y->first; }

static void sift(piece *x, int64_t i, int64_t n)
{
	for (int64_t child; (child = 2 * i + 1) < n; i = child) {
		if (child + 1 < n && before(&x[child], &x[child + 1]))
			child++;
		if (!before(&x[i], &x[child]))
			return;
		piece swap = x[i];
		x[i] = x[child];
		x[child] = swap;
	}
}

/* A heap sort in place: nothing is allocated while a step is filled. */
static void sort(piece *x, int64_t n)
{
	for (int64_t i = n / 2 - 1; i >= 0; i--)
		sift(x, i, n);
	for (int64_t k = n - 1; k > 0; k--) {
		piece swap = x[0];
		x[0] = x[k];
		x[k] = swap;
		sift(x, 0, k);
	}
}

/* Pieces of at most `most` tokens, the dearest first, each to the rank that attends fewest keys so far and has room; what does not fit goes on
 * to the next. True if no rank attends more than 17/16 of what another does. */
static bool deal(const tt_batch *b, int64_t window, int64_t most, tt_dealer *d)
{
	int64_t n = 0;
	for (int64_t s = 0; s < b->nsequences; s++)
		for (int32_t t = b->seq_table[s], end = b->seq_table[s + 1]; t < end; t += (int32_t)most) {
			int32_t len = (int32_t)TT_MIN(most, (int64_t)(end - t));
			d->pieces[n++] = (piece){ t, len, keys(t + len - 1 - b->seq_table[s], window) };
		}
	sort(d->pieces, n);
	for (int r = 0; r < d->parts; r++) {
		d->cost[r] = 0;
		d->room[r] = tt_deal(b->T, r + 1, d->parts) - tt_deal(b->T, r, d->parts);
	}
	for (int64_t i = 0; i < n; i++)
		for (piece p = d->pieces[i]; p.n > 0;) {
			int least = -1;
			for (int r = 0; r < d->parts; r++)
				if (d->room[r] > 0 && (least < 0 || d->cost[r] < d->cost[least]))
					least = r;
			int32_t k = (int32_t)TT_MIN((int64_t)p.n, d->room[least]);
			for (int32_t t = p.first; t < p.first + k; t++)
				d->owner[t] = least;
			d->cost[least] += keys_of(b->positions[p.first], k, window);
			d->room[least] -= k;
			p.first += k;
			p.n -= k;
		}
	int64_t lo = INT64_MAX, hi = 0;
	for (int r = 0; r < d->parts; r++) {
		lo = TT_MIN(lo, d->cost[r]);
		hi = TT_MAX(hi, d->cost[r]);
	}
	return 16 * hi <= 17 * lo;
}

static void by_cost(const tt_batch *b, int64_t window, tt_dealer *d, int32_t *order)
{
	/* Long runs of neighbours suit attention's blocks of 64; shorter ones are tried only where they do not balance. */
	int64_t most = 64;
	while (!deal(b, window, most, d) && most > 1)
		most /= 2;
	int64_t at = 0;
	for (int r = 0; r < d->parts; r++) { /* from now on, where the next token of each rank goes */
		d->room[r] = at;
		at = tt_deal(b->T, r + 1, d->parts);
	}
	for (int64_t t = 0; t < b->T; t++)
		order[d->room[d->owner[t]]++] = (int32_t)t;
}

void tt_batch_order(const tt_batch *b, int64_t context, int64_t window, tt_balance balance, tt_dealer *d, int32_t *order)
{
	if (balance == TT_BALANCE_COST)
		by_cost(b, window, d, order);
	else
		by_place(b, context, d->parts, balance == TT_BALANCE_HEADTAIL, order);
}

/* ---- a rank's share ------------------------------------------------------------------------------------------------------------------ */

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
	out->first = tt_deal(b->T, part, parts);
	out->T = tt_deal(b->T, part + 1, parts) - out->first;
	for (int64_t i = 0; i < b->T; i++) {
		int32_t t = order[i];
		out->ids[i] = b->ids[t];
		out->labels[i] = b->labels[t];
		out->positions[i] = b->positions[t];
		out->seq_ids[i] = b->seq_ids[t];
		out->lines[t] = (int32_t)i;
	}
}
