/* replay_findings.c - finds the steps of a log and the smallest device on which it can be replayed;
 * reports on the plan and on where blocks were. */
#include "bench/replay/replay.h"

#include <math.h>

#include "allocator/base/host.h"

static const char *const miss_texts[] = {
#define X(name, text) text,
    ASHLAR_PLAN_MISS_MAP(X)
#undef X
};

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

static size_t step_total(const ashlar_replay_plan *plan) {
    return plan->steps.count * plan->passes;
}

/* By what share the plan is larger than the lower bound; NaN if nothing was planned. */
static double gap_of(const ashlar_plan_stats *stats) {
    return stats->bound_bytes == 0 ? NAN
                                   : (double)stats->plan_bytes / (double)stats->bound_bytes - 1;
}

void ashlar__replay_plan_print(FILE *out, const ashlar_replay_plan *plan,
                               const ashlar_plan_stats *stats) {
    const double mib = 1 << 20;
    fprintf(out, "  %zu steps, the first of %zu allocations%s\n", step_total(plan),
            plan->step_allocations,
            plan->is_whole_log ? ": the log has none, so each pass is one" : "");
    if (stats->bound_bytes == 0) {
        fprintf(out, "  plan: %s\n",
                stats->plans_left > 0
                    ? "left, since it would have taken more memory than it saved"
                    : "nothing that ends with its step was allocated in the first one");
        return;
    }
    fprintf(out, "  plan %.1f MiB, bound %.1f MiB, gap %.3f %%\n", (double)stats->plan_bytes / mib,
            (double)stats->bound_bytes / mib, 100 * gap_of(stats));
    fprintf(out, "  plan hits %llu, misses %llu, not planned %llu\n",
            (unsigned long long)stats->hits, (unsigned long long)stats->miss_count,
            (unsigned long long)stats->unplanned);
    for (int i = 0; i < ASHLAR_PLAN_MISS_COUNT; i++) {
        if (stats->misses[i] > 0) {
            fprintf(out, "    missed %llu: %s\n", (unsigned long long)stats->misses[i],
                    miss_texts[i]);
        }
    }
}

void ashlar__replay_plan_put(ashlar_json_writer *w, const ashlar_replay_plan *plan,
                             const ashlar_plan_stats *stats) {
    ashlar__json_add_uint64(w, "steps", step_total(plan));
    ashlar__json_add_uint64(w, "step_allocations", plan->step_allocations);
    ashlar__json_add_bool(w, "is_log_repeated", plan->is_whole_log);
    ashlar__json_add_uint64(w, "plan_bytes", stats->plan_bytes);
    ashlar__json_add_uint64(w, "bound_bytes", stats->bound_bytes);
    ashlar__json_add_double(w, "gap", gap_of(stats));
    ashlar__json_add_uint64(w, "plan_hits", stats->hits);
    ashlar__json_add_uint64(w, "plan_misses", stats->miss_count);
    ashlar__json_put_key(w, "plan_misses_by_reason");
    ashlar__json_open_object(w);
    for (int i = 0; i < ASHLAR_PLAN_MISS_COUNT; i++) {
        ashlar__json_add_uint64(w, miss_texts[i], stats->misses[i]);
    }
    ashlar__json_close_object(w);
    ashlar__json_add_uint64(w, "plan_unplanned", stats->unplanned);
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

/* Put a row for each block, which is live from its allocation to its free or to the log's end. */
static void put_rows(ashlar_json_writer *w, const ashlar_rmm_log *log, const uintptr_t *addresses,
                     size_t *ends) {
    for (size_t i = 0; i < log->event_count; i++) {
        if (log->events[i].action == ASHLAR_RMM_FREE) {
            ends[log->events[i].block] = i;
        }
    }
    for (size_t i = 0; i < log->event_count; i++) {
        const ashlar_rmm_event *event = &log->events[i];
        if (event->action != ASHLAR_RMM_ALLOCATE || addresses[event->block] == 0) {
            continue;
        }
        const size_t end = ends[event->block];
        ashlar__json_open_row(w);
        ashlar__json_put_uint64(w, addresses[event->block]);
        ashlar__json_put_uint64(w, event->bytes);
        ashlar__json_put_uint64(w, i);
        ashlar__json_put_uint64(w, end != 0 ? end : log->event_count);
        ashlar__json_close_array(w);
    }
}

ashlar_status ashlar__replay_put_blocks(ashlar_json_writer *w, const ashlar_rmm_log *log,
                                        const uintptr_t *addresses) {
    static const char *const columns[] = {"address", "bytes", "begin", "end"};
    size_t *ends;
    ASHLAR_HOST_NEW(ends, log->block_count + 1, "%s: no host memory for its blocks", log->name);
    ashlar__json_add_string(w, "time", "event");
    ashlar__json_put_key(w, "blocks");
    ashlar__json_open_table(w, columns, sizeof columns / sizeof columns[0]);
    put_rows(w, log, addresses, ends);
    ashlar__json_close_table(w);
    ashlar__host_free(ends);
    return ASHLAR_OK;
}
