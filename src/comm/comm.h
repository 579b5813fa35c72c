/* comm: ranks talk to each other.
 *
 * There is one primitive, the exchange: every member of a group gives each member a block of memory and gets one from each. An
 * all-gather gives all the same block, a reduce-scatter gives each its slice of the terms, a shift gives to one neighbour only.
 * Blocks are seen where they lie if the backend can (ranks as threads of one process), else where they arrived; `use` copies or
 * sums them. So there is one implementation of every reduction, above the backends, and the same bits on each.
 *
 * An exchange is blocking. Overlap is the executor's: it runs exchanges on a rank's communication lanes.
 *
 * A rank that is late past the timeout, or comes with another exchange, is named on all ranks; an error on one rank ends the wait of
 * all others with that rank's text. After that every call fails: a world is not mended, it is left.
 */
#ifndef TT_COMM_H
#define TT_COMM_H

#include <signal.h>

#include "base/base.h"

typedef struct tt_comm tt_comm;   /* one rank's end of the world; belongs to one thread at a time, but that each group may have a thread of its own for its exchanges */
typedef struct tt_comm_group tt_comm_group; /* an ordered list of ranks, this one among them */

typedef struct tt_comm_options {
	double init_timeout_s;  /* for exchanges until tt_comm_set_timeout; 0: wait for ever   */
	int spin_us;            /* how long a rank spins before it sleeps; processes that share too few cores do not */
	int64_t delay_us;       /* for tests: an exchange completes so long after the last rank arrived, asleep */
	int64_t message_bytes;  /* for tests: blocks are cut into messages of so many at most; 0: as many as an MPI takes */
	const volatile sig_atomic_t *asked; /* a signal that the run is to end; a rank that waits long then says for whom. NULL: none */
	void (*hear)(int number, int rank); /* of an MPI job's rank 0, by a thread beside it: another rank was asked so, and rank 0 was not. NULL: none */
} tt_comm_options;

/* ---- a world ---------------------------------------------------------------------------------------------------------------- */

/* One rank's work. Its error, if it returns one, becomes the error of all ranks. */
typedef tt_status tt_rank_fn(tt_comm *c, void *ctx);

/* Ranks as threads of this process: runs `fn` on n threads (rank 0 on the caller's) and returns when all have returned: the status of
 * the rank that failed first, with its text behind "rank N: ". */
tt_status tt_comm_threads(int n, const tt_comm_options *o, tt_rank_fn *fn, void *ctx) TT_CHECKED;

/* Ranks as processes of an MPI job: was this one started by a launcher (mpiexec, srun)? By its environment alone. size 1: no, or it is alone; an error
 * where there are many tasks that have no MPI. */
typedef struct tt_comm_launch {
	int rank, size;
	const char *by, *mpi; /* "mpiexec of Open MPI"; the plug-in, "openmpi" */
	bool any;             /* that one first, and another if it is not there */
} tt_comm_launch;
tt_status tt_comm_launched(tt_comm_launch *out) TT_CHECKED;
/* First of all in main: under a launcher that kills all ranks when it reaps one that was killed, the rank is a child from here on. */
void tt_comm_keep(void);
/* Runs `fn` as this process's rank, through the plug-in of the launcher's MPI beside the program; the same status and text on all ranks; TT_ERR_STOP
 * ends the job in order, with the text where `fn` returned it. Once in a process, and after it tt_comm_leave. */
tt_status tt_comm_mpi(const tt_comm_options *o, tt_rank_fn *fn, void *ctx) TT_CHECKED;
/* After an error: is what this rank gave perhaps still read by others? Then it stays in memory until the process ends. */
bool tt_comm_given_up(const tt_comm *c);
/* Before exit(code), after all was said: after an error it ends the job's other processes, those too that do not answer. Without MPI it does nothing. */
void tt_comm_leave(int code);
/* One end of a world without others, for plans: exchanges return at once, give nothing (`use` is not called) and are counted. */
tt_comm *tt_comm_fake_create(int rank, int size);
void tt_comm_fake_destroy(tt_comm *c); /* accepts NULL */
/* The ranks 0 .. n-1 of it, this one among them, as a world. Lives as long as `c`. */
tt_status tt_comm_sub(tt_comm *c, int n, tt_comm **out) TT_CHECKED;

