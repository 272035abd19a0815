/*
 * test_train_rule.c - the optimizers, schedules and the loss scale that a training may go by.
 */
#include "rnn/programs/train_program.h"

#include "tests/rnn/train/train_fixture.h"

/* Read a command line of these options and of "--steps 20 --data x". */
static ashlar_status read_command(const char *words, ashlar_train_command *out) {
    static char line[200];
    char *argv[20] = {line}, *rest = NULL;
    int argc = 1;
    (void)snprintf(line, sizeof line, "p --steps 20 --data x %s", words);
    for (char *word = strtok_r(line + 2, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest)) {
        argv[argc++] = word;
    }
    return ashlar__train_command_read(argc, argv, out);
}

/* ---- names ---- */

#define TEXT(name, text) text,

/* The names in the help must be in the order of the enums, to the last one. */
CASE(every_name_is_known) {
    static const char *const algorithms[] = {"standard", "static", "dynamic", "small", "auto"};
    ASHLAR_TABLE_IS_FULL(algorithms, ASHLAR_RNN_ALGORITHM_COUNT);
    static const char *const optimizers[] = {ASHLAR_OPTIMIZER_MAP(TEXT)};
    static const char *const schedules[] = {ASHLAR_SCHEDULE_MAP(TEXT)};
    static const char *const varied[] = {"batch", "length", "hidden"};
    ASHLAR_TABLE_IS_FULL(varied, ASHLAR_VARY_COUNT);
    for (int i = 0; i < ASHLAR_OPTIMIZER_COUNT; i++) {
        const int schedule = i % ASHLAR_SCHEDULE_COUNT, cell = i % ASHLAR_RNN_CELL_COUNT;
        const int dtype = i % ASHLAR_DTYPE_COUNT, vary = i % ASHLAR_VARY_COUNT;
        const int algorithm = i % ASHLAR_RNN_ALGORITHM_COUNT;
        char words[190];
        ashlar_train_command c;
        (void)snprintf(words, sizeof words,
                       "--optimizer %s --schedule=%s --cell=%s --dtype=%s --algorithm=%s --vary=%s "
                       "--fit 1GiB",
                       optimizers[i], schedules[schedule],
                       ashlar_rnn_cell_name((ashlar_rnn_cell)cell),
                       ashlar_dtype_name((ashlar_dtype)dtype), algorithms[algorithm], varied[vary]);
        REQUIRE(read_command(words, &c) == ASHLAR_OK);
        CHECK((int)c.train.optimizer.kind == i && (int)c.train.schedule.kind == schedule);
        CHECK((int)c.train.cell == cell && (int)c.train.dtype == dtype);
        CHECK((int)c.train.algorithm == algorithm && (int)c.vary == vary);
    }
}

CASE(the_schedule_is_what_was_said) {
    ashlar_train_command c;
    REQUIRE(read_command("--warmup-steps=3 --rate-floor=0.25 --rate-every=7 --rate-factor=0.5 "
                         "--learning-rate=0.125",
                         &c) == ASHLAR_OK);
    const ashlar_schedule *s = &c.train.schedule;
    CHECK(s->rate == 0.125 && s->total_steps == 20 && s->warmup_steps == 3);
    CHECK(s->floor == 0.25 && s->step_size == 7 && s->gamma == 0.5);
}

CASE(what_cannot_be_is_refused) {
    ashlar_train_command c;
    CHECK_FAILS(read_command("--optimizer adamx", &c), ASHLAR_EINVAL,
                "--optimizer: \"adamx\" is none of sgd, adam, adamw, adagrad, rmsprop, muon");
    CHECK_FAILS(read_command("--schedule linear", &c), ASHLAR_EINVAL,
                "--schedule: \"linear\" is none of constant, cosine, step");
    CHECK_FAILS(read_command("--dtype f8", &c), ASHLAR_EINVAL,
                "--dtype: \"f8\" is none of f32, f64, f16, bf16");
    CHECK_FAILS(read_command("--schedule cosine --warmup-steps 21", &c), ASHLAR_EINVAL,
                "20 steps with 21 of warm-up");
    CHECK_FAILS(read_command("--optimizer sgd --nesterov", &c), ASHLAR_EINVAL, "momentum");
    CHECK_FAILS(read_command("--vary length", &c), ASHLAR_EINVAL, "give it with --fit");
}

CASE(muon_has_nesterovs_momentum_and_the_rate_of_adamw) {
    ashlar_train_command c;
    REQUIRE(read_command("--optimizer muon", &c) == ASHLAR_OK);
    const ashlar_optimizer_config *o = &c.train.optimizer;
    CHECK(o->momentum == 0.95 && o->nesterov && o->weight_decay == 0.01);
    CHECK(o->muon_scale == ASHLAR_MUON_SCALE_MATCH_RMS_ADAMW);
    REQUIRE(read_command("--optimizer muon --momentum 0.5", &c) == ASHLAR_OK);
    CHECK(c.train.optimizer.momentum == 0.5);
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
