/* preload_memory.c - the program's requests for memory, served by us or passed on to the driver;
 * and other calls by which the driver takes memory of a device, for contexts, graphs and code: if
 * it lacks memory, ours that is idle goes back to it. */
#include "allocator/dropin/preload.h"

#include "allocator/base/checked.h"
#include "allocator/core/core.h"
#include "allocator/dropin/devices.h"

/* On all present devices cuMemAllocPitch() rounds rows up to a multiple of this. */
#define PITCH_ALIGN ((size_t)512)
_Static_assert((PITCH_ALIGN & (PITCH_ALIGN - 1)) == 0, "ashlar__align_up() wants a power of two");

/* The answer to a request for memory. True: *result is for the program. False: ask the driver,
 * which reports the mistake best. */
static bool is_answered(ashlar_status status, cu_result *result) {
    *result = status == ASHLAR_OK ? CU_SUCCESS : CU_OUT_OF_MEMORY;
    return status == ASHLAR_OK || status == ASHLAR_ENOMEM || status == ASHLAR_EHOSTMEM;
}

/* ---- for any stream ---- */

/* Serve a request that names no stream. False: ask the driver. */
static bool take(cu_ptr *ptr, size_t bytes, cu_result *result) {
    if (ptr == NULL || bytes == 0 || ashlar__preload_options_get()->leaves_plain ||
        !ashlar__preload_begin()) {
        return false;
    }
    void *block = NULL;
    ashlar_frees *here = ashlar__preload_here();
    const bool is_ours =
        here != NULL && is_answered(ashlar__frees_alloc(here, bytes, &block), result);
    ASHLAR_CHECK2(!is_ours || (block != NULL) == (*result == CU_SUCCESS));
    ashlar__preload_end();
    if (is_ours && block != NULL) {
        *ptr = ashlar__ptr_in(block);
    }
    return is_ours;
}

cu_result cuMemAlloc_v2(cu_ptr *ptr, size_t bytes) {
    cu_result result;
    if (take(ptr, bytes, &result)) {
        return result;
    }
    ashlar__preload_note_passed();
    ASHLAR_PRELOAD_WITH_ROOM(result, ASHLAR_PRELOAD_CURRENT, bytes, cuMemAlloc_v2, (ptr, bytes));
    return result;
}

cu_result cuMemAllocPitch_v2(cu_ptr *ptr, size_t *pitch, size_t width, size_t height,
                             unsigned int element) {
    size_t row, bytes;
    cu_result result;
    const bool is_valid = pitch != NULL && (element == 4 || element == 8 || element == 16) &&
                          ashlar__align_up(width, PITCH_ALIGN, &row) &&
                          ashlar__mul(row, height, &bytes);
    if (!is_valid || !take(ptr, bytes, &result)) {
        ashlar__preload_note_passed();
        ASHLAR_PRELOAD_WITH_ROOM(result, ASHLAR_PRELOAD_CURRENT, SIZE_MAX, cuMemAllocPitch_v2,
                                 (ptr, pitch, width, height, element));
        return result;
    }
    if (result == CU_SUCCESS) {
        *pitch = row;
    }
    return result;
}

/* Free the block at `ptr` if it is ours, on whichever device. False: ask the driver. */
static bool give(cu_ptr ptr, const cu_stream *stream, cu_result *result) {
    if (ptr == 0 || !ashlar__preload_begin()) {
        return false;
    }
    const bool is_ours = ashlar__frees_answer(ashlar__ptr_out(ptr), stream, result);
    ashlar__preload_end();
    return is_ours;
}

cu_result cuMemFree_v2(cu_ptr ptr) {
    cu_result result;
    return give(ptr, NULL, &result) ? result : ashlar__real_cuMemFree_v2(ptr);
}

/* ---- in the order of a stream ---- */

static bool is_captured(cu_stream stream) {
    unsigned int status = CU_CAPTURE_NONE;
    return ashlar__real_cuStreamIsCapturing(stream, &status) == CU_SUCCESS &&
           status != CU_CAPTURE_NONE;
}

