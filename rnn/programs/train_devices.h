/* train_devices.h - ashlar-train on several devices in one process: a rank, and a thread, for each
 * (internal). */
#ifndef ASHLAR_TRAIN_DEVICES_H
#define ASHLAR_TRAIN_DEVICES_H

#include "rnn/programs/train_command.h"

/* Trains on one open device, which it closes. Returns the exit status, and has said what failed. */
typedef int ashlar_train_run_fn(ashlar_train_command *command, ashlar_device *device);

/* Run the command on devices 0 .. --devices - 1 of the kind that it names, the first on this
 * thread. The threads that compute are divided among the devices, unless `are_threads_given`.
 *
 * Returns the exit status of the first rank that fails, or 0; c->is_stopped is that of rank 0. */
int ashlar__train_devices_run(const char *program, ashlar_train_command *c, bool are_threads_given,
                              ashlar_train_run_fn *run);

#endif /* ASHLAR_TRAIN_DEVICES_H */
