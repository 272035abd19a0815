/*
 * world_run.h - runs a program: here, on threads that take turns; or in a process of its own, which
 * may crash or hang.
 *
 * The sums, what must be served and what goes back to the device have one answer only where calls
 * come one after another. Calls that overlap are searched in tests/orders/, each preemption, and
 * judged by ThreadSanitizer in the tests of suite "threads".
 *
 * Each run makes its devices anew, so the same program does the same.
 */
#ifndef ASHLAR_WORLD_RUN_H
#define ASHLAR_WORLD_RUN_H

#include "allocator/soft/soft.h"
#include "tests/allocator/world/world_steps.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

/* What came of a run. */
typedef struct world_verdict {
    char failure[sizeof failure]; /* "": none */
    size_t at;                    /* acts done */
} world_verdict;

/* ---- beginning and end ---- */

static inline bool open_place(place *at, int ordinal) {
    char name[16];
    (void)snprintf(name, sizeof name, "soft:%d", ordinal);
    bool is_open = ashlar_device_open(name, &at->device) == ASHLAR_OK;
    for (int lane = 0; lane < LANES && is_open; lane++) {
        is_open = ashlar_event_create(at->device, &at->events[lane]) == ASHLAR_OK;
        if (lane >= LANE_MADE) {
            make_lane(at, lane);
        }
    }
    return is_open;
}

static inline ashlar_config config_of(const setting *set) {
    ashlar_config config = {0};
    config.cache_bytes = cache_option(set->cache_bytes);
    config.guard = (ashlar_guard)set->guard;
    config.zero_blocks = set->zeroes;
    config.handle_bytes = set->handle_mib * MIB;
    return config;
}

static inline bool open_store(store *s, int number) {
    ashlar_config config = config_of(world.set);
    const ashlar_plan_options options = {.search_ms = 1};
    config.shares_memory = world.set->shares && number == 1;
    *s = (store){.at = &world.places[number / 2]};
    s->has_steps = world.set->guard == 0 && world.set->cache_bytes > 0;
    TELL("/* a%d, on device %d: cache %llu, guard %d, zero %d, handle %u MiB, share %d */", number,
         number / 2, (unsigned long long)config.cache_bytes, world.set->guard, world.set->zeroes,
         world.set->handle_mib, (int)config.shares_memory);
    if (ashlar_allocator_create_with(s->at->device, &config, &s->allocator) != ASHLAR_OK) {
        return false;
    }
    s->limit_bytes = s->at->device->info.total_bytes;
    EXPECT(ashlar_plan_set_options(s->allocator, &options) == ASHLAR_OK);
    if (world.set->reclaims) {
        ashlar_allocator_set_reclaim(s->allocator, reclaim_block, s);
    }
    return true;
}

static inline bool open_world(const world_program *p) {
    const setting *set = &p->set;
    char spec[160];
    shadow_forget();
    memset(&world.places, 0, sizeof world.places);
    memset(&world.stores, 0, sizeof world.stores);
    memset(&world.blocks, 0, sizeof world.blocks);
    memset(&world.gone, 0, sizeof world.gone);
    atomic_store(&world.work_count, 0);
    world.gone_count = world.stream_count = 0;
    world.set = set;
    (void)snprintf(spec, sizeof spec, "devices=2,memory=%uMiB,seed=%llu,recycle=%s%s%s%s",
                   set->memory_mib, (unsigned long long)p->seed, set->recycles ? "on" : "off",
                   set->overlaps         ? ",mode=overlap"
                   : set->is_adversarial ? ",mode=adversarial"
                                         : ",mode=eager",
                   set->waits ? ",waits=on" : "", set->has_vmm ? "" : ",vmm=off");
    TELL("/* %s */", spec);
    bool is_open = ashlar__soft_configure(spec) == ASHLAR_OK;
    for (int i = 0; i < PLACES && is_open; i++) {
        is_open = open_place(&world.places[i], i);
    }
    for (int i = 0; i < set->store_count && is_open; i++) {
        is_open = open_store(&world.stores[i], i);
    }
    return is_open;
}

