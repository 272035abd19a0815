/*
 * per_tensor_impl.h - scattered tensors as per_tensor.c and per_tensor_work.c see them (internal).
 */
#ifndef ASHLAR_PER_TENSOR_IMPL_H
#define ASHLAR_PER_TENSOR_IMPL_H

#include "bench/arena/per_tensor.h"

/* One block of device memory is [scalars][sums][runs][partials], like an optimizer's. */
struct ashlar_per_tensor {
    const ashlar_arena *arena;
    ashlar_allocator *allocator;
    ashlar_device *device;
    ashlar_stream stream;
    bool is_single; /* each list covers one tensor, or a part of one */
    ashlar_optimizer_rule rule;
    size_t count;               /* tensors */
    ashlar_optimizer_run *runs; /* [count] the host's copy, one for each tensor */
    void **pointers;            /* [count] the program's pointers to parameters */
    void **replica;             /* [count] */
    ashlar_arena_list *lists;   /* [list_count] */
    size_t list_count;
    ashlar_optimizer_job *jobs;  /* [list_count] */
    ashlar_copy_span *gradients; /* [span_count] list by list, part by part; only dst and bytes */
    ashlar_copy_span *gathers;   /* [span_count] from a parameter to its place in the arena */
    ashlar_copy_span *copies;    /* [span_count] from a parameter to the replica */
    size_t span_count;
    ashlar_optimizer_scalars *scalars; /* in device memory, like the next three */
    ashlar_optimizer_scalars *sums;    /* [list_count]; only `sum` is used */
};

#endif /* ASHLAR_PER_TENSOR_IMPL_H */
