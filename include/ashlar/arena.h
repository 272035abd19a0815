/*
 * arena.h - all parameters of a model in one contiguous range, with gradients and optimizer
 * moments in mirrored ranges.
 *
 * Use: create, add every tensor, commit once, then bind or view. Layout is fixed by commit.
 *
 *   group    a single tensor, or several of one type that lie side by side in an order of their
 *            own, such as an RNN stack in cuDNN's packed order; begins at a multiple of 256 B
 *   region   one range with the layout: parameters, gradients, first or second moments, masters
 *   bucket   neighbouring groups of one type, for one collective; see ashlar_arena_set_buckets()
 *
 * Parameters and gradients have their tensor's type. Moments are F32, or F64 for an F64 tensor, and
 * the master region holds the F32 values of F16 and BF16 parameters and nothing else. So every
 * region has one of three layouts, which differ only where there are narrow tensors:
 *
 *     group:   padded elements = bytes rounded up to 256 B (and its bucket's end) / element bytes
 *     storage: offset = sum of padded elements * element bytes of the groups before
 *     state:   offset = sum of padded elements * (8 for F64, else 4)
 *     master:  offset = sum of padded elements * 4 over the F16 and BF16 groups
 *
 * Padding between groups is zero from commit on, and no function here writes to it, so that a norm,
 * a fill, a copy or an update may treat a whole region as one flat array.
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

/* Which offsets a region has. */
typedef enum ashlar_layout {
    ASHLAR_LAYOUT_STORAGE,
    ASHLAR_LAYOUT_STATE,
    ASHLAR_LAYOUT_MASTER,
    ASHLAR_LAYOUT_COUNT
} ashlar_layout;

/* Name, text, tag of the region's block, layout. */
#define ASHLAR_REGION_MAP(X)                              \
    X(PARAMETERS, "parameters", WEIGHTS, STORAGE)         \
    X(GRADIENTS, "gradients", GRADIENTS, STORAGE)         \
    X(MOMENT1, "first moments", MOMENTS, STATE)           \
    X(MOMENT2, "second moments", MOMENTS, STATE)          \
    X(MASTER, "masters", WEIGHTS, MASTER)

#define ASHLAR_REGION_ENUM(name, text, tag, layout) ASHLAR_REGION_##name,
typedef enum ashlar_region {
    ASHLAR_REGION_MAP(ASHLAR_REGION_ENUM)
    ASHLAR_REGION_COUNT
} ashlar_region;

/* Sets of regions: one bit each. */
#define ASHLAR_REGION_BIT(region) (1u << (region))
#define ASHLAR_REGIONS_INFERENCE ASHLAR_REGION_BIT(ASHLAR_REGION_PARAMETERS)
#define ASHLAR_REGIONS_ALL (ASHLAR_REGION_BIT(ASHLAR_REGION_COUNT) - 1)

/* How an optimizer treats a tensor; all zero is the usual way. */
typedef struct ashlar_tensor_options {
    bool is_frozen;    /* never updated, and its gradient is not part of the norm */
    bool has_no_decay; /* weight decay does not apply */
    double rate_scale; /* times the learning rate, above 0; 0 stands for 1 */
} ashlar_tensor_options;

/* One tensor of a group, as declared. All of a group have one type. */
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
    size_t offset[ASHLAR_LAYOUT_COUNT]; /* bytes from the region's start; 0 before commit, and in
                                           ASHLAR_LAYOUT_MASTER of a tensor that has no master */
    ashlar_tensor_options options;
} ashlar_tensor_info;

/* Make an arena without tensors. Ownership: the caller owns *out. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_create(ashlar_arena **out);

/* Return the regions to the allocator they came from, in stream order. NULL is allowed. */
ASHLAR_API void ashlar_arena_destroy(ashlar_arena *arena);

