/*
 * test_recompute.c - a step in chunks of time: the gradients of the whole step in the memory of a
 * chunk.
 */
#include "tests/rnn/train/window_fixture.h"

#include "rnn/layer/backend.h"

static const int32_t LENGTHS[] = {5, 2, 13, 1};
static const int32_t SORTED[] = {13, 12, 12, 8, 4, 1};
static const int32_t EQUAL[] = {12, 12};

static const struct {
    size_t steps, count;
    const int32_t *lengths;
} BATCHES[] = {{13, 4, LENGTHS}, {13, 6, SORTED}, {12, 2, EQUAL}, {14, 4, LENGTHS}};
enum { BATCHES_COUNT = sizeof BATCHES / sizeof BATCHES[0] };

static answer whole, chunked;

static double weight_of(const made_batch *made) {
    return 1 / (double)made->batch.tokens;
}

static void check_chunks(size_t chunk) {
    for (size_t i = 0; i < BATCHES_COUNT; i++) {
        made_batch made;
        make_batch(&made, BATCHES[i].steps, BATCHES[i].count, BATCHES[i].lengths);
        run_window(&made, &(recipe){.chunk = 0}, &whole);
        run_window(&made, &(recipe){.chunk = chunk, .weight = weight_of(&made)}, &chunked);
        check_same(&chunked, &whole, 1e-10);
    }
}

CASE(gradients_are_those_of_the_step_at_once) {
    for (int i = 0; i <= ASHLAR_RNN_CELL_COUNT; i++) {
        model_config.cell = (ashlar_rnn_cell)(i % ASHLAR_RNN_CELL_COUNT);
        model_config.projection = i == ASHLAR_RNN_CELL_COUNT ? 7 : 0;
        REQUIRE(open_window("memory=64MiB"));
        for (size_t chunk = 1; chunk <= 15; chunk += chunk < 8 ? 1 : 3) {
            check_chunks(chunk);
        }
        close_window();
    }
}

CASE(one_layer_and_three_are_alike) {
    for (size_t layers = 1; layers <= 3; layers += 2) {
        model_config.layers = layers;
        REQUIRE(open_window("memory=64MiB"));
        check_chunks(4);
        close_window();
    }
}

/* Here the step at once drops other outputs, so its gradients are no reference. */
CASE(with_dropout_gradients_are_the_slopes_of_the_loss) {
    model_config.dropout = 0.3;
    for (int i = 0; i <= ASHLAR_RNN_CELL_COUNT; i++) {
        made_batch made;
        model_config.cell = (ashlar_rnn_cell)(i % ASHLAR_RNN_CELL_COUNT);
        model_config.projection = i == ASHLAR_RNN_CELL_COUNT ? 7 : 0;
        if (model_config.cell == ASHLAR_RNN_RELU) {
            continue; /* has no slope at 0, where dropout puts it */
        }
        REQUIRE(open_window("memory=64MiB"));
        model->dropout_seed = 99;
        make_batch(&made, 13, 4, LENGTHS);
        check_slopes(&made, &(recipe){.chunk = 4, .weight = weight_of(&made)});
        close_window();
    }
}

/* A chunk drops what a window of its own would with its seed: the first that of the step. */
CASE(each_chunk_drops_its_own_outputs) {
    const uint64_t stride = UINT64_C(0xd1342543de82ef95);
    static answer first, second;
    ashlar_step_sizes sizes;
    made_batch made;
    model_config.dropout = 0.5;
    REQUIRE(open_window("memory=64MiB"));
    make_batch(&made, 12, 2, EQUAL);
    const double weight = weight_of(&made);
    CHECK(ashlar__model_sizes(model, 12, 2, &sizes) == ASHLAR_OK);
    unsigned char *set = take(sizes.state, streams[1]);
    model->dropout_seed = 99;
    run_window(&made, &(recipe){.weight = weight}, &whole);
    run_window(&made, &(recipe){.chunk = 12, .weight = weight}, &chunked);
    check_same(&chunked, &whole, 0); /* the same bits */
    run_window(&made, &(recipe){.chunk = 6, .weight = weight}, &chunked);
    run_window(&made, &(recipe){.weight = weight, .steps = 6, .last = set}, &first);
    for (int i = 0; i < 2; i++) {
        model->dropout_seed = 99 + (i == 0 ? stride : 0);
        run_window(&made, &(recipe){.weight = weight, .first_step = 6, .first = set}, &second);
        CHECK((fabs(first.loss + second.loss - chunked.loss) < 1e-12) == (i == 0));
    }
    give(set);
}

