/*
 * test_model_create.c - building the model: its tensors and views, its first weights, and every
 * way in which it cannot be built.
 */
#include "tests/rnn/model/model_fixture.h"

enum { TENSORS = 1 + 4 * LAYERS + 2 };

static void check_tensor(size_t tensor, const char *name, size_t rows, size_t cols) {
    ashlar_tensor_info info;
    ashlar_arena_tensor(model->arena, tensor, &info);
    CHECK(strcmp(info.name, name) == 0);
    CHECK(info.dtype == ASHLAR_F32);
    CHECK_ZU(info.rank, cols == 0 ? 1 : 2);
    CHECK_ZU(info.shape[0], rows);
    CHECK(cols == 0 || info.shape[1] == cols);
}

CASE_WITH(the_arena_holds_the_tensors_of_the_model, open_usual_model()) {
    CHECK_ZU(ashlar_arena_tensor_count(model->arena), TENSORS);
    check_tensor(0, "embedding.weight", CLASSES, EMBEDDING);
    check_tensor(1, "lstm.weight_ih_l0", 4 * HIDDEN, EMBEDDING);
    check_tensor(5, "lstm.weight_ih_l1", 4 * HIDDEN, HIDDEN);
    check_tensor(TENSORS - 2, "linear.weight", CLASSES, HIDDEN);
    check_tensor(TENSORS - 1, "linear.bias", CLASSES, 0);
    const ashlar_rnn_config config = ashlar_rnn_layout_of(model->rnn)->config;
    CHECK(config.input == EMBEDDING && config.hidden == HIDDEN && config.layers == LAYERS);
    CHECK(config.dtype == ASHLAR_F32);
    CHECK(model->device == device && model->allocator == allocator && model->stream == streams[1]);
    CHECK(memcmp(&model->config, &model_config, sizeof model_config) == 0);
}

static void check_views(const ashlar_model_views *views, ashlar_region region) {
    CHECK(views->embedding == ashlar_arena_view(model->arena, region, 0));
    CHECK(views->stack == ashlar_arena_view(model->arena, region, 1));
    CHECK(views->weight == ashlar_arena_view(model->arena, region, TENSORS - 2));
    CHECK(views->bias == ashlar_arena_view(model->arena, region, TENSORS - 1));
}

/* The arena watches *pointer: if it points elsewhere, that is found. */
static void check_watched(void **pointer) {
    void *const right = *pointer;
    *pointer = &model;
    CHECK(ashlar_arena_check(model->arena) == ASHLAR_EMOVED);
    *pointer = right;
    CHECK(ashlar_arena_check(model->arena) == ASHLAR_OK);
}

CASE(views_point_into_the_arena_and_are_watched) {
    for (unsigned regions = 1; regions < ASHLAR_REGIONS_ALL; regions = 2 * regions + 1) {
        REQUIRE(open_model("memory=64MiB", regions));
        CHECK_ZU(ashlar_arena_regions(model->arena), regions);
        CHECK(model->parameters.stack != NULL);
        check_views(&model->parameters, ASHLAR_REGION_PARAMETERS);
        check_views(&model->gradients, ASHLAR_REGION_GRADIENTS); /* NULL where there are none */
        CHECK((model->gradients.stack != NULL) == (regions > 1));
        check_watched(&model->parameters.embedding);
        check_watched(&model->parameters.stack);
        check_watched(&model->parameters.weight);
        check_watched(&model->parameters.bias);
        if (regions > 1) {
            check_watched(&model->gradients.embedding);
            check_watched(&model->gradients.stack);
            check_watched(&model->gradients.weight);
            check_watched(&model->gradients.bias);
        }
        close_model();
    }
}

/* ---- first weights ---- */

static void check_uniform(size_t tensor, double shift, double bound) {
    ashlar_tensor_info info;
    ashlar_arena_tensor(model->arena, tensor, &info);
    const float *values = ashlar_arena_view(model->arena, ASHLAR_REGION_PARAMETERS, tensor);
    double least = INFINITY, most = -INFINITY, sum = 0;
    size_t untouched = 0;
    for (size_t i = 0; i < info.elements; i++) {
        const double value = (double)values[i] - shift;
        least = value < least ? value : least;
        most = value > most ? value : most;
        sum += value;
        untouched += values[i] == 0;
    }
    CHECK_ZU(untouched, 0);
    CHECK(least >= -bound * 1.000001 && most <= bound * 1.000001);
    CHECK(least < -0.7 * bound && most > 0.7 * bound);
    CHECK(fabs(sum / (double)info.elements) < 0.5 * bound);
}

CASE_WITH(weights_start_uniform_within_their_bounds, open_model("memory=64MiB", 1)) {
    const double bound = 1 / sqrt((double)HIDDEN);
    check_uniform(0, 0, sqrt(3.0));
    for (size_t tensor = 1; tensor < TENSORS; tensor++) {
        if ((tensor - 1) % 4 != ASHLAR_RNN_BW || tensor >= TENSORS - 2) {
            check_uniform(tensor, 0, bound);
        }
    }
}

