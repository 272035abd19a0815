/* preload_pointer.c - what a program is told about a pointer: the same answer from all
 * functions. */
#include "allocator/dropin/preload.h"

#include <string.h>

#include "allocator/core/slow_path.h"

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

/* An address that no device has, so that the driver gives its own answer about such addresses. */
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
