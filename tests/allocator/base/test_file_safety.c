/*
 * test_file_safety.c - that what is written is for nobody else before it is done, and that nobody
 * else's files and links are taken for one's own.
 *
 * Each case runs with files that have no name until the commit, and with files that have one.
 */
#include "allocator/base/file.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "allocator/base/file_temporary.h"
#include "tests/allocator/base/file_fixture.h"

enum { OTHER_USER = 65534, KINDS = 2 };

static size_t open_before; /* files that others could open when their mode was set */

/* In place of the C library's: look at what the mode was before. */
int fchmod(int fd, mode_t mode) {
    struct stat info;
    open_before += fstat(fd, &info) == 0 && info.st_nlink > 0 && (info.st_mode & 077) != 0;
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
    ashlar_file *file;
    open_before = 0;
    REQUIRE(ashlar__file_create(name, &file) == ASHLAR_OK);
    CHECK(ashlar__file_write(file, "secret", 6) == ASHLAR_OK);
    CHECK_ZU(open_to_others(), 0);
    CHECK(ashlar__file_commit(file) == ASHLAR_OK);
    CHECK_ZU(open_before, 0);
    CHECK(names_in_folder() == 1);
}

CASE(a_file_is_its_users_until_it_is_done_and_then_as_the_umask_says) {
    static const mode_t masks[] = {0, 022, 027, 077};
    for (size_t i = 0; i < sizeof masks / sizeof masks[0] * KINDS; i++) {
        const mode_t mask = masks[i / KINDS];
        ashlar__temporary_need_names(i % KINDS != 0);
        (void)unlink(path);
        const mode_t before = umask(mask);
        replace(path);
        (void)umask(before);
        CHECK(mode_of(path) == (0666 & ~mask));
    }
}

/* A daemon may have none, so that the first file of its own is number 0. */
CASE(without_a_standard_input_files_are_written_all_the_same) {
    const int kept = dup(STDIN_FILENO);
    (void)close(STDIN_FILENO);
    replace(path);
    const bool is_closed = fcntl(STDIN_FILENO, F_GETFD) < 0;
    (void)dup2(kept, STDIN_FILENO);
    (void)close(kept);
    CHECK(is_closed);
}

CASE(a_file_that_is_replaced_keeps_its_mode) {
    static const mode_t modes[] = {0600, 0604, 0640, 0666, 0400, 0755};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0] * KINDS; i++) {
        const mode_t mode = modes[i / KINDS];
        ashlar__temporary_need_names(i % KINDS != 0);
        (void)unlink(path);
        write_bytes("old", 3);
        CHECK(chmod(path, mode) == 0);
        const mode_t before = umask(0);
        replace(path);
        (void)umask(before);
        CHECK(mode_of(path) == mode);
    }
}

/* He may have put it there to read what is written, or to change it. */
CASE(another_users_file_opens_the_new_one_no_further_than_the_umask) {
    SKIP_IF(geteuid() != 0, "only root can give files away");
    for (int kind = 0; kind < KINDS; kind++) {
        ashlar__temporary_need_names(kind != 0);
        (void)unlink(path);
        write_bytes("old", 3);
        CHECK(chmod(path, 0626) == 0 && chown(path, OTHER_USER, OTHER_USER) == 0);
        const mode_t before = umask(027);
        replace(path);
        (void)umask(before);
        CHECK(mode_of(path) == 0600); /* 0626 and 0640 */
    }
}

/* ---- names ---- */

CASE(a_users_own_file_is_never_taken_for_a_temporary) {
    static const char *const names[] = {".1.2.tmp",
                                        ".123.0.tmp",
                                        ".ashlar-0123.tmp",
                                        ".ashlar-0123456789abcdeg.tmp",
                                        ".ashlar-0123456789abcdef.tmp.old",
                                        ".ashlar-0123456789ABCDEF.tmp"};
    enum { COUNT = sizeof names / sizeof names[0] };
    char name[COUNT][128];
    ashlar_file *file;
    for (size_t i = 0; i < COUNT; i++) {
        (void)snprintf(name[i], sizeof name[i], "%s%s", path, names[i]);
        FILE *own = fopen(name[i], "wb");
        REQUIRE(own != NULL && fclose(own) == 0);
    }
    for (int kind = 0; kind < KINDS; kind++) {
        ashlar__temporary_need_names(kind != 0);
        REQUIRE(ashlar__file_create(path, &file) == ASHLAR_OK);
        CHECK(ashlar__file_commit(file) == ASHLAR_OK);
    }
    for (size_t i = 0; i < COUNT; i++) {
        CHECK(access(name[i], F_OK) == 0 && unlink(name[i]) == 0);
    }
}