/* Whether a stream belongs to the context; true if the driver is too old to tell. */
static bool is_of(const ashlar_frees *frees, cu_stream stream) {
    cu_context context = NULL;
    if ((uintptr_t)stream <= CU_STREAM_PER_THREAD) {
        return true;
    }
    const cu_result result = ashlar__real_cuStreamGetCtx(stream, &context);
    return result == CU_NOT_SUPPORTED ||
           (result == CU_SUCCESS && context == frees->device->context);
}

/* Serve a request on a stream, from `pool`; NULL: the pool from which cuMemAllocAsync() takes.
 * False: ask the driver. */
static bool take_on(cu_ptr *ptr, size_t bytes, const void *pool, cu_stream stream,
                    cu_result *result) {
    if (ptr == NULL || bytes == 0 || !ashlar__preload_begin()) {
        return false;
    }
    void *block = NULL;
    ashlar_frees *here = ashlar__preload_here();
    const bool is_ours = here != NULL && ashlar__preload_is_default_pool(here, pool) &&
                         is_of(here, stream) && !is_captured(stream) &&
                         is_answered(ashlar__frees_alloc_on(here, bytes, stream, &block), result);
    ASHLAR_CHECK2(!is_ours || (block != NULL) == (*result == CU_SUCCESS));
    ashlar__preload_end();
    if (is_ours && block != NULL) {
        *ptr = ashlar__ptr_in(block);
    }
    return is_ours;
}

/* Define a driver function that takes `bytes` bytes from `pool` for the stream `named`. */
#define TAKING_ON(name, is_named, pool, named, params, args)                              \
    cu_result name params {                                                               \
        cu_result result_;                                                                \
        if (!(is_named) || !take_on(ptr, bytes, (pool), (named), &result_)) {             \
            ashlar__preload_note_passed();                                                \
            ASHLAR_PRELOAD_WITH_ROOM(result_, ASHLAR_PRELOAD_CURRENT, bytes, name, args); \
        }                                                                                 \
        return result_;                                                                   \
    }

TAKING_ON(cuMemAllocAsync, true, NULL, stream, (cu_ptr * ptr, size_t bytes, cu_stream stream),
          (ptr, bytes, stream))
TAKING_ON(cuMemAllocAsync_ptsz, true, NULL, ashlar__preload_per_thread(stream),
          (cu_ptr * ptr, size_t bytes, cu_stream stream), (ptr, bytes, stream))
/* The program may name a device's default pool here, which stands for our memory. */
TAKING_ON(cuMemAllocFromPoolAsync, pool != NULL, pool, stream,
          (cu_ptr * ptr, size_t bytes, void *pool, cu_stream stream), (ptr, bytes, pool, stream))
TAKING_ON(cuMemAllocFromPoolAsync_ptsz, pool != NULL, pool, ashlar__preload_per_thread(stream),
          (cu_ptr * ptr, size_t bytes, void *pool, cu_stream stream), (ptr, bytes, pool, stream))

/* A captured free would run at each launch, so leave it to the driver, which refuses our blocks. */
cu_result cuMemFreeAsync(cu_ptr ptr, cu_stream stream) {
    cu_result result;
    return !is_captured(stream) && give(ptr, &stream, &result)
               ? result
               : ashlar__real_cuMemFreeAsync(ptr, stream);
}

cu_result cuMemFreeAsync_ptsz(cu_ptr ptr, cu_stream stream) {
    const cu_stream named = ashlar__preload_per_thread(stream);
    cu_result result;
    return !is_captured(named) && give(ptr, &named, &result)
               ? result
               : ashlar__real_cuMemFreeAsync_ptsz(ptr, stream);
}

/* ---- questions ---- */

