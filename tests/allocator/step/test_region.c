/* test_region.c - regions: where their seats are, what they count, and that their check finds. */
#include "tests/allocator/step/step_fixture.h"

#include "allocator/plan/region.h"

/* A plan of two blocks that live together and one after them: seats at 0, 4096 and in between. */
static ashlar_plan_region *set_up_region(void) {
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
    return allocator->planner.regions;
}

CASE(seats_are_found_by_their_offsets) {
    const ashlar_plan_region *region = set_up_region();
    REQUIRE(region != NULL && region->seat_count == 3 && region->next == NULL);
    for (size_t i = 0; i < region->seat_count; i++) {
        ashlar_block *seat = &region->seats[i];
        CHECK(ashlar_region_seat(region, seat->offset - region->block->offset) == seat);
        CHECK(ashlar_page_map_get(&allocator->heap.map, seat->offset) == seat);
        CHECK((uintptr_t)seat % ASHLAR_CACHE_LINE == 0);
    }
    tear_down_steps();
}

CASE(what_is_taken_is_counted_in_a_step_and_after) {
    ashlar_plan_region *region = set_up_region();
    REQUIRE(region != NULL);
    const size_t bytes = region->block->bytes;
    CHECK_ZU(ashlar_regions_idle_bytes(allocator->planner.regions), bytes);
    CHECK_ZU(ashlar_regions_idle_seats(allocator->planner.regions), 3);
    begin(1);
    shadow *s = get(4000, WORK);
    CHECK_ZU(ashlar_regions_idle_bytes(allocator->planner.regions), bytes - 4096);
    CHECK_ZU(ashlar_regions_idle_seats(allocator->planner.regions), 2);
    end();
    CHECK_ZU(ashlar_regions_idle_bytes(allocator->planner.regions), bytes - 4096);
    CHECK(ashlar_region_is_live(region));
    put(s);
    CHECK_ZU(ashlar_regions_idle_bytes(allocator->planner.regions), bytes);
    CHECK(!ashlar_region_is_live(region));
    tear_down_steps();
}

CASE(walks_see_the_blocks_of_seats) {
    ashlar_plan_region *region = set_up_region();
    REQUIRE(region != NULL);
    begin(1);
    shadow *a = get(4000, WORK), *b = get(4000, WORK);
    const ashlar_block *at = ashlar_block_after(region->block);
    size_t count = 0;
    for (; at != region->block->next; at = ashlar_block_after(at)) {
        CHECK(ashlar_block_is_seat(at) && at->requested == 4000);
        count++;
    }
    CHECK_ZU(count, 2);
    put(a);
    put(b);
    end();
    tear_down_steps();
}

static void check_finds(const char *what) {
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_EFORMAT);
    CHECK_HAS(ashlar_error_detail(), what);
}

/* Each thing that is broken is mended before the next. */
CASE(the_check_finds_each_broken_invariant) {
    ashlar_plan_region *region = set_up_region();
    REQUIRE(region != NULL);
    begin(1);
    shadow *a = get(4000, WORK), *b = get(4000, WORK);
    end();
    ashlar_block *first = &region->seats[0], *last = &region->seats[2];
    REQUIRE(ashlar_seat_is_taken(first) && ashlar_seat_is_taken(last));

    region->block->state = ASHLAR_BLOCK_USED;
    CHECK(ashlar_regions_check_locked(allocator->planner.regions, &allocator->heap.map) ==
          ASHLAR_EFORMAT);
    region->block->state = ASHLAR_BLOCK_REGION;

    const size_t offset = first->offset;
    first->offset = last->offset;
    CHECK(ashlar_regions_check_locked(allocator->planner.regions, &allocator->heap.map) ==
          ASHLAR_EFORMAT);
    first->offset = offset;

    ashlar_page_map_set(&allocator->heap.map, offset, NULL);
    check_finds("not in the page map");
    ashlar_page_map_set(&allocator->heap.map, offset, first);

    first->bytes += 512;
    CHECK(ashlar_regions_check_locked(allocator->planner.regions, &allocator->heap.map) ==
          ASHLAR_EFORMAT);
    CHECK_HAS(ashlar_error_detail(), "one that reaches into it");
    first->bytes -= 512;

    last->bytes += 64 * MIB;
    CHECK(ashlar_regions_check_locked(allocator->planner.regions, &allocator->heap.map) ==
          ASHLAR_EFORMAT);
    CHECK_HAS(ashlar_error_detail(), "larger than its region");
    last->bytes -= 64 * MIB;

    last->requested += 4096;
    CHECK(ashlar_regions_check_locked(allocator->planner.regions, &allocator->heap.map) ==
          ASHLAR_EFORMAT);
    last->requested -= 4096;

    region->late_count = 1;
    CHECK(ashlar_regions_check_locked(allocator->planner.regions, &allocator->heap.map) ==
          ASHLAR_EFORMAT);
    CHECK_HAS(ashlar_error_detail(), "not known to be");
    region->late_count = 4;
    CHECK(ashlar_regions_check_locked(allocator->planner.regions, &allocator->heap.map) ==
          ASHLAR_EFORMAT);
    CHECK_HAS(ashlar_error_detail(), "more late blocks than seats");
    region->late_count = 2;

    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    put(a);
    put(b);
    tear_down_steps();
}

RUN_CASES()
