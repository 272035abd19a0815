/* test_events.c - that an event file is read whole, and that a bad one is refused by its line. */
#include "bench/replay/events.h"

#include <stdint.h>

#include "allocator/base/host.h"
#include "tests/bench/replay/events_fixture.h"

CASE(all_records_are_read) {
    REQUIRE(parse_events(SMALL_HISTORY) == ASHLAR_OK);
    const ashlar_events *e = events_of;
    CHECK(strcmp(e->name, "stone.events") == 0);
    CHECK(strcmp(ashlar__events_setting(e, "expandable_segments"), "0") == 0);
    CHECK(strcmp(ashlar__events_setting(e, "PYTORCH_CUDA_ALLOC_CONF"), "") == 0);
    CHECK(ashlar__events_setting(e, "max_split_size") == NULL);
    CHECK(e->line_count == 2 && strcmp(e->lines[0].text, "epoch\t1\n") == 0);
    CHECK(!e->lines[0].is_failure && e->lines[1].is_failure && strcmp(e->answers, "[]") == 0);
    CHECK(e->first.segment_count == 1 && e->first.block_count == 2);
    CHECK(e->first.segments[0].is_small && e->first.segments[0].block_count == 2);
    CHECK_ZU(e->event_count, 6);
    CHECK(e->events[5].action == ASHLAR_EVENT_OOM && e->events[5].address == 0x100000);
    CHECK(e->events[5].allocation == ASHLAR_EVENTS_NONE && e->events[5].line == 12);
    ashlar__events_free(NULL);
}

CASE(allocations_are_numbered_from_those_at_the_beginning) {
    REQUIRE(parse_events(SMALL_HISTORY) == ASHLAR_OK);
    const ashlar_allocation *a = events_of->allocations;
    CHECK_ZU(events_of->allocation_count, 3);
    CHECK(a[0].freed == 3 && a[1].freed == 6);
    CHECK(a[0].bytes == 1000 && events_of->first.blocks[0].allocation == 0);
    CHECK(a[2].bytes == 3000000 && events_of->events[2].allocation == 2);
    CHECK(events_of->events[4].allocation == 0);
}

CASE(streams_and_pools_are_numbered_by_appearance) {
    REQUIRE(parse_events(HEAD "event\t1\tsegment_alloc\t0x10\t512\t140000000\t0\t0:3\n"
                              "event\t0\tsegment_alloc\t0x10\t512\t0\t0\t0:0\n") == ASHLAR_OK);
    CHECK(events_of->device_count == 2 && events_of->stream_count == 2);
    CHECK(events_of->events[0].stream == 1 && events_of->streams[1] == 140000000);
    CHECK(events_of->events[0].pool == 1 && events_of->pool_count == 2);
    CHECK(events_of->events[1].stream == 0 && events_of->events[1].pool == 0);
}

CASE(a_bad_line_is_named) {
    static const struct bad {
        const char *text, *detail;
    } bad[] = {
        {"", "stone.events:1: an event file begins with ashlar-events/1"},
        {HEAD "eventt\t0\n", "stone.events:2: no record of events: \"eventt\""},
        {HEAD "\nsetting\ta\n", "stone.events:3: \"setting\" has to have 2 fields"},
        {HEAD "setting\ta\tb\tc\n", "stone.events:2: \"setting\" has to have 2 fields"},
        {HEAD "event\t0\tmalloc\t0x1\t1\t0\t0\t0:0\n",
         "stone.events:2: field 2 of \"event\" has to be an action of PyTorch, not \"malloc\""},
        {HEAD "event\t0\talloc\t0x1\t9223372036854775808\t0\t0\t0:0\n",
         "stone.events:2: field 4 of \"event\" has to be bytes below 2^60, not "
         "\"9223372036854775808\""},
        {HEAD "event\t0\talloc\t0x10000000000000000\t1\t0\t0\t0:0\n",
         "stone.events:2: field 3 of \"event\" has to be hexadecimal, of 64 bits, not "
         "\"0x10000000000000000\""},
        {HEAD "event\t0\tfree_requested\t0x1\t1\t0\t0\t0:0\n",
         "stone.events:2: frees 0x1, where no block is live"},
        {HEAD "event\t0\talloc\t0x1\t1\t0\t0\t0:0\nevent\t0\talloc\t0x1\t1\t0\t0\t0:0",
         "stone.events:3: allocates at 0x1, where a block is live"},
        {HEAD "segment\t0\t0x0\t1024\t0\tsmall\t0:0\t0\nblock\t0\t0x0\t512\t0\tinactive\n",
         "stone.events:2: the segment's blocks do not cover it"},
        {HEAD "segment\t0\t0x400\t512\t0\tsmall\t0:0\t0\nblock\t0\t0x400\t512\t0\tinactive\n"
              "segment\t0\t0x500\t512\t0\tsmall\t0:0\t0\nblock\t0\t0x500\t512\t0\tinactive\n",
         "stone.events:4: the segment has to be behind that of line 2"},
        {HEAD "block\t0\t0x0\t512\t0\tinactive\n",
         "stone.events:2: a block outside of all segments"},
        {HEAD "segment\t0\t0xffffffffffffffff\t1024\t0\tsmall\t0:0\t0\n",
         "stone.events:2: a segment of 1024 bytes at 0xffffffffffffffff"},
        {HEAD "event\t0\toom\t0x0\t0\t0\t0\t0:0\nsegment\t0\t0x0\t512\t0\tsmall\t0:0\t0\n",
         "stone.events:3: a segment behind the first event"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_FAILS(parse_events(bad[i].text), ASHLAR_EFORMAT, bad[i].detail);
    }
}

CASE(a_truncated_file_is_read_or_refused) {
    const char whole[] = SMALL_HISTORY;
    size_t read = 0;
    for (size_t bytes = 0; bytes < sizeof whole; bytes++) {
        ashlar_events *cut = NULL;
        char *copy = ashlar__host_calloc(bytes + 1, 1); /* its end is guarded by sanitizers */
        memcpy(copy, whole, bytes);
        read += ashlar__events_parse("cut", copy, bytes, &cut) == ASHLAR_OK;
        ashlar__events_free(cut);
        ashlar__host_free(copy);
    }
    CHECK(read > 10 && read < 100);
}

CASE(without_host_memory_nothing_is_left_behind) {
    FOR_HOST_FAILURES(n, status, parse_events(SMALL_HISTORY)) {
        CHECK((events_of != NULL) == (status == ASHLAR_OK));
    }
    CHECK(n > 10);
}

RUN_CASES()
