/*
 * test_rmm_csv.c - that a log is read as RMM meant it, and that a bad one is refused by its line.
 */
#include "bench/replay/replay.h"

#include <stdint.h>

#include "tests/allocator/base/file_fixture.h"
#include "tests/bench/replay/rmm_fixture.h"

CASE(rows_become_events) {
    REQUIRE(parse(HEADER "2342727,15:47:02.841961,allocate,0x10012400000,1048576,0\n"
                         "2342727,15:47:02.841970,allocate,0x10012600000,512,0x0\n"
                         "2342727,15:47:02.841977,free,0x10012400000,1048576,0\n") == ASHLAR_OK);
    CHECK(strcmp(log_of->name, "stone.csv") == 0);
    CHECK_ZU(log_of->event_count, 3);
    CHECK_ZU(log_of->block_count, 2);
    CHECK_ZU(log_of->thread_count, 1);
    CHECK_ZU(log_of->stream_count, 1);
    CHECK_ZU(log_of->recorded_failures, 0);
    CHECK(event_is(0, ASHLAR_RMM_ALLOCATE, 2, 0, 1048576));
    CHECK(event_is(1, ASHLAR_RMM_ALLOCATE, 3, 1, 512));
    CHECK(event_is(2, ASHLAR_RMM_FREE, 4, 0, 0));
    ashlar__rmm_log_free(NULL);
}

CASE(behind_the_events_what_they_leave_live_is_freed) {
    REQUIRE(parse(HEADER
                  "1,0,allocate,0x10,100,0\n2,0,allocate,0x20,200,7\n"
                  "3,0,free,0x10,100,0\n1,0,allocate,0x10,300,8\n1,0,step,,0,0\n") == ASHLAR_OK);
    CHECK_ZU(log_of->event_count, 5);
    CHECK_ZU(log_of->closed_count, 7);
    CHECK(event_is(5, ASHLAR_RMM_FREE, 6, 1, 0) && event_is(6, ASHLAR_RMM_FREE, 6, 2, 0));
    CHECK(log_of->events[5].thread == 1 && log_of->events[5].stream == 1);
    CHECK(log_of->events[6].thread == 0 && log_of->events[6].stream == 2);
}

CASE(a_row_that_the_end_cuts_off_is_left_out) {
    REQUIRE(parse(HEADER "1,0,allocate,0x10,100,0\n1,0,allocate,0x20,1") == ASHLAR_OK);
    CHECK_ZU(log_of->event_count, 1);
    REQUIRE(parse(HEADER "1,0,allocate,0x10,100,0") == ASHLAR_OK);
    CHECK_ZU(log_of->event_count, 1);
    CHECK(parse(HEADER "1,0,allocate,0x10,100,0\n1,0,free\n") == ASHLAR_EFORMAT);
}

CASE(columns_are_found_by_name) {
    REQUIRE(parse("Stream,Device,Size,Pointer,Action,Thread\n"
                  "7,9,512,0x10,allocate,3\n"
                  "0,9,512,0x10,free,4\n") == ASHLAR_OK);
    CHECK(event_is(0, ASHLAR_RMM_ALLOCATE, 2, 0, 512));
    CHECK(event_is(1, ASHLAR_RMM_FREE, 3, 0, 0));
    CHECK(log_of->events[0].stream == 1 && log_of->events[1].stream == 0);
    CHECK(log_of->events[0].thread == 0 && log_of->events[1].thread == 1);
    CHECK_ZU(log_of->thread_count, 2);
    CHECK_ZU(log_of->stream_count, 2);
}

/* ---- numbers ---- */

CASE(numbers_without_0x_are_hexadecimal) {
    /* 3f8 is 1016 in decimal: told apart only if 1016 is read as hexadecimal too. */
    REQUIRE(parse(HEADER "12,0,allocate,1016,1,20\n12,0,allocate,3f8,1,5587C0\n"
                         "12,0,free,0x1016,1,0x20\n12,0,free,0X3F8,1,5587c0\n") == ASHLAR_OK);
    CHECK(event_is(2, ASHLAR_RMM_FREE, 4, 0, 0) && event_is(3, ASHLAR_RMM_FREE, 5, 1, 0));
    CHECK(log_of->events[0].stream == 1 && log_of->events[2].stream == 1);
    CHECK(log_of->events[1].stream == 2 && log_of->events[3].stream == 2);
    CHECK_ZU(log_of->stream_count, 3);
}

/* ---- threads and streams ---- */

CASE(streams_are_cudas_handles) {
    REQUIRE(parse(HEADER "5,0,allocate,0x1,1,0x1\n5,0,allocate,0x2,1,0\n5,0,allocate,0x3,1,(nil)\n"
                         "5,0,allocate,0x4,1,2\n6,0,allocate,0x5,1,0x2\n5,0,allocate,0x6,1,2\n"
                         "6,0,allocate,0x7,1,3\n5,0,allocate,0x8,1,3\n") == ASHLAR_OK);
    static const size_t streams[] = {0, 0, 0, 1, 2, 1, 3, 3}, threads[] = {0, 0, 0, 0, 1, 0, 1, 0};
    for (size_t i = 0; i < 8; i++) {
        CHECK_ZU(log_of->events[i].stream, streams[i]);
        CHECK_ZU(log_of->events[i].thread, threads[i]);
    }
    CHECK_ZU(log_of->stream_count, 4);
    CHECK_ZU(log_of->thread_count, 2);
}

