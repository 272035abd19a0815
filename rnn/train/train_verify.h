/* train_verify.h - compares the loss and gradients of a device's first training step with the CPU's
 * (internal). */
#ifndef ASHLAR_TRAIN_VERIFY_H
#define ASHLAR_TRAIN_VERIFY_H

#include "rnn/train/train.h"

/* What was compared, if all of it agrees. */
typedef struct ashlar_verification {
    size_t outputs; /* buffers with what an operation has put out */
    size_t tensors;
    double loss;  /* of the first part, on the CPU, nats per symbol */
    double worst; /* the largest difference found, as a fraction of the allowed one: below 1 */
} ashlar_verification;

/* The configuration for the comparison: without dropout, which differs between devices, without
 * other ranks, and with nothing read or written. The tasks are created with this one. */
ashlar_train_config ashlar__train_verify_config(const ashlar_train_config *config);

/* Compute the first part of a training's first batch, on a device and on the CPU, from the same
 * weights, and compare what the operations put out, forward and backward, the loss, and every
 * tensor's gradient. One of these differs if one of its elements is not finite, or is off by 1e-3
 * (F64: 1e-9) or more of its largest absolute value on the CPU, which counts as 1e-3 at least. In
 * outputs the CPU's zeros are not compared: padding is 0 there.
 *
 * tasks  two new ones, alike; they are taken and destroyed, also on failure
 *
 * Errors: ASHLAR_EDRIVER: they differ; the detail names the first output in the step's order, the
 *         loss, or the first tensor in the arena's order, with the element that is furthest off.
 *         ASHLAR_EINVAL (a software device), ASHLAR_ENOTSUP (a type that the CPU cannot compute in),
 *         and those of the functions that it calls. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_verify(ashlar_device *device, ashlar_task *tasks[2],
                                                     const ashlar_train_config *config,
                                                     ashlar_verification *out);

#endif /* ASHLAR_TRAIN_VERIFY_H */
