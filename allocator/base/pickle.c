/* pickle.c - the opcodes of Python's pickle format, and the order in which values may come. */
#include "allocator/base/pickle.h"

#include <string.h>

#include "allocator/base/check_level.h"

/* The opcodes, by the names that Python's pickletools gives them. */
enum {
    OP_MARK = '(',
    OP_STOP = '.',
    OP_BINFLOAT = 'G',
    OP_BININT = 'J',
    OP_BININT1 = 'K',
    OP_BININT2 = 'M',
    OP_BINUNICODE = 'X',
    OP_EMPTY_LIST = ']',
    OP_APPENDS = 'e',
    OP_BINGET = 'h',
    OP_BINPUT = 'q',
    OP_SETITEMS = 'u',
    OP_EMPTY_DICT = '}',
    OP_PROTO = 0x80,
    OP_TUPLE2 = 0x86,
    OP_NEWTRUE = 0x88,
    OP_NEWFALSE = 0x89,
    OP_LONG1 = 0x8a,
};

enum { PROTOCOL = 2 };

_Static_assert(ASHLAR_PICKLE_WORDS - 1 <= UINT8_MAX, "the number of a word is one byte");

static void put_byte(ashlar_pickle *pickle, unsigned value) {
    const unsigned char byte = (unsigned char)value;
    ASHLAR_CHECK2(value <= UINT8_MAX);
    ashlar__file_buffer_put(pickle->file, &byte, 1);
}

/* Write the low `count` bytes of a number, the lowest first. */
static void put_bytes(ashlar_pickle *pickle, uint64_t value, unsigned count) {
    ASHLAR_CHECK2(count >= 8 || value >> 8 * count == 0);
    for (unsigned i = 0; i < count; i++) {
        put_byte(pickle, (unsigned)(value >> (8 * i)) & 0xff);
    }
}

/* Count a value. In a list, also end a full batch and write the mark that starts the next one. */
static void begin_value(ashlar_pickle *pickle) {
    ashlar_pickle_frame *frame = &pickle->frames[pickle->depth];
    ASHLAR_ASSERT(pickle->depth > 0 || frame->item_count == 0);
    ASHLAR_CHECK2(!frame->is_list || frame->item_count <= ASHLAR_PICKLE_BATCH);
    if (frame->is_list && frame->item_count == ASHLAR_PICKLE_BATCH) {
        put_byte(pickle, OP_APPENDS);
        frame->item_count = 0;
    }
    if (frame->is_list && frame->item_count == 0) {
        put_byte(pickle, OP_MARK);
    }
    frame->item_count++;
}

static void open_frame(ashlar_pickle *pickle, bool is_list) {
    ASHLAR_ASSERT(pickle->depth < ASHLAR_PICKLE_DEPTH);
    pickle->frames[++pickle->depth] = (ashlar_pickle_frame){.is_list = is_list};
}

static ashlar_pickle_frame close_frame(ashlar_pickle *pickle, bool is_list) {
    const ashlar_pickle_frame frame = pickle->frames[pickle->depth];
    ASHLAR_ASSERT(pickle->depth > 0 && frame.is_list == is_list);
    pickle->depth--;
    return frame;
}

void ashlar__pickle_begin(ashlar_pickle *pickle, ashlar_file_buffer *file) {
    *pickle = (ashlar_pickle){.file = file};
    put_byte(pickle, OP_PROTO);
    put_byte(pickle, PROTOCOL);
}

void ashlar__pickle_end(ashlar_pickle *pickle) {
    ASHLAR_ASSERT(pickle->depth == 0 && pickle->frames[0].item_count == 1);
    put_byte(pickle, OP_STOP);
}

void ashlar__pickle_open_dict(ashlar_pickle *pickle) {
    begin_value(pickle);
    put_byte(pickle, OP_EMPTY_DICT);
    put_byte(pickle, OP_MARK);
    open_frame(pickle, false);
}

