/*
 * optimizer_impl.h - what a launch of the optimizer is, on every back end (internal; C and CUDA C).
 *
 * One launch is a job, in up to three passes that follow each other:
 *
 *   SUM      scalars->sum = sum of the squares of the gradients, as they are stored
 *   DECIDE   scalars->state and the step's factors, from scalars->sum (optimizer_formula.h)
 *   UPDATE   every element of the runs, in one pass; nothing where scalars->state.is_skipped. Where
 *            scalars->state.step is 1, a master is first made from its parameters.
 *
 * Everything that a step changes lies in device memory, so that no step waits for the host.
 *
 * Chunks: run r is cut into chunks of ASHLAR_OPTIMIZER_CHUNK elements, the last one shorter, that
 * are numbered through the runs of a table. The sum of a chunk goes to partials[its number]; sums
 * are in double and added in an order that depends on nothing but the runs:
 *
 *   runs[0].first_chunk == 0
 *   runs[r + 1].first_chunk == runs[r].first_chunk + ceil(runs[r].elements / CHUNK)
 */
#ifndef ASHLAR_OPTIMIZER_IMPL_H
#define ASHLAR_OPTIMIZER_IMPL_H

#include <ashlar/optimizer.h>

enum { ASHLAR_OPTIMIZER_CHUNK = 4096 /* elements */ };

/*
 * What is done to an element: name, function in optimizer_update.h, whether it has the
 * first and the second moment.
 */
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
    ASHLAR_ALGORITHM_MAP(ASHLAR_ALGORITHM_ENUM)
    ASHLAR_ALGORITHM_COUNT
} ashlar_algorithm;

/* What an optimizer does at every step. */
typedef struct ashlar_optimizer_rule {
    ashlar_algorithm algorithm;
    ashlar_optimizer_config config;
} ashlar_optimizer_rule;

/*
 * Elements that are treated alike, side by side in every array. `elements` may be any number, and
 * addresses are aligned to their elements only: in an arena nearly all runs begin at multiples of
 * 256 B and have whole lines of it, but options may differ inside a group. fp16 and bf16
 * parameters have fp32 moments and an fp32 master; fp64 ones have fp64 moments.
 */
typedef struct ashlar_optimizer_run {
    void *parameters;      /* [elements] of dtype, updated */
    const void *gradients; /* [elements] of dtype */
    void *moment1;         /* [elements] fp32, fp64 beside fp64; NULL where the rule has none */
    void *moment2;         /* the same */
    float *master;         /* [elements]; NULL but for fp16 and bf16 */
    size_t elements;
    size_t first_chunk;
    double rate_scale; /* multiplies the learning rate */
    ashlar_dtype dtype;
    bool is_decayed; /* weight decay counts here */
} ashlar_optimizer_run;

/* An optimizer's one block of device memory; behind it lie the partial sums. */
typedef struct ashlar_optimizer_scalars {
    ashlar_optimizer_state state;
    double sum;    /* of squares of gradients as stored, written by SUM or by the program */
    double factor; /* what UPDATE multiplies gradients by: scales and clipping */
    double bias1;  /* 1 - beta1^step, of the Adams; else 1 */
    double bias2;  /* 1 - beta2^step, the same */
} ashlar_optimizer_scalars;

enum {
    ASHLAR_OPTIMIZER_SUM = 1,
    ASHLAR_OPTIMIZER_DECIDE = 2,
    ASHLAR_OPTIMIZER_UPDATE = 4,
};

/*
 * One launch. `runs` is a range of a table that is in device memory, as are `scalars` and
 * `partials`. Of the first run the elements from `first` count, of the last one those before `end`;
 * neither need be where a chunk ends. run_count 0: nothing to sum (the sum is 0) or update.
 */
typedef struct ashlar_optimizer_job {
    ashlar_optimizer_rule rule;
    unsigned passes; /* bits */
    const ashlar_optimizer_run *runs;
    size_t run_count;
    size_t first, end;
    size_t first_chunk, end_chunk; /* chunks that have such elements: [first_chunk, end_chunk) */
    size_t elements;               /* that count: how much work it is */
    ashlar_optimizer_scalars *scalars;
    double *partials;      /* indexed by the chunk's number in the whole table */
    double learning_rate;  /* of UPDATE */
    double gradient_scale; /* of DECIDE */
} ashlar_optimizer_job;

/* Number the chunks of a table and return how many there are. */
size_t ashlar__optimizer_number(ashlar_optimizer_run *runs, size_t count);

/*
 * Make `job` go over whole runs of a table whose chunks are numbered: runs[0] .. runs[count - 1].
 * The table is read here, so it is the host's copy; set job->runs to the device's.
 */
void ashlar__optimizer_cover(ashlar_optimizer_job *job, const ashlar_optimizer_run *runs,
                             size_t count);

/* The algorithm that a kind with these values is. */
ashlar_algorithm ashlar__optimizer_algorithm(const ashlar_optimizer_config *config);

/* ---- the CPU: what is launched on a software device (optimizer_cpu.c) ---- */

/* Run a job, which is an ashlar_optimizer_job, now, on all workers (workers.h). */
void ashlar__optimizer_cpu_run(void *job);

/*
 * ---- CUDA devices (optimizer_cuda.c) ----
 *
 * open loads the kernels into the device's context; several optimizers of one device may share
 * that. run queues a job; the values of *job are read before it returns.
 *
 * Errors of open: ASHLAR_ENOTSUP (built without CUDA kernels, or none for this device),
 * ASHLAR_EDRIVER, ASHLAR_EHOSTMEM; of run: ASHLAR_EDRIVER.
 */
typedef struct ashlar_optimizer_cuda ashlar_optimizer_cuda;

ASHLAR_MUST_CHECK ashlar_status ashlar__optimizer_cuda_open(ashlar_device *device,
                                                            ashlar_optimizer_cuda **out);
void ashlar__optimizer_cuda_close(ashlar_optimizer_cuda *cuda); /* NULL is allowed */
ASHLAR_MUST_CHECK ashlar_status ashlar__optimizer_cuda_run(ashlar_optimizer_cuda *cuda,
                                                           const ashlar_optimizer_job *job,
                                                           ashlar_stream stream);

#endif /* ASHLAR_OPTIMIZER_IMPL_H */
