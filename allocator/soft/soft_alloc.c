/* soft_alloc.c - the software device's cuMemAlloc, built on pages and mappings, and its pinned host
 * memory. */
#include "allocator/soft/soft_state.h"

#include <sys/mman.h>

#include "allocator/base/checked.h"
#include "allocator/base/host.h"

enum { HOST_FLAGS_ALLOWED = 7 }; /* portable, device-mapped, write-combined: without effect here */

/* ---- plain memory ---- */

/*
 * Blocks of less than a page share pages. Of CUDA it is known that what cudaMalloc() gives "may be
 * sub-allocated from a larger block of memory", sizes of whole 2 MiB excepted (CUDA C++ Programming
 * Guide, Interprocess Communication), that blocks start at multiples of 512 bytes (cupy #176), and
 * that the driver tells of the block and not of the pages behind it (ucx #8806, #11724).
 *
 * The rest is assumed: a block lies in the first gap between others of its context that has room;
 * it ends at the byte that was asked for, and no copy may reach from one into the next; a page is
 * freed with its last block; and a block of a page or more has its pages to itself.
 */
enum { BLOCK_ALIGN = 512 };

/* The address of the first gap between the page's blocks that has room; 0: there is none. */
static uintptr_t find_gap(soft_reservation *page, size_t bytes) {
    const soft_ranges *blocks = &ashlar__soft_state.blocks;
    const uintptr_t end = page->range.base + page->range.bytes;
    uintptr_t at = page->range.base;
    size_t largest = 0;
    for (size_t i = ashlar__soft_ranges_after(blocks, at); at < end; i++) {
        const soft_range past_all = {end, 0};
        const soft_range *next = i < blocks->count ? blocks->items[i] : &past_all;
        next = next->base < end ? next : &past_all;
        if (next->base - at >= bytes) {
            return at;
        }
        largest = next->base - at > largest ? next->base - at : largest;
        at = (next->base + next->bytes + BLOCK_ALIGN - 1) & ~(uintptr_t)(BLOCK_ALIGN - 1);
    }
    page->gap_bytes = largest;
    return 0;
}

/* An address for a small block in a page that the context has already; 0: no page has room. */
static uintptr_t find_shared(const soft_device *context, size_t bytes) {
    uintptr_t base = 0;
    for (size_t i = 0; i < ashlar__soft_state.reservations.count && base == 0; i++) {
        soft_reservation *page = (soft_reservation *)ashlar__soft_state.reservations.items[i];
        if (page->plain_device == context && page->gap_bytes >= bytes) {
            base = find_gap(page, bytes);
        }
    }
    return base;
}

static cu_result take_pages(soft_device *device, size_t bytes, uintptr_t *base) {
    size_t rounded;
    soft_memory *memory;
    if (!ashlar__align_up(bytes, SOFT_PAGE_BYTES, &rounded)) {
        return CU_OUT_OF_MEMORY;
    }
    SOFT_TRY(ashlar__soft_memory_create(device, rounded, &memory));
    soft_reservation *reservation;
    cu_result result = ashlar__soft_reserve(rounded, SOFT_PAGE_BYTES, 0, &reservation);
    if (result == CU_SUCCESS) {
        result = ashlar__soft_map(reservation, reservation->range.base, rounded, memory);
        if (result == CU_SUCCESS) {
            result = ashlar__soft_allow(reservation, reservation->range.base, rounded,
                                        (uint32_t)1 << device->ordinal);
        }
        if (result != CU_SUCCESS) {
            ashlar__soft_unreserve(reservation);
        }
    }
    ashlar__soft_memory_drop(memory); /* from here on the mappings alone keep the memory */
    if (result == CU_SUCCESS) {
        ASHLAR_CHECK2(memory->user_count == 1 && reservation->mapping_count == 1);
        reservation->plain_device = device;
        reservation->gap_bytes = bytes < SOFT_PAGE_BYTES ? SOFT_PAGE_BYTES : 0;
        *base = reservation->range.base;
    }
    return result;
}

static soft_reservation *pages_of(uintptr_t base) {
    return ashlar__soft_ranges_over(&ashlar__soft_state.reservations, base, 1);
}

/* The block at `base` is gone: note that its page may have room, or free a page without blocks. */
static void leave_pages(uintptr_t base) {
    soft_reservation *pages = pages_of(base);
    if (ashlar__soft_ranges_touch(&ashlar__soft_state.blocks, pages->range.base,
                                  pages->range.bytes)) {
        pages->gap_bytes = SOFT_PAGE_BYTES;
    } else {
        ashlar__soft_unreserve(pages);
    }
}

static bool put_block(uintptr_t base, size_t bytes) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    ASHLAR_CHECK2(base % BLOCK_ALIGN == 0 && pages_of(base)->plain_device != NULL);
    soft_range *block = ashlar__host_calloc(1, sizeof *block);
    if (block == NULL) {
        return false;
    }
    *block = (soft_range){base, bytes};
    if (!ashlar__soft_ranges_insert(&ashlar__soft_state.blocks, block)) {
        ashlar__host_free(block);
        return false;
    }
    return true;
}

static void drop_block(size_t idx) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    soft_range *block = ashlar__soft_state.blocks.items[idx];
    ashlar__soft_ranges_remove(&ashlar__soft_state.blocks, idx, 1);
    leave_pages(block->base);
    ashlar__host_free(block);
}

static cu_result plain_alloc(soft_device *device, size_t bytes, cu_ptr *ptr) {
    uintptr_t base = bytes < SOFT_PAGE_BYTES ? find_shared(device, bytes) : 0;
    if (base == 0) {
        SOFT_TRY(take_pages(device, bytes, &base));
    }
    if (!put_block(base, bytes)) {
        leave_pages(base);
        return CU_OUT_OF_MEMORY;
    }
    *ptr = base;
    return CU_SUCCESS;
}

