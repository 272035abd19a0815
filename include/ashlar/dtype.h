/*
 * dtype.h - the element types of tensors.
 */
#ifndef ASHLAR_DTYPE_H
#define ASHLAR_DTYPE_H

#include <stddef.h>

/* Name, bytes of one element, name in the safetensors format. */
#define ASHLAR_DTYPE_MAP(X) \
    X(F32, 4, "F32")        \
    X(F64, 8, "F64")

typedef enum ashlar_dtype {
#define X(name, bytes, text) ASHLAR_##name,
    ASHLAR_DTYPE_MAP(X)
#undef X
    ASHLAR_DTYPE_COUNT
} ashlar_dtype;

/* Bytes of one element; 0 for a value that is no type. Threads: any. */
static inline size_t ashlar_dtype_bytes(ashlar_dtype dtype) {
    static const size_t table[ASHLAR_DTYPE_COUNT] = {
#define X(name, bytes, text) bytes,
        ASHLAR_DTYPE_MAP(X)
#undef X
    };
    return (unsigned)dtype < (unsigned)ASHLAR_DTYPE_COUNT ? table[dtype] : 0;
}

#endif /* ASHLAR_DTYPE_H */
