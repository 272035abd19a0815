/*
 * jemalloc_arena.h - an arena of jemalloc's, which divides runs of a page heap into blocks
 * (internal to ashlar-pinned).
 *
 * jemalloc gets its extents from the page heap and keeps them until it is drained; it never purges
 * by time, and never joins two of them. Draining gives back every extent without a block in use,
 * so that all merging happens in one place; it is done before more is taken from the driver. The
 * arena's records lie in ordinary memory.
 *
 * jemalloc's automatic thread caches are never used: they belong to a thread and not to an arena,
 * so that one would hand page-locked memory to malloc(), and keep it when the arena is gone. In
 * their stead stand a few explicit ones with a lock each, which threads share and anyone can drain.
 * mallocx + dallocx of 4 KiB take some 20 ns with one, 480 ns with none.
 */
#ifndef ASHLAR_PINNED_JEMALLOC_ARENA_H
#define ASHLAR_PINNED_JEMALLOC_ARENA_H

#include <stddef.h>

#include "allocator/pinned/page_heap.h"

typedef struct ashlar_jemalloc_arena ashlar_jemalloc_arena;

/* The page of which every extent is a multiple. */
size_t ashlar__jemalloc_page_bytes(void);

/* `heap` outlives the arena.  Errors: ASHLAR_ENOTSUP (jemalloc before 5.3), ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__jemalloc_arena_create(ashlar_page_heap *heap,
                                                              ashlar_jemalloc_arena **out);

/* All blocks are gone with it, and all runs given back. NULL is allowed. */
void ashlar__jemalloc_arena_destroy(ashlar_jemalloc_arena *arena);

/* A block out of what is at hand; NULL: the page heap would have to grow. bytes > 0. */
void *ashlar__jemalloc_take(ashlar_jemalloc_arena *arena, size_t bytes);

/*
 * A block for which the page heap may grow. No lock of ours is held while it does.
 * Errors: those of ashlar__page_heap_grow().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__jemalloc_take_growing(ashlar_jemalloc_arena *arena,
                                                              size_t bytes, void **out);

void ashlar__jemalloc_give(ashlar_jemalloc_arena *arena, void *ptr);

/* How many bytes the block at `ptr` has. */
size_t ashlar__jemalloc_usable_bytes(const void *ptr);

/*
 * Empty all caches, and give back to the page heap every extent without a block in use; where two
 * threads drain at once, one of them may leave some to the other.
 */
void ashlar__jemalloc_drain(ashlar_jemalloc_arena *arena);

#endif /* ASHLAR_PINNED_JEMALLOC_ARENA_H */
