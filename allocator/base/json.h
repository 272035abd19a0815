/*
 * json.h - JSON text: a writer that appends to one growing buffer, and a strict reader, value by
 * value (internal).
 *
 * A number that is written and read back is the same: integers of 64 bits, doubles to the last bit,
 * in every locale. The reader refuses arrays and objects nested deeper than ASHLAR_JSON_DEPTH.
 *
 * Threads: one at a time per writer or reader.
 */
#ifndef ASHLAR_JSON_H
#define ASHLAR_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/base.h>

enum { ASHLAR_JSON_DEPTH = 64 };

/* The length in bytes, 1 .. 4, of the UTF-8 character that `text` begins with. `left` > 0 is the
 * number of bytes in `text`. 0: not well-formed UTF-8 (for example an overlong form, a surrogate,
 * or a character that the end of the text cuts off). */
size_t ashlar__json_utf8_bytes(const char *text, size_t left);

/* --- writing -------------------------------------------------------------------------------- */

/* Only json_write.c uses the fields. */
typedef struct ashlar_json_writer {
    char *text;
    size_t bytes;
    size_t capacity;
    size_t depth;     /* open objects and arrays */
    size_t row_depth; /* the depth inside the array that stays on one line; 0: none is open */
    enum { ASHLAR_JSON_OPENED, ASHLAR_JSON_AFTER_KEY, ASHLAR_JSON_AFTER_ITEM } last;
    unsigned int indent;
    bool has_failed; /* host memory ran out: later calls write nothing */
} ashlar_json_writer;

/*
 * Begin a document, which holds one value. ashlar__json_writer_text() reports a failure of any call
 * before it, so those calls need no check.
 *
 * indent   0: the whole document on one line; else each item on its own line, `indent` blanks
 *          deeper than its parent
 */
void ashlar__json_writer_init(ashlar_json_writer *writer, unsigned int indent);
void ashlar__json_writer_finish(ashlar_json_writer *writer);

/* Begin the document of a program, an object with a member "schema": NAME/NUMBER. The number grows
 * when a member is removed, or changes its meaning. */
void ashlar__json_open_document(ashlar_json_writer *writer, const char *schema);

void ashlar__json_open_object(ashlar_json_writer *writer);
void ashlar__json_close_object(ashlar_json_writer *writer);
void ashlar__json_open_array(ashlar_json_writer *writer);
void ashlar__json_open_row(ashlar_json_writer *writer); /* an array that stays on one line */
void ashlar__json_close_array(ashlar_json_writer *writer);

/* A table is an object with two members: "columns", the columns' names, and "rows", an array of
 * rows. The caller puts the rows between the two calls, each by ashlar__json_open_row(). */
void ashlar__json_open_table(ashlar_json_writer *writer, const char *const *columns, size_t count);
void ashlar__json_close_table(ashlar_json_writer *writer);

/* Write the key of an object's next value. */
void ashlar__json_put_key(ashlar_json_writer *writer, const char *key);

/* Put a string. Each byte that is not part of well-formed UTF-8 becomes U+FFFD. */
void ashlar__json_put_string(ashlar_json_writer *writer, const char *text);
void ashlar__json_put_text(ashlar_json_writer *writer, const char *text, size_t bytes);

void ashlar__json_put_uint64(ashlar_json_writer *writer, uint64_t value);
void ashlar__json_put_double(ashlar_json_writer *writer, double value); /* not finite: null */
void ashlar__json_put_bool(ashlar_json_writer *writer, bool value);
void ashlar__json_put_null(ashlar_json_writer *writer);

/* Put a value whose JSON text the caller has already; it is copied as it is. */
void ashlar__json_put_parsed(ashlar_json_writer *writer, const char *text, size_t bytes);

/* Put a member of an object: its key, then its value. */
void ashlar__json_add_string(ashlar_json_writer *writer, const char *key, const char *text);
void ashlar__json_add_uint64(ashlar_json_writer *writer, const char *key, uint64_t value);
void ashlar__json_add_double(ashlar_json_writer *writer, const char *key, double value);
void ashlar__json_add_bool(ashlar_json_writer *writer, const char *key, bool value);

