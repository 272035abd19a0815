/*
 * test_rnn_names.c - building an RNN: the weights that it declares, and the sizes it asks for.
 */
#include "tests/rnn/layer/rnn_fixture.h"

#include "arena/layout/arena_impl.h"
#include "rnn/layer/backend.h"
#include "rnn/layer/rnn_cpu.h"

/* ---- what is declared ---- */

/* PyTorch's names of a part's tensors, in the order of ashlar_rnn_tensor. */
static const char *const KINDS[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"};

/* The tensors of one part, from *tensor on. */
static void check_part(const ashlar_arena *arena, const ashlar_rnn_layout *layout,
                       size_t pseudo_layer, size_t start, size_t *tensor) {
    const size_t item = ashlar_dtype_bytes(layout->config.dtype);
    const size_t directions = layout->config.directions;
    for (int kind = 0; kind < ASHLAR_RNN_TENSOR_COUNT; kind++) {
        const ashlar_rnn_view view =
            ashlar_rnn_layout_view(layout, pseudo_layer, (ashlar_rnn_tensor)kind);
        char name[64];
        ashlar_tensor_info info;
        if (view.rows == 0) {
            continue;
        }
        ashlar_arena_tensor(arena, (*tensor)++, &info);
        (void)snprintf(name, sizeof name, "stack.%s_l%zu%s", KINDS[kind], pseudo_layer / directions,
                       pseudo_layer % directions == 1 ? "_reverse" : "");
        CHECK(strcmp(info.name, name) == 0);
        CHECK(info.dtype == layout->config.dtype);
        CHECK_ZU(info.rank, kind == ASHLAR_RNN_BW || kind == ASHLAR_RNN_BR ? 1 : 2);
        CHECK_ZU(info.shape[0], view.rows);
        CHECK(info.rank == 1 || info.shape[1] == view.cols);
        CHECK_ZU(info.offset[ASHLAR_LAYOUT_STORAGE] - start, view.offset * item);
        CHECK_ZU(info.bytes, view.rows * view.cols * item);
    }
}

static void check_declared(const ashlar_rnn_config *config) {
    ashlar_rnn_layout layout;
    ashlar_arena *arena = NULL;
    ashlar_tensor_info lowest;
    size_t first = 77;
    REQUIRE(ashlar_rnn_layout_init(&layout, config) == ASHLAR_OK);
    REQUIRE(ashlar_arena_create(&arena) == ASHLAR_OK);
    CHECK(ashlar_arena_add(arena, "before", ASHLAR_F32, 1, &(size_t){1}, NULL) == ASHLAR_OK);
    CHECK(ashlar_rnn_declare(arena, "stack", &layout, &first) == ASHLAR_OK);
    CHECK_ZU(first, 1);
    CHECK_ZU(arena->groups[1].bytes, layout.elements * ashlar_dtype_bytes(config->dtype));
    CHECK(ashlar_arena_commit(arena, allocator, streams[0], 1) == ASHLAR_OK);
    ashlar_arena_tensor(arena, first, &lowest);
    size_t tensor = first;
    for (size_t pseudo_layer = 0; pseudo_layer < layout.pseudo_layers; pseudo_layer++) {
        check_part(arena, &layout, pseudo_layer, lowest.offset[ASHLAR_LAYOUT_STORAGE], &tensor);
    }
    CHECK_ZU(tensor, ashlar_arena_tensor_count(arena));
    ashlar_arena_destroy(arena);
}

CASE_WITH(weights_are_declared_in_packed_order_under_pytorchs_names, set_up("memory=16MiB")) {
    for (int i = 0; i < ASHLAR_DTYPE_COUNT * ASHLAR_RNN_CELL_COUNT * ASHLAR_RNN_BIAS_COUNT; i++) {
        ashlar_rnn_config config = config_of((ashlar_dtype)(i % ASHLAR_DTYPE_COUNT));
        config.cell = (ashlar_rnn_cell)(i / ASHLAR_DTYPE_COUNT % ASHLAR_RNN_CELL_COUNT);
        config.bias = (ashlar_rnn_bias)(i / ASHLAR_DTYPE_COUNT / ASHLAR_RNN_CELL_COUNT);
        check_declared(&config);
        config.directions = 2;
        config.projection = config.cell == ASHLAR_RNN_LSTM ? 2 : 0;
        check_declared(&config);
    }
    finish();
}

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
    CHECK_ZU(ashlar_arena_tensor_count(arena), 20);
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
        CHECK_ZU(ashlar_arena_tensor_count(arena), 0);
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
        CHECK_ZU(ashlar_arena_tensor_count(arena), status == ASHLAR_OK ? 8 : 0);
        CHECK(n > 2 || strstr(ashlar_error_detail(), "a stack of 2 pseudo-layers") != NULL);
    }
    CHECK(n > 2);
    CHECK_FAILS(ashlar_rnn_declare(arena, "stack", ashlar_rnn_layout_of(rnn), &first),
                ASHLAR_EINVAL, "stack.weight_ih_l0 is declared twice");
    ashlar_arena_destroy(arena);
}

