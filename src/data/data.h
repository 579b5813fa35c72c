/* data: the token stream, cut into rows, steps and microbatches.
 *
 *   stream    an endless run of tokens with their labels
 *   row       context_length tokens of the stream
 *   step      tokens_per_step / context_length consecutive rows; row r of step s is a pure function of (options, s, r):
 *             every rank, mesh and microbatching sees the same tokens
 *   sequence  a document within a row: positions count from its first token, attention never leaves it
 *   batch     some whole rows of a step: what one microbatch is given
 *
 * A source (a tt_source_kind, a row of the table in data.c) makes rows; everything else is common. A step is filled before its
 * first cell; filling allocates nothing. A tt_data is used by one thread at a time; ranks open one each, or share what one has
 * filled.
 *
 * Legend: T tokens, N sequences.
 */
#ifndef TT_DATA_DATA_H
#define TT_DATA_DATA_H

#include "base/base.h"
#include "data/files.h"
#include "tok/tok.h"

#define TT_IGNORE (-100) /* the label of a token that has no next one to predict */

/* What a sequence is. TT_SEQUENCE_DOCUMENT: a document within a row; its last token has no label. TT_SEQUENCE_ROW: the whole
 * row, documents joined; the last token of a document is to predict the first of the next. */
typedef enum tt_sequence { TT_SEQUENCE_DOCUMENT, TT_SEQUENCE_ROW } tt_sequence;

/* Rows handed over in memory, for source "rows": row r of the stream is row r mod nrows of these. Borrowed. */
typedef struct tt_rows {
	const int32_t *ids;     /* [nrows, context_length]                                                                */
	const int32_t *labels;  /* [nrows, context_length], next token or TT_IGNORE; NULL: the next token of its sequence  */
	const int32_t *lengths; /* [nrows, max_sequences] padded with 0; a row's sum is context_length; NULL: one a row    */
	int64_t nrows, max_sequences;
} tt_rows;

typedef struct tt_data_options {
	const char *source; /* "text", "synthetic", "rows" */
	int64_t context_length, tokens_per_step;
	int vocab_size;     /* of the model: every id is below it */
	uint64_t seed;
	tt_sequence sequence;
	bool shuffle; /* documents, anew in each epoch; else in order */
	int64_t shuffle_window; /* training rows are taken in random order within windows of so many; 0, 1: in order */
	bool repeat;  /* begin again when the documents end; else tt_data_step ends with TT_ERR_STOP */
	/* Source "text". Names as data/files.h reads them; each file is a document. */
	const tt_tok *tok;
	const char *const *paths;
	const char *const *exclude;
	const char *const *valid_paths; /* held out: never trained on, even where `paths` has them too */
	int npaths, nexclude, nvalid_paths;
	int64_t valid_part, valid_parts; /* hold out the files with hash(relative path) mod valid_parts < valid_part; 0 0: none */
	/* Source "rows". */
	tt_rows rows;
} tt_data_options;

/* Some rows with what a model needs to know of them. Storage is the caller's; arrays are filled up to T, N, or nrows. */
typedef struct tt_step {
	int64_t cap_rows, context_length; /* what the arrays have room for; from here on written by filling */
	int64_t nrows, T, nsequences;
	int64_t nvalid;      /* labels that are not TT_IGNORE: what the loss is divided by */
	int32_t *ids;        /* [T]                                                        */
	int32_t *labels;     /* [T]                                                        */
	int32_t *positions;  /* [T] from 0 in each sequence                                */
	int32_t *seq_ids;    /* [T] index into seq_table                                   */
	int32_t *seq_table;  /* [N+1] first token of each sequence, then T                 */
	int64_t *row_tokens; /* [nrows+1] first token of each row, then T                  */
	int64_t *row_seqs;   /* [nrows+1] first sequence of each row, then N               */
	int64_t *row_valid;  /* [nrows] labels that are not TT_IGNORE                      */
} tt_step;
tt_step *tt_step_new(tt_arena *a, int64_t rows, int64_t context_length);

/* Rows [r0, r1) of a step as a microbatch. The first three arrays are views of the step; the others are numbered from 0 in
 * this batch, as kernels want them, in the caller's storage. r0 = r1 gives T = 0, nsequences = 0. */
typedef struct tt_batch {
	int64_t T, nsequences, nvalid;
	int64_t first;             /* index of its first token in the step */
	const int32_t *ids, *labels, *positions; /* [T] */
	int32_t *seq_ids;          /* [T]        */
	int32_t *seq_table;        /* [N+1]      */
	int32_t *lines;            /* [T] where the K/V of each token lies: t */
} tt_batch;
tt_batch *tt_batch_new(tt_arena *a, int64_t max_tokens);
void tt_batch_fill(const tt_step *s, int64_t r0, int64_t r1, tt_batch *out);

/* Context parallelism: a batch's tokens in the order in which `parts` ranks hold them. Rank i has tokens order[tt_deal(T, i, parts) ..
 * tt_deal(T, i + 1, parts)) of the batch.
 *   HEADTAIL  of each row of `context` tokens, cut in 2 parts pieces, rank i has the i-th and the i-th from behind: attended pairs are dealt
 *             about evenly where a row is one sequence
 *   COST      attended keys are counted, min(position + 1, window) of each token, and dealt evenly, whatever sequences there are: in pieces of
 *             up to 64 neighbours, of fewer where those do not balance
 *   NONE      rank i has the i-th of `parts` pieces of each row
 * By place in the row (the first and the last) some tokens at the cuts lie with a neighbour where rows do not divide. All are functions of the
 * batch alone, the same on every rank. order: [T]. */
