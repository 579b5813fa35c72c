/* mesh.c: ranks in a box. The last axis is the fastest, so that the axis which talks most has neighbouring ranks. */
#include "comm/internal.h"

int tt_mesh_coord(int naxes, const int *size, int axis, int rank)
{
	for (int i = naxes - 1; i > axis; i--)
		rank /= size[i];
	return rank % size[axis];
}

int tt_mesh_ranks(int naxes, const int *size, uint32_t axes, int rank, int *ranks)
{
	int stride = 1, base = rank, n = 1;
	for (int i = naxes - 1; i >= 0; i--) {
		if (axes & 1u << i)
			base -= tt_mesh_coord(naxes, size, i, rank) * stride;
		stride *= size[i];
	}
	ranks[0] = base;
	stride = 1;
	for (int i = naxes - 1; i >= 0; i--) {
		if (axes & 1u << i) {
			for (int c = 1; c < size[i]; c++)
				for (int k = 0; k < n; k++)
					ranks[c * n + k] = ranks[k] + c * stride;
			n *= size[i];
		}
		stride *= size[i];
	}
	return n;
}

tt_status tt_comm_axes_open(tt_comm *c, int naxes, const int *size, const char *const *names, tt_comm_axes *out)
{
	TT_ASSERT(naxes <= TT_MESH_AXES, "%d mesh axes", naxes);
	static const char *const suffixes[TT_COMM_LANES] = { [TT_COMM_WANTED] = "", [TT_COMM_PARAMS] = " for parameters", [TT_COMM_GRADS] = " for gradients" };
	tt_comm_axes m = { .naxes = naxes };
	int rank = tt_comm_rank(c), n = tt_comm_size(c);
	tt_buf name = { 0 };
	tt_status s = TT_OK;
	int *ranks = tt_arena_alloc(c->arena, sizeof *ranks * (size_t)n);
	for (int i = 0; i < naxes; i++)
		m.coord[i] = tt_mesh_coord(naxes, size, i, rank);
	for (uint32_t axes = 1; axes < 1u << naxes && !s; axes++) {
		name.n = 0;
		bool all = true; /* every axis of the mask has ranks: else it is the group of fewer axes */
		for (int i = 0; i < naxes; i++)
			if (axes & 1u << i) {
				all &= size[i] > 1;
				tt_buf_printf(&name, "%s%s", name.n ? "*" : "", names[i]);
			}
		int members = all ? tt_mesh_ranks(naxes, size, axes, rank, ranks) : 0, end = name.n;
		for (int lane = 0; lane < TT_COMM_LANES && all && !s; lane++) {
			name.n = end;
			tt_buf_str(&name, suffixes[lane]);
			s = tt_comm_group_open(c, name.s, members, ranks, &m.group[lane][axes]);
		}
	}
	tt_buf_fini(&name);
	TT_TRY(s);
	*out = m;
	return TT_OK;
}

tt_comm_count tt_comm_axes_count(const tt_comm_axes *a, uint32_t axes)
{
	tt_comm_count sum = { 0 };
	for (int lane = 0; lane < TT_COMM_LANES; lane++) {
		if (!a->group[lane][axes])
			continue;
		tt_comm_count c = tt_comm_group_count(a->group[lane][axes]);
		sum.calls += c.calls;
		sum.bytes += c.bytes;
		sum.wait_s += c.wait_s;
		sum.use_s += c.use_s;
	}
	return sum;
}
