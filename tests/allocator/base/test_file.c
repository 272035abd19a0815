/*
 * test_file.c - that small writes arrive, whole and in order, or nothing does; that a file is read
 * whole, and what is no file is named.
 */
#include "allocator/base/file.h"

#include <sys/stat.h>

#include "tests/allocator/base/file_fixture.h"
#include "allocator/base/host.h"

enum { LINES = 30000 }; /* several times what is kept in memory */

static ashlar_file_buffer *begin(void) {
    ashlar_file_buffer *buffer = NULL;
    CHECK(ashlar__file_buffer_create(path, &buffer) == ASHLAR_OK);
    return buffer;
}

CASE(small_writes_arrive_in_order) {
    ashlar_file_buffer *buffer = begin();
    REQUIRE(buffer != NULL);
    for (int i = 0; i < LINES; i++) {
        if (i % 2 == 0) {
            ashlar__file_buffer_print(buffer, "%d\n", i);
        } else {
            char line[16];
            ashlar__file_buffer_put(buffer, line, (size_t)sprintf(line, "%d\n", i));
        }
    }
    CHECK(ashlar__file_buffer_commit(buffer) == ASHLAR_OK);
    FILE *file = fopen(path, "r");
    REQUIRE(file != NULL);
    int value = -1, wrong = 0;
    for (int i = 0; i < LINES; i++) {
        wrong += fscanf(file, "%d", &value) != 1 || value != i;
    }
    CHECK(wrong == 0 && fgetc(file) == '\n' && fgetc(file) == EOF);
    (void)fclose(file);
    CHECK(names_in_folder() == 1);
}

CASE(a_disk_that_fills_is_told_by_the_commit) {
    write_bytes("old", 3);
    /* In the middle, and with what is left at the end. */
    for (int lines = 1; lines <= 1000000; lines += 999999) {
        ashlar_file_buffer *buffer = begin();
        REQUIRE(buffer != NULL);
        limit_files(lines == 1 ? 2 : 200000);
        for (int i = 0; i < lines; i++) {
            ashlar__file_buffer_print(buffer, "line\n");
        }
        const ashlar_status status = ashlar__file_buffer_commit(buffer);
        limit_files(RLIM_INFINITY);
        CHECK_FAILS(status, ASHLAR_EIO, path);
        CHECK(is_alone_with("old"));
    }
}

/* Only the first of two writes fails, which a later one must not hide. */
CASE(the_first_failure_is_not_forgotten) {
    static const char text[1 << 17];
    ashlar_file_buffer *buffer = begin();
    REQUIRE(buffer != NULL);
    limit_files(100);
    ashlar__file_buffer_put(buffer, text, sizeof text);
    limit_files(RLIM_INFINITY);
    ashlar__file_buffer_put(buffer, text, sizeof text);
    CHECK(ashlar__file_buffer_commit(buffer) == ASHLAR_EIO);
}

CASE(an_abort_leaves_the_old_file) {
    write_bytes("old", 3);
    ashlar_file_buffer *buffer = begin();
    REQUIRE(buffer != NULL);
    ashlar__file_buffer_print(buffer, "new text");
    ashlar__file_buffer_abort(buffer);
    ashlar__file_buffer_abort(NULL);
    CHECK(is_alone_with("old"));
}

CASE(no_host_memory_or_no_folder_is_a_failure) {
    ashlar_file_buffer *buffer = NULL;
    HOST_FAILS_AT(1, CHECK(ashlar__file_buffer_create(path, &buffer) == ASHLAR_EHOSTMEM));
    CHECK_HAS(ashlar_error_detail(), path);
    CHECK(buffer == NULL && names_in_folder() == 1);
    CHECK(ashlar__file_buffer_create("/nowhere/at/all", &buffer) == ASHLAR_EIO);
    CHECK(buffer == NULL);
}

CASE(a_line_is_all_of_its_file) {
    CHECK(ashlar__file_write_line(path, "{}", 2) == ASHLAR_OK);
    CHECK(is_alone_with("{}\n"));
}

/* ---- reading ---- */

static char *text; /* of the file that was read */
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

CASE(no_host_memory_to_read_into_is_a_failure) {
    write_bytes("abc", 3);
    text = NULL;
    HOST_FAILS_AT(1, CHECK(ashlar__file_read(path, &text, &bytes) == ASHLAR_EHOSTMEM));
    CHECK_HAS(ashlar_error_detail(), "the 3 bytes of ");
    CHECK(text == NULL);
}

RUN_CASES_IN_FOLDER()
