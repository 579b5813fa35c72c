/* flags.c: a look at a command's flags before it runs: those it does not have, those without a value, values without a flag. */
#include "cli/pages.h"
#include "config/keys.h"

/* Is `next`, which follows a flag of the config that has no value, meant as its value? A boolean may stand alone before the config file,
 * and so may a name that is no key, such as a boolean in TorchTitan's spelling. */
static bool is_value(const char *flag, const char *next)
{
	size_t n = strlen(next);
	for (int i = 0; i < tt_keys_n; i++)
		if (!strcmp(tt_keys[i].full, flag + 2)) {
			bool alone = tt_keys[i].type == TT_KEY_BOOL || tt_keys[i].type == TT_KEY_TRI;
			return !alone || !strcmp(next, "true") || !strcmp(next, "false") || !strcmp(next, "auto");
		}
	return n < 5 || strcmp(next + n - 5, ".toml") != 0;
}

/* A bench takes its flags as its peer does (bench/peers/torch_train.py): --flag value is as good as --flag=value. */
static bool spaced(const tt_command *c) { return c->run == tt_cmd_bench; }

/* `next` is what stands behind the flag on the line, NULL at its end. */
static tt_status check_flag(tt_arena *a, const tt_command *c, const char *flag, const char *next)
{
	const char *names[TT_USAGE_FLAGS + 16], *equals = strchr(flag, '=');
	const char *name = tt_arena_strndup(a, flag, strcspn(flag, "="));
	bool config = tt_usage_takes_config(c), known = false, value = false;
	tt_usage_flag own[TT_USAGE_FLAGS];
	int n = tt_usage_flags(a, c, own);
	for (int i = 0; i < n; i++) {
		names[i] = own[i].name;
		if (strcmp(own[i].name, name))
			continue;
		known = true;
		value = own[i].value;
		if (equals && !value)
			TT_FAIL(TT_ERR_USAGE, "%s takes no value, got %s", name, flag);
	}
	for (const tt_short_flag *f = tt_short_flags; config && f->shorthand; f++) {
		TT_ASSERT(n < TT_COUNT(names), "%d flags", n);
		names[n] = tt_arena_strndup(a, f->shorthand, strlen(f->shorthand) - 1);
		if (!strcmp(names[n++], name))
			known = value = true;
	}
	if (config && strchr(name, '.')) {
		known = true; /* the config knows better whether */
		value = next && is_value(name, next);
	}
	if (!known) {
		const char *near = tt_nearest(name, names, n);
		if (near)
			TT_FAIL(TT_ERR_USAGE, "titan %s has no flag %s: did you mean %s?", c->name, name, near);
		if (!config)
			TT_FAIL(TT_ERR_USAGE, "titan %s has no flag %s (titan %s --help)", c->name, name, c->name);
	}
	if (value && !equals && next && spaced(c))
		return TT_OK;
	if (value && !equals && next)
		TT_FAIL(TT_ERR_USAGE, "%s %s: a value stands behind an equals sign: write %s=%s", name, next, name, next);
	if (value && !equals)
		TT_FAIL(TT_ERR_USAGE, "%s wants a value: %s=... (titan %s --help)", name, name, c->name);
	return TT_OK;
}

static tt_status check_flags(tt_arena *a, const tt_command *c, int argc, const char *const *argv)
{
	for (int i = 0; i < argc; i++) {
		const char *next = i + 1 < argc && strncmp(argv[i + 1], "--", 2) ? argv[i + 1] : NULL;
		if (!strcmp(argv[i], "--"))
			TT_FAIL(TT_ERR_USAGE, "--: a flag's name is missing (titan %s --help lists them)", c->name);
		if (!strncmp(argv[i], "--", 2)) {
			TT_TRY(check_flag(a, c, argv[i], next));
		} else if (argv[i][0] == '-') {
			const char *two = tt_arena_printf(a, "-%s", argv[i]);
			bool meant = argv[i][1] && (strchr(two, '.') || strchr(two, '=')) && check_flag(a, c, two, next) == TT_OK; /* what it would be is one */
			TT_FAIL(TT_ERR_USAGE, "%s: flags begin with two dashes%s%s (titan %s --help)", argv[i], meant ? ": " : "", meant ? two : "", c->name);
		}
	}
	return TT_OK;
}

tt_status tt_command_run(const tt_command *c, int argc, const char *const *argv)
{
	tt_arena *a = tt_arena_create("flags");
	tt_status s = check_flags(a, c, argc, argv);
	tt_arena_destroy(a);
	TT_TRY(s);
	return c->run(argc, argv);
}
