/* ckpt: what goes in comes out, and what is wrong is found and named. */
#define _GNU_SOURCE
#include "ckpt_fake.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

static void ignore(void *ctx, tt_log_level level, const char *line) { (void)ctx, (void)level, (void)line; }

static tt_status load(fake *f, tt_ckpt *c, unsigned exclude)
{
	fake_set(f, -1);
	return tt_ckpt_load(c, f->t, f->n, exclude, fake_write, f);
}

static tt_ckpt *opened(tt_test *t, const char *folder, int64_t step)
{
	tt_ckpt *c = NULL;
	TT_CHECK_OK(t, tt_ckpt_open(t->arena, NULL, folder, step, &c));
	return c;
}

/* ---- there and back --------------------------------------------------------------------------------------------------------- */

static void round_trip(tt_test *t)
{
	fake *f = fake_new(t, 30000);
	tt_ckpt_options o = fake_options(f, tt_test_path(t, "a/b/checkpoint"), NULL);
	tt_ckpt *c = (tt_ckpt *)1;
	TT_CHECK_OK(t, tt_ckpt_open(t->arena, NULL, o.folder, -1, &c));
	TT_CHECK(t, c == NULL); /* a fresh run */
	TT_CHECK_OK(t, fake_save(f, &o, 17, TT_CKPT_FULL, TT_ST_BF16));
	if (!(c = opened(t, o.folder, -1)))
		return;
	TT_CHECK_STR(t, tt_ckpt_dir(c), tt_test_path(t, "a/b/checkpoint/step-00000017"));
	TT_CHECK(t, !tt_ckpt_model_only(c));
	const tt_ckpt_state *s = tt_ckpt_get_state(c);
	tt_ckpt_state w = fake_state(17);
	TT_CHECK_INT(t, s->step, 17);
	TT_CHECK_INT(t, s->tokens_seen, w.tokens_seen);
	TT_CHECK_INT(t, s->skips, w.skips);
	TT_CHECK(t, s->seed == w.seed);
	TT_CHECK(t, memcmp(&s->data, &w.data, sizeof w.data) == 0);
	TT_CHECK(t, s->schedule.warmup == 2 && s->schedule.total == 1000 && s->schedule.decay == 500 && s->schedule.min_factor == 0.1);
	TT_CHECK_STR(t, s->schedule.type, "cosine");
	TT_CHECK_STR(t, s->config, w.config);
	TT_CHECK(t, !s->files && !s->unvalidated);
	TT_CHECK_INT(t, tt_ckpt_imported(c, "lm_head.weight", TT_ST_F16), TT_ST_BF16);
	TT_CHECK_INT(t, tt_ckpt_imported(c, "other", TT_ST_F16), TT_ST_F16);
	TT_CHECK_OK(t, load(f, c, 0));
	TT_CHECK_INT(t, fake_differs(f, 17, true), -1); /* full checkpoints are never rounded */
	int64_t bytes = 0;
	TT_CHECK_OK(t, tt_ckpt_verify(c, &bytes));
	TT_CHECK(t, bytes > 2 * 30000 * 64 * 4);

	/* What not every run has. */
	tt_ckpt_writer *writer;
	w.step = 18, w.files = "0123456789abcdef", w.files_every = 3, w.unvalidated = true;
	bool done;
	tt_ckpt_result res;
	if (TT_CHECK_OK(t, tt_ckpt_writer_create(&o, &writer))) {
		TT_CHECK_OK(t, tt_ckpt_save_begin(writer, &w, TT_CKPT_FULL, TT_ST_F32));
		TT_CHECK_OK(t, tt_ckpt_wait(writer, &done, &res));
		tt_ckpt_writer_destroy(writer);
		tt_ckpt *d = opened(t, o.folder, 18);
		if (d) {
			TT_CHECK_STR(t, tt_ckpt_get_state(d)->files, w.files);
			TT_CHECK(t, tt_ckpt_get_state(d)->files_every == 3 && tt_ckpt_get_state(d)->unvalidated);
		}
	}

	/* The folder is a model by itself. */
	tt_st *st;
	tt_llama_config m;
	if (TT_CHECK_OK(t, tt_st_open(t->arena, tt_ckpt_dir(c), &st))) {
		TT_CHECK_INT(t, tt_st_count(st), 3);
		float x;
		TT_CHECK_OK(t, tt_st_read_f32(tt_st_find(st, "lm_head.weight"), 1000, 1, &x));
		TT_CHECK(t, x == fake_value(17, 2, 1000));
		TT_CHECK_STR(t, tt_st_metadata(st, "format"), "pt");
		/* By name, as the safetensors library writes them. */
		for (int64_t i = 1; i < 3; i++)
			TT_CHECK(t, tt_st_at(st, i - 1)->at < tt_st_at(st, i)->at);
		tt_st_close(st);
	}
	TT_CHECK_OK(t, tt_llama_read(t->arena, tt_ckpt_dir(c), &m));
	TT_CHECK_STR(t, m.dtype, "float32");
	TT_CHECK_INT(t, m.vocab_size, 30000);

	/* Parts. */
	TT_CHECK_OK(t, load(f, c, TT_CKPT_OPTIMIZER));
	TT_CHECK_INT(t, fake_differs(f, 17, false), -1);
	TT_CHECK(t, f->p[3][5] == -7);
	TT_CHECK_OK(t, load(f, c, TT_CKPT_MODEL));
	TT_CHECK(t, f->p[1][5] == -7);
	TT_CHECK(t, f->p[3][5] == fake_value(17, 3, 5));
}

