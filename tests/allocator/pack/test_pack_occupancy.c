/* test_pack_occupancy.c - that the lowest gap is found, compared with a map of every byte. */
#include "allocator/pack/pack_occupancy.h"

#include "tests/check.h"
#include "allocator/base/host.h"
#include "tests/allocator/pack/pack_fixture.h"

enum { SECTIONS = 21, BYTES = 400 };

static bool is_taken[SECTIONS][BYTES];

static size_t lowest_gap(uint32_t first, uint32_t end, size_t bytes) {
    size_t begin = 0;
    for (size_t at = 0; at < begin + bytes; at++) {
        for (uint32_t s = first; s < end; s++) {
            if (at < BYTES && is_taken[s][at]) {
                begin = at + 1;
            }
        }
    }
    return begin;
}

static void take(ashlar_pack_occupancy *occupancy, uint32_t first, uint32_t end, size_t at,
                 size_t bytes) {
    REQUIRE(ashlar__pack_occupancy_add(occupancy, first, end, at, bytes) == ASHLAR_OK);
    for (uint32_t s = first; s < end; s++) {
        memset(&is_taken[s][at], true, bytes);
    }
}

/* Every gap of so many bytes, from the bottom up. */
static void finds_all_gaps(const ashlar_pack_occupancy *occupancy, uint32_t first, uint32_t end,
                           size_t bytes) {
    size_t gap_end = 0;
    for (size_t at = 0, run = 0; at <= BYTES; at++) {
        bool is_free_here = at < BYTES;
        for (uint32_t s = first; is_free_here && s < end; s++) {
            is_free_here = !is_taken[s][at];
        }
        if (is_free_here) {
            run++;
        } else if (run >= bytes && at < BYTES) {
            const size_t begin =
                ashlar__pack_occupancy_gap(occupancy, first, end, gap_end, bytes, &gap_end);
            CHECK(begin == at - run && gap_end == at);
        }
        run = is_free_here ? run : 0;
    }
    const size_t last = ashlar__pack_occupancy_gap(occupancy, first, end, gap_end, bytes, &gap_end);
    CHECK(last <= BYTES && gap_end == SIZE_MAX);
}

/* Fill it up at random, at the lowest gap or somewhere above it where it is free. */
static void fill(ashlar_pack_occupancy *occupancy, size_t sections, size_t most) {
    memset(is_taken, 0, sizeof is_taken);
    for (int n = 0; n < 120; n++) {
        const uint32_t first = (uint32_t)pack_draw(0, sections - 1);
        const uint32_t end = (uint32_t)pack_draw(first + 1, sections);
        const size_t bytes = pack_draw(1, most), want = lowest_gap(first, end, bytes);
        CHECK_ZU(ashlar__pack_occupancy_find(occupancy, first, end, bytes), want);
        finds_all_gaps(occupancy, first, end, bytes);
        size_t at = want + (pack_draw(0, 2) == 0 ? pack_draw(0, 9) : 0);
        for (uint32_t s = first; s < end; s++) {
            at = at + bytes <= BYTES && memchr(&is_taken[s][at], true, bytes) == NULL ? at : want;
        }
        if (at + bytes <= BYTES) {
            take(occupancy, first, end, at, bytes);
        }
    }
}

CASE(the_lowest_gap_is_found) {
    for (size_t sections = 1; sections <= SECTIONS; sections++) {
        ashlar_pack_occupancy *occupancy;
        REQUIRE(ashlar__pack_occupancy_create(sections, &occupancy) == ASHLAR_OK);
        for (int round = 0; round < 30; round++) {
            fill(occupancy, sections, round % 3 == 0 ? 3 : 25);
            ashlar__pack_occupancy_clear(occupancy);
        }
        ashlar__pack_occupancy_destroy(occupancy);
    }
    ashlar__pack_occupancy_destroy(NULL);
}

static ashlar_status occupy(void) {
    ashlar_pack_occupancy *occupancy = NULL;
    ashlar_status status = ashlar__pack_occupancy_create(5, &occupancy);
    if (status == ASHLAR_OK) {
        status = ashlar__pack_occupancy_add(occupancy, 1, 5, 3, 4);
        ashlar__pack_occupancy_destroy(occupancy);
    }
    return status;
}

CASE(without_host_memory_it_says_so) {
    FOR_HOST_FAILURES(n, status, occupy()) {
        CHECK(n < 100);
    }
    CHECK(n > 5);
}

RUN_CASES()
