/* cuda.c - the functions behind ashlar/cuda_dropin.h, built without CUDA's headers. */
#include <ashlar/device.h>
#include <ashlar/base.h>

#include "allocator/dropin/devices.h"
#include "allocator/dropin/frees.h"

/* What ashlar/cuda_dropin.h declares; it cannot be included here, since it needs CUDA's headers. */
enum { ASHLAR_CUDA_ASK = -1 };
typedef enum ashlar_cuda_kind {
    ASHLAR_CUDA_ALL_STREAMS,
    ASHLAR_CUDA_ONE_STREAM,
    ASHLAR_CUDA_PAGE_LOCKED,
} ashlar_cuda_kind;
ASHLAR_API int ashlar_cuda_malloc(ashlar_cuda_kind kind, int device, void **ptr, size_t bytes,
                                  ashlar_stream stream);
ASHLAR_API int ashlar_cuda_free(ashlar_cuda_kind kind, void *ptr, ashlar_stream stream);
ASHLAR_API size_t ashlar_cuda_spare_bytes(int device);
ASHLAR_API ashlar_allocator *ashlar_cuda_allocator(int device);
ASHLAR_API void ashlar_cuda_end_stream(ashlar_stream stream);

_Static_assert(ASHLAR_CUDA_ASK != (int)CU_SUCCESS && ASHLAR_CUDA_ASK < 0, "no code of CUDA's");

/* The code for the caller; ASHLAR_CUDA_ASK: call CUDA, which itself reports the mistake best. */
static int result_of(ashlar_status status) {
    switch (status) {
    case ASHLAR_OK:
        return CU_SUCCESS;
    case ASHLAR_ENOMEM:
    case ASHLAR_EHOSTMEM:
        return CU_OUT_OF_MEMORY;
    default:
        return ASHLAR_CUDA_ASK;
    }
}

/* Programs do not report their streams through this interface, so assume that some are unknown. */
static ashlar_status frees_of(int device, ashlar_frees **out) {
    const ashlar_status status = ashlar__frees_of(device, out);
    if (status == ASHLAR_OK) {
        ASHLAR_CHECK2(*out != NULL);
        ashlar__frees_distrust_streams(*out);
    }
    return status;
}

int ashlar_cuda_malloc(ashlar_cuda_kind kind, int device, void **ptr, size_t bytes,
                       ashlar_stream stream) {
    ashlar_frees *frees;
    ashlar_status status = kind == ASHLAR_CUDA_PAGE_LOCKED
                               ? ashlar__frees_at(ASHLAR_DROPIN_HOST, device, &frees)
                               : frees_of(device, &frees);
    if (status == ASHLAR_OK) {
        status = kind == ASHLAR_CUDA_ONE_STREAM ? ashlar__frees_alloc_on(frees, bytes, stream, ptr)
                                                : ashlar__frees_alloc(frees, bytes, ptr);
    }
    return result_of(status);
}

int ashlar_cuda_free(ashlar_cuda_kind kind, void *ptr, ashlar_stream stream) {
    cu_result result;
    const bool is_ours =
        kind == ASHLAR_CUDA_PAGE_LOCKED
            ? ashlar__frees_answer_host(ptr, &result)
            : ashlar__frees_answer(ptr, kind == ASHLAR_CUDA_ONE_STREAM ? &stream : NULL, &result);
    return is_ours ? (int)result : ASHLAR_CUDA_ASK;
}

size_t ashlar_cuda_spare_bytes(int device) {
    ashlar_frees *frees = ashlar__frees_peek(ashlar__dropin_place(device));
    return frees != NULL ? ashlar__frees_spare_bytes(frees) : 0;
}

ashlar_allocator *ashlar_cuda_allocator(int device) {
    ashlar_frees *frees;
    return frees_of(device, &frees) == ASHLAR_OK && ashlar__frees_tell_ends(frees) == ASHLAR_OK
               ? frees->allocator
               : NULL;
}

void ashlar_cuda_end_stream(ashlar_stream stream) {
    ashlar__frees_end_stream_anywhere(stream);
}
