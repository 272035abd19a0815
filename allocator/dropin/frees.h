/*
 * frees.h - memory with the promises of cudaMalloc() and cudaFree(): a block is for any stream, and
 * a freed one is reused when all work submitted before the free is over; but the host does not wait
 * (internal to the drop-in libraries).
 *
 * Freed blocks gather. When a request finds no free memory, the blocks gathered so far become a
 * batch, with events behind all work that may still use them. The events are recorded later than
 * the frees, so they cover all that was submitted before. When all have completed, the batch is
 * free. We poll them for about as long as mapping more memory takes, and then map more instead.
 * Once most of the memory waits in batches, the host waits, too.
 *
 * Each non-blocking stream gets an event of its own: we are told when one is made, and one that is
 * destroyed leaves an event behind its last work. One event on the legacy stream covers all the
 * others, since that stream comes after them. Nothing better covers the default streams of other
 * threads, which we cannot name. But that event is a barrier between blocking streams, so we record
 * one for a batch, and only when memory is wanted.
 *
 * While any stream is captured we record and query no event, and the blocks stay until later. If we
 * are not told of streams, one wait on the host stands for the events of a batch.
 *
 * Batches end in the order in which they were made. So one that waits for the last event of a
 * destroyed stream delays those behind it.
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
/* NULL: none has been made, or this is a forked child. */
ashlar_frees *ashlar__frees_peek(int ordinal);

/*
 * The same for page-locked host memory. Every device may use it, so we are not told of all its
 * streams, and a wait for every device stands for events.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__frees_of_host(int ordinal, ashlar_frees **out);
ashlar_frees *ashlar__frees_peek_host(void);

/* The same for a context of the program's, by its place (devices.h). Dropping it ends all blocks.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__frees_of_context(int place, ashlar_frees **out);
ashlar_frees *ashlar__frees_peek_context(int place);
void ashlar__frees_drop_context(int place);

/*
 * Iterate over devices and contexts, or over those that may have a block at `ptr`. Set *place to 0
 * before the first call. NULL: no more.
 * Threads: any.  Cost: O(places).
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

/* Bytes that are reserved and in no live block: to the program these are free. */
size_t ashlar__frees_spare_bytes(const ashlar_frees *frees);

/*
 * Wait for all work that may use freed blocks, and give all that is free back to the driver. True:
 * there was something.
 * Threads: any.  Stream: waits on the host.
 */
bool ashlar__frees_give_back(ashlar_frees *frees);

/*
 * As cudaFree(), but the host does not wait. The block may come from either call above.
 * Threads: any.  Errors: ASHLAR_EPOINTER (nothing changes); in a guard mode those of ashlar_free().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__frees_free(ashlar_frees *frees, void *ptr);

/*
 * Answer a free of the program's, on any device: for all streams, or in the order of one. True: it
 * was ours to answer, and *result is CUDA's code. That includes a pointer into our memory that is
 * no live block: CUDA knows the segments that blocks are cut from, and might free one.
 * Threads: any.
 */
bool ashlar__frees_answer(void *ptr, const ashlar_stream *stream, cu_result *result);
/* The same for page-locked host memory. */
bool ashlar__frees_answer_host(void *ptr, cu_result *result);

/*
 * Call it when the program is about to wait for all work of the device. Events recorded now have
 * completed when memory is wanted next, and delay no stream that is not waited for anyway.
 * Threads: any.  Stream: may record events.
 */
void ashlar__frees_cover(ashlar_frees *frees);

/*
 * Call these after a non-blocking stream of the device's primary context was made, and before a
 * stream is destroyed. Where that cannot be noted, the host waits from then on.
 */
void ashlar__frees_add_stream(ashlar_frees *frees, ashlar_stream stream);
void ashlar__frees_end_stream(ashlar_frees *frees, ashlar_stream stream);

/*
 * Call these before a stream is captured, and after. In between we record and query no event, and
 * the allocator makes its driver calls so that they do not invalidate the capture.
 */
void ashlar__frees_begin_capture(ashlar_frees *frees);
void ashlar__frees_end_capture(ashlar_frees *frees);

/* There may be streams that we are not told of: wait on the host from now on. Threads: any. */
void ashlar__frees_distrust_streams(ashlar_frees *frees);

/* Tests: reuse freed blocks at once, which cudaFree() does not promise. */
void ashlar__frees_trust_all(ashlar_frees *frees);

/*
 * Leave the device to the driver: return all memory, live blocks too. From now on
 * ashlar__frees_of() fails with ASHLAR_ENOTSUP. Threads: no other call for the device is under way.
 */
void ashlar__frees_give_up(int ordinal);

/* Tests: forget everything, after ashlar__dropin_forget(). No other call is under way. */
void ashlar__frees_forget(void);

#endif /* ASHLAR_DROPIN_FREES_H */
