/* test_reduce_errors.c - one rank: what is refused, and what a failure leaves. */
#include "tests/arena/reduce/reduce_fixture.h"

/* ---- what is refused ---- */

CASE_WITH(a_tensor_reported_twice_is_refused, set_up_usual()) {
    CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
    CHECK(final(THREE) == ASHLAR_OK && final(ONE) == ASHLAR_OK);
    CHECK_FAILS(final(THREE), ASHLAR_EINVAL, "tensor three was final before");
    CHECK_FAILS(final(TENSORS), ASHLAR_EINVAL, "no such tensor");
    CHECK(final(FIVE) == ASHLAR_OK && final(FOUR) == ASHLAR_OK && final(HALF) == ASHLAR_OK);
    CHECK_ZU(sent_count, 3);             /* two is missing still */
    CHECK(final(FIVE) == ASHLAR_EINVAL); /* sent by now */
    CHECK(final(TWO) == ASHLAR_OK);
    CHECK_ZU(sent_count, 4);
    CHECK(ashlar_reducer_finish(reducer, streams[0]) == ASHLAR_OK);
}

CASE(the_first_tensor_that_is_missing_is_named) {
    REQUIRE(set_up_reducer("memory=64MiB", ASHLAR_REDUCTION_ALL, 1u << ONE));
    CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
    CHECK_FAILS(ashlar_reducer_finish(reducer, streams[0]), ASHLAR_EINVAL,
                "tensor five is not final, so that bucket 0");
    CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
    CHECK(final(FIVE) == ASHLAR_OK && final(FOUR) == ASHLAR_OK && final(TWO) == ASHLAR_OK);
    CHECK_FAILS(ashlar_reducer_finish(reducer, streams[0]), ASHLAR_EINVAL,
                "tensor half is not final, so that bucket 2");
    CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
    CHECK(final(FIVE) == ASHLAR_OK && final(FOUR) == ASHLAR_OK && final(HALF) == ASHLAR_OK);
    CHECK(final(TWO) == ASHLAR_OK);
    CHECK_FAILS(ashlar_reducer_finish(reducer, streams[0]), ASHLAR_EINVAL,
                "tensor three is not final, so that bucket 3");
    CHECK_ZU(sent_count, 2 + 3);
}

CASE_WITH(calls_out_of_turn_are_refused, set_up_usual()) {
    CHECK_FAILS(final(FIVE), ASHLAR_EINVAL, "final: no step has begun");
    CHECK_FAILS(ashlar_reducer_finish(reducer, streams[0]), ASHLAR_EINVAL,
                "finish: no step has begun");
    CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
    CHECK(final(FIVE) == ASHLAR_OK);
    CHECK_FAILS(ashlar_reducer_begin(reducer), ASHLAR_EINVAL, "not finished");
    CHECK(ashlar_reducer_finish(reducer, streams[0]) == ASHLAR_EINVAL);
    CHECK(final(FOUR) == ASHLAR_EINVAL);
    CHECK_FAILS(ashlar_reducer_gather(reducer, streams[0]), ASHLAR_EINVAL,
                "ASHLAR_REDUCTION_SCATTER");
    CHECK_ZU(sent_count, 1);
}

CASE_WITH(an_arena_without_gradients_cannot_begin, set_up_arena("memory=64MiB", 1)) {
    REQUIRE(ashlar_reducer_create(arena, &collectives, ASHLAR_REDUCTION_ALL, streams[3],
                                  &reducer) == ASHLAR_OK);
    CHECK_FAILS(ashlar_reducer_begin(reducer), ASHLAR_EINVAL, "no gradients");
    CHECK(ashlar_arena_extend(arena, streams[0], 2) == ASHLAR_OK);
    CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
    tear_down_reducer();
}

CASE_WITH(a_reducer_needs_an_arena_and_its_functions, set_up_arena("memory=64MiB", 3)) {
    ashlar_collectives lacks = collectives;
    ashlar_arena *empty = NULL;
    REQUIRE(ashlar_arena_create(&empty) == ASHLAR_OK);
    CHECK_FAILS(ashlar_reducer_create(empty, &collectives, ASHLAR_REDUCTION_ALL, NULL, &reducer),
                ASHLAR_EINVAL, "not committed");
    ashlar_arena_destroy(empty);
    lacks.all_reduce = NULL;
    CHECK(ashlar_reducer_create(arena, &lacks, ASHLAR_REDUCTION_ALL, NULL, &reducer) ==
          ASHLAR_EINVAL);
    lacks = collectives;
    lacks.broadcast = NULL;
    CHECK_FAILS(ashlar_reducer_create(arena, &lacks, ASHLAR_REDUCTION_ALL, NULL, &reducer),
                ASHLAR_EINVAL, "must be given");
    for (int i = 0; i < 2; i++) {
        lacks = collectives;
        *(i == 0 ? &lacks.reduce_scatter : &lacks.all_gather) = NULL;
        CHECK(ashlar_reducer_create(arena, &lacks, ASHLAR_REDUCTION_SCATTER, NULL, &reducer) ==
              ASHLAR_EINVAL);
        CHECK(ashlar_reducer_create(arena, &lacks, ASHLAR_REDUCTION_ALL, NULL, &reducer) ==
              ASHLAR_OK);
        ashlar_reducer_destroy(reducer);
        reducer = NULL;
    }
    CHECK(ashlar_reducer_create(arena, &collectives, ASHLAR_REDUCTION_COUNT, NULL, &reducer) ==
          ASHLAR_EINVAL);
    CHECK(reducer == NULL);
    ashlar_reducer_destroy(NULL);
}

