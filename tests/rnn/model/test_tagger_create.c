/*
 * test_tagger_create.c - building the tagger: its tensors, and how it cannot be built; the buffers
 * of a step, how long each is held, and that the estimate of all is what a training takes.
 */
#include "tests/rnn/model/tagger_fixture.h"

#include <ashlar/plan.h>

#include "rnn/model/tagger.h"
#include "tests/text.h"

static void check_tensor(const char *name, size_t rows, size_t cols) {
    size_t tensor = 0;
    ashlar_tensor_info info;
    CHECK(ashlar_arena_find(tagger->arena, name, &tensor) == ASHLAR_OK);
    ashlar_arena_tensor(tagger->arena, tensor, &info);
    CHECK(info.dtype == tagger_config.dtype);
    CHECK_ZU(info.rank, cols == 0 ? 1 : 2);
    CHECK_ZU(info.shape[0], rows);
    CHECK(cols == 0 || info.shape[1] == cols);
}

CASE(the_arena_holds_the_tensors_under_their_names) {
    tagger_config.dtype = ASHLAR_F32;
    REQUIRE(open_tagger("memory=64MiB"));
    CHECK_ZU(ashlar_arena_tensor_count(tagger->arena), 1 + 8 + 1 + 8 + 2);
    check_tensor("char_embedding.weight", 9, 3);
    check_tensor("char_lstm.weight_ih_l0", 16, 3);
    check_tensor("char_lstm.weight_hh_l0_reverse", 16, 4);
    check_tensor("word_embedding.weight", 13, 6);
    check_tensor("lstm.weight_ih_l0", 20, 6 + 2 * 4);
    check_tensor("lstm.bias_hh_l0_reverse", 20, 0);
    check_tensor("linear.weight", 5, 2 * 5);
    check_tensor("linear.bias", 5, 0);
    CHECK(tagger->parameters.label_embedding == NULL);
    CHECK(memcmp(&tagger->config, &tagger_config, sizeof tagger_config) == 0);
}

/* ---- failures ---- */

static ashlar_status create(void) {
    return ashlar__tagger_create(allocator, streams[1], &tagger_config, ASHLAR_REGIONS_ALL,
                                 &tagger);
}

CASE_WITH(configurations_that_cannot_be_are_refused, set_up("memory=64MiB")) {
    size_t *const counts[] = {&tagger_config.words,
                              &tagger_config.characters,
                              &tagger_config.tags,
                              &tagger_config.word_embedding,
                              &tagger_config.character_embedding,
                              &tagger_config.character_hidden,
                              &tagger_config.hidden,
                              &tagger_config.layers};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const size_t usual = *counts[i];
        *counts[i] = 0;
        CHECK(create() == ASHLAR_EINVAL && tagger == NULL);
        *counts[i] = SIZE_MAX;
        CHECK(create() == ASHLAR_EOVERFLOW && tagger == NULL);
        *counts[i] = usual;
    }
    tagger_config.directions = 3;
    CHECK(create() == ASHLAR_EINVAL && tagger == NULL);
    usual_tagger();
    tagger_config.dtype = ASHLAR_F16;
    CHECK(create() == ASHLAR_ENOTSUP && tagger == NULL);
    usual_tagger();
    tear_down();
    ashlar__tagger_destroy(NULL);
}

/* ---- how long ---- */

