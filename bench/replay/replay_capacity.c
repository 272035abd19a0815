/* replay_capacity.c - the smallest device on which a log passes. */
#include "bench/replay/replay.h"

static ashlar_status try_capacity(const ashlar_rmm_log *log, const ashlar_replay_config *config,
                                  size_t steps, bool *passes) {
    ashlar_replay_config smaller = *config;
    ashlar_replay_result result;
    smaller.memory_bytes = steps * ASHLAR_REPLAY_GRAIN_BYTES;
    smaller.stops_at_a_failure = true;
    smaller.addresses = NULL; /* they are of the run that `result` is of */
    const ashlar_status status = ashlar__replay_run(log, &smaller, &result);
    *passes = status == ASHLAR_OK;
    return status == ASHLAR_ENOMEM ? ASHLAR_OK : status;
}

ashlar_status ashlar__replay_find_capacity(const ashlar_rmm_log *log,
                                           const ashlar_replay_config *config,
                                           const ashlar_replay_result *result, size_t *capacity) {
    const size_t step = ASHLAR_REPLAY_GRAIN_BYTES;
    /* `fails` cannot hold the peak; `passes` has been seen to. */
    size_t fails = result->peak_live == 0 ? 0 : (result->peak_live - 1) / step;
    size_t passes = config->memory_bytes / step;
    /* What was reserved is most often enough, and nearer. */
    size_t middle = (result->peak_reserved + step - 1) / step;
    while (passes - fails > 1) {
        bool has_passed;
        if (middle <= fails || middle >= passes) {
            middle = fails + (passes - fails) / 2;
        }
        const ashlar_status status = try_capacity(log, config, middle, &has_passed);
        if (status != ASHLAR_OK) {
            return status;
        }
        *(has_passed ? &passes : &fails) = middle;
    }
    *capacity = passes * step;
    return ASHLAR_OK;
}
