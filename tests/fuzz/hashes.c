/* hashes.c: two hashes.bin, read and compared. An input that begins with 'R' is one file's bytes after it; any other is parts, one a record
 * of file A, and after a part "B" of file B; a part is
 *     S text                   SETTINGS
 *     P text                   PROGRAM
 *     C numbers, hexadecimal   CELL: step, segment, index, T, nseqs, n, then the hashes
 *     X bytes                  as they are, no record
 * The checksums of records are made to fit: else no mutation would ever get past them.
 */
#include "fuzz.h"

#include "cli/cli.h"
#include "metrics/hashes.h"

#include <stdlib.h>

/* The half that records, and printing, are not in this program. */
const tt_slot *tt_exec_states(const tt_exec *e, int64_t *n)
{
	(void)e, (void)n;
	tt_panic(__FILE__, __LINE__, "nothing is recorded here");
}

tt_status tt_tensor_hash(tt_exec *e, const tt_slot *s, int64_t at, int64_t n, uint64_t *hash)
{
	(void)e, (void)s, (void)at, (void)n, (void)hash;
	tt_panic(__FILE__, __LINE__, "nothing is recorded here");
}

void tt_cli_print(const char *text) { fuzz_touch(text, strlen(text)); }

static void put_record(tt_buf *b, uint32_t kind, const void *bytes, size_t n)
{
	tt_hashes_record h = { .kind = kind, .n = (uint32_t)n };
	tt_buf payload = { 0 };
	tt_buf_add(&payload, bytes, n);
	tt_buf_add(&payload, "\0\0\0\0\0\0\0", (size_t)tt_round_up((int64_t)n, 8) - n);
	h.head_check = tt_hash64(&h, 2 * sizeof(uint32_t), 0);
	h.check = tt_hash64(payload.n ? payload.s : "", payload.n, kind);
	tt_buf_add(b, &h, sizeof h);
	tt_buf_add(b, payload.s, payload.n);
	tt_buf_fini(&payload);
}

static void put_cell(tt_buf *b, const char *text)
{
	tt_hashes_cell_head head = { 0 };
	tt_buf cell = { 0 };
	char *end;
	for (int i = 0; ; text = end, i++) {
		uint64_t v = strtoull(text, &end, 16);
		if (end == text)
			break;
		switch (i) {
		case 0: head.step = (int64_t)v; break;
		case 1: head.segment = (int32_t)v; break;
		case 2: head.index = (int32_t)v; break;
		case 3: head.T = (int64_t)v; break;
		case 4: head.nseqs = (int64_t)v; break;
		case 5: head.n = (int64_t)v; break;
		default: tt_buf_add(&cell, &v, sizeof v);
		}
	}
	tt_buf both = { 0 };
	tt_buf_add(&both, &head, sizeof head);
	tt_buf_add(&both, cell.s, cell.n);
	put_record(b, TT_HASHES_CELL, both.s, both.n);
	tt_buf_fini(&both);
	tt_buf_fini(&cell);
}

enum { PARTS = 64 };

static void make(tt_arena *a, const uint8_t *p, size_t n, tt_buf files[2])
{
	fuzz_part parts[PARTS];
	int side = 0, k = fuzz_split(p, n, parts, PARTS);
	for (int i = 0; i < k; i++) {
		tt_buf *b = &files[side];
		if (!b->n)
			tt_buf_str(b, TT_HASHES_MAGIC);
		if (!parts[i].n)
			continue;
		const uint8_t *bytes = parts[i].p + 1;
		size_t nbytes = parts[i].n - 1;
		switch (parts[i].p[0]) {
		case 'S': put_record(b, TT_HASHES_SETTINGS, bytes, nbytes); break;
		case 'P': put_record(b, TT_HASHES_PROGRAM, bytes, nbytes); break;
		case 'C': put_cell(b, fuzz_text(a, (fuzz_part){ bytes, nbytes })); break;
		case 'X': tt_buf_add(b, bytes, nbytes); break;
		case 'B': side = 1; break;
		}
	}
}

