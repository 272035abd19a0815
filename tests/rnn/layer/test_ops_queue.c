/*
 * test_ops_queue.c - a model's operations queued on a stream: they do what they do on plain memory,
 * in order with the stream's other work, and fail cleanly.
 */
#include "tests/allocator/core/allocator_fixture.h"
#include "tests/allocator/trace/numbers_fixture.h"
#include "rnn/layer/ops_cpu.h"

enum { STEPS = 3, BATCH = 2, ROWS = STEPS * BATCH, CLASSES = 5, WIDTH = 4 };

static const int32_t LENGTHS[BATCH] = {3, 1};
static const int32_t TOKENS[ROWS] = {0, 4, 2, -1, 2, -1};

/* Everything that the operations read and write; in device memory, and in a plain copy. */
typedef struct memory {
    int32_t lengths[BATCH], tokens[ROWS], labels[ROWS];
    double table[CLASSES * WIDTH], dtable[CLASSES * WIDTH];
    double x[ROWS * WIDTH], dx[ROWS * WIDTH], wide[ROWS * 2 * WIDTH];
    double logits[ROWS * CLASSES], bias[CLASSES], dbias[CLASSES];
    double scale, loss;
} memory;

static void fill_memory(memory *m) {
    *m = (memory){.scale = 2, .loss = 1};
    for (size_t i = 0; i < CLASSES * WIDTH; i++) {
        m->table[i] = random_real();
    }
    for (size_t i = 0; i < CLASSES; i++) {
        m->bias[i] = random_real();
    }
    for (size_t i = 0; i < ROWS; i++) {
        m->tokens[i] = TOKENS[i];
    }
    for (size_t i = 0; i < BATCH; i++) {
        m->lengths[i] = LENGTHS[i];
    }
}

static ashlar_embedding_args embedding_args(memory *m) {
    return (ashlar_embedding_args){.steps = STEPS,
                                   .batch = BATCH,
                                   .lengths = m->lengths,
                                   .classes = CLASSES,
                                   .width = WIDTH,
                                   .tokens = m->tokens,
                                   .table = m->table,
                                   .out = m->x,
                                   .dout = m->dx,
                                   .dtable = m->dtable};
}

static ashlar_linear_args linear_args(memory *m) {
    return (ashlar_linear_args){.rows = ROWS,
                                .in = WIDTH,
                                .out = CLASSES,
                                .x = m->x,
                                .weight = m->table,
                                .bias = m->bias,
                                .y = m->logits,
                                .dy = m->logits,
                                .dx = m->dx,
                                .dweight = m->dtable,
                                .dbias = m->dbias};
}

static ashlar_cross_entropy_args loss_args(memory *m) {
    return (ashlar_cross_entropy_args){.steps = STEPS,
                                       .batch = BATCH,
                                       .lengths = m->lengths,
                                       .classes = CLASSES,
                                       .logits = m->logits,
                                       .targets = m->tokens,
                                       .weight = 0.5,
                                       .dlogits = m->logits,
                                       .scale = &m->scale,
                                       .loss = &m->loss};
}

static ashlar_columns_args columns_args(memory *m) {
    return (ashlar_columns_args){.rows = ROWS,
                                 .width = WIDTH,
                                 .from = m->x,
                                 .from_stride = WIDTH,
                                 .to = m->wide + WIDTH,
                                 .to_stride = 2 * WIDTH};
}

static ashlar_argmax_args argmax_args(memory *m) {
    return (ashlar_argmax_args){
        .rows = ROWS, .classes = CLASSES, .logits = m->logits, .labels = m->labels};
}

static ashlar_squared_error_args squares_args(memory *m) {
    return (ashlar_squared_error_args){.steps = STEPS,
                                       .batch = BATCH,
                                       .lengths = m->lengths,
                                       .width = WIDTH,
                                       .outputs = m->x,
                                       .targets = m->dx,
                                       .doutputs = m->x,
                                       .loss = &m->loss};
}

/* What follows each other here depends on what came before. */
static ashlar_status queue_all(const ashlar_ops *ops, memory *m, ashlar_stream stream) {
    const ashlar_embedding_args embedding = embedding_args(m);
    const ashlar_linear_args linear = linear_args(m);
    const ashlar_cross_entropy_args loss = loss_args(m);
    const ashlar_columns_args columns = columns_args(m);
    const ashlar_argmax_args argmax = argmax_args(m);
    const ashlar_squared_error_args squares = squares_args(m);
    ashlar_status status = ashlar_embedding_forward(ops, &embedding, stream);
    status = status == ASHLAR_OK ? ashlar_copy_columns(ops, &columns, stream) : status;
    status = status == ASHLAR_OK ? ashlar_linear_forward(ops, &linear, stream) : status;
    status = status == ASHLAR_OK ? ashlar_argmax(ops, &argmax, stream) : status;
    status = status == ASHLAR_OK ? ashlar_squared_error(ops, &squares, stream) : status;
    status = status == ASHLAR_OK ? ashlar_cross_entropy(ops, &loss, stream) : status;
    status = status == ASHLAR_OK ? ashlar_linear_backward(ops, &linear, stream) : status;
    return status == ASHLAR_OK ? ashlar_embedding_backward(ops, &embedding, stream) : status;
}

