/* checkpoint.c - fills an arena from a file's tensors, found by their names, and saves it. */
#include <stdarg.h>
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

/* The regions that exist and that `flags` ask for. Parameters are always asked for. */
static unsigned saved_regions(const ashlar_arena *arena, unsigned flags) {
    unsigned regions = 0;
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        const bool is_asked = i == ASHLAR_REGION_PARAMETERS || (flags & ASHLAR_CHECKPOINT_STATE);
        if (is_asked && prefix_of((ashlar_region)i) != NULL) {
            regions |= ASHLAR_REGION_BIT(i);
        }
    }
    return regions & ashlar__arena_regions(arena);
}

enum { MISFIT_BYTES = 480 };

/* One load: the file's tensor for each region and tensor of the arena. */
typedef struct loading {
    ashlar_arena *arena;
    const ashlar_checkpoint *file;
    ashlar_load_options options;
    unsigned regions;                       /* to be filled */
    size_t count;                           /* tensors of the arena */
    const ashlar_checkpoint_tensor **found; /* [REGION_COUNT, count]; NULL: not in the file */
    bool keeps[ASHLAR_REGION_COUNT];        /* some of the region's tensors keep their values */
    ashlar_load_report report;
    ashlar_region missing_region; /* of report.missing.first */
    char misfit[MISFIT_BYTES];    /* how the first tensor of another shape or type differs */
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
        const size_t bytes = ashlar__arena_region_bytes(arena, (ashlar_region)i);
        most = (regions & ASHLAR_REGION_BIT(i)) != 0 && bytes > most ? bytes : most;
    }
    return pieces_init(pieces, ashlar_allocator_device(arena->allocator), stream, most);
}

/* --- which tensor of the arena one of the file is ------------------------------------------- */

/* The type of that name; ASHLAR_DTYPE_COUNT: none that an arena has. */
static ashlar_dtype dtype_of(const char *name) {
    int i = 0;
    while (i < ASHLAR_DTYPE_COUNT && strcmp(name, ashlar_dtype_name((ashlar_dtype)i)) != 0) {
        i++;
    }
    return (ashlar_dtype)i;
}

enum { NAME_BYTES = 1024 }; /* of a name that a rename makes, with its end */

/* The arena's name for a name in the file; NULL: left out. It may lie in `room`. */
static const char *map_name(const ashlar_load_options *o, const char *name,
                            char room[static NAME_BYTES]) {
    if (o->map != NULL) {
        return o->map(o->user, name);
    }
    for (size_t i = 0; i < o->rename_count; i++) {
        const char *key = o->renames[i].key, *value = o->renames[i].value;
        const size_t bytes = strlen(key);
        const bool is_prefix = bytes == 0 || key[bytes - 1] == '.';
        if (is_prefix ? strncmp(name, key, bytes) == 0 : strcmp(name, key) == 0) {
            (void)snprintf(room, NAME_BYTES, "%s%s", value != NULL ? value : "", name + bytes);
            return value != NULL ? room : NULL;
        }
    }
    return name;
}

const ashlar_checkpoint_tensor *ashlar_checkpoint_find(const ashlar_checkpoint *file,
                                                       const ashlar_load_options *given,
                                                       const char *name) {
    const ashlar_load_options options = ASHLAR_OR_ZERO(ashlar_load_options, given);
    size_t count;
    const ashlar_checkpoint_tensor *tensors = ashlar_checkpoint_tensors(file, &count);
    for (size_t i = 0; i < count; i++) {
        char room[NAME_BYTES];
        const char *mapped = map_name(&options, tensors[i].name, room);
        if (mapped != NULL && strcmp(mapped, name) == 0) {
            return &tensors[i];
        }
    }
    return NULL;
}

static void note(ashlar_load_count *kind, const char *name) {
    kind->first = kind->count++ == 0 ? name : kind->first;
}

/* Append to a text, as far as it has room. */
static void append(char text[static MISFIT_BYTES], const char *format, ...) ASHLAR_PRINTF(2, 3);
static void append(char text[static MISFIT_BYTES], const char *format, ...) {
    const size_t at = strlen(text);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text + at, MISFIT_BYTES - at, format, args);
    va_end(args);
}

