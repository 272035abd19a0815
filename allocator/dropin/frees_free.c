/* frees_free.c - freeing with the promise of cudaFree(), and in the order of a stream: in which way
 * a block is freed, and the answer to the program. */
#include "allocator/dropin/frees_impl.h"

#include "allocator/base/error.h"
#include "allocator/core/slow_path.h"
#include "allocator/step/step.h"

/* The block is a plan's, whose steps reuse it in their own order. This free is none of theirs, so
 * other streams may use it. */
static ashlar_status free_planned(ashlar_frees *f, void *ptr, bool is_capturing) {
    ashlar_status status = ashlar__frees_synchronize(f, is_capturing);
    if (status == ASHLAR_EINVAL) {
        status = ashlar__frees_synchronize(f, true); /* a capture that nobody told us of */
    }
    return status == ASHLAR_OK ? ashlar_free(f->allocator, ptr) : status;
}

ashlar_status ashlar__frees_free(ashlar_frees *f, void *ptr) {
    ashlar_stream stream;
    bool is_planned;
    if (ashlar__allocator_is_guarded(f->allocator)) {
        ASHLAR_TRY(ashlar__device_synchronize(f->device));
        return ashlar_free(f->allocator, ptr);
    }
    const bool is_capturing = ashlar__frees_settle_captures();
    if (!is_capturing && ashlar__step_stream(f->allocator, &stream) &&
        ashlar__step_has(f->allocator, ptr, stream)) {
        return ashlar_free(f->allocator, ptr);
    }
    const ashlar_status status = ashlar__free_deferred(f->allocator, ptr, &is_planned);
    if (is_planned) {
        return free_planned(f, ptr, is_capturing);
    }
    if (status == ASHLAR_OK && is_capturing) {
        (void)ashlar__frees_wait(f, true);
    }
    return status;
}

static bool answer(ashlar_frees *f, void *ptr, const ashlar_stream *stream, cu_result *result) {
    if (stream != NULL) {
        ashlar__frees_watch(f, *stream);
    }
    const ashlar_status status =
        stream == NULL ? ashlar__frees_free(f, ptr) : ashlar_free_on(f->allocator, ptr, *stream);
    switch (status) {
    case ASHLAR_OK:
    case ASHLAR_EDAMAGE: /* the block is freed; the damage is reported elsewhere */
        *result = CU_SUCCESS;
        return true;
    case ASHLAR_EPOINTER:
        *result = CU_INVALID_VALUE;
        return ashlar__has_reserved(f->allocator, ptr);
    case ASHLAR_EHOSTMEM:
        *result = CU_OUT_OF_MEMORY;
        return true;
    default:
        *result = CU_UNKNOWN;
        return true;
    }
}

bool ashlar__frees_answer(void *ptr, const ashlar_stream *stream, cu_result *result) {
    int place = 0;
    ashlar_frees *f = ashlar__frees_next(&place, ptr);
    while (f != NULL && !answer(f, ptr, stream, result)) {
        f = ashlar__frees_next(&place, ptr);
    }
    return f != NULL;
}

bool ashlar__frees_answer_host(void *ptr, cu_result *result) {
    ashlar_frees *f = ashlar__frees_peek_host();
    return f != NULL && answer(f, ptr, NULL, result);
}
