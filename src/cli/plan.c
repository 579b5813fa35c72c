/* plan.c: `titan plan`: what a run would need and do, of which nothing is run. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "config/config.h"
#include "train/mesh_plan.h"

enum { CLASSES = 8 }; /* compiled at most: a second each, for the largest models */

typedef struct command {
	tt_arena *a;
	bool json, layouts;
	double memory; /* GiB; 0: the hardware's */
	const char *timeline;
	const char *name;
	tt_config *cfg;
} command;

static tt_status parse(command *c, int argc, const char *const *argv)
{
	const char **rest = TT_NEWN(c->a, const char *, argc + 1);
	int n = 0;
	c->name = "the defaults";
	for (int i = 0; i < argc; i++) {
		if (!strcmp(argv[i], "--json")) {
			c->json = true;
		} else if (!strcmp(argv[i], "--layouts")) {
			c->layouts = true;
		} else if (!strncmp(argv[i], "--memory=", 9)) {
			char *end;
			c->memory = strtod(argv[i] + 9, &end);
			if (end == argv[i] + 9 || *end || !(c->memory > 0) || c->memory > 1e9)
				TT_FAIL(TT_ERR_USAGE, "%s: GiB that a rank may have, more than 0", argv[i]);
		} else if (!strncmp(argv[i], "--timeline=", 11)) {
			c->timeline = argv[i] + 11;
			if (!*c->timeline)
				TT_FAIL(TT_ERR_USAGE, "--timeline=: the name of an SVG file to write is missing");
		} else {
			rest[n++] = argv[i];
			c->name = strncmp(argv[i], "--", 2) ? argv[i] : c->name;
		}
	}
	if (c->layouts && (c->json || c->timeline || c->memory > 0))
		TT_FAIL(TT_ERR_USAGE, "--layouts prints the table alone: leave out %s, or --layouts", c->json ? "--json" : c->timeline ? "--timeline" : "--memory");
	tt_config *cfg;
	TT_TRY(tt_cli_config(c->a, n, rest, NULL, &cfg));
	const char *note;
	c->cfg = TT_NEW(c->a, tt_config);
	TT_TRY(tt_config_to_plan(c->a, cfg, c->cfg, &note));
	if (note && !c->json)
		tt_log(TT_LOG_INFO, "%s", note);
	return TT_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------------------------------------------------ */

static void put(json_t *o, const char *key, json_t *v)
{
	int bad = json_object_set_new(o, key, v);
	TT_ASSERT(!bad, "JSON key %s", key);
}

static json_t *json_rank(const tt_plan_mesh *m, const tt_plan_rank *r)
{
	json_t *o = json_object(), *memory = json_object(), *talk = json_array();
	put(o, "rank", json_integer(r->rank));
	put(o, "alike", json_integer(r->alike));
	for (int i = 0; i < TT_EXEC_NREGIONS; i++)
		put(memory, tt_exec_region_name(i), json_integer(r->region[i]));
	put(memory, "total", json_integer(r->memory));
	put(o, "memory", memory);
	for (int64_t i = 0; i < r->ntalk; i++) {
		const tt_plan_talk *t = &r->talk[i];
		json_t *x = json_object();
		tt_buf axes = { 0 };
		tt_plan_axes_name(t->axes, &axes);
		put(x, "group", json_string(axes.s));
		tt_buf_fini(&axes);
		put(x, "kind", json_string(t->kind));
		put(x, "calls", json_integer(t->calls));
		put(x, "bytes", json_integer(t->bytes));
		put(x, "hideable_calls", json_integer(t->hideable_calls));
		put(x, "hideable_bytes", json_integer(t->hideable_bytes));
		if (m->hardware.name) {
			put(x, "seconds", json_real(t->seconds));
			put(x, "exposed_seconds", json_real(t->exposed));
		}
		json_array_append_new(talk, x);
	}
	put(o, "communication", talk);
	put(o, "instructions", json_integer(r->instructions));
	put(o, "flops", json_real(r->flops));
	put(o, "operand_bytes", json_real(r->bytes));
	if (m->hardware.name) {
		json_t *e = json_object();
		put(e, "seconds", json_real(r->seconds));
		put(e, "compute_seconds", json_real(r->compute_s));
		put(e, "communication_seconds", json_real(r->comm_s));
		put(e, "exposed_seconds", json_real(r->exposed_s));
		for (int i = 0; i < TT_NSEGS; i++)
			if (r->segment_s[i] > 0)
				put(e, tt_segment_name((tt_segment)i), json_real(r->segment_s[i]));
		put(o, "estimate", e);
	}
	return o;
}

static void as_json(const tt_plan_mesh *m, tt_buf *b)
{
	json_t *o = json_object(), *mesh = json_object(), *classes = json_array();
	put(o, "config", json_string(m->name));
	put(o, "parameters", json_integer(m->params));
	put(o, "ranks", json_integer(m->ranks));
	for (int i = 0; i < m->naxes; i++)
		put(mesh, tt_plan_axes[i], json_integer(m->size[i]));
	put(mesh, "sequence_parallel", json_boolean(m->sp));
	put(o, "mesh", mesh);
	put(o, "tokens_per_step", json_real(m->tokens));
	put(o, "rows", json_integer(m->rows));
	put(o, "microbatches", json_integer(m->cells));
	put(o, "model_flops", json_real(m->model_flops));
	put(o, "hardware", m->hardware.name ? json_string(m->hardware.name) : json_null());
	put(o, "limit", json_integer(m->limit));
	put(o, "fits", json_boolean(m->rank[m->worst].memory <= m->limit));
	put(o, "classes_all", json_integer(m->nclasses));
	put(o, "worst", json_integer(m->worst));
	put(o, "slowest", json_integer(m->slowest));
	for (int64_t i = 0; i < m->nrank; i++)
		json_array_append_new(classes, json_rank(m, &m->rank[i]));
	put(o, "classes", classes);
	char *s = json_dumps(o, JSON_INDENT(2));
	tt_buf_printf(b, "%s\n", s);
	free(s);
	json_decref(o);
}

/* ---- the command ----------------------------------------------------------------------------------------------------------------------- */

static tt_status layouts(command *c, const tt_run_options *o)
{
	tt_buf b = { 0 };
	tt_status s = tt_run_layouts_print(c->a, o, &b);
	if (s == TT_OK)
		tt_cli_print(b.s);
	tt_buf_fini(&b);
	return s;
}

static tt_status plan(command *c)
{
	tt_run_options o;
	tt_hardware h;
	tt_plan_mesh m;
	TT_TRY(tt_run_options_from_config(c->a, c->cfg, &o));
	for (int i = 0; i < o.warnings.n && !c->json; i++)
		tt_log(TT_LOG_WARN, "%s", o.warnings.items[i]);
	if (c->layouts)
		return layouts(c, &o);
	if (c->cfg->hardware.table == TT_CFG_HARDWARE_THIS)
		TT_TRY(tt_hardware_this(NULL, o.exec.isa, c->cfg->hardware.ranks, &h));
	else
		TT_TRY(tt_hardware_find(tt_cfg_hardware_word(c->cfg->hardware.table), &h));
	tt_mesh_plan_options q = { .name = c->name, .hardware = &h, .limit = c->memory > 0 ? (int64_t)(c->memory * (double)TT_GIB) : (int64_t)h.memory, .classes = CLASSES,
				   .spans = c->timeline != NULL };
	tt_buf b = { 0 };
	if (!c->json) {
		q.dump = c->cfg->debug.dump;
		q.dump_out = &b;
	}
	tt_status planned = tt_mesh_plan(c->a, &o, &q, &m);
	if (planned)
		tt_buf_fini(&b);
	TT_TRY(planned);
	if (c->json)
		as_json(&m, &b);
	else
		tt_plan_print(c->a, &m, &b);
	tt_cli_print(b.s);
	tt_buf_fini(&b);
	if (c->timeline) {
		tt_buf svg = { 0 };
		tt_plan_svg(&m, &svg);
		tt_status s = tt_file_write(c->timeline, svg.s, svg.n);
		tt_buf_fini(&svg);
		TT_TRY(s);
	}
	if (!c->json)
		tt_log(TT_LOG_INFO, "planned in %.2f s", m.plan_seconds);
	return tt_mesh_plan_fits(c->a, &o, &m);
}

tt_status tt_cmd_plan(int argc, const char *const *argv)
{
	command c = { .a = tt_arena_create("plan") };
	tt_status s = parse(&c, argc, argv);
	if (s == TT_OK)
		s = plan(&c);
	tt_arena_destroy(c.a);
	return s;
}
