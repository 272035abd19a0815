/*
 * test_file_buffer.c - that small writes arrive, whole and in order, or nothing does.
 */
#include "allocator/base/file_buffer.h"

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

RUN_CASES_IN_FOLDER()
