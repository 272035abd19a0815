/* optimizer_part.h - an optimizer of which this rank holds and updates a part (internal).
 *
 * The part is a range of the arena's storage layout. The rank has moments and masters only for this
 * range, in blocks of their own: the arena has no regions for them. The program sums the gradients
 * of a part over all ranks, but only onto the part's rank. A step is then
 *
 *     squares   of the part's gradients, chunk by chunk; the sums of all other chunks are 0
 *     ...       the program adds these sums up over all ranks. For each chunk only one rank's sum
 *               is not 0, so every rank gets the sums of a single process, whatever the order
 *     update    adds up the chunks' sums in the order of a single process, makes its decision from
 *               them, with the same bits on every rank, and updates the part
 *     ...       the program sends the part's parameters to the other ranks
 *
 * Parts end where chunks do, so that one rank computes all of a chunk's squares. */
#ifndef ASHLAR_OPTIMIZER_PART_H
#define ASHLAR_OPTIMIZER_PART_H

#include <ashlar/optimizer.h>

enum { ASHLAR_PART_STATES = 3 };

/* The share of a region that belongs to a part. */
typedef struct ashlar_part_state {
    ashlar_region region;
    size_t begin, end; /* bytes of the region */
    char *data;        /* [end - begin]; NULL: the region is not needed, or the part is another's */
} ashlar_part_state;

typedef struct ashlar_optimizer_part {
    size_t begin, end; /* bytes of the storage layout */
    ashlar_part_state states[ASHLAR_PART_STATES];
} ashlar_optimizer_part;

/* The part of rank `rank`, without data: parts lie side by side, cover the layout, and are as equal
 * as their chunks allow. A part may be empty. */
ashlar_optimizer_part ashlar__optimizer_part_bounds(const ashlar_optimizer *optimizer, size_t rank,
                                                    size_t ranks);

/* Of the `regions` that an optimizer of the whole arena needs: those that a part needs there, too.
 */
unsigned ashlar__optimizer_part_regions(unsigned regions);

/* As ashlar_optimizer_create(), for one of several parts. The arena needs parameters and gradients.
 * The optimizer serves only the two calls of a step below, and those that read and write its state.
 * Errors: those of ashlar_optimizer_create(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__optimizer_create_part(ashlar_arena *arena,
                                                              const ashlar_optimizer_config *config,
                                                              size_t rank, size_t ranks,
                                                              ashlar_stream stream,
                                                              ashlar_optimizer **out);

/* The optimizer's part; NULL: it is one of the whole arena. */
const ashlar_optimizer_part *ashlar__optimizer_part_of(const ashlar_optimizer *optimizer);

/* Queue the two halves of a step of a part. Between them the program replaces the doubles
 * sums[0 .. count - 1], in device memory, by their sums over all ranks. Errors: those of
 * ashlar_optimizer_step(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__optimizer_part_squares(ashlar_optimizer *optimizer,
                                                               ashlar_stream stream, double **sums,
                                                               size_t *count);
ASHLAR_MUST_CHECK ashlar_status ashlar__optimizer_part_update(ashlar_optimizer *optimizer,
                                                              double learning_rate,
                                                              double gradient_scale,
                                                              ashlar_stream stream);

/* ---- for optimizer.c ---- */

/* Make *part the range [begin, end) of the storage layout, without data. */
void ashlar__optimizer_part_set(ashlar_optimizer_part *part, const ashlar_arena *arena,
                                size_t begin, size_t end);

/* _take: take memory, filled with 0, for the part's shares of `regions`. _give: free it. Errors:
 * those of ashlar_alloc_tagged(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__optimizer_part_take(ashlar_optimizer_part *part,
                                                            const ashlar_arena *arena,
                                                            unsigned regions, ashlar_stream stream);
void ashlar__optimizer_part_give(ashlar_optimizer_part *part, const ashlar_arena *arena);

#endif /* ASHLAR_OPTIMIZER_PART_H */
