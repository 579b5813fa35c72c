/* diff: hashes as a run records them, and what `titan diff` makes of two runs: equal ones, other seeds, other data, a planted bit, other
 * kernels, threads and microbatches; damaged, cut and foreign files; resumed runs. */
#define _GNU_SOURCE
#include "tiny.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "cli/cli.h"

enum { PER_STEP = 4, STEPS = 3 };

/* ---- tools ---------------------------------------------------------------------------------------------------------------------------- */

static tt_run_options standard(tt_test *t) { return tiny_options(tiny_model(VOCAB), tiny_rows(t->arena, 3 * PER_STEP, CONTEXT, VOCAB, 3), CONTEXT, PER_STEP); }

static tt_run_options kinds(tt_run_options o, bool state, bool values)
{
	o.record.state = state;
	o.record.values = values;
	return o;
}

/* A high bit of the mantissa (a lower one may be lost in the first product) of element `at` of `name`, flipped before step `step`. */
typedef struct plant { int64_t step; const char *name; int64_t at; } plant;

static bool flip(tt_test *t, tt_exec *e, const plant *p)
{
	uint32_t bits;
	if (!TT_CHECK_OK(t, tt_exec_read(e, p->name, p->at, &bits, 1)))
		return false;
	bits ^= 1u << 20;
	return TT_CHECK_OK(t, tt_exec_write(e, p->name, p->at, &bits, 1));
}

/* A run of `steps` steps recorded in a folder of this name; its path, or NULL after a failed check. */
static const char *record(tt_test *t, const char *name, tt_run_options o, int64_t steps, const plant *p)
{
	tt_trainer *tr = NULL;
	o.record.folder = tt_test_path(t, name);
	bool ok = TT_CHECK_OK(t, tt_trainer_create(&o, &tr));
	for (int64_t s = 1; s <= steps && ok; s++) {
		tt_step_report r;
		if (p && p->step == s)
			ok = flip(t, tt_trainer_exec(tr), p);
		ok = ok && TT_CHECK_OK(t, tt_trainer_step(tr, &r));
	}
	tt_trainer_destroy(tr);
	return ok ? o.record.folder : NULL;
}

static const char *diff(tt_test *t, const char *a, const char *b, int64_t limit, bool *equal)
{
	tt_buf out = { 0 };
	*equal = false;
	const char *text = "";
	if (a && b && TT_CHECK_OK(t, tt_cli_diff(a, b, limit, &out, equal)))
		text = tt_arena_strdup(t->arena, out.s);
	tt_buf_fini(&out);
	return text;
}

static bool says(tt_test *t, const char *text, const char *part) { return TT_CHECK_MSG(t, strstr(text, part), "no \"%s\" in:\n%s", part, text); }

static bool silent(tt_test *t, const char *text, const char *part) { return TT_CHECK_MSG(t, !strstr(text, part), "\"%s\" in:\n%s", part, text); }

/* Number after "Equal: ". */
static long long equal_values(const char *text)
{
	const char *p = strstr(text, "Equal: ");
	long long n = 0;
	return p && sscanf(p, "Equal: %lld", &n) == 1 ? n : 0;
}

static void check_equal(tt_test *t, const char *a, const char *b, long long least)
{
	bool equal;
	const char *text = diff(t, a, b, 10, &equal);
	TT_CHECK_MSG(t, equal && equal_values(text) >= least, "want %lld equal values:\n%s", least, text);
}

/* ---- what is found ---------------------------------------------------------------------------------------------------------------------- */

static void case_equal(tt_test *t)
{
	bool equal;
	const char *a = record(t, "a", kinds(standard(t), true, true), STEPS, NULL), *b = record(t, "b", kinds(standard(t), true, true), STEPS, NULL);
	const char *text = diff(t, a, b, 10, &equal);
	TT_CHECK(t, equal && equal_values(text) > 1000);
	says(t, text, "of 3 steps, 1 to 3.");
	says(t, text, "No setting differs");
	silent(t, text, "Not compared");
	/* A run that is not done yet is equal as far as it goes. */
	b = record(t, "short", kinds(standard(t), true, true), STEPS - 1, NULL);
	text = diff(t, a, b, 10, &equal);
	TT_CHECK(t, equal);
	says(t, text, "of 2 steps, 1 to 2.");
	says(t, text, "program runs that only A has");
	/* Kinds that have nothing in common. */
	tt_buf out = { 0 };
	const char *state = record(t, "state", kinds(standard(t), true, false), 1, NULL), *values = record(t, "values", kinds(standard(t), false, true), 1, NULL);
	TT_CHECK_FAILS(t, tt_cli_diff(state, values, 10, &out, &equal), TT_ERR_USAGE, "no value in common");
	tt_buf_fini(&out);
}

