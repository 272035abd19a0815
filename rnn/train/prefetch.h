/*
 * prefetch.h - the next batch is drawn and copied while a step runs (internal).
 *
 * Step s has buffer s % 2. While it runs, the batch of step s + 1 is drawn into the other buffer,
 * and copied on a stream of its own:
 *
 *     host          draw s | queue s | wait for s - 1 | draw s + 1 | queue s + 1 | wait for s ...
 *     copies        upload s .                         upload s + 1 .
 *     steps                 ` s                                      ` s + 1
 *
 * A step waits for its upload in its stream's order, by an event. A buffer is drawn into when the
 * host has waited for its last step, by another one: so much the host lags behind, and no more.
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
 * Begin on an open task whose steps go on `stream`. Nothing of its buffers is queued then.
 * After a failure ashlar__prefetch_finish() is to be called too. Errors: ASHLAR_EDRIVER,
 * ASHLAR_ENOMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__prefetch_init(ashlar_prefetch *prefetch,
                                                      ashlar_device *device, ashlar_task *task,
                                                      ashlar_stream stream);

/* Wait for all that was queued, without a word about its failure. A zeroed struct is allowed. */
void ashlar__prefetch_finish(ashlar_prefetch *prefetch);

static inline size_t ashlar__prefetch_buffer(size_t step) {
    return step % ASHLAR_TASK_BUFFERS;
}

/* Draw the batch of a step and queue its upload. Requires that step - 2 was waited for. */
ASHLAR_MUST_CHECK ashlar_status ashlar__prefetch_draw(ashlar_prefetch *prefetch, size_t step);

/* Around what a step queues: behind its upload, and up to what is waited for. */
ASHLAR_MUST_CHECK ashlar_status ashlar__prefetch_begin_step(ashlar_prefetch *prefetch, size_t step);
ASHLAR_MUST_CHECK ashlar_status ashlar__prefetch_end_step(ashlar_prefetch *prefetch, size_t step);

/* Wait on the host until the step has run. Errors: ASHLAR_EDRIVER, also for its own failure. */
ASHLAR_MUST_CHECK ashlar_status ashlar__prefetch_wait(ashlar_prefetch *prefetch, size_t step);

#endif /* ASHLAR_PREFETCH_H */
