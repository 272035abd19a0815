/*
 * threads.h - what concerns every thread of the process: a number for each, and a full memory
 * barrier in all of them at the caller's cost alone (internal).
 */
#ifndef ASHLAR_THREADS_H
#define ASHLAR_THREADS_H

#include <stdbool.h>
#include <stdint.h>

/* The calling thread's number, from 1, given at its first call and never used again. */
uint32_t ashlar__thread_number(void);

/* Register the process with the kernel, once. False: this kernel has no such barrier. */
bool ashlar__barrier_init(void);

/* Every other thread passes a full barrier between the beginning and the end of this call.
 * Needs an ashlar__barrier_init() that returned true. */
void ashlar__barrier_everywhere(void);

/* Tests: let the next ashlar__barrier_init() find that the kernel has the barrier, or lacks it. */
void ashlar__barrier_pretend(bool is_there);

#endif /* ASHLAR_THREADS_H */
