/* train_verify.h - compares the loss and gradients of a device's first training step with the CPU's
 * (internal). */
#ifndef ASHLAR_TRAIN_VERIFY_H
#define ASHLAR_TRAIN_VERIFY_H

#include "rnn/train/train.h"

/* What was compared, if all of it agrees. */
typedef struct ashlar_verification {
    size_t tensors;
    double loss;  /* of the first part, on the CPU, nats per symbol */
    double worst; /* the largest difference found, as a fraction of the allowed one: below 1 */
} ashlar_verification;

/* The configuration for the comparison: without dropout, which differs between devices, without
 * other ranks, and with nothing read or written. The tasks are created with this one. */
ashlar_train_config ashlar__train_verify_config(const ashlar_train_config *config);

/* Compute the loss and all gradients of the first part of a training's first batch, on a device and
 * on the CPU, from the same weights, and compare the loss and every tensor. A tensor differs if one
 * of its elements is not finite, or is off by 1e-3 (F64: 1e-9) or more of the tensor's largest
 * absolute value on the CPU, which counts as 1e-3 at least.
 *
 * tasks  two new ones, alike; they are taken and destroyed, also on failure
 *
 * Errors: ASHLAR_EDRIVER: they differ; the detail names the loss, or the first tensor in the
 *         arena's order and its element that is furthest off. ASHLAR_EINVAL (a software device),
 *         ASHLAR_ENOTSUP (a type that the CPU cannot compute in), and those of the functions that
 *         it calls. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_verify(ashlar_device *device, ashlar_task *tasks[2],
                                                     const ashlar_train_config *config,
                                                     ashlar_verification *out);

#endif /* ASHLAR_TRAIN_VERIFY_H */
