/* soft_pages.c - the physical memory of a software device: a sparse file, cut into pages. */
#include "allocator/soft/soft_state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

enum { WORD_BITS = 64 };

/*
 * A memory file that is none of descriptors 0 to 2: in a process where one of those is closed, it
 * would get that number, and what the process prints would be written into device memory.
 */
static int create_memory(void) {
    const int lowest = memfd_create("ashlar-soft-device", MFD_CLOEXEC);
    if (lowest < 0 || lowest > STDERR_FILENO) {
        return lowest;
    }
    const int fd = fcntl(lowest, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int error = errno;
    close(lowest);
    errno = error;
    return fd;
}

ashlar_status ashlar_soft_pages_init(soft_device *device, size_t bytes) {
    const size_t page_count = bytes / SOFT_PAGE_BYTES;
    uint64_t *bits =
        ashlar_host_calloc((page_count + WORD_BITS - 1) / WORD_BITS, sizeof *device->page_bits);
    if (bits == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "page table of software device %d", device->ordinal);
    }
    const int fd = create_memory();
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
        const int error = errno;
        if (fd >= 0) {
            close(fd);
        }
        ashlar_host_free(bits);
        return ashlar_fail(ASHLAR_EHOSTMEM,
                           "software device %d: no memory file of %zu bytes: %s; give a smaller "
                           "memory= in ASHLAR_SOFT",
                           device->ordinal, bytes, strerror(error));
    }
    device->page_bits = bits;
    device->memory_fd = fd;
    device->page_count = page_count;
    device->pages_used = 0;
    device->first_free_word = 0;
    return ASHLAR_OK;
}

void ashlar_soft_pages_finish(soft_device *device) {
    ashlar_host_free(device->page_bits);
    close(device->memory_fd);
    device->page_bits = NULL;
    device->memory_fd = -1;
}

/* The lowest free page, so that pages taken together tend to be neighbours, which saves the
 * kernel a memory area for each. There is one: the caller has looked at pages_used. */
static uint32_t take_page(soft_device *device) {
    ASHLAR_ASSERT(device->pages_used < device->page_count);
    size_t word = device->first_free_word;
    while (device->page_bits[word] == UINT64_MAX) {
        word++;
    }
    size_t bit = 0;
    while ((device->page_bits[word] >> bit & 1) != 0) {
        bit++;
    }
    device->page_bits[word] |= (uint64_t)1 << bit;
    device->first_free_word = word;
    device->pages_used++;
    ASHLAR_ASSERT(word * WORD_BITS + bit < device->page_count);
    return (uint32_t)(word * WORD_BITS + bit);
}

static void return_page(soft_device *device, uint32_t page) {
    const size_t word = page / WORD_BITS;
    const uint64_t mask = (uint64_t)1 << page % WORD_BITS;
    ASHLAR_ASSERT((device->page_bits[word] & mask) != 0);
    device->page_bits[word] &= ~mask;
    device->pages_used--;
    if (word < device->first_free_word) {
        device->first_free_word = word;
    }
    /* Gives the host its memory back. Failure costs host memory only: nobody may rely on what a
     * fresh page holds. */
    (void)fallocate(device->memory_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    (off_t)((size_t)page * SOFT_PAGE_BYTES), (off_t)SOFT_PAGE_BYTES);
}

