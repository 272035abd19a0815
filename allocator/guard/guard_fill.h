/*
 * guard_fill.h - guard=fill: red zones behind blocks, and freed memory filled and kept for a while
 * (internal).
 *
 * A block is as large as what was asked for, the red zone, and what rounding to ASHLAR_BLOCK_ALIGN
 * adds. What is queued on streams, for a block that is taken on stream A and freed on stream B:
 *
 *   taken     A  fill everything behind the requested bytes
 *   freed     B  compare that, fill the whole block with another value
 *   released  B  compare the whole block
 *
 * Between the last two the block is in quarantine: for the heap it is in use, for statistics it
 * is cached. It leaves when the quarantine is full, or memory is out.
 *
 * Invariants:
 *   bytes == sum of the blocks in quarantine <= limit_bytes,  count <= ASHLAR_QUARANTINE_BLOCKS
 */
#ifndef ASHLAR_GUARD_FILL_H
#define ASHLAR_GUARD_FILL_H

#include <ashlar/allocator.h>

#include "allocator/guard/pattern_check.h"
#include "allocator/heap/heap.h"

enum {
    ASHLAR_RED_ZONE_BYTES = 512, /* at least */
    ASHLAR_RED_VALUE = 0xA7,
    ASHLAR_FREED_VALUE = 0xFF, /* all ones: no number in every floating-point type */
    ASHLAR_QUARANTINE_BLOCKS = 64,
};

typedef struct ashlar_quarantined {
    ashlar_block *block; /* its stream is the one it was freed on */
    size_t requested;
    ashlar_call_site freed;
} ashlar_quarantined;

/* Lock: the allocator's guards every field except the checker's own. */
typedef struct ashlar_guard_fill {
    ashlar_heap *heap; /* const */
    ashlar_checker checker;
    size_t limit_bytes;                                      /* const; of the quarantine */
    ashlar_quarantined quarantine[ASHLAR_QUARANTINE_BLOCKS]; /* a ring, oldest at `first` */
    size_t first, count;
    size_t bytes;
} ashlar_guard_fill;

/* Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_fill_create(ashlar_heap *heap,
                                                          ashlar_guard_fill **out);

/*
 * Compare what is left: the red zones of live blocks, and the quarantine; and wait for it. What was
 * found can be taken afterwards. For the allocator's end.
 *
 * orders   every stream that blocks were taken for or freed on
 */
void ashlar__guard_fill_compare_all(ashlar_guard_fill *fill, const ashlar_stream_state *states);
void ashlar__guard_fill_destroy(ashlar_guard_fill *fill); /* NULL is allowed */

/* Bytes of the block that serves `bytes`; false: too many to count. */
bool ashlar__guard_fill_block_bytes(size_t bytes, size_t *out);

/* Queue a new block's red zone on its stream. Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_fill_take_locked(ashlar_guard_fill *fill,
                                                               const ashlar_block *block);

/*
 * Queue what becomes of a live block that is freed on `state`, having made room for it. Then
 * ashlar__guard_fill_put_locked() keeps it, or releases it if it is too large, and cannot fail.
 *
 * Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM, ASHLAR_EHOSTMEM; the block is live as before.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_fill_free_locked(ashlar_guard_fill *fill,
                                                               const ashlar_block *block,
                                                               ashlar_stream_state *state);
void ashlar__guard_fill_put_locked(ashlar_guard_fill *fill, ashlar_block *block, size_t requested,
                                   ashlar_stream_state *state, ashlar_call_site place);

/* Release the whole quarantine. Errors: as above; what is left of it stays. */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_fill_release_locked(ashlar_guard_fill *fill);

/* Errors: ASHLAR_EFORMAT, naming the invariant that does not hold. */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_fill_check_locked(const ashlar_guard_fill *fill);

#endif /* ASHLAR_GUARD_FILL_H */
