/* peers.c - the list of all peers (peer.h), and the plain ones: the driver, and the empty
 * loop. */
#include "bench/peers/peer.h"

#include <string.h>

#include "allocator/device/device_impl.h"
#include "bench/peers/peer_loaded.h"

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
        &ashlar__peer_cuda_async,
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
