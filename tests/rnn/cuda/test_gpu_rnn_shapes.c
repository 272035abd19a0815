/*
 * test_gpu_rnn_shapes.c - one RNN of a CUDA device over batches of changing lengths and sizes: what
 * a shape leaves behind changes no other. Exits with 77 where there is no GPU.
 */
#include "tests/rnn/cuda/gpu_rnn_fixture.h"

enum { INPUT = 5, HIDDEN = 8, LAYERS = 2 };

/* Longer and shorter, wider and narrower, full and not, and back to the first. */
static const shape shapes[] = {
    {LAYERS, 7, 4, INPUT, HIDDEN, {7, 7, 7, 7}, true},
    {LAYERS, 1, 4, INPUT, HIDDEN, {1, 1, 1, 1}, true},
    {LAYERS, 40, 2, INPUT, HIDDEN, {40, 11}, false},
    {LAYERS, 7, 4, INPUT, HIDDEN, {2, 7, 1, 5}, true},
    {LAYERS, 3, 12, INPUT, HIDDEN, {3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3}, false},
    {LAYERS, 7, 4, INPUT, HIDDEN, {7, 7, 7, 7}, true},
};
enum { SHAPES_HERE = sizeof shapes / sizeof shapes[0] };

/* On several streams cuBLAS may choose anew which products are split, and so the last bits. */
__attribute__((constructor)) static void have_one_workspace(void) {
    (void)setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
}

/* As open_pair(), but computed by `one`, which close_shape() leaves. */
static bool open_shape(const shape *s, const kind *k, ashlar_dtype dtype, ashlar_rnn *one) {
    const ashlar_rnn_config config = config_of(s, k, dtype);
    size_t reserve = 0, work = 0;
    if (!open_pair(s, k, dtype, &config, true) ||
        ashlar_rnn_sizes(one, s->steps, s->batch, true, &reserve, &work) != ASHLAR_OK) {
        return false;
    }
    far.all.reserve = gpu_take(reserve);
    far.all.work = gpu_take(work);
    ashlar_rnn_destroy(far.rnn);
    far.rnn = one;
    return true;
}

static void close_shape(void) {
    gpu_wait();
    far.rnn = NULL;
    close_pair();
}

/* Forward and backward of each shape in turn; the first one's outputs come back to the bit. */
static void run_shapes(const kind *k, ashlar_dtype dtype) {
    enum { OUTPUTS = 2, BYTES_MAX = 1 << 13 };
    static char first[OUTPUTS][BYTES_MAX];
    const ashlar_rnn_config config = config_of(&shapes[0], k, dtype);
    ashlar_rnn *one = NULL;
    REQUIRE(ashlar_rnn_create(gpu, &config, &one) == ASHLAR_OK);
    for (size_t i = 0; i < SHAPES_HERE; i++) {
        const bool is_open = open_shape(&shapes[i], k, dtype, one);
        CHECK(is_open);
        if (!is_open) {
            break;
        }
        run_training(&near);
        CHECK(run_far(&far, true) == ASHLAR_OK);
        compare_forward(&far);
        compare_backward(&far);
        const size_t bytes[OUTPUTS] = {near.y_count * far.item, near.x_count * far.item};
        void *const outputs[OUTPUTS] = {far.all.y, far.all.dx};
        for (size_t o = 0; o < OUTPUTS && (i == 0 || i == SHAPES_HERE - 1); o++) {
            const void *got = gpu_fetch(outputs[o], bytes[o]);
            CHECK(bytes[o] <= BYTES_MAX);
            if (i == 0) {
                memcpy(first[o], got, bytes[o]);
            }
            CHECK(memcmp(first[o], got, bytes[o]) == 0);
        }
        close_shape();
    }
    ashlar_rnn_destroy(one);
}

CASE(every_cell_computes_each_shape_as_the_cpu_does) {
    for (int cell = 0; cell < ASHLAR_RNN_CELL_COUNT; cell++) {
        for (size_t directions = 1; directions <= 2; directions++) {
            const kind k = {.cell = (ashlar_rnn_cell)cell, .directions = directions};
            run_shapes(&k, ASHLAR_F32);
        }
    }
}

CASE(so_does_an_lstm_in_double_and_with_a_projection) {
    const kind projected = {.cell = ASHLAR_RNN_LSTM, .directions = 1, .is_projected = true};
    run_shapes(&PLAIN_LSTM, ASHLAR_F64);
    run_shapes(&projected, ASHLAR_F32);
}

RUN_RNN_CASES_ON_GPU()
