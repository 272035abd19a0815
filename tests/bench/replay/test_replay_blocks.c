/*
 * test_replay_blocks.c - that a replay says where each block was, in JSON, too.
 */
#include "bench/replay/replay.h"

#include "allocator/base/host.h"
#include "tests/bench/replay/rmm_fixture.h"

#define MIB ((size_t)1 << 20)

enum { BLOCKS = 3 };

static const char sample[] = HEADER "1,0,allocate,0x10,1048576,0\n1,0,allocate failure,,5,0\n"
                                    "1,0,allocate,0x20,2097152,0\n1,0,free,0x10,0,0\n"
                                    "1,0,allocate,0x10,1048576,0\n1,0,free,0x20,0,0\n";

/* These are the rows of the log's blocks. */
static void check_blocks(const uintptr_t *addresses, const char *rows) {
    ashlar_json_writer w;
    const char *text = "";
    size_t bytes;
    char want[256];
    ashlar__json_writer_init(&w, 0);
    ashlar__json_open_object(&w);
    CHECK(ashlar__replay_put_blocks(&w, log_of, addresses) == ASHLAR_OK);
    ashlar__json_close_object(&w);
    (void)snprintf(want, sizeof want,
                   "{\"time\":\"event\",\"blocks\":{\"columns\":[\"address\",\"bytes\",\"begin\","
                   "\"end\"],\"rows\":[%s]}}",
                   rows);
    CHECK(ashlar__json_writer_text(&w, &text, &bytes) == ASHLAR_OK && strcmp(text, want) == 0);
    ashlar__json_writer_finish(&w);
}

CASE(each_block_lies_where_the_replay_put_it) {
    const uintptr_t addresses[BLOCKS] = {5000, 3000, 6000};
    REQUIRE(parse(sample) == ASHLAR_OK);
    check_blocks(addresses, "[5000,1048576,0,3],[3000,2097152,2,5],[6000,1048576,4,6]");
}

CASE(a_block_that_was_never_there_is_left_out) {
    const uintptr_t addresses[BLOCKS] = {0, 7000, 3000};
    REQUIRE(parse(sample) == ASHLAR_OK);
    check_blocks(addresses, "[7000,2097152,2,5],[3000,1048576,4,6]");
}

CASE(a_log_without_blocks_has_no_rows) {
    const uintptr_t none = 0;
    REQUIRE(parse(HEADER "1,0,allocate failure,,5,0\n") == ASHLAR_OK);
    check_blocks(&none, "");
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

CASE(no_host_memory_is_an_error) {
    const uintptr_t addresses[BLOCKS] = {5000, 3000, 6000};
    ashlar_json_writer w;
    REQUIRE(parse(sample) == ASHLAR_OK);
    ashlar__json_writer_init(&w, 0);
    ashlar__json_open_object(&w);
    HOST_FAILS_AT(1, CHECK_FAILS(ashlar__replay_put_blocks(&w, log_of, addresses), ASHLAR_EHOSTMEM,
                                 "stone.csv"));
    ashlar__json_writer_finish(&w);
}

RUN_CASES()
