/* show.c: the console. A permanent line every log_freq steps goes through the log; on a terminal the line below it is live.
 *
 * A live line is written as CR, text, ESC [K (erase to the end of the line), without newline and a column shorter than the terminal is wide
 * at that moment, so that it never wraps. A log line first erases it, and it is drawn again below.
 */
#include <math.h>
#include <stdio.h>

#include "metrics/internal.h"

#define ERASE "\r\033[K"
static const double draw_every = 0.2; /* seconds: at most five times a second */
static const double fade = 0.9;       /* weight of the steps before in the live line's speed */

static void log_sink(void *ctx, tt_log_level level, const char *line)
{
	tt_show *w = ctx;
	pthread_mutex_lock(&w->lock);
	w->out.n = 0;
	if (w->line.n)
		tt_buf_str(&w->out, ERASE);
	tt_buf_str(&w->out, tt_log_prefix(level));
	tt_buf_str(&w->out, line);
	tt_buf_str(&w->out, "\n");
	int width = w->io.width ? w->io.width(w->io.ctx) : 0; /* may have shrunk since the line was made */
	tt_buf_add(&w->out, w->line.s, TT_MIN(w->line.n, (size_t)(width > 0 ? width - 1 : 79)));
	w->io.write(w->io.ctx, w->out.s, w->out.n);
	pthread_mutex_unlock(&w->lock);
}

void tt_show_open(tt_show *w, const tt_metrics_options *o)
{
	w->io = o->console;
	w->steps = o->steps;
	w->log_freq = TT_MAX(o->log_freq, (int64_t)1);
	w->mode = o->mode;
	w->drawn = w->first_time = NAN;
	pthread_mutex_init(&w->lock, NULL);
	tt_metrics_reserve(&w->text, 1024);
	tt_metrics_reserve(&w->line, 1024);
	tt_metrics_reserve(&w->out, 4096);
	bool can = w->io.write && !w->io.dumb;
	if (w->mode == TT_METRICS_LIVE && !can)
		tt_log(TT_LOG_WARN, "a live console was asked for, but %s: plain lines instead",
		       w->io.write ? "this terminal cannot erase a line (TERM=dumb)" : "there is nothing to write it to");
	if (w->mode == TT_METRICS_AUTO)
		w->mode = w->io.tty ? TT_METRICS_LIVE : TT_METRICS_PLAIN;
	if (w->mode == TT_METRICS_LIVE && !can)
		w->mode = TT_METRICS_PLAIN;
	if (w->mode == TT_METRICS_LIVE)
		tt_log_set_sink(log_sink, w);
}

/* ---- permanent lines ------------------------------------------------------------------------------------------------------------------ */

static const char *const part_names[] = { "data", "fwd", "bwd", "opt", "save", "val" };

static void window_add(tt_window *n, const tt_metrics_step *s)
{
	double spent = (double)s->tokens / s->tokens_per_s; /* seconds, as whoever gave the speed counted them */
	if (s->tokens >= 0 && isfinite(spent)) {
		n->tokens += (double)s->tokens;
		n->seconds += spent;
		if (!isnan(s->mfu)) {
			n->mfu += s->mfu * spent;
			n->mfu_seconds += spent;
		}
	}
	const double parts[] = { s->data_seconds, s->forward_seconds, s->backward_seconds, s->optimizer_seconds, s->save_seconds, s->validate_seconds };
	if (isnan(s->seconds))
		return;
	n->total += s->seconds;
	for (int i = 0; i < TT_COUNT(parts); i++)
		n->parts[i] += isnan(parts[i]) ? 0 : parts[i];
	n->exposed += s->comm_exposed;
	n->hidden += s->comm_hidden;
}

