/* schedule.c: the learning rate's factor: warmup, stable, decay (formulas as TorchTitan's lr_scheduler). */
#include "kernels/math.h"
#include "train/internal.h"

double tt_schedule_factor(const tt_schedule *c, int64_t s)
{
	double m = c->min_factor, f;
	int64_t stable = c->total + 1 - c->warmup - c->decay;
	if (s < c->warmup)
		return (double)(s + 1) / (double)c->warmup;
	if (s < c->warmup + stable || c->decay <= 0)
		return 1;
	double p = (double)(s + 1 - c->warmup - stable) / (double)c->decay;
	p = TT_MIN(p, 1.0);
	switch (c->type) {
	case TT_WSD_LINEAR:
		f = 1 - p;
		break;
	case TT_WSD_SQRT:
		f = 1 - __builtin_sqrt(p);
		break;
	case TT_WSD_COSINE: {
		double sine, cosine;
		sincos_f64(3.14159265358979323846 * p, &sine, &cosine);
		f = 0.5 * (1 + cosine);
		break;
	}
	default:
		f = 1;
	}
	return m + (1 - m) * f;
}

const char *tt_decay_name(tt_decay d)
{
	static const char *const names[] = { [TT_WSD_LINEAR] = "linear", [TT_WSD_SQRT] = "sqrt", [TT_WSD_COSINE] = "cosine" };
	return names[d];
}
