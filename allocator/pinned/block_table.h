/*
 * block_table.h - the live blocks of a pool, found by address (internal to ashlar-pinned).
 *
 * jemalloc trusts its callers. This table catches pointers of other allocators, pointers into the
 * middle of a block, and double frees. It is split into shards, so that threads seldom wait for
 * each other.
 */
#ifndef ASHLAR_PINNED_BLOCK_TABLE_H
#define ASHLAR_PINNED_BLOCK_TABLE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/pinned.h>

#include "allocator/base/lock.h"

enum { TABLE_SHARDS = 16 };

typedef struct ashlar_pinned_block {
    struct ashlar_pinned_block *next; /* in a chain, or in a list of released blocks */
    void *ptr;
    size_t bytes;        /* usable bytes */
    unsigned wait_count; /* batches that hold it (pending.h); 0: live */
} ashlar_pinned_block;

/* block_count == alloc_count - free_count == blocks in the chains; live_bytes == their bytes. */
typedef struct ashlar_table_shard {
    ashlar_lock lock; /* for all fields below */
    ashlar_pinned_block **chains;
    size_t chain_count; /* a power of two */
    size_t block_count;
    size_t live_bytes;
    uint64_t alloc_count;
    uint64_t free_count;
} ashlar_table_shard;

/*
 * While all shards are locked: live_bytes == sum of the shards' live_bytes;  live_peak_bytes >=
 * live_bytes
 */
typedef struct ashlar_block_table {
    _Atomic size_t live_bytes; /* for the peak */
    _Atomic size_t live_peak_bytes;
    ashlar_table_shard shards[TABLE_SHARDS];
} ashlar_block_table;

/* `table` must be zeroed. Errors: ASHLAR_EHOSTMEM; call ashlar__block_table_finish() even then. */
ASHLAR_MUST_CHECK ashlar_status ashlar__block_table_init(ashlar_block_table *table);
void ashlar__block_table_finish(ashlar_block_table *table); /* frees the blocks' records, too */

/* Add `block` as live. Cannot fail: without host memory the table stays small, and gets slower. */
void ashlar__block_table_put(ashlar_block_table *table, ashlar_pinned_block *block);

/* Remove the live block at `ptr`, and count it as freed. Errors: ASHLAR_EPOINTER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__block_table_take(ashlar_block_table *table, const void *ptr,
                                                         ashlar_pinned_block **out);

/* The size of the live block at `ptr`.  Errors: ASHLAR_EPOINTER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__block_table_bytes(ashlar_block_table *table,
                                                          const void *ptr, size_t *out);

/* Lock every shard, to read all counters at one moment. */
void ashlar__block_table_lock(ashlar_block_table *table);
void ashlar__block_table_read_locked(ashlar_block_table *table, ashlar_pinned_stats *stats);
void ashlar__block_table_unlock(ashlar_block_table *table);

#endif /* ASHLAR_PINNED_BLOCK_TABLE_H */
