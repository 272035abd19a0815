/* task_text.c - the character model on a text, as a task of the training loop; its loss on the
 * records that were held out. */
#include "rnn/train/tasks.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "rnn/data/batcher.h"
#include "rnn/layer/backend.h"
#include "rnn/train/shards.h"
#include "rnn/train/task_options.h"
#include "rnn/train/train_impl.h"

/* A batch on its way to a step. */
typedef struct text_buffer {
    ashlar_batch_split split;
    int32_t *host;   /* page-locked: the image and the second copy of the lengths (batcher.h) */
    int32_t *device; /* the image, in device memory */
    size_t *tokens;  /* [max_parts] of each part, on all ranks */
} text_buffer;

/* Indices of head.blocks. BUFFERS: both buffers; CARRIED: if a batch has several parts, two sets of
 * states for each micro-batch. */
enum { ASHLAR_TEXT_BUFFERS, ASHLAR_TEXT_CARRIED };

typedef struct text_task {
    ashlar_task head;
    ashlar_train_config config;
    const ashlar_corpus *corpus;
    ashlar_batcher *batcher;
    ashlar_batch_split_config split;
    int32_t *drawn;     /* the batcher writes here: inputs, targets, lengths */
    ashlar_batch batch; /* its pointers lead into `drawn` */
    ashlar_shards shards;
    ashlar_batch own; /* the columns of this rank's shards, shard by shard; the same memory as
                       * `batch` if the batch is not divided */
    size_t own_batch; /* sequences in `own` */
    ashlar_model *model;
    size_t state_bytes;  /* of one set of states */
    size_t buffer_words; /* of the largest batch, with the second copy of its lengths */
    text_buffer buffers[ASHLAR_TASK_BUFFERS];
    ashlar_text_evaluation test; /* zeros until there is one */
} text_task;

static text_task *text_of(const ashlar_task *task) {
    return (text_task *)(uintptr_t)task; /* its first member */
}

ashlar_model *ashlar__task_text_model(ashlar_task *task) {
    return text_of(task)->model;
}

static void describe_data(const ashlar_task *task, char text[static ASHLAR_TASK_DATA_BYTES]) {
    const ashlar_corpus *corpus = text_of(task)->corpus;
    (void)snprintf(text, ASHLAR_TASK_DATA_BYTES, "%zu records, %zu bytes, %016" PRIx64,
                   ashlar__corpus_count(corpus), ashlar__corpus_bytes(corpus),
                   ashlar__corpus_checksum(corpus));
}

/* Micro-batches of a shard. */
static size_t pieces_of(const text_task *t) {
    return t->config.accumulate == 0 ? 1 : t->config.accumulate;
}

static void list_options(const ashlar_task *task, ashlar_metadata *m) {
    const text_task *t = text_of(task);
    const ashlar_train_config *c = &t->config;
    ashlar__metadata_add_stack(m, c);
    ashlar__metadata_add_count(m, "ashlar.max_length", c->max_length);
    ashlar__metadata_add_count(m, "ashlar.stride", c->stride);
    if (c->held_out > 0) { /* a missing number in a file means 0, too */
        ashlar__metadata_add_count(m, "ashlar.held_out", c->held_out);
    }
    ashlar__metadata_add_count(m, "ashlar.accumulate", pieces_of(t));
    ashlar__metadata_add_count(m, "ashlar.bptt", t->split.part);
    ashlar__metadata_add_count(m, "ashlar.recompute", t->split.chunk);
    if (m->is_for_report || c->dtype != ASHLAR_F32) { /* a missing type means F32 */
        ashlar__metadata_add_text(m, "ashlar.dtype", ashlar_dtype_name(c->dtype));
    }
}

/* Pad the batch to the longest length of its range. */
static void pad_batch(text_task *t) {
    const size_t steps = t->batch.steps, padded = t->head.padded[steps];
    const size_t from = steps * t->config.batch, count = (padded - steps) * t->config.batch;
    memset(t->batch.inputs + from, 0, count * sizeof t->batch.inputs[0]);
    memset(t->batch.targets + from, 0, count * sizeof t->batch.targets[0]);
    t->batch.steps = padded;
}

static void fill_own(text_task *t, size_t index, size_t steps) {
    text_buffer *s = &t->buffers[index];
    s->split = ashlar__batch_split_make(&t->split, steps);
    ashlar__batch_split_fill(&s->split, &t->own, s->host);
}