/* ---- creation and sizes ---- */

CASE_WITH(a_stack_that_cannot_be_is_refused, set_up("memory=16MiB")) {
    ashlar_rnn_config config = config_of(ASHLAR_F32);
    rnn = NULL;
    config.hidden = 0;
    CHECK(ashlar_rnn_create(device, &config, &rnn) == ASHLAR_EINVAL);
    config = config_of(ASHLAR_F32);
    device->info.kind = ASHLAR_DEVICE_CUDA; /* as far as one can tell from outside */
    setenv("ASHLAR_CUDNN", "/nowhere/libcudnn.so.9", 1);
    CHECK_FAILS(ashlar_rnn_create(device, &config, &rnn), ASHLAR_ENOTSUP, "ASHLAR_DEVICE=soft");
    device->info.kind = ASHLAR_DEVICE_SOFT;
    HOST_FAILS_AT(1, CHECK(ashlar_rnn_create(device, &config, &rnn) == ASHLAR_EHOSTMEM));
    CHECK(rnn == NULL);
    REQUIRE(ashlar_rnn_create(device, &config, &rnn) == ASHLAR_OK);
    const ashlar_rnn_config got = ashlar_rnn_layout_of(rnn)->config;
    CHECK(got.input == INPUT && got.hidden == HIDDEN && got.layers == LAYERS);
    CHECK(strcmp(rnn->backend->name, "cpu") == 0);
    ashlar_rnn_destroy(NULL);
    finish();
}

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

CASE_WITH(sizes_are_those_of_the_back_end, set_up_rnn("memory=16MiB", ASHLAR_F64)) {
    for (int training = 0; training < 2; training++) {
        size_t reserve = 77, work = 77, want_reserve = 0, want_work = 0;
        CHECK(ashlar_rnn_sizes(rnn, STEPS, BATCH, training, &reserve, &work) == ASHLAR_OK);
        CHECK(ashlar__rnn_cpu_sizes(ashlar_rnn_layout_of(rnn), STEPS, BATCH, training,
                                    &want_reserve, &want_work) == ASHLAR_OK);
        CHECK_ZU(reserve, want_reserve);
        CHECK_ZU(work, want_work);
        CHECK((reserve == 0) == !training);
    }
    size_t reserve = 77, work = 77;
    CHECK(ashlar_rnn_sizes(rnn, 0, BATCH, true, &reserve, &work) == ASHLAR_EINVAL);
    CHECK(ashlar_rnn_sizes(rnn, SIZE_MAX / 8, 8, true, &reserve, &work) == ASHLAR_EOVERFLOW);
    CHECK(reserve == 77 && work == 77);
}

RUN_CASES()
