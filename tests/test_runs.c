/* test_runs.c: runs as they are started, stopped, killed and damaged: the binary itself, from outside.
 *
 * What must hold: a run that was stopped any way at any moment and started again ends with the bytes that a run without a stop ends with.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <sys/mount.h>

#include "runs.h"

/* ---- continuation ---------------------------------------------------------------------------------------------------------------------- */

static void continued_with(tt_test *t, const char *flags, const char *a, const char *b)
{
	static const int stops[] = { 1, 2, 5, 6, 9, STEPS };
	RUN(t, a, flags);
	for (int i = 0; i < TT_COUNT(stops); i++)
		RUN(t, b, tt_arena_printf(t->arena, "%s --training.steps=%d", flags, stops[i]));
	same_end(t, a, b, STEPS);
}

static void continuation(tt_test *t)
{
	set_up(t);
	continued_with(t, "--checkpoint.interval=3", "straight", "stopped");
	/* Other threads and other saving: the same again. */
	RUN(t, "other", "--threads=1 --checkpoint.async_mode=disabled --checkpoint.interval=1");
	same_end(t, "straight", "other", STEPS);
	/* Another seed parts them: the comparison sees it. */
	RUN(t, "seed", "--debug.seed=1");
	TT_CHECK(t, strcmp(steps_of(t, "straight").text, steps_of(t, "seed").text) != 0);
}

/* Weights in which the row of the embedding that 'Z' reads is not a number: steps with the document of Zs are skipped. */
static bool make_poisoned(tt_test *t)
{
	tt_st *st;
	const tt_st_tensor *e;
	if (!RUN(t, "seed", "--training.steps=1") || !copy_file(t, step_path(t, "seed", 1, "model.safetensors"), "poisoned.safetensors") ||
	    !TT_CHECK_OK(t, tt_st_open(t->arena, tt_test_path(t, "poisoned.safetensors"), &st)))
		return false;
	bool ok = TT_CHECK_OK(t, tt_st_get(st, "model.embed_tokens.weight", &e));
	int64_t at = ok ? e->at + 'Z' * e->dim[1] * 4 : 0;
	tt_st_close(st);
	int fd = open(tt_test_path(t, "poisoned.safetensors"), O_WRONLY);
	float nan = __builtin_nanf("");
	for (int i = 0; ok && i < 32; i++)
		ok = TT_CHECK(t, pwrite(fd, &nan, 4, at + 4 * i) == 4);
	close(fd);
	return ok;
}

