/*
 * test_rnn.c - the RNN on a stream: what its three passes queue, and what they refuse.
 *
 * The passes are compared bit by bit with direct calls of rnn_cpu.h, whose own tests compare them
 * with the formulas.
 */
#include "tests/rnn/layer/rnn_fixture.h"
#include "tests/strict.h"

#include "allocator/soft/soft_state.h"
#include "rnn/layer/backend.h"
#include "rnn/layer/rnn_cpu.h"
#include "allocator/base/random.h"

static const int32_t LENGTHS[BATCH] = {2, 4, 1};
static const uint64_t SEED = 6;

/* ---- the passes ---- */

/* Every tensor of the three calls in one block of the device; the same twice. */
typedef struct tensors {
    ashlar_rnn_buffers all;
    char *memory;
    size_t bytes;
} tensors;

static void *pseudo_layer(tensors *t, size_t *end, size_t bytes) {
    void *at = t->memory == NULL ? NULL : t->memory + *end;
    *end += (bytes + 63) / 64 * 64;
    return at;
}

/* Lay the tensors out from t->memory, or with NULL count the bytes. */
static void place(tensors *t, bool training) {
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(rnn);
    const size_t item = ashlar_dtype_bytes(layout->config.dtype);
    const size_t x = (size_t)STEPS * BATCH * layout->config.input * item;
    const size_t y = (size_t)STEPS * BATCH * layout->output * item;
    const size_t state = layout->pseudo_layers * BATCH * layout->state * item;
    const size_t cell = layout->pseudo_layers * BATCH * layout->config.hidden * item;
    size_t reserve = 0, work = 0, end = 0;
    CHECK(ashlar_rnn_sizes(rnn, STEPS, BATCH, training, &reserve, &work) == ASHLAR_OK);
    t->all = (ashlar_rnn_buffers){
        .x = pseudo_layer(t, &end, x),
        .hx = pseudo_layer(t, &end, state),
        .cx = pseudo_layer(t, &end, cell),
        .weights = pseudo_layer(t, &end, layout->elements * item),
        .y = pseudo_layer(t, &end, y),
        .hy = pseudo_layer(t, &end, state),
        .cy = pseudo_layer(t, &end, cell),
        .dy = pseudo_layer(t, &end, y),
        .dhy = pseudo_layer(t, &end, state),
        .dcy = pseudo_layer(t, &end, cell),
        .dx = pseudo_layer(t, &end, x),
        .dhx = pseudo_layer(t, &end, state),
        .dcx = pseudo_layer(t, &end, cell),
        .dweights = pseudo_layer(t, &end, layout->elements * item),
        .reserve = training ? pseudo_layer(t, &end, reserve) : NULL,
        .work = pseudo_layer(t, &end, work),
    };
    t->bytes = end;
}

/* Inputs and outputs alike hold drawn numbers, so that what is not overwritten shows. */
static void open_tensors(tensors *t, bool training) {
    *t = (tensors){0};
    place(t, training);
    t->memory = (char *)take(t->bytes, streams[1]);
    place(t, training);
    uint64_t state = 99;
    const bool is_f64 = ashlar_rnn_layout_of(rnn)->config.dtype == ASHLAR_F64;
    for (size_t i = 0; i < t->bytes / (is_f64 ? 8 : 4); i++) {
        const double value = 2 * ashlar__random_step_uniform(&state) - 1;
        if (is_f64) {
            ((double *)(void *)t->memory)[i] = value;
        } else {
            ((float *)(void *)t->memory)[i] = (float)value;
        }
    }
}

static void run_directly_on(const tensors *t, bool training, const int32_t *lengths) {
    const ashlar_rnn_cpu_args args = {.layout = ashlar_rnn_layout_of(rnn),
                                      .steps = STEPS,
                                      .batch = BATCH,
                                      .lengths = lengths,
                                      .dropout_seed = SEED,
                                      .b = t->all};
    ashlar_rnn_cpu_pass *const *passes =
        ashlar__rnn_loops_of(ashlar_rnn_layout_of(rnn)->config.dtype)->passes;
    passes[ASHLAR_RNN_FORWARD](&args);
    if (training) {
        passes[ASHLAR_RNN_BACKWARD_DATA](&args);
        passes[ASHLAR_RNN_BACKWARD_WEIGHTS](&args);
    }
}

