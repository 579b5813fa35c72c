/* For sources: whole numbers from a random stream. */
#ifndef TT_DATA_DRAW_H
#define TT_DATA_DRAW_H

#include "kernels/random.h"

/* Draw i of a stream (kernels/random.h), uniform below n, up to n / 2^64. */
static inline uint64_t tt_data_below(const random_stream *s, uint64_t i, uint64_t n)
{
	philox d = random_draw(s, i);
	return (uint64_t)(((unsigned __int128)((uint64_t)d.v[1] << 32 | d.v[0]) * n) >> 64);
}

#endif
