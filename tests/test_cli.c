/* test_cli.c: the command line as a user meets it: the binary itself, its exit codes and messages, and the generated pages. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/version.h"
#include "cli/pages.h"
#include "kernels/kernels.h"
#include "test.h"

/* Runs a shell line; its standard output and error end up in `out`. */
static int shell(tt_test *t, const char *line, tt_buf *out)
{
	char *cmd = tt_arena_printf(t->arena, "{ %s ; } 2>&1", line);
	FILE *p = popen(cmd, "r");
	TT_CHECK(t, p != NULL);
	char b[4096];
	for (size_t n; p && (n = fread(b, 1, sizeof b, p)) > 0;)
		tt_buf_add(out, b, n);
	tt_buf_add(out, "", 0);
	int s = p ? pclose(p) : -1;
	return WIFEXITED(s) ? WEXITSTATUS(s) : 128;
}

static void check_run(tt_test *t, const char *line, int code, const char *part)
{
	tt_buf b = { 0 };
	int got = shell(t, line, &b);
	TT_CHECK_MSG(t, got == code, "%s: exit code %d, want %d: %s", line, got, code, b.s ? b.s : "");
	TT_CHECK_MSG(t, b.s && strstr(b.s, part), "%s: no \"%s\" in: %s", line, part, b.s ? b.s : "");
	tt_buf_fini(&b);
}

/* `titan train configs/debug.toml` with more arguments, in a folder of this case: cases run side by side. */
static void check_train(tt_test *t, const char *arguments, int code, const char *part)
{
	check_run(t, tt_arena_printf(t->arena, "build/titan train configs/debug.toml --job.dump_folder=%s %s", tt_test_path(t, "run"), arguments),
		code, part);
}

static void messages(tt_test *t)
{
	check_run(t, "build/titan", 2, "FLAGS");
	check_run(t, "build/titan --help", 0, "titan train CONFIG");
	check_run(t, "build/titan train --help", 0, "titan train CONFIG");
	check_run(t, "build/titan trian", 2, "did you mean train?");
	check_run(t, "build/titan train configs/debug.toml configs/demo.toml", 2, "two config files");
	check_train(t, "--training.stesp=3", 2, "did you mean training.steps?");
	check_train(t, "--data.paths=/nowhere", 1, "/nowhere");
	check_train(t, "--model.flavor=8b", 2, "8B");
	check_train(t, "--training.context_length=100", 2, "training.context_length");
	check_run(t, "build/titan ops extra", 2, "takes no arguments");
	check_run(t, "build/titan ops > /dev/full", 1, "cannot write to standard output");
	check_run(t, "build/titan ops", 0, "attention_bwd");
	check_run(t, "build/titan config configs/debug.toml --steps", 2, "--section.key=value");
}