CASE_WITH(more_streams_than_there_are_places_are_refused, set_up_empty()) {
    static ashlar_stream many[ASHLAR_REDUCER_STREAMS];
    for (size_t i = 0; i < ASHLAR_REDUCER_STREAMS; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "t%zu", i);
        CHECK(ashlar_arena_add(arena, name, ASHLAR_F32, 1, &(size_t){1}, NULL) == ASHLAR_OK);
        CHECK(ashlar_stream_create(device, &many[i]) == ASHLAR_OK);
    }
    CHECK(ashlar_arena_add(arena, "one", ASHLAR_F32, 1, &(size_t){1}, NULL) == ASHLAR_OK);
    CHECK(ashlar_arena_commit(arena, allocator, streams[0], 3) == ASHLAR_OK);
    sent_count = 0;
    REQUIRE(ashlar_reducer_create(arena, &collectives, ASHLAR_REDUCTION_ALL, streams[3],
                                  &reducer) == ASHLAR_OK);
    CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
    for (size_t i = 0; i < ASHLAR_REDUCER_STREAMS; i++) {
        CHECK(ashlar_reducer_final(reducer, i, many[i]) == ASHLAR_OK);
    }
    CHECK_FAILS(ashlar_reducer_final(reducer, ASHLAR_REDUCER_STREAMS, streams[0]), ASHLAR_EINVAL,
                "more than 64 streams");
    const size_t waits = CALLS(stream_wait_event);
    CHECK(ashlar_reducer_final(reducer, ASHLAR_REDUCER_STREAMS, many[63]) == ASHLAR_OK);
    CHECK_ZU(CALLS(stream_wait_event) - waits, ASHLAR_REDUCER_STREAMS);
    CHECK_ZU(sent_count, 1);
    CHECK(ashlar_reducer_finish(reducer, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK); /* every step has its own */
    CHECK(ashlar_reducer_final(reducer, 0, streams[0]) == ASHLAR_OK);
    for (size_t i = 0; i < ASHLAR_REDUCER_STREAMS; i++) {
        ashlar_stream_destroy(device, many[i]);
    }
    tear_down_reducer();
}

/* ---- failures ---- */

CASE(after_a_collective_failed_nothing_more_is_sent_in_that_step) {
    for (size_t n = 1; n <= BUCKETS; n++) {
        REQUIRE(set_up_usual());
        CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
        fail_at = n;
        size_t i = TENSORS;
        ashlar_status status = ASHLAR_OK;
        while (i > 0 && status == ASHLAR_OK) {
            status = final(--i);
        }
        CHECK_FAILS(status, ASHLAR_EIO, "the network is down");
        while (i > 0) {
            CHECK_FAILS(final(--i), ASHLAR_EIO, "was not sent");
        }
        CHECK_ZU(sent_count, n - 1);
        CHECK(ashlar_reducer_finish(reducer, streams[0]) == ASHLAR_EIO);
        char message[32];
        (void)snprintf(message, sizeof message, "bucket %zu was not sent", n - 1);
        CHECK_HAS(ashlar_error_detail(), message);
        CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK); /* and then all is well */
        sent_count = 0;
        for (i = TENSORS; i-- > 0;) {
            CHECK(final(i) == ASHLAR_OK);
        }
        CHECK(ashlar_reducer_finish(reducer, streams[0]) == ASHLAR_OK);
        CHECK_ZU(sent_count, BUCKETS);
        tear_down_reducer();
    }
}

static bool prepare(void) {
    sent_count = fail_at = 0;
    return set_up_arena("memory=64MiB", 3);
}

static ashlar_status create(void) {
    return ashlar_reducer_create(arena, &collectives, ASHLAR_REDUCTION_ALL, streams[3], &reducer);
}

static void check_created(ashlar_status status) {
    CHECK((reducer != NULL) == (status == ASHLAR_OK));
    if (reducer == NULL) {
        CHECK(create() == ASHLAR_OK);
    }
    tear_down_reducer();
}

static bool prepare_reducer(void) {
    return set_up_reducer("memory=64MiB", ASHLAR_REDUCTION_SCATTER, 0);
}

/* A step and all else; the first failure. */
static ashlar_status run_all(void) {
    ashlar_status first = ashlar_reducer_broadcast(reducer, 0, streams[0]);
    ashlar_status status = ashlar_reducer_begin(reducer);
    first = first == ASHLAR_OK ? status : first;
    for (size_t i = TENSORS; i-- > 0;) {
        status = ashlar_reducer_final(reducer, i, streams[i % 3]);
        first = first == ASHLAR_OK ? status : first;
    }
    status = ashlar_reducer_finish(reducer, streams[1]);
    first = first == ASHLAR_OK ? status : first;
    status = ashlar_reducer_gather(reducer, streams[1]);
    return first == ASHLAR_OK ? status : first;
}

static void check_next_step(ashlar_status status) {
    CHECK(status != ASHLAR_EINVAL); /* a failure is told as what it is */
    sent_count = 0;
    CHECK(run_all() == ASHLAR_OK);
    CHECK_ZU(sent_count, 4 + 2 * BUCKETS);
    tear_down_reducer();
}

CASE(whatever_fails_is_told_and_the_next_step_is_whole) {
    const fault_case creating = {prepare, create, check_created};
    const fault_case running = {prepare_reducer, run_all, check_next_step};
    CHECK(run_with_all_faults(&creating) >= 6);
    CHECK(run_with_all_faults(&running) > 40);
}

RUN_CASES()
