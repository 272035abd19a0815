/* file_buffer.c - writing a file whole, or not at all. */
#include "allocator/base/file_buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/check_level.h"
#include "allocator/base/clock.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

enum {
    LINKS_MAX = 8,
    BUFFER_BYTES = 1 << 16,
    SUFFIX_BYTES = sizeof ".ashlar-0123456789abcdef.tmp" - 1
};

/* Invariant between calls: used < BUFFER_BYTES. */
struct ashlar_file_buffer {
    char path[PATH_MAX];     /* as the caller gave it, or where its links lead */
    const char *base;        /* the target's name: the end of `path` */
    int link_count;          /* that were followed to `path` */
    int folder, fd;          /* the target's folder; the new file; -1: none */
    struct stat target;      /* st_nlink 0: there is no such file yet */
    char name[NAME_MAX + 1]; /* of the new file, in the folder; "": it has the target's */
    ashlar_status status;    /* of the first write that failed; ASHLAR_OK: none failed */
    size_t used;             /* bytes of `bytes` that wait to be written */
    char bytes[BUFFER_BYTES];
};

static ashlar_status fail_errno(const char *verb, const ashlar_file_buffer *f) {
    const int error = errno;
    return ashlar__fail(ASHLAR_EIO, "cannot %s %s: %s; check the folder, its permissions and space",
                        verb, f->path, strerror(error));
}

/* Whether a link leads on, and to where: a step, so that each link's folder is looked at. Where
 * everybody may make files, such as in /tmp, anybody may have put it there. */
static bool is_followed(ashlar_file_buffer *f) {
    struct stat folder;
    char target[PATH_MAX] = "";
    if (!S_ISLNK(f->target.st_mode) || fstat(f->folder, &folder) != 0 ||
        (folder.st_mode & S_IWOTH) != 0 || f->link_count == LINKS_MAX) {
        return false;
    }
    const ssize_t bytes = readlinkat(f->folder, f->base, target, sizeof target - 1);
    const size_t kept = target[0] == '/' ? 0 : (size_t)(f->base - f->path);
    if (bytes <= 0 || (size_t)bytes >= sizeof f->path - kept) {
        return false;
    }
    memcpy(f->path + kept, target, (size_t)bytes + 1);
    f->link_count++;
    (void)close(f->folder);
    return true;
}

static ashlar_status find_target(ashlar_file_buffer *f) {
    char folder[PATH_MAX];
    const char *slash = strrchr(f->path, '/');
    f->base = slash != NULL ? slash + 1 : f->path;
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(f->base - f->path), f->path);
    f->folder = open(slash != NULL ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ASHLAR_TRY(f->folder < 0 ? fail_errno("write", f) : ASHLAR_OK);
    if (fstatat(f->folder, f->base, &f->target, AT_SYMLINK_NOFOLLOW) != 0 && *f->base != '\0') {
        f->target.st_nlink = 0;
        return errno == ENOENT ? ASHLAR_OK : fail_errno("write", f);
    }
    if (is_followed(f)) {
        return find_target(f);
    }
    ASHLAR_FAIL_IF(*f->base == '\0' || !S_ISREG(f->target.st_mode), ASHLAR_EINVAL, /* "x/" */
                   "%s is not a regular file; give the path of a file%s", f->path,
                   S_ISLNK(f->target.st_mode)
                       ? ", not that of a link that leads nowhere or lies where "
                         "everybody may put one"
                       : "");
    return ASHLAR_OK;
}

