/* train_checkpoint.c - saves a training in a file, and reads it back to resume. */
#include "rnn/train/train_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/error.h"
#include "allocator/base/random.h"

/* ---- metadata: texts under keys ---- */

enum { METADATA_MAX = 64, TEXT_BYTES = 768 };

typedef struct metadata {
    ashlar_checkpoint_pair pairs[METADATA_MAX]; /* pairs[i].value is texts[i] */
    char texts[METADATA_MAX][TEXT_BYTES];
    size_t count;
} metadata;

/* TEXT_BYTES bytes for the caller to print a value into. */
static char *add(metadata *f, const char *key) {
    ASHLAR_ASSERT(f->count < METADATA_MAX);
    char *text = f->texts[f->count];
    f->pairs[f->count++] = (ashlar_checkpoint_pair){key, text};
    return text;
}

static void add_text(metadata *f, const char *key, const char *value) {
    (void)snprintf(add(f, key), TEXT_BYTES, "%s", value);
}

static void add_count(metadata *f, const char *key, uint64_t value) {
    (void)snprintf(add(f, key), TEXT_BYTES, "%" PRIu64, value);
}

/* Use the fewest digits that restore the number, since people read the text, too. */
static void add_real(metadata *f, const char *key, double value) {
    char *text = add(f, key);
    int digits = 0;
    do {
        digits++;
        (void)snprintf(text, TEXT_BYTES, "%.*g", digits, value);
    } while (digits < 17 && strtod(text, NULL) != value);
}

/* ---- the options ---- */

/* The options of model and batches. */
static void add_options(metadata *f, const ashlar_trainer *t) {
    const ashlar_train_config *c = &t->config;
    add_text(f, "ashlar.cell", ashlar_rnn_cell_name(c->cell));
    add_count(f, "ashlar.projection", c->projection);
    add_real(f, "ashlar.dropout", c->dropout);
    add_count(f, "ashlar.layers", c->layers);
    add_count(f, "ashlar.hidden", c->hidden);
    add_count(f, "ashlar.embedding", c->embedding);
    add_count(f, "ashlar.batch", c->batch);
    add_count(f, "ashlar.max_length", c->max_length);
    add_count(f, "ashlar.stride", c->stride);
    if (c->held_out > 0) {
        add_count(f, "ashlar.held_out", c->held_out);
    }
    add_count(f, "ashlar.accumulate", c->accumulate == 0 ? 1 : c->accumulate);
    add_count(f, "ashlar.bptt", t->batches.split.part);
    add_count(f, "ashlar.recompute", t->batches.chunk);
    if (c->dtype != ASHLAR_F32) {
        add_text(f, "ashlar.dtype", ashlar_dtype_name(c->dtype));
    }
}

#define TEXT(name, text) text,
static const char *const schedules[] = {ASHLAR_SCHEDULE_MAP(TEXT)};

const char *ashlar__train_optimizer_name(ashlar_optimizer_kind kind) {
    static const char *const names[] = {ASHLAR_OPTIMIZER_MAP(TEXT)};
    return names[kind];
}

static void add_optimizer(metadata *f, const ashlar_optimizer_config *o) {
    add_text(f, "ashlar.optimizer", ashlar__train_optimizer_name(o->kind));
    add_real(f, "ashlar.learning_rate", o->learning_rate);
    add_real(f, "ashlar.momentum", o->momentum);
    add_real(f, "ashlar.dampening", o->dampening);
    add_count(f, "ashlar.nesterov", o->nesterov);
    add_real(f, "ashlar.beta1", o->beta1);
    add_real(f, "ashlar.beta2", o->beta2);
    add_real(f, "ashlar.smoothing", o->smoothing);
    add_real(f, "ashlar.rate_decay", o->rate_decay);
    add_real(f, "ashlar.epsilon", o->epsilon);
    add_real(f, "ashlar.weight_decay", o->weight_decay);
    add_real(f, "ashlar.clip", o->clip_norm);
    add_real(f, "ashlar.loss_scale", o->loss_scale);
    add_real(f, "ashlar.scale_growth", o->scale_growth);
    add_real(f, "ashlar.scale_backoff", o->scale_backoff);
    add_count(f, "ashlar.scale_interval", o->scale_interval);
}

