/*
 * test_tagger_buffers.c - the buffers of one step of the tagger: their sizes, how long each is
 * held, and that all of them go back whatever fails.
 */
#include "tests/rnn/model/tagger_fixture.h"
#include "tests/rnn/model/thief_fixture.h"

#include "rnn/model/tagger_memory.h"

static ashlar_status cpu_sizes(const ashlar_rnn *rnn, size_t steps, size_t batch, bool training,
                               size_t *reserve, size_t *work) {
    return ashlar__rnn_backend_cpu.sizes(rnn, steps, batch, training, reserve, work);
}

/* ---- how long ---- */

/* What is live while each pass of the two RNNs is queued. */
static uint64_t live_at[2][3];

static ashlar_status note_live(const ashlar_rnn *rnn, ashlar_rnn_pass pass,
                               const ashlar_rnn_batch *batch, const ashlar_rnn_buffers *buffers,
                               ashlar_stream stream) {
    live_at[rnn == tagger->character_rnn ? 0 : 1][pass] = stats_now().live_bytes;
    return ashlar__rnn_backend_cpu.queue(rnn, pass, batch, buffers, stream);
}

static const ashlar_rnn_backend noting = {.sizes = cpu_sizes, .queue = note_live};

CASE(no_buffer_is_held_longer_than_it_is_needed) {
    made_tags made;
    size_t spell_reserve, spell_work, read_reserve, read_work;
    for (size_t feeds = 0; feeds < 2; feeds++) {
        tagger_config.label_embedding = 3 * feeds;
        REQUIRE(open_tagger("memory=64MiB"));
        tagger->character_rnn->backend = tagger->word_rnn->backend = &noting;
        make_tags(&made, SHAPE, LENGTHS);
        const size_t words = 6 * 4, letters = 5 * words, item = sizeof(double);
        CHECK(ashlar_rnn_sizes(tagger->character_rnn, 5, words, true, &spell_reserve,
                               &spell_work) == ASHLAR_OK);
        CHECK(ashlar_rnn_sizes(tagger->word_rnn, 6, 4, true, &read_reserve, &read_work) ==
              ASHLAR_OK);
        const size_t spelling = letters * 3 * item + spell_reserve;   /* vectors of 3 */
        const size_t reading = words * (6 + 8) * item + read_reserve; /* inputs of 6 + 2 x 4 */
        const size_t outputs = words * 10 * item, inputs = words * 14 * item; /* 2 x 5 */
        const uint64_t before = stats_now().live_bytes;
        (void)run_tags(&made);
        for (size_t i = 0; i < 6; i++) {
            live_at[i / 3][i % 3] -= before;
        }
        CHECK_ZU(live_at[0][ASHLAR_RNN_FORWARD], /* outputs, and last states, of 2 x 4 */
                 spelling + letters * 8 * item + words * 8 * item + spell_work);
        CHECK_ZU(live_at[1][ASHLAR_RNN_FORWARD], spelling + reading + outputs + read_work);
        CHECK_ZU(live_at[1][ASHLAR_RNN_BACKWARD_DATA], /* dy, dx */
                 spelling + reading + outputs + inputs + read_work);
        CHECK_ZU(live_at[1][ASHLAR_RNN_BACKWARD_WEIGHTS], /* dx */
                 spelling + reading + inputs + read_work);
        CHECK_ZU(live_at[0][ASHLAR_RNN_BACKWARD_DATA], /* of the last states, and of the vectors */
                 spelling + words * 8 * item + letters * 3 * item + spell_work);
        CHECK_ZU(live_at[0][ASHLAR_RNN_BACKWARD_WEIGHTS], spelling + spell_work);
        close_tagger();
    }
}

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

