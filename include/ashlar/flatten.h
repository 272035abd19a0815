/*
 * flatten.h - gather scattered tensors into a region of an arena.
 */
#ifndef ASHLAR_FLATTEN_H
#define ASHLAR_FLATTEN_H

#include <stddef.h>

#include <ashlar/allocator.h>
#include <ashlar/arena.h>
#include <ashlar/export.h>
#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

/* A pointer of the program, and the tensor of the arena that it points to. */
typedef struct ashlar_flatten_item {
    size_t tensor;  /* of the arena */
    void **pointer; /* to its elements, in the region's type; of a view, &view.data */
} ashlar_flatten_item;

typedef struct ashlar_flatten_stats {
    size_t copies;       /* queued; several in one driver call where there is one */
    size_t copied_bytes;
    size_t merged;       /* tensors whose copy became part of a neighbour's */
    size_t in_place;     /* tensors that lay where they belong, and needed none */
    size_t tied;         /* items whose tensor an earlier item had named */
    size_t freed_blocks; /* of `owner` */
    size_t kept_blocks;  /* of `owner`: some of their bytes were gathered, but not all */
} ashlar_flatten_stats;

/*
 * Copy what the items point to into `region`, set their pointers to the copies, and bind them.
 *
 * Neighbours in memory that are neighbours in the region, with no padding between, are one copy.
 * Tensors that lie in their place already are not copied; so this also mends what
 * ashlar_arena_check() found.
 *
 * Tied tensors are one tensor of the arena that several items name. All of these must point to the
 * same memory, which is copied once. Refused are one memory for two tensors of the arena, since it
 * would come apart, two memories for one tensor, and memories that overlap in part.
 *
 * items    `count` of them, of any of the arena's tensors
 * owner    the allocator that the memory was taken from; NULL: nothing is freed. A block is freed
 *          to it if the gathered tensors cover every byte that was asked for: a block of one
 *          tensor, or one divided into tensors without a gap. A block with further bytes, even
 *          padding, may hold something else, and stays the caller's. No pointer but the items' may
 *          point into blocks that are freed, and nobody else (an arena, say) may free them
 * stats    NULL is allowed
 *
 * With an owner, gathering a model region by region never needs more than one region beside it:
 * commit with ASHLAR_REGIONS_INFERENCE, flatten the parameters, ashlar_arena_extend() by the next
 * region, flatten that one.
 *
 * Ownership: pointers stay bound (ashlar_arena_unbind()).
 * Threads:   one at a time for an arena.
 * Stream:    no host wait. `stream` must come after work queued on other streams for the memory
 *            that is gathered. Blocks are freed in the order of their own stream and of `stream`.
 * Errors:    ASHLAR_EINVAL (no such region or tensor, a NULL pointer, memories and tensors that do
 *            not belong together, as above; memory of the arena itself that is not the tensor's
 *            place; a tensor that reaches over its block's end), ASHLAR_EPOINTER (memory that is in
 *            no live block of `owner`), ASHLAR_EHOSTMEM, and those of ashlar_copy_batch(). No
 *            pointer, binding or block has changed then, but copies may be queued that overwrite
 *            the tensors' places.
 *            With an owner in a guard mode also those of ashlar_free(): everything was gathered
 *            then, and blocks that could not be freed stay the caller's.
 * Cost:      O(count log count); with an owner also O(blocks of the owner), under its lock.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_flatten(
    ashlar_arena *arena, ashlar_region region, const ashlar_flatten_item *items, size_t count,
    ashlar_allocator *owner, ashlar_stream stream, ashlar_flatten_stats *stats);

ASHLAR_END_DECLS

#endif /* ASHLAR_FLATTEN_H */
