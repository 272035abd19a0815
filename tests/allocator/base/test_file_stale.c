/*
 * test_file_stale.c - that the temporaries of killed writers are removed, and nothing else.
 */
#include "allocator/base/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "allocator/base/file_temporary.h"
#include "tests/allocator/base/file_fixture.h"

/* Of the digits of a temporary. */
#define STALE ".ashlar-0123456789abcdef.tmp"
#define STALE_TOO ".ashlar-fedcba9876543210.tmp"

static const char *name_in_folder(void) {
    return strrchr(path, '/') + 1;
}

static void remove_stale(void) {
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ashlar__temporary_remove_stale(fd, name_in_folder());
    CHECK(fd >= 0 && close(fd) == 0);
}

/*
 * In place of the C library's: another writer comes by just before the file gets its name, which
 * that writer's cleaning must not hinder.
 */
int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    ashlar__temporary_remove_stale(to_folder, to);
    return (int)syscall(SYS_renameat, from_folder, from, to_folder, to);
}

/* Let a process be killed while it writes. */
static void leave_one(bool with_name) {
    ashlar__temporary_need_names(with_name);
    const pid_t child = fork();
    if (child == 0) {
        ashlar_file *file;
        if (ashlar__file_create(path, &file) == ASHLAR_OK &&
            ashlar__file_write(file, "half", 4) == ASHLAR_OK) {
            (void)raise(SIGKILL);
        }
        _exit(1);
    }
    int status = 0;
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* A leftover is of a name that the case chooses. */
static void make(const char *suffix) {
    char name[128];
    (void)snprintf(name, sizeof name, "%s%s", path, suffix);
    FILE *file = fopen(name, "wb");
    CHECK(file != NULL && fclose(file) == 0);
}

static bool is_there(const char *suffix) {
    char name[128];
    (void)snprintf(name, sizeof name, "%s%s", path, suffix);
    return access(name, F_OK) == 0;
}

static void discard(const char *suffix) {
    char name[128];
    (void)snprintf(name, sizeof name, "%s%s", path, suffix);
    CHECK(unlink(name) == 0);
}

CASE(each_writer_removes_what_killed_ones_left) {
    ashlar_file *file;
    write_bytes("old", 3);
    for (int i = 0; i < 3; i++) {
        leave_one(true);
        CHECK_ZU((size_t)names_in_folder(), 2); /* the old file and one leftover, never more */
    }
    REQUIRE(ashlar__file_create(path, &file) == ASHLAR_OK);
    CHECK_ZU((size_t)names_in_folder(), 2); /* its own */
    ashlar__file_abort(file);
    CHECK_ZU((size_t)names_in_folder(), 1);
}

CASE(a_killed_writer_leaves_nothing_where_files_need_no_name) {
    const int fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    SKIP_IF(fd < 0, "files of this file system need names");
    CHECK(close(fd) == 0);
    write_bytes("old", 3);
    leave_one(false);
    CHECK_ZU((size_t)names_in_folder(), 1);
}

CASE(a_writer_at_work_keeps_its_temporary) {
    for (int kind = 0; kind < 2; kind++) {
        unsigned char bytes[FILE_MAX_BYTES];
        ashlar_file *one, *two;
        ashlar__temporary_need_names(kind != 0);
        write_bytes("old", 3);
        REQUIRE(ashlar__file_create(path, &one) == ASHLAR_OK);
        REQUIRE(ashlar__file_create(path, &two) == ASHLAR_OK);
        CHECK(names_in_folder() <= 1 + 2 * kind);
        CHECK(ashlar__file_write(one, "one", 3) == ASHLAR_OK);
        CHECK(ashlar__file_commit(two) == ASHLAR_OK);
        CHECK(ashlar__file_commit(one) == ASHLAR_OK);
        CHECK(read_bytes(bytes) == 3 && memcmp(bytes, "one", 3) == 0);
        CHECK_ZU((size_t)names_in_folder(), 1);
    }
}

/* Two writers of a file that is not there: the second one finds it, and replaces it. */
CASE(a_file_that_comes_up_meanwhile_is_replaced) {
    for (int kind = 0; kind < 2; kind++) {
        unsigned char bytes[FILE_MAX_BYTES];
        ashlar_file *one, *two;
        ashlar__temporary_need_names(kind != 0);
        (void)unlink(path);
        REQUIRE(ashlar__file_create(path, &one) == ASHLAR_OK);
        REQUIRE(ashlar__file_create(path, &two) == ASHLAR_OK);
        CHECK(ashlar__file_commit(two) == ASHLAR_OK);
        CHECK(ashlar__file_write(one, "one", 3) == ASHLAR_OK);
        CHECK(ashlar__file_commit(one) == ASHLAR_OK);
        CHECK(read_bytes(bytes) == 3 && memcmp(bytes, "one", 3) == 0);
        CHECK_ZU((size_t)names_in_folder(), 1);
    }
}

CASE(only_names_of_temporaries_of_that_file_are_removed) {
    static const char *const others[] = {
        STALE ".old", ".x" STALE,  "x" STALE, ".ashlar-.tmp", ".ashlar-0123456789abcde.tmp",
        STALE "x",    STALE STALE, ".tmp",    ".1.2.tmp",     ".ashlar-0123456789abcdefg.tmp"};
    enum { COUNT = sizeof others / sizeof others[0] };
    for (size_t i = 0; i < COUNT; i++) {
        make(others[i]);
    }
    make(STALE);
    make(STALE_TOO);
    remove_stale();
    CHECK(!is_there(STALE) && !is_there(STALE_TOO));
    for (size_t i = 0; i < COUNT; i++) {
        CHECK(is_there(others[i]));
        discard(others[i]);
    }
}

CASE(what_is_no_file_or_locked_or_anothers_stays) {
    char name[128], second[128];
    (void)snprintf(name, sizeof name, "%s%s", path, STALE);
    (void)snprintf(second, sizeof second, "%s.second", path);
    CHECK(mkdir(name, 0700) == 0);
    remove_stale();
    CHECK(rmdir(name) == 0);
    CHECK(mkfifo(name, 0600) == 0);
    remove_stale(); /* does not wait for a writer */
    CHECK(unlink(name) == 0);
    CHECK(symlink("elsewhere", name) == 0);
    remove_stale();
    CHECK(unlink(name) == 0);
    FILE *file = fopen(name, "wb");
    REQUIRE(file != NULL);
    CHECK(link(name, second) == 0); /* somebody wants to keep it */
    remove_stale();
    CHECK(is_there(STALE) && unlink(second) == 0);
    if (geteuid() == 0) {
        CHECK(fchown(fileno(file), 65534, 65534) == 0);
        remove_stale();
        CHECK(is_there(STALE) && fchown(fileno(file), 0, 0) == 0);
    }
    CHECK(flock(fileno(file), LOCK_EX) == 0);
    remove_stale();
    CHECK(is_there(STALE));
    (void)fclose(file);
    remove_stale();
    CHECK(!is_there(STALE));
}

CASE(a_path_without_folder_is_of_the_current_one) {
    char before[4096];
    ashlar_file *file;
    REQUIRE(getcwd(before, sizeof before) != NULL && chdir(folder) == 0);
    make(STALE);
    REQUIRE(ashlar__file_create(name_in_folder(), &file) == ASHLAR_OK);
    CHECK(!is_there(STALE));
    CHECK(ashlar__file_commit(file) == ASHLAR_OK && access(path, F_OK) == 0);
    make(STALE);
    CHECK(chdir("/") == 0);
    REQUIRE(ashlar__file_create(path, &file) == ASHLAR_OK); /* one with a folder is of that one */
    CHECK(!is_there(STALE));
    ashlar__file_abort(file);
    CHECK(chdir(before) == 0);
}

/* A remover may come between a temporary's creation and its lock. */
CASE(a_lock_on_a_file_without_a_name_or_with_an_owner_is_refused) {
    write_bytes("x", 1);
    const int fd = open(path, O_RDONLY | O_CLOEXEC), other = open(path, O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0 && other >= 0);
    CHECK(ashlar__temporary_lock(fd));
    CHECK(!ashlar__temporary_lock(other));
    CHECK(close(fd) == 0);
    CHECK(ashlar__temporary_lock(other));
    CHECK(flock(other, LOCK_UN) == 0);
    CHECK(unlink(path) == 0);
    CHECK(!ashlar__temporary_lock(other));
    CHECK(close(other) == 0);
}

RUN_CASES_IN_FOLDER()
