/* test_resume.c: what a resumed run is held against: its model, its data, its other keys, newer checkpoints, a validation that was cut short; and
 * whether it can save at all. */
#define _GNU_SOURCE
#include "runs.h"

enum { AT = 4 };

/* A run of AT steps to be resumed, and the flags that take it on by a step. */
static const char *const one_more = "--training.steps=5 --lr_scheduler.total_steps=12";

static void first_run(tt_test *t)
{
	make_texts(t);
	make_config(t);
	RUN(t, "run", "--training.steps=4");
}

/* Resumes a copy of the run with flags; false if it does not end with `code` or does not say `part`. */
static bool resumed(tt_test *t, const char *flags, int code, const char *part, int line)
{
	remove_tree(t, "copy");
	copy_folder(t, "run", "copy");
	return run_says(t, "copy", tt_arena_printf(t->arena, "%s %s", one_more, flags), code, part, line);
}
#define RESUMED(t, flags, code, part) resumed((t), (flags), (code), (part), __LINE__)

/* It had nothing to say of what differs. */
static void silent(tt_test *t)
{
	static const char *const words[] = { "from here on", "is not read", "the schedule is", "newer", "compared" };
	for (int i = 0; i < TT_COUNT(words); i++)
		TT_CHECK_MSG(t, !strstr(said(t, "copy"), words[i]), "%s", said(t, "copy"));
}

/* ---- keys ------------------------------------------------------------------------------------------------------------------------------ */

/* All of them fit the shapes of the weights. */
static void model_keys(tt_test *t)
{
	static const char *const changes[][2] = {
		{ "--model.rope_theta=20000", "model.rope_theta is 20000, the model in " },
		{ "--model.rms_norm_eps=0.00012345", "model.rms_norm_eps is 0.00012345, the model in " },
		{ "--model.sliding_window=8", "model.sliding_window is 8, the model in " },
		{ "--model.num_attention_heads=4 --model.num_key_value_heads=2", "model.num_attention_heads is 4, the model in " },
		{ "--model.max_position_embeddings=64", "model.max_position_embeddings is 64, the model in " },
		{ "--model.rope_scaling=linear --model.rope_factor=2", "model.rope_scaling is linear, the model in " },
	};
	first_run(t);
	const char *weights = tt_test_path(t, step_path(t, "copy", AT, ""));
	for (int i = 0; i < TT_COUNT(changes); i++) {
		RESUMED(t, changes[i][0], 2, changes[i][1]);
		TT_CHECK(t, strstr(said(t, "copy"), tt_arena_printf(t->arena, "model.hf_weights = \"%s\"", weights)));
		TT_CHECK_INT(t, steps_of(t, "copy").steps, AT);
		RESUMED(t, tt_arena_printf(t->arena, "%s --checkpoint.exclude_from_loading=model", changes[i][0]), 0, "at step 4");
	}
	/* The remedy. */
	RUN(t, "warm", tt_arena_printf(t->arena, "%s --training.steps=1 --model.hf_weights=%s", changes[0][0], tt_test_path(t, step_path(t, "run", AT, ""))));
	/* The same model in other words is the same. */
	RESUMED(t, tt_arena_printf(t->arena, "--model.hf_config=%s --model.hidden_size=0", tt_test_path(t, step_path(t, "run", AT, ""))), 0, "at step 4");
	silent(t);
	/* Another under the same name is not. */
	put(t, "hf/config.json", read_text(t, step_path(t, "run", AT, "config.json")), strlen(read_text(t, step_path(t, "run", AT, "config.json"))));
	const char *named = tt_arena_printf(t->arena, "--model.hf_config=%s", tt_test_path(t, "hf"));
	RUN(t, "named", tt_arena_printf(t->arena, "%s --training.steps=2", named));
	char *config = tt_arena_strdup(t->arena, read_text(t, "hf/config.json")), *theta = strstr(config, "\"rope_theta\": ");
	if (TT_CHECK(t, theta)) {
		theta[strlen("\"rope_theta\": ")] = '7';
		put(t, "hf/config.json", config, strlen(config));
		RUN_SAYS(t, "named", tt_arena_printf(t->arena, "%s --training.steps=3", named), 2, "model.rope_theta is 7");
	}
	/* A model that is not a flavor's, and one with a window, come back as what they were. */
	RUN(t, "other", tt_arena_printf(t->arena, "--training.steps=2 %s %s %s", changes[1][0], changes[2][0], changes[5][0]));
	RUN_SAYS(t, "other", tt_arena_printf(t->arena, "--training.steps=3 %s %s %s", changes[1][0], changes[2][0], changes[5][0]), 0, "at step 2");
	RUN_SAYS(t, "other", tt_arena_printf(t->arena, "--training.steps=3 %s %s", changes[1][0], changes[5][0]), 2, "model.sliding_window is 0, the model in ");
}

