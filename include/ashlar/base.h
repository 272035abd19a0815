/*
 * base.h - what all of ashlar's headers share: linkage, results of calls, element types, versions.
 *
 * STRUCTURES OF OPTIONS. In all of ashlar's structures that a program fills in, 0 is the default,
 * so that a field which is left out does what its comment says of 0. Where 0 is the default but
 * "never" or "none" is possible, that has a named constant. A field that must be given is refused
 * at 0. NULL in place of a structure of options stands for one that is all 0. Other pointers that a
 * call needs, such as objects and `out`, must not be NULL: that is not checked.
 */
#ifndef ASHLAR_BASE_H
#define ASHLAR_BASE_H

#include <stdbool.h>
#include <stddef.h>

/* ---- linkage ---- */

#if defined(__GNUC__)
#define ASHLAR_API __attribute__((visibility("default")))
#define ASHLAR_MUST_CHECK __attribute__((warn_unused_result))
/* Follows ASHLAR_API if a later version drops the function: ASHLAR_DEPRECATED("use ... instead") */
#define ASHLAR_DEPRECATED(instead) __attribute__((deprecated(instead)))
#else
#define ASHLAR_API
#define ASHLAR_MUST_CHECK
#define ASHLAR_DEPRECATED(instead)
#endif

#if defined(__cplusplus)
#define ASHLAR_BEGIN_DECLS extern "C" {
#define ASHLAR_END_DECLS }
#else
#define ASHLAR_BEGIN_DECLS
#define ASHLAR_END_DECLS
#endif

ASHLAR_BEGIN_DECLS

/* ---- results of calls ---- */

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

/* ---- element types ---- */

/* Name, bytes of one element, name in the safetensors format. */
#define ASHLAR_DTYPE_MAP(X)                                                  \
    X(F32, 4, "F32")                                                         \
    X(F64, 8, "F64")                                                         \
    X(F16, 2, "F16")   /* IEEE 754 binary16 */                               \
    X(BF16, 2, "BF16") /* the upper half of an F32 */

#define ASHLAR_DTYPE_ENUM(name, bytes, text) ASHLAR_##name,
#define ASHLAR_DTYPE_BYTES(name, bytes, text) case ASHLAR_##name: return bytes;
#define ASHLAR_DTYPE_TEXT(name, bytes, text) case ASHLAR_##name: return text;
typedef enum ashlar_dtype {
    ASHLAR_DTYPE_MAP(ASHLAR_DTYPE_ENUM)
    ASHLAR_DTYPE_COUNT
} ashlar_dtype;

/* Bytes of one element; 0 for any other value. Threads: any. */
static inline size_t ashlar_dtype_bytes(ashlar_dtype dtype) {
    switch (dtype) {
        ASHLAR_DTYPE_MAP(ASHLAR_DTYPE_BYTES)
    case ASHLAR_DTYPE_COUNT:
        break;
    }
    return 0;
}

/* "F32" and so on; NULL for any other value. Threads: any. */
static inline const char *ashlar_dtype_name(ashlar_dtype dtype) {
    static const char *none; /* NULL, without C++ compilers' warning about that macro */
    switch (dtype) {
        ASHLAR_DTYPE_MAP(ASHLAR_DTYPE_TEXT)
    case ASHLAR_DTYPE_COUNT:
        break;
    }
    return none;
}

/* Whether training needs F32 moments and masters beside elements of this type. Threads: any. */
static inline bool ashlar_dtype_is_narrow(ashlar_dtype dtype) {
    return dtype == ASHLAR_F16 || dtype == ASHLAR_BF16;
}

/* ---- versions ---- */

#define ASHLAR_VERSION_MAJOR 0
#define ASHLAR_VERSION_MINOR 1
#define ASHLAR_VERSION_PATCH 0

/* As one number that grows from version to version: 1.2.3 is 10203. */
#define ASHLAR_VERSION \
    (ASHLAR_VERSION_MAJOR * 10000 + ASHLAR_VERSION_MINOR * 100 + ASHLAR_VERSION_PATCH)

#define ASHLAR_VERSION_QUOTE_(text) #text
#define ASHLAR_VERSION_JOIN_(major, minor, patch) \
    ASHLAR_VERSION_QUOTE_(major) "." ASHLAR_VERSION_QUOTE_(minor) "." ASHLAR_VERSION_QUOTE_(patch)

/* "1.2.3" */
#define ASHLAR_VERSION_TEXT \
    ASHLAR_VERSION_JOIN_(ASHLAR_VERSION_MAJOR, ASHLAR_VERSION_MINOR, ASHLAR_VERSION_PATCH)

/*
 * ASHLAR_VERSION of the library that the program runs with. It may be later than that of the
 * headers that the program was compiled with. If it is earlier, the program may use what the
 * library lacks.
 *
 * Threads: any. Cost: a call.
 */
ASHLAR_API int ashlar_version(void);

ASHLAR_END_DECLS

#endif /* ASHLAR_BASE_H */
