/* plot.c: runs as curves in an SVG file. One panel per metric, one colour per run; validations are rings.
 *
 * Lengths are pixels of the drawing. A panel maps [x0, x1] and [y0, y1] of the values (of their log10 with --log) to its rectangle. Where
 * there are more points than pixels, a column of pixels keeps its first, least, greatest and last, which draws the same picture.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "metrics/internal.h"

enum { WIDTH = 960, LEFT = 84, RIGHT = 28, PANEL = 270, ABOVE = 44, BELOW = 50, LEGEND_ROW = 20, COLOURS = 8, NAME_MOST = 48 };

typedef struct axis {
	double lo, hi;      /* of the values, or of their log10 */
	double at, length;  /* pixels: of lo, and towards hi (negative: upwards) */
	bool log;
} axis;

typedef struct plot {
	const tt_metrics_run *runs;
	int nruns;
	const tt_plot_options *o;
	tt_buf *b;
	double unit;       /* of x: divides */
	const char *x_label;
	double *y;         /* scratch: values of one run, longest run */
	double *smooth;
} plot;

static double *x_of(const plot *p, const tt_metrics_points *s)
{
	switch (p->o->x) {
	case TT_PLOT_STEP: return s->step;
	case TT_PLOT_TOKENS: return s->tokens;
	case TT_PLOT_TIME: return s->seconds;
	}
	return s->step;
}

/* ---- text ------------------------------------------------------------------------------------------------------------------------------ */

/* At most `most` characters, the last ones if there are more: the end of a path tells more than its beginning. */
static void put_text(tt_buf *b, const char *s, int most)
{
	int n = 0;
	for (const char *q = s; *q; q += TT_MAX(tt_utf8_length(q), 1))
		n++;
	if (n > most) {
		tt_buf_str(b, "\xe2\x80\xa6");
		for (; n >= most; n--)
			s += TT_MAX(tt_utf8_length(s), 1);
	}
	for (int k; *s; s += TT_MAX(k, 1)) {
		k = tt_utf8_length(s);
		if (*s == '&')
			tt_buf_str(b, "&amp;");
		else if (*s == '<')
			tt_buf_str(b, "&lt;");
		else if (*s == '>')
			tt_buf_str(b, "&gt;");
		else if (*s == '"')
			tt_buf_str(b, "&quot;");
		else if (!k || (unsigned char)*s < 0x20)
			tt_buf_str(b, "?"); /* nothing else is allowed in XML */
		else
			tt_buf_add(b, s, (size_t)k);
	}
}

static int text_width(const char *s)
{
	int n = 0;
	for (; *s; s += TT_MAX(tt_utf8_length(s), 1))
		n++;
	return TT_MIN(n, (int)NAME_MOST) * 7;
}

/* Values beyond this are drawn as gaps: their differences would overflow. */
static const double beyond = 1e150;

/* ---- axes ------------------------------------------------------------------------------------------------------------------------------ */

static double place(const axis *a, double v)
{
	if (fabs(v) > beyond)
		return NAN;
	if (a->log)
		v = v > 0 ? log10(v) : NAN;
	return a->at + (v - a->lo) / (a->hi - a->lo) * a->length;
}

/* The least of 1, 2, 5 times a power of ten that cuts `range` into at most `parts`. */
static double nice_step(double range, int parts)
{
	double rough = range / parts, power = pow(10, floor(log10(rough))), m = rough / power;
	return power * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
}

/* Digits after the point so that multiples of `step` differ. */
static int decimals(double step) { return TT_MIN(12, (int)TT_MAX(0.0, ceil(-log10(step) - 1e-9))); }

static void put_tick(tt_buf *b, double v, double step, double most)
{
	static const struct { double unit; const char *name; } big[] = { { 1e12, "T" }, { 1e9, "G" }, { 1e6, "M" }, { 1e4, "k" } };
	if (fabs(v) < step * 1e-6) {
		tt_buf_str(b, "0");
		return;
	}
	for (int i = 0; i < TT_COUNT(big); i++)
		if (most >= big[i].unit) {
			double unit = i == 3 ? 1e3 : big[i].unit;
			if (most >= 1e15)
				tt_buf_printf(b, "%.3g", v);
			else
				tt_buf_printf(b, "%.*f%s", decimals(step / unit), v / unit, big[i].name);
			return;
		}
	if (most < 0.01) {
		int e = (int)floor(log10(most) + 1e-9);
		double unit = pow(10, e);
		tt_buf_printf(b, "%.*fe%d", decimals(step / unit), v / unit, e);
		return;
	}
	tt_buf_printf(b, "%.*f", decimals(step), v);
}

