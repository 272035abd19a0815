/*
 * block_table.c - finding a live block by its address, in hashed chains with a lock for each shard.
 */
#include "allocator/pinned/block_table.h"

#include "allocator/base/host.h"
#include "allocator/pinned/report.h"

enum { CHAINS_AT_FIRST = 64, SHARD_BITS = 4 };
_Static_assert((CHAINS_AT_FIRST & (CHAINS_AT_FIRST - 1)) == 0, "a chain is chosen by a mask");
_Static_assert(TABLE_SHARDS == 1 << SHARD_BITS, "the hash's top bits choose the shard");

/* The odd number nearest 2^64 / golden ratio. */
#define HASH_FACTOR UINT64_C(0x9E3779B97F4A7C15)

static uint64_t hash_of(const void *ptr) {
    const uint64_t hash = (uint64_t)(uintptr_t)ptr * HASH_FACTOR;
    return hash ^ hash >> 29;
}

static ashlar_table_shard *shard_of(ashlar_block_table *table, const void *ptr) {
    return &table->shards[hash_of(ptr) >> (64 - SHARD_BITS)];
}

static ashlar_pinned_block **chain_of(ashlar_pinned_block **chains, size_t count, const void *ptr) {
    ASHLAR_CHECK2(count > 0 && (count & (count - 1)) == 0);
    return &chains[hash_of(ptr) & (count - 1)];
}

/* The link to the live block at `ptr`. The link is NULL if there is no such block. */
static ashlar_pinned_block **find_locked(ashlar_table_shard *shard, const void *ptr) {
    ASHLAR_OWNS(&shard->lock);
    ashlar_pinned_block **link = chain_of(shard->chains, shard->chain_count, ptr);
    while (*link != NULL && (*link)->ptr != ptr) {
        link = &(*link)->next;
    }
    return link;
}

static void push_block(ashlar_pinned_block **link, ashlar_pinned_block *block) {
    block->next = *link;
    *link = block;
}

/* The equations of a shard, except that for live_bytes, which needs a walk over the blocks. */
static bool counts_hold(const ashlar_table_shard *shard) {
    return shard->block_count == shard->alloc_count - shard->free_count &&
           (shard->block_count > 0 || shard->live_bytes == 0);
}

/* All equations of a shard. O(blocks). */
static bool shard_holds(const ashlar_table_shard *shard) {
    size_t count = 0, bytes = 0;
    for (size_t i = 0; i < shard->chain_count; i++) {
        for (const ashlar_pinned_block *block = shard->chains[i]; block != NULL;
             block = block->next) {
            count++;
            bytes += block->bytes;
        }
    }
    return counts_hold(shard) && count == shard->block_count && bytes == shard->live_bytes;
}

/* If host memory runs out, the chains stay as they are. */
static void double_chains_locked(ashlar_table_shard *shard) {
    ASHLAR_OWNS(&shard->lock);
    const size_t count = 2 * shard->chain_count;
    ashlar_pinned_block **chains = ashlar__host_calloc(count, sizeof *chains);
    if (chains == NULL) {
        return;
    }
    for (size_t i = 0; i < shard->chain_count; i++) {
        ashlar_pinned_block *block = shard->chains[i];
        while (block != NULL) {
            ashlar_pinned_block *next = block->next;
            push_block(chain_of(chains, count, block->ptr), block);
            block = next;
        }
    }
    ashlar__host_free(shard->chains);
    shard->chains = chains;
    shard->chain_count = count;
    ASHLAR_CHECK3(shard_holds(shard));
}

ashlar_status ashlar__block_table_init(ashlar_block_table *table) {
    ashlar_status status = ASHLAR_OK;
    for (int i = 0; i < TABLE_SHARDS; i++) {
        ashlar_table_shard *shard = &table->shards[i];
        ASHLAR_CHECK2(shard->chains == NULL && shard->alloc_count == 0); /* zeroed by the caller */
        ashlar__lock_init(&shard->lock, ASHLAR_RANK_PINNED_SHARD);
        shard->chains = ashlar__host_calloc(CHAINS_AT_FIRST, sizeof *shard->chains);
        shard->chain_count = shard->chains != NULL ? CHAINS_AT_FIRST : 0;
        if (shard->chains == NULL) {
            status = ashlar__pinned_fail(ASHLAR_EHOSTMEM, "no host memory for a table of blocks");
        }
    }
    return status;
}

