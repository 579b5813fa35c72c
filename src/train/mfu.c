/* mfu.c: model FLOP/s against the measured peak (EXACT.md). */
#include "train/internal.h"

double tt_run_mfu(tt_trainer *t, const tt_run_options *o, double flops_per_s, bool may_measure)
{
	(void)t, (void)o, (void)flops_per_s, (void)may_measure;
	return __builtin_nan("");
}
