/*
 * tagger_corpus.h - sentences of tagged words, read from column files into host memory (internal).
 *
 * A column file has a line for each word, "word TAB tag", and a blank line after each sentence;
 * "\r\n" ends a line as "\n" does. Every `held_out`-th sentence is for the test only.
 *
 * Words, characters (bytes) and tags have numbers in the order in which they are first seen. Words
 * and characters of held-out sentences do not count: what only these have is unknown, as it would
 * be in a text that comes later. Tags are known from all of them.
 *
 *     number 0            of words and characters: unknown
 *     words                 1 + those seen min_count times or more outside the test
 *     characters            1 + those seen outside the test
 *
 * Threads: any may read an open corpus; it never changes.
 */
#ifndef ASHLAR_TAGGER_CORPUS_H
#define ASHLAR_TAGGER_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

typedef struct ashlar_tagger_corpus ashlar_tagger_corpus;

typedef struct ashlar_tagger_corpus_config {
    size_t max_words; /* of a sentence, 1.. */
    size_t max_bytes; /* of a word, 1.. */
    size_t min_count; /* a word seen less often is unknown; 0 and 1: none is */
    size_t held_out;  /* 0: none; 2..: the last of every so many sentences */
} ashlar_tagger_corpus_config;

typedef struct ashlar_tagger_token {
    const unsigned char *bytes; /* [count], not terminated */
    size_t count;               /* > 0 */
    int32_t word;
    int32_t tag;
} ashlar_tagger_token;

typedef struct ashlar_tagger_sentence {
    const ashlar_tagger_token *tokens; /* [count] */
    size_t count;                      /* > 0 */
    bool is_held_out;
} ashlar_tagger_sentence;

/* Sizes of the corpus and of its vocabularies. */
typedef struct ashlar_tagger_counts {
    size_t sentences; /* > 0, and at least one is not held out */
    size_t held_out;  /* of them */
    size_t tokens;
    size_t held_out_tokens;
    size_t words, characters, tags; /* sizes of the vocabularies, the unknown included */
    size_t longest_sentence;        /* words */
    size_t longest_word;            /* bytes */
} ashlar_tagger_counts;

/*
 * Read `count` files, one after the other.
 *
 * Ownership: the caller owns *out until ashlar__tagger_corpus_destroy().
 * Errors:    ASHLAR_EINVAL (no path; config), ASHLAR_EIO, ASHLAR_EFORMAT (with file and line: no
 *            TAB or two, an empty word or tag, a byte 0, a word or a sentence that is too long; a
 *            file without a sentence), ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status
ashlar__tagger_corpus_open(const char *const *paths, size_t count,
                           const ashlar_tagger_corpus_config *config, ashlar_tagger_corpus **out);
void ashlar__tagger_corpus_destroy(ashlar_tagger_corpus *corpus); /* NULL is allowed */

void ashlar__tagger_corpus_counts(const ashlar_tagger_corpus *corpus, ashlar_tagger_counts *out);

/* Sentence i < counts.sentences, in the order of the files. */
ashlar_tagger_sentence ashlar__tagger_corpus_sentence(const ashlar_tagger_corpus *corpus, size_t i);

/* The number of a character. */
int32_t ashlar__tagger_corpus_character(const ashlar_tagger_corpus *corpus, unsigned char byte);

#endif /* ASHLAR_TAGGER_CORPUS_H */
