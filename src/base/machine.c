/* machine.c: facts from /proc and /sys. */
#define _GNU_SOURCE
#include "base/machine.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { MAX_CPUS = 8192, MOST_TEXT = 4 * 1024 * 1024 };

typedef struct cpu_set { uint64_t bits[MAX_CPUS / 64]; } cpu_set;

/* ---- small files --------------------------------------------------------------------------------------------------------- */

/* root + the formatted path as text; false, with an empty text, if it cannot be read. */
__attribute__((format(printf, 3, 4))) static bool slurp(tt_buf *b, const char *root, const char *fmt, ...)
{
	char tail[PATH_MAX], path[PATH_MAX];
	va_list ap;
	va_start(ap, fmt);
	int m = vsnprintf(tail, sizeof tail, fmt, ap);
	va_end(ap);
	b->n = 0;
	tt_buf_add(b, "", 0);
	if (m < 0 || m >= (int)sizeof tail || snprintf(path, sizeof path, "%s%s", root, tail) >= (int)sizeof path)
		return false;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	char part[4096];
	ssize_t r = 0;
	while (b->n < MOST_TEXT && ((r = read(fd, part, sizeof part)) > 0 || (r < 0 && errno == EINTR)))
		if (r > 0)
			tt_buf_add(b, part, (size_t)r);
	close(fd);
	/* A NUL within would end the text for everything that reads it. */
	for (size_t i = 0; i < b->n; i++)
		if (!b->s[i])
			b->s[i] = ' ';
	return b->n > 0;
}

/* The first word of a file. */
__attribute__((format(printf, 4, 5))) static bool word_of(char *out, size_t n, const char *root, const char *fmt, ...)
{
	char path[PATH_MAX];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(path, sizeof path, fmt, ap);
	va_end(ap);
	tt_buf b = { 0 };
	bool there = slurp(&b, root, "%s", path);
	const char *s = b.s + strspn(b.s, " \t\n");
	snprintf(out, n, "%.*s", (int)TT_MIN(strcspn(s, " \t\n"), n - 1), s);
	tt_buf_fini(&b);
	return there && *out;
}

/* A number; "max", "unlimited" and what is too large are INT64_MAX. */
static bool number(const char *s, int64_t *out)
{
	s += strspn(s, " \t");
	if (!strncmp(s, "max", 3) || !strncmp(s, "unlimited", 9)) {
		*out = INT64_MAX;
		return true;
	}
	char *end;
	errno = 0;
	long long v = strtoll(s, &end, 10);
	if (end == s)
		return false;
	*out = v;
	return true;
}

static bool number_of(const char *root, const char *dir, const char *leaf, int64_t *out)
{
	char w[64], path[PATH_MAX];
	int n = snprintf(path, sizeof path, "%s/%s", dir, leaf);
	return n < (int)sizeof path && word_of(w, sizeof w, root, "%s", path) && number(w, out);
}

/* The value of the first line "key<sep>value" of a text; NULL if there is none. Ends at the line's end, not at a NUL. */
static const char *line_value(const char *text, const char *key, const char *sep)
{
	size_t n = strlen(key);
	for (const char *s = text; s && *s; s = strchr(s, '\n') ? strchr(s, '\n') + 1 : NULL) {
		if (strncmp(s, key, n))
			continue;
		const char *v = s + n;
		v += strspn(v, " \t");
		if (*sep && *v != *sep)
			continue;
		v += *sep ? 1 : 0;
		return v + strspn(v, " \t");
	}
	return NULL;
}

static void line_copy(const char *text, const char *key, char *out, size_t n)
{
	const char *v = line_value(text, key, ":");
	snprintf(out, n, "%.*s", v ? (int)TT_MIN(strcspn(v, "\n"), n - 1) : 0, v ? v : "");
}

static int64_t line_number(const char *text, const char *key, const char *sep, int64_t otherwise)
{
	const char *v = line_value(text, key, sep);
	int64_t x;
	return v && number(v, &x) ? x : otherwise;
}

