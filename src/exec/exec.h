/* exec: graphs become programs, programs run.
 *
 * The way:  create -> add_graph (once per graph) -> plan -> [print] -> reserve -> write, run, read ... -> destroy.
 * `add_graph` compiles one program per segment that has nodes; `plan` gives every value a region and an offset; `reserve` compares
 * the plan with the memory there is and opens the regions. Nothing is touched before the first write or run.
 *
 * Where a value lies:
 *   param, grad, optim   states, matched by name over all graphs of the session; `grad` also holds what REDUCE leaves for OPT
 *   io                   inputs, and outputs of a graph
 *   frame                what F leaves for B, one copy per frame
 *   work                 temporaries of one program, sharing bytes where their lifetimes are disjoint; programs share the region
 *   scratch              what one instruction asked for beside its operands
 * A view lies in its input, the inputs of a join in its output where that is possible, the new version of a state in the
 * state. Only exec/tensor.c, "the allocator", and kernels touch tensor bytes.
 *
 * A tt_exec belongs to one thread (a rank); its kernels may use the workers of its pool. Exchanges may run on threads of its own, but none is under way
 * while no program runs, except between B of a step's last cell and REDUCE: there the rank must not exchange anything itself.
 */
#ifndef TT_EXEC_H
#define TT_EXEC_H

#include "kernels/kernels.h"

typedef struct tt_exec tt_exec;

enum { TT_REGION_SCRATCH = TT_NREGIONS, TT_EXEC_NREGIONS };
const char *tt_exec_region_name(int region); /* tt_region_kind_name, or "scratch" */

struct tt_cell;
/* What a program run read or wrote. `count` elements in this cell; of a packed format: as stored. */
typedef struct tt_probe_value {
	tt_v value;         /* in the graph that `begin` was given */
	int64_t instr;      /* that wrote it; -1: an input or a state that the program reads, as it found it */
	const char *op, *kernel; /* of that instruction; NULL */
	int64_t count;
	uint64_t hash;      /* as tt_tensor_hash has it; of a packed format by place in memory. 0, count 0: a state of region grad at a step's
			       first cell, which holds the last step's and is stored over */
	const tt_arg *arg;  /* for tt_probe_read, during the call */
} tt_probe_value;

/* Elements as stored, one line of dim 0 behind the other, plane behind plane: n[0] * width of them in each of `planes`, `size` bytes one. Plain format
 * only. `dst` NULL: only says how much. */
typedef struct tt_probe_bytes { int64_t lines, width, planes, size; } tt_probe_bytes;
tt_probe_bytes tt_probe_read(const tt_exec *e, const tt_arg *a, void *dst);

/* Told about program runs: first every input and state that the program reads, in order of reading, then each instruction's outputs right
 * after it ran. The order is the same in every run of a program. Views, and joins whose inputs lie in place, write nothing. */
typedef struct tt_probe {
	void *ctx;
	bool (*begin)(void *ctx, tt_segment seg, const tt_graph *g, const struct tt_cell *cell); /* false: nothing of this run. NULL: no probe */
	void (*value)(void *ctx, const tt_probe_value *v);
	void (*end)(void *ctx);
	bool no_hash; /* values without their hashes */
} tt_probe;

/* ---- traces: when instructions ran (trace.c) ------------------------------------------------------------------------ */

enum { TT_TRACE_COMPUTE, TT_TRACE_COMM }; /* lanes; that of comm's lane k is TT_TRACE_COMM + k */
typedef struct tt_trace_event {
	const char *name;    /* of a span that is no instruction, a literal or as long-lived as the trace */
	int32_t instr;       /* of the program of `seg`; -1: a span */
	int16_t seg, lane;
	double begin, end;   /* tt_now */
	double wait;         /* of it, s that an exchange waited for others */
} tt_trace_event;
/* A ring that is written while `on`; what does not fit is dropped and counted. */
typedef struct tt_trace {
	bool on;
	tt_trace_event *events;
	int64_t cap;
	_Atomic int64_t n; /* written or dropped since the last time it was set to 0 */
} tt_trace;
void tt_trace_room(tt_trace *t, tt_arena *a, int64_t cap); /* for so many events; before the first step */
void tt_trace_span(tt_trace *t, const char *name, double begin, double end); /* nothing if t is NULL or off */
/* When exchanges with other ranks run. From its instruction on an exchange is under way until the first instruction that touches what it makes, or would
 * change what it reads; its operands are kept as long. */
