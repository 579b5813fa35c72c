/* Source "text": each file is a document. The documents of an epoch are joined in an order of their own into a stream of
 * tokens; epochs follow each other without a gap, so no token is dropped and a row may hold the end of one epoch and the
 * beginning of the next.
 *
 * Files are read when a row needs them, never kept: memory is the list of files and two epochs' orders. A file that no longer
 * has the bytes it had when it was found is an error that names it.
 */
#define _GNU_SOURCE
#include "data/data.h"
#include "data/draw.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* An order of documents: the i-th is order[i] and begins at token start[i] of the epoch; start[n] is the epoch's end. */
typedef struct epoch {
	int64_t number; /* -1: not filled */
	int64_t *order; /* [n]   */
	int64_t *start; /* [n+1] */
} epoch;

typedef struct set {
	const tt_file *files;
	int64_t n, tokens;
	bool shuffle;
	epoch epochs[2]; /* a row may touch two: number mod 2 */
} set;

typedef struct text {
	set train, valid;
	uint8_t *bytes;      /* [context_length + 1] */
	int fd;              /* of `file`; -1 */
	const tt_file *file;
} text;

/* ---- open ------------------------------------------------------------------------------------------------------- */

static void set_init(tt_arena *a, set *s, const tt_file *files, int64_t n, bool shuffle)
{
	*s = (set){.files = files, .n = n, .shuffle = shuffle};
	for (int64_t i = 0; i < n; i++)
		s->tokens += files[i].size;
	for (int i = 0; i < 2; i++)
		s->epochs[i] = (epoch){-1, TT_NEWN(a, int64_t, n), TT_NEWN(a, int64_t, n + 1)};
}

static int file_order(const void *a, const void *b)
{
	const tt_file *x = a, *y = b;
	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	return (x->ino > y->ino) - (x->ino < y->ino);
}

/* Drawn by the hash of the relative path alone: neither other files, nor their order, nor the place of the whole matter. */
static bool drawn(const tt_data_options *o, const tt_file *f)
{
	return o->valid_parts && (int64_t)(tt_hash64(f->rel, strlen(f->rel), 0) % (uint64_t)o->valid_parts) < o->valid_part;
}

/* Tokens of one epoch that have a next one to predict: all but the last of each document, or of the whole where documents are joined. */
static int64_t usable(const set *s, tt_sequence sequence, bool endless)
{
	return sequence == TT_SEQUENCE_DOCUMENT ? s->tokens - s->n : endless ? s->tokens : s->tokens - (s->n > 0);
}

/* Text of which little or nothing can be learnt is said before the run, which would not fail by itself. */
static tt_status check_usable(const tt_data_options *o, const text *x)
{
	const set *s = &x->train;
	long long n = s->n, have = usable(s, o->sequence, o->repeat);
	const char *first = s->files[0].path, *files = n == 1 ? "file" : "files";
	if (have <= 0)
		TT_FAIL(TT_ERR_USAGE, "data.paths: no token has a next one to predict: %lld %s of 1 token%s, %s%s (0 usable tokens; name longer files%s)", n, files,
			n == 1 ? "" : " each", n == 1 ? "" : "the first is ", first,
			o->sequence == TT_SEQUENCE_DOCUMENT && n > 1 ? ", or join them: data.sequence = \"row\"" : "");
	if (have < o->tokens_per_step)
		tt_log(TT_LOG_WARN, "data.paths: %lld usable token%s in %lld %s, %s%s: every step of %lld repeats all of it (name more text; training.tokens_per_step)",
		       have, have == 1 ? "" : "s", n, files, n == 1 ? "" : "the first is ", first, (long long)o->tokens_per_step);
	else if (have < s->tokens / 2)
		tt_log(TT_LOG_WARN, "data.paths: %lld of %lld tokens are usable: the %lld files are short, and the last token of each has no next one to predict "
		       "(data.sequence = \"row\" joins them)", have, (long long)s->tokens, n);
	if (x->valid.n && usable(&x->valid, o->sequence, false) <= 0)
		tt_log(TT_LOG_WARN, "validation: none of the %lld held-out files, the first is %s, has a token to predict (validation.paths, validation.fraction)",
		       (long long)x->valid.n, x->valid.files[0].path);
	return TT_OK;
}

