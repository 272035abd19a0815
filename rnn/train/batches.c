/* batches.c - draws batches, splits them, and keeps them in host and device memory. */
#include "rnn/train/train_impl.h"

#include <math.h>
#include <string.h>

#include "allocator/base/checked.h"
#include "allocator/base/host.h"

/* ---- shards ---- */

static size_t ranks_of(const ashlar_train_config *c) {
    return c->ranks == NULL ? 1 : ashlar_ranks_get_info(c->ranks).count;
}

ashlar_batch_split_config ashlar__shards_of(const ashlar_train_config *c) {
    const size_t ranks = ranks_of(c), all = c->shards > 0 ? c->shards : ranks, own = all / ranks;
    const size_t rank = c->ranks == NULL ? 0 : ashlar_ranks_get_info(c->ranks).rank;
    return (ashlar_batch_split_config){.batch = c->batch,
                                       .shards = all,
                                       .first = rank * own,
                                       .own = own,
                                       .pieces = c->accumulate == 0 ? 1 : c->accumulate};
}

size_t ashlar__shards_choose(size_t batch, size_t accumulate) {
    size_t shards = 1;
    while (shards < ASHLAR_SHARDS_MOST && batch % (2 * shards * accumulate) == 0) {
        shards *= 2;
    }
    return shards;
}

ashlar_status ashlar__shards_check(const ashlar_train_config *c) {
    const ashlar_batch_split_config split = ashlar__shards_of(c);
    const size_t ranks = ranks_of(c), all = split.shards, pieces = split.pieces;
    ASHLAR_FAIL_IF(all > ASHLAR_SHARDS_MOST && c->shards > 0, ASHLAR_EINVAL,
                   "shards: %zu are more than %d", all, ASHLAR_SHARDS_MOST);
    ASHLAR_FAIL_IF(c->shards > 0 && (all & (all - 1)) != 0, ASHLAR_EINVAL,
                   "shards: %zu are no power of 2", all);
    ASHLAR_FAIL_IF(
        all % ranks != 0, ASHLAR_EINVAL,
        "--reproducible: %zu ranks cannot share the %zu equal shards of a batch of %zu in "
        "%zu pieces; take 1, 2, 4 or 8 ranks, and a --batch that 8 times --accumulate "
        "divides",
        ranks, all, c->batch, pieces);
    ASHLAR_FAIL_IF(c->batch % (all * pieces) != 0, ASHLAR_EINVAL,
                   "--batch: %zu sequences are not %zu equal shares of %zu pieces (--accumulate); "
                   "take a multiple of %zu",
                   c->batch, all, pieces, all * pieces);
    ASHLAR_FAIL_IF(ashlar__shards_are_used(c) && ashlar__train_pads(c), ASHLAR_EINVAL,
                   "--pad and --graphs: not with several ranks or --reproducible");
    return ASHLAR_OK;
}

/* ---- how batches are split ---- */

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

void ashlar__batches_cut(ashlar_batches *b) {
    const size_t chunk = 2 * root_up(b->max_part_length);
    b->chunk = chunk < b->max_part_length ? chunk : 0;
}

static void choose_split(ashlar_batches *b, const ashlar_train_config *c) {
    const size_t longest = b->max_length;
    const size_t part = c->bptt == 0 || c->bptt > longest ? longest : c->bptt;
    b->split = ashlar__shards_of(c);
    b->split.part = part < longest ? part : 0;
    b->chunk = c->recompute < part ? c->recompute : 0; /* one chunk: not split */
    const ashlar_batch_split split = ashlar__batch_split_make(&b->split, longest);
    b->micro = split.micro;
    b->count = split.count;
    b->max_part_length = split.part;
    b->max_parts = split.parts;
    if (c->recomputes_auto) {
        ashlar__batches_cut(b);
    }
}

/* Batches are padded to the longest length of their range. Of several parts, only the last one is
 * shorter, and padded. */
