/* leak_monitor.c - finds memory that grows from step to step. */
#include "rnn/train/train.h"

#include "allocator/base/check_level.h"

enum { PATIENCE_STEPS = 16 };

/* A window is over: see whether it rises, is back at the level before, or neither. Returns whether
 * the tag is newly found to grow. */
static bool end_window(ashlar_tag_growth *tag, uint64_t step) {
    const bool was_growing = tag->is_growing, is_first = tag->watch.windows == 0;
    const uint64_t low = tag->watch.least, spread = tag->watch.most - low;
    ASHLAR_CHECK2(tag->watch.least_step <= step && tag->watch.most >= low);
    tag->watch.windows = 1;
    tag->watch.filled = 0;
    if (!is_first && low > tag->watch.crest && low - tag->watch.crest >= spread - spread / 2) {
        tag->watch.rises++;
        tag->watch.rise_step = step;
    } else if (is_first || low <= tag->watch.level ||
               (was_growing && step - tag->watch.rise_step >
                                   tag->watch.rise_step - tag->watch.level_step + PATIENCE_STEPS)) {
        tag->watch.rises = 0;
        tag->watch.level = low;
        tag->watch.level_step = tag->watch.least_step;
    }
    tag->watch.crest = low > tag->watch.crest ? low : tag->watch.crest;
    tag->is_growing = tag->watch.rises >= ASHLAR_GROWTH_RISES;
    return tag->is_growing && !was_growing;
}

static bool add(ashlar_tag_growth *tag, uint64_t step, uint64_t held) {
    bool is_found = false;
    tag->held_bytes = held;
    if (tag->watch.filled == 0) {
        tag->watch.least = tag->watch.most = held;
    }
    tag->watch.most = held > tag->watch.most ? held : tag->watch.most;
    if (held <= tag->watch.least) {
        tag->watch.least = held;
        tag->watch.least_step = step;
    }
    if (++tag->watch.filled == ASHLAR_GROWTH_WINDOW) {
        is_found = end_window(tag, step);
    }
    const bool is_above = tag->is_growing && held > tag->watch.level;
    tag->since_step = tag->is_growing ? tag->watch.level_step + 1 : 0;
    tag->growth_bytes = is_above ? held - tag->watch.level : 0;
    return is_found;
}

unsigned ashlar__growth_add(ashlar_tag_growth tags[ASHLAR_TAG_COUNT], uint64_t step,
                            const ashlar_stats *stats) {
    _Static_assert(ASHLAR_TAG_COUNT <= 8 * sizeof(unsigned), "a bit for each tag");
    unsigned found = 0;
    for (unsigned i = 0; i < ASHLAR_TAG_COUNT; i++) {
        const uint64_t held = stats->tags[i].live_bytes;
        if (tags[i].watch.windows == 0 && tags[i].watch.filled == 0) {
            tags[i].first_bytes = held;
        }
        found |= add(&tags[i], step, held) ? 1u << i : 0;
    }
    return found;
}
