/* connect: the way from a config to a run, its errors, and what a run prints about itself. */
#define _GNU_SOURCE
#include "tiny.h"

#include "ckpt/ckpt.h"

#include <fcntl.h>
#include <glob.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- from a config to a run ---------------------------------------------------------------------------------------------------------------------------- */

static tt_status options_of(tt_test *t, const char *text, tt_run_options *o)
{
	tt_config *cfg = NULL;
	TT_TRY(tt_config_load_text(t->arena, "c.toml", text, strlen(text), 0, NULL, &cfg));
	return tt_run_options_from_config(t->arena, cfg, o);
}

static void case_configs(tt_test *t)
{
	glob_t found;
	if (glob("configs/*.toml", 0, NULL, &found) != 0)
		TT_SKIP(t, "configs/ is not here: run from the repository's root");
	TT_CHECK(t, found.gl_pathc >= 2);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		tt_config *cfg;
		tt_run_options o;
		if (!TT_CHECK_OK(t, tt_config_load(t->arena, found.gl_pathv[i], 0, NULL, &cfg)) || !TT_CHECK_OK(t, tt_run_options_from_config(t->arena, cfg, &o)))
			continue;
		TT_CHECK_MSG(t, cfg->warnings.n == 0, "%s: %s", found.gl_pathv[i], cfg->warnings.items[0]);
		TT_CHECK(t, o.schedule.total == cfg->training.steps && o.data.tokens_per_step % o.tokens_per_microbatch == 0);
		/* Everything to the first step, on made-up tokens: the files it names may not be on this machine. Of a mesh the plan. */
		tt_data_options d = { .source = "synthetic", .context_length = o.data.context_length, .tokens_per_step = o.data.tokens_per_step,
				      .vocab_size = o.data.vocab_size };
		o.data = d;
		o.exec.isa = tiny_isa(t);
		tt_trainer *tr = NULL;
		if (TT_CHECK_OK(t, cfg->hardware.ranks > 1 ? tt_trainer_plan(&o, &tr) : tt_trainer_create(&o, &tr)))
			TT_CHECK_INT(t, tt_trainer_params(tr), tt_llama_params(&o.model));
		tt_trainer_destroy(tr);
	}
	globfree(&found);
}

#define DATA "[data]\nsource=\"synthetic\"\n"

