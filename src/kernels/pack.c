/* Sizes of the packed formats. The layouts themselves are made in pack.k.c and read by the tiles (xsmm.c). */
#include "kernels/kernels.h"

int64_t tt_format_count(tt_format f, tt_dtype dt, int64_t o, int64_t k)
{
	/* Panels are always 64 features wide: a narrower tail would select tiles whose sums have another order. bf16 holds pairs
	 * of the contraction. */
	int64_t pair = dt == TT_BF16 ? 2 : 1;
	switch (f) {
	case TT_PLAIN: return o * k;
	case TT_PACK_FWD: return tt_round_up(o, 64) * tt_round_up(k, pair);
	case TT_PACK_DX: return tt_round_up(k, 64) * tt_round_up(o, pair);
	}
	TT_ASSERT(false, "unknown format %d", (int)f);
	return 0;
}
