/*
 * thread_data.h - memory of a thread's own, outside its thread-local storage (internal).
 *
 * A library that is loaded by dlopen() has a few hundred bytes of thread-local storage for all that
 * the program loads, if a variable of it is to be read as fast as a hit reads its cache. So what is
 * large is behind a pointer.
 */
#ifndef ASHLAR_THREAD_DATA_H
#define ASHLAR_THREAD_DATA_H

#include <stddef.h>

typedef enum ashlar_thread_datum {
    ASHLAR_THREAD_ERROR_DETAIL,
    ASHLAR_THREAD_SOFT_CONTEXTS,
    ASHLAR_THREAD_SOFT_STREAMS,
    ASHLAR_THREAD_DATA_COUNT
} ashlar_thread_datum;

/*
 * The calling thread's memory for `datum`, zeroed at the first call; freed when the thread ends,
 * after the thread has ended everywhere else. bytes: the same in every call.
 * NULL: there is no host memory. It comes from calloc() itself, so that a simulated lack of host
 * memory (host.h) does not take away the text that tells of it.
 */
void *ashlar__thread_data(ashlar_thread_datum datum, size_t bytes);

/* The same if there has been a call, else NULL. */
void *ashlar__thread_data_if_any(ashlar_thread_datum datum);

#endif /* ASHLAR_THREAD_DATA_H */
