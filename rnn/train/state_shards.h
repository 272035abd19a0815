/* state_shards.h - an optimizer that is divided among ranks: `--shard` (internal).
 *
 * Each rank has only the moments and masters of its own part. It gets the sums of that part's
 * gradients (shard_pieces.h), updates the part's parameters, and sends them to all. A saved file
 * has all moments and masters, like a file of one process; any number of ranks can resume it. */
#ifndef ASHLAR_STATE_SHARDS_H
#define ASHLAR_STATE_SHARDS_H

#include "rnn/train/train.h"

#include "arena/checkpoint/checkpoint_images.h"

/* Whether the trainer's optimizer is divided. */
bool ashlar__state_shards_are_used(const ashlar_train_config *config);

/* The regions that the arena needs. */
unsigned ashlar__state_shards_regions(const ashlar_train_config *config);

/* _open: make the trainer's optimizer, whole or a part. _close: give back what else _open took.
 * Errors: those of ashlar_optimizer_create() and ashlar__optimizer_create_part(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__state_shards_open(ashlar_trainer *trainer);
void ashlar__state_shards_close(ashlar_trainer *trainer);

/* Queue a step of a divided optimizer; every rank then has all parameters. Errors: those of
 * ashlar_optimizer_step() and of collectives. */
ASHLAR_MUST_CHECK ashlar_status ashlar__state_shards_step(ashlar_trainer *trainer,
                                                          double learning_rate);

/* Every rank calls this at the same step: those that do not write a file lend their moments to the
 * one that does. Without a divided optimizer only the one that writes has to call it.
 *
 * path   NULL: this rank writes none
 *
 * Errors: those of ashlar__train_checkpoint_save() and of collectives. */
ASHLAR_MUST_CHECK ashlar_status ashlar__state_shards_save(ashlar_trainer *trainer,
                                                          const char *path);

/* Read config->resume_file. A rank keeps only its part of the moments and the master
 * weights. Errors: those of ashlar__train_checkpoint_load(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__state_shards_load(ashlar_trainer *trainer);

#endif /* ASHLAR_STATE_SHARDS_H */
