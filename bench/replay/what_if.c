/* what_if.c - one table: a history in PyTorch's memory as recorded and by its rules, with other
 * settings, and in ashlar's. */
#include "bench/replay/what_if.h"

#include <string.h>

#include "allocator/base/host.h"
#include "allocator/base/parse.h"
#include "bench/replay/torch.h"

#define GRAIN_BYTES ((uint64_t)ASHLAR_REPLAY_GRAIN_BYTES)

/* More than any history of one device needs. */
#define UNLIMITED_BYTES ((size_t)1 << 40)

/* ---- a history as a log ---- */

static void put(ashlar_rmm_log *log, ashlar_rmm_action action, size_t line, size_t stream,
                size_t block, size_t bytes) {
    if (bytes > 0) {
        log->events[log->event_count++] = (ashlar_rmm_event){action, line, 0, stream, block, bytes};
    }
}

/* Turn the allocations of one device into a log, whose blocks have their numbers. A block's free is
 * where the program freed it. The caller frees log->events. */
static ashlar_status make_log(const ashlar_events *e, uint16_t device, ashlar_rmm_log *log) {
    *log = (ashlar_rmm_log){.name = (char *)(uintptr_t)e->name, /* not freed with it */
                            .event_capacity = 2 * e->allocation_count + 1,
                            .block_count = e->allocation_count,
                            .thread_count = 1,
                            .stream_count = e->stream_count};
    ASHLAR_HOST_NEW(log->events, log->event_capacity, "%s: no host memory to replay it", e->name);
    for (size_t i = 0; i < e->first.segment_count; i++) {
        const ashlar_event_segment *s = &e->first.segments[i];
        for (size_t k = s->first_block; k < s->first_block + s->block_count; k++) {
            const ashlar_event_block *b = &e->first.blocks[k];
            if (b->device == device && b->state == ASHLAR_BLOCK_ACTIVE) {
                put(log, ASHLAR_RMM_ALLOCATE, b->line, s->stream, b->allocation, b->requested);
            }
        }
    }
    for (size_t i = 0; i < e->event_count; i++) {
        const ashlar_history_event *event = &e->events[i];
        if (event->device != device || event->allocation == ASHLAR_EVENTS_NONE) {
            continue;
        }
        const ashlar_allocation *a = &e->allocations[event->allocation];
        if (event->action == ASHLAR_EVENT_ALLOC) {
            put(log, ASHLAR_RMM_ALLOCATE, event->line, event->stream, event->allocation, a->bytes);
        } else if (a->freed == i) {
            put(log, ASHLAR_RMM_FREE, event->line, event->stream, event->allocation, a->bytes);
        }
    }
    log->closed_count = log->event_count;
    return log->event_count > 0 ? ashlar__rmm_log_close(log) : ASHLAR_OK;
}

/* ---- rows ---- */

typedef struct row {
    const char *name;
    uint64_t reserved, driver_calls, unused; /* unused: reserved and not live, at the peak */
    uint64_t device_bytes;                   /* the smallest; 0: nobody knows */
} row;

typedef struct table {
    const ashlar_what_if *asked;
    ashlar_torch_settings given; /* those that it asks for */
    const ashlar_events *events;
    uint16_t device;
    FILE *out;
    ashlar_json_writer *writer;
} table;

static void put_row(const table *t, const row *r) {
    char device[ASHLAR_NUMBER_BYTES] = "-";
    if (r->device_bytes > 0) {
        ashlar__write_count(r->device_bytes >> 20, device);
    }
    fprintf(t->out, "  %-36s %10.1f %10llu %10.1f %10s\n", r->name, ashlar__mib(r->reserved),
            (unsigned long long)r->driver_calls, ashlar__mib(r->unused), device);
    ashlar_json_writer *w = t->writer;
    ashlar__json_open_object(w);
    ashlar__json_add_string(w, "allocator", r->name);
    ashlar__json_add_uint64(w, "reserved_peak_bytes", r->reserved);
    ashlar__json_add_uint64(w, "driver_calls", r->driver_calls);
    ashlar__json_add_uint64(w, "unused_at_peak_bytes", r->unused);
    if (r->device_bytes > 0) {
        ashlar__json_add_uint64(w, "capacity_bytes", r->device_bytes);
    }
    ashlar__json_close_object(w);
}

