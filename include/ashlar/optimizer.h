/*
 * optimizer.h - one optimizer step over a whole arena at once.
 */
#ifndef ASHLAR_OPTIMIZER_H
#define ASHLAR_OPTIMIZER_H

#include <stdint.h>

#include <ashlar/arena.h>

ASHLAR_BEGIN_DECLS

/* Name, text. */
#define ASHLAR_OPTIMIZER_MAP(X) \
    X(SGD, "sgd")               \
    X(ADAM, "adam")             \
    X(ADAMW, "adamw")           \
    X(ADAGRAD, "adagrad")       \
    X(RMSPROP, "rmsprop")

#define ASHLAR_OPTIMIZER_ENUM(name, text) ASHLAR_OPTIMIZER_##name,
typedef enum ashlar_optimizer_kind {
    ASHLAR_OPTIMIZER_MAP(ASHLAR_OPTIMIZER_ENUM)
    ASHLAR_OPTIMIZER_COUNT
} ashlar_optimizer_kind;

/*
 * What an optimizer does at step t (from 1) to a parameter p with gradient G; what a kind does not
 * mention is ignored. The formulas, names and defaults are those of torch.optim (PyTorch 2):
 *
 *   norm  = |G| gradient_scale / loss_scale         over every tensor that is not frozen
 *   g     = G gradient_scale / loss_scale min(1, clip_norm / norm)
 *   g    += weight_decay p                          not ADAMW; nor tensors without decay
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
 *
 * rate is the step's learning rate times the tensor's own scale. Arithmetic is in fp32, for fp64
 * tensors in fp64; fp16 and bf16 parameters are the rounded image of an fp32 master.
 */
typedef struct ashlar_optimizer_config {
    ashlar_optimizer_kind kind;
    double learning_rate; /* > 0; what a program that has no schedule passes to each step */
    double momentum;      /* [0, 1); SGD, RMSPROP */
    double dampening;     /* [0, 1]; SGD with momentum */
    bool nesterov;        /* SGD with momentum, without dampening */
    double beta1, beta2;  /* [0, 1) */
    double smoothing;     /* [0, 1]; PyTorch's alpha */
    double rate_decay;    /* >= 0 */
    double epsilon;       /* > 0, also when rounded to fp32: padding must stay 0 */
    double weight_decay;  /* >= 0 */
    double clip_norm;     /* scale gradients down to this 2-norm; 0: do not clip */

    /* As PyTorch's GradScaler. Powers of two lose no digit. */
    double loss_scale;       /* the first one; 0: no loss scaling */
    double scale_growth;     /* >= 1: times this after scale_interval good steps in a row */
    double scale_backoff;    /* (0, 1): times this after a skipped step */
    uint32_t scale_interval; /* >= 1 */
} ashlar_optimizer_config;

/* What an optimizer keeps in device memory beside the moments. */
typedef struct ashlar_optimizer_state {
    uint64_t step;       /* steps done, without the skipped ones */
    uint64_t skipped;    /* steps that were skipped */
    double norm;         /* of the last step's gradients, unscaled, before clipping */
    double loss_scale;   /* of the next step; 1 without loss scaling */
    uint32_t good_steps; /* in a row, since loss_scale changed */
    uint32_t is_skipped; /* 1: the last step was */
} ashlar_optimizer_state;

/* The update runs in fp32, where epsilon must not be 0 nor the learning rate infinite. */
typedef struct ashlar_adamw {
    double learning_rate; /* > 0 */
    double beta1, beta2;  /* [0, 1) */
    double epsilon;       /* > 0 */
    double weight_decay;  /* >= 0, decoupled from the gradient */
    double clip_norm;     /* scale gradients down to this 2-norm; 0: do not clip */
} ashlar_adamw;

/* 1e-3, 0.9, 0.999, 1e-8, 0.01, no clipping. Threads: any. */
ASHLAR_API ashlar_adamw ashlar_adamw_default(void);

/*
 * Queue the update number `step` (from 1) of every parameter of the arena on `stream`:
 *
 *     s  = min(1, clip_norm / |g|)                    |g| over all gradients
 *     m  = beta1 m + (1 - beta1) s g                  v = beta2 v + (1 - beta2) (s g)^2
 *     p -= learning_rate (m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + epsilon)
 *                         + weight_decay p)
 *
 * (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019, algorithm 2, with a
 * constant schedule multiplier; clipping as in Pascanu et al. 2013). Where |g| is not finite
 * nothing is updated. Gradients stay as they are.
 *
 * norm   device address of one double that gets |g| before clipping; NULL: not wanted
 *
 * Stream:  queued; results are there when the stream has come to them.
 * Errors:  ASHLAR_EINVAL (a value outside its range, step 0, an arena without all four regions, or
 *          with a tensor that is not fp32), ASHLAR_ENOTSUP (the arena is on a CUDA device),
 *          ASHLAR_EHOSTMEM, ASHLAR_EDRIVER.
 * Cost:    one launch: a pass that reads the gradients, a pass that updates. Deterministic.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_adamw_step(ashlar_arena *arena,
                                                             const ashlar_adamw *adamw,
                                                             uint64_t step, double *norm,
                                                             ashlar_stream stream);

ASHLAR_END_DECLS

#endif /* ASHLAR_OPTIMIZER_H */
