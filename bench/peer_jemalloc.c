#include "peer.h"

#include <jemalloc/jemalloc.h>

static void *take(void *self, size_t bytes) {
    (void)self;
    return mallocx(bytes, 0);
}

static void give(void *self, void *ptr) {
    (void)self;
    dallocx(ptr, 0);
}

ashlar_peer ashlar_peer_jemalloc(void) {
    return (ashlar_peer){.name = "jemalloc", .take = take, .give = give};
}
