/* prefetch.h - drawing and copying the next batch while a step runs (internal).
 *
 * Step s uses buffer s % 2. While step s runs, the batch of step s + 1 is drawn into the other
 * buffer and copied to the device on a separate stream:
 *
 *     host          draw s | queue s | wait for s - 1 | draw s + 1 | queue s + 1 | wait for s ...
 *     copies        upload s .                         upload s + 1 .
 *     steps                 ` s                                      ` s + 1
 *
 * The stream of the steps waits for each upload by an event. Before the host draws into a buffer,
 * it waits by another event for the last step that used this buffer; so the host is at most one
 * step ahead.
 *
 * Threads: one at a time per struct. */
#ifndef ASHLAR_PREFETCH_H
#define ASHLAR_PREFETCH_H

#include "rnn/train/task.h"

/* Steps whose batches the host may ask about: one that is waited for, one queued, one drawn. */
enum { ASHLAR_PREFETCH_FLIGHTS = 3 };

typedef struct ashlar_prefetch {
    ashlar_device *device;
    ashlar_task *task;
    ashlar_stream stream; /* the steps' stream; the caller owns it */
    ashlar_stream copies;
    ashlar_event uploaded[ASHLAR_TASK_BUFFERS]; /* [i]: the batch in buffer i is in device memory */
    ashlar_event done[ASHLAR_TASK_BUFFERS];     /* [i]: the step on buffer i has run */
    ashlar_task_batch batches[ASHLAR_PREFETCH_FLIGHTS];
    size_t *part_tokens;  /* [flights][task->max_parts] */
    uint64_t event_calls; /* calls so far that record an event or let a stream wait for one */
} ashlar_prefetch;

/* Set up for an open task whose steps are queued on `stream`; nothing may use the task's buffers
 * yet. Call ashlar__prefetch_finish() even if it fails. Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__prefetch_init(ashlar_prefetch *prefetch,
                                                      ashlar_device *device, ashlar_task *task,
                                                      ashlar_stream stream);

/* Wait for all queued work, whose failures are not reported, and give back what _init took. A
 * zeroed struct is allowed. */
void ashlar__prefetch_finish(ashlar_prefetch *prefetch);

static inline size_t ashlar__prefetch_buffer(size_t step) {
    return step % ASHLAR_TASK_BUFFERS;
}

/* _batch: the batch drawn for a step. _tokens: the tokens of each of its parts. Both are valid
 * until the batch of step + 3 is drawn. */
static inline const ashlar_task_batch *ashlar__prefetch_batch(const ashlar_prefetch *prefetch,
                                                              size_t step) {
    return &prefetch->batches[step % ASHLAR_PREFETCH_FLIGHTS];
}
static inline const size_t *ashlar__prefetch_tokens(const ashlar_prefetch *prefetch, size_t step) {
    return prefetch->part_tokens + step % ASHLAR_PREFETCH_FLIGHTS * prefetch->task->max_parts;
}

/* Draw the batch of a step into its buffer. The host must have waited for step - 2. */
void ashlar__prefetch_take(ashlar_prefetch *prefetch, size_t step);

/* The same, and queue its upload. */
ASHLAR_MUST_CHECK ashlar_status ashlar__prefetch_draw(ashlar_prefetch *prefetch, size_t step);

/* Call these before and after queuing a step: the first makes the step wait for its upload, the
 * second marks its end. */
ASHLAR_MUST_CHECK ashlar_status ashlar__prefetch_begin_step(ashlar_prefetch *prefetch, size_t step);
ASHLAR_MUST_CHECK ashlar_status ashlar__prefetch_end_step(ashlar_prefetch *prefetch, size_t step);

/* Wait on the host until the step has run. Errors: ASHLAR_EDRIVER, also if the step failed. */
ASHLAR_MUST_CHECK ashlar_status ashlar__prefetch_wait(ashlar_prefetch *prefetch, size_t step);

#endif /* ASHLAR_PREFETCH_H */
