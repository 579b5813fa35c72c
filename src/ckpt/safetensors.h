/* safetensors: the file format of Hugging Face weights, read.
 *
 * A file is: 8 bytes, the header's length N (little endian); N bytes of JSON, a map from tensor name to {dtype, shape,
 * data_offsets [begin, end)}, with an optional "__metadata__" of strings; then the tensors' bytes, row-major, little
 * endian. Everything is checked when a file is opened, as the format demands: the tensors cover the bytes after the header
 * without overlap or hole. What is not so is one error that names file, tensor and both values; nothing is read past it.
 *
 * This file is not about what names and shapes mean: ckpt/ and model/ know that.
 */
#ifndef TT_CKPT_SAFETENSORS_H
#define TT_CKPT_SAFETENSORS_H

#include "base/fs.h"

#define TT_ST_MAX_DIMS 8
#define TT_ST_MAX_HEADER (100 * 1000 * 1000) /* bytes, the format's own limit */

typedef enum tt_st_dtype {
	TT_ST_BOOL, TT_ST_U8, TT_ST_I8, TT_ST_F8_E5M2, TT_ST_F8_E4M3, TT_ST_F8_E8M0, TT_ST_I16, TT_ST_U16, TT_ST_F16, TT_ST_BF16,
	TT_ST_I32, TT_ST_U32, TT_ST_F32, TT_ST_I64, TT_ST_U64, TT_ST_F64,
	TT_ST_NDTYPES,
} tt_st_dtype;
const char *tt_st_dtype_name(tt_st_dtype d); /* "BF16": as the file spells it */
int tt_st_dtype_size(tt_st_dtype d);         /* bytes of an element */

typedef struct tt_st_tensor {
	const char *name;
	const char *file; /* path of the file it stands in */
	tt_st_dtype dtype;
	int ndim;         /* 0: a scalar, count 1 */
	int64_t dim[TT_ST_MAX_DIMS];
	int64_t count;    /* elements */
	const uint8_t *p; /* count * size bytes of the mapped file; at any alignment. NULL: not mapped */
	int64_t at;       /* first byte in the file */
	int64_t bytes;
} tt_st_tensor;

typedef struct tt_st tt_st;

/* Opens a file, or a folder: its model.safetensors, else the shards of its model.safetensors.index.json. Metadata lives in
 * `a`, the files stay mapped until tt_st_close. */
tt_status tt_st_open(tt_arena *a, const char *path, tt_st **out) TT_CHECKED;
/* Reads the headers of these files through `fs` and maps nothing; `name` is what messages call them together. A checkpoint reads
 * its bytes itself: through a mapping, a bad sector would be a signal instead of an error. */
tt_status tt_st_open_headers(tt_arena *a, const tt_fs *fs, const char *name, const char *const *paths, int64_t n, tt_st **out) TT_CHECKED;
void tt_st_close(tt_st *st); /* accepts NULL; the tensors' bytes are gone after it */

const char *tt_st_path(const tt_st *st); /* as given to tt_st_open */
int64_t tt_st_count(const tt_st *st);
const tt_st_tensor *tt_st_at(const tt_st *st, int64_t i);               /* in bytewise order of names */
const tt_st_tensor *tt_st_find(const tt_st *st, const char *name);      /* NULL: there is none */
const char *tt_st_metadata(const tt_st *st, const char *key);           /* of the first file that has it; NULL: none */
/* As tt_st_find; a missing tensor is an error that names the nearest. */
tt_status tt_st_get(const tt_st *st, const char *name, const tt_st_tensor **out) TT_CHECKED;
/* Error with both shapes unless the tensor has exactly these dims. */
tt_status tt_st_expect(const tt_st_tensor *t, int ndim, const int64_t *dim) TT_CHECKED;

/* Elements [first, first+n) converted into the caller's memory; outside the tensor is an error. Floats go to floats (each
 * rounded to nearest even where the target is narrower), whole numbers and BOOL to i32 (a value that does not fit is an
 * error); any other pair is refused by name. */
tt_status tt_st_read_f32(const tt_st_tensor *t, int64_t first, int64_t n, float *out) TT_CHECKED;
tt_status tt_st_read_f64(const tt_st_tensor *t, int64_t first, int64_t n, double *out) TT_CHECKED;
tt_status tt_st_read_i32(const tt_st_tensor *t, int64_t first, int64_t n, int32_t *out) TT_CHECKED;

#endif
