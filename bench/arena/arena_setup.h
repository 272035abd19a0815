/*
 * arena_setup.h - one case of `ashlar-bench arena`, its subjects, and copies to compare (internal).
 */
#ifndef ASHLAR_ARENA_SETUP_H
#define ASHLAR_ARENA_SETUP_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/flatten.h>
#include <ashlar/optimizer.h>

#include "bench/arena/arena_cases.h"
#include "bench/arena/arena_rows.h"
#include "bench/arena/per_tensor.h"

/*
 * One measurement's copy: from a range of device memory to another, as often as it takes to move
 * as many bytes as the operation beside it, read and written, in as much memory:
 *
 *     bytes * 2          the memory that the operation uses
 *     bytes * 2 * times  the bytes that it reads and writes
 */
typedef struct ashlar_copy_work {
    void *dst; /* [bytes], apart from src; both aligned to ASHLAR_COPY_LINE */
    const void *src;
    size_t bytes; /* a multiple of ASHLAR_COPY_LINE, > 0 */
    size_t times;
    bool is_shared; /* shared by the workers (workers.h), like an optimizer pass; else one thread */
} ashlar_copy_work;

enum { ASHLAR_COPY_LINE = 64 };

/* Copy by a loop that loads and stores one line at a time, without the C library. */
void ashlar__copy_by_loop(const ashlar_copy_work *work);

/* Copy by memcpy, which bypasses the caches for large copies. */
void ashlar__copy_by_memcpy(const ashlar_copy_work *work);

/* The subjects of the rows, and two copies. */
typedef enum ashlar_arena_runner {
    ASHLAR_ARENA_RUNNER_ARENA,
    ASHLAR_ARENA_RUNNER_PER_TENSOR,
    ASHLAR_ARENA_RUNNER_LISTS,
    ASHLAR_ARENA_RUNNER_LOOP,
    ASHLAR_ARENA_RUNNER_MEMCPY,
    ASHLAR_ARENA_RUNNER_COUNT
} ashlar_arena_runner;

/* Zeroes are an empty setup. */
typedef struct ashlar_arena_setup {
    ashlar_device *device;
    ashlar_allocator *allocator;
    ashlar_stream stream;
    ashlar_arena *arena;
    ashlar_optimizer *optimizer;
    ashlar_per_tensor *scattered[ASHLAR_ARENA_RUNNER_LISTS + 1]; /* none for the arena */
    void **pointers;            /* [tensors] the program's pointers, which the arena flattens */
    ashlar_flatten_item *items; /* [tensors] one for each of `pointers` */
    ashlar_arena *replica;      /* of the arena; NULL: none */
    void *copy_src, *copy_dst;
    char folder[4096]; /* for the checkpoint; empty: none */
    char file[4096 + 16];
} ashlar_arena_setup;

/*
 * Set up a case on `device`. Call ashlar__arena_setup_finish() even after a failure.
 *
 * Errors: ASHLAR_ENOTSUP (a CUDA device), ASHLAR_EIO (no folder), those of the arena and of the
 *         scattered tensors.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__arena_setup_init(ashlar_arena_setup *setup,
                                                         ashlar_device *device,
                                                         const ashlar_arena_case *which,
                                                         bool is_smoke);
void ashlar__arena_setup_finish(ashlar_arena_setup *setup);

/* Whether a runner has an operation. */
bool ashlar__arena_setup_has(ashlar_arena_runner runner, ashlar_arena_operation operation);

/* Bytes that a runner reads and writes in an operation, see arena_rows.h. */
double ashlar__arena_setup_bytes(const ashlar_arena_setup *setup, ashlar_arena_runner runner,
                                 ashlar_arena_operation operation);

/* Run an operation to its end and measure its time. Errors: those of the operation. */
ASHLAR_MUST_CHECK ashlar_status ashlar__arena_setup_run(ashlar_arena_setup *setup,
                                                        ashlar_arena_runner runner,
                                                        ashlar_arena_operation operation,
                                                        double *seconds);

#endif /* ASHLAR_ARENA_SETUP_H */
