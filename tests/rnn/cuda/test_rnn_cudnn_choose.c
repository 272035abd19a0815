/*
 * test_rnn_cudnn_choose.c - ASHLAR_RNN_AUTO, and padding that persistent algorithms compute, too.
 *
 * Run on the fake driver with the fake cuDNN, whose persistent algorithms take full lengths only.
 */
#include "tests/rnn/cuda/rnn_cudnn_fixture.h"

#include "rnn/cuda/cudnn_state.h"

/* ---- the rule ---- */

/* As PyTorch's get_algo() answers; where forward and backward differ, as backward. */
CASE(the_rule_is_pytorchs) {
    enum { STANDARD = ASHLAR_RNN_STANDARD, STATIC = ASHLAR_RNN_PERSIST_STATIC };
    enum { SMALL = ASHLAR_RNN_PERSIST_SMALL };
    static const struct {
        ashlar_cudnn_gpu of;
        ashlar_rnn_cell cell;
        ashlar_dtype dtype;
        size_t input, hidden, layers, steps, batch;
        int training, inference;
    } rows[] = {
        {{9, 0, 132}, ASHLAR_RNN_LSTM, ASHLAR_F32, 50, 128, 3, 9, 7, SMALL, SMALL},
        {{9, 0, 132}, ASHLAR_RNN_LSTM, ASHLAR_F32, 50, 129, 3, 9, 7, STANDARD, SMALL},
        {{9, 0, 132}, ASHLAR_RNN_GRU, ASHLAR_BF16, 50, 192, 1, 9, 7, STANDARD, SMALL},
        {{9, 0, 132}, ASHLAR_RNN_GRU, ASHLAR_F32, 50, 193, 1, 9, 7, STANDARD, STANDARD},
        {{9, 0, 132}, ASHLAR_RNN_TANH, ASHLAR_F32, 50, 256, 1, 9, 7, SMALL, SMALL},
        {{9, 0, 132}, ASHLAR_RNN_RELU, ASHLAR_F32, 50, 384, 1, 9, 7, STANDARD, SMALL},
        {{9, 0, 132}, ASHLAR_RNN_RELU, ASHLAR_F32, 50, 385, 1, 9, 7, STANDARD, STANDARD},
        {{9, 0, 132}, ASHLAR_RNN_LSTM, ASHLAR_F64, 50, 64, 1, 9, 7, STANDARD, STANDARD},
        {{5, 2, 132}, ASHLAR_RNN_LSTM, ASHLAR_F32, 50, 64, 1, 9, 7, STANDARD, STANDARD},
        {{9, 0, 132}, ASHLAR_RNN_LSTM, ASHLAR_F16, 256, 512, 1, 9, 128, STATIC, STATIC},
        {{9, 0, 132}, ASHLAR_RNN_LSTM, ASHLAR_F16, 256, 512, 1, 9, 136, STANDARD, STANDARD},
        {{9, 0, 132}, ASHLAR_RNN_LSTM, ASHLAR_F16, 256, 512, 1, 9, 20, STANDARD, STANDARD},
        {{9, 0, 132}, ASHLAR_RNN_LSTM, ASHLAR_F16, 255, 512, 1, 9, 128, STANDARD, STANDARD},
        {{9, 0, 132}, ASHLAR_RNN_LSTM, ASHLAR_F16, 256, 500, 1, 9, 128, STANDARD, STANDARD},
        {{9, 0, 132}, ASHLAR_RNN_LSTM, ASHLAR_F16, 256, 1152, 1, 9, 128, STANDARD, STANDARD},
        {{9, 0, 132}, ASHLAR_RNN_LSTM, ASHLAR_F16, 256, 512, 2, 9, 128, STANDARD, STANDARD},
        {{9, 0, 132}, ASHLAR_RNN_LSTM, ASHLAR_BF16, 256, 512, 1, 9, 128, STANDARD, STANDARD},
        {{9, 0, 132}, ASHLAR_RNN_GRU, ASHLAR_F16, 256, 512, 1, 9, 64, STANDARD, STANDARD},
        {{9, 0, 132}, ASHLAR_RNN_TANH, ASHLAR_F16, 256, 896, 1, 9, 88, STATIC, STATIC},
        {{9, 0, 132}, ASHLAR_RNN_TANH, ASHLAR_F16, 256, 896, 1, 9, 96, STANDARD, STANDARD},
        {{8, 0, 97}, ASHLAR_RNN_LSTM, ASHLAR_F16, 256, 512, 1, 9, 64, STANDARD, STANDARD},
        {{8, 6, 132}, ASHLAR_RNN_LSTM, ASHLAR_F16, 256, 512, 1, 9, 64, STANDARD, STANDARD},
        {{7, 0, 80}, ASHLAR_RNN_GRU, ASHLAR_F16, 256, 512, 1, 40, 128, STATIC, STATIC},
        {{7, 0, 80}, ASHLAR_RNN_GRU, ASHLAR_F16, 256, 512, 1, 39, 128, STANDARD, STANDARD},
        {{7, 0, 80}, ASHLAR_RNN_GRU, ASHLAR_F16, 256, 512, 1, 20, 96, STATIC, STATIC},
        {{7, 0, 80}, ASHLAR_RNN_GRU, ASHLAR_F16, 256, 512, 1, 10, 8, STATIC, STATIC},
        {{7, 0, 80}, ASHLAR_RNN_GRU, ASHLAR_F16, 256, 512, 1, 9, 8, STANDARD, STANDARD},
        {{7, 0, 80}, ASHLAR_RNN_GRU, ASHLAR_F16, 256, 512, 1, 40, 80, STANDARD, STANDARD},
        {{7, 5, 80}, ASHLAR_RNN_GRU, ASHLAR_F16, 256, 512, 1, 40, 64, STANDARD, STANDARD},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const ashlar_rnn_config c = {.input = rows[i].input,
                                     .hidden = rows[i].hidden,
                                     .layers = rows[i].layers,
                                     .cell = rows[i].cell,
                                     .dtype = rows[i].dtype,
                                     .directions = 1,
                                     .algorithm = ASHLAR_RNN_AUTO};
        for (int training = 0; training < 2; training++) {
            const int got = (int)ashlar__cudnn_choose(&c, &rows[i].of, rows[i].steps, rows[i].batch,
                                                      training != 0);
            CHECK(got == (training != 0 ? rows[i].training : rows[i].inference));
        }
    }
}

