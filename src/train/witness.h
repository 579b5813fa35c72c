/* witness: every value that one rank's programs make in a step, and where a mesh's rank first has other bits.
 *
 * A mesh's graph without its conversions is the graph of one rank, text for text. So each value of a mesh has its counterpart there, and its layout
 * says which part of it a rank holds. What a rank holds of a sum not yet taken (P, M), or a sum over the tokens of one microbatch, has none. */
#ifndef TT_WITNESS_H
#define TT_WITNESS_H

#include "train/train.h"

typedef struct tt_witness tt_witness;
/* Of a run with steps of `tokens` tokens. In `a`, which no other thread uses meanwhile. At most `limit` bytes of values are kept. `forward`: F, and
 * token losses, alone, of values that both graphs have once passes have changed them: for `fast`, where no more is promised. */
tt_witness *tt_witness_new(tt_arena *a, int64_t tokens, int64_t limit, bool forward);

/* One rank: its options take tt_witness_probe before the trainer is made; nothing is kept before tt_witness_keep. */
tt_probe tt_witness_probe(tt_witness *w);
void tt_witness_keep(tt_witness *w, tt_trainer *t); /* what t makes from now on; NULL: nothing more */

/* A rank of a mesh, of which there may be many at a time. */
typedef struct tt_witness_rank {
	const tt_witness *w;
	tt_trainer *t;    /* NULL: nothing is compared */
	tt_arena *a;
	int64_t seen;     /* values made since t was set */
	int64_t compared; /* of them, and terms of open sums kept */
	int64_t at;       /* `seen` of the first that differs; -1: none has */
	const char *text; /* what it is, in `a` */
	/* of the graph that is running */
	const tt_graph *g;
	struct tt_witness_place *place;
	tt_segment seg;
	int64_t cells[TT_NSEGS];
	struct tt_witness_term *term; /* of open sums */
	int64_t nterms, cap_terms;
} tt_witness_rank;
tt_probe tt_witness_compare(tt_witness_rank *r); /* r is zeroes but for w and a */
/* The first open sum, made before `before` values were seen, whose terms on all ranks together are not one rank's sum: what it is, in `a`, which is no rank's; NULL: all are.
 * A sum taken wrongly from right terms is told from terms that were wrong. The ranks' arenas must still be there. */
const char *tt_witness_terms(tt_witness_rank *ranks, int n, int64_t before, tt_arena *a);
/* The same where ranks are processes, each with its own terms: all of the group call it, its first has the text, the others NULL. Terms are added up in
 * windows of about a MiB. */
tt_status tt_witness_terms_of(tt_witness_rank *own, tt_comm_group *g, int64_t before, tt_arena *a, const char **out) TT_CHECKED;

#endif
