/* fit.c - finds the largest training that runs on a device of a given size, by dry warm-ups. */
#include "rnn/programs/train_program.h"

#include <ashlar/plan.h>
#include <string.h>

#include "allocator/base/error.h"
#include "allocator/base/json.h"
#include "rnn/data/batcher.h"

#define MIB 1048576.0

enum { LENGTH_MAX = 1000000 };

/* Nothing is written to this device's memory, so it may be larger than the host's. */
static const char soft_device[] = "memory=1TiB,touch=off";

/* What --vary names: its option, the field, and the largest value; 0: what the text has. */
static const struct {
    const char *option;
    size_t offset, most;
} varied[] = {
    [ASHLAR_VARY_BATCH] = {"batch", offsetof(ashlar_train_config, batch), 65536},
    [ASHLAR_VARY_LENGTH] = {"max-length", offsetof(ashlar_train_config, max_length), 0},
    [ASHLAR_VARY_HIDDEN] = {"hidden", offsetof(ashlar_train_config, hidden), 16384},
};
ASHLAR_TABLE_IS_FULL(varied, ASHLAR_VARY_COUNT);

/* A training of which one option's value (batch, length or width) is varied. */
typedef struct fitting {
    const ashlar_train_command *command;
    ashlar_train_config train; /* the training's options; trials change only the varied one */
    ashlar_device *device;
    ashlar_corpus *text;
    ashlar_vary vary;
    size_t unit; /* the varied value is a multiple of this */
    size_t largest, most;     /* the largest value that ran, on the largest device ... */
    ashlar_model_tiers tiers; /* ... with --memory in these, ... */
    size_t state_bytes;       /* ... and so much of the optimizer's on the host */
} fitting;

static size_t *varied_of(ashlar_train_config *train, ashlar_vary what) {
    return (size_t *)(void *)((char *)train + varied[what].offset);
}

static ashlar_status open_fitting(fitting *f) {
    const ashlar_train_command *c = f->command;
    ashlar_checkpoint *file;
    if (c->train.resume_file != NULL) { /* its options are read, if it can be read */
        ASHLAR_TRY(ashlar_checkpoint_open(c->train.resume_file, &file));
        ashlar_checkpoint_close(file);
    }
    ASHLAR_TRY(ashlar_soft_configure(soft_device));
    ASHLAR_TRY(ashlar_device_open("soft", &f->device));
    return ashlar__corpus_open(c->data.items, c->data.count, &f->text);
}

static void close_fitting(fitting *f) {
    ashlar__corpus_destroy(f->text);
    if (f->device != NULL) {
        ashlar_device_close(f->device);
    }
}

/* For ashlar_fit(): run a dry warm-up of the training with one value. */
static ashlar_status run(void *user, ashlar_allocator *allocator, size_t value) {
    fitting *f = user;
    ashlar_train_config train = f->train;
    ashlar_trainer *trainer;
    ashlar_stats stats;
    *varied_of(&train, f->vary) = value * f->unit;
    train.measured = allocator;
    train.resume_file = train.save_file = NULL;
    ashlar_status status = ashlar__trainer_create(f->device, f->text, &train, &trainer);
    if (status == ASHLAR_OK) {
        status = ashlar__trainer_measure(trainer);
        ashlar_allocator_get_stats(allocator, &stats);
        if (status == ASHLAR_OK && stats.limit_bytes >= f->most && value >= f->largest) {
            f->largest = value;
            f->most = stats.limit_bytes;
            status = ashlar__trainer_tiers(trainer, &f->tiers, &f->state_bytes);
        }
        ashlar__trainer_destroy(trainer);
    }
    return status == ASHLAR_EOVERFLOW ? ASHLAR_ENOMEM : status; /* too large to be addressed */
}

