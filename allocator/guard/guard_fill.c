/* guard_fill.c - filling and comparing red zones and freed blocks; the freed blocks' quarantine. */
#include "allocator/guard/guard_fill.h"

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/heap/away.h"
#include "allocator/base/host.h"

enum { QUARANTINE_DIVISOR = 16 }; /* at most 1/16 of the device's memory is in quarantine */

/* The invariants of guard_fill.h that need no walk over the quarantine. */
static bool is_sound(const ashlar_guard_fill *fill) {
    return fill->first < ASHLAR_QUARANTINE_BLOCKS && fill->count <= ASHLAR_QUARANTINE_BLOCKS &&
           fill->bytes <= fill->limit_bytes && (fill->count == 0) == (fill->bytes == 0);
}

static bool is_in_quarantine(const ashlar_block *block) {
    return block->state == ASHLAR_BLOCK_USED && block->requested == 0;
}

/* Whether a block has room for a red zone behind its requested bytes. */
static bool has_red_zone(const ashlar_block *block) {
    return block->state == ASHLAR_BLOCK_USED && block->requested > 0 &&
           block->bytes >= ASHLAR_RED_ZONE_BYTES &&
           block->requested <= block->bytes - ASHLAR_RED_ZONE_BYTES;
}

ashlar_status ashlar__guard_fill_create(ashlar_heap *heap, ashlar_guard_fill **out) {
    ashlar_driver_client *client = heap->range.client;
    ashlar_guard_fill *fill = ashlar__host_calloc(1, sizeof *fill);
    if (fill == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "guard: no host memory for its quarantine");
    }
    fill->heap = heap;
    fill->limit_bytes = client->device->info.total_bytes / QUARANTINE_DIVISOR;
    ashlar__checker_init(&fill->checker, client);
    *out = fill;
    return ASHLAR_OK;
}

void ashlar__guard_fill_destroy(ashlar_guard_fill *fill) {
    if (fill != NULL) {
        ashlar__checker_finish(&fill->checker);
        ashlar__host_free(fill);
    }
}

size_t ashlar__guard_fill_block_bytes(size_t bytes) {
    return ashlar__round_up(bytes + ASHLAR_RED_ZONE_BYTES, ASHLAR_BLOCK_ALIGN);
}

/* ---- work on streams; inside the device's context ---- */

static cu_ptr start_of(const ashlar_guard_fill *fill, const ashlar_block *block) {
    return fill->heap->range.base + block->offset;
}

static ashlar_status queue_fill(ashlar_guard_fill *fill, cu_ptr start, size_t bytes,
                                unsigned char value, const ashlar_stream_state *state) {
    ASHLAR_CHECK2(bytes > 0);
    ashlar_driver_client *client = fill->checker.client;
    const cu_result result =
        ASHLAR_CALL(client, memset_d8_async, (start, value, bytes, state->stream));
    return result == CU_SUCCESS
               ? ASHLAR_OK
               : ashlar__driver_error(client->device->driver, "cuMemsetD8Async", result);
}

static ashlar_status compare_red_zone(ashlar_guard_fill *fill, const ashlar_block *block,
                                      const void *key, ashlar_stream stream) {
    const ashlar_check_subject subject = {
        .block = start_of(fill, block),
        .requested = block->requested,
        .offset = block->requested,
        .bytes = block->bytes - block->requested,
        .want = ASHLAR_RED_VALUE,
        .tag = block->tag,
        .stream = block->stream_state->stream,
    };
    return ashlar__checker_queue(&fill->checker, key, stream, &subject);
}

static ashlar_status compare_freed(ashlar_guard_fill *fill, const ashlar_quarantined *q,
                                   const void *key, ashlar_stream stream) {
    const ashlar_check_subject subject = {
        .block = start_of(fill, q->block),
        .requested = q->requested,
        .bytes = q->block->bytes,
        .want = ASHLAR_FREED_VALUE,
        .tag = q->block->tag,
        .is_freed = true,
        .freed = q->freed,
        .stream = q->block->stream_state->stream,
    };
    return ashlar__checker_queue(&fill->checker, key, stream, &subject);
}

/* ---- quarantine; inside the device's context ---- */

