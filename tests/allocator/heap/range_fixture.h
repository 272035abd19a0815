/*
 * range_fixture.h - a range of its own on a software device, checked after every change. A case can
 * run on both back ends: CASE_BOTH(name).
 */
#ifndef ASHLAR_RANGE_FIXTURE_H
#define ASHLAR_RANGE_FIXTURE_H

#include "tests/allocator/device/device_fixture.h"

#include "allocator/heap/range.h"
#include "allocator/soft/soft_state.h"

static ashlar_driver_client client;
static ashlar_range range;
static bool use_segments;

#define KIND (use_segments ? ASHLAR_RANGE_SEGMENTS : ASHLAR_RANGE_VIRTUAL)

static inline void tear_down_range(void) {
    ashlar__range_finish(&range);
    CHECK_ZU(ashlar__soft_state.reservations.count, 0);
    tear_down_device();
}

static inline bool set_up_range(const char *spec) {
    if (!set_up_device(spec)) {
        return false;
    }
    client = (ashlar_driver_client){.device = device};
    return ashlar__range_init(&range, &client, KIND) == ASHLAR_OK && check_at_end(tear_down_range);
}

static inline bool is_open(size_t offset, size_t bytes) {
    return ashlar__soft_is_accessible((uintptr_t)(range.base + offset), bytes);
}

/* The equations of range.h. */
static inline void check_range(void) {
    size_t sum = 0, end = 0;
    for (size_t i = 0; i < range.chunk_count; i++) {
        const ashlar_chunk *chunk = &range.chunks[i];
        CHECK(chunk->offset >= end);
        CHECK(chunk->bytes > 0 && chunk->bytes % range.granularity == 0 && !chunk->is_gone);
        CHECK(use_segments || chunk->offset % range.granularity == 0);
        CHECK(is_open(chunk->offset, chunk->bytes));
        CHECK(chunk->offset == end || end == 0 || use_segments || !is_open(end, 1));
        end = chunk->offset + chunk->bytes;
        sum += chunk->bytes;
    }
    CHECK(use_segments || !is_open(end, 1));
    CHECK_ZU(range.mapped_bytes, sum);
    CHECK_ZU(free_memory_of(device), device->info.total_bytes - sum);
}

/* Map `bytes` at `offset`; returns where they are. */
static inline size_t map(size_t offset, size_t bytes) {
    const size_t before = range.mapped_bytes;
    CHECK(ashlar__range_map(&range, &offset, bytes) == ASHLAR_OK);
    CHECK_ZU(range.mapped_bytes, before + bytes);
    CHECK(is_open(offset, bytes));
    check_range();
    return offset;
}

/* A mapping that fails with `want` and leaves everything as it was. */
static inline void check_no_map(size_t offset, size_t bytes, ashlar_status want) {
    const ashlar_range before = range;
    size_t at = offset;
    CHECK(ashlar__range_map(&range, &at, bytes) == want);
    CHECK_ZU(at, offset);
    CHECK_ZU(range.mapped_bytes, before.mapped_bytes);
    CHECK_ZU(range.chunk_count, before.chunk_count);
    check_range();
}

#define CASE_BOTH(test) CASE_TWICE(test, test##_in_segments, &use_segments)
#define CASE_BOTH_WITH(test, set_up) \
    CASE_TWICE_WITH(test, test##_in_segments, &use_segments, set_up)

#endif /* ASHLAR_RANGE_FIXTURE_H */
