/* findings.c: which of the machine's limits will hurt a run, why, and what helps. One function a subject; each says something in every
 * case, so that what was looked at can be seen from what is fine too. */
#include "cli/doctor.h"

typedef struct ctx {
	tt_arena *a;
	const tt_doctor_facts *f;
	tt_findings *out;
} ctx;

#define SAY(...) tt_arena_printf(c->a, __VA_ARGS__)

static void add(ctx *c, tt_finding_level level, const char *key, const char *what, const char *why, const char *remedy)
{
	bool fine = level == TT_FINDING_OK;
	tt_finding f = { level, key, what, fine ? "" : why, fine ? "" : remedy };
	TT_PUSH(c->a, c->out->items, c->out->n, c->out->cap, f);
}

static void fine(ctx *c, const char *key, const char *what) { add(c, TT_FINDING_OK, key, what, "", ""); }

const char *tt_finding_level_name(tt_finding_level l)
{
	switch (l) {
	case TT_FINDING_OK: return "ok";
	case TT_FINDING_WARN: return "warn";
	case TT_FINDING_BAD: return "bad";
	}
	return "?";
}

static const char *size(ctx *c, int64_t bytes) { return tt_arena_strdup(c->a, tt_scale_bytes(bytes).s); }

/* ---- processor ------------------------------------------------------------------------------------------------------------------- */

static void check_isa(ctx *c)
{
	const tt_doctor_facts *f = c->f;
	const char *name = tt_isa_name(f->isa);
	if (f->isa == TT_ISA_REF)
		add(c, TT_FINDING_WARN, "cpu.isa", SAY("instruction set %s: neither AVX2 nor more is used", name),
			"every product runs on the reference kernels, many times slower",
			"debug.isa = \"auto\" if it was set; else a processor, or a virtual machine's CPU model, that passes AVX2 and FMA on");
	else if (f->isa < TT_ISA_AVX512_BF16 && f->compute_bf16)
		add(c, TT_FINDING_WARN, "cpu.isa", SAY("instruction set %s has no bf16 products", name),
			"products of bf16 run on the reference kernels, several times slower than those of float32", "training.mixed_precision_param = \"float32\"");
	else
		fine(c, "cpu.isa", SAY("instruction set %s has fast products for %s", name, f->compute_bf16 ? "bf16" : "float32"));
}

static void check_threads(ctx *c)
{
	const tt_machine *m = &c->f->machine;
	int n = c->f->threads;
	if (m->cpu_quota > 0 && m->cpu_quota < n)
		add(c, TT_FINDING_WARN, "cpu.quota", SAY("the cgroup grants %.2f cores, a run starts %d threads", m->cpu_quota, n),
			"once the share is used up all threads stand still until the next period, most often within a step",
			SAY("hardware.threads = %d, or a larger share (docker --cpus, systemd CPUQuota=, kubernetes resources.limits.cpu)",
				(int)TT_MAX(1, (int)m->cpu_quota)));
	else if (m->cpu_quota > 0 && m->cpu_quota < m->cpus_allowed)
		add(c, TT_FINDING_WARN, "cpu.quota", SAY("the cgroup grants %.2f cores' time of %d CPUs", m->cpu_quota, m->cpus_allowed),
			"a run uses no more threads than that", "a larger share (docker --cpus, systemd CPUQuota=, kubernetes resources.limits.cpu)");
	else
		fine(c, "cpu.quota", "no cgroup limits the processor's time");
	if (m->cpus_allowed && m->cpus_allowed < m->cpus_online)
		add(c, TT_FINDING_WARN, "cpu.affinity", SAY("this process may use %d of %d CPUs", m->cpus_allowed, m->cpus_online), "the others stay idle",
			"taskset -c 0-N, numactl --physcpubind, docker --cpuset-cpus, or the job's --cpus-per-task; hardware.threads follows by itself");
	else
		fine(c, "cpu.affinity", SAY("all %d CPUs may be used", m->cpus_online));
	int may = m->cpus_allowed ? m->cpus_allowed : m->cpus_online;
	if (may && n > may)
		add(c, TT_FINDING_WARN, "cpu.threads", SAY("%d threads on %d CPUs", n, may), "lanes wait for those that do not run; a step takes longer than with fewer",
			SAY("hardware.threads = %d (or 0)", may));
	else if (m->threads_per_core > 1 && m->cores_allowed && n > m->cores_allowed)
		add(c, TT_FINDING_WARN, "cpu.threads", SAY("%d threads on %d cores of %d threads each", n, m->cores_allowed, m->threads_per_core),
			"threads of one core share its multipliers: products gain nothing, caches are halved", SAY("hardware.threads = %d", m->cores_allowed));
	else
		fine(c, "cpu.threads", SAY("a run starts %d thread%s", n, n == 1 ? "" : "s"));
	double gain = c->f->peak_one > 0 ? c->f->peak_all / c->f->peak_one : 0;
	if (n > 1 && gain > 0 && gain < 0.6 * n)
		add(c, TT_FINDING_WARN, "cpu.scaling", SAY("%d threads compute %.2f times as fast as one", n, gain),
			"CPUs share cores, even if this system does not show it, or others had them while it was measured, or power is short",
			SAY("titan doctor --measure on an idle machine; if it stays, hardware.threads = %d", TT_MAX(1, (int)(gain + 0.5))));
	else if (gain > 0)
		fine(c, "cpu.scaling", SAY("%d thread%s compute%s %.2f times as fast as one", n, n == 1 ? "" : "s", n == 1 ? "s" : "", gain));
	if (m->numa_nodes_allowed > 1)
		add(c, TT_FINDING_WARN, "cpu.numa", SAY("threads are spread over %d memory nodes", m->numa_nodes_allowed),
			"half of what a thread reads may lie at another socket's memory, at a fraction of the speed", "numactl --cpunodebind=0 --membind=0 titan train ...");
	else
		fine(c, "cpu.numa", "one memory node");
}