static void put_gridline(plot *p, const axis *x, const axis *y, bool vertical, double at, const char *text)
{
	if (vertical)
		tt_buf_printf(p->b, "<line class=\"g\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/><text class=\"t\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
			      at, y->at, at, y->at + y->length, at, y->at + 18, text);
	else
		tt_buf_printf(p->b, "<line class=\"g\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/><text class=\"t\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
			      x->at, at, x->at + x->length, at, x->at - 8, at + 4, text);
}

static void put_linear_ticks(plot *p, const axis *x, const axis *y, bool vertical)
{
	const axis *a = vertical ? x : y;
	/* With a logarithmic axis this is reached over less than a decade: the marks are even in the value. */
	double lo = a->log ? pow(10, a->lo) : a->lo, hi = a->log ? pow(10, a->hi) : a->hi;
	double step = nice_step(hi - lo, vertical ? 8 : 6), most = TT_MAX(fabs(lo), fabs(hi));
	tt_buf text = { 0 };
	for (int64_t i = (int64_t)ceil(lo / step - 1e-9), k = 0; (double)i * step <= hi + step * 1e-9 && k < 20; i++, k++) {
		text.n = 0;
		put_tick(&text, (double)i * step, step, most);
		double at = place(a, (double)i * step);
		if (isfinite(at))
			put_gridline(p, x, y, vertical, at, text.s);
	}
	tt_buf_fini(&text);
}

static void put_y_ticks(plot *p, const axis *x, const axis *y)
{
	double decades = y->hi - y->lo;
	if (!y->log || decades < 1) {
		put_linear_ticks(p, x, y, false);
		return;
	}
	int every = (int)TT_MAX(1.0, ceil(decades / 8));
	static const int within[] = { 1, 2, 5 };
	for (int e = (int)floor(y->lo); e <= (int)ceil(y->hi); e++)
		for (int i = 0; i < (decades < 3 ? 3 : 1); i++) {
			double v = within[i] * pow(10, e), at = log10(v);
			if (e % every || at < y->lo - 1e-9 || at > y->hi + 1e-9 || !isfinite(place(y, v)))
				continue;
			char text[32];
			if (e < -3 || e > 4)
				snprintf(text, sizeof text, "%de%d", within[i], e);
			else
				snprintf(text, sizeof text, "%.*f", TT_MAX(-e, 0), v);
			put_gridline(p, x, y, false, place(y, v), text);
		}
}

/* ---- curves ---------------------------------------------------------------------------------------------------------------------------- */

/* out[i]: mean of the finite ones of v[i-width+1 .. i]; NaN where v[i] is. By blocks of `width`: a window is the tail of one block and the
 * head of the next, so sums are only ever added to and a huge value leaves nothing behind when it is out of the window. */
static void moving_mean(const double *v, int64_t n, int64_t width, double *out, double *tail_sum, double *tail_count)
{
	for (int64_t block = 0; block < n; block += width) {
		int64_t end = TT_MIN(block + width, n);
		double sum = 0, count = 0;
		for (int64_t i = block; i < end; i++) {
			sum += isfinite(v[i]) ? v[i] : 0;
			count += isfinite(v[i]);
			/* The window's part in the block before begins at i - width + 1. */
			int64_t from = i - width + 1;
			bool spans = from < block && block > 0;
			double s = sum + (spans ? tail_sum[from - (block - width)] : 0), c = count + (spans ? tail_count[from - (block - width)] : 0);
			out[i] = isfinite(v[i]) ? s / c : NAN;
		}
		sum = count = 0;
		for (int64_t i = end - 1; i >= block; i--) {
			sum += isfinite(v[i]) ? v[i] : 0;
			count += isfinite(v[i]);
			tail_sum[i - block] = sum;
			tail_count[i - block] = count;
		}
	}
}

typedef struct pen { plot *p; const char *style_class; int colour, held; double x, y; } pen;

