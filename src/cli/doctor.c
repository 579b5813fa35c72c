/* doctor.c: `titan doctor`: the machine as a run will find it. */
#include <gnu/libc-version.h>
#include <jansson.h>
#include <libxsmm.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/version.h"
#include "cli/cli.h"
#include "cli/doctor.h"
#include "config/config.h"
#include "ops/ops.h"

enum { MAX_ROWS = 16 };

/* Everything that is printed, in either form. */
typedef struct report {
	tt_arena *a;
	tt_doctor_facts facts;
	tt_findings findings;
	tt_peaks peaks;
	bool cached[TT_PEAK_NFIGURES]; /* the figure is from the cache */
	int64_t now;
	int warnings, bad;
} report;

typedef struct library { const char *name, *version; } library;

static int libraries(tt_arena *a, library out[MAX_ROWS])
{
	unsigned x = XXH_versionNumber();
	int n = 0;
	out[n++] = (library){ "libxsmm", LIBXSMM_VERSION };
	out[n++] = (library){ "jansson", jansson_version_str() };
	out[n++] = (library){ "xxhash", tt_arena_printf(a, "%u.%u.%u", x / 10000, x / 100 % 100, x % 100) };
	out[n++] = (library){ "glibc", gnu_get_libc_version() };
	out[n++] = (library){ "compiler", TT_COMPILER };
	return n;
}

/* ---- kernels ---------------------------------------------------------------------------------------------------------------------- */

/* The rows of the override table that can be chosen for an op. A row is never reached if one before it accepts the same cases. */
static int rows_of(const char *op, tt_isa isa, const char *out[MAX_ROWS])
{
	int n = 0;
	const tt_override *o, *p;
	for (int i = 0; (o = tt_override_at(i)); i++) {
		bool hidden = o->isa > isa || strcmp(o->op, op);
		for (int k = 0; k < i && !hidden && (p = tt_override_at(k)); k++)
			hidden = p->isa <= isa && p->accepts == o->accepts && !strcmp(p->op, op);
		if (!hidden && n < MAX_ROWS)
			out[n++] = o->name;
	}
	return n;
}

static const char *reference_set(tt_isa isa)
{
	return tt_isa_name(TT_MIN(isa, TT_ISA_AVX512));
}

/* ---- text --------------------------------------------------------------------------------------------------------------------------- */

static const char *age_text(tt_arena *a, int64_t seconds)
{
	if (seconds < 120)
		return tt_arena_printf(a, "%lld s ago", (long long)seconds);
	if (seconds < 2 * 3600)
		return tt_arena_printf(a, "%lld min ago", (long long)seconds / 60);
	if (seconds < 2 * 86400)
		return tt_arena_printf(a, "%lld h ago", (long long)seconds / 3600);
	return tt_arena_printf(a, "%lld days ago", (long long)seconds / 86400);
}

static bool is_bandwidth(int f) { return f == TT_PEAK_READ || f == TT_PEAK_TRIAD; }

static const char *figure_title(int f)
{
	switch ((tt_figure)f) {
	case TT_PEAK_F32_REF: return "float32, baseline";
	case TT_PEAK_F32_AVX2: return "float32, AVX2";
	case TT_PEAK_F32_AVX512: return "float32, AVX-512";
	case TT_PEAK_BF16: return "bf16, AVX-512";
	case TT_PEAK_READ: return "memory, read";
	case TT_PEAK_TRIAD: return "memory, triad";
	case TT_PEAK_NFIGURES: break;
	}
	return "?";
}

