/* What a step of the tagger queues at each moment, but for labels (tagger_label.c). */
#include "rnn/model/tagger_work.h"

#include "allocator/base/error.h"

#define TRY ASHLAR_TRY
#define BUFFER ASHLAR_TAGGER_BUFFER

/* --- arguments ------------------------------------------------------------------------------ */

static ashlar_embedding_args character_embedding(const ashlar_tagger_work *w) {
    return (ashlar_embedding_args){
        .steps = w->batch->shape.width,
        .batch = ashlar_tagger_words(w),
        .lengths = w->arrays.spellings,
        .classes = w->tagger->config.characters,
        .width = w->tagger->config.character_embedding,
        .tokens = w->arrays.characters,
        .table = w->tagger->parameters.character_embedding,
        .out = BUFFER(w, LETTERS),
        .dout = BUFFER(w, DLETTERS),
        .dtable = w->tagger->gradients.character_embedding,
    };
}

static ashlar_embedding_args word_embedding(const ashlar_tagger_work *w) {
    return (ashlar_embedding_args){
        .steps = w->batch->shape.steps,
        .batch = w->batch->shape.batch,
        .lengths = w->arrays.lengths,
        .classes = w->tagger->config.words,
        .width = w->tagger->config.word_embedding,
        .tokens = w->arrays.words,
        .table = w->tagger->parameters.word_embedding,
        .out = BUFFER(w, WORDS),
        .dout = BUFFER(w, DWORDS),
        .dtable = w->tagger->gradients.word_embedding,
    };
}

static ashlar_rnn_batch spell_batch(const ashlar_tagger_work *w, const ashlar_tag_arrays *host) {
    return (ashlar_rnn_batch){.steps = w->batch->shape.width,
                              .batch = ashlar_tagger_words(w),
                              .lengths = host->spellings};
}

static ashlar_rnn_buffers spell_buffers(const ashlar_tagger_work *w, void *work) {
    return (ashlar_rnn_buffers){
        .reserve = BUFFER(w, SPELL_RESERVE),
        .work = work,
        .x = BUFFER(w, LETTERS),
        .weights = w->tagger->parameters.character_stack,
        .y = BUFFER(w, SPELL_OUTPUTS),
        .hy = BUFFER(w, SPELLINGS),
        .dhy = BUFFER(w, DSPELLINGS),
        .dx = BUFFER(w, DLETTERS),
        .dweights = w->tagger->gradients.character_stack,
    };
}

static ashlar_rnn_batch read_batch(const ashlar_tagger_work *w, const ashlar_tag_arrays *host) {
    return (ashlar_rnn_batch){.steps = w->batch->shape.steps,
                              .batch = w->batch->shape.batch,
                              .lengths = host->lengths,
                              .dropout_seed = w->tagger->dropout_seed};
}

static ashlar_rnn_buffers read_buffers(const ashlar_tagger_work *w, void *work) {
    return (ashlar_rnn_buffers){
        .reserve = BUFFER(w, READ_RESERVE),
        .work = work,
        .x = BUFFER(w, INPUTS),
        .weights = w->tagger->parameters.word_stack,
        .y = BUFFER(w, OUTPUTS),
        .dy = BUFFER(w, DOUTPUTS),
        .dx = BUFFER(w, DINPUTS),
        .dweights = w->tagger->gradients.word_stack,
    };
}

/* --- the moments ---------------------------------------------------------------------------- */

typedef ashlar_status (*rnn_pass)(const ashlar_rnn *, const ashlar_rnn_batch *,
                                  const ashlar_rnn_buffers *, ashlar_stream);

static ashlar_status run_spelling(const ashlar_tagger_work *w, rnn_pass pass, void *work) {
    const ashlar_tag_arrays host = ashlar_tag_batch_arrays(&w->batch->shape, w->batch->data);
    const ashlar_rnn_batch batch = spell_batch(w, &host);
    const ashlar_rnn_buffers buffers = spell_buffers(w, work);
    return pass(w->tagger->character_rnn, &batch, &buffers, w->tagger->stream);
}

static ashlar_status run_reading(const ashlar_tagger_work *w, rnn_pass pass, void *work) {
    const ashlar_tagger *m = w->tagger;
    const ashlar_tag_arrays host = ashlar_tag_batch_arrays(&w->batch->shape, w->batch->data);
    const ashlar_rnn_batch batch = read_batch(w, &host);
    const ashlar_rnn_buffers buffers = read_buffers(w, work);
    return pass(w->kind == ASHLAR_TAGGER_PREDICT ? m->word_rnn_whole : m->word_rnn, &batch,
                &buffers, m->stream);
}

