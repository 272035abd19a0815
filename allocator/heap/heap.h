/*
 * heap.h - device memory cut into blocks: gaps, used blocks, what is mapped behind them (internal).
 *
 * The heap keeps each stream's blocks in the stream's own zones (zone.h). It decides nothing about
 * the order of streams: the allocator chooses whose gap may serve a request, and what to do if
 * memory is missing.
 *
 * Invariants (ashlar__heap_check; those of windows: zone.h):
 *   range.mapped_bytes == handle_bytes * (spare handles + mapped ones), or the sum of all segments
 *   used_bytes of a zone == sum of its used blocks;  of all zones <= range.mapped_bytes
 *   a gap is in the bins of its window's zone, and in no other bins
 *   the page map has the used blocks; for plan memory it has the slot blocks instead
 *   a used block has requested <= bytes and a stream; a gap has requested == 0 and no stream
 */
#ifndef ASHLAR_HEAP_H
#define ASHLAR_HEAP_H

#include "allocator/heap/page_map.h"
#include "allocator/heap/range.h"
#include "allocator/heap/stream_state.h"

typedef struct ashlar_node_chunk ashlar_node_chunk;

/* Lock: the allocator's, for all but zones and windows: zone.h says who may touch these. */
typedef struct ashlar_heap {
    ashlar_range range;
    ashlar_page_map map;
    ashlar_window *windows; /* address order */
    size_t window_count;
    ashlar_zone *zones;               /* the zones that have windows */
    size_t away_bytes;                /* of used blocks that are away; see away.h */
    ashlar_stream_state *awaited;     /* list of the streams that blocks away wait for (away.h) */
    ashlar_stream_state *awaited_end; /* the last of them */
    _Atomic uint64_t use_clock;       /* see ashlar__heap_clock() */
    uint64_t short_at;                /* use_clock when a request last wanted memory of another
                                       * stream; 0: none did */
    uint64_t short_count;             /* the number of such requests */
    bool was_short;                   /* a request once found no memory left to be mapped, or left
                                       * none: then steps need the addresses that they had */
    uint64_t waited_at;               /* use_clock when a request last waited; 0: none did */
    bool is_near_limit;               /* most of the limit is taken, and several streams are known,
                                       * so that one may soon want what another one frees: large
                                       * frees of the program record an event, too, since the work
                                       * queued after them may wait for what the program does next */
    bool is_settling;                 /* streams are about to be asked whether they are idle, so
                                       * frees record no event: a stream with a new event is not
                                       * idle */
    uint64_t away_frees;              /* frees after which a block may be away; see away.h */
    uint64_t left_away;               /* blocks that were still away when a held step
                                       * (ashlar_step_key.is_held) began, so the step's addresses
                                       * depend on the device's timing; see away.h */
    uint64_t *events_recorded;        /* const; counts the recordings of all streams */
    ashlar_node_pool nodes;           /* zones take a few of these at a time */
    ashlar_node_chunk *chunks;        /* the host memory of all nodes */
    ashlar_use *spare_uses;           /* unused nodes, for uses by further streams */
} ashlar_heap;

/* Errors: as for ashlar_allocator_create(). handle_bytes: as for ashlar__range_init(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_init(ashlar_heap *heap, ashlar_driver_client *client,
                                                  ashlar_range_kind kind, size_t handle_bytes,
                                                  uint64_t *events_recorded);
void ashlar__heap_finish(ashlar_heap *heap);

/* The sum of the used blocks. O(zones). */
static inline size_t ashlar__heap_used_bytes(const ashlar_heap *heap) {
    size_t bytes = 0;
    for (const ashlar_zone *zone = heap->zones; zone != NULL; zone = zone->next) {
        bytes += zone->used_bytes;
    }
    return bytes;
}

/* Bytes taken from the driver that belong to no used block. O(zones). */
static inline size_t ashlar__heap_free_bytes(const ashlar_heap *heap) {
    return heap->range.mapped_bytes - ashlar__heap_used_bytes(heap);
}

/*
 * Uses of streams' memory are counted, to find the stream whose last use is oldest. A thread inside
 * its cache counts on a clock of its own, ahead of this one. This clock catches up once the thread
 * has the lock or is shut out. So of two uses the later one has the larger number, unless two
 * threads made them before either clock was caught up.
 */
