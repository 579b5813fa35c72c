/* ckpt: checkpoints. Written while training goes on, safe against crashes at any moment, checked when read.
 *
 * A run's folder:
 *
 *   checkpoint/latest                 names the newest one: "step-00000500\n"
 *   checkpoint/step-00000500/         a Hugging Face model as it is:
 *       config.json  model.safetensors (or shards and model.safetensors.index.json)  tokenizer and generation files carried along
 *     and beside it:
 *       optimizer.safetensors         optimizer states under their names (not where the model alone was saved)
 *       train_state.json              step, data cursor, schedule, seed, config, imported dtypes; for each file above its size and
 *                                     the XXH3 of every block of 4 MiB
 *       COMPLETE                      written last; the XXH3 of train_state.json
 *   checkpoint/.tmp-step-00000500-77  one that process 77 is writing, or was when it died
 *
 * Everything is written into the temporary folder and brought to the disk, then the folder is renamed, then `latest` is
 * replaced, then older checkpoints go. At any moment `latest` names a complete checkpoint.
 *
 * Tensors are whole and in canonical layout; the program lists them once, for saving and loading. One program writes a folder at a time: one process, or
 * the ranks of one that are processes, each its share of the blocks (ranks.c); the bytes are the same.
 */
#ifndef TT_CKPT_CKPT_H
#define TT_CKPT_CKPT_H

#include "ckpt/safetensors.h"
#include "comm/comm.h"
#include "model/hf.h"

#ifndef TT_CKPT_BLOCK                       /* smaller where files are fuzzed */
#define TT_CKPT_BLOCK (4 * TT_MIB)          /* bytes of a file that have a checksum of their own */
#endif
#define TT_CKPT_SHARD (5 * 1000000000LL)    /* default bound on a model file, that of Hugging Face */
#define TT_CKPT_STAGING (256 * TT_MIB)

/* ---- what is saved ------------------------------------------------------------------------------------------------- */

/* A tensor of the program. dtype is that of `read` and `write` below: F32 or F64 (others pass unconverted). */
typedef struct tt_ckpt_tensor {
	const char *name;
	bool optim;           /* into optimizer.safetensors; else into the model's files */
	tt_st_dtype dtype;
	tt_st_dtype imported; /* of the file it was first loaded from; = dtype if it never was */
	int ndim;
	int64_t dim[TT_ST_MAX_DIMS];
} tt_ckpt_tensor;

/* Copies elements [at, at+n) of tensor i out of the program, or into it. `read` is called from the writer's thread, and
 * within tt_ckpt_before_update from the caller's too: it may only copy. */
typedef tt_status tt_ckpt_read_fn(void *ctx, int64_t i, int64_t at, int64_t n, void *dst);
typedef tt_status tt_ckpt_write_fn(void *ctx, int64_t i, int64_t at, int64_t n, const void *src);

/* Everything that is not a tensor. Strings are borrowed, and by tt_ckpt_open put into its arena. */
typedef struct tt_ckpt_state {
	int64_t step;        /* steps done */
	int64_t tokens_seen;
	const char *run;     /* a name that all starts of the run have; NULL: none */
	int64_t updates;     /* of them, not skipped: what Adam's bias correction counts */
	int64_t skips;       /* steps skipped in a row */
	uint64_t seed;
	struct { int64_t step, context_length, tokens_per_step; uint64_t fingerprint; } data; /* tt_data_cursor */
	const char *files;   /* tt_data_cursor's evidence of the data's files; NULL: there is none */
	int64_t files_every;
	const char *held;    /* the same of the held-out files */
	int64_t held_every;
	bool unvalidated;    /* the validation that was due after this step was given up for a signal */
	struct { int64_t warmup, total, decay; const char *type; double min_factor; } schedule;
	const char *config;  /* the resolved config, TOML */
} tt_ckpt_state;

/* Parts that a resume may leave out, TorchTitan's names. */
enum { TT_CKPT_MODEL = 1, TT_CKPT_OPTIMIZER = 2, TT_CKPT_LR_SCHEDULER = 4, TT_CKPT_DATALOADER = 8, TT_CKPT_TRAIN_STATE = 16 };
/* "model", "optimizer", "lr_scheduler", "dataloader", "train_state" to bits; an unknown one is answered with the nearest. */
tt_status tt_ckpt_parts(const char *const *names, int n, unsigned *out) TT_CHECKED;

