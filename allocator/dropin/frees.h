/*
 * frees.h - memory as cudaMalloc() and cudaFree() give it out and take it back: for any stream, and
 * only when everything submitted before the free is over; without stopping the host (internal to
 * the drop-in libraries).
 *
 * Freed blocks gather. When memory is wanted that is not free, those gathered so far become a
 * batch, with events behind all that may still use it: recorded later than the frees, so that they
 * cover what those promise. When all have completed the batch is free; they are asked for no longer
 * than mapping more memory would take, which is what is done otherwise: until most of what there is
 * waits so, when the host waits too.
 *
 * Each non-blocking stream has an event of its own: these streams are told of as they are made, and
 * one that is destroyed leaves an event behind its last work. All others are covered by one event
 * on the legacy stream, which comes after all of them. Nothing better covers the default streams of
 * other threads, which have no name here; but it is a barrier between blocking streams. Therefore
 * it is one for a batch, and only when memory is wanted.
 *
 * While any stream is captured no event is recorded or asked: the blocks stay until later. Where
 * streams are not told of, what stands for the events is a wait on the host, one for a batch.
 *
 * Batches end in the order in which they were made. So a batch that waits for a destroyed stream's
 * last event makes those behind it wait too.
 */
#ifndef ASHLAR_DROPIN_FREES_H
#define ASHLAR_DROPIN_FREES_H

#include <ashlar/allocator.h>

#include "allocator/core/deferred_free.h"

typedef struct ashlar_frees ashlar_frees;

/*
 * What stands beside the allocator of a device (devices.h), made with it at the first call.
 * Threads: any.  Errors: those of ashlar__dropin_allocator(), ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__frees_of(int ordinal, ashlar_frees **out);
/* NULL where none has been made, and in a forked child. */
ashlar_frees *ashlar__frees_peek(int ordinal);

/*
 * The same for page-locked host memory, which every device may use: so streams are not told of, and
 * what is freed is over when every device has been waited for.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__frees_of_host(int ordinal, ashlar_frees **out);
ashlar_frees *ashlar__frees_peek_host(void);

/* The same for a context of the program's, by its place (devices.h); when it ends, all goes. */
ASHLAR_MUST_CHECK ashlar_status ashlar__frees_of_context(int place, ashlar_frees **out);
ashlar_frees *ashlar__frees_peek_context(int place);
void ashlar__frees_drop_context(int place);

/*
 * The next device or context from *place on, *place set behind it; ashlar__frees_next: that may
 * have a block at `ptr`. NULL: none. *place begins at 0.
 * Threads: any.  Cost: a look at each place, and at its range.
 */
ashlar_frees *ashlar__frees_each(int *place);
ashlar_frees *ashlar__frees_next(int *place, const void *ptr);

ashlar_allocator *ashlar__frees_allocator(const ashlar_frees *frees);
ashlar_device *ashlar__frees_device(const ashlar_frees *frees);

/*
 * As cudaMalloc().
 * Threads: any.  Stream: may record events; waits on the host before it says ASHLAR_ENOMEM.
 * Errors: those of ashlar_alloc().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__frees_alloc(ashlar_frees *frees, size_t bytes, void **out);
/* As cudaMallocAsync(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__frees_alloc_on(ashlar_frees *frees, size_t bytes,
                                                       ashlar_stream stream, void **out);

/* Bytes that are reserved and in no live block: what a program may count as free. */
size_t ashlar__frees_spare_bytes(const ashlar_frees *frees);

/*
 * Give back to the driver what is in no live block, once all work that may use it is over. True:
 * there was something.
 * Threads: any.  Stream: waits on the host.
 */
bool ashlar__frees_give_back(ashlar_frees *frees);

/*
 * As cudaFree(), but the host does not wait; however the block was taken.
 * Threads: any.  Errors: ASHLAR_EPOINTER, nothing changes; in a guard mode those of ashlar_free().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__frees_free(ashlar_frees *frees, void *ptr);

/*
 * A free of the program's, of whatever device's memory: for all streams, or in the order of one.
 * True: it is ours to answer, and *result is CUDA's code. A pointer into our memory that is no live
 * block's is: CUDA, which knows the pieces that blocks are cut from, might free one.
 * Threads: any.
 */
bool ashlar__frees_answer(void *ptr, const ashlar_stream *stream, cu_result *result);
/* The same for page-locked host memory. */
bool ashlar__frees_answer_host(void *ptr, cu_result *result);

/*
 * The program is about to wait for all work of the device: events recorded now have completed when
 * memory is wanted next, and hold up no stream that is not waited for anyway.
 * Threads: any.  Stream: may record events.
 */
void ashlar__frees_cover(ashlar_frees *frees);

/*
 * A non-blocking stream of the device's primary context was made; a stream is about to be
 * destroyed. What cannot be noted of it is made up for by waiting on the host from then on.
 */
void ashlar__frees_add_stream(ashlar_frees *frees, ashlar_stream stream);
void ashlar__frees_end_stream(ashlar_frees *frees, ashlar_stream stream);

/*
 * A stream is about to be captured, has been. In between no event is recorded or asked, and the
 * allocator makes its calls so that they spoil no capture.
 */
void ashlar__frees_begin_capture(ashlar_frees *frees);
void ashlar__frees_end_capture(ashlar_frees *frees);

/* Streams are not told of, or not all. Threads: any. */
void ashlar__frees_distrust_streams(ashlar_frees *frees);

/* Tests: frees are believed to be over at once, as cudaFree() does not promise it. */
void ashlar__frees_trust_all(ashlar_frees *frees);

/*
 * The device is not ours any more: all memory goes back, live blocks too, and ashlar__frees_of()
 * refuses with ASHLAR_ENOTSUP. Threads: no other call for the device is under way.
 */
void ashlar__frees_give_up(int ordinal);

/* Tests: forget what there is, after ashlar__dropin_forget(). No other call is under way. */
void ashlar__frees_forget(void);

#endif /* ASHLAR_DROPIN_FREES_H */