static void case_seed(tt_test *t)
{
	bool equal;
	tt_run_options o = standard(t);
	const char *a = record(t, "a", kinds(o, true, true), 1, NULL), *sa = record(t, "sa", kinds(o, true, false), 1, NULL);
	o.exec.seed++;
	const char *b = record(t, "b", kinds(o, true, true), 1, NULL), *sb = record(t, "sb", kinds(o, true, false), 1, NULL);
	const char *text = diff(t, a, b, 10, &equal);
	TT_CHECK(t, !equal);
	says(t, text, "The runs part at before step 1, INIT:\n  model.embed_tokens.weight");
	says(t, text, "(fill_normal, f32)");
	says(t, text, "run.seed                             7 | 8\n");
	says(t, text, "Another seed");
	text = diff(t, sa, sb, 10, &equal);
	TT_CHECK(t, !equal);
	says(t, text, "The runs part at before step 1, STATE:\n  model.embed_tokens.weight (state, f32)");
	says(t, text, "record \"values\" too");
}

static void case_data(tt_test *t)
{
	bool equal;
	tt_run_options o = standard(t);
	const char *a = record(t, "a", kinds(o, true, true), 1, NULL), *sa = record(t, "sa", kinds(o, true, false), 1, NULL);
	int32_t *ids = TT_NEWN(t->arena, int32_t, 3 * PER_STEP * CONTEXT);
	memcpy(ids, o.data.rows.ids, sizeof *ids * 3 * PER_STEP * CONTEXT);
	for (int i = 0; i < 3 * PER_STEP; i++)
		ids[i * CONTEXT + 5] = (ids[i * CONTEXT + 5] + 1) % VOCAB; /* labels are as they were */
	o.data.rows.ids = ids;
	const char *b = record(t, "b", kinds(o, true, true), 1, NULL), *sb = record(t, "sb", kinds(o, true, false), 1, NULL);
	const char *text = diff(t, a, b, 10, &equal);
	TT_CHECK(t, !equal);
	says(t, text, "The runs part at step 1, microbatch 0, F:\n  ids (input, i32)");
	says(t, text, "written by the loader or the loop");
	says(t, text, "    ids (input, i32)\n    embedding (embedding, ");
	silent(t, text, "The microbatches differ");
	silent(t, text, "labels");
	text = diff(t, sa, sb, 10, &equal);
	TT_CHECK(t, !equal);
	says(t, text, "The runs part at step 1, STATE:\n  data.ids (state)");
	/* Documents of other lengths. */
	o.data.rows = tiny_rows(t->arena, 3 * PER_STEP, CONTEXT, VOCAB, 4);
	text = diff(t, a, record(t, "c", kinds(o, true, true), 1, NULL), 10, &equal);
	says(t, text, "The runs part at step 1, microbatch 0, F:\n  positions (input, i32)\n  The microbatches differ: 128 tokens in 14 sequences in A, 128 in 12 in B.");
}

/* A bit in one weight between two steps: found there and nowhere before, and the first value that it reaches is the product that reads it. */
static void case_planted(tt_test *t)
{
	bool equal;
	tt_run_options o = standard(t);
	o.tokens_per_microbatch = PER_STEP / 2 * CONTEXT;
	plant p = { 2, "model.layers.1.mlp.up_proj.weight", 77 };
	const char *a = record(t, "a", kinds(o, true, true), STEPS, NULL), *b = record(t, "b", kinds(o, true, true), STEPS, &p);
	const char *text = diff(t, a, b, 2, &equal);
	TT_CHECK(t, !equal);
	says(t, text, "The runs part at step 2, microbatch 0, F:\n  model.layers.1.mlp.up_proj.weight (state, f32)\n  A state, as F found it");
	says(t, text, "The first 2 values that differ (--all, --limit=N):\n  step 2, microbatch 0, F\n    model.layers.1.mlp.up_proj.weight (state, f32)\n    "
		      "model.layers.1.mlp.up_proj.y (linear");
	silent(t, text, "before step 1");
	silent(t, text, "step 1,");
	says(t, text, "No setting differs");
	/* All of them on request. */
	text = diff(t, a, b, -1, &equal);
	says(t, text, "All values that differ:");
	says(t, text, "  step 3, STATE\n");
	says(t, text, "microbatch 1, B\n");
	/* Once a step, the step is known. */
	const char *sa = record(t, "sa", kinds(o, true, false), STEPS, NULL), *sb = record(t, "sb", kinds(o, true, false), STEPS, &p);
	text = diff(t, sa, sb, 0, &equal);
	TT_CHECK(t, !equal);
	says(t, text, "The runs part at step 2, STATE:\n  grad.");
	silent(t, text, "values that differ (");
}

