/* Runs of the binary from outside, for suites that start, stop and damage them: small texts and a small config, processes, what they leave. */
#ifndef TT_RUNS_H
#define TT_RUNS_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/safetensors.h"
#include "test.h"
#include "train/train.h"

enum { STEPS = 12, TIMEOUT = 50, BY_SIGNAL = 1000 }; /* exit "codes" from BY_SIGNAL up: the signal's number */

/* ---- texts and configs ----------------------------------------------------------------------------------------------------------------- */

static inline uint64_t draw(uint64_t *s) { return tt_mix64(*s += 0x9e3779b97f4a7c15u); }

static inline void put(tt_test *t, const char *path, const char *text, size_t n)
{
	const char *full = tt_test_path(t, path);
	char *folder = tt_arena_strdup(t->arena, full);
	*strrchr(folder, '/') = 0;
	TT_CHECK_OK(t, tt_mkdirs(folder));
	TT_CHECK_OK(t, tt_file_write(full, text, n));
}

/* Documents of some ten bytes, an epoch of them in the steps of a run, one all 'Z'; a longer one is held out. */
static inline void make_texts(tt_test *t)
{
	static const char *const words[] = { "the ", "model ", "learns ", "a ", "rule, ", "then ", "another.\n", "seven " };
	uint64_t s = 5;
	for (int d = 0; d < 14; d++) {
		tt_buf b = { 0 };
		size_t want = d == 13 ? 700 : 30 + draw(&s) % 50;
		while (b.n < want)
			tt_buf_str(&b, words[draw(&s) % TT_COUNT(words)]);
		if (d == 12)
			memset(b.s, 'Z', b.n);
		put(t, d == 13 ? "held/out.txt" : tt_arena_printf(t->arena, "text/%02d.txt", d), b.s, b.n);
		tt_buf_fini(&b);
	}
}

/* Two microbatches a step, two threads, a schedule with warmup and decay; checkpoints that hold everything. */
static inline void make_config(tt_test *t)
{
	const char *tmp = tt_test_tmp(t);
	const char *text = tt_arena_printf(t->arena,
		"[model]\nflavor = \"debugmodel\"\nvocab_size = 256\nhidden_size = 32\nnum_hidden_layers = 2\nnum_attention_heads = 2\n"
		"num_key_value_heads = 1\nintermediate_size = 48\ntie_word_embeddings = false\n"
		"[training]\nsteps = %d\ntokens_per_step = 64\ntokens_per_microbatch = 32\ncontext_length = 16\n"
		"[optimizer]\nlr = 3e-3\n[lr_scheduler]\ntotal_steps = %d\nwarmup_steps = 3\ndecay_ratio = 0.5\ndecay_type = \"cosine\"\nmin_lr_factor = 0.1\n"
		"[checkpoint]\nenable = true\ninterval = 1000000\nlast_save_model_only = false\n"
		"[data]\npaths = [\"%s/text\"]\n[validation]\nenable = true\nfreq = 1\nsteps = 1\npaths = [\"%s/held\"]\n"
		"[hardware]\nthreads = 2\n[debug]\nisa = \"%s\"\n", STEPS, STEPS, tmp, tmp, t->isa[0] ? t->isa : "auto");
	put(t, "run.toml", text, strlen(text));
}

static inline void set_up(tt_test *t)
{
	make_texts(t);
	make_config(t);
}

/* ---- processes ------------------------------------------------------------------------------------------------------------------------- */

typedef struct child {
	tt_test *t;
	const char *name, *flags;
	pid_t pid; /* 0: it has ended */
	int code;
} child;

/* Starts `titan train` with its dump folder NAME and what it says in NAME.log. `flags` are separated by blanks. */
static inline child start(tt_test *t, const char *name, const char *flags)
{
	char *argv[40];
	int n = 0;
	argv[n++] = "build/titan";
	argv[n++] = "train";
	argv[n++] = (char *)tt_test_path(t, "run.toml");
	argv[n++] = tt_arena_printf(t->arena, "--job.dump_folder=%s/%s", tt_test_tmp(t), name);
	char *rest = NULL;
	for (char *f = strtok_r(tt_arena_strdup(t->arena, flags), " ", &rest); f && n < TT_COUNT(argv) - 1; f = strtok_r(NULL, " ", &rest))
		argv[n++] = f;
	argv[n] = NULL;
	const char *log = tt_test_path(t, tt_arena_printf(t->arena, "%s.log", name));
	unlink(log); /* what the last one said is not waited for */
	child c = { .t = t, .name = name, .flags = flags };
	c.pid = fork();
	if (c.pid == 0) {
		int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
		if (fd >= 0 && dup2(fd, 1) == 1 && dup2(fd, 2) == 2)
			execv(argv[0], argv);
		_exit(127);
	}
	TT_CHECK_MSG(t, c.pid > 0, "fork: %m");
	return c;
}

