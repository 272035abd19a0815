/* threads.h - a number for each thread of the process, memory of its own outside its thread-local
 * storage, and a full memory barrier in all threads for which only the caller pays (internal). */
#ifndef ASHLAR_THREADS_H
#define ASHLAR_THREADS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The calling thread's number: 1, 2, ... in the order of the threads' first calls. Numbers of ended
 * threads are not reused. */
uint32_t ashlar__thread_number(void);

/* Register the process for the barrier; only the first call asks the kernel. False: this kernel has
 * no such barrier, or has begun to refuse it. */
bool ashlar__barrier_init(void);

/*
 * Have every other thread pass a full memory barrier before this call returns.
 * ashlar__barrier_init() must have returned true. False: the barrier worked once more, but by means
 * that take milliseconds, since the kernel now refuses membarrier(2) (a seccomp filter was
 * installed); do not rely on barriers from now on.
 */
bool ashlar__barrier_everywhere(void);

/* Register a child of fork(), before it has other threads. */
void ashlar__barrier_begin_child(void);

/* For tests. False: ashlar__barrier_init() returns false from now on. True: it gives the real
 * answer again. */
void ashlar__barrier_pretend(bool is_there);

/* ---- memory of a thread's own ---- */

/* Data that a thread reaches by a pointer. All libraries loaded by dlopen() share a few hundred
 * bytes of the fast thread-local storage from which a hit reads its cache, so larger data lies
 * elsewhere.
 */
typedef enum ashlar_thread_datum {
    ASHLAR_THREAD_ERROR_DETAIL,
    ASHLAR_THREAD_SOFT_CONTEXTS,
    ASHLAR_THREAD_SOFT_STREAMS,
    ASHLAR_THREAD_PRODUCTS,
    ASHLAR_THREAD_DATA_COUNT
} ashlar_thread_datum;

/*
 * The calling thread's memory for `datum`, made and zeroed by the first call. It is freed when the
 * thread ends, after all other functions that run at the thread's end. bytes: the same in every
 * call. NULL: no host memory is left. The memory comes from calloc() itself, so that a simulated
 * lack of host memory (host.h) does not affect the error detail, which is kept here.
 */
void *ashlar__thread_data(ashlar_thread_datum datum, size_t bytes);

/* Like ashlar__thread_data(), but makes nothing: NULL if there has been no call. */
void *ashlar__thread_data_if_any(ashlar_thread_datum datum);

#endif /* ASHLAR_THREADS_H */
