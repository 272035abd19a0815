/*
 * pickle.h - writing Python's pickle format, protocol 2 (internal).
 *
 * Only opcodes that build plain values are used, so a reader can refuse all others. Lists are
 * written in batches of items, as Python's own writer does, because some readers pass each batch as
 * the arguments of one call.
 *
 * To write a document, call ashlar__pickle_begin(), write one value, call ashlar__pickle_end(). A
 * value is one call of a put function, or a call of an open function, the items, and a call of the
 * matching close function. The items of a dictionary are keys and values in turn. A value in the
 * wrong place fails an assertion.
 *
 * Threads: one at a time per writer.
 */
#ifndef ASHLAR_PICKLE_H
#define ASHLAR_PICKLE_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/file_buffer.h"

enum {
    ASHLAR_PICKLE_DEPTH = 8,    /* most lists and dictionaries open at once, one inside another */
    ASHLAR_PICKLE_WORDS = 256,  /* most words (ashlar__pickle_put_word): a number is one byte */
    ASHLAR_PICKLE_BATCH = 1000, /* most items in one batch of a list */
};

typedef struct ashlar_pickle_frame {
    bool is_list;
    unsigned item_count; /* a list: items in the open batch; a dictionary: all items so far */
} ashlar_pickle_frame;

/* Invariant: depth <= ASHLAR_PICKLE_DEPTH. frames[0] is the document, which has one item. */
typedef struct ashlar_pickle {
    ashlar_file_buffer *file; /* takes the bytes, and remembers a failure; not owned */
    bool is_known[ASHLAR_PICKLE_WORDS]; /* the word with this number has been written in full */
    ashlar_pickle_frame frames[ASHLAR_PICKLE_DEPTH + 1];
    unsigned depth;
} ashlar_pickle;

/* Ownership: `file` stays the caller's. The caller commits it after ashlar__pickle_end(). */
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

/* A tuple of two integers, 0 .. 255 each. */
void ashlar__pickle_put_pair(ashlar_pickle *pickle, uint8_t first, uint8_t second);

/* A string: UTF-8, 0-terminated. */
void ashlar__pickle_put_text(ashlar_pickle *pickle, const char *text);

/* A string that is written often. The caller gives each such string a number `idx` of its own,
 * below ASHLAR_PICKLE_WORDS. From the second time on a word takes two bytes of the file. */
void ashlar__pickle_put_word(ashlar_pickle *pickle, unsigned idx, const char *text);

#endif /* ASHLAR_PICKLE_H */
