/* hashes.c: hashes.bin, written and read. */
#include "metrics/hashes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "metrics/internal.h"

enum { MAGIC_BYTES = 8 };

const char *tt_hashes_segment_name(int seg) { return seg == TT_HASHES_STATE ? "STATE" : tt_segment_name((tt_segment)seg); }

/* ---- steps ---------------------------------------------------------------------------------------------------------------------- */

/* Digits at *s as a number from 1 to 2^53; false: there are none, or too many. */
static bool take_number(const char **s, int64_t *out)
{
	const char *p = *s;
	int64_t v = 0;
	for (; *p >= '0' && *p <= '9'; p++)
		if ((v = v * 10 + (*p - '0')) > (int64_t)1 << 53)
			return false;
	bool ok = p > *s && v > 0;
	*s = p;
	*out = v;
	return ok;
}

tt_status tt_hashes_parse_steps(const char *text, const char *key, tt_hashes_options *o)
{
	const char *s = text;
	int64_t first = 1, last = 0, every = 1;
	bool ok = true;
	if (*s && *s != '/') {
		ok = take_number(&s, &first);
		last = first;
		if (ok && *s == '-') {
			s++;
			last = 0;
			if (*s && *s != '/')
				ok = take_number(&s, &last) && last >= first;
		}
	}
	if (ok && *s == '/') {
		s++;
		ok = take_number(&s, &every);
	}
	if (!ok || *s)
		TT_FAIL(TT_ERR_USAGE, "%s is \"%s\": steps are written as \"7\", \"100-120\", \"100-\", \"1-1000/50\" (every 50th), or \"\" for all", key, text);
	o->first = first;
	o->last = last;
	o->every = every;
	return TT_OK;
}

/* ---- writing --------------------------------------------------------------------------------------------------------------------- */

struct tt_hashes {
	tt_hashes_options o;
	tt_sink sink;
	char *path;
	bool started;
	int64_t step;
	bool wanted;                     /* this step is recorded */
	int32_t runs[TT_HASHES_NSEGS];   /* of this step */
	bool described[TT_HASHES_NSEGS];
	const tt_graph *graph;           /* of the cell that is running */
	tt_buf facts, cell, program;     /* payloads in the making */
	tt_buf early_programs, early_cells; /* whole records, until the file is open */
};

static char *file_in(const char *folder, const char *name)
{
	tt_buf b = { 0 };
	tt_buf_printf(&b, "%s%s%s", folder, folder[0] && folder[strlen(folder) - 1] == '/' ? "" : "/", name);
	return b.s;
}

tt_status tt_hashes_open(const tt_hashes_options *o, tt_hashes **out)
{
	TT_TRY(tt_mkdirs(o->folder));
	tt_hashes *h = calloc(1, sizeof *h);
	TT_ASSERT(h, "out of memory");
	h->o = *o;
	h->o.first = TT_MAX(o->first, (int64_t)1);
	h->o.every = TT_MAX(o->every, (int64_t)1);
	h->sink.fd = -1;
	h->path = file_in(o->folder, "hashes.bin");
	h->wanted = true;
	*out = h;
	return TT_OK;
}

void tt_hashes_close(tt_hashes *h)
{
	if (!h)
		return;
	if (h->started)
		tt_sink_close(&h->sink);
	else
		free(h->path);
	tt_buf_fini(&h->facts);
	tt_buf_fini(&h->cell);
	tt_buf_fini(&h->program);
	tt_buf_fini(&h->early_programs);
	tt_buf_fini(&h->early_cells);
	free(h);
}

void tt_hashes_facts(tt_hashes *h, const char *facts)
{
	h->facts.n = 0;
	tt_buf_str(&h->facts, facts);
}