static void run_all(memory *m) {
    const ashlar_embedding_args embedding = embedding_args(m);
    const ashlar_linear_args linear = linear_args(m);
    const ashlar_cross_entropy_args loss = loss_args(m);
    const ashlar_columns_args columns = columns_args(m);
    const ashlar_argmax_args argmax = argmax_args(m);
    const ashlar_squared_error_args squares = squares_args(m);
    ashlar__embedding_forward_f64(&embedding);
    ashlar__copy_columns_f64(&columns);
    ashlar__linear_forward_f64(&linear);
    ashlar__argmax_f64(&argmax);
    ashlar__squared_error_f64(&squares);
    ashlar__cross_entropy_f64(&loss);
    ashlar__linear_backward_f64(&linear);
    ashlar__embedding_backward_f64(&embedding);
}

CASE(queued_operations_do_what_they_do_on_plain_memory) {
    static memory want, got;
    static const char *const specs[] = {"memory=64MiB", "memory=64MiB,mode=adversarial,seed=3"};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        void *ptr = NULL;
        ashlar_ops *ops = NULL;
        REQUIRE(set_up(specs[i]));
        REQUIRE(ashlar_ops_create(device, ASHLAR_F64, &ops) == ASHLAR_OK);
        REQUIRE(ashlar_alloc(allocator, sizeof(memory), streams[1], &ptr) == ASHLAR_OK);
        fill_memory(&want);
        CHECK(ashlar_copy_to_device(device, ptr, &want, sizeof want, streams[1]) == ASHLAR_OK);
        CHECK(queue_all(ops, ptr, streams[1]) == ASHLAR_OK);
        CHECK(ashlar_copy_to_host(device, &got, ptr, sizeof got, streams[1]) == ASHLAR_OK);
        CHECK(ashlar_stream_synchronize(device, streams[1]) == ASHLAR_OK);
        run_all(&want);
        CHECK(memcmp(&got, &want, sizeof got) == 0);
        CHECK(got.loss > 1);
        CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
        ashlar_ops_destroy(ops);
        tear_down();
    }
}

CASE_WITH(the_type_is_that_of_the_ops, set_up("memory=64MiB")) {
    struct {
        float logits[3];
        int32_t label;
    } *const m = (void *)take(sizeof *m, streams[0]);
    ashlar_ops *ops = NULL;
    memcpy(m->logits, (float[]){1, 3, 2}, sizeof m->logits);
    REQUIRE(ashlar_ops_create(device, ASHLAR_F32, &ops) == ASHLAR_OK);
    const ashlar_argmax_args args = {1, 3, m->logits, &m->label};
    CHECK(ashlar_argmax(ops, &args, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_stream_synchronize(device, streams[0]) == ASHLAR_OK);
    CHECK(m->label == 1);
    give(m);
    CHECK_ZU(ashlar_loss_work_bytes(ops, 1000), 0);
    ashlar_ops_destroy(ops);
}

CASE(each_operation_says_when_it_cannot_be_queued) {
    enum { OPERATIONS = 8 };
    ashlar_ops *ops = NULL;
    REQUIRE(set_up("memory=64MiB"));
    memory *const m = (memory *)(void *)take(sizeof *m, streams[0]);
    REQUIRE(ashlar_ops_create(device, ASHLAR_F64, &ops) == ASHLAR_OK);
    for (uint64_t n = 1; n <= OPERATIONS + 1; n++) {
        fill_memory(m);
        DRIVER_FAILS_AT(
            ASHLAR_DRIVER_FN_launch_host_func, n, CU_UNKNOWN,
            CHECK(queue_all(ops, m, streams[0]) == (n <= OPERATIONS ? ASHLAR_EDRIVER : ASHLAR_OK)));
        CHECK(ashlar_stream_synchronize(device, streams[0]) == ASHLAR_OK);
    }
    give(m);
    ashlar_ops_destroy(ops);
}

CASE_WITH(half_precision_is_refused_and_failures_leave_nothing, set_up("memory=64MiB")) {
    ashlar_ops *ops = NULL;
    CHECK(ashlar_ops_create(device, ASHLAR_F16, &ops) == ASHLAR_ENOTSUP);
    CHECK(strstr(ashlar_error_detail(), "ASHLAR_F32") != NULL);
    HOST_FAILS_AT(1, CHECK(ashlar_ops_create(device, ASHLAR_F32, &ops) == ASHLAR_EHOSTMEM));
    CHECK(ops == NULL);
    ashlar_ops_destroy(NULL);
}

RUN_CASES()
