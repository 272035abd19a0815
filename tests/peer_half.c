/*
 * peer_half.c - a shared object for ashlar-bench's --peer that has `alloc`, and no `free`; but two
 * functions of other names, which do nothing.
 */
#include <stddef.h>

#include <ashlar/export.h>

ASHLAR_API void *alloc(size_t bytes, int device, void *stream);
ASHLAR_API void *half_take(size_t bytes, int device, void *stream);
ASHLAR_API void half_give(void *ptr, size_t bytes, int device, void *stream);

static char block;

void *alloc(size_t bytes, int device, void *stream) {
    (void)bytes;
    (void)device;
    (void)stream;
    return NULL;
}

void *half_take(size_t bytes, int device, void *stream) {
    (void)bytes;
    (void)device;
    (void)stream;
    return &block;
}

void half_give(void *ptr, size_t bytes, int device, void *stream) {
    (void)ptr;
    (void)bytes;
    (void)device;
    (void)stream;
}