static void run_directly(const tensors *t, bool training) {
    run_directly_on(t, training, LENGTHS);
}

/* What was passed is destroyed at once: whatever a pass needs, it has copied. */
static void queue_passes(const tensors *t, bool training) {
    typedef ashlar_status (*pass)(const ashlar_rnn *, const ashlar_rnn_batch *,
                                  const ashlar_rnn_buffers *, ashlar_stream);
    static const pass passes[] = {ashlar_rnn_forward, ashlar_rnn_backward_data,
                                  ashlar_rnn_backward_weights};
    for (int i = 0; i < (training ? 3 : 1); i++) {
        int32_t lengths[BATCH];
        memcpy(lengths, LENGTHS, sizeof lengths);
        ashlar_rnn_batch batch = {
            .steps = STEPS, .batch = BATCH, .lengths = lengths, .dropout_seed = SEED};
        ashlar_rnn_buffers buffers = t->all;
        CHECK(passes[i](rnn, &batch, &buffers, streams[1]) == ASHLAR_OK);
        memset(lengths, 0x7f, sizeof lengths);
        memset(&batch, 0, sizeof batch);
        memset(&buffers, 0, sizeof buffers);
    }
}

/* Whether one of the tensors, outputs all, differs. */
static void check_same(const tensors *a, const tensors *b) {
    size_t wrong = 0;
    for (size_t i = 0; i < a->bytes; i++) {
        wrong += a->memory[i] != b->memory[i];
    }
    CHECK_ZU(wrong, 0);
}

static void check_passes(const char *spec, const ashlar_rnn_config *config, bool training) {
    REQUIRE(set_up_rnn_of(spec, config));
    tensors direct, queued;
    open_tensors(&direct, training);
    open_tensors(&queued, training);
    check_same(&direct, &queued);
    run_directly(&direct, training);
    CHECK(memcmp(direct.memory, queued.memory, direct.bytes) != 0);
    queue_passes(&queued, training);
    wait_for(streams[1]);
    check_same(&direct, &queued);
    give(direct.memory);
    give(queued.memory);
    finish();
}

CASE(queued_passes_are_those_of_the_cpu) {
    for (int i = 0; i < 8; i++) {
        const ashlar_rnn_config config = config_of(i / 2 % 2 == 0 ? ASHLAR_F32 : ASHLAR_F64);
        check_passes(i % 2 == 0 ? "memory=16MiB" : "memory=16MiB,mode=adversarial,seed=4", &config,
                     i / 4 == 0);
    }
}

/* ---- prepared weights ---- */

CASE_WITH(a_preparation_without_a_buffer_is_refused, set_up_rnn("memory=16MiB", ASHLAR_F32)) {
    char room[64];
    const size_t before = CALLS(launch_host_func);
    CHECK(ashlar_rnn_prepared_bytes(rnn) > ashlar_rnn_layout_of(rnn)->elements);
    CHECK_FAILS(ashlar_rnn_prepare(rnn, NULL, room, streams[1]), ASHLAR_EINVAL,
                "ashlar_rnn_prepare: weights is NULL");
    CHECK_FAILS(ashlar_rnn_prepare(rnn, room, NULL, streams[1]), ASHLAR_EINVAL,
                "ashlar_rnn_prepare: prepared is NULL");
    CHECK_ZU(CALLS(launch_host_func), before);
}

CASE_WITH(a_pass_without_a_structure_is_refused, set_up_rnn("memory=16MiB", ASHLAR_F32)) {
    static const ashlar_rnn_batch batch = {.steps = STEPS, .batch = BATCH, .lengths = LENGTHS};
    static const ashlar_rnn_buffers buffers;
    CHECK_FAILS(ashlar_rnn_forward(rnn, NULL, &buffers, streams[1]), ASHLAR_EINVAL,
                "ashlar_rnn_forward: batch is NULL");
    CHECK_FAILS(ashlar_rnn_backward_data(rnn, &batch, NULL, streams[1]), ASHLAR_EINVAL,
                "ashlar_rnn_backward_data: buffers is NULL");
    CHECK_FAILS(ashlar_rnn_backward_weights(rnn, &batch, NULL, streams[1]), ASHLAR_EINVAL,
                "ashlar_rnn_backward_weights: buffers is NULL");
}

