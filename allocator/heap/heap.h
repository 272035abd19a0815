/*
 * heap.h - device memory cut into blocks: what is mapped behind addresses, gaps, used blocks, and
 * blocks that other streams may still use (internal).
 */
#ifndef ASHLAR_HEAP_H
#define ASHLAR_HEAP_H

#include "allocator/base/check_level.h"
#include "allocator/heap/page_map.h"
#include "allocator/heap/stream_state.h"

/* ---- addresses and memory: range.c ---- */

/* The default size of a handle. One small live block keeps its whole handle from being mapped
 * elsewhere; but smaller handles would cost more driver calls. */
#define ASHLAR_HANDLE_BYTES ((size_t)2 << 20)

enum { ASHLAR_PEERS_MAX = 31 };

typedef enum ashlar_range_kind {
    ASHLAR_RANGE_VIRTUAL,  /* mapped device memory; segments if the device cannot map */
    ASHLAR_RANGE_SEGMENTS, /* device memory in segments */
    ASHLAR_RANGE_HOST,     /* page-locked host memory in segments, which every device may use */
    ASHLAR_RANGE_SHARED,   /* device memory in segments, each one handle that can be shared */
} ashlar_range_kind;

typedef struct ashlar_segment_calls ashlar_segment_calls; /* defined in range.c */

/*
 * For ASHLAR_RANGE_VIRTUAL, if the device can map memory, one range of addresses is reserved.
 * Memory comes in handles of one size, which can be mapped at any multiple of that size, unmapped
 * and mapped elsewhere. Otherwise memory comes in segments, which lie where the driver puts them;
 * base is 0, and an offset is an address.
 *
 * Lock: the allocator's guards every field except those marked const.
 *
 * Invariants (ashlar__range_is_sound):
 *   mapped_bytes <= memory_bytes,  next_offset <= bytes
 *   spare_count <= spare_capacity,  spare_count * handle_bytes <= mapped_bytes
 *   the device may use all mapped handles, and no other byte of [base, base + bytes)
 */
typedef struct ashlar_range {
    ashlar_driver_client *client;         /* const */
    const ashlar_segment_calls *segments; /* const; the driver calls for segments; NULL: handles */
    cu_ptr base;                          /* const */
    size_t bytes;                         /* const; size of the address range */
    size_t handle_bytes;                  /* const; a handle's size; a segment's is a multiple */
    unsigned handle_shift;                /* const; handle_bytes == 1 << handle_shift */
    ashlar_range_kind kind;               /* const */
    size_t memory_bytes;                  /* const; all physical memory of `kind` */
    size_t limit_bytes;      /* most to take from the driver; lowering it returns nothing */
    size_t growth_min_bytes; /* segments: take at least this much at a time, if there is room */
    size_t mapped_bytes;     /* taken from the driver: mapped memory and spare handles */
    size_t next_offset;      /* addresses from here on are in no window yet */
    cu_mem_handle *spare;    /* [spare_count], handles that are mapped nowhere */
    size_t spare_count;
    size_t spare_capacity;
    int peers[ASHLAR_PEERS_MAX]; /* ordinals of other devices that may use the memory */
    size_t peer_count;
    cu_mem_prop shared;   /* for ASHLAR_RANGE_SHARED: what cuMemCreate is given */
    bool keeps_addresses; /* an unmap was refused: free no addresses, some are still mapped */
} ashlar_range;

/* Open a range with nothing mapped. handle_bytes: rounded up to a size the driver supports; 0: the
 * default. Errors: as for ashlar_allocator_create(). _finish: all but spare handles must have been
 * returned. */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_init(ashlar_range *range,
                                                   ashlar_driver_client *client,
                                                   ashlar_range_kind kind, size_t handle_bytes);
void ashlar__range_finish(ashlar_range *range);

/* _left: the bytes that may still be taken under the limit. _allows: ASHLAR_ENOMEM if `bytes` are
 * more. */
