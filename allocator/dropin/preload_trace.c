/* preload_trace.c - ASHLAR_PRELOAD=trace=FILE: a log of each allocator, written while the program
 * runs, or a snapshot at its end. */
#include "allocator/dropin/preload.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ashlar/trace.h>

#include "allocator/base/error.h"
#include "allocator/base/file_buffer.h"
#include "allocator/base/host.h"
#include "allocator/core/allocator_impl.h"
#include "allocator/dropin/devices.h"
#include "allocator/trace/trace_files.h"

#define SNAPSHOT_END ".json"

enum {
    PATH_BYTES = PATH_MAX + 64, /* FILE, and what is added to it; a longer path is refused */
    SNAPSHOT_EVENTS = 100000,   /* kept for a snapshot, unless ASHLAR_CONF=trace=N says more */
};

/* The file of one allocator, which is its listener. Lock: the allocator's. */
typedef struct trace_file {
    int fd;      /* -1: a snapshot, or a log that has ended */
    off_t bytes; /* of the rows in the log */
    char path[PATH_BYTES];
} trace_file;

static void complain(void) {
    ashlar__preload_say("ashlar-preload: trace: %s\n", ashlar_error_detail());
}

/* ---- names ---- */

static bool is_snapshot(const char *name) {
    const size_t bytes = strlen(name), end_bytes = sizeof SNAPSHOT_END - 1;
    return bytes > end_bytes && strcmp(name + bytes - end_bytes, SNAPSHOT_END) == 0;
}

/* FILE; with the process's number in the place of "%p"; with ".N" behind it for device N from 1 on;
 * and with "-K" for the K-th allocator of the device, from 2 on. */
static void name_file(const char *name, int ordinal, unsigned number, char out[static PATH_BYTES]) {
    const char *mark = strstr(name, "%p");
    const size_t before = mark != NULL ? (size_t)(mark - name) : strlen(name);
    char pid[16] = "", device[16] = "", context[16] = "";
    if (mark != NULL) {
        (void)snprintf(pid, sizeof pid, "%ld", (long)getpid());
    }
    if (ordinal > 0) {
        (void)snprintf(device, sizeof device, ".%d", ordinal);
    }
    if (number > 1) {
        (void)snprintf(context, sizeof context, "-%u", number);
    }
    (void)snprintf(out, PATH_BYTES, "%.*s%s%s%s%s", (int)before, name, pid,
                   mark != NULL ? mark + 2 : "", device, context);
}

/* ---- the log ---- */

static ashlar_status fail_errno(const trace_file *file) {
    const int error = errno;
    return ashlar__fail(ASHLAR_EIO,
                        "cannot write %s: %s; check the folder, its permissions and space",
                        file->path, strerror(error));
}

/*
 * Each row is written at once, so that the file has it whatever ends the process. What is written
 * of a row in part is taken back. False: errno says why.
 */
static bool write_row(trace_file *file, const char *row, size_t bytes) {
    ssize_t put;
    do {
        put = write(file->fd, row, bytes);
    } while (put < 0 && errno == EINTR);
    if (put == (ssize_t)bytes) {
        file->bytes += put;
        return true;
    }
    const int error = put < 0 ? errno : ENOSPC;
    (void)(ftruncate(file->fd, file->bytes) == 0); /* or else the last row is cut short */
    errno = error;
    return false;
}

static void close_log(trace_file *file) {
    if (file->fd >= 0) {
        (void)close(file->fd);
        file->fd = -1;
    }
}

/*
 * ashlar_trace_listener.tell, for a log. Leaves the thread's error detail alone, which may be that
 * of the request; and a thread that the program has cancelled must not end here, with the lock.
 */
static void tell(void *self, const ashlar_trace_event *event) {
    trace_file *file = self;
    char row[ASHLAR_TRACE_ROW_BYTES];
    int before;
    const size_t bytes = file->fd >= 0 ? ashlar__trace_print_rmm(event, row) : 0;
    if (bytes == 0) {
        return;
    }
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    if (!write_row(file, row, bytes)) {
        ashlar__preload_say("ashlar-preload: trace: cannot write %s: %s; the trace ends here\n",
                            file->path, strerror(errno));
        close_log(file);
    }
    (void)pthread_setcancelstate(before, NULL);
}

