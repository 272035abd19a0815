/*
 * soft_graph.h - stream capture, and the graphs that come of it (internal to the software
 * device).
 *
 * While a stream captures, work on it becomes nodes of a graph and does not run. A lane is the
 * part of a capture that one stream has queued, named by that stream's serial number; the number
 * of a node is its place in the order of capture, from 1. So what a node comes after is a clock
 * {lane: number of a node}: soft_clock.h.
 *
 *   graph->nodes[i].op.number == i + 1
 *   node->after covers every node that `node` depends on, at any remove, and not `node` itself
 *   stream->captured is what the next node of that stream comes after
 *   the capture may end when origin->captured covers the `captured` of each of its streams
 */
#ifndef ASHLAR_SOFT_GRAPH_H
#define ASHLAR_SOFT_GRAPH_H

#include "allocator/soft/soft_clock.h"
#include "allocator/soft/soft_queue.h"

typedef struct soft_node {
    soft_op op;          /* nothing in it is owned */
    soft_device *device; /* of the stream that was captured */
    uint64_t lane;
    soft_clock after;
} soft_node;

typedef struct soft_graph {
    size_t user_count; /* a capture or a handle, and each executable copy: it no longer changes */
    uint64_t lane;     /* the origin's */
    soft_node *nodes;
    size_t count;
    size_t capacity;
} soft_graph;

/* An executable copy. A graph never changes once it has a handle, so it is the graph itself. */
typedef struct soft_exec {
    soft_graph *graph;
    soft_point *last; /* end of the newest launch, which the next one waits for; or NULL */
} soft_exec;

typedef struct soft_capture {
    struct soft_capture *next;
    uint64_t id;         /* never used twice */
    uint64_t thread;     /* that began it */
    unsigned int mode;   /* CU_CAPTURE_GLOBAL .. CU_CAPTURE_RELAXED */
    bool is_invalid;     /* a mistake was made: it can only be ended */
    soft_stream *origin; /* on which it was begun and must be ended */
    soft_graph *graph;
} soft_capture;

/* ---- capture (soft_capture.c) ---- */

/* How the calling thread takes the captures of other threads; a thread begins with GLOBAL. */
extern _Thread_local unsigned int ashlar__soft_capture_mode;

/* The calling thread's number; its address would not do, as it may be used again. */
uint64_t ashlar__soft_capture_thread(void);

/* The capture under way with this id; NULL: it has ended. */
soft_capture *ashlar__soft_capture_find(uint64_t id);

/* Make a node of *model, which owns nothing, behind what the capturing stream has so far. */
cu_result ashlar__soft_capture_op(soft_stream *stream, const soft_op *model);

/* A capturing or other stream waits for what an event has captured: {lane: node}. */
cu_result ashlar__soft_capture_join(soft_stream *stream, uint64_t id, const soft_clock *captured);

/* Spoil the capture, if there is one, and pass `result` through. */
cu_result ashlar__soft_capture_spoil(soft_capture *capture, cu_result result);

/* Let all its streams go and forget it, with its graph unless that has been taken (NULL). */
void ashlar__soft_capture_finish(soft_capture *capture);

/* The stream goes away: so does a capture that began there; another one is spoilt. */
void ashlar__soft_capture_leave(soft_stream *stream);

/* Drop every capture; the streams need not be told. */
void ashlar__soft_capture_reset(void);

/*
 * May the calling thread do this now? What may not spoils the captures that forbid it.
 *   work      queue work on this stream, or ask for its status
 *   wait      wait on the host for this stream
 *   wait_all  wait on the host for this device
 *   unsafe    a call that a capture cannot see, by the rules of cuThreadExchangeStreamCaptureMode
 *
 * Where CUDA's documentation leaves it open, the stricter reading is taken, so that what passes
 * here passes there: unsafe are all calls that take, map or return memory (cuMemAddressReserve
 * and cuMemRelease too) and all that ask whether work is done; a capturing stream cannot be
 * destroyed; an event stays captured after the end of the capture, until it is recorded anew.
 */
cu_result ashlar__soft_capture_admit_work(const soft_stream *stream);
cu_result ashlar__soft_capture_admit_wait(const soft_stream *stream);
cu_result ashlar__soft_capture_admit_wait_all(const soft_device *device);
cu_result ashlar__soft_capture_admit_unsafe(void);

/* ---- graphs (soft_graph.c, soft_launch.c) ---- */

/* A new graph with one user; NULL: no host memory. */
soft_graph *ashlar__soft_graph_new(uint64_t lane);
void ashlar__soft_graph_drop(soft_graph *graph); /* NULL is allowed */
void ashlar__soft_exec_delete(soft_exec *exec);
/* Drop the graphs and executable copies that handles name. */
void ashlar__soft_graph_reset(void);

#endif /* ASHLAR_SOFT_GRAPH_H */
