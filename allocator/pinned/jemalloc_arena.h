/*
 * jemalloc_arena.h - an arena of jemalloc's, which divides runs of a page heap into blocks
 * (internal to ashlar-pinned).
 *
 * jemalloc gets its extents from the page heap and keeps them until it is drained: it does not
 * purge by time, and never joins two of them. Draining returns every extent without a block in use,
 * so that all merging happens in the page heap; we drain before taking more from the driver. The
 * arena's records lie in ordinary memory.
 *
 * jemalloc's automatic thread caches are never used. They belong to a thread, not to an arena: one
 * would hand page-locked memory to malloc(), and keep it after the arena is gone. We use a few
 * explicit caches with a lock each instead, which threads share and anyone can drain. mallocx +
 * dallocx of 4 KiB take about 20 ns with a cache, 480 ns without.
 */
#ifndef ASHLAR_PINNED_JEMALLOC_ARENA_H
#define ASHLAR_PINNED_JEMALLOC_ARENA_H

#include <stddef.h>

#include "allocator/pinned/page_heap.h"

typedef struct ashlar_jemalloc_arena ashlar_jemalloc_arena;

/* jemalloc's page, of which every extent is a multiple. 0: it does not say. */
size_t ashlar__jemalloc_page_bytes(void);

/* `heap` outlives the arena.  Errors: ASHLAR_ENOTSUP (jemalloc before 5.3), ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__jemalloc_arena_create(ashlar_page_heap *heap,
                                                              ashlar_jemalloc_arena **out);

/* Ends all blocks, and returns all runs to the page heap. NULL is allowed. */
void ashlar__jemalloc_arena_destroy(ashlar_jemalloc_arena *arena);

/* A block from what is there; NULL: the page heap would have to grow. bytes > 0. */
void *ashlar__jemalloc_take(ashlar_jemalloc_arena *arena, size_t bytes);

/*
 * A block for which the page heap may grow. No lock of ours is held while it does.
 * Errors: those of ashlar__page_heap_grow().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__jemalloc_take_growing(ashlar_jemalloc_arena *arena,
                                                              size_t bytes, void **out);

void ashlar__jemalloc_give(ashlar_jemalloc_arena *arena, void *ptr);

/* The size of the block at `ptr`. */
size_t ashlar__jemalloc_usable_bytes(const void *ptr);

/*
 * Empty all caches, and return every extent without a block in use to the page heap. Of two threads
 * that drain at once, one may leave some to the other.
 */
void ashlar__jemalloc_drain(ashlar_jemalloc_arena *arena);

#endif /* ASHLAR_PINNED_JEMALLOC_ARENA_H */