/* `titan ckpt WORDS` while a run removes step `gone` as it is read: a lease on the file that is read first holds its reader up. */
static int while_pruned(tt_test *t, int64_t gone, const char *words, const char **out)
{
	const char *state = tt_test_path(t, step_path(t, "run", gone, "train_state.json")), *dir = tt_test_path(t, step_path(t, "run", gone, "")), *aside = tt_test_path(t, "aside");
	signal(SIGIO, SIG_IGN);
	int lease = open(state, O_RDWR | O_CLOEXEC);
	if (lease < 0 || fcntl(lease, F_SETLEASE, F_WRLCK)) {
		close(lease);
		return -2;
	}
	const char *log = tt_test_path(t, "ckpt.log");
	pid_t pid = fork();
	if (pid == 0) {
		int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
		if (fd >= 0 && dup2(fd, 1) == 1 && dup2(fd, 2) == 2)
			execl("/bin/sh", "sh", "-c", tt_arena_printf(t->arena, "exec build/titan ckpt %s", words), NULL);
		_exit(127);
	}
	int status = -1;
	while (fcntl(lease, F_GETLEASE) == F_WRLCK && waitpid(pid, &status, WNOHANG) == 0) /* until it is read */
		rest(0.001);
	TT_CHECK_MSG(t, fcntl(lease, F_GETLEASE) != F_WRLCK && rename(dir, aside) == 0, "%s is not read", state);
	remove_tree(t, "aside");
	close(lease);
	waitpid(pid, &status, 0);
	*out = read_text(t, "ckpt.log");
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* What a run removes to make room is not damaged. */
static void pruned(tt_test *t)
{
	set_up(t);
	RUN(t, "run", "--training.steps=4 --checkpoint.interval=1 --checkpoint.keep_latest_k=0");
	const char *run = tt_test_path(t, "run/checkpoint"), *out;
	int code = while_pruned(t, 1, tt_arena_printf(t->arena, "verify %s", run), &out);
	if (code == -2)
		TT_SKIP(t, "files cannot be leased here");
	TT_CHECK_MSG(t, code == 0 && strstr(out, "step-00000001: removed while it was read") && !strstr(out, "DAMAGED") && strstr(out, "latest: step 4"), "%d: %s", code, out);
	code = while_pruned(t, 2, tt_arena_printf(t->arena, "verify %s/step-00000002", run), &out);
	TT_CHECK_MSG(t, code == 1 && strstr(out, "step-00000002: was removed while it was read") && !strstr(out, "DAMAGED"), "%d: %s", code, out);
	code = while_pruned(t, 4, tt_arena_printf(t->arena, "export %s %s", run, tt_test_path(t, "weights")), &out);
	TT_CHECK_MSG(t, code == 0 && strstr(out, "written from ") && strstr(out, "step-00000003 as"), "%d: %s", code, out);
}

/* What a killed process has left goes with the next start, also where another process has its number now. */
static void stale(tt_test *t)
{
	set_up(t);
	RUN(t, "run", "--training.steps=2");
	const char *old = tt_arena_printf(t->arena, "run/checkpoint/.tmp-latest-%d", (int)getpid()), *fresh = tt_arena_printf(t->arena, "run/checkpoint/.tmp-old-step-00000001-%d", (int)getpid());
	const char *mine = tt_arena_printf(t->arena, "run/checkpoint/.tmp-latest-%d", 1 << 22); /* beyond all numbers of processes */
	const char *names[] = { old, fresh, mine };
	for (int i = 0; i < TT_COUNT(names); i++)
		put(t, names[i], "step-00000001\n", 14);
	TT_CHECK(t, utimensat(AT_FDCWD, tt_test_path(t, old), (struct timespec[2]){ { 1e9, 0 }, { 1e9, 0 } }, 0) == 0);
	RUN_SAYS(t, "run", "--training.steps=2", 0, "all 2 steps are done");
	TT_CHECK(t, !there(t, old) && there(t, fresh) && !there(t, mine));
	RUN(t, "run", "--training.steps=3");
	TT_CHECK(t, there(t, fresh) && latest(t, "run") == 3);
}

/* A head of its own is not dropped by a model without one; a copy of the embedding may go. */
static void tied_head(tt_test *t)
{
	set_up(t);
	if (!RUN(t, "seed", "--training.steps=1") || !copy_file(t, step_path(t, "seed", 1, "model.safetensors"), "w.safetensors"))
		return;
	const char *flags = tt_arena_printf(t->arena, "--training.steps=1 --model.tie_word_embeddings=true --model.hf_weights=%s", tt_test_path(t, "w.safetensors"));
	RUN_SAYS(t, "tied", flags, 2, "w.safetensors: lm_head.weight has other values than model.embed_tokens.weight, and model.tie_word_embeddings = true has one tensor for both");
	tt_st *st;
	const tt_st_tensor *e, *h;
	if (!TT_CHECK_OK(t, tt_st_open(t->arena, tt_test_path(t, "w.safetensors"), &st)))
		return;
	if (TT_CHECK_OK(t, tt_st_get(st, "model.embed_tokens.weight", &e)) && TT_CHECK_OK(t, tt_st_get(st, "lm_head.weight", &h))) {
		void *bytes = tt_arena_alloc(t->arena, (size_t)e->bytes);
		memcpy(bytes, e->p, (size_t)e->bytes);
		int fd = open(tt_test_path(t, "w.safetensors"), O_WRONLY);
		TT_CHECK(t, pwrite(fd, bytes, (size_t)e->bytes, h->at) == e->bytes);
		close(fd);
	}
	tt_st_close(st);
	RUN(t, "tied", flags);
}

static void skipped_steps(tt_test *t)
{
	set_up(t);
	if (!make_poisoned(t))
		return;
	const char *skip = tt_arena_printf(t->arena, "--model.hf_weights=%s --training.nonfinite=skip", tt_test_path(t, "poisoned.safetensors"));
	continued_with(t, skip, "straight", "stopped");
	const char *h = steps_of(t, "straight").text;
	int64_t updates = state_number(t, "straight", STEPS, "updates");
	TT_CHECK_MSG(t, strstr(h, "skipped true") && strstr(h, "skipped false") && updates > 0 && updates < STEPS, "%lld updates in:\n%s", (long long)updates, h);
	/* Skips in a row are counted on: all documents are Zs now, and the run ends where it would have ended. */
	char z[700];
	memset(z, 'Z', sizeof z);
	put(t, "only-z/z.txt", z, sizeof z);
	const char *flags = tt_arena_printf(t->arena, "%s --training.nonfinite_max_skips=4 --data.paths=%s", skip, tt_test_path(t, "only-z"));
	RUN_SAYS(t, "zs", flags, 1, "step 5: skip 5 in a row");
	RUN(t, "zs2", tt_arena_printf(t->arena, "%s --training.steps=3", flags));
	RUN_SAYS(t, "zs2", flags, 1, "step 5: skip 5 in a row");
}

/* ---- kill -9 ------------------------------------------------------------------------------------------------------------------------------ */

enum { KILL_STEPS = 40, SIGNAL_STEPS = 200 };

static bool saving(child *c) { return count_names(c->t, c->name, ".tmp-step-") > 0; }

/* A run, killed again and again until it ends. Every second kill waits until a save is on its way. Returns how many kills it took;
 * *torn counts those that left an unfinished checkpoint. */
static int killed_run(tt_test *t, const char *name, const char *flags, uint64_t *s, int most, int *torn)
{
	int kills = 0;
	for (bool done = false; !done;) {
		child c = start(t, name, flags);
		double wait = kills < most ? 0.02 + (double)(draw(s) % 1000) * 2e-4 : TIMEOUT, t0 = tt_now();
		bool aim = draw(s) % 2;
		tt_mark m = tt_arena_push(t->arena);
		while (!ended(&c) && tt_now() - t0 < wait)
			rest(0.0005);
		while (aim && kills < most && !ended(&c) && !saving(&c))
			tt_arena_pop(t->arena, m);
		double part = (double)(draw(s) % 1000) * 1e-3;
		if (aim)
			rest(0.02 * part * part * part); /* a save takes 2 ms in memory, 50 on a slow disk */
		tt_arena_pop(t->arena, m);
		tell(&c, SIGKILL);
		finish(&c);
		/* What was not finished goes with the next save, so that there is never more than one of a kind. */
		static const char *const kinds[] = { ".tmp-step-", ".tmp-old-", ".tmp-latest-" };
		for (int i = 0; i < TT_COUNT(kinds); i++)
			TT_CHECK_MSG(t, count_names(t, name, kinds[i]) <= 1, "%s: %d names %s* after %d kills", name, count_names(t, name, kinds[i]), kinds[i], kills);
		*torn += count_names(t, name, ".tmp-") > 0;
		done = c.code == 0;
		kills += c.code == BY_SIGNAL + SIGKILL;
		if (!TT_CHECK_MSG(t, done || c.code == BY_SIGNAL + SIGKILL, "%s: after %d kills it ended with %d:\n%s", name, kills, c.code, said(t, name)))
			break;
	}
	return kills;
}

static void kills(tt_test *t, int want)
{
	set_up(t);
	const char *flags = tt_arena_printf(t->arena, "--training.steps=%d --lr_scheduler.total_steps=%d --checkpoint.keep_latest_k=2 --validation.freq=2", KILL_STEPS,
					    KILL_STEPS);
	if (!RUN(t, "straight", flags))
		return;
	uint64_t s = t->seed;
	int n = 0, torn = 0, rounds = 0;
	for (; n < want && !t->failures; rounds++) {
		const char *name = tt_arena_printf(t->arena, "killed-%d", rounds);
		n += killed_run(t, name, tt_arena_printf(t->arena, "%s --checkpoint.interval=%d", flags, 1 + (int)(draw(&s) % 2)), &s, want - n, &torn);
		same_end(t, "straight", name, KILL_STEPS);
		/* A run killed after its last save, before it had tidied up, has nothing to save when it is started again. */
		if (!strstr(said(t, name), "steps are done")) {
			TT_CHECK_INT(t, count_names(t, name, ".tmp-"), 0);
			TT_CHECK_INT(t, count_names(t, name, "step-"), 2);
		}
		if (t->failures)
			break;
		remove_tree(t, name);
	}
	TT_CHECK_MSG(t, n >= want && (torn > 0 || want < 50), "%d kills in %d runs, %d of them in a save", n, rounds, torn);
}

static bool has_latest(child *c) { return latest(c->t, c->name) > 0; }

/* A step's validation comes before its checkpoint: killed as soon as that is there, a run has lost neither. */
static void validated(tt_test *t)
{
	set_up(t);
	tt_buf b = { 0 };
	while (b.n < 8192)
		tt_buf_str(&b, read_text(t, "held/out.txt"));
	put(t, "long/out.txt", b.s, b.n);
	tt_buf_fini(&b);
	child c = start(t, "run", tt_arena_printf(t->arena, "--training.steps=1000000 --checkpoint.enable_first_step_checkpoint --checkpoint.async_mode=disabled --validation.steps=-1 --validation.paths=%s",
						 tt_test_path(t, "long")));
	TT_CHECK(t, await(&c, has_latest));
	tell(&c, SIGKILL);
	finish(&c);
	TT_CHECK_INT(t, latest(t, "run"), 1);
	TT_CHECK(t, strstr(steps_of(t, "run").text, "validation 1 ") != NULL);
}

static void killed(tt_test *t) { kills(t, 6); }
static void killed_50(tt_test *t) { kills(t, 50); }

/* ---- signals -------------------------------------------------------------------------------------------------------------------------------- */

static bool catches(child *c)
{
	const char *path = tt_arena_printf(c->t->arena, "/proc/%d/status", (int)c->pid);
	FILE *f = fopen(path, "r");
	char line[256];
	unsigned long long mask = 0;
	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, "SigCgt:", 7))
			mask = strtoull(line + 7, NULL, 16);
	if (f)
		fclose(f);
	return mask >> (SIGTERM - 1) & 1;
}


