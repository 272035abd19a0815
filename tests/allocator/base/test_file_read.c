/*
 * test_file_read.c - that a file is read whole, and that what is no file is named.
 */
#include "allocator/base/file_read.h"

#include <sys/stat.h>

#include <ashlar/status.h>

#include "tests/allocator/base/file_fixture.h"
#include "allocator/base/host.h"

static char *text;
static size_t bytes;

CASE(a_file_is_read_whole_and_ended_by_0) {
    static const char all[] = "a\0b\n\xff";
    write_bytes(all, sizeof all - 1);
    REQUIRE(ashlar__file_read(path, &text, &bytes) == ASHLAR_OK);
    CHECK(bytes == sizeof all - 1 && memcmp(text, all, sizeof all) == 0);
    ashlar__host_free(text);
    write_bytes("", 0);
    REQUIRE(ashlar__file_read(path, &text, &bytes) == ASHLAR_OK);
    CHECK(bytes == 0 && text[0] == '\0');
    ashlar__host_free(text);
}

CASE(what_is_no_file_is_named) {
    text = NULL;
    bytes = 7;
    (void)unlink(path);
    CHECK_FAILS(ashlar__file_read(path, &text, &bytes), ASHLAR_EIO, path);
    CHECK_FAILS(ashlar__file_read(folder, &text, &bytes), ASHLAR_EIO, "no regular file");
    REQUIRE(mkfifo(path, 0600) == 0); /* whose writer nobody waits for */
    CHECK_FAILS(ashlar__file_read(path, &text, &bytes), ASHLAR_EIO, "no regular file");
    CHECK(text == NULL && bytes == 7);
    (void)unlink(path);
}

CASE(a_part_is_what_lies_there_and_no_less) {
    char part[8] = "xxxxxxx";
    int fd = -1;
    write_bytes("abcdef", 6);
    REQUIRE(ashlar__file_open(path, &fd, &bytes) == ASHLAR_OK);
    CHECK_ZU(bytes, 6);
    CHECK(ashlar__file_read_at(fd, path, 2, part, 4) == ASHLAR_OK);
    CHECK(strcmp(part, "cdefxxx") == 0);
    CHECK(ashlar__file_read_at(fd, path, 6, part, 0) == ASHLAR_OK);
    CHECK_FAILS(ashlar__file_read_at(fd, path, 3, part, 4), ASHLAR_EIO, path);
    write_bytes("ab", 2); /* cut while it is open */
    CHECK_FAILS(ashlar__file_read_at(fd, path, 2, part, 1), ASHLAR_EIO, "shorter than");
    CHECK(close(fd) == 0);
    fd = -1;
    CHECK_FAILS(ashlar__file_open(folder, &fd, &bytes), ASHLAR_EIO, "no regular file");
    CHECK_FAILS(ashlar__file_open("/nowhere/at/all", &fd, &bytes), ASHLAR_EIO, "/nowhere/at/all");
    CHECK(fd == -1);
}

CASE(no_host_memory_is_a_failure) {
    write_bytes("abc", 3);
    text = NULL;
    HOST_FAILS_AT(1, CHECK(ashlar__file_read(path, &text, &bytes) == ASHLAR_EHOSTMEM));
    CHECK_HAS(ashlar_error_detail(), "the 3 bytes of ");
    CHECK(text == NULL);
}

RUN_CASES_IN_FOLDER()
