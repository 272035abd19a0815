/* replay_report.c - replays a log as it is asked to, and reports: figures, how the plan did, where
 * blocks were. */
#include "bench/replay/replay.h"

#include <math.h>

#include "allocator/base/host.h"

static const char *const miss_texts[] = {
#define X(name, text) text,
    ASHLAR_PLAN_MISS_MAP(X)
#undef X
};

static size_t step_total(const ashlar_replay_plan *plan) {
    return plan->steps.count * plan->passes;
}

/* By what share the plan is larger than the lower bound; NaN if nothing was planned. */
static double gap_of(const ashlar_plan_stats *stats) {
    return stats->bound_bytes == 0 ? NAN
                                   : (double)stats->plan_bytes / (double)stats->bound_bytes - 1;
}

static void print_plan(FILE *out, const ashlar_replay_plan *plan, const ashlar_plan_stats *stats) {
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
    fprintf(out, "  plan %.1f MiB, bound %.1f MiB, gap %.3f %%\n", ashlar__mib(stats->plan_bytes),
            ashlar__mib(stats->bound_bytes), 100 * gap_of(stats));
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

static void put_plan(ashlar_json_writer *w, const ashlar_replay_plan *plan,
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

void ashlar__replay_open_blocks(ashlar_json_writer *w, const char *time) {
    static const char *const columns[] = {"address", "bytes", "begin", "end"};
    ashlar__json_add_string(w, "time", time);
    ashlar__json_put_key(w, "blocks");
    ashlar__json_open_table(w, columns, sizeof columns / sizeof columns[0]);
}

void ashlar__replay_put_block(ashlar_json_writer *w, uint64_t address, uint64_t bytes,
                              uint64_t begin, uint64_t end) {
    ashlar__json_open_row(w);
    ashlar__json_put_uint64(w, address);
    ashlar__json_put_uint64(w, bytes);
    ashlar__json_put_uint64(w, begin);
    ashlar__json_put_uint64(w, end);
    ashlar__json_close_array(w);
}

/* Put a row for each block, which is live from its allocation to its free or to the log's end. */
static ashlar_status put_blocks(ashlar_json_writer *w, const ashlar_rmm_log *log,
                                const uintptr_t *addresses) {
    size_t *ends;
    ASHLAR_HOST_NEW(ends, log->block_count + 1, "%s: no host memory for its blocks", log->name);
    ashlar__replay_open_blocks(w, "event");
    for (size_t i = 0; i < log->event_count; i++) {
        if (log->events[i].action == ASHLAR_RMM_FREE) {
            ends[log->events[i].block] = i;
        }
    }
    for (size_t i = 0; i < log->event_count; i++) {
        const ashlar_rmm_event *event = &log->events[i];
        if (event->action == ASHLAR_RMM_ALLOCATE && addresses[event->block] != 0) {
            const size_t end = ends[event->block];
            ashlar__replay_put_block(w, addresses[event->block], event->bytes, i,
                                     end != 0 ? end : log->event_count);
        }
    }
    ashlar__json_close_table(w);
    ashlar__host_free(ends);
    return ASHLAR_OK;
}

/* A log and the outcome of its replay. */
typedef struct outcome {
    const ashlar_rmm_log *log;
    const ashlar_replay_config *config;
    ashlar_replay_result result;
    size_t capacity; /* bytes; 0: not asked for */
} outcome;

/* Print memory after the first two passes and the last, which shows growth from pass to pass. */
static void print_passes(FILE *out, const ashlar_replay_config *config) {
    const size_t passes = config->passes;
    fprintf(out, "  %zu passes; reserved after pass 1: %.0f MiB, 2: %.0f MiB", passes,
            ashlar__mib(config->reserved[0]), ashlar__mib(config->reserved[1]));
    if (passes > 2) {
        fprintf(out, ", %zu: %.0f MiB", passes, ashlar__mib(config->reserved[passes - 1]));
    }
    fprintf(out, "\n");
}

static void print_result(FILE *out, const outcome *o) {
    const ashlar_replay_result *r = &o->result;
    const ashlar_replay_plan *plan = o->config->plan;
    const double memory = ashlar__mib(o->config->memory_bytes);
    fprintf(out, "%s: %zu events, %zu allocations, %zu failed; threads %zu, streams %zu\n",
            o->log->name, o->log->event_count, r->allocations, r->failures, o->log->thread_count,
            o->log->stream_count);
    if (o->log->recorded_failures > 0) {
        const bool is_one = o->log->recorded_failures == 1;
        fprintf(out,
                "  %zu request%s failed in the log itself, and %s not made again: with %s at least "
                "%.1f MiB are needed\n",
                o->log->recorded_failures, is_one ? "" : "s", is_one ? "is" : "are",
                is_one ? "it" : "them", ashlar__mib(o->log->needed_bytes));
    }
    if (r->allocations == r->failures) {
        fprintf(out, "  nothing was allocated on a device of %.0f MiB\n", memory);
        return;
    }
    fprintf(out, "  peak live %.1f MiB, reserved %.1f MiB (%.3f x), of %.0f MiB\n",
            ashlar__mib(r->peak_live), ashlar__mib(r->peak_reserved),
            (double)r->peak_reserved / (double)r->peak_live, memory);
    if (o->config->passes > 1) {
        print_passes(out, o->config);
    }
    fprintf(out, "  hit rate %.4f, driver calls %llu\n", r->hit_rate,
            (unsigned long long)r->driver_calls);
    if (plan != NULL) {
        print_plan(out, plan, &r->plan);
    }
    if (o->capacity != 0) {
        fprintf(out, "  %s on a device of %.0f MiB and not with 2 MiB less%s\n",
                o->config->passes > 1 ? "all passes succeed" : "passes", ashlar__mib(o->capacity),
                o->log->recorded_failures > 0 ? ", but for what failed in the log" : "");
    }
}

static void put_passes(ashlar_json_writer *w, const ashlar_replay_config *config) {
    ashlar__json_add_uint64(w, "passes", config->passes);
    ashlar__json_put_key(w, "reserved_after_pass_bytes");
    ashlar__json_open_array(w);
    for (size_t i = 0; i < config->passes; i++) {
        ashlar__json_put_uint64(w, config->reserved[i]);
    }
    ashlar__json_close_array(w);
}

static void put_result(ashlar_json_writer *w, const outcome *o) {
    const ashlar_replay_result *r = &o->result;
    const ashlar_replay_plan *plan = o->config->plan;
    const ashlar_rmm_log *log = o->log;
    ashlar__json_open_document(w, "ashlar-replay/1");
    ashlar__json_add_string(w, "trace", log->name);
    ashlar__json_add_uint64(w, "memory_bytes", o->config->memory_bytes);
    ashlar__json_add_uint64(w, "events", log->event_count);
    ashlar__json_add_uint64(w, "allocations", r->allocations);
    ashlar__json_add_uint64(w, "threads", log->thread_count);
    ashlar__json_add_uint64(w, "streams", log->stream_count);
    ashlar__json_add_uint64(w, "recorded_failures", log->recorded_failures);
    ashlar__json_add_uint64(w, "failures", r->failures);
    ashlar__json_add_uint64(w, "live_peak_bytes", r->peak_live);
    ashlar__json_add_uint64(w, "reserved_peak_bytes", r->peak_reserved);
    put_passes(w, o->config);
    ashlar__json_add_uint64(w, "driver_calls", r->driver_calls);
    ashlar__json_add_double(w, "hit_rate", r->hit_rate);
    if (plan != NULL) {
        put_plan(w, plan, &r->plan);
    }
    if (o->capacity != 0) {
        ashlar__json_add_uint64(w, "capacity_bytes", o->capacity);
    }
}

/* Replay one log and write its figures. Returns ASHLAR_ENOMEM if allocations of the replay failed;
 * the figures are written even so. */
static ashlar_status replay_log(const ashlar_replay_job *job, const ashlar_rmm_log *log,
                                ashlar_replay_config *config, FILE *out, ashlar_json_writer *w) {
    outcome o = {.log = log, .config = config};
    ashlar_status status = ashlar__replay_run(log, config, &o.result);
    if (status == ASHLAR_OK && job->finds_capacity && o.result.failures == 0) {
        status = ashlar__replay_find_capacity(log, config, &o.result, &o.capacity);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    print_result(out, &o);
    put_result(w, &o);
    if (job->lists_blocks) {
        status = put_blocks(w, log, config->addresses);
    }
    ashlar__json_close_object(w);
    ASHLAR_TRY(status);
    return o.result.failures == 0 ? ASHLAR_OK : ashlar__fail(ASHLAR_ENOMEM, "%s", o.result.failure);
}

ashlar_status ashlar__replay_log_run(const ashlar_replay_job *job, const char *path, FILE *out,
                                     ashlar_json_writer *w) {
    ashlar_rmm_log *log = NULL;
    ashlar_replay_plan plan = {.passes = job->passes};
    ASHLAR_TRY(ashlar__rmm_log_read(path, &log));
    ashlar_status status =
        job->has_plan ? ashlar__replay_plan_init(log, job->passes, &plan) : ASHLAR_OK;
    if (status == ASHLAR_OK) {
        ashlar_replay_config config = {
            .calls = &ashlar__replay_calls_of_ashlar,
            .report = job->report,
            .memory_bytes = job->memory_bytes,
            .passes = plan.passes,
            .addresses = ashlar__host_calloc(log->block_count + 1, sizeof *config.addresses),
            .reserved = ashlar__host_calloc(plan.passes, sizeof *config.reserved),
            .plan = job->has_plan ? &plan : NULL,
        };
        status = config.addresses != NULL && config.reserved != NULL
                     ? replay_log(job, log, &config, out, w)
                     : ashlar__fail(ASHLAR_EHOSTMEM, "%s: no host memory to replay it", log->name);
        ashlar__host_free(config.addresses);
        ashlar__host_free(config.reserved);
    }
    ashlar__replay_plan_finish(&plan);
    ashlar__rmm_log_free(log);
    return status;
}
