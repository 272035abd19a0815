/*
 * arena.h - all parameters of a model in one contiguous range, with gradients and optimizer
 * moments in mirrored ranges of the same offsets.
 *
 * Use: create, add every tensor, commit once, then bind or view. Layout is fixed by commit.
 *
 *   group    what is placed at a multiple of 256 B: a single tensor, or several that must lie
 *            side by side in an order of their own (one RNN stack in cuDNN's packed order)
 *   region   one range with the layout: parameters, gradients, first and second moment
 *
 * Padding between groups is zero from commit on and nothing here ever writes it, so that a norm,
 * a fill, a copy or an update may run over a whole region as one flat array.
 *
 * Threads: one thread at a time, unless a function says otherwise.
 */
#ifndef ASHLAR_ARENA_H
#define ASHLAR_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/allocator.h>
#include <ashlar/dtype.h>
#include <ashlar/export.h>
#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

typedef struct ashlar_arena ashlar_arena;

enum {
    ASHLAR_ARENA_ALIGN = 256, /* bytes, of every group */
    ASHLAR_RANK_MAX = 4,
};

/* Name, text, tag of the region's block. */
#define ASHLAR_REGION_MAP(X)                     \
    X(PARAMETERS, "parameters", WEIGHTS)         \
    X(GRADIENTS, "gradients", GRADIENTS)         \
    X(MOMENT1, "first moments", MOMENTS)         \
    X(MOMENT2, "second moments", MOMENTS)

#define ASHLAR_REGION_ENUM(name, text, tag) ASHLAR_REGION_##name,
typedef enum ashlar_region {
    ASHLAR_REGION_MAP(ASHLAR_REGION_ENUM)
    ASHLAR_REGION_COUNT
} ashlar_region;

/* One tensor of a group, as declared. */
typedef struct ashlar_tensor_spec {
    const char *name;              /* unique in the arena; copied */
    ashlar_dtype dtype;
    size_t rank;                   /* 1 .. ASHLAR_RANK_MAX */
    size_t shape[ASHLAR_RANK_MAX]; /* elements, each at least 1 */
    size_t group_offset;           /* bytes from the group's start; 0 for a tensor of its own */
} ashlar_tensor_spec;

/* One tensor, as placed. */
typedef struct ashlar_tensor_info {
    const char *name; /* the arena's */
    ashlar_dtype dtype;
    size_t rank;
    size_t shape[ASHLAR_RANK_MAX];
    size_t elements;
    size_t bytes;
    size_t offset; /* bytes from the start of every region; 0 before commit */
} ashlar_tensor_info;

/* Ownership: *out is the caller's. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_create(ashlar_arena **out);

/* Return the regions to the allocator they came from, in stream order. NULL is allowed. */
ASHLAR_API void ashlar_arena_destroy(ashlar_arena *arena);

/*
 * Declare one tensor, a group of its own. *tensor, which may be NULL, gets its number from 0.
 *
 * Errors: ASHLAR_EINVAL (after commit; a name used before; rank, shape or type), ASHLAR_EOVERFLOW,
 *         ASHLAR_EHOSTMEM. Nothing is added then.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_add(ashlar_arena *arena, const char *name,
                                                            ashlar_dtype dtype, size_t rank,
                                                            const size_t *shape, size_t *tensor);

/*
 * Declare tensors that lie at given offsets of one group. *first gets the first one's number; the
 * others follow in order.
 *
 * bytes   the group's size; every tensor must lie inside it, at a multiple of its element size,
 *         and no two may overlap
 *
 * Errors: as ashlar_arena_add(). All are added, or none.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_add_group(ashlar_arena *arena, size_t bytes,
                                                                  const ashlar_tensor_spec *specs,
                                                                  size_t count, size_t *first);

/*
 * Lay everything out, take the first `region_count` regions from `allocator`, one block each, and
 * fill them with zeros on `stream`.
 *
 * region_count   1 (parameters only, for inference) .. ASHLAR_REGION_COUNT
 *
 * Errors: ASHLAR_EINVAL (nothing declared, committed before, region_count), ASHLAR_EOVERFLOW and
 *         those of ashlar_alloc() and ashlar_fill(). Nothing is committed then.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_commit(ashlar_arena *arena,
                                                               ashlar_allocator *allocator,
                                                               ashlar_stream stream,
                                                               size_t region_count);

ASHLAR_API size_t ashlar_arena_tensor_count(const ashlar_arena *arena);
ASHLAR_API size_t ashlar_arena_elements(const ashlar_arena *arena); /* without padding */
ASHLAR_API size_t ashlar_arena_region_bytes(const ashlar_arena *arena); /* with it; after commit */
ASHLAR_API size_t ashlar_arena_region_count(const ashlar_arena *arena); /* 0 before commit */
ASHLAR_API ashlar_allocator *ashlar_arena_allocator(const ashlar_arena *arena); /* after commit */

/* Requires tensor < ashlar_arena_tensor_count(). info->name lives as long as the arena. */
ASHLAR_API void ashlar_arena_tensor(const ashlar_arena *arena, size_t tensor,
                                    ashlar_tensor_info *info);

/*
 * Device address of a region, or of one tensor in it. NULL for a region or tensor that is not
 * there, and before commit.
 */
ASHLAR_API void *ashlar_arena_region(const ashlar_arena *arena, ashlar_region region);
ASHLAR_API void *ashlar_arena_view(const ashlar_arena *arena, ashlar_region region, size_t tensor);

/*
 * Write the view into *pointer and watch it: ashlar_arena_check() says when the program has let
 * *pointer point elsewhere.
 *
 * Ownership: *pointer stays the caller's and must live as long as the arena.
 * Errors:    ASHLAR_EINVAL (no such region or tensor, not committed), ASHLAR_EHOSTMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_bind(ashlar_arena *arena,
                                                             ashlar_region region, size_t tensor,
                                                             void **pointer);

/*
 * Check that every bound pointer still points where its tensor was placed, that tensors still lie
 * side by side, and that each region is still one live block of the allocator.
 *
 * Errors: ASHLAR_EMOVED, naming the first tensor or region that is not; ASHLAR_EINVAL (not
 *         committed). Cost: one comparison per pointer and tensor, a look-up per region.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_check(const ashlar_arena *arena);

ASHLAR_END_DECLS

#endif /* ASHLAR_ARENA_H */
