/* frees_wait.c - finding out whether the work submitted before frees is over; the streams that do
 * such work, and the captures that a program has under way. */
#include "allocator/dropin/frees.h"

#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allocator/base/host.h"
#include "allocator/base/error.h"
#include "allocator/base/threads.h"
#include "allocator/core/core.h"

/* How long the host polls without a pause; after that, how long it sleeps between two queries. */
enum { SPIN_NS = 50 * 1000 };

/*
 * Wait for a device while one of its streams is captured, when a plain wait is refused: allocate a
 * byte and free it, since cuMemFree() waits ("Managing memory allocations using cudaMalloc and
 * cudaFree causes the GPU to synchronize across all executing CUDA streams": CUDA Programming
 * Guide, 4.3.1), as the program's call would without us. If the driver has not even a byte, give
 * idle memory of ours back to it first.
 */
static ashlar_status wait_by_driver(ashlar_frees *f) {
    ashlar_driver *driver = f->device->driver;
    cu_ptr ptr = 0;
    cu_result result;
    ASHLAR_TRY(ashlar__device_enter(f->device));
    do {
        result = ASHLAR_DRIVER_CALL(driver, mem_alloc, (&ptr, 1));
    } while (result == CU_OUT_OF_MEMORY &&
             ashlar__allocators_give_back(driver, f->device->info.ordinal, NULL, 1, false, NULL));
    if (result == CU_SUCCESS) {
        result = ASHLAR_DRIVER_CALL(driver, mem_free, (ptr));
    }
    ashlar__device_leave(f->device);
    return result == CU_SUCCESS ? ASHLAR_OK : ashlar__driver_error(driver, "cuMemFree", result);
}

ashlar_status ashlar__frees_synchronize(ashlar_frees *f, bool is_capturing) {
    return f->is_host     ? ashlar__device_synchronize_all(f->device)
           : is_capturing ? wait_by_driver(f)
                          : ashlar__device_try_synchronize(f->device);
}

bool ashlar__frees_wait(ashlar_frees *f, bool is_capturing) {
    const ashlar_device_wait wait = ashlar__deferred_begin_wait(f->allocator);
    return ashlar__frees_synchronize(f, is_capturing) == ASHLAR_OK &&
           ashlar__deferred_end_wait(f->allocator, wait);
}

static ashlar_status poll(ashlar_frees *f, uint64_t ns, bool *has_any) {
    const struct timespec pause = {.tv_nsec = SPIN_NS};
    const uint64_t start = ashlar__clock_ns();
    ashlar_status status = ashlar__deferred_ask(f->allocator, has_any);
    for (uint64_t spent = 0; status == ASHLAR_OK && !*has_any && spent < ns;
         spent = ashlar__clock_ns() - start) {
        if (spent > SPIN_NS) {
            (void)nanosleep(&pause, NULL);
        }
        status = ashlar__deferred_ask(f->allocator, has_any);
    }
    return status;
}

bool ashlar__frees_reap(ashlar_frees *f, uint64_t ns, bool in_need) {
    bool has_any = false, is_capturing;
    if (!ashlar__has_deferred(f->allocator)) {
        return false;
    }
    is_capturing = ashlar__frees_settle_captures();
    if (!atomic_load(&f->is_distrusted)) {
        const ashlar_status status = poll(f, ns, &has_any);
        if (status == ASHLAR_OK || (status == ASHLAR_EINVAL && !in_need)) {
            return has_any;
        }
        if (status == ASHLAR_EINVAL) {
            is_capturing = true; /* perhaps by a capture that we do not know of */
        } else {
            ashlar__frees_distrust_streams(f); /* the program may have destroyed a stream in a way
                                                * that we do not intercept */
        }
    }
    return ashlar__frees_wait(f, is_capturing);
}

/* No lock is held during a wait. */
bool ashlar__frees_reclaim(void *user, size_t bytes) {
    ashlar_frees *f = user;
    (void)bytes;
    bool has_any = false;
    while (ashlar__has_deferred(f->allocator) &&
           (ashlar__frees_reap(f, 0, true) ||
            (!atomic_load(&f->is_distrusted) && ashlar__deferred_wait(f->allocator)))) {
        has_any = true;
    }
    return has_any;
}

/* ---- streams ---- */

void ashlar__frees_add_stream(ashlar_frees *f, ashlar_stream stream) {
    ASHLAR_CHECK2(stream != NULL);
    if (ashlar__deferred_add_stream(f->allocator, stream) != ASHLAR_OK) {
        ashlar__frees_distrust_streams(f);
    }
}

void ashlar__frees_end_stream(ashlar_frees *f, ashlar_stream stream) {
    ashlar__frees_drop_captures(f, &stream);
    ashlar__allocator_end_stream(f->allocator, stream);
}

void ashlar__frees_end_stream_anywhere(ashlar_stream stream) {
    int place = 0;
    for (ashlar_frees *f = ashlar__frees_each(&place); f != NULL && ashlar__stream_can_end(stream);
         f = ashlar__frees_each(&place)) {
        ashlar__frees_end_stream(f, stream); /* only one device knows it; the others do nothing */
    }
}

/* Read the flag first: some callers call this at every allocation, and a write would take the cache
 * line from all threads. */
void ashlar__frees_distrust_streams(ashlar_frees *f) {
    if (!atomic_load_explicit(&f->is_distrusted, memory_order_relaxed)) {
        atomic_store(&f->is_distrusted, true);
    }
}

void ashlar__frees_watch(ashlar_frees *f, ashlar_stream stream) {
    if (ashlar__stream_can_end(stream) &&
        atomic_load_explicit(&f->is_distrusted, memory_order_relaxed) &&
        !atomic_load_explicit(&f->is_told, memory_order_relaxed) &&
        !atomic_load_explicit(&f->is_watching, memory_order_relaxed)) {
        ashlar_allocator_watch_streams(f->allocator);
        atomic_store(&f->is_watching, true);
    }
}

ashlar_status ashlar__frees_tell_ends(ashlar_frees *f) {
    if (atomic_load(&f->is_watching)) {
        return ashlar__fail(ASHLAR_EINVAL,
                            "device %d: cudaMallocAsync() or cudaFreeAsync() has named a stream "
                            "whose end nobody tells, so there can be no steps; ask for the "
                            "allocator before that",
                            f->device->info.ordinal);
    }
    atomic_store(&f->is_told, true);
    return ASHLAR_OK;
}

/* ---- captures ---- */

/* A capture that is known to be under way. It keeps memory from being reused, so the driver is
 * asked whether it has ended: not every end is reported. */
typedef struct known_capture {
    struct known_capture *next;
    const ashlar_frees *frees;
    ashlar_stream stream;
    long thread; /* the thread that began the capture */
    bool is_on;  /* the driver's call that begins the capture has returned; before that, the driver
                    cannot be asked about it */
} known_capture;

static ashlar_lock captures_lock = ASHLAR_LOCK(ASHLAR_LEVEL_CAPTURES);
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

/* If host memory runs out, the capture is not counted. Then only the driver's answers protect it:
 * before an event is recorded on a stream, it is asked whether that one is captured. */
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
