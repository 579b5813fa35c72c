/* writer.c: saving. A save is a job: planned by the caller, run by a thread of its own, or in place where saving is synchronous. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "ckpt/internal.h"

enum { TEXT_BYTES = 2048 };
static const char MAKE[] = "folder of a save"; /* the first exchange of ranks that save together */

typedef struct job {
	tt_arena *arena;
	tt_ckpt_writer *w;
	ckpt_pack pack;
	ckpt_share *share; /* NULL: this process writes alone */
	ckpt_manifest manifest;
	const char *tmp; /* the folder in the making */
	double begun, waits_since, others_stall; /* an update waits since then, 0: none does; most of the ranks */
	tt_ckpt_result result;
	tt_status status;
	char text[TEXT_BYTES];
	tt_status copy_status; /* of a copy that an update made */
	char copy_text[TEXT_BYTES];
	_Atomic bool done;
} job;

struct tt_ckpt_writer {
	tt_arena *arena;
	tt_ckpt_options o;
	ckpt_small *carried;
	int64_t ncarried;
	tt_ckpt_carried *config;
	tt_region staging;
	struct { tt_st_dtype dtype; const int64_t *block; } dealt[2]; /* by kind: to which rank and round blocks were dealt; NULL: not yet */
	pthread_mutex_t lock; /* for `moved`, and what says how long training waited */
	pthread_cond_t moved; /* a block was read, or the job failed */
	pthread_t thread;
	job *job;             /* NULL: none in progress */
};

/* ---- one save, in the thread ------------------------------------------------------------------------------------------------ */

static void progress(void *ctx)
{
	tt_ckpt_writer *w = ctx;
	if (!atomic_load(&w->job->pack.hurry))
		return;
	pthread_mutex_lock(&w->lock);
	pthread_cond_broadcast(&w->moved);
	pthread_mutex_unlock(&w->lock);
}

static tt_status room_check(const tt_ckpt_options *o, int64_t bytes)
{
	int64_t room = o->fs->space(o->fs, o->folder);
	/* Some file systems do not say; then the writes will. */
	if (room >= 0 && room < bytes)
		TT_FAIL(TT_ERR_IO, "%s: a checkpoint takes %s, the disk has %s left (checkpoint.keep_latest_k removes older ones only when a new one is complete): "
			"%s must be freed first, or job.dump_folder be on another disk", o->folder,
			tt_scale_bytes(bytes).s, tt_scale_bytes(room).s, tt_scale_bytes(bytes - room).s);
	return TT_OK;
}

/* What says that all files are there and right, last. */
static tt_status folder_seal(job *j)
{
	const tt_fs *fs = j->w->o.fs;
	j->manifest.files = j->pack.listed;
	j->manifest.nfiles = j->pack.nlisted;
	tt_buf b = { 0 };
	tt_status s = ckpt_manifest_print(&j->manifest, &b);
	if (s == TT_OK)
		s = tt_fs_write_file(fs, tt_arena_printf(j->arena, "%s/%s", j->tmp, CKPT_STATE), b.s, b.n);
	const char *marker = s == TT_OK ? ckpt_marker(j->arena, b.s, b.n) : NULL;
	tt_buf_fini(&b);
	TT_TRY(s);
	TT_TRY(tt_fs_write_file(fs, tt_arena_printf(j->arena, "%s/%s", j->tmp, CKPT_COMPLETE), marker, strlen(marker)));
	TT_TRY(tt_fs_sync_folder(fs, j->tmp));
	return TT_OK;
}

static tt_status folder_make(job *j)
{
	const tt_ckpt_options *o = &j->w->o;
	TT_TRY(tt_fs_mkdirs(o->fs, o->folder));
	ckpt_clean_stale(o->fs, o->folder);
	TT_TRY(room_check(o, ckpt_pack_bytes(&j->pack)));
	if (o->fs->mkdir(o->fs, j->tmp))
		TT_FAIL(TT_ERR_IO, "%s: cannot create folder: %m", j->tmp);
	return TT_OK;
}

