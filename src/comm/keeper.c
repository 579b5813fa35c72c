/* keeper.c: MPICH's launcher (hydra) kills all ranks as soon as it reaps one that a signal has ended, with -disable-auto-cleanup too, before any of them
 * can say which it waits for. So the process that it has started becomes the keeper of the rank, its child: it passes signals on, ends as the child does,
 * and where that was killed says so and gives the others time to say their text. Launchers that leave ranks that time have no keeper.
 *
 * Once hydra before 4.1 has passed a signal on, it takes a rank's code for 0 if it reaps it after all ranks' stdout and stderr are closed (pmip.c,
 * forced_cleanup): a run that ended in order would look whole at times. A last process holds these until the keeper, whose code counts, can be reaped.
 *
 * A process that ends before its MPI_Init, with a code and not by a signal, hydra thinks no harm of, and the others wait for it in theirs as long as
 * comm.init_timeout_seconds: so it is asked to end the job, as MPI_Abort would ask. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "comm/mpi.h"

static pid_t launcher; /* of the keeper; 0: there is none */

int tt_mpi_launcher(void) { return launcher ? launcher : getppid(); }

void tt_mpi_end_job(int code)
{
	const char *fd = getenv("PMI_FD"); /* hydra's end of it reads PMI-1 */
	char text[48];
	int n = snprintf(text, sizeof text, "cmd=abort exitcode=%d\n", code);
	if (!launcher || !fd)
		return;
	tt_mpi_sleep(0.5); /* what was written is still on its way through the launcher; and others may be about to say why they end, too */
	(void)!send((int)strtol(fd, NULL, 10), text, (size_t)n, MSG_NOSIGNAL);
}

/* Ends with `code`, and lets the launcher see it: its look for codes comes with an event of an open pipe, so one is closed after this process is gone and
 * the other a while later. */
static _Noreturn void end_with(int code, bool signalled)
{
	pid_t self = getpid();
	if (code && signalled && fork() == 0) {
		while (getppid() == self)
			tt_mpi_sleep(0.001);
		close_range(0, STDOUT_FILENO, 0);
		close_range(STDERR_FILENO + 1, ~0u, 0); /* hydra's own names of the same pipes */
		tt_mpi_sleep(0.5);
		_exit(0);
	}
	_exit(code);
}

/* `signalled`: by the launcher. */
static _Noreturn void end_as(int rank, pid_t child, int status, bool signalled)
{
	enum { PATIENCE = 4 }; /* of others: a look every 50 ms, and what tt_comm_leave takes */
	if (WIFEXITED(status))
		end_with(WEXITSTATUS(status), signalled);
	char text[160];
	int n = snprintf(text, sizeof text, "rank %d: process %d was ended by signal %d (%s)\n", rank, (int)child, WTERMSIG(status), strsignal(WTERMSIG(status)));
	(void)!write(STDERR_FILENO, text, (size_t)TT_MIN(n, (int)sizeof text - 1));
	tt_mpi_sleep(PATIENCE);
	tt_mpi_end_job(128 + WTERMSIG(status)); /* who has not said anything by now waits in MPI_Init */
	end_with(128 + WTERMSIG(status), signalled);
}

static _Noreturn void keep(int rank, pid_t child, const sigset_t *all)
{
	for (bool signalled = false;;) {
		siginfo_t got;
		int number = sigwaitinfo(all, &got), status;
		if (number == SIGCHLD && waitpid(child, &status, WNOHANG) == child)
			end_as(rank, child, status, signalled);
		/* The launcher signals the group, in which the child is, too. */
		if (number > 0 && number != SIGCHLD && got.si_pid != launcher)
			kill(child, number);
		signalled |= number > 0 && number != SIGCHLD && got.si_pid == launcher;
	}
}

void tt_comm_keep(void)
{
	tt_comm_launch l;
	if (tt_comm_launched(&l) != TT_OK || l.size == 1 || l.any || strcmp(l.mpi, "mpich"))
		return;
	sigset_t all, was;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &was);
	launcher = getppid();
	pid_t self = getpid(), child = fork();
	if (child > 0)
		keep(l.rank, child, &all);
	if (child < 0)
		launcher = 0; /* it does without */
	else if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != self)
		_exit(1);
	sigprocmask(SIG_SETMASK, &was, NULL);
}
