/* test_reduce.c - one rank: which buckets are sent when, in which order, and what is refused. */
#include "arena_fixture.h"

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
    if (p.ptr < base || p.ptr >= base + ashlar_arena_region_bytes(arena, s.region)) {
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

static const ashlar_collectives collectives = {&sent_count, broadcast, all_reduce, reduce_scatter,
                                               all_gather};
static ashlar_reducer *reducer;

enum { BUCKETS = 4 }; /* five; four; half; one, two and three */

/* bytes: of each bucket, for a world of 2. */
static const size_t BUCKET_BYTES[BUCKETS] = {512, 512, 512, 512};
static const size_t BUCKET_OFFSETS[BUCKETS] = {1536, 1024, 512, 0};

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
           ashlar_arena_bucket_count(arena) == BUCKETS &&
           ashlar_reducer_create(arena, &collectives, reduction, streams[3], &reducer) == ASHLAR_OK;
}

static void tear_down_reducer(void) {
    ashlar_reducer_destroy(reducer);
    reducer = NULL;
    tear_down_arena();
}

static ashlar_status final(size_t tensor) {
    return ashlar_reducer_final(reducer, tensor, streams[1]);
}

/* Call `i` was for that bucket. */
static void check_sent(size_t i, char kind, ashlar_region region, size_t bucket) {
    ashlar_arena_bucket range;
    ashlar_arena_bucket_read(arena, bucket, &range);
    CHECK(range.offset == BUCKET_OFFSETS[bucket] && range.bytes == BUCKET_BYTES[bucket]);
    CHECK(log_of[i].kind == kind && log_of[i].region == region);
    CHECK_ZU(log_of[i].offset, range.offset);
    CHECK_ZU(log_of[i].bytes, range.bytes);
    CHECK(log_of[i].dtype == range.dtype && log_of[i].stream == streams[3]);
}

/* ---- order ---- */

static void buckets_are_sent_as_soon_as_they_are_complete_and_in_their_order(void) {
    static const struct {
        size_t tensor, sent;
    } steps[TENSORS] = {{FIVE, 1}, {ONE, 1}, {HALF, 1}, {TWO, 1}, {FOUR, 3}, {THREE, 4}};
    REQUIRE(set_up_reducer("memory=64MiB", ASHLAR_REDUCTION_ALL, 0));
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
    tear_down_reducer();
}

/* All 720 orders. */
static void whatever_the_order_of_finals_the_same_is_sent(void) {
    size_t wrong = 0;
    REQUIRE(set_up_reducer("memory=64MiB", ASHLAR_REDUCTION_ALL, 0));
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
    tear_down_reducer();
}

/*
 * Gradients are written on two streams, then reduced, then read on a third: whatever the device
 * runs first.
 */