static inline uint64_t ashlar__heap_clock(const ashlar_heap *heap) {
    return atomic_load_explicit(&heap->use_clock, memory_order_relaxed);
}

/* Lock: held. */
static inline void ashlar__heap_catch_up(ashlar_heap *heap, uint64_t clock) {
    if (clock > ashlar__heap_clock(heap)) {
        atomic_store_explicit(&heap->use_clock, clock, memory_order_relaxed);
    }
}

/* Count a use. Lock: held. */
static inline uint64_t ashlar__heap_count_use(ashlar_heap *heap) {
    ashlar__heap_catch_up(heap, ashlar__heap_clock(heap) + 1);
    return ashlar__heap_clock(heap);
}

/* After this many further uses, memory no longer counts as short. */
enum { ASHLAR_SHORT_USES = 1 << 16 };

/*
 * Whether a request recently wanted memory of another stream. Then misses take the lock. The result
 * turns true only while all threads are shut out.
 */
static inline bool ashlar__heap_is_short(const ashlar_heap *heap) {
    return heap->short_at != 0 && ashlar__heap_clock(heap) - heap->short_at < ASHLAR_SHORT_USES;
}

/*
 * Whether a request recently had to wait. Then large frees record an event, so that a request that
 * waits for one does not also wait for all work queued since.
 */
static inline bool ashlar__heap_has_waited(const ashlar_heap *heap) {
    return heap->waited_at != 0 && ashlar__heap_clock(heap) - heap->waited_at < ASHLAR_SHORT_USES;
}

/* The zone of the stream for blocks of `bytes` bytes. */
static inline ashlar_zone *ashlar__zone_of(ashlar_stream_state *state, size_t bytes) {
    return &state->zones[bytes > ASHLAR_SC_MAX_BYTES ? ASHLAR_ZONE_LARGE : ASHLAR_ZONE_SMALL];
}

/* ---- taking blocks and putting them back ---- */

/*
 * The bytes of memory still to be mapped before the first `bytes` of a gap can be taken. Cost: O(1)
 * if all of the gap is mapped, otherwise O(handles in those bytes).
 */
size_t ashlar__heap_missing(const ashlar_heap *heap, const ashlar_block *gap, size_t bytes);

/* Whether ashlar__heap_missing() is 0. */
bool ashlar__heap_is_backed(const ashlar_heap *heap, const ashlar_block *gap, size_t bytes);

/*
 * Whether a gap is a whole segment, and memory is short: then exchanging the segment may be better
 * than cutting it.
 */
static inline bool ashlar__heap_is_short_segment(const ashlar_heap *heap, const ashlar_block *gap) {
    return heap->range.segments != NULL && ashlar__heap_is_short(heap) && gap->prev == NULL &&
           gap->next == NULL;
}

/*
 * Take `bytes` from the front of a gap, where all memory must be mapped. The gap's front becomes a
 * used block in the page map; the caller must set its stream_state, requested and tag.
 *
 * bytes   > 0, a multiple of ASHLAR_BLOCK_ALIGN, at most gap->bytes
 *
 * Errors: ASHLAR_EHOSTMEM; then nothing has changed.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_take(ashlar_heap *heap, ashlar_block *gap,
                                                  size_t bytes);

/*
 * Take `bytes` from the best fit among the gaps of a zone, for a caller that may touch the zone but
 * does not hold the lock. NULL: no gap fits, or the zone's own memory, nodes and pages do not
 * suffice; then nothing has changed.
 *
 * may_be_last   whether to accept the gap at a window's end
 */
ashlar_block *ashlar__heap_take_fit(ashlar_heap *heap, ashlar_zone *zone, size_t bytes,
                                    bool may_be_last);

/*
 * Give the zone's pool at least `count` nodes. Call this before changing anything, so that no
 * change fails midway.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_reserve_nodes(ashlar_heap *heap, ashlar_zone *zone,
                                                           size_t count);

/*
 * _find_: find `bytes` contiguous bytes of a gap that have memory, for another stream than its
 * owner: those whose last use is longest ago. They often lie at the end of such a run, since a
 * stream that frees in reverse order frees them first, and allocates from the front again. Cost:
 * O(handles). _take_: take them, as ashlar__heap_take() does; *out is the block.
 */
bool ashlar__heap_find_run(const ashlar_heap *heap, const ashlar_block *gap, size_t bytes,
                           size_t *offset);
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_take_run(ashlar_heap *heap, ashlar_block *gap,
                                                      size_t offset, size_t bytes,
                                                      ashlar_block **out);

