/* train.c - creates a trainer, runs its phases and reports on them. */
#include "rnn/train/train.h"

#include <math.h>

#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "rnn/train/train_impl.h"

/* Exempt tensors of one dimension from weight decay. */
static ashlar_status spare_biases(ashlar_arena *arena) {
    const ashlar_tensor_options options = {.has_no_decay = true};
    for (size_t i = 0; i < ashlar_arena_get_info(arena).tensor_count; i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, i, &info);
        if (info.rank == 1) {
            ASHLAR_TRY(ashlar_arena_set_options(arena, i, &options));
        }
    }
    return ASHLAR_OK;
}

/* Have Muon update the output layer's matrix element by element, as the embedding: a row of either
 * is a symbol's. */
static ashlar_status exempt_output(ashlar_arena *arena) {
    const ashlar_tensor_options options = {.is_elementwise = true};
    size_t tensor;
    ASHLAR_TRY(ashlar_arena_find(arena, "linear.weight", &tensor));
    return ashlar_arena_set_options(arena, tensor, &options);
}

/* What no optimizer adds, and gives back. */
static const unsigned without_state =
    ASHLAR_REGIONS_INFERENCE | ASHLAR_REGION_BIT(ASHLAR_REGION_GRADIENTS);

/* Take device memory for votes and losses, and page-locked memory for the steps' outcomes. */
static ashlar_status take_results(ashlar_trainer *t) {
    const size_t losses_bytes = t->batches.max_parts * sizeof *t->losses;
    void *sums;
    t->outcome_bytes = sizeof(ashlar_train_outcome) + losses_bytes;
    ASHLAR_TRY(ashlar_alloc_tagged(t->allocator, sizeof *t->votes + losses_bytes,
                                   ASHLAR_TAG_WORKSPACE, t->stream, &sums));
    t->votes = sums;
    t->losses = t->votes + 1;
    return ashlar_device_host_alloc(t->device, ASHLAR_BATCHES_BUFFERS * t->outcome_bytes,
                                    &t->outcomes);
}

static ashlar_text_model_config model_config(const ashlar_train_config *c) {
    return (ashlar_text_model_config){.classes = ASHLAR_BATCHER_SYMBOLS,
                                      .embedding = c->embedding,
                                      .hidden = c->hidden,
                                      .layers = c->layers,
                                      .cell = c->cell,
                                      .projection = c->projection,
                                      .dropout = c->dropout,
                                      .dtype = c->dtype,
                                      .algorithm = c->algorithm,
                                      .math = c->allows_tf32 ? ASHLAR_RNN_MATH_TF32
                                                             : ASHLAR_RNN_MATH_FMA};
}

/* The model with its weights, and the batches' memory. */
static ashlar_status open_model(ashlar_trainer *t) {
    const ashlar_train_config *c = &t->config;
    const ashlar_text_model_config config = model_config(c);
    ashlar_model_need need;
    ASHLAR_TRY(ashlar__text_model_create(t->allocator, t->stream, &config,
                                         c->has_memory ? without_state : ASHLAR_REGIONS_TRAINING,
                                         &t->model));
    t->arena = ashlar_model_arena(t->model);
    if (c->measured == NULL) {
        ASHLAR_TRY(ashlar_model_init(t->model, ASHLAR_INIT_ASHLAR, c->seed, t->stream));
    }
    const ashlar_model_batch shape = ashlar__batches_shape(&t->batches, 1);
    ASHLAR_TRY(ashlar_model_get_need(t->model, ASHLAR_WALK_TRAIN, &shape, &need));
    return ashlar__batches_take(&t->batches, t->allocator, need.carried_bytes, t->stream);
}

