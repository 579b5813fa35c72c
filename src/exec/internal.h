/* What the files of exec/ share: storages, programs, and the object itself. */
#ifndef TT_EXEC_INTERNAL_H
#define TT_EXEC_INTERNAL_H

#include "comm/comm.h"
#include "exec/exec.h"
#include "kernels/attrs.h"

/* Names to small ids, open addressing. */
typedef struct names {
	struct { const char *name; int32_t id; } *slot;
	int64_t n, cap;
} names;
int32_t names_find(const names *m, const char *name); /* -1: not there */
void names_add(names *m, tt_arena *a, const char *name, int32_t id);

typedef enum store_kind { STORE_STATE, STORE_INPUT, STORE_TEMP } store_kind;

/* A storage: bytes in which one or more values lie. While a graph is compiled, storages of temporaries are merged (a join's inputs
 * into its output, an in-place input into its output, versions of a state into the state): then `parent` is the one it lies
 * in, from element `at` on. Only roots get an offset. */
typedef struct store {
	const char *name;    /* of the value it was made for; borrowed from the graph */
	store_kind kind;
	int32_t parent;      /* -1: a root */
	int64_t at;          /* elements */
	int region;
	bool per_frame;      /* one copy per frame, all copies of a region `frame_stride` apart */
	bool pinned;         /* kept to the program's end: an output, or read by another program */
	bool dead;           /* of a segment that another graph has already brought: nobody's bytes */
	tt_segment seg;      /* STORE_TEMP: the program that makes it */
	int64_t first, last; /* STORE_TEMP: nodes that make and last use it; last < first: never used */
	int64_t use;         /* STORE_TEMP: the last node that names it: `last`, unless an exchange is under way longer, */
	uint32_t lanes;      /* of lanes with a bit here */
	int64_t count;       /* elements, padding of a packed format included */
	int esize, planes;   /* bytes of an element in one plane; 1, or 3 for `acc` in `exact` */
	int64_t plane;       /* bytes from plane to plane */
	int64_t bytes;       /* of all planes */
	int64_t offset;      /* in the region */
	int64_t order;       /* plan.c: as how manieth it was placed */
	bool found;          /* plan.c: among what a search has found so far */
} store;

/* An extent or a pointer that depends on the cell. */
typedef struct extent { int64_t *n; const tt_dim *dim; } extent;
typedef struct frame_ptr { void **p; int region; int64_t offset; } frame_ptr;

typedef struct instr {
	const tt_node *node;
	tt_kernel_fn *run;
	const char *kernel;   /* for print */
	bool fast;            /* of the override table */
	tt_call call;
	size_t scratch;       /* bytes */
	bool zeroes;          /* stores zeros, and is the first of its program to write there */
	tt_arg *args;         /* inputs, then outputs */
	int64_t calls;
	double seconds;       /* of an exchange under way: that were waited for it */
	int axes;             /* not 0: it exchanges over these, and may be under way while others run */
	tt_comm_lane lane;    /* of an exchange */
	int64_t wait[TT_COMM_LANES]; /* instruction of each lane's last exchange that must have ended before this one; -1 */
	uint32_t ticket, upto; /* lane.c; the highest of it and of all exchanges of its lane before it in its program */
	bool may_start, started; /* in the program before (find_starts), behind its instruction `after` */
	bool ahead;           /* its last run was started so */
	int64_t after;
	tt_hides hides;
	int64_t talked, took; /* calls and bytes of its last run on the lane */
	double posted, began, ended, exposed;
} instr;

/* One node as the compiler left it. */
typedef struct line { const tt_node *node; int64_t instr; } line; /* instr -1: a view, or a join whose inputs lie in place */

typedef struct program {
	const tt_graph *g;    /* NULL: no such program */
	int32_t *store;       /* [g->nvalues] storage a value lies in, -1 none; shared by the graph's programs */
	int64_t *at;          /* [g->nvalues] element of the storage where it starts */
	line *lines;
	int64_t nlines, cap_lines;
	instr *instrs;
	int64_t ninstrs, cap_instrs;
	_Atomic int *flags;   /* [ninstrs] */
	extent *extents;
	int64_t nextents, cap_extents;
	frame_ptr *frame_ptrs;
	int64_t nframe_ptrs, cap_frame_ptrs;
	tt_v *reads;          /* for a probe: inputs and states that the program reads, in order of reading */
	tt_arg *read_args;    /* [nreads] */
	int64_t nreads;

	int64_t t_max;        /* -1: no token dim */
	int64_t seqs_max;     /* -1: no sequence dim */
	int64_t work, scratch; /* bytes */
	int64_t lane_scratch[TT_COMM_LANES]; /* of exchanges that may be under way */
	struct start { int64_t after; instr *in; } *starts; /* B: exchanges of REDUCE, PREP: of F, that may start behind its instruction `after`, ascending */
	int64_t nstarts, cap_starts;
	int64_t seen_T;       /* largest T run so far in the highest frame, -1 none: `used` needs no update below it */
	int seen_frame;
	double flops;         /* of a run with counted_T tokens in counted_seqs sequences; counted_T -1: not counted yet */
	int64_t counted_T, counted_seqs;
} program;

