/* The rows of the override table for attention. Best instruction set first: the first row that accepts wins. */
#include "kernels/attention_fast.h"

#ifndef TT_NO_X86

static bool is_bwd(const tt_kernel_case *c) { return !strcmp(c->op, "attention_bwd"); }

/* Plain matrices of the one dtype; the statistics f32; head dims in whole vectors. */
static bool accepts(const tt_kernel_case *c, tt_dtype dt)
{
	const tt_attr_attention *a = c->attr;
	const int values = is_bwd(c) ? 6 : 3;
	if (c->nin != values + 4 || a->group < 1 || a->head_dim < 16 || a->v_head_dim < 16 || a->head_dim % 16 || a->v_head_dim % 16 ||
		TT_MAX(a->head_dim, a->v_head_dim) > AF_MAX_DIM)
		return false;
	for (int i = 0; i < values; i++)
		if (!c->in[i] || c->in[i]->format != TT_PLAIN || c->in[i]->ndim != 2 || c->in[i]->dtype != (i == 4 ? TT_F32 : dt))
			return false;
	for (int i = values; i < c->nin; i++)
		if (!c->in[i] || c->in[i]->dtype != TT_I32)
			return false;
	if (is_bwd(c))
		return c->out[0]->dtype == TT_ACC && c->out[1]->dtype == TT_ACC && c->out[2]->dtype == TT_ACC;
	if (!strcmp(c->op, "attention_part"))
		return c->out[0]->dtype == TT_F32 && c->out[1]->dtype == TT_F32 && c->out[2]->dtype == TT_F32;
	return c->out[0]->dtype == dt && c->out[1]->dtype == TT_F32;
}

static bool accepts_f32(const tt_kernel_case *c) { return accepts(c, TT_F32); }
static bool accepts_bf16(const tt_kernel_case *c) { return accepts(c, TT_BF16); }

static size_t scratch(const tt_kernel_case *c)
{
	const tt_attr_attention *a = c->attr;
	const tt_value *q = c->in[0], *lines = c->in[c->nin - 1];
	return af_shared_scratch(q->dim[0].n, lines->dim[0].n, q->dim[1].n / a->head_dim) +
	       (size_t)TT_MAX(c->threads, 1) * af_lane_scratch(a);
}

#define FORWARD(dt, set, isa) {"attention", "attention " #dt " " #set, isa, accepts_##dt, NULL, scratch, NULL, tt_attention_##dt##_##set},
#define PART(dt, set, isa) {"attention_part", "attention_part " #dt " " #set, isa, accepts_##dt, NULL, scratch, NULL, tt_attention_part_##dt##_##set},
#define BACKWARD(dt, set, isa)                                                                                         \
	{"attention_bwd", "attention_bwd " #dt " " #set, isa, accepts_##dt, NULL, scratch, NULL, tt_attention_bwd_##dt##_##set},

const tt_override tt_overrides_attention[] = {AF_VARIANTS(FORWARD) AF_VARIANTS(PART) AF_VARIANTS(BACKWARD){0}};

#else

const tt_override tt_overrides_attention[] = {{0}};

#endif