void ashlar__block_table_finish(ashlar_block_table *table) {
    for (int i = 0; i < TABLE_SHARDS; i++) {
        ashlar_table_shard *shard = &table->shards[i];
        for (size_t chain = 0; chain < shard->chain_count; chain++) {
            ashlar_pinned_block *block = shard->chains[chain];
            while (block != NULL) {
                ashlar_pinned_block *next = block->next;
                ashlar__host_free(block);
                block = next;
            }
        }
        ashlar__host_free(shard->chains);
        ashlar__lock_finish(&shard->lock);
    }
}

static void raise_peak(ashlar_block_table *table, size_t live_bytes) {
    size_t peak = atomic_load_explicit(&table->live_peak_bytes, memory_order_relaxed);
    while (peak < live_bytes &&
           !atomic_compare_exchange_weak(&table->live_peak_bytes, &peak, live_bytes)) {
    }
}

void ashlar__block_table_put(ashlar_block_table *table, ashlar_pinned_block *block) {
    ashlar_table_shard *shard = shard_of(table, block->ptr);
    ASHLAR_CHECK2(block->wait_count == 0);
    ashlar__lock_acquire(&shard->lock);
    ASHLAR_CHECK2(*find_locked(shard, block->ptr) == NULL); /* jemalloc never gives out an
                                                               address twice */
    if (shard->block_count >= shard->chain_count) {
        double_chains_locked(shard);
    }
    push_block(chain_of(shard->chains, shard->chain_count, block->ptr), block);
    shard->block_count++;
    shard->alloc_count++;
    shard->live_bytes += block->bytes;
    raise_peak(table, atomic_fetch_add(&table->live_bytes, block->bytes) + block->bytes);
    ASHLAR_CHECK2(counts_hold(shard));
    ashlar__lock_release(&shard->lock);
}

static ashlar_status refuse(const void *ptr) {
    return ashlar__pinned_fail(ASHLAR_EPOINTER,
                               "%p: not a live block of this pool: given back before, inside a "
                               "block, or of another allocator",
                               ptr);
}

ashlar_status ashlar__block_table_take(ashlar_block_table *table, const void *ptr,
                                       ashlar_pinned_block **out) {
    ashlar_table_shard *shard = shard_of(table, ptr);
    ashlar__lock_acquire(&shard->lock);
    ashlar_pinned_block **link = find_locked(shard, ptr), *block = *link;
    if (block != NULL) {
        ASHLAR_CHECK2(block->wait_count == 0 && block->bytes <= shard->live_bytes);
        *link = block->next;
        shard->block_count--;
        shard->free_count++;
        shard->live_bytes -= block->bytes;
        atomic_fetch_sub(&table->live_bytes, block->bytes);
        *out = block;
        ASHLAR_CHECK2(counts_hold(shard));
    }
    ashlar__lock_release(&shard->lock);
    return block != NULL ? ASHLAR_OK : refuse(ptr);
}

ashlar_status ashlar__block_table_bytes(ashlar_block_table *table, const void *ptr, size_t *out) {
    ashlar_table_shard *shard = shard_of(table, ptr);
    ashlar__lock_acquire(&shard->lock);
    const ashlar_pinned_block *block = *find_locked(shard, ptr);
    if (block != NULL) {
        *out = block->bytes;
    }
    ashlar__lock_release(&shard->lock);
    return block != NULL ? ASHLAR_OK : refuse(ptr);
}

void ashlar__block_table_lock(ashlar_block_table *table) {
    for (int i = 0; i < TABLE_SHARDS; i++) {
        ashlar__lock_acquire(&table->shards[i].lock);
    }
}

void ashlar__block_table_read_locked(ashlar_block_table *table, ashlar_pinned_stats *stats) {
    stats->live_peak_bytes = atomic_load(&table->live_peak_bytes);
    for (int i = 0; i < TABLE_SHARDS; i++) {
        const ashlar_table_shard *shard = &table->shards[i];
        ASHLAR_OWNS(&shard->lock);
        ASHLAR_CHECK3(shard_holds(shard));
        stats->live_bytes += shard->live_bytes;
        stats->live_blocks += shard->block_count;
        stats->alloc_count += shard->alloc_count;
        stats->free_count += shard->free_count;
    }
    ASHLAR_CHECK2(stats->live_bytes == atomic_load(&table->live_bytes));
    ASHLAR_CHECK2(stats->live_bytes <= stats->live_peak_bytes);
}

void ashlar__block_table_unlock(ashlar_block_table *table) {
    for (int i = 0; i < TABLE_SHARDS; i++) {
        ashlar__lock_release(&table->shards[i].lock);
    }
}
