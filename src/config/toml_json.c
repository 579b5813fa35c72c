/* TOML trees as text: quoted strings, and the tagged JSON that the public toml-test suite compares. */
#include <math.h>

#include "config/toml.h"

void tt_toml_quote(tt_buf *b, const char *s, size_t n)
{
	tt_buf_str(b, "\"");
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];
		if (c == '"' || c == '\\')
			tt_buf_printf(b, "\\%c", c);
		else if (c < 0x20 || c == 0x7f)
			tt_buf_printf(b, "\\u%04x", c); /* valid in TOML and in JSON */
		else
			tt_buf_add(b, s + i, 1);
	}
	tt_buf_str(b, "\"");
}

static void tagged(tt_buf *b, const char *type)
{
	tt_buf_printf(b, "{\"type\": \"%s\", \"value\": ", type);
}

static void date_text(tt_buf *b, const tt_toml_time *t)
{
	tt_buf_printf(b, "%04d-%02d-%02d", t->year, t->month, t->day);
}

/* The fraction without trailing zeros. */
static void clock_text(tt_buf *b, const tt_toml_time *t)
{
	tt_buf_printf(b, "%02d:%02d:%02d", t->hour, t->minute, t->second);
	int ns = t->nanosecond, width = 9;
	if (ns == 0)
		return;
	for (; ns % 10 == 0; ns /= 10)
		width--;
	tt_buf_printf(b, ".%0*d", width, ns);
}

static void offset_text(tt_buf *b, int minutes)
{
	if (minutes == 0) {
		tt_buf_str(b, "Z");
		return;
	}
	int m = minutes < 0 ? -minutes : minutes;
	tt_buf_printf(b, "%c%02d:%02d", minutes < 0 ? '-' : '+', m / 60, m % 60);
}

void tt_toml_to_test_json(const tt_toml_node *v, tt_buf *b)
{
	switch (v->kind) {
	case TT_TOML_TABLE:
	case TT_TOML_ARRAY: {
		bool table = v->kind == TT_TOML_TABLE;
		tt_buf_str(b, table ? "{" : "[");
		for (const tt_toml_node *c = v->as.list.first; c != NULL; c = c->next) {
			if (table) {
				tt_toml_quote(b, c->key, c->key_n);
				tt_buf_str(b, ": ");
			}
			tt_toml_to_test_json(c, b);
			if (c->next != NULL)
				tt_buf_str(b, ", ");
		}
		tt_buf_str(b, table ? "}" : "]");
		return;
	}
	case TT_TOML_STRING:
		tagged(b, "string");
		tt_toml_quote(b, v->as.string.s, v->as.string.n);
		break;
	case TT_TOML_INTEGER:
		tagged(b, "integer");
		tt_buf_printf(b, "\"%lld\"", (long long)v->as.integer);
		break;
	case TT_TOML_FLOAT:
		tagged(b, "float");
		if (isnan(v->as.real))
			tt_buf_str(b, "\"nan\"");
		else
			tt_buf_printf(b, "\"%.17g\"", v->as.real); /* infinities print as inf, -inf */
		break;
	case TT_TOML_BOOL:
		tagged(b, "bool");
		tt_buf_str(b, v->as.boolean ? "\"true\"" : "\"false\"");
		break;
	case TT_TOML_OFFSET_DATETIME:
	case TT_TOML_LOCAL_DATETIME:
		tagged(b, v->kind == TT_TOML_LOCAL_DATETIME ? "datetime-local" : "datetime");
		tt_buf_str(b, "\"");
		date_text(b, &v->as.time);
		tt_buf_str(b, "T");
		clock_text(b, &v->as.time);
		if (v->kind == TT_TOML_OFFSET_DATETIME)
			offset_text(b, v->as.time.offset_minutes);
		tt_buf_str(b, "\"");
		break;
	case TT_TOML_LOCAL_DATE:
		tagged(b, "date-local");
		tt_buf_str(b, "\"");
		date_text(b, &v->as.time);
		tt_buf_str(b, "\"");
		break;
	case TT_TOML_LOCAL_TIME:
		tagged(b, "time-local");
		tt_buf_str(b, "\"");
		clock_text(b, &v->as.time);
		tt_buf_str(b, "\"");
		break;
	}
	tt_buf_str(b, "}");
}
