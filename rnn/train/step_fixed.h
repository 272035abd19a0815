/* step_fixed.h - steps whose calls are the same for every batch of a shape, and are launched as one
 * graph (internal).
 *
 * The calls of a step usually depend on its batch and its number: the batch's length gives the
 * sizes, its tokens the weight of each position's loss, the step's number the learning rate and the
 * seed. A fixed step takes all this out of the calls:
 *
 *     length    A batch is padded to the longest length of its range of lengths. There is one range
 *               for each plan (warmup.h), so all addresses of a padded length are known, too.
 *     values    Learning rate, seed and weights are read from device memory, from the batch's
 *               ashlar_step_values; the loss scale and the count of steps always were. Lengths are
 *               read from the batch itself, by the RNN too.
 *     buffer    Batches alternate between two buffers, in device and in page-locked memory, and so
 *               do the values and the outcome. The calls of a step depend on its buffer.
 *     copies    The next batch is drawn before a step is queued. The step itself copies that batch
 *               and its values to the device, on the stream of copies beside the step's own work.
 *               The copy always has the size of the largest batch.
 *
 *     host      draw s+1 | launch s | wait for s-1 | draw s+2 | launch s+1 | ...
 *     steps                ` s: forward, backward, update, outcome      ` s+1
 *     copies               ` batch s+1                                  ` batch s+2
 *
 * So two steps of a length and a buffer make the same calls with the same arguments: the step can
 * be captured once, and launched. A step is then three driver calls: the launch, an event behind
 * it, and the host's wait for the event of the step before.
 *
 * NOTHING IS LAUNCHED THAT HAS CHANGED. Each launch is part of a step of the allocator, in which
 * the step's dry run takes all blocks anew, as its plan gives them. Their addresses, and all other
 * facts that the calls depend on (step_identity.h), must be those of the capture. If one is not,
 * the graph is dropped, the step is queued call by call, and the report says what has changed; the
 * next step of that length is captured anew. Steps that cannot be captured at all stay eager.
 *
 * The capture is made in the warm-up for all padded lengths, as far as the bound on graphs allows;
 * later the graph used longest ago makes way. */
#ifndef ASHLAR_STEP_FIXED_H
#define ASHLAR_STEP_FIXED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/rnn.h>

#include "allocator/device/device_impl.h"
#include "rnn/train/train.h"

/* ---- step identity ---- */

/*
 * What the calls of a step depend on, besides what it reads in device memory:
 * two steps of the same identity queue the same calls with the same arguments (internal).
 *
 * Threads: one at a time per identity.
 */

enum { ASHLAR_IDENTITY_MAX = 64 };

typedef struct ashlar_identity {
    size_t count;
    struct {
        const char *what; /* a constant text that says what changed if the value did */
        uint64_t value;
    } facts[ASHLAR_IDENTITY_MAX];
} ashlar_identity;

/* Add a fact. Identities are compared fact by fact, in the order in which they were added. */
void ashlar__identity_add_size(ashlar_identity *identity, const char *what, uint64_t value);
void ashlar__identity_add_real(ashlar_identity *identity, const char *what, double value);
void ashlar__identity_add_address(ashlar_identity *identity, const char *what, const void *ptr);

/* Add a stack of layers: which it is, and all that describes it. */
void ashlar__identity_add_rnn(ashlar_identity *identity, const ashlar_rnn *rnn);

/* The `what` of the first fact that differs; NULL: all facts are equal. */
const char *ashlar__identity_difference(const ashlar_identity *a, const ashlar_identity *b);

/* ---- step graphs ---- */

/*
 * Captured steps, by shape and buffer: the most recently used ones are kept
 * (internal). Threads: one at a time per struct.
 */

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

typedef struct ashlar_step_fixed {
    size_t *padded;    /* [task->max_length + 1] what each length is padded to */
    char *host_values; /* page-locked: an ashlar_step_values for each buffer, value_bytes apart */
    char *device_values;
    size_t value_bytes;
    ashlar_event forked, joined; /* the copy of the next batch begins; it is over */
    size_t ready;                /* the step whose batch is, or will be, on the device; 0: none */
    ashlar_step_graphs graphs;   /* none: steps are not captured */
    ashlar_graph_report report;
} ashlar_step_fixed;

/* _open: set up for an open task, before its first step; t->warmup must be set. _close waits for
 * queued work, and is allowed in every state. Errors: those of the functions it calls. */
ASHLAR_MUST_CHECK ashlar_status ashlar__step_fixed_open(ashlar_trainer *t);
void ashlar__step_fixed_close(ashlar_trainer *t);

/* Say in the report that steps are queued call by call, and why. */
void ashlar__step_fixed_refuse(ashlar_trainer *t, const char *what, const char *why);

/* After the warm-up: capture steps, and put the first batch on the device. */
ASHLAR_MUST_CHECK ashlar_status ashlar__step_fixed_begin(ashlar_trainer *t, bool is_planned);

/* Queue a step. The host must have waited for step - 2.
 *
 * is_followed   draw the batch of the next step, too */
ASHLAR_MUST_CHECK ashlar_status ashlar__step_fixed_queue(ashlar_trainer *t, size_t step,
                                                         bool is_followed);

#endif /* ASHLAR_STEP_FIXED_H */
