/* bench_report.c: results as Markdown, and all results of a folder in one file of each kind. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/bench.h"

/* ---- numbers out of JSON: NaN where there is none ----------------------------------------------------------------------------------------------- */

static double num(const json_t *row, const char *key)
{
	const json_t *v = json_object_get(row, key);
	return json_is_number(v) ? json_number_value(v) : NAN;
}

static const char *str(const json_t *row, const char *key)
{
	const char *s = json_string_value(json_object_get(row, key));
	return s ? s : "";
}

static bool is(const json_t *row, const char *key) { return json_is_true(json_object_get(row, key)); }

/* A cell of a table; empty for NaN. */
static void cell(tt_buf *b, const char *format, double v)
{
	char text[64];
	snprintf(text, sizeof text, format, v);
	tt_buf_printf(b, " %s |", isfinite(v) ? text : "");
}

static void noisy_cell(tt_buf *b, const json_t *row)
{
	if (is(row, "noisy"))
		tt_buf_printf(b, " noisy: others used %.2f cores |\n", num(row, "others"));
	else
		tt_buf_str(b, " |\n");
}

/* Geometric mean and least of what was added; NaN is passed over. */
typedef struct mean { double logs, least; int n; } mean;

static void mean_add(mean *m, double v)
{
	if (!(v > 0))
		return;
	m->logs += log(v);
	m->least = m->n ? TT_MIN(m->least, v) : v;
	m->n++;
}

static void mean_cells(tt_buf *b, const mean *m, double unit, const char *format)
{
	cell(b, format, m->n ? unit * exp(m->logs / m->n) : NAN);
	cell(b, format, m->n ? unit * m->least : NAN);
}

static const char *const dtypes[] = { "f32", "bf16" };

/* Peak of the row's dtype with its threads, GFLOP/s. */
static double peak_of(const json_t *j, const json_t *row)
{
	char key[32];
	snprintf(key, sizeof key, "%s_%s", str(row, "dtype"), num(row, "threads") == 1 ? "one" : "all");
	double p = num(json_object_get(j, "peak_gflops"), key);
	/* With one thread in all, one is all. */
	snprintf(key, sizeof key, "%s_all", str(row, "dtype"));
	return isfinite(p) ? p : num(json_object_get(j, "peak_gflops"), key);
}

static void peaks_line(const json_t *j, tt_buf *b)
{
	const char *key;
	json_t *peaks = json_object_get(j, "peak_gflops"), *v;
	tt_buf_printf(b, "%s, %.0f threads. Measured peak, GFLOP/s:", str(j, "peer"), num(j, "threads"));
	json_object_foreach(peaks, key, v) {
		tt_buf_printf(b, " %s %.0f", key, json_number_value(v));
	}
	tt_buf_str(b, ".\n\n");
}

/* ---- train --------------------------------------------------------------------------------------------------------------------------------- */

static bool ours(const json_t *row) { return !strncmp(str(row, "peer"), "titan", 5); }

static bool same_case(const json_t *x, const json_t *y)
{
	return !strcmp(str(x, "preset"), str(y, "preset")) && !strcmp(str(x, "dtype"), str(y, "dtype")) && num(x, "threads") == num(y, "threads");
}

/* The fastest of ours, or of the peers, in the case of `like`; NULL: none. */
static const json_t *fastest(const json_t *rows, const json_t *like, bool of_ours)
{
	const json_t *best = NULL, *r;
	size_t i;
	json_array_foreach(rows, i, r)
		if (same_case(r, like) && ours(r) == of_ours && (!best || num(r, "tokens_per_s") > num(best, "tokens_per_s")))
			best = r;
	return best;
}

static double least_memory(const json_t *rows, const json_t *like)
{
	const json_t *r;
	double least = NAN;
	size_t i;
	json_array_foreach(rows, i, r)
		if (same_case(r, like) && !ours(r))
			least = num(r, "peak_rss_mib") < least || isnan(least) ? num(r, "peak_rss_mib") : least;
	return least;
}

