/* shared.c: helpers of the family files. */
#include <stdio.h>

#include "ops/internal.h"

tt_v tt_sample_x(tt_graph *g, const char *name, tt_dtype dt, tt_dim a)
{
	return tt_input(g, name, dt, dt, 1, &a);
}

tt_v tt_sample_xy(tt_graph *g, const char *name, tt_dtype dt, tt_dim a, tt_dim b)
{
	tt_dim d[] = { a, b };
	return tt_input(g, name, dt, dt, 2, d);
}

tt_v tt_sample_ids(tt_graph *g, const char *name, int64_t n, tt_fill f)
{
	tt_dim d = f == TT_FILL_SEQ_TABLE ? tt_dim_of(TT_SEQS, n, 1) : tokens(n);
	tt_v v = tt_input(g, name, TT_I32, TT_NODTYPE, 1, &d);
	tt_value_set_fill(g, v, f);
	return v;
}

tt_seqs tt_sample_seqs(tt_graph *g, int64_t n)
{
	return (tt_seqs){
		.positions = tt_sample_ids(g, "positions", n, TT_FILL_POSITIONS),
		.seq_ids = tt_sample_ids(g, "seq_ids", n, TT_FILL_SEQ_IDS),
		.seq_table = tt_sample_ids(g, "seq_table", n + 1, TT_FILL_SEQ_TABLE),
		.lines = tt_sample_ids(g, "lines", n, TT_FILL_LINES),
	};
}

bool tt_infer_val(tt_graph *g, const tt_op *op, const tt_value *x)
{
	if (x->dtype == TT_F32 || x->dtype == TT_BF16 || x->dtype == TT_F64)
		return true;
	tt_graph_fail(g, "%s: %s is %s, needs f32, bf16 or f64%s", op->name, x->name, tt_dtype_name(x->dtype),
		      x->dtype == TT_ACC ? " (round it first)" : "");
	return false;
}

bool tt_infer_same(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)g, (void)op, (void)attr, (void)nin;
	for (int i = 0; i < nout; i++) {
		out[i].dtype = in[0]->dtype;
		out[i].gdtype = in[0]->gdtype;
		out[i].format = in[0]->format;
	}
	return true;
}

bool tt_infer_acc(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)g, (void)op, (void)attr, (void)nin, (void)in;
	for (int i = 0; i < nout; i++)
		out[i].dtype = TT_ACC;
	return true;
}

bool tt_infer_stat(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)op, (void)attr, (void)nin, (void)in;
	for (int i = 0; i < nout; i++)
		out[i].dtype = tt_stat_dtype(g);
	return true;
}

bool tt_typing_reject(const tt_typing *t, int i, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(t->why, t->why_cap, fmt, ap);
	va_end(ap);
	*t->culprit = i;
	return false;
}