/* The estimate is the sum at the peak, and the peak is the allocator's. */
CASE(the_estimate_is_what_is_live_at_the_peak) {
    made_tags made;
    ashlar_tagger_estimate estimate;
    const size_t labels[] = {0, 3, 0, 0, 200}, tags[] = {5, 5, 900, 5, 5};
    const size_t character_hidden[] = {4, 4, 4, 12, 4};
    const ashlar_tagger_phase peaks[] = {ASHLAR_TAGGER_WORD_BACKWARD, ASHLAR_TAGGER_WORD_BACKWARD,
                                         ASHLAR_TAGGER_LABEL, ASHLAR_TAGGER_CHAR_FORWARD,
                                         ASHLAR_TAGGER_TOKEN};
    for (size_t i = 0; i < 5; i++) {
        tagger_config.label_embedding = labels[i];
        tagger_config.tags = tags[i];
        tagger_config.character_hidden = character_hidden[i];
        REQUIRE(open_tagger("memory=64MiB"));
        make_tags(&made, SHAPE, LENGTHS);
        (void)run_tags(&made);
        REQUIRE(ashlar__tagger_estimate_make(tagger, &SHAPE, 3, &estimate) == ASHLAR_OK);
        CHECK_ZU(estimate.weights_bytes + estimate.step_bytes + sizeof *loss + sizeof made.data,
                 stats_now().live_peak_bytes);
        CHECK_ZU(estimate.batches_bytes, 3 * 4 * (4 * 24 + 4 + 5 * 24));
        CHECK_ZU(estimate.weights_bytes + estimate.batches_bytes + estimate.step_bytes,
                 estimate.needed_bytes);
        CHECK_ZU(estimate.weights_bytes,
                 4 * ashlar_arena_region_bytes(tagger->arena, ASHLAR_REGION_PARAMETERS));
        CHECK(estimate.peak == peaks[i]);
        close_tagger();
    }
}

/* ---- failures ---- */

/* After a failure no block is held, and the same step run again has the same loss. */
static void check_recovers(const made_tags *made, uint64_t live_blocks, double want) {
    CHECK_ZU(stats_now().live_blocks, live_blocks);
    CHECK(run_tags(made) == want);
}

static void check_failing_calls(size_t launches, size_t pushes) {
    const int calls[] = {ASHLAR_DRIVER_FN_launch_host_func, ASHLAR_DRIVER_FN_ctx_push_current};
    const size_t want_failures[] = {launches, pushes};
    made_tags made;
    REQUIRE(open_tagger("memory=64MiB,mode=adversarial,seed=1"));
    make_tags(&made, SHAPE, LENGTHS);
    const double want = run_tags(&made);
    const uint64_t live_blocks = stats_now().live_blocks;
    const ashlar_tagger_bytes sizes = sizes_of(SHAPE);
    const ashlar_tagger_batch batch = copied(&made);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        FOR_DRIVER_FAILURES(n, status, calls[i],
                            ashlar__tagger_step(tagger, &batch, &sizes, 0, loss)) {
            if (status != ASHLAR_OK) {
                check_recovers(&made, live_blocks, want);
            }
        }
        CHECK_ZU(n - 1, want_failures[i]); /* so each one's status is looked at */
    }
    wait_for(streams[1]);
    close_tagger();
}

/*
 * Launches: two embeddings, two forward, three of joining, three of labelling, four backward, three
 * of splitting, two embeddings. With feedback, instead of the three: of each of six tokens six,
 * a split, and but for the first two embeddings and one more split.
 */
CASE(a_failing_call_at_any_point_gives_every_buffer_back) {
    check_failing_calls(2 + 2 + 3 + 3 + 4 + 3 + 2, 19);
    tagger_config.label_embedding = 3;
    check_failing_calls(16 + 6 * 7 + 5 * 3, 16 + 6 * 7 + 1 + 5 * 3);
}

/* ---- the estimate is what a training takes ---- */

static ashlar_tagger_shape largest;

static ashlar_status rehearse(void *user, size_t length) {
    (void)user;
    const ashlar_tagger_bytes sizes =
        sizes_of((ashlar_tagger_shape){length, largest.batch, largest.width});
    return ashlar__tagger_dry_run(tagger, &sizes);
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
    const ashlar_warmup_options as = {.stream = streams[1],
                                      .min_length = 1,
                                      .max_length = largest.steps,
                                      .length_range_count = label_embedding > 0 ? largest.steps : 1,
                                      .dry_run = rehearse};
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
    CHECK_HAS(text, "* parameters                             11.87  always\n");
    CHECK_HAS(text,
              "* characters' vectors                     7.78  CHAR_FORWARD to CHAR_WEIGHTS\n");
    CHECK_HAS(text, "  a token's logits                        0.00  TOKEN\n");
    CHECK_HAS(text, " MiB at CHAR_FORWARD, the peak (*): ");
    CHECK_HAS(text, "1.020 times that.");
    CHECK(strstr(text, "\n  logits ") == NULL); /* what is not taken */
}

RUN_CASES_AFTER(usual_tagger(); check_each = usual_tagger)