/* A record to the end of `b`. */
static void add_record(tt_buf *b, tt_hashes_kind kind, const tt_buf *payload)
{
	static const char zeros[8];
	tt_hashes_record r = { .kind = (uint32_t)kind, .n = (uint32_t)payload->n };
	size_t at = b->n, whole = (size_t)tt_round_up(r.n, 8);
	tt_buf_add(b, &r, sizeof r);
	tt_buf_add(b, payload->s, payload->n);
	tt_buf_add(b, zeros, whole - payload->n);
	r.head_check = tt_hash64(&r, 2 * sizeof(uint32_t), 0);
	r.check = tt_hash64(b->s + at + sizeof r, whole, r.kind);
	memcpy(b->s + at, &r, sizeof r);
}

/* A record is one write, so that a killed run cannot leave half of one between two others. */
static void put(tt_hashes *h, tt_hashes_kind kind, tt_buf *payload)
{
	if (payload->n > UINT32_MAX) {
		if (h->started)
			tt_sink_drop(&h->sink, "a program has too many values for one record");
		return;
	}
	if (!h->started) {
		add_record(kind == TT_HASHES_PROGRAM ? &h->early_programs : &h->early_cells, kind, payload);
		return;
	}
	tt_buf *whole = &h->early_cells; /* free by now */
	whole->n = 0;
	add_record(whole, kind, payload);
	tt_sink_write(&h->sink, whole->s, whole->n);
}

/* The file of the run that goes on, without what it left of a last record. */
static tt_status trim(const char *path)
{
	struct stat st;
	if (stat(path, &st) != 0)
		return TT_OK;
	tt_arena *a = tt_arena_create("hashes");
	tt_hashes_file f;
	tt_status s = tt_hashes_read(a, path, &f);
	if (s == TT_OK) {
		int64_t end = MAGIC_BYTES;
		for (tt_hashes_record r; end + (int64_t)sizeof r <= (int64_t)f.map.n;) {
			memcpy(&r, f.map.p + end, sizeof r);
			int64_t next = end + (int64_t)sizeof r + tt_round_up(r.n, 8);
			if (next > (int64_t)f.map.n)
				break;
			end = next;
		}
		if (f.cut && truncate(path, f.map.n < MAGIC_BYTES ? 0 : end) != 0)
			s = tt_error_set(TT_ERR_IO, __FILE__, __LINE__, "%s: cannot cut off half a record: %s", path, strerror(errno));
		tt_hashes_file_close(&f);
	}
	tt_arena_destroy(a);
	return s;
}

static tt_status start(tt_hashes *h, bool resumed)
{
	struct stat st;
	if (resumed) {
		TT_TRY(trim(h->path));
	} else if (stat(h->path, &st) == 0) {
		char *old = file_in(h->o.folder, "hashes.old.bin");
		int failed = rename(h->path, old);
		free(old);
		if (failed)
			TT_FAIL(TT_ERR_IO, "%s: cannot rename to hashes.old.bin: %s", h->path, strerror(errno));
	}
	tt_sink_open(&h->sink, h->path);
	h->started = true;
	if (h->sink.fd < 0)
		TT_FAIL(TT_ERR_IO, "%s: cannot be created, and debug.record_hashes asks for it", h->sink.path);
	tt_buf first = { 0 }, settings = { 0 };
	if (!h->sink.size)
		tt_buf_add(&first, TT_HASHES_MAGIC, MAGIC_BYTES);
	tt_buf_printf(&settings, "[run]\n%s%s", h->facts.s ? h->facts.s : "", h->o.settings ? h->o.settings : "");
	add_record(&first, TT_HASHES_SETTINGS, &settings);
	tt_buf_add(&first, h->early_programs.s, h->early_programs.n);
	if (!resumed) /* what came before its first step was replaced by what it loaded */
		tt_buf_add(&first, h->early_cells.s, h->early_cells.n);
	tt_sink_write(&h->sink, first.s, first.n);
	tt_buf_fini(&first);
	tt_buf_fini(&settings);
	return TT_OK;
}

bool tt_hashes_wants(const tt_hashes_options *o, int64_t step)
{
	int64_t first = TT_MAX(o->first, (int64_t)1), every = TT_MAX(o->every, (int64_t)1);
	return !step || (step >= first && (!o->last || step <= o->last) && (step - first) % every == 0);
}

