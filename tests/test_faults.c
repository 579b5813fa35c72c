/* faults: whatever fails while a checkpoint is saved or loaded, and wherever the process dies, the last good one is there. */
#define _GNU_SOURCE
#include "ckpt_fake.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

static void ignore(void *ctx, tt_log_level level, const char *line) { (void)ctx, (void)level, (void)line; }

/* The step of the checkpoint that a resume would take, every tensor of it checked; -1 (and a failure) if there is none. */
static int64_t resumes(tt_test *t, fake *f, const char *folder)
{
	tt_arena *a = tt_arena_create("resume");
	tt_ckpt *c = NULL;
	int64_t step = -1;
	fake_set(f, -1);
	if (TT_CHECK_OK(t, tt_ckpt_open(a, NULL, folder, -1, &c)) && TT_CHECK(t, c) &&
	    TT_CHECK_OK(t, tt_ckpt_load(c, f->t, f->n, 0, fake_write, f))) {
		step = tt_ckpt_get_state(c)->step;
		int64_t bad = fake_differs(f, step, true);
		TT_CHECK_MSG(t, bad < 0, "step %lld: tensor %lld is not what was saved", (long long)step, (long long)bad);
	}
	tt_arena_destroy(a);
	return step;
}

/* Steps 1 and 2 are there; 3, or 2 again, is saved with call n failing. Returns false once there is no call n. */
static bool save_with_fault(tt_test *t, fake *f, const char *folder, fault_mode mode, int64_t n, int64_t step, bool async)
{
	fault_counts clean = { .room = -1 }, faulty = { .room = -1, .fail_at = n, .mode = mode };
	fault_fs good = fault_new(&clean), bad = fault_new(&faulty);
	fake_wipe(t, folder);
	tt_ckpt_options o = fake_options(f, folder, &good.fs);
	o.shard_bytes = 16 * 1024;
	for (int64_t s = 1; s <= 2; s++)
		TT_CHECK_OK(t, fake_save(f, &o, s, TT_CKPT_FULL, TT_ST_F32));
	o.fs = &bad.fs;
	o.async = async;
	tt_status s = TT_OK;
	if (mode == FAULT_CRASH) {
		pid_t pid = fork();
		if (pid == 0)
			_exit(fake_save(f, &o, step, TT_CKPT_FULL, TT_ST_F32) == TT_OK ? 0 : 1);
		int status;
		TT_CHECK(t, waitpid(pid, &status, 0) == pid && WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 99));
		faulty.hit = WEXITSTATUS(status) == 99;
		s = faulty.hit ? TT_ERR_IO : TT_OK;
	} else {
		s = fake_save(f, &o, step, TT_CKPT_FULL, TT_ST_F32);
		TT_CHECK_MSG(t, s == TT_OK || tt_error_text()[0], "call %lld failed without a text", (long long)n);
		TT_CHECK_MSG(t, mode != FAULT_SHORT || s == TT_OK, "a short write or read is no failure: %s", tt_error_text());
	}
	int64_t there = resumes(t, f, folder);
	TT_CHECK_MSG(t, there == step || (s != TT_OK && there == 2), "mode %d, call %lld: step %lld is there, saving ended with %s", (int)mode, (long long)n,
		     (long long)there, tt_status_name(s));
	/* One that goes well leaves nothing behind of those that did not. */
	o.fs = &good.fs;
	TT_CHECK_OK(t, fake_save(f, &o, 4, TT_CKPT_FULL, TT_ST_F32));
	TT_CHECK_INT(t, resumes(t, f, folder), 4);
	TT_CHECK_INT(t, fake_remains(t, folder), 0);
	int64_t *steps, k;
	TT_CHECK_OK(t, tt_ckpt_list(t->arena, NULL, folder, &steps, &k));
	TT_CHECK_INT(t, k, 2);
	return faulty.hit;
}

static void every_call(tt_test *t, fault_mode mode, int64_t step, bool async)
{
	fake *f = fake_new(t, 20);
	const char *folder = tt_test_path(t, "run/checkpoint");
	TT_CHECK_OK(t, tt_mkdirs(tt_test_path(t, "run")));
	tt_log_set_sink(ignore, NULL);
	int64_t n = 1;
	while (save_with_fault(t, f, folder, mode, n, step, async) && !t->failures)
		n++;
	tt_log_set_sink(NULL, NULL);
	TT_CHECK_MSG(t, n > 40, "only %lld calls in a save", (long long)n);
}

