/* steps.c - finds where steps begin in a log, by marks or by the period. */
#include "bench/replay/steps.h"

#include <stdbool.h>

#include "allocator/base/host.h"
#include "bench/replay/number_map.h"
#include "bench/replay/period.h"

/* The allocations of a log, in the log's order. */
typedef struct sequence {
    const ashlar_rmm_log *log;
    size_t count;
    size_t prefix;   /* allocations before the first free */
    size_t *events;  /* [count]: the event of each allocation */
    size_t *kinds;   /* [count]: equal numbers for equal size and stream */
    double *live;    /* [count]: bytes live before it, rounded to double */
    uint64_t *bytes; /* [block_count]: size of each block */
} sequence;

#define NO_MEMORY "%s: no host memory to find its steps"

static size_t count_marks(const ashlar_rmm_log *log) {
    size_t count = 0;
    for (size_t i = 0; i < log->event_count; i++) {
        count += log->events[i].action == ASHLAR_RMM_STEP;
    }
    return count;
}

/* The events after the last mark are a step if they allocate. */
static ashlar_status take_marks(const ashlar_rmm_log *log, size_t mark_count, ashlar_steps *out) {
    size_t *boundaries, marks = 0;
    bool is_open = false;
    ASHLAR_HOST_NEW(boundaries, mark_count + 1, NO_MEMORY, log->name);
    for (size_t i = 0; i < log->event_count; i++) {
        if (log->events[i].action == ASHLAR_RMM_STEP) {
            boundaries[marks++] = i;
            is_open = false;
        }
        is_open = is_open || log->events[i].action == ASHLAR_RMM_ALLOCATE;
    }
    boundaries[marks] = log->event_count;
    *out = (ashlar_steps){boundaries, is_open ? marks : marks - 1, 0, 1};
    if (out->count == 0) {
        ashlar__steps_finish(out);
    }
    return ASHLAR_OK;
}

static void finish_sequence(sequence *s) {
    ashlar__host_free(s->events);
    ashlar__host_free(s->kinds);
    ashlar__host_free(s->live);
    ashlar__host_free(s->bytes);
}

static ashlar_status reserve_sequence(sequence *s) {
    const size_t count = s->log->block_count + 1; /* the log may have no blocks */
    ASHLAR_HOST_NEW(s->events, count, NO_MEMORY, s->log->name);
    ASHLAR_HOST_NEW(s->kinds, count, NO_MEMORY, s->log->name);
    ASHLAR_HOST_NEW(s->live, count, NO_MEMORY, s->log->name);
    ASHLAR_HOST_NEW(s->bytes, count, NO_MEMORY, s->log->name);
    return ASHLAR_OK;
}

/* Invariant: count <= block_count, since a log has one allocation for each block. */
static ashlar_status list_allocations(sequence *s) {
    ashlar_number_map map = {0};
    ashlar_status status = ASHLAR_OK;
    double live = 0;
    size_t kind_count = 0;
    bool has_free = false;
    for (size_t i = 0; status == ASHLAR_OK && i < s->log->event_count; i++) {
        const ashlar_rmm_event *event = &s->log->events[i];
        size_t *kind = NULL;
        if (event->action == ASHLAR_RMM_FREE) {
            live -= (double)s->bytes[event->block];
            has_free = true;
        } else if (event->action == ASHLAR_RMM_ALLOCATE) {
            status = ashlar__number_map_find(&map, event->bytes, event->stream, &kind);
            if (status == ASHLAR_OK) {
                *kind = *kind == ASHLAR_NUMBER_NONE ? kind_count++ : *kind;
                s->events[s->count] = i;
                s->kinds[s->count] = *kind;
                s->live[s->count++] = live;
                s->prefix += !has_free;
                s->bytes[event->block] = event->bytes;
                live += (double)event->bytes;
            }
        }
    }
    ashlar__number_map_finish(&map);
    return status;
}

/* How much of a step may be missing at either end of the repeating stretch. */
static size_t slack_of(const ashlar_period *p) {
    return p->period / 8;
}

static bool has_link(const ashlar_period *p, size_t i) {
    return i >= p->period && p->links[i] + slack_of(p) >= p->begin;
}

/* Allocations that are one period apart, from `last` back to the start of the repeating stretch. */
typedef struct chain {
    size_t last;
    size_t count;
    double live; /* mean, without the first period, in which memory still fills up */
} chain;

static chain follow(const sequence *s, const ashlar_period *p, size_t last) {
    chain c = {.last = last, .count = 1, .live = s->live[last]};
    size_t live_count = 1;
    for (size_t i = last; has_link(p, i); c.count++) {
        i = p->links[i];
        if (i >= p->begin + p->period) {
            c.live += s->live[i];
            live_count++;
        }
    }
    c.live /= (double)live_count;
    return c;
}

static bool is_better(const chain *a, const chain *b) {
    return a->live != b->live ? a->live < b->live : a->count > b->count;
}

/* The chain with the fewest live bytes; each place in the last period ends one chain. */
static chain find_trough(const sequence *s, const ashlar_period *p) {
    chain best = follow(s, p, p->end - p->period);
    for (size_t i = p->end - p->period + 1; i < p->end; i++) {
        const chain c = follow(s, p, i);
        best = is_better(&c, &best) ? c : best;
    }
    return best;
}

/* Find where the step that begins at allocation `last` ends: where the next step begins, or at the
 * log's end. False: a part of the step is missing, or too much of it does not repeat. */
static bool find_end(const sequence *s, const ashlar_period *p, size_t last, size_t *end) {
    const size_t rest = s->count - last;
    if (rest + p->drift < p->period || p->end - last + slack_of(p) < p->period) {
        return false;
    }
    *end = rest > p->period + p->drift ? s->events[last + p->period] : s->log->event_count;
    return true;
}

static ashlar_status put_boundaries(const sequence *s, const ashlar_period *p, ashlar_steps *out) {
    const chain c = find_trough(s, p);
    size_t *boundaries;
    ASHLAR_HOST_NEW(boundaries, c.count + 1, NO_MEMORY, s->log->name);
    size_t i = c.last;
    for (size_t n = c.count; n-- > 0; i = n > 0 ? p->links[i] : i) {
        boundaries[n] = s->events[i];
    }
    const bool has_end = find_end(s, p, c.last, &boundaries[c.count]);
    *out = (ashlar_steps){boundaries, has_end ? c.count : c.count - 1, p->period, p->score};
    if (out->count == 0) {
        ashlar__steps_finish(out);
    }
    return ASHLAR_OK;
}

static ashlar_status find_by_period(sequence *s, ashlar_steps *out) {
    ashlar_period period = {0};
    ASHLAR_TRY(reserve_sequence(s));
    ASHLAR_TRY(list_allocations(s));
    ASHLAR_TRY(ashlar__period_find(s->kinds, s->count, s->prefix, &period));
    if (period.period == 0) {
        *out = (ashlar_steps){0};
        return ASHLAR_OK;
    }
    const ashlar_status status = put_boundaries(s, &period, out);
    ashlar__period_finish(&period);
    return status;
}

ashlar_status ashlar__steps_find(const ashlar_rmm_log *log, ashlar_steps *out) {
    const size_t mark_count = count_marks(log);
    if (mark_count > 0) {
        return take_marks(log, mark_count, out);
    }
    sequence s = {.log = log};
    const ashlar_status status = find_by_period(&s, out);
    finish_sequence(&s);
    return status;
}

void ashlar__steps_finish(ashlar_steps *steps) {
    ashlar__host_free(steps->boundaries);
    *steps = (ashlar_steps){0};
}