static void case_config_values(tt_test *t)
{
	tt_run_options o;
	if (!TT_CHECK_OK(t, options_of(t,
		"[model]\nflavor=\"debugmodel\"\nhidden_size=64\nnum_attention_heads=4\nnum_key_value_heads=2\nsliding_window=9\ntie_word_embeddings=true\n"
		"mlp_bias=true\nrope_theta=77.0\n[training]\nsteps=50\ncontext_length=128\ntokens_per_step=1024\ntokens_per_microbatch=256\nloss_chunks=5\n"
		"max_norm=2.5\nnonfinite=\"skip\"\nnonfinite_max_skips=3\nmixed_precision_param=\"float32\"\n[optimizer]\nlr=0.25\nbeta1=0.8\nbeta2=0.9\neps=1e-6\n"
		"weight_decay=0.3\n[[optimizer.param_groups]]\npattern=\"*norm*\"\nlr_scale=0.5\n[lr_scheduler]\nwarmup_steps=10\ndecay_ratio=0.5\n"
		"decay_type=\"sqrt\"\nmin_lr_factor=0.1\n[debug]\nseed=9\nnumerics=\"exact\"\nkernels=\"ref\"\n[hardware]\nthreads=3\n" DATA, &o)))
		return;
	TT_CHECK(t, o.model.hidden_size == 64 && o.model.num_attention_heads == 4 && o.model.num_key_value_heads == 2 && o.model.head_dim == 16);
	TT_CHECK(t, o.model.sliding_window == 9 && o.model.tie_word_embeddings && o.model.mlp_bias && !o.model.attention_bias && o.model.rope_theta == 77);
	TT_CHECK(t, o.compute == TT_F32 && o.loss_chunks == 5 && o.tokens_per_microbatch == 256 && o.data.tokens_per_step == 1024 && o.data.context_length == 128);
	TT_CHECK(t, o.optim.max_norm == 2.5 && o.skip_nonfinite && o.nonfinite_max_skips == 3 && !o.optim.sgd && o.optim.lr == 0.25);
	TT_CHECK(t, o.optim.beta1 == 0.8 && o.optim.beta2 == 0.9 && o.optim.eps == 1e-6 && o.optim.weight_decay == 0.3 && o.optim.ngroups == 1);
	TT_CHECK(t, !strcmp(o.optim.groups[0].pattern, "*norm*") && o.optim.groups[0].lr_scale == 0.5 && o.optim.groups[0].weight_decay < 0);
	TT_CHECK(t, o.schedule.warmup == 10 && o.schedule.total == 50 && o.schedule.decay == 25 && o.schedule.type == TT_WSD_SQRT && o.schedule.min_factor == 0.1);
	TT_CHECK(t, o.exec.seed == 9 && o.exec.numerics == TT_EXACT && o.exec.kernels_ref && o.exec.threads == 3);
	static const struct { const char *text; tt_recompute want; } AC[] = {
		{ "", { TT_RECOMPUTE_NONE, 0, 0.5, 0 } },
		{ "mode=\"full\"\n", { TT_RECOMPUTE_FULL, 0, 0.5, 0 } },
		{ "mode=\"selective\"\n", { TT_RECOMPUTE_SELECTIVE, 0, 0.5, 0 } },
		{ "mode=\"selective\"\nselective_ac_option=\"3\"\n", { TT_RECOMPUTE_SELECTIVE, 3, 0.5, 0 } },
		{ "mode=\"budget\"\nmemory_budget=0.25\nmemory_budget_mib=3\n", { TT_RECOMPUTE_BUDGET, 0, 0.25, 3 * TT_MIB } },
	};
	for (int i = 0; i < TT_COUNT(AC); i++)
		if (TT_CHECK_OK(t, options_of(t, tt_arena_printf(t->arena, DATA "[activation_checkpoint]\n%s", AC[i].text), &o)))
			TT_CHECK_MSG(t, o.recompute.mode == AC[i].want.mode && o.recompute.every == AC[i].want.every && o.recompute.budget == AC[i].want.budget &&
				o.recompute.budget_bytes == AC[i].want.budget_bytes, "%s", AC[i].text);
	/* decay = N - W if no ratio is given; a step is one microbatch if nothing is said; no clipping if the norm may be infinite. */
	if (TT_CHECK_OK(t, options_of(t, "[training]\nsteps=30\nmax_norm=inf\ncontext_length=64\ntokens_per_step=640\n[lr_scheduler]\nwarmup_steps=4\n" DATA, &o)))
		TT_CHECK(t, o.schedule.decay == 26 && o.tokens_per_microbatch == 640 && o.optim.max_norm == 0 && o.compute == TT_BF16);
}

