/* task_tagger.c - the tagger on sentences, as a task of the training loop; its test on held-out
 * sentences, and the estimate of its memory. */
#include "rnn/train/tasks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ashlar/plan.h>

#include "allocator/base/host.h"
#include "rnn/layer/backend.h"
#include "rnn/layer/rnn_cpu.h"
#include "rnn/train/shards.h"
#include "rnn/train/task_options.h"

typedef struct tagger_task {
    ashlar_task head;
    ashlar_train_config config;
    ashlar_task_tagger_config tags;
    const ashlar_tagger_corpus *corpus;
    ashlar_tagger_counts counts; /* the corpus's */
    ashlar_tagger *tagger;
    double *host;    /* head.host: one loss, then both buffers' batches, then labels */
    double *loss;    /* of a prediction, in device memory: head.blocks[1] */
    int32_t *labels; /* in `host`: [T, B] of the largest batch */
    ashlar_shards shards;
    size_t count; /* sentences of a shard; without shards, of a batch */
    ashlar_tagger_batch buffers[ASHLAR_TASK_BUFFERS][ASHLAR_SHARDS_MOST]; /* [shards.count] used */
    size_t tokens[ASHLAR_TASK_BUFFERS]; /* of the batch, on all ranks */
    ashlar_batch_sampler_item *own;     /* [count] of one shard */
    ashlar_tagger_evaluation test; /* the last evaluation */
    size_t needed_bytes;           /* from the estimate; 0 before the first test */
} tagger_task;

static tagger_task *tagger_of(const ashlar_task *task) {
    return (tagger_task *)(uintptr_t)task; /* its first member */
}

static uint64_t mix(uint64_t sum, uint64_t value) {
    sum = (sum ^ value) * UINT64_C(0x100000001b3);
    return sum ^ sum >> 29; /* otherwise high bits would never reach low ones */
}

/* A checksum of everything that a training reads; not secure against an attacker. */
static uint64_t checksum_of(const ashlar_tagger_corpus *corpus, size_t sentences) {
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < sentences; i++) {
        const ashlar_tagger_sentence s = ashlar__tagger_corpus_sentence(corpus, i);
        sum = mix(mix(sum, s.count), s.is_held_out);
        for (size_t t = 0; t < s.count; t++) {
            sum = mix(mix(sum, (uint64_t)s.tokens[t].word), (uint64_t)s.tokens[t].tag);
            for (size_t j = 0; j < s.tokens[t].count; j++) {
                sum = mix(sum, s.tokens[t].bytes[j]);
            }
        }
    }
    return sum;
}

static void describe_data(const ashlar_task *task, char text[static ASHLAR_TASK_DATA_BYTES]) {
    const tagger_task *t = tagger_of(task);
    (void)snprintf(text, ASHLAR_TASK_DATA_BYTES, "%zu sentences, %zu words, %016" PRIx64,
                   t->counts.sentences, t->counts.tokens,
                   checksum_of(t->corpus, t->counts.sentences));
}

static void list_options(const ashlar_task *task, ashlar_metadata *m) {
    const tagger_task *t = tagger_of(task);
    ashlar__metadata_add_text(m, "ashlar.model", "tagger");
    ashlar__metadata_add_stack(m, &t->config);
    ashlar__metadata_add_count(m, "ashlar.char_embedding", t->tags.character_embedding);
    ashlar__metadata_add_count(m, "ashlar.char_hidden", t->tags.character_hidden);
    ashlar__metadata_add_count(m, "ashlar.label_embedding", t->tags.label_embedding);
    ashlar__metadata_add_count(m, "ashlar.directions", t->tags.is_unidirectional ? 1 : 2);
}

static ashlar_tagger_shape shape_of(const tagger_task *t, size_t length) {
    return (ashlar_tagger_shape){length, t->count, t->counts.longest_word};
}