static void pen_lift(pen *n)
{
	if (n->held == 1) /* a line of one point would not be seen */
		tt_buf_printf(n->p->b, "<circle class=\"p c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>\n", n->colour, n->x, n->y);
	else if (n->held)
		tt_buf_str(n->p->b, "\"/>\n");
	n->held = 0;
}

static void pen_to(pen *n, double x, double y)
{
	if (n->held == 1)
		tt_buf_printf(n->p->b, "<polyline class=\"%s s%d\" points=\"%.1f,%.1f", n->style_class, n->colour, n->x, n->y);
	if (n->held)
		tt_buf_printf(n->p->b, " %.1f,%.1f", x, y);
	n->held += n->held < 2;
	n->x = x;
	n->y = y;
}

static void put_curve(plot *p, const axis *x, const axis *y, const double *xs, const double *ys, int64_t n, const char *style_class, int colour)
{
	pen at = { .p = p, .style_class = style_class, .colour = colour };
	bool thin = n > 4 * (int64_t)x->length;
	for (int64_t i = 0; i < n;) {
		double px = place(x, xs[i] / p->unit), py = place(y, ys[i]);
		if (!isfinite(px) || !isfinite(py)) {
			pen_lift(&at);
			i++;
			continue;
		}
		int64_t end = i + 1, least = i, most = i;
		for (; thin && end < n && floor(place(x, xs[end] / p->unit)) == floor(px) && isfinite(place(y, ys[end])); end++) {
			least = ys[end] < ys[least] ? end : least;
			most = ys[end] > ys[most] ? end : most;
		}
		const int64_t keep[] = { i, TT_MIN(least, most), TT_MAX(least, most), end - 1 };
		for (int k = 0; k < TT_COUNT(keep); k++)
			if (!k || keep[k] != keep[k - 1])
				pen_to(&at, place(x, xs[keep[k]] / p->unit), place(y, ys[keep[k]]));
		i = end;
	}
	pen_lift(&at);
}

static void grow(axis *a, double v)
{
	if (fabs(v) > beyond)
		return;
	if (a->log)
		v = v > 0 ? log10(v) : NAN;
	if (!isfinite(v))
		return;
	a->lo = isnan(a->lo) || v < a->lo ? v : a->lo;
	a->hi = isnan(a->hi) || v > a->hi ? v : a->hi;
}

/* Room around the values, and some range where they are all one. */
static void widen(axis *a)
{
	if (isnan(a->lo))
		a->lo = 0, a->hi = 1;
	double range = a->hi - a->lo;
	if (range <= TT_MAX(TT_MAX(fabs(a->lo), fabs(a->hi)) * 1e-12, 1 / beyond)) {
		double half = a->log ? 0.5 : TT_MAX(TT_MAX(fabs(a->lo), fabs(a->hi)) * 0.05, 1e-12);
		a->lo -= half;
		a->hi += half;
		return;
	}
	bool from_zero = !a->log && a->lo >= 0 && a->lo < 0.3 * a->hi;
	a->hi += range * 0.05;
	a->lo = from_zero ? 0 : a->lo - range * 0.05;
}

