/* internal.h: between the files of ckpt/. */
#ifndef TT_CKPT_INTERNAL_H
#define TT_CKPT_INTERNAL_H

#include <jansson.h>

#include "ckpt/ckpt.h"

/* ---- files.c: bytes of safetensors files, block by block ------------------------------------------------------------ */

/* A tensor in a file to be written: source tensor `index`, converted from `in` to `out`. */
typedef struct ckpt_piece {
	const char *name;
	int64_t index;
	tt_st_dtype in, out;
	int ndim;
	int64_t dim[TT_ST_MAX_DIMS];
	int64_t count, at, bytes; /* at: in the file */
} ckpt_piece;

typedef struct ckpt_file {
	const char *name;
	const char *head; /* length and header, up to the first tensor's byte */
	int64_t nhead;
	ckpt_piece *pieces; /* by `at` */
	int64_t npieces;
	int64_t bytes, nblocks;
	uint64_t *sums; /* [nblocks] */
} ckpt_file;

/* Places pieces into one file `name`, or several with an index if they exceed shard_bytes (> 0). Files are added to *out. The index'
 * text, if there is one, is in *index. */
void ckpt_files_plan(tt_arena *a, const char *stem, ckpt_piece *pieces, int64_t n, int64_t shard_bytes, ckpt_file **out, int64_t *nout,
		     int64_t *cap, const char **index);
/* Bytes [lo, hi) of the file as they will stand in it; both multiples of 8, or the file's end. */
tt_status ckpt_file_fill(const ckpt_file *f, int64_t lo, int64_t hi, tt_ckpt_read_fn *read, void *ctx, uint8_t *dst) TT_CHECKED;
/* The first piece that ends after byte `lo`; npieces: none. */
int64_t ckpt_file_first(const ckpt_file *f, int64_t lo);
enum { CKPT_CHUNK = 2048 }; /* elements that are converted at a time */
/* n elements; any pair of F64, F32, F16, BF16; other dtypes only to themselves. */
void ckpt_convert(void *dst, tt_st_dtype out, const void *src, tt_st_dtype in, int64_t n);
bool ckpt_is_float(tt_st_dtype d);
const char *ckpt_torch_dtype(tt_st_dtype d); /* "float32"; NULL: it has none here */

/* ---- state.c: train_state.json and COMPLETE --------------------------------------------------------------------------- */

typedef struct ckpt_listed { /* a file as train_state.json lists it */
	const char *name;
	int64_t bytes, nblocks;
	const uint64_t *sums;
} ckpt_listed;

typedef struct ckpt_imported { const char *name; tt_st_dtype dtype; } ckpt_imported;

typedef struct ckpt_manifest {
	tt_ckpt_state state;
	bool model_only;
	ckpt_listed *files;
	int64_t nfiles;
	ckpt_imported *imported;
	int64_t nimported;
} ckpt_manifest;

tt_status ckpt_manifest_print(const ckpt_manifest *m, tt_buf *out) TT_CHECKED;
tt_status ckpt_manifest_parse(tt_arena *a, const char *path, const char *text, size_t n, ckpt_manifest *out) TT_CHECKED;
/* The marker's text for a train_state.json, "titan checkpoint 1 HASH\n". */
const char *ckpt_marker(tt_arena *a, const void *state, size_t n);

/* ---- folder.c: names in a run's folder ---------------------------------------------------------------------------------- */

#define CKPT_LATEST "latest"
#define CKPT_COMPLETE "COMPLETE"
#define CKPT_STATE "train_state.json"
#define CKPT_OPTIM "optimizer.safetensors"

const char *ckpt_step_name(tt_arena *a, int64_t step); /* "step-00000500" */
int64_t ckpt_step_of(const char *name);                /* -1: not such a name */
/* Step that `latest` names; -1 if the file is not there, -2 if it does not name a checkpoint's folder. */
tt_status ckpt_latest_read(tt_arena *a, const tt_fs *fs, const char *folder, int64_t *out) TT_CHECKED;
tt_status ckpt_latest_write(tt_arena *a, const tt_fs *fs, const char *folder, int64_t step) TT_CHECKED;
/* Moves a complete temporary folder to its place; one that is there already goes. */
tt_status ckpt_publish(tt_arena *a, const tt_fs *fs, const char *folder, const char *tmp, int64_t step) TT_CHECKED;
/* Removes what dead processes left, and checkpoints beyond keep (0: none of them). Failures are warnings. */
void ckpt_prune(const tt_fs *fs, const char *folder, int64_t latest, int64_t keep);
void ckpt_clean_stale(const tt_fs *fs, const char *folder);

/* ---- carry.c: the small files ---------------------------------------------------------------------------------------------- */