static void other_keys(tt_test *t)
{
	static const char *const told[][3] = { /* flag, line, the part whose exclusion takes it away */
		{ "--optimizer.lr=1e-3", "optimizer.lr: 0.003 up to step 4, 0.001 from here on; moments go on as they are", "optimizer" },
		{ "--optimizer.beta2=0.9", "optimizer.beta2: 0.95 up to step 4, 0.9 from here on", "optimizer" },
		{ "--training.max_norm=2", "training.max_norm: 1.0 up to step 4, 2.0 from here on", "train_state" },
		{ "--training.mixed_precision_param=float32", "training.mixed_precision_param: \"bfloat16\" up to step 4, \"float32\" from here on; masters and moments go on",
		  "train_state" },
		{ "--debug.numerics=exact", "debug.numerics: \"fast\" up to step 4, \"exact\" from here on", "train_state" },
		{ "--lr_scheduler.warmup_steps=2", "the schedule is the config's: warmup 2", "lr_scheduler" },
	};
	static const char *const quiet[] = {
		"--metrics.log_freq=1 --metrics.norm_groups=*", "--profiling.enable", "--checkpoint.interval=1 --checkpoint.keep_latest_k=3", "--job.description=x",
		"--hardware.threads=1", "--training.tokens_per_microbatch=64", "--debug.kernels=ref", "--training.loss_chunks=4", "--training.nonfinite=skip",
		"--debug.seed=3 --data.seed=0", "",
	};
	first_run(t);
	for (int i = 0; i < TT_COUNT(told); i++) {
		RESUMED(t, told[i][0], 0, told[i][1]);
		RESUMED(t, tt_arena_printf(t->arena, "%s --checkpoint.exclude_from_loading=%s", told[i][0], told[i][2]), 0, NULL);
		TT_CHECK_MSG(t, !strstr(said(t, "copy"), told[i][1]), "%s is told without %s", told[i][0], told[i][2]);
	}
	for (int i = 0; i < TT_COUNT(quiet); i++) {
		RESUMED(t, quiet[i], 0, "at step 4");
		silent(t);
	}
	/* Weights named beside a checkpoint are not read. */
	RESUMED(t, tt_arena_printf(t->arena, "--model.hf_weights=%s", tt_test_path(t, step_path(t, "run", AT, "model.safetensors"))), 0,
		"is not read: the run goes on with the checkpoint's weights");
	/* States of another optimizer. */
	RESUMED(t, "--optimizer.name=SGD --optimizer.momentum=0.9", 2, "checkpoint.exclude_from_loading = [\"optimizer\"]");
	RESUMED(t, "--optimizer.name=SGD --optimizer.momentum=0.9 --checkpoint.exclude_from_loading=optimizer", 0, "at step 4");
	/* Lengths are the data's. */
	RESUMED(t, "--training.tokens_per_step=128 --checkpoint.exclude_from_loading=dataloader", 0, "training.tokens_per_step: 64 up to step 4, 128 from here on");
}

/* ---- meshes ---------------------------------------------------------------------------------------------------------------------------- */

static void with_rows(tt_test *t, const char *rows)
{
	const char *text = tt_arena_printf(t->arena, "%s%s", read_text(t, "run.toml"), rows);
	put(t, "run.toml", text, strlen(text));
}

