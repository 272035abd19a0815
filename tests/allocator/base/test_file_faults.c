/*
 * test_file_faults.c - what the system may refuse while a file is read or written: the target stays
 * as it was, the failure is named, and what was only interrupted goes on.
 */
#include "allocator/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "allocator/base/file_read.h"
#include "allocator/base/file_stream.h"
#include "allocator/base/file_temporary.h"
#include "allocator/base/host.h"
#include "tests/allocator/base/file_fixture.h"
#include "tests/child.h"

/* ---- in place of the C library's ---- */

typedef enum call {
    ACCESS,
    CLOSE,
    DUP2,
    FCHMOD,
    FLOCK,
    FOPEN,
    FSTAT,
    FSTATAT,
    FSYNC,
    LINKAT,
    OPENAT,
    PREAD,
    READ,
    WRITE,
    CALLS
} call;

static struct {
    int nth;   /* call from now on that fails; 0: none */
    int error; /* its errno */
} faults[CALLS];

static void fail(call which, int nth, int error) {
    faults[which].nth = nth;
    faults[which].error = error;
}

static bool fails(call which) {
    if (faults[which].nth == 0 || --faults[which].nth > 0) {
        return false;
    }
    errno = faults[which].error;
    return true;
}

/* What was to fail has failed, and nothing more will. */
static void has_failed(call which) {
    CHECK(faults[which].nth == 0);
}

int access(const char *name, int mode) {
    return fails(ACCESS) ? -1 : (int)syscall(SYS_faccessat, AT_FDCWD, name, mode);
}

int close(int fd) {
    const int result = (int)syscall(SYS_close, fd);
    return fails(CLOSE) ? -1 : result; /* as in Linux it is closed all the same */
}

int dup2(int from, int to) {
    return fails(DUP2) ? -1 : (int)syscall(SYS_dup3, from, to, 0);
}

int fchmod(int fd, mode_t mode) {
    return fails(FCHMOD) ? -1 : (int)syscall(SYS_fchmod, fd, mode);
}

int flock(int fd, int operation) {
    return fails(FLOCK) ? -1 : (int)syscall(SYS_flock, fd, operation);
}

int fstat(int fd, struct stat *info) {
    return fails(FSTAT) ? -1 : (int)syscall(SYS_fstat, fd, info);
}

int fstatat(int folder_fd, const char *name, struct stat *info, int flags) {
    return fails(FSTATAT) ? -1 : (int)syscall(SYS_newfstatat, folder_fd, name, info, flags);
}

/* With an error of 0 the file is there, and empty. */
FILE *fopen(const char *name, const char *mode) {
    const bool has_failed = fails(FOPEN);
    const bool is_written = mode[0] == 'w';
    const int flags = is_written ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY;
    if (has_failed && errno != 0) {
        return NULL;
    }
    const int fd = open(has_failed ? "/dev/null" : name, flags | O_CLOEXEC, 0666);
    return fd < 0 ? NULL : fdopen(fd, is_written ? "w" : "r");
}