/*
 * Declare one tensor, a group of its own. *tensor gets its number, from 0; NULL is allowed.
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
 * Choose how optimizers treat `tensor`. An optimizer keeps the options of the time it was made.
 *
 * Errors: ASHLAR_EINVAL (no such tensor; rate_scale negative or not finite).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_set_options(
    ashlar_arena *arena, size_t tensor, const ashlar_tensor_options *options);

/*
 * Divide the arena into buckets, before commit. By default neighbouring groups of one type are one
 * bucket, and its end is padded to 256 B only.
 *
 * bucket_bytes   a bucket is closed once it has so many bytes, or where the type changes, counted
 *                from the arena's end, where gradients become final first; 1..
 * world_size     every bucket is padded to a multiple of 256 B times this, so that it can be
 *                divided into equal shards; 1..
 *
 * Errors: ASHLAR_EINVAL (after commit, a value of 0).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_set_buckets(ashlar_arena *arena,
                                                                    size_t bucket_bytes,
                                                                    size_t world_size);

/*
 * Lay everything out, take `regions` from `allocator`, one block each, and fill them with zeros on
 * `stream`.
 *
 * regions   a set of ASHLAR_REGION_BIT()s that includes the parameters; without F16 and BF16
 *           tensors there is no master region, and asking for it has no effect
 *
 * Errors: ASHLAR_EINVAL (nothing declared, committed before, regions), ASHLAR_EOVERFLOW,
 *         ASHLAR_EHOSTMEM and those of ashlar_alloc() and ashlar_fill(). Nothing is committed then.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_commit(ashlar_arena *arena,
                                                               ashlar_allocator *allocator,
                                                               ashlar_stream stream,
                                                               unsigned regions);

/*
 * Add regions after commit, filled with zeros on `stream`; those that are there stay as they are.
 *
 * Errors: ASHLAR_EINVAL (not committed, no set of regions), and those of ashlar_alloc() and
 *         ashlar_fill(). None is added then.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_extend(ashlar_arena *arena,
                                                               ashlar_stream stream,
                                                               unsigned regions);

/* Fill a whole region with zeros: one fill. Errors: ASHLAR_EINVAL (it is not there), and those of
 * ashlar_fill(). Stream: queued. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_zero(ashlar_arena *arena,
                                                             ashlar_region region,
                                                             ashlar_stream stream);

ASHLAR_API size_t ashlar_arena_tensor_count(const ashlar_arena *arena);
ASHLAR_API size_t ashlar_arena_elements(const ashlar_arena *arena); /* without padding */
ASHLAR_API unsigned ashlar_arena_regions(const ashlar_arena *arena); /* 0 before commit */
ASHLAR_API ashlar_allocator *ashlar_arena_allocator(const ashlar_arena *arena); /* after commit */

/* With padding; 0 before commit, and for a region that could have no byte. */
ASHLAR_API size_t ashlar_arena_region_bytes(const ashlar_arena *arena, ashlar_region region);

/* "parameters" and so on; NULL for a value that is no region. Threads: any. */
ASHLAR_API const char *ashlar_region_text(ashlar_region region);

/* Find a tensor by name. Cost: O(1). Errors: ASHLAR_EINVAL (there is none of that name). */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_find(const ashlar_arena *arena,
                                                             const char *name, size_t *tensor);

/* Describe a tensor. Requires tensor < ashlar_arena_tensor_count(). info->name is the arena's. */
ASHLAR_API void ashlar_arena_tensor(const ashlar_arena *arena, size_t tensor,
                                    ashlar_tensor_info *info);

/*
 * The device address of a region, or of one tensor in it. NULL before commit, and if there is none:
 * F32 and F64 tensors have no master.
 */
ASHLAR_API void *ashlar_arena_region(const ashlar_arena *arena, ashlar_region region);
ASHLAR_API void *ashlar_arena_view(const ashlar_arena *arena, ashlar_region region, size_t tensor);

/*
 * One bucket, in the order in which backward makes gradients final: bucket 0 lies at the arena's
 * end. Together they are the whole storage layout, without gaps.
 */
typedef struct ashlar_arena_bucket {
    size_t offset;       /* bytes, in ASHLAR_LAYOUT_STORAGE; a multiple of 256 */
    size_t bytes;        /* a multiple of 256 * world_size */
    ashlar_dtype dtype;  /* of every element */
    size_t first_tensor; /* whose gradients it holds: */
    size_t tensor_count; /*     first_tensor .. first_tensor + tensor_count - 1 */
} ashlar_arena_bucket;

