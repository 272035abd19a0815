/* guard_unmap.c - mapping pages for each block, and unmapping them after the free, once the block's
 * last use is over. */
#include "allocator/guard/guard_unmap.h"

#include <limits.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

enum {
    ADDRESS_FACTOR = 16,    /* reserved addresses as a multiple of the device's memory */
    QUARANTINE_DIVISOR = 4, /* allocations wait if more than 1/4 of the device's memory is in
                               quarantine */
};
_Static_assert(ASHLAR_TAG_COUNT <= UCHAR_MAX + 1, "a tag fits a block's byte");

/* The invariants of guard_unmap.h that need no walk over the blocks. */
static bool is_sound(const ashlar_guard_unmap *unmap) {
    const bool is_empty = unmap->quarantine_count == 0;
    return unmap->count <= unmap->capacity && unmap->quarantine_count <= unmap->count &&
           unmap->live_bytes <= unmap->mapped_bytes && (unmap->oldest == NULL) == is_empty &&
           (unmap->newest == NULL) == is_empty &&
           (unmap->live_bytes + unmap->kept_bytes == unmap->mapped_bytes) == is_empty;
}

/* Whether an unmapped page lies between block `idx` and the block below, if there is one. */
static bool is_apart(const ashlar_guard_unmap *unmap, size_t idx) {
    ASHLAR_CHECK2(idx < unmap->count);
    if (idx == 0) {
        return true;
    }
    const ashlar_guarded_block *below = unmap->blocks[idx - 1];
    return below->offset + below->bytes + unmap->granularity <= unmap->blocks[idx]->offset;
}

static ashlar_status refuse(const ashlar_guard_unmap *unmap, const char *what, cu_result result) {
    return ashlar__driver_error(unmap->client->device->driver, what, result);
}

static cu_mem_prop memory_of(const ashlar_guard_unmap *unmap) {
    return (cu_mem_prop){
        .type = CU_ALLOCATION_PINNED,
        .location = {.type = CU_LOCATION_DEVICE, .id = unmap->client->device->info.ordinal},
    };
}

static void drop_uses(ashlar_guarded_block *block) {
    while (block->uses != NULL) {
        ashlar_use *next = block->uses->next;
        ashlar__host_free(block->uses);
        block->uses = next;
    }
}

/* ---- making and ending ---- */

/* Reserve addresses. If they are scarce, reserve fewer. */
static ashlar_status reserve_addresses(ashlar_guard_unmap *unmap) {
    const size_t device_bytes = unmap->client->device->info.total_bytes;
    cu_result result = CU_OUT_OF_MEMORY;
    for (size_t factor = ADDRESS_FACTOR; factor > 0 && result == CU_OUT_OF_MEMORY; factor /= 2) {
        if (!ashlar__mul(device_bytes, factor, &unmap->range_bytes) ||
            !ashlar__align_up(unmap->range_bytes, unmap->granularity, &unmap->range_bytes)) {
            return ashlar__fail(ASHLAR_EOVERFLOW, "the device's %zu bytes are too many to address",
                                device_bytes);
        }
        result = ASHLAR_CALL(unmap->client, mem_address_reserve,
                             (&unmap->base, unmap->range_bytes, 0, 0, 0));
    }
    return result == CU_SUCCESS ? ASHLAR_OK : refuse(unmap, "cuMemAddressReserve", result);
}

ashlar_status ashlar__guard_unmap_create(ashlar_driver_client *client, ashlar_lock *lock,
                                         ashlar_guard_unmap **out) {
    ashlar_guard_unmap *unmap = ashlar__host_calloc(1, sizeof *unmap);
    if (unmap == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "guard: no host memory for its blocks");
    }
    unmap->client = client;
    unmap->lock = lock;
    const cu_mem_prop memory = memory_of(unmap);
    const cu_result result = ASHLAR_CALL(client, mem_get_allocation_granularity,
                                         (&unmap->granularity, &memory, CU_GRANULARITY_MINIMUM));
    const ashlar_status status = result == CU_SUCCESS
                                     ? reserve_addresses(unmap)
                                     : refuse(unmap, "cuMemGetAllocationGranularity", result);
    if (status != ASHLAR_OK) {
        ashlar__host_free(unmap);
        return status;
    }
    ASHLAR_CHECK2(unmap->granularity % ASHLAR_BLOCK_ALIGN == 0 && is_sound(unmap));
    *out = unmap;
    return ASHLAR_OK;
}

