/* optimizer_impl.h - what one launch of the optimizer does, to which elements; the arithmetic that
 * CPU and CUDA share; the CPU's loops and the CUDA kernels (internal; C and CUDA C). */
#ifndef ASHLAR_OPTIMIZER_IMPL_H
#define ASHLAR_OPTIMIZER_IMPL_H

#include <float.h>
#include <math.h>

#include <ashlar/optimizer.h>

#include "allocator/base/compiler.h"
#include "arena/compute/convert.h"

/*
 * One launch is a job of up to three passes, one after the other:
 *
 *   SUM      adds the squares of the gradients, as they are stored, to scalars->sum; it first sets
 *            that to 0 if a DECIDE came before it, or comes after it in the same job
 *   DECIDE   sets scalars->state and the step's factors, from scalars->sum
 *   UPDATE   updates every element of the runs that are not frozen; does nothing if
 *            scalars->state.is_skipped. In a run's first update, masters are first made from their
 *            parameters.
 *   FOLLOW   a pass of its own: makes histories those of the runs, of which others are frozen now,
 *            and scalars->shape the job's; jobs of another shape, which a graph has kept, then sum
 *            up to a NaN and update nothing
 *
 * Everything that a step changes lies in device memory, so that no step waits for the host.
 *
 * A table lists the elements in runs (ashlar_optimizer_run). Each run is cut into chunks of
 * ASHLAR_OPTIMIZER_CHUNK elements, the last of which may be shorter; chunks are numbered through
 * all runs. The sum of chunk c goes to partials[c]. Sums are in double, in an order given by runs:
 *
 *   runs[0].first_chunk == 0
 *   runs[r + 1].first_chunk == runs[r].first_chunk + ceil(runs[r].elements / CHUNK)
 */

enum { ASHLAR_OPTIMIZER_CHUNK = 4096 /* elements */ };

/* The algorithms that update an element: name, function in optimizer_update.h, whether it has a
 * first moment, and a second. MOMENTUM and NESTEROV are kinds of SGD; ADAM is AdamW's, too, and
 * that of MUON's vectors. MUON's matrices have two passes: MUON_DIRECTION makes u, as the second
 * moment, which becomes x (muon.c), and MUON_APPLY subtracts it. */
#define ASHLAR_ALGORITHM_MAP(X)                       \
    X(SGD, sgd, false, false)                         \
    X(MOMENTUM, momentum, true, false)                \
    X(NESTEROV, nesterov, true, false)                \
    X(ADAM, adam, true, true)                         \
    X(ADAGRAD, adagrad, false, true)                  \
    X(RMSPROP, rmsprop, false, true)                  \
    X(RMSPROP_MOMENTUM, rmsprop_momentum, true, true) \
    X(MUON_DIRECTION, muon_direction, true, true)     \
    X(MUON_APPLY, muon_apply, false, true)

#define ASHLAR_ALGORITHM_ENUM(name, function, moment1, moment2) ASHLAR_ALGORITHM_##name,
typedef enum ashlar_algorithm {
    ASHLAR_ALGORITHM_MAP(ASHLAR_ALGORITHM_ENUM) ASHLAR_ALGORITHM_COUNT
} ashlar_algorithm;

/* The part of an optimizer that never changes. */
typedef struct ashlar_optimizer_rule {
    ashlar_algorithm algorithm;
    ashlar_optimizer_config config;
} ashlar_optimizer_rule;

/* Elements that follow each other in every array, and have the same type, options and history. The
 * arrays are aligned to one element only. fp16 and bf16 parameters have fp32 moments and an fp32
 * master; fp64 parameters have fp64 moments. */
typedef struct ashlar_optimizer_run {
    void *parameters; /* [elements] of dtype, updated */
    void *gradients;  /* [elements] of dtype; written to if the job zeroes them */
    void *moment1;    /* [elements] fp32, or fp64 for fp64; NULL: the algorithm has none */
    void *moment2;    /* like moment1 */
    float *master;    /* [elements]; NULL unless dtype is fp16 or bf16 */
    size_t elements;
    size_t first_chunk;
    double rate_scale;  /* multiplies the learning rate */
    double decay_scale; /* multiplies the weight decay; 0: none */
    double muon_scale;  /* of a matrix, > 0 */
    size_t tensor;      /* whose history is the run's: the first one's number in the arena */
    ashlar_dtype dtype;
    bool is_frozen; /* the run adds 0 to the sum, and is not updated */
    bool is_matrix; /* MUON updates it as a whole */
} ashlar_optimizer_run;