typedef enum tt_lane_mode {
	TT_LANE_OFF,    /* where they stand, and nothing is under way                                                           */
	TT_LANE_THREAD, /* on a communication lane: a thread of this tt_exec for each tt_comm_lane                              */
	TT_LANE_EARLY,  /* for tests: planned as for the lane, but as early as they can, and                                   */
	TT_LANE_LATE,   /* as late as they can: between the two lie all orders that a thread can bring about                   */
} tt_lane_mode;

/* Seconds of exchanges over a set of mesh axes: in which the compute lane waited, and in which it did something else. */
typedef struct tt_exchange_seconds {
	double exposed, hidden;
	int64_t hideable_calls, hideable_bytes; /* of exchanges that could be hidden (tt_hides) */
} tt_exchange_seconds;

typedef struct tt_exec_options {
	tt_numerics numerics;
	bool f64;           /* double kernels; the graphs must be built for double too                                   */
	tt_isa isa;         /* kernel set                                                                                */
	bool kernels_ref;   /* references only (--kernels=ref)                                                           */
	int threads;        /* lanes of the pool, the caller included; 0 = 1                                             */
	int spin_us;        /* how long a worker spins before it sleeps                                                  */
	uint64_t seed;      /* of random fills                                                                           */
	int64_t t_max;      /* tokens of a cell; 0: as the graphs' token dims say                                        */
	int64_t seqs_max;   /* sequences of a cell; 0: as the graphs' dims say                                           */
	int nframes;        /* cells in flight between F and B; 0 = 1                                                    */
	int64_t limit;      /* bytes; 0: tt_memory_limit()                                                               */
	bool profile;       /* two clock reads around every instruction                                                  */
	tt_trace *trace;    /* borrowed; NULL: none                                                                       */
	struct tt_comm_axes *axes; /* of this rank, for exchanges; NULL: one rank */
	tt_lane_mode lane;  /* of exchanges; a probe has them early */
	tt_probe probe;     /* hashes of values; nothing is done or kept for it if there is none                         */
	/* for tests */
	bool fill_nan;      /* work, scratch, outputs and (before F) the frame are filled with NaN before they are written */
	bool protect;       /* regions are PROT_NONE while no kernel runs                                                */
	bool short_lives;   /* a fault: operands of an exchange are not kept while it is under way. Its tests must find that */
	bool no_alias;      /* temporaries share nothing: no reuse of dead bytes, no in-place results, joins copy        */
} tt_exec_options;

tt_status tt_exec_create(const tt_exec_options *o, tt_exec **out) TT_CHECKED;
void tt_exec_destroy(tt_exec *e); /* accepts NULL */

/* Compiles the segments of `g`, which must outlive `e` (names and attributes are borrowed). INIT and PREP are compiled once: a later graph's
 * are dropped, provided the programs there are already make every state that it wants made. Any other segment may come once.
 * After an error `e` can only be destroyed. */
tt_status tt_exec_add_graph(tt_exec *e, const tt_graph *g) TT_CHECKED;
tt_status tt_exec_plan(tt_exec *e) TT_CHECKED;    /* after the last graph */
tt_status tt_exec_reserve(tt_exec *e) TT_CHECKED; /* TT_ERR_MEMORY, with the needs by region, if the plan does not fit */

