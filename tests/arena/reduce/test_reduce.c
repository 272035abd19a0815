/* test_reduce.c - one rank: which buckets are sent when, and in which order. */
#include "tests/arena/reduce/reduce_fixture.h"

/* ---- order ---- */

CASE(buckets_are_sent_as_soon_as_they_are_complete_and_in_their_order) {
    static const struct {
        size_t tensor, sent;
    } steps[TENSORS] = {{FIVE, 1}, {ONE, 1}, {HALF, 1}, {TWO, 1}, {FOUR, 3}, {THREE, 4}};
    REQUIRE(set_up_usual());
    for (int step = 0; step < 3; step++) {
        sent_count = 0;
        CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
        for (size_t i = 0; i < TENSORS; i++) {
            CHECK(final(steps[i].tensor) == ASHLAR_OK);
            CHECK_ZU(sent_count, steps[i].sent);
        }
        CHECK(ashlar_reducer_finish(reducer, streams[0]) == ASHLAR_OK);
        for (size_t i = 0; i < BUCKETS; i++) {
            check_sent(i, 'r', ASHLAR_REGION_GRADIENTS, i);
        }
    }
}

/* All 720 orders. */
CASE_WITH(whatever_the_order_of_finals_the_same_is_sent, set_up_usual()) {
    size_t wrong = 0;
    for (size_t k = 0; k < 720; k++) {
        size_t left[TENSORS] = {0, 1, 2, 3, 4, 5}, code = k;
        sent_count = 0;
        wrong += ashlar_reducer_begin(reducer) != ASHLAR_OK;
        for (size_t n = TENSORS; n > 0; n--) {
            const size_t pick = code % n;
            code /= n;
            wrong += final(left[pick]) != ASHLAR_OK;
            left[pick] = left[n - 1];
        }
        wrong += ashlar_reducer_finish(reducer, streams[0]) != ASHLAR_OK;
        wrong += sent_count != BUCKETS;
        for (size_t i = 0; i < BUCKETS; i++) {
            wrong += log_of[i].offset != BUCKET_OFFSETS[i];
        }
    }
    CHECK_ZU(wrong, 0);
}

/*
 * Gradients are written on two streams, then reduced, then read on a third: whatever the device
 * runs first.
 */
CASE(collectives_run_behind_the_gradients_and_before_what_follows) {
    for (int seed = 1; seed <= 24; seed++) {
        REQUIRE(set_up_reducer(drawn_order("memory=64MiB", seed), ASHLAR_REDUCTION_ALL, 0));
        wait_for(streams[0]);
        for (unsigned char step = 0; step < 2; step++) {
            CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
            for (size_t n = 0; n < TENSORS; n++) {
                const size_t i = (n + (size_t)seed) % TENSORS;
                const size_t bytes = bytes_in(ASHLAR_REGION_GRADIENTS, i);
                /* The last step's stream, the default stream and the collectives' own too. */
                ashlar_stream stream = seed % 3 == 0 && n == 2 ? NULL
                                       : n == 4                ? streams[3]
                                                               : streams[n % 3];
                queue_write(stream, view_of(ASHLAR_REGION_GRADIENTS, i), bytes,
                            (unsigned char)(10 * step + i));
                CHECK(ashlar_reducer_final(reducer, i, stream) == ASHLAR_OK);
            }
            CHECK(ashlar_reducer_finish(reducer, streams[0]) == ASHLAR_OK);
            for (size_t i = 0; i < TENSORS; i++) {
                queue_verify(streams[0], view_of(ASHLAR_REGION_GRADIENTS, i),
                             bytes_in(ASHLAR_REGION_GRADIENTS, i),
                             (unsigned char)(10 * step + i + 1));
            }
            wait_for(streams[0]);
        }
        CHECK(atomic_load(&payload_bad_count) == 0);
        tear_down_reducer();
    }
}

/* ---- frozen tensors ---- */

/* FIVE is alone in the first bucket. */
static void step_without_five(void) {
    CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
    for (size_t i = TENSORS; i-- > 0;) {
        CHECK(i == FIVE || final(i) == ASHLAR_OK);
    }
}

