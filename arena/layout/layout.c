/* layout.c - declares tensors: their names, shapes, groups and options; checks the padding. */
#include <math.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "allocator/device/device_impl.h"
#include "arena/layout/arena_impl.h"

#define NO_HOST_MEMORY "no host memory to declare tensor %s"

/* FNV-1a (Fowler, Noll, Vo). */
static size_t hash_of(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name != '\0'; name++) {
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    }
    return hash;
}

/* The table's entry for `name`, or the free entry to put it into. The table must not be full. */
static size_t *name_entry(const ashlar_arena *arena, const char *name) {
    const size_t mask = arena->name_capacity - 1;
    ASHLAR_CHECK2(arena->name_capacity != 0 && (arena->name_capacity & mask) == 0);
    ASHLAR_CHECK2(arena->tensor_count < arena->name_capacity); /* so the search ends */
    size_t i = hash_of(name) & mask;
    while (arena->names[i] != 0 && strcmp(arena->tensors[arena->names[i] - 1].name, name) != 0) {
        i = (i + 1) & mask;
    }
    return &arena->names[i];
}

static void enter_names(ashlar_arena *arena, size_t first) {
    for (size_t i = first; i < arena->tensor_count; i++) {
        size_t *slot = name_entry(arena, arena->tensors[i].name);
        ASHLAR_CHECK2(*slot == 0); /* no two tensors have one name */
        *slot = i + 1;
    }
}

/* Make room for `extra` more names: at most two thirds of the table will be in use. */
static bool reserve_names(ashlar_arena *arena, size_t extra) {
    size_t capacity = arena->name_capacity == 0 ? 16 : arena->name_capacity;
    while (capacity <= (arena->tensor_count + extra) + (arena->tensor_count + extra) / 2) {
        capacity *= 2;
    }
    if (capacity == arena->name_capacity) {
        return true;
    }
    size_t *names = ashlar__host_calloc(capacity, sizeof *names);
    if (names == NULL) {
        return false;
    }
    ashlar__host_free(arena->names);
    arena->names = names;
    arena->name_capacity = capacity;
    enter_names(arena, 0);
    return true;
}

ashlar_status ashlar_arena_find(const ashlar_arena *arena, const char *name, size_t *tensor) {
    const size_t found = arena->name_capacity == 0 ? 0 : *name_entry(arena, name);
    ASHLAR_FAIL_IF(found == 0, ASHLAR_EINVAL, "the arena has no tensor %s", name);
    *tensor = found - 1;
    return ASHLAR_OK;
}

static bool name_is_taken(const ashlar_arena *arena, const ashlar_tensor_spec *specs, size_t count,
                          const char *name) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(specs[i].name, name) == 0) {
            return true;
        }
    }
    return arena->name_capacity != 0 && *name_entry(arena, name) != 0;
}

/* Check one spec and compute its size. */
static ashlar_status measure(const ashlar_tensor_spec *spec, size_t *elements, size_t *bytes) {
    const size_t element_bytes = ashlar_dtype_bytes(spec->dtype);
    ASHLAR_FAIL_IF(spec->rank < 1 || spec->rank > ASHLAR_RANK_MAX || element_bytes == 0,
                   ASHLAR_EINVAL,
                   "tensor %s: rank %zu, type %d; a tensor has 1 to %d dimensions of a known type",
                   spec->name, spec->rank, (int)spec->dtype, ASHLAR_RANK_MAX);
    *elements = 1;
    for (size_t d = 0; d < spec->rank; d++) {
        ASHLAR_FAIL_IF(spec->shape[d] == 0, ASHLAR_EINVAL, "tensor %s: dimension %zu is 0",
                       spec->name, d);
        ASHLAR_FAIL_IF(!ashlar__mul(*elements, spec->shape[d], elements), ASHLAR_EOVERFLOW,
                       "tensor %s: too many elements", spec->name);
    }
    return ashlar__mul(*elements, element_bytes, bytes)
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EOVERFLOW, "tensor %s: too many bytes", spec->name);
}

