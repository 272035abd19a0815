#include "bench/harness/crew.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "allocator/base/clock.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

typedef struct member {
    ashlar_crew *crew;
    pthread_t thread;
    ashlar_status status; /* of the newest work; read once `busy` says that all are done */
    char detail[ASHLAR_DETAIL_BYTES];
    double start_ns, end_ns;
} member;

struct ashlar_crew {
    pthread_mutex_t lock;
    pthread_cond_t begun; /* `turn` or `is_over` changed */
    pthread_cond_t ended; /* `busy` became 0 */
    uint64_t turn;        /* lock; how much work there has been */
    size_t busy;          /* lock; threads not yet done with it */
    bool is_over;         /* lock */
    ashlar_crew_work work;
    void *arg;
    _Atomic size_t ready; /* threads at the starting line */
    size_t count;
    member members[];
};

static double now_ns(void) {
    return (double)ashlar_clock_ns();
}

/* The condition wakes threads one after the other: what is timed begins when all are awake. */
static void wait_at_line(ashlar_crew *crew) {
    atomic_fetch_add(&crew->ready, 1);
    while (atomic_load(&crew->ready) < crew->count) {
        sched_yield();
    }
}

static void work_once(member *m) {
    ashlar_crew *crew = m->crew;
    wait_at_line(crew);
    m->start_ns = now_ns();
    m->status = crew->work(crew->arg, (size_t)(m - crew->members));
    m->end_ns = now_ns();
    if (m->status != ASHLAR_OK) {
        snprintf(m->detail, sizeof m->detail, "%s", ashlar_error_detail());
    }
}

static void *live(void *arg) {
    member *m = arg;
    ashlar_crew *crew = m->crew;
    uint64_t turn = 0;
    pthread_mutex_lock(&crew->lock);
    for (;;) {
        while (crew->turn == turn && !crew->is_over) {
            pthread_cond_wait(&crew->begun, &crew->lock);
        }
        if (crew->is_over) {
            break;
        }
        turn = crew->turn;
        pthread_mutex_unlock(&crew->lock);
        work_once(m);
        pthread_mutex_lock(&crew->lock);
        if (--crew->busy == 0) {
            pthread_cond_signal(&crew->ended);
        }
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

/* End and join the first `count` threads. */
static void end(ashlar_crew *crew, size_t count) {
    pthread_mutex_lock(&crew->lock);
    crew->is_over = true;
    pthread_cond_broadcast(&crew->begun);
    pthread_mutex_unlock(&crew->lock);
    for (size_t i = 0; i < count; i++) {
        pthread_join(crew->members[i].thread, NULL);
    }
    pthread_cond_destroy(&crew->begun);
    pthread_cond_destroy(&crew->ended);
    pthread_mutex_destroy(&crew->lock);
    ashlar_host_free(crew);
}

ashlar_status ashlar_crew_create(size_t threads, ashlar_crew **out) {
    ashlar_crew *crew = ashlar_host_calloc(1, sizeof *crew + threads * sizeof crew->members[0]);
    if (crew == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "bench: no host memory for %zu threads", threads);
    }
    crew->count = threads;
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->begun, NULL);
    pthread_cond_init(&crew->ended, NULL);
    for (size_t i = 0; i < threads; i++) {
        member *m = &crew->members[i];
        m->crew = crew;
        if (pthread_create(&m->thread, NULL, live, m) != 0) {
            end(crew, i);
            return ashlar_fail(ASHLAR_EHOSTMEM,
                               "bench: thread %zu of %zu could not be started; "
                               "use fewer",
                               i + 1, threads);
        }
    }
    *out = crew;
    return ASHLAR_OK;
}

void ashlar_crew_destroy(ashlar_crew *crew) {
    if (crew != NULL) {
        end(crew, crew->count);
    }
}

static ashlar_status collect(const ashlar_crew *crew, double *wall_ns) {
    const member *first = &crew->members[0], *last = first;
    for (size_t i = 0; i < crew->count; i++) {
        const member *m = &crew->members[i];
        if (m->status != ASHLAR_OK) {
            return ashlar_fail(m->status, "%s", m->detail);
        }
        first = m->start_ns < first->start_ns ? m : first;
        last = m->end_ns > last->end_ns ? m : last;
    }
    *wall_ns = last->end_ns - first->start_ns;
    return ASHLAR_OK;
}

ashlar_status ashlar_crew_run(ashlar_crew *crew, ashlar_crew_work work, void *arg,
                              double *wall_ns) {
    pthread_mutex_lock(&crew->lock);
    crew->work = work;
    crew->arg = arg;
    atomic_store(&crew->ready, 0);
    crew->busy = crew->count;
    crew->turn++;
    pthread_cond_broadcast(&crew->begun);
    while (crew->busy > 0) {
        pthread_cond_wait(&crew->ended, &crew->lock);
    }
    pthread_mutex_unlock(&crew->lock);
    return collect(crew, wall_ns);
}
