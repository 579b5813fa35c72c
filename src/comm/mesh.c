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
		if (all)
			s = tt_comm_group_open(c, name.s, tt_mesh_ranks(naxes, size, axes, rank, ranks), ranks, &m.group[axes]);
	}
	tt_buf_fini(&name);
	TT_TRY(s);
	*out = m;
	return TT_OK;
}