/* "0-3,8": bits of a set; returns how many are new. */
static int list_parse(const char *s, cpu_set *out)
{
	memset(out, 0, sizeof *out);
	int n = 0;
	while (isdigit((unsigned char)*s)) {
		char *end;
		unsigned long from = strtoul(s, &end, 10), to = from;
		if (*end == '-')
			to = strtoul(end + 1, &end, 10);
		for (unsigned long i = from; i <= to && i < MAX_CPUS; i++) {
			n += !(out->bits[i / 64] >> (i % 64) & 1);
			out->bits[i / 64] |= 1ull << (i % 64);
		}
		s = *end == ',' ? end + 1 : end;
	}
	return n;
}

static bool set_has(const cpu_set *s, int i) { return s->bits[i / 64] >> (i % 64) & 1; }

static int set_first_common(const cpu_set *a, const cpu_set *b)
{
	for (int i = 0; i < MAX_CPUS / 64; i++)
		if (a->bits[i] & b->bits[i])
			return i * 64 + __builtin_ctzll(a->bits[i] & b->bits[i]);
	return -1;
}

/* ---- the processor ---------------------------------------------------------------------------------------------------------- */

static void read_cpuinfo(const char *root, tt_buf *b, tt_machine *m)
{
	static const char *const wanted[] = { "sse2", "avx", "avx2", "fma", "f16c", "bmi2", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni",
		"avx512_bf16", "avx512_fp16", "avx_vnni", "amx_tile", "amx_bf16", "amx_int8", "asimd", "fphp", "asimdhp", "sve", "sve2", "bf16", "i8mm" };
	slurp(b, root, "/proc/cpuinfo");
	line_copy(b->s, "model name", m->cpu, sizeof m->cpu);
	line_copy(b->s, "vendor_id", m->vendor, sizeof m->vendor);
	line_copy(b->s, "microcode", m->microcode, sizeof m->microcode);
	m->family = (int)line_number(b->s, "cpu family", ":", 0);
	m->model = (int)line_number(b->s, "model", ":", 0);
	m->stepping = (int)line_number(b->s, "stepping", ":", 0);
	if (!*m->vendor) { /* ARM */
		line_copy(b->s, "CPU implementer", m->vendor, sizeof m->vendor);
		line_copy(b->s, "CPU revision", m->microcode, sizeof m->microcode);
		const char *part = line_value(b->s, "CPU part", ":");
		m->model = part ? (int)strtol(part, NULL, 0) : 0;
	}
	const char *flags = line_value(b->s, "flags", ":");
	if (!flags)
		flags = line_value(b->s, "Features", ":");
	if (!flags)
		return;
	const char *end = flags + strcspn(flags, "\n");
	size_t used = 0;
	for (const char *s = flags; s < end; s += strspn(s, " ")) {
		size_t n = (size_t)(TT_MIN(strchrnul(s, ' '), end) - s);
		for (int i = 0; i < TT_COUNT(wanted); i++)
			if (strlen(wanted[i]) == n && !strncmp(wanted[i], s, n) && used + n + 2 < sizeof m->features)
				used += (size_t)snprintf(m->features + used, sizeof m->features - used, "%s%s", used ? " " : "", wanted[i]);
		m->hypervisor |= n == 10 && !strncmp(s, "hypervisor", n);
		s += n;
	}
}

/* How many of the groups that `leaf` lists, one file per CPU, hold an allowed CPU. */
static int groups_of(const char *root, tt_buf *b, const cpu_set *allowed, const char *leaf)
{
	int n = 0;
	for (int c = 0; c < MAX_CPUS; c++) {
		cpu_set group;
		if (set_has(allowed, c) && slurp(b, root, "/sys/devices/system/cpu/cpu%d/%s", c, leaf) && list_parse(b->s, &group))
			n += set_first_common(&group, allowed) == c;
	}
	return n;
}

