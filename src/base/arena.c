/* Arenas: blocks of growing size, given back in the order of a stack.
 *
 * A block's bytes at and above `dirty` have never been handed out since it was zeroed, so an allocation clears only
 * what lies below it. Under AddressSanitizer, memory that is not handed out is poisoned: using metadata after a pop
 * is then found.
 */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#endif
#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n) __asan_poison_memory_region((p), (n))
#define UNPOISON(p, n) __asan_unpoison_memory_region((p), (n))
#else
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

#ifndef TT_ARENA_GAP
#define TT_ARENA_GAP 0 /* poisoned bytes behind each allocation, a multiple of ALIGN; where files are fuzzed */
#endif

enum { ALIGN = 16, FIRST_BLOCK = 16 * 1024, LARGEST_STEP = 4 * 1024 * 1024, HUGE = 2 * 1024 * 1024 };

typedef struct block block;
struct block {
	block *below;
	size_t size, used, dirty; /* bytes of `bytes` */
	size_t mapped;            /* bytes of a mapping of its own; 0: of the heap */
	size_t used_below;        /* bytes used in all blocks below */
	_Alignas(ALIGN) uint8_t bytes[];
};

struct tt_arena {
	const char *name;
	block *top;
	block *spare; /* one popped block is kept: push and pop around a block's end must not call malloc each time */
	int64_t limit;
	int64_t wanted; /* 0, or what the first allocation over the limit would have made of `used` */
};

static void *need(void *p, const tt_arena *a, size_t bytes)
{
	if (!p)
		tt_panic(__FILE__, __LINE__, "arena %s: the machine has no %zu bytes left (%lld resident)", a ? a->name : "new",
			bytes, (long long)tt_memory_resident());
	return p;
}

tt_arena *tt_arena_create(const char *name)
{
	tt_arena *a = need(calloc(1, sizeof *a), NULL, sizeof *a);
	a->name = name;
	return a;
}

#ifndef ARENA_ASAN
/* Large blocks are mappings of huge pages where the system has them: graphs of a thousand layers are hundreds of MiB, each small page of which
 * costs a fault. */
static block *block_map(size_t size)
{
	size_t n = (sizeof(block) + size + HUGE - 1) / HUGE * HUGE;
	uint8_t *p = mmap(NULL, n + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	size_t before = (HUGE - (uintptr_t)p % HUGE) % HUGE;
	if (before)
		munmap(p, before);
	munmap(p + before + n, HUGE - before);
	p += before;
	madvise(p, n, MADV_HUGEPAGE);
	block *b = (block *)(void *)p;
	b->mapped = n;
	b->size = n - sizeof *b;
	return b;
}
#endif

static block *block_new(size_t size)
{
#ifndef ARENA_ASAN
	if (size >= LARGEST_STEP) {
		block *m = block_map(size);
		if (m)
			return m;
	}
#endif
	block *b = calloc(1, sizeof *b + size);
	if (b)
		b->size = size;
	return b;
}

static void block_free(block *b)
{
	if (b)
		UNPOISON(b->bytes, b->size);
	if (b && b->mapped)
		munmap(b, b->mapped);
	else
		free(b);
}

void tt_arena_destroy(tt_arena *a)
{
	if (!a)
		return;
	tt_arena_pop(a, (tt_mark){0});
	block_free(a->spare);
	free(a);
}

void tt_arena_set_limit(tt_arena *a, int64_t bytes) { a->limit = bytes; }

tt_status tt_arena_ok(const tt_arena *a)
{
	if (a->wanted)
		TT_FAIL(TT_ERR_MEMORY, "arena %s: needs %lld bytes or more, its limit is %lld", a->name, (long long)a->wanted,
			(long long)a->limit);
	return TT_OK;
}

size_t tt_arena_used(const tt_arena *a) { return a->top ? a->top->used_below + a->top->used : 0; }

static void block_push(tt_arena *a, size_t bytes)
{
	size_t size = a->top ? TT_MIN(a->top->size * 2, (size_t)LARGEST_STEP) : FIRST_BLOCK;
	size = TT_MAX(size, bytes);
	size_t below = tt_arena_used(a);
	block *b = a->spare;
	if (b && b->size >= bytes) {
		a->spare = NULL;
	} else {
		b = need(block_new(size), a, size);
		POISON(b->bytes, b->size);
	}
	b->used = 0;
	b->used_below = below;
	b->below = a->top;
	a->top = b;
}

void *tt_arena_alloc(tt_arena *a, size_t bytes)
{
	TT_ASSERT(bytes <= SIZE_MAX / 4, "arena %s: allocation of %zu bytes", a->name, bytes);
	size_t n = (TT_MAX(bytes, (size_t)1) + ALIGN - 1) / ALIGN * ALIGN + TT_ARENA_GAP;
	if (a->limit && !a->wanted && (int64_t)(tt_arena_used(a) + n) > a->limit)
		a->wanted = (int64_t)(tt_arena_used(a) + n);
	if (!a->top || a->top->size - a->top->used < n)
		block_push(a, n);
	block *b = a->top;
	uint8_t *p = b->bytes + b->used;
	UNPOISON(p, n);
	if (b->used < b->dirty)
		memset(p, 0, TT_MIN(n, b->dirty - b->used));
	b->used += n;
	b->dirty = TT_MAX(b->dirty, b->used);
	/* The bytes between what was asked and the next unit stay poisoned: overruns are found to the byte. */
	POISON(p + TT_MAX(bytes, (size_t)1), n - TT_MAX(bytes, (size_t)1));
	return p;
}

tt_mark tt_arena_push(tt_arena *a) { return (tt_mark){a->top, a->top ? a->top->used : 0}; }

void tt_arena_pop(tt_arena *a, tt_mark m)
{
	while (a->top && a->top != m.block) {
		block *b = a->top;
		a->top = b->below;
		block *drop = a->spare && a->spare->size >= b->size ? b : a->spare;
		if (drop != b) {
			POISON(b->bytes, b->size);
			a->spare = b;
		}
		block_free(drop);
	}
	TT_ASSERT(a->top == m.block, "arena %s: popped to a mark that is not of this arena, or already gone", a->name);
	if (!a->top)
		return;
	TT_ASSERT(m.used <= a->top->used, "arena %s: popped to a mark above its end", a->name);
	a->top->used = m.used;
	POISON(a->top->bytes + m.used, a->top->size - m.used);
}

char *tt_arena_strndup(tt_arena *a, const char *s, size_t n)
{
	char *p = tt_arena_alloc(a, n + 1);
	memcpy(p, s, n);
	return p;
}

char *tt_arena_strdup(tt_arena *a, const char *s) { return tt_arena_strndup(a, s, strlen(s)); }

char *tt_arena_printf(tt_arena *a, const char *fmt, ...)
{
	va_list args, again;
	va_start(args, fmt);
	va_copy(again, args);
	int n = vsnprintf(NULL, 0, fmt, args);
	va_end(args);
	TT_ASSERT(n >= 0, "cannot format \"%s\"", fmt);
	char *p = tt_arena_alloc(a, (size_t)n + 1);
	vsnprintf(p, (size_t)n + 1, fmt, again);
	va_end(again);
	return p;
}

void *tt_arena_grow(tt_arena *a, void *items, int64_t n, int64_t *cap, size_t size)
{
	int64_t more = TT_MAX(*cap * 2, (int64_t)8);
	void *p = tt_arena_alloc(a, (size_t)more * size);
	if (n)
		memcpy(p, items, (size_t)n * size);
	*cap = more;
	return p;
}
