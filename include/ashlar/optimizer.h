/*
 * optimizer.h - one optimizer step over a whole arena at once, or over any range of it.
 */
#ifndef ASHLAR_OPTIMIZER_H
#define ASHLAR_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/arena.h>

ASHLAR_BEGIN_DECLS

/* One row per kind of optimizer: name, text. */
#define ASHLAR_OPTIMIZER_MAP(X) \
    X(SGD, "sgd")               \
    X(ADAM, "adam")             \
    X(ADAMW, "adamw")           \
    X(ADAGRAD, "adagrad")       \
    X(RMSPROP, "rmsprop")       \
    X(MUON, "muon")

#define ASHLAR_OPTIMIZER_ENUM(name, text) ASHLAR_OPTIMIZER_##name,
typedef enum ashlar_optimizer_kind {
    ASHLAR_OPTIMIZER_MAP(ASHLAR_OPTIMIZER_ENUM) ASHLAR_OPTIMIZER_COUNT
} ashlar_optimizer_kind;

/* How MUON's rate follows from a matrix's rows r and columns c, a factor s: PyTorch's adjust_lr_fn.
 * With MATCH_RMS_ADAMW the rate and decay that suit ADAMW suit MUON, too (Liu et al. 2025). */
#define ASHLAR_MUON_SCALE_MAP(X)                                          \
    X(ORIGINAL, "original")                     /* sqrt(max(1, r/c)) */   \
    X(MATCH_RMS_ADAMW, "match_rms_adamw")       /* 0.2 sqrt(max(r, c)) */ \
    X(SPECTRAL_UNCLAMPED, "spectral_unclamped") /* sqrt(r/c) */

#define ASHLAR_MUON_SCALE_ENUM(name, text) ASHLAR_MUON_SCALE_##name,
typedef enum ashlar_muon_scale {
    ASHLAR_MUON_SCALE_MAP(ASHLAR_MUON_SCALE_ENUM) ASHLAR_MUON_SCALE_COUNT
} ashlar_muon_scale;

/*
 * An optimizer's configuration, with update t (from 1) of a parameter p with gradient G. A tensor
 * that is frozen (ashlar_arena_set_options()) misses steps, which do not count in its t: like
 * PyTorch's `step`, that of each tensor is its own. A field that a kind does not mention is
 * ignored. The formulas, names and defaults are those of torch.optim (PyTorch 2):
 *
 *   norm  = |G| gradient_scale / loss_scale         over every tensor that is not frozen
 *   g     = G gradient_scale / loss_scale min(1, clip_norm / norm)
 *   g    += weight_decay p                          not ADAMW, MUON, nor tensors without decay
 *
 *   SGD      b = momentum b + (1 - dampening) g     at t = 1: b = g
 *            p -= rate b, or with nesterov  rate (g + momentum b)
 *   ADAM     m = beta1 m + (1 - beta1) g            v = beta2 v + (1 - beta2) g^2
 *            p -= rate m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon)
 *   ADAMW    the same, and p -= rate weight_decay p (Loshchilov and Hutter 2019)
 *   ADAGRAD  v += g^2
 *            p -= rate / (1 + (t - 1) rate_decay) g / (sqrt(v) + epsilon)
 *   RMSPROP  v = smoothing v + (1 - smoothing) g^2  d = g / (sqrt(v) + epsilon)
 *            b = momentum b + d                     p -= rate b
 *   MUON     each tensor of rank 2 that is not is_elementwise, as a matrix (Jordan et al. 2024):
 *            m = momentum m + (1 - momentum) g      u = m, or with nesterov the same step again:
 *                                                       momentum m + (1 - momentum) g
 *            x = u / max(|u|, ns_epsilon)           ns_steps times: y = x x^T, or x^T x if smaller;
 *                                                       x = ns[0] x + (ns[1] y + ns[2] y y) x
 *            p -= rate (weight_decay p + s x)       s: ashlar_muon_scale
 *            and all other tensors as ADAMW does. u, |u|, x, y and the polynomial of y are rounded
 *            to bf16, as by torch.optim.Muon, and products summed in fp32, for fp64 tensors in fp64
 *
 * rate is the step's learning rate times the tensor's rate_scale. Arithmetic is in fp32, for fp64
 * tensors in fp64; fp16 and bf16 parameters are the rounded image of an fp32 master.
 */
