/* svg.c: a step of the estimate as a drawing: a panel for each program of the step, a lane of computing above those of communication that have something. */
#include "plan/plan.h"

enum { WIDTH = 1100, LEFT = 112, RIGHT = 24, LANE = 26, GAP = 6, TITLE = 26, BELOW = 28, TOP = 74 };

/* What a colour means. */
typedef enum look { LOOK_PRODUCT, LOOK_ATTENTION, LOOK_OTHER, LOOK_UPDATE, LOOK_DATA, LOOK_CP, LOOK_TP, LOOKS } look;
static const char *const look_names[LOOKS] = { "products", "attention", "elementwise, norms, moves", "optimizer, packing", "data axes", "cp", "tp" };
static const char *const look_fills[LOOKS] = { "#2f7fd8", "#8f63d2", "#9aa7b5", "#96724f", "#e07a1f", "#d45ca6", "#2c9e5b" };

static look look_of(const tt_plan_span *s)
{
	if (s->axis)
		return !strncmp(s->axis, "tp", 2) ? LOOK_TP : !strcmp(s->axis, "cp") ? LOOK_CP : LOOK_DATA;
	if (!strncmp(s->op, "linear", 6))
		return LOOK_PRODUCT;
	if (!strncmp(s->op, "attention", 9))
		return LOOK_ATTENTION;
	return tt_pattern_match("*adamw*|*sgd*|pack*|*square_sum*|cast", s->op) ? LOOK_UPDATE : LOOK_OTHER;
}

static void put_text(tt_buf *b, const char *s)
{
	for (; *s; s++)
		if (*s == '<')
			tt_buf_str(b, "&lt;");
		else if (*s == '&')
			tt_buf_str(b, "&amp;");
		else
			tt_buf_add(b, s, 1);
}

/* What follows each other in one colour, or is narrower than can be seen, is one box. */
typedef struct box {
	look as;
	double from, to, widest;
	const tt_plan_span *of;
	int64_t n;
} box;

static void put_box(const box *x, double y, tt_buf *b)
{
	if (!x->n)
		return;
	tt_buf_printf(b, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\">", x->from, y, TT_MAX(x->to - x->from, 0.2), LANE, look_fills[x->as]);
	if (x->to - x->from > 2) {
		tt_buf_str(b, "<title>");
		put_text(b, x->of->op);
		tt_buf_str(b, " ");
		put_text(b, x->of->name);
		tt_buf_printf(b, "%s, %.3g ms", x->n > 1 ? " and more" : "", 1e3 * (x->of->end - x->of->begin));
		tt_buf_str(b, "</title>");
	}
	tt_buf_str(b, "</rect>\n");
}

/* A part of a run's time, and where it is drawn. */
typedef struct window { int run; double begin, end; } window;

static void put_lane(const tt_plan_rank *r, const window *w, int lane, double y, tt_buf *b)
{
	double scale = w->end > w->begin ? (WIDTH - LEFT - RIGHT) / (w->end - w->begin) : 0;
	static const double thin = 0.4; /* pixels */
	box at = { 0 };
	for (int64_t i = 0; i < r->nspan; i++) {
		const tt_plan_span *s = &r->span[i];
		if (s->run != w->run || s->lane != lane || s->end <= w->begin || s->begin >= w->end)
			continue;
		double from = LEFT + (TT_MAX(s->begin, w->begin) - w->begin) * scale, to = LEFT + (TT_MIN(s->end, w->end) - w->begin) * scale;
		look as = look_of(s);
		bool joins = at.n && from - at.to < thin && (as == at.as || to - from < thin || at.to - at.from < thin);
		if (!joins) {
			put_box(&at, y, b);
			at = (box){ as, from, to, to - from, s, 1 };
			continue;
		}
		if (to - from > at.widest) {
			at.as = as;
			at.of = s;
			at.widest = to - from;
		}
		at.to = TT_MAX(at.to, to);
		at.n++;
	}
	put_box(&at, y, b);
}

static bool shown(const tt_plan_rank *r, int lane)
{
	for (int64_t i = 0; i < r->nspan; i++)
		if (r->span[i].lane == lane)
			return true;
	return lane == TT_LANE_COMPUTE;
}

static double lanes_height(const tt_plan_rank *r)
{
	double h = 0;
	for (int lane = 0; lane < TT_LANES; lane++)
		h += shown(r, lane) ? LANE + GAP : 0;
	return h;
}