/* A matrix that MUON updates as a whole, row-major. */
typedef struct ashlar_optimizer_matrix {
    size_t run; /* the matrix is the whole run, whose number in the table this is */
    size_t rows, columns;
    bool is_wide; /* computed in fp64 */
} ashlar_optimizer_matrix;

/* How often a tensor was updated. All 0 for one that was never frozen. */
typedef struct ashlar_optimizer_history {
    uint64_t count; /* frozen: its updates; else the steps that it missed: state.step - updates */
    uint64_t is_frozen;
    double bias1, bias2; /* of a tensor that missed steps, as in ashlar_optimizer_scalars */
} ashlar_optimizer_history;

/* What the optimizer's block of device memory begins with. */
typedef struct ashlar_optimizer_scalars {
    ashlar_optimizer_state state;
    uint64_t sum_count; /* launches of SUM since the last DECIDE; `sum` has the squares of all
                           these */
    double sum;         /* of the squared gradients as stored; SUM or the program writes it */
    double factor;      /* UPDATE multiplies gradients by it; includes all scales, and clipping */
    double bias1;       /* 1 - beta1^step for Adam and AdamW, else 1 */
    double bias2;       /* 1 - beta2^step for Adam and AdamW, else 1 */
    uint64_t shape;     /* of the table */
} ashlar_optimizer_scalars;

/* One more pass than an ashlar_optimizer_part. */
enum { ASHLAR_OPTIMIZER_FOLLOW = ASHLAR_OPTIMIZER_UPDATE << 1 };

enum { ASHLAR_OPTIMIZER_STATES = 3 /* regions: both moments, masters */ };

#define ASHLAR_DTYPE_BIT(dtype) (1u << (unsigned)(dtype))

/* What one launch does. `runs`, a range of a table, `scalars` and `partials` are in device memory.
 * In the first run the job covers elements from `first` on, in the last those before `end`; both
 * may lie inside a chunk. With run_count 0, SUM adds 0 and nothing is updated. */
typedef struct ashlar_optimizer_job {
    ashlar_optimizer_rule rule;
    unsigned passes; /* a set of the bits above */
    const ashlar_optimizer_run *runs;
    size_t run_count;
    uint64_t shape;         /* of their table */
    unsigned dtypes;        /* a set of ASHLAR_DTYPE_BIT()s that includes the type of each run */
    unsigned matrix_dtypes; /* the same for runs that are matrices */
    size_t first, end;
    size_t first_chunk, end_chunk; /* chunks [first_chunk, end_chunk) have covered elements */
    size_t elements;               /* number of covered elements: how much work the job is */
    ashlar_optimizer_scalars *scalars;
    ashlar_optimizer_history *histories; /* by tensor; NULL: none was ever frozen */
    size_t history_count;                /* of all tensors; 0 if NULL */
    double *partials;                    /* indexed by the chunk's number in the whole table */
    double learning_rate;                /* for UPDATE, if rate_at is NULL */
    const double *rate_at; /* device memory from which UPDATE reads the learning rate, or NULL */
    double gradient_scale; /* for DECIDE */
    bool zeroes;           /* for UPDATE on the CPU: leave 0 in the gradients */

    /* Bytes, modulo 2^64, from moment1, moment2 and master of the runs to where UPDATE finds what
     * it covers of them: not 0 if they lie on the host (optimizer_staging.c). */
    uintptr_t staged[ASHLAR_OPTIMIZER_STATES];

    /* For UPDATE by MUON: all matrices of the table, sorted by shape; device memory. */
    const ashlar_optimizer_matrix *matrices;
    size_t matrix_count;
    size_t first_run;                /* the number of runs[0] in the table */
    void *products;                  /* room for the products of a batch */
    size_t batch_first, batch_count; /* CUDA: the matrices of the batch that a kernel works on */
    unsigned ns_step, ns_product;    /* CUDA: its step, an ashlar_muon_product */
} ashlar_optimizer_job;

/* Number the chunks of a table and return how many there are. */
size_t ashlar__optimizer_number(ashlar_optimizer_run *runs, size_t count);

/* Make `job` cover runs[0] .. runs[count - 1] whole. Their chunks must be numbered. `runs` is read
 * here, so it must be the host's copy; the caller then sets job->runs to the device's copy. */