/*
 * Make a used block part of a gap again, stamped with the work of its zone's owner up to now. No
 * other stream may still be using the block. Cannot fail.
 */
void ashlar__heap_put(ashlar_heap *heap, ashlar_block *block);

/* Like ashlar__heap_put(), for a block whose last use by the owner came before the recording
 * numbered `covered_by`; 0: no queued work uses the block. */
void ashlar__heap_put_stamped(ashlar_heap *heap, ashlar_block *block, uint64_t covered_by);

/* Whether the device is done with all memory of a window's [offset, offset + bytes). */
bool ashlar__heap_is_past_at(const ashlar_heap *heap, const ashlar_window *window, size_t offset,
                             size_t bytes);

/* Like ashlar__heap_is_past_at(), for the first `bytes` of a gap. */
static inline bool ashlar__heap_is_past(const ashlar_heap *heap, const ashlar_block *gap,
                                        size_t bytes) {
    return ashlar__heap_is_past_at(heap, gap->window, gap->offset, bytes);
}

/*
 * The tick of the owner's last use of [offset, offset + bytes) of a window. The device must not
 * be known to be done with this use.
 */
uint64_t ashlar__heap_tick_at(const ashlar_heap *heap, const ashlar_window *window, size_t offset,
                              size_t bytes);

/* ---- the least memory for a block: heap_place.c ---- */

/* Where in a gap a block could lie. */
typedef struct ashlar_heap_place {
    ashlar_block *gap;
    size_t offset, bytes; /* [offset, offset + bytes) lies wholly in the gap */
} ashlar_heap_place;

/*
 * Find the place, in the gaps of all zones, where a block for `state` takes the fewest handles that
 * could serve elsewhere, whether or not memory is mapped there. Of equal places, one in the
 * stream's own zone for such blocks is preferred, then one in its other zone, then one in the
 * smallest gap. In another stream's zone the last use must be over. False: there is no such place.
 * Cost: O(gaps + handles).
 */
bool ashlar__heap_find_place(const ashlar_heap *heap, ashlar_stream_state *state, size_t bytes,
                             ashlar_heap_place *out);

/* ---- memory: heap_map.c ---- */

/*
 * Give a zone a gap of at least `bytes` bytes, adding a window if necessary. A segment comes with
 * memory, a window of virtual memory without.
 *
 * Errors: ASHLAR_ENOMEM (no addresses; segments: as ashlar__range_take_segment()), ASHLAR_EDRIVER,
 * ASHLAR_EHOSTMEM; then nothing has changed.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_add_window(ashlar_heap *heap, ashlar_zone *zone,
                                                        size_t bytes);

/* A segment shared by equal blocks may leave at most 1/16 of itself unused. */
enum { ASHLAR_WASTE_DIVISOR = 16 };

/*
 * Whether memory is short, and a gap is a whole segment of which blocks of `bytes` bytes would
 * leave more than 1/ASHLAR_WASTE_DIVISOR unused.
 */
static inline bool ashlar__heap_is_misfit(const ashlar_heap *heap, const ashlar_block *gap,
                                          size_t bytes) {
    return ashlar__heap_is_short_segment(heap, gap) &&
           gap->bytes % bytes > gap->bytes / ASHLAR_WASTE_DIVISOR;
}

/*
 * Take a new segment for blocks of `bytes` bytes into the zone of the gap `misfit`. If the driver
 * has no room for it, and the device is done with the gap, give the gap's segment back first.
 * Errors: as ashlar__heap_add_window(); then the gap's segment may be gone.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_exchange(ashlar_heap *heap, ashlar_block *misfit,
                                                      size_t bytes);

/* Where to get missing memory if the spare handles do not suffice: bits, tried in this order. */
enum {
    ASHLAR_MAY_CREATE = 1, /* take new handles */
    ASHLAR_MAY_MOVE = 2,   /* take free handles of all zones that the device is done with; those
                            * of ended streams first */
};

