/*
 * workers.h - the threads of this process that compute on the CPU together (internal).
 *
 * The first work that needs them starts them. With the caller's own there are as many as CPUs that
 * the process may run on (its affinity), or ASHLAR_THREADS=N of the environment, 1 to
 * ASHLAR_WORKERS_MAX. Between works they spin for some microseconds, then sleep. They are never
 * joined: a process may end at any time. A child of fork() starts its own.
 */
#ifndef ASHLAR_WORKERS_H
#define ASHLAR_WORKERS_H

#include <stddef.h>

#include <ashlar/status.h>

enum { ASHLAR_WORKERS_MAX = 256 };

/*
 * Call fn(context, i) once for each i from 0 to count - 1, in any order, on any of the threads,
 * and return when all calls have. With count 1 no other thread is woken, so the caller chooses
 * how much work is worth one: by making pieces, and so count, no smaller than that.
 *
 * Where the threads are busy with another caller's work (or the caller is one of them), or none
 * could be started, all calls are made by the caller. fn must not fork or end its thread.
 *
 * Threads: any.  Cost: for count 1 a call; else a wake-up for each thread that sleeps. A thread
 * that wakes too late to find work left is not waited for.
 */
void ashlar__workers_run(size_t count, void (*fn)(void *context, size_t i), void *context);

/* How many threads share a work, the caller's included: at least 1. Threads: any. */
size_t ashlar__workers_count(void);

/*
 * Check ASHLAR_THREADS. Call it when creating an object that will use the threads: with a bad value
 * every work stays on the thread that asks for it.
 *
 * Threads: any.  Errors: ASHLAR_EINVAL.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__workers_check(void);

/*
 * Use `count` threads from now on, 1 to ASHLAR_WORKERS_MAX, whatever the environment says; 0: as
 * it says. Threads beyond that number stay asleep.
 */
void ashlar__workers_set_count(size_t count);

/* Tests: from now on no thread can be started. */
void ashlar__workers_refuse_start(int refuse);

#endif /* ASHLAR_WORKERS_H */