/* One run of one program: T tokens in nseqs sequences. */
typedef struct tt_cell {
	int frame;     /* 0 .. nframes-1 */
	int64_t T;     /* 0 .. t_max */
	int64_t nseqs; /* entries of a sequence table now: nseqs + 1 */
	bool first;    /* first cell of its step */
	bool last;     /* B: the last one; sums over ranks that REDUCE takes start as soon as what they sum is there. REDUCE must follow.
			  PREP: F follows; its first gathers start as soon as their parameters are there, and have ended with PREP. Any other
			  program forgets them: F gathers itself then */
	int64_t step;  /* counts from 1 */
} tt_cell;

/* Runs `fn` on the communication lane of what is wanted, behind what is under way, or at once where there is no lane: an exchange over `axes` that no program makes. Until
 * tt_exec_beside_end, which waits for it and returns what it returned, the rank exchanges nothing else but by programs. One at a time. */
void tt_exec_beside(tt_exec *e, int axes, tt_status (*fn)(void *ctx), void *ctx);
tt_status tt_exec_beside_end(tt_exec *e) TT_CHECKED;
/* Somebody has written parameters after PREP, and does not run it again: on all ranks, or on none. */
void tt_exec_forget(tt_exec *e);
bool tt_exec_has(const tt_exec *e, tt_segment seg);
/* TT_ERR_NUMERIC, naming op and value, if a kernel found operands for which `exact` is not exact. */
tt_status tt_exec_run(tt_exec *e, tt_segment seg, const tt_cell *cell) TT_CHECKED;

/* ---- values by name ------------------------------------------------------------------------------------------------ */

/* A value that the caller may read and write. Borrowed names; valid as long as the tt_exec. */
typedef struct tt_slot {
	const char *name;
	tt_dtype dtype;
	tt_format format;
	int ndim;
	tt_dim dim[TT_MAX_DIMS];
	int64_t count;        /* elements as stored (padding of a packed format included), dynamic dims at their bound */
	int region;
	int64_t offset;       /* bytes, in the region */
	int64_t plane;        /* bytes between the limbs of `acc` in `exact`; else 0 */
	int64_t frame_stride; /* bytes between frames, 0: one copy for all */
	int frame;            /* which of them; the caller may set it */
	int32_t source;       /* states: index of the state it is derived from, -1: a state of its own */
	bool trainable;
	tt_segment seg;       /* outputs: the program that makes it */
	int32_t store;        /* the executor's own: the storage it lies in, and where in it */
	int64_t at;
} tt_slot;

/* After tt_exec_plan. States in the order in which graphs brought them. */
const tt_slot *tt_exec_states(const tt_exec *e, int64_t *n);
const tt_slot *tt_exec_inputs(const tt_exec *e, int64_t *n);
const tt_slot *tt_exec_outputs(const tt_exec *e, int64_t *n);
/* A state, an input, or an output by name; error with the nearest name. */
tt_status tt_exec_slot(const tt_exec *e, const char *name, tt_slot *out) TT_CHECKED;
/* An output of one program, for names that several graphs use. */
tt_status tt_exec_output(const tt_exec *e, tt_segment seg, const char *name, tt_slot *out) TT_CHECKED;

/* Elements [at, at+n) in storage order, bytes as stored, nothing converted. `acc` in `exact`: n elements of limb 0, then n of
 * limb 1, then n of limb 2, 8 bytes each. */
tt_status tt_tensor_write(tt_exec *e, const tt_slot *s, int64_t at, const void *src, int64_t n) TT_CHECKED;
tt_status tt_tensor_read(tt_exec *e, const tt_slot *s, int64_t at, void *dst, int64_t n) TT_CHECKED;
int64_t tt_tensor_bytes(const tt_exec *e, const tt_slot *s, int64_t n); /* of n elements for the two calls above */
/* Sum over elements of mix(logical index, bits) mod 2^64, so that shards of a tensor add: the first `n` elements, which have the
 * logical indices first .. first+n-1. Plain format only. */
tt_status tt_tensor_hash(tt_exec *e, const tt_slot *s, int64_t first, int64_t n, uint64_t *out) TT_CHECKED;

/* The same by name. */
tt_status tt_exec_write(tt_exec *e, const char *name, int64_t at, const void *src, int64_t n) TT_CHECKED;
tt_status tt_exec_read(tt_exec *e, const char *name, int64_t at, void *dst, int64_t n) TT_CHECKED;

