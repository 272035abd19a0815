/*
 * world_available.h - the law of availability: a request that the plain driver would serve, once
 * everything idle was given back and every stream was asked or waited for, is served.
 *
 * What is not available: whole handles that a live block touches; memory of graphs that are not
 * released; of plans that a step is in; the rest of the device's memory if nobody's idle memory can
 * be given back; what is above the limit, or behind a seal. During captures also what was last used
 * on a stream that may not be asked about until they end: a captured one, or a default stream.
 */
#ifndef ASHLAR_WORLD_AVAILABLE_H
#define ASHLAR_WORLD_AVAILABLE_H

#include "tests/allocator/world/world_state.h"

static inline size_t bytes_of_block(size_t bytes) {
    size_t rounded = 0;
    EXPECT(ashlar__block_bytes(bytes, &rounded));
    return rounded;
}

static inline bool is_of(const store *s, const world_block *b) {
    return b->ptr != NULL && b->store == store_number(s);
}

/* Whether the memory of plans can serve anything: no step is in it, and no live block. */
static inline bool are_plans_idle(const store *s) {
    for (int t = 0; t < THREADS; t++) {
        if (s->step_depth[t] > 0) {
            return false;
        }
    }
    for (size_t i = 0; i < SLOTS; i++) {
        if (is_of(s, &world.blocks[i]) && world.blocks[i].is_of_step) {
            return false;
        }
    }
    return true;
}

static inline size_t free_memory(const place *at) {
    size_t free_bytes = 0, total_bytes = 0;
    EXPECT_OK(ashlar__device_enter(at->device));
    EXPECT(at->device->driver->table.mem_get_info(&free_bytes, &total_bytes) == CU_SUCCESS);
    ashlar__device_leave(at->device);
    return free_bytes;
}

static inline const ashlar_range *range_of(const store *s) {
    return &s->allocator->heap.range;
}

static inline size_t offset_of(const store *s, const world_block *b) {
    return (size_t)(ashlar__ptr_in(b->ptr) - range_of(s)->base);
}

/* ---- what is taken ---- */

/* A store's memory, as one request may have it. */
typedef struct world_view {
    const store *s;
    unsigned closed;     /* lanes that can be neither asked about nor waited for */
    bool is_of_pool;     /* the request is a graph's */
    bool has_plans;      /* plan memory is in use */
    bool has_gaps_known; /* else no memory but the driver's is known to be free */
} world_view;

typedef struct world_span {
    size_t begin, end;
} world_span;

/* The earlier of two spans that reach beyond `from`. */
static inline void keep_first(world_span *first, size_t from, size_t begin, size_t end) {
    if (end > from && begin < first->begin) {
        *first = (world_span){begin, end};
    }
}

/* The first span of a window that is taken and ends behind `from`; at `to`: there is none. */
static inline world_span next_taken(const world_view *v, const ashlar_window *w, size_t from,
                                    size_t to) {
    const store *s = v->s;
    world_span first = {to, to};
    if (w->zone->owner->is_pool && !v->is_of_pool) {
        return (world_span){from, to};
    }
    for (size_t i = 0; i < SLOTS; i++) {
        const world_block *b = &world.blocks[i];
        if (is_of(s, b)) {
            keep_first(&first, from, offset_of(s, b), offset_of(s, b) + b->block_bytes);
        }
    }
    for (size_t i = 0; i < s->gap_count; i++) {
        const world_gap *g = &s->gaps[i];
        if ((g->lanes & v->closed) != 0 || (g->is_of_pool && !w->zone->owner->is_pool)) {
            keep_first(&first, from, g->offset, g->offset + g->bytes);
        }
    }
    for (const ashlar_block *b = v->has_plans ? w->first : NULL; b != NULL; b = b->next) {
        if (b->state == ASHLAR_BLOCK_PLAN_MEMORY) {
            keep_first(&first, from, b->offset, b->offset + b->bytes);
        }
    }
    return first;
}

/* Where the mapped memory without a hole that starts with handle i of a window ends. */
static inline size_t run_of_handles(const ashlar_window *at, size_t size, size_t i) {
    while (i < at->bytes / size && at->backing[i].is_mapped) {
        i++;
    }
    return at->offset + i * size;
}