static void model_only(tt_test *t)
{
	fake *f = fake_new(t, 100);
	tt_ckpt_options o = fake_options(f, tt_test_path(t, "run"), NULL);
	static const tt_st_dtype dtypes[] = { TT_ST_BF16, TT_ST_F16, TT_ST_F32 };
	for (int d = 0; d < 3; d++) {
		TT_CHECK_OK(t, fake_save(f, &o, 40 + d, TT_CKPT_MODEL_ONLY, dtypes[d]));
		tt_ckpt *c = opened(t, o.folder, -1);
		if (!c)
			return;
		TT_CHECK(t, tt_ckpt_model_only(c) && !tt_fs_exists(&tt_fs_posix, tt_arena_printf(t->arena, "%s/optimizer.safetensors", tt_ckpt_dir(c))));
		TT_CHECK_FAILS(t, load(f, c, 0), TT_ERR_FORMAT, "holds the model alone, no optimizer state (checkpoint.exclude_from_loading");
		TT_CHECK_OK(t, load(f, c, TT_CKPT_OPTIMIZER));
		float x = fake_value(40 + d, 1, 77), w = d == 0 ? tt_bf16_to_f32(tt_f32_to_bf16(x)) : d == 1 ? tt_f16_to_f32(tt_f32_to_f16(x)) : x;
		TT_CHECK_MSG(t, f->p[1][77] == w, "%g is %g", (double)x, (double)f->p[1][77]);
		tt_llama_config m;
		TT_CHECK_OK(t, tt_llama_read(t->arena, tt_ckpt_dir(c), &m));
		TT_CHECK_STR(t, m.dtype, d == 0 ? "bfloat16" : d == 1 ? "float16" : "float32");
	}
}

static void shards(tt_test *t)
{
	fake *f = fake_new(t, 100);
	tt_ckpt_options o = fake_options(f, tt_test_path(t, "run"), NULL);
	o.shard_bytes = 20000; /* 25,600, 8,448 and 28 bytes: the first has a shard to itself */
	TT_CHECK_OK(t, fake_save(f, &o, 3, TT_CKPT_FULL, TT_ST_F32));
	tt_ckpt *c = opened(t, o.folder, -1);
	if (!c)
		return;
	const char *dir = tt_ckpt_dir(c);
	TT_CHECK(t, !tt_fs_exists(&tt_fs_posix, tt_arena_printf(t->arena, "%s/model.safetensors", dir)));
	TT_CHECK(t, tt_fs_exists(&tt_fs_posix, tt_arena_printf(t->arena, "%s/model-00003-of-00003.safetensors", dir)));
	TT_CHECK_OK(t, load(f, c, 0));
	TT_CHECK_INT(t, fake_differs(f, 3, true), -1);
	tt_st *st;
	if (TT_CHECK_OK(t, tt_st_open(t->arena, dir, &st)))
		TT_CHECK_INT(t, tt_st_count(st), 3);
	tt_st_close(st);
	TT_CHECK(t, unlink(tt_arena_printf(t->arena, "%s/model-00002-of-00003.safetensors", dir)) == 0);
	TT_CHECK_FAILS(t, tt_ckpt_open(t->arena, NULL, o.folder, -1, &c), TT_ERR_IO, "model-00002-of-00003.safetensors: is missing");
}

static void other_program(tt_test *t)
{
	fake *f = fake_new(t, 100);
	tt_ckpt_options o = fake_options(f, tt_test_path(t, "run"), NULL);
	TT_CHECK_OK(t, fake_save(f, &o, 3, TT_CKPT_FULL, TT_ST_F32));
	tt_ckpt *c = opened(t, o.folder, -1);
	if (!c)
		return;
	f->t[1].dim[0] = 99;
	TT_CHECK_FAILS(t, load(f, c, 0), TT_ERR_FORMAT, "model.embed_tokens.weight has shape [100, 64], the model needs [99, 64]");
	f->t[1].dim[0] = 100;
	f->t[2].name = "lm_heat.weight";
	TT_CHECK_FAILS(t, load(f, c, 0), TT_ERR_FORMAT, "no tensor lm_heat.weight among 6; the nearest is lm_head.weight");
	f->t[2].name = "lm_head.weight";
	f->n = 5;
	TT_CHECK_FAILS(t, load(f, c, 0), TT_ERR_FORMAT, "tensor optim.exp_avg.lm_head.weight has no place in this run's optimizer");
	f->n = 6;
	f->t[5].name = "optim.momentum.lm_head.weight";
	TT_CHECK_FAILS(t, load(f, c, 0), TT_ERR_FORMAT, "has no optim.momentum.lm_head.weight: another optimizer made it");
	f->t[5].name = "optim.exp_avg.lm_head.weight";
	f->n = 5;
	TT_CHECK_OK(t, load(f, c, TT_CKPT_OPTIMIZER));
	f->n = 6;
	f->t[2].dtype = TT_ST_I32;
	TT_CHECK_FAILS(t, load(f, c, 0), TT_ERR_FORMAT, "lm_head.weight is F32, the program has I32");
	unsigned bits;
	const char *const parts[] = { "model", "optimizer", "lr_scheduler", "dataloader", "train_state" }, *const wrong[] = { "optimiser" };
	TT_CHECK_OK(t, tt_ckpt_parts(parts, 5, &bits));
	TT_CHECK_INT(t, bits, 31);
	TT_CHECK_FAILS(t, tt_ckpt_parts(wrong, 1, &bits), TT_ERR_USAGE, "did you mean \"optimizer\"?");
}