/* Of gates i f g o only the second part of the first bias. */
CASE_WITH(forget_gates_start_raised_by_one, open_model("memory=64MiB", 1)) {
    const double bound = 1 / sqrt((double)HIDDEN);
    for (size_t layer = 0; layer < LAYERS; layer++) {
        const float *bias = ashlar_arena_view(model->arena, ASHLAR_REGION_PARAMETERS,
                                              1 + 4 * layer + ASHLAR_RNN_BW);
        for (size_t i = 0; i < (size_t)4 * HIDDEN; i++) {
            const double want = i / HIDDEN == 1 ? 1 : 0;
            CHECK(fabs((double)bias[i] - want) <= bound * 1.000001);
        }
    }
}

/* Only an LSTM has forget gates; each cell's tensors have its name. */
CASE(other_cells_have_their_names_and_no_raised_biases) {
    static const char *const names[] = {"lstm.weight_ih_l0", "gru.weight_ih_l0",
                                        "tanh.weight_ih_l0", "relu.weight_ih_l0"};
    for (int cell = 1; cell < ASHLAR_RNN_CELL_COUNT; cell++) {
        model_config.cell = (ashlar_rnn_cell)cell;
        REQUIRE(open_model("memory=64MiB", 1));
        CHECK_ZU(ashlar_arena_tensor_count(model->arena), TENSORS);
        check_tensor(1, names[cell], (cell == ASHLAR_RNN_GRU ? 3 : 1) * HIDDEN, EMBEDDING);
        for (size_t layer = 0; layer < LAYERS; layer++) {
            const float *bias = ashlar_arena_view(model->arena, ASHLAR_REGION_PARAMETERS,
                                                  1 + 4 * layer + ASHLAR_RNN_BW);
            for (size_t i = 0; i < (cell == ASHLAR_RNN_GRU ? 3 : 1) * HIDDEN; i++) {
                CHECK(fabs((double)bias[i]) <= 1.000001 / sqrt((double)HIDDEN));
            }
        }
        close_model();
    }
}

/* The linear layer reads what the projection leaves, and starts as wide as that says. */
CASE(a_projection_narrows_what_the_linear_layer_reads) {
    model_config.projection = 7;
    REQUIRE(open_model("memory=64MiB", 1));
    CHECK_ZU(ashlar_arena_tensor_count(model->arena), TENSORS + LAYERS);
    check_tensor(5, "lstm.weight_hr_l0", 7, HIDDEN);
    check_tensor(6, "lstm.weight_ih_l1", 4 * HIDDEN, 7);
    check_tensor(TENSORS, "linear.weight", CLASSES, 7);
    check_uniform(5, 0, 1 / sqrt((double)HIDDEN));
    check_uniform(TENSORS, 0, 1 / sqrt(7.0));
    check_uniform(TENSORS + 1, 0, 1 / sqrt(7.0));
}

CASE(a_seed_gives_the_same_weights_and_another_gives_others) {
    enum { LARGEST = 65536 };
    static char first[LARGEST];
    REQUIRE(open_model("memory=64MiB,mode=adversarial,seed=2", 1));
    const size_t bytes = ashlar_arena_region_bytes(model->arena, ASHLAR_REGION_PARAMETERS);
    REQUIRE(bytes <= LARGEST);
    memcpy(first, region_of(ASHLAR_REGION_PARAMETERS), bytes); /* there when the call returned */
    CHECK(ashlar__model_init_weights(model, 4) == ASHLAR_OK);
    CHECK(memcmp(first, region_of(ASHLAR_REGION_PARAMETERS), bytes) != 0);
    memset(region_of(ASHLAR_REGION_PARAMETERS), 0, bytes);
    CHECK(ashlar__model_init_weights(model, 3) == ASHLAR_OK);
    CHECK(memcmp(first, region_of(ASHLAR_REGION_PARAMETERS), bytes) == 0);
}

CASE_WITH(padding_between_the_weights_is_zero, open_model("memory=64MiB", 1)) {
    bool *is_weight = calloc(region_count(), sizeof *is_weight);
    REQUIRE(is_weight != NULL);
    for (size_t tensor = 0; tensor < TENSORS; tensor++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(model->arena, tensor, &info);
        for (size_t i = 0; i < info.elements; i++) {
            is_weight[info.offset[ASHLAR_LAYOUT_STORAGE] / sizeof(float) + i] = true;
        }
    }
    size_t wrong = 0, padding = 0;
    for (size_t i = 0; i < region_count(); i++) {
        padding += !is_weight[i];
        wrong += !is_weight[i] && region_of(ASHLAR_REGION_PARAMETERS)[i] != 0;
    }
    CHECK(padding > 0);
    CHECK_ZU(wrong, 0);
    free(is_weight);
}

