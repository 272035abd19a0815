/*
 * json_scan.h - a JSON text read value by value, without building a tree of its values (internal).
 *
 * For texts from outside, whose values may need many times the memory of the text: the caller keeps
 * only what it needs. ashlar__json_parse() is made of these functions.
 *
 *     ashlar__json_scan_begin(&scan, text, bytes, &value)     the document
 *     ashlar__json_scan_next(&scan, value.kind, &item, &is)   its items, until there is none
 *     ashlar__json_scan_end(&scan)
 *
 * If an item is an array or object itself, all of its items come next, until there is none.
 *
 * Strings are decoded where they lie, which changes the text: no character takes more bytes than
 * its escape, and the 0 behind a string takes the place of its closing quote.
 */
#ifndef ASHLAR_JSON_SCAN_H
#define ASHLAR_JSON_SCAN_H

#include "allocator/base/json.h"

/* Only json_scan.c uses the fields. Invariants between calls:
 *   at <= bytes, depth <= ASHLAR_JSON_DEPTH
 *   put <= text + at */
typedef struct ashlar_json_scan {
    char *text;
    size_t bytes;
    size_t at;     /* index of the next byte to read */
    size_t depth;  /* arrays and objects that are open */
    bool is_first; /* an array or object has just been opened */
    char *put;     /* where the next decoded byte of a string goes */
} ashlar_json_scan;

/*
 * Read the document's value: all of it, or the opening bracket of an array or object, whose `item`
 * and `count` stay 0.
 *
 * text   [bytes + 1]; the last byte may be anything, and is kept
 * value  its strings lie in `text`
 * Errors: ASHLAR_EFORMAT, as for ashlar__json_parse(); the same for the functions below.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__json_scan_begin(ashlar_json_scan *scan, char *text,
                                                        size_t bytes, ashlar_json *value);

/* Read the next item of the innermost open array or object, or its closing bracket: then *is_there
 * is false, and *item unchanged. kind: ASHLAR_JSON_ARRAY or ASHLAR_JSON_OBJECT, whichever is
 * open. */
ASHLAR_MUST_CHECK ashlar_status ashlar__json_scan_next(ashlar_json_scan *scan,
                                                       ashlar_json_kind kind, ashlar_json *item,
                                                       bool *is_there);

/* Check that nothing is left but blanks. All brackets must be closed. */
ASHLAR_MUST_CHECK ashlar_status ashlar__json_scan_end(ashlar_json_scan *scan);

#endif /* ASHLAR_JSON_SCAN_H */
