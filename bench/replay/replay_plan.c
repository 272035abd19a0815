/* replay_plan.c - finds a log's steps for a replay on a plan, and reports the outcome. */
#include "bench/replay/replay_plan.h"

#include <math.h>
#include <string.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"

static ashlar_status fail_memory(const ashlar_rmm_log *log) {
    return ashlar__fail(ASHLAR_EHOSTMEM, "%s: no host memory to replay its steps", log->name);
}

/* ---- a log done twice ---- */

static bool reserve_twice(const ashlar_rmm_log *log, ashlar_rmm_log *twice) {
    const size_t name_bytes = strlen(log->name) + 1;
    /* Beside the log's own events, at most as many frees as it has allocations. */
    twice->event_capacity = 2 * (log->event_count + log->block_count);
    twice->events = ashlar__host_calloc(twice->event_capacity, sizeof *twice->events);
    twice->name = ashlar__host_calloc(name_bytes, 1);
    if (twice->events == NULL || twice->name == NULL) {
        return false;
    }
    memcpy(twice->name, log->name, name_bytes);
    return true;
}

/* Free what is live at the log's end, each block on its thread and stream. `is_live`:
 * [block_count]. */
static void append_frees(const ashlar_rmm_log *log, const bool *is_live, ashlar_rmm_log *twice) {
    const size_t last = log->events[log->event_count - 1].line;
    for (size_t i = 0; i < log->event_count; i++) {
        const ashlar_rmm_event *event = &log->events[i];
        if (event->action == ASHLAR_RMM_ALLOCATE && is_live[event->block]) {
            ashlar_rmm_event *end = &twice->events[twice->event_count++];
            *end = *event;
            end->action = ASHLAR_RMM_FREE;
            end->line = last;
            end->bytes = 0;
        }
    }
}

/* Append the events of `twice` once more, with other blocks. */
static void append_again(ashlar_rmm_log *twice) {
    const size_t count = twice->event_count;
    for (size_t i = 0; i < count; i++) {
        ashlar_rmm_event *event = &twice->events[twice->event_count++];
        *event = twice->events[i];
        event->block += twice->block_count;
    }
    twice->block_count *= 2;
    twice->recorded_failures *= 2;
}

static ashlar_status make_twice(const ashlar_rmm_log *log, ashlar_rmm_log **out) {
    bool *is_live = ashlar__host_calloc(log->block_count + 1, sizeof *is_live);
    ashlar_rmm_log *twice = ashlar__host_calloc(1, sizeof *twice);
    if (is_live == NULL || twice == NULL || !reserve_twice(log, twice)) {
        ashlar__host_free(is_live);
        ashlar__rmm_log_free(twice);
        return fail_memory(log);
    }
    twice->block_count = log->block_count;
    twice->thread_count = log->thread_count;
    twice->stream_count = log->stream_count;
    twice->recorded_failures = log->recorded_failures;
    for (size_t i = 0; i < log->event_count; i++) {
        const ashlar_rmm_event *event = &log->events[i];
        if (event->action == ASHLAR_RMM_ALLOCATE || event->action == ASHLAR_RMM_FREE) {
            is_live[event->block] = event->action == ASHLAR_RMM_ALLOCATE;
        }
        twice->events[twice->event_count++] = *event;
    }
    append_frees(log, is_live, twice);
    append_again(twice);
    ashlar__host_free(is_live);
    *out = twice;
    return ASHLAR_OK;
}

/* The log is one step, and that is done twice. */
static ashlar_status repeat(const ashlar_rmm_log *log, ashlar_replay_plan *plan) {
    size_t *boundaries = ashlar__host_calloc(3, sizeof *boundaries);
    const ashlar_status status =
        boundaries == NULL ? fail_memory(log) : make_twice(log, &plan->twice);
    if (status != ASHLAR_OK) {
        ashlar__host_free(boundaries);
        return status;
    }
    plan->log = plan->twice;
    boundaries[1] = plan->twice->event_count / 2;
    boundaries[2] = plan->twice->event_count;
    ashlar__steps_finish(&plan->steps);
    plan->steps = (ashlar_steps){.boundaries = boundaries, .count = 2};
    return ASHLAR_OK;
}

/* ---- whose steps ---- */

