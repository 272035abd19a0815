/* checkpoint.c - saves an arena to a safetensors file, and fills an arena from one. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <ashlar/arena.h>
#include <ashlar/device.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "arena/checkpoint/safetensors.h"
#include "arena/compute/convert.h"
#include "arena/layout/arena_impl.h"

struct ashlar_checkpoint {
    ashlar_safetensors *tensors;
    const char *path; /* owned by `tensors` */
};

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

/* A load, and which of the file's entries it puts into each tensor of each region. */
typedef struct loading {
    ashlar_arena *arena;
    const ashlar_checkpoint *file;
    unsigned flags;
    unsigned regions;                       /* the set to be filled */
    size_t count;                           /* tensors of the arena */
    const ashlar_safetensors_entry **found; /* [REGION_COUNT, count]; NULL: not in the file */
} loading;

/* --- pieces of a region --------------------------------------------------------------------- */

/*
 * A region of device memory, of which two pieces at a time have a buffer in host memory, so that
 * one is copied while the other is written to a file or read from one. Piece i is the region's
 * bytes from i * ASHLAR_PIECE_BYTES on; the last piece may be shorter.
 */
typedef struct region_pieces {
    ashlar_device *device;
    ashlar_stream stream;
    char *region; /* device, [bytes]; NULL: no region is open */
    size_t bytes;
    char *buffers;      /* host, [2, piece_bytes]; piece i lies in buffer i % 2 */
    size_t piece_bytes; /* room of a buffer: ASHLAR_PIECE_BYTES, or less if no region is larger */
    size_t held[2];     /* 1 + the piece in each buffer; 0: none */
    bool is_pending;    /* a copy is queued, and wait_for_copies() has not been called since */
} region_pieces;

static ashlar_status pieces_init(region_pieces *p, ashlar_device *device, ashlar_stream stream,
                                 size_t most) {
    *p = (region_pieces){
        .device = device,
        .stream = stream,
        .piece_bytes = most < ASHLAR_PIECE_BYTES ? most : ASHLAR_PIECE_BYTES,
    };
    ASHLAR_HOST_NEW(p->buffers, 2 * p->piece_bytes,
                    "checkpoint: no host memory for 2 pieces of %zu bytes", p->piece_bytes);
    return ASHLAR_OK;
}

static ashlar_status wait_for_copies(region_pieces *p) {
    if (p->is_pending) { /* stays true if the wait fails: pieces_finish() tries again */
        ASHLAR_TRY(ashlar_stream_synchronize(p->device, p->stream));
        p->is_pending = false;
    }
    return ASHLAR_OK;
}

/* Wait for the queued copies, and free the buffers, even if the wait fails. */
static ashlar_status pieces_finish(region_pieces *p) {
    const ashlar_status status = wait_for_copies(p);
    ashlar__host_free(p->buffers);
    *p = (region_pieces){0};
    return status;
}

/* Go to another region: no buffer has a piece of it yet. */
static void pieces_open(region_pieces *p, void *region, size_t bytes) {
    p->region = region;
    p->bytes = bytes;
    p->held[0] = p->held[1] = 0;
}

/* The buffer of the piece at `offset`, and how many bytes it has. */
static char *pieces_buffer(const region_pieces *p, size_t offset, size_t *bytes) {
    ASHLAR_CHECK2(offset % ASHLAR_PIECE_BYTES == 0 && offset < p->bytes);
    const size_t left = p->bytes - offset;
    *bytes = left < ASHLAR_PIECE_BYTES ? left : ASHLAR_PIECE_BYTES;
    ASHLAR_CHECK2(*bytes <= p->piece_bytes);
    return p->buffers + offset / ASHLAR_PIECE_BYTES % 2 * p->piece_bytes;
}

/* Queue the copy of a piece to its buffer. An earlier copy to the same buffer may still be queued:
 * it does no harm, since copies run in order. */
static ashlar_status fetch(region_pieces *p, size_t piece) {
    size_t bytes;
    char *const buffer = pieces_buffer(p, piece * ASHLAR_PIECE_BYTES, &bytes);
    p->held[piece % 2] = 0;
    p->is_pending = true; /* a copy that failed may have begun */
    ASHLAR_TRY(ashlar_copy_to_host(p->device, buffer, p->region + piece * ASHLAR_PIECE_BYTES, bytes,
                                   p->stream));
    p->held[piece % 2] = piece + 1;
    return ASHLAR_OK;
}