/* Add only options that past learning rates depend on: a resumed training may have more steps. */
static void add_schedule(metadata *f, const ashlar_schedule *s) {
    add_text(f, "ashlar.schedule", schedules[s->kind]);
    add_real(f, "ashlar.schedule_rate", s->rate);
    add_count(f, "ashlar.warmup_steps", s->warmup_steps);
    if (s->kind == ASHLAR_SCHEDULE_COSINE) {
        add_count(f, "ashlar.schedule_steps", s->total_steps);
        add_real(f, "ashlar.rate_floor", s->floor);
    }
    if (s->kind == ASHLAR_SCHEDULE_STEP) {
        add_count(f, "ashlar.rate_every", s->step_size);
        add_real(f, "ashlar.rate_factor", s->gamma);
    }
}

static void add_config(metadata *f, ashlar_trainer *t) {
    const ashlar_train_config *c = &t->config;
    add_options(f, t);
    if (t->data[0] == '\0') { /* only now, since it reads all data */
        const ashlar_corpus *text = t->batches.corpus;
        (void)snprintf(t->data, sizeof t->data, "%zu records, %zu bytes, %016" PRIx64,
                       ashlar__corpus_count(text), ashlar__corpus_bytes(text),
                       ashlar__corpus_checksum(text));
    }
    add_text(f, "ashlar.text", t->data);
    add_optimizer(f, &c->optimizer);
    add_count(f, "ashlar.without_bias_decay", c->without_bias_decay);
    if (c->shards > 0) {
        add_count(f, "ashlar.shards", c->shards);
    }
    add_schedule(f, &c->schedule);
}

/* The same and the seed, which is saved with the progress. */
static void add_facts(metadata *f, ashlar_trainer *t) {
    add_config(f, t);
    add_count(f, "ashlar.seed", t->config.seed);
}

static uint64_t mix_text(uint64_t sum, const char *text) {
    for (; *text != '\0'; text++) {
        sum = ashlar__random_mix(sum + (unsigned char)*text);
    }
    return ashlar__random_mix(sum);
}

uint64_t ashlar__train_checkpoint_facts(ashlar_trainer *t) {
    metadata all = {.count = 0};
    add_facts(&all, t);
    uint64_t sum = t->config.steps;
    for (size_t i = 0; i < all.count; i++) {
        sum = mix_text(mix_text(sum, all.pairs[i].key), all.pairs[i].value);
    }
    return sum;
}

#define NO_GOOD "%s: no good %s in its metadata; resume from a file that ashlar-train --save wrote"

/* Check that the file has the same pairs. `when` and `remedy` are for the message. */
static ashlar_status check_same(const char *path, const ashlar_checkpoint *file,
                                const metadata *want, const char *when, const char *remedy) {
    for (size_t i = 0; i < want->count; i++) {
        const ashlar_checkpoint_pair *pair = &want->pairs[i];
        const char *got = ashlar_checkpoint_metadata(file, pair->key);
        ASHLAR_FAIL_IF(got == NULL, ASHLAR_EFORMAT, NO_GOOD, path, pair->key);
        ASHLAR_FAIL_IF(strcmp(got, pair->value) != 0, ASHLAR_EFORMAT,
                       "%s: %s%s is %.80s there, and %s here; %s", path, when, pair->key, got,
                       pair->value, remedy);
    }
    return ASHLAR_OK;
}

#define GO_ON "a training goes on with the options and the data that it began with"

/* Check what only the file has, or only `here`: options that are added where they are not these. */
static ashlar_status check_unset(const char *path, const ashlar_checkpoint *file,
                                 const metadata *here) {
    static const char *const unset[][2] = {
        {"ashlar.held_out", "0"}, {"ashlar.dtype", "F32"}, {"ashlar.shards", "0"}};
    for (size_t i = 0; i < sizeof unset / sizeof unset[0]; i++) {
        const char *key = unset[i][0], *got = ashlar_checkpoint_metadata(file, key), *want = NULL;
        for (size_t k = 0; k < here->count; k++) {
            want = strcmp(here->pairs[k].key, key) == 0 ? here->pairs[k].value : want;
        }
        ASHLAR_FAIL_IF((got == NULL) != (want == NULL), ASHLAR_EFORMAT,
                       "%s: %s is %.80s there, and %s here; " GO_ON, path, key,
                       got != NULL ? got : unset[i][1], want != NULL ? want : unset[i][1]);
    }
    return ASHLAR_OK;
}

