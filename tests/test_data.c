/* data and tok: finding files, the stream and its rows, validation, microbatches, the cursor. */
#define _GNU_SOURCE
#include "test.h"

#include "data/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a small corpus ----------------------------------------------------------------------------------------------- */

static void put(tt_test *t, const char *name, const void *bytes, size_t n)
{
	const char *path = tt_test_path(t, name);
	char *folder = tt_arena_strdup(t->arena, path);
	*strrchr(folder, '/') = 0;
	TT_CHECK_OK(t, tt_mkdirs(folder));
	TT_CHECK_OK(t, tt_file_write(path, bytes, n));
}

static void put_text(tt_test *t, const char *name, const char *text) { put(t, name, text, strlen(text)); }

static const char *join(tt_test *t, const tt_files *f)
{
	tt_buf b = {0};
	tt_buf_str(&b, "");
	for (int64_t i = 0; i < f->n; i++)
		tt_buf_printf(&b, "%s%s", i ? " " : "", f->items[i].rel);
	char *s = tt_arena_strdup(t->arena, b.s ? b.s : "");
	tt_buf_fini(&b);
	return s;
}

/* Relative paths found by up to two sources below the case's folder and one exclude. */
static const char *found(tt_test *t, const char *source, const char *second, const char *exclude)
{
	const char *sources[2] = {tt_test_path(t, source), second ? tt_test_path(t, second) : NULL};
	tt_files f = {0};
	if (!TT_CHECK_OK(t, tt_files_find(t->arena, "data.paths", sources, second ? 2 : 1, &exclude, exclude ? 1 : 0, &f)))
		return "";
	return join(t, &f);
}

static tt_status find_one(tt_test *t, const char *path)
{
	tt_files f = {0};
	return tt_files_find(t->arena, "data.paths", &path, 1, NULL, 0, &f);
}

static void ignore(void *ctx, tt_log_level level, const char *line)
{
	(void)level;
	if (ctx)
		snprintf(ctx, 256, "%s", line);
}

static void make_tree(tt_test *t)
{
	const char *names[] = {"c/b.h", "c/a.h", "c/sub/z.h", "c/sub/deep/y.c", "c/sub/deep/x.h", "c/B.h", "c/a/q.h", "c/.git/o.h",
			       "c/.hid.h", "c/a.c", "other/k.h", "c/a-b/w.h"};
	for (int i = 0; i < TT_COUNT(names); i++)
		put_text(t, names[i], names[i]);
	put_text(t, "c/empty.h", "");
}

static void files_order_and_globs(tt_test *t)
{
	make_tree(t);
	/* Bytes, not letters: 'B' before 'a', '-' and '.' before '/'. */
	TT_CHECK_STR(t, found(t, "c", NULL, NULL),
		"B.h a-b/w.h a.c a.h a/q.h b.h sub/deep/x.h sub/deep/y.c sub/z.h");
	TT_CHECK_STR(t, found(t, "c/", NULL, NULL), found(t, "c", NULL, NULL));
	TT_CHECK_STR(t, found(t, "c/*.h", NULL, NULL), "B.h a.h b.h");
	TT_CHECK_STR(t, found(t, "c/**/*.h", NULL, NULL), "B.h a-b/w.h a.h a/q.h b.h sub/deep/x.h sub/z.h");
	TT_CHECK_STR(t, found(t, "c/**", NULL, NULL), found(t, "c", NULL, NULL));
	TT_CHECK_STR(t, found(t, "c/**/**/deep/**/*", NULL, NULL), "sub/deep/x.h sub/deep/y.c");
	TT_CHECK_STR(t, found(t, "c/**/deep/?.c", NULL, NULL), "sub/deep/y.c");
	TT_CHECK_STR(t, found(t, "c/[ab].h", NULL, NULL), "a.h b.h");
	TT_CHECK_STR(t, found(t, "c/*/*.h", NULL, NULL), "a-b/w.h a/q.h sub/z.h");
	TT_CHECK_STR(t, found(t, "c/.git/*", NULL, NULL), "o.h");
	TT_CHECK_STR(t, found(t, "c/.h*", NULL, NULL), ".hid.h");
	TT_CHECK_STR(t, found(t, "c/sub/deep/y.c", NULL, NULL), "y.c");
	/* Each file once, at its first place; the order of sources stands. */
	TT_CHECK_STR(t, found(t, "c/sub", "c/**/*.c", NULL), "deep/x.h deep/y.c z.h a.c");
	TT_CHECK_STR(t, found(t, "other", "c/*.c", NULL), "k.h a.c");
	/* A name that exists is taken as it is. */
	put_text(t, "d/x[1].h", "x");
	TT_CHECK_STR(t, found(t, "d/x[1].h", NULL, NULL), "x[1].h");
}

static void files_exclude(tt_test *t)
{
	char line[256] = "";
	make_tree(t);
	tt_log_set_sink(ignore, line);
	TT_CHECK_STR(t, found(t, "c", NULL, "*.h"), "a.c sub/deep/y.c");
	TT_CHECK_STR(t, found(t, "c", NULL, "sub"), "B.h a-b/w.h a.c a.h a/q.h b.h");
	TT_CHECK_STR(t, found(t, "c", NULL, "sub/deep/*"), "B.h a-b/w.h a.c a.h a/q.h b.h sub/z.h");
	TT_CHECK_STR(t, found(t, "c", NULL, "**/deep/*.h"), "B.h a-b/w.h a.c a.h a/q.h b.h sub/deep/y.c sub/z.h");
	TT_CHECK_STR(t, found(t, "c", NULL, tt_test_path(t, "c/sub/*")), "B.h a-b/w.h a.c a.h a/q.h b.h");
	TT_CHECK_STR(t, line, "");
	found(t, "c", NULL, "*.hpp");
	TT_CHECK_STR(t, line, "*.hpp: no file of data.paths is excluded by this pattern");
	const char *c = tt_test_path(t, "c"), *all = "*";
	tt_files f = {0};
	TT_CHECK_FAILS(t, tt_files_find(t->arena, "data.paths", &c, 1, &all, 1, &f), TT_ERR_USAGE, "or all are excluded (data.paths)");
	TT_CHECK_INT(t, f.n, 0);
}

