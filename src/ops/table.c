/* table.c: the op table, from ops.def. */
#include "ops/ops.h"

#define TT_OP(name, family) &tt_op_##name,
const tt_op *const tt_ops[] = {
#include "ops/ops.def"
	NULL
};
#undef TT_OP

const tt_op *tt_op_find(const char *name)
{
	for (int i = 0; tt_ops[i]; i++)
		if (!strcmp(tt_ops[i]->name, name))
			return tt_ops[i];
	return NULL;
}

const char *tt_op_family(const char *name)
{
#define TT_OP(op, family)                                                                                              \
	if (!strcmp(name, #op))                                                                                        \
		return #family;
#include "ops/ops.def"
#undef TT_OP
	return "";
}

tt_dtype tt_stat_dtype(const tt_graph *g)
{
	return g->f64 ? TT_F64 : TT_F32;
}

const tt_autodiff_ops tt_autodiff_builders = { tt_add, tt_round, tt_accumulate };
