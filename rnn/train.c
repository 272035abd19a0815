#include "train.h"

#include <math.h>
#include <stdio.h>

#include "error.h"
#include "host.h"
#include "model_warmup.h"
#include "program.h"
#include "train_file.h"

/* What the host reads back of a step. */
typedef struct outcome {
    ashlar_step_results results;
    ashlar_optimizer_state optimizer;
} outcome;

struct ashlar_trainer {
    ashlar_train_config config;
    ashlar_device *device;
    ashlar_driver_counts at_start;
    const ashlar_corpus *corpus;
    uint64_t text_sum; /* of it, where has_text_sum */
    bool has_text_sum;
    ashlar_batcher *batcher;
    ashlar_allocator *allocator;
    ashlar_stream stream;
    ashlar_model *model;
    ashlar_warmup_options warmup; /* lengths, and the keys of their steps */
    void *staging;                /* page-locked: inputs, targets, lengths of one batch */
    ashlar_batch batch;           /* pointers into staging */
    ashlar_optimizer *optimizer;
    ashlar_step_results *results; /* device */
    bool *seen_lengths;           /* [max steps + 1] */
    ashlar_train_state state;     /* after the last step */
};

/* One page-locked block for a batch of the largest shape. */
static ashlar_status take_staging(ashlar_trainer *t) {
    const size_t grid_bytes = ashlar_batcher_grid_bytes(t->batcher);
    const size_t lengths_bytes = t->config.batch * sizeof(int32_t);
    const ashlar_status status =
        ashlar_device_host_alloc(t->device, 2 * grid_bytes + lengths_bytes, &t->staging);
    if (status != ASHLAR_OK) {
        return status;
    }
    int32_t *values = t->staging;
    t->batch.inputs = values;
    t->batch.targets = values + grid_bytes / sizeof *values;
    t->batch.lengths = values + 2 * (grid_bytes / sizeof *values);
    return ASHLAR_OK;
}

/* No weight decay for tensors of one dimension. */
static ashlar_status spare_biases(ashlar_arena *arena) {
    const ashlar_tensor_options options = {.has_no_decay = true};
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < ashlar_arena_tensor_count(arena) && status == ASHLAR_OK; i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, i, &info);
        if (info.rank == 1) {
            status = ashlar_arena_set_options(arena, i, &options);
        }
    }
    return status;
}

static ashlar_status build_model(ashlar_trainer *t) {
    const ashlar_model_config model = {.classes = ASHLAR_BATCHER_SYMBOLS,
                                       .embedding = t->config.embedding,
                                       .hidden = t->config.hidden,
                                       .layers = t->config.layers,
                                       .cell = t->config.cell,
                                       .projection = t->config.projection,
                                       .dropout = t->config.dropout};
    ashlar_status status = ashlar_schedule_check(&t->config.schedule);
    if (status == ASHLAR_OK) {
        status = ashlar_allocator_create(t->device, &t->allocator);
    }
    if (status == ASHLAR_OK) {
        ashlar_program_print_reports(t->allocator);
        status = ashlar_stream_create(t->device, &t->stream);
    }
    if (status == ASHLAR_OK) {
        status = ashlar_model_create(t->allocator, t->stream, &model,
                                     ashlar_optimizer_regions(&t->config.optimizer), &t->model);
    }
    if (status == ASHLAR_OK && t->config.without_bias_decay) {
        status = spare_biases(t->model->arena);
    }
    if (status == ASHLAR_OK) {
        status = ashlar_model_init_weights(t->model, t->config.seed);
    }
    if (status == ASHLAR_OK) {
        status = ashlar_optimizer_create(t->model->arena, &t->config.optimizer, t->stream,
                                         &t->optimizer);
    }
    if (status == ASHLAR_OK) {
        t->model->loss_scale = ashlar_optimizer_loss_scale_address(t->optimizer);
    }
    if (status == ASHLAR_OK) {
        void *results = NULL;
        status = ashlar_alloc_tagged(t->allocator, sizeof *t->results, ASHLAR_TAG_WORKSPACE,
                                     t->stream, &results);
        t->results = results;
    }
    return status;
}

