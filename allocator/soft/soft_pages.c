/* soft_pages.c - the physical memory of a software device: a sparse file, cut into pages. */
#include "allocator/soft/soft_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

enum { WORD_BITS = 64 };

/*
 * Make a memory file whose descriptor is not 0, 1 or 2. If the process has closed one of these, the
 * file would get that number, and the process would print into device memory.
 */
static int create_memory(const char *name) {
    const int lowest = memfd_create(name, MFD_CLOEXEC);
    if (lowest < 0 || lowest > STDERR_FILENO) {
        return lowest;
    }
    const int fd = fcntl(lowest, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int error = errno;
    close(lowest);
    errno = error;
    return fd;
}

ashlar_status ashlar__soft_pages_init(soft_device *device, size_t bytes) {
    ASHLAR_CHECK2(bytes > 0 && bytes % SOFT_PAGE_BYTES == 0);
    const size_t page_count = bytes / SOFT_PAGE_BYTES;
    uint64_t *bits =
        ashlar__host_calloc((page_count + WORD_BITS - 1) / WORD_BITS, sizeof *device->page_bits);
    if (bits == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "page table of software device %d", device->ordinal);
    }
    const int fd = create_memory("ashlar-soft-device");
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
        const int error = errno;
        if (fd >= 0) {
            close(fd);
        }
        ashlar__host_free(bits);
        return ashlar__fail(ASHLAR_EHOSTMEM,
                            "software device %d: no memory file of %zu bytes: %s; give a smaller "
                            "memory= in ASHLAR_SOFT",
                            device->ordinal, bytes, strerror(error));
    }
    device->page_bits = bits;
    device->memory_fd = fd;
    device->page_count = page_count;
    device->pages_used = 0;
    device->pages_peak = 0;
    device->first_free_word = 0;
    return ASHLAR_OK;
}

void ashlar__soft_pages_finish(soft_device *device) {
    ASHLAR_CHECK2(device->pages_used == 0);
    ashlar__host_free(device->page_bits);
    close(device->memory_fd);
    device->page_bits = NULL;
    device->memory_fd = -1;
}

/* Take the lowest free page, so that pages taken together tend to be neighbours, which the kernel
 * can map as one memory area. The caller has checked pages_used, so there is a free page. */
static uint32_t take_page(soft_device *device) {
    ASHLAR_ASSERT(device->pages_used < device->page_count);
    size_t word = device->first_free_word;
    while (device->page_bits[word] == UINT64_MAX) {
        word++;
    }
    const size_t bit = (size_t)__builtin_ctzll(~device->page_bits[word]);
    device->page_bits[word] |= (uint64_t)1 << bit;
    device->first_free_word = word;
    device->pages_used++;
    if (device->pages_used > device->pages_peak) {
        device->pages_peak = device->pages_used;
    }
    ASHLAR_ASSERT(word * WORD_BITS + bit < device->page_count);
    return (uint32_t)(word * WORD_BITS + bit);
}

static void return_page(soft_device *device, uint32_t page) {
    ASHLAR_CHECK2(page < device->page_count && device->pages_used > 0);
    const size_t word = page / WORD_BITS;
    const uint64_t mask = (uint64_t)1 << page % WORD_BITS;
    ASHLAR_ASSERT((device->page_bits[word] & mask) != 0);
    device->page_bits[word] &= ~mask;
    device->pages_used--;
    if (word < device->first_free_word) {
        device->first_free_word = word;
    }
    /* Give the page's memory back to the host. A failure only wastes that memory: no program may
     * rely on the contents of a fresh page. */
    (void)fallocate(device->memory_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    (off_t)((size_t)page * SOFT_PAGE_BYTES), (off_t)SOFT_PAGE_BYTES);
}

/* Whether pages_used and first_free_word agree with page_bits. */
static bool is_page_table_sound(const soft_device *device) {
    size_t used = 0;
    bool sound = true;
    for (size_t word = 0; word * WORD_BITS < device->page_count; word++) {
        const uint64_t bits = device->page_bits[word];
        sound = sound && (word >= device->first_free_word || bits == UINT64_MAX);
        for (uint64_t left = bits; left != 0; left &= left - 1) {
            used++;
        }
    }
    return sound && used == device->pages_used;
}

cu_result ashlar__soft_memory_create(soft_device *context, size_t bytes, soft_memory **out) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    soft_device *device = context->of;
    const size_t page_count = bytes / SOFT_PAGE_BYTES;
    ASHLAR_CHECK2(bytes > 0 && bytes % SOFT_PAGE_BYTES == 0);
    ASHLAR_CHECK2(device->pages_used <= device->page_count);
    if (page_count > device->page_count - device->pages_used) {
        return CU_OUT_OF_MEMORY;
    }
    soft_memory *memory =
        ashlar__host_calloc(1, sizeof *memory + page_count * sizeof memory->pages[0]);
    if (memory == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    memory->device = device;
    memory->user_count = 1;
    memory->page_count = page_count;
    for (size_t i = 0; i < page_count; i++) {
        memory->pages[i] = take_page(device);
    }
    ASHLAR_CHECK3(is_page_table_sound(device));
    *out = memory;
    return CU_SUCCESS;
}

void ashlar__soft_memory_drop(soft_memory *memory) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    ASHLAR_ASSERT(memory->user_count > 0);
    if (--memory->user_count > 0) {
        return;
    }
    for (size_t i = 0; i < memory->page_count && !memory->is_foreign; i++) {
        return_page(memory->device, memory->pages[i]);
    }
    ASHLAR_CHECK3(is_page_table_sound(memory->device));
    ashlar__host_free(memory);
}

cu_result ashlar__soft_overhead_take(soft_device *device, soft_memory **out) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    const size_t bytes = ashlar__soft_state.config.overhead_bytes;
    *out = NULL;
    return bytes == 0 ? CU_SUCCESS : ashlar__soft_memory_create(device, bytes, out);
}
