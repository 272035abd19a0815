#include "train_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ashlar/checkpoint.h>

#include "check_level.h"
#include "error.h"
#include "program.h"

enum { FACTS_MAX = 40, FACT_BYTES = 768 };

/* The metadata of a file, as it is built up. */
typedef struct facts {
    ashlar_checkpoint_pair pairs[FACTS_MAX];
    char texts[FACTS_MAX][FACT_BYTES];
    size_t count;
} facts;

/* A new fact; the caller prints its text into the FACT_BYTES bytes that are returned. */
static char *add_fact(facts *f, const char *key) {
    ASHLAR_ASSERT(f->count < FACTS_MAX);
    char *text = f->texts[f->count];
    f->pairs[f->count++] = (ashlar_checkpoint_pair){key, text};
    return text;
}

static void add_count(facts *f, const char *key, uint64_t value) {
    (void)snprintf(add_fact(f, key), FACT_BYTES, "%" PRIu64, value);
}

/* With as few digits as give the same number again: people read them too. */
static void add_real(facts *f, const char *key, double value) {
    char *text = add_fact(f, key);
    int digits = 0;
    do {
        digits++;
        (void)snprintf(text, FACT_BYTES, "%.*g", digits, value);
    } while (digits < 17 && strtod(text, NULL) != value);
}

/* --- what must be the same ------------------------------------------------------------------ */

/*
 * Eight bytes at a time, as FNV-1a does with one; it need not withstand anybody. The last step, at
 * a record's end, tells texts that are cut elsewhere.
 */
static uint64_t mix(uint64_t sum, const unsigned char *bytes, size_t count) {
    const uint64_t prime = UINT64_C(0x100000001b3);
    uint64_t word;
    for (; count >= sizeof word; count -= sizeof word, bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        sum = (sum ^ word) * prime;
        sum ^= sum >> 29; /* or high bits would never reach low ones */
    }
    for (; count > 0; count--, bytes++) {
        sum = (sum ^ *bytes) * prime;
    }
    return sum ^ sum >> 32;
}

uint64_t ashlar_train_text_sum(const ashlar_corpus *corpus) {
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < ashlar_corpus_count(corpus); i++) {
        const ashlar_record record = ashlar_corpus_record(corpus, i);
        sum = mix(sum, record.bytes, record.count);
    }
    return sum;
}

static void add_text(facts *f, const ashlar_train_parts *parts) {
    (void)snprintf(add_fact(f, "ashlar.text"), FACT_BYTES, "%zu records, %zu bytes, %016" PRIx64,
                   ashlar_corpus_count(parts->corpus), ashlar_corpus_bytes(parts->corpus),
                   parts->text_sum);
}

static void add_optimizer(facts *f, const ashlar_optimizer_config *o) {
    (void)snprintf(add_fact(f, "ashlar.optimizer"), FACT_BYTES, "%s",
                   ashlar_optimizer_name(o->kind));
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

/* Only what the kind's course depends on: the number of steps may be another one. */
static void add_schedule(facts *f, const ashlar_schedule *s) {
    (void)snprintf(add_fact(f, "ashlar.schedule"), FACT_BYTES, "%s", ashlar_schedule_name(s->kind));
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

static void add_config(facts *f, const ashlar_train_parts *parts) {
    const ashlar_train_config *c = parts->config;
    (void)snprintf(add_fact(f, ASHLAR_METADATA_CELL), FACT_BYTES, "%s",
                   ashlar_rnn_cell_name(c->cell));
    add_count(f, ASHLAR_METADATA_PROJECTION, c->projection);
    add_real(f, ASHLAR_METADATA_DROPOUT, c->dropout);
    add_count(f, ASHLAR_METADATA_LAYERS, c->layers);
    add_count(f, ASHLAR_METADATA_HIDDEN, c->hidden);
    add_count(f, ASHLAR_METADATA_EMBEDDING, c->embedding);
    add_count(f, "ashlar.batch", c->batch);
    add_count(f, "ashlar.max_length", c->max_length);
    add_count(f, "ashlar.seed", c->seed);
    add_optimizer(f, &c->optimizer);
    add_count(f, "ashlar.without_bias_decay", c->without_bias_decay);
    add_schedule(f, &c->schedule);
    add_text(f, parts);
}

static ashlar_status fail_missing(const char *path, const char *key) {
    return ashlar_fail(
        ASHLAR_EFORMAT,
        "%s: no good %s in its metadata; resume from a file that ashlar-train --save "
        "wrote",
        path, key);
}

static ashlar_status check_config(const char *path, const ashlar_checkpoint *file,
                                  const facts *want) {
    for (size_t i = 0; i < want->count; i++) {
        const ashlar_checkpoint_pair *pair = &want->pairs[i];
        const char *got = ashlar_checkpoint_metadata(file, pair->key);
        if (got == NULL) {
            return fail_missing(path, pair->key);
        }
        if (strcmp(got, pair->value) != 0) {
            return ashlar_fail(ASHLAR_EFORMAT,
                               "%s: %s is %.80s there, and %s here; a training goes on with the "
                               "options and the text that it began with",
                               path, pair->key, got, pair->value);
        }
    }
    return ASHLAR_OK;
}

/* --- where the training is ------------------------------------------------------------------ */

static void add_random(facts *f, const ashlar_batcher *batcher) {
    const ashlar_random random = ashlar_batcher_random(batcher);
    (void)snprintf(add_fact(f, "ashlar.random"), FACT_BYTES,
                   "%016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %016" PRIx64, random.s[0],
                   random.s[1], random.s[2], random.s[3]);
}

_Static_assert(ASHLAR_TRAIN_RECENT * 2 * 32 <= FACT_BYTES, "the recent losses fit");

static void add_recent(facts *f, const ashlar_train_state *state) {
    char *text = add_fact(f, "ashlar.recent");
    size_t at = 0;
    for (size_t i = 0; i < ASHLAR_TRAIN_RECENT; i++) {
        at += (size_t)snprintf(text + at, FACT_BYTES - at, "%s%a %a", i > 0 ? " " : "",
                               state->nats[i], state->tokens[i]);
    }
}

/* In their order, the real ones as hexadecimal digits; the norm may be infinite or no number. */
static void add_optimizer_state(facts *f, const ashlar_optimizer_state *s) {
    (void)snprintf(add_fact(f, "ashlar.optimizer_state"), FACT_BYTES,
                   "%" PRIu64 " %" PRIu64 " %" PRIu32 " %" PRIu32 " %a %a", s->step, s->skipped,
                   s->good_steps, s->is_skipped, s->loss_scale, s->norm);
}

/* What is read and printed again must be the same: so nothing is left over, or cut off. */
static ashlar_status read_optimizer_state(const char *path, const ashlar_checkpoint *file,
                                          ashlar_optimizer_state *out) {
    const char *text = ashlar_checkpoint_metadata(file, "ashlar.optimizer_state");
    facts again = {.count = 0};
    ashlar_optimizer_state s = {.step = 0};
    if (text == NULL ||
        sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu32 " %" SCNu32 " %la %la", &s.step, &s.skipped,
               &s.good_steps, &s.is_skipped, &s.loss_scale, &s.norm) != 6) {
        return fail_missing(path, "ashlar.optimizer_state");
    }
    add_optimizer_state(&again, &s);
    if (strcmp(text, again.pairs[0].value) != 0 || !isfinite(s.loss_scale) || s.loss_scale <= 0) {
        return fail_missing(path, "ashlar.optimizer_state");
    }
    *out = s;
    return ASHLAR_OK;
}

static ashlar_status read_step(const char *path, const ashlar_checkpoint *file, uint64_t steps,
                               uint64_t *step) {
    const char *text = ashlar_checkpoint_metadata(file, "ashlar.step");
    char *end = NULL;
    const unsigned long long value =
        text != NULL && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    if (value == 0 || *end != '\0') {
        return fail_missing(path, "ashlar.step");
    }
    if (value >= steps) {
        return ashlar_fail(ASHLAR_EINVAL,
                           "%s: %llu steps are done already; ask for more of them with --steps, "
                           "which counts from the beginning",
                           path, value);
    }
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
        if (end == next || !isfinite(value) || value < 0) {
            return fail_missing(path, "ashlar.recent");
        }
        (i % 2 == 0 ? state->nats : state->tokens)[i / 2] = value;
        tokens += i % 2 == 0 ? 0 : value;
        next = end;
    }
    return *next == '\0' && tokens > 0 ? ASHLAR_OK : fail_missing(path, "ashlar.recent");
}

