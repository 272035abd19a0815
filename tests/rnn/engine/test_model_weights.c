/* test_model_weights.c - frozen weights: what is no longer computed, what optimizers leave alone,
 * and by which names; and weights that are tied to others. */
#include "tests/allocator/core/allocator_fixture.h"

#include <ashlar/model.h>
#include <ashlar/optimizer.h>

enum { T = 3, B = 2, V = 5, H = 4, WEIGHTS_MOST = 400 };

static const int32_t tokens[T][B] = {{0, 1}, {2, 3}, {4, 0}};

static ashlar_model *model;
static ashlar_optimizer *optimizer;
static struct {
    double loss;
    int32_t tokens[T][B];
} * on;
static char before[WEIGHTS_MOST * sizeof(float)], after[sizeof before];

static void close_model(void) {
    check_forget(close_model);
    wait_for(streams[0]);
    ashlar_optimizer_destroy(optimizer);
    optimizer = NULL;
    give(on);
    ashlar_model_destroy(model);
    tear_down();
}

/* An embedding, an LSTM and a linear layer of one name's beginning; frozen before the commit, if
 * a name is given. */
static bool open_model(const char *frozen) {
    const ashlar_rnn_config lstm = {.hidden = H, .layers = 1, .cell = ASHLAR_RNN_LSTM};
    if (!set_up("memory=64MiB") ||
        ashlar_model_create(allocator, ASHLAR_F32, &model) != ASHLAR_OK) {
        return false;
    }
    ashlar_tensor *in = ashlar_model_input(model, "tokens", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *x = ashlar_model_embedding(model, "table", in, V, H);
    ashlar_tensor *y = ashlar_model_rnn(model, "lstm", x, &lstm, NULL).y;
    y = ashlar_model_linear(model, "lstm2", y, V, true);
    ashlar_model_loss(model, ASHLAR_LOSS_CROSS_ENTROPY, y, in, NULL);
    return (frozen == NULL || ashlar_model_freeze(model, frozen, true) == ASHLAR_OK) &&
           ashlar_model_commit(model, ASHLAR_REGIONS_ALL, streams[0]) == ASHLAR_OK &&
           ashlar_model_init(model, ASHLAR_INIT_PYTORCH, 3, streams[0]) == ASHLAR_OK &&
           ashlar_alloc(allocator, sizeof *on, streams[0], (void **)&on) == ASHLAR_OK &&
           ashlar_copy_to_device(device, on->tokens, tokens, sizeof tokens, streams[0]) ==
               ASHLAR_OK &&
           check_at_end(close_model);
}

static ashlar_model_batch batch_of(const void **inputs) {
    inputs[0] = on->tokens;
    return (ashlar_model_batch){.batch = B, .steps = T, .inputs = inputs, .loss = &on->loss};
}

static size_t phases(void) {
    const void *inputs[1];
    const ashlar_model_batch batch = batch_of(inputs);
    ashlar_model_need need = {0};
    CHECK(ashlar_model_get_need(model, ASHLAR_WALK_TRAIN, &batch, &need) == ASHLAR_OK);
    return need.phases;
}

static void read_weights(char *to) {
    const size_t bytes =
        ashlar_arena_region_bytes(ashlar_model_arena(model), ASHLAR_REGION_PARAMETERS);
    REQUIRE(bytes <= sizeof before);
    CHECK(ashlar_copy_to_host(
              device, to, ashlar_arena_region(ashlar_model_arena(model), ASHLAR_REGION_PARAMETERS),
              bytes, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
}

/* A step of an optimizer that is made for it, and decays weights. */
static void train(void) {
    const ashlar_optimizer_config adamw = {
        .kind = ASHLAR_OPTIMIZER_ADAMW, .learning_rate = 0.1, .weight_decay = 0.1};
    const void *inputs[1];
    const ashlar_model_batch batch = batch_of(inputs);
    ashlar_arena *arena = ashlar_model_arena(model);
    read_weights(before);
    ashlar_optimizer_destroy(optimizer);
    optimizer = NULL;
    CHECK(ashlar_optimizer_create(arena, &adamw, streams[0], &optimizer) == ASHLAR_OK);
    CHECK(ashlar_arena_zero(arena, ASHLAR_REGION_GRADIENTS, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_fill(device, &on->loss, 0, sizeof on->loss, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_model_run(model, ASHLAR_WALK_TRAIN, &batch, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_optimizer_step(optimizer, 0.1, 1, streams[0]) == ASHLAR_OK);
    read_weights(after);
}

/* How many of the tensors whose names begin so have changed. */
static size_t changed(const char *prefix) {
    const ashlar_arena *arena = ashlar_model_arena(model);
    size_t count = 0;
    for (size_t i = 0; i < ashlar_arena_tensor_count(arena); i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, i, &info);
        const size_t at = info.offset[ASHLAR_LAYOUT_STORAGE];
        count += strncmp(info.name, prefix, strlen(prefix)) == 0 &&
                 memcmp(before + at, after + at, info.bytes) != 0;
    }
    return count;
}

CASE(what_is_frozen_is_not_computed_nor_decayed) {
    REQUIRE(open_model(NULL));
    const size_t all = phases();
    CHECK(ashlar_model_freeze(model, "table.", true) == ASHLAR_OK);
    CHECK(phases() < all);
    train();
    CHECK(changed("table.") == 0 && changed("lstm.") == 4 && changed("lstm2.") == 2);
    CHECK(ashlar_model_freeze(model, "lstm.", true) == ASHLAR_OK);
    train();
    CHECK(changed("table.") == 0 && changed("lstm.") == 0 && changed("lstm2.") == 2);
    CHECK(ashlar_model_freeze(model, "", false) == ASHLAR_OK);
    CHECK(phases() == all);
    train();
    CHECK(changed("") == 7);
}

CASE(weights_may_be_frozen_before_the_commit) {
    REQUIRE(open_model("lstm"));
    train();
    CHECK(changed("table.") == 1 && changed("lstm") == 0);
}

CASE(a_stack_is_frozen_as_a_whole) {
    REQUIRE(open_model(NULL));
    CHECK(ashlar_model_freeze(model, "lstm.weight_ih_l0", true) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "begins with \"lstm.weight_ih_l0\"");
    train();
    CHECK(changed("lstm.") == 4);
}

/* An embedding and a linear layer of one shape; the tie comes between, or behind both. */
static ashlar_status commit_tied(const char *tensor, const char *is, bool is_late) {
    ashlar_tensor *in = ashlar_model_input(model, "tokens", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *x = ashlar_model_embedding(model, "table", in, V, H);
    if (!is_late) {
        ashlar_model_tie(model, tensor, is);
    }
    x = ashlar_model_linear(model, "linear", x, V, true);
    if (is_late) {
        ashlar_model_tie(model, tensor, is);
    }
    ashlar_model_loss(model, ASHLAR_LOSS_CROSS_ENTROPY, x, in, NULL);
    return ashlar_model_commit(model, ASHLAR_REGIONS_ALL, streams[0]);
}

static void close_tied(void) {
    check_forget(close_tied);
    ashlar_model_destroy(model);
    tear_down();
}

static bool open_tied(void) {
    return set_up("memory=64MiB") &&
           ashlar_model_create(allocator, ASHLAR_F32, &model) == ASHLAR_OK &&
           check_at_end(close_tied);
}

CASE(a_tied_weight_is_one_tensor) {
    REQUIRE(open_tied());
    CHECK(commit_tied("linear.weight", "table.weight", false) == ASHLAR_OK);
    CHECK(ashlar_arena_tensor_count(ashlar_model_arena(model)) == 2);
}

/* A projection, and behind it a layer that has the table's weight and a bias of its own. */
CASE(a_bias_is_drawn_with_its_own_matrix_alone) {
    enum { CLASSES = 5, WIDTH = 3 };
    size_t tensor;
    REQUIRE(open_tied());
    ashlar_tensor *x = ashlar_model_input(model, "tokens", ASHLAR_AXIS_NONE, 0);
    x = ashlar_model_embedding(model, "table", x, CLASSES, WIDTH);
    x = ashlar_model_linear(model, "projection", x, WIDTH, false);
    ashlar_model_tie(model, "out.weight", "table.weight");
    x = ashlar_model_linear(model, "out", x, CLASSES, true);
    ashlar_model_linear(model, "last", x, CLASSES, true);
    REQUIRE(ashlar_model_commit(model, ASHLAR_REGIONS_ALL, NULL) == ASHLAR_OK);
    REQUIRE(ashlar_model_init(model, ASHLAR_INIT_PYTORCH, 1, NULL) == ASHLAR_OK);
    REQUIRE(ashlar_stream_synchronize(device, NULL) == ASHLAR_OK);
    static const struct {
        const char *name;
        bool is_drawn;
    } biases[] = {{"out.bias", false}, {"last.bias", true}};
    for (size_t i = 0; i < 2; i++) {
        REQUIRE(ashlar_arena_find(ashlar_model_arena(model), biases[i].name, &tensor) == ASHLAR_OK);
        const float *bias =
            ashlar_arena_view(ashlar_model_arena(model), ASHLAR_REGION_PARAMETERS, tensor);
        for (size_t k = 0; k < CLASSES; k++) {
            CHECK((bias[k] != 0) == biases[i].is_drawn);
        }
    }
}

CASE(a_tie_that_no_layer_takes_is_refused) {
    static const struct {
        const char *tensor, *is, *said;
        bool is_late;
    } wrong[] = {{"linaer.weight", "table.weight", "no layer has such a weight", false},
                 {"linear.weight", "table.weight", "behind its layer", true},
                 {"linear.weight", "tabel.weight", "which is not declared before", false},
                 {"linear.bias", "table.weight", "in another shape", false}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        REQUIRE(open_tied());
        CHECK(commit_tied(wrong[i].tensor, wrong[i].is, wrong[i].is_late) == ASHLAR_EINVAL);
        CHECK_HAS(ashlar_error_detail(), wrong[i].said);
        close_tied();
    }
}

RUN_CASES()
