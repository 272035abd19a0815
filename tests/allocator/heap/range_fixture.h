/*
 * range_fixture.h - a range of its own on a software device, and what a case has mapped in it.
 */
#ifndef ASHLAR_RANGE_FIXTURE_H
#define ASHLAR_RANGE_FIXTURE_H

#include "tests/allocator/device/device_fixture.h"

#include "allocator/heap/range.h"
#include "allocator/soft/soft_state.h"

static ashlar_driver_client client;
static ashlar_range range;

/* What is mapped: a handle, or a segment (then handle == 0). */
static struct {
    size_t offset, bytes;
    cu_mem_handle handle;
} mapped[128];
static size_t mapped_count;

/* The invariants of range.h: what is in `mapped` is open, and together with the spare handles it is
 * all that the device gave. */
static inline void check_range(void) {
    size_t sum = range.spare_count * range.handle_bytes;
    CHECK(ashlar__range_is_sound(&range));
    for (size_t i = 0; i < mapped_count; i++) {
        sum += mapped[i].bytes;
        CHECK(range.kind == ASHLAR_RANGE_HOST ||
              ashlar__soft_is_accessible((uintptr_t)(range.base + mapped[i].offset),
                                         mapped[i].bytes));
    }
    CHECK_ZU(range.mapped_bytes, sum);
    if (range.kind != ASHLAR_RANGE_HOST) {
        CHECK_ZU(free_memory_of(range.client->device),
                 range.client->device->info.total_bytes - sum);
    }
}

static inline bool is_open(size_t offset) {
    return ashlar__soft_is_accessible((uintptr_t)(range.base + offset), 1);
}

/* Have `count` spare handles. */
static inline void make_spare(size_t count) {
    CHECK(ashlar__range_reserve_spare(&range, count) == ASHLAR_OK);
    while (range.spare_count < count) {
        CHECK(ashlar__range_create(&range) == ASHLAR_OK);
    }
    check_range();
}

/* Map the newest `count` spare handles at `offset`. */
static inline void map(size_t offset, size_t count) {
    CHECK(ashlar__range_map(&range, offset, count) == ASHLAR_OK);
    for (size_t i = 0; i < count; i++, mapped_count++) {
        mapped[mapped_count].offset = offset + i * range.handle_bytes;
        mapped[mapped_count].bytes = range.handle_bytes;
        mapped[mapped_count].handle = range.spare[range.spare_count + i];
    }
    check_range();
}

/* Take a segment; where it is. */
static inline size_t take_segment(size_t bytes) {
    CHECK(ashlar__range_take_segment(&range, bytes, &mapped[mapped_count].offset) == ASHLAR_OK);
    mapped[mapped_count].bytes = bytes;
    mapped[mapped_count].handle = 0;
    mapped_count++;
    check_range();
    return mapped[mapped_count - 1].offset;
}

/* Unmap mapped[idx], or free that segment; it must succeed. */
static inline void unmap(size_t idx) {
    const size_t offset = mapped[idx].offset;
    CHECK((mapped[idx].handle != 0
               ? ashlar__range_unmap(&range, offset, mapped[idx].handle)
               : ashlar__range_free_segment(&range, offset, mapped[idx].bytes)) == ASHLAR_OK);
    mapped[idx] = mapped[--mapped_count];
    CHECK(range.kind == ASHLAR_RANGE_HOST || !is_open(offset));
    check_range();
}

static inline void tear_down_range(void) {
    CHECK(ashlar__range_reserve_spare(&range, range.spare_count + mapped_count) == ASHLAR_OK);
    while (mapped_count > 0) {
        unmap(mapped_count - 1);
    }
    ashlar__range_finish(&range);
    CHECK_ZU(ashlar__soft_state.reservations.count, 0);
    tear_down_device();
}

static inline ashlar_status open_range(ashlar_range_kind kind, size_t handle_bytes) {
    client = (ashlar_driver_client){.device = device};
    return ashlar__range_init(&range, &client, kind, handle_bytes);
}

static inline bool set_up_range(const char *spec, ashlar_range_kind kind) {
    mapped_count = 0;
    return set_up_device(spec) && open_range(kind, 0) == ASHLAR_OK && check_at_end(tear_down_range);
}

#endif /* ASHLAR_RANGE_FIXTURE_H */