CASE(a_recorded_failure_is_nothing_to_replay) {
    REQUIRE(parse(HEADER "1,0,allocate failure,(nil),99,0\n1,0,allocate failure,,98,0\n"
                         "1,0,allocate failure,0,97,0x7\n1,0,allocate,0x10,1,0\n") == ASHLAR_OK);
    CHECK_ZU(log_of->recorded_failures, 3);
    CHECK_ZU(log_of->block_count, 1);
    CHECK_ZU(log_of->needed_bytes, 99);
    CHECK(event_is(0, ASHLAR_RMM_NOTHING, 2, 0, 99) && event_is(1, ASHLAR_RMM_NOTHING, 3, 0, 98));
    CHECK(event_is(2, ASHLAR_RMM_NOTHING, 4, 0, 97) && event_is(3, ASHLAR_RMM_ALLOCATE, 5, 0, 1));
}

CASE(a_row_of_ours_says_that_a_step_begins) {
    REQUIRE(parse(HEADER "1,0,step,,0,0\n1,0,allocate,0x10,1,0\n1,0,step,0x10,0,7\n"
                         "1,0,free,0x10,1,0\n") == ASHLAR_OK);
    CHECK(event_is(1, ASHLAR_RMM_ALLOCATE, 3, 0, 1) && event_is(3, ASHLAR_RMM_FREE, 5, 0, 0));
    CHECK(log_of->events[0].action == ASHLAR_RMM_STEP && log_of->events[0].line == 2);
    CHECK(log_of->events[2].action == ASHLAR_RMM_STEP && log_of->events[2].stream == 1);
    CHECK(log_of->block_count == 1 && log_of->recorded_failures == 0);
    CHECK(parse(HEADER "1,0,step,,,0\n") == ASHLAR_EFORMAT);
}

CASE(a_block_of_0_bytes_is_nothing_to_replay) {
    REQUIRE(parse(HEADER "1,0,allocate,(nil),0,0\n1,0,free,(nil),0,0\n1,0,allocate,0x10,0,0\n"
                         "1,0,free,0x10,0,0\n1,0,free,0x0,5,0\n") == ASHLAR_OK);
    CHECK_ZU(log_of->block_count, 0);
    for (size_t i = 0; i < 5; i++) {
        CHECK(log_of->events[i].action == ASHLAR_RMM_NOTHING);
    }
    /* A free that does not know its size still frees what is there. */
    REQUIRE(parse(HEADER "1,0,allocate,0x10,7,0\n1,0,free,0x10,0,0\n") == ASHLAR_OK);
    CHECK(event_is(1, ASHLAR_RMM_FREE, 3, 0, 0));
}

/* ---- lines ---- */

CASE(a_bad_log_is_refused_by_its_line) {
    static const struct {
        const char *text, *want;
    } bad[] = {
        {"", "stone.csv: empty"},
        {HEADER, "stone.csv:1: no event"},
        {"1,0,allocate,0x10,5,0\n", "stone.csv:1: no column Thread"},
        {"Thread,Size,Action,Pointer,Size,Stream\n", "stone.csv:1: each column"},
        {HEADER "\n1,0,allocate,0x10,5\n", "stone.csv:3: 5 fields where the header has 6"},
        {HEADER "1,0,deallocate,0x10,5,0\n", "stone.csv:2: Action has to be"},
        {HEADER "x,0,allocate,0x10,5,0\n", "stone.csv:2: Thread has to be a number"},
        {HEADER "1,0,allocate,0x1g,5,0\n",
         "stone.csv:2: Pointer has to be a number of 64 bits, not \"0x1g\""},
        {HEADER "1,0,allocate,0x10,0x5,0\n", "stone.csv:2: Size"},
        {HEADER "1,0,allocate,0x10,5,stream\n", "stone.csv:2: Stream"},
        {HEADER "1,0,allocate,0x0,5,0\n", "stone.csv:2: Pointer of an allocation"},
        {HEADER "1,0,free,0x10,5,0\n", "stone.csv:2: frees 0x10, where no block is live"},
        {HEADER "\n1,0,allocate,0x10,5,0\n1,0,allocate,0x10,5,0\n",
         "stone.csv:4: allocates at 0x10, where the block of line 3 is live"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_FAILS(parse(bad[i].text), ASHLAR_EFORMAT, bad[i].want);
    }
}

/* ---- files ---- */

static ashlar_status read_log(void) {
    drop_log();
    (void)check_at_end(drop_log);
    return ashlar__rmm_log_read(path, &log_of);
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

RUN_CASES_IN_FOLDER()
