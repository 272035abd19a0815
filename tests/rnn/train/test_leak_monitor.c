/*
 * test_leak_monitor.c - what steps take, and memory that grows from step to step.
 */
#include "tests/rnn/train/train_fixture.h"

#include "rnn/train/train.h"
#include "tests/allocator/core/allocator_fixture.h"
#include "tests/allocator/trace/numbers_fixture.h"

/* ---- what a step takes ---- */

static ashlar_model_buffer buffers[64];

/* Buffers that are live in the same phase share no byte, but where one lies in place of another. */
static void check_buffers(const ashlar_model_need *need, size_t count) {
    CHECK(count > 4 && count <= 64);
    for (size_t i = 0; i < count; i++) {
        const ashlar_model_buffer *x = &buffers[i];
        CHECK(x->first <= x->last && x->last < need->phases && x->bytes > 0);
        CHECK(x->offset + x->bytes <= need->plan_bytes);
        for (size_t j = 0; j < i; j++) {
            const ashlar_model_buffer *y = &buffers[j];
            CHECK(x->last < y->first || y->last < x->first || x->offset == y->offset ||
                  x->offset + x->bytes <= y->offset || y->offset + y->bytes <= x->offset);
        }
    }
}

CASE_WITH(the_largest_step_and_what_each_step_held_are_told, open_text("memory=256MiB")) {
    const ashlar_train_config config = small_config(12);
    ashlar_model_need need;
    size_t count;
    seen = (shown){0};
    REQUIRE(open_trainer(&config) == ASHLAR_OK);
    REQUIRE(ashlar__trainer_run(trainer, show, &seen, &report) == ASHLAR_OK);
    ashlar_model *const model = ashlar__trainer_model(trainer).model;
    const ashlar_model_batch batch = ashlar__trainer_longest(trainer);
    REQUIRE(ashlar_model_get_need(model, ASHLAR_WALK_TRAIN, &batch, &need) == ASHLAR_OK);
    REQUIRE(ashlar_model_list_buffers(model, ASHLAR_WALK_TRAIN, &batch, buffers, 64, &count) ==
            ASHLAR_OK);
    check_buffers(&need, count);
    CHECK(need.plan_bytes <= report.step_memory.plan_bytes &&
          need.plan_bytes > report.step_memory.plan_bytes / 2);
    CHECK_ZU(seen.count, 12);
    for (size_t i = 0; i < seen.count; i++) {
        const ashlar_train_held *held = &seen.steps[i].held;
        CHECK(held->live_bytes <= report.stats.live_peak_bytes + 512);
        CHECK(held->live_bytes > report.stats.live_bytes && held->seconds > 0);
        CHECK_ZU(held->reserved_bytes, report.stats.reserved_bytes); /* proven by the warm-up */
    }
}

/* ---- memory that grows from step to step is found, and memory that only moves is not ---- */

static ashlar_tag_growth tags[ASHLAR_TAG_COUNT];
static ashlar_stats reading;

static void begin(void) {
    reading = (ashlar_stats){.live_bytes = 0};
    memset(tags, 0, sizeof tags);
}

/* A step in which one tag held so much. Returns what was found. */
static unsigned add(uint64_t step, ashlar_tag tag, uint64_t held) {
    reading.tags[tag].live_bytes = held;
    return ashlar__growth_add(tags, step, &reading);
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
        begin();
        const uint64_t at = found_at(since, 1, 100);
        CHECK(at >= since && at < since + 24);
        const ashlar_tag_growth tag = tags[ASHLAR_TAG_SAVED];
        CHECK(tag.is_growing);
        CHECK_ZU(tag.since_step, since);
        CHECK_ZU(tag.first_bytes, 4096);
        CHECK_ZU(tag.held_bytes, held_with_leak(at, since, 1));
        CHECK_ZU(tag.growth_bytes, tag.held_bytes - 4096);
    }
}

/* A block leaked in every hundredth step, wherever that falls. */
CASE(a_rare_leak_is_found_when_six_blocks_are_lost) {
    for (uint64_t since = 2; since < 40; since++) {
        begin();
        const uint64_t at = found_at(since, 100, 1000);
        CHECK(at > since + 400 && at < since + 600);
        CHECK_ZU(tags[ASHLAR_TAG_SAVED].since_step, since);
    }
}

CASE(memory_that_moves_about_a_level_does_not_grow) {
    begin();
    for (uint64_t step = 1; step <= 20000; step++) {
        const uint64_t held = (uint64_t)((random_real() + 1) * 1e6);
        CHECK_ZU(add(step, ASHLAR_TAG_ACTIVATIONS, held), 0);
    }
    CHECK(!tags[ASHLAR_TAG_ACTIVATIONS].is_growing);
    CHECK_ZU(tags[ASHLAR_TAG_ACTIVATIONS].growth_bytes, 0);
}

CASE(growth_that_has_ended_is_none_any_more) {
    unsigned found = 0;
    begin();
    for (uint64_t step = 1; step <= 40; step++) {
        found |= add(step, ASHLAR_TAG_USER, 512 * step);
    }
    CHECK_ZU(found, 1u << ASHLAR_TAG_USER);
    for (uint64_t step = 41; step <= 80; step++) {
        CHECK_ZU(add(step, ASHLAR_TAG_USER, 512 * 40), 0);
        CHECK(tags[ASHLAR_TAG_USER].is_growing);
    }
    for (uint64_t step = 81; step <= 200; step++) {
        CHECK_ZU(add(step, ASHLAR_TAG_USER, 512 * 40), 0);
    }
    CHECK(!tags[ASHLAR_TAG_USER].is_growing);
    CHECK_ZU(tags[ASHLAR_TAG_USER].held_bytes, 512 * 40);
}

/* A saw of long teeth is told from a leak when its first tooth comes down. */
CASE(a_saw_about_one_level_is_told_once_at_most) {
    static const uint64_t periods[] = {21, 29, 33, 50, 64, 100, 257, 1000, 3790};
    for (size_t i = 0; i < 2 * sizeof periods / sizeof periods[0]; i++) {
        const uint64_t period = periods[i / 2];
        unsigned told = 0;
        begin();
        for (uint64_t step = 1; step <= 20000; step++) {
            const uint64_t at = (step + 7) % period, down = period - at;
            const uint64_t high = i % 2 == 0 || at < down ? at : down; /* steep, or both ways */
            told += add(step, ASHLAR_TAG_USER, 4096 + 512 * high + step % 3) != 0;
        }
        CHECK(told <= 1);
    }
}

RUN_CASES()
