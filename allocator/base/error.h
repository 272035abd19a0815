/*
 * error.h - how a function of the library reports a failure (internal).
 */
#ifndef ASHLAR_ERROR_H
#define ASHLAR_ERROR_H

#include <ashlar/status.h>

#include "allocator/base/compiler.h"

/*
 * Set this thread's detail text and return `status`, so that a failure is one statement:
 *     return ashlar__fail(ASHLAR_EINVAL, "batch: 0 sequences; give at least 1");
 * The text is cut at ASHLAR_DETAIL_BYTES - 1. Arguments may point into the old detail text.
 */
enum { ASHLAR_DETAIL_BYTES = 1024 };

ashlar_status ashlar__fail(ashlar_status status, const char *format, ...) ASHLAR_PRINTF(2, 3);

/* Return from the function with the call's status unless it is ASHLAR_OK. Not for functions that
 * have something to undo first. */
#define ASHLAR_TRY(call)                      \
    do {                                      \
        const ashlar_status status_ = (call); \
        if (status_ != ASHLAR_OK) {           \
            return status_;                   \
        }                                     \
    } while (0)

#endif /* ASHLAR_ERROR_H */