/* Flags that are none, and values that stand beside their flag. */
static void flags(tt_test *t)
{
	check_run(t, "build/titan config --threads 4", 2, "--threads 4: a value stands behind an equals sign: write --threads=4");
	check_run(t, "build/titan config configs/debug.toml --training.steps 5", 2, "write --training.steps=5");
	check_run(t, "build/titan config --validation.enable true", 2, "write --validation.enable=true");
	check_run(t, "build/titan config --training.stpes 5", 2, "write --training.stpes=5");
	/* A boolean may stand before the config file, in any spelling. */
	check_run(t, "build/titan config --debug.dump=graph --validator.enable configs/demo.toml", 0, "enable = true");
	check_run(t, "build/titan config --data.shuffle configs/debug.toml", 0, "hidden_size = 64\n");
	check_run(t, "build/titan config --thread=4", 2, "titan config has no flag --thread: did you mean --threads?");
	check_run(t, "build/titan config --threads", 2, "--threads wants a value");
	check_run(t, "build/titan config -training.steps=5", 2, "flags begin with two dashes: --training.steps=5");
	check_run(t, "build/titan doctor --jsno", 2, "titan doctor has no flag --jsno: did you mean --json?");
	check_run(t, "build/titan plot a --out x.svg", 2, "write --out=x.svg");
	check_run(t, "build/titan plan configs/debug.toml --memory=much", 2, "--memory=much: GiB that a rank may have");
	check_run(t, "build/titan plan configs/debug.toml --memory 3", 2, "write --memory=3");
	check_run(t, "build/titan plan configs/debug.toml --timeline=", 2, "--timeline=: the name of an SVG file");
	check_run(t, "build/titan plan configs/debug.toml --jason", 2, "did you mean --json?");
	check_run(t, "build/titan plan configs/debug.toml --layouts --json", 2, "--layouts prints the table alone: leave out --json");
	check_run(t, "build/titan plan configs/debug.toml --hardware.table=h10", 2, "h100");
	check_run(t, "build/titan plan configs/debug.toml --ranks=3 --parallelism.tensor_parallel_degree=2", 2, "--ranks=2");
	check_run(t, "build/titan plan configs/debug.toml --hardware.table=h100 --memory=0.001", 1, "the plan needs ");
	check_run(t, "build/titan plan configs/debug.toml --hardware.table=h100 --memory=0.002 --activation_checkpoint.mode=full --training.tokens_per_microbatch=128", 1,
		"(hardware.table, --memory); it fits on 4 ranks, parallelism.data_parallel_shard_degree = 4 or -1 (");
	check_run(t, "build/titan plan configs/debug.toml --hardware.table=h100 --timeline=/nowhere/x.svg", 1, "/nowhere/x.svg");
	check_run(t, "build/titan plot a --log=1", 2, "--log takes no value, got --log=1");
	check_run(t, "build/titan plot a --zzzzzzz", 2, "titan plot has no flag --zzzzzzz (titan plot --help)");
	check_run(t, "build/titan ckpt export a b --dtyp=float32", 2, "did you mean --dtype?");
	check_run(t, "build/titan version", 2, "did you mean --version?");
	check_run(t, "build/titan configs/debug.toml", 2, "did you mean titan train configs/debug.toml?");
	check_run(t, "build/titan --threads=3 train", 2, "the command comes first");
	check_run(t, "build/titan --version", 0, TT_VERSION);
	check_run(t, "build/titan --version", 0, tt_arena_printf(t->arena, "compiled by " TT_COMPILER "\nkernel sets %s;", tt_kernel_sets()));
	/* A hint is one that helps, or there is none. */
	check_run(t, "build/titan plan configs/debug.toml --", 2, "usage: --: a flag's name is missing (titan plan --help lists them)");
	check_run(t, "build/titan train -j4", 2, "usage: -j4: flags begin with two dashes (titan train --help)");
	check_run(t, "build/titan train -", 2, "usage: -: flags begin with two dashes (titan train --help)");
	check_run(t, "build/titan help nope", 2, "got \"nope\" (titan --help lists the commands)");
	check_run(t, "build/titan help trian", 2, "did you mean train?");
	check_run(t, "build/titan ckpt foo a", 2, "titan ckpt has no verb foo: there are inspect, verify and export");
	check_run(t, "build/titan ckpt inspekt a", 2, "no verb inspekt: did you mean inspect?");
	check_run(t, "build/titan config --training.tokens_per_step=2147483647", 2, "no multiple of training.context_length = 2048 (2147481600 would be)");
	check_run(t, "build/titan config --training.tokens_per_step=2147481601", 2, "no multiple of training.context_length = 2048 (2147481600 would be)");
	check_run(t, "build/titan config --training.tokens_per_step=5000", 2, "(4096 or 6144 would be)");
	check_run(t, "build/titan config --training.steps=99999999999999999999", 2, "training.steps = 99999999999999999999 is out of range: ");
	check_run(t, "build/titan config --training.steps=many", 2, "training.steps wants an integer, got a string \"many\"");
	check_run(t, "TITAN_MPI=foo OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 build/titan train configs/debug.toml", 2, "TITAN_MPI=foo: there are plug-ins for openmpi and mpich");
	static const char LINES[] = "{\"step\":1,\"type\":\"step\",\"loss\":6.5,\"seconds\":1,\"extra\":{\"comm/tp/calls\":3}}\n";
	TT_CHECK_OK(t, tt_file_write(tt_test_path(t, "metrics.jsonl"), LINES, strlen(LINES)));
	check_run(t, tt_arena_printf(t->arena, "build/titan plot %s --metric=x", tt_test_path(t, "metrics.jsonl")), 2, "--metric: no run has x; there are loss, seconds, comm/tp/calls");
	check_run(t, tt_arena_printf(t->arena, "build/titan plot %s --metric=los", tt_test_path(t, "metrics.jsonl")), 2, "no run has los: did you mean loss?; there are loss, ");
	/* An error says the flag as it was given, also where the file has the other half. */
	check_train(t, "--training.tokens_per_step=1000", 2, "usage: --training.tokens_per_step=1000: training.tokens_per_step = 1000 is no multiple");
	check_train(t, "--model.flavor=8b", 2, "usage: --model.flavor=8b: unknown model.flavor");
	check_train(t, "--model.num_key_value_heads=3", 2, "usage: --model.num_key_value_heads=3: model: num_attention_heads 4 is no multiple");
	check_train(t, "--model.vocab_size=100", 2, "usage: --model.vocab_size=100: model.vocab_size is 100, tokenizer");
	check_train(t, "--profiling.trace --profiling.profiler_active=11", 2, "profiling.profiler_active = 11 is more than profiling.profile_freq = 10");
	check_train(t, "--profiling.trace --profiling.save_traces_folder=../x", 2, "is no folder within job.dump_folder");
	check_train(t, "--ranks=257", 2, "at most 256 ranks run as threads");
	check_train(t, "--training.residual_dtype=float32", 2, "usage: --training.residual_dtype=float32: training.residual_dtype");
}

