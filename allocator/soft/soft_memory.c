/* soft_memory.c - the memory of a software device: physical pages, cut from a sparse file; and the
 * device address space, where they are mapped. */
#include "allocator/soft/soft_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "allocator/base/checked.h"
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
    *out = memory;
    return CU_SUCCESS;
}

void ashlar__soft_memory_drop(soft_memory *memory) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    ASHLAR_CHECK2(memory == NULL || memory->user_count > 0);
    if (memory == NULL || --memory->user_count > 0) {
        return;
    }
    for (size_t i = 0; i < memory->page_count; i++) {
        return_page(memory->device, memory->pages[i]);
    }
    ashlar__host_free(memory);
}

cu_result ashlar__soft_overhead_take(soft_device *device, soft_memory **out) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    const size_t bytes = ashlar__soft_state.config.overhead_bytes;
    *out = NULL;
    return bytes == 0 ? CU_SUCCESS : ashlar__soft_memory_create(device, bytes, out);
}

/* ---- reservations and mappings ---- */

enum { RESERVE_FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE };

/* A device address is a host address, so that host functions can work on device memory in place. */
static void *as_pointer(uintptr_t address) {
    return (void *)address;
}

/* Reserve addresses, with no memory behind them. Returns the first; 0 on failure. `align` is a
 * power of two >= SOFT_PAGE_BYTES. */
static uintptr_t reserve_addresses(size_t bytes, size_t align, uintptr_t hint) {
    ASHLAR_CHECK2(align >= SOFT_PAGE_BYTES && (align & (align - 1)) == 0);
    if (hint != 0 && hint % align == 0) {
        void *wanted =
            mmap(as_pointer(hint), bytes, PROT_NONE, RESERVE_FLAGS | MAP_FIXED_NOREPLACE, -1, 0);
        if (wanted != MAP_FAILED) {
            return (uintptr_t)wanted;
        }
    }
    size_t padded;
    if (!ashlar__add(bytes, align, &padded)) {
        return 0;
    }
    void *start = mmap(NULL, padded, PROT_NONE, RESERVE_FLAGS, -1, 0);
    if (start == MAP_FAILED) {
        return 0;
    }
    const uintptr_t low = (uintptr_t)start;
    const uintptr_t base = (low + align - 1) & ~(uintptr_t)(align - 1);
    if (base > low) {
        munmap(start, base - low);
    }
    if (low + padded > base + bytes) {
        munmap(as_pointer(base + bytes), low + padded - base - bytes);
    }
    return base;
}

cu_result ashlar__soft_reserve(size_t bytes, size_t align, uintptr_t hint, soft_reservation **out) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    soft_reservation *reservation = ashlar__host_calloc(1, sizeof *reservation);
    if (reservation == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    const uintptr_t base = reserve_addresses(bytes, align, hint);
    if (base == 0) {
        ashlar__host_free(reservation);
        return CU_OUT_OF_MEMORY;
    }
    ASHLAR_CHECK2(base % align == 0 && bytes % SOFT_PAGE_BYTES == 0);
    reservation->range = (soft_range){base, bytes};
    reservation->pages = ashlar__host_calloc(bytes / SOFT_PAGE_BYTES, sizeof *reservation->pages);
    if (reservation->pages == NULL ||
        !ashlar__soft_ranges_insert(&ashlar__soft_state.reservations, &reservation->range)) {
        munmap(as_pointer(base), bytes);
        ashlar__host_free(reservation->pages);
        ashlar__host_free(reservation);
        return CU_OUT_OF_MEMORY;
    }
    *out = reservation;
    return CU_SUCCESS;
}

/* Set the entries of the mapping's pages to the mapping, or to NULL. */
static void set_pages(soft_reservation *reservation, const soft_mapping *mapping,
                      soft_mapping *entry) {
    const size_t first = (mapping->base - reservation->range.base) / SOFT_PAGE_BYTES;
    for (size_t i = 0; i < mapping->bytes / SOFT_PAGE_BYTES; i++) {
        ASHLAR_CHECK2((reservation->pages[first + i] == NULL) != (entry == NULL));
        reservation->pages[first + i] = entry;
    }
}

static void forget_mapping(soft_reservation *reservation, soft_mapping *mapping) {
    ASHLAR_CHECK2(mapping->memory->user_count > 0 && reservation->mapping_count > 0);
    set_pages(reservation, mapping, NULL);
    reservation->mapping_count--;
    ashlar__soft_memory_drop(mapping->memory);
    ashlar__host_free(mapping);
}

void ashlar__soft_unreserve(soft_reservation *reservation) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    size_t idx;
    const soft_reservation *found =
        ashlar__soft_ranges_at(&ashlar__soft_state.reservations, reservation->range.base, &idx);
    ASHLAR_ASSERT(found == reservation);
    /* Unmap first: no page may be given to another user while it can still be reached here. */
    munmap(as_pointer(found->range.base), found->range.bytes);
    for (size_t page = 0; reservation->mapping_count > 0; page++) {
        if (reservation->pages[page] != NULL) {
            forget_mapping(reservation, reservation->pages[page]);
        }
    }
    ashlar__host_free(reservation->pages);
    ashlar__soft_ranges_remove(&ashlar__soft_state.reservations, idx, 1);
    ashlar__host_free(reservation);
}