/* To its place; if `s` is an error, or there is one, the temporary folder goes. */
static tt_status folder_place(job *j, tt_status s)
{
	const tt_ckpt_options *o = &j->w->o;
	if (s == TT_OK)
		s = folder_seal(j);
	if (s == TT_OK)
		s = ckpt_publish(j->arena, o->fs, o->folder, j->tmp, j->manifest.state.step);
	if (s != TT_OK) {
		/* What it holds is of no use, and the disk may be full of it. The first error wins. */
		tt_error_crumb(s, __FILE__, __LINE__);
		memcpy(j->text, tt_error_text(), strlen(tt_error_text()) + 1);
		if (tt_fs_exists(o->fs, j->tmp) && tt_fs_remove_folder(o->fs, j->tmp) != TT_OK)
			tt_log(TT_LOG_WARN, "%s", tt_error_text());
		TT_FAIL(s, "%s", j->text);
	}
	TT_TRY(ckpt_latest_write(j->arena, o->fs, o->folder, j->manifest.state.step));
	j->result.seconds = tt_now() - j->begun;
	return TT_OK;
}

/* A checkpoint of the same step that this one has taken the place of lies under the temporary name: it goes first of all that goes, but
 * not before `latest` is right, so that what a restart needs never waits for removals. */
static void old_remove(job *j)
{
	const tt_ckpt_options *o = &j->w->o;
	ckpt_clean_stale(o->fs, o->folder);
	ckpt_prune(o->fs, o->folder, j->manifest.state.step, o->keep_latest_k);
}

static tt_status save(job *j)
{
	TT_TRY(folder_make(j));
	double t0 = tt_now();
	tt_status s = ckpt_pack_write(&j->pack);
	j->result.write_seconds = tt_now() - t0;
	TT_TRY(folder_place(j, s));
	old_remove(j);
	return TT_OK;
}

static void tmp_name(job *j, int64_t process)
{
	j->tmp = j->pack.dir = tt_arena_printf(j->arena, "%s/.tmp-%s-%lld", j->w->o.folder, ckpt_step_name(j->arena, j->manifest.state.step), (long long)process);
}

/* The same of several ranks: between the agreements the first alone makes and places the folder, and all write into it. */
static tt_status save_shared(job *j)
{
	const tt_ckpt_ranks *r = j->w->o.ranks;
	bool leads = ckpt_share_leads(r);
	ckpt_agreed x = { .word = getpid() };
	tt_status s = leads ? folder_make(j) : TT_OK;
	bool made = leads && s == TT_OK;
	if (made)
		s = ckpt_share_create(j->share);
	s = ckpt_share_agree(r, j->arena, MAKE, s, &x);
	double t0 = tt_now();
	if (s == TT_OK) {
		tmp_name(j, x.word);
		s = ckpt_share_write(j->share);
	}
	j->result.write_seconds = tt_now() - t0;
	if (s != TT_OK) /* all have it */
		return made ? folder_place(j, s) : s;
	if (leads)
		s = folder_place(j, ckpt_pack_small(&j->pack));
	pthread_mutex_lock(&j->w->lock);
	x = (ckpt_agreed){ .stall = j->result.stall_seconds + (j->waits_since > 0 ? tt_now() - j->waits_since : 0) };
	pthread_mutex_unlock(&j->w->lock);
	TT_TRY(ckpt_share_agree(r, j->arena, "end of a save", s, &x));
	j->others_stall = x.stall;
	if (leads)
		old_remove(j);
	return TT_OK;
}

void tt_ckpt_tidy(tt_ckpt_writer *w)
{
	const tt_ckpt_options *o = &w->o;
	if (!tt_fs_exists(o->fs, o->folder))
		return;
	tt_arena *a = tt_arena_create("tidy");
	int64_t latest;
	if (ckpt_latest_read(a, o->fs, o->folder, &latest) == TT_OK && latest >= 0)
		ckpt_prune(o->fs, o->folder, latest, o->keep_latest_k);
	ckpt_clean_stale(o->fs, o->folder);
	tt_arena_destroy(a);
}

static void job_run(job *j)
{
	j->status = j->share ? save_shared(j) : save(j);
	if (j->status != TT_OK)
		memcpy(j->text, tt_error_text(), strlen(tt_error_text()) + 1);
	tt_ckpt_writer *w = j->w;
	pthread_mutex_lock(&w->lock);
	atomic_store(&j->pack.failed, j->status != TT_OK);
	pthread_cond_broadcast(&w->moved);
	pthread_mutex_unlock(&w->lock);
	atomic_store(&j->done, true);
}