static int lines_of(const char *text, const char *what)
{
	int n = 0;
	while ((text = strstr(text, what)) && ++n)
		text += strlen(what);
	return n;
}

/* Another mesh, other rows: one line that says so; the same: none. */
static void mesh(tt_test *t)
{
	static const char row[] = "[[parallelism.layouts]]\nplace = \"store\"\nvalue = \"*.down_proj.weight\"\naxis = \"fsdp\"\ntype = \"S(1)\"\n";
	static const char other[] = "[[parallelism.layouts]]\nplace = \"store\"\nvalue = \"*.up_proj.weight\"\naxis = \"fsdp\"\ntype = \"S(1)\"\n";
	make_texts(t);
	make_config(t);
	RUN(t, "run", "--training.steps=4 --ranks=2");
	static const struct { const char *flags, *line; } cases[] = {
		{ "--ranks=1", "parallelism: dp_shard 2 up to step 4, one rank from here on\n" },
		{ "--ranks=2 --parallelism.tensor_parallel_degree=2", "parallelism: dp_shard 2 up to step 4, tp 2 with sequence parallel from here on\n" },
		{ "--ranks=2 --parallelism.context_parallel_degree=2 --parallelism.context_parallel_method=ring",
		  "parallelism: dp_shard 2 up to step 4, cp 2 (ring, headtail) from here on\n" },
		{ "--ranks=2 --parallelism.data_parallel_replicate_degree=2", "parallelism: dp_shard 2 up to step 4, dp_replicate 2 from here on\n" },
		{ "--ranks=2 --parallelism.data_parallel_shard_degree=2", NULL },
		{ "--ranks=2", NULL },
	};
	for (int i = 0; i < TT_COUNT(cases); i++) {
		RESUMED(t, cases[i].flags, 0, cases[i].line);
		TT_CHECK_MSG(t, lines_of(said(t, "copy"), "parallelism: ") == (cases[i].line != NULL), "%s: %s", cases[i].flags, said(t, "copy"));
	}
	RESUMED(t, "--ranks=1 --checkpoint.exclude_from_loading=train_state", 0, NULL);
	TT_CHECK(t, !strstr(said(t, "copy"), "parallelism: "));
	with_rows(t, row);
	RESUMED(t, "--ranks=2", 0, "parallelism: layouts: 0 rows, 1 from here on\n");
	RESUMED(t, "--ranks=1", 0, "parallelism: dp_shard 2 up to step 4, one rank from here on; layouts: 0 rows, 1 from here on\n");
	RUN(t, "rows", "--training.steps=4 --ranks=2");
	remove_tree(t, "run");
	copy_folder(t, "rows", "run");
	RESUMED(t, "--ranks=2", 0, NULL);
	TT_CHECK(t, !strstr(said(t, "copy"), "parallelism: "));
	with_rows(t, other);
	RESUMED(t, "--ranks=2", 0, "parallelism: layouts: 1 row, 2 from here on\n");
	make_config(t);
	with_rows(t, other);
	RESUMED(t, "--ranks=2", 0, "parallelism: layouts: row 1 is another from here on\n");
}

/* ---- data ------------------------------------------------------------------------------------------------------------------------------ */

/* Held-out files are compared as those to train on are, and a warning names the one that is another. */
static void held_out_changed(tt_test *t)
{
	first_run(t);
	RESUMED(t, "", 0, "at step 4");
	TT_CHECK(t, !strstr(said(t, "copy"), "held-out files are not those"));
	char *text = tt_arena_strdup(t->arena, read_text(t, "held/out.txt"));
	size_t n = strlen(text);
	text[n / 2] ^= 1;
	put(t, "held/out.txt", text, n);
	RESUMED(t, "", 0, "held/out.txt has changed; there were 1 files held out, there are 1. Losses before and after this are of other texts");
	put(t, "held/more.txt", text, n);
	RESUMED(t, "", 0, "held/more.txt is new; there were 1 files held out, there are 2");
}

