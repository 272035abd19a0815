/* thread_team.c - keeps threads alive and starts their work together. */
#include "bench/harness/harness.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "allocator/base/clock.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

typedef struct member {
    ashlar_thread_team *team;
    pthread_t thread;
    ashlar_status status; /* of the newest work; read it only behind the barrier */
    char detail[ASHLAR_DETAIL_BYTES];
    double start_ns, end_ns;
} member;

struct ashlar_thread_team {
    pthread_mutex_t gate;      /* held until all threads are there */
    pthread_barrier_t barrier; /* of all threads and the caller, at both ends of a work */
    bool is_broken;            /* not all threads are there: none has work */
    bool is_over;              /* the threads must end */
    ashlar_thread_team_work work;
    void *arg;
    _Atomic size_t ready; /* threads that wait_at_line() has counted */
    size_t count;
    member members[];
};

static double now_ns(void) {
    return (double)ashlar__clock_ns();
}

/* Wait until all threads are awake. The barrier wakes them one by one; then timing begins. */
static void wait_at_line(ashlar_thread_team *team) {
    atomic_fetch_add(&team->ready, 1);
    while (atomic_load(&team->ready) < team->count) {
        sched_yield();
    }
}

static void work_once(member *m) {
    ashlar_thread_team *team = m->team;
    wait_at_line(team);
    m->start_ns = now_ns();
    m->status = team->work(team->arg, (size_t)(m - team->members));
    m->end_ns = now_ns();
    if (m->status != ASHLAR_OK) {
        snprintf(m->detail, sizeof m->detail, "%s", ashlar_error_detail());
    }
}

static void *live(void *arg) {
    member *m = arg;
    ashlar_thread_team *team = m->team;
    pthread_mutex_lock(&team->gate);
    pthread_mutex_unlock(&team->gate);
    if (team->is_broken) {
        return NULL;
    }
    for (;;) {
        pthread_barrier_wait(&team->barrier);
        if (team->is_over) {
            break;
        }
        work_once(m);
        pthread_barrier_wait(&team->barrier);
    }
    return NULL;
}

/* Join the first `count` threads, which are to end, and free the team. */
static void join(ashlar_thread_team *team, size_t count) {
    for (size_t i = 0; i < count; i++) {
        pthread_join(team->members[i].thread, NULL);
    }
    pthread_barrier_destroy(&team->barrier);
    pthread_mutex_destroy(&team->gate);
    ashlar__host_free(team);
}

ashlar_status ashlar__thread_team_create(size_t threads, ashlar_thread_team **out) {
    ashlar_thread_team *team =
        ashlar__host_calloc(1, sizeof *team + threads * sizeof team->members[0]);
    if (team == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "bench: no host memory for %zu threads", threads);
    }
    team->count = threads;
    pthread_mutex_init(&team->gate, NULL); /* neither can fail on Linux */
    pthread_barrier_init(&team->barrier, NULL, (unsigned)threads + 1);
    pthread_mutex_lock(&team->gate);
    size_t made = 0;
    for (; made < threads; made++) {
        team->members[made].team = team;
        if (pthread_create(&team->members[made].thread, NULL, live, &team->members[made]) != 0) {
            break;
        }
    }
    team->is_broken = made < threads;
    pthread_mutex_unlock(&team->gate);
    if (made < threads) {
        join(team, made);
        return ashlar__fail(ASHLAR_EHOSTMEM,
                            "bench: thread %zu of %zu could not be started; use fewer", made + 1,
                            threads);
    }
    *out = team;
    return ASHLAR_OK;
}

void ashlar__thread_team_destroy(ashlar_thread_team *team) {
    if (team != NULL) {
        team->is_over = true;
        pthread_barrier_wait(&team->barrier);
        join(team, team->count);
    }
}

static ashlar_status collect(const ashlar_thread_team *team, double *wall_ns) {
    const member *first = &team->members[0], *last = first;
    for (size_t i = 0; i < team->count; i++) {
        const member *m = &team->members[i];
        if (m->status != ASHLAR_OK) {
            return ashlar__fail(m->status, "%s", m->detail);
        }
        first = m->start_ns < first->start_ns ? m : first;
        last = m->end_ns > last->end_ns ? m : last;
    }
    *wall_ns = last->end_ns - first->start_ns;
    return ASHLAR_OK;
}

ashlar_status ashlar__thread_team_run(ashlar_thread_team *team, ashlar_thread_team_work work,
                                      void *arg, double *wall_ns) {
    team->work = work;
    team->arg = arg;
    atomic_store(&team->ready, 0);
    pthread_barrier_wait(&team->barrier);
    pthread_barrier_wait(&team->barrier);
    return collect(team, wall_ns);
}
