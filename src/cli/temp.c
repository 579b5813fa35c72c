/* temp.c: a folder that a child removes if this process cannot. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "cli/temp.h"

/* Alone in a session, so that whoever kills this process's group does not kill it, and without the output that a launcher waits for. */
static _Noreturn void sweep(const char *folder, int from)
{
	char byte;
	sigset_t all;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	(void)setsid();
	(void)dup2(from, 0);
	(void)close_range(1, ~0u, 0);
	while (read(0, &byte, 1) < 0 && errno == EINTR)
		;
	tt_fs_temp_remove(folder);
	_exit(0);
}

tt_status tt_cli_temp_open(tt_arena *a, const char *name, tt_cli_temp *out)
{
	int ends[2];
	tt_cli_temp t = { .sweeper = -1, .alive = -1 };
	TT_TRY(tt_fs_temp(a, name, &t.folder));
	if (!pipe2(ends, O_CLOEXEC)) {
		t.sweeper = fork();
		if (!t.sweeper)
			sweep(t.folder, ends[0]);
		t.alive = ends[1];
		close(ends[0]);
	}
	*out = t;
	return TT_OK;
}

void tt_cli_temp_close(tt_cli_temp *t)
{
	tt_fs_temp_remove(t->folder);
	if (t->alive >= 0)
		close(t->alive);
	if (t->sweeper > 0)
		(void)!waitpid(t->sweeper, NULL, 0);
}
