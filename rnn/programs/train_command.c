/* train_command.c - the command line of ashlar-train: its options, their defaults and checks. */
#include "rnn/programs/train_program.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <ashlar/arena.h>

#include "allocator/base/error.h"
#include "allocator/base/parse.h"
#include "rnn/programs/program.h"

static ashlar_train_command defaults(void) {
    ashlar_train_command c = {
        .train = {.layers = 2,
                  .hidden = 256,
                  .embedding = 64,
                  .batch = 16,
                  .max_length = 256,
                  .held_out = 50,
                  .accumulate = 1,
                  .steps = 800,
                  .seed = 1,
                  .algorithm = ASHLAR_RNN_AUTO,
                  .optimizer = {.kind = ASHLAR_OPTIMIZER_ADAMW,
                                .learning_rate = 0.004,
                                .clip_norm = 1.0},
                  .schedule = {.step_size = 1000, .gamma = 0.1},
                  .report = ashlar__program_print_report},
        .recompute = "0",
        .sample_bytes = 400,
        .timeout_s = 120,
        .threads = ashlar_cpu_get_info().threads,
    };
    ASHLAR_IGNORE(ashlar_optimizer_complete(&c.train.optimizer)); /* good values */
    return c;
}

/* The defaults, replaced by the values on the command line. */
static ashlar_train_command given;

