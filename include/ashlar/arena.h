/*
 * arena.h - all parameters of a model in one contiguous range, with gradients and optimizer
 * moments in mirrored ranges.
 *
 * Use: create, add every tensor, commit once, then bind or view. Commit fixes the layout.
 *
 *   group    a single tensor, or several of one type that lie side by side in a given order, such
 *            as an RNN stack in cuDNN's packed order; begins at a multiple of 256 B
 *   region   one contiguous range that holds a value for each tensor: the parameters, gradients,
 *            first moments, second moments or masters
 *   bucket   neighbouring groups of one type, for one collective; see ashlar_arena_set_buckets()
 *
 * Parameters and gradients have their tensor's type. Moments are F32, or F64 for an F64 tensor, and
 * the master region holds the F32 values of F16 and BF16 parameters and nothing else. So every
 * region has one of three layouts, which differ only if there are F16 or BF16 tensors:
 *
 *     group:   padded elements = bytes rounded up to 256 B (the last group of a bucket: up to the
 *                                bucket's end) / element bytes
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

ASHLAR_BEGIN_DECLS

typedef struct ashlar_arena ashlar_arena;

enum {
    ASHLAR_ARENA_ALIGN = 256, /* bytes, of every group */
    ASHLAR_RANK_MAX = 4,
};

/* Which offsets a region uses; the formulas are above. */
typedef enum ashlar_layout {
    ASHLAR_LAYOUT_STORAGE,
    ASHLAR_LAYOUT_STATE,
    ASHLAR_LAYOUT_MASTER,
    ASHLAR_LAYOUT_COUNT
} ashlar_layout;

/* One row per region: name, text, tag of the region's block, layout. */
#define ASHLAR_REGION_MAP(X)                      \
    X(PARAMETERS, "parameters", WEIGHTS, STORAGE) \
    X(GRADIENTS, "gradients", GRADIENTS, STORAGE) \
    X(MOMENT1, "first moments", MOMENTS, STATE)   \
    X(MOMENT2, "second moments", MOMENTS, STATE)  \
    X(MASTER, "masters", WEIGHTS, MASTER)

#define ASHLAR_REGION_ENUM(name, text, tag, layout) ASHLAR_REGION_##name,
typedef enum ashlar_region {
    ASHLAR_REGION_MAP(ASHLAR_REGION_ENUM) ASHLAR_REGION_COUNT
} ashlar_region;

/* Sets of regions: one bit for each region. */
#define ASHLAR_REGION_BIT(region) (1u << (region))
#define ASHLAR_REGIONS_INFERENCE ASHLAR_REGION_BIT(ASHLAR_REGION_PARAMETERS)
/* To train with an optimizer, which adds the moments that it uses: ashlar_optimizer_create(). */
#define ASHLAR_REGIONS_TRAINING                                              \
    (ASHLAR_REGIONS_INFERENCE | ASHLAR_REGION_BIT(ASHLAR_REGION_GRADIENTS) | \
     ASHLAR_REGION_BIT(ASHLAR_REGION_MASTER))
#define ASHLAR_REGIONS_ALL (ASHLAR_REGION_BIT(ASHLAR_REGION_COUNT) - 1)

/* How an optimizer treats a tensor. All fields 0: nothing special. */
typedef struct ashlar_tensor_options {
    bool is_frozen;    /* not updated, and its gradient is not part of the norm */
    bool has_no_decay; /* weight decay does not apply */
    bool is_elementwise; /* ASHLAR_OPTIMIZER_MUON updates this matrix as ADAMW does: for embeddings
                          * and output layers */
    double rate_scale; /* multiplies the learning rate; > 0, and 0 stands for 1 */
    double decay_scale; /* multiplies the weight decay; > 0, and 0 stands for 1 */
} ashlar_tensor_options;

/* One tensor of a group, as declared. All tensors of a group have one type. */
typedef struct ashlar_tensor_spec {
    const char *name; /* unique in the arena; copied */
    ashlar_dtype dtype;
    size_t rank;                   /* 1 .. ASHLAR_RANK_MAX */
    size_t shape[ASHLAR_RANK_MAX]; /* elements, each at least 1 */
    size_t group_offset;           /* bytes from the group's start; 0 for a group of one tensor */
} ashlar_tensor_spec;

