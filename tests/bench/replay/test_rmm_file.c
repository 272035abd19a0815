/*
 * test_rmm_file.c - that a log is read from a file, packed or not, and never from half a file.
 */
#include "bench/replay/rmm_csv.h"

#include "tests/allocator/base/file_fixture.h"
#include "bench/replay/gzip.h"
#include "allocator/base/host.h"
#include "tests/bench/replay/rmm_fixture.h"

/* HEADER and one allocation; the free of it; 4000 pairs of both behind a header. */
static const unsigned char packed_head[] = {
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0xff, 0x0b, 0xc9, 0x28, 0x4a, 0x4d, 0x4c,
    0xd1, 0x09, 0xc9, 0xcc, 0x4d, 0xd5, 0x71, 0x4c, 0x2e, 0xc9, 0xcc, 0xcf, 0xd3, 0x09, 0xc8, 0xcf,
    0xcc, 0x2b, 0x49, 0x2d, 0xd2, 0x09, 0xce, 0xac, 0x4a, 0xd5, 0x09, 0x2e, 0x01, 0xca, 0xe7, 0x72,
    0x99, 0xeb, 0x18, 0xe8, 0x24, 0xe6, 0xe4, 0xe4, 0x27, 0x27, 0x96, 0xa4, 0xea, 0x18, 0x54, 0x18,
    0x1a, 0xe8, 0x98, 0x1a, 0x1a, 0xe9, 0x18, 0x70, 0x01, 0x00, 0xfe, 0xfa, 0x37, 0xe3, 0x3f, 0x00,
    0x00, 0x00,
};

static const unsigned char packed_tail[] = {
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0xff, 0x33, 0xd7, 0x31, 0xd0, 0x49, 0x2b,
    0x4a, 0x4d, 0xd5, 0x31, 0xa8, 0x30, 0x34, 0xd0, 0x31, 0x35, 0x34, 0xd2, 0x31, 0xe0, 0x02, 0x00,
    0xf1, 0x82, 0x55, 0x3d, 0x14, 0x00, 0x00, 0x00,
};

static const unsigned char packed_large_begin[] = {
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0xff, 0xed, 0xca, 0x31, 0x0a, 0xc2, 0x30,
    0x18, 0x80, 0xd1, 0xdd, 0xb3, 0xfc, 0x43, 0x2a, 0x88, 0xb3, 0x37, 0x10, 0xda, 0x0b, 0x84, 0x1a,
    0x31, 0xd0, 0x36, 0x50, 0x32, 0x88, 0xa7, 0x57, 0x5c, 0x3d, 0x82, 0x6f, 0xfd, 0xbe, 0x37, 0x3d,
    0xf6, 0x92, 0x6f, 0x31, 0xd5, 0xb5, 0xc4, 0x65, 0xee, 0xb5, 0x6d, 0x71, 0x6d, 0x75, 0xeb, 0x65,
    0x8f, 0xb1, 0xbe, 0x4a, 0x8c, 0xfd, 0xf3, 0xd7, 0xc3, 0x39, 0x52, 0xe4, 0x65, 0x69, 0x73, 0xee,
    0x25, 0xd2, 0x73, 0x48, 0x71, 0x1a, 0x8e, 0x91, 0xbe, 0xfd, 0xbe, 0x97, 0x9f, 0xc6,
};
static const unsigned char packed_large_end[] = {
    0xfe, 0xb7, 0x7d, 0x03, 0xde, 0xc7, 0x3d, 0xaf, 0xa7, 0xaf, 0x02, 0x00,
};

enum { LARGE_REPEATS = 170, LARGE_BYTES = 616 };

/* Between its begin and its end the same three bytes come over and over. */
static void write_packed_large(void) {
    unsigned char bytes[LARGE_BYTES], *at = bytes + sizeof packed_large_begin;
    memcpy(bytes, packed_large_begin, sizeof packed_large_begin);
    for (int i = 0; i < LARGE_REPEATS; i++, at += 3) {
        memcpy(at, "\xb2\x2c\xcb", 3);
    }
    memcpy(at, packed_large_end, sizeof packed_large_end);
    write_bytes(bytes, sizeof bytes);
}

static ashlar_status read_log(void) {
    drop_log();
    (void)check_at_end(drop_log);
    return ashlar__rmm_log_read(path, &log_of);
}

CASE(a_plain_file_is_read) {
    write_bytes(HEADER "1,0,allocate,0x10,5,0\n", sizeof HEADER - 1 + 22);
    REQUIRE(read_log() == ASHLAR_OK);
    CHECK(strcmp(log_of->name, path) == 0);
    CHECK(event_is(0, ASHLAR_RMM_ALLOCATE, 2, 0, 5));
}

