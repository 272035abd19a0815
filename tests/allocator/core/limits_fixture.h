/*
 * limits_fixture.h - an allocator with options of the case's choice, on either back end.
 */
#ifndef ASHLAR_LIMITS_FIXTURE_H
#define ASHLAR_LIMITS_FIXTURE_H

#include "tests/allocator/core/allocator_fixture.h"

static bool use_vmm = true;

/* Without caches, unless the case changes that; then open_allocator(). */
static ashlar_config options;

static inline bool set_up_options(const char *spec) {
    options = (ashlar_config){0};
    options.cache_bytes = ASHLAR_CACHE_NONE;
    options.without_virtual_memory = !use_vmm;
    return set_up_device(spec);
}

static inline bool open_allocator(void) {
    return ashlar_allocator_create_with(device, &options, &allocator) == ASHLAR_OK &&
           check_at_end(tear_down);
}

static inline bool set_up_limits(const char *spec) {
    return set_up_options(spec) && open_allocator();
}

static inline size_t reserved(void) {
    return (size_t)stats_now().reserved_bytes;
}

/* Calls that take memory so far, of either back end. */
static inline size_t taking_calls(void) {
    return CALLS(mem_create) + CALLS(mem_alloc);
}

/* No block is to be had; the reason is in the detail. */
static inline void check_refused(size_t bytes, const char *reason) {
    void *ptr = &ptr;
    CHECK(ashlar_alloc(allocator, bytes, streams[0], &ptr) == ASHLAR_ENOMEM);
    CHECK(ptr == &ptr);
    CHECK_HAS(ashlar_error_detail(), reason);
    check_all();
}

static inline unsigned char *take_filled(size_t bytes, unsigned char value) {
    unsigned char *ptr = take(bytes, streams[0]);
    queue_write(streams[0], ptr, bytes, value);
    return ptr;
}

static inline void check_filled(unsigned char *ptr, size_t bytes, unsigned char value) {
    queue_verify(streams[0], ptr, bytes, value);
    wait_for(streams[0]);
    CHECK(atomic_load(&payload_bad_count) == 0);
}

#define CASE_BOTH(test) CASE_TWICE(test, test##_segmented, &use_vmm)
#define CASE_BOTH_WITH(test, set_up) \
    CASE_TWICE_WITH(test, test##_segmented, &use_vmm, set_up)

#endif /* ASHLAR_LIMITS_FIXTURE_H */
