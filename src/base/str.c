/* Text: the growing buffer, typo distance, globs, hashes. */
#define _GNU_SOURCE
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

/* ---- scaled numbers ------------------------------------------------------------------------------------------- */

static tt_scaled scale(int64_t n, double step, const char *const *units)
{
	tt_scaled out;
	double v = (double)n;
	int u = 0;
	/* What would print as 1000 of a unit is 1 of the next: no text is longer than three digits. */
	for (; (v >= 999.5 || v <= -999.5) && units[u + 1]; u++)
		v /= step;
	double size = v < 0 ? -v : v;
	snprintf(out.s, sizeof out.s, "%.*f%s", u == 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2, v, units[u]);
	return out;
}

tt_scaled tt_scale_bytes(int64_t bytes)
{
	static const char *const units[] = {" bytes", " KiB", " MiB", " GiB", " TiB", " PiB", NULL};
	if (bytes == INT64_MAX)
		return (tt_scaled){"unlimited"};
	return bytes == 1 ? (tt_scaled){"1 byte"} : scale(bytes, 1024, units);
}

tt_scaled tt_scale_count(int64_t n)
{
	static const char *const units[] = {"", " k", " M", " G", " T", " P", NULL};
	return n == INT64_MAX ? (tt_scaled){"unlimited"} : scale(n, 1000, units);
}

/* ---- buffer --------------------------------------------------------------------------------------------------- */

static void buf_reserve(tt_buf *b, size_t n)
{
	size_t want = b->n + n + 1;
	if (want <= b->cap)
		return;
	size_t cap = TT_MAX(TT_MAX(b->cap * 2, want), (size_t)64);
	char *s = realloc(b->s, cap);
	TT_ASSERT(s, "text buffer: the machine has no %zu bytes left", cap);
	b->s = s;
	b->cap = cap;
}

void tt_buf_add(tt_buf *b, const void *bytes, size_t n)
{
	buf_reserve(b, n);
	if (n)
		memcpy(b->s + b->n, bytes, n);
	b->n += n;
	b->s[b->n] = 0;
}

void tt_buf_str(tt_buf *b, const char *s) { tt_buf_add(b, s, strlen(s)); }

void tt_buf_printf(tt_buf *b, const char *fmt, ...)
{
	va_list args, again;
	va_start(args, fmt);
	va_copy(again, args);
	int n = vsnprintf(NULL, 0, fmt, args);
	va_end(args);
	TT_ASSERT(n >= 0, "cannot format \"%s\"", fmt);
	buf_reserve(b, (size_t)n);
	vsnprintf(b->s + b->n, (size_t)n + 1, fmt, again);
	va_end(again);
	b->n += (size_t)n;
}

void tt_buf_fini(tt_buf *b)
{
	free(b->s);
	*b = (tt_buf){0};
}

/* ---- typos ---------------------------------------------------------------------------------------------------- */

/* Names and keys are short; the distance of longer words is that of their first 127 bytes plus what one has more. */
enum { WORD = 128 };

int tt_edit_distance(const char *a, const char *b)
{
	int full_a = (int)strlen(a), full_b = (int)strlen(b);
	int na = TT_MIN(full_a, WORD - 1), nb = TT_MIN(full_b, WORD - 1);
	int rest = abs((full_a - na) - (full_b - nb));
	/* Rows i-2, i-1 and i of the table d[i][j]: distance of a's first i and b's first j bytes, where a swap of two
	 * neighbours may be used once at a place ("optimal string alignment"). */
	int rows[3][WORD];
	int *before = rows[0], *last = rows[1], *now = rows[2];
	for (int j = 0; j <= nb; j++)
		last[j] = j;
	for (int i = 1; i <= na; i++) {
		now[0] = i;
		for (int j = 1; j <= nb; j++) {
			int d = last[j - 1] + (a[i - 1] != b[j - 1]);
			d = TT_MIN(d, last[j] + 1);
			d = TT_MIN(d, now[j - 1] + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				d = TT_MIN(d, before[j - 2] + 1);
			now[j] = d;
		}
		int *spare = before;
		before = last;
		last = now;
		now = spare;
	}
	return last[nb] + rest;
}

const char *tt_nearest(const char *word, const char *const *candidates, int n)
{
	const char *best = NULL;
	int best_d = TT_MAX(2, (int)strlen(word) / 3) + 1;
	for (int i = 0; i < n; i++) {
		int d = tt_edit_distance(word, candidates[i]);
		if (d < best_d && 2 * (size_t)d <= TT_MIN(strlen(candidates[i]), strlen(word))) {
			best_d = d;
			best = candidates[i];
		}
	}
	return best;
}

/* ---- globs ---------------------------------------------------------------------------------------------------- */

/* Matches one character against the class that starts at p ('['). Returns the byte after the class, or NULL if the
 * class is not closed, in which case '[' is an ordinary character. */
static const char *class_match(const char *p, const char *end, char c, bool *hit)
{
	const char *q = p + 1;
	bool invert = q < end && (*q == '!' || *q == '^');
	if (invert)
		q++;
	bool found = false;
	for (bool first = true; q < end; first = false) {
		if (*q == ']' && !first) {
			*hit = found != invert;
			return q + 1;
		}
		unsigned char lo = (unsigned char)*q, hi = lo;
		if (q + 2 < end && q[1] == '-' && q[2] != ']') {
			hi = (unsigned char)q[2];
			q += 2;
		}
		q++;
		found = found || (lo <= (unsigned char)c && (unsigned char)c <= hi);
	}
	return NULL;
}

/* The glob is [p, end). A star first matches nothing; on a mismatch the latest star takes one character more: an
 * earlier star never needs to be revisited, so the time is at most the product of the lengths. */
static bool glob_range(const char *p, const char *end, const char *text)
{
	const char *star = NULL, *star_text = NULL;
	while (*text) {
		bool hit = false;
		const char *next = p;
		if (p < end && *p == '*') {
			star = ++p;
			star_text = text;
			continue;
		}
		if (p < end) {
			next = *p == '[' ? class_match(p, end, *text, &hit) : NULL;
			if (!next) {
				hit = *p == '?' || *p == *text;
				next = p + 1;
			}
		}
		if (hit) {
			p = next;
			text++;
		} else if (star) {
			p = star;
			text = ++star_text;
		} else {
			return false;
		}
	}
	while (p < end && *p == '*')
		p++;
	return p == end;
}

bool tt_glob_match(const char *pattern, const char *text)
{
	return glob_range(pattern, pattern + strlen(pattern), text);
}

bool tt_pattern_match(const char *pattern, const char *name)
{
	for (const char *p = pattern;; p++) {
		const char *end = strchrnul(p, '|');
		if (glob_range(p, end, name))
			return true;
		if (!*end)
			return false;
		p = end;
	}
}

/* ---- hashes --------------------------------------------------------------------------------------------------- */

uint64_t tt_hash64(const void *bytes, size_t n, uint64_t seed) { return XXH3_64bits_withSeed(bytes, n, seed); }
uint32_t tt_hash32(const char *s) { return XXH32(s, strlen(s), 0); }
