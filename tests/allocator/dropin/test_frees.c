/*
 * test_frees.c - memory freed for all streams: it is given out again only when everything submitted
 * before the free is over, and the host does not wait for that without need.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "allocator/core/core.h"
#include "allocator/dropin/frees.h"
#include "tests/strict.h"
#include "tests/allocator/dropin/frees_fixture.h"
#include "allocator/base/random.h"
#include "tests/thread.h"

enum { THREADS = 8 };

static uint64_t state;

static size_t draw(size_t count) {
    return (size_t)ashlar__random_step_below(&state, count);
}

/* ---- the promise ---- */

/* A use is queued, and the clocks are told. */
static void use_noted(void *ptr, size_t bytes, ashlar_stream stream) {
    CHECK(ashlar_fill(device, ptr, 1, bytes, stream) == ASHLAR_OK);
    CHECK(ashlar__soft_clock_use(ashlar__ptr_in(ptr), bytes, stream) == ASHLAR_OK);
}

static bool is_ordered_for(void *ptr, size_t bytes, ashlar_stream stream) {
    bool is_ordered = false;
    CHECK(ashlar__soft_clock_own(ashlar__ptr_in(ptr), bytes, stream, &is_ordered) == ASHLAR_OK);
    return is_ordered;
}

static size_t captured; /* the stream that is being captured; STREAMS: none */

/* Begin a capture, or end the one that is on. */
static void turn_capture(size_t s) {
    cu_graph graph = NULL;
    if (captured == STREAMS) {
        ashlar__frees_begin_capture(frees, streams[s]);
        CHECK(driver->table.stream_begin_capture(streams[s], CU_CAPTURE_RELAXED) == CU_SUCCESS);
        ashlar__frees_note_capture(streams[s], true);
        captured = s;
        return;
    }
    CHECK(driver->table.stream_end_capture(streams[captured], &graph) == CU_SUCCESS);
    CHECK(driver->table.graph_destroy(graph) == CU_SUCCESS);
    (void)ashlar__frees_settle_captures();
    captured = STREAMS;
}

/* A stream that may get work: not the captured one, nor the legacy one if that takes part. */
static size_t draw_stream(void) {
    size_t s = draw(STREAMS);
    while (s == captured || (s == OWN_STREAMS && captured < STREAMS && !is_known(captured))) {
        s = draw(STREAMS);
    }
    return s;
}

/* Take, use, free, in any order, with streams that come and go, and with captures. Returns how
 * often memory was given out that a stream, any one, might have used too early. */
static size_t walk(uint64_t seed) {
    enum { LIVE = 4, STEPS = 300 };
    struct {
        void *ptr;
        size_t bytes;
        size_t only; /* the stream of all its uses; STREAMS: there are several */
    } live[LIVE] = {{NULL, 0, 0}};
    size_t early = 0;
    state = seed;
    captured = STREAMS;
    for (int step = 0; step < STEPS; step++) {
        const size_t i = draw(LIVE), s = draw_stream(), what = draw(17);
        if (what == 16 && (captured < STREAMS || s < OWN_STREAMS)) {
            turn_capture(s);
        } else if (what == 0 && s < OWN_STREAMS) {
            end_stream(s);
            CHECK(make_stream(s));
            for (int b = 0; b < LIVE; b++) {
                live[b].only = live[b].only == s ? STREAMS : live[b].only;
            }
        } else if (what == 1) {
            CHECK(ashlar_stream_synchronize(device, streams[s]) == ASHLAR_OK);
        } else if (live[i].ptr == NULL) {
            live[i].bytes = (1 + draw(5)) * MIB;
            const bool is_async = draw(4) == 0;
            const ashlar_status status =
                is_async ? ashlar__frees_alloc_on(frees, live[i].bytes, streams[s], &live[i].ptr)
                         : ashlar__frees_alloc(frees, live[i].bytes, &live[i].ptr);
            CHECK(status == ASHLAR_OK || captured < STREAMS);
            if (status != ASHLAR_OK) {
                continue;
            }
            early += !is_ordered_for(live[i].ptr, live[i].bytes, streams[s]);
            live[i].only = s;
            use_noted(live[i].ptr, live[i].bytes, streams[s]);
            if (is_async) { /* others come after its taking, as the program sees to */
                CHECK(ashlar_stream_synchronize(device, streams[s]) == ASHLAR_OK);
            }
        } else if (what < 6) {
            use_noted(live[i].ptr, live[i].bytes, streams[s]);
            live[i].only = live[i].only == s ? s : STREAMS;
        } else if (what < 11 && live[i].only < STREAMS && live[i].only != captured) {
            CHECK(ashlar_free_on(allocator, live[i].ptr, streams[live[i].only]) == ASHLAR_OK);
            live[i].ptr = NULL;
        } else {
            give(live[i].ptr);
            live[i].ptr = NULL;
        }
    }
    if (captured < STREAMS) {
        turn_capture(captured);
    }
    return early;
}

