/*
 * preload_tell.c - what a program is told about a pointer, the same by all functions, and about
 * memory pools: the driver serves those that a program makes, while a device's default pool stands
 * for our memory and for what the driver has in that pool, with the sums of both as its attributes.
 */
#include "allocator/dropin/preload.h"

#include <string.h>

#include "allocator/core/core.h"

/* CU_POINTER_ATTRIBUTE_...: the attributes that we answer. The driver answers all others. */
enum {
    IS_LEGACY_CUDA_IPC_CAPABLE = 10,
    RANGE_START_ADDR = 11,
    RANGE_SIZE = 12,
    ALLOWED_HANDLE_TYPES = 14,
    MAPPING_SIZE = 18,
    MAPPING_BASE_ADDR = 19
};

typedef enum pointer_place { NOT_OURS, IN_A_BLOCK, IN_NO_BLOCK } pointer_place;

/* Where a pointer points. IN_A_BLOCK: *base and *bytes are the block's, as it was asked for. */
static pointer_place find_place(cu_ptr ptr, cu_ptr *base, size_t *bytes) {
    int ordinal = 0;
    void *block = NULL;
    pointer_place place = NOT_OURS;
    if (!ashlar__preload_begin()) {
        return NOT_OURS;
    }
    const void *at = ashlar__ptr_out(ptr);
    for (ashlar_frees *f = ashlar__frees_next(&ordinal, at); f != NULL && place == NOT_OURS;
         f = ashlar__frees_next(&ordinal, at)) {
        ashlar_allocator *a = f->allocator;
        if (ashlar__find_around(a, at, &block, bytes) == ASHLAR_OK) {
            *base = ashlar__ptr_in(block);
            place = IN_A_BLOCK;
        } else if (ashlar__has_reserved(a, at)) {
            place = IN_NO_BLOCK;
        }
    }
    ashlar__preload_end();
    return place;
}

/* An address that is no device memory, about which the driver gives its usual answer. */
static cu_ptr address_of_nothing(void) {
    static const char here;
    return ashlar__ptr_in(&here);
}

cu_result cuMemGetAddressRange_v2(cu_ptr *base, size_t *bytes, cu_ptr ptr) {
    cu_ptr found = 0;
    size_t found_bytes = 0;
    const pointer_place place = find_place(ptr, &found, &found_bytes);
    if (place != IN_A_BLOCK) {
        return ashlar__real_cuMemGetAddressRange_v2(base, bytes,
                                                    place == NOT_OURS ? ptr : address_of_nothing());
    }
    if (base != NULL) {
        *base = found;
    }
    if (bytes != NULL) {
        *bytes = found_bytes;
    }
    return CU_SUCCESS;
}

/* Replace the driver's answer about a block. Call it only after the driver's call succeeded: then
 * `data` is NULL only if the driver takes that for an answer that nobody wants. */
static void correct(void *data, unsigned int attribute, cu_ptr base, size_t bytes) {
    const unsigned long long no_types = 0;
    const bool is_capable = false;
    if (data == NULL) {
        return;
    }
    switch (attribute) {
    case RANGE_START_ADDR:
    case MAPPING_BASE_ADDR:
        memcpy(data, &base, sizeof base);
        break;
    case RANGE_SIZE:
    case MAPPING_SIZE:
        memcpy(data, &bytes, sizeof bytes);
        break;
    case ALLOWED_HANDLE_TYPES:
        memcpy(data, &no_types, sizeof no_types);
        break;
    case IS_LEGACY_CUDA_IPC_CAPABLE:
        memcpy(data, &is_capable, sizeof is_capable);
        break;
    default:
        break;
    }
}

cu_result cuPointerGetAttribute(void *data, unsigned int attribute, cu_ptr ptr) {
    cu_ptr base = 0;
    size_t bytes = 0;
    const pointer_place place = find_place(ptr, &base, &bytes);
    const cu_result result = ashlar__real_cuPointerGetAttribute(
        data, attribute, place == IN_NO_BLOCK ? address_of_nothing() : ptr);
    if (result == CU_SUCCESS && place == IN_A_BLOCK) {
        correct(data, attribute, base, bytes);
    }
    return result;
}

cu_result cuPointerGetAttributes(unsigned int count, unsigned int *attributes, void **data,
                                 cu_ptr ptr) {
    cu_ptr base = 0;
    size_t bytes = 0;
    const pointer_place place = find_place(ptr, &base, &bytes);
    const cu_result result = ashlar__real_cuPointerGetAttributes(
        count, attributes, data, place == IN_NO_BLOCK ? address_of_nothing() : ptr);
    for (unsigned int i = 0; i < count && result == CU_SUCCESS && place == IN_A_BLOCK; i++) {
        correct(data[i], attributes[i], base, bytes);
    }
    return result;
}

/* ---- sharing ---- */

/* A handle of ours holds other blocks, too, and may be mapped elsewhere once this block is
 * freed. */
cu_result cuMemRetainAllocationHandle(cu_mem_handle *handle, void *ptr) {
    cu_ptr base;
    size_t bytes;
    return find_place(ashlar__ptr_in(ptr), &base, &bytes) == NOT_OURS
               ? ashlar__real_cuMemRetainAllocationHandle(handle, ptr)
               : CU_INVALID_VALUE;
}

cu_result cuIpcGetMemHandle(void *handle, cu_ptr ptr) {
    cu_ptr base;
    size_t bytes;
    switch (handle == NULL ? NOT_OURS : find_place(ptr, &base, &bytes)) {
    case IN_A_BLOCK:
        ashlar__preload_note_unexported();
        return CU_NOT_SUPPORTED;
    case IN_NO_BLOCK:
        return CU_INVALID_VALUE;
    default:
        return ashlar__real_cuIpcGetMemHandle(handle, ptr);
    }
}

/* ---- pools ---- */

/* CU_MEMPOOL_ATTR_..., those that we answer, each a uint64_t. The two HIGH attributes can only be
 * set to 0, which resets them. */
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

/* Iterate over the ashlar_frees of a device, one for each context. NULL: no more. */
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

/* ---- attributes of default pools ---- */

/* Our part of an attribute, to be added to the driver's. */
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
