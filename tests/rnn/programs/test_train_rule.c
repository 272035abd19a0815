/*
 * test_train_rule.c - the optimizers, schedules and the loss scale that a training may go by.
 */
#include "rnn/programs/train_program.h"

#include "tests/rnn/train/train_fixture.h"

static ashlar_train_rule usual(void) {
    return (ashlar_train_rule){.optimizer = "adamw",
                               .schedule = "constant",
                               .warmup_steps = 3,
                               .floor = 0.25,
                               .step_size = 7,
                               .gamma = 0.5};
}

/* ---- names ---- */

CASE(every_name_is_known) {
    const char *const optimizers[] = {"sgd", "adam", "adamw", "adagrad", "rmsprop"};
    const char *const schedules[] = {"constant", "cosine", "step"};
    for (int i = 0; i < 5; i++) {
        ashlar_train_config config = small_config(20);
        ashlar_train_rule rule = usual();
        rule.optimizer = optimizers[i];
        rule.schedule = schedules[i % 3];
        CHECK(ashlar__train_rule_apply(&rule, &config) == ASHLAR_OK);
        CHECK((int)config.optimizer.kind == i && (int)config.schedule.kind == i % 3);
        CHECK(config.schedule.rate == config.optimizer.learning_rate);
        CHECK(config.schedule.total_steps == 20 && config.schedule.warmup_steps == 3);
        CHECK(config.schedule.floor == 0.25);
        CHECK(config.schedule.step_size == 7 && config.schedule.gamma == 0.5);
    }
}

CASE(what_cannot_be_is_refused) {
    ashlar_train_config config = small_config(20);
    ashlar_train_rule rule = usual();
    rule.optimizer = "Adam";
    CHECK_FAILS(ashlar__train_rule_apply(&rule, &config), ASHLAR_EINVAL,
                "--optimizer: \"Adam\" is none of");
    rule = usual();
    rule.schedule = "linear";
    CHECK_FAILS(ashlar__train_rule_apply(&rule, &config), ASHLAR_EINVAL,
                "--schedule: \"linear\" is none of");
    rule = usual();
    rule.schedule = "cosine";
    rule.warmup_steps = 21;
    CHECK_FAILS(ashlar__train_rule_apply(&rule, &config), ASHLAR_EINVAL,
                "20 steps with 21 of warm-up");
    rule = usual();
    rule.optimizer = "sgd";
    config.optimizer.nesterov = true;
    CHECK_FAILS(ashlar__train_rule_apply(&rule, &config), ASHLAR_EINVAL, "momentum");
}

/* ---- trainings ---- */

static void train_all(const ashlar_train_config *config, shown *to, ashlar_train_report *out) {
    REQUIRE(open_text("memory=256MiB"));
    REQUIRE(train(config, to, out) == ASHLAR_OK);
}

CASE(the_schedule_decides_each_steps_rate) {
    static shown runs[2];
    ashlar_train_report reports[2];
    ashlar_train_config config = small_config(6);
    config.schedule.warmup_steps = 4;
    train_all(&config, &runs[0], &reports[0]);
    config.optimizer.learning_rate = 77; /* nobody looks at it here */
    config.schedule.warmup_steps = 0;
    config.schedule.rate /= 4;
    train_all(&config, &runs[1], &reports[1]);
    CHECK(runs[0].steps[1].loss == runs[1].steps[1].loss); /* after the first step: the same rate */
    CHECK(runs[0].steps[2].loss != runs[1].steps[2].loss);
    config.schedule.rate = 0;
    REQUIRE(open_text("memory=256MiB"));
    CHECK(train(&config, &runs[0], &reports[0]) == ASHLAR_EINVAL);
}

RUN_CASES()
