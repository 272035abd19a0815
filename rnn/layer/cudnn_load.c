/* cudnn_load.c - loads the table of cuDNN's functions, and turns its errors into statuses. */
#include "rnn/layer/cudnn_table.h"

#include "allocator/base/error.h"
#include "allocator/base/shared_library.h"

enum { MAJOR = 9, VERSIONS_PER_MAJOR = 10000 };
_Static_assert(CUDNN_MAJOR == MAJOR, "the headers are of the version that is looked for");

static const char *const names[] = {
#define X(field, symbol) #symbol,
    ASHLAR_CUDNN_MAP(X)
#undef X
};
enum { FUNCTION_COUNT = sizeof names / sizeof names[0] };
_Static_assert(FUNCTION_COUNT * sizeof(void (*)(void)) == sizeof(ashlar_cudnn), "only functions");

static ashlar_status check_version(const void *functions) {
    const size_t version = ((const ashlar_cudnn *)functions)->get_version();
    return version / VERSIONS_PER_MAJOR == MAJOR
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_ENOTSUP,
                              "the cuDNN that was found is version %zu; it must be %d.x: look at "
                              "ASHLAR_CUDNN and LD_LIBRARY_PATH",
                              version, MAJOR);
}

ashlar_status ashlar__cudnn_open(const ashlar_cudnn **out) {
    static ashlar_shared_table once = {.lock = ASHLAR_LOCK(ASHLAR_RANK_SHARED_LIBRARY)};
    static ashlar_cudnn functions;
    static const ashlar_shared_library library = {
        .what = "cuDNN 9",
        .variable = "ASHLAR_CUDNN",
        .names = {"libcudnn.so.9"},
        .functions = names,
        .function_count = FUNCTION_COUNT,
        .check = check_version,
    };
    ASHLAR_TRY(ashlar__shared_load(&once, &library, &functions));
    *out = &functions;
    return ASHLAR_OK;
}

static ashlar_status status_of(cudnnStatus_t result) {
    /* The thousands of a cuDNN status are its kind: 2xxx bad parameter, 3xxx not supported. */
    if (result / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000) {
        return ASHLAR_ENOTSUP;
    }
    return result == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ? ASHLAR_ENOMEM
           : result == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ? ASHLAR_EHOSTMEM
                                                                          : ASHLAR_EDRIVER;
}

ashlar_status ashlar__cudnn_error(const ashlar_cudnn *cudnn, const char *what,
                                  cudnnStatus_t result) {
    char said[256] = "";
    cudnn->get_last_error_string(said, sizeof said);
    said[sizeof said - 1] = '\0';
    return ashlar__fail(status_of(result), "%s: %s (%d)%s%s", what, cudnn->get_error_string(result),
                        (int)result, said[0] == '\0' ? "" : ": ", said);
}
