/* tagger_corpus.h - sentences of tagged words, read from column files into host memory (internal).
 *
 * A column file has a line for each word, "word TAB tag", and a blank line after each sentence;
 * "\r\n" ends a line as "\n" does. Every `held_out`-th sentence is kept for the test.
 *
 * Words, characters (bytes) and tags have numbers in the order in which they are first seen.
 * Held-out sentences give no numbers to words and characters: a word that occurs only in them is
 * unknown, as it would be in a new text. Tags get their numbers from all sentences.
 *
 *     number 0            the unknown word, and the unknown character
 *     counts.words        1 + the words seen min_count times or more outside the test
 *     counts.characters   1 + the characters seen outside the test
 *
 * Threads: any may read an open corpus; it never changes. */
#ifndef ASHLAR_TAGGER_CORPUS_H
#define ASHLAR_TAGGER_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/base.h>

#include "rnn/data/batch_sampler.h"

/* ---- vocabulary ---- */

/* Words, numbered in the order in which they are first seen. A word is any sequence of bytes. The
 * bytes are not copied: the caller keeps every word's bytes in place until the vocabulary is
 * destroyed. Threads: one at a time per vocabulary. */

typedef struct ashlar_vocabulary ashlar_vocabulary;

/* Ownership: *out is the caller's. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__vocabulary_create(ashlar_vocabulary **out);
void ashlar__vocabulary_destroy(ashlar_vocabulary *vocabulary); /* NULL is allowed */

/* Set *number to the word's number, from 0; a word that was not seen before gets the next number.
 * Errors: ASHLAR_EHOSTMEM, only for a new word; the vocabulary is then unchanged. Cost: O(bytes),
 * on average. */
ASHLAR_MUST_CHECK ashlar_status ashlar__vocabulary_add(ashlar_vocabulary *vocabulary,
                                                       const unsigned char *bytes, size_t count,
                                                       size_t *number);

size_t ashlar__vocabulary_count(const ashlar_vocabulary *vocabulary);

typedef struct ashlar_tagger_corpus ashlar_tagger_corpus;

typedef struct ashlar_tagger_corpus_config {
    size_t max_words; /* the most words of a sentence, 1..; a longer one is an error */
    size_t max_bytes; /* the most bytes of a word, 1..; likewise */
    size_t min_count; /* a word seen less often is unknown; 0 and 1: every word seen is known */
    size_t held_out;  /* 0: no sentence; n >= 2: the last of every n sentences */
} ashlar_tagger_corpus_config;

typedef struct ashlar_tagger_token {
    const unsigned char *bytes; /* [count], not terminated */
    size_t count;               /* > 0 */
    int32_t word;               /* the word's number; 0: unknown */
    int32_t tag;                /* the tag's number */
} ashlar_tagger_token;

typedef struct ashlar_tagger_sentence {
    const ashlar_tagger_token *tokens; /* [count] */
    size_t count;                      /* > 0 */
    bool is_held_out;
} ashlar_tagger_sentence;

/* Sizes of the corpus and of its vocabularies. */
typedef struct ashlar_tagger_counts {
    size_t sentences; /* > 0, and at least one is not held out */
    size_t held_out;  /* held-out sentences */
    size_t tokens;
    size_t held_out_tokens;
    size_t words, characters, tags; /* sizes of the vocabularies, number 0 included */
    size_t longest_sentence;        /* in words */
    size_t longest_word;            /* in bytes */
} ashlar_tagger_counts;

/* Read `count` files, one after the other.
 *
 * Ownership: the caller owns *out until ashlar__tagger_corpus_destroy().
 * Errors:    ASHLAR_EINVAL (no path; a value in `config` is out of range), ASHLAR_EIO,
 *            ASHLAR_EFORMAT (a line without a TAB or with two, an empty word or tag, a byte 0, a
 *            word or a sentence that is too long: the detail names file and line; a file without a
 *            sentence), ASHLAR_EOVERFLOW (2^31 or more words), ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status
ashlar__tagger_corpus_open(const char *const *paths, size_t count,
                           const ashlar_tagger_corpus_config *config, ashlar_tagger_corpus **out);
void ashlar__tagger_corpus_destroy(ashlar_tagger_corpus *corpus); /* NULL is allowed */