static void read_caches(const char *root, tt_buf *b, const cpu_set *allowed, int first, tt_machine *m)
{
	for (int i = 0; i < TT_MACHINE_CACHES; i++) {
		tt_cache *c = &m->caches[m->ncaches];
		char size[32], dir[128], leaf[64];
		int64_t level;
		cpu_set shared;
		snprintf(dir, sizeof dir, "/sys/devices/system/cpu/cpu%d/cache/index%d", first, i);
		if (!number_of(root, dir, "level", &level) || !word_of(size, sizeof size, root, "%s/size", dir) || !number(size, &c->bytes))
			break;
		c->level = (int)level;
		char unit = size[strspn(size, "0123456789")];
		c->bytes *= unit == 'K' ? TT_KIB : unit == 'M' ? TT_MIB : 1;
		word_of(c->type, sizeof c->type, root, "%s/type", dir);
		c->cpus = slurp(b, root, "%s/shared_cpu_list", dir) ? list_parse(b->s, &shared) : 1;
		snprintf(leaf, sizeof leaf, "cache/index%d/shared_cpu_list", i);
		c->instances = TT_MAX(1, groups_of(root, b, allowed, leaf));
		m->ncaches++;
	}
}

static void read_topology(const char *root, tt_buf *b, tt_machine *m)
{
	cpu_set allowed, online, group, nodes;
	slurp(b, root, "/proc/self/status");
	const char *v = line_value(b->s, "Cpus_allowed_list", ":");
	m->cpus_allowed = list_parse(v ? v : "", &allowed);
	slurp(b, root, "/sys/devices/system/cpu/online");
	m->cpus_online = list_parse(b->s, &online);
	int first = set_first_common(&allowed, &allowed);
	first = first < 0 ? 0 : first;
	m->threads_per_core = slurp(b, root, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", first) ? list_parse(b->s, &group) : 0;
	m->cores_allowed = groups_of(root, b, &allowed, "topology/thread_siblings_list");
	read_caches(root, b, &allowed, first, m);
	slurp(b, root, "/sys/devices/system/node/online");
	m->numa_nodes = list_parse(b->s, &nodes);
	for (int i = 0; i < MAX_CPUS; i++)
		if (set_has(&nodes, i) && slurp(b, root, "/sys/devices/system/node/node%d/cpulist", i) && list_parse(b->s, &group))
			m->numa_nodes_allowed += set_first_common(&group, &allowed) >= 0;
	char dir[96];
	snprintf(dir, sizeof dir, "/sys/devices/system/cpu/cpu%d/cpufreq", first);
	word_of(m->governor, sizeof m->governor, root, "%s/scaling_governor", dir);
	word_of(m->frequency_driver, sizeof m->frequency_driver, root, "%s/scaling_driver", dir);
	if (!number_of(root, dir, "scaling_max_freq", &m->frequency_cap) || !number_of(root, dir, "cpuinfo_max_freq", &m->frequency_most))
		m->frequency_cap = m->frequency_most = 0;
}

/* ---- cgroups --------------------------------------------------------------------------------------------------------------------- */

typedef struct groups {
	const char *root;
	tt_machine *m;
} groups;

/* v1 says "no limit" with a number near 2^63. */
static const int64_t no_limit = (int64_t)1 << 60;

static void memory_group(groups *g, const char *dir)
{
	int64_t limit, used, cold;
	if ((!number_of(g->root, dir, "memory.max", &limit) && !number_of(g->root, dir, "memory.limit_in_bytes", &limit)) || limit >= no_limit ||
		limit >= g->m->cgroup_memory.soft)
		return;
	if (!number_of(g->root, dir, "memory.current", &used) && !number_of(g->root, dir, "memory.usage_in_bytes", &used))
		used = -1;
	tt_buf b = { 0 };
	if (used >= 0 && slurp(&b, g->root, "%s/memory.stat", dir)) {
		cold = line_number(b.s, "total_inactive_file", "", -1);
		cold = cold < 0 ? line_number(b.s, "inactive_file", "", 0) : cold;
		used = TT_MAX(0, used - cold);
	}
	tt_buf_fini(&b);
	g->m->cgroup_memory = (tt_limit){ limit, used };
}

static void cpu_group(groups *g, const char *dir)
{
	int64_t quota, period = 100000;
	tt_buf b = { 0 };
	bool there = false;
	if (slurp(&b, g->root, "%s/cpu.max", dir)) { /* "max 100000" or "150000 100000" */
		there = number(b.s, &quota) && number(b.s + strcspn(b.s, " \n"), &period);
	} else {
		there = number_of(g->root, dir, "cpu.cfs_quota_us", &quota) && number_of(g->root, dir, "cpu.cfs_period_us", &period);
	}
	tt_buf_fini(&b);
	if (!there || quota <= 0 || quota >= no_limit || period <= 0)
		return;
	double cores = (double)quota / (double)period;
	if (g->m->cpu_quota == 0 || cores < g->m->cpu_quota)
		g->m->cpu_quota = cores;
}

static void tasks_group(groups *g, const char *dir)
{
	tt_limit l;
	if (!number_of(g->root, dir, "pids.max", &l.soft) || l.soft >= g->m->cgroup_tasks.soft)
		return;
	if (!number_of(g->root, dir, "pids.current", &l.used))
		l.used = -1;
	g->m->cgroup_tasks = l;
}

/* Calls fn for the folder of a group and of all above it. In a container the listed path may not exist below the mount, then only the
 * upper ones are there. */
static void upwards(groups *g, const char *mount, const char *group, void (*fn)(groups *, const char *))
{
	char at[PATH_MAX], dir[PATH_MAX];
	snprintf(at, sizeof at, "%s", !strcmp(group, "/") ? "" : group);
	for (;;) {
		if (snprintf(dir, sizeof dir, "%s%s", mount, at) < (int)sizeof dir)
			fn(g, dir);
		char *slash = strrchr(at, '/');
		if (!slash)
			return;
		*slash = 0;
	}
}

static void read_cgroups(const char *root, tt_buf *b, tt_machine *m)
{
	static const struct { const char *name; void (*fn)(groups *, const char *); } controllers[] = {
		{ "memory", memory_group }, { "cpu", cpu_group }, { "pids", tasks_group } };
	groups g = { root, m };
	slurp(b, root, "/proc/self/cgroup");
	/* Lines "id:controllers:/path"; v2 has id 0 and no controllers. */
	char *save = NULL;
	for (char *line = strtok_r(b->s, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
		if (!path)
			continue;
		*path++ = 0;
		names++;
		for (int i = 0; i < TT_COUNT(controllers); i++) {
			char mount[PATH_MAX];
			if (!*names) {
				upwards(&g, "/sys/fs/cgroup", path, controllers[i].fn);
				upwards(&g, "/sys/fs/cgroup/unified", path, controllers[i].fn);
				continue;
			}
			size_t n = strlen(controllers[i].name);
			for (const char *s = names; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL)
				if (!strncmp(s, controllers[i].name, n) && (s[n] == ',' || !s[n])) {
					/* Mounted under its own name, often a link, or under all names of the hierarchy. */
					snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", controllers[i].name);
					upwards(&g, mount, path, controllers[i].fn);
					if (snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", names) < (int)sizeof mount)
						upwards(&g, mount, path, controllers[i].fn);
				}
		}
	}
}

/* ---- memory, limits, system ----------------------------------------------------------------------------------------------------------- */

static int64_t kib(const char *text, const char *key)
{
	int64_t v = line_number(text, key, ":", 0);
	return v > 0 && v < INT64_MAX / 1024 ? v * 1024 : 0;
}

/* The word in brackets of "always [madvise] never". */
static void chosen(const char *root, const char *path, char *out, size_t n)
{
	tt_buf b = { 0 };
	slurp(&b, root, "%s", path);
	const char *from = strchr(b.s, '['), *to = from ? strchr(from, ']') : NULL;
	snprintf(out, n, "%.*s", to ? (int)TT_MIN((size_t)(to - from - 1), n - 1) : 0, to ? from + 1 : "");
	tt_buf_fini(&b);
}

static void read_system(const char *root, tt_buf *b, tt_machine *m)
{
	slurp(b, root, "/proc/meminfo");
	m->ram = kib(b->s, "MemTotal");
	m->available = kib(b->s, "MemAvailable");
	m->swap = kib(b->s, "SwapTotal");
	m->swap_free = kib(b->s, "SwapFree");
	chosen(root, "/sys/kernel/mm/transparent_hugepage/enabled", m->huge_pages, sizeof m->huge_pages);
	chosen(root, "/sys/kernel/mm/transparent_hugepage/defrag", m->huge_defrag, sizeof m->huge_defrag);
	int64_t v;
	if (number_of(root, "/proc/sys/vm", "overcommit_memory", &v))
		m->overcommit = (int)v;
	if (number_of(root, "/sys/fs/selinux", "enforce", &v))
		m->selinux = v == 1;
	slurp(b, root, "/proc/self/limits");
	m->memory_lock = line_number(b->s, "Max locked memory", "", INT64_MAX);
	m->open_files = line_number(b->s, "Max open files", "", INT64_MAX);
	m->address_space = line_number(b->s, "Max address space", "", INT64_MAX);
	m->file_size = line_number(b->s, "Max file size", "", INT64_MAX);
	m->processes.soft = line_number(b->s, "Max processes", "", INT64_MAX);
	/* "0.31 0.40 0.22 2/345 6789": tasks on this system, an upper bound of this user's. */
	if (slurp(b, root, "/proc/loadavg")) {
		m->load1 = strtod(b->s, NULL);
		const char *slash = strchr(b->s, '/');
		if (slash && number(slash + 1, &v))
			m->processes.used = v;
	}
	word_of(m->kernel, sizeof m->kernel, root, "/proc/sys/kernel/osrelease");
	if (!word_of(m->container, sizeof m->container, root, "/run/systemd/container")) {
		static const char *const marks[][2] = { { "/.dockerenv", "docker" }, { "/run/.containerenv", "podman" } };
		for (int i = 0; i < TT_COUNT(marks); i++) {
			char path[PATH_MAX];
			if (snprintf(path, sizeof path, "%s%s", root, marks[i][0]) < (int)sizeof path && !access(path, F_OK))
				snprintf(m->container, sizeof m->container, "%s", marks[i][1]);
		}
	}
}

static int usable_threads(const tt_machine *m)
{
	int n = m->cpus_allowed ? m->cpus_allowed : m->cpus_online;
	if (m->cpu_quota > 0 && m->cpu_quota < n)
		n = (int)m->cpu_quota;
	return TT_MAX(1, n);
}

void tt_machine_read(const char *root, tt_machine *out)
{
	tt_buf b = { 0 };
	memset(out, 0, sizeof *out);
	out->cgroup_memory = out->cgroup_tasks = out->processes = (tt_limit){ INT64_MAX, -1 };
	read_cpuinfo(root, &b, out);
	read_topology(root, &b, out);
	read_cgroups(root, &b, out);
	read_system(root, &b, out);
	tt_buf_fini(&b);
	out->threads = usable_threads(out);
}

int tt_machine_threads(void)
{
	tt_machine m = { 0 };
	tt_buf b = { 0 };
	m.cgroup_memory = m.cgroup_tasks = m.processes = (tt_limit){ INT64_MAX, -1 };
	read_topology("", &b, &m);
	read_cgroups("", &b, &m);
	tt_buf_fini(&b);
	return usable_threads(&m);
}

void tt_machine_signature(const tt_machine *m, char *out, size_t n)
{
	snprintf(out, n, "%s %d/%d/%d %s %s", m->vendor, m->family, m->model, m->stepping, *m->microcode ? m->microcode : "-", m->cpu);
}

int64_t tt_machine_last_cache(const tt_machine *m)
{
	int level = 0;
	int64_t bytes = 0;
	for (int i = 0; i < m->ncaches; i++)
		if (m->caches[i].level > level && strcmp(m->caches[i].type, "Instruction")) {
			level = m->caches[i].level;
			bytes = m->caches[i].bytes * m->caches[i].instances;
		}
	return bytes;
}

bool tt_machine_exec_memory(void)
{
	size_t n = (size_t)sysconf(_SC_PAGESIZE);
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return false;
	bool may = mprotect(p, n, PROT_READ | PROT_EXEC) == 0;
	munmap(p, n);
	return may;
}

/* ---- disks ---------------------------------------------------------------------------------------------------------------------------------- */

/* Blanks and backslashes of a mount point are written \040: in place. */
static void unescape(char *s)
{
	char *to = s;
	for (; *s; s++)
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' && s[3] <= '7') {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	*to = 0;
}

static bool has_option(const char *options, const char *name)
{
	size_t n = strlen(name);
	for (const char *s = options; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL)
		if (!strncmp(s, name, n) && (s[n] == ',' || !s[n]))
			return true;
	return false;
}

/* The mount that a folder is on: the longest mount point that is a prefix; of equals the last, which hides those before. */
static void find_mount(const char *root, tt_disk *d)
{
	static const char *const networks[] = { "nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "gpfs", "beegfs", "9p", "fuse.sshfs", "glusterfs" };
	tt_buf b = { 0 };
	slurp(&b, root, "/proc/self/mounts");
	size_t best = 0;
	char *save = NULL;
	for (char *line = strtok_r(b.s, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *fields = NULL;
		char *device = strtok_r(line, " ", &fields), *point = strtok_r(NULL, " ", &fields), *type = strtok_r(NULL, " ", &fields),
		     *options = strtok_r(NULL, " ", &fields);
		if (!device || !point || !type || !options)
			continue;
		unescape(point);
		size_t n = strlen(point);
		while (n > 1 && point[n - 1] == '/')
			n--;
		if (n < best || strncmp(point, d->at, n) || (n > 1 && d->at[n] && d->at[n] != '/'))
			continue;
		best = n;
		snprintf(d->type, sizeof d->type, "%s", type);
		d->read_only = has_option(options, "ro");
		d->noexec = has_option(options, "noexec");
	}
	tt_buf_fini(&b);
	d->in_memory = !strcmp(d->type, "tmpfs") || !strcmp(d->type, "ramfs");
	d->overlay = !strcmp(d->type, "overlay") || !strcmp(d->type, "aufs");
	for (int i = 0; i < TT_COUNT(networks); i++)
		d->network |= !strcmp(d->type, networks[i]);
}

bool tt_machine_disk(const char *root, const char *path, tt_disk *out)
{
	char at[PATH_MAX], real[PATH_MAX];
	tt_disk d = { 0 };
	if (*path && snprintf(at, sizeof at, "%s%s", *path == '/' ? "" : "./", path) >= (int)sizeof at)
		return false;
	if (!*path)
		snprintf(at, sizeof at, ".");
	/* Up to what exists; "/" and "." always do. */
	while (!realpath(at, real)) {
		char *slash = strrchr(at, '/');
		if (!slash)
			return false;
		if (slash == at)
			slash++;
		if (!*slash)
			return false;
		*slash = 0;
	}
	struct statvfs v;
	if (strlen(real) >= sizeof d.at || statvfs(real, &v))
		return false;
	snprintf(d.at, sizeof d.at, "%.*s", (int)sizeof d.at - 1, real);
	d.bytes = (int64_t)v.f_blocks * (int64_t)v.f_frsize;
	d.free = (int64_t)v.f_bavail * (int64_t)v.f_frsize;
	d.files_free = v.f_files ? (int64_t)v.f_favail : -1;
	d.writable = !access(real, W_OK);
	find_mount(root, &d);
	*out = d;
	return true;
}

char tt_process_state(int64_t pid, int64_t *born)
{
	char path[64], line[1024];
	snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return 0;
	size_t n = fread(line, 1, sizeof line - 1, f);
	fclose(f);
	line[n] = 0;
	char *at = strrchr(line, ')'); /* the name before it may hold anything */
	char state = 0;
	long long start = 0;
	if (!at || sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %lld", &state, &start) != 2)
		return 0;
	*born = start;
	return state;
}
