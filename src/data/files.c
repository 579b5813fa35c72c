/* Walking folders and matching patterns. A pattern is a list of components; a walk carries the set of components that may
 * come next as bits, so each entry is looked at once, whatever the number of `**`, and folders that no match can lie in are
 * not read. */
#define _GNU_SOURCE
#include "data/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PARTS = 63, MAX_DEPTH = 200 };

typedef struct pattern {
	const char *part[MAX_PARTS];
	int n;
} pattern;

/* Bit i: component i is next; bit n: the pattern is used up. */
typedef uint64_t state;

static bool any_depth(const char *part) { return strcmp(part, "**") == 0; }
static bool special(const char *s) { return strpbrk(s, "*?[") != NULL; }

static bool part_match(const char *part, const char *name)
{
	if (name[0] == '.' && part[0] != '.')
		return false;
	return tt_glob_match(part, name);
}

/* `**` may stand for nothing. */
static state skip_any(const pattern *p, state s)
{
	for (int i = 0; i < p->n; i++)
		if ((s >> i & 1) && any_depth(p->part[i]))
			s |= (state)1 << (i + 1);
	return s;
}

static state step(const pattern *p, state s, const char *name)
{
	state next = 0;
	for (int i = 0; i < p->n; i++) {
		if (!(s >> i & 1))
			continue;
		if (any_depth(p->part[i])) {
			if (name[0] != '.')
				next |= (state)1 << i;
		} else if (part_match(p->part[i], name)) {
			next |= (state)1 << (i + 1);
		}
	}
	return skip_any(p, next);
}

static bool used_up(const pattern *p, state s) { return s >> p->n & 1; }

/* Splits at '/', in place; "." and empty components are dropped. False if there are too many. */
static bool pattern_split(char *text, pattern *p)
{
	p->n = 0;
	char *save = NULL;
	for (char *s = strtok_r(text, "/", &save); s; s = strtok_r(NULL, "/", &save)) {
		if (strcmp(s, ".") == 0)
			continue;
		if (p->n == MAX_PARTS)
			return false;
		p->part[p->n++] = s;
	}
	return true;
}

/* ---- the walk --------------------------------------------------------------------------------------------------- */

typedef struct exclude {
	const char *text;
	bool component, used;
} exclude;

typedef struct walk {
	tt_arena *arena;
	const char *key, *source;
	const pattern *p;
	exclude *ex;
	int nex;
	tt_files *out;
	int64_t seen;     /* files that matched, passed over or not */
	int64_t dangling; /* links that lead nowhere */
} walk;

static bool excluded(walk *w, const char *rel, const char *path, const char *name)
{
	for (int i = 0; i < w->nex; i++) {
		exclude *e = &w->ex[i];
		bool hit = e->component ? tt_glob_match(e->text, name)
					: tt_glob_match(e->text, rel) || tt_glob_match(e->text, path);
		if (hit) {
			e->used = true;
			return true;
		}
	}
	return false;
}

static tt_status take(walk *w, const char *path, const char *rel, const struct stat *st)
{
	w->seen++;
	if (st->st_size == 0) {
		w->out->empty++;
		return TT_OK;
	}
	/* Said now, not hours into a run. A file that everybody may read needs no question. */
	if ((st->st_mode & 0444) != 0444 && faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) != 0)
		TT_FAIL(TT_ERR_IO, "%s: cannot be read: %m (%s = \"%s\")", path, w->key, w->source);
	tt_file f = {path, rel, st->st_size, (uint64_t)st->st_dev, (uint64_t)st->st_ino};
	TT_PUSH(w->arena, w->out->items, w->out->n, w->out->cap, f);
	return TT_OK;
}

static tt_status folder_walk(walk *w, const char *path, const char *rel, state s, int depth);

