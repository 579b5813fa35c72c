/* plan: what compiled programs ask of a machine, counted without running them: memory, talk between ranks, FLOPs, and from a table of hardware a
 * first guess at time.
 *
 * Bytes, calls and FLOPs are those of the programs that would run: the executor and the kernels count a run by the same functions. Time is an
 * estimate: each instruction takes what its FLOPs or its bytes take at a share of the peak that is assumed, an exchange what its bytes take on
 * the slower of the links it uses. Nothing is known here of stragglers, of caches, of what a network shares.
 */
#ifndef TT_PLAN_H
#define TT_PLAN_H

#include "comm/comm.h"
#include "exec/exec.h"
#include "kernels/peak.h"
#include "pass/pass.h"

/* ---- hardware (hardware.c) ----------------------------------------------------------------------------------------------------------- */

/* One rank's part of a machine. Bytes and seconds; links one way. */
typedef struct tt_hardware {
	const char *name, *title, *source;
	double bf16, f32;          /* FLOP/s of dense products */
	double memory, bandwidth;  /* bytes, bytes/s */
	int node;                  /* ranks that share the fast link; 0: all */
	double link, network;      /* bytes/s to ranks of the node, to others */
	double latency, issue;     /* s of a talk beside its bytes; of an instruction beside its work */
	double product_share, memory_share, link_share; /* of the peaks, assumed to be reached */
} tt_hardware;
extern const tt_hardware tt_hardware_tables[]; /* ends with a NULL name */
/* The row of that name; error with the names there are. */
tt_status tt_hardware_find(const char *name, tt_hardware *out) TT_CHECKED;
/* This machine dealt to `ranks`, by its measured peaks (`titan doctor`): from the cache, else measured now. `s` NULL: tt_peak_source_init's. */
tt_status tt_hardware_this(const tt_peak_source *s, tt_isa isa, int64_t ranks, tt_hardware *out) TT_CHECKED;

/* ---- one rank's step (count.c) --------------------------------------------------------------------------------------------------------- */

/* `times` runs of a program on T tokens in nseqs sequences; a step is a list of them. */
typedef struct tt_plan_run { tt_segment seg; int64_t T, nseqs, times; } tt_plan_run;

/* Talk over one group of ranks, of one kind, in a step. */
typedef struct tt_plan_talk {
	uint32_t axes;       /* bit i: axis i of the mesh */
	const char *kind;    /* "all-gather" */
	int64_t calls, bytes;/* as tt_comm_group_count counts: bytes this rank takes */
	int64_t hideable_calls, hideable_bytes; /* of these, of exchanges that could be hidden (pass/hide.c) */
	double seconds, exposed; /* estimate; in which the compute lane does nothing else, waits for a link that others have included */
} tt_plan_talk;

/* A piece of a lane's time, for a drawing. */
enum { TT_LANE_COMPUTE, TT_LANE_COMM, TT_LANES = TT_LANE_COMM + TT_COMM_LANES }; /* comm's lane k: TT_LANE_COMM + k */
typedef struct tt_plan_span {
	int lane, run;         /* run: index of its entry in the list */
	const char *op, *name; /* of the first value it makes */
	const char *axis;      /* of an exchange, else NULL */
	double begin, end;     /* s from the run's start */
} tt_plan_span;

typedef struct tt_plan_rank {
	int rank;                          /* one of the class */
	int64_t alike;                     /* ranks whose programs are equal to its */
	int64_t region[TT_EXEC_NREGIONS], memory; /* bytes */
	int64_t instructions;              /* of all programs */
	double flops, bytes;               /* of a step: FLOPs; bytes of operands */
	tt_plan_talk *talk;
	int64_t ntalk, cap_talk;
	double seconds, compute_s, comm_s, exposed_s; /* a step; lanes' own work; talk that nothing hides */
	double segment_s[TT_NSEGS];
	tt_plan_span *span;                /* of one run of each entry, if asked for */
	int64_t nspan, cap_span;
	tt_plan_run run[16];               /* the list */
	int nruns;
} tt_plan_rank;

typedef struct tt_plan_asked {
	const tt_hardware *hardware; /* NULL: no time */
	int naxes;
	const int *size;             /* [naxes] of the mesh */
	int rank;
	const tt_plan_run *runs;     /* at most as many as tt_plan_rank has room for */
	int nruns;
	bool spans;
} tt_plan_asked;
/* Fills all of `out` but rank and alike. The programs are planned; their operands' extents are changed. TT_ERR_MEMORY if a sum cannot be counted. */
tt_status tt_plan_count(tt_arena *a, tt_exec *e, const tt_plan_asked *q, tt_plan_rank *out) TT_CHECKED;
/* Talk that is not a program's. */
void tt_plan_talk_add(tt_arena *a, tt_plan_rank *r, uint32_t axes, const char *kind, int64_t calls, int64_t bytes);

/* ---- a mesh's plan (train/mesh_plan.c makes it, print.c prints it) ---------------------------------------------------------------------- */

typedef struct tt_plan_mesh {
	const char *name;        /* of the config */
	int naxes;
	int size[TT_PLAN_AXES];
	int64_t ranks, params;
	bool sp;                 /* sequence parallel */
	int64_t rows, data_ranks, cells;  /* of a step; cells of a data rank */
	double tokens;           /* of a step */
	double model_flops;      /* of a step, 3 x forward, all ranks: what MFU counts */
	tt_hardware hardware;
	int64_t limit;           /* bytes a rank may have */
	int64_t nclasses;        /* classes of ranks with equal programs */
	int32_t *class_of;       /* [ranks] place in `rank`; nrank and more: not compiled */
	tt_plan_rank *rank;      /* those that were compiled, rank 0's first */
	int64_t nrank;
	int64_t worst;           /* of them the one with most memory */
	int64_t slowest;         /* of them the one with the longest step */
	double plan_seconds;
} tt_plan_mesh;

/* "tp", "dp_shard*cp"; "tp" and "tp_rep" are one axis to people. */
void tt_plan_axes_name(uint32_t axes, tt_buf *b);
void tt_plan_print(tt_arena *a, const tt_plan_mesh *m, tt_buf *b);
/* A drawing of one step of the slowest class: a lane of compute, and lanes of communication. */
void tt_plan_svg(const tt_plan_mesh *m, tt_buf *b);

#endif