/* One tensor, with its place. */
typedef struct ashlar_tensor_info {
    const char *name; /* owned by the arena */
    ashlar_dtype dtype;
    size_t rank;
    size_t shape[ASHLAR_RANK_MAX];
    size_t elements;
    size_t bytes;
    size_t offset[ASHLAR_LAYOUT_COUNT]; /* bytes from the region's start; 0 before commit, and for
                                           ASHLAR_LAYOUT_MASTER if the tensor has no master */
    ashlar_tensor_options options;
} ashlar_tensor_info;

/* Make an arena without tensors. Ownership: the caller owns *out. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_create(ashlar_arena **out);

/* Destroy an arena, and free its regions in the order of their stream. NULL is allowed. */
ASHLAR_API void ashlar_arena_destroy(ashlar_arena *arena);

/* Declare one tensor, as a group of its own. *tensor gets the tensor's number, from 0; `tensor` may
 * be NULL.
 *
 * Errors: ASHLAR_EINVAL (after commit; a name used before; rank, shape or type), ASHLAR_EOVERFLOW,
 *         ASHLAR_EHOSTMEM. On failure nothing is added. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_add(ashlar_arena *arena, const char *name,
                                                            ashlar_dtype dtype, size_t rank,
                                                            const size_t *shape, size_t *tensor);

/* Declare tensors that lie at given offsets of one group. *first gets the first one's number; the
 * others follow in order.
 *
 * bytes   the group's size; every tensor must lie inside it, at a multiple of its element size,
 *         and no two may overlap
 *
 * Errors: those of ashlar_arena_add(). On failure no tensor is added. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_add_group(ashlar_arena *arena, size_t bytes,
                                                                  const ashlar_tensor_spec *specs,
                                                                  size_t count, size_t *first);

/* Choose how optimizers treat `tensor`, from their next step on: ashlar_optimizer_follow().
 *
 * Errors: ASHLAR_EINVAL (no such tensor; a scale that is negative or not finite). */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_arena_set_options(ashlar_arena *arena, size_t tensor, const ashlar_tensor_options *options);

/* Divide the arena into buckets, before commit. Without this call, neighbouring groups of one type
 * are one bucket, and its end is padded to 256 B only.
 *
 * bucket_bytes   at least 1. Buckets are filled from the arena's end, where gradients become final
 *                first; a bucket ends once it has this many bytes, or when the type changes
 * world_size     at least 1. Every bucket is padded to a multiple of 256 B * world_size, so that it
 *                can be divided into equal shards
 *
 * Errors: ASHLAR_EINVAL (after commit, a value of 0). */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_set_buckets(ashlar_arena *arena,
                                                                    size_t bucket_bytes,
                                                                    size_t world_size);

/* Compute the layout, take each of `regions` as one block from `allocator`, and fill it with zeros
 * on `stream`.
 *
 * regions   a set of ASHLAR_REGION_BIT()s that includes the parameters; without F16 and BF16
 *           tensors there is no master region, and its bit has no effect
 *
 * Errors: ASHLAR_EINVAL (nothing declared, committed before, regions), ASHLAR_EOVERFLOW,
 *         ASHLAR_EHOSTMEM and those of ashlar_alloc() and ashlar_fill(). On failure the arena is
 *         not committed. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_commit(ashlar_arena *arena,
                                                               ashlar_allocator *allocator,
                                                               ashlar_stream stream,
                                                               unsigned regions);

/* Add regions after commit, filled with zeros on `stream`. Regions that are there stay unchanged.
 *
 * Errors: ASHLAR_EINVAL (not committed; `regions` has a bit of no region), and those of
 *         ashlar_alloc() and ashlar_fill(). On failure no region is added. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_extend(ashlar_arena *arena,
                                                               ashlar_stream stream,
                                                               unsigned regions);

/* Give regions back, in the order of the streams that they were taken for; memory that was lent
 * stays the program's. Page-locked memory of an optimizer's waits for the device.
 *
 * regions   without the parameters; those that the arena lacks are none
 *
 * Errors: ASHLAR_EINVAL (not committed; parameters, or a bit of no region; a pointer into one of
 * them is bound). */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_drop(ashlar_arena *arena, unsigned regions);

