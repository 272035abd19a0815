/* ashlar-train: train a character RNN on text files. */
#include <string.h>
#include <sys/stat.h>

#include <ashlar/trace.h>

#include "blas.h"
#include "checkpoint.h"
#include "error.h"
#include "options.h"
#include "program.h"
#include "progress.h"
#include "report.h"

static const char program[] = "ashlar-train";

/* The command line; the initial values are the defaults. */
typedef struct command {
    ashlar_option_list data;
    ashlar_train_config train;
    const char *cell;
    const char *device;
    const char *json;
    const char *save;
    const char *snapshot;
    size_t sample_bytes;
    size_t threads;
    bool is_quiet;
    bool wants_help;
} command;

static command defaults(void) {
    command c = {
        .train = {.layers = 2,
                  .hidden = 256,
                  .embedding = 64,
                  .batch = 16,
                  .max_length = 256,
                  .steps = 800,
                  .adamw = ashlar_adamw_default(),
                  .seed = 1,
                  .buckets = 1},
        .cell = ashlar_rnn_cell_name(ASHLAR_RNN_LSTM),
        .sample_bytes = 400,
        .threads = (size_t)ashlar_blas_threads(),
    };
    c.train.adamw.learning_rate = 0.004;
    c.train.adamw.clip_norm = 1.0;
    return c;
}

enum { OPTION_COUNT = 25 };

static void list_options(command *c, ashlar_option options[static OPTION_COUNT]) {
    const ashlar_option_kind count = ASHLAR_OPTION_COUNT, real = ASHLAR_OPTION_REAL,
                             text = ASHLAR_OPTION_TEXT;
    ashlar_train_config *t = &c->train;
    const ashlar_option all[OPTION_COUNT] = {
        {"data", "PATH", ASHLAR_OPTION_LIST, &c->data, 0, 0, "a text file or a folder; repeatable"},
        {"steps", "N", count, &t->steps, 1, 1e9, "training steps"},
        {"batch", "N", count, &t->batch, 1, 65536, "sequences per step"},
        {"max-length", "N", count, &t->max_length, 1, 1e6, "longer sequences are cut into pieces"},
        {"cell", "NAME", text, &c->cell, 0, 0, "lstm, gru, tanh, relu"},
        {"layers", "N", count, &t->layers, 1, 64, "recurrent layers"},
        {"hidden", "N", count, &t->hidden, 1, 16384, "width of a layer"},
        {"projection", "N", count, &t->projection, 0, 16384,
         "width of an LSTM's output, 0: as hidden"},
        {"dropout", "X", real, &t->dropout, 0, 0.99, "share of outputs dropped between layers"},
        {"embedding", "N", count, &t->embedding, 1, 16384, "width of a symbol's vector"},
        {"learning-rate", "X", real, &t->adamw.learning_rate, 1e-12, 10, "of AdamW"},
        {"weight-decay", "X", real, &t->adamw.weight_decay, 0, 10, "of AdamW"},
        {"clip", "X", real, &t->adamw.clip_norm, 0, 1e9, "gradient norm to clip at, 0: not at all"},
        {"seed", "N", ASHLAR_OPTION_SEED, &t->seed, 0, 0, "of weights, batches and sample"},
        {"buckets", "N", count, &t->buckets, 1, 1e6, "ranges of lengths with a memory plan each"},
        {"no-plan", NULL, ASHLAR_OPTION_FLAG, &t->without_plan, 0, 0,
         "serve each block by itself, not from a plan of the step"},
        {"plan", "FILE", text, &t->plan_file, 0, 0, "keep the memory plan there for the next time"},
        {"threads", "N", count, &c->threads, 1, 1024, "threads of a matrix product"},
        {"device", "NAME", text, &c->device, 0, 0, "auto, soft, soft:N, cuda, cuda:N"},
        {"sample", "N", count, &c->sample_bytes, 0, 1e9, "bytes of text to make at the end"},
        {"save", "FILE", text, &c->save, 0, 0, "write the weights there (safetensors)"},
        {"json", "FILE", text, &c->json, 0, 0, "write the report there"},
        {"snapshot", "FILE", text, &c->snapshot, 0, 0,
         "write what the memory holds there (pickle)"},
        {"quiet", NULL, ASHLAR_OPTION_FLAG, &c->is_quiet, 0, 0, "print nothing but errors"},
        {"help", NULL, ASHLAR_OPTION_FLAG, &c->wants_help, 0, 0, "print this"},
    };
    memcpy(options, all, sizeof all);
}

