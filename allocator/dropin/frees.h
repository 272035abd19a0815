/*
 * frees.h - memory with the promises of cudaMalloc() and cudaFree(): any stream may use a block,
 * and a freed block is reused once all work submitted before the free is over; but the host does
 * not wait (internal to the drop-in libraries).
 *
 * Freed blocks wait in the allocator (core/deferred_free.c) for events on all streams. The program
 * or libashlar-preload.so tells us when a non-blocking stream is made, and before it is destroyed.
 * The legacy stream waits for all others, so an event on it covers them, even other threads'
 * default streams, whose handles this thread does not have. If we are not told of all non-blocking
 * streams, a wait for the device replaces the events.
 *
 * When a request finds no free memory, events are recorded behind all work, and queried for about
 * as long as mapping more memory takes. Then the request takes more, or has free memory moved to
 * where it fits; but the more is reserved, the longer it first looks for the end of work that uses
 * freed blocks. So where the work is over, or soon will be, about a sixth more is reserved than
 * was ever live, and else three quarters more, unless the work lasts so long that cudaFree() would
 * have waited for a second. More is reserved where long-lived blocks leave free memory in pieces.
 *
 * If much was freed at once, events are recorded and queried before the next request is served:
 * then the freed memory merges first, and the events follow no work of the next step.
 *
 * frees.c takes and frees blocks; frees_wait.c finds out whether work still uses freed ones, and
 * knows the streams and captures.
 *
 * Before a capture of a stream begins, events are recorded behind all frees, so that freed blocks
 * can become free meanwhile. During a capture a free waits on the host, as cudaFree() does.
 */
#ifndef ASHLAR_DROPIN_FREES_H
#define ASHLAR_DROPIN_FREES_H

#include <stdatomic.h>

#include <ashlar/allocator.h>

#include "allocator/core/core.h"
#include "allocator/dropin/devices.h"

/*
 * An allocator of one device or context, or of page-locked host memory, with the freed blocks that
 * wait there. Any device may use host memory, so its streams cannot all be known: instead of
 * recording events, the host waits for every device.
 *
 * Invariant: is_host => is_distrusted
 */
typedef struct ashlar_frees {
    ashlar_allocator *allocator; /* const once is_ready */
    ashlar_device *device;       /* const once is_ready */
    bool is_host;
    atomic_bool is_ready;
    atomic_bool is_given_up;   /* the program has reset the device: the driver serves it now */
    atomic_bool is_distrusted; /* there may be streams that we do not know */
    atomic_bool is_watching;   /* calls named unknown streams: the allocator watches streams */
    atomic_bool is_told;       /* the program tells of the end of each stream that it names */
} ashlar_frees;

/*
 * _at: the ashlar_frees of a place (devices.h), made with its allocator at the first call. _of: of
 * a device. _peek: NULL if there is none yet, or in a forked child. Threads: any.
 * Errors: those of ashlar__dropin_at(), ASHLAR_ENOTSUP (given up), ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__frees_at(int place, int ordinal, ashlar_frees **out);
static inline ashlar_status ashlar__frees_of(int ordinal, ashlar_frees **out) {
    return ashlar__frees_at(ashlar__dropin_place(ordinal), ordinal, out);
}
ashlar_frees *ashlar__frees_peek(int place);

/* End the ashlar_frees of a context that the program made, with its allocator and all blocks. */
void ashlar__frees_drop_context(int place);

/* _each: iterate over the ashlar_frees of devices and contexts. _next: over those that may have a
 * block at `ptr`. Set *place to 0 first. NULL: no more. Threads: any. Cost: O(places). */
ashlar_frees *ashlar__frees_each(int *place);
ashlar_frees *ashlar__frees_next(int *place, const void *ptr);

/* Like cudaMalloc(), but in a step of the calling thread like cudaMallocAsync() on the step's
 * stream, unless a stream is captured. Threads: any. Stream: may record events; may wait on the
 * host for work that was submitted before a free. Errors: those of ashlar_alloc(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__frees_alloc(ashlar_frees *frees, size_t bytes, void **out);
/* Like cudaMallocAsync(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__frees_alloc_on(ashlar_frees *frees, size_t bytes,
                                                       ashlar_stream stream, void **out);

/* Reserved bytes that requests can get, at once or after a wait, so that a program may count them
 * as free. Empties the caches. O(blocks). */
size_t ashlar__frees_spare_bytes(ashlar_frees *frees);

/* Wait for all work that may use freed blocks, and give free memory back to the driver, until at
 * most `kept_bytes` are reserved. Returns whether there was any memory to give back. Threads: any.
 * Stream: waits on the host. */