static ashlar_status choose_thread(ashlar_replay_plan *plan) {
    const ashlar_rmm_event *events = plan->log->events;
    const size_t *boundaries = plan->steps.boundaries;
    size_t *counts = ashlar__host_calloc(plan->log->thread_count, sizeof *counts);
    if (counts == NULL) {
        return fail_memory(plan->log);
    }
    for (size_t i = boundaries[0]; i < boundaries[plan->steps.count]; i++) {
        const bool is_allocation = events[i].action == ASHLAR_RMM_ALLOCATE;
        counts[events[i].thread] += is_allocation;
        plan->step_allocations += is_allocation && i < boundaries[1];
    }
    for (size_t thread = 1; thread < plan->log->thread_count; thread++) {
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

ashlar_status ashlar__replay_plan_init(const ashlar_rmm_log *log, ashlar_replay_plan *out) {
    ashlar_replay_plan plan = {.log = log};
    ashlar_status status = ashlar__steps_find(log, &plan.steps);
    if (status == ASHLAR_OK && plan.steps.count < 2) {
        status = repeat(log, &plan);
    }
    if (status == ASHLAR_OK) {
        status = choose_thread(&plan);
    }
    if (status != ASHLAR_OK) {
        ashlar__replay_plan_finish(&plan);
        return status;
    }
    *out = plan;
    return ASHLAR_OK;
}

void ashlar__replay_plan_finish(ashlar_replay_plan *plan) {
    ashlar__steps_finish(&plan->steps);
    ashlar__rmm_log_free(plan->twice);
    *plan = (ashlar_replay_plan){0};
}

/* ---- what comes of it ---- */

/* NaN where nothing was planned. */
static double gap_of(const ashlar_plan_stats *stats) {
    return stats->bound_bytes == 0 ? NAN
                                   : (double)stats->plan_bytes / (double)stats->bound_bytes - 1;
}

void ashlar__replay_plan_print(FILE *out, const ashlar_replay_plan *plan,
                               const ashlar_plan_stats *stats) {
    const double mib = 1 << 20;
    fprintf(out, "  %zu steps, the first of %zu allocations%s\n", plan->steps.count,
            plan->step_allocations,
            plan->twice != NULL ? ": the log has none, so all of it is one and done twice" : "");
    if (stats->bound_bytes == 0) {
        fprintf(out, "  plan: nothing that ends with its step was allocated in the first one\n");
        return;
    }
    fprintf(out, "  plan %.1f MiB, bound %.1f MiB, gap %.3f %%\n", (double)stats->plan_bytes / mib,
            (double)stats->bound_bytes / mib, 100 * gap_of(stats));
    fprintf(out, "  plan hits %llu, misses %llu, not planned %llu\n",
            (unsigned long long)stats->hits, (unsigned long long)ashlar_plan_miss_total(stats),
            (unsigned long long)stats->unplanned);
    for (int i = 0; i < ASHLAR_PLAN_MISS_COUNT; i++) {
        if (stats->misses[i] > 0) {
            fprintf(out, "    missed %llu: %s\n", (unsigned long long)stats->misses[i],
                    ashlar_plan_miss_text((ashlar_plan_miss)i));
        }
    }
}

void ashlar__replay_plan_put(ashlar_json_writer *w, const ashlar_replay_plan *plan,
                             const ashlar_plan_stats *stats) {
    ashlar__json_add_uint64(w, "steps", plan->steps.count);
    ashlar__json_add_uint64(w, "step_allocations", plan->step_allocations);
    ashlar__json_add_bool(w, "is_log_repeated", plan->twice != NULL);
    ashlar__json_add_uint64(w, "plan_bytes", stats->plan_bytes);
    ashlar__json_add_uint64(w, "bound_bytes", stats->bound_bytes);
    ashlar__json_add_double(w, "gap", gap_of(stats));
    ashlar__json_add_uint64(w, "plan_hits", stats->hits);
    ashlar__json_add_uint64(w, "plan_misses", ashlar_plan_miss_total(stats));
    ashlar__json_put_key(w, "plan_misses_by_reason");
    ashlar__json_open_object(w);
    for (int i = 0; i < ASHLAR_PLAN_MISS_COUNT; i++) {
        ashlar__json_add_uint64(w, ashlar_plan_miss_text((ashlar_plan_miss)i), stats->misses[i]);
    }
    ashlar__json_close_object(w);
    ashlar__json_add_uint64(w, "plan_unplanned", stats->unplanned);
}
