/*
 * test_safetensors.c - the checkpoint file: what is written, what the reader finds, and what it
 * refuses.
 */
#include "tests/allocator/base/file_fixture.h"

#include <fcntl.h>
#include <pthread.h>

#include "allocator/base/host.h"
#include "arena/checkpoint/safetensors.h"
#include "tests/arena/checkpoint/safetensors_find.h"

static const float narrow[6] = {1, 2, 3, 4, 5, 6.5F};
static const float one = -1;
static const double wide[2] = {0.1, 1e300};

/* Narrow ones before the wide one: the writer has to reorder them. */
static const ashlar_safetensors_entry sample[] = {
    {"layer.0/W \"\xc3\xa4\"", ASHLAR_F32, 2, {2, 3}, narrow},
    {"one", ASHLAR_F32, 0, {0}, &one},
    {"none", ASHLAR_F32, 3, {4, 0, 2}, NULL},
    {"wide", ASHLAR_F64, 1, {2}, wide},
};
enum { SAMPLE_COUNT = sizeof sample / sizeof sample[0] };
static const ashlar_safetensors_pair pairs[] = {{"step", "12"}, {"note", "a\nb \xe2\x82\xac"}};

static ashlar_status write_sample(void) {
    return ashlar__safetensors_write(path, sample, SAMPLE_COUNT, pairs, 2, NULL);
}

static void check_refused(const char *part) {
    ashlar_checkpoint *const untouched = (ashlar_checkpoint *)folder;
    ashlar_checkpoint *file = untouched;
    CHECK(ashlar_checkpoint_open(path, &file) == ASHLAR_EFORMAT);
    CHECK(file == untouched);
    CHECK_HAS(ashlar_error_detail(), path);
    CHECK_HAS(ashlar_error_detail(), part);
}

/* A file of this header, without padding, and `data_bytes` bytes of data. */
static void write_header(const char *header, size_t data_bytes) {
    unsigned char bytes[FILE_MAX_BYTES] = {0};
    const size_t count = strlen(header);
    bytes[0] = (unsigned char)(count & 0xff);
    bytes[1] = (unsigned char)(count >> 8);
    memcpy(bytes + 8, header, count);
    write_bytes(bytes, 8 + count + data_bytes);
}

