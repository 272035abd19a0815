/* replicate.c - copies an arena to another device, and keeps such replicas up to date. */
#include <ashlar/arena.h>

#include "arena/layout/arena_impl.h"
#include "allocator/base/check_level.h"
#include "allocator/base/host.h"

/* Describe a group's tensors, the first of which is `first`, in `specs`. Returns their number. */
static size_t read_group(const ashlar_arena *source, size_t group, size_t first,
                         ashlar_tensor_spec *specs) {
    size_t count = 0;
    for (size_t i = first; i < source->tensor_count && source->tensors[i].group == group; i++) {
        const ashlar_arena_entry *tensor = &source->tensors[i];
        ashlar_tensor_spec *spec = &specs[count++];
        *spec = (ashlar_tensor_spec){.name = tensor->name,
                                     .dtype = tensor->info.dtype,
                                     .rank = tensor->info.rank,
                                     .group_offset = tensor->group_offset};
        for (size_t d = 0; d < spec->rank; d++) {
            spec->shape[d] = tensor->info.shape[d];
        }
    }
    return count;
}

static ashlar_status declare_groups(ashlar_arena *copy, const ashlar_arena *source,
                                    ashlar_tensor_spec *specs) {
    size_t first = 0;
    for (size_t i = 0; i < source->group_count; i++) {
        const size_t count = read_group(source, i, first, specs);
        ASHLAR_TRY(ashlar_arena_add_group(copy, source->groups[i].bytes, specs, count, NULL));
        first += count;
    }
    return ASHLAR_OK;
}

/* Declare in `copy` everything that `source` declares, and compute its offsets. */
static ashlar_status declare_like(ashlar_arena *copy, const ashlar_arena *source) {
    ashlar_tensor_spec *specs;
    ASHLAR_HOST_NEW(specs, source->tensor_count,
                    "no host memory to replicate an arena of %zu tensors", source->tensor_count);
    ashlar_status status = declare_groups(copy, source, specs);
    ashlar__host_free(specs);
    for (size_t i = 0; i < source->tensor_count && status == ASHLAR_OK; i++) {
        copy->tensors[i].info.options = source->tensors[i].info.options;
        copy->tensors[i].is_apart = source->tensors[i].is_apart;
    }
    copy->bucket_bytes = source->bucket_bytes;
    copy->world_size = source->world_size;
    ASHLAR_THEN(status, ashlar__arena_place(copy));
    ASHLAR_CHECK2(status != ASHLAR_OK || copy->layout_hash == source->layout_hash);
    return status;
}

/* A stream of a device. */
typedef struct side {
    ashlar_device *device;
    ashlar_stream stream;
} side;

/* Work queued on `later` from now on waits for all work queued on `earlier` so far. */
static ashlar_status order(side earlier, ashlar_event event, side later) {
    ASHLAR_TRY(ashlar_event_record(earlier.device, event, earlier.stream));
    return ashlar_stream_wait(later.device, later.stream, event);
}

static ashlar_status copy_regions(const ashlar_arena *to, side dst, const ashlar_arena *from,
                                  side src, unsigned regions) {
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        if ((regions & ASHLAR_REGION_BIT(i)) != 0) {
            ASHLAR_TRY(ashlar_copy_peer(dst.device, to->regions[i], src.device, from->regions[i],
                                        ashlar__arena_region_bytes(from, (ashlar_region)i),
                                        dst.stream));
        }
    }
    return ASHLAR_OK;
}

static ashlar_status copy_between(const ashlar_arena *to, side dst, const ashlar_arena *from,
                                  side src, unsigned regions, ashlar_event *before,
                                  ashlar_event *after) {
    ASHLAR_TRY(ashlar_event_create(src.device, before));
    ASHLAR_TRY(ashlar_event_create(dst.device, after));
    ASHLAR_TRY(order(src, *before, dst));
    ASHLAR_TRY(copy_regions(to, dst, from, src, regions));
    return order(dst, *after, src);
}

