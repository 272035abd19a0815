/* peer_driver.c - the driver's plain allocation, a call each. */
#include "bench/peers/peer.h"

#include "allocator/device/device_impl.h"

static ashlar_status create(ashlar_device *device, void **self) {
    *self = device;
    return ASHLAR_OK;
}

static ashlar_status enter(void *self, size_t thread) {
    (void)thread;
    return ashlar__device_enter(self);
}

static void leave(void *self) {
    ashlar__device_leave(self);
}

static void *take(void *self, size_t bytes, ashlar_stream stream) {
    ashlar_device *device = self;
    cu_ptr ptr = 0;
    (void)stream;
    const cu_result result = ASHLAR_DRIVER_CALL(device->driver, mem_alloc, (&ptr, bytes));
    return result == CU_SUCCESS ? ashlar__ptr_out(ptr) : NULL;
}

static void give(void *self, void *ptr) {
    ashlar_device *device = self;
    (void)ASHLAR_DRIVER_CALL(device->driver, mem_free, (ashlar__ptr_in(ptr)));
}

const ashlar_peer *ashlar__peer_driver(void) {
    static const ashlar_peer peer = {
        .name = "driver",
        .create = create,
        .enter = enter,
        .leave = leave,
        .take = take,
        .give = give,
    };
    return &peer;
}
