/* test_pack_csv.c - MiniMalloc's problems: how they are read, refused by line, and written. */
#include "allocator/pack/pack_csv.h"

#include <stdint.h>

#include "tests/check.h"
#include "tests/allocator/base/file_fixture.h"
#include "allocator/base/host.h"

#define HEADER "id,lower,upper,size\n"

static ashlar_pack_table table;

static void finish_table(void) {
    ashlar__pack_table_finish(&table);
}

static ashlar_status parse(const char *text) {
    finish_table();
    (void)check_at_end(finish_table);
    return ashlar__pack_table_parse("stone.csv", text, strlen(text), &table);
}

static bool row_is(size_t i, const char *id, uint64_t begin, uint64_t end, size_t bytes) {
    const ashlar_pack_buffer *b = &table.buffers[i];
    return i < table.count && ashlar__piece_is(table.ids[i], id) && b->begin == begin &&
           b->end == end && b->bytes == bytes;
}

CASE(rows_become_buffers) {
    REQUIRE(parse(HEADER "0,995328,1000448,656384\n7,0,1,1\n") == ASHLAR_OK);
    CHECK_ZU(table.count, 2);
    CHECK(row_is(0, "0", 995328, 1000448, 656384) && row_is(1, "7", 0, 1, 1));
    finish_table();
    CHECK(table.count == 0 && table.buffers == NULL);
    finish_table();
    REQUIRE(parse(HEADER) == ASHLAR_OK);
    CHECK_ZU(table.count, 0);
}

CASE(columns_are_found_by_name) {
    REQUIRE(parse("offset,size,more,upper,id,lower\n9,4,,3,b_0,1\n") == ASHLAR_OK);
    CHECK(table.count == 1 && row_is(0, "b_0", 1, 3, 4));
}

CASE(lines_may_end_in_any_way) {
    REQUIRE(parse("\xef\xbb\xbfid, lower,upper ,size\r\n\r\n a ,1,\t2,3\r\n \nb,1,2,3") ==
            ASHLAR_OK);
    CHECK(table.count == 2 && row_is(0, "a", 1, 2, 3) && row_is(1, "b", 1, 2, 3));
}

CASE(numbers_have_64_bits) {
    REQUIRE(parse(HEADER "0,18446744073709551614,18446744073709551615,18446744073709551615\n") ==
            ASHLAR_OK);
    CHECK(row_is(0, "0", UINT64_MAX - 1, UINT64_MAX, SIZE_MAX));
}

CASE(a_bad_problem_is_refused_by_its_line) {
    static const struct {
        const char *text, *want;
    } bad[] = {
        {"", "stone.csv: empty"},
        {"\xef\xbb\xbf\n \r\n", "stone.csv: empty"},
        {"0,1,2,3\n", "stone.csv:1: no column id; the first line has to be id,lower,upper,size"},
        {"\nlower,upper,size\n", "stone.csv:2: no column id"},
        {"id,upper,size\n", "stone.csv:1: no column lower"},
        {"id,lower,size\n", "stone.csv:1: no column upper"},
        {"id,lower,upper\n", "stone.csv:1: no column size"},
        {"id,lower,upper,size,lower\n", "stone.csv:1: each column has to be there once"},
        {"id,lower,upper,size,alignment\n", "stone.csv:1: a column alignment is not supported"},
        {"id,gaps,lower,upper,size\n", "stone.csv:1: a column gaps is not supported"},
        {HEADER "0,1,2\n", "stone.csv:2: 3 fields where the header has 4"},
        {HEADER "0,1,2,3,\n", "stone.csv:2: 5 fields where the header has 4"},
        {HEADER "\n0,1,2,3\nx\n", "stone.csv:4: 1 fields"},
        {HEADER ",1,2,3\n", "stone.csv:2: id has to be some text"},
        {HEADER "0,-1,2,3\n", "stone.csv:2: lower has to be a whole number of 64 bits, not \"-1\""},
        {HEADER "0,x,2,3\n", "stone.csv:2: lower"},
        {HEADER "0,1,,3\n", "stone.csv:2: upper has to be a whole number"},
        {HEADER "0,1,18446744073709551616,3\n", "stone.csv:2: upper"},
        {HEADER "0,1,2,3 MiB\n", "stone.csv:2: size has to be a whole number from 1"},
        {HEADER "0,1,2,0\n", "stone.csv:2: size"},
        {HEADER "0,1,2,-5\n", "stone.csv:2: size"},
        {HEADER "0,1,2,1e3\n", "stone.csv:2: size"},
        {HEADER "0,2,2,3\n", "stone.csv:2: upper has to be more than lower, not \"2\""},
        {HEADER "0,3,2,3\n", "stone.csv:2: upper has to be more than lower"},
        {HEADER "5,0,1,1\n50,0,1,1\n\n5,0,1,1\n",
         "stone.csv:5: the id \"5\" is also that of line 2"},
        {HEADER "0,\033[2J,2,3\n", "not \"?[2J\""},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_FAILS(parse(bad[i].text), ASHLAR_EFORMAT, bad[i].want);
        CHECK(table.buffers == NULL);
    }
}

