/* test_pack_parts.c - the parts of the packer, each compared with the slow, obvious way. */
#include "allocator/pack/pack_internal.h"

#include <math.h>

#include "tests/check.h"
#include "tests/allocator/pack/pack_fixture.h"

enum { SECTIONS = 21, BYTES = 400, MANY = 200 };

static ashlar_pack_memory memory;

static void finish_memory(void) {
    ashlar__pack_memory_finish(&memory);
}

/* ---- addresses taken ---- */

static bool is_taken[SECTIONS][BYTES];

static bool is_free(const ashlar_pack_item *item, size_t at) {
    for (uint32_t s = item->first; s < item->end; s++) {
        if (at < BYTES && is_taken[s][at]) {
            return false;
        }
    }
    return true;
}

/* The lowest gap at or above `from`, byte by byte. */
static size_t lowest_gap(const ashlar_pack_item *item, size_t from, size_t *end) {
    size_t begin = from;
    for (size_t at = from; at < begin + item->bytes; at++) {
        begin = is_free(item, at) ? begin : at + 1;
    }
    for (*end = begin + item->bytes; *end < BYTES && is_free(item, *end); ++*end) {
    }
    *end = *end < BYTES ? *end : SIZE_MAX;
    return begin;
}

/* Fill it up at random, at one of the gaps. */
static void fill(ashlar_pack_occupancy *occupancy, size_t sections, size_t most) {
    memset(is_taken, 0, sizeof is_taken);
    for (int n = 0; n < 120; n++) {
        ashlar_pack_item item = {.bytes = pack_draw(1, most)};
        item.first = (uint32_t)pack_draw(0, sections - 1);
        item.end = (uint32_t)pack_draw(item.first + 1, sections);
        size_t want_end = 0, end = 0, at = 0;
        do {
            const size_t want = lowest_gap(&item, end, &want_end);
            at = ashlar__pack_occupancy_gap(occupancy, &item, end, &end);
            CHECK(at == want && end == want_end);
        } while (end != SIZE_MAX && pack_draw(0, 3) > 0);
        if (at + item.bytes <= BYTES) {
            REQUIRE(ashlar__pack_occupancy_add(occupancy, &item, at));
            for (uint32_t s = item.first; s < item.end; s++) {
                memset(&is_taken[s][at], true, item.bytes);
            }
        }
    }
}

CASE(every_gap_is_found) {
    (void)check_at_end(finish_memory);
    for (size_t sections = 1; sections <= SECTIONS; sections++) {
        ashlar_pack_occupancy *occupancy = ashlar__pack_occupancy_create(&memory, sections);
        REQUIRE(occupancy != NULL);
        for (int round = 0; round < 30; round++) {
            fill(occupancy, sections, round % 3 == 0 ? 3 : 25);
            ashlar__pack_occupancy_clear(occupancy);
        }
    }
}

/* ---- the cheapest place ---- */

enum { ITEMS = 30, HEIGHT = 60 };

/* Of so many items the first is to be placed, some are fixed, others have places and costs. */
CASE(no_place_is_cheaper) {
    static ashlar_pack_buffer buffers[ITEMS];
    size_t costly = 0, impossible = 0;
    for (int round = 0; round < 3000; round++) {
        size_t plan[ITEMS], capacity = pack_draw(1, HEIGHT), offset = SIZE_MAX, placed = 0;
        double costs[ITEMS], cost, least = INFINITY;
        uint32_t neighbours[ITEMS + 1];
        ashlar_pack_mark begins[ITEMS], ends[ITEMS];
        ashlar_pack_items p;
        ashlar_pack_movable m;
        draw_buffers(buffers, ITEMS, 9, 3);
        for (size_t i = 0; i < ITEMS; i++) { /* the fixed ones, which live long, lie in layers */
            buffers[i].end = i % 5 < 4 ? buffers[i].begin + 1 : buffers[i].end;
            plan[i] = i % 5 < 4 ? pack_draw(0, HEIGHT / 2) : 3 * i;
        }
        REQUIRE(ashlar__pack_items_init(&p, &memory, buffers, ITEMS, 1) == ASHLAR_OK);
        REQUIRE(ashlar__pack_movable_init(&m, &memory, &p) == ASHLAR_OK);
        REQUIRE(ashlar__pack_movable_choose(&m, plan, 1, SIZE_MAX) == ASHLAR_OK);
        const size_t count = ashlar__pack_movable_neighbours(&m, 0, neighbours);
        for (size_t k = 0; k < count; k++) {
            const uint32_t i = neighbours[k];
            CHECK(i != 0 && m.is_movable[i] && are_live_together(&buffers[0], &buffers[i]));
            costs[i] = (double)pack_draw(1, 1000);
            begins[placed] = (ashlar_pack_mark){plan[i], costs[i]};
            ends[placed++] = (ashlar_pack_mark){plan[i] + buffers[i].bytes, costs[i]};
        }
        REQUIRE(ashlar__pack_movable_cheapest(&m, 0, begins, ends, placed, capacity, &cost,
                                              &offset) == ASHLAR_OK);
        for (size_t at = 0; at + buffers[0].bytes <= capacity; at++) {
            double here = 0;
            for (size_t i = 1; i < ITEMS; i++) {
                if (are_live_together(&buffers[0], &buffers[i]) &&
                    at < plan[i] + buffers[i].bytes && plan[i] < at + buffers[0].bytes) {
                    here += m.is_movable[i] ? costs[i] : INFINITY;
                }
            }
            CHECK(at >= offset || here > cost);
            CHECK(at != offset || here == cost);
            least = here < least ? here : least;
        }
        CHECK(cost == least && (cost < INFINITY || offset == SIZE_MAX));
        costly += cost > 0 && cost < INFINITY;
        impossible += cost == INFINITY;
        finish_memory();
    }
    CHECK(costly > 100);
    CHECK(impossible > 100);
}

