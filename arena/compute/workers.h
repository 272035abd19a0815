/* workers.h - a pool of threads that runs parallel loops on the CPU (internal).
 *
 * The first loop that can use threads starts them: as many, with the caller's, as the CPUs that the
 * process may run on, or N if the environment has ASHLAR_THREADS=N. Between loops they spin for
 * some tens of microseconds, then sleep. A program may lend its own (ashlar_set_threads()). They
 * are never joined: a process may end at any time. A child of fork() starts its own. */
#ifndef ASHLAR_WORKERS_H
#define ASHLAR_WORKERS_H

#include <stddef.h>

#include <ashlar/base.h>

enum { ASHLAR_WORKERS_MAX = 256 };

/* Call fn(context, i) once for each i from 0 to count - 1, in any order, on any of the threads, and
 * return when all calls have returned. Each call should be worth waking a thread for. The caller's
 * thread makes all calls if the pool runs another caller's loop, if the caller is itself a call of
 * such a loop, or if no thread could be started. fn must not fork or end its thread. Threads: any.
 */
void ashlar__workers_run(size_t count, void (*fn)(void *context, size_t i), void *context);

/* Split the items 0 .. count - 1 into runs, at most one for each thread, and call fn(context,
 * first, end) for each, like ashlar__workers_run(). A run has at least `least` > 0 items, which
 * should be worth waking a thread for. Results may not depend on how many runs there are. */
void ashlar__workers_share(size_t count, size_t least,
                           void (*fn)(void *context, size_t first, size_t end), void *context);

/* Split the columns of a matrix into runs in the same way. A run is a whole number of cache lines
 * wide, unless it is the last, and has at least `least` > 0 elements of `item` bytes, a divisor of
 * a cache line. As no column is split, a sum over the rows adds them in their order. */
void ashlar__workers_share_columns(size_t rows, size_t columns, size_t item, size_t least,
                                   void (*fn)(void *context, size_t first, size_t end),
                                   void *context);

/* How many threads share one loop, the caller's included: at least 1. Threads: any. */
size_t ashlar__workers_count(void);

/* Check ASHLAR_THREADS: with a bad value, every loop would silently run on its caller's thread
 * alone. Errors: ASHLAR_EINVAL. */
ASHLAR_MUST_CHECK ashlar_status ashlar__workers_check(void);

/* Use `count` threads from now on, 1 to ASHLAR_WORKERS_MAX, and ignore the environment; with 0, ask
 * the environment again. Threads beyond the number stay asleep. */
void ashlar__workers_set_count(size_t count);

/* For tests: if `refuse` is not 0, starting a thread fails from now on. */
void ashlar__workers_refuse_start(int refuse);

#endif /* ASHLAR_WORKERS_H */
