/* planner_memory.c - taking the memory that a stream's plans share, for their slots, so that a plan
 * costs no more than it saves. */
#include "allocator/step/step.h"

#include <stdlib.h>

#include "allocator/base/host.h"
#include "allocator/base/error.h"
#include "allocator/core/core.h"
#include "allocator/heap/heap.h"

/* ---- a block of the heap ---- */

/* How long to wait at most for memory that queued work still uses, even if search_ms is longer. */
enum { WAIT_MS_MAX = 1000 };

/* Whether the memory is for a step that begins now, whose plan lost its own; if not, it is for a
 * new plan, and there is time to wait for it. */
static bool is_in_step(const ashlar_request *r) {
    return r->own != NULL && r->own->own_replay != NULL && r->own->own_replay->depth > 0;
}

static uint64_t wait_ns(const ashlar_allocator *a, const ashlar_request *r) {
    const uint64_t ms = a->planner.options.search_ms;
    const bool may_wait = !is_in_step(r) && ms != ASHLAR_PLAN_SEARCH_NONE;
    return !may_wait ? 0 : 1000000 * (ms < WAIT_MS_MAX ? ms : WAIT_MS_MAX);
}

/* Take a place in the zones of the request's stream behind which all memory is mapped. */
static ashlar_status take_mapped(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out) {
    ashlar_heap_place place;
    for (size_t kind = ASHLAR_ZONE_COUNT; kind-- > 0;) {
        if (ashlar__rung_find_place(a, &r->stream_state->zones[kind], r, false, &place)) {
            return ashlar__rung_take_place(a, r, &place, out);
        }
    }
    return ASHLAR_OK;
}

/* Take the place in the stream's zones that lacks the fewest handles, and map free ones there.
 * Segments cannot be moved: give free ones back, so that the driver has room for the plan's. */
static ashlar_status take_moved(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out) {
    ashlar_heap_place place;
    bool is_there = false;
    if (a->heap.range.segments != NULL) {
        return is_in_step(r) ? ASHLAR_OK : ashlar__heap_trim(&a->heap, 0);
    }
    if (ashlar__heap_find_place(&a->heap, r->stream_state, r->bytes, &place)) {
        ASHLAR_TRY(ashlar__rung_move_to(a, &place, &is_there));
    }
    return is_there ? ashlar__rung_take_place(a, r, &place, out) : ASHLAR_OK;
}

/* Whether there is enough free memory, but queued work still uses some of it. */
static bool may_wait(const ashlar_allocator *a, const ashlar_request *r) {
    if (ashlar__heap_free_bytes(&a->heap) < r->bytes) {
        return false;
    }
    const ashlar_stream_state *state = a->stream_states;
    while (state != NULL && (state->pending_count == 0 || ashlar__stream_state_is_quiet(state))) {
        state = state->next;
    }
    return state != NULL;
}

/* Look for memory, and wait for work that uses some. The wait has an end, since the work may depend
 * on what the program does next. */
static ashlar_status gather(ashlar_allocator *a, const ashlar_request *r, ashlar_block **out) {
    const uint64_t began = ashlar__clock_ns(), most = wait_ns(a, r);
    long pause_ns = ASHLAR_PAUSE_NS_MIN;
    for (bool is_first = true, goes_on = true; goes_on && *out == NULL; is_first = false) {
        if (!is_first) {
            ashlar__allocator_leave(a);
            ashlar__clock_pause(&pause_ns);
            ashlar__allocator_enter(a);
        }
        a->client.is_wanting = true;
        ashlar_status status = ashlar__rung_ask_all(a);
        a->client.is_wanting = false;
        ASHLAR_THEN(status, take_mapped(a, r, out));
        if (status == ASHLAR_OK && *out == NULL) {
            status = take_moved(a, r, out);
        }
        ASHLAR_TRY(status);
        goes_on = may_wait(a, r) && ashlar__clock_ns() - began < most;
    }
    return ASHLAR_OK;
}