#define RANGE(kind, name, argument, field, min, max, help) \
    { name, argument, ASHLAR_OPTION_##kind, &given.field, min, max, help }
#define NUMBER(name, field, min, max, help) RANGE(COUNT, name, "N", field, min, max, help)
#define REAL(name, field, min, max, help) RANGE(REAL, name, "X", field, min, max, help)
#define CHOICE(name, field, help) RANGE(CHOICE, name, "NAME", field, 0, 0, help)
#define TEXT(name, argument, field, help) RANGE(TEXT, name, argument, field, 0, 0, help)
#define FLAG(name, field, help) RANGE(FLAG, name, NULL, field, 0, 0, help)

static const ashlar_option options[] = {
    RANGE(LIST, "data", "PATH", data, 0, 0, "a text file or folder; repeatable"),
    NUMBER("steps", train.steps, 1, 1e9, "training steps"),
    NUMBER("batch", train.batch, 1, 65536, "sequences per step"),
    NUMBER("max-length", train.max_length, 1, 1e6, "longer ones are cut into pieces"),
    CHOICE("cell", train.cell, "lstm, gru, tanh, relu"),
    NUMBER("layers", train.layers, 1, 64, "recurrent layers"),
    NUMBER("hidden", train.hidden, 1, 16384, "width of a layer"),
    NUMBER("projection", train.projection, 0, 16384, "width of an LSTM's output, 0: as hidden"),
    REAL("dropout", train.dropout, 0, 0.99, "share of outputs dropped between layers"),
    NUMBER("embedding", train.embedding, 1, 16384, "width of a symbol's vector"),
    CHOICE("optimizer", train.optimizer.kind, "sgd, adam, adamw, adagrad, rmsprop, muon"),
    REAL("learning-rate", train.optimizer.learning_rate, 1e-12, 10, "the highest one"),
    REAL("weight-decay", train.optimizer.weight_decay, 0, 10, "of any optimizer"),
    FLAG("no-bias-decay", train.without_bias_decay, "of matrices only"),
    REAL("momentum", train.optimizer.momentum, 0, 0.9999, "of sgd, rmsprop and muon"),
    FLAG("nesterov", train.optimizer.nesterov, "look ahead, sgd with momentum"),
    REAL("clip", train.optimizer.clip_norm, 0, 1e9, "gradient norm to clip at, 0: not at all"),
    REAL("loss-scale", train.optimizer.loss_scale, 0, 1e30,
         "scale gradients by this at first, 0: not"),
    CHOICE("schedule", train.schedule.kind, "of the rate: constant, cosine, step"),
    NUMBER("warmup-steps", train.schedule.warmup_steps, 0, 1e9, "in which the rate rises"),
    REAL("rate-floor", train.schedule.floor, 0, 1, "cosine: share of the rate at the end"),
    NUMBER("rate-every", train.schedule.step_size, 1, 1e9, "step: so often, multiply the rate"),
    REAL("rate-factor", train.schedule.gamma, 1e-9, 1, "step: by this"),
    NUMBER("seed", train.seed, 0, 0, "of weights, batches and sample"),
    NUMBER("held-out", train.held_out, 0, 1e9, "test on every Nth record, 0: on none"),
    NUMBER("buckets", train.buckets, 0, 1e6, "ranges of lengths with plans of their own; 0: one"),
    FLAG("pad", train.pads, "batches to the longest length of their range"),
    FLAG("graphs", train.graphs, "make each step one launch; pads, too"),
    FLAG("reproducible", is_reproducible, "the same bits for 1, 2, 4 or 8 ranks"),
    NUMBER("timeout", timeout_s, 1, 86400, "seconds in which ranks wait for each other"),
    FLAG("no-plan", train.without_plan, "serve each block by itself, not from a plan of the step"),
    NUMBER("threads", threads, 1, 256, "threads that compute on the CPU"),
    TEXT("device", "NAME", device, "auto, soft, soft:N, cuda, cuda:N"),
    CHOICE("algorithm", train.algorithm, "on a GPU: standard, static, dynamic, small, auto"),
    FLAG("tf32", train.allows_tf32, "on a GPU: multiply the layers' f32 in TF32"),
    FLAG("verify", verifies, "first compare a step on the GPU with the CPU's"),
    TEXT("save", "FILE", train.save_file, "write the training there (safetensors)"),
    NUMBER("save-every", train.save_every, 0, 1e9, "steps; 0: only at the end"),
    TEXT("resume", "FILE", train.resume_file, "go on with a saved training and its options"),
    TEXT("init", "FILE", init, "begin with the weights in there that fit"),
    RANGE(LIST, "map", "OLD=NEW", map, 0, 0, "a tensor's name there, in the model; repeatable"),
    TEXT("losses", "FILE", losses, "write each step's loss there"),
    TEXT("fit", "SIZE", fit, "do not train: find what fits a device of that size"),
    CHOICE("vary", vary, "with --fit: batch, length, hidden"),
    TEXT("json", "FILE", json, "write the report there"),
    TEXT("html", "FILE", html, "write a page about it there, with pictures"),
    TEXT("snapshot", "FILE", snapshot, "write what the memory holds there (JSON)"),
    FLAG("quiet", is_quiet, "print nothing but errors"),
    CHOICE("dtype", train.dtype, "the last two on a GPU: f32, f64, f16, bf16"),
    NUMBER("stride", train.stride, 0, 1e6, "a piece each N time steps; 0: no overlap"),
    NUMBER("accumulate", train.accumulate, 1, 65536, "pieces that a batch is worked off in"),
    RANGE(COUNT, "bptt", "K", train.bptt, 0, 1e6, "update each K time steps, carry states; 0: no"),
    TEXT("recompute", "K", recompute, "hold K time steps, redo others; auto: 2 roots"),
    TEXT("memory", "SIZE", memory, "of the device, to train in; auto: all that it has"),
    NUMBER("sample", sample_bytes, 0, 1e9, "bytes of text to make at the end"),
};
enum { OPTION_COUNT = sizeof options / sizeof options[0] };

bool ashlar__train_command_answer(const char *program, int argc, char **argv) {
    given = defaults();
    return ashlar__options_answer(
        program, "Usage: ashlar-train --data PATH [OPTION]...   train a character RNN on text\n",
        "Environment: ASHLAR_DEVICE, ASHLAR_SOFT, ASHLAR_THREADS, ASHLAR_ISA.\n"
        "Exit: 0, 1 failed, 2 a bad option, 128 + a signal's number: saved and reported.\n",
        options, OPTION_COUNT, argc, argv);
}

/* Options that name a file: those from FIRST_OUTPUT on are written. */
static const char *const file_options[] = {"resume", "init",     "save", "json",
                                           "losses", "snapshot", "html"};
enum { FIRST_OUTPUT = 2, FILE_COUNT = sizeof file_options / sizeof file_options[0] };

static void list_files(const ashlar_train_command *c, const char *paths[static FILE_COUNT]) {
    const char *const all[] = {
        c->train.resume_file, c->init, c->train.save_file, c->json, c->losses,
        c->snapshot,          c->html};
    ASHLAR_TABLE_IS_FULL(all, FILE_COUNT);
    memcpy(paths, all, sizeof all);
}

/* Whether both are given, and lead to the same file. */
static bool are_same(const char *a, const char *b) {
    return a != NULL && b != NULL && ashlar__program_is_same_file(a, b);
}

/* An output must differ from the texts to train on and from all other files; only --save may name
 * the file to begin with. */
static ashlar_status check_files(const ashlar_train_command *c) {
    const char *paths[FILE_COUNT];
    list_files(c, paths);
    for (size_t o = FIRST_OUTPUT; o < FILE_COUNT; o++) {
        for (size_t i = 0; i < c->data.count; i++) {
            ASHLAR_FAIL_IF(are_same(paths[o], c->data.items[i]), ASHLAR_EINVAL,
                           "--%s: %s is the text to train on; name another file", file_options[o],
                           paths[o]);
        }
        for (size_t i = o == FIRST_OUTPUT ? o : 0; i < o; i++) {
            ASHLAR_FAIL_IF(are_same(paths[o], paths[i]), ASHLAR_EINVAL,
                           "--%s and --%s: both name %s; give each its own file", file_options[o],
                           file_options[i], paths[o]);
        }
    }
    return ASHLAR_OK;
}

static ashlar_status check_stack(const ashlar_train_command *c) {
    const ashlar_train_config *t = &c->train;
    ASHLAR_FAIL_IF(t->projection > 0 && (t->cell != ASHLAR_RNN_LSTM || t->projection >= t->hidden),
                   ASHLAR_EINVAL,
                   "--projection: %zu; it is for --cell lstm, and below --hidden %zu",
                   t->projection, t->hidden);
    ASHLAR_FAIL_IF(t->dropout > 0 && t->layers == 1, ASHLAR_EINVAL,
                   "--dropout and --layers 1: it drops what is between layers; give --layers 2 or "
                   "more, or no --dropout");
    return ASHLAR_OK;
}

/* Read the value of --recompute: a count, or "auto". */
static ashlar_status read_recompute(ashlar_train_command *c) {
    ashlar_train_config *t = &c->train;
    uint64_t steps = 0;
    t->recomputes_auto = strcmp(c->recompute, "auto") == 0;
    ASHLAR_FAIL_IF(
        !t->recomputes_auto &&
            (!ashlar__parse_count(ashlar__piece_of(c->recompute), &steps) || steps > 1000000),
        ASHLAR_EINVAL,
        "--recompute: \"%.40s\" is neither auto nor a number of time steps from 0 to 1000000",
        c->recompute);
    t->recompute = steps;
    ASHLAR_FAIL_IF(t->batch % t->accumulate != 0, ASHLAR_EINVAL,
                   "--accumulate: %zu does not divide the %zu sequences of --batch", t->accumulate,
                   t->batch);
    return ASHLAR_OK;
}

/* Read a size in bytes. */
static ashlar_status read_size(const char *option, const char *text, const char *none,
                               size_t *bytes) {
    uint64_t value = 0;
    ASHLAR_FAIL_IF(!ashlar__parse_bytes(ashlar__piece_of(text), &value) ||
                       value < (size_t)2 << 20 || value > (size_t)1 << 40,
                   ASHLAR_EINVAL,
                   "--%s: \"%.40s\" is %s size from 2MiB to 1TiB, with a unit B, KiB, MiB, GiB or "
                   "TiB",
                   option, text, none);
    *bytes = value;
    return ASHLAR_OK;
}

/* Read --memory: a size, or "auto". */
static ashlar_status read_memory(ashlar_train_command *c) {
    c->train.has_memory = c->memory != NULL;
    c->train.memory = 0;
    return c->memory == NULL || strcmp(c->memory, "auto") == 0
               ? ASHLAR_OK
               : read_size("memory", c->memory, "neither auto nor a", &c->train.memory);
}

/* Read --fit. It is refused with --graphs: the driver takes memory for captured graphs, which a dry
 * run does not show. */
static ashlar_status read_fit(ashlar_train_command *c) {
    if (c->fit == NULL) {
        ASHLAR_FAIL_IF(c->vary != ASHLAR_VARY_BATCH, ASHLAR_EINVAL,
                       "--vary: to fit what size? give it with --fit");
        return ASHLAR_OK;
    }
    ASHLAR_TRY(read_size("fit", c->fit, "no", &c->fit_bytes));
    ASHLAR_FAIL_IF(c->train.graphs, ASHLAR_EINVAL, "--fit and --graphs: leave out one of them");
    ASHLAR_FAIL_IF(c->html != NULL, ASHLAR_EINVAL,
                   "--fit and --html: the page is about a training; leave out one of them");
    return ASHLAR_OK;
}

static ashlar_status check_command(const ashlar_train_command *c) {
    ASHLAR_FAIL_IF(c->train.held_out == 1, ASHLAR_EINVAL,
                   "--held-out: 1 leaves nothing to train on; give 0, or at least 2");
    ASHLAR_FAIL_IF(c->data.count == 0, ASHLAR_EINVAL,
                   "--data: no text given; name a file or a folder, see --help");
    ASHLAR_FAIL_IF(c->train.save_every != 0 && c->train.save_file == NULL, ASHLAR_EINVAL,
                   "--save-every: where to? name a file with --save");
    ASHLAR_FAIL_IF(c->init != NULL && c->train.resume_file != NULL, ASHLAR_EINVAL,
                   "--init and --resume: leave out one of them");
    ASHLAR_FAIL_IF(c->init == NULL && c->map.count > 0, ASHLAR_EINVAL,
                   "--map: of which file? name it with --init");
    ASHLAR_TRY(ashlar__weights_map(&c->map, &(ashlar_load_options){0}));
    return check_files(c);
}

/* ---- with --resume: the options of the saved training become the defaults ---- */

enum { SAVED_BYTES = 80 };

/* The key under which a file has an option: its name with "_" for "-", or one of these. */
static void saved_key(const char *option, char key[static SAVED_BYTES]) {
    static const char *const others[][2] = {{"steps", "ashlar.schedule_steps"},
                                            {"no-bias-decay", "ashlar.without_bias_decay"},
                                            {"reproducible", "ashlar.shards"}};
    (void)snprintf(key, SAVED_BYTES, "ashlar.%s", option);
    for (char *dash = strchr(key, '-'); dash != NULL; dash = strchr(dash, '-')) {
        *dash = '_';
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (strcmp(option, others[i][0]) == 0) {
            (void)snprintf(key, SAVED_BYTES, "%s", others[i][1]);
        }
    }
}

/* Set all options that the file has. A bad value is ignored here: resuming fails later, with a
 * message about the file. */
static void take_saved(const ashlar_checkpoint *file) {
    static char words[OPTION_COUNT][SAVED_BYTES]; /* static, since values may point into them */
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const bool is_flag = options[i].kind == ASHLAR_OPTION_FLAG;
        char key[SAVED_BYTES], *argv[] = {NULL, words[i]};
        saved_key(options[i].name, key);
        const char *value = ashlar_checkpoint_metadata(file, key);
        if (value != NULL && !(is_flag && strcmp(value, "0") == 0)) {
            (void)snprintf(words[i], SAVED_BYTES, "--%s%s%s", options[i].name, is_flag ? "" : "=",
                           is_flag ? "" : value);
            ASHLAR_IGNORE(ashlar__options_parse(options, OPTION_COUNT, 2, argv));
        }
    }
    if (ashlar_checkpoint_metadata(file, "ashlar.held_out") == NULL) {
        given.train.held_out = 0;
    }
}