/* 1 is a run that failed, 2 a wrong command line or config. */
static void exit_codes(tt_test *t)
{
	const char *bad = tt_test_path(t, "bad.toml"), *alien = tt_test_path(t, "config.json");
	static const char BROKEN[] = "[training\nsteps = 1\n", ALIEN[] = "{\"model_type\": \"gpt2\"}";
	TT_CHECK_OK(t, tt_file_write(bad, BROKEN, strlen(BROKEN)));
	TT_CHECK_OK(t, tt_file_write(alien, ALIEN, strlen(ALIEN)));
	static const char *const COMMANDS[] = { "train", "demo", "config", "doctor", "plan" };
	for (int i = 0; i < TT_COUNT(COMMANDS); i++) {
		check_run(t, tt_arena_printf(t->arena, "build/titan %s nowhere.toml", COMMANDS[i]), 2, "nowhere.toml: cannot open");
		check_run(t, tt_arena_printf(t->arena, "build/titan %s %s", COMMANDS[i], bad), 2, "bad.toml:1:10: expected ']'");
	}
	check_train(t, "--training.steps=0", 2, "out of range");
	check_train(t, "--optimizer.param_groups='[{pattern = \"nothing\"}]'", 2, "matches no parameter");
	check_train(t, "--data.paths=/nowhere", 1, "/nowhere");
	check_train(t, "--model.hf_weights=/nowhere", 1, "/nowhere");
	check_train(t, tt_arena_printf(t->arena, "--model.hf_config=%s", alien), 1, "model_type gpt2 is not supported");
	check_run(t, "build/titan plot /nowhere", 1, "/nowhere");
	check_run(t, "build/titan ckpt verify /nowhere", 1, "/nowhere");
	check_run(t, "build/titan ckpt verify", 2, "titan ckpt inspect DIR");
	check_run(t, "build/titan help --man=nothing", 2, "no manual page");
	tt_buf doc = { 0 };
	tt_cli_doc(&doc);
	for (const tt_exit_code *e = tt_exit_codes; e->doc; e++)
		TT_CHECK(t, strstr(doc.s, tt_arena_printf(t->arena, "| %d | %s |", e->code, e->doc)));
	tt_buf_fini(&doc);
}

/* What is no file is told at once, by every command that reads one: to open a FIFO waits for who writes to it. A pipe that is written to is a file as any. */
static void no_files(tt_test *t)
{
	const char *fifo = tt_test_path(t, "fifo"), *sock = tt_test_path(t, "sock"), *run = tt_test_path(t, "run");
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	snprintf(at.sun_path, sizeof at.sun_path, "%s", sock);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	TT_CHECK(t, mkfifo(fifo, 0600) == 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0);
	close(fd);
	const struct { const char *path, *config, *file; } things[] = {
		{ fifo, "is a FIFO, and nobody wrote to it for 1 s: a file is needed", "is a FIFO, a file is needed" },
		{ sock, "is a socket, a file is needed", "is a socket, a file is needed" },
		{ "/dev/zero", "is a device, a file is needed", "is a device, a file is needed" },
	};
	static const char *const configs[] = { "train", "config", "plan", "doctor", "verify", "demo" };
	static const char *const files[] = { "ckpt inspect %s", "ckpt verify %s", "ckpt export %s /nowhere", "plot %s", "diff %s configs/debug.toml",
					     "train configs/debug.toml --model.hf_weights=%s --job.dump_folder=%s" };
	for (int i = 0; i < TT_COUNT(things); i++) {
		const char *path = things[i].path, *frame = "timeout -k 1 20 build/titan %s";
		for (int k = 0; k < (i ? TT_COUNT(configs) : 2); k++) /* a second goes by with each pipe */
			check_run(t, tt_arena_printf(t->arena, frame, tt_arena_printf(t->arena, "%s %s", configs[k], path)), 2, tt_arena_printf(t->arena, "titan: usage: %s: %s", path, things[i].config));
		for (int k = 0; k < TT_COUNT(files); k++)
			check_run(t, tt_arena_printf(t->arena, frame, tt_arena_printf(t->arena, files[k], path, run)), 1, tt_arena_printf(t->arena, "%s: %s", path, things[i].file));
		check_run(t, tt_arena_printf(t->arena, frame, tt_arena_printf(t->arena, "train configs/debug.toml --data.paths=%s --job.dump_folder=%s", path, run)), 2,
			  tt_arena_printf(t->arena, "%s: neither a file nor a folder (data.paths)", path));
	}
	check_run(t, "cat configs/debug.toml | build/titan config /dev/stdin --training.steps=77", 0, "steps = 77");
	/* The writer opens it when it is read: what is written before, and closed, is gone. */
	check_run(t, tt_arena_printf(t->arena, "{ exec 3>%s; sleep 0.2; cat configs/debug.toml >&3; } & build/titan config %s --training.steps=78", fifo, fifo), 0, "steps = 78");
}