/* What differs first is made by an op whose inputs are equal: an optimizer of another decay. */
static void case_op(tt_test *t)
{
	bool equal;
	tt_run_options o = standard(t);
	const char *a = record(t, "a", kinds(o, true, true), 1, NULL);
	o.optim.weight_decay *= 2;
	const char *b = record(t, "b", kinds(o, true, true), 1, NULL);
	const char *text = diff(t, a, b, 10, &equal);
	TT_CHECK(t, !equal);
	says(t, text, "The runs part at step 1, OPT:\n");
	says(t, text, "adamw, f32)");
	silent(t, text, "not the same model");
	says(t, text, "All that it reads is equal (6 of 6): the op itself parts.");
	says(t, text, "adamw [");
	/* The first parameter decays, a norm does not. */
	silent(t, text, "norm.weight");
}

/* ---- what must not differ ------------------------------------------------------------------------------------------------------------------ */

static void case_kernels(tt_test *t)
{
	static const tt_dtype dtypes[] = { TT_F32, TT_BF16 };
	for (int i = 0; i < TT_COUNT(dtypes); i++) {
		tt_run_options o = standard(t);
		o.compute = dtypes[i];
		const char *name = tt_dtype_name(dtypes[i]);
		const char *ref = record(t, tt_arena_printf(t->arena, "ref-%s", name), kinds(o, true, true), 2, NULL);
		o.exec.threads = 2;
		const char *threads = record(t, tt_arena_printf(t->arena, "threads-%s", name), kinds(o, true, true), 2, NULL);
		o.exec.kernels_ref = false;
		o.exec.isa = tiny_isa(t);
		const char *fast = record(t, tt_arena_printf(t->arena, "fast-%s", name), kinds(o, true, true), 2, NULL);
		check_equal(t, ref, threads, 1000);
		check_equal(t, ref, fast, 1000);
		if (o.exec.isa == TT_ISA_REF)
			continue;
		bool equal;
		const char *text = diff(t, ref, fast, 10, &equal);
		says(t, text, "run.isa ");
		says(t, text, "run.kernels ");
	}
}

static void case_microbatch(tt_test *t)
{
	bool equal;
	tt_run_options o = standard(t);
	const char *a = record(t, "a", kinds(o, true, true), 2, NULL);
	o.tokens_per_microbatch = CONTEXT;
	const char *b = record(t, "b", kinds(o, true, true), 2, NULL);
	const char *text = diff(t, a, b, 10, &equal);
	TT_CHECK(t, !equal);
	says(t, text, "the microbatches are not the same");
	says(t, text, "In `fast` numerics a weight gradient is summed per microbatch");
	silent(t, text, "microbatch 0");
	silent(t, text, "not the same model");
	says(t, text, "The runs part at step 1, REDUCE:\n");
	says(t, text, "made by programs that run on microbatches");
	/* In exact numerics it must not matter. */
	o.exec.numerics = TT_EXACT;
	b = record(t, "eb", kinds(o, true, false), 2, NULL);
	o.tokens_per_microbatch = PER_STEP * CONTEXT;
	a = record(t, "ea", kinds(o, true, false), 2, NULL);
	text = diff(t, a, b, 10, &equal);
	TT_CHECK_MSG(t, equal, "%s", text);
	says(t, text, "run.tokens_per_microbatch ");
	/* A sum is a float in one, limbs in the other: not compared, where the same zero would differ. */
	const char *fast = record(t, "fast", kinds(standard(t), true, true), 1, NULL);
	text = diff(t, fast, a, 10, &equal);
	says(t, text, "The runs part at step 1, STATE:\n  ");
	says(t, text, "are not meant to be equal (debug.numerics)");
	says(t, text, "values of another dtype or format, such as loss_sum");
	silent(t, text, "before step 1");
}

