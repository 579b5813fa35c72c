/* cli/temp: a folder for files of this process, which goes with it however that ends. */
#ifndef TT_CLI_TEMP_H
#define TT_CLI_TEMP_H

#include <sys/types.h>

#include "base/base.h"

typedef struct tt_cli_temp {
	char *folder;
	pid_t sweeper; /* -1: none */
	int alive;     /* the writing end of the pipe that the sweeper reads; it ends with this process */
} tt_cli_temp;

/* "$TMPDIR/NAME-XXXXXX" (tt_fs_temp). It is removed by tt_cli_temp_close, or, if this process was ended (by a second signal; Open MPI's launcher gives ranks
 * a second), by a child that waits for its end. While this process has no other thread. */
tt_status tt_cli_temp_open(tt_arena *a, const char *name, tt_cli_temp *out) TT_CHECKED;
void tt_cli_temp_close(tt_cli_temp *t);

#endif
