/*
 * file.h - writing a file whole or not at all (internal).
 *
 * The bytes go to a temporary file beside the target. The commit makes the temporary durable and
 * renames it over the target. Whoever opens the target meanwhile, or after a crash, finds either
 * the old file or the new one.
 *
 * A process that is killed leaves its temporary behind: TARGET.<process>.<number>.tmp. The next
 * ashlar__file_create() of the same target removes it, so that temporaries do not pile up.
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
 * Begin to replace the file `path`; if `path` is a symbolic link, the file that it leads to. The
 * new file gets the old one's permissions.
 *
 * Ownership: the caller ends *out with ashlar__file_commit() or ashlar__file_abort().
 * Errors:    ASHLAR_EIO (no such folder, no permission), ASHLAR_EINVAL (`path` is something other
 *            than a regular file), ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_create(const char *path, ashlar_file **out);

/* Append `bytes` bytes. Errors: ASHLAR_EIO; the caller must then abort, since some of the bytes may
 * have been written. */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_write(ashlar_file *file, const void *data,
                                                   size_t bytes);

/*
 * Make the new file durable and put it in the target's place. Frees `file`, also on failure.
 *
 * Errors: ASHLAR_EIO. The target is then unchanged and the temporary is gone. One exception, which
 *         the detail names: the target was replaced, but its folder could not be made durable.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_commit(ashlar_file *file);

/* Remove the temporary and leave the target alone. Frees `file`; NULL is allowed. */
void ashlar__file_abort(ashlar_file *file);

/* Replace the contents of `path` by `text` and an end of line. Errors: as the functions above. */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_write_line(const char *path, const char *text,
                                                        size_t bytes);

/*
 * Stale temporaries. A writer holds a lock (flock(2)) on its temporary until the rename, and the
 * kernel drops the locks of a process that dies. So a temporary that we can lock has no writer, and
 * we remove it if it still has its name after we locked it. If the file system has no such locks,
 * nothing is removed. The two functions below are for file.c and its tests.
 */

/* Remove the temporaries that killed writers of `target` left. Failures are ignored. */
void ashlar__file_remove_stale(const char *target);

/* Lock a temporary just created. False: another process has taken it for stale and is removing it,
 * so the caller must create another one. */
bool ashlar__file_lock(int fd);

#endif /* ASHLAR_FILE_H */
