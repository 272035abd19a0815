/*
 * test_text_sampler.c - drawing text symbol by symbol, against one long forward pass in double
 * precision and the same random numbers.
 */
#include "tests/rnn/model/sampled_fixture.h"

#include <math.h>

#include "arena/compute/convert.h"
#include "rnn/engine/engine.h"
#include "rnn/layer/ops.h"

static ashlar_text_sampler *sampler;

enum { DRAWN = 60, HISTORY = 1 + DRAWN + 8 };

static float *parameters(void) {
    return ashlar_arena_region(ashlar_model_arena(sampled.model), ASHLAR_REGION_PARAMETERS);
}

/* Weights large enough that what was read before matters. */
static bool open_lively_model(const char *spec) {
    if (!open_model(spec) ||
        ashlar_model_init(sampled.model, ASHLAR_INIT_ASHLAR, 3, streams[1]) != ASHLAR_OK ||
        ashlar_stream_synchronize(device, streams[1]) != ASHLAR_OK) {
        return false;
    }
    const size_t bytes = ashlar_arena_get_info(ashlar_model_arena(sampled.model))
                             .region_bytes[ASHLAR_REGION_PARAMETERS];
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        parameters()[i] *= 6;
    }
    return true;
}

static ashlar_status create_sampler(double temperature, uint64_t seed) {
    const ashlar_text_sampler_config config = {.sampling = {.temperature = temperature, .top_p = 1},
                                               .seed = seed};
    return ashlar__text_sampler_create(&sampled, &config, &sampler);
}

static void close_sampler(void) {
    ashlar__text_sampler_destroy(sampler);
    sampler = NULL;
    close_model();
}

static bool open_sampler(double temperature, uint64_t seed) {
    return create_sampler(temperature, seed) == ASHLAR_OK && check_at_end(close_sampler);
}

static void draw(int32_t *symbols, size_t count) {
    for (size_t i = 0; i < count; i++) {
        symbols[i] = -1;
        CHECK(ashlar__text_sampler_next(sampler, &symbols[i]) == ASHLAR_OK);
        CHECK(symbols[i] >= 0 && symbols[i] < CLASSES);
    }
}

/* ---- the reference ---- */

/* The same model in double precision, and the memory of a batch for it. */
static ashlar_model *reference;

static struct {
    int32_t tokens[HISTORY];
    double logits[HISTORY * CLASSES];
} * run;

static void open_reference(void) {
    const ashlar_arena *from = ashlar_model_arena(sampled.model), *to;
    ashlar_text_model_config config = model_config;
    config.dtype = ASHLAR_F64;
    REQUIRE(ashlar__text_model_create(allocator, streams[1], &config, ASHLAR_REGIONS_INFERENCE,
                                      &reference) == ASHLAR_OK);
    wait_for(streams[1]);
    to = ashlar_model_arena(reference);
    for (size_t i = 0; i < ashlar_arena_get_info(to).tensor_count; i++) {
        ashlar_tensor_info info;
        const float *source = ashlar_arena_view(from, ASHLAR_REGION_PARAMETERS, i);
        double *values = ashlar_arena_view(to, ASHLAR_REGION_PARAMETERS, i);
        ashlar_arena_tensor(to, i, &info);
        for (size_t k = 0; k < info.elements; k++) {
            values[k] = (double)source[k];
        }
    }
    run = (void *)take(sizeof *run, streams[1]);
}

static void close_reference(void) {
    CHECK(ashlar_free(allocator, run) == ASHLAR_OK);
    ashlar_model_destroy(reference);
}

/* The distribution of what follows `count` symbols, all of them read from the beginning. */
static void distribution_after(const int32_t *history, size_t count, double temperature,
                               double *probabilities) {
    const ashlar_model_batch batch = {.batch = 1,
                                      .steps = count,
                                      .inputs = (const void *[]){run->tokens, NULL},
                                      .outputs = (void *[]){run->logits}};
    wait_for(streams[1]);
    memcpy(run->tokens, history, count * sizeof history[0]);
    CHECK(ashlar_model_run(reference, ASHLAR_WALK_PREDICT, &batch, streams[1]) == ASHLAR_OK);
    wait_for(streams[1]);
    const ashlar_softmax_args softmax = {.rows = 1,
                                         .width = CLASSES,
                                         .temperature = temperature,
                                         .x = run->logits + (count - 1) * CLASSES,
                                         .y = probabilities};
    ashlar__softmax_f64(&softmax);
}

/*
 * Draw as the sampler should: the first class whose cumulated probability passes the number. A
 * number so near a boundary that fp32 may fall on the other side would show as a failure of this
 * fixed seed; none is.
 */
