/* train_loop.c - training step after step: queue, wait one step behind, record, show. */
#include "rnn/train/train_impl.h"

#include <math.h>
#include <stdio.h>

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"
#include "allocator/base/error.h"

/* The mean loss over the batch's tokens. */
static double loss_of(const ashlar_trainer *t, size_t step) {
    const ashlar_drawn_batch *batch = ashlar__train_drawn(t, step);
    const size_t *tokens = batch->part_tokens, parts = batch->parts;
    const ashlar_train_outcome *out = ashlar__train_outcome_of(t, ashlar__train_buffer(step));
    double nats = 0;
    for (size_t part = 0; part < parts && parts > 1; part++) {
        nats += out->losses[part] * (double)tokens[part];
    }
    return parts > 1 ? nats / (double)batch->tokens : out->losses[0];
}

typedef struct run {
    ashlar_trainer *trainer;
    ashlar_train_show_fn show;
    void *context;
    double start;
    size_t end;       /* the last step */
    uint64_t skipped; /* steps skipped before this run */
    unsigned found;   /* bits of tags that were found to grow and are not shown yet */
    ashlar_train_held held[ASHLAR_TRAIN_FLIGHTS];    /* by step */
    double queued_s;                                 /* when the last step was queued */
} run;

/* Whether training cannot go on. With loss scaling, gradients that are not finite do no harm, since
 * the optimizer skips the step. */
static bool is_lost(const ashlar_trainer *t, double loss, const ashlar_optimizer_state *optimizer) {
    return !isfinite(loss) || (t->config.optimizer.loss_scale <= 0 && !isfinite(optimizer->norm));
}

/* The mean loss of the last few steps, which is smoother than one step's. */
static double recent_loss(const ashlar_train_state *s) {
    double nats = 0, tokens = 0;
    for (size_t i = 0; i < ASHLAR_TRAIN_RECENT; i++) {
        nats += s->nats[i];
        tokens += s->tokens[i];
    }
    return nats / tokens;
}

/* Fail, and say the loss and the norm, of which one is not finite, and the last good loss. */
static ashlar_status fail_lost(const run *r, size_t step, double loss, double norm) {
    const ashlar_trainer *t = r->trainer;
    char before[64] = "";
    if (t->state.step > 0) {
        (void)snprintf(before, sizeof before, ", after a loss of %.4g", recent_loss(&t->state));
    }
    return ashlar__fail(ASHLAR_EFORMAT,
                        "step %zu: the loss is %g, the gradients' norm %g%s: the training diverges;"
                        " use a smaller --learning-rate than %g",
                        step, loss, norm, before, t->config.schedule.rate);
}

/* Add a finished step to the state and the report. */
static void account(run *r, size_t step, double loss, const ashlar_drawn_batch *batch) {
    ashlar_trainer *t = r->trainer;
    ashlar_train_report *report = &t->report;
    const size_t recent = step % ASHLAR_TRAIN_RECENT;
    t->state.step = step;
    t->state.tokens[recent] = (double)batch->tokens;
    t->state.nats[recent] = loss * (double)batch->tokens;
    t->state.optimizer = ashlar__train_outcome_of(t, ashlar__train_buffer(step))->optimizer;
    report->steps_skipped = t->state.optimizer.skipped - r->skipped;
    report->loss_first = step == report->resumed + 1 ? loss : report->loss_first;
    report->loss_last = recent_loss(&t->state);
    report->tokens += batch->tokens;
    report->epochs = batch->epoch;
    report->lengths_distinct += !t->seen_lengths[batch->length];
    t->seen_lengths[batch->length] = true;
    report->seconds = ashlar__clock_s() - r->start;
    report->tokens_per_s = (double)report->tokens / report->seconds;
}

/* The ranks' votes come with the outcome of a step, on every rank of the same step. By then each
 * rank has queued the steps up to `queued`, so all end after that one. */
static void count_votes(run *r, size_t step, size_t queued) {
    const ashlar_trainer *t = r->trainer;
    const ashlar_train_outcome *out = ashlar__train_outcome_of(t, ashlar__train_buffer(step));
    if (t->config.ranks != NULL && out->votes > 0) {
        r->end = queued;
    }
}