CASE_WITH(weights_that_cannot_be_written_are_reported, open_model("memory=64MiB", 1)) {
    HOST_FAILS_AT(1, CHECK(ashlar__model_init_weights(model, 3) == ASHLAR_EHOSTMEM));
    CHECK_HAS(ashlar_error_detail(), "bytes of weights");
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_memcpy_htod_async, 1, CU_UNKNOWN);
    CHECK(ashlar__model_init_weights(model, 3) == ASHLAR_EDRIVER);
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_stream_synchronize, 1, CU_UNKNOWN);
    CHECK(ashlar__model_init_weights(model, 3) == ASHLAR_EDRIVER);
}

/* ---- models that cannot be ---- */

#define SIZES(v, e, h, l) \
    {.classes = (v), .embedding = (e), .hidden = (h), .layers = (l)}

CASE(impossible_shapes_are_refused) {
    static const struct {
        ashlar_model_config config;
        ashlar_status want;
    } bad[] = {
        {SIZES(0, EMBEDDING, HIDDEN, LAYERS), ASHLAR_EINVAL},
        {SIZES(CLASSES, 0, HIDDEN, LAYERS), ASHLAR_EINVAL},
        {SIZES(CLASSES, EMBEDDING, 0, LAYERS), ASHLAR_EINVAL},
        {SIZES(CLASSES, EMBEDDING, HIDDEN, 0), ASHLAR_EINVAL},
        {SIZES(CLASSES, EMBEDDING, (size_t)1 << 20, 1), ASHLAR_EOVERFLOW},
        {SIZES(SIZE_MAX / 2, EMBEDDING, HIDDEN, 1), ASHLAR_EOVERFLOW},
        {SIZES((size_t)1 << 24, EMBEDDING, HIDDEN, 1), ASHLAR_ENOMEM},
    };
    REQUIRE(set_up("memory=64MiB"));
    model = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(ashlar__model_create(allocator, streams[1], &bad[i].config, ASHLAR_REGIONS_ALL,
                                   &model) == bad[i].want);
        CHECK(model == NULL);
        CHECK_ZU(stats_now().live_blocks, 0);
    }
    const unsigned regions[] = {0, 2, 32};
    for (size_t i = 0; i < 3; i++) {
        CHECK(ashlar__model_create(allocator, streams[1], &model_config, regions[i], &model) ==
              ASHLAR_EINVAL);
    }
    device->info.kind = ASHLAR_DEVICE_CUDA; /* as far as one can tell from outside */
    setenv("ASHLAR_CUDNN", "/nowhere/libcudnn.so.9", 1);
    CHECK(ashlar__model_create(allocator, streams[1], &model_config, 1, &model) == ASHLAR_ENOTSUP);
    device->info.kind = ASHLAR_DEVICE_SOFT;
    CHECK(model == NULL);
    ashlar__model_destroy(NULL);
}

/* ENOMEM is the software device's, for its part; and the allocator may do without some memory. */
CASE(failing_host_memory_leaves_nothing_behind) {
    size_t failures = 0;
    for (unsigned long n = 1; n <= 60; n++) {
        REQUIRE(set_up("memory=64MiB"));
        model = NULL;
        ashlar_status status;
        HOST_FAILS_AT(n, status = ashlar__model_create(allocator, streams[1], &model_config,
                                                       ASHLAR_REGIONS_ALL, &model));
        CHECK(status == ASHLAR_OK || status == ASHLAR_EHOSTMEM || status == ASHLAR_ENOMEM);
        CHECK((model != NULL) == (status == ASHLAR_OK));
        if (model != NULL) {
            check_views(&model->parameters, ASHLAR_REGION_PARAMETERS);
            check_views(&model->gradients, ASHLAR_REGION_GRADIENTS);
        }
        failures += status != ASHLAR_OK;
        ashlar__model_destroy(model);
        CHECK_ZU(stats_now().live_blocks, 0);
        tear_down();
    }
    CHECK(failures > 20 && failures < 60); /* the last ones came too late to fail */
}

CASE(failing_driver_calls_leave_nothing_behind) {
    uint64_t n = 1;
    for (ashlar_status status = ASHLAR_EDRIVER; status != ASHLAR_OK && n < 500; n++) {
        REQUIRE(set_up("memory=64MiB"));
        model = NULL;
        DRIVER_FAILS_AT(ASHLAR_DRIVER_FN_memset_d8_async, n, CU_UNKNOWN,
                        status = ashlar__model_create(allocator, streams[1], &model_config,
                                                      ASHLAR_REGIONS_ALL, &model));
        CHECK((model != NULL) == (status == ASHLAR_OK));
        ashlar__model_destroy(model);
        CHECK_ZU(stats_now().live_blocks, 0);
        tear_down();
    }
    CHECK_ZU(n, 6); /* one for each region, and the last without a failure */
}

RUN_CASES_AFTER(check_each = usual_model)
