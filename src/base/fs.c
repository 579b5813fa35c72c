/* fs.c: the file operations of the system, and what checkpoints do with them. */
#define _GNU_SOURCE
#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* ---- the system's ------------------------------------------------------------------------------------------------------------------ */

static int posix_open(const tt_fs *fs, const char *path, int flags, int mode)
{
	(void)fs;
	return open(path, flags | O_CLOEXEC, mode);
}

static ssize_t posix_pread(const tt_fs *fs, int fd, void *p, size_t n, int64_t at)
{
	(void)fs;
	return pread(fd, p, n, at);
}

static ssize_t posix_pwrite(const tt_fs *fs, int fd, const void *p, size_t n, int64_t at)
{
	(void)fs;
	return pwrite(fd, p, n, at);
}

static int posix_writeback(const tt_fs *fs, int fd, int64_t at, int64_t n)
{
	(void)fs;
	return sync_file_range(fd, at, n, SYNC_FILE_RANGE_WRITE);
}

static int posix_direct(const tt_fs *fs, int fd, bool on)
{
	(void)fs;
	int flags = fcntl(fd, F_GETFL);
	return flags < 0 ? -1 : fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT);
}

static int posix_fsync(const tt_fs *fs, int fd)
{
	(void)fs;
	return fsync(fd);
}

static int posix_close(const tt_fs *fs, int fd)
{
	(void)fs;
	return close(fd);
}

static int posix_rename(const tt_fs *fs, const char *from, const char *to)
{
	(void)fs;
	return rename(from, to);
}

static int posix_exchange(const tt_fs *fs, const char *a, const char *b)
{
	(void)fs;
	return renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
}

static int posix_unlink(const tt_fs *fs, const char *path)
{
	(void)fs;
	return unlink(path);
}

static int posix_mkdir(const tt_fs *fs, const char *path)
{
	(void)fs;
	return mkdir(path, 0777);
}

static int posix_rmdir(const tt_fs *fs, const char *path)
{
	(void)fs;
	return rmdir(path);
}

static int posix_stat(const tt_fs *fs, const char *path, struct stat *out)
{
	(void)fs;
	return stat(path, out);
}

