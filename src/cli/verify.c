/* verify.c: `titan verify`: meshes against one rank. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/temp.h"
#include "train/verify.h"

static const char *const short_names[TT_RUN_AXES] = { "dp_replicate", "dp_shard", "cp", "tp" };

static int ranks_of(const int *size)
{
	int n = 1;
	for (int i = 0; i < TT_RUN_AXES; i++)
		n *= size[i];
	return n;
}

/* What became of a mesh: worse ones behind. */
typedef enum verdict { PROVEN, ILLEGAL, REFUSED, FAILED, DIFFERS, VERDICTS } verdict;
static verdict verdict_of(const tt_verify_mesh *m)
{
	return m->illegal ? ILLEGAL : !m->finding ? PROVEN : tt_verify_refused(m) ? REFUSED : m->error ? FAILED : DIFFERS;
}

static bool same_mesh(const tt_verify_mesh *x, const tt_verify_mesh *y)
{
	bool cp = x->size[TT_CP] > 1;
	return !memcmp(x->size, y->size, sizeof x->size) && x->sp == y->sp && (!cp || (x->cp_method == y->cp_method && x->cp_balance == y->cp_balance));
}

/* Meshes by what became of them in all their runs. */
typedef struct counts { int64_t of[VERDICTS], runs; } counts;
static counts count(const tt_verify_result *r)
{
	counts c = { .runs = r->n };
	for (int64_t i = 0; i < r->n; i++) {
		bool first = true;
		verdict worst = verdict_of(&r->meshes[i]);
		for (int64_t k = 0; k < r->n; k++)
			if (same_mesh(&r->meshes[i], &r->meshes[k])) {
				first &= k >= i;
				worst = TT_MAX(worst, verdict_of(&r->meshes[k]));
			}
		c.of[worst] += first;
	}
	return c;
}

static void seen(void *ctx, const tt_verify_mesh *m)
{
	static const char *const gathered[] = { "", ", all gathered again", ", gathered once" };
	static const char *const words[] = { [PROVEN] = "equal", [REFUSED] = "REFUSED", [FAILED] = "FAILED", [DIFFERS] = "DIFFERS" };
	if (m->illegal) /* told at the end, by reason */
		return;
	printf("  %-7s %-44s microbatches of %lld row%s%s%s%s, %.2f s%s%s%s%s\n", words[verdict_of(m)], tt_verify_mesh_name(ctx, m), (long long)m->rows, m->rows == 1 ? "" : "s",
	       m->recompute ? ", recomputed" : "", m->size[TT_DP_SHARD] * m->size[TT_CP] > 1 ? gathered[m->gathered] : "", m->in_turn ? ", no overlap" : "", m->seconds, m->finding ? "\n          " : "",
	       m->error ? tt_status_name(m->error) : "", m->error ? ": " : "", m->finding ? m->finding : "");
	fflush(stdout);
}

static tt_status number(const char *flag, const char *text, int least, int most, int *out)
{
	char *end;
	long v = strtol(text, &end, 10);
	if (end == text || *end || v < least || v > most)
		TT_FAIL(TT_ERR_USAGE, "%s=%s: a number from %d to %d is needed", flag, text, least, most);
	*out = (int)v;
	return TT_OK;
}

static const char *trimmed(tt_arena *a, const char *s, size_t n)
{
	for (; n && *s == ' '; n--)
		s++;
	while (n && s[n - 1] == ' ')
		n--;
	return tt_arena_strndup(a, s, n);
}

/* The number of `word` among `n`; -1: it is none. */
static int word_of(const char *word, const char *(*name)(int i), int n)
{
	int i = 0;
	while (i < n && strcmp(word, name(i)))
		i++;
	return i < n ? i : -1;
}
static const char *method_name(int i) { return tt_cp_method_name((tt_cp_method)i); }
static const char *balance_name(int i) { return tt_balance_name((tt_balance)i); }

