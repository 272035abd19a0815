/*
 * test_pack_search.c - that the exact search finds what is there, and calls nothing impossible that
 * is not.
 */
#include "allocator/pack/pack_search.h"

#include "tests/check.h"
#include "allocator/base/host.h"
#include "tests/bench/replay/pack_perfect.h"
#include "tests/allocator/pack/pack_fixture.h"

enum { MANY = 400 };

static const ashlar_pack_options options = {.time_budget_ms = NO_HURRY_MS};
static ashlar_pack_buffer buffers[MANY];
static size_t offsets[MANY], known[MANY];
static ashlar_pack_items problem;
static ashlar_pack_search *search;
static ashlar_pack_budget budget;

static bool begin(size_t count) {
    if (ashlar__pack_items_init(&problem, buffers, count, 1) != ASHLAR_OK) {
        return false;
    }
    ashlar__pack_budget_init(&budget, &options, problem.peak_bytes);
    return ashlar__pack_search_create(&problem, &search) == ASHLAR_OK;
}

static void end(void) {
    ashlar__pack_search_destroy(search);
    ashlar__pack_items_finish(&problem);
    search = NULL;
}

/* What comes of a search at `capacity`; what is found is checked. */
static ashlar_pack_outcome find(size_t capacity, uint64_t steps) {
    ashlar_pack_outcome outcome = ASHLAR_PACK_UNDECIDED;
    memset(offsets, 0x5a, sizeof offsets);
    CHECK(ashlar__pack_search_run(search, capacity, steps, &budget, offsets, &outcome) ==
          ASHLAR_OK);
    if (outcome == ASHLAR_PACK_FOUND) {
        CHECK(is_plan(buffers, problem.count, 1, offsets));
        for (size_t i = 0; i < problem.count; i++) {
            CHECK(offsets[i] + buffers[i].bytes <= capacity);
        }
    } else {
        CHECK(offsets[0] == 0x5a5a5a5a5a5a5a5a);
    }
    return outcome;
}

CASE(packings_without_a_gap_are_found) {
    for (uint64_t seed = 0; seed < CHECK_SANITIZED(400, 40); seed++) {
        const size_t count = 4 + (size_t)seed % 30;
        make_perfect_packing(seed, 64, 1, 64, buffers, known, count);
        REQUIRE(is_plan(buffers, count, 1, known) && begin(count));
        CHECK_ZU(problem.peak_bytes, 64);
        CHECK(find(64, 1000000) == ASHLAR_PACK_FOUND);
        CHECK(find(63, 1000000) == ASHLAR_PACK_IMPOSSIBLE);
        end();
    }
}

CASE(large_packings_without_a_gap_are_found) {
    for (uint64_t seed = 1; seed < 4; seed++) {
        const size_t count = 100 + 50 * (size_t)seed;
        make_perfect_packing(seed, 1 << 20, 1 << 10, 1 << 20, buffers, known, count);
        REQUIRE(begin(count));
        CHECK(find(1 << 20, 3000000) == ASHLAR_PACK_FOUND);
        end();
    }
}

/* Smaller and shorter-lived buffers fit where the larger ones did, with gaps in between. */
static void draw_loose(uint64_t seed, size_t count) {
    make_perfect_packing(seed, 48, 1, 64, buffers, known, count);
    for (size_t i = 0; i < count; i++) {
        ashlar_pack_buffer *b = &buffers[i];
        b->bytes -= pack_draw(0, 3) == 0 ? pack_draw(0, b->bytes / 2) : 0;
        b->begin += pack_draw(0, 4) == 0 ? pack_draw(0, (b->end - b->begin) / 2) : 0;
    }
}

CASE(few_buffers_are_found_at_the_smallest_capacity) {
    for (int round = 0; round < CHECK_SANITIZED(3000, 300); round++) {
        const size_t count = pack_draw(1, 8);
        draw_buffers(buffers, count, round % 2 == 0 ? 9 : 3, 8);
        const size_t smallest = smallest_plan(buffers, count);
        REQUIRE(begin(count));
        CHECK(find(smallest, 100000) == ASHLAR_PACK_FOUND);
        CHECK(find(smallest - 1, 100000) == ASHLAR_PACK_IMPOSSIBLE);
        CHECK(find(smallest + 1, 100000) == ASHLAR_PACK_FOUND);
        end();
    }
}

/* Pieces of a rectangle, shorter and moved in time where the peak lets them. */
static void draw_moved(uint64_t seed, size_t count) {
    enum { CAPACITY = 24 };
    make_perfect_packing(seed, CAPACITY, 1, 32, buffers, known, count);
    for (size_t i = 0; i < count; i++) {
        const ashlar_pack_buffer old = buffers[i];
        const size_t by = pack_draw(0, 8);
        const bool is_earlier = pack_draw(0, 1) == 1 && old.begin >= by;
        buffers[i].begin -= is_earlier ? by : 0;
        buffers[i].end += is_earlier ? 0 : by;
        buffers[i].bytes -= pack_draw(0, old.bytes / 3);
        if (peak_of(buffers, count) > CAPACITY) {
            buffers[i] = old;
        }
    }
}

