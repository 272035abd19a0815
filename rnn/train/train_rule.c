#include "rnn/train/train_rule.h"

#include <string.h>

#include "allocator/base/error.h"

static ashlar_status find_optimizer(const char *name, ashlar_optimizer_kind *kind) {
    for (int i = 0; i < ASHLAR_OPTIMIZER_COUNT; i++) {
        if (strcmp(name, ashlar_optimizer_name((ashlar_optimizer_kind)i)) == 0) {
            *kind = (ashlar_optimizer_kind)i;
            return ASHLAR_OK;
        }
    }
    return ashlar__fail(ASHLAR_EINVAL,
                        "--optimizer: \"%.40s\" is none of sgd, adam, adamw, adagrad, rmsprop",
                        name);
}

static ashlar_status find_schedule(const char *name, ashlar_schedule_kind *kind) {
    for (int i = 0; i < ASHLAR_SCHEDULE_COUNT; i++) {
        if (strcmp(name, ashlar_schedule_name((ashlar_schedule_kind)i)) == 0) {
            *kind = (ashlar_schedule_kind)i;
            return ASHLAR_OK;
        }
    }
    return ashlar__fail(ASHLAR_EINVAL, "--schedule: \"%.40s\" is none of constant, cosine, step",
                        name);
}

ashlar_status ashlar__train_rule_apply(const ashlar_train_rule *rule, ashlar_train_config *config) {
    ashlar_schedule *schedule = &config->schedule;
    ashlar_status status = find_optimizer(rule->optimizer, &config->optimizer.kind);
    if (status == ASHLAR_OK) {
        status = find_schedule(rule->schedule, &schedule->kind);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    schedule->rate = config->optimizer.learning_rate;
    schedule->total_steps = config->steps;
    schedule->warmup_steps = rule->warmup_steps;
    schedule->floor = rule->floor;
    schedule->step_size = rule->step_size;
    schedule->gamma = rule->gamma;
    status = ashlar_schedule_check(schedule);
    return status == ASHLAR_OK ? ashlar_optimizer_check(&config->optimizer) : status;
}
