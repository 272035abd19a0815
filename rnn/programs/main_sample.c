/* main_sample.c - ashlar-sample: write text with a model that ashlar-train saved. */
#include <string.h>

#include <ashlar/arena.h>

#include "rnn/data/batcher.h"
#include "allocator/base/error.h"
#include "rnn/programs/options.h"
#include "rnn/programs/program.h"
#include "rnn/programs/train_program.h"

static const char program[] = "ashlar-sample";

/* The command line; the initial values are the defaults. */
typedef struct command {
    const char *model;
    ashlar_option_list map;
    const char *prime;
    const char *device;
    const char *json;
    ashlar_text_config text;
} command;

/* The defaults, replaced by the values on the command line. */
static command given;
static const command defaults = {
    .text = {.sampler = {.sampling = {.temperature = 0.7, .top_p = 1}, .seed = 1, .count = 1},
             .bytes = 1000},
};

static const ashlar_option options[] = {
    {"model", "FILE", ASHLAR_OPTION_TEXT, &given.model, 0, 0,
     "weights saved by ashlar-train --save, or by PyTorch"},
    {"map", "OLD=NEW", ASHLAR_OPTION_LIST, &given.map, 0, 0,
     "a tensor's name in the file, in the model; repeatable"},
    {"bytes", "N", ASHLAR_OPTION_COUNT, &given.text.bytes, 1, 1e12, "how much to write"},
    {"temperature", "X", ASHLAR_OPTION_REAL, &given.text.sampler.sampling.temperature, 0, 100,
     "below 1: more likely text, 0: the likeliest"},
    {"top-k", "N", ASHLAR_OPTION_COUNT, &given.text.sampler.sampling.top_k, 0,
     ASHLAR_BATCHER_SYMBOLS, "draw from the so many likeliest, 0: from all"},
    {"top-p", "X", ASHLAR_OPTION_REAL, &given.text.sampler.sampling.top_p, 1e-6, 1,
     "draw from the likeliest with this share"},
    {"prime", "TEXT", ASHLAR_OPTION_TEXT, &given.prime, 0, 0, "text to begin with"},
    {"seed", "N", ASHLAR_OPTION_COUNT, &given.text.sampler.seed, 0, 0,
     "the same seed writes the same text"},
    {"count", "N", ASHLAR_OPTION_COUNT, &given.text.sampler.count, 1, 10000,
     "texts at once, each with the next seed"},
    {"bf16", NULL, ASHLAR_OPTION_FLAG, &given.text.sampler.is_bf16, 0, 0,
     "read weights as bf16 on the CPU: half the bytes"},
    {"device", "NAME", ASHLAR_OPTION_TEXT, &given.device, 0, 0, "auto, soft, soft:N, cuda, cuda:N"},
    {"json", "FILE", ASHLAR_OPTION_TEXT, &given.json, 0, 0, "write speed and memory there"},
};
enum { OPTION_COUNT = sizeof options / sizeof options[0] };

enum { SIZE_MOST = 4 * 16384, LAYERS_MOST = 64 };

/* The file's matrix for a name of the model, or NULL. */
static const ashlar_checkpoint_tensor *find(const ashlar_checkpoint *file,
                                            const ashlar_load_options *names, const char *name) {
    const ashlar_checkpoint_tensor *tensor = ashlar_checkpoint_find(file, names, name);
    return tensor != NULL && tensor->rank == 2 && tensor->shape[0] <= SIZE_MOST &&
                   tensor->shape[1] <= SIZE_MOST
               ? tensor
               : NULL;
}

/* The same for a matrix of a layer. */
static const ashlar_checkpoint_tensor *find_weight(const ashlar_checkpoint *file,
                                                   const ashlar_load_options *names,
                                                   ashlar_rnn_cell cell, const char *kind,
                                                   size_t layer) {
    char name[64];
    (void)snprintf(name, sizeof name, "%s.weight_%s_l%zu", ashlar_rnn_cell_name(cell), kind, layer);
    return find(file, names, name);
}

