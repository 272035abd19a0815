/* peer_ashlar.c - ashlar's allocator through its public functions, without and with plans. */
#include "bench/peers/peer.h"

#include "allocator/base/error.h"

#include <ashlar/allocator.h>
#include <ashlar/plan.h>

/* One key for all steps of a list: they differ only in sizes, and the first one is the largest. */
enum { STEP_KEY = 1 };

static ashlar_status create(ashlar_device *device, void **self) {
    ashlar_allocator *allocator = NULL;
    ASHLAR_TRY(ashlar_allocator_create(device, &allocator));
    *self = allocator;
    return ASHLAR_OK;
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
    (void)status; /* cannot fail: take() returned this block */
}

static void usage(void *self, ashlar_peer_usage *out) {
    ashlar_stats stats;
    ashlar_allocator_get_stats(self, &stats);
    *out = (ashlar_peer_usage){stats.reserved_peak_bytes, stats.live_peak_bytes};
}

const ashlar_peer ashlar__peer_ashlar = {
    .name = "ashlar",
    .create = create,
    .destroy = destroy,
    .take = take,
    .give = give,
    .usage = usage,
};

static ashlar_status begin_step(void *self, ashlar_stream stream) {
    return ashlar_step_begin(self, stream, STEP_KEY);
}

static ashlar_status end_step(void *self) {
    return ashlar_step_end(self);
}

const ashlar_peer ashlar__peer_plan = {
    .name = "plan",
    .create = create,
    .destroy = destroy,
    .take = take,
    .give = give,
    .usage = usage,
    .begin_step = begin_step,
    .end_step = end_step,
};
