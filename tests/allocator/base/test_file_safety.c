/*
 * test_file_safety.c - that nothing half-written ever stands under the target's name, that what is
 * written is for nobody else before it is done, and that nobody else's links are followed.
 */
#include "allocator/base/file.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "tests/allocator/base/file_fixture.h"

enum { OTHER_USER = 65534 };

static size_t open_before; /* files that others could open when their mode was set */

/* In place of the C library's: look at what the mode was before. */
int fchmod(int fd, mode_t mode) {
    struct stat info;
    open_before += fstat(fd, &info) == 0 && (info.st_mode & 077) != 0;
    return (int)syscall(SYS_fchmod, fd, mode);
}

/* Files in the folder, but for `path`, that others may open. */
static size_t open_to_others(void) {
    size_t count = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        struct stat info;
        count += entry->d_name[0] != '.' && strcmp(entry->d_name, strrchr(path, '/') + 1) != 0 &&
                 fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                 (info.st_mode & 077) != 0;
    }
    (void)closedir(dir);
    return count;
}

static mode_t mode_of(const char *name) {
    struct stat info;
    return lstat(name, &info) == 0 ? info.st_mode & 07777 : 0;
}

/* Write the file to its end, and look at it in between. */
static void replace(const char *name) {
    ashlar_file_buffer *file;
    open_before = 0;
    REQUIRE(ashlar__file_buffer_create(name, &file) == ASHLAR_OK);
    ashlar__file_buffer_put(file, "secret", 6);
    CHECK_ZU(open_to_others(), 0);
    CHECK(ashlar__file_buffer_commit(file) == ASHLAR_OK);
    CHECK_ZU(open_before, 0);
    CHECK(names_in_folder() == 1);
}

/* ---- whole or not at all ---- */

CASE(the_target_is_old_until_the_commit) {
    static const char text[1 << 17] = "new"; /* more than waits in memory */
    static char bytes[sizeof text];
    ashlar_file_buffer *file;
    write_bytes("old", 3);
    REQUIRE(ashlar__file_buffer_create(path, &file) == ASHLAR_OK);
    CHECK(ashlar__file_buffer_put(file, text, sizeof text) == ASHLAR_OK);
    CHECK(file_is("old") && names_in_folder() == 2);
    CHECK(ashlar__file_buffer_commit(file) == ASHLAR_OK);
    FILE *got = fopen(path, "rb");
    REQUIRE(got != NULL);
    CHECK_ZU(fread(bytes, 1, sizeof bytes, got), sizeof bytes);
    CHECK(fclose(got) == 0 && memcmp(bytes, text, sizeof text) == 0 && names_in_folder() == 1);
}

CASE(a_rename_that_fails_leaves_nothing) {
    ashlar_file_buffer *file;
    (void)unlink(path);
    REQUIRE(ashlar__file_buffer_create(path, &file) == ASHLAR_OK);
    CHECK(mkdir(path, 0700) == 0); /* comes up meanwhile: a file cannot replace a folder */
    CHECK_FAILS(ashlar__file_buffer_commit(file), ASHLAR_EIO, "cannot replace");
    CHECK(names_in_folder() == 1 && rmdir(path) == 0);
}

CASE(what_is_no_regular_file_is_not_replaced) {
    ashlar_file_buffer *file = NULL;
    char name[PATH_MAX + 1];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    CHECK_FAILS(ashlar__file_buffer_create(name, &file), ASHLAR_EINVAL, "a path of 4096 bytes");
    name[NAME_MAX + 1] = '\0';
    CHECK_FAILS(ashlar__file_buffer_create(name, &file), ASHLAR_EIO, "too long");
    CHECK_FAILS(ashlar__file_buffer_create("", &file), ASHLAR_EINVAL, "a path of 0 bytes");
    CHECK_FAILS(ashlar__file_buffer_create("/dev/null", &file), ASHLAR_EINVAL, "not a regular");
    CHECK_FAILS(ashlar__file_buffer_create(folder, &file), ASHLAR_EINVAL, "not a regular");
    CHECK_FAILS(ashlar__file_buffer_create("/tmp/", &file), ASHLAR_EINVAL, "not a regular");
    CHECK_FAILS(ashlar__file_buffer_create("/nowhere/at/all", &file), ASHLAR_EIO, "/nowhere/at");
    write_bytes("old", 3);
    (void)snprintf(name, sizeof name, "%s/below", path);
    CHECK_FAILS(ashlar__file_buffer_create(name, &file), ASHLAR_EIO, "Not a directory");
    CHECK(file == NULL && is_alone_with("old"));
}

