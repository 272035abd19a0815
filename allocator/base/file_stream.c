/* file_stream.c - writing a text into a file, a pipe, or to standard output. */
#include "allocator/base/file_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "allocator/base/file_buffer.h"

static int own_stdout = STDOUT_FILENO; /* what "-" means */

static bool is_dash(const char *path) {
    return strcmp(path, "-") == 0;
}

bool ashlar__stream_is(const char *path) {
    struct stat info;
    return is_dash(path) ||
           (stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode));
}

static ashlar_status fail_errno(const char *path) {
    const int error = errno;
    return ashlar__fail(ASHLAR_EIO, "cannot write %s: %s",
                        is_dash(path) ? "to standard output" : path, strerror(error));
}

ashlar_status ashlar__stream_take_stdout(void) {
    const int kept = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (kept < 0 || fflush(stdout) != 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        return fail_errno("-");
    }
    own_stdout = kept;
    return ASHLAR_OK;
}

ashlar_status ashlar__stream_write_line(const char *path, const char *text, size_t bytes) {
    if (!ashlar__stream_is(path)) {
        return ashlar__file_write_line(path, text, bytes);
    }
    const int fd = is_dash(path) ? own_stdout : open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0) {
        return fail_errno(path);
    }
    ashlar_status status =
        ashlar__file_write_all(fd, text, bytes) && ashlar__file_write_all(fd, "\n", 1)
            ? ASHLAR_OK
            : fail_errno(path);
    if (!is_dash(path) && close(fd) != 0 && status == ASHLAR_OK) {
        status = fail_errno(path);
    }
    return status;
}