int fsync(int fd) {
    return fails(FSYNC) ? -1 : (int)syscall(SYS_fsync, fd);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    return fails(LINKAT) ? -1 : (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
}

int openat(int from, const char *name, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const bool has_mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
    const mode_t mode = has_mode ? va_arg(more, mode_t) : 0;
    va_end(more);
    return fails(OPENAT) ? -1 : (int)syscall(SYS_openat, from, name, flags, mode);
}

ssize_t pread(int fd, void *data, size_t bytes, off_t offset) {
    return fails(PREAD) ? -1 : syscall(SYS_pread64, fd, data, bytes, offset);
}

ssize_t read(int fd, void *data, size_t bytes) {
    return fails(READ) ? -1 : syscall(SYS_read, fd, data, bytes);
}

ssize_t write(int fd, const void *data, size_t bytes) {
    return fails(WRITE) ? -1 : syscall(SYS_write, fd, data, bytes);
}

/* ---- replacing a file ---- */

enum { KINDS = 2 }; /* without a name until the commit, and with one */

static ashlar_status replace_by(const char *words) {
    return ashlar__file_write_line(path, words, strlen(words));
}

CASE(a_write_that_is_interrupted_goes_on) {
    for (int kind = 0; kind < KINDS; kind++) {
        ashlar__temporary_need_names(kind != 0);
        fail(WRITE, 1, EINTR);
        CHECK(replace_by("new") == ASHLAR_OK);
        has_failed(WRITE);
        CHECK(is_alone_with("new\n"));
    }
}

CASE(a_file_that_cannot_be_written_or_made_durable_is_left) {
    for (int kind = 0; kind < KINDS; kind++) {
        ashlar__temporary_need_names(kind != 0);
        write_bytes("old", 3);
        for (int nth = 1; nth <= 2; nth++) { /* the words, and the end of line */
            fail(WRITE, nth, ENOSPC);
            CHECK_FAILS(replace_by("new"), ASHLAR_EIO, "write");
            CHECK_HAS(ashlar_error_detail(), strerror(ENOSPC));
            CHECK(is_alone_with("old"));
        }
        fail(FSYNC, 1, EIO);
        CHECK_FAILS(replace_by("new"), ASHLAR_EIO, "cannot make durable");
        CHECK(is_alone_with("old"));
        if (kind == 0) {
            fail(LINKAT, 2, EPERM); /* the name that the rename takes */
            CHECK_FAILS(replace_by("new"), ASHLAR_EIO, "cannot replace");
            CHECK(is_alone_with("old"));
        }
    }
}

CASE(a_folder_that_cannot_be_made_durable_is_told_unless_it_never_can) {
    write_bytes("old", 3);
    fail(FSYNC, 2, EIO);
    CHECK_FAILS(replace_by("new"), ASHLAR_EIO, "its folder cannot be made durable");
    CHECK(is_alone_with("new\n"));
    fail(FSYNC, 2, EINVAL);
    CHECK(replace_by("newer") == ASHLAR_OK);
    has_failed(FSYNC);
    CHECK(is_alone_with("newer\n"));
}

/* The mode of a file that is replaced is kept, or nothing is replaced. */
CASE(a_mode_that_cannot_be_set_matters_where_a_file_had_one) {
    struct stat info;
    ashlar__temporary_need_names(true); /* whose mode is always to be set */
    write_bytes("old", 3);
    REQUIRE(chmod(path, 0640) == 0);
    fail(FCHMOD, 1, EPERM);
    CHECK_FAILS(replace_by("new"), ASHLAR_EIO, "cannot set the permissions of the new");
    CHECK(is_alone_with("old"));
    fail(FSTAT, 2, EIO);                   /* the first is that of the lock */
    CHECK(replace_by("new") == ASHLAR_OK); /* set without a look */
    has_failed(FSTAT);
    CHECK(stat(path, &info) == 0 && (info.st_mode & 0777) == 0640);
    (void)unlink(path);
    const mode_t before = umask(022);
    fail(FCHMOD, 1, EPERM);
    CHECK(replace_by("new") == ASHLAR_OK);
    has_failed(FCHMOD);
    CHECK(stat(path, &info) == 0 && (info.st_mode & 0777) == 0600);
    (void)umask(before);
}

CASE(a_target_that_cannot_be_looked_at_is_not_written) {
    char below[80];
    write_bytes("old", 3);
    (void)snprintf(below, sizeof below, "%s/sub", folder);
    REQUIRE(mkdir(below, 0) == 0);
    (void)snprintf(below, sizeof below, "%s/sub/file", folder);
    if (geteuid() != 0) { /* root may look everywhere */
        CHECK_FAILS(ashlar__file_write_line(below, "new", 3), ASHLAR_EIO, "permissions");
    }
    (void)snprintf(below, sizeof below, "%s/file/below", folder);
    CHECK_FAILS(ashlar__file_write_line(below, "new", 3), ASHLAR_EIO, "permissions");
    fail(FSTATAT, 1, EACCES);
    CHECK_FAILS(replace_by("new"), ASHLAR_EIO, strerror(EACCES));
    (void)snprintf(below, sizeof below, "%s/sub", folder);
    CHECK(rmdir(below) == 0);
}

/* ---- names ---- */

/* Without O_TMPFILE, /proc, or a look at the file, it has a name from the start. */
CASE(where_no_file_can_be_without_a_name_it_has_one) {
    static const call reasons[] = {OPENAT, ACCESS, FSTAT};
    ashlar__temporary_need_names(false);
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        ashlar_file_temporary made;
        const int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        REQUIRE(at >= 0);
        (void)unlink(path);
        fail(reasons[i], 1, ENOTSUP);
        CHECK(ashlar__temporary_open(&made, at, "file"));
        has_failed(reasons[i]);
        CHECK(made.name[0] != '\0' && names_in_folder() == 1);
        CHECK(ashlar__temporary_place(&made) && access(path, F_OK) == 0);
        ashlar__temporary_close(&made);
        CHECK(close(at) == 0 && names_in_folder() == 1);
    }
}

