/*
 * arena_fixture.h - a small arena of all types with every kind of padding, for tests.
 *
 *   tensor          group of   storage             state             master
 *   one    F32 3    28 B       16 .. 28            16 .. 28          -
 *   two    F32 2x5  112 B      256 + 72 .. 368     256 + 72 .. 368   -
 *   three  F32 16   (the same) 256 .. 320          256 .. 320        -
 *   half   BF16 5x7 70 B       512 .. 582          512 .. 652        0 .. 140
 *   four   F32 70   280 B      768 .. 1048         1024 .. 1304      -
 *   five   F64 2    16 B       1280 .. 1296        1536 .. 1552      -
 *   end                        1536                1792              512
 */
#ifndef ASHLAR_ARENA_FIXTURE_H
#define ASHLAR_ARENA_FIXTURE_H

#include "tests/allocator/core/allocator_fixture.h"

#include "arena/layout/arena_impl.h"

enum { ONE, TWO, THREE, HALF, FOUR, FIVE, TENSORS };

static ashlar_arena *arena;

static inline bool declare_all(ashlar_arena *in) {
    const ashlar_tensor_spec one = {
        .name = "one", .dtype = ASHLAR_F32, .rank = 1, .shape = {3}, .group_offset = 16};
    const ashlar_tensor_spec pair[] = {
        {.name = "two", .dtype = ASHLAR_F32, .rank = 2, .shape = {2, 5}, .group_offset = 72},
        {.name = "three", .dtype = ASHLAR_F32, .rank = 1, .shape = {16}}};
    return ashlar_arena_add_group(in, 28, &one, 1, NULL) == ASHLAR_OK &&
           ashlar_arena_add_group(in, 112, pair, 2, NULL) == ASHLAR_OK &&
           ashlar_arena_add(in, "half", ASHLAR_BF16, 2, (size_t[]){5, 7}, NULL) == ASHLAR_OK &&
           ashlar_arena_add(in, "four", ASHLAR_F32, 1, &(size_t){70}, NULL) == ASHLAR_OK &&
           ashlar_arena_add(in, "five", ASHLAR_F64, 1, &(size_t){2}, NULL) == ASHLAR_OK;
}

static inline void tear_down_arena(void) {
    ashlar_arena_destroy(arena);
    arena = NULL;
    CHECK_ZU(stats_now().live_blocks, 0);
    tear_down();
}

/* A device, an allocator, and the arena with these regions, committed on streams[0]. */
static inline bool set_up_arena(const char *spec, unsigned regions) {
    return set_up(spec) && ashlar_arena_create(&arena) == ASHLAR_OK && declare_all(arena) &&
           ashlar_arena_commit(arena, allocator, streams[0], regions) == ASHLAR_OK &&
           check_at_end(tear_down_arena);
}

static inline bool set_up_all(void) {
    return set_up_arena("memory=64MiB", ASHLAR_REGIONS_ALL);
}

/* The same without a tensor. */
static inline bool set_up_empty(void) {
    return set_up("memory=64MiB") && ashlar_arena_create(&arena) == ASHLAR_OK;
}

static inline unsigned char *view_of(ashlar_region region, size_t tensor) {
    return ashlar_arena_view(arena, region, tensor);
}

/* Bytes of a tensor in a region. */
static inline size_t bytes_in(ashlar_region region, size_t tensor) {
    return ashlar__arena_tensor_bytes(arena, ashlar__region_layout(region), tensor);
}

/* Its bytes hold a value of the tensor's own. */
static inline bool holds(const unsigned char *ptr, size_t bytes, unsigned char value) {
    size_t wrong = 0;
    for (size_t i = 0; i < bytes; i++) {
        wrong += ptr[i] != value;
    }
    return wrong == 0;
}

/* ---- every call may fail ---- */

typedef struct fault_case {
    bool (*prepare)(void);        /* afresh, each time */
    ashlar_status (*run)(void);   /* what is to fail */
    void (*check)(ashlar_status); /* what must hold then, and tear down */
} fault_case;

/* With the n-th call of `fn` failing; -1: host allocation. True where that call came. */
static inline bool run_with_fault(const fault_case *of, int fn, unsigned long n) {
    const bool is_ready = of->prepare();
    CHECK(is_ready);
    if (!is_ready) {
        return false;
    }
    if (fn < 0) {
        ashlar__host_fail_at(n);
    } else {
        ashlar__driver_fail_at(driver, fn, n, CU_UNKNOWN);
    }
    const ashlar_status status = of->run();
    const bool has_fired = fn < 0 ? !is_still_armed(n) : atomic_load(&driver->fail_countdown) == 0;
    ashlar__driver_fail_at(driver, 0, 0, CU_SUCCESS);
    of->check(status);
    CHECK(has_fired || status == ASHLAR_OK);
    CHECK(status == ASHLAR_OK || status == (fn < 0 ? ASHLAR_EHOSTMEM : ASHLAR_EDRIVER) ||
          (fn < 0 && status == ASHLAR_ENOMEM)); /* the software device's own host memory */
    return has_fired;
}

/*
 * The n-th call of every driver function, for all n, and the n-th host allocation. Not
 * cuCtxPopCurrent, which has nobody to tell. Returns the number of failures.
 */
static inline size_t run_with_all_faults(const fault_case *of) {
    size_t count = 0;
    for (int fn = -1; fn < ASHLAR_DRIVER_FN_COUNT; fn++) {
        for (unsigned long n = 1; fn != ASHLAR_DRIVER_FN_ctx_pop_current; n++, count++) {
            if (!run_with_fault(of, fn, n)) {
                break;
            }
        }
    }
    return count;
}

#endif /* ASHLAR_ARENA_FIXTURE_H */