/* Every argument and flag of a usage has its line in the command's help, and the help no other. */
static void help(tt_test *t)
{
	for (const tt_command *c = tt_commands; c->name; c++) {
		tt_buf b = { 0 };
		tt_command_help(c, &b);
		for (const tt_argument *arg = c->arguments; arg->name; arg++) {
			size_t n = strcspn(arg->name, ",");
			TT_CHECK_MSG(t, memmem(c->usage, strlen(c->usage), arg->name, n), "%s: %s is not in the usage", c->name, arg->name);
			TT_CHECK_MSG(t, strstr(b.s, arg->doc), "%s: nothing is said of %s", c->name, arg->name);
		}
		for (const char *s = c->usage; (s = strstr(s, "--")); s++) {
			bool has = false;
			for (const tt_argument *arg = c->arguments; arg->name && !has; arg++)
				has = !strncmp(arg->name, s, strlen(arg->name));
			TT_CHECK_MSG(t, has, "%s: %.12s has no line", c->name, s);
		}
		tt_usage u[TT_USAGES];
		for (int i = tt_usage_split(t->arena, c, u) - 1; i >= 0; i--) { /* none is cut where brackets are open */
			int open = 0;
			for (const char *s = u[i].text; *s && open >= 0; s++)
				open += (*s == '[') - (*s == ']');
			TT_CHECK_MSG(t, open == 0 && strstr(b.s, u[i].text), "%s: usage \"%s\"", c->name, u[i].text);
		}
		for (int i = 0; i < TT_EXAMPLES; i++)
			TT_CHECK_MSG(t, c->examples[i] && !strncmp(c->examples[i], tt_arena_printf(t->arena, "titan %s", c->name), 6 + strlen(c->name)) &&
				     strstr(b.s, c->examples[i]), "%s: example %d", c->name, i);
		TT_CHECK_MSG(t, strstr(b.s, "titan config --doc"), "%s: where are the keys?", c->name);
		check_run(t, tt_arena_printf(t->arena, "build/titan %s --help", c->name), 0, b.s);
		tt_buf_fini(&b);
	}
}

/* One line for each, and none without its reason. */
static void warnings(tt_test *t)
{
	static const struct { const char *flag, *warning; } CASES[] = {
		{ "--metrics.norm_groups=*norm*,nothing.*",
		  "--metrics.norm_groups=*norm*,nothing.*: metrics.norm_groups[1]: pattern \"nothing.*\" matches no parameter" },
		{ "--threads=4000", "--hardware.threads=4000: hardware.threads = 4000 is more than the " },
		{ "--model.max_position_embeddings=127",
		  "--model.max_position_embeddings=127: training.context_length = 128 is more than the model's max_position_embeddings, 127" },
		{ "--model.rope_beta_fast=3", "--model.rope_beta_fast=3: model.rope_beta_fast has no effect: model.rope_scaling is llama3" },
		{ "--model.max_position_embeddings=128", NULL },
		{ "--metrics.norm_groups=*norm*", NULL },
		{ "--model.rope_high_freq_factor=3", NULL },
		{ "--threads=1", NULL },
	};
	for (int i = 0; i < TT_COUNT(CASES); i++) {
		/* Threads in number are only spoken of: the config command starts none. */
		bool config = CASES[i].warning && strstr(CASES[i].flag, "threads");
		const char *line = config ? tt_arena_printf(t->arena, "build/titan config configs/debug.toml %s", CASES[i].flag) :
					    tt_arena_printf(t->arena, "build/titan train configs/debug.toml --job.dump_folder=%s --training.steps=1 "
							    "--lr_scheduler.warmup_steps=0 '%s'", tt_test_path(t, "run"), CASES[i].flag);
		tt_buf b = { 0 };
		TT_CHECK_INT(t, shell(t, line, &b), 0);
		const char *first = strstr(b.s, "warning: "), *again = first ? strstr(first + 1, "warning: ") : NULL;
		const char *want = CASES[i].warning;
		TT_CHECK_MSG(t, want ? first && !again && !strncmp(first + strlen("warning: "), want, strlen(want)) : !first, "%s: %s", CASES[i].flag, b.s);
		tt_buf_fini(&b);
	}
}