typedef struct ashlar_optimizer_config {
    ashlar_optimizer_kind kind;
    bool is_complete;     /* false: each field that is 0 stands for the kind's default, as
                           * ashlar_optimizer_complete() gives it. true, as that function sets it:
                           * a 0 is a 0 */
    double learning_rate; /* > 0; see ashlar_optimizer_info */
    double momentum;      /* [0, 1); SGD, RMSPROP, MUON */
    double dampening;     /* [0, 1]; SGD with momentum */
    bool nesterov;        /* SGD with momentum, without dampening; MUON */
    double beta1, beta2;  /* [0, 1) */
    double smoothing;     /* [0, 1]; PyTorch's alpha */
    double rate_decay;    /* >= 0 */
    double epsilon;       /* > 0 even when rounded to fp32, so that padding stays 0 */
    double weight_decay;  /* >= 0 */
    double clip_norm;     /* gradients are scaled down to this 2-norm; 0: no clipping */
    bool state_on_host;   /* moments and masters that the arena lacks lie in page-locked memory */

    double ns[3];      /* MUON, finite: PyTorch's ns_coefficients; all 0: the default */
    uint32_t ns_steps; /* MUON: 1 .. 99 */
    double ns_epsilon; /* MUON: > 0 even when rounded to fp32; PyTorch's eps */
    ashlar_muon_scale muon_scale;

    /* Loss scaling, as by PyTorch's GradScaler. Powers of two lose no precision. */
    double loss_scale;       /* the initial scale; 0: no loss scaling */
    uint32_t scale_interval; /* >= 1 */
    double scale_growth;     /* >= 1: the factor after scale_interval good steps in a row */
    double scale_backoff;    /* (0, 1): the factor after a skipped step */
} ashlar_optimizer_config;

/* What an optimizer keeps in device memory besides the moments. */
typedef struct ashlar_optimizer_state {
    uint64_t step;     /* steps done, not counting skipped ones */
    uint64_t skipped;  /* steps that were skipped */
    double norm;       /* of the last step's gradients, unscaled, before clipping */
    double loss_scale; /* for the next step; 1 without loss scaling; 0 stands for the initial one */
    uint32_t good_steps; /* in a row, since loss_scale changed */
    uint32_t is_skipped; /* 1: the last step was skipped */
} ashlar_optimizer_state;

/*
 * Give each field that is 0 its kind's default and set is_complete, unless that is set already; and
 * check every value that the kind uses. ashlar_optimizer_create() does so by itself; a program that
 * reads options asks early.
 *
 * PyTorch's defaults: a learning rate of 1e-3 (ADAGRAD, RMSPROP: 1e-2), betas of 0.9 and 0.999,
 * smoothing 0.99, epsilon 1e-8 (ADAGRAD: 1e-10), weight decay 0.01 for ADAMW, 0.1 for MUON and 0
 * for the others, no momentum, no clipping, no loss scaling. MUON: momentum 0.95 with nesterov, ns
 * {3.4445, -4.7750, 2.0315}, 5 ns_steps, ns_epsilon 1e-7, ORIGINAL. If you switch loss scaling on:
 * growth 2, backoff 0.5, interval 2000.
 *
 * Threads: any. Errors: ASHLAR_EINVAL (a value outside its range); *config is unchanged then.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_optimizer_complete(ashlar_optimizer_config *config);

/* The optimizer of one arena. Threads: one at a time, and not while the arena is changed. */
typedef struct ashlar_optimizer ashlar_optimizer;

