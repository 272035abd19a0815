/*
 * test_cache_threads.c - threads with caches that come and go, on an allocator that others read,
 * walk and drain meanwhile, and beside allocators that come and go too.
 */
#include "tests/allocator/core/allocator_fixture.h"

#include <pthread.h>
#include <sched.h>

#include <ashlar/trace.h>

#include "allocator/core/hold.h"
#include "allocator/trace/snapshot.h"
#include "allocator/base/random.h"

enum { WORKERS = 4, GENERATIONS = 4, ROUNDS = 400, HELD = 10 };

typedef struct held {
    unsigned char *ptr;
    size_t bytes;
    unsigned char value;
    ashlar_stream stream;
} held;

typedef struct worker {
    pthread_t thread;
    uint64_t random_state;
    long bad_count; /* the check macros are the main thread's */
    held blocks[HELD];
} worker;

static worker workers[WORKERS];
static size_t sizes_max; /* of most blocks */
static bool may_be_full; /* the device is too small for what all want */

/* Blocks that any thread may take over, also from one that has ended. */
static pthread_mutex_t mail_lock = PTHREAD_MUTEX_INITIALIZER;
static held mail[2 * WORKERS];

/* An allocator that is replaced now and then; users hold the lock for reading. */
static pthread_rwlock_t passing_lock = PTHREAD_RWLOCK_INITIALIZER;
static ashlar_allocator *passing;

static atomic_bool is_over;

static size_t draw(worker *me, size_t below) {
    return (size_t)ashlar__random_step_below(&me->random_state, below);
}

static void queue(worker *me, void (*fn)(void *), const held *block) {
    const payload p = {block->ptr, block->bytes, block->value};
    me->bad_count += ashlar_launch(device, block->stream, fn, &p, sizeof p) != ASHLAR_OK;
}

static void fill_slot(worker *me, held *slot) {
    void *ptr = NULL;
    const size_t kind = draw(me, 16);
    slot->bytes = kind == 0 ? MIB + 512 * (1 + draw(me, 3)) : 1 + draw(me, sizes_max);
    slot->stream = streams[draw(me, STREAMS)];
    slot->value = (unsigned char)draw(me, 256);
    const ashlar_status status = ashlar_alloc(allocator, slot->bytes, slot->stream, &ptr);
    if (status == ASHLAR_OK) {
        slot->ptr = ptr;
        queue(me, payload_write, slot);
    } else {
        me->bad_count += status != ASHLAR_ENOMEM || !may_be_full;
    }
}

static void empty_slot(worker *me, held *slot) {
    queue(me, payload_verify, slot);
    me->bad_count +=
        (draw(me, 4) != 0 ? ashlar_free(allocator, slot->ptr)
                          : ashlar_free_on(allocator, slot->ptr, slot->stream)) != ASHLAR_OK;
    *slot = (held){0};
}

static void swap_by_mail(worker *me, held *slot) {
    held *other = &mail[draw(me, 2 * WORKERS)];
    pthread_mutex_lock(&mail_lock);
    const held mine = *slot;
    *slot = *other;
    *other = mine;
    pthread_mutex_unlock(&mail_lock);
}

static bool take_and_give(ashlar_allocator *from, ashlar_stream stream) {
    void *ptr = NULL;
    const ashlar_status status = ashlar_alloc(from, 4096, stream, &ptr);
    return status == ASHLAR_OK ? ashlar_free(from, ptr) == ASHLAR_OK
                               : status == ASHLAR_ENOMEM && may_be_full;
}

/* Leaves a cache behind with an allocator that is soon gone. */
static void use_passing(worker *me) {
    pthread_rwlock_rdlock(&passing_lock);
    for (size_t i = draw(me, 4); passing != NULL && i > 0; i--) {
        me->bad_count += !take_and_give(passing, streams[0]);
    }
    pthread_rwlock_unlock(&passing_lock);
}

