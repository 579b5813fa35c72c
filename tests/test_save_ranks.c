/* A checkpoint that several ranks write: the bytes of one writer, whoever holds what and whatever updates do meanwhile; an error of any rank is the error
 * of all. Here ranks are threads, each with a writer and a file layer of its own, that share no tensor. */
#define _GNU_SOURCE
#include "ckpt_fake.h"

#include "comm/comm.h"

enum { RANKS = 4, COLS = 40 }; /* 2 x 2: a = rank / 2, b = rank % 2; column COLS is where b cuts */

/* Tensors lie in turn: whole everywhere, rows by a, columns by b, rows by a and columns by b. */
static bool rows_cut(int64_t i) { return i % 4 == 1 || i % 4 == 3; }
static bool cols_cut(const tt_ckpt_tensor *t, int64_t i) { return t->ndim == 2 && i % 4 >= 2; }

typedef struct rank {
	fake *f;
	const tt_fs *fs;
	fault_counts *faults; /* of the first save alone */
	tt_comm_group *all;
	tt_ckpt_ranks ranks;
	int me;
	tt_status status[8];
	char text[8][1024];
	tt_ckpt_result result;
} rank;

typedef struct part { int64_t row, rows, col, cols, whole; } part;

static part part_of(const fake *f, int r, int64_t i)
{
	const tt_ckpt_tensor *t = &f->t[i];
	int64_t n = t->dim[0], w = t->ndim == 2 ? t->dim[1] : 1, cut = n / 3; /* not in the middle */
	part p = { 0, n, 0, w, w };
	if (rows_cut(i))
		p.row = r / 2 ? cut : 0, p.rows = r / 2 ? n - cut : cut;
	if (cols_cut(t, i))
		p.col = r % 2 ? COLS : 0, p.cols = r % 2 ? w - COLS : COLS;
	return p;
}

static bool gives(const fake *f, int r, int to, int64_t i)
{
	return (r / 2 == to / 2 || rows_cut(i)) && (r % 2 == to % 2 || cols_cut(&f->t[i], i));
}

static bool holds(const part *p, int64_t e)
{
	int64_t row = e / p->whole - p->row, col = e % p->whole - p->col;
	return row >= 0 && row < p->rows && col >= 0 && col < p->cols;
}

static int64_t before(void *ctx, int r, int to, int64_t i, int64_t at)
{
	const rank *k = ctx;
	part p = part_of(k->f, r, i);
	int64_t row = TT_MIN(TT_MAX(at / p.whole - p.row, (int64_t)0), p.rows), in = at / p.whole - p.row, n = row * p.cols;
	if (in >= 0 && in < p.rows)
		n += TT_MIN(TT_MAX(at % p.whole - p.col, (int64_t)0), p.cols);
	return gives(k->f, r, to, i) ? n : 0;
}

static int64_t run(void *ctx, int r, int to, int64_t i, int64_t at, int64_t end, int64_t *n)
{
	const rank *k = ctx;
	part p = part_of(k->f, r, i);
	if (!gives(k->f, r, to, i))
		return end;
	while (at < end && !holds(&p, at))
		at = at % p.whole < p.col ? at - at % p.whole + p.col : (at / p.whole + 1) * p.whole;
	*n = TT_MIN(end, p.cols == p.whole ? (p.row + p.rows) * p.whole : at - at % p.whole + p.col + p.cols) - at;
	return TT_MIN(at, end);
}

static tt_status pack(void *ctx, int64_t i, int64_t at, int64_t n, void *dst)
{
	const rank *k = ctx;
	float *to = dst;
	if (k->f->fails)
		TT_FAIL(k->f->fails, "%s: reading was to fail", k->f->t[i].name);
	for (int64_t end = at + n, count; (at = run(ctx, k->me, k->me, i, at, end, &count)) < end; at += count, to += count)
		memcpy(to, k->f->p[i] + at, (size_t)count * 4);
	return TT_OK;
}

/* What a rank does not hold is wrong there. */
static void set(rank *k, int64_t step)
{
	for (int64_t i = 0; i < k->f->n; i++) {
		part p = part_of(k->f, k->me, i);
		for (int64_t e = 0; e < fake_count(&k->f->t[i]); e++)
			k->f->p[i][e] = -7;
		for (int64_t row = p.row; row < p.row + p.rows && step >= 0; row++)
			for (int64_t e = row * p.whole + p.col; e < row * p.whole + p.col + p.cols; e++)
				k->f->p[i][e] = fake_value(step, i, e);
	}
}

