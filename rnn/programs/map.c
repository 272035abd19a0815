/* map.c - the printed map of an arena: its regions, buckets and tensors. */
#include <stdio.h>
#include <stdlib.h>

#include "allocator/base/host.h"
#include "rnn/programs/report.h"

static void print_regions(const ashlar_arena *arena) {
    printf("%-16s %14s\n", "region", "bytes");
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        const ashlar_region region = (ashlar_region)i;
        if (ashlar_arena_region(arena, region) != NULL) {
            printf("%-16s %14zu\n", ashlar_region_text(region),
                   ashlar_arena_region_bytes(arena, region));
        }
    }
}

static void print_buckets(const ashlar_arena *arena) {
    printf("\n%-6s %14s %14s  %-4s %8s\n", "bucket", "offset", "bytes", "type", "tensors");
    for (size_t i = 0; i < ashlar_arena_bucket_count(arena); i++) {
        ashlar_arena_bucket bucket;
        ashlar_arena_get_bucket(arena, i, &bucket);
        printf("%-6zu %14zu %14zu  %-4s %8zu\n", i, bucket.offset, bucket.bytes,
               ashlar_dtype_name(bucket.dtype), bucket.tensor_count);
    }
}

/* Write "no decay, rate x 0.5"; for a frozen tensor, only "frozen". */
static void print_options(const ashlar_tensor_options *options) {
    const bool has_rate = options->rate_scale != 0 && options->rate_scale != 1;
    if (options->is_frozen) {
        printf("  (frozen)");
    } else if (has_rate) {
        printf("  (%srate x %g)", options->has_no_decay ? "no decay, " : "", options->rate_scale);
    } else if (options->has_no_decay) {
        printf("  (no decay)");
    }
}

static void print_tensor(const ashlar_tensor_info *info, size_t next) {
    const size_t offset = info->offset[ASHLAR_LAYOUT_STORAGE];
    printf("%14zu %14zu %7zu  %-4s  %s [", offset, info->bytes, next - offset - info->bytes,
           ashlar_dtype_name(info->dtype), info->name);
    for (size_t d = 0; d < info->rank; d++) {
        printf("%s%zu", d == 0 ? "" : ", ", info->shape[d]);
    }
    printf("]");
    print_options(&info->options);
    printf("\n");
}

static int by_offset(const void *left, const void *right) {
    const size_t a = ((const ashlar_tensor_info *)left)->offset[ASHLAR_LAYOUT_STORAGE];
    const size_t b = ((const ashlar_tensor_info *)right)->offset[ASHLAR_LAYOUT_STORAGE];
    return (a > b) - (a < b);
}

ashlar_status ashlar__print_map(const ashlar_arena *arena) {
    const size_t count = ashlar_arena_tensor_count(arena);
    ashlar_tensor_info *tensors;
    ASHLAR_HOST_NEW(tensors, count, "no host memory for a map");
    for (size_t i = 0; i < count; i++) {
        ashlar_arena_tensor(arena, i, &tensors[i]);
    }
    qsort(tensors, count, sizeof *tensors, by_offset);
    print_regions(arena);
    print_buckets(arena);
    printf("\n%14s %14s %7s  %-4s  tensor\n", "offset", "bytes", "padding", "type");
    for (size_t i = 0; i < count; i++) {
        print_tensor(&tensors[i],
                     i + 1 < count ? tensors[i + 1].offset[ASHLAR_LAYOUT_STORAGE]
                                   : ashlar_arena_region_bytes(arena, ASHLAR_REGION_PARAMETERS));
    }
    printf("\n");
    ashlar__host_free(tensors);
    return ASHLAR_OK;
}
