/*
 * test_rnn_cudnn.c - what the cuDNN back end tells cuDNN.
 *
 * Run on the fake driver with the fake cuDNN (fake_cudnn.c). test_gpu_rnn.c compares numbers.
 */
#include "tests/rnn/cuda/rnn_cudnn_fixture.h"

/* ---- finding it ---- */

/* The first case: a library that was found stays. */
CASE(a_library_that_is_none_is_refused_by_name) {
    const char *given = getenv("ASHLAR_CUDNN");
    char *good = strdup(given == NULL ? "" : given);
    const ashlar_rnn_config config = small_config();
    ashlar_rnn *rnn = NULL;
    setenv("ASHLAR_CUDNN", "/nowhere/libcudnn.so.9", 1);
    CHECK_FAILS(ashlar_rnn_create(gpu, &config, &rnn), ASHLAR_ENOTSUP, "cuDNN 9 was not found");
    CHECK_HAS(ashlar_error_detail(), "/nowhere/libcudnn.so.9");
    setenv("ASHLAR_CUDNN", "libm.so.6", 1);
    CHECK_FAILS(ashlar_rnn_create(gpu, &config, &rnn), ASHLAR_ENOTSUP,
                "cuDNN 9 lacks cudnnGetVersion");
    setenv("ASHLAR_CUDNN", good, 1);
    setenv("FAKE_CUDNN", "old", 1);
    CHECK_FAILS(ashlar_rnn_create(gpu, &config, &rnn), ASHLAR_ENOTSUP,
                "version 80907; it must be 9.x");
    unsetenv("FAKE_CUDNN");
    CHECK(rnn == NULL);
    free(good);
}

/* ---- descriptions ---- */

/* What a stack is described as; "" where it is refused. */
static const char *described(const ashlar_rnn_config *config) {
    ashlar_rnn *rnn = NULL;
    const ashlar_status status = ashlar_rnn_create(gpu, config, &rnn);
    CHECK((status == ASHLAR_OK) == (rnn != NULL));
    if (rnn != NULL) {
        CHECK(strcmp(rnn->backend->name, "cudnn") == 0);
        CHECK(rnn->backend->backward_reads_output);
    }
    ashlar_rnn_destroy(rnn);
    return take_log();
}

CASE(a_stack_is_described_as_it_was_asked_for) {
    static const char *const cells[] = {"cell=2,", "cell=3,", "cell=1,", "cell=0,"};
    static const char *const biases[] = {"bias=2,", "bias=0,", "bias=1,", "bias=3,"};
    static const char *const types[] = {"type=0,precision=0,math=3,", "type=1,precision=1,math=3,",
                                        "type=2,precision=0,math=1,", "type=9,precision=0,math=1,"};
    static const char *const algorithms[] = {"algorithm=0,", "algorithm=1,", "algorithm=2,",
                                             "algorithm=3,"};
    ashlar_rnn_config c = small_config();
    CHECK_HAS(described(&c), "rnn(algorithm=0,cell=2,bias=2,direction=0,input=0,type=0,"
                             "precision=0,math=3,3x4x4x2,flags=1) ");
    for (int i = 0; i < 4; i++) {
        c = small_config();
        c.cell = (ashlar_rnn_cell)i;
        CHECK_HAS(described(&c), cells[i]);
        c = small_config();
        c.bias = (ashlar_rnn_bias)i;
        CHECK_HAS(described(&c), biases[i]);
        c = small_config();
        c.dtype = (ashlar_dtype)i;
        CHECK_HAS(described(&c), types[i]);
        c = small_config();
        c.algorithm = (ashlar_rnn_algorithm)i;
        CHECK_HAS(described(&c), algorithms[i]);
    }
    c = small_config();
    c.math = ASHLAR_RNN_MATH_TF32;
    CHECK_HAS(described(&c), "math=0,");
    c = small_config();
    c.directions = 2;
    c.projection = 2;
    CHECK_HAS(described(&c), "direction=1,input=0,type=0,precision=0,math=3,3x4x2x2,");
}

