/* nccl.c - loads NCCL's functions at run time, and maps element types to NCCL's. */
#include "arena/reduce/nccl.h"

#include "allocator/base/error.h"
#include "allocator/base/shared_library.h"

#define SYMBOL(field, symbol, returned, params) #symbol,
static const char *const names[] = {ASHLAR_NCCL_MAP(SYMBOL)};
enum { FUNCTION_COUNT = sizeof names / sizeof names[0] };
_Static_assert(FUNCTION_COUNT * sizeof(void (*)(void)) == sizeof(ashlar_nccl), "only functions");

/* Communicators whose calls return at once, and so can be given up, exist since 2.14. */
static ashlar_status check_version(const void *functions) {
    const ashlar_nccl *nccl = functions;
    int version = 0;
    const nccl_result result = nccl->get_version(&version);
    ASHLAR_FAIL_IF(result != NCCL_SUCCESS || version < NCCL_CONFIG_VERSION, ASHLAR_ENOTSUP,
                   "NCCL is of version %d, before 2.14 (%d): install a newer one", version,
                   NCCL_CONFIG_VERSION);
    return ASHLAR_OK;
}

ashlar_status ashlar__nccl_open(const ashlar_nccl **out) {
    static ashlar_shared_table once = {.lock = ASHLAR_LOCK(ASHLAR_RANK_SHARED_LIBRARY)};
    static ashlar_nccl functions;
    static const ashlar_shared_library library = {
        .what = "NCCL",
        .variable = "ASHLAR_NCCL",
        .names = {"libnccl.so.2"},
        .functions = names,
        .function_count = FUNCTION_COUNT,
        .optional_count = ASHLAR_NCCL_OPTIONAL,
        .check = check_version,
    };
    ASHLAR_TRY(ashlar__shared_load(&once, &library, &functions));
    *out = &functions;
    return ASHLAR_OK;
}

nccl_type ashlar__nccl_type(ashlar_dtype dtype) {
    return dtype == ASHLAR_F32   ? NCCL_F32
           : dtype == ASHLAR_F64 ? NCCL_F64
           : dtype == ASHLAR_F16 ? NCCL_F16
                                 : NCCL_BF16;
}
