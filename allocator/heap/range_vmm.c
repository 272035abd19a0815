/* range_vmm.c - the range with virtual memory management: chunks are mapped, unmapped, moved. */
#include "allocator/heap/range.h"

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/error.h"

/*
 * Reserved addresses as a multiple of physical memory. Addresses cost nothing, and spare ones are
 * where chunks can be moved to, so that nothing has to be compacted.
 */
enum { ADDRESS_FACTOR = 4 };

static cu_mem_prop memory_of(const ashlar_range *range) {
    return (cu_mem_prop){
        .type = CU_ALLOCATION_PINNED,
        .location = {.type = CU_LOCATION_DEVICE, .id = range->client->device->info.ordinal},
    };
}

/* Let the device and its peers use [offset, offset + bytes), all of which is mapped. */
static ashlar_status open_memory(ashlar_range *range, size_t offset, size_t bytes) {
    ASHLAR_CHECK2(bytes > 0 && offset + bytes <= range->bytes);
    ASHLAR_CHECK2(range->peer_count <= ASHLAR_PEERS_MAX);
    cu_mem_access access[1 + ASHLAR_PEERS_MAX] = {
        {.location = memory_of(range).location, .flags = CU_ACCESS_READWRITE}};
    for (size_t i = 0; i < range->peer_count; i++) {
        access[1 + i] = access[0];
        access[1 + i].location.id = range->peers[i];
    }
    const cu_result result =
        ASHLAR_CALL(range->client, mem_set_access,
                    (range->base + offset, bytes, access, 1 + range->peer_count));
    return result == CU_SUCCESS ? ASHLAR_OK : ashlar__range_refuse(range, "cuMemSetAccess", result);
}

/* Create a chunk and map it. No device may use it yet: see open_memory(). All or nothing. */
static ashlar_status map_chunk(ashlar_range *range, size_t offset, size_t bytes) {
    ASHLAR_CHECK2(bytes <= ASHLAR_CHUNK_BYTES && ashlar__range_is_granular(range, offset | bytes));
    const cu_mem_prop memory = memory_of(range);
    cu_mem_handle handle = 0;
    cu_result result = ASHLAR_CALL(range->client, mem_create, (&handle, bytes, &memory, 0));
    if (result != CU_SUCCESS) {
        return ashlar__range_refuse(range, "cuMemCreate", result);
    }
    result = ASHLAR_CALL(range->client, mem_map, (range->base + offset, bytes, 0, handle, 0));
    if (result != CU_SUCCESS) {
        (void)ASHLAR_CALL(range->client, mem_release, (handle));
        return ashlar__range_refuse(range, "cuMemMap", result);
    }
    ashlar__range_add(range, offset, bytes, handle);
    return ASHLAR_OK;
}

static void drop_chunk(ashlar_range *range, ashlar_chunk *chunk) {
    (void)ASHLAR_CALL(range->client, mem_unmap, (range->base + chunk->offset, chunk->bytes));
    (void)ASHLAR_CALL(range->client, mem_release, (chunk->handle));
    ashlar__range_lose(range, chunk);
}

static ashlar_status vmm_map(ashlar_range *range, size_t *offset, size_t bytes) {
    size_t done = 0;
    ashlar_status status = ASHLAR_OK;
    while (status == ASHLAR_OK && done < bytes) {
        const size_t left = bytes - done;
        const size_t part = left < ASHLAR_CHUNK_BYTES ? left : ASHLAR_CHUNK_BYTES;
        status = map_chunk(range, *offset + done, part);
        done += status == ASHLAR_OK ? part : 0;
    }
    if (status == ASHLAR_OK) {
        status = open_memory(range, *offset, bytes);
    }
    if (status == ASHLAR_OK) {
        return ASHLAR_OK;
    }
    for (size_t i = 0; i < range->chunk_count; i++) {
        ashlar_chunk *chunk = &range->chunks[i];
        if (chunk->offset >= *offset && chunk->offset < *offset + done) {
            drop_chunk(range, chunk);
        }
    }
    ashlar__range_forget_gone(range);
    return status;
}

