/* state.c: what changes between steps: gradient accumulators, the norm, optimizers, initial values. */
#include "ops/internal.h"

/* ---- accumulate ----------------------------------------------------------------------------------------------------------------------- */

static bool accumulate_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)nin, (void)attr, (void)nout, (void)op;
	if (in[0]->dtype != TT_ACC || in[1]->dtype != TT_ACC || tt_value_count(in[0]) != tt_value_count(in[1])) {
		tt_graph_fail(g, "accumulate: %s and %s must be acc of one shape", in[0]->name, in[1]->name);
		return false;
	}
	out[0].dtype = TT_ACC;
	return true;
}

static bool accumulate_spmd(const tt_typing *t)
{
	if (!tt_axis_type_eq(t->tin[0], t->tin[1]))
		return tt_typing_reject(t, 1, "needs the type of %s", t->in[0]->name);
	if (t->tin[0].type == TT_M)
		return tt_typing_reject(t, 0, "a maximum not yet taken: convert it to R or I");
	t->tout[0] = t->tin[0];
	return true;
}

tt_v tt_accumulate(tt_graph *g, tt_v state, tt_v term, bool first)
{
	if (!state || !term)
		return 0;
	tt_attr_accumulate a = { first };
	tt_v in[] = { state, term };
	/* Every version of a state is called NAME+, the later ones NAME+#2 and so on. */
	const char *name = tt_value_get(g, state)->name, *plus = strchr(name, '+');
	int n = plus ? (int)(plus - name) : (int)strlen(name);
	return tt_node_add(g, &tt_op_accumulate, &a, 2, in, tt_arena_printf(g->arena, "=%.*s+", n, name));
}

static bool accumulate_sample(tt_graph *g, int which)
{
	if (which > 1)
		return false;
	tt_accumulate(g, tt_sample_xy(g, "state", TT_ACC, dim(TT_FFN, 6, 1), dim(TT_D, 6, 1)), tt_sample_xy(g, "term", TT_ACC, dim(TT_FFN, 6, 1), dim(TT_D, 6, 1)),
		      which);
	return true;
}

const tt_op tt_op_accumulate = {
	.name = "accumulate", .doc = "state + term; in the step's first cell the first term of a chain is stored, so nothing need be zeroed",
	.cls = TT_CLASS_STATE, .flags = TT_OP_ACC_LINEAR | TT_OP_INPLACE, .nin = 2, .nout = 1, .labels = "*,*->*", .outs = (const char *const[]){ "acc" },
	.attr_size = sizeof(tt_attr_accumulate),
	.attrs = (const tt_attr[]){ { "first", TT_ATTR_BOOL, offsetof(tt_attr_accumulate, first) }, TT_ATTRS_END },
	.infer = accumulate_infer, .spmd = accumulate_spmd, .sample = accumulate_sample,
};

/* ---- norm ---------------------------------------------------------------------------------------------------------------------------------- */

tt_v tt_square_sum(tt_graph *g, tt_v x, const char *role)
{
	return tt_node_add(g, &tt_op_square_sum, NULL, 1, &x, role);
}

static bool square_sum_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_square_sum(g, tt_sample_xy(g, "g", tt_stat_dtype(g), dim(TT_FFN, 6, 1), dim(TT_D, 6, 1)), NULL);
	return true;
}

const tt_op tt_op_square_sum = {
	.name = "square_sum", .doc = "sum of squares of all elements",
	.cls = TT_CLASS_STATE, .flags = TT_OP_ACC_SUM, .nin = 1, .nout = 1, .labels = "*->1", .outs = (const char *const[]){ "square_sum" },
	.infer = tt_infer_acc, .sample = square_sum_sample,
};

tt_v tt_norm_clip(tt_graph *g, tt_v sumsq, double max_norm)
{
	tt_attr_clip a = { max_norm };
	return tt_node_add(g, &tt_op_norm_clip, &a, 1, &sumsq, "=grad_norm+");
}

static bool norm_clip_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_v x = tt_sample_x(g, "sumsq", tt_stat_dtype(g), dim(TT_ONE, 1, 1));
	tt_value_set_fill(g, x, TT_FILL_POSITIVE);
	tt_norm_clip(g, x, 1.0);
	return true;
}

