/* checkpoint.c - saves an arena as a checkpoint, and fills an arena from one. */
#include <ashlar/checkpoint.h>

#include <stdio.h>
#include <string.h>

#include "arena/layout/arena_impl.h"
#include "arena/compute/convert.h"
#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "arena/checkpoint/checkpoint_images.h"
#include "arena/checkpoint/safetensors.h"

_Static_assert((int)ASHLAR_RANK_MAX <= (int)ASHLAR_SAFETENSORS_RANK_MAX,
               "every tensor can be written");

/* The prefix that a tensor's name gets in the file for its part of `region`. NULL: not saved. */
static const char *prefix_of(ashlar_region region) {
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

static const ashlar_checkpoint_images no_images;

/* --- saving ----------------------------------------------------------------------------------- */

/* One save: a host image of each region, and a description of each tensor in it. */
typedef struct saving {
    const ashlar_arena *arena;
    const ashlar_checkpoint_images *given;
    char *images[ASHLAR_REGION_COUNT]; /* those of `given`, or owned; NULL: not saved */
    ashlar_safetensors_entry *entries; /* [count] */
    size_t count;
    char *names; /* the entries' names, one behind the other */
} saving;

static unsigned regions_of(const ashlar_arena *arena, const ashlar_checkpoint_images *images) {
    unsigned regions = ashlar_arena_regions(arena);
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        regions |= images->of[i] != NULL ? ASHLAR_REGION_BIT(i) : 0;
    }
    return regions;
}

/* The regions that exist and that `flags` ask for. Parameters are always asked for. */
static unsigned saved_regions(const ashlar_arena *arena, unsigned flags,
                              const ashlar_checkpoint_images *images) {
    unsigned regions = 0;
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        const bool is_asked = i == ASHLAR_REGION_PARAMETERS || (flags & ASHLAR_CHECKPOINT_STATE);
        if (is_asked && prefix_of((ashlar_region)i) != NULL) {
            regions |= ASHLAR_REGION_BIT(i);
        }
    }
    return regions & regions_of(arena, images);
}