/* The length of the text's longest record: a larger --max-length changes nothing. */
static ashlar_status longest_piece(const fitting *f, size_t *out) {
    const ashlar_batcher_config whole = {.batch = 1, .max_steps = LENGTH_MAX};
    ashlar_batcher *batcher;
    ASHLAR_TRY(ashlar__batcher_create(f->text, &whole, &batcher));
    *out = ashlar__batcher_max_steps(batcher);
    ashlar__batcher_destroy(batcher);
    return ASHLAR_OK;
}

static ashlar_status set_range(fitting *f, ashlar_fit_options *o) {
    const ashlar_train_config *t = &f->train;
    f->unit = f->vary == ASHLAR_VARY_BATCH && t->accumulate > 1 ? t->accumulate : 1;
    o->min_value = f->vary == ASHLAR_VARY_HIDDEN ? t->projection + 1 : 1;
    o->max_value = varied[f->vary].most / f->unit;
    if (f->vary == ASHLAR_VARY_LENGTH) {
        o->min_value = t->stride > 1 ? t->stride : 1;
        ASHLAR_TRY(longest_piece(f, &o->max_value));
        ASHLAR_FAIL_IF(o->min_value > o->max_value, ASHLAR_EINVAL,
                       "--vary length: the longest record has %zu steps, below --stride %zu",
                       o->max_value, o->min_value);
    }
    return ASHLAR_OK;
}

/* A bound on cuDNN's workspace: a constant for each layer, and the gates of all time steps of one
 * layer. */
static double cudnn_bytes(const fitting *f) {
    enum { OWN_BYTES = 8 << 20, GATES = 4 };
    const ashlar_train_config *t = &f->train;
    const double gates = (double)t->batch * (double)t->max_length * (double)t->hidden * GATES *
                         (double)ashlar_dtype_bytes(t->dtype);
    return OWN_BYTES * (double)t->layers + gates;
}

static ashlar_status find(fitting *f, ashlar_train_fitted *out) {
    ashlar_fit_options o = {.run = run, .user = f, .device_bytes = f->command->fit_bytes};
    ashlar_fit_result fit;
    ASHLAR_TRY(open_fitting(f));
    ASHLAR_TRY(set_range(f, &o));
    const ashlar_status status = ashlar_fit(f->device, &o, &fit);
    if (status == ASHLAR_ENOMEM) {
        return ashlar__fail(status, "--fit: not even --%s %zu runs in %s: %s",
                            varied[f->vary].option, f->unit * o.min_value, f->command->fit,
                            ashlar_error_detail());
    }
    ASHLAR_TRY(status);
    *varied_of(&f->train, f->vary) = fit.value * f->unit;
    *out = (ashlar_train_fitted){.option = varied[f->vary].option,
                                 .value = fit.value * f->unit,
                                 .next = fit.value < o.max_value ? (fit.value + 1) * f->unit : 0,
                                 .need_bytes = fit.need_bytes,
                                 .trials = fit.trials,
                                 .tiers = f->tiers,
                                 .state_bytes = f->state_bytes,
                                 .cudnn_bytes = cudnn_bytes(f)};
    return ASHLAR_OK;
}

ashlar_status ashlar__train_fit_find(const ashlar_train_command *c, ashlar_train_fitted *out) {
    fitting f = {.command = c, .train = c->train, .vary = c->vary};
    const ashlar_status status = find(&f, out);
    close_fitting(&f);
    return status;
}

static void print_found(const ashlar_train_command *c, const ashlar_train_fitted *fit) {
    printf("--%s %zu needs %.2f MiB of %.2f MiB; ", fit->option, fit->value,
           (double)fit->need_bytes / MIB, (double)c->fit_bytes / MIB);
    if (fit->next != 0) {
        printf("--%s %zu needs more than there is.\n", fit->option, fit->next);
    } else {
        printf("%s.\n", c->vary == ASHLAR_VARY_LENGTH ? "no record of the text is longer"
                                                      : "that is the largest value there is");
    }
    if (c->train.has_memory) {
        printf("%.2f MiB of what a step keeps go to the host, and %.2f MiB are computed again;\n"
               "%.2f MiB of moments and masters are on the host, all in %.2f of the time with "
               "enough memory.\n",
               (double)fit->tiers.host_bytes / MIB, (double)fit->tiers.recomputed_bytes / MIB,
               (double)fit->state_bytes / MIB, fit->tiers.time);
    }
    printf("Found by %zu dry warm-ups for the CPU back end (--device soft), in units of 2 MiB.\n"
           "With cuDNN (--device cuda) it is an estimate: add up to %.2f MiB of work space, and "
           "what\nthe driver keeps for itself.\n",
           fit->trials, fit->cudnn_bytes / MIB);
}

