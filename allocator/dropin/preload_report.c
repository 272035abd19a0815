/* preload_report.c - the words of ASHLAR_PRELOAD, and what they ask to be written: the report at
 * the end of the process, and a log of each allocator, while the program runs, or a snapshot. */
#include "allocator/dropin/preload.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ashlar/trace.h>

#include "allocator/base/error.h"
#include "allocator/base/file.h"
#include "allocator/base/host.h"
#include "allocator/base/parse.h"
#include "allocator/core/core.h"
#include "allocator/trace/trace.h"

enum { LINE_BYTES = ASHLAR_DETAIL_BYTES + 256 };

/* Print on stderr, in one call, so that lines of processes do not mix. Longer lines are cut. */
static void preload_say(const char *format, ...) {
    char line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    ASHLAR_CHECK2(length > 0);
    const size_t bytes = length < LINE_BYTES ? (size_t)length : sizeof line;
    line[sizeof line - 1] = '\n'; /* of a line that was cut */
    const ssize_t written = write(STDERR_FILENO, line, bytes);
    (void)written; /* nobody to tell */
}

/* ---- traces ---- */

#define SNAPSHOT_END ".json"

enum {
    PATH_BYTES = PATH_MAX + 64, /* FILE, and what is added to it; a longer path is refused */
    SNAPSHOT_EVENTS = 100000,   /* kept for a snapshot, unless ASHLAR_CONF=trace=N says more */
};

/* The trace file of one allocator, to which its trace listener writes. Lock: the allocator's. */
typedef struct trace_file {
    int fd;      /* -1: a snapshot, or a log that has ended */
    off_t bytes; /* of the rows in the log */
    char path[PATH_BYTES];
} trace_file;

static void complain(void) {
    preload_say("ashlar-preload: trace: %s\n", ashlar_error_detail());
}

static bool is_snapshot(const char *name) {
    const size_t bytes = strlen(name), end_bytes = sizeof SNAPSHOT_END - 1;
    return bytes > end_bytes && strcmp(name + bytes - end_bytes, SNAPSHOT_END) == 0;
}

/* Name an allocator's trace file: FILE, with the process's number in the place of "%p", with ".N"
 * behind it for device N from 1 on, and with "-K" for the device's K-th allocator, from 2 on. */
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

static ashlar_status fail_errno(const trace_file *file) {
    const int error = errno;
    return ashlar__fail(ASHLAR_EIO,
                        "cannot write %s: %s; check the folder, its permissions and space",
                        file->path, strerror(error));
}

/* Write a row at once, so that the file has it whatever ends the process. If only a part can be
 * written, that is cut off again. False: errno says why. */
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

/* ashlar_trace_listener.tell, for a log. It must not change the thread's error detail, which may be
 * that of a failed request; nor may a cancelled thread end in write(), since it holds the lock. */
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
        preload_say("ashlar-preload: trace: cannot write %s: %s; the trace ends here\n", file->path,
                    strerror(errno));
        close_log(file);
    }
    (void)pthread_setcancelstate(before, NULL);
}

/* Open the file by a descriptor above those of the standard streams, which the program may have
 * closed. Refuses symbolic links and devices. */
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

/* Have the allocator keep events for a snapshot, if a file of that name can be made now. */
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

static void trace_begin(ashlar_allocator *a) {
    trace_file *file = NULL;
    if (begin_file(a, &file) != ASHLAR_OK) {
        complain();
        return;
    }
    listen_with(a, (ashlar_trace_listener){.tell = file->fd >= 0 ? tell : NULL, .self = file});
}

static void trace_snapshot(ashlar_allocator *a) {
    const trace_file *file = a->ring.listeners[ASHLAR_TRACE_TO_LOG].self;
    if (file != NULL && is_snapshot(ashlar__preload_options_get()->trace) &&
        ashlar_allocator_write_snapshot(a, file->path) != ASHLAR_OK) {
        complain();
    }
}

static void trace_end(ashlar_allocator *a) {
    trace_file *file = a->ring.listeners[ASHLAR_TRACE_TO_LOG].self;
    if (file != NULL) {
        trace_snapshot(a);
        listen_with(a, (ashlar_trace_listener){0});
        end_file(file);
    }
}

/* ---- options ---- */

static ashlar_preload_options options;