typedef struct job {
	tt_ckpt_options o; /* of all */
	rank *r;
	tt_ckpt_kind kind;
	tt_st_dtype dtype;
	int64_t step;
	int saves;    /* of steps that follow */
	int dies;     /* a rank that ends with an error when its save has begun, -1: none */
	int unreadable; /* a rank that cannot read its tensors in the first save, -1: none */
	bool tries;
	fault_counts *faults; /* [RANKS] or NULL */
} job;

static void keep(rank *k, int n, tt_status s)
{
	k->status[n] = s;
	snprintf(k->text[n], sizeof k->text[n], "%s", s ? tt_error_text() : "");
}

static tt_status saves(tt_comm *c, void *ctx)
{
	job *j = ctx;
	rank *k = &j->r[tt_comm_rank(c)];
	int all[RANKS] = { 0, 1, 2, 3 };
	k->me = tt_comm_rank(c);
	k->ranks = (tt_ckpt_ranks){ .comm = c, .before = before, .run = run, .pack = pack };
	TT_TRY(tt_comm_group_open(c, "all", RANKS, all, &k->all));
	TT_TRY(tt_comm_group_open_beside(c, "writers", RANKS, all, &k->ranks.group));
	tt_ckpt_options o = j->o;
	tt_ckpt_writer *w;
	o.fs = k->fs;
	o.ranks = &k->ranks;
	o.ctx = k;
	TT_TRY(tt_ckpt_writer_create(&o, &w));
	if (j->tries)
		keep(k, 7, tt_ckpt_try(w, j->kind, j->dtype, 1));
	tt_status s = TT_OK;
	for (int n = 0; n < j->saves && !s; n++) {
		bool done = false;
		k->f->fails = j->unreadable == k->me && n == 0 ? TT_ERR_TYPE : TT_OK;
		set(k, j->step + n);
		tt_ckpt_state full = fake_state(j->step + n), st = k->me ? (tt_ckpt_state){ .step = full.step } : full;
		keep(k, n, tt_ckpt_save_begin(w, &st, j->kind, j->dtype));
		if (j->dies == k->me) {
			s = tt_error_set(TT_ERR_NUMERIC, __FILE__, __LINE__, "another error");
			tt_comm_abort(c, s);
			break;
		}
		for (int u = 0; u < 3 && !s; u++) { /* updates */
			tt_ckpt_before_update(w);
			s = tt_comm_barrier(k->all, "update");
			if (u == 0)
				set(k, -1);
		}
		if (!k->status[n])
			keep(k, n, tt_ckpt_wait(w, &done, &k->result));
		if (k->faults && !k->faults->hit)
			k->faults->fail_at = 0;
		s = s ? s : tt_comm_barrier(k->all, "saved");
	}
	char *text = s ? strdup(tt_error_text()) : NULL;
	tt_ckpt_writer_destroy(w);
	if (text)
		tt_error_set(s, __FILE__, __LINE__, "%s", text);
	free(text);
	return s;
}

static tt_status save(tt_test *t, job *j, const tt_fs *const *fs, int64_t rows)
{
	j->r = TT_NEWN(t->arena, rank, RANKS);
	for (int i = 0; i < RANKS; i++) {
		j->r[i].f = fake_new(t, rows);
		j->r[i].fs = fs ? fs[i] : NULL;
		j->r[i].faults = j->faults ? &j->faults[i] : NULL;
	}
	return tt_comm_threads(RANKS, &(tt_comm_options){ .init_timeout_s = 60 }, saves, j);
}

static job job_of(fake *f, const char *folder)
{
	job j = { .o = fake_options(f, folder, NULL), .kind = TT_CKPT_FULL, .dtype = TT_ST_F32, .step = 1, .saves = 1, .dies = -1, .unreadable = -1 };
	return j;
}