CASE(a_layout_that_differs_is_refused_by_name) {
    static const char *const messages[FAKE_CUDNN_CHANGE_COUNT] = {
        [FAKE_CUDNN_GATES] = "R of layer 1 reverse, gate 0: its byte is ",
        [FAKE_CUDNN_BIASES] = "bW of layer 1 reverse, gate 0: its byte is ",
        [FAKE_CUDNN_COLUMNS] = "W of layer 1 reverse, gate 0: the distance of its rows is 1 for",
        [FAKE_CUDNN_ABSENT] = "bR of layer 1 reverse, gate 0: the number of its tensors is 0 for",
        [FAKE_CUDNN_SIZE] = "bytes for this cuDNN",
    };
    const ashlar_rnn_config config = config_of(&SHAPE, &GRU, ASHLAR_F32);
    for (int i = 1; i < FAKE_CUDNN_CHANGE_COUNT; i++) {
        ashlar_rnn *rnn = NULL;
        fake->change = (fake_cudnn_change)i;
        CHECK_FAILS(ashlar_rnn_create(gpu, &config, &rnn), ASHLAR_ENOTSUP, messages[i]);
        CHECK(rnn == NULL);
        CHECK_ZU((size_t)fake->live, 0);
    }
}

/* ---- passes ---- */

CASE(backward_without_the_output_is_refused) {
    const ashlar_rnn_config config = small_config();
    REQUIRE(open_pair(&SHAPE, &PLAIN_LSTM, ASHLAR_F32, &config, true));
    CHECK(ashlar_rnn_forward(far.rnn, &far.batch, &far.all, gpu_stream) == ASHLAR_OK);
    far.all.y = NULL;
    CHECK_FAILS(ashlar_rnn_backward_data(far.rnn, &far.batch, &far.all, gpu_stream), ASHLAR_EINVAL,
                "y is NULL");
    CHECK(ashlar_rnn_backward_weights(far.rnn, &far.batch, &far.all, gpu_stream) == ASHLAR_EINVAL);
}

/* The dynamic one is compiled for a number of sequences: once for each change. */
CASE(a_persistent_algorithm_takes_full_lengths_only) {
    shape s = {1, 3, 2, 3, 4, {3, 3}, false};
    ashlar_rnn_config config = config_of(&s, &PLAIN_LSTM, ASHLAR_F32);
    size_t reserve = 0, work = 0;
    config.algorithm = ASHLAR_RNN_PERSIST_DYNAMIC;
    REQUIRE(open_pair(&s, &PLAIN_LSTM, ASHLAR_F32, &config, true));
    CHECK_HAS(take_log(), "build(2) ");
    CHECK(ashlar_rnn_sizes(far.rnn, 3, 1, true, &reserve, &work) == ASHLAR_OK);
    CHECK_HAS(take_log(), "build(1) ");
    CHECK(run_far(&far, true) == ASHLAR_OK);
    CHECK(strncmp(take_log(), "build(2) sizes(1,3x2) forward", 29) == 0);
    CHECK(run_far(&far, true) == ASHLAR_OK);
    CHECK(strncmp(take_log(), "forward", 7) == 0);
    s.lengths[1] = 2;
    CHECK_FAILS(run_far(&far, true), ASHLAR_ENOTSUP, "full length");
    CHECK(strcmp(take_log(), "") == 0);
}

CASE(sizes_beyond_cudnns_integers_are_refused) {
    const ashlar_rnn_config config = small_config();
    const size_t most = (size_t)INT32_MAX;
    static const struct {
        size_t steps, batch;
    } bad[] = {{(size_t)INT32_MAX + 1, 1}, {1, (size_t)INT32_MAX + 1}, {1 << 14, 1 << 17},
               {SIZE_MAX, SIZE_MAX},       {1, SIZE_MAX / 2},          {1, INT32_MAX / 8 + 1}};
    ashlar_rnn *rnn = NULL;
    size_t reserve = most, work = most;
    REQUIRE(ashlar_rnn_create(gpu, &config, &rnn) == ASHLAR_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(ashlar_rnn_sizes(rnn, bad[i].steps, bad[i].batch, true, &reserve, &work) ==
              ASHLAR_EOVERFLOW);
    }
    CHECK(ashlar_rnn_sizes(rnn, 0, 1, true, &reserve, &work) == ASHLAR_EINVAL);
    CHECK(ashlar_rnn_sizes(rnn, 1, 0, true, &reserve, &work) == ASHLAR_EINVAL);
    CHECK(reserve == most && work == most);
    ashlar_rnn_destroy(rnn);
}

