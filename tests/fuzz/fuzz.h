/* fuzz: what the targets share. Each target is one program: libFuzzer, common.c, the reader it feeds and nothing else of titan.c.
 *
 * A target has one function that reads an input, and one that makes its seeds and its dictionary from the tables, writers and files of
 * this very tree, so that neither can grow old. docs/fuzzing.md tells how to run them.
 */
#ifndef TT_FUZZ_H
#define TT_FUZZ_H

#include "base/base.h"

/* ---- the target's ----------------------------------------------------------------------------------------------------------- */

void fuzz_one(const uint8_t *p, size_t n);
void fuzz_seeds(void);

/* ---- for fuzz_one ----------------------------------------------------------------------------------------------------------- */

/* A property that does not hold is a finding like a crash. */
#define FUZZ_CHECK(cond, ...)                                                                                          \
	do {                                                                                                           \
		if (!(cond))                                                                                           \
			tt_panic(__FILE__, __LINE__, __VA_ARGS__);                                                     \
	} while (0)

typedef struct fuzz_part { const uint8_t *p; size_t n; } fuzz_part;
#define FUZZ_CUT "\n%%\n"
/* The parts of an input between lines "%%", at most `most`, the last with all that is left; how many there are. */
int fuzz_split(const uint8_t *p, size_t n, fuzz_part *out, int most);
const char *fuzz_text(tt_arena *a, fuzz_part part); /* NUL-terminated */

enum { FUZZ_FILES = 4 };
/* Path of file i, which lives in memory and holds these bytes until the next call for i. */
const char *fuzz_file(int i, const void *bytes, size_t n);
/* A folder on disk of this process's own, below TMPDIR (/dev/shm if there is none); run.sh removes it. */
const char *fuzz_folder(void);
/* Path of a file in it with these bytes; NULL bytes: no such file. Good until the next call. */
const char *fuzz_folder_file(const char *name, const void *bytes, size_t n);

/* A safetensors file of this header: its length before it, and after it as many bytes as the largest number before a ']' in it asks for
 * (FUZZ_DATA at most): a mutated header would else hardly ever fit its length and its data. A '-' before the header leaves out the last
 * bytes of data. */
enum { FUZZ_DATA = 24 * 1024 };
void fuzz_safetensors(tt_buf *b, fuzz_part header);

/* Reads every byte, so that one that is out of bounds is found; the result means nothing. */
uint64_t fuzz_touch(const void *p, size_t n);

/* ---- for fuzz_seeds --------------------------------------------------------------------------------------------------------- */

void fuzz_seed(const void *bytes, size_t n);
void fuzz_seed_text(const char *text);
/* `before`, then each file that the pattern (glob(7), relative to the repository) matches and that has at most `most` bytes. */
void fuzz_seed_files(const char *before, const char *pattern, size_t most);
void fuzz_word(const char *word);

#endif
