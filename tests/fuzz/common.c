/* common.c: the way from libFuzzer to a target, seeds on disk, files in memory. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <ctype.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAPS = 16 };

/* One thread runs a target, so these need no guard. */
static struct {
	const char *seeds; /* folder; NULL: not asked for */
	FILE *dict;
	int nseeds;
	int fd[FUZZ_FILES];
	void *map[MAPS];
} fuzz;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t from);
void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t from);
int __wrap_munmap(void *p, size_t n);
int __real_munmap(void *p, size_t n);

static void hush(void *ctx, tt_log_level level, const char *line)
{
	(void)ctx, (void)level;
	fuzz_touch(line, strlen(line));
}

/* TARGET --seeds=FOLDER --dict=FILE writes both and ends; all else is libFuzzer's. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *dict = NULL;
	for (int i = 1; i < *argc; i++) {
		if (!strncmp((*argv)[i], "--seeds=", 8))
			fuzz.seeds = (*argv)[i] + 8;
		if (!strncmp((*argv)[i], "--dict=", 7))
			dict = (*argv)[i] + 7;
	}
	tt_log_set_sink(hush, NULL);
	if (!fuzz.seeds || !dict)
		return 0;
	fuzz.dict = fopen(dict, "w");
	if (!fuzz.dict || tt_mkdirs(fuzz.seeds) != TT_OK)
		tt_panic(__FILE__, __LINE__, "%s, %s: cannot be written: %m", dict, fuzz.seeds);
	fuzz_seeds();
	fclose(fuzz.dict);
	exit(0);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	fuzz_one(p, n);
	return 0;
}

/* ---- inputs ---------------------------------------------------------------------------------------------------------------------- */

int fuzz_split(const uint8_t *p, size_t n, fuzz_part *out, int most)
{
	const size_t cut = sizeof FUZZ_CUT - 1;
	int k = 0;
	for (const uint8_t *stop; k < most - 1 && (stop = memmem(p, n, FUZZ_CUT, cut)); k++) {
		out[k] = (fuzz_part){ p, (size_t)(stop - p) };
		n -= (size_t)(stop - p) + cut;
		p = stop + cut;
	}
	out[k++] = (fuzz_part){ p, n };
	for (int i = k; i < most; i++)
		out[i] = (fuzz_part){ p + n, 0 };
	return k;
}

const char *fuzz_text(tt_arena *a, fuzz_part part) { return tt_arena_strndup(a, (const char *)part.p, part.n); }

const char *fuzz_file(int i, const void *bytes, size_t n)
{
	static const char *const names[FUZZ_FILES] = { "a", "b", "c", "d" };
	static char paths[FUZZ_FILES][64];
	if (!fuzz.fd[i]) {
		fuzz.fd[i] = memfd_create(names[i], MFD_CLOEXEC);
		snprintf(paths[i], sizeof paths[i], "/proc/self/fd/%d", fuzz.fd[i]);
	}
	if (fuzz.fd[i] < 0 || pwrite(fuzz.fd[i], bytes, n, 0) != (ssize_t)n || ftruncate(fuzz.fd[i], (off_t)n))
		tt_panic(__FILE__, __LINE__, "a file in memory: %m");
	return paths[i];
}

const char *fuzz_folder(void)
{
	static char path[256];
	const char *tmp = getenv("TMPDIR");
	if (*path)
		return path;
	snprintf(path, sizeof path, "%s/titan-fuzz-XXXXXX", tmp ? tmp : "/dev/shm");
	if (!mkdtemp(path))
		tt_panic(__FILE__, __LINE__, "%s: %m", path);
	return path;
}

const char *fuzz_folder_file(const char *name, const void *bytes, size_t n)
{
	static char path[512];
	snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
	if (!bytes)
		unlink(path);
	else if (tt_file_write(path, bytes, n) != TT_OK)
		tt_panic(__FILE__, __LINE__, "%s", tt_error_text());
	return path;
}

