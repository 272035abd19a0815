/*
 * test_rnn_cudnn.c - what the cuDNN back end tells cuDNN, and what it does when cuDNN or the driver
 * refuses.
 *
 * Run on the fake driver with the fake cuDNN (fake_cudnn.c). test_gpu_rnn.c compares numbers.
 */
#include "gpu_rnn_fixture.h"

#include <pthread.h>

#include <cudnn.h>

#include "backend.h"
#include "fake_cudnn.h"
#include "host.h"

static fake_cudnn_control *fake;

static const shape SHAPE = {2, 5, 3, 3, 4, {2, 5, 1}, true};
static const kind GRU = {.cell = ASHLAR_RNN_GRU, .directions = 2};

static ashlar_rnn_config small_config(void) {
    return config_of(&SHAPE, &PLAIN_LSTM, ASHLAR_F32);
}

static ashlar_rnn_config dropping_config(void) {
    ashlar_rnn_config config = small_config();
    config.dropout = 0.5;
    return config;
}

/* What the fake has recorded, from the beginning of the case or the last time. */
static const char *take_log(void) {
    static char taken[FAKE_CUDNN_LOG_BYTES];
    memcpy(taken, fake->log, sizeof taken);
    fake->log[0] = '\0';
    return taken;
}

/* At the end of a case: all is as before it. */
static void check_clean(void) {
    gpu_wait();
    CHECK_ZU((size_t)fake->live, 0);
    CHECK(strcmp(fake->misuse, "") == 0);
    if (fake->misuse[0] != '\0') {
        printf("# misuse: %s\n", fake->misuse);
    }
    CHECK(gpu->driver->table.ctx_pop_current(NULL) == CU_INVALID_CONTEXT);
    fake->misuse[0] = fake->log[0] = '\0';
    fake->change = FAKE_CUDNN_SAME;
    fake->fail_at = 0;
}

static size_t free_memory(void) {
    size_t free_bytes = 0, total_bytes = 0;
    CHECK(ashlar_device_enter(gpu) == ASHLAR_OK);
    CHECK(gpu->driver->table.mem_get_info(&free_bytes, &total_bytes) == CU_SUCCESS);
    ashlar_device_leave(gpu);
    return free_bytes;
}

/* ---- finding it ---- */

/* The first case: a library that was found stays. */
static void a_library_that_is_none_is_refused_by_name(void) {
    const char *given = getenv("ASHLAR_CUDNN");
    char *good = strdup(given == NULL ? "" : given);
    const ashlar_rnn_config config = small_config();
    ashlar_rnn *rnn = NULL;
    setenv("ASHLAR_CUDNN", "/nowhere/libcudnn.so.9", 1);
    CHECK(ashlar_rnn_create(gpu, &config, &rnn) == ASHLAR_ENOTSUP);
    CHECK_HAS(ashlar_error_detail(), "cuDNN 9 was not found");
    CHECK_HAS(ashlar_error_detail(), "/nowhere/libcudnn.so.9");
    setenv("ASHLAR_CUDNN", "libm.so.6", 1);
    CHECK(ashlar_rnn_create(gpu, &config, &rnn) == ASHLAR_ENOTSUP);
    CHECK_HAS(ashlar_error_detail(), "cuDNN 9 lacks cudnnGetVersion");
    setenv("ASHLAR_CUDNN", good, 1);
    setenv("FAKE_CUDNN", "old", 1);
    CHECK(ashlar_rnn_create(gpu, &config, &rnn) == ASHLAR_ENOTSUP);
    CHECK_HAS(ashlar_error_detail(), "version 80907; it must be 9.x");
    unsetenv("FAKE_CUDNN");
    CHECK(rnn == NULL);
    free(good);
    check_clean();
}

/* ---- descriptions ---- */

