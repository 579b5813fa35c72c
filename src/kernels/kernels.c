/* The registry: which kernel files exist, compiled for which sets, and which sets this CPU can run. */
#include "kernels/kernels.h"

#define FAMILIES(X, set)                                                                                               \
	X(product, set) X(pack, set) X(attention, set) X(elementwise, set) X(norm, set) X(rope, set) X(loss, set)      \
	X(optim, set) X(init, set) X(embed, set) X(exchange, set)
#ifdef TT_NO_X86
#define SETS(X) X(ref) X(f64)
#else
#define SETS(X) X(ref) X(f64) X(avx2) X(avx512)
#endif

#define DECLARE(family, set) extern const tt_kernel tt_kernels_##family##_##set[];
#define DECLARE_SET(set) FAMILIES(DECLARE, set)
SETS(DECLARE_SET)

#define LIST(family, set) tt_kernels_##family##_##set,
#define LIST_SET(set) static const tt_kernel *const tables_##set[] = {FAMILIES(LIST, set) NULL};
SETS(LIST_SET)

extern const tt_override tt_overrides_xsmm[]; /* ends with a NULL op; no rows where there is no x86 */
extern const tt_override tt_overrides_attention[];

#define NAME(set) ", " #set
const char *tt_kernel_sets(void) { return &(SETS(NAME))[2]; }
#undef NAME

const char *tt_isa_name(tt_isa i)
{
	switch (i) {
	case TT_ISA_REF: return "ref";
	case TT_ISA_AVX2: return "avx2";
	case TT_ISA_AVX512: return "avx512";
	case TT_ISA_AVX512_BF16: return "avx512_bf16";
	}
	return "?";
}

tt_isa tt_isa_detect(void)
{
#ifdef TT_NO_X86
	return TT_ISA_REF;
#else
	__builtin_cpu_init();
	if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2"))
		return TT_ISA_REF;
	if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
		!__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
		return TT_ISA_AVX2;
	return __builtin_cpu_supports("avx512bf16") ? TT_ISA_AVX512_BF16 : TT_ISA_AVX512;
#endif
}

tt_status tt_isa_parse(const char *s, tt_isa *out)
{
	static const struct { const char *name; tt_isa isa; } names[] = {
		{"ref", TT_ISA_REF}, {"avx2", TT_ISA_AVX2}, {"avx512", TT_ISA_AVX512}, {"avx512_bf16", TT_ISA_AVX512_BF16}};
	const tt_isa have = tt_isa_detect();
	if (!strcmp(s, "auto")) {
		*out = have;
		return TT_OK;
	}
	for (int i = 0; i < TT_COUNT(names); i++) {
		if (strcmp(s, names[i].name))
			continue;
		if (names[i].isa > have)
			TT_FAIL(TT_ERR_USAGE, "instruction set %s asked for, this CPU has %s: use auto or %s", s, tt_isa_name(have),
				tt_isa_name(have));
		*out = names[i].isa;
		return TT_OK;
	}
	TT_FAIL(TT_ERR_USAGE, "unknown instruction set \"%s\": auto, ref, avx2, avx512 or avx512_bf16", s);
}

const tt_kernel *tt_kernel_ref(const char *op, tt_isa isa, bool f64)
{
	const tt_kernel *const *tables = tables_ref;
#ifndef TT_NO_X86
	if (isa >= TT_ISA_AVX512)
		tables = tables_avx512;
	else if (isa == TT_ISA_AVX2)
		tables = tables_avx2;
#else
	(void)isa;
#endif
	if (f64)
		tables = tables_f64;
	for (; *tables; tables++)
		for (const tt_kernel *k = *tables; k->op; k++)
			if (!strcmp(k->op, op))
				return k;
	return NULL;
}

static const tt_override *const overrides[] = {tt_overrides_xsmm, tt_overrides_attention};

const tt_override *tt_override_at(int i)
{
	for (int k = 0; k < TT_COUNT(overrides); k++)
		for (const tt_override *o = overrides[k]; o->op; o++)
			if (i-- == 0)
				return o;
	return NULL;
}

static bool lies_right(const tt_override *o, const tt_kernel_case *c)
{
	for (int i = 0; i < c->nin; i++)
		if (c->in[i] && (o->format ? o->format(c, i) : TT_PLAIN) != c->in[i]->format)
			return false;
	return true;
}

static const tt_override *find(const tt_kernel_case *c, tt_isa isa, bool lying)
{
	for (int i = 0; i < TT_COUNT(overrides); i++)
		for (const tt_override *o = overrides[i]; o->op; o++)
			if (o->isa <= isa && !strcmp(o->op, c->op) && o->accepts(c) && (!lying || lies_right(o, c)))
				return o;
	return NULL;
}

const tt_override *tt_override_find(const tt_kernel_case *c, tt_isa isa) { return find(c, isa, false); }
const tt_override *tt_override_lying(const tt_kernel_case *c, tt_isa isa) { return find(c, isa, true); }
