/* text_test.c - the loss of a trained character model on the records that were held out. */
#include "rnn/train/task_text.h"

#include <math.h>
#include <stdlib.h>

#include "allocator/base/host.h"
#include "rnn/train/train_impl.h"

/* Batches of held-out pieces go through buffer 0 as those of training do. */
typedef struct test {
    ashlar_trainer *trainer;
    ashlar_text_task *task;
    ashlar_batcher *batcher;
    ashlar_batch_sampler_item *pieces; /* longest first */
    double nats;                       /* the sum over all symbols so far */
} test;

static int longest_first(const void *a, const void *b) {
    const ashlar_batch_sampler_item *x = a;
    const ashlar_batch_sampler_item *y = b;
    if (x->length != y->length) {
        return x->length < y->length ? 1 : -1;
    }
    return (x->number > y->number) - (x->number < y->number);
}

/* A text is counted once, so pieces do not overlap, whatever they do in training. No piece is
 * longer than the training's, for which there is memory. */
static ashlar_status list_pieces(test *x) {
    const ashlar_text_task *t = x->task;
    const ashlar_batcher_config config = {
        .batch = t->own_batch,
        .max_steps = t->head.max_length,
        .held_out = t->config.held_out,
        .is_of_held_out = true,
    };
    ASHLAR_TRY(ashlar__batcher_create(t->corpus, &config, &x->batcher));
    const size_t count = ashlar__batcher_piece_count(x->batcher);
    ASHLAR_HOST_NEW(x->pieces, count + 1, "no host memory for %zu pieces of text", count);
    ashlar__batcher_list(x->batcher, x->pieces);
    qsort(x->pieces, count, sizeof *x->pieces, longest_first);
    return ASHLAR_OK;
}

/* The length for which a part's buffers are sized: with dropout always the longest part's. */
static size_t length_of(const test *x, size_t part) {
    return ashlar__model_drops(x->task->model)
               ? x->task->head.max_part_length
               : x->task->head.table->part(&x->task->head, 0, part).length;
}

/* Add up the loss of each symbol, with a weight of 1. */
static ashlar_status queue_part(const test *x, size_t part) {
    const ashlar_text_task *t = x->task;
    const ashlar_batch_split *split = &t->buffers[0].split;
    for (size_t micro = 0; micro < split->micro; micro++) {
        ashlar_model_window window = ashlar__text_window(t, &t->buffers[0], micro, part);
        ashlar_step_sizes sizes;
        window.weight = 1;
        window.weight_at = NULL;
        window.is_test = true;
        ASHLAR_TRY(ashlar__model_chunk_sizes(t->model, length_of(x, part), window.count,
                                             window.chunk, &sizes));
        ASHLAR_TRY(ashlar__model_step(t->model, &window, &sizes, x->trainer->losses));
    }
    return ASHLAR_OK;
}

/* Each part is a step of the allocator, as in training, so the plans serve it. */
static ashlar_status run_part(const test *x, size_t part) {
    const ashlar_trainer *t = x->trainer;
    const uint64_t key = ashlar__trainer_key(t, length_of(x, part));
    ASHLAR_TRY(ashlar_step_begin(t->allocator, t->stream, key));
    const ashlar_status status = queue_part(x, part);
    const ashlar_status ended = ashlar_step_end(t->allocator);
    return status == ASHLAR_OK ? ended : status;
}

static ashlar_status run_batch(test *x, const ashlar_batch_sampler_item *pieces, size_t count) {
    ashlar_text_task *t = x->task;
    const ashlar_trainer *trainer = x->trainer;
    double *const sum = ashlar__train_outcome_of(trainer, 0)->losses;
    ashlar__batcher_fill(x->batcher, pieces, count, &t->own);
    ashlar__text_fill_own(t, 0, t->own.steps);
    ASHLAR_TRY(t->head.table->upload(&t->head, 0, trainer->stream));
    ASHLAR_TRY(ashlar_fill(trainer->device, trainer->losses, 0, sizeof *sum, trainer->stream));
    for (size_t part = 0; part < t->buffers[0].split.parts; part++) {
        ASHLAR_TRY(run_part(x, part));
    }
    ASHLAR_TRY(
        ashlar_copy_to_host(trainer->device, sum, trainer->losses, sizeof *sum, trainer->stream));
    ASHLAR_TRY(ashlar_stream_synchronize(trainer->device, trainer->stream));
    x->nats += *sum;
    return ASHLAR_OK;
}

static ashlar_status run_all(test *x, ashlar_text_evaluation *out) {
    const size_t count = ashlar__batcher_piece_count(x->batcher), most = x->task->own_batch;
    for (size_t i = 0; i < count; i += most) {
        ASHLAR_TRY(run_batch(x, x->pieces + i, count - i < most ? count - i : most));
    }
    for (size_t i = 0; i < count; i++) {
        out->symbols += x->pieces[i].length;
    }
    out->loss = x->nats / (double)out->symbols;
    out->bits_per_byte = x->nats / log(2) / (double)out->bytes;
    return ASHLAR_OK;
}

static void count_records(const ashlar_text_task *t, ashlar_text_evaluation *out) {
    for (size_t i = 0; i < ashlar__corpus_count(t->corpus); i++) {
        if (ashlar__batcher_is_held_out(t->config.held_out, i)) {
            out->records++;
            out->bytes += ashlar__corpus_record(t->corpus, i).count;
        }
    }
}

ashlar_status ashlar__task_text_evaluate(ashlar_trainer *trainer, ashlar_text_evaluation *out) {
    test x = {.trainer = trainer, .task = ashlar__text_of(trainer->task)};
    ashlar_text_evaluation found = {0};
    ashlar_driver_counts counts;
    ashlar_status status = ASHLAR_OK;
    ashlar_device_get_counts(trainer->device, &counts);
    count_records(x.task, &found);
    if (found.records > 0) {
        status = list_pieces(&x);
        ASHLAR_THEN(status, run_all(&x, &found));
    }
    ashlar__host_free(x.pieces);
    ashlar__batcher_destroy(x.batcher);
    if (status == ASHLAR_OK) {
        found.management_calls = ashlar__phase_calls(trainer->device, &counts).management;
        x.task->test = found;
        *out = found;
    }
    return status;
}
