/*
 * test_train.c - the training loop: its losses against the same loop written out here, its report
 * and its seeds.
 */
#include "tests/rnn/train/train_fixture.h"

#include <ashlar/plan.h>

#include "rnn/data/batcher.h"
#include "rnn/model/text_model.h"

/* ---- the same loop, from the parts ---- */

typedef struct reference {
    double losses[STEPS_MAX]; /* of each step */
    double tokens[STEPS_MAX];
    size_t lengths[STEPS_MAX];
    double epochs[STEPS_MAX];
    size_t parameters, max_steps, pieces;
} reference;

/* A part of a batch in device memory, as it lies in the batch's grids. */
typedef struct loop {
    ashlar_model *model;
    ashlar_arena *arena; /* its own */
    ashlar_optimizer *optimizer;
    ashlar_batch batch;
    int32_t image[2 * MAX_LENGTH * BATCH + 2 * BATCH]; /* of the whole batch, in one part */
    int32_t *inputs, *targets, *lengths;               /* device */
    double *loss;                        /* device */
    unsigned char *sets[MAX_LENGTH + 1]; /* device: the states before each part */
    size_t part;                         /* its length */
} loop;

/* The loss of a part; *tokens gets those it has. */
static double run_part(loop *r, const ashlar_train_config *c, size_t step, size_t part,
                       size_t *tokens) {
    const size_t first = part * r->part, rest = r->batch.steps - first;
    const void *const inputs[] = {r->inputs + first * BATCH, r->targets + first * BATCH};
    int32_t host_lengths[BATCH];
    *tokens = 0;
    for (size_t b = 0; b < BATCH; b++) {
        const int32_t left = (int32_t)r->batch.pieces[b].steps - (int32_t)first;
        r->lengths[b] = left < 0 ? 0 : left > (int32_t)r->part ? (int32_t)r->part : left;
        host_lengths[b] = r->lengths[b] == 0 ? 1 : r->lengths[b];
        *tokens += (size_t)r->lengths[b];
    }
    const ashlar_model_batch batch = {.steps = rest < r->part ? rest : r->part,
                                      .batch = BATCH,
                                      .inputs = inputs,
                                      .lengths = host_lengths,
                                      .lengths_at = r->lengths,
                                      .loss = r->loss,
                                      .seed = c->seed + step * UINT64_C(0x9e3779b97f4a7c15) +
                                              part * UINT64_C(0xc2b2ae3d27d4eb4f),
                                      .before = part == 0 ? NULL : r->sets[part],
                                      .after = c->bptt == 0 ? NULL : r->sets[part + 1]};
    *r->loss = 0;
    CHECK(ashlar_arena_zero(r->arena, ASHLAR_REGION_GRADIENTS, streams[1]) == ASHLAR_OK);
    CHECK(ashlar_model_run(r->model, ASHLAR_WALK_TRAIN, &batch, streams[1]) == ASHLAR_OK);
    CHECK(ashlar_optimizer_step(r->optimizer, ashlar_schedule_rate(&c->schedule, step), 1,
                                streams[1]) == ASHLAR_OK);
    wait_for(streams[1]);
    return *r->loss;
}

