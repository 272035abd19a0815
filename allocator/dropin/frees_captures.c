/*
 * frees_captures.c - the captures that a program has under way. Each capture keeps memory from
 * being reused, so one that ends unreported must not stay counted forever.
 */
#include "allocator/dropin/frees_impl.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocator/base/host.h"
#include "allocator/core/streams.h"

typedef struct known_capture {
    struct known_capture *next;
    const ashlar_frees *frees;
    ashlar_stream stream;
    long thread; /* the thread that began the capture */
    bool is_on; /* the driver's call that begins the capture has returned; before that, the driver
                   cannot be asked about it */
} known_capture;

static ashlar_lock captures_lock = ASHLAR_LOCK(ASHLAR_RANK_CAPTURES);
static known_capture *captures;      /* Lock: captures_lock */
static _Atomic size_t capture_count; /* number of `captures`; read without the lock */

static long this_thread(void) {
    return syscall(SYS_gettid);
}

static bool is_gone(long thread) {
    return syscall(SYS_tgkill, (long)getpid(), thread, 0L) != 0 && errno == ESRCH;
}

/* Whether the capture is of another stream. The handle of the per-thread default stream means a
 * different stream in each thread, so the threads are compared, too. */
static bool is_another(const known_capture *c, ashlar_stream stream, long thread) {
    return c->stream != stream || (!ashlar__stream_can_end(stream) && c->thread != thread);
}

static void drop_locked(known_capture **link) {
    ASHLAR_OWNS(&captures_lock);
    known_capture *gone = *link;
    *link = gone->next;
    ashlar__driver_end_capture(gone->frees->device->driver);
    atomic_fetch_sub(&capture_count, 1);
    ashlar__host_free(gone);
}

static bool has_ended(const ashlar_frees *f, ashlar_stream stream) {
    unsigned int status = CU_CAPTURE_ACTIVE;
    if (ashlar__device_enter(f->device) != ASHLAR_OK) {
        return false;
    }
    const cu_result result =
        ASHLAR_DRIVER_CALL(f->device->driver, stream_is_capturing, (stream, &status));
    ashlar__device_leave(f->device);
    return result == CU_SUCCESS && status == CU_CAPTURE_NONE;
}

static bool is_over(const known_capture *c, long thread) {
    if (!c->is_on) {
        return false;
    }
    return c->thread != thread && !ashlar__stream_can_end(c->stream)
               ? is_gone(c->thread)
               : has_ended(c->frees, c->stream);
}

/* If host memory runs out, the capture is not counted; but the driver is asked about all streams
 * that we know anyway. */
void ashlar__frees_begin_capture(ashlar_frees *f, ashlar_stream stream) {
    known_capture *made = ashlar__host_calloc(1, sizeof *made);
    int place = 0;
    if (made == NULL) {
        return;
    }
    *made = (known_capture){.frees = f, .stream = stream, .thread = this_thread()};
    for (ashlar_frees *each = ashlar__frees_each(&place); each != NULL;
         each = ashlar__frees_each(&place)) {
        ashlar__deferred_cover(each->allocator);
    }
    ashlar__lock_acquire(&captures_lock);
    made->next = captures;
    captures = made;
    atomic_fetch_add(&capture_count, 1);
    ashlar__lock_release(&captures_lock);
    ashlar__driver_begin_capture(f->device->driver);
}

void ashlar__frees_note_capture(ashlar_stream stream, bool has_begun) {
    const long thread = this_thread();
    ashlar__lock_acquire(&captures_lock);
    known_capture **link = &captures;
    while (*link != NULL &&
           ((*link)->is_on || (*link)->thread != thread || is_another(*link, stream, thread))) {
        link = &(*link)->next;
    }
    if (*link != NULL && has_begun) {
        (*link)->is_on = true;
    } else if (*link != NULL) {
        drop_locked(link);
    }
    ashlar__lock_release(&captures_lock);
}

/* Called at each free, and at each request that finds nothing at hand. Takes no lock while there
 * are no captures. */
bool ashlar__frees_settle_captures(void) {
    if (atomic_load_explicit(&capture_count, memory_order_relaxed) == 0) {
        return false;
    }
    const long thread = this_thread();
    ashlar__lock_acquire(&captures_lock);
    for (known_capture **link = &captures; *link != NULL;) {
        if (is_over(*link, thread)) {
            drop_locked(link);
        } else {
            link = &(*link)->next;
        }
    }
    const bool has_any = captures != NULL;
    ashlar__lock_release(&captures_lock);
    return has_any;
}

void ashlar__frees_drop_captures(const ashlar_frees *f, const ashlar_stream *stream) {
    const long thread = this_thread();
    ashlar__lock_acquire(&captures_lock);
    for (known_capture **link = &captures; *link != NULL;) {
        if ((*link)->frees == f && (stream == NULL || !is_another(*link, *stream, thread))) {
            drop_locked(link);
        } else {
            link = &(*link)->next;
        }
    }
    ashlar__lock_release(&captures_lock);
}
