/* checkpoint_save.c - saves an arena as a checkpoint. */
#include <ashlar/checkpoint.h>

#include <stdint.h>
#include <string.h>

#include "arena/layout/arena_impl.h"
#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "arena/checkpoint/checkpoint_impl.h"
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

ashlar_status ashlar__checkpoint_find_images(const ashlar_arena *arena, unsigned regions,
                                             ashlar_stream stream, ashlar_checkpoint_images *out) {
    ashlar_device *device = ashlar_allocator_device(ashlar_arena_allocator(arena));
    ashlar_device_info info;
    *out = (ashlar_checkpoint_images){0};
    ashlar_device_get_info(device, &info);
    if (info.kind != ASHLAR_DEVICE_SOFT || ashlar__region_pieces_forced()) {
        return ASHLAR_OK;
    }
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        if ((regions & ASHLAR_REGION_BIT(i)) != 0) {
            out->of[i] = ashlar_arena_region(arena, (ashlar_region)i);
        }
    }
    return ashlar_stream_synchronize(device, stream);
}

ashlar_status ashlar__checkpoint_take_pieces(ashlar_region_pieces *pieces,
                                             const ashlar_arena *arena, unsigned regions,
                                             const ashlar_checkpoint_images *images,
                                             ashlar_stream stream) {
    size_t most = 0;
    *pieces = (ashlar_region_pieces){0};
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        const size_t bytes = ashlar_arena_region_bytes(arena, (ashlar_region)i);
        if ((regions & ASHLAR_REGION_BIT(i)) != 0 && images->of[i] == NULL && bytes > most) {
            most = bytes;
        }
    }
    return most == 0
               ? ASHLAR_OK
               : ashlar__region_pieces_init(
                     pieces, ashlar_allocator_device(ashlar_arena_allocator(arena)), stream, most);
}

/* The regions that exist and that `flags` ask for. Parameters are always asked for. */
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

/* One save: the regions, and a description of each tensor in them. */
typedef struct saving {
    const ashlar_arena *arena;
    ashlar_checkpoint_images images;    /* of the regions that lie in host memory */
    char *regions[ASHLAR_REGION_COUNT]; /* the image, or device; NULL: not saved */
    ashlar_region_pieces pieces;        /* of the regions without an image */
    ashlar_safetensors_entry *entries;  /* [count] */
    size_t count;
    char *names; /* the entries' names, one behind the other */
} saving;

/* Find elements for the file (safetensors.h). */
static ashlar_status find_elements(void *context, const ashlar_safetensors_entry *entry,
                                   size_t first, const char **at, size_t *bytes) {
    saving *const s = context;
    const uintptr_t address = (uintptr_t)entry->data + first;
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        const size_t offset = address - (uintptr_t)s->regions[i];
        const size_t region_bytes = ashlar_arena_region_bytes(s->arena, (ashlar_region)i);
        if (s->regions[i] == NULL || offset >= region_bytes) {
            continue;
        }
        if (s->images.of[i] != NULL) {
            *at = s->regions[i] + offset;
            *bytes = region_bytes - offset;
            return ASHLAR_OK;
        }
        if (s->pieces.region != s->regions[i]) {
            ashlar__region_pieces_open(&s->pieces, s->regions[i], region_bytes);
        }
        return ashlar__region_pieces_read(&s->pieces, offset, at, bytes);
    }
    ASHLAR_ASSERT(false && "every entry lies in a region");
    return ASHLAR_EINVAL;
}

/* Describe a tensor's part of a region. Its name is written at *name, which moves past it. */
static void describe(saving *s, ashlar_region region, const ashlar_tensor_info *info, char **name) {
    const char *prefix = ashlar__checkpoint_prefix(region);
    ASHLAR_CHECK2(prefix != NULL && s->regions[region] != NULL);
    ASHLAR_CHECK2(s->count < ashlar_arena_tensor_count(s->arena) * ASHLAR_REGION_COUNT);
    ashlar_safetensors_entry *entry = &s->entries[s->count++];
    *entry = (ashlar_safetensors_entry){
        .name = *name,
        .dtype = ashlar__layout_dtype(info->dtype, ashlar__region_layout(region)),
        .rank = info->rank,
        .data = s->regions[region] + info->offset[ashlar__region_layout(region)],
    };
    memcpy(entry->shape, info->shape, info->rank * sizeof info->shape[0]);
    memcpy(*name, prefix, strlen(prefix));
    memcpy(*name + strlen(prefix), info->name, strlen(info->name) + 1);
    *name += strlen(prefix) + strlen(info->name) + 1;
}

/* Take memory to describe every tensor in every region, which is at least what a save needs. */
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

static ashlar_status write_all(saving *s, const char *path, unsigned regions,
                               const ashlar_checkpoint_pair *metadata, size_t metadata_count) {
    const ashlar_safetensors_source source = {.find = find_elements, .context = s};
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        if ((regions & ASHLAR_REGION_BIT(i)) != 0) {
            s->regions[i] = s->images.of[i] != NULL
                                ? s->images.of[i]
                                : ashlar_arena_region(s->arena, (ashlar_region)i);
        }
    }
    describe_all(s, regions);
    return ashlar__safetensors_write_from(path, s->entries, s->count, metadata, metadata_count,
                                          &source);
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
    ASHLAR_THEN(status, ashlar__checkpoint_find_images(arena, regions, stream, &s.images));
    ASHLAR_THEN(status,
                ashlar__checkpoint_take_pieces(&s.pieces, arena, regions, &s.images, stream));
    if (status == ASHLAR_OK) {
        status = write_all(&s, path, regions, metadata, metadata_count);
    }
    /* After a failure, too: a queued copy writes into the buffers. */
    const ashlar_status ended = ashlar__region_pieces_finish(&s.pieces);
    status = status == ASHLAR_OK ? ended : status;
    ashlar__host_free(s.entries);
    ashlar__host_free(s.names);
    return status;
}