static int32_t choose(const double *probabilities, ashlar_random *random) {
    double left = ashlar__random_uniform(random);
    int32_t symbol = 0;
    while (symbol < CLASSES - 1 && left >= probabilities[symbol]) {
        left -= probabilities[symbol++];
    }
    return symbol;
}

static void check_text(double temperature, const int32_t *prime, size_t prime_count) {
    REQUIRE(open_lively_model("memory=64MiB"));
    REQUIRE(open_sampler(temperature, 9));
    int32_t drawn[DRAWN], history[HISTORY] = {ASHLAR_BATCHER_MARK};
    size_t count = 1;
    ashlar_random random;
    ashlar__random_init(&random, 9);
    for (size_t i = 0; i < prime_count; i++) {
        CHECK(ashlar__text_sampler_read(sampler, prime[i]) == ASHLAR_OK);
        history[count++] = prime[i];
    }
    draw(drawn, DRAWN);
    open_reference();
    for (size_t i = 0; i < DRAWN; i++) {
        double probabilities[CLASSES];
        distribution_after(history, count, temperature, probabilities);
        CHECK(drawn[i] == choose(probabilities, &random));
        history[count++] = drawn[i];
    }
    close_reference();
    close_sampler();
}

CASE(drawing_symbol_by_symbol_equals_one_long_forward_pass) {
    check_text(1, NULL, 0);
    check_text(0.6, (const int32_t[]){4, 10, 0, 7, 7}, 5);
    check_text(3, (const int32_t[]){1}, 1);
}

CASE(so_it_does_with_every_cell) {
    for (int cell = 0; cell < ASHLAR_RNN_CELL_COUNT; cell++) {
        model_config.cell = (ashlar_rnn_cell)cell;
        model_config.projection = cell == ASHLAR_RNN_LSTM ? 7 : 0;
        model_config.dropout = 0.5; /* is of training only */
        check_text(1, (const int32_t[]){4, 10}, 2);
    }
}

/* ---- several texts ---- */

enum { TEXTS = 5 };

static void check_texts(void) {
    int32_t alone[TEXTS][DRAWN], together[TEXTS];
    for (size_t i = 0; i < TEXTS; i++) {
        REQUIRE(open_lively_model("memory=64MiB"));
        REQUIRE(open_sampler(1, 9 + i));
        CHECK(ashlar__text_sampler_read(sampler, 5) == ASHLAR_OK);
        draw(alone[i], DRAWN);
        close_sampler();
    }
    REQUIRE(open_lively_model("memory=64MiB"));
    const ashlar_text_sampler_config config = {
        .sampling = {.temperature = 1, .top_p = 1}, .seed = 9, .count = TEXTS};
    REQUIRE(ashlar__text_sampler_create(&sampled, &config, &sampler) == ASHLAR_OK);
    CHECK(ashlar__text_sampler_read(sampler, 5) == ASHLAR_OK);
    for (size_t k = 0; k < DRAWN; k++) {
        REQUIRE(ashlar__text_sampler_next(sampler, together) == ASHLAR_OK);
        for (size_t i = 0; i < TEXTS; i++) {
            CHECK(together[i] == alone[i][k]);
        }
    }
    CHECK(model_config.cell == ASHLAR_RNN_RELU || memcmp(alone[0], alone[1], sizeof alone[0]) != 0);
    close_sampler();
}

CASE(texts_that_are_drawn_together_are_those_drawn_alone) {
    for (int cell = 0; cell < ASHLAR_RNN_CELL_COUNT; cell++) {
        model_config.cell = (ashlar_rnn_cell)cell;
        check_texts();
    }
}

CASE_WITH(a_draw_that_fails_in_one_text_fails_in_all, open_lively_model("memory=64MiB")) {
    const ashlar_text_sampler_config config = {
        .sampling = {.temperature = 1, .top_p = 1}, .seed = 9, .count = TEXTS};
    int32_t symbols[TEXTS] = {77};
    size_t count;
    weights_of("linear.bias", &count)[CLASSES - 1] = NAN;
    REQUIRE(ashlar__text_sampler_create(&sampled, &config, &sampler) == ASHLAR_OK &&
            check_at_end(close_sampler));
    CHECK_FAILS(ashlar__text_sampler_next(sampler, symbols), ASHLAR_EFORMAT,
                "weights are no numbers");
    CHECK(symbols[0] == 77);
}

static void round_matrix(const char *name) {
    size_t count;
    float *values = weights_of(name, &count);
    for (size_t i = 0; i < count; i++) {
        values[i] = ashlar__float_from_bf16(ashlar__bf16_from_float(values[i]));
    }
}