_Static_assert(ASHLAR_TRAIN_RECENT * 2 * 32 <= TEXT_BYTES, "the recent losses fit");

static void add_recent(metadata *f, const ashlar_train_state *state) {
    char *text = add(f, "ashlar.recent");
    size_t at = 0;
    for (size_t i = 0; i < ASHLAR_TRAIN_RECENT; i++) {
        at += (size_t)snprintf(text + at, TEXT_BYTES - at, "%s%a %a", i > 0 ? " " : "",
                               state->nats[i], state->tokens[i]);
    }
}

static ashlar_status read_recent(const char *path, const ashlar_checkpoint *file,
                                 ashlar_train_state *state) {
    const char *next = ashlar_checkpoint_metadata(file, "ashlar.recent");
    double tokens = 0;
    for (size_t i = 0; i < 2 * ASHLAR_TRAIN_RECENT; i++) {
        char *end = NULL;
        const double value = next != NULL ? strtod(next, &end) : NAN;
        ASHLAR_FAIL_IF(end == next || !isfinite(value) || value < 0, ASHLAR_EFORMAT, NO_GOOD, path,
                       "ashlar.recent");
        (i % 2 == 0 ? state->nats : state->tokens)[i / 2] = value;
        tokens += i % 2 == 0 ? 0 : value;
        next = end;
    }
    ASHLAR_FAIL_IF(*next != '\0' || tokens <= 0, ASHLAR_EFORMAT, NO_GOOD, path, "ashlar.recent");
    return ASHLAR_OK;
}

static void add_position(metadata *f, ashlar_random r) {
    (void)snprintf(add(f, "ashlar.random"), TEXT_BYTES,
                   "%016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %016" PRIx64, r.s[0], r.s[1],
                   r.s[2], r.s[3]);
}

/* Skip the batches drawn before, and check that the batcher is then at its old position. */
static ashlar_status find_place(const char *path, const ashlar_checkpoint *file,
                                ashlar_batcher *batcher, uint64_t step) {
    metadata here = {.count = 0};
    char when[48];
    ashlar__batcher_skip(batcher, step);
    add_position(&here, ashlar__batcher_random(batcher));
    (void)snprintf(when, sizeof when, "after %" PRIu64 " batches ", step);
    return check_same(path, file, &here, when,
                      "go on with the version of ashlar that wrote the file");
}

ashlar_status ashlar__trainer_save(ashlar_trainer *t, const char *path) {
    const ashlar_training_state state = {.step = t->state.step, .seed = t->config.seed};
    metadata all = {.count = 0};
    add_config(&all, t);
    add_position(&all, ashlar__train_drawn(t, t->state.step)->position);
    add_recent(&all, &t->state);
    /* As a training does that begins with the file: both draw the same from here on. */
    ASHLAR_TRY(
        ashlar_model_set_seed(t->model, ashlar__train_seed(t, t->state.step + 1), t->stream));
    return ashlar_training_save(t->arena, t->optimizer, path, &state, all.pairs, all.count,
                                t->stream);
}

static ashlar_status load(const char *path, ashlar_trainer *t, const ashlar_checkpoint *file) {
    metadata want = {.count = 0};
    ashlar_train_state state;
    ashlar_training_state saved;
    add_facts(&want, t);
    ASHLAR_TRY(check_unset(path, file, &want));
    ASHLAR_TRY(check_same(path, file, &want, "", GO_ON));
    ASHLAR_TRY(read_recent(path, file, &state));
    ASHLAR_TRY(ashlar_training_load(t->arena, t->optimizer, file, t->stream, &saved));
    ASHLAR_FAIL_IF(saved.step >= t->config.steps, ASHLAR_EINVAL,
                   "%s: %" PRIu64 " steps are done already; ask for more of them with --steps, "
                   "which counts from the beginning",
                   path, saved.step);
    ASHLAR_TRY(find_place(path, file, t->batches.batcher, saved.step));
    state.step = saved.step;
    state.optimizer = saved.optimizer;
    t->state = state;
    return ASHLAR_OK;
}

ashlar_status ashlar__train_checkpoint_load(const char *path, ashlar_trainer *t) {
    ashlar_checkpoint *file = NULL;
    ashlar_status status = ashlar_checkpoint_open(path, &file);
    if (status == ASHLAR_OK) {
        status = load(path, t, file);
        ashlar_checkpoint_close(file);
    }
    return status;
}