/* Map an unmapped chunk where it was. If even that fails, give up its memory: the chunk is gone. */
static void restore(ashlar_range *range, ashlar_chunk *chunk) {
    ASHLAR_CHECK2(!chunk->is_gone);
    const cu_ptr at = range->base + chunk->offset;
    if (ASHLAR_CALL(range->client, mem_map, (at, chunk->bytes, 0, chunk->handle, 0)) !=
        CU_SUCCESS) {
        (void)ASHLAR_CALL(range->client, mem_release, (chunk->handle));
        ashlar__range_lose(range, chunk);
    } else if (open_memory(range, chunk->offset, chunk->bytes) != ASHLAR_OK) {
        drop_chunk(range, chunk);
    }
}

static ashlar_status vmm_unmap(ashlar_range *range, ashlar_chunk *chunk) {
    cu_result result =
        ASHLAR_CALL(range->client, mem_unmap, (range->base + chunk->offset, chunk->bytes));
    if (result != CU_SUCCESS) {
        return ashlar__range_refuse(range, "cuMemUnmap", result);
    }
    result = ASHLAR_CALL(range->client, mem_release, (chunk->handle));
    if (result != CU_SUCCESS) {
        restore(range, chunk);
        return ashlar__range_refuse(range, "cuMemRelease", result);
    }
    ashlar__range_lose(range, chunk);
    return ASHLAR_OK;
}

/* The first chosen chunk from entry *idx on, or NULL. Moves *idx behind it. */
static ashlar_chunk *next_chosen(ashlar_range *range, size_t *idx) {
    while (*idx < range->chunk_count && !range->chunks[*idx].is_chosen) {
        ++*idx;
    }
    return *idx < range->chunk_count ? &range->chunks[(*idx)++] : NULL;
}

/* How far a move has got, counted in chosen chunks, in order: mapped <= unmapped. */
typedef struct move_progress {
    size_t unmapped; /* chunks unmapped from their old addresses */
    size_t mapped;   /* chunks mapped at their new addresses */
} move_progress;

static ashlar_status try_move(ashlar_range *range, size_t offset, move_progress *done) {
    ashlar_chunk *chunk;
    size_t idx = 0, end = offset;
    for (; (chunk = next_chosen(range, &idx)) != NULL; done->unmapped++) {
        const cu_result result =
            ASHLAR_CALL(range->client, mem_unmap, (range->base + chunk->offset, chunk->bytes));
        if (result != CU_SUCCESS) {
            return ashlar__range_refuse(range, "cuMemUnmap", result);
        }
    }
    for (idx = 0; (chunk = next_chosen(range, &idx)) != NULL; done->mapped++) {
        const cu_result result = ASHLAR_CALL(
            range->client, mem_map, (range->base + end, chunk->bytes, 0, chunk->handle, 0));
        if (result != CU_SUCCESS) {
            return ashlar__range_refuse(range, "cuMemMap", result);
        }
        end += chunk->bytes;
    }
    ASHLAR_CHECK2(done->mapped == done->unmapped && end > offset);
    return open_memory(range, offset, end - offset);
}

static void undo_move(ashlar_range *range, size_t offset, move_progress done) {
    ASHLAR_CHECK2(done.mapped <= done.unmapped);
    ashlar_chunk *chunk;
    size_t idx = 0;
    for (size_t i = 0; i < done.mapped; i++) {
        chunk = next_chosen(range, &idx);
        (void)ASHLAR_CALL(range->client, mem_unmap, (range->base + offset, chunk->bytes));
        offset += chunk->bytes;
    }
    idx = 0;
    for (size_t i = 0; i < done.unmapped; i++) {
        restore(range, next_chosen(range, &idx));
    }
}

static ashlar_status vmm_move(ashlar_range *range, size_t offset) {
    move_progress done = {0, 0};
    const ashlar_status status = try_move(range, offset, &done);
    if (status != ASHLAR_OK) {
        undo_move(range, offset, done);
        return status;
    }
    ashlar_chunk *chunk;
    for (size_t idx = 0; (chunk = next_chosen(range, &idx)) != NULL;) {
        chunk->moved_from = chunk->offset;
        chunk->offset = offset;
        ashlar__range_trace(range, ASHLAR_TRACE_UNMAP, chunk->moved_from, chunk->bytes);
        ashlar__range_trace(range, ASHLAR_TRACE_MAP, chunk->offset, chunk->bytes);
        offset += chunk->bytes;
    }
    ashlar__range_sort(range);
    return ASHLAR_OK;
}