CASE(memory_given_out_again_comes_after_every_use_of_before) {
    for (uint64_t seed = 1; seed <= 12; seed++) {
        char spec[96];
        (void)snprintf(spec, sizeof spec, "memory=32MiB,mode=%s,seed=%d",
                       seed % 2 == 0 ? "eager" : "adversarial", (int)seed);
        REQUIRE(set_up(spec, "cache=0"));
        CHECK_ZU(walk(seed), 0);
        tear_down();
    }
}

/* ---- what it costs ---- */

CASE(a_free_makes_no_driver_call_and_a_batch_one_event_a_stream) {
    REQUIRE(set_up("memory=64MiB,mode=adversarial", "cache=0"));
    void *blocks[3];
    for (int i = 0; i < 3; i++) {
        blocks[i] = take(8 * MIB);
        use(blocks[i], 8 * MIB, streams[i]);
    }
    const size_t records = CALLS(event_record);
    const uint64_t calls = ashlar__driver_calls(driver, ASHLAR_DRIVER_MEMORY);
    for (int i = 0; i < 3; i++) {
        give(blocks[i]);
    }
    CHECK(stats_now().shared_bytes == 24 * MIB && stats_now().live_blocks == 0);
    CHECK_ZU(CALLS(event_record), records);
    (void)take(4 * MIB);
    /* Two that are known, and the legacy one for all the rest. */
    CHECK_ZU(CALLS(event_record), records + 3);
    CHECK(ashlar__driver_calls(driver, ASHLAR_DRIVER_MEMORY) > calls); /* nothing was over yet */
    CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
    const size_t mapped = CALLS(mem_create), waits = CALLS(ctx_synchronize);
    CHECK(take(20 * MIB) != NULL);
    CHECK_ZU(CALLS(mem_create), mapped);
    CHECK_ZU(CALLS(ctx_synchronize), waits);
    CHECK(stats_now().shared_bytes == 0);
}

CASE_WITH(memory_that_is_out_is_waited_for, set_up("memory=32MiB,mode=adversarial", "cache=0")) {
    void *ptr = NULL;
    for (int i = 0; i < OWN_STREAMS; i++) {
        void *most = take(24 * MIB);
        use(most, 24 * MIB, streams[i]);
        give(most);
    }
    CHECK(ashlar__frees_alloc_on(frees, 24 * MIB, streams[0], &ptr) == ASHLAR_OK);
    CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
    ptr = NULL;
    CHECK(ashlar__frees_alloc(frees, 40 * MIB, &ptr) == ASHLAR_ENOMEM);
    CHECK(ptr == NULL);
}

/* ---- captures ---- */

CASE(during_a_capture_nothing_is_spoiled) {
    for (size_t i = 1; i < 3; i++) { /* not blocking, blocking */
        cu_graph graph = NULL;
        REQUIRE(set_up("memory=64MiB,mode=adversarial", "cache=0"));
        void *ptr = take(8 * MIB);
        ashlar__frees_begin_capture(frees, streams[i]);
        CHECK(driver->table.stream_begin_capture(streams[i], CU_CAPTURE_GLOBAL) == CU_SUCCESS);
        ashlar__frees_note_capture(streams[i], true);
        give(ptr);
        void *next = take(8 * MIB);
        CHECK(next == ptr);
        end_stream(0);
        CHECK(driver->table.stream_end_capture(streams[i], &graph) == CU_SUCCESS);
        (void)ashlar__frees_settle_captures();
        CHECK(driver->table.graph_destroy(graph) == CU_SUCCESS);
        give(next);
        CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
        CHECK(take(8 * MIB) == ptr);
        tear_down();
    }
}

