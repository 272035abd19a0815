/*
 * test_plan_lending.c - plan memory that no step is in serves everything else, and comes back; what
 * is live in it stays where it is. At last, the memory of a step serves what else the step wants.
 */
#include "tests/allocator/step/step_fixture.h"

#include "allocator/base/host.h"
#include "tests/thread.h"

static void *block_of(size_t bytes, int stream) {
    void *ptr = NULL;
    return ashlar_alloc(allocator, bytes, streams[stream], &ptr) == ASHLAR_OK ? ptr : NULL;
}

static void release(void *ptr) {
    CHECK(ptr != NULL && ashlar_free(allocator, ptr) == ASHLAR_OK);
}

/* One block at a time. */
static void step_of(int stream, uint64_t key, size_t bytes) {
    begin_on(stream, key);
    put(shadow_take(bytes, WORK, stream));
    put(shadow_take(bytes / 2, WORK, stream));
    end();
}

static void *want_8_mib(void *out) {
    *(void **)out = block_of(8 * MIB, 1);
    return NULL;
}

static void *want_in_thread(void) {
    void *ptr = NULL;
    run_threads(1, want_8_mib, &ptr, sizeof ptr);
    return ptr;
}

CASE_WITH(a_plan_keeps_its_memory_while_another_threads_step_is_in_it,
          set_up_steps("16MiB", NULL, 1)) {
    step_of(0, 1, 10 * MIB);
    begin(1);
    CHECK(want_in_thread() == NULL);
    end();
    CHECK_ZU(plans().memory_bytes, 10 * MIB);
    void *ptr = want_in_thread();
    CHECK_ZU(plans().memory_bytes, 0);
    release(ptr);
}

/* Rather than fail, the step does without its plan, and so do later ones. */
CASE_WITH(a_step_leaves_its_plan_before_it_runs_out_of_memory, set_up_steps("16MiB", NULL, 1)) {
    step_of(0, 1, 10 * MIB);
    begin(1);
    shadow *live = get(5 * MIB, WORK);
    void *ptr = block_of(8 * MIB, 1);
    CHECK_ZU(plans().plan_count, 0);
    CHECK_ZU(plans().plans_left, 1);
    shadow_verify(live);
    put(live);
    release(ptr);
    end();
    step_of(0, 1, 10 * MIB);
    CHECK_ZU(plans().steps_recorded, 1);
    CHECK_ZU(plans().hits, 1);
}

CASE_WITH(it_lends_what_is_not_live_of_it, set_up_steps("16MiB", NULL, 2)) {
    step_of(0, 1, 10 * MIB);
    begin(1);
    shadow *kept = get(4 * MIB, WORK);
    end();
    void *ptr = block_of(8 * MIB, 1);
    CHECK_ZU(plans().memory_bytes, 0);
    shadow_verify(kept);
    release(ptr);
    put(kept);
    step_of(0, 1, 10 * MIB);
    CHECK_ZU(plans().hits, 1 + 2);
}

/* Freed, and read by another stream still: the request waits for that one. */
CASE_WITH(a_block_that_is_away_keeps_it_until_it_is_past, set_up_steps("16MiB", NULL, 3)) {
    step_of(0, 1, 10 * MIB);
    begin(1);
    shadow *shared = get(4 * MIB, WORK);
    shadow_share(shared, 2);
    put(shared);
    end();
    shadow *other = shadow_take(12 * MIB, WORK, 1);
    REQUIRE(other != NULL);
    CHECK_ZU(plans().memory_bytes, 0);
    put(other);
    step_of(0, 1, 10 * MIB);
    CHECK_ZU(plans().hits, 1 + 2);
}

/* Two plans; a request that one of them is enough for. */
CASE_WITH(the_plan_used_longest_ago_lends_first, set_up_steps("16MiB", NULL, 4)) {
    step_of(0, 1, 6 * MIB);
    step_of(1, 2, 6 * MIB);
    step_of(0, 1, 6 * MIB);
    void *ptr = block_of(6 * MIB, 2);
    CHECK_ZU(plans().memory_bytes, 6 * MIB);
    step_of(0, 1, 6 * MIB);
    CHECK_ZU(plans().hits, 2 * 2);
    release(ptr);
    step_of(1, 2, 6 * MIB);
    CHECK_ZU(plans().hits, 3 * 2);
    CHECK_ZU(plans().steps_declined, 0);
    CHECK_ZU(plans().steps_recorded, 2);
}

