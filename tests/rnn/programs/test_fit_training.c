/*
 * test_fit_training.c - what --fit finds is so: a training passes on a device of what it needs, not
 * with 2 MiB less, and the next larger value does not pass on the device that was given.
 *
 * ASHLAR_FIT_CONFIGS=200 goes through so many configurations, drawn by ASHLAR_FIT_SEED.
 */
#include "tests/check.h"

#include <stdlib.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "allocator/base/random.h"
#include "allocator/soft/soft.h"
#include "rnn/programs/train_program.h"

enum {
    RECORDS = 40,
    RECORD_BYTES = 900,
    ARGUMENTS_MAX = 48,
    STEPS = 2
};
#define MIB ((size_t)1 << 20)

static char text_path[64];
static ashlar_random random_state;

static size_t draw(size_t low, size_t high) {
    return low + (size_t)ashlar__random_below(&random_state, high - low + 1);
}

static FILE *open_temporary(char path[static 64]) {
    (void)snprintf(path, 64, "/tmp/ashlar-fit-XXXXXX");
    const int fd = mkstemp(path);
    return fd >= 0 ? fdopen(fd, "w") : NULL;
}

static void remove_data(void) {
    (void)unlink(text_path);
}

static bool write_data(void) {
    FILE *text = open_temporary(text_path);
    if (text == NULL) {
        return false;
    }
    for (int i = 0; i < RECORDS; i++) {
        for (size_t left = draw(20, RECORD_BYTES); left > 0; left--) {
            fputc((int)draw('a', 'z'), text);
        }
        fputs("\n%\n", text);
    }
    return fclose(text) == 0 && check_at_end(remove_data);
}

/* ---- a command line, as a user might write it ---- */

static char words[ARGUMENTS_MAX][72];
static int word_count;

static void say(const char *option, const char *value) {
    (void)snprintf(words[word_count++], sizeof words[0], "--%s=%s", option, value);
}

static void say_count(const char *option, size_t value) {
    char text[24];
    (void)snprintf(text, sizeof text, "%zu", value);
    say(option, text);
}

static void say_flag(const char *option, bool is_given) {
    if (is_given) {
        (void)snprintf(words[word_count++], sizeof words[0], "--%s", option);
    }
}

#define ONE_OF(...)                          \
    (const char *const[]){__VA_ARGS__}[draw( \
        0, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *) - 1)]

static void draw_text(void) {
    const size_t accumulate = draw(1, 3);
    say("data", text_path);
    say("vary", ONE_OF("batch", "length", "hidden"));
    say_count("accumulate", accumulate);
    say_count("batch", accumulate * draw(1, 4));
    say_count("max-length", draw(8, 160));
    say_count("bptt", draw(0, 1) * draw(4, 64));
    say("recompute", ONE_OF("0", "0", "auto", "16"));
    say("dtype", ONE_OF("f32", "f32", "f64"));
    say_count("stride", draw(0, 1) * draw(2, 8));
}

static void draw_command(void) {
    word_count = 1;
    draw_text();
    say("cell", ONE_OF("lstm", "gru", "tanh", "relu"));
    const size_t layers = draw(1, 3);
    say_count("layers", layers);
    say_count("hidden", draw(8, 96));
    say_count("embedding", draw(4, 48));
    say("dropout", layers == 1 ? "0" : ONE_OF("0", "0.5"));
    say("optimizer", ONE_OF("sgd", "adam", "adamw", "adagrad", "rmsprop", "muon"));
    say_count("buckets", draw(0, 2));
    say_flag("no-plan", draw(0, 4) == 0);
    say_flag("pad", draw(0, 4) == 0);
    say_count("steps", STEPS);
    say_count("fit", 0);
    (void)snprintf(words[word_count - 1], sizeof words[0], "--fit=%zuMiB", 2 * draw(2, 12));
    if (draw(0, 1) == 0) {
        say("memory", "auto");
    }
}

static void print_command(void) {
    printf("#");
    for (int i = 1; i < word_count; i++) {
        printf(" %s", words[i]);
    }
    printf("\n");
}

static ashlar_status read_command(ashlar_train_command *c) {
    static char program[] = "ashlar-train";
    char *argv[ARGUMENTS_MAX + 1] = {program};
    for (int i = 1; i < word_count; i++) {
        argv[i] = words[i];
    }
    return ashlar__train_command_read(word_count, argv, c);
}

