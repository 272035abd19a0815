/*
 * checkpoint.h - save an arena to a file, and load it again.
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
 * Gradients are not saved. The metadata is a list of keys with texts, which only the caller
 * interprets.
 *
 * A save replaces FILE as a whole or not at all: the data goes to a new file in the same folder,
 * which nobody else can open, is made durable, and gets FILE's name, with FILE's permissions or, if
 * there was none, those of the umask. If the process is killed before that, FILE stays as it was,
 * and the new file may be left: FILE.ashlar-<16 digits>.tmp. If FILE is a symbolic link,
 * the file that it leads to is replaced; a link where everybody may make files is refused.
 *
 * Threads: one at a time per arena; any thread may read an open file.
 */
#ifndef ASHLAR_CHECKPOINT_H
#define ASHLAR_CHECKPOINT_H

#include <stddef.h>

#include <ashlar/arena.h>
#include <ashlar/export.h>
#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

/* Flags of a save or load; 0: the parameters only, unconverted. */
enum {
    ASHLAR_CHECKPOINT_STATE = 1,   /* also the optimizer's state: moments and masters */
    ASHLAR_CHECKPOINT_CONVERT = 2, /* load: parameters may have another type in the file */
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
 * Cost:   2 MiB of host memory, and a copy from the device for each MiB of a region, in which the
 *         one before is written. A software device's regions are written in place.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_checkpoint_save(
    const ashlar_arena *arena, const char *path, unsigned flags,
    const ashlar_checkpoint_pair *metadata, size_t metadata_count, ashlar_stream stream);

typedef struct ashlar_checkpoint ashlar_checkpoint;

/*
 * Open a file and check everything in it except the tensors' values, which a load reads.
 *
 * Ownership: the caller owns *out until ashlar_checkpoint_close(). Meanwhile the file may be
 *            replaced, which changes nothing. Do not write into it: a load reads what is in it by
 *            then.
 * Errors:    ASHLAR_EIO, ASHLAR_EFORMAT (the file is damaged, or a tensor has a type that ashlar
 *            does not know; the detail names the file and the reason), ASHLAR_EHOSTMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_checkpoint_open(const char *path,
                                                                  ashlar_checkpoint **out);

ASHLAR_API void ashlar_checkpoint_close(ashlar_checkpoint *file); /* NULL is allowed */

/* The metadata's text for `key`, valid until the file is closed; NULL if the key is not there. */
ASHLAR_API const char *ashlar_checkpoint_metadata(const ashlar_checkpoint *file, const char *key);

/*
 * Fill the arena from an open file. Waits for `stream`.
 *
 * Every parameter must be in the file with the shape that it has in the arena. It must also have
 * the same type, unless ASHLAR_CHECKPOINT_CONVERT is given: then F16, BF16, F32 and F64 are
 * converted into each other, rounded to the nearest (F64 to F16 and BF16 by way of F32); a value
 * too large for the type becomes infinite. If the arena has masters, they are always filled: from
 * the file's masters or, if it has none, from the file's parameters before these are rounded.
 *
 * Without ASHLAR_CHECKPOINT_STATE the arena's moments stay as they are, and moments in the file are
 * ignored. With ASHLAR_CHECKPOINT_STATE the file must have exactly the arena's moments, with the
 * same types, and no master that the arena lacks; otherwise the load is refused.
 *
 * flags   a set of the flags above
 *
 * Errors: ASHLAR_EFORMAT (a tensor is missing, has another type or shape, or is not in the arena;
 *         the detail names it), ASHLAR_EINVAL (not committed, flags), ASHLAR_EHOSTMEM: the arena
 *         has not changed. ASHLAR_EIO (the file was cut since it was opened), ASHLAR_EDRIVER: some
 *         of the regions' bytes may have changed.
 * Cost:   2 MiB of host memory, and a copy to the device for each MiB of a region, in which the next
 *         one is read. A software device's regions are read in place.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_checkpoint_load(ashlar_arena *arena,
                                                                  const ashlar_checkpoint *file,
                                                                  unsigned flags,
                                                                  ashlar_stream stream);

ASHLAR_END_DECLS

#endif /* ASHLAR_CHECKPOINT_H */