/* All files of a step, of one writer and of ranks. */
static void same(tt_test *t, const char *one, const char *many, int64_t step)
{
	char **names;
	int64_t n;
	const char *a = tt_arena_printf(t->arena, "%s/step-%08lld", one, (long long)step), *b = tt_arena_printf(t->arena, "%s/step-%08lld", many, (long long)step);
	if (!TT_CHECK_OK(t, tt_fs_names(t->arena, &tt_fs_posix, a, &names, &n)))
		return;
	TT_CHECK(t, n >= 4);
	for (int64_t i = 0; i < n; i++) {
		char *x = NULL, *y = NULL;
		size_t nx = 0, ny = 1;
		if (TT_CHECK_OK(t, tt_file_read(t->arena, tt_arena_printf(t->arena, "%s/%s", a, names[i]), &x, &nx)) &&
		    TT_CHECK_OK(t, tt_file_read(t->arena, tt_arena_printf(t->arena, "%s/%s", b, names[i]), &y, &ny)))
			TT_CHECK_MSG(t, nx == ny && !memcmp(x, y, nx), "%s of step %lld is not the one writer's", names[i], (long long)step);
	}
}

static ssize_t slow_pwrite(const tt_fs *fs, int fd, const void *p, size_t n, int64_t at)
{
	(void)fs;
	usleep(5000);
	return tt_fs_posix.pwrite(&tt_fs_posix, fd, p, n, at);
}

/* Files whole and in shards, masters and rounded, with room to copy all aside, some, and nothing. */
static void bytes(tt_test *t)
{
	static const struct { int64_t shard, staging; tt_ckpt_kind kind; tt_st_dtype dtype; bool async; } cases[] = {
		{ 0, TT_CKPT_STAGING, TT_CKPT_FULL, TT_ST_F32, true },
		{ 0, 1, TT_CKPT_FULL, TT_ST_F32, true },
		{ 0, TT_CKPT_BLOCK, TT_CKPT_FULL, TT_ST_F32, true },
		{ 600000, TT_CKPT_STAGING, TT_CKPT_FULL, TT_ST_F32, true },
		{ 20000, TT_CKPT_STAGING, TT_CKPT_MODEL_ONLY, TT_ST_BF16, true },
		{ 0, TT_CKPT_STAGING, TT_CKPT_MODEL_ONLY, TT_ST_F16, false },
	};
	tt_fs quick = tt_fs_posix, slow;
	quick.fsync = no_sync;
	slow = quick;
	slow.pwrite = slow_pwrite;
	const tt_fs *fs[RANKS] = { &quick, &quick, &slow, &quick };
	for (int i = 0; i < TT_COUNT(cases); i++) {
		int64_t rows = i < 3 ? 34000 : 4000; /* 8.7 MB a tensor: 6 blocks in two files */
		fake *f = fake_new(t, rows);
		const char *one = tt_test_path(t, "one"), *many = tt_test_path(t, "many");
		job j = job_of(f, many);
		j.o.shard_bytes = cases[i].shard;
		j.o.staging = cases[i].staging;
		j.o.async = cases[i].async;
		j.kind = cases[i].kind;
		j.dtype = cases[i].dtype;
		j.saves = i ? 1 : 2;
		j.tries = true;
		TT_CHECK_OK(t, save(t, &j, fs, rows));
		for (int r = 0; r < RANKS; r++)
			TT_CHECK_MSG(t, !j.r[r].status[0] && !j.r[r].status[1] && !j.r[r].status[7], "case %d, rank %d: %s%s%s", i, r, j.r[r].text[0], j.r[r].text[1], j.r[r].text[7]);
		TT_CHECK(t, j.r[0].result.bytes > 0 && j.r[0].result.seconds > 0 && (cases[i].staging > 1 || !j.r[0].result.staged));
		tt_ckpt_options o = j.o;
		o.folder = one;
		o.fs = &quick;
		o.async = false;
		for (int n = 0; n < j.saves; n++) {
			TT_CHECK_OK(t, fake_save(f, &o, 1 + n, j.kind, j.dtype));
			same(t, one, many, 1 + n);
		}
		fake_wipe(t, one);
		fake_wipe(t, many);
	}
}

/* ---- trouble --------------------------------------------------------------------------------------------------------------------------- */

static void ignore(void *ctx, tt_log_level level, const char *line) { (void)ctx, (void)level, (void)line; }

