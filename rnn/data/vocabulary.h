/* vocabulary.h - words, numbered in the order in which they are first seen (internal). A word is
 * any sequence of bytes. The bytes are not copied: the caller keeps every word's bytes in place
 * until the vocabulary is destroyed. Threads: one at a time per vocabulary. */
#ifndef ASHLAR_VOCABULARY_H
#define ASHLAR_VOCABULARY_H

#include <stddef.h>

#include <ashlar/status.h>

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

#endif /* ASHLAR_VOCABULARY_H */