/* Append a type and a shape like this: "F32 [2, 3]". */
static void append_shape(char text[static MISFIT_BYTES], const char *dtype, size_t rank,
                         const size_t *shape) {
    append(text, "%.40s [", dtype);
    for (size_t i = 0; i < rank; i++) {
        append(text, "%s%zu", i > 0 ? ", " : "", shape[i]);
    }
    append(text, "]");
}

/* Whether a load fills a tensor's part of a region. */
static bool has_place(const loading *l, ashlar_region region, const ashlar_tensor_info *info) {
    return (l->regions & ASHLAR_REGION_BIT(region)) != 0 &&
           ashlar__layout_has(ashlar__region_layout(region), info->dtype);
}

/* Note that a tensor of the file is for this part of a region. */
static ashlar_status take_place(loading *l, const ashlar_checkpoint_tensor *from,
                                ashlar_region region, size_t tensor) {
    const ashlar_checkpoint_tensor **place = &l->found[region * l->count + tensor];
    ashlar_tensor_info info;
    ashlar_arena_tensor(l->arena, tensor, &info);
    if (has_place(l, region, &info)) {
        ASHLAR_FAIL_IF(*place != NULL, ASHLAR_EINVAL,
                       "%s: '%s' and '%s' are both mapped to '%s'; leave out one of them",
                       ashlar__safetensors_path(l->file), (*place)->name, from->name, info.name);
        *place = from;
    } else if ((l->options.flags & ASHLAR_CHECKPOINT_STATE) != 0) {
        note(&l->report.left_over, from->name);
    }
    return ASHLAR_OK;
}

/* Find the place that a tensor of the file has by its name. A name that could mean two regions
 * means the parameters. */
static ashlar_status take_tensor(loading *l, const ashlar_checkpoint_tensor *from) {
    char room[NAME_BYTES];
    bool is_left_out = false;
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        const char *prefix = prefix_of((ashlar_region)i);
        if (prefix != NULL && strncmp(from->name, prefix, strlen(prefix)) == 0) {
            size_t tensor = 0;
            const char *name = map_name(&l->options, from->name + strlen(prefix), room);
            if (name != NULL && ashlar_arena_find(l->arena, name, &tensor) == ASHLAR_OK) {
                return take_place(l, from, (ashlar_region)i, tensor);
            }
            is_left_out = is_left_out || name == NULL;
        }
    }
    if (!is_left_out) {
        note(&l->report.left_over, from->name);
    }
    return ASHLAR_OK;
}

/* Why a tensor of the file, or none, does not fit: the count of those like it; NULL: it fits. */
static ashlar_load_count *misfit_of(loading *l, const ashlar_checkpoint_tensor *from,
                                    ashlar_region region, const ashlar_tensor_info *info,
                                    ashlar_dtype dtype) {
    if (from == NULL) {
        return &l->report.missing;
    }
    if (from->rank != info->rank ||
        memcmp(from->shape, info->shape, info->rank * sizeof info->shape[0]) != 0) {
        return &l->report.other_shape;
    }
    const ashlar_dtype has = dtype_of(from->dtype);
    const bool may_convert = region == ASHLAR_REGION_PARAMETERS && has != ASHLAR_DTYPE_COUNT;
    l->report.converted += has != dtype && may_convert;
    return has == dtype || may_convert ? NULL : &l->report.other_type;
}

/* Decide whether a tensor's part of a region is filled, or keeps its values. The parameters are
 * settled first: a master is made of its parameter, or kept with it. */