static void check_speed(ctx *c)
{
	const tt_machine *m = &c->f->machine;
	/* A quarter of the CPUs taken by others shows; one background task on a small machine does not. */
	int cpus = TT_MAX(1, m->cpus_online);
	if (m->load1 >= TT_MAX(1.0, 0.25 * cpus))
		add(c, TT_FINDING_WARN, "cpu.load", SAY("load average %.2f on %d CPU%s", m->load1, cpus, cpus == 1 ? "" : "s"),
			"a step ends with its slowest thread: one busy core holds up all; peaks measured now are too low",
			"stop what else runs (top shows it), or leave it cores: hardware.threads; then titan doctor --measure");
	else
		fine(c, "cpu.load", SAY("load average %.2f", m->load1));
	/* Under these drivers the governor called powersave scales with the load, as others' schedutil does. */
	bool hardware = !strcmp(m->frequency_driver, "intel_pstate") || !strncmp(m->frequency_driver, "amd-pstate-epp", 14) || !strncmp(m->frequency_driver, "amd_pstate_epp", 14);
	if (!strcmp(m->governor, "powersave") && !hardware)
		add(c, TT_FINDING_WARN, "cpu.governor", SAY("frequency governor powersave (%s)", *m->frequency_driver ? m->frequency_driver : "unknown driver"),
			"cores stay at their lowest frequency", "cpupower frequency-set -g performance (as root)");
	else if (m->frequency_most && m->frequency_cap * 10 < m->frequency_most * 9)
		add(c, TT_FINDING_WARN, "cpu.governor", SAY("frequency is capped at %lld of %lld MHz", (long long)m->frequency_cap / 1000, (long long)m->frequency_most / 1000),
			"cores could run faster", SAY("cpupower frequency-set -u %lldMHz (as root)", (long long)m->frequency_most / 1000));
	else
		fine(c, "cpu.governor", *m->governor ? SAY("frequency governor %s", m->governor) : m->hypervisor ? "frequency is the host's affair" : "frequency governor not known");
}

/* ---- memory ---------------------------------------------------------------------------------------------------------------------------- */