/* ---- damage ------------------------------------------------------------------------------------------------------------------ */

static tt_status open_load(tt_test *t, fake *f, const char *folder)
{
	tt_ckpt *c = NULL;
	TT_TRY(tt_ckpt_open(t->arena, NULL, folder, -1, &c));
	TT_TRY(load(f, c, 0));
	int64_t bytes;
	return tt_ckpt_verify(c, &bytes);
}

static void write_at(tt_test *t, const char *path, int64_t at, char byte)
{
	int fd = open(path, O_WRONLY);
	TT_CHECK(t, fd >= 0 && pwrite(fd, &byte, 1, at) == 1 && close(fd) == 0);
}

static void damage(tt_test *t)
{
	fake *f = fake_new(t, 20000);
	tt_ckpt_options o = fake_options(f, tt_test_path(t, "run"), NULL);
	o.shard_bytes = 1000000;
	o.keep_latest_k = 0;
	for (int64_t s = 1; s <= 3; s++)
		TT_CHECK_OK(t, fake_save(f, &o, s, TT_CKPT_FULL, TT_ST_F32));
	const char *dir = tt_test_path(t, "run/step-00000003");
	char **names;
	int64_t n;
	TT_CHECK_OK(t, tt_fs_names(t->arena, &tt_fs_posix, dir, &names, &n));
	uint64_t rng = t->seed;
	int samples = t->tier == TT_TIER_QUICK ? 4 : 40;
	for (int64_t i = 0; i < n; i++) {
		const char *path = tt_arena_printf(t->arena, "%s/%s", dir, names[i]);
		char *bytes;
		size_t size;
		TT_CHECK_OK(t, tt_file_read(t->arena, path, &bytes, &size));
		for (int k = 0; k < samples; k++) {
			rng = tt_mix64(rng + 1);
			int64_t at = k == 0 ? 0 : k == 1 ? (int64_t)size - 1 : (int64_t)(rng % size);
			write_at(t, path, at, (char)(bytes[at] ^ (1 << (rng >> 60) % 8)));
			tt_status s = open_load(t, f, o.folder);
			TT_CHECK_MSG(t, s == TT_ERR_FORMAT, "%s: byte %lld flipped: %s", names[i], (long long)at, s == TT_OK ? "nobody noticed" : tt_error_text());
			TT_CHECK_MSG(t, strstr(tt_error_text(), !strcmp(names[i], "COMPLETE") ? "train_state.json" : names[i]), "%s is not named: %s", names[i],
				     tt_error_text());
			if (!strcmp(names[i], "COMPLETE") || k < 2) /* the offer has read the older ones whole */
				TT_CHECK_MSG(t, s == TT_OK || strstr(tt_error_text(), "(checkpoint.load_step=2)") || strstr(tt_error_text(), "bytes"), "%s",
					     tt_error_text());
			write_at(t, path, at, bytes[at]);
			/* short */
			TT_CHECK(t, truncate(path, at) == 0);
			TT_CHECK_MSG(t, open_load(t, f, o.folder) != TT_OK, "%s: %lld bytes: nobody noticed", names[i], (long long)at);
			TT_CHECK_OK(t, tt_file_write(path, bytes, size));
		}
		/* long */
		TT_CHECK(t, truncate(path, (off_t)size + 1) == 0);
		TT_CHECK_MSG(t, open_load(t, f, o.folder) == TT_ERR_FORMAT, "%s: a byte more: nobody noticed", names[i]);
		TT_CHECK(t, unlink(path) == 0);
		TT_CHECK_MSG(t, open_load(t, f, o.folder) != TT_OK && strstr(tt_error_text(), names[i]), "%s: gone: %s", names[i], tt_error_text());
		TT_CHECK(t, strstr(tt_error_text(), "(checkpoint.load_step=2)"));
		/* foreign: the same file of another step */
		char *other;
		size_t nother;
		TT_CHECK_OK(t, tt_file_read(t->arena, tt_test_path(t, tt_arena_printf(t->arena, "run/step-00000002/%s", names[i])), &other, &nother));
		TT_CHECK_OK(t, tt_file_write(path, other, nother));
		bool same = nother == size && !memcmp(other, bytes, size);
		TT_CHECK_MSG(t, (open_load(t, f, o.folder) == TT_OK) == same, "%s of another step", names[i]);
		TT_CHECK_OK(t, tt_file_write(path, bytes, size));
	}
	TT_CHECK_OK(t, open_load(t, f, o.folder));
	/* The one before is damaged too: the one before that is offered. */
	write_at(t, tt_test_path(t, "run/step-00000003/optimizer.safetensors"), 5000000, 1);
	write_at(t, tt_test_path(t, "run/step-00000002/optimizer.safetensors"), 5000000, 1);
	TT_CHECK_FAILS(t, open_load(t, f, o.folder), TT_ERR_FORMAT, "(checkpoint.load_step=1)");
	tt_ckpt *c;
	TT_CHECK_OK(t, tt_ckpt_open_dir(t->arena, NULL, dir, &c));
	int64_t bytes;
	TT_CHECK_FAILS(t, tt_ckpt_verify(c, &bytes), TT_ERR_FORMAT, "optimizer.safetensors: bytes 4194304 to 5128812 do not match their checksum");
}

