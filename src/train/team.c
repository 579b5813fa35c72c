/* team.c: the ranks of a led mesh as one trainer. Rank 0 tells the others what it is asked before it does it; they do the same, and meet it in the
 * exchanges of the programs. A whole tensor is put together from the pieces that ranks hold, or dealt to them, by an exchange of runs of elements: who
 * holds what follows from the layout, so nobody asks. Where ranks see each other's memory rank 0 copies alone, and a save's thread may do it. */
#include <stdlib.h>

#include "train/internal.h"
#include "train/team.h"

tt_status tt_team_open(tt_team *m, tt_arena *a, tt_comm *c, tt_trainer *self, double timeout_s)
{
	int n = tt_comm_size(c);
	*m = (tt_team){ .comm = c, .n = n, .timeout_s = timeout_s, .give = TT_NEWN(a, tt_block, n), .take = TT_NEWN(a, tt_block, n) };
	TT_TRY(tt_comm_group_all(c, "all", &m->all));
	if (tt_comm_sees_memory(c)) {
		m->peers = TT_NEWN(a, tt_trainer *, n);
		TT_TRY(tt_comm_all_gather(m->all, "trainers", &self, sizeof self, m->peers));
	} else {
		TT_TRY(tt_comm_barrier(m->all, "trainers"));
	}
	tt_comm_set_timeout(c, timeout_s);
	return TT_OK;
}

