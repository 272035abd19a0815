/* thread_team.c - keeps threads alive and starts their work together. */
#include "bench/harness/thread_team.h"

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
    ashlar_thread_team *team;
    pthread_t thread;
    ashlar_status status; /* of the newest work; read it only when the team's `busy` is 0 */
    char detail[ASHLAR_DETAIL_BYTES];
    double start_ns, end_ns;
} member;

struct ashlar_thread_team {
    pthread_mutex_t lock;
    pthread_cond_t begun; /* `turn` or `is_over` changed */
    pthread_cond_t ended; /* `busy` became 0 */
    uint64_t turn;        /* Lock: lock. Counts the calls of ashlar__thread_team_run() */
    size_t busy;          /* Lock: lock. Threads that have not finished this turn's work */
    bool is_over;         /* Lock: lock. The threads must end */
    ashlar_thread_team_work work;
    void *arg;
    _Atomic size_t ready; /* threads that wait_at_line() has counted in this turn */
    size_t count;
    member members[];
};

static double now_ns(void) {
    return (double)ashlar__clock_ns();
}

/* Wait until all threads are awake. The condition wakes them one by one; then timing begins. */
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
    uint64_t turn = 0;
    pthread_mutex_lock(&team->lock);
    for (;;) {
        while (team->turn == turn && !team->is_over) {
            pthread_cond_wait(&team->begun, &team->lock);
        }
        if (team->is_over) {
            break;
        }
        turn = team->turn;
        pthread_mutex_unlock(&team->lock);
        work_once(m);
        pthread_mutex_lock(&team->lock);
        if (--team->busy == 0) {
            pthread_cond_signal(&team->ended);
        }
    }
    pthread_mutex_unlock(&team->lock);
    return NULL;
}

/* End and join the first `count` threads, and free the team. */
static void end(ashlar_thread_team *team, size_t count) {
    pthread_mutex_lock(&team->lock);
    team->is_over = true;
    pthread_cond_broadcast(&team->begun);
    pthread_mutex_unlock(&team->lock);
    for (size_t i = 0; i < count; i++) {
        pthread_join(team->members[i].thread, NULL);
    }
    pthread_cond_destroy(&team->begun);
    pthread_cond_destroy(&team->ended);
    pthread_mutex_destroy(&team->lock);
    ashlar__host_free(team);
}

ashlar_status ashlar__thread_team_create(size_t threads, ashlar_thread_team **out) {
    ashlar_thread_team *team =
        ashlar__host_calloc(1, sizeof *team + threads * sizeof team->members[0]);
    if (team == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "bench: no host memory for %zu threads", threads);
    }
    team->count = threads;
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->begun, NULL);
    pthread_cond_init(&team->ended, NULL);
    for (size_t i = 0; i < threads; i++) {
        member *m = &team->members[i];
        m->team = team;
        if (pthread_create(&m->thread, NULL, live, m) != 0) {
            end(team, i);
            return ashlar__fail(ASHLAR_EHOSTMEM,
                                "bench: thread %zu of %zu could not be started; "
                                "use fewer",
                                i + 1, threads);
        }
    }
    *out = team;
    return ASHLAR_OK;
}

void ashlar__thread_team_destroy(ashlar_thread_team *team) {
    if (team != NULL) {
        end(team, team->count);
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
    pthread_mutex_lock(&team->lock);
    team->work = work;
    team->arg = arg;
    atomic_store(&team->ready, 0);
    team->busy = team->count;
    team->turn++;
    pthread_cond_broadcast(&team->begun);
    while (team->busy > 0) {
        pthread_cond_wait(&team->ended, &team->lock);
    }
    pthread_mutex_unlock(&team->lock);
    return collect(team, wall_ns);
}
