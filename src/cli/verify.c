/* verify.c: `titan verify`: meshes against one rank. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "train/verify.h"

static const char *const short_names[TT_RUN_AXES] = { "dp_replicate", "dp_shard", "cp", "tp" };

static void mesh_name(const tt_verify_mesh *m, tt_buf *b)
{
	for (int i = 0; i < TT_RUN_AXES; i++)
		if (m->size[i] > 1)
			tt_buf_printf(b, "%s%s %d", b->n ? ", " : "", short_names[i], m->size[i]);
	if (m->sp)
		tt_buf_str(b, ", sp");
}

static void seen(void *ctx, const tt_verify_mesh *m)
{
	(void)ctx;
	tt_buf b = { 0 };
	mesh_name(m, &b);
	if (m->illegal)
		printf("  -       %-44s %s\n", b.s, m->illegal);
	else
		printf("  %-7s %-44s microbatches of %lld row%s%s, %.2f s%s%s\n", m->finding ? "DIFFERS" : "equal", b.s, (long long)m->rows, m->rows == 1 ? "" : "s",
		       m->recompute ? ", recomputed" : "", m->seconds,
		       m->finding ? "\n          " : "", m->finding ? m->finding : "");
	fflush(stdout);
	tt_buf_fini(&b);
}

static tt_status number(const char *flag, const char *text, int most, int *out)
{
	char *end;
	long v = strtol(text, &end, 10);
	if (end == text || *end || v < 1 || v > most)
		TT_FAIL(TT_ERR_USAGE, "%s=%s: a number from 1 to %d is needed", flag, text, most);
	*out = (int)v;
	return TT_OK;
}

/* "dp_replicate=2,tp=2" */
static tt_status parse_mesh(tt_arena *a, const char *text, tt_verify_options *v)
{
	int n = 1;
	for (int i = 0; i < TT_RUN_AXES; i++)
		v->size[i] = 1;
	for (const char *at = text; *at;) {
		size_t len = strcspn(at, ",");
		const char *part = tt_arena_strndup(a, at, len), *eq = strchr(part, '=');
		int ax = 0;
		while (ax < TT_RUN_AXES && !(eq && strlen(short_names[ax]) == (size_t)(eq - part) && !strncmp(short_names[ax], part, (size_t)(eq - part))))
			ax++;
		if (ax == TT_RUN_AXES)
			TT_FAIL(TT_ERR_USAGE, "--mesh=%s: \"%s\" is no AXIS=DEGREE; axes are dp_replicate, dp_shard, cp, tp", text, part);
		TT_TRY(number("--mesh", eq + 1, 64, &v->size[ax]));
		n *= v->size[ax];
		at += len + (at[len] == ',');
	}
	if (n < 2)
		TT_FAIL(TT_ERR_USAGE, "--mesh=%s: one rank, there is nothing to compare it with", text);
	if (n > 64)
		TT_FAIL(TT_ERR_USAGE, "--mesh=%s: %d ranks, at most 64", text, n);
	return TT_OK;
}

static tt_status run(tt_arena *a, int argc, const char *const *argv)
{
	tt_verify_options v = { .ranks = 8, .steps = 3 };
	const char **rest = TT_NEWN(a, const char *, argc + 1);
	int n = 0;
	for (int i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "--ranks=", 8))
			TT_TRY(number("--ranks", argv[i] + 8, 64, &v.ranks));
		else if (!strncmp(argv[i], "--steps=", 8))
			TT_TRY(number("--steps", argv[i] + 8, 1000, &v.steps));
		else if (!strncmp(argv[i], "--mesh=", 7))
			TT_TRY(parse_mesh(a, argv[i] + 7, &v));
		else if (!strcmp(argv[i], "--full"))
			v.full = true;
		else
			rest[n++] = argv[i];
	}
	tt_config *cfg;
	tt_run_options o;
	TT_TRY(tt_cli_config(a, n, rest, NULL, &cfg));
	TT_TRY(tt_run_options_from_config(a, cfg, &o));
	o.mesh.sp = cfg->parallelism.enable_sequence_parallel;
	tt_verify_result r;
	double t0 = tt_now();
	printf("one rank against %s, %d steps, exact numerics, ranks as threads%s\n", v.size[0] ? "a mesh" : tt_arena_printf(a, "every mesh of 2 to %d ranks", v.ranks), v.steps,
	       v.full ? "" : "; the model at its smallest");
	TT_TRY(tt_verify(a, &o, &v, seen, NULL, &r));
	printf("model: %lld layers, %lld heads, %lld kv heads, width %lld, hidden %lld, vocabulary %lld\n", (long long)r.model.num_hidden_layers,
	       (long long)r.model.num_attention_heads, (long long)r.model.num_key_value_heads, (long long)r.model.hidden_size,
	       (long long)r.model.intermediate_size, (long long)r.model.vocab_size);
	printf("%lld meshes proven: after each step the loss, the gradient norm and all %lld numbers of %lld tensors have one rank's bits; %lld differ; %lld are not legal; %.1f s\n",
	       (long long)r.proven, (long long)r.numbers, (long long)r.states, (long long)r.failed, (long long)r.illegal, tt_now() - t0);
	if (v.size[0] && r.illegal)
		TT_FAIL(TT_ERR_USAGE, "--mesh: %s", r.meshes[0].illegal);
	if (!r.proven && !r.failed)
		TT_FAIL(TT_ERR_USAGE, "nothing was compared: no mesh of 2 to %d ranks is legal (--ranks)", v.ranks);
	if (r.failed)
		TT_FAIL(TT_ERR_NUMERIC, "%lld meshes are not one rank", (long long)r.failed);
	return TT_OK;
}

tt_status tt_cmd_verify(int argc, const char *const *argv)
{
	tt_arena *a = tt_arena_create("verify");
	tt_status s = run(a, argc, argv);
	tt_arena_destroy(a);
	return s;
}