/* Queue one region's copy to the host. */
static ashlar_status read_region(saving *s, ashlar_region region, ashlar_stream stream) {
    const size_t bytes = ashlar_arena_region_bytes(s->arena, region);
    ASHLAR_CHECK2(s->images[region] == NULL && bytes > 0);
    if (s->given->of[region] != NULL) {
        s->images[region] = s->given->of[region];
        return ASHLAR_OK;
    }
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

/* Describe a tensor's part of a region. Its name is written at *name, which moves past it. */
static void describe(saving *s, ashlar_region region, const ashlar_tensor_info *info, char **name) {
    const char *prefix = prefix_of(region);
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

ashlar_status ashlar_checkpoint_save(const ashlar_arena *arena, const char *path, unsigned flags,
                                     const ashlar_checkpoint_pair *metadata, size_t metadata_count,
                                     ashlar_stream stream) {
    return ashlar__checkpoint_save_with(arena, path, flags, metadata, metadata_count, stream,
                                        &no_images);
}

ashlar_status ashlar__checkpoint_save_with(const ashlar_arena *arena, const char *path,
                                           unsigned flags, const ashlar_checkpoint_pair *metadata,
                                           size_t metadata_count, ashlar_stream stream,
                                           const ashlar_checkpoint_images *images) {
    if (ashlar_arena_regions(arena) == 0 || (flags & ~(unsigned)ASHLAR_CHECKPOINT_STATE) != 0) {
        return ashlar__fail(ASHLAR_EINVAL, "checkpoint: %s",
                            ashlar_arena_regions(arena) == 0 ? "the arena is not committed"
                                                             : "no flags for a save");
    }
    const unsigned regions = saved_regions(arena, flags, images);
    saving s = {.arena = arena, .given = images};
    ashlar_status status = take_entries(&s);
    ASHLAR_THEN(status, read_regions(&s, regions, stream));
    if (status == ASHLAR_OK) {
        describe_all(&s, regions);
        status = ashlar__safetensors_write(path, s.entries, s.count, metadata, metadata_count);
    }
    for (size_t i = 0; i < ASHLAR_REGION_COUNT; i++) {
        ashlar__host_free(images->of[i] == NULL ? s.images[i] : NULL);
    }
    ashlar__host_free(s.entries);
    ashlar__host_free(s.names);
    return status;
}

struct ashlar_checkpoint {
    ashlar_safetensors *tensors;
    const char *path; /* of `tensors`, for messages */
};

/* One load: the entries of the file for each region and tensor. */
typedef struct loading {
    ashlar_arena *arena;
    const ashlar_checkpoint *file;
    const ashlar_checkpoint_images *given;
    unsigned flags;
    unsigned regions;                       /* to be filled */
    size_t count;                           /* tensors of the arena */
    const ashlar_safetensors_entry **found; /* [REGION_COUNT, count]; NULL: not in the file */
} loading;

/* --- the file ------------------------------------------------------------------------------- */

static ashlar_status open_file(ashlar_checkpoint *file, const char *path) {
    ASHLAR_TRY(ashlar__safetensors_open(path, &file->tensors));
    file->path = ashlar__safetensors_path(file->tensors);
    return ASHLAR_OK;
}

ashlar_status ashlar_checkpoint_open(const char *path, ashlar_checkpoint **out) {
    ashlar_checkpoint *file;
    ASHLAR_HOST_NEW(file, 1, "no host memory to read %s", path);
    ASHLAR_HAND_OUT(open_file(file, path), file, ashlar_checkpoint_close, out);
}

void ashlar_checkpoint_close(ashlar_checkpoint *file) {
    if (file != NULL) {
        ashlar__safetensors_close(file->tensors);
        ashlar__host_free(file);
    }
}

const char *ashlar_checkpoint_metadata(const ashlar_checkpoint *file, const char *key) {
    return ashlar__safetensors_metadata(file->tensors, key);
}

/* ---- which tensor an entry holds ---- */

/* Find the tensor and the region that a name in the file stands for. False: neither exists. A name
 * that could mean two regions means the parameters. */
static bool resolve(const ashlar_arena *arena, const char *name, ashlar_region *region,
                    size_t *tensor) {
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        const char *prefix = prefix_of((ashlar_region)i);
        if (prefix != NULL && strncmp(name, prefix, strlen(prefix)) == 0 &&
            ashlar_arena_find(arena, name + strlen(prefix), tensor) == ASHLAR_OK) {
            *region = (ashlar_region)i;
            return true;
        }
    }
    return false;
}

enum { SHAPE_BYTES = 256 };

/* Write a type and a shape like this: "F32 [2, 3]". */
static void print_shape(ashlar_dtype dtype, size_t rank, const size_t *shape,
                        char text[static SHAPE_BYTES]) {
    int at = snprintf(text, SHAPE_BYTES, "%s [", ashlar_dtype_name(dtype));
    for (size_t i = 0; i < rank; i++) {
        at += snprintf(text + at, (size_t)(SHAPE_BYTES - at), "%s%zu", i > 0 ? ", " : "", shape[i]);
    }
    ASHLAR_CHECK2(at > 0 && at < SHAPE_BYTES);
    (void)snprintf(text + at, (size_t)(SHAPE_BYTES - at), "]");
}

_Static_assert(ASHLAR_SAFETENSORS_RANK_MAX * 22 + 16 < SHAPE_BYTES, "every shape can be printed");

static ashlar_status check_entry(const loading *l, ashlar_region region,
                                 const ashlar_tensor_info *info,
                                 const ashlar_safetensors_entry *entry) {
    const ashlar_dtype dtype = ashlar__layout_dtype(info->dtype, ashlar__region_layout(region));
    const bool may_convert =
        region == ASHLAR_REGION_PARAMETERS && (l->flags & ASHLAR_CHECKPOINT_CONVERT) != 0;
    if ((entry->dtype == dtype || may_convert) && entry->rank == info->rank &&
        memcmp(entry->shape, info->shape, info->rank * sizeof info->shape[0]) == 0) {
        return ASHLAR_OK;
    }
    char got[SHAPE_BYTES], want[SHAPE_BYTES];
    print_shape(entry->dtype, entry->rank, entry->shape, got);
    print_shape(dtype, info->rank, info->shape, want);
    return ashlar__fail(ASHLAR_EFORMAT, "%s: tensor '%s' is %s there, and %s in this model",
                        l->file->path, entry->name, got, want);
}

/* Note the tensor and the region that an entry of the file belongs to. */
static ashlar_status take_entry(loading *l, const ashlar_safetensors_entry *entry) {
    ashlar_region region = ASHLAR_REGION_PARAMETERS;
    size_t tensor = 0;
    ashlar_tensor_info info;
    if (!resolve(l->arena, entry->name, &region, &tensor)) {
        return ashlar__fail(ASHLAR_EFORMAT, "%s: tensor '%s' is none of this model's",
                            l->file->path, entry->name);
    }
    ASHLAR_CHECK2(tensor < l->count);
    ashlar_arena_tensor(l->arena, tensor, &info);
    const bool is_wanted = (l->regions & ASHLAR_REGION_BIT(region)) != 0 &&
                           ashlar__layout_has(ashlar__region_layout(region), info.dtype);
    if (is_wanted) {
        ASHLAR_CHECK2(l->found[region * l->count + tensor] == NULL); /* a file has each name once */
        l->found[region * l->count + tensor] = entry;
        return check_entry(l, region, &info, entry);
    }
    return (l->flags & ASHLAR_CHECKPOINT_STATE) == 0
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EFORMAT,
                              "%s: tensor '%s' is the state of another optimizer than this one",
                              l->file->path, entry->name);
}