void tt_bench_md_train(const json_t *j, tt_buf *b)
{
	json_t *rows = json_is_array(j) ? json_incref((json_t *)j) : json_pack("[O]", (json_t *)j), *r;
	size_t i;
	bool peers = false;
	tt_buf_str(b, "| preset | dtype | who | threads | tokens/s | step s | MFU % | peak memory MiB | first step s | loss | |\n"
		      "|---|---|---|--:|--:|--:|--:|--:|--:|---|---|\n");
	json_array_foreach(rows, i, r) {
		peers |= !ours(r);
		tt_buf_printf(b, "| %s | %s | %s | %.0f |", str(r, "preset"), str(r, "dtype"), str(r, "peer"), num(r, "threads"));
		cell(b, "%.0f", num(r, "tokens_per_s"));
		cell(b, "%.4f", num(r, "step_s"));
		cell(b, "%.1f", num(r, "mfu"));
		cell(b, "%.0f", num(r, "peak_rss_mib"));
		cell(b, "%.2f", num(r, "first_step_s"));
		tt_buf_printf(b, " %.3f to %.3f |", num(r, "loss_first"), num(r, "loss_last"));
		noisy_cell(b, r);
	}
	if (peers) {
		tt_buf_str(b, "\nAgainst the fastest peer; memory against the smallest.\n\n| preset | dtype | tokens/s | peer | ratio | memory ratio |\n|---|---|--:|---|--:|--:|\n");
		json_array_foreach(rows, i, r) {
			const json_t *peer = fastest(rows, r, false);
			if (!peer || fastest(rows, r, true) != r)
				continue;
			tt_buf_printf(b, "| %s | %s |", str(r, "preset"), str(r, "dtype"));
			cell(b, "%.0f", num(r, "tokens_per_s"));
			tt_buf_printf(b, " %s, %.0f |", str(peer, "peer"), num(peer, "tokens_per_s"));
			cell(b, "%.2f", num(r, "tokens_per_s") / num(peer, "tokens_per_s"));
			cell(b, "%.2f", num(r, "peak_rss_mib") / least_memory(rows, r));
			tt_buf_str(b, "\n");
		}
	}
	json_decref(rows);
}

void tt_bench_md_passes(const json_t *j, tt_buf *b)
{
	const json_t *rows = json_object_get(j, "rows"), *r;
	size_t i;
	tt_buf_printf(b, "%s, %s, %s: steps with the flag and without it in turn; planned memory.\n\n", str(j, "peer"), str(j, "preset"), str(j, "dtype"));
	if (!json_array_size(rows)) {
		tt_buf_str(b, "No pass can be left out in this version.\n");
		return;
	}
	tt_buf_str(b, "| flag | step s | without | time ratio | memory MiB | without | |\n|---|--:|--:|--:|--:|--:|---|\n");
	json_array_foreach(rows, i, r) {
		tt_buf_printf(b, "| `%s` |", str(r, "flag"));
		cell(b, "%.4f", num(r, "step_s"));
		cell(b, "%.4f", num(r, "step_s_without"));
		cell(b, "%.3f", num(r, "time"));
		cell(b, "%.1f", num(r, "mib"));
		cell(b, "%.1f", num(r, "mib_without"));
		noisy_cell(b, r);
	}
}

/* ---- products ------------------------------------------------------------------------------------------------------------------------------ */

static void shape_cells(tt_buf *b, const json_t *r)
{
	tt_buf_printf(b, "| %.0f, %.0f, %.0f | %s | %.0f |", num(r, "m"), num(r, "n"), num(r, "k"), str(r, "dtype"), num(r, "threads"));
}

