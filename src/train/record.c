/* record.c: what is told of a mesh's states without moving them: hashes and sums of squares of shards add up to those of one rank. */
#include <stdio.h>
#include <stdlib.h>

#include "train/internal.h"
#include "train/team.h"

/* Of this rank's piece, 0 where another rank holds the same and counts. */
static tt_status hash_piece(tt_trainer *t, int rank, const tt_slot *s, uint64_t *out)
{
	*out = 0;
	if (!tt_trainer_owns(t, rank, s->name))
		return TT_OK;
	tt_piece row = tt_trainer_piece(t, s->name, 0), col = s->ndim > 1 ? tt_trainer_piece(t, s->name, 1) : (tt_piece){ .n = 1, .whole = 1 };
	int64_t size = tt_tensor_bytes(tt_trainer_exec(t), s, 1), n = row.n * col.n;
	uint8_t *x = malloc((size_t)(n * size) + 1);
	TT_ASSERT(x, "out of memory");
	tt_status st = tt_tensor_read(tt_trainer_exec(t), s, 0, x, n);
	for (int64_t i = 0; i < n && !st; i++) {
		uint64_t bits = 0; /* little endian */
		memcpy(&bits, x + i * size, (size_t)size);
		*out += tt_hash_element(tt_hash_index((row.start + i / col.n) * col.whole + col.start + i % col.n), bits);
	}
	free(x);
	return st;
}

tt_status tt_mesh_hashes(tt_trainer *t, tt_comm_group *all, tt_arena *a, uint64_t **hash, bool **kept)
{
	int64_t n;
	const tt_slot *s = tt_exec_states(tt_trainer_exec(t), &n);
	int ranks = tt_comm_group_size(all);
	uint64_t *mine = TT_NEWN(a, uint64_t, n), *every = TT_NEWN(a, uint64_t, n * ranks);
	*hash = TT_NEWN(a, uint64_t, n);
	*kept = TT_NEWN(a, bool, n);
	for (int64_t i = 0; i < n; i++) {
		/* Accumulators hold this rank's terms, or what was made of them since. */
		(*kept)[i] = tt_hashes_has(&s[i]) && s[i].dtype != TT_ACC && tt_value_find(tt_trainer_typed(t), s[i].name);
		if ((*kept)[i])
			TT_TRY(hash_piece(t, tt_comm_group_rank(all, tt_comm_group_index(all)), &s[i], &mine[i]));
	}
	TT_TRY(tt_comm_all_gather(all, "hashes of states", mine, n * (int64_t)sizeof *mine, every));
	for (int r = 0; r < ranks; r++)
		for (int64_t i = 0; i < n; i++)
			(*hash)[i] += every[r * n + i];
	return TT_OK;
}

/* ---- sums of squares ---------------------------------------------------------------------------------------------------------------------- */

static tt_status square_sum(tt_exec *e, const tt_slot *s, double *out)
{
	enum { BLOCK = 1024 };
	union { float f[BLOCK]; double d[BLOCK]; int64_t limbs[3 * BLOCK]; } b;
	bool f64 = s->dtype == TT_F64 || (s->dtype == TT_ACC && tt_tensor_bytes(e, s, 1) == 8);
	for (int64_t at = 0; at < s->count; at += BLOCK) {
		int64_t n = TT_MIN((int64_t)BLOCK, s->count - at);
		TT_TRY(tt_tensor_read(e, s, at, &b, n));
		for (int64_t k = 0; k < n; k++) {
			double x = f64 ? b.d[k] : s->plane ? (double)b.limbs[k] * 0x1p-26 + (double)b.limbs[n + k] * 0x1p-66 : (double)b.f[k];
			*out += x * x;
		}
	}
	return TT_OK;
}

tt_status tt_team_squares(tt_trainer *t, const char *param, bool grad, double *out)
{
	tt_exec *e = tt_trainer_exec(t);
	char name[512];
	tt_slot s;
	*out = 0;
	if (!tt_trainer_owns(t, tt_trainer_rank(t), param))
		return TT_OK;
	/* Where ranks held terms of it, their sum is a state of its own (pass/exchanges.c). */
	snprintf(name, sizeof name, "reduced.grad.%s", param);
	const char *state = !grad ? param : tt_value_find(tt_trainer_graph(t), name) ? name : name + sizeof "reduced." - 1;
	TT_TRY(tt_exec_slot(e, state, &s));
	return square_sum(e, &s, out);
}
