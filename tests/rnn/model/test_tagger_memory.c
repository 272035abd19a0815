/*
 * test_tagger_memory.c - what the tagger's estimate says is what a training takes, and after its
 * warm-up no step of any shape asks the driver for anything but its own work.
 */
#include "tests/rnn/model/tagger_fixture.h"
#include "tests/text.h"

#include <ashlar/plan.h>

#include "rnn/model/tagger_memory.h"

/* ---- the warm-up ---- */

static ashlar_tagger_shape largest;
static made_tags staging;

static ashlar_status warm_step(void *user, size_t length) {
    (void)user;
    const ashlar_tagger_shape shape = {length, largest.batch, largest.width};
    const ashlar_tagger_bytes sizes = sizes_of(shape);
    ashlar__tagger_batch_fill_largest(&staging.batch, &shape);
    const ashlar_tagger_batch batch = copied(&staging);
    return ashlar__tagger_step(tagger, &batch, &sizes, 0, loss);
}

static ashlar_status warm_rehearse(void *user, size_t length) {
    (void)user;
    const ashlar_tagger_bytes sizes =
        sizes_of((ashlar_tagger_shape){length, largest.batch, largest.width});
    return ashlar__tagger_dry_run(tagger, &sizes);
}

static ashlar_warmup_options warmup_to(bool has_step) {
    return (ashlar_warmup_options){.stream = streams[1],
                                   .min_length = 1,
                                   .max_length = largest.steps,
                                   .length_bucket_count =
                                       tagger_config.label_embedding > 0 ? largest.steps : 1,
                                   .step = has_step ? warm_step : NULL,
                                   .dry_run = warm_rehearse};
}

static ashlar_plan_stats plans(void) {
    ashlar_plan_stats stats;
    ashlar_plan_get_stats(allocator, &stats);
    return stats;
}

/* A step, or a prediction, on its plan. */
static void run_on_plan(const ashlar_warmup_options *as, const made_tags *made, bool predicts) {
    static int32_t labels[CELLS_MAX];
    const uint64_t key = ashlar_warmup_key(as, made->batch.shape.steps);
    const ashlar_tagger_bytes sizes = sizes_of(made->batch.shape);
    const ashlar_tagger_batch batch = copied(made);
    CHECK(ashlar_step_begin(allocator, streams[1], key) == ASHLAR_OK);
    CHECK((predicts ? ashlar__tagger_predict(tagger, &batch, &sizes, loss, labels)
                    : ashlar__tagger_step(tagger, &batch, &sizes, 0, loss)) == ASHLAR_OK);
    CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
}

/* Steps of drawn shapes, fewer words, sentences and characters than the largest has. */
static void run_drawn_steps(const ashlar_warmup_options *as, size_t count) {
    ashlar_random random;
    made_tags made;
    ashlar__random_init(&random, 11);
    for (size_t i = 0; i < count; i++) {
        int32_t lengths[BATCH_MAX];
        const ashlar_tagger_shape shape = {
            1 + (size_t)ashlar__random_below(&random, largest.steps),
            1 + (size_t)ashlar__random_below(&random, largest.batch),
            1 + (size_t)ashlar__random_below(&random, largest.width)};
        for (size_t b = 0; b < shape.batch; b++) { /* longest first */
            const size_t most = b == 0 ? shape.steps : (size_t)lengths[b - 1];
            lengths[b] = b == 0 ? (int32_t)most : 1 + (int32_t)ashlar__random_below(&random, most);
        }
        make_tags(&made, shape, lengths);
        run_on_plan(as, &made, i % 4 == 3);
    }
    wait_for(streams[1]);
}

/* A step of it takes more than the allocator maps for the weights. */
static void use_larger_sizes(void) {
    largest = (ashlar_tagger_shape){.steps = 15, .batch = 6, .width = 9};
    tagger_config.character_hidden = 40;
    tagger_config.hidden = 60;
}

