/*
 * test_file.c - that nothing half-written ever stands under the target's name.
 */
#include "allocator/base/file.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "allocator/base/file_temporary.h"
#include "tests/arena/checkpoint/safetensors_fixture.h"

/* A file with an old text, and a new one begun beside it. */
static bool begin_replacement(ashlar_file **file) {
    write_bytes("old", 3);
    return ashlar__file_create(path, file) == ASHLAR_OK &&
           ashlar__file_write(*file, "new text", 8) == ASHLAR_OK;
}

CASE(the_target_is_old_until_the_commit) {
    for (int kind = 0; kind < 2; kind++) {
        unsigned char bytes[FILE_MAX_BYTES];
        ashlar_file *file;
        ashlar__temporary_need_names(kind != 0);
        REQUIRE(begin_replacement(&file));
        CHECK(read_bytes(bytes) == 3 && memcmp(bytes, "old", 3) == 0);
        CHECK(names_in_folder() <= 1 + kind);
        CHECK(ashlar__file_commit(file) == ASHLAR_OK);
        CHECK(read_bytes(bytes) == 8 && memcmp(bytes, "new text", 8) == 0);
        CHECK(names_in_folder() == 1);
    }
}

CASE(an_abort_leaves_the_old_file_and_nothing_else) {
    unsigned char bytes[FILE_MAX_BYTES];
    ashlar_file *file;
    REQUIRE(begin_replacement(&file));
    ashlar__file_abort(file);
    CHECK(read_bytes(bytes) == 3 && memcmp(bytes, "old", 3) == 0);
    CHECK(names_in_folder() == 1);
    ashlar__file_abort(NULL);
}

CASE(a_disk_that_fills_leaves_the_old_file) {
    unsigned char bytes[FILE_MAX_BYTES];
    struct rlimit before;
    write_bytes("old", 3);
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    const struct rlimit small = {100, before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    const ashlar_status status = write_sample();
    /* One write that goes in half, too: the half is no success. */
    ashlar_file *file;
    CHECK(ashlar__file_create(path, &file) == ASHLAR_OK);
    CHECK(ashlar__file_write(file, sample, sizeof sample) == ASHLAR_EIO);
    ashlar__file_abort(file);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    (void)signal(SIGXFSZ, handler);
    CHECK_FAILS(status, ASHLAR_EIO, path);
    CHECK(read_bytes(bytes) == 3 && memcmp(bytes, "old", 3) == 0);
    CHECK(names_in_folder() == 1);
}

CASE(a_rename_that_fails_removes_the_temporary) {
    for (int kind = 0; kind < 2; kind++) {
        ashlar_file *file;
        ashlar__temporary_need_names(kind != 0);
        (void)unlink(path);
        REQUIRE(ashlar__file_create(path, &file) == ASHLAR_OK);
        CHECK(mkdir(path, 0700) == 0); /* comes up meanwhile: a file cannot replace a folder */
        CHECK(ashlar__file_commit(file) == ASHLAR_EIO);
        CHECK(names_in_folder() == 1);
        CHECK_FAILS(ashlar__file_create(path, &file), ASHLAR_EINVAL, "not a regular file");
        CHECK(rmdir(path) == 0);
    }
}

CASE(permissions_and_links_are_kept) {
    char link_path[80];
    struct stat info;
    ashlar_file *file;
    write_bytes("old", 3);
    CHECK(chmod(path, 0604) == 0);
    (void)snprintf(link_path, sizeof link_path, "%s/link", folder);
    CHECK(symlink(path, link_path) == 0);
    REQUIRE(ashlar__file_create(link_path, &file) == ASHLAR_OK);
    CHECK(ashlar__file_commit(file) == ASHLAR_OK);
    CHECK(lstat(link_path, &info) == 0 && S_ISLNK(info.st_mode));
    CHECK(stat(path, &info) == 0 && (info.st_mode & 0777) == 0604 && info.st_size == 0);
    CHECK(unlink(link_path) == 0);
    /* A new file is as open as the umask lets it be. */
    CHECK(unlink(path) == 0);
    const mode_t mask = umask(027);
    REQUIRE(ashlar__file_create(path, &file) == ASHLAR_OK);
    (void)umask(mask);
    CHECK(ashlar__file_commit(file) == ASHLAR_OK);
    CHECK(stat(path, &info) == 0 && (info.st_mode & 0777) == 0640);
}

CASE(a_missing_folder_is_named) {
    ashlar_file *file;
    CHECK_FAILS(ashlar__file_create("/nowhere/at/all", &file), ASHLAR_EIO, "/nowhere/at/all");
    CHECK(ashlar__file_create("", &file) == ASHLAR_EINVAL);
    char long_path[5000];
    memset(long_path, 'x', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = '\0';
    CHECK(ashlar__file_create(long_path, &file) == ASHLAR_EINVAL);
    CHECK(ashlar__file_create("/dev/null", &file) == ASHLAR_EINVAL);
}

RUN_CASES_IN_FOLDER()
