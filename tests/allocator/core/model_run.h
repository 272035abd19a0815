/*
 * model_run.h - runs a list of operations in a process of its own, on threads that take turns, and
 * shrinks a list that fails.
 *
 * Each run makes its devices anew, so the same list does the same. A run may also crash or hang:
 * that fails like anything else, and shrinks.
 */
#ifndef ASHLAR_MODEL_RUN_H
#define ASHLAR_MODEL_RUN_H

#include "tests/allocator/core/cache_option.h"
#include "tests/allocator/core/model_operations.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* What came of a run. */
typedef struct verdict {
    char failure[sizeof failure]; /* "": none */
    size_t at;                    /* the operation after which it was seen, as index of the list */
    size_t refused, warned;
    uint64_t peak_lag;
    ashlar_stats sums; /* of both devices */
} verdict;

/* The operations to run, of one seed. */
typedef struct program {
    uint64_t seed;
    const uint32_t *list;
    size_t count;
} program;

/* ---- the world's beginning and end ---- */

static inline bool open_world(world *w, int ordinal) {
    char name[16];
    ashlar_config config;
    *w = (world){0};
    ashlar_config_init(&config);
    config.cache_bytes = cache_option(playing->cache_bytes);
    config.without_virtual_memory = !playing->virtual_memory;
    (void)snprintf(name, sizeof name, "soft:%d", ordinal);
    bool is_open = ashlar_device_open(name, &w->device) == ASHLAR_OK &&
                   ashlar_allocator_create_with(w->device, &config, &w->allocator) == ASHLAR_OK &&
                   ashlar__device_enter(w->device) == ASHLAR_OK;
    for (int lane = 0; lane < LANES && is_open; lane++) {
        is_open = (lane < LANE_MADE || make_stream(w, lane)) &&
                  table_of(w)->event_create(&w->events[lane], CU_EVENT_NO_TIMING) == CU_SUCCESS;
    }
    if (is_open) {
        ashlar__device_leave(w->device);
        w->limit_bytes = w->device->info.total_bytes;
        if (playing->reclaims) {
            ashlar_allocator_set_reclaim(w->allocator, reclaim_block, w);
        }
    }
    return is_open;
}

/* Every member of ashlar_stats that counts how a request was served. */
static inline void add_served(ashlar_stats *sums, const ashlar_stats *s) {
    sums->alloc_count += s->alloc_count;
    sums->served_cached += s->served_cached;
    sums->served_same_stream += s->served_same_stream;
    sums->served_idle += s->served_idle;
    sums->served_completed += s->served_completed;
    sums->served_waited += s->served_waited;
    sums->served_mapped += s->served_mapped;
    sums->served_drained += s->served_drained;
    sums->served_reclaimed += s->served_reclaimed;
    sums->served_after_sync += s->served_after_sync;
    sums->served_gathered += s->served_gathered;
}

/* The threads are gone, and with them their default streams. */
static inline void close_world(world *w, verdict *out) {
    ashlar_stats stats;
    for (size_t i = 0; i < SLOTS; i++) {
        if (w->blocks[i].ptr != NULL) {
            free_block(w, &w->blocks[i], 0, i % 2 == 0);
        }
    }
    compare_all(w);
    ashlar_allocator_get_stats(w->allocator, &stats);
    add_served(&out->sums, &stats);
    EXPECT(stats.live_blocks == 0);
    ashlar_allocator_destroy(w->allocator);
    EXPECT(free_memory(w) == w->device->info.total_bytes);
    EXPECT(atomic_load(&stamp_bad_count) == 0);
    ashlar_device_close(w->device); /* with its streams and events */
}

/* ---- threads that take turns ---- */

static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_changed = PTHREAD_COND_INITIALIZER;
static const program *running;
static size_t turn;      /* index of the next operation */
static int ended_thread; /* that is to be joined; -1: none */

static inline bool is_over(void) {
    return turn == running->count || failure[0] != '\0';
}

static inline int next_thread(void) {
    return operation_of(running->seed, running->list[turn], playing->threads).thread;
}

/* All operations of this thread, until it is told to end. The lock is held throughout a turn. */
static inline void *take_turns(void *arg) {
    const int me = (int)(intptr_t)arg;
    bool is_ending = false;
    pthread_mutex_lock(&turn_lock);
    while (!is_ending && !is_over()) {
        if (next_thread() != me || ended_thread >= 0) {
            pthread_cond_wait(&turn_changed, &turn_lock);
            continue;
        }
        const uint32_t idx = running->list[turn];
        const operation op = operation_of(running->seed, idx, playing->threads);
        operate(&op, idx);
        turn++;
        is_ending = op.kind == OP_END_THREAD;
        if (is_over() || is_ending || next_thread() != me) {
            pthread_cond_broadcast(&turn_changed);
        }
    }
    leave_thread(me);
    ended_thread = is_ending ? me : ended_thread;
    pthread_cond_broadcast(&turn_changed);
    pthread_mutex_unlock(&turn_lock);
    return NULL;
}

static inline void start_thread(pthread_t *thread, int number) {
    EXPECT(pthread_create(thread, NULL, take_turns, (void *)(intptr_t)number) == 0);
}

/* Start the threads, replace those that end, and wait for all. */
static inline void run_threads(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < playing->threads; i++) {
        start_thread(&threads[i], i);
    }
    pthread_mutex_lock(&turn_lock);
    while (!is_over()) {
        if (ended_thread < 0) {
            pthread_cond_wait(&turn_changed, &turn_lock);
            continue;
        }
        const int ended = ended_thread;
        pthread_mutex_unlock(&turn_lock);
        EXPECT(pthread_join(threads[ended], NULL) == 0); /* its cache is returned */
        start_thread(&threads[ended], ended);
        pthread_mutex_lock(&turn_lock);
        ended_thread = -1;
        pthread_cond_broadcast(&turn_changed);
    }
    pthread_cond_broadcast(&turn_changed);
    pthread_mutex_unlock(&turn_lock);
    for (int i = 0; i < playing->threads; i++) {
        EXPECT(pthread_join(threads[i], NULL) == 0);
    }
}