static void fill_buffer(text_task *t, size_t index) {
    text_buffer *s = &t->buffers[index];
    if (t->own.inputs != t->batch.inputs) {
        ashlar__batch_take_shards(&t->batch, t->config.batch, t->shards.all, t->shards.first,
                                  t->shards.count, &t->own);
    }
    fill_own(t, index, t->batch.steps);
    for (size_t part = 0; part < s->split.parts; part++) {
        s->tokens[part] =
            ashlar__batch_split_tokens(&s->split, part, t->batch.lengths, t->config.batch);
    }
}

static ashlar_task_batch next(ashlar_task *task, size_t index) {
    text_task *t = text_of(task);
    ashlar__batcher_next(t->batcher, &t->batch);
    const size_t length = t->batch.steps;
    if (task->padded != NULL) {
        pad_batch(t);
    }
    fill_buffer(t, index);
    return (ashlar_task_batch){.length = length,
                               .tokens = t->batch.tokens,
                               .parts = t->buffers[index].split.parts,
                               .epoch = t->batch.epoch};
}

static void make_dummy(ashlar_task *task, size_t index, size_t length) {
    text_task *t = text_of(task);
    const size_t cells = length * t->config.batch; /* fits: `length` is at most max_length */
    memset(t->batch.inputs, 0, cells * sizeof t->batch.inputs[0]);
    memset(t->batch.targets, 0, cells * sizeof t->batch.targets[0]);
    for (size_t b = 0; b < t->config.batch; b++) {
        t->batch.lengths[b] = (int32_t)length;
    }
    t->batch.steps = length;
    fill_buffer(t, index);
}

static ashlar_task_part part_of(const ashlar_task *task, size_t index, size_t part) {
    const text_buffer *s = &text_of(task)->buffers[index];
    return (ashlar_task_part){.length = ashlar__batch_split_window(&s->split, 0, part).steps,
                              .tokens = s->tokens[part]};
}

/* Where batches are padded, copy the whole buffer, so that the call is the same for every batch. */
static ashlar_status upload(ashlar_task *task, size_t index, ashlar_stream stream) {
    const text_task *t = text_of(task);
    const text_buffer *s = &t->buffers[index];
    const size_t words = task->values[index] != NULL ? t->buffer_words : s->split.image;
    return ashlar_copy_to_device(t->model->device, s->device, s->host, words * sizeof *s->host,
                                 stream);
}

/* The states of a micro-batch before part i. A micro-batch has two sets of states: each part reads
 * one and writes the other. */
static void *carried_set(const text_task *t, size_t micro, size_t i) {
    return (char *)t->head.blocks[ASHLAR_TEXT_CARRIED] + (2 * micro + i % 2) * t->state_bytes;
}

/* Each position's loss has the weight 1 / (tokens of the whole part). If the part is not split, a
 * weight of 0 has the same effect: the loss then divides by its own tokens. */
static ashlar_model_window window_of(const text_task *t, const text_buffer *s, size_t micro,
                                     size_t part) {
    const ashlar_batch_split *split = &s->split;
    const ashlar_batch_window at = ashlar__batch_split_window(split, micro, part);
    const bool is_whole =
        split->micro == 1 && split->chunks == 1 && !ashlar__shards_are_used(&t->config);
    const ashlar_step_values *values = t->head.values[s - t->buffers];
    return (ashlar_model_window){
        .steps = at.steps,
        .count = split->count,
        .chunk = t->split.chunk == 0 ? 0 : split->chunk,
        .inputs = s->device + at.inputs,
        .targets = s->device + at.targets,
        .lengths = s->device + at.lengths,
        .rnn_lengths = s->host + at.rnn_lengths,
        .rnn_lengths_at = values == NULL ? NULL : s->device + at.rnn_lengths,
        .weight = is_whole ? 0 : 1 / (double)s->tokens[part],
        .weight_at = is_whole || values == NULL ? NULL : &values->weights[part],
        .first = part == 0 ? NULL : carried_set(t, micro, part),
        .last = part + 1 == split->parts ? NULL : carried_set(t, micro, part + 1),
    };
}

/* The difference between the dropout seeds of neighbouring micro-batches, which must drop different
 * outputs. Odd, like the training loop's difference between steps. */
static const uint64_t MICRO_STRIDE = UINT64_C(0xa0761d6478bd642f);

