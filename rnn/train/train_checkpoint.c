/* train_checkpoint.c - saves a training in a file, and reads it back to resume. */
#include "rnn/train/train_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/error.h"
#include "allocator/base/parse.h"
#include "allocator/base/random.h"
#include "rnn/train/task_options.h"

static void add_optimizer(ashlar_metadata *f, const ashlar_optimizer_config *o) {
    ashlar__metadata_add_text(f, "ashlar.optimizer", ashlar_optimizer_name(o->kind));
    ashlar__metadata_add_real(f, "ashlar.learning_rate", o->learning_rate);
    ashlar__metadata_add_real(f, "ashlar.momentum", o->momentum);
    ashlar__metadata_add_real(f, "ashlar.dampening", o->dampening);
    ashlar__metadata_add_count(f, "ashlar.nesterov", o->nesterov);
    ashlar__metadata_add_real(f, "ashlar.beta1", o->beta1);
    ashlar__metadata_add_real(f, "ashlar.beta2", o->beta2);
    ashlar__metadata_add_real(f, "ashlar.smoothing", o->smoothing);
    ashlar__metadata_add_real(f, "ashlar.rate_decay", o->rate_decay);
    ashlar__metadata_add_real(f, "ashlar.epsilon", o->epsilon);
    ashlar__metadata_add_real(f, "ashlar.weight_decay", o->weight_decay);
    ashlar__metadata_add_real(f, "ashlar.clip", o->clip_norm);
    ashlar__metadata_add_real(f, "ashlar.loss_scale", o->loss_scale);
    ashlar__metadata_add_real(f, "ashlar.scale_growth", o->scale_growth);
    ashlar__metadata_add_real(f, "ashlar.scale_backoff", o->scale_backoff);
    ashlar__metadata_add_count(f, "ashlar.scale_interval", o->scale_interval);
}

/* Add only options that past learning rates depend on: a resumed training may have more steps. */
static void add_schedule(ashlar_metadata *f, const ashlar_schedule *s) {
    ashlar__metadata_add_text(f, "ashlar.schedule", ashlar_schedule_name(s->kind));
    ashlar__metadata_add_real(f, "ashlar.schedule_rate", s->rate);
    ashlar__metadata_add_count(f, "ashlar.warmup_steps", s->warmup_steps);
    if (s->kind == ASHLAR_SCHEDULE_COSINE) {
        ashlar__metadata_add_count(f, "ashlar.schedule_steps", s->total_steps);
        ashlar__metadata_add_real(f, "ashlar.rate_floor", s->floor);
    }
    if (s->kind == ASHLAR_SCHEDULE_STEP) {
        ashlar__metadata_add_count(f, "ashlar.rate_every", s->step_size);
        ashlar__metadata_add_real(f, "ashlar.rate_factor", s->gamma);
    }
}

static void add_config(ashlar_metadata *f, const ashlar_train_context *context) {
    const ashlar_train_config *c = context->config;
    ashlar__task_add_facts(context->task, f);
    ashlar__metadata_add_count(f, "ashlar.seed", c->seed);
    add_optimizer(f, &c->optimizer);
    ashlar__metadata_add_count(f, "ashlar.without_bias_decay", c->without_bias_decay);
    if (c->shards > 0) {
        ashlar__metadata_add_count(f, "ashlar.shards", c->shards);
    }
    add_schedule(f, &c->schedule);
}

static uint64_t mix_text(uint64_t sum, const char *text) {
    for (; *text != '\0'; text++) {
        sum = ashlar__random_mix(sum + (unsigned char)*text);
    }
    return ashlar__random_mix(sum);
}

uint64_t ashlar__train_checkpoint_facts(const ashlar_train_context *context) {
    ashlar_metadata all = {.count = 0};
    add_config(&all, context);
    uint64_t sum = context->config->steps;
    for (size_t i = 0; i < all.count; i++) {
        sum = mix_text(mix_text(sum, all.pairs[i].key), all.pairs[i].value);
    }
    return sum;
}

#define NO_GOOD "%s: no good %s in its metadata; resume from a file that ashlar-train --save wrote"

/* The first pair of `want` that the file lacks (*got is NULL) or has with another text (*got).
 * NULL: the file has all pairs. */
static const ashlar_checkpoint_pair *
find_difference(const ashlar_checkpoint *file, const ashlar_metadata *want, const char **got) {
    for (size_t i = 0; i < want->count; i++) {
        *got = ashlar_checkpoint_metadata(file, want->pairs[i].key);
        if (*got == NULL || strcmp(*got, want->pairs[i].value) != 0) {
            return &want->pairs[i];
        }
    }
    return NULL;
}

static ashlar_status check_config(const char *path, const ashlar_checkpoint *file,
                                  const ashlar_metadata *want) {
    const char *got;
    const ashlar_checkpoint_pair *pair = find_difference(file, want, &got);
    return pair == NULL  ? ASHLAR_OK
           : got == NULL ? ashlar__fail(ASHLAR_EFORMAT, NO_GOOD, path, pair->key)
                         : ashlar__fail(ASHLAR_EFORMAT,
                                        "%s: %s is %.80s there, and %s here; a training goes on "
                                        "with the options and the data that it began with",
                                        path, pair->key, got, pair->value);
}

_Static_assert(ASHLAR_TRAIN_RECENT * 2 * 32 <= ASHLAR_METADATA_TEXT_BYTES, "the recent losses fit");