/* Queue a fill of a whole region with zeros. Errors: ASHLAR_EINVAL (the arena does not have that
 * region), and those of ashlar_fill(). */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_zero(ashlar_arena *arena,
                                                             ashlar_region region,
                                                             ashlar_stream stream);

/*
 * Let the arena use `memory` for `region` when it takes that region, by ashlar_arena_commit(),
 * ashlar_arena_extend() or ashlar_optimizer_create(), in the place of a block of the allocator's:
 * so another program's arrays, such as PyTorch's tensors, are an arena where they lie.
 *
 * memory   at a multiple of ASHLAR_ARENA_ALIGN, which the device can use; for a software device any
 *          memory of the process. What it holds stays, and its padding must be zero
 * bytes    at least the region's (ashlar_arena_info)
 *
 * Ownership: the caller's; it must outlive the arena, which neither frees it nor knows of it if
 *            somebody else does.
 * Errors:    ASHLAR_EINVAL (no such region, memory is NULL or not aligned, or the region was
 * taken). Whoever takes the region fails with ASHLAR_EINVAL if `bytes` are too few.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_lend(ashlar_arena *arena,
                                                             ashlar_region region, void *memory,
                                                             size_t bytes);

typedef struct ashlar_arena_info {
    size_t tensor_count;
    size_t elements;             /* of all tensors, without padding */
    unsigned regions;            /* a set of ASHLAR_REGION_BIT()s; 0 before commit */
    ashlar_allocator *allocator; /* NULL before commit */
    size_t bucket_count;         /* 0 before commit */
    /* Each region's size, with padding; 0 before commit, and for masters if no tensor has one. */
    size_t region_bytes[ASHLAR_REGION_COUNT];
} ashlar_arena_info;

ASHLAR_API ashlar_arena_info ashlar_arena_get_info(const ashlar_arena *arena);

/* Find a tensor by name. Cost: O(1). Errors: ASHLAR_EINVAL (no tensor has that name). */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_find(const ashlar_arena *arena,
                                                             const char *name, size_t *tensor);

/* Describe a tensor. Requires tensor < the arena's tensor_count. The arena owns info->name. */
ASHLAR_API void ashlar_arena_tensor(const ashlar_arena *arena, size_t tensor,
                                    ashlar_tensor_info *info);

/* The device address of a region, or of one tensor in it. NULL: the arena is not committed, or does
 * not have the region, or the tensor is F32 or F64 and so has no master. */
ASHLAR_API void *ashlar_arena_region(const ashlar_arena *arena, ashlar_region region);
ASHLAR_API void *ashlar_arena_view(const ashlar_arena *arena, ashlar_region region, size_t tensor);

/* One bucket. Buckets are numbered in the order in which backward makes gradients final: bucket 0
 * lies at the arena's end. Together the buckets are the whole storage layout, without gaps. */
typedef struct ashlar_arena_bucket {
    size_t offset;       /* bytes, in ASHLAR_LAYOUT_STORAGE; a multiple of 256 */
    size_t bytes;        /* a multiple of 256 * world_size */
    ashlar_dtype dtype;  /* of every element */
    size_t first_tensor; /* the number of its first tensor; the others follow */
    size_t tensor_count;
} ashlar_arena_bucket;

/* Describe bucket i. Requires i < the arena's bucket_count. */
ASHLAR_API void ashlar_arena_get_bucket(const ashlar_arena *arena, size_t i,
                                        ashlar_arena_bucket *out);

/* ---- watched pointers and views ---- */

/* One tensor of one region: a description that a program may keep. */
typedef struct ashlar_tensor_view {
    void *data;         /* device address */
    ashlar_dtype dtype; /* in this region: moments and masters of F16 and BF16 tensors are F32 */
    size_t rank;
    size_t shape[ASHLAR_RANK_MAX]; /* 0 from `rank` on */
} ashlar_tensor_view;

