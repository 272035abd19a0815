/* arena.c - creates and destroys arenas; decides where groups, tensors, buckets and runs lie, and
 * takes a block of device memory for each region. */
#include <stdlib.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "allocator/core/core.h"
#include "allocator/device/device_impl.h"
#include "arena/layout/arena_impl.h"

#define ROW(name, text, tag, layout) \
    [ASHLAR_REGION_##name] = {text, ASHLAR_TAG_##tag, ASHLAR_LAYOUT_##layout},
static const struct {
    const char *text;
    ashlar_tag tag;
    ashlar_layout layout;
} region_info[] = {ASHLAR_REGION_MAP(ROW)};
ASHLAR_TABLE_IS_FULL(region_info, ASHLAR_REGION_COUNT);

const char *ashlar__region_text(ashlar_region region) {
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
 * banks, which made an AdamW step on regions of 128 MiB take 2.3 times as long (bench/results). */
enum { STAGGER_BYTES = 17 * ASHLAR_ARENA_ALIGN };
static const size_t staggered_from = (size_t)64 << 20;

/* If the allocator has the option share=on, the block is as large as whole segments, so it gets its
 * own: in a segment with other blocks its place might differ from process to process. */
static ashlar_status block_bytes(const ashlar_arena *arena, const ashlar_allocator *allocator,
                                 ashlar_region region, size_t *out) {
    const size_t bytes = ashlar__arena_region_bytes(arena, region);
    const size_t more = bytes >= staggered_from ? STAGGER_BYTES : 0;
    return ashlar__add(bytes, more, out) &&
                   ashlar__align_up(*out, ashlar__allocator_segment_granularity(allocator), out)
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EOVERFLOW, "a region of %zu bytes is too large", bytes);
}

ashlar_status ashlar_arena_lend(ashlar_arena *arena, ashlar_region region, void *memory,
                                size_t bytes) {
    ASHLAR_FAIL_IF((unsigned)region >= ASHLAR_REGION_COUNT || arena->regions[region] != NULL,
                   ASHLAR_EINVAL, "lend: region %d is none, or the arena has it already",
                   (int)region);
    ASHLAR_FAIL_IF(memory == NULL || (uintptr_t)memory % ASHLAR_ARENA_ALIGN != 0, ASHLAR_EINVAL,
                   "lend: the %s at %p; give memory at a multiple of %d bytes",
                   region_info[region].text, memory, ASHLAR_ARENA_ALIGN);
    arena->lent[region] = memory;
    arena->lent_bytes[region] = bytes;
    return ASHLAR_OK;
}

static bool is_on_host(const ashlar_arena *arena, size_t region) {
    return (arena->on_host & ASHLAR_REGION_BIT(region)) != 0;
}

bool ashlar__arena_owns(const ashlar_arena *arena, ashlar_region region) {
    return arena->regions[region] != NULL && arena->lent[region] == NULL &&
           !is_on_host(arena, region);
}

static ashlar_status take_region(ashlar_arena *arena, ashlar_allocator *allocator,
                                 ashlar_stream stream, ashlar_region region) {
    size_t bytes = 0;
    if (arena->lent[region] != NULL) {
        const size_t wanted = ashlar__arena_region_bytes(arena, region);
        ASHLAR_FAIL_IF(arena->lent_bytes[region] < wanted, ASHLAR_EINVAL,
                       "lend: the %s need %zu bytes, and got %zu", region_info[region].text, wanted,
                       arena->lent_bytes[region]);
        arena->regions[region] = arena->lent[region];
        return ASHLAR_OK;
    }
    if (is_on_host(arena, region)) {
        return ashlar_device_host_alloc(ashlar_allocator_device(allocator),
                                        ashlar__arena_region_bytes(arena, region),
                                        &arena->regions[region]);
    }
    ASHLAR_TRY(block_bytes(arena, allocator, region, &bytes));
    return ashlar_alloc_tagged(allocator, bytes, region_info[region].tag, stream,
                               &arena->regions[region]);
}

/* Free the blocks of `regions`, in stream order; the program's memory stays the program's. */
static void drop_regions(ashlar_arena *arena, ashlar_allocator *allocator, unsigned regions) {
    for (size_t i = 0; i < ASHLAR_REGION_COUNT; i++) {
        if ((regions & ASHLAR_REGION_BIT(i)) != 0) {
            /* This fails only if somebody else has freed the region, so it is gone in any case. */
            if (ashlar__arena_owns(arena, (ashlar_region)i)) {
                ASHLAR_IGNORE(ashlar_free(allocator, arena->regions[i]));
            } else if (is_on_host(arena, i)) {
                ashlar_device *device = ashlar_allocator_device(allocator);
                ASHLAR_IGNORE(ashlar__device_synchronize(device)); /* no stream's order frees it */
                ashlar_device_host_free(device, arena->regions[i]);
            }
            arena->regions[i] = NULL;
            arena->on_host &= ~ASHLAR_REGION_BIT(i);
        }
    }
}

void ashlar_arena_destroy(ashlar_arena *arena) {
    if (arena == NULL) {
        return;
    }
    if (arena->allocator != NULL) {
        drop_regions(arena, arena->allocator, ashlar__arena_regions(arena));
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

size_t ashlar__arena_region_bytes(const ashlar_arena *arena, ashlar_region region) {
    return (unsigned)region < ASHLAR_REGION_COUNT ? arena->bytes[ashlar__region_layout(region)] : 0;
}

ashlar_status ashlar__arena_take(ashlar_arena *arena, ashlar_allocator *allocator,
                                 ashlar_stream stream, unsigned regions, unsigned *taken) {
    unsigned set = 0;
    ASHLAR_CHECK2(arena->allocator == NULL || arena->allocator == allocator);
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        const size_t bytes = ashlar__arena_region_bytes(arena, (ashlar_region)i);
        if ((regions & ASHLAR_REGION_BIT(i)) == 0 || arena->regions[i] != NULL || bytes == 0) {
            continue;
        }
        const ashlar_status status = take_region(arena, allocator, stream, (ashlar_region)i);
        if (status != ASHLAR_OK) {
            drop_regions(arena, allocator, set);
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
        if ((taken & ASHLAR_REGION_BIT(i)) != 0 && arena->lent[i] == NULL) {
            status = ashlar_fill(ashlar_allocator_device(allocator), arena->regions[i], 0,
                                 ashlar__arena_region_bytes(arena, (ashlar_region)i), stream);
        }
    }
    if (status != ASHLAR_OK) {
        drop_regions(arena, allocator, taken);
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

ashlar_status ashlar__arena_extend_on_host(ashlar_arena *arena, ashlar_stream stream,
                                           unsigned regions) {
    const unsigned before = arena->on_host;
    for (size_t i = 0; i < ASHLAR_REGION_COUNT; i++) {
        const bool has_none = arena->regions[i] == NULL && arena->lent[i] == NULL;
        arena->on_host |= has_none ? regions & ASHLAR_REGION_BIT(i) : 0;
    }
    const ashlar_status status = ashlar_arena_extend(arena, stream, regions);
    arena->on_host = status == ASHLAR_OK ? arena->on_host : before;
    return status;
}

ashlar_status ashlar_arena_drop(ashlar_arena *arena, unsigned regions) {
    ASHLAR_FAIL_IF(arena->allocator == NULL || regions > ASHLAR_REGIONS_ALL ||
                       (regions & ASHLAR_REGIONS_INFERENCE) != 0,
                   ASHLAR_EINVAL, "drop: %s",
                   arena->allocator == NULL ? "the arena is not committed"
                                            : "no set of regions without the parameters");
    for (size_t i = 0; i < arena->binding_count; i++) {
        const ashlar_arena_binding *b = &arena->bindings[i];
        ASHLAR_FAIL_IF(
            (regions & ASHLAR_REGION_BIT(b->region)) != 0, ASHLAR_EINVAL,
            "drop: a pointer to tensor %s is bound to the %s; call ashlar_arena_unbind()",
            arena->tensors[b->tensor].info.name, region_info[b->region].text);
    }
    drop_regions(arena, arena->allocator, regions);
    return ASHLAR_OK;
}

ashlar_status ashlar_arena_zero(ashlar_arena *arena, ashlar_region region, ashlar_stream stream) {
    void *base = ashlar_arena_region(arena, region);
    ASHLAR_FAIL_IF(base == NULL, ASHLAR_EINVAL, "zero: the arena has no region %d", (int)region);
    return ashlar_fill(ashlar_allocator_device(arena->allocator), base, 0,
                       ashlar__arena_region_bytes(arena, region), stream);
}

unsigned ashlar__arena_regions(const ashlar_arena *arena) {
    unsigned regions = 0;
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        regions |= arena->regions[i] != NULL ? ASHLAR_REGION_BIT(i) : 0;
    }
    return regions;
}

ashlar_arena_info ashlar_arena_get_info(const ashlar_arena *arena) {
    ashlar_arena_info info = {.tensor_count = arena->tensor_count,
                              .elements = arena->elements,
                              .regions = ashlar__arena_regions(arena),
                              .allocator = arena->allocator,
                              .bucket_count = arena->bucket_count};
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        info.region_bytes[i] = ashlar__arena_region_bytes(arena, (ashlar_region)i);
    }
    return info;
}

void ashlar_arena_tensor(const ashlar_arena *arena, size_t tensor, ashlar_tensor_info *info) {
    ASHLAR_CHECK2(tensor < arena->tensor_count);
    const ashlar_tensor_info *known = &arena->tensors[tensor].info;
    *info = *known;
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

/* ---- where groups, tensors, buckets and runs lie ---- */

/* The bytes that elements of `dtype` take in `layout`, if they take `storage_bytes` in the storage
 * layout (a whole number of elements). SIZE_MAX if the result does not fit. */
static size_t layout_bytes(ashlar_dtype dtype, size_t storage_bytes, ashlar_layout layout) {
    const bool is_narrow = ashlar_dtype_is_narrow(dtype);
    ASHLAR_CHECK2(storage_bytes % ashlar_dtype_bytes(dtype) == 0);
    if (layout == ASHLAR_LAYOUT_STORAGE || (layout == ASHLAR_LAYOUT_STATE && !is_narrow)) {
        return storage_bytes;
    }
    if (!is_narrow) {
        return 0; /* the parameter is its own master */
    }
    size_t bytes = SIZE_MAX;
    (void)ashlar__mul(storage_bytes / ashlar_dtype_bytes(dtype), sizeof(float), &bytes);
    return bytes;
}

ashlar_dtype ashlar__layout_dtype(ashlar_dtype dtype, ashlar_layout layout) {
    return layout == ASHLAR_LAYOUT_STORAGE || dtype == ASHLAR_F64 ? dtype : ASHLAR_F32;
}

size_t ashlar__arena_tensor_bytes(const ashlar_arena *arena, ashlar_layout layout, size_t tensor) {
    const ashlar_tensor_info *info = &arena->tensors[tensor].info;
    return layout_bytes(info->dtype, info->bytes, layout);
}

#define TOO_LARGE "the arena's tensors are too large together"

/* Pad every group to a multiple of ASHLAR_ARENA_ALIGN. Fails if the sum of all overflows. */
static ashlar_status pad_groups(ashlar_arena *arena) {
    size_t sum = 0;
    for (size_t i = 0; i < arena->group_count; i++) {
        ashlar_arena_group *group = &arena->groups[i];
        ASHLAR_FAIL_IF(!ashlar__align_up(group->bytes, ASHLAR_ARENA_ALIGN, &group->padded) ||
                           !ashlar__add(sum, group->padded, &sum),
                       ASHLAR_EOVERFLOW, TOO_LARGE);
    }
    return ASHLAR_OK;
}

/* Put groups into buckets, from the last group to the first: a new bucket begins when the current
 * one has bucket_bytes, or the next group has another type. */
static void choose_buckets(ashlar_arena *arena) {
    size_t bytes = 0, bucket = 0;
    for (size_t i = arena->group_count; i-- > 0;) {
        ashlar_arena_group *group = &arena->groups[i];
        if (bytes >= arena->bucket_bytes || (bytes > 0 && group->dtype != group[1].dtype)) {
            bucket++;
            bytes = 0;
        }
        group->bucket = bucket;
        bytes += group->padded;
    }
    arena->bucket_count = bucket + 1;
}

/* Pad the last group of each bucket, so that each rank's share is a multiple of the alignment. */
static ashlar_status pad_buckets(ashlar_arena *arena) {
    size_t step = 0, bytes = 0;
    ASHLAR_FAIL_IF(!ashlar__mul(arena->world_size, ASHLAR_ARENA_ALIGN, &step), ASHLAR_EOVERFLOW,
                   TOO_LARGE);
    for (size_t i = 0; i < arena->group_count; i++) {
        ashlar_arena_group *group = &arena->groups[i];
        bytes += group->padded;
        if (i + 1 < arena->group_count && group[1].bucket == group->bucket) {
            continue;
        }
        const size_t over = bytes % step;
        ASHLAR_FAIL_IF(over != 0 && !ashlar__add(group->padded, step - over, &group->padded),
                       ASHLAR_EOVERFLOW, TOO_LARGE);
        bytes = 0;
    }
    return ASHLAR_OK;
}

static ashlar_status place_groups(ashlar_arena *arena, size_t total[static ASHLAR_LAYOUT_COUNT]) {
    for (size_t i = 0; i < arena->group_count; i++) {
        ashlar_arena_group *group = &arena->groups[i];
        for (int layout = 0; layout < ASHLAR_LAYOUT_COUNT; layout++) {
            const size_t bytes = layout_bytes(group->dtype, group->padded, (ashlar_layout)layout);
            group->offset[layout] = total[layout];
            ASHLAR_FAIL_IF(bytes == SIZE_MAX || !ashlar__add(total[layout], bytes, &total[layout]),
                           ASHLAR_EOVERFLOW, TOO_LARGE);
        }
    }
    return ASHLAR_OK;
}

static void describe_buckets(ashlar_arena *arena) {
    for (size_t i = 0; i < arena->group_count; i++) {
        const ashlar_arena_group *group = &arena->groups[i];
        ashlar_arena_bucket *bucket = &arena->buckets[group->bucket];
        if (bucket->bytes == 0) {
            bucket->offset = group->offset[ASHLAR_LAYOUT_STORAGE];
            bucket->dtype = group->dtype;
        }
        ASHLAR_CHECK2(bucket->offset + bucket->bytes == group->offset[ASHLAR_LAYOUT_STORAGE]);
        bucket->bytes += group->padded;
    }
    for (size_t i = arena->tensor_count; i-- > 0;) {
        ashlar_arena_bucket *bucket =
            &arena->buckets[arena->groups[arena->tensors[i].group].bucket];
        bucket->first_tensor = i;
        bucket->tensor_count++;
    }
}

static void place_tensors(ashlar_arena *arena) {
    for (size_t i = 0; i < arena->tensor_count; i++) {
        ashlar_arena_entry *tensor = &arena->tensors[i];
        const ashlar_arena_group *group = &arena->groups[tensor->group];
        ASHLAR_CHECK2(tensor->group_offset + tensor->info.bytes <= group->bytes);
        for (int layout = 0; layout < ASHLAR_LAYOUT_COUNT; layout++) {
            const bool is_there = ashlar__layout_has((ashlar_layout)layout, group->dtype);
            const size_t inside =
                layout_bytes(group->dtype, tensor->group_offset, (ashlar_layout)layout);
            tensor->info.offset[layout] = is_there ? group->offset[layout] + inside : 0;
        }
    }
}

typedef struct place {
    size_t offset;
    size_t tensor;
} place;

static int compare_places(const void *x, const void *y) {
    const place *a = x, *b = y;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

/* FNV-1a (Fowler, Noll, Vo), by words. */
static void hash_words(uint64_t *hash, const size_t *words, size_t count) {
    for (size_t i = 0; i < count; i++) {
        *hash = (*hash ^ words[i]) * 0x100000001b3u;
    }
}

uint64_t ashlar__arena_hash(const ashlar_arena *arena) {
    uint64_t hash = 0xcbf29ce484222325u;
    hash_words(&hash, arena->bytes, ASHLAR_LAYOUT_COUNT);
    for (size_t i = 0; i < arena->group_count; i++) {
        const ashlar_arena_group *group = &arena->groups[i];
        hash_words(&hash, (size_t[]){group->bytes, group->padded, group->dtype}, 3);
        hash_words(&hash, group->offset, ASHLAR_LAYOUT_COUNT);
    }
    for (size_t i = 0; i < arena->tensor_count; i++) {
        const ashlar_arena_entry *tensor = &arena->tensors[i];
        const ashlar_tensor_info *info = &tensor->info;
        hash_words(&hash, (size_t[]){tensor->group, tensor->group_offset, arena->order[i]}, 3);
        hash_words(&hash, (size_t[]){info->dtype, info->rank, info->elements, info->bytes}, 4);
        hash_words(&hash, info->shape, ASHLAR_RANK_MAX);
        hash_words(&hash, info->offset, ASHLAR_LAYOUT_COUNT);
    }
    return hash;
}

static ashlar_status take_tables(ashlar_arena *arena, place **places) {
    ASHLAR_CHECK2(arena->order == NULL && arena->buckets == NULL);
    arena->order = ashlar__host_calloc(arena->tensor_count, sizeof *arena->order);
    arena->buckets = ashlar__host_calloc(arena->bucket_count, sizeof *arena->buckets);
    *places = ashlar__host_calloc(arena->tensor_count, sizeof **places);
    return arena->order != NULL && arena->buckets != NULL && *places != NULL
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EHOSTMEM, "no host memory to place %zu tensors",
                              arena->tensor_count);
}

static void sort_tensors(ashlar_arena *arena, place *places) {
    for (size_t i = 0; i < arena->tensor_count; i++) {
        places[i] = (place){arena->tensors[i].info.offset[ASHLAR_LAYOUT_STORAGE], i};
    }
    qsort(places, arena->tensor_count, sizeof *places, compare_places);
    for (size_t i = 0; i < arena->tensor_count; i++) {
        arena->order[i] = places[i].tensor;
    }
}

ashlar_status ashlar__arena_place(ashlar_arena *arena) {
    size_t total[ASHLAR_LAYOUT_COUNT] = {0};
    place *places = NULL;
    ashlar_status status = pad_groups(arena);
    if (status == ASHLAR_OK) {
        choose_buckets(arena);
        status = pad_buckets(arena);
    }
    ASHLAR_THEN(status, place_groups(arena, total));
    ASHLAR_THEN(status, take_tables(arena, &places));
    if (status == ASHLAR_OK) {
        describe_buckets(arena);
        place_tensors(arena);
        sort_tensors(arena, places);
        memcpy(arena->bytes, total, sizeof total);
        arena->layout_hash = ashlar__arena_hash(arena);
    } else {
        ashlar__arena_unplace(arena);
    }
    ashlar__host_free(places);
    return status;
}

void ashlar__arena_unplace(ashlar_arena *arena) {
    ashlar__host_free(arena->order);
    ashlar__host_free(arena->buckets);
    arena->order = NULL;
    ASHLAR_CHECK2(arena->allocator == NULL && ashlar__arena_regions(arena) == 0);
    arena->buckets = NULL;
    arena->bucket_count = 0;
    memset(arena->bytes, 0, sizeof arena->bytes);
    for (size_t i = 0; i < arena->tensor_count; i++) {
        memset(arena->tensors[i].info.offset, 0, sizeof arena->tensors[i].info.offset);
    }
}

static double or_one(double scale) {
    return scale == 0 ? 1 : scale;
}

static bool is_matrix(const ashlar_arena *arena, size_t at) {
    const ashlar_tensor_info *info = &arena->tensors[arena->order[at]].info;
    return info->rank == 2 && !info->options.is_elementwise;
}

static bool continues(const ashlar_arena *arena, const ashlar_arena_run *run, size_t at) {
    const ashlar_arena_entry *tensor = &arena->tensors[arena->order[at]];
    const ashlar_tensor_info *info = &tensor->info;
    return !tensor->is_apart && !arena->tensors[arena->order[at - 1]].is_apart &&
           run->dtype == info->dtype && run->options.has_no_decay == info->options.has_no_decay &&
           run->options.rate_scale == or_one(info->options.rate_scale) &&
           run->options.decay_scale == or_one(info->options.decay_scale);
}

/* Begin a run at tensor order[at]; if this is the first of its group, at the group's start. */
static ashlar_arena_run begin_run(const ashlar_arena *arena, bool has_matrices, size_t at) {
    const ashlar_arena_entry *tensor = &arena->tensors[arena->order[at]];
    const ashlar_arena_group *group = &arena->groups[tensor->group];
    const bool is_first = at == 0 || arena->tensors[arena->order[at - 1]].group != tensor->group;
    ashlar_arena_run run = {
        .dtype = tensor->info.dtype, .options = tensor->info.options, .first = at};
    run.options.rate_scale = or_one(tensor->info.options.rate_scale);
    run.options.decay_scale = or_one(tensor->info.options.decay_scale);
    run.is_matrix = has_matrices && is_matrix(arena, at);
    for (int layout = 0; layout < ASHLAR_LAYOUT_COUNT; layout++) {
        run.offset[layout] =
            is_first && !run.is_matrix ? group->offset[layout] : tensor->info.offset[layout];
    }
    return run;
}

/* End a run at offset `end` of the storage layout, before tensor order[tensor_end]. */
static void end_run(const ashlar_arena *arena, ashlar_arena_run *run, size_t end,
                    size_t tensor_end) {
    ASHLAR_CHECK2(run->offset[ASHLAR_LAYOUT_STORAGE] < end && run->first < tensor_end);
    run->elements = run->is_matrix ? arena->tensors[arena->order[run->first]].info.elements
                                   : (end - run->offset[ASHLAR_LAYOUT_STORAGE]) /
                                         ashlar_dtype_bytes(run->dtype);
    run->count = tensor_end - run->first;
}

size_t ashlar__arena_runs(const ashlar_arena *arena, bool has_matrices, ashlar_arena_run *runs) {
    size_t count = 0;
    for (size_t i = 0; i < arena->tensor_count; i++) {
        if (count > 0 && continues(arena, &runs[count - 1], i) && !runs[count - 1].is_matrix &&
            !(has_matrices && is_matrix(arena, i))) {
            continue;
        }
        runs[count] = begin_run(arena, has_matrices, i);
        if (count > 0) {
            end_run(arena, &runs[count - 1], runs[count].offset[ASHLAR_LAYOUT_STORAGE], i);
        }
        count++;
    }
    end_run(arena, &runs[count - 1], arena->bytes[ASHLAR_LAYOUT_STORAGE], arena->tensor_count);
    return count;
}
