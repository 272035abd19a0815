/* test_network.c - a whole network: its gradients against finite differences of its loss, its
 * outputs, and failures that leave nothing behind. */
#include "tests/allocator/core/allocator_fixture.h"
#include "tests/allocator/trace/numbers_fixture.h"

#include <math.h>

#include <ashlar/model.h>
#include <ashlar/plan.h>

enum { T = 4, B = 3, I = 3, H = 4, V = 6, O = 5 };

static const int32_t LENGTHS[B] = {2, 4, 3};

/* A batch in device memory. */
typedef struct batch {
    int32_t tokens[T * B], classes[T * B];
    double inputs[T * B * I], wanted[T * B * O], outputs[T * B * O];
    double loss, scale;
} batch;

static ashlar_network *network;
static batch *data;

static void close_network(void) {
    check_forget(close_network);
    wait_for(streams[0]);
    ashlar_network_destroy(network);
    network = NULL;
    give(data);
    tear_down();
}

static ashlar_network_config config_of(bool has_table, bool is_regression, bool last_only,
                                       size_t directions) {
    return (ashlar_network_config){.layers = {.input = I,
                                              .hidden = H,
                                              .layers = 2,
                                              .dtype = ASHLAR_F64,
                                              .cell = ASHLAR_RNN_LSTM,
                                              .directions = directions,
                                              .projection = 2},
                                   .classes = has_table ? V : 0,
                                   .outputs = O,
                                   .loss = is_regression ? ASHLAR_NETWORK_SQUARED_ERROR
                                                         : ASHLAR_NETWORK_CROSS_ENTROPY,
                                   .last_only = last_only};
}

static bool open_network(const char *spec, const ashlar_network_config *config) {
    void *ptr = NULL;
    if (!set_up_cached(spec, 8 * MIB) ||
        ashlar_network_create(allocator, config, ASHLAR_REGIONS_ALL, streams[0], &network) !=
            ASHLAR_OK ||
        ashlar_alloc(allocator, sizeof *data, streams[0], &ptr) != ASHLAR_OK ||
        ashlar_network_init(network, ASHLAR_INIT_PYTORCH, 3, streams[0]) != ASHLAR_OK) {
        return false;
    }
    wait_for(streams[0]);
    data = ptr;
    *data = (batch){0};
    for (size_t i = 0; i < (size_t)T * B; i++) {
        data->tokens[i] = (int32_t)(i * 5 % V);
        data->classes[i] = i % 4 == 1 ? -100 : (int32_t)(i * 3 % O);
    }
    for (size_t i = 0; i < (size_t)T * B * I; i++) {
        data->inputs[i] = random_real();
    }
    for (size_t i = 0; i < (size_t)T * B * O; i++) {
        data->wanted[i] = random_real();
    }
    return check_at_end(close_network);
}

static ashlar_network_batch batch_of(const ashlar_network_config *c) {
    return (ashlar_network_batch){
        .steps = T,
        .batch = B,
        .lengths = LENGTHS,
        .inputs = c->classes > 0 ? (const void *)data->tokens : data->inputs,
        .targets =
            c->loss == ASHLAR_NETWORK_SQUARED_ERROR ? (const void *)data->wanted : data->classes,
        .loss = &data->loss,
        .outputs = data->outputs};
}

