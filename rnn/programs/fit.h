/* fit.h - how large a training may be on a device of a given size: --fit (internal). */
#ifndef ASHLAR_PROGRAMS_FIT_H
#define ASHLAR_PROGRAMS_FIT_H

#include "rnn/programs/train_command.h"

/* Whether --vary takes `name`. */
bool ashlar__train_fit_knows(const char *name);

typedef struct ashlar_train_fitted {
    const char *option; /* what varies, as an option without dashes */
    size_t value;       /* the largest that runs */
    size_t next;        /* the next larger one, which does not run; 0: there is none */
    size_t need_bytes;  /* of the device: with 2 MiB less it does not run */
    size_t trials;
    double cudnn_bytes; /* a bound on the work space that cuDNN takes instead of the CPU's */
} ashlar_train_fitted;

/*
 * Find the largest batch, length or width that command->vary names which runs on a device of
 * command->fit_bytes, by dry warm-ups on a software device of its own. No device may be open.
 * Errors: ASHLAR_ENOMEM (not even the least runs), ASHLAR_EINVAL, and those of the data.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_fit_find(const ashlar_train_command *command,
                                                       ashlar_train_fitted *out);

/* The same; then print it, and write it to command->json. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_fit(const ashlar_train_command *command);

/*
 * After a training failed for lack of memory, and its device is closed: add to the error's detail
 * what the training needs, and whether --recompute auto would help. Returns ASHLAR_ENOMEM.
 */
ashlar_status ashlar__train_fit_explain(const ashlar_train_command *command);

#endif /* ASHLAR_PROGRAMS_FIT_H */