static void print_help(void) {
    command fresh = defaults();
    ashlar_option options[OPTION_COUNT];
    list_options(&fresh, options);
    printf("Usage: %s --data PATH [OPTION]...   train a character RNN on text\n", program);
    ashlar_options_print(stdout, options, OPTION_COUNT);
    printf("Environment: ASHLAR_DEVICE, ASHLAR_SOFT. Exit: 0, 1 failed, 2 a bad option.\n");
}

static ashlar_status save(const ashlar_model *model, const char *path) {
    char layers[24], hidden[24], embedding[24], projection[24], dropout[32];
    snprintf(layers, sizeof layers, "%zu", model->config.layers);
    snprintf(hidden, sizeof hidden, "%zu", model->config.hidden);
    snprintf(embedding, sizeof embedding, "%zu", model->config.embedding);
    snprintf(projection, sizeof projection, "%zu", model->config.projection);
    snprintf(dropout, sizeof dropout, "%g", model->config.dropout);
    const ashlar_safetensors_pair metadata[] = {
        {ASHLAR_METADATA_CELL, ashlar_rnn_cell_name(model->config.cell)},
        {ASHLAR_METADATA_PROJECTION, projection},
        {ASHLAR_METADATA_DROPOUT, dropout},
        {ASHLAR_METADATA_LAYERS, layers},
        {ASHLAR_METADATA_HIDDEN, hidden},
        {ASHLAR_METADATA_EMBEDDING, embedding},
    };
    return ashlar_checkpoint_save(model->arena, path, metadata,
                                  sizeof metadata / sizeof metadata[0], model->stream);
}

static void print_start(const command *c, const ashlar_corpus *corpus) {
    printf("Text: %zu records, %zu bytes from %zu files (%zu skipped). Model: %s, %zu layers of "
           "%zu. Products: %s, %d threads.\n",
           ashlar_corpus_count(corpus), ashlar_corpus_bytes(corpus),
           ashlar_corpus_file_count(corpus), ashlar_corpus_skipped_count(corpus), c->cell,
           c->train.layers, c->train.hidden, ashlar_blas_name(), ashlar_blas_threads());
    fflush(stdout);
}

/*
 * Everything after the training that needs the model. What would be lost comes first, and a
 * failure does not keep the rest from being tried; the first one is returned.
 */
static ashlar_status finish(const command *c, ashlar_trainer *trainer,
                            const ashlar_train_report *report) {
    ashlar_model *model = ashlar_trainer_model(trainer);
    ashlar_status first = c->save != NULL ? save(model, c->save) : ASHLAR_OK;
    if (first == ASHLAR_OK && c->json != NULL) {
        first = ashlar_report_write(c->json, &c->train, report);
    }
    if (c->snapshot != NULL) {
        const ashlar_status status = ashlar_snapshot_write(model->allocator, c->snapshot);
        first = first == ASHLAR_OK ? status : first;
    }
    if (!c->is_quiet && c->sample_bytes > 0) {
        printf("\nA sample:\n");
        const ashlar_status status =
            ashlar_program_sample(model, stdout, c->sample_bytes, 0.7, c->train.seed, "");
        first = first == ASHLAR_OK ? status : first;
    }
    if (!c->is_quiet) {
        ashlar_report_print(stdout, &c->train, report);
    }
    return first;
}

static ashlar_status train(const command *c, ashlar_device *device, const ashlar_corpus *corpus) {
    ashlar_trainer *trainer = NULL;
    ashlar_train_report report;
    ashlar_progress progress;
    ashlar_progress_init(&progress, stdout);
    ashlar_status status = ashlar_trainer_create(device, corpus, &c->train, &trainer);
    if (status == ASHLAR_OK) {
        status = ashlar_trainer_run(trainer, c->is_quiet ? NULL : ashlar_progress_show, &progress,
                                    &report);
    }
    if (status == ASHLAR_OK) {
        status = finish(c, trainer, &report);
    }
    ashlar_trainer_destroy(trainer);
    return status;
}

/* Whether two paths lead to one file, or would. */
static bool is_same_file(const char *a, const char *b) {
    struct stat x, y;
    if (stat(a, &x) == 0 && stat(b, &y) == 0) {
        return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    }
    return strcmp(a, b) == 0;
}

/* The files that are written. */
typedef struct output {
    const char *option;
    const char *path; /* NULL: not wanted */
} output;

