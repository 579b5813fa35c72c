/* tok: between bytes and token ids.
 *
 * A tokenizer is opened by name and read-only from then on, so ranks may share one. Where a document ends is not told by
 * a token: the loader knows it and tells it by sequence boundaries.
 */
#ifndef TT_TOK_H
#define TT_TOK_H

#include "base/base.h"

typedef struct tt_tok tt_tok;

/* A row of the table of tokenizers. */
typedef struct tt_tok_kind {
	const char *name, *doc;
	/* Fills vocab_size, bos, eos, byte_exact and self. `path`: the tokenizer's file, NULL where none was given. */
	tt_status (*open)(tt_arena *a, const char *path, tt_tok *t);
	/* As tt_tok_encode and tt_tok_decode. */
	tt_status (*encode)(const tt_tok *t, const void *bytes, int64_t n, int32_t *ids, int64_t cap, int64_t *count);
	tt_status (*decode)(const tt_tok *t, const int32_t *ids, int64_t n, tt_buf *out);
} tt_tok_kind;

struct tt_tok {
	const tt_tok_kind *kind;
	int vocab_size;  /* ids are 0 .. vocab_size-1                                                */
	int bos, eos;    /* -1: there is none                                                        */
	bool byte_exact; /* id i of a text stands for its byte i: any part of it encodes on its own  */
	const void *self;
};

extern const tt_tok_kind tt_tok_kinds[]; /* ended by a NULL name */

/* Error: an unknown name, with the nearest and all there are. The result lives in `a`. */
tt_status tt_tok_open(tt_arena *a, const char *name, const char *path, const tt_tok **out) TT_CHECKED;

/* The ids of `n` bytes. At most `n` ids come out of n bytes; fewer than that in `cap` is an error. */
tt_status tt_tok_encode(const tt_tok *t, const void *bytes, int64_t n, int32_t *ids, int64_t cap,
			int64_t *count) TT_CHECKED;
/* Appends the bytes of `n` ids to `out`; an id outside the vocabulary is an error and appends nothing. */
tt_status tt_tok_decode(const tt_tok *t, const int32_t *ids, int64_t n, tt_buf *out) TT_CHECKED;

#endif
