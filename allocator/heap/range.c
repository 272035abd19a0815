#include "allocator/heap/range.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

/* Few driver calls for a large model, and a bound on what is reserved in vain. */
#define STEP_MAX_BYTES ((size_t)64 << 20)

ashlar_status ashlar__range_refuse(const ashlar_range *range, const char *what, cu_result result) {
    return ashlar__driver_error(range->client->device->driver, what, result);
}

void ashlar__range_finish(ashlar_range *range) {
    range->ops->finish(range);
    ashlar__host_free(range->chunks);
}

size_t ashlar__range_growth_bytes(const ashlar_range *range) {
    size_t step = range->mapped_bytes / range->ops->growth_divisor;
    step = step < range->growth_min_bytes ? range->growth_min_bytes : step;
    return (step > STEP_MAX_BYTES ? STEP_MAX_BYTES : step) & ~(range->granularity - 1);
}

size_t ashlar__range_left(const ashlar_range *range) {
    return range->limit_bytes > range->mapped_bytes ? range->limit_bytes - range->mapped_bytes : 0;
}

/* Room for `count` more entries, so that noting a chunk cannot fail once it is mapped. */
static ashlar_status reserve_entries(ashlar_range *range, size_t count) {
    size_t capacity = range->chunk_capacity == 0 ? 16 : range->chunk_capacity;
    while (capacity - range->chunk_count < count) {
        capacity *= 2; /* counts of chunks, far from SIZE_MAX */
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
    ASHLAR_ASSERT(bytes > 0 && bytes % range->granularity == 0);
    if (bytes > ashlar__range_left(range)) {
        return ashlar__fail(ASHLAR_ENOMEM,
                            "%zu bytes more than the %zu mapped would exceed the limit of %zu",
                            bytes, range->mapped_bytes, range->limit_bytes);
    }
    const ashlar_status status = reserve_entries(range, bytes / ASHLAR_CHUNK_BYTES + 1);
    return status == ASHLAR_OK ? range->ops->map(range, offset, bytes) : status;
}

ashlar_status ashlar__range_unmap(ashlar_range *range, ashlar_chunk *chunk) {
    return range->ops->unmap(range, chunk);
}

ashlar_status ashlar__range_move(ashlar_range *range, size_t offset) {
    return range->ops->move(range, offset);
}

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

void ashlar__range_trace(const ashlar_range *range, ashlar_trace_action action, size_t offset,
                         size_t bytes) {
    ashlar__trace_put_if(range->client->trace,
                         &(ashlar_trace_event){.action = (uint8_t)action,
                                               .address = range->base + offset,
                                               .bytes = bytes});
}

void ashlar__range_add(ashlar_range *range, size_t offset, size_t bytes, cu_mem_handle handle) {
    ASHLAR_ASSERT(range->chunk_count < range->chunk_capacity);
    range->chunks[range->chunk_count++] =
        (ashlar_chunk){.offset = offset, .bytes = bytes, .handle = handle};
    range->mapped_bytes += bytes;
    ashlar__range_sort(range);
    ashlar__range_trace(range, ASHLAR_TRACE_MAP, offset, bytes);
}

void ashlar__range_lose(ashlar_range *range, ashlar_chunk *chunk) {
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
}

/* By insertion: all but a few chunks are in order already. */
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
