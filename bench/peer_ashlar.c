/* peer_ashlar.c - ashlar's allocator, through its public functions. */
#include "peer.h"

#include <ashlar/allocator.h>

static ashlar_status create(ashlar_device *device, void **self) {
    ashlar_allocator *allocator = NULL;
    const ashlar_status status = ashlar_allocator_create(device, &allocator);
    if (status == ASHLAR_OK) {
        *self = allocator;
    }
    return status;
}

static void destroy(void *self) {
    ashlar_allocator_destroy(self);
}

static void *take(void *self, size_t bytes, ashlar_stream stream) {
    void *ptr = NULL;
    return ashlar_alloc(self, bytes, stream, &ptr) == ASHLAR_OK ? ptr : NULL;
}

static void give(void *self, void *ptr) {
    const ashlar_status status = ashlar_free(self, ptr);
    (void)status; /* a block that take() gave */
}

static void usage(void *self, ashlar_peer_usage *out) {
    ashlar_stats stats;
    ashlar_stats_read(self, &stats);
    *out = (ashlar_peer_usage){stats.reserved_peak_bytes, stats.live_peak_bytes};
}

const ashlar_peer *ashlar_peer_ashlar(void) {
    static const ashlar_peer peer = {
        .name = "ashlar",
        .create = create,
        .destroy = destroy,
        .take = take,
        .give = give,
        .usage = usage,
    };
    return &peer;
}