/* Also for that of a stream that took part in the capture only later. */
CASE(memory_freed_during_a_capture_waits_for_the_work_before_it) {
    for (int has_joined = 0; has_joined < 2; has_joined++) {
        cu_graph graph = NULL;
        cu_event event = NULL;
        void *next = NULL;
        REQUIRE(set_up("memory=32MiB,mode=adversarial", "cache=0"));
        void *ptr = take(24 * MIB);
        use_noted(ptr, 24 * MIB, streams[0]);
        ashlar__frees_begin_capture(frees, streams[0]);
        CHECK(driver->table.stream_begin_capture(streams[0], CU_CAPTURE_RELAXED) == CU_SUCCESS);
        ashlar__frees_note_capture(streams[0], true);
        if (has_joined) {
            use_noted(ptr, 24 * MIB, streams[1]);
            CHECK(driver->table.event_create(&event, CU_EVENT_NO_TIMING) == CU_SUCCESS);
            CHECK(driver->table.event_record(event, streams[0]) == CU_SUCCESS);
            CHECK(driver->table.stream_wait_event(streams[1], event, 0) == CU_SUCCESS);
        }
        give(ptr);
        CHECK(ashlar__frees_alloc(frees, 24 * MIB, &next) == ASHLAR_OK);
        CHECK(next == ptr && is_ordered_for(next, 24 * MIB, streams[2]));
        if (has_joined) {
            CHECK(driver->table.event_record(event, streams[1]) == CU_SUCCESS);
            CHECK(driver->table.stream_wait_event(streams[0], event, 0) == CU_SUCCESS);
            CHECK(driver->table.event_destroy(event) == CU_SUCCESS);
        }
        CHECK(driver->table.stream_end_capture(streams[0], &graph) == CU_SUCCESS);
        CHECK(driver->table.graph_destroy(graph) == CU_SUCCESS);
        (void)ashlar__frees_settle_captures();
        tear_down();
    }
}

/* By a way that is not watched. */
CASE(a_capture_that_is_not_told_of_is_seen) {
    for (size_t i = 1; i < 3; i++) {
        cu_graph graph = NULL;
        REQUIRE(set_up("memory=64MiB,mode=adversarial", "cache=0"));
        void *ptr = take(8 * MIB);
        CHECK(driver->table.stream_begin_capture(streams[i], CU_CAPTURE_RELAXED) == CU_SUCCESS);
        give(ptr);
        const size_t records = CALLS(event_record);
        CHECK(take(8 * MIB) == ptr);
        CHECK_ZU(CALLS(event_record), records);
        CHECK(driver->table.stream_end_capture(streams[i], &graph) == CU_SUCCESS);
        CHECK(driver->table.graph_destroy(graph) == CU_SUCCESS);
        tear_down();
    }
}

/* ---- streams that are not known ---- */

/* Memory freed in a stream's order, where nobody tells of the stream's end. */
CASE(a_stream_may_end_unseen_if_none_is_told_of) {
    for (int is_for_any = 0; is_for_any < 2; is_for_any++) {
        REQUIRE(set_up("memory=32MiB,mode=adversarial", "cache=1MiB"));
        ashlar__frees_distrust_streams(frees);
        for (int i = 0; i < 6; i++) {
            ashlar_stream stream = NULL;
            void *ptr = NULL, *next = NULL;
            CHECK(driver->table.stream_create(&stream, CU_STREAM_UNORDERED) == CU_SUCCESS);
            CHECK(ashlar__frees_alloc_on(frees, 24 * MIB, stream, &ptr) == ASHLAR_OK);
            CHECK(is_ordered_for(ptr, 24 * MIB, stream));
            use_noted(ptr, 24 * MIB, stream);
            CHECK(ashlar_free_on(allocator, ptr, stream) == ASHLAR_OK);
            CHECK(driver->table.stream_destroy(stream) == CU_SUCCESS);
            CHECK((is_for_any
                       ? ashlar__frees_alloc(frees, 24 * MIB, &next)
                       : ashlar__frees_alloc_on(frees, 24 * MIB, streams[1], &next)) == ASHLAR_OK);
            CHECK(is_ordered_for(next, 24 * MIB, streams[1]));
            use_noted(next, 24 * MIB, streams[1]);
            give(next);
        }
        tear_down();
    }
}

/* ---- mistakes and failures ---- */

CASE_WITH(a_free_is_answered_as_cuda_would, set_up("memory=32MiB,mode=adversarial", "cache=0")) {
    cu_result result = CU_UNKNOWN;
    char *a = take(MIB), *b = take(MIB);
    CHECK(!ashlar__frees_answer(&result, NULL, &result));
    CHECK(ashlar__frees_answer(a + 512, NULL, &result) && result == CU_INVALID_VALUE);
    CHECK(ashlar__frees_answer(a, NULL, &result) && result == CU_SUCCESS);
    CHECK(ashlar__frees_answer(a, NULL, &result) && result == CU_INVALID_VALUE);
    HOST_FAILS_AT(
        1, CHECK(ashlar__frees_answer(b, &streams[2], &result) && result == CU_OUT_OF_MEMORY));
    CHECK(ashlar__frees_answer(b, &streams[2], &result) && result == CU_SUCCESS);
    CHECK(ashlar__frees_answer(b, &streams[2], &result) && result == CU_INVALID_VALUE);
    CHECK(stats_now().live_blocks == 0);
}

