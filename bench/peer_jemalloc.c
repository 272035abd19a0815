/* peer_jemalloc.c - jemalloc, on host memory that is never touched. */
#include "peer.h"

#include <jemalloc/jemalloc.h>

static void *take(void *self, size_t bytes, ashlar_stream stream) {
    (void)self;
    (void)stream;
    return mallocx(bytes, 0);
}

static void give(void *self, void *ptr) {
    (void)self;
    dallocx(ptr, 0);
}

const ashlar_peer *ashlar_peer_jemalloc(void) {
    static const ashlar_peer peer = {.name = "jemalloc", .take = take, .give = give};
    return &peer;
}
