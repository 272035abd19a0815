#include "train.h"

#include <math.h>

#include <ashlar/warmup.h>

#include "error.h"
#include "feed.h"
#include "host.h"
#include "program.h"
#include "train_file.h"

/* What the host reads back of a step: page-locked, one for each slot. */
typedef struct outcome {
    ashlar_optimizer_state optimizer;
    double losses[]; /* [parts] */
} outcome;

struct ashlar_trainer {
    ashlar_train_config config;
    ashlar_device *device;
    ashlar_driver_counts at_start;
    ashlar_task *task;
    ashlar_allocator *allocator;
    ashlar_stream stream;
    ashlar_feed feed;
    uint64_t points_before; /* the feed's, at the end of the last phase */
    ashlar_warmup_options warmup; /* lengths, and the keys of their steps */
    ashlar_optimizer *optimizer;
    double *losses; /* device, [max_parts] */
    void *outcomes; /* of both slots */
    size_t outcome_bytes;
    bool *seen_lengths;       /* [max length + 1] */
    ashlar_train_state state; /* after the last step that was waited for */
    ashlar_growth *growth;    /* of what is held between the steps */
};

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

/* Where losses are added up in device memory, and where they go in the host's. */
static ashlar_status take_results(ashlar_trainer *t) {
    const size_t losses_bytes = t->task->max_parts * sizeof *t->losses;
    void *losses = NULL;
    t->outcome_bytes = sizeof(outcome) + losses_bytes;
    ashlar_status status = ashlar_alloc_tagged(t->allocator, losses_bytes, ASHLAR_TAG_WORKSPACE,
                                               t->stream, &losses);
    t->losses = losses;
    if (status == ASHLAR_OK) {
        status = ashlar_device_host_alloc(t->device, ASHLAR_TASK_SLOTS * t->outcome_bytes,
                                          &t->outcomes);
    }
    return status;
}

static ashlar_status build_model(ashlar_trainer *t) {
    ashlar_status status = ashlar_growth_create(&t->growth);
    if (status == ASHLAR_OK) {
        status = ashlar_allocator_create(t->device, &t->allocator);
    }
    if (status == ASHLAR_OK) {
        ashlar_program_print_reports(t->allocator);
        status = ashlar_stream_create(t->device, &t->stream);
    }
    if (status == ASHLAR_OK) {
        status = t->task->table->open(t->task, t->allocator, t->stream,
                                      ashlar_optimizer_regions(&t->config.optimizer));
    }
    if (status == ASHLAR_OK && t->config.without_bias_decay) {
        status = spare_biases(t->task->arena);
    }
    if (status == ASHLAR_OK) {
        status = ashlar_optimizer_create(t->task->arena, &t->config.optimizer, t->stream,
                                         &t->optimizer);
    }
    if (status == ASHLAR_OK) {
        t->task->loss_scale = ashlar_optimizer_loss_scale_address(t->optimizer);
        status = take_results(t);
    }
    return status == ASHLAR_OK ? ashlar_feed_init(&t->feed, t->device, t->task, t->stream) : status;
}

static ashlar_train_parts parts_of(const ashlar_trainer *t) {
    return (ashlar_train_parts){&t->config, t->task, t->stream};
}

static ashlar_status build(ashlar_trainer *t) {
    ashlar_device_counts_read(t->device, &t->at_start);
    ashlar_status status = ashlar_schedule_check(&t->config.schedule);
    if (status != ASHLAR_OK) {
        return status;
    }
    const size_t lengths = t->task->max_length + 1;
    t->seen_lengths = ashlar_host_calloc(lengths, sizeof *t->seen_lengths);
    if (t->seen_lengths == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for %zu lengths", lengths);
    }
    status = build_model(t);
    if (status == ASHLAR_OK && t->config.resume_file != NULL) {
        const ashlar_train_parts parts = parts_of(t);
        status = ashlar_train_file_load(t->config.resume_file, &parts, &t->state);
        if (status == ASHLAR_OK) {
            status = ashlar_optimizer_write(t->optimizer, &t->state.optimizer, t->stream);
        }
    }
    return status;
}

ashlar_status ashlar_trainer_create(ashlar_device *device, ashlar_task *task,
                                    const ashlar_train_config *config, ashlar_trainer **out) {
    ashlar_trainer *t = ashlar_host_calloc(1, sizeof *t);
    if (t == NULL) {
        task->table->destroy(task);
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for a trainer");
    }
    t->config = *config;
    t->device = device;
    t->task = task;
    const ashlar_status status = build(t);
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
    ashlar_feed_finish(&t->feed); /* waits: page-locked memory was in use until now */
    ashlar_optimizer_destroy(t->optimizer);
    t->task->table->close(t->task);
    if (t->losses != NULL) {
        const ashlar_status unused = ashlar_free(t->allocator, t->losses);
        (void)unused; /* a block of this allocator, and nobody to tell */
    }
    ashlar_allocator_destroy(t->allocator); /* waits for the stream */
    ashlar_stream_destroy(t->device, t->stream);
    ashlar_device_host_free(t->device, t->outcomes);
    t->task->table->destroy(t->task);
    ashlar_host_free(t->seen_lengths);
    ashlar_growth_destroy(t->growth);
    ashlar_host_free(t);
}