/*
 * Make an optimizer at step 0. It adds the regions that it needs and the arena lacks
 * (ashlar_arena_extend()): gradients, masters, and the moments that it uses. SGD keeps b in the
 * first moments; ADAM and ADAMW use both; ADAGRAD keeps v in the second; RMSPROP keeps v in the
 * second and b in the first. b exists only with momentum. MUON uses both like ADAMW; of a matrix
 * the first have m, the second the last x. It also takes one block of device memory, for its state,
 * the runs of tensors with equal options, how often each was updated, and partial sums; for MUON
 * also for products, of as many matrices of one shape at once as need 64 MiB, or of one. In an
 * RNN's group each weight_ih, weight_hh and weight_hr is a matrix.
 *
 * With state_on_host the moments and masters that it adds are page-locked memory, which the arena
 * owns, and pass through the device during an update: a piece of at most 4 MiB of parameters, or
 * 1/16 of them, or of MUON one matrix, is updated while the next one comes and the last one goes
 * back, on two streams of its own. For two pieces it takes another block of device memory. To have
 * masters there, too, commit the arena without them.
 *
 * Ownership: the caller owns *out; the arena must outlive it. ashlar_optimizer_destroy() frees
 *            the block in the order of `stream`, and allows NULL. On a CUDA device it waits for all
 *            queued work, since that may still run the kernels that it unloads.
 * Stream:    queued on `stream`; make the calls below on `stream` too, or on streams ordered after
 *            it.
 * Errors:    ASHLAR_EINVAL (config; an arena that is not committed; the environment's
 *            ASHLAR_THREADS), ASHLAR_ENOTSUP (a CUDA device, in a build without CUDA
 *            kernels), ASHLAR_EOVERFLOW, ASHLAR_EHOSTMEM, and those of
 *            ashlar_device_host_alloc(), ashlar_arena_extend(), ashlar_alloc() and
 * ashlar_copy_to_device(). The arena may keep the regions.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_optimizer_create(ashlar_arena *arena, const ashlar_optimizer_config *config,
                        ashlar_stream stream, ashlar_optimizer **out);
ASHLAR_API void ashlar_optimizer_destroy(ashlar_optimizer *optimizer);

/*
 * Queue one step over the whole arena: compute the norm of the gradients, decide on scaling,
 * clipping and skipping, update.
 *
 * learning_rate    >= 0
 * gradient_scale   > 0; multiplies the gradients: pass 1 / micro-batches after accumulation. With
 *                  loss scaling the gradients are also divided by the loss scale.
 *
 * If a gradient of a tensor that is not frozen is not finite, the step is skipped: only `norm`,
 * `skipped`, `is_skipped` and, with loss scaling, `loss_scale` and `good_steps` change. No step
 * changes gradients, but see ashlar_optimizer_call. The first update of an fp16 or bf16 tensor sets
 * its masters from the parameters. Nothing of a frozen tensor is changed or read.
 *
 * The step follows options that were set since the last one, see ashlar_optimizer_follow().
 *
 * Stream:  queued; it is the device that decides, without a host wait.
 * Errors:  ASHLAR_EINVAL (a value outside its range, or a rate that fp32 cannot hold),
 *          ASHLAR_EHOSTMEM, ASHLAR_EDRIVER, ASHLAR_ENOMEM (the driver could not queue it; with
 *          state_on_host pieces before it may be updated).
 * Cost:    on a software device one launch, shared by all cores: a pass over the gradients, then
 *          one over everything. The result is the same to the last bit for any number of threads.
 *          On a CUDA device a launch for the first pass, one to decide, and one for each type of
 *          elements that is there. MUON has further ones there: 1 + 3 ns_steps for each batch of
 *          matrices, and 2 for each type.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_optimizer_step(ashlar_optimizer *optimizer,
                                                                 double learning_rate,
                                                                 double gradient_scale,
                                                                 ashlar_stream stream);

/*
 * Queue the present options of the arena's tensors, for steps queued or launched from now on. Each
 * step does so by itself; call this for steps of captured graphs, before the capture or between two
 * launches. A captured step reads from device memory which tensors are frozen. But its launches are
 * those of the runs at the capture: so freeze every tensor that may be frozen later once before it,
 * which makes a run of its own of it. A captured step that no longer fits, since a tensor was
 * frozen for the first time, or has another rate or decay, is skipped, and its norm is NaN.
 *
 * Change options between steps, not between the calls of one.
 *
 * Errors: ASHLAR_EINVAL (options have changed, and `stream` is being captured; MUON: matrices that
 * were is_elementwise when it was made need more memory than it took), ASHLAR_EHOSTMEM,
 * and those of ashlar_copy_to_device() and ashlar_launch(). Cost:   O(tensors), one copy and one
 * launch if options have changed; no device memory is taken.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_optimizer_follow(ashlar_optimizer *optimizer,
                                                                   ashlar_stream stream);

/* The parts of a step, in their order. */
typedef enum ashlar_optimizer_part {
    /* Adds the squares of the gradients, as they are stored, to ashlar_optimizer_info.sum. The
     * first one after a decision begins at 0. */
    ASHLAR_OPTIMIZER_SUM = 1,
    /* Computes from that sum the norm, whether to skip, and the factors; once a step. */
    ASHLAR_OPTIMIZER_DECIDE = 2,
    /* Updates elements, each at most once a step. */
    ASHLAR_OPTIMIZER_UPDATE = 4,
} ashlar_optimizer_part;