static tt_status text_open(tt_arena *a, const tt_data_options *o, tt_data *d)
{
	if (!o->tok)
		TT_FAIL(TT_ERR_USAGE, "data source \"text\" needs a tokenizer (data.tokenizer)");
	if (!o->tok->byte_exact)
		TT_FAIL(TT_ERR_USAGE, "data source \"text\" cannot use tokenizer \"%s\": it needs one with an id for each byte",
			o->tok->kind->name);
	if (o->tok->vocab_size > o->vocab_size)
		TT_FAIL(TT_ERR_USAGE, "tokenizer \"%s\" has %d ids, model.vocab_size is %d", o->tok->kind->name, o->tok->vocab_size,
			o->vocab_size);
	if (o->npaths == 0)
		TT_FAIL(TT_ERR_USAGE, "data.paths is empty: no text to train on");
	if (o->valid_parts < 0 || o->valid_part < 0 || o->valid_part > o->valid_parts)
		TT_FAIL(TT_ERR_USAGE, "held out: %lld of %lld parts of the files", (long long)o->valid_part, (long long)o->valid_parts);
	tt_files listed = {0}, found = {0};
	TT_TRY(tt_files_find(a, "validation.paths", o->valid_paths, o->nvalid_paths, NULL, 0, &listed));
	TT_TRY(tt_files_find(a, "data.paths", o->paths, o->npaths, o->exclude, o->nexclude, &found));
	tt_files train = {0}, valid = listed;
	tt_file *by_id = TT_NEWN(a, tt_file, listed.n + 1);
	if (listed.n) {
		memcpy(by_id, listed.items, sizeof *by_id * (size_t)listed.n);
		qsort(by_id, (size_t)listed.n, sizeof *by_id, file_order);
	}
	for (int64_t i = 0; i < found.n; i++) {
		const tt_file f = found.items[i];
		if (bsearch(&f, by_id, (size_t)listed.n, sizeof f, file_order))
			continue;
		if (drawn(o, &f))
			TT_PUSH(a, valid.items, valid.n, valid.cap, f);
		else
			TT_PUSH(a, train.items, train.n, train.cap, f);
	}
	if (train.n == 0)
		TT_FAIL(TT_ERR_USAGE, "data.paths: of %lld files %lld have no bytes and %lld are held out for validation: none is left",
			(long long)(found.n + found.empty), (long long)found.empty, (long long)found.n);
	text *x = TT_NEW(a, text);
	set_init(a, &x->train, train.items, train.n, o->shuffle);
	set_init(a, &x->valid, valid.items, valid.n, false);
	x->bytes = TT_NEWN(a, uint8_t, o->context_length + 1);
	x->fd = -1;
	d->self = x;
	if (!o->repeat) {
		if (x->train.tokens < o->tokens_per_step)
			TT_FAIL(TT_ERR_USAGE,
				"data.paths: %lld tokens in %lld files are less than a step of %lld (training.tokens_per_step; or "
				"data.repeat = true)",
				(long long)x->train.tokens, (long long)train.n, (long long)o->tokens_per_step);
		d->rows = x->train.tokens / o->context_length;
	}
	TT_TRY(check_usable(o, x));
	d->valid_rows = tt_ceil_div(x->valid.tokens, o->context_length);
	d->info = (tt_data_info){train.n, x->train.tokens, valid.n, x->valid.tokens, found.empty + listed.empty, 0};
	return TT_OK;
}

static void text_close(tt_data *d)
{
	text *x = d->self;
	if (x->fd >= 0)
		close(x->fd);
	x->fd = -1;
}

static uint64_t text_save(const tt_data *d, uint64_t h)
{
	const text *x = d->self;
	for (int64_t i = 0; i < x->train.n; i++) {
		const tt_file *f = &x->train.files[i];
		h = tt_data_mix(tt_hash64(f->rel, strlen(f->rel), h), (uint64_t)f->size);
	}
	return h;
}

/* ---- evidence ------------------------------------------------------------------------------------------------------ */

/* Most that is read for evidence: at some 20 microseconds a file and a few gigabytes a second, under a tenth of a second when a run is resumed or
 * first saves. */
