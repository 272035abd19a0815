/*
 * train_rule.h - which optimizer and schedule a training goes by, as a command line names them
 * (internal).
 */
#ifndef ASHLAR_TRAIN_RULE_H
#define ASHLAR_TRAIN_RULE_H

#include "rnn/train/train.h"

typedef struct ashlar_train_rule {
    const char *optimizer; /* as ashlar_optimizer_name() has it */
    const char *schedule;  /* as ASHLAR_SCHEDULE_MAP has it */
    size_t warmup_steps;
    double floor;     /* cosine */
    size_t step_size; /* step */
    double gamma;     /* step */
} ashlar_train_rule;

/*
 * Bring the rule into `config`, whose other values are complete. Errors: ASHLAR_EINVAL, naming the
 * option.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_rule_apply(const ashlar_train_rule *rule,
                                                         ashlar_train_config *config);

#endif /* ASHLAR_TRAIN_RULE_H */
