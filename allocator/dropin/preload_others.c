/* preload_others.c - memory that is not ours: what we keep must not be what it lacks. */
#include "allocator/dropin/preload.h"

/* True: the driver had too little, and has more now. */
static bool has_given_back(cu_result result) {
    if (result != CU_OUT_OF_MEMORY || !ashlar__preload_begin()) {
        return false;
    }
    ashlar_frees *here = ashlar__preload_here();
    const bool has_any = here != NULL && ashlar__frees_give_back(here);
    ashlar__preload_end();
    return has_any;
}

#define ASK_TWICE(name, params, args)                                        \
    cu_result name params {                                                  \
        const cu_result result_ = ashlar__real_##name args;                  \
        ashlar__preload_note_passed();                                       \
        return has_given_back(result_) ? ashlar__real_##name args : result_; \
    }

ASK_TWICE(cuMemAllocFromPoolAsync, (cu_ptr * ptr, size_t bytes, void *pool, cu_stream stream),
          (ptr, bytes, pool, stream))
ASK_TWICE(cuMemAllocFromPoolAsync_ptsz, (cu_ptr * ptr, size_t bytes, void *pool, cu_stream stream),
          (ptr, bytes, pool, stream))
ASK_TWICE(cuMemAllocManaged, (cu_ptr * ptr, size_t bytes, unsigned int flags), (ptr, bytes, flags))
ASK_TWICE(cuMemCreate,
          (cu_mem_handle * handle, size_t bytes, const cu_mem_prop *prop, unsigned long long flags),
          (handle, bytes, prop, flags))
ASK_TWICE(cuArrayCreate_v2, (void **array, const void *shape), (array, shape))
ASK_TWICE(cuArray3DCreate_v2, (void **array, const void *shape), (array, shape))
ASK_TWICE(cuMipmappedArrayCreate, (void **array, const void *shape, unsigned int levels),
          (array, shape, levels))
