/* Files: whole reads and writes, folders, read-only mappings. Every error names the path and what the system said. */
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* `pipes`: those may be read, too. Their reads do not wait. */
static tt_status open_file(const char *path, bool pipes, int *fd_out, struct stat *st_out)
{
	struct stat st;
	if (stat(path, &st) != 0)
		TT_FAIL(TT_ERR_IO, "%s: cannot open: %m", path);
	/* Before it is opened: for a FIFO that waits until somebody writes to it. Regular files are opened as they are: with O_NONBLOCK a lease would fail. */
	const char *what = tt_fs_not_file(&st);
	pipes &= S_ISFIFO(st.st_mode);
	if (what && !pipes)
		TT_FAIL(TT_ERR_IO, "%s: is %s, a file is needed", path, what);
	int fd = open(path, O_RDONLY | O_CLOEXEC | (pipes ? O_NONBLOCK : 0));
	if (fd < 0)
		TT_FAIL(TT_ERR_IO, "%s: cannot open: %m", path);
	if (fstat(fd, &st) != 0) {
		tt_error_set(TT_ERR_IO, __FILE__, __LINE__, "%s: cannot stat: %m", path);
		close(fd);
		return TT_ERR_IO;
	}
	*fd_out = fd;
	*st_out = st;
	return TT_OK;
}

/* For what comes next on a pipe; *more false: it has come to its end, or nobody writes to it. */
static tt_status await(int fd, const char *path, bool writer, bool *more)
{
	const int patience_s = writer ? 30 : 1; /* for a program that makes the text; for one that is about to open it */
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int r;
	while ((r = poll(&p, 1, 1000 * patience_s)) < 0 && errno == EINTR)
		;
	if (r == 0)
		TT_FAIL(TT_ERR_IO, "%s: is a FIFO, and %s for %d s: a file is needed", path, writer ? "nothing was written to it" : "nobody wrote to it", patience_s);
	*more = r > 0 && (p.revents & POLLIN);
	return TT_OK;
}

/* Reads at most n bytes; fewer only at the end of the file. `begun`: some of it was read before. */
static tt_status read_some(int fd, const char *path, bool pipe, bool begun, char *p, size_t n, size_t *got)
{
	size_t have = 0;
	while (have < n) {
		ssize_t r = read(fd, p + have, n - have);
		bool idle = r < 0 && errno == EAGAIN, more = true;
		if (r < 0 && errno == EINTR)
			continue;
		if (idle || (r == 0 && pipe && !begun)) {
			TT_TRY(await(fd, path, idle, &more));
			if (more || idle)
				continue;
		}
		if (r < 0)
			TT_FAIL(TT_ERR_IO, "%s: cannot read: %m", path);
		if (r == 0)
			break;
		have += (size_t)r;
		begun = true;
	}
	*got = have;
	return TT_OK;
}

tt_status tt_file_read(tt_arena *a, const char *path, char **out, size_t *n)
{
	int fd;
	struct stat st;
	TT_TRY(open_file(path, true, &fd, &st));
	/* Files under /proc and pipes have no size: the buffer starts small and doubles. A file that is as long as it said
	 * fits at once, its end being seen by asking for one byte more. */
	size_t cap = TT_MAX((size_t)st.st_size, (size_t)4095) + 1, have = 0;
	char *p = tt_arena_alloc(a, cap);
	tt_status s;
	for (;;) {
		size_t got = 0;
		s = read_some(fd, path, S_ISFIFO(st.st_mode), have > 0, p + have, cap - have, &got);
		have += got;
		if (s != TT_OK || have < cap)
			break;
		char *more = tt_arena_alloc(a, cap * 2);
		memcpy(more, p, have);
		p = more;
		cap *= 2;
	}
	close(fd);
	TT_TRY(s);
	p[have] = 0;
	*out = p;
	*n = have;
	return TT_OK;
}

tt_status tt_file_write(const char *path, const void *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0)
		TT_FAIL(TT_ERR_IO, "%s: cannot create: %m", path);
	size_t done = 0;
	while (done < n) {
		ssize_t w = write(fd, (const char *)bytes + done, n - done);
		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0) {
			tt_error_set(TT_ERR_IO, __FILE__, __LINE__, "%s: cannot write (%zu of %zu bytes done): %m", path, done, n);
			close(fd);
			return TT_ERR_IO;
		}
		done += (size_t)w;
	}
	if (close(fd) != 0)
		TT_FAIL(TT_ERR_IO, "%s: cannot close after writing %zu bytes: %m", path, n);
	return TT_OK;
}

tt_status tt_mkdirs(const char *path)
{
	char part[PATH_MAX];
	size_t n = strlen(path);
	if (n == 0)
		TT_FAIL(TT_ERR_IO, "cannot create a folder: its name is empty");
	if (n >= sizeof part)
		TT_FAIL(TT_ERR_IO, "%.64s...: cannot create folder: its name has %zu bytes, the system takes %zu", path, n,
			sizeof part - 1);
	memcpy(part, path, n + 1);
	for (size_t i = 1; i <= n; i++) {
		if (part[i] != '/' && part[i] != 0)
			continue;
		part[i] = 0;
		int made = mkdir(part, 0777), cause = errno;
		if (made != 0) {
			struct stat st;
			bool there = stat(part, &st) == 0;
			if (there && !S_ISDIR(st.st_mode))
				TT_FAIL(TT_ERR_IO, "%s: cannot create folder: %s is a file", path, part);
			if (!there && lstat(part, &st) == 0 && S_ISLNK(st.st_mode))
				TT_FAIL(TT_ERR_IO, "%s: cannot create folder: %s is a link to what is not there (make that, or remove the link)", path, part);
			errno = cause;
			if (!there)
				TT_FAIL(TT_ERR_IO, "%s: cannot create folder %s: %m", path, part);
		}
		part[i] = path[i];
	}
	return TT_OK;
}

tt_status tt_map_open(const char *path, tt_map *out)
{
	int fd;
	struct stat st;
	TT_TRY(open_file(path, false, &fd, &st));
	tt_map m = {(const uint8_t *)"", (size_t)st.st_size}; /* an empty file cannot be mapped, yet p is readable text */
	if (m.n) {
		void *p = mmap(NULL, m.n, PROT_READ, MAP_PRIVATE, fd, 0);
		if (p == MAP_FAILED) {
			tt_error_set(TT_ERR_IO, __FILE__, __LINE__, "%s: cannot map %zu bytes: %m", path, m.n);
			close(fd);
			return TT_ERR_IO;
		}
		m.p = p;
	}
	close(fd);
	*out = m;
	return TT_OK;
}

void tt_map_close(tt_map *m)
{
	if (m->n)
		munmap((void *)(uintptr_t)m->p, m->n);
	*m = (tt_map){0};
}

double tt_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