static void permanent_line(tt_show *w)
{
	const tt_metrics_step *s = &w->last;
	tt_window *n = &w->window;
	tt_buf *b = &w->text;
	b->n = 0;
	tt_buf_printf(b, "step %6lld  loss %8.4f  grad_norm %8.4f  lr %.3e", (long long)s->step, tt_plain_nan(s->loss), tt_plain_nan(s->grad_norm), tt_plain_nan(s->lr));
	if (n->seconds > 0)
		tt_buf_printf(b, "  %8.0f tokens/s", n->tokens / n->seconds);
	if (n->mfu_seconds > 0)
		tt_buf_printf(b, "  MFU %4.1f%%", n->mfu / n->mfu_seconds);
	bool first = true;
	for (int i = 0; i < TT_COUNT(n->parts) && n->total > 0; i++)
		if (n->parts[i] > 0) {
			tt_buf_printf(b, "%s%s %.0f%%", first ? "  " : " ", part_names[i], 100 * n->parts[i] / n->total);
			first = false;
		}
	if (n->exposed + n->hidden > 0 && n->total > 0) /* of the parts before it, and of what of it nobody waited for */
		tt_buf_printf(b, "  comm %.0f%% +%.0f%% hidden", 100 * n->exposed / n->total, 100 * n->hidden / n->total);
	if (s->skipped)
		tt_buf_str(b, "  skipped");
	*n = (tt_window){ 0 };
	w->due = false;
	tt_log(TT_LOG_INFO, "%s", b->s);
}

/* ---- the live line -------------------------------------------------------------------------------------------------------------------- */

enum { PART = 64, BAR_LEAST = 12, BAR_MOST = 34 };

static void write_duration(char out[PART], double seconds)
{
	int64_t s = (int64_t)TT_MIN(seconds + 0.5, 3e9);
	int64_t d = s / 86400, h = s / 3600 % 24, min = s / 60 % 60;
	if (d)
		snprintf(out, PART, "ETA %lldd %02lld:%02lld", (long long)d, (long long)h, (long long)min);
	else if (h)
		snprintf(out, PART, "ETA %lld:%02lld:%02lld", (long long)h, (long long)min, (long long)(s % 60));
	else
		snprintf(out, PART, "ETA %lld:%02lld", (long long)min, (long long)(s % 60));
}

/* Seconds until the last step: the pace since the first step of this process, which is not counted as it is slower than the rest. */
static double time_left(const tt_show *w, const tt_metrics_step *s, double now)
{
	double left = (double)(w->steps - s->step);
	if (s->step > w->first_step)
		return left * (now - w->first_time) / (double)(s->step - w->first_step);
	return left * s->seconds;
}

static void compose(tt_show *w, const tt_metrics_step *s, double now, int width)
{
	char counter[PART], loss[PART], eta[PART] = "", speed[PART] = "", mfu[PART] = "";
	if (w->steps > 0)
		snprintf(counter, PART, "%lld/%lld %.0f%%", (long long)s->step, (long long)w->steps,
			 floor(100 * (double)s->step / (double)w->steps));
	else
		snprintf(counter, PART, "step %lld", (long long)s->step);
	snprintf(loss, PART, "loss %.4f", tt_plain_nan(s->loss));
	double tps = w->fast_tokens / w->fast_seconds, left = time_left(w, s, now);
	if (w->fast_seconds > 0)
		snprintf(speed, PART, tps < 99999.5 ? "%.0f tokens/s" : tps < 99999500 ? "%.0fk tokens/s" : "%.0fM tokens/s",
			 tps < 99999.5 ? tps : tps < 99999500 ? tps / 1e3 : tps / 1e6);
	if (!isnan(w->fast_mfu) && !isnan(s->mfu))
		snprintf(mfu, PART, "MFU %.1f%%", w->fast_mfu);
	if (w->steps > 0 && isfinite(left) && left >= 0)
		write_duration(eta, left);
	/* What is most worth its columns comes first in `by_worth`; on the line the order is another. */
	const char *const by_worth[] = { counter, loss, eta, speed, mfu }, *const shown[] = { counter, loss, speed, mfu, eta };
	bool fits[TT_COUNT(by_worth)];
	int used = 0;
	for (int i = 0, full = 0; i < TT_COUNT(by_worth); i++) {
		int n = (int)strlen(by_worth[i]), gap = used ? 2 : 0;
		full |= used + gap + n > width - 1;
		fits[i] = n && !full;
		used += fits[i] ? gap + n : 0;
	}
	tt_buf *b = &w->line;
	b->n = 0;
	int room = TT_MIN(width - 1 - used - 2, (int)BAR_MOST);
	if (w->steps > 0 && used && room >= BAR_LEAST) {
		int inner = room - 2, done = (int)(TT_MIN(s->step, w->steps) * inner / w->steps);
		tt_buf_str(b, "[");
		for (int i = 0; i < inner; i++)
			tt_buf_str(b, i < done ? "=" : i == done ? ">" : " ");
		tt_buf_str(b, "]");
	}
	for (int i = 0; i < TT_COUNT(shown); i++)
		for (int k = 0; k < TT_COUNT(by_worth); k++)
			if (by_worth[k] == shown[i] && fits[k])
				tt_buf_printf(b, "%s%s", b->n ? "  " : "", shown[i]);
}

