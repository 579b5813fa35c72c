/* Counts allocations by standing in front of the C library's allocator. */
#include "test.h"

#include <errno.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#if defined(__GLIBC__) && !defined(SANITIZED)

static _Atomic bool counting;
static _Atomic int64_t count;

/* glibc's own entry points, there for exactly this use. */
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);
extern void __libc_free(void *p);

static void note(void)
{
	if (atomic_load_explicit(&counting, memory_order_relaxed))
		atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
}

void *malloc(size_t n)
{
	note();
	return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	note();
	return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	note();
	return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
	note();
	return __libc_memalign(align, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
	note();
	if (align % sizeof(void *) || (align & (align - 1)) || !align)
		return EINVAL;
	void *p = __libc_memalign(align, n);
	if (!p)
		return ENOMEM;
	*out = p;
	return 0;
}

void free(void *p) { __libc_free(p); }

bool tt_malloc_count_available(void) { return true; }

void tt_malloc_count_begin(void)
{
	atomic_store(&count, 0);
	atomic_store(&counting, true);
}

int64_t tt_malloc_count_end(void)
{
	atomic_store(&counting, false);
	return atomic_load(&count);
}

#else

bool tt_malloc_count_available(void) { return false; }
void tt_malloc_count_begin(void) {}
int64_t tt_malloc_count_end(void) { return 0; }

#endif