/* What a stack is described as; "" where it is refused. */
static const char *described(const ashlar_rnn_config *config) {
    ashlar_rnn *rnn = NULL;
    const ashlar_status status = ashlar_rnn_create(gpu, config, &rnn);
    CHECK((status == ASHLAR_OK) == (rnn != NULL));
    if (rnn != NULL) {
        CHECK(strcmp(rnn->backend->name, "cudnn") == 0);
        CHECK(ashlar_rnn_backward_reads_output(rnn));
    }
    ashlar_rnn_destroy(rnn);
    return take_log();
}

static void a_stack_is_described_as_it_was_asked_for(void) {
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
    check_clean();
}

static void a_persistent_algorithm_is_refused_where_cudnn_has_none(void) {
    ashlar_rnn_config c[3];
    for (int i = 0; i < 3; i++) {
        c[i] = small_config();
        c[i].algorithm = ASHLAR_RNN_PERSIST_STATIC;
    }
    c[0].bias = ASHLAR_RNN_BIAS_INPUT;
    c[1].projection = 2;
    c[2].dtype = ASHLAR_F64;
    for (int i = 0; i < 3; i++) {
        CHECK(strcmp(described(&c[i]), "") == 0);
        CHECK_HAS(ashlar_error_detail(), "persistent");
    }
    c[2].algorithm = ASHLAR_RNN_PERSIST_DYNAMIC;
    CHECK_HAS(described(&c[2]), "algorithm=2,cell=2,bias=2,direction=0,input=0,type=1,");
    check_clean();
}

static void a_layout_that_differs_is_refused_by_name(void) {
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
        CHECK(ashlar_rnn_create(gpu, &config, &rnn) == ASHLAR_ENOTSUP);
        CHECK_HAS(ashlar_error_detail(), messages[i]);
        CHECK(rnn == NULL);
        CHECK_ZU((size_t)fake->live, 0);
    }
    check_clean();
}

/* ---- passes ---- */

static void a_step_is_one_call_for_each_pass(void) {
    const ashlar_rnn_config config = small_config();
    problem near;
    twin far;
    REQUIRE(open_problem(&near, &SHAPE, &PLAIN_LSTM, ASHLAR_F32, true));
    REQUIRE(open_twin(&far, &near, &config, true));
    CHECK_HAS(take_log(), "sizes(1,5x3) ");
    CHECK(run_far(&far, true) == ASHLAR_OK);
    CHECK(strcmp(take_log(), "forward(training) backward_data(training) "
                             "backward_weights(training) ") == 0);
    far.all.reserve = NULL;
    CHECK(run_far(&far, false) == ASHLAR_OK);
    CHECK(strcmp(take_log(), "sizes(0,5x3) forward(inference) ") == 0);
    close_twin(&far);
    close_problem(&near);
    check_clean();
}

static void backward_without_the_output_is_refused(void) {
    const ashlar_rnn_config config = small_config();
    problem near;
    twin far;
    REQUIRE(open_problem(&near, &SHAPE, &PLAIN_LSTM, ASHLAR_F32, true));
    REQUIRE(open_twin(&far, &near, &config, true));
    CHECK(ashlar_rnn_forward(far.rnn, &far.batch, &far.all, gpu_stream) == ASHLAR_OK);
    far.all.y = NULL;
    CHECK(ashlar_rnn_backward_data(far.rnn, &far.batch, &far.all, gpu_stream) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "y is NULL");
    CHECK(ashlar_rnn_backward_weights(far.rnn, &far.batch, &far.all, gpu_stream) == ASHLAR_EINVAL);
    close_twin(&far);
    close_problem(&near);
    check_clean();
}