typedef struct ckpt_small { const char *name, *bytes; size_t n; } ckpt_small;
/* Tokenizer and generation files of a folder (or of the folder of a config.json), as far as they are there; its config.json apart, NULL
 * if there is none (config NULL: among the others, unread). */
tt_status ckpt_carry_read(tt_arena *a, const tt_fs *fs, const char *source, ckpt_small **out, int64_t *n, tt_ckpt_carried **config) TT_CHECKED;

/* A config.json with another dtype. */
tt_status ckpt_config_dtype(const char *text, size_t n, const char *dtype, tt_buf *out) TT_CHECKED;

/* ---- load.c ---------------------------------------------------------------------------------------------------------------- */

bool ckpt_is_optim_file(const char *path);

/* ---- pack.c: a folder's files, written ------------------------------------------------------------------------------------- */

enum { BLOCK_PENDING, BLOCK_TAKEN, BLOCK_STAGED, BLOCK_READ };

/* One folder in the making. Blocks are numbered through all files. The writer takes them from the front, an update that is waiting
 * copies them aside from the back; both claim a block by moving it from PENDING to TAKEN. */
typedef struct ckpt_pack {
	tt_arena *arena;
	const tt_fs *fs;
	const char *dir;
	tt_ckpt_read_fn *read;
	void *ctx;
	ckpt_file *files;
	int64_t nfiles, cap_files, nblocks;
	ckpt_small *small;
	int64_t nsmall;
	_Atomic uint8_t *block;  /* [nblocks] BLOCK_ */
	int32_t *slot;           /* [nblocks] where a staged one lies */
	uint8_t *staging;        /* [nslots * TT_CKPT_BLOCK] */
	int32_t nslots, used;
	_Atomic int64_t unread;  /* blocks not READ or STAGED */
	_Atomic bool hurry;      /* somebody waits for unread = 0 */
	_Atomic bool failed;
	void (*progress)(void *ctx); /* called after each block, and after a failure */
	void *progress_ctx;
	/* out: of the files of both kinds, for train_state.json */
	ckpt_listed *listed;
	int64_t nlisted;
} ckpt_pack;
void ckpt_pack_init(ckpt_pack *p); /* after files and small are set */
int64_t ckpt_pack_bytes(const ckpt_pack *p);
/* Writes all files of the folder, which must be there, and brings them to the disk; not the folder itself. */
tt_status ckpt_pack_write(ckpt_pack *p) TT_CHECKED;
/* The small files alone; listed behind what is there. */
tt_status ckpt_pack_small(ckpt_pack *p) TT_CHECKED;
/* The pieces of a model: every tensor that is not of the optimizer. dtype TT_ST_NDTYPES: each as imported. */
ckpt_piece *ckpt_pieces(tt_arena *a, const tt_ckpt_tensor *t, int64_t n, bool optim, tt_st_dtype dtype, int64_t *count);

/* ---- ranks.c: the same, with the blocks dealt to ranks ------------------------------------------------------------------------ */

typedef struct ckpt_share ckpt_share;
/* Who writes which block in which round, from what all know: `dealt`, as ckpt_share_dealt has it of an equal pack (borrowed), or NULL, which takes a while where there
 * are many of both. In p->arena; p's blocks are rounds from here on. */
ckpt_share *ckpt_share_new(ckpt_pack *p, const tt_ckpt_ranks *r, void *ctx, const int64_t *dealt);
const int64_t *ckpt_share_dealt(const ckpt_share *s, int64_t *n);
void ckpt_share_free(ckpt_share *s); /* buffers */
bool ckpt_share_leads(const tt_ckpt_ranks *r);
/* All ranks call it: the same error on all if one has one, `mine` and its text among them; else TT_OK, and the leader's `word` on all. *stall: in this rank's
 * seconds, out the most of all. */
typedef struct ckpt_agreed { int64_t word; double stall; } ckpt_agreed;
tt_status ckpt_share_agree(const tt_ckpt_ranks *r, tt_arena *a, const char *name, tt_status mine, ckpt_agreed *x) TT_CHECKED;
/* The files of p->dir, empty ones; of the leader. */
tt_status ckpt_share_create(ckpt_share *s) TT_CHECKED;
/* Writes this rank's blocks of the files that are there, until they are on the disk; then all agree. The leader has all checksums and lists the files. */
tt_status ckpt_share_write(ckpt_share *s) TT_CHECKED;
/* Copies aside, from the last round, what this rank gives, as long as there is room: `bytes` in all at p->staging. In *staged what was. */
tt_status ckpt_share_stage(ckpt_share *s, int64_t bytes, int64_t *staged) TT_CHECKED;
int64_t ckpt_share_gives(const ckpt_share *s); /* bytes that this rank gives in all: what it would stage at most */

#endif