/* What is recorded of a parameter is the tensor's own hash. */
static void case_same_hash(tt_test *t)
{
	tt_run_options o = kinds(standard(t), true, true);
	tt_trainer *tr = NULL;
	tt_step_report r;
	tt_slot s;
	uint64_t before = 0, after = 0;
	const char *name = "model.layers.0.self_attn.q_proj.weight";
	o.record.folder = tt_test_path(t, "run");
	if (!TT_CHECK_OK(t, tt_trainer_create(&o, &tr)))
		return;
	if (TT_CHECK_OK(t, tt_exec_slot(tt_trainer_exec(tr), name, &s)) && TT_CHECK_OK(t, tt_tensor_hash(tt_trainer_exec(tr), &s, 0, s.count, &before)) &&
	    TT_CHECK_OK(t, tt_trainer_step(tr, &r)))
		TT_CHECK_OK(t, tt_tensor_hash(tt_trainer_exec(tr), &s, 0, s.count, &after));
	tt_trainer_destroy(tr);
	TT_CHECK(t, before != after);
	tt_hashes_file f;
	if (!TT_CHECK_OK(t, tt_hashes_read(t->arena, o.record.folder, &f)))
		return;
	int seen = 0;
	for (int64_t i = 0; i < f.ncells; i++) {
		const tt_hashes_cell *c = &f.cells[i];
		int64_t at = tt_hashes_find(c->program, name);
		if (at < 0 || c->head.segment == TT_SEG_INIT) /* which finds what nobody has written */
			continue;
		bool late = c->head.step == 1 && c->head.segment == TT_HASHES_STATE;
		TT_CHECK_MSG(t, c->hash[at] == (late ? after : before), "step %lld, %s", (long long)c->head.step, tt_hashes_segment_name(c->head.segment));
		seen++;
	}
	TT_CHECK(t, seen >= 4); /* twice as state, in F, in OPT */
	tt_hashes_file_close(&f);
}

/* ---- files ------------------------------------------------------------------------------------------------------------------------------- */

static void case_damaged(tt_test *t)
{
	char *bytes;
	size_t n;
	bool equal;
	tt_buf out = { 0 };
	const char *run = record(t, "run", kinds(standard(t), true, true), 1, NULL), *bad = tt_test_path(t, "bad.bin");
	if (!run || !TT_CHECK_OK(t, tt_file_read(t->arena, tt_arena_printf(t->arena, "%s/hashes.bin", run), &bytes, &n)))
		return;
	for (size_t at = 0; at < n; at += at < 64 ? 1 : n / 150) {
		bytes[at] ^= 0x10;
		TT_CHECK_OK(t, tt_file_write(bad, bytes, n));
		tt_status s = tt_cli_diff(run, bad, 10, &out, &equal);
		TT_CHECK_MSG(t, s == TT_ERR_FORMAT && strstr(tt_error_text(), bad), "byte %zu: %s, %s", at, tt_status_name(s), tt_error_text());
		bytes[at] ^= 0x10;
	}
	/* Cut anywhere: what is whole is compared. */
	for (size_t at = 0; at < n; at += n / 150) {
		TT_CHECK_OK(t, tt_file_write(bad, bytes, at));
		out.n = 0;
		tt_status s = tt_cli_diff(run, bad, 10, &out, &equal);
		if (s == TT_OK)
			TT_CHECK_MSG(t, equal && strstr(out.s, "that only A has"), "cut at %zu: %s", at, out.s);
		else
			TT_CHECK_MSG(t, s == TT_ERR_FORMAT && at < n / 2 && strstr(tt_error_text(), bad) && strstr(tt_error_text(), "debug.record_hashes") &&
				    strstr(tt_error_text(), at ? tt_arena_printf(t->arena, "byte %zu, within the record that begins at byte", at) : "is empty"),
				"cut at %zu: %s", at, tt_error_text());
	}
	TT_CHECK_OK(t, tt_file_write(bad, bytes, n - 1));
	out.n = 0;
	TT_CHECK_OK(t, tt_cli_diff(bad, run, 10, &out, &equal));
	says(t, out.s, "the last record of A, which is not whole: it begins at byte ");
	says(t, out.s, tt_arena_printf(t->arena, ", the file ends at byte %zu\n", n - 1));
	TT_CHECK_OK(t, tt_file_write(bad, bytes, 8)); /* begun, and no more */
	TT_CHECK_FAILS(t, tt_cli_diff(run, bad, 10, &out, &equal), TT_ERR_FORMAT, "no program run is among its 8 bytes: record the run again");
	bytes[9] ^= 1; /* the first record: there is nothing to save */
	TT_CHECK_OK(t, tt_file_write(bad, bytes, n));
	TT_CHECK_FAILS(t, tt_cli_diff(run, bad, 10, &out, &equal), TT_ERR_FORMAT, "the record at byte 8 is not what was written, and no program run is before it: record");
	bytes[9] ^= 1;
	bytes[n - 1] ^= 1; /* the last: all but it can be saved, as the text says */
	TT_CHECK_OK(t, tt_file_write(bad, bytes, n));
	TT_CHECK(t, tt_cli_diff(run, bad, 10, &out, &equal) == TT_ERR_FORMAT);
	const char *cut = strstr(tt_error_text(), "truncate -s ");
	if (TT_CHECK_MSG(t, cut, "%s", tt_error_text())) {
		TT_CHECK_OK(t, tt_file_write(bad, bytes, (size_t)atoll(cut + 12)));
		TT_CHECK_OK(t, tt_cli_diff(run, bad, 10, &out, &equal));
	}
	bytes[n - 1] ^= 1;
	TT_CHECK_OK(t, tt_file_write(bad, "{\"step\":1}\n", 11));
	TT_CHECK_FAILS(t, tt_cli_diff(run, bad, 10, &out, &equal), TT_ERR_FORMAT, "is no file of hashes");
	TT_CHECK_FAILS(t, tt_cli_diff(run, tt_test_path(t, "nowhere"), 10, &out, &equal), TT_ERR_IO, "nowhere");
	TT_CHECK_FAILS(t, tt_cli_diff(tt_test_path(t, ""), run, 10, &out, &equal), TT_ERR_IO, "debug.record_hashes");
	tt_buf_fini(&out);
}