static void check_memory(ctx *c)
{
	const tt_machine *m = &c->f->machine;
	tt_limit g = m->cgroup_memory;
	bool limited = g.soft < m->ram;
	if (limited && g.soft < m->ram / 2)
		add(c, TT_FINDING_WARN, "memory.cgroup", SAY("the cgroup allows %s of %s memory", size(c, g.soft), size(c, m->ram)),
			"at the limit the kernel kills the run, however much the machine has free",
			"a higher limit (docker --memory, systemd MemoryMax=, slurm --mem), or less: training.tokens_per_microbatch, model.flavor");
	else
		fine(c, "memory.cgroup", limited ? SAY("the cgroup allows %s of %s memory", size(c, g.soft), size(c, m->ram)) : "no cgroup limits memory below what there is");
	int64_t room = m->available;
	if (limited && g.used >= 0)
		room = TT_MIN(room, g.soft - g.used);
	if (m->ram && room < 512 * TT_MIB)
		add(c, TT_FINDING_BAD, "memory.free", SAY("%s of memory can be had", size(c, TT_MAX(0, room))), "a run of any size is killed or swaps",
			"end other processes, or raise the cgroup's limit");
	else if (m->ram && room < TT_MIN(m->ram, g.soft) / 8)
		add(c, TT_FINDING_WARN, "memory.free", SAY("%s of %s memory can be had", size(c, room), size(c, TT_MIN(m->ram, g.soft))),
			"a run that plans for all of it is killed or swaps", "end other processes, or less: training.tokens_per_microbatch");
	else
		fine(c, "memory.free", SAY("%s of memory can be had", size(c, room)));
	int64_t swapped = m->swap - m->swap_free;
	if (m->swap && swapped > TT_MAX(m->ram / 20, 256 * TT_MIB))
		add(c, TT_FINDING_WARN, "memory.swap", SAY("%s is swapped out", size(c, swapped)), "memory was short, and tensors that are swapped cost milliseconds a page",
			"end what needs the memory, then swapoff -a && swapon -a (as root)");
	else
		fine(c, "memory.swap", m->swap ? SAY("%s of %s swap in use", size(c, swapped), size(c, m->swap)) : "no swap");
	if (!*m->huge_pages || !strcmp(m->huge_pages, "never"))
		add(c, TT_FINDING_WARN, "memory.huge_pages", *m->huge_pages ? "transparent huge pages: never" : "this kernel has no transparent huge pages",
			"tensors lie in 4 KiB pages: a few percent on products, up to a third on reading weights for few tokens",
			*m->huge_pages ? "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root)" : "a kernel with CONFIG_TRANSPARENT_HUGEPAGE");
	else if (!strcmp(m->huge_defrag, "never"))
		add(c, TT_FINDING_WARN, "memory.huge_pages", SAY("transparent huge pages: %s, but defrag: never", m->huge_pages),
			"on a machine that has run for long, no free memory is left in pieces of 2 MiB, and none are made",
			"echo madvise > /sys/kernel/mm/transparent_hugepage/defrag (as root)");
	else
		fine(c, "memory.huge_pages", SAY("transparent huge pages: %s", m->huge_pages));
	if (m->memory_lock < 64 * TT_KIB)
		add(c, TT_FINDING_WARN, "memory.lock", SAY("%s may be locked (ulimit -l)", size(c, m->memory_lock)),
			"the tables of compiled kernels cannot be kept from being swapped out; buffers that adapters read must be locked",
			"ulimit -l unlimited, docker --ulimit memlock=-1, or LimitMEMLOCK= and /etc/security/limits.conf");
	else
		fine(c, "memory.lock", SAY("%s may be locked", size(c, m->memory_lock)));
	if (m->address_space != INT64_MAX)
		add(c, TT_FINDING_WARN, "memory.address_space", SAY("address space is limited to %s (ulimit -v)", size(c, m->address_space)),
			"tensor memory is reserved whole before it is touched, and a reservation over the limit ends the run", "ulimit -v unlimited");
	else if (m->overcommit == 2)
		add(c, TT_FINDING_WARN, "memory.address_space", "address space is counted as memory (vm.overcommit_memory = 2)",
			"tensor memory is reserved whole before it is touched, and is refused although memory is free", "sysctl vm.overcommit_memory=0 (as root)");
	else
		fine(c, "memory.address_space", "address space is free to reserve");
}

/* ---- limits of the process ----------------------------------------------------------------------------------------------------------------- */

static void check_process(ctx *c)
{
	const tt_doctor_facts *f = c->f;
	const tt_machine *m = &f->machine;
	/* Threads of the pool, and some that save, watch and log. */
	int64_t need = f->threads + 8, room = INT64_MAX;
	bool counted = m->cgroup_tasks.soft != INT64_MAX && m->cgroup_tasks.used >= 0;
	if (counted)
		room = m->cgroup_tasks.soft - m->cgroup_tasks.used;
	if (room < need)
		add(c, TT_FINDING_BAD, "process.tasks", SAY("the cgroup has room for %lld more threads, a run needs %lld", (long long)TT_MAX(0, room), (long long)need),
			"threads are refused when the run starts", "docker --pids-limit, systemd TasksMax=, or hardware.threads");
	else if (m->processes.soft < need)
		add(c, TT_FINDING_BAD, "process.tasks", SAY("this user may have %lld threads (ulimit -u), a run needs %lld", (long long)m->processes.soft, (long long)need),
			"threads are refused when the run starts", "ulimit -u, or hardware.threads");
	/* What counts is this user's threads; all of the system's are no less. */
	else if (m->processes.soft != INT64_MAX && m->processes.soft - TT_MAX(0, m->processes.used) < need)
		add(c, TT_FINDING_WARN, "process.tasks", SAY("this user may have %lld threads (ulimit -u), %lld run on the system", (long long)m->processes.soft,
			(long long)m->processes.used), "threads may be refused when the run starts", "ulimit -u, or hardware.threads");
	else
		fine(c, "process.tasks", "threads enough may be started");
	if (m->open_files < 256)
		add(c, TT_FINDING_WARN, "process.files", SAY("%lld files may be open (ulimit -n)", (long long)m->open_files),
			"a sharded checkpoint is opened whole, and so is a folder of text", "ulimit -n 4096");
	else
		fine(c, "process.files", m->open_files == INT64_MAX ? "any number of files may be open" : SAY("%lld files may be open", (long long)m->open_files));
	if (m->file_size != INT64_MAX)
		add(c, m->file_size < 64 * TT_MIB ? TT_FINDING_BAD : TT_FINDING_WARN, "process.file_size", SAY("files may grow to %s (ulimit -f)", size(c, m->file_size)),
			"a checkpoint that is longer cannot be saved", "ulimit -f unlimited");
	else
		fine(c, "process.file_size", "files may grow without limit");
	if (!f->exec_memory)
		add(c, TT_FINDING_BAD, "process.jit", "the system refuses memory that was written and then is to be run",
			"products are compiled at run time and need it", "allow it (SELinux: setsebool -P deny_execmem 0; systemd: MemoryDenyWriteExecute=no), or --kernels=ref");
	else if (m->selinux && f->temp_known && f->temp.noexec)
		add(c, TT_FINDING_WARN, "process.jit", SAY("SELinux is enforcing and %s is mounted noexec", f->temp.at),
			"the compiler of products then wants an executable file there", "TMPDIR set to a folder whose file system allows it");
	else
		fine(c, "process.jit", "kernels can be compiled at run time");
}

