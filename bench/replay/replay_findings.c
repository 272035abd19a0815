/* replay_findings.c - finds the steps of a log and the smallest device on which it can be replayed.
 */
#include "bench/replay/replay.h"

#include "allocator/base/host.h"

#define NO_MEMORY "%s: no host memory to replay its steps"

static ashlar_status take_marks(const ashlar_rmm_log *log, ashlar_steps *out) {
    bool is_open = false;
    size_t marks = 0;
    for (size_t i = 0; i < log->event_count; i++) {
        marks += log->events[i].action == ASHLAR_RMM_STEP;
    }
    ASHLAR_HOST_NEW(out->boundaries, marks + 2, NO_MEMORY, log->name);
    for (size_t i = 0; i < log->event_count; i++) {
        if (log->events[i].action == ASHLAR_RMM_STEP) {
            out->boundaries[out->count++] = i;
            is_open = false;
        }
        is_open = is_open || log->events[i].action == ASHLAR_RMM_ALLOCATE;
    }
    out->boundaries[out->count] = log->event_count;
    out->count -= marks > 0 && !is_open;
    return ASHLAR_OK;
}

/* Make each pass one step, with the frees of blocks that the log leaves live. */
static void take_whole_log(const ashlar_rmm_log *log, ashlar_replay_plan *plan) {
    plan->steps.boundaries[0] = 0;
    plan->steps.boundaries[1] = log->closed_count;
    plan->steps.count = 1;
    plan->is_whole_log = true;
    plan->passes = plan->passes < 2 ? 2 : plan->passes;
}

static ashlar_status choose_thread(const ashlar_rmm_log *log, ashlar_replay_plan *plan) {
    const ashlar_rmm_event *events = log->events;
    const size_t *boundaries = plan->steps.boundaries;
    size_t *counts;
    ASHLAR_HOST_NEW(counts, log->thread_count, NO_MEMORY, log->name);
    for (size_t i = boundaries[0]; i < boundaries[plan->steps.count]; i++) {
        const bool is_allocation = events[i].action == ASHLAR_RMM_ALLOCATE;
        counts[events[i].thread] += is_allocation;
        plan->step_allocations += is_allocation && i < boundaries[1];
    }
    for (size_t thread = 1; thread < log->thread_count; thread++) {
        plan->thread = counts[thread] > counts[plan->thread] ? thread : plan->thread;
    }
    ashlar__host_free(counts);
    for (size_t i = boundaries[0]; i < boundaries[plan->steps.count]; i++) {
        if (events[i].action == ASHLAR_RMM_ALLOCATE && events[i].thread == plan->thread) {
            plan->stream = events[i].stream;
            break;
        }
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__replay_plan_init(const ashlar_rmm_log *log, size_t passes,
                                       ashlar_replay_plan *out) {
    ashlar_replay_plan plan = {.passes = passes};
    ashlar_status status = take_marks(log, &plan.steps);
    if (status == ASHLAR_OK && plan.steps.count < 2) {
        take_whole_log(log, &plan);
    }
    ASHLAR_THEN(status, choose_thread(log, &plan));
    if (status != ASHLAR_OK) {
        ashlar__replay_plan_finish(&plan);
        return status;
    }
    *out = plan;
    return ASHLAR_OK;
}

void ashlar__replay_plan_finish(ashlar_replay_plan *plan) {
    ashlar__host_free(plan->steps.boundaries);
    *plan = (ashlar_replay_plan){0};
}

static ashlar_status try_capacity(const ashlar_rmm_log *log, const ashlar_replay_config *config,
                                  size_t steps, bool *passes) {
    ashlar_replay_config smaller = *config;
    ashlar_replay_result result;
    smaller.memory_bytes = steps * ASHLAR_REPLAY_GRAIN_BYTES;
    smaller.stops_at_a_failure = true;
    smaller.addresses = NULL; /* addresses stay those of the run that gave `result` */
    smaller.reserved = NULL;
    const ashlar_status status = ashlar__replay_run(log, &smaller, &result);
    *passes = status == ASHLAR_OK;
    return status == ASHLAR_ENOMEM ? ASHLAR_OK : status;
}

ashlar_status ashlar__replay_find_capacity(const ashlar_rmm_log *log,
                                           const ashlar_replay_config *config,
                                           const ashlar_replay_result *result, size_t *capacity) {
    const size_t step = ASHLAR_REPLAY_GRAIN_BYTES;
    /* A device of `fails` cannot hold the peak of live bytes; one of `passes` has passed. */
    size_t fails = result->peak_live == 0 ? 0 : (result->peak_live - 1) / step;
    size_t passes = config->memory_bytes / step;
    /* Try the peak of reserved bytes first: mostly it is enough, and nearer to the result. */
    size_t middle = (result->peak_reserved + step - 1) / step;
    while (passes - fails > 1) {
        bool has_passed;
        if (middle <= fails || middle >= passes) {
            middle = fails + (passes - fails) / 2;
        }
        ASHLAR_TRY(try_capacity(log, config, middle, &has_passed));
        *(has_passed ? &passes : &fails) = middle;
    }
    *capacity = passes * step;
    return ASHLAR_OK;
}