static void latest(tt_test *t)
{
	fake *f = fake_new(t, 50);
	tt_ckpt_options o = fake_options(f, tt_test_path(t, "run"), NULL);
	o.keep_latest_k = 0;
	for (int64_t s = 5; s <= 7; s++)
		TT_CHECK_OK(t, fake_save(f, &o, s, TT_CKPT_FULL, TT_ST_F32));
	tt_ckpt *c;
	TT_CHECK_FAILS(t, tt_ckpt_open(t->arena, NULL, o.folder, 4, &c), TT_ERR_USAGE, "has no checkpoint of step 4; there are 5, 6, 7");
	TT_CHECK((t), (c = opened(t, o.folder, 5)) && tt_ckpt_get_state(c)->step == 5);
	const char *path = tt_test_path(t, "run/latest");
	TT_CHECK_OK(t, tt_file_write(path, "step-00000006\n", 14));
	TT_CHECK(t, (c = opened(t, o.folder, -1)) && tt_ckpt_get_state(c)->step == 6);
	tt_log_set_sink(ignore, NULL);
	static const char *const wrong[] = { "", "step-00000006x\n", "step-00000099\n", "step-6\n", "../run/step-00000006", "\0\0\0" };
	for (int i = 0; i < TT_COUNT(wrong); i++) {
		TT_CHECK_OK(t, tt_file_write(path, wrong[i], i == 5 ? 3 : strlen(wrong[i])));
		TT_CHECK_MSG(t, (c = opened(t, o.folder, -1)) && tt_ckpt_get_state(c)->step == 7, "latest says \"%s\"", wrong[i]);
	}
	TT_CHECK(t, unlink(path) == 0);
	TT_CHECK(t, unlink(tt_test_path(t, "run/step-00000007/COMPLETE")) == 0); /* a copy that was not finished */
	TT_CHECK(t, (c = opened(t, o.folder, -1)) && tt_ckpt_get_state(c)->step == 6);
	tt_log_set_sink(NULL, NULL);
}

static void pruning(tt_test *t)
{
	fake *f = fake_new(t, 50);
	tt_ckpt_options o = fake_options(f, tt_test_path(t, "run"), NULL);
	int64_t *steps, n;
	o.keep_latest_k = 1;
	for (int64_t s = 1; s <= 5; s++) {
		TT_CHECK_OK(t, fake_save(f, &o, s, TT_CKPT_FULL, TT_ST_F32));
		TT_CHECK_OK(t, tt_ckpt_list(t->arena, NULL, o.folder, &steps, &n));
		TT_CHECK(t, n == 1 && steps[0] == s);
	}
	o.keep_latest_k = 0;
	for (int64_t s = 6; s <= 9; s++)
		TT_CHECK_OK(t, fake_save(f, &o, s, TT_CKPT_FULL, TT_ST_F32));
	TT_CHECK_OK(t, tt_ckpt_list(t->arena, NULL, o.folder, &steps, &n));
	TT_CHECK_INT(t, n, 5);
	/* Resumed at 6, saved at 7: what lies beyond belongs to the run that was given up. */
	o.keep_latest_k = 2;
	TT_CHECK_OK(t, fake_save(f, &o, 7, TT_CKPT_FULL, TT_ST_F32));
	TT_CHECK_OK(t, tt_ckpt_list(t->arena, NULL, o.folder, &steps, &n));
	TT_CHECK(t, n == 2 && steps[0] == 6 && steps[1] == 7);
	/* Folders that are not ours stay. */
	TT_CHECK_OK(t, tt_mkdirs(tt_test_path(t, "run/step-mine")));
	TT_CHECK_OK(t, tt_mkdirs(tt_test_path(t, "run/.tmp-mine")));
	o.keep_latest_k = 1;
	TT_CHECK_OK(t, fake_save(f, &o, 8, TT_CKPT_FULL, TT_ST_F32));
	TT_CHECK(t, tt_fs_exists(&tt_fs_posix, tt_test_path(t, "run/step-mine")) && tt_fs_exists(&tt_fs_posix, tt_test_path(t, "run/.tmp-mine")));
}

/* ---- while training goes on ---------------------------------------------------------------------------------------------------- */

/* A disk on which writing a block takes a while; where `holds`, none is written until the update has begun to copy blocks aside, however late that comes. */
typedef struct slow_fs {
	tt_fs fs;
	fake *f;
	pthread_t updates;
	_Atomic bool holds;
} slow_fs;

