/* train_command.c - the command line of ashlar-train: its options, their defaults and checks. */
#include "rnn/programs/train_command.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "allocator/base/error.h"
#include "rnn/layer/blas.h"
#include "rnn/programs/program.h"

/* The defaults. Some options that both models have differ in their defaults. */
static ashlar_train_command defaults(bool is_tagger) {
    ashlar_train_command c = {
        .model = is_tagger ? "tagger" : "text",
        .is_tagger = is_tagger,
        .train = {.layers = 2,
                  .hidden = 256,
                  .embedding = 64,
                  .batch = 16,
                  .max_length = 256,
                  .accumulate = 1,
                  .steps = 800,
                  .seed = 1,
                  .buckets = 1,
                  .report = ashlar__program_print_report},
        .rule = {.optimizer = ashlar_optimizer_name(ASHLAR_OPTIMIZER_ADAMW),
                 .schedule = "constant",
                 .step_size = 1000,
                 .gamma = 0.1},
        .cell = ashlar_rnn_cell_name(ASHLAR_RNN_LSTM),
        .dtype = "f32",
        .recompute = "0",
        .sample_bytes = 400,
        .threads = (size_t)ashlar__blas_threads(),
    };
    ashlar_optimizer_defaults(ASHLAR_OPTIMIZER_ADAMW, &c.train.optimizer);
    c.train.optimizer.learning_rate = 0.004;
    c.train.optimizer.clip_norm = 1.0;
    ashlar_train_config of_tagger = c.train;
    ashlar__train_tagger_set_defaults(&of_tagger, &c.tags);
    c.train = is_tagger ? of_tagger : c.train;
    return c;
}

/* The options of both models come first, then a text's, then a tagger's. */
enum {
    MODEL_COUNT = 11,
    RULE_COUNT = 13,
    RUN_COUNT = 16,
    SHARED_COUNT = MODEL_COUNT + RULE_COUNT + RUN_COUNT,
    TEXT_COUNT = 6,
    OPTION_COUNT = SHARED_COUNT + TEXT_COUNT + ASHLAR_TRAIN_TAGGER_OPTION_COUNT
};

static void list_model_options(ashlar_train_command *c, ashlar_option *options) {
    const ashlar_option_kind count = ASHLAR_OPTION_COUNT, real = ASHLAR_OPTION_REAL,
                             text = ASHLAR_OPTION_TEXT;
    ashlar_train_config *t = &c->train;
    const ashlar_option all[] = {
        {"data", "PATH", ASHLAR_OPTION_LIST, &c->data, 0, 0,
         "a text file or folder, or a column file; repeatable"},
        {"model", "NAME", text, &c->model, 0, 0, "text, tagger"},
        {"steps", "N", count, &t->steps, 1, 1e9, "training steps"},
        {"batch", "N", count, &t->batch, 1, 65536, "sequences per step"},
        {"max-length", "N", count, &t->max_length, 1, 1e6,
         "longer ones are cut into pieces; tagger: refused"},
        {"cell", "NAME", text, &c->cell, 0, 0, "lstm, gru, tanh, relu"},
        {"layers", "N", count, &t->layers, 1, 64, "recurrent layers"},
        {"hidden", "N", count, &t->hidden, 1, 16384, "width of a layer"},
        {"projection", "N", count, &t->projection, 0, 16384,
         "width of an LSTM's output, 0: as hidden"},
        {"dropout", "X", real, &t->dropout, 0, 0.99, "share of outputs dropped between layers"},
        {"embedding", "N", count, &t->embedding, 1, 16384, "width of a symbol's vector, a word's"},
    };
    ASHLAR_TABLE_IS_FULL(all, MODEL_COUNT);
    memcpy(options, all, sizeof all);
}