/* All ranks have the error, the one before is whole, nothing else is left; and the next save is right. */
static void all_failed(tt_test *t, const job *j, int r, const char *what)
{
	const char *who = r ? tt_arena_printf(t->arena, "rank %d on ", r) : "";
	for (int i = 0; i < RANKS; i++)
		TT_CHECK_MSG(t, j->r[i].status[0] && strstr(j->r[i].text[0], who) && strstr(j->r[i].text[0], what) && !strcmp(j->r[i].text[0], j->r[0].text[0]),
			     "rank %d failed, rank %d says %d: %s", r, i, (int)j->r[i].status[0], j->r[i].text[0]);
}

static void whole(tt_test *t, fake *f, const char *folder, int64_t step)
{
	tt_ckpt *c = NULL;
	fake_set(f, -1);
	if (TT_CHECK_OK(t, tt_ckpt_open(t->arena, NULL, folder, -1, &c)) && TT_CHECK(t, c) && TT_CHECK_OK(t, tt_ckpt_load(c, f->t, f->n, 0, fake_write, f))) {
		TT_CHECK_INT(t, tt_ckpt_get_state(c)->step, step);
		TT_CHECK_INT(t, fake_differs(f, step, true), -1);
	}
	TT_CHECK_INT(t, fake_remains(t, folder), 0);
}

enum { FEW = 400 };

static job trouble_of(fake *f, const char *folder, int64_t step)
{
	job j = job_of(f, folder);
	j.o.shard_bytes = 20000; /* blocks for all ranks */
	j.o.async = true;
	j.step = step;
	return j;
}

/* Every operation on files of every rank fails once. What fails after the folder is in its place is no error, or one that leaves the new one whole. */
static void faults(tt_test *t)
{
	fake *f = fake_new(t, FEW);
	const char *folder = tt_test_path(t, "run");
	tt_log_set_sink(ignore, NULL);
	job first = trouble_of(f, folder, 1);
	TT_CHECK_OK(t, save(t, &first, NULL, FEW));
	static const fault_mode modes[] = { FAULT_EIO, FAULT_ENOSPC };
	int64_t step = 1, failed = 0;
	for (int r = 0; r < RANKS && !t->failures; r++)
		for (int64_t n = 1; !t->failures; n++) {
			fault_counts c[RANKS];
			fault_fs fs[RANKS];
			const tt_fs *all[RANKS];
			for (int i = 0; i < RANKS; i++) {
				c[i] = (fault_counts){ .room = -1, .fail_at = i == r ? n : 0, .mode = modes[n % 2] };
				fs[i] = fault_new(&c[i]);
				all[i] = &fs[i].fs;
			}
			job j = trouble_of(f, folder, step + 1);
			j.saves = 2;
			j.faults = c;
			TT_CHECK_OK(t, save(t, &j, all, FEW));
			if (!c[r].hit) {
				TT_CHECK_MSG(t, n > (r ? 5 : 30), "rank %d has %lld calls", r, (long long)n);
				break;
			}
			if (j.r[0].status[0])
				all_failed(t, &j, r, n % 2 ? "No space left on device" : "Input/output error");
			failed += j.r[0].status[0] != 0;
			for (int i = 0; i < RANKS; i++)
				TT_CHECK_MSG(t, !j.r[i].status[1], "rank %d, call %lld: the save after it: %s", r, (long long)n, j.r[i].text[1]);
			whole(t, f, folder, step + 2);
			step += 2;
		}
	TT_CHECK(t, failed > 20);
	tt_log_set_sink(NULL, NULL);
}

static int bad_sync(const tt_fs *fs, int fd)
{
	(void)fs, (void)fd;
	errno = EIO;
	return -1;
}