static ashlar_status build_model(ashlar_trainer *t) {
    t->allocator = t->config.measured;
    if (t->allocator == NULL) {
        ASHLAR_TRY(ashlar_allocator_create(t->device, &t->allocator));
        ashlar_allocator_set_report(t->allocator, t->config.report, NULL);
    }
    if (t->config.memory > 0) {
        ASHLAR_TRY(ashlar_allocator_set_limit(t->allocator, t->config.memory));
    }
    ASHLAR_TRY(ashlar_stream_create(t->device, &t->stream));
    ASHLAR_TRY(open_model(t));
    if (t->config.without_bias_decay) {
        ASHLAR_TRY(spare_biases(t->arena));
    }
    if (t->config.optimizer.kind == ASHLAR_OPTIMIZER_MUON) {
        ASHLAR_TRY(exempt_output(t->arena));
    }
    t->config.optimizer.state_on_host |=
        t->config.has_memory; /* which choose_memory() tries first */
    ASHLAR_TRY(ashlar_optimizer_create(t->arena, &t->config.optimizer, t->stream, &t->optimizer));
    ASHLAR_TRY(take_results(t));
    return ashlar__train_open_steps(t);
}

/* ---- in a given memory ---- */

enum { GRANULE_BYTES = 2 << 20 };

/* What the training takes for its whole life: what it has, and the sums of shards, which come later
 * since ranks compare their chunks first. */
static size_t lasting_bytes(const ashlar_trainer *t, const ashlar_stats *stats) {
    const size_t region = ashlar_arena_get_info(t->arena).region_bytes[ASHLAR_REGION_GRADIENTS];
    size_t bytes = (size_t)stats->reserved_bytes;
    for (size_t count = 1; ashlar__shards_are_used(&t->config) && count < t->batches.split.own;
         count *= 2) {
        bytes += (region / GRANULE_BYTES + 1) * GRANULE_BYTES;
    }
    return bytes;
}

/* Give the walks what the rest leaves, and cut the longest if it does not do with that as it is; so
 * the least memory is that with cuts. */
static ashlar_status fit_walks(ashlar_trainer *t) {
    ashlar_batches *const b = &t->batches;
    ashlar_stats stats;
    uint64_t bytes, least;
    ASHLAR_TRY(ashlar_stream_synchronize(t->device, t->stream));
    ASHLAR_TRY(ashlar_allocator_trim(t->allocator, 0)); /* what set-up took and gave back */
    ashlar_allocator_get_stats(t->allocator, &stats);
    const size_t lasting = lasting_bytes(t, &stats), limit = (size_t)stats.limit_bytes;
    const size_t room = limit > lasting ? (limit - lasting) / GRANULE_BYTES * GRANULE_BYTES : 0;
    b->memory = 0; /* so that all is told that the longest needs */
    ASHLAR_TRY(ashlar__train_block_bytes(t, b->max_part_length, b->count, b->chunk, &bytes));
    least = bytes;
    if (b->chunk == 0) {
        ashlar__batches_cut(b);
        ASHLAR_TRY(ashlar__train_block_bytes(t, b->max_part_length, b->count, b->chunk, &least));
        least = least < bytes ? least : bytes;
        b->chunk = bytes > room ? b->chunk : 0;
    }
    t->least_bytes = lasting + ashlar__round_up(least, GRANULE_BYTES);
    ASHLAR_FAIL_IF(least > room, ASHLAR_ENOMEM,
                   "--memory: this training takes at least %zu MiB, and may have %zu MiB",
                   t->least_bytes >> 20, limit >> 20);
    b->memory = room;
    return ASHLAR_OK;
}

/* The same with the optimizer's state here or there, and how long a part of the longest step takes.
 */
static ashlar_status try_state(ashlar_trainer *t, bool on_host, size_t chunk, double *seconds) {
    ashlar_model_tiers tiers;
    size_t state_bytes;
    if (t->config.optimizer.state_on_host != on_host) {
        ashlar_optimizer_destroy(t->optimizer);
        t->optimizer = NULL;
        t->config.optimizer.state_on_host = on_host;
        ASHLAR_TRY(ashlar_arena_drop(t->arena, ASHLAR_REGIONS_ALL & ~without_state));
        ASHLAR_TRY(
            ashlar_optimizer_create(t->arena, &t->config.optimizer, t->stream, &t->optimizer));
    }
    t->batches.chunk = chunk;
    ASHLAR_TRY(fit_walks(t));
    ASHLAR_TRY(ashlar__trainer_tiers(t, &tiers, &state_bytes));
    *seconds = tiers.seconds;
    return ASHLAR_OK;
}