void ashlar__optimizer_cover(ashlar_optimizer_job *job, const ashlar_optimizer_run *runs,
                             size_t count);

/* The algorithm that a configuration's kind and values ask for. */
ashlar_algorithm ashlar__optimizer_algorithm(const ashlar_optimizer_config *config);

/* Copy *given to *config, with the kind's default for each field that is 0, and check it like
 * ashlar_optimizer_complete(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__optimizer_take(ashlar_optimizer_config *config,
                                                       const ashlar_optimizer_config *given);

/* The factor s of optimizer.h. */
double ashlar__muon_scale(const ashlar_optimizer_config *config, size_t rows, size_t columns);

/* The regions that an optimizer reads or writes, a set of ASHLAR_REGION_BIT()s. */
unsigned ashlar__optimizer_regions(const ashlar_optimizer_config *config);

/* Where a run lies in the storage layout, in bytes, and the number of elements in earlier runs. */
typedef struct ashlar_optimizer_place {
    size_t begin, end;
    size_t elements_before;
} ashlar_optimizer_place;

/* The runs of an arena, frozen ones among them, in the order of addresses (optimizer_table.c). */
typedef struct ashlar_optimizer_table {
    ashlar_optimizer_run *runs; /* [count] the host's copy */
    ashlar_optimizer_place *places;
    size_t count, chunk_count;
    uint64_t shape; /* a hash of where runs begin: the launches of a table of another differ */
    double largest_scale;              /* of what multiplies the rate, of all runs */
    double largest_decay;              /* decay_scale */
    ashlar_optimizer_matrix *matrices; /* [matrix_count] by type and shape; NULL without MUON */
    size_t matrix_count;
    size_t products_bytes; /* of the largest batch */
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

/* The end of a piece from `offset` on, which ends at `stop` or has at most `bytes`; it cuts no
 * matrix, and has more bytes only if it is one. */
size_t ashlar__optimizer_table_piece(const ashlar_optimizer_table *table, size_t offset,
                                     size_t stop, size_t bytes);

/* The bytes of the products of one matrix: [rows, columns] and twice [side, side], where side is
 * the smaller one. */
ASHLAR_SHARED_FN size_t ashlar__muon_products_bytes(const ashlar_optimizer_matrix *m) {
    const size_t side = m->rows < m->columns ? m->rows : m->columns;
    return (m->rows * m->columns + 2 * side * side) * (m->is_wide ? sizeof(double) : sizeof(float));
}

/* How many of matrices[at] .. matrices[count - 1] are one batch: of one shape, and their products
 * take 64 MiB at most, or it is one matrix. */
size_t ashlar__muon_batch(const ashlar_optimizer_matrix *matrices, size_t count, size_t at);

/* The run of a matrix, if the job updates it; or NULL. */
ASHLAR_SHARED_FN const ashlar_optimizer_run *
ashlar__formula_matrix(const ashlar_optimizer_job *job, const ashlar_optimizer_matrix *matrix) {
    const ashlar_optimizer_run *run = job->runs + (matrix->run - job->first_run);
    const bool is_in =
        matrix->run >= job->first_run && matrix->run - job->first_run < job->run_count;
    return is_in && !run->is_frozen ? run : NULL;
}

/* Whose parameters the optimizer updates. Ownership: the caller's of ashlar_optimizer_create(). */
const ashlar_arena *ashlar__optimizer_arena(const ashlar_optimizer *optimizer);

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
                                                           const ashlar_optimizer_table *table,
                                                           const ashlar_optimizer_job *job,
                                                           ashlar_stream stream);

/* ---- the arithmetic, once per step and once per run, on every back end ----
 *
 * The arithmetic per element is in optimizer_update.h. All is compiled without fused multiply-add
 * (-ffp-contract=off, nvcc -fmad=false), so that every back end gets the same bits.
 *
 * Sources: torch.optim's documentation of SGD, Adam, AdamW, Adagrad and RMSprop and of
 * torch.amp.GradScaler (PyTorch 2); clipping as in Pascanu et al. 2013. */

/* base^n, by repeated squaring: the same bits on every back end; those of pow() may differ. */
ASHLAR_SHARED_FN double ashlar__power(double base, uint64_t n) {
    double result = 1;
    for (; n != 0; n >>= 1) {
        if ((n & 1) != 0) {
            result *= base;
        }
        base *= base;
    }
    return result;
}

