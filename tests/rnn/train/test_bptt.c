/*
 * test_bptt.c - truncated back-propagation through time: a batch is as many updates as it has
 * parts, with the states carried between them.
 */
#include "tests/rnn/train/train_checkpoint_fixture.h"

#include "rnn/data/batcher.h"

enum { PART = 7, PARTS_MAX = MAX_LENGTH / PART + 1 };

static ashlar_train_config config_in_parts(size_t steps) {
    ashlar_train_config config = small_config(steps);
    config.batch = BATCH;
    config.bptt = PART;
    return config;
}

/* ---- the same loop, from the parts ---- */

/* A part of a batch in device memory, as it lies in the batch's grids. */
typedef struct reference {
    ashlar_model *model;
    ashlar_optimizer *optimizer;
    ashlar_batch batch;
    int32_t *inputs, *targets, *lengths; /* device */
    double *loss;                        /* device */
    unsigned char *sets[PARTS_MAX + 1];  /* device: the states before each part */
} reference;

/* Its loss; *tokens gets those it has. */
static double run_part(reference *r, const ashlar_train_config *c, size_t step, size_t part,
                       size_t *tokens) {
    const size_t first = part * PART, rest = r->batch.steps - first;
    int32_t rnn_lengths[BATCH];
    ashlar_step_sizes sizes;
    *tokens = 0;
    for (size_t b = 0; b < BATCH; b++) {
        const int32_t left = r->batch.lengths[b] - (int32_t)first;
        r->lengths[b] = left < 0 ? 0 : left > PART ? PART : left;
        rnn_lengths[b] = r->lengths[b] == 0 ? 1 : r->lengths[b];
        *tokens += (size_t)r->lengths[b];
    }
    const ashlar_model_window window = {.steps = rest < PART ? rest : PART,
                                        .count = BATCH,
                                        .inputs = r->inputs + first * BATCH,
                                        .targets = r->targets + first * BATCH,
                                        .lengths = r->lengths,
                                        .rnn_lengths = rnn_lengths,
                                        .first = part == 0 ? NULL : r->sets[part],
                                        .last = r->sets[part + 1]};
    *r->loss = 0;
    r->model->dropout_seed =
        c->seed + step * UINT64_C(0x9e3779b97f4a7c15) + part * UINT64_C(0xc2b2ae3d27d4eb4f);
    CHECK(ashlar_arena_zero(r->model->arena, ASHLAR_REGION_GRADIENTS, streams[1]) == ASHLAR_OK);
    CHECK(ashlar__model_sizes(r->model, window.steps, BATCH, &sizes) == ASHLAR_OK);
    CHECK(ashlar__model_step(r->model, &window, &sizes, r->loss) == ASHLAR_OK);
    CHECK(ashlar_optimizer_step(r->optimizer, ashlar_schedule_rate(&c->schedule, step), 1,
                                streams[1]) == ASHLAR_OK);
    wait_for(streams[1]);
    return *r->loss;
}

static double run_batch(reference *r, const ashlar_train_config *c, size_t step) {
    const size_t grid = r->batch.steps * BATCH * sizeof(int32_t);
    double nats = 0;
    memcpy(r->inputs, r->batch.inputs, grid);
    memcpy(r->targets, r->batch.targets, grid);
    const size_t parts = (r->batch.steps + PART - 1) / PART;
    double loss = 0;
    for (size_t part = 0; part < parts; part++) {
        size_t tokens;
        loss = run_part(r, c, step, part, &tokens);
        nats += loss * (double)tokens;
    }
    return parts == 1 ? loss : nats / (double)r->batch.tokens;
}

static int32_t *take_words(size_t count) {
    return (int32_t *)(void *)take(count * sizeof(int32_t), streams[1]);
}

static void open_reference(reference *r, const ashlar_train_config *c) {
    const ashlar_model_config model = model_config_of(c);
    ashlar_step_sizes sizes;
    REQUIRE(ashlar_allocator_create(device, &allocator) == ASHLAR_OK);
    REQUIRE(ashlar__model_create(allocator, streams[1], &model, ASHLAR_REGIONS_ALL, &r->model) ==
            ASHLAR_OK);
    REQUIRE(ashlar__model_init_weights(r->model, c->seed) == ASHLAR_OK);
    REQUIRE(ashlar_optimizer_create(r->model->arena, &c->optimizer, streams[1], &r->optimizer) ==
            ASHLAR_OK);
    REQUIRE(ashlar__model_sizes(r->model, PART, BATCH, &sizes) == ASHLAR_OK);
    for (size_t i = 0; i <= PARTS_MAX; i++) {
        r->sets[i] = take(sizes.state, streams[1]);
    }
    r->inputs = take_words(MAX_LENGTH * BATCH);
    r->targets = take_words(MAX_LENGTH * BATCH);
    r->lengths = take_words(BATCH);
    r->loss = (double *)(void *)take(sizeof *r->loss, streams[1]);
}

static void close_reference(reference *r) {
    for (size_t i = 0; i <= PARTS_MAX; i++) {
        give(r->sets[i]);
    }
    give(r->inputs);
    give(r->targets);
    give(r->lengths);
    give(r->loss);
    ashlar_optimizer_destroy(r->optimizer);
    ashlar__model_destroy(r->model);
    ashlar_allocator_destroy(allocator);
}