static void data_changed(tt_test *t)
{
	first_run(t);
	const char *path = "text/03.txt";
	char *text = tt_arena_strdup(t->arena, read_text(t, path));
	size_t n = strlen(text);
	RESUMED(t, "", 0, "at step 4");
	/* Written again as it was: another time, the same text. */
	rest(0.01);
	put(t, path, text, n);
	RESUMED(t, "", 0, "at step 4");
	text[n / 2] ^= 1;
	put(t, path, text, n);
	RESUMED(t, "", 2, "03.txt has changed; there were 13 files to train on, there are 13");
	TT_CHECK(t, strstr(said(t, "copy"), "; as then, data.paths is [\"") && strstr(said(t, "copy"), "] and the seed 0. checkpoint.exclude_from_loading = [\"dataloader\"]"));
	TT_CHECK_INT(t, steps_of(t, "copy").steps, AT);
	RESUMED(t, "--checkpoint.exclude_from_loading=dataloader", 0, "at step 4");
	silent(t);
	/* What goes on with changed data has it from there on. */
	run_says(t, "copy", "--training.steps=6", 0, "at step 5", __LINE__);
	text[n / 2] ^= 1;
	put(t, path, text, n);
	run_says(t, "copy", "--training.steps=7", 2, "03.txt has changed", __LINE__);
	put(t, "text/02b.txt", "new", 3);
	RESUMED(t, "", 2, "text/02b.txt is new; there were 13 files to train on, there are 14");
	unlink(tt_test_path(t, "text/02b.txt"));
	unlink(tt_test_path(t, path));
	RESUMED(t, "", 2, "04.txt a file is gone, or the order of the files is another; there were 13 files to train on, there are 12");
	put(t, path, text, n);
	unlink(tt_test_path(t, "text/12.txt"));
	RESUMED(t, "", 2, "the files after ");
	RESUMED(t, "--debug.seed=1", 2, "debug.seed is 1, was 0");
	RESUMED(t, "--data.shuffle=false", 2, "data.shuffle is false, was true");
}

/* ---- newer checkpoints ---------------------------------------------------------------------------------------------------------------------- */

static void newer(tt_test *t)
{
	make_texts(t);
	make_config(t);
	RUN(t, "straight", "");
	RUN(t, "run", "--training.steps=8 --checkpoint.interval=1 --checkpoint.keep_latest_k=3");
	TT_CHECK_INT(t, count_names(t, "run", "step-"), 3);
	static const char *const line = "has newer checkpoints than step 6, of steps 7, 8: they stay until this run has saved one of its own";
	/* Until it has, nothing goes: neither when it cannot save, nor when it is killed. */
	limit_files(200 * 1000);
	RUN_SAYS(t, "run", "--checkpoint.load_step=6 --checkpoint.interval=1 --checkpoint.keep_latest_k=1", 1, line);
	limit_files(RLIM_INFINITY);
	TT_CHECK_INT(t, count_names(t, "run", "step-"), 3);
	TT_CHECK_INT(t, latest(t, "run"), 8);
	child c = start(t, "run", "--checkpoint.load_step=6 --training.steps=1000000 --checkpoint.keep_latest_k=1");
	TT_CHECK(t, await(&c, stepped));
	tell(&c, SIGKILL);
	finish(&c);
	TT_CHECK_INT(t, count_names(t, "run", "step-"), 3);
	TT_CHECK_INT(t, latest(t, "run"), 8);
	/* Loading alone replaces nothing and says nothing. */
	RUN(t, "run", "--checkpoint.load_step=6 --checkpoint.load_only --training.steps=7");
	TT_CHECK(t, !strstr(said(t, "run"), "newer checkpoints"));
	RUN_SAYS(t, "run", "--checkpoint.load_step=6 --training.steps=7 --checkpoint.keep_latest_k=2", 0, line);
	TT_CHECK_INT(t, latest(t, "run"), 7);
	TT_CHECK_INT(t, count_names(t, "run", "step-"), 2);
	TT_CHECK(t, !there(t, step_path(t, "run", 8, "")));
	RUN(t, "run", "");
	TT_CHECK(t, !strstr(said(t, "run"), "newer checkpoints"));
	same_end(t, "straight", "run", STEPS);
}

