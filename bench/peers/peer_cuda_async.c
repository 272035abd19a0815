/*
 * peer_cuda_async.c - CUDA's own memory pool: what cudaMallocAsync and cudaFreeAsync call.
 *
 * It is the device's default pool, with its release threshold raised to the maximum: with the
 * default of 0 the pool would give back its cache at each synchronisation. The driver's functions
 * are looked up here, since the library itself does not use them. The software device has no pools.
 */
#include "bench/peers/peer.h"

#include <dlfcn.h>
#include <string.h>

#include "allocator/device/device_impl.h"
#include "allocator/base/error.h"

typedef struct CUmemPoolHandle_st *cu_mem_pool;

/* Members of CUmemPool_attribute, by their numbers; the value of each attribute is a uint64_t. */
enum { RELEASE_THRESHOLD = 4, RESERVED_MEM_HIGH = 6, USED_MEM_HIGH = 8 };

/* By these names (not by those that end in _ptsz) a NULL stream is the legacy default stream. */
#define POOL_MAP(X)                                                                    \
    X(default_pool, cuDeviceGetDefaultMemPool, (cu_mem_pool * pool, cu_device device)) \
    X(set, cuMemPoolSetAttribute, (cu_mem_pool pool, int attribute, void *value))      \
    X(get, cuMemPoolGetAttribute, (cu_mem_pool pool, int attribute, void *value))      \
    X(trim, cuMemPoolTrimTo, (cu_mem_pool pool, size_t bytes))                         \
    X(alloc, cuMemAllocAsync, (cu_ptr * ptr, size_t bytes, cu_stream stream))          \
    X(free, cuMemFreeAsync, (cu_ptr ptr, cu_stream stream))

static struct {
#define X(field, symbol, params) cu_result(*field) params;
    POOL_MAP(X)
#undef X
} driver;

/* The device of the only instance: a device has one default pool. */
static ashlar_device *device_in_use;
static cu_mem_pool pool;

static ashlar_status find_functions(void) {
    void *library =
        dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); /* loaded when the device was opened */
    const char *missing = library == NULL ? "libcuda.so.1" : NULL;
#define X(field, symbol, params)                     \
    if (missing == NULL) {                           \
        void *found = dlsym(library, #symbol);       \
        missing = found == NULL ? #symbol : NULL;    \
        memcpy(&driver.field, &found, sizeof found); \
    }
    POOL_MAP(X)
#undef X
    return missing == NULL ? ASHLAR_OK
                           : ashlar__fail(ASHLAR_ENOTSUP,
                                          "cuda_async: the driver has no memory pools (%s is "
                                          "missing); choose other subjects",
                                          missing);
}

static cu_result set_up(const ashlar_device *device) {
    uint64_t all = UINT64_MAX, none = 0;
    cu_device handle = 0;
    cu_result result =
        ASHLAR_DRIVER_CALL(device->driver, device_get, (&handle, device->info.ordinal));
    result = result == CU_SUCCESS ? driver.default_pool(&pool, handle) : result;
    result = result == CU_SUCCESS ? driver.set(pool, RELEASE_THRESHOLD, &all) : result;
    result = result == CU_SUCCESS ? driver.set(pool, RESERVED_MEM_HIGH, &none) : result;
    return result == CU_SUCCESS ? driver.set(pool, USED_MEM_HIGH, &none) : result;
}

bool ashlar__peer_cuda_async_serves(const ashlar_device *device) {
    return device->info.kind == ASHLAR_DEVICE_CUDA && find_functions() == ASHLAR_OK;
}

static ashlar_status create(ashlar_device *device, void **self) {
    (void)self;
    if (device->info.kind != ASHLAR_DEVICE_CUDA) {
        return ashlar__fail(ASHLAR_ENOTSUP, "cuda_async: the software device has no memory pools; "
                                            "measure on a GPU with --device cuda, or choose other "
                                            "subjects");
    }
    ASHLAR_TRY(find_functions());
    ASHLAR_TRY(ashlar__device_enter(device));
    const cu_result result = set_up(device);
    ashlar__device_leave(device);
    device_in_use = device;
    return result == CU_SUCCESS ? ASHLAR_OK
                                : ashlar__driver_error(device->driver, "cuda_async", result);
}

/* Empties the pool, so that the next list begins without a cache. */
static void destroy(void *self) {
    (void)self;
    if (ashlar__device_synchronize(device_in_use) == ASHLAR_OK &&
        ashlar__device_enter(device_in_use) == ASHLAR_OK) {
        (void)driver.trim(pool, 0);
        ashlar__device_leave(device_in_use);
    }
}

static ashlar_status enter(void *self, size_t thread) {
    (void)self;
    (void)thread;
    return ashlar__device_enter(device_in_use);
}

static void leave(void *self) {
    (void)self;
    ashlar__device_leave(device_in_use);
}

static void *take(void *self, size_t bytes, ashlar_stream stream) {
    cu_ptr ptr = 0;
    (void)self;
    return driver.alloc(&ptr, bytes, stream) == CU_SUCCESS ? ashlar__ptr_out(ptr) : NULL;
}

static void give_sized(void *self, void *ptr, size_t bytes, ashlar_stream stream) {
    (void)self;
    (void)bytes;
    (void)driver.free(ashlar__ptr_in(ptr), stream);
}

static void usage(void *self, ashlar_peer_usage *out) {
    uint64_t reserved = 0, used = 0;
    (void)self;
    if (driver.get(pool, RESERVED_MEM_HIGH, &reserved) == CU_SUCCESS &&
        driver.get(pool, USED_MEM_HIGH, &used) == CU_SUCCESS) {
        *out = (ashlar_peer_usage){reserved, used};
    }
}

const ashlar_peer ashlar__peer_cuda_async = {
    .name = "cuda_async",
    .create = create,
    .destroy = destroy,
    .enter = enter,
    .leave = leave,
    .take = take,
    .give_sized = give_sized,
    .usage = usage,
    .hides_calls = true,
};