/* "dp_replicate=2,tp=2,sp", "cp=4,ring,cost"; `like`: what is not said. */
static tt_status parse_mesh(tt_arena *a, const char *flag, const char *text, const tt_run_mesh *like, tt_verify_mesh *m)
{
	enum { SP = TT_RUN_AXES, METHOD, BALANCE, PARTS }; /* what a part may say beside a degree */
	bool said[PARTS] = { false };
	*m = (tt_verify_mesh){ .size = { 1, 1, 1, 1 }, .cp_method = like->cp_method, .cp_balance = like->cp_balance };
	m->sp = like->sp;
	for (const char *at = text; *at;) {
		size_t len = strcspn(at, ",");
		const char *part = trimmed(a, at, len), *eq = strchr(part, '=');
		int method = word_of(part, method_name, TT_CP_RING + 1), balance = word_of(part, balance_name, TT_BALANCE_NONE + 1), ax = 0;
		at += len + (at[len] == ',');
		while (ax < TT_RUN_AXES && !(eq && strlen(short_names[ax]) == (size_t)(eq - part) && !strncmp(short_names[ax], part, (size_t)(eq - part))))
			ax++;
		bool sp = !strcmp(part, "sp"), no_sp = !strcmp(part, "nosp");
		int what = sp || no_sp ? SP : method >= 0 ? METHOD : balance >= 0 ? BALANCE : ax < TT_RUN_AXES ? ax : -1;
		if (what < 0)
			TT_FAIL(TT_ERR_USAGE, "%s: \"%s\" is no AXIS=DEGREE; axes are dp_replicate, dp_shard, cp, tp (\"sp\" or \"nosp\" beside tp; gather, head_swap or ring and headtail, "
					      "cost or none beside cp)", flag, part);
		if (said[what])
			TT_FAIL(TT_ERR_USAGE, "%s: \"%s\": \"%s\" is one too many, that was said before", flag, text, part);
		said[what] = true;
		if (what == SP)
			m->sp = sp;
		else if (what == METHOD)
			m->cp_method = (tt_cp_method)method;
		else if (what == BALANCE)
			m->cp_balance = (tt_balance)balance;
		else
			TT_TRY(number(tt_arena_printf(a, "%s: %s", flag, short_names[ax]), eq + 1, 1, TT_VERIFY_RANKS, &m->size[ax]));
	}
	int n = ranks_of(m->size);
	if (n < 2)
		TT_FAIL(TT_ERR_USAGE, "%s: \"%s\" has one rank, there is nothing to compare it with", flag, text);
	if (n > TT_VERIFY_RANKS)
		TT_FAIL(TT_ERR_USAGE, "%s: \"%s\" has %d ranks, at most %d", flag, text, n, TT_VERIFY_RANKS);
	if (said[SP] && m->size[TT_TP] == 1)
		TT_FAIL(TT_ERR_USAGE, "%s: \"%s\": sp is beside tensor parallel, and tp is 1", flag, text);
	if ((said[METHOD] || said[BALANCE]) && m->size[TT_CP] == 1)
		TT_FAIL(TT_ERR_USAGE, "%s: \"%s\": a method or a balancer is beside context parallel, and cp is 1", flag, text);
	m->sp &= m->size[TT_TP] > 1;
	return TT_OK;
}

/* Meshes separated by ";": each one row a microbatch with all kept, then two with all made again. */
static tt_status parse_meshes(tt_arena *a, const char *flag, const char *text, const tt_run_mesh *like, tt_verify_options *v)
{
	tt_verify_mesh *list = NULL, m;
	int64_t cap = 0;
	for (const char *at = text; *at;) {
		size_t len = strcspn(at, ";");
		const char *one = trimmed(a, at, len);
		at += len + (at[len] == ';');
		if (!*one)
			continue;
		TT_TRY(parse_mesh(a, flag, one, like, &m));
		bool again = false;
		for (int64_t i = 0; i < v->nlist && !again; i++)
			again = same_mesh(&list[i], &m);
		if (again)
			continue;
		v->ranks = TT_MAX(v->ranks, ranks_of(m.size));
		for (m.rows = 1; m.rows <= (v->full ? 1 : 2); m.rows++) {
			m.recompute = m.in_turn = m.rows == 2;
			m.gathered = m.rows == 2 ? TT_GATHERED_AGAIN : TT_GATHERED_BY_LAYER;
			TT_PUSH(a, list, v->nlist, cap, m);
		}
	}
	if (!list)
		TT_FAIL(TT_ERR_USAGE, "%s=%s: no mesh; \"all\", or as \"dp_shard=2,tp=2,sp; cp=4\"", flag, text);
	v->list = list;
	return TT_OK;
}

