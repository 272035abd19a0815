/*
 * test_page_map.c - where live blocks start, against a plain array.
 */
#include "tests/check.h"

#include "allocator/base/host.h"
#include "allocator/heap/page_map.h"

enum { UNIT = 512, UNITS_PER_LEAF = 65536, PAGE = 65536 };
#define LEAF ((size_t)UNIT * UNITS_PER_LEAF)

static ashlar_page_map map;

CASE(a_new_map_knows_no_block) {
    REQUIRE(ashlar__page_map_init(&map, 4 * LEAF) == ASHLAR_OK);
    CHECK_ZU(map.leaf_count, 4);
    for (size_t offset = 0; offset < 4 * LEAF; offset += LEAF / 2) {
        CHECK(ashlar__page_map_get(&map, offset) == NULL);
    }
    ashlar__page_map_finish(&map);
}

CASE(a_part_of_a_leaf_counts_as_one) {
    static const struct {
        size_t bytes, leaves;
    } known[] = {{512, 1}, {LEAF - 1, 1}, {LEAF, 1}, {LEAF + 1, 2}, {3 * LEAF + 512, 4}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        REQUIRE(ashlar__page_map_init(&map, known[i].bytes) == ASHLAR_OK);
        CHECK_ZU(map.leaf_count, known[i].leaves);
        ashlar__page_map_finish(&map);
    }
}

CASE(a_block_is_found_at_its_first_byte_only) {
    static ashlar_block block;
    static const size_t at[] = {0, UNIT, LEAF - UNIT, LEAF, 2 * LEAF + 7 * UNIT, 3 * LEAF - UNIT};
    REQUIRE(ashlar__page_map_init(&map, 3 * LEAF) == ASHLAR_OK);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        REQUIRE(ashlar__page_map_reserve(&map, at[i]) == ASHLAR_OK);
        CHECK(ashlar__page_map_get(&map, at[i]) == NULL);
        block.offset = at[i];
        ashlar__page_map_set(&map, at[i], &block);
        CHECK(ashlar__page_map_get(&map, at[i]) == &block);
        CHECK(ashlar__page_map_get(&map, at[i] + 1) == NULL);
        CHECK(ashlar__page_map_get(&map, at[i] + UNIT - 1) == NULL);
        size_t found = 0;
        for (size_t offset = 0; offset < 3 * LEAF; offset += UNIT) {
            found += ashlar__page_map_get(&map, offset) != NULL;
        }
        CHECK_ZU(found, 1);
        ashlar__page_map_set(&map, at[i], NULL);
        CHECK(ashlar__page_map_get(&map, at[i]) == NULL);
    }
    ashlar__page_map_finish(&map);
}

CASE(reserving_again_keeps_what_is_there) {
    static ashlar_block block = {.offset = 3 * UNIT}, second = {.offset = 5 * UNIT};
    REQUIRE(ashlar__page_map_init(&map, LEAF) == ASHLAR_OK);
    REQUIRE(ashlar__page_map_reserve(&map, 3 * UNIT) == ASHLAR_OK);
    ashlar__page_map_set(&map, 3 * UNIT, &block);
    ashlar__host_fail_at(1); /* the second time there is nothing left to allocate */
    CHECK(ashlar__page_map_reserve(&map, 3 * UNIT) == ASHLAR_OK);
    CHECK(ashlar__page_map_reserve(&map, PAGE) == ASHLAR_OK); /* nor for another page */
    ashlar__host_fail_at(0);
    CHECK(ashlar__page_map_get(&map, 3 * UNIT) == &block);
    REQUIRE(ashlar__page_map_reserve(&map, 5 * UNIT) == ASHLAR_OK);
    CHECK(ashlar__page_map_get(&map, 3 * UNIT) == &block);
    CHECK(ashlar__page_map_get(&map, 5 * UNIT) == NULL);
    ashlar__page_map_set(&map, 5 * UNIT, &second);
    CHECK(ashlar__page_map_get(&map, 3 * UNIT) == &block);
    CHECK(ashlar__page_map_get(&map, 5 * UNIT) == &second);
    ashlar__page_map_set(&map, 3 * UNIT, NULL);
    CHECK(ashlar__page_map_get(&map, 3 * UNIT) == NULL);
    CHECK_ZU(ashlar__page_map_count(&map), 1);
    ashlar__page_map_finish(&map);
}

