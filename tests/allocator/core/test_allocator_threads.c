/*
 * test_allocator_threads.c - four threads on one allocator, each with a stream of its own and one
 * that all share; blocks change hands, and every payload is verified where it is freed.
 */
#include "tests/allocator/core/allocator_fixture.h"
#include "allocator/base/random.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 1500, CHURNS = 30000, HELD = 12 };

typedef struct held {
    unsigned char *ptr;
    size_t bytes;
    unsigned char value;
    ashlar_stream stream;
} held;

typedef struct worker {
    pthread_t thread;
    int idx;
    uint64_t random_state;
    long bad_count; /* calls that failed; the check macros are the main thread's */
    held blocks[HELD];
} worker;

static worker workers[THREADS];
static ashlar_stream shared_stream;
static bool may_be_full; /* the device is too small for what all hold: some requests are refused */

/* Blocks on their way to another thread. */
static pthread_mutex_t mail_lock = PTHREAD_MUTEX_INITIALIZER;
static held mail[THREADS];

static size_t draw(worker *me, size_t below) {
    return (size_t)ashlar__random_step_below(&me->random_state, below);
}

static void queue(worker *me, void (*fn)(void *), const held *block) {
    const payload p = {block->ptr, block->bytes, block->value};
    me->bad_count += ashlar_launch(device, block->stream, fn, &p, sizeof p) != ASHLAR_OK;
}

static void fill_slot(worker *me, held *slot) {
    void *ptr = NULL;
    slot->bytes = 1 + draw(me, draw(me, 8) == 0 ? 300 * KIB : 6 * KIB);
    slot->stream = draw(me, 3) == 0 ? shared_stream : streams[me->idx];
    slot->value = (unsigned char)draw(me, 256);
    const ashlar_status status = ashlar_alloc(allocator, slot->bytes, slot->stream, &ptr);
    if (status != ASHLAR_OK) {
        me->bad_count += status != ASHLAR_ENOMEM || !may_be_full;
        return;
    }
    slot->ptr = ptr;
    queue(me, payload_write, slot);
}

static void empty_slot(worker *me, held *slot) {
    queue(me, payload_verify, slot);
    me->bad_count += (draw(me, 2) == 0 ? ashlar_free(allocator, slot->ptr)
                                       : ashlar_free_on(allocator, slot->ptr, slot->stream)) !=
                     ASHLAR_OK;
    *slot = (held){0};
}

/* Leave the block for the next thread, and take what is left for this one. */
static void swap_by_mail(worker *me, held *slot) {
    pthread_mutex_lock(&mail_lock);
    held *const out = &mail[(me->idx + 1) % THREADS];
    const held in = mail[me->idx];
    if (out->ptr == NULL) {
        *out = *slot;
        mail[me->idx] = (held){0};
        *slot = in;
    }
    pthread_mutex_unlock(&mail_lock);
}

static bool is_usable(const held *slot) {
    size_t bytes = 0;
    return ashlar_allocator_usable_bytes(allocator, slot->ptr, &bytes) == ASHLAR_OK &&
           bytes >= slot->bytes;
}

static void *work(void *arg) {
    worker *me = arg;
    ashlar_stats stats;
    for (int round = 0; round < ROUNDS && me->bad_count == 0; round++) {
        held *slot = &me->blocks[draw(me, HELD)];
        if (slot->ptr == NULL) {
            fill_slot(me, slot);
        } else if (draw(me, 4) == 0) {
            swap_by_mail(me, slot);
        } else {
            empty_slot(me, slot);
        }
        if (draw(me, 16) == 0) {
            me->bad_count += ashlar_stream_synchronize(device, streams[me->idx]) != ASHLAR_OK;
        }
        if (draw(me, 64) == 0) {
            ashlar_allocator_get_stats(allocator, &stats);
            me->bad_count += stats.live_blocks != stats.alloc_count - stats.free_count;
            me->bad_count += ashlar_allocator_check(allocator) != ASHLAR_OK;
            me->bad_count += slot->ptr != NULL && !is_usable(slot);
            ashlar_allocator_seal(allocator);
            me->bad_count += ashlar_free(allocator, &stats) != ASHLAR_EPOINTER;
        }
    }
    for (int i = 0; i < HELD; i++) {
        if (me->blocks[i].ptr != NULL) {
            empty_slot(me, &me->blocks[i]);
        }
    }
    return NULL;
}