/* What the command itself reads; the rest goes to the config. */
typedef struct words {
	const char *meshes, *flag; /* and which flag said so */
	bool ranks;
	const char *backend; /* NULL: as the ranks were started */
	const char **rest;
	int n;
} words;

static const char *value_of(const char *arg, const char *flag)
{
	size_t n = strlen(flag);
	return !strncmp(arg, flag, n) && arg[n] == '=' ? arg + n + 1 : NULL;
}

static tt_status read_words(tt_arena *a, int argc, const char *const *argv, tt_verify_options *v, words *w)
{
	*w = (words){ .rest = TT_NEWN(a, const char *, argc + 1) };
	for (int i = 0; i < argc; i++) {
		const char *arg = argv[i], *x;
		if ((x = value_of(arg, "--ranks")) || (x = value_of(arg, "--hardware.ranks"))) {
			w->ranks = true;
			TT_TRY(number("--ranks", x, 2, TT_VERIFY_RANKS, &v->ranks));
		} else if ((x = value_of(arg, "--steps"))) {
			TT_TRY(number("--steps", x, 1, 1000, &v->steps));
		} else if ((x = value_of(arg, "--mesh")) || (x = value_of(arg, "--meshes"))) {
			if (w->meshes)
				TT_FAIL(TT_ERR_USAGE, "%s: meshes are given twice: all of them go into one --meshes, separated by \";\"", arg);
			w->meshes = x;
			w->flag = arg[6] == '=' ? "--mesh" : "--meshes";
		} else if ((x = value_of(arg, "--numerics")) || (x = value_of(arg, "--debug.numerics"))) {
			if (strcmp(x, "fast") && strcmp(x, "exact"))
				TT_FAIL(TT_ERR_USAGE, "--numerics=%s: exact (all bits of training; the default) or fast (the forward's)", x);
			v->fast = !strcmp(x, "fast");
		} else if ((x = value_of(arg, "--backend"))) {
			if (strcmp(x, "threads") && strcmp(x, "mpi"))
				TT_FAIL(TT_ERR_USAGE, "--backend=%s: there are threads and mpi", x);
			w->backend = x;
		} else if (!strcmp(arg, "--full")) {
			v->full = true;
		} else {
			w->rest[w->n++] = arg;
		}
	}
	if (w->meshes && w->ranks && strcmp(w->meshes, "all"))
		TT_FAIL(TT_ERR_USAGE, "%s names meshes and --ranks bounds them: one of the two", w->flag);
	return TT_OK;
}

static void print_model(const tt_run_options *o, const tt_verify_options *v, const tt_llama_config *m)
{
	const tt_llama_config *c = &o->model;
	printf("model: %lld layers, %lld heads, %lld kv heads of %lld, width %lld, hidden %lld, vocabulary %lld%s%s%s, %s", (long long)m->num_hidden_layers,
	       (long long)m->num_attention_heads, (long long)m->num_key_value_heads, (long long)m->head_dim, (long long)m->hidden_size, (long long)m->intermediate_size,
	       (long long)m->vocab_size, m->tie_word_embeddings ? ", tied" : "", m->attention_bias || m->mlp_bias ? ", biases" : "", m->sliding_window ? ", a window" : "",
	       tt_dtype_name(o->compute));
	if (v->full)
		printf(", as the config has it\n");
	else
		printf(";\n  the config's %lld layers, %lld heads, %lld kv heads of %lld, width %lld, hidden %lld, vocabulary %lld made small: every degree up to %d divides each as before\n",
		       (long long)c->num_hidden_layers, (long long)c->num_attention_heads, (long long)c->num_key_value_heads, (long long)c->head_dim, (long long)c->hidden_size,
		       (long long)c->intermediate_size, (long long)c->vocab_size, v->ranks);
}

/* Meshes that cannot be, by reason. */
static void print_illegal(tt_arena *a, const tt_verify_result *r)
{
	for (int64_t i = 0; i < r->n; i++) {
		const char *why = r->meshes[i].illegal;
		bool told = !why;
		for (int64_t k = 0; k < i && !told; k++)
			told = r->meshes[k].illegal && !strcmp(r->meshes[k].illegal, why);
		if (told)
			continue;
		printf("  not legal: %s\n            ", why);
		int n = 0;
		for (int64_t k = i; k < r->n; k++)
			if (r->meshes[k].illegal && !strcmp(r->meshes[k].illegal, why))
				printf("%s%s", n++ ? "; " : "", tt_verify_mesh_name(a, &r->meshes[k]));
		printf("\n");
	}
}

