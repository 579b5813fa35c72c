/* main.c: the command line. The only place that prints results and picks an exit code. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "comm/comm.h"

enum { TEXT = 4096 };

/* Prints what went wrong; the exit code. */
static int finish(tt_status s)
{
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "titan: cannot write to standard output\n");
		return 1;
	}
	if (s != TT_OK && *tt_error_text()) { /* without a text the command has printed its finding */
		char text[TEXT], who[32] = "";
		snprintf(text, sizeof text, "%s", tt_error_text());
		tt_comm_launch l;
		if (tt_comm_launched(&l) == TT_OK && l.rank > 0)
			snprintf(who, sizeof who, "rank %d: ", l.rank);
		fprintf(stderr, "%stitan: %s: %s\n", who, tt_status_name(s), text);
		if (getenv("TITAN_TRAIL"))
			fprintf(stderr, "  at %s\n", tt_error_trail());
	}
	return tt_cli_exit_code(s);
}

/* There is no such command: is it an argument of one? */
static int unknown(const char *word, const char *near)
{
	size_t n = strlen(word);
	fprintf(stderr, "titan: no command is called \"%s\"", word);
	if (near)
		fprintf(stderr, ": did you mean %s?", near);
	else if (n > 5 && !strcmp(word + n - 5, ".toml"))
		fprintf(stderr, ": did you mean titan train %s?", word);
	else if (word[0] == '-')
		fprintf(stderr, ": the command comes first");
	fprintf(stderr, " (titan --help lists them)\n");
	return 2;
}

static int print(void (*fill)(tt_buf *b), FILE *f)
{
	tt_buf b = { 0 };
	fill(&b);
	fputs(b.s, f);
	tt_buf_fini(&b);
	return finish(TT_OK);
}

int main(int argc, char **argv)
{
	tt_comm_keep();
	tt_thread_set(0, "main");
	if (argc < 2) {
		print(tt_cli_help, stderr);
		return 2;
	}
	const char *const *rest = (const char *const *)(argv + 2);
	const char *near = NULL;
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return print(tt_cli_help, stdout);
	if (!strcmp(argv[1], "--version"))
		return print(tt_cli_version, stdout);
	if (!strcmp(argv[1], "help"))
		return finish(tt_cmd_help(argc - 2, rest));
	const tt_command *c = tt_command_find(argv[1], &near);
	if (!c)
		return unknown(argv[1], near);
	for (int i = 0; i < argc - 2; i++)
		if (!strcmp(rest[i], "--help") || !strcmp(rest[i], "-h"))
			return finish(tt_cmd_help(1, &c->name));
	int code = finish(tt_command_run(c, argc - 2, rest));
	tt_comm_leave(code);
	return code;
}