static void signals(tt_test *t)
{
	set_up(t);
	static const struct { const char *name; bool (*when)(child *c); double delay; } moments[] = {
		{ "start", catches, 0 }, { "start+", catches, 0.02 }, { "first", first_step, 0 }, { "first+", first_step, 0.02 }, { "save", saving, 0 }, { "save+", saving, 0.03 },
		{ "steps", first_step, 0.05 }, { "steps+", first_step, 0.2 },
	};
	const char *flags = tt_arena_printf(t->arena, "--training.steps=%d --lr_scheduler.total_steps=%d --checkpoint.interval=7 --validation.steps=-1", SIGNAL_STEPS,
					    SIGNAL_STEPS);
	if (!RUN(t, "straight", flags))
		return;
	signal(SIGHUP, SIG_DFL); /* under nohup it would not be heard */
	uint64_t s = t->seed;
	const char *name = "stopped";
	int stops = 0;
	for (int i = 0; i < TT_COUNT(moments) && !t->failures; i++) {
		int64_t before = latest(t, name);
		child c = start(t, name, flags);
		if (!await(&c, moments[i].when))
			continue;
		rest(moments[i].delay * (double)(draw(&s) % 1000) * 1e-3);
		static const int numbers[] = { SIGINT, SIGTERM, SIGUSR1, SIGHUP };
		int number = numbers[i % 4];
		if (ended(&c))
			continue;
		tell(&c, number);
		int64_t at = steps_of(t, name).steps;
		if (finish(&c) == 0)
			continue; /* it came to its end first */
		const char *text = strstr(said(t, name), "stopped by signal");
		int got = 0;
		long long step = -1;
		if (!TT_CHECK_MSG(t, c.code == 3 && text && sscanf(text, "stopped by signal %d after step %lld", &got, &step) == 2 && got == number,
				  "%s: exit code %d:\n%s", moments[i].name, c.code, said(t, name)))
			break;
		/* Before the first step of this start there is nothing new to save, and metrics.jsonl may still be the last start's. */
		TT_CHECK_MSG(t, step <= TT_MAX(at, before) + 1, "%s: told at step %lld, it went on to %lld", moments[i].name, (long long)at, step);
		TT_CHECK_INT(t, latest(t, name), step ? step : -1);
		TT_CHECK_INT(t, steps_of(t, name).steps, step);
		stops++;
	}
	TT_CHECK_MSG(t, stops >= 2, "only %d stops", stops); /* a fast machine may end the run before the later ones */
	RUN(t, name, flags);
	same_end(t, "straight", name, SIGNAL_STEPS);
}

/* Seconds of processors that it has used; -1: it is not there. */
static double used(const child *c)
{
	char line[1024] = "", *at;
	unsigned long user = 0, system = 0;
	FILE *f = fopen(tt_arena_printf(c->t->arena, "/proc/%d/stat", (int)c->pid), "r");
	bool ok = f && fgets(line, sizeof line, f) && (at = strrchr(line, ')')) && sscanf(at + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) == 2;
	if (f)
		fclose(f);
	return ok ? (double)(user + system) / (double)sysconf(_SC_CLK_TCK) : -1;
}

static bool heard(child *c) { return strstr(said(c->t, c->name), "\nstopping after this step and saving; again to stop now\n") != NULL; }

