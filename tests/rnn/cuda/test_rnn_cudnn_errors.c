/*
 * test_rnn_cudnn_errors.c - what the cuDNN back end does when cuDNN, the driver or the host
 * refuses, and with several threads. Run on the fake driver with the fake cuDNN.
 */
#include "tests/rnn/cuda/rnn_cudnn_fixture.h"

#include "tests/thread.h"

CASE(every_refusal_has_its_status) {
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
    CHECK_FAILS(ashlar_rnn_create(gpu, &config, &rnn), ASHLAR_EDRIVER,
                "cudnnCreate: CUDNN_STATUS_BAD_PARAM (2000): the fake's last words");
}

typedef ashlar_status (*pass_call)(const ashlar_rnn *, const ashlar_rnn_batch *,
                                   const ashlar_rnn_buffers *, ashlar_stream);
static const pass_call passes[] = {ashlar_rnn_forward, ashlar_rnn_backward_data,
                                   ashlar_rnn_backward_weights};

/* Fails `pass` in all the ways there are, then does it; returns how many. `arm` makes the n-th call
 * fail, and says whether the one before has been reached. */
static unsigned fail_pass(pass_call pass, bool (*arm)(unsigned n), ashlar_status want) {
    unsigned failures = 0;
    ashlar_status status = want;
    for (unsigned n = 1; status != ASHLAR_OK && n < 200; n++) {
        (void)arm(n);
        status = pass(far.rnn, &far.batch, &far.all, gpu_stream);
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
    REQUIRE(open_pair(&SHAPE, &k, ASHLAR_F32, &config, true));
    unsigned failures = 0;
    for (int i = 0; i < 3; i++) {
        size_t reserve, work;
        CHECK(ashlar_rnn_sizes(far.rnn, 1, 1, true, &reserve, &work) == ASHLAR_OK); /* forget */
        far.batch.dropout_seed = near.args.dropout_seed = 40;
        failures += fail_pass(passes[i], arm, want);
    }
    CHECK(failures > 0);
    run_training(&near);
    compare_forward(&far);
    compare_backward(&far);
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
    ashlar__driver_fail_at(gpu->driver, (int)failing, n, CU_LAUNCH_FAILED);
    return is_reached;
}

static bool arm_host(unsigned n) {
    static unsigned armed;
    bool is_reached = true;
    for (unsigned i = 0; n == 0 && i < armed && is_reached; i++) {
        void *probe = ashlar__host_calloc(1, 1);
        is_reached = probe != NULL; /* else the failure was still to come */
        ashlar__host_free(probe);
    }
    armed = n;
    ashlar__host_fail_at(n);
    return is_reached;
}

CASE(rows_without_padding_are_refused) {
    const kind k = {.cell = ASHLAR_RNN_LSTM, .directions = 1};
    const ashlar_rnn_config config = config_of(&SHAPE, &k, ASHLAR_F32);
    REQUIRE(open_pair(&SHAPE, &k, ASHLAR_F32, &config, true));
    far.batch.is_packed = true;
    far.batch.lengths = (const int32_t[]){5, 2, 1};
    for (int i = 0; i < 3; i++) {
        CHECK_FAILS(passes[i](far.rnn, &far.batch, &far.all, gpu_stream), ASHLAR_ENOTSUP,
                    "packed rows are for the CPU");
    }
}

CASE(a_pass_that_cudnn_refuses_can_be_tried_again) {
    fail_step(arm_cudnn, ASHLAR_EDRIVER);
}

CASE(a_pass_that_the_driver_refuses_can_be_tried_again) {
    static const ashlar_driver_fn all[] = {ASHLAR_DRIVER_FN_ctx_push_current,
                                           ASHLAR_DRIVER_FN_memset_d8_async,
                                           ASHLAR_DRIVER_FN_stream_is_capturing};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        failing = all[i];
        fail_step(arm_driver, ASHLAR_EDRIVER);
    }
}

CASE(a_pass_without_host_memory_can_be_tried_again) {
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
}

CASE(creation_fails_whole_where_the_driver_refuses) {
    static const ashlar_driver_fn all[] = {ASHLAR_DRIVER_FN_ctx_push_current,
                                           ASHLAR_DRIVER_FN_mem_alloc,
                                           ASHLAR_DRIVER_FN_ctx_synchronize};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        failing = all[i];
        creation_fails_whole(arm_driver, ASHLAR_EDRIVER);
    }
}

CASE(creation_fails_whole_without_host_memory) {
    creation_fails_whole(arm_host, ASHLAR_EHOSTMEM);
}

/* ---- threads ---- */

enum { THREADS = 3, ROUNDS = 8 };

typedef struct worker {
    ashlar_stream stream;
    ashlar_rnn_buffers all;
    size_t failures;
} worker;

static void *work_on(void *user_data) {
    worker *w = user_data;
    for (int i = 0; i < ROUNDS; i++) {
        for (int pass = 0; pass < 3; pass++) {
            w->failures += passes[pass](far.rnn, &far.batch, &w->all, w->stream) != ASHLAR_OK;
        }
    }
    return NULL;
}

/* One rnn, a stream and outputs for each thread. */
CASE(threads_may_share_a_stack) {
    const ashlar_rnn_config config = small_config();
    worker workers[THREADS];
    REQUIRE(open_pair(&SHAPE, &PLAIN_LSTM, ASHLAR_F32, &config, true));
    size_t reserve, work;
    CHECK(ashlar_rnn_sizes(far.rnn, SHAPE.steps, SHAPE.batch, true, &reserve, &work) == ASHLAR_OK);
    for (int i = 0; i < THREADS; i++) {
        worker *w = &workers[i];
        *w = (worker){.all = far.all};
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
    run_threads(THREADS, work_on, workers, sizeof *workers);
    for (int i = 0; i < THREADS; i++) {
        CHECK_ZU(workers[i].failures, 0);
        CHECK(ashlar_stream_synchronize(gpu, workers[i].stream) == ASHLAR_OK);
    }
    for (int i = 0; i < ROUNDS; i++) {
        run_training(&near);
    }
    for (int i = 0; i < THREADS; i++) {
        compare(&far, "y", workers[i].all.y, near.args.b.y, near.y_count);
        compare(&far, "dweights", workers[i].all.dweights, near.args.b.dweights,
                near.layout.elements);
        ashlar_stream_destroy(gpu, workers[i].stream);
    }
}

/* The rnn goes while its work is queued. */
CASE(destroying_waits_for_what_is_queued) {
    const ashlar_rnn_config config = dropping_config();
    REQUIRE(open_pair(&SHAPE, &PLAIN_LSTM, ASHLAR_F32, &config, true));
    CHECK(run_far(&far, true) == ASHLAR_OK);
    ashlar_rnn_destroy(far.rnn);
    far.rnn = NULL;
    ashlar_rnn_destroy(NULL);
}

RUN_CASES_ON_FAKES()