/* ---- a validation cut short ------------------------------------------------------------------------------------------------------------------ */

static void validation_stopped(tt_test *t)
{
	make_texts(t);
	make_config(t);
	tt_buf b = { 0 };
	while (b.n < 30 * 1000)
		tt_buf_str(&b, read_text(t, "held/out.txt"));
	put(t, "long/out.txt", b.s, b.n);
	tt_buf_fini(&b);
	const char *flags = tt_arena_printf(t->arena, "--training.steps=2 --validation.freq=1 --validation.steps=-1 --validation.paths=%s", tt_test_path(t, "long"));
	/* Slow, and not a bit different. */
	const char *slow = tt_arena_printf(t->arena, "%s --debug.kernels=ref --debug.isa=ref --threads=1", flags);
	RUN(t, "straight", flags);
	for (int twice = 0; twice < 2; twice++) {
		child c = start(t, "stopped", slow);
		if (!TT_CHECK(t, await(&c, twice ? first_step : stepped)))
			return;
		tell(&c, SIGTERM);
		TT_CHECK_INT(t, finish(&c), 3);
		TT_CHECK(t, !strstr(steps_of(t, "stopped").text, "validation"));
		TT_CHECK_INT(t, latest(t, "stopped"), 1);
		TT_CHECK(t, strstr(read_text(t, step_path(t, "stopped", 1, "train_state.json")), "\"unvalidated\": true"));
	}
	/* Made up for, and not in a checkpoint yet: the next start makes it again, and it stands there once. */
	for (int i = 0; i < 2; i++) {
		RUN(t, "stopped", tt_arena_printf(t->arena, "%s --training.steps=1 --checkpoint.load_only", flags));
		TT_CHECK(t, strstr(steps_of(t, "stopped").text, "validation 1"));
	}
	RUN(t, "stopped", flags);
	TT_CHECK(t, strstr(read_text(t, step_path(t, "stopped", 2, "train_state.json")), "\"unvalidated\": false"));
	same_end(t, "straight", "stopped", 2);
}

/* ---- can it save ----------------------------------------------------------------------------------------------------------------------------- */

static void folder_tried(tt_test *t)
{
	make_texts(t);
	make_config(t);
	/* A folder that cannot be made, whoever the user is. */
	TT_CHECK_OK(t, tt_mkdirs(tt_test_path(t, "run")));
	TT_CHECK(t, !symlink("nowhere/at/all", tt_test_path(t, "run/checkpoint")));
	RUN_SAYS(t, "run", "", 1, "with no checkpoint (checkpoint.on_error = \"continue\" goes on without)");
	TT_CHECK_INT(t, steps_of(t, "run").steps, 0);
	RUN_SAYS(t, "run", "--checkpoint.load_only --training.steps=1", 0, NULL);
	RUN_SAYS(t, "run", "--checkpoint.on_error=continue", 1, "training goes on without it (checkpoint.on_error)");
	TT_CHECK_INT(t, steps_of(t, "run").steps, STEPS);
	/* What a try leaves is nothing. */
	unlink(tt_test_path(t, "run/checkpoint"));
	child c = start(t, "run", "--training.steps=1000000");
	TT_CHECK(t, await(&c, stepped));
	TT_CHECK_INT(t, count_names(t, "run", ".tmp-"), 0);
	tell(&c, SIGKILL);
	finish(&c);
}

/* ---- titan ckpt ------------------------------------------------------------------------------------------------------------------------------ */

