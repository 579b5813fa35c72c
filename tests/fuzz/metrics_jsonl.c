/* metrics_jsonl.c: a metrics.jsonl, read, drawn and cut. Three bytes of options (x axis, smoothing, logarithm), then the file. */
#define _GNU_SOURCE
#include "fuzz.h"

#include "metrics/internal.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const metrics[] = { "loss", "grad_norm", "lr", "a" };

static void check_points(const tt_metrics_points *p)
{
	for (int64_t i = 0; i < p->n; i++) {
		FUZZ_CHECK(!i || p->step[i - 1] <= p->step[i], "step %g after %g", p->step[i], p->step[i - 1]);
		fuzz_touch(&p->tokens[i], sizeof *p->tokens);
		fuzz_touch(&p->seconds[i], sizeof *p->seconds);
		for (int k = 0; k < TT_COUNT(metrics); k++)
			fuzz_touch(&p->values[k][i], sizeof **p->values);
	}
}

/* Whether every line begins as ours do: cutting knows no others. */
static bool is_ours(const char *p, size_t n)
{
	static const char head[] = "{\"step\":";
	for (const char *line = p, *end = p + n, *stop; line < end; line = stop + 1) {
		stop = memchr(line, '\n', (size_t)(end - line));
		stop = stop ? stop : end;
		if ((size_t)(stop - line) < sizeof head || memcmp(line, head, sizeof head - 1))
			return false;
	}
	return true;
}

void fuzz_one(const uint8_t *p, size_t n)
{
	if (n < 3)
		return;
	tt_arena *a = tt_arena_create("fuzz");
	tt_plot_options o = { .x = (tt_plot_x)(p[0] % 3), .smooth = p[1] % 16, .log = p[2] & 1 };
	tt_metrics_run runs[2];
	const char *path = fuzz_file(0, p + 3, n - 3);
	if (tt_metrics_read(a, path, metrics, TT_COUNT(metrics), &runs[0]) == TT_OK) {
		FUZZ_CHECK(tt_metrics_read(a, path, metrics, TT_COUNT(metrics), &runs[1]) == TT_OK, "the second time: %s", tt_error_text());
		check_points(&runs[0].steps);
		check_points(&runs[0].validations);
		tt_buf svg = { 0 };
		tt_plot_svg(runs, 2, metrics, TT_COUNT(metrics), &o, &svg);
		/* None of its words holds these three letters. */
		const char *odd = memmem(svg.s, svg.n, "nan", 3);
		odd = odd ? odd : memmem(svg.s, svg.n, "inf", 3);
		FUZZ_CHECK(svg.s[0] == '<' && !odd, "a number in the drawing is none: %.200s", odd ? odd - TT_MIN(odd - svg.s, 100) : svg.s);
		tt_buf_fini(&svg);
		const char *near = NULL;
		for (int64_t i = 0; i < runs[0].nnames; i++)
			FUZZ_CHECK(tt_metrics_known(runs, 2, runs[0].names[i], &near), "%s is not known", runs[0].names[i]);
		(void)tt_metrics_known(runs, 2, "los", &near);
	}
	path = fuzz_folder_file("metrics.jsonl", p + 3, n - 3);
	FUZZ_CHECK(tt_jsonl_trim(path, 3, n % 2) == TT_OK, "%s", tt_error_text());
	if (is_ours((const char *)p + 3, n - 3) && tt_metrics_read(a, path, metrics, TT_COUNT(metrics), &runs[0]) == TT_OK)
		for (int64_t i = 0; i < runs[0].steps.n; i++)
			FUZZ_CHECK(runs[0].steps.step[i] <= 3, "step %g after cutting behind step 3", runs[0].steps.step[i]);
	tt_arena_destroy(a);
}

void fuzz_seeds(void)
{
	fuzz_seed_text("\x01\x02\x01{\"step\":0,\"type\":\"start\",\"schema\":1}\n{\"step\":1,\"type\":\"step\",\"loss\":2.5,\"grad_norm\":1e-3,\"lr\":0.1,\"seconds\":0.5,"
		       "\"tokens_seen\":64,\"extra\":{\"a\":1}}\n{\"step\":1,\"type\":\"validation\",\"loss\":2.25,\"bits_per_token\":3.1}\n"
		       "{\"step\":2,\"type\":\"step\",\"loss\":2,\"seconds\":0.25,\"tokens_seen\":128,\"lr\":0}\n");
	fuzz_seed_text("acb{\"step\":1,\"type\":\"step\",\"loss\":1e308,\"lr\":5e-324}\n{\"step\":2,\"type\":\"step\",\"loss\":-1e308,\"lr\":1e-300}\n"
		       "{\"step\":9223372036854775807,\"type\":\"step\",\"loss\":1e150,\"lr\":1e150,\"seconds\":1e308,\"tokens_seen\":1e308}\n");
	tt_buf b = { 0 };
	tt_buf_str(&b, "abc");
	for (int i = 1; i <= 12; i++)
		tt_buf_printf(&b, "{\"step\":%d,\"type\":\"step\",\"loss\":%s}\n", i % 9 + 1, i % 5 ? "3.25" : "null");
	tt_buf_str(&b, "{\"step\":7,\"ty");
	fuzz_seed(b.s, b.n);
	tt_buf_fini(&b);
	static const char *const words[] = { "\"schema\":1", "\"type\":\"step\"", "\"type\":\"validation\"", "\"step\":", "\"loss\":", "\"grad_norm\":", "\"lr\":",
					     "\"extra\":{", "\"tokens_seen\":", "\"seconds\":", "\"a\":", "\"nonfinite\":true", "null", "true", "1e308", "-1e308", "5e-324",
					     "9223372036854775807", "-9223372036854775808", "}\n{\"step\":", "\n", "0", "-1" };
	for (int i = 0; i < TT_COUNT(words); i++)
		fuzz_word(words[i]);
	for (int i = 0; i < tt_metrics_nfields; i++)
		fuzz_word(tt_metrics_fields[i].key);
}