typedef struct work {
	tt_arena *a;
	const words *w;
	const tt_run_options *o;
	tt_verify_options *v;
	bool all; /* every mesh */
	const tt_cli_temp *saves;
} work;

static void print_result(const work *k, const tt_verify_result *r, const counts *c, double seconds)
{
	const tt_verify_options *v = k->v;
	long long n = (long long)c->of[PROVEN];
	print_illegal(k->a, r);
	if (k->all)
		printf("  not run: meshes of more than %d ranks%s\n", v->ranks, v->ranks < TT_VERIFY_RANKS ? tt_arena_printf(k->a, " (--ranks=%d)", TT_VERIFY_RANKS) : "");
	print_model(k->o, v, &r->model);
	if (!n)
		printf("no mesh is proven");
	else
		printf("%lld mesh%s proven%s: ", n, n == 1 ? "" : "es", r->proven > n ? tt_arena_printf(k->a, ", in %lld runs", (long long)r->proven) : "");
	if (n && v->fast)
		printf("each token's hidden states and loss have one rank's bits (gradients are not promised in fast numerics)");
	else if (n)
		printf("after each step the loss, the gradient norm and all %lld numbers of %lld tensors have one rank's bits%s",
		       (long long)r->numbers, (long long)r->states, v->full ? "" : ", and in step 1 every value");
	printf("; %lld differ%s", (long long)c->of[DIFFERS], c->of[DIFFERS] == 1 ? "s" : "");
	if (c->of[FAILED])
		printf("; %lld failed", (long long)c->of[FAILED]);
	if (c->of[REFUSED])
		printf("; %lld %s refused", (long long)c->of[REFUSED], c->of[REFUSED] == 1 ? "is" : "are");
	printf("; %lld %s not legal; %.1f s\n", (long long)c->of[ILLEGAL], c->of[ILLEGAL] == 1 ? "is" : "are", seconds);
	fflush(stdout);
}

/* The exit's text: what differs comes before what was not compared. */
static tt_status judge(const work *k, const tt_verify_result *r, const counts *c)
{
	if (r->stopped)
		TT_FAIL(TT_ERR_STOP, "stopped by signal %d after %lld of %lld runs of meshes", r->stopped, (long long)r->n, (long long)r->listed);
	long long differ = (long long)c->of[DIFFERS], open = (long long)(c->of[FAILED] + c->of[REFUSED]);
	if (differ)
		TT_FAIL(TT_ERR_NUMERIC, "%lld mesh%s not one rank%s", differ, differ == 1 ? " is" : "es are", open ? tt_arena_printf(k->a, ", and %lld more could not be compared", open) : "");
	for (int64_t i = 0; i < r->n; i++) {
		const tt_verify_mesh *m = &r->meshes[i];
		if (m->error)
			TT_FAIL(m->error, "%lld mesh%s could not be compared, %s%s: %s", open, open == 1 ? "" : "es", open == 1 ? "" : "the first is ", tt_verify_mesh_name(k->a, m), m->finding);
	}
	for (int64_t i = 0; i < r->n && !k->all; i++)
		if (r->meshes[i].illegal)
			TT_FAIL(TT_ERR_USAGE, "%s: %s: %s", k->w->flag, tt_verify_mesh_name(k->a, &r->meshes[i]), r->meshes[i].illegal);
	if (!c->of[PROVEN])
		TT_FAIL(TT_ERR_USAGE, "nothing was compared: no mesh of 2 to %d ranks is legal (--ranks)", k->v->ranks);
	return TT_OK;
}