static void trains(tt_test *t)
{
	check_train(t, "--training.steps=2 --threads=1", 0, "step      2");
	check_train(t, "--training.steps=1 --dump=memory", 0, "frame:");
	check_train(t, "--training.steps=1 --dump=program", 0, "linear");
	check_train(t, "--training.steps=1 --debug.dump_after=model", 0, "# after model");
}

/* docs/cli.md is what the table says. */
static void doc_up_to_date(tt_test *t)
{
	tt_buf b = { 0 };
	char *text;
	size_t n;
	tt_cli_doc(&b);
	TT_CHECK_OK(t, tt_file_read(t->arena, "docs/cli.md", &text, &n));
	TT_CHECK_MSG(t, n == b.n && !memcmp(text, b.s, n), "docs/cli.md is out of date: build/titan help --doc > docs/cli.md");
	tt_buf_fini(&b);
}

/* The page on adding an op, done on a copy of the tree. */
static void adding_an_op(tt_test *t)
{
	check_run(t, "tools/doc_test.sh docs/adding-an-op.md", 0, "adding an op works as written, and a wrong gradient is noticed");
}

/* A user's own rows: the table with them, and a row that cannot be. */
static void layouts(tt_test *t)
{
	const char *more = "--layouts --ranks=2 --parallelism.tensor_parallel_degree=2 --parallelism.layouts='[{place=\"store\",value=\"*.o_proj.weight\",axis=\"tp\",type=\"%s\"}]'";
	char *good = tt_arena_printf(t->arena, more, "S(1)"), *bad = tt_arena_printf(t->arena, more, "S(0)");
	check_run(t, tt_arena_printf(t->arena, "build/titan plan configs/debug.toml %s", good), 0, "1 of the config, 25 of the model's table; mesh: tp 2, sequence parallel");
	check_run(t, tt_arena_printf(t->arena, "build/titan plan configs/debug.toml %s", good), 0, " own  store \"*.o_proj.weight\" on tp as S(1) (--parallelism.layouts[0])");
	check_run(t, tt_arena_printf(t->arena, "build/titan plan configs/debug.toml %s", bad), 1, "titan: type: model.layers.0.self_attn.o_proj: linear: input 1, ");
	check_run(t, tt_arena_printf(t->arena, "build/titan plan configs/debug.toml %s", bad), 1, "\n  without --parallelism.layouts[0], every type is right, forward and backward\n");
}

/* What runs nothing takes a config as it is: ranks follow from its degrees, or do not matter, and there is no data. */
static void looked_at(tt_test *t)
{
	static const char TEXT[] = "[model]\nvocab_size = 64\nhidden_size = 32\nnum_hidden_layers = 1\nnum_attention_heads = 4\nnum_key_value_heads = 4\nintermediate_size = 48\n"
				   "[training]\ncontext_length = 32\ntokens_per_step = 128\n[parallelism]\ntensor_parallel_degree = 2\ndata_parallel_replicate_degree = 2\n";
	const char *path = tt_test_path(t, "c.toml"), *table = "--hardware.table=h100";
	TT_CHECK_OK(t, tt_file_write(path, TEXT, strlen(TEXT)));
	check_run(t, tt_arena_printf(t->arena, "build/titan plan %s %s", path, table), 0, "hardware.ranks is not set: 4 ranks, as many as the degrees");
	check_run(t, tt_arena_printf(t->arena, "build/titan plan %s %s", path, table), 0, "on 4 ranks: dp_replicate 2 tp 2");
	check_run(t, tt_arena_printf(t->arena, "build/titan plan %s %s --ranks=8", path, table), 0, "on 8 ranks: dp_replicate 2 dp_shard 2 tp 2");
	check_run(t, tt_arena_printf(t->arena, "build/titan plan %s %s --ranks=6", path, table), 2, "hardware.ranks = 6 is no multiple of 4");
	check_run(t, tt_arena_printf(t->arena, "build/titan doctor %s", path), 0, "hardware.ranks is not set: 4 ranks, as many as the degrees");
	check_run(t, tt_arena_printf(t->arena, "build/titan verify %s --numerics=fast --mesh=tp=2", path), 0, "  equal   tp 2, sp ");
	check_run(t, tt_arena_printf(t->arena, "build/titan verify %s --numerics=fast --ranks=2", path), 0, "  equal   dp_replicate 2 ");
	check_run(t, tt_arena_printf(t->arena, "build/titan verify %s --numerics=fast --mesh=cp=2 --parallelism.tensor_parallel_degree=3", path), 0, "degree=3: has no effect: titan verify takes");
	check_run(t, tt_arena_printf(t->arena, "build/titan verify %s --full --mesh=tp=2", path), 2, "data.paths is empty"); /* the data as they are */
	check_run(t, tt_arena_printf(t->arena, "build/titan train %s --data.source=synthetic", path), 2, "no multiple of 4, the product of");
}

