/* leak_monitor.c - finding memory that grows from step to step, by comparing windows of steps. */
#include "rnn/train/train.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

enum {
    WINDOWS = 5,        /* consecutive windows that must rise, each above the one before */
    KEPT = WINDOWS + 1, /* and the window before those, in which the growth may have begun */
    SCALES = 12,        /* window lengths 4, 16, .. 4^12 steps: enough for any training */
    SCALE_SHIFT = 2,    /* 4^k = 1 << (k * SCALE_SHIFT) */
    PLATEAU_STEPS = 16, /* growth ends after this many steps without a rise, plus as many steps
                           as the growth has lasted */
};
_Static_assert(SCALES * SCALE_SHIFT < 64, "a window's length fits in 64 bits");
_Static_assert(ASHLAR_TAG_COUNT <= 8 * sizeof(unsigned), "a bit of *found for each tag");

/* The least and the most bytes that a tag held in consecutive steps. */
typedef struct window {
    uint64_t min, max;
    uint64_t first;    /* its first step */
    uint64_t last_min; /* the last step that held min */
} window;

/* Windows of one length: the finished ones, the oldest first, then the one being filled. */
typedef struct scale {
    window windows[KEPT + 1];
    unsigned over;   /* finished windows that are kept, at most KEPT */
    uint64_t filled; /* steps so far in windows[over], the window being filled */
} scale;

typedef struct tag_history {
    ashlar_tag_growth known;
    uint64_t max;        /* the most bytes held since the tag began to grow */
    uint64_t last_rise;  /* the first step that held `max` */
    uint64_t crest;      /* the largest `max` of growth that has ended, ... */
    uint64_t crest_step; /* ... and when that was held; a later rise up to it is no growth */
    scale scales[SCALES];
} tag_history;

struct ashlar_leak_monitor {
    bool has_reading;
    uint64_t step; /* of the last reading */
    tag_history tags[ASHLAR_TAG_COUNT];
};

ashlar_status ashlar__leak_monitor_create(ashlar_leak_monitor **out) {
    ashlar_leak_monitor *monitor = ashlar__host_calloc(1, sizeof *monitor);
    if (monitor == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory to watch for growth");
    }
    *out = monitor;
    return ASHLAR_OK;
}

void ashlar__leak_monitor_destroy(ashlar_leak_monitor *monitor) {
    ashlar__host_free(monitor);
}

/* Whether the inequality of train.h holds for the last WINDOWS finished windows. */
static bool is_rising(const scale *s) {
    ASHLAR_CHECK2(s->over <= KEPT);
    if (s->over < WINDOWS) {
        return false;
    }
    const window *last = &s->windows[s->over - WINDOWS];
    uint64_t range = 0, least_rise = UINT64_MAX;
    for (size_t w = 0; w < WINDOWS; w++) {
        ASHLAR_CHECK2(last[w].min <= last[w].max);
        const uint64_t own = last[w].max - last[w].min;
        range = own > range ? own : range;
    }
    for (size_t w = 0; w + 1 < WINDOWS; w++) {
        const uint64_t now = last[w].min, next = last[w + 1].min;
        const uint64_t rise = next > now ? next - now : 0;
        least_rise = rise < least_rise ? rise : least_rise;
    }
    return least_rise > 0 && least_rise >= range - range / 2;
}

static uint64_t most_of(const scale *s) {
    uint64_t most = 0;
    for (size_t w = s->over - WINDOWS; w < s->over; w++) {
        most = s->windows[w].max > most ? s->windows[w].max : most;
    }
    return most;
}

/* The window that contains the last step before the rise. */
static const window *level_before(const scale *s) {
    ASHLAR_CHECK2(s->over >= WINDOWS);
    const window *first = &s->windows[s->over - WINDOWS];
    return s->over > WINDOWS && first[-1].min < first->min ? first - 1 : first;
}

/* Whether rising windows have only reached what was held before them, in growth that ended. What
 * was held in one of them counts in its range. */
static bool is_below_crest(const tag_history *tag, const scale *s) {
    return tag->crest_step < s->windows[s->over - WINDOWS].first &&
           s->windows[s->over - 1].min <= tag->crest;
}