static void files_links(tt_test *t)
{
	char line[256] = "";
	tt_log_set_sink(ignore, line);
	put_text(t, "a/one.h", "1");
	put_text(t, "a/b/two.h", "2");
	TT_CHECK(t, symlink("..", tt_test_path(t, "a/b/up")) == 0 && symlink("self", tt_test_path(t, "a/self")) == 0);
	TT_CHECK(t, symlink("one.h", tt_test_path(t, "a/same.h")) == 0 && symlink("/nowhere/at/all", tt_test_path(t, "a/gone.h")) == 0);
	TT_CHECK(t, symlink("a", tt_test_path(t, "link")) == 0 && mkfifo(tt_test_path(t, "a/pipe.h"), 0600) == 0);
	/* same.h is one.h: kept once, by the first name. The pipe is not opened, `up` not entered. */
	TT_CHECK_STR(t, found(t, "a", NULL, NULL), "b/two.h one.h");
	TT_CHECK_STR(t, line, "data.paths: 2 links that lead nowhere are passed over");
	TT_CHECK_STR(t, found(t, "link", NULL, NULL), "b/two.h one.h");
	TT_CHECK_STR(t, found(t, "a/**/up/*.h", NULL, NULL), "b/up/one.h");
	TT_CHECK_STR(t, found(t, "l*/*.h", NULL, NULL), "link/one.h");
	TT_CHECK_FAILS(t, find_one(t, tt_test_path(t, "a/self")), TT_ERR_IO, "a/self: Too many levels");
	TT_CHECK_FAILS(t, find_one(t, tt_test_path(t, "a/pipe.h")), TT_ERR_USAGE, "a/pipe.h: neither a file nor a folder");
}

static void files_errors(tt_test *t)
{
	make_tree(t);
	TT_CHECK_FAILS(t, find_one(t, tt_test_path(t, "c/none.h")), TT_ERR_IO, "c/none.h: No such file or directory (data.paths)");
	TT_CHECK_FAILS(t, find_one(t, tt_test_path(t, "c/*.rs")), TT_ERR_USAGE, "c/*.rs: the pattern matches no file");
	TT_CHECK_FAILS(t, find_one(t, tt_test_path(t, "no/*.rs")), TT_ERR_IO, "no/: No such file or directory");
	TT_CHECK_FAILS(t, find_one(t, ""), TT_ERR_USAGE, "data.paths: an empty name");
	tt_buf many = {0};
	tt_buf_str(&many, "*");
	for (int i = 0; i < 64; i++)
		tt_buf_str(&many, "/**");
	TT_CHECK_FAILS(t, find_one(t, many.s), TT_ERR_USAGE, "more than 63 components");
	tt_buf_fini(&many);
	/* Root may read everything: become somebody else, in this case's own process. */
	put_text(t, "p/secret.h", "s");
	put_text(t, "q/sub/x.h", "s");
	const char *p = tt_test_path(t, "p"), *q = tt_test_path(t, "q");
	TT_CHECK(t, chmod(tt_test_path(t, "p/secret.h"), 0) == 0 && chmod(tt_test_path(t, "q/sub"), 0) == 0);
	TT_CHECK(t, chmod(tt_test_tmp(t), 0755) == 0);
	if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0)
		TT_SKIP(t, "cannot become another user");
	TT_CHECK_FAILS(t, find_one(t, p), TT_ERR_IO, "p/secret.h: cannot be read: Permission denied");
	TT_CHECK_FAILS(t, find_one(t, q), TT_ERR_IO, "q/sub: cannot read the folder: Permission denied");
}

/* ---- the stream --------------------------------------------------------------------------------------------------- */

enum { DOCS = 9, CTX = 16 };
/* Sizes: one token, shorter and longer than rows, exact multiples, one of several rows. */
static const int SIZES[DOCS] = {1, 5, 16, 15, 17, 32, 50, 2, 1};
enum { TOKENS = 1 + 5 + 16 + 15 + 17 + 32 + 50 + 2 + 1 };

/* Byte i of document d: tells both apart, so that a token says where it comes from. */
static int byte_of(int d, int i) { return (d * 27 + i * (2 * d + 1) + 11 * d * d) & 255; }

static void make_docs(tt_test *t)
{
	for (int d = 0; d < DOCS; d++) {
		uint8_t bytes[64];
		for (int i = 0; i < SIZES[d]; i++)
			bytes[i] = (uint8_t)byte_of(d, i);
		char name[32];
		snprintf(name, sizeof name, "docs/%d", d);
		put(t, name, bytes, (size_t)SIZES[d]);
	}
	put_text(t, "docs/none", "");
}

static tt_data_options options(tt_test *t)
{
	tt_log_set_level(TT_LOG_ERROR); /* that all of this is little text need not be said */
	const tt_tok *tok = NULL;
	TT_CHECK_OK(t, tt_tok_open(t->arena, "bytes", NULL, &tok));
	const char **paths = TT_NEWN(t->arena, const char *, 1);
	paths[0] = tt_test_path(t, "docs");
	return (tt_data_options){.source = "text", .context_length = CTX, .tokens_per_step = 4 * CTX, .vocab_size = 256, .seed = 3,
				 .shuffle = true, .repeat = true, .tok = tok, .paths = paths, .npaths = 1};
}

static tt_data *open_data(tt_test *t, const tt_data_options *o)
{
	tt_data *d = NULL;
	TT_CHECK_OK(t, tt_data_open(t->arena, o, &d));
	return d;
}

