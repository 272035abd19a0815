/*
 * workers.h - the threads of this process that compute on the CPU together (internal).
 *
 * They are started by the first work that needs them, as many as the process may run on (its CPU
 * affinity), the caller's own included; the environment's ASHLAR_THREADS=N, N from 1 to
 * ASHLAR_WORKERS_MAX, says otherwise. Between works they spin for some microseconds, then sleep.
 * They are never joined: a process may end at any time. A child of fork() starts its own.
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
void ashlar_workers_run(size_t count, void (*fn)(void *context, size_t i), void *context);

/* The threads that work is shared by, the caller included: at least 1. Threads: any. */
size_t ashlar_workers_count(void);

/*
 * Whether ASHLAR_THREADS is something: to be called by whoever makes an object that will use the
 * threads. With a bad value that nobody asked about every work is its caller's alone.
 *
 * Threads: any.  Errors: ASHLAR_EINVAL.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_workers_check(void);

/*
 * Use this number of threads from now on, 1 to ASHLAR_WORKERS_MAX, whatever the environment says;
 * 0: as it says. Threads that are there already and not wanted sleep on.
 */
void ashlar_workers_set_count(size_t count);

/* Tests: from now on no thread can be started. */
void ashlar_workers_refuse_start(int refuse);

#endif /* ASHLAR_WORKERS_H */
