/* peer_none.c - does nothing: what is left is the cost of the benchmark's own loop. */
#include "bench/peers/peer.h"

static char somewhere;

static void *take(void *self, size_t bytes, ashlar_stream stream) {
    (void)self;
    (void)bytes;
    (void)stream;
    return &somewhere;
}

static void give(void *self, void *ptr) {
    (void)self;
    (void)ptr;
}

const ashlar_peer *ashlar__peer_none(void) {
    static const ashlar_peer peer = {.name = "none", .take = take, .give = give};
    return &peer;
}