static void *thread_main(void *ctx)
{
	const tt_ckpt_ranks *r = ((const job *)ctx)->w->o.ranks;
	tt_thread_set(r ? tt_comm_rank(r->comm) : 0, "checkpoint");
	job_run(ctx);
	return NULL;
}

/* ---- the caller's side -------------------------------------------------------------------------------------------------------- */

tt_status tt_ckpt_writer_create(const tt_ckpt_options *o, tt_ckpt_writer **out)
{
	tt_arena *a = tt_arena_create("checkpoint");
	tt_ckpt_writer *w = TT_NEW(a, tt_ckpt_writer);
	w->arena = a;
	w->o = *o;
	w->o.fs = o->fs ? o->fs : &tt_fs_posix;
	w->o.staging = o->staging ? o->staging : TT_CKPT_STAGING;
	w->o.shard_bytes = o->shard_bytes ? o->shard_bytes : TT_CKPT_SHARD;
	w->o.folder = tt_arena_strdup(a, o->folder);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->moved, NULL);
	tt_status s = o->source ? ckpt_carry_read(a, w->o.fs, o->source, &w->carried, &w->ncarried, &w->config) : TT_OK;
	if (s != TT_OK)
		tt_ckpt_writer_destroy(w);
	TT_TRY(s);
	*out = w;
	return TT_OK;
}

/* Does another process perhaps still read what this one gave? Then it stays until the process ends, which is soon. */
static bool given_up(const tt_ckpt_writer *w) { return w->o.ranks && tt_comm_given_up(w->o.ranks->comm); }

static void job_free(tt_ckpt_writer *w)
{
	if (!given_up(w)) {
		if (w->job->share)
			ckpt_share_free(w->job->share);
		tt_arena_destroy(w->job->arena);
	}
	w->job = NULL;
}

/* Waits for the job and says how it ended. A failed copy made the writer give up: it is the cause. *text is the job's. */
static tt_status job_join(tt_ckpt_writer *w, const char **text)
{
	job *j = w->job;
	if (w->o.async)
		pthread_join(w->thread, NULL);
	bool copy = j->copy_status != TT_OK;
	*text = copy ? j->copy_text : j->text;
	return copy ? j->copy_status : j->status;
}

void tt_ckpt_writer_destroy(tt_ckpt_writer *w)
{
	if (!w)
		return;
	if (w->job) {
		const char *text;
		if (job_join(w, &text) != TT_OK && !given_up(w) && !(w->o.ranks && !ckpt_share_leads(w->o.ranks)))
			tt_log(TT_LOG_ERROR, "%s", text); /* of ranks the first speaks; the end of their world all tell */
		job_free(w);
	}
	if (given_up(w))
		return;
	tt_region_close(&w->staging);
	pthread_cond_destroy(&w->moved);
	pthread_mutex_destroy(&w->lock);
	tt_arena_destroy(w->arena);
}

/* The tensors stay the same, and so what is dealt. */
static void deal(job *j, tt_ckpt_kind kind, tt_st_dtype dtype)
{
	tt_ckpt_writer *w = j->w;
	bool known = w->dealt[kind].block && (kind == TT_CKPT_FULL || w->dealt[kind].dtype == dtype);
	int64_t n;
	j->share = ckpt_share_new(&j->pack, w->o.ranks, w->o.ctx, known ? w->dealt[kind].block : NULL);
	if (known)
		return;
	const int64_t *block = ckpt_share_dealt(j->share, &n);
	w->dealt[kind].block = memcpy(TT_NEWN(w->arena, int64_t, n), block, sizeof *block * (size_t)n);
	w->dealt[kind].dtype = dtype;
}

