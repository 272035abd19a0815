/* arena.c - an arena's life and its regions: one block of device memory for each. */
#include "arena/layout/arena_impl.h"

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/host.h"

#define ROW(name, text, tag, layout) \
    [ASHLAR_REGION_##name] = {text, ASHLAR_TAG_##tag, ASHLAR_LAYOUT_##layout},
static const struct {
    const char *text;
    ashlar_tag tag;
    ashlar_layout layout;
} region_info[] = {ASHLAR_REGION_MAP(ROW)};
ASHLAR_TABLE_IS_FULL(region_info, ASHLAR_REGION_COUNT);

const char *ashlar_region_text(ashlar_region region) {
    return (unsigned)region < ASHLAR_REGION_COUNT ? region_info[region].text : NULL;
}

ashlar_layout ashlar__region_layout(ashlar_region region) {
    ASHLAR_CHECK2((unsigned)region < ASHLAR_REGION_COUNT);
    return region_info[region].layout;
}

ashlar_status ashlar_arena_create(ashlar_arena **out) {
    ashlar_arena *arena;
    ASHLAR_HOST_NEW(arena, 1, "no host memory for an arena");
    *arena = (ashlar_arena){.bucket_bytes = SIZE_MAX, .world_size = 1};
    *out = arena;
    return ASHLAR_OK;
}

/* ---- regions ---- */

/* The block of a large region is STAGGER_BYTES larger than the region. Regions lie side by side: if
 * each had 2^n bytes, an element's parameter, gradient and moments would lie in the same memory
 * banks, which made an AdamW step over regions of 128 MiB take 2.3 times as long
 * (bench/results). */
enum { STAGGER_BYTES = 17 * ASHLAR_ARENA_ALIGN };
static const size_t staggered_from = (size_t)64 << 20;

/* If the allocator has share=on, a region gets a segment of its own: in a segment with other blocks
 * its place might differ from process to process. */
static ashlar_status block_bytes(const ashlar_arena *arena, const ashlar_allocator *allocator,
                                 ashlar_region region, size_t *out) {
    const size_t bytes = ashlar_arena_region_bytes(arena, region);
    const size_t more = bytes >= staggered_from ? STAGGER_BYTES : 0;
    return ashlar__add(bytes, more, out) &&
                   ashlar__align_up(*out, ashlar_allocator_segment_granularity(allocator), out)
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EOVERFLOW, "a region of %zu bytes is too large", bytes);
}

static ashlar_status take_region(ashlar_arena *arena, ashlar_allocator *allocator,
                                 ashlar_stream stream, ashlar_region region) {
    size_t bytes = 0;
    ASHLAR_TRY(block_bytes(arena, allocator, region, &bytes));
    return ashlar_alloc_tagged(allocator, bytes, region_info[region].tag, stream,
                               &arena->regions[region]);
}

void ashlar__arena_drop(ashlar_arena *arena, ashlar_allocator *allocator, unsigned regions) {
    for (size_t i = 0; i < ASHLAR_REGION_COUNT; i++) {
        if ((regions & ASHLAR_REGION_BIT(i)) != 0) {
            /* This fails only if somebody else has freed the region, so it is gone in any case. */
            ASHLAR_IGNORE(ashlar_free(allocator, arena->regions[i]));
            arena->regions[i] = NULL;
        }
    }
}

void ashlar_arena_destroy(ashlar_arena *arena) {
    if (arena == NULL) {
        return;
    }
    ASHLAR_CHECK2(arena->allocator != NULL || ashlar_arena_regions(arena) == 0);
    if (arena->allocator != NULL) {
        ashlar__arena_drop(arena, arena->allocator, ashlar_arena_regions(arena));
    }
    for (size_t i = 0; i < arena->tensor_count; i++) {
        ashlar__host_free(arena->tensors[i].name);
    }
    ashlar__host_free(arena->tensors);
    ashlar__host_free(arena->groups);
    ashlar__host_free(arena->names);
    ashlar__host_free(arena->bindings);
    ashlar__host_free(arena->binding_table);
    ashlar__host_free(arena->order);
    ashlar__host_free(arena->buckets);
    ashlar__host_free(arena);
}

size_t ashlar_arena_region_bytes(const ashlar_arena *arena, ashlar_region region) {
    return (unsigned)region < ASHLAR_REGION_COUNT ? arena->bytes[ashlar__region_layout(region)] : 0;
}

ashlar_status ashlar__arena_take(ashlar_arena *arena, ashlar_allocator *allocator,
                                 ashlar_stream stream, unsigned regions, unsigned *taken) {
    unsigned set = 0;
    ASHLAR_CHECK2(arena->order != NULL); /* the arena is placed */
    ASHLAR_CHECK2(arena->allocator == NULL || arena->allocator == allocator);
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        const size_t bytes = ashlar_arena_region_bytes(arena, (ashlar_region)i);
        if ((regions & ASHLAR_REGION_BIT(i)) == 0 || arena->regions[i] != NULL || bytes == 0) {
            continue;
        }
        const ashlar_status status = take_region(arena, allocator, stream, (ashlar_region)i);
        if (status != ASHLAR_OK) {
            ashlar__arena_drop(arena, allocator, set);
            return status;
        }
        set |= ASHLAR_REGION_BIT(i);
    }
    *taken = set;
    return ASHLAR_OK;
}

