/* guard_fill.c - guard=fill: red zones and freed blocks are filled and compared in stream order;
 * the quarantine of freed blocks; reports of damage. */
#include "allocator/guard/guard_fill.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/heap/heap.h"

struct ashlar_check_stream {
    ashlar_check_stream *next;
    const void *key;        /* of the stream; NULL: it is forgotten. Lock: the allocator's */
    unsigned char *staging; /* page-locked, ASHLAR_STAGING_BYTES; const */
    size_t waiting;         /* checks that are queued and not yet compared. Lock: the checker's */
};

/* Lock: the checker's guards every field except those marked const. */
struct ashlar_pattern_check {
    ashlar_pattern_check *next, *prev;
    ashlar_checker *checker;      /* const */
    ashlar_check_stream *on;      /* const */
    ashlar_check_subject subject; /* const, except for its bytes: see cut_short() */
    size_t at;                    /* bytes compared */
    size_t damaged;               /* the first byte that differs; SIZE_MAX: none so far */
};

/* Invariant of a pending check: it has bytes left to compare, and damage only in compared ones. */
static bool is_pending(const ashlar_pattern_check *check) {
    return check->at < check->subject.bytes &&
           (check->damaged < check->at || check->damaged == SIZE_MAX);
}

static void free_checks(ashlar_pattern_check *list) {
    while (list != NULL) {
        ashlar_pattern_check *next = list->next;
        ashlar__host_free(list);
        list = next;
    }
}

/* Call this when no host function of a check can run any more. */
static void checker_finish(ashlar_checker *checker) {
    const bool is_entered = ashlar__device_enter(checker->client->device) == ASHLAR_OK;
    while (checker->check_streams != NULL) {
        ashlar_check_stream *next = checker->check_streams->next;
        if (is_entered) {
            (void)ASHLAR_CALL(checker->client, mem_free_host, (checker->check_streams->staging));
        }
        ashlar__host_free(checker->check_streams);
        checker->check_streams = next;
    }
    if (is_entered) {
        ashlar__device_leave(checker->client->device);
    }
    free_checks(checker->queued);
    free_checks(checker->found);
    ashlar__lock_finish(&checker->lock);
}

static ashlar_status refuse(const ashlar_checker *checker, const char *what, cu_result result) {
    return result == CU_SUCCESS
               ? ASHLAR_OK
               : ashlar__driver_error(checker->client->device->driver, what, result);
}

/* ---- queueing ---- */

/* The entry of the stream, or one that a forgotten stream no longer needs; NULL: there is none. */
static ashlar_check_stream *find_stream(ashlar_checker *checker, const void *key) {
    ashlar_check_stream *left = NULL, *at = checker->check_streams;
    ashlar__lock_acquire(&checker->lock);
    while (at != NULL && at->key != key) {
        left = at->key == NULL && at->waiting == 0 ? at : left;
        at = at->next;
    }
    ashlar__lock_release(&checker->lock);
    return at != NULL ? at : left;
}

static ashlar_status need_stream(ashlar_checker *checker, const void *key,
                                 ashlar_check_stream **out) {
    ASHLAR_CHECK2(key != NULL);
    ashlar_check_stream *check_stream = find_stream(checker, key);
    if (check_stream == NULL) {
        void *staging = NULL;
        ASHLAR_HOST_NEW(check_stream, 1, "guard: no host memory to check a stream's blocks");
        const cu_result result =
            ASHLAR_CALL(checker->client, mem_host_alloc, (&staging, ASHLAR_STAGING_BYTES, 0));
        if (result != CU_SUCCESS) {
            ashlar__host_free(check_stream);
            return refuse(checker, "cuMemHostAlloc", result);
        }
        check_stream->staging = staging;
        check_stream->next = checker->check_streams;
        checker->check_streams = check_stream;
    }
    check_stream->key = key;
    *out = check_stream;
    return ASHLAR_OK;
}

void ashlar__checker_forget(ashlar_checker *checker, const void *key) {
    for (ashlar_check_stream *at = checker->check_streams; at != NULL; at = at->next) {
        at->key = at->key == key ? NULL : at->key;
    }
}

static void link_queued(ashlar_pattern_check *check) {
    ashlar_checker *checker = check->checker;
    ashlar__lock_acquire(&checker->lock);
    check->on->waiting++;
    ASHLAR_CHECK2(is_pending(check) && check->prev == NULL);
    check->next = checker->queued;
    if (check->next != NULL) {
        ASHLAR_CHECK2(check->next->prev == NULL);
        check->next->prev = check;
    }
    checker->queued = check;
    ashlar__lock_release(&checker->lock);
}

/* All bytes of a check are compared: move the check to the findings, or free it if it found no
 * damage. */