/* Before the program is asked to give anything up, and before the host waits. */
static bool note_call(void *user, size_t bytes) {
    (void)bytes;
    ++*(int *)user;
    return false;
}

CASE_WITH(it_lends_before_the_program_is_asked, set_up_steps("16MiB", NULL, 5)) {
    int calls = 0;
    ashlar_allocator_set_reclaim(allocator, note_call, &calls);
    step_of(0, 1, 10 * MIB);
    release(block_of(10 * MIB, 1)); /* behind the step's work, which has not run */
    CHECK(calls == 0);
    step_of(0, 1, 10 * MIB);
    begin(1);
    release(block_of(10 * MIB, 1)); /* then the step itself lends */
    CHECK(calls > 0);
    end();
}

/* The program gives up the one block that keeps it. */
static bool give_up_kept(void *user, size_t bytes) {
    void **kept = user, *ptr = *kept;
    (void)bytes;
    *kept = NULL;
    CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
    return ptr != NULL;
}

CASE_WITH(it_lends_what_the_program_gave_up_without_a_wait, set_up_steps("16MiB", NULL, 9)) {
    begin(1);
    release(block_of(10 * MIB, 0));
    end();
    begin(1);
    void *kept = block_of(10 * MIB, 0);
    end();
    CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
    CHECK(block_of(8 * MIB, 1) == NULL);
    ashlar_allocator_set_reclaim(allocator, give_up_kept, &kept);
    release(block_of(8 * MIB, 1));
    CHECK(kept == NULL);
    CHECK_ZU(stats_now().served_after_sync, 0);
    CHECK_ZU(plans().memory_bytes, 0);
}

CASE_WITH(a_plan_on_two_streams_takes_back_what_it_lacks, set_up_steps("16MiB", NULL, 6)) {
    void *rest = block_of(8 * MIB, 3);
    for (int i = 0; i < 3; i++) {
        begin(1);
        put(shadow_take(4 * MIB, WORK, 0));
        put(shadow_take(4 * MIB, WORK, 1));
        end();
        CHECK_ZU(plans().memory_bytes, 8 * MIB);
        release(block_of(i == 1 ? 4 * MIB : 8 * MIB, 2));
        CHECK_ZU(plans().memory_bytes, i == 1 ? 4 * MIB : 0);
    }
    CHECK_ZU(plans().hits, 2 * 2);
    CHECK_ZU(misses_now(), 0);
    release(rest);
}

/* Whatever fails when memory is taken again: the step is declined, and the next one is not. */
CASE_WITH(taking_it_again_may_fail, set_up_steps("16MiB", NULL, 7)) {
    bool is_done = false;
    uint64_t declined = 0;
    step_of(0, 1, 10 * MIB);
    for (unsigned long n = 1; !is_done && check_failed == 0; n++) {
        release(block_of(14 * MIB, 1));
        CHECK_ZU(plans().memory_bytes, 0);
        ashlar__host_fail_at(n);
        const ashlar_status begun = ashlar_step_begin(allocator, streams[0], 1);
        is_done = is_still_armed(n);
        CHECK(begun == ASHLAR_OK || (!is_done && begun == ASHLAR_EHOSTMEM));
        if (begun == ASHLAR_OK) {
            end();
        }
        declined = plans().steps_declined;
        step_of(0, 1, 10 * MIB);
        CHECK_ZU(plans().steps_declined, declined);
    }
    CHECK(declined > 0);
    CHECK_ZU(plans().steps_recorded, 1);
}

/* ---- plans that are dropped ---- */

CASE_WITH(what_a_dropped_plan_held_is_for_all_as_soon_as_it_is_free,
          set_up_steps("16MiB", NULL, 8)) {
    step_of(0, 1, 12 * MIB);
    begin(1);
    shadow *kept = get(2 * MIB, WORK);
    end();
    CHECK(ashlar_plan_drop(allocator) == ASHLAR_OK);
    CHECK_ZU(plans().memory_bytes, 0);
    put(kept);
    release(block_of(14 * MIB, 1));
}

CASE_WITH(what_a_dropped_plan_held_goes_back_to_the_device, set_up_steps("16MiB", NULL, 9)) {
    step_of(0, 1, 12 * MIB);
    begin(1);
    shadow *kept = get(2 * MIB, WORK);
    end();
    CHECK(ashlar_plan_drop(allocator) == ASHLAR_OK);
    put(kept);
    for (int i = 0; i < 2; i++) { /* finds out first how far the streams have come */
        CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
        CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
    }
    CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
    CHECK_ZU(stats_now().reserved_bytes, 0);
}

RUN_CASES()