static tt_status plan(job *j, tt_ckpt_kind kind, tt_st_dtype dtype)
{
	tt_ckpt_writer *w = j->w;
	const tt_ckpt_options *o = &w->o;
	tt_arena *a = j->arena;
	ckpt_pack *p = &j->pack;
	*p = (ckpt_pack){ .arena = a, .fs = o->fs, .dir = j->tmp, .read = o->read, .ctx = o->ctx, .progress = progress, .progress_ctx = w };
	const char *index = NULL;
	int64_t n;
	ckpt_piece *pieces = ckpt_pieces(a, o->tensors, o->ntensors, false, dtype, &n);
	for (int64_t i = 0; kind == TT_CKPT_FULL && i < n; i++)
		pieces[i].out = pieces[i].in; /* masters are never rounded */
	const char *word = n && ckpt_torch_dtype(pieces[0].out) ? ckpt_torch_dtype(pieces[0].out) : "float32";
	ckpt_files_plan(a, "model", pieces, n, o->shard_bytes, &p->files, &p->nfiles, &p->cap_files, &index);
	if (kind == TT_CKPT_FULL) {
		pieces = ckpt_pieces(a, o->tensors, o->ntensors, true, dtype, &n);
		if (n)
			ckpt_files_plan(a, "optimizer", pieces, n, 0, &p->files, &p->nfiles, &p->cap_files, &index);
	}
	p->small = TT_NEWN(a, ckpt_small, w->ncarried + 2);
	tt_buf b = { 0 };
	tt_status s = tt_ckpt_config_json(o->model, word, w->config, &b);
	if (s == TT_OK)
		p->small[p->nsmall++] = (ckpt_small){ "config.json", tt_arena_strndup(a, b.s, b.n), b.n };
	tt_buf_fini(&b);
	TT_TRY(s);
	if (index)
		p->small[p->nsmall++] = (ckpt_small){ "model.safetensors.index.json", index, strlen(index) };
	for (int64_t i = 0; i < w->ncarried; i++)
		p->small[p->nsmall++] = w->carried[i];
	ckpt_pack_init(p);
	if (o->ranks)
		deal(j, kind, dtype);
	ckpt_manifest *m = &j->manifest;
	m->model_only = kind == TT_CKPT_MODEL_ONLY;
	m->imported = TT_NEWN(a, ckpt_imported, o->ntensors);
	for (int64_t i = 0; i < o->ntensors; i++)
		if (!o->tensors[i].optim)
			m->imported[m->nimported++] = (ckpt_imported){ o->tensors[i].name, o->tensors[i].imported };
	return TT_OK;
}

/* Files of the folder come and go in no time while nothing is synced. */
static tt_status probe_write(const tt_ckpt_options *o, const char *path, bool there)
{
	static const char bytes[] = "titan\n";
	int fd;
	if (!there)
		(void)o->fs->unlink(o->fs, path);
	TT_TRY(there ? tt_fs_open_there(o->fs, path, &fd) : tt_fs_open_write(o->fs, path, &fd));
	tt_status s = tt_fs_pwrite(o->fs, fd, path, bytes, sizeof bytes - 1, 0);
	tt_fs_close(o->fs, fd);
	return s;
}

static const char *probe_path(tt_arena *a, const tt_ckpt_options *o, int64_t process) { return tt_arena_printf(a, "%s/.tmp-try-%lld", o->folder, (long long)process); }

static tt_status probe(tt_arena *a, const tt_ckpt_options *o)
{
	bool leads = !o->ranks || ckpt_share_leads(o->ranks);
	const char *path = probe_path(a, o, getpid());
	tt_status s = leads ? tt_fs_mkdirs(o->fs, o->folder) : TT_OK;
	if (leads && s == TT_OK)
		s = probe_write(o, path, false);
	if (o->ranks) { /* the others find the first's */
		ckpt_agreed x = { .word = getpid() };
		s = ckpt_share_agree(o->ranks, a, "try of a save", s, &x);
		bool begun = s == TT_OK;
		if (begun && !leads)
			s = probe_write(o, probe_path(a, o, x.word), true);
		if (begun && s != TT_OK)
			s = tt_error_set(s, __FILE__, __LINE__, "%s (ranks write checkpoints together: job.dump_folder must be one folder, which all hosts share and may write to)",
					 tt_arena_strdup(a, tt_error_text()));
		if (begun)
			s = ckpt_share_agree(o->ranks, a, "try of a save", s, &x);
	}
	if (leads && o->fs->unlink(o->fs, path) && s == TT_OK)
		TT_FAIL(TT_ERR_IO, "%s: cannot be removed: %m", path);
	return s;
}