/* ---- writing --------------------------------------------------------------------------------------------------------- */

/* Ranks that hold pieces of the tensors and write one checkpoint together: each block of a file is put together, checksummed and written by one of them. All
 * call tt_ckpt_try and tt_ckpt_save_begin, for the same; the first leads: it makes the folder, and brings it to its place when all have their
 * blocks on the disk. An error of one is the error of all, with its rank and host. The others' state may be all 0 but for `step`. */
typedef struct tt_ckpt_ranks {
	tt_comm *comm;
	tt_comm_group *group; /* of all of them, for the writers' threads alone (tt_comm_group_open_beside) */
	/* Of whole tensor i the elements that `rank` gives to `to` (places in the group), rising: how many of them lie before `at`; and the first run of them
	 * in [at, end), *n long, `end` where there is none. Each element is given by one rank. From any thread. */
	int64_t (*before)(void *ctx, int rank, int to, int64_t i, int64_t at);
	int64_t (*run)(void *ctx, int rank, int to, int64_t i, int64_t at, int64_t end, int64_t *n);
	tt_ckpt_read_fn *pack; /* `read` of what this rank holds of [at, at+n) alone, one run behind the other */
} tt_ckpt_ranks;

typedef struct tt_ckpt_options {
	const tt_fs *fs;              /* NULL: the system's */
	const char *folder;           /* of the run's checkpoints; made if it is not there */
	int64_t keep_latest_k;        /* 0: all */
	bool async;                   /* write in a thread of its own while the program goes on */
	int64_t staging;              /* bytes at most that an update copies aside instead of waiting; 0: TT_CKPT_STAGING */
	int64_t shard_bytes;          /* 0: TT_CKPT_SHARD */
	const tt_llama_config *model; /* borrowed */
	const char *source;           /* folder (or config.json) the model came from, whose config and tokenizer files go along; NULL: none */
	const tt_ckpt_tensor *tensors; /* borrowed */
	int64_t ntensors;
	tt_ckpt_read_fn *read;        /* not called where there are ranks */
	void *ctx;
	const tt_ckpt_ranks *ranks;   /* borrowed; NULL: this process writes alone */
} tt_ckpt_options;

typedef enum tt_ckpt_kind { TT_CKPT_FULL, TT_CKPT_MODEL_ONLY } tt_ckpt_kind;

typedef struct tt_ckpt_writer tt_ckpt_writer;
/* Reads the files to carry along; touches nothing in `folder`. */
tt_status tt_ckpt_writer_create(const tt_ckpt_options *o, tt_ckpt_writer **out) TT_CHECKED;
/* What a run that was killed between a new `latest` and its clean-up left behind: older checkpoints beyond keep_latest_k, temporary folders of
 * dead processes. For the start of a run; a save does the same at its end. Warns of what it cannot remove. */
void tt_ckpt_tidy(tt_ckpt_writer *w);
/* For the start of a run: can a checkpoint be written? Makes the folder and, for a moment, a file in it, and holds the disk's free space against
 * the size of a checkpoint of `kind` and `dtype`; nothing is brought to the disk, so it takes no time. No room for one is an error, no room for
 * all that will be there at once, when `saves` more have been made, a warning. */
tt_status tt_ckpt_try(tt_ckpt_writer *w, tt_ckpt_kind kind, tt_st_dtype dtype, int64_t saves) TT_CHECKED;
/* Accepts NULL. Waits for a save in progress; its error, if nobody asked, is logged. The thread's error record stays what it was. */
void tt_ckpt_writer_destroy(tt_ckpt_writer *w);

/* Begins to save the state as it is now; without `async`, ends it too. `dtype` is that of the model's tensors, F32, BF16 or F16; a full
 * checkpoint keeps the program's (pass TT_ST_F32). A save still in progress is waited for, and its error returned. */
tt_status tt_ckpt_save_begin(tt_ckpt_writer *w, const tt_ckpt_state *s, tt_ckpt_kind kind, tt_st_dtype dtype) TT_CHECKED;
/* Before any tensor changes: returns when the save in progress does not need the program's tensors any more. An error of the
 * save is not returned here: the update may go on. */
