/*
 * task_stack.h - what every task says of its recurrent layers in a training's file (internal).
 */
#ifndef ASHLAR_TASK_STACK_H
#define ASHLAR_TASK_STACK_H

#include "rnn/train/facts.h"
#include "rnn/train/train.h"

void ashlar_task_add_stack(ashlar_facts *facts, const ashlar_train_config *config);

#endif /* ASHLAR_TASK_STACK_H */
