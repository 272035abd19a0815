/* held_out.c - the loss on the records that were held out of a training. */
#include <math.h>

#include "allocator/base/error.h"
#include "rnn/train/train_impl.h"

/* Batches of held-out pieces go through buffer 0 as those of training do. */
typedef struct test {
    ashlar_trainer *trainer;
    ashlar_batcher *batcher;
    size_t tokens;                     /* their number so far */
    double nats;                       /* the sum over all symbols so far */
} test;

/* A text is counted once, so pieces do not overlap, whatever they do in training. No piece is
 * longer than the training's, for which there is memory. */
static ashlar_status cut_pieces(test *x) {
    const ashlar_batches *b = &x->trainer->batches;
    const ashlar_batcher_config config = {
        .batch = b->micro * b->count,
        .max_steps = b->max_length,
        .held_out = x->trainer->config.held_out,
        .is_of_held_out = true,
    };
    return ashlar__batcher_create(b->corpus, &config, &x->batcher);
}

/* Add up the loss of each symbol, with a weight of 1. */
static ashlar_status queue_part(const test *x, size_t part) {
    ashlar_trainer *t = x->trainer;
    const ashlar_batches *b = &t->batches;
    ASHLAR_TRY(
        ashlar__train_take_blocks(t, ASHLAR_WALK_TRAIN, ashlar__batches_length(b, 0, part)));
    for (size_t micro = 0; micro < b->micro; micro++) {
        ashlar_batch_part p;
        ashlar__batches_get(b, 0, micro, part, &p);
        p.batch.weight = 1;
        p.batch.loss = t->losses;
        ASHLAR_TRY(ashlar_model_run(t->model, ASHLAR_WALK_TEST, &p.batch, t->stream));
    }
    return ASHLAR_OK;
}

/* Each part is a step of the allocator, as in training, so the plans serve it. */
static ashlar_status run_part(const test *x, size_t part) {
    ashlar_trainer *t = x->trainer;
    ASHLAR_TRY(ashlar__train_begin_part(t, 0, part));
    const ashlar_status status = queue_part(x, part);
    const ashlar_status ended = ashlar_step_end(t->allocator);
    return status == ASHLAR_OK ? ended : status;
}

/* The batch that begins with piece number `first`. */
static ashlar_status run_batch(test *x, size_t first) {
    ashlar_trainer *t = x->trainer;
    double *const sum = ashlar__train_outcome_of(t, 0)->losses;
    const ashlar_batch_split_config alone = {.batch = t->batches.micro * t->batches.count,
                                             .pieces = t->batches.micro,
                                             .part = t->batches.split.part};
    const ashlar_batch batch = ashlar__batcher_get(x->batcher, first);
    x->tokens += batch.tokens;
    ashlar__batches_fill(&t->batches, 0, &alone, &batch);
    ASHLAR_TRY(ashlar__batches_upload(&t->batches, t->device, 0, t->stream));
    ASHLAR_TRY(ashlar_fill(t->device, t->losses, 0, sizeof *sum, t->stream));
    for (size_t part = 0; part < t->batches.buffers[0].split.parts; part++) {
        ASHLAR_TRY(run_part(x, part));
    }
    ASHLAR_TRY(ashlar_copy_to_host(t->device, sum, t->losses, sizeof *sum, t->stream));
    ASHLAR_TRY(ashlar_stream_synchronize(t->device, t->stream));
    x->nats += *sum;
    return ASHLAR_OK;
}

static ashlar_status run_all(test *x, ashlar_evaluation *out) {
    const size_t count = ashlar__batcher_piece_count(x->batcher);
    const size_t most = x->trainer->batches.micro * x->trainer->batches.count;
    for (size_t i = 0; i < count; i += most) {
        ASHLAR_TRY(run_batch(x, i));
    }
    out->symbols = x->tokens;
    out->loss = x->nats / (double)out->symbols;
    out->bits_per_byte = x->nats / log(2) / (double)out->bytes;
    return ASHLAR_OK;
}

static void count_records(const ashlar_trainer *t, ashlar_evaluation *out) {
    const ashlar_corpus *corpus = t->batches.corpus;
    for (size_t i = 0; i < ashlar__corpus_count(corpus); i++) {
        if (ashlar__batcher_is_held_out(t->config.held_out, i)) {
            out->records++;
            out->bytes += ashlar__corpus_record(corpus, i).count;
        }
    }
}

ashlar_status ashlar__trainer_evaluate(ashlar_trainer *trainer, ashlar_evaluation *out) {
    test x = {.trainer = trainer};
    ashlar_evaluation found = {0};
    ashlar_driver_counts counts;
    ashlar_status status = ASHLAR_OK;
    ashlar_device_get_counts(trainer->device, &counts);
    count_records(trainer, &found);
    if (found.records > 0) {
        status = cut_pieces(&x);
        ASHLAR_THEN(status, run_all(&x, &found));
    }
    ashlar__batcher_destroy(x.batcher);
    if (status == ASHLAR_OK) {
        found.management_calls = ashlar__phase_calls(trainer->device, &counts).management;
        *out = found;
    }
    return status;
}