/* The dynamic one is compiled for a number of sequences: once for each change. */
static void a_persistent_algorithm_takes_full_lengths_only(void) {
    shape s = {1, 3, 2, 3, 4, {3, 3}, false};
    ashlar_rnn_config config = config_of(&s, &PLAIN_LSTM, ASHLAR_F32);
    size_t reserve = 0, work = 0;
    problem near;
    twin far;
    config.algorithm = ASHLAR_RNN_PERSIST_DYNAMIC;
    REQUIRE(open_problem(&near, &s, &PLAIN_LSTM, ASHLAR_F32, true));
    REQUIRE(open_twin(&far, &near, &config, true));
    CHECK_HAS(take_log(), "build(2) ");
    CHECK(ashlar_rnn_sizes(far.rnn, 3, 1, true, &reserve, &work) == ASHLAR_OK);
    CHECK_HAS(take_log(), "build(1) ");
    CHECK(run_far(&far, true) == ASHLAR_OK);
    CHECK(strncmp(take_log(), "build(2) sizes(1,3x2) forward", 29) == 0);
    CHECK(run_far(&far, true) == ASHLAR_OK);
    CHECK(strncmp(take_log(), "forward", 7) == 0);
    s.lengths[1] = 2;
    CHECK(run_far(&far, true) == ASHLAR_ENOTSUP);
    CHECK_HAS(ashlar_error_detail(), "full length");
    CHECK(strcmp(take_log(), "") == 0);
    close_twin(&far);
    close_problem(&near);
    check_clean();
}