static ashlar_status take_zeroed(ashlar_arena *arena, ashlar_allocator *allocator,
                                 ashlar_stream stream, unsigned regions) {
    unsigned taken = 0;
    ashlar_status status = ashlar__arena_take(arena, allocator, stream, regions, &taken);
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT && status == ASHLAR_OK; i++) {
        if ((taken & ASHLAR_REGION_BIT(i)) != 0) {
            status = ashlar_fill(ashlar_allocator_device(allocator), arena->regions[i], 0,
                                 ashlar_arena_region_bytes(arena, (ashlar_region)i), stream);
        }
    }
    if (status != ASHLAR_OK) {
        ashlar__arena_drop(arena, allocator, taken);
    }
    return status;
}

ashlar_status ashlar_arena_commit(ashlar_arena *arena, ashlar_allocator *allocator,
                                  ashlar_stream stream, unsigned regions) {
    ASHLAR_FAIL_IF(arena->tensor_count == 0 || arena->allocator != NULL, ASHLAR_EINVAL,
                   arena->tensor_count == 0 ? "commit of an arena without tensors"
                                            : "the arena is committed already");
    ASHLAR_FAIL_IF((regions & ASHLAR_REGIONS_INFERENCE) == 0 || regions > ASHLAR_REGIONS_ALL,
                   ASHLAR_EINVAL,
                   "regions: 0x%x is no set of regions with that of the parameters; use "
                   "ASHLAR_REGIONS_ALL for training",
                   regions);
    ASHLAR_TRY(ashlar__arena_place(arena));
    const ashlar_status status = take_zeroed(arena, allocator, stream, regions);
    if (status == ASHLAR_OK) {
        arena->allocator = allocator;
        ASHLAR_CHECK3(ashlar_arena_check(arena) == ASHLAR_OK);
    } else {
        ashlar__arena_unplace(arena);
    }
    return status;
}

ashlar_status ashlar_arena_extend(ashlar_arena *arena, ashlar_stream stream, unsigned regions) {
    ASHLAR_FAIL_IF(arena->allocator == NULL || regions > ASHLAR_REGIONS_ALL, ASHLAR_EINVAL,
                   "extend: %s",
                   arena->allocator == NULL ? "the arena is not committed" : "no set of regions");
    return take_zeroed(arena, arena->allocator, stream, regions);
}

ashlar_status ashlar_arena_zero(ashlar_arena *arena, ashlar_region region, ashlar_stream stream) {
    void *base = ashlar_arena_region(arena, region);
    ASHLAR_FAIL_IF(base == NULL, ASHLAR_EINVAL, "zero: the arena has no region %d", (int)region);
    return ashlar_fill(ashlar_allocator_device(arena->allocator), base, 0,
                       ashlar_arena_region_bytes(arena, region), stream);
}

size_t ashlar_arena_tensor_count(const ashlar_arena *arena) {
    return arena->tensor_count;
}

size_t ashlar_arena_elements(const ashlar_arena *arena) {
    size_t sum = 0;
    for (size_t i = 0; i < arena->tensor_count; i++) {
        sum += arena->tensors[i].info.elements;
    }
    return sum;
}

unsigned ashlar_arena_regions(const ashlar_arena *arena) {
    unsigned regions = 0;
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        regions |= arena->regions[i] != NULL ? ASHLAR_REGION_BIT(i) : 0;
    }
    return regions;
}

ashlar_allocator *ashlar_arena_allocator(const ashlar_arena *arena) {
    return arena->allocator;
}

void ashlar_arena_tensor(const ashlar_arena *arena, size_t tensor, ashlar_tensor_info *info) {
    ASHLAR_CHECK2(tensor < arena->tensor_count);
    const ashlar_tensor_info *known = &arena->tensors[tensor].info;
    *info = *known;
}

size_t ashlar_arena_bucket_count(const ashlar_arena *arena) {
    return arena->bucket_count;
}

void ashlar_arena_get_bucket(const ashlar_arena *arena, size_t i, ashlar_arena_bucket *out) {
    ASHLAR_CHECK2(i < arena->bucket_count);
    *out = arena->buckets[i];
}

void *ashlar_arena_region(const ashlar_arena *arena, ashlar_region region) {
    return (unsigned)region < ASHLAR_REGION_COUNT ? arena->regions[region] : NULL;
}

void *ashlar_arena_view(const ashlar_arena *arena, ashlar_region region, size_t tensor) {
    char *base = ashlar_arena_region(arena, region);
    if (base == NULL || tensor >= arena->tensor_count) {
        return NULL;
    }
    const ashlar_tensor_info *info = &arena->tensors[tensor].info;
    const ashlar_layout layout = ashlar__region_layout(region);
    ASHLAR_CHECK2(!ashlar__layout_has(layout, info->dtype) ||
                  info->offset[layout] < arena->bytes[layout]);
    return ashlar__layout_has(layout, info->dtype) ? base + info->offset[layout] : NULL;
}