/* What a file of the training is made of. The text is read once, and only where there is a file. */
static ashlar_train_parts parts_of(ashlar_trainer *t) {
    if (!t->has_text_sum) {
        t->text_sum = ashlar_train_text_sum(t->corpus);
        t->has_text_sum = true;
    }
    return (ashlar_train_parts){&t->config, t->corpus, t->text_sum, t->batcher, t->model};
}

static ashlar_status build(ashlar_trainer *t, const ashlar_corpus *corpus) {
    const ashlar_batcher_config batcher = {
        .batch = t->config.batch, .max_steps = t->config.max_length, .seed = t->config.seed};
    ashlar_device_counts_read(t->device, &t->at_start);
    ashlar_status status = ashlar_batcher_create(corpus, &batcher, &t->batcher);
    if (status != ASHLAR_OK) {
        return status;
    }
    const size_t max_steps = ashlar_batcher_max_steps(t->batcher);
    t->seen_lengths = ashlar_host_calloc(max_steps + 1, sizeof *t->seen_lengths);
    if (t->seen_lengths == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for %zu lengths", max_steps);
    }
    status = take_staging(t);
    if (status == ASHLAR_OK) {
        status = build_model(t);
    }
    if (status == ASHLAR_OK && t->config.resume_file != NULL) {
        const ashlar_train_parts parts = parts_of(t);
        status = ashlar_train_file_load(t->config.resume_file, &parts, &t->state);
        if (status == ASHLAR_OK) {
            status = ashlar_optimizer_write(t->optimizer, &t->state.optimizer, t->stream);
        }
    }
    return status;
}

ashlar_status ashlar_trainer_create(ashlar_device *device, const ashlar_corpus *corpus,
                                    const ashlar_train_config *config, ashlar_trainer **out) {
    ashlar_trainer *t = ashlar_host_calloc(1, sizeof *t);
    if (t == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for a trainer");
    }
    t->config = *config;
    t->device = device;
    t->corpus = corpus;
    const ashlar_status status = build(t, corpus);
    if (status != ASHLAR_OK) {
        ashlar_trainer_destroy(t);
        return status;
    }
    *out = t;
    return ASHLAR_OK;
}

void ashlar_trainer_destroy(ashlar_trainer *t) {
    if (t == NULL) {
        return;
    }
    ashlar_optimizer_destroy(t->optimizer);
    ashlar_model_destroy(t->model);
    if (t->results != NULL) {
        const ashlar_status unused = ashlar_free(t->allocator, t->results);
        (void)unused; /* a block of this allocator, and nobody to tell */
    }
    ashlar_allocator_destroy(t->allocator); /* waits for the stream */
    ashlar_stream_destroy(t->device, t->stream);
    ashlar_device_host_free(t->device, t->staging);
    ashlar_batcher_destroy(t->batcher);
    ashlar_host_free(t->seen_lengths);
    ashlar_host_free(t);
}

ashlar_status ashlar_trainer_save(ashlar_trainer *t, const char *path) {
    const ashlar_train_parts parts = parts_of(t);
    return ashlar_train_file_save(path, &parts, &t->state);
}

ashlar_model *ashlar_trainer_model(ashlar_trainer *t) {
    return t->model;
}

/* What was asked of the driver since *last, which moves on to now. */
static ashlar_phase_calls end_phase(const ashlar_trainer *t, ashlar_driver_counts *last) {
    const ashlar_driver_counts before = *last;
    ashlar_device_counts_read(t->device, last);
    return (ashlar_phase_calls){
        .management = last->memory - before.memory + last->order - before.order + last->query -
                      before.query,
        .work = last->work - before.work,
        .wait = last->wait - before.wait,
    };
}

/* One step on the batch at hand, to updated weights and its results read back. */
static ashlar_status step_batch(ashlar_trainer *t, size_t step, outcome *out) {
    ashlar_step_sizes sizes;
    ashlar_status status = ashlar_model_sizes(t->model, t->batch.steps, t->config.batch, &sizes);
    if (status == ASHLAR_OK) {
        status = ashlar_model_step(t->model, &t->batch, t->config.batch, &sizes, t->results);
    }
    if (status == ASHLAR_OK) {
        const double rate = ashlar_schedule_rate(&t->config.schedule, step);
        status = ashlar_optimizer_step(t->optimizer, rate, 1, t->stream);
    }
    if (status == ASHLAR_OK) {
        status = ashlar_optimizer_read(t->optimizer, &out->optimizer, t->stream);
    }
    if (status == ASHLAR_OK) {
        status = ashlar_copy_to_host(t->device, &out->results, t->results, sizeof out->results,
                                     t->stream);
    }
    return status == ASHLAR_OK ? ashlar_stream_synchronize(t->device, t->stream) : status;
}

