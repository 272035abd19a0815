/* step_graphs.h - captured steps, by shape and buffer: the most recently used ones are kept
 * (internal). Threads: one at a time per struct. */
#ifndef ASHLAR_STEP_GRAPHS_H
#define ASHLAR_STEP_GRAPHS_H

#include "allocator/device/device_graph.h"
#include "rnn/train/step_identity.h"

typedef struct ashlar_step_graph {
    size_t length,
        buffer;          /* the padded length of its batches, and where they lie; length 0: none */
    ashlar_graph *graph; /* NULL: the step cannot be captured */
    ashlar_identity identity;
    uint64_t used_at;
} ashlar_step_graph;

typedef struct ashlar_step_graphs {
    ashlar_step_graph *list; /* [most] */
    size_t most;
    uint64_t uses; /* so far */
} ashlar_step_graphs;

/* Set up for `most` graphs, 1... Call ashlar__step_graphs_finish() also if it fails; no launch may
 * be unfinished then. A zeroed struct is allowed. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__step_graphs_init(ashlar_step_graphs *graphs, size_t most);
void ashlar__step_graphs_finish(ashlar_step_graphs *graphs);

/* The graph of a shape and buffer, which now counts as used; NULL: there is none. */
ashlar_step_graph *ashlar__step_graphs_find(ashlar_step_graphs *graphs, size_t length,
                                            size_t buffer);

/* The place for another graph: a free one, or that of the graph used longest ago (graph != NULL),
 * which the caller drops first. */
ashlar_step_graph *ashlar__step_graphs_place(const ashlar_step_graphs *graphs);

/* Destroy a graph, and free its place. No launch of it may be unfinished. */
void ashlar__step_graph_drop(ashlar_step_graph *graph);

#endif /* ASHLAR_STEP_GRAPHS_H */
