/*
 * task_stack.h - what every task says of its recurrent layers in a training's file (internal).
 */
#ifndef ASHLAR_TASK_STACK_H
#define ASHLAR_TASK_STACK_H

#include "rnn/train/facts.h"
#include "rnn/train/train.h"

/* Keys of a checkpoint's metadata that the model is built from. */
#define ASHLAR_METADATA_LAYERS "ashlar.layers"
#define ASHLAR_METADATA_CELL "ashlar.cell"             /* absent: lstm */
#define ASHLAR_METADATA_PROJECTION "ashlar.projection" /* absent: none */
#define ASHLAR_METADATA_DROPOUT "ashlar.dropout"       /* of its training */
#define ASHLAR_METADATA_HIDDEN "ashlar.hidden"
#define ASHLAR_METADATA_EMBEDDING "ashlar.embedding"

void ashlar_task_add_stack(ashlar_facts *facts, const ashlar_train_config *config);

#endif /* ASHLAR_TASK_STACK_H */
