/* launch.c: was this process started as a rank of a job? And the plug-in of the launcher's MPI. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "comm/mpi.h"

/* What launchers put into the environment of what they start, and the MPI that speaks so. Open MPI's mpiexec first: it may stand under srun. */
static const struct { const char *rank, *size, *by, *mpi; } launchers[] = {
	{ "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpiexec of Open MPI", "openmpi" },
	{ "PMI_RANK", "PMI_SIZE", "mpiexec of MPICH", "mpich" },
	{ "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "srun", "openmpi" },
};

static int number(const char *name)
{
	const char *s = getenv(name);
	char *end;
	long v = s ? strtol(s, &end, 10) : -1;
	return s && end != s && !*end && v >= 0 && v < 1 << 24 ? (int)v : -1;
}

tt_status tt_comm_launched(tt_comm_launch *out)
{
	*out = (tt_comm_launch){ .size = 1 };
	for (int i = 0; i < TT_COUNT(launchers); i++) {
		int rank = number(launchers[i].rank), size = number(launchers[i].size);
		if (rank < 0 || size < 0 || rank >= size)
			continue;
		bool srun = getenv("SLURM_STEP_ID") && i > 0;
		if (size > 1)
			*out = (tt_comm_launch){ rank, size, srun ? "srun" : launchers[i].by, launchers[i].mpi, srun };
		return TT_OK;
	}
	int tasks = number("SLURM_STEP_NUM_TASKS");
	if (getenv("SLURM_STEP_ID") && number("SLURM_PROCID") >= 0 && tasks > 1)
		TT_FAIL(TT_ERR_USAGE, "srun started %d tasks without an MPI among them: srun --mpi=pmix for Open MPI, --mpi=pmi2 for "
			"MPICH (srun --mpi=list says what there is)", tasks);
	return TT_OK;
}

/* ---- faults, for tests ------------------------------------------------------------------------------------------------------------------ */

void tt_mpi_fault_read(tt_mpi_world *w)
{
	static const char *const names[] = { "", "stop", "kill", "hang", "fail", "name", "shape", "slow", "ask" };
	char what[16] = "";
	int rank = -1;
	long long count = 1;
	tt_mpi_fault f = { 0 };
	const char *text = getenv("TITAN_FAULT");
	if (!text || sscanf(text, "%15[^:]:%d:%63[^:]:%lld", what, &rank, f.pattern, &count) < 3 || rank != w->comm.rank)
		return;
	for (int i = 1; i < TT_COUNT(names); i++)
		if (!strcmp(what, names[i]))
			f.what = (tt_mpi_fault_what)i;
	f.left = count;
	w->fault = TT_NEW(w->arena, tt_mpi_fault);
	*w->fault = f;
}

tt_mpi_fault_what tt_mpi_fault_at(tt_mpi_world *w, const char *kind, const char *name)
{
	tt_mpi_fault *f = w->fault;
	if (!f || !(tt_glob_match(f->pattern, kind) || tt_glob_match(f->pattern, name)) || --f->left)
		return TT_FAULT_NONE;
	switch (f->what) {
	case TT_FAULT_STOP:
		raise(SIGSTOP);
		return TT_FAULT_NONE;
	case TT_FAULT_KILL:
		for (int r = 0, naps = 0; r < w->comm.size && naps < 10000 && !atomic_load(&w->up);) /* at the start: once all that are to hear of it are there */
			if (tt_mpi_who_listens(r))
				r++;
			else
				tt_mpi_sleep(0.001), naps++;
		raise(SIGKILL);
		return TT_FAULT_NONE;
	case TT_FAULT_HANG: /* it lives, and does not come */
		for (;;)
			tt_mpi_sleep(1);
	case TT_FAULT_SLOW: /* so that others, and its own other threads, come far ahead of it; a test may wait for the moment */
		tt_log(TT_LOG_ERROR, "a fault of a test: rank %d is slow at %s", w->comm.rank, name);
		tt_mpi_sleep(1);
		return TT_FAULT_NONE;
	case TT_FAULT_ASK:
		kill(getpid(), SIGHUP); /* not raise(): a thread that has it blocked would keep it */
		return TT_FAULT_NONE;
	case TT_FAULT_NONE:
	case TT_FAULT_FAIL:
	case TT_FAULT_NAME:
	case TT_FAULT_SHAPE:
		break;
	}
	return f->what;
}

/* ---- the plug-in -------------------------------------------------------------------------------------------------------------------------- */

enum { PATH = 4096 };

static const tt_mpi_api *open_file(const char *path, tt_buf *tried)
{
	if (access(path, R_OK)) {
		tt_buf_printf(tried, "%s%s is not there", tried->n ? "; " : "", path);
		return NULL;
	}
	/* RTLD_GLOBAL: MPIs open parts of their own later, which look for the library's names. */
	void *lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	const tt_mpi_api *api = lib ? dlsym(lib, TT_MPI_SYMBOL) : NULL;
	if (!api || api->abi != TT_MPI_ABI) {
		if (!api)
			tt_buf_printf(tried, "%s%s: %s", tried->n ? "; " : "", path, dlerror());
		else
			tt_buf_printf(tried, "%s%s is of another version", tried->n ? "; " : "", path);
		return NULL;
	}
	return api;
}

tt_status tt_mpi_open(const tt_comm_launch *l, const tt_mpi_api **out)
{
	static const char *const names[] = { "openmpi", "mpich" }, *const places[] = { "", "../lib/titan/" };
	char self[PATH], path[PATH + 64];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	self[n > 0 ? n : 0] = 0;
	char *slash = strrchr(self, '/');
	if (slash)
		slash[1] = 0;
	const char *said = getenv("TITAN_MPI") && *getenv("TITAN_MPI") ? getenv("TITAN_MPI") : NULL, *only = said ? said : l->any ? NULL : l->mpi;
	if (said && strcmp(said, names[0]) && strcmp(said, names[1]))
		TT_FAIL(TT_ERR_USAGE, "TITAN_MPI=%s: there are plug-ins for %s and %s", said, names[0], names[1]);
	tt_buf tried = { 0 };
	const tt_mpi_api *api = NULL;
	int first = !only && !strcmp(l->mpi, names[1]);
	for (int i = 0; i < TT_COUNT(names) && !api; i++) {
		const char *name = names[(first + i) % TT_COUNT(names)];
		for (int p = 0; p < TT_COUNT(places) && !api && (!only || !strcmp(only, name)); p++) {
			snprintf(path, sizeof path, "%s%stitan-mpi-%s.so", self, places[p], name);
			api = open_file(path, &tried);
		}
	}
	if (!api)
		tt_error_set(TT_ERR_USAGE, __FILE__, __LINE__, "%s started %d ranks, and there is no plug-in for its MPI%s: %s (install libopenmpi-dev or libmpich-dev, "
			     "then make; TITAN_MPI=openmpi or mpich says which)", l->by, l->size, said ? " as TITAN_MPI has it" : "", tried.n ? tried.s : "");
	tt_buf_fini(&tried);
	if (!api)
		return TT_ERR_USAGE;
	*out = api;
	return TT_OK;
}
