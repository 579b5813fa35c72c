/* The scalars of TOML that are not strings: numbers, dates and times, true, false, inf, nan. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "config/toml_scalar.h"

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* `n` decimal digits at s as a number, -1 if they are not all digits. */
static int digits(const char *s, int n)
{
	int v = 0;
	for (int i = 0; i < n; i++) {
		if (!is_digit(s[i]))
			return -1;
		v = 10 * v + (s[i] - '0');
	}
	return v;
}

static int month_days(int year, int month)
{
	static const int DAYS[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
	return DAYS[month - 1] + (month == 2 && leap);
}

/* YYYY-MM-DD at s (a NUL ends the token): bytes read, or 0. RFC 3339, section 5.6. */
static int read_date(const char *s, tt_toml_time *t)
{
	if (strlen(s) < 10 || s[4] != '-' || s[7] != '-')
		return 0;
	t->year = digits(s, 4);
	t->month = digits(s + 5, 2);
	t->day = digits(s + 8, 2);
	bool ok = t->year >= 0 && t->month >= 1 && t->month <= 12 && t->day >= 1 &&
		  t->day <= month_days(t->year, t->month);
	return ok ? 10 : 0;
}

/* HH:MM:SS[.digits] at s: bytes read, or 0. Second 60 may be a leap second: which days have one is no rule. */
static int read_time(const char *s, tt_toml_time *t)
{
	if (strlen(s) < 8 || s[2] != ':' || s[5] != ':')
		return 0;
	t->hour = digits(s, 2);
	t->minute = digits(s + 3, 2);
	t->second = digits(s + 6, 2);
	if (t->hour < 0 || t->hour > 23 || t->minute < 0 || t->minute > 59 || t->second < 0 || t->second > 60)
		return 0;
	int n = 8;
	if (s[n] == '.') {
		if (!is_digit(s[++n]))
			return 0;
		for (int place = 100000000; is_digit(s[n]); n++, place /= 10)
			t->nanosecond += (s[n] - '0') * place;
	}
	return n;
}

/* Z or +HH:MM at s: bytes read, or 0. */
static int read_offset(const char *s, tt_toml_time *t)
{
	if (s[0] == 'Z' || s[0] == 'z')
		return 1;
	if ((s[0] != '+' && s[0] != '-') || strlen(s) < 6 || s[3] != ':')
		return 0;
	int hour = digits(s + 1, 2), minute = digits(s + 4, 2);
	if (hour < 0 || hour > 23 || minute < 0 || minute > 59)
		return 0;
	t->offset_minutes = (s[0] == '-' ? -1 : 1) * (60 * hour + minute);
	return 6;
}

static bool read_timestamp(const char *s, tt_toml_node *v)
{
	tt_toml_time t = {0};
	if (s[2] == ':') {
		v->kind = TT_TOML_LOCAL_TIME;
		s += read_time(s, &t);
		v->as.time = t;
		return *s == '\0';
	}
	int n = read_date(s, &t);
	if (n == 0)
		return false;
	s += n;
	v->kind = TT_TOML_LOCAL_DATE;
	if (*s != '\0') {
		if (*s != 'T' && *s != 't' && *s != ' ')
			return false;
		n = read_time(++s, &t);
		if (n == 0)
			return false;
		s += n;
		v->kind = TT_TOML_LOCAL_DATETIME;
		if (*s != '\0') {
			s += read_offset(s, &t);
			v->kind = TT_TOML_OFFSET_DATETIME;
		}
	}
	v->as.time = t;
	return *s == '\0';
}

static int digit_value(char c)
{
	return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
}

/* Digits of a base with single underscores between digits, copied without them to `out`: characters read, 0 if there
 * is no digit or an underscore stands elsewhere. */
static size_t read_digits(const char *s, int base, char *out, size_t *out_n)
{
	size_t i = 0;
	while (digit_value(s[i]) < base) {
		out[(*out_n)++] = s[i++];
		if (s[i] == '_' && digit_value(s[i + 1]) < base)
			i++;
	}
	return s[i] == '_' ? 0 : i;
}

static bool complain(tt_toml_complaint *c, const char *before, const char *after)
{
	*c = (tt_toml_complaint){before, after};
	return false;
}

#define NO_INTEGER complain(c, "", " does not fit an integer of 64 bits")

/* 0x, 0o, 0b: no sign, letters of the prefix in lower case, leading zeros allowed. */
static bool read_based_integer(const char *s, char *plain, tt_toml_node *v, tt_toml_complaint *c)
{
	int base = s[1] == 'x' ? 16 : s[1] == 'o' ? 8 : 2;
	size_t n = 0, used = read_digits(s + 2, base, plain, &n);
	if (used == 0 || s[2 + used] != '\0')
		return complain(c, "invalid value: ", base == 16  ? " is no hexadecimal number"
						      : base == 8 ? " is no octal number"
								  : " is no binary number");
	plain[n] = '\0';
	errno = 0;
	unsigned long long u = strtoull(plain, NULL, base);
	if (errno != 0 || u > INT64_MAX)
		return NO_INTEGER;
	v->kind = TT_TOML_INTEGER;
	v->as.integer = (int64_t)u;
	return true;
}

/* Decimal integers and floats. */
static bool read_number(const char *s, char *plain, tt_toml_node *v, tt_toml_complaint *c)
{
	size_t n = 0;
	if (s[0] == '0' && (s[1] == 'x' || s[1] == 'o' || s[1] == 'b'))
		return read_based_integer(s, plain, v, c);
	bool real = false;
	if (*s == '+' || *s == '-')
		plain[n++] = *s++;
	size_t used = read_digits(s, 10, plain, &n);
	bool ok = used > 0;
	if (used > 1 && s[0] == '0') /* an underscore does not hide it: 0_1 */
		return complain(c, "invalid value: ", " has a leading zero");
	s += used;
	if (ok && *s == '.') {
		real = true;
		plain[n++] = *s++;
		used = read_digits(s, 10, plain, &n);
		ok = used > 0;
		s += used;
	}
	if (ok && (*s == 'e' || *s == 'E')) {
		real = true;
		plain[n++] = *s++;
		if (*s == '+' || *s == '-')
			plain[n++] = *s++;
		used = read_digits(s, 10, plain, &n);
		ok = used > 0;
		s += used;
	}
	if (!ok || *s != '\0')
		return complain(c, "invalid value: ", "");
	plain[n] = '\0';
	char *end;
	errno = 0;
	if (real) {
		v->kind = TT_TOML_FLOAT;
		v->as.real = strtod(plain, &end); /* the C locale: nobody calls setlocale */
		if (isinf(v->as.real))
			return complain(c, "", " does not fit a double");
	} else {
		v->kind = TT_TOML_INTEGER;
		v->as.integer = strtoll(plain, &end, 10);
		if (errno != 0)
			return NO_INTEGER;
	}
	TT_ASSERT(*end == '\0', "number %s read only in part", plain);
	return true;
}

static bool read_word(const char *s, tt_toml_node *v)
{
	if (strcmp(s, "true") == 0 || strcmp(s, "false") == 0) {
		v->kind = TT_TOML_BOOL;
		v->as.boolean = s[0] == 't';
		return true;
	}
	const char *word = *s == '+' || *s == '-' ? s + 1 : s;
	bool inf = strcmp(word, "inf") == 0;
	if (!inf && strcmp(word, "nan") != 0)
		return false;
	v->kind = TT_TOML_FLOAT;
	v->as.real = copysign(inf ? INFINITY : NAN, *s == '-' ? -1.0 : 1.0);
	return true;
}

bool tt_toml_read_scalar(const char *s, char *scratch, tt_toml_node *v, tt_toml_complaint *c)
{
	size_t n = strlen(s);
	if ((n > 4 && digits(s, 4) >= 0 && s[4] == '-') || (n > 2 && digits(s, 2) >= 0 && s[2] == ':'))
		return read_timestamp(s, v) || complain(c, "invalid date or time: ", "");
	if (read_word(s, v))
		return true;
	if (!is_digit(s[0]) && strchr("+-.", s[0]) == NULL)
		return complain(c, "invalid value: ", " (strings need quotes)");
	return read_number(s, scratch, v, c);
}
