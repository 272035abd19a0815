/* train.c - creates a trainer, runs its phases and reports on them. */
#include "rnn/train/train.h"

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "arena/reduce/ranks_impl.h"
#include "rnn/train/task_options.h"
#include "rnn/train/train_impl.h"

/* Exempt tensors of one dimension from weight decay. */
static ashlar_status spare_biases(ashlar_arena *arena) {
    const ashlar_tensor_options options = {.has_no_decay = true};
    for (size_t i = 0; i < ashlar_arena_tensor_count(arena); i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, i, &info);
        if (info.rank == 1) {
            ASHLAR_TRY(ashlar_arena_set_options(arena, i, &options));
        }
    }
    return ASHLAR_OK;
}

/* Take device memory for votes and losses, and page-locked memory for the steps' outcomes. */
static ashlar_status take_results(ashlar_trainer *t) {
    const size_t losses_bytes = t->task->max_parts * sizeof *t->losses;
    void *sums;
    t->outcome_bytes = sizeof(ashlar_train_outcome) + losses_bytes;
    ASHLAR_TRY(ashlar_alloc_tagged(t->allocator, sizeof *t->votes + losses_bytes,
                                   ASHLAR_TAG_WORKSPACE, t->stream, &sums));
    t->votes = sums;
    t->losses = t->votes + 1;
    return ashlar_device_host_alloc(t->device, ASHLAR_TASK_BUFFERS * t->outcome_bytes,
                                    &t->outcomes);
}

static ashlar_status build_model(ashlar_trainer *t) {
    ASHLAR_TRY(ashlar__leak_monitor_create(&t->growth));
    t->allocator = t->config.measured;
    if (t->allocator == NULL) {
        ASHLAR_TRY(ashlar_allocator_create(t->device, &t->allocator));
        ashlar_allocator_set_report(t->allocator, t->config.report, NULL);
    }
    ASHLAR_TRY(ashlar_stream_create(t->device, &t->stream));
    ASHLAR_TRY(ashlar__task_open(t->task, t->allocator, t->stream,
                                 ashlar_optimizer_regions(&t->config.optimizer)));
    if (t->config.without_bias_decay) {
        ASHLAR_TRY(spare_biases(t->task->arena));
    }
    ASHLAR_TRY(
        ashlar_optimizer_create(t->task->arena, &t->config.optimizer, t->stream, &t->optimizer));
    t->task->loss_scale = ashlar_optimizer_loss_scale_address(t->optimizer);
    ASHLAR_TRY(take_results(t));
    ASHLAR_TRY(ashlar__prefetch_init(&t->prefetch, t->device, t->task, t->stream));
    if (ashlar__train_pads(&t->config) && t->task->cannot_pad != NULL) {
        ashlar__step_fixed_refuse(t, "batches are not padded: ", t->task->cannot_pad);
        t->config.pads = false;
        t->config.graphs = false;
    }
    return ashlar__train_pads(&t->config) ? ashlar__step_fixed_open(t) : ASHLAR_OK;
}

/* Set the warm-up's options. Batches are padded to the ends of ranges, so padding needs ranges. */
static void set_ranges(ashlar_trainer *t) {
    const size_t longest = t->task->max_part_length;
    if (ashlar__train_pads(&t->config) && t->config.buckets == 0) {
        t->config.buckets = longest < ASHLAR_STEP_BUCKETS ? longest : ASHLAR_STEP_BUCKETS;
    }
    t->warmup = (ashlar_warmup_options){.min_length = 1,
                                        .max_length = longest,
                                        .length_range_count = t->config.buckets,
                                        .without_plan = t->config.without_plan,
                                        .step = ashlar__train_warm_step,
                                        .dry_run = ashlar__train_dry_run,
                                        .user = t};
}

static ashlar_status build(ashlar_trainer *t) {
    ashlar_device_get_counts(t->device, &t->at_start);
    ASHLAR_TRY(ashlar_schedule_check(&t->config.schedule));
    ASHLAR_TRY(ashlar__shards_check(&t->config));
    const size_t lengths = t->task->max_length + 1;
    ASHLAR_HOST_NEW(t->seen_lengths, lengths, "no host memory for %zu lengths", lengths);
    set_ranges(t);
    ASHLAR_FAIL_IF(t->config.without_warmup && ashlar__train_pads(&t->config), ASHLAR_EINVAL,
                   "train: padded batches need the warm-up");
    t->task->source.hooks = t->config.hooks;
    ASHLAR_TRY(build_model(t));
    const ashlar_train_context parts = {&t->config, t->task, t->stream};
    if (t->config.resume_file != NULL) {
        ASHLAR_TRY(ashlar__train_checkpoint_load(t->config.resume_file, &parts, &t->state));
        ASHLAR_TRY(
            ashlar_optimizer_copy_state_to_device(t->optimizer, &t->state.optimizer, t->stream));
    }
    if (!ashlar__shards_are_used(&t->config)) {
        return ASHLAR_OK;
    }
    t->sums.facts = t->config.ranks != NULL ? ashlar__train_checkpoint_facts(&parts) : 0;
    return ashlar__shard_sums_open(t);
}