static void settle_locked(ashlar_pattern_check *check) {
    ashlar_checker *checker = check->checker;
    ASHLAR_OWNS(&checker->lock);
    ASHLAR_CHECK2(check->at == check->subject.bytes && check->on->waiting > 0);
    check->on->waiting--;
    *(check->prev != NULL ? &check->prev->next : &checker->queued) = check->next;
    if (check->next != NULL) {
        check->next->prev = check->prev;
    }
    if (check->damaged == SIZE_MAX) {
        ashlar__host_free(check);
        return;
    }
    ASHLAR_CHECK2(check->damaged < check->at);
    ashlar_pattern_check **end = &checker->found;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    check->next = NULL;
    *end = check;
}

static size_t piece_bytes(size_t at, size_t bytes) {
    ASHLAR_CHECK2(at < bytes);
    return bytes - at < ASHLAR_STAGING_BYTES ? bytes - at : ASHLAR_STAGING_BYTES;
}

static size_t first_difference(const unsigned char *bytes, size_t count, unsigned char want) {
    size_t i = 0;
    while (i < count && bytes[i] == want) {
        i++;
    }
    return i;
}

/* The host function that compares a piece. It runs once for each piece, in stream order. */
static void compare_piece(void *user_data) {
    ashlar_pattern_check *check = user_data;
    ashlar_checker *checker = check->checker;
    ashlar__lock_acquire(&checker->lock);
    ASHLAR_CHECK2(is_pending(check));
    const size_t count = piece_bytes(check->at, check->subject.bytes);
    const size_t same = first_difference(check->on->staging, count, check->subject.want);
    if (same < count && check->damaged == SIZE_MAX) {
        check->damaged = check->at + same;
    }
    check->at += count;
    if (check->at == check->subject.bytes) {
        settle_locked(check);
    }
    ashlar__lock_release(&checker->lock);
}

/* The driver has refused a piece: compare only the `bytes` before it. */
static void cut_short(ashlar_pattern_check *check, size_t bytes) {
    ashlar_checker *checker = check->checker;
    ashlar__lock_acquire(&checker->lock);
    ASHLAR_CHECK2(check->at <= bytes && bytes < check->subject.bytes);
    check->on->waiting++; /* the copy of this check may still be queued, so no other stream may
                             get the buffer */
    check->subject.bytes = bytes;
    if (check->at == bytes) {
        settle_locked(check);
    }
    ashlar__lock_release(&checker->lock);
}

/* Queue a check on a stream, in the device's context. If this fails, a part may be checked. key:
 * names the stream, for longer than its handle, which the driver may use again. */
static ashlar_status checker_queue(ashlar_checker *checker, const void *key, ashlar_stream stream,
                                   const ashlar_check_subject *subject) {
    ASHLAR_CHECK2(subject->bytes > 0);
    ashlar_check_stream *check_stream = NULL;
    ashlar_status status = need_stream(checker, key, &check_stream);
    ashlar_pattern_check *check;
    ASHLAR_TRY(status);
    ASHLAR_HOST_NEW(check, 1, "guard: no host memory to check a block");
    *check = (ashlar_pattern_check){
        .checker = checker, .on = check_stream, .subject = *subject, .damaged = SIZE_MAX};
    link_queued(check);
    /* Once its last piece is queued, compare_piece() may free the check at any time. */
    const cu_ptr start = subject->block + subject->offset;
    for (size_t at = 0; at < subject->bytes;) {
        const size_t count = piece_bytes(at, subject->bytes);
        status = refuse(checker, "cuMemcpyDtoHAsync",
                        ASHLAR_CALL(checker->client, memcpy_dtoh_async,
                                    (check_stream->staging, start + at, count, stream)));
        ASHLAR_THEN(status, refuse(checker, "cuLaunchHostFunc",
                                   ASHLAR_CALL(checker->client, launch_host_func,
                                               (stream, compare_piece, check))));
        if (status != ASHLAR_OK) {
            cut_short(check, at);
            return status;
        }
        at += count;
    }
    return ASHLAR_OK;
}

/* ---- findings ---- */

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

void ashlar__call_site_write(ashlar_call_site place, char out[static ASHLAR_CALL_SITE_BYTES]) {
    const uintptr_t at = (uintptr_t)place.address;
    char function[ASHLAR_CALL_SITE_BYTES / 2] = "";
    Dl_info info = {0};
    (void)dladdr(place.address, &info);
    if (info.dli_fname == NULL) { /* no library has the address */
        (void)snprintf(out, ASHLAR_CALL_SITE_BYTES, "thread %llu at %p",
                       (unsigned long long)place.thread, place.address);
        return;
    }
    if (info.dli_sname != NULL) {
        (void)snprintf(function, sizeof function, " (%s+0x%zx)", info.dli_sname,
                       (size_t)(at - (uintptr_t)info.dli_saddr));
    }
    (void)snprintf(out, ASHLAR_CALL_SITE_BYTES, "thread %llu at %p in %s+0x%zx%s",
                   (unsigned long long)place.thread, place.address, last_part(info.dli_fname),
                   (size_t)(at - (uintptr_t)info.dli_fbase), function);
}