/*
 * The finished document and a 0 after it, which *bytes does not count.
 *
 * Ownership: the writer owns *text, until ashlar__json_writer_finish().
 * Errors:    ASHLAR_EHOSTMEM (host memory ran out in any call since the beginning).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__json_writer_text(ashlar_json_writer *writer,
                                                         const char **text, size_t *bytes);

/* Write the finished document and an end of line to a file, whole or not at all, to a pipe, or to
 * standard output ("-"). Errors: ASHLAR_EHOSTMEM, and those of ashlar__stream_write_line(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__json_writer_save(ashlar_json_writer *writer,
                                                         const char *path);

/* Save the document, then finish the writer, also on failure. Errors: those of
 * ashlar__json_writer_save(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__json_writer_end(ashlar_json_writer *writer,
                                                        const char *path);

/* --- reading -------------------------------------------------------------------------------- */

typedef enum ashlar_json_kind {
    ASHLAR_JSON_NULL,
    ASHLAR_JSON_BOOL,
    ASHLAR_JSON_NUMBER,
    ASHLAR_JSON_STRING,
    ASHLAR_JSON_ARRAY,
    ASHLAR_JSON_OBJECT,
} ashlar_json_kind;

typedef struct ashlar_json ashlar_json;

struct ashlar_json {
    ashlar_json_kind kind;   /* says which fields have a value: those of its name in capitals */
    bool boolean;            /* BOOL */
    bool is_integer;         /* a NUMBER without fraction or exponent, and |value| < 2^64 */
    bool is_negative;        /* NUMBER */
    const char *key;         /* if this is an object's member: its key, 0-terminated; else NULL */
    size_t key_bytes;        /* more than strlen(key) if the key has a byte 0 inside */
    const char *text;        /* STRING, 0-terminated; may have a byte 0 inside, too */
    size_t count;            /* STRING: its bytes, without the last 0 */
    uint64_t magnitude;      /* NUMBER that is_integer: its absolute value */
    double number;           /* NUMBER, the nearest double */
    const ashlar_json *item; /* for callers that build a tree: the first item of this value; and */
    const ashlar_json *next; /* the item after it in its parent. The reader sets both to NULL */
};

/*
 * Reads a text without building a tree of its values, which may need many times the memory of the
 * text: the caller keeps only what it needs.
 *
 *     ashlar__json_scan_begin(&scan, text, bytes, &value)     the document
 *     ashlar__json_scan_next(&scan, value.kind, &item, &is)   its items, until there is none
 *     ashlar__json_scan_end(&scan)
 *
 * If an item is an array or object itself, all of its items come next, until there is none.
 *
 * Strings are decoded where they lie, which changes the text: no character takes more bytes than
 * its escape, and the 0 behind a string takes the place of its closing quote.
 *
 * Only json_scan.c uses the fields. Invariants between calls:
 *   at <= bytes, depth <= ASHLAR_JSON_DEPTH
 *   put <= text + at
 */
typedef struct ashlar_json_scan {
    char *text;
    size_t bytes;
    size_t at;     /* index of the next byte to read */
    size_t depth;  /* arrays and objects that are open */
    bool is_first; /* an array or object has just been opened */
    char *put;     /* where the next decoded byte of a string goes */
} ashlar_json_scan;

/*
 * Read the document's value: all of it, or the opening bracket of an array or object. RFC 8259, no
 * extensions; an object may have a key twice.
 *
 * text   [bytes + 1]; text[bytes] may be anything, and is unchanged after each call
 * value  its strings lie in `text`
 * Errors: ASHLAR_EFORMAT (the detail names the wrong byte; too deep nesting and a number beyond the
 *         range of a double are such errors too); the same for the functions below.
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

/* If `value` is an integer in the range of *out, set *out and return true; otherwise, and if
 * `value` is NULL, return false. */
bool ashlar__json_get_uint64(const ashlar_json *value, uint64_t *out);

#endif /* ASHLAR_JSON_H */