static ashlar_task_batch next(ashlar_task *task, size_t buffer) {
    tagger_task *t = tagger_of(task);
    const ashlar_batch_sampler_item *items = ashlar__batch_sampler_next(task->sampler);
    const size_t *padded = task->padded, longest = padded == NULL ? 1 : t->counts.longest_word;
    for (size_t i = 0; i < t->shards.count; i++) {
        for (size_t b = 0; b < t->count; b++) {
            t->own[b] = items[t->shards.first + i + b * t->shards.all];
        }
        ashlar__tagger_batch_fill_padded(&t->buffers[buffer][i], t->corpus, t->own, t->count,
                                         padded == NULL ? 1 : padded[items[0].length], longest);
    }
    t->tokens[buffer] = 0;
    for (size_t b = 0; b < t->config.batch; b++) {
        t->tokens[buffer] += items[b].length;
    }
    return (ashlar_task_batch){.length = items[0].length,
                               .tokens = t->tokens[buffer],
                               .parts = 1,
                               .epoch = ashlar__batch_sampler_epochs(task->sampler)};
}

static void make_dummy(ashlar_task *task, size_t buffer, size_t length) {
    tagger_task *t = tagger_of(task);
    const ashlar_tagger_shape shape = shape_of(t, length);
    for (size_t i = 0; i < t->shards.count; i++) {
        ashlar__tagger_batch_fill_largest(&t->buffers[buffer][i], &shape);
    }
    t->tokens[buffer] = length * t->config.batch;
}

static ashlar_task_part part_of(const ashlar_task *task, size_t buffer, size_t part) {
    const tagger_task *t = tagger_of(task);
    (void)part; /* the first shard has the longest sentence */
    return (ashlar_task_part){.length = t->buffers[buffer][0].shape.steps,
                              .tokens = t->tokens[buffer]};
}

static ashlar_status upload_shards(const tagger_task *t, size_t buffer, size_t count,
                                   ashlar_stream stream) {
    const ashlar_tagger_shape largest = shape_of(t, t->counts.longest_sentence);
    const bool is_fixed = t->head.values[buffer] != NULL; /* the same copy for every batch */
    for (size_t i = 0; i < count; i++) {
        const ashlar_tagger_batch *batch = &t->buffers[buffer][i];
        size_t bytes;
        ASHLAR_TRY(ashlar__tagger_batch_bytes(is_fixed ? &largest : &batch->shape, &bytes));
        ASHLAR_TRY(
            ashlar_copy_to_device(t->tagger->device, batch->device, batch->data, bytes, stream));
    }
    return ASHLAR_OK;
}

static ashlar_status upload(ashlar_task *task, size_t buffer, ashlar_stream stream) {
    const tagger_task *t = tagger_of(task);
    return upload_shards(t, buffer, t->shards.count, stream);
}

static ashlar_status step(ashlar_task *task, size_t buffer, size_t part, uint64_t seed,
                          double *loss) {
    const tagger_task *t = tagger_of(task);
    const ashlar_tagger_batch *batch = &t->buffers[buffer][task->shard];
    const ashlar_tagger_shape shape = shape_of(t, batch->shape.steps);
    const bool is_shared = ashlar__shards_are_used(&t->config);
    ashlar_tagger_bytes sizes;
    (void)part;
    t->tagger->dropout_first = task->drops_alone ? 0 : t->shards.first + task->shard;
    t->tagger->dropout_stride = task->drops_alone ? 0 : t->shards.all;
    t->tagger->loss_scale = task->loss_scale;
    t->tagger->dropout_seed = seed;
    const ashlar_step_values *values = task->values[buffer];
    t->tagger->weight_at = values == NULL ? NULL : values->weights;
    t->tagger->seed_at = values == NULL ? NULL : &values->seed;
    ASHLAR_TRY(ashlar__tagger_sizes(t->tagger, &shape, &sizes));
    return ashlar__tagger_step(t->tagger, batch, &sizes,
                               is_shared ? 1 / (double)t->tokens[buffer] : 0, loss);
}

static ashlar_status dry_run(ashlar_task *task, size_t length) {
    const tagger_task *t = tagger_of(task);
    const ashlar_tagger_shape shape = shape_of(t, length);
    ashlar_tagger_bytes sizes;
    ASHLAR_TRY(ashlar__tagger_sizes(t->tagger, &shape, &sizes));
    for (size_t i = 0; i < t->shards.count; i++) {
        ASHLAR_TRY(ashlar__tagger_dry_run(t->tagger, &sizes));
    }
    return ASHLAR_OK;
}

