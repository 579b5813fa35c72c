/* hashes: what a run computed, as one 64-bit hash per value, so that `titan diff` can say where two runs part.
 *
 * Two kinds, by step: `state` (parameters, gradients, optimizer states, data and loss once a step: cheap) and `values` (everything that
 * every program reads and writes: for a handful of steps). Hashes go by logical index and bits (tt_tensor_hash).
 *
 * FOLDER/hashes.bin, little endian: the 8 bytes of TT_HASHES_MAGIC, then records, each
 *     u32 kind, u32 n, u64 tt_hash64(these 8 bytes, seed 0), u64 tt_hash64(payload and zeros, seed kind), payload of n bytes, zeros up to a
 *     multiple of 8. Two checks, so that a damaged length is not taken for a cut file.
 *   SETTINGS  text in TOML's form, `[section]` and `key = value` lines. Begins a session: a run, or one that resumed it.
 *   PROGRAM   text. Lines of fields with tabs between, names within a field with blanks between:
 *                 "program" SEGMENT NUMBER        NUMBER of values that its cells have
 *                 "value" NAME DTYPE FORMAT OP KERNEL     in the order of the hashes; OP is "state" or "input" for what is read
 *                 "node" OP OUTPUTS INPUTS        in order of execution, views and joins too
 *             Says how to read the cells of this segment from here on. What is kept once a step has the segment "STATE".
 *   CELL      tt_hashes_cell_head, then its values' hashes. One run of one program.
 * The file only grows, by whole records; what a killed run left of its last record is passed over.
 */
#ifndef TT_METRICS_HASHES_H
#define TT_METRICS_HASHES_H

#include "exec/exec.h"

#define TT_HASHES_MAGIC "TTHASH1\n"
enum { TT_HASHES_STATE = TT_NSEGS, TT_HASHES_NSEGS }; /* segments, and what is kept once a step */
typedef enum tt_hashes_kind { TT_HASHES_SETTINGS = 1, TT_HASHES_PROGRAM, TT_HASHES_CELL } tt_hashes_kind;
const char *tt_hashes_segment_name(int seg);

typedef struct tt_hashes_record { uint32_t kind, n; uint64_t head_check, check; } tt_hashes_record;
typedef struct tt_hashes_cell_head {
	int64_t step;     /* 0: before the first */
	int32_t segment;  /* tt_segment, or TT_HASHES_STATE */
	int32_t index;    /* among the step's runs of this program: the microbatch, in F and B */
	int64_t T, nseqs; /* tokens and sequences of the cell */
	int64_t n;        /* hashes that follow */
} tt_hashes_cell_head;

/* ---- writing -------------------------------------------------------------------------------------------------------------------- */

typedef struct tt_hashes_options {
	const char *folder;   /* of the run; NULL: nothing is recorded */
	bool state, values;
	int64_t first, last, every; /* steps first, first + every, ... up to last; 0: from 1, to the end, all. What is before step 1 always is. */
	const char *settings; /* of the run, for the SETTINGS record; NULL: none. Strings are borrowed until the first step. */
} tt_hashes_options;

/* "", "7", "100-120", "1-1000/50", "100-", "/50" into first, last, every. `key` is for the error. */
tt_status tt_hashes_parse_steps(const char *text, const char *key, tt_hashes_options *o) TT_CHECKED;

typedef struct tt_hashes tt_hashes;
/* Makes the folder. The file waits for the first step: until then it is not known whether an older one is continued. */
tt_status tt_hashes_open(const tt_hashes_options *o, tt_hashes **out) TT_CHECKED;
void tt_hashes_close(tt_hashes *h); /* accepts NULL */
/* To be set in tt_exec_options of the run; none where no values are wanted. */
tt_probe tt_hashes_probe(tt_hashes *h);
void tt_hashes_facts(tt_hashes *h, const char *facts); /* lines "key = value", for a section [run] before the settings */
/* What runs from now on belongs to this step. The first call opens the file: a `step` above 1 resumes a run, whose file is continued; else
 * an older file stays as hashes.old.bin. */
tt_status tt_hashes_begin_step(tt_hashes *h, int64_t step) TT_CHECKED;
/* Parameters, optimizer states and gradients of `e` at the end of a step, after `extra`, numbers of the loop's own. Of a mesh: hash[i] of state
 * number i over all ranks, whose shards' add, and kept[i]: it is recorded; NULL: all are, and are this rank's. */
typedef struct tt_hashes_extra { const char *name; uint64_t hash; } tt_hashes_extra;
tt_status tt_hashes_state(tt_hashes *h, tt_exec *e, const uint64_t *hash, const bool *kept, const tt_hashes_extra *extra, int nextra) TT_CHECKED;
/* Is a state one that tt_hashes_state records, and is it recorded after this step? 0: before the first. */
bool tt_hashes_has(const tt_slot *s);
bool tt_hashes_wants(const tt_hashes_options *o, int64_t step);

/* ---- reading -------------------------------------------------------------------------------------------------------------------- */

typedef struct tt_hashes_value { const char *name, *dtype, *format, *op, *kernel; } tt_hashes_value;
typedef struct tt_hashes_node {
	const char *op;
	const char **out, **in;
	int nout, nin;
} tt_hashes_node;
typedef struct tt_hashes_program {
	int segment;
	int64_t nvalues, cap_values, nnodes, cap_nodes;
	tt_hashes_value *values;
	tt_hashes_node *nodes;
	int64_t *sorted; /* [nvalues] values by name */
} tt_hashes_program;
int64_t tt_hashes_find(const tt_hashes_program *p, const char *name); /* -1: no such value */

typedef struct tt_hashes_cell {
	tt_hashes_cell_head head;
	const tt_hashes_program *program;
	const uint64_t *hash; /* [nvalues], in the file's mapping */
	int session;
} tt_hashes_cell;

typedef struct tt_hashes_file {
	const char *path, *settings; /* settings of the last session */
	tt_hashes_cell *cells;       /* in order of execution; of a resumed run, those of the session that went on */
	int64_t ncells, cap_cells;
	int nsessions;
	bool cut;                    /* the last record is not whole */
	int64_t cut_at;              /* the byte that it begins at, -1 */
	tt_map map;
} tt_hashes_file;

/* `path`: a run's folder or the file. A file of another kind, or a damaged record, is an error with its place. */
tt_status tt_hashes_read(tt_arena *a, const char *path, tt_hashes_file *out) TT_CHECKED;
void tt_hashes_file_close(tt_hashes_file *f);

#endif
