/* soft_oracle.c - the software device's proof of order (clocks=on): which work comes before each
 * queued op and each recorded use of memory. */
#include "allocator/soft/soft_oracle.h"

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"
#include "allocator/soft/soft_state.h"

static bool is_watching(void) {
    return ashlar__soft_state.config.has_clocks && !ashlar__soft_state.oracle.is_lost;
}

static void join_or_lose(soft_clock *clock, const soft_clock *other) {
    if (!ashlar__soft_clock_join(clock, other)) {
        ashlar__soft_state.oracle.is_lost = true;
    }
}

/* Drop the entries for work that the host has seen finished: it comes before all later work. */
static void drop_seen(soft_clock *clock) {
    size_t kept = 0;
    for (size_t i = 0; i < clock->count; i++) {
        const struct soft_time time = clock->times[i];
        if (!ashlar__soft_clock_covers(&ashlar__soft_state.oracle.seen, time.serial, time.number)) {
            clock->times[kept++] = time;
        }
    }
    clock->count = kept;
}

/*
 * Add the work that the next op of this stream comes after because of the legacy stream. Blocking
 * streams are ordered with each other only if an op of the legacy stream is queued in between.
 */
static void join_legacy_order(soft_clock *clock, const soft_stream *stream) {
    const soft_device *device = stream->device;
    if (!stream->is_ordered) {
        return;
    }
    if (stream != device->legacy) {
        join_or_lose(clock, &device->legacy->clock);
        return;
    }
    join_or_lose(clock, &device->ended[true]);
    for (const soft_stream *s = ashlar__soft_state.first_stream; s != NULL; s = s->next) {
        if (s->device == device && s->is_ordered) {
            join_or_lose(clock, &s->clock);
        }
    }
}

void ashlar__soft_oracle_submit(soft_stream *stream, const soft_op *op) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    if (!is_watching()) {
        return;
    }
    soft_clock *clock = &stream->clock;
    join_legacy_order(clock, stream);
    if (op->awaits != NULL) {
        join_or_lose(clock, &op->awaits->clock);
    }
    drop_seen(clock);
    /* A destroyed stream is a lane of a launched graph, which has no uses. It gets no entry, so
     * that clocks do not grow with each launch. */
    if (!stream->is_destroyed && !ashlar__soft_clock_raise(clock, stream->serial, op->number)) {
        ashlar__soft_state.oracle.is_lost = true;
    }
    if (op->point != NULL) {
        join_or_lose(&op->point->clock, clock);
    }
}

void ashlar__soft_oracle_end(const soft_stream *stream) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    if (is_watching()) {
        soft_clock *ended = &stream->device->ended[stream->is_ordered];
        join_or_lose(ended, &stream->clock);
        drop_seen(ended);
    }
}

void ashlar__soft_oracle_see(const soft_clock *clock) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    if (is_watching()) {
        join_or_lose(&ashlar__soft_state.oracle.seen, clock);
    }
}

void ashlar__soft_oracle_snapshot(const soft_device *device, uint64_t serial, soft_clock *out) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    if (!is_watching()) {
        return;
    }
    for (const soft_stream *s = ashlar__soft_state.first_stream; s != NULL; s = s->next) {
        if (s->device == device && (serial == 0 || s->serial == serial)) {
            join_or_lose(out, &s->clock);
        }
    }
    if (serial == 0) {
        join_or_lose(out, &device->ended[false]);
        join_or_lose(out, &device->ended[true]);
    }
}

void ashlar__soft_oracle_next(const soft_stream *stream, soft_clock *after) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    join_or_lose(after, &stream->clock);
    join_legacy_order(after, stream);
}

void ashlar__soft_oracle_reset(void) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    soft_oracle *oracle = &ashlar__soft_state.oracle;
    ashlar__soft_clock_clear(&oracle->seen);
    ashlar__host_free(oracle->uses);
    *oracle = (soft_oracle){0};
}

/* ---- uses ---- */

static bool is_seen(const soft_use *use) {
    return ashlar__soft_clock_covers(&ashlar__soft_state.oracle.seen, use->serial, use->number);
}

bool ashlar__soft_oracle_put_use(const soft_use *use) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    ASHLAR_CHECK2(use->base < use->end && use->number <= ashlar__soft_state.submitted);
    soft_oracle *oracle = &ashlar__soft_state.oracle;
    size_t kept = 0;
    for (size_t i = 0; i < oracle->use_count; i++) {
        const soft_use *old = &oracle->uses[i];
        const bool is_within =
            old->serial == use->serial && use->base <= old->base && old->end <= use->end;
        if (!is_within && !is_seen(old)) {
            oracle->uses[kept++] = *old;
        }
    }
    oracle->use_count = kept;
    if (kept == oracle->use_capacity) {
        const size_t more = kept == 0 ? 16 : kept * 2;
        soft_use *uses = ashlar__host_realloc(oracle->uses, more, sizeof *uses);
        if (uses == NULL) {
            return false;
        }
        oracle->uses = uses;
        oracle->use_capacity = more;
    }
    oracle->uses[oracle->use_count++] = *use;
    ASHLAR_CHECK2(oracle->use_count <= oracle->use_capacity);
    return true;
}

bool ashlar__soft_oracle_is_ordered(uintptr_t base, uintptr_t end, const soft_clock *after) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    const soft_oracle *oracle = &ashlar__soft_state.oracle;
    for (size_t i = 0; i < oracle->use_count; i++) {
        const soft_use *use = &oracle->uses[i];
        if (use->base < end && base < use->end && !is_seen(use) &&
            !ashlar__soft_clock_covers(after, use->serial, use->number)) {
            return false;
        }
    }
    return true;
}