static void list_rule_options(ashlar_train_command *c, ashlar_option *options) {
    const ashlar_option_kind count = ASHLAR_OPTION_COUNT, real = ASHLAR_OPTION_REAL,
                             text = ASHLAR_OPTION_TEXT, flag = ASHLAR_OPTION_FLAG;
    ashlar_train_config *t = &c->train;
    const ashlar_option all[] = {
        {"optimizer", "NAME", text, &c->rule.optimizer, 0, 0, "sgd, adam, adamw, adagrad, rmsprop"},
        {"learning-rate", "X", real, &t->optimizer.learning_rate, 1e-12, 10, "the highest one"},
        {"weight-decay", "X", real, &t->optimizer.weight_decay, 0, 10, "of any optimizer"},
        {"no-bias-decay", NULL, flag, &t->without_bias_decay, 0, 0, "of matrices only"},
        {"momentum", "X", real, &t->optimizer.momentum, 0, 0.9999, "of sgd and rmsprop"},
        {"nesterov", NULL, flag, &t->optimizer.nesterov, 0, 0, "look ahead, sgd with momentum"},
        {"clip", "X", real, &t->optimizer.clip_norm, 0, 1e9,
         "gradient norm to clip at, 0: not at all"},
        {"loss-scale", "X", real, &t->optimizer.loss_scale, 0, 1e30,
         "scale gradients by this at first, 0: not"},
        {"schedule", "NAME", text, &c->rule.schedule, 0, 0, "of the rate: constant, cosine, step"},
        {"warmup-steps", "N", count, &c->rule.warmup_steps, 0, 1e9, "in which the rate rises"},
        {"rate-floor", "X", real, &c->rule.floor, 0, 1, "cosine: share of the rate at the end"},
        {"rate-every", "N", count, &c->rule.step_size, 1, 1e9, "step: so often, multiply the rate"},
        {"rate-factor", "X", real, &c->rule.gamma, 1e-9, 1, "step: by this"},
    };
    ASHLAR_TABLE_IS_FULL(all, RULE_COUNT);
    memcpy(options, all, sizeof all);
}

static void list_run_options(ashlar_train_command *c, ashlar_option *options) {
    const ashlar_option_kind count = ASHLAR_OPTION_COUNT, text = ASHLAR_OPTION_TEXT,
                             flag = ASHLAR_OPTION_FLAG;
    ashlar_train_config *t = &c->train;
    const ashlar_option all[] = {
        {"seed", "N", ASHLAR_OPTION_SEED, &t->seed, 0, 0, "of weights, batches and sample"},
        {"buckets", "N", count, &t->buckets, 1, 1e6, "ranges of lengths with a memory plan each"},
        {"no-plan", NULL, flag, &t->without_plan, 0, 0,
         "serve each block by itself, not from a plan of the step"},
        {"plan", "FILE", text, &t->plan_file, 0, 0, "keep the memory plan there for the next time"},
        {"threads", "N", count, &c->threads, 1, 1024, "threads that compute on the CPU"},
        {"device", "NAME", text, &c->device, 0, 0, "auto, soft, soft:N, cuda, cuda:N"},
        {"save", "FILE", text, &t->save_file, 0, 0, "write the training there (safetensors)"},
        {"save-every", "N", count, &t->save_every, 0, 1e9, "steps; 0: only at the end"},
        {"resume", "FILE", text, &t->resume_file, 0, 0, "go on with a training that was saved"},
        {"losses", "FILE", text, &c->losses, 0, 0, "write each step's loss there"},
        {"json", "FILE", text, &c->json, 0, 0, "write the report there"},
        {"snapshot", "FILE", text, &c->snapshot, 0, 0,
         "write what the memory holds there (pickle)"},
        {"map", NULL, flag, &c->wants_map, 0, 0, "print where each weight lies"},
        {"memory", NULL, flag, &c->wants_memory, 0, 0,
         "print what each kind of memory takes and grows by"},
        {"quiet", NULL, flag, &c->is_quiet, 0, 0, "print nothing but errors"},
        {"help", NULL, flag, &c->wants_help, 0, 0, "print this"},
    };
    ASHLAR_TABLE_IS_FULL(all, RUN_COUNT);
    memcpy(options, all, sizeof all);
}

static void list_text_options(ashlar_train_command *c, ashlar_option *options) {
    const ashlar_option_kind count = ASHLAR_OPTION_COUNT, text = ASHLAR_OPTION_TEXT;
    ashlar_train_config *t = &c->train;
    const ashlar_option all[] = {
        {"dtype", "NAME", text, &c->dtype, 0, 0, "text: f32, f64; on a GPU also f16, bf16"},
        {"stride", "N", count, &t->stride, 0, 1e6,
         "text: a piece begins every N steps; 0: no overlap"},
        {"accumulate", "N", count, &t->accumulate, 1, 65536,
         "text: pieces that a batch is worked off in"},
        {"bptt", "K", count, &t->bptt, 0, 1e6,
         "text: update every K steps, carry states on, 0: not"},
        {"recompute", "K", text, &c->recompute, 0, 0,
         "text: hold K steps, run others twice; auto: 2 roots"},
        {"sample", "N", count, &c->sample_bytes, 0, 1e9, "text: bytes of it to make at the end"},
    };
    ASHLAR_TABLE_IS_FULL(all, TEXT_COUNT);
    memcpy(options, all, sizeof all);
}