static void put_lanes(const tt_plan_rank *r, const window *w, double y, tt_buf *b)
{
	static const char *const lanes[TT_LANES] = { "computing", [TT_LANE_COMM + TT_COMM_WANTED] = "communication", [TT_LANE_COMM + TT_COMM_PARAMS] = "parameters",
						     [TT_LANE_COMM + TT_COMM_GRADS] = "gradients" };
	for (int lane = 0; lane < TT_LANES; lane++) {
		if (!shown(r, lane))
			continue;
		tt_buf_printf(b, "<text class=\"t\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text><rect class=\"f\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\"/>\n", LEFT - 8,
			      y + 17, lanes[lane], LEFT, y, WIDTH - LEFT - RIGHT, LANE);
		put_lane(r, w, lane, y, b);
		y += LANE + GAP;
	}
}

static void put_seconds(double s, tt_buf *b) { tt_buf_printf(b, s >= 1 ? "%.3g s" : "%.3g ms", s >= 1 ? s : 1e3 * s); }

/* Where boxes are too many to be seen, a part of the middle is drawn below. Returns the height; writes only if `b`. */
static double put_panel(const tt_plan_rank *r, int run, double y, tt_buf *b)
{
	enum { MANY = 1500, PART = 60 };
	const tt_plan_run *p = &r->run[run];
	int64_t n = 0;
	double lanes = lanes_height(r), below = TITLE + lanes + 16;
	window all = { .run = run };
	for (int64_t i = 0; i < r->nspan; i++)
		if (r->span[i].run == run) {
			all.end = TT_MAX(all.end, r->span[i].end);
			n++;
		}
	window part = { run, all.end / 2, all.end / 2 + all.end / PART };
	if (b) {
		tt_buf_printf(b, "<text class=\"h\" x=\"%d\" y=\"%.1f\">%s, ", LEFT, y + 16, tt_segment_name(p->seg));
		put_seconds(all.end, b);
		if (p->T)
			tt_buf_printf(b, ", %lld tokens", (long long)p->T);
		tt_buf_str(b, "</text>\n");
		if (p->times > 1)
			tt_buf_printf(b, "<text class=\"t\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%lld times in a step</text>\n", WIDTH - RIGHT, y + 16, (long long)p->times);
		put_lanes(r, &all, y + TITLE, b);
	}
	if (b && n > MANY) {
		tt_buf_printf(b, "<text class=\"t\" x=\"%d\" y=\"%.1f\">of it, from the middle, ", LEFT, y + below);
		put_seconds(part.end - part.begin, b);
		tt_buf_str(b, "</text>\n");
		put_lanes(r, &part, y + below + 8, b);
	}
	return TITLE + lanes + BELOW + (n > MANY ? lanes + 24 : 0);
}

static const char style[] =
	"<style>\nsvg{font-family:system-ui,'DejaVu Sans',Helvetica,Arial,sans-serif}\n"
	".bg{fill:#ffffff}.t{fill:#4a4f57;font-size:12px}.h{fill:#1c1f24;font-size:13px;font-weight:600}.big{fill:#1c1f24;font-size:17px;font-weight:600}\n"
	".f{fill:#f3f5f7;stroke:none}\n"
	"@media (prefers-color-scheme:dark){.bg{fill:#15181d}.t{fill:#b4bac4}.h,.big{fill:#eceff4}.f{fill:#20242b}}\n</style>\n";

void tt_plan_svg(const tt_plan_mesh *m, tt_buf *b)
{
	const tt_plan_rank *r = &m->rank[m->slowest];
	int x = LEFT, height = TOP;
	for (int i = 0; i < r->nruns; i++)
		height += r->run[i].times > 0 ? (int)put_panel(r, i, 0, NULL) : 0;
	tt_buf_printf(b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n<title>plan of ", WIDTH, height, WIDTH, height);
	put_text(b, m->name);
	tt_buf_printf(b, "</title>\n%s<rect class=\"bg\" width=\"%d\" height=\"%d\"/>\n<text class=\"big\" x=\"%d\" y=\"26\">estimate of a step of ", style, WIDTH, height, LEFT);
	put_text(b, m->name);
	tt_buf_printf(b, ", rank %d of %lld, on %s</text>\n", r->rank, (long long)m->ranks, m->hardware.title);
	for (int i = 0; i < LOOKS; i++) {
		tt_buf_printf(b, "<rect x=\"%d\" y=\"42\" width=\"12\" height=\"12\" fill=\"%s\"/><text class=\"t\" x=\"%d\" y=\"52\">%s</text>\n", x, look_fills[i], x + 17, look_names[i]);
		x += 40 + 7 * (int)strlen(look_names[i]);
	}
	double y = TOP;
	for (int i = 0; i < r->nruns; i++)
		if (r->run[i].times > 0)
			y += put_panel(r, i, y, b);
	tt_buf_str(b, "</svg>\n");
}
