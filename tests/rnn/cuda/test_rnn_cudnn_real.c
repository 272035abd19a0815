/*
 * test_rnn_cudnn_real.c - what the back end tells cuDNN, said to the real one without a GPU.
 *
 * cuDNN 9.19 describes stacks and batches and computes weight addresses on the host, and only
 * compares its handle with NULL: where there is none, zeroed memory stands in for it. That is
 * outside cuDNN's contract, and done for the version where it was seen only.
 */
#include "tests/check.h"

#include <stdint.h>

#include "rnn/cuda/cudnn_state.h"
#include "allocator/device/device_impl.h"
#include "allocator/base/random.h"

enum { ORACLE_VERSION = 91900, CONFIG_COUNT = 600 };

static uint64_t random_state = 0x2545f4914f6cdd1du;

static size_t random_between(size_t low, size_t high) {
    return low + (size_t)ashlar__random_step_below(&random_state, high - low + 1);
}

static ashlar_rnn_config random_config(void) {
    ashlar_rnn_config c = {
        .input = random_between(1, 300),
        .hidden = random_between(1, 300),
        .layers = random_between(1, 6),
        .dtype = (ashlar_dtype)random_between(0, ASHLAR_DTYPE_COUNT - 1),
        .cell = (ashlar_rnn_cell)random_between(0, ASHLAR_RNN_CELL_COUNT - 1),
        .bias = (ashlar_rnn_bias)random_between(0, ASHLAR_RNN_BIAS_COUNT - 1),
        .directions = random_between(1, 2),
        .math = (ashlar_rnn_math)random_between(0, 1),
        .algorithm = (ashlar_rnn_algorithm)random_between(0, ASHLAR_RNN_ALGORITHM_COUNT - 1),
    };
    if (c.cell == ASHLAR_RNN_LSTM && c.hidden > 1 && random_between(0, 1) == 0) {
        c.projection = random_between(1, c.hidden - 1);
    }
    return c;
}

/* NULL: made. Else why not. */
static const char *open_state(ashlar_cudnn_state *s) {
    static char page[1 << 16];
    const ashlar_cudnn *cudnn;
    if (ashlar__cudnn_open(&cudnn) != ASHLAR_OK) {
        return "no cuDNN 9";
    }
    *s = (ashlar_cudnn_state){.cudnn = cudnn};
    if (cudnn->create(&s->handle) == CUDNN_STATUS_SUCCESS) {
        (void)cudnn->destroy(s->handle); /* with a GPU, suite gpu has it all */
        return "a GPU is here";
    }
    if (cudnn->get_version() != ORACLE_VERSION) {
        return "not the cuDNN version that answers without a GPU";
    }
    s->handle = (cudnnHandle_t)(void *)page;
    CHECK(cudnn->create_dropout(&s->dropout) == CUDNN_STATUS_SUCCESS);
    CHECK(cudnn->create_data(&s->x) == CUDNN_STATUS_SUCCESS);
    CHECK(cudnn->create_data(&s->y) == CUDNN_STATUS_SUCCESS);
    CHECK(cudnn->create_tensor(&s->h) == CUDNN_STATUS_SUCCESS);
    CHECK(cudnn->create_tensor(&s->c) == CUDNN_STATUS_SUCCESS);
    return NULL;
}

static void forget_stacks(ashlar_cudnn_state *s) {
    for (int a = 0; a < ASHLAR_RNN_AUTO; a++) {
        CHECK(s->rnns[a] == NULL || s->cudnn->destroy_rnn(s->rnns[a]) == CUDNN_STATUS_SUCCESS);
        s->rnns[a] = NULL;
    }
}

/* The algorithm of a stack: AUTO's on some GPU, for some batch. */
static ashlar_rnn_algorithm drawn_algorithm(const ashlar_rnn_config *config) {
    const ashlar_cudnn_gpu gpu = {(int)random_between(5, 12), 0, 132};
    return ashlar__cudnn_choose(config, &gpu, 40, 8 * random_between(1, 16),
                                random_between(0, 1) == 0);
}

static ashlar_status describe_stack(const ashlar_rnn *rnn, ashlar_cudnn_state *s,
                                    cudnnRNNDescriptor_t *out) {
    forget_stacks(s);
    CHECK(ashlar__cudnn_state_seed(rnn, s, 0) == ASHLAR_OK);
    return ashlar__cudnn_state_stack(rnn, s, drawn_algorithm(&rnn->layout.config), out);
}

static void close_state(ashlar_cudnn_state *s) {
    CHECK(s->cudnn->destroy_tensor(s->c) == CUDNN_STATUS_SUCCESS);
    CHECK(s->cudnn->destroy_tensor(s->h) == CUDNN_STATUS_SUCCESS);
    CHECK(s->cudnn->destroy_data(s->y) == CUDNN_STATUS_SUCCESS);
    CHECK(s->cudnn->destroy_data(s->x) == CUDNN_STATUS_SUCCESS);
    forget_stacks(s);
    CHECK(s->cudnn->destroy_dropout(s->dropout) == CUDNN_STATUS_SUCCESS);
}

/* Lengths in any order. */
static ashlar_status describe_batch(const ashlar_rnn *rnn, const ashlar_cudnn_state *s) {
    enum { MAX_BATCH = 40 };
    int32_t lengths[MAX_BATCH];
    const size_t steps = random_between(1, 100), batch = random_between(1, MAX_BATCH);
    for (size_t b = 0; b < batch; b++) {
        lengths[b] = (int32_t)random_between(1, steps);
    }
    return ashlar__cudnn_state_describe(rnn, s, steps, batch, lengths);
}

CASE(every_stack_is_described_and_lies_where_cudnn_wants_it) {
    ashlar_cudnn_state s;
    const char *why = open_state(&s);
    size_t described = 0;
    SKIP_IF(why != NULL, why);
    for (int i = 0; i < CONFIG_COUNT; i++) {
        const ashlar_rnn_config config = random_config();
        ashlar_rnn rnn = {.backend = &ashlar__rnn_backend_cudnn};
        REQUIRE(ashlar_rnn_layout_init(&rnn.layout, &config) == ASHLAR_OK);
        const bool is_allowed = ashlar__rnn_check_algorithm(&config) == ASHLAR_OK;
        cudnnRNNDescriptor_t stack = NULL;
        const ashlar_status status = describe_stack(&rnn, &s, &stack);
        CHECK((status == ASHLAR_OK) == is_allowed); /* cuDNN refuses the same */
        if (status == ASHLAR_OK) {
            described++;
            CHECK(ashlar__cudnn_check_layout(&rnn.layout, &s, stack) == ASHLAR_OK);
            CHECK(describe_batch(&rnn, &s) == ASHLAR_OK);
        } else {
            CHECK(status == ASHLAR_ENOTSUP);
        }
    }
    CHECK(described > CONFIG_COUNT / 4 && described < CONFIG_COUNT);
    close_state(&s);
}

CASE(a_machine_without_a_gpu_is_told_so) {
    ashlar_device *device = NULL;
    const ashlar_status status = ashlar_device_open("cuda", &device);
    if (status == ASHLAR_OK) {
        ashlar_device_close(device);
        SKIP("a GPU is here");
    }
    CHECK_FAILS(status, ASHLAR_ENODEVICE, "ASHLAR_DEVICE=soft");
}

RUN_CASES()