static double loss_of(const ashlar_network_batch *b) {
    CHECK(ashlar_network_step(network, b, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    return data->loss;
}

static double *region(ashlar_region which) {
    return ashlar_arena_region(ashlar_network_arena(network), which);
}

/* Every weight a little up and down. */
static void check_gradients(const ashlar_network_config *c) {
    const ashlar_network_batch b = batch_of(c);
    const size_t count =
        ashlar_arena_region_bytes(ashlar_network_arena(network), ASHLAR_REGION_GRADIENTS) /
        sizeof(double);
    double *gradients = malloc(count * sizeof *gradients), *weights, worst = 0, largest = 0;
    REQUIRE(gradients != NULL);
    CHECK(loss_of(&b) > 0);
    memcpy(gradients, region(ASHLAR_REGION_GRADIENTS), count * sizeof *gradients);
    weights = region(ASHLAR_REGION_PARAMETERS);
    for (size_t i = 0; i < count; i++) {
        const double old = weights[i], step = 1e-5;
        weights[i] = old + step;
        const double above = loss_of(&b);
        weights[i] = old - step;
        const double below = loss_of(&b);
        weights[i] = old;
        worst = fmax(worst, fabs((above - below) / (2 * step) - gradients[i]));
        largest = fmax(largest, fabs(gradients[i]));
    }
    CHECK(worst <= 1e-8);
    CHECK(largest > 1e-3);
    free(gradients);
}

CASE(gradients_match_finite_differences_in_every_form) {
    for (unsigned form = 0; form < 16; form++) {
        const ashlar_network_config c =
            config_of((form & 1) != 0, (form & 2) != 0, (form & 4) != 0, (form & 8) != 0 ? 2 : 1);
        REQUIRE(open_network("memory=64MiB", &c));
        check_gradients(&c);
        close_network();
    }
}

CASE(a_prediction_is_what_a_step_computes_on_the_way) {
    for (int last = 0; last < 2; last++) {
        const ashlar_network_config c = config_of(true, false, last != 0, 2);
        double seen[T * B * O];
        REQUIRE(open_network("memory=64MiB,mode=adversarial,seed=5", &c));
        ashlar_network_batch b = batch_of(&c);
        (void)loss_of(&b);
        memcpy(seen, data->outputs, sizeof seen);
        memset(data->outputs, 0xff, sizeof data->outputs);
        b.targets = NULL;
        b.loss = NULL;
        CHECK(ashlar_network_predict(network, &b, streams[0]) == ASHLAR_OK);
        wait_for(streams[0]);
        CHECK(memcmp(seen, data->outputs, sizeof *seen * (last ? 1 : T) * B * O) == 0);
        close_network();
    }
}

static void predict(const ashlar_network_batch *b, double *outputs) {
    memset(data->outputs, 0xff, sizeof data->outputs);
    CHECK(ashlar_network_predict(network, b, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    memcpy(outputs, data->outputs, sizeof data->outputs);
}

/* Weights that change show who reads them. */
CASE(predictions_read_prepared_weights_until_the_next_step) {
    enum { BYTES = sizeof(double) * T * B * O };
    const ashlar_network_config c = config_of(true, false, false, 2);
    double plain[T * B * O], prepared[T * B * O], later[T * B * O], changed[T * B * O];
    REQUIRE(open_network("memory=64MiB,mode=adversarial,seed=5", &c));
    const ashlar_network_batch b = batch_of(&c);
    double *const weights =
        ashlar_arena_view(ashlar_network_arena(network), ASHLAR_REGION_PARAMETERS, 1);
    predict(&b, plain);
    CHECK(ashlar_network_prepare(network, streams[0]) == ASHLAR_OK);
    predict(&b, prepared);
    weights[0] += 1;
    predict(&b, later);
    CHECK(memcmp(prepared, plain, BYTES) == 0 && memcmp(later, plain, BYTES) == 0);
    (void)loss_of(&b);
    predict(&b, changed);
    CHECK(memcmp(changed, plain, BYTES) != 0);
    CHECK(ashlar_network_prepare(network, streams[0]) == ASHLAR_OK);
    predict(&b, prepared);
    CHECK(memcmp(prepared, changed, BYTES) == 0);
}

CASE(a_step_begins_anew_or_adds) {
    const ashlar_network_config c = config_of(false, true, true, 1);
    REQUIRE(open_network("memory=64MiB", &c));
    ashlar_network_batch b = batch_of(&c);
    const double once = loss_of(&b), gradient = region(ASHLAR_REGION_GRADIENTS)[0];
    CHECK(loss_of(&b) == once && region(ASHLAR_REGION_GRADIENTS)[0] == gradient);
    b.accumulates = true;
    CHECK(loss_of(&b) == 2 * once);
    CHECK_NEAR(region(ASHLAR_REGION_GRADIENTS)[0], 2 * gradient, 0, 1e-14);
    data->scale = 4;
    b.accumulates = false;
    b.scale = &data->scale;
    CHECK(loss_of(&b) == once);
    CHECK_NEAR(region(ASHLAR_REGION_GRADIENTS)[0], 4 * gradient, 0, 1e-14);
}

CASE(what_is_missing_is_named) {
    static const struct {
        const char *text;
        size_t offset;
        bool when_predicting;
    } fields[] = {
        {"steps", offsetof(ashlar_network_batch, steps), true},
        {"inputs", offsetof(ashlar_network_batch, inputs), true},
        {"targets", offsetof(ashlar_network_batch, targets), false},
        {"loss", offsetof(ashlar_network_batch, loss), false},
    };
    ashlar_network_config c = config_of(true, false, false, 1);
    REQUIRE(open_network("memory=64MiB", &c));
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        ashlar_network_batch b = batch_of(&c);
        memset((char *)&b + fields[i].offset, 0, sizeof(size_t));
        CHECK_FAILS(ashlar_network_step(network, &b, streams[0]), ASHLAR_EINVAL, fields[i].text);
        CHECK((ashlar_network_predict(network, &b, streams[0]) != ASHLAR_OK) ==
              fields[i].when_predicting);
    }
    ashlar_network_batch b = batch_of(&c);
    b.outputs = NULL;
    CHECK_FAILS(ashlar_network_predict(network, &b, streams[0]), ASHLAR_EINVAL, "outputs");
    ashlar_network *other = NULL;
    c.loss = ASHLAR_NETWORK_LOSS_COUNT;
    CHECK_FAILS(ashlar_network_create(allocator, &c, 1, streams[0], &other), ASHLAR_EINVAL, "loss");
    c.loss = 0;
    c.outputs = 0;
    CHECK_FAILS(ashlar_network_create(allocator, &c, 1, streams[0], &other), ASHLAR_EINVAL,
                "outputs");
    CHECK(other == NULL);
}

CASE(one_for_inference_does_not_train) {
    const ashlar_network_config c = config_of(true, false, false, 1);
    REQUIRE(open_network("memory=64MiB", &c));
    ashlar_network *other = NULL;
    const ashlar_network_batch b = batch_of(&c);
    REQUIRE(ashlar_network_create(allocator, &c, ASHLAR_REGIONS_INFERENCE, streams[0], &other) ==
            ASHLAR_OK);
    CHECK_FAILS(ashlar_network_step(other, &b, streams[0]), ASHLAR_EINVAL, "no gradients");
    CHECK(ashlar_network_predict(other, &b, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    ashlar_network_destroy(other);
    ashlar_network_destroy(NULL);
}

CASE(failures_leave_no_block_behind) {
    const ashlar_network_config c = config_of(true, false, true, 2);
    REQUIRE(open_network("memory=64MiB", &c));
    ashlar_network_batch b = batch_of(&c);
    b.lengths = NULL;
    const uint64_t live = stats_now().live_blocks;
    unsigned failures = 0;
    for (unsigned long n = 1; n < 100; n++) {
        ashlar_status status;
        HOST_FAILS_AT(n, status = ashlar_network_step(network, &b, streams[0]));
        failures += status == ASHLAR_EHOSTMEM;
        wait_for(streams[0]);
        CHECK_ZU(stats_now().live_blocks, live);
    }
    CHECK(failures > 5);
    for (unsigned long n = 1; n < 100; n++) {
        ashlar_network *other = NULL;
        ashlar_status status;
        HOST_FAILS_AT(n, status = ashlar_network_create(allocator, &c, ASHLAR_REGIONS_ALL,
                                                        streams[0], &other));
        CHECK((status == ASHLAR_OK) == (other != NULL));
        CHECK(other == NULL || ashlar_network_prepare(other, streams[0]) == ASHLAR_OK);
        wait_for(streams[0]);
        ashlar_network_destroy(other);
        CHECK_ZU(stats_now().live_blocks, live);
    }
}

RUN_CASES()