/* Write the tensor's address into *pointer, or its whole description into *view, and watch that
 * variable: ashlar_arena_check() reports a change. Binding a variable again replaces its binding;
 * several variables may be bound to one tensor.
 *
 * Ownership: the caller owns *pointer or *view, which must stay at its address until
 *            ashlar_arena_unbind() or ashlar_arena_destroy().
 * Errors:    ASHLAR_EINVAL (no such region or tensor, not committed), ASHLAR_EHOSTMEM. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_bind(ashlar_arena *arena,
                                                             ashlar_region region, size_t tensor,
                                                             void **pointer);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_bind_view(ashlar_arena *arena,
                                                                  ashlar_region region,
                                                                  size_t tensor,
                                                                  ashlar_tensor_view *view);

/* Stop watching *pointer; for a bound view, pass &view->data. The variable keeps its value.
 *
 * Errors: ASHLAR_EINVAL (*pointer is not bound).  Cost: O(bound pointers). */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_unbind(ashlar_arena *arena,
                                                               void *const *pointer);

/* Check that the arena is still contiguous and complete, and report the first defect:
 *
 *   a bound pointer, or the pointer of a bound view, was changed: to NULL, to memory outside the
 *     arena, into another tensor, or into padding
 *   the type, rank or shape of a bound view was changed
 *   the arena's own description is damaged
 *   a region is no longer a live block of the allocator, or the block is too small
 *
 * ashlar_arena_flatten() repairs pointers that were changed.
 *
 * Errors: ASHLAR_EMOVED (a defect; the detail names the tensor or region, and its present address),
 *         ASHLAR_EINVAL (not committed).
 * Cost:   no driver call; some nanoseconds per pointer and tensor and a look-up per region, little
 *         enough for every step. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_check(const ashlar_arena *arena);

/* Check that all padding is zero, and report the first byte, by region and address, that is not.
 *
 * Stream: queues copies on `stream`, and waits on the host until they have run.
 * Errors: ASHLAR_EDAMAGE (a byte is not zero; the detail names region, offset and the tensor before
 *         it), ASHLAR_EINVAL (not committed), ASHLAR_EHOSTMEM, and those of ashlar_alloc(),
 *         ashlar_copy() and ashlar_copy_to_host().
 * Cost:   copies each piece of padding into a temporary block, and that to the host; one wait. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_check_padding(const ashlar_arena *arena,
                                                                      ashlar_stream stream);

/* ---- gathering scattered tensors into a region ---- */

/* A pointer of the program, and the tensor of the arena that the memory behind it belongs to. */
typedef struct ashlar_flatten_item {
    size_t tensor;  /* the tensor's number in the arena */
    void **pointer; /* points to the elements, in the region's type; for a view, &view.data */
} ashlar_flatten_item;

typedef struct ashlar_flatten_stats {
    size_t copies; /* queued */
    size_t copied_bytes;
    size_t merged;       /* tensors that were copied together with the neighbour before */
    size_t in_place;     /* tensors that were in their place already, and were not copied */
    size_t tied;         /* items whose tensor an earlier item had named */
    size_t freed_blocks; /* blocks of `owner` that were freed */
    size_t kept_blocks;  /* blocks of `owner` of which some bytes were gathered, but not all */
} ashlar_flatten_stats;

