/*
 * order.h - what the allocator knows about the order of work on one stream (internal).
 *
 * One event per stream, recorded only when another stream wants a block that was last used here.
 * Ticks count the recordings: a block freed here is stamped with `recorded` at that moment, so a
 * later recording, number n > tick, comes after its last use in stream order.
 *
 * Invariants: completed <= recorded;  last_tick <= recorded;  event != NULL if recorded > 0
 */
#ifndef ASHLAR_ORDER_H
#define ASHLAR_ORDER_H

#include <pthread.h>

#include "free_bins.h"
#include "range.h"

/* Lock: the allocator's guards every field except those marked const. */
struct ashlar_order {
    ashlar_order *next;    /* the allocator's list of streams */
    ashlar_stream stream;  /* const */
    ashlar_free_bins free; /* the free blocks last used here */
    cu_event event;        /* NULL until first wanted */
    uint64_t recorded;     /* recordings so far */
    uint64_t completed;    /* the newest recording known to have completed */
    uint64_t last_tick;    /* of the newest block freed here: no free block has a later one */
    uint64_t recorded_at;  /* number of the newest recording among those of all streams */
};

/* True where a use stamped (order, tick) is known to be over. */
static inline bool ashlar_order_is_past(const ashlar_order *order, uint64_t tick) {
    return order == NULL || order->completed > tick;
}

/*
 * Make sure that a recording after `tick` exists. *recorded counts those of all streams, and gives
 * the one made, if any, its number.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_order_cover(ashlar_order *order, ashlar_caller *caller,
                                                   uint64_t tick, uint64_t *recorded);

/* Ask once, without waiting, whether the newest recording, not known to be over, has completed. */
ASHLAR_MUST_CHECK ashlar_status ashlar_order_query(ashlar_order *order, ashlar_caller *caller);

/* Queue on `waiter` a wait for the newest recording. */
ASHLAR_MUST_CHECK ashlar_status ashlar_order_wait_on(ashlar_order *order, ashlar_caller *caller,
                                                     ashlar_stream waiter);

/*
 * Wait on the host for the newest recording, which is not known to be over.
 *
 * lock   the allocator's, held; dropped during the wait, for other threads go on, and what the
 *        host waits for may itself wait for one of them
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_order_synchronize(ashlar_order *order,
                                                         ashlar_caller *caller,
                                                         pthread_mutex_t *lock);

/* Return the event to the driver. */
void ashlar_order_finish(ashlar_order *order, ashlar_caller *caller);

#endif /* ASHLAR_ORDER_H */
