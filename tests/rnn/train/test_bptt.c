/*
 * test_bptt.c - truncated back-propagation through time: a batch is as many updates as it has
 * parts, in the memory of one. Their losses are compared in test_train.c.
 */
#include "tests/rnn/train/train_fixture.h"

enum { PART = 7 };

static ashlar_train_config config_in_parts(size_t steps) {
    ashlar_train_config config = small_config(steps);
    config.batch = BATCH;
    config.bptt = PART;
    return config;
}

/* Sequences four times as long in the same memory, but for the states and the tokens. */
CASE_WITH(memory_is_that_of_a_part, open_text("memory=256MiB")) {
    ashlar_train_report parts, whole, shorter;
    ashlar_train_config config = config_in_parts(10);
    REQUIRE(train(&config, &seen, &parts) == ASHLAR_OK);
    CHECK(parts.stats.live_blocks == 8); /* the states as well */
    size_t updates = 0;
    for (size_t i = 0; i < seen.count; i++) {
        updates += (seen.steps[i].length + PART - 1) / PART;
    }
    CHECK_ZU(parts.step_memory.steps_replayed, updates);
    CHECK_ZU(parts.step_memory.hits, updates * 9);
    config.bptt = 0;
    REQUIRE(train(&config, &seen, &whole) == ASHLAR_OK);
    config.max_length = PART;
    REQUIRE(train(&config, &seen, &shorter) == ASHLAR_OK);
    CHECK_ZU(parts.step_memory.bound_bytes, shorter.step_memory.bound_bytes);
    CHECK_ZU(parts.step_bytes, parts.step_memory.bound_bytes);
    CHECK_ZU(parts.savings_count, 1);
    CHECK(strcmp(parts.savings[0].option, "bptt") == 0 && parts.savings[0].value == PART);
    CHECK_ZU(parts.savings[0].bytes, whole.step_memory.bound_bytes);
    CHECK(whole.step_bytes > 3 * parts.step_bytes);
}

/* All three ways to save at once, each accounted for. */
CASE_WITH(options_go_together, open_text("memory=256MiB")) {
    static shown alone, together;
    ashlar_train_report without[3];
    ashlar_train_config config = config_in_parts(12);
    REQUIRE(train(&config, &alone, &report) == ASHLAR_OK);
    config.accumulate = 2;
    REQUIRE(train(&config, &together, &without[2]) == ASHLAR_OK);
    config.recompute = 3;
    REQUIRE(train(&config, &together, &report) == ASHLAR_OK);
    for (size_t step = 0; step < 12; step++) {
        CHECK_NEAR(together.steps[step].loss_step, alone.steps[step].loss_step, 0, 1e-4);
    }
    ashlar_train_config other = config;
    other.accumulate = 1;
    REQUIRE(train(&other, &alone, &without[0]) == ASHLAR_OK);
    other = config;
    other.bptt = 0;
    REQUIRE(train(&other, &alone, &without[1]) == ASHLAR_OK);
    CHECK_ZU(report.savings_count, 3);
    CHECK_ZU(report.step_bytes, report.step_memory.bound_bytes);
    for (size_t i = 0; i < 3; i++) {
        static const char *const names[] = {"accumulate", "bptt", "recompute"};
        CHECK(strcmp(report.savings[i].option, names[i]) == 0);
        CHECK_ZU(report.savings[i].bytes, without[i].step_memory.bound_bytes);
        CHECK(without[i].step_memory.bound_bytes > report.step_bytes);
    }
    CHECK(report.training.management == 0 && report.step_memory.misses == 0);
}

RUN_CASES()
