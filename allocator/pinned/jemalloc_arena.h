/*
 * jemalloc_arena.h - a jemalloc arena, which divides runs of a page heap into blocks (internal to
 * ashlar-pinned).
 *
 * jemalloc gets its extents from the page heap and keeps them until it is drained: it neither
 * purges nor joins extents. Draining returns every extent without a used block, so that all merging
 * happens in the page heap; the pool drains before it takes more from the driver. The arena's own
 * records lie in ordinary memory.
 *
 * jemalloc's automatic thread caches are not used. They belong to a thread, not to an arena: they
 * would hand page-locked memory to malloc(), and keep it after the arena is gone. Instead threads
 * share a few explicit caches, each with a lock, which any thread can drain. mallocx + dallocx of 4
 * KiB take about 20 ns with a cache, 480 ns without.
 */
#ifndef ASHLAR_PINNED_JEMALLOC_ARENA_H
#define ASHLAR_PINNED_JEMALLOC_ARENA_H

#include <stddef.h>

#include "allocator/pinned/page_heap.h"

typedef struct ashlar_jemalloc_arena ashlar_jemalloc_arena;

/* jemalloc's page size, of which every extent is a multiple. 0: unknown. */
size_t ashlar__jemalloc_page_bytes(void);

/* `heap` must outlive the arena. Errors: ASHLAR_ENOTSUP (jemalloc before 5.3), ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__jemalloc_arena_create(ashlar_page_heap *heap,
                                                              ashlar_jemalloc_arena **out);

/* Frees all blocks, and returns all runs to the page heap. NULL is allowed. */
void ashlar__jemalloc_arena_destroy(ashlar_jemalloc_arena *arena);

/* Take a block from memory that the arena or the page heap has. NULL: there is none. bytes > 0. */
void *ashlar__jemalloc_take(ashlar_jemalloc_arena *arena, size_t bytes);

/* Take a block, for which the page heap may grow. No lock of ours is held while it does. Errors:
 * those of ashlar__page_heap_grow(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__jemalloc_take_growing(ashlar_jemalloc_arena *arena,
                                                              size_t bytes, void **out);

void ashlar__jemalloc_give(ashlar_jemalloc_arena *arena, void *ptr);

/* The size of the block at `ptr`. */
size_t ashlar__jemalloc_usable_bytes(const void *ptr);

/* Empty all caches, and return every extent without a used block to the page heap. If two threads
 * drain at once, either may leave extents to the other. */
void ashlar__jemalloc_drain(ashlar_jemalloc_arena *arena);

#endif /* ASHLAR_PINNED_JEMALLOC_ARENA_H */