void tt_team_close(tt_team *m)
{
	free(m->buffer);
	m->buffer = NULL;
	m->cap = 0;
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

tt_status tt_team_before_update(tt_team *m, bool saving)
{
	bool patient = saving && !m->peers; /* who lives is seen all the same */
	if (patient)
		tt_comm_set_timeout(m->comm, 0);
	TT_TRY(tt_comm_barrier(m->all, "before the update"));
	if (patient)
		tt_comm_set_timeout(m->comm, m->timeout_s);
	return TT_OK;
}

/* ---- who holds what ----------------------------------------------------------------------------------------------------------------------------- */

/* Where a rank is in the mesh of layouts. */
static void coords(const tt_trainer *t, int rank, int *coord)
{
	const tt_mesh *m = &tt_trainer_typed(t)->mesh;
	int size[TT_PLAN_AXES];
	for (int i = 0; i < TT_PLAN_AXES; i++)
		size[i] = m->ax[i].size;
	for (int i = 0; i < TT_PLAN_AXES; i++)
		coord[i] = tt_mesh_coord(TT_PLAN_AXES, size, i, rank);
}

tt_piece tt_trainer_piece_of(const tt_trainer *t, int rank, const char *name, int d)
{
	const tt_graph *g = tt_trainer_typed(t);
	int coord[TT_PLAN_AXES];
	coords(t, rank, coord);
	return tt_value_piece(g, tt_value_get(g, tt_value_find(g, name)), d, coord, -1);
}

bool tt_trainer_owns(const tt_trainer *t, int rank, const char *name)
{
	const tt_graph *g = tt_trainer_typed(t);
	int coord[TT_PLAN_AXES];
	coords(t, rank, coord);
	const tt_value *v = tt_value_get(g, tt_value_find(g, name));
	bool owns = true;
	for (int ax = 0; ax < g->mesh.naxes; ax++)
		owns &= coord[ax] == 0 || v->layout.ax[ax].type == TT_S;
	return owns;
}

/* Rows [first, first + n) of a whole state, columns [col, col + width) of `whole`, as `rank` holds it; n 0: it gives nothing to `to`. */
typedef struct shard { int64_t first, n, col, width, whole; } shard;

static shard shard_of(const tt_trainer *t, int rank, int to, const tt_value *v)
{
	const tt_graph *g = tt_trainer_typed(t);
	int coord[TT_PLAN_AXES], theirs[TT_PLAN_AXES];
	coords(t, rank, coord);
	coords(t, to, theirs);
	for (int ax = 0; ax < g->mesh.naxes; ax++)
		if (coord[ax] != theirs[ax] && v->layout.ax[ax].type != TT_S)
			return (shard){ .whole = 1 };
	tt_piece row = tt_value_piece(g, v, 0, coord, -1), col = v->ndim > 1 ? tt_value_piece(g, v, 1, coord, -1) : (tt_piece){ .n = 1, .whole = 1 };
	return (shard){ row.start, row.n, col.start, col.n, col.whole };
}

int64_t tt_team_before(const tt_trainer *t, int rank, int to, const tt_value *v, int64_t at)
{
	shard s = shard_of(t, rank, to, v);
	int64_t row = at / s.whole - s.first;
	if (row < 0)
		return 0;
	return row >= s.n ? s.n * s.width : row * s.width + TT_MIN(TT_MAX(at % s.whole - s.col, (int64_t)0), s.width);
}

int64_t tt_team_run(const tt_trainer *t, int rank, int to, const tt_value *v, int64_t at, int64_t end, int64_t *n)
{
	shard s = shard_of(t, rank, to, v);
	if (s.width == s.whole) { /* whole lines are one run */
		s = (shard){ 0, s.n > 0, s.first * s.whole, s.n * s.whole, INT64_MAX };
	}
	int64_t row = TT_MAX(at / s.whole, s.first);
	if (row == at / s.whole && at % s.whole >= s.col + s.width)
		row++;
	if (row >= s.first + s.n || !s.width)
		return end;
	int64_t from = TT_MAX(at, row * s.whole + s.col);
	*n = TT_MIN(end, row * s.whole + s.col + s.width) - from;
	return *n > 0 ? from : end;
}

/* ---- whole tensors ---------------------------------------------------------------------------------------------------------------------------- */

/* Runs of elements [at, at+n) of a whole tensor that a rank holds, ascending: each is of one line of its shard. */
typedef struct runs {
	int64_t first, lines, line, width, whole; /* of the whole: where a line begins, how far the next is; of the shard: elements of a line */
	int64_t at, n;
} runs;

static runs runs_of(tt_trainer *t, int rank, const char *name, int ndim, int64_t at, int64_t n)
{
	tt_piece row = tt_trainer_piece_of(t, rank, name, 0), col = ndim > 1 ? tt_trainer_piece_of(t, rank, name, 1) : (tt_piece){ .n = 1, .whole = 1 };
	runs r = { .at = at, .n = n, .width = col.n, .whole = col.whole, .lines = row.n, .first = row.start * col.whole + col.start };
	if (col.n == col.whole) { /* whole lines are one run */
		r.width = r.whole = row.n * col.n;
		r.lines = 1;
	}
	if (r.lines > 1 && at > r.first + r.width) /* the first line that reaches into it */
		r.line = TT_MIN(tt_ceil_div(at - r.first - r.width + 1, r.whole), r.lines);
	return r;
}

/* The next run: *from elements into the shard, *to into [at, at+n), how many. False: there is none. */
static bool run_next(runs *r, int64_t *from, int64_t *to, int64_t *count)
{
	for (; r->line < r->lines; r->line++) {
		int64_t first = r->first + r->line * r->whole, begin = TT_MAX(first, r->at), end = TT_MIN(first + r->width, r->at + r->n);
		if (first >= r->at + r->n)
			return false;
		if (begin >= end)
			continue;
		*from = r->line * r->width + begin - first;
		*to = begin - r->at;
		*count = end - begin;
		r->line++;
		return true;
	}
	return false;
}

/* `packed`: `out` or `in` holds the runs one behind the other; else each where it is in [at, at+n). */
static tt_status piece(tt_trainer *t, int rank, const char *name, int64_t at, int64_t n, uint8_t *out, const uint8_t *in, bool packed)
{
	tt_slot s;
	tt_exec *e = tt_trainer_exec(t);
	TT_TRY(tt_exec_slot(e, name, &s));
	int64_t size = tt_tensor_bytes(e, &s, 1), from, to, count, place = 0;
	for (runs r = runs_of(t, rank, name, s.ndim, at, n); run_next(&r, &from, &to, &count); place += count) {
		int64_t byte = (packed ? place : to) * size;
		if (out)
			TT_TRY(tt_tensor_read(e, &s, from, out + byte, count));
		else
			TT_TRY(tt_tensor_write(e, &s, from, in + byte, count));
	}
	return TT_OK;
}

tt_status tt_team_piece(tt_trainer *t, const char *name, int64_t at, int64_t n, uint8_t *out, const uint8_t *in)
{
	return piece(t, tt_trainer_rank(t), name, at, n, out, in, false);
}

tt_status tt_team_pack(tt_trainer *t, const char *name, int64_t at, int64_t n, uint8_t *out)
{
	return piece(t, tt_trainer_rank(t), name, at, n, out, NULL, true);
}

static int64_t held(tt_trainer *t, int rank, const char *name, int ndim, int64_t at, int64_t n)
{
	int64_t from, to, count, sum = 0;
	for (runs r = runs_of(t, rank, name, ndim, at, n); run_next(&r, &from, &to, &count);)
		sum += count;
	return sum;
}

/* Moves runs between what lies whole on rank 0 and a rank's packed ones. */
static void deal(tt_trainer *t, int rank, const char *name, int ndim, int64_t at, int64_t n, int64_t size, uint8_t *whole, uint8_t *packed, bool pack)
{
	int64_t from, to, count;
	for (runs r = runs_of(t, rank, name, ndim, at, n); run_next(&r, &from, &to, &count); packed += count * size)
		memcpy(pack ? packed : whole + to * size, pack ? whole + to * size : packed, (size_t)(count * size));
}

static tt_status exchange(tt_team *m, const char *kind, const char *name)
{
	tt_exchange x = { .kind = kind, .name = name, .give = m->give, .take = m->take, .lands = true };
	TT_TRY(tt_comm_exchange(m->all, &x));
	return TT_OK;
}

/* By messages. The buffer holds, one behind the other, what each rank gives or takes. */
static tt_status copy_by_messages(tt_team *m, tt_trainer *t, const char *name, int64_t at, int64_t n, uint8_t *out, const uint8_t *in, bool reads)
{
	tt_slot s;
	TT_TRY(tt_exec_slot(tt_trainer_exec(t), name, &s));
	int me = tt_comm_rank(m->comm);
	int64_t size = tt_tensor_bytes(tt_trainer_exec(t), &s, 1), bytes = 0, mine = 0;
	memset(m->give, 0, sizeof *m->give * (size_t)m->n);
	memset(m->take, 0, sizeof *m->take * (size_t)m->n);
	tt_block *far = reads ? m->take : m->give; /* on rank 0 */
	for (int i = me ? me : 1; i < (me ? me + 1 : m->n); i++) {
		int64_t k = reads && !tt_trainer_owns(t, i, name) ? 0 : size * held(t, i, name, s.ndim, at, n);
		if (me)
			mine = k;
		else
			far[i] = tt_block_flat(NULL, k);
		bytes += k;
	}
	if (bytes > m->cap) {
		free(m->buffer);
		m->cap = bytes;
		m->buffer = malloc((size_t)bytes);
		TT_ASSERT(m->buffer, "%s: out of memory", name);
	}
	uint8_t *place = m->buffer;
	for (int i = 1; i < m->n && !me; place += far[i++].bytes) {
		far[i].p = place;
		if (!reads)
			deal(t, i, name, s.ndim, at, n, size, (uint8_t *)(uintptr_t)in, place, true);
	}
	if (me && reads && mine)
		TT_TRY(piece(t, me, name, at, n, m->buffer, NULL, true));
	if (me)
		*(reads ? &m->give[0] : &m->take[0]) = tt_block_flat(m->buffer, mine);
	TT_TRY(exchange(m, reads ? "gather of a tensor" : "scatter of a tensor", name));
	if (me && !reads && mine)
		TT_TRY(piece(t, me, name, at, n, NULL, m->buffer, true));
	if (me)
		return TT_OK;
	for (int i = 1; i < m->n && reads; i++) /* of those that hold the same one gives */
		if (far[i].bytes)
			deal(t, i, name, s.ndim, at, n, size, out, (uint8_t *)(uintptr_t)far[i].p, false);
	return reads && !tt_trainer_owns(t, 0, name) ? TT_OK : piece(t, 0, name, at, n, out, in, false);
}

tt_status tt_team_copy(tt_team *m, tt_trainer *t, bool reads, const char *name, int64_t at, int64_t n, void *out, const void *in)
{
	for (int i = 0; i < m->n && !reads; i++)
		if (m->peers || i == tt_comm_rank(m->comm))
			tt_exec_forget(tt_trainer_exec(m->peers ? m->peers[i] : t));
	if (!m->peers)
		return copy_by_messages(m, t, name, at, n, out, in, reads);
	for (int i = 0; i < m->n; i++)
		if (!reads || tt_trainer_owns(t, i, name))
			TT_TRY(piece(m->peers[i], i, name, at, n, out, in, false));
	return TT_OK;
}