void ashlar__tagger_corpus_counts(const ashlar_tagger_corpus *corpus, ashlar_tagger_counts *out);

/* Sentence i < counts.sentences, in the order of the files. */
ashlar_tagger_sentence ashlar__tagger_corpus_sentence(const ashlar_tagger_corpus *corpus, size_t i);

/* The number of a character; 0: unknown. */
int32_t ashlar__tagger_corpus_character(const ashlar_tagger_corpus *corpus, unsigned char byte);

/* ---- tagger batch ---- */

/* Padded batches of tagged sentences.
 *
 * B sentences of up to T words of up to C characters; time comes first, as in rnn.h. A whole
 * batch is one block of int32s, so that one copy brings it to the device:
 *
 *     words       [T, B]      padding is 0
 *     targets     [T, B]      padding is 0
 *     lengths     [B]         words of each sentence, 1..T, longest first
 *     present     [T, B]      1 if a sentence has a word here, else 0: row t can be given as
 *                             `lengths` to operations on step t alone
 *     char_counts [T*B]       characters of each word, 1..C; padding has 1 character, number 0
 *     characters  [C, T*B]    padding is 0
 *
 * Threads: any, on distinct batches. */

typedef struct ashlar_tagger_shape {
    size_t steps; /* T */
    size_t batch; /* B */
    size_t width; /* C */
} ashlar_tagger_shape;

/* The parts of a batch, on the host or on a device. */
typedef struct ashlar_tagger_arrays {
    int32_t *words, *targets, *lengths, *present, *char_counts, *characters;
} ashlar_tagger_arrays;

typedef struct ashlar_tagger_batch {
    int32_t *data;   /* the caller's; room for ashlar__tagger_batch_bytes() of the largest shape */
    int32_t *device; /* device memory of the same size, to which the caller copies the block */
    ashlar_tagger_shape shape;
    size_t tokens; /* sum of the lengths */
} ashlar_tagger_batch;

/* Bytes of a batch's block. Errors: ASHLAR_EINVAL (a size is 0), ASHLAR_EOVERFLOW (2^31 or more
 * int32s). */
ASHLAR_MUST_CHECK ashlar_status ashlar__tagger_batch_bytes(const ashlar_tagger_shape *shape,
                                                           size_t *bytes);

/* Where the parts of a block at `data` lie. Requires a shape that
 * ashlar__tagger_batch_bytes() accepts. */
ashlar_tagger_arrays ashlar__tagger_batch_arrays(const ashlar_tagger_shape *shape, int32_t *data);

/* Fill batch->data with sentences of the corpus, and set its shape and tokens.
 *
 * items   [count], sentences' numbers and lengths, longest first; count is 1 or more */
void ashlar__tagger_batch_fill(ashlar_tagger_batch *batch, const ashlar_tagger_corpus *corpus,
                               const ashlar_batch_sampler_item *items, size_t count);

/* Like ashlar__tagger_batch_fill(), but padded to at least `steps` words and `width` characters. */
void ashlar__tagger_batch_fill_padded(ashlar_tagger_batch *batch,
                                      const ashlar_tagger_corpus *corpus,
                                      const ashlar_batch_sampler_item *items, size_t count,
                                      size_t steps, size_t width);

/* Fill a batch of this shape without padding: every sentence has T words, every word C characters.
 */
void ashlar__tagger_batch_fill_largest(ashlar_tagger_batch *batch,
                                       const ashlar_tagger_shape *shape);

#endif /* ASHLAR_TAGGER_CORPUS_H */
