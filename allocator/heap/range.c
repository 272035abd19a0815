/*
 * range.c - what both back ends of a range share: opening, the limit, the list of chunks, peers.
 */
#include "allocator/heap/range.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

/* The most to map ahead: enough to need few driver calls, but not too much to map in vain. */
#define STEP_MAX_BYTES ((size_t)64 << 20)

ashlar_status ashlar__range_refuse(const ashlar_range *range, const char *what, cu_result result) {
    return ashlar__driver_error(range->client->device->driver, what, result);
}

/* ---- the ends ---- */

static ashlar_status has_virtual_memory(const ashlar_range *range, bool *out) {
    int supported = 0;
    const cu_result result =
        ASHLAR_CALL(range->client, device_get_attribute,
                    (&supported, CU_ATTRIBUTE_VMM_SUPPORTED, range->client->device->info.ordinal));
    if (result != CU_SUCCESS) {
        return ashlar__range_refuse(range, "cuDeviceGetAttribute", result);
    }
    *out = supported != 0;
    return ASHLAR_OK;
}

ashlar_status ashlar__range_init(ashlar_range *range, ashlar_driver_client *client,
                                 ashlar_range_kind kind) {
    const size_t memory_bytes =
        kind == ASHLAR_RANGE_HOST ? ashlar__host_memory_bytes() : client->device->info.total_bytes;
    ashlar_range fresh = {
        .client = client, .kind = kind, .memory_bytes = memory_bytes, .limit_bytes = memory_bytes};
    bool use_vmm = false;
    ashlar_status status =
        kind == ASHLAR_RANGE_VIRTUAL ? has_virtual_memory(&fresh, &use_vmm) : ASHLAR_OK;
    if (status == ASHLAR_OK && use_vmm) {
        status = ashlar__range_vmm_init(&fresh);
    } else if (status == ASHLAR_OK) {
        ashlar__range_segments_init(&fresh);
    }
    if (status == ASHLAR_OK) {
        ASHLAR_CHECK2(ashlar__range_is_granular(&fresh, fresh.granularity));
        ASHLAR_CHECK2(fresh.ops->growth_divisor > 0);
        *range = fresh;
    }
    return status;
}

void ashlar__range_finish(ashlar_range *range) {
    range->ops->finish(range);
    ashlar__host_free(range->chunks);
}

/* ---- mapping ---- */

size_t ashlar__range_growth_bytes(const ashlar_range *range) {
    size_t step = range->mapped_bytes / range->ops->growth_divisor;
    step = step < range->growth_min_bytes ? range->growth_min_bytes : step;
    step = (step > STEP_MAX_BYTES ? STEP_MAX_BYTES : step) & ~(range->granularity - 1);
    ASHLAR_CHECK2(ashlar__range_is_granular(range, step));
    return step;
}

size_t ashlar__range_left(const ashlar_range *range) {
    return range->limit_bytes > range->mapped_bytes ? range->limit_bytes - range->mapped_bytes : 0;
}

/* Make room for `count` more entries, so that noting a chunk cannot fail once it is mapped. */
static ashlar_status reserve_entries(ashlar_range *range, size_t count) {
    size_t capacity = range->chunk_capacity == 0 ? 16 : range->chunk_capacity;
    while (capacity - range->chunk_count < count) {
        capacity *= 2; /* cannot overflow: a count of chunks is far below SIZE_MAX */
    }
    if (capacity == range->chunk_capacity) {
        return ASHLAR_OK;
    }
    ashlar_chunk *grown = ashlar__host_realloc(range->chunks, capacity, sizeof *grown);
    if (grown == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a list of %zu chunks", capacity);
    }
    range->chunks = grown;
    range->chunk_capacity = capacity;
    return ASHLAR_OK;
}

ashlar_status ashlar__range_map(ashlar_range *range, size_t *offset, size_t bytes) {
    ASHLAR_ASSERT(bytes > 0 && ashlar__range_is_granular(range, bytes));
    if (bytes > ashlar__range_left(range)) {
        return ashlar__fail(ASHLAR_ENOMEM,
                            "%zu bytes more than the %zu mapped would exceed the limit of %zu",
                            bytes, range->mapped_bytes, range->limit_bytes);
    }
    ashlar_status status = reserve_entries(range, bytes / ASHLAR_CHUNK_BYTES + 1);
    if (status == ASHLAR_OK) {
        status = range->ops->map(range, offset, bytes);
    }
    ASHLAR_CHECK2(status != ASHLAR_OK || range->mapped_bytes <= range->limit_bytes);
    ASHLAR_CHECK3(ashlar__range_is_sound(range));
    return status;
}