/* The largest gap in [start, end), which is mapped. */
static inline size_t largest_gap_in(const world_view *v, const ashlar_window *w, size_t start,
                                    size_t end) {
    size_t largest = 0;
    while (start < end) {
        const world_span taken = next_taken(v, w, start, end);
        const size_t gap = taken.begin > start ? taken.begin - start : 0;
        largest = gap > largest ? gap : largest;
        start = taken.end;
    }
    return largest;
}

/* The largest mapped gap. */
static inline size_t largest_gap(const world_view *v) {
    const size_t size = range_of(v->s)->handle_bytes;
    size_t largest = 0;
    for (const ashlar_window *at = v->s->allocator->heap.windows; at != NULL; at = at->above) {
        for (size_t i = 0; i < at->bytes / size; i++) {
            if (at->backing[i].is_mapped) {
                const size_t start = at->offset + i * size, end = run_of_handles(at, size, i);
                const size_t gap = largest_gap_in(v, at, start, end);
                largest = gap > largest ? gap : largest;
                i = (end - at->offset) / size - 1;
            }
        }
    }
    return largest;
}

/* Bytes of the handles, or segments, that nothing taken touches. */
static inline size_t idle_handle_bytes(const world_view *v) {
    const ashlar_range *range = range_of(v->s);
    size_t idle = range->spare_count * range->handle_bytes;
    for (const ashlar_window *at = v->s->allocator->heap.windows; at != NULL; at = at->above) {
        const size_t step = range->segments != NULL ? at->bytes : range->handle_bytes;
        for (size_t start = at->offset; start < at->offset + at->bytes; start += step) {
            const bool is_mapped =
                at->backing[(start - at->offset) / range->handle_bytes].is_mapped;
            idle += is_mapped && !at->zone->owner->is_pool &&
                            next_taken(v, at, start, start + step).begin == start + step
                        ? step
                        : 0;
        }
    }
    return idle;
}

/* ---- what is available ---- */

static inline size_t plan_bytes(const store *s) {
    size_t bytes = 0;
    for (const ashlar_window *w = s->allocator->heap.windows; w != NULL; w = w->above) {
        for (const ashlar_block *b = w->first; b != NULL; b = b->next) {
            bytes += b->state == ASHLAR_BLOCK_PLAN_MEMORY ? b->bytes : 0;
        }
    }
    return bytes;
}

static inline unsigned closed_lanes(const place *at) {
    return at->stuck | (is_any_captured() ? at->captured | (bit_of(LANE_MADE) - 1) : 0);
}

static inline world_view view_of(const store *s, int lane) {
    const world_capture *c = &s->capture;
    const bool is_sure = c->is_on && c->is_settled && !is_beside_capture(s) &&
                         !c->has_moved_plans && plan_bytes(s) == c->plan_bytes &&
                         world.set->thread_count == 1 && !s->is_watched &&
                         range_of(s)->segments == NULL;
    return (world_view){.s = s,
                        .closed = closed_lanes(s->at),
                        .is_of_pool = c->is_on && lane == c->lane,
                        .has_plans = !are_plans_idle(s) || is_any_captured(),
                        .has_gaps_known =
                            (is_sure || !is_any_captured()) && s->gap_count < GAPS_MAX};
}

/* What other allocators of the device can give back, and leave their plans as they are. */
static inline size_t idle_of_others(const store *s) {
    size_t idle = 0;
    for (int i = 0; i < world.set->store_count && world.set->has_law; i++) {
        const store *other = &world.stores[i];
        /* What a graph has borrowed lies in ordinary zones, too. */
        if (other != s && other->at == s->at && !other->is_sealed && !other->is_watched &&
            other->pool == NULL && !is_any_captured()) {
            world_view v = view_of(other, NO_LANE);
            v.has_plans = true;
            idle += idle_handle_bytes(&v);
        }
    }
    return idle;
}

static inline size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* What the store may take from its device on top of what it has, without others' idle memory. */
static inline size_t left_to_map(const store *s) {
    const size_t mapped = range_of(s)->mapped_bytes;
    return least(s->limit_bytes > mapped ? s->limit_bytes - mapped : 0, free_memory(s->at));
}

/*
 * Whether a request must be served: a gap would do, or whole handles, together with what may be
 * mapped.
 */