/* ---- what it says about itself -------------------------------------------------------------------------------------- */

int64_t tt_exec_planned(const tt_exec *e, int region); /* bytes, all frames */
/* Bytes up to the highest one an operand or a scratch of the programs run so far could touch. After running every program with
 * T = t_max in every frame it equals the plan: nothing was planned that no program uses. */
int64_t tt_exec_used(const tt_exec *e, int region);
/* Instruction i of a program, in order; false behind the last. Pointers as long as the graphs live. */
typedef struct tt_exec_instr {
	const tt_graph *graph;
	const tt_node *node;
	const char *kernel;
	bool fast; /* a row of the override table; else a reference */
	tt_kernel_fn *run;
	const tt_call *call;
	size_t scratch;
	const tt_arg *in, *out; /* [node->nin], [node->nout]; extents as of the last tt_exec_run or tt_exec_shape */
	/* Of an exchange that can be under way, in its last run, as tt_now has it: when the compute lane came to it, when it began and ended, and for how
	 * many of those seconds the compute lane waited. `waits`: for each lane of comm, index of the exchange that this instruction waits for, and with it
	 * for all of that lane before; -1. */
	int lane;         /* 1 + tt_comm_lane of an exchange that can be under way, else 0 */
	bool early;       /* of REDUCE, and starts in B of the last cell; of F, and starts in PREP */
	int hides;        /* tt_hides of an exchange */
	double posted, began, ended, exposed;
	const int64_t *waits; /* [TT_COMM_LANES] */
} tt_exec_instr;
bool tt_exec_instr_at(const tt_exec *e, tt_segment seg, int64_t i, tt_exec_instr *out);
/* Gives the operands of a program their extents in `cell`, as a run of it would; nothing need be reserved. */
tt_status tt_exec_shape(tt_exec *e, tt_segment seg, const tt_cell *cell) TT_CHECKED;
/* Of an instruction with the extents of its operands: FLOPs by the op table (products and attention; sequences count as if of one length), bytes
 * of all operands, or what the op table says. */
tt_cost tt_exec_instr_cost(const tt_exec *e, const tt_exec_instr *i);
/* How often an exchange's members talk, and bytes that this rank takes from others, as tt_comm_group_count counts them: its kernel is run, and says it
 * to the groups of `options.axes`, which must be a fake world's. False: an op that does not talk. */
typedef struct tt_exec_talks { int64_t calls, bytes; } tt_exec_talks;
bool tt_exec_instr_talks(tt_exec *e, const tt_exec_instr *i, tt_exec_talks *out);
double tt_exec_flops(const tt_exec *e); /* of all runs so far, by tt_exec_instr_cost */
/* Over the axes of mask `axes`, since the start. Zeros with TT_LANE_OFF. */
tt_exchange_seconds tt_exec_exchange_seconds(const tt_exec *e, int axes);
double tt_exec_jit_seconds(const tt_exec *e); /* spent in `plan` of overrides */
tt_pool *tt_exec_pool(tt_exec *e);            /* its workers, idle while no program runs; NULL with one thread */

/* Stable text: one line per instruction, view and join. */
void tt_exec_print_program(const tt_exec *e, tt_segment seg, tt_buf *b);
/* Sizes of regions; then who holds what: the frame, the states, and for each program its work when most of it is live. Largest first;
 * what differs in a number alone (a layer's, a chunk's) in one line with its count. */
void tt_exec_print_memory(const tt_exec *e, tt_buf *b);
/* Calls and seconds by segment and op since the start or the last reset; needs options.profile. */
void tt_exec_print_profile(const tt_exec *e, tt_buf *b);
void tt_exec_reset_profile(tt_exec *e);
/* The trace as JSON for Perfetto and chrome://tracing; times are tt_now's, in microseconds. Not while a program runs. */
void tt_exec_print_trace(const tt_exec *e, const tt_trace *t, int rank, tt_buf *b);

#endif