/* `rows` rows from row 0 on, as one step-shaped thing. */
static tt_step *stream(tt_test *t, tt_data_options o, int64_t rows)
{
	o.tokens_per_step = rows * o.context_length;
	tt_data *d = open_data(t, &o);
	tt_step *s = tt_step_new(t->arena, rows, o.context_length);
	if (d && TT_CHECK_OK(t, tt_data_step(d, 0, s)))
		TT_CHECK_INT(t, s->nrows, rows);
	tt_data_close(d);
	return s;
}

static bool same_steps(const tt_step *a, const tt_step *b)
{
	size_t T = sizeof(int32_t) * (size_t)a->T;
	return a->T == b->T && a->nsequences == b->nsequences && a->nvalid == b->nvalid && !memcmp(a->ids, b->ids, T) &&
	       !memcmp(a->labels, b->labels, T) && !memcmp(a->positions, b->positions, T) && !memcmp(a->seq_ids, b->seq_ids, T) &&
	       !memcmp(a->seq_table, b->seq_table, sizeof(int32_t) * (size_t)(a->nsequences + 1));
}

/* What the table, positions and counts must be, given where sequences begin. */
static void check_tables(tt_test *t, const tt_step *s)
{
	int64_t nvalid = 0;
	TT_CHECK_INT(t, s->seq_table[0], 0);
	TT_CHECK_INT(t, s->seq_table[s->nsequences], s->T);
	TT_CHECK_INT(t, s->row_tokens[s->nrows], s->T);
	for (int64_t q = 0; q < s->nsequences; q++) {
		TT_CHECK(t, s->seq_table[q] < s->seq_table[q + 1]);
		for (int32_t i = s->seq_table[q]; i < s->seq_table[q + 1]; i++)
			if (!TT_CHECK(t, s->seq_ids[i] == q && s->positions[i] == i - s->seq_table[q]))
				return;
	}
	for (int64_t r = 0; r < s->nrows; r++) {
		int64_t valid = 0;
		for (int64_t i = s->row_tokens[r]; i < s->row_tokens[r + 1]; i++)
			valid += s->labels[i] != TT_IGNORE;
		TT_CHECK_INT(t, s->row_valid[r], valid);
		TT_CHECK_INT(t, s->seq_table[s->row_seqs[r]], s->row_tokens[r]);
		nvalid += valid;
	}
	TT_CHECK_INT(t, s->nvalid, nvalid);
}

/* Reads the stream as a reader who knows the documents: each epoch must have each once, whole; sequences begin where a
 * document or a row begins; labels are the next token of the document. Writes the order of documents, `epochs` times DOCS. */
static void check_documents(tt_test *t, const tt_step *s, int epochs, bool joined, int *order)
{
	int64_t at = 0;
	for (int e = 0; e < epochs; e++) {
		bool used[DOCS] = {false};
		for (int k = 0; k < DOCS; k++) {
			int doc = -1;
			for (int d = 0; d < DOCS && doc < 0; d++) {
				bool fits = !used[d] && at + SIZES[d] <= s->T;
				for (int i = 0; i < SIZES[d] && fits; i++)
					fits = s->ids[at + i] == byte_of(d, i);
				/* A longer one that also fits would be another document's beginning. */
				if (fits)
					doc = d;
			}
			if (!TT_CHECK_MSG(t, doc >= 0, "no document begins at token %lld", (long long)at))
				return;
			used[doc] = true;
			order[e * DOCS + k] = doc;
			for (int i = 0; i < SIZES[doc]; i++, at++) {
				bool last = i == SIZES[doc] - 1;
				int want = !last ? byte_of(doc, i + 1) : joined && at + 1 < s->T ? s->ids[at + 1] : TT_IGNORE;
				if (!(joined && at + 1 == s->T))
					TT_CHECK_INT(t, s->labels[at], want);
				bool begins = at % CTX == 0 || (i == 0 && !joined);
				if (!TT_CHECK_MSG(t, (s->positions[at] == 0) == begins, "token %lld: position %d", (long long)at, s->positions[at]))
					return;
			}
		}
	}
}

static void text_documents(tt_test *t)
{
	make_docs(t);
	tt_data_options o = options(t);
	int order[6 * DOCS];
	tt_step *s = stream(t, o, (6 * TOKENS + CTX) / CTX);
	check_tables(t, s);
	check_documents(t, s, 6, false, order);
	bool differ = false;
	for (int e = 1; e < 6; e++)
		differ |= memcmp(order, order + e * DOCS, sizeof(int) * DOCS) != 0;
	TT_CHECK_MSG(t, differ, "six epochs have one order");
	/* The order is part of what a saved run stands on: it must never change. */
	static const int FIRST[DOCS] = {8, 2, 1, 0, 5, 3, 7, 6, 4};
	TT_CHECK_MSG(t, memcmp(order, FIRST, sizeof FIRST) == 0, "order of epoch 0 is %d %d %d %d %d %d %d %d %d", order[0],
		order[1], order[2], order[3], order[4], order[5], order[6], order[7], order[8]);
	/* Another seed, another order; none without shuffle. */
	o.seed = 4;
	TT_CHECK(t, !same_steps(s, stream(t, o, s->nrows)));
	o.shuffle = false;
	s = stream(t, o, (2 * TOKENS + CTX) / CTX);
	check_documents(t, s, 2, false, order);
	for (int i = 0; i < 2 * DOCS; i++)
		TT_CHECK_INT(t, order[i], i % DOCS);
}