/* On the host first, where it takes the least memory; on the device if that is not slower. */
static ashlar_status choose_memory(ashlar_trainer *t) {
    const size_t chunk = t->batches.chunk;
    double there, here;
    if (!t->config.has_memory) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(try_state(t, true, chunk, &there));
    const size_t least = t->least_bytes;
    const ashlar_status status = try_state(t, false, chunk, &here);
    if (status == ASHLAR_ENOMEM || (status == ASHLAR_OK && there < here)) {
        return try_state(t, true, chunk, &there);
    }
    t->least_bytes = least;
    return status;
}

ashlar_status ashlar__trainer_tiers(const ashlar_trainer *t, ashlar_model_tiers *out,
                                    size_t *state_bytes) {
    const ashlar_model_batch longest =
        ashlar__batches_shape(&t->batches, t->batches.max_part_length);
    *out = (ashlar_model_tiers){0};
    *state_bytes = 0;
    if (t->config.has_memory) {
        ASHLAR_TRY(ashlar_model_get_tiers(t->model, &longest, out));
        const double enough = out->seconds / out->time * (double)t->batches.micro;
        *state_bytes = ashlar_optimizer_get_info(t->optimizer).host_bytes;
        out->seconds =
            out->seconds * (double)t->batches.micro + (double)*state_bytes / out->copy_bytes;
        out->time = out->seconds / enough;
        out->least_bytes = t->least_bytes;
    }
    return ASHLAR_OK;
}

/* For the warm-up: forward and backward of a dummy batch, without an update. */
static ashlar_status warm_step(void *user, size_t length) {
    ashlar_trainer *t = user;
    t->report.warmed_count++;
    t->report.warmed_least = length;
    ashlar__batches_make_dummy(&t->batches, 0, length);
    ASHLAR_TRY(ashlar__batches_upload(&t->batches, t->device, 0, t->stream));
    ASHLAR_TRY(ashlar__train_clear_sums(t, 0, 1));
    return ashlar__shards_are_used(&t->config) ? ashlar__shard_sums_queue(t, 0, 0, 0, 1, t->losses)
                                               : ashlar__train_walk(t, 0, 0, 1, t->losses);
}

static ashlar_status build(ashlar_trainer *t, const ashlar_corpus *corpus) {
    t->last = ashlar_device_get_info(t->device).calls;
    if (isnan(ashlar_schedule_rate(&t->config.schedule, 1))) {
        return ASHLAR_EINVAL; /* the detail says why */
    }
    ASHLAR_TRY(ashlar__batches_init(&t->batches, corpus, &t->config));
    const size_t lengths = t->batches.max_length + 1;
    ASHLAR_HOST_NEW(t->seen_lengths, lengths, "no host memory for %zu lengths", lengths);
    ASHLAR_TRY(build_model(t));
    ASHLAR_TRY(choose_memory(t));
    t->warmup = (ashlar_warmup_options){.stream = t->stream,
                                        .min_length = 1,
                                        .max_length = t->batches.max_part_length,
                                        .length_range_count = t->batches.ranges,
                                        .without_plan = t->config.without_plan,
                                        .step = warm_step,
                                        .dry_run = ashlar__train_dry_run,
                                        .user = t};
    if (t->config.resume_file != NULL) {
        ASHLAR_TRY(ashlar__train_checkpoint_load(t->config.resume_file, t));
    }
    if (!ashlar__shards_are_used(&t->config)) {
        return ASHLAR_OK;
    }
    t->sums.facts = t->config.ranks != NULL ? ashlar__train_checkpoint_facts(t) : 0;
    return ashlar__shard_sums_open(t);
}

