/* main.c: the command line. The only place that prints results and picks an exit code. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"

static void usage(FILE *f)
{
	tt_buf b = { 0 };
	tt_cli_help(&b);
	fputs(b.s, f);
	tt_buf_fini(&b);
}

/* Prints what went wrong; the exit code. */
static int finish(tt_status s)
{
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "titan: cannot write to standard output\n");
		return 1;
	}
	if (s != TT_OK) {
		fprintf(stderr, "titan: %s: %s\n", tt_status_name(s), tt_error_text());
		if (getenv("TITAN_TRAIL"))
			fprintf(stderr, "  at %s\n", tt_error_trail());
	}
	return tt_cli_exit_code(s);
}

int main(int argc, char **argv)
{
	tt_thread_set(0, "main");
	if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		usage(argc < 2 ? stderr : stdout);
		return argc < 2 ? 2 : 0;
	}
	const char *const *rest = (const char *const *)(argv + 2);
	if (!strcmp(argv[1], "help"))
		return finish(tt_cmd_help(argc - 2, rest));
	const char *names[64] = { "help" };
	int n = 1;
	for (const tt_command *c = tt_commands; c->name; c++) {
		TT_ASSERT(n < TT_COUNT(names));
		names[n++] = c->name;
		if (strcmp(c->name, argv[1]))
			continue;
		for (int i = 2; i < argc; i++)
			if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
				printf("%s\n%s\n", c->usage, c->doc);
				return 0;
			}
		return finish(c->run(argc - 2, rest));
	}
	const char *near = tt_nearest(argv[1], names, n);
	fprintf(stderr, "titan: no command is called \"%s\"%s%s%s (titan --help lists them)\n", argv[1], near ? ": did you mean " : "", near ? near : "",
		near ? "?" : "");
	return 2;
}