/* Every document comes at every place of an epoch, about as often. */
static void text_shuffle_uniform(tt_test *t)
{
	make_docs(t);
	enum { EPOCHS = 900 };
	int *order = TT_NEWN(t->arena, int, EPOCHS * DOCS), count[DOCS * DOCS] = {0};
	check_documents(t, stream(t, options(t), (EPOCHS * TOKENS + CTX) / CTX), EPOCHS, false, order);
	double chi = 0, mean = (double)EPOCHS / DOCS;
	for (int i = 0; i < EPOCHS * DOCS; i++)
		count[i % DOCS * DOCS + order[i]]++;
	for (int i = 0; i < DOCS * DOCS; i++)
		chi += (count[i] - mean) * (count[i] - mean) / mean;
	/* 64 degrees of freedom: 112 is passed once in 10,000. */
	TT_CHECK_MSG(t, chi < 112, "chi square %g", chi);
}

static void text_joined(tt_test *t)
{
	make_docs(t);
	tt_data_options o = options(t);
	o.sequence = TT_SEQUENCE_ROW;
	int64_t rows = (3 * TOKENS + CTX) / CTX;
	int order[3 * DOCS];
	tt_step *s = stream(t, o, rows), *more = stream(t, o, rows + 1);
	check_tables(t, s);
	check_documents(t, s, 3, true, order);
	TT_CHECK_INT(t, s->nsequences, rows);
	TT_CHECK_INT(t, s->nvalid, rows * CTX);
	TT_CHECK_INT(t, s->labels[s->T - 1], more->ids[s->T]);
}

/* Row r of step s depends on nothing but s, r and the options. */
static void text_pure(tt_test *t)
{
	make_docs(t);
	tt_data_options o = options(t);
	tt_data *d = open_data(t, &o), *other = open_data(t, &o);
	enum { STEPS = 40 };
	tt_step *s[STEPS], *again = tt_step_new(t->arena, 4, CTX);
	for (int i = 0; i < STEPS; i++) {
		s[i] = tt_step_new(t->arena, 4, CTX);
		TT_CHECK_OK(t, tt_data_step(d, i, s[i]));
		check_tables(t, s[i]);
	}
	for (int i = 0; i < 3 * STEPS; i++) {
		int k = (i * 23 + 7) % STEPS;
		TT_CHECK_OK(t, tt_data_step(i % 2 ? d : other, k, again));
		TT_CHECK_MSG(t, same_steps(again, s[k]), "step %d", k);
	}
	/* Other steps, the same rows. */
	tt_step *all = stream(t, o, 4 * STEPS);
	for (int i = 0; i < STEPS; i++)
		TT_CHECK(t, memcmp(all->ids + i * 4 * CTX, s[i]->ids, sizeof(int32_t) * 4 * CTX) == 0 &&
				    memcmp(all->labels + i * 4 * CTX, s[i]->labels, sizeof(int32_t) * 4 * CTX) == 0);
	/* Far away, and with a corpus that is much shorter than a row. */
	TT_CHECK_OK(t, tt_data_step(d, (int64_t)1 << 50, again));
	tt_data_close(d);
	tt_data_close(other);
	put_text(t, "tiny/a", "xy");
	put_text(t, "tiny/b", "z");
	o.paths = &(const char *){tt_test_path(t, "tiny")};
	tt_step *tiny = stream(t, o, 3);
	TT_CHECK_INT(t, tiny->nsequences, 32); /* 16 epochs of 2; under this seed no row ends within the pair "xy" */
	check_tables(t, tiny);
}

static void text_ends(tt_test *t)
{
	make_docs(t);
	tt_data_options o = options(t);
	o.repeat = false;
	tt_data *d = open_data(t, &o);
	tt_step *s = tt_step_new(t->arena, 4, CTX);
	TT_CHECK_OK(t, tt_data_step(d, 0, s));
	TT_CHECK_OK(t, tt_data_step(d, 1, s));
	TT_CHECK_FAILS(t, tt_data_step(d, 2, s), TT_ERR_STOP, "the text ends after 2 steps: 139 tokens in 9 documents (data.repeat = false)");
	tt_data_close(d);
	o.tokens_per_step = 16 * CTX;
	TT_CHECK_FAILS(t, tt_data_open(t->arena, &o, &d), TT_ERR_USAGE, "139 tokens in 9 files are less than a step of 256");
	/* The very last label of joined documents has no next token. */
	o.tokens_per_step = o.context_length = TOKENS;
	o.sequence = TT_SEQUENCE_ROW;
	s = stream(t, o, 1);
	TT_CHECK_INT(t, s->labels[TOKENS - 1], TT_IGNORE);
	TT_CHECK_INT(t, s->nvalid, TOKENS - 1);
}

static void text_errors(tt_test *t)
{
	make_docs(t);
	tt_data_options o = options(t), bad = o;
	tt_data *d = NULL;
	bad.tokens_per_step = 40;
	TT_CHECK_FAILS(t, tt_data_open(t->arena, &bad, &d), TT_ERR_USAGE,
		"training.tokens_per_step 40 is no multiple of training.context_length 16; the next one is 48");
	bad = o;
	bad.source = "texd";
	TT_CHECK_FAILS(t, tt_data_open(t->arena, &bad, &d), TT_ERR_USAGE, "\"texd\", did you mean \"text\"?; there are: text, synthetic, rows");
	bad = o;
	bad.vocab_size = 61;
	TT_CHECK_FAILS(t, tt_data_open(t->arena, &bad, &d), TT_ERR_USAGE, "tokenizer \"bytes\" has 256 ids, model.vocab_size is 61");
	bad = o;
	bad.npaths = 0;
	TT_CHECK_FAILS(t, tt_data_open(t->arena, &bad, &d), TT_ERR_USAGE, "data.paths is empty");
	bad = o;
	bad.valid_paths = o.paths;
	bad.nvalid_paths = 1;
	TT_CHECK_FAILS(t, tt_data_open(t->arena, &bad, &d), TT_ERR_USAGE, "of 10 files 1 have no bytes and 9 are held out");
	bad = o;
	bad.paths = &(const char *){tt_test_path(t, "docs/none")};
	TT_CHECK_FAILS(t, tt_data_open(t->arena, &bad, &d), TT_ERR_USAGE, "of 1 files 1 have no bytes");
	TT_CHECK(t, d == NULL);
	/* A file that changes under the run. */
	d = open_data(t, &o);
	tt_step *s = tt_step_new(t->arena, 4, CTX);
	TT_CHECK(t, truncate(tt_test_path(t, "docs/6"), 20) == 0 && unlink(tt_test_path(t, "docs/5")) == 0);
	int shrunk = 0, gone = 0;
	for (int i = 0; i < 10; i++)
		if (tt_data_step(d, i, s) != TT_OK) {
			shrunk += strstr(tt_error_text(), "docs/6: had 50 bytes when the run began and has 20 now") != NULL;
			gone += strstr(tt_error_text(), "docs/5: cannot open: No such file") != NULL;
		}
	TT_CHECK_MSG(t, shrunk && gone, "%d %d: %s", shrunk, gone, tt_error_text());
	tt_data_close(d);
}