/* Hand out what was handed out before, and see that the generator is where it was then. */
static ashlar_status find_place(const char *path, const ashlar_checkpoint *file,
                                ashlar_batcher *batcher, uint64_t step) {
    facts here = {.count = 0};
    const char *text = ashlar_checkpoint_metadata(file, "ashlar.random");
    ashlar_batcher_skip(batcher, step);
    add_random(&here, batcher);
    if (text == NULL || strcmp(text, here.pairs[0].value) != 0) {
        return ashlar_fail(ASHLAR_EFORMAT,
                           "%s: after %" PRIu64
                           " batches ashlar.random is %.80s there, and %s here; "
                           "go on with the version of ashlar that wrote the file",
                           path, step, text != NULL ? text : "missing", here.pairs[0].value);
    }
    return ASHLAR_OK;
}

/* --- the interface -------------------------------------------------------------------------- */

ashlar_status ashlar_train_file_save(const char *path, const ashlar_train_parts *parts,
                                     const ashlar_train_state *state) {
    facts all = {.count = 0};
    add_config(&all, parts);
    add_count(&all, "ashlar.step", state->step);
    add_random(&all, parts->batcher);
    add_recent(&all, state);
    add_optimizer_state(&all, &state->optimizer);
    return ashlar_checkpoint_save(parts->model->arena, path, ASHLAR_CHECKPOINT_STATE, all.pairs,
                                  all.count, parts->model->stream);
}

static ashlar_status load(const char *path, const ashlar_train_parts *parts,
                          const ashlar_checkpoint *file, ashlar_train_state *out) {
    facts want = {.count = 0};
    ashlar_train_state state;
    add_config(&want, parts);
    ashlar_status status = check_config(path, file, &want);
    if (status == ASHLAR_OK) {
        status = read_step(path, file, parts->config->steps, &state.step);
    }
    if (status == ASHLAR_OK) {
        status = read_recent(path, file, &state);
    }
    if (status == ASHLAR_OK) {
        status = read_optimizer_state(path, file, &state.optimizer);
    }
    if (status == ASHLAR_OK) {
        status = find_place(path, file, parts->batcher, state.step);
    }
    if (status == ASHLAR_OK) {
        status = ashlar_checkpoint_load(parts->model->arena, file, ASHLAR_CHECKPOINT_STATE,
                                        parts->model->stream);
    }
    if (status == ASHLAR_OK) {
        *out = state;
    }
    return status;
}

ashlar_status ashlar_train_file_load(const char *path, const ashlar_train_parts *parts,
                                     ashlar_train_state *state) {
    ashlar_checkpoint *file = NULL;
    ashlar_status status = ashlar_checkpoint_open(path, &file);
    if (status == ASHLAR_OK) {
        status = load(path, parts, file, state);
        ashlar_checkpoint_close(file);
    }
    return status;
}
