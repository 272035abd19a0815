/*
 * test_train_checkpoint.c - the files that a training does not go on with, and what it says of
 * them.
 */
#include "tests/rnn/train/train_checkpoint_fixture.h"

/* ---- what is refused ---- */

static void check_refused(const ashlar_train_config *config, ashlar_status status,
                          const char *message) {
    CHECK(open_trainer(config) == status);
    CHECK_HAS(ashlar_error_detail(), message);
    CHECK_HAS(ashlar_error_detail(), path);
    CHECK(trainer == NULL);
}

/* Counts one larger, and reals half of what they were: of the model's options, the optimizer's and
 * the loop's own. */
static void check_numbers(ashlar_train_config *c) {
    const struct {
        size_t *field;
        const char *message;
    } counts[] = {{&c->layers, "ashlar.layers is 2 there, and 3 here"},
                  {&c->batch, "ashlar.batch is 7 there, and 8 here"},
                  {&c->max_length, "ashlar.max_length is 32 there, and 33 here"},
                  {&c->projection, "ashlar.projection is 0 there, and 1 here"},
                  {&c->seed, "ashlar.seed is 5 there, and 6 here"}};
    const struct {
        double *field;
        const char *message;
    } reals[] = {
        {&c->optimizer.learning_rate, "ashlar.learning_rate is 0.01 there, and 0.005 here"},
        {&c->optimizer.epsilon, "ashlar.epsilon is 1e-08 there, and 5e-09 here"},
        {&c->optimizer.clip_norm, "ashlar.clip is 1 there, and 0.5 here"},
        {&c->schedule.rate, "ashlar.schedule_rate is 0.01 there, and 0.005 here"}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        ++*counts[i].field;
        check_refused(c, ASHLAR_EFORMAT, counts[i].message);
        --*counts[i].field;
    }
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        *reals[i].field /= 2;
        check_refused(c, ASHLAR_EFORMAT, reals[i].message);
        *reals[i].field *= 2;
    }
}

static void check_words(ashlar_train_config *c) {
    c->optimizer.kind = ASHLAR_OPTIMIZER_ADAM;
    check_refused(c, ASHLAR_EFORMAT, "ashlar.optimizer is adamw there, and adam here");
    c->optimizer.kind = ASHLAR_OPTIMIZER_ADAMW;
    c->cell = ASHLAR_RNN_GRU;
    check_refused(c, ASHLAR_EFORMAT, "ashlar.cell is lstm there, and gru here");
    c->cell = ASHLAR_RNN_LSTM;
    c->without_bias_decay = true;
    check_refused(c, ASHLAR_EFORMAT, "ashlar.without_bias_decay is 0 there, and 1 here");
    c->without_bias_decay = false;
    c->dtype = ASHLAR_F64;
    check_refused(c, ASHLAR_EFORMAT, "ashlar.dtype is F32 there, and F64 here");
    c->dtype = ASHLAR_F32;
    c->held_out = 0;
    check_refused(c, ASHLAR_EFORMAT, "ashlar.held_out is 7 there, and 0 here");
    c->held_out = 7;
}

CASE_WITH(another_configuration_is_refused_and_named, open_case("memory=256MiB")) {
    ashlar_train_config config = config_of(5);
    config.held_out = 7;
    REQUIRE(train_and_save(&config, path, &seen, &report) == ASHLAR_OK);
    ashlar_train_config c = config_of(9);
    c.resume_file = path;
    c.held_out = 7;
    check_numbers(&c);
    check_words(&c);
    c.steps = 5;
    check_refused(&c, ASHLAR_EINVAL, "5 steps are done already");
    c.steps = 4;
    check_refused(&c, ASHLAR_EINVAL, "--steps");
    c.steps = 6;
    CHECK(train_and_save(&c, path, &seen, &report) == ASHLAR_OK); /* the control */
}

/* The corpus with a byte changed, with as many records cut elsewhere, or with one more of them. */
typedef enum difference { CHANGED, SHIFTED, CUT, DIFFERENCES } difference;

static void write_record(FILE *file, size_t i, difference kind) {
    const ashlar_record record = ashlar__corpus_record(corpus, i);
    const size_t first = kind == SHIFTED && i == 40 ? 1 : 0;
    for (size_t j = first; j < record.count; j++) {
        const bool is_changed = kind == CHANGED && i == 59 && j == record.count - 1;
        (void)fputc(record.bytes[j] + is_changed, file);
        (void)fputs(kind == CUT && i == 40 && j == 9 ? "\n%\n" : "", file);
    }
    if (kind == SHIFTED && i == 39) { /* what the next one lacks */
        (void)fputc(ashlar__corpus_record(corpus, 40).bytes[0], file);
    }
    (void)fputs("\n%\n", file);
}

