/*
 * nvtx_memory.h - an allocator's blocks told to NVTX's memory extension, so that tools see them
 * (internal).
 *
 * To the driver all blocks of a handle are one allocation: Compute Sanitizer's memcheck finds an
 * access between them, or to a freed one, only if it is told of them. Here each handle (without
 * virtual memory: each segment) is a heap of NVTX, and each block a region, by the bytes that were
 * asked for, under its tag's name. A region lies in one heap, so that a block over several handles
 * has a region in each.
 *
 * Lock: the allocator's, held, in every function.
 */
#ifndef ASHLAR_NVTX_MEMORY_H
#define ASHLAR_NVTX_MEMORY_H

#include <stddef.h>

#include "allocator/trace/trace_ring.h"

typedef struct ashlar_nvtx_memory ashlar_nvtx_memory;

/*
 * handle_bytes  the size of the handles of which MAP and UNMAP events tell, maybe several at a
 *               time; 0: each such event is of one segment
 *
 * Errors: ASHLAR_ENOTSUP (a build without NVTX's headers), ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__nvtx_memory_create(size_t handle_bytes,
                                                           ashlar_nvtx_memory **out);

/* Withdraw all that a tool was told of, before it is unmapped. NULL is allowed. */
void ashlar__nvtx_memory_destroy(ashlar_nvtx_memory *memory);

/*
 * Tell of an ALLOC, FREE, MAP or UNMAP; `listener` is an ashlar_nvtx_memory. Without host memory a
 * handle stays unknown, as do the blocks in it: a tool then finds no fault with them.
 */
void ashlar__nvtx_memory_tell(void *listener, const ashlar_trace_event *event);

#endif /* ASHLAR_NVTX_MEMORY_H */