#define T(dtype, shape, offsets) \
    "{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct {
    const char *header;
    size_t data_bytes;
    const char *reason;
} foreign[] = {
    {"{\"t\":" T("\"F32\"", "[2]", "[0,8]") "}", 8, NULL}, /* good: the frame of the others */
    {"{\"t\":" T("\"F32\"", "[2]", "[0,8]") "}", 7, "ends 1 bytes before its tensor 't' does"},
    {"{\"t\":" T("\"F32\"", "[2]", "[0,8]") "}", 9, "9 bytes of data, 8 described"},
    {"{\"t\":" T("\"\"", "[2]", "[0,8]") "}", 8, "dtype that is no name"},
    {"{\"t\":" T("\"F\\u0000\"", "[2]", "[0,8]") "}", 8, "dtype that is no name"},
    {"{\"t\":" T("\"F8_E4M3\"", "[4]", "[0,5]") "}", 5, "does not match its data_offsets"},
    {"{\"t\":" T("\"F4\"", "[3]", "[0,2]") "}", 2, "does not match its data_offsets"},
    {"{\"t\":" T("32", "[2]", "[0,8]") "}", 8, "dtype"},
    {"{\"t\":" T("\"F32\"", "[3]", "[0,8]") "}", 8, "does not match its data_offsets"},
    {"{\"t\":" T("\"F32\"", "[-2]", "[0,8]") "}", 8, "a shape"},
    {"{\"t\":" T("\"F32\"", "[2.0]", "[0,8]") "}", 8, "a shape"},
    {"{\"t\":" T("\"F32\"", "2", "[0,8]") "}", 8, "a shape"},
    {"{\"t\":" T("\"F32\"", "[4611686018427387906]", "[0,8]") "}", 8, "does not match"},
    {"{\"t\":" T("\"F32\"", "[2]", "[8,0]") "}", 8, "no begin and end"},
    {"{\"t\":" T("\"F32\"", "[2]", "[0]") "}", 8, "data_offsets"},
    {"{\"t\":" T("\"F32\"", "[2]", "[0,8,8]") "}", 8, "data_offsets"},
    {"{\"t\":" T("\"F32\"", "[2]", "[0,18446744073709551615]") "}", 8, "it was cut short"},
    {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "not described by"},
    {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8,
     "not described by"},
    {"{\"t\":{\"dtype\":\"F32\",\"x\":[2],\"data_offsets\":[0,8]}}", 8, "not described by"},
    {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"x\":[0,8]}}", 8, "not described by"},
    {"{\"t\":" T("\"F32\"", "[0]", "[0]") "}", 0, "data_offsets"},
    {"{\"t\":" T("\"F32\"", "[\"\"]", "[0,0]") "}", 0, "a shape"},
    {"{\"t\":" T("\"F32\"", "[4611686018427387904]", "[0,0]") "}", 0, "does not match"},
    {"{\"t\":[1,2,3]}", 0, "not described by"},
    {"{\"t\":1}", 0, "not described by"},
    {"{\"t\":" T("\"F32\"", "[1]", "[0,4]") ",\"t\":" T("\"F32\"", "[1]", "[4,8]") "}", 8,
     "duplicate key 't'"},
    {"{\"t\":" T("\"F32\"", "[1]", "[0,4]") ",\"u\":" T("\"F32\"", "[1]", "[4,8]") ",\"t\":" T(
         "\"F32\"", "[1]", "[8,12]") "}",
     12, "duplicate key 't'"},
    {"{\"t\":" T("\"F32\"", "[1]", "[0,4]") ",\"u\":" T("\"F32\"", "[1]", "[5,9]") "}", 9,
     "'u' has a hole before it"},
    {"{\"t\":" T("\"F32\"", "[2]", "[0,8]") ",\"u\":" T("\"F32\"", "[2]", "[4,12]") "}", 12,
     "'u' overlaps the tensor before it"},
    {"{\"t\":" T("\"F32\"", "[1]", "[4,8]") "}", 8, "'t' has a hole before it"},
    {"{\"a\\u0000b\":" T("\"F32\"", "[2]", "[0,8]") "}", 8, "byte 0"},
    {"{\"__metadata__\":[]}", 0, "not one object"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "not one object"},
    {"{\"__metadata__\":{\"k\":1}}", 0, "'k' is metadata other than text"},
    {"{\"__metadata__\":{\"k\\u0000\":\"v\"}}", 0, "'k' is metadata other than text"},
    {"{\"__metadata__\":{\"k\":\"\\u0000\"}}", 0, "'k' is metadata other than text"},
    {"{\"__metadata__\":{\"k\":\"a\",\"k\":\"b\"}}", 0, "'k' is a duplicate key of the metadata"},
    {"[]", 0, "not an object"},
    {"{} x", 0, "JSON, byte 3"},
    {"", 0, "JSON, byte 0"},
};

CASE(foreign_and_inconsistent_files_are_refused_with_the_reason) {
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        write_header(foreign[i].header, foreign[i].data_bytes);
        if (foreign[i].reason != NULL) {
            check_refused(foreign[i].reason);
            continue;
        }
        ashlar_checkpoint *file;
        REQUIRE(ashlar_checkpoint_open(path, &file) == ASHLAR_OK);
        ashlar_checkpoint_close(file);
    }
}

/* Tensors in any order of the header, an empty one between them. */
CASE(the_order_of_the_header_is_free) {
    write_header("{\"b\":" T("\"F32\"", "[1]", "[4,8]") ",\"e\":" T("\"F64\"", "[0]", "[4,4]")
                 ",\"a\":" T("\"F32\"", "[]", "[0,4]") "}  \n", 8);
    ashlar_checkpoint *file;
    REQUIRE(ashlar_checkpoint_open(path, &file) == ASHLAR_OK);
    CHECK(strcmp(tensor_at(file, 0)->name, "a") == 0);
    CHECK(strcmp(tensor_at(file, 1)->name, "e") == 0);
    CHECK(strcmp(tensor_at(file, 2)->name, "b") == 0);
    ashlar_checkpoint_close(file);
}

