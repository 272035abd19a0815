/*
 * test_rnn_layout.c - the packed order against hand-computed offsets and its own invariants.
 */
#include "tests/check.h"

#include <stdint.h>

#include <ashlar/rnn.h>

static ashlar_rnn_config config_of(size_t input, size_t hidden, size_t layers) {
    return (ashlar_rnn_config){
        .input = input, .hidden = hidden, .layers = layers, .dtype = ASHLAR_F32};
}

static ashlar_rnn_layout layout; /* of the case */

static bool lay_out(const ashlar_rnn_config config) {
    return ashlar_rnn_layout_init(&layout, &config) == ASHLAR_OK;
}

static void check_view(size_t pseudo_layer, ashlar_rnn_tensor tensor, size_t offset, size_t rows,
                       size_t cols) {
    const ashlar_rnn_view view = ashlar_rnn_layout_view(&layout, pseudo_layer, tensor);
    CHECK_ZU(view.offset, offset);
    CHECK_ZU(view.rows, rows);
    CHECK_ZU(view.cols, cols);
}

/*
 * H 3, P 2, D 2, G 4, one layer: W 12x5 = 60, R 12x2 = 24, Wp 2x3 = 6, so 90 for each direction;
 * then one bias of 12 for each.
 */
CASE(both_directions_come_before_any_bias) {
    ashlar_rnn_config config = config_of(5, 3, 2);
    config.directions = 2;
    config.projection = 2;
    config.bias = ASHLAR_RNN_BIAS_RECURRENT;
    REQUIRE(lay_out(config));
    check_view(0, ASHLAR_RNN_W, 0, 12, 5);
    check_view(0, ASHLAR_RNN_R, 60, 12, 2);
    check_view(0, ASHLAR_RNN_WP, 84, 2, 3);
    check_view(1, ASHLAR_RNN_W, 90, 12, 5);
    check_view(2, ASHLAR_RNN_W, 180, 12, 4); /* reads both: 48 + 24 + 6 = 78 */
    check_view(3, ASHLAR_RNN_WP, 330, 2, 3);
    check_view(0, ASHLAR_RNN_BW, 0, 0, 0);
    check_view(0, ASHLAR_RNN_BR, 336, 12, 1);
    check_view(3, ASHLAR_RNN_BR, 372, 12, 1);
    CHECK_ZU(layout.elements, 384);
    CHECK_ZU(layout.pseudo_layers, 4);
    CHECK_ZU(layout.state, 2);
    CHECK_ZU(layout.output, 4);
    CHECK_ZU(layout.gates, 4);
}

static void check_coverage(const ashlar_rnn_config *config) {
    REQUIRE(lay_out(*config));
    unsigned char *owners = calloc(layout.elements, 1);
    REQUIRE(owners != NULL);
    size_t outside = 0, wrong = 0;
    for (size_t pseudo_layer = 0; pseudo_layer < layout.pseudo_layers; pseudo_layer++) {
        for (int tensor = 0; tensor < ASHLAR_RNN_TENSOR_COUNT; tensor++) {
            const ashlar_rnn_view view =
                ashlar_rnn_layout_view(&layout, pseudo_layer, (ashlar_rnn_tensor)tensor);
            for (size_t e = view.offset; e < view.offset + view.rows * view.cols; e++) {
                if (e < layout.elements) {
                    owners[e]++;
                } else {
                    outside++;
                }
            }
        }
    }
    for (size_t e = 0; e < layout.elements; e++) {
        wrong += owners[e] != 1;
    }
    CHECK_ZU(outside, 0);
    CHECK_ZU(wrong, 0);
    free(owners);
}

CASE(every_element_belongs_to_exactly_one_tensor) {
    for (size_t i = 0; i < 3 * 5 * 5; i++) {
        ashlar_rnn_config config = config_of(1 + i % 3 * 3, 1 + i / 3 % 5 * 2, 1 + i / 15);
        for (int k = 0; k < ASHLAR_RNN_CELL_COUNT * ASHLAR_RNN_BIAS_COUNT * 2; k++) {
            config.cell = (ashlar_rnn_cell)(k / 2 % ASHLAR_RNN_CELL_COUNT);
            config.bias = (ashlar_rnn_bias)(k / 2 / ASHLAR_RNN_CELL_COUNT);
            config.directions = 1 + (size_t)k % 2;
            config.projection = 0;
            check_coverage(&config);
            config.projection = config.cell == ASHLAR_RNN_LSTM ? config.hidden / 2 : 0;
            check_coverage(&config);
        }
    }
}