static ashlar_status report(const ashlar_pattern_check *check) {
    const ashlar_check_subject *s = &check->subject;
    const size_t offset = s->offset + check->damaged;
    char place[ASHLAR_CALL_SITE_BYTES];
    if (s->is_freed) {
        ashlar__call_site_write(s->freed, place);
        return ashlar__fail(ASHLAR_EDAMAGE,
                            "%p: written to after it was freed, first at offset %zu; a block of "
                            "%zu bytes (%s, stream %p), freed by %s",
                            ashlar__ptr_out(s->block), offset, s->requested,
                            ashlar_tag_name((ashlar_tag)s->tag), (void *)s->stream, place);
    }
    return ashlar__fail(ASHLAR_EDAMAGE,
                        "%p: written to behind its end, first at offset %zu; a block of %zu bytes "
                        "(%s, stream %p)",
                        ashlar__ptr_out(s->block), offset, s->requested,
                        ashlar_tag_name((ashlar_tag)s->tag), (void *)s->stream);
}

ashlar_status ashlar__checker_take(ashlar_checker *checker) {
    ashlar__lock_acquire(&checker->lock);
    ashlar_pattern_check *check = checker->found;
    if (check != NULL) {
        checker->found = check->next;
    }
    ashlar__lock_release(&checker->lock);
    if (check == NULL) {
        return ASHLAR_OK;
    }
    const ashlar_status status = report(check);
    ashlar__host_free(check);
    return status;
}

/* ---- red zones and quarantine ---- */

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
    ashlar_guard_fill *fill;
    ASHLAR_HOST_NEW(fill, 1, "guard: no host memory for its quarantine");
    fill->heap = heap;
    fill->limit_bytes = client->device->info.total_bytes / QUARANTINE_DIVISOR;
    fill->checker.client = client;
    ashlar__lock_init(&fill->checker.lock, ASHLAR_LEVEL_PATTERN_CHECK);
    *out = fill;
    return ASHLAR_OK;
}

void ashlar__guard_fill_destroy(ashlar_guard_fill *fill) {
    if (fill != NULL) {
        checker_finish(&fill->checker);
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
    return refuse(&fill->checker, "cuMemsetD8Async",
                  ASHLAR_CALL(client, memset_d8_async, (start, value, bytes, state->stream)));
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
    return checker_queue(&fill->checker, key, stream, &subject);
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
    return checker_queue(&fill->checker, key, stream, &subject);
}

/* ---- quarantine; inside the device's context ---- */

/* Queue the comparison of a freed block, unless a capture would record it, or the stream's handle
 * must not be used again. */
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
    ASHLAR_TRY(compare_before_release(fill, oldest));
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
    bool is_covered = false;
    ASHLAR_TRY(ashlar__device_enter(client->device));
    ashlar_status status = ashlar__stream_refuse_captured(client, state->stream);
    ASHLAR_THEN(status, queue_fill(fill, start_of(fill, block) + block->requested,
                                   block->bytes - block->requested, ASHLAR_RED_VALUE, state));
    ASHLAR_THEN(status, ashlar__stream_state_try_cover(state, client, state->recorded,
                                                       fill->heap->events_recorded, &is_covered));
    block->covered_by = is_covered ? state->recorded : 0;
    ashlar__device_leave(client->device);
    return status;
}

ashlar_status ashlar__guard_fill_free_locked(ashlar_guard_fill *fill, const ashlar_block *block,
                                             ashlar_stream_state *state) {
    ASHLAR_CHECK2(has_red_zone(block));
    ashlar_device *device = fill->checker.client->device;
    ASHLAR_TRY(ashlar__device_enter(device));
    ashlar_status status = ashlar__stream_refuse_captured(fill->checker.client, state->stream);
    ASHLAR_THEN(status, make_room(fill, block));
    ASHLAR_THEN(status, compare_red_zone(fill, block, state, state->stream));
    ASHLAR_THEN(status,
                queue_fill(fill, start_of(fill, block), block->bytes, ASHLAR_FREED_VALUE, state));
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
    ashlar_status status = ASHLAR_OK;
    ASHLAR_TRY(ashlar__device_enter(device));
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

/* The comparisons go to the legacy default stream, since the blocks' own streams may be gone.
 * Failures are ignored, since nobody could be told. */
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
        ASHLAR_FAIL_IF(!is_in_quarantine(block), ASHLAR_EFORMAT,
                       "guard check: a block in quarantine is in use");
        bytes += block->bytes;
    }
    ASHLAR_FAIL_IF(bytes != fill->bytes, ASHLAR_EFORMAT,
                   "guard check: %zu bytes in quarantine, counted as %zu", bytes, fill->bytes);
    return ASHLAR_OK;
}
