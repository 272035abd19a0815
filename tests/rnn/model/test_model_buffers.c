/*
 * test_model_buffers.c - the buffers of one step of the model: their sizes, how long each is held,
 * and that all of them go back whatever fails.
 */
#include "tests/rnn/model/model_fixture.h"

static const int32_t LENGTHS[] = {5, 2, 6, 1};

/* ---- buffers ---- */

CASE_WITH(every_buffer_has_its_size_and_tag_and_goes_back, open_usual_model()) {
    made_batch made;
    ashlar_step_sizes s;
    make_batch(&made, 6, 4, LENGTHS);
    CHECK(ashlar__model_sizes(model, 6, 4, &s) == ASHLAR_OK);
    const ashlar_stats before = stats_now();
    run_step(&made);
    const ashlar_stats after = stats_now();
    CHECK(after.live_blocks == before.live_blocks && after.live_bytes == before.live_bytes);
    /* Forward's, backward's, the workspaces. */
    CHECK_ZU(after.alloc_count - before.alloc_count, 4 + 2 + 3);
    CHECK_ZU(after.tags[ASHLAR_TAG_SAVED].peak_bytes, s.reserve);
    CHECK_ZU(after.tags[ASHLAR_TAG_WORKSPACE].peak_bytes, s.work);
    /* x, y, dy and the logits; dx comes after y and the logits have gone. */
    CHECK_ZU(after.tags[ASHLAR_TAG_ACTIVATIONS].peak_bytes, s.x + 2 * s.y + s.logits);
}

/* Each product is the first to overflow for some shape. */
CASE(sizes_that_overflow_are_refused) {
    const size_t widths[][3] = {{1, 1, 1}, {64, 1, 1}, {1, 64, 1}, {1, 1, 64}};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        const ashlar_model_config config = {.embedding = widths[i][0],
                                            .hidden = widths[i][1],
                                            .classes = widths[i][2],
                                            .layers = 1};
        ashlar_step_sizes s = {.x = 77};
        REQUIRE(set_up("memory=64MiB"));
        REQUIRE(ashlar__model_create(allocator, streams[1], &config, ASHLAR_REGIONS_INFERENCE,
                                     &model) == ASHLAR_OK);
        const size_t steps[] = {SIZE_MAX / 4 / (i == 0 ? 1 : 64) + 1, SIZE_MAX, SIZE_MAX / 8};
        const size_t batches[] = {1, 1, 16};
        for (size_t j = 0; j < 3; j++) {
            CHECK_FAILS(ashlar__model_sizes(model, steps[j], batches[j], &s), ASHLAR_EOVERFLOW,
                        "too large to address");
            CHECK_ZU(s.x, 77);
        }
        CHECK(ashlar__model_sizes(model, 1, SIZE_MAX / 4 + 1, &s) == ASHLAR_EOVERFLOW);
        ashlar__model_destroy(model);
        tear_down();
    }
}

/* ---- failures ---- */

/* After a failure no block is held, and the same step run again has the same loss. */
static void check_recovers(const made_batch *made, uint64_t live_blocks, double loss) {
    CHECK_ZU(stats_now().live_blocks, live_blocks);
    run_step(made);
    CHECK(results->loss == loss);
    CHECK_ZU(stats_now().live_blocks, live_blocks);
}

CASE(a_failing_call_at_any_point_gives_every_buffer_back) {
    const int calls[] = {ASHLAR_DRIVER_FN_launch_host_func, ASHLAR_DRIVER_FN_memcpy_htod_async,
                         ASHLAR_DRIVER_FN_memset_d8_async, ASHLAR_DRIVER_FN_ctx_push_current};
    const size_t want_failures[] = {8, 3, 2, 13};
    made_batch made;
    REQUIRE(open_model("memory=64MiB,mode=adversarial,seed=1", ASHLAR_REGIONS_ALL));
    make_batch(&made, 6, 4, LENGTHS);
    run_step(&made);
    const double loss = results->loss;
    const uint64_t live_blocks = stats_now().live_blocks;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        FOR_DRIVER_FAILURES(n, status, calls[i], queue_step(&made)) {
            if (status != ASHLAR_OK) {
                check_recovers(&made, live_blocks, loss);
            }
        }
        CHECK_ZU(n - 1, want_failures[i]); /* so each one's status is looked at */
    }
    wait_for(streams[1]);
}

CASE_WITH(failing_host_memory_at_any_point_gives_every_buffer_back, open_usual_model()) {
    made_batch made;
    make_batch(&made, 6, 4, LENGTHS);
    run_step(&made);
    const double loss = results->loss;
    const uint64_t live_blocks = stats_now().live_blocks;
    ashlar_status status = ASHLAR_OK;
    size_t failures = 0;
    for (unsigned long n = 1; n <= 60; n++) { /* a copy of the batch waits where its event fails */
        HOST_FAILS_AT(n, status = queue_step(&made));
        failures += status == ASHLAR_EHOSTMEM || status == ASHLAR_ENOMEM;
        check_recovers(&made, live_blocks, loss);
    }
    CHECK(failures > 20 && status == ASHLAR_OK);
}

RUN_CASES_AFTER(check_each = usual_model)
