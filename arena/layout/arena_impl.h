/*
 * arena_impl.h - what an arena is inside the library (internal).
 *
 * Invariants after commit, with the groups in declaration order and every layout L:
 *   offset[L] of group i + 1  = offset[L] of group i
 *                               + ashlar__layout_bytes(its dtype, its padded, L)
 *   bytes[L]                  = the same sum over all groups
 *   padded                   >= bytes, a multiple of ASHLAR_ARENA_ALIGN
 *   tensor.offset[L]          = its group's offset[L]
 *                               + ashlar__layout_bytes(its dtype, its group_offset, L)
 *   buckets                   cover the groups from the last to the first, without gaps
 */
#ifndef ASHLAR_ARENA_IMPL_H
#define ASHLAR_ARENA_IMPL_H

#include <ashlar/arena.h>

typedef struct ashlar_arena_group {
    size_t bytes; /* declared, in the storage layout */
    ashlar_dtype dtype;
    size_t padded; /* from here on: placed by commit */
    size_t bucket; /* counted from the arena's end */
    size_t offset[ASHLAR_LAYOUT_COUNT];
} ashlar_arena_group;

typedef struct ashlar_arena_entry {
    char *name;              /* owned; what info.name points to */
    ashlar_tensor_info info; /* info.offset is placed by commit */
    size_t group;
    size_t group_offset;
} ashlar_arena_entry;

typedef struct ashlar_arena_binding {
    void **pointer;           /* no two bindings have the same */
    ashlar_tensor_view *view; /* whose data *pointer is; NULL: a pointer alone */
    ashlar_region region;
    size_t tensor;
} ashlar_arena_binding;

struct ashlar_arena {
    ashlar_arena_group *groups;
    size_t group_count, group_capacity;
    ashlar_arena_entry *tensors; /* those of one group are neighbours */
    size_t tensor_count, tensor_capacity;
    size_t *names; /* [name_capacity] open addressing over names: tensor + 1, 0 is free */
    size_t name_capacity;           /* a power of two, above tensor_count * 3 / 2; or 0 */
    ashlar_arena_binding *bindings; /* [binding_capacity / 2] */
    size_t binding_count;           /* <= binding_capacity / 2 */
    size_t *binding_table; /* [binding_capacity] as names: binding + 1, by pointer */
    size_t binding_capacity; /* a power of two, or 0 */
    size_t bucket_bytes; /* asked for */
    size_t world_size;

    /* From commit on. */
    ashlar_allocator *allocator; /* NULL before */
    size_t *order;               /* [tensor_count] tensors by address */
    ashlar_arena_bucket *buckets;
    size_t bucket_count;
    size_t bytes[ASHLAR_LAYOUT_COUNT];
    uint64_t layout_hash; /* of all offsets, types and shapes: equal where layouts are */
    void *regions[ASHLAR_REGION_COUNT]; /* a block of bytes[its layout] each; NULL: not there */
};

/* The layout of a region. Requires a valid region. */
ashlar_layout ashlar__region_layout(ashlar_region region);

/*
 * Storage bytes of `dtype`, whole elements, in another layout. Errors: SIZE_MAX where it does not
 * fit.
 */
size_t ashlar__layout_bytes(ashlar_dtype dtype, size_t storage_bytes, ashlar_layout layout);

/* "F32" and so on; "unknown" for a value that is no type. */
const char *ashlar__dtype_text(ashlar_dtype dtype);

/* What the elements of a tensor of `dtype` are in a layout where it is. */
ashlar_dtype ashlar__layout_dtype(ashlar_dtype dtype, ashlar_layout layout);

/* Whether the layout has a place for tensors of `dtype`. */
static inline bool ashlar__layout_has(ashlar_layout layout, ashlar_dtype dtype) {
    return layout != ASHLAR_LAYOUT_MASTER || ashlar_dtype_is_narrow(dtype);
}

/* Bytes of a tensor in a layout. Requires a valid tensor. */
size_t ashlar__arena_tensor_bytes(const ashlar_arena *arena, ashlar_layout layout, size_t tensor);

/*
 * Take a block for each of `regions` that is missing and not empty: for all of them, or for none.
 * Their contents are undefined. *taken: which they are. Requires a placed arena.
 *
 * Errors: those of ashlar_alloc().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__arena_take(ashlar_arena *arena, ashlar_allocator *allocator,
                                                   ashlar_stream stream, unsigned regions,
                                                   unsigned *taken);
/* Give regions back in stream order. */
void ashlar__arena_drop(ashlar_arena *arena, ashlar_allocator *allocator, unsigned regions);

/* Make room for `extra` more bindings. False: no host memory. */
bool ashlar__arena_reserve_bindings(ashlar_arena *arena, size_t extra);

/* Bind a pointer, in place of its earlier binding. Requires room, and a tensor of that region. */
void ashlar__arena_put_binding(ashlar_arena *arena, const ashlar_arena_binding *binding);

/* A pointer's binding, or NULL. */
ashlar_arena_binding *ashlar__arena_find_binding(const ashlar_arena *arena, void *const *pointer);

/*
 * Describe what of the arena lies at [ptr, ptr + bytes): "40 bytes into tensor x (gradients)".
 * False: nothing does, and the text is "none of the arena's memory".
 */
enum { ASHLAR_WHERE_BYTES = 256 };
bool ashlar__arena_describe(const ashlar_arena *arena, const void *ptr, size_t bytes,
                            char text[static ASHLAR_WHERE_BYTES]);

/*
 * Place every group and tensor: the arithmetic of commit, without device memory. Errors:
 * ASHLAR_EOVERFLOW, ASHLAR_EHOSTMEM; then nothing is placed.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__arena_place(ashlar_arena *arena);
void ashlar__arena_unplace(ashlar_arena *arena); /* the opposite */

/*
 * A run: the longest stretch of neighbours by address with one type and equal options, with the
 * padding between and behind them. Element i of it lies at offset[L] + i * bytes of an element in
 * layout L, in every region, so that a kernel goes over it as over a flat array.
 *
 * Without options that differ inside a group, runs begin at multiples of ASHLAR_ARENA_ALIGN, and
 * have whole lines of it.
 */
typedef struct ashlar_arena_run {
    ashlar_dtype dtype;
    ashlar_tensor_options options; /* rate_scale is not 0 here */
    size_t elements;
    size_t offset[ASHLAR_LAYOUT_COUNT];
    size_t first, count; /* tensors order[first] .. order[first + count - 1] */
} ashlar_arena_run;

/*
 * Write the runs in address order; together they are the whole arena. Requires a committed arena
 * and room for a run of each tensor. Returns their number.
 */
size_t ashlar__arena_runs(const ashlar_arena *arena, ashlar_arena_run *runs);

#endif /* ASHLAR_ARENA_IMPL_H */