/* Inside the device's context. */
static void drop_event(ashlar_guard_unmap *unmap, cu_event event) {
    if (event != NULL) {
        (void)ASHLAR_CALL(unmap->client, event_destroy, (event));
    }
}

/* Unmap a block at a point where a refusal by the driver cannot be handled. */
static void abandon(ashlar_guard_unmap *unmap, const ashlar_guarded_block *block) {
    const cu_result result =
        ASHLAR_CALL(unmap->client, mem_unmap, (unmap->base + block->offset, block->bytes));
    unmap->keeps_addresses = unmap->keeps_addresses || result != CU_SUCCESS;
}

void ashlar__guard_unmap_destroy(ashlar_guard_unmap *unmap) {
    if (unmap == NULL) {
        return;
    }
    ashlar_driver_client *client = unmap->client;
    const bool is_entered = ashlar__device_enter(client->device) == ASHLAR_OK;
    for (size_t i = 0; i < unmap->count; i++) {
        ashlar_guarded_block *block = unmap->blocks[i];
        abandon(unmap, block);
        (void)ASHLAR_CALL(client, mem_release, (block->handle));
        if (is_entered) {
            drop_event(unmap, block->event);
        }
        drop_uses(block);
        ashlar__host_free(block);
    }
    if (is_entered) {
        ashlar__device_leave(client->device);
    }
    if (!unmap->keeps_addresses) {
        (void)ASHLAR_CALL(client, mem_address_free, (unmap->base, unmap->range_bytes));
    }
    ashlar__host_free(unmap->blocks);
    ashlar__host_free(unmap);
}

/* ---- the list of blocks ---- */