CASE(what_is_written_reads_back) {
    static const size_t offsets[] = {0, 100, SIZE_MAX};
    REQUIRE(parse("size,id,lower,upper\r\n100,first,0,5\r\n7,2,5,18446744073709551615\n"
                  "1,third one,1,2\n") == ASHLAR_OK);
    REQUIRE(ashlar__pack_table_write(&table, NULL, path) == ASHLAR_OK);
    CHECK(file_is(HEADER "first,0,5,100\n2,5,18446744073709551615,7\nthird one,1,2,1\n"));
    REQUIRE(ashlar__pack_table_write(&table, offsets, path) == ASHLAR_OK);
    CHECK(file_is("id,lower,upper,size,offset\nfirst,0,5,100,0\n2,5,18446744073709551615,7,100\n"
                  "third one,1,2,1,18446744073709551615\n"));
    finish_table();
    REQUIRE(ashlar__pack_table_read(path, &table) == ASHLAR_OK); /* a solution is a problem too */
    CHECK(table.count == 3 && row_is(1, "2", 5, UINT64_MAX, 7) && row_is(2, "third one", 1, 2, 1));
    CHECK(ashlar__pack_table_write(&table, NULL, "/nowhere/out.csv") == ASHLAR_EIO);
}

CASE(files_that_cannot_be_read_are_named) {
    CHECK_FAILS(ashlar__pack_table_read("/nowhere/in.csv", &table), ASHLAR_EIO,
                "cannot read /nowhere/in.csv: ");
    CHECK_FAILS(ashlar__pack_table_read(folder, &table), ASHLAR_EIO, folder);
    write_bytes("id\n", 3);
    CHECK_FAILS(ashlar__pack_table_read(path, &table), ASHLAR_EFORMAT, path);
    CHECK_HAS(ashlar_error_detail(), ":1: no column lower");
}

/* So many rows that every array grows. */
CASE(many_rows_are_read_and_memory_may_fail) {
    enum { ROWS = 6000, ROW_BYTES = 24 };
    static char text[(ROWS + 1) * ROW_BYTES];
    size_t bytes = (size_t)sprintf(text, HEADER);
    for (int i = 0; i < ROWS; i++) {
        bytes += (size_t)sprintf(text + bytes, "%d,%d,%d,%d\n", ROWS - i, i, i + 1, i + 3);
    }
    write_bytes(text, bytes);
    FOR_HOST_FAILURES(n, status, n % 2 == 0 ? ashlar__pack_table_read(path, &table) : parse(text)) {
        CHECK(status == ASHLAR_OK || table.buffers == NULL);
    }
    CHECK(n > 20);
    CHECK_ZU(table.count, ROWS);
    CHECK(row_is(ROWS - 1, "1", ROWS - 1, ROWS, ROWS + 2));
    finish_table();
    REQUIRE(ashlar__pack_table_read(path, &table) == ASHLAR_OK);
    CHECK_ZU(table.count, ROWS);
}

RUN_CASES_IN_FOLDER()
