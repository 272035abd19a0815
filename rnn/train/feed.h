/*
 * feed.h - the order between a task's batches and the steps on them (internal).
 *
 * Step s has slot s % 2. While it runs, the batch of step s + 1 is drawn into the other slot, and
 * copied on a stream of its own:
 *
 *     host          draw s | queue s | wait for s - 1 | draw s + 1 | queue s + 1 | wait for s ...
 *     copies        upload s .                         upload s + 1 .
 *     steps                 ` s                                      ` s + 1
 *
 * A step waits for its upload in its stream's order, by an event. A slot is drawn into when the
 * host has waited for its last step, by another one: so much the host lags behind, and no more.
 *
 * Threads: one at a time per feed.
 */
#ifndef ASHLAR_FEED_H
#define ASHLAR_FEED_H

#include "rnn/train/task.h"

typedef struct ashlar_feed {
    ashlar_device *device;
    ashlar_task *task;
    ashlar_stream stream; /* of the steps; the owner's */
    ashlar_stream copies;
    ashlar_event uploaded[ASHLAR_TASK_SLOTS]; /* the slot's batch is in device memory */
    ashlar_event done[ASHLAR_TASK_SLOTS];     /* the slot's step has run */
    ashlar_task_batch batches[ASHLAR_TASK_SLOTS];
    uint64_t points; /* events recorded, and waited for by a stream, so far */
} ashlar_feed;

/*
 * Begin on an open task whose steps go on `stream`. Nothing of its slots is queued then.
 * After a failure ashlar_feed_finish() is to be called too. Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_feed_init(ashlar_feed *feed, ashlar_device *device,
                                                 ashlar_task *task, ashlar_stream stream);

/* Wait for all that was queued, without a word about its failure. A zeroed feed is allowed. */
void ashlar_feed_finish(ashlar_feed *feed);

static inline size_t ashlar_feed_slot(size_t step) {
    return step % ASHLAR_TASK_SLOTS;
}

/* Draw the batch of a step and queue its upload. Requires that step - 2 was waited for. */
ASHLAR_MUST_CHECK ashlar_status ashlar_feed_draw(ashlar_feed *feed, size_t step);

/* Around what a step queues: behind its upload, and up to what is waited for. */
ASHLAR_MUST_CHECK ashlar_status ashlar_feed_begin_step(ashlar_feed *feed, size_t step);
ASHLAR_MUST_CHECK ashlar_status ashlar_feed_end_step(ashlar_feed *feed, size_t step);

/* Wait on the host until the step has run. Errors: ASHLAR_EDRIVER, also for its own failure. */
ASHLAR_MUST_CHECK ashlar_status ashlar_feed_wait(ashlar_feed *feed, size_t step);

#endif /* ASHLAR_FEED_H */