static int posix_list(const tt_fs *fs, const char *path, void (*each)(void *ctx, const char *name), void *ctx)
{
	(void)fs;
	DIR *d = opendir(path);
	if (!d)
		return -1;
	struct dirent *e;
	while (errno = 0, (e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			each(ctx, e->d_name);
	int cause = errno;
	closedir(d);
	errno = cause;
	return cause ? -1 : 0;
}

static int64_t posix_space(const tt_fs *fs, const char *path)
{
	(void)fs;
	struct statvfs s;
	if (statvfs(path, &s))
		return -1;
	int64_t bytes;
	return __builtin_mul_overflow((int64_t)s.f_bavail, (int64_t)s.f_frsize, &bytes) ? INT64_MAX : bytes;
}

const tt_fs tt_fs_posix = {
	.open = posix_open, .pread = posix_pread, .pwrite = posix_pwrite, .writeback = posix_writeback, .direct = posix_direct, .fsync = posix_fsync, .close = posix_close,
	.rename = posix_rename, .exchange = posix_exchange, .unlink = posix_unlink, .mkdir = posix_mkdir, .rmdir = posix_rmdir, .stat = posix_stat,
	.list = posix_list, .space = posix_space,
};

const char *tt_fs_not_file(const struct stat *st)
{
	if (S_ISREG(st->st_mode))
		return NULL;
	return S_ISDIR(st->st_mode) ? "a folder" : S_ISFIFO(st->st_mode) ? "a FIFO" : S_ISSOCK(st->st_mode) ? "a socket" : "a device";
}

/* ---- with texts -------------------------------------------------------------------------------------------------------------------- */

static int open_again(const tt_fs *fs, const char *path, int flags)
{
	int fd;
	do
		fd = fs->open(fs, path, flags, 0666);
	while (fd < 0 && errno == EINTR);
	return fd;
}

tt_status tt_fs_open_write(const tt_fs *fs, const char *path, int *fd)
{
	int f = open_again(fs, path, O_WRONLY | O_CREAT | O_EXCL);
	if (f < 0)
		TT_FAIL(TT_ERR_IO, "%s: cannot create: %m", path);
	*fd = f;
	return TT_OK;
}

tt_status tt_fs_open_read(const tt_fs *fs, const char *path, int *fd)
{
	struct stat st; /* to open a FIFO waits for who writes to it */
	const char *what = fs->stat(fs, path, &st) ? NULL : tt_fs_not_file(&st);
	if (what)
		TT_FAIL(TT_ERR_IO, "%s: is %s, a file is needed", path, what);
	int f = open_again(fs, path, O_RDONLY);
	if (f < 0)
		TT_FAIL(TT_ERR_IO, "%s: cannot open: %m", path);
	*fd = f;
	return TT_OK;
}

tt_status tt_fs_open_there(const tt_fs *fs, const char *path, int *fd)
{
	int f = open_again(fs, path, O_WRONLY);
	if (f < 0)
		TT_FAIL(TT_ERR_IO, "%s: cannot open: %m", path);
	*fd = f;
	return TT_OK;
}

tt_status tt_fs_pwrite(const tt_fs *fs, int fd, const char *path, const void *p, size_t n, int64_t at)
{
	size_t done = 0;
	while (done < n) {
		ssize_t w = fs->pwrite(fs, fd, (const char *)p + done, n - done, at + (int64_t)done);
		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0) {
			if (w == 0)
				errno = ENOSPC; /* nothing written and no cause given: the disk takes no more */
			TT_FAIL(TT_ERR_IO, "%s: cannot write at byte %lld: %m", path, (long long)at + (long long)done);
		}
		done += (size_t)w;
	}
	return TT_OK;
}

tt_status tt_fs_pread(const tt_fs *fs, int fd, const char *path, void *p, size_t n, int64_t at)
{
	size_t done = 0;
	while (done < n) {
		ssize_t r = fs->pread(fs, fd, (char *)p + done, n - done, at + (int64_t)done);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			TT_FAIL(TT_ERR_IO, "%s: cannot read at byte %lld: %m", path, (long long)at + (long long)done);
		if (r == 0)
			TT_FAIL(TT_ERR_FORMAT, "%s: ends at byte %lld, %lld are needed: the file is cut short", path,
				(long long)at + (long long)done, (long long)at + (long long)n);
		done += (size_t)r;
	}
	return TT_OK;
}

static bool aligned(const void *p, size_t n, int64_t at) { return (uintptr_t)p % TT_FS_ALIGN == 0 && n % TT_FS_ALIGN == 0 && at % TT_FS_ALIGN == 0; }

/* One try past the cache: whatever does not come whole is done again through it, where every length is right and errors are final. */
tt_status tt_fs_pwrite_block(const tt_fs *fs, int fd, const char *path, const void *p, size_t n, int64_t at)
{
	if (aligned(p, n, at) && fs->direct(fs, fd, true) == 0) {
		ssize_t w = fs->pwrite(fs, fd, p, n, at);
		int cause = w < 0 ? errno : 0;
		if (fs->direct(fs, fd, false))
			TT_FAIL(TT_ERR_IO, "%s: cannot leave direct mode: %m", path);
		errno = cause;
		if (w == (ssize_t)n)
			return TT_OK;
		if (cause && cause != EINVAL && cause != EINTR && cause != EOPNOTSUPP)
			TT_FAIL(TT_ERR_IO, "%s: cannot write at byte %lld: %m", path, (long long)at);
	}
	TT_TRY(tt_fs_pwrite(fs, fd, path, p, n, at));
	(void)fs->writeback(fs, fd, at, (int64_t)n);
	return TT_OK;
}

tt_status tt_fs_pread_block(const tt_fs *fs, int fd, const char *path, void *p, size_t n, int64_t at)
{
	if (aligned(p, n, at) && fs->direct(fs, fd, true) == 0) {
		ssize_t r = fs->pread(fs, fd, p, n, at);
		int cause = r < 0 ? errno : 0;
		if (fs->direct(fs, fd, false))
			TT_FAIL(TT_ERR_IO, "%s: cannot leave direct mode: %m", path);
		errno = cause;
		if (r == (ssize_t)n)
			return TT_OK;
		if (cause && cause != EINVAL && cause != EINTR && cause != EOPNOTSUPP)
			TT_FAIL(TT_ERR_IO, "%s: cannot read at byte %lld: %m", path, (long long)at);
	}
	return tt_fs_pread(fs, fd, path, p, n, at);
}

tt_status tt_fs_sync(const tt_fs *fs, int fd, const char *path)
{
	int r;
	do
		r = fs->fsync(fs, fd);
	while (r && errno == EINTR);
	/* A failed fsync is final: the kernel may have dropped the pages, another fsync would say all is well. */
	if (r)
		TT_FAIL(TT_ERR_IO, "%s: cannot bring to the disk: %m", path);
	return TT_OK;
}

void tt_fs_close(const tt_fs *fs, int fd)
{
	if (fd >= 0)
		(void)fs->close(fs, fd);
}

tt_status tt_fs_sync_folder(const tt_fs *fs, const char *path)
{
	int fd = open_again(fs, path, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		TT_FAIL(TT_ERR_IO, "%s: cannot open: %m", path);
	tt_status s = tt_fs_sync(fs, fd, path);
	tt_fs_close(fs, fd);
	TT_TRY(s);
	return TT_OK;
}

tt_status tt_fs_rename(const tt_fs *fs, const char *from, const char *to)
{
	if (fs->rename(fs, from, to))
		TT_FAIL(TT_ERR_IO, "%s: cannot rename to %s: %m", from, to);
	return TT_OK;
}

tt_status tt_fs_write_file(const tt_fs *fs, const char *path, const void *bytes, size_t n)
{
	int fd;
	TT_TRY(tt_fs_open_write(fs, path, &fd));
	tt_status s = tt_fs_pwrite(fs, fd, path, bytes, n, 0);
	if (s == TT_OK)
		s = tt_fs_sync(fs, fd, path);
	tt_fs_close(fs, fd);
	TT_TRY(s);
	return TT_OK;
}

tt_status tt_fs_read_file(tt_arena *a, const tt_fs *fs, const char *path, size_t most, char **out, size_t *n)
{
	struct stat st;
	if (fs->stat(fs, path, &st))
		TT_FAIL(TT_ERR_IO, "%s: cannot open: %m", path);
	if (tt_fs_not_file(&st))
		TT_FAIL(TT_ERR_IO, "%s: is %s, a file is needed", path, tt_fs_not_file(&st));
	if ((uint64_t)st.st_size > most)
		TT_FAIL(TT_ERR_FORMAT, "%s: %lld bytes, at most %zu are read", path, (long long)st.st_size, most);
	int fd;
	TT_TRY(tt_fs_open_read(fs, path, &fd));
	char *p = tt_arena_alloc(a, (size_t)st.st_size + 1);
	tt_status s = tt_fs_pread(fs, fd, path, p, (size_t)st.st_size, 0);
	tt_fs_close(fs, fd);
	TT_TRY(s);
	*out = p;
	*n = (size_t)st.st_size;
	return TT_OK;
}

tt_status tt_fs_mkdirs(const tt_fs *fs, const char *path)
{
	char part[PATH_MAX];
	size_t n = strlen(path);
	if (n == 0 || n >= sizeof part)
		TT_FAIL(TT_ERR_IO, "cannot create a folder whose name has %zu bytes", n);
	memcpy(part, path, n + 1);
	for (size_t i = 1; i <= n; i++) {
		if (part[i] != '/' && part[i] != 0)
			continue;
		part[i] = 0;
		if (fs->mkdir(fs, part) && errno != EEXIST) {
			/* Some file systems say "read-only" or "no permission" of what is there already. */
			int cause = errno;
			bool there = tt_fs_exists(fs, part);
			errno = cause;
			if (!there)
				TT_FAIL(TT_ERR_IO, "%s: cannot create folder %s: %m", path, part);
		}
		part[i] = path[i];
	}
	return TT_OK;
}

bool tt_fs_exists(const tt_fs *fs, const char *path)
{
	struct stat st;
	return fs->stat(fs, path, &st) == 0;
}

typedef struct names {
	tt_arena *a;
	char **items;
	int64_t n, cap;
} names;

static void names_add(void *ctx, const char *name)
{
	names *v = ctx;
	TT_PUSH(v->a, v->items, v->n, v->cap, tt_arena_strdup(v->a, name));
}

static int names_order(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

tt_status tt_fs_names(tt_arena *a, const tt_fs *fs, const char *path, char ***out, int64_t *n)
{
	names v = { .a = a };
	if (fs->list(fs, path, names_add, &v))
		TT_FAIL(TT_ERR_IO, "%s: cannot list: %m", path);
	if (v.n)
		qsort(v.items, (size_t)v.n, sizeof *v.items, names_order);
	*out = v.items;
	*n = v.n;
	return TT_OK;
}

tt_status tt_fs_remove_folder(const tt_fs *fs, const char *path)
{
	tt_arena *a = tt_arena_create("remove");
	char **list;
	int64_t n;
	tt_status s = tt_fs_names(a, fs, path, &list, &n);
	for (int64_t i = 0; i < n && s == TT_OK; i++) {
		const char *file = tt_arena_printf(a, "%s/%s", path, list[i]);
		if (fs->unlink(fs, file) && errno != ENOENT)
			s = tt_error_set(TT_ERR_IO, __FILE__, __LINE__, "%s: cannot remove: %m", file);
	}
	if (s == TT_OK && fs->rmdir(fs, path))
		s = tt_error_set(TT_ERR_IO, __FILE__, __LINE__, "%s: cannot remove folder: %m", path);
	tt_arena_destroy(a);
	TT_TRY(s);
	return TT_OK;
}

tt_status tt_fs_temp(tt_arena *a, const char *name, char **out)
{
	const char *tmp = getenv("TMPDIR");
	char *path = tt_arena_printf(a, "%s/%s-XXXXXX", tmp && *tmp ? tmp : "/tmp", name);
	if (!mkdtemp(path))
		TT_FAIL(TT_ERR_IO, "%s: cannot be made: %m (TMPDIR)", path);
	*out = path;
	return TT_OK;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

void tt_fs_temp_remove(const char *path) { (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }
