/* threads.h - a number for each thread of the process, and a full memory barrier in all threads for
 * which only the caller pays (internal). */
#ifndef ASHLAR_THREADS_H
#define ASHLAR_THREADS_H

#include <stdbool.h>
#include <stdint.h>

/* The calling thread's number: 1, 2, ... in the order of the threads' first calls. The number of a
 * thread that has ended is not used again. */
uint32_t ashlar__thread_number(void);

/* Register the process for the barrier; only the first call asks the kernel. False: this kernel has
 * no such barrier, or has refused it since. */
bool ashlar__barrier_init(void);

/*
 * Have every other thread pass a full memory barrier before this call returns.
 * ashlar__barrier_init() must have returned true. False: the barrier was put this time, too, but by
 * means that take milliseconds, since the kernel refuses membarrier(2) by now (a seccomp filter was
 * installed); do not rely on barriers from now on.
 */
bool ashlar__barrier_everywhere(void);

/* Register a child of fork(), before it has other threads. */
void ashlar__barrier_begin_child(void);

/* Tests: with false, ashlar__barrier_init() returns false from now on; with true, it tells the
 * truth again. */
void ashlar__barrier_pretend(bool is_there);

#endif /* ASHLAR_THREADS_H */