void tt_bench_md_gemm(const json_t *j, tt_buf *b)
{
	static const char *const names[] = { "forward", "segments", "dx", "dw" };
	const json_t *rows = json_object_get(j, "rows"), *r;
	size_t i;
	peaks_line(j, b);
	tt_buf_str(b, "GFLOP/s and percent of the peak. `segments`: forward in 8 joined K segments, over forward in one chain.\n\n"
		      "| M, N, K | dtype | threads | forward | % | segments | ratio | dX | % | dW | % | |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n");
	json_array_foreach(rows, i, r) {
		double peak = peak_of(j, r);
		shape_cells(b, r);
		for (int k = 0; k < TT_COUNT(names); k++) {
			double v = num(r, names[k]);
			cell(b, "%.0f", v);
			if (k == 1)
				cell(b, "%.3f", v / num(r, "forward"));
			else
				cell(b, "%.0f", 100 * v / peak);
		}
		noisy_cell(b, r);
	}
	tt_buf_str(b, "\nGeometric mean and least over the rows with M of 64 and more: percent of the peak, and the ratio of segments.\n\n"
		      "| dtype | threads | forward % | least | dX % | least | dW % | least | segments | least |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n");
	for (int d = 0; d < TT_COUNT(dtypes); d++)
		for (int all = 0; all < 2; all++) {
			mean m[4] = { { 0 } };
			json_array_foreach(rows, i, r) {
				bool mine = !strcmp(str(r, "dtype"), dtypes[d]) && (num(r, "threads") > 1) == all && num(r, "m") >= 64;
				for (int k = 0; k < 4 && mine; k++)
					mean_add(&m[k], num(r, names[k]) / (k == 1 ? num(r, "forward") : peak_of(j, r)));
			}
			if (!m[0].n)
				continue;
			tt_buf_printf(b, "| %s | %.0f |", dtypes[d], all ? num(j, "threads") : 1);
			mean_cells(b, &m[0], 100, "%.1f");
			mean_cells(b, &m[2], 100, "%.1f");
			mean_cells(b, &m[3], 100, "%.1f");
			mean_cells(b, &m[1], 1, "%.3f");
			tt_buf_str(b, "\n");
		}
}

/* NAME_any and NAME_plain are the library's rates; the better one counts, but beside few rows row-major weights are shown too. It has no
 * segments: ours stand beside its forward. */
void tt_bench_md_onednn(const json_t *j, tt_buf *b)
{
	static const char *const names[] = { "forward", "dx", "dw", "segments" }, *const few[] = { "1 to 4", "5 to 16" };
	enum { N = TT_COUNT(names), ALL = N }; /* ALL: forward and both gradients */
	const json_t *rows = json_object_get(j, "rows"), *r;
	mean m[2][2][N + 1] = { { { { 0 } } } }, over_rows[2][2][2] = { { { { 0 } } } };
	size_t i;
	tt_buf_printf(b, "%s against %s, in turn in one process; GFLOP/s of both and the ratio. Weights are packed before the timing by both; for dW all "
			 "packing is inside it. Segments: ours over its forward. The last columns: against weights as rows, for few tokens.\n\n"
			 "| M, N, K | dtype | threads | forward | theirs | ratio | dX | theirs | ratio | dW | theirs | ratio | segments | ratio | forward over rows | "
			 "dX over rows | |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n", str(j, "peer"), str(j, "other"));
	json_array_foreach(rows, i, r) {
		double over[N];
		int d = !strcmp(str(r, "dtype"), "bf16"), all = num(r, "threads") > 1;
		shape_cells(b, r);
		for (int k = 0; k < N; k++) {
			const char *theirs = k == 3 ? names[0] : names[k];
			char any[32], plain[32];
			snprintf(any, sizeof any, "%s_any", theirs);
			snprintf(plain, sizeof plain, "%s_plain", theirs);
			double v = num(r, names[k]), best = fmax(num(r, any), num(r, plain)); /* of a number and NaN: the number */
			over[k] = v / num(r, plain);
			cell(b, "%.0f", v);
			if (k < 3)
				cell(b, "%.0f", best);
			cell(b, "%.2f", v / best);
			mean_add(&m[d][all][k], v / best);
			if (k < 3)
				mean_add(&m[d][all][ALL], v / best);
		}
		if (num(r, "m") <= 16)
			mean_add(&over_rows[d][all][num(r, "m") > 4], over[0]);
		cell(b, "%.2f", num(r, "m") < 64 ? over[0] : NAN);
		cell(b, "%.2f", num(r, "m") < 64 ? over[1] : NAN);
		noisy_cell(b, r);
	}
	tt_buf_str(b, "\nRatios, geometric mean and least; `all`: forward, dX and dW.\n\n| dtype | threads | forward | least | dX | least | dW | least | segments | least | "
		      "all | least |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n");
	for (int d = 0; d < 2; d++)
		for (int all = 0; all < 2; all++)
			if (m[d][all][0].n) {
				tt_buf_printf(b, "| %s | %.0f |", dtypes[d], all ? num(j, "threads") : 1);
				for (int k = 0; k <= ALL; k++)
					mean_cells(b, &m[d][all][k], 1, "%.3f");
				tt_buf_str(b, "\n");
			}
	tt_buf_str(b, "\nForward for few tokens, over weights as rows.\n\n| tokens | dtype | threads | ratio | least |\n|---|---|--:|--:|--:|\n");
	for (int d = 0; d < 2; d++)
		for (int all = 0; all < 2; all++)
			for (int f = 0; f < 2; f++)
				if (over_rows[d][all][f].n) {
					tt_buf_printf(b, "| %s | %s | %.0f |", few[f], dtypes[d], all ? num(j, "threads") : 1);
					mean_cells(b, &over_rows[d][all][f], 1, "%.2f");
					tt_buf_str(b, "\n");
				}
}