static void save_eio(tt_test *t) { every_call(t, FAULT_EIO, 3, false); }
static void save_enospc(tt_test *t) { every_call(t, FAULT_ENOSPC, 3, true); }
static void save_short(tt_test *t) { every_call(t, FAULT_SHORT, 3, false); }
static void save_over(tt_test *t) { every_call(t, FAULT_EIO, 2, false); }
static void save_crash(tt_test *t) { every_call(t, FAULT_CRASH, 3, false); }
static void save_over_crash(tt_test *t) { every_call(t, FAULT_CRASH, 2, false); }

/* A file system without exchange: a failed swap must bring the old one back. */
static int no_exchange(const tt_fs *fs, const char *a, const char *b)
{
	(void)fs, (void)a, (void)b;
	errno = EINVAL;
	return -1;
}

static void without_exchange(tt_test *t)
{
	fake *f = fake_new(t, 20);
	const char *folder = tt_test_path(t, "run");
	fault_counts c = { .room = -1 };
	fault_fs fs = fault_new(&c);
	fs.fs.exchange = no_exchange;
	tt_ckpt_options o = fake_options(f, folder, &fs.fs);
	TT_CHECK_OK(t, fake_save(f, &o, 1, TT_CKPT_FULL, TT_ST_F32));
	for (int i = 0; i < 2; i++)
		TT_CHECK_OK(t, fake_save(f, &o, 2, TT_CKPT_FULL, TT_ST_F32));
	TT_CHECK_INT(t, resumes(t, f, folder), 2);
	TT_CHECK_INT(t, fake_remains(t, folder), 0);
}

/* ---- what is on the disk when ------------------------------------------------------------------------------------------------ */

enum { MAX_FD = 256 };

/* A layer that knows what a power cut would lose. */
typedef struct order_state {
	bool dirty[MAX_FD], folder_fd[MAX_FD], in_tmp[MAX_FD];
	bool tmp, parent; /* entries of these folders not yet on the disk */
	int64_t syncs;
	const char *wrong;
} order_state;

typedef struct order_fs {
	tt_fs fs;
	order_state *s;
} order_fs;

static order_state *order_of(const tt_fs *fs) { return ((const order_fs *)(const void *)fs)->s; }

static int order_open(const tt_fs *fs, const char *path, int flags, int mode)
{
	order_state *s = order_of(fs);
	int fd = tt_fs_posix.open(fs, path, flags, mode);
	if (fd < 0 || fd >= MAX_FD)
		return fd;
	struct stat st;
	s->in_tmp[fd] = strstr(path, ".tmp-step-");
	s->folder_fd[fd] = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
	s->dirty[fd] = flags & O_CREAT;
	if (flags & O_CREAT)
		*(s->in_tmp[fd] ? &s->tmp : &s->parent) = true;
	return fd;
}

static ssize_t order_pwrite(const tt_fs *fs, int fd, const void *p, size_t n, int64_t at)
{
	order_of(fs)->dirty[fd] = true;
	return tt_fs_posix.pwrite(fs, fd, p, n, at);
}

static int order_fsync(const tt_fs *fs, int fd)
{
	order_state *s = order_of(fs);
	s->syncs++;
	s->dirty[fd] = false;
	if (s->folder_fd[fd])
		*(s->in_tmp[fd] ? &s->tmp : &s->parent) = false;
	return 0;
}

static int order_close(const tt_fs *fs, int fd)
{
	if (order_of(fs)->dirty[fd])
		order_of(fs)->wrong = "a file was closed before it was on the disk";
	return tt_fs_posix.close(fs, fd);
}

static int order_rename(const tt_fs *fs, const char *from, const char *to)
{
	order_state *s = order_of(fs);
	if (strstr(from, ".tmp-step-") && s->tmp)
		s->wrong = "a checkpoint was moved into place before its entries were on the disk";
	if (strstr(to, ".tmp-old-") && s->parent)
		s->wrong = "an old checkpoint went before latest was on the disk";
	s->parent = true;
	return tt_fs_posix.rename(fs, from, to);
}

