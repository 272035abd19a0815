/*
 * share.h - device memory that several processes use at once.
 *
 * The owner takes the memory from an allocator with share=on (config.h), and sends the others a
 * file descriptor, over a Unix socket (SCM_RIGHTS) for instance:
 *
 *     ashlar_share_export(allocator, block, &file, &bytes, &offset);
 *
 * Each of the others (which may be owners of other memory, too):
 *
 *     ashlar_share_import(device, file, bytes, &base);   the block is at base + offset
 *     ashlar_share_close(device, base, bytes);
 *
 * Nothing orders the work of one process with that of another: they must agree on who writes when.
 * The physical memory lives until the owner has freed it and every other process has closed it, or
 * has ended. An owner that frees the block may get the segment's memory again, for another block,
 * while others still see it.
 */
#ifndef ASHLAR_SHARE_H
#define ASHLAR_SHARE_H

#include <ashlar/allocator.h>

ASHLAR_BEGIN_DECLS

/* The size of each segment is a multiple of this many bytes; 1: the allocator has share=off. If new
 * memory is taken for a block of such a size, the block has the segment to itself. Threads: any. */
ASHLAR_API size_t ashlar_share_granularity(const ashlar_allocator *allocator);

/*
 * The segment that a live block lies in, whole: what NCCL registers, and what a process imports.
 *
 * ptr           the block, or an address in it
 * base, bytes   unchanged on failure; a multiple of 2 MiB, like what CUDA recommends
 *
 * Threads: any.  Cost: a lock and a search; no driver call.
 * Errors:  ASHLAR_EPOINTER (no live block), ASHLAR_ENOTSUP (the allocator has share=off).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_share_segment(ashlar_allocator *allocator,
                                                                const void *ptr, void **base,
                                                                size_t *bytes);

/*
 * Make a file descriptor of that segment.
 *
 * file     the descriptor, which is closed by exec
 * bytes    of the segment
 * offset   of `ptr` in the segment
 *
 * Ownership: the caller closes *file, at any time: what was imported stays.
 * Threads:   any.
 * Errors:    those of ashlar_share_segment(), and ASHLAR_EDRIVER. Nothing is written then.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_share_export(ashlar_allocator *allocator,
                                                               const void *ptr, int *file,
                                                               size_t *bytes, size_t *offset);

/*
 * Map a segment of another process, or of this one once more.
 *
 * file    its descriptor, which the caller may close afterwards
 * bytes   of the segment
 * base    where it lies here; unchanged on failure
 *
 * Ownership: the caller ends the mapping by ashlar_share_close(). It is no block of an allocator.
 * Threads:   any.
 * Errors:    ASHLAR_EINVAL (no bytes), ASHLAR_EDRIVER (no descriptor of a segment, another size),
 *            ASHLAR_ENOMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_share_import(ashlar_device *device, int file,
                                                               size_t bytes, void **base);

/*
 * Unmap what ashlar_share_import() has mapped. No queued work may use it any more; the call may
 * wait for the device. Errors: ASHLAR_EDRIVER; then it is still mapped.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_share_close(ashlar_device *device, void *base,
                                                              size_t bytes);

ASHLAR_END_DECLS

#endif /* ASHLAR_SHARE_H */