/* Open the file, by a descriptor other than the standard ones, which the program may have closed.
 * Neither a link, in whatever folder, nor a device is written to. */
static ashlar_status open_log(trace_file *file) {
    struct stat info;
    const int fd =
        open(file->path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    ASHLAR_TRY(fd < 0 ? fail_errno(file) : ASHLAR_OK);
    file->fd = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const ashlar_status status = file->fd < 0 ? fail_errno(file) : ASHLAR_OK;
    (void)close(fd);
    ASHLAR_FAIL_IF(status == ASHLAR_OK && fstat(file->fd, &info) == 0 && !S_ISREG(info.st_mode),
                   ASHLAR_EINVAL, "%s is not a regular file; give the path of a file", file->path);
    return status;
}

static ashlar_status begin_log(trace_file *file) {
    ASHLAR_TRY(open_log(file));
    if (flock(file->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        return ashlar__fail(ASHLAR_EIO,
                            "another process writes %s; put %%p into the name, which stands for "
                            "the process's number",
                            file->path);
    }
    return ftruncate(file->fd, 0) == 0 &&
                   write_row(file, ASHLAR_TRACE_RMM_COLUMNS, sizeof ASHLAR_TRACE_RMM_COLUMNS - 1)
               ? ASHLAR_OK
               : fail_errno(file);
}

/* ---- allocators ---- */

/* Have the allocator keep events, if its snapshot can be written as things are. */
static ashlar_status begin_snapshot(const trace_file *file, ashlar_allocator *a) {
    ashlar_file_buffer *trial = NULL;
    ASHLAR_TRY(ashlar__file_buffer_create(file->path, &trial));
    ashlar__file_buffer_abort(trial);
    ashlar__lock_acquire(&a->lock);
    const ashlar_status status = ashlar__allocator_keep_events(a, SNAPSHOT_EVENTS);
    ashlar__lock_release(&a->lock);
    return status;
}

static void listen_with(ashlar_allocator *a, ashlar_trace_listener listener) {
    ashlar__lock_acquire(&a->lock);
    ashlar__allocator_listen(a, ASHLAR_TRACE_TO_LOG, listener);
    ashlar__lock_release(&a->lock);
}

static void end_file(trace_file *file) {
    close_log(file);
    ashlar__host_free(file);
}

static ashlar_status begin_file(ashlar_allocator *a, trace_file **out) {
    static unsigned counts[ASHLAR_DROPIN_DEVICES_MAX]; /* Lock: the one that on_made() runs under */
    const char *name = ashlar__preload_options_get()->trace;
    const int ordinal = ashlar_allocator_device(a)->info.ordinal;
    trace_file *file;
    ASHLAR_CHECK2(ordinal >= 0 && ordinal < ASHLAR_DROPIN_DEVICES_MAX);
    ASHLAR_HOST_NEW(file, 1, "no host memory for a trace");
    file->fd = -1;
    name_file(name, ordinal, ++counts[ordinal], file->path);
    ASHLAR_HAND_OUT(is_snapshot(name) ? begin_snapshot(file, a) : begin_log(file), file, end_file,
                    out);
}

void ashlar__preload_trace_begin(ashlar_allocator *a) {
    trace_file *file = NULL;
    if (begin_file(a, &file) != ASHLAR_OK) {
        complain();
        return;
    }
    listen_with(a, (ashlar_trace_listener){.tell = file->fd >= 0 ? tell : NULL, .self = file});
}

void ashlar__preload_trace_snapshot(ashlar_allocator *a) {
    const trace_file *file = a->ring.listeners[ASHLAR_TRACE_TO_LOG].self;
    if (file != NULL && is_snapshot(ashlar__preload_options_get()->trace) &&
        ashlar_allocator_write_snapshot(a, file->path) != ASHLAR_OK) {
        complain();
    }
}

void ashlar__preload_trace_end(ashlar_allocator *a) {
    trace_file *file = a->ring.listeners[ASHLAR_TRACE_TO_LOG].self;
    if (file != NULL) {
        ashlar__preload_trace_snapshot(a);
        listen_with(a, (ashlar_trace_listener){0});
        end_file(file);
    }
}
