/*
 * cublas_table.h - the functions of cuBLAS that ashlar calls, as one table (internal).
 *
 * Types are those of cuBLAS's headers; the functions are found at run time in libcublas.so.13 or
 * libcublas.so.12, or in the file that the environment's ASHLAR_CUBLAS names. Nothing links to it.
 */
#ifndef ASHLAR_CUBLAS_TABLE_H
#define ASHLAR_CUBLAS_TABLE_H

#include <cublas_v2.h>

#include <ashlar/status.h>

/* field, cuBLAS's name; some of which are macros for these */
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
 * The process's one table, filled at the first call.
 *
 * Ownership: the library's.  Threads: any.
 * Errors:    ASHLAR_ENOTSUP (no library); tried again by the next call.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__cublas_open(const ashlar_cublas **out);

/*
 * Turn a refusal into a status with a detail line: ASHLAR_ENOTSUP, ASHLAR_ENOMEM, else
 * ASHLAR_EDRIVER. `result` is not CUBLAS_STATUS_SUCCESS.
 */
ashlar_status ashlar__cublas_error(const ashlar_cublas *cublas, const char *what,
                                   cublasStatus_t result);

#endif /* ASHLAR_CUBLAS_TABLE_H */
