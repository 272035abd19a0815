/*
 * pack_verify.c - checking a plan by another method than the packer's.
 *
 * Buffers are visited from the lowest offset up. A tree over time finds, for any interval of time,
 * the visited buffer with the highest end; the next buffer may not begin below that.
 */
#include <ashlar/pack.h>

#include <stdlib.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

/* Stands for no buffer; its end is 0. */
#define NOBODY UINT32_MAX

/* The visited buffer with the highest end, among those live throughout a node's interval (`over`)
 * and among those live in some part of it (`within`). */
typedef struct highest {
    uint32_t over, within; /* buffers, or NOBODY */
} highest;

typedef struct verification {
    const ashlar_pack_buffer *buffers;
    const size_t *offsets;
    size_t count, alignment;
    uint32_t *by_offset; /* [count] */
    uint64_t *times;     /* [2 * count]: all begins and ends, ascending */
    highest *nodes;      /* [2 * leaf_count], node 1 is the root */
    uint32_t leaf_count; /* a power of two; leaf i is [times[i], times[i + 1]) */
} verification;

static int compare_times(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int compare_offsets(const void *a, const void *b, void *context) {
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const size_t *offsets = context;
    if (offsets[i] != offsets[j]) {
        return offsets[i] < offsets[j] ? -1 : 1;
    }
    return (i > j) - (i < j);
}

/* ---- each buffer by itself ---- */

static ashlar_status check_one(const verification *v, size_t i) {
    const ashlar_pack_buffer *b = &v->buffers[i];
    size_t end;
    if (b->bytes == 0 || b->begin >= b->end) {
        return ashlar__fail(ASHLAR_EINVAL, "pack: buffer %zu has no bytes or no lifetime", i);
    }
    if ((v->offsets[i] & (v->alignment - 1)) != 0) {
        return ashlar__fail(ASHLAR_EFORMAT,
                            "pack: the offset %zu of buffer %zu is no multiple of %zu",
                            v->offsets[i], i, v->alignment);
    }
    if (!ashlar__add(v->offsets[i], b->bytes, &end) || !ashlar__align_up(end, v->alignment, &end)) {
        return ashlar__fail(ASHLAR_EOVERFLOW,
                            "pack: buffer %zu of %zu bytes at offset %zu ends beyond size_t", i,
                            b->bytes, v->offsets[i]);
    }
    return ASHLAR_OK;
}

/* ---- the tree ---- */

static size_t end_of(const verification *v, uint32_t i) {
    return i == NOBODY ? 0 : v->offsets[i] + v->buffers[i].bytes;
}

static void raise(const verification *v, uint32_t *who, uint32_t i) {
    if (end_of(v, i) > end_of(v, *who)) {
        *who = i;
    }
}

static uint32_t leaf_of(const verification *v, uint64_t time) {
    size_t low = 0, high = 2 * v->count; /* lower bound */
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (v->times[middle] < time) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    ASHLAR_CHECK2(low < 2 * v->count && v->times[low] == time);
    return (uint32_t)low + v->leaf_count;
}

/* The visited buffer with the highest end that is live anywhere in leaves [first, end). It is the
 * highest of `over` (live throughout a node) of all nodes from the root to the first and the last
 * leaf, and of `within` (live in a part of it) of the fewest nodes that cover just these leaves. */
static uint32_t find_highest(const verification *v, uint32_t first, uint32_t end) {
    uint32_t who = NOBODY;
    ASHLAR_CHECK2(v->leaf_count <= first && first < end);
    for (uint32_t up = first; up > 0; up /= 2) {
        raise(v, &who, v->nodes[up].over);
    }
    for (uint32_t up = end - 1; up > 0; up /= 2) {
        raise(v, &who, v->nodes[up].over);
    }
    for (; first < end; first /= 2, end /= 2) {
        if (first % 2 == 1) {
            raise(v, &who, v->nodes[first++].within);
        }
        if (end % 2 == 1) {
            raise(v, &who, v->nodes[--end].within);
        }
    }
    return who;
}

static void put(const verification *v, uint32_t first, uint32_t end, uint32_t i) {
    ASHLAR_CHECK2(v->leaf_count <= first && first < end);
    for (uint32_t low = first, high = end; low < high; low /= 2, high /= 2) {
        if (low % 2 == 1) {
            raise(v, &v->nodes[low++].over, i);
        }
        if (high % 2 == 1) {
            raise(v, &v->nodes[--high].over, i);
        }
    }
    for (uint32_t up = first; up > 0; up /= 2) {
        raise(v, &v->nodes[up].within, i);
    }
    for (uint32_t up = end - 1; up > 0; up /= 2) {
        raise(v, &v->nodes[up].within, i);
    }
    ASHLAR_CHECK2(end_of(v, v->nodes[1].within) >= end_of(v, i));
}

/* ---- all ---- */

static ashlar_status check_overlaps(const verification *v) {
    for (size_t k = 0; k < v->count; k++) {
        const uint32_t i = v->by_offset[k];
        ASHLAR_CHECK2(k == 0 || v->offsets[v->by_offset[k - 1]] <= v->offsets[i]);
        const uint32_t first = leaf_of(v, v->buffers[i].begin);
        const uint32_t end = leaf_of(v, v->buffers[i].end);
        const uint32_t below = find_highest(v, first, end);
        if (end_of(v, below) > v->offsets[i]) {
            return ashlar__fail(ASHLAR_EFORMAT,
                                "pack: buffers %u and %u overlap: both are live at one time, %u "
                                "takes bytes %zu to %zu and %u begins at %zu",
                                below, i, below, v->offsets[below], end_of(v, below), i,
                                v->offsets[i]);
        }
        put(v, first, end, i);
    }
    return ASHLAR_OK;
}

static ashlar_status verification_init(verification *v) {
    v->leaf_count = 1;
    while (v->leaf_count < 2 * v->count) {
        v->leaf_count *= 2;
    }
    v->by_offset = ashlar__host_calloc(v->count, sizeof *v->by_offset);
    v->times = ashlar__host_calloc(v->count, 2 * sizeof *v->times);
    v->nodes = ashlar__host_calloc(v->leaf_count, 2 * sizeof *v->nodes);
    if (v->by_offset == NULL || v->times == NULL || v->nodes == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "pack: no host memory to verify %zu buffers",
                            v->count);
    }
    for (uint32_t i = 0; i < v->count; i++) {
        v->by_offset[i] = i;
        v->times[2 * i] = v->buffers[i].begin;
        v->times[2 * i + 1] = v->buffers[i].end;
    }
    for (size_t i = 0; i < (size_t)2 * v->leaf_count; i++) {
        v->nodes[i] = (highest){NOBODY, NOBODY};
    }
    ASHLAR_CHECK2(2 * v->count <= v->leaf_count); /* there is a leaf for each time */
    qsort(v->times, 2 * v->count, sizeof *v->times, compare_times);
    qsort_r(v->by_offset, v->count, sizeof *v->by_offset, compare_offsets,
            (void *)(uintptr_t)v->offsets);
    return ASHLAR_OK;
}

