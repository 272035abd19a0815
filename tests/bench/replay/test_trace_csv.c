/*
 * test_trace_csv.c - that the lists of allocations say what the trace says, that ours is read back
 * by ashlar-replay's reader, and that half of a block is in neither.
 */
#include "allocator/trace/trace.h"

#include "tests/allocator/base/file_fixture.h"
#include "allocator/base/random.h"
#include "tests/bench/replay/rmm_fixture.h"
#include "tests/allocator/trace/trace_fixture.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static uint64_t left_out;

/* Two threads; one block of an address after another; a failure; memory; two live at the end. */
static const ashlar_trace_event sample[] = {
    TRACE_MAP(0x7f0000000000, 2 << 20),
    TRACE_ALLOC(0x7f0000000000, 1024, 1000, 0),
    {.time_ns = UINT64_C(3723000045999),
     .address = 0x7f0000000400,
     .bytes = 512,
     .requested = 7,
     .stream = 0x55aa00f0,
     .thread = 3,
     .action = ASHLAR_TRACE_ALLOC},
    TRACE_FREE(0x7f0000000000, 1024, 1000, 0x55aa00f0),
    TRACE_OOM(4096, 99999999999, 0x55aa00f0),
    TRACE_ALLOC(0x7f0000000000, 2048, 2048, 0),
    TRACE_UNMAP(0x7f0000200000, 2 << 20),
};

CASE(rmm_has_a_row_for_each_event_of_a_block) {
    REQUIRE(ashlar__trace_write_rmm(sample, COUNT(sample), path, &left_out) == ASHLAR_OK);
    CHECK_ZU(left_out, 0);
    CHECK(file_is(HEADER "0,00:00:00.000000,allocate,0x7f0000000000,1000,0x0\n"
                         "3,01:02:03.000045,allocate,0x7f0000000400,7,0x55aa00f0\n"
                         "0,00:00:00.000000,free,0x7f0000000000,1000,0x55aa00f0\n"
                         "0,00:00:00.000000,allocate failure,0x0,99999999999,0x55aa00f0\n"
                         "0,00:00:00.000000,allocate,0x7f0000000000,2048,0x0\n"));
}

/* As after an overflow, and with an event missing between two. */
CASE(half_a_block_is_left_out_and_counted) {
    const ashlar_trace_event events[] = {
        TRACE_FREE(0xa00, 512, 1, 0),  /* its ALLOC is older than the trace */
        TRACE_ALLOC(0xb00, 512, 2, 0), /* its FREE is missing */
        TRACE_ALLOC(0xa00, 512, 3, 0), TRACE_ALLOC(0xb00, 512, 4, 0),
        TRACE_FREE(0xb00, 512, 4, 0),  TRACE_FREE(0xb00, 512, 5, 0), /* its ALLOC is missing */
        TRACE_FREE(0xa00, 512, 3, 0),  TRACE_ALLOC(0xb00, 512, 6, 0),
    };
    REQUIRE(ashlar__trace_write_rmm(events, COUNT(events), path, &left_out) == ASHLAR_OK);
    CHECK_ZU(left_out, 3);
    CHECK(file_is(HEADER "0,00:00:00.000000,allocate,0xa00,3,0x0\n"
                         "0,00:00:00.000000,allocate,0xb00,4,0x0\n"
                         "0,00:00:00.000000,free,0xb00,4,0x0\n"
                         "0,00:00:00.000000,free,0xa00,3,0x0\n"
                         "0,00:00:00.000000,allocate,0xb00,6,0x0\n"));
}

/* Any window of a long run can be replayed, and what is left out is what began before it. */
CASE(every_window_of_a_long_run_is_read_back) {
    enum { ALL = 40000, ADDRESSES = 500, WINDOWS = 8, WINDOW = 5000 };
    static ashlar_trace_event all[ALL];
    static bool is_live[ADDRESSES];
    uint64_t random_state = 7;
    for (size_t i = 0; i < ALL; i++) {
        const size_t a = (size_t)ashlar__random_step_below(&random_state, ADDRESSES);
        all[i] =
            (ashlar_trace_event){.address = 0x7f0000000000 + 512 * a,
                                 .bytes = 512,
                                 .requested = 1 + a,
                                 .action = is_live[a] ? ASHLAR_TRACE_FREE : ASHLAR_TRACE_ALLOC};
        is_live[a] = !is_live[a];
    }
    for (size_t w = 0; w < WINDOWS; w++) {
        ashlar_rmm_log *log = NULL;
        const ashlar_trace_event *events = all + w * WINDOW;
        bool seen[ADDRESSES] = {false};
        size_t orphans = 0;
        for (size_t i = 0; i < WINDOW; i++) {
            const size_t a = events[i].requested - 1;
            orphans += !seen[a] && events[i].action == ASHLAR_TRACE_FREE;
            seen[a] = true;
        }
        REQUIRE(ashlar__trace_write_rmm(events, WINDOW, path, &left_out) == ASHLAR_OK);
        REQUIRE(ashlar__rmm_log_read(path, &log) == ASHLAR_OK);
        CHECK_ZU(left_out, orphans);
        CHECK((orphans == 0) == (w == 0));
        CHECK_ZU(log->event_count, WINDOW - orphans);
        ashlar__rmm_log_free(log);
    }
}

RUN_CASES_IN_FOLDER()