/* The run that `chunk` belongs to: the last run that begins at or before it. */
ASHLAR_SHARED_FN size_t ashlar__formula_find_run(const ashlar_optimizer_job *job, size_t chunk) {
    size_t low = 0, high = job->run_count; /* always runs[low].first_chunk <= chunk */
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (job->runs[middle].first_chunk <= chunk) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Return the run of `chunk`; *first, *count: its elements in the chunk that the job covers. */
ASHLAR_SHARED_FN size_t ashlar__formula_clip(const ashlar_optimizer_job *job, size_t chunk,
                                             size_t *first, size_t *count) {
    const size_t run = ashlar__formula_find_run(job, chunk);
    const ashlar_optimizer_run *r = &job->runs[run];
    const size_t begin = (chunk - r->first_chunk) * ASHLAR_OPTIMIZER_CHUNK;
    const size_t low = run == 0 ? job->first : 0;
    const size_t high = run + 1 == job->run_count ? job->end : r->elements;
    const size_t full = begin + ASHLAR_OPTIMIZER_CHUNK;
    *first = begin > low ? begin : low;
    *count = (full < high ? full : high) - *first;
    return run;
}

/* Where an array of a run's state is while the job works on it. */
ASHLAR_SHARED_FN void *ashlar__formula_staged(const ashlar_optimizer_job *job, void *array,
                                              unsigned state) {
    return array == NULL ? NULL : (void *)((uintptr_t)array + job->staged[state]);
}

ASHLAR_SHARED_FN void ashlar__formula_stage(const ashlar_optimizer_job *job,
                                            ashlar_optimizer_run *run) {
    run->moment1 = ashlar__formula_staged(job, run->moment1, 0);
    run->moment2 = ashlar__formula_staged(job, run->moment2, 1);
    run->master = (float *)ashlar__formula_staged(job, run->master, 2);
}

/* Update the loss scale as GradScaler does. `is_good`: every gradient was finite. */
ASHLAR_SHARED_FN void ashlar__formula_rescale(const ashlar_optimizer_config *config,
                                              ashlar_optimizer_state *state, bool is_good) {
    if (!is_good) {
        const double smaller = state->loss_scale * config->scale_backoff;
        state->loss_scale = smaller >= (double)FLT_MIN ? smaller : (double)FLT_MIN;
        state->good_steps = 0;
    } else if (++state->good_steps >= config->scale_interval) {
        const double larger = state->loss_scale * config->scale_growth;
        state->loss_scale = larger <= (double)FLT_MAX ? larger : state->loss_scale;
        state->good_steps = 0;
    }
}

/* Whether the job's runs and chunks are no longer those of the table. */
ASHLAR_SHARED_FN bool ashlar__formula_is_stale(const ashlar_optimizer_job *job) {
    return job->shape != job->scalars->shape;
}

/* The end of the pass SUM: add `sum`, the sum over the job's elements, to scalars->sum. Where a
 * rank owns a part of each bucket, it launches a SUM for each part, then a DECIDE. A job with both
 * SUM and DECIDE covers all elements, so it ignores what an abandoned step left in scalars->sum. */
ASHLAR_SHARED_FN void ashlar__formula_add_sum(const ashlar_optimizer_job *job, double sum) {
    ashlar_optimizer_scalars *scalars = job->scalars;
    const bool is_first = scalars->sum_count == 0 || (job->passes & ASHLAR_OPTIMIZER_DECIDE) != 0;
    const double counted = ashlar__formula_is_stale(job) ? (double)NAN : sum;
    scalars->sum = is_first ? counted : scalars->sum + counted;
    scalars->sum_count++;
}

/* The pass DECIDE. If the step is skipped, factor, bias1 and bias2 stay as they were: UPDATE does
 * not read them then. */
ASHLAR_SHARED_FN void ashlar__formula_decide(const ashlar_optimizer_config *config,
                                             ashlar_algorithm algorithm, double gradient_scale,
                                             ashlar_optimizer_scalars *scalars) {
    ashlar_optimizer_state *state = &scalars->state;
    const bool is_scaled = config->loss_scale > 0;
    const double unscale = is_scaled ? gradient_scale / state->loss_scale : gradient_scale;
    const double norm = sqrt(scalars->sum) * unscale;
    const bool clips = config->clip_norm > 0 && norm > config->clip_norm;
    const double factor = clips ? config->clip_norm / norm * unscale : unscale;
    const bool is_good = norm <= DBL_MAX && factor <= (double)FLT_MAX; /* false for a NaN */
    state->norm = norm;
    state->is_skipped = !is_good;
    scalars->sum_count = 0;
    if (is_good) {
        const bool is_adam = algorithm == ASHLAR_ALGORITHM_ADAM;
        state->step++;
        scalars->factor = factor;
        scalars->bias1 = is_adam ? 1 - ashlar__power(config->beta1, state->step) : 1;
        scalars->bias2 = is_adam ? 1 - ashlar__power(config->beta2, state->step) : 1;
    } else {
        state->skipped++;
    }
    if (is_scaled) {
        ashlar__formula_rescale(config, state, is_good);
    }
}

/* The factors for the elements of one run in one step. Each algorithm uses some of them. */
typedef struct ashlar_optimizer_factors {
    double scale;      /* multiplies the gradient */
    double penalty;    /* 0 for AdamW; else penalty * parameter is added to the gradient */
    double rate;       /* learning rate, with 1 / bias1 (Adam, AdamW) or rate decay (Adagrad) */
    double shrink;     /* learning rate * weight decay for AdamW; 0 for the others */
    double keep1;      /* multiplies the old moment1: beta1 or momentum */
    double rest1;      /* multiplies the gradient that is added to moment1 */
    double keep2;      /* multiplies the old moment2: beta2, smoothing, or 1; see MUON */
    double rest2;      /* multiplies the squared gradient that is added to moment2; see MUON */
    double root_scale; /* multiplies the root of moment2: 1 / sqrt(bias2), or 1 */
    double epsilon;
    bool is_first; /* first update: make masters from the parameters */
} ashlar_optimizer_factors;

/* The end of the pass DECIDE for every `by`-th history from `first` on: bias corrections of tensors
 * that missed steps. Here, so that the kernels of UPDATE need no registers for it. */
ASHLAR_SHARED_FN void ashlar__formula_correct(const ashlar_optimizer_job *job, size_t first,
                                              size_t by) {
    const uint64_t step = job->scalars->state.step;
    for (size_t i = first; i < job->history_count; i += by) {
        ashlar_optimizer_history *h = &job->histories[i];
        if (h->is_frozen == 0 && h->count > 0) {
            const uint64_t updates = step > h->count ? step - h->count : 1;
            h->bias1 = 1 - ashlar__power(job->rule.config.beta1, updates);
            h->bias2 = 1 - ashlar__power(job->rule.config.beta2, updates);
        }
    }
}

/* The pass FOLLOW. Updates and missed steps add up to state.step, so one follows from the other. */
ASHLAR_SHARED_FN void ashlar__formula_follow(const ashlar_optimizer_job *job) {
    const uint64_t step = job->scalars->state.step;
    job->scalars->shape = job->shape;
    for (size_t i = 0; i < job->run_count; i++) {
        ashlar_optimizer_history *history = &job->histories[job->runs[i].tensor];
        if (history->is_frozen != (uint64_t)job->runs[i].is_frozen) {
            history->count = step > history->count ? step - history->count : 0;
            history->is_frozen = job->runs[i].is_frozen;
        }
    }
}

/* The number of a run's updates, the present one among them: at least 1, whatever state the program
 * has put in place. */
ASHLAR_SHARED_FN uint64_t ashlar__formula_updates(const ashlar_optimizer_job *job,
                                                  const ashlar_optimizer_run *run) {
    const uint64_t step = job->scalars->state.step;
    const uint64_t missed = job->histories != NULL ? job->histories[run->tensor].count : 0;
    return step > missed ? step - missed : 1;
}

ASHLAR_SHARED_FN ashlar_optimizer_factors ashlar__formula_factors(const ashlar_optimizer_job *job,
                                                                  const ashlar_optimizer_run *run) {
    const ashlar_optimizer_config *config = &job->rule.config;
    const ashlar_optimizer_scalars *scalars = job->scalars;
    const uint64_t updates = ashlar__formula_updates(job, run);
    const double rate =
        (job->rate_at != NULL ? *job->rate_at : job->learning_rate) * run->rate_scale;
    const double decay = config->weight_decay * run->decay_scale;
    const bool is_decoupled =
        config->kind == ASHLAR_OPTIMIZER_ADAMW || config->kind == ASHLAR_OPTIMIZER_MUON;
    ashlar_optimizer_factors f;
    f.is_first = updates == 1;
    f.scale = scalars->factor;
    f.penalty = is_decoupled ? 0 : decay;
    f.shrink = is_decoupled ? rate * decay : 0;
    f.rate = rate;
    f.keep1 = config->momentum;
    f.rest1 = 1;
    f.keep2 = 1;
    f.rest2 = 1;
    f.root_scale = 1;
    f.epsilon = config->epsilon;
    if (job->rule.algorithm == ASHLAR_ALGORITHM_ADAM) {
        const bool has_all = updates == scalars->state.step;
        f.rate = rate / (has_all ? scalars->bias1 : job->histories[run->tensor].bias1);
        f.keep1 = config->beta1;
        f.rest1 = 1 - config->beta1;
        f.keep2 = config->beta2;
        f.rest2 = 1 - config->beta2;
        f.root_scale = 1 / sqrt(has_all ? scalars->bias2 : job->histories[run->tensor].bias2);
    } else if (config->kind == ASHLAR_OPTIMIZER_ADAGRAD) {
        f.rate = rate / (1 + (double)(updates - 1) * config->rate_decay);
    } else if (config->kind == ASHLAR_OPTIMIZER_RMSPROP) {
        f.keep2 = config->smoothing;
        f.rest2 = 1 - config->smoothing;
    } else if (!f.is_first) {
        f.rest1 = 1 - config->dampening; /* in the first update the gradient is not dampened */
    }
    return f;
}

/* The factors of MUON_DIRECTION and MUON_APPLY. */
ASHLAR_SHARED_FN ashlar_optimizer_factors ashlar__formula_muon(const ashlar_optimizer_job *job,
                                                               const ashlar_optimizer_run *run) {
    const ashlar_optimizer_config *config = &job->rule.config;
    ashlar_optimizer_factors f = ashlar__formula_factors(job, run);
    f.keep2 = 1 - f.shrink; /* of the parameter */
    f.rate = (job->rate_at != NULL ? *job->rate_at : job->learning_rate) * run->rate_scale *
             run->muon_scale;
    f.rest1 = 1 - config->momentum;
    f.rest2 = config->nesterov ? f.rest1 : 0;
    return f;
}

/* What u is divided by: its norm, rounded to bf16 as the norm of a bf16 tensor is, and not 0. */
ASHLAR_SHARED_FN double ashlar__formula_muon_norm(const ashlar_optimizer_config *config,
                                                  double sum) {
    const double norm = sqrt(sum), least = config->ns_epsilon;
    const float rounded = (float)(norm > least ? norm : least);
    return ashlar__float_from_bf16(ashlar__bf16_from_float(rounded));
}

/* Each kernel has one parameter, an ashlar_optimizer_job, and no dynamic shared memory.
 *
 *   ashlar_kernel_sum      one block of CHUNK_THREADS for each of the job's chunks: partial sums
 *   ashlar_kernel_decide   one block of DECIDE_THREADS: adds the partial sums to scalars->sum if
 *                          job.passes has SUM, decides if it has DECIDE, follows if it has FOLLOW
 *   ashlar_kernel_F_T      UPDATE of the runs of type T, by function F of ASHLAR_ALGORITHM_MAP; one
 *                          block for each chunk, which does nothing if its run has another type, or
 *                          is a matrix and F is not MUON's, or the reverse. A kernel for one type
 *                          needs fewer registers, so that more blocks run
 *
 * of a batch of MUON's matrices, in the product's memory and where x lies:
 *
 *   ashlar_kernel_muon_begin_T   one block of MUON_THREADS for each matrix: x = u / |u|
 *   ashlar_kernel_muon_product_T one block of MUON_THREADS for each tile of MUON_TILE x MUON_TILE
 *                                elements of the batch: an ashlar_muon_product
 *
 * where T is f32 or f64
 */
enum { ASHLAR_CHUNK_THREADS = 128, ASHLAR_DECIDE_THREADS = 256, ASHLAR_MUON_THREADS = 256 };
enum { ASHLAR_MUON_TILE = 64 /* rows, and columns, of a product */ };

/* The products of a step: y = x x^T, the polynomial of y, and x times that. */
typedef enum ashlar_muon_product {
    ASHLAR_MUON_GRAM,
    ASHLAR_MUON_POLYNOMIAL,
    ASHLAR_MUON_NEXT,
    ASHLAR_MUON_PRODUCT_COUNT
} ashlar_muon_product;

/* The tiles of a product of one matrix. */
ASHLAR_SHARED_FN size_t ashlar__muon_tiles(const ashlar_optimizer_matrix *m, unsigned product) {
    const size_t side = m->rows < m->columns ? m->rows : m->columns;
    const size_t rows = product == ASHLAR_MUON_NEXT ? m->rows : side;
    const size_t columns = product == ASHLAR_MUON_NEXT ? m->columns : side;
    return ((rows + ASHLAR_MUON_TILE - 1) / ASHLAR_MUON_TILE) *
           ((columns + ASHLAR_MUON_TILE - 1) / ASHLAR_MUON_TILE);
}

/* Whether an algorithm updates matrices. */
ASHLAR_SHARED_FN bool ashlar__formula_is_muon(ashlar_algorithm algorithm) {
    return algorithm == ASHLAR_ALGORITHM_MUON_DIRECTION || algorithm == ASHLAR_ALGORITHM_MUON_APPLY;
}

/* What a block of threads works on: the elements of a chunk that the job covers, all of one run. */
typedef struct ashlar_optimizer_piece {
    ashlar_optimizer_run run;
    size_t first; /* counted in elements of the run */
    unsigned count;
    ashlar_optimizer_factors factors; /* set for UPDATE only */
} ashlar_optimizer_piece;

ASHLAR_SHARED_FN bool ashlar__is_aligned(const void *array, size_t bytes) {
    return (uintptr_t)array % bytes == 0;
}

/* ---- the loops on one CPU core: each instruction set's give the same bits ---- */

/* Update every element of `piece`, a part of a run described as a run of its own. */
typedef void ashlar_optimizer_update_fn(const ashlar_optimizer_factors *factors,
                                        const ashlar_optimizer_run *piece);

typedef ashlar_optimizer_update_fn *ashlar_optimizer_updates[ASHLAR_ALGORITHM_COUNT];

/* The sum of the squares of values[count], in double. It has 16 interleaved partial sums, so that
 * the order of additions is the same whether or not the compiler vectorises the loop. */
typedef double ashlar_optimizer_sum_fn(const void *values, size_t count);

/* values[i] = keep * values[i] + scale * products[i], rounded to bf16; or with `products` NULL
 * values[i] / scale. */
typedef void ashlar_optimizer_mix_fn(void *values, const void *products, double keep, double scale,
                                     size_t count);

/* The loops of one instruction set. `mix` is for values of the type's moments. */
typedef struct ashlar_optimizer_kernels {
    ashlar_optimizer_sum_fn *sum[ASHLAR_DTYPE_COUNT];
    ashlar_optimizer_mix_fn *mix[ASHLAR_DTYPE_COUNT];
    const ashlar_optimizer_updates *update[ASHLAR_DTYPE_COUNT];
} ashlar_optimizer_kernels;

#define ASHLAR_DECLARE_LOOPS(type, set)                           \
    ashlar_optimizer_sum_fn ashlar__optimizer_sum_##type##_##set; \
    ashlar_optimizer_mix_fn ashlar__optimizer_mix_##type##_##set; \
    extern const ashlar_optimizer_updates ashlar__optimizer_updates_##type##_##set;
#define ASHLAR_DECLARE_SET(set)                                            \
    extern const ashlar_optimizer_kernels ashlar__optimizer_kernels_##set; \
    ASHLAR_DECLARE_LOOPS(f32, set)                                         \
    ASHLAR_DECLARE_LOOPS(f64, set)                                         \
    ASHLAR_DECLARE_LOOPS(f16, set)                                         \
    ASHLAR_DECLARE_LOOPS(bf16, set)
ASHLAR_DECLARE_SET(baseline)
ASHLAR_DECLARE_SET(avx2)

/* The loops of the best instruction set that this processor can run. */
const ashlar_optimizer_kernels *ashlar__optimizer_kernels_best(void);

/* Newton-Schulz iterations (muon.c): u, in the second moments of the job's matrices, becomes x. */
void ashlar__muon_run(const ashlar_optimizer_job *job, const ashlar_optimizer_kernels *kernels);

/* Like ashlar__optimizer_cpu_run(), but with the given loops. For tests. */
void ashlar__optimizer_cpu_run_with(const ashlar_optimizer_job *job,
                                    const ashlar_optimizer_kernels *kernels);

#endif /* ASHLAR_OPTIMIZER_IMPL_H */