enum { EVIDENCE_FILES = 4096 };
static const int64_t EVIDENCE_BYTES = 256 * TT_MIB;

static int64_t evidence_every(const set *s)
{
	int64_t bytes = 0;
	for (int64_t i = 0; i < s->n; i++)
		bytes += TT_MIN(s->files[i].size, (int64_t)TT_FILE_SAMPLE);
	return TT_MAX((int64_t)1, TT_MAX(tt_ceil_div(s->n, EVIDENCE_FILES), tt_ceil_div(bytes, EVIDENCE_BYTES)));
}

static void digits(char *out, uint32_t v)
{
	for (int i = 7; i >= 0; i--, v >>= 4)
		out[i] = "0123456789abcdef"[v & 15];
}

static const set *set_of(const tt_data *d, bool held)
{
	const text *x = d->self;
	return held ? &x->valid : &x->train;
}

static const char *text_evidence(tt_data *d, bool held, int64_t *every)
{
	const set *s = set_of(d, held);
	if (held && !s->n)
		return NULL;
	if (!*every)
		*every = evidence_every(s);
	tt_arena *scratch = tt_arena_create("evidence");
	uint8_t *buffer = tt_arena_alloc(scratch, TT_FILE_SAMPLE);
	char *out = tt_arena_alloc(d->arena, (size_t)(s->n * TT_EVIDENCE + 1)); /* ends with a NUL */
	for (int64_t i = 0; i < s->n; i++) {
		const tt_file *f = &s->files[i];
		uint32_t name = tt_hash32(f->rel);
		bool sampled = name % (uint64_t)*every == 0;
		digits(out + i * TT_EVIDENCE, name);
		digits(out + i * TT_EVIDENCE + 8, (uint32_t)(sampled ? tt_file_sample(f, buffer) : tt_mix64((uint64_t)f->size)));
	}
	tt_arena_destroy(scratch);
	return out;
}

static bool name_among(const char *evidence, int64_t n, const char *name)
{
	for (int64_t i = 0; i < n; i++)
		if (!memcmp(evidence + i * TT_EVIDENCE, name, 8))
			return true;
	return false;
}

static void text_difference(const tt_data *d, bool held, const char *now, const char *saved, tt_buf *out)
{
	const set *s = set_of(d, held);
	int64_t was = (int64_t)strlen(saved) / TT_EVIDENCE, both = TT_MIN(was, s->n), i = 0;
	while (i < both && !memcmp(now + i * TT_EVIDENCE, saved + i * TT_EVIDENCE, TT_EVIDENCE))
		i++;
	if (i == was && i == s->n)
		return;
	if (i == s->n) {
		tt_buf_printf(out, "the files after %s are gone", s->files[i - 1].path);
	} else {
		const char *name = now + i * TT_EVIDENCE;
		if (i < was && !memcmp(name, saved + i * TT_EVIDENCE, 8))
			tt_buf_printf(out, "%s has changed", s->files[i].path);
		else if (name_among(saved, was, name))
			tt_buf_printf(out, "before %s a file is gone, or the order of the files is another", s->files[i].path);
		else
			tt_buf_printf(out, "%s is new", s->files[i].path);
	}
	tt_buf_printf(out, "; there were %lld files %s, there are %lld", (long long)was, held ? "held out" : "to train on", (long long)s->n);
}

/* ---- epochs ----------------------------------------------------------------------------------------------------- */

static const epoch *epoch_get(set *s, uint64_t seed, int64_t number)
{
	epoch *e = &s->epochs[number & 1];
	if (e->number == number)
		return e;
	for (int64_t i = 0; i < s->n; i++)
		e->order[i] = i;
	/* Fisher-Yates, from the top; draw i depends on (seed, epoch, i) alone. */
	random_stream draws = random_stream_of(seed, number, "documents", "shuffle");
	for (int64_t i = s->n - 1; s->shuffle && i > 0; i--) {
		int64_t j = (int64_t)tt_data_below(&draws, (uint64_t)i, (uint64_t)i + 1), other = e->order[j];
		e->order[j] = e->order[i];
		e->order[i] = other;
	}
	int64_t at = 0;
	for (int64_t i = 0; i < s->n; i++) {
		e->start[i] = at;
		at += s->files[e->order[i]].size;
	}
	e->start[s->n] = at;
	e->number = number;
	return e;
}