/* Whether one run of a program is told twice, as no recorder does: only the first is compared. */
static bool has_twins(const tt_hashes_file *f)
{
	for (int64_t i = 0; i < f->ncells; i++)
		for (int64_t k = 0; k < i; k++) {
			const tt_hashes_cell_head *x = &f->cells[i].head, *y = &f->cells[k].head;
			if (x->step == y->step && x->segment == y->segment && x->index == y->index)
				return true;
		}
	return false;
}

/* True: compared with itself, this file must be equal. */
static bool check_file(tt_arena *a, const char *path)
{
	tt_hashes_file f;
	if (tt_hashes_read(a, path, &f) != TT_OK)
		return true;
	bool twins = has_twins(&f);
	for (int64_t i = 0; i < f.ncells; i++) {
		const tt_hashes_program *p = f.cells[i].program;
		FUZZ_CHECK(f.cells[i].head.n == p->nvalues && f.cells[i].head.segment == p->segment, "a cell of another program");
		fuzz_touch(f.cells[i].hash, sizeof(uint64_t) * (size_t)p->nvalues);
		for (int64_t k = 0; k < p->nvalues; k++) {
			int64_t at = tt_hashes_find(p, p->values[k].name);
			FUZZ_CHECK(at >= 0 && !strcmp(p->values[at].name, p->values[k].name), "%s is not found", p->values[k].name);
		}
	}
	fuzz_touch(f.settings, strlen(f.settings));
	tt_hashes_file_close(&f);
	return !twins;
}

void fuzz_one(const uint8_t *p, size_t n)
{
	tt_arena *a = tt_arena_create("fuzz");
	tt_buf files[2] = { { 0 }, { 0 } };
	if (n && p[0] == 'R')
		tt_buf_add(&files[0], p + 1, n - 1);
	else
		make(a, p, n, files);
	bool two = files[1].n;
	const char *one = fuzz_file(0, files[0].n ? files[0].s : "", files[0].n), *other = two ? fuzz_file(1, files[1].s, files[1].n) : one;
	bool plain = check_file(a, one) && !two;
	for (int limit = -1; limit < 2; limit += 2) {
		tt_buf out = { 0 };
		bool equal = false;
		if (tt_cli_diff(one, other, limit, &out, &equal) == TT_OK)
			FUZZ_CHECK(out.n && strlen(out.s) == out.n && (equal || !plain), "a file differs from itself:\n%s", out.s);
		tt_buf_fini(&out);
	}
	for (int i = 0; i < 2; i++)
		tt_buf_fini(&files[i]);
	tt_arena_destroy(a);
}

#define SETTINGS "S[run]\nseed = 1\nnumerics = \"exact\"\n[training]\nsteps = 5\n"
#define PROGRAM                                                                                                        \
	"Pprogram\tF\t3\nvalue\tw\tf32\tplain\tstate\t-\nvalue\tx\tf32\tplain\tinput\t-\nvalue\ty\tbf16\tplain\tmatmul\tref\n"            \
	"node\tmatmul\ty\tw x\nnode\tview\tz\ty\n"
#define BACKWARD                                                                                                       \
	"Pprogram\tB\t2\nvalue\tdy\tf32\tplain\tloss\tref\nvalue\tdw\tf32\ttiles\tmatmul\tavx2\n"                                       \
	"node\tloss\tdy\tz\nnode\tview\tdz\tdy\nnode\tmatmul\tdw\tdz x\n"
#define STATE "Pprogram\tSTATE\t1\nvalue\tw\tf32\tplain\tstate\t-\n"

static const char *cell(tt_arena *a, int step, int segment, const char *rest)
{
	return tt_arena_printf(a, "C%x %x 0 40 1 %s", step, segment, rest);
}