/* One entry of a folder that is open as `fd`. `s`: the state before its name. */
static tt_status entry_walk(walk *w, int fd, const char *folder, const char *rel_folder, const struct dirent *e, state s,
			    int depth)
{
	const char *name = e->d_name;
	state next = step(w->p, s, name), more = ((state)1 << w->p->n) - 1;
	int type = e->d_type;
	if (!next || (type != DT_UNKNOWN && type != DT_REG && type != DT_DIR && type != DT_LNK))
		return TT_OK;
	const char *path = tt_arena_printf(w->arena, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", name);
	const char *rel = rel_folder[0] ? tt_arena_printf(w->arena, "%s/%s", rel_folder, name) : tt_arena_strdup(w->arena, name);
	if (excluded(w, rel, path, name))
		return TT_OK;
	if (type == DT_DIR) {
		if (next & more)
			TT_TRY(folder_walk(w, path, rel, next, depth + 1));
		return TT_OK;
	}
	struct stat st;
	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		TT_FAIL(TT_ERR_IO, "%s: cannot stat: %m (%s = \"%s\")", path, w->key, w->source);
	bool link = S_ISLNK(st.st_mode);
	if (link && fstatat(fd, name, &st, 0) != 0) {
		if (errno != ENOENT && errno != ELOOP)
			TT_FAIL(TT_ERR_IO, "%s: cannot follow the link: %m (%s = \"%s\")", path, w->key, w->source);
		w->dangling++;
		return TT_OK;
	}
	if (S_ISDIR(st.st_mode)) {
		/* What only a `**` leads into must not be a link: it could lead back. */
		for (int i = 0; link && i < w->p->n; i++)
			if (any_depth(w->p->part[i]) && (s >> i & 1))
				next &= ~((state)3 << i);
		if (next & more)
			TT_TRY(folder_walk(w, path, rel, next, depth + 1));
		return TT_OK;
	}
	if (S_ISREG(st.st_mode) && used_up(w->p, next))
		TT_TRY(take(w, path, rel, &st));
	return TT_OK;
}

static tt_status folder_walk(walk *w, const char *path, const char *rel, state s, int depth)
{
	if (depth > MAX_DEPTH)
		TT_FAIL(TT_ERR_IO, "%s: folders are nested deeper than %d (%s = \"%s\")", path, MAX_DEPTH, w->key, w->source);
	DIR *dir = opendir(path);
	if (!dir)
		TT_FAIL(TT_ERR_IO, "%s: cannot read the folder: %m (%s = \"%s\")", path, w->key, w->source);
	tt_status status = TT_OK;
	while (status == TT_OK) {
		errno = 0;
		const struct dirent *e = readdir(dir);
		if (!e) {
			if (errno)
				status = tt_error_set(TT_ERR_IO, __FILE__, __LINE__, "%s: cannot read the folder: %m", path);
			break;
		}
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		status = entry_walk(w, dirfd(dir), path, rel, e, s, depth);
	}
	closedir(dir);
	TT_TRY(status);
	return TT_OK;
}

static int rel_order(const void *a, const void *b)
{
	return strcmp(((const tt_file *)a)->rel, ((const tt_file *)b)->rel);
}

static const pattern ALL_BELOW = {{"**"}, 1};

static tt_status source_walk(walk *w)
{
	const char *src = w->source;
	struct stat st;
	if (src[0] == 0)
		TT_FAIL(TT_ERR_USAGE, "%s: an empty name", w->key);
	int64_t first = w->out->n;
	if (stat(src, &st) == 0) {
		if (S_ISDIR(st.st_mode)) {
			w->p = &ALL_BELOW;
			TT_TRY(folder_walk(w, tt_arena_strdup(w->arena, src), "", skip_any(w->p, 1), 0));
			if (!w->seen)
				TT_FAIL(TT_ERR_USAGE, "%s: no files below this folder, or all are excluded (%s)", src, w->key);
		} else if (S_ISREG(st.st_mode)) {
			const char *slash = strrchr(src, '/');
			const char *name = slash ? slash + 1 : src;
			w->seen++;
			if (!excluded(w, name, src, name))
				TT_TRY(take(w, tt_arena_strdup(w->arena, src), tt_arena_strdup(w->arena, name), &st));
		} else {
			TT_FAIL(TT_ERR_USAGE, "%s: neither a file nor a folder (%s)", src, w->key);
		}
	} else if (!special(src)) {
		TT_FAIL(TT_ERR_IO, "%s: %m (%s)", src, w->key);
	} else {
		/* The root is what stands before the first component with a special character. */
		size_t cut = strcspn(src, "*?[");
		while (cut && src[cut - 1] != '/')
			cut--;
		const char *root = cut ? tt_arena_strndup(w->arena, src, cut) : ".";
		pattern p;
		if (!pattern_split(tt_arena_strdup(w->arena, src + cut), &p))
			TT_FAIL(TT_ERR_USAGE, "%s: the pattern has more than %d components (%s)", src, MAX_PARTS, w->key);
		if (stat(root, &st) != 0)
			TT_FAIL(TT_ERR_IO, "%s: %m (%s = \"%s\")", root, w->key, src);
		w->p = &p;
		TT_TRY(folder_walk(w, root, "", skip_any(&p, 1), 0));
		w->p = NULL;
		if (!w->seen)
			TT_FAIL(TT_ERR_USAGE, "%s: the pattern matches no file, or all are excluded (%s)", src, w->key);
	}
	if (w->out->n > first)
		qsort(w->out->items + first, (size_t)(w->out->n - first), sizeof *w->out->items, rel_order);
	return TT_OK;
}

/* ---- each file once --------------------------------------------------------------------------------------------- */

/* Keeps the first of those that are one file, in place. Open addressing on (device, inode). */
static void files_unique(tt_arena *scratch, tt_files *f)
{
	int64_t cap = 16;
	while (cap < f->n * 2)
		cap *= 2;
	int64_t *slot = TT_NEWN(scratch, int64_t, cap), kept = 0;
	for (int64_t i = 0; i < f->n; i++) {
		uint64_t id[2] = {f->items[i].dev, f->items[i].ino};
		int64_t h = (int64_t)(tt_hash64(id, sizeof id, 0) & (uint64_t)(cap - 1));
		while (slot[h] && (f->items[slot[h] - 1].dev != id[0] || f->items[slot[h] - 1].ino != id[1]))
			h = (h + 1) & (cap - 1);
		if (slot[h])
			continue;
		f->items[kept++] = f->items[i];
		slot[h] = kept;
	}
	f->n = kept;
}

tt_status tt_files_find(tt_arena *a, const char *key, const char *const *sources, int nsources,
			const char *const *excludes, int nexclude, tt_files *out)
{
	exclude *ex = TT_NEWN(a, exclude, nexclude + 1);
	for (int i = 0; i < nexclude; i++)
		ex[i] = (exclude){excludes[i], !strchr(excludes[i], '/'), false};
	tt_files found = *out;
	int64_t dangling = 0;
	for (int i = 0; i < nsources; i++) {
		walk w = {.arena = a, .key = key, .source = sources[i], .ex = ex, .nex = nexclude, .out = &found};
		TT_TRY(source_walk(&w));
		dangling += w.dangling;
	}
	tt_arena *scratch = tt_arena_create("files");
	files_unique(scratch, &found);
	tt_arena_destroy(scratch);
	for (int i = 0; i < nexclude; i++)
		if (!ex[i].used)
			tt_log(TT_LOG_WARN, "%s: no file of %s is excluded by this pattern", ex[i].text, key);
	if (dangling)
		tt_log(TT_LOG_WARN, "%s: %lld links that lead nowhere are passed over", key, (long long)dangling);
	*out = found;
	return TT_OK;
}

uint64_t tt_file_sample(const tt_file *f, uint8_t *buffer)
{
	const int64_t piece = TT_FILE_SAMPLE / 3;
	const bool whole = f->size <= TT_FILE_SAMPLE;
	const int64_t at[3] = {0, whole ? piece : (f->size - piece) / 2, whole ? 2 * piece : f->size - piece};
	int64_t n = 0;
	int fd = open(f->path, O_RDONLY | O_CLOEXEC);
	for (int i = 0; fd >= 0 && i < 3; i++)
		for (int64_t done = 0; done < piece;) {
			ssize_t r = pread(fd, buffer + n, (size_t)(piece - done), (off_t)(at[i] + done));
			if (r < 0 && errno == EINTR)
				continue;
			if (r <= 0)
				break;
			done += r;
			n += r;
		}
	if (fd >= 0)
		close(fd);
	return tt_hash64(buffer, (size_t)n, (uint64_t)f->size);
}