/* A disk that fills up on one rank, or takes what is written and cannot keep it. */
static void full(tt_test *t)
{
	fake *f = fake_new(t, FEW);
	const char *folder = tt_test_path(t, "run");
	job first = trouble_of(f, folder, 1);
	TT_CHECK_OK(t, save(t, &first, NULL, FEW));
	for (int r = 0; r < RANKS; r++) {
		fault_counts c[RANKS];
		fault_fs fs[RANKS];
		const tt_fs *all[RANKS];
		for (int i = 0; i < RANKS; i++) {
			c[i] = (fault_counts){ .room = i == r ? 100 : -1 };
			fs[i] = fault_new(&c[i]);
			all[i] = &fs[i].fs;
		}
		job j = trouble_of(f, folder, 2);
		TT_CHECK_OK(t, save(t, &j, all, FEW));
		all_failed(t, &j, r, r ? "No space left on device (room and rights there" : "No space left on device");
		whole(t, f, folder, 1);
		fs[r].fs.fsync = bad_sync;
		c[r].room = -1;
		TT_CHECK_OK(t, save(t, &j, all, FEW));
		all_failed(t, &j, r, "Input/output error");
		whole(t, f, folder, 1);
	}
}

static int not_there(const tt_fs *fs, const char *path, int flags, int mode)
{
	(void)fs, (void)path, (void)flags, (void)mode;
	errno = ENOENT;
	return -1;
}

/* A host that does not see the folder: found before the first step, and in a save. */
static void other_folder(tt_test *t)
{
	fake *f = fake_new(t, FEW);
	tt_fs blind = tt_fs_posix;
	blind.open = not_there;
	const tt_fs *all[RANKS] = { NULL, NULL, NULL, &blind };
	job j = trouble_of(f, tt_test_path(t, "run"), 1);
	j.tries = true;
	TT_CHECK_OK(t, save(t, &j, all, FEW));
	all_failed(t, &j, 3, "job.dump_folder must be one folder, which all hosts share");
	for (int i = 0; i < RANKS; i++)
		TT_CHECK_MSG(t, j.r[i].status[7] && strstr(j.r[i].text[7], "rank 3 on ") && strstr(j.r[i].text[7], "No such file or directory (ranks write checkpoints together"), "%s",
			     j.r[i].text[7]);
	TT_CHECK_INT(t, fake_remains(t, tt_test_path(t, "run")), 0);
}

/* A rank cannot read its own tensors, in the writer's thread or in the update's. */
static void unreadable(tt_test *t)
{
	fake *f = fake_new(t, FEW);
	for (int r = 0; r < RANKS; r++) {
		job j = trouble_of(f, tt_test_path(t, "run"), 1 + 2 * r);
		j.unreadable = r;
		j.saves = 2;
		TT_CHECK_OK(t, save(t, &j, NULL, FEW));
		for (int i = 0; i < RANKS; i++) {
			TT_CHECK_MSG(t, j.r[i].status[0] == TT_ERR_TYPE && strstr(j.r[i].text[0], "reading was to fail"), "rank %d of %d: %s", i, r, j.r[i].text[0]);
			TT_CHECK_MSG(t, !j.r[i].status[1], "%s", j.r[i].text[1]);
		}
		whole(t, f, tt_test_path(t, "run"), 2 + 2 * r);
	}
}

/* A rank ends in the middle: the others' saves end too, and nobody waits. */
static void dies(tt_test *t)
{
	fake *f = fake_new(t, FEW);
	job first = trouble_of(f, tt_test_path(t, "run"), 1);
	TT_CHECK_OK(t, save(t, &first, NULL, FEW));
	tt_log_set_sink(ignore, NULL);
	for (int r = 0; r < RANKS; r++) {
		job j = trouble_of(f, tt_test_path(t, "run"), 1 + r);
		j.dies = r;
		TT_CHECK_FAILS(t, save(t, &j, NULL, FEW), TT_ERR_NUMERIC, tt_arena_printf(t->arena, "rank %d: another error", r));
		tt_ckpt *c = NULL;
		int64_t n;
		TT_CHECK(t, tt_ckpt_open(t->arena, NULL, tt_test_path(t, "run"), -1, &c) == TT_OK && c && tt_ckpt_verify(c, &n) == TT_OK);
	}
	tt_log_set_sink(NULL, NULL);
}

const tt_case tt_suite_save_ranks[] = {
	{ "bytes", bytes, TT_TIER_QUICK },
	{ "faults", faults, TT_TIER_QUICK },
	{ "full", full, TT_TIER_QUICK },
	{ "other_folder", other_folder, TT_TIER_QUICK },
	{ "unreadable", unreadable, TT_TIER_QUICK },
	{ "dies", dies, TT_TIER_QUICK },
	{ 0 },
};