void ashlar__pickle_close_dict(ashlar_pickle *pickle) {
    const ashlar_pickle_frame frame = close_frame(pickle, false);
    ASHLAR_ASSERT(frame.item_count % 2 == 0); /* no key without its value */
    put_byte(pickle, OP_SETITEMS);
}

void ashlar__pickle_open_list(ashlar_pickle *pickle) {
    begin_value(pickle);
    put_byte(pickle, OP_EMPTY_LIST);
    open_frame(pickle, true);
}

void ashlar__pickle_close_list(ashlar_pickle *pickle) {
    if (close_frame(pickle, true).item_count > 0) {
        put_byte(pickle, OP_APPENDS);
    }
}

void ashlar__pickle_put_uint64(ashlar_pickle *pickle, uint64_t value) {
    begin_value(pickle);
    if (value <= UINT8_MAX) {
        put_byte(pickle, OP_BININT1);
        put_bytes(pickle, value, 1);
    } else if (value <= UINT16_MAX) {
        put_byte(pickle, OP_BININT2);
        put_bytes(pickle, value, 2);
    } else if (value <= INT32_MAX) {
        put_byte(pickle, OP_BININT);
        put_bytes(pickle, value, 4);
    } else {
        unsigned count = 4; /* bytes; enough that the sign, the last one's top bit, is 0 */
        while (count < 8 && value >> (8 * count - 1) != 0) {
            count++;
        }
        const bool needs_zero = value >> 63 != 0;
        /* needs_zero: a ninth byte of 0 keeps the sign bit 0, and so the number positive. */
        ASHLAR_CHECK2(needs_zero ? count == 8 : value >> (8 * count - 1) == 0);
        put_byte(pickle, OP_LONG1);
        put_byte(pickle, count + needs_zero);
        put_bytes(pickle, value, count);
        if (needs_zero) {
            put_byte(pickle, 0);
        }
    }
}

void ashlar__pickle_put_int32(ashlar_pickle *pickle, int32_t value) {
    begin_value(pickle);
    put_byte(pickle, OP_BININT);
    put_bytes(pickle, (uint32_t)value, 4);
}

void ashlar__pickle_put_double(ashlar_pickle *pickle, double value) {
    uint64_t bits;
    _Static_assert(sizeof bits == sizeof value, "a pickle's doubles have 64 bits");
    memcpy(&bits, &value, sizeof bits);
    begin_value(pickle);
    put_byte(pickle, OP_BINFLOAT);
    for (int shift = 56; shift >= 0; shift -= 8) { /* unlike integers, highest byte first */
        put_byte(pickle, (unsigned)(bits >> shift) & 0xff);
    }
}

void ashlar__pickle_put_bool(ashlar_pickle *pickle, bool value) {
    begin_value(pickle);
    put_byte(pickle, value ? OP_NEWTRUE : OP_NEWFALSE);
}

void ashlar__pickle_put_pair(ashlar_pickle *pickle, uint8_t first, uint8_t second) {
    begin_value(pickle);
    put_byte(pickle, OP_BININT1);
    put_byte(pickle, first);
    put_byte(pickle, OP_BININT1);
    put_byte(pickle, second);
    put_byte(pickle, OP_TUPLE2);
}

void ashlar__pickle_put_text(ashlar_pickle *pickle, const char *text) {
    const size_t bytes = strlen(text);
    ASHLAR_ASSERT(bytes <= UINT32_MAX);
    begin_value(pickle);
    put_byte(pickle, OP_BINUNICODE);
    put_bytes(pickle, bytes, 4);
    ashlar__file_buffer_put(pickle->file, text, bytes);
}

void ashlar__pickle_put_word(ashlar_pickle *pickle, unsigned idx, const char *text) {
    ASHLAR_ASSERT(idx < ASHLAR_PICKLE_WORDS);
    if (pickle->is_known[idx]) {
        begin_value(pickle);
        put_byte(pickle, OP_BINGET);
    } else {
        ashlar__pickle_put_text(pickle, text);
        put_byte(pickle, OP_BINPUT);
        pickle->is_known[idx] = true;
    }
    put_byte(pickle, idx);
}