static double run_batch(loop *r, const ashlar_train_config *c, size_t step) {
    const size_t grid = r->batch.steps * BATCH * sizeof(int32_t);
    double nats = 0;
    const ashlar_batch_split_config whole = {.batch = BATCH};
    const ashlar_batch_split split = ashlar__batch_split_make(&whole, r->batch.steps);
    ashlar__batch_split_fill(&split, corpus, &r->batch, r->image);
    memcpy(r->inputs, r->image, grid);
    memcpy(r->targets, r->image + r->batch.steps * BATCH, grid);
    const size_t parts = (r->batch.steps + r->part - 1) / r->part;
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

static void open_loop(loop *r, const ashlar_train_config *c) {
    const ashlar_text_model_config model = model_config_of(c);
    const ashlar_model_batch shape = {.steps = 1, .batch = BATCH};
    ashlar_model_need need;
    r->part = c->bptt == 0 ? MAX_LENGTH : c->bptt;
    REQUIRE(ashlar_allocator_create(device, &allocator) == ASHLAR_OK);
    REQUIRE(ashlar__text_model_create(allocator, streams[1], &model, ASHLAR_REGIONS_ALL,
                                      &r->model) == ASHLAR_OK);
    r->arena = ashlar_model_arena(r->model);
    REQUIRE(ashlar_model_init(r->model, ASHLAR_INIT_ASHLAR, c->seed, streams[1]) == ASHLAR_OK);
    REQUIRE(ashlar_optimizer_create(r->arena, &c->optimizer, streams[1], &r->optimizer) ==
            ASHLAR_OK);
    REQUIRE(ashlar_model_get_need(r->model, ASHLAR_WALK_TRAIN, &shape, &need) == ASHLAR_OK);
    for (size_t i = 0; i <= MAX_LENGTH / r->part + 1 && i <= MAX_LENGTH; i++) {
        r->sets[i] = take(need.carried_bytes, streams[1]);
    }
    r->inputs = take_words(MAX_LENGTH * BATCH);
    r->targets = take_words(MAX_LENGTH * BATCH);
    r->lengths = take_words(BATCH);
    r->loss = (double *)(void *)take(sizeof *r->loss, streams[1]);
}

static void close_loop(loop *r) {
    for (size_t i = 0; i <= MAX_LENGTH / r->part + 1 && i <= MAX_LENGTH; i++) {
        give(r->sets[i]);
    }
    give(r->inputs);
    give(r->targets);
    give(r->lengths);
    give(r->loss);
    ashlar_optimizer_destroy(r->optimizer);
    ashlar_model_destroy(r->model);
    ashlar_allocator_destroy(allocator);
}

static void run_reference(reference *r, const ashlar_train_config *c) {
    const ashlar_batcher_config batcher_config = {
        .batch = c->batch, .max_steps = c->max_length, .seed = c->seed};
    loop l = {0};
    ashlar_batcher *batcher = NULL;
    REQUIRE(ashlar__batcher_create(corpus, &batcher_config, &batcher) == ASHLAR_OK);
    open_loop(&l, c);
    for (size_t i = 0; i < c->steps; i++) {
        l.batch = ashlar__batcher_next(batcher);
        r->losses[i] = run_batch(&l, c, i + 1);
        r->tokens[i] = (double)l.batch.tokens;
        r->lengths[i] = l.batch.steps;
        r->epochs[i] = l.batch.epoch;
    }
    r->parameters = ashlar_arena_get_info(l.arena).elements;
    r->max_steps = ashlar__batcher_max_steps(batcher);
    r->pieces = ashlar__batcher_piece_count(batcher);
    close_loop(&l);
    ashlar__batcher_destroy(batcher);
}

/* Of the last ten steps up to and with step number `last`, from 0, weighted by tokens. */
static double recent_mean(const reference *r, size_t last) {
    double nats = 0, tokens = 0;
    for (size_t i = last < 9 ? 0 : last - 9; i <= last; i++) {
        nats += r->losses[i] * r->tokens[i];
        tokens += r->tokens[i];
    }
    return nats / tokens;
}

static void check_shown(const reference *r, const shown *s, size_t steps) {
    double tokens = 0;
    CHECK_ZU(s->count, steps);
    for (size_t i = 0; i < s->count; i++) {
        const ashlar_train_progress *p = &s->steps[i];
        tokens += r->tokens[i];
        CHECK_ZU(p->step, i + 1);
        CHECK_ZU(p->steps, steps);
        CHECK_NEAR(p->loss, recent_mean(r, i), 0, 1e-13);
        CHECK(p->epoch == r->epochs[i]);
        CHECK_ZU(p->length, r->lengths[i]);
        CHECK(p->seconds > 0 && (i == 0 || p->seconds >= s->steps[i - 1].seconds));
        CHECK_NEAR(p->tokens_per_s, tokens / p->seconds, 0, 1e-12);
    }
}

static size_t distinct(const size_t *values, size_t count) {
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        size_t j = 0;
        while (values[j] != values[i]) {
            j++;
        }
        found += j == i;
    }
    return found;
}