ashlar_status ashlar_trainer_save(ashlar_trainer *t, const char *path) {
    const ashlar_train_parts parts = parts_of(t);
    return ashlar_train_file_save(path, &parts, &t->state);
}

ashlar_task *ashlar_trainer_task(ashlar_trainer *t) {
    return t->task;
}

ashlar_allocator *ashlar_trainer_allocator(ashlar_trainer *t) {
    return t->allocator;
}

uint64_t ashlar_trainer_key(const ashlar_trainer *t, size_t length) {
    return ashlar_warmup_key(&t->warmup, length);
}

/*
 * What was asked of the driver since *last, which moves on to now. Events of the feed are queued
 * like copies, and are counted as such; those of the allocator would be its own management.
 */
static ashlar_phase_calls end_phase(ashlar_trainer *t, ashlar_driver_counts *last) {
    const ashlar_driver_counts before = *last;
    const uint64_t points = t->feed.points - t->points_before;
    t->points_before = t->feed.points;
    ashlar_device_counts_read(t->device, last);
    return (ashlar_phase_calls){
        .management = last->memory - before.memory + last->order - before.order + last->query -
                      before.query - points,
        .work = last->work - before.work + points,
        .wait = last->wait - before.wait,
    };
}

/* --- a step --------------------------------------------------------------------------------- */

/* Odd numbers, so that each of 2^64 steps has a seed of its own, far from other trainings'. */
static const uint64_t STEP_STRIDE = UINT64_C(0x9e3779b97f4a7c15);
static const uint64_t PART_STRIDE = UINT64_C(0xc2b2ae3d27d4eb4f);

/* Every back end adds gradients, and losses, to what is there. */
static ashlar_status clear_sums(ashlar_trainer *t, size_t part, size_t parts) {
    const ashlar_status status =
        part > 0 ? ASHLAR_OK
                 : ashlar_fill(t->device, t->losses, 0, parts * sizeof *t->losses, t->stream);
    return status == ASHLAR_OK
               ? ashlar_arena_zero(t->task->arena, ASHLAR_REGION_GRADIENTS, t->stream)
               : status;
}

/* From the batch's part to updated weights. */
static ashlar_status queue_part(ashlar_trainer *t, size_t step, size_t part) {
    const size_t slot = ashlar_feed_slot(step);
    const uint64_t seed = t->config.seed + step * STEP_STRIDE + part * PART_STRIDE;
    ashlar_status status = clear_sums(t, part, t->feed.batches[slot].parts);
    if (status == ASHLAR_OK) {
        status = t->task->table->step(t->task, slot, part, seed, t->losses + part);
    }
    if (status == ASHLAR_OK) {
        const double rate = ashlar_schedule_rate(&t->config.schedule, step);
        status = ashlar_optimizer_step(t->optimizer, rate, 1, t->stream);
    }
    return status;
}

/* The same on the plan of its length. */
static ashlar_status queue_on_plan(ashlar_trainer *t, size_t step, size_t part) {
    const size_t length =
        t->task->table->part(t->task, ashlar_feed_slot(step), part).length;
    ashlar_status status =
        ashlar_step_begin(t->allocator, t->stream, ashlar_trainer_key(t, length));
    if (status != ASHLAR_OK) {
        return status;
    }
    status = queue_part(t, step, part);
    const ashlar_status ended = ashlar_step_end(t->allocator);
    return status == ASHLAR_OK ? ended : status;
}

static outcome *outcome_of(const ashlar_trainer *t, size_t step) {
    return (outcome *)(void *)((char *)t->outcomes + ashlar_feed_slot(step) * t->outcome_bytes);
}

/* One step on the batch that was drawn for it. Its outcome is there when it was waited for. */
static ashlar_status queue_step(ashlar_trainer *t, size_t step) {
    outcome *out = outcome_of(t, step);
    const size_t parts = t->feed.batches[ashlar_feed_slot(step)].parts;
    ashlar_status status = ashlar_feed_begin_step(&t->feed, step);
    for (size_t part = 0; part < parts && status == ASHLAR_OK; part++) {
        status = t->config.without_plan ? queue_part(t, step, part) : queue_on_plan(t, step, part);
    }
    if (status == ASHLAR_OK) {
        status = ashlar_optimizer_read(t->optimizer, &out->optimizer, t->stream);
    }
    if (status == ASHLAR_OK) {
        status = ashlar_copy_to_host(t->device, out->losses, t->losses, parts * sizeof *t->losses,
                                     t->stream);
    }
    return status == ASHLAR_OK ? ashlar_feed_end_step(&t->feed, step) : status;
}

