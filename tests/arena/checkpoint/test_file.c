/*
 * test_file.c - that nothing half-written ever stands under the target's name.
 */
#include "allocator/base/file.h"

#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/arena/checkpoint/safetensors_fixture.h"

/* A file with an old text, and a new one begun beside it. */
static bool begin_replacement(ashlar_file **file) {
    write_bytes("old", 3);
    return ashlar__file_create(path, file) == ASHLAR_OK &&
           ashlar__file_write(*file, "new text", 8) == ASHLAR_OK;
}

CASE(the_target_is_old_until_the_commit) {
    unsigned char bytes[FILE_MAX_BYTES];
    ashlar_file *file;
    REQUIRE(begin_replacement(&file));
    CHECK(read_bytes(bytes) == 3 && memcmp(bytes, "old", 3) == 0);
    CHECK(names_in_folder() == 2);
    CHECK(ashlar__file_commit(file) == ASHLAR_OK);
    CHECK(read_bytes(bytes) == 8 && memcmp(bytes, "new text", 8) == 0);
    CHECK(names_in_folder() == 1);
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
    ashlar_file *file;
    (void)unlink(path);
    REQUIRE(ashlar__file_create(path, &file) == ASHLAR_OK);
    CHECK(mkdir(path, 0700) == 0); /* comes up meanwhile: a file cannot replace a folder */
    CHECK(ashlar__file_commit(file) == ASHLAR_EIO);
    CHECK(names_in_folder() == 1);
    CHECK_FAILS(ashlar__file_create(path, &file), ASHLAR_EINVAL, "not a regular file");
    CHECK(rmdir(path) == 0);
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

/* Of a process of our number on another machine, say, that is still writing: it has the lock. */
CASE(a_temporary_of_the_next_name_is_no_obstacle) {
    char name[128];
    char last[128] = "";
    ashlar_file *file;
    (void)unlink(path);
    REQUIRE(ashlar__file_create(path, &file) == ASHLAR_OK);
    DIR *dir = opendir(folder);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (strstr(entry->d_name, ".tmp") != NULL) {
            (void)snprintf(last, sizeof last, "%.100s", entry->d_name);
        }
    }
    (void)closedir(dir);
    ashlar__file_abort(file);
    /* "file.<process>.<number>.tmp": take the place of the next number. */
    char *end = strstr(last, ".tmp");
    REQUIRE(end != NULL);
    *end = '\0';
    char *number = strrchr(last, '.');
    REQUIRE(number != NULL);
    const unsigned long next = strtoul(number + 1, NULL, 10) + 1;
    (void)snprintf(name, sizeof name, "%s.%ld.%lu.tmp", path, (long)getpid(), next);
    FILE *other = fopen(name, "wb");
    REQUIRE(other != NULL && flock(fileno(other), LOCK_EX) == 0);
    REQUIRE(ashlar__file_create(path, &file) == ASHLAR_OK);
    CHECK(names_in_folder() == 2);
    CHECK(ashlar__file_commit(file) == ASHLAR_OK);
    CHECK(access(name, F_OK) == 0 && unlink(name) == 0);
    (void)fclose(other);
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