/* A step of many seconds, and nobody who waits for it. */
static void second_signal(tt_test *t)
{
	set_up(t);
	for (int i = 0; i < 2; i++) {
		child c = start(t, "long", "--training.tokens_per_step=8388608 --training.tokens_per_microbatch=4096 --debug.kernels=ref --validation.enable=false");
		if (!TT_CHECK(t, await(&c, first_step)))
			return;
		for (double before = used(&c); !ended(&c) && used(&c) < before + 0.1; rest(0.01)) /* into the step, the only thing left that computes */
			;
		for (int k = 0; k < 4 && i; k++) { /* these are one wish however often they come */
			tell(&c, k % 2 ? SIGHUP : SIGUSR1);
			rest(0.02);
		}
		tell(&c, SIGTERM);
		/* It is heard, long before the step is over. */
		if (!TT_CHECK_MSG(t, await(&c, heard) && !ended(&c), "the first signal was not heard, or ended it: %d\n%s", c.code, said(t, "long")))
			return;
		tell(&c, i ? SIGINT : SIGTERM);
		TT_CHECK_INT(t, finish(&c), BY_SIGNAL + (i ? SIGINT : SIGTERM));
		TT_CHECK_INT(t, steps_of(t, "long").steps, 0);
	}
}

/* ---- what is kept ------------------------------------------------------------------------------------------------------------------------ */

static void kept(tt_test *t)
{
	set_up(t);
	for (int i = 1; i <= 6; i++) {
		const char *steps = tt_arena_printf(t->arena, "--training.steps=%d --checkpoint.interval=1", 2 * i);
		RUN(t, "one", tt_arena_printf(t->arena, "%s --checkpoint.keep_latest_k=1", steps));
		TT_CHECK_INT(t, count_names(t, "one", "step-"), 1);
		TT_CHECK_INT(t, latest(t, "one"), 2 * i);
		if (i > 2)
			continue;
		RUN(t, "two", tt_arena_printf(t->arena, "%s --checkpoint.keep_latest_k=2", steps));
		TT_CHECK_INT(t, count_names(t, "two", "step-"), 2);
		TT_CHECK(t, there(t, step_path(t, "two", 2 * i - 1, "COMPLETE")) && there(t, step_path(t, "two", 2 * i, "COMPLETE")));
	}
	RUN(t, "all", "--checkpoint.interval=1 --checkpoint.keep_latest_k=0");
	TT_CHECK_INT(t, count_names(t, "all", "step-"), STEPS);
	TT_CHECK_INT(t, count_names(t, "one", "step-") + 2, 3);
	same_end(t, "one", "all", STEPS);
}

static void model_alone(tt_test *t)
{
	set_up(t);
	const char *flags = "--training.steps=4 --checkpoint.interval=2 --checkpoint.last_save_model_only=true";
	RUN(t, "a", flags);
	TT_CHECK(t, there(t, step_path(t, "a", 4, "model.safetensors")) && !there(t, step_path(t, "a", 4, "optimizer.safetensors")));
	/* The same again is a run that is over; one with more steps has nothing to go on from, and says what can be done. */
	RUN_SAYS(t, "a", flags, 0, "all 4 steps are done");
	static const char *const remedies[] = { "step-00000004 holds the model alone", "checkpoint.load_step", "exclude_from_loading", "model.hf_weights" };
	for (int i = 0; i < TT_COUNT(remedies); i++)
		RUN_SAYS(t, "a", "", 2, remedies[i]);
	/* Each of the remedies works. */
	RUN(t, "straight", "");
	copy_folder(t, "a", "b");
	copy_folder(t, "a", "c");
	RUN(t, "b", "--checkpoint.load_step=2");
	same_end(t, "straight", "b", STEPS);
	RUN_SAYS(t, "c", "--checkpoint.exclude_from_loading=optimizer", 0, "at step 4");
	TT_CHECK_INT(t, state_number(t, "c", STEPS, "updates"), STEPS - 4);
	RUN(t, "d", tt_arena_printf(t->arena, "--model.hf_weights=%s", tt_test_path(t, step_path(t, "a", 4, "model.safetensors"))));
	/* bfloat16: each value rounded to the nearest even one. */
	RUN(t, "bf16", tt_arena_printf(t->arena, "%s --checkpoint.export_dtype=bfloat16", flags));
	tt_st *x, *y;
	if (TT_CHECK_OK(t, tt_st_open(t->arena, tt_test_path(t, step_path(t, "a", 4, "")), &x)) &&
	    TT_CHECK_OK(t, tt_st_open(t->arena, tt_test_path(t, step_path(t, "bf16", 4, "")), &y))) {
		int64_t wrong = 0;
		TT_CHECK_INT(t, tt_st_count(x), tt_st_count(y));
		for (int64_t i = 0; i < tt_st_count(x); i++) {
			const tt_st_tensor *p = tt_st_at(x, i), *q = tt_st_at(y, i);
			wrong += p->dtype != TT_ST_F32 || q->dtype != TT_ST_BF16 || p->count != q->count;
			for (int64_t k = 0; !wrong && k < p->count; k++) {
				float f;
				tt_bf16 h;
				memcpy(&f, p->p + 4 * k, 4);
				memcpy(&h, q->p + 2 * k, 2);
				wrong += h != tt_f32_to_bf16(f);
			}
		}
		TT_CHECK_INT(t, wrong, 0);
		TT_CHECK(t, strstr(read_text(t, step_path(t, "bf16", 4, "config.json")), "bfloat16") != NULL);
		tt_st_close(x);
		tt_st_close(y);
	}
}

/* ---- when a save is due -------------------------------------------------------------------------------------------------------------------- */

