/*
 * test_rmm_file.c - that a log is read from a file, and never from half a file.
 */
#include "bench/replay/rmm_csv.h"

#include "tests/allocator/base/file_fixture.h"
#include "allocator/base/host.h"
#include "tests/bench/replay/rmm_fixture.h"

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

CASE(a_gzip_file_is_refused_with_the_way_to_read_it) {
    write_bytes("\x1f\x8b\x08", 3);
    CHECK_FAILS(read_log(), ASHLAR_EFORMAT, path);
    CHECK_HAS(ashlar_error_detail(), "zcat FILE | ashlar-replay /dev/stdin");
}

/* The n-th piece of host memory fails, for all n. */
CASE(running_out_of_host_memory_is_survived) {
    write_bytes(HEADER "1,0,allocate,0x10,5,0\n", sizeof HEADER - 1 + 22);
    FOR_HOST_FAILURES(n, status, read_log()) {
        CHECK(status == ASHLAR_OK || log_of == NULL);
    }
    CHECK(n > 6);
}

RUN_CASES_IN_FOLDER()