ashlar_status ashlar__trainer_create(ashlar_device *device, const ashlar_corpus *corpus,
                                     const ashlar_train_config *config, ashlar_trainer **out) {
    ashlar_trainer *t;
    ASHLAR_HOST_NEW(t, 1, "no host memory for a trainer");
    t->config = *config;
    t->device = device;
    ASHLAR_HAND_OUT(build(t, corpus), t, ashlar__trainer_destroy, out);
}

void ashlar__trainer_destroy(ashlar_trainer *t) {
    if (t == NULL) {
        return;
    }
    ashlar__train_close_steps(t); /* waits: queued work uses page-locked memory */
    if (t->allocator != NULL) {
        ashlar__shard_sums_close(t);
        ASHLAR_IGNORE(ashlar_free(t->allocator, t->votes)); /* cannot fail: it gave the block */
    }
    ashlar_optimizer_destroy(t->optimizer);
    ashlar_model_destroy(t->model);
    ashlar__batches_finish(&t->batches, t->allocator);
    if (t->config.measured == NULL) {
        ashlar_allocator_destroy(t->allocator); /* waits for the stream */
    } else if (t->stream != NULL) {
        ASHLAR_IGNORE(ashlar_allocator_forget_stream(t->allocator, t->stream));
    }
    ashlar_stream_destroy(t->device, t->stream);
    ashlar_device_host_free(t->device, t->outcomes);
    ashlar__host_free(t->seen_lengths);
    ashlar__host_free(t);
}

ashlar_sampled_model ashlar__trainer_model(const ashlar_trainer *t) {
    return (ashlar_sampled_model){t->model, model_config(&t->config), t->allocator, t->stream};
}

ashlar_phase_calls ashlar__phase_calls(ashlar_device *device, ashlar_driver_counts *last) {
    const ashlar_driver_counts before = *last;
    *last = ashlar_device_get_info(device).calls;
    return (ashlar_phase_calls){
        .management =
            last->memory - before.memory + last->order - before.order + last->query - before.query,
        .work = last->work - before.work,
        .wait = last->wait - before.wait,
    };
}

/* Calls for the events of steps and of collectives count as work, since they are queued like
 * copies; those for the allocator's events count as management. */
static void end_phase(ashlar_trainer *t, ashlar_phase_calls *calls) {
    const uint64_t all =
        t->event_calls + ashlar_model_event_calls(t->model) +
        ashlar_optimizer_get_info(t->optimizer).event_calls +
        (t->config.ranks != NULL ? ashlar_ranks_get_info(t->config.ranks).event_calls : 0);
    const uint64_t event_calls = all - t->event_calls_before;
    *calls = ashlar__phase_calls(t->device, &t->last);
    t->event_calls_before = all;
    calls->management -= event_calls;
    calls->work += event_calls;
}

ashlar_status ashlar__trainer_measure(ashlar_trainer *t) {
    ashlar_warmup_report report;
    t->warmup.step = NULL;
    return ashlar_allocator_warmup(t->allocator, &t->warmup, &report);
}

/* The steps' memory, and the plans' hits and misses since the warm-up that `warm` reports on. A
 * walk takes one block, of which its buffers fill plan_bytes; that is what the allocator plans. */
static ashlar_status read_step_memory(const ashlar_trainer *t, const ashlar_warmup_report *warm,
                                      const ashlar_stats *stats, ashlar_step_memory *out) {
    const ashlar_model_batch shape = ashlar__batches_shape(&t->batches, t->batches.max_part_length);
    ashlar_plan_stats plan;
    ashlar_model_need need;
    ASHLAR_TRY(ashlar_model_get_need(t->model, ASHLAR_WALK_TRAIN, &shape, &need));
    ashlar_plan_get_stats(t->allocator, &plan);
    *out = (ashlar_step_memory){
        .is_planned = warm->is_planned,
        .is_steady = warm->is_steady,
        .unsteady_because = warm->unsteady_because,
        .plan_count = plan.plan_count,
        .reserved_bytes =
            warm->is_planned ? plan.memory_bytes : stats->reserved_bytes - stats->block_bytes,
        .bound_bytes = need.bound_bytes,
        .plan_bytes = need.plan_bytes,
        .gap = (double)need.plan_bytes / (double)need.bound_bytes - 1,
        .hits = plan.hits - warm->plan.hits,
        .misses = plan.miss_count - warm->plan.miss_count,
        .steps_replayed = plan.steps_replayed - warm->plan.steps_replayed,
    };
    return ASHLAR_OK;
}