/* Two rounds of it. What fails is refused, or put off; nothing is lost. */
static bool run_rounds(void) {
    bool is_whole = true;
    for (int round = 0; round < 2; round++) {
        void *ptr[3] = {NULL, NULL, NULL};
        for (int i = 0; i < 3; i++) {
            is_whole = ashlar__frees_alloc(frees, 8 * MIB, &ptr[i]) == ASHLAR_OK && is_whole;
        }
        for (int i = 0; i < 3; i++) {
            if (ptr[i] != NULL) {
                CHECK(ashlar__frees_free(frees, ptr[i]) == ASHLAR_OK);
            }
        }
        ashlar__frees_add_stream(frees, streams[2]);
        ashlar__frees_end_stream(frees, streams[2]);
    }
    return is_whole;
}

static void all_is_there_afterwards(void) {
    void *all = NULL;
    CHECK(ashlar__frees_alloc(frees, 24 * MIB, &all) == ASHLAR_OK);
    CHECK(all == NULL || ashlar__frees_free(frees, all) == ASHLAR_OK);
    CHECK(stats_now().live_blocks == 0);
}

CASE(a_driver_call_that_fails_anywhere_loses_nothing) {
    unsigned n = 1;
    for (bool is_over = false; !is_over; n++) {
        REQUIRE(set_up("memory=32MiB,mode=adversarial", "cache=0"));
        ashlar__driver_fail_at(driver, -1, n, CU_UNKNOWN);
        (void)run_rounds();
        is_over = atomic_load(&driver->fail_countdown) != 0;
        ashlar__driver_fail_at(driver, -1, 0, CU_SUCCESS);
        all_is_there_afterwards();
        tear_down();
    }
    CHECK(n > 30);
}

CASE(host_memory_that_fails_anywhere_loses_nothing) {
    unsigned long n = 1;
    for (bool is_over = false; !is_over; n++) {
        REQUIRE(set_up("memory=32MiB,mode=adversarial", "cache=0"));
        ashlar__host_fail_at(n);
        (void)run_rounds();
        void *probe = NULL;
        for (unsigned long i = 0; i < n && !is_over; i++) {
            probe = ashlar__host_calloc(1, 1);
            is_over = probe == NULL;
            ashlar__host_free(probe);
        }
        ashlar__host_fail_at(0);
        all_is_there_afterwards();
        tear_down();
    }
    CHECK(n > 5);
}

/* ---- threads ---- */

static void *work(void *arg) {
    uint64_t mine = *(const uint64_t *)arg;
    ashlar_stream stream = NULL;
    void *kept = NULL;
    if (ashlar__device_enter(device) != ASHLAR_OK ||
        driver->table.stream_create(&stream, CU_STREAM_UNORDERED) != CU_SUCCESS) {
        return arg;
    }
    ashlar__frees_add_stream(frees, stream);
    for (int i = 0; i < 60; i++) {
        void *ptr = NULL;
        const size_t bytes = 512 * (1 + (size_t)ashlar__random_step_below(&mine, 4000));
        if (ashlar__frees_alloc(frees, bytes, &ptr) != ASHLAR_OK ||
            ashlar_fill(device, ptr, (unsigned char)i, bytes, stream) != ASHLAR_OK ||
            (kept != NULL && ashlar__frees_free(frees, kept) != ASHLAR_OK)) {
            return arg;
        }
        kept = ptr;
    }
    const bool is_freed = ashlar__frees_free(frees, kept) == ASHLAR_OK;
    ashlar__frees_end_stream(frees, stream);
    const bool is_ended = driver->table.stream_destroy(stream) == CU_SUCCESS;
    ashlar__device_leave(device);
    return is_freed && is_ended ? NULL : arg;
}

CASE_WITH(threads_share_them, set_up("memory=64MiB,mode=adversarial", "cache=1MiB")) {
    uint64_t seeds[THREADS];
    for (int i = 0; i < THREADS; i++) {
        seeds[i] = (uint64_t)i + 1;
    }
    run_judging_threads(THREADS, work, seeds, sizeof seeds[0]);
    CHECK(stats_now().live_blocks == 0);
}

RUN_CASES()
