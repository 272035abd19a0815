#include "allocator/core/rehearsal.h"

#include "allocator/base/error.h"
#include "allocator/core/streams.h"

ashlar_status ashlar_rehearsal_alloc_locked(ashlar_allocator *a, ashlar_cache *own, size_t bytes,
                                            ashlar_tag tag, ashlar_stream stream, void **out) {
    ashlar_run *run = own->run;
    ashlar_recording *recording = &run->recording;
    ashlar_order *order = NULL;
    const ashlar_status status = ashlar_order_of_locked(a, stream, &order);
    if (status != ASHLAR_OK || order->pool != NULL) {
        return status;
    }
    if (recording->count == ASHLAR_REHEARSAL_BLOCKS_MAX) {
        return ashlar_fail(ASHLAR_EOVERFLOW, "a rehearsal of more than %d allocations",
                           ASHLAR_REHEARSAL_BLOCKS_MAX);
    }
    const uint32_t index = recording->count;
    ashlar_recording_add(recording, bytes, (unsigned)tag, order, &run->rehearsed);
    if (recording->is_incomplete) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for the recording of a step");
    }
    if (recording->count > index) {
        run->rehearsed_count++;
        *out = (void *)(ASHLAR_REHEARSAL_BASE + ((uintptr_t)index << ASHLAR_REHEARSAL_STRIDE_LOG2));
    }
    return ASHLAR_OK;
}

/* The live allocation that an address stands for. */
static ashlar_status find_live(const ashlar_run *run, const void *ptr, uint32_t *index) {
    const uintptr_t offset = (uintptr_t)ptr - ASHLAR_REHEARSAL_BASE;
    const uintptr_t i = offset >> ASHLAR_REHEARSAL_STRIDE_LOG2;
    if (i << ASHLAR_REHEARSAL_STRIDE_LOG2 != offset || i >= run->recording.count) {
        return ashlar_fail(ASHLAR_EPOINTER, "%p: not a block of this rehearsal", ptr);
    }
    if (run->recording.blocks[i] == NULL) {
        return ashlar_fail(ASHLAR_EPOINTER, "%p: freed before in this rehearsal", ptr);
    }
    *index = (uint32_t)i;
    return ASHLAR_OK;
}

/* The same, and whether `stream` is its own. */
static ashlar_status find_use(ashlar_allocator *a, const ashlar_run *run, const void *ptr,
                              ashlar_stream stream, uint32_t *index, bool *is_own) {
    const ashlar_recording *r = &run->recording;
    ashlar_order *order = NULL;
    ashlar_status status = find_live(run, ptr, index);
    if (status == ASHLAR_OK) {
        status = ashlar_order_of_locked(a, stream, &order);
    }
    if (status == ASHLAR_OK) {
        *is_own = order == r->orders[r->allocs[*index].part];
    }
    return status;
}

ashlar_status ashlar_rehearsal_mark_locked(ashlar_allocator *a, ashlar_cache *own, const void *ptr,
                                           ashlar_stream stream) {
    ashlar_run *run = own->run;
    uint32_t index = 0;
    bool is_own = true;
    const ashlar_status status = find_use(a, run, ptr, stream, &index, &is_own);
    if (!is_own) {
        run->recording.allocs[index].end = ASHLAR_NOT_PLANNED;
    }
    return status;
}

ashlar_status ashlar_rehearsal_free_locked(ashlar_allocator *a, ashlar_cache *own, const void *ptr,
                                           const ashlar_stream *stream) {
    ashlar_run *run = own->run;
    uint32_t index = 0;
    bool is_own = true;
    const ashlar_status status = stream != NULL ? find_use(a, run, ptr, *stream, &index, &is_own)
                                                : find_live(run, ptr, &index);
    if (status != ASHLAR_OK) {
        return status;
    }
    const bool is_planned = is_own && run->recording.allocs[index].end != ASHLAR_NOT_PLANNED;
    run->rehearsed.recorded = index;
    (void)ashlar_recording_end(&run->recording, &run->rehearsed, is_planned);
    run->rehearsed_count--;
    return ASHLAR_OK;
}