/* Text that nothing, or little, can be learnt from is said when it is opened: which file, how many tokens, what helps. */
static void little_text(tt_test *t)
{
	char line[512] = "";
	put_text(t, "one", "x");
	put_text(t, "short/a", "x");
	put_text(t, "short/b", "y");
	tt_data_options o = options(t);
	tt_data *d = NULL;
	tt_log_set_level(TT_LOG_INFO);
	tt_log_set_sink(ignore, line);
	o.paths = &(const char *){tt_test_path(t, "one")};
	TT_CHECK_FAILS(t, tt_data_open(t->arena, &o, &d), TT_ERR_USAGE,
		       tt_arena_printf(t->arena, "no token has a next one to predict: 1 file of 1 token, %s (0 usable tokens; name longer files)", o.paths[0]));
	o.paths = &(const char *){tt_test_path(t, "short")};
	TT_CHECK_FAILS(t, tt_data_open(t->arena, &o, &d), TT_ERR_USAGE, "2 files of 1 token each, the first is");
	TT_CHECK_FAILS(t, tt_data_open(t->arena, &o, &d), TT_ERR_USAGE, "data.sequence = \"row\"");
	TT_CHECK_STR(t, line, "");
	/* Joined, they can be learnt from, again and again. */
	o.sequence = TT_SEQUENCE_ROW;
	tt_data_close(open_data(t, &o));
	TT_CHECK_MSG(t, strstr(line, "2 usable tokens in 2 files, the first is ") && strstr(line, "/short/a: every step of 64 repeats all of it"), "%s", line);
	/* Enough for a step, in short files. */
	line[0] = 0;
	for (int i = 0; i < 99; i++)
		put_text(t, tt_arena_printf(t->arena, "short/n%d", i), i < 40 ? "ab" : i < 50 ? "abc" : "z");
	o.sequence = TT_SEQUENCE_DOCUMENT;
	tt_data_close(open_data(t, &o));
	TT_CHECK_MSG(t, strstr(line, "60 usable tokens in 101 files"), "%s", line);
	o.tokens_per_step = 3 * CTX;
	tt_data_close(open_data(t, &o));
	TT_CHECK_MSG(t, strstr(line, "60 of 161 tokens are usable: the 101 files are short"), "%s", line);
	/* Held out: only said, since the run can do without. */
	o = options(t);
	tt_log_set_level(TT_LOG_INFO);
	make_docs(t);
	line[0] = 0;
	tt_data_close(open_data(t, &o));
	TT_CHECK_STR(t, line, "");
	o.valid_paths = &(const char *){tt_test_path(t, "one")};
	o.nvalid_paths = 1;
	tt_data_close(open_data(t, &o));
	TT_CHECK_MSG(t, strstr(line, "validation: none of the 1 held-out files, the first is ") && strstr(line, "/one, has a token to predict"), "%s", line);
	tt_log_set_sink(NULL, NULL);
}

/* ---- validation --------------------------------------------------------------------------------------------------- */

static void valid_paths(tt_test *t)
{
	make_docs(t);
	tt_data_options o = options(t);
	o.valid_paths = &(const char *){tt_test_path(t, "docs/[467]")};
	o.nvalid_paths = 1;
	tt_data *d = open_data(t, &o);
	tt_data_info info = tt_data_describe(d);
	TT_CHECK_INT(t, info.documents, DOCS - 3);
	TT_CHECK_INT(t, info.tokens, TOKENS - 69);
	TT_CHECK_INT(t, info.valid_documents, 3);
	TT_CHECK_INT(t, info.valid_tokens, 69);
	TT_CHECK_INT(t, info.empty, 1);
	TT_CHECK_INT(t, tt_data_valid_rows(d), 5);
	/* All at once, and in parts: the same rows, in order, the last of 5 tokens. */
	tt_step *s = tt_step_new(t->arena, 8, CTX), *part = tt_step_new(t->arena, 2, CTX);
	TT_CHECK_OK(t, tt_data_valid(d, 0, s));
	check_tables(t, s);
	TT_CHECK_INT(t, s->nrows, 5);
	TT_CHECK_INT(t, s->T, 69);
	TT_CHECK_INT(t, s->nvalid, 66);
	int64_t at = 0;
	for (int k = 0; k < 3; k++) {
		int doc = (int[]){4, 6, 7}[k];
		for (int i = 0; i < SIZES[doc]; i++)
			TT_CHECK_INT(t, s->ids[at++], byte_of(doc, i));
	}
	for (int64_t first = 0; first <= 5; first += 2) {
		TT_CHECK_OK(t, tt_data_valid(d, first, part));
		TT_CHECK_INT(t, part->nrows, TT_MIN((int64_t)2, 5 - first));
		TT_CHECK(t, memcmp(part->ids, s->ids + s->row_tokens[first], sizeof(int32_t) * (size_t)part->T) == 0);
		TT_CHECK(t, memcmp(part->labels, s->labels + s->row_tokens[first], sizeof(int32_t) * (size_t)part->T) == 0);
	}
	/* None of them is trained on: their bytes do not come in two epochs. */
	tt_step *train = stream(t, o, 2 * (TOKENS - 69) / CTX);
	for (int64_t i = 0; i + 1 < train->T; i++)
		TT_CHECK(t, !(train->ids[i] == byte_of(6, 20) && train->ids[i + 1] == byte_of(6, 21)));
	tt_data_close(d);
}

