/*
 * test_plan_memory.c - plan memory: what its check finds, and what a refusal says of it; that it
 * serves everything else while no step is in it, and comes back, while what is live in it stays.
 */
#include "tests/allocator/step/step_fixture.h"

#include "allocator/plan/planner.h"
#include "allocator/base/host.h"
#include "tests/thread.h"

/* A plan of two blocks that live together and one after them: slot blocks at 0, 4096 and in
 * between. */
static ashlar_plan_memory *set_up_region(void) {
    if (!set_up_plans()) {
        return NULL;
    }
    begin(1);
    shadow *a = get(4096, WORK), *b = get(4096, WORK);
    put(a);
    put(b);
    a = get(1024, WORK);
    b = get(2048, WORK);
    put(a);
    put(b);
    end();
    return allocator->planner.memories;
}

static void check_finds(const char *what) {
    CHECK_FAILS(ashlar_allocator_check(allocator), ASHLAR_EFORMAT, what);
}

/* Each thing that is broken is mended before the next. */
CASE(the_check_finds_each_broken_invariant) {
    ashlar_plan_memory *memory = set_up_region();
    REQUIRE(memory != NULL);
    begin(1);
    shadow *a = get(4000, WORK), *b = get(4000, WORK);
    end();
    ashlar_block *first = &memory->slot_blocks[0], *last = &memory->slot_blocks[2];
    REQUIRE(ashlar__slot_block_is_taken(first) && ashlar__slot_block_is_taken(last));

    memory->block->state = ASHLAR_BLOCK_USED;
    CHECK(ashlar__plan_memories_check_locked(allocator->planner.memories, &allocator->heap.map) ==
          ASHLAR_EFORMAT);
    memory->block->state = ASHLAR_BLOCK_PLAN_MEMORY;

    memory->block->older = first + 1;
    check_finds("does not know its slot blocks");
    memory->block->older = first;

    memory->block->marks ^= ASHLAR_BLOCK_SHARED;
    check_finds("marked as shared without a use, or the reverse");
    memory->block->marks ^= ASHLAR_BLOCK_SHARED;

    const size_t offset = first->offset, above = last->offset;
    first->offset = memory->block->offset - 512;
    check_finds("not in order, or outside its memory");
    first->offset = offset;
    last->offset = memory->block->offset + memory->block->bytes;
    check_finds("not in order, or outside its memory");
    last->offset = above;
    first->offset = last->offset;
    CHECK(ashlar__plan_memories_check_locked(allocator->planner.memories, &allocator->heap.map) ==
          ASHLAR_EFORMAT);
    first->offset = offset;

    ashlar__page_map_set(&allocator->heap.map, offset, NULL);
    check_finds("not in the page map");
    ashlar__page_map_set(&allocator->heap.map, offset, first);

    first->bytes += 512;
    CHECK_FAILS(
        ashlar__plan_memories_check_locked(allocator->planner.memories, &allocator->heap.map),
        ASHLAR_EFORMAT, "one that reaches into it");
    first->bytes -= 512;

    last->bytes += 64 * MIB;
    CHECK_FAILS(
        ashlar__plan_memories_check_locked(allocator->planner.memories, &allocator->heap.map),
        ASHLAR_EFORMAT, "larger than its memory");
    last->bytes -= 64 * MIB;

    last->requested += 4096;
    CHECK(ashlar__plan_memories_check_locked(allocator->planner.memories, &allocator->heap.map) ==
          ASHLAR_EFORMAT);
    last->requested -= 4096;

    memory->late_count = 1;
    CHECK_FAILS(
        ashlar__plan_memories_check_locked(allocator->planner.memories, &allocator->heap.map),
        ASHLAR_EFORMAT, "not known to be");
    memory->late_count = 4;
    CHECK_FAILS(
        ashlar__plan_memories_check_locked(allocator->planner.memories, &allocator->heap.map),
        ASHLAR_EFORMAT, "more late blocks than slot blocks");
    memory->late_count = 2;

    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    put(a);
    put(b);
}

/* ---- what a refusal says ---- */

/* The number in front of `word` in the last failure's detail. */
static uint64_t number_of(const char *word) {
    const char *at = strstr(ashlar_error_detail(), word);
    CHECK(at != NULL);
    while (at != NULL && at > ashlar_error_detail() && at[-1] >= '0' && at[-1] <= '9') {
        at--;
    }
    return at != NULL ? strtoull(at, NULL, 10) : 0;
}

/* Whether the parts that a refusal names add up to what it calls reserved. */
static void check_account(void) {
    void *ptr = NULL;
    CHECK(ashlar_alloc(allocator, (size_t)1 << 40, streams[0], &ptr) == ASHLAR_ENOMEM);
    CHECK_ZU(number_of(" live in ") + number_of(" of rounding") + number_of(" cached") +
                 number_of(" shared") + number_of(" planned") + number_of(" in gaps") +
                 number_of(" spare"),
             number_of(" reserved of"));
    CHECK_ZU(number_of(" reserved of"), reserved_bytes());
}

CASE(the_parts_that_a_refusal_names_add_up_to_what_is_reserved) {
    REQUIRE(set_up_region() != NULL);
    check_account();
    CHECK(number_of(" planned") > 0);
    shadow *kept = get(3 * MIB + 1000, WORK), *small = get(700, WORK), *freed = get(5 * MIB, WORK);
    put(freed);
    put(small);
    check_account();
    CHECK(number_of(" live in ") == 3 * MIB + 1000 && number_of(" of rounding") > 0);
    CHECK(number_of(" cached") > 0 && number_of(" in gaps") > 0);
    shadow_share(kept, 1);
    put(kept);
    check_account();
    CHECK(number_of(" shared") > 0);
    CHECK(ashlar_allocator_reserve(allocator, 64 * MIB) == ASHLAR_OK);
    check_account();
    CHECK(number_of(" spare") > 0);
}

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

RUN_CASES()