/* Copy the memory that the items point to into `region`, set the items' pointers to the copies, and
 * bind them (ashlar_arena_bind()).
 *
 * Tensors that are neighbours both in memory and in the region, with no padding between, are copied
 * together. Tensors that lie in their place already are not copied; so this call also repairs the
 * pointers that ashlar_arena_check() complains about.
 *
 * Tied tensors are one tensor of the arena that several items name. All these items must point to
 * the same memory, which is copied once. The call is refused if two tensors of the arena share one
 * memory, since they would be shared no longer; if one tensor has two memories; or if two memories
 * overlap in part.
 *
 * items    [count], for any of the arena's tensors
 * owner    the allocator that the memory was taken from; NULL: nothing is freed. A block of `owner`
 *          is freed if the gathered tensors cover every byte that was requested for it: a block of
 *          one tensor, or one divided into tensors without a gap. A block with further bytes, even
 *          padding, may hold something else, and stays the caller's. Only the items' pointers may
 *          point into blocks that are freed, and nobody else (another arena, say) may free these
 * stats    NULL is allowed
 *
 * With an owner, gathering a model region by region never needs more extra memory than one region:
 * commit with ASHLAR_REGIONS_INFERENCE, flatten the parameters, add the next region by
 * ashlar_arena_extend(), flatten that region, and so on.
 *
 * Ownership: the caller's pointers stay bound until ashlar_arena_unbind().
 * Threads:   one at a time for an arena.
 * Stream:    no host wait. `stream` must be ordered after other streams' work on the gathered
 *            memory. Blocks are freed in the order of their own stream and of `stream`.
 * Errors:    ASHLAR_EINVAL (no such region or tensor; a NULL pointer; the call is refused, as said
 *            above; memory of the arena itself that is not the tensor's place; a tensor that
 *            reaches beyond its block's end), ASHLAR_EPOINTER (memory that is in no live block of
 *            `owner`), ASHLAR_EHOSTMEM, and those of ashlar_copy(). No pointer, binding or
 *            block has changed then, but copies may be queued that overwrite the tensors' places.
 *            If `owner` has a guard mode, also those of ashlar_free(): everything was gathered
 *            then, and blocks that could not be freed stay the caller's.
 * Cost:      O(count log count); with an owner also O(blocks of the owner), under its lock. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_flatten(
    ashlar_arena *arena, ashlar_region region, const ashlar_flatten_item *items, size_t count,
    ashlar_allocator *owner, ashlar_stream stream, ashlar_flatten_stats *stats);

/* ---- replicas ---- */

/*
 * A replica is a copy of an arena, for example on another device. It has the layout of its source:
 * the same offsets and buckets. It never needs ashlar_arena_flatten(), since its tensors never lie
 * anywhere else.
 */

/* Make an arena with the tensors, options and buckets of `source`, and copy `regions` to it: one
 * copy for each region, padding included. No pointer is bound to the new arena.
 *
 * source_stream  a stream of the source's device: the copies run after work queued on it so far,
 *                and before work queued on it from now on
 * allocator      of the source's device, or of another device of the same kind
 * stream         a stream of the allocator's device; the copies are queued on it
 * regions        a set of ASHLAR_REGION_BIT()s that includes the parameters. The source must have
 *                each of them; ashlar_arena_extend() adds others to the new arena
 *
 * Ownership: *out is the caller's, an arena like any other; it may outlive its source.
 * Stream:    no host wait, except after an error.
 * Errors:    ASHLAR_EINVAL (source not committed, regions, devices of two kinds), ASHLAR_EHOSTMEM,
 *            and those of ashlar_alloc(), ashlar_copy_peer(), ashlar_event_create() and
 *            ashlar_event_record(). No arena is made then.
 * Cost:      a driver call for each region, and seven for the two events. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_replicate(
    const ashlar_arena *source, ashlar_stream source_stream, ashlar_allocator *allocator,
    ashlar_stream stream, unsigned regions, ashlar_arena **out);

/* Copy the parameters again, all of them by one copy.
 *
 * source   any arena of the replica's layout
 *
 * Stream:  as ashlar_arena_replicate(): the copy is queued on `stream`, and runs after work queued
 *          on `source_stream` so far and before work queued there later.
 * Errors:  ASHLAR_EINVAL (another layout, not committed, source and replica are one arena), and
 *          those of ashlar_copy_peer(), ashlar_event_create() and ashlar_event_record(); the
 *          replica's parameters may be overwritten then. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_refresh(ashlar_arena *replica,
                                                                ashlar_stream stream,
                                                                const ashlar_arena *source,
                                                                ashlar_stream source_stream);

/* ---- files ---- */