static inline bool ended(child *c)
{
	int status;
	if (c->pid > 0 && waitpid(c->pid, &status, WNOHANG) == c->pid) {
		c->pid = 0;
		c->code = WIFEXITED(status) ? WEXITSTATUS(status) : BY_SIGNAL + WTERMSIG(status);
	}
	return c->pid <= 0;
}

static inline void tell(child *c, int number)
{
	if (!ended(c))
		kill(c->pid, number);
}

static inline void rest(double seconds)
{
	struct timespec ts = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };
	nanosleep(&ts, NULL);
}

/* Waits for the end; the exit code. */
static inline int finish(child *c)
{
	for (double t0 = tt_now(); !ended(c); rest(0.001))
		if (tt_now() - t0 > TIMEOUT) {
			tell(c, SIGKILL);
			TT_CHECK_MSG(c->t, false, "%s %s: still runs after %d s", c->name, c->flags, TIMEOUT);
			t0 = tt_now();
		}
	return c->code;
}

static inline const char *read_text(tt_test *t, const char *path)
{
	char *s;
	size_t n;
	struct stat st;
	const char *full = tt_test_path(t, path);
	if (stat(full, &st) || !TT_CHECK_OK(t, tt_file_read(t->arena, full, &s, &n)))
		return tt_arena_strdup(t->arena, "");
	return s;
}

static inline const char *said(tt_test *t, const char *name) { return read_text(t, tt_arena_printf(t->arena, "%s.log", name)); }

/* Waits until `when` holds; false: the child has ended before. */
static inline bool await(child *c, bool (*when)(child *c))
{
	tt_mark m = tt_arena_push(c->t->arena);
	bool is = false;
	for (double t0 = tt_now(); !(is = when(c)) && !ended(c) && tt_now() - t0 < TIMEOUT; rest(0.0002))
		tt_arena_pop(c->t->arena, m);
	return is;
}

/* A whole run that must end with `code` and, if `part` is given, say that. */
static inline bool run_says(tt_test *t, const char *name, const char *flags, int code, const char *part, int line)
{
	child c = start(t, name, flags);
	int got = finish(&c);
	const char *log = said(t, name);
	return TT_CHECK_MSG(t, got == code && (!part || strstr(log, part)), "line %d: %s %s: exit code %d, want %d and \"%s\" in:\n%s", line, name, flags, got, code,
			    part ? part : "", log);
}
#define RUN(t, name, flags) run_says((t), (name), (flags), 0, NULL, __LINE__)
#define RUN_SAYS(t, name, flags, code, part) run_says((t), (name), (flags), (code), (part), __LINE__)

/* ---- what is left --------------------------------------------------------------------------------------------------------------------- */

static inline const char *step_path(tt_test *t, const char *name, int64_t step, const char *file)
{
	return tt_arena_printf(t->arena, "%s/checkpoint/step-%08lld%s%s", name, (long long)step, *file ? "/" : "", file);
}

static inline bool there(tt_test *t, const char *path) { return access(tt_test_path(t, path), F_OK) == 0; }

/* Names in NAME/checkpoint that begin with `prefix`. */
static inline int count_names(tt_test *t, const char *name, const char *prefix)
{
	DIR *d = opendir(tt_test_path(t, tt_arena_printf(t->arena, "%s/checkpoint", name)));
	int n = 0;
	for (struct dirent *e; d && (e = readdir(d));)
		n += !strncmp(e->d_name, prefix, strlen(prefix));
	if (d)
		closedir(d);
	return n;
}

/* Step that `latest` names; -1: there is none. */
static inline int64_t latest(tt_test *t, const char *name)
{
	const char *s = read_text(t, tt_arena_printf(t->arena, "%s/checkpoint/latest", name));
	return !strncmp(s, "step-", 5) ? strtoll(s + 5, NULL, 10) : -1;
}

static inline bool same_file(tt_test *t, const char *a, const char *b)
{
	char *x = "", *y = "";
	size_t nx = 0, ny = 0;
	return TT_CHECK_OK(t, tt_file_read(t->arena, tt_test_path(t, a), &x, &nx)) && TT_CHECK_OK(t, tt_file_read(t->arena, tt_test_path(t, b), &y, &ny)) &&
	       TT_CHECK_MSG(t, nx == ny && !memcmp(x, y, nx), "%s and %s differ", a, b);
}

/* A number of train_state.json. */
static inline int64_t state_number(tt_test *t, const char *name, int64_t step, const char *key)
{
	json_t *o = json_loads(read_text(t, step_path(t, name, step, "train_state.json")), 0, NULL);
	int64_t v = o ? json_integer_value(json_object_get(o, key)) : -1;
	json_decref(o);
	return v;
}

/* The text of a value of a JSON line, as it stands there. */
static inline const char *value_text(tt_arena *a, const char *line, const char *key)
{
	const char *p = strstr(line, tt_arena_printf(a, "\"%s\":", key));
	if (!p)
		return "-";
	p += strlen(key) + 3;
	return tt_arena_strndup(a, p, strcspn(p, ",}\n"));
}

