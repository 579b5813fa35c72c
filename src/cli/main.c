/* main.c: the command line. The only place that prints results and picks an exit code. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"

static const tt_command commands[] = {
	{ "train", "titan train CONFIG [--section.key=value ...] [--dump=graph|program|memory]", "train as the config says", tt_cmd_train },
	{ "config", "titan config [CONFIG] [--section.key=value ...] | titan config --doc", "print the resolved config, or the reference of all keys", tt_cmd_config },
	{ "ops", "titan ops", "print the op table", tt_cmd_ops },
	{ "demo", "titan demo [CONFIG] [--section.key=value ...]", "train on the C headers of this machine, compare with gzip and xz", tt_cmd_demo },
	{ NULL, NULL, NULL, NULL },
};

static void usage(FILE *f)
{
	fprintf(f, "titan: train language models\n\n");
	for (const tt_command *c = commands; c->name; c++)
		fprintf(f, "  %-8s %s\n           %s\n", c->name, c->doc, c->usage);
	fprintf(f, "\nExit codes: 0 done, 1 failed, 2 wrong usage or config, 3 stopped by a signal.\n");
}

int tt_cli_exit_code(tt_status s)
{
	switch (s) {
	case TT_OK:
		return 0;
	case TT_ERR_USAGE:
		return 2;
	case TT_ERR_STOP:
		return 3;
	case TT_ERR_IO:
	case TT_ERR_FORMAT:
	case TT_ERR_TYPE:
	case TT_ERR_MEMORY:
	case TT_ERR_NUMERIC:
	case TT_ERR_COMM:
		return 1;
	}
	return 1;
}

int main(int argc, char **argv)
{
	tt_thread_set(0, "main");
	if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		usage(argc < 2 ? stderr : stdout);
		return argc < 2 ? 2 : 0;
	}
	const char *names[16];
	int n = 0;
	for (const tt_command *c = commands; c->name; c++) {
		names[n++] = c->name;
		if (strcmp(c->name, argv[1]))
			continue;
		for (int i = 2; i < argc; i++)
			if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
				printf("%s\n%s\n", c->usage, c->doc);
				return 0;
			}
		tt_status s = c->run(argc - 2, (const char *const *)(argv + 2));
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
	const char *near = tt_nearest(argv[1], names, n);
	fprintf(stderr, "titan: no command is called \"%s\"%s%s%s (titan --help lists them)\n", argv[1], near ? ": did you mean " : "", near ? near : "",
		near ? "?" : "");
	return 2;
}
