/*
 * file.h - writing a file whole or not at all (internal).
 *
 * The bytes go to a temporary file beside the target, which the commit makes durable and renames
 * over it. Whoever opens the target meanwhile, or after a crash, finds the old file or the new.
 *
 * A process that is killed leaves its temporary, TARGET.<process>.<number>.tmp. The next
 * ashlar__file_create() of the same target removes it, so that they do not pile up.
 *
 * Threads: one at a time per file.
 */
#ifndef ASHLAR_FILE_H
#define ASHLAR_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/status.h>

typedef struct ashlar_file ashlar_file;

/*
 * Begin to replace the file `path`, or the file that a symbolic link of that name leads to. The
 * new file has the old one's permissions.
 *
 * Ownership: the caller ends *out with ashlar__file_commit() or ashlar__file_abort().
 * Errors:    ASHLAR_EIO (no such folder, no permission), ASHLAR_EINVAL (`path` is something other
 *            than a regular file), ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_create(const char *path, ashlar_file **out);

/*
 * Append `bytes` bytes. Errors: ASHLAR_EIO; then abort the file, whose contents are unknown.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_write(ashlar_file *file, const void *data,
                                                   size_t bytes);

/*
 * Make the new file durable and put it in the target's place. Ends `file`, failed or not.
 *
 * Errors: ASHLAR_EIO; the target is then as it was and the temporary is gone, except when the
 *         detail says that only the folder could not be made durable.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_commit(ashlar_file *file);

/* Remove the temporary and leave the target alone. Ends `file`; NULL is allowed. */
void ashlar__file_abort(ashlar_file *file);

/* Replace the file `path` by `text` and an end of line. Errors: those of the functions above. */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_write_line(const char *path, const char *text,
                                                        size_t bytes);

/*
 * A writer holds a lock (flock(2)) on its temporary until that has become the target, and the
 * kernel drops the locks of a process that dies. So a temporary that can be locked has no writer:
 *
 *     remove it   <=>   it is locked by us and still has its name
 *
 * Where a file system has no such locks, nothing is removed. Both are for file.c and its tests.
 */

/* Remove what killed writers of `target` left; what cannot be removed stays, without a word. */
void ashlar__file_remove_stale(const char *target);

/* Lock a temporary just created. False: another process has taken it for stale; create another. */
bool ashlar__file_lock(int fd);

#endif /* ASHLAR_FILE_H */
