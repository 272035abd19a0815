/*
 * pinned_fixture.h - a software device with four streams and a pool of page-locked memory, for
 * tests. A case begins with set_up_pool(spec, config); tear_down_pool() runs at its end and checks
 * that the driver has all of its memory back.
 */
#ifndef ASHLAR_PINNED_FIXTURE_H
#define ASHLAR_PINNED_FIXTURE_H

#include "tests/allocator/core/allocator_fixture.h"
#include "tests/allocator/device/device_calls.h"

#include <ashlar/pinned.h>

static ashlar_pinned *pool;

/* The equations of pinned.h. */
static inline void check_pinned_equations(const ashlar_pinned_stats *s) {
    CHECK(s->live_bytes + s->pending_bytes <= s->reserved_bytes);
    CHECK(s->live_peak_bytes >= s->live_bytes && s->reserved_peak_bytes >= s->reserved_bytes);
    CHECK(s->live_blocks == s->alloc_count - s->free_count);
    CHECK(s->pending_blocks == s->deferred_count - s->released_count);
    CHECK(s->deferred_count <= s->free_count);
    CHECK(s->driver_free_count <= s->driver_alloc_count);
    CHECK((s->live_bytes == 0) == (s->live_blocks == 0));
    CHECK((s->pending_bytes == 0) == (s->pending_blocks == 0));
}

static inline ashlar_pinned_stats pinned_now(void) {
    ashlar_pinned_stats stats;
    ashlar_pinned_get_stats(pool, &stats);
    check_pinned_equations(&stats);
    return stats;
}

/* Calls for page-locked memory since the case began. */
static size_t host_allocs_before, host_frees_before;

static inline size_t host_allocs(void) {
    return CALLS(mem_host_alloc) - host_allocs_before;
}

static inline size_t host_frees(void) {
    return CALLS(mem_free_host) - host_frees_before;
}

static inline size_t host_blocks(void) {
    return ashlar__soft_state.host_blocks.count;
}

static inline void tear_down_pool(void) {
    ashlar_pinned_destroy(pool);
    CHECK_ZU(host_blocks(), 0);
    CHECK_ZU(live_events(), 0);
    CHECK(driver->table.ctx_pop_current(NULL) == CU_INVALID_CONTEXT); /* as before the case */
    CHECK(atomic_load(&payload_bad_count) == 0);
    tear_down_device();
}

static inline bool set_up_pool(const char *spec, const ashlar_pinned_config *config) {
    pool = NULL;
    atomic_store(&payload_bad_count, 0);
    if (!set_up_device(spec)) {
        return false;
    }
    host_allocs_before = CALLS(mem_host_alloc);
    host_frees_before = CALLS(mem_free_host);
    return ashlar_pinned_create(device, config, &pool) == ASHLAR_OK && check_at_end(tear_down_pool);
}

static inline unsigned char *take_pinned(size_t bytes) {
    void *ptr = NULL;
    CHECK(ashlar_pinned_alloc(pool, bytes, &ptr) == ASHLAR_OK && ptr != NULL);
    return ptr;
}

static inline void give_pinned(void *ptr) {
    CHECK(ashlar_pinned_free(pool, ptr) == ASHLAR_OK);
}

static inline void give_pinned_on(void *ptr, ashlar_stream stream) {
    CHECK(ashlar_pinned_free_on(pool, ptr, stream) == ASHLAR_OK);
}

/* Blocks of one size, all of them. */
static inline void take_many(void **blocks, size_t count, size_t bytes) {
    for (size_t i = 0; i < count; i++) {
        blocks[i] = take_pinned(bytes);
    }
}

static inline void give_many(void **blocks, size_t count) {
    for (size_t i = 0; i < count; i++) {
        give_pinned(blocks[i]);
    }
}

static inline void trim_pinned(void) {
    CHECK(ashlar_pinned_trim(pool) == ASHLAR_OK);
}

#endif /* ASHLAR_PINNED_FIXTURE_H */