/* The same on the plan of its length. */
static ashlar_status step_on_plan(ashlar_trainer *t, size_t step, outcome *out) {
    const uint64_t key = ashlar_warmup_key(&t->warmup, t->batch.steps);
    ashlar_status status = ashlar_step_begin(t->allocator, t->stream, key);
    if (status != ASHLAR_OK) {
        return status;
    }
    status = step_batch(t, step, out);
    const ashlar_status ended = ashlar_step_end(t->allocator);
    return status == ASHLAR_OK ? ended : status;
}

/* With loss scaling a gradient that is no number is a step to skip, not the end. */
static bool is_lost(const ashlar_trainer *t, const outcome *out) {
    return !isfinite(out->results.loss) ||
           (t->config.optimizer.loss_scale <= 0 && !isfinite(out->optimizer.norm));
}

/* An odd number, so that each of 2^64 steps has a seed of its own, far from other trainings'. */
static const uint64_t STEP_STRIDE = UINT64_C(0x9e3779b97f4a7c15);

/* One step, from the text on. */
static ashlar_status run_step(ashlar_trainer *t, size_t step, outcome *out) {
    ashlar_batcher_next(t->batcher, &t->batch);
    t->model->dropout_seed = t->config.seed + step * STEP_STRIDE;
    const ashlar_status status =
        t->config.without_plan ? step_batch(t, step, out) : step_on_plan(t, step, out);
    if (status == ASHLAR_OK && is_lost(t, out)) {
        return ashlar_fail(ASHLAR_EFORMAT,
                           "step %zu: the loss is no number any more; use a smaller "
                           "--learning-rate",
                           step);
    }
    return status;
}

/* Of the last few steps, so that it does not jump with every batch. */
static double recent_loss(const ashlar_train_state *s) {
    double nats = 0, tokens = 0;
    for (size_t i = 0; i < ASHLAR_TRAIN_RECENT; i++) {
        nats += s->nats[i];
        tokens += s->tokens[i];
    }
    return nats / tokens;
}

/* Take one step into the report. */
static void account(ashlar_trainer *t, size_t step, double loss, ashlar_train_report *report) {
    const size_t slot = step % ASHLAR_TRAIN_RECENT;
    t->state.step = step;
    t->state.tokens[slot] = (double)t->batch.tokens;
    t->state.nats[slot] = loss * (double)t->batch.tokens;
    report->loss_first = step == report->resumed + 1 ? loss : report->loss_first;
    report->loss_last = recent_loss(&t->state);
    report->tokens += t->batch.tokens;
    report->epochs = t->batch.epoch;
    report->lengths_distinct += !t->seen_lengths[t->batch.steps];
    t->seen_lengths[t->batch.steps] = true;
}

/* The last step is left to whoever saves the end: it would be written twice. */
static ashlar_status save_now_and_then(ashlar_trainer *t) {
    const ashlar_train_config *c = &t->config;
    const bool is_due = c->save_file != NULL && c->save_every != 0 &&
                        t->state.step % c->save_every == 0 && t->state.step != c->steps;
    return is_due ? ashlar_trainer_save(t, c->save_file) : ASHLAR_OK;
}

static ashlar_status run_steps(ashlar_trainer *t,
                               void (*show)(void *context, const ashlar_train_progress *),
                               void *context, ashlar_train_report *report) {
    const double start = ashlar_program_now_s();
    const uint64_t skipped = t->state.optimizer.skipped; /* before this run */
    for (size_t step = report->resumed + 1; step <= t->config.steps; step++) {
        outcome step_outcome;
        ashlar_status status = run_step(t, step, &step_outcome);
        if (status != ASHLAR_OK) {
            return status;
        }
        t->state.optimizer = step_outcome.optimizer;
        report->steps_skipped = t->state.optimizer.skipped - skipped;
        account(t, step, step_outcome.results.loss, report);
        report->seconds = ashlar_program_now_s() - start;
        report->tokens_per_s = (double)report->tokens / report->seconds;
        const ashlar_train_progress progress = {
            .step = step,
            .steps = t->config.steps,
            .resumed = report->resumed,
            .loss = report->loss_last,
            .loss_step = step_outcome.results.loss,
            .epoch = report->epochs,
            .length = t->batch.steps,
            .tokens_per_s = report->tokens_per_s,
            .seconds = report->seconds,
        };
        if (show != NULL) {
            show(context, &progress);
        }
        status = save_now_and_then(t);
        if (status != ASHLAR_OK) {
            return status;
        }
    }
    return ASHLAR_OK;
}

