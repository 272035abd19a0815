/*
 * shared_library.h - the functions of a shared library that is found at run time (internal).
 */
#ifndef ASHLAR_SHARED_LIBRARY_H
#define ASHLAR_SHARED_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/status.h>

#include "allocator/base/lock.h"

typedef struct ashlar_shared_library {
    const char *what;     /* for messages: "cuDNN 9" */
    const char *variable; /* of the environment; if set, the one file to open */
    const char *names[3]; /* otherwise these, in this order; NULL after the last */
    const char *const *functions; /* [function_count], their names */
    size_t function_count;
    ashlar_status (*check)(const void *functions); /* whether the library will do; NULL: yes */
} ashlar_shared_library;

/* Whether a struct of function pointers has been filled, which happens once in the process. */
typedef struct ashlar_shared_table {
    ashlar_lock lock; /* = ASHLAR_LOCK(ASHLAR_RANK_SHARED_LIBRARY) */
    bool is_filled;   /* lock */
} ashlar_shared_table;

/*
 * Fill `functions` from the library, unless that was done before. The library stays open, since
 * such ones keep threads and handlers of their own.
 *
 * functions   [function_count] function pointers, in the order of their names
 *
 * Errors:  ASHLAR_ENOTSUP, saying what was looked for and what helps, and those of check; the next
 *          call tries again.
 * Threads: any, while none changes the environment.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__shared_load(ashlar_shared_table *table,
                                                    const ashlar_shared_library *library,
                                                    void *functions);

#endif /* ASHLAR_SHARED_LIBRARY_H */