void tt_ckpt_before_update(tt_ckpt_writer *w);
bool tt_ckpt_saving(const tt_ckpt_writer *w); /* is a save in progress? */

typedef struct tt_ckpt_result {
	int64_t step;         /* of the last save that was done and told; -1: none */
	int64_t bytes;
	double seconds;       /* from begin to the new `latest` */
	double write_seconds; /* of that, tensor files until they are on the disk */
	double stall_seconds; /* that begin and before_update took, of ranks that of the one where they took longest */
	int64_t staged;       /* bytes, of this rank */
} tt_ckpt_result;
/* Is the save over? *done is true once for each save (then *out is filled), also if it failed: the error is returned once. */
tt_status tt_ckpt_poll(tt_ckpt_writer *w, bool *done, tt_ckpt_result *out) TT_CHECKED;
tt_status tt_ckpt_wait(tt_ckpt_writer *w, bool *done, tt_ckpt_result *out) TT_CHECKED; /* the same, after waiting; *done false: there was none */

/* ---- reading --------------------------------------------------------------------------------------------------------- */

typedef struct tt_ckpt tt_ckpt;
/* The checkpoint of step `step` in a run's folder; -1: the one `latest` names, or if that file is gone or wrong, the newest complete
 * one. *out is NULL if step is -1 and there is none. Sizes, marker and train_state.json are checked. If it is damaged, the error
 * names what and offers the newest older one that is whole. Lives in `a`. fs NULL: the system's. */
tt_status tt_ckpt_open(tt_arena *a, const tt_fs *fs, const char *folder, int64_t step, tt_ckpt **out) TT_CHECKED;
/* The checkpoint that this folder is. */
tt_status tt_ckpt_open_dir(tt_arena *a, const tt_fs *fs, const char *dir, tt_ckpt **out) TT_CHECKED;
const tt_ckpt_state *tt_ckpt_get_state(const tt_ckpt *c);
const char *tt_ckpt_dir(const tt_ckpt *c);
bool tt_ckpt_model_only(const tt_ckpt *c);
const tt_st *tt_ckpt_headers(const tt_ckpt *c); /* tensors of all its files, not mapped */
/* dtype a tensor was first imported in; `otherwise` if the checkpoint does not say. */
tt_st_dtype tt_ckpt_imported(const tt_ckpt *c, const char *name, tt_st_dtype otherwise);

/* Reads the tensors of the parts that `exclude` does not name (bits as above) and checks every block on the way. Each tensor must
 * be there with its shape, and none beyond them; floats are converted to the program's dtype. After an error, tensors may hold
 * anything. */
tt_status tt_ckpt_load(tt_ckpt *c, const tt_ckpt_tensor *tensors, int64_t n, unsigned exclude, tt_ckpt_write_fn *write, void *ctx) TT_CHECKED;
/* Checks every block of every file. */
tt_status tt_ckpt_verify(tt_ckpt *c, int64_t *bytes) TT_CHECKED;
/* Σ over elements of the mix of logical index and bits, as tt_tensor_hash gives it of the tensor in memory. */
tt_status tt_ckpt_hash(const tt_fs *fs, const tt_st_tensor *t, uint64_t *out) TT_CHECKED;

/* Steps with a complete marker in a run's folder, rising. No folder: none. */
tt_status tt_ckpt_list(tt_arena *a, const tt_fs *fs, const char *folder, int64_t **steps, int64_t *n) TT_CHECKED;

/* Writes the model of `dir`, a checkpoint or any Hugging Face folder, as a plain Hugging Face folder `out`, which must not be there.
 * `dtype` of all float tensors; TT_ST_NDTYPES: each in the one it was imported in. A checkpoint is verified first. */
tt_status tt_ckpt_export(const tt_fs *fs, const char *dir, const char *out, tt_st_dtype dtype, int64_t shard_bytes) TT_CHECKED;

/* A config.json that came with a model: its text, and what it says. */
typedef struct tt_ckpt_carried { const char *text; size_t n; tt_llama_config config; } tt_ckpt_carried;
/* config.json of a model in weights of `dtype` ("float32"): `source` (NULL: none) with what `c` says otherwise replaced. */
tt_status tt_ckpt_config_json(const tt_llama_config *c, const char *dtype, const tt_ckpt_carried *source, tt_buf *out) TT_CHECKED;

#endif