/* Add a step to the window being filled. Returns whether this step finished the window. */
static bool add_to_scale(scale *s, uint64_t length, uint64_t step, uint64_t held) {
    window *w = &s->windows[s->over];
    ASHLAR_CHECK2(s->filled < length && s->over <= KEPT);
    if (s->filled == 0) {
        *w = (window){.min = held, .max = held, .first = step};
    }
    w->max = held > w->max ? held : w->max;
    if (held <= w->min) {
        w->min = held;
        w->last_min = step;
    }
    ASHLAR_CHECK2(w->min <= held && held <= w->max);
    if (++s->filled < length) {
        return false;
    }
    s->filled = 0;
    if (s->over < KEPT) {
        s->over++;
    } else { /* drop the oldest */
        for (size_t i = 0; i < KEPT; i++) {
            s->windows[i] = s->windows[i + 1];
        }
    }
    return true;
}

/* Update a tag's known growth for this step. Growth ends when the tag holds no more than before the
 * growth, or has not risen for long (PLATEAU_STEPS). */
static void update_known(tag_history *tag, uint64_t step, uint64_t held) {
    ashlar_tag_growth *known = &tag->known;
    ASHLAR_CHECK2(known->growth_bytes <= known->held_bytes);
    ASHLAR_CHECK2(known->is_growing || known->growth_bytes == 0);
    const uint64_t level = known->held_bytes - known->growth_bytes;
    known->held_bytes = held;
    if (!known->is_growing) {
        return;
    }
    if (held > tag->max) {
        tag->max = held;
        tag->last_rise = step;
    }
    ASHLAR_CHECK2(known->since_step <= tag->last_rise && tag->last_rise <= step);
    const uint64_t patience = tag->last_rise - known->since_step + PLATEAU_STEPS;
    if (held <= level || step - tag->last_rise > patience) {
        known->is_growing = false;
        if (tag->max >= tag->crest) {
            tag->crest = tag->max;
            tag->crest_step = tag->last_rise;
        }
        known->since_step = known->growth_bytes = 0;
        return;
    }
    known->growth_bytes = held - level;
}

/* Add a step of a tag. Returns whether this step shows that the tag grows. Longer windows may later
 * find an earlier beginning of the growth. */
static bool add_to_tag(tag_history *tag, uint64_t step, uint64_t held) {
    ashlar_tag_growth *known = &tag->known;
    const bool was_growing = known->is_growing;
    update_known(tag, step, held);
    for (unsigned k = 0; k < SCALES; k++) {
        scale *s = &tag->scales[k];
        const uint64_t length = UINT64_C(1) << ((k + 1) * SCALE_SHIFT);
        if (!add_to_scale(s, length, step, held) || !is_rising(s) || is_below_crest(tag, s)) {
            continue;
        }
        const window *before = level_before(s);
        if (!known->is_growing) {
            known->is_growing = true;
            tag->max = most_of(s);
            tag->last_rise = step;
        } else if (before->last_min + 1 >= known->since_step) {
            continue;
        }
        ASHLAR_CHECK2(before->last_min < step && before->min <= held);
        known->since_step = before->last_min + 1;
        known->growth_bytes = held - before->min;
    }
    return known->is_growing && !was_growing;
}

ashlar_status ashlar__leak_monitor_add(ashlar_leak_monitor *monitor, uint64_t step,
                                      const ashlar_stats *stats, unsigned *found) {
    if (monitor->has_reading && step <= monitor->step) {
        return ashlar__fail(ASHLAR_EINVAL,
                            "growth: step %llu after step %llu; give each a larger number",
                            (unsigned long long)step, (unsigned long long)monitor->step);
    }
    unsigned bits = 0;
    for (unsigned i = 0; i < ASHLAR_TAG_COUNT; i++) {
        const uint64_t held = stats->tags[i].live_bytes;
        if (!monitor->has_reading) {
            monitor->tags[i].known.first_bytes = held;
        }
        bits |= add_to_tag(&monitor->tags[i], step, held) ? 1u << i : 0;
    }
    monitor->has_reading = true;
    monitor->step = step;
    if (found != NULL) {
        *found = bits;
    }
    return ASHLAR_OK;
}

void ashlar__leak_monitor_get_growth(const ashlar_leak_monitor *monitor,
                                    ashlar_tag_growth tags[ASHLAR_TAG_COUNT]) {
    for (size_t i = 0; i < ASHLAR_TAG_COUNT; i++) {
        tags[i] = monitor->tags[i].known;
    }
}
