/*
 * guard_unmap.h - guard=unmap: every block on pages of its own, which are unmapped after the free
 * so that a late access faults (internal).
 *
 * Blocks do not come from the heap. A block, rounded to ASHLAR_BLOCK_ALIGN, ends where its pages
 * end, and an unmapped page follows, so that an access behind the end faults too. Addresses are
 * handed out upwards through the whole range before any is used again.
 *
 * A freed block is in quarantine, still mapped, until an event recorded after its last use has
 * completed. If no event can come after a use, because its stream ended before, the block is kept
 * until the allocator's end.
 *
 * Invariants (ashlar__guard_unmap_check_locked):
 *   blocks[i]->offset + blocks[i]->bytes + granularity <= blocks[i + 1]->offset
 *   mapped_bytes == sum of blocks[i]->bytes,  live_bytes == the same sum over live blocks
 *   (block->is_live or block->is_kept) == (block->event == NULL),  kept_bytes == sum over kept ones
 *   quarantine_count == length of the list from `oldest` == number of blocks neither live nor kept
 */
#ifndef ASHLAR_GUARD_UNMAP_H
#define ASHLAR_GUARD_UNMAP_H

#include <ashlar/allocator.h>

#include "allocator/base/lock.h"
#include "allocator/guard/free_log.h"
#include "allocator/heap/block.h"
#include "allocator/heap/stream_state.h"

enum { ASHLAR_UNMAP_QUARANTINE_BLOCKS = 256 }; /* with more blocks, an allocation waits */

typedef struct ashlar_guarded_block ashlar_guarded_block;
struct ashlar_guarded_block {
    size_t offset;    /* of its first page, from the range's base */
    size_t bytes;     /* of all its pages */
    size_t requested; /* bytes that the caller requested */
    cu_ptr ptr;       /* the address that was handed out */
    cu_mem_handle handle;
    ashlar_stream_state *stream_state; /* live: the stream that allocated it */
    unsigned char tag;
    bool is_live;
    bool is_kept;                /* freed, but never to be unmapped */
    ashlar_use *uses;            /* live: uses by streams that ashlar_record_stream() named */
    cu_event event;              /* in quarantine: recorded after the last use */
    unsigned waiters;            /* threads that wait for the event, having dropped the lock */
    bool is_unmapped;            /* in no list any more; the last waiter frees this record */
    ashlar_guarded_block *newer; /* in quarantine: the block freed next after this one */
};

/* Lock: the allocator's guards every field except those marked const. */
typedef struct ashlar_guard_unmap {
    ashlar_driver_client *client;  /* const */
    ashlar_lock *lock;             /* const; the allocator's, dropped while the host waits */
    cu_ptr base;                   /* const */
    size_t range_bytes;            /* const; reserved addresses */
    size_t granularity;            /* const; of physical memory */
    size_t next_offset;            /* where the next search for addresses begins */
    ashlar_guarded_block **blocks; /* [count], in address order */
    size_t count, capacity;
    ashlar_guarded_block *oldest, *newest; /* the quarantine */
    size_t quarantine_count;
    size_t mapped_bytes, live_bytes, kept_bytes;
    bool keeps_addresses; /* the driver refused an unmap, and mapped addresses must not be freed */
} ashlar_guard_unmap;

/* Errors: as ashlar_allocator_create(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_unmap_create(ashlar_driver_client *client,
                                                           ashlar_lock *lock,
                                                           ashlar_guard_unmap **out);

/* Unmap and free everything. The device must no longer use any of the memory. NULL is allowed. */
void ashlar__guard_unmap_destroy(ashlar_guard_unmap *unmap);

/*
 * Take a block for `state`. May drop the lock for a while. The caller must update the statistics.
 *
 * Errors: ASHLAR_ENOMEM (with the driver's own error in the detail, or too few addresses),
 *         ASHLAR_EDRIVER, ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_unmap_take_locked(ashlar_guard_unmap *unmap,
                                                                size_t bytes, ashlar_tag tag,
                                                                ashlar_stream_state *state,
                                                                ashlar_guarded_block **out);

/* Find the live block at `ptr`. Errors: ASHLAR_EPOINTER; the detail says what is wrong. */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_unmap_find_locked(const ashlar_guard_unmap *unmap,
                                                                const void *ptr,
                                                                ashlar_guarded_block **out);

/* Put a live block, last used on `state`, into quarantine, and unmap the blocks in quarantine whose
 * last use is over.
 * Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM; the block is live as before. */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_unmap_free_locked(ashlar_guard_unmap *unmap,
                                                                ashlar_guarded_block *block,
                                                                const ashlar_stream_state *state);

/* Note that a stream uses a live block, whichever stream frees it. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_unmap_add_use(ashlar_guarded_block *block,
                                                            ashlar_stream_state *state);

/* Free a live block without an event. Its pages stay mapped until the allocator's end, since its
 * last use may never be known to be over. */
void ashlar__guard_unmap_keep_locked(ashlar_guard_unmap *unmap, ashlar_guarded_block *block);

/* Errors: ASHLAR_EFORMAT, naming the invariant that does not hold. */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_unmap_check_locked(const ashlar_guard_unmap *unmap);

#endif /* ASHLAR_GUARD_UNMAP_H */
