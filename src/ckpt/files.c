/* files.c: safetensors files to be written: which tensor goes where, and the bytes of any block of a file.
 *
 * A header is spelled as the safetensors library spells it (metadata first, tensors by falling element size, then name; compact;
 * blanks up to a multiple of 8), so that a tensor file that comes in and goes out unchanged is the same file.
 */
#include <stdlib.h>

#include "ckpt/internal.h"

bool ckpt_is_float(tt_st_dtype d) { return d == TT_ST_F64 || d == TT_ST_F32 || d == TT_ST_F16 || d == TT_ST_BF16; }

const char *ckpt_torch_dtype(tt_st_dtype d)
{
	return d == TT_ST_F64 ? "float64" : d == TT_ST_F32 ? "float32" : d == TT_ST_F16 ? "float16" : d == TT_ST_BF16 ? "bfloat16" : NULL;
}

/* ---- elements -------------------------------------------------------------------------------------------------------- */

enum { CHUNK = CKPT_CHUNK };

static void to_f32(float *dst, const uint8_t *src, tt_st_dtype in, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		uint16_t h;
		double d;
		if (in == TT_ST_F64) {
			memcpy(&d, src + 8 * i, 8);
			dst[i] = (float)d;
		} else {
			memcpy(&h, src + 2 * i, 2);
			dst[i] = in == TT_ST_BF16 ? tt_bf16_to_f32(h) : tt_f16_to_f32(h);
		}
	}
}

static void from_f32(uint8_t *dst, tt_st_dtype out, const float *src, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		uint16_t h = out == TT_ST_BF16 ? tt_f32_to_bf16(src[i]) : tt_f32_to_f16(src[i]);
		double d = src[i];
		if (out == TT_ST_F64)
			memcpy(dst + 8 * i, &d, 8);
		else
			memcpy(dst + 2 * i, &h, 2);
	}
}

void ckpt_convert(void *dst, tt_st_dtype out, const void *src, tt_st_dtype in, int64_t n)
{
	int si = tt_st_dtype_size(in), so = tt_st_dtype_size(out);
	if (in == out) {
		memcpy(dst, src, (size_t)(n * si));
		return;
	}
	TT_ASSERT(ckpt_is_float(in) && ckpt_is_float(out), "%s to %s", tt_st_dtype_name(in), tt_st_dtype_name(out));
	/* By way of float: exact but from double to a half, where the double has been rounded to float before. */
	float f[CHUNK];
	for (int64_t i = 0; i < n; i += CHUNK) {
		int64_t m = TT_MIN((int64_t)CHUNK, n - i);
		const uint8_t *s = (const uint8_t *)src + i * si;
		uint8_t *d = (uint8_t *)dst + i * so;
		if (in == TT_ST_F32)
			memcpy(f, s, (size_t)m * 4);
		else
			to_f32(f, s, in, m);
		if (out == TT_ST_F32)
			memcpy(d, f, (size_t)m * 4);
		else
			from_f32(d, out, f, m);
	}
}

/* ---- placing --------------------------------------------------------------------------------------------------------- */

static int piece_order(const void *a, const void *b)
{
	const ckpt_piece *x = a, *y = b;
	int sx = tt_st_dtype_size(x->out), sy = tt_st_dtype_size(y->out);
	return sx != sy ? sy - sx : strcmp(x->name, y->name);
}

static void add_json_string(tt_buf *b, const char *s)
{
	tt_buf_str(b, "\"");
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			tt_buf_printf(b, "\\%c", *s);
		else if ((unsigned char)*s < 0x20)
			tt_buf_printf(b, "\\u%04x", *s);
		else
			tt_buf_add(b, s, 1);
	}
	tt_buf_str(b, "\"");
}

static void file_head(tt_arena *a, ckpt_file *f)
{
	tt_buf b = { 0 };
	tt_buf_add(&b, "\0\0\0\0\0\0\0\0", 8);
	tt_buf_str(&b, "{\"__metadata__\":{\"format\":\"pt\"}");
	int64_t at = 0;
	for (int64_t i = 0; i < f->npieces; i++) {
		ckpt_piece *p = &f->pieces[i];
		tt_buf_str(&b, ",");
		add_json_string(&b, p->name);
		tt_buf_printf(&b, ":{\"dtype\":\"%s\",\"shape\":[", tt_st_dtype_name(p->out));
		for (int d = 0; d < p->ndim; d++)
			tt_buf_printf(&b, "%s%lld", d ? "," : "", (long long)p->dim[d]);
		tt_buf_printf(&b, "],\"data_offsets\":[%lld,%lld]}", (long long)at, (long long)(at + p->bytes));
		p->at = at;
		at += p->bytes;
	}
	tt_buf_str(&b, "}");
	while (b.n % 8)
		tt_buf_str(&b, " ");
	uint64_t n = b.n - 8;
	memcpy(b.s, &n, 8);
	f->nhead = (int64_t)b.n;
	f->head = memcpy(tt_arena_alloc(a, b.n), b.s, b.n);
	tt_buf_fini(&b);
	for (int64_t i = 0; i < f->npieces; i++)
		f->pieces[i].at += f->nhead;
	f->bytes = f->nhead + at;
	f->nblocks = tt_ceil_div(f->bytes, TT_CKPT_BLOCK);
	f->sums = TT_NEWN(a, uint64_t, f->nblocks);
}