/* Wait for a step, add it to the report and show it. */
static ashlar_status finish_step(run *r, size_t step) {
    ashlar_trainer *t = r->trainer;
    ASHLAR_CHECK2(step == t->state.step + 1); /* each step is finished once, in order */
    ASHLAR_TRY(ashlar_event_synchronize(t->device, t->done[ashlar__train_buffer(step)]));
    ASHLAR_TRY(t->config.ranks == NULL ? ASHLAR_OK : ashlar_ranks_check(t->config.ranks));
    const double loss = loss_of(t, step);
    const ashlar_optimizer_state *optimizer =
        &ashlar__train_outcome_of(t, ashlar__train_buffer(step))->optimizer;
    if (is_lost(t, loss, optimizer)) {
        return fail_lost(r, step, loss, optimizer->norm);
    }
    const ashlar_drawn_batch *batch = ashlar__train_drawn(t, step);
    account(r, step, loss, batch);
    if (r->show != NULL) {
        r->show(r->context, &(ashlar_train_progress){.step = step,
                                                     .steps = t->config.steps,
                                                     .resumed = t->report.resumed,
                                                     .loss = t->report.loss_last,
                                                     .loss_step = loss,
                                                     .epoch = batch->epoch,
                                                     .length = batch->length,
                                                     .tokens_per_s = t->report.tokens_per_s,
                                                     .seconds = t->report.seconds,
                                                     .found = r->found,
                                                     .growth = t->report.growth,
                                                     .held = r->held[step % ASHLAR_TRAIN_FLIGHTS]});
    }
    r->found = 0;
    return ASHLAR_OK;
}

/* Whether to save after this step. The caller saves after the last one. */
static bool is_save_due(const run *r, size_t step) {
    const ashlar_train_config *c = &r->trainer->config;
    return c->save_file != NULL && c->save_every != 0 && step % c->save_every == 0 &&
           step != r->end;
}

/* After queuing a step, finish the previous one; finish this one too if it is the last or if a save
 * is due. */
static ashlar_status follow(run *r, size_t step) {
    ashlar_trainer *t = r->trainer;
    if (t->state.step + 1 < step) {
        ASHLAR_TRY(finish_step(r, step - 1));
        count_votes(r, step - 1, step);
    }
    const bool is_due = is_save_due(r, step);
    if (is_due || step == r->end) {
        ASHLAR_TRY(finish_step(r, step));
        count_votes(r, step, step);
    }
    return is_due ? ashlar__trainer_save(t, t->config.save_file) : ASHLAR_OK;
}

/* Note what a step held at its peak: what lasts, and its block. */
static ashlar_status note_held(run *r, size_t step, const ashlar_stats *stats) {
    ashlar_trainer *t = r->trainer;
    const double now = ashlar__clock_s();
    uint64_t block_bytes = 0;
    if (step > t->state.step) {
        const size_t length = ashlar__batches_length(&t->batches, ashlar__train_buffer(step), 0);
        t->longest_part = length > t->longest_part ? length : t->longest_part;
        ASHLAR_TRY(
            ashlar__train_block_bytes(t, length, t->batches.count, t->batches.chunk, &block_bytes));
    }
    r->held[step % ASHLAR_TRAIN_FLIGHTS] =
        (ashlar_train_held){.live_bytes = stats->live_bytes + block_bytes,
                            .reserved_bytes = stats->reserved_bytes,
                            .seconds = now - r->queued_s};
    r->queued_s = now;
    return ASHLAR_OK;
}

/* Record how much memory is held after a step, which is queued and has given back its buffers. */
static ashlar_status watch_growth(run *r, size_t step) {
    ashlar_trainer *t = r->trainer;
    ashlar_stats stats;
    ashlar_allocator_get_stats(t->allocator, &stats);
    r->found |= ashlar__growth_add(t->report.growth, step, &stats);
    return note_held(r, step, &stats);
}

ashlar_status ashlar__train_loop(ashlar_trainer *t, ashlar_train_show_fn show, void *context) {
    ashlar_train_report *const report = &t->report;
    const size_t first = t->state.step + 1;
    run r = {.trainer = t,
             .show = show,
             .context = context,
             .start = ashlar__clock_s(),
             .end = t->config.steps,
             .skipped = t->state.optimizer.skipped};
    report->sums_before =
        t->config.ranks != NULL ? ashlar_ranks_get_info(t->config.ranks).seconds : 0;
    ASHLAR_TRY(watch_growth(&r, first - 1));
    ASHLAR_TRY(ashlar_model_set_seed(t->model, ashlar__train_seed(t, first), t->stream));
    for (size_t step = first; step <= r.end; step++) {
        if (t->config.ranks == NULL && ashlar__train_must_stop(t)) {
            r.end = step;
        }
        ASHLAR_TRY(ashlar__train_queue(t, step));
        ASHLAR_TRY(watch_growth(&r, step));
        ASHLAR_TRY(follow(&r, step));
    }
    report->steps = t->state.step - report->resumed;
    report->is_stopped = t->state.step < t->config.steps;
    return ASHLAR_OK;
}