/*
 * An arena can be saved to a file, a checkpoint, and loaded again.
 *
 * The file has the public safetensors format, so that other programs read and write such files. It
 * holds one tensor for each tensor of the arena, with the same name, shape and type. The tensors of
 * an RNN stack have PyTorch's names, shapes and order of gates (see ashlar_rnn_declare()). A file
 * with the optimizer's state holds, for each tensor NAME of the arena:
 *
 *     NAME                      the parameter
 *     optimizer.moment1.NAME    F32, or F64 for an F64 tensor; likewise optimizer.moment2.NAME
 *     optimizer.master.NAME     F32, for F16 and BF16 tensors
 *
 * Gradients are not saved. The metadata is a list of keys with texts, of the caller's choice.
 *
 * A save replaces FILE as a whole or not at all: the data goes to a new file in the same folder,
 * which nobody else can open, is made durable, and gets FILE's name, with FILE's permissions or, if
 * there was none, those of the umask. If the process is killed before that, FILE stays as it was,
 * and the new file may be left: FILE.ashlar-<16 digits>.tmp. If FILE is a symbolic link,
 * the file that it leads to is replaced; a link where everybody may make files is refused.
 *
 * Threads: one at a time per arena; any thread may read an open file.
 */

/* Flags of a save or load; 0: the parameters only, and a load of all of them. */
enum {
    ASHLAR_CHECKPOINT_STATE = 1,   /* also the optimizer's state: moments and masters */
    ASHLAR_CHECKPOINT_PARTIAL = 2, /* load: only what fits */
};

/* One text of the metadata. */
typedef struct ashlar_checkpoint_pair {
    const char *key; /* both texts are UTF-8 */
    const char *value;
} ashlar_checkpoint_pair;

/*
 * Write the arena's parameters to the file `path`, which is replaced. With ASHLAR_CHECKPOINT_STATE,
 * also write the regions MOMENT1, MOMENT2 and MASTER, as far as the arena has them. Waits for
 * `stream`.
 *
 * flags      0 or ASHLAR_CHECKPOINT_STATE
 * metadata   [metadata_count]; may be NULL if `metadata_count` is 0
 *
 * Errors: ASHLAR_EINVAL (not committed, flags, `path` is not a regular file, a name or text is not
 *         UTF-8, a key is given twice, a tensor has the name of another tensor's state),
 *         ASHLAR_EOVERFLOW, ASHLAR_EHOSTMEM, ASHLAR_EIO, ASHLAR_EDRIVER. The file is then as it
 *         was, unless the detail says that the new file is in place and only the folder could not
 *         be made durable.
 * Cost:   2 MiB of host memory, and a copy from the device for each MiB of a region, while the MiB
 *         before it is written to the file.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_checkpoint_save(
    const ashlar_arena *arena, const char *path, unsigned flags,
    const ashlar_checkpoint_pair *metadata, size_t metadata_count, ashlar_stream stream);

typedef struct ashlar_checkpoint ashlar_checkpoint;

/* One tensor of an open file. It may have a type or a rank that no arena has. */
typedef struct ashlar_checkpoint_tensor {
    const char *name;    /* UTF-8 */
    const char *dtype;   /* the format's name of its type: "F32", "I64" and so on */
    size_t rank;         /* 0: one element */
    const size_t *shape; /* [rank]; a dimension may be 0 */
    size_t offset;       /* where its elements begin in the file: row-major, little-endian */
    size_t bytes;        /* of all elements */
} ashlar_checkpoint_tensor;

/*
 * Open a file and check everything in it except the tensors' values, which a load reads.
 *
 * Ownership: the caller owns *out until ashlar_checkpoint_close(). Meanwhile the file may be
 *            replaced, which changes nothing. Do not write into it: a load reads what is in it by
 *            then.
 * Errors:    ASHLAR_EIO, ASHLAR_EFORMAT (the file is damaged, or no safetensors file; the detail
 *            names the file, the reason, and how to convert what torch.save() wrote),
 *            ASHLAR_EHOSTMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_checkpoint_open(const char *path,
                                                                  ashlar_checkpoint **out);

ASHLAR_API void ashlar_checkpoint_close(ashlar_checkpoint *file); /* NULL is allowed */

/* The file's tensors, in the order of the data; *count receives their number. They, and all that
 * they point to, are valid until the file is closed. */
ASHLAR_API const ashlar_checkpoint_tensor *ashlar_checkpoint_tensors(const ashlar_checkpoint *file,
                                                                     size_t *count);