static void sizes_beyond_cudnns_integers_are_refused(void) {
    const ashlar_rnn_config config = small_config();
    const size_t most = (size_t)INT32_MAX;
    static const struct {
        size_t steps, batch;
    } bad[] = {{(size_t)INT32_MAX + 1, 1}, {1, (size_t)INT32_MAX + 1}, {1 << 16, 1 << 15},
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
    check_clean();
}

static size_t aligned(size_t bytes) {
    return (bytes + 255) / 256 * 256;
}

/* What the fake asks for at full length (fake_cudnn_run.c), and room for a dx and a dy. */
static void check_sizes(const ashlar_rnn *rnn, size_t steps, size_t batch, bool training) {
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(rnn);
    const size_t rows = steps * batch, item = sizeof(float);
    size_t reserve = 0, work = 0, got_reserve = 1, got_work = 0;
    CHECK(ashlar_rnn_cpu_sizes(layout, steps, batch, training, &reserve, &work) == ASHLAR_OK);
    work += 64 * (5 - steps % 5);
    if (training) {
        reserve += rows * sizeof(double) + 64;
        work = aligned(work) + aligned(rows * layout->config.input * item) +
               rows * layout->output * item;
    }
    CHECK(ashlar_rnn_sizes(rnn, steps, batch, training, &got_reserve, &got_work) == ASHLAR_OK);
    CHECK_ZU(got_reserve, reserve);
    CHECK_ZU(got_work, work);
}

static void sizes_are_cudnns_and_room_for_two_gradients(void) {
    const ashlar_rnn_config config = config_of(&SHAPE, &GRU, ASHLAR_F32);
    ashlar_rnn *rnn = NULL;
    REQUIRE(ashlar_rnn_create(gpu, &config, &rnn) == ASHLAR_OK);
    for (size_t i = 0; i < 42; i++) { /* one thing changes, then the next */
        check_sizes(rnn, 1 + i % 7, 1 + i / 14, i / 7 % 2 == 0);
    }
    ashlar_rnn_destroy(rnn);
    check_clean();
}

/* ---- dropout ---- */

static cu_graph_exec end_capture(void) {
    ashlar_driver *driver = gpu->driver;
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    CHECK(ashlar_device_enter(gpu) == ASHLAR_OK);
    CHECK(driver->table.stream_end_capture(gpu_stream, &graph) == CU_SUCCESS);
    CHECK(driver->table.graph_instantiate(&exec, graph, 0) == CU_SUCCESS);
    CHECK(driver->table.graph_destroy(graph) == CU_SUCCESS);
    ashlar_device_leave(gpu);
    return exec;
}

static void begin_capture(void) {
    CHECK(ashlar_device_enter(gpu) == ASHLAR_OK);
    CHECK(gpu->driver->table.stream_begin_capture(gpu_stream, CU_CAPTURE_GLOBAL) == CU_SUCCESS);
    ashlar_device_leave(gpu);
}

/* The fake draws mask n of seed s as the CPU does that of seed s + n. */
static void masks_follow_from_the_first_seed(void) {
    const kind k = {.cell = ASHLAR_RNN_LSTM, .directions = 1, .dropout = 0.5};
    const ashlar_rnn_config config = config_of(&SHAPE, &k, ASHLAR_F32);
    const size_t before = free_memory();
    problem near;
    twin far;
    REQUIRE(open_problem(&near, &SHAPE, &k, ASHLAR_F32, true));
    REQUIRE(open_twin(&far, &near, &config, true));
    CHECK_HAS(take_log(), "dropout(0.5,states,0) ");
    for (uint64_t i = 0; i < 3; i++) {
        far.batch.dropout_seed = i == 0 ? 1000 : 5 * i; /* only the first counts */
        near.args.dropout_seed = 1000 + i;
        CHECK(run_far(&far, true) == ASHLAR_OK);
        run_forward(&near);
        run_backward(&near);
        compare_forward(&far);
        compare_backward(&far);
        const char *log = take_log();
        CHECK((strstr(log, "dropout(0.5,states,1000) rnn(") != NULL) == (i == 0));
        CHECK((strstr(log, "dropout(") != NULL) == (i == 0));
    }
    close_twin(&far);
    close_problem(&near);
    CHECK_ZU(free_memory(), before);
    check_clean();
}

static void masks_may_follow_from_every_seed(void) {
    static const uint64_t seeds[] = {7, 8, 7};
    const kind k = {.cell = ASHLAR_RNN_GRU, .directions = 1, .dropout = 0.5};
    const ashlar_rnn_config config = config_of(&SHAPE, &k, ASHLAR_F32);
    problem near;
    twin far;
    REQUIRE(open_problem(&near, &SHAPE, &k, ASHLAR_F32, true));
    REQUIRE(open_twin(&far, &near, &config, true));
    far.batch.dropout_restarts = true;
    for (int i = 0; i < 3; i++) {
        far.batch.dropout_seed = near.args.dropout_seed = seeds[i];
        CHECK(run_far(&far, true) == ASHLAR_OK);
        run_forward(&near);
        run_backward(&near);
        compare_forward(&far);
        compare_backward(&far);
    }
    begin_capture();
    CHECK(ashlar_rnn_forward(far.rnn, &far.batch, &far.all, gpu_stream) == ASHLAR_ENOTSUP);
    CHECK(gpu->driver->table.graph_exec_destroy(end_capture()) == CU_SUCCESS);
    close_twin(&far);
    close_problem(&near);
    check_clean();
}

/* One layer passes nothing on; inference drops nothing. */
static void dropout_that_drops_nothing_has_no_states(void) {
    ashlar_rnn_config config = dropping_config();
    config.layers = 1;
    CHECK_HAS(described(&config), "dropout(0,none,0) ");
    config = small_config();
    CHECK_HAS(described(&config), "dropout(0,none,0) ");
    check_clean();
}

/* ---- capture ---- */

/* The strictest mode: any other call than work and queries would end the capture. */
static void a_step_can_be_captured(void) {
    const ashlar_rnn_config config = small_config();
    problem near;
    twin far;
    REQUIRE(open_problem(&near, &SHAPE, &PLAIN_LSTM, ASHLAR_F32, true));
    REQUIRE(open_twin(&far, &near, &config, true));
    begin_capture();
    CHECK(run_far(&far, true) == ASHLAR_OK);
    cu_graph_exec exec = end_capture();
    for (int i = 0; i < 2; i++) {
        CHECK(ashlar_device_enter(gpu) == ASHLAR_OK);
        CHECK(gpu->driver->table.graph_launch(exec, gpu_stream) == CU_SUCCESS);
        gpu_wait();
        ashlar_device_leave(gpu);
    }
    run_forward(&near);
    run_backward(&near);
    compare_forward(&far);
    CHECK(gpu->driver->table.graph_exec_destroy(exec) == CU_SUCCESS);
    close_twin(&far);
    close_problem(&near);
    check_clean();
}

static void the_first_forward_with_dropout_is_not_captured(void) {
    const ashlar_rnn_config config = dropping_config();
    problem near;
    twin far;
    REQUIRE(open_problem(&near, &SHAPE, &PLAIN_LSTM, ASHLAR_F32, true));
    REQUIRE(open_twin(&far, &near, &config, true));
    begin_capture();
    CHECK(ashlar_rnn_forward(far.rnn, &far.batch, &far.all, gpu_stream) == ASHLAR_ENOTSUP);
    CHECK_HAS(ashlar_error_detail(), "may not be captured");
    CHECK(gpu->driver->table.graph_exec_destroy(end_capture()) == CU_SUCCESS);
    CHECK(run_far(&far, true) == ASHLAR_OK);
    begin_capture();
    CHECK(run_far(&far, true) == ASHLAR_OK);
    CHECK(gpu->driver->table.graph_exec_destroy(end_capture()) == CU_SUCCESS);
    close_twin(&far);
    close_problem(&near);
    check_clean();
}

/* ---- failures ---- */

static void every_refusal_has_its_status(void) {
    static const struct {
        cudnnStatus_t cudnn;
        ashlar_status want;
    } all[] = {
        {CUDNN_STATUS_NOT_INITIALIZED, ASHLAR_EDRIVER},
        {CUDNN_STATUS_BAD_PARAM, ASHLAR_EDRIVER},
        {CUDNN_STATUS_NOT_SUPPORTED, ASHLAR_ENOTSUP},
        {CUDNN_STATUS_NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT, ASHLAR_ENOTSUP},
        {CUDNN_STATUS_INTERNAL_ERROR, ASHLAR_EDRIVER},
        {CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, ASHLAR_EHOSTMEM},
        {CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, ASHLAR_ENOMEM},
        {CUDNN_STATUS_EXECUTION_FAILED, ASHLAR_EDRIVER},
    };
    const ashlar_rnn_config config = dropping_config();
    const size_t before = free_memory();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ashlar_rnn *rnn = NULL;
        bool has_failed = true;
        fake->fail_status = (int)all[i].cudnn;
        for (long n = 1; has_failed; n++) {
            fake->fail_at = n;
            const ashlar_status status = ashlar_rnn_create(gpu, &config, &rnn);
            has_failed = fake->fail_at == 0;
            CHECK(status == (has_failed ? all[i].want : ASHLAR_OK));
            CHECK((rnn == NULL) == has_failed);
            CHECK(!has_failed || fake->live == 0);
            CHECK(!has_failed || free_memory() == before);
            CHECK(n > 20 || has_failed);
        }
        ashlar_rnn_destroy(rnn);
        fake->fail_at = 0;
    }
    fake->fail_at = 1;
    fake->fail_status = (int)CUDNN_STATUS_BAD_PARAM;
    ashlar_rnn *rnn = NULL;
    CHECK(ashlar_rnn_create(gpu, &config, &rnn) == ASHLAR_EDRIVER);
    CHECK_HAS(ashlar_error_detail(),
              "cudnnCreate: CUDNN_STATUS_BAD_PARAM (2000): the fake's last words");
    check_clean();
}

