/*
 * per_tensor.h - an arena's tensors as in a program without an arena: each has its own allocation,
 * and a launch works on few of them (internal).
 *
 *   per_tensor    a launch, a fill or a copy for each tensor
 *   lists_of_36   one for each list of at most 36 tensors and 320 chunks of 65,536 elements, as in
 *                 fused implementations elsewhere; a longer tensor continues in the next list
 *
 * A step is a norm launch for each list, one that adds up the sums, one that decides, and an update
 * launch for each list. Kernels, and how workers share them, are the optimizer's. So results equal
 * an arena's to the last bit, except that the norm may differ in its last bits, since squares are
 * added tensor by tensor, but in an arena across tensors. If gradients are clipped, everything
 * multiplied by clip_norm / norm differs likewise.
 *
 * Software devices only. Threads: one at a time.
 */
#ifndef ASHLAR_PER_TENSOR_H
#define ASHLAR_PER_TENSOR_H

#include <ashlar/arena.h>
#include <ashlar/device.h>
#include <ashlar/optimizer.h>

#include "arena/optimizer/optimizer_impl.h"

typedef struct ashlar_arena_list_limits {
    size_t tensors;        /* 1 .. */
    size_t chunks;         /* 1 .. */
    size_t chunk_elements; /* a multiple of ASHLAR_OPTIMIZER_CHUNK */
} ashlar_arena_list_limits;

/* What a list covers: from element `skip` of run `first` to element `end` (exclusive) of run first
 * + count - 1, with all runs between. */
typedef struct ashlar_arena_list {
    size_t first, count;
    size_t skip, end;
} ashlar_arena_list;

/*
 * Split `count` runs, all not empty, into lists. Returns the number of lists.
 *
 * lists   room for all of them; NULL: they are only counted
 */
size_t ashlar__arena_lists_split(const ashlar_optimizer_run *runs, size_t count,
                                 const ashlar_arena_list_limits *limits, ashlar_arena_list *lists);

/* Piece `i` of a list: elements [*begin, *end) of run list->first + i. */
void ashlar__arena_list_piece(const ashlar_arena_list *list, const ashlar_optimizer_run *runs,
                              size_t i, size_t *begin, size_t *end);

/* Make a job cover a list. `runs` is the host's table, numbered; `device_runs` is its copy. */
void ashlar__arena_list_cover(const ashlar_arena_list *list, const ashlar_optimizer_run *runs,
                              const ashlar_optimizer_run *device_runs, ashlar_optimizer_job *job);

/* The limits of per_tensor and of lists_of_36. */
extern const ashlar_arena_list_limits ashlar__list_limits_one, ashlar__list_limits_36;

typedef struct ashlar_per_tensor ashlar_per_tensor;

/*
 * Make scattered copies of an arena's tensors: its present parameters and gradients, and moments of
 * 0, as before the first step of AdamW or Adam. All blocks are taken from the arena's allocator in
 * a random order, so that neighbours in the arena are not neighbours here.
 *
 * arena    all tensors are fp32 without options; has the regions of `config`
 * limits   of a list; with lists of one tensor, fills and copies are the device's own
 *
 * Ownership: *out is the caller's; the arena must outlive it.
 * Errors:    ASHLAR_ENOTSUP (a CUDA device), ASHLAR_EINVAL (other tensors, another optimizer),
 *            ASHLAR_EHOSTMEM, and those of ashlar_alloc() and copies.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__per_tensor_create(const ashlar_arena *arena,
                                                          const ashlar_optimizer_config *config,
                                                          const ashlar_arena_list_limits *limits,
                                                          ashlar_stream stream,
                                                          ashlar_per_tensor **out);
void ashlar__per_tensor_destroy(ashlar_per_tensor *per_tensor); /* NULL is allowed */

size_t
ashlar__per_tensor_list_count(const ashlar_per_tensor *per_tensor); /* launches of each kind */

/* The program's pointer to a tensor's parameters, which flatten changes; a tensor in any region. */
void **ashlar__per_tensor_pointer(ashlar_per_tensor *per_tensor, size_t tensor);
void *ashlar__per_tensor_view(const ashlar_per_tensor *per_tensor, ashlar_region region,
                              size_t tensor);

/* Queue a step, a fill of all gradients with zeros, or the norm of all gradients alone. Errors:
 * those of launches and fills. */
ASHLAR_MUST_CHECK ashlar_status ashlar__per_tensor_step(ashlar_per_tensor *per_tensor,
                                                        double learning_rate);
ASHLAR_MUST_CHECK ashlar_status ashlar__per_tensor_zero(ashlar_per_tensor *per_tensor);
ASHLAR_MUST_CHECK ashlar_status ashlar__per_tensor_norm(ashlar_per_tensor *per_tensor);

/* Device address of the sum of squares; the norm is its square root. */
const double *ashlar__per_tensor_sum_address(const ashlar_per_tensor *per_tensor);

/* Queue copies of all parameters to their places in the arena, and make the pointers point there;
 * scatter makes them point back to the tensors' own allocations. Errors: those of copies. */
ASHLAR_MUST_CHECK ashlar_status ashlar__per_tensor_flatten(ashlar_per_tensor *per_tensor);
void ashlar__per_tensor_scatter(ashlar_per_tensor *per_tensor);

/*
 * Take a block for each parameter tensor of a replica on the same device, and queue the copies.
 * Drop frees the blocks; call it after a failure, too. Errors: those of ashlar_alloc() and copies.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__per_tensor_replicate(ashlar_per_tensor *per_tensor);
void ashlar__per_tensor_drop_replica(ashlar_per_tensor *per_tensor);

/* Device address of a tensor of the replica; NULL: there is no replica. */
const void *ashlar__per_tensor_replica(const ashlar_per_tensor *per_tensor, size_t tensor);

/* Save the parameters like ashlar_checkpoint_save() and in its format, after a copy of each tensor
 * to the host; lists make no difference. Waits. Errors: those of ashlar_checkpoint_save(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__per_tensor_save(ashlar_per_tensor *per_tensor,
                                                        const char *path);

#endif /* ASHLAR_PER_TENSOR_H */