tt_status tt_hashes_begin_step(tt_hashes *h, int64_t step)
{
	if (!h->started)
		TT_TRY(start(h, step > 1));
	if (step != h->step)
		memset(h->runs, 0, sizeof h->runs);
	h->step = step;
	h->wanted = tt_hashes_wants(&h->o, step);
	return TT_OK;
}

static void begin_cell(tt_hashes *h, int seg, int64_t T, int64_t nseqs)
{
	tt_hashes_cell_head head = { .step = h->step, .segment = seg, .index = h->runs[seg]++, .T = T, .nseqs = nseqs };
	h->cell.n = h->program.n = 0;
	tt_buf_add(&h->cell, &head, sizeof head);
}

/* The segment of the cell that is being made. */
static int cell_segment(const tt_hashes *h)
{
	tt_hashes_cell_head head;
	memcpy(&head, h->cell.s, sizeof head);
	return head.segment;
}

static void add_hash(tt_hashes *h, uint64_t hash) { tt_buf_add(&h->cell, &hash, sizeof hash); }

static void add_value(tt_hashes *h, const char *name, const char *dtype, const char *format, const char *op, const char *kernel)
{
	if (!h->described[cell_segment(h)])
		tt_buf_printf(&h->program, "value\t%s\t%s\t%s\t%s\t%s\n", name, dtype, format, op, kernel);
}

static void add_names(tt_buf *b, const tt_graph *g, int n, const tt_v *v)
{
	const char *blank = "\t";
	for (int i = 0; i < n; i++)
		if (v[i]) {
			tt_buf_printf(b, "%s%s", blank, g->values[v[i]].name);
			blank = " ";
		}
	if (*blank == '\t')
		tt_buf_str(b, "\t");
}

static void end_cell(tt_hashes *h, int seg)
{
	int64_t n = ((int64_t)h->cell.n - (int64_t)sizeof(tt_hashes_cell_head)) / (int64_t)sizeof(uint64_t);
	memcpy(h->cell.s + offsetof(tt_hashes_cell_head, n), &n, sizeof n);
	if (!h->described[seg]) {
		tt_buf text = { 0 };
		tt_buf_printf(&text, "program\t%s\t%lld\n", tt_hashes_segment_name(seg), (long long)n);
		tt_buf_add(&text, h->program.s, h->program.n);
		for (int64_t i = 0; h->graph && i < h->graph->nnodes; i++) {
			const tt_node *x = &h->graph->nodes[i];
			if ((int)x->seg != seg)
				continue;
			tt_buf_printf(&text, "node\t%s", x->op->name);
			add_names(&text, h->graph, x->nout, x->out);
			add_names(&text, h->graph, x->nin, x->in);
			tt_buf_str(&text, "\n");
		}
		put(h, TT_HASHES_PROGRAM, &text);
		tt_buf_fini(&text);
		h->described[seg] = true;
	}
	put(h, TT_HASHES_CELL, &h->cell);
}

static bool probe_begin(void *ctx, tt_segment seg, const tt_graph *g, const struct tt_cell *cell)
{
	tt_hashes *h = ctx;
	if (!h->wanted)
		return false;
	h->graph = g;
	begin_cell(h, (int)seg, cell->T, cell->nseqs);
	return true;
}

static void probe_value(void *ctx, const tt_probe_value *v)
{
	tt_hashes *h = ctx;
	add_hash(h, v->hash);
	const tt_value *x = &h->graph->values[v->value];
	add_value(h, x->name, tt_dtype_name(x->dtype), tt_format_name(x->format), v->op ? v->op : x->kind == TT_STATE ? "state" : "input",
		  v->kernel ? v->kernel : "-");
}

static void probe_end(void *ctx)
{
	tt_hashes *h = ctx;
	end_cell(h, cell_segment(h));
}

tt_probe tt_hashes_probe(tt_hashes *h)
{
	return h->o.values ? (tt_probe){ h, probe_begin, probe_value, probe_end, false } : (tt_probe){ 0 };
}

