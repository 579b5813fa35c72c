/* scalar.h: one element at a time, for reference kernels that stand in an op's family file. Slow and plain; kernels that matter
 * live in NAME.k.c. Reading any float dtype gives its exact value; storing rounds once, to nearest even.
 */
#ifndef TT_KERNELS_SCALAR_H
#define TT_KERNELS_SCALAR_H

#include "ir/ir.h"

/* Lines and features of an operand of one or two dims: a vector is one feature per line. */
static inline int64_t tt_arg_lines(const tt_arg *a) { return a->n[0]; }
static inline int64_t tt_arg_features(const tt_arg *a) { return a->ndim > 1 ? a->n[1] : 1; }

static inline double tt_arg_get(const tt_arg *a, int64_t line, int64_t i)
{
	int64_t at = line * (a->ndim > 1 ? a->ld : 1) + i;
	switch (a->dtype) {
	case TT_F32:
		return (double)((const float *)a->p)[at];
	case TT_BF16:
		return (double)tt_bf16_to_f32(((const tt_bf16 *)a->p)[at]);
	case TT_F64:
		return ((const double *)a->p)[at];
	case TT_I32:
		return (double)((const int32_t *)a->p)[at];
	case TT_NODTYPE:
	case TT_I64:
	case TT_ACC:
		break;
	}
	TT_ASSERT(false, "%s has no scalar form", tt_dtype_name(a->dtype));
	return 0;
}

static inline void tt_arg_set(const tt_arg *a, int64_t line, int64_t i, double v)
{
	int64_t at = line * (a->ndim > 1 ? a->ld : 1) + i;
	switch (a->dtype) {
	case TT_F32:
		((float *)a->p)[at] = (float)v;
		return;
	case TT_BF16:
		((tt_bf16 *)a->p)[at] = tt_f32_to_bf16((float)v);
		return;
	case TT_F64:
		((double *)a->p)[at] = v;
		return;
	case TT_NODTYPE:
	case TT_I32:
	case TT_I64:
	case TT_ACC:
		break;
	}
	TT_ASSERT(false, "%s has no scalar form", tt_dtype_name(a->dtype));
}

#endif
