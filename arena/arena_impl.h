/*
 * arena_impl.h - what an arena is inside the library (internal).
 *
 * Invariants after commit:
 *   every group's offset is a multiple of ASHLAR_ARENA_ALIGN, and groups do not overlap
 *   tensor.offset == its group's offset + its offset in the group
 *   region_bytes is a multiple of ASHLAR_ARENA_ALIGN and holds every group
 */
#ifndef ASHLAR_ARENA_IMPL_H
#define ASHLAR_ARENA_IMPL_H

#include <ashlar/arena.h>

typedef struct ashlar_arena_group {
    size_t bytes;  /* declared */
    size_t offset; /* placed by commit */
} ashlar_arena_group;

typedef struct ashlar_arena_entry {
    char *name;              /* owned; what info.name points to */
    ashlar_tensor_info info; /* info.offset is placed by commit */
    size_t group;
    size_t group_offset;
} ashlar_arena_entry;

typedef struct ashlar_arena_binding {
    void **pointer;
    ashlar_region region;
    size_t tensor;
} ashlar_arena_binding;

struct ashlar_arena {
    ashlar_arena_group *groups;
    size_t group_count;
    ashlar_arena_entry *tensors;  /* those of one group are neighbours */
    size_t tensor_count;
    ashlar_arena_binding *bindings;
    size_t binding_count;
    ashlar_allocator *allocator; /* NULL before commit */
    size_t region_bytes;
    size_t region_count;
    void *regions[ASHLAR_REGION_COUNT]; /* region_count blocks of region_bytes each */
};

/*
 * Place every group and tensor: the arithmetic of commit, without memory. *total is the bytes of a
 * region. Errors: ASHLAR_EOVERFLOW; then nothing is placed.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_arena_place(ashlar_arena *arena, size_t *total);

#endif /* ASHLAR_ARENA_IMPL_H */
