/* fs: the file operations that a checkpoint is made of, as a table, so that a test can make any one of them fail.
 *
 * Each function does what the call of its name does, and like it returns -1 and sets errno on failure; interrupted calls are taken
 * up again by the helpers below. A table that wraps another holds it behind its own first member and finds it by the
 * `fs` argument. Helpers turn errno into a text that names the path.
 */
#ifndef TT_BASE_FS_H
#define TT_BASE_FS_H

#include <sys/stat.h>
#include <sys/types.h>

#include "base/base.h"

typedef struct tt_fs tt_fs;
struct tt_fs {
	int (*open)(const tt_fs *fs, const char *path, int flags, int mode);
	ssize_t (*pread)(const tt_fs *fs, int fd, void *p, size_t n, int64_t at);
	ssize_t (*pwrite)(const tt_fs *fs, int fd, const void *p, size_t n, int64_t at);
	int (*writeback)(const tt_fs *fs, int fd, int64_t at, int64_t n); /* starts writing these bytes out; a hint */
	/* Past the page cache, or through it again. A file system that cannot says so; then everything goes through it. */
	int (*direct)(const tt_fs *fs, int fd, bool on);
	int (*fsync)(const tt_fs *fs, int fd);
	int (*close)(const tt_fs *fs, int fd);
	int (*rename)(const tt_fs *fs, const char *from, const char *to);
	int (*exchange)(const tt_fs *fs, const char *a, const char *b); /* swaps two names in one go; not every file system can */
	int (*unlink)(const tt_fs *fs, const char *path);
	int (*mkdir)(const tt_fs *fs, const char *path);
	int (*rmdir)(const tt_fs *fs, const char *path);
	int (*stat)(const tt_fs *fs, const char *path, struct stat *out);
	/* each(ctx, name) for every entry but . and .. */
	int (*list)(const tt_fs *fs, const char *path, void (*each)(void *ctx, const char *name), void *ctx);
	int64_t (*space)(const tt_fs *fs, const char *path); /* bytes that this user may still write */
};
extern const tt_fs tt_fs_posix;

/* What this is, if it is no file whose bytes can be read: "a folder", "a FIFO", "a socket", "a device"; NULL: it is one. */
const char *tt_fs_not_file(const struct stat *st);

tt_status tt_fs_open_write(const tt_fs *fs, const char *path, int *fd) TT_CHECKED; /* a new file; one that is there is an error */
tt_status tt_fs_open_read(const tt_fs *fs, const char *path, int *fd) TT_CHECKED;
tt_status tt_fs_open_there(const tt_fs *fs, const char *path, int *fd) TT_CHECKED; /* to write; one that is not there is an error */
/* All n bytes, or an error. `path` is for its text. */
tt_status tt_fs_pwrite(const tt_fs *fs, int fd, const char *path, const void *p, size_t n, int64_t at) TT_CHECKED;
tt_status tt_fs_pread(const tt_fs *fs, int fd, const char *path, void *p, size_t n, int64_t at) TT_CHECKED;
/* The same of a whole block, past the page cache if fs can. `p`, `n` and `at` are multiples of TT_FS_ALIGN, else it goes through the cache.
 * Fresh pages of the cache can cost more than the disk does: where a virtual machine's memory is backed on touch, writing through it
 * was measured at a fifth of the speed. */
#define TT_FS_ALIGN 4096
tt_status tt_fs_pwrite_block(const tt_fs *fs, int fd, const char *path, const void *p, size_t n, int64_t at) TT_CHECKED;
tt_status tt_fs_pread_block(const tt_fs *fs, int fd, const char *path, void *p, size_t n, int64_t at) TT_CHECKED;
tt_status tt_fs_sync(const tt_fs *fs, int fd, const char *path) TT_CHECKED;
/* Closes, also after an error; of a file that was synced, the close itself has nothing left to lose. */
void tt_fs_close(const tt_fs *fs, int fd);
/* What a folder says about its entries, on the disk. */
tt_status tt_fs_sync_folder(const tt_fs *fs, const char *path) TT_CHECKED;
tt_status tt_fs_rename(const tt_fs *fs, const char *from, const char *to) TT_CHECKED;
/* A new file with these bytes, on the disk. */
tt_status tt_fs_write_file(const tt_fs *fs, const char *path, const void *bytes, size_t n) TT_CHECKED;
/* Whole file, at most `most` bytes, NUL-terminated after `*n`. */
tt_status tt_fs_read_file(tt_arena *a, const tt_fs *fs, const char *path, size_t most, char **out, size_t *n) TT_CHECKED;
tt_status tt_fs_mkdirs(const tt_fs *fs, const char *path) TT_CHECKED;
bool tt_fs_exists(const tt_fs *fs, const char *path);
/* Names in a folder, bytewise sorted. */
tt_status tt_fs_names(tt_arena *a, const tt_fs *fs, const char *path, char ***out, int64_t *n) TT_CHECKED;
/* Removes a folder and the files in it; a folder inside is left and makes it an error. */
tt_status tt_fs_remove_folder(const tt_fs *fs, const char *path) TT_CHECKED;

/* A new folder of the system's own, "$TMPDIR/NAME-XXXXXX", in /tmp if TMPDIR says nothing. */
tt_status tt_fs_temp(tt_arena *a, const char *name, char **out) TT_CHECKED;
/* A folder with all that is in it, as far as that goes. Links are not followed. */
void tt_fs_temp_remove(const char *path);

#endif