/* Whatever the format allows: every type and some to come, no metadata, blanks. */
static const struct {
    const char *header;
    size_t data_bytes, count;
    const char *dtype; /* of tensor 0, and the rest of it */
    size_t rank, bytes;
} accepted[] = {
    {"{\"t\":" T("\"F32\"", "[2]", "[0,8]") "}", 8, 1, "F32", 1, 8},
    {"{\"t\":" T("\"BOOL\"", "[3]", "[0,3]") "}", 3, 1, "BOOL", 1, 3},
    {"{\"t\":" T("\"F4\"", "[2,3]", "[0,3]") "}", 3, 1, "F4", 2, 3},
    {"{\"t\":" T("\"F6_E2M3\"", "[4]", "[0,3]") "}", 3, 1, "F6_E2M3", 1, 3},
    {"{\"t\":" T("\"F6_E3M2\"", "[4]", "[0,3]") "}", 3, 1, "F6_E3M2", 1, 3},
    {"{\"t\":" T("\"U8\"", "[3]", "[0,3]") "}", 3, 1, "U8", 1, 3},
    {"{\"t\":" T("\"I8\"", "[3]", "[0,3]") "}", 3, 1, "I8", 1, 3},
    {"{\"t\":" T("\"F8_E5M2\"", "[3]", "[0,3]") "}", 3, 1, "F8_E5M2", 1, 3},
    {"{\"t\":" T("\"F8_E4M3\"", "[3]", "[0,3]") "}", 3, 1, "F8_E4M3", 1, 3},
    {"{\"t\":" T("\"F8_E8M0\"", "[3]", "[0,3]") "}", 3, 1, "F8_E8M0", 1, 3},
    {"{\"t\":" T("\"F8_E4M3FNUZ\"", "[3]", "[0,3]") "}", 3, 1, "F8_E4M3FNUZ", 1, 3},
    {"{\"t\":" T("\"F8_E5M2FNUZ\"", "[3]", "[0,3]") "}", 3, 1, "F8_E5M2FNUZ", 1, 3},
    {"{\"t\":" T("\"I16\"", "[3]", "[0,6]") "}", 6, 1, "I16", 1, 6},
    {"{\"t\":" T("\"U16\"", "[3]", "[0,6]") "}", 6, 1, "U16", 1, 6},
    {"{\"t\":" T("\"F16\"", "[3]", "[0,6]") "}", 6, 1, "F16", 1, 6},
    {"{\"t\":" T("\"BF16\"", "[3]", "[0,6]") "}", 6, 1, "BF16", 1, 6},
    {"{\"t\":" T("\"I32\"", "[3]", "[0,12]") "}", 12, 1, "I32", 1, 12},
    {"{\"t\":" T("\"U32\"", "[3]", "[0,12]") "}", 12, 1, "U32", 1, 12},
    {"{\"t\":" T("\"C64\"", "[3]", "[0,24]") "}", 24, 1, "C64", 1, 24},
    {"{\"t\":" T("\"F64\"", "[3]", "[0,24]") "}", 24, 1, "F64", 1, 24},
    {"{\"t\":" T("\"I64\"", "[3]", "[0,24]") "}", 24, 1, "I64", 1, 24},
    {"{\"t\":" T("\"U64\"", "[3]", "[0,24]") "}", 24, 1, "U64", 1, 24},
    {"{\"t\":" T("\"F5_NEW\"", "[3]", "[0,2]") "}", 2, 1, "F5_NEW", 1, 2}, /* to come */
    {"{\"t\":" T("\"I64\"", "[]", "[0,8]") "}", 8, 1, "I64", 0, 8},
    {"{\"t\":" T("\"F16\"", "[0]", "[0,0]") "}", 0, 1, "F16", 1, 0},
    {"{\"t\":" T("\"F32\"", "[0,1099511627776,1099511627776]", "[0,0]") "}", 0, 1, "F32", 3, 0},
    {"{\"t\":" T("\"F32\"", "[1,1,1,1,1,1,1,1,1,1,1,2]", "[0,8]") "}", 8, 1, "F32", 12, 8},
    {"{\"t\":{\"data_offsets\":[0,8],\"shape\":[2],\"dtype\":\"F32\"}}", 8, 1, "F32", 1, 8},
    {"{\"__metadata__\":null,\"t\":" T("\"U8\"", "[1]", "[0,1]") "}", 1, 1, "U8", 1, 1},
    {"{\"t\":" T("\"U8\"", "[1]", "[0,1]") ",\"__metadata__\":{\"k\":\"v\"}}", 1, 1, "U8", 1, 1},
    {"{\"u\":" T("\"I8\"", "[2]", "[3,5]") ",\"t\":" T("\"U8\"", "[3]", "[0,3]") "}       ", 5, 2,
     "U8", 1, 3},
    {"{}", 0, 0, NULL, 0, 0},
};