static ashlar_status verify(verification *v, size_t *bytes) {
    size_t top = 0;
    ASHLAR_CHECK2(v->count > 0);
    for (size_t i = 0; i < v->count; i++) {
        const ashlar_status status = check_one(v, i);
        if (status != ASHLAR_OK) {
            return status;
        }
        const size_t end = end_of(v, (uint32_t)i);
        top = end > top ? end : top;
    }
    ashlar_status status = verification_init(v);
    ASHLAR_THEN(status, check_overlaps(v));
    if (status == ASHLAR_OK) {
        *bytes = (top + v->alignment - 1) & ~(v->alignment - 1);
    }
    ashlar__host_free(v->by_offset);
    ashlar__host_free(v->times);
    ashlar__host_free(v->nodes);
    return status;
}

ashlar_status ashlar_pack_verify(const ashlar_pack_buffer *buffers, size_t count, size_t alignment,
                                 const size_t *offsets, size_t *bytes) {
    verification v = {.buffers = buffers,
                      .offsets = offsets,
                      .count = count,
                      .alignment = alignment == 0 ? 1 : alignment};
    if ((v.alignment & (v.alignment - 1)) != 0) {
        return ashlar__fail(ASHLAR_EINVAL, "pack: an alignment of %zu; give a power of two",
                            alignment);
    }
    if (count > INT32_MAX / 2) {
        return ashlar__fail(ASHLAR_EOVERFLOW, "pack: %zu buffers are more than can be verified",
                            count);
    }
    if (count == 0) {
        *bytes = 0;
        return ASHLAR_OK;
    }
    return verify(&v, bytes);
}