static void case_config_errors(tt_test *t)
{
	static const struct { const char *text, *error; } E[] = {
		{ "[model]\nflavor=\"bytes-5n\"\n" DATA, "c.toml:2:1: unknown model.flavor \"bytes-5n\", did you mean \"bytes-5m\"?; there are: debugmodel, " },
		{ "[model]\nname=\"llama4\"\n" DATA, "model.name: no model is called \"llama4\" (there is: llama3)" },
		{ "[model]\nvocab_size=100\n[data]\npaths=[\"/\"]\ntokenizer=\"bytes\"\n",
		  "model.vocab_size is 100, tokenizer \"bytes\" has 256 ids (set model.vocab_size to at least that)" },
		{ "[data]\nsource=\"text\"\n",
		  "data.paths is empty: name text files, folders or patterns to train on (data.source = \"synthetic\" needs none)" },
		{ "[data]\npaths=[\"/\"]\ntokenizer=\"byts\"\n", "bytes" },
		{ "[training]\ncontext_length=100\ntokens_per_step=1024\n" DATA,
		  "c.toml:2:1: training.tokens_per_step = 1024 is no multiple of training.context_length = 100" },
		{ "[training]\ncontext_length=64\ntokens_per_step=1024\ntokens_per_microbatch=100\n" DATA,
		  "c.toml:2:1: training.tokens_per_microbatch = 100 is no multiple of training.context_length = 64" },
		{ "[training]\ncontext_length=64\ntokens_per_step=1024\ntokens_per_microbatch=2048\n" DATA,
		  "c.toml:4:1: training.tokens_per_microbatch = 2048 is more than training.tokens_per_step = 1024" },
		{ "[training]\nresidual_dtype=\"float32\"\n" DATA,
		  "training.residual_dtype = \"float32\" under bfloat16 compute is not in this version (set mixed_precision_param = \"float32\")" },
		{ "[activation_checkpoint]\nmode=\"selective\"\nselective_ac_option=\"0\"\n" DATA,
		  "c.toml:3:1: activation_checkpoint.selective_ac_option = \"0\" is neither \"op\" nor a number of layers, \"1\" to \"6\"" },
		{ "[activation_checkpoint]\nmode=\"selective\"\nselective_ac_option=\"2nd\"\n" DATA, "selective_ac_option = \"2nd\" is neither" },
		{ "[activation_checkpoint]\nmode=\"selective\"\nselective_ac_option=\"7\"\n" DATA, "selective_ac_option = \"7\" is neither" },
		{ "[activation_checkpoint]\nmode=\"selective\"\nselective_ac_option=\"\"\n" DATA, "selective_ac_option = \"\" is neither" },
		{ "[training]\nloss_chunks=65\n" DATA, "c.toml:2:13: training.loss_chunks = 65 is out of range: 1 to 64" },
		{ "[training]\ndtype=\"float64\"\n[debug]\nnumerics=\"exact\"\n" DATA,
		  "training.dtype = \"float64\" has no exact numerics (debug.numerics = \"fast\")" },
		{ "[model]\nnum_attention_heads=6\nnum_key_value_heads=4\n" DATA, "num_key_value_heads" },
	};
	for (int i = 0; i < TT_COUNT(E); i++) {
		tt_run_options o = { .loss_chunks = -7 };
		TT_CHECK_FAILS(t, options_of(t, E[i].text, &o), TT_ERR_USAGE, E[i].error);
		TT_CHECK_MSG(t, o.loss_chunks == -7, "%s: written in spite of an error", E[i].error);
	}
	/* What only building finds. */
	tt_run_options o = tiny_standard(t, ROWS);
	tt_trainer *tr = NULL;
	o.data.vocab_size = VOCAB - 20;
	TT_CHECK_FAILS(t, tt_trainer_create(&o, &tr), TT_ERR_USAGE, "within model.vocab_size 41");
	o = tiny_standard(t, ROWS);
	o.exec.limit = 4096;
	TT_CHECK_FAILS(t, tt_trainer_create(&o, &tr), TT_ERR_MEMORY, "before any activation");
	o = tiny_standard(t, ROWS);
	o.exec.limit = 16 * tt_llama_params(&o.model) + 4096;
	TT_CHECK_FAILS(t, tt_trainer_create(&o, &tr), TT_ERR_MEMORY, "work");
	o = tiny_standard(t, ROWS);
	o.weights = tt_test_path(t, "none.safetensors");
	TT_CHECK_FAILS(t, tt_trainer_create(&o, &tr), TT_ERR_IO, "none.safetensors");
	TT_CHECK(t, !tr);
	/* The text ends. */
	o = tiny_on_text(t, 8, 2);
	o.data.repeat = false;
	tt_step_report r;
	if (!TT_CHECK_OK(t, tt_trainer_create(&o, &tr)))
		return;
	tt_status s = TT_OK;
	for (int i = 0; i < 100 && s == TT_OK; i++)
		s = tt_trainer_step(tr, &r);
	TT_CHECK_FAILS(t, s, TT_ERR_STOP, "the text ends after");
	tt_trainer_destroy(tr);
}

/* ---- the resolved config ------------------------------------------------------------------------------------------------------------------------------ */

/* Keeps a config.json of 2 layers with `more` in it; its path. */
static const char *hf_file(tt_test *t, const char *name, const char *more)
{
	const char *path = tt_test_path(t, name);
	const char *text = tt_arena_printf(t->arena,
		"{\"architectures\":[\"MistralForCausalLM\"],\"hidden_size\":32,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"rms_norm_eps\":1e-6,"
		"\"intermediate_size\":24,\"num_hidden_layers\":2,\"vocab_size\":300,\"max_position_embeddings\":4096,\"sliding_window\":99%s}", more);
	TT_CHECK_OK(t, tt_file_write(path, text, strlen(text)));
	return path;
}

#define YARN ",\"rope_scaling\":{\"type\":\"yarn\",\"original_max_position_embeddings\":512,\"truncate\":false,\"mscale\":0.9,\"mscale_all_dim\":0.3}"
#define LLAMA3 ",\"rope_theta\":5e5,\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":7.3,\"low_freq_factor\":1.1,\"high_freq_factor\":3.7}"