/* ---- dropout ---- */

static cu_graph_exec end_capture(void) {
    ashlar_driver *driver = gpu->driver;
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    CHECK(ashlar__device_enter(gpu) == ASHLAR_OK);
    CHECK(driver->table.stream_end_capture(gpu_stream, &graph) == CU_SUCCESS);
    CHECK(driver->table.graph_instantiate(&exec, graph, 0) == CU_SUCCESS);
    CHECK(driver->table.graph_destroy(graph) == CU_SUCCESS);
    ashlar__device_leave(gpu);
    return exec;
}

static void begin_capture(void) {
    CHECK(ashlar__device_enter(gpu) == ASHLAR_OK);
    CHECK(gpu->driver->table.stream_begin_capture(gpu_stream, CU_CAPTURE_GLOBAL) == CU_SUCCESS);
    ashlar__device_leave(gpu);
}

/* The fake draws mask n of seed s as the CPU does that of seed s + n. */
CASE(masks_follow_from_the_first_seed) {
    const kind k = {.cell = ASHLAR_RNN_LSTM, .directions = 1, .dropout = 0.5};
    const ashlar_rnn_config config = config_of(&SHAPE, &k, ASHLAR_F32);
    const size_t before = free_memory();
    REQUIRE(open_pair(&SHAPE, &k, ASHLAR_F32, &config, true));
    CHECK_HAS(take_log(), "dropout(0.5,states,0) ");
    for (uint64_t i = 0; i < 3; i++) {
        far.batch.dropout_seed = i == 0 ? 1000 : 5 * i; /* only the first counts */
        near.args.dropout_seed = 1000 + i;
        CHECK(run_far(&far, true) == ASHLAR_OK);
        run_training(&near);
        compare_forward(&far);
        compare_backward(&far);
        const char *log = take_log();
        CHECK((strstr(log, "dropout(0.5,states,1000) rnn(") != NULL) == (i == 0));
        CHECK((strstr(log, "dropout(") != NULL) == (i == 0));
    }
    close_pair();
    CHECK_ZU(free_memory(), before);
}

CASE(masks_may_follow_from_every_seed) {
    static const uint64_t seeds[] = {7, 8, 7};
    const kind k = {.cell = ASHLAR_RNN_GRU, .directions = 1, .dropout = 0.5};
    const ashlar_rnn_config config = config_of(&SHAPE, &k, ASHLAR_F32);
    REQUIRE(open_pair(&SHAPE, &k, ASHLAR_F32, &config, true));
    far.batch.dropout_restarts = true;
    for (int i = 0; i < 3; i++) {
        far.batch.dropout_seed = near.args.dropout_seed = seeds[i];
        CHECK(run_far(&far, true) == ASHLAR_OK);
        run_training(&near);
        compare_forward(&far);
        compare_backward(&far);
    }
    begin_capture();
    CHECK(ashlar_rnn_forward(far.rnn, &far.batch, &far.all, gpu_stream) == ASHLAR_ENOTSUP);
    CHECK(gpu->driver->table.graph_exec_destroy(end_capture()) == CU_SUCCESS);
}

CASE(without_dropout_there_are_no_states) {
    const ashlar_rnn_config config = small_config();
    CHECK_HAS(described(&config), "dropout(0,none,0) ");
}

/* ---- capture ---- */

CASE(the_first_forward_with_dropout_is_not_captured) {
    const ashlar_rnn_config config = dropping_config();
    REQUIRE(open_pair(&SHAPE, &PLAIN_LSTM, ASHLAR_F32, &config, true));
    begin_capture();
    CHECK_FAILS(ashlar_rnn_forward(far.rnn, &far.batch, &far.all, gpu_stream), ASHLAR_ENOTSUP,
                "may not be captured");
    CHECK(gpu->driver->table.graph_exec_destroy(end_capture()) == CU_SUCCESS);
    CHECK(run_far(&far, true) == ASHLAR_OK);
    begin_capture();
    CHECK(run_far(&far, true) == ASHLAR_OK);
    CHECK(gpu->driver->table.graph_exec_destroy(end_capture()) == CU_SUCCESS);
}

RUN_CASES_ON_FAKES()
