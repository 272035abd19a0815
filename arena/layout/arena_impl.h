/* arena_impl.h - the structures of an arena, and functions on its layout, regions, bindings and
 * runs for other files of the library (internal).
 *
 * Invariants after commit, for groups in declaration order and for every layout L:
 *   offset[L] of group i + 1  = offset[L] of group i
 *                               + layout_bytes(`dtype` of group i, `padded` of group i, L)
 *   bytes[L] of the arena     = the same sum over all groups
 *   padded of a group        >= bytes of the group; a multiple of ASHLAR_ARENA_ALIGN
 *   offset[L] of a tensor     = offset[L] of its group
 *                               + layout_bytes(its dtype, its group_offset, L)
 *   buckets                   cover the groups from the last to the first, without gaps */
#ifndef ASHLAR_ARENA_IMPL_H
#define ASHLAR_ARENA_IMPL_H

#include <ashlar/arena.h>

typedef struct ashlar_arena_group {
    size_t bytes; /* as declared, in the storage layout */
    ashlar_dtype dtype;
    size_t padded; /* bytes with padding; commit sets this field and those below */
    size_t bucket; /* index of its bucket; bucket 0 has the highest addresses */
    size_t offset[ASHLAR_LAYOUT_COUNT];
} ashlar_arena_group;

typedef struct ashlar_arena_entry {
    char *name;              /* owned; info.name points to it */
    ashlar_tensor_info info; /* commit sets info.offset */
    size_t group;
    size_t group_offset;
    bool is_apart; /* it is a run of its own: it was frozen once, and may have missed steps */
} ashlar_arena_entry;

typedef struct ashlar_arena_binding {
    void **pointer;           /* no two bindings have the same pointer */
    ashlar_tensor_view *view; /* the view whose `data` is *pointer; NULL: no view */
    ashlar_region region;
    size_t tensor;
} ashlar_arena_binding;

struct ashlar_arena {
    ashlar_arena_group *groups;
    size_t group_count, group_capacity;
    ashlar_arena_entry *tensors; /* the tensors of a group follow each other */
    size_t tensor_count, tensor_capacity;
    size_t elements; /* of all tensors */
    size_t *names; /* [name_capacity] hash table by name, open addressing: tensor + 1; 0: free */
    size_t name_capacity;           /* a power of two, above tensor_count * 3 / 2; or 0 */
    ashlar_arena_binding *bindings; /* [binding_capacity / 2] */
    size_t binding_count;           /* <= binding_capacity / 2 */
    size_t *binding_table;   /* [binding_capacity] hash table by pointer: binding + 1; 0: free */
    size_t binding_capacity; /* a power of two, or 0 */
    size_t bucket_bytes;     /* the size that the caller asked for */
    uint64_t option_changes; /* so often tensors got other options */
    size_t world_size;
    uint64_t seed; /* of what a model of this arena draws next; a training's file has it */

    /* Set by commit: */
    ashlar_allocator *allocator; /* NULL before commit */
    size_t *order;               /* [tensor_count] the tensors in address order */
    ashlar_arena_bucket *buckets;
    size_t bucket_count;
    size_t bytes[ASHLAR_LAYOUT_COUNT];
    uint64_t layout_hash;               /* of ashlar__arena_hash(): equal layouts have equal ones */
    void *regions[ASHLAR_REGION_COUNT]; /* blocks of bytes[layout of the region]; NULL: none */

    /* Memory of the program's for regions, by ashlar_arena_lend(); NULL: a block is taken. */
    void *lent[ASHLAR_REGION_COUNT];
    size_t lent_bytes[ASHLAR_REGION_COUNT];

    unsigned on_host; /* a set of ASHLAR_REGION_BIT()s: page-locked memory, for an optimizer */
};

/* "parameters" and so on; NULL if the value is not a region. */
const char *ashlar__region_text(ashlar_region region);

/* The regions that are there, a set of ASHLAR_REGION_BIT()s; 0 before commit. */
unsigned ashlar__arena_regions(const ashlar_arena *arena);

/* A region's size in bytes, with padding; 0 before commit, and if the value is not a region. */
size_t ashlar__arena_region_bytes(const ashlar_arena *arena, ashlar_region region);

/* Whether a region that is there is a block of the allocator's, and not the program's memory. */
bool ashlar__arena_owns(const ashlar_arena *arena, ashlar_region region);