typedef struct history { const char *text; int64_t steps; } history; /* steps: of the last step line */

/* metrics.jsonl as one line per step and validation, with what must be the same in any run. Each step must be there once, in order, and
 * each line be JSON. */
static inline history steps_of(tt_test *t, const char *name)
{
	tt_buf b = { 0 };
	int64_t last = 0;
	char *more = NULL;
	for (char *line = strtok_r(tt_arena_strdup(t->arena, read_text(t, tt_arena_printf(t->arena, "%s/metrics.jsonl", name))), "\n", &more); line;
	     line = strtok_r(NULL, "\n", &more)) {
		json_t *o = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
		const char *type = json_string_value(json_object_get(o, "type"));
		int64_t step = json_integer_value(json_object_get(o, "step"));
		if (!TT_CHECK_MSG(t, o && type, "%s: not a line of metrics: %s", name, line))
			break;
		if (!strcmp(type, "step")) {
			TT_CHECK_MSG(t, step == last + 1, "%s: step %lld comes after %lld", name, (long long)step, (long long)last);
			last = step;
		}
		if (strcmp(type, "event"))
			tt_buf_printf(&b, "%s %lld loss %s norm %s lr %s tokens %s skipped %s\n", type, (long long)step, value_text(t->arena, line, "loss"),
				      value_text(t->arena, line, "grad_norm"), value_text(t->arena, line, "lr"),
				      value_text(t->arena, line, *type == 's' ? "tokens_seen" : "tokens"), value_text(t->arena, line, "skipped"));
		json_decref(o);
	}
	history h = { tt_arena_strdup(t->arena, b.s ? b.s : ""), last };
	tt_buf_fini(&b);
	return h;
}

/* Both runs ended at `step` with the same tensors, counters and history. */
static inline bool same_end(tt_test *t, const char *a, const char *b, int64_t step)
{
	static const char *const files[] = { "model.safetensors", "optimizer.safetensors" }, *const keys[] = { "step", "updates", "skips", "tokens_seen" };
	bool ok = TT_CHECK_INT(t, latest(t, a), step) && TT_CHECK_INT(t, latest(t, b), step);
	for (int i = 0; i < TT_COUNT(files); i++)
		ok = ok && same_file(t, step_path(t, a, step, files[i]), step_path(t, b, step, files[i]));
	for (int i = 0; i < TT_COUNT(keys); i++)
		ok = ok && TT_CHECK_INT(t, state_number(t, a, step, keys[i]), state_number(t, b, step, keys[i]));
	return ok && TT_CHECK_STR(t, steps_of(t, a).text, steps_of(t, b).text);
}

static inline bool copy_file(tt_test *t, const char *from, const char *to)
{
	char *s;
	size_t n;
	if (!TT_CHECK_OK(t, tt_file_read(t->arena, tt_test_path(t, from), &s, &n)))
		return false;
	put(t, to, s, n);
	return true;
}

/* A folder with all below it. */
static inline void copy_folder(tt_test *t, const char *from, const char *to)
{
	DIR *d = opendir(tt_test_path(t, from));
	for (struct dirent *e; d && (e = readdir(d));) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		const char *x = tt_arena_printf(t->arena, "%s/%s", from, e->d_name), *y = tt_arena_printf(t->arena, "%s/%s", to, e->d_name);
		if (e->d_type == DT_DIR)
			copy_folder(t, x, y);
		else
			copy_file(t, x, y);
	}
	if (d)
		closedir(d);
}

static inline void remove_tree(tt_test *t, const char *path)
{
	const char *full = tt_test_path(t, path);
	DIR *d = opendir(full);
	for (struct dirent *e; d && (e = readdir(d));)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			remove_tree(t, tt_arena_printf(t->arena, "%s/%s", path, e->d_name));
	if (d)
		closedir(d);
	(void)remove(full);
}

/* ---- moments of a run -------------------------------------------------------------------------------------------------------------------- */

static inline bool first_step(child *c) { return strstr(said(c->t, c->name), "start-up:") != NULL; }
static inline bool has_line(child *c, const char *type)
{
	return strstr(read_text(c->t, tt_arena_printf(c->t->arena, "%s/metrics.jsonl", c->name)), tt_arena_printf(c->t->arena, "\"type\":\"%s\"", type)) != NULL;
}
static inline bool stepped(child *c) { return has_line(c, "step"); }
static inline bool stepping(child *c) { return has_line(c, "validation"); }

/* Files of this process and its children end at `bytes`; what writes on gets an error instead of the signal. */
static inline void limit_files(rlim_t bytes)
{
	signal(SIGXFSZ, SIG_IGN);
	struct rlimit r = { bytes, RLIM_INFINITY };
	setrlimit(RLIMIT_FSIZE, &r);
}

#endif