static void list_options(ashlar_train_command *c, ashlar_option options[static OPTION_COUNT]) {
    list_model_options(c, options);
    list_rule_options(c, options + MODEL_COUNT);
    list_run_options(c, options + MODEL_COUNT + RULE_COUNT);
    list_text_options(c, options + SHARED_COUNT);
    ashlar__train_tagger_list_options(&c->tags, options + SHARED_COUNT + TEXT_COUNT);
}

void ashlar__train_command_print_help(FILE *out, const char *program, bool is_tagger) {
    ashlar_train_command fresh = defaults(is_tagger);
    ashlar_option options[OPTION_COUNT];
    list_options(&fresh, options);
    fprintf(out,
            "Usage: %s --data PATH [OPTION]...   train a character RNN on text\n"
            "       %s --model tagger --data FILE [OPTION]...   a tagger on words\n",
            program, program);
    ashlar__options_print(out, options, SHARED_COUNT + (is_tagger ? 0 : TEXT_COUNT));
    if (is_tagger) {
        ashlar__options_print(out, options + SHARED_COUNT + TEXT_COUNT,
                              ASHLAR_TRAIN_TAGGER_OPTION_COUNT);
    } else {
        fprintf(out, "A tagger's own options, and its defaults: %s --model tagger --help\n",
                program);
    }
    fprintf(out, "Environment: ASHLAR_DEVICE, ASHLAR_SOFT, ASHLAR_THREADS.\n"
                 "Exit: 0, 1 failed, 2 a bad option.\n");
}

/* ---- what goes together ---- */

/* A file to be written. */
typedef struct output {
    const char *option;
    const char *path; /* NULL: not wanted */
} output;

enum { OUTPUT_COUNT = 5 };

static void list_outputs(const ashlar_train_command *c, output outputs[static OUTPUT_COUNT]) {
    outputs[0] = (output){"json", c->json};
    outputs[1] = (output){"save", c->train.save_file};
    outputs[2] = (output){"snapshot", c->snapshot};
    outputs[3] = (output){"plan", c->train.plan_file};
    outputs[4] = (output){"losses", c->losses};
}

/* An output must differ from the texts to train on, from the outputs after it up to `end`, and from
 * the resumed file; only --save may name the resumed file. */
