/* train_step.c - one step of a training, queued on its stream, and what came of it. */
#include "rnn/train/train_impl.h"

#include "allocator/base/error.h"

/* Odd numbers, so that each of 2^64 steps has a seed of its own, far from other trainings'. */
static const uint64_t STEP_STRIDE = UINT64_C(0x9e3779b97f4a7c15);
static const uint64_t PART_STRIDE = UINT64_C(0xc2b2ae3d27d4eb4f);

/* Every back end adds gradients, and losses, to what is there. */
static ashlar_status clear_sums(ashlar_trainer *t, size_t part, size_t parts) {
    ASHLAR_TRY(part > 0
                   ? ASHLAR_OK
                   : ashlar_fill(t->device, t->losses, 0, parts * sizeof *t->losses, t->stream));
    return ashlar_arena_zero(t->task->arena, ASHLAR_REGION_GRADIENTS, t->stream);
}

/* From the batch's part to updated weights. */
static ashlar_status queue_part(ashlar_trainer *t, size_t step, size_t part) {
    const size_t buffer = ashlar__prefetch_buffer(step);
    const uint64_t seed = t->config.seed + step * STEP_STRIDE + part * PART_STRIDE;
    ASHLAR_TRY(clear_sums(t, part, t->prefetch.batches[buffer].parts));
    ASHLAR_TRY(t->task->table->step(t->task, buffer, part, seed, t->losses + part));
    const double rate = ashlar_schedule_rate(&t->config.schedule, step);
    return ashlar_optimizer_step(t->optimizer, rate, 1, t->stream);
}

/* The same on the plan of its length. */
static ashlar_status queue_on_plan(ashlar_trainer *t, size_t step, size_t part) {
    const size_t length = t->task->table->part(t->task, ashlar__prefetch_buffer(step), part).length;
    ashlar_status status =
        ashlar_step_begin(t->allocator, t->stream, ashlar__trainer_key(t, length));
    if (status != ASHLAR_OK) {
        return status;
    }
    status = queue_part(t, step, part);
    const ashlar_status ended = ashlar_step_end(t->allocator);
    return status == ASHLAR_OK ? ended : status;
}

static ashlar_train_outcome *outcome_of(const ashlar_trainer *t, size_t step) {
    return (ashlar_train_outcome *)(void *)((char *)t->outcomes +
                                            ashlar__prefetch_buffer(step) * t->outcome_bytes);
}

ashlar_status ashlar__train_queue_step(ashlar_trainer *t, size_t step) {
    ashlar_train_outcome *out = outcome_of(t, step);
    const size_t parts = t->prefetch.batches[ashlar__prefetch_buffer(step)].parts;
    ashlar_status status = ashlar__prefetch_begin_step(&t->prefetch, step);
    for (size_t part = 0; part < parts && status == ASHLAR_OK; part++) {
        status = t->config.without_plan ? queue_part(t, step, part) : queue_on_plan(t, step, part);
    }
    if (status == ASHLAR_OK) {
        status = ashlar_optimizer_copy_state_to_host(t->optimizer, &out->optimizer, t->stream);
    }
    if (status == ASHLAR_OK) {
        status = ashlar_copy_to_host(t->device, out->losses, t->losses, parts * sizeof *t->losses,
                                     t->stream);
    }
    return status == ASHLAR_OK ? ashlar__prefetch_end_step(&t->prefetch, step) : status;
}

const ashlar_optimizer_state *ashlar__train_outcome_of(const ashlar_trainer *t, size_t step) {
    return &outcome_of(t, step)->optimizer;
}

double ashlar__train_loss_of(const ashlar_trainer *t, size_t step) {
    const size_t buffer = ashlar__prefetch_buffer(step), parts = t->prefetch.batches[buffer].parts;
    const ashlar_train_outcome *out = outcome_of(t, step);
    double nats = 0;
    for (size_t part = 0; part < parts && parts > 1; part++) {
        nats += out->losses[part] * (double)t->task->table->part(t->task, buffer, part).tokens;
    }
    return parts > 1 ? nats / (double)t->prefetch.batches[buffer].tokens : out->losses[0];
}

ashlar_status ashlar__train_warm_step(void *user, size_t length) {
    ashlar_trainer *t = user;
    t->task->table->make_dummy(t->task, 0, length);
    ASHLAR_TRY(t->task->table->upload(t->task, 0, t->stream));
    ASHLAR_TRY(clear_sums(t, 0, 1));
    return t->task->table->step(t->task, 0, 0, 0, t->losses);
}

ashlar_status ashlar__train_dry_run(void *user, size_t length) {
    ashlar_trainer *t = user;
    return t->task->table->dry_run(t->task, length);
}
