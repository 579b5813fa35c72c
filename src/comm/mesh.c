/* mesh.c: ranks in a box. The last axis is the fastest, so that the axis which talks most has neighbouring ranks. */
#include "comm/comm.h"

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
