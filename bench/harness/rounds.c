/* rounds.c - threads that start together, and rounds in which subjects take turns on them. */
#include "bench/harness/harness.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"
#include "allocator/base/error.h"
#include "allocator/base/random.h"

typedef struct member {
    ashlar_thread_team *team;
    pthread_t thread;
    ashlar_status status; /* of the last work; read it only after the barrier at its end */
    char detail[ASHLAR_DETAIL_BYTES];
    double start_ns, end_ns;
} member;

struct ashlar_thread_team {
    pthread_mutex_t gate;      /* held until all threads are created */
    pthread_barrier_t barrier; /* all threads and the caller wait before and after each work */
    bool is_broken;            /* a thread could not be created: the others must end */
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

/* Join the first `count` threads, which were told to end, and free the team. */
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

double ashlar__clock_cost_ns(void) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 1000; i++) {
        const uint64_t before = ashlar__clock_ns(), after = ashlar__clock_ns();
        least = after - before < least ? after - before : least;
    }
    return (double)least;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double ashlar__median(double *numbers, size_t count) {
    ASHLAR_ASSERT(count > 0);
    qsort(numbers, count, sizeof numbers[0], by_value);
    return count % 2 == 1 ? numbers[count / 2] : (numbers[count / 2 - 1] + numbers[count / 2]) / 2;
}

double ashlar__turns_median(ashlar_turns *turns, size_t figure) {
    return ashlar__median(turns->figures[figure], turns->rounds);
}

void ashlar__turns_spread(ashlar_turns *turns, size_t figure, double *low, double *high) {
    const size_t skipped = turns->rounds / 4;
    (void)ashlar__turns_median(turns, figure);
    *low = turns->figures[figure][skipped];
    *high = turns->figures[figure][turns->rounds - 1 - skipped];
}

/* A subject is very slow if its operation takes longer than this many turns. The driver's plain
 * calls are a thousand times slower than a cache, and would take up most of the measurement. */
enum { SLOW_TURNS = 20 };

/* How often an operation of this length fits into a turn. */
static size_t count_repeats(const ashlar_rounds *r, double seconds) {
    return r->is_smoke || seconds >= r->round_s ? 1 : (size_t)(r->round_s / (seconds + 1e-9));
}

/* Find how many repeats fill a subject's turn. A first operation is slow, so the second one's time
 * counts, and then that of a whole turn. */
static ashlar_status warm_up(const ashlar_rounds *r, size_t subject, ashlar_turns *turns) {
    double figures[ASHLAR_ROUNDS_FIGURES] = {0};
    for (int i = 0; i < 2 && !r->is_smoke; i++) {
        ASHLAR_TRY(r->run(r->context, subject, 1, figures));
    }
    const bool is_slow = figures[0] > SLOW_TURNS * r->round_s && r->slow_rounds != 0;
    if (count_repeats(r, figures[0]) > 1) {
        ASHLAR_TRY(r->run(r->context, subject, count_repeats(r, figures[0]), figures));
    }
    turns->repeats = count_repeats(r, figures[0]);
    turns->rounds = is_slow ? r->slow_rounds : SIZE_MAX; /* no limit; their number is set later */
    return ASHLAR_OK;
}

static ashlar_status take_turn(const ashlar_rounds *r, size_t subject, size_t round,
                               ashlar_turns *turns) {
    double figures[ASHLAR_ROUNDS_FIGURES] = {0};
    if (round >= turns->rounds) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(r->run(r->context, subject, turns->repeats, figures));
    for (size_t i = 0; i < ASHLAR_ROUNDS_FIGURES; i++) {
        turns->figures[i][round] = figures[i];
    }
    return ASHLAR_OK;
}

static void shuffle(size_t *order, size_t count, uint64_t *random) {
    for (size_t left = count; left > 1; left--) {
        const size_t drawn = ashlar__random_step_below(random, left), last = order[left - 1];
        order[left - 1] = order[drawn];
        order[drawn] = last;
    }
}

ashlar_status ashlar__rounds_run(const ashlar_rounds *r, size_t count, ashlar_turns *turns) {
    const double start = ashlar__clock_s();
    const size_t most = r->is_smoke ? 1 : r->most;
    size_t round = 0, order[ASHLAR_ROUNDS_SUBJECTS];
    uint64_t random = 0; /* a fixed seed: every run of the program has the same orders */
    ASHLAR_ASSERT(most <= ASHLAR_ROUNDS_MAX && count <= ASHLAR_ROUNDS_SUBJECTS);
    for (size_t i = 0; i < count; i++) {
        order[i] = i;
        ASHLAR_TRY(warm_up(r, i, &turns[i]));
    }
    for (; round < most && (round < r->least || ashlar__clock_s() - start < r->while_s); round++) {
        shuffle(order, count, &random);
        for (size_t i = 0; i < count; i++) {
            ASHLAR_TRY(take_turn(r, order[i], round, &turns[order[i]]));
        }
    }
    for (size_t i = 0; i < count; i++) {
        turns[i].rounds = turns[i].rounds < round ? turns[i].rounds : round;
    }
    return ASHLAR_OK;
}
