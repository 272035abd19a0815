/* map.c - the printed map of an arena: its regions, buckets and tensors. */
#include "arena/layout/arena_impl.h"

#include <stdarg.h>
#include <stdio.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"

/* A text whose whole length is counted, but which is stored only as far as there is room. */
typedef struct text {
    char *buffer;
    size_t room, used;
} text;

static void __attribute__((format(printf, 2, 3))) put(text *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const size_t left = t->used < t->room ? t->room - t->used : 0;
    const int length = vsnprintf(left > 0 ? t->buffer + t->used : NULL, left, format, args);
    va_end(args);
    t->used += length > 0 ? (size_t)length : 0;
}

static void put_regions(const ashlar_arena *arena, text *t) {
    put(t, "%-16s %14s\n", "region", "bytes");
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        const ashlar_region region = (ashlar_region)i;
        if (ashlar_arena_region(arena, region) != NULL) {
            put(t, "%-16s %14zu\n", ashlar_region_text(region),
                ashlar_arena_region_bytes(arena, region));
        }
    }
}

static void put_buckets(const ashlar_arena *arena, text *t) {
    put(t, "\n%-6s %14s %14s  %-4s %8s\n", "bucket", "offset", "bytes", "type", "tensors");
    for (size_t i = 0; i < arena->bucket_count; i++) {
        const ashlar_arena_bucket *bucket = &arena->buckets[i];
        ASHLAR_CHECK2(bucket->tensor_count > 0 && bucket->bytes > 0);
        put(t, "%-6zu %14zu %14zu  %-4s %8zu\n", i, bucket->offset, bucket->bytes,
            ashlar_dtype_name(bucket->dtype), bucket->tensor_count);
    }
}

/* Write "no decay, rate x 0.5"; for a frozen tensor, only "frozen". */
static void put_options(const ashlar_tensor_options *options, text *t) {
    const char *before = "  (";
    if (options->is_frozen) {
        put(t, "  (frozen)");
        return;
    }
    if (options->has_no_decay) {
        put(t, "%sno decay", before);
        before = ", ";
    }
    if (options->rate_scale != 0 && options->rate_scale != 1) {
        put(t, "%srate x %g", before, options->rate_scale);
        before = ", ";
    }
    put(t, "%s", before[0] == ',' ? ")" : "");
}

/* Bytes between the end of tensor order[i] and the next tensor or the end of the region. */
static size_t padding_behind(const ashlar_arena *arena, size_t i) {
    const ashlar_tensor_info *info = &arena->tensors[arena->order[i]].info;
    const size_t next = i + 1 < arena->tensor_count
                            ? arena->tensors[arena->order[i + 1]].info.offset[ASHLAR_LAYOUT_STORAGE]
                            : arena->bytes[ASHLAR_LAYOUT_STORAGE];
    ASHLAR_CHECK2(next - info->offset[ASHLAR_LAYOUT_STORAGE] >= info->bytes);
    return next - info->offset[ASHLAR_LAYOUT_STORAGE] - info->bytes;
}

static void put_tensors(const ashlar_arena *arena, text *t) {
    put(t, "\n%14s %14s %7s  %-4s  tensor\n", "offset", "bytes", "padding", "type");
    for (size_t i = 0; i < arena->tensor_count; i++) {
        const ashlar_tensor_info *info = &arena->tensors[arena->order[i]].info;
        put(t, "%14zu %14zu %7zu  %-4s  %s [", info->offset[ASHLAR_LAYOUT_STORAGE], info->bytes,
            padding_behind(arena, i), ashlar_dtype_name(info->dtype), info->name);
        for (size_t d = 0; d < info->rank; d++) {
            put(t, "%s%zu", d == 0 ? "" : ", ", info->shape[d]);
        }
        put(t, "]");
        put_options(&info->options, t);
        put(t, "\n");
    }
}

ashlar_status ashlar_arena_format_map(const ashlar_arena *arena, char *buffer, size_t bytes,
                                      size_t *needed) {
    ASHLAR_FAIL_IF(arena->allocator == NULL, ASHLAR_EINVAL, "map: the arena is not committed");
    text t = {.buffer = buffer, .room = bytes};
    put_regions(arena, &t);
    put_buckets(arena, &t);
    put_tensors(arena, &t);
    if (needed != NULL) {
        *needed = t.used + 1;
    }
    return bytes == 0 || bytes > t.used
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EINVAL, "map: %zu bytes are needed, the buffer has %zu",
                              t.used + 1, bytes);
}
