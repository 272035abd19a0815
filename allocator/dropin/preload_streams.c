/* preload_streams.c - a program's calls that make or destroy streams and contexts, capture streams,
 * or wait for contexts, noted because they decide when freed memory may be reused. */
#include "allocator/dropin/preload.h"

#include "allocator/dropin/devices.h"

/* ---- streams ---- */

/* Note a new stream, unless it is blocking: an event on the legacy stream covers those. */
static cu_result note_made(cu_result result, const cu_stream *stream, unsigned int flags) {
    if (result != CU_SUCCESS || (flags & CU_STREAM_UNORDERED) == 0 || !ashlar__preload_begin()) {
        return result;
    }
    ashlar_frees *here = ashlar__preload_here();
    if (here != NULL) {
        ashlar__frees_add_stream(here, *stream);
    } else {
        ashlar__preload_note_missed_stream();
    }
    ashlar__preload_end();
    return result;
}

cu_result cuStreamCreate(cu_stream *stream, unsigned int flags) {
    return note_made(ashlar__real_cuStreamCreate(stream, flags), stream, flags);
}

cu_result cuStreamCreateWithPriority(cu_stream *stream, unsigned int flags, int priority) {
    return note_made(ashlar__real_cuStreamCreateWithPriority(stream, flags, priority), stream,
                     flags);
}

/* A green context is separate: no event on the legacy stream covers its streams. */
cu_result cuGreenCtxStreamCreate(cu_stream *stream, cu_green_context context, unsigned int flags,
                                 int priority) {
    ashlar__preload_note_missed_stream();
    return ashlar__real_cuGreenCtxStreamCreate(stream, context, flags, priority);
}

cu_result cuStreamDestroy_v2(cu_stream stream) {
    if (ashlar__preload_begin()) {
        ashlar__frees_end_stream_anywhere(stream);
        ashlar__preload_end();
    }
    return ashlar__real_cuStreamDestroy_v2(stream);
}

/* ---- captures ---- */

static ashlar_frees *here(void) {
    ashlar_frees *frees = NULL;
    if (ashlar__preload_begin()) {
        frees = ashlar__preload_here();
        ashlar__preload_end();
    }
    return frees;
}

/* Called before the capture begins, while events may be recorded on all streams. */
static void begin_capture(cu_stream stream) {
    ashlar_frees *frees = here();
    if (frees != NULL && ashlar__preload_begin()) {
        ashlar__frees_begin_capture(frees, stream);
        ashlar__preload_end();
    }
}

static cu_result note_begun(cu_result result, cu_stream stream) {
    if (ashlar__preload_begin()) {
        ashlar__frees_note_capture(stream, result == CU_SUCCESS);
        ashlar__preload_end();
    }
    return result;
}

#define X(name, symbol, version, is_ptsz, params, args)                                   \
    cu_result name params {                                                               \
        const cu_stream named_ = (is_ptsz) ? ashlar__preload_per_thread(stream) : stream; \
        begin_capture(named_);                                                            \
        return note_begun(ashlar__real_##name args, named_);                              \
    }
ASHLAR_PRELOAD_CAPTURE_MAP(X)
#undef X

/* Called whatever the result: a call that fails may have ended the capture. */
static cu_result note_ended(cu_result result) {
    if (ashlar__preload_begin()) {
        (void)ashlar__frees_settle_captures();
        ashlar__preload_end();
    }
    return result;
}

cu_result cuStreamEndCapture(cu_stream stream, cu_graph *graph) {
    return note_ended(ashlar__real_cuStreamEndCapture(stream, graph));
}

cu_result cuStreamEndCapture_ptsz(cu_stream stream, cu_graph *graph) {
    return note_ended(ashlar__real_cuStreamEndCapture_ptsz(stream, graph));
}

/* ---- contexts ---- */

/* Call this before a wait for a context; NULL: for the current one. Returns the ashlar_frees whose
 * freed blocks become free by the wait; NULL: there is none. */
static ashlar_frees *begin_wait(cu_context context, ashlar_device_wait *wait) {
    ashlar_frees *frees = here();
    if (frees != NULL && context != NULL && frees->device->context != context) {
        frees = NULL; /* another context's blocks become free later, by events */
    }
    if (frees != NULL && ashlar__preload_begin()) {
        *wait = ashlar__deferred_begin_wait(frees->allocator);
        ashlar__preload_end();
    }
    return frees;
}

/* After the wait: blocks freed before it become free, and what exceeds the release threshold goes
 * back to the driver. */
static cu_result end_wait(cu_result result, ashlar_frees *frees, ashlar_device_wait wait) {
    if (result == CU_SUCCESS && frees != NULL && ashlar__preload_begin()) {
        (void)ashlar__deferred_end_wait(frees->allocator, wait);
        ashlar__preload_keep_to_threshold(frees);
        ashlar__preload_end();
    }
    return result;
}

cu_result cuCtxSynchronize(void) {
    ashlar_device_wait wait = {0};
    ashlar_frees *frees = begin_wait(NULL, &wait);
    return end_wait(ashlar__real_cuCtxSynchronize(), frees, wait);
}

/* CUDA 13's cuCtxSynchronize(), for any context; NULL: the current one. */
cu_result cuCtxSynchronize_v2(cu_context context) {
    ashlar_device_wait wait = {0};
    ashlar_frees *frees = begin_wait(context, &wait);
    return end_wait(ashlar__real_cuCtxSynchronize_v2(context), frees, wait);
}

/* Note a new context, so that we serve it; if there are too many, the driver does. */
static cu_result note_context(cu_result result, const cu_context *context, cu_device device) {
    if (result == CU_SUCCESS && ashlar__preload_begin()) {
        (void)ashlar__dropin_add_context(device, *context);
        ashlar__preload_end();
    }
    return result;
}

#define X(name, symbol, version, is_ptsz, params, args)                  \
    cu_result name params {                                              \
        cu_result result_;                                               \
        ASHLAR_PRELOAD_WITH_ROOM(result_, device, SIZE_MAX, name, args); \
        return note_context(result_, context, device);                   \
    }
ASHLAR_PRELOAD_CONTEXT_MAP(X)
#undef X

/* Our memory in the context ends with it. Later frees go to the driver, which refuses them. */
cu_result cuCtxDestroy_v2(cu_context context) {
    if (context != NULL && ashlar__preload_begin()) {
        const int place = ashlar__dropin_find_context(context);
        ASHLAR_CHECK2(place < ASHLAR_DROPIN_ALLOCATORS_MAX);
        const ashlar_frees *frees = place < 0 ? NULL : ashlar__frees_peek(place);
        if (frees != NULL) {
            ashlar__preload_note_end(frees);
        }
        if (place >= 0) {
            ashlar__frees_drop_context(place);
        }
        ashlar__preload_end();
    }
    return ashlar__real_cuCtxDestroy_v2(context);
}

/* A reset frees all memory of the context but ours, which would stay mapped and unreachable. So
 * return ours first. Later frees go to the driver, which refuses them. */
cu_result cuDevicePrimaryCtxReset_v2(cu_device device) {
    if (ashlar__preload_begin()) {
        const ashlar_frees *frees = ashlar__frees_peek(device);
        if (frees != NULL) {
            ashlar__preload_note_end(frees);
            ashlar__frees_give_up(device);
        }
        ashlar__preload_end();
    }
    return ashlar__real_cuDevicePrimaryCtxReset_v2(device);
}