static inline bool must_fit(const world_view *v, size_t block_bytes) {
    const store *s = v->s;
    const ashlar_range *range = range_of(s);
    const bool has_law =
        world.set->has_law || (!is_any_captured() && s->pool == NULL && !v->has_plans);
    if (world.set->guard != 0 || !has_law) {
        return false;
    }
    if (v->has_gaps_known && largest_gap(v) >= block_bytes) {
        return true;
    }
    if (s->is_sealed && s->is_refusing) {
        return false;
    }
    /* Segments cannot move: they have to be freed first. */
    const bool is_movable = range->segments == NULL || range->mapped_bytes <= s->limit_bytes;
    const size_t need = (block_bytes + range->handle_bytes - 1) & ~(range->handle_bytes - 1);
    const size_t idle = v->has_gaps_known ? idle_handle_bytes(v) : 0;
    const size_t mapped = range->mapped_bytes;
    const size_t left = least(s->limit_bytes > mapped ? s->limit_bytes - mapped : 0,
                              free_memory(s->at) + idle_of_others(s));
    return is_movable && idle + left >= need;
}

static inline void check_refusal(const store *s, int lane, size_t block_bytes) {
    const world_view v = view_of(s, lane);
    const bool has_law = !is_any_captured() || world.set->has_law;
    if (has_law && must_fit(&v, block_bytes)) {
        const size_t others = idle_of_others(s);
        wrong("out of memory though %s: %zu bytes in gaps, %zu in idle handles, %zu to map, "
              "%zu of others, for %zu",
              v.is_of_pool            ? "a capture can have it"
              : is_any_captured()     ? "memory is free beside a capture"
              : idle_of_others(s) > 0 ? "another allocator has idle memory"
              : s->pool != NULL       ? "memory is free beside a graph's"
              : v.has_plans           ? "memory is free beside plans in use"
                                      : "memory is free",
              largest_gap(&v), idle_handle_bytes(&v), left_to_map(s), others, block_bytes);
    }
}

/* Not for want of memory, but for a stream that another allocator's capture has. */
static inline void check_refused_beside(const store *s, int lane, size_t block_bytes) {
    const world_view v = view_of(s, lane);
    if (world.set->has_law && must_fit(&v, block_bytes)) {
        wrong("refused for another allocator's capture: %s", ashlar_error_detail());
    }
}

/* ---- what is freed while captures are on ---- */

/* Whether the block lies in addresses of a graph's own. Else a graph that is not released keeps it
 * from all others. */
static inline bool lies_in_pool(const store *s, const world_block *b) {
    const size_t at = offset_of(s, b);
    const ashlar_window *w = s->allocator->heap.windows;
    while (w != NULL && (at < w->offset || at >= w->offset + w->bytes)) {
        w = w->above;
    }
    return w != NULL && w->zone->owner->is_pool;
}

/* A block is about to be the allocator's. A graph's pool has its blocks back but for what other
 * streams do with them. */
static inline void note_gap(store *s, const world_block *b) {
    unsigned lanes = b->recorded | b->readers | bit_of(b->last) | bit_of(b->home);
    const bool is_closed = is_any_captured() || s->at->stuck != 0;
    const bool is_apart = b->is_of_pool && !lies_in_pool(s, b);
    if ((!is_closed && !is_apart) || s->gap_count == GAPS_MAX) {
        return;
    }
    if (b->home == NO_LANE || b->last == NO_LANE) {
        lanes = UINT32_MAX;
    }
    lanes &= b->is_of_pool ? ~bit_of(b->home) : UINT32_MAX;
    /* When memory was used last is known for each handle as a whole. */
    const size_t mask = range_of(s)->handle_bytes - 1, begin = offset_of(s, b) & ~mask;
    const size_t end = (offset_of(s, b) + b->block_bytes + mask) & ~mask;
    s->gaps[s->gap_count++] = (world_gap){begin, end - begin, lanes, b->is_of_pool};
}

/* Nothing is closed any more; what is a graph's stays, up to its release. */
static inline void forget_gaps(store *s) {
    size_t kept = 0;
    for (size_t i = 0; i < s->gap_count && s->pool != NULL; i++) {
        if (s->gaps[i].is_of_pool) {
            s->gaps[kept] = s->gaps[i];
            s->gaps[kept++].lanes = 0;
        }
    }
    s->gap_count = s->gap_count == GAPS_MAX && s->pool != NULL ? GAPS_MAX : kept;
}

#endif /* ASHLAR_WORLD_AVAILABLE_H */
