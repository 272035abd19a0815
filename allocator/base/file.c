/* file.c - reading files and pipes; writing a file whole or not at all, a pipe, standard output. */
#include "allocator/base/file.h"

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
#include "allocator/base/error.h"
#include "allocator/base/host.h"

static ashlar_status fail_errno(const char *verb, const char *path) {
    const int error = errno;
    return ashlar__fail(ASHLAR_EIO, "cannot %s %s: %s; check the folder, its permissions and space",
                        verb, path, strerror(error));
}

/* ---- reading ---- */

static ashlar_status fail_read(const char *path) {
    return ashlar__fail(ASHLAR_EIO, "cannot read %s: %s; check the path and its permissions", path,
                        strerror(errno));
}

static ashlar_status check_open_file(int fd, const char *path, size_t *bytes) {
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return fail_read(path);
    }
    ASHLAR_FAIL_IF(!S_ISREG(info.st_mode), ASHLAR_EIO,
                   "cannot read %s: it is no regular file; give a file's path", path);
    *bytes = (size_t)info.st_size;
    return ASHLAR_OK;
}

ashlar_status ashlar__file_open(const char *path, int *fd, size_t *bytes) {
    /* Non-blocking: if `path` is a pipe, a blocking open would wait for the pipe's writer. For a
     * regular file it makes no difference. */
    const int opened = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (opened < 0) {
        return fail_read(path);
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
            return fail_read(path);
        }
        ASHLAR_FAIL_IF(part == 0, ASHLAR_EIO,
                       "cannot read %s: it is shorter than when it was opened", path);
        const size_t got = part > 0 ? (size_t)part : 0;
        next += got;
        bytes -= got;
        offset += got;
    }
    return ASHLAR_OK;
}

/* The caller frees *text, also on failure. */
static ashlar_status read_all(int fd, const char *path, size_t bytes, char **text) {
    ASHLAR_HOST_NEW(*text, bytes + 1, "no host memory for the %zu bytes of %s", bytes, path);
    return ashlar__file_read_at(fd, path, 0, *text, bytes);
}

static ashlar_status hand_out(ashlar_status status, char *text, size_t got, char **out,
                              size_t *bytes) {
    if (status != ASHLAR_OK) {
        ashlar__host_free(text);
        return status;
    }
    *out = text;
    *bytes = got;
    return ASHLAR_OK;
}

ashlar_status ashlar__file_read(const char *path, char **out, size_t *bytes) {
    int fd = -1;
    size_t size = 0;
    char *text = NULL;
    ASHLAR_TRY(ashlar__file_open(path, &fd, &size));
    const ashlar_status status = read_all(fd, path, size, &text);
    (void)close(fd); /* nothing was written: close has nothing to report */
    return hand_out(status, text, size, out, bytes);
}

/* Read to the end without asking for the size, since a pipe has none. The caller frees *text, also
 * on failure. */
static ashlar_status read_to_end(FILE *file, const char *path, char **text, size_t *bytes) {
    size_t capacity = 0, got;
    do { /* the last turn reads nothing, and leaves room for a 0 */
        ASHLAR_HOST_GROW(*text, &capacity, *bytes, "%s: no host memory to read it", path);
        got = fread(*text + *bytes, 1, capacity - *bytes, file);
        *bytes += got;
    } while (got > 0);
    (*text)[*bytes] = '\0';
    return ferror(file) ? fail_read(path) : ASHLAR_OK;
}

ashlar_status ashlar__file_read_stream(const char *path, char **out, size_t *bytes) {
    char *text = NULL;
    size_t got = 0;
    FILE *file = fopen(path, "rbe");
    if (file == NULL) {
        return fail_read(path);
    }
    const ashlar_status status = read_to_end(file, path, &text, &got);
    (void)fclose(file);
    return hand_out(status, text, got, out, bytes);
}

/* ---- a file whole or not at all ---- */

enum {
    LINKS_MAX = 8,
    BUFFER_BYTES = 1 << 16,
    SUFFIX_BYTES = sizeof ".ashlar-0123456789abcdef.tmp" - 1
};

/* Invariant between calls: used < BUFFER_BYTES. */
struct ashlar_file_buffer {
    char path[PATH_MAX];     /* the target's: as the caller gave it, or where its links lead */
    const char *base;        /* the target's name: the end of `path` */
    int link_count;          /* symbolic links followed so far */
    int folder, fd;          /* descriptors of the target's folder and the new file; -1: none */
    struct stat target;      /* what is at `path`; st_nlink 0: there is no such file yet */
    char name[NAME_MAX + 1]; /* the new file's name; "": it has been renamed to the target's */
    ashlar_status status;    /* the error of the first write that failed; ASHLAR_OK: none failed */
    size_t used;             /* bytes of `bytes` that wait to be written */
    char bytes[BUFFER_BYTES];
};

/* If `path` is a symbolic link that may be followed, set it to where the link leads, and return
 * true. One link at a time, so as to see each one's folder: a link in a folder where everybody may
 * make files, such as /tmp, is not followed, since an attacker may have put it there. */
