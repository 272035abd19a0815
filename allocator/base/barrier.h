/*
 * barrier.h - a full memory barrier in every running thread of the process, at the caller's cost
 * alone (internal).
 */
#ifndef ASHLAR_BARRIER_H
#define ASHLAR_BARRIER_H

#include <stdbool.h>

/* Register the process with the kernel, once. False: this kernel has no such barrier. */
bool ashlar__barrier_init(void);

/* Every other thread has passed a full barrier between this call's begin and its end. */
void ashlar__barrier_everywhere(void);

/* Tests: pretend that the kernel has it (true) or not (false), for the next ashlar__barrier_init.
 *        */
void ashlar__barrier_pretend(bool is_there);

#endif /* ASHLAR_BARRIER_H */
