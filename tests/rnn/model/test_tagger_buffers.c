/*
 * test_tagger_buffers.c - the buffers of one step of the tagger: their sizes, how long each is
 * held, and that all of them go back whatever fails.
 */
#include "tests/rnn/model/tagger_fixture.h"

#include "rnn/model/tagger_memory.h"

/* ---- how long ---- */

CASE(every_buffer_has_its_tag_and_goes_back) {
    made_tags made;
    int32_t labels[64];
    for (size_t feeds = 0; feeds < 2; feeds++) {
        tagger_config.label_embedding = 3 * feeds;
        REQUIRE(open_tagger("memory=64MiB"));
        make_tags(&made, SHAPE, LENGTHS);
        const ashlar_tagger_bytes sizes = sizes_of(SHAPE);
        const ashlar_stats before = stats_now();
        (void)run_tags(&made);
        const ashlar_stats after = stats_now();
        CHECK(after.live_blocks == before.live_blocks && after.live_bytes == before.live_bytes);
        /* With the logits, or with four for each of six tokens. The CPU's loss needs no work. */
        CHECK_ZU(after.alloc_count - before.alloc_count, feeds ? 20 + 6 * 4 : 20 + 1);
        CHECK_ZU(after.tags[ASHLAR_TAG_SAVED].peak_bytes,
                 sizes.of[ASHLAR_TAGGER_BUFFER_CHAR_RESERVE] +
                     sizes.of[ASHLAR_TAGGER_BUFFER_WORD_RESERVE]);
        CHECK_ZU(after.tags[ASHLAR_TAG_WORKSPACE].peak_bytes,
                 sizes.of[ASHLAR_TAGGER_BUFFER_CHAR_FORWARD_WORK]);
        (void)predict_tags(&made, labels); /* the same buffers */
        CHECK_ZU(stats_now().alloc_count - after.alloc_count,
                 after.alloc_count - before.alloc_count);
        CHECK(ashlar__tagger_dry_run(tagger, &sizes) == ASHLAR_OK);
        CHECK_ZU(stats_now().alloc_count - after.alloc_count,
                 2 * (after.alloc_count - before.alloc_count));
        CHECK_ZU(stats_now().live_peak_bytes, after.live_peak_bytes);
        close_tagger();
    }
}

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

/* ---- sizes ---- */

CASE(sizes_that_overflow_are_refused) {
    const ashlar_tagger_shape shapes[] = {{0, 4, 5}, {6, 4, SIZE_MAX}, {1 << 15, 1 << 14, 1}};
    const ashlar_status want[] = {ASHLAR_EINVAL, ASHLAR_EOVERFLOW, ASHLAR_EOVERFLOW};
    tagger_config.tags = (size_t)1 << 31;
    tagger_config.hidden = 1;
    REQUIRE(set_up("memory=64MiB"));
    CHECK(ashlar__tagger_create(allocator, streams[1], &tagger_config, ASHLAR_REGIONS_INFERENCE,
                                &tagger) == ASHLAR_ENOMEM); /* 48 GiB */
    tear_down();
    usual_tagger();
    tagger_config.tags = 1;
    REQUIRE(open_tagger("memory=64MiB"));
    tagger->config.tags = SIZE_MAX / 64; /* which no arena could hold */
    for (size_t i = 0; i < 3; i++) {
        ashlar_tagger_bytes sizes = {.steps = 77};
        CHECK(ashlar__tagger_sizes(tagger, &shapes[i], &sizes) == want[i]);
        CHECK_ZU(sizes.steps, 77);
    }
    tagger->config.tags = 1;
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

CASE_WITH(failing_host_memory_at_any_point_gives_every_buffer_back, open_tagger("memory=64MiB")) {
    made_tags made;
    make_tags(&made, SHAPE, LENGTHS);
    const double want = run_tags(&made);
    const uint64_t live_blocks = stats_now().live_blocks;
    const ashlar_tagger_bytes sizes = sizes_of(SHAPE);
    const ashlar_tagger_batch batch = copied(&made);
    unsigned long n = 1;
    for (ashlar_status status = ASHLAR_EHOSTMEM; status != ASHLAR_OK && n < 500; n++) {
        HOST_FAILS_AT(n, status = ashlar__tagger_step(tagger, &batch, &sizes, 0, loss));
        check_recovers(&made, live_blocks, want);
    }
    CHECK(n > 19);
}

RUN_CASES_AFTER(usual_tagger(); check_each = usual_tagger)
