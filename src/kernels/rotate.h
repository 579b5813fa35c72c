/* Rotary embedding of lines, for the kernels that end with it. Included once per kernel set. */
#ifndef TT_KERNELS_ROTATE_H
#define TT_KERNELS_ROTATE_H

#include "kernels/real.h"

/* (a, b) -> (a cos - b sin, b cos + a sin) of the halves of every head, each product rounded; the inverse turns back: sin negated. y may lie on x. */
static inline void rotate_lines(const tt_arg *x_th, const tt_arg *table_tk, const tt_arg *y_th, int64_t head, bool inverse, int64_t begin, int64_t end)
{
	int64_t half = head / 2, width = arg_width(x_th);
	TT_ASSERT(head > 0 && head % 2 == 0 && head <= SPAN && width % head == 0, "rope: head dim %lld, width %lld",
		(long long)head, (long long)width);
	int64_t step = SPAN / head * head;
	real sign = inverse ? (real)-1 : (real)1, xbuf[SPAN], tmp[SPAN], tbuf[SPAN], sine[SPAN / 2];
	for (int64_t t = begin; t < end; t++) {
		const real *restrict cosine = span_load(tbuf, table_tk, t, 0, head);
		for (int64_t i = 0; i < half; i++)
			sine[i] = sign * cosine[half + i];
		for (int64_t at = 0; at < width; at += step) {
			int64_t n = TT_MIN(step, width - at);
			const real *x = span_load(xbuf, x_th, t, at, n);
			real *y = span_out(tmp, y_th, t, at);
			for (int64_t h = 0; h < n; h += head) {
				const real *a = x + h, *b = a + half;
				real *ya = y + h, *yb = ya + half;
				INPLACE_LOOP
				for (int64_t i = 0; i < half; i++) {
					real p = a[i], q = b[i];
					ya[i] = p * cosine[i] - q * sine[i];
					yb[i] = q * cosine[i] + p * sine[i];
				}
			}
			span_store(y_th, t, at, y, n);
		}
	}
}

#endif