static ashlar_status choose_padding(ashlar_batches *b) {
    const size_t longest = b->max_length, part = b->max_part_length;
    if (b->ranges == 0) {
        b->ranges = part < ASHLAR_STEP_BUCKETS ? part : ASHLAR_STEP_BUCKETS;
    }
    const size_t width = (part - 1) / b->ranges + 1;
    ASHLAR_HOST_NEW(b->padded, longest + 1, "no host memory for %zu lengths", longest);
    for (size_t length = 1; length <= longest; length++) {
        const size_t rest = length % part, up = (rest + width - 1) / width * width;
        const size_t padded = length - rest + (up < part ? up : part);
        b->padded[length] = padded < longest ? padded : longest;
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__batches_init(ashlar_batches *b, const ashlar_corpus *corpus,
                                   const ashlar_train_config *c) {
    const ashlar_batcher_config batcher = {.batch = c->batch,
                                           .max_steps = c->max_length,
                                           .seed = c->seed,
                                           .stride = c->stride,
                                           .held_out = c->held_out};
    size_t *tokens;
    *b = (ashlar_batches){.corpus = corpus, .ranges = c->buckets};
    const size_t pieces = ashlar__shards_of(c).pieces;
    ASHLAR_FAIL_IF(c->batch % pieces != 0, ASHLAR_EINVAL,
                   "--accumulate: %zu does not divide the %zu sequences of --batch", pieces,
                   c->batch);
    ASHLAR_TRY(ashlar__shards_check(c));
    ASHLAR_TRY(ashlar__batcher_create(corpus, &batcher, &b->batcher));
    b->max_length = ashlar__batcher_max_steps(b->batcher);
    choose_split(b, c);
    ASHLAR_HOST_NEW(tokens, ASHLAR_TRAIN_FLIGHTS * b->max_parts, "no host memory for %zu parts",
                    b->max_parts);
    for (size_t i = 0; i < ASHLAR_TRAIN_FLIGHTS; i++) {
        b->drawn[i].part_tokens = tokens + i * b->max_parts;
    }
    return ashlar__train_pads(c) ? choose_padding(b) : ASHLAR_OK;
}

/* ---- memory ---- */

enum { BUFFER_ALIGN = 256 };

ashlar_status ashlar__batches_take(ashlar_batches *b, ashlar_allocator *allocator,
                                   size_t carried_bytes, ashlar_stream stream) {
    const ashlar_batch_split largest = ashlar__batch_split_make(&b->split, b->max_length);
    const size_t words = largest.image + largest.extra, item = sizeof(int32_t);
    const size_t values =
        b->padded != NULL ? sizeof(ashlar_step_values) + b->max_parts * sizeof(double) : 0;
    size_t behind, image, carried;
    void *states;
    ASHLAR_FAIL_IF(!ashlar__mul(words, item, &behind) ||
                       !ashlar__align_up(behind, sizeof(ashlar_step_values), &behind) ||
                       !ashlar__add(behind, values, &image) ||
                       !ashlar__align_up(image, BUFFER_ALIGN, &image) ||
                       !ashlar__mul(2 * b->micro, carried_bytes, &carried),
                   ASHLAR_EOVERFLOW, "a batch of %zu words is too large to address", words);
    ASHLAR_TRY(ashlar_device_host_alloc(ashlar_allocator_device(allocator),
                                        ASHLAR_BATCHES_BUFFERS * image, &b->host));
    ASHLAR_TRY(ashlar_alloc_tagged(allocator, ASHLAR_BATCHES_BUFFERS * image, ASHLAR_TAG_BATCH,
                                   stream, &b->device));
    if (b->max_parts > 1) {
        ASHLAR_TRY(
            ashlar_alloc_tagged(allocator, carried, ASHLAR_TAG_ACTIVATIONS, stream, &states));
        b->carried = states;
    }
    memset(b->host, 0, ASHLAR_BATCHES_BUFFERS * image); /* the values of the warm-up's steps */
    b->carried_bytes = carried_bytes;
    b->buffer_bytes = image;
    for (size_t i = 0; i < ASHLAR_BATCHES_BUFFERS; i++) {
        ashlar_batches_buffer *s = &b->buffers[i];
        void *const host = (char *)b->host + i * image, *const device =
                                                            (char *)b->device + i * image;
        s->host = host;
        s->device = device;
        s->tokens = b->drawn[i].part_tokens;
        if (values > 0) {
            s->values = (ashlar_step_values *)(void *)((char *)host + behind);
            s->values_at = (ashlar_step_values *)(void *)((char *)device + behind);
        }
    }
    return ASHLAR_OK;
}

void ashlar__batches_finish(ashlar_batches *b, ashlar_allocator *allocator) {
    if (allocator != NULL) {
        /* Cannot fail: this allocator gave the blocks, or they are NULL. */
        ASHLAR_IGNORE(ashlar_free(allocator, b->carried));
        ASHLAR_IGNORE(ashlar_free(allocator, b->device));
        ashlar_device_host_free(ashlar_allocator_device(allocator), b->host);
    }
    ashlar__batcher_destroy(b->batcher);
    ashlar__host_free(b->drawn[0].part_tokens);
    ashlar__host_free(b->padded);
}

/* ---- drawing ---- */

void ashlar__batches_fill(ashlar_batches *b, size_t buffer, const ashlar_batch_split_config *split,
                          const ashlar_batch *batch) {
    ashlar_batches_buffer *s = &b->buffers[buffer];
    s->split = ashlar__batch_split_make(split, batch->steps);
    ashlar__batch_split_fill(&s->split, b->corpus, batch, s->host);
    for (size_t part = 0; part < s->split.parts; part++) {
        s->tokens[part] = ashlar__batch_split_tokens(&s->split, part, batch);
    }
}

const ashlar_drawn_batch *ashlar__batches_next(ashlar_batches *b, size_t step) {
    ashlar_drawn_batch *const drawn = &b->drawn[step % ASHLAR_TRAIN_FLIGHTS];
    ashlar_batches_buffer *const s = &b->buffers[step % ASHLAR_BATCHES_BUFFERS];
    ashlar_batch batch = ashlar__batcher_next(b->batcher);
    drawn->length = batch.steps;
    batch.steps = b->padded != NULL ? b->padded[batch.steps] : batch.steps;
    s->tokens = drawn->part_tokens;
    ashlar__batches_fill(b, step % ASHLAR_BATCHES_BUFFERS, &b->split, &batch);
    drawn->tokens = batch.tokens;
    drawn->parts = s->split.parts;
    drawn->epoch = batch.epoch;
    drawn->position = ashlar__batcher_random(b->batcher);
    return drawn;
}

void ashlar__batches_make_dummy(ashlar_batches *b, size_t buffer, size_t length) {
    const ashlar_batch batch = ashlar__batcher_dummy(b->batcher, length);
    ashlar__batches_fill(b, buffer, &b->split, &batch);
}

/* Where batches are padded, copy the whole buffer, so that the call is the same for every batch. */
ashlar_status ashlar__batches_upload(const ashlar_batches *b, ashlar_device *device, size_t buffer,
                                     ashlar_stream stream) {
    const ashlar_batches_buffer *s = &b->buffers[buffer];
    const size_t bytes = b->padded != NULL ? b->buffer_bytes : s->split.image * sizeof *s->host;
    return ashlar_copy_to_device(device, s->device, s->host, bytes, stream);
}

/* ---- parts ---- */

size_t ashlar__batches_length(const ashlar_batches *b, size_t buffer, size_t part) {
    return ashlar__batch_split_window(&b->buffers[buffer].split, 0, part).steps;
}

/* The states of a micro-batch before part i. A micro-batch has two sets of states: each part reads
 * one and writes the other. */
static void *carried_set(const ashlar_batches *b, size_t micro, size_t i) {
    return b->carried + (2 * micro + i % 2) * b->carried_bytes;
}

/* Each position's loss has the weight 1 / (tokens of the whole part). */
void ashlar__batches_get(const ashlar_batches *b, size_t buffer, size_t micro, size_t part,
                         ashlar_batch_part *out) {
    const ashlar_batches_buffer *s = &b->buffers[buffer];
    const ashlar_batch_split *split = &s->split;
    const ashlar_batch_window at = ashlar__batch_split_window(split, micro, part);
    out->inputs[ASHLAR_TEXT_TOKENS] = s->device + at.inputs;
    out->inputs[ASHLAR_TEXT_TARGETS] = s->device + at.targets;
    out->batch = (ashlar_model_batch){
        .batch = split->count,
        .steps = at.steps,
        .lengths = s->host + at.host_lengths,
        .lengths_at = s->device + at.lengths,
        .inputs = out->inputs,
        .weight = 1 / (double)s->tokens[part],
        .chunk = b->chunk,
        .memory = b->memory,
        .before = part == 0 ? NULL : carried_set(b, micro, part),
        .after = part + 1 == split->parts ? NULL : carried_set(b, micro, part + 1),
    };
}

ashlar_model_batch ashlar__batches_shape(const ashlar_batches *b, size_t length) {
    static const int32_t given; /* only that lengths are given is read */
    return (ashlar_model_batch){.batch = b->count,
                                .steps = length,
                                .lengths = &given,
                                .lengths_at = &given,
                                .chunk = b->chunk,
                                .memory = b->memory};
}
