/*
 * test_safetensors_write.c - the checkpoint file: what is written, and what comes back of it.
 */
#include "tests/arena/checkpoint/safetensors_find.h"

#include "allocator/base/host.h"
#include "tests/arena/checkpoint/safetensors_fixture.h"

CASE(tensors_and_metadata_come_back) {
    ashlar_safetensors *file;
    REQUIRE(write_sample() == ASHLAR_OK);
    REQUIRE(ashlar__safetensors_open(path, &file) == ASHLAR_OK);
    CHECK_ZU(ashlar__safetensors_count(file), SAMPLE_COUNT);
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        const ashlar_safetensors_entry *got = find_tensor(file, sample[i].name);
        REQUIRE(got != NULL);
        CHECK(strcmp(got->name, sample[i].name) == 0);
        CHECK(got->dtype == sample[i].dtype && got->rank == sample[i].rank);
        CHECK(memcmp(got->shape, sample[i].shape, sizeof got->shape) == 0);
        CHECK(has_elements(file, got, sample[i].data));
        CHECK_ZU(got->offset % ashlar_dtype_bytes(got->dtype), 0);
    }
    CHECK(find_tensor(file, "on") == NULL);
    CHECK(find_tensor(file, "__metadata__") == NULL);
    CHECK(strcmp(ashlar__safetensors_metadata(file, "step"), "12") == 0);
    CHECK(strcmp(ashlar__safetensors_metadata(file, "note"), pairs[1].value) == 0);
    CHECK(ashlar__safetensors_metadata(file, "other") == NULL);
    CHECK(strcmp(ashlar__safetensors_at(file, 0)->name, "wide") == 0);
    for (size_t i = 1; i < SAMPLE_COUNT; i++) {
        CHECK(ashlar__safetensors_at(file, i)->offset >=
              ashlar__safetensors_at(file, i - 1)->offset);
    }
    ashlar__safetensors_close(file);
}

/* The bytes, spelt out: what other programs rely on. */
CASE(the_file_is_what_the_format_says) {
    static const char header[] = "{\"__metadata__\":{\"k\":\"v\"},\"t\":{\"dtype\":\"F32\","
                                 "\"shape\":[2,1],\"data_offsets\":[0,8]}}";
    const ashlar_safetensors_entry entry = {"t", ASHLAR_F32, 2, {2, 1}, narrow, 0};
    const ashlar_safetensors_pair pair = {"k", "v"};
    unsigned char bytes[FILE_MAX_BYTES];
    REQUIRE(ashlar__safetensors_write(path, &entry, 1, &pair, 1) == ASHLAR_OK);
    const size_t padded = (sizeof header - 1 + 7) / 8 * 8;
    CHECK(padded > sizeof header - 1); /* so that there is padding to look at */
    REQUIRE(read_bytes(bytes) == 8 + padded + 8);
    CHECK(bytes[0] == padded && bytes[1] == 0 && bytes[7] == 0);
    CHECK(memcmp(bytes + 8, header, sizeof header - 1) == 0);
    for (size_t i = sizeof header - 1; i < padded; i++) {
        CHECK(bytes[8 + i] == ' ');
    }
    CHECK(memcmp(bytes + 8 + padded, narrow, 8) == 0);
    REQUIRE(ashlar__safetensors_write(path, &entry, 1, NULL, 0) == ASHLAR_OK);
    REQUIRE(read_bytes(bytes) > 8 + 5);
    CHECK(memcmp(bytes + 8, "{\"t\":", 5) == 0); /* no list of nothing */
}

CASE(a_file_without_tensors_is_a_file) {
    ashlar_safetensors *file;
    REQUIRE(ashlar__safetensors_write(path, NULL, 0, NULL, 0) == ASHLAR_OK);
    REQUIRE(ashlar__safetensors_open(path, &file) == ASHLAR_OK);
    CHECK_ZU(ashlar__safetensors_count(file), 0);
    CHECK(find_tensor(file, "x") == NULL);
    CHECK(ashlar__safetensors_metadata(file, "x") == NULL);
    ashlar__safetensors_close(file);
}

static void check_write_refused(const ashlar_safetensors_entry *entries, size_t count,
                                const ashlar_safetensors_pair *pair, ashlar_status status,
                                const char *part) {
    CHECK(ashlar__safetensors_write(path, entries, count, pair, pair != NULL) == status);
    CHECK_HAS(ashlar_error_detail(), part);
    CHECK(access(path, F_OK) != 0);
}

CASE(what_cannot_be_read_back_is_not_written) {
    const size_t big = (size_t)1 << 40;
    ashlar_safetensors_entry e[3] = {sample[0], sample[1], sample[0]};
    (void)unlink(path);
    check_write_refused(e, 3, NULL, ASHLAR_EINVAL, "twice");
    e[0].name = "__metadata__";
    check_write_refused(e, 1, NULL, ASHLAR_EINVAL, "reserved");
    e[0].name = "a\xff";
    check_write_refused(e, 1, NULL, ASHLAR_EINVAL, "UTF-8");
    e[0] = (ashlar_safetensors_entry){"t", ASHLAR_F32, 9, {1}, narrow, 0};
    check_write_refused(e, 1, NULL, ASHLAR_EINVAL, "'t'");
    e[0] = (ashlar_safetensors_entry){"t", ASHLAR_DTYPE_COUNT, 1, {1}, narrow, 0};
    check_write_refused(e, 1, NULL, ASHLAR_EINVAL, "'t'");
    e[0] = (ashlar_safetensors_entry){"t", ASHLAR_F32, 2, {big, big}, narrow, 0};
    check_write_refused(e, 1, NULL, ASHLAR_EOVERFLOW, "'t'");
    e[0] = (ashlar_safetensors_entry){"t", ASHLAR_F32, 3, {big, big, 0}, NULL, 0};
    check_write_refused(e, 1, NULL, ASHLAR_EOVERFLOW, "'t'");
    e[0] = (ashlar_safetensors_entry){"t", ASHLAR_F32, 1, {1}, NULL, 0};
    check_write_refused(e, 1, NULL, ASHLAR_EINVAL, "no data");
    e[0] = (ashlar_safetensors_entry){"a", ASHLAR_F32, 1, {SIZE_MAX / 4}, narrow, 0};
    e[1] = (ashlar_safetensors_entry){"b", ASHLAR_F32, 1, {SIZE_MAX / 4}, narrow, 0};
    check_write_refused(e, 2, NULL, ASHLAR_EOVERFLOW, "'b'");
    check_write_refused(sample, 1, &(ashlar_safetensors_pair){"k", "\x80"}, ASHLAR_EINVAL, "'k'");
    check_write_refused(sample, 1, &(ashlar_safetensors_pair){"\x80", "v"}, ASHLAR_EINVAL, "UTF-8");
}

CASE(no_host_memory_at_any_call_leaks_nothing) {
    (void)unlink(path);
    FOR_HOST_FAILURES(n, status, write_sample()) {
        CHECK((status == ASHLAR_OK) == (access(path, F_OK) == 0));
        CHECK(names_in_folder() == (status == ASHLAR_OK));
    }
    ashlar_safetensors *file = NULL;
    FOR_HOST_FAILURES(opened, opened_status, ashlar__safetensors_open(path, &file)) {
        CHECK((opened_status == ASHLAR_OK) == (file != NULL));
    }
    CHECK(n > 4 && opened > 4);
    ashlar__safetensors_close(file);
}

RUN_CASES_IN_FOLDER()
