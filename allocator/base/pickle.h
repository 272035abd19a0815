/*
 * pickle.h - writing Python's pickle format, protocol 2 (internal).
 *
 * Only opcodes that build plain values are used, so a reader can refuse all others. Lists grow in
 * batches, as in Python's own files, because some readers pass a batch as a call's arguments.
 *
 * A document is a begin, one value, an end. A value is one put, or an open, its items, a close; the
 * items of a dictionary are keys and values in turn. A value in the wrong place fails an assertion.
 *
 * Threads: one at a time per writer.
 */
#ifndef ASHLAR_PICKLE_H
#define ASHLAR_PICKLE_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/file_buffer.h"

enum {
    ASHLAR_PICKLE_DEPTH = 8,    /* lists and dictionaries inside each other */
    ASHLAR_PICKLE_WORDS = 256,  /* strings that are written once; a number is one byte */
    ASHLAR_PICKLE_BATCH = 1000, /* items that a list grows by at once */
};

typedef struct ashlar_pickle_frame {
    bool is_list;
    unsigned item_count; /* of a list's open batch, of a dictionary in all */
} ashlar_pickle_frame;

/* Invariant: depth <= ASHLAR_PICKLE_DEPTH; frames[0] is the document, of one item. */
typedef struct ashlar_pickle {
    ashlar_file_buffer *file; /* takes the bytes, and remembers a failure */
    bool is_known[ASHLAR_PICKLE_WORDS];
    ashlar_pickle_frame frames[ASHLAR_PICKLE_DEPTH + 1];
    unsigned depth;
} ashlar_pickle;

/* Ownership: the file stays the caller's, who commits it after the end. */
void ashlar__pickle_begin(ashlar_pickle *pickle, ashlar_file_buffer *file);
void ashlar__pickle_end(ashlar_pickle *pickle);

void ashlar__pickle_open_dict(ashlar_pickle *pickle);
void ashlar__pickle_close_dict(ashlar_pickle *pickle);
void ashlar__pickle_open_list(ashlar_pickle *pickle);
void ashlar__pickle_close_list(ashlar_pickle *pickle);

void ashlar__pickle_put_uint64(ashlar_pickle *pickle, uint64_t value);
void ashlar__pickle_put_int32(ashlar_pickle *pickle, int32_t value);
void ashlar__pickle_put_double(ashlar_pickle *pickle, double value);
void ashlar__pickle_put_bool(ashlar_pickle *pickle, bool value);

/* A tuple of two bytes. */
void ashlar__pickle_put_pair(ashlar_pickle *pickle, uint8_t first, uint8_t second);

/* A string: UTF-8, 0-terminated. */
void ashlar__pickle_put_text(ashlar_pickle *pickle, const char *text);

/*
 * A string that comes often: word number `idx`, below ASHLAR_PICKLE_WORDS, whose `text` never
 * changes. From the second time on it takes two bytes.
 */
void ashlar__pickle_put_word(ashlar_pickle *pickle, unsigned idx, const char *text);

#endif /* ASHLAR_PICKLE_H */