bool ashlar__frees_give_back(ashlar_frees *frees, size_t kept_bytes);

/* Like cudaFree(), but the host waits only during a capture, and for a block that a plan served and
 * that outlives its step. In a step of the calling thread, a block that was taken for the step's
 * stream is freed in the order of that stream. The block may come from either allocating function
 * above. Threads: any. Errors: ASHLAR_EPOINTER (nothing changes); in a guard
 * mode those of ashlar_free(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__frees_free(ashlar_frees *frees, void *ptr);

/* Try to answer a free by the program: for all streams, or in the order of `stream`. Returns true,
 * with CUDA's code in *result, if the pointer lies in our memory, even outside all live blocks:
 * CUDA must not see such a pointer, since it might free a whole segment of ours. Threads: any. */
bool ashlar__frees_answer(void *ptr, const ashlar_stream *stream, cu_result *result);
/* Like ashlar__frees_answer(), for page-locked host memory. */
bool ashlar__frees_answer_host(void *ptr, cu_result *result);

/* _add_stream: call it after making a non-blocking stream in the context of `frees`. _end_stream:
 * call it before destroying a stream; _end_stream_anywhere: if its context is not known. If host
 * memory for noting a stream runs out, the host waits for the device from then on. */
void ashlar__frees_add_stream(ashlar_frees *frees, ashlar_stream stream);
void ashlar__frees_end_stream(ashlar_frees *frees, ashlar_stream stream);
void ashlar__frees_end_stream_anywhere(ashlar_stream stream);

/*
 * Call _begin_capture() before a capture of a stream begins, and _note_capture() when it has begun
 * or has failed to. Until a capture ends, the allocator avoids driver calls that would invalidate
 * it. _settle_captures() asks the driver which captures have ended, so that nobody needs to report
 * their ends, and returns whether any goes on. The functions that return memory call it, too.
 */
void ashlar__frees_begin_capture(ashlar_frees *frees, ashlar_stream stream);
void ashlar__frees_note_capture(ashlar_stream stream, bool has_begun);
bool ashlar__frees_settle_captures(void);

/* From now on the program calls _end_stream for each stream that it has named, so that streams need
 * not be watched, and steps can have plans. Threads: any. Errors: ASHLAR_EINVAL (it has named one
 * before, and streams are watched). */
ASHLAR_MUST_CHECK ashlar_status ashlar__frees_tell_ends(ashlar_frees *frees);

/* From now on assume that there may be unknown streams, and wait on the host. Threads: any. */
void ashlar__frees_distrust_streams(ashlar_frees *frees);

/* Leave the device to the driver: return all memory, even live blocks; from now on
 * ashlar__frees_of() fails with ASHLAR_ENOTSUP. Threads: no other call for the device may be under
 * way. */
void ashlar__frees_give_up(int ordinal);

/* For tests: forget every ashlar_frees, after ashlar__dropin_forget() has forgotten the allocators.
 * No other call may be under way. */
void ashlar__frees_forget(void);

/* ---- frees.c and frees_wait.c only ---- */

/*
 * Find out whether the work before some frees is over: query once, or repeatedly for up to `ns`
 * nanoseconds until it is. If not all streams are known, wait for the device instead; if in_need,
 * also where a capture forbids to record events. Returns whether any blocks became free.
 */
bool ashlar__frees_reap(ashlar_frees *frees, uint64_t ns, bool in_need);

/* Wait on the host for all work of the device, even if is_capturing; for page-locked host memory,
 * for that of all devices, which fails during a capture. _wait: also free the blocks that were
 * freed before; returns whether there were any. */
ASHLAR_MUST_CHECK ashlar_status ashlar__frees_synchronize(ashlar_frees *frees, bool is_capturing);
bool ashlar__frees_wait(ashlar_frees *frees, bool is_capturing);

/* Have the allocator watch streams if `stream` may be destroyed without our being told of it. */
void ashlar__frees_watch(ashlar_frees *frees, ashlar_stream stream);

/*
 * Forget the captures of a stream that is about to end; NULL: of all streams. After its end the
 * driver can no longer be asked about them.
 */
void ashlar__frees_drop_captures(const ashlar_frees *frees, const ashlar_stream *stream);

/* An ashlar_reclaim_fn, with an ashlar_frees as `user`: wait until all freed blocks are free. */
bool ashlar__frees_reclaim(void *user, size_t bytes);

#endif /* ASHLAR_DROPIN_FREES_H */
