/* counting_peer.h - subjects of the benchmark that count what they are asked, and have one block.
 */
#ifndef ASHLAR_COUNTING_PEER_H
#define ASHLAR_COUNTING_PEER_H

#include <stdatomic.h>

#include "allocator/base/error.h"
#include "bench/peers/peer.h"
#include "tests/allocator/core/allocator_fixture.h"

enum { THREADS = 2 };

typedef struct counter {
    atomic_size_t takes, gives, other_takes; /* other: not of 4096 B */
    atomic_size_t enters, leaves, wrong;
    atomic_size_t creates, destroys;
    size_t refuse_at; /* the take that fails, from 1; 0: none */
    size_t bar;       /* the thread that cannot enter, from 1; 0: none */
    atomic_size_t takes_of[THREADS], gives_of[THREADS];
    _Atomic(ashlar_stream) streams[THREADS];
} counter;

static counter counts;
static _Thread_local size_t my_number;
static char block[1];

static inline ashlar_status counter_create(ashlar_device *of, void **self) {
    atomic_fetch_add(&counts.wrong, of != device);
    atomic_fetch_add(&counts.creates, 1);
    *self = &counts;
    return ASHLAR_OK;
}

static inline void counter_destroy(void *self) {
    atomic_fetch_add(&counts.wrong, self != &counts);
    atomic_fetch_add(&counts.destroys, 1);
}

static inline ashlar_status counter_enter(void *self, size_t thread) {
    atomic_fetch_add(&counts.wrong, self != &counts || thread >= THREADS);
    if (thread + 1 == counts.bar) {
        return ashlar__fail(ASHLAR_EDRIVER, "no entry");
    }
    atomic_fetch_add(&counts.enters, 1);
    my_number = thread;
    return ASHLAR_OK;
}

static inline void counter_leave(void *self) {
    atomic_fetch_add(&counts.wrong, self != &counts);
    atomic_fetch_add(&counts.leaves, 1);
}

static inline void *counter_take(void *self, size_t bytes, ashlar_stream stream) {
    atomic_fetch_add(&counts.wrong, self != &counts);
    counts.streams[my_number] = stream;
    if (atomic_fetch_add(&counts.takes, 1) + 1 == counts.refuse_at) {
        atomic_fetch_sub(&counts.takes, 1);
        return NULL;
    }
    atomic_fetch_add(&counts.other_takes, bytes != 4096);
    atomic_fetch_add(&counts.takes_of[my_number], 1);
    return block;
}

static inline void counter_give(void *self, void *ptr) {
    atomic_fetch_add(&counts.wrong, self != &counts || ptr != block);
    atomic_fetch_add(&counts.gives, 1);
    atomic_fetch_add(&counts.gives_of[my_number], 1);
}

static inline void counter_usage(void *self, ashlar_peer_usage *out) {
    atomic_fetch_add(&counts.wrong, self != &counts);
    *out = (ashlar_peer_usage){.reserved_peak_bytes = 300, .live_peak_bytes = 200};
}

static const ashlar_peer counting = {
    .name = "counting",
    .create = counter_create,
    .destroy = counter_destroy,
    .enter = counter_enter,
    .leave = counter_leave,
    .take = counter_take,
    .give = counter_give,
    .usage = counter_usage,
};

/* One that is told the bytes and the stream: those of the take. */
static inline void counter_give_sized(void *self, void *ptr, size_t bytes, ashlar_stream stream) {
    atomic_fetch_add(&counts.wrong, stream == NULL || stream != counts.streams[my_number]);
    atomic_fetch_sub(&counts.other_takes, bytes != 4096);
    counter_give(self, ptr);
}

static const ashlar_peer sized = {
    .name = "sized",
    .create = counter_create,
    .destroy = counter_destroy,
    .enter = counter_enter,
    .leave = counter_leave,
    .take = counter_take,
    .give_sized = counter_give_sized,
};

static inline void check_counts_balance(void) {
    CHECK_ZU(counts.wrong, 0);
    CHECK_ZU(counts.gives, counts.takes);
    CHECK_ZU(counts.leaves, counts.enters);
    CHECK_ZU(counts.destroys, counts.creates);
}

#endif /* ASHLAR_COUNTING_PEER_H */