/* `warm`: what the warm-up said. */
static ashlar_step_memory read_step_memory(const ashlar_trainer *t,
                                           const ashlar_warmup_report *warm,
                                           const ashlar_stats *stats) {
    ashlar_plan_stats plan;
    ashlar_plan_read(t->allocator, &plan);
    if (!warm->is_planned) {
        return (ashlar_step_memory){.reserved_bytes = stats->reserved_bytes - stats->block_bytes,
                                    .bound_bytes = stats->live_peak_bytes - stats->live_bytes};
    }
    return (ashlar_step_memory){
        .is_planned = true,
        .plan_count = plan.plan_count,
        .reserved_bytes = plan.region_bytes,
        .bound_bytes = plan.bound_bytes,
        .plan_bytes = plan.plan_bytes,
        .gap = warm->gap,
        .hits = plan.hits - warm->plan.hits,
        .misses = ashlar_plan_miss_total(&plan) - ashlar_plan_miss_total(&warm->plan),
        .steps_replayed = plan.steps_replayed - warm->plan.steps_replayed,
    };
}

enum { FINGERPRINT_BYTES = 256 };

/* What the sizes of a step's buffers depend on, beside the lengths. */
static void print_fingerprint(const ashlar_train_config *c, char text[static FINGERPRINT_BYTES]) {
    (void)snprintf(text, FINGERPRINT_BYTES,
                   "ashlar-train: batch %zu, cell %s, layers %zu, hidden %zu, projection %zu, "
                   "dropout %d, embedding %zu",
                   c->batch, ashlar_rnn_cell_name(c->cell), c->layers, c->hidden, c->projection,
                   c->dropout > 0, c->embedding);
}

ashlar_status ashlar_trainer_run(ashlar_trainer *t,
                                 void (*show)(void *context, const ashlar_train_progress *),
                                 void *context, ashlar_train_report *out) {
    const size_t max_steps = ashlar_batcher_max_steps(t->batcher);
    ashlar_train_report report = {
        .steps = t->config.steps - t->state.step,
        .resumed = t->state.step,
        .parameters = ashlar_arena_elements(t->model->arena),
        .max_length = max_steps,
        .sequences = ashlar_batcher_piece_count(t->batcher),
    };
    ashlar_warmup_report warm;
    ashlar_driver_counts last = t->at_start;
    ashlar_device_info_read(t->device, &report.device);
    report.setup = end_phase(t, &last);
    char fingerprint[FINGERPRINT_BYTES];
    print_fingerprint(&t->config, fingerprint);
    t->warmup = (ashlar_warmup_options){.stream = t->stream,
                                        .min_length = 1,
                                        .max_length = max_steps,
                                        .bucket_count = t->config.buckets,
                                        .without_plan = t->config.without_plan,
                                        .plan_file = t->config.plan_file,
                                        .fingerprint = fingerprint};
    ashlar_status status =
        ashlar_model_warmup(t->model, &t->warmup, t->config.batch, &t->batch, t->results, &warm);
    report.warmup = end_phase(t, &last);
    if (status == ASHLAR_OK) {
        status = run_steps(t, show, context, &report);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    report.training = end_phase(t, &last);
    ashlar_stats_read(t->allocator, &report.stats);
    report.step_memory = read_step_memory(t, &warm, &report.stats);
    report.weights_contiguous =
        ashlar_arena_check(t->model->arena) == ASHLAR_OK &&
        ashlar_arena_check_padding(t->model->arena, t->stream) == ASHLAR_OK;
    *out = report;
    return ASHLAR_OK;
}