static ashlar_status step(ashlar_task *task, size_t index, size_t part, uint64_t seed,
                          double *loss) {
    const text_task *t = text_of(task);
    t->model->loss_scale = task->loss_scale;
    t->model->seed_at = task->values[index] == NULL ? NULL : &task->values[index]->seed;
    t->model->dropout_first = task->drops_alone ? 0 : t->shards.first + task->shard;
    t->model->dropout_stride = task->drops_alone ? 0 : t->shards.all;
    for (size_t piece = 0; piece < pieces_of(t); piece++) {
        const size_t m = task->shard * pieces_of(t) + piece;
        const ashlar_model_window window = window_of(t, &t->buffers[index], m, part);
        ashlar_step_sizes sizes;
        t->model->dropout_seed = seed + piece * MICRO_STRIDE;
        ASHLAR_TRY(
            ashlar__model_chunk_sizes(t->model, window.steps, window.count, window.chunk, &sizes));
        ASHLAR_TRY(ashlar__model_step(t->model, &window, &sizes, loss));
    }
    return ASHLAR_OK;
}

/* Sized for exactly `length`, since a longer step may need a smaller workspace (with cuDNN). */
static ashlar_status dry_run(ashlar_task *task, size_t length) {
    const text_task *t = text_of(task);
    const ashlar_batch_split split = ashlar__batch_split_make(&t->split, length);
    ashlar_step_sizes sizes;
    ASHLAR_TRY(ashlar__model_chunk_sizes(t->model, length, split.count, t->split.chunk, &sizes));
    for (size_t m = 0; m < split.micro; m++) {
        ASHLAR_TRY(ashlar__model_dry_run(t->model, t->split.chunk != 0, &sizes));
    }
    return ASHLAR_OK;
}

/* Peak memory of the longest step if batches were split as `config` says. */
static ashlar_status peak_of(const text_task *t, const ashlar_batch_split_config *config,
                             uint64_t *bytes) {
    const ashlar_batch_split split = ashlar__batch_split_make(config, t->head.max_length);
    ashlar_step_sizes sizes;
    ASHLAR_TRY(ashlar__model_chunk_sizes(t->model, split.part, split.count, config->chunk, &sizes));
    *bytes = ashlar__model_step_peak(config->chunk != 0, &sizes);
    return ASHLAR_OK;
}

static ashlar_status savings(const ashlar_task *task, uint64_t *bytes,
                             ashlar_task_saving out[static ASHLAR_TASK_SAVINGS_MAX],
                             size_t *count) {
    const text_task *t = text_of(task);
    ashlar_batch_split_config without[] = {t->split, t->split, t->split};
    const ashlar_task_saving options[] = {{"accumulate", pieces_of(t) == 1 ? 0 : pieces_of(t), 0},
                                          {"bptt", t->split.part, 0},
                                          {"recompute", t->split.chunk, 0}};
    without[0].micro = t->shards.count;
    without[1].part = 0;
    without[2].chunk = 0;
    *count = 0;
    ASHLAR_TRY(peak_of(t, &t->split, bytes));
    for (size_t i = 0; i < 3; i++) {
        if (options[i].value != 0) {
            out[*count] = options[i];
            ASHLAR_TRY(peak_of(t, &without[i], &out[(*count)++].bytes));
        }
    }
    return ASHLAR_OK;
}

enum { BUFFER_ALIGN = 256 };

/* Take the buffers' memory, one block on the host and one on the device. */
static ashlar_status take_buffers(text_task *t, ashlar_stream stream) {
    const ashlar_batch_split largest = ashlar__batch_split_make(&t->split, t->head.max_length);
    const size_t words = largest.image + largest.extra, item = sizeof(int32_t);
    size_t image;
    t->buffer_words = words;
    ASHLAR_FAIL_IF(
        !ashlar__mul(ashlar__train_pads(&t->config) ? words : largest.image, item, &image) ||
            !ashlar__align_up(image, BUFFER_ALIGN, &image),
        ASHLAR_EOVERFLOW, "a batch of %zu words is too large to address", largest.image);
    ASHLAR_TRY(ashlar__task_take_host(&t->head, ASHLAR_TASK_BUFFERS * words * item));
    ASHLAR_TRY(ashlar__task_take_block(&t->head, ASHLAR_TEXT_BUFFERS, ASHLAR_TASK_BUFFERS * image,
                                       ASHLAR_TAG_BATCH, stream));
    for (size_t i = 0; i < ASHLAR_TASK_BUFFERS; i++) {
        t->buffers[i].host = (int32_t *)t->head.host + i * words;
        t->buffers[i].device = (int32_t *)t->head.blocks[ASHLAR_TEXT_BUFFERS] + i * (image / item);
    }
    return ASHLAR_OK;
}

