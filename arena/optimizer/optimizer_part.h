/* optimizer_part.h - an optimizer of which this rank holds and updates a part (internal).
 *
 * The part is a range of the arena's storage layout. Only for it are there moments and masters, in
 * blocks beside the arena, which has no regions for them. The program sums up the gradients of each
 * part on its rank alone; a step is then
 *
 *     squares   of the part's gradients, chunk by chunk; the sums of all other chunks are 0
 *     ...       the program adds these sums up over all ranks, where each has one addend that is
 *               not 0: so in any order every rank gets the sums that one process would have
 *     update    adds up the chunks in the order of one process, decides, as every rank does, with
 *               its bits, and updates the part
 *     ...       the program sends the parts of the parameters to the other ranks
 *
 * Parts end where chunks do, so that each chunk's squares are of one rank. */
#ifndef ASHLAR_OPTIMIZER_PART_H
#define ASHLAR_OPTIMIZER_PART_H

#include <ashlar/optimizer.h>

enum { ASHLAR_PART_STATES = 3 };

/* What a part has of a region. */
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

/* The regions that a divided optimizer needs in the arena, of those that a whole one needs. */
unsigned ashlar__optimizer_part_regions(unsigned regions);

/* As ashlar_optimizer_create(), for one of several parts. The arena needs parameters and gradients.
 * The optimizer serves the two calls below, and those that read and write its state. Errors: the
 * same. */
ASHLAR_MUST_CHECK ashlar_status ashlar__optimizer_create_part(ashlar_arena *arena,
                                                              const ashlar_optimizer_config *config,
                                                              size_t rank, size_t ranks,
                                                              ashlar_stream stream,
                                                              ashlar_optimizer **out);

/* NULL: the optimizer is whole. */
const ashlar_optimizer_part *ashlar__optimizer_part_of(const ashlar_optimizer *optimizer);

/* Queue the two halves of a step of a part. Between them the program replaces the doubles
 * sums[0 .. count - 1], in device memory, by the sums of them over all ranks. Errors: those of
 * ashlar_optimizer_step(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__optimizer_part_squares(ashlar_optimizer *optimizer,
                                                               ashlar_stream stream, double **sums,
                                                               size_t *count);
ASHLAR_MUST_CHECK ashlar_status ashlar__optimizer_part_update(ashlar_optimizer *optimizer,
                                                              double learning_rate,
                                                              double gradient_scale,
                                                              ashlar_stream stream);

/* ---- for optimizer.c ---- */

/* Set what lies in [begin, end) of the storage layout. */
void ashlar__optimizer_part_set(ashlar_optimizer_part *part, const ashlar_arena *arena,
                                size_t begin, size_t end);

/* Take what the part has of `regions`, filled with 0. Errors: those of ashlar_alloc_tagged(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__optimizer_part_take(ashlar_optimizer_part *part,
                                                            const ashlar_arena *arena,
                                                            unsigned regions, ashlar_stream stream);
void ashlar__optimizer_part_give(ashlar_optimizer_part *part, const ashlar_arena *arena);

#endif /* ASHLAR_OPTIMIZER_PART_H */