static tt_status room_try(tt_arena *a, const tt_ckpt_options *o, int64_t bytes, int64_t saves)
{
	int64_t *steps, n, room = o->fs->space(o->fs, o->folder);
	TT_TRY(room_check(o, bytes));
	TT_TRY(tt_ckpt_list(a, o->fs, o->folder, &steps, &n));
	/* Older ones go after the new one is there: keep_latest_k and one more. Those that are there already have their room. */
	double more = o->keep_latest_k ? (double)TT_MIN(saves, TT_MAX(o->keep_latest_k + 1 - n, (int64_t)1)) : (double)saves;
	if (room >= 0 && (double)room < more * (double)bytes)
		tt_log(TT_LOG_WARN, "%s: %.0f more checkpoints of %s will be there at once, %s, and the disk has %s left (%s)", o->folder, more,
		       tt_scale_bytes(bytes).s, tt_scale_bytes((int64_t)TT_MIN(more * (double)bytes, 9e18)).s, tt_scale_bytes(room).s,
		       o->keep_latest_k ? "checkpoint.keep_latest_k keeps so many, and one more until the next is complete" : "checkpoint.keep_latest_k = 0 keeps all");
	return TT_OK;
}

tt_status tt_ckpt_try(tt_ckpt_writer *w, tt_ckpt_kind kind, tt_st_dtype dtype, int64_t saves)
{
	tt_arena *a = tt_arena_create("try");
	job *j = TT_NEW(a, job);
	j->arena = a;
	j->w = w;
	j->tmp = w->o.folder;
	tt_status s = probe(a, &w->o);
	bool leads = !w->o.ranks || ckpt_share_leads(w->o.ranks);
	if (s == TT_OK) /* of ranks all do, so that none has to in a save */
		s = plan(j, kind, dtype);
	if (s == TT_OK && leads)
		s = room_try(a, &w->o, ckpt_pack_bytes(&j->pack), saves);
	tt_arena_destroy(a);
	TT_TRY(s);
	return TT_OK;
}

static tt_status thread_start(tt_ckpt_writer *w)
{
	/* Signals are for the program's own thread. */
	sigset_t all, was;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	int r = pthread_create(&w->thread, NULL, thread_main, w->job);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	if (r)
		TT_FAIL(TT_ERR_MEMORY, "checkpoint: cannot start a thread: %s", strerror(r));
	return TT_OK;
}

tt_status tt_ckpt_save_begin(tt_ckpt_writer *w, const tt_ckpt_state *s, tt_ckpt_kind kind, tt_st_dtype dtype)
{
	bool done;
	tt_ckpt_result before;
	TT_TRY(tt_ckpt_wait(w, &done, &before));
	double t0 = tt_now();
	tt_arena *a = tt_arena_create("save");
	job *j = TT_NEW(a, job);
	j->arena = a;
	j->w = w;
	j->begun = t0;
	j->result.step = s->step;
	j->manifest.state = *s;
	j->manifest.state.schedule.type = tt_arena_strdup(a, s->schedule.type ? s->schedule.type : "");
	j->manifest.state.config = tt_arena_strdup(a, s->config ? s->config : "");
	j->manifest.state.files = s->files ? tt_arena_strdup(a, s->files) : NULL;
	tmp_name(j, getpid());
	tt_status st = plan(j, kind, dtype);
	if (st == TT_OK) {
		w->job = j;
		j->result.bytes = ckpt_pack_bytes(&j->pack);
		if (w->o.async)
			st = thread_start(w);
		else
			job_run(j);
	}
	if (st != TT_OK) {
		ckpt_agreed x = { 0 };
		if (w->o.ranks) /* the others have begun */
			st = ckpt_share_agree(w->o.ranks, a, MAKE, st, &x);
		w->job = j;
		job_free(w);
		TT_TRY(st);
	}
	pthread_mutex_lock(&w->lock);
	j->result.stall_seconds += tt_now() - t0;
	pthread_mutex_unlock(&w->lock);
	/* In place, an error is this call's; the result of a success waits for poll. */
	if (!w->o.async && j->status != TT_OK) {
		tt_status failed = j->status;
		tt_error_set(failed, __FILE__, __LINE__, "%s", j->text);
		job_free(w);
		TT_TRY(failed);
	}
	return TT_OK;
}