/* As cuDNN does. */
CASE_WITH(a_back_end_that_reads_weights_as_they_are_prepares_nothing,
          set_up_rnn("memory=16MiB", ASHLAR_F32)) {
    ashlar_rnn_backend plain = *rnn->backend;
    plain.prepared_bytes = NULL;
    plain.prepare = NULL;
    rnn->backend = &plain;
    CHECK_ZU(ashlar_rnn_prepared_bytes(rnn), 0);
    CHECK(ashlar_rnn_prepare(rnn, NULL, NULL, streams[1]) == ASHLAR_OK);
    rnn->backend = &ashlar__rnn_backend_cpu;
}

/* ---- what varies ---- */

/* Queue all passes with lengths and a part of the seed that are written only later. */
static void queue_varying(const tensors *t, const ashlar_rnn_varying *varying) {
    for (int pass = 0; pass < ASHLAR_RNN_PASS_COUNT; pass++) {
        const ashlar_rnn_batch batch = {.steps = STEPS, .batch = BATCH, .dropout_seed = SEED - 4};
        CHECK(ashlar__rnn_queue(rnn, (ashlar_rnn_pass)pass, &batch, &t->all, varying, streams[1]) ==
              ASHLAR_OK);
    }
}

CASE(lengths_and_seed_may_be_read_when_the_passes_run) {
    ashlar_rnn_config config = config_of(ASHLAR_F32);
    config.dropout = 0.5;
    REQUIRE(set_up_rnn_of("memory=16MiB,mode=adversarial,seed=4", &config));
    tensors direct, queued;
    open_tensors(&direct, true);
    open_tensors(&queued, true);
    int32_t *lengths = (int32_t *)(void *)take(sizeof LENGTHS, streams[1]);
    uint64_t *seed = (uint64_t *)(void *)take(sizeof *seed, streams[1]);
    run_directly(&direct, true);
    CHECK(rnn->backend->queue_varying != NULL);
    queue_varying(&queued, &(ashlar_rnn_varying){lengths, seed});
    memcpy(lengths, LENGTHS, sizeof LENGTHS); /* nothing has run yet */
    *seed = 4;
    wait_for(streams[1]);
    check_same(&direct, &queued);
    give(direct.memory);
    give(queued.memory);
    give(lengths);
    give(seed);
    finish();
}

/* As cuDNN does, which takes lengths from the host. */
CASE_WITH(a_back_end_without_it_runs_all_sequences_to_the_end,
          set_up_rnn("memory=16MiB", ASHLAR_F32)) {
    ashlar_rnn_backend of_host = *rnn->backend;
    const int32_t full[BATCH] = {STEPS, STEPS, STEPS};
    tensors direct, queued;
    of_host.queue_varying = NULL;
    rnn->backend = &of_host;
    open_tensors(&direct, true);
    open_tensors(&queued, true);
    run_directly_on(&direct, true, full);
    CHECK(rnn->backend->queue_varying == NULL);
    queue_varying(&queued, &(ashlar_rnn_varying){NULL, NULL});
    wait_for(streams[1]);
    check_same(&direct, &queued);
    ashlar__host_fail_at(1);
    CHECK(ashlar__rnn_queue(rnn, ASHLAR_RNN_FORWARD,
                            &(ashlar_rnn_batch){.steps = STEPS, .batch = BATCH}, &queued.all,
                            &(ashlar_rnn_varying){NULL, NULL}, streams[1]) == ASHLAR_EHOSTMEM);
    ashlar__host_fail_at(0);
    rnn->backend = &ashlar__rnn_backend_cpu;
    give(direct.memory);
    give(queued.memory);
}

