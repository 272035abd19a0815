/*
 * share.c - segments as other processes and NCCL know them: by a file descriptor, or by base and
 * size.
 */
#include <ashlar/share.h>

#include <stdint.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/core/allocator_impl.h"
#include "allocator/core/forked.h"
#include "allocator/core/hold.h"
#include "allocator/core/slow_path.h"

/* ---- the owner ---- */

static ashlar_status find_segment(ashlar_allocator *a, const void *ptr, cu_ptr *base,
                                  size_t *bytes) {
    void *block;
    size_t block_bytes;
    ASHLAR_FAIL_IF(a->heap.range.kind != ASHLAR_RANGE_SHARED, ASHLAR_ENOTSUP,
                   "share: the allocator was made without share=on");
    ASHLAR_TRY(ashlar__find_around(a, ptr, &block, &block_bytes));
    ashlar__allocator_enter(a);
    const ashlar_block *found = ashlar__heap_find(&a->heap, (size_t)ashlar__ptr_in(block));
    if (found != NULL) {
        *base = found->window->offset;
        *bytes = found->window->bytes;
    }
    ashlar__allocator_leave(a);
    ASHLAR_FAIL_IF(found == NULL, ASHLAR_EPOINTER, "%p: freed meanwhile", ptr);
    return ASHLAR_OK;
}

size_t ashlar_share_granularity(const ashlar_allocator *a) {
    return a->heap.range.kind == ASHLAR_RANGE_SHARED ? a->heap.range.handle_bytes : 1;
}

ashlar_status ashlar_share_segment(ashlar_allocator *a, const void *ptr, void **base,
                                   size_t *bytes) {
    cu_ptr found = 0;
    ASHLAR_TRY(find_segment(a, ptr, &found, bytes));
    *base = ashlar__ptr_out(found);
    return ASHLAR_OK;
}

static ashlar_status export_locked(ashlar_allocator *a, cu_ptr base, int *file) {
    cu_mem_handle handle;
    ASHLAR_OWNS(&a->lock);
    cu_result result = ASHLAR_CALL(&a->client, mem_retain_handle, (&handle, ashlar__ptr_out(base)));
    if (result != CU_SUCCESS) {
        return ashlar__driver_error(a->device->driver, "cuMemRetainAllocationHandle", result);
    }
    result = ASHLAR_CALL(&a->client, mem_export, (file, handle, CU_HANDLE_FILE, 0));
    (void)ASHLAR_CALL(&a->client, mem_release, (handle));
    return result == CU_SUCCESS
               ? ASHLAR_OK
               : ashlar__driver_error(a->device->driver, "cuMemExportToShareableHandle", result);
}

ashlar_status ashlar_share_export(ashlar_allocator *a, const void *ptr, int *file, size_t *bytes,
                                  size_t *offset) {
    cu_ptr base = 0;
    size_t found = 0;
    ASHLAR_TRY(find_segment(a, ptr, &base, &found));
    ashlar__allocator_enter(a);
    const ashlar_status status = export_locked(a, base, file);
    ashlar__allocator_leave(a);
    if (status == ASHLAR_OK) {
        *bytes = found;
        *offset = (size_t)(ashlar__ptr_in(ptr) - base);
    }
    return status;
}

/* ---- the other processes ---- */

/* Map the handle's memory, all of it. */
static cu_result map(ashlar_driver_client *client, cu_mem_handle handle, cu_ptr at, size_t bytes,
                     const char **call) {
    const cu_mem_access access = {
        .location = {.type = CU_LOCATION_DEVICE, .id = client->device->info.ordinal},
        .flags = CU_ACCESS_READWRITE};
    *call = "cuMemMap";
    cu_result result = ASHLAR_CALL(client, mem_map, (at, bytes, 0, handle, 0));
    if (result == CU_SUCCESS) {
        *call = "cuMemSetAccess";
        result = ASHLAR_CALL(client, mem_set_access, (at, bytes, &access, 1));
        if (result != CU_SUCCESS) {
            (void)ASHLAR_CALL(client, mem_unmap, (at, bytes));
        }
    }
    return result;
}

static cu_result import(ashlar_driver_client *client, int file, size_t bytes, cu_ptr *at,
                        const char **call) {
    cu_mem_handle handle;
    *call = "cuMemImportFromShareableHandle";
    cu_result result =
        ASHLAR_CALL(client, mem_import, (&handle, (void *)(intptr_t)file, CU_HANDLE_FILE));
    if (result != CU_SUCCESS) {
        return result;
    }
    *call = "cuMemAddressReserve";
    result = ASHLAR_CALL(client, mem_address_reserve, (at, bytes, 0, 0, 0));
    if (result == CU_SUCCESS) {
        result = map(client, handle, *at, bytes, call);
        if (result != CU_SUCCESS) {
            (void)ASHLAR_CALL(client, mem_address_free, (*at, bytes));
        }
    }
    (void)ASHLAR_CALL(client, mem_release, (handle));
    return result;
}

ashlar_status ashlar_share_import(ashlar_device *device, int file, size_t bytes, void **base) {
    ashlar_driver_client client = {.device = device};
    const char *call = "";
    cu_ptr at = 0;
    ASHLAR_FAIL_IF(file < 0 || bytes == 0, ASHLAR_EINVAL,
                   "share: descriptor %d, %zu bytes; give what ashlar_share_export() gave", file,
                   bytes);
    ASHLAR_TRY(ashlar__device_enter(device));
    const cu_result result = import(&client, file, bytes, &at, &call);
    ashlar__device_leave(device);
    if (result != CU_SUCCESS) {
        return ashlar__driver_error(device->driver, call, result);
    }
    *base = ashlar__ptr_out(at);
    return ASHLAR_OK;
}

ashlar_status ashlar_share_close(ashlar_device *device, void *base, size_t bytes) {
    ashlar_driver_client client = {.device = device};
    ASHLAR_TRY(ashlar__device_enter(device));
    const cu_result result = ASHLAR_CALL(&client, mem_unmap, (ashlar__ptr_in(base), bytes));
    if (result == CU_SUCCESS) {
        (void)ASHLAR_CALL(&client, mem_address_free, (ashlar__ptr_in(base), bytes));
    }
    ashlar__device_leave(device);
    return result == CU_SUCCESS ? ASHLAR_OK
                                : ashlar__driver_error(device->driver, "cuMemUnmap", result);
}
