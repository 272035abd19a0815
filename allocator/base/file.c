/* file.c - replacing a file whole: the temporary, its lock, the rename; removing stale ones. */
#include "allocator/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

enum { SUFFIX_BYTES = 48 }; /* room for ".<process>.<number>.tmp" and its 0 */
_Static_assert(SUFFIX_BYTES >= sizeof ".-9223372036854775808.4294967295.tmp", "for any numbers");

struct ashlar_file {
    int fd;                /* of the temporary; -1: not open */
    mode_t mode;           /* permissions of the file to be replaced; 0: no such file */
    char target[PATH_MAX]; /* if the file exists, without symbolic links */
    char temporary[PATH_MAX + SUFFIX_BYTES]; /* its path; "": there is none to remove */
};

/* ---- temporaries that killed writers left ---- */

/* Whether the open file still has its name. If it has been unlinked, another file may have got the
 * name since, and unlinking the name would remove that other file. */
static bool has_name(int fd) {
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink > 0;
}

bool ashlar__file_lock(int fd) {
    ASHLAR_CHECK2(fd >= 0);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        return errno != EWOULDBLOCK; /* other errors: no locks here, so nobody removes the file */
    }
    return has_name(fd);
}

/* The rest of `text` after a leading ".<digits>"; NULL: it has no such beginning. */
static const char *skip_number(const char *text) {
    const size_t digits = *text == '.' ? strspn(text + 1, "0123456789") : 0;
    return digits > 0 ? text + 1 + digits : NULL;
}

static bool is_temporary(const char *name, const char *base) {
    const size_t bytes = strlen(base);
    const char *next = strncmp(name, base, bytes) == 0 ? skip_number(name + bytes) : NULL;
    next = next != NULL ? skip_number(next) : NULL;
    return next != NULL && strcmp(next, ".tmp") == 0;
}

static void remove_if_stale(int folder, const char *name) {
    /* Non-blocking: if the name is a pipe, a blocking open would wait for the pipe's writer. */
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && has_name(fd)) {
        (void)unlinkat(folder, name, 0);
    }
    (void)close(fd);
}

void ashlar__file_remove_stale(const char *target) {
    char path[PATH_MAX];
    const char *slash = strrchr(target, '/');
    const char *base = slash != NULL ? slash + 1 : target;
    const size_t bytes = (size_t)(base - target); /* of the folder's path and its slash */
    if (bytes >= sizeof path) {
        return;
    }
    memcpy(path, target, bytes);
    path[bytes] = '\0';
    DIR *folder = opendir(bytes > 0 ? path : ".");
    if (folder == NULL) {
        return; /* creating the temporary will fail too, and say why */
    }
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        if (is_temporary(entry->d_name, base)) {
            remove_if_stale(dirfd(folder), entry->d_name);
        }
    }
    (void)closedir(folder);
}

/* ---- writing ---- */

static ashlar_status fail_errno(const char *verb, const char *path) {
    const int error = errno;
    return ashlar__fail(ASHLAR_EIO, "cannot %s %s: %s; check the folder, its permissions and space",
                        verb, path, strerror(error));
}

static ashlar_status resolve_target(ashlar_file *file, const char *path) {
    struct stat info;
    if (realpath(path, file->target) == NULL) {
        if (errno == ENOENT && lstat(path, &info) == 0) {
            return ashlar__fail(ASHLAR_EINVAL,
                                "%s is a link to nothing; remove it, or make the file", path);
        }
        /* Usually the file does not exist yet. Any other problem shows when the temporary opens. */
        const size_t bytes = strlen(path) + 1;
        if (bytes == 1 || bytes > sizeof file->target) {
            return ashlar__fail(ASHLAR_EINVAL, "a path of %zu bytes; give 1 .. %zu", bytes - 1,
                                sizeof file->target - 1);
        }
        memcpy(file->target, path, bytes);
    } else if (stat(file->target, &info) == 0) {
        if (!S_ISREG(info.st_mode)) {
            /* A rename would replace a device file; over a folder it would fail, after all work. */
            return ashlar__fail(ASHLAR_EINVAL, "%s is not a regular file; give the path of a file",
                                path);
        }
        file->mode = info.st_mode & 0777;
    }
    return ASHLAR_OK;
}

