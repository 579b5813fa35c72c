/* console.c: the standard error as a terminal for the live line. */
#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"
#include "metrics/metrics.h"

static void write_all(void *ctx, const char *bytes, size_t n)
{
	(void)ctx;
	while (n) {
		ssize_t w = write(STDERR_FILENO, bytes, n);
		if (w < 0 && errno != EINTR)
			return; /* the terminal is gone; the run is not */
		bytes += w > 0 ? w : 0;
		n -= w > 0 ? (size_t)w : 0;
	}
}

static int columns(void *ctx)
{
	(void)ctx;
	struct winsize size;
	return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void tt_cli_console(tt_metrics_console *out)
{
	const char *term = getenv("TERM");
	*out = (tt_metrics_console){ .write = write_all, .width = columns, .tty = isatty(STDERR_FILENO), .dumb = !term || !*term || !strcmp(term, "dumb") };
}
