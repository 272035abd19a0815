/*
 * test_replay_picture.c - that a replay says where each block was, and that its picture shows that.
 */
#include "bench/replay/replay.h"

#include "allocator/base/host.h"
#include "tests/allocator/trace/picture_fixture.h"
#include "tests/bench/replay/rmm_fixture.h"

#define MIB ((size_t)1 << 20)
#define BASE ((uintptr_t)0x7f0000000000)

enum { BLOCKS = 3 };

static const char sample[] = HEADER "1,0,allocate,0x10,1048576,0\n1,0,allocate failure,,5,0\n"
                                    "1,0,allocate,0x20,2097152,0\n1,0,free,0x10,0,0\n"
                                    "1,0,allocate,0x10,1048576,0\n1,0,free,0x20,0,0\n";

static const ashlar_replay_result result = {.peak_reserved = 4 * MIB};

CASE(each_block_is_drawn_where_the_replay_put_it) {
    const uintptr_t addresses[BLOCKS] = {BASE + 2 * MIB, BASE, BASE + 3 * MIB};
    REQUIRE(parse(sample) == ASHLAR_OK);
    CHECK(ashlar__replay_draw(log_of, addresses, &result, path) == ASHLAR_OK);
    CHECK(read_picture());
    CHECK_ZU(box_count, 3);
    CHECK(strcmp(box_of("#0:").title, "#0: 1048576 B at 2097152, 0 to 3") == 0);
    CHECK(strcmp(box_of("#1:").title, "#1: 2097152 B at 0, 2 to 5") == 0);
    CHECK(strcmp(box_of("#2:").title, "#2: 1048576 B at 3145728, 4 to 6") == 0);
    CHECK_HAS(svg, ">stone.csv<");
    CHECK_HAS(svg, "; reserved 4.00 MiB<");
    CHECK_HAS(svg, ">events<");
}

CASE(a_block_that_was_never_there_is_not_drawn) {
    const uintptr_t addresses[BLOCKS] = {0, BASE + MIB, BASE};
    REQUIRE(parse(sample) == ASHLAR_OK);
    CHECK(ashlar__replay_draw(log_of, addresses, &result, path) == ASHLAR_OK);
    CHECK(read_picture());
    CHECK_ZU(box_count, 2);
    CHECK(strcmp(box_of("#0:").title, "#0: 2097152 B at 1048576, 2 to 5") == 0);
    CHECK(strcmp(box_of("#1:").title, "#1: 1048576 B at 0, 4 to 6") == 0);
}

CASE(a_log_without_blocks_is_an_empty_picture) {
    const uintptr_t none = 0;
    REQUIRE(parse(HEADER "1,0,allocate failure,,5,0\n") == ASHLAR_OK);
    CHECK(ashlar__replay_draw(log_of, &none, &result, path) == ASHLAR_OK);
    CHECK(read_picture() && box_count == 0);
}

/* The second block does not fit; the search for a capacity, of other replays, changes nothing. */
CASE(a_replay_says_where_each_block_was) {
    uintptr_t addresses[BLOCKS] = {1, 1, 1};
    ashlar_replay_config config = {.calls = &ashlar__replay_calls_of_ashlar,
                                   .passes = 1,
                                   .memory_bytes = 2 * MIB,
                                   .addresses = addresses};
    ashlar_replay_result got;
    size_t capacity;
    REQUIRE(parse(sample) == ASHLAR_OK);
    CHECK(ashlar__replay_run(log_of, &config, &got) == ASHLAR_OK && got.failures == 1);
    CHECK(addresses[0] > 1 && addresses[1] == 1 && addresses[2] == addresses[0]);
    config.memory_bytes = 64 * MIB;
    CHECK(ashlar__replay_run(log_of, &config, &got) == ASHLAR_OK && got.failures == 0);
    CHECK(addresses[0] > 1 && addresses[1] > 1 && addresses[1] != addresses[0]);
    memset(addresses, 0, sizeof addresses);
    CHECK(ashlar__replay_find_capacity(log_of, &config, &got, &capacity) == ASHLAR_OK);
    CHECK(addresses[0] == 0 && addresses[1] == 0 && addresses[2] == 0);
}

CASE(no_host_memory_at_any_call_leaves_the_old_file) {
    const uintptr_t addresses[BLOCKS] = {BASE, BASE + MIB, BASE + 3 * MIB};
    REQUIRE(parse(sample) == ASHLAR_OK);
    write_bytes("old", 3);
    FOR_HOST_FAILURES(n, status, ashlar__replay_draw(log_of, addresses, &result, path)) {
        CHECK(status == ASHLAR_OK || is_alone_with("old"));
        CHECK(status == ASHLAR_OK || ashlar_error_detail()[0] != '\0');
    }
    CHECK(n > 3);
}

RUN_CASES_IN_FOLDER()