static void due(tt_test *t)
{
	set_up(t);
	RUN(t, "a", "--checkpoint.interval=5 --checkpoint.enable_first_step_checkpoint");
	static const int want[] = { 1, 5, 10, STEPS };
	for (int i = 0; i < TT_COUNT(want); i++)
		TT_CHECK_MSG(t, there(t, step_path(t, "a", want[i], "COMPLETE")), "no step %d", want[i]);
	TT_CHECK_INT(t, count_names(t, "a", "step-"), TT_COUNT(want));
	RUN(t, "b", "--checkpoint.interval=5");
	TT_CHECK_INT(t, count_names(t, "b", "step-"), TT_COUNT(want) - 1);
	/* By the clock. */
	RUN(t, "c", "--checkpoint.interval_minutes=1e-9 --checkpoint.keep_latest_k=0");
	TT_CHECK_INT(t, count_names(t, "c", "step-"), STEPS);
	child c = start(t, "d", "--training.steps=1000000 --checkpoint.interval_minutes=0.003 --checkpoint.keep_latest_k=0");
	double t0 = tt_now();
	while (!ended(&c) && tt_now() - t0 < TIMEOUT && count_names(t, "d", "step-") < 4)
		rest(0.01);
	double took = tt_now() - t0;
	tell(&c, SIGTERM);
	TT_CHECK_INT(t, finish(&c), 3);
	TT_CHECK_MSG(t, took > 4 * 0.18, "4 saves after %.2f s", took);
}

/* ---- damage --------------------------------------------------------------------------------------------------------------------------------- */

typedef enum damage { FLIP, CUT, REMOVE, FOREIGN, EMPTY, NDAMAGES } damage;

static void do_damage(tt_test *t, damage d, const char *path, const char *foreign, uint64_t *s)
{
	char *p;
	size_t n;
	const char *full = tt_test_path(t, path);
	if (!TT_CHECK_OK(t, tt_file_read(t->arena, full, &p, &n)))
		return;
	switch (d) {
	case FLIP:
		p[draw(s) % n] ^= (char)(1 << draw(s) % 8);
		put(t, path, p, n);
		return;
	case CUT:
		put(t, path, p, n - 1 - draw(s) % (n - 1));
		return;
	case REMOVE:
		unlink(full);
		return;
	case FOREIGN:
		copy_file(t, foreign, path);
		return;
	case EMPTY:
		put(t, path, "", 0);
		return;
	case NDAMAGES:
		return;
	}
}

static void damaged(tt_test *t)
{
	set_up(t);
	static const char *const files[] = { "model.safetensors", "optimizer.safetensors", "train_state.json", "COMPLETE", "config.json" };
	RUN(t, "straight", "");
	RUN(t, "run", "--training.steps=8 --checkpoint.interval=2");
	RUN(t, "foreign", "--training.steps=8 --debug.seed=9 --model.rope_theta=20000");
	copy_folder(t, "run", "good");
	uint64_t s = t->seed;
	for (int f = 0; f < TT_COUNT(files); f++)
		for (damage d = 0; d < NDAMAGES && !t->failures; d++) {
			if (t->tier == TT_TIER_QUICK && (int)d != f % NDAMAGES && ((int)d + f) % 3 == 0)
				continue;
			const char *path = step_path(t, "run", 8, files[f]);
			do_damage(t, d, path, step_path(t, "foreign", 8, files[f]), &s);
			RUN_SAYS(t, "run", "", 1, files[f]);
			TT_CHECK_MSG(t, strstr(said(t, "run"), "(checkpoint.load_step=6)"), "%s, damage %d: step 6 is not offered: %s", files[f], d, said(t, "run"));
			if ((int)d == f % NDAMAGES) { /* the advice, followed */
				copy_folder(t, "run", "advised");
				RUN(t, "advised", "--checkpoint.load_step=6 --checkpoint.interval=2");
				same_end(t, "straight", "advised", STEPS);
				RUN_SAYS(t, "advised", "", 0, "all 12 steps are done");
				remove_tree(t, "advised");
			}
			copy_file(t, step_path(t, "good", 8, files[f]), path);
		}
	/* Two are damaged: the one before both is offered. All: that is said. */
	copy_folder(t, "run", "two");
	do_damage(t, FLIP, step_path(t, "two", 8, files[0]), "", &s);
	do_damage(t, FLIP, step_path(t, "two", 6, files[1]), "", &s);
	RUN_SAYS(t, "two", "", 1, "(checkpoint.load_step=4)");
	RUN_SAYS(t, "two", "--checkpoint.load_step=6", 1, "step-00000006/optimizer.safetensors");
	do_damage(t, CUT, step_path(t, "two", 4, files[0]), "", &s);
	do_damage(t, REMOVE, step_path(t, "two", 2, "COMPLETE"), "", &s);
	RUN_SAYS(t, "two", "", 1, "there is no whole one before it");
	/* `latest` is only a name. */
	put(t, "run/checkpoint/latest", "", 0);
	RUN_SAYS(t, "run", "--checkpoint.load_only --training.steps=9", 0, "latest names no checkpoint; taking the newest complete checkpoint, step 8");
	put(t, "run/checkpoint/latest", "step-00000099\n", 14);
	RUN_SAYS(t, "run", "--checkpoint.load_only --training.steps=9", 0, "latest names one that is not there; taking the newest complete checkpoint, step 8");
	unlink(tt_test_path(t, "run/checkpoint/latest"));
	RUN_SAYS(t, "run", "", 0, "latest is missing; taking the newest complete checkpoint, step 8");
	same_end(t, "straight", "run", STEPS);
}

/* ---- a full disk ------------------------------------------------------------------------------------------------------------------------------ */

