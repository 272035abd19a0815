/* checkpoint.c - opens a checkpoint, and fills an arena from it. */
#include <ashlar/checkpoint.h>

#include <stdio.h>
#include <string.h>

#include "arena/layout/arena_impl.h"
#include "arena/compute/convert.h"
#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "arena/checkpoint/checkpoint_impl.h"
#include "arena/checkpoint/safetensors.h"

struct ashlar_checkpoint {
    ashlar_safetensors *tensors;
    const char *path; /* of `tensors`, for messages */
};

/* One load: the entries of the file for each region and tensor. */
typedef struct loading {
    ashlar_arena *arena;
    const ashlar_checkpoint *file;
    ashlar_checkpoint_images images; /* of the regions that lie in host memory */
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
        const char *prefix = ashlar__checkpoint_prefix((ashlar_region)i);
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
                    ashlar__checkpoint_prefix((ashlar_region)region), info.name,
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

/* Read `count` of a tensor's elements, from `first` on, as elements of `dtype`. */
static ashlar_status read_elements(const ashlar_safetensors *file,
                                   const ashlar_safetensors_entry *entry, size_t first,
                                   size_t count, ashlar_dtype dtype, char *to) {
    enum { PIECE = 2048 };
    double piece[PIECE]; /* of the widest type */
    const size_t from_bytes = ashlar_dtype_bytes(entry->dtype), bytes = ashlar_dtype_bytes(dtype);
    if (entry->dtype == dtype) {
        return ashlar__safetensors_read(file, entry, first * bytes, count * bytes, to);
    }
    ASHLAR_CHECK2(from_bytes <= sizeof *piece);
    for (size_t i = 0; i < count; i += PIECE) {
        const size_t some = count - i < PIECE ? count - i : PIECE;
        ASHLAR_TRY(ashlar__safetensors_read(file, entry, (first + i) * from_bytes,
                                            some * from_bytes, piece));
        ashlar__convert(dtype, to + i * bytes, entry->dtype, piece, some);
    }
    return ASHLAR_OK;
}

/* A part of a region that is being built: its bytes [begin, end), of which those before `done` are.
 * All three are multiples of every element's size. */
typedef struct region_part {
    ashlar_region region;
    size_t begin, end, done;
    char *image; /* of the part */
} region_part;

/* Clear the padding up to byte `to` of the region. */
static void clear_to(region_part *part, size_t to) {
    const size_t end = to < part->end ? to : part->end;
    if (part->done < end) {
        memset(part->image + (part->done - part->begin), 0, end - part->done);
        part->done = end;
    }
}

/* Read the elements of tensor `i` that lie in the part. */
static ashlar_status gather_tensor(const loading *l, size_t i, region_part *part) {
    const ashlar_layout layout = ashlar__region_layout(part->region);
    ashlar_tensor_info info;
    ashlar_arena_tensor(l->arena, i, &info);
    if (!ashlar__layout_has(layout, info.dtype)) {
        return ASHLAR_OK;
    }
    const ashlar_safetensors_entry *entry = l->found[part->region * l->count + i];
    const ashlar_safetensors_entry *parameter = l->found[ASHLAR_REGION_PARAMETERS * l->count + i];
    const ashlar_safetensors_entry *from = entry != NULL ? entry : parameter; /* for a master */
    const ashlar_dtype dtype = ashlar__layout_dtype(info.dtype, layout);
    const size_t item = ashlar_dtype_bytes(dtype), at = info.offset[layout];
    const size_t past = at + info.elements * item, to = past < part->end ? past : part->end;
    ASHLAR_CHECK2(from != NULL); /* check_complete() has made sure */
    ASHLAR_CHECK2(entry != NULL || part->region == ASHLAR_REGION_MASTER);
    ASHLAR_CHECK2(past <= ashlar_arena_region_bytes(l->arena, part->region));
    clear_to(part, at);
    if (part->done >= to) {
        return ASHLAR_OK;
    }
    ASHLAR_CHECK2(part->done >= at && (part->done - at) % item == 0);
    const size_t first = (part->done - at) / item, count = (to - part->done) / item;
    char *const image = part->image + (part->done - part->begin);
    part->done = to;
    return read_elements(l->file->tensors, from, first, count, dtype, image);
}

/* Build the new contents of a region's bytes [begin, end) in `image`. */
static ashlar_status gather(const loading *l, ashlar_region region, size_t begin, size_t end,
                            char *image) {
    region_part part = {region, begin, end, begin, image};
    for (size_t i = 0; i < l->count && part.done < end; i++) {
        ASHLAR_TRY(gather_tensor(l, l->arena->order[i], &part));
    }
    clear_to(&part, end);
    return ASHLAR_OK;
}

static ashlar_status fill_region(const loading *l, ashlar_region region,
                                 ashlar_region_pieces *pieces) {
    const size_t bytes = ashlar_arena_region_bytes(l->arena, region);
    if (l->images.of[region] != NULL) {
        return gather(l, region, 0, bytes, l->images.of[region]);
    }
    ashlar__region_pieces_open(pieces, ashlar_arena_region(l->arena, region), bytes);
    for (size_t at = 0; at < bytes; at += ASHLAR_PIECE_BYTES) {
        size_t some;
        char *const piece = ashlar__region_pieces_buffer(pieces, at, &some);
        ASHLAR_TRY(gather(l, region, at, at + some, piece));
        ASHLAR_TRY(ashlar__region_pieces_write(pieces, at));
    }
    return ASHLAR_OK;
}

static ashlar_status fill_regions(const loading *l, ashlar_stream stream) {
    ashlar_region_pieces pieces;
    ASHLAR_TRY(ashlar__checkpoint_take_pieces(&pieces, l->arena, l->regions, &l->images, stream));
    ashlar_status status = ASHLAR_OK;
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT && status == ASHLAR_OK; i++) {
        if ((l->regions & ASHLAR_REGION_BIT(i)) != 0) {
            status = fill_region(l, (ashlar_region)i, &pieces);
        }
    }
    const ashlar_status ended = ashlar__region_pieces_finish(&pieces);
    return status == ASHLAR_OK ? ended : status;
}

ashlar_status ashlar_checkpoint_load(ashlar_arena *arena, const ashlar_checkpoint *file,
                                     unsigned flags, ashlar_stream stream) {
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
        .flags = flags,
        .regions = ashlar_arena_regions(arena) &
                   (weights | ((flags & ASHLAR_CHECKPOINT_STATE) != 0 ? moments : 0)),
        .count = ashlar_arena_tensor_count(arena),
    };
    l.found = ashlar__host_calloc(l.count, ASHLAR_REGION_COUNT * sizeof(void *));
    if (l.found == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "%s: no host memory for %zu tensors", file->path,
                            l.count);
    }
    ashlar_status status = check_tensors(&l);
    ASHLAR_THEN(status, ashlar__checkpoint_find_images(arena, l.regions, stream, &l.images));
    ASHLAR_THEN(status, fill_regions(&l, stream));
    ashlar__host_free(l.found);
    return status;
}
