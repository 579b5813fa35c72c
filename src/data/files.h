/* data/files: from names, folders and patterns to a list of files, the same on every machine that has the same files.
 *
 * A source is, in this order: a name that exists (a file, or a folder: everything below it), else a pattern. Patterns are
 * matched component by component:
 *   *  ?  [abc]   within one component; a leading '.' must be written
 *   **            any number of components, none included; does not enter folders that begin with '.'
 * Symbolic links to files are followed; links to folders only where they are named themselves or by a component that is not
 * `**`, so no loop can be walked. Files are taken once, however often they are named (by device and inode). Empty files,
 * dangling links and what is not a regular file (pipes, sockets, devices) are passed over.
 *
 * The order is that of the sources, within a source that of bytes of the path relative to its root: the folder that was
 * named, or the part of a pattern before its first special character. No locale and no order of the file system enters.
 */
#ifndef TT_DATA_FILES_H
#define TT_DATA_FILES_H

#include "base/base.h"

typedef struct tt_file {
	const char *path; /* to open it with                                                             */
	const char *rel;  /* relative to its source's root; of a file named itself, its last component   */
	int64_t size;     /* bytes when it was found, > 0                                                */
	uint64_t dev, ino;
} tt_file;

typedef struct tt_files {
	tt_file *items;
	int64_t n, cap;
	int64_t empty;  /* files passed over because they have no bytes */
} tt_files;

/* Adds the files of `sources` to `*out`. An `exclude` pattern without '/' is held against every component below the root (so
 * it may name a folder), one with '/' against the whole path and the whole relative path, where `*` matches '/' too. `key` is
 * the config key named in errors: a missing path, a pattern that finds nothing, what cannot be read. */
tt_status tt_files_find(tt_arena *a, const char *key, const char *const *sources, int nsources,
			const char *const *exclude, int nexclude, tt_files *out) TT_CHECKED;

/* Hash of what can be told cheaply of a file's content: its size and 64 KiB at its head, middle and tail, all of it where it is no longer than
 * the three. Not of its time: copies of the same text have others. A file that cannot be read hashes as if it had no bytes. `buffer` has room for
 * TT_FILE_SAMPLE. */
#define TT_FILE_SAMPLE (3 * 64 * 1024)
uint64_t tt_file_sample(const tt_file *f, uint8_t *buffer);

#endif