CASE(what_is_called_impossible_is) {
    enum { MOVED = 12 };
    size_t impossible = 0;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        draw_moved(seed, MOVED);
        REQUIRE(begin(MOVED));
        const size_t peak = problem.peak_bytes;
        const ashlar_pack_outcome outcome = find(peak, 100000);
        CHECK(outcome != ASHLAR_PACK_UNDECIDED);
        if (outcome == ASHLAR_PACK_IMPOSSIBLE) {
            impossible++;
            CHECK_ZU(smallest_plan_below(buffers, MOVED, peak + 2), peak + 1);
            CHECK(find(peak + 1, 100000) == ASHLAR_PACK_FOUND); /* failures below do not count */
            CHECK(find(peak, 100000) == ASHLAR_PACK_IMPOSSIBLE);
        }
        end();
    }
    CHECK(impossible > 0);
}

CASE(nothing_is_called_impossible_that_is_not) {
    enum { SEEDS = CHECK_SANITIZED(600, 60) };
    size_t found = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const size_t count = 5 + (size_t)seed % 20;
        draw_loose(seed, count);
        REQUIRE(begin(count));
        for (size_t capacity = problem.peak_bytes; capacity <= 48; capacity++) {
            const ashlar_pack_outcome outcome = find(capacity, 30000);
            found += outcome == ASHLAR_PACK_FOUND;
            CHECK(outcome != ASHLAR_PACK_IMPOSSIBLE || capacity < 48);
            if (outcome == ASHLAR_PACK_FOUND) {
                break;
            }
        }
        end();
    }
    CHECK(6 * found > 5 * SEEDS);
}

/* Hardly any room: a few pieces are a little smaller, so that gaps have to be left just there. */
CASE(little_room_is_enough) {
    for (uint64_t seed = 0; seed < CHECK_SANITIZED(500, 50); seed++) {
        const size_t count = 10 + (size_t)seed % 30;
        make_perfect_packing(seed, 64, 1, 64, buffers, known, count);
        for (size_t i = 0; i < count; i += 1 + pack_draw(0, 7)) {
            buffers[i].bytes -= buffers[i].bytes > 2 ? pack_draw(1, 2) : 0;
        }
        REQUIRE(begin(count));
        CHECK(find(64, 2000000) == ASHLAR_PACK_FOUND);
        end();
    }
}

/* How many of 20 are found in so few steps depends on all that makes the search quick. */
CASE(few_steps_are_needed) {
    size_t found = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        const size_t count = 100 + 5 * (size_t)seed;
        make_perfect_packing(seed, 1 << 20, 1 << 10, 1 << 20, buffers, known, count);
        REQUIRE(begin(count));
        found += find(1 << 20, 4000) == ASHLAR_PACK_FOUND;
        end();
    }
    printf("# %zu of 20\n", found);
    CHECK(found >= 17);
}

CASE(steps_are_counted) {
    make_perfect_packing(9, 1 << 20, 1 << 10, 1 << 20, buffers, known, MANY);
    REQUIRE(begin(MANY));
    CHECK(find(1 << 20, 0) == ASHLAR_PACK_UNDECIDED);
    CHECK(find(1 << 20, 100) == ASHLAR_PACK_UNDECIDED); /* it takes one for each buffer */
    budget.is_stopped = true;
    CHECK(find(1 << 20, 1000000) == ASHLAR_PACK_UNDECIDED);
    end();
}

/* Two stretches of time that share nothing: the failure of one is not sought in the other. */
CASE(parts_fail_by_themselves) {
    enum { PART = 120 };
    make_perfect_packing(3, 1 << 20, 1 << 10, 1 << 20, buffers, known, PART);
    for (size_t i = 0; i < PART; i++) {
        buffers[PART + i] = buffers[i];
        buffers[PART + i].begin += 1 << 20;
        buffers[PART + i].end += 1 << 20;
    }
    REQUIRE(begin(PART));
    CHECK(find(1 << 20, 200000) == ASHLAR_PACK_FOUND);
    end();
    REQUIRE(begin(2 * PART));
    CHECK(find(1 << 20, 500000) == ASHLAR_PACK_FOUND);
    end();
}

static ashlar_status search_anew(ashlar_pack_outcome *outcome) {
    *outcome = ASHLAR_PACK_UNDECIDED;
    ashlar_status status = ashlar__pack_search_create(&problem, &search);
    if (status == ASHLAR_OK) {
        status = ashlar__pack_search_run(search, 1 << 20, 1000000, &budget, offsets, outcome);
    }
    ashlar__pack_search_destroy(search);
    search = NULL;
    return status;
}

CASE(without_host_memory_it_says_so) {
    ashlar_pack_outcome outcome;
    make_perfect_packing(5, 1 << 20, 1 << 10, 1 << 20, buffers, known, 100);
    REQUIRE(ashlar__pack_items_init(&problem, buffers, 100, 1) == ASHLAR_OK);
    ashlar__pack_budget_init(&budget, &options, problem.peak_bytes);
    FOR_HOST_FAILURES(n, status, search_anew(&outcome)) {
        CHECK(outcome == (status == ASHLAR_OK ? ASHLAR_PACK_FOUND : ASHLAR_PACK_UNDECIDED));
    }
    CHECK(n > 20);
    ashlar__pack_items_finish(&problem);
}

RUN_CASES()