bool tt_hashes_has(const tt_slot *s)
{
	/* What is derived from a parameter says nothing new. Sums of an evaluation depend on when there was one. */
	bool region = s->region == TT_REGION_GRAD || s->region == TT_REGION_OPTIM || s->region == TT_REGION_PARAM;
	return region && s->source < 0 && s->format == TT_PLAIN && strncmp(s->name, "eval_", 5);
}

tt_status tt_hashes_state(tt_hashes *h, tt_exec *e, const uint64_t *given, const bool *kept, const tt_hashes_extra *extra, int nextra)
{
	if (!h->o.state || !h->wanted)
		return TT_OK;
	/* Causes before effects: what a step was given, what it found, what it made of that. */
	static const int regions[] = { TT_REGION_GRAD, TT_REGION_OPTIM, TT_REGION_PARAM };
	int64_t n;
	const tt_slot *s = tt_exec_states(e, &n);
	h->graph = NULL;
	begin_cell(h, TT_HASHES_STATE, 0, 0);
	for (int i = 0; i < nextra; i++) {
		add_hash(h, extra[i].hash);
		add_value(h, extra[i].name, "-", "-", "state", "-");
	}
	for (int r = 0; r < TT_COUNT(regions); r++)
		for (int64_t i = 0; i < n; i++) {
			uint64_t hash = given ? given[i] : 0;
			if (s[i].region != regions[r] || !tt_hashes_has(&s[i]) || (kept && !kept[i]))
				continue;
			if (!given)
				TT_TRY(tt_tensor_hash(e, &s[i], 0, s[i].count, &hash));
			add_hash(h, hash);
			add_value(h, s[i].name, tt_dtype_name(s[i].dtype), tt_format_name(s[i].format), "state", "-");
		}
	end_cell(h, TT_HASHES_STATE);
	return TT_OK;
}

/* ---- reading --------------------------------------------------------------------------------------------------------------------- */

typedef struct reader {
	tt_arena *a;
	tt_hashes_file *f;
	const tt_hashes_program *program[TT_HASHES_NSEGS];
	tt_hashes_cell last[TT_HASHES_NSEGS]; /* of each segment; session -1: none yet */
	int64_t at; /* of the record, in the file */
} reader;

/* The next field of a line, ended by `stop` or the line's end; NULL: there is none. */
static const char *take_field(tt_arena *a, const char **p, const char *end, char stop)
{
	if (!*p)
		return NULL;
	const char *tab = memchr(*p, stop, (size_t)(end - *p)), *from = *p;
	*p = tab ? tab + 1 : NULL;
	return tt_arena_strndup(a, from, (size_t)((tab ? tab : end) - from));
}

static const char **take_names(tt_arena *a, const char *field, int *n)
{
	const char **names = NULL, *p = *field ? field : NULL, *end = field + strlen(field);
	int64_t k = 0, cap = 0;
	while (p) {
		const char *name = take_field(a, &p, end, ' ');
		TT_PUSH(a, names, k, cap, name);
	}
	*n = (int)k;
	return names;
}

typedef struct named { const char *name; int64_t at; } named;

static int by_name(const void *x, const void *y)
{
	const named *a = x, *b = y;
	int c = strcmp(a->name, b->name);
	return c ? c : (a->at > b->at) - (a->at < b->at);
}