static ssize_t slow_pwrite(const tt_fs *fs, int fd, const void *p, size_t n, int64_t at)
{
	const slow_fs *slow = (const void *)fs;
	do
		usleep(8000);
	while (atomic_load(&slow->holds));
	return tt_fs_posix.pwrite(&tt_fs_posix, fd, p, n, at);
}

static tt_status slow_read(void *ctx, int64_t i, int64_t at, int64_t n, void *dst)
{
	slow_fs *slow = ctx;
	if (pthread_equal(pthread_self(), slow->updates))
		atomic_store(&slow->holds, false);
	return fake_read(slow->f, i, at, n, dst);
}

static void asynchronous(tt_test *t)
{
	fake *f = fake_new(t, 50000); /* 12.8 MB a tensor: 8 blocks in two files */
	slow_fs slow = { .fs = tt_fs_posix, .f = f, .updates = pthread_self() };
	slow.fs.pwrite = slow_pwrite;
	slow.fs.fsync = no_sync;
	static const int64_t staging[] = { 1, TT_CKPT_BLOCK, 3 * TT_CKPT_BLOCK, TT_CKPT_STAGING };
	for (int i = 0; i < TT_COUNT(staging); i++) {
		tt_ckpt_options o = fake_options(f, tt_test_path(t, "run"), &slow.fs);
		o.async = true;
		o.read = slow_read;
		o.ctx = &slow;
		o.staging = staging[i];
		tt_ckpt_writer *w;
		if (!TT_CHECK_OK(t, tt_ckpt_writer_create(&o, &w)))
			return;
		int64_t saved = 0, step = 0;
		tt_ckpt_result r;
		bool done;
		/* Updates every few milliseconds, saves as they come: what is on disk is the state at the begin of its save. */
		for (; saved < 3; step++) {
			fake_set(f, 10 * i + step);
			TT_CHECK_OK(t, tt_ckpt_poll(w, &done, &r));
			if (done) {
				saved++;
				TT_CHECK(t, r.step < 10 * i + step && r.bytes > 0 && r.seconds > 0);
				tt_ckpt *c = opened(t, o.folder, r.step);
				fake *g = fake_new(t, 50000);
				if (c && TT_CHECK_OK(t, load(g, c, 0)))
					TT_CHECK_INT(t, fake_differs(g, r.step, true), -1);
				TT_CHECK_MSG(t, i == 0 ? r.staged == 0 : r.staged > 0 && r.staged <= staging[i], "%lld bytes staged", (long long)r.staged);
			}
			tt_ckpt_state s = fake_state(10 * i + step);
			if (done || step == 0) {
				atomic_store(&slow.holds, i > 0);
				TT_CHECK_OK(t, tt_ckpt_save_begin(w, &s, TT_CKPT_FULL, TT_ST_F32));
			}
			usleep(3000);
			tt_ckpt_before_update(w);
		}
		tt_ckpt_writer_destroy(w);
	}
	/* In one go: begin, and begin again, and destroy without asking. */
	tt_ckpt_options o = fake_options(f, tt_test_path(t, "run2"), &slow.fs);
	o.async = true;
	tt_ckpt_writer *w;
	if (!TT_CHECK_OK(t, tt_ckpt_writer_create(&o, &w)))
		return;
	for (int64_t step = 1; step <= 2; step++) {
		tt_ckpt_state s = fake_state(step);
		tt_ckpt_before_update(w);
		fake_set(f, step);
		TT_CHECK_OK(t, tt_ckpt_save_begin(w, &s, TT_CKPT_FULL, TT_ST_F32));
	}
	tt_ckpt_writer_destroy(w);
	for (int64_t step = 1; step <= 2; step++) {
		tt_ckpt *c = opened(t, o.folder, step);
		if (c && TT_CHECK_OK(t, load(f, c, 0)))
			TT_CHECK_INT(t, fake_differs(f, step, true), -1);
	}
}

/* ---- Hugging Face folders --------------------------------------------------------------------------------------------------------- */

static const char *read_text(tt_test *t, const char *path)
{
	char *s = "";
	size_t n;
	TT_CHECK_OK(t, tt_file_read(t->arena, path, &s, &n));
	return s;
}

