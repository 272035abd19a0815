/*
 * tagger_buffers.h - which buffers a step of the tagger has, and when (internal).
 *
 * One table, which the step follows, its rehearsal too, and which the account adds up.
 */
#ifndef ASHLAR_TAGGER_BUFFERS_H
#define ASHLAR_TAGGER_BUFFERS_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/allocator.h>

/*
 * The moments of a step, in order: name, what is done then.
 *
 * A buffer is taken when its first moment begins, and given back when its last one ends. TOKEN is
 * there only with label feedback, and then once for each of the T tokens: what has no other moment
 * is taken and given back each time. Without it, LABEL does that work for all tokens at once.
 *
 * On a CUDA device the outputs live on until SPELL_WEIGHTS and READ_WEIGHTS.
 */
#define ASHLAR_TAGGER_MOMENT_MAP(X)                                    \
    X(SPELL, "characters, forward")                                    \
    X(JOIN, "join words and spellings")                                \
    X(READ, "words, forward")                                          \
    X(LABEL, "linear layer and loss, both ways")                       \
    X(TOKEN, "the same token by token")                                \
    X(READ_BACK, "words, backward to the data")                        \
    X(READ_WEIGHTS, "words, backward to the weights")                  \
    X(SPLIT, "split words and spellings")                              \
    X(SPELL_BACK, "characters, backward to the data")                  \
    X(SPELL_VECTORS, "characters, backward to the embedding")          \
    X(SPELL_WEIGHTS, "characters, backward to the weights")

#define ASHLAR_TAGGER_MOMENT_ENUM(name, text) ASHLAR_TAGGER_##name,
typedef enum ashlar_tagger_moment {
    ASHLAR_TAGGER_MOMENT_MAP(ASHLAR_TAGGER_MOMENT_ENUM)
    ASHLAR_TAGGER_MOMENT_COUNT
} ashlar_tagger_moment;

/*
 * Name, text, shape, tag, first and last moment. Letters as in tagger.h; T, B, C as in tag_batch.h.
 * Elements are of the tagger's type, but for int32 where it says so. The batch itself is not here:
 * it is in device memory before the step begins (tag_batch.h).
 */
