/* optimizer_part.h - an optimizer of which this rank holds and updates a part (internal).
 *
 * The part is a range of the arena's storage layout. Only for it are there moments, in a block
 * beside the arena, which has no regions for them. Every step sums up the squares of all gradients,
 * so that each rank decides alike, with the bits of one process; then it updates the part. The
 * program sends the parts of the parameters to the other ranks. */
#ifndef ASHLAR_OPTIMIZER_PART_H
#define ASHLAR_OPTIMIZER_PART_H

#include <ashlar/optimizer.h>

typedef struct ashlar_optimizer_part {
    size_t begin, end; /* bytes of the storage layout, multiples of ASHLAR_ARENA_ALIGN */
    void *moments[2];  /* [end - begin] bytes each; NULL: the algorithm has none */
} ashlar_optimizer_part;

/* The part of rank `rank`: parts are as equal as their alignment allows, side by side, and cover
 * the layout. A part may be empty. */
void ashlar__optimizer_part_bounds(const ashlar_arena *arena, size_t rank, size_t ranks,
                                   size_t *begin, size_t *end);

/* As ashlar_optimizer_create(), for one of several parts. The arena needs parameters and gradients.
 *
 * Errors: also ASHLAR_ENOTSUP: the arena has tensors of a narrow type, whose masters would have to
 *         be divided, too. */
ASHLAR_MUST_CHECK ashlar_status ashlar__optimizer_create_part(ashlar_arena *arena,
                                                              const ashlar_optimizer_config *config,
                                                              size_t rank, size_t ranks,
                                                              ashlar_stream stream,
                                                              ashlar_optimizer **out);

/* NULL: the optimizer is whole. */
const ashlar_optimizer_part *ashlar__optimizer_part_of(const ashlar_optimizer *optimizer);

/* ---- for optimizer.c ---- */

/* Take the moments of a part whose bounds are set, and fill them with 0. Errors: as above, and
 * those of ashlar_alloc_tagged(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__optimizer_part_take(ashlar_optimizer_part *part,
                                                            const ashlar_arena *arena,
                                                            unsigned regions, ashlar_stream stream);
void ashlar__optimizer_part_give(ashlar_optimizer_part *part, const ashlar_arena *arena);

#endif /* ASHLAR_OPTIMIZER_PART_H */