/* ---- for whom ---- */

CASE(a_file_is_its_users_until_it_is_done_and_then_as_the_umask_says) {
    static const mode_t masks[] = {0, 022, 027, 077};
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        (void)unlink(path);
        const mode_t before = umask(masks[i]);
        replace(path);
        (void)umask(before);
        CHECK(mode_of(path) == (0666 & ~masks[i]));
    }
}

CASE(a_file_that_is_replaced_keeps_its_mode) {
    static const mode_t modes[] = {0600, 0604, 0640, 0666, 0400, 0755};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        (void)unlink(path);
        write_bytes("old", 3);
        CHECK(chmod(path, modes[i]) == 0);
        const mode_t before = umask(0);
        replace(path);
        (void)umask(before);
        CHECK(mode_of(path) == modes[i]);
    }
}

/* He may have put it there to read what is written, or to change it. */
CASE(another_users_file_opens_the_new_one_no_further_than_the_umask) {
    SKIP_IF(geteuid() != 0, "only root can give files away");
    (void)unlink(path);
    write_bytes("old", 3);
    CHECK(chmod(path, 0626) == 0 && chown(path, OTHER_USER, OTHER_USER) == 0);
    const mode_t before = umask(027);
    replace(path);
    (void)umask(before);
    CHECK(mode_of(path) == 0600); /* 0626 and 0640 */
}

/* ---- links ---- */

static void make_link(char out[80], const char *to, mode_t folder_mode) {
    (void)snprintf(out, 80, "%s/link", folder);
    REQUIRE(chmod(folder, folder_mode) == 0 && symlink(to, out) == 0);
}

static bool is_link(const char *at) {
    struct stat info;
    return lstat(at, &info) == 0 && S_ISLNK(info.st_mode);
}

CASE(a_link_in_a_folder_of_ones_own_is_followed) {
    char link_path[80];
    ashlar_file_buffer *file;
    write_bytes("old", 3);
    make_link(link_path, path, 0755);
    REQUIRE(ashlar__file_buffer_create(link_path, &file) == ASHLAR_OK);
    ashlar__file_buffer_put(file, "new", 3);
    CHECK(ashlar__file_buffer_commit(file) == ASHLAR_OK);
    CHECK(is_link(link_path) && file_is("new") && names_in_folder() == 2);
    CHECK(unlink(path) == 0); /* a link to nothing: the file is made there */
    REQUIRE(ashlar__file_buffer_create(link_path, &file) == ASHLAR_OK);
    CHECK(ashlar__file_buffer_commit(file) == ASHLAR_OK);
    CHECK(is_link(link_path) && file_is("") && names_in_folder() == 2);
    CHECK(unlink(link_path) == 0 && unlink(path) == 0);
    make_link(link_path, "link", 0755); /* to itself */
    file = NULL;
    CHECK_FAILS(ashlar__file_buffer_create(link_path, &file), ASHLAR_EINVAL, "leads nowhere");
    CHECK(file == NULL && is_link(link_path) && unlink(link_path) == 0);
}

/* For all, and sticky, as /tmp is. */
CASE(a_link_that_anybody_may_have_made_is_neither_followed_nor_replaced) {
    static const mode_t modes[] = {01777, 0777};
    char link_path[80];
    for (size_t i = 0; i < 2; i++) {
        ashlar_file_buffer *file = NULL;
        write_bytes("old", 3);
        make_link(link_path, path, modes[i]);
        CHECK_FAILS(ashlar__file_buffer_create(link_path, &file), ASHLAR_EINVAL,
                    "not that of a link");
        CHECK(file == NULL && file_is("old") && is_link(link_path) && names_in_folder() == 2);
        /* nor is it by a link of one's own that leads there */
        char inner[96], own[96];
        (void)snprintf(inner, sizeof inner, "%s/own", folder);
        (void)snprintf(own, sizeof own, "%s/own/link", folder);
        REQUIRE(mkdir(inner, 0700) == 0 && symlink("../link", own) == 0);
        CHECK_FAILS(ashlar__file_buffer_create(own, &file), ASHLAR_EINVAL, "everybody");
        CHECK(file_is("old") && unlink(own) == 0 && rmdir(inner) == 0 && unlink(link_path) == 0);
    }
    CHECK(chmod(folder, 0700) == 0);
}

RUN_CASES_IN_FOLDER()
