/* dtype.h - element types of tensors: names and sizes. */
#ifndef ASHLAR_DTYPE_H
#define ASHLAR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

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
    static const char *none; /* NULL, in words that are C's and no warning of C++ */
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

#endif /* ASHLAR_DTYPE_H */