cu_result ashlar_soft_memory_create(soft_device *device, size_t bytes, soft_memory **out) {
    const size_t page_count = bytes / SOFT_PAGE_BYTES;
    if (page_count > device->page_count - device->pages_used) {
        return CU_OUT_OF_MEMORY;
    }
    soft_memory *memory =
        ashlar_host_calloc(1, sizeof *memory + page_count * sizeof memory->pages[0]);
    if (memory == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    memory->device = device;
    memory->user_count = 1;
    memory->page_count = page_count;
    for (size_t i = 0; i < page_count; i++) {
        memory->pages[i] = take_page(device);
    }
    *out = memory;
    return CU_SUCCESS;
}

void ashlar_soft_memory_drop(soft_memory *memory) {
    ASHLAR_ASSERT(memory->user_count > 0);
    if (--memory->user_count > 0) {
        return;
    }
    for (size_t i = 0; i < memory->page_count; i++) {
        return_page(memory->device, memory->pages[i]);
    }
    ashlar_host_free(memory);
}

/* What both calls that take a description of memory check. */
static cu_result check_prop(const cu_mem_prop *prop, soft_device **device) {
    if (prop == NULL || prop->type != CU_ALLOCATION_PINNED ||
        prop->location.type != CU_LOCATION_DEVICE) {
        return CU_INVALID_VALUE;
    }
    if (prop->handle_types != 0) {
        return CU_NOT_SUPPORTED;
    }
    *device = ashlar_soft_device_at(prop->location.id);
    return *device == NULL ? CU_INVALID_DEVICE : CU_SUCCESS;
}

cu_result ashlar_soft_mem_get_allocation_granularity(size_t *bytes, const cu_mem_prop *prop,
                                                     unsigned int option) {
    cu_result result = ashlar_soft_enter();
    if (result != CU_SUCCESS) {
        return result;
    }
    if (!ashlar_soft_state.config.has_vmm) {
        return ashlar_soft_leave(CU_NOT_SUPPORTED);
    }
    soft_device *device;
    result = check_prop(prop, &device);
    if (result == CU_SUCCESS && (bytes == NULL || (option != CU_GRANULARITY_MINIMUM &&
                                                   option != CU_GRANULARITY_RECOMMENDED))) {
        result = CU_INVALID_VALUE;
    }
    if (result == CU_SUCCESS) {
        *bytes = SOFT_PAGE_BYTES;
    }
    return ashlar_soft_leave(result);
}

cu_result ashlar_soft_mem_create(cu_mem_handle *handle, size_t bytes, const cu_mem_prop *prop,
                                 unsigned long long flags) {
    cu_result result = ashlar_soft_enter_vmm();
    if (result != CU_SUCCESS) {
        return result;
    }
    soft_device *device;
    soft_memory *memory;
    result = check_prop(prop, &device);
    if (result == CU_SUCCESS &&
        (handle == NULL || flags != 0 || bytes == 0 || bytes % SOFT_PAGE_BYTES != 0)) {
        result = CU_INVALID_VALUE;
    }
    if (result == CU_SUCCESS) {
        result = ashlar_soft_memory_create(device, bytes, &memory);
    }
    if (result != CU_SUCCESS) {
        return ashlar_soft_leave(result);
    }
    uintptr_t number;
    if (!ashlar_soft_slots_put(&ashlar_soft_state.memories, SOFT_MEMORY, memory, &number)) {
        ashlar_soft_memory_drop(memory);
        return ashlar_soft_leave(CU_OUT_OF_MEMORY);
    }
    *handle = number;
    return ashlar_soft_leave(CU_SUCCESS);
}

cu_result ashlar_soft_mem_release(cu_mem_handle handle) {
    const cu_result result = ashlar_soft_enter_vmm();
    if (result != CU_SUCCESS) {
        return result;
    }
    soft_memory *memory =
        ashlar_soft_slots_take(&ashlar_soft_state.memories, SOFT_MEMORY, (uintptr_t)handle);
    if (memory == NULL) {
        return ashlar_soft_leave(CU_INVALID_VALUE);
    }
    ashlar_soft_memory_drop(memory);
    return ashlar_soft_leave(CU_SUCCESS);
}

cu_result ashlar_soft_mem_get_info(size_t *free_bytes, size_t *total_bytes) {
    soft_device *device;
    const cu_result result = ashlar_soft_enter_context(&device);
    if (result != CU_SUCCESS) {
        return result;
    }
    if (free_bytes == NULL || total_bytes == NULL) {
        return ashlar_soft_leave(CU_INVALID_VALUE);
    }
    *free_bytes = (device->page_count - device->pages_used) * SOFT_PAGE_BYTES;
    *total_bytes = device->page_count * SOFT_PAGE_BYTES;
    return ashlar_soft_leave(CU_SUCCESS);
}
