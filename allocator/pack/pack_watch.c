/* pack_watch.c - the packer's clock. */
#include "allocator/pack/pack_watch.h"

#include "allocator/base/clock.h"

enum { TELL_EVERY_MS = 100 };

static uint64_t now_ms(void) {
    return ashlar_clock_ns() / 1000000;
}

void ashlar_pack_watch_init(ashlar_pack_watch *watch, const ashlar_pack_options *options,
                            size_t bound_bytes) {
    const uint64_t now = now_ms();
    *watch = (ashlar_pack_watch){
        .options = options,
        .begin_ms = now,
        .told_ms = now,
        .now = {.bound_bytes = bound_bytes, .strategy = ""},
    };
}

bool ashlar_pack_watch_goes_on(ashlar_pack_watch *watch) {
    const ashlar_pack_options *options = watch->options;
    const uint64_t now = now_ms();
    if (watch->is_stopped) {
        return false;
    }
    watch->now.elapsed_ms = now - watch->begin_ms;
    if (options->progress != NULL && now - watch->told_ms >= TELL_EVERY_MS) {
        watch->told_ms = now;
        watch->is_stopped = !options->progress(options->user, &watch->now);
    }
    if (watch->has_deadline && watch->now.elapsed_ms >= options->time_budget_ms) {
        watch->is_stopped = true;
    }
    return !watch->is_stopped;
}