static bool open_bf16_sampler(bool is_bf16) {
    const ashlar_text_sampler_config config = {
        .sampling = {.temperature = 1, .top_p = 1}, .seed = 9, .is_bf16 = is_bf16};
    return ashlar__text_sampler_create(&sampled, &config, &sampler) == ASHLAR_OK &&
           check_at_end(close_sampler);
}

CASE(a_text_in_bf16_is_that_of_rounded_matrices) {
    static const char *const matrices[] = {"lstm.weight_ih_l0", "lstm.weight_hh_l0",
                                           "lstm.weight_ih_l1", "lstm.weight_hh_l1",
                                           "linear.weight"};
    int32_t texts[2][DRAWN];
    REQUIRE(open_lively_model("memory=64MiB") && open_bf16_sampler(true));
    draw(texts[0], DRAWN);
    close_sampler();
    REQUIRE(open_lively_model("memory=64MiB"));
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++) {
        round_matrix(matrices[i]);
    }
    REQUIRE(open_bf16_sampler(false));
    draw(texts[1], DRAWN);
    CHECK(memcmp(texts[0], texts[1], sizeof texts[0]) == 0);
}

CASE(a_model_in_fp64_is_not_read_as_bf16) {
    model_config.dtype = ASHLAR_F64;
    REQUIRE(open_model("memory=64MiB"));
    const ashlar_text_sampler_config config = {.sampling = {.temperature = 1, .top_p = 1},
                                               .is_bf16 = true};
    sampler = NULL;
    CHECK_FAILS(ashlar__text_sampler_create(&sampled, &config, &sampler), ASHLAR_EINVAL, "--bf16");
    CHECK(sampler == NULL);
    CHECK(ashlar_model_prepare(sampled.model, true, streams[1]) == ASHLAR_EINVAL);
}

CASE_WITH(more_texts_than_can_be_addressed_are_refused, open_lively_model("memory=64MiB")) {
    const ashlar_text_sampler_config config = {.sampling = {.temperature = 1, .top_p = 1},
                                               .count = SIZE_MAX / 64};
    sampler = NULL;
    CHECK_FAILS(ashlar__text_sampler_create(&sampled, &config, &sampler), ASHLAR_EOVERFLOW, "");
    CHECK(sampler == NULL);
}

/* ---- what decides the text ---- */

/* What else there is to sampling, test_sampling.c has. */
CASE(the_choice_is_the_one_that_was_configured) {
    const ashlar_sampling_config samplings[] = {{.temperature = 0, .top_p = 1},
                                                {.temperature = 5, .top_k = 1, .top_p = 1},
                                                {.temperature = 1, .top_p = 1e-6},
                                                {.temperature = 1, .top_p = 1}};
    int32_t texts[4][DRAWN];
    for (size_t i = 0; i < 4; i++) {
        const ashlar_text_sampler_config config = {.sampling = samplings[i], .seed = 9 + i};
        REQUIRE(open_lively_model("memory=64MiB"));
        REQUIRE(ashlar__text_sampler_create(&sampled, &config, &sampler) == ASHLAR_OK);
        draw(texts[i], DRAWN);
        close_sampler();
    }
    CHECK(memcmp(texts[0], texts[1], sizeof texts[0]) == 0);
    CHECK(memcmp(texts[0], texts[2], sizeof texts[0]) == 0);
    CHECK(memcmp(texts[0], texts[3], sizeof texts[0]) != 0);
}

/* ---- failures ---- */

static void check_failing_draw(const int *calls, const size_t *failures, size_t count) {
    REQUIRE(open_lively_model("memory=64MiB"));
    REQUIRE(open_sampler(1, 9));
    for (size_t i = 0; i < count; i++) {
        for (uint64_t n = 1; n <= failures[i]; n++) {
            int32_t symbol = 77;
            ashlar__driver_fail_at(driver, calls[i], n, CU_UNKNOWN);
            CHECK(ashlar__text_sampler_next(sampler, &symbol) == ASHLAR_EDRIVER);
            CHECK(symbol == 77);
        }
    }
    int32_t symbol = 77;
    CHECK(ashlar__text_sampler_next(sampler, &symbol) == ASHLAR_OK);
    CHECK(symbol != 77);
    close_sampler();
}

CASE(a_draw_that_fails_says_so_and_writes_no_symbol) {
    static const int calls[] = {ASHLAR_DRIVER_FN_launch_host_func,
                                ASHLAR_DRIVER_FN_stream_synchronize};
    check_failing_draw(calls, (const size_t[]){3, 1}, 2);
}

RUN_CASES_AFTER(check_each = usual_model)
