/*
 * test_file_stale.c - that the temporaries of killed writers are removed, and nothing else.
 */
#include "allocator/base/file.h"

#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/allocator/base/file_fixture.h"

/*
 * In place of the C library's: another writer comes by just before the file gets its name, which
 * that writer's cleaning must not hinder.
 */
int rename(const char *from, const char *to) {
    ashlar__file_remove_stale(to);
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

/* Let a process be killed while it writes. */
static void leave_one(void) {
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
        leave_one();
        CHECK_ZU((size_t)names_in_folder(), 2); /* the old file and one leftover, never more */
    }
    REQUIRE(ashlar__file_create(path, &file) == ASHLAR_OK);
    CHECK_ZU((size_t)names_in_folder(), 2); /* its own */
    ashlar__file_abort(file);
    CHECK_ZU((size_t)names_in_folder(), 1);
}

CASE(a_writer_at_work_keeps_its_temporary) {
    unsigned char bytes[FILE_MAX_BYTES];
    ashlar_file *one, *two;
    write_bytes("old", 3);
    REQUIRE(ashlar__file_create(path, &one) == ASHLAR_OK);
    REQUIRE(ashlar__file_create(path, &two) == ASHLAR_OK);
    CHECK_ZU((size_t)names_in_folder(), 3);
    CHECK(ashlar__file_write(one, "one", 3) == ASHLAR_OK);
    CHECK(ashlar__file_commit(two) == ASHLAR_OK);
    CHECK(ashlar__file_commit(one) == ASHLAR_OK);
    CHECK(read_bytes(bytes) == 3 && memcmp(bytes, "one", 3) == 0);
    CHECK_ZU((size_t)names_in_folder(), 1);
}

CASE(only_names_of_temporaries_of_that_file_are_removed) {
    static const char *const others[] = {".1.2.tmp.old", ".1.tmp",     ".1.x.tmp",  ".x.1.tmp",
                                         "1.2.tmp",      ".1.2.tmpx",  "..1.tmp",   ".1..tmp",
                                         ".1.2",         ".1.2.3.tmp", "x.1.2.tmp", ".1.2x.tmp"};
    enum { COUNT = sizeof others / sizeof others[0] };
    for (size_t i = 0; i < COUNT; i++) {
        make(others[i]);
    }
    make(".1.2.tmp");
    make(".123456.7890.tmp");
    ashlar__file_remove_stale(path);
    CHECK(!is_there(".1.2.tmp") && !is_there(".123456.7890.tmp"));
    for (size_t i = 0; i < COUNT; i++) {
        CHECK(is_there(others[i]));
        discard(others[i]);
    }
}

CASE(what_is_no_file_or_locked_stays) {
    char name[128];
    (void)snprintf(name, sizeof name, "%s.1.2.tmp", path);
    CHECK(mkdir(name, 0700) == 0);
    ashlar__file_remove_stale(path);
    CHECK(rmdir(name) == 0);
    CHECK(mkfifo(name, 0600) == 0);
    ashlar__file_remove_stale(path); /* does not wait for a writer */
    CHECK(unlink(name) == 0);
    CHECK(symlink("elsewhere", name) == 0);
    ashlar__file_remove_stale(path);
    CHECK(unlink(name) == 0);
    FILE *file = fopen(name, "wb");
    REQUIRE(file != NULL);
    CHECK(flock(fileno(file), LOCK_EX) == 0);
    ashlar__file_remove_stale(path);
    CHECK(is_there(".1.2.tmp"));
    (void)fclose(file);
    ashlar__file_remove_stale(path);
    CHECK(!is_there(".1.2.tmp"));
}

CASE(a_path_without_folder_is_of_the_current_one) {
    char before[4096];
    REQUIRE(getcwd(before, sizeof before) != NULL && chdir(folder) == 0);
    make(".1.2.tmp");
    ashlar__file_remove_stale(strrchr(path, '/') + 1);
    CHECK(!is_there(".1.2.tmp"));
    make(".1.2.tmp");
    CHECK(chdir("/") == 0);
    ashlar__file_remove_stale(path); /* and one with a folder is of that one */
    CHECK(!is_there(".1.2.tmp"));
    CHECK(chdir(before) == 0);
    ashlar__file_remove_stale("/nowhere/at/all");
}

/* A remover may come between a temporary's creation and its lock. */
CASE(a_lock_on_a_file_without_a_name_or_with_an_owner_is_refused) {
    write_bytes("x", 1);
    const int fd = open(path, O_RDONLY | O_CLOEXEC), other = open(path, O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0 && other >= 0);
    CHECK(ashlar__file_lock(fd));
    CHECK(!ashlar__file_lock(other));
    CHECK(close(fd) == 0);
    CHECK(ashlar__file_lock(other));
    CHECK(flock(other, LOCK_UN) == 0);
    CHECK(unlink(path) == 0);
    CHECK(!ashlar__file_lock(other));
    CHECK(close(other) == 0);
}

RUN_CASES_IN_FOLDER()