static void valid_drawn(tt_test *t)
{
	for (int i = 0; i < 200; i++) {
		char name[32];
		snprintf(name, sizeof name, "docs/f%d", i);
		put_text(t, name, "hello");
		snprintf(name, sizeof name, "moved/f%d", i);
		put_text(t, name, "hello");
	}
	tt_data_options o = options(t);
	o.valid_parts = 10;
	int64_t before = 0;
	for (o.valid_part = 0; o.valid_part <= 9; o.valid_part++) {
		tt_data *d = open_data(t, &o);
		int64_t n = tt_data_describe(d).valid_documents;
		TT_CHECK_INT(t, n + tt_data_describe(d).documents, 200);
		TT_CHECK_MSG(t, n >= before && n > 20 * o.valid_part - 15 && n < 20 * o.valid_part + 15, "%lld of 200 held out for %lld/10",
			(long long)n, (long long)o.valid_part);
		before = n;
		tt_data_close(d);
	}
	/* The place of the whole does not matter, other files neither. */
	o.valid_part = 3;
	tt_data *d = open_data(t, &o);
	int64_t n = tt_data_describe(d).valid_documents;
	tt_data_close(d);
	o.paths = &(const char *){tt_test_path(t, "moved")};
	d = open_data(t, &o);
	TT_CHECK_INT(t, tt_data_describe(d).valid_documents, n);
	tt_data_close(d);
	o.valid_part = 11;
	TT_CHECK_FAILS(t, tt_data_open(t->arena, &o, &d), TT_ERR_USAGE, "11 of 10 parts");
}

/* ---- microbatches, the cursor --------------------------------------------------------------------------------------- */

static void batches(tt_test *t)
{
	make_docs(t);
	tt_step *s = stream(t, options(t), 7);
	tt_batch *b = tt_batch_new(t->arena, 7 * CTX);
	for (int64_t r0 = 0; r0 <= 7; r0++)
		for (int64_t r1 = r0; r1 <= 7; r1++) {
			memset(b->seq_table, 0x55, sizeof(int32_t) * (7 * CTX + 1));
			tt_batch_fill(s, r0, r1, b);
			TT_CHECK_INT(t, b->T, (r1 - r0) * CTX);
			TT_CHECK_INT(t, b->first, r0 * CTX);
			TT_CHECK_INT(t, b->seq_table[0], 0);
			TT_CHECK_INT(t, b->seq_table[b->nsequences], b->T);
			int64_t nvalid = 0, sequences = 0;
			for (int64_t i = 0; i < b->T; i++) {
				int64_t w = b->first + i;
				sequences += s->positions[w] == 0;
				nvalid += s->labels[w] != TT_IGNORE;
				TT_CHECK(t, b->ids[i] == s->ids[w] && b->labels[i] == s->labels[w] && b->positions[i] == s->positions[w]);
				/* What kernels do with them: the line of the token's own position is the token. */
				TT_CHECK_INT(t, b->lines[b->seq_table[b->seq_ids[i]] + b->positions[i]], i);
			}
			TT_CHECK_INT(t, b->nvalid, nvalid);
			TT_CHECK_INT(t, b->nsequences, sequences);
		}
}

static void cursor(tt_test *t)
{
	make_docs(t);
	tt_data_options o = options(t), other = o;
	tt_data *d = open_data(t, &o), *e;
	tt_data_cursor c = tt_data_save(d, 17);
	int64_t step = -1;
	TT_CHECK_OK(t, tt_data_restore(d, &c, &step));
	TT_CHECK_INT(t, step, 17);
	tt_data_close(d);
	other.tokens_per_step = 8 * CTX;
	e = open_data(t, &other);
	TT_CHECK_FAILS(t, tt_data_restore(e, &c, &step), TT_ERR_USAGE, "training.tokens_per_step is 128, the run to be resumed had 64");
	other = o;
	other.context_length = 32;
	e = open_data(t, &other);
	TT_CHECK_FAILS(t, tt_data_restore(e, &c, &step), TT_ERR_USAGE, "training.context_length is 32, the run to be resumed had 16");
	for (int i = 0; i < 4; i++) {
		other = o;
		other.seed += i == 0;
		other.shuffle ^= i == 1;
		if (i == 2)
			other.sequence = TT_SEQUENCE_ROW;
		if (i == 3)
			put_text(t, "docs/3", "another size");
		e = open_data(t, &other);
		TT_CHECK_FAILS(t, tt_data_restore(e, &c, &step), TT_ERR_USAGE, "the data is not that of the run to be resumed");
	}
	/* The same files elsewhere are the same data. */
	uint64_t here = tt_data_describe(e).fingerprint;
	TT_CHECK(t, rename(tt_test_path(t, "docs"), tt_test_path(t, "elsewhere")) == 0);
	o.paths = &(const char *){tt_test_path(t, "elsewhere")};
	TT_CHECK(t, tt_data_describe(open_data(t, &o)).fingerprint == here);
}