/* In single precision, leftovers in every buffer, work delayed: the same bits. */
CASE(the_order_of_execution_does_not_change_a_bit) {
    static const char *const specs[] = {"memory=64MiB", "memory=64MiB,mode=adversarial,seed=1",
                                        "memory=64MiB,mode=adversarial,seed=2"};
    made_batch made;
    make_batch(&made, 13, 6, SORTED);
    for (size_t i = 0; i < 3; i++) {
        REQUIRE(open_window(specs[i]));
        unsigned char *dirty = take((size_t)1 << 20, streams[1]);
        CHECK(ashlar_fill(device, dirty, 0xff, (size_t)1 << 20, streams[1]) == ASHLAR_OK);
        give(dirty);
        for (int again = 0; again < 2; again++) {
            run_window(&made, &(recipe){.chunk = 3, .weight = weight_of(&made)}, &chunked);
            if (i == 0 && again == 0) {
                whole = chunked;
            }
            check_same(&chunked, &whole, 0);
        }
        close_window();
    }
}

/* ---- memory and work ---- */

static size_t passes[3];
static size_t forwards_without_reserve;

static ashlar_status count_passes(const ashlar_rnn *rnn, ashlar_rnn_pass pass,
                                  const ashlar_rnn_batch *batch, const ashlar_rnn_buffers *buffers,
                                  ashlar_stream stream) {
    passes[pass]++;
    forwards_without_reserve += buffers->reserve == NULL;
    return ashlar__rnn_backend_cpu.queue(rnn, pass, batch, buffers, stream);
}

/* Forward of each chunk but the last to keep the states, and of each for its gradients. */
CASE(no_pass_is_run_that_is_not_needed) {
    const ashlar_rnn_backend counting = {.sizes = ashlar__rnn_backend_cpu.sizes,
                                         .queue = count_passes};
    made_batch made;
    make_batch(&made, 13, 4, LENGTHS);
    for (int i = 0; i < 2; i++) {
        model_config.dropout = i == 0 ? 0 : 0.5;
        memset(passes, 0, sizeof passes);
        forwards_without_reserve = 0;
        REQUIRE(open_window("memory=64MiB"));
        model->rnn->backend = &counting;
        const uint64_t launches = CALLS(launch_host_func);
        run_window(&made, &(recipe){.chunk = 4, .weight = 1}, &chunked);
        CHECK_ZU(passes[ASHLAR_RNN_FORWARD], 3 + 4);
        CHECK_ZU(forwards_without_reserve, i == 0 ? 3 : 0); /* only with one, outputs are dropped */
        CHECK_ZU(passes[ASHLAR_RNN_BACKWARD_DATA], 4);
        CHECK_ZU(passes[ASHLAR_RNN_BACKWARD_WEIGHTS], 4);
        CHECK_ZU(CALLS(launch_host_func) - launches, 3 * 2 + 4 * 8); /* no logits before the end */
        close_window();
    }
}