/* The metadata's text for `key`, valid until the file is closed; NULL if the key is not there. */
ASHLAR_API const char *ashlar_checkpoint_metadata(const ashlar_checkpoint *file, const char *key);

/* How a load finds the arena's tensors in a file. All fields 0: by the same names, all of them. */
typedef struct ashlar_load_options {
    unsigned flags; /* a set of the flags above */

    /* [rename_count] names in the file and in the arena. The first pair whose key is a tensor's
     * name gives its name in the arena. A key that is empty or ends in a dot matches every name
     * that begins with it, and the value takes its place: {"module.", ""}, {"", "encoder."}. A
     * value of NULL leaves the tensor out. Moments and masters follow their parameter's name. No
     * name that is made so is longer than 1023 bytes. */
    const ashlar_checkpoint_pair *renames;
    size_t rename_count;

    /* The arena's name for a name in the file, until the next call; NULL: leave it out. In place
     * of `renames`, if it is not NULL. */
    const char *(*map)(void *user, const char *name);
    void *user;
} ashlar_load_options;

/* The file's tensor that a load takes for the arena's tensor `name`; NULL: there is none. So a
 * program can read sizes from the shapes in a file before there is an arena.
 *
 * options   NULL: all fields 0
 *
 * Cost: O(tensors). */
ASHLAR_API const ashlar_checkpoint_tensor *
ashlar_checkpoint_find(const ashlar_checkpoint *file, const ashlar_load_options *options,
                       const char *name);

/* Tensors of one kind. `first` is NULL if there are none; the file or the arena owns it. */
typedef struct ashlar_load_count {
    size_t count;
    const char *first; /* the first one's name */
} ashlar_load_count;

/* What a load found. Moments and masters count like parameters, under their parameter's name if
 * they are missing. */
typedef struct ashlar_load_report {
    size_t loaded;
    size_t converted;              /* of these, from another type */
    ashlar_load_count missing;     /* of the arena, and not in the file */
    ashlar_load_count left_over;   /* of the file, and neither in the arena nor left out */
    ashlar_load_count other_shape; /* of the file; the arena's tensor has another shape */
    ashlar_load_count other_type;  /* of the file; it cannot be converted to the arena's type */
} ashlar_load_report;

/*
 * Fill the arena from an open file. Waits for `stream`.
 *
 * Every parameter must be in the file with the shape that it has in the arena, and every tensor of
 * the file must have its place, unless `options` leaves it out. F16, BF16, F32 and F64 parameters
 * are converted into each other, rounded once to the nearest, ties to even; a value too large for
 * the type becomes infinite. If the arena has masters, they are always filled: from the file's
 * masters or, if it has none, from the file's parameters before these are rounded.
 *
 * Without ASHLAR_CHECKPOINT_STATE the arena's moments stay as they are, and moments in the file are
 * ignored. With ASHLAR_CHECKPOINT_STATE the file must have exactly the arena's moments, with the
 * same types, and no master that the arena lacks.
 *
 * With ASHLAR_CHECKPOINT_PARTIAL what fits is loaded, the other tensors of the arena keep their
 * values, and the report says what did not fit. A master follows its parameter.
 *
 * options   NULL: all fields 0
 * report    NULL is allowed; written if the status is ASHLAR_OK, or ASHLAR_EFORMAT for what does
 *           not fit
 *
 * Errors: ASHLAR_EFORMAT (something does not fit; the detail names the first tensor of each kind),
 *         ASHLAR_EINVAL (not committed, flags, two tensors of the file for one of the arena),
 *         ASHLAR_EHOSTMEM: the arena has not changed. ASHLAR_EIO (the file was cut since it was
 *         opened), ASHLAR_EDRIVER: some of the regions' bytes may have changed.
 * Cost:   2 MiB of host memory, and a copy to the device for each MiB of a region, in which the
 *         next one is read; from a region in which something is kept, also a copy back. A software
 *         device's regions are read in place.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_checkpoint_load(
    ashlar_arena *arena, const ashlar_checkpoint *file, const ashlar_load_options *options,
    ashlar_stream stream, ashlar_load_report *report);

ASHLAR_END_DECLS

#endif /* ASHLAR_ARENA_H */