CASE(a_reserved_page_has_room_for_all_that_can_start_there) {
    static ashlar_block blocks[PAGE / UNIT];
    REQUIRE(ashlar__page_map_init(&map, LEAF) == ASHLAR_OK);
    blocks[7].offset = PAGE + 7 * UNIT;
    REQUIRE(ashlar__page_map_reserve(&map, blocks[7].offset) == ASHLAR_OK);
    ashlar__page_map_set(&map, blocks[7].offset, &blocks[7]);
    ashlar__host_fail_at(1);
    CHECK_FAILS(ashlar__page_map_reserve_page(&map, PAGE), ASHLAR_EHOSTMEM,
                "table of the page map");
    CHECK(ashlar__page_map_get(&map, blocks[7].offset) == &blocks[7]);
    CHECK(ashlar__page_map_reserve_page(&map, PAGE) == ASHLAR_OK);
    CHECK(ashlar__page_map_get(&map, blocks[7].offset) == &blocks[7]);
    ashlar__host_fail_at(1); /* nothing is left to allocate */
    CHECK(ashlar__page_map_reserve_page(&map, 2 * PAGE - UNIT) == ASHLAR_OK);
    ashlar__host_fail_at(0);
    for (size_t i = 0; i < PAGE / UNIT; i++) {
        blocks[i].offset = PAGE + i * UNIT;
        ashlar__page_map_set(&map, blocks[i].offset, &blocks[i]);
    }
    for (size_t i = 0; i < PAGE / UNIT; i++) {
        CHECK(ashlar__page_map_get(&map, blocks[i].offset) == &blocks[i]);
    }
    CHECK_ZU(ashlar__page_map_count(&map), PAGE / UNIT);
    CHECK(ashlar__page_map_get(&map, 2 * PAGE) == NULL && ashlar__page_map_get(&map, 0) == NULL);
    ashlar__page_map_finish(&map);
}

CASE(missing_host_memory_is_reported) {
    map = (ashlar_page_map){.leaf_count = 77};
    ashlar__host_fail_at(1);
    CHECK(ashlar__page_map_init(&map, 5 * LEAF) == ASHLAR_EHOSTMEM);
    CHECK_ZU(map.leaf_count, 77);
    CHECK_HAS(ashlar_error_detail(), "page map of 5 entries");
    REQUIRE(ashlar__page_map_init(&map, 5 * LEAF) == ASHLAR_OK);
    ashlar__host_fail_at(1);
    CHECK_FAILS(ashlar__page_map_reserve(&map, LEAF), ASHLAR_EHOSTMEM, "leaf of the page map");
    CHECK(ashlar__page_map_get(&map, LEAF) == NULL);
    CHECK(ashlar__page_map_reserve(&map, LEAF) == ASHLAR_OK);
    ashlar__page_map_finish(&map);
}

CASE(a_filled_map_equals_the_array) {
    enum { LEAVES = 2, UNITS = LEAVES * UNITS_PER_LEAF };
    static ashlar_block blocks[UNITS];
    size_t wrong = 0;
    REQUIRE(ashlar__page_map_init(&map, LEAVES * LEAF) == ASHLAR_OK);
    for (size_t i = 0; i < UNITS; i++) {
        REQUIRE(ashlar__page_map_reserve(&map, i * UNIT) == ASHLAR_OK);
        blocks[i].offset = i * UNIT;
        ashlar__page_map_set(&map, i * UNIT, &blocks[i]);
    }
    for (size_t i = 0; i < UNITS; i++) {
        wrong += ashlar__page_map_get(&map, i * UNIT) != &blocks[i];
    }
    CHECK_ZU(wrong, 0);
    ashlar__page_map_finish(&map);
}

RUN_CASES()
