/*
 * test_soft_oracle.c - the tests' proof of order against what adversarial mode does with random
 * programs: an order that it calls proven is kept by every interleaving, and what it does not call
 * so is broken by some.
 */
#include "tests/allocator/soft/soft_fixture.h"

#include "allocator/base/random.h"

#define PER_THREAD ((cu_stream)(uintptr_t)CU_STREAM_PER_THREAD)
#define AT ((cu_ptr)1 << 40) /* any addresses will do */

enum { PROGRAMS = 1000, STEPS = 14, INTERLEAVINGS = 24, STREAMS = 6, EVENTS = 3 };

static cu_stream streams[STREAMS];
static cu_event events[EVENTS];
static bool used, owner_saw_it;

static void use_body(void *unused) {
    (void)unused;
    used = true;
}

static void own_body(void *unused) {
    (void)unused;
    owner_saw_it = used;
}

static unsigned draw(uint64_t *state, unsigned below) {
    return (unsigned)ashlar__random_step_below(state, below);
}

/* One call that may or may not order anything. */
static bool take_step(uint64_t *random) {
    const cu_stream stream = streams[draw(random, STREAMS)];
    const cu_event event = events[draw(random, EVENTS)];
    switch (draw(random, 12)) {
    case 0:
        return soft->stream_synchronize(stream) == CU_SUCCESS;
    case 1:
        return soft->event_synchronize(event) == CU_SUCCESS;
    case 2: {
        const cu_result result = soft->event_query(event);
        return result == CU_SUCCESS || result == CU_NOT_READY;
    }
    case 3:
    case 4:
    case 5:
        return soft->stream_wait_event(stream, event, 0) == CU_SUCCESS;
    case 6:
        return soft->launch_host_func(stream, note, "x") == CU_SUCCESS;
    default:
        return soft->event_record(event, stream) == CU_SUCCESS;
    }
}

/* The same program for the same `program`, interleaved by `seed`. */
static bool run_program(uint64_t program, int seed, bool *is_ordered) {
    char spec[64];
    (void)snprintf(spec, sizeof spec, "memory=2MiB,mode=adversarial,seed=%d", seed);
    bool ok = set_up(spec);
    uint64_t random = program;
    streams[0] = NULL;
    streams[1] = PER_THREAD;
    for (unsigned i = 2; i < STREAMS; i++) {
        streams[i] = new_stream(i % 2);
    }
    for (int i = 0; i < EVENTS; i++) {
        events[i] = new_event();
    }
    forget();
    used = false;
    owner_saw_it = false;
    const unsigned use_at = draw(&random, STEPS);
    for (unsigned i = 0; i < STEPS && ok; i++) {
        ok = take_step(&random);
        if (i == use_at) {
            const cu_stream stream = streams[draw(&random, STREAMS)];
            ok = ok && soft->launch_host_func(stream, use_body, NULL) == CU_SUCCESS &&
                 ashlar__soft_clock_use(AT, 1, stream) == ASHLAR_OK;
        }
    }
    const cu_stream owner = streams[draw(&random, STREAMS)];
    ok = ok && ashlar__soft_clock_own(AT, 1, owner, is_ordered) == ASHLAR_OK &&
         soft->launch_host_func(owner, own_body, NULL) == CU_SUCCESS;
    return ok && soft->ctx_synchronize() == CU_SUCCESS;
}

CASE(proven_order_is_kept_and_other_order_is_broken) {
    int proven_count = 0, unproven_count = 0, broken_count = 0;
    for (uint64_t program = 1; program <= PROGRAMS; program++) {
        bool is_proven = false, is_broken = false;
        for (int seed = 1; seed <= INTERLEAVINGS; seed++) {
            bool is_ordered = false;
            REQUIRE(run_program(program, seed, &is_ordered));
            CHECK(!is_ordered || owner_saw_it);
            is_proven |= is_ordered;
            is_broken |= !owner_saw_it;
        }
        proven_count += is_proven;
        unproven_count += !is_proven;
        broken_count += !is_proven && is_broken;
    }
    printf("# %d programs proven, %d not, %d of these broken\n", proven_count, unproven_count,
           broken_count);
    CHECK(proven_count > PROGRAMS / 4 && unproven_count > PROGRAMS / 4);
    CHECK(broken_count > unproven_count * 3 / 4);
}

CASE_WITH(a_copy_is_a_use_of_both_its_sides, set_up_streams("memory=32MiB,mode=adversarial")) {
    unsigned char *const pinned = alloc_host(64);
    const cu_ptr ptr = alloc(64);
    cu_event event = NULL;
    const cu_stream other = t;
    CHECK(soft->event_create(&event, CU_EVENT_NO_TIMING) == CU_SUCCESS);
    CHECK_ZU(ashlar__soft_clock_watch_copies(), 0);
    CHECK(soft->memcpy_dtoh_async(pinned, ptr, 32, s) == CU_SUCCESS);
    CHECK(soft->memcpy_htod_async(ptr + 32, pinned + 32, 32, other) == CU_SUCCESS);
    CHECK_ZU(ashlar__soft_clock_watch_copies(), 0);
    CHECK(soft->memset_d8_async(ptr + 31, 1, 1, other) == CU_SUCCESS);
    CHECK_ZU(ashlar__soft_clock_watch_copies(), 1);
    CHECK(soft->memcpy_htod_async(ptr + 48, pinned, 1, other) == CU_SUCCESS);
    CHECK_ZU(ashlar__soft_clock_watch_copies(), 2);
    CHECK(soft->event_record(event, other) == CU_SUCCESS);
    CHECK(soft->stream_wait_event(s, event, 0) == CU_SUCCESS);
    CHECK(soft->memset_d8_async(ptr, 1, 64, s) == CU_SUCCESS);
    CHECK_ZU(ashlar__soft_clock_watch_copies(), 2);
    CHECK(soft->ctx_synchronize() == CU_SUCCESS);
    CHECK(soft->memcpy_htod_async(ptr, pinned, 64, other) == CU_SUCCESS); /* the host has waited */
    CHECK_ZU(ashlar__soft_clock_watch_copies(), 2);
    CHECK(soft->ctx_synchronize() == CU_SUCCESS);
    CHECK(soft->mem_free_host(pinned) == CU_SUCCESS);
}

RUN_CASES()