static void draw(tt_show *w, const tt_metrics_step *s, double now)
{
	if (now - w->drawn < draw_every) /* false before the first */
		return;
	int width = w->io.width ? w->io.width(w->io.ctx) : 0;
	pthread_mutex_lock(&w->lock);
	bool was = w->line.n;
	compose(w, s, now, width > 0 ? width : 80);
	w->out.n = 0;
	if (w->line.n)
		tt_buf_printf(&w->out, "\r%s\033[K", w->line.s);
	else if (was)
		tt_buf_str(&w->out, ERASE);
	if (w->out.n)
		w->io.write(w->io.ctx, w->out.s, w->out.n);
	pthread_mutex_unlock(&w->lock);
	w->drawn = now;
}

void tt_show_clear(tt_show *w)
{
	pthread_mutex_lock(&w->lock);
	if (w->line.n)
		w->io.write(w->io.ctx, ERASE, sizeof ERASE - 1);
	w->line.n = 0;
	pthread_mutex_unlock(&w->lock);
	w->drawn = NAN;
}

/* ---- what comes in -------------------------------------------------------------------------------------------------------------------- */

static void live_add(tt_show *w, const tt_metrics_step *s, double now)
{
	if (isnan(w->first_time)) {
		w->first_time = now;
		w->first_step = s->step;
	}
	double spent = (double)s->tokens / s->tokens_per_s;
	if (s->tokens < 0 || !isfinite(spent))
		return;
	double before = w->fast_seconds * fade;
	w->fast_tokens = w->fast_tokens * fade + (double)s->tokens;
	w->fast_seconds = before + spent;
	bool had = !isnan(w->fast_mfu) && before > 0;
	w->fast_mfu = had && !isnan(s->mfu) ? (w->fast_mfu * before + s->mfu * spent) / w->fast_seconds : s->mfu;
}

void tt_show_step(tt_show *w, const tt_metrics_step *s, double now)
{
	if (w->mode == TT_METRICS_OFF)
		return;
	window_add(&w->window, s);
	bool first = !w->last.step;
	w->last = *s;
	w->last.extra = NULL;
	w->last.nextra = 0;
	w->due = true;
	if (w->mode == TT_METRICS_LIVE)
		live_add(w, s, now);
	bool last = s->step == w->steps;
	if (w->mode == TT_METRICS_LIVE && last)
		tt_show_clear(w);
	if (first || last || s->step % w->log_freq == 0)
		permanent_line(w);
	if (w->mode == TT_METRICS_LIVE && !last)
		draw(w, s, now);
}

void tt_show_validation(tt_show *w, const tt_metrics_validation *v)
{
	if (w->mode == TT_METRICS_OFF)
		return;
	tt_log(TT_LOG_INFO, "step %6lld  validation loss %.4f  bits per token %.4f  (%lld tokens, %.1f s)", (long long)v->step, tt_plain_nan(v->loss), tt_plain_nan(v->bits_per_token),
	       (long long)v->tokens, v->seconds);
}

void tt_show_close(tt_show *w)
{
	if (w->due)
		permanent_line(w);
	if (w->mode == TT_METRICS_LIVE) {
		tt_show_clear(w);
		tt_log_set_sink(NULL, NULL);
	}
	pthread_mutex_destroy(&w->lock);
	tt_buf_fini(&w->text);
	tt_buf_fini(&w->line);
	tt_buf_fini(&w->out);
}