/* ashlar_arena_extend(), with page-locked memory for regions that nobody has lent memory for. */
ASHLAR_MUST_CHECK ashlar_status ashlar__arena_extend_on_host(ashlar_arena *arena,
                                                             ashlar_stream stream,
                                                             unsigned regions);

/* The layout of a region. The region must be valid. */
ashlar_layout ashlar__region_layout(ashlar_region region);

/* The element type that a tensor of `dtype` has in `layout`, which must have a place for it. */
ashlar_dtype ashlar__layout_dtype(ashlar_dtype dtype, ashlar_layout layout);

static inline bool ashlar__layout_has(ashlar_layout layout, ashlar_dtype dtype) {
    return layout != ASHLAR_LAYOUT_MASTER || ashlar_dtype_is_narrow(dtype);
}

/* The bytes of a tensor in a layout. `tensor` must be a valid index. */
size_t ashlar__arena_tensor_bytes(const ashlar_arena *arena, ashlar_layout layout, size_t tensor);

/* Allocate a block, of undefined contents, for each of `regions` that has none yet and is not
 * empty; *taken: these regions. On failure no block is allocated. ashlar__arena_place() must have
 * been called. Errors: those of ashlar_alloc(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__arena_take(ashlar_arena *arena, ashlar_allocator *allocator,
                                                   ashlar_stream stream, unsigned regions,
                                                   unsigned *taken);

/* Make room for `extra` more bindings. False: no host memory. */
bool ashlar__arena_reserve_bindings(ashlar_arena *arena, size_t extra);

/* Bind a pointer; an earlier binding of the same pointer is replaced. There must be room for one
 * more binding, and the region must have a place for the tensor. */
void ashlar__arena_put_binding(ashlar_arena *arena, const ashlar_arena_binding *binding);

/* A pointer's binding, or NULL. */
ashlar_arena_binding *ashlar__arena_find_binding(const ashlar_arena *arena, void *const *pointer);

/* Whether a part of the arena lies at [ptr, ptr + bytes). */
bool ashlar__arena_has(const ashlar_arena *arena, const void *ptr, size_t bytes);

/* Say in `text` what of the arena lies at `ptr`, or in the `bytes` bytes from there on: for example
 * "40 bytes into tensor x (gradients)", or "none of the arena's memory". */
enum { ASHLAR_WHERE_BYTES = 256 };
void ashlar__arena_describe(const ashlar_arena *arena, const void *ptr, size_t bytes,
                            char text[static ASHLAR_WHERE_BYTES]);

/* A hash of all offsets, types and shapes. ashlar__arena_place() must have been called. */
uint64_t ashlar__arena_hash(const ashlar_arena *arena);

/* Compute the offsets of every group and tensor: commit's arithmetic, without device memory.
 * Errors: ASHLAR_EOVERFLOW, ASHLAR_EHOSTMEM; nothing is placed then. */
ASHLAR_MUST_CHECK ashlar_status ashlar__arena_place(ashlar_arena *arena);
void ashlar__arena_unplace(ashlar_arena *arena); /* undoes ashlar__arena_place() */

/* A run: tensors that follow each other in address order and have the same type and options, with
 * the padding between and behind them; or one tensor that is apart. In every region a kernel can
 * treat a run as a flat array. Its begin and its size are multiples of ASHLAR_ARENA_ALIGN, unless
 * options differ in a group. */
typedef struct ashlar_arena_run {
    ashlar_dtype dtype;
    ashlar_tensor_options options; /* no scale is 0: a declared 0 has become 1 */
    size_t elements;
    size_t offset[ASHLAR_LAYOUT_COUNT];
    size_t first, count; /* tensors order[first] .. order[first + count - 1] */
    bool is_matrix;      /* a tensor of rank 2 that is not is_elementwise, without any padding */
} ashlar_arena_run;

/* Write the runs in address order; together they cover the whole arena, but for the padding at
 * matrices. Returns their number. ashlar__arena_place() must have been called, and `runs` have room
 * for one run per tensor. has_matrices: each matrix is a run of its own. */
size_t ashlar__arena_runs(const ashlar_arena *arena, bool has_matrices, ashlar_arena_run *runs);

#endif /* ASHLAR_ARENA_IMPL_H */
