/* test_model_tiers.c - training in a given memory, in virtual time: how long it takes when copies
 * to the host and back pass beside the work, or do not. */
#include "allocator/device/device_impl.h"
#include "tests/allocator/soft/soft_probe.h"
#include "tests/rnn/engine/engine_fixture.h"

enum { CLASSES = 256, B = 32, T = 512, CHUNK = 16, NODES = 4 };

/* Operations do nothing here but take their time. */
static ashlar_status take_time(size_t n, const ashlar_operation_call *call, ashlar_stream stream) {
    const ashlar_walking *w = call->engine;
    const size_t p = w->table->nodes[n].phases[call->phase];
    ASHLAR_TRY(ashlar__device_enter(device));
    const ashlar_status status =
        ashlar__soft_work(stream, ashlar__walk_phases_ns(w->model, w->table, w->plan, p, p + 1));
    ashlar__device_leave(device);
    return status;
}

#define TAKE_TIME(n)                                                                  \
    static ashlar_status take_time_##n(void *user, const ashlar_operation_call *call, \
                                       ashlar_stream stream) {                        \
        (void)user;                                                                   \
        return take_time(n, call, stream);                                            \
    }
TAKE_TIME(0)
TAKE_TIME(1)
TAKE_TIME(2)
TAKE_TIME(3)

/* An LSTM of this width on a device that copies so many bytes in a microsecond. */
static bool open_lstm(size_t hidden, unsigned rate) {
    char line[96];
    (void)snprintf(line, sizeof line, "time=on,costs=off,touch=off,memory=8GiB,copy_rate=%u", rate);
    const ashlar_rnn_config config = {.input = hidden, .hidden = hidden, .layers = 1};
    const ashlar_model_rates rates = {.out_bytes = rate * 1e6, .back_bytes = rate * 1e6};
    if (!open_model(line, 1)) {
        return false;
    }
    ashlar_model_destroy(model);
    bool is_open = ashlar_model_create(allocator, ASHLAR_F32, &model) == ASHLAR_OK;
    ashlar_tensor *tokens = ashlar_model_input(model, "tokens", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *targets = ashlar_model_input(model, "targets", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *x = ashlar_model_embedding(model, "embedding", tokens, CLASSES, hidden);
    x = ashlar_model_rnn(model, "lstm", x, &config, NULL).y;
    x = ashlar_model_linear(model, "linear", x, CLASSES, true);
    ashlar_model_loss(model, ASHLAR_LOSS_CROSS_ENTROPY, x, targets, NULL);
    is_open = is_open && commit(1) == ASHLAR_OK &&
              ashlar_model_set_rates(model, &rates) == ASHLAR_OK && model->node_count == NODES;
    ashlar_status (*const functions[NODES])(void *, const ashlar_operation_call *,
                                            ashlar_stream) = {take_time_0, take_time_1, take_time_2,
                                                              take_time_3};
    for (size_t n = 0; n < NODES && is_open; n++) {
        model->nodes[n]->operation.queue = functions[n];
    }
    for (size_t i = 0; i < 2; i++) {
        drawn.inputs[i] = take(T * B * sizeof(int32_t), streams[0]);
    }
    return is_open;
}

static uint64_t device_ns(void) {
    soft_figures figures = {0};
    wait_for(streams[0]);
    CHECK(ashlar__soft_get_figures(0, &figures) == ASHLAR_OK);
    return figures.end_ns;
}

/* How long a walk takes with this memory, the second time. */
static uint64_t time_with(const ashlar_model_batch *plain, size_t memory) {
    ashlar_model_batch b = *plain;
    b.memory = memory;
    go(ASHLAR_WALK_TRAIN, &b);
    const uint64_t before = device_ns();
    go(ASHLAR_WALK_TRAIN, &b);
    return device_ns() - before;
}

/* What was chosen for the walk that took this memory. */
static const ashlar_tiers_choice *choice_of(size_t memory) {
    for (const ashlar_walk_table *t = model->tables; t != NULL; t = t->next) {
        for (size_t i = 0; i < ASHLAR_PLAN_BUCKETS; i++) {
            for (const ashlar_walk_plan *p = t->plans[i]; p != NULL; p = p->next) {
                const ashlar_walk_tiers *tiers = p->shape.memory == memory ? t->tiers : NULL;
                for (; tiers != NULL; tiers = tiers->next) {
                    if (tiers->slot_count == p->slot_count) {
                        return &tiers->choice;
                    }
                }
            }
        }
    }
    return NULL;
}

/* A quarter of the memory with which all stays on the device. Forward is a third of the work, and
 * what leaves has to have left when that ends: where it does, the step is as fast; elsewhere it is
 * near what no choice is below. */
static void check_times(size_t hidden, unsigned rate) {
    REQUIRE(open_lstm(hidden, rate));
    const void *inputs[2] = {drawn.inputs[0], drawn.inputs[1]};
    ashlar_model_batch b = {.batch = B,
                            .steps = T,
                            .chunk = CHUNK,
                            .memory = SIZE_MAX,
                            .weight = 1,
                            .inputs = inputs,
                            .loss = loss,
                            .seed = 1};
    ashlar_model_need need;
    ashlar_model_tiers tiers;
    REQUIRE(ashlar_model_get_need(model, ASHLAR_WALK_TRAIN, &b, &need) == ASHLAR_OK);
    const double resident_ns = (double)time_with(&b, SIZE_MAX);
    const double again_ns = (double)time_with(&b, 0);
    b.memory = need.plan_bytes / 4;
    const double ns = (double)time_with(&b, b.memory);
    REQUIRE(ashlar_model_get_tiers(model, &b, &tiers) == ASHLAR_OK);
    const ashlar_tiers_choice *choice = choice_of(b.memory);
    REQUIRE(choice != NULL);
    const double bound = (double)choice->bound_ns / (double)choice->compute_ns;
    const double away = (double)(tiers.host_bytes + tiers.recomputed_bytes);
    const bool fits = away * 1000 / rate <= resident_ns / 3;
    printf(
        "# hidden %zu, %u MB/s: in %zu of %zu MiB, resident %zu, on the host %zu, computed again "
        "%zu: time %.4f of the resident's, said %.4f, bound %.4f; all computed again %.4f\n",
        hidden, rate, b.memory >> 20, need.plan_bytes >> 20, tiers.resident_bytes >> 20,
        tiers.host_bytes >> 20, tiers.recomputed_bytes >> 20, ns / resident_ns, tiers.time, bound,
        again_ns / resident_ns);
    CHECK(need.plan_bytes / 4 >= tiers.least_bytes);
    CHECK(ns <= again_ns);
    CHECK(ns <= resident_ns * (fits ? 1.03 : 1.03 * bound));
    CHECK_NEAR(ns / resident_ns, tiers.time, 0.02, 0);
}

#define X(hidden, rate)                                     \
    CASE(lstm_of_##hidden##_with_copies_of_##rate##_MB_s) { \
        check_times(hidden, rate);                          \
    }
X(512, 25000)
X(512, 50000)
X(1024, 25000)
X(1024, 50000)

RUN_CASES()
