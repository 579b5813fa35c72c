/* doctor: what `titan doctor` finds out, apart from the printing of it. */
#ifndef TT_CLI_DOCTOR_H
#define TT_CLI_DOCTOR_H

#include "base/machine.h"
#include "kernels/peak.h"

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
} tt_doctor_facts;

/* Looks at everything; texts go to the arena. */
void tt_doctor_check(tt_arena *a, const tt_doctor_facts *f, tt_findings *out);

/* "1.5 GiB" */
const char *tt_doctor_bytes(tt_arena *a, int64_t bytes);

typedef struct tt_doctor_options {
	const char *root;             /* of /proc and /sys; "" is the machine */
	const tt_peak_source *source; /* NULL: this machine's */
	bool json, measure;
	const char *run_folder;
	int threads;                  /* 0: as many as the machine lets run at once */
	tt_isa isa;
	bool compute_bf16;
} tt_doctor_options;
/* The whole report, as text or as one JSON object. Peaks that the cache lacks are measured, with `measure` all of them. */
tt_status tt_doctor_report(tt_arena *a, const tt_doctor_options *o, tt_buf *out) TT_CHECKED;

#endif