/*
 * Queue a block's last comparison. Skip it if a capture would record it, or if the stream's handle
 * must not be used again: the driver refused the comparison when the stream ended or watching
 * began.
 */
static ashlar_status compare_before_release(ashlar_guard_fill *fill, const ashlar_quarantined *q) {
    const ashlar_stream_state *state = q->block->stream_state;
    if (state->is_gone || state->pool != NULL ||
        ashlar__stream_state_is_silent(state, fill->checker.client)) {
        return ASHLAR_OK;
    }
    const ashlar_status status =
        ashlar__stream_refuse_captured(fill->checker.client, state->stream);
    return status == ASHLAR_OK       ? compare_freed(fill, q, state, state->stream)
           : status == ASHLAR_EINVAL ? ASHLAR_OK
                                     : status;
}

/* Return the oldest block to the heap. */
static ashlar_status release_oldest(ashlar_guard_fill *fill) {
    ASHLAR_CHECK2(fill->count > 0 && is_sound(fill));
    const ashlar_quarantined *oldest = &fill->quarantine[fill->first];
    ASHLAR_CHECK2(is_in_quarantine(oldest->block));
    const ashlar_status status = compare_before_release(fill, oldest);
    if (status != ASHLAR_OK) {
        return status;
    }
    fill->first = (fill->first + 1) % ASHLAR_QUARANTINE_BLOCKS;
    fill->count--;
    fill->bytes -= oldest->block->bytes;
    ashlar__release_block_locked(fill->heap, oldest->block, oldest->block->stream_state);
    ASHLAR_CHECK2(is_sound(fill));
    return ASHLAR_OK;
}

static bool is_too_large(const ashlar_guard_fill *fill, const ashlar_block *block) {
    return block->bytes > fill->limit_bytes;
}

static ashlar_status make_room(ashlar_guard_fill *fill, const ashlar_block *block) {
    ashlar_status status = ASHLAR_OK;
    while (status == ASHLAR_OK && !is_too_large(fill, block) &&
           (fill->count == ASHLAR_QUARANTINE_BLOCKS ||
            fill->bytes + block->bytes > fill->limit_bytes)) {
        status = release_oldest(fill);
    }
    return status;
}

/* ---- for the allocator ---- */

ashlar_status ashlar__guard_fill_take_locked(ashlar_guard_fill *fill, ashlar_block *block,
                                             ashlar_stream_state *state) {
    ASHLAR_CHECK2(has_red_zone(block));
    ashlar_driver_client *client = fill->checker.client;
    ashlar_status status = ashlar__device_enter(client->device);
    if (status != ASHLAR_OK) {
        return status;
    }
    bool is_covered = false;
    status = ashlar__stream_refuse_captured(client, state->stream);
    if (status == ASHLAR_OK) {
        status = queue_fill(fill, start_of(fill, block) + block->requested,
                            block->bytes - block->requested, ASHLAR_RED_VALUE, state);
    }
    if (status == ASHLAR_OK) {
        status = ashlar__stream_state_try_cover(state, client, state->recorded,
                                                fill->heap->events_recorded, &is_covered);
    }
    block->covered_by = is_covered ? state->recorded : 0;
    ashlar__device_leave(client->device);
    return status;
}

ashlar_status ashlar__guard_fill_free_locked(ashlar_guard_fill *fill, const ashlar_block *block,
                                             ashlar_stream_state *state) {
    ASHLAR_CHECK2(has_red_zone(block));
    ashlar_device *device = fill->checker.client->device;
    ashlar_status status = ashlar__device_enter(device);
    if (status != ASHLAR_OK) {
        return status;
    }
    status = ashlar__stream_refuse_captured(fill->checker.client, state->stream);
    if (status == ASHLAR_OK) {
        status = make_room(fill, block);
    }
    if (status == ASHLAR_OK) {
        status = compare_red_zone(fill, block, state, state->stream);
    }
    if (status == ASHLAR_OK) {
        status = queue_fill(fill, start_of(fill, block), block->bytes, ASHLAR_FREED_VALUE, state);
    }
    ashlar__device_leave(device);
    return status;
}