/* Read "trace=FILE". */
static bool read_trace(ashlar_piece word) {
    const ashlar_piece key = ashlar__piece_cut(&word, '=');
    if (!ashlar__piece_is(key, "trace") || word.bytes == 0 || word.bytes >= sizeof options.trace) {
        return false;
    }
    memcpy(options.trace, word.text, word.bytes);
    options.trace[word.bytes] = '\0';
    return true;
}

static void read_word(ashlar_piece word) {
    char shown[ASHLAR_SHOWN_BYTES];
    if (ashlar__piece_is(word, "off")) {
        options.is_off = true;
    } else if (ashlar__piece_is(word, "report")) {
        options.reports = true;
    } else if (ashlar__piece_is(word, "ipc")) {
        options.leaves_plain = true;
    } else if (!ashlar__piece_is(word, "on") && !read_trace(word)) {
        options.is_off = true;
        preload_say("ashlar-preload: ASHLAR_PRELOAD: \"%s\" is none of on, off, report, "
                    "trace=FILE, ipc; taken for off\n",
                    ashlar__piece_show(word, shown));
    }
}

static void read_options(void) {
    const char *text = secure_getenv("ASHLAR_PRELOAD");
    ashlar_piece rest = ashlar__piece_of(text == NULL ? "" : text);
    while (rest.bytes > 0) {
        read_word(ashlar__piece_cut(&rest, ','));
    }
    if (options.trace[0] != '\0') {
        ashlar__dropin_on_made(trace_begin);
    }
}

const ashlar_preload_options *ashlar__preload_options_get(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_options);
    return &options;
}

/* ---- the report ---- */

typedef struct totals {
    uint64_t allocations, mapped, live_peak_bytes, reserved_peak_bytes;
} totals;

static _Atomic uint64_t passed;
static totals given_up; /* of devices that were reset and contexts that ended */

void ashlar__preload_note_passed(void) {
    atomic_fetch_add_explicit(&passed, 1, memory_order_relaxed);
}

void ashlar__preload_note_refusal(void) {
    static atomic_flag is_told = ATOMIC_FLAG_INIT;
    if (options.reports && !atomic_flag_test_and_set(&is_told)) {
        preload_say("ashlar-preload: left to the driver: %s\n", ashlar_error_detail());
    }
}

void ashlar__preload_note_unexported(void) {
    static atomic_flag is_told = ATOMIC_FLAG_INIT;
    if (options.reports && !atomic_flag_test_and_set(&is_told)) {
        preload_say("ashlar-preload: cuIpcGetMemHandle cannot export this memory; "
                    "ASHLAR_PRELOAD=ipc leaves cudaMalloc() to the driver, which can\n");
    }
}

static void add(totals *sum, const ashlar_frees *frees) {
    ashlar_stats stats;
    ashlar_allocator_get_stats(frees->allocator, &stats);
    sum->allocations += stats.alloc_count;
    sum->mapped += stats.served_mapped;
    sum->live_peak_bytes += stats.live_peak_bytes;
    sum->reserved_peak_bytes += stats.reserved_peak_bytes;
}

void ashlar__preload_note_end(const ashlar_frees *frees) {
    add(&given_up, frees);
    trace_end(frees->allocator);
}

static void print_report(void) {
    totals sum = given_up;
    int place = 0;
    for (const ashlar_frees *f = ashlar__frees_each(&place); f != NULL;
         f = ashlar__frees_each(&place)) {
        add(&sum, f);
    }
    preload_say("ashlar-preload: %llu allocations, %llu of them took memory from the "
                "driver; at most %llu bytes live, %llu reserved; %llu went to the driver\n",
                (unsigned long long)sum.allocations, (unsigned long long)sum.mapped,
                (unsigned long long)sum.live_peak_bytes,
                (unsigned long long)sum.reserved_peak_bytes,
                (unsigned long long)atomic_load(&passed));
}

/* Runs at the end of the process, after the program's own exit handlers. It makes no driver call,
 * since the driver may be gone. */
__attribute__((destructor)) static void end_process(void) {
    int place = 0;
    if (options.is_off || ashlar__dropin_is_forked()) {
        return;
    }
    for (const ashlar_frees *f = ashlar__frees_each(&place); f != NULL;
         f = ashlar__frees_each(&place)) {
        trace_snapshot(f->allocator);
    }
    if (options.reports) {
        print_report();
    }
}
