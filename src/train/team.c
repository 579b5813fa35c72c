/* team.c: the ranks of a led mesh as one trainer. Rank 0 tells the others what it is asked before it does it; they do the same, and meet it in the
 * exchanges of the programs. Whole tensors are put together from the pieces that ranks hold: they are threads of one process. */
#include "train/internal.h"
#include "train/team.h"

tt_status tt_team_open(tt_team *m, tt_arena *a, tt_comm *c, tt_trainer *self, double timeout_s)
{
	int n = tt_comm_size(c);
	int *ranks = TT_NEWN(a, int, n);
	for (int i = 0; i < n; i++)
		ranks[i] = i;
	*m = (tt_team){ .comm = c, .n = n, .timeout_s = timeout_s, .peers = TT_NEWN(a, tt_trainer *, n) };
	TT_TRY(tt_comm_group_open(c, "all", n, ranks, &m->all));
	TT_TRY(tt_comm_all_gather(m->all, "trainers", &self, sizeof self, m->peers));
	tt_comm_set_timeout(c, timeout_s);
	return TT_OK;
}

tt_status tt_team_tell(tt_team *m, tt_team_order o)
{
	TT_TRY(tt_comm_broadcast(m->all, "what to do", 0, &o, sizeof o));
	return TT_OK;
}

/* Rank 0 may be long between steps: it saves, validates alone what it reads, waits for a disk. */
tt_status tt_team_hear(tt_team *m, tt_team_order *o)
{
	tt_comm_set_timeout(m->comm, 0);
	TT_TRY(tt_comm_broadcast(m->all, "what to do", 0, o, sizeof *o));
	tt_comm_set_timeout(m->comm, m->timeout_s);
	return TT_OK;
}

/* ---- whole tensors ---------------------------------------------------------------------------------------------------------------------------- */

typedef struct span { int64_t at, n; } span;

static span overlap(int64_t a0, int64_t an, int64_t b0, int64_t bn)
{
	int64_t begin = TT_MAX(a0, b0), end = TT_MIN(a0 + an, b0 + bn);
	return (span){ begin, TT_MAX(end - begin, (int64_t)0) };
}

/* Copies what rank `peer` holds of elements [at, at+n) into `out`, or from `in`. */
tt_status tt_team_piece(tt_trainer *peer, const char *name, int64_t at, int64_t n, uint8_t *out, const uint8_t *in)
{
	tt_slot s;
	tt_exec *e = tt_trainer_exec(peer);
	TT_TRY(tt_exec_slot(e, name, &s));
	tt_piece row = tt_trainer_piece(peer, name, 0), col = s.ndim > 1 ? tt_trainer_piece(peer, name, 1) : (tt_piece){ 0, 1, 1 };
	int64_t size = tt_tensor_bytes(e, &s, 1), lines = row.n, width = col.n, whole = col.whole;
	if (width == whole) { /* lines are whole: one run of elements */
		width = whole = lines * width;
		lines = 1;
	}
	for (int64_t l = 0; l < lines; l++) {
		int64_t first = lines == 1 ? row.start * col.whole + (col.n == col.whole ? 0 : col.start) : (row.start + l) * whole + col.start;
		span x = overlap(first, width, at, n);
		if (!x.n)
			continue;
		int64_t local = l * width + x.at - first;
		if (out)
			TT_TRY(tt_tensor_read(e, &s, local, out + (x.at - at) * size, x.n));
		else
			TT_TRY(tt_tensor_write(e, &s, local, in + (x.at - at) * size, x.n));
	}
	return TT_OK;
}

tt_status tt_team_copy(tt_team *m, const char *name, int64_t at, int64_t n, void *out, const void *in)
{
	for (int i = 0; i < m->n; i++)
		if (in || tt_trainer_owns(m->peers[i], name))
			TT_TRY(tt_team_piece(m->peers[i], name, at, n, out, in));
	return TT_OK;
}