static ashlar_corpus *other_text(difference kind) {
    ashlar_corpus *other = NULL;
    FILE *file = fopen(other_path, "wb");
    CHECK(file != NULL);
    for (size_t i = 0; file != NULL && i < ashlar__corpus_count(corpus); i++) {
        write_record(file, i, kind);
    }
    CHECK(file != NULL && fclose(file) == 0);
    CHECK(ashlar__corpus_open(&(const char *){other_path}, 1, &other) == ASHLAR_OK);
    CHECK_ZU(ashlar__corpus_count(other), ashlar__corpus_count(corpus) + (kind == CUT));
    CHECK(kind == CUT || ashlar__corpus_bytes(other) == ashlar__corpus_bytes(corpus));
    return other;
}

CASE_WITH(another_text_is_refused, open_case("memory=256MiB")) {
    ashlar_train_config config = config_of(5);
    REQUIRE(train_and_save(&config, path, &seen, &report) == ASHLAR_OK);
    config.steps = 9;
    config.resume_file = path;
    ashlar_corpus *own = corpus;
    for (int kind = 0; kind < DIFFERENCES; kind++) {
        corpus = other_text((difference)kind);
        check_refused(&config, ASHLAR_EFORMAT, "ashlar.text is 60 records, ");
        ashlar__corpus_destroy(corpus);
        corpus = own;
    }
    CHECK(open_trainer(&config) == ASHLAR_OK);
}

/* ---- files with something wrong in them ---- */

static const char *const KEYS[] = {"ashlar.cell",
                                   "ashlar.projection",
                                   "ashlar.dropout",
                                   "ashlar.layers",
                                   "ashlar.hidden",
                                   "ashlar.embedding",
                                   "ashlar.batch",
                                   "ashlar.max_length",
                                   "ashlar.stride",
                                   "ashlar.accumulate",
                                   "ashlar.bptt",
                                   "ashlar.recompute",
                                   "ashlar.text",
                                   "ashlar.optimizer",
                                   "ashlar.learning_rate",
                                   "ashlar.momentum",
                                   "ashlar.dampening",
                                   "ashlar.nesterov",
                                   "ashlar.beta1",
                                   "ashlar.beta2",
                                   "ashlar.smoothing",
                                   "ashlar.rate_decay",
                                   "ashlar.epsilon",
                                   "ashlar.weight_decay",
                                   "ashlar.clip",
                                   "ashlar.loss_scale",
                                   "ashlar.scale_growth",
                                   "ashlar.scale_backoff",
                                   "ashlar.scale_interval",
                                   "ashlar.without_bias_decay",
                                   "ashlar.schedule",
                                   "ashlar.schedule_rate",
                                   "ashlar.warmup_steps",
                                   "ashlar.seed",
                                   "ashlar.recent",
                                   "ashlar.step",
                                   "ashlar.optimizer_state",
                                   "ashlar.random"};
enum { RECENT = 34, STEP, STATE, RANDOM };
enum { KEYS_COUNT = sizeof KEYS / sizeof KEYS[0] };

/* The good file's metadata, and a model whose arena can be saved with it. */
typedef struct forge {
    ashlar_checkpoint *file;
    ashlar_trainer *trainer;
    ashlar_checkpoint_pair pairs[KEYS_COUNT];
} forge;

static bool open_forge(forge *f) {
    ashlar_train_config config = config_of(5);
    if (train_and_save(&config, other_path, &seen, &report) != ASHLAR_OK ||
        ashlar_checkpoint_open(other_path, &f->file) != ASHLAR_OK ||
        open_trainer(&config) != ASHLAR_OK) {
        return false;
    }
    f->trainer = trainer;
    trainer = NULL;
    for (size_t i = 0; i < KEYS_COUNT; i++) {
        f->pairs[i] =
            (ashlar_checkpoint_pair){KEYS[i], ashlar_checkpoint_metadata(f->file, KEYS[i])};
        if (f->pairs[i].value == NULL) {
            return false;
        }
    }
    return true;
}

static void close_forge(forge *f) {
    ashlar_checkpoint_close(f->file);
    ashlar__trainer_destroy(f->trainer);
}

static void write_forged(const forge *f, size_t count, unsigned flags) {
    const ashlar_arena *arena = ashlar_model_arena(ashlar__trainer_model(f->trainer).model);
    CHECK(ashlar_checkpoint_save(arena, path, flags, f->pairs, count, NULL) == ASHLAR_OK);
}

