/* flatten.h - gather scattered tensors into a region of an arena. */
#ifndef ASHLAR_FLATTEN_H
#define ASHLAR_FLATTEN_H

#include <stddef.h>

#include <ashlar/allocator.h>
#include <ashlar/arena.h>
#include <ashlar/export.h>
#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

/* A pointer of the program, and the tensor of the arena that the memory behind it belongs to. */
typedef struct ashlar_flatten_item {
    size_t tensor;  /* the tensor's number in the arena */
    void **pointer; /* points to the elements, in the region's type; for a view, &view.data */
} ashlar_flatten_item;

typedef struct ashlar_flatten_stats {
    size_t copies; /* queued; ashlar_copy_batch() may make one driver call of them */
    size_t copied_bytes;
    size_t merged;       /* tensors that were copied together with the neighbour before */
    size_t in_place;     /* tensors that were in their place already, and were not copied */
    size_t tied;         /* items whose tensor an earlier item had named */
    size_t freed_blocks; /* blocks of `owner` that were freed */
    size_t kept_blocks;  /* blocks of `owner` of which some bytes were gathered, but not all */
} ashlar_flatten_stats;

/* Copy the memory that the items point to into `region`, set the items' pointers to the copies, and
 * bind them (ashlar_arena_bind()).
 *
 * Tensors that are neighbours both in memory and in the region, with no padding between, are copied
 * together. Tensors that lie in their place already are not copied; so this call also repairs the
 * pointers that ashlar_arena_check() complains about.
 *
 * Tied tensors are one tensor of the arena that several items name. All these items must point to
 * the same memory, which is copied once. The call is refused if two tensors of the arena share one
 * memory, since they would be shared no longer; if one tensor has two memories; or if two memories
 * overlap in part.
 *
 * items    [count], for any of the arena's tensors
 * owner    the allocator that the memory was taken from; NULL: nothing is freed. A block of `owner`
 *          is freed if the gathered tensors cover every byte that was requested for it: a block of
 *          one tensor, or one divided into tensors without a gap. A block with further bytes, even
 *          padding, may hold something else, and stays the caller's. Only the items' pointers may
 *          point into blocks that are freed, and nobody else (another arena, say) may free these
 * stats    NULL is allowed
 *
 * With an owner, gathering a model region by region never needs more extra memory than one region:
 * commit with ASHLAR_REGIONS_INFERENCE, flatten the parameters, add the next region by
 * ashlar_arena_extend(), flatten that region, and so on.
 *
 * Ownership: the caller's pointers stay bound until ashlar_arena_unbind().
 * Threads:   one at a time for an arena.
 * Stream:    no host wait. `stream` must be ordered after other streams' work on the gathered
 *            memory. Blocks are freed in the order of their own stream and of `stream`.
 * Errors:    ASHLAR_EINVAL (no such region or tensor; a NULL pointer; the call is refused, as said
 *            above; memory of the arena itself that is not the tensor's place; a tensor that
 *            reaches beyond its block's end), ASHLAR_EPOINTER (memory that is in no live block of
 *            `owner`), ASHLAR_EHOSTMEM, and those of ashlar_copy_batch(). No pointer, binding or
 *            block has changed then, but copies may be queued that overwrite the tensors' places.
 *            If `owner` has a guard mode, also those of ashlar_free(): everything was gathered
 *            then, and blocks that could not be freed stay the caller's.
 * Cost:      O(count log count); with an owner also O(blocks of the owner), under its lock. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_flatten(
    ashlar_arena *arena, ashlar_region region, const ashlar_flatten_item *items, size_t count,
    ashlar_allocator *owner, ashlar_stream stream, ashlar_flatten_stats *stats);

ASHLAR_END_DECLS

#endif /* ASHLAR_FLATTEN_H */