void fuzz_seeds(void)
{
	tt_arena *a = tt_arena_create("seeds");
	int F = -1, B = -1;
	for (int s = 0; s < TT_HASHES_NSEGS; s++) {
		fuzz_word(tt_arena_printf(a, "program\t%s\t", tt_hashes_segment_name(s)));
		F = strcmp(tt_hashes_segment_name(s), "F") ? F : s;
		B = strcmp(tt_hashes_segment_name(s), "B") ? B : s;
	}
	const char *c1 = cell(a, 1, F, "3 aa bb cc"), *c2 = cell(a, 2, F, "3 aa bb cd"), *s1 = cell(a, 1, TT_HASHES_STATE, "1 dd");
	const char *b1 = cell(a, 1, B, "2 11 22"), *b2 = cell(a, 1, B, "2 11 23"), *c3 = cell(a, 1, F, "3 aa bd cc"), *s2 = cell(a, 1, TT_HASHES_STATE, "1 de");
	const char *lists[][14] = {
		{ SETTINGS, PROGRAM, c1, c2, NULL },
		{ SETTINGS, PROGRAM, c1, STATE, s1, c2, "B", SETTINGS, PROGRAM, c1, STATE, s1, c1, NULL },
		{ SETTINGS, PROGRAM, c1, c2, SETTINGS, PROGRAM, c2, "B", SETTINGS, PROGRAM, c1, c2, "Xabc", NULL },
		{ SETTINGS, PROGRAM, BACKWARD, c1, b1, "B", SETTINGS, PROGRAM, BACKWARD, c1, b2, NULL },
		{ SETTINGS, PROGRAM, BACKWARD, c1, b1, "B", SETTINGS "tokens = 8\n", PROGRAM, BACKWARD, c3, b2, NULL },
		{ SETTINGS, "Pprogram\tF\t1\nvalue\ty\tf32\tplain\tadd\tref\nnode\tview\tz\tz z y z\nnode\tadd\ty\tz\n", "C1 2 0 40 1 1 aa", "B", SETTINGS,
		  "Pprogram\tF\t1\nvalue\ty\tf32\tplain\tadd\tref\nnode\tview\tz\tz z y z\nnode\tadd\ty\tz\n", "C1 2 0 40 1 1 ab", NULL },
		{ SETTINGS "tokens_per_step = 8\n", STATE, s1, c1, "B", "S[run]\nseed = 2\ntokens_per_step = 16\nnumerics = \"fast\"\n", STATE, s2, NULL },
	};
	for (int i = 0; i < TT_COUNT(lists); i++) {
		tt_buf b = { 0 };
		for (int k = 0; lists[i][k]; k++) {
			tt_buf_str(&b, k ? FUZZ_CUT : "");
			tt_buf_str(&b, lists[i][k]);
		}
		fuzz_seed(b.s, b.n);
		tt_buf raw[2] = { { 0 }, { 0 } };
		make(a, (const uint8_t *)b.s, b.n, raw);
		b.n = 0;
		tt_buf_str(&b, "R");
		tt_buf_add(&b, raw[0].s, raw[0].n);
		fuzz_seed(b.s, b.n);
		tt_buf_fini(&raw[0]);
		tt_buf_fini(&raw[1]);
		tt_buf_fini(&b);
	}
	static const char *const words[] = { FUZZ_CUT, FUZZ_CUT "B" FUZZ_CUT, FUZZ_CUT "C", FUZZ_CUT "S", FUZZ_CUT "P", "\nvalue\t", "\nnode\t", "\tf32\tplain\t",
					     "\tstate\t-", "\tinput\t-", "\t", " = ", "\n[run]\n", "seed = 2", "ffffffffffffffff", "7fffffffffffffff", "80000000",
					     "tokens_per_step = 8", "numerics = \"fast\"", "model_graph = 1" };
	for (int i = 0; i < TT_COUNT(words); i++)
		fuzz_word(words[i]);
	tt_arena_destroy(a);
}
