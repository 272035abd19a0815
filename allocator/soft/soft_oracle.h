/*
 * soft_oracle.h - recording the order of queued work, if the software device is set up with
 * clocks=on (internal).
 *
 * If host memory runs out here, the call of the device still succeeds, but the order is lost: the
 * functions of soft.h then fail. Without clocks=on each function below does nothing.
 */
#ifndef ASHLAR_SOFT_ORACLE_H
#define ASHLAR_SOFT_ORACLE_H

#include "allocator/soft/soft_clock.h"
#include "allocator/soft/soft_queue.h"

typedef struct soft_use {
    uintptr_t base;
    uintptr_t end;   /* > base */
    uint64_t serial; /* of the use's stream */
    uint64_t number; /* from the same sequence as the numbers of ops */
} soft_use;

typedef struct soft_oracle {
    bool is_lost;    /* host memory ran out: no order can be proven any more */
    soft_clock seen; /* covers the work that the host has seen finished */
    soft_use *uses;
    size_t use_count;
    size_t use_capacity;
} soft_oracle;

/* Record that `op` is queued on the stream now: compute the op's clock, and give it to the stream
 * and to the op's point, if it has one. */
void ashlar__soft_oracle_submit(soft_stream *stream, const soft_op *op);

/* Record that the stream's handle is destroyed: nothing more will be queued on the stream. */
void ashlar__soft_oracle_end(const soft_stream *stream);

/* Record that the host has seen finished all work that `clock` covers. */
void ashlar__soft_oracle_see(const soft_clock *clock);

/* Add to *out all work queued so far on the device or, with serial != 0, on its stream `serial`. A
 * wait takes this snapshot before it begins, since other threads may queue more work meanwhile, and
 * passes it to ashlar__soft_oracle_see() at its end. */
void ashlar__soft_oracle_snapshot(const soft_device *device, uint64_t serial, soft_clock *out);

/* Add to *after the work that the next op of the stream will come after, except the work that the
 * host has seen finished. */
void ashlar__soft_oracle_next(const soft_stream *stream, soft_clock *after);

/* Record a use, and forget the recorded uses that no longer matter: those that the host has seen
 * finished, and earlier ones of the same stream that lie within its bytes. False: no host
 * memory. */
bool ashlar__soft_oracle_put_use(const soft_use *use);

/* Whether each recorded use of bytes in [base, end) is covered by `after`, or was seen finished. */
bool ashlar__soft_oracle_is_ordered(uintptr_t base, uintptr_t end, const soft_clock *after);

void ashlar__soft_oracle_reset(void);

#endif /* ASHLAR_SOFT_ORACLE_H */