/* Meshes of a command line, and what is said of those that are not proven. */
static void meshes(tt_test *t)
{
	const char *verify = "build/titan verify configs/debug.toml --numerics=fast --model.num_hidden_layers=1", *line;
	static const struct { const char *more; int code; const char *says; } CASES[] = {
		{ "--mesh=dp_shard=x", 2, "--mesh: dp_shard=x: a number from 1 to 64 is needed" },
		{ "'--meshes=dp_shard=2; dp_shard=2,cp=1;dp_shard=2'", 0, "\n1 mesh proven, in 2 runs: each token's" },
	};
	for (int i = 0; i < TT_COUNT(CASES); i++)
		check_run(t, tt_arena_printf(t->arena, "%s %s", verify, CASES[i].more), CASES[i].code, CASES[i].says);
	line = tt_arena_printf(t->arena, "%s --mesh=tp=2 --parallelism.layouts='[{place=\"store\",value=\"*.o_proj.weight\",axis=\"tp\",type=\"S(0)\"}]'", verify);
	tt_buf b = { 0 };
	TT_CHECK_INT(t, shell(t, line, &b), 1);
	static const char *const says[] = { "  REFUSED tp 2", "\nno mesh is proven; 0 differ; 1 is refused; 0 are not legal;", "titan: type: 1 mesh could not be compared, tp 2, sp: rank " };
	for (int i = 0; i < TT_COUNT(says); i++)
		TT_CHECK_MSG(t, strstr(b.s, says[i]), "no \"%s\" in: %s", says[i], b.s);
	TT_CHECK_MSG(t, !strstr(b.s, "one rank's bits") && !strstr(b.s, "DIFFERS"), "%s", b.s);
	tt_buf_fini(&b);
}

/* `line`, a command that says it goes on in file `out`, gets a signal once `when` is there, and more after it: `then`, a shell's. Its exit code, what
 * is left in its folder for temporary files, and what it said. */
static void told(tt_test *t, const char *line, const char *when, const char *number, const char *then, tt_buf *b)
{
	const char *temp = tt_test_path(t, "temp"), *out = tt_test_path(t, "said");
	TT_CHECK_OK(t, tt_mkdirs(temp));
	(void)unlink(out); /* what the one before said */
	(void)shell(t, tt_arena_printf(t->arena, "said() { until grep -q \"$1\" %s; do kill -0 $p || break; sleep 0.02; done; }; : >%s; TMPDIR=%s %s >%s 2>&1 & p=$!; said '%s'; "
		"echo before $(ls %s); kill -%s $p; %s wait $p; echo rc $?; n=0; while [ \"$(ls %s)\" ] && [ $n -lt 400 ]; do n=$((n+1)); sleep 0.05; done; echo left $(ls %s); cat %s",
		out, out, temp, line, out, when, temp, number, then, temp, temp, out), b);
}

