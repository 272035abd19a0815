/* error.h - how a function of the library reports a failure (internal). */
#ifndef ASHLAR_ERROR_H
#define ASHLAR_ERROR_H

#include <ashlar/base.h>

#include "allocator/base/compiler.h"

/*
 * Set this thread's error detail and return `status`, so that reporting a failure takes one
 * statement:
 *     return ashlar__fail(ASHLAR_EINVAL, "batch: 0 sequences; give at least 1");
 * A text of ASHLAR_DETAIL_BYTES bytes or more is cut short. Arguments may point into the old
 * detail.
 */
enum { ASHLAR_DETAIL_BYTES = 1024 };

ashlar_status ashlar__fail(ashlar_status status, const char *format, ...) ASHLAR_PRINTF(2, 3);

/* Like ashlar__fail(), after a driver call has failed. `driver_code` is the call's CUresult, which
 * ashlar_error_driver_code() tells. */
ashlar_status ashlar__fail_driver(ashlar_status status, int driver_code, const char *format, ...)
    ASHLAR_PRINTF(3, 4);

/* Make the call; if its status is not ASHLAR_OK, return that status from the enclosing function. Do
 * not use it in a function that must undo something before it returns. */
#define ASHLAR_TRY(call)                      \
    do {                                      \
        const ashlar_status status_ = (call); \
        if (status_ != ASHLAR_OK) {           \
            return status_;                   \
        }                                     \
    } while (0)

/* If `condition` holds, fail: return ashlar__fail(status, detail, ...) from the enclosing function,
 * which must have nothing to undo. */
#define ASHLAR_FAIL_IF(condition, ...)        \
    do {                                      \
        if (condition) {                      \
            return ashlar__fail(__VA_ARGS__); \
        }                                     \
    } while (0)

/* For a sequence of calls with one cleanup at its end: make the next call only if `status` is
 * ASHLAR_OK, and store its status in `status`. */
#define ASHLAR_THEN(status, call) ((status) = (status) == ASHLAR_OK ? (call) : (status))

/* Make a call whose failure does not matter; a comment beside it says why. */
#define ASHLAR_IGNORE(call)                    \
    do {                                       \
        const ashlar_status ignored_ = (call); \
        (void)ignored_;                        \
    } while (0)

/* End a function that makes an object: if `call` fails, destroy the object and return the status;
 * otherwise hand the object out. */
#define ASHLAR_HAND_OUT(call, object, destroy, out) \
    do {                                            \
        const ashlar_status status_ = (call);       \
        if (status_ != ASHLAR_OK) {                 \
            destroy(object);                        \
            return status_;                         \
        }                                           \
        *(out) = (object);                          \
        return ASHLAR_OK;                           \
    } while (0)

#endif /* ASHLAR_ERROR_H */
