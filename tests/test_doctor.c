/* test_doctor.c: facts of machines that are made of files, the finding that each limit gives, peaks and their cache, the report. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/version.h"
#include "cli/doctor.h"
#include "ops/ops.h"
#include "test.h"

/* ---- a machine of files ------------------------------------------------------------------------------------------------------ */

static void put(tt_test *t, const char *root, const char *name, const char *text)
{
	char *path = tt_arena_printf(t->arena, "%s%s", root, name);
	char *folder = tt_arena_strndup(t->arena, path, (size_t)(strrchr(path, '/') - path));
	TT_CHECK_OK(t, tt_mkdirs(folder));
	TT_CHECK_OK(t, tt_file_write(path, text, strlen(text)));
}

static const char limits_text[] =
	"Limit                     Soft Limit           Hard Limit           Units     \n"
	"Max file size             unlimited            unlimited            bytes     \n"
	"Max processes             96365                96365                processes \n"
	"Max open files            20000                20000                files     \n"
	"Max locked memory         8388608              8388608              bytes     \n"
	"Max address space         unlimited            unlimited            bytes     \n";

/* Four cores in a v2 cgroup, nothing that would hurt. */
static const char *healthy(tt_test *t, const char *name)
{
	const char *root = tt_test_path(t, name);
	put(t, root, "/proc/cpuinfo",
		"processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Made of Files @ 2.00GHz\nstepping\t: 8\n"
		"microcode\t: 0x2b\nflags\t\t: fpu sse2 avx2 fma hypervisor avx512f avx512_bf16 amx_bf16x\n\nprocessor\t: 1\nmodel name\t: Another\n");
	put(t, root, "/proc/self/status", "Name:\tx\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\nMems_allowed_list:\t0\n");
	put(t, root, "/proc/self/limits", limits_text);
	put(t, root, "/proc/self/cgroup", "0::/a/b\n");
	put(t, root, "/proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:   12582912 kB\nSwapTotal:       2097152 kB\nSwapFree:        2097152 kB\n");
	put(t, root, "/proc/loadavg", "0.25 0.40 0.22 2/345 6789\n");
	put(t, root, "/proc/sys/kernel/osrelease", "6.1.0-made\n");
	put(t, root, "/proc/sys/vm/overcommit_memory", "0\n");
	put(t, root, "/proc/self/mounts", "rootfs / rootfs rw 0 0\n/dev/sda1 / ext4 rw,relatime 0 0\n");
	put(t, root, "/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
	put(t, root, "/sys/kernel/mm/transparent_hugepage/defrag", "always defer defer+madvise [madvise] never\n");
	put(t, root, "/sys/devices/system/cpu/online", "0-3\n");
	put(t, root, "/sys/devices/system/node/online", "0\n");
	put(t, root, "/sys/devices/system/node/node0/cpulist", "0-3\n");
	for (int i = 0; i < 4; i++) {
		char one[16];
		snprintf(one, sizeof one, "%d\n", i);
		put(t, root, tt_arena_printf(t->arena, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i), one);
		const char *dir = tt_arena_printf(t->arena, "/sys/devices/system/cpu/cpu%d/cache", i);
		put(t, root, tt_arena_printf(t->arena, "%s/index0/level", dir), "1\n");
		put(t, root, tt_arena_printf(t->arena, "%s/index0/type", dir), "Data\n");
		put(t, root, tt_arena_printf(t->arena, "%s/index0/size", dir), "48K\n");
		put(t, root, tt_arena_printf(t->arena, "%s/index0/shared_cpu_list", dir), one);
		put(t, root, tt_arena_printf(t->arena, "%s/index1/level", dir), "3\n");
		put(t, root, tt_arena_printf(t->arena, "%s/index1/type", dir), "Unified\n");
		put(t, root, tt_arena_printf(t->arena, "%s/index1/size", dir), "32M\n");
		put(t, root, tt_arena_printf(t->arena, "%s/index1/shared_cpu_list", dir), i < 2 ? "0-1\n" : "2-3\n");
	}
	put(t, root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
	put(t, root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "acpi-cpufreq\n");
	put(t, root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "3900000\n");
	put(t, root, "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "4000000\n");
	put(t, root, "/sys/fs/cgroup/a/b/memory.max", "max\n");
	put(t, root, "/sys/fs/cgroup/a/memory.max", "12884901888\n");
	put(t, root, "/sys/fs/cgroup/a/memory.current", "9000000000\n");
	put(t, root, "/sys/fs/cgroup/a/memory.stat", "anon 1000\ninactive_file 8000000000\n");
	put(t, root, "/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
	put(t, root, "/sys/fs/cgroup/a/pids.max", "10000\n");
	put(t, root, "/sys/fs/cgroup/a/pids.current", "12\n");
	return root;
}

static void reads_machine(tt_test *t)
{
	tt_machine m;
	tt_machine_read(healthy(t, "m"), &m);
	TT_CHECK_STR(t, m.cpu, "Made of Files @ 2.00GHz");
	TT_CHECK_STR(t, m.vendor, "GenuineIntel");
	TT_CHECK_STR(t, m.microcode, "0x2b");
	TT_CHECK_STR(t, m.features, "sse2 avx2 fma avx512f avx512_bf16");
	TT_CHECK(t, m.family == 6 && m.model == 143 && m.stepping == 8 && m.hypervisor);
	TT_CHECK(t, m.cpus_online == 4 && m.cpus_allowed == 4 && m.cores_allowed == 4 && m.threads == 4 && m.threads_per_core == 1 && m.cpu_quota == 0);
	TT_CHECK_INT(t, m.ncaches, 2);
	TT_CHECK(t, m.caches[0].bytes == 48 * TT_KIB && m.caches[0].instances == 4 && m.caches[0].cpus == 1);
	TT_CHECK(t, m.caches[1].bytes == 32 * TT_MIB && m.caches[1].instances == 2 && m.caches[1].cpus == 2);
	TT_CHECK_INT(t, tt_machine_last_cache(&m), 64 * TT_MIB);
	TT_CHECK(t, m.numa_nodes == 1 && m.numa_nodes_allowed == 1);
	TT_CHECK_STR(t, m.governor, "performance");
	TT_CHECK(t, m.frequency_cap == 3900000 && m.frequency_most == 4000000 && m.load1 == 0.25);
	TT_CHECK(t, m.ram == 16 * TT_GIB && m.available == 12 * TT_GIB && m.swap == 2 * TT_GIB && m.swap_free == 2 * TT_GIB);
	TT_CHECK_INT(t, m.cgroup_memory.soft, 12 * TT_GIB);
	TT_CHECK_INT(t, m.cgroup_memory.used, 1000000000);
	TT_CHECK(t, m.cgroup_tasks.soft == 10000 && m.cgroup_tasks.used == 12);
	TT_CHECK_STR(t, m.huge_pages, "madvise");
	TT_CHECK_STR(t, m.huge_defrag, "madvise");
	TT_CHECK_STR(t, m.kernel, "6.1.0-made");
	TT_CHECK(t, m.memory_lock == 8388608 && m.open_files == 20000 && m.processes.soft == 96365 && m.processes.used == 345);
	TT_CHECK(t, m.address_space == INT64_MAX && m.file_size == INT64_MAX && !m.selinux && !*m.container);
	char s[256];
	tt_machine_signature(&m, s, sizeof s);
	TT_CHECK_STR(t, s, "GenuineIntel 6/143/8 0x2b Made of Files @ 2.00GHz");
}

/* cgroups v1, under the name of one controller or of all; siblings; part of the CPUs; two memory nodes. */
static void reads_old_and_odd(tt_test *t)
{
	const char *root = healthy(t, "m");
	tt_machine m;
	put(t, root, "/proc/self/cgroup", "9:name=systemd:/\n5:memory:/x\n3:cpu,cpuacct:/x/y\n1:pids:/\n");
	put(t, root, "/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "4294967296\n");
	put(t, root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	put(t, root, "/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "1000\n");
	put(t, root, "/sys/fs/cgroup/cpu,cpuacct/x/y/cpu.cfs_quota_us", "-1\n");
	put(t, root, "/sys/fs/cgroup/cpu,cpuacct/x/y/cpu.cfs_period_us", "100000\n");
	put(t, root, "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000\n");
	put(t, root, "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
	put(t, root, "/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "250000\n");
	put(t, root, "/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
	put(t, root, "/proc/self/status", "Cpus_allowed_list:\t0,2-3\n");
	for (int i = 0; i < 4; i++)
		put(t, root, tt_arena_printf(t->arena, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i), i < 2 ? "0-1\n" : "2-3\n");
	put(t, root, "/sys/devices/system/node/online", "0-1\n");
	put(t, root, "/sys/devices/system/node/node0/cpulist", "0-1\n");
	put(t, root, "/sys/devices/system/node/node1/cpulist", "2-3\n");
	put(t, root, "/.dockerenv", "");
	tt_machine_read(root, &m);
	TT_CHECK_INT(t, m.cgroup_memory.soft, 4 * TT_GIB);
	TT_CHECK_INT(t, m.cgroup_memory.used, 1000);
	TT_CHECK(t, m.cpu_quota == 2.5);
	TT_CHECK(t, m.cpus_allowed == 3 && m.threads == 2 && m.cores_allowed == 2 && m.threads_per_core == 2);
	TT_CHECK(t, m.numa_nodes == 2 && m.numa_nodes_allowed == 2);
	TT_CHECK_INT(t, m.cgroup_tasks.soft, INT64_MAX);
	TT_CHECK_STR(t, m.container, "docker");
	/* v2 beside v1: mounted in a folder of its own. */
	put(t, root, "/proc/self/cgroup", "5:memory:/x\n0::/z\n");
	put(t, root, "/sys/fs/cgroup/unified/z/cpu.max", "50000 100000\n");
	tt_machine_read(root, &m);
	TT_CHECK(t, m.cpu_quota == 0.5 && m.threads == 1 && m.cgroup_memory.soft == 4 * TT_GIB);
	/* v1's way to say that there is no limit. */
	put(t, root, "/proc/self/cgroup", "5:memory:/\n");
	tt_machine_read(root, &m);
	TT_CHECK_INT(t, m.cgroup_memory.soft, INT64_MAX);
	/* The tightest counts, be it the innermost. */
	put(t, root, "/proc/self/cgroup", "0::/a/b\n");
	put(t, root, "/sys/fs/cgroup/a/b/memory.max", "3221225472\n");
	put(t, root, "/sys/fs/cgroup/a/b/pids.max", "77\n");
	put(t, root, "/sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
	put(t, root, "/sys/fs/cgroup/a/cpu.max", "350000 100000\n");
	tt_machine_read(root, &m);
	TT_CHECK(t, m.cgroup_memory.soft == 3 * TT_GIB && m.cgroup_memory.used == -1 && m.cgroup_tasks.soft == 77 && m.cgroup_tasks.used == -1 && m.cpu_quota == 1.5);
}

/* Nothing there, and rubbish everywhere: facts are unknown, nothing crashes. */
static void reads_rubbish(tt_test *t)
{
	tt_machine m;
	tt_machine_read(tt_test_path(t, "nothing"), &m);
	TT_CHECK(t, m.threads == 1 && m.ram == 0 && !*m.cpu && m.ncaches == 0 && m.cgroup_memory.soft == INT64_MAX && m.open_files == INT64_MAX);
	static const char *const files[] = { "/proc/cpuinfo", "/proc/self/status", "/proc/self/limits", "/proc/self/cgroup", "/proc/meminfo", "/proc/loadavg",
		"/proc/self/mounts", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/devices/system/cpu/online", "/sys/devices/system/node/online",
		"/sys/fs/cgroup/a/memory.max", "/sys/fs/cgroup/a/b/cpu.max", "/sys/devices/system/cpu/cpu0/cache/index0/size", "/sys/fs/cgroup/a/memory.stat" };
	static const char *const texts[] = { "", "\n", ":", "::::\n:::", "[", "] [", "9999999999999999999999999\n", "-1", "0-99999999999,7-,", "model name", "flags\t:",
		"Max open files", "Max open files \n", "0::", "0::/", "0::////\n", "1:cpu,:\n1:,memory:/", "a b\n", "MemTotal: -5 kB", "x \\ y z\nx \\04 y z\nx \\040 y z", "\377\376 5" };
	for (int f = 0; f < TT_COUNT(files); f++)
		for (int i = 0; i < TT_COUNT(texts); i++) {
			const char *root = tt_test_path(t, "r");
			if (!i)
				healthy(t, "r");
			put(t, root, files[f], texts[i]);
			tt_disk d;
			tt_machine_read(root, &m);
			TT_CHECK(t, m.threads >= 1 && m.cpus_allowed >= 0);
			TT_CHECK(t, tt_machine_disk(root, "/", &d));
		}
}

static void finds_disks(tt_test *t)
{
	const char *root = healthy(t, "m"), *tmp = tt_test_tmp(t);
	char *real = realpath(tmp, NULL);
	TT_CHECK(t, real != NULL);
	TT_CHECK_OK(t, tt_mkdirs(tt_test_path(t, "blank dir")));
	put(t, root, "/proc/self/mounts", tt_arena_printf(t->arena,
		"rootfs / rootfs rw 0 0\n/dev/a / ext4 rw 0 0\ntmpfs %s tmpfs rw,noexec 0 0\noverlay %s/blank\\040dir overlay ro,relatime 0 0\nnfs %s/blan nfs4 rw 0 0\nnfs %s/pla nfs4 rw 0 0\n", real, real, real, real));
	TT_CHECK_OK(t, tt_mkdirs(tt_test_path(t, "plain")));
	tt_disk d;
	TT_CHECK(t, tt_machine_disk(root, tt_test_path(t, "not/yet/there"), &d));
	TT_CHECK_STR(t, d.at, real);
	TT_CHECK_STR(t, d.type, "tmpfs");
	TT_CHECK(t, d.in_memory && d.noexec && !d.overlay && !d.read_only && !d.network && d.writable && d.bytes > 0);
	TT_CHECK(t, tt_machine_disk(root, tt_test_path(t, "plain"), &d));
	TT_CHECK_STR(t, d.type, "tmpfs"); /* /pla is not above /plain */
	TT_CHECK(t, tt_machine_disk(root, tt_test_path(t, "blank dir/file"), &d));
	TT_CHECK_STR(t, d.type, "overlay");
	TT_CHECK(t, d.overlay && d.read_only && !d.noexec);
	TT_CHECK(t, tt_machine_disk(root, "/", &d));
	TT_CHECK_STR(t, d.type, "ext4");
	TT_CHECK(t, tt_machine_disk(root, "/no-such-folder-at-all/x", &d));
	TT_CHECK_STR(t, d.at, "/");
	TT_CHECK(t, tt_machine_disk(root, "nowhere/relative", &d));
	char *here = realpath(".", NULL);
	TT_CHECK_STR(t, d.at, here);
	free(here);
	free(real);
}

/* ---- findings ------------------------------------------------------------------------------------------------------------------------- */

static tt_doctor_facts facts_of(const char *root)
{
	tt_doctor_facts f = { .run_folder = "out", .cache_folder = "/c/titan", .run_known = true, .cache_known = true, .temp_known = true, .exec_memory = true,
		.threads = 4, .isa = TT_ISA_AVX512_BF16, .compute_bf16 = true, .peak_one = 1e11, .peak_all = 4e11 };
	tt_machine_read(root, &f.machine);
	f.run = f.cache = f.temp = (tt_disk){ .at = "/d", .type = "ext4", .bytes = 100 * TT_GIB, .free = 50 * TT_GIB, .files_free = 1000000, .writable = true };
	return f;
}

static const tt_finding *find(const tt_findings *l, const char *key)
{
	for (int64_t i = 0; i < l->n; i++)
		if (!strcmp(l->items[i].key, key))
			return &l->items[i];
	return NULL;
}

/* Exactly the finding `key` is of `level`, and says `part`; all others are fine. */
static void expect(tt_test *t, const tt_doctor_facts *f, const char *key, tt_finding_level level, const char *part)
{
	tt_findings l;
	tt_doctor_check(t->arena, f, &l);
	const tt_finding *hit = find(&l, key);
	if (!TT_CHECK_MSG(t, hit, "%s: not looked at", key))
		return;
	TT_CHECK_MSG(t, hit->level == level, "%s: %s, want %s: %s", key, tt_finding_level_name(hit->level), tt_finding_level_name(level), hit->what);
	TT_CHECK_MSG(t, strstr(tt_arena_printf(t->arena, "%s - %s - %s", hit->what, hit->why, hit->remedy), part), "%s: no \"%s\" in %s - %s - %s", key, part, hit->what, hit->why, hit->remedy);
	TT_CHECK_MSG(t, level == TT_FINDING_OK || (*hit->why && *hit->remedy), "%s: no reason or no remedy", key);
	for (int64_t i = 0; i < l.n; i++)
		TT_CHECK_MSG(t, &l.items[i] == hit || l.items[i].level == TT_FINDING_OK, "%s, which was to change %s, also gives %s: %s", part, key, l.items[i].key, l.items[i].what);
}

static void healthy_is_fine(tt_test *t)
{
	tt_doctor_facts f = facts_of(healthy(t, "m"));
	tt_findings l;
	tt_doctor_check(t->arena, &f, &l);
	TT_CHECK(t, l.n >= 18);
	for (int64_t i = 0; i < l.n; i++) {
		TT_CHECK_MSG(t, l.items[i].level == TT_FINDING_OK, "%s: %s", l.items[i].key, l.items[i].what);
		for (int64_t k = 0; k < i; k++)
			TT_CHECK_MSG(t, strcmp(l.items[i].key, l.items[k].key), "%s twice", l.items[i].key);
	}
}

static void findings_of_files(tt_test *t)
{
	static const struct { const char *key; tt_finding_level level; const char *part, *file, *text; } cases[] = {
		{ "memory.cgroup", TT_FINDING_WARN, "docker --memory", "/sys/fs/cgroup/a/memory.max", "7516192768\n" },
		{ "memory.cgroup", TT_FINDING_WARN, "7.00 GiB of 16.0 GiB", "/sys/fs/cgroup/a/memory.max", "7516192768\n" },
		{ "memory.free", TT_FINDING_BAD, "4.67 MiB", "/sys/fs/cgroup/a/memory.current", "20880000000\n" },
		{ "memory.free", TT_FINDING_BAD, "300 MiB", "/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 307200 kB\n" },
		{ "memory.free", TT_FINDING_WARN, "1.00 GiB", "/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 1048576 kB\n" },
		{ "memory.swap", TT_FINDING_WARN, "1.50 GiB is swapped out", "/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 12582912 kB\nSwapTotal: 2097152 kB\nSwapFree: 524288 kB\n" },
		{ "memory.huge_pages", TT_FINDING_WARN, "echo madvise", "/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n" },
		{ "memory.huge_pages", TT_FINDING_OK, "always", "/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n" },
		{ "memory.huge_pages", TT_FINDING_WARN, "CONFIG_", "/sys/kernel/mm/transparent_hugepage/enabled", "\n" },
		{ "memory.huge_pages", TT_FINDING_WARN, "2 MiB", "/sys/kernel/mm/transparent_hugepage/defrag", "always defer defer+madvise madvise [never]\n" },
		{ "memory.lock", TT_FINDING_WARN, "16.0 KiB", "/proc/self/limits", "Max locked memory  16384 16384 bytes\n" },
		{ "memory.address_space", TT_FINDING_WARN, "ulimit -v", "/proc/self/limits", "Max address space  8589934592 unlimited bytes\n" },
		{ "memory.address_space", TT_FINDING_WARN, "vm.overcommit_memory=0", "/proc/sys/vm/overcommit_memory", "2\n" },
		{ "cpu.quota", TT_FINDING_WARN, "hardware.threads = 2", "/sys/fs/cgroup/a/b/cpu.max", "250000 100000\n" },
		{ "cpu.quota", TT_FINDING_WARN, "hardware.threads = 1", "/sys/fs/cgroup/a/b/cpu.max", "50000 100000\n" },
		{ "cpu.quota", TT_FINDING_OK, "", "/sys/fs/cgroup/a/b/cpu.max", "400000 100000\n" },
		{ "cpu.affinity", TT_FINDING_WARN, "4 of 8 CPUs", "/sys/devices/system/cpu/online", "0-7\n" },
		{ "cpu.threads", TT_FINDING_WARN, "hardware.threads = 3 (or 0)", "/sys/devices/system/cpu/online+", "0-2\n" },
		{ "cpu.numa", TT_FINDING_WARN, "numactl", "/sys/devices/system/node/online+", "0-1\n" },
		{ "cpu.load", TT_FINDING_WARN, "8.20 on 4 CPUs", "/proc/loadavg", "8.20 3.1 2.0 9/300 1\n" },
		{ "cpu.load", TT_FINDING_OK, "0.99", "/proc/loadavg", "0.99 3.1 2.0 9/300 1\n" },
		{ "cpu.governor", TT_FINDING_WARN, "cpupower", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n" },
		{ "cpu.governor", TT_FINDING_WARN, "2000 of 4000 MHz", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "2000000\n" },
		{ "process.tasks", TT_FINDING_BAD, "docker --pids-limit", "/sys/fs/cgroup/a/pids.max", "20\n" },
		{ "process.tasks", TT_FINDING_BAD, "ulimit -u", "/proc/self/limits", "Max processes  10 10 processes\n" },
		{ "process.tasks", TT_FINDING_WARN, "345 run on the system", "/proc/self/limits", "Max processes  350 350 processes\n" },
		{ "process.files", TT_FINDING_WARN, "ulimit -n", "/proc/self/limits", "Max open files  100 100 files\n" },
		{ "process.file_size", TT_FINDING_BAD, "ulimit -f", "/proc/self/limits", "Max file size  1048576 unlimited bytes\n" },
		{ "process.file_size", TT_FINDING_WARN, "ulimit -f", "/proc/self/limits", "Max file size  1073741824 unlimited bytes\n" },
	};
	for (int i = 0; i < TT_COUNT(cases); i++) {
		const char *root = healthy(t, tt_arena_printf(t->arena, "m%d", i)), *file = cases[i].file;
		size_t n = strlen(file);
		if (file[n - 1] == '+') { /* and what belongs to it */
			file = tt_arena_strndup(t->arena, file, n - 1);
			if (!strcmp(cases[i].key, "cpu.threads")) {
				put(t, root, "/proc/self/status", "Cpus_allowed_list:\t0-2\n");
			} else {
				put(t, root, "/sys/devices/system/node/node0/cpulist", "0-1\n");
				put(t, root, "/sys/devices/system/node/node1/cpulist", "2-3\n");
			}
		}
		put(t, root, file, cases[i].text);
		tt_doctor_facts f = facts_of(root);
		expect(t, &f, cases[i].key, cases[i].level, cases[i].part);
	}
	/* Under these drivers powersave is how the frequency follows the load. */
	const char *root = healthy(t, "p");
	put(t, root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
	put(t, root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "intel_pstate\n");
	tt_doctor_facts f = facts_of(root);
	expect(t, &f, "cpu.governor", TT_FINDING_OK, "powersave");
	/* Two threads a core. */
	root = healthy(t, "s");
	for (int i = 0; i < 4; i++)
		put(t, root, tt_arena_printf(t->arena, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i), i % 2 ? "1,3\n" : "0,2\n");
	f = facts_of(root);
	expect(t, &f, "cpu.threads", TT_FINDING_WARN, "hardware.threads = 2");
	/* SELinux counts only with a folder that runs nothing. */
	put(t, root = healthy(t, "e"), "/sys/fs/selinux/enforce", "1\n");
	f = facts_of(root);
	expect(t, &f, "process.jit", TT_FINDING_OK, "");
	f.temp.noexec = true;
	expect(t, &f, "process.jit", TT_FINDING_WARN, "TMPDIR");
}

static void findings_of_facts(tt_test *t)
{
	const char *root = healthy(t, "m");
	const tt_doctor_facts good = facts_of(root);
	tt_doctor_facts f;
#define CASE(key, level, part, ...)                                                                                    \
	do {                                                                                                           \
		f = good;                                                                                              \
		__VA_ARGS__;                                                                                           \
		expect(t, &f, key, level, part);                                                                       \
	} while (0)
	CASE("cpu.isa", TT_FINDING_WARN, "float32", f.isa = TT_ISA_AVX512);
	CASE("cpu.isa", TT_FINDING_OK, "float32", f.isa = TT_ISA_AVX512; f.compute_bf16 = false);
	CASE("cpu.isa", TT_FINDING_WARN, "debug.isa", f.isa = TT_ISA_REF; f.compute_bf16 = false);
	CASE("cpu.scaling", TT_FINDING_WARN, "1.00 times", f.peak_all = f.peak_one);
	CASE("cpu.scaling", TT_FINDING_OK, "3.00 times", f.peak_all = 3 * f.peak_one);
	CASE("process.jit", TT_FINDING_BAD, "--kernels=ref", f.exec_memory = false);
	CASE("process.jit", TT_FINDING_OK, "", f.temp.noexec = true);
	CASE("disk.run", TT_FINDING_BAD, "read-only", f.run.read_only = true);
	CASE("disk.run", TT_FINDING_BAD, "no right to write", f.run.writable = false);
	CASE("disk.run", TT_FINDING_BAD, "cannot be looked at", f.run_known = false);
	CASE("disk.run", TT_FINDING_BAD, "100 MiB free", f.run.free = 100 * TT_MIB);
	CASE("disk.run", TT_FINDING_WARN, "checkpoint.keep_latest_k", f.run.free = 2 * TT_GIB);
	CASE("disk.run", TT_FINDING_WARN, "df -i", f.run.files_free = 500);
	CASE("disk.run", TT_FINDING_BAD, "df -i", f.run.files_free = 5);
	CASE("disk.run", TT_FINDING_OK, "", f.run.files_free = -1);
	CASE("disk.run", TT_FINDING_WARN, "is in memory (tmpfs)", f.run.in_memory = true; snprintf(f.run.type, sizeof f.run.type, "tmpfs"));
	CASE("disk.run", TT_FINDING_WARN, "docker -v", f.run.overlay = true);
	CASE("disk.cache", TT_FINDING_WARN, "neither XDG_CACHE_HOME", f.cache_folder = "");
	CASE("disk.cache", TT_FINDING_WARN, "measured anew", f.cache.writable = false);
	CASE("disk.cache", TT_FINDING_WARN, "make room", f.cache.free = 1000);
	CASE("disk.cache", TT_FINDING_OK, "", f.cache.in_memory = true);
#undef CASE
}

/* ---- peaks ------------------------------------------------------------------------------------------------------------------------------- */

/* A clock and a stopwatch of the test's: figure f of n threads is (f + 1) n 1e9. */
typedef struct fake { int measured; int64_t now; double factor; } fake;

static double fake_measure(void *ctx, tt_pool *pool, tt_figure f, int threads, double seconds)
{
	(void)pool;
	(void)seconds;
	fake *k = ctx;
	k->measured++;
	return ((double)f + 1) * threads * 1e9 * k->factor;
}

static int64_t fake_clock(void *ctx) { return ((fake *)ctx)->now; }

static tt_peak_source fake_source(tt_test *t, fake *k, const char *folder)
{
	tt_peak_source s = { .ctx = k, .measure = fake_measure, .clock = fake_clock, .seconds = 1 };
	*k = (fake){ .now = 1000000, .factor = 1 };
	snprintf(s.folder, sizeof s.folder, "%s", tt_test_path(t, folder));
	snprintf(s.key, sizeof s.key, "A 1/2/3 0x4 Chip, share 4");
	return s;
}

/* The one file in a cache folder. */
static const char *cache_file(tt_test *t, const tt_peak_source *s, int threads)
{
	return tt_arena_printf(t->arena, "%s/peaks-%016llx.txt", s->folder, (unsigned long long)tt_hash64(s->key, strlen(s->key), (uint64_t)threads));
}

static void cache_round_trip(tt_test *t)
{
	fake k;
	tt_peak_source s = fake_source(t, &k, "a/b/titan");
	tt_peaks p = { .threads = 3 }, q;
	TT_CHECK(t, !tt_peak_load(&s, 3, &q) && q.threads == 3 && q.of[0].all == 0);
	p.of[TT_PEAK_BF16].one = 123456789012.0;
	p.of[TT_PEAK_BF16].all = 987654321098.0;
	p.of[TT_PEAK_BF16].at = 1700000000;
	p.of[TT_PEAK_READ].all = 5e9;
	TT_CHECK(t, tt_peak_store(&s, &p));
	TT_CHECK(t, tt_peak_load(&s, 3, &q));
	TT_CHECK(t, q.threads == 3 && q.of[TT_PEAK_BF16].one == 123456789012.0 && q.of[TT_PEAK_BF16].all == 987654321098.0 && q.of[TT_PEAK_BF16].at == 1700000000);
	TT_CHECK(t, q.of[TT_PEAK_READ].all == 5e9 && q.of[TT_PEAK_READ].one == 0 && q.of[TT_PEAK_TRIAD].all == 0);
	/* Another count of threads, another processor: not theirs. */
	TT_CHECK(t, !tt_peak_load(&s, 2, &q));
	tt_peak_source other = s;
	other.key[0] = 'B';
	TT_CHECK(t, !tt_peak_load(&other, 3, &q));
	/* Even if the file has the name: the key inside decides. */
	char *text;
	size_t n;
	TT_CHECK_OK(t, tt_file_read(t->arena, cache_file(t, &s, 3), &text, &n));
	TT_CHECK_OK(t, tt_file_write(cache_file(t, &other, 3), text, n));
	TT_CHECK(t, !tt_peak_load(&other, 3, &q));
	TT_CHECK_OK(t, tt_file_write(cache_file(t, &s, 2), text, n));
	TT_CHECK(t, !tt_peak_load(&s, 2, &q));
	/* Storing again replaces, and leaves nothing beside. */
	p.of[TT_PEAK_READ].all = 6e9;
	TT_CHECK(t, tt_peak_store(&s, &p) && tt_peak_load(&s, 3, &q) && q.of[TT_PEAK_READ].all == 6e9);
	FILE *f = popen(tt_arena_printf(t->arena, "ls -A '%s' | wc -l", s.folder), "r");
	int files = 0;
	TT_CHECK(t, f && fscanf(f, "%d", &files) == 1 && files == 3);
	if (f)
		pclose(f);
}

/* Every byte changed, every length cut, and text that was never ours: as good as no cache, and written anew. */
static void cache_damage(tt_test *t)
{
	fake k;
	tt_peak_source s = fake_source(t, &k, "cache");
	tt_peaks p = { .threads = 2 }, q;
	for (int f = 0; f < TT_PEAK_NFIGURES; f++) {
		p.of[f].one = 1e9 * (f + 1);
		p.of[f].all = 2e9 * (f + 1);
		p.of[f].at = 7;
	}
	TT_CHECK(t, tt_peak_store(&s, &p) && tt_peak_load(&s, 2, &q));
	const char *path = cache_file(t, &s, 2);
	char *text;
	size_t n;
	TT_CHECK_OK(t, tt_file_read(t->arena, path, &text, &n));
	for (size_t i = 0; i + 1 < n; i++) { /* the last byte is the newline after the sum */
		char was = text[i];
		static const char bytes[] = { 0, '\n', '9', ' ', (char)0xff };
		for (int j = 0; j < TT_COUNT(bytes); j++) {
			text[i] = bytes[j];
			TT_CHECK_OK(t, tt_file_write(path, text, n));
			TT_CHECK_MSG(t, was == bytes[j] || !tt_peak_load(&s, 2, &q), "byte %zu made %d", i, bytes[j]);
		}
		text[i] = was;
		TT_CHECK_OK(t, tt_file_write(path, text, i));
		TT_CHECK_MSG(t, !tt_peak_load(&s, 2, &q), "cut to %zu bytes", i);
	}
	TT_CHECK_OK(t, tt_file_write(path, text, n));
	TT_CHECK(t, tt_peak_load(&s, 2, &q));
	char *big = TT_NEWN(t->arena, char, 100000);
	memset(big, 'x', 100000);
	TT_CHECK_OK(t, tt_file_write(path, big, 100000));
	TT_CHECK(t, !tt_peak_load(&s, 2, &q));
	tt_pool *pool;
	TT_CHECK_OK(t, tt_pool_create(2, 0, &pool));
	tt_peak peak;
	TT_CHECK(t, tt_peak_get(&s, pool, TT_ISA_REF, TT_F32, true, &peak) || tt_isa_detect() > TT_ISA_REF);
	TT_CHECK(t, k.measured == 1 && tt_peak_load(&s, 2, &q));
	tt_pool_destroy(pool);
}

static void unwritable(tt_test *t)
{
	fake k;
	tt_peak_source s = fake_source(t, &k, "file/titan");
	TT_CHECK_OK(t, tt_file_write(tt_test_path(t, "file"), "x", 1)); /* root may write anywhere, but not below a file */
	tt_peaks p = { .threads = 1 };
	p.of[0].all = 1;
	TT_CHECK(t, !tt_peak_store(&s, &p));
	tt_peak peak = { 0 };
	tt_isa isa = tt_isa_detect();
	TT_CHECK(t, tt_peak_get(&s, NULL, isa, TT_F32, true, &peak) && peak.flops > 0 && !peak.cached);
	TT_CHECK(t, tt_peak_get(&s, NULL, isa, TT_F32, true, &peak));
	TT_CHECK_INT(t, k.measured, 2);
	s.folder[0] = 0;
	TT_CHECK(t, !tt_peak_store(&s, &p) && !tt_peak_load(&s, 1, &p));
	TT_CHECK(t, tt_peak_get(&s, NULL, isa, TT_F32, true, &peak) && k.measured == 3);
	/* A folder where the file should be. */
	s = fake_source(t, &k, "dir");
	TT_CHECK_OK(t, tt_mkdirs(cache_file(t, &s, 1)));
	TT_CHECK(t, !tt_peak_store(&s, &p) && !tt_peak_load(&s, 1, &p));
}

static void get_measures_once(tt_test *t)
{
	fake k;
	tt_peak_source s = fake_source(t, &k, "cache");
	tt_peak p = { .flops = -1 };
	tt_pool *pool;
	tt_isa isa = tt_isa_detect();
	TT_CHECK_OK(t, tt_pool_create(2, 0, &pool));
	TT_CHECK(t, !tt_peak_get(&s, pool, isa, TT_F32, false, &p) && p.flops == -1 && k.measured == 0);
	TT_CHECK(t, tt_peak_get(&s, pool, isa, TT_F32, true, &p) && k.measured == 1 && !p.cached && p.age == 0);
	tt_figure f = tt_figure_of(isa, TT_F32);
	TT_CHECK(t, p.figure == f && p.flops == ((double)f + 1) * 2e9);
	k.now += 500;
	TT_CHECK(t, tt_peak_get(&s, pool, isa, TT_F32, false, &p) && k.measured == 1 && p.cached && p.age == 500 && p.flops == ((double)f + 1) * 2e9);
	TT_CHECK(t, tt_peak_get(&s, pool, isa, TT_F32, true, &p) && k.measured == 1);
	/* What doctor adds keeps what is there; measured again it does not. */
	tt_peaks all;
	TT_CHECK(t, tt_peak_load(&s, 2, &all));
	k.factor = 10;
	tt_peak_measure(&s, pool, isa, true, &all);
	TT_CHECK(t, all.of[f].all == ((double)f + 1) * 2e9 && all.of[f].one == ((double)f + 1) * 1e10);
	tt_peak_measure(&s, pool, isa, false, &all);
	TT_CHECK(t, all.of[f].all == ((double)f + 1) * 2e10 && all.of[TT_PEAK_READ].one > 0 && all.of[TT_PEAK_TRIAD].all > 0);
	/* bf16 has a figure of its own only where there are instructions for it. */
	TT_CHECK(t, tt_figure_of(TT_ISA_AVX512_BF16, TT_BF16) == TT_PEAK_BF16 && tt_figure_of(TT_ISA_AVX512, TT_BF16) == TT_PEAK_F32_AVX512);
	TT_CHECK(t, tt_figure_of(TT_ISA_AVX2, TT_BF16) == TT_PEAK_F32_AVX2 && tt_figure_of(TT_ISA_REF, TT_F32) == TT_PEAK_F32_REF);
	tt_pool_destroy(pool);
}

/* The real loops, briefly. A machine may be as slow and as busy as it likes, but not faster than any there is. */
static void peaks_are_sane(tt_test *t)
{
	tt_peak_source s;
	tt_peak_source_init(&s);
	TT_CHECK(t, *s.key && strstr(s.key, "share"));
	s.seconds = 0.06;
	tt_pool *pool;
	TT_CHECK_OK(t, tt_pool_create(2, 20, &pool));
	for (int isa = TT_ISA_REF; isa <= (int)tt_isa_detect(); isa++) {
		tt_peaks p = { 0 };
		tt_peak_measure(&s, pool, (tt_isa)isa, false, &p);
		TT_CHECK_INT(t, p.threads, 2);
		for (int i = 0; i < TT_PEAK_NFIGURES; i++) {
			if (!tt_figure_runs((tt_figure)i, (tt_isa)isa)) {
				TT_CHECK(t, p.of[i].all == 0);
				continue;
			}
			TT_CHECK_MSG(t, p.of[i].one > 0 && p.of[i].one < 1e13 && p.of[i].all > 0 && p.of[i].all < 2e13, "%s on %s: %g, %g", tt_figure_name((tt_figure)i),
				tt_isa_name((tt_isa)isa), p.of[i].one, p.of[i].all);
		}
	}
	tt_pool_destroy(pool);
}

static void cache_folder(tt_test *t)
{
	tt_peak_source s;
	setenv("HOME", "/h", 1);
	setenv("XDG_CACHE_HOME", "/x", 1);
	tt_peak_source_init(&s);
	TT_CHECK_STR(t, s.folder, "/x/titan");
	setenv("XDG_CACHE_HOME", "relative", 1);
	tt_peak_source_init(&s);
	TT_CHECK_STR(t, s.folder, "/h/.cache/titan");
	setenv("HOME", "", 1);
	tt_peak_source_init(&s);
	TT_CHECK_STR(t, s.folder, "");
	char *big = TT_NEWN(t->arena, char, 2000);
	memset(big, 'y', 1999);
	big[0] = '/';
	setenv("XDG_CACHE_HOME", big, 1);
	tt_peak_source_init(&s);
	TT_CHECK_STR(t, s.folder, "");
}

static char *run_report(tt_test *t, tt_doctor_options *o)
{
	tt_buf b = { 0 };
	TT_CHECK_OK(t, tt_doctor_report(t->arena, o, &b));
	char *s = tt_arena_strdup(t->arena, b.s ? b.s : "");
	tt_buf_fini(&b);
	return s;
}

/* ---- the plan of a config --------------------------------------------------------------------------------------------------------------- */

static void findings_of_plan(tt_test *t)
{
	const tt_doctor_plan fits = { .name = "c.toml", .params = 1000, .region = { [TT_REGION_PARAM] = 3 * TT_GIB, [TT_REGION_FRAME] = TT_GIB }, .planned = 4 * TT_GIB,
		.saves = true, .async = true, .adamw = true, .compute_bf16 = true, .checkpoint = 3 * TT_GIB, .keep = 10, .context = 512, .trained_context = 2048,
		.tokens = 4096, .attention = 0.1 };
	tt_doctor_slow slow[2] = { { "linear", 3, 9, "y, bf16[8,3] x bf16[4,3]", false }, { "attention", 2, 2, "o, bf16[8,24] x bf16[8,24]", false } };
	tt_doctor_facts f = facts_of(healthy(t, "m")); /* 16 GiB of memory, 12 of them free, no cgroup; 50 GiB on the disk */
	f.machine.cgroup_memory = (tt_limit){ .soft = INT64_MAX, .used = -1 };
	tt_doctor_plan p;
	f.plan = &p;
#define PLAN(key, level, part, ...)                                                                                    \
	do {                                                                                                           \
		p = fits;                                                                                              \
		__VA_ARGS__;                                                                                           \
		expect(t, &f, key, level, part);                                                                       \
	} while (0)
	PLAN("plan.memory", TT_FINDING_OK, "4.00 GiB, the machine has 16.0 GiB", (void)0);
	PLAN("plan.memory", TT_FINDING_BAD, "refused at its start - a smaller model", p.planned = 17 * TT_GIB);
	PLAN("plan.memory", TT_FINDING_BAD, "optimizer.name", p.planned = 17 * TT_GIB);
	PLAN("plan.memory", TT_FINDING_BAD, "(activation_checkpoint.mode = \"full\"), or fewer tokens at once (training.tokens_per_microbatch = 2048", p.keeps = true; p.planned = 17 * TT_GIB; p.region[TT_REGION_FRAME] = 14 * TT_GIB);
	PLAN("plan.memory", TT_FINDING_BAD, "training.context_length", p.planned = 17 * TT_GIB; p.region[TT_REGION_FRAME] = 14 * TT_GIB; p.tokens = 512);
	PLAN("plan.memory", TT_FINDING_BAD, "killed in its first save", p.planned = 16 * TT_GIB - TT_MIB; p.staging = 2 * TT_MIB);
	PLAN("plan.memory", TT_FINDING_WARN, "12.0 GiB can be had now", p.planned = 13 * TT_GIB);
	PLAN("plan.disk", TT_FINDING_OK, "10 checkpoints of 3.00 GiB are kept and one is written: 33.0 GiB", (void)0);
	PLAN("plan.disk", TT_FINDING_OK, "checkpoint.enable", p.saves = false; p.checkpoint = TT_GIB * 100);
	PLAN("plan.disk", TT_FINDING_BAD, "checkpoint.keep_latest_k = 9", p.checkpoint = 5 * TT_GIB);
	PLAN("plan.disk", TT_FINDING_BAD, "make room", p.checkpoint = 30 * TT_GIB);
	PLAN("plan.disk", TT_FINDING_BAD, "not one can be saved", p.checkpoint = 51 * TT_GIB);
	PLAN("plan.disk", TT_FINDING_WARN, "full after 16 saves", p.keep = 0);
	PLAN("plan.kernels", TT_FINDING_WARN, "3 of 9 linear run on the reference kernel, the first is y", p.slow = slow; p.nslow = 1);
	PLAN("plan.kernels", TT_FINDING_WARN, "multiples of 2", p.slow = slow; p.nslow = 1);
	PLAN("plan.kernels", TT_FINDING_WARN, "model.head_dim", p.slow = slow + 1; p.nslow = 1);
	PLAN("plan.kernels", TT_FINDING_WARN, "mixed_precision_param = \"float32\"", slow[0].by_isa = true; p.slow = slow; p.nslow = 1);
	PLAN("plan.kernels", TT_FINDING_WARN, "debug.kernels", p.references = true);
	PLAN("plan.kernels", TT_FINDING_WARN, "debug.numerics", p.exact = true);
	PLAN("plan.threads", TT_FINDING_WARN, "hardware.threads = 2", p.tokens = 64);
	PLAN("plan.context", TT_FINDING_WARN, "rows of 4096 tokens, positions are made for 2048", p.context = 4096);
	PLAN("plan.context", TT_FINDING_WARN, "60 % of a step is attention", p.attention = 0.6);
#undef PLAN
	f.machine.cgroup_memory.soft = 8 * TT_GIB;
	f.machine.cgroup_memory.used = TT_GIB;
	p = fits;
	p.planned = 9 * TT_GIB;
	expect(t, &f, "plan.memory", TT_FINDING_BAD, "the cgroup allows 8.00 GiB");
	p.planned = TT_GIB * 15 / 2;
	expect(t, &f, "plan.memory", TT_FINDING_WARN, "7.00 GiB can be had now");
}

/* What the plan says is what a run of it plans; nothing is made for it on disk. */
static void plan_of_config(tt_test *t)
{
	const char *folder = tt_test_path(t, "run");
	const char *text = tt_arena_printf(t->arena, "[model]\nflavor = \"debugmodel\"\nvocab_size = 256\nhidden_size = 72\nnum_attention_heads = 3\nnum_key_value_heads = 1\n"
		"head_dim = 24\nintermediate_size = 96\nnum_hidden_layers = 2\n[training]\ntokens_per_step = 256\ncontext_length = 64\n"
		"[checkpoint]\nenable = true\nkeep_latest_k = 3\nstaging_mib = 1\n[data]\nsource = \"synthetic\"\n[debug]\nrecord_hashes = [\"state\"]\n[job]\ndump_folder = \"%s\"\n", folder);
	tt_config *cfg;
	tt_run_options o;
	tt_trainer *tr;
	tt_doctor_plan p;
	if (!TT_CHECK_OK(t, tt_config_load_text(t->arena, "c.toml", text, strlen(text), 0, NULL, &cfg)) || !TT_CHECK_OK(t, tt_doctor_plan_make(t->arena, "c.toml", cfg, &p)))
		return;
	TT_CHECK(t, access(folder, F_OK) != 0);
	if (!TT_CHECK_OK(t, tt_run_options_from_config(t->arena, cfg, &o)))
		return;
	o.record = (tt_hashes_options){ 0 };
	if (!TT_CHECK_OK(t, tt_trainer_create(&o, &tr)))
		return;
	int64_t sum = 0, params = tt_trainer_params(tr);
	for (int i = 0; i < TT_EXEC_NREGIONS; i++) {
		TT_CHECK_INT(t, p.region[i], tt_exec_planned(tt_trainer_exec(tr), i));
		sum += p.region[i];
	}
	tt_trainer_destroy(tr);
	TT_CHECK_INT(t, p.planned, sum);
	TT_CHECK_INT(t, p.params, params);
	TT_CHECK_INT(t, p.checkpoint, 3 * 4 * params); /* weights and two moments */
	TT_CHECK_INT(t, p.staging, TT_MIN(TT_MIB, p.checkpoint));
	/* Each of two ranks may copy aside its share. */
	tt_config *two;
	tt_doctor_plan q;
	const char *ranks = tt_arena_printf(t->arena, "%s[hardware]\nranks = 2\n", text);
	if (TT_CHECK_OK(t, tt_config_load_text(t->arena, "c.toml", ranks, strlen(ranks), 0, NULL, &two)) && TT_CHECK_OK(t, tt_doctor_plan_make(t->arena, "c.toml", two, &q)))
		TT_CHECK(t, p.staging == TT_MIB && q.staging == q.checkpoint && q.checkpoint == p.checkpoint);
	TT_CHECK(t, p.saves && p.keep == 3 && p.context == 64 && p.tokens == 256 && p.attention > 0 && p.attention < 0.5);
	/* Heads of 24 fit no fast attention: by their dims, where the instruction set has one. */
	bool attention = false;
	for (int64_t i = 0; i < p.nslow; i++)
		if (!strcmp(p.slow[i].op, "attention")) {
			attention = true;
			TT_CHECK(t, !p.slow[i].by_isa && p.slow[i].n == p.slow[i].of && p.slow[i].n == 4 && strstr(p.slow[i].example, "[256,72]"));
		}
	TT_CHECK(t, attention);
	/* In the report, both forms. */
	fake k;
	tt_peak_source s = fake_source(t, &k, "cache");
	tt_doctor_options d = { .root = healthy(t, "m"), .source = &s, .run_folder = folder, .threads = 2, .isa = tt_isa_detect(), .plan = &p };
	const char *report = run_report(t, &d);
	TT_CHECK_MSG(t, strstr(report, "plan of c.toml: ") && strstr(report, tt_arena_printf(t->arena, "  total        %s\n", tt_scale_bytes(sum).s)) &&
		strstr(report, ": 3 kept and the one being written\n"), "%s", report);
	d.json = true;
	json_t *j = json_loads(run_report(t, &d), 0, NULL), *plan = json_object_get(j, "plan");
	TT_CHECK_INT(t, json_integer_value(json_object_get(plan, "total")), sum);
	TT_CHECK_INT(t, json_integer_value(json_object_get(json_object_get(plan, "regions"), "param")), p.region[TT_REGION_PARAM]);
	TT_CHECK(t, json_array_size(json_object_get(plan, "on_references")) == (size_t)p.nslow);
	json_decref(j);
}

/* ---- the report -------------------------------------------------------------------------------------------------------------------------- */

static void report_text(tt_test *t)
{
	fake k;
	tt_peak_source s = fake_source(t, &k, "cache");
	tt_doctor_options o = { .root = healthy(t, "m"), .source = &s, .run_folder = tt_test_path(t, "run"), .threads = 2, .isa = tt_isa_detect() };
	char *x = run_report(t, &o);
	static const char *const parts[] = { "titan ", TT_VERSION "\n", "Made of Files", "L3 Unified 32.0 MiB x2", "reference, compiled for", "measured peaks", "2 threads", "   now\n", "libxsmm", "jansson",
		"xxhash", "glibc", "compiler", "\nlimits\n", "  ok   load average 0.25\n" };
	for (int i = 0; i < TT_COUNT(parts); i++)
		TT_CHECK_MSG(t, strstr(x, parts[i]), "no \"%s\" in %s", parts[i], x);
	/* A second process: nothing is measured, ages are told. */
	int measured = k.measured;
	TT_CHECK(t, measured > 0);
	k.now += 3 * 86400;
	x = run_report(t, &o);
	TT_CHECK_INT(t, k.measured, measured);
	TT_CHECK(t, strstr(x, "3 days ago") && !strstr(x, "   now\n"));
	o.measure = true;
	x = run_report(t, &o);
	TT_CHECK_INT(t, k.measured, 2 * measured);
	TT_CHECK(t, strstr(x, "   now\n") && !strstr(x, "days ago"));
	/* One that lacks is measured alone. */
	tt_peaks p;
	TT_CHECK(t, tt_peak_load(&s, 2, &p));
	p.of[TT_PEAK_TRIAD].all = 0;
	TT_CHECK(t, tt_peak_store(&s, &p));
	o.measure = false;
	x = run_report(t, &o);
	TT_CHECK_INT(t, k.measured, 2 * measured + 1);
	/* Threads: as many as the machine has. */
	o.threads = 0;
	put(t, o.root, "/proc/self/status", "Cpus_allowed_list:\t1-3\n");
	x = run_report(t, &o);
	TT_CHECK(t, strstr(x, "a run starts 3 threads") && strstr(x, "warn this process may use 3 of 4 CPUs - the others stay idle - taskset"));
}

static void report_json(tt_test *t)
{
	fake k;
	tt_peak_source s = fake_source(t, &k, "cache");
	char *folder = tt_arena_printf(t->arena, "%s/\xff\"\\\x01", tt_test_tmp(t));
	tt_doctor_options o = { .root = healthy(t, "m"), .source = &s, .json = true, .run_folder = folder, .threads = 2, .isa = tt_isa_detect() };
	put(t, o.root, "/proc/cpuinfo", "model name\t: \xfe\"quoted\"\n");
	put(t, o.root, "/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
	char *x = run_report(t, &o);
	json_error_t e;
	json_t *j = json_loads(x, JSON_REJECT_DUPLICATES, &e);
	if (!TT_CHECK_MSG(t, j, "line %d: %s in %s", e.line, e.text, x))
		return;
	TT_CHECK_STR(t, json_string_value(json_object_get(j, "version")), TT_VERSION);
	TT_CHECK_STR(t, json_string_value(json_object_get(json_object_get(j, "machine"), "cpu")), "?\"quoted\"");
	TT_CHECK_STR(t, json_string_value(json_object_get(j, "isa")), tt_isa_name(o.isa));
	json_t *kernels = json_object_get(j, "kernels"), *peaks = json_object_get(j, "peaks"), *limits = json_object_get(j, "limits"), *v;
	for (int i = 0; tt_ops[i]; i++)
		TT_CHECK_MSG(t, json_array_size(json_object_get(kernels, tt_ops[i]->name)) >= 1, "no kernels of %s", tt_ops[i]->name);
	if (o.isa >= TT_ISA_AVX2)
		TT_CHECK(t, json_array_size(json_object_get(kernels, "linear")) >= 2);
	v = json_object_get(peaks, "read");
	TT_CHECK(t, json_real_value(json_object_get(v, "all_threads")) == (TT_PEAK_READ + 1) * 2e9 && json_is_false(json_object_get(v, "cached")));
	size_t i, warnings = 0;
	bool seen = false;
	json_array_foreach(limits, i, v) {
		const char *level = json_string_value(json_object_get(v, "level"));
		warnings += level && !strcmp(level, "warn");
		if (!strcmp(json_string_value(json_object_get(v, "key")), "memory.huge_pages")) {
			seen = true;
			TT_CHECK_STR(t, level, "warn");
			TT_CHECK(t, strstr(json_string_value(json_object_get(v, "remedy")), "echo madvise"));
		}
	}
	TT_CHECK(t, seen && warnings >= 1);
	TT_CHECK_INT(t, json_integer_value(json_object_get(j, "warnings")), warnings);
	json_decref(j);
}

const tt_case tt_suite_doctor[] = {
	{ "reads_machine", reads_machine, TT_TIER_QUICK },
	{ "reads_old_and_odd", reads_old_and_odd, TT_TIER_QUICK },
	{ "reads_rubbish", reads_rubbish, TT_TIER_QUICK },
	{ "finds_disks", finds_disks, TT_TIER_QUICK },
	{ "healthy_is_fine", healthy_is_fine, TT_TIER_QUICK },
	{ "findings_of_files", findings_of_files, TT_TIER_QUICK },
	{ "findings_of_facts", findings_of_facts, TT_TIER_QUICK },
	{ "cache_round_trip", cache_round_trip, TT_TIER_QUICK },
	{ "cache_damage", cache_damage, TT_TIER_QUICK },
	{ "unwritable", unwritable, TT_TIER_QUICK },
	{ "get_measures_once", get_measures_once, TT_TIER_QUICK },
	{ "peaks_are_sane", peaks_are_sane, TT_TIER_QUICK },
	{ "cache_folder", cache_folder, TT_TIER_QUICK },
	{ "findings_of_plan", findings_of_plan, TT_TIER_QUICK },
	{ "plan_of_config", plan_of_config, TT_TIER_QUICK },
	{ "report_text", report_text, TT_TIER_QUICK },
	{ "report_json", report_json, TT_TIER_QUICK },
	{ 0 },
};
