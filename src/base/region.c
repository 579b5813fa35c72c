/* Regions: address space for tensors, committed on touch, in huge pages where the kernel has them. */
#define _GNU_SOURCE
#include "base/base.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE = 2 * 1024 * 1024 };

static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* What is mapped for a region of n bytes: whole pages. */
static size_t mapped(size_t n)
{
	size_t page = page_size();
	return (n + page - 1) / page * page;
}

tt_status tt_region_open(const char *name, size_t bytes, tt_region *out)
{
	if (bytes == 0) {
		*out = (tt_region){NULL, 0, name};
		return TT_OK;
	}
	/* Transparent huge pages need an aligned range: reserve 2 MiB more and give back both ends. */
	size_t n = mapped(bytes), slack = n >= HUGE ? HUGE : 0;
	if (bytes > (size_t)INT64_MAX / 2)
		TT_FAIL(TT_ERR_MEMORY, "region %s: %zu bytes is more than an address space holds", name, bytes);
	uint8_t *p = mmap(NULL, n + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		TT_FAIL(TT_ERR_MEMORY, "region %s: the system refused %zu bytes of address space (ulimit -v?): %m", name, bytes);
	if (slack) {
		size_t head = (size_t)(-(uintptr_t)p) % HUGE;
		if (head)
			munmap(p, head);
		if (slack - head)
			munmap(p + head + n, slack - head);
		p += head;
		/* Advice only: where it is refused, small pages are right too. */
		(void)madvise(p, n, MADV_HUGEPAGE);
	}
	*out = (tt_region){p, bytes, name};
	return TT_OK;
}

void tt_region_close(tt_region *r)
{
	if (r->p)
		munmap(r->p, mapped(r->n));
	*r = (tt_region){0};
}

/* All ones is a NaN in fp64, fp32, bf16 and fp16, and -1 in the integers: read before written, it shows. */
void tt_region_fill_nan(tt_region *r)
{
	if (r->n)
		memset(r->p, 0xff, r->n);
}

tt_status tt_region_protect(tt_region *r, bool reachable)
{
	if (r->p && mprotect(r->p, mapped(r->n), reachable ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
		TT_FAIL(TT_ERR_MEMORY, "region %s: cannot change the protection of %zu bytes: %m", r->name, r->n);
	return TT_OK;
}

/* ---- how much there is ------------------------------------------------------------------------------------------ */

/* A small text file of the kernel's into buf, NUL-terminated; false if it is not there. */
static bool read_small(const char *path, char *buf, size_t cap)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	size_t n = 0;
	for (ssize_t r; n < cap - 1 && (r = read(fd, buf + n, cap - 1 - n)) > 0;)
		n += (size_t)r;
	close(fd);
	buf[n] = 0;
	return n > 0;
}

int64_t tt_memory_resident(void)
{
	char text[256];
	long long total = 0, resident = 0;
	if (!read_small("/proc/self/statm", text, sizeof text) || sscanf(text, "%lld %lld", &total, &resident) != 2)
		return 0;
	return (int64_t)resident * (int64_t)page_size();
}

/* The smallest number in mount/dir/leaf, for dir and every folder above it. In a container the listed path may not
 * exist under the mount, then only the upper ones are found. */
static int64_t limit_upwards(const char *mount, const char *dir, const char *leaf)
{
	char path[PATH_MAX], text[64], at[PATH_MAX];
	int64_t least = INT64_MAX;
	snprintf(at, sizeof at, "%s", dir);
	for (;;) {
		int n = snprintf(path, sizeof path, "%s%s/%s", mount, at, leaf);
		long long v;
		/* "max", or in v1 a number near 2^63, means no limit. */
		if (n < (int)sizeof path && read_small(path, text, sizeof text) && sscanf(text, "%lld", &v) == 1 && v > 0)
			least = TT_MIN(least, (int64_t)v);
		char *slash = strrchr(at, '/');
		if (!slash)
			return least;
		*slash = 0;
	}
}

int64_t tt_cgroup_limit(const char *list, const char *mount)
{
	char text[4096], v1[PATH_MAX];
	int64_t least = INT64_MAX;
	if (!read_small(list, text, sizeof text))
		return least;
	snprintf(v1, sizeof v1, "%s/memory", mount);
	/* Lines "id:controllers:/path"; v2 has id 0 and no controllers. */
	char *save = NULL;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *names = strchr(line, ':');
		char *dir = names ? strchr(names + 1, ':') : NULL;
		if (!dir)
			continue;
		*dir++ = 0;
		names++;
		if (!*names)
			least = TT_MIN(least, limit_upwards(mount, dir, "memory.max"));
		for (char *end; *names; names = end) {
			end = strchrnul(names, ',');
			if (end - names == 6 && memcmp(names, "memory", 6) == 0)
				least = TT_MIN(least, limit_upwards(v1, dir, "memory.limit_in_bytes"));
			if (*end)
				end++;
		}
	}
	return least;
}

int64_t tt_memory_limit(void)
{
	int64_t ram = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)page_size();
	return TT_MIN(ram, tt_cgroup_limit("/proc/self/cgroup", "/sys/fs/cgroup"));
}