static void check_steps_after_the_warm_up(size_t label_embedding) {
    ashlar_warmup_report report;
    use_larger_sizes();
    tagger_config.label_embedding = label_embedding;
    staging.batch.data = staging.data;
    REQUIRE(open_tagger_cached("memory=256MiB,mode=adversarial,seed=7", 64 * MIB));
    const ashlar_warmup_options as = warmup_to(true);
    CHECK(ashlar_allocator_warmup(allocator, &as, &report) == ASHLAR_OK);
    CHECK(report.is_planned && report.is_steady);
    const ashlar_plan_stats first = plans();
    const uint64_t reserved = stats_now().reserved_bytes, calls = management_calls();
    const size_t waits = CALLS(stream_synchronize);
    run_drawn_steps(&as, 200);
    const ashlar_plan_stats last = plans();
    CHECK_ZU(management_calls() - calls, /* of the batches; it ends with a wait */
             staging_calls(200, CALLS(stream_synchronize) - waits - 1));
    CHECK_ZU(stats_now().driver_calls_sealed, 0);
    CHECK_ZU(stats_now().reserved_peak_bytes, reserved);
    CHECK_ZU(ashlar_plan_miss_total(&last), ashlar_plan_miss_total(&first));
    CHECK_ZU(last.steps_replayed - first.steps_replayed, 200);
    CHECK(last.hits - first.hits >= 200 * 21);
    close_tagger();
}

CASE(after_the_warm_up_no_step_asks_the_driver_for_memory) {
    check_steps_after_the_warm_up(0);
    check_steps_after_the_warm_up(3); /* four blocks for every token */
}

/* ---- the reported case ---- */

/* 96 words of 25 sentences, 17 characters: what took 6.5 GB elsewhere. */
static void use_reported_sizes(void) {
    largest = (ashlar_tagger_shape){.steps = 96, .batch = 25, .width = 17};
    tagger_config = (ashlar_tagger_config){.words = 10000,
                                           .characters = 100,
                                           .tags = 45,
                                           .word_embedding = 200,
                                           .character_embedding = 50,
                                           .character_hidden = 100,
                                           .hidden = 200,
                                           .layers = 1,
                                           .cell = ASHLAR_RNN_LSTM,
                                           .directions = 2,
                                           .dtype = ASHLAR_F32};
}

static void check_reported_case(size_t label_embedding) {
    ashlar_tagger_estimate estimate;
    ashlar_warmup_report report;
    use_reported_sizes();
    tagger_config.label_embedding = label_embedding;
    REQUIRE(open_tagger_cached("memory=2GiB", 64 * MIB));
    REQUIRE(ashlar__tagger_estimate_make(tagger, &largest, 2, &estimate) == ASHLAR_OK);
    unsigned char *batches = take(estimate.batches_bytes, streams[1]);
    const ashlar_warmup_options as = warmup_to(false);
    CHECK(ashlar_allocator_warmup(allocator, &as, &report) == ASHLAR_OK);
    CHECK(report.is_planned && report.is_steady);
    give(batches);
    const ashlar_stats stats = stats_now();
    CHECK(stats.reserved_peak_bytes >= estimate.needed_bytes);
    CHECK((double)stats.reserved_peak_bytes <= 1.05 * (double)estimate.needed_bytes);
    CHECK(stats.reserved_peak_bytes < 400 * 1000 * 1000);
    close_tagger();
}

CASE(the_reported_case_takes_what_it_needs) {
    check_reported_case(0);
    check_reported_case(32);
}

/* ---- the text ---- */

CASE(the_estimate_is_printed_with_its_reasons) {
    ashlar_tagger_estimate estimate;
    use_reported_sizes();
    tagger_config.label_embedding = 32;
    REQUIRE(open_tagger("memory=2GiB"));
    REQUIRE(ashlar__tagger_estimate_make(tagger, &largest, 2, &estimate) == ASHLAR_OK);
    ashlar__tagger_estimate_print(text_begin(), &estimate,
                                  estimate.needed_bytes + estimate.needed_bytes / 50);
    const char *text = text_end();
    CHECK_HAS(text, "for 96 words (T) of 25 sentences (B), 17 characters (C)");
    CHECK_HAS(text, "vectors of labels of 32 (F)");
    CHECK_HAS(text,
              "* parameters                         [3110725]                    11.87  always");
    CHECK_HAS(
        text,
        "* characters' vectors                [C, T*B, E_c]                 7.78  CHAR_FORWARD to "
        "CHAR_WEIGHTS");
    CHECK_HAS(text,
              "  a token's logits                   [B, K]                        0.00  TOKEN\n");
    CHECK_HAS(text, "* CHAR_FORWARD     characters, forward");
    CHECK_HAS(text, "  TOKEN            the same token by token");
    CHECK_HAS(text, " MiB at CHAR_FORWARD, the peak (*): ");
    CHECK_HAS(text, "1.020 times that.");
    CHECK(strstr(text, "\n  logits ") == NULL); /* what is not taken */
}

RUN_CASES_AFTER(usual_tagger(); check_each = usual_tagger)
