/*
 * test_step_oom.c - steps where host memory, the driver or the device's memory fails at any call:
 * nothing is lost, and what cannot be planned is served from the ordinary path.
 */
#include "tests/allocator/step/step_fixture.h"

static program steps_program;
static size_t refused;

static shadow *take_or_not(size_t bytes, ashlar_tag tag, int stream) {
    void *ptr = NULL;
    shadow *s = shadows;
    while (s->ptr != NULL) {
        s++;
    }
    if (ashlar_alloc_tagged(allocator, bytes, tag, streams[stream], &ptr) != ASHLAR_OK) {
        refused++;
        return NULL;
    }
    *s = (shadow){.ptr = ptr, .bytes = bytes, .stream = stream, .is_home = true};
    check_apart(s);
    return s;
}

static void give_untouched(const shadow *s) {
    const shadow gone = *s;
    shadows[s - shadows].ptr = NULL;
    CHECK(ashlar_free(allocator, gone.ptr) == ASHLAR_OK);
}

/* A step in which any call may fail; whatever was allocated is freed. */
static void try_step(uint64_t key) {
    const program *p = &steps_program;
    shadow *held[ITEMS] = {NULL};
    const ashlar_status begun = ashlar_step_begin(allocator, streams[0], key);
    refused += begun != ASHLAR_OK;
    for (uint32_t i = 0; i <= p->count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (held[k] != NULL && p->items[k].end == i) {
                give_untouched(held[k]);
                held[k] = NULL;
            }
        }
        if (i < p->count) {
            held[i] = take_or_not(p->items[i].bytes, p->items[i].tag, p->items[i].stream);
        }
    }
    if (begun == ASHLAR_OK) {
        refused += ashlar_step_end(allocator) != ASHLAR_OK;
    }
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
}

/* In a step of its own: a block that another stream reads, which that stream is done with later. */
static void try_shared(void) {
    const ashlar_status begun = ashlar_step_begin(allocator, streams[0], 1);
    shadow *s = take_or_not(steps_program.items[0].bytes, steps_program.items[0].tag,
                            steps_program.items[0].stream);
    if (s != NULL) {
        refused += ashlar_record_stream(allocator, s->ptr, streams[3]) != ASHLAR_OK;
        give_untouched(s);
    }
    if (begun == ASHLAR_OK) {
        refused += ashlar_step_end(allocator) != ASHLAR_OK;
    }
}

/* Steps of two keys on several streams, in which one call fails. */
static void try_steps(void) {
    for (uint64_t i = 0; i < 8; i++) {
        try_step(1 + i / 2 % 2);
        if (i % 3 == 2) {
            try_shared();
        }
    }
}

static bool begin_trial(uint64_t n) {
    const ashlar_plan_options options = {.build_after = n % 2 == 0 ? 1 : 2};
    if (!set_up_steps("64MiB", NULL, 7)) {
        return false;
    }
    draw_program(&steps_program, 24, 3, 0);
    CHECK(ashlar_plan_set_options(allocator, &options) == ASHLAR_OK);
    return true;
}

/* Whatever failed: all of it works now. */
static void end_trial(void) {
    CHECK_ZU(shadow_count(), 0);
    wait_for(streams[3]);
    CHECK(ashlar_plan_build(allocator) == ASHLAR_OK);
    refused = 0;
    for (int i = 0; i < 3; i++) {
        try_step(1);
    }
    CHECK_ZU(refused, 0);
    CHECK(plans().hits > 0);
    tear_down_steps();
}

CASE(host_memory_may_fail_at_any_call) {
    bool is_done = false;
    unsigned long n = 0;
    while (!is_done && check_failed == 0) {
        REQUIRE(begin_trial(++n));
        ashlar__host_fail_at(n);
        try_steps();
        is_done = is_still_armed(n);
        end_trial();
    }
    CHECK(n > 100);
}

CASE(the_driver_may_fail_at_any_call) {
    static const ashlar_driver_fn calls[] = {
        ASHLAR_DRIVER_FN_mem_create,          ASHLAR_DRIVER_FN_mem_map,
        ASHLAR_DRIVER_FN_mem_set_access,      ASHLAR_DRIVER_FN_event_create,
        ASHLAR_DRIVER_FN_event_record,        ASHLAR_DRIVER_FN_event_query,
        ASHLAR_DRIVER_FN_stream_wait_event,   ASHLAR_DRIVER_FN_ctx_push_current,
        ASHLAR_DRIVER_FN_stream_is_capturing, ASHLAR_DRIVER_FN_stream_query,
    };
    size_t failed = 0;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        bool is_done = false;
        for (uint64_t n = 1; !is_done && check_failed == 0; n++) {
            REQUIRE(begin_trial(n));
            refused = 0;
            ashlar__driver_fail_at(driver, (int)calls[i], n,
                                   n % 2 == 0 ? CU_UNKNOWN : CU_OUT_OF_MEMORY);
            try_steps();
            is_done = atomic_load(&driver->fail_countdown) > 0;
            failed += !is_done;
            ashlar__driver_fail_at(driver, -1, 0, CU_SUCCESS);
            end_trial();
        }
    }
    CHECK(failed > 12);
}

RUN_CASES()