static ashlar_status write_found(const ashlar_train_command *c, const ashlar_train_fitted *fit) {
    ashlar_json_writer w;
    ashlar__json_writer_init(&w, 2);
    ashlar__json_open_document(&w, "ashlar-fit/1");
    ASHLAR_JSON_ADD(&w, "option", fit->option);
    ASHLAR_JSON_ADD(&w, "value", fit->value);
    ASHLAR_JSON_ADD(&w, "need_bytes", fit->need_bytes);
    ASHLAR_JSON_ADD(&w, "trials", fit->trials);
    ASHLAR_JSON_ADD(&w, "cudnn_work_space_bytes", fit->cudnn_bytes);
    ASHLAR_JSON_ADD(&w, "is_largest_value", (bool)(fit->next == 0));
    ASHLAR_JSON_ADD(&w, "device_bytes", c->fit_bytes);
    if (c->train.has_memory) {
        ASHLAR_JSON_ADD(&w, "host_bytes", fit->tiers.host_bytes);
        ASHLAR_JSON_ADD(&w, "recomputed_bytes", fit->tiers.recomputed_bytes);
        ASHLAR_JSON_ADD(&w, "state_bytes", fit->state_bytes);
        ASHLAR_JSON_ADD(&w, "time", fit->tiers.time);
    }
    ashlar__json_close_object(&w);
    return ashlar__json_writer_end(&w, c->json);
}

ashlar_status ashlar__train_fit(const ashlar_train_command *c) {
    ashlar_train_fitted fit;
    ASHLAR_TRY(ashlar__train_fit_find(c, &fit));
    if (!c->is_quiet) {
        print_found(c, &fit);
    }
    return c->json != NULL ? write_found(c, &fit) : ASHLAR_OK;
}

/* The device memory that the training needs with its present options. */
static ashlar_status need_of(fitting *f, size_t *bytes) {
    ashlar_fit_options o = {.run = run, .user = f};
    ashlar_fit_result fit;
    f->unit = f->train.batch;
    o.min_value = o.max_value = 1;
    ASHLAR_TRY(ashlar_fit(f->device, &o, &fit));
    *bytes = fit.need_bytes;
    return ASHLAR_OK;
}

ashlar_status ashlar__train_fit_explain(const ashlar_train_command *c) {
    fitting f = {.command = c, .train = c->train, .vary = ASHLAR_VARY_BATCH};
    char detail[ASHLAR_DETAIL_BYTES], saved[96] = "";
    if (c->train.has_memory) {
        return ASHLAR_ENOMEM; /* the detail says all */
    }
    size_t need = 0, least = 0;
    (void)snprintf(detail, sizeof detail, "%s", ashlar_error_detail());
    ashlar_status status = open_fitting(&f);
    ASHLAR_THEN(status, need_of(&f, &need));
    if (status == ASHLAR_OK && c->train.recompute == 0 && !c->train.recomputes_auto) {
        f.train.has_memory = true;
        status = need_of(&f, &least);
        (void)snprintf(saved, sizeof saved, ", and with --memory auto %.2f MiB",
                       (double)least / MIB);
    }
    close_fitting(&f);
    return status == ASHLAR_OK
               ? ashlar__fail(ASHLAR_ENOMEM,
                              "%s; this training needs %.2f MiB with the CPU back end%s (--fit "
                              "finds what fits)",
                              detail, (double)need / MIB, saved)
               : ashlar__fail(ASHLAR_ENOMEM, "%s", detail);
}