static void order(tt_test *t)
{
	fake *f = fake_new(t, 20000);
	order_state s = { 0 };
	order_fs fs = { tt_fs_posix, &s };
	fs.fs.open = order_open, fs.fs.pwrite = order_pwrite, fs.fs.fsync = order_fsync, fs.fs.close = order_close, fs.fs.rename = order_rename;
	tt_ckpt_options o = fake_options(f, tt_test_path(t, "run"), &fs.fs);
	o.keep_latest_k = 1;
	for (int64_t step = 1; step <= 3; step++) {
		s.syncs = 0;
		TT_CHECK_OK(t, fake_save(f, &o, step, TT_CKPT_FULL, TT_ST_F32));
		TT_CHECK_MSG(t, !s.wrong, "%s", s.wrong);
		/* model, optimizer, config, state, marker, their folder, the run's folder, latest, the run's folder */
		TT_CHECK_INT(t, s.syncs, 9);
	}
}

/* ---- loading ----------------------------------------------------------------------------------------------------------------- */

static void load_faults(tt_test *t)
{
	fake *f = fake_new(t, 20);
	const char *folder = tt_test_path(t, "run");
	tt_ckpt_options o = fake_options(f, folder, NULL);
	o.shard_bytes = 16 * 1024;
	for (int64_t s = 1; s <= 2; s++)
		TT_CHECK_OK(t, fake_save(f, &o, s, TT_CKPT_FULL, TT_ST_F32));
	tt_log_set_sink(ignore, NULL);
	for (int mode = FAULT_EIO; mode <= FAULT_SHORT; mode++) {
		int64_t n = 0, failed = 0;
		for (bool hit = true; hit && !t->failures;) {
			fault_counts c = { .room = -1, .fail_at = ++n, .mode = (fault_mode)mode };
			fault_fs fs = fault_new(&c);
			tt_arena *a = tt_arena_create("load");
			tt_ckpt *ck = NULL;
			fake_set(f, -1);
			tt_status s = tt_ckpt_open(a, &fs.fs, folder, -1, &ck);
			if (s == TT_OK && ck)
				s = tt_ckpt_load(ck, f->t, f->n, 0, fake_write, f);
			hit = c.hit;
			failed += s != TT_OK;
			/* What is said to be loaded is right. "There is none" would start a run from nothing. */
			if (s == TT_OK && TT_CHECK_MSG(t, ck, "call %lld: a run with checkpoints was taken for a fresh one", (long long)n))
				TT_CHECK_INT(t, fake_differs(f, tt_ckpt_get_state(ck)->step, true), -1);
			else
				TT_CHECK_MSG(t, s == TT_OK || tt_error_text()[0], "call %lld: no text", (long long)n);
			tt_arena_destroy(a);
		}
		TT_CHECK_MSG(t, n > 20, "only %lld calls in a load", (long long)n);
		TT_CHECK_MSG(t, mode == FAULT_SHORT ? failed == 0 : failed > 15, "mode %d: %lld loads failed", mode, (long long)failed);
	}
	tt_log_set_sink(NULL, NULL);
	TT_CHECK_INT(t, resumes(t, f, folder), 2);
}

/* ---- a full disk --------------------------------------------------------------------------------------------------------------- */

static int64_t little(const tt_fs *fs, const char *path)
{
	(void)fs, (void)path;
	return 1000;
}