const tt_op tt_op_norm_clip = {
	.name = "norm_clip", .doc = "norm = sqrt(sumsq), coef = min(1, max_norm/(norm + 1e-6)); coef 0 where the norm is not finite",
	.cls = TT_CLASS_STATE, .nin = 1, .nout = 2, .labels = "1->1,1", .outs = (const char *const[]){ "grad_norm", "coef" },
	.attr_size = sizeof(tt_attr_clip), .attrs = (const tt_attr[]){ { "max_norm", TT_ATTR_REAL, offsetof(tt_attr_clip, max_norm) }, TT_ATTRS_END },
	.infer = tt_infer_stat, .sample = norm_clip_sample,
};

/* ---- optimizers: in = states.., gradient, coef [1], hyper [4]; out = new versions of the states ----------------------------------------------- */

static bool optim_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)attr, (void)nin, (void)g, (void)op;
	for (int i = 0; i < nout; i++)
		out[i].dtype = in[i]->dtype;
	return true;
}

static tt_v sample_mat(tt_graph *g, const char *name)
{
	return tt_sample_xy(g, name, tt_stat_dtype(g), dim(TT_FFN, 6, 1), dim(TT_D, 6, 1));
}

static tt_v sample_hyper(tt_graph *g)
{
	tt_v v = tt_sample_x(g, "hyper", tt_stat_dtype(g), dim(TT_ONE, 4, 1));
	tt_value_set_fill(g, v, TT_FILL_ONE_STEP);
	return v;
}

tt_v tt_adamw(tt_graph *g, tt_v p, tt_v m, tt_v v, tt_v grad, tt_v coef, tt_v hyper, const tt_attr_adamw *a)
{
	tt_v in[] = { p, m, v, grad, coef, hyper };
	return tt_node_add(g, &tt_op_adamw, a, 6, in, NULL);
}

static bool adamw_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_attr_adamw a = { 0.9, 0.95, 1e-8, 0.1, 1 };
	tt_v v = sample_mat(g, "v");
	tt_value_set_fill(g, v, TT_FILL_POSITIVE);
	tt_v coef = tt_sample_x(g, "coef", tt_stat_dtype(g), dim(TT_ONE, 1, 1));
	tt_adamw(g, sample_mat(g, "p"), sample_mat(g, "m"), v, sample_mat(g, "g"), coef, sample_hyper(g), &a);
	return true;
}

const tt_attr tt_adamw_attrs[] = { { "beta1", TT_ATTR_REAL, offsetof(tt_attr_adamw, beta1) }, { "beta2", TT_ATTR_REAL, offsetof(tt_attr_adamw, beta2) },
				   { "eps", TT_ATTR_REAL, offsetof(tt_attr_adamw, eps) },
				   { "weight_decay", TT_ATTR_REAL, offsetof(tt_attr_adamw, weight_decay) },
				   { "lr_scale", TT_ATTR_REAL, offsetof(tt_attr_adamw, lr_scale) }, TT_ATTRS_END };

const tt_op tt_op_adamw = {
	.name = "adamw", .doc = "Adam with decoupled weight decay (Loshchilov and Hutter 2019); hyper = lr, 1-beta1^t, 1-beta2^t, skip",
	.cls = TT_CLASS_STATE, .flags = TT_OP_INPLACE, .nin = 6, .nout = 3, .labels = "*,*,*,*,1,_->*,*,*",
	.outs = (const char *const[]){ "p", "m", "v" }, .attr_size = sizeof(tt_attr_adamw),
	.attrs = tt_adamw_attrs,
	.infer = optim_infer, .sample = adamw_sample,
};

tt_v tt_sgd(tt_graph *g, tt_v p, tt_v mom, tt_v grad, tt_v coef, tt_v hyper, const tt_attr_sgd *a)
{
	tt_v in[] = { p, mom, grad, coef, hyper };
	return tt_node_add(g, &tt_op_sgd, a, 5, in, NULL);
}

static bool sgd_sample(tt_graph *g, int which)
{
	if (which > 1)
		return false;
	tt_attr_sgd a = { .momentum = which ? 0.9 : 0, .weight_decay = 0.1, .lr_scale = 1, .nesterov = which };
	tt_v coef = tt_sample_x(g, "coef", tt_stat_dtype(g), dim(TT_ONE, 1, 1));
	tt_sgd(g, sample_mat(g, "p"), sample_mat(g, "mom"), sample_mat(g, "g"), coef, sample_hyper(g), &a);
	return true;
}

