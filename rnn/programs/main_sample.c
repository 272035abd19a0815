/* main_sample.c - ashlar-sample: write text with a model that ashlar-train saved. */
#include <string.h>

#include <ashlar/arena.h>

#include "rnn/data/batcher.h"
#include "allocator/base/file.h"
#include "allocator/base/host.h"
#include "allocator/base/parse.h"
#include "rnn/programs/options.h"
#include "rnn/programs/program.h"
#include "rnn/programs/train_program.h"
#include "rnn/train/task_options.h"

static const char program[] = "ashlar-sample";

/* The command line; the initial values are the defaults. */
typedef struct command {
    const char *model;
    const char *prime;
    const char *prime_file;
    const char *device;
    const char *json;
    ashlar_text_config text;
    bool wants_help;
} command;

/* The defaults, replaced by the values on the command line. */
static command given;
static const command defaults = {
    .text = {.sampler = {.sampling = {.temperature = 0.7, .top_p = 1}, .seed = 1, .count = 1},
             .bytes = 1000},
};

static const ashlar_option options[] = {
    {"model", "FILE", ASHLAR_OPTION_TEXT, &given.model, 0, 0,
     "weights saved by ashlar-train --save"},
    {"bytes", "N", ASHLAR_OPTION_COUNT, &given.text.bytes, 1, 1e12, "how much to write"},
    {"temperature", "X", ASHLAR_OPTION_REAL, &given.text.sampler.sampling.temperature, 0, 100,
     "below 1: more likely text, 0: the likeliest"},
    {"top-k", "N", ASHLAR_OPTION_COUNT, &given.text.sampler.sampling.top_k, 0,
     ASHLAR_BATCHER_SYMBOLS, "draw from the so many likeliest, 0: from all"},
    {"top-p", "X", ASHLAR_OPTION_REAL, &given.text.sampler.sampling.top_p, 1e-6, 1,
     "draw from the likeliest with this share"},
    {"prime", "TEXT", ASHLAR_OPTION_TEXT, &given.prime, 0, 0, "text to begin with"},
    {"prime-file", "FILE", ASHLAR_OPTION_TEXT, &given.prime_file, 0, 0, "or a file's text"},
    {"seed", "N", ASHLAR_OPTION_SEED, &given.text.sampler.seed, 0, 0,
     "the same seed writes the same text"},
    {"count", "N", ASHLAR_OPTION_COUNT, &given.text.sampler.count, 1, 10000,
     "texts at once, each with the next seed"},
    {"bf16", NULL, ASHLAR_OPTION_FLAG, &given.text.sampler.is_bf16, 0, 0,
     "read weights as bf16 on the CPU: half the bytes"},
    {"device", "NAME", ASHLAR_OPTION_TEXT, &given.device, 0, 0, "auto, soft, soft:N, cuda, cuda:N"},
    {"json", "FILE", ASHLAR_OPTION_TEXT, &given.json, 0, 0, "write speed and memory there"},
    {"help", NULL, ASHLAR_OPTION_FLAG, &given.wants_help, 0, 0, "print this"},
};
enum { OPTION_COUNT = sizeof options / sizeof options[0] };

static void print_help(void) {
    given = defaults;
    printf("Usage: %s --model FILE [OPTION]...\nWrite text with a trained model.\n\n", program);
    ashlar__options_print(stdout, options, OPTION_COUNT);
    printf("\nA line of a single %% stands between records. --top-p is a share of what --top-k\n"
           "left. Exit status: 0, 1 on failure, 2 on a bad option or environment value.\n");
}

/* Read a whole number from the model file's metadata, min .. max as ashlar-train accepts it. */
static ashlar_status read_count(const ashlar_checkpoint *file, const char *key, size_t min,
                                size_t max, size_t *out) {
    const char *text = ashlar_checkpoint_metadata(file, key);
    uint64_t value;
    ASHLAR_FAIL_IF(text == NULL || !ashlar__parse_count(ashlar__piece_of(text), &value) ||
                       value < min || value > max,
                   ASHLAR_EFORMAT,
                   "the model file has no good %s (%zu to %zu); is it one that ashlar-train saved?",
                   key, min, max);
    *out = value;
    return ASHLAR_OK;
}

/* Read cell and projection. A file without these keys holds an LSTM without projection. */
static ashlar_status read_kind(const ashlar_checkpoint *file, ashlar_model_config *config) {
    const char *cell = ashlar_checkpoint_metadata(file, ASHLAR_METADATA_CELL);
    ASHLAR_FAIL_IF(cell != NULL && ashlar_rnn_cell_parse(cell, &config->cell) != ASHLAR_OK,
                   ASHLAR_EFORMAT,
                   "the model file has cells \"%.40s\", which this version does not know", cell);
    return ashlar_checkpoint_metadata(file, ASHLAR_METADATA_PROJECTION) == NULL
               ? ASHLAR_OK
               : read_count(file, ASHLAR_METADATA_PROJECTION, 0, 16384, &config->projection);
}

