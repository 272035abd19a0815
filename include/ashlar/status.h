/* status.h - the one result type of every fallible ashlar_ function, and its detail text. */
#ifndef ASHLAR_STATUS_H
#define ASHLAR_STATUS_H

#include <ashlar/export.h>

/* One row per result: enum value, name and sentence all come from this table. */
#define ASHLAR_STATUS_MAP(X)                                              \
    X(OK, "success")                                                      \
    X(EINVAL, "an argument is outside its documented range")              \
    X(EOVERFLOW, "a size computation does not fit")                       \
    X(ENOMEM, "no device memory left")                                    \
    X(EHOSTMEM, "no host memory left")                                    \
    X(EDRIVER, "the device driver reported an error")                     \
    X(ENODEVICE, "no such device")                                        \
    X(ENOTSUP, "not supported by this device or build")                   \
    X(EPOINTER, "the pointer is not a live block of this allocator")      \
    X(EMOVED, "a view no longer lies where the arena placed it")          \
    X(EIO, "a file could not be read or written")                         \
    X(EFORMAT, "a file does not hold what its format promises")           \
    X(EDAMAGE, "memory outside a live block was written to")

ASHLAR_BEGIN_DECLS

#define ASHLAR_STATUS_ENUM(name, text) ASHLAR_##name,
typedef enum ashlar_status {
    ASHLAR_STATUS_MAP(ASHLAR_STATUS_ENUM)
    ASHLAR_STATUS_COUNT
} ashlar_status;

/* Name ("ASHLAR_ENOMEM") and sentence of a status. Never NULL. Threads: any. */
ASHLAR_API const char *ashlar_status_name(ashlar_status status);
ASHLAR_API const char *ashlar_status_text(ashlar_status status);

/*
 * Why the last failing ashlar_ call of this thread failed: one line that names the argument, file,
 * line or driver call, and the remedy if there is one.
 *
 * Ownership: the library's; overwritten by the next failing call of the same thread.
 * Threads:   any; each thread has its own. Never NULL; empty before the first failure.
 */
ASHLAR_API const char *ashlar_error_detail(void);

/*
 * The number of the driver's error behind the last failing ashlar_ call of this thread: a CUresult
 * such as 2, CUDA_ERROR_OUT_OF_MEMORY, which ashlar_error_detail() has as text. 0: the failure did
 * not come from a driver call. A software device has CUDA's numbers. Threads: as above.
 */
ASHLAR_API int ashlar_error_driver_code(void);

/*
 * For libraries and callbacks that build on ashlar: set the text that ashlar_error_detail() returns
 * in this thread, and return `status`. `detail` is copied, and cut after 1023 bytes. Threads: any.
 */
ASHLAR_API ashlar_status ashlar_error_set(ashlar_status status, const char *detail);

ASHLAR_END_DECLS

#endif /* ASHLAR_STATUS_H */
