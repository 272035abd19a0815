/*
 * optimizer.h - one optimizer step over a whole arena at once.
 */
#ifndef ASHLAR_OPTIMIZER_H
#define ASHLAR_OPTIMIZER_H

#include <stdint.h>

#include <ashlar/arena.h>

ASHLAR_BEGIN_DECLS

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
