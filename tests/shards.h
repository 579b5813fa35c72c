/* What the layout tests stand on: the parts that ranks hold of a value under a type, one node run on such parts by the reference kernel, and
 * whether parts denote a value. No ranks run; the mesh has one axis.
 *
 *   R, I   the value itself        S(d)   pieces that concatenate along d
 *   P      terms of a sum          M      candidates of a maximum
 */
#ifndef TT_TESTS_SHARDS_H
#define TT_TESTS_SHARDS_H

#include "kernels/kernels.h"
#include "test.h"

enum { MAX_IN = 10, MAX_OUT = 4, MAX_RANKS = 4, SHARD_SEQ_TOKENS = 12, SHARD_VOCAB = 12 };

typedef struct shard_tensor {
	int ndim;
	int64_t n[TT_MAX_DIMS], count;
	double *x;     /* plain, line by line; ids too */
	int64_t *limb; /* [3][count] for acc in `exact`; then x is NULL */
} shard_tensor;

typedef struct shard_bench {
	tt_test *t;
	tt_arena *a;
	const tt_op *op; /* whose rule is tested; a broken copy in the tests of the test */
	bool quiet;      /* failures are only counted */
	int failures;
	char text[512];  /* of the first failure */
	bool exact;
	bool only_exact; /* the op has no samples in double */
	int k;           /* ranks */
	bool rows;
	bool fine;       /* dims have units, of two elements at least, and pieces may be fine */
	bool quarters;   /* both axes deal rows: sequences end where shards of 2 by 2 do */
	uint64_t seed, salt; /* of open sums' terms */
	/* the node under test, whole */
	const tt_graph *g;
	const tt_node *node;
	shard_tensor in[MAX_IN], out[MAX_OUT], dout[MAX_OUT], din[MAX_IN];
	int64_t accepted, fines, rejected, reviewed, back_refused, checked_back;
} shard_bench;

/* A failure of the bench: counted, the first kept, shown unless `quiet`. `tin` NULL: not of one typing. */
void shard_report(shard_bench *b, const tt_axis_type *tin, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

bool shard_is_float(tt_dtype dt);
bool shard_able(const tt_dim *d);
shard_tensor shard_tensor_like(const shard_bench *b, const tt_value *v);
void shard_fill_random(shard_bench *b, shard_tensor *t);
void shard_fill_input(shard_bench *b, const tt_value *v, shard_tensor *t); /* by the value's `fill` */
/* Runs node `n` of `g`; val[] by value id. */
void shard_run_node(shard_bench *b, const tt_graph *g, const tt_node *n, shard_tensor *val);
/* Do the parts [b->k] denote `whole`, a value `v`, under type x? In double to 1e-12, in `exact` bit for bit. */
bool shard_denotes(shard_bench *b, const tt_value *v, const shard_tensor *whole, const shard_tensor *part, tt_axis_type x);

/* One rank's node, on local dims. */
typedef struct shard_part {
	tt_graph *g;
	tt_v in[MAX_IN], out, din[MAX_IN];
	shard_tensor *val; /* by value id */
} shard_part;
enum { SHARD_VALUES = 64 };

/* What rank r of b->k holds of `whole` (a value `v`) under type x. The terms of a sum are random, the last is what remains. */
shard_tensor shard_part_of(shard_bench *b, const tt_value *v, shard_tensor *whole, tt_axis_type x, int r);
/* Tokens [lo, hi) are dealt in whole rows: what a loader gives that rank of the tables, which count from its first. */
void shard_rebase(const shard_bench *b, int64_t lo, int64_t hi, const tt_value *v, shard_tensor *t);
/* Every line that attention (or its backward) would read is there: where a typing leaves a rank without them there is nothing to run. */
bool shard_lines_there(const shard_part *p, const tt_node *n);
shard_tensor shard_tensor_new(const shard_bench *b, tt_dtype dt, int ndim, const int64_t *n);
/* Limbs into the form that is a function of the value. */
void shard_carry(int64_t *limb, int64_t count, int64_t i);

/* The bench's node on rank r (-1: whole), inputs typed `tin`: false if the parts cannot be put together into a node. */
bool shard_part_forward(shard_bench *b, int r, const tt_axis_type *tin, shard_part *p);
/* Then its vjp, given cotangents of the duals of `tout`. */
bool shard_part_backward(shard_bench *b, int r, const tt_axis_type *tout, shard_part *p);

/* Sample number `which` of `base` as the bench's node: values of the whole, cotangents, the gradient. False: no such sample. */
bool shard_prepare(shard_bench *b, const tt_op *base, int which);
bool shard_prepare_graph(shard_bench *b, tt_graph *g, const tt_op *base); /* of a graph whose last node of that op it is */
bool shard_float_input(const shard_bench *b, int i);
bool shard_is_meta(const shard_bench *b, int i);
bool shard_has_gradient(const shard_bench *b);
bool shard_accepts(const shard_bench *b, const tt_axis_type *tin); /* on one axis of b->k ranks */
enum { MAX_OPTIONS = 7 };
int shard_options_of(const shard_bench *b, int i, tt_axis_type *opt); /* types that input i could have */

#endif
