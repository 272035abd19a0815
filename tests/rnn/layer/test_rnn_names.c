/*
 * test_rnn_names.c - building an RNN: the weights that it declares, and the sizes it asks for.
 */
#include "tests/rnn/layer/rnn_fixture.h"

#include "arena/layout/arena_impl.h"
#include "rnn/layer/backend.h"
#include "rnn/layer/rnn_cpu.h"

/* ---- what is declared ---- */

/* By hand, what PyTorch's nn.LSTM(3, 5, 2, proj_size=2, bidirectional=True) has. */
CASE(the_names_of_a_projected_bidirectional_lstm_are_pytorchs) {
    static const struct {
        const char *name;
        size_t rows, cols;
    } want[] = {
        {"lstm.weight_ih_l0", 20, 3},         {"lstm.weight_hh_l0", 20, 2},
        {"lstm.bias_ih_l0", 20, 0},           {"lstm.bias_hh_l0", 20, 0},
        {"lstm.weight_hr_l0", 2, 5},          {"lstm.weight_ih_l0_reverse", 20, 3},
        {"lstm.weight_hh_l0_reverse", 20, 2}, {"lstm.bias_ih_l0_reverse", 20, 0},
        {"lstm.bias_hh_l0_reverse", 20, 0},   {"lstm.weight_hr_l0_reverse", 2, 5},
        {"lstm.weight_ih_l1", 20, 4},         {"lstm.weight_hh_l1", 20, 2},
    };
    ashlar_rnn_config config = config_of(ASHLAR_F32);
    config.directions = 2;
    config.projection = 2;
    REQUIRE(set_up_rnn_of("memory=16MiB", &config));
    ashlar_arena *arena = NULL;
    size_t first = 77;
    REQUIRE(ashlar_arena_create(&arena) == ASHLAR_OK);
    CHECK(ashlar_rnn_declare(arena, "lstm", ashlar_rnn_layout_of(rnn), &first) == ASHLAR_OK);
    CHECK_ZU(ashlar_arena_get_info(arena).tensor_count, 20);
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, first + i, &info);
        CHECK(strcmp(info.name, want[i].name) == 0);
        CHECK(info.shape[0] == want[i].rows && (info.rank == 1 || info.shape[1] == want[i].cols));
        CHECK((info.rank == 1) == (want[i].cols == 0));
    }
    ashlar_arena_destroy(arena);
}

/* "PREFIX.weight_ih_l0" and its end fill 128 bytes: a prefix of 114 letters is the last to fit. */
CASE_WITH(a_prefix_too_long_for_a_name_is_refused, set_up_rnn("memory=16MiB", ASHLAR_F32)) {
    ashlar_arena *arena = NULL;
    REQUIRE(ashlar_arena_create(&arena) == ASHLAR_OK);
    char prefix[128];
    size_t first = 77;
    memset(prefix, 'p', sizeof prefix);
    for (size_t length = 127; length > 114; length -= 12) {
        prefix[length] = '\0';
        CHECK_FAILS(ashlar_rnn_declare(arena, prefix, ashlar_rnn_layout_of(rnn), &first),
                    ASHLAR_EINVAL, "too long");
        CHECK_ZU(ashlar_arena_get_info(arena).tensor_count, 0);
        CHECK_ZU(first, 77);
    }
    prefix[114] = '\0';
    CHECK(ashlar_rnn_declare(arena, prefix, ashlar_rnn_layout_of(rnn), &first) == ASHLAR_OK);
    ashlar_arena_destroy(arena);
}

CASE_WITH(a_declaration_that_fails_adds_nothing, set_up_rnn("memory=16MiB", ASHLAR_F32)) {
    ashlar_arena *arena = NULL;
    size_t first = 77;
    REQUIRE(ashlar_arena_create(&arena) == ASHLAR_OK);
    FOR_HOST_FAILURES(n, status,
                      ashlar_rnn_declare(arena, "stack", ashlar_rnn_layout_of(rnn), &first)) {
        CHECK((first == 0) == (status == ASHLAR_OK));
        CHECK_ZU(ashlar_arena_get_info(arena).tensor_count, status == ASHLAR_OK ? 8 : 0);
        CHECK(n > 2 || strstr(ashlar_error_detail(), "a stack of 2 pseudo-layers") != NULL);
    }
    CHECK(n > 2);
    CHECK_FAILS(ashlar_rnn_declare(arena, "stack", ashlar_rnn_layout_of(rnn), &first),
                ASHLAR_EINVAL, "stack.weight_ih_l0 is declared twice");
    ashlar_arena_destroy(arena);
}

/* ---- creation and sizes ---- */

/* The layout knows more types than the CPU. */
CASE_WITH(the_cpu_computes_in_float_and_double_only, set_up("memory=16MiB")) {
    for (int dtype = 0; dtype < ASHLAR_DTYPE_COUNT; dtype++) {
        const bool is_known = dtype == ASHLAR_F32 || dtype == ASHLAR_F64;
        const ashlar_rnn_config config = config_of((ashlar_dtype)dtype);
        rnn = NULL;
        CHECK(ashlar_rnn_create(device, &config, &rnn) ==
              (is_known ? ASHLAR_OK : ASHLAR_ENOTSUP));
        CHECK((rnn != NULL) == is_known);
        ashlar_rnn_destroy(rnn);
    }
    rnn = NULL;
    finish();
}

RUN_CASES()