CASE_WITH(what_is_frozen_or_unfrozen_is_so_from_the_next_step, set_up_usual()) {
    const ashlar_tensor_options frozen = {.is_frozen = true}, free_again = {.is_frozen = false};
    step_without_five();
    CHECK_ZU(sent_count, 0);
    CHECK(ashlar_arena_set_options(arena, FIVE, &frozen) == ASHLAR_OK);
    CHECK(final(FIVE) == ASHLAR_OK); /* in this step it is not */
    CHECK_ZU(sent_count, BUCKETS);
    CHECK(ashlar_reducer_finish(reducer, streams[0]) == ASHLAR_OK);
    step_without_five();
    CHECK_ZU(sent_count, 2 * BUCKETS - 1);
    CHECK_FAILS(final(FIVE), ASHLAR_EINVAL, "tensor five is frozen");
    CHECK(ashlar_reducer_finish(reducer, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_arena_set_options(arena, FIVE, &free_again) == ASHLAR_OK);
    step_without_five();
    CHECK_FAILS(ashlar_reducer_finish(reducer, streams[0]), ASHLAR_EINVAL, "tensor five");
    CHECK_ZU(sent_count, 2 * BUCKETS - 1);
}

/* ---- parameters ---- */

CASE(parameters_are_broadcast_by_stretches_of_one_type) {
    REQUIRE(set_up_reducer("memory=64MiB,mode=adversarial,seed=8", ASHLAR_REDUCTION_ALL, 0));
    queue_write(streams[2], view_of(ASHLAR_REGION_PARAMETERS, ONE), 12, 40);
    CHECK(ashlar_stream_synchronize(device, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_reducer_broadcast(reducer, 5, streams[2]) == ASHLAR_OK);
    queue_verify(streams[2], view_of(ASHLAR_REGION_PARAMETERS, ONE), 12, 41);
    wait_for(streams[2]);
    CHECK(atomic_load(&payload_bad_count) == 0);
    CHECK_ZU(sent_count, 4); /* F32, BF16, F32, F64 */
    static const size_t offsets[] = {0, 512, 1024, 1536};
    for (size_t i = 0; i < 4; i++) {
        CHECK(log_of[i].kind == 'b' && log_of[i].region == ASHLAR_REGION_PARAMETERS);
        CHECK(log_of[i].root == 5 && log_of[i].stream == streams[3]);
        CHECK_ZU(log_of[i].offset, offsets[i]);
        CHECK_ZU(log_of[i].bytes, 512);
    }
}

CASE_WITH(neighbouring_buckets_of_one_type_are_one_broadcast, set_up_empty()) {
    for (size_t i = 0; i < 5; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "t%zu", i);
        CHECK(ashlar_arena_add(arena, name, i == 3 ? ASHLAR_F16 : ASHLAR_F32, 1, &(size_t){100},
                               NULL) == ASHLAR_OK);
    }
    CHECK(ashlar_arena_set_buckets(arena, 1, 1) == ASHLAR_OK);
    CHECK(ashlar_arena_commit(arena, allocator, streams[0], 3) == ASHLAR_OK);
    CHECK_ZU(ashlar_arena_bucket_count(arena), 5);
    REQUIRE(ashlar_reducer_create(arena, &collectives, ASHLAR_REDUCTION_ALL, streams[3],
                                  &reducer) == ASHLAR_OK);
    sent_count = 0;
    CHECK(ashlar_reducer_broadcast(reducer, 0, streams[3]) == ASHLAR_OK);
    CHECK_ZU(sent_count, 3);
    CHECK(log_of[0].offset == 0 && log_of[0].bytes == 3 * 512);
    CHECK(log_of[1].offset == 1536 && log_of[1].bytes == 256 && log_of[1].dtype == ASHLAR_F16);
    CHECK(log_of[2].offset == 1792 && log_of[2].bytes == 512);
    tear_down_reducer();
}

RUN_CASES()