typedef enum tt_balance { TT_BALANCE_HEADTAIL, TT_BALANCE_COST, TT_BALANCE_NONE } tt_balance;
const char *tt_balance_name(tt_balance b); /* the config's word */
typedef struct tt_dealer tt_dealer; /* what dealing needs, so that filling allocates nothing */
tt_dealer *tt_dealer_new(tt_arena *a, int64_t max_tokens, int parts);
void tt_batch_order(const tt_batch *b, int64_t context, int64_t window, tt_balance balance, tt_dealer *d, int32_t *order);
/* What ranks are given: ids, labels, positions and seq_ids of all tokens in that order, of which rank `part` has [first, first + T); the table of
 * sequences stays that of the batch; `lines` says where each of its tokens' keys lie once the ranks' shares are joined: all [tokens of the batch]. */
typedef struct tt_share {
	int64_t first, T;
	int32_t *ids, *labels, *positions, *seq_ids, *lines;
} tt_share;
tt_share *tt_share_new(tt_arena *a, int64_t max_tokens);
void tt_share_fill(const tt_batch *b, const int32_t *order, int part, int parts, tt_share *out);

typedef struct tt_data tt_data;
tt_status tt_data_open(tt_arena *a, const tt_data_options *o, tt_data **out) TT_CHECKED;
void tt_data_close(tt_data *d); /* accepts NULL */

int64_t tt_data_rows_per_step(const tt_data *d);
/* Step `step` (from 0). TT_ERR_STOP: without data.repeat the documents have ended; a last step of fewer rows than the others
 * is not made. */
tt_status tt_data_step(tt_data *d, int64_t step, tt_step *out) TT_CHECKED;

/* The validation set: the same rows in every run, in order, once; the last row may be shorter. 0: there is none. */
int64_t tt_data_valid_rows(const tt_data *d);
/* Rows from `first` on, as many as there are and `out` has room for. */
tt_status tt_data_valid(tt_data *d, int64_t first, tt_step *out) TT_CHECKED;

typedef struct tt_data_info {
	int64_t documents, tokens;             /* of one epoch; 0 where the source has no end */
	int64_t valid_documents, valid_tokens;
	int64_t empty;                         /* files passed over because they have no bytes */
	uint64_t fingerprint;                  /* of what the stream is made of: names, sizes, seed, options */
} tt_data_info;
tt_data_info tt_data_describe(const tt_data *d);

/* Where a run stands, kept in checkpoints. Since steps are pure functions, that is the step alone; the rest tells whether the
 * stream is still the same. */
typedef struct tt_data_cursor {
	int64_t step; /* the next one */
	int64_t context_length, tokens_per_step;
	uint64_t fingerprint;
	/* What the training files held, of a source that has files (else NULL): for each, in their order, TT_EVIDENCE hexadecimal digits, half of
	 * them of its name, half of its size and content (tt_file_sample). Of very many files only every `every`th, chosen by name, is read;
	 * of the others the size stands alone. Lives as long as the tt_data. */
	const char *files;
	int64_t every;
	const char *held; /* the same of the held-out files; NULL: there are none */
	int64_t held_every;
} tt_data_cursor;
#define TT_EVIDENCE 16
/* The first call reads samples of the files. */
tt_data_cursor tt_data_save(tt_data *d, int64_t step);
/* Error, with both values or the first file that is another, if the stream that `c` was saved of is not this one. Held-out files that are
 * others are a warning: nothing is trained on them. */
tt_status tt_data_restore(tt_data *d, const tt_data_cursor *c, int64_t *step) TT_CHECKED;

/* ---- sources ---------------------------------------------------------------------------------------------------- */

/* One row, filled by a source: its tokens, their labels and the lengths of its sequences, in order. */
typedef struct tt_row {
	int64_t n;           /* tokens: context_length, fewer only in the last row of a validation set */
	int64_t nsequences;
	int32_t *ids, *labels;
	int32_t *lengths;    /* of the sequences, each > 0, sum n; room for context_length of them */
} tt_row;

typedef struct tt_source_kind {
	const char *name, *doc;
	/* Sets self and info (fingerprint included) and the counts of rows. Opens nothing that outlives an error. */
	tt_status (*open)(tt_arena *a, const tt_data_options *o, tt_data *d);
	/* Row `row` of the stream, or of the validation set; within the counts. */
	tt_status (*next)(tt_data *d, bool valid, int64_t row, tt_row *out);
	/* Mixes into the fingerprint what is the source's own: what must not change under a saved cursor. */
	uint64_t (*save)(const tt_data *d, uint64_t h);
	/* Evidence of the files as tt_data_cursor keeps it, in d's arena; every 0: chosen, and written there. NULL: there are no files.
	 * held: of those that are held out. */
	const char *(*evidence)(tt_data *d, bool held, int64_t *every);
	/* How the first file of evidence `now` that is not as in `saved` differs; nothing is written if none does. */
	void (*difference)(const tt_data *d, bool held, const char *now, const char *saved, tt_buf *out);
	void (*close)(tt_data *d); /* NULL: nothing to close */
} tt_source_kind;

extern const tt_source_kind tt_source_text, tt_source_synthetic, tt_source_rows;

struct tt_data {
	tt_arena *arena;
	const tt_source_kind *kind;
	tt_data_options o;
	tt_data_info info;
	int64_t rows;       /* of the stream; INT64_MAX: it does not end */
	int64_t valid_rows;
	void *self;         /* the source's */
	int32_t *window;    /* [shuffle_window] order of rows in window `window_at` */
	int64_t window_at;  /* -1: none yet */
	const char *files, *held; /* evidence, once it was asked for */
	int64_t every, held_every;
};

/* A fingerprint with one more number in it. */
static inline uint64_t tt_data_mix(uint64_t h, uint64_t v) { return tt_hash64(&v, sizeof v, h); }
#endif