CASE(a_name_as_long_as_there_may_be_is_written) {
    char name[sizeof folder + NAME_MAX + 2];
    (void)unlink(path);
    (void)snprintf(name, sizeof name, "%s/", folder);
    memset(name + sizeof folder, 'n', NAME_MAX);
    name[sizeof folder + NAME_MAX] = '\0';
    const mode_t before = umask(077); /* `replace` looks at the old file as well */
    for (int i = 0; i < 2 * KINDS; i++) {
        ashlar__temporary_need_names(i % KINDS != 0);
        replace(name);
    }
    (void)umask(before);
    CHECK(unlink(name) == 0);
}

/* ---- links ---- */

static char away[64], link_path[80];

/* A link to `path`, which lies in another folder. */
static bool make_link(uid_t folder_owner, mode_t folder_mode, uid_t link_owner) {
    (void)snprintf(away, sizeof away, "/tmp/ashlar-links-XXXXXX");
    if (mkdtemp(away) == NULL) {
        return false;
    }
    (void)snprintf(link_path, sizeof link_path, "%s/link", away);
    return symlink(path, link_path) == 0 && lchown(link_path, link_owner, link_owner) == 0 &&
           chmod(away, folder_mode) == 0 && chown(away, folder_owner, folder_owner) == 0;
}

static void remove_link(void) {
    struct stat info;
    CHECK(lstat(link_path, &info) == 0 && S_ISLNK(info.st_mode));
    CHECK(unlink(link_path) == 0 && rmdir(away) == 0);
}

CASE(a_link_that_another_user_put_into_a_folder_for_all_is_not_followed) {
    static const struct {
        uid_t folder_owner;
        mode_t folder_mode;
        uid_t link_owner;
        bool is_followed;
    } links[] = {
        {0, 01777, OTHER_USER, false},
        {OTHER_USER - 1, 01777, OTHER_USER, false},
        {0, 01777, 0, true},                   /* ours */
        {OTHER_USER, 01777, 0, true},          /* ours */
        {OTHER_USER, 01777, OTHER_USER, true}, /* the folder's owner can do as he likes */
        {0, 0777, OTHER_USER, true},           /* so can everybody */
        {0, 01775, OTHER_USER, true},          /* not for all */
    };
    SKIP_IF(geteuid() != 0, "only root can give links away");
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        ashlar_file *file = NULL;
        unsigned char bytes[FILE_MAX_BYTES];
        write_bytes("old", 3);
        REQUIRE(make_link(links[i].folder_owner, links[i].folder_mode, links[i].link_owner));
        if (links[i].is_followed) {
            REQUIRE(ashlar__file_create(link_path, &file) == ASHLAR_OK);
            CHECK(ashlar__file_write(file, "new!", 4) == ASHLAR_OK);
            CHECK(ashlar__file_commit(file) == ASHLAR_OK);
        } else {
            CHECK_FAILS(ashlar__file_create(link_path, &file), ASHLAR_EINVAL, "another user");
            CHECK(file == NULL);
            ashlar__file_abort(file);
        }
        CHECK_ZU(read_bytes(bytes), links[i].is_followed ? 4 : 3);
        remove_link();
    }
}

/* Links to links, from their own folders, absolute and not. */
CASE(links_are_followed_from_where_they_lie) {
    char name[4][128];
    unsigned char bytes[FILE_MAX_BYTES];
    ashlar_file *file;
    write_bytes("old", 3);
    (void)snprintf(name[0], sizeof name[0], "%s/sub", folder);
    (void)snprintf(name[1], sizeof name[1], "%s/sub/one", folder);
    (void)snprintf(name[2], sizeof name[2], "%s/two", folder);
    (void)snprintf(name[3], sizeof name[3], "%s/loop", folder);
    REQUIRE(mkdir(name[0], 0700) == 0 && symlink("../file", name[1]) == 0);
    REQUIRE(symlink("sub/one", name[2]) == 0 && symlink("loop", name[3]) == 0);
    REQUIRE(ashlar__file_create(name[2], &file) == ASHLAR_OK);
    CHECK(ashlar__file_write(file, "new!", 4) == ASHLAR_OK);
    CHECK(ashlar__file_commit(file) == ASHLAR_OK);
    CHECK_ZU(read_bytes(bytes), 4);
    CHECK_FAILS(ashlar__file_create(name[3], &file), ASHLAR_EIO, "loop");
    CHECK(unlink(path) == 0);
    CHECK_FAILS(ashlar__file_create(name[2], &file), ASHLAR_EINVAL, "a link to nothing");
    CHECK_FAILS(ashlar__file_create(name[0], &file), ASHLAR_EINVAL, "not a regular file");
    CHECK(unlink(name[1]) == 0 && unlink(name[2]) == 0 && unlink(name[3]) == 0);
    CHECK(rmdir(name[0]) == 0);
}

RUN_CASES_IN_FOLDER()
