/* bench_svg.c: results as bars in an SVG file: training beside its peers, and shares of the measured peak. Lengths are pixels. */
#include <math.h>
#include <stdio.h>

#include "cli/bench.h"

enum { WIDTH = 860, LEFT = 300, LONGEST = 420, BAR = 18, GAP = 6, HEAD = 44 };

typedef struct picture { tt_buf *b; int y; } picture;

static void heading(picture *p, const char *text)
{
	p->y += HEAD;
	tt_buf_printf(p->b, "<text class=\"h\" x=\"20\" y=\"%d\">%s</text>\n", p->y - 12, text);
}

/* Names come from result files: what is not plain would break the XML. */
static void plain(tt_buf *b, const char *s)
{
	for (; *s; s++)
		tt_buf_printf(b, "%c", *s < ' ' || *s > '~' || strchr("<>&\"", *s) ? '?' : *s);
}

/* `share` of the longest bar. */
static void bar(picture *p, bool ours, const char *label, double share, const char *value)
{
	if (!isfinite(share))
		return;
	double w = LONGEST * fmin(fmax(share, 0), 1);
	tt_buf_printf(p->b, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">", LEFT - 8, p->y + 13);
	plain(p->b, label);
	tt_buf_printf(p->b, "</text><rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\"/><text x=\"%.1f\" y=\"%d\">%s</text>\n", ours ? "o" : "p",
		      LEFT, p->y, w, BAR, LEFT + w + 6, p->y + 13, value);
	p->y += BAR + GAP;
}

static double num(const json_t *row, const char *key)
{
	const json_t *v = json_object_get(row, key);
	return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static const char *str(const json_t *row, const char *key)
{
	const char *s = json_string_value(json_object_get(row, key));
	return s ? s : "";
}

static bool same(const json_t *x, const json_t *y, const char *key) { return !strcmp(str(x, key), str(y, key)); }

/* Is run `at` the fastest of its peer's in its case? Of equals the first. */
static bool counts(const json_t *rows, size_t at)
{
	const json_t *r = json_array_get(rows, at), *q;
	size_t i;
	json_array_foreach(rows, i, q)
		if (same(q, r, "peer") && same(q, r, "preset") && same(q, r, "dtype") &&
		    (num(q, "tokens_per_s") > num(r, "tokens_per_s") || (i < at && num(q, "tokens_per_s") == num(r, "tokens_per_s"))))
			return false;
	return true;
}

/* Tokens per second; the longest bar of a preset and dtype is its fastest. */
static void training(picture *p, const json_t *rows)
{
	const json_t *r, *q;
	size_t i, k;
	char label[160], value[64];
	heading(p, "Training, tokens/s");
	json_array_foreach(rows, i, r) {
		double most = 0;
		if (!counts(rows, i))
			continue;
		json_array_foreach(rows, k, q)
			if (same(q, r, "preset") && same(q, r, "dtype"))
				most = fmax(most, num(q, "tokens_per_s"));
		snprintf(label, sizeof label, "%.20s %.8s, %.40s", str(r, "preset"), str(r, "dtype"), str(r, "peer"));
		snprintf(value, sizeof value, "%.0f", num(r, "tokens_per_s"));
		bar(p, !strncmp(str(r, "peer"), "titan", 5), label, num(r, "tokens_per_s") / most, value);
	}
}

static void share_bar(picture *p, const char *label, double share)
{
	char value[32];
	snprintf(value, sizeof value, "%.0f%%", 100 * share);
	bar(p, true, label, share, value);
}

/* Geometric mean over rows of all threads and one dtype of key / peak; rows of few tokens are bound by memory and left out. */
static void rates(picture *p, const json_t *j, const char *what, const char *const *keys, int nkeys)
{
	static const char *const dtypes[] = { "f32", "bf16" };
	char label[96], all[32];
	for (int d = 0; d < TT_COUNT(dtypes); d++)
		for (int k = 0; k < nkeys; k++) {
			const json_t *r;
			size_t i;
			double logs = 0;
			int n = 0;
			snprintf(all, sizeof all, "%s_all", dtypes[d]);
			double peak = num(json_object_get(j, "peak_gflops"), all);
			json_array_foreach(json_object_get(j, "rows"), i, r)
				if (!strcmp(str(r, "dtype"), dtypes[d]) && num(r, "threads") == num(j, "threads") && !(num(r, "m") < 64) && num(r, keys[k]) > 0) {
					logs += log(num(r, keys[k]) / peak);
					n++;
				}
			snprintf(label, sizeof label, "%s %s, %s", what, keys[k], dtypes[d]);
			share_bar(p, label, n ? exp(logs / n) : (double)NAN);
		}
}

void tt_bench_svg(const json_t *all, tt_buf *out)
{
	tt_buf body = { 0 };
	picture p = { .b = &body };
	const json_t *train = json_object_get(all, "train"), *gemm = json_object_get(all, "gemm"), *attention = json_object_get(all, "attention"), *r;
	size_t i;
	char label[160];
	if (train)
		training(&p, train);
	if (train || gemm || attention)
		heading(&p, "Share of the measured peak");
	json_array_foreach(train, i, r) {
		if (!counts(train, i))
			continue;
		snprintf(label, sizeof label, "%.20s %.8s, model FLOP/s", str(r, "preset"), str(r, "dtype"));
		share_bar(&p, label, num(r, "mfu") / 100);
	}
	rates(&p, gemm, "products", (const char *const[]){ "forward", "dx", "dw" }, 3);
	rates(&p, attention, "attention", (const char *const[]){ "forward", "backward" }, 2);
	tt_buf_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"13\">\n"
			   "<style>.h{font-size:16px;font-weight:bold}.o{fill:#2a6fb0}.p{fill:#b9b9b9}</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
		      WIDTH, p.y + 20);
	tt_buf_str(out, body.s ? body.s : "");
	tt_buf_str(out, "</svg>\n");
	tt_buf_fini(&body);
}