/* ---- the training itself ---- */

static ashlar_status train_on(ashlar_device *device, const ashlar_train_command *c) {
    ashlar_corpus *text = NULL;
    ashlar_trainer *trainer = NULL;
    ashlar_train_report report;
    ashlar_status status = ashlar__corpus_open(c->data.items, c->data.count, &text);
    ASHLAR_THEN(status, ashlar__trainer_create(device, text, &c->train, &trainer));
    ASHLAR_THEN(status, ashlar__trainer_run(trainer, NULL, NULL, &report));
    ashlar__trainer_destroy(trainer);
    ashlar__corpus_destroy(text);
    return status;
}

static ashlar_status train(const ashlar_train_command *c, const char *option, size_t value,
                           size_t device_bytes) {
    ashlar_train_command sized = *c;
    ashlar_device *device = NULL;
    char spec[48];
    *(strcmp(option, "batch") == 0        ? &sized.train.batch
      : strcmp(option, "max-length") == 0 ? &sized.train.max_length
                                          : &sized.train.hidden) = value;
    (void)snprintf(spec, sizeof spec, "memory=%zuMiB", device_bytes / MIB);
    CHECK(ashlar_soft_configure(spec) == ASHLAR_OK);
    CHECK(ashlar_device_open("soft", &device) == ASHLAR_OK);
    const ashlar_status status = train_on(device, &sized);
    ashlar_device_close(device);
    return status;
}

static bool check_command(const ashlar_train_command *c) {
    ashlar_train_fitted fit;
    const ashlar_status status = ashlar__train_fit_find(c, &fit);
    if (status != ASHLAR_OK) {
        CHECK(status == ASHLAR_ENOMEM || status == ASHLAR_EINVAL);
        return false;
    }
    const bool is_good =
        train(c, fit.option, fit.value, fit.need_bytes) == ASHLAR_OK &&
        (fit.need_bytes == 2 * MIB ||
         train(c, fit.option, fit.value, fit.need_bytes - 2 * MIB) == ASHLAR_ENOMEM) &&
        (fit.next == 0 || train(c, fit.option, fit.next, c->fit_bytes) == ASHLAR_ENOMEM);
    CHECK(fit.need_bytes <= c->fit_bytes && fit.need_bytes % (2 * MIB) == 0);
    CHECK(is_good);
    if (!is_good) {
        print_command();
        printf("# --%s %zu, %zu MiB, next %zu: %s\n", fit.option, fit.value, fit.need_bytes / MIB,
               fit.next, ashlar_error_detail());
    }
    return true;
}

static size_t setting(const char *name, size_t otherwise) {
    const char *text = getenv(name);
    return text != NULL ? (size_t)strtoull(text, NULL, 10) : otherwise;
}

CASE(what_is_found_passes_and_neither_less_memory_nor_a_larger_value_does) {
    const size_t wanted = setting("ASHLAR_FIT_CONFIGS", CHECK_SANITIZED(6, 2));
    size_t found = 0;
    ashlar__random_init(&random_state, setting("ASHLAR_FIT_SEED", 1));
    REQUIRE(write_data());
    for (size_t tries = 0; found < wanted && tries < 4 * wanted; tries++) {
        ashlar_train_command c;
        draw_command();
        CHECK(read_command(&c) == ASHLAR_OK);
        found += check_command(&c);
    }
    CHECK_ZU(found, wanted);
}

CASE(what_helps_is_said_where_memory_runs_out) {
    ashlar_train_command c;
    REQUIRE(write_data());
    word_count = 1;
    say("data", text_path);
    REQUIRE(read_command(&c) == ASHLAR_OK);
    CHECK(train(&c, "batch", 16, 16 * MIB) == ASHLAR_ENOMEM);
    CHECK(ashlar__train_fit_explain(&c) == ASHLAR_ENOMEM);
    CHECK_HAS(ashlar_error_detail(), "this training needs ");
    CHECK_HAS(ashlar_error_detail(), "with --memory auto ");
    say("memory", "auto");
    REQUIRE(read_command(&c) == ASHLAR_OK);
    CHECK(train(&c, "batch", 16, 16 * MIB) == ASHLAR_ENOMEM);
    CHECK(ashlar__train_fit_explain(&c) == ASHLAR_ENOMEM);
    CHECK_HAS(ashlar_error_detail(), "--memory: this training takes at least ");
}

RUN_CASES()
