/* optimizer_impl.h - a launch of the optimizer, with its runs, chunks and device memory; the same
 * on every back end (internal; C and CUDA C).
 *
 * One launch is a job of up to three passes, one after the other:
 *
 *   SUM      adds the squares of the gradients, as they are stored, to scalars->sum; the first SUM
 *            after a decision, and one of a job that decides, begins at 0. It has two halves:
 *            SQUARES adds up the squares of each chunk, and ADD these sums
 *   DECIDE   sets scalars->state and the step's factors, from scalars->sum (optimizer_formula.h)
 *   UPDATE   updates every element of the runs; does nothing if scalars->state.is_skipped. If
 *            scalars->state.step is 1, masters are first made from their parameters.
 *
 * Everything that a step changes lies in device memory, so that no step waits for the host.
 *
 * Each run is cut into chunks of ASHLAR_OPTIMIZER_CHUNK elements; its last chunk may be shorter.
 * Chunks are numbered in sequence through all runs of a table. The sum of chunk c goes to
 * partials[c]. Sums are in double, and added in an order that depends only on the runs:
 *
 *   runs[0].first_chunk == 0
 *   runs[r + 1].first_chunk == runs[r].first_chunk + ceil(runs[r].elements / CHUNK) */
#ifndef ASHLAR_OPTIMIZER_IMPL_H
#define ASHLAR_OPTIMIZER_IMPL_H

#include <ashlar/optimizer.h>

enum { ASHLAR_OPTIMIZER_CHUNK = 4096 /* elements */ };

/* The algorithms that update an element: name, function in optimizer_update.h, whether it has a
 * first moment, whether it has a second moment. */
#define ASHLAR_ALGORITHM_MAP(X)                    \
    X(SGD, sgd, false, false)                      \
    X(MOMENTUM, momentum, true, false) /* SGD's */ \
    X(NESTEROV, nesterov, true, false)             \
    X(ADAM, adam, true, true) /* and AdamW */      \
    X(ADAGRAD, adagrad, false, true)               \
    X(RMSPROP, rmsprop, false, true)               \
    X(RMSPROP_MOMENTUM, rmsprop_momentum, true, true)

#define ASHLAR_ALGORITHM_ENUM(name, function, moment1, moment2) ASHLAR_ALGORITHM_##name,
typedef enum ashlar_algorithm {
    ASHLAR_ALGORITHM_MAP(ASHLAR_ALGORITHM_ENUM) ASHLAR_ALGORITHM_COUNT
} ashlar_algorithm;

/* An optimizer's fixed configuration. */
typedef struct ashlar_optimizer_rule {
    ashlar_algorithm algorithm;
    ashlar_optimizer_config config;
} ashlar_optimizer_rule;

/* Elements that are treated alike and follow each other in every array. `elements` may be any
 * number, and the arrays are aligned to their elements only: in an arena, runs begin at multiples
 * of 256 B, and have such sizes, unless options differ inside a group. fp16 and bf16 parameters
 * have fp32 moments and an fp32 master; fp64 parameters have fp64 moments. */
typedef struct ashlar_optimizer_run {
    void *parameters;      /* [elements] of dtype, updated */
    const void *gradients; /* [elements] of dtype */
    void *moment1;         /* [elements] fp32, or fp64 for fp64; NULL: the algorithm has none */
    void *moment2;         /* like moment1 */
    float *master;         /* [elements]; NULL unless dtype is fp16 or bf16 */
    size_t elements;
    size_t first_chunk;
    double rate_scale; /* multiplies the learning rate */
    ashlar_dtype dtype;
    bool is_decayed; /* weight decay applies to this run */
} ashlar_optimizer_run;

/* The head of an optimizer's one block of device memory. */
typedef struct ashlar_optimizer_scalars {
    ashlar_optimizer_state state;
    uint64_t sum_count; /* launches of SUM since the last decision; `sum` has the squares of all
                           these */
    double sum;         /* of the squared gradients as stored; SUM or the program writes it */
    double factor;      /* UPDATE multiplies gradients by it; includes all scales, and clipping */
    double bias1;       /* 1 - beta1^step for Adam and AdamW, else 1 */
    double bias2;       /* 1 - beta2^step for Adam and AdamW, else 1 */
} ashlar_optimizer_scalars;

enum {
    ASHLAR_OPTIMIZER_SQUARES = 1,
    ASHLAR_OPTIMIZER_ADD = 2,
    ASHLAR_OPTIMIZER_SUM = ASHLAR_OPTIMIZER_SQUARES | ASHLAR_OPTIMIZER_ADD,
    ASHLAR_OPTIMIZER_DECIDE = 4,
    ASHLAR_OPTIMIZER_UPDATE = 8,
};

#define ASHLAR_DTYPE_BIT(dtype) (1u << (unsigned)(dtype))

