/* per_tensor.h - the tensors of an arena as in a program without arenas: each has an allocation of
 * its own, and all work is done in launches that each cover a few tensors (internal).
 *
 *   per_tensor    a launch, a fill or a copy for each tensor
 *   lists_of_36   for lists of at most 36 tensors and 320 chunks of 65,536 elements, as fused
 *                 implementations elsewhere launch them; a longer tensor goes on in the next list
 *
 * A step is a norm launch for each list, a launch that adds the sums up, one that decides, and an
 * update launch for each list. The kernels, and the way in which workers share them, are the
 * optimizer's. So results equal an arena's to the last bit, with one exception: the norm may differ
 * in its last bits, since its squares are added tensor by tensor, and in an arena across tensors.
 * If gradients are clipped, so may everything that is multiplied by clip_norm / norm.
 *
 * On a CUDA device only copies, and fills tensor by tensor, work: steps, norms and fills of lists
 * are run by the CPU. Threads: one at a time. */
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

/* The elements that a list covers: those of run `first` from `skip` on, all of the runs between,
 * and those of run first + count - 1 before `end`. */
typedef struct ashlar_arena_list {
    size_t first, count;
    size_t skip, end;
} ashlar_arena_list;

/* Split `count` runs, none of them empty, and return how many lists there are.
 *
 * lists   room for all lists; NULL: only count them */
size_t ashlar__arena_lists_split(const ashlar_optimizer_run *runs, size_t count,
                                 const ashlar_arena_list_limits *limits, ashlar_arena_list *lists);

/* Piece `i` of a list: elements [*begin, *end) of run list->first + i. */
void ashlar__arena_list_piece(const ashlar_arena_list *list, const ashlar_optimizer_run *runs,
                              size_t i, size_t *begin, size_t *end);

/* Make a job cover a list. `runs` are numbered, and in host memory; the job points into
 * `device_runs`, their copy on the device. */
void ashlar__arena_list_cover(const ashlar_arena_list *list, const ashlar_optimizer_run *runs,
                              const ashlar_optimizer_run *device_runs, ashlar_optimizer_job *job);

/* Limits of per_tensor and lists_of_36. */
extern const ashlar_arena_list_limits ashlar__list_limits_one, ashlar__list_limits_36;

/* The device's block is [scalars][sums][runs][partials], as an optimizer's. */
typedef struct ashlar_per_tensor {
    const ashlar_arena *arena;
    ashlar_allocator *allocator;
    ashlar_device *device;
    ashlar_stream stream;
    bool is_single; /* a list has one tensor, or a part of one */
    ashlar_optimizer_rule rule;
    size_t count;               /* tensors */
    ashlar_optimizer_run *runs; /* [count] the host's copy, one for each tensor */
    void **pointers;            /* [count] the program's pointers to parameters */
    void **replica;             /* [count] */
    ashlar_arena_list *lists;   /* [list_count] */
    size_t list_count;
    ashlar_optimizer_job *jobs;  /* [list_count] */
    ashlar_copy_span *gradients; /* [span_count] in the order of lists and their parts; only dst and
                                  * bytes */
    ashlar_copy_span *gathers;   /* [span_count] from a parameter to its place in the arena */
    ashlar_copy_span *copies;    /* [span_count] from a parameter to the replica */
    size_t span_count;
    ashlar_optimizer_scalars *scalars; /* in device memory, as are the sums */
    ashlar_optimizer_scalars *sums;    /* [list_count]; only `sum` is used */
} ashlar_per_tensor;

/* Make scattered copies of an arena's tensors, with the arena's present parameters and gradients,
 * and moments of 0, as before the first step of AdamW or Adam. All blocks are taken from the
 * arena's allocator in a random order, so that neighbours in the arena are not neighbours here.
 *
 * arena    all tensors fp32 without options, with the regions of `config`
 * limits   of each launch's list; lists of one tensor use the device's own fills and copies
 *
 * Ownership: *out is the caller's; the arena must outlive it.
 * Errors:    ASHLAR_EINVAL (other tensors, another optimizer),
 *            ASHLAR_EHOSTMEM, and those of ashlar_alloc() and copies. */
ASHLAR_MUST_CHECK ashlar_status ashlar__per_tensor_create(const ashlar_arena *arena,
                                                          const ashlar_optimizer_config *config,
                                                          const ashlar_arena_list_limits *limits,
                                                          ashlar_stream stream,
                                                          ashlar_per_tensor **out);
void ashlar__per_tensor_destroy(ashlar_per_tensor *per_tensor); /* NULL is allowed */

/* The device address of a tensor in a region; never in the replica. */
void *ashlar__per_tensor_view(const ashlar_per_tensor *per_tensor, ashlar_region region,
                              size_t tensor);

/* Queue work on all tensors. _step: a step of the optimizer. _zero: zeros for the gradients. _norm:
 * the norm of the gradients. Errors: those of launches and fills. */
ASHLAR_MUST_CHECK ashlar_status ashlar__per_tensor_step(ashlar_per_tensor *per_tensor,
                                                        double learning_rate);
ASHLAR_MUST_CHECK ashlar_status ashlar__per_tensor_zero(ashlar_per_tensor *per_tensor);
ASHLAR_MUST_CHECK ashlar_status ashlar__per_tensor_norm(ashlar_per_tensor *per_tensor);

/* _flatten: queue copies of all parameters to their places in the arena, and make the pointers
 * point there. _scatter: make the pointers point to the tensors' own allocations again. Errors:
 * those of copies. */
ASHLAR_MUST_CHECK ashlar_status ashlar__per_tensor_flatten(ashlar_per_tensor *per_tensor);
void ashlar__per_tensor_scatter(ashlar_per_tensor *per_tensor);

/* _replicate: take a block for each parameter tensor of a replica on the same device, and queue the
 * copies. _drop_replica: free these blocks, also after a failure. Errors: those of ashlar_alloc()
 * and copies. */
ASHLAR_MUST_CHECK ashlar_status ashlar__per_tensor_replicate(ashlar_per_tensor *per_tensor);
void ashlar__per_tensor_drop_replica(ashlar_per_tensor *per_tensor);

/* Copy each parameter tensor to the host, and save them in the format of ashlar_checkpoint_save().
 * There is no variant for lists. Waits. Errors: as for ashlar_checkpoint_save(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__per_tensor_save(ashlar_per_tensor *per_tensor,
                                                        const char *path);

#endif /* ASHLAR_PER_TENSOR_H */