/* The last good one stays; what the run does then is checkpoint.on_error's. */
static void write_errors(tt_test *t)
{
	set_up(t);
	RUN(t, "straight", "");
	RUN(t, "run", "--training.steps=4");
	limit_files(200 * 1000); /* optimizer.safetensors is longer */
	static const char *const modes[] = { "async", "disabled" };
	for (int i = 0; i < TT_COUNT(modes); i++) {
		const char *mode = tt_arena_printf(t->arena, "--checkpoint.interval=2 --checkpoint.async_mode=%s", modes[i]);
		RUN_SAYS(t, "run", mode, 1, "optimizer.safetensors: cannot write at byte");
		RUN_SAYS(t, "run", mode, 1, "with step 4 as the last checkpoint (checkpoint.on_error = \"continue\" goes on without)");
		/* Nothing is left to go on to after the last step: that is a failure whatever the key says. */
		mode = tt_arena_printf(t->arena, "%s --checkpoint.on_error=continue", mode);
		RUN_SAYS(t, "run", mode, 1, "File too large; training goes on without it (checkpoint.on_error)");
		RUN_SAYS(t, "run", mode, 1, "after step 12, with step 4 as the last checkpoint");
	}
	TT_CHECK_INT(t, latest(t, "run"), 4);
	TT_CHECK_INT(t, count_names(t, "run", ".tmp-"), 0);
	TT_CHECK_INT(t, count_names(t, "run", "step-"), 1);
	/* A run that is stopped does not claim to have saved. */
	child c = start(t, "other", "--training.steps=1000000 --checkpoint.on_error=continue");
	TT_CHECK(t, await(&c, stepping));
	tell(&c, SIGTERM);
	TT_CHECK_INT(t, finish(&c), 1);
	TT_CHECK(t, strstr(said(t, "other"), "with no checkpoint") && !strstr(said(t, "other"), ", saved"));
	limit_files(RLIM_INFINITY);
	RUN(t, "run", "");
	same_end(t, "straight", "run", STEPS);
}

static bool save_failed(child *c) { return strstr(said(c->t, c->name), "the disk has") != NULL; }
static bool saved_again(child *c)
{
	const char *p = strstr(said(c->t, c->name), "the disk has");
	return p && strstr(p, "saved step");
}

static bool write_line(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	if (fd >= 0)
		close(fd);
	return ok;
}