static void full_disk(tt_test *t)
{
	fake *f = fake_new(t, 40000); /* several blocks */
	const char *folder = tt_test_path(t, "run");
	fault_counts c = { .room = -1 };
	fault_fs fs = fault_new(&c);
	tt_ckpt_options o = fake_options(f, folder, &fs.fs);
	TT_CHECK_OK(t, fake_save(f, &o, 1, TT_CKPT_FULL, TT_ST_F32));
	for (int i = 0; i < 2; i++) {
		o.async = i;
		c.room = 9000000;
		TT_CHECK_FAILS(t, fake_save(f, &o, 2, TT_CKPT_FULL, TT_ST_F32), TT_ERR_IO, "No space left");
		TT_CHECK_INT(t, fake_remains(t, folder), 0);
		TT_CHECK_INT(t, resumes(t, f, folder), 1);
	}
	c.room = -1;
	fs.fs.space = little;
	TT_CHECK_FAILS(t, fake_save(f, &o, 2, TT_CKPT_FULL, TT_ST_F32), TT_ERR_IO, "left (checkpoint.keep_latest_k");
	fs.fs.space = fault_space;
	TT_CHECK_OK(t, fake_save(f, &o, 2, TT_CKPT_FULL, TT_ST_F32));
	TT_CHECK_INT(t, resumes(t, f, folder), 2);
	/* The same on a real one, where this user may mount it. */
	const char *mount = tt_test_path(t, "disk");
	tt_ckpt_options real = fake_options(f, tt_arena_printf(t->arena, "%s/run", mount), NULL);
	real.keep_latest_k = 0;
	if (mkdir(mount, 0700) || system(tt_arena_printf(t->arena, "mount -t tmpfs -o size=70m none '%s' 2>/dev/null", mount)))
		return;
	TT_CHECK_OK(t, fake_save(f, &real, 1, TT_CKPT_FULL, TT_ST_F32));
	TT_CHECK_OK(t, fake_save(f, &real, 2, TT_CKPT_FULL, TT_ST_F32));
	TT_CHECK_OK(t, fake_save(f, &real, 3, TT_CKPT_FULL, TT_ST_F32));
	TT_CHECK_FAILS(t, fake_save(f, &real, 4, TT_CKPT_FULL, TT_ST_F32), TT_ERR_IO, "the disk has");
	TT_CHECK_INT(t, resumes(t, f, real.folder), 3);
	TT_CHECK_INT(t, fake_remains(t, real.folder), 0);
	TT_CHECK(t, system(tt_arena_printf(t->arena, "umount '%s'", mount)) == 0);
}

/* ---- before the first save ------------------------------------------------------------------------------------------------------- */

static char lines[4096];

static void keep_line(void *ctx, tt_log_level level, const char *line)
{
	(void)ctx, (void)level;
	snprintf(lines + strlen(lines), sizeof lines - strlen(lines), "%s\n", line);
}

static int64_t room_bytes;

static int64_t room(const tt_fs *fs, const char *path)
{
	(void)fs, (void)path;
	return room_bytes;
}

/* What tt_ckpt_try says of a disk with so much room. */
static tt_status tried(const tt_ckpt_options *o, tt_ckpt_kind kind, int64_t bytes, int64_t saves)
{
	tt_ckpt_writer *w;
	room_bytes = bytes;
	lines[0] = 0;
	TT_TRY(tt_ckpt_writer_create(o, &w));
	tt_log_set_sink(keep_line, NULL);
	tt_status s = tt_ckpt_try(w, kind, TT_ST_F32, saves);
	tt_log_set_sink(NULL, NULL);
	tt_ckpt_writer_destroy(w);
	TT_TRY(s);
	return TT_OK;
}