CASE_WITH(buffers_are_those_of_a_chunk_and_go_back, open_window("memory=64MiB")) {
    made_batch made;
    ashlar_step_sizes s, all, one;
    make_batch(&made, 13, 4, LENGTHS);
    CHECK(ashlar__model_chunk_sizes(model, 13, 4, 4, &s) == ASHLAR_OK);
    CHECK(ashlar__model_chunk_sizes(model, 13, 4, 0, &all) == ASHLAR_OK);
    CHECK(ashlar__model_sizes(model, 4, 4, &one) == ASHLAR_OK);
    CHECK(s.x == one.x && s.y == one.y && s.logits == one.logits && s.reserve == one.reserve);
    CHECK(s.work >= one.work && all.x > 3 * s.x && all.states == 0);
    /* h and c of two layers; three borders, and two gradients at a time */
    CHECK_ZU(s.cells, (LAYERS * 4 * HIDDEN * 8 + 255) / 256 * 256);
    CHECK_ZU(s.state, 2 * s.cells);
    CHECK_ZU(s.states, (3 + 2) * s.state);
    const ashlar_stats before = stats_now();
    run_window(&made, &(recipe){.chunk = 4, .weight = 1}, &chunked);
    const ashlar_stats after = stats_now();
    CHECK(after.live_blocks == before.live_blocks && after.live_bytes == before.live_bytes);
    CHECK_ZU(after.alloc_count - before.alloc_count, 8);
    CHECK_ZU(after.tags[ASHLAR_TAG_SAVED].peak_bytes, s.reserve);
    CHECK_ZU(after.tags[ASHLAR_TAG_WORKSPACE].peak_bytes, s.work);
    CHECK_ZU(after.tags[ASHLAR_TAG_ACTIVATIONS].peak_bytes,
             2 * s.x + 2 * s.y + s.logits + s.states);
}

/* Sizes that shrink with the length, as a back end's may: the rest of 1 needs more than the 4. */
static ashlar_status odd_sizes(const ashlar_rnn *rnn, size_t steps, size_t batch, bool training,
                               size_t *reserve, size_t *work) {
    const ashlar_status status =
        ashlar__rnn_backend_cpu.sizes(rnn, steps, batch, training, reserve, work);
    *reserve = training ? 1000000 - steps : 0;
    *work = (training ? 2000000 : 3000000) - steps;
    return status;
}

CASE_WITH(sizes_are_those_of_the_largest_chunk_and_of_the_rest, open_window("memory=64MiB")) {
    const ashlar_rnn_backend odd = {.sizes = odd_sizes, .queue = ashlar__rnn_backend_cpu.queue};
    ashlar_step_sizes s;
    model->rnn->backend = &odd;
    CHECK(ashlar__model_chunk_sizes(model, 13, 4, 4, &s) == ASHLAR_OK);
    CHECK_ZU(s.reserve, 1000000 - 1);
    CHECK_ZU(s.work, 3000000 - 1); /* of a forward pass for the states */
    CHECK(ashlar__model_chunk_sizes(model, 12, 4, 4, &s) == ASHLAR_OK);
    CHECK_ZU(s.reserve, 1000000 - 4);
    CHECK(ashlar__model_chunk_sizes(model, 3, 4, 4, &s) == ASHLAR_OK);
    CHECK_ZU(s.reserve, 1000000 - 3);
    CHECK_ZU(s.states, 0);
    CHECK(ashlar__model_chunk_sizes(model, 0, 4, 4, &s) == ASHLAR_EINVAL);
    CHECK(ashlar__model_chunk_sizes(model, 4, SIZE_MAX / 64, 2, &s) == ASHLAR_EOVERFLOW);
    CHECK(ashlar__model_chunk_sizes(model, SIZE_MAX / 16, 4, 1, &s) == ASHLAR_EOVERFLOW);
    close_window(); /* before the back end goes */
}

static void check_peak(size_t chunk, size_t loss_work) {
    ashlar_step_sizes s;
    REQUIRE(open_window("memory=64MiB"));
    CHECK(ashlar__model_chunk_sizes(model, 13, 4, chunk, &s) == ASHLAR_OK);
    s.loss_work = loss_work;
    size_t *const fields[] = {&s.x, &s.y, &s.logits, &s.reserve, &s.work, &s.states};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        *fields[i] = (*fields[i] + 511) / 512 * 512;
    }
    const uint64_t live = stats_now().live_bytes;
    CHECK_ZU(stats_now().live_peak_bytes, live);
    CHECK(ashlar__model_dry_run(model, chunk != 0, &s) == ASHLAR_OK);
    CHECK_ZU(stats_now().live_peak_bytes - live, ashlar__model_step_peak(chunk != 0, &s));
    close_window();
}