static void collectives_run_behind_the_gradients_and_before_what_follows(void) {
    for (int seed = 1; seed <= 24; seed++) {
        char spec[64];
        (void)snprintf(spec, sizeof spec, "memory=64MiB,mode=adversarial,seed=%d", seed);
        REQUIRE(set_up_reducer(spec, ASHLAR_REDUCTION_ALL, 0));
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

static void a_bucket_waits_once_for_each_other_stream(void) {
    REQUIRE(set_up_reducer("memory=64MiB", ASHLAR_REDUCTION_ALL, 0));
    CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
    const size_t waits = CALLS(stream_wait_event);
    CHECK(ashlar_reducer_final(reducer, ONE, streams[1]) == ASHLAR_OK);
    CHECK(ashlar_reducer_final(reducer, TWO, streams[1]) == ASHLAR_OK);
    CHECK(ashlar_reducer_final(reducer, THREE, streams[2]) == ASHLAR_OK);
    CHECK(ashlar_reducer_final(reducer, FOUR, streams[1]) == ASHLAR_OK);
    CHECK(ashlar_reducer_final(reducer, HALF, streams[3]) == ASHLAR_OK);
    CHECK_ZU(CALLS(stream_wait_event) - waits, 0);
    CHECK(ashlar_reducer_final(reducer, FIVE, streams[1]) == ASHLAR_OK);
    CHECK_ZU(CALLS(stream_wait_event) - waits, 1 + 1 + 0 + 2);
    CHECK_ZU(sent_count, BUCKETS);
    CHECK(ashlar_reducer_finish(reducer, streams[3]) == ASHLAR_OK); /* its own: no wait */
    CHECK_ZU(CALLS(stream_wait_event) - waits, 4);
    tear_down_reducer();
}

/* ---- frozen tensors ---- */

static void frozen_tensors_are_left_out(void) {
    REQUIRE(set_up_reducer("memory=64MiB", ASHLAR_REDUCTION_ALL, 1u << HALF | 1u << TWO));
    CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
    CHECK(final(HALF) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "tensor half is frozen");
    CHECK(final(FIVE) == ASHLAR_OK && final(THREE) == ASHLAR_OK && final(FOUR) == ASHLAR_OK);
    CHECK_ZU(sent_count, 2);
    CHECK(final(ONE) == ASHLAR_OK);
    CHECK_ZU(sent_count, 3); /* without half's */
    check_sent(2, 'r', ASHLAR_REGION_GRADIENTS, 3);
    CHECK(ashlar_reducer_finish(reducer, streams[0]) == ASHLAR_OK);
    tear_down_reducer();
}

static void buckets_at_either_end_may_be_frozen(void) {
    REQUIRE(set_up_reducer("memory=64MiB", ASHLAR_REDUCTION_SCATTER,
                           1u << FIVE | 1u << ONE | 1u << TWO | 1u << THREE));
    CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
    CHECK(final(FOUR) == ASHLAR_OK && sent_count == 1);
    check_sent(0, 's', ASHLAR_REGION_GRADIENTS, 1);
    CHECK(final(HALF) == ASHLAR_OK && sent_count == 2);
    CHECK(ashlar_reducer_finish(reducer, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_reducer_gather(reducer, streams[0]) == ASHLAR_OK);
    CHECK_ZU(sent_count, 4);
    check_sent(2, 'g', ASHLAR_REGION_PARAMETERS, 1);
    check_sent(3, 'g', ASHLAR_REGION_PARAMETERS, 2);
    tear_down_reducer();
}

static void an_arena_that_is_frozen_sends_nothing(void) {
    REQUIRE(set_up_reducer("memory=64MiB", ASHLAR_REDUCTION_ALL, 63));
    CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
    CHECK(ashlar_reducer_finish(reducer, streams[0]) == ASHLAR_OK);
    CHECK_ZU(sent_count, 0);
    tear_down_reducer();
}

static void what_is_frozen_later_still_counts(void) {
    const ashlar_tensor_options frozen = {.is_frozen = true};
    REQUIRE(set_up_reducer("memory=64MiB", ASHLAR_REDUCTION_ALL, 0));
    CHECK(ashlar_arena_set_options(arena, FIVE, &frozen) == ASHLAR_OK);
    CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
    CHECK(final(FIVE) == ASHLAR_OK && sent_count == 1);
    CHECK(ashlar_reducer_finish(reducer, streams[0]) == ASHLAR_EINVAL);
    tear_down_reducer();
}

/* ---- what is refused ---- */

static void a_tensor_reported_twice_is_refused(void) {
    REQUIRE(set_up_reducer("memory=64MiB", ASHLAR_REDUCTION_ALL, 0));
    CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
    CHECK(final(THREE) == ASHLAR_OK && final(ONE) == ASHLAR_OK);
    CHECK(final(THREE) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "tensor three was final before");
    CHECK(final(TENSORS) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "no such tensor");
    CHECK(final(FIVE) == ASHLAR_OK && final(FOUR) == ASHLAR_OK && final(HALF) == ASHLAR_OK);
    CHECK_ZU(sent_count, 3);             /* two is missing still */
    CHECK(final(FIVE) == ASHLAR_EINVAL); /* sent by now */
    CHECK(final(TWO) == ASHLAR_OK);
    CHECK_ZU(sent_count, 4);
    CHECK(ashlar_reducer_finish(reducer, streams[0]) == ASHLAR_OK);
    tear_down_reducer();
}

static void the_first_tensor_that_is_missing_is_named(void) {
    REQUIRE(set_up_reducer("memory=64MiB", ASHLAR_REDUCTION_ALL, 1u << ONE));
    CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
    CHECK(ashlar_reducer_finish(reducer, streams[0]) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "tensor five is not final, so that bucket 0");
    CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
    CHECK(final(FIVE) == ASHLAR_OK && final(FOUR) == ASHLAR_OK && final(TWO) == ASHLAR_OK);
    CHECK(ashlar_reducer_finish(reducer, streams[0]) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "tensor half is not final, so that bucket 2");
    CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
    CHECK(final(FIVE) == ASHLAR_OK && final(FOUR) == ASHLAR_OK && final(HALF) == ASHLAR_OK);
    CHECK(final(TWO) == ASHLAR_OK);
    CHECK(ashlar_reducer_finish(reducer, streams[0]) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "tensor three is not final, so that bucket 3");
    CHECK_ZU(sent_count, 2 + 3);
    tear_down_reducer();
}

static void calls_out_of_turn_are_refused(void) {
    REQUIRE(set_up_reducer("memory=64MiB", ASHLAR_REDUCTION_ALL, 0));
    CHECK(final(FIVE) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "final: no step has begun");
    CHECK(ashlar_reducer_finish(reducer, streams[0]) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "finish: no step has begun");
    CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
    CHECK(final(FIVE) == ASHLAR_OK);
    CHECK(ashlar_reducer_begin(reducer) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "not finished");
    CHECK(ashlar_reducer_finish(reducer, streams[0]) == ASHLAR_EINVAL);
    CHECK(final(FOUR) == ASHLAR_EINVAL);
    CHECK(ashlar_reducer_gather(reducer, streams[0]) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "ASHLAR_REDUCTION_SCATTER");
    CHECK_ZU(sent_count, 1);
    tear_down_reducer();
}

static void an_arena_without_gradients_cannot_begin(void) {
    REQUIRE(set_up_arena("memory=64MiB", 1));
    REQUIRE(ashlar_reducer_create(arena, &collectives, ASHLAR_REDUCTION_ALL, streams[3],
                                  &reducer) == ASHLAR_OK);
    CHECK(ashlar_reducer_begin(reducer) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "no gradients");
    CHECK(ashlar_arena_extend(arena, streams[0], 2) == ASHLAR_OK);
    CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
    tear_down_reducer();
}

static void a_reducer_needs_an_arena_and_its_functions(void) {
    ashlar_collectives lacks = collectives;
    REQUIRE(set_up_arena("memory=64MiB", 3));
    ashlar_arena *empty = NULL;
    REQUIRE(ashlar_arena_create(&empty) == ASHLAR_OK);
    CHECK(ashlar_reducer_create(empty, &collectives, ASHLAR_REDUCTION_ALL, NULL, &reducer) ==
          ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "not committed");
    ashlar_arena_destroy(empty);
    lacks.all_reduce = NULL;
    CHECK(ashlar_reducer_create(arena, &lacks, ASHLAR_REDUCTION_ALL, NULL, &reducer) ==
          ASHLAR_EINVAL);
    lacks = collectives;
    lacks.broadcast = NULL;
    CHECK(ashlar_reducer_create(arena, &lacks, ASHLAR_REDUCTION_ALL, NULL, &reducer) ==
          ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "must be given");
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
    tear_down_arena();
}

static void more_streams_than_there_are_places_are_refused(void) {
    static ashlar_stream many[ASHLAR_REDUCER_STREAMS];
    REQUIRE(set_up("memory=64MiB") && ashlar_arena_create(&arena) == ASHLAR_OK);
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
    CHECK(ashlar_reducer_final(reducer, ASHLAR_REDUCER_STREAMS, streams[0]) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "more than 64 streams");
    const size_t waits = CALLS(stream_wait_event);
    CHECK(ashlar_reducer_final(reducer, ASHLAR_REDUCER_STREAMS, many[63]) == ASHLAR_OK);
    CHECK_ZU(CALLS(stream_wait_event) - waits, ASHLAR_REDUCER_STREAMS);
    CHECK_ZU(sent_count, 1);
    CHECK(ashlar_reducer_finish(reducer, streams[0]) == ASHLAR_OK);
    for (size_t i = 0; i < ASHLAR_REDUCER_STREAMS; i++) {
        ashlar_stream_destroy(device, many[i]);
    }
    tear_down_reducer();
}

/* ---- parameters ---- */

static void parameters_are_broadcast_by_stretches_of_one_type(void) {
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
    tear_down_reducer();
}

static void neighbouring_buckets_of_one_type_are_one_broadcast(void) {
    REQUIRE(set_up("memory=64MiB") && ashlar_arena_create(&arena) == ASHLAR_OK);
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

/* As a program does: reduce, update on the stream that finished, gather, read there. */
static void parts_are_gathered_behind_their_update(void) {
    for (int seed = 1; seed <= 8; seed++) {
        char spec[64];
        (void)snprintf(spec, sizeof spec, "memory=64MiB,mode=adversarial,seed=%d", seed);
        REQUIRE(set_up_reducer(spec, ASHLAR_REDUCTION_SCATTER, 0));
        CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
        for (size_t i = TENSORS; i-- > 0;) {
            CHECK(ashlar_reducer_final(reducer, i, streams[0]) == ASHLAR_OK);
        }
        CHECK(ashlar_reducer_finish(reducer, streams[0]) == ASHLAR_OK);
        queue_write(streams[0], view_of(ASHLAR_REGION_PARAMETERS, FOUR), 280, 70);
        CHECK(ashlar_reducer_gather(reducer, streams[0]) == ASHLAR_OK);
        queue_verify(streams[0], view_of(ASHLAR_REGION_PARAMETERS, FOUR), 280, 71);
        wait_for(streams[0]);
        CHECK(atomic_load(&payload_bad_count) == 0);
        CHECK_ZU(sent_count, 2 * BUCKETS);
        for (size_t i = 0; i < BUCKETS; i++) {
            check_sent(i, 's', ASHLAR_REGION_GRADIENTS, i);
            check_sent(BUCKETS + i, 'g', ASHLAR_REGION_PARAMETERS, i);
        }
        tear_down_reducer();
    }
}

/* ---- failures ---- */

static void after_a_collective_failed_nothing_more_is_sent_in_that_step(void) {
    for (size_t n = 1; n <= BUCKETS; n++) {
        REQUIRE(set_up_reducer("memory=64MiB", ASHLAR_REDUCTION_ALL, 0));
        CHECK(ashlar_reducer_begin(reducer) == ASHLAR_OK);
        fail_at = n;
        size_t i = TENSORS;
        ashlar_status status = ASHLAR_OK;
        while (i > 0 && status == ASHLAR_OK) {
            status = final(--i);
        }
        CHECK(status == ASHLAR_EIO);
        CHECK_HAS(ashlar_error_detail(), "the network is down");
        while (i > 0) {
            CHECK(final(--i) == ASHLAR_EIO);
            CHECK_HAS(ashlar_error_detail(), "was not sent");
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

static void broadcasts_and_gathers_end_at_their_first_failure(void) {
    for (size_t n = 1; n <= BUCKETS; n++) {
        REQUIRE(set_up_reducer("memory=64MiB", ASHLAR_REDUCTION_SCATTER, 0));
        fail_at = n;
        CHECK(ashlar_reducer_broadcast(reducer, 0, streams[0]) == ASHLAR_EIO);
        CHECK_ZU(sent_count, n - 1);
        fail_at = n;
        CHECK(ashlar_reducer_gather(reducer, streams[0]) == ASHLAR_EIO);
        CHECK_ZU(sent_count, 2 * (n - 1));
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

static void whatever_fails_is_told_and_the_next_step_is_whole(void) {
    const fault_case creating = {prepare, create, check_created};
    const fault_case running = {prepare_reducer, run_all, check_next_step};
    CHECK(run_with_all_faults(&creating) >= 6);
    CHECK(run_with_all_faults(&running) > 40);
}

int main(void) {
    RUN(buckets_are_sent_as_soon_as_they_are_complete_and_in_their_order);
    RUN(whatever_the_order_of_finals_the_same_is_sent);
    RUN(collectives_run_behind_the_gradients_and_before_what_follows);
    RUN(a_bucket_waits_once_for_each_other_stream);
    RUN(frozen_tensors_are_left_out);
    RUN(buckets_at_either_end_may_be_frozen);
    RUN(an_arena_that_is_frozen_sends_nothing);
    RUN(what_is_frozen_later_still_counts);
    RUN(a_tensor_reported_twice_is_refused);
    RUN(the_first_tensor_that_is_missing_is_named);
    RUN(calls_out_of_turn_are_refused);
    RUN(an_arena_without_gradients_cannot_begin);
    RUN(a_reducer_needs_an_arena_and_its_functions);
    RUN(more_streams_than_there_are_places_are_refused);
    RUN(parameters_are_broadcast_by_stretches_of_one_type);
    RUN(neighbouring_buckets_of_one_type_are_one_broadcast);
    RUN(parts_are_gathered_behind_their_update);
    RUN(after_a_collective_failed_nothing_more_is_sent_in_that_step);
    RUN(broadcasts_and_gathers_end_at_their_first_failure);
    RUN(whatever_fails_is_told_and_the_next_step_is_whole);
    return check_report();
}
