/* resumed_options.c - turns the metadata of a saved training into words of a command line. */
#include "rnn/programs/resumed_options.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <ashlar/checkpoint.h>

/* A key of the metadata without "ashlar.", and the option that decides about it. */
typedef struct saved_option {
    const char *key;
    const char *name;
    const char *flagged; /* of a flag: the saved value that means it was given, "": any value;
                          * NULL: the option is no flag */
} saved_option;

static const saved_option saved[] = {
    {"model", "model", NULL},
    {"cell", "cell", NULL},
    {"layers", "layers", NULL},
    {"hidden", "hidden", NULL},
    {"projection", "projection", NULL},
    {"dropout", "dropout", NULL},
    {"embedding", "embedding", NULL},
    {"dtype", "dtype", NULL},
    {"batch", "batch", NULL},
    {"max_length", "max-length", NULL},
    {"held_out", "held-out", NULL},
    {"stride", "stride", NULL},
    {"accumulate", "accumulate", NULL},
    {"bptt", "bptt", NULL},
    {"recompute", "recompute", NULL},
    {"seed", "seed", NULL},
    {"optimizer", "optimizer", NULL},
    {"learning_rate", "learning-rate", NULL},
    {"weight_decay", "weight-decay", NULL},
    {"without_bias_decay", "no-bias-decay", "1"},
    {"momentum", "momentum", NULL},
    {"nesterov", "nesterov", "1"},
    {"clip", "clip", NULL},
    {"loss_scale", "loss-scale", NULL},
    {"schedule", "schedule", NULL},
    {"schedule_steps", "steps", NULL},
    {"warmup_steps", "warmup-steps", NULL},
    {"rate_floor", "rate-floor", NULL},
    {"rate_every", "rate-every", NULL},
    {"rate_factor", "rate-factor", NULL},
    {"shards", "reproducible", ""}, /* whatever their number */
    {"char_embedding", "char-embedding", NULL},
    {"char_hidden", "char-hidden", NULL},
    {"directions", "unidirectional", "1"},
};
_Static_assert(sizeof saved / sizeof saved[0] + 2 <= ASHLAR_RESUMED_OPTIONS_MAX, "there is room");

static void add(ashlar_resumed_options *out, const char *name, const char *value) {
    char *word = out->words[out->count];
    const int bytes = snprintf(word, ASHLAR_RESUMED_OPTION_BYTES, "--%s%s%s", name,
                               value != NULL ? "=" : "", value != NULL ? value : "");
    out->count += bytes > 0 && bytes < ASHLAR_RESUMED_OPTION_BYTES;
}

static const char *value_of(const ashlar_checkpoint *file, const char *key) {
    char full[ASHLAR_RESUMED_OPTION_BYTES];
    (void)snprintf(full, sizeof full, "ashlar.%s", key);
    return ashlar_checkpoint_metadata(file, full);
}

/* A tagger that is not fed its labels has saved a width of 0. */
static void add_fed_labels(ashlar_resumed_options *out, const ashlar_checkpoint *file) {
    const char *width = value_of(file, "label_embedding");
    if (width != NULL && strcmp(width, "0") != 0) {
        add(out, "feed-labels", NULL);
        add(out, "label-embedding", width);
    }
}

void ashlar__resumed_options_read(const char *path, ashlar_resumed_options *out) {
    ashlar_checkpoint *file = NULL;
    out->count = 0;
    if (ashlar_checkpoint_open(path, &file) != ASHLAR_OK) {
        return;
    }
    for (size_t i = 0; i < sizeof saved / sizeof saved[0]; i++) {
        const saved_option *o = &saved[i];
        const char *value = value_of(file, o->key);
        if (value != NULL && o->flagged == NULL) {
            add(out, o->name, value);
        } else if (value != NULL && (*o->flagged == '\0' || strcmp(value, o->flagged) == 0)) {
            add(out, o->name, NULL);
        }
    }
    add_fed_labels(out, file);
    const bool is_text = value_of(file, "layers") != NULL && value_of(file, "model") == NULL;
    if (is_text && value_of(file, "held_out") == NULL) {
        add(out, "held-out", "0"); /* as in a file from before there was the option */
    }
    ashlar_checkpoint_close(file);
}

const char *ashlar__resumed_options_find(const ashlar_resumed_options *options, const char *name) {
    const size_t bytes = strlen(name);
    for (size_t i = 0; i < options->count; i++) {
        const char *word = options->words[i] + 2;
        if (strncmp(word, name, bytes) == 0 && word[bytes] == '=') {
            return word + bytes + 1;
        }
    }
    return NULL;
}