enum { OUTPUT_COUNT = 4 };

static void list_outputs(const command *c, output outputs[static OUTPUT_COUNT]) {
    outputs[0] = (output){"json", c->json};
    outputs[1] = (output){"save", c->save};
    outputs[2] = (output){"snapshot", c->snapshot};
    outputs[3] = (output){"plan", c->train.plan_file};
}

/* An output is neither a text to train on nor one of those after it. */
static ashlar_status check_output(const command *c, const output *o, const output *end) {
    for (size_t i = 0; o->path != NULL && i < c->data.count; i++) {
        if (is_same_file(o->path, c->data.items[i])) {
            return ashlar_fail(ASHLAR_EINVAL, "--%s: %s is the text to train on; name another file",
                               o->option, o->path);
        }
    }
    for (const output *other = o + 1; o->path != NULL && other < end; other++) {
        if (other->path != NULL && is_same_file(o->path, other->path)) {
            return ashlar_fail(ASHLAR_EINVAL, "--%s and --%s: both name %s; give each its own file",
                               o->option, other->option, o->path);
        }
    }
    return ASHLAR_OK;
}

/* The options that say which stack it is. */
static ashlar_status read_stack(command *c) {
    const ashlar_train_config *t = &c->train;
    if (ashlar_rnn_cell_parse(c->cell, &c->train.cell) != ASHLAR_OK) {
        return ashlar_fail(ASHLAR_EINVAL, "--cell: \"%.40s\" is none of lstm, gru, tanh, relu",
                           c->cell);
    }
    if (t->projection > 0 && (t->cell != ASHLAR_RNN_LSTM || t->projection >= t->hidden)) {
        return ashlar_fail(ASHLAR_EINVAL,
                           "--projection: %zu; it is for --cell lstm, and below --hidden %zu",
                           t->projection, t->hidden);
    }
    return ASHLAR_OK;
}

/* What no single option can be blamed for. */
static ashlar_status check_command(const command *c) {
    output outputs[OUTPUT_COUNT];
    if (c->data.count == 0) {
        return ashlar_fail(ASHLAR_EINVAL,
                           "--data: no text given; name a file or a folder, see --help");
    }
    if (c->train.plan_file != NULL && c->train.without_plan) {
        return ashlar_fail(ASHLAR_EINVAL, "--plan and --no-plan: leave out one of them");
    }
    list_outputs(c, outputs);
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < OUTPUT_COUNT && status == ASHLAR_OK; i++) {
        status = check_output(c, &outputs[i], outputs + OUTPUT_COUNT);
    }
    return status;
}

/* Before hours of training, not after. */
static ashlar_status check_writable(const command *c) {
    output outputs[OUTPUT_COUNT];
    list_outputs(c, outputs);
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < OUTPUT_COUNT && status == ASHLAR_OK; i++) {
        status = ashlar_program_check_writable(outputs[i].path);
    }
    return status;
}

static int run(const command *c, ashlar_device *device) {
    ashlar_corpus *corpus = NULL;
    ashlar_status status = check_writable(c);
    if (status == ASHLAR_OK) {
        status = ashlar_corpus_open(c->data.items, c->data.count, &corpus);
    }
    if (status == ASHLAR_OK) {
        if (!c->is_quiet) {
            print_start(c, corpus);
        }
        status = train(c, device, corpus);
    }
    ashlar_corpus_destroy(corpus);
    return status == ASHLAR_OK ? 0 : ashlar_program_fail(program, ASHLAR_EXIT_FAILED);
}

static int run_command(int argc, char **argv) {
    command c = defaults();
    ashlar_option options[OPTION_COUNT];
    list_options(&c, options);
    if (ashlar_options_parse(options, OPTION_COUNT, argc, argv) != ASHLAR_OK ||
        (!c.wants_help && (read_stack(&c) != ASHLAR_OK || check_command(&c) != ASHLAR_OK))) {
        return ashlar_program_fail(program, ASHLAR_EXIT_USAGE);
    }
    if (c.wants_help) {
        print_help();
        return 0;
    }
    ashlar_blas_set_threads((int)c.threads);
    ashlar_device *device = NULL;
    int status = ashlar_program_open_device(program, c.device, &device);
    if (status == 0) {
        status = run(&c, device);
        ashlar_device_close(device);
    }
    return status;
}

int main(int argc, char **argv) {
    ashlar_program_init();
    return ashlar_program_finish(program, run_command(argc, argv));
}