static void put_record(tt_buf *b, uint32_t kind, const void *payload, size_t n)
{
	size_t whole = (size_t)tt_round_up((int64_t)n, 8);
	char padded[256] = { 0 };
	memcpy(padded, payload, n);
	tt_hashes_record h = { .kind = kind, .n = (uint32_t)n };
	h.head_check = tt_hash64(&h, 8, 0);
	h.check = tt_hash64(padded, whole, kind);
	tt_buf_add(b, &h, sizeof h);
	tt_buf_add(b, padded, whole);
}

/* Records that are whole but say nothing sensible: made up, with right checks. */
static void case_made_up(tt_test *t)
{
	static const struct { uint32_t kind; const char *payload; } R[] = {
		{ TT_HASHES_CELL, "0123456789012345678901234567890123456789" }, { TT_HASHES_CELL, "" }, { TT_HASHES_PROGRAM, "" },
		{ TT_HASHES_PROGRAM, "program\tF\t1\n" }, { TT_HASHES_PROGRAM, "program\tG\t0\n" }, { TT_HASHES_PROGRAM, "program\tF\t0" },
		{ TT_HASHES_PROGRAM, "program\tF\t0\nvalue\ta\n" }, { TT_HASHES_PROGRAM, "node\tadd\ta\tb\n" }, { TT_HASHES_PROGRAM, "\n" },
		{ TT_HASHES_PROGRAM, "program\tF\t2\nvalue\ta\t-\t-\t-\t-\nvalue\ta\t-\t-\t-\t-\n" }, { 9, "text" },
	};
	const char *path = tt_test_path(t, "made.bin");
	for (int i = 0; i < TT_COUNT(R); i++) {
		tt_buf b = { 0 };
		tt_buf_add(&b, TT_HASHES_MAGIC, 8);
		put_record(&b, R[i].kind, R[i].payload, strlen(R[i].payload));
		TT_CHECK_OK(t, tt_file_write(path, b.s, b.n));
		tt_buf_fini(&b);
		tt_hashes_file f;
		TT_CHECK_FAILS(t, tt_hashes_read(t->arena, path, &f), TT_ERR_FORMAT, "damaged: the record at byte 8");
	}
	/* A file that was only begun holds nothing. */
	for (size_t n = 0; n <= 8; n += 4) {
		tt_hashes_file f;
		TT_CHECK_OK(t, tt_file_write(path, TT_HASHES_MAGIC, n));
		if (!TT_CHECK_OK(t, tt_hashes_read(t->arena, path, &f)))
			return;
		TT_CHECK(t, f.ncells == 0 && f.cut == (n < 8));
		tt_hashes_file_close(&f);
	}
}