static void before_saving(tt_test *t)
{
	fake *f = fake_new(t, 40000); /* 20.5 MB, the model half of them */
	fault_counts c = { .room = -1 };
	fault_fs fs = fault_new(&c);
	tt_ckpt_options o = fake_options(f, tt_test_path(t, "run"), &fs.fs);
	/* Every operation that it needs, failing once. */
	for (int64_t n = 1;; n++) {
		c.calls = 0, c.fail_at = n, c.hit = false, c.mode = FAULT_EIO;
		tt_status s = tried(&o, TT_CKPT_FULL, 0, 1);
		c.fail_at = 0;
		if (!c.hit) {
			TT_CHECK_MSG(t, s == TT_OK && n > 4, "%lld calls: %s", (long long)n, tt_error_text());
			break;
		}
	}
	TT_CHECK_INT(t, fake_remains(t, o.folder), 0);
	const int64_t mb = 1000000;
	fs.fs.space = room;
	TT_CHECK_FAILS(t, tried(&o, TT_CKPT_FULL, 20 * mb, 5), TT_ERR_IO, "/run: a checkpoint takes 19.5 MiB, the disk has 19.1 MiB left (checkpoint.keep_latest_k removes older");
	TT_CHECK_OK(t, tried(&o, TT_CKPT_FULL, 21 * mb, 1));
	TT_CHECK_STR(t, lines, "");
	TT_CHECK_OK(t, tried(&o, TT_CKPT_MODEL_ONLY, 11 * mb, 1));
	TT_CHECK_OK(t, tried(&o, TT_CKPT_FULL, -1, 100)); /* a file system that does not say */
	TT_CHECK_STR(t, lines, "");
	/* Two are kept, and a third is there while the next is written; a shorter run needs less. */
	TT_CHECK_OK(t, tried(&o, TT_CKPT_FULL, 60 * mb, 5));
	TT_CHECK_MSG(t, strstr(lines, "/run: 3 more checkpoints of 19.5 MiB will be there at once, 58.6 MiB, and the disk has 57.2 MiB left"), "%s", lines);
	TT_CHECK_OK(t, tried(&o, TT_CKPT_FULL, 62 * mb, 5));
	TT_CHECK_STR(t, lines, "");
	TT_CHECK_OK(t, tried(&o, TT_CKPT_FULL, 60 * mb, 2));
	TT_CHECK_STR(t, lines, "");
	/* One that is there has its room. */
	fs.fs.space = fault_space;
	TT_CHECK_OK(t, fake_save(f, &o, 1, TT_CKPT_FULL, TT_ST_F32));
	fs.fs.space = room;
	TT_CHECK_OK(t, tried(&o, TT_CKPT_FULL, 60 * mb, 5));
	TT_CHECK_STR(t, lines, "");
	o.keep_latest_k = 0;
	TT_CHECK_OK(t, tried(&o, TT_CKPT_FULL, 60 * mb, 5));
	TT_CHECK_MSG(t, strstr(lines, "5 more checkpoints of 19.5 MiB") && strstr(lines, "keep_latest_k = 0 keeps all"), "%s", lines);
}

/* A save that nobody waited for fails while another error is on its way out: that one stays. */
static void error_kept(tt_test *t)
{
	fake *f = fake_new(t, 40000);
	fault_counts c = { .room = 9000000 };
	fault_fs fs = fault_new(&c);
	tt_ckpt_options o = fake_options(f, tt_test_path(t, "run"), &fs.fs);
	o.async = true;
	tt_ckpt_writer *w;
	tt_ckpt_state st = fake_state(1);
	if (!TT_CHECK_OK(t, tt_ckpt_writer_create(&o, &w)) || !TT_CHECK_OK(t, tt_ckpt_save_begin(w, &st, TT_CKPT_FULL, TT_ST_F32)))
		return;
	lines[0] = 0;
	tt_log_set_sink(keep_line, NULL);
	tt_error_set(TT_ERR_USAGE, "other.c", 1, "the first error");
	tt_ckpt_writer_destroy(w);
	tt_log_set_sink(NULL, NULL);
	TT_CHECK_STR(t, tt_error_text(), "the first error");
	TT_CHECK_MSG(t, strstr(lines, "No space left"), "%s", lines);
}

/* Reading the program itself fails, in the writer's thread or in the update's. Nobody may wait for ever. */
static void unreadable_program(tt_test *t)
{
	fake *f = fake_new(t, 40000);
	fault_counts c = { .room = -1 };
	fault_fs fs = fault_new(&c);
	tt_ckpt_options o = fake_options(f, tt_test_path(t, "run"), &fs.fs);
	for (int i = 0; i < 6; i++) {
		o.async = i % 2;
		f->fails = TT_OK;
		TT_CHECK_OK(t, fake_save(f, &o, 1, TT_CKPT_FULL, TT_ST_F32));
		f->fails = TT_ERR_TYPE;
		TT_CHECK_FAILS(t, fake_save(f, &o, 2, TT_CKPT_FULL, TT_ST_F32), TT_ERR_TYPE, "reading was to fail");
		TT_CHECK_INT(t, fake_remains(t, o.folder), 0);
		TT_CHECK_INT(t, resumes(t, f, o.folder), 1);
	}
}

/* ---- killed ---------------------------------------------------------------------------------------------------------------------- */

