/* signals.c: what asks a run to end. It ends after its step, saved; a proof after the mesh at hand. INT and TERM ask once, the second of them ends it at once. USR1 and HUP ask as often
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

/* Set by the handler below, polled by the run: the one flag that a signal may write; whether the next INT or TERM is the second; and what is said then,
 * a tt_cli_ends. */
static volatile sig_atomic_t stop_signal, again, ends;

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

static void on_signal(int number)
{
	static const struct { const char *soft, *hard; } texts[] = {
#define TEXTS(text) { text "\n", text "; again to stop now\n" }
		[TT_ENDS_SAVED] = TEXTS("stopping after this step and saving"),
		[TT_ENDS_UNSAVED] = TEXTS("stopping after this step, nothing is saved (checkpoint.enable)"),
		[TT_ENDS_MESH] = TEXTS("stopping after this mesh"),
#undef TEXTS
	};
	if (ends == TT_ENDS_SILENT) {
		stop_signal = number;
		return;
	}
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
	say(soft ? texts[ends].soft : texts[ends].hard);
}

static const int numbers[] = { SIGTERM, SIGINT, SIGUSR1, SIGHUP };

void tt_cli_stop_by_signal(tt_cli_ends how)
{
	struct sigaction act = { .sa_handler = on_signal, .sa_flags = SA_RESTART }, was;
	ends = how;
	for (int i = 0; i < TT_COUNT(numbers); i++)
		if (numbers[i] != SIGHUP || sigaction(SIGHUP, NULL, &was) || was.sa_handler != SIG_IGN) /* under nohup a terminal may go */
			sigaction(numbers[i], &act, NULL);
}

void tt_cli_signals(sigset_t *out)
{
	sigemptyset(out);
	for (int i = 0; i < TT_COUNT(numbers); i++)
		sigaddset(out, numbers[i]);
}

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