/* What is in the files, where names, sizes and options are as they were. */
static void evidence(tt_test *t)
{
	enum { BIG = 300 * 1024 };
	make_docs(t);
	char *big = tt_arena_alloc(t->arena, BIG);
	memset(big, 'a', BIG);
	put(t, "docs/big", big, BIG);
	tt_data_options o = options(t);
	int64_t step;
	/* Another byte at the head, in the middle, at the tail of a file that is not read whole, and anywhere in a short one. */
	static const int64_t at[] = {0, BIG / 2, BIG - 1, 150, 199};
	for (int i = 0; i < TT_COUNT(at); i++) {
		const bool is_short = i > 2;
		const char *name = is_short ? "docs/short" : "docs/big";
		put(t, "docs/short", big + 1000, 200);
		tt_data *before = open_data(t, &o);
		tt_data_cursor saved = tt_data_save(before, 17);
		TT_CHECK_OK(t, tt_data_restore(open_data(t, &o), &saved, &step));
		char was = big[at[i]];
		big[at[i]] = 'b';
		put(t, name, big, is_short ? 200 : BIG);
		tt_data *e = open_data(t, &o);
		TT_CHECK(t, tt_data_describe(e).fingerprint == tt_data_describe(before).fingerprint);
		TT_CHECK_FAILS(t, tt_data_restore(e, &saved, &step), TT_ERR_USAGE, tt_arena_printf(t->arena, "the data is not that of the run to be resumed: %s has changed; there were ",
			       tt_test_path(t, name)));
		saved.files = NULL; /* of a version that kept no evidence */
		TT_CHECK_OK(t, tt_data_restore(e, &saved, &step));
		big[at[i]] = was;
		put(t, "docs/big", big, BIG);
	}
	/* Of very many files some are read, the same in the next run. */
	tt_data *d = open_data(t, &o);
	tt_data_cursor all = tt_data_save(d, 1), some = all;
	some.every = 3;
	some.files = d->kind->evidence(d, false, &some.every);
	TT_CHECK_INT(t, some.every, 3);
	TT_CHECK_INT(t, strlen(some.files), strlen(all.files));
	int64_t n = (int64_t)strlen(all.files) / TT_EVIDENCE, same = 0;
	for (int64_t i = 0; i < n; i++)
		same += !memcmp(some.files + i * TT_EVIDENCE, all.files + i * TT_EVIDENCE, TT_EVIDENCE);
	TT_CHECK_MSG(t, same > 0 && same < n, "%lld of %lld files are read", (long long)same, (long long)n);
	tt_data *e = open_data(t, &o);
	TT_CHECK_OK(t, tt_data_restore(e, &some, &step));
	tt_data_cursor again = tt_data_save(e, 1);
	TT_CHECK(t, again.every == 3 && !strcmp(again.files, some.files));
	/* A source without files has none. */
	tt_data_options made = {.source = "synthetic", .context_length = 64, .tokens_per_step = 256, .vocab_size = 100};
	d = open_data(t, &made);
	tt_data_cursor none = tt_data_save(d, 1);
	TT_CHECK(t, !none.files);
	TT_CHECK_OK(t, tt_data_restore(d, &none, &step));
}

static void no_allocation(tt_test *t)
{
	if (!tt_malloc_count_available())
		TT_SKIP(t, "allocations cannot be counted in this build");
	make_docs(t);
	tt_data_options o = options(t);
	tt_data *d = open_data(t, &o);
	tt_step *s = tt_step_new(t->arena, 4, CTX);
	tt_batch *b = tt_batch_new(t->arena, 4 * CTX);
	size_t arena = tt_arena_used(t->arena);
	tt_malloc_count_begin();
	tt_status status = TT_OK;
	for (int i = 0; i < 50 && status == TT_OK; i++) {
		status = tt_data_step(d, i, s);
		tt_batch_fill(s, 1, 3, b);
	}
	int64_t n = tt_malloc_count_end();
	TT_CHECK_OK(t, status);
	TT_CHECK_INT(t, n, 0);
	TT_CHECK_INT(t, tt_arena_used(t->arena), arena);
	tt_data_close(d);
}

/* ---- other sources, the tokenizer ------------------------------------------------------------------------------------ */

static void synthetic(tt_test *t)
{
	tt_data_options o = {.source = "synthetic", .context_length = 64, .tokens_per_step = 256, .vocab_size = 100, .seed = 1};
	tt_data *d = open_data(t, &o);
	tt_step *a = tt_step_new(t->arena, 4, 64), *b = tt_step_new(t->arena, 4, 64);
	int count[100] = {0};
	for (int i = 0; i < 40; i++) {
		TT_CHECK_OK(t, tt_data_step(d, i, a));
		check_tables(t, a);
		TT_CHECK_INT(t, a->nvalid, 256);
		TT_CHECK_INT(t, a->nsequences, 4);
		for (int k = 0; k < 256; k++) {
			if (TT_CHECK(t, a->ids[k] >= 0 && a->ids[k] < 100 && a->labels[k] >= 0 && a->labels[k] < 100))
				count[a->ids[k]]++;
			if (k % 64 < 63)
				TT_CHECK_INT(t, a->labels[k], a->ids[k + 1]);
		}
	}
	for (int i = 0; i < 100; i++)
		TT_CHECK_MSG(t, count[i] > 50 && count[i] < 160, "id %d came %d times of 10240", i, count[i]);
	TT_CHECK_OK(t, tt_data_step(d, 39, b));
	TT_CHECK(t, same_steps(a, b));
	TT_CHECK_OK(t, tt_data_step(d, 38, b));
	TT_CHECK(t, !same_steps(a, b));
	TT_CHECK_INT(t, tt_data_valid_rows(d), 0);
	tt_data_close(d);
	tt_data_close(NULL);
}