/* Check that spec `at` is aligned, inside its group, and clear of the specs before it. */
static ashlar_status check_place(const ashlar_tensor_spec *specs, size_t at, size_t group_bytes) {
    size_t elements, bytes, end;
    ASHLAR_TRY(measure(&specs[at], &elements, &bytes));
    const size_t begin = specs[at].group_offset;
    ASHLAR_FAIL_IF(!ashlar__add(begin, bytes, &end) || end > group_bytes ||
                       begin % ashlar_dtype_bytes(specs[at].dtype) != 0,
                   ASHLAR_EINVAL,
                   "tensor %s: %zu bytes at offset %zu do not fit a group of %zu bytes",
                   specs[at].name, bytes, begin, group_bytes);
    for (size_t i = 0; i < at; i++) {
        size_t other_elements, other_bytes;
        ASHLAR_TRY(measure(&specs[i], &other_elements, &other_bytes));
        ASHLAR_FAIL_IF(begin < specs[i].group_offset + other_bytes && specs[i].group_offset < end,
                       ASHLAR_EINVAL, "tensor %s overlaps tensor %s in its group", specs[at].name,
                       specs[i].name);
    }
    return ASHLAR_OK;
}

static ashlar_status check_specs(const ashlar_arena *arena, size_t bytes,
                                 const ashlar_tensor_spec *specs, size_t count) {
    ASHLAR_FAIL_IF(arena->allocator != NULL, ASHLAR_EINVAL,
                   "the arena is committed; declare every tensor before");
    ASHLAR_FAIL_IF(count == 0, ASHLAR_EINVAL, "count: a group without tensors");
    for (size_t i = 0; i < count; i++) {
        ASHLAR_FAIL_IF(name_is_taken(arena, specs, i, specs[i].name), ASHLAR_EINVAL,
                       "tensor %s is declared twice", specs[i].name);
        ASHLAR_FAIL_IF(specs[i].dtype != specs[0].dtype, ASHLAR_EINVAL,
                       "tensors %s and %s have two types; a group has one", specs[0].name,
                       specs[i].name);
        ASHLAR_TRY(check_place(specs, i, bytes));
    }
    return ASHLAR_OK;
}

static ashlar_status append(ashlar_arena *arena, const ashlar_tensor_spec *spec) {
    ashlar_tensor_info info = {.dtype = spec->dtype, .rank = spec->rank};
    ASHLAR_TRY(measure(spec, &info.elements, &info.bytes));
    memcpy(info.shape, spec->shape, spec->rank * sizeof info.shape[0]);
    ASHLAR_HOST_GROW(arena->tensors, &arena->tensor_capacity, arena->tensor_count, NO_HOST_MEMORY,
                     spec->name);
    char *name;
    ASHLAR_HOST_NEW(name, strlen(spec->name) + 1, NO_HOST_MEMORY, spec->name);
    memcpy(name, spec->name, strlen(spec->name));
    info.name = name;
    arena->tensors[arena->tensor_count++] =
        (ashlar_arena_entry){.name = name,
                             .info = info,
                             .group = arena->group_count,
                             .group_offset = spec->group_offset};
    return ASHLAR_OK;
}

ashlar_status ashlar_arena_add_group(ashlar_arena *arena, size_t bytes,
                                     const ashlar_tensor_spec *specs, size_t count, size_t *first) {
    ASHLAR_TRY(check_specs(arena, bytes, specs, count));
    ASHLAR_HOST_GROW(arena->groups, &arena->group_capacity, arena->group_count, NO_HOST_MEMORY,
                     specs[0].name);
    ASHLAR_FAIL_IF(!reserve_names(arena, count), ASHLAR_EHOSTMEM, NO_HOST_MEMORY, specs[0].name);
    const size_t before = arena->tensor_count;
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        status = append(arena, &specs[i]);
    }
    if (status != ASHLAR_OK) {
        while (arena->tensor_count > before) {
            ashlar__host_free(arena->tensors[--arena->tensor_count].name);
        }
        return status;
    }
    for (size_t i = before; i < arena->tensor_count; i++) {
        arena->elements += arena->tensors[i].info.elements;
    }
    enter_names(arena, before);
    arena->groups[arena->group_count++] =
        (ashlar_arena_group){.bytes = bytes, .dtype = specs[0].dtype};
    if (first != NULL) {
        *first = before;
    }
    return ASHLAR_OK;
}