/* ---- batches ---- */

static ashlar_rnn_config auto_config(const shape *s, const kind *k) {
    ashlar_rnn_config config = config_of(s, k, ASHLAR_F32);
    config.algorithm = ASHLAR_RNN_AUTO;
    return config;
}

static void check_training(void) {
    CHECK(run_far(&far, true) == ASHLAR_OK);
    run_training(&near);
    compare_forward(&far);
    compare_backward(&far);
}

CASE(where_cudnn_refuses_the_small_one_it_is_the_standard_one) {
    static const shape full = {2, 5, 3, 3, 4, {5, 5, 5}, true};
    const ashlar_rnn_config config = auto_config(&full, &PLAIN_LSTM);
    fake->refuses_small = true;
    REQUIRE(open_pair(&full, &PLAIN_LSTM, ASHLAR_F32, &config, true));
    check_training();
    CHECK(fake->algorithm == 0);
    fake->refuses_small = false;
}

/* ---- padding ---- */

/* Set what lies past the lengths in a buffer [T, B, width] on the device. */
static void set_padding(const void *buffer, size_t width, float value) {
    gpu_wait();
    for (size_t t = 0; t < far.batch.steps; t++) {
        for (size_t b = 0; b < far.batch.batch; b++) {
            if (t >= (size_t)far.batch.lengths[b]) {
                float *row = (float *)(uintptr_t)buffer + (t * far.batch.batch + b) * width;
                for (size_t i = 0; i < width; i++) {
                    row[i] = value;
                }
            }
        }
    }
}

static void forget_final_states(void) {
    ashlar_rnn_buffers *const all[] = {&far.all, &near.args.b};
    for (int i = 0; i < 2; i++) {
        all[i]->hy = all[i]->cy = NULL;
        all[i]->dhy = all[i]->dcy = NULL;
    }
}

static void check_free_padding(const kind *k, ashlar_rnn_algorithm algorithm, int used) {
    ashlar_rnn_config config = config_of(&SHAPE, k, ASHLAR_F32);
    config.algorithm = algorithm;
    REQUIRE(open_pair(&SHAPE, k, ASHLAR_F32, &config, true));
    forget_final_states();
    far.batch.padding_is_free = true;
    set_padding(far.all.x, near.layout.config.input, 0.7f);
    set_padding(far.all.dy, near.layout.output, 0);
    CHECK(run_far(&far, true) == ASHLAR_OK);
    CHECK(fake->algorithm == used);
    set_padding(far.all.y, near.layout.output, 0); /* some number, until here */
    run_training(&near);
    compare(&far, "y", far.all.y, near.args.b.y, near.y_count);
    compare_backward(&far);
}

CASE(free_padding_gives_the_same_gradients_in_a_persistent_algorithm) {
    static const kind kinds[] = {{.cell = ASHLAR_RNN_LSTM, .directions = 1},
                                 {.cell = ASHLAR_RNN_GRU, .directions = 1},
                                 {.cell = ASHLAR_RNN_TANH, .directions = 1}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        check_free_padding(&kinds[i], ASHLAR_RNN_AUTO, 3);
        check_free_padding(&kinds[i], ASHLAR_RNN_PERSIST_STATIC, 1);
    }
}

CASE(free_padding_is_none_in_two_directions_and_with_relu) {
    const kind kinds[] = {{.cell = ASHLAR_RNN_RELU, .directions = 1}, GRU};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        check_free_padding(&kinds[i], ASHLAR_RNN_AUTO, 0);
        ashlar_rnn_config config = config_of(&SHAPE, &kinds[i], ASHLAR_F32);
        config.algorithm = ASHLAR_RNN_PERSIST_SMALL;
        REQUIRE(open_pair(&SHAPE, &kinds[i], ASHLAR_F32, &config, true));
        forget_final_states();
        far.batch.padding_is_free = true;
        CHECK_FAILS(run_far(&far, true), ASHLAR_ENOTSUP, "full length");
    }
}

CASE(free_padding_has_no_final_states) {
    const ashlar_rnn_config config = small_config();
    REQUIRE(open_pair(&SHAPE, &PLAIN_LSTM, ASHLAR_F32, &config, true));
    far.batch.padding_is_free = true;
    CHECK_FAILS(ashlar_rnn_forward(far.rnn, &far.batch, &far.all, gpu_stream), ASHLAR_EINVAL,
                "leave hy, cy, dhy and dcy NULL");
    far.all.hy = far.all.cy = NULL;
    CHECK(ashlar_rnn_forward(far.rnn, &far.batch, &far.all, gpu_stream) == ASHLAR_OK);
    CHECK(ashlar_rnn_backward_data(far.rnn, &far.batch, &far.all, gpu_stream) == ASHLAR_EINVAL);
}

RUN_CASES_ON_FAKES()