/* ---- attention, start-up ---------------------------------------------------------------------------------------------------------------------- */

void tt_bench_md_attention(const json_t *j, tt_buf *b)
{
	const json_t *rows = json_object_get(j, "rows"), *r;
	size_t i;
	peaks_line(j, b);
	tt_buf_str(b, "GFLOP/s of attended pairs (two products forward, five backward) and percent of the peak; then 8 sequences in the row: the time over that "
		      "of one sequence, beside the attended pairs over its pairs.\n\n"
		      "| T | head dim | heads | dtype | forward | % | backward | % | pairs, 8 | forward time, 8 | backward time, 8 | |\n"
		      "|--:|--:|---|---|--:|--:|--:|--:|--:|--:|--:|---|\n");
	json_array_foreach(rows, i, r) {
		double peak = peak_of(j, r);
		tt_buf_printf(b, "| %.0f | %.0f | %.0f/%.0f | %s |", num(r, "tokens"), num(r, "head_dim"), num(r, "heads"), num(r, "kv_heads"), str(r, "dtype"));
		cell(b, "%.0f", num(r, "forward"));
		cell(b, "%.0f", 100 * num(r, "forward") / peak);
		cell(b, "%.0f", num(r, "backward"));
		cell(b, "%.0f", 100 * num(r, "backward") / peak);
		cell(b, "%.3f", num(r, "pairs_8"));
		cell(b, "%.3f", num(r, "forward_time_8"));
		cell(b, "%.3f", num(r, "backward_time_8"));
		noisy_cell(b, r);
	}
}

void tt_bench_md_startup(const json_t *j, tt_buf *b)
{
	const json_t *rows = json_object_get(j, "rows"), *r;
	const char *part;
	json_t *parts = json_object_get(json_array_get(rows, 0), "parts"), *v;
	size_t i;
	tt_buf_str(b, "Milliseconds from fork to the first instruction of step 1, median of processes of their own.\n\n| preset | all | least |");
	json_object_foreach(parts, part, v) {
		tt_buf_printf(b, " %s |", part);
	}
	tt_buf_str(b, " |\n|---|--:|--:|");
	for (i = 0; i < json_object_size(parts); i++)
		tt_buf_str(b, "--:|");
	tt_buf_str(b, "---|\n");
	json_array_foreach(rows, i, r) {
		tt_buf_printf(b, "| %s |", str(r, "preset"));
		cell(b, "%.1f", 1e3 * num(r, "median_s"));
		cell(b, "%.1f", 1e3 * num(r, "least_s"));
		json_object_foreach(parts, part, v) {
			cell(b, "%.1f", 1e3 * num(json_object_get(r, "parts"), part));
		}
		noisy_cell(b, r);
	}
}

/* ---- all of a folder ---------------------------------------------------------------------------------------------------------------------------- */

