/* pinned.c - the pool of page-locked memory: a jemalloc arena on a page heap, the table of live
 * blocks, and the pending blocks. */
#include <ashlar/pinned.h>

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>

#include "allocator/base/host.h"
#include "allocator/pinned/block_table.h"
#include "allocator/pinned/jemalloc_arena.h"
#include "allocator/pinned/page_heap.h"
#include "allocator/pinned/pending.h"
#include "allocator/pinned/report.h"

#define GROW_BYTES_DEFAULT ((size_t)2 << 20)
/* Smaller blocks would be less aligned than blocks from malloc(). */
enum { BLOCK_BYTES_LEAST = 16 };
_Static_assert(BLOCK_BYTES_LEAST >= alignof(max_align_t), "a block suits every type");

struct ashlar_pinned {
    ashlar_page_heap heap;
    ashlar_jemalloc_arena *arena;
    ashlar_block_table table;
    ashlar_pending pending;
    ashlar_lock collecting; /* held by collect() */
};

/* ---- life ---- */

ashlar_status ashlar_pinned_create(ashlar_device *device, const ashlar_pinned_config *config,
                                   ashlar_pinned **out) {
    ashlar_pinned_config chosen = ASHLAR_OR_ZERO(ashlar_pinned_config, config);
    ashlar_pinned *pool = ashlar__host_calloc(1, sizeof *pool);
    if (pool == NULL) {
        return ashlar__pinned_fail(ASHLAR_EHOSTMEM, "no host memory for a pool");
    }
    pool->heap.device = device;
    pool->heap.page_bytes = ashlar__jemalloc_page_bytes();
    pool->heap.limit_bytes = chosen.limit_bytes != 0 ? chosen.limit_bytes : SIZE_MAX;
    pool->heap.grow_bytes = chosen.grow_bytes != 0 ? chosen.grow_bytes : GROW_BYTES_DEFAULT;
    ashlar__page_heap_init(&pool->heap);
    ashlar__lock_init(&pool->collecting, ASHLAR_RANK_PINNED_COLLECT);
    pool->pending.device = device;
    ashlar__pending_init(&pool->pending);
    ashlar_status status = ashlar__block_table_init(&pool->table);
    if (status == ASHLAR_OK) {
        status = ashlar__jemalloc_arena_create(&pool->heap, &pool->arena);
    }
    if (status != ASHLAR_OK) {
        ashlar_pinned_destroy(pool);
        return status;
    }
    *out = pool;
    return ASHLAR_OK;
}

void ashlar_pinned_destroy(ashlar_pinned *pool) {
    if (pool == NULL) {
        return;
    }
    ashlar__pending_finish(&pool->pending);
    ashlar__jemalloc_arena_destroy(pool->arena);
    ashlar__block_table_finish(&pool->table);
    ashlar__page_heap_finish(&pool->heap);
    ashlar__lock_finish(&pool->collecting);
    ashlar__host_free(pool);
}

/* ---- taking ---- */

/* Return blocks that are no longer pending to jemalloc. Only one thread at a time does so: while it
 * works, a second thread would find these blocks neither pending nor free, and report the pool as
 * full. */
static ashlar_status collect(ashlar_pinned *pool) {
    ashlar_pinned_block *released;
    ashlar__lock_acquire(&pool->collecting);
    const ashlar_status status = ashlar__pending_poll(&pool->pending, &released);
    while (released != NULL) {
        ashlar_pinned_block *block = released;
        released = block->next;
        ASHLAR_CHECK2(block->wait_count == 0);
        ashlar__jemalloc_give(pool->arena, block->ptr);
        ashlar__host_free(block);
    }
    ashlar__lock_release(&pool->collecting);
    return status;
}

/* Take more memory from the driver. If the limit or the driver refuses, return free segments. */
static ashlar_status grow(ashlar_pinned *pool, size_t bytes, void **out) {
    const ashlar_status status = ashlar__jemalloc_take_growing(pool->arena, bytes, out);
    if (status != ASHLAR_ENOMEM || !ashlar__page_heap_trim(&pool->heap)) {
        return status;
    }
    return ashlar__jemalloc_take_growing(pool->arena, bytes, out);
}

/* `why`: the error detail of the last attempt to grow. */
static ashlar_status out_of_memory(ashlar_pinned *pool, size_t bytes, const char *why) {
    ashlar_pinned_stats stats;
    ashlar_pinned_get_stats(pool, &stats);
    return ashlar__pinned_fail(
        ASHLAR_ENOMEM,
        "no page-locked memory for %zu bytes: %llu live, %llu pending, %llu reserved; %s", bytes,
        (unsigned long long)stats.live_bytes, (unsigned long long)stats.pending_bytes,
        (unsigned long long)stats.reserved_bytes, why);
}

/*
 * A miss. Each step frees memory, then searches again.
 *   1. collect blocks that are no longer pending
 *   2. drain the caches
 *   3. take more from the driver
 *   4. wait for the oldest pending work, and start over
 * If events cannot be queried, the request fails only if no step serves it.
 */
