/*
 * test_batches.c - walks over batches without the loop around them: a batch in micro-batches, in
 * parts and in shards has the gradients of the whole one, in a fraction of its memory.
 */
#include "tests/rnn/train/train_fixture.h"

#include "rnn/train/train_impl.h"

/* Forward and backward of the buffer's batch, in one part, to its end. */
static double run_buffer(size_t buffer, uint64_t seed) {
    ashlar_trainer *t = trainer;
    *t->losses = 0;
    CHECK(ashlar_arena_zero(t->arena, ASHLAR_REGION_GRADIENTS, t->stream) == ASHLAR_OK);
    CHECK(ashlar__batches_upload(&t->batches, device, buffer, t->stream) == ASHLAR_OK);
    CHECK(ashlar__train_walk(t, buffer, 0, seed, t->losses) == ASHLAR_OK);
    CHECK(ashlar_stream_synchronize(device, t->stream) == ASHLAR_OK);
    return *t->losses;
}

static float *gradients_now(void) {
    return ashlar_arena_region(trainer->arena, ASHLAR_REGION_GRADIENTS);
}

static size_t gradients_count(void) {
    return ashlar_arena_get_info(trainer->arena).region_bytes[ASHLAR_REGION_GRADIENTS] /
           sizeof(float);
}

enum { ELEMENTS_MAX = 1 << 15, STEPS = 12, B = 12 };

static float whole[ELEMENTS_MAX], sum[ELEMENTS_MAX];

static ashlar_train_config config_in(size_t micro) {
    ashlar_train_config config = small_config(STEPS);
    config.batch = B;
    config.accumulate = micro;
    return config;
}

/* Gradients are sums over a few hundred positions, in another order. */
static void check_gradients(const float *got) {
    size_t wrong = 0, used = 0;
    for (size_t i = 0; i < gradients_count(); i++) {
        wrong += fabsf(got[i] - whole[i]) <= 1e-6f + 1e-4f * fabsf(whole[i]) ? 0 : 1;
        used += whole[i] != 0;
    }
    CHECK_ZU(wrong, 0);
    CHECK(used > gradients_count() / 8);
}

/* Three batches in a row, each of another length. */
static void check_micro(size_t micro, size_t recompute) {
    for (size_t batch = 0; batch < 3; batch++) {
        double loss = 0;
        for (size_t i = 0; i < 2; i++) {
            ashlar_train_config config = config_in(i == 0 ? 1 : micro);
            config.recompute = i == 0 ? 0 : recompute;
            REQUIRE(open_trainer(&config) == ASHLAR_OK);
            ashlar_batches *b = &trainer->batches;
            ashlar__batcher_skip(b->batcher, batch);
            const ashlar_drawn_batch drawn = *ashlar__batches_next(b, 1);
            CHECK(drawn.parts == 1 && b->buffers[1].tokens[0] == drawn.tokens);
            CHECK_ZU(ashlar__batches_length(b, 1, 0), drawn.length);
            const double got = run_buffer(1, 77);
            if (i == 0) {
                loss = got;
                REQUIRE(gradients_count() <= ELEMENTS_MAX);
                memcpy(whole, gradients_now(), gradients_count() * sizeof whole[0]);
            } else {
                CHECK_NEAR(got, loss, 0, 1e-6);
                check_gradients(gradients_now());
            }
            close_trainer();
        }
    }
}

CASE_WITH(gradients_are_those_of_the_whole_batch, open_text("memory=256MiB")) {
    for (size_t micro = 1; micro <= B; micro++) {
        if (B % micro == 0) {
            check_micro(micro, 0);
        }
    }
    check_micro(3, 5); /* in chunks too */
}

CASE_WITH(a_batch_that_cannot_be_divided_is_refused, open_text("memory=256MiB")) {
    const ashlar_train_config config = config_in(5);
    CHECK_FAILS(train_once(&config), ASHLAR_EINVAL,
                "--accumulate: 5 does not divide the 12 sequences of --batch");
}

