/*
 * test_pickle.c - the bytes that each value becomes, as Python's pickletools names them.
 */
#include "allocator/base/pickle.h"

#include <stdint.h>

#include "tests/allocator/base/file_fixture.h"

static ashlar_file_buffer *file;
static ashlar_pickle pickle;
static unsigned char bytes[FILE_MAX_BYTES];
static size_t count;

static bool begin(void) {
    count = 0;
    if (ashlar__file_buffer_create(path, &file) != ASHLAR_OK) {
        return false;
    }
    ashlar__pickle_begin(&pickle, file);
    return true;
}

static void finish(void) {
    ashlar__pickle_end(&pickle);
    CHECK(ashlar__file_buffer_commit(file) == ASHLAR_OK);
    count = read_bytes(bytes);
}

/* The document is protocol 2, these bytes, and a stop. */
static bool is_text(const void *want, size_t want_count) {
    return count == want_count + 3 && memcmp(bytes, "\x80\x02", 2) == 0 &&
           memcmp(bytes + 2, want, want_count) == 0 && bytes[count - 1] == '.';
}
#define IS(text) is_text(text, sizeof(text) - 1)

static void put_number(uint64_t value) {
    if (begin()) {
        ashlar__pickle_put_uint64(&pickle, value);
        finish();
    }
}

CASE(a_number_has_the_shortest_form) {
    put_number(0);
    CHECK(IS("K\x00"));
    put_number(255);
    CHECK(IS("K\xff"));
    put_number(256);
    CHECK(IS("M\x00\x01"));
    put_number(65535);
    CHECK(IS("M\xff\xff"));
    put_number(65536);
    CHECK(IS("J\x00\x00\x01\x00"));
    put_number(INT32_MAX);
    CHECK(IS("J\xff\xff\xff\x7f"));
}

/* Their highest bit is a sign, so some need a zero byte above. */
CASE(a_number_of_more_than_31_bits_is_not_negative) {
    put_number(UINT64_C(0x80000000));
    CHECK(IS("\x8a\x05\x00\x00\x00\x80\x00"));
    put_number(UINT64_C(0xffffffff));
    CHECK(IS("\x8a\x05\xff\xff\xff\xff\x00"));
    put_number(UINT64_C(0x7fffffffff));
    CHECK(IS("\x8a\x05\xff\xff\xff\xff\x7f"));
    put_number(UINT64_C(0x8000000000));
    CHECK(IS("\x8a\x06\x00\x00\x00\x00\x80\x00"));
    put_number(UINT64_C(0x7f0123456789));
    CHECK(IS("\x8a\x06\x89\x67\x45\x23\x01\x7f"));
    put_number(INT64_MAX);
    CHECK(IS("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"));
    put_number((uint64_t)INT64_MAX + 1);
    CHECK(IS("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00"));
    put_number(UINT64_MAX);
    CHECK(IS("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00"));
}

CASE_WITH(other_values_have_their_opcodes, begin()) {
    ashlar__pickle_put_int32(&pickle, -2);
    finish();
    CHECK(IS("J\xfe\xff\xff\xff"));
    REQUIRE(begin());
    ashlar__pickle_put_double(&pickle, -0.75);
    finish();
    CHECK(IS("G\xbf\xe8\x00\x00\x00\x00\x00\x00"));
    REQUIRE(begin());
    ashlar__pickle_put_bool(&pickle, true);
    finish();
    CHECK(IS("\x88"));
    REQUIRE(begin());
    ashlar__pickle_put_bool(&pickle, false);
    finish();
    CHECK(IS("\x89"));
    REQUIRE(begin());
    ashlar__pickle_put_pair(&pickle, 3, 255);
    finish();
    CHECK(IS("K\x03K\xff\x86"));
    REQUIRE(begin());
    ashlar__pickle_put_text(&pickle, "\xc3\xa9t");
    finish();
    CHECK(IS("X\x03\x00\x00\x00\xc3\xa9t"));
    REQUIRE(begin());
    ashlar__pickle_put_text(&pickle, "");
    finish();
    CHECK(IS("X\x00\x00\x00\x00"));
}

CASE_WITH(a_word_is_written_once, begin()) {
    ashlar__pickle_open_list(&pickle);
    ashlar__pickle_put_word(&pickle, 0, "ab");
    ashlar__pickle_put_word(&pickle, 255, "cd");
    ashlar__pickle_put_word(&pickle, 0, "ab");
    ashlar__pickle_put_word(&pickle, 255, "cd");
    ashlar__pickle_close_list(&pickle);
    finish();
    CHECK(IS("](X\x02\x00\x00\x00"
             "abq\x00X\x02\x00\x00\x00"
             "cdq\xffh\x00h\xff"
             "e"));
    REQUIRE(begin()); /* another document knows nothing of the first one's */
    ashlar__pickle_put_word(&pickle, 0, "ef");
    finish();
    CHECK(IS("X\x02\x00\x00\x00"
             "efq\x00"));
}

CASE_WITH(lists_and_dictionaries_nest, begin()) {
    ashlar__pickle_open_dict(&pickle);
    ashlar__pickle_put_uint64(&pickle, 1);
    ashlar__pickle_open_list(&pickle);
    ashlar__pickle_open_list(&pickle);
    ashlar__pickle_close_list(&pickle);
    ashlar__pickle_open_dict(&pickle);
    ashlar__pickle_close_dict(&pickle);
    ashlar__pickle_put_uint64(&pickle, 2);
    ashlar__pickle_close_list(&pickle);
    ashlar__pickle_put_uint64(&pickle, 3);
    ashlar__pickle_put_uint64(&pickle, 4);
    ashlar__pickle_close_dict(&pickle);
    finish();
    CHECK(IS("}(K\x01"
             "](]}(uK\x02"
             "eK\x03K\x04u"));
}

CASE_WITH(the_deepest_nesting_is_allowed, begin()) {
    for (int i = 0; i < ASHLAR_PICKLE_DEPTH; i++) {
        ashlar__pickle_open_list(&pickle);
    }
    for (int i = 0; i < ASHLAR_PICKLE_DEPTH; i++) {
        ashlar__pickle_close_list(&pickle);
    }
    finish();
    CHECK(IS("](](](](](](](]eeeeeee"));
}

CASE(a_long_list_is_appended_to_in_batches) {
    static const struct {
        unsigned items, batches;
    } lists[] = {{0, 0},
                 {1, 1},
                 {ASHLAR_PICKLE_BATCH, 1},
                 {ASHLAR_PICKLE_BATCH + 1, 2},
                 {2 * ASHLAR_PICKLE_BATCH, 2}};
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        unsigned opened = 0, closed = 0, longest = 0, batch = 0;
        REQUIRE(begin());
        ashlar__pickle_open_list(&pickle);
        for (unsigned i = 0; i < lists[k].items; i++) {
            ashlar__pickle_put_bool(&pickle, true);
        }
        ashlar__pickle_close_list(&pickle);
        finish();
        for (size_t i = 3; i + 1 < count; i++) {
            opened += bytes[i] == '(';
            closed += bytes[i] == 'e';
            batch = bytes[i] == 0x88 ? batch + 1 : 0;
            longest = batch > longest ? batch : longest;
        }
        CHECK(opened == lists[k].batches && closed == lists[k].batches);
        CHECK(longest <= ASHLAR_PICKLE_BATCH);
        CHECK_ZU(count, 4 + lists[k].items + 2 * lists[k].batches);
    }
}

RUN_CASES_IN_FOLDER()
