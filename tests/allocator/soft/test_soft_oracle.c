/*
 * test_soft_oracle.c - the tests' proof of order against what adversarial mode does: an order that it
 * calls proven is kept by every interleaving, and what it does not call so is broken by some; and
 * what random programs do not do.
 */
#include "tests/allocator/soft/soft_fixture.h"

#include "allocator/base/host.h"
#include "allocator/base/random.h"
#include "tests/thread.h"

#define PER_THREAD ((cu_stream)(uintptr_t)CU_STREAM_PER_THREAD)
#define AT ((cu_ptr)1 << 40) /* any addresses will do */

static cu_stream u;    /* unordered, as s and t */
static cu_stream b, c; /* blocking */

static bool set_up_clocks(const char *spec) {
    if (!set_up_streams(spec)) {
        return false;
    }
    u = new_stream(CU_STREAM_UNORDERED);
    b = new_stream(CU_STREAM_BLOCKING);
    c = new_stream(CU_STREAM_BLOCKING);
    return true;
}

static void use(cu_stream stream) {
    CHECK(ashlar__soft_clock_use(AT, 64, stream) == ASHLAR_OK);
}

static bool own(cu_stream stream) {
    bool is_ordered = false, opposite = true;
    CHECK(ashlar__soft_clock_own(AT, 64, stream, &is_ordered) == ASHLAR_OK);
    CHECK(ashlar__soft_clock_own(AT, 64, stream, &opposite) == ASHLAR_OK);
    CHECK(is_ordered == opposite); /* asking changes nothing */
    return is_ordered;
}

CASE(clocks_cover_what_they_were_raised_to) {
    soft_clock clock = {0}, other = {0};
    CHECK(ashlar__soft_clock_covers(&clock, 5, 0) && !ashlar__soft_clock_covers(&clock, 5, 1));
    for (uint64_t i = 40; i > 0; i--) {
        CHECK(ashlar__soft_clock_raise(&clock, i * 3 % 41, i));
    }
    for (uint64_t i = 1; i <= 40; i++) {
        CHECK(ashlar__soft_clock_covers(&clock, i * 3 % 41, i));
        CHECK(!ashlar__soft_clock_covers(&clock, i * 3 % 41, i + 1));
    }
    CHECK(ashlar__soft_clock_raise(&clock, 7, 1)); /* never lowered */
    CHECK_ZU(clock.count, 40);
    CHECK(ashlar__soft_clock_raise(&other, 7, 100) && ashlar__soft_clock_raise(&other, 99, 1));
    CHECK(!ashlar__soft_clock_covers_all(&clock, &other));
    HOST_FAILS_AT(1, CHECK(!ashlar__soft_clock_join(&other, &clock)));
    CHECK_ZU(other.count, 2);
    CHECK(ashlar__soft_clock_join(&other, &clock));
    CHECK(ashlar__soft_clock_covers_all(&other, &clock) && other.count == 41);
    CHECK(ashlar__soft_clock_covers(&other, 7, 100) && ashlar__soft_clock_covers(&other, 99, 1));
    for (size_t i = 1; i < other.count; i++) {
        CHECK(other.times[i - 1].serial < other.times[i].serial);
    }
    ashlar__soft_clock_clear(&clock);
    ashlar__soft_clock_clear(&other);
}

CASE_WITH(destroyed_streams_keep_their_order, set_up_clocks("")) {
    use(b);
    CHECK(soft->stream_destroy(b) == CU_SUCCESS);
    CHECK(own(NULL) && !own(c));
    use(s);
    CHECK(soft->stream_destroy(s) == CU_SUCCESS);
    CHECK(!own(NULL));
    CHECK(new_stream(CU_STREAM_UNORDERED) == s); /* the handle again, and another stream */
    CHECK(!own(s));
    CHECK(soft->ctx_synchronize() == CU_SUCCESS);
    CHECK(own(NULL) && own(s) && own(c));
}

CASE_WITH(calls_that_wait_for_the_device_order_too, set_up_clocks("memory=16MiB,waits=on")) {
    unsigned char host[1];
    const cu_ptr ptr = alloc(1);
    use(s);
    CHECK(soft->memcpy_dtoh_async(host, ptr, 1, t) == CU_SUCCESS);
    CHECK(!own(t));
    CHECK(soft->memcpy_dtoh_async(host, ptr, 1, s) == CU_SUCCESS); /* into pageable memory */
    CHECK(own(t));
    use(s);
    CHECK(soft->mem_free(ptr) == CU_SUCCESS);
    CHECK(own(t));
    use(s);
    CHECK(soft->primary_ctx_release(0) == CU_SUCCESS);
    REQUIRE(make_current(0));
    CHECK(own(NULL));
}

static void *synchronize_run(void *user_data) {
    bool *ok = user_data;
    *ok = make_current(0) && soft->stream_synchronize(s) == CU_SUCCESS;
    return NULL;
}

CASE_WITH(what_one_thread_has_seen_holds_for_all, set_up_clocks("")) {
    bool ok = false;
    use(s);
    CHECK(!own(t));
    run_thread(synchronize_run, &ok);
    CHECK(ok && own(t));
}