static void check_forged(forge *f, size_t key, const char *value, const char *message) {
    ashlar_train_config config = config_of(40);
    const char *good = f->pairs[key].value;
    config.resume_file = path;
    f->pairs[key].value = value;
    write_forged(f, KEYS_COUNT, ASHLAR_CHECKPOINT_STATE);
    check_refused(&config, ASHLAR_EFORMAT, message);
    f->pairs[key].value = good;
}

CASE(metadata_that_is_missing_or_damaged_is_named) {
    forge f = {0};
    ashlar_train_config config = config_of(9);
    REQUIRE(open_case("memory=256MiB"));
    REQUIRE(open_forge(&f));
    config.resume_file = path;
    write_forged(&f, KEYS_COUNT, ASHLAR_CHECKPOINT_STATE); /* the control */
    CHECK(open_trainer(&config) == ASHLAR_OK);
    close_trainer();
    for (size_t i = 0; i < KEYS_COUNT; i++) {
        write_forged(&f, i, ASHLAR_CHECKPOINT_STATE);
        check_refused(&config, ASHLAR_EFORMAT, KEYS[i]);
    }
    static const char *const steps[] = {"", "-5", "5x", " 5", "0x5", "five"};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        check_forged(&f, STEP, steps[i], "no good ashlar.step");
    }
    check_forged(&f, STEP, "17", "after 17 batches ashlar.random is "); /* in the next window */
    check_forged(&f, RANDOM, "7414e2610febc6c3", "ashlar.random is 7414");
#define NINE "1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 "
    static const char *const recent[] = {"",
                                         "x",
                                         NINE,
                                         NINE "1",
                                         NINE "1 1 ",
                                         NINE "1 1 1",
                                         NINE "1 nan",
                                         NINE "inf 1",
                                         NINE "1 -1",
                                         NINE "1 1 x",
                                         "1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0"};
    for (size_t i = 0; i < sizeof recent / sizeof recent[0]; i++) {
        check_forged(&f, RECENT, recent[i], "no good ashlar.recent");
    }
    static const char *const states[] = {"",
                                         "5",
                                         "5 0 0 0 0x1p+0",
                                         "5 0 0 0 0x1p+0 0x1p+0 ",
                                         "5 0 0 0 0x1p+0 0x1p+0 1",
                                         " 5 0 0 0 0x1p+0 0x1p+0",
                                         "-5 0 0 0 0x1p+0 0x1p+0",
                                         "5 0 4294967296 0 0x1p+0 0x1p+0",
                                         "5 0 0 0 0x0p+0 0x1p+0",
                                         "5 0 0 0 -0x1p+0 0x1p+0",
                                         "5 0 0 0 inf 0x1p+0",
                                         "5 0 0 0 nan 0x1p+0",
                                         "5 0 0 0 1 0x1p+0"};
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        check_forged(&f, STATE, states[i], "no good ashlar.optimizer_state");
    }
    close_forge(&f);
}

CASE(weights_alone_are_no_training) {
    forge f = {0};
    ashlar_train_config config = config_of(9);
    REQUIRE(open_case("memory=256MiB"));
    REQUIRE(open_forge(&f));
    write_forged(&f, KEYS_COUNT, 0);
    config.resume_file = path;
    check_refused(&config, ASHLAR_EFORMAT, "it must hold the optimizer's state");
    (void)unlink(path);
    check_refused(&config, ASHLAR_EIO, "cannot read");
    close_forge(&f);
}

/* ---- failures outside ---- */

CASE_WITH(failures_at_each_point_of_a_resume_leave_nothing_behind, open_case("memory=256MiB")) {
    ashlar_train_config config = config_of(2);
    REQUIRE(train_and_save(&config, path, &seen, &report) == ASHLAR_OK);
    config.steps = 3;
    config.resume_file = path;
    unsigned long n = 1, failures = 0;
    for (ashlar_status status = ASHLAR_EHOSTMEM; status != ASHLAR_OK && n < 2000; n++) {
        ashlar__host_fail_at(n);
        status = open_trainer(&config);
        const bool was_armed = is_still_armed(1); /* fails now: it has not yet */
        CHECK(status == ASHLAR_OK || status == ASHLAR_EHOSTMEM || status == ASHLAR_ENOMEM);
        failures += status != ASHLAR_OK;
        status = was_armed ? status : ASHLAR_EHOSTMEM; /* a failure that did not matter: go on */
        close_trainer();
    }
    CHECK(failures > 40 && n < 2000);
    for (uint64_t call = 1; call <= 4; call++) { /* the first is that of the initial weights */
        DRIVER_FAILS_AT(ASHLAR_DRIVER_FN_memcpy_htod_async, call, CU_UNKNOWN,
                        CHECK(open_trainer(&config) == ASHLAR_EDRIVER));
        CHECK(trainer == NULL);
    }
}

RUN_CASES()