ashlar_status ashlar__trainer_create(ashlar_device *device, ashlar_task *task,
                                     const ashlar_train_config *config, ashlar_trainer **out) {
    ashlar_trainer *t = ashlar__host_calloc(1, sizeof *t);
    if (t == NULL) {
        task->table->destroy(task);
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a trainer");
    }
    t->config = *config;
    t->device = device;
    t->task = task;
    ASHLAR_HAND_OUT(build(t), t, ashlar__trainer_destroy, out);
}

void ashlar__trainer_destroy(ashlar_trainer *t) {
    if (t == NULL) {
        return;
    }
    ashlar__prefetch_finish(&t->prefetch); /* waits: queued work uses page-locked memory */
    ashlar__step_fixed_close(t);
    ashlar__shard_sums_close(t);
    ashlar_optimizer_destroy(t->optimizer);
    ashlar__task_close(t->task);
    if (t->votes != NULL) { /* cannot fail: this allocator gave the block */
        ASHLAR_IGNORE(ashlar_free(t->allocator, t->votes));
    }
    if (t->config.measured == NULL) {
        ashlar_allocator_destroy(t->allocator); /* waits for the stream */
    } else if (t->stream != NULL) {
        ASHLAR_IGNORE(ashlar_allocator_forget_stream(t->allocator, t->stream));
    }
    ashlar_stream_destroy(t->device, t->stream);
    ashlar_device_host_free(t->device, t->outcomes);
    t->task->table->destroy(t->task);
    ashlar__host_free(t->seen_lengths);
    ashlar__host_free(t->buckets);
    ashlar__leak_monitor_destroy(t->growth);
    ashlar__host_free(t);
}

ashlar_status ashlar__trainer_save(ashlar_trainer *t, const char *path) {
    const ashlar_train_context parts = {&t->config, t->task, t->stream};
    return ashlar__train_checkpoint_save(path, &parts, &t->state);
}

ashlar_task *ashlar__trainer_task(ashlar_trainer *t) {
    return t->task;
}

ashlar_allocator *ashlar__trainer_allocator(ashlar_trainer *t) {
    return t->allocator;
}

uint64_t ashlar__trainer_key(const ashlar_trainer *t, size_t length) {
    return ashlar_warmup_key(&t->warmup, length);
}

ashlar_phase_calls ashlar__phase_calls(ashlar_device *device, ashlar_driver_counts *last) {
    const ashlar_driver_counts before = *last;
    ashlar_device_get_counts(device, last);
    return (ashlar_phase_calls){
        .management =
            last->memory - before.memory + last->order - before.order + last->query - before.query,
        .work = last->work - before.work,
        .wait = last->wait - before.wait,
    };
}

/* Calls for the events of the prefetch and of collectives count as work, since they are queued like
 * copies; those for the allocator's events count as management. */
static void end_phase(ashlar_trainer *t, ashlar_driver_counts *last, ashlar_phase_calls *calls) {
    const uint64_t all =
        t->prefetch.event_calls + (t->config.ranks != NULL ? t->config.ranks->event_calls : 0);
    const uint64_t event_calls = all - t->event_calls_before;
    *calls = ashlar__phase_calls(t->device, last);
    t->event_calls_before = all;
    calls->management -= event_calls;
    calls->work += event_calls;
}

static ashlar_status warm_up(ashlar_trainer *t, ashlar_warmup_report *report) {
    t->warmup.stream = t->stream;
    return ashlar_allocator_warmup(t->allocator, &t->warmup, report);
}

ashlar_status ashlar__trainer_measure(ashlar_trainer *t) {
    ashlar_warmup_report report;
    t->warmup.step = NULL;
    return warm_up(t, &report);
}