static void add_recent(ashlar_metadata *f, const ashlar_train_state *state) {
    char *text = ashlar__metadata_add(f, "ashlar.recent");
    size_t at = 0;
    for (size_t i = 0; i < ASHLAR_TRAIN_RECENT; i++) {
        at += (size_t)snprintf(text + at, ASHLAR_METADATA_TEXT_BYTES - at, "%s%a %a",
                               i > 0 ? " " : "", state->nats[i], state->tokens[i]);
    }
}

/* Add the fields in their order, reals in hexadecimal; the norm may be infinite or NaN. */
static void add_optimizer_state(ashlar_metadata *f, const ashlar_optimizer_state *s) {
    (void)snprintf(ashlar__metadata_add(f, "ashlar.optimizer_state"), ASHLAR_METADATA_TEXT_BYTES,
                   "%" PRIu64 " %" PRIu64 " %" PRIu32 " %" PRIu32 " %a %a", s->step, s->skipped,
                   s->good_steps, s->is_skipped, s->loss_scale, s->norm);
}

/* Print the state that was read and compare: this shows that all of the text was understood. */
static ashlar_status read_optimizer_state(const char *path, const ashlar_checkpoint *file,
                                          ashlar_optimizer_state *out) {
    const char *text = ashlar_checkpoint_metadata(file, "ashlar.optimizer_state");
    ashlar_metadata again = {.count = 0};
    ashlar_optimizer_state s = {.step = 0};
    ASHLAR_FAIL_IF(text == NULL ||
                       sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu32 " %" SCNu32 " %la %la",
                              &s.step, &s.skipped, &s.good_steps, &s.is_skipped, &s.loss_scale,
                              &s.norm) != 6,
                   ASHLAR_EFORMAT, NO_GOOD, path, "ashlar.optimizer_state");
    add_optimizer_state(&again, &s);
    ASHLAR_FAIL_IF(strcmp(text, again.pairs[0].value) != 0 || !isfinite(s.loss_scale) ||
                       s.loss_scale <= 0,
                   ASHLAR_EFORMAT, NO_GOOD, path, "ashlar.optimizer_state");
    *out = s;
    return ASHLAR_OK;
}

static ashlar_status read_step(const char *path, const ashlar_checkpoint *file, uint64_t steps,
                               uint64_t *step) {
    const char *text = ashlar_checkpoint_metadata(file, "ashlar.step");
    uint64_t value;
    ASHLAR_FAIL_IF(text == NULL || !ashlar__parse_count(ashlar__piece_of(text), &value) ||
                       value == 0,
                   ASHLAR_EFORMAT, NO_GOOD, path, "ashlar.step");
    ASHLAR_FAIL_IF(value >= steps, ASHLAR_EINVAL,
                   "%s: %" PRIu64 " steps are done already; ask for more of them with --steps, "
                   "which counts from the beginning",
                   path, value);
    *step = value;
    return ASHLAR_OK;
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

/* Skip the batches drawn before, and check that the batch sampler is then at its old position. */
static ashlar_status find_place(const char *path, const ashlar_checkpoint *file, ashlar_task *task,
                                uint64_t step) {
    ashlar_metadata here = {.count = 0};
    ashlar__batch_sampler_skip(task->sampler, step);
    ashlar__task_add_position(task, &here);
    const char *got;
    const ashlar_checkpoint_pair *pair = find_difference(file, &here, &got);
    return pair == NULL
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EFORMAT,
                              "%s: after %" PRIu64 " batches %s is %.80s there, and %s here; "
                              "go on with the version of ashlar that wrote the file",
                              path, step, pair->key, got != NULL ? got : "missing", pair->value);
}

ashlar_status ashlar__train_checkpoint_save(const char *path, const ashlar_train_context *context,
                                            const ashlar_train_state *state) {
    ashlar_metadata all = {.count = 0};
    add_config(&all, context);
    ashlar__metadata_add_count(&all, "ashlar.step", state->step);
    ashlar__task_add_position(context->task, &all);
    add_recent(&all, state);
    add_optimizer_state(&all, &state->optimizer);
    return ashlar_checkpoint_save(context->task->arena, path, ASHLAR_CHECKPOINT_STATE, all.pairs,
                                  all.count, context->stream);
}

static ashlar_status load(const char *path, const ashlar_train_context *context,
                          const ashlar_checkpoint *file, ashlar_train_state *out) {
    ashlar_metadata want = {.count = 0};
    ashlar_train_state state;
    add_config(&want, context);
    ASHLAR_TRY(check_config(path, file, &want));
    ASHLAR_TRY(read_step(path, file, context->config->steps, &state.step));
    ASHLAR_TRY(read_recent(path, file, &state));
    ASHLAR_TRY(read_optimizer_state(path, file, &state.optimizer));
    ASHLAR_TRY(find_place(path, file, context->task, state.step));
    ASHLAR_TRY(ashlar_checkpoint_load(context->task->arena, file, ASHLAR_CHECKPOINT_STATE,
                                      context->stream));
    *out = state;
    return ASHLAR_OK;
}

ashlar_status ashlar__train_checkpoint_load(const char *path, const ashlar_train_context *context,
                                            ashlar_train_state *state) {
    ashlar_checkpoint *file = NULL;
    ashlar_status status = ashlar_checkpoint_open(path, &file);
    if (status == ASHLAR_OK) {
        status = load(path, context, file, state);
        ashlar_checkpoint_close(file);
    }
    return status;
}
