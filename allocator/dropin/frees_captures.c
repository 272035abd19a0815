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
    long thread;    /* the thread that began the capture */
    bool is_global; /* other threads' calls for memory would spoil it */
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
    /* First this one, so that the two are never equal while a capture is about to begin. */
    atomic_fetch_sub(&gone->frees->device->driver->begun_count, gone->is_on);
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

/* The allocator counts the capture under its lock, so none begins while it records. If host memory
 * runs out, the capture is not counted; but the driver is asked about all streams that we know
 * anyway. */
void ashlar__frees_begin_capture(ashlar_frees *f, ashlar_stream stream, unsigned int mode) {
    known_capture *made = ashlar__host_calloc(1, sizeof *made);
    if (made == NULL) {
        return;
    }
    *made = (known_capture){.frees = f,
                            .stream = stream,
                            .thread = this_thread(),
                            .is_global = mode == CU_CAPTURE_GLOBAL};
    ashlar__deferred_begin_capture(f->allocator, stream);
    ashlar__lock_acquire(&captures_lock);
    made->next = captures;
    captures = made;
    atomic_fetch_add(&capture_count, 1);
    ashlar__lock_release(&captures_lock);
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
        atomic_fetch_add(&(*link)->frees->device->driver->begun_count, 1);
    } else if (*link != NULL) {
        drop_locked(link);
    }
    ashlar__lock_release(&captures_lock);
}

bool ashlar__frees_knows_captures(void) {
    return atomic_load_explicit(&capture_count, memory_order_relaxed) > 0;
}

static bool is_any_global(void) {
    bool is_any = false;
    ashlar__lock_acquire(&captures_lock);
    for (const known_capture *c = captures; c != NULL; c = c->next) {
        is_any |= c->is_global;
    }
    ashlar__lock_release(&captures_lock);
    return is_any;
}

bool ashlar__frees_leaves_to_driver(const ashlar_frees *f) {
    if (!ashlar__frees_knows_captures()) {
        return false;
    }
    ashlar__frees_settle_captures();
    return ashlar__frees_knows_captures() && !has_ended(f, NULL) && !is_any_global();
}

bool ashlar__frees_is_kept(const ashlar_frees *f) {
    return ashlar__frees_knows_captures() && !f->is_host && !has_ended(f, NULL);
}

/* Called at each request that finds nothing at hand. Takes no lock while there are no captures. */
void ashlar__frees_settle_captures(void) {
    if (atomic_load_explicit(&capture_count, memory_order_relaxed) == 0) {
        return;
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
    ashlar__lock_release(&captures_lock);
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