CASE(a_long_file_is_read_to_its_end) {
    enum { PAIRS = 10000 };
    static const char row[] = "1,0,allocate,0x10,5,0\n1,0,free,0x10,5,0\n";
    FILE *file = fopen(path, "wb");
    REQUIRE(file != NULL && fputs(HEADER, file) >= 0);
    for (int i = 0; i < PAIRS; i++) {
        CHECK(fputs(row, file) >= 0);
    }
    CHECK(fclose(file) == 0);
    const int before = dup(STDOUT_FILENO);
    REQUIRE(close(before) == 0 && read_log() == ASHLAR_OK);
    const int after = dup(STDOUT_FILENO);
    CHECK(close(after) == 0 && after == before); /* the file is closed */
    CHECK_ZU(log_of->event_count, 2 * PAIRS);
    CHECK(event_is(2 * PAIRS - 1, ASHLAR_RMM_FREE, 2 * PAIRS + 1, PAIRS - 1, 0));
}

CASE(a_file_that_cannot_be_read_is_named) {
    CHECK_FAILS(ashlar__rmm_log_read("/nowhere/at/all", &log_of), ASHLAR_EIO, "/nowhere/at/all");
    CHECK_FAILS(ashlar__rmm_log_read(folder, &log_of), ASHLAR_EIO, folder);
    write_bytes("", 0);
    CHECK_FAILS(read_log(), ASHLAR_EFORMAT, path);
}

CASE(without_zlib_gzip_is_refused) {
    SKIP_IF(ashlar__gzip_is_supported(), "this build has zlib");
    write_bytes(packed_head, sizeof packed_head);
    CHECK_FAILS(read_log(), ASHLAR_ENOTSUP, path);
    CHECK_HAS(ashlar_error_detail(), "zlib");
}

CASE(a_gzip_file_is_told_by_its_content) {
    SKIP_IF(!ashlar__gzip_is_supported(), "this build has no zlib");
    write_bytes(packed_head, sizeof packed_head);
    REQUIRE(read_log() == ASHLAR_OK);
    CHECK_ZU(log_of->event_count, 1);
    CHECK(event_is(0, ASHLAR_RMM_ALLOCATE, 2, 0, 512));
    write_packed_large();
    REQUIRE(read_log() == ASHLAR_OK);
    CHECK_ZU(log_of->event_count, 8000);
    CHECK(event_is(7999, ASHLAR_RMM_FREE, 8001, 3999, 0));
}

/* Two gzip files in a row are one, as gunzip has it; `extra` bytes of `filler` behind them. */
static size_t join_packed(unsigned char *to, size_t extra, int filler) {
    memcpy(to, packed_head, sizeof packed_head);
    memcpy(to + sizeof packed_head, packed_tail, sizeof packed_tail);
    memset(to + sizeof packed_head + sizeof packed_tail, filler, extra);
    return sizeof packed_head + sizeof packed_tail + extra;
}

CASE(gzip_files_may_follow_each_other) {
    unsigned char bytes[FILE_MAX_BYTES];
    SKIP_IF(!ashlar__gzip_is_supported(), "this build has no zlib");
    write_bytes(bytes, join_packed(bytes, 0, 0));
    REQUIRE(read_log() == ASHLAR_OK);
    CHECK_ZU(log_of->event_count, 2);
    CHECK(event_is(1, ASHLAR_RMM_FREE, 3, 0, 0));
    write_bytes(bytes, join_packed(bytes, 3, 'x'));
    CHECK_FAILS(read_log(), ASHLAR_EFORMAT, "3 bytes that are no gzip data");
}

CASE(a_damaged_gzip_file_is_refused) {
    unsigned char bytes[FILE_MAX_BYTES];
    SKIP_IF(!ashlar__gzip_is_supported(), "this build has no zlib");
    for (size_t left = 2; left < sizeof packed_head; left++) { /* cut off anywhere */
        write_bytes(packed_head, left);
        CHECK_FAILS(read_log(), ASHLAR_EFORMAT, "cut off");
    }
    memcpy(bytes, packed_head, sizeof packed_head);
    bytes[sizeof packed_head - 8] ^= 1; /* of the checksum */
    write_bytes(bytes, sizeof packed_head);
    CHECK_FAILS(read_log(), ASHLAR_EFORMAT, "damaged: incorrect data check");
    CHECK_HAS(ashlar_error_detail(), path);
}

/* The n-th piece of host memory fails, for all n. */
CASE(running_out_of_host_memory_is_survived) {
    if (ashlar__gzip_is_supported()) {
        write_packed_large();
    } else {
        write_bytes(HEADER "1,0,allocate,0x10,5,0\n", sizeof HEADER - 1 + 22);
    }
    FOR_HOST_FAILURES(n, status, read_log()) {
        CHECK(status == ASHLAR_OK || log_of == NULL);
    }
    CHECK(n > 6);
}

RUN_CASES_IN_FOLDER()
