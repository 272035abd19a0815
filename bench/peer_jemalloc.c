/*
 * peer_jemalloc.c - jemalloc, on host memory that is never touched.
 *
 * A program that is linked with it has its malloc in place of the C library's. That is called here
 * and not mallocx(), which has no short path for a hit. (With a sanitizer it is the sanitizer's.)
 */
#include "peer.h"

#include <stdlib.h>

static void *take(void *self, size_t bytes, ashlar_stream stream) {
    (void)self;
    (void)stream;
    return malloc(bytes);
}

static void give(void *self, void *ptr) {
    (void)self;
    free(ptr);
}

const ashlar_peer *ashlar_peer_jemalloc(void) {
    static const ashlar_peer peer = {.name = "jemalloc", .take = take, .give = give};
    return &peer;
}
