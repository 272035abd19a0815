/*
 * test_step_record.c - what steps take, by hooks, and memory that grows from step to step.
 */
#include "tests/rnn/train/train_fixture.h"

#include "rnn/train/train.h"
#include "rnn/train/step_record.h"
#include "tests/allocator/core/allocator_fixture.h"
#include "tests/allocator/trace/numbers_fixture.h"

static ashlar_step_record *record;

static void forget_record(void) {
    close_trainer();
    ashlar__step_record_destroy(record);
    record = NULL;
}

/* Train with a record. */
static bool train_recorded(ashlar_train_config config) {
    forget_record();
    if (!check_at_end(forget_record) || ashlar__step_record_create(NULL, &record) != ASHLAR_OK) {
        return false;
    }
    config.hooks = ashlar__step_record_hooks(record);
    return train_once(&config) == ASHLAR_OK;
}

/* Boxes that are held at the same moment share no address; live bytes and peak follow from them. */
static void check_boxes(const ashlar_step_boxes *b) {
    uint64_t most = 0;
    CHECK(b->count > 4 && b->left_out == 0 && b->moments == 2 * b->count);
    for (size_t i = 0; i < b->count; i++) {
        const ashlar_step_box *x = &b->list[i];
        uint64_t live = 0;
        CHECK(x->taken < x->given && x->given < b->moments && x->name[0] != '\0' && x->bytes > 0);
        for (size_t j = 0; j < b->count; j++) {
            const ashlar_step_box *y = &b->list[j];
            live += y->taken <= x->taken && x->taken < y->given ? y->bytes : 0;
            CHECK(i == j || x->given < y->taken || y->given < x->taken ||
                  x->address + x->bytes <= y->address || y->address + y->bytes <= x->address);
        }
        most = live > most ? live : most;
    }
    CHECK_ZU(b->peak_bytes, most);
    CHECK_ZU(b->live_bytes, 0);
}

CASE_WITH(the_largest_step_and_what_each_step_held_are_kept, open_text("memory=256MiB")) {
    size_t count = 0;
    REQUIRE(train_recorded(small_config(12)));
    const ashlar_step_boxes *b = ashlar__step_record_largest(record);
    check_boxes(b);
    CHECK(b->backward > 0 && b->backward < b->moments);
    CHECK(b->peak_bytes <= report.step_bytes && b->peak_bytes > report.step_bytes / 2);
    const ashlar_step_held *held = ashlar__step_record_held(record, &count);
    CHECK_ZU(count, 12);
    for (size_t i = 0; i < count; i++) {
        CHECK_ZU(held[i].step, i + 1);
        CHECK(held[i].live_bytes <= report.stats.live_peak_bytes);
        CHECK_ZU(held[i].reserved_bytes, report.stats.reserved_bytes); /* proven by the warm-up */
    }
}

static void *ptrs[ASHLAR_STEP_BOXES + 9];

static void take_box(const ashlar_buffer_hooks *hooks, size_t i) {
    const ashlar_buffer_request request = {"one", 1, ASHLAR_TAG_USER, false};
    CHECK(hooks->take(hooks->context, &request, allocator, streams[1], &ptrs[i]) == ASHLAR_OK);
}

CASE_WITH(boxes_that_find_no_room_are_counted, set_up("memory=64MiB")) {
    REQUIRE(check_at_end(forget_record) && ashlar__step_record_create(NULL, &record) == ASHLAR_OK);
    const ashlar_buffer_hooks *hooks = ashlar__step_record_hooks(record);
    for (size_t i = 0; i < ASHLAR_STEP_BOXES + 9; i++) {
        take_box(hooks, i);
    }
    for (size_t i = 0; i < ASHLAR_STEP_BOXES + 9; i++) {
        CHECK(hooks->give(hooks->context, allocator, ptrs[i]) == ASHLAR_OK);
    }
    const ashlar_step_boxes *b = ashlar__step_record_largest(record);
    CHECK_ZU(b->count, ASHLAR_STEP_BOXES);
    CHECK_ZU(b->left_out, 9);
    CHECK_ZU(b->peak_bytes, ASHLAR_STEP_BOXES);
    CHECK_ZU(b->live_bytes, 0);
    CHECK_ZU(b->list[7].given, ASHLAR_STEP_BOXES + 7);
}

CASE_WITH(without_a_warm_up_steps_call_the_driver, open_text("memory=256MiB")) {
    ashlar_train_config config = small_config(6);
    config.hidden = 256; /* more than the segment that holds the weights has left */
    REQUIRE(train_once(&config) == ASHLAR_OK);
    const double want = report.loss_last;
    config.without_warmup = true;
    REQUIRE(train_once(&config) == ASHLAR_OK);
    CHECK(report.training.management > 0);
    CHECK_ZU(report.warmup.work, 0);
    CHECK(!report.step_memory.is_planned && report.loss_last == want);
    config.pads = true;
    CHECK_FAILS(train_once(&config), ASHLAR_EINVAL, "need the warm-up");
}

/* ---- memory that grows from step to step is found, and memory that only moves is not ---- */

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

RUN_CASES()