static ashlar_status check_complete(const loading *l) {
    for (unsigned region = 0; region < ASHLAR_REGION_COUNT; region++) {
        if ((l->regions & ASHLAR_REGION_BIT(region)) == 0 || region == ASHLAR_REGION_MASTER) {
            continue;
        }
        for (size_t i = 0; i < l->count; i++) {
            ashlar_tensor_info info;
            ashlar_arena_tensor(l->arena, i, &info);
            if (l->found[region * l->count + i] == NULL) {
                return ashlar__fail(
                    ASHLAR_EFORMAT, "%s: tensor '%s%s' is not in the file%s", l->file->path,
                    prefix_of((ashlar_region)region), info.name,
                    region == ASHLAR_REGION_PARAMETERS
                        ? ""
                        : "; to go on training, it must hold the optimizer's state");
            }
        }
    }
    return ASHLAR_OK;
}

static ashlar_status check_tensors(loading *l) {
    for (size_t i = 0; i < ashlar__safetensors_count(l->file->tensors); i++) {
        ASHLAR_TRY(take_entry(l, ashlar__safetensors_at(l->file->tensors, i)));
    }
    return check_complete(l);
}

/* --- filling -------------------------------------------------------------------------------- */

/* Read a tensor's elements as elements of `dtype`. */
static ashlar_status read_elements(const ashlar_safetensors *file,
                                   const ashlar_safetensors_entry *entry, size_t elements,
                                   ashlar_dtype dtype, char *to) {
    enum { PIECE = 2048 };
    double piece[PIECE]; /* of the widest type */
    const size_t from_bytes = ashlar_dtype_bytes(entry->dtype), bytes = ashlar_dtype_bytes(dtype);
    if (entry->dtype == dtype) {
        return ashlar__safetensors_read(file, entry, 0, elements * bytes, to);
    }
    ASHLAR_CHECK2(from_bytes <= sizeof *piece);
    for (size_t i = 0; i < elements; i += PIECE) {
        const size_t count = elements - i < PIECE ? elements - i : PIECE;
        ASHLAR_TRY(
            ashlar__safetensors_read(file, entry, i * from_bytes, count * from_bytes, piece));
        ashlar__convert(dtype, to + i * bytes, entry->dtype, piece, count);
    }
    return ASHLAR_OK;
}

