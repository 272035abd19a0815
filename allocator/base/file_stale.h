/*
 * file_stale.h - the temporaries that killed writers left beside a file (internal).
 *
 * Whoever writes holds a lock (flock(2)) on its temporary until that has become the target, and the
 * kernel drops the lock of a process that dies. So a temporary that can be locked has no writer:
 *
 *     remove it   <=>   it is locked by us and still has its name
 *
 * Where a file system has no such locks, nothing is removed.
 */
#ifndef ASHLAR_FILE_STALE_H
#define ASHLAR_FILE_STALE_H

#include <stdbool.h>

enum { ASHLAR_FILE_SUFFIX_BYTES = 48 }; /* of ".<process>.<number>.tmp" and its end */

/* Remove what killed writers of `target` left; what cannot be removed stays, without a word. */
void ashlar__file_remove_stale(const char *target);

/* Lock a temporary just created; false: somebody has taken it for stale, so create another one. */
bool ashlar__file_lock(int fd);

#endif /* ASHLAR_FILE_STALE_H */