/* The first training forward fails at each of its calls, and is queued again. */
static void a_seed_that_was_refused_is_set_again(void) {
    const kind k = {.cell = ASHLAR_RNN_LSTM, .directions = 1, .dropout = 0.5};
    const ashlar_rnn_config config = config_of(&SHAPE, &k, ASHLAR_F32);
    bool has_failed = true;
    for (long n = 1; has_failed; n++) {
        problem near;
        twin far;
        REQUIRE(open_problem(&near, &SHAPE, &k, ASHLAR_F32, true));
        REQUIRE(open_twin(&far, &near, &config, true)); /* sizes are known from here on */
        far.batch.dropout_seed = near.args.dropout_seed = 40;
        fake->fail_status = (int)CUDNN_STATUS_EXECUTION_FAILED;
        fake->fail_at = n;
        const ashlar_status status = ashlar_rnn_forward(far.rnn, &far.batch, &far.all, gpu_stream);
        has_failed = fake->fail_at == 0;
        fake->fail_at = 0;
        CHECK(status == (has_failed ? ASHLAR_EDRIVER : ASHLAR_OK));
        CHECK(!has_failed ||
              ashlar_rnn_forward(far.rnn, &far.batch, &far.all, gpu_stream) == ASHLAR_OK);
        run_forward(&near);
        compare_forward(&far);
        close_twin(&far);
        close_problem(&near);
        CHECK(n > 7 || has_failed);
    }
    check_clean();
}