/* ---- truncated back-propagation: as many updates as parts, in the memory of one ---- */

enum { PART = 7 };

static ashlar_train_config config_in_parts(size_t steps) {
    ashlar_train_config config = small_config(steps);
    config.batch = BATCH;
    config.bptt = PART;
    return config;
}

/* Sequences four times as long in the same memory, but for the states and the tokens. */
CASE_WITH(memory_is_that_of_a_part, open_text("memory=256MiB")) {
    ashlar_train_report parts, at_once, shorter;
    ashlar_train_config config = config_in_parts(10);
    REQUIRE(train(&config, &seen, &parts) == ASHLAR_OK);
    size_t updates = 0;
    for (size_t i = 0; i < seen.count; i++) {
        updates += (seen.steps[i].length + PART - 1) / PART;
    }
    CHECK_ZU(parts.step_memory.steps_replayed, updates);
    CHECK_ZU(parts.step_memory.hits, updates);
    config.bptt = 0;
    REQUIRE(train(&config, &seen, &at_once) == ASHLAR_OK);
    config.max_length = PART;
    REQUIRE(train(&config, &seen, &shorter) == ASHLAR_OK);
    CHECK_ZU(parts.step_memory.bound_bytes, shorter.step_memory.bound_bytes);
    CHECK_ZU(parts.savings_count, 1);
    CHECK(strcmp(parts.savings[0].option, "bptt") == 0 && parts.savings[0].value == PART);
    CHECK_ZU(parts.savings[0].bytes, at_once.step_memory.plan_bytes);
    CHECK(at_once.step_memory.plan_bytes > 3 * parts.step_memory.plan_bytes);
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
    for (size_t i = 0; i < 3; i++) {
        static const char *const names[] = {"accumulate", "bptt", "recompute"};
        CHECK(strcmp(report.savings[i].option, names[i]) == 0);
        CHECK_ZU(report.savings[i].bytes, without[i].step_memory.plan_bytes);
        CHECK(without[i].step_memory.plan_bytes > report.step_memory.plan_bytes);
    }
    CHECK(report.training.management == 0 && report.step_memory.misses == 0);
}

/* ---- shards: together they have the gradients, the losses and the dropout of the whole batch ----
 */

static ashlar_train_config shards_in(size_t shards) {
    ashlar_train_config config = small_config(8);
    config.dropout = 0.4;
    config.batch = 16;
    config.shards = shards;
    return config;
}

/* Run one batch, shard by shard; returns the loss. */
static double run_shards(const ashlar_train_config *config) {
    const size_t shards = config->shards == 0 ? 1 : config->shards;
    double loss = 0;
    memset(sum, 0, sizeof sum);
    CHECK(open_trainer(config) == ASHLAR_OK);
    const ashlar_drawn_batch drawn = *ashlar__batches_next(&trainer->batches, 1);
    CHECK_ZU(trainer->batches.buffers[1].tokens[0], drawn.tokens);
    for (size_t shard = 0; shard < shards; shard++) {
        trainer->shard = shard;
        loss += run_buffer(1, 77);
        CHECK(gradients_count() <= ELEMENTS_MAX);
        for (size_t i = 0; i < gradients_count(); i++) {
            sum[i] += gradients_now()[i];
        }
    }
    return loss;
}

CASE_WITH(shards_have_the_gradients_of_the_whole_batch_with_dropout, open_text("memory=256MiB")) {
    for (size_t accumulate = 1; accumulate <= 2; accumulate++) {
        ashlar_train_config config = shards_in(0);
        config.accumulate = accumulate;
        const double loss = run_shards(&config);
        memcpy(whole, sum, sizeof whole);
        close_trainer();
        for (config.shards = 1; config.shards <= 8; config.shards *= 2) {
            CHECK_NEAR(run_shards(&config), loss, 0, 1e-6);
            check_gradients(sum);
            close_trainer();
        }
    }
}