/* *at: the region's bytes from `offset` to the end of their piece, in host memory, valid until the
 * next call; *bytes: how many. Also queue the copy of the next piece. */
static ashlar_status pieces_read(region_pieces *p, size_t offset, const char **at, size_t *bytes) {
    const size_t piece = offset / ASHLAR_PIECE_BYTES, next = piece + 1;
    const bool is_last = next * ASHLAR_PIECE_BYTES >= p->bytes;
    const bool is_held = p->held[piece % 2] == piece + 1;
    ASHLAR_CHECK2(offset < p->bytes);
    ASHLAR_TRY(is_held ? ASHLAR_OK : fetch(p, piece));
    /* The next piece's copy is queued only behind this wait: if its buffer holds that piece, this
     * one's copy has ended. */
    if (!is_held || is_last || p->held[next % 2] != next + 1) {
        ASHLAR_TRY(wait_for_copies(p));
        ASHLAR_TRY(is_last ? ASHLAR_OK : fetch(p, next));
    }
    size_t piece_bytes;
    const char *buffer = pieces_buffer(p, piece * ASHLAR_PIECE_BYTES, &piece_bytes);
    *at = buffer + offset % ASHLAR_PIECE_BYTES;
    *bytes = piece_bytes - offset % ASHLAR_PIECE_BYTES;
    return ASHLAR_OK;
}

/* Queue the copy of a piece to the device. On return its buffer has been read. */
static ashlar_status pieces_write(region_pieces *p, size_t offset) {
    size_t bytes;
    const char *buffer = pieces_buffer(p, offset, &bytes);
    p->is_pending = true; /* a copy that failed may have begun */
    return ashlar_copy_to_device(p->device, p->region + offset, buffer, bytes, p->stream);
}

/* Make buffers for the pieces of the largest of `regions`. Errors: ASHLAR_EHOSTMEM. */
static ashlar_status take_pieces(region_pieces *pieces, const ashlar_arena *arena, unsigned regions,
                                 ashlar_stream stream) {
    size_t most = 0;
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        const size_t bytes = ashlar_arena_region_bytes(arena, (ashlar_region)i);
        most = (regions & ASHLAR_REGION_BIT(i)) != 0 && bytes > most ? bytes : most;
    }
    return pieces_init(pieces, ashlar_allocator_device(ashlar_arena_allocator(arena)), stream,
                       most);
}

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

/* Enter an entry of the file in l->found, if its region is to be filled. Refuse one that belongs to
 * no tensor or, with ASHLAR_CHECKPOINT_STATE, to a region that the arena lacks. */