static void *work(void *arg) {
    worker *me = arg;
    for (int round = 0; round < ROUNDS && me->bad_count == 0; round++) {
        held *slot = &me->blocks[draw(me, HELD)];
        if (draw(me, 8) == 0) {
            swap_by_mail(me, slot);
        } else if (slot->ptr == NULL) {
            fill_slot(me, slot);
        } else {
            empty_slot(me, slot);
        }
        if (draw(me, 32) == 0) {
            use_passing(me);
        }
        if (draw(me, 32) == 0) {
            me->bad_count +=
                ashlar_stream_synchronize(device, streams[draw(me, STREAMS)]) != ASHLAR_OK;
        }
    }
    return NULL; /* what it holds is for the next generation to free */
}

static void drain(void) {
    ashlar__lock_acquire(&allocator->lock);
    ashlar__caches_claim_locked(allocator, NULL);
    for (ashlar_cache *cache = allocator->caches; cache != NULL; cache = cache->next) {
        ashlar__cache_flush(cache);
    }
    ashlar__caches_release_locked(allocator, NULL);
    ashlar__lock_release(&allocator->lock);
}

static void *watch(void *arg) {
    long *bad_count = arg;
    ashlar_snapshot *snapshot = NULL;
    for (int turn = 0; !atomic_load(&is_over) && *bad_count == 0; turn++) {
        ashlar_stats s;
        ashlar_allocator_get_stats(allocator, &s);
        *bad_count += s.live_blocks > WORKERS * HELD + 2 * WORKERS;
        *bad_count += s.live_peak_bytes > device->info.total_bytes;
        *bad_count += s.block_bytes + s.cached_bytes > s.reserved_bytes;
        if (turn % 4 == 0) {
            drain();
        }
        if (turn % 16 == 1) {
            *bad_count += ashlar_allocator_check(allocator) != ASHLAR_OK;
        }
        if (turn % 16 == 2 && ashlar_allocator_take_snapshot(allocator, &snapshot) == ASHLAR_OK) {
            *bad_count += ashlar__snapshot_check(snapshot) != ASHLAR_OK;
            ashlar_snapshot_free(snapshot);
        }
        sched_yield();
    }
    return NULL;
}

static void *replace_passing(void *arg) {
    long *bad_count = arg;
    ashlar_config config;
    ashlar_config_init(&config);
    config.cache_bytes = MIB;
    while (!atomic_load(&is_over) && *bad_count == 0) {
        pthread_rwlock_wrlock(&passing_lock);
        ashlar_allocator_destroy(passing);
        passing = NULL;
        *bad_count += ashlar_allocator_create_with(device, &config, &passing) != ASHLAR_OK;
        pthread_rwlock_unlock(&passing_lock);
        for (int i = 0; i < STREAMS && *bad_count == 0; i++) { /* while others use it too */
            *bad_count += !take_and_give(passing, streams[i]);
            sched_yield();
        }
    }
    ashlar_allocator_destroy(passing);
    passing = NULL;
    return NULL;
}

static bool run_generation(void) {
    for (int i = 0; i < WORKERS; i++) {
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
            return false;
        }
    }
    for (int i = 0; i < WORKERS; i++) {
        if (pthread_join(workers[i].thread, NULL) != 0 || workers[i].bad_count != 0) {
            return false;
        }
    }
    return true;
}

static void give_back_all(void) {
    for (int i = 0; i < WORKERS; i++) {
        for (int k = 0; k < HELD; k++) {
            if (workers[i].blocks[k].ptr != NULL) {
                empty_slot(&workers[i], &workers[i].blocks[k]);
            }
        }
    }
    for (int i = 0; i < 2 * WORKERS; i++) {
        if (mail[i].ptr != NULL) {
            empty_slot(&workers[0], &mail[i]);
        }
    }
}