static bool follow_link(ashlar_file_buffer *f) {
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
    ASHLAR_TRY(f->folder < 0 ? fail_errno("write", f->path) : ASHLAR_OK);
    if (fstatat(f->folder, f->base, &f->target, AT_SYMLINK_NOFOLLOW) != 0 && *f->base != '\0') {
        f->target.st_nlink = 0;
        return errno == ENOENT ? ASHLAR_OK : fail_errno("write", f->path);
    }
    if (follow_link(f)) {
        return find_target(f);
    }
    /* `base` is empty if the path ends with a slash. */
    ASHLAR_FAIL_IF(*f->base == '\0' || !S_ISREG(f->target.st_mode), ASHLAR_EINVAL,
                   "%s is not a regular file; give the path of a file%s", f->path,
                   S_ISLNK(f->target.st_mode)
                       ? ", not that of a link that leads nowhere or lies where "
                         "everybody may put one"
                       : "");
    return ASHLAR_OK;
}

static ashlar_status make_new(ashlar_file_buffer *f) {
    do { /* the name only has to be unused: with O_EXCL, it does no harm to guess it */
        (void)snprintf(f->name, sizeof f->name, "%.*s.ashlar-%016" PRIx64 ".tmp",
                       NAME_MAX - SUFFIX_BYTES, f->base,
                       (uint64_t)ashlar__clock_ns() ^ (uint64_t)getpid() << 40);
        f->fd = openat(f->folder, f->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    } while (f->fd < 0 && errno == EEXIST);
    return f->fd < 0 ? fail_errno("create", f->path) : ASHLAR_OK;
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

static bool write_all(int fd, const char *text, size_t bytes) {
    while (bytes > 0) {
        const ssize_t put = write(fd, text, bytes); /* Linux writes at most 2 GiB at once */
        if (put < 0 && errno != EINTR) {
            return false;
        }
        text += put > 0 ? put : 0;
        bytes -= put > 0 ? (size_t)put : 0;
    }
    return true;
}

static void write_out(ashlar_file_buffer *f, const char *text, size_t bytes) {
    if (f->status == ASHLAR_OK && !write_all(f->fd, text, bytes)) {
        f->status = fail_errno("write", f->path);
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
    } else if (bytes > 0) { /* memcpy() of 0 bytes would need a valid `data` all the same */
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

/* The umask, out of /proc: umask() tells it only by setting another one, and other threads might
 * make files meanwhile. 077 if it is not to be had. */
static mode_t read_umask(void) {
    char text[512] = ""; /* the beginning of the file */
    const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    const ssize_t bytes = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    const char *mask = bytes > 0 ? strstr(text, "\nUmask:") : NULL;
    (void)(fd >= 0 && close(fd));
    return mask == NULL ? 077 : (mode_t)strtoul(mask + strlen("\nUmask:"), NULL, 8) & 0777;
}

/* Give the new file the permissions of the one that it replaces or, without one, what the umask
 * gives. If another user owns the old file, only what both give: else that user could put a file
 * there that everybody may read, and wait for us to replace it. */
static ashlar_status set_mode(const ashlar_file_buffer *f) {
    const bool is_new = f->target.st_nlink == 0;
    const mode_t mask = is_new || f->target.st_uid != geteuid() ? 0666 & ~read_umask() : 0777;
    return fchmod(f->fd, (is_new ? 0666 : f->target.st_mode) & mask) == 0 || is_new
               ? ASHLAR_OK /* file systems with a single mode refuse to set one */
               : fail_errno("set the permissions of the new", f->path);
}

static ashlar_status place(ashlar_file_buffer *f) {
    ASHLAR_TRY(fsync(f->fd) != 0 ? fail_errno("make durable", f->path) : ASHLAR_OK);
    if (renameat(f->folder, f->name, f->folder, f->base) != 0) {
        return fail_errno("replace", f->path);
    }
    f->name[0] = '\0';
    /* Without this a crash may undo the rename. EINVAL: this file system cannot sync a folder. */
    return fsync(f->folder) == 0 || errno == EINVAL
               ? ASHLAR_OK
               : fail_errno("make durable the folder of the new", f->path);
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

/* ---- where a program's user wants it ---- */

static int own_stdout = STDOUT_FILENO; /* the descriptor that the path "-" stands for */

static bool is_dash(const char *path) {
    return strcmp(path, "-") == 0;
}

bool ashlar__stream_is(const char *path) {
    struct stat info;
    return is_dash(path) ||
           (stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode));
}

ashlar_status ashlar__stream_take_stdout(void) {
    const int kept = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (kept < 0 || fflush(stdout) != 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        return fail_errno("write", "to standard output");
    }
    own_stdout = kept;
    return ASHLAR_OK;
}

ashlar_status ashlar__stream_write_line(const char *path, const char *text, size_t bytes) {
    const bool is_stdout = is_dash(path);
    if (!ashlar__stream_is(path)) {
        return ashlar__file_write_line(path, text, bytes);
    }
    const int fd = is_stdout ? own_stdout : open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    const char *shown = is_stdout ? "to standard output" : path;
    ashlar_status status = fd >= 0 && write_all(fd, text, bytes) && write_all(fd, "\n", 1)
                               ? ASHLAR_OK
                               : fail_errno("write", shown);
    if (fd >= 0 && !is_stdout && close(fd) != 0 && status == ASHLAR_OK) {
        status = fail_errno("write", shown);
    }
    return status;
}
