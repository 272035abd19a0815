/*
 * test_pinned_threads.c - four threads on one pool, with streams of their own and one they share;
 * blocks change hands, trims and readings of the statistics go on all the while.
 */
#include "tests/allocator/pinned/pinned_fixture.h"
#include "allocator/base/random.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 1500, HELD = 12 };

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
    long bad_count; /* the check macros are the main thread's */
    held blocks[HELD];
} worker;

static worker workers[THREADS];
static bool may_be_full; /* the limit is too low for what all hold: some requests are refused */

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
    slot->stream = streams[draw(me, 3) == 0 ? 0 : me->idx];
    slot->value = (unsigned char)draw(me, 256);
    const ashlar_status status = ashlar_pinned_alloc(pool, slot->bytes, &ptr);
    if (status != ASHLAR_OK) {
        me->bad_count += status != ASHLAR_ENOMEM || !may_be_full;
        return;
    }
    slot->ptr = ptr;
    queue(me, payload_write, slot);
}

static void empty_slot(worker *me, held *slot) {
    queue(me, payload_verify, slot);
    ashlar_status status;
    if (draw(me, 4) == 0) {
        status = ashlar_stream_synchronize(device, slot->stream);
        me->bad_count += status != ASHLAR_OK;
        status = ashlar_pinned_free(pool, slot->ptr);
    } else {
        status = ashlar_pinned_free_on(pool, slot->ptr, slot->stream);
    }
    me->bad_count += status != ASHLAR_OK;
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

static void look_around(worker *me, const held *slot) {
    ashlar_pinned_stats s;
    size_t usable = 0;
    ashlar_pinned_get_stats(pool, &s);
    me->bad_count += s.live_blocks != s.alloc_count - s.free_count;
    me->bad_count += s.pending_blocks != s.deferred_count - s.released_count;
    me->bad_count += s.live_bytes + s.pending_bytes > s.reserved_bytes;
    me->bad_count += s.live_bytes > s.live_peak_bytes || s.deferred_count > s.free_count;
    me->bad_count += ashlar_pinned_free(pool, &s) != ASHLAR_EPOINTER;
    if (slot->ptr != NULL) {
        me->bad_count += ashlar_pinned_usable_bytes(pool, slot->ptr, &usable) != ASHLAR_OK ||
                         usable < slot->bytes;
    }
    if (draw(me, 4) == 0) {
        me->bad_count += ashlar_pinned_trim(pool) != ASHLAR_OK;
    }
}

static void *work(void *arg) {
    worker *me = arg;
    for (int round = 0; round < ROUNDS && me->bad_count == 0; round++) {
        held *slot = &me->blocks[draw(me, HELD)];
        if (slot->ptr == NULL) {
            fill_slot(me, slot);
        } else if (draw(me, 4) == 0) {
            swap_by_mail(me, slot);
        } else {
            empty_slot(me, slot);
        }
        if (draw(me, 32) == 0) {
            look_around(me, slot);
        }
    }
    for (int i = 0; i < HELD; i++) {
        if (me->blocks[i].ptr != NULL) {
            empty_slot(me, &me->blocks[i]);
        }
    }
    return NULL;
}

static void work_on(const char *spec, const ashlar_pinned_config *config, uint64_t seed) {
    printf("# %s, seed %llu\n", spec, (unsigned long long)seed);
    REQUIRE(set_up_pool(spec, config));
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
    CHECK(pinned_now().live_blocks == 0);
    for (int i = 0; i < 10000 && pinned_now().pending_blocks != 0; i++) {
        trim_pinned();
        wait_for(streams[i % STREAMS]);
    }
    trim_pinned();
    CHECK(pinned_now().pending_blocks == 0 && pinned_now().reserved_bytes == 0);
    tear_down_pool();
}

CASE(threads_share_a_pool_on_an_eager_device) {
    work_on("", NULL, 1);
}

CASE(threads_share_a_pool_on_an_adversarial_device) {
    work_on("mode=adversarial,seed=3", NULL, 2);
}

/* Where the host waits for what is pending, and other threads go on. */
CASE(threads_share_a_pool_that_is_full_now_and_then) {
    const ashlar_pinned_config config = {.limit_bytes = 2 * MIB};
    may_be_full = true;
    work_on("mode=adversarial,seed=5", &config, 3);
    may_be_full = false;
}

static pthread_barrier_t start;

/* What one thread has cached is not lost for the others. */
static void *take_and_give(void *unused) {
    (void)unused;
    void *blocks[64];
    bool is_good = true;
    for (int i = 0; i < 64; i++) {
        is_good = ashlar_pinned_alloc(pool, 20 * KIB, &blocks[i]) == ASHLAR_OK && is_good;
    }
    for (int i = 0; i < 64; i++) {
        is_good = ashlar_pinned_free(pool, blocks[i]) == ASHLAR_OK && is_good;
    }
    return is_good ? NULL : &start;
}

CASE(what_one_thread_has_cached_serves_the_others) {
    const ashlar_pinned_config config = {.limit_bytes = 2 * MIB};
    REQUIRE(set_up_pool("", &config));
    for (int i = 0; i < 2 * THREADS; i++) {
        pthread_t thread;
        void *failed = NULL;
        REQUIRE(pthread_create(&thread, NULL, take_and_give, NULL) == 0);
        REQUIRE(pthread_join(thread, &failed) == 0);
        CHECK(failed == NULL);
    }
    give_pinned(take_pinned(2 * MIB - 512 * KIB)); /* a whole that is in many caches */
    CHECK(pinned_now().reserved_peak_bytes == 2 * MIB);
}

static void *churn(void *unused) {
    (void)unused;
    pthread_barrier_wait(&start);
    for (int i = 0; i < 20000; i++) {
        void *ptr = NULL;
        if (ashlar_pinned_alloc(pool, 100, &ptr) != ASHLAR_OK ||
            ashlar_pinned_free(pool, ptr) != ASHLAR_OK) {
            return &start;
        }
    }
    return NULL;
}

CASE_WITH(no_call_of_any_thread_is_lost_from_the_counts, set_up_pool("", NULL)) {
    pthread_t threads[THREADS];
    REQUIRE(pthread_barrier_init(&start, NULL, THREADS) == 0);
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, churn, NULL) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *failed = NULL;
        REQUIRE(pthread_join(threads[i], &failed) == 0);
        CHECK(failed == NULL);
    }
    const ashlar_pinned_stats s = pinned_now();
    CHECK(s.alloc_count == (uint64_t)THREADS * 20000 && s.free_count == s.alloc_count);
    CHECK(s.live_bytes == 0 && s.live_peak_bytes >= 112 && s.live_peak_bytes <= 112 * THREADS);
    CHECK(s.reserved_bytes <= 2 * MIB * THREADS);
    pthread_barrier_destroy(&start);
}

RUN_CASES()