/* The bytes that we could serve without the driver, in all contexts of the current device. */
static size_t spare_bytes(void) {
    cu_device device = -1;
    size_t sum = 0;
    int place = 0;
    if (ashlar__real_cuCtxGetDevice(&device) != CU_SUCCESS) {
        return 0;
    }
    for (ashlar_frees *f = ashlar__frees_each(&place); f != NULL; f = ashlar__frees_each(&place)) {
        sum += f->device->info.ordinal == device ? ashlar__frees_spare_bytes(f) : 0;
    }
    return sum;
}

/* Memory that we reserve but that no block uses is free to the program. As in CUDA, either pointer
 * may be NULL. */
cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    size_t unasked;
    size_t *total = total_bytes != NULL ? total_bytes : &unasked;
    const cu_result result = ashlar__real_cuMemGetInfo_v2(free_bytes, total);
    if (result != CU_SUCCESS || free_bytes == NULL || !ashlar__preload_begin()) {
        return result;
    }
    const size_t room = *total - *free_bytes, spare = spare_bytes();
    *free_bytes += spare < room ? spare : room;
    ashlar__preload_end();
    return result;
}

/* ---- what the driver serves ---- */

bool ashlar__preload_has_room(cu_result result, cu_device device, size_t bytes) {
    ashlar_driver *driver = NULL;
    cu_device named = device;
    if (result != CU_OUT_OF_MEMORY || !ashlar__preload_begin()) {
        return false;
    }
    const bool is_known =
        (device != ASHLAR_PRELOAD_CURRENT || ashlar__real_cuCtxGetDevice(&named) == CU_SUCCESS) &&
        ashlar__driver_open_cuda(&driver) == ASHLAR_OK;
    const bool has_any =
        is_known && (ashlar__allocators_give_back(driver, named, NULL, bytes, false, NULL) ||
                     ashlar__allocators_give_back(driver, named, NULL, bytes, true, NULL));
    ashlar__preload_end();
    return has_any;
}

/* Define a driver function that takes `bytes` bytes of `device`; SIZE_MAX: it is not known. */
#define TAKING(name, device, bytes, params, args)                         \
    cu_result name params {                                               \
        cu_result result_;                                                \
        ASHLAR_PRELOAD_WITH_ROOM(result_, (device), (bytes), name, args); \
        return result_;                                                   \
    }

/* The same for a function that allocates memory for the program, which the report counts. */
#define TAKING_BLOCK(name, device, bytes, params, args)                   \
    cu_result name params {                                               \
        cu_result result_;                                                \
        ashlar__preload_note_passed();                                    \
        ASHLAR_PRELOAD_WITH_ROOM(result_, (device), (bytes), name, args); \
        return result_;                                                   \
    }

#define CURRENT ASHLAR_PRELOAD_CURRENT

static cu_device place_of(const cu_mem_prop *prop) {
    return prop != NULL && prop->location.type == CU_LOCATION_DEVICE ? prop->location.id : CURRENT;
}

TAKING_BLOCK(cuMemAllocManaged, CURRENT, bytes, (cu_ptr * ptr, size_t bytes, unsigned int flags),
             (ptr, bytes, flags))
TAKING_BLOCK(cuMemCreate, place_of(prop), bytes,
             (cu_mem_handle * handle, size_t bytes, const cu_mem_prop *prop,
              unsigned long long flags),
             (handle, bytes, prop, flags))
TAKING_BLOCK(cuArrayCreate_v2, CURRENT, SIZE_MAX, (void **array, const void *shape), (array, shape))
TAKING_BLOCK(cuArray3DCreate_v2, CURRENT, SIZE_MAX, (void **array, const void *shape),
             (array, shape))
TAKING_BLOCK(cuMipmappedArrayCreate, CURRENT, SIZE_MAX,
             (void **array, const void *shape, unsigned int levels), (array, shape, levels))

TAKING(cuDevicePrimaryCtxRetain, device, SIZE_MAX, (cu_context * context, cu_device device),
       (context, device))

#define X(name, symbol, version, is_ptsz, params, args) \
    TAKING(name, CURRENT, SIZE_MAX, params, args)
ASHLAR_PRELOAD_TAKING_MAP(X)
#undef X
