/* file_read.c - reading files and pipes to their end. */
#include "allocator/base/file_read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

static ashlar_status fail_errno(const char *path) {
    return ashlar__fail(ASHLAR_EIO, "cannot read %s: %s; check the path and its permissions", path,
                        strerror(errno));
}

/* Read up to *bytes bytes, and set *bytes to the number read. It is smaller if the file has shrunk
 * since the caller asked for its size. */
static ashlar_status read_into(int fd, const char *path, char *text, size_t *bytes) {
    size_t got = 0;
    while (got < *bytes) {
        const ssize_t part = read(fd, text + got, *bytes - got);
        if (part < 0 && errno != EINTR) {
            return fail_errno(path);
        }
        if (part == 0) {
            break;
        }
        got += part > 0 ? (size_t)part : 0;
    }
    ASHLAR_CHECK2(got <= *bytes);
    *bytes = got;
    return ASHLAR_OK;
}

static ashlar_status read_open_file(int fd, const char *path, size_t got, char **out,
                                    size_t *bytes) {
    char *text = ashlar__host_calloc(got + 1, 1);
    if (text == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for the %zu bytes of %s", got, path);
    }
    const ashlar_status status = read_into(fd, path, text, &got);
    if (status != ASHLAR_OK) {
        ashlar__host_free(text);
        return status;
    }
    ASHLAR_CHECK2(text[got] == '\0');
    *out = text;
    *bytes = got;
    return ASHLAR_OK;
}

static ashlar_status check_open_file(int fd, const char *path, size_t *bytes) {
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return fail_errno(path);
    }
    if (!S_ISREG(info.st_mode)) {
        return ashlar__fail(ASHLAR_EIO, "cannot read %s: it is no regular file; give a file's path",
                            path);
    }
    ASHLAR_CHECK2(info.st_size >= 0);
    *bytes = (size_t)info.st_size;
    return ASHLAR_OK;
}

ashlar_status ashlar__file_open(const char *path, int *fd, size_t *bytes) {
    /* Non-blocking: if `path` is a pipe, a blocking open would wait for the pipe's writer. For a
     * regular file it makes no difference. */
    const int opened = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (opened < 0) {
        return fail_errno(path);
    }
    const ashlar_status status = check_open_file(opened, path, bytes);
    if (status != ASHLAR_OK) {
        (void)close(opened);
        return status;
    }
    *fd = opened;
    return ASHLAR_OK;
}

ashlar_status ashlar__file_read_at(int fd, const char *path, size_t offset, void *out,
                                   size_t bytes) {
    char *next = out;
    while (bytes > 0) {
        const ssize_t part = pread(fd, next, bytes, (off_t)offset);
        if (part < 0 && errno != EINTR) {
            return fail_errno(path);
        }
        if (part == 0) {
            return ashlar__fail(ASHLAR_EIO, "cannot read %s: it is shorter than when it was opened",
                                path);
        }
        if (part > 0) {
            next += part;
            bytes -= (size_t)part;
            offset += (size_t)part;
        }
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__file_read(const char *path, char **out, size_t *bytes) {
    int fd = -1;
    size_t size = 0;
    ASHLAR_TRY(ashlar__file_open(path, &fd, &size));
    const ashlar_status status = read_open_file(fd, path, size, out, bytes);
    (void)close(fd); /* nothing was written: close has nothing to report */
    return status;
}

/* Read to the end without asking for the size, since a pipe has none. *text is NULL and *bytes 0 at
 * first. The caller frees *text, also on failure. */
static ashlar_status read_to_end(FILE *file, const char *path, char **text, size_t *bytes) {
    enum { FIRST = 1 << 16 };
    for (size_t capacity = 0;;) {
        if (*bytes == capacity) {
            capacity = capacity == 0 ? FIRST : 2 * capacity;
            char *grown = ashlar__host_realloc(*text, capacity + 1, 1);
            if (grown == NULL) {
                return ashlar__fail(ASHLAR_EHOSTMEM, "%s: no host memory to read it", path);
            }
            *text = grown;
        }
        ASHLAR_CHECK2(*bytes < capacity);
        const size_t got = fread(*text + *bytes, 1, capacity - *bytes, file);
        *bytes += got;
        if (got == 0) {
            (*text)[*bytes] = '\0';
            return ferror(file) ? fail_errno(path) : ASHLAR_OK;
        }
    }
}

ashlar_status ashlar__file_read_stream(const char *path, char **out, size_t *bytes) {
    char *text = NULL;
    size_t got = 0;
    FILE *file = fopen(path, "rbe");
    if (file == NULL) {
        return fail_errno(path);
    }
    const ashlar_status status = read_to_end(file, path, &text, &got);
    (void)fclose(file); /* nothing was written: close has nothing to report */
    if (status != ASHLAR_OK) {
        ashlar__host_free(text);
        return status;
    }
    *out = text;
    *bytes = got;
    return ASHLAR_OK;
}
