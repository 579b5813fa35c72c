/* doctor: what `titan doctor` finds out, apart from the printing of it. */
#ifndef TT_CLI_DOCTOR_H
#define TT_CLI_DOCTOR_H

#include "base/machine.h"
#include "kernels/peak.h"
#include "train/train.h"

typedef enum tt_finding_level { TT_FINDING_OK, TT_FINDING_WARN, TT_FINDING_BAD } tt_finding_level;
const char *tt_finding_level_name(tt_finding_level l); /* ok, warn, bad */

/* One thing looked at. `why` and `remedy` are empty where the level is ok. */
typedef struct tt_finding {
	tt_finding_level level;
	const char *key; /* "memory.cgroup": what was looked at, the same in every version */
	const char *what, *why, *remedy;
} tt_finding;
typedef struct tt_findings {
	tt_finding *items;
	int64_t n, cap;
} tt_findings;

/* Instructions of one op that run on a reference although the op has faster kernels. */
typedef struct tt_doctor_slow {
	const char *op;
	int64_t n, of;       /* of all instructions of the op */
	const char *example; /* the first of them: "layers.0.mlp.up [2048,768] x [3072,768]" */
	bool by_isa;         /* a wider instruction set has a kernel for it; else its dims or its dtype fit none */
} tt_doctor_slow;

/* What a run of a config will ask of the machine: its memory plan and its programs, compiled and not started. */
typedef struct tt_doctor_plan {
	const char *name;    /* of the config */
	int64_t params, region[TT_EXEC_NREGIONS], planned, ranks; /* bytes; of rank 0 */
	int64_t staging;     /* of checkpoints saved while training goes on, at most */
	bool saves, async, adamw, references, exact, compute_bf16;
	bool keeps;          /* activations that could be made again: activation_checkpoint.mode is not full */
	int64_t checkpoint;  /* bytes of a full one */
	int64_t keep;        /* checkpoint.keep_latest_k */
	int64_t context, trained_context; /* training.context_length; what the model's positions are made for */
	int64_t tokens;      /* of a microbatch */
	double attention;    /* share of a step's operations, with whole rows */
	tt_doctor_slow *slow;
	int64_t nslow, cap_slow;
} tt_doctor_plan;
/* Compiles the plan of a config; reads no data and no weights, and allocates nothing for tensors. */
tt_status tt_doctor_plan_make(tt_arena *a, const char *name, const tt_config *cfg, tt_doctor_plan *out) TT_CHECKED;

/* All that the findings follow from. */
typedef struct tt_doctor_facts {
	tt_machine machine;
	const char *run_folder, *cache_folder; /* "" : none */
	tt_disk run, cache, temp;
	bool run_known, cache_known, temp_known;
	bool exec_memory;
	int threads;       /* of a run */
	tt_isa isa;
	bool compute_bf16; /* training.mixed_precision_param */
	double peak_one, peak_all; /* FLOP/s of one thread and of `threads`; 0: not known */
	const tt_doctor_plan *plan; /* NULL: no config was named */
} tt_doctor_facts;

/* Looks at everything; texts go to the arena. */
void tt_doctor_check(tt_arena *a, const tt_doctor_facts *f, tt_findings *out);

/* The findings about f->plan; tt_doctor_check calls it. */
void tt_doctor_check_plan(tt_arena *a, const tt_doctor_facts *f, tt_findings *out);

typedef struct tt_doctor_options {
	const char *root;             /* of /proc and /sys; "" is the machine */
	const tt_peak_source *source; /* NULL: this machine's */
	bool json, measure;
	const char *run_folder;
	int threads;                  /* 0: as many as the machine lets run at once */
	tt_isa isa;
	bool compute_bf16;
	const tt_doctor_plan *plan;   /* NULL: the machine alone */
} tt_doctor_options;
/* The whole report, as text or as one JSON object. Peaks that the cache lacks are measured, with `measure` all of them. */
tt_status tt_doctor_report(tt_arena *a, const tt_doctor_options *o, tt_buf *out) TT_CHECKED;

#endif