ashlar_status ashlar_arena_add(ashlar_arena *arena, const char *name, ashlar_dtype dtype,
                               size_t rank, const size_t *shape, size_t *tensor) {
    ashlar_tensor_spec spec = {.name = name, .dtype = dtype, .rank = rank};
    if (rank >= 1 && rank <= ASHLAR_RANK_MAX) {
        memcpy(spec.shape, shape, rank * sizeof spec.shape[0]);
    }
    size_t elements = 0, bytes = 0;
    ASHLAR_TRY(measure(&spec, &elements, &bytes));
    return ashlar_arena_add_group(arena, bytes, &spec, 1, tensor);
}

ashlar_status ashlar_arena_set_options(ashlar_arena *arena, size_t tensor,
                                       const ashlar_tensor_options *given) {
    const ashlar_tensor_options options = ASHLAR_OR_ZERO(ashlar_tensor_options, given);
    ASHLAR_FAIL_IF(tensor >= arena->tensor_count, ASHLAR_EINVAL,
                   "options: the arena has no tensor %zu", tensor);
    ASHLAR_FAIL_IF(!(options.rate_scale >= 0) || !isfinite(options.rate_scale) ||
                       !(options.decay_scale >= 0) || !isfinite(options.decay_scale),
                   ASHLAR_EINVAL,
                   "tensor %s: rate_scale %g, decay_scale %g; they must be above 0, or 0 for 1",
                   arena->tensors[tensor].name, options.rate_scale, options.decay_scale);
    arena->tensors[tensor].info.options = options;
    arena->tensors[tensor].is_apart |= options.is_frozen;
    arena->option_changes++;
    return ASHLAR_OK;
}

ashlar_status ashlar_arena_set_buckets(ashlar_arena *arena, size_t bucket_bytes,
                                       size_t world_size) {
    ASHLAR_FAIL_IF(
        arena->allocator != NULL || bucket_bytes == 0 || world_size == 0, ASHLAR_EINVAL,
        "buckets of %zu bytes for a world of %zu: both are at least 1, and asked for before commit",
        bucket_bytes, world_size);
    arena->bucket_bytes = bucket_bytes;
    arena->world_size = world_size;
    return ASHLAR_OK;
}

/* ---- padding: it is still zero if nothing wrote past a tensor ---- */

/* Padding of one region: between two tensors, before the first or behind the last. */
typedef struct gap {
    size_t offset, bytes;
    size_t before; /* the tensor before the gap; the arena's tensor_count: none */
    ashlar_region region;
} gap;

/* Every gap of the arena, in the order of regions and addresses. */
typedef struct gaps {
    const ashlar_arena *arena;
    gap *list;
    ashlar_copy_span *spans; /* [count] the copies that gather all gaps in one block */
    size_t count;
    size_t bytes; /* of all gaps together */
} gaps;

static void add_gap(gaps *g, ashlar_region region, size_t begin, size_t end, size_t before) {
    if (begin < end) {
        g->list[g->count++] = (gap){begin, end - begin, before, region};
        g->bytes += end - begin;
    }
}

static void find_gaps(gaps *g, ashlar_region region) {
    const ashlar_arena *arena = g->arena;
    const ashlar_layout layout = ashlar__region_layout(region);
    size_t end = 0, before = arena->tensor_count;
    for (size_t i = 0; i < arena->tensor_count; i++) {
        const size_t tensor = arena->order[i];
        const ashlar_tensor_info *info = &arena->tensors[tensor].info;
        if (ashlar__layout_has(layout, info->dtype)) {
            add_gap(g, region, end, info->offset[layout], before);
            end = info->offset[layout] + ashlar__arena_tensor_bytes(arena, layout, tensor);
            before = tensor;
        }
    }
    add_gap(g, region, end, arena->bytes[layout], before);
}

