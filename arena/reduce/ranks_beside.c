/* ranks_beside.c - runs collectives on a thread of their own, one after the other. */
#include "arena/reduce/ranks_beside.h"

#include <signal.h>
#include <stdio.h>

#include "allocator/base/check_level.h"
#include "allocator/base/clock.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/lock.h"
#include "arena/reduce/ranks_impl.h"

/* Collectives that may wait for the thread; a stream that begins more waits for the oldest. */
enum { CALLS = 32 };

/* Call i lies in calls[i % CALLS]. Under `lock`: calls ended .. begun - 1 are the thread's. */
struct ashlar_ranks_beside {
    pthread_t thread;
    ashlar_lock lock;
    pthread_cond_t changed;
    ashlar_ranks_call calls[CALLS];
    size_t begun, ended;
    bool stops;
    uint64_t spent_ns, waited_ns; /* by the thread in collectives; by streams on the thread */
};

static void *run_thread(void *of) {
    ashlar_ranks_beside *b = of;
    ashlar__lock_acquire(&b->lock);
    for (;;) {
        while (b->ended == b->begun && !b->stops) {
            ashlar__lock_wait(&b->lock, &b->changed);
        }
        if (b->ended == b->begun) {
            break;
        }
        ashlar_ranks_call *call = &b->calls[b->ended % CALLS];
        ashlar__lock_release(&b->lock);
        /* No other collective runs now, so what spent_ns of the ranks grows by is this one's. */
        const uint64_t before = atomic_load(&call->ranks->spent_ns);
        ashlar__ranks_run(call);
        const uint64_t spent = atomic_load(&call->ranks->spent_ns) - before;
        ashlar__lock_acquire(&b->lock);
        b->spent_ns += spent;
        b->ended++;
        pthread_cond_broadcast(&b->changed);
    }
    ashlar__lock_release(&b->lock);
    return NULL;
}

/* Signals are for the program's own threads. */
static bool start_thread(ashlar_ranks_beside *b) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const bool is_started = pthread_create(&b->thread, NULL, run_thread, b) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return is_started;
}

ashlar_status ashlar__ranks_beside_open(ashlar_ranks *r) {
    ashlar_ranks_beside *b;
    if (r->nccl != NULL) {
        return ASHLAR_OK; /* NCCL's collectives run on the device, and stop no other stream */
    }
    ASHLAR_HOST_NEW(b, 1, "no host memory for sums beside the work");
    ashlar__lock_init(&b->lock, ASHLAR_RANK_RANKS_BESIDE);
    b->changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    if (!start_thread(b)) {
        ashlar__lock_finish(&b->lock);
        ashlar__host_free(b);
        return ashlar__fail(ASHLAR_EHOSTMEM, "ranks: the system refuses a thread");
    }
    r->beside = b;
    return ASHLAR_OK;
}

void ashlar__ranks_beside_close(ashlar_ranks *r) {
    if (r == NULL || r->beside == NULL) {
        return;
    }
    ashlar_ranks_beside *b = r->beside;
    ashlar__lock_acquire(&b->lock);
    if (b->ended < b->begun) { /* others may never come: the thread must not wait for them */
        atomic_store_explicit(&r->is_leaving, true, memory_order_release);
    }
    b->stops = true;
    pthread_cond_broadcast(&b->changed);
    ashlar__lock_release(&b->lock);
    (void)pthread_join(b->thread, NULL);
    (void)pthread_cond_destroy(&b->changed);
    ashlar__lock_finish(&b->lock);
    ashlar__host_free(b);
    r->beside = NULL;
}

static void hand_over(void *copied) {
    const ashlar_ranks_call *call = copied;
    ashlar_ranks_beside *b = call->ranks->beside;
    ashlar__lock_acquire(&b->lock);
    while (b->begun - b->ended == CALLS) {
        ashlar__lock_wait(&b->lock, &b->changed);
    }
    b->calls[b->begun++ % CALLS] = *call;
    pthread_cond_broadcast(&b->changed);
    ashlar__lock_release(&b->lock);
}

void ashlar__ranks_beside_begin(ashlar_ranks *r) {
    r->run_sums = r->beside != NULL ? hand_over : NULL;
}

static void wait_for_all(void *copied) {
    ashlar_ranks_beside *b = *(ashlar_ranks_beside **)copied;
    const uint64_t start = ashlar__clock_ns();
    ashlar__lock_acquire(&b->lock);
    while (b->ended < b->begun) {
        ashlar__lock_wait(&b->lock, &b->changed);
    }
    b->waited_ns += ashlar__clock_ns() - start;
    ashlar__lock_release(&b->lock);
}

ashlar_status ashlar__ranks_beside_end(ashlar_ranks *r, ashlar_stream stream) {
    r->run_sums = NULL;
    return r->beside == NULL
               ? ASHLAR_OK
               : ashlar_launch(r->device, stream, wait_for_all, &r->beside, sizeof r->beside);
}

double ashlar__ranks_hidden_seconds(const ashlar_ranks *r) {
    const ashlar_ranks_beside *b = r->beside;
    return b == NULL || b->spent_ns < b->waited_ns ? 0
                                                   : 1e-9 * (double)(b->spent_ns - b->waited_ns);
}