static ashlar_status read_config(const ashlar_checkpoint *file, ashlar_model_config *config) {
    *config = (ashlar_model_config){.classes = ASHLAR_BATCHER_SYMBOLS};
    ASHLAR_TRY(read_count(file, ASHLAR_METADATA_LAYERS, 1, 64, &config->layers));
    ASHLAR_TRY(read_count(file, ASHLAR_METADATA_HIDDEN, 1, 16384, &config->hidden));
    ASHLAR_TRY(read_count(file, ASHLAR_METADATA_EMBEDDING, 1, 16384, &config->embedding));
    return read_kind(file, config);
}

static ashlar_status load(const ashlar_checkpoint *file, ashlar_allocator *allocator,
                          ashlar_model **out) {
    ashlar_model_config config;
    ashlar_model *model;
    ASHLAR_TRY(read_config(file, &config));
    ASHLAR_TRY(ashlar__model_create(allocator, NULL, &config, ASHLAR_REGIONS_INFERENCE, &model));
    ASHLAR_HAND_OUT(
        ashlar_checkpoint_load(model->arena, file, ASHLAR_CHECKPOINT_CONVERT, model->stream), model,
        ashlar__model_destroy, out);
}

static ashlar_status write_text(const command *c, ashlar_model *model,
                                const ashlar_text_config *text) {
    ashlar_text_report report;
    ASHLAR_TRY(ashlar__text_write(model, stdout, text, &report));
    return c->json == NULL ? ASHLAR_OK : ashlar__text_report_write(c->json, model, text, &report);
}

static ashlar_status sample(const command *c, ashlar_device *device,
                            const ashlar_text_config *text) {
    ashlar_checkpoint *file = NULL;
    ashlar_allocator *allocator = NULL;
    ashlar_model *model = NULL;
    ashlar_status status = ashlar_checkpoint_open(c->model, &file);
    ASHLAR_THEN(status, ashlar_allocator_create(device, &allocator));
    if (status == ASHLAR_OK) {
        ashlar_allocator_set_report(allocator, ashlar__program_print_report, NULL);
        status = load(file, allocator, &model);
    }
    ASHLAR_THEN(status, write_text(c, model, text));
    ashlar__model_destroy(model);
    ashlar_allocator_destroy(allocator);
    ashlar_checkpoint_close(file);
    return status;
}

/* Write the text, but first check that the report can be written: better to fail before. */
static ashlar_status run(const command *c, ashlar_device *device) {
    ashlar_text_config text = c->text;
    char *prime = NULL;
    ashlar_status status = ashlar__program_check_report(c->json);
    if (status == ASHLAR_OK && c->prime_file != NULL) {
        status = ashlar__file_read(c->prime_file, &prime, &text.prime_bytes);
        text.prime = prime;
    } else if (c->prime != NULL) {
        text.prime = c->prime;
        text.prime_bytes = strlen(c->prime);
    }
    ASHLAR_THEN(status, sample(c, device, &text));
    ashlar__host_free(prime);
    return status;
}

static ashlar_status check_command(const command *c) {
    ASHLAR_FAIL_IF(c->model == NULL, ASHLAR_EINVAL,
                   "--model: no weights given; train some with ashlar-train --save FILE");
    ASHLAR_FAIL_IF(c->prime != NULL && c->prime_file != NULL, ASHLAR_EINVAL,
                   "--prime and --prime-file: leave out one of them");
    const struct {
        const char *option;
        const char *path; /* NULL: the option was not given */
    } inputs[] = {{"model", c->model}, {"prime-file", c->prime_file}};
    for (size_t i = 0; c->json != NULL && i < sizeof inputs / sizeof inputs[0]; i++) {
        ASHLAR_FAIL_IF(inputs[i].path != NULL &&
                           ashlar__program_is_same_file(c->json, inputs[i].path),
                       ASHLAR_EINVAL, "--json and --%s: both name %s; give each its own file",
                       inputs[i].option, c->json);
    }
    return ASHLAR_OK;
}

static int run_command(int argc, char **argv) {
    given = defaults;
    if (ashlar__options_answer(program, options, OPTION_COUNT, argc, argv)) {
        return 0;
    }
    if (ashlar__options_parse(options, OPTION_COUNT, argc, argv) != ASHLAR_OK ||
        (!given.wants_help && check_command(&given) != ASHLAR_OK)) {
        return ashlar__program_fail(program, ASHLAR_EINVAL);
    }
    if (given.wants_help) {
        print_help();
        return 0;
    }
    ashlar_device *device = NULL;
    const int exit_status = ashlar__program_open_device(program, given.device, &device);
    if (exit_status != 0) {
        return exit_status;
    }
    const ashlar_status status = run(&given, device);
    ashlar_device_close(device);
    return status == ASHLAR_OK ? 0 : ashlar__program_fail(program, status);
}

int main(int argc, char **argv) {
    ashlar__program_init();
    return ashlar__program_finish(program, run_command(argc, argv));
}