/* titan WORDS (separated by blanks; a leading + is a path of the case): ends with `code` and says `part`. */
static bool titan_says(tt_test *t, const char *words, int code, const char *part, int line)
{
	char *argv[12] = { "build/titan" }, *more = NULL;
	int n = 1;
	for (char *w = strtok_r(tt_arena_strdup(t->arena, words), " ", &more); w && n < TT_COUNT(argv) - 1; w = strtok_r(NULL, " ", &more))
		argv[n++] = *w == '+' ? (char *)tt_test_path(t, w + 1) : w;
	const char *log = tt_test_path(t, "titan.log");
	pid_t pid = fork();
	if (pid == 0) {
		int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
		if (fd >= 0 && dup2(fd, 1) == 1 && dup2(fd, 2) == 2)
			execv(argv[0], argv);
		_exit(127);
	}
	int status = -1;
	waitpid(pid, &status, 0);
	const char *text = read_text(t, "titan.log");
	return TT_CHECK_MSG(t, WIFEXITED(status) && WEXITSTATUS(status) == code && strstr(text, part), "line %d: titan %s: exit code %d, want %d and \"%s\" in:\n%s", line,
			    words, WEXITSTATUS(status), code, part, text);
}
#define TITAN_SAYS(t, words, code, part) titan_says((t), (words), (code), (part), __LINE__)

static void commands(tt_test *t)
{
	make_texts(t);
	make_config(t);
	RUN(t, "run", "--training.steps=4 --checkpoint.interval=2");
	/* A checkpoint, the folder of a run's, a run's folder. */
	TITAN_SAYS(t, "ckpt verify +run/checkpoint/step-00000002", 0, "ok, step 2, ");
	TITAN_SAYS(t, "ckpt verify +run/checkpoint", 0, "latest: step 4");
	TITAN_SAYS(t, "ckpt verify +run", 0, "a run's folder; its checkpoints are in ");
	TITAN_SAYS(t, "ckpt verify +run", 0, "latest: step 4");
	TITAN_SAYS(t, "ckpt inspect +run", 0, "step 4, model and optimizer");
	TITAN_SAYS(t, "ckpt export +run +plain", 0, "step-00000004 as imported");
	/* A Hugging Face folder: what can be said of it, and that it is not all. */
	TITAN_SAYS(t, "ckpt verify +plain", 0, "names and shapes are those of its config.json. It is not a run's checkpoint and has no checksums");
	TITAN_SAYS(t, "ckpt inspect +plain", 0, "not of a run");
	TITAN_SAYS(t, "ckpt verify +plain/model.safetensors", 0, "no config.json says what shapes it should have");
	char *config = tt_arena_strdup(t->arena, read_text(t, "plain/config.json")), *size = strstr(config, "\"intermediate_size\": 48");
	if (TT_CHECK(t, size)) {
		size[strlen("\"intermediate_size\": ")] = '5';
		put(t, "plain/config.json", config, strlen(config));
		TITAN_SAYS(t, "ckpt verify +plain", 1, "the model needs [58, 32]");
	}
	put(t, "plain/config.json", "{\"model_type\":\"bert\",\"architectures\":[\"BertModel\"]}", 52);
	TITAN_SAYS(t, "ckpt verify +plain", 0, "names and shapes are not checked: ");
	TT_CHECK(t, !truncate(tt_test_path(t, "plain/model.safetensors"), 20000));
	TITAN_SAYS(t, "ckpt verify +plain", 1, "model.safetensors");
	/* Others. */
	TITAN_SAYS(t, "ckpt verify +text", 2, "no complete checkpoint and no model.safetensors is in it");
	TITAN_SAYS(t, "ckpt inspect +nowhere", 1, "nowhere");
	copy_folder(t, "run/checkpoint", "run/second");
	TITAN_SAYS(t, "ckpt verify +run", 2, "name one of them");
	unlink(tt_test_path(t, step_path(t, "run", 4, "COMPLETE")));
	TITAN_SAYS(t, "ckpt verify +run/checkpoint/step-00000004", 1, "is not a complete checkpoint");
}

const tt_case tt_suite_resume[] = {
	{ "model_keys", model_keys, TT_TIER_QUICK },
	{ "other_keys", other_keys, TT_TIER_QUICK },
	{ "mesh", mesh, TT_TIER_QUICK },
	{ "held_out", held_out_changed, TT_TIER_QUICK },
	{ "data_changed", data_changed, TT_TIER_QUICK },
	{ "newer", newer, TT_TIER_QUICK },
	{ "validation_stopped", validation_stopped, TT_TIER_QUICK },
	{ "folder_tried", folder_tried, TT_TIER_QUICK },
	{ "commands", commands, TT_TIER_QUICK },
	{ 0 },
};
