/*
 * per_tensor_impl.h - what scattered tensors are (internal to per_tensor.c and per_tensor_work.c).
 */
#ifndef ASHLAR_PER_TENSOR_IMPL_H
#define ASHLAR_PER_TENSOR_IMPL_H

#include "bench/arena/per_tensor.h"

/* The device's block is [scalars][sums][runs][partials], as an optimizer's. */
struct ashlar_per_tensor {
    const ashlar_arena *arena;
    ashlar_allocator *allocator;
    ashlar_device *device;
    ashlar_stream stream;
    bool is_single; /* a list is of one tensor, or a part of one */
    ashlar_optimizer_rule rule;
    size_t count;               /* tensors */
    ashlar_optimizer_run *runs; /* [count] the host's copy, one for each tensor */
    void **pointers;            /* [count] the program's, to parameters */
    void **replica;             /* [count] */
    ashlar_arena_list *lists;   /* [list_count] */
    size_t list_count;
    ashlar_optimizer_job *jobs;  /* [list_count] */
    ashlar_copy_span *gradients; /* [span_count] part by part, list by list; only dst and bytes */
    ashlar_copy_span *gathers;   /* [span_count] from a parameter to its place in the arena */
    ashlar_copy_span *copies;    /* [span_count] from a parameter to the replica */
    size_t span_count;
    ashlar_optimizer_scalars *scalars; /* the device's, as are: */
    ashlar_optimizer_scalars *sums;    /* [list_count] of which only `sum` is used */
};

#endif /* ASHLAR_PER_TENSOR_IMPL_H */
