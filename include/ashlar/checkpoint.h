/*
 * checkpoint.h - an arena in a file, and back.
 *
 * The file has the public safetensors format, so that other programs read and write such files. It
 * holds one tensor for each of the arena's, with the arena's name, shape and type; those of an RNN
 * stack have PyTorch's names, shapes and order of gates (see ashlar_rnn_declare()). With the
 * optimizer's state:
 *
 *     NAME                      the parameter
 *     optimizer.moment1.NAME    F32, or F64 for an F64 tensor; the same of moment2
 *     optimizer.master.NAME     F32, of F16 and BF16 tensors
 *
 * Gradients are not saved. Metadata is texts under keys, whose meaning is the caller's.
 *
 * A file is there whole or not at all: it is written beside its place as
 * FILE.<process>.<number>.tmp, made durable, and renamed. A process that is killed before leaves
 * FILE as it was, and its unfinished file beside it, which the next save removes.
 *
 * Threads: one at a time per arena; any may read an open file.
 */
#ifndef ASHLAR_CHECKPOINT_H
#define ASHLAR_CHECKPOINT_H

#include <stddef.h>

#include <ashlar/arena.h>
#include <ashlar/export.h>
#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

/* What is saved or loaded beside the parameters; a set of these, 0 for none. */
enum {
    ASHLAR_CHECKPOINT_STATE = 1,   /* the optimizer's: moments and masters */
    ASHLAR_CHECKPOINT_CONVERT = 2, /* load: parameters may be of another type in the file */
};

/* One text of the metadata. */
typedef struct ashlar_checkpoint_pair {
    const char *key; /* UTF-8, both */
    const char *value;
} ashlar_checkpoint_pair;

/*
 * Write the arena's parameters, and with ASHLAR_CHECKPOINT_STATE those of the regions MOMENT1,
 * MOMENT2 and MASTER that it has, over the file `path`. Waits for `stream`.
 *
 * flags      0 or ASHLAR_CHECKPOINT_STATE
 * metadata   [metadata_count]; NULL if that is 0
 *
 * Errors: ASHLAR_EINVAL (not committed, flags, `path` is no regular file, a name or text is not
 *         UTF-8, a key is there twice, a tensor has the name of another one's state),
 *         ASHLAR_EOVERFLOW, ASHLAR_EHOSTMEM, ASHLAR_EIO, ASHLAR_EDRIVER. The file is then as it
 *         was, unless the detail says that only its folder could not be made durable.
 * Cost:   host memory of the regions that are saved; one copy from the device for each.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_checkpoint_save(
    const ashlar_arena *arena, const char *path, unsigned flags,
    const ashlar_checkpoint_pair *metadata, size_t metadata_count, ashlar_stream stream);

typedef struct ashlar_checkpoint ashlar_checkpoint;

/*
 * Open a file and check all of it but the values.
 *
 * Ownership: the caller owns *out until ashlar_checkpoint_close(). Meanwhile the file may be
 *            replaced, but not written to or cut short.
 * Errors:    ASHLAR_EIO, ASHLAR_EFORMAT (damaged, or of a type that ashlar does not have; the
 *            detail names the file and the reason), ASHLAR_EHOSTMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_checkpoint_open(const char *path,
                                                                  ashlar_checkpoint **out);

ASHLAR_API void ashlar_checkpoint_close(ashlar_checkpoint *file); /* NULL is allowed */

/* The metadata's text for `key`, valid until the file is closed; NULL if there is none. */
ASHLAR_API const char *ashlar_checkpoint_metadata(const ashlar_checkpoint *file, const char *key);

/*
 * Fill the arena from an open file. Waits for `stream`.
 *
 * Every parameter must be in the file with the arena's shape, and with its type unless
 * ASHLAR_CHECKPOINT_CONVERT is given: then F16, BF16, F32 and F64 are converted into each other,
 * rounded to the nearest, F64 to F16 and BF16 by way of F32; a value too large for the type becomes
 * infinite. Masters that the arena has are filled in any case: from the file's masters, or where it
 * lacks them from its parameters before they are rounded.
 *
 * Without ASHLAR_CHECKPOINT_STATE the moments stay as they are, and those in the file do not
 * matter. With it the file must have exactly the moments that the arena has, in their types, and no
 * master that the arena has not: what is loaded is all, or the load is refused.
 *
 * flags   a set of the ones above
 *
 * Errors: ASHLAR_EFORMAT (a tensor that is missing, has another type or shape, or is not the
 *         arena's; the detail names it), ASHLAR_EINVAL (not committed, flags), ASHLAR_EHOSTMEM: the
 *         arena has not changed. ASHLAR_EDRIVER: some regions may have.
 * Cost:   host memory of the largest region; one copy to the device for each.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_checkpoint_load(ashlar_arena *arena,
                                                                  const ashlar_checkpoint *file,
                                                                  unsigned flags,
                                                                  ashlar_stream stream);

ASHLAR_END_DECLS

#endif /* ASHLAR_CHECKPOINT_H */
