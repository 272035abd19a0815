/*
 * device_graph.h - a captured piece of a stream's work, to be launched again and again (internal).
 *
 *     ashlar__graph_begin(device, stream, &graph);
 *     ...                              work queued on `stream`, and on streams that wait for it
 *     ashlar__graph_end(graph);
 *     ashlar__graph_launch(graph);     as often as wanted, on the same stream
 *     ashlar__graph_destroy(graph);    once its launches have run
 *
 * Between begin and end the work does not run. A launch repeats the calls with the arguments that
 * they had, so what differs from launch to launch has to lie in memory. The thread that begins a
 * graph queues all of its work: the arguments of its ashlar_launch() calls live as long as the
 * graph. Other threads go on undisturbed.
 */
#ifndef ASHLAR_DEVICE_GRAPH_H
#define ASHLAR_DEVICE_GRAPH_H

#include <ashlar/device.h>

#include "allocator/base/checked.h"

/* ---- launches ---- */

/* Memory that a launch reads or writes, by its name for the program. */
typedef struct ashlar_operand {
    const char *name; /* NULL: the end of a list */
    const void *ptr;  /* NULL: not given */
    size_t bytes;     /* 0: not used; SIZE_MAX: more than can be addressed */
    bool is_needed;   /* NULL is refused, on every device */
} ashlar_operand;

/* The bytes of `rows` rows of `width` items, for an operand. */
static inline size_t ashlar__operand_bytes(size_t rows, size_t width, size_t item) {
    size_t bytes;
    return ashlar__mul(rows, width, &bytes) && ashlar__mul(bytes, item, &bytes) ? bytes : SIZE_MAX;
}

/* Check what a software device's CPU would not notice, and a GPU would: that operands are memory of
 * the device (page-locked host memory is, too), and that what the host reads is host memory. A CUDA
 * device reports it itself. Whoever calls ashlar_launch() with pointers of others passes them here.
 *
 * call   the program's, for the detail
 * Errors: ASHLAR_EINVAL; with strict=on the process ends. */
ASHLAR_MUST_CHECK ashlar_status ashlar__check_operands(const ashlar_device *device,
                                                       const char *call,
                                                       const ashlar_operand *operands);
ASHLAR_MUST_CHECK ashlar_status ashlar__check_host_array(const char *call, const char *name,
                                                         const void *ptr, size_t bytes);

/* ---- graphs ---- */

typedef struct ashlar_graph ashlar_graph;

/* Begin a graph. One at a time in a thread.
 *
 * Ownership: the caller owns *out, in which the capture is under way, until it is destroyed; the
 *            device and the stream must outlive it.
 * Errors:    ASHLAR_EHOSTMEM, ASHLAR_EDRIVER (the stream cannot be captured). */
ASHLAR_MUST_CHECK ashlar_status ashlar__graph_begin(ashlar_device *device, ashlar_stream stream,
                                                    ashlar_graph **out);

/* End the capture and make the graph ready. After an error it can only be destroyed.
 * Errors: ASHLAR_EDRIVER (a call in between was one that no graph can hold), ASHLAR_ENOMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__graph_end(ashlar_graph *graph);

/* Queue the graph's work on its stream, with one call. Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__graph_launch(const ashlar_graph *graph);

/* End the capture, if it is under way, and forget the graph. No launch may be unfinished. NULL is
 * allowed. */
void ashlar__graph_destroy(ashlar_graph *graph);

#endif /* ASHLAR_DEVICE_GRAPH_H */