static void settle(loading *l, ashlar_region region, size_t tensor) {
    ashlar_tensor_info info;
    const ashlar_checkpoint_tensor **place = &l->found[region * l->count + tensor], *from = *place;
    const bool has_parameter = l->found[ASHLAR_REGION_PARAMETERS * l->count + tensor] != NULL;
    ashlar_arena_tensor(l->arena, tensor, &info);
    if (!has_place(l, region, &info)) {
        return;
    }
    if (region == ASHLAR_REGION_MASTER && (from == NULL || !has_parameter)) {
        *place = NULL;
        l->keeps[region] = l->keeps[region] || !has_parameter;
        return;
    }
    const ashlar_dtype dtype = ashlar__layout_dtype(info.dtype, ashlar__region_layout(region));
    ashlar_load_count *kind = misfit_of(l, from, region, &info, dtype);
    if (kind == NULL) {
        l->report.loaded++;
        return;
    }
    *place = NULL;
    l->keeps[region] = true;
    note(kind, from != NULL ? from->name : info.name);
    if (from == NULL && kind->count == 1) {
        l->missing_region = region;
    } else if (from != NULL && l->misfit[0] == '\0') {
        append(l->misfit, "; '%.80s' is ", from->name);
        append_shape(l->misfit, from->dtype, from->rank, from->shape);
        append(l->misfit, " there, and ");
        append_shape(l->misfit, ashlar_dtype_name(dtype), info.rank, info.shape);
        append(l->misfit, " in this model");
    }
}

/* Fail if something does not fit, and say what. */
static ashlar_status check_fit(const loading *l) {
    const struct {
        const char *text, *prefix;
        ashlar_load_count kind;
    } kinds[] = {
        {"not in the file", prefix_of(l->missing_region), l->report.missing},
        {"not of this model", "", l->report.left_over},
        {"of another shape", "", l->report.other_shape},
        {"of another type", "", l->report.other_type},
    };
    char text[MISFIT_BYTES] = "";
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (kinds[i].kind.count > 0) {
            append(text, "%s%s: '%s%.80s'", text[0] != '\0' ? "; " : "", kinds[i].text,
                   kinds[i].prefix, kinds[i].kind.first);
        }
        if (kinds[i].kind.count > 1) {
            append(text, " and %zu more", kinds[i].kind.count - 1);
        }
    }
    ASHLAR_FAIL_IF(text[0] != '\0', ASHLAR_EFORMAT, "%s: %s%s; %s",
                   ashlar__safetensors_path(l->file), text, l->misfit,
                   (l->options.flags & ASHLAR_CHECKPOINT_STATE) != 0
                       ? "to go on training, it must hold the optimizer's state"
                       : "rename or leave out tensors, or load a part");
    return ASHLAR_OK;
}

static ashlar_status find_tensors(loading *l) {
    size_t count;
    const ashlar_checkpoint_tensor *tensors = ashlar_checkpoint_tensors(l->file, &count);
    for (size_t i = 0; i < count; i++) {
        ASHLAR_TRY(take_tensor(l, &tensors[i]));
    }
    for (unsigned region = 0; region < ASHLAR_REGION_COUNT; region++) {
        for (size_t i = 0; i < l->count; i++) {
            settle(l, (ashlar_region)region, i);
        }
    }
    return ASHLAR_OK;
}

/* --- filling -------------------------------------------------------------------------------- */