/* Saves one step after the other and tells each that is done. */
static void saver(fake *f, const char *folder, int64_t first, int report)
{
	fault_counts c = { .room = -1 };
	fault_fs fs = fault_new(&c);
	tt_ckpt_options o = fake_options(f, folder, &fs.fs);
	o.async = true;
	o.keep_latest_k = 1;
	o.staging = TT_CKPT_BLOCK;
	tt_ckpt_writer *w;
	if (tt_ckpt_writer_create(&o, &w) != TT_OK)
		_exit(1);
	for (int64_t step = first;; step++) {
		fake_set(f, step);
		tt_ckpt_state st = fake_state(step);
		bool done;
		tt_ckpt_result r;
		if (tt_ckpt_save_begin(w, &st, TT_CKPT_FULL, TT_ST_F32) != TT_OK)
			_exit(1);
		tt_ckpt_before_update(w);
		fake_set(f, -1);
		if (tt_ckpt_wait(w, &done, &r) != TT_OK || write(report, &step, sizeof step) != sizeof step)
			_exit(1);
	}
}

static void killed(tt_test *t)
{
	fake *f = fake_new(t, 20000); /* 5 MB a tensor: two blocks */
	const char *folder = tt_test_path(t, "run");
	uint64_t rng = t->seed;
	int64_t told = 0, there = 0;
	int times = t->tier == TT_TIER_QUICK ? 5 : 50;
	for (int i = 0; i < times && !t->failures; i++) {
		int pipefd[2];
		if (!TT_CHECK(t, pipe(pipefd) == 0))
			return;
		pid_t pid = fork();
		if (pid == 0) {
			close(pipefd[0]);
			saver(f, folder, there + 1, pipefd[1]);
		}
		close(pipefd[1]);
		int64_t step;
		/* At least one save; then at any moment of the next. */
		if (read(pipefd[0], &step, sizeof step) == sizeof step)
			told = step;
		rng = tt_mix64(rng + 0x9e3779b97f4a7c15u);
		usleep((useconds_t)(rng % 60000));
		kill(pid, SIGKILL);
		int status;
		TT_CHECK(t, waitpid(pid, &status, 0) == pid);
		TT_CHECK_MSG(t, WIFSIGNALED(status), "the saver ended by itself");
		while (read(pipefd[0], &step, sizeof step) == sizeof step)
			told = step;
		close(pipefd[0]);
		there = resumes(t, f, folder);
		TT_CHECK_MSG(t, there >= told, "kill %d: step %lld was said to be saved, step %lld is there", i, (long long)told, (long long)there);
	}
	fault_counts c = { .room = -1 };
	fault_fs fs = fault_new(&c);
	tt_ckpt_options o = fake_options(f, folder, &fs.fs);
	o.keep_latest_k = 1;
	TT_CHECK_OK(t, fake_save(f, &o, there + 1, TT_CKPT_FULL, TT_ST_F32));
	TT_CHECK_INT(t, fake_remains(t, folder), 0);
	int64_t *steps, n;
	TT_CHECK_OK(t, tt_ckpt_list(t->arena, NULL, folder, &steps, &n));
	TT_CHECK_INT(t, n, 1);
}

const tt_case tt_suite_faults[] = {
	{ "save_eio", save_eio, TT_TIER_QUICK },
	{ "save_enospc", save_enospc, TT_TIER_CI },
	{ "save_short", save_short, TT_TIER_CI },
	{ "save_over", save_over, TT_TIER_CI },
	{ "save_crash", save_crash, TT_TIER_QUICK },
	{ "save_over_crash", save_over_crash, TT_TIER_CI },
	{ "order", order, TT_TIER_QUICK },
	{ "without_exchange", without_exchange, TT_TIER_QUICK },
	{ "load_faults", load_faults, TT_TIER_QUICK },
	{ "full_disk", full_disk, TT_TIER_QUICK },
	{ "before_saving", before_saving, TT_TIER_QUICK },
	{ "error_kept", error_kept, TT_TIER_QUICK },
	{ "unreadable_program", unreadable_program, TT_TIER_QUICK },
	{ "killed", killed, TT_TIER_QUICK },
	{ 0 },
};