/* A proof that is asked to end says what is proven so far; however it ends, its folder goes. */
static void stopped(tt_test *t)
{
	static const char one[] = "build/titan verify configs/debug.toml --model.num_hidden_layers=1 --steps=1 --ranks=12";
	static const char two[] = "build/titan verify configs/debug.toml --model.num_hidden_layers=1 --steps=1000 --mesh=tp=2";
	static const struct { const char *line, *when, *number, *then, *says[6]; } CASES[] = {
		{ one, "equal", "TERM", "", { "before titan-verify-", "\nrc 3\nleft\n", "\nstopping after this mesh; again to stop now\n", " proven: after each step", "titan: stop: stopped by signal 15 after " } },
		{ one, "equal", "USR1", "", { "before titan-verify-", "\nrc 3\nleft\n", "\nstopping after this mesh\n", " proven: after each step", "titan: stop: stopped by signal 10 after " } },
		{ one, "equal", "HUP", "", { "before titan-verify-", "\nrc 3\nleft\n", "\nstopping after this mesh\n", " proven: after each step", "titan: stop: stopped by signal 1 after " } },
		{ two, "threads", "TERM", "said 'again to stop now'; kill -TERM $p;", { "before titan-verify-", "\nrc 143\nleft\n" } },
		{ two, "threads", "KILL", "", { "before titan-verify-", "\nrc 137\nleft\n" } },
	};
	signal(SIGHUP, SIG_DFL); /* under nohup it would not be heard */
	for (int i = 0; i < TT_COUNT(CASES); i++) {
		tt_buf b = { 0 };
		told(t, CASES[i].line, CASES[i].when, CASES[i].number, CASES[i].then, &b);
		for (int k = 0; k < TT_COUNT(CASES[i].says) && CASES[i].says[k]; k++)
			TT_CHECK_MSG(t, strstr(b.s, CASES[i].says[k]), "%d: no \"%s\" in: %s", i, CASES[i].says[k], b.s);
		tt_buf_fini(&b);
	}
}

/* A config for both acts of the demo: a text of some lines and a model of some thousand parameters. */
static const char *demo_config(tt_test *t, int steps)
{
	tt_buf text = { 0 };
	for (int i = 0; i < 400; i++)
		tt_buf_printf(&text, "line %d: the quick brown fox jumps over the lazy dog number %d\n", i, i * i % 91);
	TT_CHECK_OK(t, tt_file_write(tt_test_path(t, "text.txt"), text.s, text.n));
	tt_buf_fini(&text);
	const char *toml = tt_arena_printf(t->arena,
		"[job]\ndump_folder = \"%s\"\n[model]\nflavor = \"debugmodel\"\nvocab_size = 256\nhidden_size = 32\nnum_hidden_layers = 2\nnum_attention_heads = 4\nnum_key_value_heads = 2\n"
		"intermediate_size = 48\n[training]\nsteps = %d\ntokens_per_step = 256\ncontext_length = 32\n[lr_scheduler]\nwarmup_steps = 2\n[checkpoint]\nenable = true\ninterval = 4\n"
		"last_save_model_only = false\n[data]\npaths = [\"%s\"]\n", tt_test_path(t, "out"), steps, tt_test_path(t, "text.txt"));
	const char *path = tt_test_path(t, "demo.toml");
	TT_CHECK_OK(t, tt_file_write(path, toml, strlen(toml)));
	return path;
}

static void demo(tt_test *t)
{
	const char *path = demo_config(t, 12);
	tt_buf b = { 0 };
	int code = shell(t, tt_arena_printf(t->arena, "build/titan demo %s", path), &b);
	static const char *const says[] = { "the same training goes on from step 8 on 8 ranks", "mesh: 8 ranks, threads of this process: dp_replicate 1, dp_shard 2, cp 2 (gather, headtail), tp 2",
					    "\n     9 ", "\n    12 ", "the largest difference is ", "meshes proven", " 0 differ;" };
	TT_CHECK_MSG(t, code == 0, "exit code %d: %s", code, b.s);
	for (int i = 0; i < TT_COUNT(says); i++)
		TT_CHECK_MSG(t, strstr(b.s, says[i]), "no \"%s\" in: %s", says[i], b.s);
	TT_CHECK_MSG(t, !strstr(b.s, " nan"), "%s", b.s);
	tt_buf_fini(&b);
}