cu_result ashlar__soft_mem_alloc(cu_ptr *ptr, size_t bytes) {
    soft_device *device;
    SOFT_TRY(ashlar__soft_enter_unsafe(ASHLAR_DRIVER_FN_mem_alloc, &device));
    if (ptr == NULL || bytes == 0) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    return ashlar__soft_leave(plain_alloc(device, bytes, ptr));
}

/* The pages of the block that starts at `ptr`; NULL: none does. */
static soft_reservation *find_plain(cu_ptr ptr, size_t *idx) {
    if (ashlar__soft_ranges_at(&ashlar__soft_state.blocks, (uintptr_t)ptr, idx) == NULL) {
        return NULL;
    }
    return pages_of((uintptr_t)ptr);
}

cu_result ashlar__soft_mem_free(cu_ptr ptr) {
    soft_device *device;
    SOFT_TRY(ashlar__soft_enter_unsafe(ASHLAR_DRIVER_FN_mem_free, &device));
    size_t idx;
    const soft_reservation *pages = find_plain(ptr, &idx);
    if (pages == NULL) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    ashlar__soft_wait_device(pages->plain_device, 0);
    /* During the wait the lock was dropped, and another thread may have freed the block. */
    if (find_plain(ptr, &idx) == NULL) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    drop_block(idx);
    return ashlar__soft_leave(device->fault);
}

/* ---- pinned memory ---- */

cu_result ashlar__soft_mem_host_alloc(void **ptr, size_t bytes, unsigned int flags) {
    soft_device *device;
    SOFT_TRY(ashlar__soft_enter_unsafe(ASHLAR_DRIVER_FN_mem_host_alloc, &device));
    if (ptr == NULL || bytes == 0 || flags > HOST_FLAGS_ALLOWED) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    soft_host_block *block = ashlar__host_calloc(1, sizeof *block);
    if (block == NULL) {
        return ashlar__soft_leave(CU_OUT_OF_MEMORY);
    }
    /* With touch=off more than the host has, as of the device's memory. */
    const int unwritten = ashlar__soft_state.config.has_touch ? 0 : MAP_NORESERVE;
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | unwritten, -1, 0);
    if (memory == MAP_FAILED) {
        ashlar__host_free(block);
        return ashlar__soft_leave(CU_OUT_OF_MEMORY);
    }
    block->range = (soft_range){(uintptr_t)memory, bytes};
    block->device = device;
    if (!ashlar__soft_ranges_insert(&ashlar__soft_state.host_blocks, &block->range)) {
        munmap(memory, bytes);
        ashlar__host_free(block);
        return ashlar__soft_leave(CU_OUT_OF_MEMORY);
    }
    *ptr = memory;
    return ashlar__soft_leave(CU_SUCCESS);
}

static void free_host_block(size_t idx) {
    ASHLAR_CHECK2(idx < ashlar__soft_state.host_blocks.count);
    soft_host_block *block = (soft_host_block *)ashlar__soft_state.host_blocks.items[idx];
    munmap((void *)block->range.base, block->range.bytes);
    ashlar__soft_ranges_remove(&ashlar__soft_state.host_blocks, idx, 1);
    ashlar__host_free(block);
}

/* Does not wait for queued work: a queued copy that still needs the block faults when it runs. CUDA
 * does not promise more. */
cu_result ashlar__soft_mem_free_host(void *ptr) {
    soft_device *device;
    SOFT_TRY(ashlar__soft_enter_unsafe(ASHLAR_DRIVER_FN_mem_free_host, &device));
    size_t idx;
    if (ashlar__soft_ranges_at(&ashlar__soft_state.host_blocks, (uintptr_t)ptr, &idx) == NULL) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    const soft_range *range = ashlar__soft_state.host_blocks.items[idx];
    ashlar__soft_let_go(range->base, range->bytes);
    free_host_block(idx);
    return ashlar__soft_leave(CU_SUCCESS);
}

cu_result ashlar__soft_pointer_get_attribute(void *data, unsigned int attribute, cu_ptr ptr) {
    SOFT_TRY(ashlar__soft_enter(ASHLAR_DRIVER_FN_pointer_get_attribute));
    const uintptr_t at = (uintptr_t)ptr;
    const bool is_host = ashlar__soft_ranges_over(&ashlar__soft_state.host_blocks, at, 1) != NULL;
    if (data == NULL || attribute != CU_POINTER_MEMORY_TYPE ||
        (!is_host && !ashlar__soft_is_accessible(at, 1))) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    *(unsigned int *)data = is_host ? CU_MEMORY_HOST : CU_MEMORY_DEVICE;
    return ashlar__soft_leave(CU_SUCCESS);
}

void ashlar__soft_alloc_reset(const soft_device *device) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    /* Backwards, since each step removes the item it looks at. */
    for (size_t i = ashlar__soft_state.blocks.count; i-- > 0;) {
        if (device == NULL ||
            pages_of(ashlar__soft_state.blocks.items[i]->base)->plain_device == device) {
            drop_block(i);
        }
    }
    for (size_t i = ashlar__soft_state.reservations.count; device == NULL && i-- > 0;) {
        ashlar__soft_unreserve((soft_reservation *)ashlar__soft_state.reservations.items[i]);
    }
    for (size_t i = ashlar__soft_state.host_blocks.count; i-- > 0;) {
        const soft_host_block *item =
            (const soft_host_block *)ashlar__soft_state.host_blocks.items[i];
        if (device == NULL || item->device == device) {
            free_host_block(i);
        }
    }
}
