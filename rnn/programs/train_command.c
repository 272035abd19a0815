/* train_command.c - the command line of ashlar-train: its options, their defaults and checks. */
#include "rnn/programs/train_program.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <ashlar/arena.h>

#include "allocator/base/error.h"
#include "allocator/base/parse.h"
#include "rnn/product/blas.h"
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
                  .buckets = 0,
                  .report = ashlar__program_print_report},
        .rule = {.optimizer = ashlar_optimizer_name(ASHLAR_OPTIMIZER_ADAMW),
                 .schedule = "constant",
                 .step_size = 1000,
                 .gamma = 0.1},
        .cell = ashlar_rnn_cell_name(ASHLAR_RNN_LSTM),
        .dtype = "f32",
        .algorithm = "auto",
        .recompute = "0",
        .vary = "batch",
        .sample_bytes = 400,
        .timeout_s = 120,
        .threads = (size_t)ashlar__blas_threads(),
    };
    ashlar_optimizer_defaults(ASHLAR_OPTIMIZER_ADAMW, &c.train.optimizer);
    c.train.optimizer.learning_rate = 0.004;
    c.train.optimizer.clip_norm = 1.0;
    return c;
}

/* The defaults, replaced by the values on the command line. */
static ashlar_train_command given;

/* Limits for a saved training: its options, and the bytes of one option. */
enum { SAVED_MAX = 64, SAVED_BYTES = 80 };