/* The mean over the batch's tokens. */
static double loss_of(const ashlar_trainer *t, size_t step) {
    const size_t slot = ashlar_feed_slot(step), parts = t->feed.batches[slot].parts;
    const outcome *out = outcome_of(t, step);
    double nats = 0;
    for (size_t part = 0; part < parts && parts > 1; part++) {
        nats += out->losses[part] * (double)t->task->table->part(t->task, slot, part).tokens;
    }
    return parts > 1 ? nats / (double)t->feed.batches[slot].tokens : out->losses[0];
}

/* With loss scaling a gradient that is no number is a step to skip, not the end. */
static bool is_lost(const ashlar_trainer *t, double loss, const ashlar_optimizer_state *optimizer) {
    return !isfinite(loss) || (t->config.optimizer.loss_scale <= 0 && !isfinite(optimizer->norm));
}

/* --- the run -------------------------------------------------------------------------------- */

typedef struct run {
    ashlar_trainer *trainer;
    void (*show)(void *context, const ashlar_train_progress *);
    void *context;
    ashlar_train_report report;
    double start;
    uint64_t skipped; /* before this run */
    unsigned found;   /* tags that grow, not shown yet */
} run;

/* Of the last few steps, so that it does not jump with every batch. */
static double recent_loss(const ashlar_train_state *s) {
    double nats = 0, tokens = 0;
    for (size_t i = 0; i < ASHLAR_TRAIN_RECENT; i++) {
        nats += s->nats[i];
        tokens += s->tokens[i];
    }
    return nats / tokens;
}

/* Take one step into the state and the report. */
static void account(run *r, size_t step, double loss, const ashlar_task_batch *batch) {
    ashlar_trainer *t = r->trainer;
    ashlar_train_report *report = &r->report;
    const size_t recent = step % ASHLAR_TRAIN_RECENT;
    t->state.step = step;
    t->state.tokens[recent] = (double)batch->tokens;
    t->state.nats[recent] = loss * (double)batch->tokens;
    t->state.optimizer = outcome_of(t, step)->optimizer;
    report->steps_skipped = t->state.optimizer.skipped - r->skipped;
    report->loss_first = step == report->resumed + 1 ? loss : report->loss_first;
    report->loss_last = recent_loss(&t->state);
    report->tokens += batch->tokens;
    report->epochs = batch->epoch;
    report->lengths_distinct += !t->seen_lengths[batch->length];
    t->seen_lengths[batch->length] = true;
    report->seconds = ashlar_program_now_s() - r->start;
    report->tokens_per_s = (double)report->tokens / report->seconds;
}

/* Wait for a step, and look at what it was. */
static ashlar_status finish_step(run *r, size_t step) {
    ashlar_trainer *t = r->trainer;
    const ashlar_status status = ashlar_feed_wait(&t->feed, step);
    if (status != ASHLAR_OK) {
        return status;
    }
    const double loss = loss_of(t, step);
    if (is_lost(t, loss, &outcome_of(t, step)->optimizer)) {
        return ashlar_fail(ASHLAR_EFORMAT,
                           "step %zu: the loss is no number any more; use a smaller "
                           "--learning-rate",
                           step);
    }
    const ashlar_task_batch *batch = &t->feed.batches[ashlar_feed_slot(step)];
    account(r, step, loss, batch);
    if (r->show != NULL) {
        r->show(r->context, &(ashlar_train_progress){.step = step,
                                                     .steps = t->config.steps,
                                                     .resumed = r->report.resumed,
                                                     .loss = r->report.loss_last,
                                                     .loss_step = loss,
                                                     .epoch = batch->epoch,
                                                     .length = batch->length,
                                                     .tokens_per_s = r->report.tokens_per_s,
                                                     .seconds = r->report.seconds,
                                                     .found = r->found,
                                                     .growth = r->report.growth});
    }
    r->found = 0;
    return ASHLAR_OK;
}

/* The last step is left to whoever saves the end: it would be written twice. */
static bool is_save_due(const ashlar_trainer *t, size_t step) {
    const ashlar_train_config *c = &t->config;
    return c->save_file != NULL && c->save_every != 0 && step % c->save_every == 0 &&
           step != c->steps;
}

