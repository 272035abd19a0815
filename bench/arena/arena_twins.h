/*
 * arena_twins.h - the tensors of an arena as a program without one has them: each an allocation of
 * its own, and everything done in launches that each know a few of them (internal).
 *
 *   per_tensor    a launch, a fill or a copy for each tensor
 *   lists_of_36   for lists of at most 36 tensors and 320 chunks of 65,536 elements, as fused
 *                 implementations elsewhere launch them; a longer tensor goes on in the next list
 *
 * A step is: a norm launch for each list, one that adds the sums up, one that decides, an update
 * launch for each list. The kernels, and what they share among the workers, are the optimizer's.
 * So a twin's results are an arena's to the last bit where factors are. Only the norm may differ,
 * in its last bits: squares are added up tensor by tensor, an arena's over the bounds of tensors;
 * and with it, where gradients are clipped, all that is multiplied by clip_norm / norm.
 *
 * Software devices only. Threads: one at a time.
 */
#ifndef ASHLAR_ARENA_TWINS_H
#define ASHLAR_ARENA_TWINS_H

#include <ashlar/arena.h>
#include <ashlar/optimizer.h>

#include "bench/arena/arena_lists.h"

/* The two of above. */
extern const ashlar_arena_list_limits ashlar_twin_per_tensor, ashlar_twin_lists_of_36;

typedef struct ashlar_arena_twin ashlar_arena_twin;

/*
 * Make a twin of an arena, with its parameters and gradients of now and moments of 0, before the
 * first step of AdamW or Adam. All blocks are taken from the arena's allocator in a random order,
 * so that neighbours in the arena are none here.
 *
 * arena    all tensors fp32 without options, with the regions of `config`
 * limits   of its launches; where they are of one tensor, fills and copies are the device's own
 *
 * Ownership: *out is the caller's; the arena must outlive it.
 * Errors:    ASHLAR_ENOTSUP (a CUDA device), ASHLAR_EINVAL (other tensors, another optimizer),
 *            ASHLAR_EHOSTMEM, and those of ashlar_alloc() and copies.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_arena_twin_create(const ashlar_arena *arena,
                                                         const ashlar_optimizer_config *config,
                                                         const ashlar_arena_list_limits *limits,
                                                         ashlar_stream stream,
                                                         ashlar_arena_twin **out);
void ashlar_arena_twin_destroy(ashlar_arena_twin *twin); /* NULL is allowed */

size_t ashlar_arena_twin_list_count(const ashlar_arena_twin *twin); /* launches of each kind */

/* The program's pointer to one parameter tensor, which flatten changes; its other tensors. */
void **ashlar_arena_twin_pointer(ashlar_arena_twin *twin, size_t tensor);
void *ashlar_arena_twin_view(const ashlar_arena_twin *twin, ashlar_region region, size_t tensor);

/*
 * Queue a step, zeros for all gradients, or the norm of all gradients alone. Errors: those of
 * launches and fills.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_arena_twin_step(ashlar_arena_twin *twin,
                                                       double learning_rate);
ASHLAR_MUST_CHECK ashlar_status ashlar_arena_twin_zero(ashlar_arena_twin *twin);
ASHLAR_MUST_CHECK ashlar_status ashlar_arena_twin_norm(ashlar_arena_twin *twin);

/* Device address of the sum of squares that the norm is the root of. */
const double *ashlar_arena_twin_sum_address(const ashlar_arena_twin *twin);

/*
 * Queue copies of all parameters to their places in the arena, and let the pointers point there;
 * scatter lets them point to the twin's own tensors again. Errors: those of copies.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_arena_twin_flatten(ashlar_arena_twin *twin);
void ashlar_arena_twin_scatter(ashlar_arena_twin *twin);

/*
 * Take a block for each parameter tensor of a replica on the same device, and queue the copies;
 * drop frees them. Errors: those of ashlar_alloc() and copies; drop what there is then, too.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_arena_twin_replicate(ashlar_arena_twin *twin);
void ashlar_arena_twin_drop_replica(ashlar_arena_twin *twin);

/* Device address of a tensor of the replica; NULL: there is none. */
const void *ashlar_arena_twin_replica(const ashlar_arena_twin *twin, size_t tensor);

/*
 * Save the parameters as ashlar_checkpoint_save() does an arena's, in the same format, after a copy
 * to the host of each. There is no form of it for lists. Waits. Errors: as there.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_arena_twin_save(ashlar_arena_twin *twin, const char *path);

#endif /* ASHLAR_ARENA_TWINS_H */
