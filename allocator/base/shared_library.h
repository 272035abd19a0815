/* shared_library.h - finding a shared library and its functions at run time (internal). */
#ifndef ASHLAR_SHARED_LIBRARY_H
#define ASHLAR_SHARED_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/base.h>

#include "allocator/base/threads.h"

typedef struct ashlar_shared_library {
    const char *what;     /* for messages: "cuDNN 9" */
    const char *variable; /* environment variable; if set, its value is the only file to open */
    const char *names[3]; /* otherwise these files are tried in order; NULL after the last */
    const char *const *functions; /* [function_count], the names of the functions */
    size_t function_count;
    size_t optional_count; /* the library may lack this many of the last; their pointers are NULL */
    ashlar_status (*check)(const void *functions); /* refuses an unsuitable library; or NULL */
} ashlar_shared_library;

/* Whether one struct of function pointers has been filled. It is filled once in the process. */
typedef struct ashlar_shared_table {
    ashlar_lock lock; /* initialised with ASHLAR_LOCK(ASHLAR_LEVEL_SHARED_LIBRARY) */
    bool is_filled;   /* guarded by `lock` */
} ashlar_shared_table;

/*
 * Fill `functions` from the library, unless that was done before. The library is never closed,
 * since such libraries keep threads and handlers of their own.
 *
 * functions   [function_count] function pointers, in the order of library->functions
 *
 * Errors:  ASHLAR_ENOTSUP (the detail names the file looked for, and the remedy), and those of
 *          library->check. The next call tries again.
 * Threads: any, but no thread may change the environment meanwhile.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__shared_load(ashlar_shared_table *table,
                                                    const ashlar_shared_library *library,
                                                    void *functions);

#endif /* ASHLAR_SHARED_LIBRARY_H */