int64_t tt_hashes_find(const tt_hashes_program *p, const char *name)
{
	int64_t lo = 0, hi = p->nvalues;
	while (lo < hi) {
		int64_t mid = lo + (hi - lo) / 2;
		if (strcmp(p->values[p->sorted[mid]].name, name) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < p->nvalues && !strcmp(p->values[p->sorted[lo]].name, name) ? p->sorted[lo] : -1;
}

/* False: two values have one name. */
static bool sort_names(tt_arena *a, tt_hashes_program *p)
{
	named *v = TT_NEWN(a, named, p->nvalues + 1);
	p->sorted = TT_NEWN(a, int64_t, p->nvalues + 1);
	for (int64_t i = 0; i < p->nvalues; i++)
		v[i] = (named){ p->values[i].name, i };
	qsort(v, (size_t)p->nvalues, sizeof *v, by_name);
	bool unique = true;
	for (int64_t i = 0; i < p->nvalues; i++) {
		p->sorted[i] = v[i].at;
		unique &= i == 0 || strcmp(v[i - 1].name, v[i].name);
	}
	return unique;
}

static tt_status damaged(const reader *r, const char *what)
{
	if (!r->f->ncells)
		TT_FAIL(TT_ERR_FORMAT, "%s: damaged: the record at byte %lld %s, and no program run is before it: record the run again (debug.record_hashes)",
			r->f->path, (long long)r->at, what);
	TT_FAIL(TT_ERR_FORMAT, "%s: damaged: the record at byte %lld %s; what is before it can still be compared (truncate -s %lld on a copy)", r->f->path,
		(long long)r->at, what, (long long)r->at);
}

/* Field by field, so that a record that was well made once and one that was made up are told apart by their checks alone. */
static tt_status read_program(reader *r, const char *text, size_t n)
{
	tt_hashes_program *p = TT_NEW(r->a, tt_hashes_program);
	const char *end = text + n, *field;
	long long declared = -1;
	p->segment = -1;
	for (const char *line = text, *stop; line < end; line = stop + 1) {
		stop = memchr(line, '\n', (size_t)(end - line));
		if (!stop)
			return damaged(r, "ends within a line");
		const char *at = line, *f[6];
		int nf = 0;
		while (nf < TT_COUNT(f) && (field = take_field(r->a, &at, stop, '\t')))
			f[nf++] = field;
		if (nf == 3 && !strcmp(f[0], "program")) {
			for (int s = 0; s < TT_HASHES_NSEGS; s++)
				if (!strcmp(f[1], tt_hashes_segment_name(s)))
					p->segment = s;
			declared = strtoll(f[2], NULL, 10);
		} else if (nf == 6 && !strcmp(f[0], "value")) {
			tt_hashes_value v = { f[1], f[2], f[3], f[4], f[5] };
			TT_PUSH(r->a, p->values, p->nvalues, p->cap_values, v);
		} else if (nf == 4 && !strcmp(f[0], "node")) {
			tt_hashes_node x = { .op = f[1] };
			x.out = take_names(r->a, f[2], &x.nout);
			x.in = take_names(r->a, f[3], &x.nin);
			TT_PUSH(r->a, p->nodes, p->nnodes, p->cap_nodes, x);
		} else {
			return damaged(r, "has a line that this version does not know");
		}
	}
	if (p->segment < 0 || declared != (long long)p->nvalues)
		return damaged(r, "describes no program, or not all of it");
	if (!sort_names(r->a, p))
		return damaged(r, "has two values of one name");
	r->program[p->segment] = p;
	return TT_OK;
}

static tt_status read_cell(reader *r, const uint8_t *p, size_t n)
{
	tt_hashes_cell c = { .session = r->f->nsessions };
	if (n < sizeof c.head)
		return damaged(r, "is too short");
	memcpy(&c.head, p, sizeof c.head);
	if (c.head.segment < 0 || c.head.segment >= TT_HASHES_NSEGS || c.head.step < 0 || c.head.index < 0)
		return damaged(r, "is of no known segment or step");
	c.program = r->program[c.head.segment];
	if (!c.program || c.head.n != c.program->nvalues || (n - sizeof c.head) / sizeof(uint64_t) != (size_t)c.head.n || (n - sizeof c.head) % sizeof(uint64_t))
		return damaged(r, "does not have the values of its program");
	const tt_hashes_cell *last = &r->last[c.head.segment];
	bool same_step = last->session == c.session && last->head.step == c.head.step;
	if (c.head.index != (same_step ? last->head.index + 1 : 0))
		return damaged(r, "is not the next run of its program");
	r->last[c.head.segment] = c;
	c.hash = (const uint64_t *)(const void *)(p + sizeof c.head);
	TT_PUSH(r->a, r->f->cells, r->f->ncells, r->f->cap_cells, c);
	return TT_OK;
}

static tt_status read_records(reader *r)
{
	tt_hashes_file *f = r->f;
	const uint8_t *p = f->map.p;
	int64_t n = (int64_t)f->map.n;
	if (memcmp(p, TT_HASHES_MAGIC, (size_t)TT_MIN(n, (int64_t)MAGIC_BYTES)))
		TT_FAIL(TT_ERR_FORMAT, "%s: is no file of hashes (they are written with debug.record_hashes)", f->path);
	f->cut = n < MAGIC_BYTES;
	for (r->at = MAGIC_BYTES; r->at < n && !f->cut;) {
		tt_hashes_record h;
		int64_t left = n - r->at - (int64_t)sizeof h;
		if ((f->cut = left < 0))
			break;
		memcpy(&h, p + r->at, sizeof h);
		if (h.head_check != tt_hash64(&h, 2 * sizeof(uint32_t), 0))
			return damaged(r, "is not what was written");
		if ((f->cut = tt_round_up(h.n, 8) > left))
			break;
		const uint8_t *payload = p + r->at + sizeof h;
		if (h.check != tt_hash64(payload, (size_t)tt_round_up(h.n, 8), h.kind))
			return damaged(r, "is not what was written");
		if (h.kind == TT_HASHES_SETTINGS) {
			f->nsessions++;
			f->settings = tt_arena_strndup(r->a, (const char *)payload, h.n);
		} else if (h.kind == TT_HASHES_PROGRAM) {
			TT_TRY(read_program(r, (const char *)payload, h.n));
		} else if (h.kind == TT_HASHES_CELL) {
			TT_TRY(read_cell(r, payload, h.n));
		} else {
			return damaged(r, "is of a kind that this version does not know");
		}
		r->at += (int64_t)sizeof h + tt_round_up(h.n, 8);
	}
	f->cut_at = f->cut ? TT_MIN(r->at, n) : -1;
	return TT_OK;
}

/* A resumed run computes steps again that it had computed before it was killed: only the later ones led to what followed. So does one that
 * goes back within a session. */
static void drop_replaced(tt_hashes_file *f)
{
	int64_t later = INT64_MAX; /* least step of what comes after the stretch of rising steps that the cell is in */
	int64_t kept = f->ncells;
	tt_hashes_cell next = { .session = f->nsessions, .head = { .step = INT64_MAX } };
	for (int64_t i = f->ncells - 1; i >= 0; i--) {
		tt_hashes_cell c = f->cells[i];
		if (c.session != next.session || c.head.step > next.head.step)
			later = TT_MIN(later, next.head.step);
		if (c.head.step < later)
			f->cells[--kept] = c;
		next = c;
	}
	f->ncells -= kept;
	if (kept) /* there may be no array */
		f->cells += kept;
}

tt_status tt_hashes_read(tt_arena *a, const char *path, tt_hashes_file *out)
{
	tt_hashes_file f = { .path = path, .settings = "" };
	struct stat st;
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		f.path = tt_arena_printf(a, "%s%shashes.bin", path, path[0] && path[strlen(path) - 1] == '/' ? "" : "/");
		if (stat(f.path, &st) != 0)
			TT_FAIL(TT_ERR_IO, "%s: has no hashes.bin (a run's folder is its job.dump_folder; the file is written with debug.record_hashes)", path);
	}
	TT_TRY(tt_map_open(f.path, &f.map));
	reader r = { .a = a, .f = &f };
	for (int i = 0; i < TT_HASHES_NSEGS; i++)
		r.last[i].session = -1;
	tt_status s = read_records(&r);
	if (s != TT_OK) {
		tt_map_close(&f.map);
		return tt_error_crumb(s, __FILE__, __LINE__);
	}
	drop_replaced(&f);
	*out = f;
	return TT_OK;
}

void tt_hashes_file_close(tt_hashes_file *f) { tt_map_close(&f->map); }
