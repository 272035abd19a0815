/* test_reduce.c - one rank: which buckets are sent when, in which order, and what a failure leaves.
 */
#include "tests/arena/layout/arena_fixture.h"

#include <ashlar/reduce.h>

/* ---- an engine that writes down what it is asked for, and adds 1 to every byte ---- */

enum { SENT_MAX = 64 };

typedef struct sent {
    char kind;            /* b, r, s, g */
    size_t offset, bytes; /* in the region that holds it */
    ashlar_region region;
    ashlar_dtype dtype;
    ashlar_stream stream;
    size_t root;
} sent;

static sent log_of[SENT_MAX];
static size_t sent_count;
static size_t fail_at; /* the n-th call from now on fails; 0: none */

static void add_one(void *args) {
    const payload *p = args;
    for (size_t i = 0; i < p->bytes; i++) {
        p->ptr[i]++;
    }
}

static ashlar_status note(char kind, void *context, void *data, size_t elements, ashlar_dtype dtype,
                          size_t root, ashlar_stream stream) {
    CHECK(context == &sent_count && sent_count < SENT_MAX);
    if (fail_at > 0 && --fail_at == 0) {
        return ashlar_error_set(ASHLAR_EIO, "the network is down");
    }
    const payload p = {data, elements * ashlar_dtype_bytes(dtype), 0};
    sent s = {kind, 0, p.bytes, ASHLAR_REGION_PARAMETERS, dtype, stream, root};
    const unsigned char *base = ashlar_arena_region(arena, s.region);
    if (p.ptr < base || p.ptr >= base + ashlar_arena_get_info(arena).region_bytes[s.region]) {
        s.region = ASHLAR_REGION_GRADIENTS;
        base = ashlar_arena_region(arena, s.region);
    }
    s.offset = (size_t)(p.ptr - base);
    log_of[sent_count++] = s;
    return ashlar_launch(device, stream, add_one, &p, sizeof p);
}

static ashlar_status broadcast(void *context, void *data, size_t elements, ashlar_dtype dtype,
                               size_t root, ashlar_stream stream) {
    return note('b', context, data, elements, dtype, root, stream);
}

static ashlar_status all_reduce(void *context, void *data, size_t elements, ashlar_dtype dtype,
                                ashlar_stream stream) {
    return note('r', context, data, elements, dtype, 0, stream);
}

static ashlar_status reduce_scatter(void *context, void *data, size_t elements, ashlar_dtype dtype,
                                    ashlar_stream stream) {
    return note('s', context, data, elements, dtype, 0, stream);
}

static ashlar_status all_gather(void *context, void *data, size_t elements, ashlar_dtype dtype,
                                ashlar_stream stream) {
    return note('g', context, data, elements, dtype, 0, stream);
}

static const ashlar_collectives collectives = {.context = &sent_count,
                                               .broadcast = broadcast,
                                               .all_reduce = all_reduce,
                                               .reduce_scatter = reduce_scatter,
                                               .all_gather = all_gather};
static ashlar_reducer *reducer;

/* five; four; half; one, two and three: each padded for a world of 2 */
enum { BUCKETS = 4, BUCKET_BYTES = 512 };
static const size_t BUCKET_OFFSETS[BUCKETS] = {1536, 1024, 512, 0};

static void tear_down_reducer(void) {
    ashlar_reducer_destroy(reducer);
    reducer = NULL;
    tear_down_arena();
}

static bool set_up_reducer(const char *spec, ashlar_reduction reduction, unsigned frozen) {
    const ashlar_tensor_options options = {.is_frozen = true};
    sent_count = fail_at = 0;
    atomic_store(&payload_bad_count, 0);
    bool is_ok = set_up(spec) && ashlar_arena_create(&arena) == ASHLAR_OK && declare_all(arena) &&
                 ashlar_arena_set_buckets(arena, 300, 2) == ASHLAR_OK;
    for (size_t i = 0; i < TENSORS && is_ok; i++) {
        is_ok = (frozen >> i & 1) == 0 || ashlar_arena_set_options(arena, i, &options) == ASHLAR_OK;
    }
    return is_ok && ashlar_arena_commit(arena, allocator, streams[0], 3) == ASHLAR_OK &&
           ashlar_arena_get_info(arena).bucket_count == BUCKETS &&
           ashlar_reducer_create(arena, &collectives, reduction, streams[3], &reducer) ==
               ASHLAR_OK &&
           check_at_end(tear_down_reducer);
}

static bool set_up_usual(void) {
    return set_up_reducer("memory=64MiB", ASHLAR_REDUCTION_ALL, 0);
}

static ashlar_status final(size_t tensor) {
    return ashlar_reducer_final(reducer, tensor, streams[1]);
}

/* Call `i` was for that bucket. */
static void check_sent(size_t i, char kind, ashlar_region region, size_t bucket) {
    ashlar_arena_bucket range;
    ashlar_arena_get_bucket(arena, bucket, &range);
    CHECK(range.offset == BUCKET_OFFSETS[bucket] && range.bytes == BUCKET_BYTES);
    CHECK(log_of[i].kind == kind && log_of[i].region == region);
    CHECK_ZU(log_of[i].offset, range.offset);
    CHECK_ZU(log_of[i].bytes, range.bytes);
    CHECK(log_of[i].dtype == range.dtype && log_of[i].stream == streams[3]);
}

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
    CHECK_ZU(ashlar_arena_get_info(arena).bucket_count, 5);
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

/* ---- what is refused, and what a failure leaves ---- */

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
