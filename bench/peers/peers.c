/* peers.c - the list of all peers, and the plain ones: ashlar without and with plans, the driver,
 * and the empty loop. */
#include "bench/peers/peer.h"

#include <string.h>

#include <ashlar/allocator.h>
#include <ashlar/plan.h>

#include "allocator/base/error.h"
#include "allocator/device/device_impl.h"

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

/* --- the driver's plain allocation: one driver call for each take or give --------------------- */

static ashlar_status create_driver(ashlar_device *device, void **self) {
    *self = device;
    return ASHLAR_OK;
}

static ashlar_status enter_driver(void *self, size_t thread) {
    (void)thread;
    return ashlar__device_enter(self);
}

static void leave_driver(void *self) {
    ashlar__device_leave(self);
}

static void *take_driver(void *self, size_t bytes, ashlar_stream stream) {
    ashlar_device *device = self;
    cu_ptr ptr = 0;
    (void)stream;
    const cu_result result = ASHLAR_DRIVER_CALL(device->driver, mem_alloc, (&ptr, bytes));
    return result == CU_SUCCESS ? ashlar__ptr_out(ptr) : NULL;
}

static void give_driver(void *self, void *ptr) {
    ashlar_device *device = self;
    (void)ASHLAR_DRIVER_CALL(device->driver, mem_free, (ashlar__ptr_in(ptr)));
}

const ashlar_peer ashlar__peer_driver = {
    .name = "driver",
    .create = create_driver,
    .enter = enter_driver,
    .leave = leave_driver,
    .take = take_driver,
    .give = give_driver,
    .has_few_blocks = true,
};

/* --- nothing: what the loop itself costs ----------------------------------------------------- */

static char somewhere;

static void *take_none(void *self, size_t bytes, ashlar_stream stream) {
    (void)self;
    (void)bytes;
    (void)stream;
    return &somewhere;
}

static void give_none(void *self, void *ptr) {
    (void)self;
    (void)ptr;
}

const ashlar_peer ashlar__peer_none = {.name = "none", .take = take_none, .give = give_none};

/* --- all of them ----------------------------------------------------------------------------- */

size_t ashlar__peers(const ashlar_peer *out[ASHLAR_PEERS_MAX]) {
    static const ashlar_peer *const first[] = {
        &ashlar__peer_ashlar,
        &ashlar__peer_floor,
#define X(name) &ashlar__peer_##name,
        ASHLAR_BENCH_PEERS /* from the build: X(cub), X(jemalloc), both or none */
#undef X
            & ashlar__peer_driver,
    };
    size_t count = sizeof first / sizeof first[0];
    const ashlar_peer *loaded;
    memcpy(out, first, sizeof first);
    for (size_t i = 0; (loaded = ashlar__peer_loaded(i)) != NULL; i++) {
        out[count++] = loaded;
    }
    out[count++] = &ashlar__peer_plan;
    out[count++] = &ashlar__peer_none;
    return count;
}

const ashlar_peer *ashlar__peer_find(const char *name) {
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    const size_t count = ashlar__peers(peers);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(peers[i]->name, name) == 0) {
            return peers[i];
        }
    }
    return NULL;
}