#define ASHLAR_TAGGER_BUFFER_MAP(X)                                                            \
    X(LETTERS, "characters' vectors", "[C, T*B, E_c]", ACTIVATIONS, SPELL, SPELL_WEIGHTS)      \
    X(SPELL_RESERVE, "characters' reserve", "of the RNN", RESERVE, SPELL, SPELL_WEIGHTS)       \
    X(SPELL_OUTPUTS, "characters' outputs", "[C, T*B, D*H_c]", ACTIVATIONS, SPELL, SPELL)      \
    X(SPELLINGS, "characters' last states", "[D, T*B, H_c]", ACTIVATIONS, SPELL, JOIN)         \
    X(SPELL_WORK, "workspace, SPELL", "of the RNN", WORKSPACE, SPELL, SPELL)                   \
    X(WORDS, "words' vectors", "[T, B, E_w]", ACTIVATIONS, JOIN, JOIN)                         \
    X(INPUTS, "words with spellings", "[T, B, E_w + D*H_c]", ACTIVATIONS, JOIN, READ_WEIGHTS)  \
    X(READ_RESERVE, "words' reserve", "of the RNN", RESERVE, READ, READ_WEIGHTS)               \
    X(OUTPUTS, "words' outputs", "[T, B, D*P]", ACTIVATIONS, READ, TOKEN)                      \
    X(READ_WORK, "workspace, READ", "of the RNN", WORKSPACE, READ, READ)                       \
    X(LABELS, "predicted labels", "int32 [T, B]", ACTIVATIONS, LABEL, TOKEN)                   \
    X(DOUTPUTS, "their gradient", "[T, B, D*P]", ACTIVATIONS, LABEL, READ_BACK)                \
    X(LOGITS, "logits", "[T, B, K]", ACTIVATIONS, LABEL, LABEL)                                \
    X(LOSS_WORK, "workspace, loss", "of the loss", WORKSPACE, LABEL, LABEL)                    \
    X(TOKEN_LABELS, "a token's label vectors", "[B, F]", ACTIVATIONS, TOKEN, TOKEN)            \
    X(TOKEN_INPUTS, "outputs with those", "[B, D*P + F]", ACTIVATIONS, TOKEN, TOKEN)           \
    X(TOKEN_LOGITS, "a token's logits", "[B, K]", ACTIVATIONS, TOKEN, TOKEN)                   \
    X(TOKEN_WORK, "workspace, a token's loss", "of the loss", WORKSPACE, TOKEN, TOKEN)         \
    X(TOKEN_DINPUTS, "gradient of outputs with labels", "[B, D*P + F]", ACTIVATIONS, TOKEN,    \
      TOKEN)                                                                                   \
    X(DINPUTS, "gradient of words with spellings", "[T, B, E_w + D*H_c]", ACTIVATIONS,         \
      READ_BACK, SPLIT)                                                                        \
    X(READ_BACK_WORK, "workspace, READ_BACK", "of the RNN", WORKSPACE, READ_BACK, READ_BACK)   \
    X(READ_WEIGHTS_WORK, "workspace, READ_WEIGHTS", "of the RNN", WORKSPACE, READ_WEIGHTS,     \
      READ_WEIGHTS)                                                                            \
    X(DWORDS, "gradient of words' vectors", "[T, B, E_w]", ACTIVATIONS, SPLIT, SPLIT)          \
    X(DSPELLINGS, "gradient of the last states", "[D, T*B, H_c]", ACTIVATIONS, SPLIT,          \
      SPELL_BACK)                                                                              \
    X(SPELL_BACK_WORK, "workspace, SPELL_BACK", "of the RNN", WORKSPACE, SPELL_BACK,           \
      SPELL_BACK)                                                                              \
    X(DLETTERS, "gradient of characters' vectors", "[C, T*B, E_c]", ACTIVATIONS, SPELL_BACK,   \
      SPELL_VECTORS)                                                                           \
    X(SPELL_WEIGHTS_WORK, "workspace, SPELL_WEIGHTS", "of the RNN", WORKSPACE, SPELL_WEIGHTS,  \
      SPELL_WEIGHTS)

#define ASHLAR_TAGGER_BUFFER_ENUM(name, ...) ASHLAR_TAGGER_BUFFER_##name,
typedef enum ashlar_tagger_buffer {
    ASHLAR_TAGGER_BUFFER_MAP(ASHLAR_TAGGER_BUFFER_ENUM)
    ASHLAR_TAGGER_BUFFER_COUNT
} ashlar_tagger_buffer;

typedef struct ashlar_tagger_buffer_info {
    const char *text;
    const char *shape;
    ashlar_tag tag;
    ashlar_tagger_moment first, last;
} ashlar_tagger_buffer_info;

extern const ashlar_tagger_buffer_info ashlar_tagger_buffers[ASHLAR_TAGGER_BUFFER_COUNT];
extern const char *const ashlar_tagger_moments[ASHLAR_TAGGER_MOMENT_COUNT]; /* what is done */

/* Bytes of every buffer of a step; 0: it is not taken. */
typedef struct ashlar_tagger_bytes {
    size_t of[ASHLAR_TAGGER_BUFFER_COUNT];
    size_t steps; /* T: how often the loop over tokens goes round in a rehearsal */
    bool keeps_outputs; /* ashlar_rnn_backward_reads_output() */
} ashlar_tagger_bytes;

/* The last moment of a buffer: the table's, but for outputs that backward reads. */
ashlar_tagger_moment ashlar_tagger_last(const ashlar_tagger_bytes *bytes,
                                        ashlar_tagger_buffer buffer);

/* Bytes of all buffers that are live at a moment. */
size_t ashlar_tagger_bytes_at(const ashlar_tagger_bytes *bytes, ashlar_tagger_moment moment);

/* The moment with the most, the first of several. */
ashlar_tagger_moment ashlar_tagger_peak(const ashlar_tagger_bytes *bytes);

#endif /* ASHLAR_TAGGER_BUFFERS_H */
