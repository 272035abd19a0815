/* task_tagger_evaluate.c - tests a trained tagger on held-out sentences; estimates its memory. */
#include <stdlib.h>

#include <ashlar/plan.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "rnn/train/task_tagger_impl.h"

static int longest_first(const void *a, const void *b) {
    const ashlar_batch_sampler_item *x = a;
    const ashlar_batch_sampler_item *y = b;
    if (x->length != y->length) {
        return x->length < y->length ? 1 : -1;
    }
    return (x->number > y->number) - (x->number < y->number);
}

/* Queue the prediction of the batch in buffer 0, and the copy of its loss to the host. */
static ashlar_status queue_prediction(ashlar_tagger_task *t) {
    const ashlar_tagger *m = t->tagger;
    const ashlar_tagger_shape shape = ashlar__task_tagger_shape(t, t->buffers[0].shape.steps);
    ashlar_tagger_bytes sizes;
    ASHLAR_TRY(ashlar__tagger_sizes(m, &shape, &sizes));
    ASHLAR_TRY(ashlar__task_tagger_upload(&t->head, 0, m->stream));
    ASHLAR_TRY(ashlar_fill(m->device, t->loss, 0, sizeof *t->loss, m->stream));
    ASHLAR_TRY(ashlar__tagger_predict(t->tagger, &t->buffers[0], &sizes, t->loss, t->labels));
    return ashlar_copy_to_host(m->device, t->host, t->loss, sizeof *t->loss, m->stream);
}

/* Predict the batch in buffer 0 on the plan of its length, like a training step. */
static ashlar_status predict(ashlar_tagger_task *t, ashlar_trainer *trainer) {
    if (t->config.without_plan) {
        return queue_prediction(t);
    }
    const uint64_t key = ashlar__trainer_key(trainer, t->buffers[0].shape.steps);
    ASHLAR_TRY(ashlar_step_begin(t->head.allocator, t->tagger->stream, key));
    const ashlar_status status = queue_prediction(t);
    const ashlar_status ended = ashlar_step_end(t->head.allocator);
    return status == ASHLAR_OK ? ended : status;
}

static void count_right(const ashlar_tagger_task *t, ashlar_tagger_evaluation *test) {
    const ashlar_tagger_batch *batch = &t->buffers[0];
    const ashlar_tagger_arrays arrays = ashlar__tagger_batch_arrays(&batch->shape, batch->data);
    for (size_t at = 0; at < batch->shape.steps * batch->shape.batch; at++) {
        const size_t b = at % batch->shape.batch;
        const bool is_word = at / batch->shape.batch < (size_t)arrays.lengths[b];
        test->right += is_word && t->labels[at] == arrays.targets[at];
    }
    test->words += batch->tokens;
    test->loss += *t->host * (double)batch->tokens;
}

static ashlar_status run_test(ashlar_tagger_task *t, ashlar_trainer *trainer,
                              const ashlar_batch_sampler_item *items,
                              ashlar_tagger_evaluation *test) {
    for (size_t i = 0; i < t->counts.held_out; i += t->config.batch) {
        const size_t left = t->counts.held_out - i;
        const size_t count = left < t->config.batch ? left : t->config.batch;
        ashlar__tagger_batch_fill(&t->buffers[0], t->corpus, items + i, count);
        ASHLAR_TRY(predict(t, trainer));
        ASHLAR_TRY(ashlar_stream_synchronize(t->tagger->device, t->tagger->stream));
        count_right(t, test);
    }
    test->loss = test->words > 0 ? test->loss / (double)test->words : 0;
    return ASHLAR_OK;
}

static uint64_t management_calls(const ashlar_tagger_task *t) {
    ashlar_driver_counts counts;
    ashlar_device_get_counts(t->tagger->device, &counts);
    return counts.memory + counts.order + counts.query;
}

ashlar_status ashlar__task_tagger_evaluate(ashlar_trainer *trainer, ashlar_tagger_evaluation *out) {
    ashlar_tagger_task *t = ashlar__task_tagger_of(ashlar__trainer_task(trainer));
    ashlar_tagger_evaluation test = {0};
    ashlar_batch_sampler_item *items;
    ASHLAR_HOST_NEW(items, t->counts.held_out + 1, "no host memory for %zu sentences",
                    t->counts.held_out);
    ashlar_tagger_estimate estimate;
    const uint64_t before = management_calls(t);
    ashlar__task_tagger_list(t, true, items);
    qsort(items, t->counts.held_out, sizeof *items, longest_first);
    ashlar_status status = ashlar__task_tagger_estimate(&t->head, &estimate);
    if (status == ASHLAR_OK) {
        status = run_test(t, trainer, items, &test);
    }
    ashlar__host_free(items);
    if (status == ASHLAR_OK) {
        t->needed_bytes = estimate.needed_bytes;
        test.management_calls = management_calls(t) - before;
        t->test = test;
        *out = test;
    }
    return status;
}

ashlar_status ashlar__task_tagger_estimate(ashlar_task *task, ashlar_tagger_estimate *out) {
    const ashlar_tagger_task *t = ashlar__task_tagger_of(task);
    const ashlar_tagger_shape largest = ashlar__task_tagger_shape(t, task->max_length);
    return ashlar__tagger_estimate_make(t->tagger, &largest, ASHLAR_TASK_BUFFERS, out);
}

void ashlar__task_tagger_put_results(const ashlar_task *task, ashlar_json_writer *w) {
    const ashlar_tagger_task *t = (const ashlar_tagger_task *)(const void *)task;
    const ashlar_tagger_evaluation *test = &t->test;
    ashlar__json_add_uint64(w, "needed_bytes", t->needed_bytes);
    ashlar__json_add_uint64(w, "held_out_words", test->words);
    ashlar__json_add_uint64(w, "held_out_right", test->right);
    ashlar__json_add_double(w, "held_out_loss", test->loss);
    ashlar__json_add_uint64(w, "held_out_driver_calls", test->management_calls);
}