static void carried(tt_test *t)
{
	fake *f = fake_new(t, 50);
	const char *text = "{\n \"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\",\n"
			   " \"vocab_size\": 50, \"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,\n"
			   " \"intermediate_size\": 96, \"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-05, \"their_key\": [1, null],\n"
			   " \"bos_token_id\": null, \"eos_token_id\": null, \"dtype\": \"float32\", \"rope_parameters\": {\"rope_theta\": 10000.0, \"rope_type\": \"default\"}}";
	TT_CHECK_OK(t, tt_mkdirs(tt_test_path(t, "source")));
	TT_CHECK_OK(t, tt_file_write(tt_test_path(t, "source/config.json"), text, strlen(text)));
	TT_CHECK_OK(t, tt_file_write(tt_test_path(t, "source/tokenizer.json"), "{\"t\": 1}", 8));
	TT_CHECK_OK(t, tt_file_write(tt_test_path(t, "source/notes.txt"), "mine", 4));
	tt_ckpt_options o = fake_options(f, tt_test_path(t, "run"), NULL);
	for (int i = 0; i < 2; i++) { /* the folder, and the file in it */
		o.source = tt_test_path(t, i ? "source/config.json" : "source");
		TT_CHECK_OK(t, fake_save(f, &o, 1 + i, TT_CKPT_FULL, TT_ST_F32));
		const char *dir = tt_arena_printf(t->arena, "%s/step-0000000%d", o.folder, 1 + i);
		TT_CHECK_STR(t, read_text(t, tt_arena_printf(t->arena, "%s/config.json", dir)), text); /* nothing to change: not a byte */
		TT_CHECK_STR(t, read_text(t, tt_arena_printf(t->arena, "%s/tokenizer.json", dir)), "{\"t\": 1}");
		TT_CHECK(t, !tt_fs_exists(&tt_fs_posix, tt_arena_printf(t->arena, "%s/notes.txt", dir)));
	}
	f->model.rope_theta = 5e5;
	f->model.rms_norm_eps = 1e-6;
	TT_CHECK_OK(t, fake_save(f, &o, 3, TT_CKPT_MODEL_ONLY, TT_ST_BF16));
	const char *path = tt_test_path(t, "run/step-00000003/config.json");
	tt_llama_config m;
	TT_CHECK_OK(t, tt_llama_read(t->arena, path, &m));
	TT_CHECK(t, m.rope_theta == 5e5 && m.rms_norm_eps == 1e-6 && m.vocab_size == 50);
	TT_CHECK_STR(t, m.dtype, "bfloat16");
	TT_CHECK(t, strstr(read_text(t, path), "their_key") && !strstr(read_text(t, path), "rope_parameters") && !strstr(read_text(t, path), "torch_dtype"));
}

static bool same_config(const tt_llama_config *a, const tt_llama_config *b)
{
	return a->vocab_size == b->vocab_size && a->hidden_size == b->hidden_size && a->num_hidden_layers == b->num_hidden_layers &&
	       a->num_attention_heads == b->num_attention_heads && a->num_key_value_heads == b->num_key_value_heads && a->head_dim == b->head_dim &&
	       a->intermediate_size == b->intermediate_size && a->max_position_embeddings == b->max_position_embeddings &&
	       a->sliding_window == b->sliding_window && a->rms_norm_eps == b->rms_norm_eps && a->rope_theta == b->rope_theta &&
	       a->initializer_range == b->initializer_range && !memcmp(&a->rope, &b->rope, sizeof a->rope) &&
	       a->tie_word_embeddings == b->tie_word_embeddings && a->attention_bias == b->attention_bias && a->mlp_bias == b->mlp_bias &&
	       a->bos == b->bos && a->neos == b->neos && !memcmp(a->eos, b->eos, sizeof *a->eos * (size_t)a->neos);
}

/* Every flavor, and what flavors do not have, comes back from the config.json made for it. */
static void config_json(tt_test *t)
{
	tt_llama_config list[32], m = fake_new(t, 10)->model;
	int n = 0;
	for (const tt_flavor *f = tt_flavors; f->name; f++)
		list[n++] = f->config;
	list[n++] = m;
	list[n] = m, list[n].attention_bias = list[n].mlp_bias = true, list[n].bos = 3, list[n].neos = 2, list[n].eos[0] = 5, list[n].eos[1] = 6, n++;
	list[n] = m, list[n].architecture = "MistralForCausalLM", list[n].sliding_window = 100, n++;
	list[n] = m, list[n].architecture = "MistralForCausalLM", list[n].sliding_window = 0, list[n].head_dim = 24, n++;
	list[n] = m, list[n].rope = (tt_rope_scaling){ .kind = TT_ROPE_LINEAR, .factor = 2.5 }, n++;
	list[n] = m, list[n].rope = (tt_rope_scaling){ .kind = TT_ROPE_DYNAMIC, .factor = 4 }, n++;
	list[n] = m, list[n].rope = (tt_rope_scaling){ .kind = TT_ROPE_YARN, .factor = 4, .beta_fast = 16, .attention_factor = 1.25, .truncate = true,
						       .original_max_position_embeddings = 128 }, n++;
	for (int i = 0; i < n; i++) {
		tt_buf b = { 0 };
		tt_llama_config back;
		const char *path = tt_test_path(t, "config.json");
		TT_CHECK_OK(t, tt_ckpt_config_json(&list[i], "float32", NULL, &b));
		TT_CHECK_OK(t, tt_file_write(path, b.s, b.n));
		if (TT_CHECK_OK(t, tt_llama_read(t->arena, path, &back)))
			TT_CHECK_MSG(t, same_config(&list[i], &back) && !strcmp(list[i].architecture, back.architecture), "config %d:\n%s", i, b.s);
		/* Over another's: the same, whatever that one said. */
		tt_ckpt_carried from = { tt_arena_strdup(t->arena, b.s), b.n, back };
		for (int k = 0; k < n; k++) {
			b.n = 0;
			TT_CHECK_OK(t, tt_ckpt_config_json(&list[k], "float32", &from, &b));
			TT_CHECK_OK(t, tt_file_write(path, b.s, b.n));
			if (TT_CHECK_OK(t, tt_llama_read(t->arena, path, &back)))
				TT_CHECK_MSG(t, same_config(&list[k], &back), "config %d over %d:\n%s", k, i, b.s);
		}
		tt_buf_fini(&b);
	}
}

