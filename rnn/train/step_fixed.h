/* step_fixed.h - steps whose calls are the same for every batch of a shape, and are launched as one
 * graph (internal).
 *
 * The calls of a step usually depend on its batch and its number: the batch's length gives the
 * sizes, its tokens the weight of each position's loss, the step's number the learning rate and the
 * seed. A fixed step takes all this out of the calls:
 *
 *     length    A batch is padded to the longest length of its range of lengths. There is one range
 *               for each plan (plan.h), so all addresses of a padded length are known, too.
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
 * Nothing is launched that has changed. All that the calls depend on is fixed for a trainer's life,
 * but for the addresses of a step's blocks. So each launch is part of a step of the allocator, in
 * which the step's dry run takes all blocks anew. If their addresses are not those of the capture,
 * the graph is dropped, the step is queued call by call, and the report says so; the next step of
 * that length is captured anew. Steps that cannot be captured at all stay eager.
 *
 * The steps of all padded lengths are captured in the warm-up. */
#ifndef ASHLAR_STEP_FIXED_H
#define ASHLAR_STEP_FIXED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/rnn.h>

#include "allocator/device/device_impl.h"
#include "rnn/train/batches.h"

/* What differs from step to step besides the batch itself; read in device memory. */
typedef struct ashlar_step_values {
    double rate;      /* the learning rate */
    uint64_t seed;    /* added to the seeds of parts */
    double weights[]; /* [parts] 1 / the part's tokens */
} ashlar_step_values;

/* A captured step of a padded length, on one of the buffers. */
typedef struct ashlar_step_graph {
    ashlar_graph *graph; /* NULL: the step is not captured, or cannot be */
    bool is_tried;
    uint64_t address_sum; /* of the blocks that the plan gave */
} ashlar_step_graph;

typedef struct ashlar_step_fixed {
    size_t *padded;    /* [max_length + 1] what each length is padded to */
    char *host_values; /* page-locked: an ashlar_step_values for each buffer, value_bytes apart */
    char *device_values;
    size_t value_bytes;
    ashlar_event forked, joined; /* the copy of the next batch begins; it is over */
    size_t ready;                /* the step whose batch is, or will be, on the device; 0: none */
    ashlar_step_graph *graphs;   /* [(max_length + 1) * buffers]; NULL: not captured */
    ashlar_graph_report report;
} ashlar_step_fixed;

/* _open: set up with an open model, before the first step; t->warmup must be set. _close waits for
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
