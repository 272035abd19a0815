/* test_plan_memory.c - plan memories: where their slot blocks are, what they count, and that their
 * check finds. */
#include "tests/allocator/step/step_fixture.h"

#include "allocator/plan/plan_memory.h"

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

CASE(seats_are_found_by_their_offsets) {
    const ashlar_plan_memory *memory = set_up_region();
    REQUIRE(memory != NULL && memory->slot_block_count == 3 && memory->next == NULL);
    for (size_t i = 0; i < memory->slot_block_count; i++) {
        ashlar_block *slot_block = &memory->slot_blocks[i];
        CHECK(ashlar__plan_memory_block_at(memory, slot_block->offset - memory->block->offset) ==
              slot_block);
        CHECK(ashlar__page_map_get(&allocator->heap.map, slot_block->offset) == slot_block);
    }
}

CASE(what_is_taken_is_counted_in_a_step_and_after) {
    ashlar_plan_memory *memory = set_up_region();
    REQUIRE(memory != NULL);
    const size_t bytes = memory->block->bytes;
    CHECK_ZU(ashlar__plan_memories_idle_bytes(allocator->planner.memories), bytes);
    CHECK_ZU(ashlar__plan_memories_idle_blocks(allocator->planner.memories), 3);
    begin(1);
    shadow *s = get(4000, WORK);
    CHECK_ZU(ashlar__plan_memories_idle_bytes(allocator->planner.memories), bytes - 4096);
    CHECK_ZU(ashlar__plan_memories_idle_blocks(allocator->planner.memories), 2);
    end();
    CHECK_ZU(ashlar__plan_memories_idle_bytes(allocator->planner.memories), bytes - 4096);
    CHECK_ZU(memory->late_count, 1);
    put(s);
    CHECK_ZU(ashlar__plan_memories_idle_bytes(allocator->planner.memories), bytes);
    ashlar__plan_memory_clean(memory);
    CHECK_ZU(memory->late_count, 0);
}

CASE(walks_see_the_blocks_of_seats) {
    ashlar_plan_memory *memory = set_up_region();
    REQUIRE(memory != NULL);
    begin(1);
    shadow *a = get(4000, WORK), *b = get(4000, WORK);
    const ashlar_block *at = ashlar__block_after(memory->block);
    size_t count = 0;
    for (; at != memory->block->next; at = ashlar__block_after(at)) {
        CHECK(ashlar__block_is_of_slot(at) && at->requested == 4000);
        count++;
    }
    CHECK_ZU(count, 2);
    put(a);
    put(b);
    end();
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

RUN_CASES()