static bool same_files(tt_test *t, const char *a, const char *b)
{
	char *x, *y;
	size_t nx, ny;
	return TT_CHECK_OK(t, tt_file_read(t->arena, a, &x, &nx)) && TT_CHECK_OK(t, tt_file_read(t->arena, b, &y, &ny)) && nx == ny && !memcmp(x, y, nx);
}

static void exporting(tt_test *t)
{
	fake *f = fake_new(t, 200);
	tt_ckpt_options o = fake_options(f, tt_test_path(t, "run"), NULL);
	TT_CHECK_OK(t, fake_save(f, &o, 100, TT_CKPT_FULL, TT_ST_F32)); /* numbers that bf16 holds */
	const char *dir = tt_test_path(t, "run/step-00000100"), *in_bf16 = tt_test_path(t, "bf16"), *in_f32 = tt_test_path(t, "f32");
	/* As imported, bf16; from there to float32 and back: the same file, byte for byte. */
	TT_CHECK_OK(t, tt_ckpt_export(NULL, dir, in_bf16, TT_ST_NDTYPES, 0));
	TT_CHECK_OK(t, tt_ckpt_export(NULL, in_bf16, in_f32, TT_ST_F32, 0));
	TT_CHECK_OK(t, tt_ckpt_export(NULL, in_f32, tt_test_path(t, "again"), TT_ST_BF16, 0));
	TT_CHECK(t, same_files(t, tt_test_path(t, "bf16/model.safetensors"), tt_test_path(t, "again/model.safetensors")));
	TT_CHECK(t, same_files(t, tt_test_path(t, "bf16/config.json"), tt_test_path(t, "again/config.json")));
	TT_CHECK(t, same_files(t, tt_test_path(t, "f32/model.safetensors"), tt_arena_printf(t->arena, "%s/model.safetensors", dir)));
	TT_CHECK(t, !same_files(t, tt_test_path(t, "f32/model.safetensors"), tt_test_path(t, "bf16/model.safetensors")));
	tt_llama_config m;
	TT_CHECK_OK(t, tt_llama_read(t->arena, in_bf16, &m));
	TT_CHECK_STR(t, m.dtype, "bfloat16");
	TT_CHECK(t, !tt_fs_exists(&tt_fs_posix, tt_test_path(t, "bf16/train_state.json")) && !tt_fs_exists(&tt_fs_posix, tt_test_path(t, "bf16/COMPLETE")));
	tt_st *st;
	if (TT_CHECK_OK(t, tt_st_open(t->arena, in_bf16, &st))) {
		TT_CHECK_INT(t, tt_st_count(st), 3);
		TT_CHECK_INT(t, tt_st_find(st, "lm_head.weight")->dtype, TT_ST_BF16);
	}
	tt_st_close(st);
	TT_CHECK_OK(t, tt_ckpt_export(NULL, dir, tt_test_path(t, "shards"), TT_ST_F16, 10000));
	TT_CHECK_OK(t, tt_st_open(t->arena, tt_test_path(t, "shards"), &st));
	tt_st_close(st);
	TT_CHECK_FAILS(t, tt_ckpt_export(NULL, dir, in_f32, TT_ST_F32, 0), TT_ERR_USAGE, "is there already");
	write_at(t, tt_test_path(t, "run/step-00000100/model.safetensors"), 5000, 1);
	TT_CHECK_FAILS(t, tt_ckpt_export(NULL, dir, tt_test_path(t, "bad"), TT_ST_F32, 0), TT_ERR_FORMAT, "do not match their checksum");
	TT_CHECK(t, !tt_fs_exists(&tt_fs_posix, tt_test_path(t, "bad")));
}

/* Half precision in all 65,536 values, to float and back. */
static void halves(tt_test *t)
{
	fake *f = fake_new(t, 1024); /* 65,536 elements of the embedding */
	tt_ckpt_options o = fake_options(f, tt_test_path(t, "run"), NULL);
	o.keep_latest_k = 0;
	for (int d = 0; d < 2; d++) {
		tt_ckpt_writer *w;
		tt_ckpt_state s = fake_state(1 + d);
		fake_set(f, 1);
		for (int e = 0; e < 65536; e++)
			f->p[1][e] = d ? tt_bf16_to_f32((tt_bf16)e) : tt_f16_to_f32((uint16_t)e);
		TT_CHECK_OK(t, tt_ckpt_writer_create(&o, &w));
		TT_CHECK_OK(t, tt_ckpt_save_begin(w, &s, TT_CKPT_MODEL_ONLY, d ? TT_ST_BF16 : TT_ST_F16));
		tt_ckpt_writer_destroy(w);
		tt_ckpt *c = opened(t, o.folder, -1);
		if (!c || !TT_CHECK_OK(t, load(f, c, TT_CKPT_OPTIMIZER)))
			return;
		int wrong = 0;
		for (int e = 0; e < 65536; e++) {
			float want = d ? tt_bf16_to_f32((tt_bf16)e) : tt_f16_to_f32((uint16_t)e), got = f->p[1][e];
			wrong += isnan(want) ? !isnan(got) : memcmp(&want, &got, 4) != 0;
		}
		TT_CHECK_INT(t, wrong, 0);
	}
}

