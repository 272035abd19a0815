/* replay_findings.c - finds the smallest device on which a log can be replayed, and lists the
 * blocks of a replay. */
#include "bench/replay/replay.h"

#include "allocator/base/host.h"

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

/* Rows of blocks: each is live from its allocation to its free, or to the log's end. */
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
