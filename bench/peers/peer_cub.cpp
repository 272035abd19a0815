// peer_cub.cpp - CUB's CachingDeviceAllocator with raised limits, on a device of this library.
#include <cub/util_allocator.cuh>

#include <cstdio>
#include <new>

extern "C" {
#include "allocator/base/error.h"
#include "bench/peers/peer.h"
}

namespace {

// CUB's defaults (bins that grow 8-fold from 512 B) except for the limits: by default it caches no
// block above 2 MiB and at most 6 MiB in all, and most calls would go to the driver.
constexpr unsigned int bin_growth = 8;
constexpr unsigned int bin_min = 3;
constexpr unsigned int bin_max = 12; // 64 GiB

using allocator = cub::CachingDeviceAllocator;

ashlar_status create(ashlar_device *device, void **self) {
    ashlar__cudart_use(device);
    allocator *made = new (std::nothrow) allocator(bin_growth, bin_min, bin_max);
    if (made == nullptr) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "cub: no host memory");
    }
    *self = made;
    return ASHLAR_OK;
}

void destroy(void *self) {
    delete static_cast<allocator *>(self);
}

void *take(void *self, size_t bytes, ashlar_stream stream) {
    void *ptr = nullptr;
    const cudaError_t error = static_cast<allocator *>(self)->DeviceAllocate(&ptr, bytes, stream);
    return error == cudaSuccess ? ptr : nullptr;
}

void give(void *self, void *ptr) {
    (void)static_cast<allocator *>(self)->DeviceFree(ptr); // take() returned this block
}

// CUB gives nothing back to the driver while memory lasts: what it has cached now is the peak.
void usage(void *self, ashlar_peer_usage *out) {
    *out = {};
    for (const auto &device : static_cast<allocator *>(self)->cached_bytes) {
        out->reserved_peak_bytes += device.second.free + device.second.live;
    }
}

const char *version() {
    static char text[16];
    (void)std::snprintf(text, sizeof text, "%d.%d", CUB_MAJOR_VERSION, CUB_MINOR_VERSION);
    return text;
}

} // namespace

extern "C" const ashlar_peer ashlar__peer_cub = {
    "cub",   version(), create,  destroy, nullptr, nullptr, take, give,   usage,
    nullptr, nullptr,   nullptr, nullptr, false,   false,   true};
