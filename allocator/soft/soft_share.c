/* soft_share.c - memory that processes share: exporting it, importing it, and finding the handle of
 * mapped memory by its address. */
#include "allocator/soft/soft_state.h"

#include <fcntl.h>
#include <unistd.h>

#include "allocator/base/check_level.h"

/* What cuMemMap has mapped at an address; NULL: nothing, or memory of cuMemAlloc. */
static const soft_mapping *mapping_over(uintptr_t address) {
    const soft_reservation *found =
        ashlar__soft_ranges_over(&ashlar__soft_state.reservations, address, 1);
    return found == NULL || found->plain_device != NULL ? NULL : soft_mapping_at(found, address);
}

/* Make one more handle for memory. The caller has counted the new user; failure drops it. */
static cu_result hand_out(soft_memory *memory, cu_mem_handle *handle) {
    uintptr_t number;
    if (!ashlar__soft_handles_put(&ashlar__soft_state.memories, SOFT_MEMORY, memory, &number)) {
        ashlar__soft_memory_drop(memory);
        return CU_OUT_OF_MEMORY;
    }
    *handle = number;
    return CU_SUCCESS;
}

/* CUDA returns the old handle once more, this device a new one. Both are released the same way. */
cu_result ashlar__soft_mem_retain_handle(cu_mem_handle *handle, void *ptr) {
    SOFT_TRY(ashlar__soft_enter_vmm(ASHLAR_DRIVER_FN_mem_retain_handle));
    const soft_mapping *mapping = mapping_over((uintptr_t)ptr);
    if (handle == NULL || mapping == NULL) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    mapping->memory->user_count++;
    return ashlar__soft_leave(hand_out(mapping->memory, handle));
}

cu_result ashlar__soft_mem_export(void *shareable, cu_mem_handle handle, unsigned int type,
                                  unsigned long long flags) {
    SOFT_TRY(ashlar__soft_enter_vmm(ASHLAR_DRIVER_FN_mem_export));
    const soft_memory *memory =
        ashlar__soft_handles_get(&ashlar__soft_state.memories, SOFT_MEMORY, (uintptr_t)handle);
    if (memory == NULL) {
        return ashlar__soft_leave(ashlar__soft_undefined_handle(
            CU_INVALID_VALUE, &ashlar__soft_state.memories, SOFT_MEMORY, (uintptr_t)handle));
    }
    if (shareable == NULL || flags != 0 || type != CU_HANDLE_FILE ||
        (memory->handle_types & type) == 0) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    ASHLAR_CHECK2(memory->file >= 0);
    const int file = fcntl(memory->file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (file < 0) {
        return ashlar__soft_leave(CU_OPERATING_SYSTEM);
    }
    *(int *)shareable = file;
    return ashlar__soft_leave(CU_SUCCESS);
}

/* `shareable` is the file descriptor itself, not its address. */
cu_result ashlar__soft_mem_import(cu_mem_handle *handle, void *shareable, unsigned int type) {
    SOFT_TRY(ashlar__soft_enter_vmm(ASHLAR_DRIVER_FN_mem_import));
    soft_memory *memory;
    if (handle == NULL || type != CU_HANDLE_FILE) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    const cu_result result = ashlar__soft_state.config.sharing == SOFT_SHARING_NONE
                                 ? CU_NOT_SUPPORTED
                                 : ashlar__soft_memory_adopt((int)(intptr_t)shareable, &memory);
    return ashlar__soft_leave(result == CU_SUCCESS ? hand_out(memory, handle) : result);
}
