/*
 * shared_library.h - functions of a shared library that is found at run time (internal).
 */
#ifndef ASHLAR_SHARED_LIBRARY_H
#define ASHLAR_SHARED_LIBRARY_H

#include <pthread.h>
#include <stdbool.h>

#include <ashlar/status.h>

typedef struct ashlar_shared_library {
    const char *what;     /* for messages: "cuDNN 9" */
    const char *variable; /* of the environment; where it is set, the one file to open */
    const char *names[3]; /* else these, in this order; NULL behind the last */
} ashlar_shared_library;

/*
 * Open it. Nobody closes it: such libraries keep threads and handlers.
 *
 * Errors: ASHLAR_ENOTSUP, saying what was looked for and what helps.  Threads: any, while none
 * changes the environment.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_shared_open(const ashlar_shared_library *library,
                                                   void **handle);

/* Store the address of a function in *function, a function pointer. Errors: ASHLAR_ENOTSUP. */
ASHLAR_MUST_CHECK ashlar_status ashlar_shared_find(const ashlar_shared_library *library,
                                                   void *handle, const char *name, void *function);

/* A table of functions that is filled once in the process. */
typedef struct ashlar_shared_table {
    pthread_mutex_t lock; /* = PTHREAD_MUTEX_INITIALIZER */
    bool is_filled;       /* under lock */
} ashlar_shared_table;

/* Have `fill` fill it, unless that was done; after a failure the next call tries again. Threads:
 * any. Errors: those of fill. */
ASHLAR_MUST_CHECK ashlar_status ashlar_shared_fill(ashlar_shared_table *table,
                                                   ashlar_status (*fill)(void *functions),
                                                   void *functions);

#endif /* ASHLAR_SHARED_LIBRARY_H */