ashlar_status ashlar__train_block_bytes(const ashlar_trainer *t, size_t length, size_t count,
                                        size_t chunk, uint64_t *bytes) {
    ashlar_model_batch shape = ashlar__batches_shape(&t->batches, length);
    ashlar_model_need need;
    if (count != shape.batch || chunk != shape.chunk || length > t->batches.max_part_length) {
        shape.memory = 0; /* another training, in all that it needs */
    }
    shape.batch = count;
    shape.chunk = chunk;
    ASHLAR_TRY(ashlar_model_get_need(t->model, ASHLAR_WALK_TRAIN, &shape, &need));
    *bytes = need.plan_bytes;
    return ASHLAR_OK;
}

/* What the options that save memory save. */
static ashlar_status get_savings(ashlar_trainer *t) {
    const ashlar_batches *b = &t->batches;
    const size_t pieces = b->split.pieces, part = b->max_part_length;
    const ashlar_train_saving options[] = {{"accumulate", pieces == 1 ? 0 : pieces, 0},
                                           {"bptt", b->split.part, 0},
                                           {b->memory > 0 ? "memory" : "recompute", b->chunk, 0}};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        if (options[i].value != 0) {
            ashlar_train_saving *s = &t->report.savings[t->report.savings_count++];
            *s = options[i];
            ASHLAR_TRY(ashlar__train_block_bytes(t, i == 1 ? b->max_length : part,
                                                 i == 0 ? b->count * pieces : b->count,
                                                 i == 2 ? 0 : b->chunk, &s->bytes));
        }
    }
    return ASHLAR_OK;
}

ashlar_model_batch ashlar__trainer_longest(const ashlar_trainer *t) {
    return ashlar__batches_shape(&t->batches, t->longest_part);
}

ashlar_status ashlar__trainer_run(ashlar_trainer *t, ashlar_train_show_fn show, void *context,
                                  ashlar_train_report *out) {
    ashlar_train_report *const r = &t->report;
    ashlar_warmup_report warm;
    r->resumed = t->state.step;
    r->parameters = ashlar_arena_get_info(t->arena).elements;
    r->batch = t->batches.split.batch;
    r->max_length = t->batches.max_length;
    r->warmed_length = t->batches.max_part_length;
    r->sequences = ashlar__batcher_piece_count(t->batches.batcher);
    r->bptt = t->batches.split.part;
    r->recompute = t->batches.chunk;
    r->device = ashlar_device_get_info(t->device);
    r->is_tf32 = t->config.allows_tf32 && t->config.dtype == ASHLAR_F32 &&
                 r->device.kind == ASHLAR_DEVICE_CUDA;
    end_phase(t, &r->setup);
    ASHLAR_TRY(ashlar_allocator_warmup(t->allocator, &t->warmup, &warm));
    ASHLAR_TRY(ashlar__train_begin_steps(t, warm.is_planned));
    end_phase(t, &r->warmup);
    ASHLAR_TRY(ashlar__train_loop(t, show, context));
    end_phase(t, &r->training);
    r->calls_per_step =
        (double)(r->training.management + r->training.work + r->training.wait) / (double)r->steps;
    ashlar_allocator_get_stats(t->allocator, &r->stats);
    ASHLAR_TRY(read_step_memory(t, &warm, &r->stats, &r->step_memory));
    ASHLAR_TRY(get_savings(t));
    ASHLAR_TRY(ashlar__trainer_tiers(t, &r->tiers, &r->state_bytes));
    r->weights_contiguous = ashlar_arena_check(t->arena) == ASHLAR_OK &&
                            ashlar_arena_check_padding(t->arena, t->stream) == ASHLAR_OK;
    *out = *r;
    return ASHLAR_OK;
}
