/*
 * preload_pools.c - memory pools: the driver serves those that a program makes, while a device's
 * default pool stands for our memory and for what the driver has in that pool, with the sums of
 * both as its attributes.
 */
#include "allocator/dropin/preload.h"

#include <stdatomic.h>
#include <string.h>

#include "allocator/core/note.h"
#include "allocator/dropin/devices.h"

/* CU_MEMPOOL_ATTR_..., each a uint64_t. The two HIGH attributes can only be set to 0, which resets
 * them. */
enum {
    RELEASE_THRESHOLD = 4,
    RESERVED_MEM_CURRENT,
    RESERVED_MEM_HIGH,
    USED_MEM_CURRENT,
    USED_MEM_HIGH
};

enum { DEVICES = ASHLAR_DROPIN_DEVICES_MAX, NO_DEVICE = -1 };

/* By device. defaults: its default pool, once asked for. has_pool: the program has set another
 * pool, from which cuMemAllocAsync() then takes. kept: 1 + the bytes of free memory to keep, which
 * the program has set; 0: keep all, until the driver lacks memory. */
static _Atomic(void *) defaults[DEVICES];
static atomic_bool has_pool[DEVICES];
static _Atomic uint64_t kept[DEVICES];

/* The default pool of a device; NULL: there is no such device, or it has no pools. */
static void *default_of(cu_device device) {
    void *pool = atomic_load_explicit(&defaults[device], memory_order_relaxed);
    if (pool == NULL && ashlar__real_cuDeviceGetDefaultMemPool(&pool, device) == CU_SUCCESS) {
        atomic_store(&defaults[device], pool);
    }
    return pool;
}

/* The device whose default pool this is, or NO_DEVICE. */
static cu_device device_of(const void *pool) {
    for (cu_device device = 0; device < DEVICES && pool != NULL; device++) {
        const void *of_device = default_of(device);
        if (of_device == NULL || of_device == pool) {
            return of_device == NULL ? NO_DEVICE : device;
        }
    }
    return NO_DEVICE;
}

/* Iterate over a device and its contexts. NULL: no more. */
static ashlar_frees *next_of(cu_device device, int *place) {
    ashlar_frees *frees = ashlar__frees_each(place);
    while (frees != NULL && frees->device->info.ordinal != device) {
        frees = ashlar__frees_each(place);
    }
    return frees;
}

/* ---- which pool serves ---- */

static void note_set(cu_device device, const void *pool) {
    if ((unsigned)device < DEVICES) {
        atomic_store(&has_pool[device], pool != default_of(device));
    }
}

cu_result cuDeviceSetMemPool(cu_device device, void *pool) {
    const cu_result result = ashlar__real_cuDeviceSetMemPool(device, pool);
    if (result == CU_SUCCESS) {
        note_set(device, pool);
    }
    return result;
}

/* CUDA 13's name for cuDeviceSetMemPool(), which also knows places other than devices. */
cu_result cuMemSetMemPool(cu_mem_location *location, unsigned int type, void *pool) {
    const cu_result result = ashlar__real_cuMemSetMemPool(location, type, pool);
    if (result == CU_SUCCESS && location->type == CU_LOCATION_DEVICE &&
        type == CU_ALLOCATION_PINNED) {
        note_set(location->id, pool);
    }
    return result;
}

bool ashlar__preload_is_default_pool(const ashlar_frees *frees, const void *pool) {
    const int ordinal = frees->device->info.ordinal;
    ASHLAR_CHECK2(ordinal >= 0 && ordinal < DEVICES);
    return pool == NULL ? !atomic_load_explicit(&has_pool[ordinal], memory_order_relaxed)
                        : pool == default_of(ordinal);
}

/* ---- figures ---- */

/* What we have to add to the driver's figure. */
static uint64_t ours(cu_device device, unsigned int attribute) {
    int place = 0;
    uint64_t sum = 0;
    for (const ashlar_frees *f = next_of(device, &place); f != NULL; f = next_of(device, &place)) {
        ashlar_stats stats;
        ashlar_allocator_get_stats(f->allocator, &stats);
        sum += attribute == RESERVED_MEM_CURRENT ? stats.reserved_bytes
               : attribute == RESERVED_MEM_HIGH  ? stats.reserved_peak_bytes
               : attribute == USED_MEM_CURRENT   ? stats.live_bytes
                                                 : stats.live_peak_bytes;
    }
    return sum;
}

cu_result cuMemPoolGetAttribute(void *pool, unsigned int attribute, void *value) {
    const cu_result result = ashlar__real_cuMemPoolGetAttribute(pool, attribute, value);
    if (result != CU_SUCCESS || attribute < RELEASE_THRESHOLD || attribute > USED_MEM_HIGH ||
        !ashlar__preload_begin()) {
        return result;
    }
    const cu_device device = device_of(pool);
    uint64_t figure;
    memcpy(&figure, value, sizeof figure);
    if (device != NO_DEVICE) {
        figure = attribute == RELEASE_THRESHOLD ? atomic_load(&kept[device]) - 1
                                                : figure + ours(device, attribute);
        memcpy(value, &figure, sizeof figure);
    }
    ashlar__preload_end();
    return result;
}

static void set_ours(cu_device device, unsigned int attribute, uint64_t figure) {
    int place = 0;
    if (attribute == RELEASE_THRESHOLD) {
        atomic_store(&kept[device], figure == UINT64_MAX ? 0 : figure + 1);
        return;
    }
    for (ashlar_frees *f = next_of(device, &place); f != NULL; f = next_of(device, &place)) {
        ashlar__allocator_reset_peaks(f->allocator, attribute != RESERVED_MEM_HIGH,
                                      attribute == RESERVED_MEM_HIGH);
    }
}

cu_result cuMemPoolSetAttribute(void *pool, unsigned int attribute, void *value) {
    const cu_result result = ashlar__real_cuMemPoolSetAttribute(pool, attribute, value);
    if (result != CU_SUCCESS || attribute < RELEASE_THRESHOLD || !ashlar__preload_begin()) {
        return result;
    }
    const cu_device device = device_of(pool);
    uint64_t figure;
    memcpy(&figure, value, sizeof figure);
    if (device != NO_DEVICE) {
        set_ours(device, attribute, figure);
    }
    ashlar__preload_end();
    return result;
}

/* ---- giving back ---- */

cu_result cuMemPoolTrimTo(void *pool, size_t kept_bytes) {
    const cu_result result = ashlar__real_cuMemPoolTrimTo(pool, kept_bytes);
    if (result != CU_SUCCESS || !ashlar__preload_begin()) {
        return result;
    }
    const cu_device device = device_of(pool);
    int place = 0;
    for (ashlar_frees *f = device == NO_DEVICE ? NULL : next_of(device, &place); f != NULL;
         f = next_of(device, &place)) {
        (void)ashlar__frees_give_back(f, kept_bytes);
    }
    ashlar__preload_end();
    return result;
}

void ashlar__preload_keep_to_threshold(ashlar_frees *frees) {
    const uint64_t limit = atomic_load(&kept[frees->device->info.ordinal]);
    if (limit != 0) {
        (void)ashlar__frees_give_back(frees, (size_t)(limit - 1));
    }
}
