/*
 * cublas_table.h - the functions of cuBLAS that ashlar calls, as one table (internal).
 *
 * Types come from cuBLAS's headers. The functions are found at run time in libcublas.so.13 or
 * libcublas.so.12, or in the file that the environment variable ASHLAR_CUBLAS names; nothing links
 * to cuBLAS.
 */
#ifndef ASHLAR_CUBLAS_TABLE_H
#define ASHLAR_CUBLAS_TABLE_H

#include <cublas_v2.h>

#include <ashlar/status.h>

/* X(field, symbol). Symbols have _v2 if cuBLAS's header makes the plain name a macro for that. */
#define ASHLAR_CUBLAS_MAP(X)                       \
    X(get_status_string, cublasGetStatusString)    \
    X(create, cublasCreate_v2)                     \
    X(destroy, cublasDestroy_v2)                   \
    X(set_stream, cublasSetStream_v2)              \
    X(gemm, cublasGemmEx)

typedef struct ashlar_cublas {
#define X(field, symbol) __typeof__(&symbol) field;
    ASHLAR_CUBLAS_MAP(X)
#undef X
} ashlar_cublas;

/*
 * The table, one for the whole process; the first call fills it.
 *
 * Ownership: the table is static.  Threads: any.
 * Errors:    ASHLAR_ENOTSUP (no library); the next call tries again.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__cublas_open(const ashlar_cublas **out);

/* Turn an error of cuBLAS into a status with a detail line: ASHLAR_ENOTSUP, ASHLAR_ENOMEM, else
 * ASHLAR_EDRIVER. `result` must not be CUBLAS_STATUS_SUCCESS. */
ashlar_status ashlar__cublas_error(const ashlar_cublas *cublas, const char *what,
                                   cublasStatus_t result);

#endif /* ASHLAR_CUBLAS_TABLE_H */