typedef ashlar_status (*pass_call)(const ashlar_rnn *, const ashlar_rnn_batch *,
                                   const ashlar_rnn_buffers *, ashlar_stream);
static const pass_call passes[] = {ashlar_rnn_forward, ashlar_rnn_backward_data,
                                   ashlar_rnn_backward_weights};

/* Fails `pass` in all the ways there are, then does it; returns how many. `arm` makes the n-th call
 * fail, and says whether the one before has been reached. */
static unsigned fail_pass(const twin *far, pass_call pass, bool (*arm)(unsigned n),
                          ashlar_status want) {
    unsigned failures = 0;
    ashlar_status status = want;
    for (unsigned n = 1; status != ASHLAR_OK && n < 200; n++) {
        (void)arm(n);
        status = pass(far->rnn, &far->batch, &far->all, gpu_stream);
        const bool is_reached = arm(0);
        CHECK(status == (is_reached ? want : ASHLAR_OK));
        failures += is_reached;
    }
    CHECK(status == ASHLAR_OK);
    return failures;
}

/* Of a step whose first training forward has to seed, and whose sizes are not known. */
static void fail_step(bool (*arm)(unsigned n), ashlar_status want) {
    const kind k = {.cell = ASHLAR_RNN_LSTM, .directions = 1, .dropout = 0.5};
    const ashlar_rnn_config config = config_of(&SHAPE, &k, ASHLAR_F32);
    problem near;
    twin far;
    REQUIRE(open_problem(&near, &SHAPE, &k, ASHLAR_F32, true));
    REQUIRE(open_twin(&far, &near, &config, true));
    unsigned failures = 0;
    for (int i = 0; i < 3; i++) {
        size_t reserve, work;
        CHECK(ashlar_rnn_sizes(far.rnn, 1, 1, true, &reserve, &work) == ASHLAR_OK); /* forget */
        far.batch.dropout_seed = near.args.dropout_seed = 40;
        failures += fail_pass(&far, passes[i], arm, want);
    }
    CHECK(failures > 0);
    run_forward(&near);
    run_backward(&near);
    compare_forward(&far);
    compare_backward(&far);
    close_twin(&far);
    close_problem(&near);
    check_clean();
}

static bool arm_cudnn(unsigned n) {
    const bool is_reached = fake->fail_at == 0;
    fake->fail_status = (int)CUDNN_STATUS_EXECUTION_FAILED;
    fake->fail_at = (long)n;
    return is_reached;
}

/* Which function of the driver fails. Popping a context and giving memory back cannot be helped. */
static ashlar_driver_fn failing;

static bool arm_driver(unsigned n) {
    const bool is_reached = atomic_load(&gpu->driver->fail_countdown) == 0;
    ashlar_driver_fail_at(gpu->driver, (int)failing, n, CU_LAUNCH_FAILED);
    return is_reached;
}