ASHLAR_API size_t ashlar_arena_bucket_count(const ashlar_arena *arena); /* 0 before commit */

/* Describe bucket i. Requires i < ashlar_arena_bucket_count(). */
ASHLAR_API void ashlar_arena_get_bucket(const ashlar_arena *arena, size_t i,
                                        ashlar_arena_bucket *out);

/*
 * Print a map of the arena: a line for each region and each bucket, and one for each tensor in
 * address order with offset, bytes, padding behind it, type, shape, options and name.
 *
 * buffer   of `bytes` bytes; NULL if that is 0: then only *needed is written
 * needed   bytes of the text with its terminator; may be NULL
 *
 * Errors:  ASHLAR_EINVAL (not committed; 0 < bytes < *needed, told in the detail).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_format_map(const ashlar_arena *arena,
                                                                   char *buffer, size_t bytes,
                                                                   size_t *needed);

/* ---- views that are watched ---- */

/* One tensor of one region, as a program may keep it. */
typedef struct ashlar_tensor_view {
    void *data;         /* device address */
    ashlar_dtype dtype; /* the region's: moments and masters of F16 and BF16 tensors are F32 */
    size_t rank;
    size_t shape[ASHLAR_RANK_MAX]; /* 0 from `rank` on */
} ashlar_tensor_view;

/*
 * Write the tensor's address into *pointer, or its whole description into *view, and watch it:
 * ashlar_arena_check() finds out if it was changed. Binding again replaces the binding; several
 * pointers may be bound to one tensor.
 *
 * Ownership: the caller owns *pointer or *view, and keeps it in its place until
 *            ashlar_arena_unbind() or the arena's end.
 * Errors:    ASHLAR_EINVAL (no such region or tensor, not committed), ASHLAR_EHOSTMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_bind(ashlar_arena *arena,
                                                             ashlar_region region, size_t tensor,
                                                             void **pointer);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_bind_view(ashlar_arena *arena,
                                                                  ashlar_region region,
                                                                  size_t tensor,
                                                                  ashlar_tensor_view *view);

/*
 * Stop watching *pointer, for a view &view->data. It keeps its value.
 *
 * Errors: ASHLAR_EINVAL (it is not bound).  Cost: O(bound pointers).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_unbind(ashlar_arena *arena,
                                                               void *const *pointer);

/*
 * Find the first way in which the arena is no longer one piece:
 *
 *   a bound pointer or view that was replaced: by NULL, memory that is not the arena's, another
 *     tensor's place or a part of it, or padding
 *   a bound view with another type, rank or shape
 *   tensors that overlap, a tensor outside its group, a gap between groups or buckets: the arena's
 *     own description is damaged
 *   a region that is no longer a live block of the allocator, large enough
 *
 * ashlar_arena_flatten() mends pointers that were replaced.
 *
 * Errors: ASHLAR_EMOVED, with the tensor, bucket or region, and where it is now; ASHLAR_EINVAL (not
 *         committed).
 * Cost:   no driver call; some nanoseconds per pointer and tensor and a look-up per region, little
 *         enough for every step.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_check(const ashlar_arena *arena);

/*
 * Find the first byte of padding, in the order of regions and addresses, that is not zero.
 *
 * Stream: queued, and waits on the host for it.
 * Errors: ASHLAR_EDAMAGE, with region, offset and the tensor before it; ASHLAR_EINVAL (not
 *         committed), ASHLAR_EHOSTMEM, and those of ashlar_alloc(), ashlar_copy_batch() and
 *         ashlar_copy_to_host().
 * Cost:   copies all padding into one block, which lives as long as the call, and from there to the
 *         host: one ashlar_copy_batch(), one copy, one wait.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_check_padding(const ashlar_arena *arena,
                                                                      ashlar_stream stream);

ASHLAR_END_DECLS

#endif /* ASHLAR_ARENA_H */