void ashlar__guard_fill_put_locked(ashlar_guard_fill *fill, ashlar_block *block, size_t requested,
                                   ashlar_stream_state *state, ashlar_call_site place) {
    ASHLAR_CHECK2(is_in_quarantine(block) && requested > 0 && requested < block->bytes);
    ASHLAR_CHECK2(state->thread == 0); /* the handle names it in every thread */
    block->stream_state = state;
    if (is_too_large(fill, block)) {
        ashlar__release_block_locked(fill->heap, block, state);
        return;
    }
    ASHLAR_ASSERT(fill->count < ASHLAR_QUARANTINE_BLOCKS);
    fill->quarantine[(fill->first + fill->count++) % ASHLAR_QUARANTINE_BLOCKS] =
        (ashlar_quarantined){block, requested, place};
    fill->bytes += block->bytes;
    ASHLAR_CHECK2(is_sound(fill));
}

/* Make the oldest entry the newest. */
static void put_last(ashlar_guard_fill *fill) {
    const ashlar_quarantined oldest = fill->quarantine[fill->first];
    fill->quarantine[(fill->first + fill->count) % ASHLAR_QUARANTINE_BLOCKS] = oldest;
    fill->first = (fill->first + 1) % ASHLAR_QUARANTINE_BLOCKS;
}

ashlar_status ashlar__guard_fill_release_locked(ashlar_guard_fill *fill,
                                                const ashlar_stream_state *of) {
    ashlar_device *device = fill->checker.client->device;
    ashlar_status status = ashlar__device_enter(device);
    if (status != ASHLAR_OK) {
        return status;
    }
    /* Each entry is visited once, so the entries that stay keep their order. */
    for (size_t left = fill->count; left > 0; left--) {
        const ashlar_block *block = fill->quarantine[fill->first].block;
        const bool is_due = status == ASHLAR_OK && (of == NULL || block->stream_state == of);
        const size_t count = fill->count;
        status = is_due ? release_oldest(fill) : status;
        if (fill->count == count) {
            put_last(fill);
        }
    }
    ashlar__device_leave(device);
    ASHLAR_CHECK2(status != ASHLAR_OK || of != NULL || fill->bytes == 0);
    return status;
}

/* ---- the end ---- */

/*
 * All work is over, so every comparison may run on the legacy default stream. Its handle is always
 * valid, while the blocks' streams may be gone. Failures are ignored, since the allocator ends and
 * nobody could be told.
 */
void ashlar__guard_fill_compare_all(ashlar_guard_fill *fill) {
    ashlar_device *device = fill->checker.client->device;
    if (ashlar__device_enter(device) != ASHLAR_OK) {
        return;
    }
    for (size_t i = 0; i < fill->count; i++) {
        (void)compare_freed(fill, &fill->quarantine[(fill->first + i) % ASHLAR_QUARANTINE_BLOCKS],
                            fill, NULL);
    }
    for (const ashlar_block *block = ashlar__heap_first(fill->heap); block != NULL;
         block = ashlar__heap_next(block)) {
        if (block->state == ASHLAR_BLOCK_USED && block->requested != 0 &&
            !block->stream_state->is_pool) {
            (void)compare_red_zone(fill, block, fill, NULL);
        }
    }
    ashlar__device_leave(device);
}

ashlar_status ashlar__guard_fill_check_locked(const ashlar_guard_fill *fill) {
    size_t bytes = 0;
    ASHLAR_FAIL_IF(!is_sound(fill), ASHLAR_EFORMAT,
                   "guard check: %zu blocks of %zu bytes in quarantine, at most %zu", fill->count,
                   fill->bytes, fill->limit_bytes);
    for (size_t i = 0; i < fill->count; i++) {
        const ashlar_block *block =
            fill->quarantine[(fill->first + i) % ASHLAR_QUARANTINE_BLOCKS].block;
        if (!is_in_quarantine(block)) {
            return ashlar__fail(ASHLAR_EFORMAT, "guard check: a block in quarantine is in use");
        }
        bytes += block->bytes;
    }
    ASHLAR_FAIL_IF(bytes != fill->bytes, ASHLAR_EFORMAT,
                   "guard check: %zu bytes in quarantine, counted as %zu", bytes, fill->bytes);
    return ASHLAR_OK;
}
