/* cublas_load.c - loads the table of cuBLAS's functions, and turns its errors into statuses. */
#include "rnn/layer/cublas_table.h"

#include "allocator/base/error.h"
#include "allocator/base/shared_library.h"

static const char *const names[] = {
#define X(field, symbol) #symbol,
    ASHLAR_CUBLAS_MAP(X)
#undef X
};
enum { FUNCTION_COUNT = sizeof names / sizeof names[0] };
_Static_assert(FUNCTION_COUNT * sizeof(void (*)(void)) == sizeof(ashlar_cublas), "only functions");

ashlar_status ashlar__cublas_open(const ashlar_cublas **out) {
    static ashlar_shared_table once = {.lock = ASHLAR_LOCK(ASHLAR_RANK_SHARED_LIBRARY)};
    static ashlar_cublas functions;
    static const ashlar_shared_library library = {
        .what = "cuBLAS",
        .variable = "ASHLAR_CUBLAS",
        .names = {"libcublas.so.13", "libcublas.so.12"},
        .functions = names,
        .function_count = FUNCTION_COUNT,
    };
    ASHLAR_TRY(ashlar__shared_load(&once, &library, &functions));
    *out = &functions;
    return ASHLAR_OK;
}

ashlar_status ashlar__cublas_error(const ashlar_cublas *cublas, const char *what,
                                   cublasStatus_t result) {
    const ashlar_status status =
        result == CUBLAS_STATUS_ALLOC_FAILED ? ASHLAR_ENOMEM
        : result == CUBLAS_STATUS_NOT_SUPPORTED || result == CUBLAS_STATUS_ARCH_MISMATCH
            ? ASHLAR_ENOTSUP
            : ASHLAR_EDRIVER;
    return ashlar__fail(status, "%s: %s (%d)", what, cublas->get_status_string(result),
                        (int)result);
}