/* ---- refusals ---- */

typedef ashlar_status pass_call(const ashlar_rnn *, const ashlar_rnn_batch *,
                                const ashlar_rnn_buffers *, ashlar_stream);

/* A pass on a reserve that is not ready for it loses the device. */
static void mend_device(void) {
    ashlar__soft_state.devices[0].fault = CU_SUCCESS;
}

/* Passes that letters name: forward, data, weights. `bad`: what is wrong with the last; or NULL. */
static void check_spent(const char *passes, const char *bad) {
    static pass_call *const calls[] = {['f' - 'd'] = ashlar_rnn_forward,
                                       [0] = ashlar_rnn_backward_data,
                                       ['w' - 'd'] = ashlar_rnn_backward_weights};
    const ashlar_rnn_batch batch = {.steps = STEPS, .batch = BATCH, .lengths = LENGTHS};
    tensors t;
    REQUIRE(set_up_rnn("memory=16MiB", ASHLAR_F32));
    open_tensors(&t, true);
    for (; *passes != '\0'; passes++) {
        CHECK(ashlar_stream_synchronize(device, streams[1]) == ASHLAR_OK);
        const ashlar_status status = calls[*passes - 'd'](rnn, &batch, &t.all, streams[1]);
        CHECK(status == ASHLAR_OK || (bad != NULL && passes[1] == '\0'));
    }
    if (bad != NULL) {
        CHECK_FAILS(ashlar_stream_synchronize(device, streams[1]), ASHLAR_EDRIVER, bad);
        mend_device();
    }
    wait_for(streams[1]);
    give(t.memory);
    finish();
}

CASE(a_reserve_serves_one_backward) {
    check_spent("fdwwfdw", NULL);
    check_spent("fdd", "backward_data of a reserve that is spent");
    check_spent("fdwd", "backward_data of a reserve that is spent");
    check_spent("d", "that no forward has filled");
    check_spent("fw", "on which backward_data has not run");
}

static void check_batch_refused(size_t steps, size_t batch, const int32_t *lengths,
                                const ashlar_rnn_buffers *buffers, const char *message) {
    const ashlar_rnn_batch shape = {.steps = steps, .batch = batch, .lengths = lengths};
    const size_t before = CALLS(launch_host_func);
    CHECK_FAILS(ashlar_rnn_forward(rnn, &shape, buffers, streams[1]), ASHLAR_EINVAL, message);
    CHECK_FAILS(ashlar_rnn_backward_data(rnn, &shape, buffers, streams[1]), ASHLAR_EINVAL, message);
    CHECK_FAILS(ashlar_rnn_backward_weights(rnn, &shape, buffers, streams[1]), ASHLAR_EINVAL,
                message);
    CHECK_ZU(CALLS(launch_host_func), before);
}

CASE_WITH(bad_batches_are_refused_and_nothing_is_queued, set_up_rnn("memory=16MiB", ASHLAR_F32)) {
    tensors t;
    open_tensors(&t, true);
    const int32_t zero[] = {4, 4, 0}, negative[] = {-1, 4, 4}, beyond[] = {4, 5, 4};
    check_batch_refused(0, BATCH, LENGTHS, &t.all, "3 sequences of 0 steps");
    check_batch_refused(STEPS, 0, LENGTHS, &t.all, "0 sequences of 4 steps");
    check_batch_refused(STEPS, BATCH, NULL, &t.all, "lengths are given");
    check_batch_refused(STEPS, BATCH, zero, &t.all, "lengths[2] is 0; it must be 1 to 4");
    check_batch_refused(STEPS, BATCH, negative, &t.all, "lengths[0] is -1");
    check_batch_refused(STEPS, BATCH, beyond, &t.all, "lengths[1] is 5");
    const ashlar_rnn_batch huge = {.steps = SIZE_MAX / 4, .batch = BATCH, .lengths = LENGTHS};
    const size_t before = CALLS(launch_host_func);
    CHECK(ashlar_rnn_forward(rnn, &huge, &t.all, streams[1]) == ASHLAR_EOVERFLOW);
    CHECK(ashlar_rnn_backward_data(rnn, &huge, &t.all, streams[1]) == ASHLAR_EOVERFLOW);
    CHECK(ashlar_rnn_backward_weights(rnn, &huge, &t.all, streams[1]) == ASHLAR_EOVERFLOW);
    CHECK_ZU(CALLS(launch_host_func), before);
    give(t.memory);
}

