/*
 * test_barrier.c - the barrier in every thread, and the allocator on a kernel that has none.
 */
#include "tests/allocator/core/allocator_fixture.h"

#include <pthread.h>

#include "allocator/core/allocator_impl.h"
#include "allocator/base/threads.h"

enum { ROUNDS = 4000 };

/*
 * The owner's and the claimer's part of a shut-out, once a round: each stores and then loads what
 * the other one stores. That both miss the other's store is what the barrier excludes.
 */
static atomic_int owner_stored, claimer_stored, owner_round, claimer_round;
static int owner_missed[ROUNDS], claimer_missed[ROUNDS];

static void meet(atomic_int *mine, atomic_int *theirs, int round) {
    atomic_store(mine, round);
    while (atomic_load(theirs) < round) {
    }
}

static void *own(void *unused) {
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        meet(&owner_round, &claimer_round, 2 * i + 1);
        atomic_store_explicit(&owner_stored, i + 1, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst);
        owner_missed[i] = atomic_load_explicit(&claimer_stored, memory_order_acquire) != i + 1;
        meet(&owner_round, &claimer_round, 2 * i + 2);
    }
    return NULL;
}

CASE(of_owner_and_claimer_one_sees_the_other) {
    pthread_t owner;
    int both_missed = 0;
    SKIP_IF(!ashlar__barrier_init(), "this kernel has no membarrier(2)");
    REQUIRE(pthread_create(&owner, NULL, own, NULL) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        meet(&claimer_round, &owner_round, 2 * i + 1);
        atomic_store_explicit(&claimer_stored, i + 1, memory_order_release);
        ashlar__barrier_everywhere();
        claimer_missed[i] = atomic_load_explicit(&owner_stored, memory_order_acquire) != i + 1;
        meet(&claimer_round, &owner_round, 2 * i + 2);
    }
    REQUIRE(pthread_join(owner, NULL) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        both_missed += owner_missed[i] && claimer_missed[i];
    }
    CHECK(both_missed == 0);
}

static void *take_and_give(void *unused) {
    void *ptr = NULL;
    (void)unused;
    return ashlar_alloc(allocator, 4096, streams[1], &ptr) == ASHLAR_OK &&
                   ashlar_free(allocator, ptr) == ASHLAR_OK
               ? allocator
               : NULL;
}

CASE(without_a_barrier_there_are_no_caches_and_all_works) {
    pthread_t other;
    void *worked = NULL;
    ashlar__barrier_pretend(false);
    CHECK(!ashlar__barrier_init());
    REQUIRE(set_up_cached("memory=16MiB", MIB));
    for (int i = 0; i < 3; i++) {
        give(take(4096, streams[0]));
        give_on(take(2 * MIB, streams[0]), streams[1]);
    }
    REQUIRE(pthread_create(&other, NULL, take_and_give, NULL) == 0);
    REQUIRE(pthread_join(other, &worked) == 0);
    CHECK(worked != NULL);
    CHECK(allocator->caches == NULL);
    CHECK_ZU(stats_now().served_cached, 0);
    CHECK_ZU(stats_now().alloc_count, 7);
    CHECK_ZU(stats_now().free_count, 7);
    CHECK_ZU(stats_now().live_peak_bytes, 2 * MIB);
    tear_down();
    ashlar__barrier_pretend(true);
}

CASE_WITH(the_first_allocation_after_that_makes_a_cache_again, set_up_cached("memory=16MiB", MIB)) {
    if (!ashlar__barrier_init()) {
        tear_down();
        SKIP("this kernel has no membarrier(2)");
    }
    give(take(4096, streams[0]));
    give(take(4096, streams[0]));
    CHECK(allocator->caches != NULL);
    CHECK_ZU(stats_now().served_cached, 1);
}

RUN_CASES()