static bool arm_host(unsigned n) {
    static unsigned armed;
    bool is_reached = true;
    for (unsigned i = 0; n == 0 && i < armed && is_reached; i++) {
        void *probe = ashlar_host_calloc(1, 1);
        is_reached = probe != NULL; /* else the failure was still to come */
        ashlar_host_free(probe);
    }
    armed = n;
    ashlar_host_fail_at(n);
    return is_reached;
}

static void a_pass_that_cudnn_refuses_can_be_tried_again(void) {
    fail_step(arm_cudnn, ASHLAR_EDRIVER);
}

static void a_pass_that_the_driver_refuses_can_be_tried_again(void) {
    static const ashlar_driver_fn all[] = {ASHLAR_DRIVER_FN_ctx_push_current,
                                           ASHLAR_DRIVER_FN_memset_d8_async,
                                           ASHLAR_DRIVER_FN_stream_is_capturing};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        failing = all[i];
        fail_step(arm_driver, ASHLAR_EDRIVER);
    }
}

static void a_pass_without_host_memory_can_be_tried_again(void) {
    fail_step(arm_host, ASHLAR_EHOSTMEM);
}

static void creation_fails_whole(bool (*arm)(unsigned n), ashlar_status want) {
    const ashlar_rnn_config config = dropping_config();
    const size_t before = free_memory();
    ashlar_rnn *rnn = NULL;
    unsigned failures = 0;
    for (unsigned n = 1; rnn == NULL && n < 100; n++) {
        (void)arm(n);
        const ashlar_status status = ashlar_rnn_create(gpu, &config, &rnn);
        const bool is_reached = arm(0);
        CHECK(status == (is_reached ? want : ASHLAR_OK));
        CHECK(!is_reached || (rnn == NULL && fake->live == 0 && free_memory() == before));
        failures += is_reached;
    }
    CHECK(rnn != NULL && failures > 0);
    ashlar_rnn_destroy(rnn);
    CHECK_ZU(free_memory(), before);
    check_clean();
}

static void creation_fails_whole_where_the_driver_refuses(void) {
    static const ashlar_driver_fn all[] = {ASHLAR_DRIVER_FN_ctx_push_current,
                                           ASHLAR_DRIVER_FN_mem_alloc,
                                           ASHLAR_DRIVER_FN_ctx_synchronize};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        failing = all[i];
        creation_fails_whole(arm_driver, ASHLAR_EDRIVER);
    }
}

static void creation_fails_whole_without_host_memory(void) {
    creation_fails_whole(arm_host, ASHLAR_EHOSTMEM);
}

/* ---- threads ---- */

enum { THREADS = 3, ROUNDS = 8 };

typedef struct worker {
    const twin *far;
    ashlar_stream stream;
    ashlar_rnn_buffers all;
} worker;

static void *work_on(void *user_data) {
    const worker *w = user_data;
    uintptr_t failures = 0;
    for (int i = 0; i < ROUNDS; i++) {
        for (int pass = 0; pass < 3; pass++) {
            failures += passes[pass](w->far->rnn, &w->far->batch, &w->all, w->stream) != ASHLAR_OK;
        }
    }
    return (void *)failures;
}