/* Take two sets of states for each micro-batch: those before and those after a part. */
static ashlar_status take_carried(text_task *t, ashlar_stream stream) {
    ashlar_step_sizes sizes;
    size_t bytes = 0;
    ASHLAR_TRY(ashlar__model_sizes(t->model, 1, t->own_batch / t->split.micro, &sizes));
    ASHLAR_FAIL_IF(!ashlar__mul(2 * t->split.micro, sizes.state, &bytes), ASHLAR_EOVERFLOW,
                   "the states of %zu sequences are too large", t->config.batch);
    t->state_bytes = sizes.state;
    return ashlar__task_take_block(&t->head, ASHLAR_TEXT_CARRIED, bytes, ASHLAR_TAG_ACTIVATIONS,
                                   stream);
}

static ashlar_status open_task(ashlar_task *task, ashlar_stream stream, unsigned regions) {
    text_task *t = text_of(task);
    const ashlar_model_config model = {.classes = ASHLAR_BATCHER_SYMBOLS,
                                       .embedding = t->config.embedding,
                                       .hidden = t->config.hidden,
                                       .layers = t->config.layers,
                                       .cell = t->config.cell,
                                       .projection = t->config.projection,
                                       .dropout = t->config.dropout,
                                       .dtype = t->config.dtype,
                                       .algorithm = t->config.algorithm,
                                       .math = t->config.allows_tf32 ? ASHLAR_RNN_MATH_TF32
                                                                     : ASHLAR_RNN_MATH_FMA};
    ASHLAR_TRY(ashlar__model_create(task->allocator, stream, &model, regions, &t->model));
    t->model->source = &task->source;
    task->arena = t->model->arena;
    if (t->config.measured == NULL) {
        ASHLAR_TRY(ashlar__model_init_weights(t->model, t->config.seed));
    }
    ASHLAR_TRY(take_buffers(t, stream));
    return task->max_parts > 1 ? take_carried(t, stream) : ASHLAR_OK;
}

static void close_task(ashlar_task *task) {
    text_task *t = text_of(task);
    ashlar__model_destroy(t->model);
    t->model = NULL;
}

static void destroy_task(ashlar_task *task) {
    text_task *t = text_of(task);
    ashlar__batcher_destroy(t->batcher);
    ashlar__host_free(t->drawn);
    ashlar__host_free(t->buffers[0].tokens);
    ashlar__host_free(t);
}

static void put_results(const ashlar_task *task, ashlar_json_writer *w) {
    const ashlar_text_evaluation *test = &text_of(task)->test;
    ashlar__json_add_uint64(w, "held_out_records", test->records);
    ashlar__json_add_uint64(w, "held_out_symbols", test->symbols);
    ashlar__json_add_double(w, "held_out_loss", test->loss);
    ashlar__json_add_double(w, "held_out_bits_per_byte", test->bits_per_byte);
    ashlar__json_add_uint64(w, "held_out_driver_calls", test->management_calls);
}

