/* soft_oracle.c - proof of order: which work comes before each queued op and each recorded use of
 * memory, as vector clocks. */
#include "tests/allocator/soft/soft_probe.h"

#include "allocator/base/error.h"
#include "allocator/base/host.h"

typedef struct soft_use {
    uintptr_t base;
    uintptr_t end;   /* > base */
    uint64_t serial; /* of the use's stream */
    uint64_t number; /* from the same sequence as the numbers of ops */
} soft_use;

/* Lock: the device's. */
static struct {
    bool is_lost; /* host memory ran out: no order can be proven any more */
    bool watches_copies;
    size_t misordered; /* copies and fills that did not come after all uses of their memory */
    soft_clock seen;   /* covers the work that the host has seen finished */
    soft_clock ended[SOFT_DEVICES_MAX][2]; /* clocks of destroyed streams, [ordinal][is_ordered] */
    soft_use *uses;
    size_t use_count;
    size_t use_capacity;
} oracle;

static void join_or_lose(soft_clock *clock, const soft_clock *other) {
    oracle.is_lost |= !ashlar__soft_clock_join(clock, other);
}

/* Drop the entries for work that the host has seen finished: it comes before all later work. */
static void drop_seen(soft_clock *clock) {
    size_t kept = 0;
    for (size_t i = 0; i < clock->count; i++) {
        const struct soft_time time = clock->times[i];
        if (!ashlar__soft_clock_covers(&oracle.seen, time.serial, time.number)) {
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
    join_or_lose(clock, &oracle.ended[device->ordinal][true]);
    for (const soft_stream *s = ashlar__soft_state.first_stream; s != NULL; s = s->next) {
        if (s->device == device && s->is_ordered) {
            join_or_lose(clock, &s->clock);
        }
    }
}

static bool is_ordered_after(uintptr_t base, uintptr_t stop, const soft_clock *after);
static bool put_use(const soft_use *use);

/* A copy or fill with this clock uses an operand. */
static bool use_operand(const soft_operand *operand, size_t bytes, uint64_t serial, uint64_t number,
                        const soft_clock *clock) {
    const uintptr_t base = (uintptr_t)operand->ptr;
    if (base == 0 || operand->place == SOFT_PLACE_PAGEABLE) {
        return true;
    }
    const bool is_ordered = is_ordered_after(base, base + bytes, clock);
    oracle.is_lost |= !put_use(&(soft_use){base, base + bytes, serial, number});
    return is_ordered;
}

/* ---- the hooks ---- */

static void submit(soft_stream *stream, const soft_op *op) {
    soft_clock *clock = &stream->clock;
    join_legacy_order(clock, stream);
    if (op->awaits != NULL) {
        join_or_lose(clock, &op->awaits->clock);
    }
    drop_seen(clock);
    /* A destroyed stream is a lane of a launched graph, which has no uses. It gets no entry, so
     * that clocks do not grow with each launch. */
    if (!stream->is_destroyed && !ashlar__soft_clock_raise(clock, stream->serial, op->number)) {
        oracle.is_lost = true;
    }
    if (op->point != NULL) {
        join_or_lose(&op->point->clock, clock);
    }
    if (oracle.watches_copies && (op->kind == SOFT_OP_COPY || op->kind == SOFT_OP_FILL)) {
        const bool reads_late =
            !use_operand(&op->src, op->bytes, stream->serial, op->number, clock);
        const bool writes_late =
            !use_operand(&op->dst, op->bytes, stream->serial, op->number, clock);
        oracle.misordered += reads_late || writes_late;
    }
}

static void end(const soft_stream *stream) {
    soft_clock *ended = &oracle.ended[stream->device->ordinal][stream->is_ordered];
    join_or_lose(ended, &stream->clock);
    drop_seen(ended);
}

static void see(const soft_clock *clock) {
    join_or_lose(&oracle.seen, clock);
}

static void snapshot(const soft_device *device, uint64_t serial, soft_clock *out) {
    for (const soft_stream *s = ashlar__soft_state.first_stream; s != NULL; s = s->next) {
        if (s->device == device && (serial == 0 || s->serial == serial)) {
            join_or_lose(out, &s->clock);
        }
    }
    if (serial == 0) {
        join_or_lose(out, &oracle.ended[device->ordinal][false]);
        join_or_lose(out, &oracle.ended[device->ordinal][true]);
    }
}

static bool is_seen(const soft_use *use) {
    return ashlar__soft_clock_covers(&oracle.seen, use->serial, use->number);
}

/* Whether each recorded use of bytes in [base, end) is covered by `after`, or was seen finished. */
static bool is_ordered_after(uintptr_t base, uintptr_t stop, const soft_clock *after) {
    bool is_ordered = true;
    for (size_t i = 0; i < oracle.use_count && is_ordered; i++) {
        const soft_use *use = &oracle.uses[i];
        is_ordered = use->base >= stop || base >= use->end || is_seen(use) ||
                     ashlar__soft_clock_covers(after, use->serial, use->number);
    }
    return is_ordered;
}

static bool is_used(uintptr_t base, size_t bytes) {
    static const soft_clock nothing;
    return !oracle.is_lost && !is_ordered_after(base, base + bytes, &nothing);
}

static void watch(bool is_on) {
    ashlar__soft_hooks.submit = is_on ? submit : NULL;
    ashlar__soft_hooks.end = is_on ? end : NULL;
    ashlar__soft_hooks.see = is_on ? see : NULL;
    ashlar__soft_hooks.snapshot = is_on ? snapshot : NULL;
    ashlar__soft_hooks.is_used = is_on ? is_used : NULL;
}

static void reset(void) {
    watch(false);
    ashlar__soft_clock_clear(&oracle.seen);
    for (int i = 0; i < SOFT_DEVICES_MAX; i++) {
        ashlar__soft_clock_clear(&oracle.ended[i][false]);
        ashlar__soft_clock_clear(&oracle.ended[i][true]);
    }
    ashlar__host_free(oracle.uses);
    oracle.uses = NULL;
    oracle.use_count = oracle.use_capacity = 0;
    oracle.is_lost = oracle.watches_copies = false;
    oracle.misordered = 0;
}

/* ---- uses ---- */

/* Record a use, and forget the recorded uses that no longer matter: those that the host has seen
 * finished, and earlier ones of the same stream that lie within its bytes. False: no host
 * memory. */
static bool put_use(const soft_use *use) {
    size_t kept = 0;
    for (size_t i = 0; i < oracle.use_count; i++) {
        const soft_use *old = &oracle.uses[i];
        const bool is_within =
            old->serial == use->serial && use->base <= old->base && old->end <= use->end;
        if (!is_within && !is_seen(old)) {
            oracle.uses[kept++] = *old;
        }
    }
    oracle.use_count = kept;
    soft_use *uses = ashlar__soft_grow(oracle.uses, kept, &oracle.use_capacity, sizeof *uses);
    if (uses == NULL) {
        return false;
    }
    oracle.uses = uses;
    uses[oracle.use_count++] = *use;
    return true;
}

static ashlar_status lost(const char *what) {
    return ashlar__fail(ASHLAR_EHOSTMEM, "%s: host memory ran out, so that the order is not known",
                        what);
}

/* Check arguments and find the stream. On success the lock is held. */
static ashlar_status enter_oracle(const char *what, cu_ptr ptr, size_t bytes, cu_stream handle,
                                  soft_stream **stream) {
    if (bytes == 0 || bytes > UINTPTR_MAX - (uintptr_t)ptr) {
        return ashlar__fail(ASHLAR_EINVAL, "%s: %zu bytes at %#llx", what, bytes, ptr);
    }
    const cu_result result = ashlar__soft_enter_stream(ASHLAR_DRIVER_FN_COUNT, handle, stream);
    if (result != CU_SUCCESS) {
        return result == CU_OUT_OF_MEMORY
                   ? lost(what)
                   : ashlar__fail(ASHLAR_EINVAL, "%s: CUDA error %u", what, result);
    }
    if ((*stream)->capture == NULL && !oracle.is_lost) {
        return ASHLAR_OK;
    }
    (void)ashlar__soft_leave(CU_SUCCESS);
    return oracle.is_lost ? lost(what)
                          : ashlar__fail(ASHLAR_EINVAL, "%s: the stream is capturing", what);
}

size_t ashlar__soft_clock_watch_copies(void) {
    ashlar__lock_acquire(&ashlar__soft_state.lock);
    ashlar__soft_hooks.reset = reset;
    watch(true);
    oracle.watches_copies = true;
    const size_t misordered = oracle.misordered + oracle.is_lost;
    ashlar__lock_release(&ashlar__soft_state.lock);
    return misordered;
}

ashlar_status ashlar__soft_clock_use(cu_ptr ptr, size_t bytes, cu_stream stream) {
    static const char what[] = "ashlar__soft_clock_use";
    soft_stream *found = NULL;
    ASHLAR_TRY(enter_oracle(what, ptr, bytes, stream, &found));
    const soft_op op = {.number = ++ashlar__soft_state.submitted};
    const soft_use use = {(uintptr_t)ptr, (uintptr_t)ptr + bytes, found->serial, op.number};
    ashlar__soft_hooks.reset = reset;
    watch(true);
    submit(found, &op);
    oracle.is_lost |= !put_use(&use);
    const bool is_lost = oracle.is_lost;
    (void)ashlar__soft_leave(CU_SUCCESS);
    return is_lost ? lost(what) : ASHLAR_OK;
}

ashlar_status ashlar__soft_clock_own(cu_ptr ptr, size_t bytes, cu_stream stream, bool *is_ordered) {
    static const char what[] = "ashlar__soft_clock_own";
    soft_stream *found = NULL;
    ASHLAR_TRY(enter_oracle(what, ptr, bytes, stream, &found));
    soft_clock after = {0}; /* what the next op of the stream will come after */
    join_or_lose(&after, &found->clock);
    join_legacy_order(&after, found);
    const bool is_lost = oracle.is_lost;
    if (!is_lost) {
        *is_ordered = is_ordered_after((uintptr_t)ptr, (uintptr_t)ptr + bytes, &after);
    }
    ashlar__soft_clock_clear(&after);
    (void)ashlar__soft_leave(CU_SUCCESS);
    return is_lost ? lost(what) : ASHLAR_OK;
}
