/* folder.c: a run's folder of checkpoints: names, `latest`, moving into place, removing. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/machine.h"
#include "ckpt/internal.h"

static const char prefix[] = "step-", temporary[] = ".tmp-";

const char *ckpt_step_name(tt_arena *a, int64_t step) { return tt_arena_printf(a, "%s%08lld", prefix, (long long)step); }

int64_t ckpt_step_of(const char *name)
{
	size_t n = sizeof prefix - 1;
	if (strncmp(name, prefix, n))
		return -1;
	int64_t v = 0;
	int digits = 0;
	const char *first = name + n;
	for (name += n; *name >= '0' && *name <= '9' && digits < 18; name++, digits++)
		v = v * 10 + (*name - '0');
	/* As ckpt_step_name writes it, so that the name can be made from the number again. */
	return *name || digits < 8 || (digits > 8 && *first == '0') ? -1 : v;
}

tt_status ckpt_latest_read(tt_arena *a, const tt_fs *fs, const char *folder, int64_t *out)
{
	const char *path = tt_arena_printf(a, "%s/%s", folder, CKPT_LATEST);
	struct stat st;
	if (fs->stat(fs, path, &st)) {
		if (errno != ENOENT && errno != ENOTDIR)
			TT_FAIL(TT_ERR_IO, "%s: cannot open: %m", path);
		*out = -1;
		return TT_OK;
	}
	*out = -2;
	if (!S_ISREG(st.st_mode) || st.st_size > 64)
		return TT_OK;
	char *text;
	size_t n;
	TT_TRY(tt_fs_read_file(a, fs, path, 64, &text, &n));
	if (n && text[n - 1] == '\n')
		text[--n] = 0;
	int64_t step = strlen(text) == n ? ckpt_step_of(text) : -1;
	if (step >= 0)
		*out = step;
	return TT_OK;
}

tt_status ckpt_latest_write(tt_arena *a, const tt_fs *fs, const char *folder, int64_t step)
{
	const char *path = tt_arena_printf(a, "%s/%s", folder, CKPT_LATEST);
	const char *tmp = tt_arena_printf(a, "%s/%s%s-%d", folder, temporary, CKPT_LATEST, (int)getpid());
	const char *text = tt_arena_printf(a, "%s\n", ckpt_step_name(a, step));
	(void)fs->unlink(fs, tmp);
	tt_status s = tt_fs_write_file(fs, tmp, text, strlen(text));
	if (s == TT_OK)
		s = tt_fs_rename(fs, tmp, path);
	if (s != TT_OK)
		(void)fs->unlink(fs, tmp);
	TT_TRY(s);
	TT_TRY(tt_fs_sync_folder(fs, folder));
	return TT_OK;
}

tt_status ckpt_publish(tt_arena *a, const tt_fs *fs, const char *folder, const char *tmp, int64_t step)
{
	const char *to = tt_arena_printf(a, "%s/%s", folder, ckpt_step_name(a, step));
	if (!tt_fs_exists(fs, to)) {
		TT_TRY(tt_fs_rename(fs, tmp, to));
	} else if (fs->exchange(fs, tmp, to)) {
		/* No swap in one go here: between the two renames this step has no checkpoint, all others stay. */
		const char *aside = tt_arena_printf(a, "%s/%sold-%s-%d", folder, temporary, ckpt_step_name(a, step), (int)getpid());
		TT_TRY(tt_fs_rename(fs, to, aside));
		tt_status s = tt_fs_rename(fs, tmp, to);
		if (s != TT_OK && fs->rename(fs, aside, to))
			tt_log(TT_LOG_WARN, "%s: the checkpoint it held is now %s", to, aside);
		TT_TRY(s);
	}
	TT_TRY(tt_fs_sync_folder(fs, folder));
	return TT_OK;
}

/* The process that a temporary name ends with; -1: not such a name. */
static int owner(const char *name)
{
	const char *dash = strrchr(name, '-');
	if (strncmp(name, temporary, sizeof temporary - 1) || !dash || !dash[1])
		return -1;
	int64_t pid = 0;
	for (const char *p = dash + 1; *p; p++) {
		if (*p < '0' || *p > '9' || pid > INT32_MAX / 10)
			return -1;
		pid = pid * 10 + (*p - '0');
	}
	return (int)pid;
}