CASE(as_many_shards_as_a_batch_allows_are_chosen) {
    CHECK_ZU(ashlar__shards_choose(16, 1), 8);
    CHECK_ZU(ashlar__shards_choose(16, 4), 4);
    CHECK_ZU(ashlar__shards_choose(25, 1), 1);
    CHECK_ZU(ashlar__shards_choose(64, 1), 8);
    CHECK_ZU(ashlar__shards_choose(12, 3), 4);
}

CASE(divisions_that_cannot_be_are_refused) {
    ashlar_train_config config = shards_in(3);
    CHECK_FAILS(ashlar__shards_check(&config), ASHLAR_EINVAL, "3 are no power of 2");
    config = shards_in(16);
    CHECK_FAILS(ashlar__shards_check(&config), ASHLAR_EINVAL, "16 are more than 8");
    config = shards_in(8);
    config.batch = 20;
    CHECK_FAILS(ashlar__shards_check(&config), ASHLAR_EINVAL, "--batch: 20");
    config = shards_in(2);
    config.pads = true;
    CHECK_FAILS(ashlar__shards_check(&config), ASHLAR_EINVAL, "--pad");
    config = shards_in(2);
    CHECK(ashlar__shards_check(&config) == ASHLAR_OK);
    const ashlar_batch_split_config all = ashlar__shards_of(&config);
    CHECK(all.shards == 2 && all.first == 0 && all.own == 2);
}

/* A step takes what the dry run took, whatever the options. */
CASE_WITH(a_dry_run_takes_what_a_step_takes, open_text("memory=256MiB")) {
    for (size_t i = 0; i < 8; i++) {
        ashlar_train_config config = small_config(1);
        config.accumulate = i % 2 == 0 ? 1 : 2;
        config.bptt = i / 2 % 2 == 0 ? 0 : 11;
        config.recompute = i / 4 == 0 ? 0 : 4;
        REQUIRE(open_trainer(&config) == ASHLAR_OK);
        allocator = trainer->allocator;
        const size_t length = trainer->batches.max_part_length;
        ashlar__batches_make_dummy(&trainer->batches, 0, length);
        const ashlar_stats first = stats_now();
        CHECK(ashlar__train_dry_run(trainer, length) == ASHLAR_OK);
        const ashlar_stats second = stats_now();
        (void)run_buffer(0, 5);
        const ashlar_stats third = stats_now();
        CHECK_ZU(third.alloc_count - second.alloc_count, second.alloc_count - first.alloc_count);
        CHECK_ZU(third.live_peak_bytes, second.live_peak_bytes);
        close_trainer();
    }
}

/* Twice the least that is not below the root; none where that is no less than everything. */
CASE_WITH(chunks_of_two_roots_are_rounded_up, open_text("memory=256MiB")) {
    static const size_t lengths[][2] = {{1, 0}, {2, 0},  {3, 0},  {4, 0},  {5, 0},  {6, 0},
                                        {7, 6}, {9, 6}, {10, 8}, {16, 8}, {17, 10}};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        ashlar_train_config config = small_config(1);
        config.bptt = lengths[i][0];
        config.recomputes_auto = true;
        CHECK(open_trainer(&config) == ASHLAR_OK);
        CHECK_ZU(trainer->batches.chunk, lengths[i][1]);
        close_trainer();
    }
}

/* ---- failures ---- */

CASE_WITH(failures_at_each_point_leave_nothing_behind, open_text("memory=256MiB")) {
    ashlar_train_config config = small_config(1);
    config.bptt = 9;
    ashlar_status status = ASHLAR_EHOSTMEM;
    unsigned long n = 1;
    for (; status != ASHLAR_OK && n < 500; n++) {
        ashlar__host_fail_at(n);
        status = open_trainer(&config);
        ashlar__host_fail_at(0);
        CHECK(status == ASHLAR_OK || status == ASHLAR_EHOSTMEM || status == ASHLAR_ENOMEM);
        close_trainer();
    }
    CHECK(n > 8);
    CHECK(CALLS(mem_free_host) + 1 == CALLS(mem_host_alloc)); /* the device's, for copies */
}

RUN_CASES()