static ashlar_status spell(const ashlar_tagger_work *w) {
    const ashlar_embedding_args characters = character_embedding(w);
    TRY(ashlar_ops_embedding_forward(w->tagger->ops, &characters, w->tagger->stream));
    return run_spelling(w, ashlar_rnn_forward, BUFFER(w, SPELL_WORK));
}

/*
 * Some columns of the words' inputs, or of their gradient, lie in a buffer of their own too: first
 * the words' vectors, then the last states of each direction of the characters.
 */
static ashlar_status move_parts(const ashlar_tagger_work *w, void *joined, void *vectors,
                                void *states, bool joins) {
    const ashlar_rnn_layout *words = ashlar_rnn_layout_of(w->tagger->word_rnn);
    const ashlar_rnn_layout *characters = ashlar_rnn_layout_of(w->tagger->character_rnn);
    size_t column = 0;
    for (size_t i = 0; i <= characters->config.directions; i++) {
        const size_t width = i == 0 ? w->tagger->config.word_embedding : characters->state;
        void *const part =
            i == 0 ? vectors
                   : ashlar_tagger_element(w, states,
                                           (i - 1) * ashlar_tagger_words(w) * characters->state);
        void *const columns = ashlar_tagger_element(w, joined, column);
        const ashlar_columns_args args = {
            .rows = ashlar_tagger_words(w),
            .width = width,
            .from = joins ? part : columns,
            .from_stride = joins ? width : words->config.input,
            .to = joins ? columns : part,
            .to_stride = joins ? words->config.input : width,
        };
        TRY(ashlar_ops_columns(w->tagger->ops, &args, w->tagger->stream));
        column += width;
    }
    return ASHLAR_OK;
}

static ashlar_status join(const ashlar_tagger_work *w) {
    const ashlar_embedding_args words = word_embedding(w);
    TRY(ashlar_ops_embedding_forward(w->tagger->ops, &words, w->tagger->stream));
    return move_parts(w, BUFFER(w, INPUTS), BUFFER(w, WORDS), BUFFER(w, SPELLINGS), true);
}

static ashlar_status split(const ashlar_tagger_work *w) {
    TRY(move_parts(w, BUFFER(w, DINPUTS), BUFFER(w, DWORDS), BUFFER(w, DSPELLINGS), false));
    const ashlar_embedding_args words = word_embedding(w);
    return ashlar_ops_embedding_backward(w->tagger->ops, &words, w->tagger->stream);
}

static ashlar_status copy_labels(const ashlar_tagger_work *w) {
    return ashlar_copy_to_host(w->tagger->device, w->labels, BUFFER(w, LABELS),
                               ashlar_tagger_words(w) * sizeof *w->labels, w->tagger->stream);
}

static ashlar_status vectors_back(const ashlar_tagger_work *w) {
    const ashlar_embedding_args characters = character_embedding(w);
    return ashlar_ops_embedding_backward(w->tagger->ops, &characters, w->tagger->stream);
}

ashlar_status ashlar_tagger_queue(const ashlar_tagger_work *w, ashlar_tagger_moment moment) {
    switch (moment) {
    case ASHLAR_TAGGER_SPELL:
        return spell(w);
    case ASHLAR_TAGGER_JOIN:
        return join(w);
    case ASHLAR_TAGGER_READ:
        return run_reading(w, ashlar_rnn_forward, BUFFER(w, READ_WORK));
    case ASHLAR_TAGGER_LABEL:
        return w->tagger->config.label_embedding > 0 ? ASHLAR_OK : ashlar_tagger_queue_labels(w);
    case ASHLAR_TAGGER_TOKEN: /* the loop is over */
        return w->kind == ASHLAR_TAGGER_PREDICT ? copy_labels(w) : ASHLAR_OK;
    case ASHLAR_TAGGER_READ_BACK:
        return run_reading(w, ashlar_rnn_backward_data, BUFFER(w, READ_BACK_WORK));
    case ASHLAR_TAGGER_READ_WEIGHTS:
        return run_reading(w, ashlar_rnn_backward_weights, BUFFER(w, READ_WEIGHTS_WORK));
    case ASHLAR_TAGGER_SPLIT:
        return split(w);
    case ASHLAR_TAGGER_SPELL_BACK:
        return run_spelling(w, ashlar_rnn_backward_data, BUFFER(w, SPELL_BACK_WORK));
    case ASHLAR_TAGGER_SPELL_VECTORS:
        return vectors_back(w);
    case ASHLAR_TAGGER_SPELL_WEIGHTS:
        return run_spelling(w, ashlar_rnn_backward_weights, BUFFER(w, SPELL_WEIGHTS_WORK));
    case ASHLAR_TAGGER_MOMENT_COUNT:
        break;
    }
    return ASHLAR_OK;
}
