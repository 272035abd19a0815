/* preload_memory.c - the program's requests for memory, served by us or passed on to the driver. */
#include "allocator/dropin/preload.h"

#include "allocator/base/checked.h"
#include "allocator/core/slow_path.h"
#include "allocator/dropin/devices.h"

/* On all present devices cuMemAllocPitch() rounds rows up to a multiple of this. */
#define PITCH_ALIGN ((size_t)512)
_Static_assert((PITCH_ALIGN & (PITCH_ALIGN - 1)) == 0, "as ashlar__align_up() wants it");

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

/* Free the block if it is ours, on any device. */
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

/* `pool` NULL: the pool from which cuMemAllocAsync() takes. */
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

cu_result cuMemAllocAsync(cu_ptr *ptr, size_t bytes, cu_stream stream) {
    cu_result result;
    if (take_on(ptr, bytes, NULL, stream, &result)) {
        return result;
    }
    ashlar__preload_note_passed();
    ASHLAR_PRELOAD_WITH_ROOM(result, ASHLAR_PRELOAD_CURRENT, bytes, cuMemAllocAsync,
                             (ptr, bytes, stream));
    return result;
}

cu_result cuMemAllocAsync_ptsz(cu_ptr *ptr, size_t bytes, cu_stream stream) {
    cu_result result;
    if (take_on(ptr, bytes, NULL, ashlar__preload_per_thread(stream), &result)) {
        return result;
    }
    ashlar__preload_note_passed();
    ASHLAR_PRELOAD_WITH_ROOM(result, ASHLAR_PRELOAD_CURRENT, bytes, cuMemAllocAsync_ptsz,
                             (ptr, bytes, stream));
    return result;
}

/* The program may name the default pool here. */
cu_result cuMemAllocFromPoolAsync(cu_ptr *ptr, size_t bytes, void *pool, cu_stream stream) {
    cu_result result;
    if (pool != NULL && take_on(ptr, bytes, pool, stream, &result)) {
        return result;
    }
    ashlar__preload_note_passed();
    ASHLAR_PRELOAD_WITH_ROOM(result, ASHLAR_PRELOAD_CURRENT, bytes, cuMemAllocFromPoolAsync,
                             (ptr, bytes, pool, stream));
    return result;
}

cu_result cuMemAllocFromPoolAsync_ptsz(cu_ptr *ptr, size_t bytes, void *pool, cu_stream stream) {
    cu_result result;
    if (pool != NULL && take_on(ptr, bytes, pool, ashlar__preload_per_thread(stream), &result)) {
        return result;
    }
    ashlar__preload_note_passed();
    ASHLAR_PRELOAD_WITH_ROOM(result, ASHLAR_PRELOAD_CURRENT, bytes, cuMemAllocFromPoolAsync_ptsz,
                             (ptr, bytes, pool, stream));
    return result;
}

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

/* Of all contexts of the current device. */
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

/* To the program, reserved memory that is in no block is free. As in CUDA, either may be NULL. */
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
