/*
 * test_step_threads.c - several threads, each in steps of its own: on streams of their own, on the
 * same key, and freeing each other's blocks.
 */
#include "tests/allocator/step/step_fixture.h"

#include <pthread.h>

enum { THREADS = 4, STEPS = 60, BLOCKS = 24, HANDED = 8 };

/* Blocks on their way from the thread that allocates to the next one, which frees them. */
typedef struct mailbox {
    pthread_mutex_t lock;
    unsigned char *blocks[HANDED];
    size_t count;
} mailbox;

static mailbox boxes[THREADS];
static atomic_long wrong_count;
static bool is_same_key;

static void fill(unsigned char *ptr, size_t bytes, int me) {
    memset(ptr, me + 1, bytes);
}

static void find_filled(const unsigned char *ptr, size_t bytes, int me) {
    for (size_t i = 0; i < bytes; i++) {
        if (ptr[i] != me + 1) {
            atomic_fetch_add(&wrong_count, 1);
            return;
        }
    }
}

static void expect(ashlar_status status) {
    atomic_fetch_add(&wrong_count, status != ASHLAR_OK);
}

enum { BYTES = 2048 };

static void hand_on(int me, unsigned char *ptr) {
    mailbox *box = &boxes[(me + 1) % THREADS];
    pthread_mutex_lock(&box->lock);
    const bool has_room = box->count < HANDED;
    if (has_room) {
        box->blocks[box->count++] = ptr;
    }
    pthread_mutex_unlock(&box->lock);
    if (!has_room) {
        expect(ashlar_free(allocator, ptr));
    }
}

static void empty_box(int me) {
    unsigned char *blocks[HANDED];
    mailbox *box = &boxes[me];
    pthread_mutex_lock(&box->lock);
    const size_t count = box->count;
    memcpy(blocks, box->blocks, sizeof blocks);
    box->count = 0;
    pthread_mutex_unlock(&box->lock);
    for (size_t i = 0; i < count; i++) {
        find_filled(blocks[i], BYTES, (me + THREADS - 1) % THREADS);
        expect(ashlar_free(allocator, blocks[i]));
    }
}

/* Everything that is written is written by the host: the memory is the software device's. */
static void *run_steps(void *arg) {
    const int me = (int)(intptr_t)arg;
    const ashlar_stream stream = streams[is_same_key ? 0 : me];
    for (int step = 0; step < STEPS; step++) {
        unsigned char *kept[BLOCKS];
        expect(ashlar_step_begin(allocator, stream, is_same_key ? 1 : (uint64_t)me));
        for (int i = 0; i < BLOCKS; i++) {
            void *ptr = NULL;
            expect(ashlar_alloc(allocator, BYTES, stream, &ptr));
            kept[i] = ptr;
            fill(kept[i], BYTES, me);
            if (i % 7 == 3) {
                empty_box(me);
            }
        }
        for (int i = 0; i < BLOCKS; i++) {
            find_filled(kept[i], BYTES, me);
            if (i % 5 == 0) {
                hand_on(me, kept[i]);
            } else {
                expect(ashlar_free(allocator, kept[i]));
            }
        }
        expect(ashlar_step_end(allocator));
        if (step % 16 == 5) {
            expect(ashlar_allocator_check(allocator));
        }
        if (step % 16 == 9) {
            ashlar_plan_record_next(allocator, 1);
        }
    }
    return NULL;
}

static void run_threads(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        pthread_mutex_init(&boxes[i].lock, NULL);
        boxes[i].count = 0;
    }
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, run_steps, (void *)(intptr_t)i) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        empty_box(i);
        pthread_mutex_destroy(&boxes[i].lock);
    }
    CHECK(atomic_load(&wrong_count) == 0);
}

CASE(threads_with_streams_of_their_own_are_all_served) {
    REQUIRE(set_up_cached("memory=256MiB", 8 * MIB));
    is_same_key = false;
    run_threads();
    CHECK(plans().plan_count == THREADS);
    CHECK(plans().hits > (uint64_t)THREADS * STEPS * BLOCKS / 4);
}

CASE_WITH(threads_of_one_key_take_turns_in_its_region, set_up_cached("memory=256MiB", 8 * MIB)) {
    is_same_key = true;
    run_threads();
    const ashlar_plan_stats stats = plans();
    CHECK(stats.plan_count <= 1);
    CHECK_ZU(stats.steps_recorded + stats.steps_replayed + stats.steps_declined, THREADS * STEPS);
}

enum { RENEWED = 200 };

RUN_CASES()
