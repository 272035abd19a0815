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

RUN_CASES_AFTER(check_each = usual_model)
