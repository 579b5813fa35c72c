/* ckpt.c: `titan ckpt inspect|verify|export`. */
#include <stdio.h>

#include "ckpt/ckpt.h"
#include "cli/cli.h"
#include "train/train.h"

static const char usage[] = "titan ckpt inspect DIR [--hash] | verify DIR | export DIR OUT [--dtype=float32|bfloat16|float16|imported]";

/* What a name of the user's stands for. */
typedef struct place {
	const char *dir;  /* a checkpoint, the folder of a run's checkpoints, or any other folder or file of weights */
	bool checkpoint;
	int64_t *steps, n; /* of a folder of checkpoints: those that are complete */
} place;

static bool has(tt_arena *a, const char *dir, const char *file) { return tt_fs_exists(&tt_fs_posix, tt_arena_printf(a, "%s/%s", dir, file)); }

static bool is_folder(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* A run's own folder is as good a name as that of its checkpoints. */
static tt_status find_inside(tt_arena *a, const char *dir, place *p)
{
	char **names;
	int64_t n;
	TT_TRY(tt_fs_names(a, &tt_fs_posix, dir, &names, &n));
	for (int64_t i = 0; i < n; i++) {
		place q = { .dir = tt_arena_printf(a, "%s/%s", dir, names[i]) };
		if (!is_folder(q.dir))
			continue;
		TT_TRY(tt_ckpt_list(a, NULL, q.dir, &q.steps, &q.n));
		if (q.n && p->n)
			TT_FAIL(TT_ERR_USAGE, "%s: checkpoints are in %s and in %s: name one of them", dir, p->dir, q.dir);
		if (q.n)
			*p = q;
	}
	if (p->n)
		printf("%s: a run's folder; its checkpoints are in %s\n", dir, p->dir);
	return TT_OK;
}

static tt_status find(tt_arena *a, const char *dir, place *out)
{
	place p = { .dir = dir, .checkpoint = has(a, dir, "COMPLETE") };
	if (!p.checkpoint && is_folder(dir))
		TT_TRY(tt_ckpt_list(a, NULL, dir, &p.steps, &p.n));
	bool weights = has(a, dir, "model.safetensors") || has(a, dir, "model.safetensors.index.json");
	if (!p.checkpoint && !p.n && !weights && is_folder(dir)) {
		TT_TRY(find_inside(a, dir, &p));
		if (!p.n)
			TT_FAIL(TT_ERR_USAGE, "%s: no complete checkpoint and no model.safetensors is in it (a checkpoint's folder, a run's, or that of a Hugging Face model "
				"is needed)", dir);
	}
	*out = p;
	return TT_OK;
}

/* A checkpoint that was there, could not be read, and is gone: a run has made room for newer ones. Then that is the error, in place of what reading it said. */
static bool was_removed(const char *dir)
{
	if (tt_fs_exists(&tt_fs_posix, dir))
		return false;
	tt_error_set(TT_ERR_IO, __FILE__, __LINE__, "%s: was removed while it was read, and is not damaged for all that is known: a run that saves keeps its newest checkpoints "
		     "(checkpoint.keep_latest_k; a copy of the folder stays)", dir);
	return true;
}

/* The latest may be replaced between its name and its files: then there is another one. */
static tt_status open_latest(tt_arena *a, const char *folder, tt_ckpt **out)
{
	tt_status s = tt_ckpt_open(a, NULL, folder, -1, out);
	if (s != TT_OK)
		s = tt_ckpt_open(a, NULL, folder, -1, out);
	if (s == TT_OK && !*out)
		TT_FAIL(TT_ERR_IO, "%s: its checkpoints were removed while they were read", folder);
	return s;
}

/* A checkpoint, the latest of a run's, or any Hugging Face folder or safetensors file. */
typedef struct opened {
	tt_ckpt *ckpt; /* NULL: none of ours */
	tt_st *plain;
	const tt_st *st;
} opened;

static tt_status open_any(tt_arena *a, const char *dir, opened *o)
{
	place p;
	TT_TRY(find(a, dir, &p));
	if (p.checkpoint)
		TT_TRY(tt_ckpt_open_dir(a, NULL, p.dir, &o->ckpt));
	else if (p.n)
		TT_TRY(open_latest(a, p.dir, &o->ckpt));
	if (o->ckpt) {
		o->st = tt_ckpt_headers(o->ckpt);
		return TT_OK;
	}
	TT_TRY(tt_st_open(a, p.dir, &o->plain));
	o->st = o->plain;
	return TT_OK;
}

static tt_status print_tensors(tt_arena *a, const opened *o, bool hash)
{
	int64_t bytes = 0, count = 0;
	int width = 8;
	for (int64_t i = 0; i < tt_st_count(o->st); i++)
		width = TT_MAX(width, (int)strlen(tt_st_at(o->st, i)->name));
	printf("%-*s  %-5s %-18s %14s%s\n", width, "tensor", "dtype", "shape", "bytes", hash ? "  hash" : "");
	for (int64_t i = 0; i < tt_st_count(o->st); i++) {
		const tt_st_tensor *t = tt_st_at(o->st, i);
		tt_buf shape = { 0 };
		tt_buf_str(&shape, "[");
		for (int d = 0; d < t->ndim; d++)
			tt_buf_printf(&shape, "%s%lld", d ? ", " : "", (long long)t->dim[d]);
		tt_buf_str(&shape, "]");
		const char *text = tt_arena_strdup(a, shape.s);
		tt_buf_fini(&shape);
		printf("%-*s  %-5s %-18s %14lld", width, t->name, tt_st_dtype_name(t->dtype), text, (long long)t->bytes);
		if (hash) {
			uint64_t h;
			TT_TRY(tt_ckpt_hash(NULL, t, &h));
			printf("  %016llx", (unsigned long long)h);
		}
		printf("\n");
		bytes += t->bytes;
		count += t->count;
	}
	printf("%lld tensors, %s elements, %s\n", (long long)tt_st_count(o->st), tt_scale_count(count).s, tt_scale_bytes(bytes).s);
	return TT_OK;
}

static tt_status inspect(tt_arena *a, const char *dir, bool hash)
{
	opened o = { 0 };
	TT_TRY(open_any(a, dir, &o));
	if (o.ckpt) {
		const tt_ckpt_state *s = tt_ckpt_get_state(o.ckpt);
		printf("%s: step %lld, %s, %lld tokens seen, seed %llu\n", tt_ckpt_dir(o.ckpt), (long long)s->step,
		       tt_ckpt_model_only(o.ckpt) ? "model alone" : "model and optimizer", (long long)s->tokens_seen, (unsigned long long)s->seed);
	} else {
		printf("%s: not of a run: no train_state.json\n", tt_st_path(o.plain));
	}
	tt_status s = print_tensors(a, &o, hash);
	tt_st_close(o.plain);
	return s;
}

static tt_status check(tt_arena *a, const char *dir)
{
	tt_ckpt *c;
	int64_t bytes;
	double t0 = tt_now();
	TT_TRY(tt_ckpt_open_dir(a, NULL, dir, &c));
	TT_TRY(tt_ckpt_verify(c, &bytes));
	printf("%s: ok, step %lld, %s checked in %.1f s\n", tt_ckpt_dir(c), (long long)tt_ckpt_get_state(c)->step, tt_scale_bytes(bytes).s,
	       tt_now() - t0);
	return TT_OK;
}

static tt_status verify_one(tt_arena *a, const char *dir)
{
	tt_status s = check(a, dir);
	return s != TT_OK && was_removed(dir) ? TT_ERR_IO : s;
}

/* Weights that are no checkpoint of a run: opening them has checked headers, offsets and the index against the files' sizes. */
static tt_status verify_plain(tt_arena *a, const char *dir, const tt_st *st)
{
	const char *shapes = "no config.json says what shapes it should have";
	if (has(a, dir, "config.json")) {
		tt_llama_config c;
		tt_builder *model;
		tt_model_options o = { .compute = TT_F32, .t_max = 1, .seqs_max = 1, .loss_chunks = 1, .context_length = 1 };
		if (tt_llama_read(a, dir, &c) == TT_OK) {
			TT_TRY(tt_llama_build(a, &c, &o, &model));
			TT_TRY(tt_weights_check(model, &c, st));
			shapes = "names and shapes are those of its config.json";
		} else {
			shapes = tt_arena_printf(a, "names and shapes are not checked: %s", tt_error_text());
		}
	}
	int64_t bytes = 0;
	for (int64_t i = 0; i < tt_st_count(st); i++)
		bytes += tt_st_at(st, i)->bytes;
	printf("%s: headers and sizes are right, %lld tensors, %s; %s. It is not a run's checkpoint and has no checksums: the values cannot be verified\n", dir,
	       (long long)tt_st_count(st), tt_scale_bytes(bytes).s, shapes);
	return TT_OK;
}

/* All of a run's, also after a damaged one: which are whole is what one wants to know then. One that the run removes meanwhile is not damaged, and what took its place
 * is looked at instead. */
static tt_status verify_run(tt_arena *a, const place *p)
{
	tt_ckpt *latest;
	tt_status first = TT_OK;
	const char *text = NULL;
	bool gone = false;
	for (int64_t i = 0; i < p->n; i++) {
		const char *one = tt_arena_printf(a, "%s/step-%08lld", p->dir, (long long)p->steps[i]);
		tt_status s = check(a, one);
		if (s == TT_OK)
			continue;
		if (was_removed(one)) {
			printf("%s: removed while it was read: the run keeps its newest (checkpoint.keep_latest_k)\n", one);
			gone = true;
			continue;
		}
		printf("%s: DAMAGED: %s\n", one, tt_error_text());
		if (first == TT_OK)
			text = tt_arena_strdup(a, tt_error_text());
		first = first == TT_OK ? s : first;
	}
	if (first != TT_OK)
		TT_FAIL(first, "%s", text);
	TT_TRY(open_latest(a, p->dir, &latest));
	if (gone && tt_ckpt_get_state(latest)->step > p->steps[p->n - 1])
		TT_TRY(verify_one(a, tt_ckpt_dir(latest)));
	printf("latest: step %lld\n", (long long)tt_ckpt_get_state(latest)->step);
	return TT_OK;
}

static tt_status verify(tt_arena *a, const char *dir)
{
	place p;
	/* A checkpoint that has lost its marker is told as one. */
	if (has(a, dir, "train_state.json"))
		return verify_one(a, dir);
	TT_TRY(find(a, dir, &p));
	if (p.checkpoint)
		return verify_one(a, p.dir);
	if (p.n)
		return verify_run(a, &p);
	tt_st *st;
	TT_TRY(tt_st_open(a, p.dir, &st));
	tt_status s = verify_plain(a, p.dir, st);
	tt_st_close(st);
	TT_TRY(s);
	return TT_OK;
}

static tt_status export_dtype(const char *word, tt_st_dtype *out)
{
	static const struct { const char *word; tt_st_dtype dtype; } words[] = {
		{ "float32", TT_ST_F32 }, { "bfloat16", TT_ST_BF16 }, { "float16", TT_ST_F16 }, { "imported", TT_ST_NDTYPES },
	};
	for (int i = 0; i < TT_COUNT(words); i++)
		if (!strcmp(words[i].word, word)) {
			*out = words[i].dtype;
			return TT_OK;
		}
	TT_FAIL(TT_ERR_USAGE, "titan ckpt export: --dtype=%s: needs float32, bfloat16, float16 or imported", word);
}

static tt_status export_to(tt_arena *a, const char *dir, const char *out, const char *word)
{
	tt_st_dtype dtype;
	place p;
	tt_ckpt *latest;
	TT_TRY(export_dtype(word, &dtype));
	TT_TRY(find(a, dir, &p));
	double t0 = tt_now();
	tt_status s = TT_OK;
	for (int i = 0; i < 2; i++) { /* a run's latest may be another by now: once */
		if (p.n) {
			TT_TRY(open_latest(a, p.dir, &latest));
			dir = tt_ckpt_dir(latest);
		}
		s = tt_ckpt_export(NULL, dir, out, dtype, 0);
		if (s == TT_OK || !was_removed(dir))
			break;
		s = TT_ERR_IO;
		if (!p.n)
			break;
		if (!i)
			printf("%s: removed while it was read (checkpoint.keep_latest_k): the run's latest now is taken\n", dir);
	}
	TT_TRY(s);
	printf("%s: written from %s as %s in %.1f s\n", out, dir, word, tt_now() - t0);
	return TT_OK;
}

static tt_status run(tt_arena *a, int argc, const char *const *argv)
{
	const char *words[3] = { NULL, NULL, NULL }, *dtype = "imported";
	bool hash = false, typed = false;
	int n = 0;
	for (int i = 0; i < argc; i++) {
		if (!strcmp(argv[i], "--hash"))
			hash = true;
		else if (!strncmp(argv[i], "--dtype=", 8))
			dtype = argv[i] + 8, typed = true;
		else if (argv[i][0] == '-' || n == 3)
			TT_FAIL(TT_ERR_USAGE, "titan ckpt: %s is not expected (%s)", argv[i], usage);
		else
			words[n++] = argv[i];
	}
	if (n == 2 && !strcmp(words[0], "inspect") && !typed)
		return inspect(a, words[1], hash);
	if (n == 2 && !strcmp(words[0], "verify") && !typed && !hash)
		return verify(a, words[1]);
	if (n == 3 && !strcmp(words[0], "export") && !hash)
		return export_to(a, words[1], words[2], dtype);
	static const char *const verbs[] = { "inspect", "verify", "export" };
	bool known = false;
	for (int i = 0; i < TT_COUNT(verbs) && n; i++)
		known |= !strcmp(words[0], verbs[i]);
	const char *near = n && !known ? tt_nearest(words[0], verbs, TT_COUNT(verbs)) : NULL;
	if (n && !known)
		TT_FAIL(TT_ERR_USAGE, "titan ckpt has no verb %s%s%s%s: there are inspect, verify and export (%s)", words[0], near ? ": did you mean " : "", near ? near : "", near ? "?" : "", usage);
	TT_FAIL(TT_ERR_USAGE, "%s", usage);
}

tt_status tt_cmd_ckpt(int argc, const char *const *argv)
{
	tt_arena *a = tt_arena_create("cli");
	tt_status s = run(a, argc, argv);
	tt_arena_destroy(a);
	TT_TRY(s);
	return TT_OK;
}
