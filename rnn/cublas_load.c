/* cublas_load.c - the table of cuBLAS's functions, and what its refusals mean. */
#include "cublas_table.h"

#include <pthread.h>
#include <stdbool.h>

#include "error.h"
#include "shared_library.h"

static const ashlar_shared_library cublas_library = {
    .what = "cuBLAS", .variable = "ASHLAR_CUBLAS", .names = {"libcublas.so.13", "libcublas.so.12"}};

static ashlar_status fill(ashlar_cublas *table) {
    void *library = NULL;
    ashlar_status status = ashlar_shared_open(&cublas_library, &library);
#define X(field, symbol)                                                               \
    if (status == ASHLAR_OK) {                                                         \
        status = ashlar_shared_find(&cublas_library, library, #symbol, &table->field); \
    }
    ASHLAR_CUBLAS_MAP(X)
#undef X
    return status;
}

ashlar_status ashlar_cublas_open(const ashlar_cublas **out) {
    static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
    static bool is_open;
    static ashlar_cublas table;
    ashlar_status status = ASHLAR_OK;
    pthread_mutex_lock(&open_lock);
    if (!is_open) {
        status = fill(&table);
        is_open = status == ASHLAR_OK;
    }
    pthread_mutex_unlock(&open_lock);
    if (status == ASHLAR_OK) {
        *out = &table;
    }
    return status;
}

ashlar_status ashlar_cublas_error(const ashlar_cublas *cublas, const char *what,
                                  cublasStatus_t result) {
    const ashlar_status status =
        result == CUBLAS_STATUS_ALLOC_FAILED ? ASHLAR_ENOMEM
        : result == CUBLAS_STATUS_NOT_SUPPORTED || result == CUBLAS_STATUS_ARCH_MISMATCH
            ? ASHLAR_ENOTSUP
            : ASHLAR_EDRIVER;
    return ashlar_fail(status, "%s: %s (%d)", what, cublas->get_status_string(result), (int)result);
}