/* ---- disks ------------------------------------------------------------------------------------------------------------------------------------ */

/* `serious`: without it a run cannot end well; else it is a convenience. */
static void check_disk(ctx *c, const char *key, const char *role, const char *path, const char *move, const tt_disk *d, bool known, bool serious)
{
	tt_finding_level worst = serious ? TT_FINDING_BAD : TT_FINDING_WARN;
	const char *lost = serious ? "checkpoints and metrics cannot be written" : "peaks are measured anew by every run";
	int64_t least = serious ? 256 * TT_MIB : TT_MIB, low = serious ? 4 * TT_GIB : 16 * TT_MIB;
	if (!*path)
		add(c, TT_FINDING_WARN, key, SAY("no %s: neither XDG_CACHE_HOME nor HOME is an absolute path", role), lost, move);
	else if (!known)
		add(c, worst, key, SAY("%s %s cannot be looked at", role, path), lost, move);
	else if (d->read_only)
		add(c, worst, key, SAY("%s %s: %s is mounted read-only", role, path, d->at), lost, move);
	else if (!d->writable)
		add(c, worst, key, SAY("%s %s: no right to write in %s", role, path, d->at), lost, move);
	else if (d->free < least)
		add(c, worst, key, SAY("%s %s: %s free", role, path, size(c, d->free)), lost, SAY("make room, or %s", move));
	else if (d->files_free >= 0 && d->files_free < 1000)
		add(c, d->files_free < 16 ? worst : TT_FINDING_WARN, key, SAY("%s %s: room for %lld more files", role, path, (long long)d->files_free), lost,
			SAY("make room (df -i), or %s", move));
	else if (d->free < low)
		add(c, TT_FINDING_WARN, key, SAY("%s %s: %s free of %s", role, path, size(c, d->free), size(c, d->bytes)),
			"a checkpoint is written beside the one before it and needs the room of both", SAY("make room, checkpoint.keep_latest_k, or %s", move));
	else if (serious && d->in_memory)
		add(c, TT_FINDING_WARN, key, SAY("%s %s is in memory (%s)", role, path, d->type), "what is saved there takes memory from the run and is gone when the machine stops", move);
	else if (serious && d->overlay)
		add(c, TT_FINDING_WARN, key, SAY("%s %s is in the container's own layer (%s)", role, path, d->type), "what is saved there is gone with the container",
			SAY("mount a volume (docker -v), or %s", move));
	else
		fine(c, key, SAY("%s %s: %s free%s%s", role, path, size(c, d->free), *d->type ? ", " : "", d->type));
}

void tt_doctor_check(tt_arena *a, const tt_doctor_facts *f, tt_findings *out)
{
	*out = (tt_findings){ 0 };
	ctx state = { a, f, out }, *c = &state;
	check_isa(c);
	check_threads(c);
	check_speed(c);
	check_memory(c);
	check_process(c);
	check_disk(c, "disk.run", "run folder", f->run_folder, "job.dump_folder on another disk", &f->run, f->run_known, true);
	check_disk(c, "disk.cache", "cache folder", f->cache_folder, "XDG_CACHE_HOME set to a folder on another disk", &f->cache, f->cache_known, false);
	if (f->plan)
		tt_doctor_check_plan(a, f, out);
}
