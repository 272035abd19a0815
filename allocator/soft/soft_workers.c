/* soft_workers.c - the software device's threads (mode=overlap), which run queued work beside the
 * program, as a GPU does. They live as long as the process, and sleep while there is no work. */
#include <pthread.h>
#include <signal.h>

#include "allocator/soft/soft_state.h"

enum { WORKERS = 4 };

static int worker_count; /* Lock: the state's; 0: none yet */

static void *work(void *unused) {
    soft_state *state = &ashlar__soft_state;
    (void)unused;
    ashlar__soft_call = ASHLAR_DRIVER_FN_COUNT;
    ashlar__lock_acquire(&state->lock);
    for (;;) {
        if (state->config.mode != SOFT_OVERLAP || !ashlar__soft_run_oldest()) {
            ashlar__lock_wait(&state->lock, &state->op_finished);
        }
    }
    return NULL;
}

/* Signals are for the program's threads, so the workers block them. */
static void begin_workers(void) {
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (worker_count < WORKERS && pthread_create(&thread, NULL, work, NULL) == 0) {
        pthread_detach(thread);
        worker_count++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

bool ashlar__soft_workers_wake(void) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    if (worker_count == 0) {
        begin_workers();
    }
    pthread_cond_broadcast(&ashlar__soft_state.op_finished);
    return worker_count > 0;
}

void ashlar__soft_workers_halt(void) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    if (ashlar__soft_state.config.mode == SOFT_OVERLAP) {
        ashlar__soft_state.config.mode = SOFT_EAGER;
        while (ashlar__soft_state.running_count > 0) {
            ashlar__lock_wait(&ashlar__soft_state.lock, &ashlar__soft_state.op_finished);
        }
    }
}
