/*
 * prefetch.h - drawing and copying the next batch while a step runs (internal).
 *
 * Step s has buffer s % 2. While it runs, the batch of step s + 1 is drawn into the other buffer,
 * and copied on a stream of its own:
 *
 *     host          draw s | queue s | wait for s - 1 | draw s + 1 | queue s + 1 | wait for s ...
 *     copies        upload s .                         upload s + 1 .
 *     steps                 ` s                                      ` s + 1
 *
 * A step's stream waits for its upload by an event. The host draws into a buffer once it has
 * waited, by another event, for the last step on it; so it runs at most one step ahead.
 *
 * Threads: one at a time per struct.
 */
#ifndef ASHLAR_PREFETCH_H
#define ASHLAR_PREFETCH_H

#include "rnn/train/task.h"

typedef struct ashlar_prefetch {
    ashlar_device *device;
    ashlar_task *task;
    ashlar_stream stream; /* of the steps; the owner's */
    ashlar_stream copies;
    ashlar_event uploaded[ASHLAR_TASK_BUFFERS]; /* the buffer's batch is in device memory */
    ashlar_event done[ASHLAR_TASK_BUFFERS];     /* the buffer's step has run */
    ashlar_task_batch batches[ASHLAR_TASK_BUFFERS];
    uint64_t event_calls; /* events recorded, and waited for by a stream, so far */
} ashlar_prefetch;

/*
 * Begin on an open task whose steps are queued on `stream`, while nothing uses its buffers. Call
 * ashlar__prefetch_finish() after a failure too. Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__prefetch_init(ashlar_prefetch *prefetch,
                                                      ashlar_device *device, ashlar_task *task,
                                                      ashlar_stream stream);

/* Wait for all queued work; its failures are not reported. A zeroed struct is allowed. */
void ashlar__prefetch_finish(ashlar_prefetch *prefetch);

static inline size_t ashlar__prefetch_buffer(size_t step) {
    return step % ASHLAR_TASK_BUFFERS;
}

/* Draw the batch of a step and queue its upload. Requires that step - 2 has been waited for. */
ASHLAR_MUST_CHECK ashlar_status ashlar__prefetch_draw(ashlar_prefetch *prefetch, size_t step);

/* Call these around what a step queues: one waits for the upload, the other marks the end. */
ASHLAR_MUST_CHECK ashlar_status ashlar__prefetch_begin_step(ashlar_prefetch *prefetch, size_t step);
ASHLAR_MUST_CHECK ashlar_status ashlar__prefetch_end_step(ashlar_prefetch *prefetch, size_t step);

/* Wait on the host until the step has run. Errors: ASHLAR_EDRIVER, also where the step failed. */
ASHLAR_MUST_CHECK ashlar_status ashlar__prefetch_wait(ashlar_prefetch *prefetch, size_t step);

#endif /* ASHLAR_PREFETCH_H */