/*
 * The end offset of the run of chunks that starts with entry *idx and has no gap. Moves *idx behind
 * the run.
 */
static size_t run_end(const ashlar_range *range, size_t *idx) {
    size_t end = range->chunks[*idx].offset;
    while (*idx < range->chunk_count && range->chunks[*idx].offset == end) {
        end += range->chunks[(*idx)++].bytes;
    }
    return end;
}

/* End a device's access to the memory below an offset. */
static void close_to(ashlar_range *range, int ordinal, size_t below) {
    cu_mem_access access = {.location = memory_of(range).location, .flags = CU_ACCESS_NONE};
    access.location.id = ordinal;
    for (size_t idx = 0; idx < range->chunk_count && range->chunks[idx].offset < below;) {
        const size_t start = range->chunks[idx].offset, end = run_end(range, &idx);
        (void)ASHLAR_CALL(range->client, mem_set_access,
                          (range->base + start, end - start, &access, 1));
    }
}

static ashlar_status vmm_allow_peer(ashlar_range *range, int ordinal) {
    ASHLAR_CHECK2(range->peer_count < ASHLAR_PEERS_MAX);
    range->peers[range->peer_count++] = ordinal;
    for (size_t idx = 0; idx < range->chunk_count;) {
        const size_t start = range->chunks[idx].offset, end = run_end(range, &idx);
        const ashlar_status status = open_memory(range, start, end - start);
        if (status != ASHLAR_OK) {
            range->peer_count--;
            close_to(range, ordinal, start);
            return status;
        }
    }
    return ASHLAR_OK;
}

static void vmm_finish(ashlar_range *range) {
    for (size_t i = 0; i < range->chunk_count; i++) {
        drop_chunk(range, &range->chunks[i]);
    }
    ASHLAR_ASSERT(range->mapped_bytes == 0);
    (void)ASHLAR_CALL(range->client, mem_address_free, (range->base, range->bytes));
}

/* Reserve addresses; if they are scarce (ulimit -v, a virtual machine), make do with fewer. */
static ashlar_status reserve_addresses(ashlar_range *range) {
    cu_result result = CU_OUT_OF_MEMORY;
    for (size_t factor = ADDRESS_FACTOR; factor > 0 && result == CU_OUT_OF_MEMORY; factor /= 2) {
        if (!ashlar__mul(range->memory_bytes, factor, &range->bytes) ||
            !ashlar__align_up(range->bytes, range->granularity, &range->bytes)) {
            return ashlar__fail(ASHLAR_EOVERFLOW, "the device's %zu bytes are too many to address",
                                range->memory_bytes);
        }
        result =
            ASHLAR_CALL(range->client, mem_address_reserve, (&range->base, range->bytes, 0, 0, 0));
    }
    return result == CU_SUCCESS ? ASHLAR_OK
                                : ashlar__range_refuse(range, "cuMemAddressReserve", result);
}

ashlar_status ashlar__range_vmm_init(ashlar_range *range) {
    static const ashlar_range_ops ops = {
        .growth_divisor = 64,
        .map = vmm_map,
        .unmap = vmm_unmap,
        .move = vmm_move,
        .allow_peer = vmm_allow_peer,
        .finish = vmm_finish,
    };
    const cu_mem_prop memory = memory_of(range);
    const cu_result result = ASHLAR_CALL(range->client, mem_get_allocation_granularity,
                                         (&range->granularity, &memory, CU_GRANULARITY_MINIMUM));
    if (result != CU_SUCCESS) {
        return ashlar__range_refuse(range, "cuMemGetAllocationGranularity", result);
    }
    ASHLAR_ASSERT(ashlar__range_is_granular(range, ASHLAR_CHUNK_BYTES));
    range->ops = &ops;
    return reserve_addresses(range);
}