size_t ashlar__range_left(const ashlar_range *range);
ASHLAR_MUST_CHECK ashlar_status ashlar__range_allows(const ashlar_range *range, size_t bytes);

/* Whether the invariants hold, except the one about what the device may use. */
bool ashlar__range_is_sound(const ashlar_range *range);

/*
 * Handles; not for a range of segments.
 *
 * _reserve_spare  make room for `count` spare handles in all. Errors: ASHLAR_EHOSTMEM
 * _create         take a new handle from the device; it becomes spare; call _reserve_spare first.
 *                 Errors: ASHLAR_ENOMEM (beyond the limit, found before any driver call; refused by
 *                 the device), ASHLAR_EDRIVER
 * _release        return the newest spare handle to the device. After an error it is still spare
 * _map            map the newest `count` spare handles at `offset`, oldest first; nothing may be
 *                 mapped there. They stay in `spare`, behind its new end. After an error none of
 *                 them is mapped
 * _unmap          unmap the handle that is mapped at `offset`; it becomes spare
 * _abandon        unmap without an error, and without making the handle spare. If the driver
 *                 refuses, the range's addresses are never freed
 * _set_access     give a device access to [offset, offset + bytes), all mapped; or end it
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_reserve_spare(ashlar_range *range, size_t count);
ASHLAR_MUST_CHECK ashlar_status ashlar__range_create(ashlar_range *range);
ASHLAR_MUST_CHECK ashlar_status ashlar__range_release(ashlar_range *range);
ASHLAR_MUST_CHECK ashlar_status ashlar__range_map(ashlar_range *range, size_t offset, size_t count);
ASHLAR_MUST_CHECK ashlar_status ashlar__range_unmap(ashlar_range *range, size_t offset,
                                                    cu_mem_handle handle);
void ashlar__range_abandon(ashlar_range *range, size_t offset);
ASHLAR_MUST_CHECK ashlar_status ashlar__range_set_access(ashlar_range *range, size_t offset,
                                                         size_t bytes, int ordinal, bool is_open);

/* For a range of segments only: take one of `bytes`, a multiple of handle_bytes, or return it.
 * Errors: as ashlar__range_create(); a segment that cannot be returned stays taken. */
ASHLAR_MUST_CHECK ashlar_status ashlar__range_take_segment(ashlar_range *range, size_t bytes,
                                                           size_t *offset);
ASHLAR_MUST_CHECK ashlar_status ashlar__range_free_segment(ashlar_range *range, size_t offset,
                                                           size_t bytes);

/* ---- the heap: heap.c ---- */

typedef struct ashlar_node_chunk ashlar_node_chunk;

/*
 * Each stream's blocks lie in the stream's own zones. The heap does not decide when one stream's
 * memory may serve another stream: the code in allocator/core chooses the gap that serves a
 * request, and what to do if memory is missing.
 *
 * Lock: the allocator's, for all but zones and windows: core/core.h says who may touch these.
 *
 * Invariants (ashlar__heap_check; those of windows: stream_state.h):
 *   range.mapped_bytes == handle_bytes * (spare handles + mapped ones), or the sum of all segments
 *   used_bytes of a zone == sum of its used blocks;  of all zones <= range.mapped_bytes
 *   a gap is in the bins of its window's zone, and in no other bins
 *   the page map has the used blocks; for plan memory it has the slot blocks instead
 *   a used block has requested <= bytes and a stream; a gap has requested == 0 and no stream
 */
