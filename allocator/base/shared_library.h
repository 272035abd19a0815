/*
 * shared_library.h - functions of a shared library that is found at run time (internal).
 */
#ifndef ASHLAR_SHARED_LIBRARY_H
#define ASHLAR_SHARED_LIBRARY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include <ashlar/status.h>

typedef struct ashlar_shared_library {
    const char *what;     /* for messages: "cuDNN 9" */
    const char *variable; /* of the environment; where it is set, the one file to open */
    const char *names[3]; /* else these, in this order; NULL behind the last */
    const char *const *functions; /* [function_count], their names */
    size_t function_count;
    ashlar_status (*check)(const void *functions); /* whether they do; NULL: they do */
} ashlar_shared_library;

/* A struct of function pointers that is filled once in the process. */
typedef struct ashlar_shared_table {
    pthread_mutex_t lock; /* = PTHREAD_MUTEX_INITIALIZER */
    bool is_filled;       /* under lock */
} ashlar_shared_table;

/*
 * Fill it from the library, unless that was done. Nobody closes the library: such ones keep
 * threads and handlers.
 *
 * functions   [function_count] function pointers, in the order of their names
 *
 * Errors: ASHLAR_ENOTSUP, saying what was looked for and what helps, and those of check; the next
 *         call tries again.  Threads: any, while none changes the environment.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__shared_load(ashlar_shared_table *table,
                                                    const ashlar_shared_library *library,
                                                    void *functions);

#endif /* ASHLAR_SHARED_LIBRARY_H */