static void put_panel(plot *p, int metric, const char *name, const axis *x, double top)
{
	const tt_field *f = NULL;
	for (int i = 0; i < tt_metrics_nfields && !f; i++)
		if (!strcmp(name, tt_metrics_fields[i].key))
			f = &tt_metrics_fields[i];
	double scale = f ? f->scale : 1;
	axis y = { .lo = NAN, .hi = NAN, .at = top + ABOVE + PANEL, .length = -PANEL, .log = p->o->log };
	for (int r = 0; r < p->nruns; r++)
		for (int kind = 0; kind < 2; kind++) {
			const tt_metrics_points *s = kind ? &p->runs[r].validations : &p->runs[r].steps;
			for (int64_t i = 0; i < s->n; i++)
				if (isfinite(x_of(p, s)[i]))
					grow(&y, s->values[metric][i] * scale);
		}
	bool empty = isnan(y.lo);
	widen(&y);
	tt_buf *b = p->b;
	tt_buf_printf(b, "<g>\n<text class=\"h\" x=\"%d\" y=\"%.1f\">", LEFT, top + ABOVE - 12);
	put_text(b, f ? f->label : !strcmp(name, "bits_per_token") ? "bits per token" : name, 80);
	tt_buf_printf(b, "%s</text>\n", p->o->log ? ", logarithmic" : "");
	if (empty) {
		tt_buf_printf(b, "<text class=\"t\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">no run has values of this metric</text>\n", x->at + x->length / 2,
			      y.at - PANEL / 2.0);
	} else {
		put_y_ticks(p, x, &y);
		put_linear_ticks(p, x, &y, true);
	}
	tt_buf_printf(b, "<rect class=\"f\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"/>\n", x->at, top + ABOVE, x->length, PANEL);
	tt_buf_printf(b, "<text class=\"t\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", x->at + x->length / 2, y.at + 38, p->x_label);
	int64_t width = p->o->smooth > 1 ? p->o->smooth : 0;
	for (int r = 0; r < p->nruns; r++) {
		const tt_metrics_points *s = &p->runs[r].steps, *v = &p->runs[r].validations;
		int64_t w = TT_MIN(width, s->n);
		for (int64_t i = 0; i < s->n; i++)
			p->y[i] = s->values[metric][i] * scale;
		put_curve(p, x, &y, x_of(p, s), p->y, s->n, w > 1 ? "r" : "l", r % COLOURS);
		if (w > 1) {
			moving_mean(p->y, s->n, w, p->smooth, p->smooth + s->n, p->smooth + 2 * s->n);
			put_curve(p, x, &y, x_of(p, s), p->smooth, s->n, "l", r % COLOURS);
		}
		for (int64_t i = 0; i < v->n; i++) {
			double px = place(x, x_of(p, v)[i] / p->unit), py = place(&y, v->values[metric][i] * scale);
			if (isfinite(px) && isfinite(py))
				tt_buf_printf(b, "<circle class=\"v s%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>validation at step %.0f: %.6g</title></circle>\n",
					      r % COLOURS, px, py, v->step[i], v->values[metric][i] * scale);
		}
	}
	tt_buf_str(b, "</g>\n");
}

/* ---- the drawing ----------------------------------------------------------------------------------------------------------------------- */

/* Two runs of one name are told apart by their paths. */
static const char *legend_name(const plot *p, int r)
{
	for (int i = 0; i < p->nruns; i++)
		if (i != r && !strcmp(p->runs[i].name, p->runs[r].name))
			return p->runs[r].path;
	return p->runs[r].name;
}

/* Returns the height it takes; writes only if `b`. */
static int put_legend(const plot *p, int top, tt_buf *b)
{
	int x = LEFT, row = 0;
	bool rings = false;
	for (int r = 0; r <= p->nruns; r++) {
		rings |= r < p->nruns && p->runs[r].validations.n;
		if (r == p->nruns && !rings)
			break;
		const char *name = r < p->nruns ? legend_name(p, r) : "validation";
		int w = 34 + text_width(name) + 18;
		if (x > LEFT && x + w > WIDTH - RIGHT) {
			x = LEFT;
			row++;
		}
		int y = top + row * LEGEND_ROW + 10;
		if (b && r < p->nruns)
			tt_buf_printf(b, "<line class=\"k s%d\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>", r % COLOURS, x, y, x + 24, y);
		else if (b)
			tt_buf_printf(b, "<circle class=\"v n\" cx=\"%d\" cy=\"%d\" r=\"4\"/>", x + 14, y);
		if (b) {
			tt_buf_printf(b, "<text class=\"t\" x=\"%d\" y=\"%d\">", x + 32, y + 4);
			put_text(b, name, NAME_MOST);
			tt_buf_str(b, "</text>\n");
		}
		x += w;
	}
	return (row + 1) * LEGEND_ROW;
}

/* Colours are of middle lightness, to be read on white and on near black; the ground follows the reader's setting. */
static const char style[] =
	"<style>\n"
	"svg{font-family:system-ui,'DejaVu Sans',Helvetica,Arial,sans-serif}\n"
	".bg{fill:#ffffff}.t{fill:#4a4f57;font-size:12px}.h{fill:#1c1f24;font-size:14px;font-weight:600}.big{fill:#1c1f24;font-size:17px;font-weight:600}\n"
	".g{stroke:#e3e6ea;stroke-width:1}.f{fill:none;stroke:#9aa1ab;stroke-width:1}\n"
	".l{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}.r{fill:none;stroke-width:1;stroke-opacity:0.3;stroke-linejoin:round}\n"
	".k{stroke-width:3;stroke-linecap:round}.v{fill:#ffffff;stroke-width:2}.n{stroke:#7a818c}\n"
	".s0{stroke:#2f7fd8}.s1{stroke:#e07a1f}.s2{stroke:#2c9e5b}.s3{stroke:#d8434e}.s4{stroke:#8f63d2}.s5{stroke:#96724f}.s6{stroke:#d45ca6}.s7{stroke:#1b9fb3}\n"
	".c0{fill:#2f7fd8}.c1{fill:#e07a1f}.c2{fill:#2c9e5b}.c3{fill:#d8434e}.c4{fill:#8f63d2}.c5{fill:#96724f}.c6{fill:#d45ca6}.c7{fill:#1b9fb3}\n"
	"@media (prefers-color-scheme:dark){.bg,.v{fill:#15181d}.t{fill:#b4bac4}.h,.big{fill:#eceff4}.g{stroke:#2a2f37}.f{stroke:#626a76}}\n"
	"</style>\n";

static void choose_unit(plot *p, double most)
{
	static const struct { double unit, from; const char *label; } units[] = { { 86400, 172800, "days of training" }, { 3600, 7200, "hours of training" },
										  { 60, 180, "minutes of training" }, { 1, 0, "seconds of training" } };
	p->unit = 1;
	p->x_label = p->o->x == TT_PLOT_TOKENS ? "tokens" : "step";
	for (int i = 0; p->o->x == TT_PLOT_TIME && i < TT_COUNT(units); i++)
		if (!(most < units[i].from)) {
			p->unit = units[i].unit;
			p->x_label = units[i].label;
			return;
		}
}

void tt_plot_svg(const tt_metrics_run *runs, int nruns, const char *const *metrics, int nmetrics, const tt_plot_options *o, tt_buf *b)
{
	plot p = { .runs = runs, .nruns = nruns, .o = o, .b = b };
	axis x = { .lo = NAN, .hi = NAN, .at = LEFT, .length = WIDTH - LEFT - RIGHT };
	int64_t longest = 1;
	for (int r = 0; r < nruns; r++) {
		longest = TT_MAX(longest, runs[r].steps.n);
		for (int64_t i = 0; i < runs[r].steps.n; i++)
			grow(&x, x_of(&p, &runs[r].steps)[i]);
		for (int64_t i = 0; i < runs[r].validations.n; i++)
			grow(&x, x_of(&p, &runs[r].validations)[i]);
	}
	p.y = malloc((size_t)longest * 4 * sizeof *p.y);
	TT_ASSERT(p.y, "plot: the machine has no memory for %lld points", (long long)longest);
	p.smooth = p.y + longest;
	choose_unit(&p, isnan(x.hi) ? 0 : x.hi);
	x.lo /= p.unit;
	x.hi /= p.unit;
	if (isnan(x.lo) || x.hi - x.lo <= TT_MAX(fabs(x.lo), fabs(x.hi)) * 1e-12)
		widen(&x);
	else if (x.lo > 0 && x.lo < 0.1 * x.hi)
		x.lo = 0;
	int title = 44, legend = put_legend(&p, 0, NULL), panel = ABOVE + PANEL + BELOW;
	int height = title + legend + nmetrics * panel + 10;
	tt_buf_printf(b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n", WIDTH, height, WIDTH, height);
	tt_buf_str(b, "<title>");
	put_text(b, nruns == 1 ? runs[0].name : "titan plot", 80);
	tt_buf_str(b, "</title>\n");
	tt_buf_str(b, style);
	tt_buf_printf(b, "<rect class=\"bg\" width=\"%d\" height=\"%d\"/>\n<text class=\"big\" x=\"%d\" y=\"30\">", WIDTH, height, LEFT);
	if (nruns == 1)
		put_text(b, runs[0].name, 80);
	else
		tt_buf_printf(b, "%d runs", nruns);
	if (o->smooth > 1)
		tt_buf_printf(b, ", mean of %lld steps", (long long)o->smooth);
	tt_buf_str(b, "</text>\n");
	put_legend(&p, title, b);
	for (int i = 0; i < nmetrics; i++)
		put_panel(&p, i, metrics[i], &x, title + legend + i * panel);
	tt_buf_str(b, "</svg>\n");
	free(p.y);
}
