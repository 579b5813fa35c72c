/* keeper.c: MPICH's launcher (hydra) kills all ranks as soon as it reaps one that a signal has ended, with -disable-auto-cleanup too, before any of them
 * can say which it waits for. So the process that it has started becomes the keeper of the rank, its child: it passes signals on, ends as the child does,
 * and where that was killed says so and gives the others time to say their text. Launchers that leave ranks that time have no keeper. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "comm/mpi.h"

static pid_t launcher; /* of the keeper; 0: there is none */

int tt_mpi_launcher(void) { return launcher ? launcher : getppid(); }

static _Noreturn void end_as(int rank, pid_t child, int status)
{
	enum { PATIENCE = 4 }; /* of others: a look every 50 ms, and what tt_comm_leave takes */
	if (WIFEXITED(status))
		_exit(WEXITSTATUS(status));
	char text[160];
	int n = snprintf(text, sizeof text, "rank %d: process %d was ended by signal %d (%s)\n", rank, (int)child, WTERMSIG(status), strsignal(WTERMSIG(status)));
	(void)!write(STDERR_FILENO, text, (size_t)TT_MIN(n, (int)sizeof text - 1));
	tt_mpi_sleep(PATIENCE);
	_exit(128 + WTERMSIG(status));
}

static _Noreturn void keep(int rank, pid_t child, const sigset_t *all)
{
	for (;;) {
		siginfo_t got;
		int number = sigwaitinfo(all, &got), status;
		if (number == SIGCHLD && waitpid(child, &status, WNOHANG) == child)
			end_as(rank, child, status);
		/* The launcher signals the group, in which the child is, too. */
		if (number > 0 && number != SIGCHLD && got.si_pid != launcher)
			kill(child, number);
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
