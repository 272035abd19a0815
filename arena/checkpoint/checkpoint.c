/* checkpoint.c - saves a checkpoint, and names its tensors. */
#include "arena/checkpoint/checkpoint_impl.h"

#include <string.h>

#include "arena/layout/arena_impl.h"
#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "arena/checkpoint/safetensors.h"

_Static_assert((int)ASHLAR_RANK_MAX <= (int)ASHLAR_SAFETENSORS_RANK_MAX,
               "every tensor can be written");

const char *ashlar__checkpoint_prefix(ashlar_region region) {
    static const char *const prefixes[] = {
        [ASHLAR_REGION_PARAMETERS] = "",
        [ASHLAR_REGION_GRADIENTS] = NULL, /* not saved */
        [ASHLAR_REGION_MOMENT1] = "optimizer.moment1.",
        [ASHLAR_REGION_MOMENT2] = "optimizer.moment2.",
        [ASHLAR_REGION_MASTER] = "optimizer.master.",
    };
    ASHLAR_TABLE_IS_FULL(prefixes, ASHLAR_REGION_COUNT);
    ASHLAR_CHECK2((unsigned)region < ASHLAR_REGION_COUNT);
    return prefixes[region];
}

/* One save: a host image of each region, and a description of each tensor in it. */
typedef struct saving {
    const ashlar_arena *arena;
    char *images[ASHLAR_REGION_COUNT]; /* NULL: not saved */
    ashlar_safetensors_entry *entries; /* [count] */
    size_t count;
    char *names; /* the entries' names, one behind the other */
} saving;

/* The regions to save: those that `flags` ask for and the arena has, and always the parameters. */
static unsigned saved_regions(const ashlar_arena *arena, unsigned flags) {
    unsigned regions = 0;
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        const bool is_asked = i == ASHLAR_REGION_PARAMETERS || (flags & ASHLAR_CHECKPOINT_STATE);
        if (is_asked && ashlar__checkpoint_prefix((ashlar_region)i) != NULL) {
            regions |= ASHLAR_REGION_BIT(i);
        }
    }
    return regions & ashlar_arena_regions(arena);
}

/* Queue one region's copy to the host. */
static ashlar_status read_region(saving *s, ashlar_region region, ashlar_stream stream) {
    const size_t bytes = ashlar_arena_region_bytes(s->arena, region);
    ASHLAR_CHECK2(s->images[region] == NULL && bytes > 0);
    s->images[region] = ashlar__host_calloc(bytes, 1);
    if (s->images[region] == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "checkpoint: no host memory for the %zu bytes of %s",
                            bytes, ashlar_region_text(region));
    }
    return ashlar_copy_to_host(ashlar_allocator_device(ashlar_arena_allocator(s->arena)),
                               s->images[region], ashlar_arena_region(s->arena, region), bytes,
                               stream);
}

static ashlar_status read_regions(saving *s, unsigned regions, ashlar_stream stream) {
    ashlar_device *device = ashlar_allocator_device(ashlar_arena_allocator(s->arena));
    ashlar_status status = ASHLAR_OK;
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT && status == ASHLAR_OK; i++) {
        if ((regions & ASHLAR_REGION_BIT(i)) != 0) {
            status = read_region(s, (ashlar_region)i, stream);
        }
    }
    /* Wait after a failure too: queued copies write into images that are about to be freed. */
    const ashlar_status waited = ashlar_stream_synchronize(device, stream);
    return status == ASHLAR_OK ? waited : status;
}

/* Describe a tensor's part of a region. Writes its name at *name, and moves *name behind it. */
static void describe(saving *s, ashlar_region region, const ashlar_tensor_info *info, char **name) {
    const char *prefix = ashlar__checkpoint_prefix(region);
    ASHLAR_CHECK2(prefix != NULL && s->images[region] != NULL);
    ASHLAR_CHECK2(s->count < ashlar_arena_tensor_count(s->arena) * ASHLAR_REGION_COUNT);
    ashlar_safetensors_entry *entry = &s->entries[s->count++];
    *entry = (ashlar_safetensors_entry){
        .name = *name,
        .dtype = ashlar__layout_dtype(info->dtype, ashlar__region_layout(region)),
        .rank = info->rank,
        .data = s->images[region] + info->offset[ashlar__region_layout(region)],
    };
    memcpy(entry->shape, info->shape, info->rank * sizeof info->shape[0]);
    memcpy(*name, prefix, strlen(prefix));
    memcpy(*name + strlen(prefix), info->name, strlen(info->name) + 1);
    *name += strlen(prefix) + strlen(info->name) + 1;
}

/* Take memory for an entry for each tensor in each region, which is the most that a save needs. */
static ashlar_status take_entries(saving *s) {
    const size_t count = ashlar_arena_tensor_count(s->arena);
    size_t name_bytes = 0; /* cannot wrap: all names are in memory already */
    for (size_t i = 0; i < count; i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(s->arena, i, &info);
        name_bytes += strlen(info.name) + sizeof "optimizer.moment1.";
    }
    s->entries = ashlar__host_calloc(count, ASHLAR_REGION_COUNT * sizeof *s->entries);
    s->names = ashlar__host_calloc(name_bytes, ASHLAR_REGION_COUNT);
    return s->entries != NULL && s->names != NULL
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EHOSTMEM, "checkpoint: no host memory for %zu names", count);
}

static void describe_all(saving *s, unsigned regions) {
    char *name = s->names;
    for (unsigned region = 0; region < ASHLAR_REGION_COUNT; region++) {
        for (size_t i = 0; i < ashlar_arena_tensor_count(s->arena); i++) {
            ashlar_tensor_info info;
            ashlar_arena_tensor(s->arena, i, &info);
            if ((regions & ASHLAR_REGION_BIT(region)) != 0 &&
                ashlar__layout_has(ashlar__region_layout((ashlar_region)region), info.dtype)) {
                describe(s, (ashlar_region)region, &info, &name);
            }
        }
    }
}

ashlar_status ashlar_checkpoint_save(const ashlar_arena *arena, const char *path, unsigned flags,
                                     const ashlar_checkpoint_pair *metadata, size_t metadata_count,
                                     ashlar_stream stream) {
    if (ashlar_arena_regions(arena) == 0 || (flags & ~(unsigned)ASHLAR_CHECKPOINT_STATE) != 0) {
        return ashlar__fail(ASHLAR_EINVAL, "checkpoint: %s",
                            ashlar_arena_regions(arena) == 0 ? "the arena is not committed"
                                                             : "no flags for a save");
    }
    const unsigned regions = saved_regions(arena, flags);
    saving s = {.arena = arena};
    ashlar_status status = take_entries(&s);
    if (status == ASHLAR_OK) {
        status = read_regions(&s, regions, stream);
    }
    if (status == ASHLAR_OK) {
        describe_all(&s, regions);
        status = ashlar__safetensors_write(path, s.entries, s.count, metadata, metadata_count);
    }
    for (size_t i = 0; i < ASHLAR_REGION_COUNT; i++) {
        ashlar__host_free(s.images[i]);
    }
    ashlar__host_free(s.entries);
    ashlar__host_free(s.names);
    return status;
}
