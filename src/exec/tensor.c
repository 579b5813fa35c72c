/* tensor.c: the allocator's door to tensor bytes. Checkpoint, loader, metrics and tests come through here, so that a device whose
 * memory the host cannot reach needs another version of this file and no other. */
#include "exec/internal.h"

tt_status regions_reach(tt_exec *e, bool reachable)
{
	for (int r = 0; r < TT_EXEC_NREGIONS; r++)
		TT_TRY(tt_region_protect(&e->region[r], reachable));
	return TT_OK;
}

static bool in_planes(const tt_exec *e, const tt_slot *s)
{
	return s->dtype == TT_ACC && e->o.numerics == TT_EXACT && !e->o.f64;
}

/* Bytes of an element in one plane. */
static int64_t element(const tt_exec *e, const tt_slot *s)
{
	return in_planes(e, s) ? (int64_t)sizeof(int64_t) : tt_dtype_size(s->dtype, e->o.numerics, e->o.f64);
}

int64_t tt_tensor_bytes(const tt_exec *e, const tt_slot *s, int64_t n) { return n * tt_dtype_size(s->dtype, e->o.numerics, e->o.f64); }

/* Address of element `at` of plane 0. */
static tt_status locate(tt_exec *e, const tt_slot *s, int64_t at, int64_t n, uint8_t **out)
{
	TT_ASSERT(e->is_reserved, "%s: tensors are reachable after reserve", s->name);
	if (at < 0 || n < 0 || at > s->count - n)
		TT_FAIL(TT_ERR_TYPE, "%s: elements %lld to %lld of %lld", s->name, (long long)at, (long long)(at + n), (long long)s->count);
	if (s->frame < 0 || s->frame >= e->o.nframes)
		TT_FAIL(TT_ERR_TYPE, "%s: frame %d of %d", s->name, s->frame, e->o.nframes);
	*out = e->region[s->region].p + s->offset + s->frame * s->frame_stride + at * element(e, s);
	return TT_OK;
}

static tt_status move(tt_exec *e, const tt_slot *s, int64_t at, void *dst, const void *src, int64_t n)
{
	uint8_t *p;
	TT_TRY(locate(e, s, at, n, &p));
	if (e->o.protect)
		TT_TRY(tt_region_protect(&e->region[s->region], true));
	size_t bytes = (size_t)(n * element(e, s));
	e->fresh &= !src;
	for (int j = 0; j < (in_planes(e, s) ? 3 : 1) && bytes; j++) {
		if (src)
			memcpy(p + j * s->plane, (const uint8_t *)src + (size_t)j * bytes, bytes);
		else
			memcpy((uint8_t *)dst + (size_t)j * bytes, p + j * s->plane, bytes);
	}
	return e->o.protect ? tt_region_protect(&e->region[s->region], false) : TT_OK;
}

tt_status tt_tensor_write(tt_exec *e, const tt_slot *s, int64_t at, const void *src, int64_t n) { return move(e, s, at, NULL, src, n); }
tt_status tt_tensor_read(tt_exec *e, const tt_slot *s, int64_t at, void *dst, int64_t n) { return move(e, s, at, dst, NULL, n); }

tt_status tt_exec_write(tt_exec *e, const char *name, int64_t at, const void *src, int64_t n)
{
	tt_slot s;
	TT_TRY(tt_exec_slot(e, name, &s));
	return tt_tensor_write(e, &s, at, src, n);
}

tt_status tt_exec_read(tt_exec *e, const char *name, int64_t at, void *dst, int64_t n)
{
	tt_slot s;
	TT_TRY(tt_exec_slot(e, name, &s));
	return tt_tensor_read(e, &s, at, dst, n);
}

/* Σ over n elements, of `size` bytes in each plane; the first has logical index `first`. */
static uint64_t hash_elements(const uint8_t *p, int64_t size, int planes, int64_t plane, int64_t first, int64_t n)
{
	uint64_t sum = 0;
	for (int64_t i = 0; i < n; i++) {
		uint64_t h = tt_hash_index(first + i);
		for (int j = 0; j < planes; j++) {
			uint64_t bits = 0; /* little endian: the low bytes are the element */
			memcpy(&bits, p + j * plane + i * size, (size_t)size);
			h = tt_hash_element(h, bits);
		}
		sum += h;
	}
	return sum;
}

uint64_t operand_hash(const tt_exec *e, const tt_arg *a, int64_t count)
{
	bool planes = a->plane != 0;
	int64_t size = planes ? (int64_t)sizeof(int64_t) : tt_dtype_size(a->dtype, e->o.numerics, e->o.f64);
	return hash_elements(a->p, size, planes ? 3 : 1, a->plane, 0, count);
}

tt_probe_bytes tt_probe_read(const tt_exec *e, const tt_arg *a, void *dst)
{
	tt_probe_bytes b = {.lines = a->ndim > 0 ? a->n[0] : 1, .width = 1, .planes = a->plane ? 3 : 1};
	b.size = a->plane ? (int64_t)sizeof(int64_t) : tt_dtype_size(a->dtype, e->o.numerics, e->o.f64);
	for (int d = 1; d < a->ndim; d++)
		b.width *= a->n[d];
	int64_t ld = a->ndim > 1 ? a->ld : 1;
	uint8_t *to = dst;
	for (int64_t j = 0; dst && j < b.planes; j++)
		for (int64_t l = 0; l < b.lines; l++, to += b.width * b.size)
			memcpy(to, (const uint8_t *)a->p + j * a->plane + l * ld * b.size, (size_t)(b.width * b.size));
	return b;
}

tt_status tt_tensor_hash(tt_exec *e, const tt_slot *s, int64_t first, int64_t n, uint64_t *out)
{
	if (s->format != TT_PLAIN)
		TT_FAIL(TT_ERR_TYPE, "%s: the hash of a tensor goes by logical index, it lies as %s", s->name, tt_format_name(s->format));
	uint8_t *p;
	TT_TRY(locate(e, s, 0, n, &p));
	if (e->o.protect)
		TT_TRY(tt_region_protect(&e->region[s->region], true));
	uint64_t sum = hash_elements(p, element(e, s), in_planes(e, s) ? 3 : 1, s->plane, first, n);
	if (e->o.protect)
		TT_TRY(tt_region_protect(&e->region[s->region], false));
	*out = sum;
	return TT_OK;
}