/* A value made of itself, many times over: the question whether it is equal ends all the same. */
static void case_circle(tt_test *t)
{
	static const char program[] = "program\tF\t1\nvalue\ty\tf32\tplain\tadd\tref\nnode\tview\tz\tz z z z z z z z z z z z z z z z\nnode\tadd\ty\tz\n";
	const char *path[2] = { tt_test_path(t, "a.bin"), tt_test_path(t, "b.bin") };
	for (uint64_t side = 0; side < 2; side++) {
		struct { tt_hashes_cell_head head; uint64_t hash; } cell = { { .step = 1, .segment = TT_SEG_F, .T = 1, .nseqs = 1, .n = 1 }, side };
		tt_buf b = { 0 };
		tt_buf_add(&b, TT_HASHES_MAGIC, 8);
		put_record(&b, TT_HASHES_SETTINGS, "[run]\n", 6);
		put_record(&b, TT_HASHES_PROGRAM, program, sizeof program - 1);
		put_record(&b, TT_HASHES_CELL, &cell, sizeof cell);
		TT_CHECK_OK(t, tt_file_write(path[side], b.s, b.n));
		tt_buf_fini(&b);
	}
	tt_buf out = { 0 };
	bool equal = true;
	if (TT_CHECK_OK(t, tt_cli_diff(path[0], path[1], 10, &out, &equal)))
		says(t, out.s, "reads z: not recorded in both");
	TT_CHECK(t, !equal);
	tt_buf_fini(&out);
}

/* A resumed run goes on in its file, behind the last whole record; what it computes again counts. A new run puts an old file aside. */
static void case_resumed(tt_test *t)
{
	tt_run_options o = kinds(standard(t), true, false);
	const char *whole = record(t, "whole", o, 4, NULL), *run = record(t, "run", o, 4, NULL);
	if (!whole || !run)
		return;
	const char *path = tt_arena_printf(t->arena, "%s/hashes.bin", run);
	struct stat st;
	TT_CHECK(t, stat(path, &st) == 0 && truncate(path, st.st_size - 5) == 0); /* killed in step 4 */
	tt_trainer *tr = NULL;
	o.record.folder = run;
	o.exec.seed++; /* no checkpoint is loaded here, so that what is computed again is told from what it replaces */
	if (!TT_CHECK_OK(t, tt_trainer_create(&o, &tr)))
		return;
	tt_step_report r;
	TT_CHECK_OK(t, tt_trainer_resume(tr, 2, 2, 0));
	TT_CHECK_OK(t, tt_trainer_step(tr, &r));
	TT_CHECK_OK(t, tt_trainer_step(tr, &r));
	tt_trainer_destroy(tr);
	tt_hashes_file f;
	if (!TT_CHECK_OK(t, tt_hashes_read(t->arena, run, &f)))
		return;
	TT_CHECK(t, !f.cut);
	TT_CHECK_INT(t, f.nsessions, 2);
	if (TT_CHECK_INT(t, f.ncells, 5))
		for (int i = 0; i < 5; i++) {
			TT_CHECK_INT(t, f.cells[i].head.step, i);
			TT_CHECK_INT(t, f.cells[i].session, i < 3 ? 1 : 2);
		}
	tt_hashes_file_close(&f);
	bool equal;
	const char *text = diff(t, whole, run, 0, &equal);
	says(t, text, "The runs part at step 3, STATE");
	/* One that goes back without being killed. */
	o.record.folder = tt_test_path(t, "back");
	if (!TT_CHECK_OK(t, tt_trainer_create(&o, &tr)))
		return;
	for (int i = 0; i < 4; i++) {
		if (i == 3)
			TT_CHECK_OK(t, tt_trainer_resume(tr, 1, 1, 0));
		TT_CHECK_OK(t, tt_trainer_step(tr, &r));
	}
	tt_trainer_destroy(tr);
	if (!TT_CHECK_OK(t, tt_hashes_read(t->arena, o.record.folder, &f)))
		return;
	if (TT_CHECK_INT(t, f.ncells, 3))
		TT_CHECK_INT(t, f.cells[2].head.step, 2);
	tt_hashes_file_close(&f);
	/* A cell that comes twice. */
	char *bytes;
	size_t n;
	const char *twice = tt_test_path(t, "twice.bin");
	if (!TT_CHECK_OK(t, tt_file_read(t->arena, tt_arena_printf(t->arena, "%s/hashes.bin", whole), &bytes, &n)))
		return;
	size_t at = 8, size = 0;
	for (tt_hashes_record h; at + size < n; size = sizeof h + (size_t)tt_round_up(h.n, 8)) {
		at += size;
		memcpy(&h, bytes + at, sizeof h);
	}
	char *longer = TT_NEWN(t->arena, char, n + size);
	memcpy(longer, bytes, n);
	memcpy(longer + n, bytes + at, size);
	TT_CHECK_OK(t, tt_file_write(twice, longer, n + size));
	TT_CHECK_FAILS(t, tt_hashes_read(t->arena, twice, &f), TT_ERR_FORMAT, "is not the next run of its program");
	/* A new run in the same folder. */
	o.record.folder = NULL;
	o.exec.seed--;
	check_equal(t, whole, record(t, "run", o, 1, NULL), 100);
	text = diff(t, whole, tt_arena_printf(t->arena, "%s/hashes.old.bin", run), 0, &equal);
	says(t, text, "The runs part at step 3, STATE");
}

