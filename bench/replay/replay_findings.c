/* replay_findings.c - finds the smallest device on which a log can be replayed, and draws the
 * blocks of a replay. */
#include "bench/replay/replay.h"

#include "allocator/base/host.h"
#include "allocator/trace/picture.h"

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

/* [log->block_count]; a block that was never allocated keeps 0 bytes. */
static void fill_blocks(const ashlar_rmm_log *log, const uintptr_t *addresses,
                        ashlar_picture_block *blocks) {
    uintptr_t lowest = UINTPTR_MAX;
    for (size_t i = 0; i < log->block_count; i++) {
        lowest = addresses[i] != 0 && addresses[i] < lowest ? addresses[i] : lowest;
    }
    for (size_t i = 0; i < log->event_count; i++) {
        const ashlar_rmm_event *event = &log->events[i];
        if (event->action == ASHLAR_RMM_ALLOCATE && addresses[event->block] != 0) {
            blocks[event->block] = (ashlar_picture_block){
                .begin = i,
                .end = log->event_count,
                .offset = addresses[event->block] - lowest,
                .bytes = event->bytes,
            };
        } else if (event->action == ASHLAR_RMM_FREE) {
            blocks[event->block].end = i;
        }
    }
}

/* Move the allocated blocks to the front. Returns how many there are. */
static size_t drop_missing(ashlar_picture_block *blocks, size_t count) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (blocks[i].bytes > 0) {
            blocks[kept++] = blocks[i];
        }
    }
    return kept;
}

ashlar_status ashlar__replay_draw(const ashlar_rmm_log *log, const uintptr_t *addresses,
                                  const ashlar_replay_result *result, const char *path) {
    ashlar_picture_block *blocks;
    ASHLAR_HOST_NEW(blocks, log->block_count + 1, "no host memory to draw %s", log->name);
    fill_blocks(log, addresses, blocks);
    const ashlar_picture picture = {
        .title = log->name,
        .time_unit = "events",
        .blocks = blocks,
        .count = drop_missing(blocks, log->block_count),
        .limit_label = "reserved",
        .limit_bytes = result->peak_reserved,
    };
    const ashlar_status status = ashlar__picture_write(&picture, path);
    ashlar__host_free(blocks);
    return status;
}