/* ---- the exact search ---- */

static ashlar_pack_buffer buffers[MANY];
static size_t known[MANY];
static ashlar_pack_items problem;
static ashlar_pack_state state;
static ashlar_pack_search *search;

static bool begin(size_t count) {
    static const ashlar_pack_options options = {.time_budget_ms = NO_HURRY_MS};
    (void)check_at_end(finish_memory);
    finish_memory();
    return ashlar__pack_items_init(&problem, &memory, buffers, count, 1) == ASHLAR_OK &&
           ashlar__pack_state_init(&state, &memory, &problem, &options) == ASHLAR_OK &&
           ashlar__pack_search_create(&state, &search) == ASHLAR_OK;
}

/* What comes of a search at `capacity`; what is found is checked. */
static ashlar_pack_outcome find(size_t capacity, uint64_t steps) {
    ashlar_pack_outcome outcome = ASHLAR_PACK_UNDECIDED;
    CHECK(ashlar__pack_search_run(search, capacity, steps, &outcome) == ASHLAR_OK);
    if (outcome == ASHLAR_PACK_FOUND) {
        CHECK(is_plan(buffers, problem.count, 1, state.trial));
        CHECK(ashlar__pack_highest_end(&problem, state.trial) <= capacity);
    }
    return outcome;
}

CASE(few_buffers_are_found_at_the_smallest_capacity) {
    for (int round = 0; round < CHECK_SANITIZED(2000, 200); round++) {
        const size_t count = pack_draw(1, 8);
        draw_buffers(buffers, count, round % 2 == 0 ? 9 : 3, 8);
        const size_t smallest = smallest_plan(buffers, count);
        REQUIRE(begin(count));
        CHECK(find(smallest, 100000) == ASHLAR_PACK_FOUND);
        CHECK(find(smallest - 1, 100000) == ASHLAR_PACK_IMPOSSIBLE);
        CHECK(find(smallest + 1, 100000) == ASHLAR_PACK_FOUND); /* failures below do not count */
    }
}

/* Hardly any room: a few pieces are a little smaller, so that gaps have to be left just there. */
CASE(little_room_is_enough) {
    for (uint64_t seed = 0; seed < CHECK_SANITIZED(400, 40); seed++) {
        const size_t count = 10 + (size_t)seed % 30;
        make_perfect_packing(seed, 64, 1, 64, buffers, known, count);
        for (size_t i = seed % 2; i < count; i += 1 + pack_draw(0, 7)) {
            buffers[i].bytes -= seed % 4 > 0 && buffers[i].bytes > 2 ? pack_draw(1, 2) : 0;
        }
        REQUIRE(begin(count));
        CHECK(find(64, 2000000) == ASHLAR_PACK_FOUND);
    }
}

/* How many of 20 are found in so few steps depends on all that makes the search quick. */
CASE(few_steps_are_needed) {
    size_t found = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        const size_t count = 100 + 5 * (size_t)seed;
        make_perfect_packing(seed, 1 << 20, 1 << 10, 1 << 20, buffers, known, count);
        REQUIRE(begin(count));
        CHECK(find(1 << 20, 10) == ASHLAR_PACK_UNDECIDED); /* it takes one for each buffer */
        found += find(1 << 20, 4000) == ASHLAR_PACK_FOUND;
    }
    printf("# %zu of 20\n", found);
    CHECK(found >= 15);
}

RUN_CASES()