CASE(a_name_that_is_taken_is_drawn_again) {
    (void)unlink(path);
    ashlar__temporary_need_names(true);
    fail(OPENAT, 4, EEXIST); /* behind those of the folder, and of the names in it */
    CHECK(replace_by("new") == ASHLAR_OK);
    has_failed(OPENAT);
    CHECK(is_alone_with("new\n"));
    fail(FLOCK, 1, EWOULDBLOCK); /* another writer takes it for a stale one */
    CHECK(replace_by("newer") == ASHLAR_OK);
    has_failed(FLOCK);
    CHECK(file_is("newer\n"));
    (void)unlink(path);
    CHECK(replace_by("newest") == ASHLAR_OK); /* removes what was left */
    CHECK(is_alone_with("newest\n"));
    ashlar__temporary_need_names(false);
    fail(LINKAT, 2, EEXIST);
    CHECK(replace_by("last") == ASHLAR_OK);
    has_failed(LINKAT);
    CHECK(is_alone_with("last\n"));
}

CASE(a_file_that_no_name_can_be_given_to_is_refused) {
    for (int kind = 0; kind < KINDS; kind++) {
        (void)unlink(path);
        ashlar__temporary_need_names(kind != 0);
        if (kind == 0) {
            fail(LINKAT, 1, EPERM);
            CHECK_FAILS(replace_by("new"), ASHLAR_EIO, "cannot replace");
        } else {
            fail(OPENAT, 4, EACCES);
            CHECK_FAILS(replace_by("new"), ASHLAR_EIO, "cannot create");
        }
        CHECK(names_in_folder() == 0);
    }
}

/* The umask can be read in one place only; else it is taken for the strictest. */
CASE(a_umask_that_cannot_be_read_opens_a_file_to_nobody) {
    struct stat info;
    const mode_t before = umask(022);
    ashlar__temporary_need_names(true);
    for (int error = 0; error <= ENOENT; error += ENOENT) {
        (void)unlink(path);
        fail(FOPEN, 1, error);
        CHECK(replace_by("new") == ASHLAR_OK);
        has_failed(FOPEN);
        CHECK(stat(path, &info) == 0 && (info.st_mode & 0777) == 0600);
    }
    (void)umask(before);
}

/* A file system without locks: nobody can tell that a file is stale. */
CASE(a_file_that_cannot_be_locked_is_written_and_none_removed) {
    (void)unlink(path);
    ashlar__temporary_need_names(true);
    fail(FLOCK, 1, ENOLCK);
    CHECK(replace_by("new") == ASHLAR_OK);
    has_failed(FLOCK);
    CHECK(is_alone_with("new\n"));
}

CASE(what_is_not_surely_stale_stays) {
    static const char *const names[] = {
        "filf.ashlar-0123456789abcdef.tmp", /* of another target, as long */
        "file.ashlar-0123456789abcdef.tmq",
        "file.oshlar-0123456789abcdef.tmp",
    };
    enum { COUNT = sizeof names / sizeof names[0] };
    char name[COUNT + 1][128];
    for (size_t i = 0; i <= COUNT; i++) {
        (void)snprintf(name[i], sizeof name[i], "%s/%s", folder,
                       i < COUNT ? names[i] : "file.ashlar-0123456789abcdef.tmp");
        FILE *made = fopen(name[i], "wb");
        REQUIRE(made != NULL && fclose(made) == 0);
    }
    const int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fail(FSTAT, 1, EIO); /* it could be another user's */
    ashlar__temporary_remove_stale(at, "file");
    has_failed(FSTAT);
    CHECK(access(name[COUNT], F_OK) == 0);
    ashlar__temporary_remove_stale(at, "file");
    for (size_t i = 0; i < COUNT; i++) {
        CHECK(access(name[i], F_OK) == 0 && unlink(name[i]) == 0);
    }
    CHECK(access(name[COUNT], F_OK) != 0 && close(at) == 0);
}