/* How requests were served, in all programs of this process. */
static ashlar_stats world_served;

static inline void add_served(const ashlar_stats *s) {
    world_served.served_planned += s->served_planned;
    world_served.served_cached += s->served_cached;
    world_served.served_same_stream += s->served_same_stream;
    world_served.served_idle += s->served_idle;
    world_served.served_mapped += s->served_mapped;
    world_served.served_completed += s->served_completed;
    world_served.served_waited += s->served_waited;
    world_served.served_gathered += s->served_gathered;
    world_served.served_drained += s->served_drained;
    world_served.served_reclaimed += s->served_reclaimed;
    world_served.served_after_sync += s->served_after_sync;
}

/* Nothing is live, nothing is queued: all memory goes back. */
static inline void close_store(store *s) {
    const bool is_empty = s->want.live_blocks == 0 && !s->is_watched && world.set->guard == 0;
    ashlar_stats stats;
    TELL("CHECK(ashlar_plan_drop(a%d) == ASHLAR_OK);", store_number(s));
    EXPECT_OK(ashlar_plan_drop(s->allocator));
    compare_store(s);
    wait_all(s->at); /* a drop may record events, as a free does */
    TELL("CHECK(ashlar_allocator_trim(a%d, 0) == ASHLAR_OK);", store_number(s));
    EXPECT_OK(ashlar_allocator_trim(s->allocator, 0));
    if (world.set->thread_count > 1) { /* their default streams have only events to be asked */
        wait_all(s->at);
        EXPECT_OK(ashlar_allocator_trim(s->allocator, 0));
    }
    ashlar_allocator_get_stats(s->allocator, &stats);
    add_served(&stats);
    if (is_empty && stats.reserved_bytes != 0) {
        wrong("%llu bytes stay reserved though nothing is live or queued",
              (unsigned long long)stats.reserved_bytes);
    }
    TELL("ashlar_allocator_destroy(a%d);", store_number(s));
    ashlar_allocator_destroy(s->allocator);
}

static inline void close_world(void) {
    for (int i = 0; i < PLACES; i++) {
        wait_all(&world.places[i]);
    }
    EXPECT(atomic_load(&world_bad_stamp) == 0);
    for (int i = 0; i < world.set->store_count && failure[0] == '\0'; i++) {
        close_store(&world.stores[i]);
    }
    for (int i = 0; i < PLACES && failure[0] == '\0'; i++) {
        EXPECT(free_memory(&world.places[i]) == world.places[i].device->info.total_bytes);
        ashlar_device_close(world.places[i].device); /* with its streams and events */
    }
    for (size_t i = 0; i < SLOTS && failure[0] == '\0'; i++) {
        if (is_live(&world.blocks[i])) { /* went with its allocator */
            (void)shadow_visit(world.blocks[i].ptr, world.blocks[i].bytes, SHADOW_LIVE, false, 0,
                               true, 0);
        }
    }
}

/* ---- threads that take turns ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const world_program *running;
    size_t at, end; /* of the acts, and those that close it */
    int ended;      /* a thread that is to be joined; -1: none */
} turns = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Behind the program every thread closes, twice: what one frees may be what another waits for. */
static inline act act_at(size_t i) {
    const world_program *p = turns.running;
    const int thread_count = p->set.thread_count;
    act a = {.kind = ACT_CLOSE};
    if (i < p->count) {
        a = p->acts[i];
    } else {
        a.thread = (uint8_t)((i - p->count) % (size_t)thread_count);
    }
    a.thread = a.thread < thread_count ? a.thread : 0;
    a.store = a.store < p->set.store_count ? a.store : 0;
    return a;
}

static inline bool is_over(void) {
    return turns.at == turns.end || failure[0] != '\0';
}