CASE(losses_and_report_are_those_of_the_loop_written_out) {
    static reference r;
    enum { STEPS = 37 };
    const ashlar_train_config config = small_config(STEPS);
    REQUIRE(open_text("memory=256MiB"));
    run_reference(&r, &config);
    REQUIRE(train_once(&config) == ASHLAR_OK);
    check_shown(&r, &seen, STEPS);
    double tokens = 0;
    for (size_t i = 0; i < STEPS; i++) {
        tokens += r.tokens[i];
    }
    CHECK(report.loss_first == r.losses[0]); /* to the last bit */
    CHECK(report.loss_last == seen.steps[STEPS - 1].loss);
    CHECK_ZU(report.steps, STEPS);
    CHECK_ZU(report.parameters, r.parameters);
    CHECK_ZU(report.max_length, r.max_steps);
    CHECK_ZU(report.sequences, r.pieces);
    CHECK_ZU(report.lengths_distinct, distinct(r.lengths, STEPS));
    CHECK(report.lengths_distinct > 3);
    CHECK((double)report.tokens == tokens);
    CHECK(report.epochs == r.epochs[STEPS - 1]);
    CHECK(report.seconds == seen.steps[STEPS - 1].seconds);
    CHECK(report.tokens_per_s == seen.steps[STEPS - 1].tokens_per_s);
    CHECK(report.weights_contiguous);
    CHECK(report.device.kind == ASHLAR_DEVICE_SOFT && report.device.ordinal == 0);
    CHECK(strcmp(report.device.name, device->info.name) == 0);
}

/* Each step and part drops by its own seed, which its number and that of the training give. */
CASE(other_stacks_dropout_and_parts_are_those_of_the_loop_too) {
    static const char *const specs[] = {"memory=256MiB", "memory=256MiB,mode=adversarial,seed=5"};
    static reference r;
    for (int i = 0; i < 2 * ASHLAR_RNN_CELL_COUNT; i++) {
        ashlar_train_config config = small_config(12);
        config.cell = (ashlar_rnn_cell)(i % ASHLAR_RNN_CELL_COUNT);
        config.projection = config.cell == ASHLAR_RNN_LSTM ? 3 : 0;
        config.dropout = i % 3 == 2 ? 0 : 0.25;
        config.bptt = i < ASHLAR_RNN_CELL_COUNT ? 0 : 7;
        REQUIRE(open_text(specs[i % 2]));
        run_reference(&r, &config);
        REQUIRE(train_once(&config) == ASHLAR_OK);
        for (size_t step = 0; step < 12; step++) {
            CHECK(seen.steps[step].loss_step == r.losses[step]); /* to the last bit */
        }
        check_shown(&r, &seen, 12);
        CHECK_ZU(report.parameters, r.parameters);
        CHECK_ZU(report.warmed_length, config.bptt == 0 ? report.max_length : config.bptt);
        CHECK(report.max_length > 3 * 7);
        CHECK_ZU(report.training.management, 0);
        CHECK_ZU(report.step_memory.misses, 0);
        close_text();
    }
}

