/* workers.h - the threads of this process that compute on the CPU together (internal).
 *
 * The first work that needs the threads starts them: as many, with the caller's, as the CPUs that
 * the process may run on, or N if the environment has ASHLAR_THREADS=N. Between works they spin for
 * some microseconds, then sleep. They are never joined: a process may end at any time. A child of
 * fork() starts its own. */
#ifndef ASHLAR_WORKERS_H
#define ASHLAR_WORKERS_H

#include <stddef.h>

#include <ashlar/base.h>

enum { ASHLAR_WORKERS_MAX = 256 };

/* Call fn(context, i) once for each i from 0 to count - 1, in any order, on any of the threads, and
 * return when all calls have returned. Each call should be worth waking a thread for. The caller's
 * thread makes all calls if the threads are busy with another caller's work, if it is itself one of
 * them, or if none could be started. fn must not fork or end its thread. Threads: any. */
void ashlar__workers_run(size_t count, void (*fn)(void *context, size_t i), void *context);

/* Share the items 0 .. count - 1: call fn(context, first, end) for runs of them that cover all,
 * each of at least `least` > 0 items, which should be worth waking a thread for, and at most one
 * for each thread. Results may not depend on how many runs there are. The rest is as above. */
void ashlar__workers_share(size_t count, size_t least,
                           void (*fn)(void *context, size_t first, size_t end), void *context);

/* Share the columns of a matrix of elements of `item` bytes, a divisor of a cache line: call
 * fn(context, first, end) for runs of columns, in whole lines but for the last, and each of at
 * least `least` > 0 elements. A sum over the rows is then in their order, whatever the number of
 * runs. */
void ashlar__workers_share_columns(size_t rows, size_t columns, size_t item, size_t least,
                                   void (*fn)(void *context, size_t first, size_t end),
                                   void *context);

/* How many threads share one work, the caller's included: at least 1. Threads: any. */
size_t ashlar__workers_count(void);

/* Check ASHLAR_THREADS: with a bad value, every work would silently stay on its caller's thread.
 * Errors: ASHLAR_EINVAL. */
ASHLAR_MUST_CHECK ashlar_status ashlar__workers_check(void);

/* Use `count` threads from now on, 1 to ASHLAR_WORKERS_MAX, and ignore the environment; with 0, ask
 * the environment again. Threads beyond the number stay asleep. */
void ashlar__workers_set_count(size_t count);

/* For tests: if `refuse` is not 0, starting a thread fails from now on. */
void ashlar__workers_refuse_start(int refuse);

#endif /* ASHLAR_WORKERS_H */
