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