/* No option of a tagger saves memory. */
static ashlar_status savings(const ashlar_task *task, uint64_t *bytes,
                             ashlar_task_saving unused[static ASHLAR_TASK_SAVINGS_MAX],
                             size_t *count) {
    const tagger_task *t = tagger_of(task);
    const ashlar_tagger_shape largest = shape_of(t, task->max_length);
    ashlar_tagger_bytes sizes;
    (void)unused;
    ASHLAR_TRY(ashlar__tagger_sizes(t->tagger, &largest, &sizes));
    *bytes = ashlar__tagger_bytes_at(&sizes, ashlar__tagger_peak_phase(&sizes));
    *count = 0;
    return ASHLAR_OK;
}

/* Take the buffers' memory on host and device, and room for predictions and their loss. */
static ashlar_status take_memory(tagger_task *t, ashlar_stream stream) {
    const ashlar_tagger_shape largest = shape_of(t, t->counts.longest_sentence);
    const size_t labels = largest.steps * largest.batch;
    const size_t all = ASHLAR_TASK_BUFFERS * t->shards.count;
    size_t bytes;
    ASHLAR_TRY(ashlar__tagger_batch_bytes(&largest, &bytes));
    ASHLAR_TRY(
        ashlar__task_take_host(&t->head, sizeof(double) + all * bytes + labels * sizeof(int32_t)));
    ASHLAR_TRY(ashlar__task_take_block(&t->head, 0, all * bytes, ASHLAR_TAG_BATCH, stream));
    ASHLAR_TRY(ashlar__task_take_block(&t->head, 1, sizeof *t->loss, ASHLAR_TAG_WORKSPACE, stream));
    t->host = t->head.host; /* the double lies first, for its alignment */
    t->loss = t->head.blocks[1];
    const size_t words = bytes / sizeof(int32_t);
    int32_t *data = (int32_t *)(t->host + 1);
    for (size_t i = 0; i < all; i++) {
        ashlar_tagger_batch *batch = &t->buffers[i / t->shards.count][i % t->shards.count];
        batch->data = data + i * words;
        batch->device = (int32_t *)t->head.blocks[0] + i * words;
    }
    t->labels = data + all * words;
    return ASHLAR_OK;
}

static ashlar_status open_task(ashlar_task *task, ashlar_stream stream, unsigned regions) {
    tagger_task *t = tagger_of(task);
    const ashlar_train_config *c = &t->config;
    const ashlar_tagger_config config = {.words = t->counts.words,
                                         .characters = t->counts.characters,
                                         .tags = t->counts.tags,
                                         .word_embedding = c->embedding,
                                         .character_embedding = t->tags.character_embedding,
                                         .character_hidden = t->tags.character_hidden,
                                         .hidden = c->hidden,
                                         .layers = c->layers,
                                         .cell = c->cell,
                                         .projection = c->projection,
                                         .dropout = c->dropout,
                                         .directions = t->tags.is_unidirectional ? 1 : 2,
                                         .label_embedding = t->tags.label_embedding,
                                         .dtype = ASHLAR_F32,
                                         .algorithm = c->algorithm,
                                         .math = c->allows_tf32 ? ASHLAR_RNN_MATH_TF32
                                                                : ASHLAR_RNN_MATH_FMA};
    ASHLAR_TRY(ashlar__tagger_create(task->allocator, stream, &config, regions, &t->tagger));
    t->tagger->source = &task->source;
    task->arena = t->tagger->arena;
    task->cannot_pad = ashlar__rnn_varies(t->tagger->word_rnn)
                           ? NULL
                           : "cuDNN takes the lengths of sentences and words from the host";
    if (c->measured == NULL) {
        ASHLAR_TRY(ashlar__tagger_init_weights(t->tagger, c->seed));
    }
    return take_memory(t, stream);
}

static void close_task(ashlar_task *task) {
    tagger_task *t = tagger_of(task);
    ashlar__tagger_destroy(t->tagger);
    t->tagger = NULL;
}

static void destroy_task(ashlar_task *task) {
    ashlar__batch_sampler_destroy(task->sampler);
    ashlar__host_free(tagger_of(task)->own);
    ashlar__host_free(tagger_of(task));
}