/* Build the region's new contents in `image`. */
static ashlar_status gather(const loading *l, ashlar_region region, char *image) {
    const ashlar_layout layout = ashlar__region_layout(region);
    memset(image, 0, ashlar_arena_region_bytes(l->arena, region)); /* with the padding */
    for (size_t i = 0; i < l->count; i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(l->arena, i, &info);
        if (!ashlar__layout_has(layout, info.dtype)) {
            continue;
        }
        const ashlar_safetensors_entry *entry = l->found[region * l->count + i];
        const ashlar_safetensors_entry *parameter =
            l->found[ASHLAR_REGION_PARAMETERS * l->count + i];
        const ashlar_safetensors_entry *from = entry != NULL ? entry : parameter; /* for a master */
        ASHLAR_CHECK2(from != NULL); /* check_complete() has made sure */
        ASHLAR_CHECK2(entry != NULL || region == ASHLAR_REGION_MASTER);
        ASHLAR_CHECK2(info.offset[layout] + ashlar__arena_tensor_bytes(l->arena, layout, i) <=
                      ashlar_arena_region_bytes(l->arena, region));
        ASHLAR_TRY(read_elements(l->file->tensors, from, info.elements,
                                 ashlar__layout_dtype(info.dtype, layout),
                                 image + info.offset[layout]));
    }
    return ASHLAR_OK;
}

static ashlar_status fill_region(const loading *l, ashlar_region region, char *image,
                                 ashlar_stream stream) {
    if (l->given->of[region] != NULL) {
        return gather(l, region, l->given->of[region]);
    }
    ashlar_device *device = ashlar_allocator_device(ashlar_arena_allocator(l->arena));
    ASHLAR_TRY(gather(l, region, image));
    const ashlar_status status =
        ashlar_copy_to_device(device, ashlar_arena_region(l->arena, region), image,
                              ashlar_arena_region_bytes(l->arena, region), stream);
    /* Wait after a failure too: the image is about to be reused or freed. */
    const ashlar_status waited = ashlar_stream_synchronize(device, stream);
    return status == ASHLAR_OK ? waited : status;
}

static ashlar_status fill_regions(const loading *l, ashlar_stream stream) {
    size_t most = 0;
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        const size_t bytes = ashlar_arena_region_bytes(l->arena, (ashlar_region)i);
        most = (l->regions & ASHLAR_REGION_BIT(i)) != 0 && bytes > most ? bytes : most;
    }
    char *image;
    ASHLAR_HOST_NEW(image, most, "%s: no host memory for a region of %zu bytes", l->file->path,
                    most);
    ashlar_status status = ASHLAR_OK;
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT && status == ASHLAR_OK; i++) {
        if ((l->regions & ASHLAR_REGION_BIT(i)) != 0) {
            status = fill_region(l, (ashlar_region)i, image, stream);
        }
    }
    ashlar__host_free(image);
    return status;
}

ashlar_status ashlar_checkpoint_load(ashlar_arena *arena, const ashlar_checkpoint *file,
                                     unsigned flags, ashlar_stream stream) {
    return ashlar__checkpoint_load_with(arena, file, flags, stream, &no_images);
}

ashlar_status ashlar__checkpoint_load_with(ashlar_arena *arena, const ashlar_checkpoint *file,
                                           unsigned flags, ashlar_stream stream,
                                           const ashlar_checkpoint_images *images) {
    const unsigned all = ASHLAR_CHECKPOINT_STATE | ASHLAR_CHECKPOINT_CONVERT;
    if (ashlar_arena_regions(arena) == 0 || (flags & ~all) != 0) {
        return ashlar__fail(ASHLAR_EINVAL, "checkpoint: %s",
                            ashlar_arena_regions(arena) == 0 ? "the arena is not committed"
                                                             : "no flags for a load");
    }
    const unsigned weights =
        ASHLAR_REGION_BIT(ASHLAR_REGION_PARAMETERS) | ASHLAR_REGION_BIT(ASHLAR_REGION_MASTER);
    const unsigned moments =
        ASHLAR_REGION_BIT(ASHLAR_REGION_MOMENT1) | ASHLAR_REGION_BIT(ASHLAR_REGION_MOMENT2);
    loading l = {
        .arena = arena,
        .file = file,
        .given = images,
        .flags = flags,
        .regions = regions_of(arena, images) &
                   (weights | ((flags & ASHLAR_CHECKPOINT_STATE) != 0 ? moments : 0)),
        .count = ashlar_arena_tensor_count(arena),
    };
    l.found = ashlar__host_calloc(l.count, ASHLAR_REGION_COUNT * sizeof(void *));
    if (l.found == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "%s: no host memory for %zu tensors", file->path,
                            l.count);
    }
    ashlar_status status = check_tensors(&l);
    ASHLAR_THEN(status, fill_regions(&l, stream));
    ashlar__host_free(l.found);
    return status;
}
