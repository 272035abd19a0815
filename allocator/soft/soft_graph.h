/*
 * soft_graph.h - stream capture, and the graphs that it records (internal to the software device).
 *
 * While a stream captures, the work queued on it does not run: it becomes nodes of a graph. A lane
 * is all nodes of a capture that one stream has queued; the stream's serial number names the lane.
 * A node's number is its place in the order of capture, from 1. The nodes that a node comes after
 * are a clock with entries {lane: number of a node} (soft_clock.h).
 *
 *   graph->nodes[i].op.number == i + 1
 *   node->after covers every node that `node` depends on, directly or not, and not `node` itself
 *   stream->captured covers every node that the next node of that stream will come after
 *   a capture may end once origin->captured covers the `captured` of each stream in the capture
 */
#ifndef ASHLAR_SOFT_GRAPH_H
#define ASHLAR_SOFT_GRAPH_H

#include "allocator/soft/soft_clock.h"
#include "allocator/soft/soft_queue.h"

typedef struct soft_node {
    soft_op op;          /* owns nothing: its owned references are NULL */
    soft_device *device; /* of the stream that was captured */
    uint64_t lane;
    soft_clock after; /* the nodes that this one comes after */
} soft_node;

typedef struct soft_graph {
    size_t user_count; /* 1 for its capture or handle, and 1 for each executable copy */
    uint64_t lane;     /* the lane of the stream on which the capture began */
    soft_node *nodes;
    size_t count;
    size_t capacity;
} soft_graph;

/* An executable graph. It shares the graph that it was made from, since one with a handle never
 * changes. */
typedef struct soft_exec {
    soft_graph *graph;
    soft_point *last; /* the end of the newest launch, which the next launch waits for; or NULL */
} soft_exec;

typedef struct soft_capture {
    struct soft_capture *next;
    uint64_t id;         /* never used twice */
    uint64_t thread;     /* number of the thread that began the capture */
    unsigned int mode;   /* CU_CAPTURE_GLOBAL .. CU_CAPTURE_RELAXED */
    bool is_invalid;     /* a forbidden call has invalidated it: it can only be ended */
    soft_stream *origin; /* the stream on which the capture began and must end */
    soft_graph *graph;
} soft_capture;

/* ---- capture (soft_capture.c) ---- */

/* The calling thread's mode, set by cuThreadExchangeStreamCaptureMode: which captures forbid the
 * thread unsafe calls. At first CU_CAPTURE_GLOBAL. */
extern _Thread_local unsigned int ashlar__soft_capture_mode;

/* The calling thread's number, which no later thread gets (unlike a pthread_t). */
uint64_t ashlar__soft_capture_thread(void);

/* The capture under way with this id; NULL: it has ended. */
soft_capture *ashlar__soft_capture_find(uint64_t id);

/* Append a node made from *model, which owns nothing, to the lane of the capturing stream. */
cu_result ashlar__soft_capture_op(soft_stream *stream, const soft_op *model);

/* Have the next node of `stream` come after `captured`, the nodes of capture `id` that an event
 * stands for. A stream that is not capturing joins that capture. */
cu_result ashlar__soft_capture_join(soft_stream *stream, uint64_t id, const soft_clock *captured);

/* Invalidate the capture, unless it is NULL, and return `result`. */
cu_result ashlar__soft_capture_spoil(soft_capture *capture, cu_result result);

/* End the capture and free it: its streams no longer capture. Its graph is dropped unless
 * capture->graph is NULL. */
void ashlar__soft_capture_finish(soft_capture *capture);

/* The stream is going away. A capture that began on it ends; any other is invalidated. */
void ashlar__soft_capture_leave(soft_stream *stream);

/* End every capture. */
void ashlar__soft_capture_reset(void);

/*
 * Whether the calling thread may do this now. If not, the captures that forbid it are invalidated.
 *   work      queue work on this stream, or ask for its status
 *   wait      wait on the host for this stream
 *   wait_all  wait on the host for this device
 *   unsafe    a call that no capture can record, by the rules of cuThreadExchangeStreamCaptureMode
 *
 * Where CUDA's documentation leaves a rule open, the stricter reading applies here, so that a
 * program that passes here passes with CUDA too:
 *   - all calls that take, map or return memory are unsafe (cuMemAddressReserve and cuMemRelease
 *     too), and so are all calls that ask whether work is done;
 *   - a capturing stream cannot be destroyed;
 *   - an event recorded in a capture stays captured after its end, until it is recorded anew.
 */
cu_result ashlar__soft_capture_admit_work(const soft_stream *stream);
cu_result ashlar__soft_capture_admit_wait(const soft_stream *stream);
cu_result ashlar__soft_capture_admit_wait_all(const soft_device *device);
cu_result ashlar__soft_capture_admit_unsafe(void);

/* ---- graphs (soft_capture.c, soft_launch.c) ---- */

/* A new graph with one user; NULL: no host memory. */
soft_graph *ashlar__soft_graph_new(uint64_t lane);
void ashlar__soft_graph_drop(soft_graph *graph); /* NULL is allowed */
void ashlar__soft_exec_delete(soft_exec *exec);
/* Drop all graphs and executable copies that have handles. */
void ashlar__soft_graph_reset(void);

#endif /* ASHLAR_SOFT_GRAPH_H */
