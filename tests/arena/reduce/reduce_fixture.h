/*
 * reduce_fixture.h - a reducer over the arena of arena_fixture.h, and collectives that keep a log,
 * for tests.
 */
#ifndef ASHLAR_REDUCE_FIXTURE_H
#define ASHLAR_REDUCE_FIXTURE_H

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

static inline void add_one(void *args) {
    const payload *p = args;
    for (size_t i = 0; i < p->bytes; i++) {
        p->ptr[i]++;
    }
}

static inline ashlar_status note(char kind, void *context, void *data, size_t elements,
                                 ashlar_dtype dtype, size_t root, ashlar_stream stream) {
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

static inline ashlar_status broadcast(void *context, void *data, size_t elements,
                                      ashlar_dtype dtype, size_t root, ashlar_stream stream) {
    return note('b', context, data, elements, dtype, root, stream);
}

static inline ashlar_status all_reduce(void *context, void *data, size_t elements,
                                       ashlar_dtype dtype, ashlar_stream stream) {
    return note('r', context, data, elements, dtype, 0, stream);
}

static inline ashlar_status reduce_scatter(void *context, void *data, size_t elements,
                                           ashlar_dtype dtype, ashlar_stream stream) {
    return note('s', context, data, elements, dtype, 0, stream);
}

static inline ashlar_status all_gather(void *context, void *data, size_t elements,
                                       ashlar_dtype dtype, ashlar_stream stream) {
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

static inline void tear_down_reducer(void) {
    ashlar_reducer_destroy(reducer);
    reducer = NULL;
    tear_down_arena();
}

static inline bool set_up_reducer(const char *spec, ashlar_reduction reduction, unsigned frozen) {
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
           ashlar_reducer_create(arena, &collectives, reduction, streams[3], &reducer) ==
               ASHLAR_OK &&
           check_at_end(tear_down_reducer);
}

static inline bool set_up_usual(void) {
    return set_up_reducer("memory=64MiB", ASHLAR_REDUCTION_ALL, 0);
}

static inline ashlar_status final(size_t tensor) {
    return ashlar_reducer_final(reducer, tensor, streams[1]);
}

/* Call `i` was for that bucket. */
static inline void check_sent(size_t i, char kind, ashlar_region region, size_t bucket) {
    ashlar_arena_bucket range;
    ashlar_arena_get_bucket(arena, bucket, &range);
    CHECK(range.offset == BUCKET_OFFSETS[bucket] && range.bytes == BUCKET_BYTES);
    CHECK(log_of[i].kind == kind && log_of[i].region == region);
    CHECK_ZU(log_of[i].offset, range.offset);
    CHECK_ZU(log_of[i].bytes, range.bytes);
    CHECK(log_of[i].dtype == range.dtype && log_of[i].stream == streams[3]);
}

#endif /* ASHLAR_REDUCE_FIXTURE_H */