/* The losses of a training's steps. */
static void run_reference(const ashlar_train_config *c, double *losses) {
    static int32_t inputs[MAX_LENGTH * BATCH], targets[MAX_LENGTH * BATCH], lengths[BATCH];
    const ashlar_batcher_config batcher_config = {
        .batch = c->batch, .max_steps = c->max_length, .seed = c->seed};
    reference r = {.batch = {.inputs = inputs, .targets = targets, .lengths = lengths}};
    ashlar_batcher *batcher = NULL;
    REQUIRE(ashlar__batcher_create(corpus, &batcher_config, &batcher) == ASHLAR_OK);
    open_reference(&r, c);
    for (size_t step = 1; step <= c->steps; step++) {
        ashlar__batcher_next(batcher, &r.batch);
        losses[step - 1] = run_batch(&r, c, step);
    }
    close_reference(&r);
    ashlar__batcher_destroy(batcher);
}

CASE(losses_are_those_of_the_loop_written_out) {
    static const char *const specs[] = {"memory=256MiB", "memory=256MiB,mode=adversarial,seed=5"};
    for (int i = 0; i < ASHLAR_RNN_CELL_COUNT; i++) {
        double losses[15];
        ashlar_train_config config = config_in_parts(15);
        config.cell = (ashlar_rnn_cell)i;
        config.projection = config.cell == ASHLAR_RNN_LSTM ? 5 : 0;
        config.dropout = i % 2 == 0 ? 0.25 : 0;
        REQUIRE(open_text(specs[i % 2]));
        run_reference(&config, losses);
        REQUIRE(train_once(&config) == ASHLAR_OK);
        for (size_t step = 0; step < 15; step++) {
            CHECK(seen.steps[step].loss_step == losses[step]); /* to the last bit */
        }
        CHECK(report.max_length > 3 * PART);
        CHECK_ZU(report.warmed_length, PART);
        CHECK_ZU(report.training.management, 0);
        CHECK_ZU(report.step_memory.misses, 0);
        close_text();
    }
}

/* ---- the trainer ---- */

/* Sequences four times as long in the same memory, but for the states and the tokens. */
CASE_WITH(memory_is_that_of_a_part, open_text("memory=256MiB")) {
    ashlar_train_report parts, whole, shorter;
    ashlar_train_config config = config_in_parts(10);
    REQUIRE(train(&config, &seen, &parts) == ASHLAR_OK);
    CHECK(parts.stats.live_blocks == 8); /* the states as well */
    size_t updates = 0;
    for (size_t i = 0; i < seen.count; i++) {
        updates += (seen.steps[i].length + PART - 1) / PART;
    }
    CHECK_ZU(parts.step_memory.steps_replayed, updates);
    CHECK_ZU(parts.step_memory.hits, updates * 9);
    config.bptt = 0;
    REQUIRE(train(&config, &seen, &whole) == ASHLAR_OK);
    config.max_length = PART;
    REQUIRE(train(&config, &seen, &shorter) == ASHLAR_OK);
    CHECK_ZU(parts.step_memory.bound_bytes, shorter.step_memory.bound_bytes);
    CHECK_ZU(parts.step_bytes, parts.step_memory.bound_bytes);
    CHECK_ZU(parts.savings_count, 1);
    CHECK(strcmp(parts.savings[0].option, "bptt") == 0 && parts.savings[0].value == PART);
    CHECK_ZU(parts.savings[0].bytes, whole.step_memory.bound_bytes);
    CHECK(whole.step_bytes > 3 * parts.step_bytes);
}

/* All three ways to save at once, each accounted for. */
CASE_WITH(options_go_together, open_text("memory=256MiB")) {
    static shown alone, together;
    ashlar_train_report without[3];
    ashlar_train_config config = config_in_parts(12);
    REQUIRE(train(&config, &alone, &report) == ASHLAR_OK);
    config.accumulate = 2;
    REQUIRE(train(&config, &together, &without[2]) == ASHLAR_OK);
    config.recompute = 3;
    REQUIRE(train(&config, &together, &report) == ASHLAR_OK);
    for (size_t step = 0; step < 12; step++) {
        CHECK_NEAR(together.steps[step].loss_step, alone.steps[step].loss_step, 0, 1e-4);
    }
    ashlar_train_config other = config;
    other.accumulate = 1;
    REQUIRE(train(&other, &alone, &without[0]) == ASHLAR_OK);
    other = config;
    other.bptt = 0;
    REQUIRE(train(&other, &alone, &without[1]) == ASHLAR_OK);
    CHECK_ZU(report.savings_count, 3);
    CHECK_ZU(report.step_bytes, report.step_memory.bound_bytes);
    for (size_t i = 0; i < 3; i++) {
        static const char *const names[] = {"accumulate", "bptt", "recompute"};
        CHECK(strcmp(report.savings[i].option, names[i]) == 0);
        CHECK_ZU(report.savings[i].bytes, without[i].step_memory.bound_bytes);
        CHECK(without[i].step_memory.bound_bytes > report.step_bytes);
    }
    CHECK(report.training.management == 0 && report.step_memory.misses == 0);
}

RUN_CASES()
