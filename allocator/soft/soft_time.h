/*
 * soft_time.h - the software device's virtual time (time=on): what each call and each piece of work
 * costs (internal to the software device).
 *
 * All times are ns since the devices were configured. They follow from the calls alone, never from
 * when work really ran, so they are the same in eager and in adversarial mode:
 *
 *   a call           host += cost of the function; `host` is a clock of the calling thread
 *   work             start = max(tail of its stream, host, earliest by the legacy stream's order)
 *                    tail = start + duration
 *   a record         time of the event = tail, or later by the legacy stream's order
 *   a wait           tail = max(tail, time of the event)
 *   a host wait      host = max(host, what it waits for)
 *
 * A device runs any number of streams at once at full speed, so all time lost is lost by order
 * alone. Without time=on each function below does nothing.
 */
#ifndef ASHLAR_SOFT_TIME_H
#define ASHLAR_SOFT_TIME_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/driver/driver.h"
#include "allocator/soft/soft_queue.h"

/* Charge the calling thread for a call of `fn`; ASHLAR_DRIVER_FN_COUNT costs nothing. */
void ashlar__soft_time_charge(ashlar_driver_fn fn);

/* Date an op that is queued now: move the stream's tail, and set the time of the op's point. */
void ashlar__soft_time_submit(soft_stream *stream, const soft_op *op);

/* Count an in-stream wait that the program queues now, if it moves the stream's tail. */
void ashlar__soft_time_count_wait(const soft_stream *stream, const soft_point *point);

/* The calling thread waits for the device until `ns`. Counts the wait if it takes time. */
void ashlar__soft_time_see(uint64_t ns);

/* The calling thread's clock. A thread that calls for the first time since the devices were
 * configured begins where the latest thread is. */
uint64_t ashlar__soft_time_host(void);
/* Set the calling thread's clock to `ns`, unless it is later already. */
void ashlar__soft_time_advance(uint64_t ns);

/* Whether `ns` is past for the calling thread. */
bool ashlar__soft_time_is_past(uint64_t ns);

/* When all work queued so far is over: the device's, or with serial != 0 only that stream's. */
uint64_t ashlar__soft_time_end(const soft_device *device, uint64_t serial);

#endif /* ASHLAR_SOFT_TIME_H */
