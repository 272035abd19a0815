/*
 * nvtx_memory.h - reporting an allocator's blocks to NVTX's memory extension, so that tools see
 * them (internal).
 *
 * To the driver all blocks of a handle are one allocation. Compute Sanitizer's memcheck finds an
 * access between blocks, or to a freed block, only if it knows the blocks. Here each handle
 * (without virtual memory: each segment) is a heap of NVTX. Each block is a region, which has the
 * requested bytes and the name of the block's tag. A region lies in one heap, so a block over
 * several handles has a region in each.
 *
 * Lock: the allocator's, held, in every function.
 */
#ifndef ASHLAR_NVTX_MEMORY_H
#define ASHLAR_NVTX_MEMORY_H

#include <stddef.h>

#include "allocator/trace/trace.h"

typedef struct ashlar_nvtx_memory ashlar_nvtx_memory;

/*
 * handle_bytes  the size of a handle; a MAP or UNMAP event may cover several. 0: each such event is
 *               of one segment
 *
 * Errors: ASHLAR_ENOTSUP (a build without NVTX's headers), ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__nvtx_memory_create(size_t handle_bytes,
                                                           ashlar_nvtx_memory **out);

/* Withdraw everything reported to a tool. Call it before unmapping the memory. NULL is allowed. */
void ashlar__nvtx_memory_destroy(ashlar_nvtx_memory *memory);

/*
 * Report an ALLOC, FREE, MAP or UNMAP; `listener` is an ashlar_nvtx_memory. If host memory runs
 * out, a handle and its blocks stay unreported: then a tool finds no fault with them.
 */
void ashlar__nvtx_memory_tell(void *listener, const ashlar_trace_event *event);

#endif /* ASHLAR_NVTX_MEMORY_H */