static __attribute__((noinline)) ashlar_status take_slowly(ashlar_pinned *pool, size_t bytes,
                                                           void **out) {
    ASHLAR_CHECK2(bytes >= BLOCK_BYTES_LEAST);
    for (;;) {
        (void)collect(pool);
        if ((*out = ashlar__jemalloc_take(pool->arena, bytes)) != NULL) {
            return ASHLAR_OK;
        }
        ashlar__jemalloc_drain(pool->arena);
        if ((*out = ashlar__jemalloc_take(pool->arena, bytes)) != NULL) {
            return ASHLAR_OK;
        }
        ashlar_status status = grow(pool, bytes, out);
        if (status != ASHLAR_ENOMEM) {
            return status;
        }
        bool is_any = false;
        status = ashlar__pending_wait(&pool->pending, &is_any);
        if (status != ASHLAR_OK) {
            return status;
        }
        if (!is_any) {
            return out_of_memory(pool, bytes, ashlar_error_detail());
        }
    }
}

ashlar_status ashlar_pinned_alloc(ashlar_pinned *pool, size_t bytes, void **out) {
    if (bytes == 0) {
        return ashlar__pinned_fail(ASHLAR_EINVAL, "bytes: 0; ask for at least 1");
    }
    if (bytes > pool->heap.limit_bytes || bytes > PTRDIFF_MAX) {
        return out_of_memory(pool, bytes, "more than limit_bytes or than there can be");
    }
    ashlar_pinned_block *block = ashlar__host_calloc(1, sizeof *block);
    if (block == NULL) {
        return ashlar__pinned_fail(ASHLAR_EHOSTMEM, "no host memory for a block's record");
    }
    bytes = bytes > BLOCK_BYTES_LEAST ? bytes : BLOCK_BYTES_LEAST;
    block->ptr = ashlar__jemalloc_take(pool->arena, bytes);
    if (block->ptr == NULL) {
        const ashlar_status status = take_slowly(pool, bytes, &block->ptr);
        if (status != ASHLAR_OK) {
            ashlar__host_free(block);
            return status;
        }
    }
    block->bytes = ashlar__jemalloc_usable_bytes(block->ptr);
    ASHLAR_CHECK2(block->bytes >= bytes && (uintptr_t)block->ptr % BLOCK_BYTES_LEAST == 0);
    *out = block->ptr;
    ashlar__block_table_put(&pool->table, block);
    return ASHLAR_OK;
}

/* ---- giving back ---- */

ashlar_status ashlar_pinned_free(ashlar_pinned *pool, void *ptr) {
    if (ptr == NULL) {
        return ASHLAR_OK;
    }
    ashlar_pinned_block *block = NULL;
    const ashlar_status status = ashlar__block_table_take(&pool->table, ptr, &block);
    if (status == ASHLAR_OK) {
        ashlar__jemalloc_give(pool->arena, ptr);
        ashlar__host_free(block);
    }
    return status;
}

ashlar_status ashlar_pinned_free_on(ashlar_pinned *pool, void *ptr, ashlar_stream stream) {
    return ashlar_pinned_free_on_all(pool, ptr, &stream, 1);
}

ashlar_status ashlar_pinned_free_on_all(ashlar_pinned *pool, void *ptr,
                                        const ashlar_stream *streams, size_t count) {
    if (ptr == NULL || count == 0) {
        return ashlar_pinned_free(pool, ptr);
    }
    return ashlar__pending_add(&pool->pending, &pool->table, ptr, streams, count);
}

ashlar_status ashlar_pinned_forget_stream(ashlar_pinned *pool, ashlar_stream stream) {
    return ashlar__pending_forget_stream(&pool->pending, stream);
}

ashlar_status ashlar_pinned_usable_bytes(ashlar_pinned *pool, const void *ptr, size_t *out) {
    return ashlar__block_table_bytes(&pool->table, ptr, out);
}

ashlar_status ashlar_pinned_trim(ashlar_pinned *pool) {
    const ashlar_status status = collect(pool);
    ashlar__jemalloc_drain(pool->arena);
    (void)ashlar__page_heap_trim(&pool->heap);
    ashlar__pending_drop_spares(&pool->pending);
    return status;
}

static void sum_stats(ashlar_pinned *pool, ashlar_pinned_stats *stats) {
    ashlar__pending_lock(&pool->pending);
    ashlar__block_table_lock(&pool->table);
    ashlar__lock_acquire(&pool->heap.lock);
    ashlar__pending_read_locked(&pool->pending, stats);
    ashlar__block_table_read_locked(&pool->table, stats);
    stats->reserved_bytes = pool->heap.reserved_bytes;
    stats->reserved_peak_bytes = pool->heap.reserved_peak_bytes;
    stats->driver_alloc_count = pool->heap.alloc_calls;
    stats->driver_free_count = pool->heap.free_calls;
    ASHLAR_CHECK2(stats->live_bytes + stats->pending_bytes <= stats->reserved_bytes);
    ASHLAR_CHECK2(stats->deferred_count <= stats->free_count);
    ashlar__lock_release(&pool->heap.lock);
    ashlar__block_table_unlock(&pool->table);
    ashlar__pending_unlock(&pool->pending);
}

void ashlar_pinned_get_stats(ashlar_pinned *pool, ashlar_pinned_stats *stats) {
    ashlar_pinned_stats sums = {.live_bytes = 0};
    sum_stats(pool, &sums);
    *stats = sums;
}