static ashlar_status take_entry(loading *l, const ashlar_safetensors_entry *entry) {
    ashlar_region region = ASHLAR_REGION_PARAMETERS;
    size_t tensor = 0;
    ashlar_tensor_info info;
    if (!resolve(l->arena, entry->name, &region, &tensor)) {
        return ashlar__fail(ASHLAR_EFORMAT, "%s: tensor '%s' is none of this model's",
                            l->file->path, entry->name);
    }
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

/* Read `count` of an entry's elements, from `first` on, as elements of `dtype`. */
static ashlar_status read_elements(const ashlar_safetensors *file,
                                   const ashlar_safetensors_entry *entry, size_t first,
                                   size_t count, ashlar_dtype dtype, char *to) {
    enum { PIECE = 2048 };
    double piece[PIECE]; /* wide enough for elements of each type */
    const size_t from_bytes = ashlar_dtype_bytes(entry->dtype), bytes = ashlar_dtype_bytes(dtype);
    if (entry->dtype == dtype) {
        return ashlar__safetensors_read(file, entry, first * bytes, count * bytes, to);
    }
    for (size_t i = 0; i < count; i += PIECE) {
        const size_t some = count - i < PIECE ? count - i : PIECE;
        ASHLAR_TRY(ashlar__safetensors_read(file, entry, (first + i) * from_bytes,
                                            some * from_bytes, piece));
        ashlar__convert(dtype, to + i * bytes, entry->dtype, piece, some);
    }
    return ASHLAR_OK;
}

/* The new contents of a region's bytes [begin, end); those before `done` are in `image` already.
 * All three are multiples of every element's size. */
typedef struct region_part {
    ashlar_region region;
    size_t begin, end, done;
    char *image; /* [end - begin] */
} region_part;

/* Clear the part from `done` to byte `to` of the region: this is padding. */
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
    /* A master that the file lacks is made from its parameter. */
    const ashlar_safetensors_entry *from = entry != NULL ? entry : parameter;
    const ashlar_dtype dtype = ashlar__layout_dtype(info.dtype, layout);
    const size_t item = ashlar_dtype_bytes(dtype), at = info.offset[layout];
    const size_t past = at + info.elements * item, to = past < part->end ? past : part->end;
    ASHLAR_CHECK2(from != NULL); /* check_complete() has refused a file without it */
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

static ashlar_status fill_region(const loading *l, ashlar_region region, region_pieces *pieces) {
    const size_t bytes = ashlar_arena_region_bytes(l->arena, region);
    pieces_open(pieces, ashlar_arena_region(l->arena, region), bytes);
    for (size_t at = 0; at < bytes; at += ASHLAR_PIECE_BYTES) {
        size_t some;
        char *const piece = pieces_buffer(pieces, at, &some);
        ASHLAR_TRY(gather(l, region, at, at + some, piece));
        ASHLAR_TRY(pieces_write(pieces, at));
    }
    return ASHLAR_OK;
}

static ashlar_status fill_regions(const loading *l, ashlar_stream stream) {
    region_pieces pieces;
    ASHLAR_TRY(take_pieces(&pieces, l->arena, l->regions, stream));
    ashlar_status status = ASHLAR_OK;
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT && status == ASHLAR_OK; i++) {
        if ((l->regions & ASHLAR_REGION_BIT(i)) != 0) {
            status = fill_region(l, (ashlar_region)i, &pieces);
        }
    }
    const ashlar_status ended = pieces_finish(&pieces);
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
    ASHLAR_THEN(status, fill_regions(&l, stream));
    ashlar__host_free(l.found);
    return status;
}

/* --- saving --------------------------------------------------------------------------------- */

_Static_assert((int)ASHLAR_RANK_MAX <= (int)ASHLAR_SAFETENSORS_RANK_MAX,
               "every tensor can be written");

/* The regions that exist and that `flags` ask for. Parameters are always asked for. */
static unsigned saved_regions(const ashlar_arena *arena, unsigned flags) {
    unsigned regions = 0;
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        const bool is_asked = i == ASHLAR_REGION_PARAMETERS || (flags & ASHLAR_CHECKPOINT_STATE);
        if (is_asked && prefix_of((ashlar_region)i) != NULL) {
            regions |= ASHLAR_REGION_BIT(i);
        }
    }
    return regions & ashlar_arena_regions(arena);
}

/* A save: the regions, and the entry of each tensor in each of them. */
typedef struct saving {
    const ashlar_arena *arena;
    char *regions[ASHLAR_REGION_COUNT]; /* device; NULL: not saved */
    region_pieces pieces;               /* of the region that is being written */
    ashlar_safetensors_entry *entries;  /* [count] */
    size_t count;
    char *names; /* the entries' names, one after the other */
} saving;

/* Fetch elements for the file: see ashlar_safetensors_source. */
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
        if (s->pieces.region != s->regions[i]) {
            pieces_open(&s->pieces, s->regions[i], region_bytes);
        }
        return pieces_read(&s->pieces, offset, at, bytes);
    }
    ASHLAR_ASSERT(false && "every entry lies in a region");
    return ASHLAR_EINVAL;
}

/* Add the entry of a tensor in a region. Its name is written at *name, which moves past it. */
static void describe(saving *s, ashlar_region region, const ashlar_tensor_info *info, char **name) {
    const char *prefix = prefix_of(region);
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

/* Allocate entries and names for every tensor in every region, which is the most a save needs. */
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
            s->regions[i] = ashlar_arena_region(s->arena, (ashlar_region)i);
        }
    }
    describe_all(s, regions);
    return ashlar__safetensors_write(path, s->entries, s->count, metadata, metadata_count, &source);
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
    ASHLAR_THEN(status, take_pieces(&s.pieces, arena, regions, stream));
    if (status == ASHLAR_OK) {
        status = write_all(&s, path, regions, metadata, metadata_count);
    }
    /* Also after a failure, since a copy that is still queued will write into the buffers. */
    const ashlar_status ended = pieces_finish(&s.pieces);
    status = status == ASHLAR_OK ? ended : status;
    ashlar__host_free(s.entries);
    ashlar__host_free(s.names);
    return status;
}