/* One rnn, a stream and outputs for each thread. */
static void threads_may_share_a_stack(void) {
    const ashlar_rnn_config config = small_config();
    problem near;
    twin far;
    worker workers[THREADS];
    pthread_t threads[THREADS];
    REQUIRE(open_problem(&near, &SHAPE, &PLAIN_LSTM, ASHLAR_F32, true));
    REQUIRE(open_twin(&far, &near, &config, true));
    size_t reserve, work;
    CHECK(ashlar_rnn_sizes(far.rnn, SHAPE.steps, SHAPE.batch, true, &reserve, &work) == ASHLAR_OK);
    for (int i = 0; i < THREADS; i++) {
        worker *w = &workers[i];
        *w = (worker){.far = &far, .all = far.all};
        CHECK(ashlar_stream_create(gpu, &w->stream) == ASHLAR_OK);
        w->all.reserve = gpu_take(reserve);
        w->all.work = gpu_take(work);
        w->all.y = gpu_take(near.y_count * far.item);
        w->all.hy = w->all.cy = w->all.dx = w->all.dhx = w->all.dcx = NULL;
        w->all.dweights = gpu_take(near.layout.elements * far.item);
        CHECK(ashlar_fill(gpu, w->all.dweights, 0, near.layout.elements * far.item, gpu_stream) ==
              ASHLAR_OK);
    }
    gpu_wait();
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, work_on, &workers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *failures = NULL;
        CHECK(pthread_join(threads[i], &failures) == 0 && failures == NULL);
        CHECK(ashlar_stream_synchronize(gpu, workers[i].stream) == ASHLAR_OK);
    }
    for (int i = 0; i < ROUNDS; i++) {
        run_forward(&near);
        run_backward(&near);
    }
    for (int i = 0; i < THREADS; i++) {
        compare(&far, "y", workers[i].all.y, near.args.y, near.y_count);
        compare(&far, "dweights", workers[i].all.dweights, near.args.dweights,
                near.layout.elements);
        ashlar_stream_destroy(gpu, workers[i].stream);
    }
    close_twin(&far);
    close_problem(&near);
    check_clean();
}

/* The rnn goes while its work is queued. */
static void destroying_waits_for_what_is_queued(void) {
    const ashlar_rnn_config config = dropping_config();
    problem near;
    twin far;
    REQUIRE(open_problem(&near, &SHAPE, &PLAIN_LSTM, ASHLAR_F32, true));
    REQUIRE(open_twin(&far, &near, &config, true));
    CHECK(run_far(&far, true) == ASHLAR_OK);
    ashlar_rnn_destroy(far.rnn);
    far.rnn = NULL;
    ashlar_rnn_destroy(NULL);
    close_twin(&far);
    close_problem(&near);
    check_clean();
}

static bool find_fake(void) {
    const char *path = getenv("ASHLAR_CUDNN");
    void *library = path == NULL ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    fake = library == NULL ? NULL : dlsym(library, "fake_cudnn");
    return fake != NULL;
}

int main(void) {
    const int why = gpu_begin();
    if (why != 0 || !find_fake()) {
        printf("Bail out! it wants the fake driver and the fake cuDNN\n");
        return 1;
    }
    RUN(a_library_that_is_none_is_refused_by_name);
    RUN(a_stack_is_described_as_it_was_asked_for);
    RUN(a_persistent_algorithm_is_refused_where_cudnn_has_none);
    RUN(a_layout_that_differs_is_refused_by_name);
    RUN(a_step_is_one_call_for_each_pass);
    RUN(backward_without_the_output_is_refused);
    RUN(a_persistent_algorithm_takes_full_lengths_only);
    RUN(sizes_beyond_cudnns_integers_are_refused);
    RUN(sizes_are_cudnns_and_room_for_two_gradients);
    RUN(masks_follow_from_the_first_seed);
    RUN(masks_may_follow_from_every_seed);
    RUN(dropout_that_drops_nothing_has_no_states);
    RUN(a_step_can_be_captured);
    RUN(the_first_forward_with_dropout_is_not_captured);
    RUN(every_refusal_has_its_status);
    RUN(a_seed_that_was_refused_is_set_again);
    RUN(a_pass_that_cudnn_refuses_can_be_tried_again);
    RUN(a_pass_that_the_driver_refuses_can_be_tried_again);
    RUN(a_pass_without_host_memory_can_be_tried_again);
    RUN(creation_fails_whole_where_the_driver_refuses);
    RUN(creation_fails_whole_without_host_memory);
    RUN(threads_may_share_a_stack);
    RUN(destroying_waits_for_what_is_queued);
    gpu_end();
    return check_report();
}