static void hashes(tt_test *t)
{
	fake *f = fake_new(t, 20000);
	tt_ckpt_options o = fake_options(f, tt_test_path(t, "run"), NULL);
	TT_CHECK_OK(t, fake_save(f, &o, 9, TT_CKPT_FULL, TT_ST_F32));
	tt_ckpt *c = opened(t, o.folder, -1);
	if (!c)
		return;
	uint64_t want = 0, got;
	for (int64_t e = 0; e < 20000 * 64; e++) {
		float x = fake_value(9, 1, e);
		uint32_t bits;
		memcpy(&bits, &x, 4);
		want += tt_hash_element(tt_hash_index(e), bits);
	}
	TT_CHECK_OK(t, tt_ckpt_hash(NULL, tt_st_find(tt_ckpt_headers(c), "model.embed_tokens.weight"), &got));
	TT_CHECK(t, got == want);
}

/* ---- fuzz -------------------------------------------------------------------------------------------------------------------------- */

/* Bytes of train_state.json changed, the marker made to fit: whatever comes of it is an error or a load, and nothing worse. */
static void fuzz(tt_test *t)
{
	fake *f = fake_new(t, 4);
	tt_ckpt_options o = fake_options(f, tt_test_path(t, "run"), NULL);
	TT_CHECK_OK(t, fake_save(f, &o, 9, TT_CKPT_FULL, TT_ST_F32));
	const char *state = tt_test_path(t, "run/step-00000009/train_state.json"), *marker = tt_test_path(t, "run/step-00000009/COMPLETE");
	char *text;
	size_t n;
	if (!TT_CHECK_OK(t, tt_file_read(t->arena, state, &text, &n)))
		return;
	static const char *const bits[] = { "-1", "9223372036854775807", "null", "[]", "{}", "\"\"", "1e308", "\"/etc/passwd\"", ",", "\"..\"", "0" };
	uint64_t rng = t->seed;
	int64_t loads = 0, runs = 0;
	char *copy = TT_NEWN(t->arena, char, 2 * n + 64);
	for (double end = tt_now() + (t->tier == TT_TIER_QUICK ? 2 : t->tier == TT_TIER_CI ? 20 : 600); tt_now() < end && !t->failures; runs++) {
		memcpy(copy, text, n);
		size_t m = n;
		int changes = 1 + (int)((rng = tt_mix64(rng + 1)) % 3);
		for (int i = 0; i < changes; i++) {
			rng = tt_mix64(rng + 1);
			size_t at = (rng >> 8) % m;
			const char *bit = bits[(rng >> 40) % TT_COUNT(bits)];
			switch (rng % 4) {
			case 0:
				copy[at] = (char)(rng >> 50);
				break;
			case 1:
				memmove(copy + at, copy + at + 1, m - at - 1);
				m -= m > 1;
				break;
			case 2: /* a value for another */
				while (at > 0 && copy[at] != ':')
					at--;
				if (at + 2 + strlen(bit) < m)
					memcpy(copy + at + 1, bit, strlen(bit));
				break;
			default:
				if (m + 32 < 2 * n) {
					memmove(copy + at + strlen(bit), copy + at, m - at);
					memcpy(copy + at, bit, strlen(bit));
					m += strlen(bit);
				}
			}
		}
		tt_arena *a = tt_arena_create("fuzz");
		const char *mark = tt_arena_printf(a, "titan checkpoint 1 %016llx\n", (unsigned long long)tt_hash64(copy, m, 0));
		unlink(state), unlink(marker);
		TT_CHECK_OK(t, tt_file_write(state, copy, m));
		TT_CHECK_OK(t, tt_file_write(marker, mark, strlen(mark)));
		tt_ckpt *c;
		if (tt_ckpt_open_dir(a, NULL, tt_test_path(t, "run/step-00000009"), &c) == TT_OK && load(f, c, 0) == TT_OK)
			loads++;
		tt_arena_destroy(a);
	}
	TT_CHECK_MSG(t, runs > 100 && loads < runs, "%lld runs, %lld loads", (long long)runs, (long long)loads);
}

const tt_case tt_suite_ckpt[] = {
	{ "round_trip", round_trip, TT_TIER_QUICK },
	{ "model_only", model_only, TT_TIER_QUICK },
	{ "shards", shards, TT_TIER_QUICK },
	{ "other_program", other_program, TT_TIER_QUICK },
	{ "damage", damage, TT_TIER_QUICK },
	{ "latest", latest, TT_TIER_QUICK },
	{ "pruning", pruning, TT_TIER_QUICK },
	{ "asynchronous", asynchronous, TT_TIER_QUICK },
	{ "carried", carried, TT_TIER_QUICK },
	{ "config_json", config_json, TT_TIER_QUICK },
	{ "exporting", exporting, TT_TIER_QUICK },
	{ "halves", halves, TT_TIER_QUICK },
	{ "hashes", hashes, TT_TIER_QUICK },
	{ "fuzz", fuzz, TT_TIER_QUICK },
	{ 0 },
};
