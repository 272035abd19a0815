/* turn_handoff.c - one thread takes blocks, and a second one gives them back. */
#include <sched.h>
#include <stdio.h>

#include "allocator/base/error.h"
#include "bench/peers/turn.h"

enum { RING = 64 };

/* A ring of the blocks [given, taken). NULL as a block: no more will come. */
typedef struct handoff {
    ashlar_turn *turn;
    _Alignas(ASHLAR_CACHE_LINE) _Atomic size_t taken;
    void *blocks[RING];
    _Alignas(ASHLAR_CACHE_LINE) _Atomic size_t given;
    atomic_bool is_over; /* a side could not begin */
} handoff;

/* Wait until the other side's index is no longer `stop`. False: that side could not begin. */
static bool wait_for(handoff *h, _Atomic size_t *index, size_t stop, size_t *out) {
    while ((*out = atomic_load_explicit(index, memory_order_acquire)) == stop) {
        if (atomic_load(&h->is_over)) {
            return false;
        }
        sched_yield();
    }
    return true;
}

static ashlar_status take_side(handoff *h, size_t count, size_t bytes) {
    const ashlar_turn *t = h->turn;
    size_t given = 0; /* as last seen */
    for (size_t i = 0; i < count; i++) {
        if (i - given == RING && !wait_for(h, &h->given, given, &given)) {
            return ASHLAR_OK; /* the other side has the failure */
        }
        void *ptr = t->subject->peer->take(t->subject->self, bytes, t->streams[0]);
        h->blocks[i % RING] = ptr;
        atomic_store_explicit(&h->taken, i + 1, memory_order_release);
        if (ptr == NULL) {
            return ashlar__turn_fail_take(t, bytes);
        }
    }
    return ASHLAR_OK;
}

static void give_side(handoff *h, size_t count, size_t bytes) {
    const ashlar_turn *t = h->turn;
    size_t taken = 0; /* as last seen */
    for (size_t i = 0; i < count; i++) {
        if (i == taken && !wait_for(h, &h->taken, taken, &taken)) {
            return;
        }
        void *ptr = h->blocks[i % RING];
        if (ptr == NULL) {
            return;
        }
        ashlar__turn_give(t->subject, ptr, bytes, t->streams[0]);
        atomic_store_explicit(&h->given, i + 1, memory_order_release);
    }
}

static ashlar_status run_side(void *arg, size_t thread) {
    handoff *h = arg;
    const size_t count = h->turn->repeats * h->turn->workload->body_pairs;
    const size_t bytes = h->turn->workload->ops[h->turn->begin].bytes;
    ashlar_status status = ashlar__turn_enter(h->turn->subject, thread);
    if (status != ASHLAR_OK) {
        atomic_store(&h->is_over, true);
        return status;
    }
    if (thread == 0) {
        status = take_side(h, count, bytes);
    } else {
        give_side(h, count, bytes);
    }
    ashlar__turn_leave(h->turn->subject);
    return status;
}

/* Give back what the second thread, which could not begin, has left in the ring. */
static void give_left(handoff *h, size_t bytes) {
    const ashlar_turn_subject *s = h->turn->subject;
    if (h->given < h->taken && ashlar__turn_enter(s, 0) == ASHLAR_OK) {
        for (size_t i = h->given; i < h->taken; i++) {
            void *ptr = h->blocks[i % RING];
            if (ptr != NULL) {
                ashlar__turn_give(s, ptr, bytes, h->turn->streams[0]);
            }
        }
        ashlar__turn_leave(s);
    }
}

ashlar_status ashlar__turn_handoff(ashlar_thread_team *team, ashlar_turn *turn, double *wall_ns) {
    handoff h = {.turn = turn};
    const ashlar_status status = ashlar__thread_team_run(team, run_side, &h, wall_ns);
    if (status != ASHLAR_OK) {
        char detail[ASHLAR_DETAIL_BYTES];
        (void)snprintf(detail, sizeof detail, "%s", ashlar_error_detail());
        give_left(&h, turn->workload->ops[turn->begin].bytes);
        return ashlar__fail(status, "%s", detail);
    }
    return ASHLAR_OK;
}