/* `c`: NULL where ranks are threads that tt_verify makes; else this process's, of which the first prints. */
static tt_status prove(tt_comm *c, void *ctx)
{
	work *k = ctx;
	tt_verify_options *v = k->v;
	bool prints = !c || tt_comm_rank(c) == 0;
	tt_verify_result r;
	double t0 = tt_now();
	if (prints)
		tt_cli_stop_by_signal(TT_ENDS_MESH);
	v->comm = c;
	v->folder = k->saves->folder;
	v->stop = tt_cli_stop();
	if (prints)
		printf("one rank against %s, %s, ranks as %s\n", k->all ? tt_arena_printf(k->a, "every mesh of 2 to %d ranks", v->ranks) : k->w->meshes,
		       v->fast ? "fast numerics: the forward of one step" :
				 tt_arena_printf(k->a, "exact numerics: %d steps from the start, a save, and 2 steps from the save of the mesh before", v->steps),
		       c ? "processes of an MPI job" : "threads");
	fflush(stdout);
	TT_TRY(tt_verify(k->a, k->o, v, prints ? seen : NULL, k->a, &r));
	counts n = count(&r);
	if (prints)
		print_result(k, &r, &n, tt_now() - t0);
	return judge(k, &r, &n);
}

/* Do ranks come from where --backend says? */
static tt_status check_backend(const words *w, const tt_comm_launch *l)
{
	if (w->backend && !strcmp(w->backend, "mpi") && l->size == 1)
		TT_FAIL(TT_ERR_USAGE, "--backend=mpi needs a launcher: mpiexec -n 4 titan verify CONFIG --backend=mpi");
	if (w->backend && !strcmp(w->backend, "threads") && l->size > 1)
		TT_FAIL(TT_ERR_USAGE, "--backend=threads, and %s started %d processes", l->by, l->size);
	return TT_OK;
}

/* Degrees on the command line were meant to matter. */
static void say_degrees(const tt_config *cfg)
{
	static const char *const keys[] = { "parallelism.data_parallel_replicate_degree", "parallelism.data_parallel_shard_degree", "parallelism.context_parallel_degree",
					    "parallelism.tensor_parallel_degree" };
	for (int i = 0; i < TT_COUNT(keys); i++) {
		const char *at = tt_config_source(cfg, keys[i]);
		if (at && !strncmp(at, "--", 2))
			tt_log(TT_LOG_WARN, "%s: has no effect: titan verify takes every mesh, or those of --mesh and --meshes (--mesh=tp=2)", at);
	}
}

static tt_status run(tt_arena *a, int argc, const char *const *argv)
{
	tt_comm_launch l;
	TT_TRY(tt_comm_launched(&l));
	tt_verify_options v = { .ranks = l.size > 1 ? l.size : 8, .steps = 3 };
	words w;
	TT_TRY(read_words(a, argc, argv, &v, &w));
	TT_TRY(check_backend(&w, &l));
	tt_config *cfg;
	tt_run_options o;
	TT_TRY(tt_cli_config(a, w.n, w.rest, NULL, &cfg));
	if (l.rank == 0)
		say_degrees(cfg);
	tt_config own = tt_config_to_verify(cfg, v.full);
	TT_TRY(tt_run_options_from_config(a, &own, &o));
	bool all = !w.meshes || !strcmp(w.meshes, "all");
	tt_run_mesh like = { .sp = cfg->parallelism.enable_sequence_parallel, .cp_method = o.mesh.cp_method, .cp_balance = o.mesh.cp_balance };
	v.methods = all;
	if (!all)
		TT_TRY(parse_meshes(a, w.flag, w.meshes, &like, &v));
	if (v.ranks > l.size && l.size > 1)
		TT_FAIL(TT_ERR_USAGE, "%s asks for %d ranks, and %s started %d processes", all ? "--ranks" : w.flag, v.ranks, l.by, l.size);
	tt_cli_temp saves;
	work k = { a, &w, &o, &v, all, &saves };
	TT_TRY(tt_cli_temp_open(a, "titan-verify", &saves));
	if (l.size > 1)
		tt_cli_stop_by_signal(TT_ENDS_SILENT); /* MPI_Init may take seconds; then who prints says how it ends */
	tt_status s = l.size == 1 ? prove(NULL, &k) : tt_comm_mpi(&(tt_comm_options){ .init_timeout_s = 300, .asked = tt_cli_stop(), .spin_us = 20 }, prove, &k);
	tt_cli_temp_close(&saves);
	return s;
}

tt_status tt_cmd_verify(int argc, const char *const *argv)
{
	tt_arena *a = tt_arena_create("verify");
	tt_status s = run(a, argc, argv);
	tt_arena_destroy(a);
	return s;
}