/* Fail with a text about byte `i` of a gap: its address and the tensor before it. */
static ashlar_status report(const gaps *g, const gap *at, size_t i, unsigned char value) {
    const ashlar_arena *arena = g->arena;
    const char *base = arena->regions[at->region];
    return ashlar__fail(
        ASHLAR_EDAMAGE,
        "byte %zu of the %s (%p) is 0x%02x, in the padding %s%s; padding is zero: "
        "something wrote past the end of a tensor",
        at->offset + i, ashlar__region_text(at->region), (const void *)(base + at->offset + i),
        value, at->before < arena->tensor_count ? "behind tensor " : "before the first tensor",
        at->before < arena->tensor_count ? arena->tensors[at->before].name : "");
}

static ashlar_status compare(const gaps *g, const unsigned char *bytes) {
    for (size_t i = 0; i < g->count; i++) {
        for (size_t k = 0; k < g->list[i].bytes; k++) {
            if (bytes[k] != 0) {
                return report(g, &g->list[i], k, bytes[k]);
            }
        }
        bytes += g->list[i].bytes;
    }
    return ASHLAR_OK;
}

/* Pack every gap into `block` on the device, and copy the block to `host`. */
static ashlar_status fetch(const gaps *g, char *block, unsigned char *host, ashlar_stream stream) {
    ashlar_device *device = ashlar_allocator_device(g->arena->allocator);
    size_t at = 0;
    for (size_t i = 0; i < g->count; i++) {
        const gap *from = &g->list[i];
        const char *base = g->arena->regions[from->region];
        g->spans[i] = (ashlar_copy_span){block + at, base + from->offset, from->bytes};
        at += from->bytes;
    }
    ASHLAR_TRY(ashlar__copy_batch(device, g->spans, g->count, stream));
    ASHLAR_TRY(ashlar_copy_to_host(device, host, block, g->bytes, stream));
    return ashlar_stream_synchronize(device, stream);
}

static ashlar_status fetch_and_compare(const gaps *g, ashlar_stream stream) {
    void *block = NULL;
    unsigned char *host = ashlar__host_calloc(g->bytes, 1);
    ASHLAR_FAIL_IF(host == NULL, ASHLAR_EHOSTMEM, "no host memory for %zu bytes of padding",
                   g->bytes);
    ashlar_status status =
        ashlar_alloc_tagged(g->arena->allocator, g->bytes, ASHLAR_TAG_WORKSPACE, stream, &block);
    if (status == ASHLAR_OK) {
        status = fetch(g, block, host, stream);
        const ashlar_status freed = ashlar_free(g->arena->allocator, block);
        status = status == ASHLAR_OK ? freed : status;
    }
    ASHLAR_THEN(status, compare(g, host));
    ashlar__host_free(host);
    return status;
}

ashlar_status ashlar_arena_check_padding(const ashlar_arena *arena, ashlar_stream stream) {
    ASHLAR_FAIL_IF(arena->allocator == NULL, ASHLAR_EINVAL,
                   "check_padding: the arena is not committed");
    const size_t room = (arena->tensor_count + 1) * ASHLAR_REGION_COUNT;
    gaps g = {.arena = arena,
              .list = ashlar__host_calloc(room, sizeof *g.list),
              .spans = ashlar__host_calloc(room, sizeof *g.spans)};
    ashlar_status status = ASHLAR_OK;
    if (g.list == NULL || g.spans == NULL) {
        status = ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for %zu stretches of padding", room);
    }
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT && status == ASHLAR_OK; i++) {
        if (arena->regions[i] != NULL) {
            find_gaps(&g, (ashlar_region)i);
        }
    }
    if (status == ASHLAR_OK && g.count > 0) {
        status = fetch_and_compare(&g, stream);
    }
    ashlar__host_free(g.list);
    ashlar__host_free(g.spans);
    return status;
}
