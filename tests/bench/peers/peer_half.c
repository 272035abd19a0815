/*
 * peer_half.c - a shared object for ashlar-bench's --peer that has `alloc`, and no `free`; but two
 * functions of other names, which do what they should.
 */
#include <stdlib.h>

#include <ashlar/base.h>

ASHLAR_API void *alloc(size_t bytes, int device, void *stream);
ASHLAR_API void *half_take(size_t bytes, int device, void *stream);
ASHLAR_API void half_give(void *ptr, size_t bytes, int device, void *stream);

void *alloc(size_t bytes, int device, void *stream) {
    (void)bytes;
    (void)device;
    (void)stream;
    return NULL;
}

void *half_take(size_t bytes, int device, void *stream) {
    (void)device;
    (void)stream;
    return malloc(bytes);
}

void half_give(void *ptr, size_t bytes, int device, void *stream) {
    (void)bytes;
    (void)device;
    (void)stream;
    free(ptr);
}