/* Each buffer NULL, and then the host's, which no GPU could read. */
CASE(buffers_that_are_missing_or_the_hosts_are_refused) {
    enum { F = 1, D = 2, W = 4 }; /* the passes that need it, or use it where it is there */
    static const struct {
        const char *name;
        size_t field;
        unsigned needed_by, used_by;
    } fields[] = {
#define FIELD(name, needed, used) {#name, offsetof(ashlar_rnn_buffers, name), needed, used}
        FIELD(reserve, D | W, F | D | W),
        FIELD(work, F | D | W, F | D | W),
        FIELD(x, F | W, F | W),
        FIELD(hx, 0, F),
        FIELD(cx, 0, F),
        FIELD(weights, F | D, F | D),
        FIELD(y, F, F),
        FIELD(hy, 0, F),
        FIELD(cy, 0, F),
        FIELD(dy, 0, D),
        FIELD(dhy, 0, D),
        FIELD(dcy, 0, D),
        FIELD(dx, 0, D),
        FIELD(dhx, 0, D),
        FIELD(dcx, 0, D),
        FIELD(dweights, W, W),
        FIELD(prepared, 0, F),
#undef FIELD
    };
    static const char *const calls[] = {"forward", "backward_data", "backward_weights"};
    static double on_host[1 << 10];
    void *const pointers[] = {NULL, on_host};
    REQUIRE(set_up_rnn("memory=16MiB," STRICT_NOT_HERE, ASHLAR_F32));
    const ashlar_rnn_batch batch = {.steps = STEPS, .batch = BATCH, .lengths = LENGTHS};
    tensors t;
    open_tensors(&t, true);
    for (size_t i = 0; i < 2 * sizeof fields / sizeof fields[0]; i++) {
        ashlar_rnn_buffers some = t.all;
        const bool is_host = i % 2 == 1;
        memcpy((char *)&some + fields[i / 2].field, &pointers[i % 2], sizeof(void *));
        for (unsigned pass = 0; pass < 3; pass++) {
            char text[96];
            const unsigned by = is_host ? fields[i / 2].used_by : fields[i / 2].needed_by;
            const ashlar_status status =
                pass == 0   ? ashlar_rnn_forward(rnn, &batch, &some, streams[1])
                : pass == 1 ? ashlar_rnn_backward_data(rnn, &batch, &some, streams[1])
                            : ashlar_rnn_backward_weights(rnn, &batch, &some, streams[1]);
            (void)snprintf(text, sizeof text,
                           is_host ? "ashlar_rnn_%s: %s, " : "ashlar_rnn_%s: %s is NULL",
                           calls[pass], fields[i / 2].name);
            CHECK(status == ((by >> pass & 1) != 0 ? ASHLAR_EINVAL : ASHLAR_OK));
            CHECK(status == ASHLAR_OK || strstr(ashlar_error_detail(), text) != NULL);
            mend_device(); /* what follows a pass that was refused is one too many */
        }
        wait_for(streams[1]);
    }
    void *const prepared = take(ashlar_rnn_prepared_bytes(rnn), streams[1]);
    CHECK_FAILS(ashlar_rnn_prepare(rnn, on_host, prepared, streams[1]), ASHLAR_EINVAL,
                "ashlar_rnn_prepare: weights, ");
    CHECK_FAILS(ashlar_rnn_prepare(rnn, t.all.weights, on_host, streams[1]), ASHLAR_EINVAL,
                "ashlar_rnn_prepare: prepared, ");
    CHECK(ashlar_rnn_prepare(rnn, t.all.weights, prepared, streams[1]) == ASHLAR_OK);
    wait_for(streams[1]);
    give(prepared);
    give(t.memory);
}

RUN_CASES()