size_t ashlar__plan_free_bytes(const ashlar_allocator *a, const ashlar_stream_state *state) {
    size_t bytes = 0;
    for (size_t kind = 0; kind < ASHLAR_ZONE_COUNT; kind++) {
        const ashlar_zone *zone = &state->zones[kind];
        for (const ashlar_window *w = zone->windows; w != NULL; w = w->next) {
            bytes += w->mapped_count * a->heap.range.handle_bytes;
        }
        bytes -= zone->used_bytes;
    }
    return bytes;
}

/* Whether mapping the plan's memory would make the allocator reserve more than may_reserve, while
 * memory in the stream's own zones is free; both by more than ashlar__planner_spare_bytes(). (Other
 * streams' zones do not count: without a plan, too, more is mapped before they are used.) False if
 * the device has not so much left: then the memory comes from what is reserved. */
static bool is_too_dear(const ashlar_allocator *a, const ashlar_request *r, size_t may_reserve) {
    const ashlar_range *range = &a->heap.range;
    ashlar_heap_place place = {0};
    size_t lacking = r->bytes;
    if (ashlar__heap_find_place(&a->heap, r->stream_state, r->bytes, &place)) {
        lacking = ashlar__heap_missing_at(&a->heap, &place);
    }
    const size_t spare = range->spare_count * range->handle_bytes;
    const size_t after = range->mapped_bytes + (lacking > spare ? lacking - spare : 0);
    return after - range->mapped_bytes <= ashlar__range_left(range) && after > may_reserve &&
           after - may_reserve > ashlar__planner_spare_bytes(&a->heap, may_reserve) &&
           ashlar__plan_free_bytes(a, r->stream_state) >
               ashlar__planner_spare_bytes(&a->heap, r->bytes);
}

/*
 * Take a block for the memory of a plan: from memory that is mapped and free, else from free memory
 * that can be moved (for a new plan, after a wait for work that uses it), and only then from more
 * of the device's. If that is_too_dear(), *out stays NULL. All caches are taken over.
 */
static ashlar_status place_locked(ashlar_allocator *a, const ashlar_request *r, size_t may_reserve,
                                  ashlar_block **out) {
    ashlar_rung unused;
    ASHLAR_OWNS(&a->lock);
    ashlar__caches_flush_locked(a);
    ASHLAR_TRY(take_mapped(a, r, out)); /* first without asking the driver what work is over */
    if (*out == NULL) {
        ASHLAR_TRY(gather(a, r, out));
    }
    if (*out != NULL || is_too_dear(a, r, may_reserve)) {
        return ASHLAR_OK;
    }
    const size_t before = a->heap.range.mapped_bytes;
    if (a->heap.range.segments == NULL && ashlar__rung_may_create(a) != 0) {
        ASHLAR_TRY(ashlar__rung_take_anywhere(a, r, out));
    }
    if (*out == NULL) {
        ASHLAR_TRY(ashlar__ladder_take_locked(a, r, out, &unused));
    }
    const size_t after = a->heap.range.mapped_bytes;
    if (may_reserve < SIZE_MAX && after > before) {
        r->stream_state->beside_bytes += after - before;
    }
    return ASHLAR_OK;
}

/* ---- memory ---- */

/* What the plans of one stream need together. */
typedef struct needs {
    ashlar_stream_state *stream_state;
    size_t bytes;    /* bytes of the largest plan */
    size_t *offsets; /* [count], the slots' offsets: rising, no two equal, < bytes */
    size_t count;
    size_t may_reserve; /* the most that the allocator reserved for a recorded step of their keys */
} needs;

