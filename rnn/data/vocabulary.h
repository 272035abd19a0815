/*
 * vocabulary.h - words, numbered in the order in which they are first seen (internal).
 *
 * A word is any bytes. They are not copied: what was added must stay where it is.
 *
 * Threads: one at a time per vocabulary.
 */
#ifndef ASHLAR_VOCABULARY_H
#define ASHLAR_VOCABULARY_H

#include <stddef.h>

#include <ashlar/status.h>

typedef struct ashlar_vocabulary ashlar_vocabulary;

/* Ownership: *out is the caller's. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__vocabulary_create(ashlar_vocabulary **out);
void ashlar__vocabulary_destroy(ashlar_vocabulary *vocabulary); /* NULL is allowed */

/*
 * The number of a word, from 0; one that was not seen before gets the next.
 *
 * Errors: ASHLAR_EHOSTMEM, for a new one; the vocabulary is as it was then.
 * Cost:   O(bytes), on average.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__vocabulary_add(ashlar_vocabulary *vocabulary,
                                                       const unsigned char *bytes, size_t count,
                                                       size_t *number);

/* Different words so far. */
size_t ashlar__vocabulary_count(const ashlar_vocabulary *vocabulary);

#endif /* ASHLAR_VOCABULARY_H */