static inline void *take_turns(void *arg) {
    const int me = (int)(intptr_t)arg;
    bool is_ending = false;
    pthread_mutex_lock(&turns.lock);
    while (!is_ending && !is_over()) {
        if (act_at(turns.at).thread != me || turns.ended >= 0) {
            pthread_cond_wait(&turns.changed, &turns.lock);
            continue;
        }
        const act a = act_at(turns.at);
        TELL("/* thread %d */", me);
        perform_and_compare(&a, turns.at);
        turns.at++;
        is_ending = a.kind == ACT_END_THREAD && !has_captures(me) && leave_thread(me);
        if (is_over() || is_ending || act_at(turns.at).thread != me) {
            pthread_cond_broadcast(&turns.changed);
        }
    }
    turns.ended = is_ending ? me : turns.ended;
    pthread_cond_broadcast(&turns.changed);
    pthread_mutex_unlock(&turns.lock);
    return NULL;
}

static inline void start_thread(pthread_t *thread, int number) {
    EXPECT(pthread_create(thread, NULL, take_turns, (void *)(intptr_t)number) == 0);
}

/* Start the threads, replace those that end, and wait for all. */
static inline void run_threads(int count) {
    pthread_t threads[THREADS];
    for (int i = 0; i < count; i++) {
        start_thread(&threads[i], i);
    }
    pthread_mutex_lock(&turns.lock);
    while (!is_over()) {
        if (turns.ended < 0) {
            pthread_cond_wait(&turns.changed, &turns.lock);
            continue;
        }
        const int ended = turns.ended;
        pthread_mutex_unlock(&turns.lock);
        EXPECT(pthread_join(threads[ended], NULL) == 0); /* its cache is returned */
        for (int i = 0; i < world.set->store_count; i++) {
            world.stores[i].step_depth[ended] = 0;
        }
        start_thread(&threads[ended], ended);
        pthread_mutex_lock(&turns.lock);
        turns.ended = -1;
        pthread_cond_broadcast(&turns.changed);
    }
    pthread_cond_broadcast(&turns.changed);
    pthread_mutex_unlock(&turns.lock);
    for (int i = 0; i < count; i++) {
        EXPECT(pthread_join(threads[i], NULL) == 0);
    }
}

/* ---- one run ---- */

static inline world_verdict run_here(const world_program *p) {
    world_verdict v = {.at = 0};
    const int thread_count = p->set.thread_count;
    turns.running = p;
    turns.at = 0;
    turns.end = p->count + 2 * (size_t)thread_count;
    turns.ended = -1;
    EXPECT(open_world(p));
    if (thread_count > 1) {
        run_threads(thread_count);
    }
    while (thread_count == 1 && !is_over()) {
        const act a = act_at(turns.at);
        perform_and_compare(&a, turns.at++);
    }
    v.at = turns.at < p->count ? turns.at : p->count;
    if (failure[0] == '\0') {
        close_world();
    }
    memcpy(v.failure, failure, sizeof failure);
    return v;
}

enum { HANG_SECONDS = 60 };
#define RUN_CRASHED "the run crashed or hung"

/* is_shown: the child tells each call, and says on the standard error what ended it. */
static inline void run_as_child(const world_program *p, int to_parent, bool is_shown) {
    world.tells = is_shown;
    if (!is_shown) {
        const int nothing = open("/dev/null", O_WRONLY);
        (void)dup2(nothing, STDERR_FILENO);
    }
    (void)alarm(HANG_SECONDS);
    const world_verdict v = run_here(p);
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

static inline world_verdict run_in_child(const world_program *p, bool is_shown) {
    world_verdict v = {.at = p->count};
    int ends[2], status = 0;
    (void)fflush(stdout);
    if (pipe(ends) != 0) {
        (void)snprintf(v.failure, sizeof v.failure, "no pipe");
        return v;
    }
    const pid_t child = fork();
    if (child == 0) {
        (void)close(ends[0]);
        run_as_child(p, ends[1], is_shown);
    }
    (void)close(ends[1]);
    if (child < 0 || !read_all(ends[0], &v, sizeof v)) {
        v = (world_verdict){.at = p->count, .failure = RUN_CRASHED};
    }
    (void)close(ends[0]);
    if (child > 0) {
        (void)waitpid(child, &status, 0);
    }
    return v;
}

#endif /* ASHLAR_WORLD_RUN_H */
