/* dry_run.c - allocations, uses and frees of a step that is recorded without memory. */
#include "allocator/core/core.h"

#include "allocator/base/checked.h"
#include "allocator/base/error.h"

/* The bytes of the limit that a request of `bytes` bytes takes. */
static size_t taken_bytes(size_t bytes) {
    size_t taken = SIZE_MAX;
    return ashlar__align_up(bytes, ASHLAR_BLOCK_ALIGN, &taken) ? taken : SIZE_MAX;
}

/* Serve a request with the address that stands for its index in the recording. A request that is
 * not recorded has none, and gets memory. */
ashlar_status ashlar__dry_run_alloc(ashlar_allocator *a, ashlar_call *call) {
    ashlar_replay *replay = call->request.own->own_replay;
    ashlar_recording *recording = &replay->recording;
    ashlar_stream_state *state = NULL;
    if (call->request.is_idle) {
        return call->next(a, call);
    }
    ASHLAR_TRY(ashlar__stream_state_of_locked(a, call->stream, &state));
    if (state->pool != NULL) {
        return call->next(a, call);
    }
    const size_t taken = taken_bytes(call->bytes);
    ASHLAR_FAIL_IF(taken > replay->dry_bytes, ASHLAR_ENOMEM,
                   "a dry run, for which only %zu bytes are left", replay->dry_bytes);
    ASHLAR_FAIL_IF(recording->count == ASHLAR_DRY_RUN_BLOCKS_MAX, ASHLAR_EOVERFLOW,
                   "a dry run of more than %d allocations", ASHLAR_DRY_RUN_BLOCKS_MAX);
    const uint32_t index = recording->count;
    ashlar__recording_add(recording, call->bytes, (unsigned)call->tag, state, &replay->dry_block);
    ASHLAR_FAIL_IF(recording->is_incomplete, ASHLAR_EHOSTMEM,
                   "no host memory for the recording of a step");
    if (recording->count == index) {
        return call->next(a, call);
    }
    replay->dry_block_count++;
    replay->dry_bytes -= taken;
    call->ptr = (void *)(ASHLAR_DRY_RUN_BASE + ((uintptr_t)index << ASHLAR_DRY_RUN_STRIDE_LOG2));
    return ASHLAR_OK;
}

/* Find the index of the live allocation that an address stands for. */
static ashlar_status find_live(const ashlar_replay *replay, const void *ptr, uint32_t *index) {
    const uintptr_t offset = (uintptr_t)ptr - ASHLAR_DRY_RUN_BASE;
    const uintptr_t i = offset >> ASHLAR_DRY_RUN_STRIDE_LOG2;
    ASHLAR_FAIL_IF(i << ASHLAR_DRY_RUN_STRIDE_LOG2 != offset || i >= replay->recording.count,
                   ASHLAR_EPOINTER, "%p: not a block of this dry run", ptr);
    ASHLAR_FAIL_IF(replay->recording.blocks[i] == NULL, ASHLAR_EPOINTER,
                   "%p: freed before in this dry run", ptr);
    *index = (uint32_t)i;
    return ASHLAR_OK;
}

ashlar_status ashlar__dry_run_bytes(const ashlar_cache *own, const void *ptr, size_t *out) {
    uint32_t index = 0;
    ASHLAR_TRY(find_live(own->own_replay, ptr, &index));
    *out = own->own_replay->recording.allocs[index].bytes;
    return ASHLAR_OK;
}

/* Note that the call's stream uses the block at call->ptr. *index: its place in the recording. */
static ashlar_status note_use(ashlar_allocator *a, const ashlar_call *call, uint32_t *index) {
    ashlar_recording *r = &call->request.own->own_replay->recording;
    ashlar_stream_state *state = NULL;
    ASHLAR_TRY(find_live(call->request.own->own_replay, call->ptr, index));
    if (call->names_stream) {
        ASHLAR_TRY(ashlar__stream_state_of_locked(a, call->stream, &state));
        r->allocs[*index].is_shared |= state != r->stream_states[r->allocs[*index].stream_idx];
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__dry_run_use(ashlar_allocator *a, ashlar_call *call) {
    uint32_t index = 0;
    return ashlar__dry_run_has(call->request.own, call->ptr) ? note_use(a, call, &index)
                                                             : call->next(a, call);
}

ashlar_status ashlar__dry_run_free(ashlar_allocator *a, ashlar_call *call) {
    ashlar_replay *replay = call->request.own->own_replay;
    uint32_t index = 0;
    if (!ashlar__dry_run_has(call->request.own, call->ptr)) {
        return call->next(a, call);
    }
    ASHLAR_TRY(note_use(a, call, &index));
    ASHLAR_CHECK2(replay->dry_block_count > 0);
    replay->dry_block.recorded = index;
    (void)ashlar__recording_end(&replay->recording, &replay->dry_block);
    replay->dry_block_count--;
    replay->dry_bytes += taken_bytes(replay->recording.allocs[index].bytes);
    return ASHLAR_OK;
}
