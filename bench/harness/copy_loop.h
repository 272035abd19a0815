/*
 * copy_loop.h - what moving bytes costs at least: a plain loop, and memcpy (internal).
 */
#ifndef ASHLAR_COPY_LOOP_H
#define ASHLAR_COPY_LOOP_H

#include <stdbool.h>
#include <stddef.h>

/*
 * One measurement's copy: from a range of device memory to another, as often as it takes to move
 * as many bytes as the operation beside it, read and written, in as much memory:
 *
 *     bytes * 2          what the operation's memory holds
 *     bytes * 2 * times  what is moved, counted as for the operation
 */
typedef struct ashlar_copy_work {
    void *dst; /* [bytes], apart from src; both aligned to COPY_LINE */
    const void *src;
    size_t bytes; /* a multiple of ASHLAR_COPY_LINE, 1.. */
    size_t times;
    bool is_shared; /* by all workers (workers.h), as the optimizers' passes are; else one thread */
} ashlar_copy_work;

enum { ASHLAR_COPY_LINE = 64 };

/* The loop: each line is loaded and stored by itself, and never by the C library. */
void ashlar__copy_by_loop(const ashlar_copy_work *work);

/* The same by memcpy, whose large copies go around the caches. */
void ashlar__copy_by_memcpy(const ashlar_copy_work *work);

#endif /* ASHLAR_COPY_LOOP_H */