static const char *index_text(tt_arena *a, const ckpt_file *files, int64_t n, int64_t total)
{
	tt_buf b = { 0 };
	tt_buf_printf(&b, "{\n  \"metadata\": {\n    \"total_size\": %lld\n  },\n  \"weight_map\": {", (long long)total);
	const char *comma = "";
	for (int64_t i = 0; i < n; i++)
		for (int64_t k = 0; k < files[i].npieces; k++) {
			tt_buf_printf(&b, "%s\n    ", comma);
			add_json_string(&b, files[i].pieces[k].name);
			tt_buf_printf(&b, ": \"%s\"", files[i].name);
			comma = ",";
		}
	tt_buf_str(&b, "\n  }\n}\n");
	const char *text = tt_arena_strdup(a, b.s);
	tt_buf_fini(&b);
	return text;
}

void ckpt_files_plan(tt_arena *a, const char *stem, ckpt_piece *pieces, int64_t n, int64_t shard_bytes, ckpt_file **out, int64_t *nout,
		     int64_t *cap, const char **index)
{
	int64_t first = *nout, total = 0;
	for (int64_t i = 0; i < n; i++) {
		ckpt_piece *p = &pieces[i];
		p->count = 1;
		for (int d = 0; d < p->ndim; d++)
			p->count *= p->dim[d];
		p->bytes = p->count * tt_st_dtype_size(p->out);
		total += p->bytes;
	}
	if (n)
		qsort(pieces, (size_t)n, sizeof *pieces, piece_order);
	int64_t begin = 0;
	do {
		int64_t end = begin, bytes = 0;
		/* A tensor larger than a shard has one to itself. */
		while (end < n && (!shard_bytes || end == begin || bytes + pieces[end].bytes <= shard_bytes))
			bytes += pieces[end++].bytes;
		ckpt_file f = { .pieces = pieces + begin, .npieces = end - begin };
		file_head(a, &f);
		TT_PUSH(a, *out, *nout, *cap, f);
		begin = end;
	} while (begin < n);
	int64_t made = *nout - first;
	for (int64_t i = 0; i < made; i++)
		(*out)[first + i].name = made == 1 ? tt_arena_printf(a, "%s.safetensors", stem)
						   : tt_arena_printf(a, "%s-%05lld-of-%05lld.safetensors", stem, (long long)i + 1, (long long)made);
	if (made > 1)
		*index = index_text(a, *out + first, made, total);
}

/* ---- bytes ----------------------------------------------------------------------------------------------------------- */

static tt_status piece_fill(const ckpt_piece *p, int64_t first, int64_t n, tt_ckpt_read_fn *read, void *ctx, uint8_t *dst)
{
	if (p->in == p->out)
		return read(ctx, p->index, first, n, dst);
	double part[CHUNK]; /* room for the widest */
	int so = tt_st_dtype_size(p->out);
	for (int64_t i = 0; i < n; i += CHUNK) {
		int64_t m = TT_MIN((int64_t)CHUNK, n - i);
		TT_TRY(read(ctx, p->index, first + i, m, part));
		ckpt_convert(dst + i * so, p->out, part, p->in, m);
	}
	return TT_OK;
}

int64_t ckpt_file_first(const ckpt_file *f, int64_t lo)
{
	int64_t a = 0, b = f->npieces;
	while (a < b) {
		int64_t m = (a + b) / 2;
		if (f->pieces[m].at + f->pieces[m].bytes <= lo)
			a = m + 1;
		else
			b = m;
	}
	return a;
}

tt_status ckpt_file_fill(const ckpt_file *f, int64_t lo, int64_t hi, tt_ckpt_read_fn *read, void *ctx, uint8_t *dst)
{
	if (lo < f->nhead)
		memcpy(dst, f->head + lo, (size_t)(TT_MIN(hi, f->nhead) - lo));
	for (int64_t a = ckpt_file_first(f, lo); a < f->npieces && f->pieces[a].at < hi; a++) {
		const ckpt_piece *p = &f->pieces[a];
		int64_t from = TT_MAX(lo, p->at), to = TT_MIN(hi, p->at + p->bytes), size = tt_st_dtype_size(p->out);
		if (from >= to)
			continue;
		/* Elements never lie across a block's edge: the header is a multiple of 8, sizes fall along the file. */
		TT_ASSERT((from - p->at) % size == 0 && (to - p->at) % size == 0, "%s: an element across bytes %lld", p->name, (long long)hi);
		TT_TRY(piece_fill(p, (from - p->at) / size, (to - from) / size, read, ctx, dst + (from - lo)));
	}
	return TT_OK;
}
