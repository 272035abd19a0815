/*
 * test_trace_picture.c - that the picture of a trace shows its blocks where and when they were, and
 * nothing that the trace does not know.
 */
#include "allocator/trace/trace_files.h"

#include <ashlar/allocator.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "tests/allocator/trace/picture_fixture.h"
#include "tests/allocator/trace/trace_fixture.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define BASE UINT64_C(0x7f0000000000)
#define GIB (UINT64_C(1) << 30)

static uint64_t left_out;

static bool draw(const ashlar_trace_event *events, size_t count) {
    left_out = 77;
    return ashlar__trace_write_svg(events, count, path, &left_out) == ASHLAR_OK && read_picture();
}

/* The second block lies below the first one; an address comes twice; two are live at the end. */
static const ashlar_trace_event sample[] = {
    TRACE_MAP(BASE, 2 << 20),
    TRACE_ALLOC(BASE + 1024, 1024, 1000, 0),
    {.address = BASE, .bytes = 512, .requested = 7, .tag = ASHLAR_TAG_BATCH},
    TRACE_FREE(BASE + 1024, 1024, 1000, 0),
    TRACE_OOM(4096, 99999999999, 0),
    TRACE_ALLOC(BASE + 1024, 2048, 2048, 0),
};

CASE(each_block_of_the_trace_is_drawn) {
    REQUIRE(draw(sample, COUNT(sample)));
    CHECK_ZU(left_out, 0);
    CHECK_ZU(box_count, 3);
    CHECK(strcmp(box_of("#0,").title, "#0, user: 1024 B at 1024, 1 to 3") == 0);
    CHECK(strcmp(box_of("#1,").title, "#1, batch: 512 B at 0, 2 to 6") == 0);
    CHECK(strcmp(box_of("#2,").title, "#2, user: 2048 B at 1024, 5 to 6") == 0);
    CHECK_HAS(svg, ">events<");
}

CASE(half_a_block_is_left_out_and_counted) {
    const ashlar_trace_event events[] = {
        TRACE_FREE(0xa00, 512, 1, 0),
        TRACE_ALLOC(0xb00, 512, 2, 0),
        TRACE_ALLOC(0xb00, 1024, 4, 0),
    };
    REQUIRE(draw(events, COUNT(events)));
    CHECK_ZU(left_out, 2);
    CHECK_ZU(box_count, 1);
    CHECK(strcmp(boxes[0].title, "#0, user: 1024 B at 0, 2 to 3") == 0);
}

/* A block that ends far up, begun before the next one, is what the gap counts from. */
CASE(wide_gaps_between_addresses_are_left_out) {
    const ashlar_trace_event events[] = {
        TRACE_ALLOC(BASE + 5 * GIB, 512, 1, 0),
        TRACE_ALLOC(BASE, 3 * GIB, 1, 0),
        TRACE_ALLOC(BASE + GIB, 512, 1, 0),
        TRACE_ALLOC(BASE + 4 * GIB - 1, 512, 1, 0), /* a byte less than too wide */
        TRACE_ALLOC(BASE + 90 * GIB, 512, 1, 0),
        TRACE_ALLOC(BASE + 90 * GIB + 512, 512, 1, 0),
    };
    REQUIRE(draw(events, COUNT(events)));
    CHECK_ZU(box_count, 6);
    CHECK_HAS(box_of("#1,").title, ": 3221225472 B at 0,");
    CHECK_HAS(box_of("#2,").title, ": 512 B at 1073741824,");
    CHECK_HAS(box_of("#3,").title, ": 512 B at 4294967295,");
    CHECK_HAS(box_of("#0,").title, ": 512 B at 5368709120,"); /* 1 GiB - 511 above that */
    CHECK_HAS(box_of("#4,").title, ": 512 B at 5368709632,");
    CHECK_HAS(box_of("#5,").title, ": 512 B at 5368710144,");
}

CASE(a_gap_of_a_gibibyte_is_too_wide) {
    const ashlar_trace_event events[] = {TRACE_ALLOC(BASE, 512, 1, 0),
                                         TRACE_ALLOC(BASE + 512 + GIB, 512, 1, 0)};
    REQUIRE(draw(events, COUNT(events)));
    CHECK_HAS(box_of("#1,").title, ": 512 B at 512,");
}

CASE(a_trace_of_nothing_is_an_empty_picture) {
    REQUIRE(draw(NULL, 0));
    CHECK(left_out == 0 && box_count == 0);
}

CASE(no_host_memory_at_any_call_leaves_the_old_file) {
    write_bytes("old", 3);
    left_out = 77;
    FOR_HOST_FAILURES(n, status, ashlar__trace_write_svg(sample, COUNT(sample), path, &left_out)) {
        CHECK(status == ASHLAR_OK || (left_out == 77 && is_alone_with("old")));
        CHECK(status == ASHLAR_OK || ashlar_error_detail()[0] != '\0');
    }
    CHECK(left_out == 0 && n > 4);
}

CASE(a_path_that_cannot_be_written_is_named) {
    left_out = 77;
    CHECK_FAILS(ashlar__trace_write_svg(sample, 2, "/nowhere/trace.svg", &left_out), ASHLAR_EIO,
                "/nowhere/trace.svg");
    CHECK_ZU(left_out, 77);
}

RUN_CASES_IN_FOLDER()