CASE_WITH(sizes_are_those_of_the_shapes, open_tagger("memory=64MiB")) {
    const size_t words = 6 * 4, letters = 5 * words;
    ashlar_tagger_bytes s = sizes_of(SHAPE);
    CHECK_ZU(s.steps, 6);
    CHECK_ZU(s.of[ASHLAR_TAGGER_BUFFER_CHAR_INPUTS], 8 * letters * 3);
    CHECK_ZU(s.of[ASHLAR_TAGGER_BUFFER_CHAR_OUTPUTS], 8 * letters * 8);
    CHECK_ZU(s.of[ASHLAR_TAGGER_BUFFER_CHAR_STATES], 8 * words * 8);
    CHECK_ZU(s.of[ASHLAR_TAGGER_BUFFER_WORD_VECTORS], 8 * words * 6);
    CHECK_ZU(s.of[ASHLAR_TAGGER_BUFFER_WORD_INPUTS], 8 * words * 14);
    CHECK_ZU(s.of[ASHLAR_TAGGER_BUFFER_WORD_OUTPUTS], 8 * words * 10);
    CHECK_ZU(s.of[ASHLAR_TAGGER_BUFFER_LOGITS], 8 * words * 5);
    CHECK_ZU(s.of[ASHLAR_TAGGER_BUFFER_LABELS], 4 * words);
    CHECK_ZU(s.of[ASHLAR_TAGGER_BUFFER_TOKEN_INPUTS], 0);
    close_tagger();
    tagger_config.label_embedding = 3;
    tagger_config.directions = 1;
    tagger_config.projection = 2;
    REQUIRE(open_tagger("memory=64MiB"));
    s = sizes_of(SHAPE);
    CHECK_ZU(s.of[ASHLAR_TAGGER_BUFFER_WORD_OUTPUTS], 8 * words * 2);
    CHECK_ZU(s.of[ASHLAR_TAGGER_BUFFER_LOGITS], 0);
    CHECK_ZU(s.of[ASHLAR_TAGGER_BUFFER_TOKEN_LABELS], 8 * 4 * 3);
    CHECK_ZU(s.of[ASHLAR_TAGGER_BUFFER_TOKEN_INPUTS], 8 * 4 * 5);
    CHECK_ZU(s.of[ASHLAR_TAGGER_BUFFER_TOKEN_LOGITS], 8 * 4 * 5);
}

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

CASE_WITH(a_failing_copy_of_labels_gives_every_buffer_back, open_tagger("memory=64MiB")) {
    made_tags made;
    int32_t labels[64];
    make_tags(&made, SHAPE, LENGTHS);
    const ashlar_tagger_bytes sizes = sizes_of(SHAPE);
    const ashlar_tagger_batch batch = copied(&made);
    const uint64_t live_blocks = stats_now().live_blocks;
    DRIVER_FAILS_AT(
        ASHLAR_DRIVER_FN_memcpy_dtoh_async, 1, CU_UNKNOWN,
        CHECK(ashlar__tagger_predict(tagger, &batch, &sizes, loss, labels) == ASHLAR_EDRIVER));
    CHECK_ZU(stats_now().live_blocks, live_blocks);
    wait_for(streams[1]);
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

/* Buffers that are each larger than what is mapped at once: the n-th of them finds no memory. */
CASE(each_allocation_may_be_the_one_that_fails) {
    made_tags made;
    size_t failures = 0;
    make_tags(&made, SHAPE, LENGTHS);
    for (ashlar_status status = ASHLAR_ENOMEM; status != ASHLAR_OK && failures < 50; failures++) {
        tagger_config.label_embedding = 3;
        REQUIRE(open_tagger("memory=256MiB"));
        ashlar_tagger_bytes sizes = sizes_of(SHAPE);
        for (size_t i = 0; i < ASHLAR_TAGGER_BUFFER_COUNT; i++) {
            sizes.of[i] = sizes.of[i] > 0 ? 5 * MIB : 0;
        }
        const ashlar_tagger_batch batch = copied(&made);
        const uint64_t live_blocks = stats_now().live_blocks;
        DRIVER_FAILS_AT(ASHLAR_DRIVER_FN_mem_create, failures + 1, CU_UNKNOWN,
                        status = ashlar__tagger_step(tagger, &batch, &sizes, 0, loss));
        CHECK(status == ASHLAR_OK || status == ASHLAR_EDRIVER);
        CHECK_ZU(stats_now().live_blocks, live_blocks);
        close_tagger();
    }
    CHECK(failures > 8);
}

CASE(a_buffer_that_cannot_be_given_back_is_reported) {
    const ashlar_rnn_backend thief = {.sizes = cpu_sizes, .queue = thief_queue};
    made_tags made;
    make_tags(&made, SHAPE, LENGTHS);
    REQUIRE(open_tagger("memory=64MiB"));
    tagger->word_rnn->backend = &thief;
    const uint64_t live_blocks = stats_now().live_blocks;
    for (size_t i = 0; i < THEFT_COUNT; i++) {
        thiefs = &THEFTS[i];
        CHECK(queue_tags(&made) == ASHLAR_EPOINTER);
        CHECK_ZU(stats_now().live_blocks, live_blocks);
    }
    close_tagger(); /* before the back end goes */
}

RUN_CASES_AFTER(usual_tagger(); check_each = usual_tagger)