static void text_machine(const report *r, tt_buf *b)
{
	const tt_machine *m = &r->facts.machine;
	tt_buf_printf(b, "titan %s\n\nprocessor\n", TT_VERSION);
	tt_buf_printf(b, "  %s (%s family %d model %d stepping %d%s%s)%s%s\n", *m->cpu ? m->cpu : "unknown", *m->vendor ? m->vendor : "vendor unknown", m->family, m->model,
		m->stepping, *m->microcode ? ", microcode " : "", m->microcode, m->hypervisor ? ", virtual machine" : "", *m->container ? ", container" : "");
	tt_buf_printf(b, "  features %s\n", m->features);
	tt_buf_printf(b, "  %d of %d CPUs, %d cores, %d memory node%s; a run starts %d thread%s\n", m->cpus_allowed, m->cpus_online, m->cores_allowed, m->numa_nodes,
		m->numa_nodes == 1 ? "" : "s", r->facts.threads, r->facts.threads == 1 ? "" : "s");
	for (int i = 0; i < m->ncaches; i++)
		tt_buf_printf(b, "%sL%d %s %s x%d", i ? ", " : "  ", m->caches[i].level, m->caches[i].type, tt_scale_bytes(m->caches[i].bytes).s, m->caches[i].instances);
	tt_buf_str(b, m->ncaches ? "\n" : "");
	tt_buf_printf(b, "  memory %s, %s available, swap %s; kernel %s\n", tt_scale_bytes(m->ram).s, tt_scale_bytes(m->available).s, tt_scale_bytes(m->swap).s, m->kernel);
}

static void text_kernels(const report *r, tt_buf *b)
{
	tt_isa isa = r->facts.isa;
	const char *rows[MAX_ROWS];
	tt_buf_printf(b, "\nkernels for %s\n", tt_isa_name(isa));
	for (int i = 0; tt_ops[i]; i++) {
		int n = rows_of(tt_ops[i]->name, isa, rows);
		if (n)
			tt_buf_printf(b, "  %-14s", tt_ops[i]->name);
		for (int k = 0; k < n; k++)
			tt_buf_printf(b, "%s%s", k ? ", " : " ", rows[k]);
		tt_buf_str(b, n ? "\n" : "");
	}
	tt_buf_printf(b, "  %-14s reference, compiled for %s\n", "all other ops", reference_set(isa));
}

static void text_peaks(const report *r, tt_buf *b)
{
	char all[32];
	int threads = r->peaks.threads;
	snprintf(all, sizeof all, "%d threads", threads);
	tt_buf_printf(b, "\n%-20s %12s %12s\n", "measured peaks", "1 thread", threads > 1 ? all : "");
	for (int f = 0; f < TT_PEAK_NFIGURES; f++) {
		if (r->peaks.of[f].all <= 0 || !tt_figure_runs((tt_figure)f, r->facts.isa))
			continue;
		const char *unit = is_bandwidth(f) ? "GB/s" : "GF/s";
		tt_buf_printf(b, "  %-18s %7.1f %s", figure_title(f), r->peaks.of[f].one / 1e9, unit);
		if (threads > 1)
			tt_buf_printf(b, " %7.1f %s", r->peaks.of[f].all / 1e9, unit);
		tt_buf_printf(b, "   %s\n", r->cached[f] ? age_text(r->a, TT_MAX(0, r->now - r->peaks.of[f].at)) : "now");
	}
}

static void text_plan(const tt_doctor_plan *p, tt_buf *b)
{
	tt_buf_printf(b, "\nplan of %s: %s parameters\n", p->name, tt_scale_count(p->params).s);
	for (int i = 0; i < TT_EXEC_NREGIONS; i++)
		tt_buf_printf(b, "  %-12s %s\n", tt_exec_region_name(i), tt_scale_bytes(p->region[i]).s);
	tt_buf_printf(b, "  %-12s %s\n", "total", tt_scale_bytes(p->planned).s);
	if (p->saves)
		tt_buf_printf(b, "  %-12s %s%s\n", "checkpoint", tt_scale_bytes(p->checkpoint).s, p->keep ? "" : ", all are kept");
	if (p->saves && p->keep)
		tt_buf_printf(b, "  %-12s %s: %lld kept and the one being written\n", "on disk", tt_scale_bytes((p->keep + 1) * p->checkpoint).s, (long long)p->keep);
}