int tt_comm_rank(const tt_comm *c);
int tt_comm_size(const tt_comm *c);
const char *tt_comm_backend_name(const tt_comm *c); /* "threads", "mpi", "fake" */
bool tt_comm_sees_memory(const tt_comm *c); /* of other ranks: exchanges need no scratch */
int tt_comm_neighbours(const tt_comm *c);   /* ranks that share this rank's cores, itself included */
uint64_t tt_comm_machine(const tt_comm *c, int rank); /* the same number for ranks on one machine; 0: all are */
uint64_t tt_comm_program(const tt_comm *c, int rank); /* hash of its program file; 0: it is this one */
/* What MPI itself takes for an exchange of `n` floats of each rank's part. For benches; an error where there is no MPI. */
typedef enum tt_comm_raw_what { TT_RAW_ALL_GATHER, TT_RAW_REDUCE_SCATTER, TT_RAW_ALL_TO_ALL } tt_comm_raw_what;
tt_status tt_comm_raw(tt_comm *c, tt_comm_raw_what what, const float *in, float *out, int n) TT_CHECKED;
void tt_comm_set_delay(tt_comm *c, int64_t us); /* tt_comm_options.delay_us of this rank's exchanges from now on; none of them is under way */
void tt_comm_set_timeout(tt_comm *c, double seconds); /* of this rank's waits from now on; 0: for ever */
/* Ends every wait of every rank with this thread's error text. For errors outside an exchange; the first one counts. */
void tt_comm_abort(tt_comm *c, tt_status code);

/* ---- groups ------------------------------------------------------------------------------------------------------------------- */

/* The group of `ranks`, n distinct ones in order, this rank among them, made before the first step. All members call it with the same
 * list and name ("dp_shard*cp"); two groups of one name and list are one. Lives as long as `c`. */
tt_status tt_comm_group_open(tt_comm *c, const char *name, int n, const int *ranks, tt_comm_group **out) TT_CHECKED;
/* A group whose exchanges another thread of the rank makes, one thread at a time, beside those of its own: they have an order of their own, so neither waits
 * for the other's. No timeout ends its waits, as who exchanges may write to a disk between two, only the end of a rank or of the world; the
 * small collectives below are not for it. */
tt_status tt_comm_group_open_beside(tt_comm *c, const char *name, int n, const int *ranks, tt_comm_group **out) TT_CHECKED;
/* The same of all ranks of `c`, in their order. */
tt_status tt_comm_group_all(tt_comm *c, const char *name, tt_comm_group **out) TT_CHECKED;
tt_status tt_comm_group_all_beside(tt_comm *c, const char *name, tt_comm_group **out) TT_CHECKED;
int tt_comm_group_size(const tt_comm_group *g);
int tt_comm_group_index(const tt_comm_group *g); /* this rank's place in the list */
int tt_comm_group_rank(const tt_comm_group *g, int i);
const char *tt_comm_group_name(const tt_comm_group *g);
bool tt_comm_group_sees_memory(const tt_comm_group *g);

/* ---- the exchange ----------------------------------------------------------------------------------------------------------------- */

/* Memory of one rank: planes of lines of bytes. No planes, lines or bytes: nothing. */
typedef struct tt_block {
	const uint8_t *p;
	int64_t planes, lines, bytes; /* bytes of one line           */
	int64_t plane, ld;            /* bytes from one to the next   */
} tt_block;

static inline int64_t tt_block_bytes(const tt_block *b) { return b->planes * b->lines * b->bytes; }
static inline tt_block tt_block_flat(const void *p, int64_t bytes) { return (tt_block){ p, 1, 1, bytes, bytes, bytes }; }