static uint64_t minus(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0; /* a history may lack its segments */
}

/* The smallest device on which all fits that fitted: by bisection, from what was live to what was
 * reserved. */
static ashlar_status find_device(const table *t, ashlar_torch_config config,
                                 const ashlar_torch_result *free_run, uint64_t *out) {
    uint64_t fails = minus(free_run->live_peak, 1) / GRAIN_BYTES;
    uint64_t passes = (free_run->reserved_peak + GRAIN_BYTES - 1) / GRAIN_BYTES;
    ashlar_torch_result result;
    while (passes > fails + 1) {
        const uint64_t middle = fails + (passes - fails) / 2;
        config.device_bytes = middle * GRAIN_BYTES;
        ASHLAR_TRY(ashlar__torch_replay(t->events, &config, &result));
        *(result.failures == 0 ? &passes : &fails) = middle;
    }
    *out = passes * GRAIN_BYTES;
    return ASHLAR_OK;
}

static ashlar_status torch_row(const table *t, const char *name,
                               const ashlar_torch_settings *settings) {
    const ashlar_torch_config config = {.settings = settings, .device = t->device};
    ashlar_torch_result result;
    row r = {.name = name};
    ASHLAR_TRY(ashlar__torch_replay(t->events, &config, &result));
    if (t->asked->finds_capacity) {
        ASHLAR_TRY(find_device(t, config, &result, &r.device_bytes));
    }
    r.reserved = result.reserved_peak;
    r.driver_calls = result.driver_calls;
    r.unused = minus(result.reserved_at_peak, result.live_peak);
    put_row(t, &r);
    return ASHLAR_OK;
}

static ashlar_status compare(const table *t, ashlar_torch_settings *settings, row *recorded) {
    const ashlar_torch_config config = {.settings = settings,
                                        .device_bytes = t->asked->memory_bytes,
                                        .device = t->device,
                                        .is_recorded = true};
    ashlar_torch_result r;
    ASHLAR_TRY(ashlar__torch_compare(t->events, &config, settings, &r));
    fprintf(t->out,
            "  PyTorch's rules are equal to the record at %zu of %zu segment events and at %zu of "
            "%zu places of blocks\n",
            r.equal_events, r.segment_events, r.equal_places, r.places);
    if (r.ties > 0) {
        fprintf(t->out, "  (%zu times the record broke a tie between segments older than it)\n",
                r.ties);
    }
    if (r.left[0] != '\0') {
        fprintf(t->out, "  %s\n", r.left);
    }
    ashlar_json_writer *w = t->writer;
    ashlar__json_add_uint64(w, "segment_events", r.segment_events);
    ashlar__json_add_uint64(w, "equal_segment_events", r.equal_events);
    ashlar__json_add_uint64(w, "places", r.places);
    ashlar__json_add_uint64(w, "equal_places", r.equal_places);
    ashlar__json_add_uint64(w, "broken_ties", r.ties);
    ashlar__json_add_string(w, "left", r.left);
    *recorded = (row){.name = "PyTorch, as recorded",
                      .reserved = r.recorded_peak,
                      .driver_calls = r.segment_events,
                      .unused = minus(r.recorded_at_peak, r.live_peak)};
    return ASHLAR_OK;
}

