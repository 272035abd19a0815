/* held_out.c - the loss on the records that were held out of a training. */
#include <math.h>

#include "allocator/base/error.h"
#include "rnn/train/train_impl.h"

/* Add up the loss of each symbol of a part, with a weight of 1. It is a step of the allocator, as
 * in training, so the plans serve it. */
static ashlar_status queue_part(ashlar_trainer *t, size_t part) {
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

/* Batches of held-out pieces go through buffer 0 as those of training do. *nats is added to. */
static ashlar_status run_batch(ashlar_trainer *t, const ashlar_batch *batch, double *nats) {
    double *const sum = ashlar__train_outcome_of(t, 0)->losses;
    const ashlar_batch_split_config alone = {.batch = t->batches.micro * t->batches.count,
                                             .pieces = t->batches.micro,
                                             .part = t->batches.split.part};
    ashlar__batches_fill(&t->batches, 0, &alone, batch);
    ASHLAR_TRY(ashlar__batches_upload(&t->batches, t->device, 0, t->stream));
    ASHLAR_TRY(ashlar_fill(t->device, t->losses, 0, sizeof *sum, t->stream));
    for (size_t part = 0; part < t->batches.buffers[0].split.parts; part++) {
        ASHLAR_TRY(ashlar__train_begin_part(t, 0, part));
        const ashlar_status status = queue_part(t, part);
        const ashlar_status ended = ashlar_step_end(t->allocator);
        ASHLAR_TRY(status == ASHLAR_OK ? ended : status);
    }
    ASHLAR_TRY(ashlar_copy_to_host(t->device, sum, t->losses, sizeof *sum, t->stream));
    ASHLAR_TRY(ashlar_stream_synchronize(t->device, t->stream));
    *nats += *sum;
    return ASHLAR_OK;
}

static ashlar_status run_all(ashlar_trainer *t, const ashlar_batcher *batcher,
                             ashlar_evaluation *out) {
    const size_t most = t->batches.micro * t->batches.count;
    double nats = 0;
    for (size_t i = 0; i < ashlar__batcher_piece_count(batcher); i += most) {
        const ashlar_batch batch = ashlar__batcher_get(batcher, i);
        out->symbols += batch.tokens;
        ASHLAR_TRY(run_batch(t, &batch, &nats));
    }
    out->loss = nats / (double)out->symbols;
    out->bits_per_byte = nats / log(2) / (double)out->bytes;
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

/* A text is counted once, so pieces do not overlap, whatever they do in training. No piece is
 * longer than the training's, for which there is memory. */
ashlar_status ashlar__trainer_evaluate(ashlar_trainer *t, ashlar_evaluation *out) {
    const ashlar_batcher_config config = {.batch = t->batches.micro * t->batches.count,
                                          .max_steps = t->batches.max_length,
                                          .held_out = t->config.held_out,
                                          .is_of_held_out = true};
    ashlar_evaluation found = {0};
    ashlar_driver_counts counts = ashlar_device_get_info(t->device).calls;
    ashlar_batcher *batcher = NULL;
    ashlar_status status = ASHLAR_OK;
    count_records(t, &found);
    if (found.records > 0) {
        status = ashlar__batcher_create(t->batches.corpus, &config, &batcher);
        ASHLAR_THEN(status, run_all(t, batcher, &found));
        ashlar__batcher_destroy(batcher);
    }
    if (status == ASHLAR_OK) {
        found.management_calls = ashlar__phase_calls(t->device, &counts).management;
        *out = found;
    }
    return status;
}