static void rows(tt_test *t)
{
	static const int32_t ids[2 * 6] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
	static const int32_t labels[2 * 6] = {2, 3, TT_IGNORE, 5, 6, TT_IGNORE, TT_IGNORE, 9, 10, 11, 12, 1};
	static const int32_t lengths[2 * 3] = {3, 2, 1, 6, 0, 0};
	tt_data_options o = {.source = "rows", .context_length = 6, .tokens_per_step = 12, .vocab_size = 13, .repeat = true,
			     .rows = {ids, labels, lengths, 2, 3}};
	tt_data *d = open_data(t, &o);
	tt_step *s = tt_step_new(t->arena, 2, 6);
	for (int i = 0; i < 2; i++) {
		TT_CHECK_OK(t, tt_data_step(d, i, s));
		check_tables(t, s);
		TT_CHECK(t, memcmp(s->ids, ids, sizeof ids) == 0 && memcmp(s->labels, labels, sizeof labels) == 0);
		TT_CHECK_INT(t, s->nsequences, 4);
		TT_CHECK_INT(t, s->seq_table[1], 3);
		TT_CHECK_INT(t, s->seq_table[2], 5);
		TT_CHECK_INT(t, s->nvalid, 9);
	}
	o.rows.labels = NULL;
	d = open_data(t, &o);
	TT_CHECK_OK(t, tt_data_step(d, 0, s));
	static const int32_t next[2 * 6] = {2, 3, TT_IGNORE, 5, TT_IGNORE, TT_IGNORE, 8, 9, 10, 11, 12, TT_IGNORE};
	TT_CHECK(t, memcmp(s->labels, next, sizeof next) == 0);
	o.repeat = false;
	d = open_data(t, &o);
	TT_CHECK_OK(t, tt_data_step(d, 0, s));
	TT_CHECK_INT(t, tt_data_step(d, 1, s), TT_ERR_STOP);
	o.vocab_size = 12;
	TT_CHECK_FAILS(t, tt_data_open(t->arena, &o, &d), TT_ERR_USAGE, "row 1, token 5: id 12 is outside model.vocab_size 12");
	o.vocab_size = 13;
	o.rows.labels = (const int32_t[12]){0, 0, 0, -1};
	TT_CHECK_FAILS(t, tt_data_open(t->arena, &o, &d), TT_ERR_USAGE, "row 0, token 3: label -1");
	o.rows.labels = NULL;
	o.rows.lengths = (const int32_t[6]){3, 3, 0, 3, 0, 3};
	TT_CHECK_FAILS(t, tt_data_open(t->arena, &o, &d), TT_ERR_USAGE, "row 1: its sequences");
	o.rows.lengths = (const int32_t[6]){3, 2, 0, 3, 3, 0};
	TT_CHECK_FAILS(t, tt_data_open(t->arena, &o, &d), TT_ERR_USAGE, "of sum 6; the sum is 5");
}

static void tokenizer(tt_test *t)
{
	const tt_tok *tok = NULL;
	if (!TT_CHECK_OK(t, tt_tok_open(t->arena, "bytes", NULL, &tok)))
		return;
	TT_CHECK_INT(t, tok->vocab_size, 256);
	TT_CHECK(t, tok->bos == -1 && tok->eos == -1 && tok->byte_exact);
	uint8_t all[256];
	int32_t ids[256];
	int64_t n = 0;
	for (int i = 0; i < 256; i++)
		all[i] = (uint8_t)(255 - i);
	TT_CHECK_OK(t, tt_tok_encode(tok, all, 256, ids, 256, &n));
	TT_CHECK_INT(t, n, 256);
	for (int i = 0; i < 256; i++)
		TT_CHECK_INT(t, ids[i], 255 - i);
	tt_buf b = {0};
	TT_CHECK_OK(t, tt_tok_decode(tok, ids, 256, &b));
	TT_CHECK(t, b.n == 256 && memcmp(b.s, all, 256) == 0);
	TT_CHECK_FAILS(t, tt_tok_decode(tok, (int32_t[]){5, 256}, 2, &b), TT_ERR_USAGE, "id 256 at 1 is outside its vocabulary of 256");
	TT_CHECK_INT(t, b.n, 256);
	TT_CHECK_FAILS(t, tt_tok_encode(tok, all, 10, ids, 9, &n), TT_ERR_USAGE, "there is room for 9");
	tt_buf_fini(&b);
	TT_CHECK_FAILS(t, tt_tok_open(t->arena, "byte", NULL, &tok), TT_ERR_USAGE, "unknown tokenizer \"byte\", did you mean \"bytes\"?");
	TT_CHECK_FAILS(t, tt_tok_open(t->arena, "bytes", "x.json", &tok), TT_ERR_USAGE, "x.json");
}

const tt_case tt_suite_data[] = {
	{"little_text", little_text, TT_TIER_QUICK},
	{"files_order_and_globs", files_order_and_globs, TT_TIER_QUICK},
	{"files_exclude", files_exclude, TT_TIER_QUICK},
	{"files_links", files_links, TT_TIER_QUICK},
	{"files_errors", files_errors, TT_TIER_QUICK},
	{"text_documents", text_documents, TT_TIER_QUICK},
	{"text_shuffle_uniform", text_shuffle_uniform, TT_TIER_QUICK},
	{"text_joined", text_joined, TT_TIER_QUICK},
	{"text_pure", text_pure, TT_TIER_QUICK},
	{"text_ends", text_ends, TT_TIER_QUICK},
	{"text_errors", text_errors, TT_TIER_QUICK},
	{"valid_paths", valid_paths, TT_TIER_QUICK},
	{"valid_drawn", valid_drawn, TT_TIER_QUICK},
	{"batches", batches, TT_TIER_QUICK},
	{"evidence", evidence, TT_TIER_QUICK},
	{"cursor", cursor, TT_TIER_QUICK},
	{"no_allocation", no_allocation, TT_TIER_QUICK},
	{"synthetic", synthetic, TT_TIER_QUICK},
	{"rows", rows, TT_TIER_QUICK},
	{"tokenizer", tokenizer, TT_TIER_QUICK},
	{0},
};