/*
 * Map the memory that is missing behind a place.
 *
 * Errors: ASHLAR_ENOMEM (beyond the limit, found before any driver call; refused by the device;
 *         too little is free), ASHLAR_EDRIVER, ASHLAR_EHOSTMEM. No memory is lost then; some may
 *         have become spare.
 * Cost:   two driver calls for each handle, three if it is moved, and one for each run of handles.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_back_at(ashlar_heap *heap,
                                                     const ashlar_heap_place *place, unsigned may);

/* The bytes of memory still to be mapped behind a place. */
size_t ashlar__heap_missing_at(const ashlar_heap *heap, const ashlar_heap_place *place);

/* Like ashlar__heap_back_at(), for the first `bytes` of a gap. */
ASHLAR_MUST_CHECK static inline ashlar_status
ashlar__heap_back(ashlar_heap *heap, ashlar_block *gap, size_t bytes, unsigned may) {
    return ashlar__heap_back_at(heap, &(ashlar_heap_place){gap, gap->offset, bytes}, may);
}

/*
 * Take memory from the driver until at least `bytes` bytes in total are taken. New memory becomes
 * spare handles, or one segment in `zone`. Errors: as for ashlar__heap_back().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_reserve(ashlar_heap *heap, ashlar_zone *zone,
                                                     size_t bytes);

/* ---- giving back: heap_trim.c ---- */

/*
 * Return free memory that the device is done with, in whole handles or segments, until at most
 * `target_bytes` bytes are taken or nothing more can be returned.
 *
 * Errors: ASHLAR_EDRIVER, ASHLAR_EHOSTMEM; memory returned before that stays returned.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_trim(ashlar_heap *heap, size_t target_bytes);

/*
 * Unmap up to `count` free handles that the device is done with, and keep them as spare ones. The
 * place `kept` keeps its handles; it may be NULL. *moved: the number of handles unmapped. Errors:
 * as ashlar__heap_trim().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_unmap_free(ashlar_heap *heap,
                                                        const ashlar_heap_place *kept, size_t count,
                                                        size_t *moved);

/*
 * How much of the memory taken from the driver can serve blocks of a handle's size once all queued
 * work is over and the caches are empty: whole handles, or places in segments. Places serve one
 * larger block only if they lie side by side. Requires that all caches are claimed. O(blocks).
 */
size_t ashlar__heap_servable_bytes(const ashlar_heap *heap);

/* ---- zones that change hands ---- */

/*
 * Move all windows of `from` to `to`. No queued work but that of `to` may use the gaps. They are
 * stamped with the work of `to` up to now, or as past if `is_past`.
 */
void ashlar__zone_move(ashlar_heap *heap, ashlar_zone *from, ashlar_zone *to, bool is_past);

/* Take back the nodes of a stream's zones, which have no windows. */
void ashlar__heap_return_nodes(ashlar_heap *heap, ashlar_stream_state *state);

/* ---- all blocks ---- */

/* The first block of the heap, and the next in address order, gaps included; NULL at the end. */
static inline ashlar_block *ashlar__heap_first(const ashlar_heap *heap) {
    return heap->windows != NULL ? heap->windows->first : NULL;
}

static inline ashlar_block *ashlar__heap_next(const ashlar_block *block) {
    return block->next != NULL            ? block->next
           : block->window->above != NULL ? block->window->above->first
                                          : NULL;
}

/* A block, or a part of a gap that is either all mapped or all unmapped. */
typedef struct ashlar_heap_piece {
    const ashlar_block *block;
    size_t offset, bytes;
    bool is_mapped;
} ashlar_heap_piece;

/*
 * Move on to the next piece by address; {0} is the place before the first one. False: at the end.
 */
bool ashlar__heap_next_piece(const ashlar_heap *heap, ashlar_heap_piece *piece);

/* The block or gap that contains `offset`; NULL: it lies in no window. For messages. O(blocks). */
const ashlar_block *ashlar__heap_find(const ashlar_heap *heap, size_t offset);

/* Whether memory is mapped at `offset`. O(windows). */
bool ashlar__heap_is_mapped(const ashlar_heap *heap, size_t offset);

/*
 * Let another device use all memory of the heap, now and later. Errors: ASHLAR_ENOTSUP (segments,
 * too many peers, no such peer), ASHLAR_EDRIVER, ASHLAR_ENOMEM; then the device may use no more
 * than before.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_allow_peer(ashlar_heap *heap, int ordinal);

/* Check all invariants. Errors: ASHLAR_EFORMAT, naming the broken one. O(blocks + handles). */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_check(const ashlar_heap *heap);

#endif /* ASHLAR_HEAP_H */
