/*
 * streams_fixture.h - for tests of the order between streams: calls counted by function, and
 * blocks that show who wrote them last.
 *
 * Everything runs in adversarial mode: nothing that is queued runs before the host waits for it,
 * and then only what the wait needs. And with clocks, so that the order of what runs is proven too.
 */
#ifndef ASHLAR_STREAMS_FIXTURE_H
#define ASHLAR_STREAMS_FIXTURE_H

#include "tests/allocator/core/allocator_fixture.h"
#include "allocator/core/core.h"
#include "tests/allocator/soft/soft_probe.h"

#define BIG (4 * MIB) /* blocks of whole handles */
#define ALL (4 * BIG) /* of a device of 16 MiB */

typedef struct order_calls {
    size_t created, recorded, queried, waited, synchronized;
} order_calls;

static inline order_calls order_calls_now(void) {
    return (order_calls){
        .created = CALLS(event_create),
        .recorded = CALLS(event_record),
        .queried = CALLS(event_query),
        .waited = CALLS(stream_wait_event),
        .synchronized = CALLS(event_synchronize),
    };
}

/* Since `before`, exactly so many calls were made; and `before` begins anew. */
static inline void check_calls(order_calls *before, order_calls want) {
    const order_calls now = order_calls_now();
    CHECK_ZU(now.created - before->created, want.created);
    CHECK_ZU(now.recorded - before->recorded, want.recorded);
    CHECK_ZU(now.queried - before->queried, want.queried);
    CHECK_ZU(now.waited - before->waited, want.waited);
    CHECK_ZU(now.synchronized - before->synchronized, want.synchronized);
    *before = now;
}

static inline bool set_up_cached_streams(const char *memory, uint64_t cache_bytes) {
    char spec[96];
    (void)snprintf(spec, sizeof spec, "mode=adversarial,seed=3,memory=%s", memory);
    return set_up_cached(spec, cache_bytes);
}

static inline bool set_up_streams(const char *memory) {
    return set_up_cached_streams(memory, 0);
}

/* Queue on `stream` what a user does with a block: write all of it, and find it unchanged. */
static inline void use(ashlar_stream stream, unsigned char *ptr, size_t bytes,
                       unsigned char value) {
    queue_write(stream, ptr, bytes, value);
    queue_verify(stream, ptr, bytes, value);
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(ashlar__soft_clock_use(ashlar__ptr_in(ptr), bytes, stream) == ASHLAR_OK);
    ashlar__device_leave(device);
}

/* Work queued on `stream` from now on comes after every use() of the block. */
static inline void check_ordered(ashlar_stream stream, unsigned char *ptr, size_t bytes) {
    bool is_ordered = false;
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(ashlar__soft_clock_own(ashlar__ptr_in(ptr), bytes, stream, &is_ordered) == ASHLAR_OK);
    ashlar__device_leave(device);
    CHECK(is_ordered);
}

/*
 * `ptr` is `stream`'s alone from now on: writes of earlier users that still come would show. The
 * other streams are run to their ends in between.
 */
static inline void check_owned(ashlar_stream stream, unsigned char *ptr, size_t bytes) {
    check_ordered(stream, ptr, bytes);
    queue_write(stream, ptr, bytes, 0xC3);
    wait_for(stream);
    for (int i = 0; i < STREAMS; i++) {
        wait_for(streams[i]);
    }
    queue_verify(stream, ptr, bytes, 0xC3);
    wait_for(stream);
    CHECK(atomic_load(&payload_bad_count) == 0);
}

static inline ashlar_stream new_stream(void) {
    ashlar_stream stream = NULL;
    CHECK(ashlar_stream_create(device, &stream) == ASHLAR_OK);
    return stream;
}

/* Calls so far that take, map, unmap or give back memory. */
static inline size_t memory_calls(void) {
    return CALLS(mem_create) + CALLS(mem_map) + CALLS(mem_set_access) + CALLS(mem_unmap) +
           CALLS(mem_release);
}

/* Records of streams, and of pools. */
static inline size_t order_count(void) {
    size_t count = 0;
    for (const ashlar_stream_state *state = allocator->stream_states; state != NULL;
         state = state->next) {
        count++;
    }
    return count;
}

#endif /* ASHLAR_STREAMS_FIXTURE_H */
