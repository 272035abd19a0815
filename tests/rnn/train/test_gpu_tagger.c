/*
 * test_gpu_tagger.c - a step of the tagger, and its labels, on a CUDA device as on the CPU. Exits
 * with 77 where there is no GPU; it also runs on the fakes.
 */
#include "tests/allocator/device/gpu_fixture.h"
#include "tests/rnn/model/tagger_fixture.h"

enum { WORDS_MAX = 64 };

/* What one device makes of a batch. */
typedef struct outcome {
    double loss, predicted_loss;
    float *gradients;
    size_t count;
    int32_t labels[WORDS_MAX];
} outcome;

static bool open_on(const char *name) {
    void *memory = NULL, *batch = NULL;
    const bool is_open =
        ashlar_device_open(name, &device) == ASHLAR_OK &&
        ashlar_stream_create(device, &streams[1]) == ASHLAR_OK &&
        ashlar_allocator_create(device, &allocator) == ASHLAR_OK &&
        ashlar__tagger_create(allocator, streams[1], &tagger_config, ASHLAR_REGIONS_ALL, &tagger) ==
            ASHLAR_OK &&
        ashlar_alloc(allocator, sizeof *loss, streams[1], &memory) == ASHLAR_OK &&
        ashlar_alloc(allocator, CELLS_MAX * sizeof(int32_t), streams[1], &batch) == ASHLAR_OK;
    loss = memory;
    on_device = batch;
    return is_open && ashlar__tagger_init_weights(tagger, 7) == ASHLAR_OK;
}

static void close_on(void) {
    CHECK(ashlar_free(allocator, loss) == ASHLAR_OK);
    CHECK(ashlar_free(allocator, on_device) == ASHLAR_OK);
    ashlar__tagger_destroy(tagger);
    ashlar_allocator_destroy(allocator);
    ashlar_stream_destroy(device, streams[1]);
    ashlar_device_close(device);
}

static void fetch(void *near, const void *far, size_t bytes) {
    CHECK(ashlar_copy_to_host(device, near, far, bytes, streams[1]) == ASHLAR_OK);
    wait_for(streams[1]);
}

static void run_on(const char *name, const made_tags *made, outcome *o) {
    const bool is_open = open_on(name);
    CHECK(is_open);
    if (!is_open) {
        printf("# %s: %s\n", name, ashlar_error_detail());
        return;
    }
    const ashlar_tagger_bytes sizes = sizes_of(made->batch.shape);
    const size_t bytes = ashlar_arena_region_bytes(tagger->arena, ASHLAR_REGION_GRADIENTS);
    o->gradients = malloc(bytes);
    o->count = bytes / sizeof(float);
    CHECK(queue_tags(made) == ASHLAR_OK);
    fetch(&o->loss, loss, sizeof o->loss);
    fetch(o->gradients, ashlar_arena_region(tagger->arena, ASHLAR_REGION_GRADIENTS), bytes);
    CHECK(ashlar_fill(device, loss, 0, sizeof *loss, streams[1]) == ASHLAR_OK);
    const ashlar_tagger_batch batch = copied(made);
    CHECK(ashlar__tagger_predict(tagger, &batch, &sizes, loss, o->labels) == ASHLAR_OK);
    fetch(&o->predicted_loss, loss, sizeof o->predicted_loss);
    close_on();
}

static void compare_devices(void) {
    const size_t words = SHAPE.steps * SHAPE.batch;
    static made_tags made;
    static outcome on_cpu, on_gpu;
    size_t wrong = 0;
    tagger_config.dtype = ASHLAR_F32;
    make_tags(&made, SHAPE, LENGTHS);
    run_on("soft", &made, &on_cpu);
    run_on("cuda", &made, &on_gpu);
    REQUIRE(on_cpu.gradients != NULL && on_gpu.gradients != NULL && on_cpu.count == on_gpu.count);
    CHECK_NEAR(on_gpu.loss, on_cpu.loss, 1e-5, 1e-5);
    CHECK_NEAR(on_gpu.predicted_loss, on_cpu.predicted_loss, 1e-5, 1e-5);
    for (size_t i = 0; i < on_cpu.count; i++) {
        const double want = (double)on_cpu.gradients[i];
        wrong += fabs((double)on_gpu.gradients[i] - want) <= 1e-5 + 1e-4 * fabs(want) ? 0 : 1;
    }
    CHECK_ZU(wrong, 0);
    for (size_t at = 0; at < words; at++) {
        if (at / SHAPE.batch < (size_t)LENGTHS[at % SHAPE.batch]) {
            CHECK(on_gpu.labels[at] == on_cpu.labels[at]);
        }
    }
    CHECK(gpu_products_had_work());
    free(on_cpu.gradients);
    free(on_gpu.gradients);
    on_cpu.gradients = on_gpu.gradients = NULL;
}

CASE(a_step_is_that_of_the_cpu) {
    usual_tagger();
    compare_devices();
    usual_tagger();
    tagger_config.cell = ASHLAR_RNN_GRU;
    tagger_config.layers = 2;
    compare_devices();
}

CASE(so_it_is_with_labels_fed_back) {
    usual_tagger();
    tagger_config.label_embedding = 3;
    compare_devices();
}

RUN_CASES_ON_GPU()