static bool same_model(tt_arena *a, const tt_llama_config *x, const tt_llama_config *y)
{
	double *fx = TT_NEWN(a, double, x->head_dim), *fy = TT_NEWN(a, double, y->head_dim), sx, sy;
	tt_llama_config p = *x, q = *y;
	tt_llama_inv_freq(x, 2048, fx, &sx);
	tt_llama_inv_freq(y, 2048, fy, &sy);
	if (x->head_dim != y->head_dim || memcmp(fx, fy, (size_t)(x->head_dim / 2) * sizeof *fx) || sx != sy)
		return false;
	/* Texts are compared by their content; the rotary numbers have been, by what is computed from them. */
	bool texts = !strcmp(p.architecture, q.architecture) && !strcmp(p.dtype ? p.dtype : "", q.dtype ? q.dtype : "");
	p.architecture = q.architecture = p.dtype = q.dtype = NULL;
	p.rope = q.rope = (tt_rope_scaling){ 0 };
	return texts && !memcmp(&p, &q, sizeof p);
}

/* What `titan config` prints gives the same run, quietly, prints as itself, and leaves nothing of the model open. */
static void case_resolved(tt_test *t)
{
	const char *const texts[] = {
		"",
		"[model]\nflavor=\"8B\"\n",
		"[model]\nflavor=\"bytes-5m\"\nhidden_size=128\nnum_attention_heads=4\n",
		"[model]\nflavor=\"debugmodel\"\nrope_scaling=\"none\"\ntie_word_embeddings=true\nsliding_window=7\n",
		"[model]\nflavor=\"debugmodel\"\nrope_scaling=\"yarn\"\nrope_factor=3.3\n",
		tt_arena_printf(t->arena, "[model]\nhf_config=\"%s\"\n", hf_file(t, "plain.json", ",\"tie_word_embeddings\":true")),
		tt_arena_printf(t->arena, "[model]\nhf_config=\"%s\"\n", hf_file(t, "yarn.json", YARN)),
		tt_arena_printf(t->arena, "[model]\nhf_config=\"%s\"\nrope_beta_fast=20.0\nrope_scaling=\"yarn\"\n", hf_file(t, "yarn2.json", YARN)),
		tt_arena_printf(t->arena, "[model]\nhf_config=\"%s\"\n", hf_file(t, "llama3.json", LLAMA3)),
		tt_arena_printf(t->arena, "[model]\nhf_config=\"%s\"\n", hf_file(t, "dynamic.json", ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2.7}")),
	};
	for (int i = 0; i < TT_COUNT(texts); i++) {
		const char *text = tt_arena_printf(t->arena, "%s" DATA, texts[i]);
		tt_config *cfg, *fed, resolved, again;
		tt_run_options o, p;
		if (!TT_CHECK_OK(t, tt_config_load_text(t->arena, "c.toml", text, strlen(text), 0, NULL, &cfg)) || !TT_CHECK_OK(t, tt_config_resolve(t->arena, cfg, &resolved)) ||
		    !TT_CHECK_OK(t, tt_run_options_from_config(t->arena, cfg, &o)))
			continue;
		tt_buf b = { 0 }, twice = { 0 };
		tt_config_print(&resolved, &b);
		if (TT_CHECK_OK(t, tt_config_load_text(t->arena, "printed", b.s, b.n, 0, NULL, &fed)) && TT_CHECK_OK(t, tt_config_resolve(t->arena, fed, &again)) &&
		    TT_CHECK_OK(t, tt_run_options_from_config(t->arena, fed, &p))) {
			TT_CHECK_MSG(t, same_model(t->arena, &o.model, &p.model), "another model comes of\n%s%s", text, b.s);
			TT_CHECK_STR(t, p.config, o.config);
			TT_CHECK_MSG(t, !fed->warnings.n && !again.warnings.n, "%s", fed->warnings.n ? fed->warnings.items[0] : again.warnings.items[0]);
			tt_config_print(&again, &twice);
			TT_CHECK_MSG(t, !strstr(twice.s, " # "), "fed back, something is still open:\n%s", twice.s);
			TT_CHECK_STR(t, twice.s, o.config);
		}
		TT_CHECK(t, tt_config_hash(&resolved) == tt_config_hash(&again));
		tt_buf_fini(&b);
		tt_buf_fini(&twice);
	}
}

static void prints(tt_test *t, const char *text, const char *line)
{
	tt_config *cfg, resolved;
	tt_buf b = { 0 };
	if (!TT_CHECK_OK(t, tt_config_load_text(t->arena, "c.toml", text, strlen(text), 0, NULL, &cfg)) || !TT_CHECK_OK(t, tt_config_resolve(t->arena, cfg, &resolved)))
		return;
	tt_config_print(&resolved, &b);
	TT_CHECK_MSG(t, strstr(b.s, line), "no line \"%s\" in\n%s", line, b.s);
	tt_buf_fini(&b);
}

static void case_resolved_lines(tt_test *t)
{
	const char *hf = tt_arena_printf(t->arena, "[model]\nhf_config=\"%s\"\n", hf_file(t, "yarn.json", YARN));
	prints(t, "", "\nvocab_size = 2048 # from flavor debugmodel\n");
	prints(t, "", "\ntie_word_embeddings = false # from flavor debugmodel\n");
	prints(t, "", "\nrope_scaling = \"llama3\" # from flavor debugmodel\n");
	prints(t, "", "\nrope_beta_fast = 0.0\n"); /* llama3 reads none */
	prints(t, "[model]\nvocab_size=256\n", "\nvocab_size = 256\n");
	prints(t, "[model]\nhidden_size=128\n", "\nhead_dim = 8 # follows from other keys\n");
	prints(t, "[model]\nhidden_size=128\n", "\nhidden_size = 128\n");
	prints(t, hf, "\nrope_scaling = \"yarn\" # from model.hf_config\n");
	prints(t, hf, "\nrope_factor = 8.0 # follows from other keys\n"); /* 4096 / 512 */
	prints(t, hf, "\nrope_original_max_position_embeddings = 512 # from model.hf_config\n");
	prints(t, hf, "\nsliding_window = 99 # from model.hf_config\n");
	prints(t, hf, "\nrope_beta_slow = 1.0 # follows from other keys\n");
}

/* A kind of rotary scaling that the config chooses leaves nothing behind of the one that was there. */
static void exports(tt_test *t, const char *text, const char *kind, const char *const *absent)
{
	tt_run_options o;
	tt_buf b = { 0 };
	if (!TT_CHECK_OK(t, options_of(t, text, &o)) || !TT_CHECK_OK(t, tt_ckpt_config_json(&o.model, "float32", NULL, &b)))
		return;
	TT_CHECK_MSG(t, strstr(b.s, tt_arena_printf(t->arena, "\"rope_type\": \"%s\"", kind)), "%s", b.s);
	for (; *absent; absent++)
		TT_CHECK_MSG(t, !strstr(b.s, *absent), "%s has a %s:\n%s", kind, *absent, b.s);
	tt_buf_fini(&b);
}

static void case_rope_exports(tt_test *t)
{
	static const char *const no_llama3[] = { "low_freq_factor", "high_freq_factor", NULL };
	static const char *const no_yarn[] = { "beta_", "attention_factor", "mscale", "truncate", NULL };
	static const char *const neither[] = { "freq_factor", "beta_", "attention_factor", "mscale", "truncate", "original_max_position_embeddings", NULL };
	exports(t, "[model]\nflavor=\"debugmodel\"\nrope_scaling=\"yarn\"\nrope_low_freq_factor=2.0\n" DATA, "yarn", no_llama3);
	exports(t, "[model]\nflavor=\"debugmodel\"\nrope_beta_fast=4.0\n" DATA, "llama3", no_yarn);
	exports(t, "[model]\nflavor=\"debugmodel\"\nrope_scaling=\"linear\"\n" DATA, "linear", neither);
	exports(t, tt_arena_printf(t->arena, "[model]\nhf_config=\"%s\"\nrope_scaling=\"llama3\"\nrope_factor=2.0\nrope_low_freq_factor=1.0\nrope_high_freq_factor=4.0\n" DATA,
				   hf_file(t, "yarn.json", YARN)), "llama3", no_yarn);
}

/* ---- dumps -------------------------------------------------------------------------------------------------------------------------------------------- */

/* Everything a session prints about itself. `salt`: arenas and programs of other sizes come before, so that addresses differ. */
static char *dumped(tt_test *t, int salt, bool other)
{
	tt_run_options o = tiny_standard(t, ROWS);
	o.compute = TT_BF16;
	o.exec.isa = tiny_isa(t);
	o.exec.kernels_ref = false;
	if (other)
		o.model.intermediate_size += 16;
	for (int i = 0; i < salt; i++)
		tt_arena_alloc(t->arena, 12345);
	tt_trainer *tr = NULL;
	tt_buf b = { 0 };
	if (TT_CHECK_OK(t, tt_trainer_create(&o, &tr))) {
		tt_graph_print(tt_trainer_model(tr), &b);
		tt_graph_print(tt_trainer_graph(tr), &b);
		tt_buf_printf(&b, "hash %016llx\n", (unsigned long long)tt_graph_hash(tt_trainer_graph(tr)));
		for (int s = 0; s < TT_NSEGS; s++)
			tt_exec_print_program(tt_trainer_exec(tr), (tt_segment)s, &b);
		tt_exec_print_memory(tt_trainer_exec(tr), &b);
	}
	char *text = tt_arena_strdup(t->arena, b.s ? b.s : "");
	tt_buf_fini(&b);
	tt_trainer_destroy(tr);
	return text;
}

/* This test program once more, as another process: what it prints goes to a file, since who runs the tests reads one summary, at the end. */
static int run_again(tt_test *t, char *const *argv, char *const *env, const char *said)
{
	posix_spawn_file_actions_t to;
	pid_t pid;
	int status = -1;
	posix_spawn_file_actions_init(&to);
	posix_spawn_file_actions_addopen(&to, STDOUT_FILENO, said, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	TT_CHECK(t, posix_spawn(&pid, "/proc/self/exe", &to, NULL, argv, env) == 0 && waitpid(pid, &status, 0) == pid);
	posix_spawn_file_actions_destroy(&to);
	return status;
}

static void case_dumps(tt_test *t)
{
	const char *to = getenv("TITAN_TEST_DUMP");
	char *text = dumped(t, to ? 57 : 0, false);
	if (to) { /* this is the other process */
		TT_CHECK_OK(t, tt_file_write(to, text, strlen(text)));
		return;
	}
	TT_CHECK(t, strlen(text) > 10000 && strstr(text, "model.layers.1.mlp.down_proj.weight") && strstr(text, "program B"));
	TT_CHECK(t, !strcmp(text, dumped(t, 31, false)));
	TT_CHECK(t, strcmp(text, dumped(t, 0, true)) != 0);
	/* Another process: other addresses. */
	const char *path = tt_test_path(t, "dump"), *set = tt_arena_printf(t->arena, "TITAN_TEST_DUMP=%s", path);
	char *isa = tt_arena_printf(t->arena, "--isa=%s", t->isa[0] ? t->isa : "ref"), *env[] = { (char *)set, NULL };
	char *argv[] = { "titan-test", "connect.dumps", t->isa[0] ? isa : NULL, NULL }, *got = NULL;
	const char *said = tt_test_path(t, "said");
	size_t n;
	TT_CHECK_INT(t, run_again(t, argv, env, said), 0);
	if (TT_CHECK_OK(t, tt_file_read(t->arena, path, &got, &n)))
		TT_CHECK(t, !strcmp(text, got));
}

/* The runner's contract: the summary stands once in what it prints, and last; also where a case runs the runner. */
static void case_summary_last(tt_test *t)
{
	const char *said = tt_test_path(t, "said");
	char *argv[] = { "titan-test", "connect.dumps", NULL }, *env[] = { NULL }, *text;
	size_t n;
	TT_CHECK_INT(t, run_again(t, argv, env, said), 0);
	if (!TT_CHECK_OK(t, tt_file_read(t->arena, said, &text, &n)))
		return;
	static const char summary[] = "1 passed, 0 failed\n";
	const char *at = strstr(text, summary);
	TT_CHECK_MSG(t, at && at + strlen(summary) == text + n && (at == text || at[-1] == '\n'), "not once, or not last: %s", text);
}

const tt_case tt_suite_connect[] = {
	{ "configs", case_configs, TT_TIER_QUICK },
	{ "values", case_config_values, TT_TIER_QUICK },
	{ "errors", case_config_errors, TT_TIER_QUICK },
	{ "resolved", case_resolved, TT_TIER_QUICK },
	{ "resolved_lines", case_resolved_lines, TT_TIER_QUICK },
	{ "rope_exports", case_rope_exports, TT_TIER_QUICK },
	{ "dumps", case_dumps, TT_TIER_QUICK },
	{ "summary_last", case_summary_last, TT_TIER_QUICK },
	{ 0 },
};