/* Take a block of the heap. *out stays NULL if it costs too much. */
static ashlar_status take_block_locked(ashlar_allocator *a, ashlar_cache *own, const needs *n,
                                       ashlar_block **out) {
    ASHLAR_OWNS(&a->lock);
    const ashlar_request request = {.stream_state = n->stream_state, .bytes = n->bytes, .own = own};
    ashlar_block *block = NULL;
    if (n->bytes > a->heap.range.memory_bytes) {
        return ashlar__fail(ASHLAR_ENOMEM, "a plan of %zu bytes is more than the device has",
                            n->bytes);
    }
    const ashlar_status status = place_locked(a, &request, n->may_reserve, &block);
    ashlar__update_reserved_peak_locked(a);
    if (status == ASHLAR_OK && block != NULL) {
        ASHLAR_CHECK2(block->bytes >= n->bytes);
        block->stream_state = n->stream_state;
        *out = block;
    }
    return status;
}

/* Make a plan memory with a slot block at each offset. The caller adds it to the planner's list.
 * *out stays NULL if it costs too much. Lock: held; may be dropped and taken again meanwhile. */
static ashlar_status create_memory_locked(ashlar_allocator *a, ashlar_cache *own, const needs *n,
                                          ashlar_plan_memory **out) {
    ASHLAR_OWNS(&a->lock);
    ashlar_block *block = NULL;
    ASHLAR_ASSERT(n->count > 0 && n->bytes > 0);
    ashlar_plan_memory *memory = ashlar__plan_memory_new(n->count);
    if (memory == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a plan's memory");
    }
    ashlar_status status = take_block_locked(a, own, n, &block);
    if (status == ASHLAR_OK && block != NULL) {
        status = ashlar__plan_memory_place_locked(memory, &a->heap, block, n->offsets);
        if (status != ASHLAR_OK) {
            ashlar__release_block_locked(&a->heap, block, n->stream_state);
        }
    }
    if (status != ASHLAR_OK || block == NULL) {
        ashlar__plan_memory_free(memory);
        return status;
    }
    ASHLAR_CHECK2(memory->stream_state == n->stream_state && !memory->is_unused);
    *out = memory;
    return ASHLAR_OK;
}

/* ---- what the plans of a stream share ---- */

void ashlar__planner_leave_memory(ashlar_allocator *a, const ashlar_plan *plan) {
    for (uint32_t k = 0; k < plan->stream_count; k++) {
        ashlar_stream_state *state = plan->stream_plans[k].stream_state;
        ashlar_plan_memory *memory = ashlar__planner_memory(&a->planner, state);
        if (memory != NULL) {
            bool is_joined;
            ASHLAR_CHECK2(!memory->is_busy);
            memory->is_unused = true;
            /* Let the stream wait for other streams' uses first, so that the new memory may reuse
             * the old bytes. If it cannot wait, these bytes are kept until the uses are over. */
            if (ashlar__stream_state_can_wait(state, &a->client)) {
                ASHLAR_IGNORE(ashlar__cross_join(&a->heap, state, memory->block, &is_joined));
            }
        }
    }
    ashlar__planner_tidy_locked(&a->planner, &a->heap);
}

typedef void (*slot_fn)(void *context, ashlar_plan *plan, uint32_t i);

/* Call `visit` for every planned slot on the stream, in all plans. */
static void each_slot(const ashlar_allocator *a, const ashlar_stream_state *state, slot_fn visit,
                      void *context) {
    for (ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        for (uint32_t i = 0; key->plan != NULL && i < key->plan->count; i++) {
            const ashlar_slot *slot = &key->plan->slots[i];
            if (slot->bytes > 0 &&
                key->plan->stream_plans[slot->stream_idx].stream_state == state) {
                visit(context, key->plan, i);
            }
        }
    }
}

static void count_slot(void *context, ashlar_plan *plan, uint32_t i) {
    needs *n = context;
    const size_t bytes = plan->stream_plans[plan->slots[i].stream_idx].plan_bytes;
    ASHLAR_CHECK2(plan->offsets[i] + plan->slots[i].bytes <= bytes);
    n->bytes = bytes > n->bytes ? bytes : n->bytes;
    n->count++;
}

static void add_offset(void *context, ashlar_plan *plan, uint32_t i) {
    needs *n = context;
    n->offsets[n->count++] = plan->offsets[i];
}