CASE_WITH(every_overlapping_use_counts_and_no_other, set_up_clocks("")) {
    bool is_ordered = true;
    CHECK(ashlar__soft_clock_use(AT, 10, s) == ASHLAR_OK);
    CHECK(ashlar__soft_clock_use(AT + 20, 10, t) == ASHLAR_OK);
    CHECK(ashlar__soft_clock_own(AT + 10, 10, u, &is_ordered) == ASHLAR_OK && is_ordered);
    CHECK(ashlar__soft_clock_own(AT + 9, 1, u, &is_ordered) == ASHLAR_OK && !is_ordered);
    CHECK(ashlar__soft_clock_own(AT + 10, 11, u, &is_ordered) == ASHLAR_OK && !is_ordered);
    CHECK(ashlar__soft_clock_own(AT, 30, s, &is_ordered) == ASHLAR_OK && !is_ordered);
    CHECK(follow(s, t) == CU_SUCCESS);
    CHECK(ashlar__soft_clock_own(AT, 30, s, &is_ordered) == ASHLAR_OK && is_ordered);
    /* A wider use takes the place of its stream's narrower ones, a narrower one of none. */
    CHECK(ashlar__soft_clock_use(AT, 10, s) == ASHLAR_OK);
    CHECK(ashlar__soft_clock_use(AT, 5, s) == ASHLAR_OK);
    CHECK(ashlar__soft_clock_own(AT + 5, 5, u, &is_ordered) == ASHLAR_OK && !is_ordered);
    CHECK(ashlar__soft_clock_use(AT, 15, s) == ASHLAR_OK);
    CHECK(ashlar__soft_clock_own(AT + 14, 1, u, &is_ordered) == ASHLAR_OK && !is_ordered);
}

CASE_WITH(a_launch_orders_all_its_branches, set_up_clocks("")) {
    begin(s, CU_CAPTURE_RELAXED);
    CHECK(follow(t, s) == CU_SUCCESS);
    queue(t, "a");
    CHECK(follow(s, t) == CU_SUCCESS);
    bool is_ordered = false;
    CHECK(ashlar__soft_clock_use(AT, 1, s) == ASHLAR_EINVAL);
    CHECK(ashlar__soft_clock_own(AT, 1, t, &is_ordered) == ASHLAR_EINVAL && !is_ordered);
    CHECK_HAS(ashlar_error_detail(), "capturing");
    const cu_graph_exec exec = end(s);
    use(u);
    CHECK(soft->graph_launch(exec, u) == CU_SUCCESS);
    CHECK(soft->graph_launch(exec, s) == CU_SUCCESS); /* behind the launch before */
    CHECK(own(s) && !own(t));
    CHECK(soft->stream_synchronize(s) == CU_SUCCESS);
}

CASE_WITH(questions_without_an_answer_are_refused, set_up_clocks("")) {
    bool is_ordered = true;
    CHECK(ashlar__soft_clock_use(AT, 0, s) == ASHLAR_EINVAL);
    CHECK(ashlar__soft_clock_own(AT, SIZE_MAX, s, &is_ordered) == ASHLAR_EINVAL);
    CHECK_FAILS(ashlar__soft_clock_own(AT, 1, (cu_stream)99, &is_ordered), ASHLAR_EINVAL, "400");
    CHECK(soft->ctx_pop_current(NULL) == CU_SUCCESS);
    CHECK(ashlar__soft_clock_own(AT, 1, s, &is_ordered) == ASHLAR_EINVAL);
    CHECK(is_ordered);
}

/* Queue, wait and ask with the n-th host allocation failing: no call lies, and none but a
 * submission fails for the clocks' sake. */
CASE(without_host_memory_the_oracle_says_that_it_knows_nothing) {
    bool was_lost = false, was_whole = false;
    for (unsigned long n = 1; !was_whole && n < 100; n++) {
        REQUIRE(set_up_clocks(""));
        const cu_event event = new_event();
        bool is_ordered = false;
        ashlar__host_fail_at(n);
        ashlar_status status = ashlar__soft_clock_use(AT, 1, s);
        const bool is_queued = soft->event_record(event, s) == CU_SUCCESS &&
                               soft->stream_wait_event(t, event, 0) == CU_SUCCESS;
        CHECK(soft->ctx_synchronize() == CU_SUCCESS);
        CHECK(soft->stream_destroy(u) == CU_SUCCESS);
        if (status == ASHLAR_OK) {
            status = ashlar__soft_clock_own(AT, 1, t, &is_ordered);
        }
        ashlar__host_fail_at(0);
        CHECK(status == ASHLAR_OK ? is_ordered : status == ASHLAR_EHOSTMEM);
        CHECK(is_ordered || status != ASHLAR_OK);
        was_lost |= status == ASHLAR_EHOSTMEM;
        was_whole = is_queued && status == ASHLAR_OK;
        CHECK(status == ASHLAR_OK || ashlar__soft_clock_use(AT, 1, s) == ASHLAR_EHOSTMEM);
    }
    CHECK(was_lost && was_whole);
}

/* ---- random programs ---- */

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

RUN_CASES()
