/*
 * guard_fill.h - guard=fill: red zones behind blocks, and freed memory filled and kept for a while
 * (internal).
 *
 * A block holds the requested bytes, a red zone, and what rounding to ASHLAR_BLOCK_ALIGN adds. For
 * a block that is taken on stream A and freed on stream B, this work is queued:
 *
 *   taken     A  fill everything behind the requested bytes with ASHLAR_RED_VALUE
 *   freed     B  wait for the fill, compare its bytes, fill the whole block with
 *                ASHLAR_FREED_VALUE
 *   released  B  compare the whole block
 *
 * From the free to the release a block is in quarantine: the heap treats it as used, the statistics
 * count it as cached. It is released when the quarantine is full, when memory runs out or when B
 * ends; without a comparison, if B is being captured then. B's handle must be valid, and name the
 * same stream in every thread. A pool's block is not guarded before the pool is released, since the
 * fills would become part of the graph.
 *
 * Invariants (ashlar__guard_fill_check_locked):
 *   bytes == sum of the blocks in quarantine <= limit_bytes
 *   first < ASHLAR_QUARANTINE_BLOCKS,  count <= ASHLAR_QUARANTINE_BLOCKS
 *   a block in quarantine is used, and has requested == 0
 */
#ifndef ASHLAR_GUARD_FILL_H
#define ASHLAR_GUARD_FILL_H

#include <ashlar/allocator.h>

#include "allocator/base/threads.h"
#include "allocator/heap/heap.h"

/* ---- comparisons ----
 *
 * A check that device memory still holds one byte value is work on a stream: the bytes are copied
 * to page-locked host memory, piece by piece, and a host function compares each piece. So neither
 * the host nor another stream waits. All pieces on a stream share one staging buffer, which can
 * serve another stream once its own is forgotten and all pieces are compared.
 *
 * Invariants:
 *   a check is in `queued`  =>  at < subject.bytes: its last host function is still to run
 *   a check is in `found`   =>  at == subject.bytes,  damaged < at
 */

#define ASHLAR_STAGING_BYTES ((size_t)256 << 10) /* of host memory for each stream */

/* The caller of a public function. */
typedef struct ashlar_call_site {
    const void *address; /* its return address */
    uint64_t thread;     /* ashlar__thread_number() */
} ashlar_call_site;

/* Describe a call site, like "thread 2 at 0x55d0c0de in program+0x1c0de (function+0x2e)", as far as
 * the dynamic linker knows it. */
enum { ASHLAR_CALL_SITE_BYTES = 240 };
void ashlar__call_site_write(ashlar_call_site place, char out[static ASHLAR_CALL_SITE_BYTES]);

/* The bytes to check, and the facts about their block for a report of damage. */
typedef struct ashlar_check_subject {
    cu_ptr block;
    size_t requested;       /* the block's requested bytes */
    size_t offset;          /* offset of the checked bytes in the block */
    size_t bytes;           /* number of bytes to check, > 0 */
    unsigned char want;     /* the value that each of these bytes must have */
    unsigned char tag;      /* the block's, an ashlar_tag */
    bool is_freed;          /* true: the block is freed; false: the bytes are its red zone */
    ashlar_call_site freed; /* the caller that freed the block, if is_freed */
    ashlar_stream stream;
} ashlar_check_subject;

typedef struct ashlar_pattern_check ashlar_pattern_check;
typedef struct ashlar_check_stream ashlar_check_stream;

typedef struct ashlar_checker {
    ashlar_driver_client *client;       /* const */
    ashlar_check_stream *check_streams; /* Lock: the allocator's */
    /* Guards both lists. Host functions take it, too: so make no driver call while holding it. */
    ashlar_lock lock;
    ashlar_pattern_check *queued;
    ashlar_pattern_check *found; /* checks that found damage, oldest first */
} ashlar_checker;

/* Queue no further check under this key, which may stand for another stream later. Checks already
 * queued are still made. Lock: the allocator's. */
void ashlar__checker_forget(ashlar_checker *checker, const void *key);

/* Take the oldest finding and return ASHLAR_EDAMAGE with its detail; ASHLAR_OK: there is none. */
ASHLAR_MUST_CHECK ashlar_status ashlar__checker_take(ashlar_checker *checker);

/* ---- red zones and quarantine ---- */

enum {
    ASHLAR_RED_ZONE_BYTES = 512, /* the least bytes of a red zone */
    ASHLAR_RED_VALUE = 0xA7,
    ASHLAR_FREED_VALUE = 0xFF, /* all ones: not a number in any floating-point type */
    ASHLAR_QUARANTINE_BLOCKS = 64,
};

_Static_assert(ASHLAR_RED_VALUE != ASHLAR_FREED_VALUE, "a report can tell which one was damaged");

typedef struct ashlar_quarantined {
    ashlar_block *block; /* its stream_state is the stream it was freed on */
    size_t requested;    /* the block's `requested` before the free */
    ashlar_call_site freed;
} ashlar_quarantined;

/* Lock: the allocator's guards every field except the checker's own. */
typedef struct ashlar_guard_fill {
    ashlar_heap *heap; /* const */
    ashlar_checker checker;
    size_t limit_bytes;                                      /* const; the most `bytes` may be */
    ashlar_quarantined quarantine[ASHLAR_QUARANTINE_BLOCKS]; /* a ring, oldest at `first` */
    size_t first, count;
    size_t bytes;
} ashlar_guard_fill;

/* Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_fill_create(ashlar_heap *heap,
                                                          ashlar_guard_fill **out);

/* When the allocator ends and all work is over: queue the comparison of the blocks in quarantine
 * and of the red zones of live ones. */
void ashlar__guard_fill_compare_all(ashlar_guard_fill *fill);
void ashlar__guard_fill_destroy(ashlar_guard_fill *fill); /* NULL is allowed */

/* The size of a block for `bytes` bytes and a red zone. bytes: at most a device's memory. */
size_t ashlar__guard_fill_block_bytes(size_t bytes);

/*
 * Queue the fill of a new block's red zone, and an event behind it, whose number becomes
 * block->covered_by: the free must wait for it. 0: no event can be recorded now, so the free must
 * wait for all work of the stream. Errors: the driver's; ASHLAR_EINVAL (the stream is captured).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_fill_take_locked(ashlar_guard_fill *fill,
                                                               ashlar_block *block,
                                                               ashlar_stream_state *state);

/*
 * The first half of freeing a live block on `state`: make room in the quarantine, and queue the
 * fill and the comparison. Errors: as above, and ASHLAR_EHOSTMEM; then the block is live as before.
 * The second half, _put_locked, cannot fail: it puts the block into quarantine, or releases it at
 * once if the block is larger than limit_bytes.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_fill_free_locked(ashlar_guard_fill *fill,
                                                               const ashlar_block *block,
                                                               ashlar_stream_state *state);
void ashlar__guard_fill_put_locked(ashlar_guard_fill *fill, ashlar_block *block, size_t requested,
                                   ashlar_stream_state *state, ashlar_call_site place);

/* Release the blocks in quarantine that were freed on a stream; NULL: all blocks. After an error
 * the rest stays in quarantine. */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_fill_release_locked(ashlar_guard_fill *fill,
                                                                  const ashlar_stream_state *of);

/* Errors: ASHLAR_EFORMAT, naming the invariant that does not hold. */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_fill_check_locked(const ashlar_guard_fill *fill);

#endif /* ASHLAR_GUARD_FILL_H */
