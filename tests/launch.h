/* Cases that run under an MPI's launcher: what is installed, how a command is started, a case whose own process is a rank. Everything is static. */
#ifndef TT_LAUNCH_H
#define TT_LAUNCH_H

#include "test.h"

#include "comm/comm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const struct { const char *mpi, *exec, *flags, *packages; } mpis[] = {
	{ "openmpi", "mpiexec.openmpi", "--oversubscribe", "libopenmpi-dev, openmpi-bin" },
	{ "mpich", "mpiexec.mpich", "", "libmpich-dev, mpich" },
};

static inline bool on_path(tt_arena *a, const char *name)
{
	for (const char *at = getenv("PATH"); at && *at;) {
		size_t n = strcspn(at, ":");
		if (!access(tt_arena_printf(a, "%.*s/%s", (int)n, at, name), X_OK))
			return true;
		at += n + (at[n] == ':');
	}
	return false;
}

/* "titan" beside this program. */
static inline const char *beside(tt_test *t, const char *name)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	self[TT_MAX(n, (ssize_t)0)] = 0;
	char *slash = strrchr(self, '/');
	return tt_arena_printf(t->arena, "%.*s/%s", slash ? (int)(slash - self) : 0, self, name);
}

/* Why MPI m cannot be tested; NULL: it can. */
static inline const char *missing(tt_test *t, int m)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	return "MPIs are not built for sanitizers";
#endif
	if (!on_path(t->arena, mpis[m].exec))
		return tt_arena_printf(t->arena, "%s is not installed (%s)", mpis[m].exec, mpis[m].packages);
	const char *plugin = tt_arena_printf(t->arena, "titan-mpi-%s.so", mpis[m].mpi);
	if (access(beside(t, plugin), R_OK))
		return tt_arena_printf(t->arena, "%s is not built: mpicc.%s is not installed (%s)", plugin, mpis[m].mpi, mpis[m].packages);
	if (access(beside(t, "titan"), X_OK) || access("configs/debug.toml", R_OK))
		return "the program titan is not beside the tests, or configs/ is not here";
	return NULL;
}

#define NEEDS(t, m)                                                                                                    \
	do {                                                                                                           \
		const char *why_ = missing(t, m);                                                                      \
		if (why_)                                                                                              \
			TT_SKIP(t, why_);                                                                              \
	} while (0)

/* Runs a command of the shell with what it says in *said; how it ended, as wait has it. In a process group of its own, so that nothing stays if the
 * test is given up. */
static inline int shell(tt_test *t, const char *command, char **said)
{
	static int runs;
	const char *path = tt_test_path(t, tt_arena_printf(t->arena, "said-%d", runs++));
	pid_t pid;
	int status = -1;
	posix_spawn_file_actions_t to;
	posix_spawn_file_actions_init(&to);
	posix_spawn_file_actions_addopen(&to, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&to, STDOUT_FILENO, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	posix_spawn_file_actions_adddup2(&to, STDOUT_FILENO, STDERR_FILENO);
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	char *argv[] = { "sh", "-c", (char *)(uintptr_t)command, NULL };
	if (TT_CHECK_MSG(t, !posix_spawn(&pid, "/bin/sh", &to, NULL, argv, environ), "sh: %m"))
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	posix_spawn_file_actions_destroy(&to);
	size_t n;
	*said = "";
	if (tt_file_read(t->arena, path, said, &n) != TT_OK)
		TT_CHECK_MSG(t, false, "%s", tt_error_text());
	return status;
}

/* `program` on n ranks of MPI m. */
static inline int launch(tt_test *t, int m, int n, const char *env, const char *program, char **said)
{
	return shell(t, tt_arena_printf(t->arena, "%s exec %s %s -n %d %s", env, mpis[m].exec, mpis[m].flags, n, program), said);
}

/* The case SUITE.NAME of this program. */
static inline const char *self(tt_test *t, const char *name) { return tt_arena_printf(t->arena, "%s --no-fork --tier=proof %s", beside(t, "titan-test"), name); }

/* Is this process a rank of a job? Then it runs `fn` as one. */
static inline bool as_rank(tt_test *t, tt_rank_fn *fn, void *ctx, int64_t message_bytes)
{
	tt_comm_launch l;
	if (tt_comm_launched(&l) != TT_OK || l.size == 1)
		return false;
	bool held = TT_CHECK_OK(t, tt_comm_mpi(&(tt_comm_options){ .init_timeout_s = 30, .message_bytes = message_bytes }, fn, ctx));
	if (!held)
		tt_comm_leave(1);
	return true;
}

#endif
