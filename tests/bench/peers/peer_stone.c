/*
 * peer_stone.c - a shared object that ashlar-bench loads with --peer: pages of host memory, a
 * mapping each. It ends the process where it is given back something else than it gave.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <ashlar/base.h>

enum { PAGE_BYTES = 4096 };

/* At the front of the page before the block. */
typedef struct stone {
    size_t bytes;
    int device;
    void *stream;
} stone;

/* A definition named "free" would be one of the C library's function, of which C knows the type. */
ASHLAR_API void *stone_alloc(size_t bytes, int device, void *stream) __asm__("alloc");
ASHLAR_API void stone_free(void *ptr, size_t bytes, int device, void *stream) __asm__("free");

void *stone_alloc(size_t bytes, int device, void *stream) {
    stone *page = mmap(NULL, PAGE_BYTES + bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (page == MAP_FAILED) {
        return NULL;
    }
    *page = (stone){bytes, device, stream};
    return (unsigned char *)page + PAGE_BYTES;
}

void stone_free(void *ptr, size_t bytes, int device, void *stream) {
    stone *page = (stone *)(void *)((unsigned char *)ptr - PAGE_BYTES);
    if (page->bytes != bytes || page->device != device || page->stream != stream ||
        munmap(page, PAGE_BYTES + bytes) != 0) {
        abort();
    }
}
