/*
 * test_file_faults.c - what the system may refuse while a file is read or written: the target stays
 * as it was, the failure is named, and what was only interrupted goes on.
 */
#include "allocator/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "allocator/base/host.h"
#include "tests/allocator/base/file_fixture.h"

/* ---- in place of the C library's ---- */

typedef enum call { CLOSE, FCHMOD, FSTAT, FSTATAT, FSYNC, OPENAT, PREAD, READ, WRITE, CALLS } call;

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

int close(int fd) {
    const int result = (int)syscall(SYS_close, fd);
    return fails(CLOSE) ? -1 : result; /* as in Linux it is closed all the same */
}

int fchmod(int fd, mode_t mode) {
    return fails(FCHMOD) ? -1 : (int)syscall(SYS_fchmod, fd, mode);
}

int fstat(int fd, struct stat *info) {
    return fails(FSTAT) ? -1 : (int)syscall(SYS_fstat, fd, info);
}

int fstatat(int folder_fd, const char *name, struct stat *info, int flags) {
    return fails(FSTATAT) ? -1 : (int)syscall(SYS_newfstatat, folder_fd, name, info, flags);
}

int fsync(int fd) {
    return fails(FSYNC) ? -1 : (int)syscall(SYS_fsync, fd);
}

static int made_with; /* the flags of the last file that was to be made */

int openat(int from, const char *name, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const bool has_mode = (flags & O_CREAT) != 0;
    const mode_t mode = has_mode ? va_arg(more, mode_t) : 0;
    va_end(more);
    made_with = flags;
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

static ashlar_status write_words(const char *name, const char *words) {
    ashlar_file_buffer *file;
    ASHLAR_TRY(ashlar__file_buffer_create(name, &file));
    ashlar__file_buffer_put(file, words, strlen(words));
    return ashlar__file_buffer_commit(file);
}

static ashlar_status replace_by(const char *words) {
    return write_words(path, words);
}

CASE(a_file_that_cannot_be_written_or_made_durable_is_left) {
    write_bytes("old", 3);
    fail(WRITE, 1, ENOSPC);
    CHECK_FAILS(replace_by("new"), ASHLAR_EIO, "write");
    CHECK_HAS(ashlar_error_detail(), strerror(ENOSPC));
    CHECK(is_alone_with("old"));
    fail(FSYNC, 1, EIO);
    CHECK_FAILS(replace_by("new"), ASHLAR_EIO, "cannot make durable");
    CHECK(is_alone_with("old"));
}

CASE(a_folder_that_cannot_be_made_durable_is_told_unless_it_never_can) {
    write_bytes("old", 3);
    fail(FSYNC, 2, EIO);
    CHECK_FAILS(replace_by("new"), ASHLAR_EIO, "cannot make durable the folder of");
    CHECK(is_alone_with("new"));
    fail(FSYNC, 2, EINVAL);
    CHECK(replace_by("newer") == ASHLAR_OK);
    has_failed(FSYNC);
    CHECK(is_alone_with("newer"));
}

/* The mode of a file that is replaced is kept, or nothing is replaced. */
CASE(a_mode_that_cannot_be_set_matters_where_a_file_had_one) {
    struct stat info;
    write_bytes("old", 3);
    REQUIRE(chmod(path, 0640) == 0);
    fail(FCHMOD, 1, EPERM);
    CHECK_FAILS(replace_by("new"), ASHLAR_EIO, "cannot set the permissions of the new");
    CHECK(is_alone_with("old"));
    (void)unlink(path);
    const mode_t before = umask(022);
    fail(FCHMOD, 1, EPERM);
    CHECK(replace_by("new") == ASHLAR_OK);
    has_failed(FCHMOD);
    CHECK(stat(path, &info) == 0 && (info.st_mode & 0777) == 0600);
    (void)umask(before);
}

CASE(a_name_that_is_taken_is_drawn_again_and_one_that_is_refused_is_told) {
    (void)unlink(path);
    fail(OPENAT, 1, EEXIST);
    CHECK(replace_by("new") == ASHLAR_OK);
    has_failed(OPENAT);
    CHECK(is_alone_with("new"));
    CHECK((made_with & O_EXCL) != 0); /* whatever else may have that name */
    fail(OPENAT, 1, EACCES);
    CHECK_FAILS(replace_by("newer"), ASHLAR_EIO, "cannot create");
    CHECK(is_alone_with("new"));
}

/* The umask can be read in one place only; else it is taken for the strictest. */
CASE(a_umask_that_cannot_be_read_opens_a_file_to_nobody) {
    struct stat info;
    const mode_t before = umask(022);
    (void)unlink(path);
    fail(READ, 1, EIO);
    CHECK(replace_by("new") == ASHLAR_OK);
    has_failed(READ);
    CHECK(stat(path, &info) == 0 && (info.st_mode & 0777) == 0600);
    (void)umask(before);
}

/* ---- reading ---- */

CASE(a_read_that_is_interrupted_goes_on_and_one_that_fails_is_named) {
    char *text = NULL, part[3] = "";
    size_t bytes = 0;
    int fd = -1;
    write_bytes("abc", 3);
    fail(PREAD, 1, EINTR);
    REQUIRE(ashlar__file_read(path, &text, &bytes) == ASHLAR_OK);
    has_failed(PREAD);
    CHECK(bytes == 3 && strcmp(text, "abc") == 0);
    ashlar__host_free(text);
    text = NULL;
    fail(PREAD, 1, EIO);
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

RUN_CASES_IN_FOLDER()