/* ---- one run ---- */

static inline void run_here(const program *p, verdict *out) {
    char spec[128];
    (void)snprintf(spec, sizeof spec, "devices=%d,memory=%dMiB,seed=%llu,%s", DEVICES, DEVICE_MIB,
                   (unsigned long long)p->seed, playing->device);
    bool is_open = ashlar__soft_configure(spec) == ASHLAR_OK;
    for (int i = 0; i < DEVICES && is_open; i++) {
        is_open = open_world(&worlds[i], i);
    }
    EXPECT(is_open);
    running = p;
    turn = 0;
    ended_thread = -1;
    if (is_open) {
        run_threads();
    }
    out->at = turn;
    for (int i = 0; i < DEVICES && failure[0] == '\0'; i++) {
        close_world(&worlds[i], out);
    }
    memcpy(out->failure, failure, sizeof failure);
    out->refused = refused_count;
    out->warned = warned_count;
    out->peak_lag = peak_lag;
}

enum { HANG_SECONDS = 100 };

static inline void run_as_child(const program *p, int to_parent, bool is_quiet) {
    verdict v = {.at = 0};
    if (is_quiet) { /* the same assertion would be told over and over */
        const int nothing = open("/dev/null", O_WRONLY);
        (void)dup2(nothing, STDERR_FILENO);
    }
    (void)alarm(HANG_SECONDS);
    run_here(p, &v);
    const ssize_t wrote = write(to_parent, &v, sizeof v);
    _exit(wrote == (ssize_t)sizeof v ? 0 : 1);
}

static inline bool read_all(int fd, void *to, size_t bytes) {
    size_t had = 0;
    while (had < bytes) {
        const ssize_t got = read(fd, (char *)to + had, bytes - had);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
        had += got > 0 ? (size_t)got : 0;
    }
    return true;
}

static inline verdict run_program(const program *p, bool is_quiet) {
    verdict v = {.at = p->count};
    int ends[2], status = 0;
    (void)fflush(stdout);
    if (pipe(ends) != 0) {
        (void)snprintf(v.failure, sizeof v.failure, "no pipe");
        return v;
    }
    const pid_t child = fork();
    if (child == 0) {
        (void)close(ends[0]);
        run_as_child(p, ends[1], is_quiet);
    }
    (void)close(ends[1]);
    if (child < 0 || !read_all(ends[0], &v, sizeof v)) {
        v = (verdict){.at = p->count, .failure = "the run crashed or hung"};
    }
    (void)close(ends[0]);
    if (child > 0) {
        (void)waitpid(child, &status, 0);
    }
    return v;
}

/* ---- shrinking ---- */

enum { REPLAYS_MAX = 1500 };

/*
 * Leave out runs of operations, ever shorter ones, as long as what is left fails. *count is then
 * how many are left of `list`.
 */
static inline verdict shrink(uint64_t seed, uint32_t *list, size_t *count, verdict first) {
    uint32_t *trial = malloc(*count * sizeof *trial);
    verdict last = first;
    int replays = 0;
    bool is_shorter = true;
    *count = first.at < *count ? first.at : *count;
    for (size_t part = *count / 2; part > 0 && trial != NULL;) {
        is_shorter = false;
        for (size_t at = 0; at < *count && replays < REPLAYS_MAX; replays++) {
            const size_t left_out = part < *count - at ? part : *count - at;
            const program p = {seed, trial, *count - left_out};
            memcpy(trial, list, at * sizeof *list);
            memcpy(trial + at, list + at + left_out, (p.count - at) * sizeof *list);
            const verdict v = run_program(&p, true);
            if (v.failure[0] == '\0') {
                at += left_out;
                continue;
            }
            is_shorter = true;
            last = v;
            *count = v.at < p.count ? v.at : p.count;
            memcpy(list, trial, *count * sizeof *list);
        }
        part = part > 1 ? part / 2 : (is_shorter && replays < REPLAYS_MAX ? 1 : 0);
    }
    free(trial);
    return last;
}

/* A failing run is shrunk, and what is left of it printed. */
static inline void report(const scene *s, uint64_t seed, uint32_t *list, size_t count,
                          const verdict *v) {
    printf("# %s: ASHLAR_SEED=%llu fails: %s\n", s->name, (unsigned long long)seed, v->failure);
    const verdict last = shrink(seed, list, &count, *v);
    printf("# shrunk to %zu operations, which fail: %s\n", count, last.failure);
    for (size_t i = 0; i < count; i++) {
        const operation op = operation_of(seed, list[i], s->threads);
        print_operation(list[i], &op);
    }
}

/* Operations 0 .. count-1 of a seed. */
static inline verdict play(const scene *s, uint64_t seed, size_t count) {
    uint32_t *list = malloc(count * sizeof *list);
    verdict v = {.failure = "no memory for the list of operations"};
    playing = s;
    if (list != NULL) {
        for (size_t i = 0; i < count; i++) {
            list[i] = (uint32_t)i;
        }
        v = run_program(&(program){seed, list, count}, false);
        if (v.failure[0] != '\0') {
            report(s, seed, list, count, &v);
        }
    }
    free(list);
    return v;
}

#endif /* ASHLAR_MODEL_RUN_H */
