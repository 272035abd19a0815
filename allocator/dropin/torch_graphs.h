/*
 * torch_graphs.h - memory of the graphs that PyTorch captures: one graph pool for each stream that
 * a capture takes memory for, found by PyTorch's pool id (internal to the drop-in libraries).
 *
 * PyTorch names the memory of a graph by a device and a pool id, and graphs with the same name
 * share it. It says when a capture begins and ends, and when a graph is gone; and it has a filter
 * that knows the streams of the capture. Those may be several, and are known only when memory is
 * taken for them. Memory of graphs that are gone comes back when the device has been waited for,
 * since their last launches may still run.
 *
 * Threads: any, for all functions. In a forked child nothing happens.
 */
#ifndef ASHLAR_DROPIN_TORCH_GRAPHS_H
#define ASHLAR_DROPIN_TORCH_GRAPHS_H

#include <stdatomic.h>
#include <stdbool.h>

#include <ashlar/allocator.h>

#include "allocator/dropin/torch_cpp.h"

extern _Atomic size_t ashlar__torch_capture_count; /* captures that PyTorch has begun and not
                                                    * ended */

/*
 * From now on, memory for streams that `filter` accepts is that of `id`. Ends a capture of the same
 * id that is still under way.
 *
 * filter   copied
 *
 * Errors: ASHLAR_EHOSTMEM, those of ashlar__dropin_allocator().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__torch_capture_begin(int device, ashlar_torch_pool_id id,
                                                            const ashlar_torch_filter *filter);
void ashlar__torch_capture_end(int device, ashlar_torch_pool_id id);

/* The number of the latest capture that the calling thread has begun; 0: none that is known. */
uint64_t ashlar__torch_capture_latest(void);

/* That capture has failed: there is no graph of it, and none that is gone will be reported for it.
 * Nothing happens after the next capture for its id, or where a graph of the id is gone since. */
void ashlar__torch_capture_failed(uint64_t capture);

/* One of the graphs whose captures for `id` have ended is gone. After the last one, nobody captures
 * for it again, but live blocks may be left. */
void ashlar__torch_graph_gone(int device, ashlar_torch_pool_id id);

/* Before memory is taken for `stream`: if it belongs to a capture, let it have the capture's
 * memory. Errors: those of ashlar_graph_pool_begin() and ashlar_graph_pool_continue(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__torch_capture_enter_slow(int device, ashlar_stream stream);

static inline ashlar_status ashlar__torch_capture_enter(int device, ashlar_stream stream) {
    return atomic_load_explicit(&ashlar__torch_capture_count, memory_order_acquire) == 0
               ? ASHLAR_OK
               : ashlar__torch_capture_enter_slow(device, stream);
}

/* Wait for the device, and give the memory of graphs that are gone to the default stream. False:
 * there is none, or a capture is under way, or the wait failed. */
bool ashlar__torch_graphs_give_back(ashlar_allocator *allocator, int device);

#endif /* ASHLAR_DROPIN_TORCH_GRAPHS_H */
