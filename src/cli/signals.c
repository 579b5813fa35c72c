/* signals.c: what asks a run to end. It ends after its step, saved. INT and TERM ask once, the second of them ends it at once. USR1 and HUP ask as often
 * as they come: USR1 is what a batch system sends some time before the end (Slurm's --signal=USR1@60), and what Open MPI's mpiexec passes on without a
 * kill after it; HUP comes once a terminal is closed, more than once at times. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "cli/signals.h"

/* Set by the handlers below, polled by the run: the one flag that a signal may write; and whether the next INT or TERM is the second. */
static volatile sig_atomic_t stop_signal, again;

volatile sig_atomic_t *tt_cli_stop(void) { return &stop_signal; }

/* Says that it was heard, since a step may take long; only with calls that a handler may make (signal-safety(7)). */
static void say(const char *text)
{
	struct termios t;
	int was = errno;
	ssize_t n = 0;
	if (tcgetattr(STDERR_FILENO, &t) == 0) /* a terminal: the live line's place is not ours */
		n = write(STDERR_FILENO, "\n", 1);
	n += write(STDERR_FILENO, text, strlen(text));
	(void)n;
	errno = was;
}

static void on_signal(int number, const char *text, const char *soft_text)
{
	bool soft = number == SIGUSR1 || number == SIGHUP;
	if (again && !soft) { /* asked twice: at once, as if there were no handler */
		signal(number, SIG_DFL);
		raise(number);
		return;
	}
	again |= !soft;
	if (stop_signal && soft)
		return;
	if (!stop_signal)
		stop_signal = number;
	say(soft ? soft_text : text);
}

static void stop_and_save(int number)
{
	on_signal(number, "stopping after this step and saving; again to stop now\n", "stopping after this step and saving\n");
}

static void stop_only(int number)
{
	on_signal(number, "stopping after this step, nothing is saved (checkpoint.enable); again to stop now\n", "stopping after this step, nothing is saved (checkpoint.enable)\n");
}

static void note_only(int number) { stop_signal = number; }

static void handle(void (*f)(int))
{
	static const int numbers[] = { SIGTERM, SIGINT, SIGUSR1, SIGHUP };
	struct sigaction act = { .sa_handler = f, .sa_flags = SA_RESTART }, was;
	for (int i = 0; i < TT_COUNT(numbers); i++)
		if (numbers[i] != SIGHUP || sigaction(SIGHUP, NULL, &was) || was.sa_handler != SIG_IGN) /* under nohup a terminal may go */
			sigaction(numbers[i], &act, NULL);
}

void tt_cli_stop_by_signal(bool saves) { handle(saves ? stop_and_save : stop_only); }
void tt_cli_note_signals(void) { handle(note_only); }

void tt_cli_stop_asked(int number, int rank)
{
	if (stop_signal)
		return;
	stop_signal = number;
	tt_log(TT_LOG_INFO, "rank %d was asked to end by signal %d: stopping after this step", rank, number);
}

void tt_cli_stop_hint(const char *launched_by)
{
	enum { ENOUGH = 30 }; /* seconds, for a step and a save */
	const char *s = getenv("OMPI_MCA_odls_base_sigkill_timeout");
	if (!strcmp(launched_by, "mpiexec of Open MPI") && (!s || strtol(s, NULL, 10) < ENOUGH))
		tt_log(TT_LOG_INFO, "to end this run without losing steps: kill -USR1 of mpiexec's process. Its ^C leaves ranks %s s for their step and the save, then it kills them (mpiexec "
		       "--mca odls_base_sigkill_timeout 60 leaves them 60 s, and passes ^C on as much later)", s ? s : "1");
}