/* The plan decides where blocks lie, and nothing else. */
CASE(the_plan_changes_no_loss_and_serves_every_block) {
    enum { STEPS = 25 };
    static shown runs[3];
    ashlar_train_report reports[3];
    for (size_t i = 0; i < 3; i++) {
        ashlar_train_config config = small_config(STEPS);
        config.batch = 64;
        config.without_plan = i == 1;
        config.buckets = i == 2 ? 5 : 1;
        REQUIRE(open_text("memory=256MiB,mode=adversarial,seed=4"));
        REQUIRE(train(&config, &runs[i], &reports[i]) == ASHLAR_OK);
        close_text();
        const ashlar_step_memory *m = &reports[i].step_memory;
        CHECK(m->is_planned == (i != 1));
        CHECK_ZU(m->plan_count, i == 0 ? 1 : i == 1 ? 0 : 5);
        CHECK_ZU(m->misses, 0);
        CHECK_ZU(m->hits, i == 1 ? 0 : STEPS);
        CHECK_ZU(m->steps_replayed, i == 1 ? 0 : STEPS);
        CHECK_ZU(reports[i].training.management, 0);
        CHECK_ZU(reports[i].stats.served_planned > 0, i != 1);
        CHECK(m->bound_bytes > MIB && m->reserved_bytes >= m->bound_bytes);
    }
    for (size_t step = 0; step < STEPS; step++) {
        CHECK(runs[1].steps[step].loss == runs[0].steps[step].loss);
        CHECK(runs[2].steps[step].loss == runs[0].steps[step].loss);
    }
    const ashlar_step_memory *planned = &reports[0].step_memory, *not = &reports[1].step_memory;
    CHECK(planned->reserved_bytes <= planned->bound_bytes * 101 / 100);
    CHECK(planned->plan_bytes <= planned->reserved_bytes);
    CHECK_ZU(not ->plan_bytes, planned->plan_bytes);
    CHECK_NEAR(planned->gap, (double)planned->plan_bytes / (double)planned->bound_bytes - 1, 1e-15,
               0);
    CHECK(reports[0].stats.reserved_peak_bytes <= reports[1].stats.reserved_peak_bytes);
}

/* What leaks, from its fifth step on. */
typedef struct leak {
    ashlar_allocator *allocator;
    void *blocks[64];
    size_t count;
    unsigned found;
    uint64_t found_at;
} leak;

static void leak_in_each_step(void *context, const ashlar_train_progress *now) {
    leak *l = context;
    if (now->step >= 5) {
        CHECK(ashlar_alloc_tagged(l->allocator, 3000, ASHLAR_TAG_ACTIVATIONS, NULL,
                                  &l->blocks[l->count]) == ASHLAR_OK);
        l->count++;
    }
    if (now->found != 0) {
        CHECK(l->found == 0); /* told once */
        l->found = now->found;
        l->found_at = now->step;
        CHECK(now->growth[ASHLAR_TAG_ACTIVATIONS].is_growing);
    }
}

/* Step 5 is shown while step 6 is queued, so what it leaves is there from step 7 on. */
CASE_WITH(a_leak_on_purpose_is_told_with_its_tag_and_step, open_text("memory=256MiB")) {
    const ashlar_train_config config = small_config(40);
    static leak l;
    REQUIRE(open_trainer(&config) == ASHLAR_OK);
    l.allocator = ashlar__trainer_model(trainer).allocator;
    CHECK(ashlar__trainer_run(trainer, leak_in_each_step, &l, &report) == ASHLAR_OK);
    CHECK_ZU(l.found, 1u << ASHLAR_TAG_ACTIVATIONS);
    CHECK(l.found_at > 7 && l.found_at <= 7 + 24);
    const ashlar_tag_growth *growth = &report.growth[ASHLAR_TAG_ACTIVATIONS];
    CHECK(growth->is_growing);
    CHECK_ZU(growth->since_step, 7);
    CHECK_ZU(growth->growth_bytes, 34 * 3000);
    CHECK_ZU(growth->held_bytes - growth->first_bytes, 34 * 3000);
    for (size_t i = 0; i < l.count; i++) {
        CHECK(ashlar_free(l.allocator, l.blocks[i]) == ASHLAR_OK);
    }
}

RUN_CASES()
