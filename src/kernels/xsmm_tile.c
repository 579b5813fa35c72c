/* xsmm_tile.c: libxsmm's tiles made, for one target at a time. */
#include "kernels/xsmm_tile.h"

#ifndef TT_NO_X86

form tt_xsmm_form(const tt_value *x, level at)
{
	form m = {.bf16 = x->dtype == TT_BF16};
	m.widened = m.bf16 && at < AVX512_BF16;
	m.from = m.bf16 ? 2 : 4;
	m.to = m.widened ? 4 : m.from;
	m.pair = m.bf16 ? 2 : 1;
	m.chunk = m.to == 2 ? CHUNK_BF16 : CHUNK_F32;
	m.kind = m.to == 2 ? TILE_BF16_F32 : TILE_F32;
	return m;
}

void tt_xsmm_target(level at)
{
	/* CPX is the level that knows AVX512_BF16; f32 tiles are the same from SKX on. */
	int want = LIBXSMM_X86_AVX2;
	if (at >= AVX512)
		want = __builtin_cpu_supports("avx512bf16") ? LIBXSMM_X86_AVX512_CPX : LIBXSMM_X86_AVX512_CORE;
	libxsmm_init();
	if (libxsmm_get_target_archid() != want)
		libxsmm_set_target_archid(want);
}

static tt_status make_tile(const char *op, tile_kind kind, int64_t n, int64_t k, int64_t ldb, int64_t ldc, bool more, tile *out)
{
	libxsmm_blasint a = WIDE, b = (libxsmm_blasint)ldb, c = (libxsmm_blasint)ldc, nn = (libxsmm_blasint)n,
			kk = (libxsmm_blasint)k;
	float one = 1, beta = more ? 1 : 0;
	int none = LIBXSMM_GEMM_PREFETCH_NONE, plain = LIBXSMM_GEMM_FLAG_NONE, pairs = LIBXSMM_GEMM_FLAG_VNNI_A;
	tile t = {0};
	switch (kind) {
	case TILE_F32: t.smm = libxsmm_smmdispatch(WIDE, nn, kk, &a, &b, &c, &one, &beta, &plain, &none); break;
	case TILE_BF16_F32: t.bsmm = libxsmm_bsmmdispatch(WIDE, nn, kk, &a, &b, &c, &one, &beta, &pairs, &none); break;
	case TILE_BF16: t.bmm = libxsmm_bmmdispatch(WIDE, nn, kk, &a, &b, &c, &one, &beta, &pairs, &none); break;
	}
	if (!t.xmm)
		TT_FAIL(TT_ERR_USAGE,
			"%s: libxsmm made no %s tile of 64x%d over %d (ldb %d, ldc %d, beta %g, target %s); --kernels=ref runs without it",
			op, kind == TILE_F32 ? "f32" : "bf16", nn, kk, b, c, (double)beta, libxsmm_get_target_arch());
	*out = t;
	return TT_OK;
}

/* Tiles of 1..LINES lines into t[1..LINES]. */
tt_status tt_xsmm_tiles(const char *op, tile_kind kind, int64_t k, int64_t ldb, int64_t ldc, bool more, tile *t)
{
	for (int n = 1; n <= LINES; n++)
		TT_TRY(make_tile(op, kind, n, k, ldb, ldc, more, &t[n]));
	return TT_OK;
}

bool tt_xsmm_fits(const tt_value *a, const tt_value *b)
{
	if (a->ndim != 2 || b->ndim != 2 || a->dtype != b->dtype || (a->dtype != TT_F32 && a->dtype != TT_BF16))
		return false;
	for (int i = 0; i < 2; i++)
		if (a->dim[i].n < i || b->dim[i].n < i || a->dim[i].n > 1 << 28 || b->dim[i].n > 1 << 28)
			return false;
	return true;
}

#endif