/* A view of the file systems of its own for this process and its children; without privileges, by way of a user namespace. */
static bool own_mounts(tt_test *t)
{
	unsigned uid = getuid(), gid = getgid();
	if (unshare(CLONE_NEWNS) &&
	    (unshare(CLONE_NEWUSER | CLONE_NEWNS) || !write_line("/proc/self/setgroups", "deny") ||
	     !write_line("/proc/self/uid_map", tt_arena_printf(t->arena, "0 %u 1", uid)) || !write_line("/proc/self/gid_map", tt_arena_printf(t->arena, "0 %u 1", gid))))
		return false;
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static void full_disk(tt_test *t)
{
	set_up(t);
	const char *disk = tt_test_path(t, "disk");
	TT_CHECK_OK(t, tt_mkdirs(disk));
	if (!own_mounts(t) || mount("titan-test", disk, "tmpfs", 0, "size=1100k"))
		TT_SKIP(t, "a small file system cannot be mounted here");
	RUN(t, "straight", "");
	const char *flags = "--checkpoint.interval=2";
	RUN_SAYS(t, "disk/run", "--checkpoint.interval=1000", 0, NULL);
	TT_CHECK(t, !strstr(said(t, "disk/run"), "at once"));
	remove_tree(t, "disk/run");
	/* Room for one, not for all. */
	RUN_SAYS(t, "disk/run", "--checkpoint.interval=2 --training.steps=2", 0, NULL);
	RUN_SAYS(t, "disk/run", flags, 1, "disk/run/checkpoint: 5 more checkpoints of ");
	remove_tree(t, "disk/run");
	RUN_SAYS(t, "disk/run", flags, 1, "disk/run/checkpoint: a checkpoint takes 3");
	RUN_SAYS(t, "disk/run", flags, 1, "with step 4 as the last checkpoint");
	TT_CHECK_INT(t, latest(t, "disk/run"), 4);
	TT_CHECK_INT(t, count_names(t, "disk/run", ".tmp-"), 0);
	/* The third was refused before a step was trained for it. */
	TT_CHECK_INT(t, steps_of(t, "disk/run").steps, 4);
	/* With less to keep there is room. */
	remove_tree(t, step_path(t, "disk/run", 2, ""));
	RUN(t, "disk/run", "--checkpoint.interval=2 --checkpoint.keep_latest_k=1");
	same_end(t, "straight", "disk/run", STEPS);
	remove_tree(t, "disk/run");
	/* Space that comes back is used. */
	char *ballast = tt_arena_alloc(t->arena, 1000 * 1000);
	put(t, "disk/ballast", ballast, 1000 * 1000);
	/* Long steps: their lines of metrics must not fill what is left before the ballast goes. */
	child c = start(t, "disk/run", "--training.steps=1000000 --training.tokens_per_step=8192 --checkpoint.interval=2 --checkpoint.on_error=continue --checkpoint.keep_latest_k=1");
	TT_CHECK(t, await(&c, save_failed));
	TT_CHECK(t, strstr(said(t, "disk/run"), "training goes on without it (checkpoint.on_error)"));
	unlink(tt_test_path(t, "disk/ballast"));
	TT_CHECK(t, await(&c, saved_again));
	tell(&c, SIGTERM);
	TT_CHECK_INT(t, finish(&c), 3);
	TT_CHECK_INT(t, latest(t, "disk/run"), steps_of(t, "disk/run").steps);
	TT_CHECK(t, strstr(read_text(t, "disk/run/metrics.jsonl"), "\"event\":\"save_failed\"") != NULL);
	remove_tree(t, "disk/run");
	umount2(disk, MNT_DETACH);
}

/* ---- what is loaded ------------------------------------------------------------------------------------------------------------------------ */

static double number_at(tt_test *t, const char *name, int64_t step, const char *key)
{
	const char *p = strstr(read_text(t, tt_arena_printf(t->arena, "%s/metrics.jsonl", name)), tt_arena_printf(t->arena, "{\"step\":%lld,\"type\":\"step\"", (long long)step));
	return p ? strtod(value_text(t->arena, tt_arena_strndup(t->arena, p, strcspn(p, "\n")), key), NULL) : __builtin_nan("");
}

static void changed_keys(tt_test *t)
{
	set_up(t);
	RUN(t, "run", "--training.steps=6");
	RUN_SAYS(t, "run", "--training.tokens_per_step=128", 2, "training.tokens_per_step is 128, the run to be resumed had 64");
	RUN_SAYS(t, "run", "--training.context_length=32", 2, "training.context_length is 32, the run to be resumed had 16");
	RUN_SAYS(t, "run", "--model.hidden_size=64", 2, "model.hidden_size is 64, the model in ");
	RUN_SAYS(t, "run", "--checkpoint.load_step=5", 2, "has no checkpoint of step 5; there are 6");
	RUN_SAYS(t, "run", "--checkpoint.exclude_from_loading=optimiser", 2, "did you mean \"optimizer\"?");
	put(t, "text/extra.txt", "more\n", 5);
	RUN_SAYS(t, "run", "", 2, "the data is not that of the run to be resumed (fingerprint ");
	copy_folder(t, "run", "data");
	RUN_SAYS(t, "data", "--checkpoint.exclude_from_loading=dataloader", 0, "at step 6");
	unlink(tt_test_path(t, "text/extra.txt"));
	/* Microbatch and threads are the machine's. */
	copy_folder(t, "run", "memory");
	RUN_SAYS(t, "memory", "--training.tokens_per_microbatch=16 --threads=1", 0, "at step 6");
	/* load_only leaves everything as it is. */
	copy_folder(t, "run", "only");
	RUN_SAYS(t, "only", "--checkpoint.load_only", 0, "at step 6");
	TT_CHECK_INT(t, latest(t, "only"), 6);
	TT_CHECK_INT(t, count_names(t, "only", "step-"), 1);
	TT_CHECK_INT(t, steps_of(t, "only").steps, STEPS);
	/* A schedule is the config's, from the next step on. */
	static const char *const changes[] = { "--lr_scheduler.decay_ratio=1", "--lr_scheduler.decay_type=sqrt", "--lr_scheduler.min_lr_factor=0.2", "--lr_scheduler.total_steps=20",
					       "--lr_scheduler.warmup_steps=9" };
	static const tt_schedule schedules[] = { { 3, 12, 9, TT_WSD_COSINE, 0.1 }, { 3, 12, 6, TT_WSD_SQRT, 0.1 }, { 3, 12, 6, TT_WSD_COSINE, 0.2 },
						 { 3, 20, 10, TT_WSD_COSINE, 0.1 }, { 9, 12, 3, TT_WSD_COSINE, 0.1 } };
	for (int i = 0; i < TT_COUNT(changes); i++) {
		const char *name = tt_arena_printf(t->arena, "schedule-%d", i);
		copy_folder(t, "run", name);
		RUN_SAYS(t, name, changes[i], 0, "the schedule is the config's");
		for (int step = 7; step <= STEPS; step++) {
			double lr = number_at(t, name, step, "lr"), want = 3e-3 * tt_schedule_factor(&schedules[i], step - 1);
			TT_CHECK_MSG(t, lr == want, "%s: lr %.17g at step %d, want %.17g", changes[i], lr, step, want);
		}
	}
	copy_folder(t, "run", "quiet");
	RUN(t, "quiet", tt_arena_printf(t->arena, "%s --checkpoint.exclude_from_loading=lr_scheduler", changes[0]));
	TT_CHECK(t, !strstr(said(t, "quiet"), "the schedule is the config's"));
	RUN(t, "run", "");
	TT_CHECK(t, !strstr(said(t, "run"), "the schedule is the config's"));
}

/* Every step sees the same 64 bytes, so that a loss says which weights it was taken of. */
static void excluded(tt_test *t)
{
	set_up(t);
	put(t, "one/text.txt", read_text(t, "held/out.txt"), 64);
	const char *one = tt_arena_printf(t->arena, "--data.paths=%s --validation.enable=false --data.shuffle=false --lr_scheduler.warmup_steps=0", tt_test_path(t, "one"));
	enum { AT = 4 };
	RUN(t, "straight", one);
	RUN(t, "run", tt_arena_printf(t->arena, "%s --training.steps=%d", one, AT));
	double fresh = number_at(t, "straight", 1, "loss"), next = number_at(t, "straight", AT + 1, "loss"), after = number_at(t, "straight", AT + 2, "loss");
	TT_CHECK_MSG(t, fresh > next && next > after, "losses %g %g %g", fresh, next, after);
	static const char *const words[] = { "model", "optimizer", "train_state", "model,optimizer", "model,optimizer,train_state", "train_state,optimizer" };
	for (int i = 0; i < TT_COUNT(words); i++) {
		const char *name = tt_arena_printf(t->arena, "no-%d", i), *w = words[i];
		bool model = !strstr(w, "model"), optim = !strstr(w, "optimizer"), state = !strstr(w, "train_state");
		int64_t first = state ? AT + 1 : 1;
		copy_folder(t, "run", name);
		RUN(t, name, tt_arena_printf(t->arena, "%s --checkpoint.exclude_from_loading=%s", one, w));
		TT_CHECK_MSG(t, number_at(t, name, first, "loss") == (model ? next : fresh), "without %s: loss %.17g", w, number_at(t, name, first, "loss"));
		/* With fresh moments the second step's loss is another; how many updates the moments have seen goes with them, and the rate is the
		 * same in the first half of the run. */
		TT_CHECK_MSG(t, (number_at(t, name, first + 1, "loss") == after) == (model && optim), "without %s: loss %.17g after a step", w,
			     number_at(t, name, first + 1, "loss"));
		TT_CHECK_INT(t, state_number(t, name, STEPS, "updates"), STEPS + 1 - first + (optim ? AT : 0));
		TT_CHECK_INT(t, state_number(t, name, STEPS, "tokens_seen"), 64 * STEPS);
	}
	/* Without anything it is a new run; without moments and counters, one that starts from these weights. */
	same_end(t, "straight", "no-4", STEPS);
	RUN(t, "warm", tt_arena_printf(t->arena, "%s --model.hf_weights=%s", one, tt_test_path(t, step_path(t, "run", AT, "model.safetensors"))));
	same_end(t, "warm", "no-5", STEPS);
	RUN(t, "run", one);
	same_end(t, "straight", "run", STEPS);
}

/* Next to nothing to learn from: refused at the start, or said; a step that nothing was run for has no speed. */
static void little_text(tt_test *t)
{
	set_up(t);
	put(t, "one/file.txt", "x", 1);
	const char *one = tt_arena_printf(t->arena, "--validation.enable=false --data.paths=%s", tt_test_path(t, "one/file.txt"));
	RUN_SAYS(t, "one", one, 2, "one/file.txt (0 usable tokens; name longer files)");
	/* Some steps of 4 tokens hold documents of one byte alone. */
	for (int i = 0; i < 40; i++)
		put(t, tt_arena_printf(t->arena, "bits/%d", i), "xyz", i % 8 ? 1 : 3);
	const char *bits = tt_arena_printf(t->arena, "--validation.enable=false --data.paths=%s --data.shuffle=false --training.steps=10 --training.tokens_per_step=4 "
		"--training.tokens_per_microbatch=4 --training.context_length=4", tt_test_path(t, "bits"));
	RUN_SAYS(t, "bits", bits, 0, "has no valid token: nothing is learnt from it");
	int none = 0, some = 0;
	for (int step = 1; step <= 10; step++)
		if (number_at(t, "bits", step, "valid_tokens") == 0) {
			none++;
			TT_CHECK(t, number_at(t, "bits", step, "tokens_per_s") == 0 && number_at(t, "bits", step, "flops_per_s") == 0);
		} else {
			some++;
			TT_CHECK(t, number_at(t, "bits", step, "tokens_per_s") > 0 && number_at(t, "bits", step, "flops_per_s") > 0);
		}
	TT_CHECK_MSG(t, none && some, "%d steps without a valid token, %d with one", none, some);
}

/* A run that is stopped on one mesh and goes on on another, and another, ends with the bytes of one rank. */
static void meshes(tt_test *t)
{
	set_up(t);
	RUN(t, "one", "--numerics=exact --threads=1");
	const char *flags = "--numerics=exact --threads=1 --checkpoint.interval=3 ";
	RUN(t, "many", tt_arena_printf(t->arena, "%s--training.steps=3 --ranks=4 --parallelism.tensor_parallel_degree=2", flags));
	RUN(t, "many", tt_arena_printf(t->arena, "%s--training.steps=5 --ranks=3 --parallelism.context_parallel_degree=3 --parallelism.context_parallel_method=ring "
							  "--parallelism.context_parallel_load_balancer=cost", flags));
	RUN(t, "many", tt_arena_printf(t->arena, "%s--training.steps=8", flags));
	RUN(t, "many", tt_arena_printf(t->arena, "%s--ranks=6 --parallelism.data_parallel_replicate_degree=3", flags));
	same_end(t, "one", "many", STEPS);
	/* Every save on the way, in place and in the background, is the state after its own step on every rank. */
	flags = "--numerics=exact --threads=1 --checkpoint.interval=1 --checkpoint.keep_latest_k=0 --model.hidden_size=256 --model.vocab_size=2048 --validation.enable=false --training.steps=6";
	RUN(t, "each", flags);
	for (int async = 0; async < 2; async++) {
		const char *name = async ? "each-async" : "each-now";
		RUN(t, name, tt_arena_printf(t->arena, "%s --ranks=4 --parallelism.tensor_parallel_degree=2 --checkpoint.async_mode=%s", flags, async ? "async" : "disabled"));
		for (int step = 1; step <= 6; step++)
			for (int f = 0; f < 2; f++) {
				const char *file = f ? "optimizer.safetensors" : "model.safetensors";
				same_file(t, step_path(t, "each", step, file), step_path(t, name, step, file));
			}
	}
	/* The text ends on all ranks at once: saved, and no error. */
	RUN(t, "short-one", "--data.repeat=false --training.steps=1000 --numerics=exact --threads=1");
	RUN(t, "short-many", "--data.repeat=false --training.steps=1000 --numerics=exact --threads=1 --ranks=2");
	TT_CHECK(t, latest(t, "short-one") > 1);
	same_end(t, "short-one", "short-many", latest(t, "short-one"));
	RUN_SAYS(t, "none", "--ranks=2 --parallelism.context_parallel_degree=2 --parallelism.context_parallel_method=head_swap", 2,
		"= 2 ranks, which do not divide the kv heads: context_parallel_degree at most 1");
	RUN_SAYS(t, "uneven", "--training.steps=1 --ranks=3", 0, "the 4 rows of a step are dealt to 3 data ranks, at most 2 each");
	RUN_SAYS(t, "none", "--ranks=3 --parallelism.tensor_parallel_degree=2", 2, "hardware.ranks = 3 is no multiple of 2, the product of tensor_parallel_degree 2, so parallelism.data_parallel_shard_degree = -1 has no whole number left: --ranks=2 or 4");
	RUN_SAYS(t, "none", "--ranks=3 --parallelism.tensor_parallel_degree=3", 2, "tensor_parallel_degree = 3 is more than the 2 heads (model.num_attention_heads): at most 2");
}

const tt_case tt_suite_runs[] = {
	{ "meshes", meshes, TT_TIER_QUICK },
	{ "continuation", continuation, TT_TIER_QUICK },
	{ "pruned", pruned, TT_TIER_QUICK },
	{ "stale", stale, TT_TIER_QUICK },
	{ "tied_head", tied_head, TT_TIER_QUICK },
	{ "skipped_steps", skipped_steps, TT_TIER_QUICK },
	{ "killed", killed, TT_TIER_QUICK },
	{ "validated", validated, TT_TIER_QUICK },
	{ "signals", signals, TT_TIER_QUICK },
	{ "second_signal", second_signal, TT_TIER_QUICK },
	{ "kept", kept, TT_TIER_QUICK },
	{ "model_alone", model_alone, TT_TIER_QUICK },
	{ "due", due, TT_TIER_QUICK },
	{ "damaged", damaged, TT_TIER_QUICK },
	{ "write_errors", write_errors, TT_TIER_QUICK },
	{ "full_disk", full_disk, TT_TIER_QUICK },
	{ "changed_keys", changed_keys, TT_TIER_QUICK },
	{ "little_text", little_text, TT_TIER_QUICK },
	{ "excluded", excluded, TT_TIER_QUICK },
	{ "killed_50", killed_50, TT_TIER_CI },
	{ 0 },
};