/* Create and lock a new temporary. It gets the old file's permissions, if there is an old file. */
static ashlar_status open_temporary(ashlar_file *file) {
    static atomic_uint next_number;
    bool is_ours;
    do {
        ASHLAR_CHECK2(file->fd < 0); /* an open descriptor would leak */
        const int bytes =
            snprintf(file->temporary, sizeof file->temporary, "%s.%ld.%u.tmp", file->target,
                     (long)getpid(), atomic_fetch_add(&next_number, 1));
        ASHLAR_CHECK2(bytes > 0 && (size_t)bytes < sizeof file->temporary);
        (void)bytes;
        file->fd = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        /* EEXIST: a process with our number, on another machine or long gone, made this name. */
        is_ours = file->fd >= 0 ? ashlar__file_lock(file->fd) : errno != EEXIST;
        if (file->fd >= 0 && !is_ours) {
            (void)close(file->fd);
            file->fd = -1;
        }
    } while (!is_ours);
    if (file->fd < 0) {
        const ashlar_status status = fail_errno("create", file->temporary);
        file->temporary[0] = '\0'; /* not created, so not ours to remove */
        return status;
    }
    if (file->mode != 0 && fchmod(file->fd, file->mode) != 0) {
        return fail_errno("set the permissions of", file->temporary);
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__file_create(const char *path, ashlar_file **out) {
    ashlar_file *file = ashlar__host_calloc(1, sizeof *file);
    if (file == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory to write %s", path);
    }
    file->fd = -1;
    ashlar_status status = resolve_target(file, path);
    if (status == ASHLAR_OK) {
        ashlar__file_remove_stale(file->target);
        status = open_temporary(file);
    }
    if (status != ASHLAR_OK) {
        ashlar__file_abort(file);
        return status;
    }
    *out = file;
    return ASHLAR_OK;
}

ashlar_status ashlar__file_write(ashlar_file *file, const void *data, size_t bytes) {
    enum { WRITE_MAX = 1 << 30 }; /* Linux writes no more than 2^31 - 4096 bytes at once */
    const char *next = data;
    ASHLAR_CHECK2(file->fd >= 0);
    while (bytes > 0) {
        const ssize_t put = write(file->fd, next, bytes < WRITE_MAX ? bytes : WRITE_MAX);
        if (put < 0 && errno != EINTR) {
            return fail_errno("write", file->temporary);
        }
        ASHLAR_CHECK2(put < 0 || (size_t)put <= bytes);
        if (put > 0) {
            next += put;
            bytes -= (size_t)put;
        }
    }
    return ASHLAR_OK;
}

/* Make the target's folder durable: without this a crash may undo the rename. */
static ashlar_status sync_folder(ashlar_file *file) {
    char *slash = strrchr(file->target, '/');
    const char *folder = ".";
    if (slash == file->target) {
        folder = "/";
    } else if (slash != NULL) {
        *slash = '\0';
        folder = file->target;
    }
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* EINVAL: this file system cannot sync a folder, so nothing more can be done. */
    const bool synced = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL);
    ashlar_status status = ASHLAR_OK;
    if (!synced) {
        status = ashlar__fail(ASHLAR_EIO,
                              "the file is written, but its folder %s cannot be made durable: %s",
                              folder, strerror(errno));
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return status;
}

ashlar_status ashlar__file_commit(ashlar_file *file) {
    ashlar_status status = ASHLAR_OK;
    ASHLAR_CHECK2(file->fd >= 0 && file->temporary[0] != '\0'); /* created, and not ended yet */
    if (fsync(file->fd) != 0) {
        status = fail_errno("make durable", file->temporary);
    }
    /* Rename before closing: closing drops the lock, and an unlocked temporary may be removed. */
    if (status == ASHLAR_OK && rename(file->temporary, file->target) != 0) {
        status = fail_errno("replace", file->target);
    }
    if (status == ASHLAR_OK) {
        file->temporary[0] = '\0'; /* the temporary is the target now */
        status = sync_folder(file);
    }
    ashlar__file_abort(file);
    return status;
}

void ashlar__file_abort(ashlar_file *file) {
    if (file == NULL) {
        return;
    }
    if (file->fd >= 0) {
        (void)close(file->fd);
    }
    if (file->temporary[0] != '\0') {
        (void)unlink(file->temporary);
    }
    ashlar__host_free(file);
}

ashlar_status ashlar__file_write_line(const char *path, const char *text, size_t bytes) {
    ashlar_file *file = NULL;
    ashlar_status status = ashlar__file_create(path, &file);
    if (status != ASHLAR_OK) {
        return status;
    }
    status = ashlar__file_write(file, text, bytes);
    if (status == ASHLAR_OK) {
        status = ashlar__file_write(file, "\n", 1);
    }
    if (status != ASHLAR_OK) {
        ashlar__file_abort(file);
        return status;
    }
    return ashlar__file_commit(file);
}