/* Copies blocks aside, from the back, as long as there is room and the writer has not come that far. */
static void stage(tt_ckpt_writer *w, job *j)
{
	ckpt_pack *p = &j->pack;
	if (!w->staging.p) {
		tt_region r;
		int64_t bytes = j->share ? w->o.staging : w->o.staging / TT_CKPT_BLOCK * TT_CKPT_BLOCK;
		if (tt_region_open("staging", (size_t)bytes, &r) != TT_OK)
			return; /* then the update waits */
		w->staging = r;
	}
	p->staging = w->staging.p;
	if (j->share) {
		j->copy_status = ckpt_share_stage(j->share, (int64_t)w->staging.n, &j->result.staged);
		if (j->copy_status != TT_OK) {
			memcpy(j->copy_text, tt_error_text(), strlen(tt_error_text()) + 1);
			atomic_store(&p->failed, true);
		}
		return;
	}
	p->nslots = (int32_t)(w->staging.n / (size_t)TT_CKPT_BLOCK);
	int64_t b = p->nblocks;
	for (int64_t f = p->nfiles - 1; f >= 0; f--)
		for (int64_t i = p->files[f].nblocks - 1; i >= 0; i--) {
			b--;
			if (p->used == p->nslots || atomic_load(&p->failed))
				return;
			uint8_t was = BLOCK_PENDING;
			if (!atomic_compare_exchange_strong(&p->block[b], &was, BLOCK_TAKEN))
				return; /* the writer's front */
			int64_t lo = i * TT_CKPT_BLOCK, hi = TT_MIN(p->files[f].bytes, lo + TT_CKPT_BLOCK);
			j->copy_status = ckpt_file_fill(&p->files[f], lo, hi, p->read, p->ctx, p->staging + (size_t)p->used * (size_t)TT_CKPT_BLOCK);
			if (j->copy_status != TT_OK) {
				memcpy(j->copy_text, tt_error_text(), strlen(tt_error_text()) + 1);
				atomic_store(&p->failed, true);
				return;
			}
			p->slot[b] = p->used++;
			j->result.staged += hi - lo;
			atomic_store(&p->block[b], BLOCK_STAGED);
			atomic_fetch_sub(&p->unread, 1);
		}
}

void tt_ckpt_before_update(tt_ckpt_writer *w)
{
	job *j = w->job;
	if (!j || atomic_load(&j->pack.unread) == 0 || atomic_load(&j->pack.failed))
		return;
	double t0 = tt_now();
	pthread_mutex_lock(&w->lock);
	j->waits_since = t0;
	pthread_mutex_unlock(&w->lock);
	atomic_store(&j->pack.hurry, true);
	stage(w, j);
	pthread_mutex_lock(&w->lock);
	while (atomic_load(&j->pack.unread) > 0 && !atomic_load(&j->pack.failed))
		pthread_cond_wait(&w->moved, &w->lock);
	j->result.stall_seconds += tt_now() - t0;
	j->waits_since = 0;
	pthread_mutex_unlock(&w->lock);
	atomic_store(&j->pack.hurry, false);
}

bool tt_ckpt_saving(const tt_ckpt_writer *w) { return w->job && !atomic_load(&w->job->done); }

tt_status tt_ckpt_poll(tt_ckpt_writer *w, bool *done, tt_ckpt_result *out)
{
	*done = w->job && atomic_load(&w->job->done);
	if (*done)
		TT_TRY(tt_ckpt_wait(w, done, out));
	return TT_OK;
}

tt_status tt_ckpt_wait(tt_ckpt_writer *w, bool *done, tt_ckpt_result *out)
{
	*done = w->job != NULL;
	if (!w->job)
		return TT_OK;
	const char *text;
	tt_status s = job_join(w, &text);
	if (s != TT_OK)
		tt_error_set(s, __FILE__, __LINE__, "%s", text);
	else
		*out = w->job->result;
	if (s == TT_OK)
		out->stall_seconds = TT_MAX(out->stall_seconds, w->job->others_stall);
	job_free(w);
	TT_TRY(s);
	return TT_OK;
}
