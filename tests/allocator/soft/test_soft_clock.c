/* test_soft_clock.c - the oracle: order that the program has asked for is proven, and no other. */
#include "tests/allocator/soft/soft_capture_fixture.h"

#include "allocator/base/host.h"
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

CASE_WITH(a_stream_is_ordered_with_itself_alone, set_up_clocks("")) {
    CHECK(own(s) && own(t) && own(NULL)); /* nothing has used it */
    use(s);
    CHECK(own(s));
    CHECK(!own(t) && !own(b) && !own(NULL) && !own(PER_THREAD));
    queue(s, "a"); /* that all of it has run proves nothing */
    CHECK(!own(t));
}

CASE_WITH(an_event_orders_what_is_behind_its_wait, set_up_clocks("")) {
    const cu_event before = record(s);
    use(s);
    const cu_event after = record(s);
    CHECK(soft->stream_wait_event(t, before, 0) == CU_SUCCESS);
    CHECK(!own(t));
    CHECK(soft->stream_wait_event(t, after, 0) == CU_SUCCESS);
    CHECK(own(t) && !own(u));
    CHECK(follow(u, t) == CU_SUCCESS); /* and so on */
    CHECK(own(u));
    use(s); /* a later use */
    CHECK(!own(t) && own(s));
    CHECK(soft->stream_wait_event(t, after, 0) == CU_SUCCESS); /* is not what it waits for */
    CHECK(!own(t));
}

CASE(an_event_recorded_anew_stands_for_the_newer_point) {
    REQUIRE(set_up_clocks("mode=adversarial"));
    const cu_event event = record(t);
    use(s);
    CHECK(soft->event_record(event, s) == CU_SUCCESS);
    CHECK(soft->stream_wait_event(u, event, 0) == CU_SUCCESS);
    CHECK(own(u));
    CHECK(soft->event_record(event, t) == CU_SUCCESS);
    CHECK(soft->stream_wait_event(b, event, 0) == CU_SUCCESS);
    CHECK(!own(b));
}

CASE_WITH(the_legacy_stream_orders_blocking_streams, set_up_clocks("devices=2")) {
    use(b);
    CHECK(own(NULL) && !own(c) && !own(s));
    CHECK(!own(c)); /* until something is queued on the legacy stream, c is not ordered with b */
    queue(NULL, "L");
    CHECK(own(c) && own(PER_THREAD) && !own(s));
    use(NULL);
    CHECK(own(b) && own(c) && !own(s));
    use(PER_THREAD);
    CHECK(own(NULL) && !own(b));
    use(s);
    CHECK(!own(NULL)); /* an unordered stream takes no part */
    REQUIRE(make_current(1));
    REQUIRE(set_up_clocks("devices=2"));
    use(b);
    REQUIRE(make_current(1));
    CHECK(!own(NULL)); /* nor does another device */
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

/* What the host has seen finished comes before all that is queued later, anywhere. */
CASE_WITH(a_wait_on_the_host_orders_what_is_queued_later, set_up_clocks("")) {
    use(s);
    CHECK(soft->stream_synchronize(t) == CU_SUCCESS);
    CHECK(!own(t));
    CHECK(soft->stream_synchronize(s) == CU_SUCCESS);
    CHECK(own(t) && own(NULL));
    use(s);
    CHECK(!own(t));
    CHECK(soft->ctx_synchronize() == CU_SUCCESS);
    CHECK(own(t));
    use(s);
    const cu_event event = record(s);
    use(u);
    CHECK(!own(s));
    CHECK(soft->event_synchronize(event) == CU_SUCCESS);
    CHECK(!own(t) && own(u)); /* s is seen, u is not */
    CHECK(follow(s, u) == CU_SUCCESS);
    CHECK(soft->stream_synchronize(s) == CU_SUCCESS); /* sees u's as well */
    CHECK(own(t));
}

CASE(a_query_orders_only_when_it_finds_the_work_done) {
    REQUIRE(set_up_clocks("mode=adversarial"));
    use(s);
    queue(s, "a");
    const cu_event event = record(s);
    cu_result result = soft->event_query(event);
    for (int i = 0; i < 1000 && result == CU_NOT_READY; i++) {
        CHECK(!own(t));
        result = soft->event_query(event);
    }
    CHECK(result == CU_SUCCESS);
    CHECK(own(t));
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

RUN_CASES()
