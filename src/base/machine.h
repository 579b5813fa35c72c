/* machine: what this machine is and what it lets this process have. Reads, never changes anything.
 *
 * Everything comes from files under /proc, /sys and /run, found below a `root` that a test may set: "" is the machine itself. A file that is
 * not there leaves its fact unknown: 0, an empty text, or for limits INT64_MAX.
 */
#ifndef TT_BASE_MACHINE_H
#define TT_BASE_MACHINE_H

#include "base/base.h"

typedef struct tt_cache {
	int level;
	char type[16];  /* Data, Instruction, Unified */
	int64_t bytes;  /* of one instance */
	int cpus;       /* logical CPUs that share an instance */
	int instances;  /* that the allowed CPUs reach */
} tt_cache;

typedef struct tt_limit { int64_t soft, used; } tt_limit; /* INT64_MAX: none; used -1: not known */

enum { TT_MACHINE_CACHES = 8 };

typedef struct tt_machine {
	/* the processor */
	char cpu[128], vendor[32], microcode[32], features[320]; /* features: those that kernels ask about, blank between */
	int family, model, stepping;
	bool hypervisor;
	int cpus_online;
	int cpus_allowed;   /* by the affinity mask */
	double cpu_quota;   /* cores' worth of time that the cgroup grants; 0: no limit */
	int cores_allowed;  /* physical ones among the allowed */
	int threads;        /* that can run at the same time: allowed CPUs, or the quota rounded down if that is less; >= 1 */
	int threads_per_core;
	tt_cache caches[TT_MACHINE_CACHES]; /* of the first allowed CPU */
	int ncaches;
	int numa_nodes, numa_nodes_allowed; /* all; those that hold an allowed CPU */
	char governor[32], frequency_driver[32];
	int64_t frequency_cap, frequency_most; /* kHz: what the system allows, what the chip could */
	double load1;       /* tasks that run or wait to, mean over a minute */
	/* memory, bytes */
	int64_t ram, available, swap, swap_free;
	tt_limit cgroup_memory; /* the tightest group on the way up; used: without page cache that can be dropped */
	char huge_pages[16], huge_defrag[24]; /* always, madvise, never ... */
	int overcommit;     /* 2: address space is counted against a limit */
	/* limits of the process */
	tt_limit processes; /* RLIMIT_NPROC */
	tt_limit cgroup_tasks;
	int64_t memory_lock, open_files, address_space, file_size; /* RLIMIT_*, soft; bytes, files */
	/* the system */
	char kernel[80], container[24]; /* container: docker, podman ...; empty: none seen */
	bool selinux;       /* enforcing */
} tt_machine;

void tt_machine_read(const char *root, tt_machine *out);
/* `threads` of this machine alone: what a run starts where its config does not say. */
int tt_machine_threads(void);

/* The file system that a path is on, or would be: of the nearest folder above that exists. */
typedef struct tt_disk {
	char at[512];       /* that folder */
	char type[32];      /* ext4, xfs, tmpfs ...; empty: not known */
	int64_t bytes, free;/* free: for this user */
	int64_t files_free; /* -1: the file system does not count them */
	bool in_memory, overlay, network, read_only, noexec, writable;
} tt_disk;
/* False if even the root could not be asked. */
bool tt_machine_disk(const char *root, const char *path, tt_disk *out);

/* May memory be written and then be run? Maps one page and unmaps it. */
bool tt_machine_exec_memory(void);

/* One line that names this processor with all that changes its speed: vendor, family, model, stepping, microcode, name. */
void tt_machine_signature(const tt_machine *m, char *out, size_t n);

/* Bytes of all caches of the highest level that the allowed CPUs reach; 0: not known. */
int64_t tt_machine_last_cache(const tt_machine *m);

/* The state letter of a process of this machine ('R', 'T' stopped, 'Z' ended and not reaped), and when it began: clock ticks since boot. 0: there is none, or it
 * is hidden. */
char tt_process_state(int64_t pid, int64_t *born);

#endif
