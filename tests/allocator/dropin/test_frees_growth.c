/*
 * test_frees_growth.c - a program whose steps are alike takes its memory in the first of them: what
 * is freed comes back in time, and what other threads have in hand is waited for.
 */
#include "tests/allocator/dropin/frees_fixture.h"

#include <pthread.h>
#include <time.h>

#include "allocator/dropin/frees_impl.h"

#define STEP (32 * MIB)

static size_t reserved(void) {
    return (size_t)stats_now().reserved_bytes;
}

static void *take_on(size_t i, size_t bytes) {
    void *ptr = NULL;
    CHECK(ashlar__frees_alloc_on(frees, bytes, streams[i], &ptr) == ASHLAR_OK);
    return ptr;
}

/* Of work that is not over. */
static void give_on(size_t i, void *ptr, size_t bytes) {
    use(ptr, bytes, streams[i]);
    CHECK(ashlar_free_on(allocator, ptr, streams[i]) == ASHLAR_OK);
}

/* Where memory cannot be moved: each step is a call that waits for the device. */
CASE_WITH(segments_are_taken_in_large_steps_of_a_large_device,
          set_up("memory=4GiB", "cache=0,vmm=off")) {
    (void)take(KIB);
    CHECK_ZU(reserved(), STEP);
    tear_down();
    REQUIRE(set_up("memory=4GiB", "cache=0"));
    (void)take(KIB);
    CHECK_ZU(reserved(), 2 * MIB);
    tear_down();
    REQUIRE(set_up("memory=64MiB", "cache=0"));
    (void)take(KIB);
    CHECK_ZU(reserved(), 2 * MIB);
    CHECK_ZU(allocator->heap.range.growth_min_bytes, MIB); /* 1/64 of the device */
    (void)take(60 * MIB);
}

CASE(what_is_freed_before_a_wait_is_free_after_it) {
    for (int is_told = 0; is_told < 2; is_told++) {
        REQUIRE(set_up("memory=4GiB,mode=adversarial", "cache=0"));
        void *first = take(24 * MIB);
        use(first, KIB, streams[0]);
        give(first);
        if (is_told) {
            ashlar__frees_cover(frees);
            ashlar__frees_cover(frees); /* there is nothing to do */
        }
        CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
        use(take(4 * MIB), KIB, streams[0]);
        (void)take(24 * MIB);
        CHECK_ZU(reserved(), (24 + 4) * MIB);
        tear_down();
    }
}

CASE(a_wait_during_a_capture_is_no_time_to_record) {
    REQUIRE(set_up("memory=4GiB,mode=adversarial", "cache=0"));
    const uint64_t releases = atomic_load(&frees->release_count);
    give(take(MIB));
    const size_t records = CALLS(event_record);
    ashlar__frees_begin_capture(frees, streams[0]);
    ashlar__frees_cover(frees);
    ashlar__frees_note_capture(streams[0], false);
    CHECK_ZU(CALLS(event_record), records);
    ashlar__frees_cover(frees);
    CHECK(CALLS(event_record) > records);
    CHECK(ashlar__frees_wait(frees) && atomic_load(&frees->release_count) == releases + 1);
}

/*
 * Both streams have work queued whenever they are asked, but of before it all is over: what they
 * freed then is found, side by side.
 */
CASE(streams_that_are_never_at_rest_lend_what_they_are_done_with) {
    REQUIRE(set_up("memory=4GiB,mode=adversarial", "cache=0"));
    void *old[2] = {take_on(0, 10 * MIB), take_on(1, 10 * MIB)};
    void *young[2];
    const size_t own = (16 + 16 + 2) * MIB; /* in whole handles: each stream's, and the others' */
    for (size_t i = 0; i < 2; i++) {        /* with live blocks between */
        (void)take(MIB);
        young[i] = take_on(i, 5 * MIB);
    }
    CHECK_ZU(reserved(), own);
    give_on(0, old[0], 10 * MIB);
    give_on(1, old[1], 10 * MIB);
    void *third = take(16 * MIB), *none = NULL;
    (void)take(16 * MIB);
    const uint64_t events = stats_now().events_recorded;
    give_on(0, young[0], 5 * MIB);
    CHECK(ashlar__alloc_idle(allocator, 16 * MIB, true, &none) == ASHLAR_ENOMEM);
    CHECK_ZU(stats_now().events_recorded, events + 1); /* the older ones are still waited for */
    CHECK_ZU(reserved(), own + 2 * 16 * MIB);
    CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
    use(third, KIB, streams[0]);
    give_on(1, young[1], 5 * MIB);
    (void)take(16 * MIB);
    CHECK_ZU(reserved(), own + 2 * 16 * MIB);
}

CASE(a_device_that_is_never_at_rest_has_bounds) {
    REQUIRE(set_up("memory=4GiB,mode=adversarial", "cache=0"));
    for (int i = 0; i < 30; i++) {
        void *ptr = take(20 * MIB);
        use(ptr, KIB, streams[0]);
        give(ptr);
    }
    CHECK(reserved() >= 4 * STEP && reserved() <= 5 * STEP);
    void *large = take(100 * MIB); /* a wait does not help */
    CHECK(large != NULL);
}

/* ---- in another thread's hands ---- */

enum { IN_A_BATCH, DURING_A_WAIT };

typedef struct other {
    int where;
    _Atomic int has_begun;
} other;

/* It has all that was freed, for a while, and gives it back. */
static void *hold(void *arg) {
    other *o = arg;
    const struct timespec while_ = {.tv_nsec = 20000000};
    ashlar_lock *lock = o->where == IN_A_BATCH ? &frees->lock : &frees->wait_lock;
    ashlar__lock_acquire(lock);
    ashlar_block *blocks = ashlar__deferred_take(allocator);
    atomic_store(&o->has_begun, 1);
    (void)nanosleep(&while_, NULL);
    ashlar__deferred_release(allocator, blocks);
    atomic_fetch_add(&frees->release_count, 1);
    ashlar__lock_release(lock);
    return NULL;
}

CASE(memory_in_the_hands_of_another_thread_is_not_out) {
    for (int where = IN_A_BATCH; where <= DURING_A_WAIT; where++) {
        for (int on_stream = 0; on_stream < 2; on_stream++) {
            other o = {.where = where};
            pthread_t thread;
            REQUIRE(set_up("memory=64MiB", "cache=0"));
            give(take(60 * MIB));
            REQUIRE(pthread_create(&thread, NULL, hold, &o) == 0);
            while (!atomic_load(&o.has_begun)) {
            }
            CHECK((on_stream ? take_on(0, 40 * MIB) : take(40 * MIB)) != NULL);
            CHECK(pthread_join(thread, NULL) == 0);
            void *more = NULL;
            CHECK(ashlar__frees_alloc(frees, 40 * MIB, &more) == ASHLAR_ENOMEM && more == NULL);
            tear_down();
        }
    }
}

CASE(with_zero_on_memory_for_all_streams_is_clear_when_the_call_returns) {
    REQUIRE(set_up("memory=16MiB,mode=adversarial,seed=5", "zero=on"));
    for (int round = 0; round < 6; round++) {
        unsigned char *ptr = take(12 * MIB); /* the next one has some of it */
        size_t others = 0;
        for (size_t i = 0; i < 12 * MIB; i++) {
            others += ptr[i] != 0; /* on the host, behind no stream's work */
        }
        CHECK_ZU(others, 0);
        CHECK(ashlar_fill(device, ptr, 0x5A, 12 * MIB, streams[0]) == ASHLAR_OK);
        give(ptr);
    }
}

RUN_CASES()