/* ashlar's heap: the whole history as one step, if it has a plan. */
static ashlar_status ashlar_row(const table *t, const ashlar_rmm_log *log, bool has_plan) {
    ashlar_replay_plan plan = {.passes = 1};
    if (has_plan) {
        ASHLAR_TRY(ashlar__replay_plan_init(log, 1, &plan));
    }
    const ashlar_replay_config config = {.calls = &ashlar__replay_calls_of_ashlar,
                                         .memory_bytes = UNLIMITED_BYTES,
                                         .passes = plan.passes,
                                         .plan = has_plan ? &plan : NULL};
    ashlar_replay_result result = {0};
    size_t capacity = 0;
    ashlar_status status = ashlar__replay_run(log, &config, &result);
    const bool is_planned = result.plan.plan_bytes > 0 && result.plan.unplanned == 0;
    if (status == ASHLAR_OK && t->asked->finds_capacity && !is_planned) {
        status = ashlar__replay_find_capacity(log, &config, &result, &capacity);
    }
    ashlar__replay_plan_finish(&plan);
    ASHLAR_TRY(status);
    row r = {.name = has_plan ? "ashlar, with a plan" : "ashlar",
             .reserved = result.peak_reserved,
             .driver_calls = result.driver_calls,
             .unused = result.reserved_at_peak - result.peak_live,
             .device_bytes = capacity};
    if (is_planned) { /* all of it stands in one range, which no allocation leaves */
        r.reserved = result.plan.plan_bytes;
        r.unused = r.reserved - result.peak_live;
        r.device_bytes = (r.reserved + GRAIN_BYTES - 1) / GRAIN_BYTES * GRAIN_BYTES;
    }
    put_row(t, &r);
    return ASHLAR_OK;
}

static ashlar_status put_rows(const table *t, ashlar_torch_settings *settings,
                              const ashlar_rmm_log *log) {
    char name[64];
    ASHLAR_TRY(torch_row(t, "PyTorch, with its settings", settings));
    if (!settings->is_expandable) {
        ashlar_torch_settings other = *settings;
        other.is_expandable = true;
        ASHLAR_TRY(torch_row(t, "PyTorch, expandable_segments:True", &other));
    }
    if (t->asked->torch != NULL) {
        ashlar_torch_settings other = t->given;
        other.is_by_number = settings->is_by_number;
        (void)snprintf(name, sizeof name, "PyTorch, %s", t->asked->torch);
        ASHLAR_TRY(torch_row(t, name, &other));
    }
    ASHLAR_TRY(ashlar_row(t, log, false));
    return ashlar_row(t, log, true);
}

static ashlar_status put_table(const table *t, const ashlar_rmm_log *log) {
    ashlar_torch_settings settings;
    const ashlar_events *e = t->events;
    ashlar_json_writer *w = t->writer;
    size_t count = 0;
    for (size_t i = 0; i < e->event_count; i++) {
        count += e->events[i].device == t->device;
    }
    fprintf(t->out, "%s, device %u: %zu events\n", e->name, t->device, count);
    if (ashlar__torch_settings_recorded(e, &settings) != ASHLAR_OK) { /* as of a later version */
        fprintf(t->out, "  %s; the rules go without that\n", ashlar_error_detail());
    }
    ashlar__json_open_object(w);
    ashlar__json_add_uint64(w, "device", t->device);
    row recorded;
    ashlar_status status = compare(t, &settings, &recorded);
    fprintf(t->out, "  %-36s %10s %10s %10s %10s\n", "in MiB; others begin without a cache",
            "reserved", "calls", "unused", "device");
    ashlar__json_put_key(w, "allocators");
    ashlar__json_open_array(w);
    if (status == ASHLAR_OK) {
        put_row(t, &recorded);
        status = put_rows(t, &settings, log);
    }
    ashlar__json_close_array(w);
    ashlar__json_close_object(w);
    return status;
}

ashlar_status ashlar__what_if_run(const ashlar_what_if *asked, const ashlar_events *events,
                                  FILE *out, ashlar_json_writer *w) {
    table t = {.asked = asked, .events = events, .out = out, .writer = w};
    ashlar_status status = ashlar__torch_settings_parse("--torch", asked->torch, &t.given);
    ashlar__json_put_key(w, "what_if");
    ashlar__json_open_array(w);
    for (size_t device = 0; device < events->device_count && status == ASHLAR_OK; device++) {
        ashlar_rmm_log log;
        t.device = (uint16_t)device;
        status = make_log(events, t.device, &log);
        if (log.event_count > 0) { /* the history uses it */
            ASHLAR_THEN(status, put_table(&t, &log));
        }
        ashlar__host_free(log.events);
    }
    ashlar__json_close_array(w);
    return status;
}
