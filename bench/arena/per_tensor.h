/* per_tensor.h - an arena's tensors scattered: each in an allocation of its own, and worked on one
 * by one (internal).
 *
 * A step is a norm launch for each tensor, a launch that adds the sums up, one that decides, and an
 * update launch for each tensor. The kernels, and the way in which workers share them, are the
 * optimizer's. So results equal an arena's to the last bit, with one exception: the norm may differ
 * in its last bits, since its squares are added tensor by tensor, and in an arena across tensors.
 * If gradients are clipped, so may everything that is multiplied by clip_norm / norm.
 *
 * On a CUDA device only copies and fills work: steps and norms are run by the CPU. Threads: one at
 * a time. */
#ifndef ASHLAR_PER_TENSOR_H
#define ASHLAR_PER_TENSOR_H

#include <ashlar/arena.h>
#include <ashlar/device.h>
#include <ashlar/optimizer.h>

#include "arena/optimizer/optimizer_impl.h"

/* The device's block is [scalars][sums][runs][partials], as an optimizer's. */
typedef struct ashlar_per_tensor {
    const ashlar_arena *arena;
    ashlar_allocator *allocator;
    ashlar_device *device;
    ashlar_stream stream;
    ashlar_optimizer_rule rule;
    size_t count;                      /* tensors */
    ashlar_optimizer_run *runs;        /* [count] the host's copy, one for each tensor */
    ashlar_optimizer_job *jobs;        /* [count] */
    void **pointers;                   /* [count] the program's pointers to parameters */
    ashlar_optimizer_scalars *scalars; /* in device memory, as are the sums */
    ashlar_optimizer_scalars *sums;    /* [count]; only `sum` is used */
} ashlar_per_tensor;

/* Make scattered copies of an arena's tensors, with the arena's present parameters and gradients,
 * and moments of 0, as before the first step. All blocks are taken from the arena's allocator in a
 * random order, so that neighbours in the arena are not neighbours here.
 *
 * arena    all tensors fp32 without options, with the regions of `config`: AdamW or Adam
 *
 * Ownership: *out is the caller's; the arena must outlive it.
 * Errors:    ASHLAR_EHOSTMEM, and those of ashlar_alloc() and copies. */
ASHLAR_MUST_CHECK ashlar_status ashlar__per_tensor_create(const ashlar_arena *arena,
                                                          const ashlar_optimizer_config *config,
                                                          ashlar_stream stream,
                                                          ashlar_per_tensor **out);
void ashlar__per_tensor_destroy(ashlar_per_tensor *per_tensor); /* NULL is allowed */

/* Queue work on all tensors. _step: a step of the optimizer. _zero: zeros for the gradients. _norm:
 * the norm of the gradients. _flatten: copies of all parameters to their places in the arena, where
 * the pointers then point. Errors: those of launches, fills and copies. */
ASHLAR_MUST_CHECK ashlar_status ashlar__per_tensor_step(ashlar_per_tensor *per_tensor,
                                                        double learning_rate);
ASHLAR_MUST_CHECK ashlar_status ashlar__per_tensor_zero(ashlar_per_tensor *per_tensor);
ASHLAR_MUST_CHECK ashlar_status ashlar__per_tensor_norm(ashlar_per_tensor *per_tensor);
ASHLAR_MUST_CHECK ashlar_status ashlar__per_tensor_flatten(ashlar_per_tensor *per_tensor);

/* Make the pointers point to the tensors' own allocations again. */
void ashlar__per_tensor_scatter(ashlar_per_tensor *per_tensor);

#endif /* ASHLAR_PER_TENSOR_H */
