/*
 * range.c - what all back ends of a range of device addresses share: the limit, spare handles, the
 * trace.
 */
#include "allocator/heap/range.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

ashlar_status ashlar__range_refuse(const ashlar_range *range, const char *what, cu_result result) {
    return ashlar__driver_error(range->client->device->driver, what, result);
}

bool ashlar__range_is_sound(const ashlar_range *range) {
    return range->mapped_bytes <= range->memory_bytes && range->next_offset <= range->bytes &&
           range->spare_count <= range->spare_capacity &&
           range->spare_count * range->handle_bytes <= range->mapped_bytes;
}

/* ---- the limit ---- */

size_t ashlar__range_left(const ashlar_range *range) {
    return range->limit_bytes > range->mapped_bytes ? range->limit_bytes - range->mapped_bytes : 0;
}

ashlar_status ashlar__range_allows(const ashlar_range *range, size_t bytes) {
    return bytes <= ashlar__range_left(range)
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_ENOMEM,
                              "%zu bytes more than the %zu mapped would exceed the limit of %zu",
                              bytes, range->mapped_bytes, range->limit_bytes);
}

ashlar_status ashlar__range_reserve_spare(ashlar_range *range, size_t count) {
    size_t capacity = range->spare_capacity == 0 ? 16 : range->spare_capacity;
    while (capacity < count) {
        capacity *= 2; /* cannot overflow: a count of handles is far below SIZE_MAX */
    }
    if (capacity == range->spare_capacity) {
        return ASHLAR_OK;
    }
    cu_mem_handle *grown = ashlar__host_realloc(range->spare, capacity, sizeof *grown);
    if (grown == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a list of %zu handles", capacity);
    }
    range->spare = grown;
    range->spare_capacity = capacity;
    return ASHLAR_OK;
}

void ashlar__range_trace(const ashlar_range *range, ashlar_trace_action action, size_t offset,
                         size_t bytes) {
    ashlar__trace_put(range->client->trace, &(ashlar_trace_event){.action = (uint8_t)action,
                                                                  .address = range->base + offset,
                                                                  .bytes = bytes});
}