/* Take the model's sizes from the shapes, which PyTorch's files have as well as ashlar-train's. */
static ashlar_status read_config(const char *path, const ashlar_checkpoint *file,
                                 const ashlar_load_options *names,
                                 ashlar_text_model_config *config) {
    const ashlar_checkpoint_tensor *embedding = find(file, names, "embedding.weight");
    size_t layers = 0;
    int cell = -1;
    while (layers == 0 && ++cell < ASHLAR_RNN_CELL_COUNT) {
        while (layers < LAYERS_MOST &&
               find_weight(file, names, (ashlar_rnn_cell)cell, "hh", layers) != NULL) {
            layers++;
        }
    }
    ASHLAR_FAIL_IF(
        embedding == NULL || embedding->shape[0] != ASHLAR_BATCHER_SYMBOLS || layers == 0,
        ASHLAR_EFORMAT, "%s: no matrix '%s; if it has another name there, give --map OLD=NEW", path,
        layers == 0 ? "lstm.weight_hh_l0', nor one of gru, tanh or relu"
                    : "embedding.weight' of 256 rows");
    const ashlar_checkpoint_tensor *hh = find_weight(file, names, (ashlar_rnn_cell)cell, "hh", 0);
    const ashlar_checkpoint_tensor *hr = find_weight(file, names, (ashlar_rnn_cell)cell, "hr", 0);
    *config = (ashlar_text_model_config){
        .classes = ASHLAR_BATCHER_SYMBOLS,
        .embedding = embedding->shape[1],
        .cell = (ashlar_rnn_cell)cell,
        .layers = layers,
        .hidden = hr != NULL ? hr->shape[1] : hh->shape[1],
        .projection = hr != NULL ? hr->shape[0] : 0,
    };
    return ASHLAR_OK;
}

static ashlar_status load(const command *c, const ashlar_checkpoint *file,
                          ashlar_sampled_model *m) {
    ashlar_load_options names;
    ASHLAR_TRY(ashlar__weights_map(&c->map, &names));
    ASHLAR_TRY(read_config(c->model, file, &names, &m->config));
    ASHLAR_TRY(ashlar__text_model_create(m->allocator, m->stream, &m->config,
                                         ASHLAR_REGIONS_INFERENCE, &m->model));
    return ashlar_checkpoint_load(ashlar_model_arena(m->model), file, &names, m->stream, NULL);
}

/* Write the text, but first check that the report can be written: better to fail before. */
static ashlar_status sample(const command *c, ashlar_device *device) {
    ashlar_text_config text = c->text;
    ashlar_checkpoint *file = NULL;
    ashlar_sampled_model model = {0};
    ashlar_text_report report;
    ashlar_status status = ashlar__program_check_report(c->json);
    text.prime = c->prime;
    text.prime_bytes = c->prime != NULL ? strlen(c->prime) : 0;
    ASHLAR_THEN(status, ashlar_checkpoint_open(c->model, &file));
    ASHLAR_THEN(status, ashlar_allocator_create(device, &model.allocator));
    if (status == ASHLAR_OK) {
        ashlar_allocator_set_report(model.allocator, ashlar__program_print_report, NULL);
        status = load(c, file, &model);
    }
    ASHLAR_THEN(status, ashlar__text_write(&model, stdout, &text, &report));
    if (status == ASHLAR_OK && c->json != NULL) {
        status = ashlar__text_report_write(c->json, &model, &text, &report);
    }
    ashlar_model_destroy(model.model);
    ashlar_allocator_destroy(model.allocator);
    ashlar_checkpoint_close(file);
    return status;
}

static ashlar_status check_command(const command *c) {
    ASHLAR_FAIL_IF(c->model == NULL, ASHLAR_EINVAL,
                   "--model: no weights given; train some with ashlar-train --save FILE");
    ASHLAR_FAIL_IF(c->json != NULL && ashlar__program_is_same_file(c->json, c->model),
                   ASHLAR_EINVAL, "--json and --model: both name %s; give each its own file",
                   c->json);
    return ASHLAR_OK;
}

static int run_command(int argc, char **argv) {
    given = defaults;
    if (ashlar__options_answer(
            program,
            "Usage: ashlar-sample --model FILE [OPTION]...\nWrite text with a trained model.\n\n",
            "\nA line of a single % stands between records. --top-p is a share of what --top-k\n"
            "left. Exit status: 0, 1 on failure, 2 on a bad option or environment value.\n",
            options, OPTION_COUNT, argc, argv)) {
        return 0;
    }
    if (ashlar__options_parse(options, OPTION_COUNT, argc, argv) != ASHLAR_OK ||
        check_command(&given) != ASHLAR_OK) {
        return ashlar__program_fail(program, ASHLAR_EINVAL);
    }
    ashlar_device *device = NULL;
    const int exit_status = ashlar__program_open_device(program, given.device, &device);
    if (exit_status != 0) {
        return exit_status;
    }
    const ashlar_status status = sample(&given, device);
    ashlar_device_close(device);
    return status == ASHLAR_OK ? 0 : ashlar__program_fail(program, status);
}

int main(int argc, char **argv) {
    ashlar__program_init();
    return ashlar__program_finish(program, run_command(argc, argv));
}