#define RANGE(kind, name, argument, field, min, max, help) \
    { name, argument, ASHLAR_OPTION_##kind, &given.field, min, max, help }
#define NUMBER(name, field, min, max, help) RANGE(COUNT, name, "N", field, min, max, help)
#define REAL(name, field, min, max, help) RANGE(REAL, name, "X", field, min, max, help)
#define TEXT(name, argument, field, help) RANGE(TEXT, name, argument, field, 0, 0, help)
#define FLAG(name, field, help) RANGE(FLAG, name, NULL, field, 0, 0, help)

static const ashlar_option options[] = {
    RANGE(LIST, "data", "PATH", data, 0, 0, "a text file or folder; repeatable"),
    NUMBER("steps", train.steps, 1, 1e9, "training steps"),
    NUMBER("batch", train.batch, 1, 65536, "sequences per step"),
    NUMBER("max-length", train.max_length, 1, 1e6, "longer ones are cut into pieces"),
    TEXT("cell", "NAME", cell, "lstm, gru, tanh, relu"),
    NUMBER("layers", train.layers, 1, 64, "recurrent layers"),
    NUMBER("hidden", train.hidden, 1, 16384, "width of a layer"),
    NUMBER("projection", train.projection, 0, 16384, "width of an LSTM's output, 0: as hidden"),
    REAL("dropout", train.dropout, 0, 0.99, "share of outputs dropped between layers"),
    NUMBER("embedding", train.embedding, 1, 16384, "width of a symbol's vector"),
    TEXT("optimizer", "NAME", rule.optimizer, "sgd, adam, adamw, adagrad, rmsprop"),
    REAL("learning-rate", train.optimizer.learning_rate, 1e-12, 10, "the highest one"),
    REAL("weight-decay", train.optimizer.weight_decay, 0, 10, "of any optimizer"),
    FLAG("no-bias-decay", train.without_bias_decay, "of matrices only"),
    REAL("momentum", train.optimizer.momentum, 0, 0.9999, "of sgd and rmsprop"),
    FLAG("nesterov", train.optimizer.nesterov, "look ahead, sgd with momentum"),
    REAL("clip", train.optimizer.clip_norm, 0, 1e9, "gradient norm to clip at, 0: not at all"),
    REAL("loss-scale", train.optimizer.loss_scale, 0, 1e30,
         "scale gradients by this at first, 0: not"),
    TEXT("schedule", "NAME", rule.schedule, "of the rate: constant, cosine, step"),
    NUMBER("warmup-steps", rule.warmup_steps, 0, 1e9, "in which the rate rises"),
    REAL("rate-floor", rule.floor, 0, 1, "cosine: share of the rate at the end"),
    NUMBER("rate-every", rule.step_size, 1, 1e9, "step: so often, multiply the rate"),
    REAL("rate-factor", rule.gamma, 1e-9, 1, "step: by this"),
    RANGE(SEED, "seed", "N", train.seed, 0, 0, "of weights, batches and sample"),
    NUMBER("held-out", train.held_out, 0, 1e9, "test on every Nth record, 0: on none"),
    NUMBER("buckets", train.buckets, 0, 1e6, "ranges of lengths with plans of their own; 0: one"),
    FLAG("pad", train.pads, "batches to the longest length of their range"),
    FLAG("graphs", train.graphs, "make each step one launch; pads, too"),
    FLAG("reproducible", is_reproducible, "the same bits for 1, 2, 4 or 8 ranks"),
    NUMBER("timeout", timeout_s, 1, 86400, "seconds in which ranks wait for each other"),
    FLAG("no-plan", train.without_plan, "serve each block by itself, not from a plan of the step"),
    NUMBER("threads", threads, 1, 1024, "threads that compute on the CPU"),
    TEXT("device", "NAME", device, "auto, soft, soft:N, cuda, cuda:N"),
    TEXT("algorithm", "NAME", algorithm, "on a GPU: auto, standard, static, dynamic, small"),
    FLAG("tf32", train.allows_tf32, "on a GPU: multiply the layers' f32 in TF32"),
    FLAG("verify", verifies, "first compare a step on the GPU with the CPU's"),
    TEXT("save", "FILE", train.save_file, "write the training there (safetensors)"),
    NUMBER("save-every", train.save_every, 0, 1e9, "steps; 0: only at the end"),
    TEXT("resume", "FILE", train.resume_file, "go on with a saved training and its options"),
    TEXT("init", "FILE", init, "begin with the weights in there that fit"),
    RANGE(LIST, "map", "OLD=NEW", map, 0, 0, "a tensor's name there, in the model; repeatable"),
    TEXT("losses", "FILE", losses, "write each step's loss there"),
    TEXT("fit", "SIZE", fit, "do not train: find what fits a device of that size"),
    TEXT("vary", "NAME", vary, "with --fit: batch, length, hidden"),
    TEXT("json", "FILE", json, "write the report there"),
    TEXT("html", "FILE", html, "write a page about it there, with pictures"),
    TEXT("snapshot", "FILE", snapshot, "write what the memory holds there (JSON)"),
    FLAG("quiet", is_quiet, "print nothing but errors"),
    FLAG("help", wants_help, "print this"),
    TEXT("dtype", "NAME", dtype, "f32, f64; on a GPU also f16, bf16"),
    NUMBER("stride", train.stride, 0, 1e6, "a piece each N time steps; 0: no overlap"),
    NUMBER("accumulate", train.accumulate, 1, 65536, "pieces that a batch is worked off in"),
    RANGE(COUNT, "bptt", "K", train.bptt, 0, 1e6, "update each K time steps, carry states; 0: no"),
    TEXT("recompute", "K", recompute, "hold K time steps, redo others; auto: 2 roots"),
    NUMBER("sample", sample_bytes, 0, 1e9, "bytes of text to make at the end"),
};
enum { OPTION_COUNT = sizeof options / sizeof options[0] };

void ashlar__train_command_print_help(FILE *out, const char *program) {
    given = defaults();
    fprintf(out, "Usage: %s --data PATH [OPTION]...   train a character RNN on text\n", program);
    ashlar__options_print(out, options, OPTION_COUNT);
    fprintf(out,
            "Environment: ASHLAR_DEVICE, ASHLAR_SOFT, ASHLAR_THREADS, ASHLAR_ISA.\n"
            "Exit: 0, 1 failed, 2 a bad option, 128 + a signal's number: saved and reported.\n");
}

/* A file that an option names for output. */
typedef struct output {
    const char *option;
    const char *path; /* NULL: not wanted */
} output;

enum { OUTPUT_COUNT = 5 };

static void list_outputs(const ashlar_train_command *c, output outputs[static OUTPUT_COUNT]) {
    outputs[0] = (output){"json", c->json};
    outputs[1] = (output){"save", c->train.save_file};
    outputs[2] = (output){"snapshot", c->snapshot};
    outputs[3] = (output){"losses", c->losses};
    outputs[4] = (output){"html", c->html};
}

/* An output must differ from the texts to train on, from the outputs after it up to `end`, and from
 * the file to begin with; only --save may name that. */
static ashlar_status check_output(const ashlar_train_command *c, const output *o,
                                  const output *end) {
    for (size_t i = 0; o->path != NULL && i < c->data.count; i++) {
        ASHLAR_FAIL_IF(ashlar__program_is_same_file(o->path, c->data.items[i]), ASHLAR_EINVAL,
                       "--%s: %s is the text to train on; name another file", o->option, o->path);
    }
    const char *begin = c->init != NULL ? c->init : c->train.resume_file;
    ASHLAR_FAIL_IF(o->path != NULL && begin != NULL && o->path != c->train.save_file &&
                       ashlar__program_is_same_file(o->path, begin),
                   ASHLAR_EINVAL, "--%s and --%s: both name %s; give each its own file", o->option,
                   c->init != NULL ? "init" : "resume", o->path);
    for (const output *other = o + 1; o->path != NULL && other < end; other++) {
        ASHLAR_FAIL_IF(other->path != NULL && ashlar__program_is_same_file(o->path, other->path),
                       ASHLAR_EINVAL, "--%s and --%s: both name %s; give each its own file",
                       o->option, other->option, o->path);
    }
    return ASHLAR_OK;
}

/* Read an element type's name, in upper or lower case. */
static bool read_dtype(const char *name, ashlar_dtype *out) {
    for (int dtype = 0; dtype < ASHLAR_DTYPE_COUNT; dtype++) {
        if (strcasecmp(name, ashlar_dtype_name((ashlar_dtype)dtype)) == 0) {
            *out = (ashlar_dtype)dtype;
            return true;
        }
    }
    return false;
}

static ashlar_status read_algorithm(ashlar_train_command *c) {
    static const char *const names[] = {
        [ASHLAR_RNN_STANDARD] = "standard",
        [ASHLAR_RNN_PERSIST_STATIC] = "static",
        [ASHLAR_RNN_PERSIST_DYNAMIC] = "dynamic",
        [ASHLAR_RNN_PERSIST_SMALL] = "small",
        [ASHLAR_RNN_AUTO] = "auto",
    };
    ASHLAR_TABLE_IS_FULL(names, ASHLAR_RNN_ALGORITHM_COUNT);
    for (int i = 0; i < ASHLAR_RNN_ALGORITHM_COUNT; i++) {
        if (strcmp(c->algorithm, names[i]) == 0) {
            c->train.algorithm = (ashlar_rnn_algorithm)i;
            return ASHLAR_OK;
        }
    }
    return ashlar__fail(ASHLAR_EINVAL,
                        "--algorithm: \"%.40s\" is none of auto, standard, static, dynamic, small",
                        c->algorithm);
}

static ashlar_status read_stack(ashlar_train_command *c) {
    const ashlar_train_config *t = &c->train;
    ASHLAR_TRY(read_algorithm(c));
    ASHLAR_FAIL_IF(ashlar_rnn_cell_parse(c->cell, &c->train.cell) != ASHLAR_OK, ASHLAR_EINVAL,
                   "--cell: \"%.40s\" is none of lstm, gru, tanh, relu", c->cell);
    ASHLAR_FAIL_IF(!read_dtype(c->dtype, &c->train.dtype), ASHLAR_EINVAL,
                   "--dtype: \"%.40s\" is none of f32, f64, f16, bf16", c->dtype);
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

/* Read --fit. It is refused with --graphs: the driver takes memory for captured graphs, which a dry
 * run does not show. */
static ashlar_status read_fit(ashlar_train_command *c) {
    uint64_t bytes = 0;
    if (c->fit == NULL) {
        return ASHLAR_OK;
    }
    ASHLAR_FAIL_IF(!ashlar__parse_bytes(ashlar__piece_of(c->fit), &bytes) ||
                       bytes < (size_t)2 << 20 || bytes > (size_t)1 << 40,
                   ASHLAR_EINVAL,
                   "--fit: \"%.40s\" is no size from 2MiB to 1TiB, with a unit B, KiB, MiB, GiB or "
                   "TiB",
                   c->fit);
    ASHLAR_FAIL_IF(!ashlar__train_fit_knows(c->vary), ASHLAR_EINVAL,
                   "--vary: \"%.40s\" is none of batch, length, hidden", c->vary);
    ASHLAR_FAIL_IF(c->train.graphs, ASHLAR_EINVAL, "--fit and --graphs: leave out one of them");
    ASHLAR_FAIL_IF(c->html != NULL, ASHLAR_EINVAL,
                   "--fit and --html: the page is about a training; leave out one of them");
    c->fit_bytes = bytes;
    return ASHLAR_OK;
}

static ashlar_status check_command(const ashlar_train_command *c) {
    output outputs[OUTPUT_COUNT];
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
    list_outputs(c, outputs);
    for (size_t i = 0; i < OUTPUT_COUNT; i++) {
        ASHLAR_TRY(check_output(c, &outputs[i], outputs + OUTPUT_COUNT));
    }
    return ASHLAR_OK;
}

bool ashlar__train_command_answer(const char *program, int argc, char **argv) {
    return ashlar__options_answer(program, options, OPTION_COUNT, argc, argv);
}

/* ---- with --resume: the options of the saved training become the defaults ---- */

static const char *saved_value(const ashlar_checkpoint *file, const char *key) {
    char full[SAVED_BYTES + sizeof "ashlar."];
    (void)snprintf(full, sizeof full, "ashlar.%s", key);
    return ashlar_checkpoint_metadata(file, full);
}

/* Set an option to a value from the saved file; `value` NULL: the option is a flag. A bad value is
 * ignored here: resuming fails later, with a message about the file. */
static void take_saved(const char *name, const char *value) {
    static char words[SAVED_MAX][SAVED_BYTES]; /* static, since options' values point into them */
    static size_t count;
    char *word = words[count++ % SAVED_MAX];
    char *argv[] = {NULL, word};
    (void)snprintf(word, SAVED_BYTES, "--%s%s%s", name, value != NULL ? "=" : "",
                   value != NULL ? value : "");
    ASHLAR_IGNORE(ashlar__options_parse(options, OPTION_COUNT, 2, argv));
}

static void take_saved_flag(const ashlar_checkpoint *file, const char *key, const char *set,
                            const char *name) {
    const char *value = saved_value(file, key);
    if (value != NULL && (set == NULL || strcmp(value, set) == 0)) {
        take_saved(name, NULL);
    }
}

/* Set all options that the file has. Most are saved under their names, with "_" for "-". */
static void take_all_saved(const ashlar_checkpoint *file) {
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        char key[SAVED_BYTES];
        (void)snprintf(key, sizeof key, "%s", options[i].name);
        for (char *dash = strchr(key, '-'); dash != NULL; dash = strchr(dash, '-')) {
            *dash = '_';
        }
        const char *value = saved_value(file, key);
        if (value != NULL && options[i].kind != ASHLAR_OPTION_FLAG) {
            take_saved(options[i].name, value);
        }
    }
    const char *steps = saved_value(file, "schedule_steps");
    if (steps != NULL) {
        take_saved("steps", steps);
    }
    take_saved_flag(file, "without_bias_decay", "1", "no-bias-decay");
    take_saved_flag(file, "nesterov", "1", "nesterov");
    take_saved_flag(file, "shards", NULL, "reproducible");
    if (saved_value(file, "held_out") == NULL) {
        given.train.held_out = 0;
    }
}

/* Set the defaults, replaced by the options of a training to resume. A file
 * that cannot be read makes resuming fail later, and says why. */
static void set_defaults(int argc, char **argv) {
    const char *path = ashlar__options_given("resume", argc, argv);
    ashlar_checkpoint *file = NULL;
    if (path != NULL && ashlar_checkpoint_open(path, &file) != ASHLAR_OK) {
        file = NULL;
    }
    given = defaults();
    if (file != NULL && saved_value(file, "layers") != NULL) {
        take_all_saved(file);
    }
    ashlar_checkpoint_close(file);
}

ashlar_status ashlar__train_command_read(int argc, char **argv, ashlar_train_command *out) {
    set_defaults(argc, argv);
    ASHLAR_TRY(ashlar__options_parse(options, OPTION_COUNT, argc, argv));
    if (!given.wants_help) {
        ASHLAR_TRY(read_stack(&given));
        ASHLAR_TRY(read_recompute(&given));
        ASHLAR_TRY(read_fit(&given));
        ASHLAR_TRY(ashlar__train_rule_apply(&given.rule, &given.train));
        ASHLAR_TRY(check_command(&given));
    }
    *out = given;
    return ASHLAR_OK;
}

ashlar_status ashlar__train_command_check_writable(const ashlar_train_command *c) {
    output outputs[OUTPUT_COUNT];
    list_outputs(c, outputs);
    for (size_t i = 0; i < OUTPUT_COUNT; i++) {
        const bool is_report = outputs[i].path == c->json;
        ASHLAR_TRY((is_report ? ashlar__program_check_report
                              : ashlar__program_check_writable)(outputs[i].path));
    }
    return ASHLAR_OK;
}

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
    ASHLAR_TRY(find_optimizer(rule->optimizer, &config->optimizer.kind));
    ASHLAR_TRY(find_schedule(rule->schedule, &schedule->kind));
    schedule->rate = config->optimizer.learning_rate;
    schedule->total_steps = config->steps;
    schedule->warmup_steps = rule->warmup_steps;
    schedule->floor = rule->floor;
    schedule->step_size = rule->step_size;
    schedule->gamma = rule->gamma;
    ASHLAR_TRY(ashlar_schedule_check(schedule));
    return ashlar_optimizer_check(&config->optimizer);
}
