/* cli/signals: a run is asked to end by signals: INT, TERM (the second one ends it at once), USR1, HUP. */
#ifndef TT_CLI_SIGNALS_H
#define TT_CLI_SIGNALS_H

#include <signal.h>

#include "base/base.h"

/* The number of the signal that has asked; 0: none. */
volatile sig_atomic_t *tt_cli_stop(void);
/* From now on this process ends what it does when asked to, and says at once how. Silent: a rank other than 0 of an MPI job, which takes note; rank 0 hears
 * of it and says what is to be said. */
typedef enum tt_cli_ends { TT_ENDS_SAVED, TT_ENDS_UNSAVED, TT_ENDS_MESH, TT_ENDS_SILENT } tt_cli_ends;
void tt_cli_stop_by_signal(tt_cli_ends how);
/* Those signals, for a process that passes them on. */
void tt_cli_signals(sigset_t *out);
/* On rank 0: another rank was asked. From any thread. */
void tt_cli_stop_asked(int number, int rank);
/* Where the launcher kills too soon, how to end the run all the same. `launched_by`: tt_comm_launch.by. */
void tt_cli_stop_hint(const char *launched_by);

#endif