/* Behind a queued step: look at the one before, or where this one is to be saved, at both. */
static ashlar_status follow(run *r, size_t step) {
    ashlar_trainer *t = r->trainer;
    const bool is_due = is_save_due(t, step), is_last = step == t->config.steps;
    ashlar_status status = ASHLAR_OK;
    if (t->state.step + 1 < step) {
        status = finish_step(r, step - 1);
    }
    if (status == ASHLAR_OK && (is_due || is_last)) {
        status = finish_step(r, step);
    }
    return status == ASHLAR_OK && is_due ? ashlar_trainer_save(t, t->config.save_file) : status;
}

/* What is held now that all of a step is queued, and its buffers are given back. */
static ashlar_status watch_growth(run *r, size_t step) {
    ashlar_trainer *t = r->trainer;
    ashlar_stats stats;
    unsigned found = 0;
    ashlar_stats_read(t->allocator, &stats);
    const ashlar_status status = ashlar_growth_add(t->growth, step, &stats, &found);
    ashlar_growth_read(t->growth, r->report.growth);
    r->found |= found;
    return status;
}

static ashlar_status run_steps(run *r) {
    ashlar_trainer *t = r->trainer;
    const size_t first = t->state.step + 1;
    r->start = ashlar_program_now_s();
    r->skipped = t->state.optimizer.skipped;
    ashlar_status status = watch_growth(r, first - 1);
    for (size_t step = first; step <= t->config.steps && status == ASHLAR_OK; step++) {
        status = ashlar_feed_draw(&t->feed, step);
        if (status == ASHLAR_OK) {
            status = queue_step(t, step);
        }
        if (status == ASHLAR_OK) {
            status = watch_growth(r, step);
        }
        if (status == ASHLAR_OK) {
            status = follow(r, step);
        }
    }
    return status;
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

/* --- the warm-up ---------------------------------------------------------------------------- */

/* Forward and backward of a made-up batch, without an update. */
static ashlar_status warm_step(void *user, size_t length) {
    ashlar_trainer *t = user;
    t->task->table->make_up(t->task, 0, length);
    ashlar_status status = t->task->table->upload(t->task, 0, t->stream);
    if (status == ASHLAR_OK) {
        status = clear_sums(t, 0, 1);
    }
    return status == ASHLAR_OK ? t->task->table->step(t->task, 0, 0, 0, t->losses) : status;
}

static ashlar_status rehearse(void *user, size_t length) {
    ashlar_trainer *t = user;
    return t->task->table->rehearse(t->task, length);
}

enum { FINGERPRINT_BYTES = 256 };

static ashlar_status warm_up(ashlar_trainer *t, ashlar_warmup_report *report) {
    char fingerprint[FINGERPRINT_BYTES];
    t->task->table->fingerprint(t->task, fingerprint, sizeof fingerprint);
    t->warmup = (ashlar_warmup_options){.stream = t->stream,
                                        .min_length = 1,
                                        .max_length = t->task->max_part_length,
                                        .bucket_count = t->config.buckets,
                                        .without_plan = t->config.without_plan,
                                        .step = warm_step,
                                        .rehearse = rehearse,
                                        .user = t,
                                        .plan_file = t->config.plan_file,
                                        .fingerprint = fingerprint};
    const ashlar_status status = ashlar_warmup(t->allocator, &t->warmup, report);
    t->warmup.fingerprint = NULL; /* it ends here */
    return status;
}

ashlar_status ashlar_trainer_run(ashlar_trainer *t,
                                 void (*show)(void *context, const ashlar_train_progress *),
                                 void *context, ashlar_train_report *out) {
    run r = {.trainer = t,
             .show = show,
             .context = context,
             .report = {.steps = t->config.steps - t->state.step,
                        .resumed = t->state.step,
                        .parameters = ashlar_arena_elements(t->task->arena),
                        .batch = t->task->batch,
                        .max_length = t->task->max_length,
                        .warmed_length = t->task->max_part_length,
                        .sequences = t->task->sequences,
                        .unit = t->task->unit}};
    ashlar_train_report *report = &r.report;
    ashlar_warmup_report warm;
    ashlar_driver_counts last = t->at_start;
    ashlar_device_info_read(t->device, &report->device);
    report->setup = end_phase(t, &last);
    ashlar_status status = warm_up(t, &warm);
    report->warmup = end_phase(t, &last);
    if (status == ASHLAR_OK) {
        status = run_steps(&r);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    report->training = end_phase(t, &last);
    ashlar_stats_read(t->allocator, &report->stats);
    report->step_memory = read_step_memory(t, &warm, &report->stats);
    if (t->task->table->savings != NULL) {
        status = t->task->table->savings(t->task, &report->step_bytes, report->savings,
                                         &report->savings_count);
    }
    report->weights_contiguous =
        ashlar_arena_check(t->task->arena) == ASHLAR_OK &&
        ashlar_arena_check_padding(t->task->arena, t->stream) == ASHLAR_OK;
    if (status == ASHLAR_OK) {
        *out = *report;
    }
    return status;
}