const tt_attr tt_sgd_attrs[] = { { "momentum", TT_ATTR_REAL, offsetof(tt_attr_sgd, momentum) },
				 { "weight_decay", TT_ATTR_REAL, offsetof(tt_attr_sgd, weight_decay) },
				 { "lr_scale", TT_ATTR_REAL, offsetof(tt_attr_sgd, lr_scale) },
				 { "nesterov", TT_ATTR_BOOL, offsetof(tt_attr_sgd, nesterov) }, TT_ATTRS_END };

const tt_op tt_op_sgd = {
	.name = "sgd", .doc = "stochastic gradient descent with momentum; weight decay is added to the gradient",
	.cls = TT_CLASS_STATE, .flags = TT_OP_INPLACE, .nin = 5, .nout = 2, .labels = "*,*,*,1,_->*,*", .outs = (const char *const[]){ "p", "mom" },
	.attr_size = sizeof(tt_attr_sgd),
	.attrs = tt_sgd_attrs,
	.infer = optim_infer, .sample = sgd_sample,
};

/* ---- initial values: the input gives dims and layout, its content is not read --------------------------------------------------------------------- */

static const tt_attr init_attrs[] = { { "mean", TT_ATTR_REAL, offsetof(tt_attr_init, mean) }, { "std", TT_ATTR_REAL, offsetof(tt_attr_init, std) },
				      { "cut", TT_ATTR_REAL, offsetof(tt_attr_init, cut) }, { "name", TT_ATTR_STR, offsetof(tt_attr_init, name) },
				      { "line", TT_ATTR_INT, offsetof(tt_attr_init, line) }, { "column", TT_ATTR_INT, offsetof(tt_attr_init, column) },
				      { "width", TT_ATTR_INT, offsetof(tt_attr_init, width) }, TT_ATTRS_END };

tt_v tt_fill_normal(tt_graph *g, tt_v state, const tt_attr_init *a)
{
	return tt_node_add(g, &tt_op_fill_normal, a, 1, &state, "init");
}

tt_v tt_fill_const(tt_graph *g, tt_v state, double value)
{
	tt_attr_init a = { .mean = value };
	return tt_node_add(g, &tt_op_fill_const, &a, 1, &state, "init");
}

static bool fill_sample(tt_graph *g, int which)
{
	if (which > 1)
		return false;
	tt_attr_init a = { .std = 0.02, .cut = which ? 3 : 0, .name = "w" };
	tt_fill_normal(g, sample_mat(g, "w"), &a);
	return true;
}

static bool fill_const_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_fill_const(g, sample_mat(g, "w"), 1);
	return true;
}

/* The numbers follow an element's place in the whole tensor. */
static void fill_normal_local(void *attr, tt_arena *a, const tt_piece *const *in, const tt_piece *const *out)
{
	(void)a, (void)in;
	tt_attr_init *x = attr;
	const tt_piece *p = out[0];
	bool lines = p[1].whole > 0; /* of two dims; of one, the dim is the line */
	x->line = lines ? p[0].start : 0;
	x->column = lines ? p[1].start : p[0].start;
	x->width = lines ? p[1].whole : p[0].whole;
}

const tt_op tt_op_fill_normal = {
	.name = "fill_normal", .doc = "normal numbers keyed by seed, name and global index, cut at `cut` standard deviations (0: not)",
	.cls = TT_CLASS_STATE, .flags = TT_OP_INPLACE, .nin = 1, .nout = 1, .labels = "*->*", .outs = (const char *const[]){ "init" },
	.attr_size = sizeof(tt_attr_init), .attrs = init_attrs, .infer = optim_infer, .localise = fill_normal_local, .sample = fill_sample,
};

const tt_op tt_op_fill_const = {
	.name = "fill_const", .doc = "one number everywhere",
	.cls = TT_CLASS_STATE, .flags = TT_OP_INPLACE, .nin = 1, .nout = 1, .labels = "*->*", .outs = (const char *const[]){ "init" },
	.attr_size = sizeof(tt_attr_init), .attrs = init_attrs, .infer = optim_infer, .sample = fill_const_sample,
};
