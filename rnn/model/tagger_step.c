/* tagger_step.c - one step of the tagger: phase by phase, taking and giving back buffers. */
#include "rnn/model/tagger_work.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"

typedef struct step {
    ashlar_tagger_work work;
    const ashlar_tagger_bytes *sizes;
} step;

#define TRY ASHLAR_TRY

static bool is_of_one_token(const ashlar_tagger_buffer_info *b) {
    return b->first == ASHLAR_TAGGER_TOKEN && b->last == ASHLAR_TAGGER_TOKEN;
}

static ashlar_status take_first(step *s, ashlar_tagger_phase phase) {
    const ashlar_tagger *m = s->work.tagger;
    for (size_t i = 0; i < ASHLAR_TAGGER_BUFFER_COUNT; i++) {
        const ashlar_tagger_buffer_info *b = &ashlar__tagger_buffers[i];
        if (b->first == phase && s->sizes->of[i] > 0) {
            ASHLAR_CHECK2(s->work.buffers[i] == NULL);
            const ashlar_buffer_request r = {b->text, s->sizes->of[i], b->tag,
                                             phase >= ASHLAR_TAGGER_WORD_BACKWARD};
            TRY(ashlar__buffer_take(m->source, &r, m->allocator, m->stream, &s->work.buffers[i]));
        }
    }
    return ASHLAR_OK;
}

static ashlar_status give(step *s, size_t i) {
    void *ptr = s->work.buffers[i];
    s->work.buffers[i] = NULL;
    return ashlar__buffer_give(s->work.tagger->source, s->work.tagger->allocator, ptr);
}

/* Give back the buffers whose last phase this is; at the end of a token, only those it took. */
static ashlar_status give_last(step *s, ashlar_tagger_phase phase, bool is_token_end) {
    for (size_t i = 0; i < ASHLAR_TAGGER_BUFFER_COUNT; i++) {
        const ashlar_tagger_buffer_info *b = &ashlar__tagger_buffers[i];
        const bool is_last = ashlar__tagger_last_phase(s->sizes, (ashlar_tagger_buffer)i) == phase;
        if (is_last && (!is_token_end || is_of_one_token(b))) {
            TRY(give(s, i));
        }
    }
    return ASHLAR_OK;
}

/* Give back all that is still held, after a failure; the failure's detail stays. */
static void give_all(step *s) {
    for (size_t i = 0; i < ASHLAR_TAGGER_BUFFER_COUNT; i++) {
        ASHLAR_IGNORE(give(s, i));
    }
}

/* How many of the first `before` sentences, longest first, have a token t. */
static size_t count_active(const ashlar_tagger_batch *batch, size_t t, size_t before) {
    const int32_t *lengths = ashlar__tagger_batch_arrays(&batch->shape, batch->data).lengths;
    while (before > 0 && (size_t)lengths[before - 1] <= t) {
        before--;
    }
    ASHLAR_ASSERT(before > 0);
    return before;
}

/* The token loop: each token takes its buffers and gives them back. */
static ashlar_status run_tokens(step *s) {
    ashlar_tagger_work *w = &s->work;
    const bool has_work = w->kind != ASHLAR_TAGGER_DRY_RUN;
    const bool is_fixed = ashlar__tagger_is_fixed(w);
    const size_t steps = has_work ? w->batch->shape.steps : s->sizes->steps;
    w->active = w->batch->shape.batch;
    for (w->token = 0; w->token < steps; w->token++) {
        TRY(take_first(s, ASHLAR_TAGGER_TOKEN));
        if (has_work) {
            w->active = is_fixed ? w->active : count_active(w->batch, w->token, w->active);
            TRY(ashlar__tagger_queue_token(w));
        }
        TRY(give_last(s, ASHLAR_TAGGER_TOKEN, true));
    }
    return ASHLAR_OK;
}

static bool has_work_at(const step *s, ashlar_tagger_phase phase) {
    return s->work.kind == ASHLAR_TAGGER_TRAIN ||
           (s->work.kind == ASHLAR_TAGGER_PREDICT && phase <= ASHLAR_TAGGER_TOKEN);
}

static ashlar_status run_phase(step *s, ashlar_tagger_phase phase) {
    if (phase != ASHLAR_TAGGER_TOKEN) {
        TRY(take_first(s, phase));
    } else if (s->work.tagger->config.label_embedding > 0) {
        TRY(run_tokens(s));
    }
    if (has_work_at(s, phase)) {
        TRY(ashlar__tagger_queue(&s->work, phase));
    }
    return give_last(s, phase, false);
}

static bool holds_nothing(const step *s) {
    for (size_t i = 0; i < ASHLAR_TAGGER_BUFFER_COUNT; i++) {
        if (s->work.buffers[i] != NULL) {
            return false;
        }
    }
    return true;
}

static ashlar_status run(step *s) {
    ashlar_status status = ASHLAR_OK;
    for (int i = 0; i < ASHLAR_TAGGER_PHASE_COUNT && status == ASHLAR_OK; i++) {
        status = run_phase(s, (ashlar_tagger_phase)i);
    }
    if (status != ASHLAR_OK) {
        give_all(s);
    }
    ASHLAR_CHECK2(holds_nothing(s)); /* phases free all buffers */
    return status;
}

ashlar_status ashlar__tagger_step(ashlar_tagger *tagger, const ashlar_tagger_batch *batch,
                                  const ashlar_tagger_bytes *sizes, double weight, double *loss) {
    step s = {.work = {.tagger = tagger,
                       .batch = batch,
                       .kind = ASHLAR_TAGGER_TRAIN,
                       .arrays = ashlar__tagger_batch_arrays(&batch->shape, batch->device),
                       .weight = weight != 0 ? weight : 1.0 / (double)batch->tokens,
                       .loss = loss},
              .sizes = sizes};
    return run(&s);
}

ashlar_status ashlar__tagger_predict(ashlar_tagger *tagger, const ashlar_tagger_batch *batch,
                                     const ashlar_tagger_bytes *sizes, double *loss,
                                     int32_t *labels) {
    step s = {.work = {.tagger = tagger,
                       .batch = batch,
                       .kind = ASHLAR_TAGGER_PREDICT,
                       .arrays = ashlar__tagger_batch_arrays(&batch->shape, batch->device),
                       .weight = 1.0 / (double)batch->tokens,
                       .loss = loss,
                       .labels = labels},
              .sizes = sizes};
    return run(&s);
}

ashlar_status ashlar__tagger_dry_run(ashlar_tagger *tagger, const ashlar_tagger_bytes *sizes) {
    const ashlar_tagger_batch nothing = {0};
    step s = {.work = {.tagger = tagger, .batch = &nothing, .kind = ASHLAR_TAGGER_DRY_RUN},
              .sizes = sizes};
    return run(&s);
}