static void work_on(const char *spec, uint64_t seed) {
    printf("# %s, seed %llu\n", spec, (unsigned long long)seed);
    REQUIRE(set_up(spec));
    REQUIRE(ashlar_stream_create(device, &shared_stream) == ASHLAR_OK);
    atomic_store(&payload_bad_count, 0);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.idx = i, .random_state = seed * 1000 + (uint64_t)i};
        mail[i] = (held){0};
    }
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_join(workers[i].thread, NULL) == 0);
        CHECK(workers[i].bad_count == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        if (mail[i].ptr != NULL) {
            empty_slot(&workers[i], &mail[i]);
        }
    }
    const ashlar_stats s = stats_now();
    CHECK(s.live_blocks == 0 && s.live_bytes == 0 && s.block_bytes == 0);
    const uint64_t borrowed = s.served_waited + s.served_completed + s.served_after_sync;
    CHECK(s.served_same_stream > 0);
    CHECK((borrowed > 0) == may_be_full); /* no stream waits while there is memory */
    /* How often is up to the scheduler, so no check: a wait with the lock dropped. */
    printf("# served after a wait of the host: %llu\n", (unsigned long long)s.served_after_sync);
    ashlar_stream_destroy(device, shared_stream);
    tear_down();
    CHECK(atomic_load(&payload_bad_count) == 0);
}

/* Where the lock is dropped for a wait, and other threads go on. */
CASE(threads_share_a_device_that_is_full_now_and_then) {
    may_be_full = true;
    work_on("memory=2MiB,mode=adversarial,seed=5", 5);
    work_on("memory=2MiB,mode=adversarial,seed=6", 6);
    may_be_full = false;
}

CASE(threads_share_an_allocator_on_an_eager_device) {
    work_on("memory=32MiB", 1);
    work_on("memory=32MiB", 2);
}

CASE(threads_share_an_allocator_on_an_adversarial_device) {
    work_on("memory=32MiB,mode=adversarial,seed=3", 3);
    work_on("memory=32MiB,mode=adversarial,seed=4", 4);
}

static pthread_barrier_t start;

/* Each allocation and each free is counted once, whoever makes it. */
static void *churn(void *unused) {
    (void)unused;
    pthread_barrier_wait(&start);
    for (int i = 0; i < CHURNS; i++) {
        void *ptr = NULL;
        if (ashlar_alloc(allocator, 100, shared_stream, &ptr) != ASHLAR_OK ||
            ashlar_free(allocator, ptr) != ASHLAR_OK) {
            return &shared_stream;
        }
    }
    return NULL;
}

CASE_WITH(no_call_of_any_thread_is_lost_from_the_counts, set_up("memory=32MiB")) {
    pthread_t threads[THREADS];
    REQUIRE(pthread_barrier_init(&start, NULL, THREADS) == 0);
    shared_stream = streams[0];
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, churn, NULL) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *failed = NULL;
        REQUIRE(pthread_join(threads[i], &failed) == 0);
        CHECK(failed == NULL);
    }
    CHECK_ZU(stats_now().alloc_count, (size_t)THREADS * CHURNS);
    CHECK_ZU(stats_now().free_count, (size_t)THREADS * CHURNS);
    CHECK_ZU(stats_now().reserved_bytes, 2 * MIB);
    pthread_barrier_destroy(&start);
}

RUN_CASES()