/* What is computed is what is measured, whichever moment the peak is at; also of a step at once. */
CASE(the_computed_peak_is_the_measured_one) {
    for (size_t wide = 0; wide < 3; wide++) {
        model_config.embedding = wide == 1 ? 300 : EMBEDDING;
        model_config.classes = wide == 2 ? 300 : CLASSES;
        for (size_t chunk = 0; chunk < 6; chunk += 2) {
            check_peak(chunk, 0);
            check_peak(chunk, 1024); /* of another back end */
            check_peak(chunk, 1 << 20);
        }
    }
}

/* Activations and reserve at T = 1024 in chunks of twice the root: an eighth at most, of any cell.
 */
CASE(long_steps_take_an_eighth_of_the_memory) {
    enum { T = 1024, CHUNK = 64, AT_LEAST = 8 };
    for (int i = 0; i <= ASHLAR_RNN_CELL_COUNT; i++) {
        model_config = (ashlar_model_config){.classes = 256,
                                             .embedding = 64,
                                             .hidden = 256,
                                             .layers = 2,
                                             .cell = (ashlar_rnn_cell)(i % ASHLAR_RNN_CELL_COUNT),
                                             .projection = i == ASHLAR_RNN_CELL_COUNT ? 128 : 0};
        ashlar_step_sizes all, chunk;
        REQUIRE(open_usual_model());
        CHECK(ashlar__model_chunk_sizes(model, T, 16, 0, &all) == ASHLAR_OK);
        CHECK(ashlar__model_chunk_sizes(model, T, 16, CHUNK, &chunk) == ASHLAR_OK);
        const size_t at_once = all.x + all.y + all.logits + all.reserve;
        const size_t held = 2 * chunk.x + 2 * chunk.y + chunk.logits + chunk.reserve + chunk.states;
        CHECK(held * AT_LEAST <= at_once);
        CHECK(ashlar__model_step_peak(true, &chunk) * AT_LEAST <=
              ashlar__model_step_peak(false, &all));
        close_model();
    }
}

/* ---- failures ---- */

CASE_WITH(a_failing_call_at_any_point_gives_every_buffer_back, open_window("memory=64MiB")) {
    static const int calls[] = {ASHLAR_DRIVER_FN_launch_host_func,
                                ASHLAR_DRIVER_FN_ctx_push_current};
    made_batch made;
    make_batch(&made, 13, 4, LENGTHS);
    const recipe r = {.chunk = 4, .weight = 1};
    run_window(&made, &r, &whole);
    const uint64_t live_blocks = stats_now().live_blocks;
    for (size_t i = 0; i < 2; i++) {
        uint64_t n = i == 0 ? 1 : 2; /* the fixture's own copy comes first */
        for (ashlar_status status = ASHLAR_EDRIVER; status != ASHLAR_OK && n < 200; n++) {
            DRIVER_FAILS_AT(calls[i], n, CU_UNKNOWN, status = queue_window(&made, &r));
            CHECK(status == ASHLAR_OK || status == ASHLAR_EDRIVER);
            CHECK_ZU(stats_now().live_blocks, live_blocks);
        }
        CHECK_ZU(n - 2, 3 * 2 + 4 * 8 + i);
    }
    wait_for(streams[1]);
    run_window(&made, &r, &chunked);
    check_same(&chunked, &whole, 0);
}

CASE(each_allocation_may_be_the_one_that_fails) {
    const size_t big = (size_t)5 << 20;
    const ashlar_step_sizes sizes = {.x = big,
                                     .y = big,
                                     .logits = big,
                                     .reserve = big,
                                     .work = big,
                                     .loss_work = big,
                                     .states = big};
    size_t failures = 0;
    for (ashlar_status status = ASHLAR_ENOMEM; status != ASHLAR_OK && failures < 50; failures++) {
        REQUIRE(open_window("memory=256MiB"));
        const uint64_t live_blocks = stats_now().live_blocks;
        DRIVER_FAILS_AT(ASHLAR_DRIVER_FN_mem_create, failures + 1, CU_UNKNOWN,
                        status = ashlar__model_dry_run(model, true, &sizes));
        CHECK(status == ASHLAR_OK || status == ASHLAR_EDRIVER);
        CHECK_ZU(stats_now().live_blocks, live_blocks);
        close_window();
    }
    CHECK(failures >= 9 + 1); /* each of nine takes at least one handle */
}

RUN_CASES_AFTER(check_each = usual_model)