/* Set the defaults, replaced by the options of a training to resume. A file that cannot be read
 * makes resuming fail later, and says why. */
static void set_defaults(int argc, char **argv) {
    const char *path = ashlar__options_given("resume", argc, argv);
    ashlar_checkpoint *file = NULL;
    given = defaults();
    if (path != NULL && ashlar_checkpoint_open(path, &file) == ASHLAR_OK) {
        if (ashlar_checkpoint_metadata(file, "ashlar.layers") != NULL) {
            take_saved(file);
        }
        ashlar_checkpoint_close(file);
    }
}

/* There is one rate, and one decay: scaled so that those that suit AdamW suit MUON, too. */
static void complete_muon(ashlar_optimizer_config *c) {
    if (c->kind == ASHLAR_OPTIMIZER_MUON) {
        c->muon_scale = ASHLAR_MUON_SCALE_MATCH_RMS_ADAMW;
        c->momentum = c->momentum > 0 ? c->momentum : 0.95;
        c->nesterov = true;
    }
}

ashlar_status ashlar__train_command_read(int argc, char **argv, ashlar_train_command *out) {
    set_defaults(argc, argv);
    ASHLAR_TRY(ashlar__options_parse(options, OPTION_COUNT, argc, argv));
    ASHLAR_TRY(check_stack(&given));
    ASHLAR_TRY(read_recompute(&given));
    ASHLAR_TRY(read_memory(&given));
    ASHLAR_TRY(read_fit(&given));
    complete_muon(&given.train.optimizer);
    given.train.schedule.rate = given.train.optimizer.learning_rate;
    given.train.schedule.total_steps = given.train.steps;
    if (isnan(ashlar_schedule_rate(&given.train.schedule, 1))) {
        return ASHLAR_EINVAL; /* the detail says why */
    }
    ASHLAR_TRY(ashlar_optimizer_complete(&given.train.optimizer));
    ASHLAR_TRY(check_command(&given));
    *out = given;
    return ASHLAR_OK;
}

ashlar_status ashlar__train_command_check_writable(const ashlar_train_command *c) {
    const char *paths[FILE_COUNT];
    list_files(c, paths);
    for (size_t i = FIRST_OUTPUT; i < FILE_COUNT; i++) {
        ASHLAR_TRY(paths[i] == c->json ? ashlar__program_check_report(paths[i])
                                       : ashlar__program_check_writable(paths[i]));
    }
    return ASHLAR_OK;
}