/* Does the process `pid` live, and was it there when `made` was? A number goes round: one that began after that is another. A second each way for clocks. */
static bool lives(int pid, const struct timespec *made)
{
	if (kill(pid, 0) != 0 && errno == ESRCH)
		return false;
	int64_t ticks;
	char state = tt_process_state(pid, &ticks);
	if (!state)
		return true; /* it may be hidden */
	if (state == 'Z' || state == 'X') /* killed, and nobody has asked for it yet */
		return false;
	struct timespec up, now;
	clock_gettime(CLOCK_BOOTTIME, &up);
	clock_gettime(CLOCK_REALTIME, &now);
	double age = (double)up.tv_sec + 1e-9 * (double)up.tv_nsec - (double)ticks / (double)sysconf(_SC_CLK_TCK);
	return (double)(now.tv_sec - made->tv_sec) <= age + 2;
}

static void warn_last(void) { tt_log(TT_LOG_WARN, "%s", tt_error_text()); }

void ckpt_clean_stale(const tt_fs *fs, const char *folder)
{
	tt_arena *a = tt_arena_create("clean");
	char **names;
	int64_t n = 0;
	if (tt_fs_names(a, fs, folder, &names, &n) != TT_OK)
		warn_last();
	for (int64_t i = 0; i < n; i++) {
		int pid = owner(names[i]);
		/* This process writes one checkpoint at a time, and this is called between two: what has its number is old. */
		const char *path = tt_arena_printf(a, "%s/%s", folder, names[i]);
		struct stat st = { 0 };
		bool known = pid > 0 && fs->stat(fs, path, &st) == 0, file = known && S_ISREG(st.st_mode);
		if (pid <= 0 || (pid != (int)getpid() && (known ? lives(pid, &st.st_mtim) : kill(pid, 0) == 0 || errno != ESRCH)))
			continue;
		if (file ? fs->unlink(fs, path) != 0 : tt_fs_remove_folder(fs, path) != TT_OK)
			tt_log(TT_LOG_WARN, "%s: an unfinished checkpoint's remains cannot be removed", path);
	}
	tt_arena_destroy(a);
}

/* Renamed first, so that what is half removed does not look like a checkpoint. */
static void remove_step(tt_arena *a, const tt_fs *fs, const char *folder, int64_t step)
{
	const char *name = ckpt_step_name(a, step), *from = tt_arena_printf(a, "%s/%s", folder, name);
	const char *to = tt_arena_printf(a, "%s/%sold-%s-%d", folder, temporary, name, (int)getpid());
	tt_status s = tt_fs_rename(fs, from, to);
	if (s == TT_OK)
		s = tt_fs_remove_folder(fs, to);
	if (s != TT_OK)
		warn_last();
}

void ckpt_prune(const tt_fs *fs, const char *folder, int64_t latest, int64_t keep)
{
	if (keep <= 0)
		return;
	tt_arena *a = tt_arena_create("prune");
	int64_t *steps, n = 0;
	if (tt_ckpt_list(a, fs, folder, &steps, &n) != TT_OK)
		warn_last();
	/* Steps beyond the latest are of a run that was taken up again at an earlier step: they go before all others. */
	int64_t beyond = n;
	while (beyond > 0 && steps[beyond - 1] > latest)
		beyond--;
	int64_t over = n - keep;
	for (int64_t i = beyond; i < n && over > 0; i++, over--)
		remove_step(a, fs, folder, steps[i]);
	for (int64_t i = 0; i < beyond && over > 0; i++)
		if (steps[i] != latest) {
			remove_step(a, fs, folder, steps[i]);
			over--;
		}
	tt_arena_destroy(a);
}

static int step_order(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

tt_status tt_ckpt_list(tt_arena *a, const tt_fs *fs, const char *folder, int64_t **steps, int64_t *n)
{
	fs = fs ? fs : &tt_fs_posix;
	int64_t *list = NULL, count = 0, cap = 0;
	struct stat st;
	if (fs->stat(fs, folder, &st)) {
		if (errno != ENOENT)
			TT_FAIL(TT_ERR_IO, "%s: cannot open: %m", folder);
	} else {
		char **names;
		int64_t k;
		TT_TRY(tt_fs_names(a, fs, folder, &names, &k));
		for (int64_t i = 0; i < k; i++) {
			int64_t step = ckpt_step_of(names[i]);
			if (step >= 0 && tt_fs_exists(fs, tt_arena_printf(a, "%s/%s/%s", folder, names[i], CKPT_COMPLETE)))
				TT_PUSH(a, list, count, cap, step);
		}
		if (count)
			qsort(list, (size_t)count, sizeof *list, step_order);
	}
	*steps = list;
	*n = count;
	return TT_OK;
}