/* One launch of each pass. `runs` is a range of a table; `runs`, `scalars` and `partials` are in
 * device memory. The job covers elements from `first` on in the first run, and those before `end`
 * in the last; both may lie inside a chunk. With run_count 0, SUM adds 0 and nothing is updated. */
typedef struct ashlar_optimizer_job {
    ashlar_optimizer_rule rule;
    unsigned passes; /* a set of bits */
    const ashlar_optimizer_run *runs;
    size_t run_count;
    unsigned dtypes; /* of the runs, a set of ASHLAR_DTYPE_BIT()s; more do no harm */
    size_t first, end;
    size_t first_chunk, end_chunk; /* chunks with covered elements, without end_chunk */
    size_t elements;               /* number of covered elements: how much work the job is */
    ashlar_optimizer_scalars *scalars;
    double *partials;      /* indexed by the chunk's number in the whole table */
    double learning_rate;  /* for UPDATE, if rate_at is NULL */
    const double *rate_at; /* device memory from which UPDATE reads the learning rate, or NULL */
    double gradient_scale; /* for DECIDE */
} ashlar_optimizer_job;

/* Number the chunks of a table and return how many there are. */
size_t ashlar__optimizer_number(ashlar_optimizer_run *runs, size_t count);

/* Make `job` cover runs[0] .. runs[count - 1] whole. Their chunks must be numbered. `runs` is read
 * here, so it must be the host's copy; the caller then sets job->runs to the device's copy. */
void ashlar__optimizer_cover(ashlar_optimizer_job *job, const ashlar_optimizer_run *runs,
                             size_t count);

/* The algorithm that a configuration's kind and values ask for. */
ashlar_algorithm ashlar__optimizer_algorithm(const ashlar_optimizer_config *config);

/* Read a program's configuration, and replace each field that is 0 by the kind's default. Errors:
 * those of ashlar_optimizer_check(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__optimizer_take(ashlar_optimizer_config *config,
                                                       const ashlar_optimizer_config *given);

/* Run a whole step like ashlar_optimizer_step(). The step reads its learning rate from device
 * memory when it runs, so that it can be captured.
 *
 * rate_at   the caller guarantees a value of 0 .. most
 *
 * Errors: those of ashlar_optimizer_step() at the learning rate `most`. */
ASHLAR_MUST_CHECK ashlar_status ashlar__optimizer_step_at(ashlar_optimizer *optimizer,
                                                          const double *rate_at, double most,
                                                          double gradient_scale,
                                                          ashlar_stream stream);

/* Where a run lies in the storage layout, in bytes, and the number of elements in earlier runs. */
typedef struct ashlar_optimizer_place {
    size_t begin, end;
    size_t elements_before;
} ashlar_optimizer_place;

/* The runs of an arena in address order, without those of frozen tensors (optimizer_table.c). */
typedef struct ashlar_optimizer_table {
    ashlar_optimizer_run *runs; /* [count] the host's copy */
    ashlar_optimizer_place *places;
    size_t count, chunk_count;
    double largest_scale; /* largest rate_scale of all runs; 0 without runs */
} ashlar_optimizer_table;

/* _init: fill the table. The arena must be committed and have the regions that the rule needs.
 * _finish: free the table's memory. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__optimizer_table_init(ashlar_optimizer_table *table,
                                                             const ashlar_arena *arena,
                                                             const ashlar_optimizer_rule *rule);
void ashlar__optimizer_table_finish(ashlar_optimizer_table *table);

/* Make `job` cover the elements of runs that lie in [offset, offset + bytes) of the storage layout.
 * `runs`: the device's copy of table->runs. */
void ashlar__optimizer_table_select(const ashlar_optimizer_table *table,
                                    const ashlar_optimizer_run *runs, size_t offset, size_t bytes,
                                    ashlar_optimizer_job *job);

/* The CPU (optimizer_cpu.c): run a job, an ashlar_optimizer_job, on all workers (workers.h), and
 * return when it is done. */
void ashlar__optimizer_cpu_run(void *job);

/* CUDA devices (optimizer_cuda.c). _open loads the kernels into the device's context, once for each
 * optimizer. _run queues a job; *job is read before the call returns. Errors of _open:
 * ASHLAR_ENOTSUP (built without CUDA kernels, or none for this device), ASHLAR_EDRIVER,
 * ASHLAR_EHOSTMEM; of _run: ASHLAR_EDRIVER. */
typedef struct ashlar_optimizer_cuda ashlar_optimizer_cuda;

ASHLAR_MUST_CHECK ashlar_status ashlar__optimizer_cuda_open(ashlar_device *device,
                                                            ashlar_optimizer_cuda **out);
void ashlar__optimizer_cuda_close(ashlar_optimizer_cuda *cuda); /* NULL is allowed */
ASHLAR_MUST_CHECK ashlar_status ashlar__optimizer_cuda_run(ashlar_optimizer_cuda *cuda,
                                                           const ashlar_optimizer_job *job,
                                                           ashlar_stream stream);

#endif /* ASHLAR_OPTIMIZER_IMPL_H */