/* Copy after all work queued on the source's stream so far, and before work queued there later. */
static ashlar_status copy_in_order(const ashlar_arena *to, side dst, const ashlar_arena *from,
                                   side src, unsigned regions) {
    ashlar_event before = NULL, after = NULL; /* recorded before and after the copies */
    const ashlar_status status = copy_between(to, dst, from, src, regions, &before, &after);
    if (status != ASHLAR_OK) {
        /* Copies may be queued that the source's stream does not wait for, so the host does. */
        ASHLAR_IGNORE(ashlar_stream_synchronize(dst.device, dst.stream));
    }
    ashlar_event_destroy(src.device, before);
    ashlar_event_destroy(dst.device, after);
    return status;
}

/* Check that `source` has all of `regions`, except those of 0 bytes. *wanted: those that it has. */
static ashlar_status check_regions(const ashlar_arena *source, unsigned regions, unsigned *wanted) {
    ASHLAR_FAIL_IF(source->allocator == NULL || (regions & ASHLAR_REGIONS_INFERENCE) == 0 ||
                       regions > ASHLAR_REGIONS_ALL,
                   ASHLAR_EINVAL,
                   source->allocator == NULL
                       ? "replicate: the source is not committed"
                       : "replicate: regions: no set with that of the parameters");
    *wanted = regions & ashlar__arena_regions(source);
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        ASHLAR_FAIL_IF((regions & ~*wanted & ASHLAR_REGION_BIT(i)) != 0 &&
                           ashlar__arena_region_bytes(source, (ashlar_region)i) != 0,
                       ASHLAR_EINVAL,
                       "replicate: the source has no %s; leave them out, and take them by "
                       "ashlar_arena_extend()",
                       ashlar__region_text((ashlar_region)i));
    }
    return ASHLAR_OK;
}

static ashlar_status fill_replica(ashlar_arena *copy, ashlar_allocator *allocator,
                                  ashlar_stream stream, const ashlar_arena *source,
                                  ashlar_stream source_stream, unsigned regions) {
    unsigned taken = 0;
    ASHLAR_TRY(declare_like(copy, source));
    ASHLAR_TRY(ashlar__arena_take(copy, allocator, stream, regions, &taken));
    copy->allocator = allocator; /* from here on ashlar_arena_destroy() frees the regions */
    return copy_in_order(copy, (side){ashlar_allocator_device(allocator), stream}, source,
                         (side){ashlar_allocator_device(source->allocator), source_stream}, taken);
}

ashlar_status ashlar_arena_replicate(const ashlar_arena *source, ashlar_stream source_stream,
                                     ashlar_allocator *allocator, ashlar_stream stream,
                                     unsigned regions, ashlar_arena **out) {
    ashlar_arena *copy;
    ASHLAR_TRY(check_regions(source, regions, &regions));
    ASHLAR_TRY(ashlar_arena_create(&copy));
    const ashlar_status status =
        fill_replica(copy, allocator, stream, source, source_stream, regions);
    ASHLAR_CHECK3(status != ASHLAR_OK || ashlar_arena_check(copy) == ASHLAR_OK);
    ASHLAR_HAND_OUT(status, copy, ashlar_arena_destroy, out);
}

static bool have_same_layout(const ashlar_arena *a, const ashlar_arena *b) {
    return a->allocator != NULL && b->allocator != NULL && a->layout_hash == b->layout_hash &&
           a->bytes[ASHLAR_LAYOUT_STORAGE] == b->bytes[ASHLAR_LAYOUT_STORAGE];
}

ashlar_status ashlar_arena_refresh(ashlar_arena *replica, ashlar_stream stream,
                                   const ashlar_arena *source, ashlar_stream source_stream) {
    ASHLAR_FAIL_IF(replica == source || !have_same_layout(replica, source), ASHLAR_EINVAL,
                   "refresh: needs two committed arenas with the same layout; make one by "
                   "ashlar_arena_replicate()");
    return copy_in_order(replica, (side){ashlar_allocator_device(replica->allocator), stream},
                         source, (side){ashlar_allocator_device(source->allocator), source_stream},
                         ASHLAR_REGIONS_INFERENCE);
}
