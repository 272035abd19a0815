/*
 * test_rnn_layout.c - the packed order against hand-computed offsets and its own invariants.
 */
#include "check.h"

#include <stdint.h>
#include <stdlib.h>

#include <ashlar/rnn_layout.h>

static ashlar_rnn_config config_of(size_t input, size_t hidden, size_t layers) {
    return (ashlar_rnn_config){
        .input = input, .hidden = hidden, .layers = layers, .dtype = ASHLAR_F32};
}

static void check_view(const ashlar_rnn_layout *layout, size_t layer, ashlar_rnn_tensor tensor,
                       size_t offset, size_t rows, size_t cols) {
    const ashlar_rnn_view view = ashlar_rnn_layout_view(layout, layer, tensor);
    CHECK_ZU(view.offset, offset);
    CHECK_ZU(view.rows, rows);
    CHECK_ZU(view.cols, cols);
}

/* I 3, H 2, G 4: W0 8x3 = 24, R0 8x2 = 16, W1 and R1 8x2 = 16 each, four biases of 8. */
static void two_small_layers_lie_where_the_formula_says(void) {
    const ashlar_rnn_config config = config_of(3, 2, 2);
    ashlar_rnn_layout layout;
    REQUIRE(ashlar_rnn_layout_init(&layout, &config) == ASHLAR_OK);
    CHECK_ZU(layout.elements, 104);
    CHECK_ZU(layout.config.hidden, 2);
    check_view(&layout, 0, ASHLAR_RNN_W, 0, 8, 3);
    check_view(&layout, 0, ASHLAR_RNN_R, 24, 8, 2);
    check_view(&layout, 1, ASHLAR_RNN_W, 40, 8, 2);
    check_view(&layout, 1, ASHLAR_RNN_R, 56, 8, 2);
    check_view(&layout, 0, ASHLAR_RNN_BW, 72, 8, 1);
    check_view(&layout, 0, ASHLAR_RNN_BR, 80, 8, 1);
    check_view(&layout, 1, ASHLAR_RNN_BW, 88, 8, 1);
    check_view(&layout, 1, ASHLAR_RNN_BR, 96, 8, 1);
}

static void the_smallest_stack_has_sixteen_weights(void) {
    const ashlar_rnn_config config = config_of(1, 1, 1);
    ashlar_rnn_layout layout;
    REQUIRE(ashlar_rnn_layout_init(&layout, &config) == ASHLAR_OK);
    CHECK_ZU(layout.elements, 16);
    check_view(&layout, 0, ASHLAR_RNN_R, 4, 4, 1);
    check_view(&layout, 0, ASHLAR_RNN_BR, 12, 4, 1);
}

static void check_coverage(size_t input, size_t hidden, size_t layers) {
    const ashlar_rnn_config config = config_of(input, hidden, layers);
    ashlar_rnn_layout layout;
    REQUIRE(ashlar_rnn_layout_init(&layout, &config) == ASHLAR_OK);
    unsigned char *owners = calloc(layout.elements, 1);
    REQUIRE(owners != NULL);
    size_t outside = 0, wrong = 0;
    for (size_t layer = 0; layer < layers; layer++) {
        for (int tensor = 0; tensor < ASHLAR_RNN_TENSOR_COUNT; tensor++) {
            const ashlar_rnn_view view =
                ashlar_rnn_layout_view(&layout, layer, (ashlar_rnn_tensor)tensor);
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

static void every_element_belongs_to_exactly_one_tensor(void) {
    for (size_t input = 1; input <= 7; input += 3) {
        for (size_t hidden = 1; hidden <= 9; hidden += 2) {
            for (size_t layers = 1; layers <= 5; layers++) {
                check_coverage(input, hidden, layers);
            }
        }
    }
}

static void a_zero_dimension_is_refused_by_name(void) {
    const ashlar_rnn_config configs[] = {config_of(0, 2, 2), config_of(2, 0, 2),
                                         config_of(2, 2, 0)};
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        ashlar_rnn_layout layout = {.elements = 77};
        CHECK(ashlar_rnn_layout_init(&layout, &configs[i]) == ASHLAR_EINVAL);
        CHECK_ZU(layout.elements, 77);
    }
    CHECK_HAS(ashlar_error_detail(), "layers 0");
}

static void an_unknown_type_is_refused(void) {
    ashlar_rnn_config config = config_of(2, 2, 2);
    config.dtype = ASHLAR_DTYPE_COUNT;
    ashlar_rnn_layout layout = {.elements = 77};
    CHECK(ashlar_rnn_layout_init(&layout, &config) == ASHLAR_EINVAL);
    CHECK_ZU(layout.elements, 77);
    CHECK_HAS(ashlar_error_detail(), "dtype");
}

/* L 1, H 1: 4 (I + 1 + 2) elements, so I = 2^29 - 3 makes exactly 2^31. */
static void the_limit_of_two_to_the_31_elements_is_exact(void) {
    const size_t limit = ((size_t)1 << 29) - 3;
    ashlar_rnn_layout layout = {.elements = 77};
    ashlar_rnn_config config = config_of(limit, 1, 1);
    CHECK(ashlar_rnn_layout_init(&layout, &config) == ASHLAR_EOVERFLOW);
    CHECK_ZU(layout.elements, 77);
    CHECK_HAS(ashlar_error_detail(), "lower hidden");
    config = config_of(limit - 1, 1, 1);
    CHECK(ashlar_rnn_layout_init(&layout, &config) == ASHLAR_OK);
    CHECK_ZU(layout.elements, ((size_t)1 << 31) - 4);
}

static void sizes_that_wrap_are_refused(void) {
    const size_t huge = SIZE_MAX / 2 + 1; /* 2^63: twice that is 0 again */
    const ashlar_rnn_config configs[] = {
        config_of(8192, 8192, 4), config_of(huge, 1, 1),     config_of(1, huge, 1),
        config_of(1, 1, huge),    config_of(SIZE_MAX, 1, 1), config_of(1, (size_t)1 << 32, 1),
        config_of(1, 1, SIZE_MAX), config_of(SIZE_MAX, SIZE_MAX, SIZE_MAX),
        config_of(((size_t)1 << 30) - 4, (size_t)1 << 30, 2)}; /* 2^32 rows of 2^32 elements */
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        ashlar_rnn_layout layout = {.elements = 77};
        CHECK(ashlar_rnn_layout_init(&layout, &configs[i]) == ASHLAR_EOVERFLOW);
        CHECK_ZU(layout.elements, 77);
    }
}

int main(void) {
    RUN(two_small_layers_lie_where_the_formula_says);
    RUN(the_smallest_stack_has_sixteen_weights);
    RUN(every_element_belongs_to_exactly_one_tensor);
    RUN(a_zero_dimension_is_refused_by_name);
    RUN(an_unknown_type_is_refused);
    RUN(the_limit_of_two_to_the_31_elements_is_exact);
    RUN(sizes_that_wrap_are_refused);
    return check_report();
}
