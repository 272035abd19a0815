/* tagger_batch.c - lays out and fills padded batches of tagged sentences. */
#include "rnn/data/tagger_batch.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/error.h"

ashlar_status ashlar__tagger_batch_bytes(const ashlar_tagger_shape *shape, size_t *bytes) {
    size_t words, letters, total;
    ASHLAR_FAIL_IF(
        shape->steps == 0 || shape->batch == 0 || shape->width == 0, ASHLAR_EINVAL,
        "tags: a batch of %zu sentences of %zu words of %zu characters; each is at least 1",
        shape->batch, shape->steps, shape->width);
    /* Since B <= T*B, all arrays but the characters, 4 T*B + B, have at most 5 T*B int32s. */
    ASHLAR_FAIL_IF(!ashlar__mul(shape->steps, shape->batch, &words) ||
                       !ashlar__mul(words, shape->width, &letters) ||
                       !ashlar__mul(words, 5, &total) || !ashlar__add(total, letters, &total) ||
                       total > INT32_MAX,
                   ASHLAR_EOVERFLOW,
                   "tags: %zu sentences of %zu words of %zu characters are too many to count; use "
                   "a smaller batch",
                   shape->batch, shape->steps, shape->width);
    *bytes = (4 * words + shape->batch + letters) * sizeof(int32_t);
    return ASHLAR_OK;
}

ashlar_tagger_arrays ashlar__tagger_batch_arrays(const ashlar_tagger_shape *shape, int32_t *data) {
    const size_t words = shape->steps * shape->batch, batch = shape->batch;
    return (ashlar_tagger_arrays){
        .words = data,
        .targets = data + words,
        .lengths = data + 2 * words,
        .present = data + 2 * words + batch,
        .char_counts = data + 3 * words + batch,
        .characters = data + 4 * words + batch,
    };
}

/* Fill a batch's block with padding. */
static ashlar_tagger_arrays clear(ashlar_tagger_batch *batch) {
    const ashlar_tagger_shape *shape = &batch->shape;
    const size_t words = shape->steps * shape->batch;
    const ashlar_tagger_arrays to = ashlar__tagger_batch_arrays(shape, batch->data);
    memset(batch->data, 0, (4 * words + shape->batch + words * shape->width) * sizeof(int32_t));
    for (size_t i = 0; i < words; i++) {
        to.char_counts[i] = 1;
    }
    batch->tokens = 0;
    return to;
}

/* Write a token's word, tag and characters at place `at` of the T*B places. */
static void fill_word(const ashlar_tagger_batch *batch, const ashlar_tagger_corpus *corpus,
                      const ashlar_tagger_arrays *to, size_t at, const ashlar_tagger_token *token) {
    const size_t words = batch->shape.steps * batch->shape.batch;
    to->words[at] = token->word;
    to->targets[at] = token->tag;
    to->present[at] = 1;
    to->char_counts[at] = (int32_t)token->count;
    for (size_t i = 0; i < token->count; i++) {
        to->characters[i * words + at] = ashlar__tagger_corpus_character(corpus, token->bytes[i]);
    }
}

void ashlar__tagger_batch_fill(ashlar_tagger_batch *batch, const ashlar_tagger_corpus *corpus,
                               const ashlar_batch_sampler_item *items, size_t count) {
    ashlar__tagger_batch_fill_padded(batch, corpus, items, count, 1, 1);
}

void ashlar__tagger_batch_fill_padded(ashlar_tagger_batch *batch,
                                      const ashlar_tagger_corpus *corpus,
                                      const ashlar_batch_sampler_item *items, size_t count,
                                      size_t steps, size_t width) {
    const size_t longest = items[0].length > steps ? items[0].length : steps;
    ashlar_tagger_shape shape = {.steps = longest, .batch = count, .width = width};
    for (size_t b = 0; b < count; b++) {
        const ashlar_tagger_sentence sentence =
            ashlar__tagger_corpus_sentence(corpus, items[b].number);
        for (size_t t = 0; t < sentence.count; t++) {
            const size_t bytes = sentence.tokens[t].count;
            shape.width = bytes > shape.width ? bytes : shape.width;
        }
    }
    batch->shape = shape;
    const ashlar_tagger_arrays to = clear(batch);
    for (size_t b = 0; b < count; b++) {
        const ashlar_tagger_sentence sentence =
            ashlar__tagger_corpus_sentence(corpus, items[b].number);
        ASHLAR_CHECK2(sentence.count <= shape.steps); /* longest first */
        to.lengths[b] = (int32_t)sentence.count;
        batch->tokens += sentence.count;
        for (size_t t = 0; t < sentence.count; t++) {
            fill_word(batch, corpus, &to, t * count + b, &sentence.tokens[t]);
        }
    }
}

void ashlar__tagger_batch_fill_largest(ashlar_tagger_batch *batch,
                                       const ashlar_tagger_shape *shape) {
    const size_t words = shape->steps * shape->batch;
    batch->shape = *shape;
    const ashlar_tagger_arrays to = clear(batch);
    for (size_t b = 0; b < shape->batch; b++) {
        to.lengths[b] = (int32_t)shape->steps;
    }
    for (size_t i = 0; i < words; i++) {
        to.present[i] = 1;
        to.char_counts[i] = (int32_t)shape->width;
    }
    batch->tokens = words;
}