typedef struct ashlar_optimizer_call {
    unsigned parts;        /* a set of them; 0: all three, over the whole arena */
    double learning_rate;  /* UPDATE, >= 0 */
    const double *rate_at; /* UPDATE: device memory from which the rate, 0 .. learning_rate, is read
                            * when the work runs, so that a captured step (ashlar_graph_begin()) can
                            * be launched with another rate each time; NULL: learning_rate */
    double gradient_scale; /* DECIDE, > 0 */
    bool zero_gradients;   /* UPDATE: leave 0 in the range's gradients, as for the next
                            * back-propagation, also of tensors that are frozen, and if the step is
                            * skipped. On the CPU in the same pass, on CUDA by a fill behind it */
    size_t offset, bytes;  /* SUM, UPDATE: the range, unless `parts` is 0. Of the storage layout,
                            * multiples of ASHLAR_ARENA_ALIGN; bytes may be 0 */
} ashlar_optimizer_call;

/*
 * ashlar_optimizer_step() with more choice: a rate in device memory; or parts of a step, for ranks
 * that each own ranges of the arena, such as a shard of each bucket. Each rank calls SUM for each
 * of its ranges. The ranks add their sums up, in place. Then each calls DECIDE, and UPDATE for its
 * ranges.
 *
 * Stream, errors, cost: as there; ASHLAR_EINVAL also for parts or a range that are none, and for an
 * UPDATE of MUON whose range has a part of a matrix.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_optimizer_step_with(
    ashlar_optimizer *optimizer, const ashlar_optimizer_call *call, ashlar_stream stream);

typedef struct ashlar_optimizer_info {
    double learning_rate;     /* that it was made with, its kind's default if that was 0: what a
                               * program without a schedule passes to each step */
    double *sum;              /* device memory: the sum of squares, to read and write */
    const double *loss_scale; /* device memory: the loss scale for the next step (1 without loss
                               * scaling), by which back-propagation multiplies the loss's
                               * gradient */
    size_t host_bytes;        /* of moments and masters in page-locked memory */
    uint64_t event_calls;     /* driver calls so far that order copies of these */
} ashlar_optimizer_info;

/* Threads: any. */
ASHLAR_API ashlar_optimizer_info ashlar_optimizer_get_info(const ashlar_optimizer *optimizer);

#define ASHLAR_UPDATED_ALWAYS UINT64_MAX

/*
 * Queue a copy of the state to the host or to the device. The host may read it after
 * ashlar_stream_synchronize(); ashlar_optimizer_copy_state_to_device() has read *state and
 * updates[] when it returns. Parameters, moments, masters, this state and, if a tensor was ever
 * frozen, updates[] are all that a resumed training needs to continue with the same bits, in an
 * optimizer of an equal arena with equal options. A state with step 0 makes the next step the first
 * one, of every tensor. Copying a state to the device also forgets the sums of a failed step that
 * was never decided.
 *
 * updates   [ashlar_arena_info.tensor_count]: how often each tensor was updated, or
 *           ASHLAR_UPDATED_ALWAYS for one that was never frozen, and so was in each of the state's
 *           steps. With it the copy to the host waits for the stream. NULL: not wanted; to the
 *           device: as they are
 *
 * Errors: ASHLAR_EINVAL (to the device, with loss scaling: a loss_scale that fp32 cannot hold),
 *         ASHLAR_EHOSTMEM, and those of ashlar_copy_to_host(), ashlar_copy_to_device() and
 *         ashlar_optimizer_follow().
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_optimizer_copy_state_to_host(
    const ashlar_optimizer *optimizer, ashlar_optimizer_state *state, uint64_t *updates,
    ashlar_stream stream);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_optimizer_copy_state_to_device(
    ashlar_optimizer *optimizer, const ashlar_optimizer_state *state, const uint64_t *updates,
    ashlar_stream stream);

/* ---- a whole training in a file ---- */

