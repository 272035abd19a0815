/*
 * file.h - writing a file whole or not at all (internal).
 *
 * The bytes go to a new file in the target's folder, which nobody else sees (file_temporary.h). The
 * commit makes it durable and gives it the target's name. Whoever opens the target meanwhile, or
 * after a crash, finds either the old file or the new one.
 *
 * Threads: one at a time per file.
 */
#ifndef ASHLAR_FILE_H
#define ASHLAR_FILE_H

#include <stddef.h>

#include <ashlar/status.h>

typedef struct ashlar_file ashlar_file;

/*
 * Begin to replace the file `path`. If that is a symbolic link that can be trusted (file_target.h),
 * the file that it leads to is replaced. At the commit the new file gets the old one's permissions,
 * or those that the umask gives now; until then only its owner can open it.
 *
 * Ownership: the caller ends *out with ashlar__file_commit() or ashlar__file_abort().
 * Errors:    ASHLAR_EIO (no such folder, no permission), ASHLAR_EINVAL (`path` is something other
 *            than a regular file, or a link that is not followed), ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_create(const char *path, ashlar_file **out);

/* Append `bytes` bytes. Errors: ASHLAR_EIO; the caller must then abort, since some of the bytes may
 * have been written. */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_write(ashlar_file *file, const void *data,
                                                   size_t bytes);

/*
 * Make the new file durable and put it in the target's place. Frees `file`, also on failure.
 *
 * Errors: ASHLAR_EIO. The target is then unchanged and the new file is gone. One exception, which
 *         the detail names: the target was replaced, but its folder could not be made durable.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_commit(ashlar_file *file);

/* Drop the new file and leave the target alone. Frees `file`; NULL is allowed. */
void ashlar__file_abort(ashlar_file *file);

/*
 * Replace the contents of `path` by `text` and an end of line. Errors: those of
 * ashlar__file_create(), ashlar__file_write() and ashlar__file_commit().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_write_line(const char *path, const char *text,
                                                        size_t bytes);

#endif /* ASHLAR_FILE_H */