static ashlar_status check_output(const ashlar_train_command *c, const output *o,
                                  const output *end) {
    for (size_t i = 0; o->path != NULL && i < c->data.count; i++) {
        if (ashlar__program_is_same_file(o->path, c->data.items[i])) {
            return ashlar__fail(ASHLAR_EINVAL,
                                "--%s: %s is the text to train on; name another file", o->option,
                                o->path);
        }
    }
    const char *resume = c->train.resume_file;
    if (o->path != NULL && resume != NULL && o->path != c->train.save_file &&
        ashlar__program_is_same_file(o->path, resume)) {
        return ashlar__fail(ASHLAR_EINVAL,
                            "--%s and --resume: both name %s; give each its own file", o->option,
                            o->path);
    }
    for (const output *other = o + 1; o->path != NULL && other < end; other++) {
        if (other->path != NULL && ashlar__program_is_same_file(o->path, other->path)) {
            return ashlar__fail(ASHLAR_EINVAL,
                                "--%s and --%s: both name %s; give each its own file", o->option,
                                other->option, o->path);
        }
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

/* Read and check the options of the recurrent stack. */
static ashlar_status read_stack(ashlar_train_command *c) {
    const ashlar_train_config *t = &c->train;
    if (ashlar_rnn_cell_parse(c->cell, &c->train.cell) != ASHLAR_OK) {
        return ashlar__fail(ASHLAR_EINVAL, "--cell: \"%.40s\" is none of lstm, gru, tanh, relu",
                            c->cell);
    }
    if (!read_dtype(c->dtype, &c->train.dtype)) {
        return ashlar__fail(ASHLAR_EINVAL, "--dtype: \"%.40s\" is none of f32, f64, f16, bf16",
                            c->dtype);
    }
    if (t->projection > 0 && (t->cell != ASHLAR_RNN_LSTM || t->projection >= t->hidden)) {
        return ashlar__fail(ASHLAR_EINVAL,
                            "--projection: %zu; it is for --cell lstm, and below --hidden %zu",
                            t->projection, t->hidden);
    }
    return ASHLAR_OK;
}

/* Read the value of --recompute: a count, or "auto". */
static ashlar_status read_recompute(ashlar_train_command *c) {
    ashlar_train_config *t = &c->train;
    char *end = NULL;
    t->recomputes_auto = strcmp(c->recompute, "auto") == 0;
    const bool is_count = c->recompute[0] >= '0' && c->recompute[0] <= '9';
    const unsigned long long steps = is_count ? strtoull(c->recompute, &end, 10) : 0;
    if (!t->recomputes_auto && (!is_count || *end != '\0' || steps > 1000000)) {
        return ashlar__fail(
            ASHLAR_EINVAL,
            "--recompute: \"%.40s\" is neither auto nor a number of steps from 0 to "
            "1000000",
            c->recompute);
    }
    t->recompute = (size_t)steps;
    if (t->batch % t->accumulate != 0) {
        return ashlar__fail(ASHLAR_EINVAL,
                            "--accumulate: %zu does not divide the %zu sequences of --batch",
                            t->accumulate, t->batch);
    }
    return ASHLAR_OK;
}

/* Check combinations of options. */
static ashlar_status check_command(const ashlar_train_command *c) {
    output outputs[OUTPUT_COUNT];
    if (c->data.count == 0) {
        return ashlar__fail(ASHLAR_EINVAL,
                            "--data: no text given; name a file or a folder, see --help");
    }
    if (c->train.plan_file != NULL && c->train.without_plan) {
        return ashlar__fail(ASHLAR_EINVAL, "--plan and --no-plan: leave out one of them");
    }
    if (c->train.save_every != 0 && c->train.save_file == NULL) {
        return ashlar__fail(ASHLAR_EINVAL, "--save-every: where to? name a file with --save");
    }
    list_outputs(c, outputs);
    for (size_t i = 0; i < OUTPUT_COUNT; i++) {
        ASHLAR_TRY(check_output(c, &outputs[i], outputs + OUTPUT_COUNT));
    }
    return ASHLAR_OK;
}

/* Fail if an option is given that only the other model has. */
static ashlar_status check_model(const ashlar_train_command *c, const ashlar_option *options,
                                 int argc, char **argv) {
    const size_t text_end = SHARED_COUNT + TEXT_COUNT;
    const size_t first = c->is_tagger ? SHARED_COUNT : text_end;
    const size_t end = c->is_tagger ? text_end : OPTION_COUNT;
    if (strcmp(c->model, c->is_tagger ? "tagger" : "text") != 0) {
        return ashlar__fail(ASHLAR_EINVAL, "--model: \"%.40s\" is neither text nor tagger",
                            c->model);
    }
    for (size_t i = first; i < end; i++) {
        if (ashlar__options_given(options[i].name, argc, argv) != NULL) {
            return ashlar__fail(ASHLAR_EINVAL, "--%s: it is for --model %s only", options[i].name,
                                c->is_tagger ? "text" : "tagger");
        }
    }
    return c->is_tagger ? ashlar__train_tagger_check_options(&c->tags) : ASHLAR_OK;
}

ashlar_status ashlar__train_command_read(int argc, char **argv, ashlar_train_command *out) {
    const char *model = ashlar__options_given("model", argc, argv); /* sets the defaults */
    ashlar_train_command c = defaults(model != NULL && strcmp(model, "tagger") == 0);
    ashlar_option options[OPTION_COUNT];
    list_options(&c, options);
    ASHLAR_TRY(ashlar__options_parse(options, OPTION_COUNT, argc, argv));
    ASHLAR_TRY(check_model(&c, options, argc, argv));
    if (!c.wants_help) {
        ASHLAR_TRY(read_stack(&c));
        ASHLAR_TRY(read_recompute(&c));
        ASHLAR_TRY(ashlar__train_rule_apply(&c.rule, &c.train));
        ASHLAR_TRY(check_command(&c));
    }
    *out = c;
    return ASHLAR_OK;
}

ashlar_status ashlar__train_command_check_writable(const ashlar_train_command *c) {
    output outputs[OUTPUT_COUNT];
    list_outputs(c, outputs);
    for (size_t i = 0; i < OUTPUT_COUNT; i++) {
        ASHLAR_TRY(ashlar__program_check_writable(outputs[i].path));
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
