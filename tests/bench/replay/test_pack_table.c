/* test_pack_table.c - MiniMalloc's problems: how they are read, refused by line, written, and how a
 * plan is checked. */
#include "bench/replay/bench_pack.h"

#include <stdint.h>

#include "allocator/base/host.h"
#include "tests/check.h"
#include "tests/allocator/base/file_fixture.h"
#include "tests/allocator/pack/pack_fixture.h"

#define HEADER "id,lower,upper,size\n"

static ashlar_pack_table table;

static void finish_table(void) {
    ashlar__pack_table_finish(&table);
}

static ashlar_status parse(const char *text) {
    finish_table();
    (void)check_at_end(finish_table);
    char *copy = ashlar__host_calloc(strlen(text) + 1, 1);
    memcpy(copy, text, strlen(text));
    return ashlar__pack_table_parse("stone.csv", copy, strlen(text), &table);
}

static bool row_is(size_t i, const char *id, uint64_t begin, uint64_t end, size_t bytes) {
    const ashlar_pack_buffer *b = &table.buffers[i];
    return i < table.count && ashlar__piece_is(table.ids[i], id) && b->begin == begin &&
           b->end == end && b->bytes == bytes;
}

CASE(rows_become_buffers) {
    REQUIRE(parse(HEADER) == ASHLAR_OK && table.count == 0);
    REQUIRE(parse("\xef\xbb\xbfoffset,size,more,upper,id, lower\r\n\r\n9,4,,3, b_0,1\n \n"
                  ",18446744073709551615,,18446744073709551615,a,0") == ASHLAR_OK);
    CHECK(table.count == 2 && row_is(0, "b_0", 1, 3, 4) && row_is(1, "a", 0, UINT64_MAX, SIZE_MAX));
}

CASE(a_bad_problem_is_refused_by_its_line) {
    static const struct {
        const char *text, *want;
    } bad[] = {
        {"", "stone.csv: empty"},
        {"0,1,2,3\n", "stone.csv:1: no column id; the first line has to be id,lower,upper,size"},
        {"id,lower,upper,size,lower\n", "stone.csv:1: each column has to be there once"},
        {"id,gaps,lower,upper,size\n", "stone.csv:1: a column gaps is not supported"},
        {HEADER "0,1,2\n", "stone.csv:2: 3 fields where the header has 4"},
        {HEADER ",1,2,3\n", "stone.csv:2: id has to be some text"},
        {HEADER "0,-1,2,3\n", "stone.csv:2: lower has to be a whole number of 64 bits, not \"-1\""},
        {HEADER "0,1,18446744073709551616,3\n", "stone.csv:2: upper"},
        {HEADER "0,1,2,0\n", "stone.csv:2: size has to be a whole number from 1"},
        {HEADER "0,2,2,3\n", "stone.csv:2: upper has to be more than lower, not \"2\""},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_FAILS(parse(bad[i].text), ASHLAR_EFORMAT, bad[i].want);
        CHECK(table.buffers == NULL);
    }
    CHECK_FAILS(ashlar__pack_table_read("/nowhere/in.csv", &table), ASHLAR_EIO,
                "cannot read /nowhere/in.csv: ");
}

CASE(what_is_written_reads_back) {
    static const size_t offsets[] = {0, 100};
    REQUIRE(parse("size,id,lower,upper\r\n100,first,0,5\r\n7,2,5,18446744073709551615\n") ==
            ASHLAR_OK);
    REQUIRE(ashlar__pack_table_write(&table, offsets, path) == ASHLAR_OK);
    CHECK(file_is("id,lower,upper,size,offset\nfirst,0,5,100,0\n2,5,18446744073709551615,7,100\n"));
    finish_table();
    REQUIRE(ashlar__pack_table_read(path, &table) == ASHLAR_OK); /* a solution is a problem too */
    CHECK(table.count == 2 && row_is(1, "2", 5, UINT64_MAX, 7));
    CHECK(ashlar__pack_table_write(&table, offsets, "/nowhere/out.csv") == ASHLAR_EIO);
}

CASE(a_check_agrees_with_looking_at_every_pair) {
    size_t right = 0, wrong = 0;
    for (int round = 0; round < 20000; round++) {
        ashlar_pack_buffer buffers[20];
        size_t offsets[20], bytes = SIZE_MAX, highest = 0;
        const size_t count = pack_draw(1, round % 2 == 0 ? 6 : 20);
        draw_buffers(buffers, count, 12, 9);
        for (size_t i = 0; i < count; i++) {
            offsets[i] = pack_draw(0, 8 * count);
            const size_t end = offsets[i] + buffers[i].bytes;
            highest = end > highest ? end : highest;
        }
        const bool is_right = is_plan(buffers, count, 1, offsets);
        REQUIRE(ashlar__pack_check(buffers, count, offsets, &bytes) ==
                (is_right ? ASHLAR_OK : ASHLAR_EFORMAT));
        CHECK_ZU(bytes, is_right ? highest : SIZE_MAX);
        right += is_right;
        wrong += !is_right;
    }
    CHECK(right > 2000 && wrong > 2000);
}

RUN_CASES_IN_FOLDER()