/* The index of the first block whose pages end above `offset`; unmap->count: there is none. */
static size_t find_above(const ashlar_guard_unmap *unmap, size_t offset) {
    size_t low = 0, high = unmap->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const ashlar_guarded_block *block = unmap->blocks[middle];
        if (block->offset + block->bytes <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static ashlar_status reserve_entry(ashlar_guard_unmap *unmap) {
    if (unmap->count < unmap->capacity) {
        return ASHLAR_OK;
    }
    const size_t capacity = unmap->capacity == 0 ? 64 : 2 * unmap->capacity;
    ashlar_guarded_block **grown =
        ashlar__host_realloc(unmap->blocks, capacity, sizeof(ashlar_guarded_block *));
    if (grown == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "guard: no host memory for a list of %zu blocks",
                            capacity);
    }
    unmap->blocks = grown;
    unmap->capacity = capacity;
    return ASHLAR_OK;
}

static void insert(ashlar_guard_unmap *unmap, ashlar_guarded_block *block) {
    ASHLAR_CHECK2(unmap->count < unmap->capacity);
    const size_t idx = find_above(unmap, block->offset);
    ashlar_guarded_block **at = &unmap->blocks[idx];
    memmove(at + 1, at, (unmap->count - idx) * sizeof *at);
    *at = block;
    unmap->count++;
    ASHLAR_CHECK2(is_apart(unmap, idx));
    ASHLAR_CHECK2(idx + 1 == unmap->count || is_apart(unmap, idx + 1));
}

static void remove_block(ashlar_guard_unmap *unmap, const ashlar_guarded_block *block) {
    const size_t idx = find_above(unmap, block->offset);
    ASHLAR_ASSERT(idx < unmap->count && unmap->blocks[idx] == block);
    ashlar_guarded_block **at = &unmap->blocks[idx];
    unmap->count--;
    memmove(at, at + 1, (unmap->count - idx) * sizeof *at);
}

/* ---- quarantine; inside the device's context ---- */

/* Free the record of a block that is unmapped. */
static void dispose(ashlar_guard_unmap *unmap, ashlar_guarded_block *block) {
    ASHLAR_CHECK2(block->is_unmapped && block->waiters == 0);
    drop_event(unmap, block->event);
    ashlar__host_free(block);
}

/* Unmap the block in *link, whose last use is over; `before` is the next older block in quarantine,
 * or NULL. If the driver refuses, the block stays in quarantine. */
static cu_result retire(ashlar_guard_unmap *unmap, ashlar_guarded_block **link,
                        ashlar_guarded_block *before) {
    ashlar_guarded_block *block = *link;
    ASHLAR_CHECK2(!block->is_live && block->event != NULL && !block->is_unmapped);
    ASHLAR_CHECK2(link == (before != NULL ? &before->newer : &unmap->oldest));
    const cu_result result =
        ASHLAR_CALL(unmap->client, mem_unmap, (unmap->base + block->offset, block->bytes));
    if (result != CU_SUCCESS) {
        return result;
    }
    (void)ASHLAR_CALL(unmap->client, mem_release, (block->handle));
    *link = block->newer;
    if (unmap->newest == block) {
        unmap->newest = before;
    }
    unmap->quarantine_count--;
    unmap->mapped_bytes -= block->bytes;
    remove_block(unmap, block);
    block->is_unmapped = true;
    ASHLAR_CHECK2(is_sound(unmap));
    if (block->waiters == 0) {
        dispose(unmap, block);
    }
    return CU_SUCCESS;
}

/* Unmap every block whose event has completed. If the driver refuses, a later call tries again. */
static void drop_completed(ashlar_guard_unmap *unmap) {
    ashlar_guarded_block *before = NULL;
    for (ashlar_guarded_block **link = &unmap->oldest; *link != NULL;) {
        ashlar_guarded_block *block = *link;
        if (ASHLAR_CALL(unmap->client, event_query, (block->event)) == CU_SUCCESS &&
            retire(unmap, link, before) == CU_SUCCESS) {
            continue;
        }
        before = block;
        link = &block->newer;
    }
}

/* Wait until the last use of the oldest block is over, and unmap the block. The lock is dropped
 * during the wait, since the awaited work may depend on a thread that needs the lock. */
static ashlar_status wait_for_oldest(ashlar_guard_unmap *unmap) {
    ashlar_driver_client *client = unmap->client;
    ashlar_guarded_block *block = unmap->oldest;
    ASHLAR_CHECK2(block != NULL && !block->is_live);
    client->calls++; /* counted here, since ASHLAR_CALL may count only under the lock */
    block->waiters++;
    ashlar__lock_release(unmap->lock);
    const cu_result result =
        ASHLAR_DRIVER_CALL(client->device->driver, event_synchronize, (block->event));
    ashlar__lock_acquire(unmap->lock);
    ASHLAR_CHECK2(block->waiters > 0);
    block->waiters--;
    if (block->is_unmapped) { /* another thread has unmapped the block */
        if (block->waiters == 0) {
            dispose(unmap, block);
        }
        return ASHLAR_OK;
    }
    if (result != CU_SUCCESS) {
        return refuse(unmap, "cuEventSynchronize", result);
    }
    ASHLAR_ASSERT(block == unmap->oldest);
    const cu_result deferred = retire(unmap, &unmap->oldest, NULL);
    return deferred == CU_SUCCESS ? ASHLAR_OK : refuse(unmap, "cuMemUnmap", deferred);
}

static bool is_over_limit(const ashlar_guard_unmap *unmap) {
    const size_t limit = unmap->client->device->info.total_bytes / QUARANTINE_DIVISOR;
    return unmap->quarantine_count > ASHLAR_UNMAP_QUARANTINE_BLOCKS ||
           unmap->mapped_bytes - unmap->live_bytes - unmap->kept_bytes > limit;
}

/* ---- taking ---- */

/* Find the lowest free offset at or above `from` with room for `bytes` bytes and an unmapped page.
 * `from` lies in no block. False: there is no such offset. */
static bool find_hole(const ashlar_guard_unmap *unmap, size_t from, size_t bytes, size_t *out) {
    size_t need;
    if (!ashlar__add(bytes, unmap->granularity, &need)) {
        return false;
    }
    for (size_t i = find_above(unmap, from); i < unmap->count; i++) {
        const ashlar_guarded_block *block = unmap->blocks[i];
        ASHLAR_CHECK2(block->offset >= from); /* blocks are apart */
        if (block->offset - from >= need) {
            break;
        }
        from = block->offset + block->bytes + unmap->granularity;
    }
    ASHLAR_CHECK2(from <= unmap->range_bytes); /* each block has its unmapped page in the range */
    if (unmap->range_bytes - from < need) {
        return false;
    }
    *out = from;
    return true;
}

static ashlar_status find_addresses(const ashlar_guard_unmap *unmap, size_t bytes, size_t *out) {
    if (find_hole(unmap, unmap->next_offset, bytes, out) || find_hole(unmap, 0, bytes, out)) {
        return ASHLAR_OK;
    }
    return ashlar__fail(ASHLAR_ENOMEM, "guard: no addresses left for %zu bytes in a range of %zu",
                        bytes, unmap->range_bytes);
}

static ashlar_status create_memory(ashlar_guard_unmap *unmap, size_t bytes, cu_mem_handle *out) {
    const cu_mem_prop memory = memory_of(unmap);
    const cu_result result = ASHLAR_CALL(unmap->client, mem_create, (out, bytes, &memory, 0));
    return result == CU_SUCCESS ? ASHLAR_OK : refuse(unmap, "cuMemCreate", result);
}

static ashlar_status map_pages(ashlar_guard_unmap *unmap, const ashlar_guarded_block *block) {
    ashlar_driver_client *client = unmap->client;
    const cu_ptr start = unmap->base + block->offset;
    cu_result result = ASHLAR_CALL(client, mem_map, (start, block->bytes, 0, block->handle, 0));
    if (result != CU_SUCCESS) {
        return refuse(unmap, "cuMemMap", result);
    }
    const cu_mem_access access = {.location = memory_of(unmap).location,
                                  .flags = CU_ACCESS_READWRITE};
    result = ASHLAR_CALL(client, mem_set_access, (start, block->bytes, &access, 1));
    if (result != CU_SUCCESS) {
        abandon(unmap, block);
        return refuse(unmap, "cuMemSetAccess", result);
    }
    return ASHLAR_OK;
}

/* Create memory for a block of `bytes` bytes. If memory runs out, wait for blocks in quarantine. */
static ashlar_status create_after_waits(ashlar_guard_unmap *unmap, size_t bytes,
                                        cu_mem_handle *out) {
    ashlar_status status = ASHLAR_OK;
    drop_completed(unmap);
    while (status == ASHLAR_OK && is_over_limit(unmap)) {
        status = wait_for_oldest(unmap);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    status = create_memory(unmap, bytes, out);
    while (status == ASHLAR_ENOMEM && unmap->oldest != NULL) {
        status = wait_for_oldest(unmap);
        if (status == ASHLAR_OK) {
            status = create_memory(unmap, bytes, out);
        }
    }
    return status;
}

/* The order matters: first calls that may drop the lock, then those that may fail, and changes of
 * the lists last. */
static ashlar_status take(ashlar_guard_unmap *unmap, ashlar_guarded_block *block) {
    ASHLAR_CHECK2(block->is_live && block->bytes > 0 && block->bytes % unmap->granularity == 0);
    ashlar_status status = create_after_waits(unmap, block->bytes, &block->handle);
    if (status != ASHLAR_OK) {
        return status;
    }
    status = reserve_entry(unmap);
    if (status == ASHLAR_OK) {
        status = find_addresses(unmap, block->bytes, &block->offset);
    }
    if (status == ASHLAR_OK) {
        status = map_pages(unmap, block);
    }
    if (status != ASHLAR_OK) {
        (void)ASHLAR_CALL(unmap->client, mem_release, (block->handle));
        return status;
    }
    insert(unmap, block);
    unmap->next_offset = block->offset + block->bytes + unmap->granularity;
    unmap->mapped_bytes += block->bytes;
    unmap->live_bytes += block->bytes;
    ASHLAR_CHECK2(is_sound(unmap));
    return ASHLAR_OK;
}

ashlar_status ashlar__guard_unmap_take_locked(ashlar_guard_unmap *unmap, size_t bytes,
                                              ashlar_tag tag, ashlar_stream_state *state,
                                              ashlar_guarded_block **out) {
    size_t aligned, page_bytes;
    /* The granularity is a multiple of the alignment. */
    ASHLAR_FAIL_IF(!ashlar__align_up(bytes, unmap->granularity, &page_bytes), ASHLAR_ENOMEM,
                   "guard: %zu bytes are too many to map", bytes);
    aligned = ashlar__round_up(bytes, ASHLAR_BLOCK_ALIGN);
    ashlar_guarded_block *block = ashlar__host_calloc(1, sizeof *block);
    if (block == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "guard: no host memory for a block");
    }
    *block = (ashlar_guarded_block){.bytes = page_bytes,
                                    .requested = bytes,
                                    .stream_state = state,
                                    .tag = (unsigned char)tag,
                                    .is_live = true};
    ashlar_device *device = unmap->client->device;
    ashlar_status status = ashlar__device_enter(device);
    if (status == ASHLAR_OK) {
        status = take(unmap, block);
        ashlar__device_leave(device);
    }
    if (status != ASHLAR_OK) {
        ashlar__host_free(block);
        return status;
    }
    block->ptr = unmap->base + block->offset + (block->bytes - aligned);
    ASHLAR_CHECK2(block->ptr % ASHLAR_BLOCK_ALIGN == 0 && bytes <= aligned &&
                  aligned <= page_bytes);
    *out = block;
    return ASHLAR_OK;
}

/* ---- freeing ---- */

ashlar_status ashlar__guard_unmap_find_locked(const ashlar_guard_unmap *unmap, const void *ptr,
                                              ashlar_guarded_block **out) {
    const cu_ptr address = ashlar__ptr_in(ptr);
    const size_t offset = (size_t)(address - unmap->base);
    const size_t idx = find_above(unmap, offset);
    ashlar_guarded_block *block = NULL;
    if (offset < unmap->range_bytes && idx < unmap->count && unmap->blocks[idx]->offset <= offset) {
        block = unmap->blocks[idx];
    }
    if (block != NULL && block->is_live && block->ptr == address) {
        *out = block;
        return ASHLAR_OK;
    }
    if (block != NULL && !block->is_live) {
        return ashlar__fail(ASHLAR_EPOINTER, "%p: freed before", ptr);
    }
    if (block != NULL && address > block->ptr) {
        return ashlar__fail(ASHLAR_EPOINTER,
                            "%p: %zu bytes inside a block; use the block's own address", ptr,
                            (size_t)(address - block->ptr));
    }
    return ashlar__fail(ASHLAR_EPOINTER, "%p: not a block of this allocator, or freed before", ptr);
}

/* Inside the device's context. Errors: also ASHLAR_EINVAL, if the stream is being captured. */
static ashlar_status record_after(ashlar_guard_unmap *unmap, const ashlar_stream_state *state,
                                  cu_event *out) {
    cu_event event = NULL;
    cu_result result = ASHLAR_CALL(unmap->client, event_create, (&event, CU_EVENT_NO_TIMING));
    if (result != CU_SUCCESS) {
        return refuse(unmap, "cuEventCreate", result);
    }
    ashlar_status status = ashlar__stream_refuse_captured(unmap->client, state->stream);
    if (status == ASHLAR_OK) {
        result = ASHLAR_CALL(unmap->client, event_record, (event, state->stream));
        status = result == CU_SUCCESS ? ASHLAR_OK : refuse(unmap, "cuEventRecord", result);
    }
    if (status != ASHLAR_OK) {
        drop_event(unmap, event);
        return status;
    }
    *out = event;
    return ASHLAR_OK;
}

ashlar_status ashlar__guard_unmap_free_locked(ashlar_guard_unmap *unmap,
                                              ashlar_guarded_block *block,
                                              const ashlar_stream_state *state) {
    ASHLAR_CHECK2(block->is_live && block->event == NULL && block->newer == NULL);
    ashlar_device *device = unmap->client->device;
    ashlar_status status = ashlar__device_enter(device);
    if (status != ASHLAR_OK) {
        return status;
    }
    status = record_after(unmap, state, &block->event);
    if (status == ASHLAR_OK) {
        block->is_live = false;
        drop_uses(block);
        unmap->live_bytes -= block->bytes;
        *(unmap->newest != NULL ? &unmap->newest->newer : &unmap->oldest) = block;
        unmap->newest = block;
        unmap->quarantine_count++;
        ASHLAR_CHECK2(is_sound(unmap));
        drop_completed(unmap);
    }
    ashlar__device_leave(device);
    return status;
}

void ashlar__guard_unmap_keep_locked(ashlar_guard_unmap *unmap, ashlar_guarded_block *block) {
    ASHLAR_CHECK2(block->is_live && block->event == NULL);
    block->is_live = false;
    block->is_kept = true;
    drop_uses(block);
    unmap->live_bytes -= block->bytes;
    unmap->kept_bytes += block->bytes;
    ASHLAR_CHECK2(is_sound(unmap));
}

ashlar_status ashlar__guard_unmap_add_use(ashlar_guarded_block *block, ashlar_stream_state *state) {
    ASHLAR_CHECK2(block->is_live);
    const ashlar_use *use = block->uses;
    while (use != NULL && use->stream_state != state) {
        use = use->next;
    }
    if (use != NULL) {
        return ASHLAR_OK;
    }
    ashlar_use *added = ashlar__host_calloc(1, sizeof *added);
    if (added == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a further stream of a block");
    }
    *added = (ashlar_use){.next = block->uses, .stream_state = state};
    block->uses = added;
    return ASHLAR_OK;
}

/* ---- check ---- */

ashlar_status ashlar__guard_unmap_check_locked(const ashlar_guard_unmap *unmap) {
    size_t mapped = 0, live = 0, kept = 0, freed = 0, queued = 0;
    ASHLAR_FAIL_IF(!is_sound(unmap), ASHLAR_EFORMAT,
                   "guard check: %zu bytes mapped, %zu live, %zu kept, %zu blocks in quarantine",
                   unmap->mapped_bytes, unmap->live_bytes, unmap->kept_bytes,
                   unmap->quarantine_count);
    for (const ashlar_guarded_block *block = unmap->oldest; block != NULL; block = block->newer) {
        queued++;
    }
    for (size_t i = 0; i < unmap->count; i++) {
        const ashlar_guarded_block *block = unmap->blocks[i];
        if (!is_apart(unmap, i) || (block->is_live && block->is_kept) ||
            (block->is_live || block->is_kept) != (block->event == NULL)) {
            return ashlar__fail(ASHLAR_EFORMAT, "guard check: a block is out of order");
        }
        mapped += block->bytes;
        live += block->is_live ? block->bytes : 0;
        kept += block->is_kept ? block->bytes : 0;
        freed += !block->is_live && !block->is_kept;
    }
    if (mapped != unmap->mapped_bytes || live != unmap->live_bytes || kept != unmap->kept_bytes ||
        queued != freed || queued != unmap->quarantine_count) {
        return ashlar__fail(ASHLAR_EFORMAT,
                            "guard check: %zu bytes mapped, %zu live, counted as %zu and %zu",
                            mapped, live, unmap->mapped_bytes, unmap->live_bytes);
    }
    return ASHLAR_OK;
}