static void put_results(const ashlar_task *task, ashlar_json_writer *w) {
    const tagger_task *t = tagger_of(task);
    const ashlar_tagger_evaluation *test = &t->test;
    ashlar__json_add_uint64(w, "needed_bytes", t->needed_bytes);
    ashlar__json_add_uint64(w, "held_out_words", test->words);
    ashlar__json_add_uint64(w, "held_out_right", test->right);
    ashlar__json_add_double(w, "held_out_loss", test->loss);
    ashlar__json_add_uint64(w, "held_out_driver_calls", test->management_calls);
}

static ashlar_status restart_dropout(ashlar_task *task, uint64_t seed) {
    const ashlar_tagger *tagger = ((tagger_task *)task)->tagger;
    ASHLAR_TRY(ashlar__rnn_restart_dropout(tagger->character_rnn, seed, tagger->stream));
    return ashlar__rnn_restart_dropout(tagger->word_rnn, seed + 1, tagger->stream);
}

static const ashlar_task_table table = {
    .open = open_task,
    .close = close_task,
    .destroy = destroy_task,
    .next = next,
    .make_dummy = make_dummy,
    .part = part_of,
    .upload = upload,
    .step = step,
    .dry_run = dry_run,
    .restart_dropout = restart_dropout,
    .savings = savings,
    .list_options = list_options,
    .describe_data = describe_data,
    .put_results = put_results,
};

/* List the held-out sentences, or all others. */
static void list_sentences(const tagger_task *t, bool held_out, ashlar_batch_sampler_item *items) {
    for (size_t i = 0; i < t->counts.sentences; i++) {
        const ashlar_tagger_sentence s = ashlar__tagger_corpus_sentence(t->corpus, i);
        if (s.is_held_out == held_out) {
            *items++ = (ashlar_batch_sampler_item){i, s.count};
        }
    }
}

/* Create a batch sampler of all sentences that are not held out. */
static ashlar_status make_batch_sampler(tagger_task *t) {
    const size_t count = t->head.sequences;
    ashlar_batch_sampler_item *items;
    ASHLAR_HOST_NEW(items, count, "no host memory for %zu sentences", count);
    list_sentences(t, false, items);
    const ashlar_status status =
        ashlar__batch_sampler_create(items, count, t->config.batch, ASHLAR_BATCH_SAMPLER_WINDOW,
                                     t->config.seed, &t->head.sampler);
    ashlar__host_free(items);
    return status;
}

static ashlar_status build(tagger_task *t) {
    size_t bytes;
    ashlar__tagger_corpus_counts(t->corpus, &t->counts);
    ASHLAR_TRY(ashlar__shards_check(&t->config));
    t->shards = ashlar__shards_of(&t->config);
    t->count = t->config.batch / t->shards.all;
    const ashlar_tagger_shape largest = shape_of(t, t->counts.longest_sentence);
    ASHLAR_TRY(ashlar__tagger_batch_bytes(&largest, &bytes)); /* first: `count` may be anything */
    ASHLAR_HOST_NEW(t->own, t->count, "no host memory for %zu sentences", t->count);
    t->head.max_length = largest.steps;
    t->head.max_part_length = largest.steps;
    t->head.max_parts = 1;
    t->head.batch = t->config.batch;
    t->head.sequences = t->counts.sentences - t->counts.held_out;
    return make_batch_sampler(t);
}

ashlar_status ashlar__task_tagger_create(const ashlar_tagger_corpus *corpus,
                                         const ashlar_train_config *config,
                                         const ashlar_task_tagger_config *tags, ashlar_task **out) {
    tagger_task *t;
    ASHLAR_HOST_NEW(t, 1, "no host memory for a task");
    *t = (tagger_task){.head = {.table = &table, .unit = "word"},
                       .config = *config,
                       .tags = *tags,
                       .corpus = corpus};
    ASHLAR_HAND_OUT(build(t), &t->head, destroy_task, out);
}

ashlar_status ashlar__task_tagger_estimate(ashlar_task *task, ashlar_tagger_estimate *out) {
    const tagger_task *t = tagger_of(task);
    const ashlar_tagger_shape largest = shape_of(t, task->max_length);
    return ashlar__tagger_estimate_make(t->tagger, &largest, ASHLAR_TASK_BUFFERS, out);
}