static void set_slot_block(void *context, ashlar_plan *plan, uint32_t i) {
    const ashlar_plan_memory *memory = context;
    ASHLAR_CHECK2(plan->offsets[i] + plan->slots[i].bytes <= memory->block->bytes);
    plan->slots[i].slot_block = ashlar__plan_memory_block_at(memory, plan->offsets[i]);
    ASHLAR_CHECK2(!ashlar__slot_block_is_taken(plan->slots[i].slot_block));
}

static int by_size(const void *left, const void *right) {
    const size_t a = *(const size_t *)left, b = *(const size_t *)right;
    return a < b ? -1 : a > b;
}

static ashlar_status find_needs(const ashlar_allocator *a, ashlar_stream_state *state, needs *out) {
    *out = (needs){.stream_state = state};
    for (const ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        if (ashlar__plan_uses(key->plan, state) && key->reserved_bytes > out->may_reserve) {
            out->may_reserve = key->reserved_bytes;
        }
    }
    each_slot(a, state, count_slot, out);
    if (out->count == 0) {
        return ASHLAR_OK;
    }
    out->offsets = ashlar__host_calloc(out->count, sizeof *out->offsets);
    if (out->offsets == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for the offsets of a plan");
    }
    out->count = 0;
    each_slot(a, state, add_offset, out);
    qsort(out->offsets, out->count, sizeof *out->offsets, by_size);
    size_t kept = 0;
    for (size_t i = 0; i < out->count; i++) {
        if (kept == 0 || out->offsets[kept - 1] != out->offsets[i]) {
            out->offsets[kept++] = out->offsets[i];
        }
    }
    out->count = kept;
    return ASHLAR_OK;
}

void ashlar__planner_link_plans(const ashlar_allocator *a) {
    for (ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        if (key->plan != NULL && key->replay_count == 0 &&
            !ashlar__planner_lacks_memory(&a->planner, key->plan)) {
            ashlar__plan_link(key->plan);
        }
    }
}

/* Take plan memory for a stream that has none: for its slots in all plans. */
static ashlar_status take_memory(ashlar_allocator *a, ashlar_cache *own,
                                 ashlar_stream_state *state) {
    needs n;
    ashlar_plan_memory *memory = NULL;
    ashlar_status status = find_needs(a, state, &n);
    if (status == ASHLAR_OK && n.count > 0) {
        status = create_memory_locked(a, own, &n, &memory);
    }
    if (status == ASHLAR_OK && memory != NULL) {
        ASHLAR_CHECK2(ashlar__planner_memory(&a->planner, state) == NULL);
        memory->used_at = ashlar__heap_count_use(&a->heap);
        memory->next = a->planner.memories;
        a->planner.memories = memory;
        each_slot(a, state, set_slot_block, memory);
    }
    ashlar__host_free(n.offsets);
    return status;
}

ashlar_status ashlar__planner_take_lacking(ashlar_allocator *a, ashlar_cache *own,
                                           const ashlar_plan *plan) {
    ASHLAR_CHECK2(a->planner.is_installing); /* so no other thread replaces the memory meanwhile */
    for (uint32_t k = 0; k < plan->stream_count; k++) {
        ashlar_stream_state *state = plan->stream_plans[k].stream_state;
        if (ashlar__planner_memory(&a->planner, state) == NULL &&
            !ashlar__stream_state_has_ended(state)) {
            ASHLAR_TRY(take_memory(a, own, state));
        }
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__planner_take_again_locked(ashlar_allocator *a, ashlar_cache *own,
                                                ashlar_step_key *key) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_CHECK2(!a->planner.is_installing && !key->is_busy && !ashlar__plan_has_ended(key->plan));
    a->planner.is_installing = true;
    key->is_busy = true; /* no other thread may change the key while the lock is dropped */
    const ashlar_status status = ashlar__planner_take_lacking(a, own, key->plan);
    ashlar__planner_link_plans(a);
    key->is_busy = false;
    a->planner.is_installing = false;
    return status;
}