static void text(const report *r, tt_buf *b)
{
	library libs[MAX_ROWS];
	text_machine(r, b);
	text_kernels(r, b);
	text_peaks(r, b);
	int n = libraries(r->a, libs);
	tt_buf_str(b, "\nlibraries\n");
	for (int i = 0; i < n; i++)
		tt_buf_printf(b, "  %-10s %s\n", libs[i].name, libs[i].version);
	if (r->facts.plan)
		text_plan(r->facts.plan, b);
	tt_buf_str(b, "\nlimits\n");
	for (int64_t i = 0; i < r->findings.n; i++) {
		const tt_finding *f = &r->findings.items[i];
		tt_buf_printf(b, "  %-4s %s", tt_finding_level_name(f->level), f->what);
		if (f->level != TT_FINDING_OK)
			tt_buf_printf(b, " - %s - %s", f->why, f->remedy);
		tt_buf_str(b, "\n");
	}
	tt_buf_printf(b, "\n%d bad, %d warning%s\n", r->bad, r->warnings, r->warnings == 1 ? "" : "s");
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------------------------- */

/* Paths may hold bytes that are not UTF-8, which JSON cannot say: those become '?'. */
static json_t *js(tt_arena *a, const char *s)
{
	json_t *j = json_string(s);
	if (j)
		return j;
	char *t = tt_arena_strdup(a, s);
	for (char *p = t; *p; p++)
		if (*p & 0x80)
			*p = '?';
	return json_string(t);
}

static void put(json_t *o, const char *key, json_t *v)
{
	int bad = json_object_set_new(o, key, v);
	TT_ASSERT(!bad, "JSON key %s", key);
}

static json_t *number(int64_t v) { return v == INT64_MAX || v < 0 ? json_null() : json_integer(v); }

static json_t *json_machine(const report *r)
{
	const tt_machine *m = &r->facts.machine;
	json_t *o = json_object(), *caches = json_array();
	put(o, "cpu", js(r->a, m->cpu));
	put(o, "vendor", js(r->a, m->vendor));
	put(o, "family", json_integer(m->family));
	put(o, "model", json_integer(m->model));
	put(o, "stepping", json_integer(m->stepping));
	put(o, "microcode", js(r->a, m->microcode));
	put(o, "features", js(r->a, m->features));
	put(o, "hypervisor", json_boolean(m->hypervisor));
	put(o, "container", js(r->a, m->container));
	put(o, "kernel", js(r->a, m->kernel));
	put(o, "cpus_online", json_integer(m->cpus_online));
	put(o, "cpus_allowed", json_integer(m->cpus_allowed));
	put(o, "cores_allowed", json_integer(m->cores_allowed));
	put(o, "cpu_quota", m->cpu_quota > 0 ? json_real(m->cpu_quota) : json_null());
	put(o, "threads_per_core", json_integer(m->threads_per_core));
	put(o, "numa_nodes", json_integer(m->numa_nodes));
	put(o, "load1", json_real(m->load1));
	put(o, "governor", js(r->a, m->governor));
	for (int i = 0; i < m->ncaches; i++) {
		json_t *c = json_object();
		put(c, "level", json_integer(m->caches[i].level));
		put(c, "type", js(r->a, m->caches[i].type));
		put(c, "bytes", json_integer(m->caches[i].bytes));
		put(c, "cpus", json_integer(m->caches[i].cpus));
		put(c, "instances", json_integer(m->caches[i].instances));
		json_array_append_new(caches, c);
	}
	put(o, "caches", caches);
	put(o, "ram", json_integer(m->ram));
	put(o, "available", json_integer(m->available));
	put(o, "swap", json_integer(m->swap));
	put(o, "cgroup_memory", number(m->cgroup_memory.soft));
	put(o, "cgroup_memory_used", number(m->cgroup_memory.used));
	put(o, "huge_pages", js(r->a, m->huge_pages));
	put(o, "memory_lock", number(m->memory_lock));
	put(o, "open_files", number(m->open_files));
	put(o, "processes", number(m->processes.soft));
	return o;
}

static json_t *json_kernels(const report *r)
{
	json_t *o = json_object();
	const char *rows[MAX_ROWS];
	for (int i = 0; tt_ops[i]; i++) {
		json_t *names = json_array();
		int n = rows_of(tt_ops[i]->name, r->facts.isa, rows);
		for (int k = 0; k < n; k++)
			json_array_append_new(names, json_string(rows[k]));
		json_array_append_new(names, json_string(tt_arena_printf(r->a, "reference-%s", reference_set(r->facts.isa))));
		put(o, tt_ops[i]->name, names);
	}
	return o;
}

static json_t *json_peaks(const report *r)
{
	json_t *o = json_object();
	for (int f = 0; f < TT_PEAK_NFIGURES; f++) {
		if (r->peaks.of[f].all <= 0 || !tt_figure_runs((tt_figure)f, r->facts.isa))
			continue;
		json_t *v = json_object();
		put(v, "unit", json_string(is_bandwidth(f) ? "bytes/s" : "FLOP/s"));
		put(v, "one_thread", json_real(r->peaks.of[f].one));
		put(v, "all_threads", json_real(r->peaks.of[f].all));
		put(v, "cached", json_boolean(r->cached[f]));
		put(v, "age_seconds", json_integer(TT_MAX(0, r->now - r->peaks.of[f].at)));
		put(o, tt_figure_name((tt_figure)f), v);
	}
	return o;
}

static json_t *json_plan(const report *r)
{
	const tt_doctor_plan *p = r->facts.plan;
	json_t *o = json_object(), *regions = json_object(), *slow = json_array();
	put(o, "config", js(r->a, p->name));
	put(o, "parameters", json_integer(p->params));
	for (int i = 0; i < TT_EXEC_NREGIONS; i++)
		put(regions, tt_exec_region_name(i), json_integer(p->region[i]));
	put(o, "regions", regions);
	put(o, "total", json_integer(p->planned));
	put(o, "checkpoint", p->saves ? json_integer(p->checkpoint) : json_null());
	put(o, "keep_latest_k", json_integer(p->keep));
	for (int64_t i = 0; i < p->nslow; i++) {
		json_t *v = json_object();
		put(v, "op", json_string(p->slow[i].op));
		put(v, "instructions", json_integer(p->slow[i].n));
		put(v, "of", json_integer(p->slow[i].of));
		put(v, "first", js(r->a, p->slow[i].example));
		json_array_append_new(slow, v);
	}
	put(o, "on_references", slow);
	return o;
}

static void as_json(const report *r, tt_buf *b)
{
	library libs[MAX_ROWS];
	json_t *o = json_object(), *l = json_object(), *limits = json_array();
	put(o, "version", json_string(TT_VERSION));
	put(o, "machine", json_machine(r));
	put(o, "isa", json_string(tt_isa_name(r->facts.isa)));
	put(o, "threads", json_integer(r->facts.threads));
	put(o, "kernels", json_kernels(r));
	put(o, "peaks", json_peaks(r));
	int n = libraries(r->a, libs);
	for (int i = 0; i < n; i++)
		put(l, libs[i].name, js(r->a, libs[i].version));
	put(o, "libraries", l);
	for (int64_t i = 0; i < r->findings.n; i++) {
		const tt_finding *f = &r->findings.items[i];
		json_t *v = json_object();
		put(v, "level", json_string(tt_finding_level_name(f->level)));
		put(v, "key", json_string(f->key));
		put(v, "what", js(r->a, f->what));
		put(v, "why", js(r->a, f->why));
		put(v, "remedy", js(r->a, f->remedy));
		json_array_append_new(limits, v);
	}
	if (r->facts.plan)
		put(o, "plan", json_plan(r));
	put(o, "limits", limits);
	put(o, "bad", json_integer(r->bad));
	put(o, "warnings", json_integer(r->warnings));
	char *s = json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	TT_ASSERT(s, "a report that JSON cannot say");
	tt_buf_printf(b, "%s\n", s);
	free(s);
	json_decref(o);
}

/* ---- the command ------------------------------------------------------------------------------------------------------------------------ */

static tt_status measure_peaks(const tt_doctor_options *o, const tt_peak_source *source, report *r)
{
	(void)tt_peak_load(source, r->facts.threads, &r->peaks);
	bool all = true;
	for (int f = 0; f < TT_PEAK_NFIGURES; f++) {
		r->cached[f] = !o->measure && r->peaks.of[f].all > 0 && r->peaks.of[f].one > 0;
		all &= r->cached[f] || !tt_figure_runs((tt_figure)f, o->isa);
	}
	if (!all) {
		tt_pool *pool = NULL;
		TT_TRY(tt_pool_create(r->facts.threads, 20, &pool));
		tt_peak_measure(source, pool, o->isa, !o->measure, &r->peaks);
		tt_pool_destroy(pool);
		(void)tt_peak_store(source, &r->peaks);
	}
	r->now = source->clock(source->ctx);
	return TT_OK;
}

tt_status tt_doctor_report(tt_arena *a, const tt_doctor_options *o, tt_buf *out)
{
	report r = { .a = a };
	tt_peak_source own;
	tt_doctor_facts *f = &r.facts;
	/* The load before anything is measured: that of others. */
	tt_machine_read(o->root, &f->machine);
	if (!o->source)
		tt_peak_source_init(&own);
	const tt_peak_source *source = o->source ? o->source : &own;
	const char *temp = getenv("TMPDIR");
	f->run_folder = o->run_folder;
	f->cache_folder = source->folder;
	f->run_known = tt_machine_disk(o->root, o->run_folder, &f->run);
	f->cache_known = *source->folder && tt_machine_disk(o->root, source->folder, &f->cache);
	f->temp_known = tt_machine_disk(o->root, temp && *temp ? temp : "/tmp", &f->temp);
	f->exec_memory = tt_machine_exec_memory();
	f->threads = o->threads ? o->threads : f->machine.threads;
	f->isa = o->isa;
	f->compute_bf16 = o->compute_bf16;
	f->plan = o->plan;
	TT_TRY(measure_peaks(o, source, &r));
	tt_figure best = tt_figure_of(f->isa, TT_F32);
	f->peak_one = r.peaks.of[best].one;
	f->peak_all = r.peaks.of[best].all;
	tt_doctor_check(a, f, &r.findings);
	for (int64_t i = 0; i < r.findings.n; i++) {
		r.warnings += r.findings.items[i].level == TT_FINDING_WARN;
		r.bad += r.findings.items[i].level == TT_FINDING_BAD;
	}
	(o->json ? as_json : text)(&r, out);
	return TT_OK;
}

static tt_status doctor(tt_arena *a, int argc, const char *const *argv)
{
	tt_doctor_options o = { .root = "" };
	const char **rest = TT_NEWN(a, const char *, argc + 1);
	int n = 0;
	for (int i = 0; i < argc; i++)
		if (!strcmp(argv[i], "--json"))
			o.json = true;
		else if (!strcmp(argv[i], "--measure"))
			o.measure = true;
		else
			rest[n++] = argv[i];
	tt_config *cfg, whole;
	const char *note;
	TT_TRY(tt_cli_config(a, n, rest, NULL, &cfg));
	TT_TRY(tt_config_to_plan(a, cfg, &whole, &note));
	cfg = &whole;
	TT_TRY(tt_isa_parse(tt_cfg_isa_word(cfg->debug.isa), &o.isa));
	o.run_folder = cfg->job.dump_folder;
	o.threads = (int)cfg->hardware.threads;
	o.compute_bf16 = cfg->training.mixed_precision_param == TT_CFG_COMPUTE_BFLOAT16;
	const char *path = NULL;
	for (int i = 0; i < n; i++)
		path = strncmp(rest[i], "--", 2) ? rest[i] : path;
	tt_doctor_plan plan;
	if (path) {
		if (note && !o.json)
			tt_log(TT_LOG_INFO, "%s", note);
		TT_TRY(tt_doctor_plan_make(a, path, cfg, &plan));
		o.plan = &plan;
	}
	tt_buf b = { 0 };
	tt_status s = tt_doctor_report(a, &o, &b);
	if (s == TT_OK)
		tt_cli_print(b.s);
	tt_buf_fini(&b);
	return s;
}

tt_status tt_cmd_doctor(int argc, const char *const *argv)
{
	tt_arena *a = tt_arena_create("doctor");
	tt_status s = doctor(a, argc, argv);
	tt_arena_destroy(a);
	return s;
}