/* Queue the prediction of the batch in buffer 0, and the copy of its loss to the host. */
static ashlar_status queue_prediction(tagger_task *t) {
    const ashlar_tagger *m = t->tagger;
    const ashlar_tagger_shape shape = shape_of(t, t->buffers[0][0].shape.steps);
    ashlar_tagger_bytes sizes;
    ASHLAR_TRY(ashlar__tagger_sizes(m, &shape, &sizes));
    ASHLAR_TRY(upload_shards(t, 0, 1, m->stream));
    ASHLAR_TRY(ashlar_fill(m->device, t->loss, 0, sizeof *t->loss, m->stream));
    ASHLAR_TRY(ashlar__tagger_predict(t->tagger, &t->buffers[0][0], &sizes, t->loss, t->labels));
    return ashlar_copy_to_host(m->device, t->host, t->loss, sizeof *t->loss, m->stream);
}

/* Predict the batch in buffer 0, in a step of the allocator with the key of its length, like a
 * training step. */
static ashlar_status predict(tagger_task *t, ashlar_trainer *trainer) {
    const uint64_t key = ashlar__trainer_key(trainer, t->buffers[0][0].shape.steps);
    ASHLAR_TRY(ashlar_step_begin(t->head.allocator, t->tagger->stream, key));
    const ashlar_status status = queue_prediction(t);
    const ashlar_status ended = ashlar_step_end(t->head.allocator);
    return status == ASHLAR_OK ? ended : status;
}

static void count_right(const tagger_task *t, ashlar_tagger_evaluation *test) {
    const ashlar_tagger_batch *batch = &t->buffers[0][0];
    const ashlar_tagger_arrays arrays = ashlar__tagger_batch_arrays(&batch->shape, batch->data);
    for (size_t at = 0; at < batch->shape.steps * batch->shape.batch; at++) {
        const size_t b = at % batch->shape.batch;
        const bool is_word = at / batch->shape.batch < (size_t)arrays.lengths[b];
        test->right += is_word && t->labels[at] == arrays.targets[at];
    }
    test->words += batch->tokens;
    test->loss += *t->host * (double)batch->tokens;
}

static ashlar_status run_test(tagger_task *t, ashlar_trainer *trainer,
                              const ashlar_batch_sampler_item *items,
                              ashlar_tagger_evaluation *test) {
    for (size_t i = 0; i < t->counts.held_out; i += t->count) {
        const size_t left = t->counts.held_out - i;
        const size_t count = left < t->count ? left : t->count;
        ashlar__tagger_batch_fill(&t->buffers[0][0], t->corpus, items + i, count);
        ASHLAR_TRY(predict(t, trainer));
        ASHLAR_TRY(ashlar_stream_synchronize(t->tagger->device, t->tagger->stream));
        count_right(t, test);
    }
    test->loss = test->words > 0 ? test->loss / (double)test->words : 0;
    return ASHLAR_OK;
}

ashlar_status ashlar__task_tagger_evaluate(ashlar_trainer *trainer, ashlar_tagger_evaluation *out) {
    tagger_task *t = tagger_of(ashlar__trainer_task(trainer));
    ashlar_tagger_evaluation test = {0};
    ashlar_batch_sampler_item *items;
    ASHLAR_HOST_NEW(items, t->counts.held_out + 1, "no host memory for %zu sentences",
                    t->counts.held_out);
    ashlar_tagger_estimate estimate;
    ashlar_driver_counts counts;
    ashlar_device_get_counts(t->tagger->device, &counts);
    list_sentences(t, true, items);
    ashlar__batch_sort_items(items, t->counts.held_out);
    ashlar_status status = ashlar__task_tagger_estimate(&t->head, &estimate);
    ASHLAR_THEN(status, run_test(t, trainer, items, &test));
    ashlar__host_free(items);
    if (status == ASHLAR_OK) {
        t->needed_bytes = estimate.needed_bytes;
        test.management_calls = ashlar__phase_calls(t->tagger->device, &counts).management;
        t->test = test;
        *out = test;
    }
    return status;
}
