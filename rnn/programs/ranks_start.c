/* ranks_start.c - joins the processes that a launcher has started, watched by a thread that ends
 * this one if a rank never comes. */
#include "rnn/programs/ranks_start.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "rnn/programs/program.h"

enum { USUAL_MS = 120000, /* ranks.h */ OTHERS_MS = 3000 };

typedef struct watch {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_over; /* under the lock */
    const char *program;
    uint32_t timeout_ms;
} watch;

/* Whether a launcher says that this is another rank than 0. */
static bool is_other(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = secure_getenv(names[i]);
        if (text != NULL) {
            return strcmp(text, "0") != 0;
        }
    }
    return false;
}

static void give_up(const watch *w) {
    char line[160];
    const int bytes = snprintf(line, sizeof line,
                               "%s: not all of %zu ranks have joined within %g s; one was not "
                               "started, or has ended\n",
                               w->program, ashlar_ranks_started(), w->timeout_ms / 1e3);
    const ssize_t written = write(STDERR_FILENO, line, bytes > 0 ? (size_t)bytes : 0);
    (void)written;
    _exit(ASHLAR_EXIT_FAILED); /* MPI's handlers wait for the others */
}

static void *wait_for_ranks(void *of) {
    watch *w = of;
    const uint64_t ms = (uint64_t)w->timeout_ms + (is_other() ? OTHERS_MS : 0);
    struct timespec end;
    int failure = 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += (time_t)(ms / 1000);
    end.tv_nsec += (long)(ms % 1000) * 1000000;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    (void)pthread_mutex_lock(&w->lock);
    while (!w->is_over && failure == 0) {
        failure = pthread_cond_timedwait(&w->changed, &w->lock, &end);
    }
    if (!w->is_over) {
        give_up(w);
    }
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Signals are for the program's own threads. */
static bool begin(watch *w, pthread_t *thread) {
    sigset_t all, old;
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0) {
        return false;
    }
    bool is_begun = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
                    pthread_cond_init(&w->changed, &attributes) == 0;
    (void)pthread_condattr_destroy(&attributes);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    is_begun = is_begun && pthread_create(thread, NULL, wait_for_ranks, w) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return is_begun;
}

ashlar_status ashlar__ranks_start(const char *program, uint32_t timeout_ms, ashlar_ranks **out) {
    watch w = {.lock = PTHREAD_MUTEX_INITIALIZER,
               .program = program,
               .timeout_ms = timeout_ms == 0 ? USUAL_MS : timeout_ms};
    pthread_t thread;
    const bool is_watched = begin(&w, &thread); /* without a thread MPI waits as it likes */
    const ashlar_status status = ashlar_ranks_open(NULL, timeout_ms, out);
    if (is_watched) {
        (void)pthread_mutex_lock(&w.lock);
        w.is_over = true;
        (void)pthread_cond_signal(&w.changed);
        (void)pthread_mutex_unlock(&w.lock);
        (void)pthread_join(thread, NULL);
    }
    return status;
}
