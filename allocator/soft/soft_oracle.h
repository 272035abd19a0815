/*
 * soft_oracle.h - clocks=on: in which order work was queued (internal to the software device).
 *
 * Host memory that runs out here fails no call: the order is then lost, and the oracle says so
 * when it is asked (soft.h). Without clocks=on each of these does nothing.
 */
#ifndef ASHLAR_SOFT_ORACLE_H
#define ASHLAR_SOFT_ORACLE_H

#include "allocator/soft/soft_clock.h"
#include "allocator/soft/soft_queue.h"

typedef struct soft_use {
    uintptr_t base;
    uintptr_t end;   /* > base */
    uint64_t serial; /* of the stream */
    uint64_t number; /* as of an op, taken for the use */
} soft_use;

typedef struct soft_oracle {
    bool is_lost;    /* host memory ran out: nothing can be proven any more */
    soft_clock seen; /* work that the host has seen finished */
    soft_use *uses;
    size_t use_count;
    size_t use_capacity;
} soft_oracle;

/* `op` joins the stream now: the stream's clock, and its point's, become those of the op. */
void ashlar__soft_oracle_submit(soft_stream *stream, const soft_op *op);

/* The stream's handle is gone: nothing more is queued on it. */
void ashlar__soft_oracle_end(const soft_stream *stream);

/* The host has seen this work finished. */
void ashlar__soft_oracle_see(const soft_clock *clock);

/* What a wait for the device, or with serial != 0 for that stream of it, will have seen: taken
 * before the wait, as other threads may queue more meanwhile. */
void ashlar__soft_oracle_snapshot(const soft_device *device, uint64_t serial, soft_clock *out);

/* Add what the next op of the stream will come after, but for what the host has seen. */
void ashlar__soft_oracle_next(const soft_stream *stream, soft_clock *after);

/* Note a use, in place of those that nobody needs to know any more: those seen finished, and
 * earlier ones of its stream within its bytes. False: no host memory. */
bool ashlar__soft_oracle_put_use(const soft_use *use);

/* Each use of [base, end) comes before work that comes after `after`. */
bool ashlar__soft_oracle_is_ordered(uintptr_t base, uintptr_t end, const soft_clock *after);

void ashlar__soft_oracle_reset(void);

#endif /* ASHLAR_SOFT_ORACLE_H */