static void work_on(const char *spec, size_t cache_bytes, uint64_t seed) {
    pthread_t watcher, replacer;
    long watcher_bad = 0, replacer_bad = 0;
    printf("# %s, caches of %zu bytes, seed %llu\n", spec, cache_bytes, (unsigned long long)seed);
    REQUIRE(set_up_cached(spec, cache_bytes));
    atomic_store(&payload_bad_count, 0);
    atomic_store(&is_over, false);
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (worker){.random_state = seed * 1000 + (uint64_t)i};
    }
    REQUIRE(pthread_create(&watcher, NULL, watch, &watcher_bad) == 0);
    REQUIRE(pthread_create(&replacer, NULL, replace_passing, &replacer_bad) == 0);
    for (int i = 0; i < GENERATIONS; i++) {
        CHECK(run_generation());
    }
    atomic_store(&is_over, true);
    REQUIRE(pthread_join(watcher, NULL) == 0 && pthread_join(replacer, NULL) == 0);
    CHECK(watcher_bad == 0 && replacer_bad == 0);
    CHECK(allocator->caches == NULL); /* all of their threads have ended */
    CHECK_ZU(stats_now().cached_bytes, 0);
    /* Where memory is out, caches may be drained before they serve anybody. */
    CHECK(may_be_full || stats_now().served_cached > 0);
    give_back_all();
    CHECK_ZU(stats_now().live_blocks, 0);
    CHECK_ZU(stats_now().live_bytes, 0);
    for (int i = 0; i < STREAMS; i++) {
        wait_for(streams[i]);
    }
    CHECK(atomic_load(&payload_bad_count) == 0);
    tear_down();
}

enum { BATCH = 500, BATCH_BYTES = 6 * KIB, BATCHES = 400 };

static void *batch[BATCH];
static pthread_barrier_t turn;

static void *give_batches(void *bad_count) {
    for (int round = 0; round < BATCHES; round++) {
        (void)pthread_barrier_wait(&turn);
        for (int i = 0; i < BATCH; i++) {
            *(long *)bad_count += ashlar_free(allocator, batch[i]) != ASHLAR_OK;
        }
        (void)pthread_barrier_wait(&turn);
    }
    return NULL;
}

/* Each thread's own changes only grow or only fall: 3 MiB a batch, 1.1 GiB in all. */
CASE(the_peak_is_known_where_one_thread_takes_and_another_frees) {
    REQUIRE(set_up_cached("memory=4GiB", MIB) && pthread_barrier_init(&turn, NULL, 2) == 0);
    pthread_t thread;
    long bad_count = 0;
    REQUIRE(pthread_create(&thread, NULL, give_batches, &bad_count) == 0);
    for (int round = 0; round < BATCHES; round++) {
        for (int i = 0; i < BATCH; i++) {
            CHECK(ashlar_alloc(allocator, BATCH_BYTES, streams[0], &batch[i]) == ASHLAR_OK);
        }
        (void)pthread_barrier_wait(&turn); /* the other one frees */
        (void)pthread_barrier_wait(&turn);
    }
    const uint64_t peak = stats_now().live_peak_bytes, want = BATCH * BATCH_BYTES;
    const uint64_t most = MIB /* not published yet */ + MIB /* the cache */;
    printf("# the peak is said to be %llu of %llu bytes\n", (unsigned long long)peak,
           (unsigned long long)want);
    CHECK(peak + most >= want && peak <= want + most);
    REQUIRE(pthread_join(thread, NULL) == 0);
    CHECK(bad_count == 0 && stats_now().live_bytes == 0);
    pthread_barrier_destroy(&turn);
    tear_down();
}

CASE(threads_with_caches_come_and_go) {
    sizes_max = 6 * KIB;
    work_on("memory=64MiB", 4 * MIB, 1);
    work_on("memory=64MiB,mode=adversarial,seed=2", 4 * MIB, 2);
}

CASE(caches_that_are_nearly_always_full_lose_nothing) {
    sizes_max = 40 * KIB;
    work_on("memory=64MiB,mode=adversarial,seed=3", 128 * KIB, 3);
}

/* Four threads of ten blocks and the mail need more than there is; the passing one's 2 MiB too. */
CASE(threads_drain_each_other_where_memory_is_out) {
    sizes_max = 600 * KIB;
    may_be_full = true;
    work_on("memory=16MiB,mode=adversarial,seed=4", 4 * MIB, 4);
    may_be_full = false;
}

RUN_CASES()