/* Where a training stands. */
typedef struct ashlar_training_state {
    uint64_t step; /* steps done, skipped ones among them: so many batches were drawn */
    uint64_t seed; /* of what the program draws at random, such as the order of its batches */
    ashlar_optimizer_state optimizer; /* a save ignores it: it asks the optimizer */
} ashlar_training_state;

/*
 * Save all that a training needs to continue with the same bits: parameters, moments, masters, the
 * optimizer's state, the seed from which a model of the arena draws next, and *state. The file is
 * one of ashlar_checkpoint_save(), with "ashlar.step", "ashlar.seed", "ashlar.model_seed",
 * "ashlar.optimizer_state" and "ashlar.updates" in its metadata: the last is the number of tensors
 * that were ever frozen, each with its updates as "ashlar.updates.NAME". Which tensors are frozen
 * is the program's to know. Waits for `stream`.
 *
 * metadata   [metadata_count], the program's own, under other keys; may be NULL if there is none
 *
 * Errors: those of ashlar_checkpoint_save() and ashlar_optimizer_copy_state_to_host().
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_training_save(const ashlar_arena *arena, const ashlar_optimizer *optimizer, const char *path,
                     const ashlar_training_state *state, const ashlar_checkpoint_pair *metadata,
                     size_t metadata_count, ashlar_stream stream);

/*
 * Load it again: fill the arena, whose tensors and moments must be those of the file, give the
 * optimizer its state, and set *out. Waits for `stream`. In a file without "ashlar.updates", of an
 * earlier version, tensors that are frozen now have had no update, and the others one in each step.
 *
 * Errors: ASHLAR_EFORMAT (the file holds no whole training), and those of ashlar_checkpoint_load()
 *         and ashlar_optimizer_copy_state_to_device(). What is said there about the arena holds
 *         here; *out is set on success only.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_training_load(ashlar_arena *arena,
                                                                ashlar_optimizer *optimizer,
                                                                const ashlar_checkpoint *file,
                                                                ashlar_stream stream,
                                                                ashlar_training_state *out);

/* ---- schedules ---- */

/* One row per kind of schedule: name, text. */
#define ASHLAR_SCHEDULE_MAP(X) \
    X(CONSTANT, "constant")    \
    X(COSINE, "cosine")        \
    X(STEP, "step")

#define ASHLAR_SCHEDULE_ENUM(name, text) ASHLAR_SCHEDULE_##name,
typedef enum ashlar_schedule_kind {
    ASHLAR_SCHEDULE_MAP(ASHLAR_SCHEDULE_ENUM) ASHLAR_SCHEDULE_COUNT
} ashlar_schedule_kind;

/* A linear warm-up, then a course that depends on the kind. With w = warmup_steps and u = max(w,
 * 1), the learning rate of step t >= 1 is
 *
 *   t <= w     rate t / w
 *   CONSTANT   rate
 *   COSINE     rate (floor + (1 - floor) (1 + cos(pi (t - u) / (total_steps - u))) / 2): the full
 *              rate at t = u, rate floor at total_steps and later (Loshchilov and Hutter 2017)
 *   STEP       rate gamma^floor((t - w - 1) / step_size)
 *
 * Fields that a kind does not use are ignored; `rate`, total_steps of COSINE and step_size of STEP
 * must be given. */
typedef struct ashlar_schedule {
    ashlar_schedule_kind kind;
    double rate;           /* > 0: the highest learning rate */
    uint64_t warmup_steps; /* COSINE: at most total_steps */
    uint64_t total_steps;  /* COSINE: at least 1 */
    double floor;          /* COSINE: 0 .. 1, the final rate as a fraction of `rate` */
    uint64_t step_size;    /* STEP: at least 1 */
    double gamma;          /* STEP: > 0, at most 1; 0 stands for 0.1 */
} ashlar_schedule;

/* The learning rate of a step, 0 .. rate. NaN: a value of the schedule is outside its range;
 * ashlar_error_detail() says which.
 *
 * step   from 1; the rate depends on nothing else, so a resumed training continues exactly
 *
 * Threads: any.  Cost: a few multiplications. */
ASHLAR_API double ashlar_schedule_rate(const ashlar_schedule *schedule, uint64_t step);

ASHLAR_END_DECLS

#endif /* ASHLAR_OPTIMIZER_H */