static const struct { const char *key, *title; void (*md)(const json_t *j, tt_buf *b); } sections[] = {
	{ "train", "Training", tt_bench_md_train },       { "passes", "Passes and recomputation", tt_bench_md_passes },
	{ "gemm", "Matrix products", tt_bench_md_gemm },  { "onednn", "Matrix products against oneDNN", tt_bench_md_onednn },
	{ "attention", "Attention", tt_bench_md_attention }, { "startup", "Start-up", tt_bench_md_startup },
};

static tt_status parse_json(const char *path, const char *text, size_t n, int line, json_t **out)
{
	json_error_t error;
	json_t *j = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
	if (!j || !json_is_object(j)) {
		json_decref(j);
		TT_FAIL(TT_ERR_FORMAT, "%s:%d: no JSON object%s%s", path, line, j ? "" : ": ", j ? "" : error.text);
	}
	*out = j;
	return TT_OK;
}

/* A list of the lines. */
static tt_status parse_lines(tt_arena *a, const char *path, char *text, json_t **out)
{
	json_t *rows = json_array(), *row = NULL;
	char *save = NULL;
	int line = 1;
	(void)a;
	for (char *s = strtok_r(text, "\n", &save); s; s = strtok_r(NULL, "\n", &save), line++) {
		tt_status status = parse_json(path, s, strlen(s), line, &row);
		if (status != TT_OK) {
			json_decref(rows);
			TT_TRY(status);
		}
		json_array_append_new(rows, row);
	}
	*out = rows;
	return TT_OK;
}

static tt_status read_section(tt_arena *a, const char *folder, const char *key, json_t *all)
{
	bool lines = !strcmp(key, "train");
	const char *path = tt_arena_printf(a, "%s/%s.json%s", folder, key, lines ? "l" : "");
	char *text;
	size_t n;
	json_t *j = NULL;
	if (access(path, F_OK) && errno == ENOENT)
		return TT_OK;
	TT_TRY(tt_file_read(a, path, &text, &n));
	if (lines)
		TT_TRY(parse_lines(a, path, text, &j));
	else
		TT_TRY(parse_json(path, text, n, 1, &j));
	json_object_set_new(all, key, j);
	return TT_OK;
}

static tt_status write_text(tt_arena *a, const char *folder, const char *name, const tt_buf *b)
{
	return tt_file_write(tt_arena_printf(a, "%s/%s", folder, name), b->s, b->n);
}

static tt_status write_all(tt_arena *a, const char *folder, const json_t *all)
{
	tt_buf md = { 0 }, svg = { 0 }, js = { 0 };
	char *text = json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
	tt_buf_printf(&js, "%s\n", text);
	tt_buf_str(&md, "# Benchmarks\n\nMade by `make bench`; docs/bench.md says what is measured and how.\n\n![bars](bench.svg)\n");
	for (int i = 0; i < TT_COUNT(sections); i++) {
		const json_t *j = json_object_get(all, sections[i].key);
		if (!j)
			continue;
		tt_buf_printf(&md, "\n## %s\n\n", sections[i].title);
		sections[i].md(j, &md);
	}
	tt_bench_svg(all, &svg);
	tt_status s = write_text(a, folder, "bench.json", &js);
	if (s == TT_OK)
		s = write_text(a, folder, "bench.md", &md);
	if (s == TT_OK)
		s = write_text(a, folder, "bench.svg", &svg);
	tt_buf_fini(&md);
	tt_buf_fini(&svg);
	tt_buf_fini(&js);
	free(text);
	return s;
}

tt_status tt_bench_report(tt_arena *a, const char *folder)
{
	json_t *all = json_object();
	tt_status s = TT_OK;
	for (int i = 0; i < TT_COUNT(sections) && s == TT_OK; i++)
		s = read_section(a, folder, sections[i].key, all);
	if (s == TT_OK && !json_object_size(all))
		s = tt_error_set(TT_ERR_USAGE, __FILE__, __LINE__, "%s holds no results: train.jsonl, gemm.json ... (make bench makes them)", folder);
	if (s == TT_OK)
		s = write_all(a, folder, all);
	json_decref(all);
	TT_TRY(s);
	return TT_OK;
}