CASE(every_file_of_the_format_is_read_and_listed) {
    for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++) {
        ashlar_checkpoint *file = NULL;
        write_header(accepted[i].header, accepted[i].data_bytes);
        CHECK(ashlar_checkpoint_open(path, &file) == ASHLAR_OK);
        REQUIRE(file != NULL && count_of(file) == accepted[i].count);
        size_t bytes = 0;
        for (size_t k = 0; k < accepted[i].count; k++) {
            bytes += tensor_at(file, k)->bytes;
        }
        CHECK_ZU(bytes, accepted[i].data_bytes);
        if (accepted[i].count > 0) {
            const ashlar_checkpoint_tensor *t = tensor_at(file, 0);
            CHECK(strcmp(t->name, "t") == 0 && strcmp(t->dtype, accepted[i].dtype) == 0);
            CHECK(t->rank == accepted[i].rank && t->bytes == accepted[i].bytes);
            CHECK_ZU(t->offset, 8 + strlen(accepted[i].header));
        }
        ashlar_checkpoint_close(file);
    }
}

/* A zip file, pickles of protocols 2 and 4; and a header whose length only begins like one. */
CASE(what_torch_saved_is_called_that_with_the_way_to_convert_it) {
    static const unsigned char first[][12] = {"PK\3\4\0\0\x08\x08", "\x80\2\x8a\nl\xfc\x9c\x46\xf9",
                                              "\x80\4\x95\x2b\0\0\0\0\0\0\0"};
    for (size_t i = 0; i < 3; i++) {
        write_bytes(first[i], sizeof first[i]);
        check_refused("such as torch.save() writes; convert it: python3 -c \"import torch");
        check_refused("s.save_file(torch.load('");
    }
    char header[0x280 + 1];
    memset(header, ' ', sizeof header - 1);
    header[0] = '{';
    header[sizeof header - 2] = '}';
    header[sizeof header - 1] = '\0';
    write_header(header, 0);
    ashlar_checkpoint *file = NULL;
    CHECK(ashlar_checkpoint_open(path, &file) == ASHLAR_OK);
    ashlar_checkpoint_close(file);
}

