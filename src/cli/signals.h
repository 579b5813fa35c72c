/* cli/signals: a run is asked to end by signals: INT, TERM (the second one ends it at once), USR1, HUP. */
#ifndef TT_CLI_SIGNALS_H
#define TT_CLI_SIGNALS_H

#include <signal.h>

#include "base/base.h"

/* The number of the signal that has asked; 0: none. */
volatile sig_atomic_t *tt_cli_stop(void);
/* From now on this process ends its run when asked to, and says so at once. */
void tt_cli_stop_by_signal(bool saves);
/* A rank other than 0 of an MPI job: it takes note, rank 0 hears of it and says what is to be said. */
void tt_cli_note_signals(void);
/* On rank 0: another rank was asked. From any thread. */
void tt_cli_stop_asked(int number, int rank);
/* Where the launcher kills too soon, how to end the run all the same. `launched_by`: tt_comm_launch.by. */
void tt_cli_stop_hint(const char *launched_by);

#endif