/* Read `count` of a tensor's elements, from `first` on, as elements of `dtype`. */
static ashlar_status read_elements(const ashlar_checkpoint *file,
                                   const ashlar_checkpoint_tensor *from, size_t first, size_t count,
                                   ashlar_dtype dtype, char *to) {
    enum { PIECE = 2048 };
    double piece[PIECE]; /* of the widest type */
    const ashlar_dtype has = dtype_of(from->dtype);
    const size_t from_bytes = ashlar_dtype_bytes(has), bytes = ashlar_dtype_bytes(dtype);
    if (has == dtype) {
        return ashlar__safetensors_read(file, from, first * bytes, count * bytes, to);
    }
    for (size_t i = 0; i < count; i += PIECE) {
        const size_t some = count - i < PIECE ? count - i : PIECE;
        ASHLAR_TRY(ashlar__safetensors_read(file, from, (first + i) * from_bytes, some * from_bytes,
                                            piece));
        ashlar__convert(dtype, to + i * bytes, has, piece, some);
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
    const ashlar_checkpoint_tensor *from = l->found[part->region * l->count + i];
    if (from == NULL && part->region == ASHLAR_REGION_MASTER) {
        from = l->found[ASHLAR_REGION_PARAMETERS * l->count + i];
    }
    const ashlar_dtype dtype = ashlar__layout_dtype(info.dtype, layout);
    const size_t item = ashlar_dtype_bytes(dtype), at = info.offset[layout];
    const size_t past = at + info.elements * item, to = past < part->end ? past : part->end;
    clear_to(part, at);
    if (part->done >= to) {
        return ASHLAR_OK;
    }
    ASHLAR_CHECK2(part->done >= at && (part->done - at) % item == 0);
    const size_t first = (part->done - at) / item, count = (to - part->done) / item;
    char *const image = part->image + (part->done - part->begin);
    part->done = to;
    return from == NULL ? ASHLAR_OK /* the image has its values */
                        : read_elements(l->file, from, first, count, dtype, image);
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
    const size_t bytes = ashlar__arena_region_bytes(l->arena, region);
    pieces_open(pieces, ashlar_arena_region(l->arena, region), bytes);
    for (size_t at = 0; at < bytes; at += ASHLAR_PIECE_BYTES) {
        size_t some;
        char *const piece = pieces_buffer(pieces, at, &some);
        if (l->keeps[region]) {
            ASHLAR_TRY(fetch(pieces, at / ASHLAR_PIECE_BYTES));
            ASHLAR_TRY(wait_for_copies(pieces));
        }
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

static ashlar_status load(loading *l, ashlar_stream stream, ashlar_load_report *report) {
    ASHLAR_HOST_NEW(l->found, l->count * ASHLAR_REGION_COUNT, "%s: no host memory for %zu tensors",
                    ashlar__safetensors_path(l->file), l->count);
    ASHLAR_TRY(find_tensors(l));
    const bool is_partial = (l->options.flags & ASHLAR_CHECKPOINT_PARTIAL) != 0;
    const ashlar_status status = is_partial ? ASHLAR_OK : check_fit(l);
    if (status == ASHLAR_OK) {
        ASHLAR_TRY(fill_regions(l, stream));
    }
    if (report != NULL) {
        *report = l->report;
    }
    return status;
}

ashlar_status ashlar_checkpoint_load(ashlar_arena *arena, const ashlar_checkpoint *file,
                                     const ashlar_load_options *options, ashlar_stream stream,
                                     ashlar_load_report *report) {
    loading l = {
        .arena = arena,
        .file = file,
        .options = ASHLAR_OR_ZERO(ashlar_load_options, options),
        .count = arena->tensor_count,
    };
    const unsigned all = ASHLAR_CHECKPOINT_STATE | ASHLAR_CHECKPOINT_PARTIAL;
    if (ashlar__arena_regions(arena) == 0 || (l.options.flags & ~all) != 0) {
        return ashlar__fail(ASHLAR_EINVAL, "checkpoint: %s",
                            ashlar__arena_regions(arena) == 0 ? "the arena is not committed"
                                                              : "no flags for a load");
    }
    l.regions = saved_regions(arena, l.options.flags) |
                (ashlar__arena_regions(arena) & ASHLAR_REGION_BIT(ASHLAR_REGION_MASTER));
    const ashlar_status status = load(&l, stream, report);
    ashlar__host_free(l.found);
    return status;
}

/* --- saving --------------------------------------------------------------------------------- */

/* One save: the regions, and a description of each tensor in them. */
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
        const size_t region_bytes = ashlar__arena_region_bytes(s->arena, (ashlar_region)i);
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
    ASHLAR_CHECK2(s->count < s->arena->tensor_count * ASHLAR_REGION_COUNT);
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
    const size_t count = s->arena->tensor_count;
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
        for (size_t i = 0; i < s->arena->tensor_count; i++) {
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
    if (ashlar__arena_regions(arena) == 0 || (flags & ~(unsigned)ASHLAR_CHECKPOINT_STATE) != 0) {
        return ashlar__fail(ASHLAR_EINVAL, "checkpoint: %s",
                            ashlar__arena_regions(arena) == 0 ? "the arena is not committed"
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
