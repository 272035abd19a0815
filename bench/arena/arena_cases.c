/* arena_cases.c - declares the sets of tensors that are measured, and draws their values. */
#include "bench/arena/bench_arena.h"

#include <stdio.h>

#include <ashlar/rnn.h>

#include "rnn/data/batcher.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"

enum { LIST_SEED = 20261121 };

static ashlar_status add_matrices(ashlar_arena *arena, size_t count, size_t rows, size_t cols) {
    for (size_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "matrix.%zu", i);
        ASHLAR_TRY(ashlar_arena_add(arena, name, ASHLAR_F32, 2, (size_t[]){rows, cols}, NULL));
    }
    return ASHLAR_OK;
}

static ashlar_status declare_equal(ashlar_arena *arena, bool is_smoke) {
    (void)is_smoke;
    return add_matrices(arena, 100, 128, 128);
}

/* Declare the weights of the model that ashlar-train trains by default. */
static ashlar_status declare_model(ashlar_arena *arena, bool is_smoke) {
    enum { EMBEDDING = 64, HIDDEN = 256, LAYERS = 2, CLASSES = ASHLAR_BATCHER_SYMBOLS };
    const ashlar_rnn_config config = {
        .input = EMBEDDING, .hidden = HIDDEN, .layers = LAYERS, .dtype = ASHLAR_F32};
    ashlar_rnn_layout layout;
    size_t first;
    (void)is_smoke;
    ASHLAR_TRY(ashlar_rnn_layout_init(&layout, &config));
    ASHLAR_TRY(ashlar_arena_add(arena, "embedding.weight", ASHLAR_F32, 2,
                                (size_t[]){CLASSES, EMBEDDING}, NULL));
    ASHLAR_TRY(ashlar_rnn_declare(arena, "lstm", &layout, &first));
    ASHLAR_TRY(
        ashlar_arena_add(arena, "linear.weight", ASHLAR_F32, 2, (size_t[]){CLASSES, HIDDEN}, NULL));
    return ashlar_arena_add(arena, "linear.bias", ASHLAR_F32, 1, (size_t[]){CLASSES}, NULL);
}

/* Declare the weights of the LSTM that the benchmark `rnn` begins with. */
static ashlar_status declare_lstm(ashlar_arena *arena, bool is_smoke) {
    const ashlar_rnn_config config = {
        .input = 256, .hidden = 256, .layers = 2, .dtype = ASHLAR_F32};
    ashlar_rnn_layout layout;
    size_t first;
    (void)is_smoke;
    ASHLAR_TRY(ashlar_rnn_layout_init(&layout, &config));
    return ashlar_rnn_declare(arena, "lstm", &layout, &first);
}

/* Declare many small tensors: every hundredth has 4096 .. 16384 elements, the others 64 .. 512. */
static ashlar_status declare_small(ashlar_arena *arena, bool is_smoke) {
    enum { COUNT = 10000 };
    ashlar_random random;
    (void)is_smoke;
    ashlar__random_init(&random, LIST_SEED);
    for (size_t i = 0; i < COUNT; i++) {
        const bool is_large = i % 100 == 99;
        const size_t elements =
            (size_t)(is_large ? 4096 + ashlar__random_below(&random, 16384 - 4096 + 1)
                              : 64 + ashlar__random_below(&random, 512 - 64 + 1));
        char name[32];
        snprintf(name, sizeof name, "tensor.%zu", i);
        ASHLAR_TRY(ashlar_arena_add(arena, name, ASHLAR_F32, 1, &elements, NULL));
    }
    return ASHLAR_OK;
}

static ashlar_status declare_large(ashlar_arena *arena, bool is_smoke) {
    return add_matrices(arena, 64, 512, is_smoke ? 8 : 1024);
}

const ashlar_arena_case *ashlar__arena_cases(size_t *count) {
    static const ashlar_arena_case cases[] = {
        {"100x128x128", "100 of 16,384 elements", declare_equal},
        {"model", "ashlar-train's default model", declare_model},
        {"10000_tensors", "99 of 100 have 64 to 512 elements, the others 4,096 to 16,384",
         declare_small},
        {"large", "64 of 2^19 elements: beyond all caches (with --smoke of 2^12)", declare_large},
        {"lstm_H256_L2", "the weights of lstm_T64_B32_H256_L2 of `rnn`", declare_lstm},
    };
    *count = sizeof cases / sizeof cases[0];
    return cases;
}

/* Draw the elements of all tensors, and leave padding 0. */
static void draw_values(const ashlar_arena *arena, ashlar_random *random, float width,
                        char *image) {
    for (size_t i = 0; i < ashlar_arena_get_info(arena).tensor_count; i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, i, &info);
        float *values = (float *)(void *)(image + info.offset[ASHLAR_LAYOUT_STORAGE]);
        for (size_t k = 0; k < info.elements; k++) {
            values[k] = width * (float)(2 * ashlar__random_uniform(random) - 1);
        }
    }
}

static ashlar_status fill_region(ashlar_arena *arena, ashlar_region region, float width,
                                 ashlar_random *random, char *image, ashlar_stream stream) {
    ashlar_device *device = ashlar_allocator_device(ashlar_arena_get_info(arena).allocator);
    draw_values(arena, random, width, image);
    ASHLAR_TRY(ashlar_copy_to_device(device, ashlar_arena_region(arena, region), image,
                                     ashlar_arena_get_info(arena).region_bytes[region], stream));
    return ashlar_stream_synchronize(device, stream);
}

ashlar_status ashlar__arena_case_fill(ashlar_arena *arena, uint64_t seed, ashlar_stream stream) {
    ashlar_random random;
    char *image =
        ashlar__host_calloc(ashlar_arena_get_info(arena).region_bytes[ASHLAR_REGION_PARAMETERS], 1);
    ASHLAR_FAIL_IF(image == NULL, ASHLAR_EHOSTMEM, "bench: no host memory for the arena's values");
    ashlar__random_init(&random, seed);
    ashlar_status status =
        fill_region(arena, ASHLAR_REGION_PARAMETERS, 1.0f, &random, image, stream);
    ASHLAR_THEN(status,
                fill_region(arena, ASHLAR_REGION_GRADIENTS, 0.001f, &random, image, stream));
    ashlar__host_free(image);
    return status;
}