/* ---- reading ---- */

CASE(a_read_that_is_interrupted_goes_on_and_one_that_fails_is_named) {
    char *text = NULL, part[3] = "";
    size_t bytes = 0;
    int fd = -1;
    write_bytes("abc", 3);
    fail(READ, 1, EINTR);
    REQUIRE(ashlar__file_read(path, &text, &bytes) == ASHLAR_OK);
    has_failed(READ);
    CHECK(bytes == 3 && strcmp(text, "abc") == 0);
    ashlar__host_free(text);
    text = NULL;
    fail(READ, 1, EIO);
    CHECK_FAILS(ashlar__file_read(path, &text, &bytes), ASHLAR_EIO, strerror(EIO));
    CHECK(text == NULL);
    fail(FSTAT, 1, EIO);
    CHECK_FAILS(ashlar__file_open(path, &fd, &bytes), ASHLAR_EIO, strerror(EIO));
    REQUIRE(ashlar__file_open(path, &fd, &bytes) == ASHLAR_OK);
    fail(PREAD, 1, EINTR);
    CHECK(ashlar__file_read_at(fd, path, 1, part, 2) == ASHLAR_OK && memcmp(part, "bc", 2) == 0);
    has_failed(PREAD);
    fail(PREAD, 1, EIO);
    CHECK_FAILS(ashlar__file_read_at(fd, path, 0, part, 2), ASHLAR_EIO, strerror(EIO));
    CHECK(close(fd) == 0);
}

/* ---- streams ---- */

CASE(a_stream_is_written_to_its_end_or_its_failure_is_told) {
    fail(WRITE, 1, EINTR);
    CHECK(ashlar__stream_write_line("/dev/null", "{}", 2) == ASHLAR_OK);
    has_failed(WRITE);
    for (int nth = 1; nth <= 2; nth++) { /* the text, and the end of line */
        fail(WRITE, nth, EPIPE);
        CHECK_FAILS(ashlar__stream_write_line("/dev/null", "{}", 2), ASHLAR_EIO, strerror(EPIPE));
    }
    fail(CLOSE, 1, EDQUOT); /* a network's file system tells that late */
    CHECK_FAILS(ashlar__stream_write_line("/dev/null", "{}", 2), ASHLAR_EIO, strerror(EDQUOT));
    fail(WRITE, 1, EPIPE);
    fail(CLOSE, 1, EDQUOT);
    CHECK_FAILS(ashlar__stream_write_line("/dev/null", "{}", 2), ASHLAR_EIO, strerror(EPIPE));
}

static void take_without_descriptors(void) {
    struct rlimit before, none;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = before;
    none.rlim_cur = STDERR_FILENO + 1;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK_FAILS(ashlar__stream_take_stdout(), ASHLAR_EIO, "cannot write to standard output");
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

static void take_a_full_one(void) {
    const int full = open("/dev/full", O_WRONLY), kept = dup(STDOUT_FILENO);
    CHECK(full >= 0 && kept >= 0 && dup2(full, STDOUT_FILENO) >= 0);
    printf("what was printed before");
    const ashlar_status status = ashlar__stream_take_stdout();
    CHECK(dup2(kept, STDOUT_FILENO) >= 0);
    CHECK(status == ASHLAR_EIO);
    CHECK_HAS(ashlar_error_detail(), strerror(ENOSPC));
}

static void take_without_its_place(void) {
    fail(DUP2, 1, EBADF);
    CHECK_FAILS(ashlar__stream_take_stdout(), ASHLAR_EIO, strerror(EBADF));
    has_failed(DUP2);
}

CASE(standard_output_that_cannot_be_taken_is_told) {
    CHECK(run_child(take_without_descriptors) == 0);
    CHECK(run_child(take_a_full_one) == 0);
    CHECK(run_child(take_without_its_place) == 0);
}

RUN_CASES_IN_FOLDER()
