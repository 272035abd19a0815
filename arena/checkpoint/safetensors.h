/*
 * safetensors.h - named tensors in one file of the public safetensors format (internal).
 *
 *     8 bytes    N, little-endian
 *     N bytes    JSON: {"__metadata__": {key: text}, name: {"dtype": "F32", "shape": [2, 3],
 *                "data_offsets": [begin, end]}, ...}, padded with blanks
 *     the rest   the tensors' bytes, little-endian, row-major; data_offsets count from here
 *
 * The reader refuses files in which this does not hold, the tensors being sorted by begin:
 *     begin[0] = 0, begin[i+1] = end[i], end[last] = file bytes - 8 - N, N <= HEADER_MAX
 *     end[i] - begin[i] = product of shape * bits of dtype / 8, for the dtypes of the format; any
 *                         other is taken as it is, since a later format may have it
 */
#ifndef ASHLAR_SAFETENSORS_H
#define ASHLAR_SAFETENSORS_H

#include <stddef.h>

#include <ashlar/arena.h>
#include <ashlar/base.h>

enum {
    ASHLAR_PIECE_BYTES = 1 << 20, /* that are moved between a device and a file at once */
    ASHLAR_SAFETENSORS_HEADER_MAX = 100000000, /* as in the format's own implementation */
};

/* A tensor to be written. */
typedef struct ashlar_safetensors_entry {
    const char *name; /* UTF-8 */
    ashlar_dtype dtype;
    size_t rank;                   /* 0: one element */
    size_t shape[ASHLAR_RANK_MAX]; /* [rank]; a dimension may be 0 */
    const void *data;              /* the elements; may be NULL if there are none */
} ashlar_safetensors_entry;

typedef ashlar_checkpoint_pair ashlar_safetensors_pair; /* one text of the metadata */

/* How a write gets the elements of an entry whose `data` is not host memory. */
typedef struct ashlar_safetensors_source {
    /* at      the elements of `entry` from byte `first` on, in host memory until the next call
     * bytes   how many bytes are there, at least 1; it may be more than the entry has left */
    ashlar_status (*find)(void *context, const ashlar_safetensors_entry *entry, size_t first,
                          const char **at, size_t *bytes);
    void *context;
} ashlar_safetensors_source;

/*
 * Write a file, whole or not at all (see file.h). Tensors with wider elements come first, so that
 * each is aligned to its element size; tensors with equally wide elements keep their order.
 *
 * metadata   NULL if metadata_count is 0
 * source     its find() is called in the file's order. NULL: all data is in host memory
 * Errors:    ASHLAR_EINVAL (a name used twice, reserved or not UTF-8; an unknown type; too high a
 *            rank), ASHLAR_EOVERFLOW (a tensor, the header or the file is too large), ASHLAR_EIO,
 *            ASHLAR_EHOSTMEM; also those of `find`.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__safetensors_write(const char *path,
                                                          const ashlar_safetensors_entry *entries,
                                                          size_t count,
                                                          const ashlar_safetensors_pair *metadata,
                                                          size_t metadata_count,
                                                          const ashlar_safetensors_source *source);

/* Read `bytes` bytes of a tensor's elements from byte `first` on; the tensor must have them.
 * Errors: ASHLAR_EIO (also if the file is now shorter than when it was opened). */
ASHLAR_MUST_CHECK ashlar_status ashlar__safetensors_read(const ashlar_checkpoint *file,
                                                         const ashlar_checkpoint_tensor *tensor,
                                                         size_t first, size_t bytes, void *out);

/* The path, as it was given. */
const char *ashlar__safetensors_path(const ashlar_checkpoint *file);

#endif /* ASHLAR_SAFETENSORS_H */