typedef struct ashlar_heap {
    ashlar_range range;
    ashlar_page_map map;
    ashlar_window *windows; /* address order */
    size_t window_count;
    ashlar_zone *zones;               /* the zones that have windows */
    size_t cross_bytes;               /* bytes of all cross-stream blocks (below) */
    ashlar_stream_state *awaited;     /* list of the streams that these blocks wait for */
    ashlar_stream_state *awaited_end; /* its last entry */
    _Atomic uint64_t use_clock;       /* see ashlar__heap_clock() */
    uint64_t short_at;                /* use_clock when a request last found nothing left to map, so
                                       * it wanted other streams' memory; 0: none did */
    uint64_t short_count;             /* the number of requests that set short_at */
    bool was_short;                   /* a request once found nothing left to map, or mapped the
                                       * last: since then, steps may begin with empty caches, to get
                                       * the same addresses each time */
    uint64_t waited_at;               /* use_clock when a request last had to wait; 0: none did */
    bool is_near_limit;               /* most of the limit is taken and there are several streams,
                                       * so one may soon want what another frees: an event follows
                                       * each large free at once, since one recorded later comes
                                       * behind more work */
    bool is_settling;                 /* streams are about to be asked whether they are idle: frees
                                       * record no event, which would keep a stream busy */
    uint64_t cross_frees;             /* frees of cross-stream blocks */
    uint64_t left_cross;              /* cross-stream blocks that had not returned when a held step
                                       * (ashlar_step_key.is_held) began: the step's addresses then
                                       * depend on the device's timing */
    uint64_t *events_recorded;        /* const; points to the count of all streams' recordings */
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

/* Requests and frees are counted, to find the stream whose last use of memory is oldest. A thread
 * that works in its cache counts on a clock of its own, ahead of this one, which catches up when
 * the thread takes the lock or is kept out of its cache. So of two uses the later one has the
 * larger number, unless two threads made them before this clock caught up. */
static inline uint64_t ashlar__heap_clock(const ashlar_heap *heap) {
    return atomic_load_explicit(&heap->use_clock, memory_order_relaxed);
}

/* Lock: held. */
static inline void ashlar__heap_catch_up(ashlar_heap *heap, uint64_t clock) {
    if (clock > ashlar__heap_clock(heap)) {
        atomic_store_explicit(&heap->use_clock, clock, memory_order_relaxed);
    }
}

/* Count a use of memory. Lock: held. */
static inline uint64_t ashlar__heap_count_use(ashlar_heap *heap) {
    ashlar__heap_catch_up(heap, ashlar__heap_clock(heap) + 1);
    return ashlar__heap_clock(heap);
}

/* After this many further uses, memory no longer counts as short. */
enum { ASHLAR_SHORT_USES = 1 << 16 };

/* Whether a request recently wanted memory of another stream. Then whatever a cache cannot serve
 * takes the lock. The result turns true only while all other threads are kept out of their
 * caches. */
static inline bool ashlar__heap_is_short(const ashlar_heap *heap) {
    return heap->short_at != 0 && ashlar__heap_clock(heap) - heap->short_at < ASHLAR_SHORT_USES;
}

/* Whether a request recently had to wait. Then large frees record an event, so that a request that
 * waits for one does not also wait for all work queued since. */
static inline bool ashlar__heap_has_waited(const ashlar_heap *heap) {
    return heap->waited_at != 0 && ashlar__heap_clock(heap) - heap->waited_at < ASHLAR_SHORT_USES;
}

/* The zone of the stream for blocks of `bytes` bytes. */
static inline ashlar_zone *ashlar__zone_of(ashlar_stream_state *state, size_t bytes) {
    return &state->zones[bytes > ASHLAR_SC_MAX_BYTES ? ASHLAR_ZONE_LARGE : ASHLAR_ZONE_SMALL];
}

/* The bytes of memory still to be mapped before the first `bytes` of a gap can be taken. Cost: O(1)
 * if all of the gap is mapped, otherwise O(handles in those bytes). */
size_t ashlar__heap_missing(const ashlar_heap *heap, const ashlar_block *gap, size_t bytes);

/* Take `bytes` from the best fit among the gaps of a zone, for a caller that may touch the zone but
 * does not hold the lock. NULL: no gap fits, or the zone's own memory, nodes and pages do not
 * suffice; then nothing has changed. may_be_last: whether to cut the gap at a window's end, too,
 * which a caller avoids while blocks in its cache may fit. */
ashlar_block *ashlar__heap_take_fit(ashlar_heap *heap, ashlar_zone *zone, size_t bytes,
                                    bool may_be_last);

/* Give the zone's pool at least `count` nodes. Call this before changing anything, so that no
 * change fails midway. */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_reserve_nodes(ashlar_heap *heap, ashlar_zone *zone,
                                                           size_t count);

/*
 * _find_: find `bytes` contiguous mapped bytes of a gap, for a stream other than the gap's owner:
 * of both ends of each mapped run, those whose last use is longest ago. The far end often is it,
 * since a stream that frees in reverse order frees it first, and allocates from the front again.
 * Cost: O(handles). _take_: take `bytes` at an offset in a gap, all mapped. They become the used
 * block *out, in the page map; the caller must set its stream_state, requested and tag.
 *
 * bytes   > 0, a multiple of ASHLAR_BLOCK_ALIGN
 * Errors: ASHLAR_EHOSTMEM; then nothing has changed.
 */
bool ashlar__heap_find_run(const ashlar_heap *heap, const ashlar_block *gap, size_t bytes,
                           size_t *offset);
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_take_run(ashlar_heap *heap, ashlar_block *gap,
                                                      size_t offset, size_t bytes,
                                                      ashlar_block **out);

/* Make a used block part of a gap again, stamped with the work of its zone's owner up to now. No
 * other stream may still be using the block. _stamped: the last use by the owner came before the
 * recording numbered `covered_by`; 0: no queued work uses the block. */
void ashlar__heap_put(ashlar_heap *heap, ashlar_block *block);
void ashlar__heap_put_stamped(ashlar_heap *heap, ashlar_block *block, uint64_t covered_by);

/* Whether the device is done with all memory of a window's [offset, offset + bytes). */
bool ashlar__heap_is_past_at(const ashlar_heap *heap, const ashlar_window *window, size_t offset,
                             size_t bytes);

/* The same for the first `bytes` of a gap. */
static inline bool ashlar__heap_is_past(const ashlar_heap *heap, const ashlar_block *gap,
                                        size_t bytes) {
    return ashlar__heap_is_past_at(heap, gap->window, gap->offset, bytes);
}

/* The tick of the owner's last use of [offset, offset + bytes) of a window. Call it only where
 * ashlar__heap_is_past_at() is false. */
uint64_t ashlar__heap_tick_at(const ashlar_heap *heap, const ashlar_window *window, size_t offset,
                              size_t bytes);

/* Move all windows of `from` to `to`. Of all queued work, only that of the owner of `to` may still
 * use the gaps. They are stamped with the work of `to` up to now, or as past if `is_past`. */
void ashlar__zone_move(ashlar_heap *heap, ashlar_zone *from, ashlar_zone *to, bool is_past);

/* Return the unused nodes of a stream's zones, which have no windows, to the heap's pool. */
void ashlar__heap_return_nodes(ashlar_heap *heap, ashlar_stream_state *state);

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

/* Advance to the next piece in address order, from {0} to the first one. False: there is none. */
bool ashlar__heap_next_piece(const ashlar_heap *heap, ashlar_heap_piece *piece);

/* The block or gap that contains `offset`; NULL: it lies in no window. For messages. O(blocks). */
const ashlar_block *ashlar__heap_find(const ashlar_heap *heap, size_t offset);

/* Whether memory is mapped at `offset`. O(windows). */
bool ashlar__heap_is_mapped(const ashlar_heap *heap, size_t offset);

/* Check all invariants. Errors: ASHLAR_EFORMAT, naming the broken one. O(blocks + handles). */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_check(const ashlar_heap *heap);

/* ---- memory behind addresses: heap_map.c ---- */

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

/* Whether memory is short, and a gap is a whole segment of which blocks of `bytes` bytes would
 * leave more than 1/ASHLAR_WASTE_DIVISOR unused: then exchanging the segment is better than cutting
 * it. */
static inline bool ashlar__heap_is_misfit(const ashlar_heap *heap, const ashlar_block *gap,
                                          size_t bytes) {
    return heap->range.segments != NULL && ashlar__heap_is_short(heap) && gap->prev == NULL &&
           gap->next == NULL && gap->bytes % bytes > gap->bytes / ASHLAR_WASTE_DIVISOR;
}

/* Take a new segment for blocks of `bytes` bytes into the zone of the gap `misfit`. If the driver
 * has no room for it, and the device is done with the gap, give the gap's segment back first.
 * Errors: as ashlar__heap_add_window(); then the gap's segment may be gone. */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_exchange(ashlar_heap *heap, ashlar_block *misfit,
                                                      size_t bytes);

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

/* Where to get missing memory if the spare handles do not suffice: bits, tried in this order. */
enum {
    ASHLAR_MAY_CREATE = 1, /* take new handles */
    ASHLAR_MAY_MOVE = 2,   /* take free handles of all zones that the device is done with; those
                            * of ended streams first */
};

/*
 * Map the memory that is missing behind a place; or behind the first `bytes` of a gap.
 *
 * Errors: ASHLAR_ENOMEM (beyond the limit, found before any driver call; refused by the device;
 *         too little is free), ASHLAR_EDRIVER, ASHLAR_EHOSTMEM. No memory is lost then; some may
 *         have become spare.
 * Cost:   two driver calls for each handle, three if it is moved, and one for each run of handles.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_back_at(ashlar_heap *heap,
                                                     const ashlar_heap_place *place, unsigned may);
ASHLAR_MUST_CHECK static inline ashlar_status
ashlar__heap_back(ashlar_heap *heap, ashlar_block *gap, size_t bytes, unsigned may) {
    return ashlar__heap_back_at(heap, &(ashlar_heap_place){gap, gap->offset, bytes}, may);
}

/* The bytes of memory still to be mapped behind a place. */
size_t ashlar__heap_missing_at(const ashlar_heap *heap, const ashlar_heap_place *place);

/* Take memory from the driver until at least `bytes` bytes in total are taken. New memory becomes
 * spare handles, or one segment in `zone`. Errors: as for ashlar__heap_back(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_reserve(ashlar_heap *heap, ashlar_zone *zone,
                                                     size_t bytes);

/*
 * Return free memory that the device is done with, in whole handles or segments, until at most
 * `target_bytes` bytes are taken or nothing more can be returned.
 *
 * Errors: ASHLAR_EDRIVER, ASHLAR_EHOSTMEM; memory returned before that stays returned.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_trim(ashlar_heap *heap, size_t target_bytes);

/* Unmap up to `count` free handles that the device is done with, and keep them as spare ones. The
 * place `kept` keeps its handles; it may be NULL. *moved: the number of handles unmapped. Errors:
 * as ashlar__heap_trim(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_unmap_free(ashlar_heap *heap,
                                                        const ashlar_heap_place *kept, size_t count,
                                                        size_t *moved);

/* How much of the memory taken from the driver can serve blocks of a handle's size once all queued
 * work is over and the caches are empty: whole handles, or places in segments. Places serve one
 * larger block only if they lie side by side. Requires that all caches are taken over. O(blocks).
 */
size_t ashlar__heap_servable_bytes(const ashlar_heap *heap);

/* Let another device use all memory of the heap, now and later. Errors: ASHLAR_ENOTSUP (segments,
 * too many peers, no such peer), ASHLAR_EDRIVER, ASHLAR_ENOMEM; then the device may use no more
 * than before. */
ASHLAR_MUST_CHECK ashlar_status ashlar__heap_allow_peer(ashlar_heap *heap, int ordinal);

/* ---- cross-stream blocks: cross_stream.c ---- */

/*
 * A block's owner is the stream in whose zone, or plan memory, the block lies. A block that only
 * its owner uses returns to a gap when it is freed. Other streams use a block if it was marked by
 * ashlar_record_stream(), freed on another stream or borrowed. Such a cross-stream block keeps,
 * after its free, a stamp for each of these uses, and returns to a gap when all are past. An event
 * is recorded behind each use, at the free or, if many small blocks share the event, later. A gap
 * never has a stamp of another stream, so it merges with the gaps beside it at once.
 *
 * Each stream has a queue of the blocks that wait for it, in the order of their frees, which is the
 * order in which its events complete. A block waits in the queue of its first use, then in that of
 * the next one. So a free, a request or a query to the driver costs no more if many blocks wait.
 *
 * Invariants (ashlar__cross_check):
 *   cross_bytes == sum of the blocks in all queues
 *   a block in the queue of a stream: not live, marked SHARED, uses->stream_state == that stream
 *   cross_count of a stream == blocks in all queues whose owner it is
 *   a stream whose queue is not empty is in the heap's list `awaited`
 */

/* The stream to which a block finally returns. */
static inline ashlar_stream_state *ashlar__block_owner(const ashlar_block *block) {
    return ashlar__block_is_of_slot(block) ? block->prev->stream_state : block->window->zone->owner;
}

/* Note that `state`, perhaps its owner, uses a live block that was taken for another stream. _any_:
 * note it whatever stream the block was taken for, for a free that does not stamp the owner's use.
 * Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__cross_add_use(ashlar_heap *heap, ashlar_block *block,
                                                      ashlar_stream_state *state);
ASHLAR_MUST_CHECK ashlar_status ashlar__cross_add_any_use(ashlar_heap *heap, ashlar_block *block,
                                                          ashlar_stream_state *state);

/* The use of a block by a stream, or NULL. */
ashlar_use *ashlar__cross_find_use(const ashlar_block *block, const ashlar_stream_state *state);

/* Forget all uses of a block that is in no queue; then the block is no longer SHARED. */
void ashlar__cross_drop_uses(ashlar_heap *heap, ashlar_block *block);

/*
 * Free a used block. `state`: the stream of the free; all work on this stream that uses the block
 * has been queued. If only its owner uses the block, it returns to a gap at once. Otherwise an
 * event is recorded behind each use, at once or together with further blocks, and the block stays
 * used until all uses are past. Cannot fail.
 *
 * _stamped_  the uses by streams other than `state` were stamped when they ended
 * _covered_  also record an event on `state` behind the free, if one can be recorded
 * _own_      only its owner uses the block. The thread whose cache owns the stream needs no lock
 *            for this, unless the heap is short of memory
 */
void ashlar__release_block_locked(ashlar_heap *heap, ashlar_block *block,
                                  ashlar_stream_state *state);
void ashlar__release_stamped_locked(ashlar_heap *heap, ashlar_block *block,
                                    ashlar_stream_state *state);
void ashlar__release_covered_locked(ashlar_heap *heap, ashlar_block *block,
                                    ashlar_stream_state *state);
void ashlar__release_own_block(ashlar_heap *heap, ashlar_block *block);

/* Put the blocks back whose uses are known to be past. True: there was one at least. */
bool ashlar__cross_settle(ashlar_heap *heap);

/* Ask the driver about at most `count` of the streams that blocks wait for, and return the blocks
 * whose uses are past. Errors: ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__cross_ask(ashlar_heap *heap, size_t count);

/* Take a block of exactly `bytes` bytes that was freed on `state` and waits for no other stream, so
 * that it can serve `state` again at once. NULL: none among the oldest few blocks fits. */
ashlar_block *ashlar__cross_take_own(ashlar_heap *heap, ashlar_stream_state *state, size_t bytes);

/* Take a block out of its queue and drop its uses, which the caller has noted elsewhere. O(blocks
 * in the queue). */
void ashlar__cross_take_out(ashlar_heap *heap, ashlar_block *block);

/*
 * Return one cross-stream block that `state` owns and that has at least `bytes` bytes, and let
 * `state` wait in-stream for that block's uses. *found: whether there was such a block.
 *
 * prompt   only a block whose events were recorded at its free: no later work is waited for
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__cross_wait(ashlar_heap *heap, ashlar_stream_state *state,
                                                   size_t bytes, bool prompt, bool *found);

/* Return every block without a wait on the host: its owner waits in-stream for uses that are not
 * known to be past. A block stays if its owner has ended, or if no event can be recorded
 * now on the stream of its owner or of a use. Errors: ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__cross_return_all(ashlar_heap *heap);

/* Have `state` wait in-stream for the uses of a block that is in no queue, and forget them.
 * *is_joined false: no event can be recorded now on one of the streams; then nothing has changed.
 * Errors: ASHLAR_EDRIVER, ASHLAR_EINVAL (`state` is captured); then the uses stay noted. */
ASHLAR_MUST_CHECK ashlar_status ashlar__cross_join(ashlar_heap *heap, ashlar_stream_state *state,
                                                   ashlar_block *block, bool *is_joined);

/* Try to have an event recorded behind each use of a block. */
void ashlar__cross_try_cover(ashlar_heap *heap, const ashlar_block *block);

/* Record events behind all uses that blocks wait for. */
ASHLAR_MUST_CHECK ashlar_status ashlar__cross_cover(ashlar_heap *heap);

/* Make the blocks that wait for `from` wait instead for the work of `to` up to now. */
void ashlar__cross_move_queue(ashlar_heap *heap, ashlar_stream_state *from,
                              ashlar_stream_state *to);

/* Check the invariants above. Errors: ASHLAR_EFORMAT, naming the broken one. O(their number). */
ASHLAR_MUST_CHECK ashlar_status ashlar__cross_check(const ashlar_heap *heap);

/* ---- for the room's own files ---- */

static inline bool ashlar__block_is_free(const ashlar_block *block) {
    return block->state == ASHLAR_BLOCK_FREE;
}

/* The handles [first, end) of a window that a byte range touches, or that lie wholly in it. */
typedef struct ashlar_handle_span {
    size_t first, end;
} ashlar_handle_span;

static inline ashlar_handle_span ashlar__handles_touched(const ashlar_heap *heap,
                                                         const ashlar_window *window, size_t offset,
                                                         size_t bytes) {
    const size_t from = offset - window->offset;
    const unsigned shift = heap->range.handle_shift;
    ASHLAR_CHECK2(bytes > 0 && from + bytes <= window->bytes);
    return (ashlar_handle_span){from >> shift, ((from + bytes - 1) >> shift) + 1};
}

/* The handles that lie wholly in a gap; first == end if there are none. */
static inline ashlar_handle_span ashlar__handles_inside(const ashlar_heap *heap,
                                                        const ashlar_block *gap) {
    const size_t from = gap->offset - gap->window->offset, size = heap->range.handle_bytes;
    const size_t first = (from + size - 1) / size, end = (from + gap->bytes) / size;
    return (ashlar_handle_span){first, end > first ? end : first};
}

/* How many handles of a span are not mapped. */
static inline size_t ashlar__holes_in(const ashlar_window *window, ashlar_handle_span span) {
    size_t count = 0;
    for (size_t i = span.first; i < span.end; i++) {
        count += !window->backing[i].is_mapped;
    }
    return count;
}

/* Add a new window, as one gap, to its zone and to the heap. Needs one spare node. */
void ashlar__heap_link_window(ashlar_heap *heap, ashlar_window *window, ashlar_zone *zone);

/* Give an empty window, which has no memory, to another zone. */
void ashlar__window_move(ashlar_heap *heap, ashlar_window *window, ashlar_zone *to);

/* Remove a window that is one gap, and free it. */
void ashlar__heap_drop_window(ashlar_heap *heap, ashlar_window *window);

#endif /* ASHLAR_HEAP_H */
