/*
 * test_leak_monitor.c - memory that grows from step to step is found, with its tag and its first
 * step; memory that only moves is not.
 */
#include "rnn/train/leak_monitor.h"

#include "tests/allocator/core/allocator_fixture.h"
#include "tests/allocator/trace/numbers_fixture.h"

static ashlar_leak_monitor *monitor;
static ashlar_stats reading;

static bool open_growth(void) {
    reading = (ashlar_stats){.live_bytes = 0};
    return ashlar__leak_monitor_create(&monitor) == ASHLAR_OK;
}

/* A step in which one tag held so much. Returns what was found. */
static unsigned add(uint64_t step, ashlar_tag tag, uint64_t held) {
    unsigned found = ~0u;
    reading.tags[tag].live_bytes = held;
    CHECK(ashlar__leak_monitor_add(monitor, step, &reading, &found) == ASHLAR_OK);
    return found;
}

static ashlar_tag_growth growth_of(ashlar_tag tag) {
    ashlar_tag_growth tags[ASHLAR_TAG_COUNT];
    ashlar__leak_monitor_get_growth(monitor, tags);
    return tags[tag];
}

/* 4096 bytes, and 512 more in every `every`-th step from `since` on. */
static uint64_t held_with_leak(uint64_t step, uint64_t since, uint64_t every) {
    return 4096 + (step < since ? 0 : 512 * ((step - since) / every + 1));
}

/* The step at which a leak is found; 0: never. */
static uint64_t found_at(uint64_t since, uint64_t every, uint64_t steps) {
    for (uint64_t step = 1; step <= steps; step++) {
        const unsigned found = add(step, ASHLAR_TAG_SAVED, held_with_leak(step, since, every));
        if (found != 0) {
            CHECK_ZU(found, 1u << ASHLAR_TAG_SAVED);
            return step;
        }
    }
    return 0;
}

/* Whatever windows it falls into. The first step of all cannot be told from the level before. */
CASE(a_leak_in_every_step_is_found_within_24_steps) {
    for (uint64_t since = 2; since < 40; since++) {
        REQUIRE(open_growth());
        const uint64_t at = found_at(since, 1, 100);
        CHECK(at >= since && at < since + 24);
        const ashlar_tag_growth tag = growth_of(ASHLAR_TAG_SAVED);
        CHECK(tag.is_growing);
        CHECK_ZU(tag.since_step, since);
        CHECK_ZU(tag.first_bytes, 4096);
        CHECK_ZU(tag.held_bytes, held_with_leak(at, since, 1));
        CHECK_ZU(tag.growth_bytes, tag.held_bytes - 4096);
        ashlar__leak_monitor_destroy(monitor);
    }
}

CASE_WITH(memory_that_moves_about_a_level_does_not_grow, open_growth()) {
    for (uint64_t step = 1; step <= 20000; step++) {
        const uint64_t held = (uint64_t)((random_real() + 1) * 1e6);
        CHECK_ZU(add(step, ASHLAR_TAG_ACTIVATIONS, held), 0);
    }
    CHECK(!growth_of(ASHLAR_TAG_ACTIVATIONS).is_growing);
    CHECK_ZU(growth_of(ASHLAR_TAG_ACTIVATIONS).growth_bytes, 0);
    ashlar__leak_monitor_destroy(monitor);
}

CASE_WITH(growth_that_has_ended_is_none_any_more, open_growth()) {
    unsigned found = 0;
    for (uint64_t step = 1; step <= 40; step++) {
        found |= add(step, ASHLAR_TAG_USER, 512 * step);
    }
    CHECK_ZU(found, 1u << ASHLAR_TAG_USER);
    for (uint64_t step = 41; step <= 80; step++) {
        CHECK_ZU(add(step, ASHLAR_TAG_USER, 512 * 40), 0);
        CHECK(growth_of(ASHLAR_TAG_USER).is_growing);
    }
    for (uint64_t step = 81; step <= 200; step++) {
        CHECK_ZU(add(step, ASHLAR_TAG_USER, 512 * 40), 0);
    }
    CHECK(!growth_of(ASHLAR_TAG_USER).is_growing);
    CHECK_ZU(growth_of(ASHLAR_TAG_USER).held_bytes, 512 * 40);
    ashlar__leak_monitor_destroy(monitor);
}

/* A saw of long teeth is told from a leak when its first tooth comes down. */
CASE(a_saw_about_one_level_is_told_once_at_most) {
    static const uint64_t periods[] = {21, 29, 33, 50, 64, 100, 257, 1000, 3790};
    for (size_t i = 0; i < 2 * sizeof periods / sizeof periods[0]; i++) {
        const uint64_t period = periods[i / 2];
        unsigned told = 0;
        REQUIRE(open_growth());
        for (uint64_t step = 1; step <= 20000; step++) {
            const uint64_t at = (step + 7) % period, down = period - at;
            const uint64_t high = i % 2 == 0 || at < down ? at : down; /* steep, or both ways */
            told += add(step, ASHLAR_TAG_USER, 4096 + 512 * high + step % 3) != 0;
        }
        CHECK(told <= 1);
        ashlar__leak_monitor_destroy(monitor);
    }
}

CASE_WITH(steps_must_come_in_order, open_growth()) {
    CHECK_ZU(add(7, ASHLAR_TAG_USER, 512), 0);
    reading.tags[ASHLAR_TAG_USER].live_bytes = 1024;
    CHECK(ashlar__leak_monitor_add(monitor, 7, &reading, NULL) == ASHLAR_EINVAL);
    CHECK_ZU(growth_of(ASHLAR_TAG_USER).held_bytes, 512);
    CHECK(ashlar__leak_monitor_add(monitor, 8, &reading, NULL) == ASHLAR_OK);
    CHECK_ZU(growth_of(ASHLAR_TAG_USER).held_bytes, 1024);
    ashlar__leak_monitor_destroy(monitor);
    ashlar__leak_monitor_destroy(NULL);
}

CASE(without_host_memory_there_is_none) {
    monitor = NULL;
    HOST_FAILS_AT(1, CHECK(ashlar__leak_monitor_create(&monitor) == ASHLAR_EHOSTMEM));
    CHECK(monitor == NULL);
}

RUN_CASES()