static void case_steps(tt_test *t)
{
	static const struct { const char *text; int64_t first, last, every; } S[] = {
		{ "", 1, 0, 1 }, { "7", 7, 7, 1 }, { "100-120", 100, 120, 1 }, { "100-", 100, 0, 1 }, { "1-1000/50", 1, 1000, 50 }, { "/50", 1, 0, 50 }, { "5-/2", 5, 0, 2 },
	};
	static const char *const bad[] = { "0", "-5", "5-4", "x", "1-2-3", "1/", "1/0", " 1", "1-2/3x", "99999999999999999999", "1,2" };
	tt_hashes_options o = { 0 };
	for (int i = 0; i < TT_COUNT(S); i++) {
		TT_CHECK_OK(t, tt_hashes_parse_steps(S[i].text, "debug.record_steps", &o));
		TT_CHECK_MSG(t, o.first == S[i].first && o.last == S[i].last && o.every == S[i].every, "\"%s\"", S[i].text);
	}
	for (int i = 0; i < TT_COUNT(bad); i++)
		TT_CHECK_FAILS(t, tt_hashes_parse_steps(bad[i], "debug.record_steps", &o), TT_ERR_USAGE, "debug.record_steps");
	tt_run_options r = kinds(standard(t), true, true);
	TT_CHECK_OK(t, tt_hashes_parse_steps("2-5/2", "debug.record_steps", &r.record));
	const char *run = record(t, "run", r, 6, NULL);
	tt_hashes_file f;
	if (!run || !TT_CHECK_OK(t, tt_hashes_read(t->arena, run, &f)))
		return;
	int count[7] = { 0 };
	for (int64_t i = 0; i < f.ncells; i++)
		count[f.cells[i].head.step] += f.cells[i].head.segment == TT_SEG_F || f.cells[i].head.segment == TT_HASHES_STATE;
	for (int s = 0; s <= 6; s++)
		TT_CHECK_INT(t, count[s], s == 0 ? 1 : s == 2 || s == 4 ? 2 : 0);
	tt_hashes_file_close(&f);
}

/* ---- off, and from the config ------------------------------------------------------------------------------------------------------------- */

static void case_off(tt_test *t)
{
	tt_run_options o = standard(t);
	tt_trainer *tr = NULL;
	tt_step_report r;
	TT_CHECK(t, chdir(tt_test_path(t, "")) == 0);
	if (!TT_CHECK_OK(t, tt_trainer_create(&o, &tr)))
		return;
	TT_CHECK_OK(t, tt_trainer_step(tr, &r));
	if (tt_malloc_count_available()) {
		tt_malloc_count_begin();
		tt_status s = tt_trainer_step(tr, &r);
		TT_CHECK_INT(t, tt_malloc_count_end(), 0);
		TT_CHECK_OK(t, s);
	}
	tt_trainer_destroy(tr);
	char **names;
	int64_t n = 0;
	TT_CHECK_OK(t, tt_fs_names(t->arena, &tt_fs_posix, ".", &names, &n));
	TT_CHECK_INT(t, n, 0);
}

static void case_config(tt_test *t)
{
	tt_config *c;
	tt_run_options o;
	const char *flags[] = { "--data.source=synthetic", "--job.dump_folder=somewhere", "--debug.record_hashes=state,values", "--debug.record_steps=3-9",
				"--training.tokens_per_step=2048", "--debug.record_steps=9-3" };
	if (!TT_CHECK_OK(t, tt_config_load(t->arena, NULL, 5, flags, &c)) || !TT_CHECK_OK(t, tt_run_options_from_config(t->arena, c, &o)))
		return;
	TT_CHECK_STR(t, o.record.folder, "somewhere");
	TT_CHECK(t, o.record.state && o.record.values && o.record.first == 3 && o.record.last == 9 && o.record.every == 1);
	says(t, o.record.settings, "tokens_per_step = 2048");
	if (TT_CHECK_OK(t, tt_config_load(t->arena, NULL, 2, flags, &c)) && TT_CHECK_OK(t, tt_run_options_from_config(t->arena, c, &o)))
		TT_CHECK(t, !o.record.folder && !o.record.state && !o.record.values);
	if (TT_CHECK_OK(t, tt_config_load(t->arena, NULL, 6, flags, &c)))
		TT_CHECK_FAILS(t, tt_run_options_from_config(t->arena, c, &o), TT_ERR_USAGE, "debug.record_steps is \"9-3\"");
}