ashlar_status ashlar__range_unmap(ashlar_range *range, ashlar_chunk *chunk) {
    ASHLAR_CHECK2(chunk >= range->chunks && chunk < range->chunks + range->chunk_count);
    ASHLAR_CHECK2(!chunk->is_gone);
    const ashlar_status status = range->ops->unmap(range, chunk);
    ASHLAR_CHECK2(chunk->is_gone || status != ASHLAR_OK);
    return status;
}

ashlar_status ashlar__range_move(ashlar_range *range, size_t offset) {
    ASHLAR_CHECK2(range->ops->move != NULL && ashlar__range_is_granular(range, offset));
    const size_t mapped_bytes = range->mapped_bytes;
    const ashlar_status status = range->ops->move(range, offset);
    ASHLAR_CHECK2(status != ASHLAR_OK || range->mapped_bytes == mapped_bytes);
    ASHLAR_CHECK3(ashlar__range_is_sound(range));
    return status;
}

/* ---- peers ---- */

ashlar_status ashlar__range_allow_peer(ashlar_range *range, int ordinal) {
    bool is_known = ordinal == range->client->device->info.ordinal;
    for (size_t i = 0; i < range->peer_count; i++) {
        is_known = is_known || range->peers[i] == ordinal;
    }
    if (is_known) {
        return ASHLAR_OK;
    }
    if (range->peer_count == ASHLAR_PEERS_MAX) {
        return ashlar__fail(ASHLAR_ENOTSUP, "peer %d: at most %d devices can share an allocator",
                            ordinal, ASHLAR_PEERS_MAX + 1);
    }
    return range->ops->allow_peer(range, ordinal);
}

/* ---- chunks ---- */

bool ashlar__range_is_sound(const ashlar_range *range) {
    size_t end = 0, mapped_bytes = 0;
    for (size_t i = 0; i < range->chunk_count; i++) {
        const ashlar_chunk *chunk = &range->chunks[i];
        if (chunk->is_gone) {
            continue;
        }
        if (chunk->offset < end || chunk->bytes == 0 || chunk->offset > range->bytes ||
            chunk->bytes > range->bytes - chunk->offset) {
            return false;
        }
        end = chunk->offset + chunk->bytes;
        mapped_bytes += chunk->bytes;
    }
    return mapped_bytes == range->mapped_bytes && range->chunk_count <= range->chunk_capacity;
}

void ashlar__range_trace(const ashlar_range *range, ashlar_trace_action action, size_t offset,
                         size_t bytes) {
    ashlar__trace_put_if(range->client->trace,
                         &(ashlar_trace_event){.action = (uint8_t)action,
                                               .address = range->base + offset,
                                               .bytes = bytes});
}

void ashlar__range_add(ashlar_range *range, size_t offset, size_t bytes, cu_mem_handle handle) {
    ASHLAR_ASSERT(range->chunk_count < range->chunk_capacity);
    ASHLAR_CHECK2(bytes > 0 && offset <= range->bytes && bytes <= range->bytes - offset);
    ASHLAR_CHECK2((handle == 0) == (range->segments != NULL));
    range->chunks[range->chunk_count++] =
        (ashlar_chunk){.offset = offset, .bytes = bytes, .handle = handle};
    range->mapped_bytes += bytes;
    ashlar__range_sort(range);
    ashlar__range_trace(range, ASHLAR_TRACE_MAP, offset, bytes);
}

void ashlar__range_lose(ashlar_range *range, ashlar_chunk *chunk) {
    ASHLAR_CHECK2(!chunk->is_gone && chunk->bytes <= range->mapped_bytes);
    chunk->is_gone = true;
    range->mapped_bytes -= chunk->bytes;
    ashlar__range_trace(range, ASHLAR_TRACE_UNMAP, chunk->offset, chunk->bytes);
}

void ashlar__range_forget_gone(ashlar_range *range) {
    size_t kept = 0;
    for (size_t i = 0; i < range->chunk_count; i++) {
        if (!range->chunks[i].is_gone) {
            range->chunks[kept++] = range->chunks[i];
        }
    }
    range->chunk_count = kept;
    ASHLAR_CHECK2((kept == 0) == (range->mapped_bytes == 0));
    ASHLAR_CHECK3(ashlar__range_is_sound(range));
}

/* An insertion sort, since all but a few chunks are in order already. */
void ashlar__range_sort(ashlar_range *range) {
    for (size_t i = 1; i < range->chunk_count; i++) {
        const ashlar_chunk chunk = range->chunks[i];
        size_t at = i;
        for (; at > 0 && range->chunks[at - 1].offset > chunk.offset; at--) {
            range->chunks[at] = range->chunks[at - 1];
        }
        range->chunks[at] = chunk;
    }
}
