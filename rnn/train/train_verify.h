/* train_verify.h - a device's first step beside the CPU's: is what it computes right? (internal) */
#ifndef ASHLAR_TRAIN_VERIFY_H
#define ASHLAR_TRAIN_VERIFY_H

#include "rnn/train/train.h"

/* What was compared, if all of it agrees. */
typedef struct ashlar_verification {
    size_t outputs; /* buffers with what an operation has put out */
    size_t tensors;
    double loss;  /* of the first part, on the CPU, nats per symbol */
    double worst; /* the largest part of an allowed difference that was found, below 1 */
} ashlar_verification;

/* The configuration for it: without dropout, which differs between devices, without other ranks,
 * and with nothing read or written. Tasks are created with this. */
ashlar_train_config ashlar__train_verify_config(const ashlar_train_config *config);

/* Compute the first part of a training's first batch, on a device and on the CPU, from the same
 * weights, and compare what the operations put out, forward and backward, the loss, and every
 * tensor's gradient. One differs if an element does by more than 1e-3 (F64: 1e-9) of the largest on
 * the CPU, or is no number. In outputs the CPU's zeros are not compared: padding is 0 there.
 *
 * tasks  two new ones, alike; they are taken and destroyed, also on failure
 *
 * Errors: ASHLAR_EDRIVER: they differ; the detail names the first output in the step's order, the
 *         loss, or the first tensor in the arena's, with the element that is furthest off.
 * ASHLAR_EINVAL (a software device), ASHLAR_ENOTSUP (a type that the CPU cannot compute in), and
 * those of the parts. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_verify(ashlar_device *device, ashlar_task *tasks[2],
                                                     const ashlar_train_config *config,
                                                     ashlar_verification *out);

#endif /* ASHLAR_TRAIN_VERIFY_H */