static void check_refused(ashlar_rnn_config config, ashlar_status status, const char *message) {
    layout = (ashlar_rnn_layout){.elements = 77};
    CHECK_FAILS(ashlar_rnn_layout_init(&layout, &config), status, message);
    CHECK_ZU(layout.elements, 77);
}

#define GOOD .input = 4, .hidden = 6, .layers = 2, .dtype = ASHLAR_F32

CASE(what_cannot_be_is_refused_by_name) {
    static const struct {
        ashlar_rnn_config config;
        const char *message;
    } bad[] = {
        {{GOOD, .cell = ASHLAR_RNN_CELL_COUNT}, "cell 4"},
        {{GOOD, .bias = ASHLAR_RNN_BIAS_COUNT}, "bias 4"},
        {{GOOD, .math = ASHLAR_RNN_MATH_COUNT}, "math 2"},
        {{GOOD, .algorithm = ASHLAR_RNN_ALGORITHM_COUNT}, "algorithm 5"},
        {{GOOD, .directions = 3}, "3 directions"},
        {{GOOD, .projection = 6}, "a projection to 6 with hidden 6 and cell lstm"},
        {{GOOD, .projection = 3, .cell = ASHLAR_RNN_GRU}, "cell gru"},
        {{GOOD, .dropout = -0.1}, "dropout"},
        {{GOOD, .dropout = 1}, "dropout"},
        {{GOOD, .dropout = (double)NAN}, "dropout"},
        {{GOOD, .dropout = (double)INFINITY}, "dropout"},
        {{.input = 2, .hidden = 2, .layers = 1, .dropout = 0.1}, "ashlar_model_dropout()"},
        {{.hidden = 2, .layers = 2}, "input 0"},
        {{.input = 2, .layers = 2}, "hidden 0"},
        {{.input = 2, .hidden = 2}, "layers 0"},
        {{.input = 2, .hidden = 2, .layers = 2, .dtype = ASHLAR_DTYPE_COUNT}, "dtype"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        check_refused(bad[i].config, ASHLAR_EINVAL, bad[i].message);
    }
}

CASE(cells_have_names) {
    static const char *const names[] = {"lstm", "gru", "tanh", "relu"};
    for (int i = 0; i < ASHLAR_RNN_CELL_COUNT; i++) {
        CHECK(strcmp(ashlar_rnn_cell_name((ashlar_rnn_cell)i), names[i]) == 0);
    }
    CHECK(ashlar_rnn_cell_name(ASHLAR_RNN_CELL_COUNT) == NULL);
}

/* L 1, H 1: 4 (I + 1 + 2) elements, so I = 2^29 - 3 makes exactly 2^31. */
CASE(the_limit_of_two_to_the_31_elements_is_exact) {
    const size_t limit = ((size_t)1 << 29) - 3;
    check_refused(config_of(limit, 1, 1), ASHLAR_EOVERFLOW, "lower hidden");
    CHECK(lay_out(config_of(limit - 1, 1, 1)));
    CHECK_ZU(layout.elements, ((size_t)1 << 31) - 4);
}

CASE(sizes_that_wrap_are_refused) {
    const size_t huge = SIZE_MAX / 2 + 1; /* 2^63: twice that is 0 again */
    const ashlar_rnn_config configs[] = {
        config_of(8192, 8192, 4), config_of(huge, 1, 1),     config_of(1, huge, 1),
        config_of(1, 1, huge),    config_of(SIZE_MAX, 1, 1), config_of(1, (size_t)1 << 32, 1),
        config_of(1, 1, SIZE_MAX), config_of(SIZE_MAX, SIZE_MAX, SIZE_MAX),
        config_of(((size_t)1 << 30) - 4, (size_t)1 << 30, 2)}; /* 2^32 rows of 2^32 elements */
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        ashlar_rnn_config both = configs[i];
        both.directions = 2;
        check_refused(configs[i], ASHLAR_EOVERFLOW, "");
        check_refused(both, ASHLAR_EOVERFLOW, "");
    }
}

RUN_CASES()
