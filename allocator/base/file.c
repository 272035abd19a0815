/* file.c - replacing a file whole, or not at all. */
#include "allocator/base/file.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/file_target.h"
#include "allocator/base/file_temporary.h"
#include "allocator/base/host.h"

struct ashlar_file {
    char path[PATH_MAX]; /* as the caller gave it, for messages */
    ashlar_file_target target;
    ashlar_file_temporary temporary;
};

static ashlar_status fail_errno(const char *verb, const ashlar_file *file) {
    const int error = errno;
    return ashlar__fail(ASHLAR_EIO, "cannot %s %s: %s; check the folder, its permissions and space",
                        verb, file->path, strerror(error));
}

static ashlar_status open_file(ashlar_file *file, const char *path) {
    ASHLAR_TRY(ashlar__file_target_find(path, &file->target));
    ASHLAR_CHECK2(strlen(path) < sizeof file->path); /* a longer one is refused */
    memcpy(file->path, path, strlen(path) + 1);
    ashlar__temporary_remove_stale(file->target.folder, file->target.base);
    return ashlar__temporary_open(&file->temporary, file->target.folder, file->target.base)
               ? ASHLAR_OK
               : fail_errno("create", file);
}

ashlar_status ashlar__file_create(const char *path, ashlar_file **out) {
    ashlar_file *file;
    ASHLAR_HOST_NEW(file, 1, "no host memory to write %s", path);
    file->target.folder = -1;
    file->temporary.fd = -1;
    ASHLAR_HAND_OUT(open_file(file, path), file, ashlar__file_abort, out);
}

ashlar_status ashlar__file_write(ashlar_file *file, const void *data, size_t bytes) {
    enum { WRITE_MAX = 1 << 30 }; /* Linux writes no more than 2^31 - 4096 bytes at once */
    const char *next = data;
    ASHLAR_CHECK2(file->temporary.fd >= 0);
    while (bytes > 0) {
        const ssize_t put = write(file->temporary.fd, next, bytes < WRITE_MAX ? bytes : WRITE_MAX);
        if (put < 0 && errno != EINTR) {
            return fail_errno("write", file);
        }
        ASHLAR_CHECK2(put < 0 || (size_t)put <= bytes);
        if (put > 0) {
            next += put;
            bytes -= (size_t)put;
        }
    }
    return ASHLAR_OK;
}

/*
 * Set the permissions of the target: those of the file that it replaces or, if there is none, those
 * that the umask gives. If another user owns the replaced file, its permissions only narrow those
 * of the umask: that user may have put it there to read or change the new contents.
 */
static ashlar_status set_mode(const ashlar_file *file) {
    const ashlar_file_target *target = &file->target;
    const bool is_foreign = target->exists && target->owner != geteuid();
    const mode_t mode = !target->exists ? file->temporary.mode
                        : is_foreign    ? target->mode & file->temporary.mode
                                        : target->mode;
    struct stat info;
    if (fstat(file->temporary.fd, &info) == 0 && (info.st_mode & 0777) == mode) {
        return ASHLAR_OK; /* file systems with a single mode refuse to set one */
    }
    return fchmod(file->temporary.fd, mode) == 0 || !target->exists
               ? ASHLAR_OK
               : fail_errno("set the permissions of the new", file);
}

static ashlar_status replace(ashlar_file *file) {
    ASHLAR_TRY(set_mode(file));
    if (fsync(file->temporary.fd) != 0) {
        return fail_errno("make durable", file);
    }
    if (!ashlar__temporary_place(&file->temporary)) {
        return fail_errno("replace", file);
    }
    /* Without this a crash may undo the rename. EINVAL: this file system cannot sync a folder, so
     * nothing more can be done. */
    if (fsync(file->target.folder) != 0 && errno != EINVAL) {
        return ashlar__fail(ASHLAR_EIO, "%s is written, but its folder cannot be made durable: %s",
                            file->path, strerror(errno));
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__file_commit(ashlar_file *file) {
    ASHLAR_CHECK2(file->temporary.fd >= 0); /* created, and not ended yet */
    const ashlar_status status = replace(file);
    ashlar__file_abort(file);
    return status;
}

void ashlar__file_abort(ashlar_file *file) {
    if (file == NULL) {
        return;
    }
    ashlar__temporary_close(&file->temporary);
    if (file->target.folder >= 0) {
        (void)close(file->target.folder);
    }
    ashlar__host_free(file);
}

ashlar_status ashlar__file_write_line(const char *path, const char *text, size_t bytes) {
    ashlar_file *file = NULL;
    ASHLAR_TRY(ashlar__file_create(path, &file));
    ashlar_status status = ashlar__file_write(file, text, bytes);
    ASHLAR_THEN(status, ashlar__file_write(file, "\n", 1));
    if (status != ASHLAR_OK) {
        ashlar__file_abort(file);
        return status;
    }
    return ashlar__file_commit(file);
}