/* The document that holds token `pos` of the stream, and which of its tokens that is. */
static const tt_file *locate(set *s, uint64_t seed, int64_t pos, int64_t *offset)
{
	const epoch *e = epoch_get(s, seed, pos / s->tokens);
	int64_t at = pos % s->tokens, lo = 0, hi = s->n;
	while (hi - lo > 1) {
		int64_t mid = lo + (hi - lo) / 2;
		if (e->start[mid] <= at)
			lo = mid;
		else
			hi = mid;
	}
	*offset = at - e->start[lo];
	return &s->files[e->order[lo]];
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

/* Bytes [first, first+n) of a document. Rows of one document follow each other, so its file stays open until another is read. */
static tt_status bytes_read(text *x, const tt_file *f, int64_t first, int64_t n)
{
	if (x->file != f || x->fd < 0) {
		if (x->fd >= 0)
			close(x->fd);
		x->fd = open(f->path, O_RDONLY | O_CLOEXEC);
		x->file = f;
		if (x->fd < 0)
			TT_FAIL(TT_ERR_IO, "%s: cannot open: %m", f->path);
	}
	for (int64_t done = 0; done < n;) {
		ssize_t r = pread(x->fd, x->bytes + done, (size_t)(n - done), (off_t)(first + done));
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			TT_FAIL(TT_ERR_IO, "%s: cannot read: %m", f->path);
		if (r == 0)
			TT_FAIL(TT_ERR_IO, "%s: had %lld bytes when the run began and has %lld now; data must not change under a run",
				f->path, (long long)f->size, (long long)(first + done));
		done += r;
	}
	return TT_OK;
}

static tt_status encode(const tt_tok *tok, const tt_file *f, const uint8_t *bytes, int64_t n, int32_t *ids)
{
	int64_t count;
	TT_TRY(tt_tok_encode(tok, bytes, n, ids, n, &count));
	TT_ASSERT(count == n, "%s: %lld bytes, %lld ids", f->path, (long long)n, (long long)count);
	return TT_OK;
}

static tt_status text_next(tt_data *d, bool valid, int64_t row, tt_row *out)
{
	text *x = d->self;
	set *s = valid ? &x->valid : &x->train;
	const tt_tok *tok = d->o.tok;
	int64_t first = row * d->o.context_length;
	int64_t end = valid || !d->o.repeat ? s->tokens : INT64_MAX; /* of the stream */
	int64_t n = TT_MIN(d->o.context_length, end - first);
	int64_t nsequences = 0;
	for (int64_t i = 0; i < n;) {
		int64_t offset;
		const tt_file *f = locate(s, d->o.seed, first + i, &offset);
		int64_t left = f->size - offset, len = TT_MIN(left, n - i);
		bool more = left > len;
		TT_TRY(bytes_read(x, f, offset, len + more));
		TT_TRY(encode(tok, f, x->bytes, len, out->ids + i));
		memcpy(out->labels + i, out->ids + i + 1, sizeof *out->labels * (size_t)(len - 1));
		int32_t *last = &out->labels[i + len - 1];
		*last = TT_IGNORE;
		if (more)
			TT_TRY(encode(tok, f, x->bytes + len, 1, last));
		else if (d->o.sequence == TT_SEQUENCE_ROW && first + i + len < end) {
			f = locate(s, d->o.seed, first + i + len, &offset);
			TT_TRY(bytes_read(x, f, offset, 1));
			TT_TRY(encode(tok, f, x->bytes, 1, last));
		}
		out->lengths[nsequences++] = (int32_t)len;
		i += len;
	}
	if (d->o.sequence == TT_SEQUENCE_ROW) {
		out->lengths[0] = (int32_t)n;
		nsequences = 1;
	}
	out->n = n;
	out->nsequences = nsequences;
	return TT_OK;
}

const tt_source_kind tt_source_text = {
	.name = "text",
	.doc = "files, folders and globs; each file is a document",
	.open = text_open,
	.next = text_next,
	.save = text_save,
	.evidence = text_evidence,
	.difference = text_difference,
	.close = text_close,
};