static ashlar_status restart_dropout(ashlar_task *task, uint64_t seed) {
    const ashlar_model *model = text_of(task)->model;
    return ashlar__rnn_restart_dropout(model->rnn, seed, model->stream);
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

static ashlar_status take_drawn(text_task *t) {
    const size_t grid = ashlar__batcher_array_bytes(t->batcher) / sizeof *t->drawn;
    const size_t all = 2 * grid + t->config.batch; /* `own` needs no more */
    const bool is_whole = t->own_batch == t->config.batch && t->shards.all == 1;
    ASHLAR_HOST_NEW(t->drawn, is_whole ? all : 2 * all, "no host memory for a batch of %zu words",
                    2 * grid);
    t->batch = (ashlar_batch){
        .inputs = t->drawn, .targets = t->drawn + grid, .lengths = t->drawn + 2 * grid};
    int32_t *own = is_whole ? t->drawn : t->drawn + all;
    t->own = (ashlar_batch){.inputs = own, .targets = own + grid, .lengths = own + 2 * grid};
    const size_t parts = t->head.max_parts;
    ASHLAR_HOST_NEW(t->buffers[0].tokens, ASHLAR_TASK_BUFFERS * parts,
                    "no host memory for %zu parts", parts);
    t->buffers[1].tokens = t->buffers[0].tokens + parts;
    return ASHLAR_OK;
}

/* The square root of `value`, rounded up. In chunks of about that many steps, one chunk's buffers
 * take about as much memory as the states at all borders. Chunks twice as long save nearly as much
 * memory and cost less time. */
static size_t root_up(size_t value) {
    size_t root = (size_t)sqrt((double)value);
    while (root * root < value) {
        root++;
    }
    return root;
}

static void choose_split(text_task *t, size_t longest) {
    const ashlar_train_config *c = &t->config;
    const size_t part = c->bptt == 0 || c->bptt > longest ? longest : c->bptt;
    const size_t chunk = c->recomputes_auto ? 2 * root_up(part) : c->recompute;
    t->split = (ashlar_batch_split_config){
        .batch = t->own_batch,
        .micro = pieces_of(t) * t->shards.count,
        .part = part < longest ? part : 0,
        .chunk = chunk < part ? chunk : 0, /* one chunk: not split */
    };
}

static ashlar_status build(text_task *t) {
    const ashlar_batcher_config batcher_config = {
        .batch = t->config.batch,
        .max_steps = t->config.max_length,
        .seed = t->config.seed,
        .stride = t->config.stride,
        .held_out = t->config.held_out,
    };
    ASHLAR_FAIL_IF(t->config.accumulate > 1 && t->config.batch % t->config.accumulate != 0,
                   ASHLAR_EINVAL, "--accumulate: %zu does not divide the %zu sequences of --batch",
                   t->config.accumulate, t->config.batch);
    ASHLAR_TRY(ashlar__shards_check(&t->config));
    t->shards = ashlar__shards_of(&t->config);
    t->own_batch = t->config.batch / t->shards.all * t->shards.count;
    ASHLAR_TRY(ashlar__batcher_create(t->corpus, &batcher_config, &t->batcher));
    const size_t longest = ashlar__batcher_max_steps(t->batcher);
    choose_split(t, longest);
    const ashlar_batch_split split = ashlar__batch_split_make(&t->split, longest);
    t->head.max_length = longest;
    t->head.max_part_length = split.part;
    t->head.max_parts = split.parts;
    t->head.batch = t->config.batch;
    t->head.sequences = ashlar__batcher_piece_count(t->batcher);
    t->head.sampler = ashlar__batcher_sampler(t->batcher);
    return take_drawn(t);
}

ashlar_status ashlar__task_text_create(const ashlar_corpus *corpus,
                                       const ashlar_train_config *config, ashlar_task **out) {
    text_task *t;
    ASHLAR_HOST_NEW(t, 1, "no host memory for a task");
    *t = (text_task){.head = {.table = &table}, .config = *config, .corpus = corpus};
    ASHLAR_HAND_OUT(build(t), &t->head, destroy_task, out);
}

/* ---- the test on what was held out ---- */

/* Batches of held-out pieces go through buffer 0 as those of training do. */
typedef struct test {
    ashlar_trainer *trainer;
    text_task *task;
    ashlar_batcher *batcher;
    ashlar_batch_sampler_item *pieces; /* longest first */
    double nats;                       /* the sum over all symbols so far */
} test;

/* A text is counted once, so pieces do not overlap, whatever they do in training. No piece is
 * longer than the training's, for which there is memory. */
static ashlar_status list_pieces(test *x) {
    const text_task *t = x->task;
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
    ashlar__batch_sort_items(x->pieces, count);
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
    const text_task *t = x->task;
    const ashlar_batch_split *split = &t->buffers[0].split;
    for (size_t micro = 0; micro < split->micro; micro++) {
        ashlar_model_window window = window_of(t, &t->buffers[0], micro, part);
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
    text_task *t = x->task;
    const ashlar_trainer *trainer = x->trainer;
    double *const sum = ashlar__train_outcome_of(trainer, 0)->losses;
    ashlar__batcher_fill(x->batcher, pieces, count, &t->own);
    fill_own(t, 0, t->own.steps);
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

static void count_records(const text_task *t, ashlar_text_evaluation *out) {
    for (size_t i = 0; i < ashlar__corpus_count(t->corpus); i++) {
        if (ashlar__batcher_is_held_out(t->config.held_out, i)) {
            out->records++;
            out->bytes += ashlar__corpus_record(t->corpus, i).count;
        }
    }
}

ashlar_status ashlar__task_text_evaluate(ashlar_trainer *trainer, ashlar_text_evaluation *out) {
    test x = {.trainer = trainer, .task = text_of(trainer->task)};
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
