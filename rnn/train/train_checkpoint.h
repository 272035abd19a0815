/*
 * train_checkpoint.h - saving a training in a file and resuming it as if it had not stopped
 * (internal).
 *
 * The file is a checkpoint of the model's arena with the optimizer's state. Its metadata has two
 * kinds of keys, all under "ashlar.":
 *
 *     what must be the same     the task's options and data, the optimizer, the seed
 *     how far the training is   step, recent (losses), optimizer_state, and the position of the
 *                               task's batch sampler
 *
 * Real numbers are written so that reading them restores every bit.
 */
#ifndef ASHLAR_TRAIN_CHECKPOINT_H
#define ASHLAR_TRAIN_CHECKPOINT_H

#include "rnn/train/train.h"

/* What a file is made from, besides the ashlar_train_state. */
typedef struct ashlar_train_context {
    const ashlar_train_config *config;
    ashlar_task *task; /* must be open */
    ashlar_stream stream;
} ashlar_train_context;

/* How far a training is. */
typedef struct ashlar_train_state {
    uint64_t step;                      /* steps done */
    double nats[ASHLAR_TRAIN_RECENT];   /* loss * tokens of step s, at s % ASHLAR_TRAIN_RECENT */
    double tokens[ASHLAR_TRAIN_RECENT]; /* of the same steps; 0 if there were fewer steps */
    ashlar_optimizer_state optimizer;
} ashlar_train_state;

/* Write everything. Waits for the stream. Errors: those of ashlar_checkpoint_save(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_checkpoint_save(const char *path,
                                                              const ashlar_train_context *context,
                                                              const ashlar_train_state *state);

/*
 * Read everything back: the arena, the position of the batch sampler (which must be new), *state.
 * Waits for the stream.
 *
 * Errors: ASHLAR_EINVAL (the file has at least as many steps as the configuration asks for),
 *         ASHLAR_EFORMAT (the file is of another configuration, data or version, or holds no
 *         training; the detail says which), and those of ashlar_checkpoint_open() and
 *         ashlar_checkpoint_load(). After an error *state and the arena are unchanged, except after
 *         ASHLAR_EDRIVER; the batch sampler may have moved.
 * Cost:   skips the batches that were drawn before the file was saved, some microseconds each.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_checkpoint_load(const char *path,
                                                              const ashlar_train_context *context,
                                                              ashlar_train_state *state);

#endif /* ASHLAR_TRAIN_CHECKPOINT_H */
