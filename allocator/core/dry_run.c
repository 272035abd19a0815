/*
 * dry_run.c - allocations, uses and frees of a step that is recorded without memory.
 */
#include "allocator/core/dry_run.h"

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/core/streams.h"

/* What a block counts against the limit. */
static size_t taken_bytes(size_t bytes) {
    size_t taken = SIZE_MAX;
    return ashlar__align_up(bytes, ASHLAR_BLOCK_ALIGN, &taken) ? taken : SIZE_MAX;
}

ashlar_status ashlar__dry_run_alloc_locked(ashlar_allocator *a, ashlar_cache *own, size_t bytes,
                                           ashlar_tag tag, ashlar_stream stream, void **out) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_CHECK2(ashlar__dry_run_is_on(own));
    ashlar_replay *replay = own->own_replay;
    ashlar_recording *recording = &replay->recording;
    ashlar_stream_state *state = NULL;
    const ashlar_status status = ashlar__stream_state_of_locked(a, stream, &state);
    if (status != ASHLAR_OK || state->pool != NULL) {
        return status;
    }
    const size_t taken = taken_bytes(bytes);
    if (taken > replay->dry_bytes) {
        return ashlar__fail(ASHLAR_ENOMEM, "a dry run, for which only %zu bytes are left",
                            replay->dry_bytes);
    }
    if (recording->count == ASHLAR_DRY_RUN_BLOCKS_MAX) {
        return ashlar__fail(ASHLAR_EOVERFLOW, "a dry run of more than %d allocations",
                            ASHLAR_DRY_RUN_BLOCKS_MAX);
    }
    ASHLAR_CHECK2(*out == NULL && recording->count < ASHLAR_DRY_RUN_BLOCKS_MAX);
    const uint32_t index = recording->count;
    ashlar__recording_add(recording, bytes, (unsigned)tag, state, &replay->dry_block);
    if (recording->is_incomplete) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for the recording of a step");
    }
    if (recording->count > index) {
        replay->dry_block_count++;
        replay->dry_bytes -= taken;
        *out = (void *)(ASHLAR_DRY_RUN_BASE + ((uintptr_t)index << ASHLAR_DRY_RUN_STRIDE_LOG2));
    }
    return ASHLAR_OK;
}

/* Find the index of the live allocation that an address stands for. */
static ashlar_status find_live(const ashlar_replay *replay, const void *ptr, uint32_t *index) {
    const uintptr_t offset = (uintptr_t)ptr - ASHLAR_DRY_RUN_BASE;
    const uintptr_t i = offset >> ASHLAR_DRY_RUN_STRIDE_LOG2;
    if (i << ASHLAR_DRY_RUN_STRIDE_LOG2 != offset || i >= replay->recording.count) {
        return ashlar__fail(ASHLAR_EPOINTER, "%p: not a block of this dry run", ptr);
    }
    if (replay->recording.blocks[i] == NULL) {
        return ashlar__fail(ASHLAR_EPOINTER, "%p: freed before in this dry run", ptr);
    }
    *index = (uint32_t)i;
    return ASHLAR_OK;
}

ashlar_status ashlar__dry_run_bytes_locked(ashlar_allocator *a, const ashlar_cache *own,
                                           const void *ptr, size_t *out) {
    ASHLAR_OWNS(&a->lock);
    (void)a;
    uint32_t index = 0;
    const ashlar_status status = find_live(own->own_replay, ptr, &index);
    if (status == ASHLAR_OK) {
        *out = own->own_replay->recording.allocs[index].bytes;
    }
    return status;
}

/* Like find_live(); *is_own says whether `stream` is the allocation's own stream. */
static ashlar_status find_use(ashlar_allocator *a, const ashlar_replay *replay, const void *ptr,
                              ashlar_stream stream, uint32_t *index, bool *is_own) {
    const ashlar_recording *r = &replay->recording;
    ashlar_stream_state *state = NULL;
    ashlar_status status = find_live(replay, ptr, index);
    if (status == ASHLAR_OK) {
        status = ashlar__stream_state_of_locked(a, stream, &state);
    }
    if (status == ASHLAR_OK) {
        *is_own = state == r->stream_states[r->allocs[*index].stream_idx];
    }
    return status;
}

ashlar_status ashlar__dry_run_mark_locked(ashlar_allocator *a, ashlar_cache *own, const void *ptr,
                                          ashlar_stream stream) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_CHECK2(ashlar__dry_run_is_on(own));
    ashlar_replay *replay = own->own_replay;
    uint32_t index = 0;
    bool is_own = true;
    const ashlar_status status = find_use(a, replay, ptr, stream, &index, &is_own);
    if (!is_own) {
        replay->recording.allocs[index].is_shared = true;
    }
    return status;
}

ashlar_status ashlar__dry_run_free_locked(ashlar_allocator *a, ashlar_cache *own, const void *ptr,
                                          const ashlar_stream *stream) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_CHECK2(ashlar__dry_run_is_on(own));
    ashlar_replay *replay = own->own_replay;
    uint32_t index = 0;
    bool is_own = true;
    const ashlar_status status = stream != NULL ? find_use(a, replay, ptr, *stream, &index, &is_own)
                                                : find_live(replay, ptr, &index);
    if (status != ASHLAR_OK) {
        return status;
    }
    ASHLAR_CHECK2(replay->dry_block_count > 0);
    replay->dry_block.recorded = index;
    replay->recording.allocs[index].is_shared |= !is_own;
    (void)ashlar__recording_end(&replay->recording, &replay->dry_block);
    replay->dry_block_count--;
    replay->dry_bytes += taken_bytes(replay->recording.allocs[index].bytes);
    return ASHLAR_OK;
}