struct tt_exec {
	tt_exec_options o;
	tt_arena *arena;
	tt_pool *pool;
	tt_env env;
	store *stores;
	int64_t nstores, cap_stores;
	tt_slot *states, *inputs, *outputs; /* offsets are set by plan */
	int64_t nstates, cap_states, ninputs, cap_inputs, noutputs, cap_outputs;
	names state_names, input_names;
	program prog[TT_NSEGS];
	tt_region region[TT_EXEC_NREGIONS];
	int64_t planned[TT_EXEC_NREGIONS], used[TT_EXEC_NREGIONS];
	int64_t frame_at[TT_EXEC_NREGIONS], frame_stride[TT_EXEC_NREGIONS]; /* where copy 0 starts; copy to copy */
	bool is_planned, is_reserved;
	int64_t lane_scratch_at[TT_COMM_LANES]; /* in region scratch, behind that of other instructions */
	struct lane *lane[TT_COMM_LANES]; /* NULL: no exchange of it is ever under way */
	struct { tt_status (*fn)(void *ctx); void *ctx; tt_status said; uint32_t ticket; instr in; } beside; /* fn NULL: none */
	tt_lane_mode lane_now; /* of the run at hand */
	tt_exchange_seconds exchange_s[1 << TT_MAX_AXES]; /* by mask of axes */
	bool fresh;           /* nothing was written yet: every state is zeros that the system has not even made */
	double jit;
	double flops;         /* of all runs so far */
};

enum { ALIGN = 64 };

/* compile.c */
int32_t store_root(const tt_exec *e, int32_t s, int64_t *at); /* *at is moved to the root's elements; may be NULL */

/* merge.c: decides which values share a storage. `skip[seg]`: compiled before from another graph. */
typedef struct merger {
	tt_exec *e;
	const tt_graph *g;
	int32_t *store;   /* [nvalues] */
	int64_t *at;      /* [nvalues] */
	tt_v *whole;      /* [nvalues] the value itself, or what it is a view of */
	bool *elided;     /* [nnodes] no kernel runs */
	bool skip[TT_NSEGS];
	int64_t *done;    /* [nnodes] of an exchange that may be under way: the node that waits for it, nnodes: the program's end; else -1 */
} merger;
tt_status merge_storages(merger *m) TT_CHECKED;

/* count.c: to be called once the program has its extents */
void count_run(tt_exec *e, tt_segment seg, const tt_cell *c);
const tt_attr_exchange *exchange_of(const tt_node *n); /* if it talks with other ranks: what all exchanges' attributes begin with; else NULL */

/* trace.c: runs an instruction, and writes it into the trace that is on. On the compute lane its time goes to the profile; on a communication lane,
 * or for it, into `began` and `ended`. */
void run_timed(const tt_exec *e, tt_segment seg, const program *p, instr *in);
void run_on_lane(const tt_exec *e, instr *in);

/* exec.c */
void find_starts(tt_exec *e);
tt_status check_cell(const tt_exec *e, const program *p, tt_segment seg, const tt_cell *c) TT_CHECKED;
void set_extents(program *p, const tt_cell *c);
/* lane.c */
typedef struct lane lane;
tt_status lanes_open(tt_exec *e) TT_CHECKED; /* of all lanes that a program has exchanges of */
void lanes_close(tt_exec *e);
/* at_once: the next instruction waits for it. */
void lane_post(tt_exec *e, instr *in, bool at_once);
void lane_wait(tt_exec *e, tt_comm_lane which, uint32_t ticket);
tt_status lanes_status(tt_exec *e) TT_CHECKED; /* the first error of an exchange so far */
void lanes_drain(tt_exec *e); /* waits for all */

/* tensor.c */
tt_status regions_reach(tt_exec *e, bool reachable) TT_CHECKED;
/* Hash of an operand as it lies now; `count` elements of a packed format are taken as they lie. */
uint64_t operand_hash(const tt_exec *e, const tt_arg *a, int64_t count);

#endif