static ashlar_status make_new(ashlar_file_buffer *f) {
    do { /* the number makes the name new; nobody has to be unable to guess it */
        (void)snprintf(f->name, sizeof f->name, "%.*s.ashlar-%016" PRIx64 ".tmp",
                       NAME_MAX - SUFFIX_BYTES, f->base,
                       (uint64_t)ashlar__clock_ns() ^ (uint64_t)getpid() << 40);
        f->fd = openat(f->folder, f->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    } while (f->fd < 0 && errno == EEXIST);
    return f->fd < 0 ? fail_errno("create", f) : ASHLAR_OK;
}

ashlar_status ashlar__file_buffer_create(const char *path, ashlar_file_buffer **out) {
    const size_t bytes = strlen(path);
    ASHLAR_FAIL_IF(bytes == 0 || bytes >= PATH_MAX, ASHLAR_EINVAL,
                   "a path of %zu bytes; give 1 .. %d", bytes, PATH_MAX - 1);
    ashlar_file_buffer *f;
    ASHLAR_HOST_NEW(f, 1, "no host memory to write %s", path);
    memcpy(f->path, path, bytes);
    f->folder = f->fd = -1;
    ashlar_status status = find_target(f);
    ASHLAR_THEN(status, make_new(f));
    ASHLAR_HAND_OUT(status, f, ashlar__file_buffer_abort, out);
}

bool ashlar__file_write_all(int fd, const char *text, size_t bytes) {
    while (bytes > 0) {
        const ssize_t put = write(fd, text, bytes); /* Linux cuts what is too much at once */
        if (put < 0 && errno != EINTR) {
            return false;
        }
        text += put > 0 ? put : 0;
        bytes -= put > 0 ? (size_t)put : 0;
    }
    return true;
}

static void write_out(ashlar_file_buffer *f, const char *text, size_t bytes) {
    if (f->status == ASHLAR_OK && !ashlar__file_write_all(f->fd, text, bytes)) {
        f->status = fail_errno("write", f);
    }
}

ashlar_status ashlar__file_buffer_put(ashlar_file_buffer *f, const void *data, size_t bytes) {
    ASHLAR_CHECK2(f->used < BUFFER_BYTES);
    if (bytes >= BUFFER_BYTES - f->used) {
        write_out(f, f->bytes, f->used);
        f->used = 0;
    }
    if (bytes >= BUFFER_BYTES) {
        write_out(f, data, bytes);
    } else if (bytes > 0) { /* else there may be no data */
        memcpy(f->bytes + f->used, data, bytes);
        f->used += bytes;
    }
    return f->status;
}

void ashlar__file_buffer_print(ashlar_file_buffer *f, const char *format, ...) {
    char text[ASHLAR_FILE_BUFFER_PRINT_BYTES];
    va_list args;
    va_start(args, format);
    const int bytes = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ASHLAR_ASSERT(bytes >= 0 && (size_t)bytes < sizeof text);
    (void)ashlar__file_buffer_put(f, text, (size_t)bytes);
}

/* From /proc, since umask() would change it for a moment in which other threads may make files. */
static mode_t read_umask(void) {
    char text[512] = ""; /* its beginning */
    const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    const ssize_t bytes = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    const char *mask = bytes > 0 ? strstr(text, "\nUmask:") : NULL;
    (void)(fd >= 0 && close(fd));
    return mask == NULL ? 077 : (mode_t)strtoul(mask + strlen("\nUmask:"), NULL, 8) & 0777;
}

/* The permissions of the file that is replaced or, without one, what the umask gives. If another
 * user owns it, only what both give: that user may have put it there to read the new one. */
static ashlar_status set_mode(const ashlar_file_buffer *f) {
    const bool is_new = f->target.st_nlink == 0;
    const mode_t mask = is_new || f->target.st_uid != geteuid() ? 0666 & ~read_umask() : 0777;
    return fchmod(f->fd, (is_new ? 0666 : f->target.st_mode) & mask) == 0 || is_new
               ? ASHLAR_OK /* file systems with a single mode refuse to set one */
               : fail_errno("set the permissions of the new", f);
}

static ashlar_status place(ashlar_file_buffer *f) {
    ASHLAR_TRY(fsync(f->fd) != 0 ? fail_errno("make durable", f) : ASHLAR_OK);
    if (renameat(f->folder, f->name, f->folder, f->base) != 0) {
        return fail_errno("replace", f);
    }
    f->name[0] = '\0';
    /* Else a crash may undo the rename. EINVAL: this file system cannot sync a folder. */
    return fsync(f->folder) == 0 || errno == EINVAL
               ? ASHLAR_OK
               : fail_errno("make durable the folder of the new", f);
}

ashlar_status ashlar__file_buffer_commit(ashlar_file_buffer *f) {
    write_out(f, f->bytes, f->used);
    ashlar_status status = f->status;
    ASHLAR_THEN(status, set_mode(f));
    ASHLAR_THEN(status, place(f));
    ashlar__file_buffer_abort(f);
    return status;
}

void ashlar__file_buffer_abort(ashlar_file_buffer *f) {
    if (f != NULL && f->fd >= 0) {
        (void)(f->name[0] != '\0' && unlinkat(f->folder, f->name, 0));
        (void)close(f->fd);
    }
    if (f != NULL && f->folder >= 0) {
        (void)close(f->folder);
    }
    ashlar__host_free(f);
}

ashlar_status ashlar__file_write_line(const char *path, const char *text, size_t bytes) {
    ashlar_file_buffer *file;
    ASHLAR_TRY(ashlar__file_buffer_create(path, &file));
    ashlar__file_buffer_put(file, text, bytes);
    ashlar__file_buffer_put(file, "\n", 1);
    return ashlar__file_buffer_commit(file);
}