typedef struct tt_exchange {
	const char *kind;      /* "all-gather": what this exchange is for, a literal, the same on all ranks                 */
	const char *name;      /* of the value; borrowed until the call returns                                             */
	const tt_block *give;  /* [parts, size] to each member, itself included                                              */
	tt_block *take;        /* [parts, size] planes, lines, bytes: what is expected from each; p, plane, ld: where it is, written by the call */
	int parts;             /* blocks for each member, the same on all ranks; 0: one                                          */
	bool lands;            /* `take` says where blocks are to lie, and `use` only copies those there that are not: they may arrive there */
	void *scratch;         /* tt_exchange_scratch bytes                                                                     */
	void (*use)(void *ctx, const tt_block *take, int n); /* called once, when all of `take` is there; valid until it returns */
	void *ctx;
} tt_exchange;
static inline int tt_exchange_parts(const tt_exchange *x) { return x->parts > 1 ? x->parts : 1; }

/* Bytes that an exchange needs to hold what arrives; 0 where ranks see each other's memory. */
int64_t tt_exchange_scratch(const tt_comm_group *g, const tt_exchange *x);

/* Returns when this rank has used what it takes and all others what it gives. All members call it, in the same order on each group. */
tt_status tt_comm_exchange(tt_comm_group *g, tt_exchange *x) TT_CHECKED;

/* ---- a mesh's groups ------------------------------------------------------------------------------------------------------------------ */

/* Exchanges of different lanes have orders of their own, and each lane may have a thread of its own: one that is wanted at once does not wait for one that
 * is early. */
typedef enum tt_comm_lane {
	TT_COMM_WANTED, /* what computation needs next     */
	TT_COMM_PARAMS, /* parameters of layers ahead      */
	TT_COMM_GRADS,  /* gradients                       */
	TT_COMM_LANES,
} tt_comm_lane;

/* Groups of this rank by mesh axes, for kernels: they cannot return an error, so the first one stays here and later exchanges of its lane do nothing. */
enum { TT_MESH_AXES = 5 };
typedef struct tt_comm_axes {
	int naxes;
	int coord[TT_MESH_AXES];
	tt_comm_group *group[TT_COMM_LANES][1 << TT_MESH_AXES]; /* by mask of axes; NULL where that is this rank alone */
	tt_status status[TT_COMM_LANES];
} tt_comm_axes;
tt_status tt_comm_axes_open(tt_comm *c, int naxes, const int *size, const char *const *names, tt_comm_axes *out) TT_CHECKED;

/* The all-reduce of a value of no more bytes is one exchange, everybody sums everything; of more it is a scatter of the sum and a gather. */
enum { TT_EXCHANGE_WHOLE = 16384 };

/* ---- small things, by exchange --------------------------------------------------------------------------------------------------- */

tt_status tt_comm_barrier(tt_comm_group *g, const char *name) TT_CHECKED;
/* all: [size] blocks of `bytes`, in the group's order. */
tt_status tt_comm_all_gather(tt_comm_group *g, const char *name, const void *mine, int64_t bytes, void *all) TT_CHECKED;
/* The root's `bytes` on every rank. */
tt_status tt_comm_broadcast(tt_comm_group *g, const char *name, int root, void *p, int64_t bytes) TT_CHECKED;

/* ---- counters and the flight recorder ------------------------------------------------------------------------------------------------ */

typedef struct tt_comm_count {
	int64_t calls;
	int64_t bytes; /* that this rank takes from others */
	double wait_s; /* until the last member had arrived (and delay_us was over) */
	double use_s;
} tt_comm_count;
tt_comm_count tt_comm_group_count(const tt_comm_group *g);
/* Of all lanes, over the axes of mask `axes`. */
tt_comm_count tt_comm_axes_count(const tt_comm_axes *a, uint32_t axes);

/* The last exchanges of every rank that this process knows of, oldest first: one line each. For the text of errors and for files. */
void tt_comm_record_print(const tt_comm *c, tt_buf *b);

/* ---- mesh: which ranks share an axis --------------------------------------------------------------------------------------------------- */

/* Ranks are numbered with the last axis fastest. `axes` has bit i for axis i: the ranks that differ from `rank` in these axes only,
 * ascending. Returns how many. */
int tt_mesh_ranks(int naxes, const int *size, uint32_t axes, int rank, int *ranks);
int tt_mesh_coord(int naxes, const int *size, int axis, int rank);

#endif