/* The steps' memory, and the plans' hits and misses since the warm-up that `warm` reports on. */
static ashlar_step_memory read_step_memory(const ashlar_trainer *t,
                                           const ashlar_warmup_report *warm,
                                           const ashlar_stats *stats) {
    ashlar_plan_stats plan;
    ashlar_plan_get_stats(t->allocator, &plan);
    if (!warm->is_planned) {
        return (ashlar_step_memory){.is_steady = warm->is_steady,
                                    .unsteady_because = warm->unsteady_because,
                                    .reserved_bytes = stats->reserved_bytes - stats->block_bytes,
                                    .bound_bytes = stats->live_peak_bytes - stats->live_bytes};
    }
    return (ashlar_step_memory){
        .is_planned = true,
        .is_steady = warm->is_steady,
        .unsteady_because = warm->unsteady_because,
        .plan_count = plan.plan_count,
        .reserved_bytes = plan.memory_bytes,
        .bound_bytes = plan.bound_bytes,
        .plan_bytes = plan.plan_bytes,
        .gap = warm->gap,
        .hits = plan.hits - warm->plan.hits,
        .misses = ashlar_plan_miss_total(&plan) - ashlar_plan_miss_total(&warm->plan),
        .steps_replayed = plan.steps_replayed - warm->plan.steps_replayed,
    };
}

/* The ranges of lengths that share a plan, newly allocated. */
static ashlar_status list_buckets(const ashlar_trainer *t, ashlar_warmup_range **out,
                                  size_t *count) {
    ashlar_warmup_range *list;
    ASHLAR_TRY(ashlar_warmup_list_ranges(t->allocator, &t->warmup, NULL, 0, count));
    ASHLAR_HOST_NEW(list, *count + 1, "no host memory for a list of %zu buckets", *count);
    ASHLAR_HAND_OUT(ashlar_warmup_list_ranges(t->allocator, &t->warmup, list, *count, count), list,
                    ashlar__host_free, out);
}

/* Turn the counts of the list, as they were after the warm-up, into what has run since. */
static ashlar_status count_in_buckets(ashlar_trainer *t) {
    ashlar_warmup_range *now = NULL;
    size_t count;
    ASHLAR_TRY(list_buckets(t, &now, &count));
    for (size_t i = 0; i < t->bucket_count && i < count; i++) {
        now[i].steps -= t->buckets[i].steps;
        now[i].calls -= t->buckets[i].calls;
        now[i].own_calls -= t->buckets[i].own_calls;
        t->buckets[i] = now[i];
    }
    ashlar__host_free(now);
    return ASHLAR_OK;
}

ashlar_status ashlar__trainer_run(ashlar_trainer *t, ashlar_train_show_fn show, void *context,
                                  ashlar_train_report *out) {
    ashlar_train_report report = {.steps = t->config.steps - t->state.step,
                                  .resumed = t->state.step,
                                  .parameters = ashlar_arena_elements(t->task->arena),
                                  .batch = t->task->batch,
                                  .max_length = t->task->max_length,
                                  .warmed_length = t->task->max_part_length,
                                  .sequences = t->task->sequences,
                                  .unit = t->task->unit};
    ashlar_warmup_report warm = {0};
    ashlar_driver_counts last = t->at_start;
    ashlar_device_get_info(t->device, &report.device);
    end_phase(t, &last, &report.setup);
    ASHLAR_TRY(t->config.without_warmup ? ASHLAR_OK : warm_up(t, &warm));
    if (ashlar__train_pads(&t->config)) {
        ASHLAR_TRY(ashlar__step_fixed_begin(t, warm.is_planned));
    }
    report.is_tf32 = t->config.allows_tf32 && t->config.dtype == ASHLAR_F32 &&
                     report.device.kind == ASHLAR_DEVICE_CUDA;
    report.warmed_count = t->warmed_count;
    report.warmed_least = t->warmed_least;
    ASHLAR_TRY(list_buckets(t, &t->buckets, &t->bucket_count));
    end_phase(t, &last, &report.warmup);
    ASHLAR_TRY(ashlar__train_loop(t, show, context, &report));
    end_phase(t, &last, &report.training);
    report.graphs = t->fixed.report;
    report.calls_per_step =
        (double)(report.training.management + report.training.work + report.training.wait) /
        (double)(report.steps > 0 ? report.steps : 1);
    ashlar_allocator_get_stats(t->allocator, &report.stats);
    report.step_memory = read_step_memory(t, &warm, &report.stats);
    ASHLAR_TRY(count_in_buckets(t));
    report.buckets = t->buckets;
    report.bucket_count = t->bucket_count;
    if (t->task->table->savings != NULL) {
        ASHLAR_TRY(t->task->table->savings(t->task, &report.step_bytes, report.savings,
                                           &report.savings_count));
    }
    report.weights_contiguous = ashlar_arena_check(t->task->arena) == ASHLAR_OK &&
                                ashlar_arena_check_padding(t->task->arena, t->stream) == ASHLAR_OK;
    *out = report;
    return ASHLAR_OK;
}
