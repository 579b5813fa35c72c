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

enum { MAX_IN = 10, MAX_OUT = 4, MAX_RANKS = 3, SHARD_SEQ_TOKENS = 12, SHARD_VOCAB = 12 };

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
	uint64_t seed;
	/* the node under test, whole */
	const tt_graph *g;
	const tt_node *node;
	shard_tensor in[MAX_IN], out[MAX_OUT], dout[MAX_OUT], din[MAX_IN];
	int64_t accepted, rejected, reviewed, back_refused, checked_back;
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

/* The bench's node on rank r (-1: whole), inputs typed `tin`: false if the parts cannot be put together into a node. */
bool shard_part_forward(shard_bench *b, int r, const tt_axis_type *tin, shard_part *p);
/* Then its vjp, given cotangents of the duals of `tout`. */
bool shard_part_backward(shard_bench *b, int r, const tt_axis_type *tout, shard_part *p);

#endif