/* The demo ends in order in each of its parts: in the first half, whose process is its child, and in the proof. */
static void demo_stopped(tt_test *t)
{
	static const struct { int steps; const char *when, *number, *then, *says[4]; } CASES[] = {
		{ 12, "and with exact numerics", "TERM", "", { "before titan-demo-", "\nrc 3\nleft\n", "\nstopping after this mesh; again to stop now\n", "titan: stop: stopped by signal 15, in the proof" } },
		{ 12, "and with exact numerics", "KILL", "", { "before titan-demo-", "\nrc 137\nleft\n" } },
		{ 1000000, "start-up:", "TERM", "", { "\nrc 3\nleft\n", "\nstopping after this step and saving; again to stop now\n", "titan: stop: the first half of the demo ended with status 3" } },
	};
	for (int i = 0; i < TT_COUNT(CASES); i++) {
		const char *path = demo_config(t, CASES[i].steps), *flags = CASES[i].steps > 12 ? "--checkpoint.interval=1000000" : "";
		tt_buf b = { 0 };
		told(t, tt_arena_printf(t->arena, "build/titan demo %s %s", path, flags), CASES[i].when, CASES[i].number, CASES[i].then, &b);
		for (int k = 0; k < TT_COUNT(CASES[i].says) && CASES[i].says[k]; k++)
			TT_CHECK_MSG(t, strstr(b.s, CASES[i].says[k]), "%d: no \"%s\" in: %s", i, CASES[i].says[k], b.s);
		tt_buf_fini(&b);
		/* Nobody trains on. */
		check_run(t, tt_arena_printf(t->arena, "! pgrep -f '[%c]%s'", path[0], path + 1), 0, "");
	}
}

/* Which meshes `titan verify` is asked for; the config's own mesh is none of its business. */
static void verify(tt_test *t)
{
	static const struct { const char *flags; int code; const char *part; } CASES[] = {
		{ "--meshes=\";\"", 2, "--meshes=;: no mesh; \"all\", or as \"dp_shard=2,tp=2,sp; cp=4\"" },
		{ "--meshes=tp=2,tp=4", 2, "--meshes: \"tp=2,tp=4\": \"tp=4\" is one too many, that was said before" },
		{ "--meshes=tp=2,sp,nosp", 2, "\"nosp\" is one too many" },
		{ "--mesh=cp=2,ring,cost,gather", 2, "--mesh: \"cp=2,ring,cost,gather\": \"gather\" is one too many" },
		{ "--meshes=tp=0", 2, "--meshes: tp=0: a number from 1 to 64 is needed" },
		{ "--meshes=\"dp_shard=2; dp_shard=8,cp=9\"", 2, "\"dp_shard=8,cp=9\" has 72 ranks, at most 64" },
		{ "--meshes=dp=2", 2, "\"dp=2\" is no AXIS=DEGREE; axes are dp_replicate, dp_shard, cp, tp" },
		{ "--meshes=cp=2,sp", 2, "sp is beside tensor parallel, and tp is 1" },
		{ "--meshes=tp=2,ring", 2, "a method or a balancer is beside context parallel, and cp is 1" },
		{ "--mesh=ring", 2, "\"ring\" has one rank, there is nothing to compare it with" },
		{ "--mesh=tp=2 --ranks=4", 2, "--mesh names meshes and --ranks bounds them: one of the two" },
		{ "--ranks=1", 2, "--ranks=1: a number from 2 to 64 is needed" },
		{ "--steps=1 --meshes=\"tp=2; tp=3\"", 2, "usage: --meshes: tp 3, sp: parallelism.tensor_parallel_degree = 3 does not deal 2 kv heads" },
		{ "--meshes=all --ranks=2 --steps=1 --parallelism.tensor_parallel_degree=8 --parallelism.data_parallel_shard_degree=2", 0, "7 meshes proven" },
	};
	for (int i = 0; i < TT_COUNT(CASES); i++)
		check_run(t, tt_arena_printf(t->arena, "build/titan verify configs/debug.toml %s", CASES[i].flags), CASES[i].code, CASES[i].part);
}

const tt_case tt_suite_cli[] = {
	{ "messages", messages, TT_TIER_QUICK },
	{ "flags", flags, TT_TIER_QUICK },
	{ "exit_codes", exit_codes, TT_TIER_QUICK },
	{ "no_files", no_files, TT_TIER_QUICK },
	{ "help", help, TT_TIER_QUICK },
	{ "warnings", warnings, TT_TIER_QUICK },
	{ "trains", trains, TT_TIER_QUICK },
	{ "layouts", layouts, TT_TIER_QUICK },
	{ "looked_at", looked_at, TT_TIER_QUICK },
	{ "meshes", meshes, TT_TIER_QUICK },
	{ "stopped", stopped, TT_TIER_QUICK },
	{ "verify", verify, TT_TIER_QUICK },
	{ "doc_up_to_date", doc_up_to_date, TT_TIER_QUICK },
	{ "demo", demo, TT_TIER_CI },
	{ "demo_stopped", demo_stopped, TT_TIER_QUICK },
	{ "adding_an_op", adding_an_op, TT_TIER_CI },
	{ 0 },
};
