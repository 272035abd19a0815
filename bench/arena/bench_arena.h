/* bench_arena.h - the benchmark `arena`: tensors in an arena, compared with scattered ones
 * (internal). */
#ifndef ASHLAR_BENCH_ARENA_H
#define ASHLAR_BENCH_ARENA_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/arena.h>
#include <ashlar/device.h>
#include <ashlar/optimizer.h>

#include "arena/optimizer/optimizer_impl.h"
#include "bench/harness/harness.h"

/* An arena's tensors scattered: each in an allocation of its own, and worked on one by one, by the
 * optimizer's kernels. Results equal an arena's to the last bit, but for the norm, whose squares
 * are added tensor by tensor, and what is clipped by it. On a CUDA device only copies and fills
 * work. One block of device memory has [scalars][sums][runs][partials], as that of an optimizer.
 * Threads: one at a time. */
typedef struct ashlar_per_tensor {
    const ashlar_arena *arena;
    ashlar_allocator *allocator;
    ashlar_device *device;
    ashlar_stream stream;
    ashlar_optimizer_rule rule;
    size_t count;                      /* tensors */
    ashlar_optimizer_run *runs;        /* [count] the host's copy, one for each tensor */
    ashlar_optimizer_job *jobs;        /* [count] the arguments of each tensor's launch */
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

/* Every operation. Columns: name, text; the reads and writes for each element, of 4 bytes each,
 * without padding, tables and intermediate copies; the arrays that these go to (the copy that is
 * compared uses as much memory); whether the workers share it, or one thread runs it.
 *
 * A copy may well be slower than adamw: the processor reads each line that a copy writes,
 * uncounted, while adamw reads its lines anyway. */
#define ASHLAR_ARENA_OPERATION_MAP(X)        \
    X(ADAMW, "adamw", 8, 4, true)            \
    X(ZERO, "zero", 1, 1, false)             \
    X(NORM, "norm", 1, 1, true)              \
    X(FLATTEN, "flatten", 2, 2, false)       \
    X(SAVE_STATE, "save_state", 6, 2, false) \
    X(LOAD_STATE, "load_state", 6, 2, false)

#define ASHLAR_ARENA_OPERATION_ENUM(name, text, accesses, arrays, shared) \
    ASHLAR_ARENA_OPERATION_##name,
typedef enum ashlar_arena_operation {
    ASHLAR_ARENA_OPERATION_MAP(ASHLAR_ARENA_OPERATION_ENUM) ASHLAR_ARENA_OPERATION_COUNT
} ashlar_arena_operation;

const char *ashlar__arena_operation_name(ashlar_arena_operation operation);

/* A copy from one range of device memory to another, by a loop over cache lines. It moves as many
 * bytes, reads plus writes, as the operation that it is compared with, in as much memory:
 *
 *     bytes * 2          what the operation's memory holds
 *     bytes * 2 * times  the bytes moved, counted as for the operation */
typedef struct ashlar_copy_work {
    void *dst; /* [bytes], does not overlap src; both aligned to ASHLAR_COPY_LINE */
    const void *src;
    size_t bytes; /* a multiple of ASHLAR_COPY_LINE, 1.. */
    size_t times;
    bool is_shared; /* all workers (workers.h) share it, as they do the optimizers' passes; else one
                     * thread */
} ashlar_copy_work;

enum { ASHLAR_COPY_LINE = 64 };

void ashlar__arena_copy(ashlar_copy_work *work);

/* What runs an operation: the subjects of the rows; the copy is measured to compare with. */
typedef enum ashlar_arena_runner {
    ASHLAR_ARENA_RUNNER_ARENA,
    ASHLAR_ARENA_RUNNER_PER_TENSOR,
    ASHLAR_ARENA_RUNNER_FILE,
    ASHLAR_ARENA_RUNNER_COPY,
    ASHLAR_ARENA_RUNNER_COUNT
} ashlar_arena_runner;

typedef struct ashlar_arena_case {
    const char *name;
    const char *what; /* its tensors, in words */
    /* Declare the tensors, the same on every machine, in an arena that is not committed. is_smoke:
     * the case "large" declares fewer. Errors: those of ashlar_arena_add(). */
    ashlar_status (*declare)(ashlar_arena *arena, bool is_smoke);
} ashlar_arena_case;

/* All cases, in the order of the report. All tensors are fp32 and have no options. */
const ashlar_arena_case *ashlar__arena_cases(size_t *count);

/* Fill parameters (about 1 in size) and gradients (about 0.001) from `seed`, by one copy each.
 * Requires an arena of fp32 tensors that has both regions. Waits for `stream`. Errors:
 * ASHLAR_EHOSTMEM, ASHLAR_EDRIVER, ASHLAR_ENOMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__arena_case_fill(ashlar_arena *arena, uint64_t seed,
                                                        ashlar_stream stream);

/* A case that is set up on a device. All zeros before ashlar__arena_setup_init(). */
typedef struct ashlar_arena_setup {
    ashlar_device *device;
    bool is_cuda;
    ashlar_allocator *allocator;
    ashlar_stream stream;
    ashlar_arena *arena;
    ashlar_optimizer *optimizer;
    ashlar_per_tensor *scattered;
    ashlar_flatten_item *items; /* [tensors], the arguments of ashlar_arena_flatten() */
    void *copy_src, *copy_dst;
    char folder[4096];                                 /* of the two files; empty: not made */
    char state_file[4096 + 16], plain_file[4096 + 16]; /* of RUNNER_ARENA, of RUNNER_FILE */
} ashlar_arena_setup;

/* Set up a case on `device`. Call ashlar__arena_setup_finish() also after a failure. */
ASHLAR_MUST_CHECK ashlar_status ashlar__arena_setup_init(ashlar_arena_setup *setup,
                                                         ashlar_device *device,
                                                         const ashlar_arena_case *which,
                                                         bool is_smoke);
void ashlar__arena_setup_finish(ashlar_arena_setup *setup);

/* Whether the runner can run the operation. RUNNER_FILE saves and loads plain files, on software
 * devices only. Scattered tensors have no files; on a CUDA device they can only be filled and
 * copied, since ashlar has no kernels for them. */
bool ashlar__arena_setup_has(const ashlar_arena_setup *setup, ashlar_arena_runner runner,
                             ashlar_arena_operation operation);

/* Bytes that a runner reads and writes in an operation, see ASHLAR_ARENA_OPERATION_MAP. */
double ashlar__arena_setup_bytes(const ashlar_arena_setup *setup, ashlar_arena_runner runner,
                                 ashlar_arena_operation operation);

/* Run an operation to its end, and say how long it took, on a device with time=on by its clock; and
 * how many launches, fills and copies were queued. */
ASHLAR_MUST_CHECK ashlar_status ashlar__arena_setup_run(ashlar_arena_setup *setup,
                                                        ashlar_arena_runner runner,
                                                        ashlar_arena_operation operation,
                                                        double *seconds, double *launches);

/* The columns of the rows of `arena`, as in ashlar_rows_column. NS is the time of one operation;
 * bytes are those read plus those written, counted as above. COPY is the copy in the same rounds.
 * OVER_COPY is a ratio of BYTES_PER_S, OVER_ARENA of NS. */
#define ASHLAR_ARENA_COLUMN_MAP(X)                                 \
    X(CASE, "case", "case", TEXT, 13, 0, 0)                        \
    X(OPERATION, "operation", "operation", TEXT, 10, 0, 0)         \
    X(SUBJECT, "subject", "subject", TEXT, 11, 0, 0)               \
    X(NS, "ns", "us", NUMBER, 12, 1, 1e-3)                         \
    X(NS_LOW, "ns_low", NULL, NUMBER, 0, 0, 0)                     \
    X(NS_HIGH, "ns_high", NULL, NUMBER, 0, 0, 0)                   \
    X(BYTES_PER_S, "bytes_per_s", "GB/s", NUMBER, 8, 2, 1e-9)      \
    X(COPY_BYTES_PER_S, "copy_bytes_per_s", NULL, NUMBER, 0, 0, 0) \
    X(LAUNCHES, "launches", "launches", NUMBER, 9, 0, 1)           \
    X(OVER_COPY, NULL, "/ copy", NUMBER, 7, 2, 0)                  \
    X(OVER_ARENA, "over_arena", "x arena", NUMBER, 8, 2, 0)
#define ASHLAR_ARENA_COLUMN(name, ...) ASHLAR_ARENA_##name,
enum { ASHLAR_ARENA_COLUMN_MAP(ASHLAR_ARENA_COLUMN) ASHLAR_ARENA_COLUMNS };

extern const ashlar_benchmark ashlar__benchmark_arena;

#endif /* ASHLAR_BENCH_ARENA_H */