void fuzz_safetensors(tt_buf *b, fuzz_part header)
{
	bool cut = header.n && header.p[0] == '-';
	header.p += cut;
	header.n -= cut;
	uint64_t len = header.n, most = 0, number = 0;
	for (size_t i = 0; i < header.n; i++) {
		if (isdigit(header.p[i]))
			number = TT_MIN(number * 10 + (uint64_t)(header.p[i] - '0'), (uint64_t)FUZZ_DATA);
		else if (header.p[i] == ']')
			most = TT_MAX(most, number);
		if (!isdigit(header.p[i]) && header.p[i] != ' ')
			number = 0;
	}
	most -= TT_MIN(most, cut ? (uint64_t)5 : 0);
	tt_buf_add(b, &len, sizeof len);
	tt_buf_add(b, header.p, header.n);
	for (uint64_t i = 0; i < most; i += 8) {
		uint64_t bits = tt_mix64(i);
		tt_buf_add(b, &bits, (size_t)TT_MIN((uint64_t)8, most - i));
	}
}

uint64_t fuzz_touch(const void *p, size_t n)
{
	const volatile uint8_t *b = p;
	uint64_t sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += b[i];
	return sum;
}

/* A mapped file ends within a page, and what reads past its end reads zeros. A copy of exactly its bytes on the heap makes that an error
 * of AddressSanitizer's. */
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t from)
{
	int k = 0;
	while (k < MAPS && fuzz.map[k])
		k++;
	if (fd < 0 || prot != PROT_READ || k == MAPS)
		return __real_mmap(at, n, prot, flags, fd, from);
	void *p = malloc(n);
	if (!p || pread(fd, p, n, from) != (ssize_t)n)
		tt_panic(__FILE__, __LINE__, "a mapped file of %zu bytes: %m", n);
	fuzz.map[k] = p;
	return p;
}

int __wrap_munmap(void *p, size_t n)
{
	for (int k = 0; k < MAPS; k++)
		if (fuzz.map[k] == p) {
			fuzz.map[k] = NULL;
			free(p);
			return 0;
		}
	return __real_munmap(p, n);
}

/* ---- seeds ----------------------------------------------------------------------------------------------------------------------- */

void fuzz_seed(const void *bytes, size_t n)
{
	char path[512];
	snprintf(path, sizeof path, "%s/seed-%03d", fuzz.seeds, fuzz.nseeds++);
	if (tt_file_write(path, bytes, n) != TT_OK)
		tt_panic(__FILE__, __LINE__, "%s", tt_error_text());
}

void fuzz_seed_text(const char *text) { fuzz_seed(text, strlen(text)); }

void fuzz_seed_files(const char *before, const char *pattern, size_t most)
{
	tt_arena *a = tt_arena_create("seeds");
	glob_t g;
	if (glob(pattern, 0, NULL, &g) != 0)
		tt_panic(__FILE__, __LINE__, "%s: there are no such files: run from the repository", pattern);
	for (size_t i = 0; i < g.gl_pathc; i++) {
		char *bytes;
		size_t n;
		tt_buf b = { 0 };
		if (tt_file_read(a, g.gl_pathv[i], &bytes, &n) != TT_OK)
			tt_panic(__FILE__, __LINE__, "%s", tt_error_text());
		tt_buf_str(&b, before);
		tt_buf_add(&b, bytes, n);
		if (n <= most)
			fuzz_seed(b.s, b.n);
		tt_buf_fini(&b);
	}
	globfree(&g);
	tt_arena_destroy(a);
}

void fuzz_word(const char *word)
{
	if (!*word)
		return;
	fputc('"', fuzz.dict);
	for (const unsigned char *c = (const unsigned char *)word; *c; c++)
		fprintf(fuzz.dict, isprint(*c) && *c != '"' && *c != '\\' ? "%c" : "\\x%02x", *c);
	fputs("\"\n", fuzz.dict);
}