CASE(a_header_longer_than_file_or_limit_is_refused) {
    static const unsigned char huge[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    static const unsigned char long_by_one[10] = {3, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    write_bytes(huge, sizeof huge);
    check_refused("longer than the file");
    write_bytes(long_by_one, sizeof long_by_one);
    check_refused("longer than the file");
    write_bytes(huge, 7);
    check_refused("too short");
    /* A sparse file: 100,000,001 bytes of header, were it read. */
    static const unsigned char limit[8] = {0x01, 0xe1, 0xf5, 0x05};
    write_bytes(limit, sizeof limit);
    REQUIRE(truncate(path, 200000000) == 0);
    check_refused("the format allows");
    (void)unlink(path);
    ashlar_checkpoint *file;
    CHECK_FAILS(ashlar_checkpoint_open(path, &file), ASHLAR_EIO, path);
    CHECK_FAILS(ashlar_checkpoint_open(folder, &file), ASHLAR_EIO, "no regular file");
}

CASE(a_file_cut_anywhere_is_refused) {
    unsigned char bytes[FILE_MAX_BYTES];
    REQUIRE(write_sample() == ASHLAR_OK);
    const size_t count = read_bytes(bytes);
    REQUIRE(count > 100 && count < FILE_MAX_BYTES);
    for (size_t i = 0; i < count; i++) {
        write_bytes(bytes, i);
        check_refused("");
    }
}

/* ---- a file that changes ---- */

enum { RACE_BYTES = 1 << 18, OPENS = 400 };

static _Atomic bool is_over;

/* Write one header over another of its length, again and again: blanks, and brackets, of which each
 * is a value more. Any mixture of the two is one as well, so that the reader goes on to the end. */
static void *change_header(void *arg) {
    static const char start[20] = "{\"__metadata__\":[   ";
    static char texts[2][RACE_BYTES];
    memset(texts, ' ', sizeof texts);
    for (size_t i = sizeof start; i < RACE_BYTES; i += 4) {
        memcpy(texts[1] + i, "[], ", 4);
    }
    for (int turn = 0; !is_over; turn++) {
        memcpy(texts[turn % 2], start, sizeof start);
        CHECK(pwrite(*(int *)arg, texts[turn % 2], RACE_BYTES, 8) == RACE_BYTES);
    }
    return NULL;
}

CASE(a_header_that_changes_while_it_is_read_never_leads_outside) {
    static const unsigned char length[8] = {0, 0, RACE_BYTES >> 16};
    pthread_t writer;
    write_bytes(length, sizeof length);
    REQUIRE(truncate(path, 8 + RACE_BYTES) == 0);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    is_over = false;
    REQUIRE(fd >= 0 && pthread_create(&writer, NULL, change_header, &fd) == 0);
    for (int i = 0; i < OPENS; i++) {
        ashlar_checkpoint *file = NULL;
        const ashlar_status status = ashlar_checkpoint_open(path, &file);
        CHECK(status == ASHLAR_OK || status == ASHLAR_EFORMAT);
        CHECK((file != NULL) == (status == ASHLAR_OK));
        ashlar_checkpoint_close(file);
    }
    is_over = true;
    CHECK(pthread_join(writer, NULL) == 0 && close(fd) == 0);
}

/* ---- what is written, and what comes back of it ---- */

CASE(tensors_and_metadata_come_back) {
    ashlar_checkpoint *file;
    REQUIRE(write_sample() == ASHLAR_OK);
    REQUIRE(ashlar_checkpoint_open(path, &file) == ASHLAR_OK);
    CHECK_ZU(count_of(file), SAMPLE_COUNT);
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        const ashlar_checkpoint_tensor *got = ashlar_checkpoint_find(file, NULL, sample[i].name);
        REQUIRE(got != NULL);
        CHECK(strcmp(got->name, sample[i].name) == 0);
        CHECK(strcmp(got->dtype, ashlar_dtype_name(sample[i].dtype)) == 0);
        CHECK_ZU(got->rank, sample[i].rank);
        CHECK(memcmp(got->shape, sample[i].shape, got->rank * sizeof got->shape[0]) == 0);
        CHECK(has_elements(file, got, sample[i].data));
        CHECK_ZU(got->offset % ashlar_dtype_bytes(sample[i].dtype), 0);
    }
    CHECK(ashlar_checkpoint_find(file, NULL, "on") == NULL);
    CHECK(ashlar_checkpoint_find(file, NULL, "__metadata__") == NULL);
    CHECK(strcmp(ashlar_checkpoint_metadata(file, "step"), "12") == 0);
    CHECK(strcmp(ashlar_checkpoint_metadata(file, "note"), pairs[1].value) == 0);
    CHECK(ashlar_checkpoint_metadata(file, "other") == NULL);
    CHECK(strcmp(tensor_at(file, 0)->name, "wide") == 0);
    for (size_t i = 1; i < SAMPLE_COUNT; i++) {
        CHECK(tensor_at(file, i)->offset >= tensor_at(file, i - 1)->offset);
    }
    ashlar_checkpoint_close(file);
}

/* The bytes, spelt out: what other programs rely on. */
CASE(the_file_is_what_the_format_says) {
    static const char header[] = "{\"__metadata__\":{\"k\":\"v\"},\"t\":{\"dtype\":\"F32\","
                                 "\"shape\":[2,1],\"data_offsets\":[0,8]}}";
    const ashlar_safetensors_entry entry = {"t", ASHLAR_F32, 2, {2, 1}, narrow};
    const ashlar_safetensors_pair pair = {"k", "v"};
    unsigned char bytes[FILE_MAX_BYTES];
    REQUIRE(ashlar__safetensors_write(path, &entry, 1, &pair, 1, NULL) == ASHLAR_OK);
    const size_t padded = (sizeof header - 1 + 7) / 8 * 8;
    CHECK(padded > sizeof header - 1); /* so that there is padding to look at */
    REQUIRE(read_bytes(bytes) == 8 + padded + 8);
    CHECK(bytes[0] == padded && bytes[1] == 0 && bytes[7] == 0);
    CHECK(memcmp(bytes + 8, header, sizeof header - 1) == 0);
    for (size_t i = sizeof header - 1; i < padded; i++) {
        CHECK(bytes[8 + i] == ' ');
    }
    CHECK(memcmp(bytes + 8 + padded, narrow, 8) == 0);
    REQUIRE(ashlar__safetensors_write(path, &entry, 1, NULL, 0, NULL) == ASHLAR_OK);
    REQUIRE(read_bytes(bytes) > 8 + 5);
    CHECK(memcmp(bytes + 8, "{\"t\":", 5) == 0); /* no list of nothing */
}

CASE(a_file_without_tensors_is_a_file) {
    ashlar_checkpoint *file;
    REQUIRE(ashlar__safetensors_write(path, NULL, 0, NULL, 0, NULL) == ASHLAR_OK);
    REQUIRE(ashlar_checkpoint_open(path, &file) == ASHLAR_OK);
    CHECK_ZU(count_of(file), 0);
    CHECK(ashlar_checkpoint_find(file, NULL, "x") == NULL);
    CHECK(ashlar_checkpoint_metadata(file, "x") == NULL);
    ashlar_checkpoint_close(file);
}

static void check_write_refused(const ashlar_safetensors_entry *entries, size_t count,
                                const ashlar_safetensors_pair *pair, ashlar_status status,
                                const char *part) {
    CHECK(ashlar__safetensors_write(path, entries, count, pair, pair != NULL, NULL) == status);
    CHECK_HAS(ashlar_error_detail(), part);
    CHECK(access(path, F_OK) != 0);
}

CASE(what_cannot_be_read_back_is_not_written) {
    const size_t big = (size_t)1 << 40;
    ashlar_safetensors_entry e[9] = {sample[0], sample[1], sample[0]};
    (void)unlink(path);
    check_write_refused(e, 3, NULL, ASHLAR_EINVAL, "twice");
    e[0].name = "__metadata__";
    check_write_refused(e, 1, NULL, ASHLAR_EINVAL, "reserved");
    e[0].name = "a\xff";
    check_write_refused(e, 1, NULL, ASHLAR_EINVAL, "UTF-8");
    e[0] = (ashlar_safetensors_entry){"t", ASHLAR_F32, 9, {1}, narrow};
    check_write_refused(e, 1, NULL, ASHLAR_EINVAL, "'t'");
    e[0] = (ashlar_safetensors_entry){"t", ASHLAR_DTYPE_COUNT, 1, {1}, narrow};
    check_write_refused(e, 1, NULL, ASHLAR_EINVAL, "'t'");
    e[0] = (ashlar_safetensors_entry){"t", ASHLAR_F32, 2, {big, big}, narrow};
    check_write_refused(e, 1, NULL, ASHLAR_EOVERFLOW, "'t'");
    e[0] = (ashlar_safetensors_entry){"t", ASHLAR_F32, 3, {big, big, 0}, NULL};
    check_write_refused(e, 1, NULL, ASHLAR_EOVERFLOW, "'t'");
    e[0] = (ashlar_safetensors_entry){"t", ASHLAR_F32, 1, {1}, NULL};
    check_write_refused(e, 1, NULL, ASHLAR_EINVAL, "no data");
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    for (size_t i = 0; i < 9; i++) {
        e[i] = (ashlar_safetensors_entry){names[i], ASHLAR_F32, 1, {SIZE_MAX / 32}, narrow};
    }
    check_write_refused(e, 9, NULL, ASHLAR_EOVERFLOW, "'i'");
    check_write_refused(sample, 1, &(ashlar_safetensors_pair){"k", "\x80"}, ASHLAR_EINVAL, "'k'");
    check_write_refused(sample, 1, &(ashlar_safetensors_pair){"\x80", "v"}, ASHLAR_EINVAL, "UTF-8");
}

CASE(no_host_memory_at_any_call_leaks_nothing) {
    (void)unlink(path);
    FOR_HOST_FAILURES(n, status, write_sample()) {
        CHECK((status == ASHLAR_OK) == (access(path, F_OK) == 0));
        CHECK(names_in_folder() == (status == ASHLAR_OK));
    }
    ashlar_checkpoint *file = NULL;
    FOR_HOST_FAILURES(opened, opened_status, ashlar_checkpoint_open(path, &file)) {
        CHECK((opened_status == ASHLAR_OK) == (file != NULL));
    }
    CHECK(n > 4 && opened > 4);
    ashlar_checkpoint_close(file);
}

RUN_CASES_IN_FOLDER()