/* The command: exit codes, flags, and settings of whole configs side by side. */
static void case_command(tt_test *t)
{
	tt_run_options o = kinds(standard(t), true, false);
	o.record.settings = "[job]\ndump_folder = \"x\"\n\n[optimizer]\nlr = 0.001\n\n[[optimizer.param_groups]]\npattern = \"p\"\n\n[[optimizer.param_groups]]\npattern = \"q\"\n";
	const char *a = record(t, "a", o, 1, NULL), *same = record(t, "same", o, 1, NULL);
	o.record.settings = "[job]\ndump_folder = \"y\"\n\n[optimizer]\nlr = 0.002\n\n[[optimizer.param_groups]]\npattern = \"p\"\n\n[[optimizer.param_groups]]\npattern = \"r\"\n";
	o.optim.lr *= 2;
	const char *b = record(t, "b", o, 1, NULL), *printed = tt_test_path(t, "printed");
	if (!a || !same || !b)
		return;
	fflush(stdout);
	int saved = dup(1), fd = open(printed, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	TT_CHECK(t, dup2(fd, 1) == 1);
	close(fd);
	const char *near;
	TT_CHECK_INT(t, tt_cli_exit_code(tt_cmd_diff(2, (const char *const[]){ a, same })), 0);
	TT_CHECK_INT(t, tt_cli_exit_code(tt_cmd_diff(4, (const char *const[]){ a, b, "--all", "--limit=3" })), 1);
	TT_CHECK_STR(t, tt_error_text(), ""); /* what it found is printed, and no error */
	TT_CHECK_INT(t, tt_cli_exit_code(tt_cmd_diff(1, (const char *const[]){ a })), 2);
	TT_CHECK_INT(t, tt_cli_exit_code(tt_cmd_diff(3, (const char *const[]){ a, b, same })), 2);
	TT_CHECK_FAILS(t, tt_command_run(tt_command_find("diff", &near), 3, (const char *const[]){ a, b, "--al" }), TT_ERR_USAGE, "did you mean --all?");
	TT_CHECK_FAILS(t, tt_cmd_diff(3, (const char *const[]){ a, b, "--limit=x" }), TT_ERR_USAGE, "a number from 0");
	fflush(stdout);
	dup2(saved, 1);
	close(saved);
	char *text;
	size_t n;
	if (!TT_CHECK_OK(t, tt_file_read(t->arena, printed, &text, &n)))
		return;
	says(t, text, "Equal: ");
	says(t, text, "  optimizer.lr                         0.001 | 0.002\n");
	says(t, text, "  optimizer.param_groups.pattern       \"q\" | \"r\"\n");
	says(t, text, "The first 3 values that differ");
	says(t, text, "The runs part at step 1, STATE:\n  loop.lr (state)");
	silent(t, text, "dump_folder");
}

const tt_case tt_suite_diff[] = {
	{ "equal", case_equal, TT_TIER_QUICK },
	{ "seed", case_seed, TT_TIER_QUICK },
	{ "data", case_data, TT_TIER_QUICK },
	{ "planted", case_planted, TT_TIER_QUICK },
	{ "op", case_op, TT_TIER_QUICK },
	{ "kernels", case_kernels, TT_TIER_QUICK },
	{ "microbatch", case_microbatch, TT_TIER_QUICK },
	{ "same_hash", case_same_hash, TT_TIER_QUICK },
	{ "damaged", case_damaged, TT_TIER_QUICK },
	{ "made_up", case_made_up, TT_TIER_QUICK },
	{ "circle", case_circle, TT_TIER_QUICK },
	{ "resumed", case_resumed, TT_TIER_QUICK },
	{ "steps", case_steps, TT_TIER_QUICK },
	{ "off", case_off, TT_TIER_QUICK },
	{ "config", case_config, TT_TIER_QUICK },
	{ "command", case_command, TT_TIER_QUICK },
	{ 0 },
};
