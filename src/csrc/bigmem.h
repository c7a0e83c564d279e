/* Blocks of several MiB from the system: they grow by moving pages instead of bytes. They ask for
 * huge pages, because page faults are most of the cost of a long message. */
#ifndef WS_BIGMEM_H
#define WS_BIGMEM_H

#ifdef __linux__
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#endif
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#if defined(WIRESPEED_DEBUG)
/* Sanitizers check only memory from malloc. */
#define WS_BIG_FROM ((size_t)-1)
#else
#define WS_BIG_FROM ((size_t)4 << 20)
#endif
#define WS_BIG_UNIT ((size_t)2 << 20)

static inline size_t ws_big_size(size_t n) {
    return (n + WS_BIG_UNIT - 1) & ~(WS_BIG_UNIT - 1);
}

static inline void ws_big_advise(void *p, size_t n) {
#ifdef MADV_HUGEPAGE
    madvise(p, n, MADV_HUGEPAGE); /* advice: a failure changes nothing */
#else
    (void)p, (void)n;
#endif
}

/* n: a multiple of WS_BIG_UNIT. NULL: no memory. */
static inline void *ws_big_alloc(size_t n) {
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    ws_big_advise(p, n);
    return p;
}

static inline void ws_big_free(void *p, size_t n) {
    munmap(p, n);
}

/* Returns the block with room for n bytes, maybe at another address. NULL: no memory; p is kept. */
static inline void *ws_big_grow(void *p, size_t old, size_t n) {
    void *q;
#ifdef MREMAP_MAYMOVE
    q = mremap(p, old, n, MREMAP_MAYMOVE);
    if (q == MAP_FAILED)
        return NULL;
    ws_big_advise(q, n);
#else
    q = ws_big_alloc(n);
    if (q == NULL)
        return NULL;
    memcpy(q, p, old);
    ws_big_free(p, old);
#endif
    return q;
}

/* Bytes that the allocator keeps although nobody uses them; 0 where that is not known. */
static inline size_t ws_kept(void) {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    return mallinfo2().fordblks;
#else
    return 0;
#endif
}

/* Give them back to the system. */
static inline void ws_give_back(void) {
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
}

#endif