/* The result for a call that the kernel has just refused. */
static cu_result mapping_error(void) {
    return errno == ENOMEM ? CU_OPERATING_SYSTEM : CU_OUT_OF_MEMORY;
}

/* Replace mapped pages by reserved addresses without memory. At its limit of mappings the kernel
 * refuses even that; then only make the pages inaccessible. */
static bool hide(uintptr_t base, size_t bytes) {
    return mmap(as_pointer(base), bytes, PROT_NONE, RESERVE_FLAGS | MAP_FIXED, -1, 0) !=
               MAP_FAILED ||
           mprotect(as_pointer(base), bytes, PROT_NONE) == 0;
}

static bool show_file(uintptr_t base, size_t bytes, int file, off_t offset) {
    return mmap(as_pointer(base), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, file, offset) !=
           MAP_FAILED;
}

/* Map the memory's pages at `base`, with one call for pages that are neighbours in the file. */
static bool show(uintptr_t base, size_t bytes, const soft_memory *memory) {
    const size_t page_count = bytes / SOFT_PAGE_BYTES;
    for (size_t i = 0, run; i < page_count; i += run) {
        run = 1;
        while (i + run < page_count && memory->pages[i + run] == memory->pages[i] + run) {
            run++;
        }
        if (!show_file(base + i * SOFT_PAGE_BYTES, run * SOFT_PAGE_BYTES, memory->device->memory_fd,
                       (off_t)((size_t)memory->pages[i] * SOFT_PAGE_BYTES))) {
            return false;
        }
    }
    return true;
}

cu_result ashlar__soft_map(soft_reservation *reservation, uintptr_t base, size_t bytes,
                           soft_memory *memory) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    ASHLAR_CHECK2(base >= reservation->range.base &&
                  bytes <= reservation->range.base + reservation->range.bytes - base);
    ASHLAR_CHECK2(bytes % SOFT_PAGE_BYTES == 0 && bytes / SOFT_PAGE_BYTES <= memory->page_count);
    ASHLAR_CHECK2(memory->user_count > 0);
    soft_mapping *mapping = ashlar__host_calloc(1, sizeof *mapping);
    if (mapping == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    *mapping = (soft_mapping){.base = base, .bytes = bytes, .memory = memory};
    memory->user_count++;
    reservation->mapping_count++;
    set_pages(reservation, mapping, mapping);
    if (!show(base, bytes, memory)) {
        const cu_result result = mapping_error();
        (void)hide(base, bytes);
        forget_mapping(reservation, mapping);
        return result;
    }
    return CU_SUCCESS;
}

cu_result ashlar__soft_allow(soft_reservation *reservation, uintptr_t base, size_t bytes,
                             uint32_t devices) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    ASHLAR_CHECK2(devices != 0);
    if (mprotect(as_pointer(base), bytes, PROT_READ | PROT_WRITE) != 0) {
        return mapping_error();
    }
    for (uintptr_t at = base; at < base + bytes;) {
        soft_mapping *mapping = soft_mapping_at(reservation, at);
        ASHLAR_CHECK2(mapping->base == at);
        mapping->access |= devices;
        at += mapping->bytes;
    }
    return CU_SUCCESS;
}

cu_result ashlar__soft_unmap(soft_reservation *reservation, uintptr_t base, size_t bytes) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    if (!hide(base, bytes)) {
        return mapping_error();
    }
    for (uintptr_t at = base; at < base + bytes;) {
        soft_mapping *mapping = soft_mapping_at(reservation, at);
        ASHLAR_CHECK2(mapping->base == at && mapping->bytes <= base + bytes - at);
        at += mapping->bytes;
        forget_mapping(reservation, mapping);
    }
    return CU_SUCCESS;
}

/* Whether every byte is in a mapping that one of `devices` (bit i: device i) may use and, if it is
 * memory of cuMemAlloc, in one block. */
static bool is_covered(const soft_reservation *reservation, uintptr_t base, uintptr_t end,
                       uint32_t devices) {
    if (reservation->plain_device != NULL &&
        ashlar__soft_ranges_over(&ashlar__soft_state.blocks, base, end - base) == NULL) {
        return false;
    }
    while (base < end) {
        const soft_mapping *mapping = soft_mapping_at(reservation, base);
        if (mapping == NULL || (mapping->access & devices) == 0) {
            return false;
        }
        base = mapping->base + mapping->bytes;
    }
    return true;
}

bool ashlar__soft_is_accessible(uintptr_t base, size_t bytes) {
    const soft_reservation *reservation =
        ashlar__soft_ranges_over(&ashlar__soft_state.reservations, base, bytes);
    return reservation != NULL && is_covered(reservation, base, base + bytes, UINT32_MAX);
}

bool ashlar__soft_may_access(const soft_device *device, uintptr_t base, size_t bytes) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    const soft_reservation *reservation =
        ashlar__soft_ranges_over(&ashlar__soft_state.reservations, base, bytes);
    if (reservation == NULL) {
        return false;
    }
    uint32_t devices = (uint32_t)1 << device->ordinal;
    if (reservation->plain_device != NULL) { /* mapping->access has only the device's own bit */
        devices |= device->peers;
    }
    return is_covered(reservation, base, base + bytes, devices);
}
